// SPDX-License-Identifier: GPL-2.0
/*
 * Loads, attaches, supervises and removes wire. Each error becomes a sentence, and leaves nothing.
 */
#include "tiers/wire.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "tiers/attach.h"
#include "tiers/direct.h"
#include "bpf/translate.skel.h"
#include "bpf/translate_direct.skel.h"
#include "bpf/wire.skel.h"
#include "os/clock.h"
#include "os/service.h"
#include "os/timers.h"
#include "tiers/flow.h"
#include "tiers/guard.h"
#include "tiers/late.h"
#include "tiers/links.h"
#include "tiers/netlink.h"
#include "tiers/routes.h"
#include "tiers/xdp.h"
#include "os/privilege.h"
#include "os/message.h"
#include "tiers/vrfs.h"

TBG_DIRECT_OPEN(translate)

#define LOAD_LOG_LEN 96	/* short, so that the advice after it fits */
#define LOOK_GAP_NS (100 * 1000000ull)	/* at least, between readings of changed rules */

struct tbg_wire {
	struct tbg_wire_bpf *own;	/* with late sockets; or NULL: */
	struct tbg_translate_bpf *bpf;	/* with translation */
	struct bpf_object *obj;		/* the object of the one in use */
	int progs[TBG_HOOK_NR];		/* -1: no program for this hook */
	struct tbg_tcbs tcbs;
	bool draining;
	struct tbg_plan plan;
	struct tbg_maps maps;
	struct tbg_mapping conns, room;
	struct tbg_flows flows;
	struct tbg_guard guard;
	bool flows_open;
	struct tbg_late late;
	enum tbg_births_wanted births_wanted;
	struct tbg_births births;
	struct tbg_routes routes;
	uid_t owner;			/* user that the daemon runs as */
	struct tbg_vrfs vrfs;
	struct tbg_track track;
	bool rules_wait;		/* netfilter's rules have changed since they were read: */
	uint64_t looked_ns;		/* then */
	atomic_bool handed_well;	/* a hand-over has succeeded since the last check */
	char *wanted;			/* the value of --wire */
	struct sockaddr_storage listeners[TBG_LISTENER_MAX];
	unsigned int listeners_nr;
	struct tbg_interfaces on;
	struct tbg_unfollowed unfollowed;
	uint64_t swept_ns;
	char load_log[LOAD_LOG_LEN];	/* the first complaint of libbpf */
};

/* libbpf's print callback has no argument; one load at a time. */
static char *load_log;

static int keep_first(enum libbpf_print_level level, const char *fmt,
		     va_list ap)
{
	if (level == LIBBPF_WARN && load_log && !load_log[0]) {
		vsnprintf(load_log, LOAD_LOG_LEN, fmt, ap);
		load_log[strcspn(load_log, "\n")] = 0;
	}
	return 0;
}

static int fail(struct tbg_wire *w, int err, char *ret_msg, size_t msg_len,
		const char *what)
{
	if (w->load_log[0])
		snprintf(ret_msg, msg_len, "%s: %s (%s); %s", what,
			 strerror(-err), w->load_log, tbg_maps_advice(err));
	else
		snprintf(ret_msg, msg_len, "%s: %s; %s", what, strerror(-err),
			 tbg_maps_advice(err));
	return err;
}

/* Identifies this daemon. A pid does not suffice: in each container it may be 1. */
static int draw(void *ret, size_t len)
{
	return getrandom(ret, len, 0) == (ssize_t)len ? 0 : -errno;
}

/* Sets the sizes of maps, before loading. */
static int translate_sizes(struct tbg_wire *w)
{
	struct tbg_translate_bpf *bpf = w->bpf;
	const struct tbg_plan *p = &w->plan;
	struct stat ns;
	uint16_t bits;
	int err = draw(&bits, sizeof(bits));

	bpf->rodata->tbg_mark |= bits;
	bpf->rodata->tbg_netns = stat("/proc/self/ns/net", &ns) ? 0 : ns.st_ino;
	err = err ?: tbg_maps_size(bpf->obj, bpf->rodata->tbg_class_base, p);
	err = err ?: bpf_map__set_max_entries(bpf->maps.tbg_conns, p->conns);
	err = err ?: bpf_map__set_max_entries(bpf->maps.tbg_owners, p->conns);
	err = err ?: bpf_map__set_max_entries(bpf->maps.tbg_slots, p->conns);
	err = err ?: bpf_map__set_max_entries(bpf->maps.tbg_retired, p->conns);
	err = err ?: bpf_map__set_max_entries(bpf->maps.tbg_flows, p->conns);
	return err;
}

static int translate_load(struct tbg_wire *w)
{
	int err;

	w->bpf = translate_open();
	err = w->bpf ? translate_sizes(w) : -errno;
	err = err ?: tbg_translate_bpf__load(w->bpf);
	if (err)
		return err;
	w->obj = w->bpf->obj;
	w->progs[TBG_HOOK_INGRESS] = bpf_program__fd(w->bpf->progs.tbg_ingress);
	w->progs[TBG_HOOK_EGRESS] = bpf_program__fd(w->bpf->progs.tbg_egress);
	return 0;
}

static int own_load(struct tbg_wire *w)
{
	int err;

	tbg_routes_open(&w->routes, w->owner);
	tbg_births_open(&w->births, w->births_wanted, w->late.forgets, &w->routes);
	w->own = tbg_wire_bpf__open();
	err = w->own ? tbg_maps_size(w->own->obj, w->own->rodata->tbg_class_base,
				     &w->plan) : -errno;
	err = err ?: bpf_map__set_max_entries(w->own->maps.tbg_tcbs, w->plan.conns);
	if (!err) {
		w->own->rodata->tbg_conntrack = w->late.forgets;
		tbg_vrfs_open(&w->vrfs, w->own->obj);
	}
	err = err ?: tbg_wire_bpf__load(w->own);
	if (err)
		return err;
	w->obj = w->own->obj;
	w->progs[TBG_HOOK_INGRESS] = bpf_program__fd(w->own->progs.tbg_ingress);
	w->progs[TBG_HOOK_EGRESS] = -1;
	return 0;
}

static int map_all(struct tbg_wire *w)
{
	int err = tbg_maps_open(&w->maps, w->obj);

	if (err || w->own)
		return err ?: tbg_map_mmap(w->own->maps.tbg_tcb_rooms, &w->room);
	err = tbg_map_mmap(w->bpf->maps.tbg_conns, &w->conns);
	w->maps.conns = w->conns.at;
	w->maps.conns_nr = w->plan.conns;
	w->maps.owners_fd = bpf_map__fd(w->bpf->maps.tbg_owners);
	w->maps.take_back_fd = bpf_program__fd(w->bpf->progs.tbg_take_back);
	return err;
}

static int flows_open(struct tbg_wire *w)
{
	if (w->own) {
		w->tcbs.holders_fd = bpf_map__fd(w->own->maps.tbg_holders);
		w->tcbs.crowds_fd = bpf_map__fd(w->own->maps.tbg_crowds);
		w->tcbs.room = w->room.at;
		w->tcbs.conns = w->plan.conns;
		return tbg_tcbs_open(&w->tcbs, bpf_map__fd(w->own->maps.tbg_tcbs),
				     bpf_map__fd(w->own->maps.tbg_dues),
				     bpf_map__fd(w->own->maps.tbg_stuck),
				     bpf_program__fd(w->own->progs.tbg_push));
	}
	w->flows = (struct tbg_flows){
		.flows_fd = bpf_map__fd(w->bpf->maps.tbg_flows),
		.slots_fd = bpf_map__fd(w->bpf->maps.tbg_slots),
		.retired_fd = bpf_map__fd(w->bpf->maps.tbg_retired),
		.socket_fd = bpf_program__fd(w->bpf->progs.tbg_has_socket),
		.bury_fd = bpf_program__fd(w->bpf->progs.tbg_bury),
	};
	return tbg_flows_open(&w->flows, w->plan.conns);
}

static int map_fd(const struct tbg_wire *w, const char *name)
{
	return bpf_object__find_map_fd_by_name(w->obj, name);
}

static int load(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	libbpf_print_fn_t print;
	uint32_t zero = 0;
	int err, answer;

	load_log = w->load_log;
	print = libbpf_set_print(keep_first);
	err = w->late.can ? own_load(w) : translate_load(w);
	libbpf_set_print(print);
	load_log = NULL;
	if (err)
		return fail(w, err, ret_msg, msg_len, "load");

	err = map_all(w);
	if (err)
		return fail(w, err, ret_msg, msg_len, "mmap of BPF maps");
	err = flows_open(w);
	if (err)
		return fail(w, err, ret_msg, msg_len, "connection slots");
	w->flows_open = true;

	answer = bpf_program__fd(bpf_object__find_program_by_name(w->obj, "tbg_answer"));
	err = bpf_map_update_elem(map_fd(w, "tbg_tail"), &zero, &answer, 0);
	/* so that a later daemon can recognize the programs of a dead one */
	if (!err && !w->own)
		err = bpf_prog_bind_map(w->progs[TBG_HOOK_EGRESS], map_fd(w, "tbg_tail"),
					NULL);
	if (!err && !w->own)
		err = bpf_prog_bind_map(bpf_program__fd(w->bpf->progs.tbg_guard),
					map_fd(w, "tbg_tail"), NULL);
	if (err)
		return fail(w, err, ret_msg, msg_len, "program array");
	return 0;
}

/* Before anything is attached to an interface, because without it nothing is answered. */
static int guard_open(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	char why[160];
	int err;

	if (w->own)
		return 0;
	/* accepted sockets are of the cgroup in which their listener was made */
	if (tbg_service_sockets()) {
		snprintf(ret_msg, msg_len, "guard: the service manager made the listening sockets, so the daemon's cgroup does not have their connections; give --listen, without a .socket unit");
		return -EOPNOTSUPP;
	}
	w->bpf->bss->tbg_hook_ids[TBG_HOOK_INGRESS] =
		tbg_prog_id(w->progs[TBG_HOOK_INGRESS]);
	w->bpf->bss->tbg_hook_ids[TBG_HOOK_EGRESS] =
		tbg_prog_id(w->progs[TBG_HOOK_EGRESS]);
	err = tbg_guard_open(&w->guard, bpf_program__fd(w->bpf->progs.tbg_guard),
			     why, sizeof(why));
	if (err)
		snprintf(ret_msg, msg_len, "guard: %s; %s", why, tbg_maps_advice(err));
	w->maps.guard = &w->guard;
	tbg_guard_sweep(&w->guard, tbg_flows_needed, tbg_mono_ns());
	return err;
}

/* Sets what packets of connections without a socket take from routes and sysctls. */
static void routes_set(struct tbg_wire *w)
{
	const struct tbg_route_maps maps = {
		.ways_fd = bpf_map__fd(w->own->maps.tbg_ways),
		.aboves_fd = bpf_map__fd(w->own->maps.tbg_aboves),
		.vrfs_fd = bpf_map__fd(w->own->maps.tbg_vrfs),
	};
	struct tbg_routes *r = &w->routes;
	struct tbg_knob *knob = w->maps.knob;
	int on[TBG_IFACES_MAX];

	for (unsigned int i = 0; i < w->on.nr; i++)
		on[i] = w->on.at[i].ifindex;
	tbg_routes_set(r, &maps, on, w->on.nr);
	w->tcbs.vrfs = !!r->vrfs;
	knob->vrfs = tbg_vrfs_follow(&w->vrfs, r->vrfs);
	tbg_routes_fill(r, knob);
}

static int set_own(struct tbg_wire *w)
{
	struct tbg_knob *knob = w->maps.knob;

	if (!w->own)
		return 0;
	tbg_pairs_open(&w->routes.pairs, bpf_map__fd(w->own->maps.tbg_pairs),
		       bpf_map__fd(w->own->maps.tbg_pair_asks), w->owner);
	routes_set(w);
	tbg_births_look(&w->births, &w->routes);	/* there may be too many VRFs */
	knob->births = w->births.mode;
	knob->tracks = w->births.tracks;
	return draw(knob->cookie, sizeof(knob->cookie)) ?:
	       tbg_track_open(&w->track, &w->tcbs, &w->births,
			      bpf_map__fd(w->own->maps.tbg_untracked));
}

int tbg_wire_open(struct tbg_wire **ret, const char *ifaces, uid_t owner, bool late_sockets,
		  enum tbg_births_wanted births, unsigned int size, const struct tbg_plan *plan,
		  const struct sockaddr_storage *listeners, unsigned int nr,
		  char *ret_msg, size_t msg_len)
{
	struct tbg_wire *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	tbg_unfollowed_open(&w->unfollowed);
	w->plan = *plan;
	w->guard.cgroup_fd = -1;
	w->on.pins.dir_fd = -1;
	w->births = (struct tbg_births)TBG_BIRTHS_CLOSED;
	w->births_wanted = births;
	w->owner = owner;
	w->wanted = strdup(ifaces);
	if (!w->wanted) {
		free(w);
		return -ENOMEM;
	}
	tbg_late_look(&w->late, late_sockets);
	w->listeners_nr = nr < TBG_LISTENER_MAX ? nr : TBG_LISTENER_MAX;
	memcpy(w->listeners, listeners, w->listeners_nr * sizeof(*listeners));
	err = load(w, ret_msg, msg_len);
	if (err)
		goto out;
	err = guard_open(w, ret_msg, msg_len);
	if (err)
		goto out;
	tbg_maps_listen(&w->maps, w->listeners, w->listeners_nr);
	err = set_own(w);
	if (err)
		goto out;
	w->maps.knob->reply_max = size;
	w->maps.knob->answer = 1;
	w->on = (struct tbg_interfaces){
		.progs = { w->progs[TBG_HOOK_INGRESS], w->progs[TBG_HOOK_EGRESS] },
		.obj = w->obj,
		.plan = &w->plan,
		.knob = w->maps.knob,
		.wanted = w->wanted,
		.automatic = !strcmp(ifaces, "auto"),
		.translated = !w->own,
		.listeners = w->listeners,
		.listeners_nr = w->listeners_nr,
		.owner = owner,
	};
	err = tbg_interfaces_open(&w->on, ret_msg, msg_len);
	if (err)
		goto out;
	if (w->own)
		routes_set(w);		/* for the interfaces attached now */
	*ret = w;
	return 0;
out:
	tbg_wire_close(w);
	return err;
}

int tbg_wire_listen(struct tbg_wire *w, int fd, uint32_t nr)
{
	struct stat st;

	if (w->own && !fstat(fd, &st))
		tbg_routes_user(&w->routes, st.st_uid);
	return bpf_map_update_elem(map_fd(w, "tbg_listeners"), &fd, &nr, BPF_ANY);
}

void tbg_wire_given(struct tbg_wire *w)
{
	if (w->own)
		w->maps.knob->vrfs = tbg_vrfs_follow(&w->vrfs, w->routes.vrfs);
}

struct tbg_vrfs *tbg_wire_vrfs(struct tbg_wire *w)
{
	return w && w->own ? &w->vrfs : NULL;
}

const struct tbg_maps *tbg_wire_maps(const struct tbg_wire *w)
{
	return &w->maps;
}

const struct bpf_object *tbg_wire_object(const struct tbg_wire *w)
{
	return w->obj;
}

unsigned int tbg_wire_ifaces(const struct tbg_wire *w,
			     struct tbg_wire_iface ret[TBG_IFACES_MAX])
{
	if (!w)
		return 0;
	for (unsigned int i = 0; i < w->on.nr; i++) {
		ret[i] = w->on.at[i];
		if_indextoname(ret[i].ifindex, ret[i].name);	/* otherwise unchanged */
	}
	return w->on.nr;
}

unsigned int tbg_wire_flows(struct tbg_wire *w)
{
	if (w->own) {
		tbg_tcbs_sweep(&w->tcbs, tbg_mono_ns(), w->draining);
		return w->tcbs.nr;
	}
	tbg_flows_sweep(&w->flows, tbg_mono_ns());
	return w->flows.nr;
}

unsigned int tbg_wire_flows_open(struct tbg_wire *w, uint64_t drain_ns)
{
	if (w->own) {
		w->draining = true;
		tbg_tcbs_sweep(&w->tcbs, tbg_mono_ns(), true);
		return w->tcbs.open_nr;
	}
	w->flows.drain_ns = drain_ns;
	tbg_flows_sweep(&w->flows, tbg_mono_ns());
	return w->flows.open_nr;
}

void tbg_wire_drain(struct tbg_wire *w)
{
	if (!w->own || (w->draining && !w->tcbs.open_nr))
		return;
	w->draining = true;
	tbg_tcbs_sweep(&w->tcbs, tbg_mono_ns(), true);
}

struct tbg_tcbs *tbg_wire_tcbs(struct tbg_wire *w)
{
	return w && w->own ? &w->tcbs : NULL;
}

void tbg_wire_limits(struct tbg_wire *w, unsigned int idle_ms, unsigned int header_ms)
{
	w->flows.silent_ns = (2 * idle_ms + 60000) * 1000000ull;
	w->tcbs.idle_ms = idle_ms;
	w->tcbs.header_ms = header_ms;
}

uint32_t tbg_wire_program(const struct tbg_wire *w)
{
	return tbg_prog_id(w->progs[TBG_HOOK_INGRESS]);
}

int tbg_wire_ask_fd(const struct tbg_wire *w)
{
	return w->own ? w->tcbs.push_fd : bpf_program__fd(w->bpf->progs.tbg_answer);
}

void tbg_wire_own_each(const struct tbg_wire *w,
		       bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
				  void *arg),
		       void *arg)
{
	if (w->own)
		tbg_tcbs_read(&w->tcbs, fn, arg);
}

const struct tbg_routes *tbg_wire_routes(const struct tbg_wire *w)
{
	return w->own ? &w->routes : NULL;
}

void tbg_wire_pair_ask(struct tbg_wire *w, struct tbg_pair_key *key, int ifindex)
{
	key->port = w->maps.knob->listener[0].port;
	bpf_map_lookup_elem(bpf_map__fd(w->own->maps.tbg_vrfs), &ifindex, &key->vrf);
	tbg_pairs_ask(&w->routes.pairs, key, w->routes.readings, tbg_mono_ns());
}

bool tbg_wire_owns(const struct tbg_wire *w)
{
	return w->own;
}

const char *tbg_wire_late_off(const struct tbg_wire *w)
{
	return w->own ? "" : w->late.why;
}

const struct tbg_births *tbg_wire_births(const struct tbg_wire *w)
{
	return w->own ? &w->births : NULL;
}

void tbg_wire_close(struct tbg_wire *w)
{
	if (!w)
		return;
	if (w->own && w->flows_open)
		tbg_tcbs_reset(&w->tcbs);
	tbg_interfaces_close(&w->on);
	tbg_births_close(&w->births);
	tbg_routes_close(&w->routes);
	tbg_vrfs_close(&w->vrfs);
	tbg_track_close(&w->track);
	tbg_guard_close(&w->guard);
	tbg_xdp_close(w->on.xdp);
	if (w->flows_open && w->own)
		tbg_tcbs_close(&w->tcbs);
	else if (w->flows_open)
		tbg_flows_close(&w->flows);
	tbg_map_munmap(&w->conns);
	tbg_map_munmap(&w->room);
	tbg_maps_close(&w->maps);
	tbg_translate_bpf__destroy(w->bpf);
	tbg_wire_bpf__destroy(w->own);
	free(w->wanted);
	free(w);
}

/* A firewall may appear and disappear; existing connections keep their owner. */
static void births_look(struct tbg_wire *w, uint64_t now_ns)
{
	bool asked = w->routes.asks, other;

	w->rules_wait = false;
	w->looked_ns = now_ns;
	tbg_privilege_raise();
	tbg_routes_look(&w->routes);
	routes_set(w);
	other = tbg_births_look(&w->births, &w->routes);
	tbg_privilege_lower();
	if (w->routes.asks && !asked)
		tbg_notice("toboggand: wire: the kernel is asked for the route to each client: %s",
			   w->routes.asks_why);
	__atomic_store_n(&w->maps.knob->tracks, w->births.tracks, __ATOMIC_RELAXED);
	if (!other)
		return;
	__atomic_store_n(&w->maps.knob->births, w->births.mode, __ATOMIC_RELAXED);
	tbg_notice("toboggand: wire: SYNs are answered by %s: %s", tbg_births_text(&w->births),
		   w->births.why);
}

/* Connections whose beginning the firewall has accepted, but whose segments it drops. */
static void stuck_help(struct tbg_wire *w, uint64_t now_ns)
{
	unsigned int nr = tbg_track_stuck(&w->track);

	if (!nr)
		return;
	tbg_births_refused(&w->births, nr, atomic_exchange(&w->handed_well, false));
	births_look(w, now_ns);
}

struct tbg_track *tbg_wire_track(struct tbg_wire *w)
{
	return &w->track;
}

void tbg_wire_tick(struct tbg_wire *w, uint64_t now_ns)
{
	bool due = now_ns - w->swept_ns >= tbg_timer_ns(TBG_TIMER_SWEEP);

	tbg_guard_tick(&w->guard);
	if (w->own && (due || tbg_tcbs_crowded(&w->tcbs)))
		tbg_tcbs_sweep(&w->tcbs, now_ns, w->draining);
	if (!due)
		return;
	w->swept_ns = now_ns;
	if (!w->own)
		tbg_flows_sweep(&w->flows, now_ns);
	w->on.unguarded = !tbg_guard_keep(&w->guard);
	tbg_interfaces_follow(&w->on, now_ns);
	if (w->own)
		births_look(w, now_ns);		/* sysctls are not reported */
	if (w->routes.asks || w->routes.vrfs)
		tbg_pairs_keep(&w->routes.pairs, &w->tcbs, w->routes.asks, w->routes.readings,
			       now_ns);
	tbg_unfollowed_tick(&w->unfollowed, &w->maps);
}

void tbg_wire_beat(struct tbg_wire *w, uint64_t now_ns)
{
	if (!w->own)
		return;
	if (tbg_births_moved(&w->births))
		births_look(w, now_ns);
	if (w->births.filters)
		stuck_help(w, now_ns);
	if (w->routes.asks || w->routes.vrfs || w->routes.pairs.nr)
		tbg_pairs_answer(&w->routes.pairs, w->routes.readings, now_ns);
}

void tbg_wire_news_fds(const struct tbg_wire *w, int ret[TBG_WIRE_NEWS_NR])
{
	ret[0] = w->on.news ? tbg_link_news_fd(w->on.news) : -1;
	ret[1] = w->own ? tbg_routes_fd(&w->routes) : -1;
	ret[2] = w->own ? tbg_births_fd(&w->births) : -1;
	ret[3] = w->on.ipsec_news ? mnl_socket_get_fd(w->on.ipsec_news) : -1;
}

void tbg_wire_news(struct tbg_wire *w, uint64_t now_ns)
{
	bool look = tbg_interfaces_news(&w->on, now_ns);	/* for example of VRFs */

	if (!w->own)
		return;
	/* all are drained: else a descriptor would stay readable */
	tbg_routes_news(&w->routes);
	w->rules_wait |= tbg_births_news(&w->births);
	if (look || tbg_routes_due(&w->routes, now_ns) ||
	    (w->rules_wait && now_ns - w->looked_ns >= LOOK_GAP_NS))
		births_look(w, now_ns);
	if (w->rules_wait)
		__atomic_store_n(&w->maps.knob->tracks, tbg_births_guess(&w->births),
				 __ATOMIC_RELAXED);
}

bool tbg_wire_waits(const struct tbg_wire *w)
{
	return w->on.news_wait || (w->own && (w->rules_wait || tbg_routes_changed(&w->routes)));
}

void tbg_wire_unfollowed(struct tbg_wire *w, char ret[TBG_UNFOLLOWED_LEN])
{
	ret[0] = 0;
	/* followed connections may last; if none begin, returns the reason of births */
	if (w->own ? w->tcbs.nr || w->births.mode == TBG_BIRTHS_NONE : w->flows.nr)
		return;
	tbg_privilege_raise();
	tbg_unfollowed_why(&w->unfollowed, &w->on, &w->maps, ret);
	tbg_privilege_lower();
}

const char *tbg_wire_held(const struct tbg_wire *w)
{
	return w->on.held;
}

void tbg_wire_again(struct tbg_wire *w, uint64_t now_ns)
{
	if (w->own)
		tbg_tcbs_again(&w->tcbs, now_ns);
}

int tbg_conn_take(struct tbg_wire *w, int fd, struct tbg_taken *ret)
{
	int err = w->own ? tbg_tcb_take(&w->tcbs, fd, ret) : -ENOENT;

	if (w->own)
		tbg_unfollowed_note(&w->unfollowed, fd, !err);
	if (!err && (__atomic_load_n(&w->maps.knob->tracks, __ATOMIC_RELAXED) & TBG_TRACKS_FIRST ||
		     (!ret->tcb.fails && !(ret->tcb.tried & TBG_HAND_KNOWN))))
		atomic_store_explicit(&w->handed_well, true, memory_order_relaxed);
	return err;
}

bool tbg_conn_give(struct tbg_wire *w, struct tbg_taken *k, int fd, uint32_t taken,
		   const uint8_t *b, uint32_t len, unsigned int answers)
{
	/* if none begin, none are given back */
	return __atomic_load_n(&w->maps.knob->births, __ATOMIC_RELAXED) != TBG_BIRTHS_NONE &&
	       tbg_tcb_give(&w->tcbs, k, fd, taken, b, len, answers);
}

int tbg_conn_claim(struct tbg_wire *w, int fd)
{
	struct tbg_flow flow;
	int err;

	if (w->own)
		return -1;
	err = tbg_flow_lookup(&w->flows, fd, &flow);
	tbg_unfollowed_note(&w->unfollowed, fd, !err);
	if (err)
		return -1;
	w->flows.held[flow.slot] = 1;
	return flow.slot;
}

void tbg_conn_release(struct tbg_wire *w, int slot)
{
	if (slot >= 0)
		w->flows.held[slot] = 0;
}

bool tbg_slot_waits(struct tbg_wire *w, uint32_t slot)
{
	struct tbg_flow_key key;

	return bpf_map_lookup_elem(w->maps.owners_fd, &slot, &key) ||
	       tbg_flow_waits(&w->flows, &key, slot);
}

uint64_t tbg_conn_hit_ns(struct tbg_wire *w, int fd, uint64_t now_ns)
{
	return w->own ? 0 : tbg_flow_hit_ns(&w->flows, fd, now_ns);
}
