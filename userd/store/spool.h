/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keeps a request's body before it is sent to a server, complete or as it arrives: the
 * first bytes in memory, the rest in an unlinked file, which disappears with its
 * descriptor even after a crash. Belongs to one transfer.
 */
#ifndef TBG_USERD_STORE_SPOOL_H
#define TBG_USERD_STORE_SPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TBG_SPOOL_USUAL	(64u << 10)	/* default for the bytes in memory */

struct tbg_spool {
	uint64_t len;		/* bytes so far */
	uint64_t held;		/* bytes counted in the total of all spools */
	uint64_t memory_max;	/* bytes after these are in the file */
	char *folder;		/* folder of the file */
	uint8_t *memory;
	size_t memory_len, memory_room;
	int fd;			/* -1: no file yet */
};

/* Sets the limit for the bytes of all spools. Beyond it, tbg_spool_add() returns -EDQUOT. */
void tbg_spool_total_set(uint64_t bytes);

/* NULL: no memory. */
struct tbg_spool *tbg_spool_new(uint64_t memory_max, const char *folder);
void tbg_spool_free(struct tbg_spool *s);	/* accepts NULL */

/* Appends. Returns 0 or a negative errno, such as -ENOSPC. */
int tbg_spool_add(struct tbg_spool *s, const uint8_t *b, size_t len);

/* Empties the spool and keeps its memory and file for further use. */
void tbg_spool_empty(struct tbg_spool *s);

/* Reads up to size bytes at off. Returns their number, 0 at the end, or a negative errno. */
ssize_t tbg_spool_read(const struct tbg_spool *s, uint64_t off, uint8_t *b,
		       size_t size);

#endif
