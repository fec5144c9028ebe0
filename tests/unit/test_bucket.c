// SPDX-License-Identifier: GPL-2.0
/*
 * Rate limits (bpf/core/bucket.h, userd/tiers/rate.c) without kernel tiers, with times
 * from the test: burst and refill, clients by prefix, more clients than buckets,
 * several threads.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/bucket.h"
#include "ktap.h"
#include "os/units.h"
#include "tiers/rate.h"

#define SECOND	1000000000ull
#define BEGIN	(1000 * SECOND)

static const uint64_t key[2] = { 0x0123456789abcdef, 0xfedcba9876543210 };

static struct tbg_prefix address(const char *text)
{
	struct tbg_prefix ret;

	if (!tbg_value_prefix(text, &ret))
		abort();
	return ret;
}

static struct tbg_rates *rates(const char *rate, unsigned int burst, unsigned int v4,
			       unsigned int v6)
{
	struct tbg_rate_settings settings = { .burst = burst, .v4_bits = v4, .v6_bits = v6 };
	struct tbg_rates *ret;

	if (tbg_rates_open(&ret, NULL, key) || !tbg_value_rate(rate, &settings.gap_ns))
		abort();
	tbg_rates_set(ret, &settings);
	return ret;
}

/* Returns how many of nr requests pass at that time. */
static unsigned int passes(struct tbg_rates *r, const char *who, unsigned int nr, uint64_t now_ns)
{
	struct tbg_prefix a = address(who);
	unsigned int ret = 0;

	for (unsigned int i = 0; i < nr; i++)
		ret += !tbg_rates_take(r, &a, now_ns);
	return ret;
}

KTAP_TEST(t_a_burst_passes_then_the_rate)
{
	struct tbg_rates *r = rates("10/s", 5, 32, 64);
	struct tbg_prefix a = address("192.0.2.1");

	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN) == 5);
	KTAP_CHECK(tbg_rates_take(r, &a, BEGIN) == SECOND / 10);
	KTAP_CHECK(tbg_rates_take(r, &a, BEGIN + SECOND / 10 - 1) == 1);
	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN + SECOND / 10) == 1);
	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN + SECOND / 10 * 3) == 2);
	/* never more than the burst, however long it was idle */
	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN + 3600 * SECOND) == 5);
	/* a refused request costs nothing, and another client has its own bucket */
	KTAP_CHECK(passes(r, "192.0.2.2", 20, BEGIN) == 5);
	tbg_rates_close(r);
}

KTAP_TEST(t_over_a_long_time_it_is_the_rate)
{
	struct tbg_rates *r = rates("300/m", 3, 32, 64);
	unsigned int passed = 0;

	for (uint64_t t = 0; t < 60 * SECOND; t += SECOND / 50)
		passed += passes(r, "198.51.100.7", 1, BEGIN + t);
	KTAP_CHECK(passed >= 300 && passed <= 303);
	tbg_rates_close(r);
}

KTAP_TEST(t_without_a_burst_it_is_what_a_second_has)
{
	struct tbg_rates *r = rates("7/s", 0, 32, 64), *slow = rates("2/h", 0, 32, 64);
	struct tbg_prefix a = address("192.0.2.1");

	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN) == 7);
	KTAP_CHECK(passes(slow, "192.0.2.1", 20, BEGIN) == 1);
	KTAP_CHECK(tbg_rates_take(slow, &a, BEGIN) == 1800 * SECOND);
	tbg_rates_close(r);
	tbg_rates_close(slow);
}

KTAP_TEST(t_a_prefix_is_one_client)
{
	struct tbg_rates *r = rates("1/h", 2, 24, 56);

	KTAP_CHECK(passes(r, "192.0.2.1", 1, BEGIN) == 1);
	KTAP_CHECK(passes(r, "192.0.2.200", 9, BEGIN) == 1);
	KTAP_CHECK(passes(r, "192.0.3.1", 9, BEGIN) == 2);
	KTAP_CHECK(passes(r, "2001:db8:0:100::1", 1, BEGIN) == 1);
	KTAP_CHECK(passes(r, "2001:db8:0:1ff:ffff::2", 9, BEGIN) == 1);
	KTAP_CHECK(passes(r, "2001:db8:0:200::1", 9, BEGIN) == 2);
	tbg_rates_close(r);
}

/* IPv6 addresses that differ in any byte, and IPv4 ones, have separate buckets. */
KTAP_TEST(t_whole_addresses_are_clients_of_their_own)
{
	struct tbg_rates *r = rates("1/h", 1, 32, 128);
	struct tbg_prefix a = address("2001:db8::1");
	unsigned int wrong = 0;

	KTAP_CHECK(!tbg_rates_take(r, &a, BEGIN));
	for (int i = 0; i < 16; i++) {
		struct tbg_prefix b = a;

		b.address[i] ^= 0x40;
		wrong += !!tbg_rates_take(r, &b, BEGIN);
	}
	KTAP_CHECK(wrong == 0 && tbg_rates_take(r, &a, BEGIN));
	tbg_rates_close(r);
}

KTAP_TEST(t_other_terms_fill_the_buckets_and_no_limit_takes_nothing)
{
	struct tbg_rate_settings settings = {
		.gap_ns = SECOND, .burst = 3, .v4_bits = 32, .v6_bits = 64,
	};
	struct tbg_rates *r = rates("1/h", 2, 32, 64);

	KTAP_CHECK(tbg_rates_are(r) && passes(r, "192.0.2.1", 9, BEGIN) == 2);
	tbg_rates_set(r, &settings);
	KTAP_CHECK(passes(r, "192.0.2.1", 9, BEGIN) == 3);
	tbg_rates_set(r, &settings);	/* the same settings again: nothing is forgotten */
	KTAP_CHECK(passes(r, "192.0.2.1", 9, BEGIN) == 0);
	settings.gap_ns = 0;
	tbg_rates_set(r, &settings);
	KTAP_CHECK(!tbg_rates_are(r) && passes(r, "192.0.2.1", 9, BEGIN) == 9);
	tbg_rates_close(r);
}

/*
 * Ten times as many clients as buckets: each of them is served, and one that is far
 * beyond its limit is not forgotten because of them.
 */
KTAP_TEST(t_a_flood_of_clients_refuses_none_of_them)
{
	unsigned int flood = 10 * TBG_BUCKET_SETS * TBG_BUCKET_WAYS, refused = 0;
	struct tbg_rates *r = rates("1/s", 10, 32, 64);
	struct tbg_prefix one = address("10.0.0.0");

	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN) == 10);
	for (uint32_t i = 0; i < flood; i++) {
		uint32_t word = htonl(0x0a000000 + i);

		memcpy(one.address + 12, &word, sizeof(word));
		refused += !!tbg_rates_take(r, &one, BEGIN);
	}
	KTAP_CHECK(refused == 0);
	KTAP_CHECK(passes(r, "192.0.2.1", 20, BEGIN) == 0);
	tbg_rates_close(r);
}

/* As a kernel tier does: checks first, and charges after the answer. */
KTAP_TEST(t_what_one_tier_charges_the_other_counts)
{
	struct tbg_rate rate = { .gap_ns = SECOND, .slack_ns = 2 * SECOND };
	static struct tbg_bucket_set set;
	struct tbg_bucket *b;

	for (int i = 0; i < 3; i++) {
		KTAP_CHECK(!tbg_bucket_look(&set, 7, &rate, BEGIN));
		b = &set.way[tbg_bucket_place(&set, 7)];
		tbg_bucket_claim(b, 7);
		tbg_bucket_charge(b, rate.gap_ns, BEGIN);
	}
	KTAP_CHECK(tbg_bucket_look(&set, 7, &rate, BEGIN) == SECOND);
	KTAP_CHECK(!tbg_bucket_look(&set, 9, &rate, BEGIN));
	/* two that checked before either was charged: the debt is paid later */
	tbg_bucket_charge(b, rate.gap_ns, BEGIN);
	KTAP_CHECK(tbg_bucket_look(&set, 7, &rate, BEGIN) == 2 * SECOND);
	KTAP_CHECK(!tbg_bucket_look(&set, 7, &rate, BEGIN + 2 * SECOND));
}

/* The bucket with the least debt is replaced; its debt does not pass to the next client. */
KTAP_TEST(t_a_full_set_forgets_the_fullest)
{
	struct tbg_rate rate = { .gap_ns = SECOND, .slack_ns = 0 };
	static struct tbg_bucket_set set;
	struct tbg_bucket *b;

	for (__u64 tag = 1; tag <= TBG_BUCKET_WAYS; tag++)
		for (__u64 i = 0; i < tag; i++) {
			b = &set.way[tbg_bucket_place(&set, tag)];
			tbg_bucket_claim(b, tag);
			tbg_bucket_charge(b, rate.gap_ns, BEGIN);
		}
	b = &set.way[tbg_bucket_place(&set, 100)];
	KTAP_CHECK(b->tag == 1);
	tbg_bucket_claim(b, 100);
	KTAP_CHECK(!tbg_bucket_look(&set, 100, &rate, BEGIN));
	for (__u64 tag = 2; tag <= TBG_BUCKET_WAYS; tag++)
		KTAP_CHECK(tbg_bucket_look(&set, tag, &rate, BEGIN) == tag * SECOND);
}

#define THREADS	4
#define TAKES	20000

struct taker {
	struct tbg_rates *r;
	unsigned int passed;
};

static void *taker_run(void *arg)
{
	struct taker *t = arg;

	t->passed = passes(t->r, "192.0.2.1", TAKES, BEGIN);
	return NULL;
}

KTAP_TEST(t_threads_together_pass_no_more_than_the_burst)
{
	struct tbg_rates *r = rates("1/h", 1000, 32, 64);
	struct taker takers[THREADS] = { 0 };
	pthread_t threads[THREADS];
	unsigned int passed = 0;

	for (int i = 0; i < THREADS; i++) {
		takers[i].r = r;
		pthread_create(&threads[i], NULL, taker_run, &takers[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		passed += takers[i].passed;
	}
	KTAP_CHECK(passed == 1000);
	tbg_rates_close(r);
}

KTAP_TEST(t_rates_as_they_are_written)
{
	static const struct { const char *text; uint64_t gap_ns; } good[] = {
		{ "1", SECOND }, { "10", SECOND / 10 }, { "10/s", SECOND / 10 },
		{ "30/m", 2 * SECOND }, { "1/h", 3600 * SECOND }, { "1000000", 1000 },
		{ "0", 0 }, { "off", 0 },
	};
	static const char *const bad[] = {
		"", "/s", "1/", "1/d", "-1", "1.5", "1000001", "1 /s", "10s",
	};
	uint64_t gap_ns;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		KTAP_CHECK(tbg_value_rate(good[i].text, &gap_ns) && gap_ns == good[i].gap_ns);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		KTAP_CHECK(!tbg_value_rate(bad[i], &gap_ns));
}

KTAP_MAIN()
