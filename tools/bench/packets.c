// SPDX-License-Identifier: GPL-2.0
/*
 * Requests as packets: a client without a TCP stack, which costs as little as a server that
 * answers at the packet. It makes handshakes and requests from an unused address, on a
 * packet socket, with one request in flight on each connection. Run by `bench` in its lab,
 * which reads the line of JSON at the end. It must never run on an interface that anything
 * else uses.
 *
 *   packets IFACE SERVER-MAC SOURCE ADDR PORT PATH CONNECTIONS SECONDS
 *
 * It is not TCP: it accepts only segments in order, and repeats a request that is not
 * answered in LOST_MS. Both are counted as `lost`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX	1024
#define FRAME_MAX	2048
#define RECEIVE_MAX	65536	/* a frame of several segments counts as one */
#define BATCH		64
#define LOST_MS		300
#define WINDOW		65535	/* advertised; scaled by WINDOW_SHIFT after the SYN */
#define WINDOW_SHIFT	4

enum state { SYN_SENT, WAITING, DEAD };

struct conn {
	enum state state;
	uint32_t seq, ack;	/* of the next byte to send, to receive */
	long sent_ms;
	int got_len;		/* bytes of the reply so far */
	bool wrong;
};

static struct conn conns[CONNECTIONS_MAX];
static int conn_nr, port_base, fd, request_len, reply_len;
static char request[1400];
static struct ether_header ether;
static struct in_addr source, server;
static uint16_t server_port;
static long done_nr, byte_nr, lost_nr, wrong_nr, status_nr, reset_nr;

static uint8_t frames[BATCH][FRAME_MAX];
static struct mmsghdr out[BATCH];
static struct iovec out_iov[BATCH];
static int out_nr;

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "packets: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static uint32_t sum_add(uint32_t sum, const void *data, int len)
{
	const uint8_t *p = data;

	for (; len > 1; p += 2, len -= 2)
		sum += p[0] << 8 | p[1];
	return len ? sum + (p[0] << 8) : sum;
}

static uint16_t sum_fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static void flush(void)
{
	int sent = 0, n;

	while (sent < out_nr) {
		n = sendmmsg(fd, out + sent, out_nr - sent, 0);
		if (n < 0 && errno != ENOBUFS && errno != EAGAIN)
			die("sendmmsg");
		if (n < 0)
			break;		/* no room: lost, as on a wire */
		sent += n;
	}
	out_nr = 0;
}

/* One segment of a connection, queued. A SYN carries MSS and window scale. */
static void send_segment(struct conn *c, int flags, const void *data, int len)
{
	static const uint8_t syn_options[8] = { 2, 4, 1460 >> 8, 1460 & 255, 1, 3, 3,
						WINDOW_SHIFT };
	uint8_t *frame = frames[out_nr];
	struct iphdr *ip = (void *)(frame + sizeof(ether));
	struct tcphdr *tcp = (void *)(ip + 1);
	int options = flags & TH_SYN ? sizeof(syn_options) : 0;
	int tcp_len = sizeof(*tcp) + options + len;
	uint32_t sum;

	memcpy(frame, &ether, sizeof(ether));
	*ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP,
			      .tot_len = htons(sizeof(*ip) + tcp_len), .frag_off = htons(IP_DF),
			      .saddr = source.s_addr, .daddr = server.s_addr };
	ip->check = sum_fold(sum_add(0, ip, sizeof(*ip)));
	*tcp = (struct tcphdr){ .source = htons(port_base + (c - conns)), .dest = server_port,
				.seq = htonl(c->seq), .ack_seq = htonl(c->ack),
				.doff = (sizeof(*tcp) + options) / 4, .window = htons(WINDOW) };
	tcp->th_flags = flags;
	memcpy(tcp + 1, syn_options, options);
	memcpy((uint8_t *)(tcp + 1) + options, data, len);
	sum = sum_add(IPPROTO_TCP + tcp_len, &ip->saddr, 8);
	tcp->check = sum_fold(sum_add(sum, tcp, tcp_len));
	out_iov[out_nr] = (struct iovec){ frame, sizeof(ether) + sizeof(*ip) + tcp_len };
	out[out_nr].msg_hdr = (struct msghdr){ .msg_iov = &out_iov[out_nr], .msg_iovlen = 1 };
	if (++out_nr == BATCH)
		flush();
}

static void send_request(struct conn *c, long ms)
{
	c->sent_ms = ms;
	c->got_len = 0;
	c->wrong = false;
	send_segment(c, TH_ACK | TH_PUSH, request, request_len);
}

static void send_syn(struct conn *c, long ms)
{
	c->sent_ms = ms;
	c->state = SYN_SENT;
	send_segment(c, TH_SYN, NULL, 0);
}

/* Length of a reply, by the head in its first segment; 0: no valid head. */
static int reply_length(const char *data, int len)
{
	const char *end = memmem(data, len, "\r\n\r\n", 4), *field;
	char head[2048];
	int head_len = end ? end + 4 - data : 0;

	if (!end || head_len >= (int)sizeof(head))
		return 0;
	memcpy(head, data, head_len);
	head[head_len] = 0;
	field = strcasestr(head, "\r\ncontent-length:");
	return field ? head_len + atoi(field + 17) : 0;
}

static void take_data(struct conn *c, const char *data, int len, long ms)
{
	if (!c->got_len) {
		if (len < 12 || memcmp(data, "HTTP/1.1 200", 12)) {
			status_nr++;
			c->wrong = true;
		}
		if (!reply_len)
			reply_len = reply_length(data, len);
	}
	c->ack += len;
	c->got_len += len;
	byte_nr += len;
	if (c->got_len < reply_len)
		return;
	if (c->got_len > reply_len)
		wrong_nr++;
	else
		done_nr += !c->wrong;
	c->seq += request_len;
	send_request(c, ms);
}

static void take_segment(struct conn *c, const struct tcphdr *tcp, const char *data, int len,
			 long ms)
{
	if (tcp->rst || tcp->fin) {
		reset_nr += c->state != DEAD;
		c->state = DEAD;
	} else if (tcp->syn) {
		if (c->state != SYN_SENT)
			return;
		c->ack = ntohl(tcp->seq) + 1;
		c->seq++;
		c->state = WAITING;
		send_segment(c, TH_ACK, NULL, 0);
		send_request(c, ms);
	} else if (len && c->state == WAITING && ntohl(tcp->seq) == c->ack) {
		take_data(c, data, len, ms);
	} else if (len && c->state == WAITING) {
		send_segment(c, TH_ACK, NULL, 0);	/* repeated or early */
	}
}

static void take_frame(uint8_t *frame, int len, long ms)
{
	struct iphdr *ip = (void *)(frame + sizeof(ether));
	struct tcphdr *tcp;
	int total, head, slot;

	if (len < (int)(sizeof(ether) + sizeof(*ip) + sizeof(*tcp)) || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_TCP || ip->daddr != source.s_addr)
		return;
	tcp = (void *)(ip + 1);
	total = ntohs(ip->tot_len);
	head = sizeof(*ip) + tcp->doff * 4;
	slot = ntohs(tcp->dest) - port_base;
	if (tcp->source != server_port || slot < 0 || slot >= conn_nr || total < head ||
	    total + (int)sizeof(ether) > len)
		return;
	take_segment(&conns[slot], tcp, (char *)ip + head, total - head, ms);
}

static void receive(long ms)
{
	static uint8_t in_frames[BATCH][RECEIVE_MAX];
	static struct iovec iov[BATCH];
	static struct mmsghdr in[BATCH];
	int nr;

	for (int i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){ in_frames[i], RECEIVE_MAX };
		in[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
	}
	nr = recvmmsg(fd, in, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < nr; i++)
		take_frame(in_frames[i], in[i].msg_len, ms);
}

static void repeat_lost(long ms)
{
	for (int i = 0; i < conn_nr; i++) {
		struct conn *c = &conns[i];

		if (c->state == DEAD || ms - c->sent_ms < LOST_MS)
			continue;
		lost_nr++;
		if (c->state == SYN_SENT)
			send_syn(c, ms);
		else if (!c->got_len)
			send_request(c, ms);
		else
			send_segment(c, TH_ACK, NULL, 0);
		c->sent_ms = ms;
	}
}

static void open_interface(const char *name)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	int one = 1, size = 4 << 20;
	struct ifreq req = { 0 };

	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));
	to.sll_ifindex = if_nametoindex(name);
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (fd < 0 || !to.sll_ifindex || ioctl(fd, SIOCGIFHWADDR, &req) ||
	    bind(fd, (void *)&to, sizeof(to)))
		die(name);
	memcpy(ether.ether_shost, req.ifr_hwaddr.sa_data, ETH_ALEN);
	ether.ether_type = htons(ETH_P_IP);
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
}

static void arguments(char **argv)
{
	uint8_t *mac = ether.ether_dhost;

	if (sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3,
		   mac + 4, mac + 5) != 6 ||
	    inet_pton(AF_INET, argv[3], &source) != 1 ||
	    inet_pton(AF_INET, argv[4], &server) != 1) {
		fprintf(stderr, "packets: want a MAC and two IPv4 addresses\n");
		exit(2);
	}
	server_port = htons(atoi(argv[5]));
	conn_nr = atoi(argv[7]);
	request_len = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s:%s\r\n\r\n",
			       argv[6], argv[4], argv[5]);
	if (conn_nr < 1 || conn_nr > CONNECTIONS_MAX || request_len >= (int)sizeof(request)) {
		fprintf(stderr, "packets: want 1 to %d connections\n", CONNECTIONS_MAX);
		exit(2);
	}
	/* for two at a time, and no port of the previous run */
	port_base = 10000 + getpid() % 48 * CONNECTIONS_MAX;
}

int main(int argc, char **argv)
{
	long start_ms, end_ms, ms, looked_ms = 0;
	struct pollfd p = { .events = POLLIN };

	if (argc != 9) {
		fprintf(stderr, "usage: packets IFACE SERVER-MAC SOURCE ADDR PORT PATH "
				"CONNECTIONS SECONDS\n");
		return 2;
	}
	arguments(argv);
	open_interface(argv[1]);
	p.fd = fd;
	start_ms = now_ms();
	end_ms = start_ms + (long)(atof(argv[8]) * 1000);
	for (int i = 0; i < conn_nr; i++) {
		conns[i].seq = start_ms * 1000 + i;
		send_syn(&conns[i], start_ms);
	}
	flush();
	while ((ms = now_ms()) < end_ms) {
		poll(&p, 1, 10);
		receive(ms);
		if (ms - looked_ms >= LOST_MS / 3) {
			repeat_lost(ms);
			looked_ms = ms;
		}
		flush();
	}
	for (int i = 0; i < conn_nr; i++)
		if (conns[i].state == WAITING)
			send_segment(&conns[i], TH_RST | TH_ACK, NULL, 0);
	flush();
	printf("{\"requests\": %ld, \"bytes\": %ld, \"seconds\": %.3f, \"errors\": %ld, "
	       "\"statuses\": %ld, \"lost\": %ld, \"kinds\": {\"length\": %ld, \"reset\": %ld}}\n",
	       done_nr, byte_nr, (ms - start_ms) / 1e3, wrong_nr + reset_nr, status_nr, lost_nr,
	       wrong_nr, reset_nr);
	return 0;
}
