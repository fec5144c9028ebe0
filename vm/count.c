// SPDX-License-Identifier: GPL-2.0
/*
 * The client that vm/bench measures with: one connection, one request after
 * the other, and the processor's own clock read around each batch. In a guest
 * whose clock counts instructions (QEMU's icount, shift 0) the difference is
 * what client, kernel and server executed together, interrupts included.
 *
 *   count ADDR PORT PATH BATCHES REQUESTS [HEADER-LINE]
 *
 * Prints one line a batch: instructions. The first reply decides what the
 * others must be like: same status, same length; anything else is an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <x86intrin.h>

#define REPLY_MAX 65536
#define BATCHES_MAX 1000

static char reply[REPLY_MAX + 1], request[4096];
static int request_len;

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int connect_to(const char *addr, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || inet_pton(AF_INET, addr, &to.sin_addr) != 1 ||
	    connect(fd, (void *)&to, sizeof(to)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Bytes of the whole reply, its head at the start of `reply`; learned from Content-Length. */
static int first_reply(int fd)
{
	int len = 0, got, want = REPLY_MAX;
	char *end, *field;

	while (len < want) {
		got = recv(fd, reply + len, REPLY_MAX - len, 0);
		if (got <= 0)
			die("first reply");
		len += got;
		reply[len] = 0;
		end = strstr(reply, "\r\n\r\n");
		if (!end)
			continue;
		field = strcasestr(reply, "\r\ncontent-length:");
		want = end + 4 - reply;
		if (field && field < end && strncmp(reply + 9, "304", 3))
			want += atoi(field + 17);
	}
	return len;
}

static void exchange(int fd, int reply_len, const char *status)
{
	int len = 0, got;

	if (send(fd, request, request_len, MSG_NOSIGNAL) != request_len)
		die("send");
	while (len < reply_len) {
		got = recv(fd, reply + len, REPLY_MAX - len, 0);
		if (got <= 0)
			die("recv");
		len += got;
	}
	if (len != reply_len || memcmp(reply, status, 12)) {
		fprintf(stderr, "count: a reply unlike the first: %.12s, %d bytes, not %d\n",
			reply, len, reply_len);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static uint64_t took[BATCHES_MAX];
	int fd, reply_len, batches, requests;
	char status[13] = "";

	if (argc < 6 || argc > 7) {
		fprintf(stderr, "usage: count ADDR PORT PATH BATCHES REQUESTS [HEADER-LINE]\n");
		return 2;
	}
	batches = atoi(argv[4]);
	requests = atoi(argv[5]);
	if (batches < 1 || batches > BATCHES_MAX || requests < 1)
		return 2;
	request_len = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s:%s\r\n%s%s\r\n",
			       argv[3], argv[1], argv[2], argc > 6 ? argv[6] : "",
			       argc > 6 ? "\r\n" : "");
	fd = connect_to(argv[1], argv[2]);
	if (send(fd, request, request_len, 0) != request_len)
		die("send");
	reply_len = first_reply(fd);
	memcpy(status, reply, 12);
	for (int i = 0; i < batches; i++) {
		uint64_t start = __rdtsc();

		for (int n = 0; n < requests; n++)
			exchange(fd, reply_len, status);
		took[i] = __rdtsc() - start;
	}
	for (int i = 0; i < batches; i++)
		printf("%llu\n", (unsigned long long)took[i] / requests);
	return 0;
}
