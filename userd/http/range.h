/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranges (RFC 9110 14): evaluation of a Range field, and the body of a
 * multipart/byteranges answer, generated piece by piece while it is sent.
 * Memory is that of the field, whatever the number of parts.
 *
 * Called by serve/dispatch.c, which decides, client/connection.c, which sends, and
 * proxy/transfer.c for stored responses.
 */
#ifndef TBG_USERD_HTTP_RANGE_H
#define TBG_USERD_HTTP_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tbg_range {
	uint64_t first, len;
};

struct tbg_ranges {
	const char *text;	/* the range-set, owned by the caller */
	size_t len, at;
	uint64_t size;		/* of the representation */
	unsigned int nr;	/* satisfiable ranges in it */
	bool malformed;		/* not a list of ranges */
	struct tbg_range one;	/* the first range */
};

/*
 * Evaluates a Range value for a representation of size bytes:
 *
 *	206	*ret has nr >= 1 ranges
 *	416	none of them is satisfiable, or the range-set is malformed
 *	200	the field does not count: another unit, or more bytes asked for
 *		than there are, which overlapping ranges alone can do
 *
 * RFC 9110 14.2 leaves malformed and excessive values to the server; both are
 * answered as by nginx. A cache ignores malformed ones.
 */
unsigned int tbg_ranges_open(struct tbg_ranges *ret, const char *text,
			     size_t len, uint64_t size);

/* Writes the value of Content-Range; range NULL: for a 416. Returns its length. */
#define TBG_RANGE_TEXT 80
int tbg_range_text(const struct tbg_range *range, uint64_t size,
		   char ret[TBG_RANGE_TEXT]);

/*
 * The body of an answer with several parts. Content is in memory, else in fd;
 * with neither, the caller provides it. release(owner) is called when the
 * content is no longer needed.
 */
#define TBG_BOUNDARY_MAX 32
#define TBG_PART_TYPE_MAX 256

struct tbg_parts {
	struct tbg_ranges ranges;
	uint64_t len;			/* of the whole body */
	bool ended;			/* all of it has been read */
	const uint8_t *memory;
	int fd;				/* not owned */
	void *owner;
	void (*release)(void *owner);
	/* private to range.c */
	bool begun;
	struct tbg_range left;		/* rest of the current part */
	char boundary[TBG_BOUNDARY_MAX];
	char type[TBG_PART_TYPE_MAX];
	char text[];
};

/*
 * type: the parts' Content-Type, "": none; cut off if too long. tag: the entity
 * tag; the boundary is made from it, so the same request gets the same answer.
 * NULL: no memory.
 */
struct tbg_parts *tbg_parts_new(const struct tbg_ranges *r, const char *type,
				size_t type_len, const char *tag,
				size_t tag_len);
void tbg_parts_free(struct tbg_parts *p);	/* NULL is allowed */

#define TBG_PARTS_ROOM	1024		/* minimum size of a buffer for tbg_parts_read() */
#define TBG_PIECE_MIN	(32 << 10)	/* pieces that are worth a sendfile() */

/*
 * Writes the next bytes into buf[room]. Returns their number, or -errno (-EIO:
 * the file has shrunk). If ret_piece->len is set, the content of that piece
 * comes next: the caller sends it before it calls again.
 */
ssize_t tbg_parts_read(struct tbg_parts *p, void *buf, size_t room,
		       struct tbg_range *ret_piece);

#endif
