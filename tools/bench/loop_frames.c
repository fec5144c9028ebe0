// SPDX-License-Identifier: GPL-2.0
/*
 * Sends the segments that the kernel side of the load does not send: the first of each
 * connection, lost ones, and the last. Called by loop.c.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

/*
 * Fills the Ethernet and IP headers of a segment with tcp_all bytes of TCP header and data.
 * Returns the sum of the addresses, for the TCP checksum.
 */
static unsigned int network_headers(unsigned char *b, const struct loop_flow *f,
				    unsigned int tcp_all)
{
	unsigned char *ip = b + 14;
	unsigned int sum;

	memcpy(b, conf.dmac, 6);
	memcpy(b + 6, conf.smac, 6);
	if (conf.v6) {
		b[12] = 0x86;
		b[13] = 0xdd;
		ip[0] = 0x60;
		ip[4] = tcp_all >> 8;
		ip[5] = tcp_all;
		ip[6] = IPPROTO_TCP;
		ip[7] = 64;
		memcpy(ip + 8, conf.saddr, 12);
		memcpy(ip + 20, &f->saddr, 4);
		memcpy(ip + 24, conf.daddr, 16);
		return sum_of(0, ip + 8, 32);
	}
	b[12] = 0x08;
	ip[0] = 0x45;
	ip[2] = (20 + tcp_all) >> 8;
	ip[3] = 20 + tcp_all;
	ip[6] = 0x40;
	ip[8] = 64;
	ip[9] = IPPROTO_TCP;
	memcpy(ip + 12, &f->saddr, 4);
	memcpy(ip + 16, &conf.daddr[3], 4);
	sum = ~sum_of(0, ip, 20);
	memcpy(ip + 10, &sum, 2);
	return sum_of(0, ip + 12, 8);
}

static unsigned int options_len(const struct loop_flow *f, unsigned int flags)
{
	if (flags & TH_SYN)
		return conf.timestamps ? 20 : 8;
	return f->timestamps ? 12 : 0;
}

static void options_put(unsigned char *to, const struct loop_flow *f, unsigned int flags)
{
	unsigned int mss = conf.v6 ? LOOP_MSS - 20 : LOOP_MSS;
	uint32_t ts = htonl((uint32_t)(now_ns() / 1000000));

	if (flags & TH_SYN) {
		memcpy(to, (unsigned char[4]){ 2, 4, mss >> 8, mss & 255 }, 4);
		to += 4;
		if (conf.timestamps) {
			memcpy(to, (unsigned char[4]){ 4, 2, 8, 10 }, 4);
			memcpy(to + 4, &ts, 4);
			to += 12;
		}
		memcpy(to, (unsigned char[4]){ 1, 3, 3, LOOP_WSCALE }, 4);
	} else if (f->timestamps) {
		memcpy(to, (unsigned char[4]){ 1, 1, 8, 10 }, 4);
		memcpy(to + 4, &ts, 4);
		memcpy(to + 8, &f->tsecr, 4);
	}
}

/* Sends a segment of the flow that was never an skb of the load. */
void send_frame(const struct loop_flow *f, unsigned int flags, unsigned int seq,
		const struct loop_request *r)
{
	unsigned int ip_len = conf.v6 ? 40 : 20, tcp_len = 20 + options_len(f, flags);
	unsigned int len = r ? r->len : 0, ack = htonl(f->rcv), sum;
	unsigned char b[FRAME_MAX] = {}, *tcp = b + 14 + ip_len;

	sum = network_headers(b, f, tcp_len + len);
	memcpy(tcp, &f->sport, 2);
	memcpy(tcp + 2, &conf.dport, 2);
	seq = htonl(seq);
	memcpy(tcp + 4, &seq, 4);
	if (flags & TH_ACK)
		memcpy(tcp + 8, &ack, 4);
	tcp[12] = tcp_len << 2;
	tcp[13] = flags;
	tcp[14] = tcp[15] = 0xff;
	options_put(tcp + 20, f, flags);
	if (r)
		memcpy(tcp + tcp_len, r->bytes, len);
	sum += htons(IPPROTO_TCP) + htons(tcp_len + len);
	sum = ~sum_of(sum, tcp, tcp_len + len);
	memcpy(tcp + 16, &sum, 2);
	sendto(packet_fd, b, 14 + ip_len + tcp_len + len, 0, (void *)&to, sizeof(to));
}

/* Sends the next request of a connection that waits (LOOP_HELD), or its end after the last. */
void send_next(struct loop_flow *f)
{
	const struct loop_request *r;

	f->at_ns = now_ns();
	if (f->calls && !--f->calls) {
		f->state = LOOP_CLOSING;
		send_frame(f, TH_ACK | TH_FIN, f->snd, NULL);
		return;
	}
	f->request = request_draw();
	f->sample = f->need = f->got = 0;
	f->state = LOOP_WAIT;
	r = &requests[f->request];
	f->snd += r->len;
	send_frame(f, TH_ACK | TH_PUSH, f->snd - r->len, r);
}

/* The connection waits too long: sends its last segment again. */
static void send_again(const struct loop_flow *f)
{
	const struct loop_request *r;

	switch (f->state) {
	case LOOP_SYN:
		send_frame(f, TH_SYN, f->snd, NULL);
		break;
	case LOOP_WAIT:
		r = &requests[f->request < request_nr ? f->request : 0];
		send_frame(f, TH_ACK | TH_PUSH, f->snd - r->len, r);
		break;
	case LOOP_CLOSING:
		send_frame(f, TH_ACK | TH_FIN, f->snd, NULL);
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
		if (now - since < patience || f.state == LOOP_NONE || f.state == LOOP_ENDING ||
		    f.state == LOOP_HELD)
			continue;
		again_ns[i] = now;
		resent++;
		send_again(&f);
	}
}
