// SPDX-License-Identifier: GPL-2.0
/*
 * Listening sockets: opened here or received from a service manager, one for each
 * worker; and the choice of those that wire may answer on. Called once, at the
 * start.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/service.h"
#include "os/message.h"
#include "serve/server.h"
#include "tiers/sock.h"
#include "tiers/vrfs.h"
#include "tiers/wire.h"
#include "serve/worker.h"
#include "main/internal.h"

#define LISTEN_FORBIDDEN "%s: %s; ports below net.ipv4.ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE: grant it, or choose another port"
#define REBIND_MS	2000	/* until the kernel has closed sockets of a killed daemon */

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					: sizeof(struct sockaddr_in);
}

/* Family, address and port. */
static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;

	if (a->ss_family != b->ss_family ||
	    ((const struct sockaddr_in *)a)->sin_port != ((const struct sockaddr_in *)b)->sin_port)
		return false;
	return a->ss_family == AF_INET6 ?
	       !memcmp(&x->sin6_addr, &y->sin6_addr, sizeof(x->sin6_addr)) :
	       ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

static int socket_bound(const struct sockaddr_storage *a, bool shared)
{
	int fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (shared)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	if (a->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* inherited */
	if (bind(fd, (const struct sockaddr *)a, address_len(a))) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

/*
 * As socket_bound(), but without other users of the address. Listeners of a
 * killed daemon exist until the kernel has removed its io_uring rings, 10 to
 * 100 ms after its end on an idle machine. So a port in use is retried for
 * REBIND_MS.
 */
static int socket_alone(const struct sockaddr_storage *a)
{
	int fd = socket_bound(a, false);

	for (int i = 0; fd == -EADDRINUSE && i < REBIND_MS / 10; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		fd = socket_bound(a, false);
	}
	return fd;
}

/* How many of the first nr addresses of `listen` are this one. */
static unsigned int listens_of(const struct tbg_options *o, unsigned int nr,
			       const struct sockaddr_storage *a)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < nr; i++)
		ret += same_address(&o->listen[i], a);
	return ret;
}

/*
 * The socket with this address from the service manager, which may have several (ReusePort): the
 * one after `behind` others of the same address; -1: none. *ret_nr: how many have it.
 */
static int socket_given(const struct sockaddr_storage *a, unsigned int behind,
			unsigned int *ret_nr)
{
	int ret = -1;

	*ret_nr = 0;
	for (unsigned int i = 0; i < tbg_service_sockets(); i++) {
		struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
		socklen_t len = sizeof(at);

		if (!getsockname(TBG_SERVICE_FDS + i, (struct sockaddr *)&at, &len) &&
		    same_address(a, &at) && (*ret_nr)++ == behind)
			ret = TBG_SERVICE_FDS + i;
	}
	return ret;
}

/* All workers accept from one socket of the service manager, which outlives the daemon. */
static int listener_share(struct tbg_server *s, unsigned int nr, int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		struct tbg_worker *w = &s->workers[i];
		int own = fcntl(fd, F_DUPFD_CLOEXEC, TBG_SERVICE_FDS);

		if (own < 0) {
			tbg_option_log(&s->opt, "listen", nr, TBG_LISTEN_FAILED,
				       s->opt.listen_text[nr], strerror(errno));
			return -1;
		}
		w->listeners[w->listeners_nr].given = true;
		w->listeners[w->listeners_nr++].fd = own;
	}
	return 0;
}

/* Also serves received sockets whose address no `listen` names. Returns -1 if they are too many. */
static int sockets_add(struct tbg_server *s)
{
	struct tbg_options *o = &s->opt;

	for (unsigned int i = 0; i < tbg_service_sockets(); i++) {
		struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
		socklen_t len = sizeof(at);
		char host[INET6_ADDRSTRLEN];
		unsigned int known, all;

		if (getsockname(TBG_SERVICE_FDS + i, (struct sockaddr *)&at, &len) ||
		    getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), NULL, 0,
				NI_NUMERICHOST) || (at.ss_family != AF_INET &&
						    at.ss_family != AF_INET6)) {
			tbg_warn("toboggand: socket %u of the service manager: not TCP; left alone", i);
			continue;
		}
		known = listens_of(o, o->listen_nr, &at);
		if (socket_given(&at, known, &all) < 0)
			continue;
		/* nobody would accept its clients */
		if (o->listen_nr == TBG_LISTENER_MAX) {
			tbg_warn("toboggand: socket %u of the service manager: the daemon listens on %u sockets at most; remove ListenStream= lines, or units with ReusePort=",
				 i, TBG_LISTENER_MAX);
			return -1;
		}
		snprintf(o->listen_text[o->listen_nr], sizeof(o->listen_text[0]),
			 at.ss_family == AF_INET6 ? "[%s]:0" : "%s:0", host);
		o->listen[o->listen_nr++] = at;
	}
	return 0;
}

/*
 * Binds an address once for each worker. SO_REUSEPORT would share the port
 * with another daemon of the same user, so a socket without it is bound
 * first, which fails then.
 */
static int listener_open(struct tbg_server *s, unsigned int nr)
{
	struct sockaddr_storage *a = &s->opt.listen[nr];
	socklen_t len = sizeof(*a);
	unsigned int given;
	int fd = socket_given(a, listens_of(&s->opt, nr, a), &given);

	if (fd >= 0)
		return listener_share(s, nr, fd);
	fd = socket_alone(a);

	for (unsigned int i = 0; fd >= 0 && i < s->workers_nr; i++) {
		struct tbg_worker *w = &s->workers[i];

		if (!i)
			close(fd);
		fd = socket_bound(a, true);
		if (fd < 0)
			break;
		w->listeners[w->listeners_nr++].fd = fd;
		if (!i)		/* port 0: the kernel has chosen one */
			getsockname(fd, (struct sockaddr *)a, &len);
	}
	if (fd >= 0)
		return 0;
	tbg_option_log(&s->opt, "listen", nr, fd == -EACCES ? LISTEN_FORBIDDEN : TBG_LISTEN_FAILED,
		       s->opt.listen_text[nr], strerror(-fd));
	return fd;
}

static void listener_text(struct tbg_server *s, unsigned int nr)
{
	const struct sockaddr_storage *a = &s->opt.listen[nr];
	char *text = s->opt.listen_text[nr], *colon = strrchr(text, ':');
	in_port_t port = a->ss_family == AF_INET6 ?
		((const struct sockaddr_in6 *)a)->sin6_port :
		((const struct sockaddr_in *)a)->sin_port;

	snprintf(colon, sizeof(s->opt.listen_text[nr]) - (colon - text), ":%u",
		 ntohs(port));
}

int tbg_listeners_open(struct tbg_server *s)
{
	if (sockets_add(s) || tbg_options_listen_lists(&s->opt))
		return -1;
	for (unsigned int i = 0; i < s->opt.listen_nr; i++) {
		if (listener_open(s, i))
			return -1;
		listener_text(s, i);
	}
	return 0;
}

/* Where that fails, wire does not find the listener and leaves its connections alone. */
static void vrf_listen(struct tbg_server *s, unsigned int nr, int fd)
{
	int err = tbg_vrfs_listen(tbg_wire_vrfs(s->wire), fd);

	if (err)
		tbg_warn("toboggand: %s: the kernel has all its connections in the VRF: %s",
			 s->opt.listen_text[nr], strerror(-err));
}

int tbg_listeners_listen(struct tbg_server *s)
{
	for (unsigned int i = 0; i < s->workers_nr; i++)
		for (unsigned int j = 0; j < s->workers[i].listeners_nr; j++) {
			int fd = s->workers[i].listeners[j].fd;

			if (listen(fd, TBG_BACKLOG)) {
				tbg_option_log(&s->opt, "listen", j, TBG_LISTEN_FAILED,
					       s->opt.listen_text[j], strerror(errno));
				return -1;
			}
			if (s->wire && s->workers[i].listeners[j].wire)
				vrf_listen(s, j, fd);
		}
	return 0;
}

/* Returns why wire's packets would differ from the socket's, which have a mark; NULL: not so. */
static const char *mark_why(int fd)
{
	socklen_t len = sizeof(int);
	int mark;

	return getsockopt(fd, SOL_SOCKET, SO_MARK, &mark, &len) || mark ?
	       "its socket has a mark (Mark= of the unit, or a program of the cgroup), which wire's packets would not have" : NULL;
}

/*
 * Returns how the packets of its connections differ from those of an ordinary socket, by options
 * that a unit may set (IPTTL=, IPTOS=, Mark=, Priority=) and others of that kind. Wire's packets
 * would not have them. NULL: they do not; what cannot be compared counts as a difference.
 */
static const char *options_why(int fd, sa_family_t family)
{
	static const struct { int level, name; } option[] = {
		{ SOL_IP, IP_TTL }, { SOL_IP, IP_TOS }, { SOL_IP, IP_MTU_DISCOVER },
		{ SOL_IPV6, IPV6_UNICAST_HOPS }, { SOL_IPV6, IPV6_TCLASS },
		{ SOL_IPV6, IPV6_MTU_DISCOVER }, { SOL_SOCKET, SO_MARK },
		{ SOL_SOCKET, SO_PRIORITY }, { SOL_TCP, TCP_MAXSEG },
	};
	int plain = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), a, b;
	bool differs = false;

	if (plain < 0)
		return "the options of its socket cannot be compared with those of another one";
	for (size_t i = 0; i < sizeof(option) / sizeof(*option); i++) {
		socklen_t a_len = sizeof(a), b_len = sizeof(b);

		/* IPv4's have none of IPv6 */
		if (!getsockopt(fd, option[i].level, option[i].name, &a, &a_len) &&
		    !getsockopt(plain, option[i].level, option[i].name, &b, &b_len))
			differs |= a != b;
	}
	close(plain);
	return differs ? "its socket has options for packets (IPTTL=, IPTOS=, Mark= or Priority= of the unit), which wire's would not have" : NULL;
}

/*
 * Returns whether wire is to leave a listener of the worker w alone. Notes why, and logs it,
 * once for all workers.
 */
static bool is_left(struct tbg_server *s, unsigned int w, unsigned int nr)
{
	int fd = s->workers[w].listeners[nr].fd;
	const char *why = mark_why(fd);

	if (!why && s->workers[w].listeners[nr].given)
		why = options_why(fd, s->opt.listen[nr].ss_family);
	if (why && !s->listener_left[nr])
		tbg_warn("toboggand: %s: left to the daemon, without wire: %s",
			 s->opt.listen_text[nr], why);
	if (why)
		s->listener_left[nr] = why;
	return why;
}

int tbg_listeners_give(struct tbg_server *s, struct tbg_wire *wire, struct tbg_sock *sock,
		       char *ret_why, size_t len)
{
	int err = 0;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		for (unsigned int j = 0; j < s->workers[i].listeners_nr; j++) {
			int fd = s->workers[i].listeners[j].fd;
			unsigned int nr = s->workers_nr;

			/* kernel tiers must not answer on it */
			if (s->opt.listen_clients[j].nr) {
				s->listener_left[j] = "only the daemon has its list of clients";
				continue;
			}
			if (s->workers[i].listeners[j].given)
				socket_given(&s->opt.listen[j], 0, &nr);
			if (wire && is_left(s, i, j))
				continue;
			s->workers[i].listeners[j].wire = wire || s->workers[i].listeners[j].wire;
			err = err ?: (wire ? tbg_wire_listen(wire, fd, nr) ?:
					     tbg_vrfs_give(tbg_wire_vrfs(wire), fd) :
					     tbg_sock_listen(sock, fd));
		}
	if (err)
		snprintf(ret_why, len, "storage on the listening sockets: %s; `toboggan probe` lists the kernel's features",
			 strerror(-err));
	return err;
}
