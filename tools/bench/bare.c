// SPDX-License-Identifier: GPL-2.0
/*
 * The least that an answer can cost on a socket: one epoll loop that parses nothing, with
 * one receive and one send for each batch of bytes. It answers with constant bytes, or
 * forwards the request to an origin and the answer to the client. Run by `bench` as the
 * floor under the user tier, so it must not do any more. A request in two segments gets two
 * answers.
 *
 *   bare ADDR PORT FILE
 *   bare ADDR PORT ADDR PORT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES_MAX 65536
#define FDS_MAX	  4096

static char answer[BYTES_MAX];
static size_t answer_len;
static struct sockaddr_in origin;	/* no port: answers itself */
static int other[FDS_MAX];		/* the other end, by descriptor; 0: none */

static int die(const char *what)
{
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	return 1;
}

static bool address(struct sockaddr_in *ret, const char *addr, const char *port)
{
	*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	return inet_pton(AF_INET, addr, &ret->sin_addr) == 1;
}

static bool watch(int epfd, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
	int on = 1;

	return fd >= 0 && fd < FDS_MAX &&
	       !setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) &&
	       !epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
}

static void take(int epfd, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK), to = -1;
	bool ok = watch(epfd, fd);

	if (ok && origin.sin_port) {
		to = socket(AF_INET, SOCK_STREAM, 0);
		ok = !connect(to, (struct sockaddr *)&origin, sizeof(origin)) && watch(epfd, to);
	}
	if (ok && to >= 0) {
		other[fd] = to;
		other[to] = fd;
	}
	if (!ok && fd >= 0)
		close(fd);
	if (!ok && to >= 0)
		close(to);
}

/* The other end notices, and ends. */
static void end(int fd)
{
	if (other[fd]) {
		shutdown(other[fd], SHUT_RDWR);
		other[other[fd]] = 0;
		other[fd] = 0;
	}
	close(fd);
}

/* A client or origin that does not accept all bytes at once is closed. */
static void event(int fd)
{
	static char received[BYTES_MAX];
	ssize_t n = recv(fd, received, sizeof(received), MSG_DONTWAIT), sent = 0;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0 && other[fd]) {
		sent = send(other[fd], received, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else if (n > 0 && !origin.sin_port) {
		n = answer_len;
		sent = send(fd, answer, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (n <= 0 || sent != n)
		end(fd);
}

static bool answer_read(const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f)
		return false;
	answer_len = fread(answer, 1, sizeof(answer), f);
	return !fclose(f);
}

int main(int argc, char **argv)
{
	struct epoll_event evs[256], ev;
	int listen_fd, epfd, nr, i, on = 1;
	struct sockaddr_in at;

	if (argc < 4 || argc > 5 || !address(&at, argv[1], argv[2]) ||
	    (argc == 5 && !address(&origin, argv[3], argv[4]))) {
		fprintf(stderr, "usage: bare ADDR PORT FILE\n       bare ADDR PORT ADDR PORT\n");
		return 2;
	}
	if (argc == 4 && !answer_read(argv[3]))
		return die(argv[3]);
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (listen_fd < 0 ||
	    setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(listen_fd, (struct sockaddr *)&at, sizeof(at)) || listen(listen_fd, 4096))
		return die("listen");
	epfd = epoll_create1(0);
	ev = (struct epoll_event){ .events = EPOLLIN, .data.fd = listen_fd };
	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, listen_fd, &ev))
		return die("epoll");
	for (;;) {
		nr = epoll_wait(epfd, evs, 256, -1);
		if (nr < 0 && errno != EINTR)
			return die("epoll_wait");
		for (i = 0; i < nr; i++) {
			if (evs[i].data.fd == listen_fd)
				take(epfd, listen_fd);
			else
				event(evs[i].data.fd);
		}
	}
}
