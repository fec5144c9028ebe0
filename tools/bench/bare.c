// SPDX-License-Identifier: GPL-2.0
/*
 * The least that an answer costs on a socket: one epoll loop that parses nothing
 * and sends the same bytes for whatever it receives at once, one receive and one
 * send a request. Run by `bench` as the floor under the user tier; what it does
 * beyond that would be in the floor. A request in two segments gets two answers.
 *
 *   bare ADDR PORT FILE
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX 65536

static int die(const char *what)
{
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	return 1;
}

static void take(int epfd, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK), on = 1;
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev))
		close(fd);
}

/* A client that does not take its answer at once is no client of this. */
static void answer(int fd, const char *b, size_t len)
{
	char request[4096];
	ssize_t n = recv(fd, request, sizeof(request), 0);

	if (n > 0)
		n = send(fd, b, len, MSG_NOSIGNAL) == (ssize_t)len;
	else if (n < 0 && errno == EAGAIN)
		n = 1;
	if (n <= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listen_fd, epfd, nr, i, on = 1;
	struct epoll_event evs[256], ev;
	static char b[ANSWER_MAX];
	size_t len;
	FILE *f;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
		fprintf(stderr, "usage: bare ADDR PORT FILE\n");
		return 2;
	}
	at.sin_port = htons(atoi(argv[2]));
	f = fopen(argv[3], "r");
	if (!f)
		return die(argv[3]);
	len = fread(b, 1, sizeof(b), f);
	fclose(f);
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
				answer(evs[i].data.fd, b, len);
		}
	}
}
