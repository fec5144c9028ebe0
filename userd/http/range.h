/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parts of a representation (RFC 9110 14): what a Range field asks for, and
 * the body of a multipart/byteranges answer, made piece by piece while it is
 * sent. However many parts there are, memory is that of the field.
 *
 * Called by serve/dispatch.c, which decides, client/connection.c, which sends, and
 * proxy/transfer.c for stored responses.
 */
#ifndef TBG_USERD_RANGE_H
#define TBG_USERD_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tbg_range {
	uint64_t first, len;
};

struct tbg_ranges {
	const char *text;	/* the range-set, the caller's */
	size_t len, at;
	uint64_t size;		/* of the representation */
	unsigned int nr;	/* satisfiable ranges in it */
	bool malformed;		/* it is no list of ranges */
	struct tbg_range one;	/* the first of them */
};

/*
 * What the value of a Range field asks of size bytes:
 *
 *	206	*ret has nr >= 1 ranges
 *	416	none of them is satisfiable, or the range-set is malformed
 *	200	the field does not count: another unit, or more bytes asked for
 *		than there are, which overlapping ranges alone can do
 *
 * RFC 9110 14.2 leaves to the server what it does with the malformed and the
 * excessive; both are answered as nginx answers them. A cache ignores the malformed.
 */
unsigned int tbg_ranges_open(struct tbg_ranges *ret, const char *text,
			     size_t len, uint64_t size);

/* Content-Range's value; range NULL: the one of a 416. Its length. */
#define TBG_RANGE_TEXT 80
int tbg_range_text(const struct tbg_range *range, uint64_t size,
		   char ret[TBG_RANGE_TEXT]);

/*
 * The body of an answer with several parts. Content comes from memory, or from
 * fd where that is NULL, and is all the caller's where there is neither;
 * release(owner) is called when it is no longer needed.
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
	/* the rest is range.c's */
	bool begun;
	struct tbg_range left;		/* of the part being read */
	char boundary[TBG_BOUNDARY_MAX];
	char type[TBG_PART_TYPE_MAX];
	char text[];
};

/*
 * type: the parts' Content-Type, "": none; cut off if it is too long to be one.
 * tag: what tells this representation from others (the entity tag): the
 * boundary comes of it, so that the same request has the same answer. NULL: no
 * memory.
 */
struct tbg_parts *tbg_parts_new(const struct tbg_ranges *r, const char *type,
				size_t type_len, const char *tag,
				size_t tag_len);
void tbg_parts_free(struct tbg_parts *p);	/* NULL is allowed */

#define TBG_PARTS_ROOM	1024		/* that tbg_parts_read() needs at least */
#define TBG_PIECE_MIN	(32 << 10)	/* pieces that are worth a sendfile() */

/*
 * Fills buf[room] with what comes next; bytes written, or -errno (-EIO: the
 * file has shrunk). With ret_piece->len the next bytes are those of the content,
 * which the caller sends before it calls again.
 */
ssize_t tbg_parts_read(struct tbg_parts *p, void *buf, size_t room,
		       struct tbg_range *ret_piece);

#endif
