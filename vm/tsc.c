/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rate of this machine's time stamp counter, in kHz.
 *
 * Run by vm/guest.py before it boots an emulated amd64. The guest reads this machine's
 * counter, and would measure its rate with emulated timers; on a busy machine the result has
 * been wrong by a factor of four. Each sample is the pair of readings, of several, with the
 * least time between them, so interruptions of this program do not matter.
 * It must never guess: if it cannot measure the rate, it prints nothing.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define TRIES 50
#define APART_NS 100000000	/* an error of 100 ns in a sample is one part in a million */

#if defined(__x86_64__)
#include <x86intrin.h>

struct sample {
	uint64_t ns, ticks;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static struct sample take(void)
{
	struct sample ret = { 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = __rdtsc(), ns = now_ns(), after = __rdtsc();

		if (after - before < least) {
			least = after - before;
			ret = (struct sample){ ns, before + least / 2 };
		}
	}
	return ret;
}

int main(void)
{
	struct timespec apart = { .tv_nsec = APART_NS };
	struct sample first = take(), last;
	uint64_t khz;

	nanosleep(&apart, NULL);
	last = take();
	if (last.ns <= first.ns || last.ticks <= first.ticks)
		return 1;
	khz = (last.ticks - first.ticks) * 1000000 / (last.ns - first.ns);
	printf("%llu\n", (unsigned long long)khz);
	return khz == 0;
}
#else
int main(void)
{
	return 1;
}
#endif
