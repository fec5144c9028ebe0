/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For tests of connections without a socket: peer.h for their programs, the conditions of
 * such tests, and random numbers that a seed repeats.
 */
#ifndef TBG_TESTS_BPF_LATE_H
#define TBG_TESTS_BPF_LATE_H

#define PEER_LATE
#include "peer.h"

#include <sched.h>

/* Linux 6.9 and newer */
static bool makes_sockets_late(void)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	char line[256];
	bool ret = false;

	while (f && !ret && fgets(line, sizeof(line), f))
		ret = strstr(line, " bpf_sk_assign_tcp_reqsk\n");
	if (f)
		fclose(f);
	return ret;
}

#define NEED_LATE()							\
	do {								\
		if (geteuid())						\
			KTAP_SKIP("not root");				\
		if (!makes_sockets_late())				\
			KTAP_SKIP("before Linux 6.9: no late sockets");	\
		/* no socket listens on port 80 */			\
		KTAP_CHECK(!unshare(CLONE_NEWNET));			\
		KTAP_CHECK(load());					\
	} while (0)

KTAP_SHARED uint64_t random_state;

/* A random number below that one. */
__attribute__((unused))
static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 16) % below;
}

/* A number from the environment. */
__attribute__((unused))
static uint64_t number_of(const char *name, uint64_t none)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : none;
}

/* Begins the random numbers of a run with TBG_SEED, or with the time; returns the seed. */
__attribute__((unused))
static uint64_t draw_begin(void)
{
	uint64_t seed = number_of("TBG_SEED", mono_ns());

	random_state = seed * 2 + 1;
	ktap_note("TBG_SEED=%llu", (unsigned long long)seed);
	return seed;
}

#endif
