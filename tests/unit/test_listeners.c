// SPDX-License-Identifier: GPL-2.0
/*
 * Listening sockets of a service manager: when wire leaves one to the daemon. The sockets
 * are real, but another one to compare with may not be had.
 */
#include "ktap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool no_more;		/* the process has no descriptor left */

static int socket_make(int family, int type, int protocol)
{
	if (!no_more)
		return socket(family, type, protocol);
	errno = EMFILE;
	return -1;
}

static bool marked;		/* a program of the cgroup gives each socket a mark */

static int option_get(int fd, int level, int name, void *value, socklen_t *len)
{
	int ret = getsockopt(fd, level, name, value, len);

	if (!ret && marked && level == SOL_SOCKET && name == SO_MARK)
		*(int *)value = 7;
	return ret;
}

#define socket socket_make
#define getsockopt option_get
#include "../../userd/main/listeners.c"
#undef getsockopt
#undef socket

/* What listeners.c calls elsewhere, and these tests do not reach. */
#define NEVER(ret, name, ...) ret name(__VA_ARGS__) { abort(); }
NEVER(unsigned int, tbg_service_sockets, void)
NEVER(int, tbg_options_listen_lists, struct tbg_options *o)
NEVER(int, tbg_wire_listen, struct tbg_wire *w, int fd, uint32_t nr)
NEVER(int, tbg_sock_listen, struct tbg_sock *s, int fd)
NEVER(void, tbg_option_log, const struct tbg_options *o, const char *name, unsigned int nr,
      const char *format, ...)

static int vrfs_err;		/* of giving a listener to BPF */
static char logged[256];

struct tbg_vrfs *tbg_wire_vrfs(struct tbg_wire *w)
{
	return NULL;
}

int tbg_vrfs_listen(struct tbg_vrfs *v, int fd)
{
	return vrfs_err;
}

void tbg_report_at(enum tbg_report_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(logged, sizeof(logged), format, args);
	va_end(args);
}

KTAP_TEST(t_socket_with_options_for_packets_is_left_to_the_daemon)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), ttl = 33;

	KTAP_CHECK(fd >= 0);
	KTAP_CHECK(!options_why(fd, AF_INET));
	KTAP_CHECK(!setsockopt(fd, SOL_IP, IP_TTL, &ttl, sizeof(ttl)));
	KTAP_CHECK(options_why(fd, AF_INET));
	close(fd);
}

KTAP_TEST(t_socket_that_cannot_be_compared_is_left_to_the_daemon)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool left;

	KTAP_CHECK(fd >= 0);
	no_more = true;
	left = options_why(fd, AF_INET);
	no_more = false;
	close(fd);
	KTAP_CHECK(left);
}

KTAP_TEST(t_socket_with_a_mark_is_left_to_the_daemon_although_all_have_it)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	KTAP_CHECK(fd >= 0);
	KTAP_CHECK(!mark_why(fd));
	marked = true;
	KTAP_CHECK(!options_why(fd, AF_INET));
	KTAP_CHECK(mark_why(fd));
	marked = false;
	close(fd);
}

KTAP_TEST(t_listener_that_wire_does_not_find_in_its_vrf_is_logged)
{
	static struct tbg_worker worker;
	static struct tbg_server server = { .workers = &worker, .workers_nr = 1 };

	server.wire = (void *)&worker;
	strcpy(server.opt.listen_text[0], "0.0.0.0:80");
	worker.listeners[0].fd = socket(AF_INET, SOCK_STREAM, 0);
	worker.listeners[0].wire = true;
	worker.listeners_nr = 1;
	KTAP_CHECK(!tbg_listeners_listen(&server));
	KTAP_CHECK(!logged[0]);
	vrfs_err = -E2BIG;
	KTAP_CHECK(!tbg_listeners_listen(&server));
	KTAP_CHECK(strstr(logged, "0.0.0.0:80: the kernel has all its connections in the VRF"));
	KTAP_CHECK(strstr(logged, strerror(E2BIG)));
	close(worker.listeners[0].fd);
}

KTAP_MAIN()
