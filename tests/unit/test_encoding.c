// SPDX-License-Identifier: GPL-2.0
/*
 * bpf/core/encoding.h: RFC 9110 12.5.3, compared with a table and with a simple
 * implementation of the grammar; and userd/http/content_coding.c, whose output is
 * decoded again.
 */
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <brotli/decode.h>

#include "ktap.h"
#include "head.h"
#include "core/encoding.h"
#include "http/content_coding.h"
#include "oracle.h"

#define G (1 << TBG_ENCODING_GZIP)
#define B (1 << TBG_ENCODING_BR)
#define Z (1 << TBG_ENCODING_ZSTD)
#define ALL (G | B | Z)
#define I 0

static struct tbg_head *head;

/* Returns the bit of the chosen encoding, which must not depend on bytes after the value. */
static unsigned int choose(const char *text, unsigned int have)
{
	size_t len = strlen(text);
	unsigned int ret = 0;

	if (!head)
		head = head_new();
	for (int rest = 0; rest < HEAD_REST_NR; rest++) {
		unsigned int got;

		head_fill(head, "", 0, rest);
		memcpy(head->b + 77, text, len);
		memcpy(head->b + 77 + len, "\r\n", 2);
		got = tbg_encoding_choose(head, 77, len, have);
		if (rest && got != ret)
			ktap_fail("%s: what follows the value counts", text);
		ret = got;
	}
	return ret ? 1u << ret : 0;
}

static const struct {
	const char *text;
	unsigned int have, want;
} table[] = {
	{ "gzip", ALL, G },
	{ "gzip", B | Z, I },
	{ "gzip", 0, I },
	{ "x-gzip", ALL, G },
	{ "GZip", ALL, G },
	{ "br", ALL, B },
	{ "zstd", ALL, Z },
	{ "gzip, deflate, br, zstd", ALL, B },
	{ "gzip, deflate, br, zstd", G | Z, Z },
	{ "gzip, deflate, br, zstd", G, G },
	{ "gzip, deflate, br", ALL, B },
	{ "gzip, deflate", ALL, G },
	{ "deflate, gzip, br, zstd", ALL, B },
	{ "deflate", ALL, I },
	{ "identity", ALL, I },
	{ "", ALL, I },
	{ ",", ALL, I },
	{ ",,gzip,,", ALL, G },
	{ "  gzip  ", ALL, G },
	{ "gzip,br", ALL, B },
	{ "compress,gzip", ALL, G },
	/* qualities */
	{ "gzip;q=1, br;q=0.5", ALL, G },
	{ "gzip;q=0.001", ALL, G },
	{ "gzip;q=0", ALL, I },
	{ "gzip;q=0.0", ALL, I },
	{ "gzip;q=0.000", ALL, I },
	{ "gzip;q=0.", ALL, I },
	{ "gzip;q=1.", ALL, G },
	{ "gzip;q=1.000", ALL, G },
	{ "gzip;Q=0.5", ALL, G },
	{ "gzip ; q=0.5 , br ; q=0.4", ALL, G },
	{ "gzip;q=0.4,br;q=0.45,zstd;q=0.449", ALL, B },
	{ "gzip;q=0, br", G, I },
	{ "br;q=0, gzip", ALL, G },
	/* identity */
	{ "identity, gzip", ALL, G },
	{ "identity;q=1, gzip;q=0.5", ALL, I },
	{ "identity;q=0.5, gzip;q=1", ALL, G },
	{ "identity;q=0, gzip;q=0.1", ALL, G },
	{ "identity;q=0", ALL, I },
	{ "identity;q=0, br;q=0", ALL, I },
	/* any */
	{ "*", ALL, B },
	{ "*", G, G },
	{ "*;q=0", ALL, I },
	{ "*;q=0, gzip", ALL, G },
	{ "gzip, *;q=0", ALL, G },
	{ "br;q=0, *", ALL, Z },
	{ "gzip;q=0.5, *;q=0.1", ALL, G },
	{ "gzip;q=0.5, *;q=0.1", B, B },
	{ "gzip;q=0.1, *;q=0.5", G, I },
	{ "identity;q=0.5, *;q=0.1", ALL, I },
	{ "identity;q=0, *;q=0.1", ALL, B },
	/* the first one counts */
	{ "gzip;q=0, gzip", ALL, I },
	{ "gzip, gzip;q=0", ALL, G },
	/* unknown codings, and invalid list elements */
	{ "gzipx", ALL, I },
	{ "gzi", ALL, I },
	{ "gzip-thing-of-a-length", ALL, I },
	{ "identityx, gzip;q=0.1", ALL, G },
	{ "identity-x;q=1, gzip;q=0.1", ALL, G },
	{ "identityx, identity;q=1, gzip;q=0.1", ALL, I },
	{ "identity-x, *;q=0.5, gzip;q=0.1", G | I, I },
	{ "identity ;q=1, gzip;q=0.5", ALL, I },
	{ "gzip br", ALL, I },
	{ "gzip;q=1.5", ALL, I },
	{ "gzip;q=1.001", ALL, I },
	{ "gzip;q=2", ALL, I },
	{ "gzip;q=.5", ALL, I },
	{ "gzip;q=0.5555", ALL, I },
	{ "gzip;q=", ALL, I },
	{ "gzip;q", ALL, I },
	{ "gzip;", ALL, I },
	{ "gzip;x=1", ALL, I },
	{ "gzip;q=1;x=1", ALL, I },
	{ "gzip;q=0.5x", ALL, I },
	{ "gzip;q= 1", ALL, I },
	{ "gzip;q=1.5, br;q=0.1", ALL, B },
	{ "\"gzip, br\"", ALL, I },
	{ "a-very-long-coding-name-that-nobody-has;q=0.3;and=more, br;q=0.2", ALL, B },
	{ "\xff\xfe, gzip", ALL, G },
	/* then "*" does not cover it either */
	{ "gzip;q=2, *", G, I },
	{ "gzip        ;q=0, *", G, I },
	{ "gzip;        q=0, *", ALL, B },
	{ "gzip;q=0.0000, *", G, I },
	{ "gzip;q, gzip", ALL, I },
	{ "*;q=2, gzip", ALL, G },
	{ "identity;q=2, gzip;q=0.1", ALL, G },
	{ "\xffgzip", ALL, I },
};

KTAP_TEST(t_choices)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		unsigned int got = choose(table[i].text, table[i].have);

		if (got != table[i].want)
			ktap_fail("\"%s\" of %x: %x, not %x", table[i].text,
				  table[i].have, got, table[i].want);
	}
}

/* All combinations of a few words, separators and numbers. */
KTAP_TEST(t_as_the_dull_reading)
{
	static const char *const words[] = {
		"gzip", "br", "zstd", "identity", "identityx", "*", "deflate", ",", ", ", ";",
		";q=", " ", "0", "1", "0.5", "0.123", "1.0", "q", "x-gzip", "BR",
		"       ", "        ", "-", ".", ",,",
	};
	unsigned int seed = 1;

	for (int i = 0; i < 200000; i++) {
		char text[200] = "";
		unsigned int have = i % 8 << 1, got, want;

		for (int n = 0; n < i % 11; n++) {
			seed = seed * 1103515245 + 12345;
			strcat(text, words[(seed >> 16) % (sizeof(words) / sizeof(*words))]);
		}
		want = oracle_encoding((uint8_t *)text, strlen(text), have);
		head_fill(head, "", 0, HEAD_REST_TEXT);
		memcpy(head->b + 9, text, strlen(text));
		memcpy(head->b + 9 + strlen(text), "\r\n", 2);
		got = tbg_encoding_choose(head, 9, strlen(text), have);
		if (got != want) {
			ktap_fail("\"%s\" of %x: %u, not %u", text, have, got, want);
			break;
		}
	}
}

KTAP_TEST(t_daemon_chooses_alike)
{
	static char text[TBG_REQ_MAX + 2];
	struct tbg_slice v = { text, 0 };

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		enum tbg_encoding e;

		v = (struct tbg_slice){ table[i].text, strlen(table[i].text) };
		e = tbg_encode_choose(&v, table[i].have);
		KTAP_EQ(e ? 1u << e : 0, table[i].want);
	}
	KTAP_EQ(tbg_encode_choose(&(struct tbg_slice){ 0 }, ALL), TBG_ENCODING_IDENTITY);
	memset(text, ' ', sizeof(text));
	memcpy(text + TBG_REQ_MAX - 2, "br", 2);
	v = (struct tbg_slice){ text, TBG_REQ_MAX };
	KTAP_EQ(tbg_encode_choose(&v, ALL), TBG_ENCODING_BR);
	v.len++;
	KTAP_EQ(tbg_encode_choose(&v, ALL), TBG_ENCODING_IDENTITY);
}

KTAP_TEST(t_keys_of_variants_differ)
{
	for (int i = 0; i < TBG_ENCODING_NR; i++)
		for (int j = 0; j < i; j++) {
			struct tbg_key a = { { 5, 7 } }, b = { { 5, 7 } };

			tbg_key_vary(&a, i);
			tbg_key_vary(&b, j);
			KTAP_CHECK(a.h[0] != b.h[0] && a.h[1] != b.h[1]);
		}
}

static size_t decode(enum tbg_encoding e, const void *in, size_t len, void *ret,
		     size_t room)
{
	z_stream z = { .next_in = (void *)in, .avail_in = len,
		       .next_out = ret, .avail_out = room };

	switch (e) {
	case TBG_ENCODING_GZIP:
		inflateInit2(&z, 15 + 16);
		room = inflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
		inflateEnd(&z);
		return room;
	case TBG_ENCODING_BR:
		return BrotliDecoderDecompress(len, in, &room, ret) ==
		       BROTLI_DECODER_RESULT_SUCCESS ? room : 0;
	default:
		return ZSTD_decompress(ret, room, in, len);
	}
}

KTAP_TEST(t_what_is_encoded_decodes)
{
	static char text[65536], back[65536], coded[65536];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "a text that repeats itself"[i % 26] + (i % 977 == 0);
	for (size_t len = 1; len <= sizeof(text); len = len * 3 + 1)
		for (int e = 1; e < TBG_ENCODING_NR; e++) {
			int n = tbg_encode(e, text, len, coded, sizeof(coded));

			KTAP_CHECK(n > 0);
			KTAP_EQ(decode(e, coded, n, back, sizeof(back)), len);
			KTAP_CHECK(!memcmp(text, back, len));
			KTAP_EQ(tbg_encode(e, text, len, coded, n - 1), -E2BIG);
		}
	KTAP_EQ(tbg_encode(TBG_ENCODING_IDENTITY, text, 9, coded, 9), -E2BIG);
}

KTAP_TEST(t_types_worth_it)
{
	KTAP_CHECK(tbg_encode_type("text/html"));
	KTAP_CHECK(tbg_encode_type("text/css; charset=utf-8"));
	KTAP_CHECK(tbg_encode_type("application/json"));
	KTAP_CHECK(tbg_encode_type("image/svg+xml"));
	KTAP_CHECK(tbg_encode_type("application/ld+json; profile=x"));
	KTAP_CHECK(!tbg_encode_type("image/png"));
	KTAP_CHECK(!tbg_encode_type("application/octet-stream"));
	KTAP_CHECK(!tbg_encode_type("application/jsonx"));
	KTAP_CHECK(!tbg_encode_type("+xm"));
}

KTAP_MAIN()
