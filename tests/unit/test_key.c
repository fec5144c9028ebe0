// SPDX-License-Identifier: GPL-2.0
/*
 * bpf/core/key.h compared with a literal implementation of SipHash, and what a key
 * depends on.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ktap.h"
#include "head.h"
#include "oracle.h"
#include "core/key.h"

static const __u64 key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };

static void path_of(const char *text, size_t len, struct tbg_path *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->w, text, len);
}

/*
 * Checks the reference first: the authors' vectors for SipHash-2-4 with 128 bits of
 * output (vectors.h of the reference code), messages of 0 and 1 bytes.
 */
KTAP_TEST(t_reference_is_siphash)
{
	static const uint8_t empty[16] = {
		0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
		0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93,
	};
	static const uint8_t one[16] = {
		0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
		0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45,
	};
	uint8_t k[16], in[1] = { 0 }, out[16];

	for (int i = 0; i < 16; i++)
		k[i] = i;
	oracle_sip128(2, 4, k, in, 0, out);
	KTAP_CHECK(!memcmp(out, empty, 16));
	oracle_sip128(2, 4, k, in, 1, out);
	KTAP_CHECK(!memcmp(out, one, 16));
}

KTAP_TEST(t_key_is_siphash_1_3_128_of_every_length)
{
	char text[TBG_PATH_MAX];
	struct tbg_key fast, slow;
	struct tbg_path path;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = '!' + i * 7 % 90;
	for (uint32_t len = 1; len <= TBG_PATH_MAX; len++) {
		path_of(text, len, &path);
		tbg_key_make(key, len * 0x01010101u, &path, len, &fast);
		oracle_key(key, len * 0x01010101u, (uint8_t *)text, len, &slow);
		if (memcmp(&fast, &slow, sizeof(fast)))
			ktap_fail("length %u: keys differ", len);
	}
}

KTAP_TEST(t_key_depends_on_host_length_and_secret)
{
	static const __u64 other[2] = { 0x0706050403020101, 0x0f0e0d0c0b0a0908 };
	struct tbg_key a, b;
	struct tbg_path path;

	path_of("/index.html", 11, &path);
	tbg_key_make(key, 0, &path, 11, &a);
	tbg_key_make(key, 1, &path, 11, &b);
	KTAP_CHECK(memcmp(&a, &b, sizeof(a)));
	tbg_key_make(key, 0, &path, 12, &b);
	KTAP_CHECK(memcmp(&a, &b, sizeof(a)));
	tbg_key_make(other, 0, &path, 11, &b);
	KTAP_CHECK(memcmp(&a, &b, sizeof(a)));
}

KTAP_TEST(t_path_load_pads_with_zeros)
{
	struct tbg_head *h = head_new();
	struct tbg_path got, want;
	char text[TBG_PATH_MAX];

	memset(text, 'x', sizeof(text));
	text[0] = '/';
	for (uint32_t off = 0; off <= TBG_REQ_MAX - TBG_PATH_MAX; off += 37)
		for (uint32_t len = 1; len <= TBG_PATH_MAX; len++) {
			memset(h, 0xff, sizeof(*h));
			memcpy(h->b + off, text, len);
			path_of(text, len, &want);
			memset(&got, 0xaa, sizeof(got));
			KTAP_EQ(tbg_path_load(h, off, len, &got), 0);
			KTAP_CHECK(!memcmp(&got, &want, (len + 7) & ~7u));
		}
}

KTAP_TEST(t_path_load_refuses_what_does_not_fit)
{
	struct tbg_head *h = head_new();
	struct tbg_path path;

	KTAP_EQ(tbg_path_load(h, 4, 0, &path), TBG_WHY_PATH);
	KTAP_EQ(tbg_path_load(h, 4, TBG_PATH_MAX + 1, &path), TBG_WHY_PATH);
	KTAP_EQ(tbg_path_load(h, TBG_REQ_MAX, 1, &path), TBG_WHY_PATH);
	KTAP_EQ(tbg_path_load(h, ~0u, ~0u, &path), TBG_WHY_PATH);
}

/* Host, target and Accept-Encoding at any positions in the head. */
KTAP_TEST(t_texts_of_uris_and_of_what_varies)
{
	static const char host[] = "www.example.test:8080";
	char target[TBG_PATH_MAX], accept[TBG_PATH_MAX], text[3 * TBG_PATH_MAX];
	const uint32_t uri_off = 5, host_off = 400, accept_off = 700;
	uint32_t host_len = sizeof(host) - 1;
	struct tbg_head *h = head_new();
	struct tbg_path got, want;

	memset(target, 't', sizeof(target));
	memset(accept, 'a', sizeof(accept));
	for (uint32_t len = 1; len <= TBG_URI_MAX - host_len + 1; len += 3)
		for (uint32_t n = 0; n < TBG_URI_MAX - host_len; n++) {
			int uri = host_len + len, all = uri + 1 + n;

			memset(h, 0xff, sizeof(*h));
			memcpy(h->b + uri_off, target, len);
			memcpy(h->b + host_off, host, host_len);
			memcpy(h->b + accept_off, accept, n);
			memset(&got, 0xaa, sizeof(got));
			snprintf(text, sizeof(text), "%s%.*s %.*s", host, (int)len, target,
				 (int)n, accept);
			if (uri > TBG_URI_MAX)
				uri = -TBG_WHY_PATH;
			KTAP_EQ(tbg_uri_load(h, host_off, host_len, uri_off, len, &got), uri);
			if (uri < 0)
				continue;
			path_of(text, uri, &want);
			KTAP_CHECK(!memcmp(&got, &want, (uri + 7) & ~7));
			if (all > TBG_URI_MAX)
				all = -TBG_WHY_PATH;
			KTAP_EQ(tbg_uri_vary(h, accept_off, n, uri, &got), all);
			if (all < 0)
				continue;
			path_of(text, all, &want);
			KTAP_CHECK(!memcmp(&got, &want, (all + 7) & ~7));
		}
	KTAP_CHECK(tbg_uri_vary(h, TBG_REQ_MAX, 1, 10, &got) < 0);
	KTAP_CHECK(tbg_uri_vary(h, 0, ~0u, 10, &got) < 0);
	KTAP_CHECK(tbg_uri_vary(h, 0, 1, ~0u, &got) < 0);
}

KTAP_TEST(t_paths_differ_in_any_byte)
{
	uint8_t entry[TBG_PATH_MAX + 8];
	char text[TBG_PATH_MAX];
	struct tbg_path path;

	memset(text, 'p', sizeof(text));
	for (uint32_t len = 1; len <= TBG_PATH_MAX; len++) {
		path_of(text, len, &path);
		memcpy(entry, &path, TBG_PATH_MAX);
		KTAP_CHECK(tbg_path_equal(&path, entry, len));
		for (uint32_t i = 0; i < len; i++) {
			entry[i] ^= 1;
			KTAP_CHECK(!tbg_path_equal(&path, entry, len));
			entry[i] ^= 1;
		}
	}
}

KTAP_MAIN()
