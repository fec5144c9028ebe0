// SPDX-License-Identifier: GPL-2.0
/*
 * The maximum length of a reply by the MTU of its interface, see
 * reply_size.h.
 */
#include "tiers/reply_size.h"

#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/cache.h"
#include "tiers/wire.h"

#define HEADERS_V4	(20 + 20 + 12)	/* IPv4, TCP, timestamps */
#define HEADERS_V6	(40 + 20 + 12)
#define MTU_V6		1280	/* an interface with less has no IPv6: RFC 8200, 5 */

unsigned int tbg_reply_size_mtu(const char *iface)
{
	struct ifreq r = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned int mtu = 0;

	if (fd < 0)
		return 0;
	strncpy(r.ifr_name, iface, sizeof(r.ifr_name) - 1);
	if (!ioctl(fd, SIOCGIFMTU, &r))
		mtu = r.ifr_mtu;
	close(fd);
	return mtu;
}

unsigned int tbg_reply_size_segment(unsigned int mtu, bool v6)
{
	unsigned int headers = v6 ? HEADERS_V6 : HEADERS_V4;
	unsigned int seg = mtu > headers ? mtu - headers : 0;

	if (v6 && mtu < MTU_V6)
		return 0;
	if (seg > TBG_SEG_BYTES)
		seg = TBG_SEG_BYTES;
	return seg & ~3u;
}

unsigned int tbg_reply_size_max(unsigned int wire_size, unsigned int mtu, bool v6)
{
	unsigned int size = wire_size ? wire_size : TBG_WIRE_MAX;
	unsigned int room = tbg_reply_size_segment(mtu, v6) * TBG_SEG_MAX;

	if (size > TBG_WIRE_MAX)
		size = TBG_WIRE_MAX;
	return room < size ? room : size;
}

unsigned int tbg_reply_size_longest(const struct tbg_wire *w, unsigned int wire_size)
{
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr = tbg_wire_ifaces(w, ifaces), most = 0;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int mtu = tbg_reply_size_mtu(ifaces[i].name);
		unsigned int room = tbg_reply_size_max(wire_size, mtu, false);

		if (strcmp(ifaces[i].how, "off") && room > most)
			most = room;
	}
	return most;
}
