/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The values in the maps of core.bpf.c, which core.c writes and reads. Included after
 * the core's headers.
 */
#ifndef TBG_TESTS_BPF_CORE_H
#define TBG_TESTS_BPF_CORE_H

struct result {
	__u32 why;
	__u32 status;
	__u32 encoding;
	__u32 found;	/* that path is in the index under the key */
	struct tbg_req req;
	struct tbg_key key;
};

struct entry {
	__u64 key[2];
	__u32 vhost;
	__u32 etag_len;
	__u8 etag[40];
	__s64 modified_s;
	__u64 variants;
};

#endif
