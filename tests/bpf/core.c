// SPDX-License-Identifier: GPL-2.0
/*
 * Compares the core in BPF (core.bpf.c, BPF_PROG_TEST_RUN) with the same headers
 * compiled here, on the seeds of the fuzzers and all prefixes of them. Prints the cost
 * of a request, but accepts any time. Needs root. Attaches nothing.
 */
#include "ktap.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core/conditional.h"
#include "core/encoding.h"
#include "core/key.h"
#include "core/request.h"
#include "core.h"
#include "core.skel.h"

#define CORPUS	"../fuzz/corpus/request"	/* in the folder of an installed program */
#define ROUND_NS 200000	/* duration of a measurement, */
#define ROUNDS	100	/* of which the fastest counts */
#define ETAG	"\"5f3-1a2b\""
#define ETH_MIN	14	/* BPF_PROG_TEST_RUN requires an Ethernet header */

static struct tbg_core *skel;
static const struct entry entry = {
	.key = { 0x0123456789abcdef, 0xfedcba9876543210 },
	.vhost = 7,
	.etag_len = sizeof(ETAG) - 1,
	.etag = ETAG,
	.variants = 0xe,
	.modified_s = 784111777,	/* Sun, 06 Nov 1994 08:49:37 GMT */
};

/* Times in an emulator are meaningless; core_full is not measured in parts there. */
static bool emulated(void)
{
	const char *where = getenv("TBG_WHERE");

	return where && !strncmp(where, "vm", 2);
}

/* Loads once. Returns NULL, or the error. */
static const char *load(void)
{
	__u32 zero = 0;

	if (skel)
		return NULL;
	if (geteuid())
		return "not root";
	skel = tbg_core__open();
	if (skel && emulated()) {
		bpf_program__set_autoload(skel->progs.core_copy, false);
		bpf_program__set_autoload(skel->progs.core_parse, false);
		bpf_program__set_autoload(skel->progs.core_key, false);
		bpf_program__set_autoload(skel->progs.core_lookup, false);
	}
	if (skel && (tbg_core__load(skel) ||
		     bpf_map__update_elem(skel->maps.entry, &zero, sizeof(zero), &entry,
					  sizeof(entry), 0))) {
		tbg_core__destroy(skel);
		skel = NULL;
	}
	return NULL;
}

/* Returns ns per run, or -1. */
static int run(struct bpf_program *prog, const void *req, size_t len,
	       unsigned int repeat, struct result *ret)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = req, .data_size_in = len,
		    .repeat = repeat);
	__u32 zero = 0;

	memset(ret, 0, sizeof(*ret));
	if (bpf_map__update_elem(skel->maps.result, &zero, sizeof(zero), ret,
				 sizeof(*ret), 0) ||
	    bpf_prog_test_run_opts(bpf_program__fd(prog), &opts) ||
	    bpf_map__lookup_elem(skel->maps.result, &zero, sizeof(zero), ret,
				 sizeof(*ret), 0))
		return -1;
	return opts.duration;
}

static void expect(const void *req, size_t len, struct result *ret)
{
	static struct tbg_head head;
	struct tbg_path path;
	struct tbg_scan scan;
	struct tbg_req r;

	memset(ret, 0, sizeof(*ret));
	memset(&head, 0, sizeof(head));
	memcpy(head.b, req, len);
	ret->why = tbg_request_parse(&head, &scan, len, &r);
	if (ret->why)
		return;
	ret->req = r;
	ret->why = tbg_path_load(&head, r.path_off, r.path_len, &path);
	tbg_key_make(entry.key, entry.vhost, &path, r.path_len, &ret->key);
	ret->found = 1;
	ret->status = tbg_condition(&head, &r, entry.etag, entry.etag_len,
				    entry.modified_s);
	ret->encoding = tbg_encoding_choose(&head, r.ae_off, r.ae_len,
					    entry.variants);
}

/* Returns the folder of the seeds: the repository's, or the installed one. */
static const char *corpus_find(void)
{
	static char path[512];
	ssize_t len;
	char *end;

	if (access(TBG_FUZZ_SEEDS "/request", R_OK) == 0)
		return TBG_FUZZ_SEEDS "/request";
	len = readlink("/proc/self/exe", path, sizeof(path) - sizeof(CORPUS));
	path[len < 0 ? 0 : len] = 0;
	end = strrchr(path, '/');
	strcpy(end ? end + 1 : path, CORPUS);
	return path;
}

/* Calls fn with each seed. Returns their number. */
static unsigned int seeds(void (*fn)(const char *name, const uint8_t *b, size_t len))
{
	const char *corpus = corpus_find();
	DIR *dir = opendir(corpus);
	struct dirent *d;
	unsigned int nr = 0;

	while (dir && (d = readdir(dir))) {
		uint8_t b[TBG_REQ_MAX + 1];
		char path[1024];
		size_t len;
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", corpus, d->d_name);
		f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (!f)
			continue;
		len = fread(b, 1, sizeof(b), f);
		fclose(f);
		if (len < ETH_MIN || len > TBG_REQ_MAX)
			continue;
		fn(d->d_name, b, len);
		nr++;
	}
	if (dir)
		closedir(dir);
	return nr;
}

/* Puts the request's path into the index. Returns 1 on success. */
static int publish(const uint8_t *b, size_t len)
{
	struct tbg_entry e = { 0 };
	struct result r;

	expect(b, len, &r);
	if (r.why)
		return 0;
	e.path_len = r.req.path_len;
	memcpy(e.path, b + r.req.path_off, e.path_len);
	return !bpf_map__update_elem(skel->maps.paths, &r.key, sizeof(r.key), &e,
				     sizeof(e), 0);
}

static void agree(const char *name, const uint8_t *b, size_t len)
{
	struct result got, want;

	for (size_t n = ETH_MIN; n <= len; n++) {
		publish(b, n);
		expect(b, n, &want);
		if (run(skel->progs.core_full, b, n, 1, &got) < 0)
			ktap_fail("%s: cannot run", name);
		else if (memcmp(&got, &want, sizeof(got)))
			ktap_fail("%s, %zu bytes: why %u, status %d; here %u, %d",
				  name, n, got.why, got.status, want.why, want.status);
	}
}

/* Returns the minimum of several measurements: other load can only increase it. */
static int cost(struct bpf_program *prog, const void *req, size_t len,
		struct result *ret)
{
	int ns, least = run(prog, req, len, 100, ret);

	for (int i = 0; i < ROUNDS && least > 0; i++) {
		ns = run(prog, req, len, ROUND_NS / least + 1, ret);
		least = ns < least ? ns : least;
	}
	return least;
}

static void measure(const char *name, const uint8_t *b, size_t len)
{
	struct result r;
	int copy, parse, key, lookup, full;

	if (!publish(b, len))
		return;
	if (emulated()) {
		run(skel->progs.core_full, b, len, 1, &r);
		if (!r.found)
			ktap_fail("%s: not found", name);
		return;
	}
	copy = cost(skel->progs.core_copy, b, len, &r);
	parse = cost(skel->progs.core_parse, b, len, &r);
	key = cost(skel->progs.core_key, b, len, &r);
	lookup = cost(skel->progs.core_lookup, b, len, &r);
	if (!r.found)
		ktap_fail("%s: not found", name);
	full = cost(skel->progs.core_full, b, len, &r);
	ktap_note("%4zu bytes: parse %3d ns, with key %3d ns, with lookup %3d ns, and variant %3d ns (copying them: %d ns) %s",
		  len, parse - copy, key - copy, lookup - copy, full - copy, copy, name);
}

KTAP_TEST(t_core_loads)
{
	const char *why = load();

	if (why)
		KTAP_SKIP(why);
	KTAP_CHECK(skel);
}

KTAP_TEST(t_bpf_and_host_agree)
{
	if (load())
		KTAP_SKIP(load());
	KTAP_CHECK(skel);
	KTAP_CHECK(seeds(agree) > 10);
}

KTAP_TEST(t_cost_of_a_request)
{
	if (load())
		KTAP_SKIP(load());
	KTAP_CHECK(skel);
	KTAP_CHECK(seeds(measure) > 10);
}

KTAP_MAIN()
