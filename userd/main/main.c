// SPDX-License-Identifier: GPL-2.0
/*
 * Start and end of the daemon: server_open() is the order. What outlives a
 * process (socket files, BPF on interfaces, queued log lines) is undone at the
 * end; the rest is the kernel's to free. The main thread is the control thread;
 * it says `ready` once everything serves.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin/admin.h"
#include "tiers/attach.h"
#include "cache/objects.h"
#include "store/spool.h"
#include "os/clock.h"
#include "control/control.h"
#include "tiers/flow.h"
#include "gateway/supervise.h"
#include "tiers/hosts.h"
#include "log/access.h"
#include "os/filter.h"
#include "os/loop.h"
#include "main/privileged.h"
#include "files/open_files.h"
#include "files/compressed.h"
#include "os/privilege.h"
#include "os/service.h"
#include "main/reload.h"
#include "os/limits.h"
#include "files/root.h"
#include "os/message.h"
#include "main/server.h"
#include "tiers/sock.h"
#include "os/stdio_hold.h"
#include "store/responses.h"
#include "config/units.h"
#include "files/watch.h"
#include "tiers/wire.h"
#include "serve/aside.h"
#include "serve/worker.h"

#define URING_FORBIDDEN "toboggand: serving by epoll, which is slower: a seccomp filter or a security module forbids io_uring (containers do), or the kernel is too old; allow io_uring_setup, io_uring_enter and io_uring_register"
#define URING_DISABLED "toboggand: serving by epoll, which is slower: the sysctl kernel.io_uring_disabled is %u; set it to 0"
#define LISTEN_FORBIDDEN "%s: %s; ports below net.ipv4.ip_unprivileged_port_start (1024) need CAP_NET_BIND_SERVICE: grant it, or choose another port"
#define LISTEN_FAILED	"%s: %s; choose another address or port, or stop who has it"
#define DETACH_WAIT_MS	2000	/* for the last clients to close, through wire */
#define REBIND_MS	2000	/* for the kernel to close what a killed daemon had */
#define MSG_LEN		512
#define OUTPUT_LEAST	(4u << 20)	/* bytes for clients that are slow */

struct start {
	struct tbg_server s;
	struct tbg_identity id;
	char **argv;
	struct tbg_reload *reload;
	struct tbg_left *left;		/* by killed daemons; still needed */
	int signal_fd;
	unsigned int threads_nr;	/* running */
	atomic_uint threads_ended;
	atomic_uint threads_bare;	/* without capabilities */
	atomic_int worker_err;
	unsigned int stops;		/* SIGTERMs so far */
	uint64_t drain_ns, ended_ns;	/* draining began; the workers have ended */
};

void tbg_server_user_stats(const struct tbg_server *s,
			   struct tbg_user_stats *ret)
{
	_Atomic uint64_t *sum = (_Atomic uint64_t *)ret;

	memset(ret, 0, sizeof(*ret));
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		const _Atomic uint64_t *one =
			(const _Atomic uint64_t *)&s->workers[i].stats;

		for (size_t j = 0; j < sizeof(*ret) / sizeof(*sum); j++)
			sum[j] += atomic_load_explicit(&one[j], memory_order_relaxed);
	}
}

const struct tbg_metrics *tbg_server_metrics(const struct tbg_server *s, unsigned int nr)
{
	return &s->workers[nr].metrics;
}

const struct tbg_sites *tbg_server_sites_hold(struct tbg_server *s)
{
	const struct tbg_sites *ret;

	pthread_mutex_lock(&s->sites_lock);
	ret = s->sites;
	tbg_sites_hold(ret);
	pthread_mutex_unlock(&s->sites_lock);
	return ret;
}

void tbg_server_sites_set(struct tbg_server *s, const struct tbg_sites *sites)
{
	pthread_mutex_lock(&s->sites_lock);
	s->sites = sites;
	pthread_mutex_unlock(&s->sites_lock);
}

/* Listeners */

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
 * As socket_bound(), alone on the address. A killed daemon has its listeners
 * until the kernel has taken its rings apart, which goes on after its end: 10
 * to 100 ms on an idle machine. So a taken port is asked for until REBIND_MS.
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

/* The socket of that address which the service manager has given; -1: none. */
static int socket_given(const struct sockaddr_storage *a)
{
	for (unsigned int i = 0; i < tbg_service_sockets(); i++) {
		struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
		socklen_t len = sizeof(at);

		if (!getsockname(TBG_SERVICE_FDS + i, (struct sockaddr *)&at, &len) &&
		    same_address(a, &at))
			return TBG_SERVICE_FDS + i;
	}
	return -1;
}

/* All workers accept from a socket that is the manager's, and outlives us. */
static int listener_share(struct tbg_server *s, unsigned int nr, int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		struct tbg_worker *w = &s->workers[i];
		int own = fcntl(fd, F_DUPFD_CLOEXEC, TBG_SERVICE_FDS);

		if (own < 0) {
			tbg_option_say(&s->opt, "listen", nr, LISTEN_FAILED,
				       s->opt.listen_text[nr], strerror(errno));
			return -1;
		}
		w->listeners[w->listeners_nr].given = true;
		w->listeners[w->listeners_nr++].fd = own;
	}
	return 0;
}

/* Sockets given, of addresses that no `listen` names, are served too. */
static void sockets_add(struct tbg_server *s)
{
	struct tbg_options *o = &s->opt;

	for (unsigned int i = 0; i < tbg_service_sockets(); i++) {
		struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
		socklen_t len = sizeof(at);
		char host[INET6_ADDRSTRLEN];
		bool known = false;

		if (getsockname(TBG_SERVICE_FDS + i, (struct sockaddr *)&at, &len) ||
		    getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), NULL, 0,
				NI_NUMERICHOST) || (at.ss_family != AF_INET &&
						    at.ss_family != AF_INET6)) {
			tbg_report("toboggand: socket %u of the service manager: not TCP; left alone", i);
			continue;
		}
		for (unsigned int j = 0; j < o->listen_nr; j++)
			known |= same_address(&o->listen[j], &at);
		if (known || o->listen_nr == TBG_LISTENER_MAX)
			continue;
		snprintf(o->listen_text[o->listen_nr], sizeof(o->listen_text[0]),
			 at.ss_family == AF_INET6 ? "[%s]:0" : "%s:0", host);
		o->listen[o->listen_nr++] = at;
	}
}

/*
 * Binds an address once for each worker. SO_REUSEPORT would share the port of
 * another daemon of the same user: a socket without it goes first and tells.
 */
static int listener_open(struct tbg_server *s, unsigned int nr)
{
	struct sockaddr_storage *a = &s->opt.listen[nr];
	socklen_t len = sizeof(*a);
	int fd = socket_given(a);

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
	tbg_option_say(&s->opt, "listen", nr, fd == -EACCES ? LISTEN_FORBIDDEN : LISTEN_FAILED,
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

static int listeners_open(struct tbg_server *s)
{
	sockets_add(s);
	for (unsigned int i = 0; i < s->opt.listen_nr; i++) {
		if (listener_open(s, i))
			return -1;
		listener_text(s, i);
	}
	return 0;
}

static int listeners_listen(struct tbg_server *s)
{
	for (unsigned int i = 0; i < s->workers_nr; i++)
		for (unsigned int j = 0; j < s->workers[i].listeners_nr; j++)
			if (listen(s->workers[i].listeners[j].fd, TBG_BACKLOG)) {
				tbg_option_say(&s->opt, "listen", j, LISTEN_FAILED,
					       s->opt.listen_text[j], strerror(errno));
				return -1;
			}
	return 0;
}

/* Workers */

static int workers_make(struct tbg_server *s)
{
	size_t bytes = (s->opt.workers * sizeof(*s->workers) + 63) & ~63ul;

	s->workers = aligned_alloc(64, bytes);
	if (!s->workers)
		return -1;
	memset(s->workers, 0, bytes);
	s->workers_nr = s->opt.workers;
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		s->workers[i].s = s;
		s->workers[i].id = i;
		s->workers[i].wake_fd = eventfd(0, EFD_CLOEXEC);
		if (s->workers[i].wake_fd < 0)
			return -1;
	}
	return 0;
}

/* What the sysctl says; 0 also where there is none, before Linux 6.6. */
static unsigned int uring_disabled(void)
{
	FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	unsigned int ret = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%u", &ret) != 1)
		ret = 0;
	fclose(f);
	return ret;
}

/* Every file is opened with it: without, each would be a 403 or a 404. */
static bool openat2_works(void)
{
	int fd = tbg_root_open_below(AT_FDCWD, ".", O_PATH | O_DIRECTORY, 0);

	if (fd >= 0) {
		close(fd);
		return true;
	}
	tbg_report("toboggand: openat2: %s; a seccomp filter forbids it (old container runtimes do): allow it, no file can be opened safely without",
		   strerror(-fd));
	return false;
}

static int rings_open(struct tbg_server *s)
{
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		int err = tbg_worker_open(&s->workers[i]);

		if (!err)
			continue;
		tbg_report("toboggand: io_uring: %s; try fewer --workers", strerror(-err));
		return err;
	}
	if (s->workers[0].ring.epoll)
		tbg_report(uring_disabled() ? URING_DISABLED : URING_FORBIDDEN, uring_disabled());
	return 0;
}

static struct start *the;

static void *worker_thread(void *arg)
{
	struct tbg_worker *w = arg;
	const struct tbg_server *s = w->s;
	bool gives = s->wire && tbg_wire_owns(s->wire) && s->opt.give_back;
	int err = gives ? tbg_privilege_net() : tbg_privilege_none();

	atomic_fetch_add(&the->threads_bare, 1);
	err = err ?: tbg_worker_run(w);
	if (err)
		atomic_store(&the->worker_err, err);
	atomic_fetch_add(&the->threads_ended, 1);
	if (err)
		kill(getpid(), SIGTERM);
	return NULL;
}

static int threads_start(struct start *t)
{
	for (unsigned int i = 0; i < t->s.workers_nr; i++) {
		struct tbg_worker *w = &t->s.workers[i];
		char name[16];

		if (pthread_create(&w->thread, NULL, worker_thread, w)) {
			tbg_report("toboggand: worker %u: no thread; try fewer --workers", i);
			return -1;
		}
		t->threads_nr++;
		snprintf(name, sizeof(name), "tbg/%u", i);
		pthread_setname_np(w->thread, name);
	}
	/* `ready` promises that no worker holds a capability */
	while (atomic_load(&t->threads_bare) < t->threads_nr)
		usleep(100);
	return 0;
}

/* Wire */

/* A name that does not exist is a mistake; all else only turns wire off. */
static int ifaces_check(const struct tbg_options *o)
{
	const char *names = o->wire;
	char name[IF_NAMESIZE];
	bool xdp;

	if (!strcmp(names, "auto") || !strcmp(names, "off"))
		return 0;
	for (; *names; names += strcspn(names, ","), names += *names == ',') {
		if (tbg_value_iface(names, name, &xdp) && if_nametoindex(name))
			continue;
		tbg_option_say(o, "wire", 0, "%s: no such interface; see ip link for those there are",
			       name);
		return -ENODEV;
	}
	return 0;
}

/* What our sockets accept is wire's or sock's, whichever is given; or *ret_why. */
static int listeners_give(struct tbg_server *s, struct tbg_wire *wire,
			  struct tbg_sock *sock, char *ret_why, size_t len)
{
	int err = 0;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		for (unsigned int j = 0; j < s->workers[i].listeners_nr; j++) {
			int fd = s->workers[i].listeners[j].fd;

			err = err ?: (wire ? tbg_wire_listen(wire, fd) :
					     tbg_sock_listen(sock, fd));
		}
	if (err)
		snprintf(ret_why, len, "storage on the listening sockets: %s; `toboggan probe` tells what the kernel has",
			 strerror(-err));
	return err;
}

static void wire_open(struct tbg_server *s)
{
	if (!strcmp(s->opt.wire, "off"))
		strcpy(s->wire_off, "--wire off");
	else if (!s->opt.tier_wire)
		snprintf(s->wire_off, sizeof(s->wire_off), "--tiers %suser",
			 s->opt.tier_sock ? "sock," : "");
	else if (tbg_wire_open(&s->wire, s->opt.wire, s->opt.late_sockets,
			       s->opt.wire_size, &s->plan, s->opt.listen,
			       s->opt.listen_nr, s->wire_off, sizeof(s->wire_off)))
		s->wire = NULL;
	if (s->wire && listeners_give(s, s->wire, NULL, s->wire_off,
				      sizeof(s->wire_off))) {
		tbg_wire_close(s->wire);
		s->wire = NULL;
	}
	if (s->wire) {
		s->maps = tbg_wire_maps(s->wire);
		/* workers close what is idle for longer than this */
		tbg_wire_limits(s->wire, s->opt.idle_ms, s->opt.header_ms);
	} else {
		tbg_report("toboggand: wire is off: %s", s->wire_off);
	}
}

/* Sock */

static int news_open(struct tbg_server *s, char *ret_why, size_t len)
{
	int err = 0;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		err = err ?: tbg_worker_news(&s->workers[i]);
	if (!err)
		return 0;
	for (unsigned int i = 0; i < s->workers_nr; i++)
		tbg_worker_no_news(&s->workers[i]);
	snprintf(ret_why, len, "ring buffers: %s; %s", strerror(-err), tbg_maps_advice(err));
	return err;
}

static void sock_open(struct tbg_server *s)
{
	if (!s->opt.tier_sock) {
		snprintf(s->sock_off, sizeof(s->sock_off), "--tiers %suser",
			 s->opt.tier_wire ? "wire," : "");
		return;
	}
	if (tbg_sock_open(&s->sock, &s->plan, s->workers_nr,
			  s->wire ? tbg_wire_object(s->wire) : NULL,
			  s->opt.sock_unlisted, s->sock_off, sizeof(s->sock_off)))
		s->sock = NULL;
	if (s->sock && (listeners_give(s, NULL, s->sock, s->sock_off,
				       sizeof(s->sock_off)) ||
			news_open(s, s->sock_off, sizeof(s->sock_off)))) {
		tbg_sock_close(s->sock);
		s->sock = NULL;
	}
	if (!s->sock)
		tbg_report("toboggand: sock is off: %s", s->sock_off);
	else if (!s->maps)
		s->maps = tbg_sock_maps(s->sock);
}

static void ready_say(const struct tbg_server *s)
{
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr = tbg_wire_ifaces(s->wire, ifaces);
	char line[MSG_LEN * 2] = "ready ";
	const char *comma = "";
	size_t at = 6;

	for (unsigned int i = 0; i < s->opt.listen_nr && at < MSG_LEN; i++)
		at += snprintf(line + at, sizeof(line) - at, "%s%s",
			       i ? " " : "", s->opt.listen_text[i]);
	at += snprintf(line + at, sizeof(line) - at, " tiers %s%suser workers %u wire ",
		       s->wire ? "wire," : "", s->sock ? "sock," : "",
		       s->workers_nr);
	for (unsigned int i = 0; i < nr && at < sizeof(line) - 64; i++) {
		if (!strcmp(ifaces[i].how, "off"))
			continue;
		at += snprintf(line + at, sizeof(line) - at, "%s%s (%s%s)", comma,
			       ifaces[i].name, ifaces[i].how,
			       strcmp(ifaces[i].xdp, "on") ? "" : ", xdp");
		comma = ", ";
	}
	if (!*comma)
		at += snprintf(line + at, sizeof(line) - at, "off");
	if (s->admin)
		snprintf(line + at, sizeof(line) - at, " admin %s", tbg_admin_text(s->admin));
	tbg_report("%s", line);
}

/* What killed daemons left goes as soon as their connections are over. */
static void left_sweep(struct start *t)
{
	t->left = tbg_left_sweep(t->left, tbg_flows_needed, tbg_mono_ns());
}

/* Timers and events of the control thread */

static void on_clock(void *arg, uint64_t now_ns)
{
	struct tbg_server *s = arg;

	tbg_clock_tick(s->clock, now_ns);
	if (s->log)
		tbg_log_flush(s->log);
	atomic_store(&s->lines_lost, s->log_lost + tbg_log_lost(s->log));
	atomic_store(&s->beat_ns, now_ns);
	tbg_service_beat(now_ns);
}

static void on_second(void *arg, uint64_t now_ns)
{
	struct start *t = arg;
	struct tbg_server *s = &t->s;

	tbg_cache_tick(s->cache, now_ns);
	tbg_watch_tick(s->watch, now_ns);
	tbg_open_files_tick(s->opened, now_ns);
	tbg_gateway_tick(s->gateway);
	if (s->wire)
		tbg_wire_tick(s->wire, now_ns);
	if (s->sock)
		tbg_sock_tick(s->sock);
	if (t->left) {
		tbg_privilege_raise();
		left_sweep(t);
		tbg_privilege_lower();
	}
}

static void root_hidden(const char *path)
{
	tbg_report("toboggand: root \"%s\": a folder above it is closed to the daemon's user: served as it is, but should the path come to lead elsewhere, that is seen at a reload (SIGHUP) alone",
		path);
}

void tbg_server_wake(const struct tbg_server *s)
{
	uint64_t one = 1;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		if (write(s->workers[i].wake_fd, &one, sizeof(one)) < 0)
			return;
}

static void stop(struct start *t)
{
	if (!t->stops++) {
		tbg_service_say("STOPPING=1");
		t->drain_ns = tbg_mono_ns();
		if (t->s.maps)
			tbg_maps_drain(t->s.maps);
		atomic_store(&t->s.draining, true);
		tbg_server_wake(&t->s);
	} else {
		tbg_loop_stop(t->s.loop);
	}
}

static void on_signal(void *arg, uint32_t events)
{
	struct start *t = arg;
	struct signalfd_siginfo info;

	while (read(t->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTERM:
		case SIGINT:
		case SIGQUIT:
			stop(t);
			break;
		case SIGUSR1:
			if (t->s.log)
				tbg_log_reopen(t->s.log);	/* says what fails */
			break;
		case SIGHUP:
			tbg_reload(t->reload);
			break;
		}
	}
}

/*
 * Clients have yet to close what the workers have closed, and without wire neither
 * side knows the other's numbers. Some never do: they are waited for no longer
 * than draining may take, or for a little if it has taken longer.
 */
static void detach_await(struct start *t, uint64_t now_ns)
{
	unsigned int left = t->s.wire ? tbg_wire_flows_open(t->s.wire, t->drain_ns) : 0;

	if (!t->ended_ns)
		t->ended_ns = now_ns;
	if (left && (now_ns - t->drain_ns < TBG_DRAIN_MS * 1000000ull ||
		     now_ns - t->ended_ns < DETACH_WAIT_MS * 1000000ull))
		return;
	if (left)
		tbg_report("toboggand: wire: %u connections that clients have not closed lose their translation; they end by timers",
			left);
	tbg_loop_stop(t->s.loop);
}

/* Goes on with a reload; while draining, ends when workers and clients have. */
static void on_step(void *arg, uint64_t now_ns)
{
	struct start *t = arg;

	tbg_reload_tick(t->reload);
	if (t->stops && atomic_load(&t->threads_ended) == t->threads_nr)
		detach_await(t, now_ns);
}

static int signals_block(struct start *t)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);	/* a log at its limit costs lines */
	t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return t->signal_fd < 0 ? -errno : 0;
}

static int loop_fill(struct start *t)
{
	struct tbg_server *s = &t->s;
	int err;

	err = tbg_loop_add(s->loop, t->signal_fd, EPOLLIN, on_signal, t);
	err = err ?: tbg_loop_every(s->loop, 100, on_clock, s);
	err = err ?: tbg_loop_every(s->loop, 1000, on_second, t);
	return err ?: tbg_loop_every(s->loop, 20, on_step, t);
}

/* The start, in order; false: told why. Unwound by server_close(). */

/*
 * Half of the budget is for what upstreams answer, if there are any. Where a
 * reload may bring some, a little is left for them.
 */
static uint64_t stock_bytes(const struct tbg_server *s)
{
	if (s->sites->upstreams_nr)
		return s->opt.memory / 2;
	return s->opt.config ? s->opt.memory / 16 : 0;
}

/* For large texts in their codings. */
static uint64_t press_bytes(const struct tbg_server *s)
{
	return s->opt.memory / 16;
}

/* For answers that clients have not taken yet; some find room in any case. */
static uint64_t output_bytes(const struct tbg_server *s)
{
	uint64_t bytes = s->opt.memory / 8;

	return bytes > OUTPUT_LEAST ? bytes : OUTPUT_LEAST;
}

static bool cache_open(struct tbg_server *s)
{
	uint64_t key[2], mark[2];
	uint32_t run;
	int err;

	if (getrandom(key, sizeof(key), 0) != sizeof(key) ||
	    getrandom(mark, sizeof(mark), 0) != sizeof(mark) ||
	    getrandom(&run, sizeof(run), 0) != sizeof(run)) {
		tbg_report("toboggand: getrandom: %s", strerror(errno));
		return false;
	}
	if (s->maps) {
		memcpy(s->maps->knob->key, key, sizeof(key));
		s->maps->knob->uris = stock_bytes(s) > 0;
	}
	/* a number of this run alone: so a loop is told from a chain */
	snprintf(s->via, sizeof(s->via), "toboggan (%08x)", run);
	snprintf(s->mark, sizeof(s->mark), "%016llx%016llx", (unsigned long long)mark[0],
		 (unsigned long long)mark[1]);
	if (tbg_store_open(&s->stock, stock_bytes(s), key) ||
	    tbg_compressed_open(&s->press, press_bytes(s))) {
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
		return false;
	}
	tbg_hosts_tell(s->maps, key, s->sites, NULL);
	if (tbg_cache_open(&s->cache, &s->plan, s->maps, key) ||
	    tbg_open_files_open(&s->opened, s->cache) ||
	    tbg_clock_open(&s->clock, s->maps ? s->maps->knob : NULL,
			   s->opt.unattended_ms)) {
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
		return false;
	}
	err = tbg_aside_open(&s->aside) ?: tbg_watch_open(&s->watch, s->roots, s->cache);
	if (err)
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
	else if (!tbg_watch_works(s->watch))
		tbg_report("toboggand: inotify: %s; each file is looked at every %u ms instead: raise the sysctl fs.inotify.max_user_instances, or the limit of open files",
			   strerror(errno), TBG_STAT_MS);
	return !err;
}

static bool watch_start(struct tbg_server *s)
{
	int err = tbg_watch_start(s->watch, tbg_privilege_none, root_hidden);

	if (err)
		tbg_report("toboggand: no thread to watch files: %s", strerror(-err));
	return !err;
}

static bool control_open(struct start *t)
{
	struct tbg_server *s = &t->s;
	char msg[MSG_LEN] = "";
	const char *name;
	struct stat st;
	int folder;

	if (tbg_loop_open(&s->loop)) {
		tbg_report("toboggand: epoll: %s; raise the limit of open files (ulimit -n)",
			strerror(errno));
		return false;
	}
	if (tbg_control_open(&s->control, s, s->opt.control, &t->id, msg, sizeof(msg))) {
		tbg_option_say(&s->opt, "control", 0, "%s", msg);
		return false;
	}
	if (tbg_admin_open(&s->admin, s, &t->id, msg, sizeof(msg))) {
		tbg_option_say(&s->opt, "admin", 0, "%s", msg);
		return false;
	}
	tbg_control_socket(s->control, &folder, &name, &st);
	tbg_privileged_socket(folder, name, &st);
	if (tbg_admin_socket(s->admin, &folder, &name, &st)) {
		tbg_privileged_socket(folder, name, &st);
		close(folder);
	}
	tbg_privileged_started();
	if (loop_fill(t)) {
		tbg_report("toboggand: epoll: no room for the daemon's own descriptors");
		return false;
	}
	return true;
}

int tbg_server_root(const struct tbg_server *s)
{
	const struct tbg_sites *sites = s->sites;
	const struct tbg_site *site = sites->fallback;

	return site->locations[site->locations_nr - 1].root;
}

/* The folder by which the user to run as is chosen; -1: none, others answer. */
static int root_fd(const struct tbg_server *s)
{
	char name[TBG_ROOT_TEXT];
	const char *below;

	if (tbg_server_root(s) < 0)
		return -1;
	tbg_root_text(tbg_server_root(s), name);
	return tbg_root_fd(s->roots, name, &below);
}

/* After root is dropped: what its user may not open, another process opens. */
static bool log_open(struct tbg_server *s)
{
	struct tbg_log *log = NULL;
	char msg[MSG_LEN] = "";

	if (!s->opt.access_log)
		return true;
	if (tbg_log_open(&log, s->opt.access_log, s->opt.log_format, s->opt.log_pattern, s->maps,
			 tbg_privileged_log, msg, sizeof(msg))) {
		tbg_option_say(&s->opt, "access-log", 0, "%s", msg);
		return false;
	}
	s->log = log;
	if (tbg_log_watch(s->log, s->loop)) {
		tbg_report("toboggand: epoll: no room for the daemon's own descriptors");
		return false;
	}
	return !tbg_log_start(s->log);
}

static bool privileges_drop(struct start *t)
{
	int err;

	if (t->id.fallback)
		tbg_report("toboggand: the usual users cannot search %s: running as its owner, %s, without capabilities",
		    tbg_root_path(t->s.roots, tbg_server_root(&t->s)), t->id.name);
	err = tbg_privilege_drop(&t->id);
	if (err) {
		tbg_report("toboggand: cannot become %s: %s", t->id.name, strerror(-err));
		return false;
	}
	err = tbg_filter_load(TBG_FILTER_DAEMON);
	if (err)
		tbg_report("toboggand: seccomp: %s; no system call is refused: boot a kernel with CONFIG_SECCOMP_FILTER=y",
			strerror(-err));
	return true;
}

/* While we are root: programs may be another user's, or have another root. */
static bool gateway_open(struct start *t)
{
	struct tbg_server *s = &t->s;
	int err;

	s->gateway = tbg_gateway_new(s, t->id.uid, t->id.gid);
	err = s->gateway ? tbg_gateway_take(s->gateway, s->sites) : -ENOMEM;
	if (err)
		tbg_report("toboggand: cgi and module: %s", strerror(-err));
	else
		tbg_gateway_started(s->gateway);
	return !err;
}

/*
 * Twice: first for descriptors to open all there is to open, then for as many
 * connections as fit beside that.
 */
static bool limits_take(struct tbg_server *s, unsigned int wanted)
{
	tbg_conn_limit_own();
	s->opt.connections_max = tbg_conn_limit_set(wanted, s->sites->upstreams_nr);
	if (s->opt.connections_max)
		return true;
	tbg_report("toboggand: the limit of open files leaves none for connections; raise it (ulimit -n) to %u at least",
		tbg_conn_limit_least());
	return false;
}

static bool server_open(struct start *t)
{
	struct tbg_server *s = &t->s;
	char msg[MSG_LEN] = "";
	unsigned int wanted = s->opt.connections_max;
	int err;

	if (tbg_privilege_choose(&t->id, s->opt.user, root_fd(s), msg, sizeof(msg))) {
		tbg_report("toboggand: %s", msg);
		return false;
	}
	if (!openat2_works() || ifaces_check(&s->opt))
		return false;
	err = tbg_privileged_start(&t->id, &s->opt, t->argv);
	if (err) {
		tbg_report("toboggand: no process for the log: %s", strerror(-err));
		return false;
	}
	if (!limits_take(s, wanted ?: TBG_CONNECTIONS) || workers_make(s) ||
	    listeners_open(s) || rings_open(s))
		return false;
	tbg_plan_make(&s->plan, s->opt.memory - stock_bytes(s) - press_bytes(s),
		      wanted ? s->opt.connections_max : 0);
	tbg_output_limit_set(output_bytes(s));
	tbg_spool_total_set(s->opt.body_total);
	s->plan.sock = s->opt.tier_sock;
	t->left = tbg_left_find();
	left_sweep(t);
	wire_open(s);
	sock_open(s);
	if (!cache_open(s) || !control_open(t) || !gateway_open(t) ||
	    !limits_take(s, wanted ?: TBG_CONNECTIONS) || !privileges_drop(t) ||
	    !log_open(s))
		return false;
	if (s->opt.connections_max < wanted)
		tbg_report("toboggand: --connections-max %u: descriptors suffice for %u; raise the limit of open files",
			wanted, s->opt.connections_max);
	else if (!wanted && s->opt.connections_max < TBG_CONNECTIONS)
		tbg_report("toboggand: the limit of open files leaves room for %u connections at a time, of %u; raise it (ulimit -n, or LimitNOFILE of a unit), or give --connections-max",
			   s->opt.connections_max, TBG_CONNECTIONS);
	return watch_start(s) && !listeners_listen(s) && !threads_start(t) &&
	       !tbg_admin_start(s->admin);
}

static void workers_end(struct start *t)
{
	struct tbg_server *s = &t->s;

	atomic_store(&s->draining, true);
	for (unsigned int i = 0; i < t->threads_nr; i++) {
		uint64_t now = TBG_WAKE_NOW;

		if (write(s->workers[i].wake_fd, &now, sizeof(now)) > 0)
			pthread_join(s->workers[i].thread, NULL);
	}
}

static void server_close(struct start *t)
{
	struct tbg_server *s = &t->s;

	workers_end(t);
	tbg_watch_stop(s->watch);
	tbg_gateway_close(s->gateway);
	tbg_reload_close(t->reload);
	tbg_log_close(s->log, NULL);	/* its knob goes with wire */
	tbg_admin_close(s->admin);
	tbg_control_close(s->control);
	tbg_privileged_unlink();
	tbg_privileged_stop();
	tbg_privilege_raise();
	tbg_sock_close(s->sock);
	tbg_wire_close(s->wire);
	left_sweep(t);
	tbg_privilege_lower();
	if (s->loop)
		tbg_loop_close(s->loop);
}

int main(int argc, char **argv)
{
	static struct start t;
	struct tbg_sites *sites = NULL;
	bool served;
	int err;

	tbg_privilege_close();
	tbg_service_begin();
	tbg_stdio_hold(O_RDWR);
	t.argv = argv;
	if (tbg_roots_open(&t.s.roots))
		return 1;
	err = tbg_options_parse(&t.s.opt, argv, t.s.roots);
	err = err ?: tbg_options_sites(&t.s.opt, NULL, &sites);
	if (err)
		return err == TBG_OPTIONS_DONE ? 0 : err;
	t.s.sites = sites;
	pthread_mutex_init(&t.s.sites_lock, NULL);
	the = &t;
	if (tbg_reload_open(&t.reload, &t.s, argv))
		return 1;
	t.s.started_ns = tbg_mono_ns();
	if (signals_block(&t)) {
		tbg_report("toboggand: signalfd: %s", strerror(errno));
		return 1;
	}
	served = server_open(&t);
	if (served) {
		ready_say(&t.s);
		tbg_service_say("READY=1");
		tbg_loop_run(t.s.loop);
	}
	server_close(&t);
	err = atomic_load(&t.worker_err);
	if (err)
		tbg_report("toboggand: a worker failed: %s", strerror(-err));
	return served && !err ? 0 : 1;
}
