// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan top`. Each round asks the daemon for its counters, and makes one object of them
 * and of their differences to the previous round. That object is printed as JSON for
 * scripts, and is the source of the text. The text is the same on a terminal, where ncurses
 * updates it in place, and in a pipe.
 *
 * Must never cost the daemon much: lists of objects are requested so rarely that they take
 * at most one part in LISTING_SHARE of the time.
 */
#include "top.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "abi/version.h"
#include "run_time.h"
#include "screen.h"
#include "show.h"
#include "top_page.h"

#define WAIT_MS		5000	/* for an answer */
#define KEY_MS		100	/* meanwhile, to check for keys */
#define LISTING_SHARE	20
#define LISTING_ROWS	100
#define HISTORY_MAX	512	/* rounds */
#define WHYS_MAX	256
/* In each request: a daemon of another version refuses it. */
#define OURS		"\"version\":\"" TBG_VERSION "\""

struct top {
	const struct tbg_top *how;
	bool screen;
	int fd;				/* -1: the daemon is gone */
	char *in;			/* received, not yet a line */
	size_t in_len, in_room;
	json_t *status, *stats, *before;	/* of this round and the last */
	uint64_t at_ns, before_ns;
	json_t *list, *list_before;
	uint64_t list_ns, list_before_ns, list_due_ns;
	uint64_t ticks_idle, ticks_all;	/* of the machine's CPUs */
	double cpu_idle;		/* since the last round; < 0: unknown */
	int run_time_fd;		/* of the kernel's statistics; < 0: off */
	bool ran_known, ran_before_known;
	struct tbg_run_time ran, ran_before;	/* of this round and the last */
	double history[HISTORY_MAX];	/* requests per second, a ring */
	unsigned int history_nr;
	json_t *model;
	char trouble[512];		/* why there are no new values */
	char refusal[256];		/* the daemon's error in place of an answer */
};

/* --- waiting ------------------------------------------------------------- */

static volatile sig_atomic_t ended;
static sigset_t awake;		/* signals are unblocked only where we wait */

static void on_end(int signo)
{
	ended = 1;
}

static void signals_take(void)
{
	struct sigaction end = { .sa_handler = on_end };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGHUP, &end, NULL);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGTSTP);
	sigprocmask(SIG_BLOCK, &set, &awake);
	sigdelset(&awake, SIGINT);
	sigdelset(&awake, SIGTERM);
	sigdelset(&awake, SIGHUP);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Until fd (-1: none) is ready: true; false: it is until_ns, or a signal came. */
static bool wait_for(int fd, short events, uint64_t until_ns)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	uint64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
	struct timespec t = { left / 1000000000, left % 1000000000 };

	return ppoll(&pfd, 1, &t, &awake) > 0;
}

/* --- talking to the daemon ----------------------------------------------- */

static int reconnect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = 0;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		err = -errno;
	if (!err)
		return fd;
	if (fd >= 0)
		close(fd);
	return err;
}

static void lose(struct top *t, const char *why)
{
	snprintf(t->trouble, sizeof(t->trouble), "daemon at %.128s: %s",
		 t->how->control, why);
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->in_len = 0;
}

/* More of the answer. 0 or negative errno. */
static int receive(struct top *t, uint64_t until_ns)
{
	ssize_t n;

	if (t->in_room - t->in_len < 4096) {
		size_t room = 2 * t->in_room + 65536;
		char *in = realloc(t->in, room);

		if (!in)
			return -ENOMEM;
		t->in = in;
		t->in_room = room;
	}
	while (!wait_for(t->fd, POLLIN, now_ns() + KEY_MS * 1000000ull)) {
		/* other keys are handled with the answer */
		if (t->screen && tbg_screen_key() == TBG_SCREEN_END)
			ended = 1;
		if (ended)
			return -EINTR;
		if (now_ns() >= until_ns)
			return -ETIMEDOUT;
	}
	n = recv(t->fd, t->in + t->in_len, t->in_room - t->in_len, MSG_DONTWAIT);
	if (n <= 0)
		return n ? -errno : -ECONNRESET;
	t->in_len += n;
	return 0;
}

/* One request (with its end of line), one answer; NULL: none, or "ok":false. */
static json_t *question(struct top *t, const char *line)
{
	uint64_t until_ns = now_ns() + WAIT_MS * 1000000ull;
	ssize_t len = strlen(line);
	json_t *ret = NULL;
	char *lf = NULL;
	int err = 0;

	if (t->fd < 0)
		return NULL;
	if (send(t->fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
		err = -ECONNRESET;
	do {
		err = err ?: receive(t, until_ns);
		lf = err ? NULL : memchr(t->in, '\n', t->in_len);
	} while (!err && !lf);
	if (err) {
		lose(t, strerror(-err));
		return NULL;
	}
	ret = json_loadb(t->in, lf - t->in, JSON_ALLOW_NUL, NULL);
	t->in_len -= lf + 1 - t->in;
	memmove(t->in, lf + 1, t->in_len);
	if (!ret)
		lose(t, "not an answer of toboggand");
	if (true_of(ret, "ok"))
		return ret;
	snprintf(t->refusal, sizeof(t->refusal), "%s", text_of(ret, "error"));
	json_decref(ret);
	return NULL;
}

/* --- a round ------------------------------------------------------------- */

static void replace(json_t **to, json_t *with)
{
	json_decref(*to);
	*to = with;
}

/* user nice system idle iowait irq softirq steal */
static void cpu_read(struct top *t)
{
	FILE *f = fopen("/proc/stat", "re");
	uint64_t v[8] = { 0 }, all = 0, idle;
	int nr = 0;

	if (f)
		nr = fscanf(f, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			    " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
			    &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
	if (f)
		fclose(f);
	for (int i = 0; i < nr; i++)
		all += v[i];
	idle = v[3] + v[4];
	t->cpu_idle = -1;
	if (nr >= 5 && t->ticks_all && all > t->ticks_all && idle >= t->ticks_idle)
		t->cpu_idle = (double)(idle - t->ticks_idle) / (all - t->ticks_all);
	t->ticks_all = all;
	t->ticks_idle = idle;
}

static void listing_read(struct top *t)
{
	uint64_t begun_ns = now_ns();
	char line[64];
	json_t *list;

	if (begun_ns < t->list_due_ns)
		return;
	snprintf(line, sizeof(line), "{\"cmd\":\"objects\",\"limit\":%d," OURS "}\n",
		 LISTING_ROWS);
	list = question(t, line);
	if (!list)
		return;
	replace(&t->list_before, t->list);
	t->list_before_ns = t->list_ns;
	t->list = list;
	t->list_ns = now_ns();
	t->list_due_ns = t->list_ns + (t->list_ns - begun_ns) * LISTING_SHARE;
}

/* Counters of another daemon cannot be compared with those of this one. */
static void forget(struct top *t)
{
	replace(&t->stats, NULL);
	replace(&t->before, NULL);
	replace(&t->list, NULL);
	replace(&t->list_before, NULL);
	t->list_due_ns = 0;
}

/* Requests everything; false: there is no (complete) answer. */
static bool round_ask(struct top *t)
{
	json_t *status, *stats;
	int fd;

	if (t->fd < 0) {
		fd = reconnect(t->how->control);
		if (fd < 0) {
			lose(t, strerror(-fd));
			return false;
		}
		t->fd = fd;
		forget(t);
	}
	status = question(t, "{\"cmd\":\"status\"," OURS "}\n");
	stats = question(t, "{\"cmd\":\"stats\"," OURS "}\n");
	if (!status || !stats) {
		if (t->fd >= 0)
			lose(t, t->refusal);
		json_decref(status);
		json_decref(stats);
		return false;
	}
	replace(&t->before, t->stats);
	t->ran_before = t->ran;
	t->ran_before_known = t->ran_known;
	t->before_ns = t->at_ns;
	t->stats = stats;
	t->at_ns = now_ns();
	t->ran_known = t->run_time_fd >= 0 && tbg_run_time_read(stats, &t->ran);
	replace(&t->status, status);
	cpu_read(t);
	listing_read(t);
	t->trouble[0] = 0;
	return true;
}

/* --- the results of the rounds --------------------------------------------- */

static json_t *real_or_null(double v)
{
	return v < 0 ? json_null() : json_real(v);
}

/* Growth of a counter per second; < 0: not known. */
static double rate_of(const struct top *t, const json_t *now, const json_t *before,
		      const char *key)
{
	double a = value_of(before, key), b = value_of(now, key);

	if (a < 0 || b < a || t->at_ns <= t->before_ns)
		return -1;
	return (b - a) * 1e9 / (t->at_ns - t->before_ns);
}

/*
 * Sums over the tiers in one object, so that they have rates as a tier has:
 * requests, bytes; hits (all of the kernel tiers, those of user). NULL without stats.
 */
static json_t *all_of(const json_t *stats)
{
	json_t *tiers = json_object_get(stats, "tiers"), *tier;
	json_int_t requests = 0, bytes = 0, hits = 0;
	const char *name;

	json_object_foreach(tiers, name, tier) {
		bool user = !strcmp(name, "user");

		requests += number_of(tier, "requests");
		bytes += number_of(tier, "bytes");
		hits += number_of(tier, user ? "hits" : "requests");
	}
	return tiers ? json_pack("{s:I, s:I, s:I}", "requests", requests,
				 "bytes", bytes, "hits", hits) : NULL;
}

static json_t *share_of(double part, double whole)
{
	return real_or_null(part >= 0 && whole > 0 ? part / whole : -1);
}

static json_t *model_tier(const struct top *t, const char *name, const json_t *now,
			  const json_t *before, double all_s)
{
	json_t *on = json_object_get(json_object_get(t->status, "tiers"), name);
	double requests_s = rate_of(t, now, before, "requests");

	return json_pack("{s:b, s:s, s:I, s:I, s:o, s:o, s:o}",
			 "on", true_of(on, "on"), "why", text_of(on, "why"),
			 "requests", (json_int_t)number_of(now, "requests"),
			 "bytes", (json_int_t)number_of(now, "bytes"),
			 "requests_per_s", real_or_null(requests_s),
			 "bytes_per_s", real_or_null(rate_of(t, now, before, "bytes")),
			 "share", share_of(requests_s, all_s));
}

static json_t *model_tiers(const struct top *t, double all_s)
{
	json_t *tiers = json_object_get(t->stats, "tiers"), *tier;
	json_t *ret = json_object();
	const char *name;

	json_object_foreach(tiers, name, tier)
		json_object_set_new(ret, name, model_tier(t, name, tier,
				    tier_of(t->before, name), all_s));
	return ret;
}

/* By current frequency, then by total. */
static int why_compare(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	double p = value_of(x, "per_s"), q = value_of(y, "per_s");

	if (p != q)
		return p < q ? 1 : -1;
	return number_of(x, "count") < number_of(y, "count") ? 1 :
	       number_of(x, "count") > number_of(y, "count") ? -1 : 0;
}

static json_t *model_passes(const struct top *t)
{
	json_t *now = json_object_get(t->stats, "passes"), *why, *one;
	json_t *before = json_object_get(t->before, "passes");
	json_t *rows[WHYS_MAX], *ret = json_array();
	size_t i, nr = 0;

	json_array_foreach(now, i, why) {
		if (!number_of(why, "count") || nr == WHYS_MAX)
			continue;
		one = json_deep_copy(why);
		json_object_set_new(one, "per_s", real_or_null(rate_of(t, why,
				    json_array_get(before, i), "count")));
		rows[nr++] = one;
	}
	qsort(rows, nr, sizeof(*rows), why_compare);
	for (i = 0; i < nr; i++)
		json_array_append_new(ret, rows[i]);
	return ret;
}

static bool object_same(const json_t *a, const json_t *b)
{
	static const char *const texts[] = { "path", "encoding", "etag" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (strcmp(text_of(a, texts[i]), text_of(b, texts[i])))
			return false;
	return number_of(a, "vhost") == number_of(b, "vhost");
}

/* NULL as well if it is one of several that Vary distinguishes. */
static const json_t *object_find(const json_t *listing, const json_t *o)
{
	json_t *one, *ret = NULL;
	size_t i;

	json_array_foreach(json_object_get(listing, "objects"), i, one) {
		if (!object_same(one, o))
			continue;
		if (ret)
			return NULL;
		ret = one;
	}
	return ret;
}

static const json_t *object_before(const struct top *t, const json_t *o)
{
	return object_find(t->list, o) ? object_find(t->list_before, o) : NULL;
}

static json_t *model_objects(const struct top *t)
{
	json_t *list = json_object_get(t->list, "objects"), *o, *one;
	double s = (t->list_ns - t->list_before_ns) / 1e9;
	json_t *ret = json_array();
	size_t i;

	json_array_foreach(list, i, o) {
		const json_t *was = object_before(t, o);
		double more = number_of(o, "hits") - number_of(was, "hits");
		json_t *tier = json_array_get(json_object_get(o, "tiers"), 0);

		one = json_pack("{s:O, s:O?, s:O?, s:I, s:I, s:I, s:o, s:O?}",
				"path", json_object_get(o, "path"),
				"site", json_object_get(o, "site"),
				"encoding", json_object_get(o, "encoding"),
				"vhost", (json_int_t)number_of(o, "vhost"),
				"size", (json_int_t)number_of(o, "size"),
				"hits", (json_int_t)number_of(o, "hits"),
				/* published again, it counts from zero */
				"hits_per_s", real_or_null(was && more >= 0 ?
							   more / s : -1),
				"tier", tier);
		if (one)
			json_array_append_new(ret, one);
	}
	return ret;
}

static json_t *model_history(const struct top *t)
{
	unsigned int nr = t->history_nr < HISTORY_MAX ? t->history_nr : HISTORY_MAX;
	json_t *ret = json_array();

	for (unsigned int i = t->history_nr - nr; i < t->history_nr; i++)
		json_array_append_new(ret, json_real(t->history[i % HISTORY_MAX]));
	return ret;
}

/* Since the last round. */
static json_t *model_cost(const struct top *t)
{
	struct tbg_wire_cost c = { -1, -1, -1, -1 };

	if (t->before && t->ran_known && t->ran_before_known)
		tbg_wire_cost(t->before, t->stats, &t->ran_before, &t->ran, &c);
	return json_pack("{s:o, s:o, s:o, s:o}", "hit_ns", real_or_null(c.hit_ns),
			 "pass_ns", real_or_null(c.pass_ns), "user_ns", real_or_null(c.user_ns),
			 "pays_from", real_or_null(c.pays_from));
}

/* Replaces t->model by the current values. */
static void model_make(struct top *t)
{
	json_t *now = all_of(t->stats), *was = all_of(t->before);
	double requests_s = rate_of(t, now, was, "requests");

	if (requests_s >= 0)
		t->history[t->history_nr++ % HISTORY_MAX] = requests_s;
	replace(&t->model, json_pack(
		"{s:b, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o}, s:o, s:o, s:o, s:o, s:I}",
		"ok", 1,
		"interval_s", real_or_null(was ? (t->at_ns - t->before_ns) / 1e9 : -1),
		"status", t->status,
		"tiers", model_tiers(t, requests_s),
		"requests_per_s", real_or_null(requests_s),
		"bytes_per_s", real_or_null(rate_of(t, now, was, "bytes")),
		"hit_ratio", share_of(rate_of(t, now, was, "hits"), requests_s),
		"hit_ratio_ever", share_of(number_of(now, "hits"),
					   number_of(now, "requests")),
		"cpu", "daemon", real_or_null(rate_of(t, tier_of(t->stats, "user"),
						      tier_of(t->before, "user"),
						      "cpu_s")),
		"idle", real_or_null(t->cpu_idle),
		"wire_cost", model_cost(t),
		"requests_per_s_history", model_history(t),
		"passes", model_passes(t),
		"objects", model_objects(t),
		"objects_total", (json_int_t)number_of(t->list, "total")));
	json_decref(now);
	json_decref(was);
}

/* --- as text -------------------------------------------------------------- */

/* A snapshot for a pipe, or a terminal that only knows the next line. */
static bool text_show(const struct top *t, bool first)
{
	char *text = tbg_top_page(t->model, 0, 0);

	if (!first)
		putchar('\n');
	for (char *line = text, *lf; line && *line; line = lf + 1) {
		lf = strchr(line, '\n');
		printf("%.*s\n", (int)(lf - line) - 1, line + 1);
	}
	free(text);
	return !fflush(stdout);
}

static bool json_show(const struct top *t)
{
	json_dumpf(t->model, stdout, JSON_COMPACT);
	putchar('\n');
	return !fflush(stdout);
}

/* --- on a screen ---------------------------------------------------------- */

static void screen_show(const struct top *t)
{
	unsigned int rows = tbg_screen_rows(), row = 0;
	char *text = tbg_top_page(t->model, tbg_screen_columns(), rows - (t->trouble[0] != 0));

	tbg_screen_clear();
	for (char *line = text, *lf; line && *line && row < rows; line = lf + 1) {
		lf = strchr(line, '\n');
		tbg_screen_line(row++, line + 1, lf - line - 1,
				*line == HEADING ? TBG_SCREEN_HEADING :
						   TBG_SCREEN_PLAIN);
	}
	if (t->trouble[0])
		tbg_screen_line(rows - 1, t->trouble, strlen(t->trouble),
				TBG_SCREEN_LOUD);
	free(text);
	tbg_screen_flush();
}

/* Waits for the next round; false: the user ends the program. */
static bool screen_wait(const struct top *t, uint64_t until_ns)
{
	int keys = isatty(STDIN_FILENO) ? STDIN_FILENO : -1;
	enum tbg_screen_key key;

	while (!ended && now_ns() < until_ns) {
		bool typed = wait_for(keys, POLLIN, until_ns);

		key = tbg_screen_key();
		if (typed && key == TBG_SCREEN_NOTHING)
			keys = -1;	/* the terminal is gone: do not spin */
		for (; key != TBG_SCREEN_NOTHING; key = tbg_screen_key()) {
			if (key == TBG_SCREEN_END)
				return false;
			if (key == TBG_SCREEN_NOW)
				return true;
			if (key == TBG_SCREEN_AGAIN)
				screen_show(t);
		}
	}
	return !ended;
}

/* --- the whole run --------------------------------------------------------- */

static bool plain_wait(uint64_t until_ns)
{
	while (!ended && now_ns() < until_ns)
		wait_for(-1, 0, until_ns);
	return !ended;
}

/*
 * Runs the rounds. A screen shows the first at once, and continues while there is no
 * daemon. Otherwise a snapshot covers a whole interval, and a missing daemon ends the run.
 */
static int rounds_run(struct top *t)
{
	uint64_t step_ns = t->how->interval_ms * 1000000ull, next_ns = now_ns();
	unsigned int shown = 0;
	bool go_on = true;

	while (go_on) {
		next_ns += step_ns;
		if (now_ns() > next_ns)		/* we were stopped, or the daemon */
			next_ns = now_ns() + step_ns;
		if (round_ask(t))
			model_make(t);
		else if (!ended && (!t->screen || !t->model))
			return -EIO;
		if (ended)
			break;
		if (t->screen)
			screen_show(t);
		else if (t->before && !(t->how->json ? json_show(t) :
					text_show(t, !shown)))
			return -errno;
		if (t->screen || t->before)
			shown++;
		if (t->how->count && shown >= t->how->count)
			break;
		go_on = t->screen ? screen_wait(t, next_ns) : plain_wait(next_ns);
	}
	return 0;
}

int tbg_top(const struct tbg_top *how, int fd, char *ret_msg, size_t msg_len)
{
	struct top t = { .how = how, .fd = fd, .run_time_fd = tbg_run_time_begin() };
	int err;

	setlocale(LC_CTYPE, "");
	signals_take();
	t.screen = !how->json && how->count != 1 && tbg_screen_open();
	err = rounds_run(&t);
	if (t.screen)
		tbg_screen_close();
	if (err == -EIO && t.trouble[0])
		snprintf(ret_msg, msg_len, "%s; see its messages on stderr", t.trouble);
	else if (err)
		snprintf(ret_msg, msg_len, "stdout: %s", strerror(-err));
	if (t.fd >= 0)
		close(t.fd);
	if (t.run_time_fd >= 0)
		close(t.run_time_fd);
	forget(&t);
	replace(&t.status, NULL);
	replace(&t.model, NULL);
	free(t.in);
	return err;
}
