/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fast grammar once more, byte by byte and on purpose dull, SipHash by the
 * book, and codings: what bpf/core/request.h, key.h and encoding.h are held against. Shares nothing
 * with them but the limits.
 */
#ifndef TBG_TESTS_LIB_ORACLE_H
#define TBG_TESTS_LIB_ORACLE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "core/request.h"

struct oracle {
	const uint8_t *b;
	size_t len, at;
	struct tbg_req req;
};

__attribute__((unused)) static bool oracle_one_of(uint8_t c, const char *set)
{
	return c && strchr(set, c);
}

__attribute__((unused)) static bool oracle_alnum(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z');
}

__attribute__((unused))
static bool oracle_take(struct oracle *o, const char *text)
{
	size_t n = strlen(text);

	if (o->len - o->at < n || memcmp(o->b + o->at, text, n))
		return false;
	o->at += n;
	return true;
}

__attribute__((unused)) static bool oracle_target(struct oracle *o)
{
	const uint8_t *b = o->b;

	o->req.path_off = o->at;
	while (o->at < o->len && b[o->at] != ' ' && b[o->at] != '?') {
		uint8_t c = b[o->at++];

		if (!oracle_alnum(c) && !oracle_one_of(c, "._~!$&'()*+,;=:@/-"))
			return false;
		if (c == '/' && o->at < o->len && oracle_one_of(b[o->at], "/."))
			return false;
	}
	o->req.path_len = o->at - o->req.path_off;
	if (!o->req.path_len || b[o->req.path_off] != '/' ||
	    o->req.path_len > TBG_PATH_MAX)
		return false;
	if (!oracle_take(o, "?"))
		return true;
	o->req.query_off = o->at;
	while (o->at < o->len && b[o->at] != ' ') {
		if (b[o->at] < 0x21 || b[o->at] > 0x7e || b[o->at] == '#')
			return false;
		o->at++;
	}
	o->req.query_len = o->at - o->req.query_off;
	return true;
}

__attribute__((unused)) static bool oracle_host(const uint8_t *v, size_t n)
{
	size_t i = 0, digits = 0;

	if (!n || n > TBG_HOST_MAX)
		return false;
	if (v[0] == '[') {
		char text[INET6_ADDRSTRLEN] = "";
		struct in6_addr addr;
		int colons = 0;

		for (i = 1; i < n && v[i] != ']'; i++) {
			if (i >= sizeof(text) || v[i] == '.')
				return false;
			text[i - 1] = v[i];
			colons += v[i] == ':';
		}
		/* eight colons can be right, but are left to the daemon */
		if (i++ == n || colons > 7 || inet_pton(AF_INET6, text, &addr) != 1)
			return false;
	} else {
		for (; i < n && v[i] != ':'; i++)
			if (!oracle_alnum(v[i]) && !oracle_one_of(v[i], "._-"))
				return false;
		if (!i)
			return false;
	}
	if (i == n)
		return true;
	if (v[i++] != ':')
		return false;
	for (; i < n; i++, digits++)
		if (v[i] < '0' || v[i] > '9')
			return false;
	return digits >= 1 && digits <= 5;
}

__attribute__((unused))
static bool oracle_field(struct oracle *o, const char *name, size_t off,
			 size_t n, bool *conn, bool *length)
{
	static const char *const whole[] = {
		"te", "range", "expect", "pragma", "trailer", NULL
	};
	static const char *const begin[] = {
		"transfer", "content-", "cache-co", "keep-ali", "max-forw",
		"authoriz", "connecti", "accept-e", "if-", "proxy-", NULL
	};
	const uint8_t *b = o->b;
	__u16 *at = NULL;
	size_t gap = 0;
	bool connection = !strcasecmp(name, "connection");
	bool content_length = !strcasecmp(name, "content-length");

	if (!strcasecmp(name, "cookie")) {
		o->req.flags |= TBG_REQ_COOKIE;
		return true;
	}
	if (!strcasecmp(name, "x-forwarded-proto") || !strcasecmp(name, "x-forwarded-host")) {
		o->req.flags |= TBG_REQ_CLAIM;
		return true;
	}
	if (!strcasecmp(name, "host"))
		at = &o->req.host_off;
	else if (!strcasecmp(name, "if-none-match"))
		at = &o->req.inm_off;
	else if (!strcasecmp(name, "if-modified-since"))
		at = &o->req.ims_off;
	else if (!strcasecmp(name, "accept-encoding"))
		at = &o->req.ae_off;
	if (!at && !connection && !content_length) {
		for (int i = 0; whole[i]; i++)
			if (!strcasecmp(name, whole[i]))
				return false;
		for (int i = 0; begin[i]; i++)
			if (!strncasecmp(name, begin[i], strlen(begin[i])))
				return false;
		return true;
	}
	while (gap < n && b[off + gap] == ' ')
		gap++;
	if (gap > 7 || gap == n || b[off + n - 1] == ' ')
		return false;
	off += gap;
	n -= gap;
	if (connection) {
		if (*conn ||
		    ((n != 10 || strncasecmp((char *)b + off, "keep-alive", n)) &&
		     (n != 23 || strncasecmp((char *)b + off, "upgrade, http2-settings", n))))
			return false;
		*conn = true;
		return true;
	}
	if (content_length) {
		if (*length || n != 1 || b[off] != '0')
			return false;
		*length = true;
		return true;
	}
	if (*at)
		return false;
	at[0] = off;
	at[1] = n;
	return true;
}

/* Whether the fast grammar is to accept exactly this, and as what. */
__attribute__((unused))
static bool oracle_request(const uint8_t *b, size_t len, struct tbg_req *ret)
{
	struct oracle o = { .b = b, .len = len, .req.len = len };
	bool conn = false, length = false;

	if (len > TBG_REQ_MAX)
		return false;
	if (oracle_take(&o, "HEAD "))
		o.req.flags = TBG_REQ_HEAD;
	else if (!oracle_take(&o, "GET "))
		return false;
	if (!oracle_target(&o) || !oracle_take(&o, " HTTP/1.1\r\n"))
		return false;
	while (!oracle_take(&o, "\r\n")) {
		char name[TBG_NAME_MAX + 1] = "";
		size_t n = 0, off;

		for (; o.at < len && b[o.at] != ':'; o.at++) {
			if ((!oracle_alnum(b[o.at]) && b[o.at] != '-') ||
			    n == TBG_NAME_MAX)
				return false;
			name[n++] = b[o.at];
		}
		if (!n || !oracle_take(&o, ":"))
			return false;
		for (off = o.at; o.at < len && b[o.at] >= 0x20 && b[o.at] <= 0x7e; o.at++)
			;
		n = o.at - off;
		if (!oracle_take(&o, "\r\n") ||
		    !oracle_field(&o, name, off, n, &conn, &length))
			return false;
	}
	if (o.at != len || !oracle_host(b + o.req.host_off, o.req.host_len))
		return false;
	*ret = o.req;
	return true;
}

__attribute__((unused))
static uint64_t oracle_rotate(uint64_t x, int b)
{
	return (x << b) | (x >> (64 - b));
}

__attribute__((unused)) static void oracle_sip_rounds(uint64_t v[4], int nr)
{
	while (nr--) {
		v[0] += v[1];
		v[1] = oracle_rotate(v[1], 13);
		v[1] ^= v[0];
		v[0] = oracle_rotate(v[0], 32);
		v[2] += v[3];
		v[3] = oracle_rotate(v[3], 16);
		v[3] ^= v[2];
		v[0] += v[3];
		v[3] = oracle_rotate(v[3], 21);
		v[3] ^= v[0];
		v[2] += v[1];
		v[1] = oracle_rotate(v[1], 17);
		v[1] ^= v[2];
		v[2] = oracle_rotate(v[2], 32);
	}
}

/* SipHash-c-d of any message, 128 bits of output, byte by byte. */
__attribute__((unused))
static void oracle_sip128(int c, int d, const uint8_t key[16],
			  const uint8_t *in, size_t len, uint8_t ret[16])
{
	uint64_t k[2] = { 0, 0 }, v[4], m = 0, out;

	for (int i = 0; i < 16; i++)
		k[i / 8] |= (uint64_t)key[i] << (i % 8 * 8);
	v[0] = k[0] ^ 0x736f6d6570736575;
	v[1] = k[1] ^ 0x646f72616e646f6d ^ 0xee;
	v[2] = k[0] ^ 0x6c7967656e657261;
	v[3] = k[1] ^ 0x7465646279746573;
	for (size_t i = 0; i <= len; i++) {
		if (i == len) {
			m |= (uint64_t)(len & 0xff) << 56;
		} else {
			m |= (uint64_t)in[i] << (i % 8 * 8);
			if (i % 8 != 7)
				continue;
		}
		v[3] ^= m;
		oracle_sip_rounds(v, c);
		v[0] ^= m;
		m = 0;
	}
	v[2] ^= 0xee;
	for (int half = 0; half < 2; half++) {
		if (half)
			v[1] ^= 0xdd;
		oracle_sip_rounds(v, d);
		out = v[0] ^ v[1] ^ v[2] ^ v[3];
		for (int i = 0; i < 8; i++)
			ret[half * 8 + i] = out >> (i * 8);
	}
}

/* The key of a path, from its bytes. */
__attribute__((unused))
static void oracle_key(const __u64 key[2], uint32_t vhost,
		       const uint8_t *path, uint32_t len, struct tbg_key *ret)
{
	uint8_t in[8 + TBG_PATH_MAX] = { 0 }, k[16], out[16];

	for (int i = 0; i < 4; i++) {
		in[i] = vhost >> (i * 8);
		in[4 + i] = len >> (i * 8);
	}
	for (int i = 0; i < 16; i++)
		k[i] = key[i / 8] >> (i % 8 * 8);
	memcpy(in + 8, path, len);
	oracle_sip128(1, 3, k, in, 8 + (len + 7) / 8 * 8, out);
	ret->h[0] = ret->h[1] = 0;
	for (int i = 0; i < 16; i++)
		ret->h[i / 8] |= (uint64_t)out[i] << (i % 8 * 8);
}

/* Spaces in a row at at: where they end; as many as fit the word that we read. */
__attribute__((unused))
static size_t oracle_space(const uint8_t *b, size_t n, size_t at)
{
	size_t begin = at;

	while (at < n && at - begin < 7 && (b[at] == ' ' || b[at] == '\t'))
		at++;
	return at;
}

/* What one element of a list says: which coding, or -1, and its quality. */
__attribute__((unused))
static int oracle_element(const uint8_t *b, size_t n, int *ret_quality)
{
	static const char *const names[] = { "identity", "gzip", "br", "zstd", "*" };
	size_t at = 0;
	int coding = -1, value = 0, scale = 100;

	*ret_quality = 1000;
	while (at < n && !strchr("; \t", b[at]))
		at++;
	for (int i = 0; i < 5; i++)
		if (strlen(names[i]) == at && !strncasecmp(names[i], (char *)b, at))
			coding = i;
	if (at == 6 && !strncasecmp("x-gzip", (char *)b, 6))
		coding = 1;
	at = oracle_space(b, n, at);
	if (at == n)
		return coding;
	*ret_quality = 0;
	if (b[at++] != ';')
		return coding;
	at = oracle_space(b, n, at);
	if (n - at < 3 || (b[at] | 0x20) != 'q' || b[at + 1] != '=')
		return coding;
	at += 2;
	if (b[at] != '0' && b[at] != '1')
		return coding;
	value = (b[at++] - '0') * 1000;
	if (at < n && b[at] == '.')
		for (at++; at < n && b[at] >= '0' && b[at] <= '9' && scale; at++, scale /= 10)
			value += (b[at] - '0') * scale;
	at = oracle_space(b, n, at);
	if (at == n && value <= 1000)
		*ret_quality = value;
	return coding;
}

/* Accept-Encoding (RFC 9110 12.5.3) by the book, as core/encoding.h has it. */
__attribute__((unused))
static unsigned int oracle_encoding(const uint8_t *b, size_t len, unsigned int have)
{
	static const int order[] = { 2, 3, 1, 0 };	/* br, zstd, gzip, identity */
	int given[5] = { -1, -1, -1, -1, -1 }, best = -1, ret = 0;
	size_t at = 0;

	while (at < len) {
		size_t n = 0;
		int coding, quality;

		while (at < len && strchr(", \t", b[at]))
			at++;
		while (at + n < len && b[at + n] != ',')
			n++;
		coding = n ? oracle_element(b + at, n, &quality) : -1;
		if (coding >= 0 && given[coding] < 0)
			given[coding] = quality;
		at += n;
	}
	for (int i = 0; i < 4; i++) {
		int c = order[i], quality = given[c] >= 0 ? given[c] : given[4];

		if (c && (!(have >> c & 1) || quality <= 0))
			continue;
		if (!c && quality < 0)
			quality = 0;
		if (quality > best) {
			best = quality;
			ret = c;
		}
	}
	return ret;
}

#endif
