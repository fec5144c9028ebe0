// SPDX-License-Identifier: GPL-2.0
/*
 * The commands of the control socket that are answered immediately, in the control
 * thread: each makes one JSON object. Longer ones are streams (stream.h).
 */
#include "control/commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi/stats.h"
#include "abi/version.h"
#include "cache/objects.h"
#include "os/clock.h"
#include "log/access.h"
#include "log/metrics.h"
#include "os/root.h"
#include "serve/server.h"
#include "store/responses.h"
#include "upstream/upstream.h"
#include "control/deny.h"
#include "control/why.h"
#include "tiers/reply_size.h"
#include "tiers/vrfs.h"
#include "tiers/wire.h"

json_t *tbg_command_error(const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return json_pack("{s:b, s:o}", "ok", 0, "error",
			 tbg_json_text(text, strlen(text)));
}

static json_t *tier_json(bool on, const char *why)
{
	json_t *ret = json_pack("{s:b}", "on", on);

	if (!on)
		json_object_set_new(ret, "why", tbg_json_text(why, strlen(why)));
	return ret;
}

json_t *tbg_command_left(const struct tbg_server *s)
{
	json_t *ret = json_array();

	for (unsigned int i = 0; s->wire && i < s->opt.listen_nr; i++)
		if (s->listener_left[i])
			json_array_append_new(ret, json_pack("{s:s, s:s}",
							     "listener", s->opt.listen_text[i],
							     "why", s->listener_left[i]));
	return ret;
}

static json_t *tiers_json(const struct tbg_server *s)
{
	bool draining = atomic_load(&s->draining);
	const char *held = s->wire ? tbg_wire_held(s->wire) : s->wire_off;
	json_t *wire = tier_json(s->wire && !draining && !*held,
				 s->wire && draining ? "draining" : held);
	char unfollowed[TBG_UNFOLLOWED_LEN] = "";

	if (s->wire && !draining && !*held)
		tbg_wire_unfollowed(s->wire, unfollowed);
	if (unfollowed[0])
		json_object_set_new(wire, "note", json_string(unfollowed));
	return json_pack("{s:o, s:o, s:o}",
			 "wire", wire,
			 "sock", tier_json(s->sock && !draining, s->sock ?
					   "draining" : s->sock_off),
			 "user", tier_json(true, ""));
}

static json_t *ifaces_json(const struct tbg_server *s)
{
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr = tbg_wire_ifaces(s->wire, ifaces);
	json_t *ret = json_array();

	for (unsigned int i = 0; i < nr; i++) {
		json_t *one = json_pack("{s:s, s:i, s:s}",
					"name", ifaces[i].name,
					"ifindex", ifaces[i].ifindex,
					"how", ifaces[i].how);

		if (!strcmp(ifaces[i].how, "off"))
			json_object_set_new(one, "why", tbg_json_text(
				ifaces[i].why, strlen(ifaces[i].why)));
		if (ifaces[i].xdp[0])
			json_object_set_new(one, "xdp", json_string(ifaces[i].xdp));
		if (ifaces[i].xdp_why[0])
			json_object_set_new(one, "xdp_why", tbg_json_text(
				ifaces[i].xdp_why, strlen(ifaces[i].xdp_why)));
		json_array_append_new(ret, one);
	}
	return ret;
}

/* Counters of late sockets; null if all connections have sockets. */
static json_t *late_json(const struct tbg_server *s)
{
	struct tbg_stats st;

	if (!s->wire || !tbg_wire_owns(s->wire) || tbg_maps_stats(s->maps, &st))
		return json_null();
	return json_pack("{s:s?, s:I, s:I, s:I, s:I, s:s, s:s, s:b, s:s, s:I}",
			 "vrfs_why", tbg_vrfs_why(tbg_wire_vrfs(s->wire)),
			 "births", (json_int_t)st.births,
			 "handed", (json_int_t)st.handed, "given", (json_int_t)st.given,
			 "refused", (json_int_t)tbg_wire_births(s->wire)->refused,
			 "syns", tbg_births_text(tbg_wire_births(s->wire)),
			 "syns_why", tbg_wire_births(s->wire)->why,
			 "tracks", tbg_births_tracks(tbg_wire_births(s->wire)),
			 "asks_why", tbg_wire_routes(s->wire)->asks_why,
			 "asked", (json_int_t)tbg_wire_routes(s->wire)->pairs.seq);
}

/* Each site: its names, its root, the number of its locations. */
static json_t *sites_json(const struct tbg_server *s)
{
	const struct tbg_sites *sites = s->sites;
	json_t *ret = json_array();

	for (unsigned int i = 0; i < sites->nr; i++) {
		const struct tbg_site *site = &sites->site[i];
		const char *root = tbg_root_path(s->files.roots,
			site->locations[site->locations_nr - 1].root);

		json_array_append_new(ret, json_pack("{s:s, s:i, s:b, s:o, s:i}",
			"name", site->name, "vhost", (int)site->id,
			"default", site == sites->fallback,
			"root", tbg_json_text(root, strlen(root)),
			"locations", (int)site->locations_nr));
	}
	return ret;
}

/* The server as configured; with its address if several share the text. */
static json_t *backend_text(const struct tbg_backend *b)
{
	const struct tbg_upstream *u = b->upstream;
	char text[sizeof(b->text) + NI_MAXHOST], host[NI_MAXHOST];
	unsigned int nr = 0;
	int n;

	for (unsigned int i = 0; i < u->nr; i++)
		nr += !strcmp(u->backends[i].text, b->text);
	if (nr < 2 || b->address.ss_family == AF_UNIX ||
	    getnameinfo((const struct sockaddr *)&b->address, b->address_len, host,
			sizeof(host), NULL, 0, NI_NUMERICHOST))
		return tbg_json_text(b->text, strlen(b->text));
	n = snprintf(text, sizeof(text), "%s (%s)", b->text, host);
	return tbg_json_text(text, n);
}

static json_t *backend_json(const struct tbg_backend *b)
{
	return json_pack("{s:s, s:o, s:b, s:i, s:I, s:I}",
			 "upstream", b->upstream->name, "server", backend_text(b),
			 "rests", tbg_backend_rests(b, tbg_mono_ns()) ? 1 : 0,
			 "active", (int)atomic_load(&b->active),
			 "requests", (json_int_t)atomic_load(&b->requests),
			 "failed", (json_int_t)atomic_load(&b->failed));
}

/* An upstream whose servers' names currently have no addresses. */
static json_t *missing_json(const struct tbg_upstream *u)
{
	return json_pack("{s:s, s:s, s:b, s:i, s:i, s:i}", "upstream", u->name,
			 "server", "(no address)", "rests", 1, "active", 0, "requests", 0,
			 "failed", 0);
}

/* The servers of upstreams, and statistics of the response store. */
static void upstream_add(const struct tbg_server *s, json_t *to)
{
	json_t *servers = json_array();
	struct tbg_store_stats st;

	for (unsigned int i = 0; i < s->sites->upstreams_nr; i++) {
		const struct tbg_upstream *u = s->sites->upstreams[i];

		if (!u->nr)
			json_array_append_new(servers, missing_json(u));
		for (unsigned int j = 0; j < u->nr; j++)
			json_array_append_new(servers, backend_json(&u->backends[j]));
	}
	json_object_set_new(to, "upstreams", servers);
	tbg_store_stats(s->store, &st);
	json_object_set_new(to, "stock", json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I}",
		"responses", (json_int_t)st.responses, "uris", (json_int_t)st.uris,
		"used", (json_int_t)st.bytes_used, "budget", (json_int_t)st.bytes_budget,
		"evicted", (json_int_t)st.evicted,
		"withdrawn", (json_int_t)st.withdrawn));
}

static json_t *status_answer(struct tbg_server *s, const json_t *req)
{
	struct tbg_cache_stats cs = { 0 };
	struct tbg_user_stats us = { 0 };
	const char *log = tbg_log_path(s->log);
	const char *root = tbg_root_path(s->files.roots, tbg_server_root(s));
	json_t *listeners = json_array(), *ret;

	tbg_cache_stats(s->files.cache, &cs);
	tbg_server_user_stats(s, &us);
	for (unsigned int i = 0; i < s->opt.listen_nr; i++)
		json_array_append_new(listeners,
				      json_string(s->opt.listen_text[i]));
	ret = json_pack("{s:b, s:s, s:i, s:f, s:b, s:o, s:o, s:o, s:o, s:o, s:i, s:b, s:i, s:I, s:I, s:{s:I, s:I}, s:I, s:I, s:I, s:o}",
			 "ok", 1, "version", TBG_VERSION,
			 "pid", (int)getpid(),
			 "uptime_s", (tbg_mono_ns() - s->started_ns) / 1e9,
			 "draining", atomic_load(&s->draining) ? 1 : 0,
			 "root", tbg_json_text(root, strlen(root)),
			 "sites", sites_json(s),
			 "listeners", listeners,
			 "tiers", tiers_json(s),
			 "interfaces", ifaces_json(s),
			 "wire_size", (int)tbg_reply_size_longest(s->wire, s->opt.wire_size),
			 "wire_size_auto", !s->opt.wire_size,
			 "workers", (int)s->workers_nr,
			 "objects", (json_int_t)cs.objects,
			 "objects_in_kernel", (json_int_t)cs.in_kernel,
			 "memory", "used", (json_int_t)cs.bytes_used,
			 "budget", (json_int_t)cs.bytes_budget,
			 "quarantined", (json_int_t)cs.quarantined,
			 "connections", (json_int_t)us.connections,
			 "flows", (json_int_t)(s->wire ? tbg_wire_flows(s->wire) : 0),
			 "access_log", log ? tbg_json_text(log, strlen(log)) :
			 json_null());
	if (ret) {
		json_object_set_new(ret, "listeners_left", tbg_command_left(s));
		json_object_set_new(ret, "late_sockets", late_json(s));
	}
	if (ret && s->wire)
		json_object_set_new(ret, "late_sockets_off",
				    json_string(tbg_wire_late_off(s->wire)));
	if (s->sites->upstreams_nr && ret)
		upstream_add(s, ret);
	return ret;
}

bool tbg_command_is_pass(int why)
{
	switch (why) {
	case TBG_WHY_HIT_WIRE:
	case TBG_WHY_HIT_SOCK:
	case TBG_WHY_ENROLLED:
	case TBG_WHY_REPEAT:
	case TBG_WHY_DOUBLED:
	case TBG_WHY_ACK:
	case TBG_WHY_NOT_OURS:
	case TBG_WHY_CONTROL:
	case TBG_WHY_BORN:
	case TBG_WHY_EGRESS:
	case TBG_WHY_OWN:
	case TBG_WHY_STALE_REPEAT:
	case TBG_WHY_ICMP:
		return false;
	}
	return true;
}

static void why_append(json_t *to, int why, __u64 count)
{
	json_array_append_new(to, json_pack("{s:s, s:s, s:I}",
					    "name", tbg_why_name(why),
					    "text", tbg_why_text(why),
					    "count", (json_int_t)count));
}

static json_t *whys_json(const struct tbg_stats *ks, bool pass)
{
	json_t *ret = json_array();

	for (int i = 0; i < TBG_WHY_NR; i++)
		if (tbg_command_is_pass(i) == pass)
			why_append(ret, i, ks->why[i]);
	return ret;
}

/* Packets that XDP left to TC, which answered them or counted a pass. */
static json_t *left_json(const struct tbg_stats *ks)
{
	json_t *ret = json_array();

	for (int i = 0; i < TBG_WHY_NR; i++)
		if (ks->xdp_left[i])
			why_append(ret, i, ks->xdp_left[i]);
	return ret;
}

static json_t *user_json(const struct tbg_server *s)
{
	struct tbg_user_stats us = { 0 };
	json_t *status = json_object();
	json_t *limited = json_object();
	char name[] = "0xx";

	tbg_server_user_stats(s, &us);
	for (int i = TBG_REFUSAL_list + 1; i < TBG_REFUSAL_NR; i++)
		json_object_set_new(limited, tbg_refusal_name(i),
				    json_integer((json_int_t)us.refusals[i]));
	for (int i = 1; i < 6; i++) {
		name[0] = '0' + i;
		json_object_set_new(status, name,
				    json_integer((json_int_t)us.status[i]));
	}
	return json_pack("{s:f, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			 "cpu_s", clock() / (double)CLOCKS_PER_SEC,
			 "requests", (json_int_t)us.requests,
			 "bytes", (json_int_t)us.bytes_sent,
			 "hits", (json_int_t)us.hits, "status", status,
			 "accepted", (json_int_t)us.accepted,
			 "closed", (json_int_t)us.closed,
			 "connections", (json_int_t)us.connections,
			 "timeouts", (json_int_t)us.timeouts,
			 "refused", (json_int_t)us.refused,
			 "bad", (json_int_t)us.bad,
			 "denied", (json_int_t)us.refusals[TBG_REFUSAL_list],
			 "limited", limited);
}

static json_t *cache_json(const struct tbg_server *s)
{
	struct tbg_cache_stats cs = { 0 };

	tbg_cache_stats(s->files.cache, &cs);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "objects", (json_int_t)cs.objects,
			 "in_kernel", (json_int_t)cs.in_kernel,
			 "bytes_used", (json_int_t)cs.bytes_used,
			 "bytes_budget", (json_int_t)cs.bytes_budget,
			 "quarantined", (json_int_t)cs.quarantined,
			 "hits", (json_int_t)cs.hits,
			 "misses", (json_int_t)cs.misses,
			 "published", (json_int_t)cs.published,
			 "withdrawn", (json_int_t)cs.withdrawn,
			 "evicted", (json_int_t)cs.evicted,
			 "refused", (json_int_t)cs.refused);
}

/* The total time of wire's hits, to compare with the kernel's run time statistics. */
static uint64_t hits_ns(const struct tbg_server *s)
{
	struct tbg_metric_sum *sum = calloc(1, sizeof(*sum));
	uint64_t ret = 0;

	if (sum && s->wire && !tbg_metrics_add_kernel(sum, s->maps, TBG_TIER_wire, 0))
		ret = sum->took_ns;
	free(sum);
	return ret;
}

static json_t *stats_answer(struct tbg_server *s, const json_t *req)
{
	struct tbg_stats ks = { 0 };
	int err = s->maps ? tbg_maps_stats(s->maps, &ks) : 0;

	if (err)
		return tbg_command_error("counters of the kernel tiers: %s",
				       strerror(-err));
	return json_pack("{s:b, s:{s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I}, s:o}, s:o, s:o, s:o, s:o, s:{s:b, s:I, s:I}}",
			 "ok", 1, "tiers",
			 "wire", "requests", (json_int_t)ks.why[TBG_WHY_HIT_WIRE],
			 "bytes", (json_int_t)ks.wire_bytes,
			 "repeats", (json_int_t)ks.why[TBG_WHY_REPEAT],
			 "xdp", (json_int_t)ks.xdp_hits,
			 "took_ns", (json_int_t)hits_ns(s),
			 "program", (json_int_t)(s->wire ? tbg_wire_program(s->wire) : 0),
			 "sock", "requests", (json_int_t)ks.why[TBG_WHY_HIT_SOCK],
			 "bytes", (json_int_t)ks.sock_bytes,
			 "user", user_json(s),
			 "passes", whys_json(&ks, true),
			 "left_by_xdp", left_json(&ks),
			 "packets", whys_json(&ks, false),
			 "cache", cache_json(s),
			 "log", "on", atomic_load(&s->logging) ? 1 : 0,
			 "lost", (json_int_t)tbg_logs_lost(),
			 "lost_in_kernel", (json_int_t)ks.log_lost);
}

/* Parses the URL of a command. Returns NULL and *ret_error if it is not valid. */
static struct tbg_why_path *url_take(const struct tbg_server *s,
				     const char *url, json_t **ret_error)
{
	struct tbg_why_path *ret;
	char msg[512];

	if (!url) {
		*ret_error = tbg_command_error("url: missing, give a URL or a path");
		return NULL;
	}
	ret = malloc(sizeof(*ret));
	if (ret && !tbg_why_path_parse(s->sites, ret, url, msg, sizeof(msg)))
		return ret;
	*ret_error = tbg_command_error("%s", ret ? msg : "out of memory");
	free(ret);
	return NULL;
}

/* Decodes two hexadecimal digits per byte: JSON cannot contain arbitrary bytes. -1: invalid. */
static int request_take(struct tbg_why_request *ret, const char *hex)
{
	size_t len = strlen(hex) / 2;

	if (!len || strlen(hex) % 2 || strspn(hex, "0123456789abcdefABCDEF") != 2 * len)
		return -1;
	if (len > sizeof(ret->b))
		len = sizeof(ret->b);	/* too long for every tier, even when cut */
	for (size_t i = 0; i < len; i++) {
		char byte[3] = { hex[2 * i], hex[2 * i + 1] };

		ret->b[i] = strtoul(byte, NULL, 16);
	}
	ret->len = len;
	return 0;
}

static int client_take(struct tbg_why_request *ret, const char *text)
{
	struct in_addr four;

	ret->has_client = true;
	if (inet_pton(AF_INET6, text, ret->client) == 1)
		return 0;
	if (inet_pton(AF_INET, text, &four) != 1)
		return -1;
	ret->client[0] = 0;
	ret->client[1] = 0;
	ret->client[2] = htonl(0xffff);
	ret->client[3] = four.s_addr;
	return 0;
}

static json_t *why_answer(struct tbg_server *s, const json_t *req)
{
	const char *url = json_string_value(json_object_get(req, "url"));
	const char *accept = json_string_value(json_object_get(req, "accept_encoding"));
	const char *hex = json_string_value(json_object_get(req, "request"));
	const char *client = json_string_value(json_object_get(req, "client"));
	struct tbg_why_request r = { 0 };
	struct tbg_why_path *p = NULL;
	char of[TBG_URL_MAX];
	json_t *ret = NULL;

	if (hex && (url || accept))
		return tbg_command_error("request: excludes url and accept_encoding");
	if (hex && request_take(&r, hex))
		return tbg_command_error("request: expected bytes as pairs of hexadecimal digits");
	if (client && client_take(&r, client))
		return tbg_command_error("client: %.60s: not an address", client);
	if (hex && tbg_why_request_parse(&r, of, sizeof(of)))
		url = of;
	if (url || !hex)
		p = url_take(s, url, &ret);
	if (!p && !hex)
		return ret;
	json_decref(ret);		/* a request without a path can be examined nevertheless */
	if (accept)
		r.accept = (struct tbg_slice){ accept, strlen(accept) };
	ret = tbg_why_answer(s, p, &r);
	json_object_set_new(ret, "ok", json_true());
	free(p);
	return ret;
}

/* Returns the site of a URL with a host; for a path alone, every site. */
static uint32_t vhost_of(const struct tbg_why_path *p)
{
	return p->has_host ? p->site->id : TBG_VHOST_ANY;
}

/* Purges a configured host. An unknown name is an error. */
static json_t *purge_host(struct tbg_server *s, const char *host)
{
	const struct tbg_sites *sites = s->sites;
	const struct tbg_site *site = tbg_site_find(sites, host, strlen(host));

	unsigned int nr;

	/* responses of upstreams may have any requested host */
	if (!sites->upstreams_nr && !tbg_site_named(sites, host))
		return tbg_command_error("host: %.200s: no site has that name, see toboggan status",
					 host);
	nr = tbg_store_purge_host(s->store, host);
	if (tbg_site_named(sites, host)) {
		/* texts of files begin with "/"; responses of upstreams are in the store */
		nr += tbg_cache_withdraw_below(s->files.cache, site->id, "/", 1);
		host = *site->name ? site->name : host;
	}
	return json_pack("{s:b, s:I, s:o}", "ok", 1, "purged", (json_int_t)nr,
			 "host", tbg_json_text(host, strlen(host)));
}

static json_t *purge_answer(struct tbg_server *s, const json_t *req)
{
	const char *host = json_string_value(json_object_get(req, "host"));
	const char *prefix = json_string_value(json_object_get(req, "prefix"));
	const char *tag = json_string_value(json_object_get(req, "tag"));
	json_t *ret = NULL;
	struct tbg_why_path *p;
	unsigned int nr = 0;

	if (json_is_true(json_object_get(req, "all"))) {
		/* first the response store with its objects, so that they are counted once */
		nr = tbg_store_purge(s->store, NULL, 0);
		nr += tbg_cache_withdraw_all(s->files.cache);
		return json_pack("{s:b, s:I}", "ok", 1, "purged", (json_int_t)nr);
	}
	if (tag) {
		nr = tbg_store_purge_tag(s->store, tag);
		return json_pack("{s:b, s:I, s:o}", "ok", 1, "purged", (json_int_t)nr,
				 "tag", tbg_json_text(tag, strlen(tag)));
	}
	if (host)
		return purge_host(s, host);
	p = url_take(s, prefix ?: json_string_value(json_object_get(req, "url")), &ret);
	if (!p)
		return ret;
	nr = prefix ? tbg_cache_withdraw_below(s->files.cache, vhost_of(p), p->path, p->len)
		    : tbg_cache_withdraw_path(s->files.cache, vhost_of(p), p->path, p->len);
	nr += prefix ? tbg_store_purge_below(s->store, p->path, p->len)
		     : tbg_store_purge(s->store, p->path, p->len);
	ret = json_pack("{s:b, s:I, s:o}", "ok", 1, "purged", (json_int_t)nr,
			"path", tbg_json_text(p->path, p->len));
	free(p);
	return ret;
}

/* As SIGHUP. The answer confirms the start of the reload; its result is on stderr. */
static json_t *reload_answer(struct tbg_server *s, const json_t *req)
{
	if (!s->opt.config)
		return tbg_command_error("reload: nothing to read again; give --config FILE at the start");
	if (kill(getpid(), SIGHUP))
		return tbg_command_error("reload: %s", strerror(errno));
	return json_pack("{s:b, s:s}", "ok", 1, "reload", "begun");
}

static json_t *deny_answer(struct tbg_server *s, const json_t *req)
{
	return tbg_deny_answer(s->bans, req);
}

static const struct {
	const char *name;
	json_t *(*answer)(struct tbg_server *s, const json_t *req);
} commands[] = {
	{ "status", status_answer },
	{ "stats",  stats_answer },
	{ "why",    why_answer },
	{ "purge",  purge_answer },
	{ "reload", reload_answer },
	{ "deny",   deny_answer },
};

json_t *tbg_command(struct tbg_server *s, const char *cmd, const json_t *req)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(cmd, commands[i].name))
			return commands[i].answer(s, req);
	return tbg_command_error("cmd: %.60s: unknown; there are status, stats, objects, connections, why, purge, reload, deny, warm and log",
				 cmd);
}
