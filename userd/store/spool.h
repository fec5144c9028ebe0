/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request's body that is received before it can be sent on, whole or as much as
 * has come: its begin in memory, the rest in a file without a name, which goes
 * with its descriptor whatever becomes of us. Belongs to one transfer.
 */
#ifndef TBG_USERD_STORE_SPOOL_H
#define TBG_USERD_STORE_SPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TBG_SPOOL_USUAL	(64u << 10)	/* bytes of it in memory, by default */

struct tbg_spool {
	uint64_t len;		/* bytes of it so far */
	uint64_t held;		/* that count in the total */
	uint64_t memory_max;	/* what lies behind these is in the file */
	char *folder;		/* for the file */
	uint8_t *memory;
	size_t memory_len, memory_room;
	int fd;			/* -1: no file yet */
};

/* Bytes that all spools may have together; what is beyond is -EDQUOT. */
void tbg_spool_total_set(uint64_t bytes);

/* NULL: no memory. */
struct tbg_spool *tbg_spool_new(uint64_t memory_max, const char *folder);
void tbg_spool_free(struct tbg_spool *s);	/* NULL is allowed */

/* Appends. 0 or negative errno, such as -ENOSPC. */
int tbg_spool_add(struct tbg_spool *s, const uint8_t *b, size_t len);

/* It is empty again; what it has had of memory and file is kept for more. */
void tbg_spool_empty(struct tbg_spool *s);

/* Up to size bytes from off on; how many, 0 at the end, or negative errno. */
ssize_t tbg_spool_read(const struct tbg_spool *s, uint64_t off, uint8_t *b,
		       size_t size);

#endif
