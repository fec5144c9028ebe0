// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches the guard to the daemon's cgroup; resets connections that it has cut off.
 */
#include "tiers/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "core/csum.h"
#include "os/cgroup.h"
#include "os/message.h"
#include "os/privilege.h"
#include "tiers/address.h"
#include "tiers/attach.h"

#define TBG_GUARDS_MAX 64	/* programs on one cgroup: BPF_CGROUP_MAX_PROGS */
#define TBG_RESET_TTL 64
#define TBG_RESET_TIMES 3	/* a lost reset is not requested again */
#define TBG_RESET_TICKS 60	/* attempts without a route to the client */

static int attach(const struct tbg_guard *g)
{
	return bpf_prog_attach(g->prog_fd, g->cgroup_fd, BPF_CGROUP_INET_EGRESS,
			       BPF_F_ALLOW_MULTI);
}

int tbg_guard_open(struct tbg_guard *ret, int prog_fd, char *ret_why, size_t why_len)
{
	struct tbg_guard g = { .prog_fd = prog_fd, .lock = PTHREAD_MUTEX_INITIALIZER };
	int err;

	g.cgroup_fd = tbg_cgroup_open();
	if (g.cgroup_fd < 0) {
		snprintf(ret_why, why_len, "the daemon's cgroup (version 2) cannot be opened: %s",
			 strerror(-g.cgroup_fd));
		return g.cgroup_fd;
	}
	err = attach(&g);
	if (err) {
		snprintf(ret_why, why_len, "no program can be attached to the daemon's cgroup: %s",
			 strerror(-err));
		close(g.cgroup_fd);
		return err;
	}
	g.reset_fd[0] = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	g.reset_fd[1] = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	*ret = g;
	return 0;
}

/* Whether it is still attached, or this cannot be asked. */
static bool is_attached(const struct tbg_guard *g)
{
	uint32_t ids[TBG_GUARDS_MAX], nr = TBG_GUARDS_MAX, id = tbg_prog_id(g->prog_fd), flags;

	if (bpf_prog_query(g->cgroup_fd, BPF_CGROUP_INET_EGRESS, 0, &flags, ids, &nr))
		return true;
	for (uint32_t i = 0; i < nr; i++)
		if (ids[i] == id)
			return true;
	return false;
}

bool tbg_guard_keep(struct tbg_guard *g)
{
	bool ret = true;

	if (g->cgroup_fd < 0)
		return true;
	tbg_privilege_raise();
	if (!is_attached(g)) {
		ret = !attach(g);
		if (ret)
			tbg_warn("toboggand: wire: its guard was removed from the daemon's cgroup by another program; attached again");
	}
	tbg_privilege_lower();
	return ret;
}

void tbg_guard_close(struct tbg_guard *g)
{
	if (g->cgroup_fd < 0)
		return;
	bpf_prog_detach2(g->prog_fd, g->cgroup_fd, BPF_CGROUP_INET_EGRESS);
	close(g->cgroup_fd);
	g->cgroup_fd = -1;
	for (int i = 0; i < 2; i++)
		if (g->reset_fd[i] >= 0)
			close(g->reset_fd[i]);
}

void tbg_guard_sweep(const struct tbg_guard *g,
		     bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns)
{
	uint32_t ids[TBG_GUARDS_MAX], nr = TBG_GUARDS_MAX, flags;

	if (g->cgroup_fd < 0 ||
	    bpf_prog_query(g->cgroup_fd, BPF_CGROUP_INET_EGRESS, 0, &flags, ids, &nr))
		return;
	for (uint32_t i = 0; i < nr; i++) {
		int fd = bpf_prog_get_fd_by_id(ids[i]), flows;

		if (fd < 0)
			continue;
		if (tbg_prog_is_left(fd, "tbg_guard", &flows)) {
			if (flows < 0 || !needed(flows, now_ns))
				bpf_prog_detach2(fd, g->cgroup_fd, BPF_CGROUP_INET_EGRESS);
			if (flows >= 0)
				close(flows);
		}
		close(fd);
	}
}

static struct tcphdr reset_of(const struct tbg_flow_key *key, uint32_t seq, uint32_t ack)
{
	struct tcphdr ret = {
		.source = key->local_port,
		.dest = key->remote_port,
		.seq = htonl(seq),
		.ack_seq = htonl(ack),
		.doff = sizeof(ret) / 4,
		.rst = 1,
		.ack = 1,
	};
	uint64_t sum = htons(IPPROTO_TCP) + htons(sizeof(ret));

	/* a mapped address has the same sum as the IPv4 address: its ffff counts as zero */
	sum += tbg_csum_bytes(key->local, sizeof(key->local));
	sum += tbg_csum_bytes(key->remote, sizeof(key->remote));
	ret.check = ~tbg_csum_fold(sum + tbg_csum_bytes(&ret, sizeof(ret)));
	return ret;
}

/* Sends the reset; true: it was sent. */
static bool reset_send(const struct tbg_guard *g, const struct tbg_flow_key *key,
		       uint32_t seq, uint32_t ack)
{
	struct {
		struct ip ip;
		struct tcphdr tcp;
	} __attribute__((packed)) v4 = {
		.ip = { .ip_v = 4, .ip_hl = 5, .ip_ttl = TBG_RESET_TTL,
			.ip_p = IPPROTO_TCP, .ip_len = htons(sizeof(v4)),
			.ip_off = htons(IP_DF) },
		.tcp = reset_of(key, seq, ack),
	};
	struct {
		struct ip6_hdr ip;
		struct tcphdr tcp;
	} __attribute__((packed)) v6 = { .tcp = v4.tcp };
	struct sockaddr_in to4 = { .sin_family = AF_INET };
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6 };

	if (tbg_is_v4(key->local)) {
		v4.ip.ip_src.s_addr = key->local[3];
		v4.ip.ip_dst.s_addr = to4.sin_addr.s_addr = key->remote[3];
		return sendto(g->reset_fd[0], &v4, sizeof(v4), MSG_DONTWAIT,
			      (void *)&to4, sizeof(to4)) == sizeof(v4);
	}
	v6.ip.ip6_flow = htonl(6u << 28);
	v6.ip.ip6_plen = htons(sizeof(v6.tcp));
	v6.ip.ip6_nxt = IPPROTO_TCP;
	v6.ip.ip6_hlim = TBG_RESET_TTL;
	memcpy(&v6.ip.ip6_src, key->local, 16);
	memcpy(&v6.ip.ip6_dst, key->remote, 16);
	memcpy(&to6.sin6_addr, key->remote, 16);
	return sendto(g->reset_fd[1], &v6, sizeof(v6), MSG_DONTWAIT,
		      (void *)&to6, sizeof(to6)) == sizeof(v6);
}

void tbg_guard_reset(struct tbg_guard *g, const struct tbg_flow_key *key,
		     uint32_t seq, uint32_t ack)
{
	bool sent = reset_send(g, key, seq, ack);

	pthread_mutex_lock(&g->lock);
	/* full: replace one that was sent, and has probably arrived */
	if (g->reset_nr < TBG_RESETS_MAX)
		g->reset[g->reset_nr++] = (struct tbg_reset){
			.key = *key, .seq = seq, .ack = ack, .sent = sent,
		};
	pthread_mutex_unlock(&g->lock);
}

void tbg_guard_tick(struct tbg_guard *g)
{
	unsigned int kept = 0;

	pthread_mutex_lock(&g->lock);
	for (unsigned int i = 0; i < g->reset_nr; i++) {
		struct tbg_reset *r = &g->reset[i];

		r->sent += reset_send(g, &r->key, r->seq, r->ack);
		if (r->sent < TBG_RESET_TIMES && ++r->ticks < TBG_RESET_TICKS)
			g->reset[kept++] = *r;
	}
	g->reset_nr = kept;
	pthread_mutex_unlock(&g->lock);
}
