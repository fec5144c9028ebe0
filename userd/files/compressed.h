/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Compressed forms of texts too large for the cache. Each version of a file is
 * compressed once for each coding, by a thread of its own, at the first
 * request. Until then the file is sent uncompressed. Called by files/files.c;
 * never waits.
 */
#ifndef TBG_USERD_FILES_COMPRESSED_H
#define TBG_USERD_FILES_COMPRESSED_H

#include <stdint.h>
#include <sys/stat.h>

#include "abi/cache.h"

struct tbg_compressed;

/* Bytes of the largest text that is compressed. */
#define TBG_COMPRESSED_MAX (8u << 20)

/*
 * budget: bytes of all compressed texts. 0 or -ENOMEM. Lives as long as the
 * process.
 */
int tbg_compressed_open(struct tbg_compressed **ret, uint64_t budget);

/*
 * Returns a descriptor, to be closed by the caller, of the compressed form of
 * the open file fd with the status st, and its size. -EAGAIN: not ready yet;
 * -E2BIG: not smaller; or another negative errno.
 */
int tbg_compressed_get(struct tbg_compressed *p, int fd, const struct stat *st,
		  enum tbg_encoding encoding);

#endif
