// SPDX-License-Identifier: GPL-2.0
/*
 * Questions about routes by rtnetlink, see pairs.h. They state what the kernel itself knows of
 * a socket of the daemon when it looks up a route for it (inet_csk_route_req and others): both
 * addresses, TCP, the local port, the user, the VRF; neither a mark nor a type of service.
 */
#include "tiers/pairs.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <bpf/bpf.h>

#include "tiers/address.h"
#include "tiers/netlink.h"
#include "tiers/tcb.h"
#include "tiers/ways.h"

#define ANSWER_BYTES	8192	/* a route with its next hops */
#define RENEWED_MOST	1024	/* answers renewed after a change; others when they are needed */
#define READ_BATCH	256
#define LOOPBACK	1	/* tbg_way_read() gives it to addresses of this host */

void tbg_pairs_open(struct tbg_pairs *p, int pairs_fd, int asks_fd, uid_t user)
{
	*p = (struct tbg_pairs){ .pairs_fd = pairs_fd, .asks_fd = asks_fd, .user = user };
}

/* At the first question: most hosts need none. */
static bool is_connected(struct tbg_pairs *p)
{
	if (p->nl)
		return true;
	p->nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	if (p->nl && mnl_socket_bind(p->nl, 0, MNL_SOCKET_AUTOPID))
		tbg_pairs_close(p);
	return p->nl;
}

void tbg_pairs_close(struct tbg_pairs *p)
{
	if (p->nl)
		mnl_socket_close(p->nl);
	p->nl = NULL;
}

static bool is_any(const uint32_t address[4], bool v4)
{
	return v4 ? !address[3] : !(address[0] | address[1] | address[2] | address[3]);
}

/* Adds an address; returns how many of its bits count. */
static uint8_t address_put(struct nlmsghdr *h, uint16_t type, const uint32_t address[4], bool v4)
{
	if (is_any(address, v4))
		return 0;
	mnl_attr_put(h, type, v4 ? 4 : 16, address + (v4 ? 3 : 0));
	return v4 ? 32 : 128;
}

static struct nlmsghdr *question(char *buf, const struct tbg_pairs *p,
				 const struct tbg_pair_key *key)
{
	bool v4 = tbg_is_v4(key->client);
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtmsg *rt = mnl_nlmsg_put_extra_header(h, sizeof(*rt));

	h->nlmsg_type = RTM_GETROUTE;
	h->nlmsg_flags = NLM_F_REQUEST;
	h->nlmsg_seq = p->seq;
	rt->rtm_family = v4 ? AF_INET : AF_INET6;
	rt->rtm_flags = RTM_F_FIB_MATCH;	/* the route itself, with all its next hops */
	rt->rtm_dst_len = address_put(h, RTA_DST, key->client, v4);
	rt->rtm_src_len = address_put(h, RTA_SRC, key->local, v4);
	mnl_attr_put_u8(h, RTA_IP_PROTO, IPPROTO_TCP);
	if (key->port)
		mnl_attr_put_u16(h, RTA_SPORT, key->port);
	mnl_attr_put_u32(h, RTA_UID, p->user);
	if (key->vrf)
		mnl_attr_put_u32(h, RTA_OIF, key->vrf);
	return h;
}

static int route_read(const struct nlmsghdr *h, void *ret)
{
	if (h->nlmsg_type == RTM_NEWROUTE)
		tbg_way_read(h, ret);
	return MNL_CB_STOP;
}

/* Reads the answer to the last question: answers to earlier ones may have been left. */
static void answer_read(const struct tbg_pairs *p, struct tbg_way *ret)
{
	char buf[ANSWER_BYTES] __attribute__((aligned(8)));
	unsigned int port = mnl_socket_get_portid(p->nl);
	struct nlmsghdr *h = (void *)buf;
	ssize_t len;

	do
		len = mnl_socket_recvfrom(p->nl, buf, sizeof(buf));
	while (len >= (ssize_t)sizeof(*h) && h->nlmsg_seq != p->seq);
	if (len > 0)
		mnl_cb_run(buf, len, p->seq, port, route_read, ret);
}

/* Sets *ret to the way; all zero if the kernel sends nothing there, or does not answer. */
static void ask(struct tbg_pairs *p, const struct tbg_pair_key *key, struct tbg_way *ret)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct rtmsg) + 128] __attribute__((aligned(8)));
	struct nlmsghdr *h;

	memset(ret, 0, sizeof(*ret));
	p->seq++;
	h = question(buf, p, key);
	if (is_connected(p) && mnl_socket_sendto(p->nl, h, h->nlmsg_len) >= 0)
		answer_read(p, ret);
}

/*
 * Whether the address is this host's in the VRF: tbg_ways does not know, and the kernel itself
 * checks the source of a question for IPv4 alone, whatever the VRF.
 */
static bool is_local(struct tbg_pairs *p, const struct tbg_pair_key *key)
{
	struct tbg_pair_key to = { .vrf = key->vrf };
	struct tbg_way way;

	memcpy(to.client, key->local, sizeof(to.client));
	if (tbg_is_v4(key->local))
		to.local[2] = htonl(0xffff);
	ask(p, &to, &way);
	return way.ifindex[0] == LOOPBACK;
}

static void pair_set(struct tbg_pairs *p, const struct tbg_pair_key *key, uint32_t asked_ms,
		     uint32_t ways)
{
	struct tbg_pair pair = { .key = *key, .asked_ms = asked_ms, .ways = ways };

	if (!key->vrf || is_local(p, key))
		ask(p, key, &pair.way);
	bpf_map_update_elem(p->pairs_fd, key, &pair, BPF_ANY);
}

/* Calls fn for each pair and its answer, until it returns false. Returns how many there are. */
static unsigned int pairs_read(struct tbg_pairs *p,
			       bool (*fn)(struct tbg_pairs *p, const struct tbg_pair_key *key,
					  const struct tbg_pair *pair, void *arg),
			       void *arg)
{
	struct tbg_pair_key keys[READ_BATCH];
	struct tbg_pair pairs[READ_BATCH];
	uint32_t token, *in = NULL;
	unsigned int found = 0;
	int err = 0;

	while (!err) {
		uint32_t nr = READ_BATCH;

		err = bpf_map_lookup_batch(p->pairs_fd, in, &token, keys, pairs, &nr, NULL);
		if (err && err != -ENOENT)
			break;
		in = &token;
		found += nr;
		for (uint32_t i = 0; i < nr; i++)
			if (!fn(p, &keys[i], &pairs[i], arg))
				return found;
	}
	return found;
}

static bool sweep_one(struct tbg_pairs *p, const struct tbg_pair_key *key,
		      const struct tbg_pair *pair, void *now_ms)
{
	if (*(uint32_t *)now_ms - pair->asked_ms >= TBG_PAIR_MS)
		bpf_map_delete_elem(p->pairs_fd, key);
	return true;
}

static void sweep(struct tbg_pairs *p, uint64_t now_ns)
{
	uint32_t now_ms = now_ns / 1000000;

	if (!p->nr || now_ns - p->swept_ns < TBG_PAIRS_SWEEP_MS * 1000000ull)
		return;
	p->swept_ns = now_ns;
	p->nr = pairs_read(p, sweep_one, &now_ms);
}

/* Counts the questions that time has allowed since; no more than those of a second. */
static void tokens_fill(struct tbg_pairs *p, uint64_t now_ns)
{
	uint64_t gap_ns = 1000000000ull / TBG_PAIRS_A_SECOND;
	uint64_t more = (now_ns - p->filled_ns) / gap_ns;

	p->filled_ns += more * gap_ns;
	more += p->tokens;
	p->tokens = more < TBG_PAIRS_A_SECOND ? more : TBG_PAIRS_A_SECOND;
}

static void token_spend(struct tbg_pairs *p, const struct tbg_pair_key *key, uint32_t ways,
			uint64_t now_ns)
{
	tbg_pairs_ask(p, key, ways, now_ns);
	p->tokens--;
}

/*
 * Takes one of the pairs that BPF wants to know, each in its turn: others that come meanwhile
 * do not push it back. The one behind it is read first, since the kernel begins again behind a
 * key that is gone.
 */
static bool wanted_take(struct tbg_pairs *p, struct tbg_pair_key *ret)
{
	if (!p->has_next && bpf_map_get_next_key(p->asks_fd, NULL, &p->next))
		return false;
	*ret = p->next;
	p->has_next = !bpf_map_get_next_key(p->asks_fd, ret, &p->next);
	return !bpf_map_delete_elem(p->asks_fd, ret);
}

void tbg_pairs_answer(struct tbg_pairs *p, uint32_t ways, uint64_t now_ns)
{
	struct tbg_pair_key key;

	sweep(p, now_ns);
	tokens_fill(p, now_ns);
	while (p->tokens && wanted_take(p, &key))
		token_spend(p, &key, ways, now_ns);
}

struct keeping {
	struct tbg_pairs *p;
	uint32_t asks, ways;
	uint64_t now_ns;
};

/* Half of the questions of a second are left to new clients. */
static bool keep_one(const struct tbg_tcb_key *tcb_key, const struct tbg_tcb *tcb, void *arg)
{
	const struct tbg_flow_key *flow = &tcb_key->flow;
	struct tbg_pair_key key = { .vrf = tcb_key->vrf, .port = flow->local_port };
	const struct keeping *k = arg;
	uint32_t now_ms = k->now_ns / 1000000;
	struct tbg_pair pair;

	if (tcb->state == TBG_TCB_HANDED || tcb->state == TBG_TCB_TIME_WAIT ||
	    !(key.vrf || k->asks & (tbg_is_v4(flow->remote) ? TBG_ASKS_V4 : TBG_ASKS_V6)))
		return true;
	memcpy(key.client, flow->remote, sizeof(key.client));
	memcpy(key.local, flow->local, sizeof(key.local));
	if (bpf_map_lookup_elem(k->p->pairs_fd, &key, &pair) ||
	    now_ms - pair.asked_ms >= TBG_PAIR_AGAIN_MS || pair.ways != k->ways)
		token_spend(k->p, &key, k->ways, k->now_ns);
	return k->p->tokens > TBG_PAIRS_A_SECOND / 2;
}

void tbg_pairs_keep(struct tbg_pairs *p, const struct tbg_tcbs *tcbs, uint32_t asks,
		    uint32_t ways, uint64_t now_ns)
{
	struct keeping k = { .p = p, .asks = asks, .ways = ways, .now_ns = now_ns };

	tokens_fill(p, now_ns);
	if (p->tokens > TBG_PAIRS_A_SECOND / 2)
		tbg_tcbs_read(tcbs, keep_one, &k);
}

struct renewal {
	uint32_t ways;
	unsigned int left;
};

static bool renew_one(struct tbg_pairs *p, const struct tbg_pair_key *key,
		      const struct tbg_pair *pair, void *arg)
{
	struct renewal *r = arg;

	/* as old as before: an answer that nobody needs any more is removed some time */
	pair_set(p, key, pair->asked_ms, r->ways);
	return --r->left;
}

void tbg_pairs_renew(struct tbg_pairs *p, uint32_t ways)
{
	struct renewal r = { .ways = ways, .left = RENEWED_MOST };

	if (p->nr && p->ways != ways)
		pairs_read(p, renew_one, &r);
	p->ways = ways;
}

void tbg_pairs_ask(struct tbg_pairs *p, const struct tbg_pair_key *key, uint32_t ways,
		   uint64_t now_ns)
{
	pair_set(p, key, now_ns / 1000000, ways);
	p->nr++;
}
