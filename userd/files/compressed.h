/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Texts too large for the cache, compressed: each version of a file once for
 * each coding, by a thread of its own, when a client first asks. Until that is
 * done the file is answered as it is. Called by files/files.c; never waits.
 */
#ifndef TBG_USERD_PRESS_H
#define TBG_USERD_PRESS_H

#include <stdint.h>
#include <sys/stat.h>

#include "abi/cache.h"

struct tbg_compressed;

/* Bytes of the largest text that is compressed. */
#define TBG_COMPRESSED_MAX (8u << 20)

/*
 * budget: bytes that compressed ones may have together. -ENOMEM. It lasts as
 * long as the process.
 */
int tbg_compressed_open(struct tbg_compressed **ret, uint64_t budget);

/*
 * A descriptor, the caller's, of the coding of the open file that st is of, and
 * what its size is. -EAGAIN: not yet; -E2BIG: it does not get smaller; -errno.
 */
int tbg_compressed_get(struct tbg_compressed *p, int fd, const struct stat *st,
		  enum tbg_encoding encoding);

#endif
