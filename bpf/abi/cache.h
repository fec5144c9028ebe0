/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The cache, as shared by the BPF programs and the daemon: blobs (whole
 * responses) in mmapped arrays, one array per size class, and the index
 * entries that point at them.
 *
 * Only the daemon writes, the BPF programs read. BPF writes only the hit
 * counts in tbg_heat. A published blob is never changed: a new version
 * takes a new slot, and a slot is reused only after TBG_QUARANTINE_S.
 */
#ifndef TBG_ABI_CACHE_H
#define TBG_ABI_CACHE_H

#include "types.h"

/* Bytes of the longest canonical path a kernel tier can hold; multiple of 8. */
#define TBG_PATH_MAX 192

/* Seconds before a withdrawn slot is reused: longer than any retransmission of its bytes. */
#define TBG_QUARANTINE_S 60

/*
 * Segments of the longest reply that wire sends, an initial window (RFC 6928), and
 * payload bytes of a segment, whatever the interface's MTU: bpf_skb_change_tail() grows
 * to SKB_MAX_ALLOC, frame headers included. Wire sends each segment as a packet of its
 * own, while the daemon's TCP sends all of them as one GSO packet: measured with full
 * cores, ten segments cost wire less than the daemon.
 */
#define TBG_SEG_MAX 10
#define TBG_SEG_BYTES 15900

/* Bytes of the longest reply that wire sends: struct tbg_exchange counts them in 16 bits. */
#define TBG_WIRE_MAX 65535

/* Most digits of an Age that a kernel tier writes: three years. */
#define TBG_AGE_MAX 8

/* Length of an IMF-fixdate (RFC 9110 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT" */
#define TBG_DATE_LEN 29

/*
 * Size classes: X(name, bytes of one blob with its struct tbg_blob head,
 * percent of the memory budget). The last holds a body of 64 KiB with a head
 * of 1,424 bytes. Multiples of 64 keep all data where TBG_BLOB_APART puts it; the first
 * and the last class need 32 bytes more for what they must hold.
 */
#define TBG_CLASS_LIST(X) \
	X(512,	  544,	 2) \
	X(2K,	 2048,	34) \
	X(4K,	 4096,	18) \
	X(8K,	 8192,	18) \
	X(16K,	16384,	18) \
	X(68K,	69664,	10)

enum tbg_class {
#define X(name, bytes, percent) TBG_CLASS_##name,
	TBG_CLASS_LIST(X)
#undef X
	TBG_CLASS_NR
};

/* A blob's number: class in the top 4 bits, slot in its array below. */
#define TBG_BLOB_ID(class, slot)	((__u32)(class) << 28 | (slot))
#define TBG_BLOB_CLASS(id)		((id) >> 28)
#define TBG_BLOB_SLOT(id)		((id) & 0x0fffffffu)

/*
 * 128-bit keyed hash of the site and a text. The text is the canonical path
 * of a file; for a response of an upstream it is the request's URI, and the
 * request's Accept-Encoding if Vary names that (core/key.h).
 */
struct tbg_key {
	__u64 h[2];
};

/*
 * How a representation is encoded (RFC 9110 8.4.1): X(name, name of the coding,
 * suffix of a file that holds it).
 */
#define TBG_ENCODING_LIST(X) \
	X(GZIP,	"gzip",	"gz") \
	X(BR,	"br",	"br") \
	X(ZSTD,	"zstd",	"zst")

enum tbg_encoding {
	TBG_ENCODING_IDENTITY,
#define X(id, name, suffix) TBG_ENCODING_##id,
	TBG_ENCODING_LIST(X)
#undef X
	TBG_ENCODING_NR
};

/* The responses that one blob holds. */
enum tbg_part_id {
	TBG_PART_GET,		/* head and body */
	TBG_PART_HEAD,		/* the same head alone */
	TBG_PART_304,		/* 304 head */
	TBG_PART_NR
};

/* Room for a 304: its own 210 bytes, Vary, and 190 of Cache-Control. */
#define TBG_304_ROOM 432

/* The daemon accepts no longer head of a response. Bytes that are patched lie within it. */
#define TBG_HEAD_ROOM 32768

/* Most names of hosts that tbg_hosts holds. */
#define TBG_HOSTS_MAX 16384

/*
 * Value of the map of hosts: the site of a name (core/host.h), whose key is that
 * of the name as the path of the host TBG_VHOST_NAMES. The kernel may reuse an
 * element for another name while a program reads it; the program detects this by
 * tbg_host_seal().
 */
#define TBG_VHOST_NAMES 0xffffffffu

struct tbg_host {
	__u64 seal;
	__u32 vhost;
	__u32 len;
	__u8 name[TBG_PATH_MAX];	/* zero-padded */
};

static inline __attribute__((always_inline, unused))
__u64 tbg_host_seal(const struct tbg_key *key, __u32 vhost)
{
	return (key->h[0] ^ (key->h[1] << 32 | key->h[1] >> 32)) +
	       vhost * 0x9e3779b97f4a7c15ull;
}

/*
 * A slot ends in partial sums: sums[i] is the folded sum of the first
 * i * TBG_SUM_STRIDE bytes of data, Date bytes zero. So a segment's checksum
 * costs at most a stride, wherever it begins.
 */
#define TBG_SUM_STRIDE 64
#define TBG_SUMS(bytes) ((bytes) / TBG_SUM_STRIDE)
#define TBG_BLOB_ROOM(bytes) \
	((bytes) - sizeof(struct tbg_blob) - 2 * TBG_SUMS(bytes))

/*
 * One response inside a blob. It begins at data[off] and is len bytes long. The GET
 * and HEAD parts begin at off 0; the 304 part has TBG_304_ROOM bytes of the slot from
 * its off on and is no longer than that (so that the verifier can follow). csum is the
 * 16-bit ones' complement sum (RFC 1071, not inverted, in the packet's byte order,
 * i.e. summed as native 16-bit loads) of those bytes. The bytes that depend on the
 * time begin at date_off, which may be odd, and are zero in the blob: the Date
 * (TBG_DATE_LEN bytes) or, in a blob with an age_len, that many digits of Age. At
 * least TBG_DATE_LEN bytes of the head follow date_off. tier_off is the offset of the
 * four letters "wire" in Cache-Status; other tiers overwrite them in their copy. Both
 * offsets count from off.
 */
struct tbg_blob_part {
	__u32 off;
	__u32 len;
	__u16 csum;
	__u16 date_off;
	__u16 tier_off;
	__u16 status;		/* 200, 304, 301 … */
};

/*
 * Bytes that put the data of a blob 32 behind a multiple of 64. In a frame, payload begins
 * 54 to 90 bytes behind one, or at one. The copy to a place 1 to 15 bytes behind that of the
 * data, modulo 4096, takes 390 ns for 1,250 bytes on AMD's Zen 4 ("rep movsb"), not 30, and
 * 46 up to 31 bytes behind.
 */
#define TBG_BLOB_APART 32

/*
 * An element of the index may be given to another key while a program reads it
 * (deleted elements of a BPF hash are reused at once), so a program may read a
 * mixture of two entries. It therefore answers only if gen and key0 of the
 * blob match the entry and the key that it looked up.
 */
struct tbg_blob {
	__u32 gen;		/* generation of the slot; never 0 when in use */
	__u8 age_len;		/* digits of Age, up to TBG_AGE_MAX; 0: a Date */
	__u8 pad[3];
	struct tbg_blob_part part[TBG_PART_NR];
	__u64 key0;		/* h[0] of the key that the slot was filled for */
	__u8 apart[TBG_BLOB_APART];
	__u8 data[];
};

/*
 * Value of the index map. path, the text of the key, is zero-padded to
 * TBG_PATH_MAX and compared in words; etag is zero-padded and includes its
 * quotes, but not the W/ of a weak one. Each variant of a resource has an
 * entry of its own. The entry of identity is looked up first and lists the
 * encodings of the others; tbg_key_vary() (core/encoding.h) makes their
 * keys from its key.
 */
struct tbg_entry {
	__u32 blob;		/* TBG_BLOB_ID */
	__u32 gen;		/* must equal the blob's */
	__u64 expires_ns;	/* CLOCK_MONOTONIC; ~0: until withdrawn */
	__u64 born_ns;		/* the same, when its Age was 0; may wrap */
	__u32 vhost;
	__u16 path_len;
	__u8 etag_len;
	__u8 flags;		/* TBG_ENTRY_* */
	__u8 etag[40];
	__s64 modified_s;	/* Last-Modified, seconds since 1970 */
	__u8 encoding;		/* enum tbg_encoding */
	__u8 variants;		/* 1 << encoding each; of identity alone */
	__u8 pad[6];
	__u8 path[TBG_PATH_MAX];
};

/* Number of bytes in a blob's head that depend on the time. */
static inline __attribute__((always_inline, unused))
__u32 tbg_blob_timed(const struct tbg_blob *blob)
{
	return blob->age_len ? blob->age_len : TBG_DATE_LEN;
}

#define TBG_ENTRY_COOKIES 0x1	/* requests with a Cookie are passed up */
#define TBG_ENTRY_PLAIN	0x2	/* not a 200: conditional fields are ignored */
#define TBG_ENTRY_LISTED 0x8	/* its location has allow or deny lists: passed up */
#define TBG_ENTRY_CLAIMS 0x4	/* requests that name another scheme or host are passed up */

_Static_assert(sizeof(struct tbg_blob_part) == 16, "abi");
_Static_assert(sizeof(struct tbg_blob) == 96, "abi");
_Static_assert(sizeof(struct tbg_entry) == 88 + TBG_PATH_MAX, "abi");

#endif
