// SPDX-License-Identifier: GPL-2.0
/* Asks xfrm by netlink for the number of its policies, and for its default policy. */
#include "tiers/ipsec.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tiers/netlink.h"

struct mnl_socket *tbg_ipsec_news_open(void)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_XFRM, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (nl && mnl_socket_bind(nl, 1u << (XFRMNLGRP_POLICY - 1), MNL_SOCKET_AUTOPID)) {
		mnl_socket_close(nl);
		nl = NULL;
	}
	return nl;
}

static void nothing(void *arg)
{
	*(bool *)arg = false;
}

/* Policies of single sockets are not counted: their owners are other programs. */
static int spd_look(const struct nlmsghdr *h, void *arg)
{
	const struct nlattr *a = tbg_attr_of(h, sizeof(uint32_t), XFRMA_SPD_INFO);
	struct xfrmu_spdinfo info = { 0 };

	if (a && mnl_attr_get_payload_len(a) >= sizeof(info))
		memcpy(&info, mnl_attr_get_payload(a), sizeof(info));
	*(bool *)arg = info.incnt || info.outcnt;
	return MNL_CB_STOP;
}

static int default_look(const struct nlmsghdr *h, void *arg)
{
	const struct xfrm_userpolicy_default *d = mnl_nlmsg_get_payload(h);

	*(bool *)arg = d->in == XFRM_USERPOLICY_BLOCK || d->out == XFRM_USERPOLICY_BLOCK;
	return MNL_CB_STOP;
}

/* Sends a request with a fixed part of len bytes. 0 or negative errno. */
static int ask(uint16_t type, size_t len, mnl_cb_t fn, bool *ret)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct xfrm_userpolicy_default) + MNL_ALIGNTO]
		__attribute__((aligned(8)));
	struct nlmsghdr *h;
	void *fixed;

	h = tbg_netlink_request(buf, type, len, &fixed);
	h->nlmsg_flags = NLM_F_REQUEST;
	return tbg_netlink_dump(NETLINK_XFRM, h, nothing, fn, ret);
}

void tbg_ipsec_look(char *ret_why, size_t why_len)
{
	bool have = false;
	int err;

	ret_why[0] = 0;
	err = ask(XFRM_MSG_GETSPDINFO, sizeof(uint32_t), spd_look, &have);
	if (err == -EPROTONOSUPPORT)
		return;
	/* since 5.14; before, there is no default to block */
	if (!err && !have)
		ask(XFRM_MSG_GETDEFAULT, sizeof(struct xfrm_userpolicy_default), default_look,
		    &have);
	if (err)
		snprintf(ret_why, why_len, "the IPsec policies cannot be read: %s", strerror(-err));
	else if (have)
		snprintf(ret_why, why_len,
			 "the host has IPsec policies (ip xfrm policy), which only the kernel's TCP obeys");
}
