// SPDX-License-Identifier: GPL-2.0
/*
 * Writes one metric family after another. Labels are names from the configuration,
 * tiers, methods, statuses and reasons; nothing that a client sends becomes a label, so
 * traffic cannot increase the number of series.
 */
#include "admin/exposition.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi/stats.h"
#include "abi/version.h"
#include "cache/objects.h"
#include "control/commands.h"
#include "control/why.h"
#include "log/access.h"
#include "log/line.h"
#include "log/metrics.h"
#include "os/clock.h"
#include "upstream/upstream.h"
#include "serve/server.h"
#include "site/site.h"
#include "store/responses.h"
#include "tiers/maps.h"
#include "tiers/wire.h"

struct writer {
	FILE *f;
	bool openmetrics;
	struct tbg_server *s;
	const struct tbg_sites *sites;
	struct tbg_metric_sum tier[TBG_TIER_NR];
	struct tbg_stats kernel;
	struct tbg_user_stats user;
};

static void family(const struct writer *w, const char *name, const char *type,
		   const char *help)
{
	size_t len = strlen(name);

	/* in OpenMetrics, the family of a counter has no suffix */
	if (w->openmetrics && !strcmp(type, "counter"))
		len -= strlen("_total");
	fprintf(w->f, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)len, name, help,
		(int)len, name, type);
}

/* Writes a label with its value: printable ASCII, escaped. */
static void label(const struct writer *w, const char *name, const char *value)
{
	fprintf(w->f, "%s=\"", name);
	for (; *value; value++) {
		unsigned char c = *value;

		if (c == '\\' || c == '"')
			fputc('\\', w->f);
		fputc(c < 0x20 || c >= 0x7f ? '_' : c, w->f);
	}
	fputc('"', w->f);
}

static void value(const struct writer *w, uint64_t v)
{
	fprintf(w->f, " %llu\n", (unsigned long long)v);
}

static void plain(const struct writer *w, const char *name, const char *type,
		  const char *help, uint64_t v)
{
	family(w, name, type, help);
	fputs(name, w->f);
	value(w, v);
}

/* Writes a sample with up to three labels: name, value, ... NULL. */
static void sample(const struct writer *w, const char *name, uint64_t v, ...)
{
	const char *key, *comma = "{";
	va_list args;

	fputs(name, w->f);
	va_start(args, v);
	while ((key = va_arg(args, const char *))) {
		fputs(comma, w->f);
		label(w, key, va_arg(args, const char *));
		comma = ",";
	}
	va_end(args);
	fputc('}', w->f);
	value(w, v);
}

/* --- requests ------------------------------------------------------------ */

static const char *site_name(const struct writer *w, unsigned int nr)
{
	if (nr == TBG_METRIC_OTHER)
		return "other";
	return *w->sites->numbered[nr] ? w->sites->numbered[nr] : "default";
}

/* Returns the next number in use; TBG_METRIC_SITES: none. */
static unsigned int site_next(const struct writer *w, unsigned int nr)
{
	return nr < w->sites->numbered_nr ? nr :
	       nr <= TBG_METRIC_OTHER ? TBG_METRIC_OTHER : TBG_METRIC_SITES;
}

#define each_site(w, nr) \
	for (unsigned int nr = site_next(w, 0); nr < TBG_METRIC_SITES; \
	     nr = site_next(w, nr + 1))

/* "other" is omitted while there are no such sites. */
static bool site_shown(const struct writer *w, unsigned int nr)
{
	if (nr != TBG_METRIC_OTHER)
		return true;
	for (int t = 0; t < TBG_TIER_NR; t++)
		if (w->tier[t].site[nr].requests)
			return true;
	return false;
}

static void requests_write(const struct writer *w)
{
	static const char *const classes[] = { "other", "1xx", "2xx", "3xx", "4xx", "5xx" };

	family(w, "toboggan_requests_total", "counter",
	       "Requests answered, by site of the configuration and tier.");
	each_site(w, i)
		for (int t = 0; t < TBG_TIER_NR && site_shown(w, i); t++)
			sample(w, "toboggan_requests_total", w->tier[t].site[i].requests,
			       "host", site_name(w, i), "tier", tbg_log_tier_text(t), NULL);
	family(w, "toboggan_response_body_bytes_total", "counter",
	       "Bytes of response bodies, by site and tier.");
	each_site(w, i)
		for (int t = 0; t < TBG_TIER_NR && site_shown(w, i); t++)
			sample(w, "toboggan_response_body_bytes_total",
			       w->tier[t].site[i].body,
			       "host", site_name(w, i), "tier", tbg_log_tier_text(t), NULL);
	family(w, "toboggan_host_responses_total", "counter",
	       "Responses by site and class of status.");
	each_site(w, i)
		for (int c = 0; c < 6 && site_shown(w, i); c++) {
			uint64_t sum = 0;

			for (int t = 0; t < TBG_TIER_NR; t++)
				sum += w->tier[t].site[i].status[c];
			if (c || sum)
				sample(w, "toboggan_host_responses_total", sum, "host",
				       site_name(w, i), "class", classes[c], NULL);
		}
}

static void kinds_write(const struct writer *w)
{
	char code[12];

	family(w, "toboggan_responses_total", "counter", "Responses by tier and status.");
	for (int t = 0; t < TBG_TIER_NR; t++)
		for (int c = 0; c < TBG_METRIC_CODES; c++) {
			if (!w->tier[t].code[c])
				continue;
			snprintf(code, sizeof(code), "%d", c + 100);
			sample(w, "toboggan_responses_total", w->tier[t].code[c],
			       "tier", tbg_log_tier_text(t), "code", code, NULL);
		}
	family(w, "toboggan_requests_by_method_total", "counter",
	       "Requests by tier and method; other: any method that is not listed.");
	for (int t = 0; t < TBG_TIER_NR; t++)
		for (int m = 0; m < TBG_METRIC_METHOD_NR; m++)
			if (t == TBG_TIER_user || w->tier[t].method[m])
				sample(w, "toboggan_requests_by_method_total",
				       w->tier[t].method[m], "tier", tbg_log_tier_text(t), "method",
				       tbg_metric_method_name(m), NULL);
	family(w, "toboggan_sent_bytes_total", "counter",
	       "Bytes of responses handed to the network, heads and repeats included.");
	sample(w, "toboggan_sent_bytes_total", w->kernel.wire_bytes, "tier", "wire", NULL);
	sample(w, "toboggan_sent_bytes_total", w->kernel.sock_bytes, "tier", "sock", NULL);
	sample(w, "toboggan_sent_bytes_total", w->user.bytes_sent, "tier", "user", NULL);
}

static void latency_write(const struct writer *w)
{
	static const char name[] = "toboggan_request_duration_seconds";
	char bound[32];

	family(w, name, "histogram",
	       "From the first byte of a request to its answer, by tier.");
	for (int t = 0; t < TBG_TIER_NR; t++) {
		uint64_t sum = 0;

		for (int b = 0; b < TBG_METRIC_BUCKETS; b++) {
			sum += w->tier[t].bucket[b];
			snprintf(bound, sizeof(bound), "%.9g",
				 (double)(1ull << (b + TBG_METRIC_SHIFT)) / 1e9);
			fprintf(w->f, "%s_bucket{tier=\"%s\",le=\"%s\"} %llu\n", name, tbg_log_tier_text(t),
				b < TBG_METRIC_BUCKETS - 1 ? bound : "+Inf",
				(unsigned long long)sum);
		}
		fprintf(w->f, "%s_sum{tier=\"%s\"} %.9f\n%s_count{tier=\"%s\"} %llu\n", name,
			tbg_log_tier_text(t), w->tier[t].took_ns / 1e9, name, tbg_log_tier_text(t),
			(unsigned long long)sum);
	}
}

static void passes_write(const struct writer *w)
{
	family(w, "toboggan_passes_total", "counter",
	       "Requests that a kernel tier left to the next one, by reason.");
	for (int i = 0; i < TBG_WHY_NR; i++)
		if (tbg_command_is_pass(i))
			sample(w, "toboggan_passes_total", w->kernel.why[i], "reason",
			       tbg_why_name(i), NULL);
	family(w, "toboggan_packets_total", "counter",
	       "Packets without a request for a kernel tier, by reason.");
	for (int i = 0; i < TBG_WHY_NR; i++)
		if (!tbg_command_is_pass(i))
			sample(w, "toboggan_packets_total", w->kernel.why[i], "reason",
			       tbg_why_name(i), NULL);
	plain(w, "toboggan_xdp_hits_total", "counter",
	      "Of wire's hits, those answered in the driver.", w->kernel.xdp_hits);
}

/* --- caches and connections ---------------------------------------------- */

static void cache_write(const struct writer *w)
{
	struct tbg_cache_stats c = { 0 };
	struct tbg_store_stats st = { 0 };

	tbg_cache_stats(w->s->files.cache, &c);
	tbg_store_stats(w->s->store, &st);
	plain(w, "toboggan_cache_objects", "gauge", "Objects that can be found.", c.objects);
	plain(w, "toboggan_cache_objects_in_kernel", "gauge",
	      "Objects that a kernel tier can answer with.", c.in_kernel);
	plain(w, "toboggan_cache_bytes", "gauge", "Bytes of slots in use.", c.bytes_used);
	plain(w, "toboggan_cache_budget_bytes", "gauge", "Bytes that slots may take.",
	      c.bytes_budget);
	plain(w, "toboggan_cache_quarantined_slots", "gauge",
	      "Slots of withdrawn objects that are not reused yet.", c.quarantined);
	plain(w, "toboggan_cache_hits_total", "counter",
	      "Lookups of the daemon that found an object.", c.hits);
	plain(w, "toboggan_cache_misses_total", "counter",
	      "Lookups of the daemon that found none.", c.misses);
	plain(w, "toboggan_cache_published_total", "counter", "Objects published.", c.published);
	plain(w, "toboggan_cache_withdrawn_total", "counter", "Objects withdrawn.", c.withdrawn);
	plain(w, "toboggan_cache_evicted_total", "counter",
	      "Objects evicted for others.", c.evicted);
	plain(w, "toboggan_cache_refused_total", "counter",
	      "Objects not admitted.", c.refused);
	plain(w, "toboggan_stored_responses", "gauge",
	      "Responses of upstreams that are stored.", st.responses);
	plain(w, "toboggan_stored_bytes", "gauge", "Bytes of them.", st.bytes_used);
	plain(w, "toboggan_stored_budget_bytes", "gauge", "Bytes that they may take.",
	      st.bytes_budget);
	plain(w, "toboggan_stored_evicted_total", "counter",
	      "Stored responses evicted for others.", st.evicted);
}

static void connections_write(const struct writer *w)
{
	const struct tbg_user_stats *u = &w->user;

	plain(w, "toboggan_connections", "gauge", "Connections that the daemon holds.",
	      u->connections);
	plain(w, "toboggan_connections_accepted_total", "counter", "Connections accepted.",
	      u->accepted);
	plain(w, "toboggan_connections_closed_total", "counter", "Connections closed.",
	      u->closed);
	plain(w, "toboggan_connections_refused_total", "counter",
	      "Connections that found no room, or had to wait for it.", u->refused);
	plain(w, "toboggan_timeouts_total", "counter", "Time limits that ended a connection.",
	      u->timeouts);
	plain(w, "toboggan_bad_requests_total", "counter", "Requests refused as malformed.",
	      u->bad);
	family(w, "toboggan_denied_total", "counter",
	       "Requests, or connections, refused for their client: by a list, or a limit.");
	for (int i = 0; i < TBG_REFUSAL_NR; i++)
		sample(w, "toboggan_denied_total", u->refusals[i], "by", tbg_refusal_name(i),
		       NULL);
	plain(w, "toboggan_user_hits_total", "counter",
	      "Requests that the user tier answered from the cache.", u->hits);
}

/* --- upstreams ----------------------------------------------------------- */

enum backend_value { IS_UP, ACTIVE, REQUESTS, FAILED };

static uint64_t backend_value(const struct tbg_backend *b, enum backend_value what)
{
	switch (what) {
	case IS_UP:
		return !tbg_backend_rests(b, tbg_mono_ns());
	case ACTIVE:
		return atomic_load(&b->active);
	case REQUESTS:
		return atomic_load(&b->requests);
	case FAILED:
		return atomic_load(&b->failed);
	}
	return 0;
}

/* Several unnamed upstreams may have the same label: the first represents all of them. */
static bool upstream_first(const struct writer *w, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		if (!strcmp(w->sites->upstreams[i]->name, w->sites->upstreams[nr]->name))
			return false;
	return true;
}

static uint64_t backend_sum(const struct writer *w, unsigned int nr, unsigned int server,
			    enum backend_value what)
{
	const struct tbg_upstream *first = w->sites->upstreams[nr];
	uint64_t ret = backend_value(&first->backends[server], what);

	for (unsigned int i = nr + 1; i < w->sites->upstreams_nr; i++) {
		const struct tbg_upstream *u = w->sites->upstreams[i];

		if (what != IS_UP && server < u->nr && !strcmp(u->name, first->name))
			ret += backend_value(&u->backends[server], what);
	}
	return ret;
}

static void upstream_write(const struct writer *w, const char *name, const char *type,
			   const char *help, enum backend_value what)
{
	char index[12];

	family(w, name, type, help);
	for (unsigned int i = 0; i < w->sites->upstreams_nr; i++) {
		const struct tbg_upstream *u = w->sites->upstreams[i];

		for (unsigned int j = 0; j < u->nr && upstream_first(w, i); j++) {
			snprintf(index, sizeof(index), "%u", j);
			sample(w, name, backend_sum(w, i, j, what), "upstream", u->name,
			       "server", u->backends[j].text, "index", index, NULL);
		}
	}
}

static void upstreams_write(const struct writer *w)
{
	if (!w->sites->upstreams_nr)
		return;
	upstream_write(w, "toboggan_upstream_up", "gauge",
		       "1 if the server is in use, 0 while it is not.", IS_UP);
	upstream_write(w, "toboggan_upstream_active_requests", "gauge",
		       "Requests under way to the server.", ACTIVE);
	upstream_write(w, "toboggan_upstream_requests_total", "counter",
		       "Requests sent to the server.", REQUESTS);
	upstream_write(w, "toboggan_upstream_failures_total", "counter",
		       "Of them, those that failed.", FAILED);
}

/* --- the process --------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long size = 0, resident = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return (uint64_t)resident * sysconf(_SC_PAGESIZE);
}

static void process_write(const struct writer *w)
{
	struct timespec now;
	double began;

	clock_gettime(CLOCK_REALTIME, &now);
	began = now.tv_sec + now.tv_nsec / 1e9 - (tbg_mono_ns() - w->s->started_ns) / 1e9;
	family(w, "toboggan_build_info", "gauge", "Version of the daemon; always 1.");
	sample(w, "toboggan_build_info", 1, "version", TBG_VERSION, NULL);
	family(w, "toboggan_start_time_seconds", "gauge", "When the daemon started, Unix time.");
	fprintf(w->f, "toboggan_start_time_seconds %.3f\n", began);
	plain(w, "toboggan_draining", "gauge", "1 from the first moment of a drain.",
	      atomic_load(&w->s->draining));
	plain(w, "toboggan_workers", "gauge", "Threads that serve.", w->s->workers_nr);
	family(w, "toboggan_tier_enabled", "gauge", "1 if the tier answers.");
	sample(w, "toboggan_tier_enabled", w->s->wire && !atomic_load(&w->s->draining),
	       "tier", "wire", NULL);
	sample(w, "toboggan_tier_enabled", w->s->sock && !atomic_load(&w->s->draining),
	       "tier", "sock", NULL);
	sample(w, "toboggan_tier_enabled", 1, "tier", "user", NULL);
	family(w, "toboggan_process_cpu_seconds_total", "counter",
	       "CPU time of the daemon; that of wire is its interrupts'.");
	fprintf(w->f, "toboggan_process_cpu_seconds_total %.3f\n",
		clock() / (double)CLOCKS_PER_SEC);
	plain(w, "toboggan_process_resident_memory_bytes", "gauge",
	      "Resident memory, the cache's maps included.", resident_bytes());
	family(w, "toboggan_log_lost_lines_total", "counter",
	       "Lines of the access log that were lost, by where.");
	sample(w, "toboggan_log_lost_lines_total", tbg_logs_lost(),
	       "where", "daemon", NULL);
	sample(w, "toboggan_log_lost_lines_total", w->kernel.log_lost, "where", "kernel", NULL);
}

static void sums_take(struct writer *w)
{
	struct tbg_server *s = w->s;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		tbg_metrics_add(&w->tier[TBG_TIER_user], tbg_server_metrics(s, i));
	if (!s->maps)
		return;
	tbg_maps_stats(s->maps, &w->kernel);
	tbg_metrics_add_kernel(&w->tier[TBG_TIER_wire], s->maps, TBG_TIER_wire,
			       w->sites->numbered_nr);
	tbg_metrics_add_kernel(&w->tier[TBG_TIER_sock], s->maps, TBG_TIER_sock,
			       w->sites->numbered_nr);
}

char *tbg_exposition(struct tbg_server *s, bool openmetrics, size_t *ret_len)
{
	struct writer *w = calloc(1, sizeof(*w));
	char *ret = NULL;

	if (!w)
		return NULL;
	w->s = s;
	w->openmetrics = openmetrics;
	w->f = open_memstream(&ret, ret_len);
	if (!w->f)
		goto out;
	w->sites = tbg_server_sites_hold(s);
	sums_take(w);
	tbg_server_user_stats(s, &w->user);
	process_write(w);
	requests_write(w);
	kinds_write(w);
	latency_write(w);
	passes_write(w);
	cache_write(w);
	connections_write(w);
	upstreams_write(w);
	if (openmetrics)
		fputs("# EOF\n", w->f);
	tbg_sites_put(w->sites);
	if (ferror(w->f) | fclose(w->f)) {
		free(ret);
		ret = NULL;
	}
out:
	free(w);
	return ret;
}
