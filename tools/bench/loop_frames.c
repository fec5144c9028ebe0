// SPDX-License-Identifier: GPL-2.0
/*
 * Sends the segments that the kernel side of the load does not send: the first of each
 * connection, lost ones, and the last. Called by loop.c.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_internal.h"

#define FRAME_MAX	(14 + 40 + 40 + LOOP_HEAD_MAX)

long resent;
static int64_t again_ns[LOOP_FLOWS];

/* Sum of 16-bit words in memory order, folded (RFC 1071). */
uint32_t sum_of(uint32_t sum, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	for (; len > 1; p += 2, len -= 2)
		sum += p[0] | p[1] << 8;
	if (len)
		sum += p[0];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Sends a segment of the flow that was never an skb of the load. */
void send_frame(const struct loop_flow *f, unsigned int flags, unsigned int seq,
		const struct loop_request *r)
{
	unsigned char b[FRAME_MAX] = {}, *ip = b + 14, *tcp;
	unsigned int ip_len = conf.v6 ? 40 : 20, len = r ? r->len : 0, tcp_len = 20, sum;
	uint32_t ts = htonl((uint32_t)(now_ns() / 1000000));

	if (flags & 2)
		tcp_len = conf.timestamps ? 40 : 28;
	else if (f->timestamps)
		tcp_len = 32;
	memcpy(b, conf.dmac, 6);
	memcpy(b + 6, conf.smac, 6);
	tcp = ip + ip_len;
	if (conf.v6) {
		b[12] = 0x86;
		b[13] = 0xdd;
		ip[0] = 0x60;
		ip[4] = (tcp_len + len) >> 8;
		ip[5] = tcp_len + len;
		ip[6] = IPPROTO_TCP;
		ip[7] = 64;
		memcpy(ip + 8, conf.saddr, 12);
		memcpy(ip + 20, &f->saddr, 4);
		memcpy(ip + 24, conf.daddr, 16);
		sum = sum_of(0, ip + 8, 32);
	} else {
		b[12] = 0x08;
		ip[0] = 0x45;
		ip[2] = (20 + tcp_len + len) >> 8;
		ip[3] = 20 + tcp_len + len;
		ip[6] = 0x40;
		ip[8] = 64;
		ip[9] = IPPROTO_TCP;
		memcpy(ip + 12, &f->saddr, 4);
		memcpy(ip + 16, &conf.daddr[3], 4);
		sum = ~sum_of(0, ip, 20);
		memcpy(ip + 10, &sum, 2);
		sum = sum_of(0, ip + 12, 8);
	}
	memcpy(tcp, &f->sport, 2);
	memcpy(tcp + 2, &conf.dport, 2);
	seq = htonl(seq);
	memcpy(tcp + 4, &seq, 4);
	if (flags & 16) {
		unsigned int ack = htonl(f->rcv);

		memcpy(tcp + 8, &ack, 4);
	}
	tcp[12] = tcp_len << 2;
	tcp[13] = flags;
	tcp[14] = tcp[15] = 0xff;
	if (flags & 2) {
		unsigned int mss = conf.v6 ? LOOP_MSS - 20 : LOOP_MSS;
		unsigned char o[20] = { 2, 4, mss >> 8, mss & 255, 4, 2, 8, 10 };
		unsigned char plain[8] = { 2, 4, mss >> 8, mss & 255, 1, 3, 3, LOOP_WSCALE };

		memcpy(o + 8, &ts, 4);
		memcpy(o + 16, (unsigned char[4]){ 1, 3, 3, LOOP_WSCALE }, 4);
		if (conf.timestamps)
			memcpy(tcp + 20, o, 20);
		else
			memcpy(tcp + 20, plain, 8);
	} else if (f->timestamps) {
		memcpy(tcp + 20, (unsigned char[4]){ 1, 1, 8, 10 }, 4);
		memcpy(tcp + 24, &ts, 4);
		memcpy(tcp + 28, &f->tsecr, 4);
	}
	if (r)
		memcpy(tcp + tcp_len, r->bytes, len);
	sum += htons(IPPROTO_TCP) + htons(tcp_len + len);
	sum = ~sum_of(sum, tcp, tcp_len + len);
	memcpy(tcp + 16, &sum, 2);
	sendto(packet_fd, b, 14 + ip_len + tcp_len + len, 0, (void *)&to, sizeof(to));
}

/* The connection waits too long: sends its last segment again. */
static void send_again(const struct loop_flow *f)
{
	const struct loop_request *r;

	switch (f->state) {
	case LOOP_SYN:
		send_frame(f, 2, f->snd, NULL);
		break;
	case LOOP_WAIT:
		r = &requests[f->request < request_nr ? f->request : 0];
		send_frame(f, 16 | 8, f->snd - r->len, r);
		break;
	case LOOP_CLOSING:
		send_frame(f, 16 | 1, f->snd, NULL);
		break;
	}
}

void look_for_losses(int64_t now, int64_t patience)
{
	for (unsigned int i = 0; i < conf.flow_nr; i++) {
		struct loop_flow f = flows[i];
		int64_t since = f.at_ns;

		if (again_ns[i] > since)
			since = again_ns[i];
		if (now - since < patience || f.state == LOOP_NONE || f.state == LOOP_ENDING)
			continue;
		again_ns[i] = now;
		resent++;
		send_again(&f);
	}
}
