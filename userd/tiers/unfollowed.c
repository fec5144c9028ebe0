// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the reason why wire follows none of the connections. Each reason is checked by
 * itself, none is a guess by exclusion. Called by wire.c; costs workers at most a few
 * system calls a second.
 */
#include "tiers/unfollowed.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "tiers/attach.h"
#include "tiers/interfaces.h"
#include "tiers/links.h"
#include "tiers/maps.h"

#define SAMPLE_NS 1000000000ull
#define LOOPBACK 1		/* index of lo in every namespace */
#define ORIGINAL_DST 80		/* SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST */

/* TcpExt's SyncookiesRecv: connections made from SYN cookies. */
static uint64_t cookies_taken(void)
{
	FILE *f = fopen("/proc/thread-self/net/netstat", "re");
	char names[8192], values[8192];
	uint64_t ret = 0;

	while (f && fgets(names, sizeof(names), f) && fgets(values, sizeof(values), f)) {
		char *name, *value, *n = NULL, *v = NULL;

		name = strtok_r(names, " \n", &n);
		value = strtok_r(values, " \n", &v);
		for (; name && value; name = strtok_r(NULL, " \n", &n),
		     value = strtok_r(NULL, " \n", &v))
			if (!strcmp(name, "SyncookiesRecv"))
				ret = strtoull(value, NULL, 10);
	}
	if (f)
		fclose(f);
	return ret;
}

void tbg_unfollowed_open(struct tbg_unfollowed *u)
{
	pthread_mutex_init(&u->lock, NULL);
	u->counts[TBG_UNFOLLOWED_COOKIES] = cookies_taken();
}

/* The interface by which the connection began; 0: unknown. */
static int interface_of(int fd, bool v4)
{
	const int level = v4 ? SOL_IP : SOL_IPV6, on = 1, off = 0;
	const int info = v4 ? IP_PKTINFO : IPV6_RECVPKTINFO;
	char buf[256] __attribute__((aligned(8)));
	struct msghdr msg = { .msg_control = buf };
	socklen_t len = sizeof(buf);
	struct cmsghdr *c;
	int ret = 0;

	if (setsockopt(fd, level, info, &on, sizeof(on)))
		return 0;
	if (!getsockopt(fd, level, v4 ? IP_PKTOPTIONS : IPV6_2292PKTOPTIONS, buf, &len))
		msg.msg_controllen = len;
	setsockopt(fd, level, info, &off, sizeof(off));
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (v4 && c->cmsg_level == SOL_IP && c->cmsg_type == IP_PKTINFO)
			ret = ((struct in_pktinfo *)CMSG_DATA(c))->ipi_ifindex;
		if (!v4 && c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO)
			ret = ((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_ifindex;
	}
	return ret;
}

void tbg_unfollowed_note(struct tbg_unfollowed *u, int fd, int found)
{
	uint64_t now = tbg_mono_ns(), last = atomic_load_explicit(&u->sampled_ns,
								  memory_order_relaxed);
	socklen_t local = sizeof(u->local), remote = sizeof(u->remote), asked = sizeof(u->asked);

	if (found) {
		atomic_store_explicit(&u->nr, 0, memory_order_relaxed);
		return;
	}
	if (last && now - last < SAMPLE_NS) {
		atomic_fetch_add_explicit(&u->nr, 1, memory_order_relaxed);
		return;
	}
	pthread_mutex_lock(&u->lock);
	atomic_store_explicit(&u->sampled_ns, now, memory_order_relaxed);
	memset(&u->asked, 0, sizeof(u->asked));
	if (getsockname(fd, (void *)&u->local, &local) ||
	    getpeername(fd, (void *)&u->remote, &remote))
		u->local.ss_family = 0;
	else if (getsockopt(fd, u->local.ss_family == AF_INET ? SOL_IP : SOL_IPV6, ORIGINAL_DST,
			    &u->asked, &asked))
		u->asked.ss_family = 0;
	u->ifindex = interface_of(fd, u->local.ss_family == AF_INET);
	pthread_mutex_unlock(&u->lock);
	atomic_fetch_add_explicit(&u->nr, 1, memory_order_relaxed);
}

/* --- reasons --------------------------------------------------------------- */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&((struct sockaddr_in6 *)a)->sin6_addr,
				  &((struct sockaddr_in6 *)b)->sin6_addr);
}

static void address_text(const struct sockaddr *a, char *ret, size_t len)
{
	bool v4 = a->sa_family == AF_INET;
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(a->sa_family, v4 ? (void *)&((struct sockaddr_in *)a)->sin_addr :
				     (void *)&((struct sockaddr_in6 *)a)->sin6_addr,
		  text, sizeof(text));
	snprintf(ret, len, v4 ? "%s:%u" : "[%s]:%u", text,
		 ntohs(((struct sockaddr_in *)a)->sin_port));
}

/* Whether wire sees the frames of this interface: on it, or on one that it lies on. */
static bool is_on(const struct tbg_interfaces *on, int ifindex)
{
	struct tbg_links *links = tbg_links_open();
	struct tbg_above above;
	bool ret = false;

	for (unsigned int i = 0; i < on->nr && !ret; i++) {
		const struct tbg_wire_iface *one = &on->at[i];

		if (one->why[0])
			ret = one->covered && one->ifindex == ifindex;
		else
			ret = one->ifindex == ifindex ||
			      (links && tbg_links_above(links, ifindex, one->ifindex, &above));
	}
	tbg_links_close(links);
	return ret;
}

/* Whether the client is on this machine: the kernel then names the interface of its address. */
static bool is_local(const struct tbg_unfollowed *u)
{
	const struct sockaddr *remote = (const void *)&u->remote;
	struct ifaddrs *all;
	bool ret;

	if (getifaddrs(&all))
		return false;
	ret = remote->sa_family == AF_INET &&
	      ntohl(((struct sockaddr_in *)remote)->sin_addr.s_addr) >> 24 == 127;
	for (const struct ifaddrs *i = all; i && !ret; i = i->ifa_next)
		ret = i->ifa_addr && same_address(i->ifa_addr, remote);
	freeifaddrs(all);
	return ret;
}

/* The reason that was counted last; "": none since a connection was followed. */
static const char *counted(const struct tbg_unfollowed *u)
{
	static const char *const texts[] = {
#define X(name, text) text,
		TBG_UNFOLLOWED_LIST(X)
#undef X
	};
	const char *ret = "";
	unsigned int last = 0;

	for (int i = 0; i < TBG_UNFOLLOWED_NR; i++)
		if (u->moved[i] > last) {
			last = u->moved[i];
			ret = texts[i];
		}
	return ret;
}

/* The reason; "": none was found. */
static void reason(struct tbg_unfollowed *u, const struct tbg_interfaces *on, char *ret,
		   size_t len)
{
	const struct sockaddr *local = (const void *)&u->local, *asked = (const void *)&u->asked;
	char name[IF_NAMESIZE], to[64], from[64];
	const char *hook;
	int ifindex;

	ret[0] = 0;
	if (!u->local.ss_family)
		return;
	if (asked->sa_family && (!same_address(local, asked) ||
				 ((struct sockaddr_in *)local)->sin_port !=
				 ((struct sockaddr_in *)asked)->sin_port)) {
		address_text(asked, from, sizeof(from));
		address_text(local, to, sizeof(to));
		snprintf(ret, len, "NAT on this machine (REDIRECT, DNAT) makes %s of %s", to, from);
		return;
	}
	ifindex = is_local(u) ? LOOPBACK : u->ifindex;
	if (ifindex && !is_on(on, ifindex) && if_indextoname(ifindex, name)) {
		snprintf(ret, len, "clients come by %s, where wire is not", name);
		return;
	}
	for (unsigned int i = 0; i < on->nr; i++) {
		hook = on->at[i].why[0] ? NULL : tbg_attach_behind(&on->attached[i]);
		if (!hook)
			continue;
		snprintf(ret, len, "another program stands before wire's on %s (%s)",
			 on->at[i].name, hook);
		return;
	}
	snprintf(ret, len, "%s", counted(u));
}

/* Notes which reasons were counted since the last check; followed: forgets those before. */
static void counts_note(struct tbg_unfollowed *u, const struct tbg_stats *st, bool followed)
{
	const uint64_t now[TBG_UNFOLLOWED_NR] = {
		[TBG_UNFOLLOWED_COOKIES] = cookies_taken(),
		[TBG_UNFOLLOWED_SHARED] = st->why[TBG_WHY_SHARED],
		[TBG_UNFOLLOWED_TRACKED] = st->why[TBG_WHY_TRACKED],
		[TBG_UNFOLLOWED_ROUTE] = st->why[TBG_WHY_ROUTE],
		[TBG_UNFOLLOWED_IFACE] = st->why[TBG_WHY_IFACE],
	};

	u->checks++;
	for (int i = 0; i < TBG_UNFOLLOWED_NR; i++) {
		if (followed)
			u->moved[i] = 0;
		else if (now[i] != u->counts[i])
			u->moved[i] = u->checks;
	}
	memcpy(u->counts, now, sizeof(now));
}

/* Whether there are unfollowed connections, and none was followed since. */
static bool unfollowed(struct tbg_unfollowed *u, const struct tbg_maps *maps)
{
	struct tbg_stats st;
	bool followed;

	if (tbg_maps_stats(maps, &st))
		return false;
	followed = st.why[TBG_WHY_BORN] != u->born;
	/* also where none is unfollowed: a connection is counted before its first request */
	counts_note(u, &st, followed);
	if (followed)
		atomic_store_explicit(&u->nr, 0, memory_order_relaxed);
	u->born = st.why[TBG_WHY_BORN];
	return atomic_load_explicit(&u->nr, memory_order_relaxed);
}

void tbg_unfollowed_tick(struct tbg_unfollowed *u, const struct tbg_maps *maps)
{
	unfollowed(u, maps);
}

void tbg_unfollowed_why(struct tbg_unfollowed *u, const struct tbg_interfaces *on,
			const struct tbg_maps *maps, char ret[TBG_UNFOLLOWED_LEN])
{
	char why[200];

	ret[0] = 0;
	if (!unfollowed(u, maps))
		return;
	pthread_mutex_lock(&u->lock);
	reason(u, on, why, sizeof(why));
	pthread_mutex_unlock(&u->lock);
	snprintf(ret, TBG_UNFOLLOWED_LEN, "follows none of its connections: %s",
		 why[0] ? why : "toboggan stats counts the packets that its programs saw");
}
