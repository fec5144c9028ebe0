// SPDX-License-Identifier: GPL-2.0
/*
 * Start and end of the daemon, in the order of server_open(). What outlives a
 * process (socket files, BPF on interfaces, queued log lines) is removed at the
 * end; the kernel frees the rest. The main thread is the control thread; it
 * logs `ready` once everything serves.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
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
#include "upstream/address.h"
#include "proxy/transfer.h"
#include "control/control.h"
#include "gateway/supervise.h"
#include "tiers/hosts.h"
#include "log/access.h"
#include "log/hits.h"
#include "os/filter.h"
#include "os/loop.h"
#include "main/access_log.h"
#include "main/privileged.h"
#include "files/open_files.h"
#include "files/compressed.h"
#include "os/privilege.h"
#include "os/repair.h"
#include "os/service.h"
#include "main/reload.h"
#include "os/limits.h"
#include "os/root.h"
#include "os/message.h"
#include "serve/server.h"
#include "tiers/sock.h"
#include "os/stdio_hold.h"
#include "os/sysctl.h"
#include "os/timers.h"
#include "os/units.h"
#include "store/responses.h"
#include "files/watch.h"
#include "tiers/wire.h"
#include "serve/aside.h"
#include "serve/worker.h"
#include "worker/rounds.h"
#include "main/internal.h"

#define URING_FORBIDDEN "toboggand: serving by epoll, which is slower: a seccomp filter or a security module forbids io_uring (containers do), or the kernel is too old; allow io_uring_setup, io_uring_enter and io_uring_register"
#define URING_DISABLED "toboggand: serving by epoll, which is slower: the sysctl kernel.io_uring_disabled is %u; set it to 0"
#define MSG_LEN		512
#define OUTPUT_LEAST	(4u << 20)	/* minimum of bytes buffered for slow clients */
#define END_MS		10000		/* time for the end after draining */

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
	tbg_traces_dump_at_crash(&s->workers->trace, s->workers_nr, sizeof(*s->workers),
				 tbg_transfer_phase_text);
	return 0;
}

/* The value of the sysctl; 0 also without it, before Linux 6.6. */
static unsigned int uring_disabled(void)
{
	return tbg_sysctl("/proc/sys/kernel/io_uring_disabled", 0);
}

/*
 * Checks openat2(), with which every file is opened: without it, each request would be a
 * 403 or a 404.
 */
static bool openat2_works(void)
{
	int fd = tbg_root_open_below(AT_FDCWD, NULL, ".", O_PATH | O_DIRECTORY, 0);

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
		int err;

		s->workers[i].answerer_ops = &tbg_transfer_answers;
		err = tbg_worker_open(&s->workers[i]);
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
	int err = tbg_privilege_none();

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

static void ready_log(const struct tbg_server *s)
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
	tbg_report("%s", line);	/* at any log level: scripts wait for this line */
}

static void on_clock(void *arg, uint64_t now_ns)
{
	struct tbg_server *s = arg;

	tbg_clock_tick(s->clock, now_ns);
	tbg_logs_flush(s->logs);
	atomic_store(&s->beat_ns, now_ns);
	tbg_service_beat(now_ns);
	if (s->wire)
		tbg_wire_beat(s->wire, now_ns);
}

static void on_second(void *arg, uint64_t now_ns)
{
	struct start *t = arg;
	struct tbg_server *s = &t->s;

	tbg_reload_tick(t->reload);
	tbg_cache_tick(s->files.cache, now_ns);
	tbg_watch_tick(s->files.watch, now_ns);
	tbg_open_files_tick(s->files.open_files, now_ns);
	tbg_gateway_tick(s->gateway);
	if (s->wire)
		tbg_wire_tick(s->wire, now_ns);
	if (s->sock)
		tbg_sock_tick(s->sock);
	if (!LIST_EMPTY(&t->left)) {
		tbg_privilege_raise();
		tbg_tiers_sweep(t);
		tbg_privilege_lower();
	}
}

static void root_hidden(const char *path)
{
	tbg_warn("toboggand: root \"%s\": a folder above it is closed to the daemon's user: served as it is, but should the path come to lead elsewhere, that is seen at a reload (SIGHUP) alone",
		path);
}

static void stop(struct start *t)
{
	if (!t->stops++) {
		tbg_service_stopping(tbg_option_now(&t->s.opt.drain_ms) + END_MS);
		t->drain_ns = tbg_mono_ns();
		if (t->s.maps)
			tbg_maps_drain(t->s.maps);
		/* before the log is closed: what arrived meanwhile */
		if (t->s.wire)
			tbg_wire_drain(t->s.wire);
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
			tbg_logs_reopen(t->s.logs);
			break;
		case SIGHUP:
			tbg_reload(t->reload);
			break;
		}
	}
}

/* Whether there is something that on_step() continues. */
static bool has_step(void *arg)
{
	const struct start *t = arg;

	return t->stops || tbg_reload_runs(t->reload) || (t->s.wire && tbg_wire_waits(t->s.wire));
}

/* Continues a reload, reads changed routes; returns when workers and clients have ended. */
static void on_step(void *arg, uint64_t now_ns)
{
	struct start *t = arg;

	tbg_reload_tick(t->reload);
	if (t->s.wire && tbg_wire_waits(t->s.wire))
		tbg_wire_news(t->s.wire, now_ns);
	if (t->stops && t->s.wire)
		tbg_wire_drain(t->s.wire);
	if (t->stops && atomic_load(&t->threads_ended) == t->threads_nr)
		tbg_tiers_detach_await(t, now_ns);
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
	signal(SIGXFSZ, SIG_IGN);	/* at a log's size limit, lose lines */
	t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return t->signal_fd < 0 ? -errno : 0;
}

static int loop_fill(struct start *t)
{
	struct tbg_server *s = &t->s;
	int err = tbg_loop_add(s->loop, t->signal_fd, EPOLLIN, on_signal, t);

	err = err ?: tbg_tiers_follow(s);
	err = err ?: tbg_loop_every(s->loop, 100, on_clock, s);
	err = err ?: tbg_loop_every(s->loop, 1000, on_second, t) ?: tbg_clients_follow(s);
	return err ?: tbg_loop_while(s->loop, 20, has_step, on_step, t);
}

/*
 * Half of the budget is for the response store if there are upstreams; a
 * small share if a reload may add some.
 */
static uint64_t store_bytes(const struct tbg_server *s)
{
	if (s->sites->upstreams_nr)
		return s->opt.memory / 2;
	return s->opt.config ? s->opt.memory / 16 : 0;
}

/* The share for compressed forms of large texts. */
static uint64_t compressed_bytes(const struct tbg_server *s)
{
	return s->opt.memory / 16;
}

/* The share for buffered answers to slow clients, with a minimum. */
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
		s->maps->knob->uris = store_bytes(s) > 0;
	}
	/* a random number of this run: distinguishes a loop from a chain of daemons */
	snprintf(s->via, sizeof(s->via), "toboggan (%08x)", run);
	snprintf(s->mark, sizeof(s->mark), "%016llx%016llx", (unsigned long long)mark[0],
		 (unsigned long long)mark[1]);
	if (tbg_store_open(&s->store, store_bytes(s), key) ||
	    tbg_compressed_open(&s->files.compressed, compressed_bytes(s))) {
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
		return false;
	}
	if (tbg_clients_open(s, key))
		return false;
	tbg_hosts_update(s->maps, key, s->sites, NULL);
	if (tbg_cache_open(&s->files.cache, &s->plan, s->maps ? &s->maps->cache : NULL, key) ||
	    tbg_open_files_open(&s->files.open_files, s->files.cache) ||
	    tbg_clock_open(&s->clock, s->maps ? s->maps->knob : NULL,
			   s->opt.unattended_ms)) {
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
		return false;
	}
	err = tbg_aside_open(&s->aside) ?:
	      tbg_watch_open(&s->files.watch, s->files.roots, s->files.cache);
	if (err)
		tbg_report("toboggand: cache: no memory; try a smaller --memory");
	else if (!tbg_watch_works(s->files.watch))
		tbg_warn("toboggand: inotify: %s; each file is looked at every %u ms instead: raise the sysctl fs.inotify.max_user_instances, or the limit of open files",
			   strerror(errno), TBG_STAT_MS);
	return !err;
}

static bool watch_start(struct tbg_server *s)
{
	int err = tbg_watch_start(s->files.watch, tbg_privilege_none, root_hidden);

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
		tbg_option_log(&s->opt, "control", 0, "%s", msg);
		return false;
	}
	if (tbg_admin_open(&s->admin, s, &t->id, msg, sizeof(msg))) {
		tbg_option_log(&s->opt, "admin", 0, "%s", msg);
		return false;
	}
	tbg_control_socket(s->control, &folder, &name, &st);
	tbg_privileged_socket(folder, name, &st);
	if (tbg_admin_socket(s->admin, &folder, &name, &st))
		tbg_privileged_socket(folder, name, &st);
	tbg_privileged_started();
	if (loop_fill(t)) {
		tbg_report("toboggand: epoll: no room for the daemon's own descriptors");
		return false;
	}
	return true;
}

/* The root folder whose owner becomes the daemon's user; -1: none. */
static int root_fd(const struct tbg_server *s)
{
	char name[TBG_ROOT_TEXT];
	const char *below;

	if (tbg_server_root(s) < 0)
		return -1;
	tbg_root_text(tbg_server_root(s), name);
	return tbg_root_fd(s->files.roots, name, &below);
}

/* After root was dropped: what the user may not open, the privileged process opens. */
static bool logs_open(struct tbg_server *s, struct tbg_sites *sites)
{
	struct tbg_logs *logs = NULL;

	if (tbg_logs_open(&logs, &s->opt, sites, NULL))
		return false;
	if (tbg_hits_open(s->maps, s->loop, tbg_logs_hit, s)) {
		tbg_report("toboggand: epoll: no room for the daemon's own descriptors");
		return false;
	}
	tbg_logs_use(s, logs);
	return !tbg_logs_start(logs);
}

static bool privileges_drop(struct start *t)
{
	int err;

	if (t->id.fallback)
		tbg_notice("toboggand: the usual users cannot search %s: running as its owner, %s, without capabilities",
		    tbg_root_path(t->s.files.roots, tbg_server_root(&t->s)), t->id.name);
	err = tbg_privilege_drop(&t->id);
	if (err) {
		tbg_report("toboggand: cannot become %s: %s", t->id.name, strerror(-err));
		return false;
	}
	err = tbg_filter_load(TBG_FILTER_DAEMON);
	if (err)
		tbg_warn("toboggand: seccomp: %s; no system call is refused: boot a kernel with CONFIG_SECCOMP_FILTER=y",
			strerror(-err));
	return true;
}

/* While still root: programs may run as another user, or in another root. */
static bool gateway_open(struct start *t)
{
	struct tbg_server *s = &t->s;
	int err;

	s->gateway = tbg_gateway_new(&s->opt.listen[0], s->mark, t->id.uid, t->id.gid);
	err = s->gateway ? tbg_gateway_take(s->gateway, s->sites) : -ENOMEM;
	if (err)
		tbg_report("toboggand: cgi and module: %s", strerror(-err));
	else
		tbg_gateway_started(s->gateway);
	return !err;
}

/*
 * Called twice: first with enough descriptors to open everything, then for as
 * many connections as remain.
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

/* Before it is known whether wire can be on, and whether it owns connections then. */
static bool repair_start(struct start *t)
{
	const struct tbg_options *o = &t->s.opt;
	int err;

	if (!o->tier_wire || o->tier_sock || o->translate || !o->give_back ||
	    !strcmp(o->wire, "off"))
		return true;
	err = tbg_repair_start(&t->id);
	if (err)
		tbg_report("toboggand: no process for --give-back: %s", strerror(-err));
	return !err;
}

static bool server_open(struct start *t, struct tbg_sites *sites)
{
	struct tbg_server *s = &t->s;
	char msg[MSG_LEN] = "";
	unsigned int wanted = s->opt.connections_max;
	int err;

	tbg_report_level_set(s->opt.log_level);
	if (tbg_privilege_choose(&t->id, s->opt.user, root_fd(s), msg, sizeof(msg))) {
		tbg_report("toboggand: %s", msg);
		return false;
	}
	if (!openat2_works() || tbg_options_ifaces_check(&s->opt))
		return false;
	err = tbg_privileged_start(&t->id, &s->opt, t->argv);
	if (err) {
		tbg_report("toboggand: no process for the log: %s", strerror(-err));
		return false;
	}
	if (!repair_start(t))
		return false;
	if (!limits_take(s, wanted ?: TBG_CONNECTIONS) || workers_make(s) ||
	    tbg_listeners_open(s) || rings_open(s))
		return false;
	tbg_plan_make(&s->plan, s->opt.memory - store_bytes(s) - compressed_bytes(s),
		      wanted ? s->opt.connections_max : 0);
	tbg_output_limit_set(output_bytes(s));
	tbg_spool_total_set(s->opt.body_total);
	s->plan.sock = s->opt.tier_sock;
	tbg_left_find(&t->left);
	tbg_tiers_sweep(t);
	tbg_tiers_wire_open(t);
	if (!s->wire || !tbg_wire_owns(s->wire))
		tbg_repair_stop();
	tbg_tiers_sock_open(s);
	malloc_trim(0);		/* libbpf has used 10 MiB to read the types of the kernel */
	if (!cache_open(s) || !control_open(t) || !gateway_open(t) ||
	    !limits_take(s, wanted ?: TBG_CONNECTIONS) || !privileges_drop(t) ||
	    !logs_open(s, sites))
		return false;
	if (s->opt.connections_max < wanted)
		tbg_warn("toboggand: --connections-max %u: descriptors suffice for %u; raise the limit of open files",
			wanted, s->opt.connections_max);
	else if (!wanted && s->opt.connections_max < TBG_CONNECTIONS)
		tbg_warn("toboggand: the limit of open files leaves room for %u connections at a time, of %u; raise it (ulimit -n, or LimitNOFILE of a unit), or give --connections-max",
			   s->opt.connections_max, TBG_CONNECTIONS);
	return watch_start(s) && !tbg_listeners_listen(s) && !threads_start(t) &&
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
		tbg_transfers_free(&s->workers[i]);
	}
}

/* Writes the remaining events of the ring buffer. */
static void logs_close(struct tbg_server *s)
{
	struct tbg_logs *logs = s->logs;

	tbg_hits_read_all();
	tbg_hits_close();
	tbg_logs_use(s, NULL);
	tbg_logs_close(logs);
}

static void server_close(struct start *t)
{
	struct tbg_server *s = &t->s;

	workers_end(t);
	tbg_repair_stop();
	tbg_watch_stop(s->files.watch);
	tbg_gateway_close(s->gateway);
	tbg_reload_close(t->reload);
	tbg_admin_close(s->admin);
	tbg_control_close(s->control);	/* ends clients that watch the log */
	logs_close(s);
	tbg_privileged_unlink();
	tbg_privilege_raise();
	tbg_clients_close(s);
	tbg_sock_close(s->sock);
	tbg_wire_close(s->wire);
	tbg_tiers_sweep(t);
	tbg_privilege_lower();
	tbg_privileged_stop();		/* after the last pins were removed */
	if (s->loop)
		tbg_loop_close(s->loop);
}

/* Shortens timers as TOBOGGAND_TEST_TIMERS asks: "drain=2s,sweep=500ms". */
static bool timers_read(void)
{
	const char *asked = getenv("TOBOGGAND_TEST_TIMERS");
	char text[256], *rest = text, *name, *value;
	unsigned int ms;

	if (!asked)
		return true;
	snprintf(text, sizeof(text), "%s", asked);
	while ((value = strsep(&rest, ","))) {
		name = strsep(&value, "=");
		if (!value || !tbg_value_ms(value, &ms) || !tbg_timer_shorten(name, ms)) {
			tbg_report("toboggand: TOBOGGAND_TEST_TIMERS: \"%s\": not a shorter time of a timer; unset it, it is for tests", asked);
			return false;
		}
	}
	tbg_warn("toboggand: TOBOGGAND_TEST_TIMERS shortens timers for tests: %s", asked);
	return true;
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
	if (!timers_read())
		return 2;
	if (tbg_roots_open(&t.s.files.roots))
		return 1;
	tbg_addresses_note();
	err = tbg_options_parse(&t.s.opt, argv, t.s.files.roots);
	if (!err)
		tbg_addresses_start(tbg_timer_ms(TBG_TIMER_ADDRESSES_START));
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
	served = server_open(&t, sites);
	if (served) {
		ready_log(&t.s);
		tbg_service_notify("READY=1");
		tbg_loop_run(t.s.loop);
	}
	server_close(&t);
	err = atomic_load(&t.worker_err);
	if (err)
		tbg_report("toboggand: a worker failed: %s", strerror(-err));
	return served && !err ? 0 : 1;
}
