// SPDX-License-Identifier: GPL-2.0
/*
 * Loading, attaching, watching over and removing the wire tier. Every way to
 * fail ends in one sentence for the operator; nothing half-attached is left.
 */
#include "tiers/wire.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "tiers/attach.h"
#include "bpf/translate.skel.h"
#include "bpf/wire.skel.h"
#include "os/clock.h"
#include "tiers/flow.h"
#include "tiers/guard.h"
#include "os/privilege.h"
#include "os/message.h"
#include "main/server.h"
#include "tiers/tcb.h"
#include "config/units.h"
#include "tiers/xdp.h"

/* Short, so that the advice behind it is not cut off. */
#define LOAD_LOG_LEN 96
#define TBG_SWEEP_NS (2 * 1000000000ull)
#define XDP_RETRY_NS (600 * 1000000000ull)	/* where it was given up */

struct tbg_wire {
	struct tbg_wire_bpf *own;	/* connections are wire's; or NULL: */
	struct tbg_translate_bpf *bpf;	/* the kernel's, and translated */
	struct bpf_object *obj;		/* of whichever it is */
	int progs[TBG_HOOK_NR];		/* -1: nothing looks at that hook */
	struct tbg_tcbs tcbs;
	bool draining;
	struct tbg_plan plan;
	struct tbg_maps maps;
	struct tbg_mapping conns;
	struct tbg_flows flows;
	struct tbg_guard guard;
	bool flows_open, automatic, late_sockets, births_kernel;
	char *wanted;			/* as --wire says */
	struct sockaddr_storage listeners[TBG_LISTENER_MAX];
	unsigned int listeners_nr;
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	struct tbg_attachment attached[TBG_IFACES_MAX];
	int xdp_fd[TBG_IFACES_MAX];	/* or -1 */
	struct tbg_xdp *xdp;		/* loaded when first asked for */
	unsigned int ifaces_nr;
	bool full;			/* and said so */
	struct tbg_links *links;	/* read once for all that are looked at */
	uint64_t swept_ns;
	char load_log[LOAD_LOG_LEN];	/* what libbpf complained about first */
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

/* A pid would not do: that of each container's daemon may be 1. */
static int draw(void *ret, size_t len)
{
	return getrandom(ret, len, 0) == (ssize_t)len ? 0 : -errno;
}

/* Sizes by plan, before loading. */
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

	w->bpf = tbg_translate_bpf__open();
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

	w->own = tbg_wire_bpf__open();
	err = w->own ? tbg_maps_size(w->own->obj, w->own->rodata->tbg_class_base,
				     &w->plan) : -errno;
	err = err ?: bpf_map__set_max_entries(w->own->maps.tbg_tcbs, w->plan.conns);
	err = err ?: tbg_wire_bpf__load(w->own);
	if (err) {
		tbg_wire_bpf__destroy(w->own);
		w->own = NULL;
		return err;
	}
	w->obj = w->own->obj;
	w->progs[TBG_HOOK_INGRESS] = bpf_program__fd(w->own->progs.tbg_ingress);
	w->progs[TBG_HOOK_EGRESS] = -1;
	return 0;
}

/* Whether the kernel makes sockets late in this namespace: not without SYN cookies. */
static bool has_cookies(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_syncookies", "r");
	int c = f ? fgetc(f) : '0';

	if (f)
		fclose(f);
	return c != '0';
}

/* XDP follows translated flows alone. */
static bool wants_xdp(const struct tbg_wire *w)
{
	return strstr(w->wanted, ":xdp");
}

/* Every connection is wire's or the kernel's where that can be, else it is translated. */
static int load_either(struct tbg_wire *w)
{
	if (w->late_sockets && !wants_xdp(w) && has_cookies() && !own_load(w))
		return 0;
	w->load_log[0] = 0;
	return translate_load(w);
}

static int map_all(struct tbg_wire *w)
{
	int err = tbg_maps_open(&w->maps, w->obj);

	if (err || w->own)
		return err;
	err = tbg_map_mmap(w->bpf->maps.tbg_conns, &w->conns);
	w->maps.conns = w->conns.at;
	w->maps.conns_nr = w->plan.conns;
	w->maps.owners_fd = bpf_map__fd(w->bpf->maps.tbg_owners);
	w->maps.yield_fd = bpf_program__fd(w->bpf->progs.tbg_yield);
	return err;
}

static int flows_open(struct tbg_wire *w)
{
	if (w->own)
		return tbg_tcbs_open(&w->tcbs, bpf_map__fd(w->own->maps.tbg_tcbs),
				     bpf_map__fd(w->own->maps.tbg_dues),
				     bpf_program__fd(w->own->progs.tbg_push));
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
	err = load_either(w);
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
	/* so that whoever finds one of the others can tell that we are dead */
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

/* Before anything is attached to an interface: nothing is answered without. */
static int guard_open(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	char why[160];
	int err;

	if (w->own)
		return 0;
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

/* What the packets of connections without a socket have from elsewhere. */
static int set_own(struct tbg_wire *w)
{
	struct tbg_knob *knob = w->maps.knob;

	if (!w->own)
		return 0;
	knob->births = w->births_kernel ? TBG_BIRTHS_KERNEL : TBG_BIRTHS_WIRE;
	knob->ttl = 64;
	knob->hops = 64;
	return draw(knob->cookie, sizeof(knob->cookie));
}

static void set_listeners(struct tbg_wire *w)
{
	struct tbg_knob *knob = w->maps.knob;

	for (unsigned int i = 0; i < w->listeners_nr; i++) {
		struct tbg_listener *l = &knob->listener[i];
		const struct sockaddr_storage *ss = &w->listeners[i];
		uint16_t port;

		if (ss->ss_family == AF_INET) {
			const struct sockaddr_in *in = (const void *)ss;

			if (in->sin_addr.s_addr != htonl(INADDR_ANY)) {
				l->local[2] = htonl(0xffff);
				l->local[3] = in->sin_addr.s_addr;
			}
			l->port = in->sin_port;
		} else {
			const struct sockaddr_in6 *in6 = (const void *)ss;

			memcpy(l->local, &in6->sin6_addr, 16);
			l->v6 = 1;
			l->port = in6->sin6_port;
		}
		port = ntohs(l->port);
		knob->ports[port / 64] |= 1ull << (port % 64);
	}
}

/* "" or why wire cannot work on an interface. */
static void iface_unfit(const char *name, char *ret, size_t len)
{
	struct ifreq req = {};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ret[0] = 0;
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &req))
		snprintf(ret, len, "%s", strerror(errno));
	else if (req.ifr_hwaddr.sa_family != ARPHRD_ETHER &&
		 req.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK)
		snprintf(ret, len, "not an Ethernet or loopback interface");
	if (fd >= 0)
		close(fd);
}

/* "" or which of the attached interfaces the frames of i pass as well. */
static void iface_twice(struct tbg_wire *w, struct tbg_wire_iface *i)
{
	if (!i->why[0] && !w->links)
		w->links = tbg_links_open();
	for (unsigned int n = 0; n < w->ifaces_nr && !i->why[0]; n++) {
		const struct tbg_wire_iface *other = &w->ifaces[n];

		/* they would be translated twice */
		if (!other->why[0] && tbg_links_stacked(w->links, i->ifindex, other->ifindex))
			snprintf(i->why, sizeof(i->why),
				 "its frames pass %s, where wire is; one of them is enough",
				 other->name);
	}
}

/* Says so once: TC, which is attached, answers alone. */
static void xdp_off(struct tbg_wire_iface *i, const char *why)
{
	bool news = strcmp(i->xdp, "off") || strcmp(i->xdp_why, why);

	strcpy(i->xdp, "off");
	snprintf(i->xdp_why, sizeof(i->xdp_why), "%s", why);
	if (news)
		tbg_report("toboggand: wire: no XDP on %s: %s; TC answers there", i->name, why);
}

static void xdp_attach(struct tbg_wire *w, unsigned int nr)
{
	struct tbg_wire_iface *i = &w->ifaces[nr];
	char why[sizeof(i->xdp_why)];
	int fd = 0;

	if (!w->xdp)
		fd = tbg_xdp_open(&w->xdp, w->obj, &w->plan, why, sizeof(why));
	if (!fd)
		fd = tbg_xdp_attach(w->xdp, i->ifindex, why, sizeof(why));
	if (fd < 0) {
		xdp_off(i, why);
	} else {
		strcpy(i->xdp, "on");
		i->xdp_why[0] = 0;
	}
	/* who has it may go at any time */
	i->xdp_retry_ns = fd == -EBUSY ? tbg_mono_ns() : 0;
	w->xdp_fd[nr] = fd;
}

static void xdp_detach(struct tbg_wire *w, unsigned int nr)
{
	if (w->xdp_fd[nr] >= 0) {
		close(w->xdp_fd[nr]);
		tbg_xdp_forget(w->xdp, w->ifaces[nr].ifindex);
	}
	w->xdp_fd[nr] = -1;
}

static void xdp_attach_again(struct tbg_wire *w, unsigned int nr)
{
	xdp_detach(w, nr);
	xdp_attach(w, nr);
	if (w->xdp_fd[nr] >= 0)
		tbg_report("toboggand: wire: its XDP program on %s was removed by somebody; attached again",
			w->ifaces[nr].name);
}

/*
 * A device may prove unfit, or its clients be so far away that it seems so; and
 * another's program may go, or somebody take ours off.
 */
static void xdp_tick(struct tbg_wire *w, uint64_t now_ns)
{
	for (unsigned int nr = 0; nr < w->ifaces_nr; nr++) {
		struct tbg_wire_iface *i = &w->ifaces[nr];

		if (i->xdp_retry_ns && now_ns >= i->xdp_retry_ns) {
			xdp_attach(w, nr);
		} else if (w->xdp_fd[nr] < 0) {
			continue;
		} else if (tbg_xdp_is_detached(w->xdp_fd[nr])) {
			xdp_attach_again(w, nr);
		} else if (tbg_xdp_is_lost(w->xdp, i->ifindex)) {
			xdp_detach(w, nr);
			xdp_off(i, "what it sends is not acknowledged; the peer of a veth needs XDP too");
			i->xdp_retry_ns = now_ns + XDP_RETRY_NS;
		} else if (w->xdp_fd[nr] >= 0) {
			tbg_xdp_follow(w->xdp, i->ifindex);
		}
	}
}

static const char *attach_why(int err)
{
	return err == -EBUSY ? "it has an ingress qdisc; replace that by clsact" :
			       strerror(-err);
}

/* XDP needs the programs of TC: it is not tried before they are there. */
static void iface_off(struct tbg_wire_iface *i, int err)
{
	strcpy(i->how, "off");
	i->xdp[0] = 0;
	i->xdp_why[0] = 0;
	i->xdp_retry_ns = 0;
	snprintf(i->why, sizeof(i->why), "attach: %s", attach_why(err));
}

static void iface_how(struct tbg_wire *w, unsigned int nr)
{
	snprintf(w->ifaces[nr].how, sizeof(w->ifaces[nr].how), "%s",
		 w->attached[nr].tcx ? "tcx" : "clsact");
}

/*
 * Whether wire is on it. One that is called something else now is the same; want of a
 * descriptor to ask with says nothing.
 */
static bool iface_stays(struct tbg_wire_iface *i)
{
	if (i->why[0])
		return false;
	if (if_indextoname(i->ifindex, i->name) || errno != ENXIO)
		return true;
	tbg_report("toboggand: wire: %s is gone", i->name);
	return false;
}

/*
 * An interface that went away took the programs with it. Those that wire is not on are
 * forgotten too, for add_late() to try all that are wanted anew.
 */
static void forget_off(struct tbg_wire *w)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < w->ifaces_nr; i++) {
		if (!iface_stays(&w->ifaces[i])) {
			xdp_detach(w, i);
			continue;
		}
		w->ifaces[kept] = w->ifaces[i];
		w->xdp_fd[kept] = w->xdp_fd[i];
		w->attached[kept++] = w->attached[i];
	}
	w->ifaces_nr = kept;
}

/* Whether there is a place for one more; what wire is not on gives its own up. */
static bool has_place(struct tbg_wire *w, const char *name)
{
	if (w->ifaces_nr == TBG_IFACES_MAX)
		forget_off(w);
	if (w->ifaces_nr < TBG_IFACES_MAX)
		return true;
	if (!w->full)
		tbg_report("toboggand: wire: on %d interfaces, which are all it can be on; not on %s",
			TBG_IFACES_MAX, name);
	w->full = true;
	return false;
}

/* Not while draining: wire only translates then. */
static bool answers(const struct tbg_wire *w)
{
	return __atomic_load_n(&w->maps.knob->answer, __ATOMIC_RELAXED);
}

static int iface_add(struct tbg_wire *w, const char *name, bool xdp)
{
	struct tbg_wire_iface *i;
	int err;

	if (!has_place(w, name))
		return -E2BIG;
	i = &w->ifaces[w->ifaces_nr];
	*i = (struct tbg_wire_iface){ .ifindex = if_nametoindex(name) };
	w->xdp_fd[w->ifaces_nr] = -1;
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(i->how, sizeof(i->how), "off");
	if (i->ifindex)
		iface_unfit(name, i->why, sizeof(i->why));
	else
		strcpy(i->why, "no such interface");
	iface_twice(w, i);
	if (!i->why[0]) {
		err = tbg_attach(&w->attached[w->ifaces_nr], i->ifindex, w->progs);
		if (err)
			iface_off(i, err);
		else
			iface_how(w, w->ifaces_nr);
		if (!err && xdp && answers(w))
			xdp_attach(w, w->ifaces_nr);
	}
	w->ifaces_nr++;
	return i->why[0] ? -EOPNOTSUPP : 0;
}

static bool serves(const struct tbg_wire *w, const struct sockaddr *addr)
{
	for (unsigned int i = 0; i < w->listeners_nr; i++) {
		const struct sockaddr_storage *l = &w->listeners[i];

		if (l->ss_family != addr->sa_family)
			continue;
		if (l->ss_family == AF_INET) {
			uint32_t a = ((struct sockaddr_in *)l)->sin_addr.s_addr;
			uint32_t b = ((struct sockaddr_in *)addr)->sin_addr.s_addr;

			if (!a || a == b)
				return true;
			/* all of 127/8 is on lo, whatever address it shows */
			if (ntohl(a) >> 24 == 127 && ntohl(b) >> 24 == 127)
				return true;
		} else {
			const struct in6_addr *a =
				&((struct sockaddr_in6 *)l)->sin6_addr;

			if (IN6_IS_ADDR_UNSPECIFIED(a) ||
			    IN6_ARE_ADDR_EQUAL(a, &((struct sockaddr_in6 *)addr)->sin6_addr))
				return true;
		}
	}
	return false;
}

/* By whichever of its names: `ip link property` gives it more than one. */
static bool known(const struct tbg_wire *w, const char *name)
{
	int ifindex = if_nametoindex(name);

	for (unsigned int i = 0; ifindex && i < w->ifaces_nr; i++)
		if (w->ifaces[i].ifindex == ifindex)
			return true;
	return false;
}

/* "auto": every fit interface that is up and has an address we listen on. */
static int add_automatic(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	struct ifaddrs *all;
	char why[120];

	if (getifaddrs(&all))
		return fail(w, -errno, ret_msg, msg_len, "interfaces");
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
		    (i->ifa_addr->sa_family != AF_INET &&
		     i->ifa_addr->sa_family != AF_INET6) ||
		    known(w, i->ifa_name) || !serves(w, i->ifa_addr))
			continue;
		iface_unfit(i->ifa_name, why, sizeof(why));
		if (!why[0])
			iface_add(w, i->ifa_name, false);
	}
	freeifaddrs(all);
	return 0;
}

/* Every wanted interface that is not attached yet; the first failure. */
static int add_named(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	const char *word = w->wanted;
	char name[IF_NAMESIZE];
	int err, first = 0;
	bool xdp;

	for (; *word; word += strcspn(word, ","), word += *word == ',') {
		if (!tbg_value_iface(word, name, &xdp) || known(w, name))
			continue;
		err = iface_add(w, name, xdp);
		if (first || !err)
			continue;
		first = err;
		snprintf(ret_msg, msg_len, "wire: %s: %s", name,
			 w->ifaces[w->ifaces_nr - 1].why);
	}
	return first;
}

static int add_wanted(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	int err = w->automatic ? add_automatic(w, ret_msg, msg_len) :
				 add_named(w, ret_msg, msg_len);

	tbg_links_close(w->links);
	w->links = NULL;
	return err;
}

static int attach_all(struct tbg_wire *w, char *ret_msg, size_t msg_len)
{
	int err = add_wanted(w, ret_msg, msg_len);

	if (err)
		return err;
	for (unsigned int i = 0; i < w->ifaces_nr; i++)
		if (!w->ifaces[i].why[0])
			return 0;
	if (w->ifaces_nr)
		snprintf(ret_msg, msg_len, "wire: %s: %s", w->ifaces[0].name,
			 w->ifaces[0].why);
	else
		snprintf(ret_msg, msg_len, "wire: no interface that is up has an address we listen on");
	return -ENODEV;
}

int tbg_wire_open(struct tbg_wire **ret, const char *ifaces, bool late_sockets,
		  unsigned int size, const struct tbg_plan *plan,
		  const struct sockaddr_storage *listeners, unsigned int nr,
		  char *ret_msg, size_t msg_len)
{
	struct tbg_wire *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->plan = *plan;
	w->guard.cgroup_fd = -1;
	w->automatic = !strcmp(ifaces, "auto");
	w->late_sockets = late_sockets;
	w->wanted = strdup(ifaces);
	if (!w->wanted) {
		free(w);
		return -ENOMEM;
	}
	w->listeners_nr = nr < TBG_LISTENER_MAX ? nr : TBG_LISTENER_MAX;
	memcpy(w->listeners, listeners, w->listeners_nr * sizeof(*listeners));
	err = load(w, ret_msg, msg_len);
	if (err)
		goto out;
	err = guard_open(w, ret_msg, msg_len);
	if (err)
		goto out;
	set_listeners(w);
	err = set_own(w);
	if (err)
		goto out;
	w->maps.knob->pays_segs = size ? TBG_SEG_MAX : TBG_SEG_PAYS;
	w->maps.knob->pays_bytes = size;
	w->maps.knob->answer = 1;
	err = attach_all(w, ret_msg, msg_len);
	if (err)
		goto out;
	*ret = w;
	return 0;
out:
	tbg_wire_close(w);
	return err;
}

int tbg_wire_listen(struct tbg_wire *w, int fd)
{
	uint32_t one = 1;

	return bpf_map_update_elem(map_fd(w, "tbg_listeners"), &fd, &one, BPF_ANY);
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
	for (unsigned int i = 0; i < w->ifaces_nr; i++) {
		ret[i] = w->ifaces[i];
		if_indextoname(ret[i].ifindex, ret[i].name);	/* else as it was */
	}
	return w->ifaces_nr;
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

bool tbg_wire_owns(const struct tbg_wire *w)
{
	return w->own;
}

void tbg_wire_close(struct tbg_wire *w)
{
	if (!w)
		return;
	if (w->own && w->flows_open)
		tbg_tcbs_reset(&w->tcbs);
	for (unsigned int i = 0; i < w->ifaces_nr; i++) {
		xdp_detach(w, i);
		if (!w->ifaces[i].why[0])
			tbg_detach(&w->attached[i]);
	}
	tbg_guard_close(&w->guard);
	tbg_xdp_close(w->xdp);
	if (w->flows_open && w->own)
		tbg_tcbs_close(&w->tcbs);
	else if (w->flows_open)
		tbg_flows_close(&w->flows);
	tbg_map_munmap(&w->conns);
	tbg_maps_close(&w->maps);
	tbg_translate_bpf__destroy(w->bpf);
	tbg_wire_bpf__destroy(w->own);
	free(w->wanted);
	free(w);
}

/*
 * Somebody else may take our programs off an interface that stays. Without them the
 * connections there lose their translation.
 */
static void attach_again(struct tbg_wire *w)
{
	for (unsigned int nr = 0; nr < w->ifaces_nr; nr++) {
		struct tbg_wire_iface *i = &w->ifaces[nr];
		int did = i->why[0] ? 0 : tbg_attach_again(&w->attached[nr]);

		if (did > 0) {
			iface_how(w, nr);
			tbg_report("toboggand: wire: its programs on %s were removed by somebody; attached again (%s)",
				i->name, i->how);
		} else if (did < 0) {
			iface_off(i, did);
			tbg_report("toboggand: wire: its programs on %s were removed by somebody, and cannot be attached again: %s; trying on",
				i->name, attach_why(did));
			/* an answer that nobody translates for is none */
			xdp_detach(w, nr);
		}
	}
}

/* Interfaces come back, or come late. */
static void add_late(struct tbg_wire *w)
{
	unsigned int nr = w->ifaces_nr;
	char msg[256];

	add_wanted(w, msg, sizeof(msg));
	for (; nr < w->ifaces_nr; nr++)
		if (!w->ifaces[nr].why[0])
			tbg_report("toboggand: wire: on %s (%s%s)", w->ifaces[nr].name,
				w->ifaces[nr].how,
				strcmp(w->ifaces[nr].xdp, "on") ? "" : ", xdp");
}

void tbg_wire_tick(struct tbg_wire *w, uint64_t now_ns)
{
	tbg_guard_tick(&w->guard);
	if (now_ns - w->swept_ns < TBG_SWEEP_NS)
		return;
	w->swept_ns = now_ns;
	if (w->own)
		tbg_tcbs_sweep(&w->tcbs, now_ns, w->draining);
	else
		tbg_flows_sweep(&w->flows, now_ns);
	forget_off(w);
	tbg_privilege_raise();
	attach_again(w);
	add_late(w);
	if (answers(w))
		xdp_tick(w, now_ns);
	tbg_privilege_lower();
}

void tbg_wire_again(struct tbg_wire *w, uint64_t now_ns)
{
	if (w->own)
		tbg_tcbs_again(&w->tcbs, now_ns);
}

int tbg_conn_take(struct tbg_wire *w, int fd, struct tbg_taken *ret)
{
	return w->own ? tbg_tcb_take(&w->tcbs, fd, ret) : -ENOENT;
}

bool tbg_conn_give(struct tbg_wire *w, struct tbg_taken *k, int fd, uint32_t taken,
		   const uint8_t *b, uint32_t len, unsigned int answers)
{
	if (!tbg_tcb_asks(&w->tcbs, k, b, len)) {
		k->streak = 0;
		return false;
	}
	return ++k->streak >= answers && tbg_tcb_give(&w->tcbs, k, fd, taken, b, len);
}

int tbg_conn_claim(struct tbg_wire *w, int fd)
{
	struct tbg_flow flow;

	if (w->own || tbg_flow_lookup(&w->flows, fd, &flow))
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
	struct tbg_flow flow;
	int32_t ago_ms;

	if (w->own || tbg_flow_lookup(&w->flows, fd, &flow) || !(flow.in_delta | flow.out_delta))
		return 0;
	ago_ms = (uint32_t)(now_ns / 1000000) - flow.repeat_ms;
	return ago_ms > 0 ? now_ns - ago_ms * 1000000ull : now_ns;
}
