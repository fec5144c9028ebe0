// SPDX-License-Identifier: GPL-2.0
/*
 * The client of reflect.bpf.c, built like wrk: as many sockets as wrk has
 * connections, one datagram in flight on each, one epoll loop, one receive and
 * one send per exchange. Run by `bench`, which reads the line of JSON at the
 * end. It must stay this simple: its packets have to reach the server at the pace and in the
 * batches of wrk's requests.
 *
 *   reflect_load ADDR PORT SOCKETS PAYLOAD_BYTES SECONDS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_MAX 4096
#define PAYLOAD_MAX 1400
#define LOST_MS 200	/* without a reply for that long: lost, counted, repeated */

static struct {
	int fd;
	long sent_ms;
} sockets[SOCKET_MAX];

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int die(const char *what)
{
	fprintf(stderr, "reflect_load: %s: %s\n", what, strerror(errno));
	return 1;
}

static char payload[PAYLOAD_MAX];
static int socket_nr, payload_len;
static long answered, lost, wrong;

/* Sends the first datagram of each socket. */
static bool sockets_open(int epfd, const struct sockaddr_in *to, long start_ms)
{
	for (int i = 0; i < socket_nr; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

		sockets[i].fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		sockets[i].sent_ms = start_ms;
		if (sockets[i].fd < 0 ||
		    connect(sockets[i].fd, (const struct sockaddr *)to, sizeof(*to)) ||
		    epoll_ctl(epfd, EPOLL_CTL_ADD, sockets[i].fd, &ev) ||
		    send(sockets[i].fd, payload, payload_len, 0) < 0)
			return false;
	}
	return true;
}

static void send_again(int i, long ms)
{
	sockets[i].sent_ms = ms;
	if (send(sockets[i].fd, payload, payload_len, 0) < 0)
		wrong++;
}

static void answers_read(int epfd, long ms)
{
	static char buf[PAYLOAD_MAX + 1];
	struct epoll_event evs[256];
	int nr = epoll_wait(epfd, evs, 256, 50);

	for (int i = 0; i < nr; i++) {
		int s = evs[i].data.u32;

		if (recv(sockets[s].fd, buf, sizeof(buf), 0) != payload_len) {
			wrong++;
			continue;
		}
		answered++;
		send_again(s, ms);
	}
}

static void losses_repair(long ms)
{
	for (int i = 0; i < socket_nr; i++) {
		if (ms - sockets[i].sent_ms < LOST_MS)
			continue;
		lost++;
		send_again(i, ms);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	long start_ms, end_ms, checked_ms, ms;
	int epfd;

	if (argc != 6 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: reflect_load ADDR PORT SOCKETS PAYLOAD_BYTES SECONDS\n");
		return 2;
	}
	to.sin_port = htons(atoi(argv[2]));
	socket_nr = atoi(argv[3]);
	payload_len = atoi(argv[4]);
	if (socket_nr < 1 || socket_nr > SOCKET_MAX ||
	    payload_len < 1 || payload_len > PAYLOAD_MAX) {
		fprintf(stderr, "reflect_load: 1 to %d sockets, 1 to %d bytes\n",
			SOCKET_MAX, PAYLOAD_MAX);
		return 2;
	}
	memset(payload, 'r', sizeof(payload));

	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0)
		return die("epoll");
	start_ms = checked_ms = now_ms();
	end_ms = start_ms + (long)(atof(argv[5]) * 1000);
	if (!sockets_open(epfd, &to, start_ms))
		return die("socket");
	while ((ms = now_ms()) < end_ms) {
		answers_read(epfd, ms);
		if (ms - checked_ms < LOST_MS)
			continue;
		checked_ms = ms;
		losses_repair(ms);
	}
	printf("{\"requests\": %ld, \"errors\": %ld, \"bytes\": %ld, \"seconds\": %.3f}\n",
	       answered, lost + wrong, answered * payload_len, (now_ms() - start_ms) / 1e3);
	return 0;
}
