// SPDX-License-Identifier: GPL-2.0
/*
 * Routes by longest match of the remote address, see ways.h. The kernel looks up the
 * local table first; its entries are full addresses, so the longest match finds them
 * first, too.
 */
#include "tiers/ways.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <bpf/bpf.h>

#include "tiers/links.h"
#include "tiers/netlink.h"

#define LOOPBACK 1	/* LOOPBACK_IFINDEX: the interface for addresses of this host */

void tbg_ways_close(struct tbg_ways *w)
{
	free(w->at);
	free(w->set);
	free(w->iface);
	*w = (struct tbg_ways){ 0 };
}

static uint32_t number_of(const struct nlmsghdr *h, uint16_t type)
{
	return tbg_attr_number(tbg_attr_of(h, sizeof(struct rtmsg), type));
}

static uint32_t hash_add(uint32_t hash, const void *b, size_t len)
{
	const uint8_t *at = b;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ at[i]) * 0x1000193;	/* FNV-1a */
	return hash;
}

/* A hash of the route as the kernel reports it, without the rest of its lifetime. */
static uint32_t id_of(const struct nlmsghdr *h)
{
	uint32_t id = hash_add(0x811c9dc5, mnl_nlmsg_get_payload(h), sizeof(struct rtmsg));
	const struct nlattr *a;

	mnl_attr_for_each(a, h, sizeof(struct rtmsg))
		if (mnl_attr_get_type(a) != RTA_CACHEINFO)
			id = hash_add(id, a, a->nla_len);
	return id;
}

/* Adds an interface; with too many, removes all. */
static void iface_add(struct tbg_way *way, uint32_t ifindex)
{
	for (int i = 0; i < TBG_WAY_IFACES; i++) {
		if (way->ifindex[i] == ifindex)
			return;
		if (!way->ifindex[i]) {
			way->ifindex[i] = ifindex;
			return;
		}
	}
	memset(way->ifindex, 0, sizeof(way->ifindex));
}

/* The kernel wraps what it sends by this hop (MPLS, SRv6, tunnels with metadata). */
static bool hop_wraps(const struct rtnexthop *hop)
{
	const struct rtattr *a = RTNH_DATA(hop);
	int len = hop->rtnh_len - RTNH_LENGTH(0);

	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if ((a->rta_type & NLA_TYPE_MASK) == RTA_ENCAP)
			return true;
	return false;
}

/* Adds the interfaces of a route; none if the kernel wraps what it sends there. */
static void hops_add(struct tbg_way *way, const struct nlmsghdr *h)
{
	const struct nlattr *several = tbg_attr_of(h, sizeof(struct rtmsg), RTA_MULTIPATH);
	const struct rtnexthop *hop;
	int len;

	if (!several) {
		if (!tbg_attr_of(h, sizeof(struct rtmsg), RTA_ENCAP))
			iface_add(way, number_of(h, RTA_OIF));
		return;
	}
	hop = mnl_attr_get_payload(several);
	len = mnl_attr_get_payload_len(several);
	for (; RTNH_OK(hop, len); len -= RTNH_ALIGN(hop->rtnh_len), hop = RTNH_NEXT(hop)) {
		if (hop_wraps(hop)) {
			memset(way->ifindex, 0, sizeof(way->ifindex));
			return;
		}
		if (!(hop->rtnh_flags & RTNH_F_DEAD))
			iface_add(way, hop->rtnh_ifindex);
	}
}

/* The rank: metric, then router preference (RFC 4191). */
static uint64_t rank_of(const struct nlmsghdr *h)
{
	/* medium, high, reserved, low (RFC 4191 2.1) */
	static const unsigned char places[4] = { 1, 0, 1, 2 };
	const struct nlattr *pref = tbg_attr_of(h, sizeof(struct rtmsg), RTA_PREF);
	unsigned int place = 1;

	if (pref && mnl_attr_validate(pref, MNL_TYPE_U8) >= 0)
		place = places[mnl_attr_get_u8(pref) & 3];
	return (uint64_t)number_of(h, RTA_PRIORITY) << 2 | place;
}

static bool key_of(const struct nlmsghdr *h, struct tbg_way_key *ret)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	const struct nlattr *to = tbg_attr_of(h, sizeof(*rt), RTA_DST);
	bool v4 = rt->rtm_family == AF_INET;
	size_t size = v4 ? 4 : 16;

	*ret = (struct tbg_way_key){ .bits = rt->rtm_dst_len + (v4 ? 96 : 0) };
	if (v4)
		memset((char *)ret->address + 10, 0xff, 2);
	if (ret->bits > 128 || (to && mnl_attr_get_payload_len(to) != size))
		return false;
	if (to)
		memcpy((char *)ret->address + 16 - size, mnl_attr_get_payload(to), size);
	return true;
}

void tbg_way_read(const struct nlmsghdr *h, struct tbg_way *ret)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);

	*ret = (struct tbg_way){ .id = id_of(h) };
	if (rt->rtm_type == RTN_UNICAST)
		hops_add(ret, h);
	else if (rt->rtm_type == RTN_LOCAL)
		iface_add(ret, LOOPBACK);
	/* else, for example of a broadcast address, there is no way */
}

/* Adds an interface to the list of all; false: there is no memory. */
static bool iface_note(struct tbg_ways *w, uint32_t ifindex)
{
	/* often the same as before */
	for (unsigned int i = w->iface_nr; i; i--)
		if (w->iface[i - 1] == ifindex)
			return true;
	if (w->iface_nr == w->iface_room) {
		unsigned int room = w->iface_room ? 2 * w->iface_room : 16;
		uint32_t *at = realloc(w->iface, room * sizeof(*at));

		if (!at)
			return false;
		w->iface = at;
		w->iface_room = room;
	}
	w->iface[w->iface_nr++] = ifindex;
	return true;
}

static bool ifaces_note(struct tbg_ways *w, const struct tbg_way *way)
{
	bool ret = true;

	for (int i = 0; i < TBG_WAY_IFACES && way->ifindex[i]; i++)
		ret &= iface_note(w, way->ifindex[i]);
	return ret;
}

static struct tbg_way_entry *entry_new(struct tbg_ways *w)
{
	if (w->nr == w->room) {
		unsigned int room = w->room ? 2 * w->room : 64;
		struct tbg_way_entry *at = realloc(w->at, room * sizeof(*at));

		if (!at)
			return NULL;
		w->at = at;
		w->room = room;
	}
	return &w->at[w->nr++];
}

/* Adds addresses of IPv4 without a way, of the first rank. */
static void nobody_add(struct tbg_ways *w, uint32_t addr, unsigned int bits)
{
	struct tbg_way_entry *at = entry_new(w);

	if (!at)
		return;		/* then there is none for any route */
	*at = (struct tbg_way_entry){ .key = { .bits = 96 + bits } };
	memset((char *)at->key.address + 10, 0xff, 2);
	at->key.address[3] = htonl(addr);
}

void tbg_ways_begin(struct tbg_ways *w)
{
	w->nr = w->iface_nr = 0;
	w->read = true;
	w->more = false;
	/*
	 * No packet may be from there, whatever the routes (ip_route_input_slow). The
	 * addresses of IPv6 and the broadcast addresses of subnets are routes.
	 */
	nobody_add(w, INADDR_ANY, 32);
	nobody_add(w, INADDR_UNSPEC_GROUP, 4);
	nobody_add(w, INADDR_BROADCAST, 32);
}

/* Whether the entry is for an address of this host, or for clients that nobody is. */
static bool is_for_us(const struct tbg_way_entry *e)
{
	return !e->way.ifindex[0] || e->way.ifindex[0] == LOOPBACK;
}

/* Keeps entries for this host's addresses alone: the kernel is asked for the ways to others. */
static void reduce(struct tbg_ways *w)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < w->nr; i++)
		if (is_for_us(&w->at[i]))
			w->at[nr++] = w->at[i];
	w->nr = nr;
	w->more = true;
}

/* Adds an entry. Returns as tbg_ways_add(). */
static const char *entry_add(struct tbg_ways *w, const struct tbg_way_entry *e, bool *ret_asks)
{
	struct tbg_way_entry *at;

	if (w->nr == TBG_WAYS_MAX && !w->more)
		reduce(w);
	*ret_asks = w->more && w->nr < TBG_WAYS_MAX;
	at = w->more && (!is_for_us(e) || w->nr == TBG_WAYS_MAX) ? NULL : entry_new(w);
	if (at)
		*at = *e;
	if (w->more)
		return "is beyond the 65536th";
	return at ? NULL : "finds no memory";
}

const char *tbg_ways_add(struct tbg_ways *w, const struct nlmsghdr *h, bool *ret_asks)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	uint32_t table = number_of(h, RTA_TABLE) ?: rt->rtm_table;
	struct tbg_way_entry e = { .rank = rank_of(h) };

	*ret_asks = false;
	if ((rt->rtm_family != AF_INET && rt->rtm_family != AF_INET6) ||
	    rt->rtm_flags & RTNH_F_DEAD)
		return NULL;
	tbg_way_read(h, &e.way);
	if (rt->rtm_type == RTN_UNICAST && !ifaces_note(w, &e.way))
		return "finds no memory";
	*ret_asks = true;
	if (table == RT_TABLE_DEFAULT)
		return "is in the table default";
	if (table != RT_TABLE_MAIN && table != RT_TABLE_LOCAL)
		return NULL;
	if (rt->rtm_src_len)
		return "is for some sources alone";
	if (rt->rtm_tos)
		return "is for one TOS alone";
	*ret_asks = false;
	return key_of(h, &e.key) ? entry_add(w, &e, ret_asks) : "cannot be read";
}

static int key_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct tbg_way_key));	/* key is the first member */
}

static int entry_order(const void *a, const void *b)
{
	const struct tbg_way_entry *x = a, *y = b;
	int ret = key_order(a, b);

	return ret ?: (x->rank > y->rank) - (x->rank < y->rank);
}

/* Adds another route of the same rank. Routes of one rank may come in any order. */
static void way_add(struct tbg_way *way, const struct tbg_way *more)
{
	way->id += more->id;
	for (int i = 0; i < TBG_WAY_IFACES && way->ifindex[0] && more->ifindex[i]; i++)
		iface_add(way, more->ifindex[i]);
}

/* Keeps one entry for each key: the routes with the least rank. */
static void join(struct tbg_ways *w)
{
	unsigned int nr = 0;

	qsort(w->at, w->nr, sizeof(*w->at), entry_order);
	for (unsigned int i = 0; i < w->nr; i++) {
		struct tbg_way_entry *last = nr ? &w->at[nr - 1] : NULL, *e = &w->at[i];

		if (!last || key_order(last, e)) {
			w->at[nr++] = *e;
			continue;
		}
		if (last->rank == e->rank)
			way_add(&last->way, &e->way);
	}
	w->nr = nr;
}

/* Empties the map after an error, so that it has no entry that is not in *w. */
static int give_up(struct tbg_ways *w, int map_fd, int err)
{
	for (unsigned int i = 0; i < w->set_nr; i++)
		bpf_map_delete_elem(map_fd, &w->set[i].key);
	for (unsigned int i = 0; i < w->nr; i++)
		bpf_map_delete_elem(map_fd, &w->at[i].key);
	w->set_nr = 0;
	w->read = false;
	return err;
}

/*
 * Adds new entries first: an address may lack its entry for a moment, but never has a
 * wrong one.
 */
int tbg_ways_set(struct tbg_ways *w, int map_fd)
{
	const struct tbg_way_entry *old = w->set, *end = w->set + w->set_nr, *e;

	if (!w->read)
		return 0;
	join(w);
	for (e = w->at; e < w->at + w->nr; e++) {
		for (; old < end && key_order(old, e) < 0; old++)
			bpf_map_delete_elem(map_fd, &old->key);
		if (old < end && !key_order(old, e) &&
		    !memcmp(&old++->way, &e->way, sizeof(e->way)))
			continue;
		if (bpf_map_update_elem(map_fd, &e->key, &e->way, BPF_ANY))
			return give_up(w, map_fd, -errno);
	}
	for (; old < end; old++)
		bpf_map_delete_elem(map_fd, &old->key);
	/* the next reading reuses the memory */
	*w = (struct tbg_ways){
		.at = w->set, .room = w->set_room,
		.set = w->at, .set_nr = w->nr, .set_room = w->room,
		.iface = w->iface, .iface_nr = w->iface_nr, .iface_room = w->iface_room,
	};
	return 0;
}

static int above_set(const struct tbg_links *links, int map_fd, uint32_t above, int below)
{
	struct tbg_above_key key = { .above = above, .below = below };
	struct tbg_above value = { 0 };

	if (tbg_links_above(links, above, below, &value))
		return bpf_map_update_elem(map_fd, &key, &value, BPF_ANY) ? -errno : 0;
	bpf_map_delete_elem(map_fd, &key);
	return 0;
}

/* Entries of former interfaces do no harm: unused. */
int tbg_ways_aboves(const struct tbg_ways *w, const struct tbg_links *links, int map_fd,
		    const int *below, unsigned int nr)
{
	for (unsigned int i = 0; i < w->iface_nr; i++)
		for (unsigned int k = 0; k < nr; k++) {
			int err = (int)w->iface[i] == below[k] ? 0 :
				  above_set(links, map_fd, w->iface[i], below[k]);

			if (err)
				return err;
		}
	return 0;
}
