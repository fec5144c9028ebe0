// SPDX-License-Identifier: GPL-2.0
/* Test runs of programs, see ask.h. */
#include "tiers/ask.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <bpf/bpf.h>

#include "abi/ask.h"
#include "core/span.h"
#include "tiers/segment.h"
#include "tiers/sock.h"
#include "tiers/wire.h"

#define LOOPBACK 1		/* the ifindex of lo in every namespace */

/*
 * A frame of this size occupies a page, so that no reply is limited by the
 * size of a small buffer (tbg_reply_true()).
 */
#define FRAME_BYTES 3072

/* For a request that is too long, one byte more than the maximum suffices. */
static size_t asked_len(const struct tbg_question *q)
{
	return q->len <= TBG_REQ_MAX ? q->len : TBG_REQ_MAX + 1;
}

/* Runs the program on a frame with this context; returns its result. */
static int run(int fd, const uint8_t frame[FRAME_BYTES], struct __sk_buff *ctx)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = FRAME_BYTES,
		    .ctx_in = ctx, .ctx_size_in = sizeof(*ctx), .repeat = 1);
	int err = bpf_prog_test_run_opts(fd, &opts);

	if (err)
		return err;
	return opts.retval & TBG_ASKED ? (int)(opts.retval & ~TBG_ASKED) : -EPROTO;
}

/* Sets *ret to an address of the interface, or leaves it zero. */
static void address_of(int ifindex, bool v6, uint32_t ret[4])
{
	char name[IF_NAMESIZE];
	struct ifaddrs *all;

	if (!v6)
		ret[2] = htonl(0xffff);
	if (!if_indextoname(ifindex, name) || getifaddrs(&all))
		return;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr_in6 *six = (void *)i->ifa_addr;
		const struct sockaddr_in *four = (void *)i->ifa_addr;

		if (!four || strcmp(i->ifa_name, name) ||
		    four->sin_family != (v6 ? AF_INET6 : AF_INET) ||
		    (v6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)))
			continue;
		if (v6)
			memcpy(ret, &six->sin6_addr, 16);
		else
			ret[3] = four->sin_addr.s_addr;
		break;
	}
	freeifaddrs(all);
}

static int ask(const struct tbg_wire *w, const struct tbg_question *q, uint32_t tier,
	       const struct tbg_pair_key *pair)
{
	struct __sk_buff ctx = { .ifindex = q->ifindex, .cb = { TBG_ASK_WHY, tier } };
	struct tbg_tcb tcb = { .rcv_nxt = 1, .acked = 1, .tsrecent = 1, .tsval = 1,
			       .flags = TBG_FLOW_TS | (q->v6 ? TBG_FLOW_V6 : 0) };
	struct tbg_tcb_key key = { 0 };
	uint8_t frame[FRAME_BYTES] = { 0 };
	struct tbg_segment f;

	memcpy(key.flow.remote, q->client, sizeof(key.flow.remote));
	memcpy(key.flow.local, pair->local, sizeof(key.flow.local));
	key.flow.local_port = pair->port;
	tbg_segment_make(&f, &key, &tcb, q->b, asked_len(q));
	memcpy(frame, f.b, f.len);
	return run(tbg_wire_ask_fd(w), frame, &ctx);
}

int tbg_ask_wire(struct tbg_wire *w, const struct tbg_question *q)
{
	const struct tbg_routes *routes = tbg_wire_routes(w);
	struct tbg_pair_key pair = { 0 };

	if (routes && (routes->vrfs || routes->asks & (q->v6 ? TBG_ASKS_V6 : TBG_ASKS_V4)) &&
	    q->client[0] | q->client[1] | q->client[2] | q->client[3]) {
		memcpy(pair.client, q->client, sizeof(pair.client));
		address_of(q->ifindex, q->v6, pair.local);
		tbg_wire_pair_ask(w, &pair, q->ifindex);
	}
	return ask(w, q, TBG_ASK_WIRE, &pair);
}

int tbg_ask_sock(const struct tbg_sock *s, const struct tbg_wire *wire,
		 const struct tbg_question *q)
{
	struct __sk_buff ctx = { .ifindex = LOOPBACK, .cb = { asked_len(q) } };
	struct tbg_question here = *q;
	const struct tbg_pair_key none = { 0 };
	uint8_t frame[FRAME_BYTES] = { 0 };

	here.ifindex = LOOPBACK;
	if (wire)
		return ask(wire, &here, TBG_ASK_SOCK, &none);
	memcpy(ctx.cb + 1, q->client, sizeof(q->client));
	memcpy(frame + ETH_HLEN, q->b, asked_len(q));
	return run(tbg_sock_ask_fd(s), frame, &ctx);
}
