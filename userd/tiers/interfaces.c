// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches wire to interfaces and keeps it attached: netlink reports interfaces that
 * appear, disappear or lose their qdisc. All are checked every two seconds, since the
 * removal of a program from tcx is not reported. See interfaces.h. Must never leave an
 * interface with only one hook attached.
 */
#include "tiers/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/message.h"
#include "os/privilege.h"
#include "os/units.h"
#include "tiers/ipsec.h"
#include "tiers/links.h"
#include "tiers/maps.h"
#include "tiers/netlink.h"
#include "tiers/xdp.h"

#define XDP_RETRY_NS (600 * 1000000000ull)	/* after it was given up */
#define FOLLOW_GAP_NS (20 * 1000000ull)		/* minimum time between two checks */
#define NARROW_V4 (96 + 1)	/* longest prefix of routes that count as routes to everywhere */
#define NARROW_V6 3

/* "", or the reason for which wire cannot work on an interface. */
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

/* "", or the name of an attached interface that frames of i pass, too. */
static void iface_twice(struct tbg_interfaces *f, struct tbg_wire_iface *i)
{
	if (!i->why[0] && !f->links)
		f->links = tbg_links_open();
	for (unsigned int n = 0; n < f->nr && !i->why[0]; n++) {
		const struct tbg_wire_iface *other = &f->at[n];

		/* they would be translated twice, or handed over twice */
		if (other->why[0] || !tbg_links_stacked(f->links, i->ifindex, other->ifindex,
							  !f->translated))
			continue;
		i->covered = true;
		snprintf(i->why, sizeof(i->why),
			 "its frames pass %s, where wire is; one of them is enough",
			 other->name);
	}
}

/* Logs once that XDP is off, and only TC answers. */
static void xdp_off(struct tbg_wire_iface *i, const char *why)
{
	bool news = strcmp(i->xdp, "off") || strcmp(i->xdp_why, why);

	strcpy(i->xdp, "off");
	snprintf(i->xdp_why, sizeof(i->xdp_why), "%s", why);
	if (news)
		tbg_warn("toboggand: wire: no XDP on %s: %s; TC answers there", i->name, why);
}

static void xdp_attach(struct tbg_interfaces *f, unsigned int nr)
{
	struct tbg_wire_iface *i = &f->at[nr];
	char why[sizeof(i->xdp_why)];
	int fd = 0;

	if (!f->xdp)
		fd = tbg_xdp_open(&f->xdp, f->obj, f->plan, f->translated, why,
				  sizeof(why));
	if (!fd)
		fd = tbg_xdp_attach(f->xdp, i->ifindex, why, sizeof(why));
	if (fd < 0) {
		xdp_off(i, why);
	} else {
		strcpy(i->xdp, "on");
		i->xdp_why[0] = 0;
	}
	/* its owner may disappear at any time */
	i->xdp_retry_ns = fd == -EBUSY ? tbg_mono_ns() : 0;
	f->xdp_fd[nr] = fd;
}

static void xdp_detach(struct tbg_interfaces *f, unsigned int nr)
{
	if (f->xdp_fd[nr] >= 0) {
		close(f->xdp_fd[nr]);
		tbg_xdp_forget(f->xdp, f->at[nr].ifindex);
	}
	f->xdp_fd[nr] = -1;
}

static void xdp_attach_again(struct tbg_interfaces *f, unsigned int nr)
{
	xdp_detach(f, nr);
	xdp_attach(f, nr);
	if (f->xdp_fd[nr] >= 0)
		tbg_warn("toboggand: wire: its XDP program on %s was removed by another program; attached again",
			f->at[nr].name);
}

/*
 * Follows XDP: a device may prove unsuitable, or seem so because its clients
 * are far away; another tool's program may disappear, or ours be detached.
 */
static void xdp_tick(struct tbg_interfaces *f, uint64_t now_ns)
{
	for (unsigned int nr = 0; nr < f->nr; nr++) {
		struct tbg_wire_iface *i = &f->at[nr];

		if (i->xdp_retry_ns && now_ns >= i->xdp_retry_ns) {
			xdp_attach(f, nr);
		} else if (f->xdp_fd[nr] < 0) {
			continue;
		} else if (tbg_xdp_is_detached(f->xdp_fd[nr])) {
			xdp_attach_again(f, nr);
		} else if (tbg_xdp_is_lost(f->xdp, i->ifindex)) {
			xdp_detach(f, nr);
			xdp_off(i, "its replies are not acknowledged; the peer of a veth needs XDP too");
			i->xdp_retry_ns = now_ns + XDP_RETRY_NS;
		} else if (f->xdp_fd[nr] >= 0) {
			tbg_xdp_follow(f->xdp, i->ifindex);
		}
	}
}

static const char *attach_why(int err)
{
	return err == -EBUSY ? "it has an ingress qdisc; replace that by clsact" :
			       strerror(-err);
}

/* XDP needs the TC programs: it is not attached before them. */
static void iface_off(struct tbg_wire_iface *i, int err)
{
	strcpy(i->how, "off");
	i->xdp[0] = 0;
	i->xdp_why[0] = 0;
	i->xdp_retry_ns = 0;
	snprintf(i->why, sizeof(i->why), "attach: %s", attach_why(err));
}

static void iface_how(struct tbg_interfaces *f, unsigned int nr)
{
	snprintf(f->at[nr].how, sizeof(f->at[nr].how), "%s",
		 f->attached[nr].tcx ? "tcx" : "clsact");
}

/*
 * The interface was deleted or moved to another namespace: detaches what is attached by
 * links.
 */
static void iface_gone(const struct tbg_wire_iface *i, struct tbg_attachment *a)
{
	tbg_notice("toboggand: wire: %s is gone", i->name);
	if (a->stays)
		tbg_warn("toboggand: wire: if %s is in another network namespace, wire's programs are still on it; remove them there (bpftool net detach)",
			 i->name);
	tbg_attach_forget(a);
}

/*
 * Whether the attached interface still exists. A renamed one does; an error of the
 * query means nothing.
 */
static bool iface_stays(struct tbg_wire_iface *i, struct tbg_attachment *a)
{
	if (i->why[0])
		return false;
	if (if_indextoname(i->ifindex, i->name) || errno != ENXIO)
		return true;
	iface_gone(i, a);
	return false;
}

/*
 * Forgets deleted interfaces, whose programs are gone with them; and those that wire is
 * not on, so that add_late() tries all wanted ones again.
 */
static void forget_off(struct tbg_interfaces *f)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < f->nr; i++) {
		if (!iface_stays(&f->at[i], &f->attached[i])) {
			xdp_detach(f, i);
			continue;
		}
		f->at[kept] = f->at[i];
		f->xdp_fd[kept] = f->xdp_fd[i];
		f->attached[kept++] = f->attached[i];
	}
	f->nr = kept;
}

/* Whether there is a place for one more; interfaces that wire is not on give theirs up. */
static bool has_place(struct tbg_interfaces *f, const char *name)
{
	if (f->nr == TBG_IFACES_MAX)
		forget_off(f);
	if (f->nr < TBG_IFACES_MAX)
		return true;
	if (!f->full)
		tbg_warn("toboggand: wire: on %d interfaces, which are all it can be on; not on %s",
			TBG_IFACES_MAX, name);
	f->full = true;
	return false;
}

/* Not while draining, when wire only translates. */
static bool answers(const struct tbg_interfaces *f)
{
	return __atomic_load_n(&f->knob->answer, __ATOMIC_RELAXED);
}

static int iface_add(struct tbg_interfaces *f, const char *name, bool xdp)
{
	struct tbg_wire_iface *i;
	int err;

	if (!has_place(f, name))
		return -E2BIG;
	i = &f->at[f->nr];
	*i = (struct tbg_wire_iface){ .ifindex = if_nametoindex(name) };
	f->xdp_fd[f->nr] = -1;
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(i->how, sizeof(i->how), "off");
	if (i->ifindex)
		iface_unfit(name, i->why, sizeof(i->why));
	else
		strcpy(i->why, "no such interface");
	iface_twice(f, i);
	if (!i->why[0]) {
		err = tbg_attach(&f->attached[f->nr], i->ifindex, f->progs, &f->pins,
				 f->translated);
		if (err)
			iface_off(i, err);
		else
			iface_how(f, f->nr);
		if (!err && xdp && answers(f))
			xdp_attach(f, f->nr);
	}
	f->nr++;
	return i->why[0] ? -EOPNOTSUPP : 0;
}

static bool serves(const struct tbg_interfaces *f, const struct sockaddr *addr)
{
	for (unsigned int i = 0; i < f->listeners_nr; i++) {
		const struct sockaddr_storage *l = &f->listeners[i];

		if (l->ss_family != addr->sa_family)
			continue;
		if (l->ss_family == AF_INET) {
			uint32_t a = ((struct sockaddr_in *)l)->sin_addr.s_addr;
			uint32_t b = ((struct sockaddr_in *)addr)->sin_addr.s_addr;

			if (!a || a == b)
				return true;
			/* lo has all of 127/8, whatever its addresses */
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

/*
 * Compared by all its names (`ip link property` adds names). One that has disappeared
 * since forget_off() stays known until the next call.
 */
static bool known(const struct tbg_interfaces *f, const char *name)
{
	int ifindex = if_nametoindex(name);

	for (unsigned int i = 0; i < f->nr; i++)
		if (ifindex ? f->at[i].ifindex == ifindex : !strcmp(f->at[i].name, name))
			return true;
	return false;
}

/* Whether clients on other machines can reach a listener. */
static bool serves_others(const struct tbg_interfaces *f)
{
	for (unsigned int i = 0; i < f->listeners_nr; i++) {
		const struct sockaddr_in *in = (const void *)&f->listeners[i];
		const struct sockaddr_in6 *in6 = (const void *)&f->listeners[i];

		if (f->listeners[i].ss_family == AF_INET ?
		    ntohl(in->sin_addr.s_addr) >> 24 != 127 :
		    !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
			return true;
	}
	return false;
}

/*
 * "auto": every suitable interface that is up and has an address of a listener. An
 * unsuitable one is recorded as left out: it may carry connections even without such an
 * address.
 */
static int add_automatic(struct tbg_interfaces *f, char *ret_msg, size_t msg_len)
{
	bool others = serves_others(f);
	struct ifaddrs *all;
	char why[120];

	if (getifaddrs(&all)) {
		snprintf(ret_msg, msg_len, "interfaces: %s", strerror(errno));
		return -errno;
	}
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		bool inet = i->ifa_addr && (i->ifa_addr->sa_family == AF_INET ||
					    i->ifa_addr->sa_family == AF_INET6);

		if (!(i->ifa_flags & IFF_UP) || known(f, i->ifa_name))
			continue;
		iface_unfit(i->ifa_name, why, sizeof(why));
		if (why[0] ? others : inet && serves(f, i->ifa_addr))
			iface_add(f, i->ifa_name, false);
	}
	freeifaddrs(all);
	return 0;
}

/* Attaches to every wanted interface that is not attached yet; returns the first error. */
static int add_named(struct tbg_interfaces *f, char *ret_msg, size_t msg_len)
{
	const char *word = f->wanted;
	char name[IF_NAMESIZE];
	int err, first = 0;
	bool xdp;

	for (; *word; word += strcspn(word, ","), word += *word == ',') {
		if (!tbg_value_iface(word, name, &xdp) || known(f, name))
			continue;
		err = iface_add(f, name, xdp);
		if (first || !err)
			continue;
		first = err;
		snprintf(ret_msg, msg_len, "wire: %s: %s", name,
			 f->at[f->nr - 1].why);
	}
	return first;
}

static int add_wanted(struct tbg_interfaces *f, char *ret_msg, size_t msg_len)
{
	int err = f->automatic ? add_automatic(f, ret_msg, msg_len) :
				 add_named(f, ret_msg, msg_len);

	tbg_links_close(f->links);
	f->links = NULL;
	return err;
}

/*
 * Attaches programs again that another tool has removed: without them, connections
 * there are not translated.
 */
static void attach_again(struct tbg_interfaces *f)
{
	for (unsigned int nr = 0; nr < f->nr; nr++) {
		struct tbg_wire_iface *i = &f->at[nr];
		int did = i->why[0] ? 0 : tbg_attach_again(&f->attached[nr]);

		if (did > 0) {
			iface_how(f, nr);
			tbg_warn("toboggand: wire: its programs on %s were removed by another program; attached again (%s)",
				i->name, i->how);
		} else if (did == -ENODEV) {	/* since forget_off() */
			iface_gone(i, &f->attached[nr]);
			iface_off(i, did);
			xdp_detach(f, nr);
		} else if (did < 0) {
			iface_off(i, did);
			tbg_report("toboggand: wire: its programs on %s were removed by another program, and cannot be attached again: %s; trying again",
				i->name, attach_why(did));
			/* no answers without the translating programs */
			xdp_detach(f, nr);
		}
	}
}

/* Attaches to interfaces that return, or appear later. */
static void add_late(struct tbg_interfaces *f)
{
	unsigned int nr = f->nr;
	char msg[256];

	add_wanted(f, msg, sizeof(msg));
	for (; nr < f->nr; nr++)
		if (!f->at[nr].why[0])
			tbg_notice("toboggand: wire: on %s (%s%s)", f->at[nr].name,
				f->at[nr].how,
				strcmp(f->at[nr].xdp, "on") ? "" : ", xdp");
}

/* --- what `auto` leaves out ------------------------------------------------ */

static bool is_left_out(const struct tbg_interfaces *f, const struct tbg_wire_iface *i)
{
	return f->automatic && i->why[0] && i->ifindex && !i->covered;
}

/* Logs each one once. */
static void left_note(struct tbg_interfaces *f)
{
	int now[TBG_IFACES_MAX];
	unsigned int nr = 0;

	for (unsigned int i = 0; i < f->nr; i++) {
		const struct tbg_wire_iface *one = &f->at[i];
		bool news = true;

		if (!is_left_out(f, one))
			continue;
		for (unsigned int n = 0; n < f->left_nr; n++)
			news &= f->left[n] != one->ifindex;
		if (news)
			tbg_notice("toboggand: wire: auto leaves out %s: %s", one->name,
				   one->why);
		now[nr++] = one->ifindex;
	}
	memcpy(f->left, now, nr * sizeof(now[0]));
	f->left_nr = nr;
	tbg_link_news_routes(f->news, nr);
}

struct carrier {
	const struct tbg_interfaces *f;
	const struct ifaddrs *all;
	struct tbg_prefix route;
};

static bool subnet_of(const struct ifaddrs *a, struct tbg_prefix *ret)
{
	struct tbg_prefix mask;

	if (!a->ifa_addr || !a->ifa_netmask || !tbg_prefix_of(a->ifa_addr, ret) ||
	    !tbg_prefix_of(a->ifa_netmask, &mask))
		return false;
	ret->bits = a->ifa_addr->sa_family == AF_INET ? 96 : 0;
	while (ret->bits < 128 && mask.address[ret->bits / 8] & (0x80 >> ret->bits % 8))
		ret->bits++;
	return true;
}

static bool is_on(const struct tbg_interfaces *f, const char *name)
{
	for (unsigned int i = 0; i < f->nr; i++)
		if (!f->at[i].why[0] && !strcmp(f->at[i].name, name))
			return true;
	return false;
}

/*
 * Whether a route may take connections away from wire's interfaces: a route to
 * everywhere, or to their subnets.
 */
static bool route_carries(const struct tbg_prefix *to, void *arg)
{
	struct carrier *c = arg;

	c->route = *to;
	if (to->bits <= (tbg_prefix_is_v4(to) ? NARROW_V4 : NARROW_V6))
		return true;
	for (const struct ifaddrs *i = c->all; i; i = i->ifa_next) {
		struct tbg_prefix s;

		if (i->ifa_flags & IFF_LOOPBACK || !subnet_of(i, &s) || !is_on(c->f, i->ifa_name))
			continue;
		if (tbg_prefix_is_v4(&s) == tbg_prefix_is_v4(to) &&
		    (tbg_prefix_has(&s, to) || tbg_prefix_has(to, &s)))
			return true;
	}
	return false;
}

/* "", or the reason for which wire must not answer, such as a route that it cannot see. */
static void held_look(const struct tbg_interfaces *f, char ret[TBG_HELD_LEN])
{
	struct carrier c = { .f = f };
	struct ifaddrs *all;
	char route[TBG_PREFIX_TEXT];
	bool on = false;

	snprintf(ret, TBG_HELD_LEN, "%s", f->unguarded ?
		 "another program has removed its guard from the daemon's cgroup, and it cannot be attached again" :
		 f->ipsec);
	if (ret[0])
		return;
	for (unsigned int i = 0; i < f->nr; i++)
		on |= !f->at[i].why[0] && !(f->at[i].ifindex == 1);
	/* without translation, any route is fine */
	if (!f->left_nr || !on || !f->translated || getifaddrs(&all))
		return;
	c.all = all;
	for (unsigned int i = 0; i < f->nr && !ret[0]; i++) {
		const struct tbg_wire_iface *one = &f->at[i];

		if (!is_left_out(f, one) || !tbg_links_route(one->ifindex, route_carries, &c))
			continue;
		tbg_prefix_text(&c.route, route);
		snprintf(ret, TBG_HELD_LEN,
			 "%s, which auto leaves out (%.100s), has the route %s; name the interfaces with --wire to answer all the same",
			 one->name, one->why, route);
	}
	freeifaddrs(all);
}

static void held_note(struct tbg_interfaces *f)
{
	char why[TBG_HELD_LEN];

	held_look(f, why);
	if (!strcmp(why, f->held))
		return;
	if (why[0])
		tbg_warn("toboggand: wire answers nothing: %s", why);
	else
		tbg_notice("toboggand: wire answers again");
	memcpy(f->held, why, sizeof(why));
	__atomic_store_n(&f->knob->held, !!why[0], __ATOMIC_RELEASE);
}

/* --- from outside ---------------------------------------------------------- */

int tbg_interfaces_open(struct tbg_interfaces *f, char *ret_msg, size_t msg_len)
{
	int err;

	/* connections of wire's own end with the daemon, and so do their programs */
	if (f->translated)
		tbg_pins_open(&f->pins, f->owner);
	else
		f->pins.dir_fd = -ENOENT;
	/* before the first check: later changes are reported */
	f->ipsec_news = tbg_ipsec_news_open();
	tbg_ipsec_look(f->ipsec, sizeof(f->ipsec));
	f->news = tbg_link_news_open();
	if (!f->news)
		tbg_warn("toboggand: wire: no news of interfaces: %s; they are looked at every 2 s",
			   strerror(errno));
	err = add_wanted(f, ret_msg, msg_len);
	if (err)
		return err;
	for (unsigned int i = 0; i < f->nr; i++) {
		if (f->at[i].why[0])
			continue;
		left_note(f);
		held_note(f);
		return 0;
	}
	if (f->nr)
		snprintf(ret_msg, msg_len, "wire: %s: %s", f->at[0].name, f->at[0].why);
	else
		snprintf(ret_msg, msg_len, "wire: no interface that is up has an address we listen on");
	return -ENODEV;
}

void tbg_interfaces_close(struct tbg_interfaces *f)
{
	for (unsigned int i = 0; i < f->nr; i++) {
		xdp_detach(f, i);
		if (!f->at[i].why[0])
			tbg_detach(&f->attached[i]);
	}
	f->nr = 0;
	tbg_pins_close(&f->pins);
	tbg_link_news_close(f->news);
	f->news = NULL;
	if (f->ipsec_news)
		mnl_socket_close(f->ipsec_news);
	f->ipsec_news = NULL;
}

void tbg_interfaces_follow(struct tbg_interfaces *f, uint64_t now_ns)
{
	f->followed_ns = now_ns;
	f->news_wait = false;
	tbg_privilege_raise();
	forget_off(f);
	attach_again(f);
	add_late(f);
	if (answers(f))
		xdp_tick(f, now_ns);
	tbg_ipsec_look(f->ipsec, sizeof(f->ipsec));
	tbg_privilege_lower();
	left_note(f);
	held_note(f);
}

bool tbg_interfaces_news(struct tbg_interfaces *f, uint64_t now_ns)
{
	if (f->news && tbg_link_news_take(f->news))
		f->news_wait = true;
	if (f->ipsec_news && tbg_netlink_drain(f->ipsec_news))
		f->news_wait = true;
	if (!f->news_wait || now_ns - f->followed_ns < FOLLOW_GAP_NS)
		return false;
	tbg_interfaces_follow(f, now_ns);
	return true;
}
