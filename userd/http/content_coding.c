// SPDX-License-Identifier: GPL-2.0
/*
 * Codings by libdeflate, brotli and zstd. The levels take a worker a few
 * milliseconds for the largest object, and a few MiB of memory for the
 * largest text. Each text is compressed once.
 */
#include "http/content_coding.h"

#include <brotli/encode.h>
#include <errno.h>
#include <libdeflate.h>
#include <string.h>
#include <strings.h>
#include <zstd.h>

#include "core/encoding.h"

#define GZIP_LEVEL	9
#define BR_LEVEL	6
#define BR_WINDOW	16		/* log2 of 64 KiB */
#define ZSTD_LEVEL	12
#define ZSTD_LEVEL_LARGE 6
#define LARGE		(64 << 10)

static const struct {
	const char *name, *suffix;
} encodings[TBG_ENCODING_NR] = {
	[TBG_ENCODING_IDENTITY] = { "identity", "" },
#define X(id, name, suffix) [TBG_ENCODING_##id] = { name, suffix },
	TBG_ENCODING_LIST(X)
#undef X
};

const char *tbg_encoding_name(enum tbg_encoding e)
{
	return encodings[e].name;
}

const char *tbg_encoding_suffix(enum tbg_encoding e)
{
	return encodings[e].suffix;
}

enum tbg_encoding tbg_encoding_named(const char *name)
{
	int e = 0;

	while (e < TBG_ENCODING_NR && strcmp(encodings[e].name, name))
		e++;
	return e;
}

enum tbg_encoding tbg_encode_choose(const struct tbg_slice *accept,
				    unsigned int have)
{
	struct tbg_head head;

	/* a longer value is ignored, as wire passes up a request of its length */
	if (!have || !accept->text || accept->len > TBG_REQ_MAX)
		return TBG_ENCODING_IDENTITY;
	memcpy(head.b, accept->text, accept->len);
	memset(head.b + accept->len, 0, sizeof(head.b) - accept->len);
	return tbg_encoding_choose(&head, 0, accept->len, have);
}

/* In addition to text/ and types that end in +xml or +json. */
static const char *const types[] = {
	"application/javascript", "application/json", "application/manifest+json",
	"application/rtf", "application/vnd.ms-fontobject", "application/wasm",
	"application/x-javascript", "application/xhtml+xml", "application/xml",
	"font/otf", "font/ttf", "image/bmp", "image/svg+xml",
};

bool tbg_encode_type(const char *type)
{
	size_t len = strcspn(type, "; ");

	if (!strncasecmp(type, "text/", 5))
		return true;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strlen(types[i]) == len && !strncasecmp(type, types[i], len))
			return true;
	return (len > 4 && !strncasecmp(type + len - 4, "+xml", 4)) ||
	       (len > 5 && !strncasecmp(type + len - 5, "+json", 5));
}

static int gzip(const void *in, size_t len, void *ret, size_t room)
{
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(GZIP_LEVEL);
	size_t n;

	if (!c)
		return -ENOMEM;
	n = libdeflate_gzip_compress(c, in, len, ret, room);
	libdeflate_free_compressor(c);
	return n ? (int)n : -E2BIG;
}

static int br(const void *in, size_t len, void *ret, size_t room)
{
	if (!BrotliEncoderCompress(BR_LEVEL, BR_WINDOW, BROTLI_MODE_TEXT, len, in,
				   &room, ret))
		return -E2BIG;
	return room;
}

static int zstd(const void *in, size_t len, void *ret, size_t room)
{
	size_t n = ZSTD_compress(ret, room, in, len,
				 len > LARGE ? ZSTD_LEVEL_LARGE : ZSTD_LEVEL);

	return ZSTD_isError(n) ? -E2BIG : (int)n;
}

int tbg_encode(enum tbg_encoding e, const void *in, size_t len, void *ret,
	       size_t room)
{
	switch (e) {
	case TBG_ENCODING_GZIP:
		return gzip(in, len, ret, room);
	case TBG_ENCODING_BR:
		return br(in, len, ret, room);
	case TBG_ENCODING_ZSTD:
		return zstd(in, len, ret, room);
	default:
		return -E2BIG;
	}
}
