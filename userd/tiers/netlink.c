// SPDX-License-Identifier: GPL-2.0
/* Common code for netlink, see netlink.h. Changes nothing. */
#include "tiers/netlink.h"

#include <errno.h>
#include <sys/socket.h>

#define DUMP_BYTES 32768	/* buffer for messages, the size of the kernel's dumps */
#define DUMP_TRIES 4		/* attempts if the dump is interrupted by changes */

struct nlmsghdr *tbg_netlink_request(char *buf, uint16_t type, size_t len, void *ret_fixed)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	*(void **)ret_fixed = mnl_nlmsg_put_extra_header(h, len);
	return h;
}

static int dump_once(struct mnl_socket *nl, const struct nlmsghdr *req, mnl_cb_t fn, void *arg)
{
	char buf[DUMP_BYTES] __attribute__((aligned(8)));
	int more = MNL_CB_OK;

	if (mnl_socket_sendto(nl, req, req->nlmsg_len) < 0)
		return -errno;
	while (more > MNL_CB_STOP) {
		ssize_t len = mnl_socket_recvfrom(nl, buf, sizeof(buf));

		more = len < 0 ? -1 : mnl_cb_run(buf, len, 0, mnl_socket_get_portid(nl), fn, arg);
	}
	return more < 0 ? -errno : 0;
}

int tbg_netlink_dump(int bus, const struct nlmsghdr *req, void (*begin)(void *arg), mnl_cb_t fn,
		     void *arg)
{
	int on = 1, err = -EINTR;

	for (int i = 0; i < DUMP_TRIES && err == -EINTR; i++) {
		/* a socket of its own: unread parts of an answer are discarded with it */
		struct mnl_socket *nl = mnl_socket_open2(bus, SOCK_CLOEXEC);

		if (!nl)
			return -errno;
		/* without it, routes of all interfaces are dumped, and fn filters */
		mnl_socket_setsockopt(nl, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
		begin(arg);
		err = mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) ? -errno :
		      dump_once(nl, req, fn, arg);
		mnl_socket_close(nl);
	}
	return err;
}

const struct nlattr *tbg_attr_of(const struct nlmsghdr *h, size_t fixed, uint16_t type)
{
	const struct nlattr *a;

	mnl_attr_for_each(a, h, fixed)
		if (mnl_attr_get_type(a) == type)
			return a;
	return NULL;
}

bool tbg_netlink_drain(struct mnl_socket *nl)
{
	char buf[DUMP_BYTES];
	bool any = false;

	/* ENOBUFS: messages were lost, so something has changed */
	while (mnl_socket_recvfrom(nl, buf, sizeof(buf)) >= 0 || errno == ENOBUFS ||
	       errno == ENOSPC)
		any = true;
	return any;
}

uint32_t tbg_attr_number(const struct nlattr *a)
{
	return a && mnl_attr_validate(a, MNL_TYPE_U32) >= 0 ? mnl_attr_get_u32(a) : 0;
}
