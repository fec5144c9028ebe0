// SPDX-License-Identifier: GPL-2.0
/*
 * Asks netfilter for its base chains: nftables by netlink, with the changes that it
 * sends to all who listen; iptables-legacy, which has no netlink, by the tables that
 * its proc file names. What cannot be asked counts as a filter.
 */
#include "tiers/births.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "abi/knob.h"

#define ANSWER_S 2		/* the kernel answers at once, or not at all */
#define NEWS_BYTES 65536
#define ASK_SEQ 0x74626701	/* of our question, beside which changes come */

static const char *const table_files[2] = {
	"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names",
};

static int nft_open(void)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK,
				  .nl_groups = 1u << (NFNLGRP_NFTABLES - 1) };
	struct timeval limit = { .tv_sec = ANSWER_S };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

	if (fd < 0)
		return -errno;
	if (bind(fd, (void *)&to, sizeof(to)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit))) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* Of attribute type within the len bytes at a; NULL: there is none. */
static const struct nlattr *attr_find(const struct nlattr *a, size_t len, int type)
{
	while (len >= sizeof(*a) && a->nla_len >= sizeof(*a) && a->nla_len <= len) {
		size_t step = NLA_ALIGN(a->nla_len);

		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		if (step >= len)
			break;
		len -= step;
		a = (const void *)((const uint8_t *)a + step);
	}
	return NULL;
}

static const char *attr_text(const struct nlattr *a)
{
	return a ? (const char *)a + NLA_HDRLEN : "?";
}

/* Where a chain of this family is asked before a SYN gets to a listener; NULL: nowhere. */
static const char *hook_name(unsigned int family, uint32_t hook)
{
	switch (family) {
	case NFPROTO_INET:
	case NFPROTO_IPV4:
	case NFPROTO_IPV6:
		if (hook == NF_INET_PRE_ROUTING)
			return "prerouting";
		if (hook == NF_INET_LOCAL_IN)
			return "input";
		return family == NFPROTO_INET && hook == NF_INET_INGRESS ? "ingress" : NULL;
	case NFPROTO_NETDEV:
		return hook == NF_NETDEV_INGRESS ? "ingress" : NULL;
	}
	return NULL;
}

/* A chain that netlink tells of: whether it filters, and then that in b->why. */
static bool chain_filters(struct tbg_births *b, const struct nlmsghdr *n)
{
	const struct nfgenmsg *g = NLMSG_DATA(n);
	const struct nlattr *a = (const void *)(g + 1), *hook, *at, *table, *name;
	size_t len = NLMSG_PAYLOAD(n, sizeof(*g));
	const char *where;
	uint32_t nr;

	hook = attr_find(a, len, NFTA_CHAIN_HOOK);
	at = hook ? attr_find((const void *)(hook + 1), hook->nla_len - NLA_HDRLEN,
			      NFTA_HOOK_HOOKNUM) : NULL;
	if (!at || at->nla_len < NLA_HDRLEN + sizeof(nr))
		return false;
	memcpy(&nr, (const uint8_t *)at + NLA_HDRLEN, sizeof(nr));
	where = hook_name(g->nfgen_family, ntohl(nr));
	if (!where)
		return false;
	table = attr_find(a, len, NFTA_CHAIN_TABLE);
	name = attr_find(a, len, NFTA_CHAIN_NAME);
	snprintf(b->why, sizeof(b->why), "nftables has a chain at %s: table %.40s, chain %.40s",
		 where, attr_text(table), attr_text(name));
	return true;
}

static int chains_send(int fd)
{
	struct {
		struct nlmsghdr n;
		struct nfgenmsg g;
	} ask = {
		.n = { .nlmsg_len = sizeof(ask),
		       .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = ASK_SEQ },
		.g = { .nfgen_family = NFPROTO_UNSPEC, .version = NFNETLINK_V0 },
	};

	return send(fd, &ask, sizeof(ask), 0) == sizeof(ask) ? 0 : -errno;
}

/* One datagram of the answer: 1 to go on, 0 at its end; *ret_filters. Negative errno. */
static int chains_read(struct tbg_births *b, bool *ret_filters)
{
	static uint8_t buf[NEWS_BYTES] __attribute__((aligned(8)));
	ssize_t got = recv(b->fd, buf, sizeof(buf), 0);
	size_t len = got > 0 ? got : 0;

	if (got < 0)
		return errno == ENOBUFS ? -EINTR : -errno;
	for (const struct nlmsghdr *n = (const void *)buf; NLMSG_OK(n, len);
	     n = NLMSG_NEXT(n, len)) {
		if (n->nlmsg_seq != ASK_SEQ)		/* a change: it is asked for at once */
			continue;
		if (n->nlmsg_type == NLMSG_ERROR)
			return ((const struct nlmsgerr *)NLMSG_DATA(n))->error ?: 0;
		if (n->nlmsg_flags & NLM_F_DUMP_INTR)
			return -EINTR;
		if (n->nlmsg_type == NLMSG_DONE)
			return 0;
		if (n->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN) &&
		    chain_filters(b, n))
			*ret_filters = true;
	}
	return 1;
}

/* What has come meanwhile says no more than that something has. */
static void news_drop(int fd)
{
	uint8_t byte;

	while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == ENOBUFS)
		;
}

/* Whether nftables has a chain that may filter, or cannot be asked. */
static bool nft_filters(struct tbg_births *b)
{
	bool filters = false;
	int err = b->fd < 0 ? b->fd : -EINTR;

	for (int i = 0; i < 5 && err == -EINTR; i++) {
		news_drop(b->fd);
		err = chains_send(b->fd);
		while (!err && (err = chains_read(b, &filters)) > 0)
			err = 0;
		if (!err)
			return filters;
	}
	/* a kernel without nftables has none of its chains */
	if (err == -EPROTONOSUPPORT || err == -EINVAL || err == -EOPNOTSUPP)
		return false;
	snprintf(b->why, sizeof(b->why), "nftables does not tell its chains: %s",
		 strerror(-err));
	return true;
}

/* The same of iptables-legacy: each table of it has a chain at prerouting or input. */
static bool tables_filter(struct tbg_births *b, int i)
{
	char names[64];
	ssize_t n;

	if (b->tables[i] < 0) {
		b->tables[i] = open(table_files[i], O_RDONLY | O_CLOEXEC);
		if (b->tables[i] < 0 && errno == ENOENT)
			return false;
	}
	n = b->tables[i] < 0 ? -1 : pread(b->tables[i], names, sizeof(names) - 1, 0);
	if (n < 0) {
		snprintf(b->why, sizeof(b->why), "%s: %s; iptables may filter",
			 table_files[i], strerror(errno));
		return true;
	}
	names[n] = 0;
	names[strcspn(names, "\n")] = 0;
	if (n)
		snprintf(b->why, sizeof(b->why), "iptables has the table %s (%s)", names,
			 i ? "IPv6" : "IPv4");
	return n;
}

/* A number of conntrack's in this namespace; negative: there is no conntrack. */
static int conntrack_number(const char *path)
{
	FILE *f = fopen(path, "re");
	int n = -1;

	if (f) {
		if (fscanf(f, "%d", &n) != 1)
			n = -1;
		fclose(f);
	}
	return n;
}

/* Behind a filter, whether conntrack takes a connection up in its middle. */
static void conntrack_ask(struct tbg_births *b)
{
	int loose = conntrack_number("/proc/sys/net/netfilter/nf_conntrack_tcp_loose");

	if (loose < 0 || (loose && b->forgets))
		return;
	b->mode = TBG_BIRTHS_NONE;
	snprintf(b->why, sizeof(b->why), "%s", loose ?
		 "conntrack came after the start, or its entries cannot be removed by BPF; start again" :
		 "conntrack takes up no connection in its middle (nf_conntrack_tcp_loose is 0)");
}

const char *tbg_births_text(const struct tbg_births *b)
{
	switch (b->mode) {
	case TBG_BIRTHS_KERNEL:
		return "the kernel";
	case TBG_BIRTHS_WIRE:
		return "wire";
	}
	return "the kernel alone, whose the connections stay";
}

bool tbg_births_look(struct tbg_births *b)
{
	uint32_t was = b->mode;
	bool filters;

	b->why[0] = 0;
	filters = nft_filters(b) || tables_filter(b, 0) || tables_filter(b, 1);
	if (b->wanted != TBG_WANTED_AUTO) {
		b->mode = b->wanted == TBG_WANTED_WIRE ? TBG_BIRTHS_WIRE : TBG_BIRTHS_KERNEL;
		strcpy(b->why, "as --births says");
	} else {
		b->mode = filters ? TBG_BIRTHS_KERNEL : TBG_BIRTHS_WIRE;
		if (!filters)
			strcpy(b->why, "netfilter has no chain that could refuse a client");
	}
	if (filters)
		conntrack_ask(b);
	return b->mode != was;
}

void tbg_births_open(struct tbg_births *b, enum tbg_births_wanted wanted, bool forgets)
{
	*b = (struct tbg_births){ .wanted = wanted, .forgets = forgets, .fd = nft_open(),
				  .tables = { -1, -1 }, .mode = TBG_BIRTHS_NONE };
	tbg_births_look(b);
}

bool tbg_births_news(const struct tbg_births *b)
{
	uint8_t byte;

	return b->fd >= 0 && (recv(b->fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) >= 0 ||
			      errno == ENOBUFS);
}

void tbg_births_close(struct tbg_births *b)
{
	if (b->fd >= 0)
		close(b->fd);
	for (int i = 0; i < 2; i++)
		if (b->tables[i] >= 0)
			close(b->tables[i]);
	b->fd = b->tables[0] = b->tables[1] = -1;
}
