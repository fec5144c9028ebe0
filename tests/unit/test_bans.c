// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of clients (userd/tiers/bans.c) without kernel tiers: compared with a model
 * that checks every prefix; time limits; a million of them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/ban.h"
#include "ktap.h"
#include "os/units.h"
#include "tiers/bans.h"

#define PREFIXES	300
#define PEERS		20000

static struct sockaddr_storage four(uint32_t address)
{
	struct sockaddr_storage ret = { 0 };
	struct sockaddr_in *a = (struct sockaddr_in *)&ret;

	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(address);
	return ret;
}

static struct tbg_prefix prefix_of(uint32_t address, unsigned int bits)
{
	struct tbg_prefix ret = { .address = { [10] = 0xff, 0xff }, .bits = 96 + bits };
	uint32_t word = htonl(bits ? address & ~0u << (32 - bits) : 0);

	memcpy(ret.address + 12, &word, sizeof(word));
	return ret;
}

static bool model_denies(uint32_t address, const uint32_t *words, const unsigned int *bits,
			 const bool *deny)
{
	int best = -1;

	for (int i = 0; i < PREFIXES; i++)
		if (!((address ^ words[i]) & (bits[i] ? ~0u << (32 - bits[i]) : 0)) &&
		    (best < 0 || bits[i] > bits[best] ||
		     (bits[i] == bits[best] && deny[i] < deny[best])))
			best = i;
	return best >= 0 && deny[best];
}

/* A small address space, so that many prefixes overlap; allow is read last, and wins. */
KTAP_TEST(t_the_longest_prefix_decides)
{
	static char lists[2][PREFIXES * 24];
	uint32_t words[PREFIXES];
	unsigned int bits[PREFIXES], wrong = 0, denied = 0;
	bool deny[PREFIXES];
	struct tbg_bans *b;

	srandom(7);
	for (int i = 0; i < PREFIXES; i++) {
		bits[i] = 16 + random() % 17;
		words[i] = (0x0a000000 | (random() & 0xfff)) & ~0u << (32 - bits[i]);
		deny[i] = random() & 1;
		sprintf(lists[deny[i]] + strlen(lists[deny[i]]), "%s10.0.%u.%u/%u",
			*lists[deny[i]] ? " " : "", words[i] >> 8 & 255, words[i] & 255, bits[i]);
	}
	KTAP_CHECK(tbg_bans_open(&b, NULL) == 0);
	KTAP_CHECK(tbg_bans_file(b, lists[1], lists[0]) == 0);
	for (int i = 0; i < PEERS; i++) {
		uint32_t address = 0x0a000000 | (random() & 0x1ffff);
		struct sockaddr_storage peer = four(address);
		bool is = tbg_bans_deny(b, &peer);

		denied += is;
		wrong += is != model_denies(address, words, bits, deny);
	}
	KTAP_CHECK(wrong == 0);
	KTAP_CHECK(denied > PEERS / 100 && denied < PEERS);
	KTAP_CHECK(tbg_bans_file(b, NULL, NULL) == 0);
	KTAP_CHECK(!tbg_bans_are(b));
	tbg_bans_close(b);
}

static bool denies(struct tbg_bans *b, uint32_t address)
{
	struct sockaddr_storage peer = four(address);

	return tbg_bans_deny(b, &peer);
}

KTAP_TEST(t_a_ban_has_its_time)
{
	struct tbg_prefix one = prefix_of(0x0a000001, 32), two = prefix_of(0x0a000002, 32);
	struct tbg_bans *b;

	KTAP_CHECK(tbg_bans_open(&b, NULL) == 0);
	KTAP_CHECK(tbg_bans_file(b, "10.0.0.2", NULL) == 0);
	KTAP_CHECK(tbg_bans_add(b, &one, 100) == 0);
	KTAP_CHECK(tbg_bans_add(b, &two, 200) == 0);
	tbg_bans_tick(b, 99);
	KTAP_CHECK(denies(b, 0x0a000001));
	tbg_bans_tick(b, 100);
	KTAP_CHECK(!denies(b, 0x0a000001) && denies(b, 0x0a000002));
	tbg_bans_tick(b, 200);
	KTAP_CHECK(denies(b, 0x0a000002));
	KTAP_CHECK(tbg_bans_remove(b, &two) == -EPERM);
	KTAP_CHECK(tbg_bans_remove(b, &one) == -ENOENT);
	KTAP_CHECK(tbg_bans_add(b, &one, 300) == 0);
	KTAP_CHECK(tbg_bans_add(b, &one, 0) == 0);
	tbg_bans_tick(b, 400);
	KTAP_CHECK(denies(b, 0x0a000001));
	tbg_bans_close(b);
}

static bool denies_six(struct tbg_bans *b, const char *text)
{
	struct sockaddr_storage peer = { .ss_family = AF_INET6 };

	inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&peer)->sin6_addr);
	return tbg_bans_deny(b, &peer);
}

/* IPv4 addresses are stored as IPv4-mapped ones, which ::/1 contains. */
KTAP_TEST(t_prefixes_of_ipv6_are_not_for_ipv4_clients)
{
	static const struct {
		const char *deny, *allow;
		bool four, low, high;	/* denies 10.0.0.1, ::2 and 2001:db8::1 */
	} all[] = {
		{ NULL, "all", false, false, false },
		{ NULL, "0.0.0.0/0 ::/0", false, false, false },
		{ NULL, "::/0", true, false, false },
		{ NULL, "::/3", true, false, true },
		{ "::/0", NULL, false, true, true },
		{ "::/3", NULL, false, true, false },
		{ "all", "::/3", true, false, true },
		{ "::/3", "all", false, true, false },
		{ "all", "::/0", true, false, false },
		{ "::/3 10.0.0.0/8", NULL, true, true, false },
	};
	struct tbg_prefix everybody = { .all = true };
	struct tbg_bans *b;

	KTAP_CHECK(tbg_bans_open(&b, NULL) == 0);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		KTAP_CHECK(tbg_bans_file(b, all[i].deny, all[i].allow) == 0);
		KTAP_CHECK(denies(b, 0x0a000001) == all[i].four);
		KTAP_CHECK(denies_six(b, "::2") == all[i].low);
		KTAP_CHECK(denies_six(b, "2001:db8::1") == all[i].high);
	}
	KTAP_CHECK(tbg_bans_file(b, "::/3", NULL) == 0);
	KTAP_CHECK(tbg_bans_add(b, &everybody, 100) == 0);
	KTAP_CHECK(denies(b, 0x0a000001) && denies_six(b, "2001:db8::1"));
	KTAP_CHECK(tbg_bans_file(b, "::/2", NULL) == 0);
	KTAP_CHECK(denies(b, 0x0a000001));
	tbg_bans_tick(b, 100);
	KTAP_CHECK(!denies(b, 0x0a000001) && denies_six(b, "2001:db8::1"));
	KTAP_CHECK(tbg_bans_file(b, NULL, NULL) == 0 && !tbg_bans_are(b));
	tbg_bans_close(b);
}

/* Times are given, changed, made endless and taken back in any order. */
KTAP_TEST(t_each_ban_ends_at_its_own_time)
{
	static uint64_t end[PREFIXES];		/* 0: not in the end */
	uint64_t next, seen = 0;
	struct tbg_prefix p;
	struct tbg_bans *b;

	KTAP_CHECK(tbg_bans_open(&b, NULL) == 0 && !tbg_bans_next_ns(b));
	for (int i = 0; i < 20 * PREFIXES; i++) {
		int nr = random() % PREFIXES, what = random() % 8;

		p = prefix_of(0x0a000000 + nr, 32);
		if (!what)
			tbg_bans_remove(b, &p);
		else
			KTAP_CHECK(tbg_bans_add(b, &p, what > 1 ? 1 + random() % 1000 : 0) == 0);
		if (what > 1) {
			/* again, with the time that is expected */
			end[nr] = 1 + random() % 1000;
			KTAP_CHECK(tbg_bans_add(b, &p, end[nr]) == 0);
		} else {
			end[nr] = what ? UINT64_MAX : 0;
		}
	}
	for (; (next = tbg_bans_next_ns(b)); seen = next) {
		KTAP_CHECK(next > seen);
		tbg_bans_tick(b, next - 1);
		for (int i = 0; i < PREFIXES; i++)
			KTAP_CHECK(denies(b, 0x0a000000 + i) == (end[i] >= next));
		tbg_bans_tick(b, next);
		for (int i = 0; i < PREFIXES; i++)
			KTAP_CHECK(denies(b, 0x0a000000 + i) == (end[i] > next));
	}
	KTAP_CHECK(seen > 900);
	tbg_bans_close(b);
}

KTAP_TEST(t_a_prefix_of_ipv6_has_no_ipv4_address)
{
	struct tbg_prefix four, p;

	KTAP_CHECK(tbg_value_prefix("10.0.0.1", &four));
	KTAP_CHECK(tbg_value_prefix("::/0", &p) && !tbg_prefix_has(&p, &four));
	KTAP_CHECK(tbg_value_prefix("::/80", &p) && !tbg_prefix_has(&p, &four));
	KTAP_CHECK(tbg_value_prefix("::ffff:0:0/96", &p) && tbg_prefix_has(&p, &four));
	KTAP_CHECK(tbg_value_clients("all", &p) && tbg_prefix_has(&p, &four));
	KTAP_CHECK(tbg_value_prefix("2001:db8::1", &four) && tbg_prefix_has(&p, &four));
}

KTAP_TEST(t_a_million_are_taken)
{
	struct tbg_prefix p;
	struct tbg_bans *b;
	int err = 0;

	KTAP_CHECK(tbg_bans_open(&b, NULL) == 0);
	for (uint32_t i = 0; i < TBG_BANS_MAX && !err; i++) {
		p = prefix_of(0x0b000000 + 2 * i, 32);
		err = tbg_bans_add(b, &p, 0);
	}
	KTAP_CHECK(err == 0);
	p = prefix_of(0x0a000000, 32);
	KTAP_CHECK(tbg_bans_add(b, &p, 0) == -ENOSPC);
	KTAP_CHECK(denies(b, 0x0b000000 + 2000000) && !denies(b, 0x0b000000 + 2000001));
	tbg_bans_close(b);
}

KTAP_MAIN()
