// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching to TC hooks, and finding what a dead daemon left on them. A daemon
 * is dead when its tbg_tail program array is empty: the kernel clears it with
 * the last user's descriptor. Called by wire.c and main.c; knows nothing of flows.
 */
#include "tiers/attach.h"

#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "tiers/links.h"

/* uapi/linux/bpf.h of 6.6; Debian 12's headers are older */
#define TBG_TCX_INGRESS 46
#define TBG_TCX_EGRESS	47
#define TBG_BEFORE	8	/* BPF_F_BEFORE */

/*
 * clsact: our filters are found by priority and a small range of handles, before all of
 * usual priorities, whose verdicts may be final. The second priority says that the qdisc
 * is ours too, so that whoever comes after a crash knows whether to remove it.
 */
#define TBG_TC_PRIORITY	     1
#define TBG_TC_PRIORITY_OWN  2
#define TBG_TC_HANDLES	     64

#define TBG_PROGS_MAX 64	/* programs on one tcx hook that we look at */

static const char *const prog_names[TBG_HOOK_NR] = {
	[TBG_HOOK_INGRESS] = "tbg_ingress",
	[TBG_HOOK_EGRESS] = "tbg_egress",
};

static const enum bpf_attach_type tcx_types[TBG_HOOK_NR] = {
	[TBG_HOOK_INGRESS] = (enum bpf_attach_type)TBG_TCX_INGRESS,
	[TBG_HOOK_EGRESS] = (enum bpf_attach_type)TBG_TCX_EGRESS,
};

static const enum bpf_tc_attach_point tc_points[TBG_HOOK_NR] = {
	[TBG_HOOK_INGRESS] = BPF_TC_INGRESS,
	[TBG_HOOK_EGRESS] = BPF_TC_EGRESS,
};

/* The map of a program with this name; -1. */
static int prog_map(int prog_fd, const char *name)
{
	struct bpf_prog_info info = {};
	uint32_t ids[64], len = sizeof(info);

	info.nr_map_ids = 64;
	info.map_ids = (uintptr_t)ids;
	if (bpf_obj_get_info_by_fd(prog_fd, &info, &len))
		return -1;
	for (uint32_t i = 0; i < info.nr_map_ids && i < 64; i++) {
		struct bpf_map_info map = {};
		int fd = bpf_map_get_fd_by_id(ids[i]);

		if (fd < 0)
			continue;
		len = sizeof(map);
		if (!bpf_obj_get_info_by_fd(fd, &map, &len) &&
		    !strcmp(map.name, name))
			return fd;
		close(fd);
	}
	return -1;
}

static bool prog_named(int prog_fd, const char *name)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	return !bpf_obj_get_info_by_fd(prog_fd, &info, &len) &&
	       !strcmp(info.name, name);
}

/*
 * Whether a program is ours and its daemon gone. Both directions have the tail
 * array among their maps (wire.c binds it to the one that does not use it).
 */
static bool daemon_is_dead(int prog_fd)
{
	uint32_t zero = 0, id;
	int fd = prog_map(prog_fd, "tbg_tail");
	bool dead;

	if (fd < 0)
		return false;
	dead = bpf_map_lookup_elem(fd, &zero, &id) != 0;
	close(fd);
	return dead;
}

bool tbg_prog_is_left(int prog_fd, const char *name, int *ret_flows_fd)
{
	if (!prog_named(prog_fd, name) || !daemon_is_dead(prog_fd))
		return false;
	*ret_flows_fd = prog_map(prog_fd, "tbg_flows");
	return true;
}

/*
 * Before all that is there. One that is there already has stayed, while the interface
 * was in another namespace.
 */
static int attach_tcx(const struct tbg_attachment *a, enum tbg_hook hook)
{
	int err;

	if (a->prog_fd[hook] < 0)
		return 0;
	err = bpf_prog_attach(a->prog_fd[hook], a->ifindex, tcx_types[hook], TBG_BEFORE);
	return err == -EEXIST ? 0 : err;
}

/* With a's priority, at the first handle that is free. */
static int attach_clsact(struct tbg_attachment *a, enum tbg_hook hook)
{
	LIBBPF_OPTS(bpf_tc_hook, h, .ifindex = a->ifindex,
		    .attach_point = tc_points[hook]);
	int err = a->prog_fd[hook] < 0 ? 0 : -EEXIST;

	for (unsigned int i = 1; i <= TBG_TC_HANDLES && err == -EEXIST; i++) {
		LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = a->prog_fd[hook],
			    .handle = i, .priority = a->priority);

		a->handle[hook] = i;
		err = bpf_tc_attach(&h, &opts);
	}
	return err;
}

static void detach_one(const struct tbg_attachment *a, enum tbg_hook hook)
{
	if (a->prog_fd[hook] < 0)
		return;
	if (a->tcx) {
		bpf_prog_detach2(a->prog_fd[hook], a->ifindex, tcx_types[hook]);
		return;
	}
	LIBBPF_OPTS(bpf_tc_hook, h, .ifindex = a->ifindex,
		    .attach_point = tc_points[hook]);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = a->handle[hook],
		    .priority = a->priority);

	bpf_tc_detach(&h, &opts);
}

/* Whether a daemon has made the qdisc, by a filter of its: who is last removes it. */
static bool is_own_qdisc(int ifindex)
{
	for (int i = 0; i < TBG_HOOK_NR * TBG_TC_HANDLES; i++) {
		LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex,
			    .attach_point = tc_points[i % TBG_HOOK_NR]);
		LIBBPF_OPTS(bpf_tc_opts, opts, .handle = i / TBG_HOOK_NR + 1,
			    .priority = TBG_TC_PRIORITY_OWN);

		if (!bpf_tc_query(&hook, &opts))
			return true;
	}
	return false;
}

/* Once nobody has a filter there. */
static void remove_own_qdisc(const struct tbg_attachment *a)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = a->ifindex,
		    .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);

	if (!a->tcx && a->priority == TBG_TC_PRIORITY_OWN &&
	    tbg_links_filters(a->ifindex) == 0)
		bpf_tc_hook_destroy(&hook);
}

static int try_tcx(struct tbg_attachment *a)
{
	int err = attach_tcx(a, TBG_HOOK_EGRESS);

	if (err)
		return err;
	a->tcx = true;
	err = attach_tcx(a, TBG_HOOK_INGRESS);
	if (err)
		detach_one(a, TBG_HOOK_EGRESS);
	return err;
}

static int try_clsact(struct tbg_attachment *a)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = a->ifindex,
		    .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);
	int err = bpf_tc_hook_create(&hook);

	if (err && err != -EEXIST)
		return err;
	if (err && !tbg_links_clsact(a->ifindex))
		return -EBUSY;
	a->priority = err && !is_own_qdisc(a->ifindex) ? TBG_TC_PRIORITY :
							 TBG_TC_PRIORITY_OWN;
	err = attach_clsact(a, TBG_HOOK_EGRESS);
	if (err)
		goto qdisc;
	err = attach_clsact(a, TBG_HOOK_INGRESS);
	if (err)
		goto egress;
	return 0;
egress:
	detach_one(a, TBG_HOOK_EGRESS);
qdisc:
	remove_own_qdisc(a);
	return err;
}

int tbg_attach(struct tbg_attachment *ret, int ifindex,
	       const int prog_fd[TBG_HOOK_NR])
{
	struct tbg_attachment a = { .ifindex = ifindex };
	libbpf_print_fn_t print;
	int err;

	memcpy(a.prog_fd, prog_fd, sizeof(a.prog_fd));
	print = libbpf_set_print(NULL);
	err = try_tcx(&a);
	if (err == -EINVAL) {		/* this kernel has none */
		a.tcx = false;
		err = try_clsact(&a);
	}
	libbpf_set_print(print);
	if (!err)
		*ret = a;
	return err;
}

uint32_t tbg_prog_id(int prog_fd)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(prog_fd, &info, &len) ? 0 : info.id;
}

static int has_tcx(const struct tbg_attachment *a, enum tbg_hook hook)
{
	uint32_t ids[TBG_PROGS_MAX], nr = TBG_PROGS_MAX, flags;
	uint32_t id = tbg_prog_id(a->prog_fd[hook]);

	if (!id || bpf_prog_query(a->ifindex, tcx_types[hook], 0, &flags, ids, &nr))
		return -1;
	for (uint32_t i = 0; i < nr; i++)
		if (ids[i] == id)
			return 1;
	return 0;
}

const char *tbg_attach_behind(const struct tbg_attachment *a)
{
	static const char *const names[TBG_HOOK_NR] = { "ingress", "egress" };

	for (int hook = 0; a->tcx && hook < TBG_HOOK_NR; hook++) {
		uint32_t ids[TBG_PROGS_MAX], nr = TBG_PROGS_MAX, flags;
		bool ours;
		int fd;

		if (a->prog_fd[hook] < 0 ||
		    bpf_prog_query(a->ifindex, tcx_types[hook], 0, &flags, ids, &nr) || !nr)
			continue;
		ours = ids[0] == tbg_prog_id(a->prog_fd[hook]);
		/* another daemon's lets all go on to ours; who is not root cannot tell */
		fd = ours ? -1 : bpf_prog_get_fd_by_id(ids[0]);
		if (fd >= 0) {
			ours = prog_named(fd, prog_names[hook]);
			close(fd);
		}
		if (!ours)
			return names[hook];
	}
	return NULL;
}

static int has_clsact(const struct tbg_attachment *a, enum tbg_hook hook)
{
	LIBBPF_OPTS(bpf_tc_hook, h, .ifindex = a->ifindex,
		    .attach_point = tc_points[hook]);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = a->handle[hook],
		    .priority = a->priority);
	uint32_t id = tbg_prog_id(a->prog_fd[hook]);
	int err = bpf_tc_query(&h, &opts);

	if (!id || (err && err != -ENOENT && err != -EINVAL))
		return -1;
	return !err && opts.prog_id == id;
}

/* Whether a hook still has our program: 1 or 0; -1: cannot tell. */
static int has_prog(const struct tbg_attachment *a, enum tbg_hook hook)
{
	if (a->prog_fd[hook] < 0)
		return 1;
	return a->tcx ? has_tcx(a, hook) : has_clsact(a, hook);
}

/* One hook beside the other, that is there: a qdisc of ours stays ours. */
static int attach_one(struct tbg_attachment *a, enum tbg_hook hook)
{
	return a->tcx ? attach_tcx(a, hook) : attach_clsact(a, hook);
}

int tbg_attach_again(struct tbg_attachment *a)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int has[TBG_HOOK_NR], err = -ENOENT;
	bool lost = false;

	for (int hook = 0; hook < TBG_HOOK_NR; hook++) {
		has[hook] = has_prog(a, hook);
		lost |= !has[hook];
	}
	if (has[TBG_HOOK_INGRESS] + has[TBG_HOOK_EGRESS] == 1)
		err = attach_one(a, has[TBG_HOOK_INGRESS] ? TBG_HOOK_EGRESS :
							    TBG_HOOK_INGRESS);
	/* both anew: one that is left would translate twice */
	for (int hook = 0; lost && err && hook < TBG_HOOK_NR; hook++)
		if (has[hook])
			detach_one(a, hook);
	libbpf_set_print(print);
	if (lost && err)
		err = tbg_attach(a, a->ifindex, a->prog_fd);
	return lost ? err ?: 1 : 0;
}

void tbg_detach(const struct tbg_attachment *a)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);

	/* answers stop first, then the translation of what is sent */
	detach_one(a, TBG_HOOK_INGRESS);
	detach_one(a, TBG_HOOK_EGRESS);
	remove_own_qdisc(a);
	libbpf_set_print(print);
}

/* A program of a dead daemon. */
struct tbg_left {
	struct tbg_left *next;
	struct tbg_attachment at;	/* on one hook */
	enum tbg_hook hook;
	int flows_fd;			/* of its connections; -1: there is none */
	uint32_t flows_id;		/* 0: there is none */
	bool needed;
};

static uint32_t map_id(int map_fd)
{
	struct bpf_map_info info = {};
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(map_fd, &info, &len) ? 0 : info.id;
}

/* Adds the program with this id, that is at there, if its daemon is dead. */
static void left_add(struct tbg_left **list, const struct tbg_attachment *there,
		     enum tbg_hook hook, uint32_t id)
{
	int fd = bpf_prog_get_fd_by_id(id);
	struct tbg_left *l = NULL;
	int flows = -1;

	if (fd < 0)
		return;
	if (tbg_prog_is_left(fd, prog_names[hook], &flows))
		l = calloc(1, sizeof(*l));
	if (!l) {
		if (flows >= 0)
			close(flows);
		close(fd);
		return;
	}
	l->next = *list;
	l->at = *there;
	l->at.prog_fd[hook] = fd;
	l->hook = hook;
	l->flows_fd = flows;
	l->flows_id = map_id(l->flows_fd);
	*list = l;
}

static void left_on_tcx(struct tbg_left **list, int ifindex, enum tbg_hook hook)
{
	struct tbg_attachment a = { .ifindex = ifindex, .tcx = true };
	uint32_t ids[TBG_PROGS_MAX], nr = TBG_PROGS_MAX, flags;

	if (bpf_prog_query(ifindex, tcx_types[hook], 0, &flags, ids, &nr))
		return;
	for (uint32_t i = 0; i < nr; i++)
		left_add(list, &a, hook, ids[i]);
}

static void left_on_clsact(struct tbg_left **list, int ifindex, enum tbg_hook hook)
{
	LIBBPF_OPTS(bpf_tc_hook, h, .ifindex = ifindex,
		    .attach_point = tc_points[hook]);
	struct tbg_attachment a = { .ifindex = ifindex };
	bool has_qdisc = tbg_links_clsact(ifindex);

	for (int i = 0; i < 2 * TBG_TC_HANDLES && has_qdisc; i++) {
		a.handle[hook] = i / 2 + 1;
		a.priority = TBG_TC_PRIORITY + i % 2;
		LIBBPF_OPTS(bpf_tc_opts, opts, .handle = a.handle[hook],
			    .priority = a.priority);
		if (!bpf_tc_query(&h, &opts))
			left_add(list, &a, hook, opts.prog_id);
	}
}

struct tbg_left *tbg_left_find(void)
{
	/* bpf_tc_query() prints a warning for each handle that is not there */
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct if_nameindex *names = if_nameindex();
	struct tbg_left *ret = NULL;

	/* those of ingress, which are found last, go first, as in tbg_detach() */
	for (int hook = TBG_HOOK_NR - 1; hook >= 0; hook--)
		for (struct if_nameindex *i = names; i && i->if_index; i++) {
			left_on_tcx(&ret, i->if_index, hook);
			left_on_clsact(&ret, i->if_index, hook);
		}
	if (names)
		if_freenameindex(names);
	libbpf_set_print(print);
	return ret;
}

/* Flows are read once for all programs of their daemon: these stay or go together. */
static void left_ask(struct tbg_left *list,
		     bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns)
{
	for (struct tbg_left *l = list; l; l = l->next) {
		struct tbg_left *same = list;

		while (same != l && same->flows_id != l->flows_id)
			same = same->next;
		l->needed = same != l ? same->needed :
					l->flows_id && needed(l->flows_fd, now_ns);
	}
}

struct tbg_left *tbg_left_sweep(struct tbg_left *list,
				bool (*needed)(int flows_fd, uint64_t now_ns),
				uint64_t now_ns)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct tbg_left **at = &list, *l;
	char name[IF_NAMESIZE];
	int has;

	left_ask(list, needed, now_ns);
	while ((l = *at)) {
		if (l->needed) {
			at = &l->next;
			continue;
		}
		/* another daemon may have swept, and its place be another's */
		has = has_prog(&l->at, l->hook);
		if (has < 0 && if_indextoname(l->at.ifindex, name)) {
			at = &l->next;		/* cannot be told now */
			continue;
		}
		if (has > 0) {
			detach_one(&l->at, l->hook);
			remove_own_qdisc(&l->at);
		}
		*at = l->next;
		close(l->at.prog_fd[l->hook]);
		if (l->flows_fd >= 0)
			close(l->flows_fd);
		free(l);
	}
	libbpf_set_print(print);
	return list;
}
