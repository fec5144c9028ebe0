// SPDX-License-Identifier: GPL-2.0
/*
 * Uses a connection from 127.0.0.1 to itself, whose accepted socket is in a sockmap
 * with the programs of bpf/sock/selftest.bpf.c. Kernel versions show which known
 * bugs are fixed; only this test shows whether a newer kernel still works in the
 * same way.
 */
#include "tiers/sock_selftest.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "abi/selftest.h"
#include "bpf/selftest.skel.h"
#include "bpf/selftest_direct.skel.h"
#include "tiers/direct.h"

/*
 * Timeout for steps that take milliseconds: a busy machine must not make the kernel
 * look unsuitable.
 */
#define WAIT_S		10
#define REQUEST_LEN	100

TBG_DIRECT_OPEN(selftest)

struct selftest {
	struct tbg_selftest_bpf *bpf;
	int listener, client, server;
	uint64_t end_ms;		/* end of the wait */
};

static int load(struct selftest *t)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int err;

	t->bpf = selftest_open();
	err = t->bpf ? tbg_selftest_bpf__load(t->bpf) : -errno;
	libbpf_set_print(print);
	return err;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

static int wait_for(const struct selftest *t, int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = now_ms();
	int n = now < t->end_ms ? poll(&p, 1, t->end_ms - now) : 0;

	return n > 0 || (n < 0 && errno == EINTR) ? 0 : n < 0 ? -errno : -ETIMEDOUT;
}

/* A socket with room for an answer, and without TIME_WAIT after its end. */
static int socket_open(void)
{
	struct linger reset = { .l_onoff = 1 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int room = 4 * TBG_SELFTEST_LEN, one = 1;

	if (fd >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	}
	return fd;
}

static int sockets_open(struct selftest *t)
{
	t->listener = socket_open();
	t->client = t->listener < 0 ? -1 : socket_open();
	return t->client < 0 ? -errno : 0;
}

static int connection_open(struct selftest *t)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at), refused_len = sizeof(int);
	struct ifreq lo = { .ifr_name = "lo" };
	int err, refused = 0;

	t->end_ms = now_ms() + WAIT_S * 1000;
	if (!ioctl(t->client, SIOCGIFFLAGS, &lo) && !(lo.ifr_flags & IFF_UP))
		return -ENETDOWN;
	if (bind(t->listener, (struct sockaddr *)&at, len) || listen(t->listener, 1) ||
	    getsockname(t->listener, (struct sockaddr *)&at, &len) ||
	    (connect(t->client, (struct sockaddr *)&at, len) && errno != EINPROGRESS))
		return -errno;
	err = wait_for(t, t->client, POLLOUT);
	if (!err && getsockopt(t->client, SOL_SOCKET, SO_ERROR, &refused, &refused_len))
		err = -errno;
	if (err || refused)
		return err ?: -refused;
	do {
		err = wait_for(t, t->listener, POLLIN);
		t->server = err ? -1 : accept4(t->listener, NULL, NULL,
					       SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (!err && t->server < 0 && errno == EAGAIN);
	return err ?: t->server < 0 ? -errno : 0;
}

static int attach(struct selftest *t)
{
	int socks = bpf_map__fd(t->bpf->maps.tbg_try_socks), zero = 0;

	if (bpf_prog_attach(bpf_program__fd(t->bpf->progs.tbg_try_skb), socks,
			    BPF_SK_SKB_STREAM_VERDICT, 0) ||
	    bpf_prog_attach(bpf_program__fd(t->bpf->progs.tbg_try_msg), socks,
			    BPF_SK_MSG_VERDICT, 0) ||
	    bpf_map_update_elem(socks, &zero, &t->server, BPF_ANY))
		return -errno;
	return 0;
}

/*
 * Sends on one socket, and checks that exactly these bytes arrive at another
 * one. That one may seem readable earlier, while data is still in the programs.
 */
static int exchange(const struct selftest *t, int from, const void *sent, size_t sent_len,
		    int to, const void *want, size_t want_len)
{
	uint8_t got[TBG_SELFTEST_LEN];
	size_t at = 0;
	ssize_t n;
	int err;

	n = send(from, sent, sent_len, MSG_NOSIGNAL);
	if (n != (ssize_t)sent_len)
		return n < 0 ? -errno : -EAGAIN;
	while (at < want_len) {
		err = wait_for(t, to, POLLIN);
		if (err)
			return err;
		n = recv(to, got, want_len - at, 0);
		if (n < 0 && errno == EAGAIN)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		if (memcmp(got, (const uint8_t *)want + at, n))
			return -EBADMSG;
		at += n;
	}
	return 0;
}

/* Requests that are answered, one for the reader, and those after it. */
static int requests_try(struct selftest *t)
{
	uint64_t answer[TBG_SELFTEST_WORDS];
	char request[REQUEST_LEN];
	int err = 0;

	for (unsigned int i = 0; i < TBG_SELFTEST_WORDS; i++)
		answer[i] = TBG_SELFTEST_WORD(i);
	for (int i = 0; i < 6 && !err; i++) {
		bool reader = i == 2;

		memset(request, reader ? TBG_SELFTEST_READER : 'x', sizeof(request));
		err = exchange(t, t->client, request, sizeof(request) - i,
			       reader ? t->server : t->client,
			       reader ? (void *)request : answer,
			       reader ? sizeof(request) - i : sizeof(answer));
	}
	return err;
}

/* Answers of the reader, before and after the end of the client's stream. */
static int reader_try(struct selftest *t)
{
	int err = exchange(t, t->server, "answer", 6, t->client, "answer", 6);

	if (!err && shutdown(t->client, SHUT_WR))
		err = -errno;
	return err ?: exchange(t, t->server, "last", 4, t->client, "last", 4);
}

static const char *word(int err)
{
	return err == -ETIMEDOUT ? "nothing came in time" :
	       err == -EBADMSG ? "other bytes came" : strerror(-err);
}

int tbg_sock_selftest(char *ret_msg, size_t msg_len)
{
	static const struct {
		int (*run)(struct selftest *t);
		const char *what, *advice;
	} steps[] = {
		{ load, "load", "`toboggan probe` lists the kernel's features" },
		{ sockets_open, "sockets", "raise the limit of open files (ulimit -n)" },
		{ connection_open, "127.0.0.1 to itself", "bring lo up, and let its packets through" },
		{ attach, "attach", "run with --tiers wire,user" },
		{ requests_try, "requests", "run with --tiers wire,user" },
		{ reader_try, "answers of the reader", "run with --tiers wire,user" },
	};
	struct selftest t = { .listener = -1, .client = -1, .server = -1 };
	int err = 0, *fds[] = { &t.client, &t.server, &t.listener };

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !err; i++) {
		err = steps[i].run(&t);
		if (err)
			snprintf(ret_msg, msg_len, "self-test: %s: %s; %s",
				 steps[i].what, word(err), steps[i].advice);
	}
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
	tbg_selftest_bpf__destroy(t.bpf);
	return err;
}
