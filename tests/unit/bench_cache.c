// SPDX-License-Identifier: GPL-2.0
/*
 * What a find in the user tier costs: nanoseconds per tbg_cache_find() and
 * tbg_object_put() of a hit, alone and with two threads, in caches of 10 and
 * 100,000 objects. Prints numbers, judges nothing.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"

#define FINDS 5000000

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	return -EBADF;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	return -EBADF;
}

static struct tbg_cache *cache;
static struct tbg_key *keys;
static uint32_t key_nr;

static uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

static void *run(void *arg)
{
	uint64_t r = (uintptr_t)arg, begin = mono_ns(), missed = 0;
	char path[] = "/index/of/a/typical/page.html";

	for (uint32_t i = 0; i < FINDS; i++) {
		struct tbg_object *o;

		r = r * 6364136223846793005ull + 1;
		o = tbg_cache_find(cache, &keys[(r >> 33) % key_nr], 0, path,
				   sizeof(path) - 1);
		missed += !o;
		tbg_object_put(o);
	}
	if (missed)
		printf("%llu missed\n", (unsigned long long)missed);
	return (void *)(uintptr_t)((mono_ns() - begin) / (FINDS / 10));
}

static void measure(uint32_t nr)
{
	static const uint64_t hash_key[2];
	struct tbg_plan plan = { .blobs = nr, .entries = nr };
	void *one, *two[2];
	pthread_t t[2];

	plan.slots[TBG_CLASS_512] = nr;
	key_nr = nr;
	if (tbg_cache_open(&cache, &plan, NULL, hash_key))
		exit(1);
	for (uint32_t i = 0; i < nr; i++) {
		struct tbg_object *o;
		struct tbg_draft d;

		keys[i] = (struct tbg_key){ { mix(i + 1), mix(i + 1000000007) } };
		if (tbg_draft_open(cache, &keys[i], 0,
				   "/index/of/a/typical/page.html", 29,
				   "page.html", 400, &d) ||
		    tbg_draft_publish(&d, &o))
			exit(1);
		tbg_object_put(o);
	}
	one = run((void *)1);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, run, (void *)(i + 2));
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], &two[i]);
	printf("%7u objects: %5.1f ns alone, %5.1f and %5.1f ns together\n",
	       nr, (uintptr_t)one / 10.0, (uintptr_t)two[0] / 10.0,
	       (uintptr_t)two[1] / 10.0);
	tbg_cache_close(cache);
}

int main(void)
{
	keys = calloc(100000, sizeof(*keys));
	measure(10);
	measure(1000);
	measure(100000);
	free(keys);
	return 0;
}
