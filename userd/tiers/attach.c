// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches to TC hooks, and finds programs of dead daemons there. A daemon is dead if
 * its program array tbg_tail is empty: the kernel clears it when the last descriptor is
 * closed. Called by interfaces.c and main.c; knows nothing about flows.
 */
#include "tiers/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "tiers/links.h"
#include "tiers/pins.h"

/* uapi/linux/bpf.h of 6.6; Debian 12's headers are older */
#define TBG_TCX_INGRESS 46
#define TBG_TCX_EGRESS	47
#define TBG_BEFORE	8	/* BPF_F_BEFORE */

/*
 * clsact: our filters have this priority, before all usual ones, whose verdicts may be
 * final, and a small range of handles. The second priority marks that a daemon has
 * created the qdisc, so that after a crash it is known whether to remove it.
 */
#define TBG_TC_PRIORITY	     1
#define TBG_TC_PRIORITY_OWN  2
#define TBG_TC_HANDLES	     64

#define TBG_PROGS_MAX 64	/* programs on one tcx hook that are examined */

static const char *const prog_names[TBG_HOOK_NR] = {
	[TBG_HOOK_INGRESS] = "tbg_ingress",
	[TBG_HOOK_EGRESS] = "tbg_egress",
};

static const char *const hook_names[TBG_HOOK_NR] = {
	[TBG_HOOK_INGRESS] = "ingress",
	[TBG_HOOK_EGRESS] = "egress",
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
 * Whether a program is one of ours, with a dead daemon. The programs of both
 * directions have the array among their maps (wire.c binds it to the one that
 * does not use it).
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

uint32_t tbg_prog_id(int prog_fd)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(prog_fd, &info, &len) ? 0 : info.id;
}

/* The interface that a link is attached to, in any namespace, and its program; 0: detached. */
static int link_at(int link_fd, uint32_t *ret_prog_id)
{
	struct bpf_link_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(link_fd, &info, &len))
		return -errno;
	*ret_prog_id = info.prog_id;
	return info.xdp.ifindex;	/* the tcx member of newer headers has the same layout */
}

/* Detaches the link, in whatever namespace the interface is now. */
static void link_remove(struct tbg_attachment *a, enum tbg_hook hook)
{
	bpf_link_detach(a->link_fd[hook]);
	if (a->pin_fd >= 0)
		tbg_pin_remove(a->pin_fd, a->pin[hook]);
	close(a->link_fd[hook]);
	a->link_fd[hook] = -1;
}

/*
 * Attaches by a link, which other tools do not remove by mistake; but it ends with the
 * daemon unless it is pinned. -ENOLINK: it must outlive the daemon, and pinning is
 * impossible.
 */
static int attach_link(struct tbg_attachment *a, enum tbg_hook hook)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = TBG_BEFORE);
	int err = 0;

	if (a->pin_fd < 0 && a->outlives)
		return -ENOLINK;
	a->link_fd[hook] = bpf_link_create(a->prog_fd[hook], a->ifindex, tcx_types[hook], &opts);
	if (a->link_fd[hook] < 0)
		return a->link_fd[hook];
	if (a->pin_fd >= 0)
		err = tbg_pin_add(a->pin_fd, a->pin[hook], a->link_fd[hook]);
	if (!err)
		return 0;
	link_remove(a, hook);
	return -ENOLINK;
}

/*
 * Attaches before all others. The program may be attached already, if the interface
 * was in another namespace for a time.
 */
static int attach_tcx(struct tbg_attachment *a, enum tbg_hook hook)
{
	int err;

	if (a->prog_fd[hook] < 0)
		return 0;
	if (a->link_fd[hook] >= 0)
		link_remove(a, hook);
	err = attach_link(a, hook);
	if (err != -ENOLINK)
		return err;
	err = bpf_prog_attach(a->prog_fd[hook], a->ifindex, tcx_types[hook], TBG_BEFORE);
	err = err == -EEXIST ? 0 : err;
	a->stays |= !err;
	return err;
}

/* Attaches with a's priority, at the first free handle. */
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

static void detach_one(struct tbg_attachment *a, enum tbg_hook hook)
{
	if (a->prog_fd[hook] < 0)
		return;
	if (a->link_fd[hook] >= 0) {
		link_remove(a, hook);
		return;
	}
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

/* Whether a daemon has created the qdisc, marked by a filter: the last daemon removes it. */
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

/* Removes the qdisc if it has no filters. */
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

static int attach_both(struct tbg_attachment *a)
{
	int err = try_tcx(a);

	if (err != -EINVAL)
		return err;
	a->tcx = false;			/* this kernel has none */
	return try_clsact(a);
}

/* An attachment without programs and links. */
static struct tbg_attachment attachment(int ifindex)
{
	return (struct tbg_attachment){
		.ifindex = ifindex, .prog_fd = { -1, -1 }, .link_fd = { -1, -1 }, .pin_fd = -1,
	};
}

int tbg_attach(struct tbg_attachment *ret, int ifindex, const int prog_fd[TBG_HOOK_NR],
	       const struct tbg_pins *pins, bool outlives)
{
	struct tbg_attachment a = attachment(ifindex);
	libbpf_print_fn_t print;
	int err;

	a.outlives = outlives;
	a.pin_fd = pins->dir_fd;
	memcpy(a.prog_fd, prog_fd, sizeof(a.prog_fd));
	for (int hook = 0; hook < TBG_HOOK_NR && a.pin_fd >= 0; hook++)
		tbg_pin_name(pins, ifindex, hook_names[hook], tbg_prog_id(prog_fd[hook]),
			     a.pin[hook]);
	print = libbpf_set_print(NULL);
	err = attach_both(&a);
	libbpf_set_print(print);
	if (!err)
		*ret = a;
	return err;
}

static int has_link(const struct tbg_attachment *a, enum tbg_hook hook)
{
	uint32_t id;
	int at = link_at(a->link_fd[hook], &id);

	return at < 0 ? -1 : at == a->ifindex;
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

/* Whether there is anything on the hook; *ret: id of the first program, 0: no BPF program. */
static bool first_on(const struct tbg_attachment *a, enum tbg_hook hook, uint32_t *ret_id)
{
	uint32_t ids[TBG_PROGS_MAX], nr = TBG_PROGS_MAX, flags;

	if (!a->tcx)
		return tbg_links_first(a->ifindex, hook == TBG_HOOK_EGRESS, ret_id);
	if (bpf_prog_query(a->ifindex, tcx_types[hook], 0, &flags, ids, &nr) || !nr)
		return false;
	*ret_id = ids[0];
	return true;
}

const char *tbg_attach_behind(const struct tbg_attachment *a)
{
	for (int hook = 0; hook < TBG_HOOK_NR; hook++) {
		uint32_t id;
		bool ours;
		int fd;

		if (a->prog_fd[hook] < 0 || !first_on(a, hook, &id))
			continue;
		ours = id == tbg_prog_id(a->prog_fd[hook]);
		/*
		 * another daemon's program lets all packets continue to ours; without
		 * root, unknown
		 */
		fd = ours || !id ? -1 : bpf_prog_get_fd_by_id(id);
		if (fd >= 0) {
			ours = prog_named(fd, prog_names[hook]);
			close(fd);
		}
		if (!ours)
			return hook_names[hook];
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

/* Whether a hook still has our program: 1 or 0; -1: unknown. */
static int has_prog(const struct tbg_attachment *a, enum tbg_hook hook)
{
	if (a->prog_fd[hook] < 0)
		return 1;
	if (a->link_fd[hook] >= 0)
		return has_link(a, hook);
	return a->tcx ? has_tcx(a, hook) : has_clsact(a, hook);
}

/* Attaches to one hook while the other is attached: the mark of our qdisc is kept. */
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
	/* attach both again: one that is left would translate twice */
	for (int hook = 0; lost && err && hook < TBG_HOOK_NR; hook++)
		if (has[hook] || a->link_fd[hook] >= 0)
			detach_one(a, hook);
	if (lost && err)
		err = attach_both(a);
	libbpf_set_print(print);
	return lost ? err ?: 1 : 0;
}

void tbg_detach(struct tbg_attachment *a)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);

	/* stop answers first, then the translation of sent segments */
	detach_one(a, TBG_HOOK_INGRESS);
	detach_one(a, TBG_HOOK_EGRESS);
	remove_own_qdisc(a);
	libbpf_set_print(print);
}

void tbg_attach_forget(struct tbg_attachment *a)
{
	for (int hook = 0; hook < TBG_HOOK_NR; hook++)
		if (a->link_fd[hook] >= 0)
			link_remove(a, hook);
}

/* A program of a dead daemon. */
struct tbg_left {
	LIST_ENTRY(tbg_left) link;
	struct tbg_attachment at;	/* on one hook */
	enum tbg_hook hook;
	int flows_fd;			/* map of its flows; -1: none */
	uint32_t flows_id;		/* 0: there is none */
	bool needed;
};

static uint32_t map_id(int map_fd)
{
	struct bpf_map_info info = {};
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(map_fd, &info, &len) ? 0 : info.id;
}

/* Whether the list contains it, compared by link. */
static bool left_has(const struct tbg_left_list *list, int ifindex, enum tbg_hook hook, uint32_t id)
{
	const struct tbg_left *l;

	LIST_FOREACH(l, list, link)
		if (l->hook == hook && l->at.ifindex == ifindex &&
		    tbg_prog_id(l->at.prog_fd[hook]) == id)
			return true;
	return false;
}

/* Closes its descriptors. */
static void left_free(struct tbg_left *l)
{
	if (l->at.link_fd[l->hook] >= 0)
		close(l->at.link_fd[l->hook]);
	if (l->at.pin_fd >= 0)
		close(l->at.pin_fd);
	if (l->at.prog_fd[l->hook] >= 0)
		close(l->at.prog_fd[l->hook]);
	if (l->flows_fd >= 0)
		close(l->flows_fd);
	free(l);
}

/*
 * Adds the program with this id, attached as `there` describes, if its daemon is dead; NULL:
 * it is not.
 */
static struct tbg_left *left_add(struct tbg_left_list *list, const struct tbg_attachment *there,
				 enum tbg_hook hook, uint32_t id)
{
	int fd = bpf_prog_get_fd_by_id(id);
	struct tbg_left *l = NULL;
	int flows = -1;

	if (fd < 0)
		return NULL;
	if (tbg_prog_is_left(fd, prog_names[hook], &flows))
		l = calloc(1, sizeof(*l));
	if (!l) {
		if (flows >= 0)
			close(flows);
		close(fd);
		return NULL;
	}
	l->at = *there;
	l->at.prog_fd[hook] = fd;
	l->hook = hook;
	l->flows_fd = flows;
	l->flows_id = map_id(l->flows_fd);
	LIST_INSERT_HEAD(list, l, link);
	return l;
}

/* The link by which a program is attached to a hook, pinned in any bpffs; -1: none. */
static int link_find(int ifindex, uint32_t prog_id)
{
	uint32_t id = 0, of = 0;

	while (!bpf_link_get_next_id(id, &id)) {
		int fd = bpf_link_get_fd_by_id(id);

		if (fd >= 0 && link_at(fd, &of) == ifindex && of == prog_id)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

static void left_on_tcx(struct tbg_left_list *list, int ifindex, enum tbg_hook hook)
{
	uint32_t ids[TBG_PROGS_MAX], nr = TBG_PROGS_MAX, flags;
	struct tbg_attachment a = attachment(ifindex);

	a.tcx = true;
	if (bpf_prog_query(ifindex, tcx_types[hook], 0, &flags, ids, &nr))
		return;
	for (uint32_t i = 0; i < nr; i++) {
		struct tbg_left *l = left_has(list, ifindex, hook, ids[i]) ? NULL :
				     left_add(list, &a, hook, ids[i]);

		if (l)
			l->at.link_fd[hook] = link_find(ifindex, ids[i]);
	}
}

struct pin_search {
	struct tbg_left_list *list;
	enum tbg_hook hook;
};

/* Whether the program belongs to a dead daemon, on any hook. */
static bool is_left(uint32_t prog_id)
{
	int fd = bpf_prog_get_fd_by_id(prog_id), flows = -1;
	bool ret = false;

	for (int hook = 0; hook < TBG_HOOK_NR && fd >= 0 && !ret; hook++)
		ret = tbg_prog_is_left(fd, prog_names[hook], &flows);
	if (flows >= 0)
		close(flows);
	if (fd >= 0)
		close(fd);
	return ret;
}

/* Adds pinned links made in our namespace, wherever the interface is now. */
static void left_on_pin(int dir_fd, const char *name, int link_fd, bool here, void *arg)
{
	struct pin_search *s = arg;
	uint32_t id = 0;
	int ifindex = link_at(link_fd, &id);
	struct tbg_attachment a = attachment(ifindex);
	struct tbg_left *l;

	if (ifindex < 0 || strlen(name) >= sizeof(a.pin[0]))
		return;
	if (!ifindex && is_left(id))
		tbg_pin_remove(dir_fd, name);
	if (!ifindex || !here)
		return;
	a.tcx = true;
	l = left_add(s->list, &a, s->hook, id);
	if (!l)
		return;
	l->at.link_fd[s->hook] = fcntl(link_fd, F_DUPFD_CLOEXEC, 0);
	l->at.pin_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	strcpy(l->at.pin[s->hook], name);
}

static void left_on_clsact(struct tbg_left_list *list, int ifindex, enum tbg_hook hook)
{
	LIBBPF_OPTS(bpf_tc_hook, h, .ifindex = ifindex,
		    .attach_point = tc_points[hook]);
	struct tbg_attachment a = attachment(ifindex);
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

void tbg_left_find(struct tbg_left_list *ret)
{
	/* bpf_tc_query() prints a warning for each handle that is not there */
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct if_nameindex *names = if_nameindex();

	LIST_INIT(ret);
	/* ingress programs, found last, are detached first, as in tbg_detach() */
	for (int hook = TBG_HOOK_NR - 1; hook >= 0; hook--) {
		struct pin_search pins = { .list = ret, .hook = hook };

		tbg_pins_each(left_on_pin, &pins);
		for (struct if_nameindex *i = names; i && i->if_index; i++) {
			left_on_tcx(ret, i->if_index, hook);
			left_on_clsact(ret, i->if_index, hook);
		}
	}
	if (names)
		if_freenameindex(names);
	libbpf_set_print(print);
}

/* Flows are read once for all programs of a daemon, which stay or are removed together. */
static void left_ask(const struct tbg_left_list *list,
		     bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns)
{
	struct tbg_left *l, *same;

	LIST_FOREACH(l, list, link) {
		LIST_FOREACH(same, list, link)
			if (same == l || same->flows_id == l->flows_id)
				break;
		l->needed = same != l ? same->needed :
					l->flows_id && needed(l->flows_fd, now_ns);
	}
}

void tbg_left_sweep(struct tbg_left_list *list,
		    bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct tbg_left *l, *next;
	char name[IF_NAMESIZE];
	int has;

	left_ask(list, needed, now_ns);
	for (l = LIST_FIRST(list); l; l = next) {
		next = LIST_NEXT(l, link);
		if (l->needed)
			continue;
		/*
		 * another daemon may have removed it, and its place be taken by another
		 * program
		 */
		has = l->at.link_fd[l->hook] >= 0 ? 1 : has_prog(&l->at, l->hook);
		if (has < 0 && if_indextoname(l->at.ifindex, name))
			continue;		/* unknown at the moment */
		if (has > 0) {
			detach_one(&l->at, l->hook);
			remove_own_qdisc(&l->at);
		}
		LIST_REMOVE(l, link);
		left_free(l);
	}
	libbpf_set_print(print);
}
