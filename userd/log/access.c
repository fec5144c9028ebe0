// SPDX-License-Identifier: GPL-2.0
/*
 * The access log. Workers and the control thread format lines into the front
 * half of a double buffer; one writer thread writes the back half to disk. The
 * mutex covers a reservation and the copy of one line, never a system call.
 *
 * Whatever does not reach the file is counted in lost: a line that finds the
 * front full, and each line that the file did not take whole.
 */
#include "log/access.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "abi/event.h"
#include "os/loop.h"
#include "os/privilege.h"
#include "os/message.h"
#include "tiers/wire.h"

#define HALF_LEN	(1u << 20)	/* bytes of each half */
#define WAKE_LEN	(HALF_LEN / 2)	/* wake the writer before the flush does */
#define FIELD_MAX	8192		/* raw bytes of a field that are logged */
#define EVENTS_MAX	8192		/* per call: the control loop has others */
#define REOPEN_READS	16		/* of these, before a file changes */
#define STUCK_MS	1000		/* a pipe's reader that does not read */

struct half {
	char *b;
	size_t len;
	size_t old_len;		/* of it, what came before the last reopen */
};

struct tbg_log {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t writer;
	struct half half[2];
	unsigned int front;
	bool running, stop, flush, ended;
	int folder;		/* of the file: our user need not reach it from / */
	int fd, next_fd;	/* next_fd: what reopen left, or -1 */
	bool torn;		/* the file ends within a line */
	bool failing;		/* said so already */
	char *path;
	enum tbg_log_format format;
	_Atomic uint64_t lost;
	struct ring_buffer *ring;
	struct tbg_knob *knob;
	unsigned int events_nr;
	int64_t real_ns;	/* CLOCK_REALTIME less CLOCK_MONOTONIC */
};

/* --- one line ------------------------------------------------------------ */

struct text {
	const char *p;
	size_t len;
};

static bool must_escape(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x7f;
}

/* A byte as \xHH, or for JSON as \u00HH: bytes are not always UTF-8. */
static const char *const escapes[] = {
	[TBG_LOG_COMBINED] = "\\x",
	[TBG_LOG_JSON] = "\\u00",
};

static size_t escaped_len(struct text t, enum tbg_log_format format)
{
	size_t more = strlen(escapes[format]) + 1, len = t.len;

	for (size_t i = 0; i < t.len; i++)
		len += must_escape(t.p[i]) ? more : 0;
	return len;
}

static char *escape(char *to, struct text t, enum tbg_log_format format)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < t.len; i++) {
		unsigned char c = t.p[i];

		if (!must_escape(c)) {
			*to++ = c;
			continue;
		}
		to = stpcpy(to, escapes[format]);
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	return to;
}

static struct text cut(struct text t)
{
	if (t.len > FIELD_MAX)
		t.len = FIELD_MAX;
	return t;
}

/* Up to the line's end; *rest is what follows it. */
static struct text line_take(struct text *rest)
{
	const char *lf = memchr(rest->p, '\n', rest->len);
	struct text line = { rest->p, lf ? (size_t)(lf - rest->p) : rest->len };
	size_t used = line.len + (lf != NULL);

	rest->p += used;
	rest->len -= used;
	if (line.len && line.p[line.len - 1] == '\r')
		line.len--;
	return line;
}

/* The field's value without the white space around it; false: another field. */
static bool field_is(struct text line, const char *name, size_t name_len,
		     struct text *ret)
{
	if (line.len <= name_len || line.p[name_len] != ':' ||
	    strncasecmp(line.p, name, name_len))
		return false;
	line.p += name_len + 1;
	line.len -= name_len + 1;
	while (line.len && (*line.p == ' ' || *line.p == '\t'))
		line.p++, line.len--;
	while (line.len && (line.p[line.len - 1] == ' ' ||
			    line.p[line.len - 1] == '\t'))
		line.len--;
	*ret = line;
	return true;
}

struct parts {
	struct text user, request, referer, agent;
	char name[FIELD_MAX];	/* of a user, decoded */
};

/* The six bits that a letter of base64 stands for; -1: it is none. */
static int base64_bits(char c)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(letters, c) : NULL;

	return at ? at - letters : -1;
}

/*
 * Up to the first "=", which need not be there, as nginx reads it. How many bytes are
 * in ret, FIELD_MAX at most; 0 where it is no base64.
 */
static size_t base64_take(struct text coded, char ret[FIELD_MAX])
{
	unsigned int bits = 0;
	size_t nr = 0, len = 0;

	for (; nr < coded.len && coded.p[nr] != '='; nr++) {
		int six = base64_bits(coded.p[nr]);

		if (six < 0)
			return 0;
		bits = bits << 6 | six;
		if (nr % 4 && len < FIELD_MAX)
			ret[len++] = bits >> (6 - nr % 4 * 2);
	}
	return nr % 4 == 1 ? 0 : len;
}

/* Who the client says it is (RFC 7617): $remote_user, which nobody checks here. */
static void user_take(struct text value, struct parts *ret)
{
	const char *colon;
	size_t len;

	if (value.len < 6 || strncasecmp(value.p, "Basic ", 6))
		return;
	while (value.len > 6 && value.p[6] == ' ')
		value.p++, value.len--;
	len = base64_take((struct text){ value.p + 6, value.len - 6 }, ret->name);
	colon = memchr(ret->name, ':', len);
	if (!colon && len == FIELD_MAX)		/* behind what is logged */
		colon = ret->name + len;
	if (colon && colon != ret->name)
		ret->user = (struct text){ ret->name, colon - ret->name };
}

static void head_split(const char *req, size_t len, struct parts *ret)
{
	const struct text none = { "-", 1 };
	struct text rest = { req, len };

	ret->user = ret->request = ret->referer = ret->agent = none;
	/* RFC 9112 2.2: empty lines before the request line are not of it */
	while (rest.len && (*rest.p == '\r' || *rest.p == '\n'))
		rest.p++, rest.len--;
	if (!rest.len)
		return;
	ret->request = cut(line_take(&rest));
	while (rest.len) {
		struct text line = line_take(&rest), value;

		if (!line.len)
			break;
		/* of repeated fields the first, as nginx logs them */
		if (ret->referer.p == none.p &&
		    field_is(line, "Referer", 7, &value))
			ret->referer = cut(value);
		else if (ret->agent.p == none.p &&
			 field_is(line, "User-Agent", 10, &value))
			ret->agent = cut(value);
		else if (ret->user.p == none.p &&
			 field_is(line, "Authorization", 13, &value))
			user_take(value, ret);
	}
}

static const char *remote_text(const struct tbg_log_record *r, char *b)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *six = (const uint8_t *)r->remote6;
	const void *four = NULL;

	if (r->remote && r->remote->ss_family == AF_INET)
		four = &((const struct sockaddr_in *)r->remote)->sin_addr;
	else if (r->remote && r->remote->ss_family == AF_INET6)
		six = ((const struct sockaddr_in6 *)r->remote)->sin6_addr.s6_addr;
	else if (r->remote)
		return "unix:";
	if (!four && !six)
		return "-";
	if (!four && !memcmp(six, mapped, sizeof(mapped)))
		four = six + 12;
	if (four)
		return inet_ntop(AF_INET, four, b, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, six, b, INET6_ADDRSTRLEN);
}

/* $time_local: localtime_r() takes a lock, so once a second and thread. */
static const char *time_text(int64_t second)
{
	static const char *const months[] = {
		"Jan", "Feb", "Mar", "Apr", "May", "Jun",
		"Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
	};
	static _Thread_local int64_t known = INT64_MIN;
	static _Thread_local char text[64];
	time_t t = second;
	struct tm tm;
	long off;

	if (second == known)
		return text;
	if (!localtime_r(&t, &tm))
		memset(&tm, 0, sizeof(tm));
	off = tm.tm_gmtoff / 60;
	snprintf(text, sizeof(text), "%02d/%s/%d:%02d:%02d:%02d %c%02ld%02ld",
		 tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900,
		 tm.tm_hour, tm.tm_min, tm.tm_sec, off < 0 ? '-' : '+',
		 labs(off) / 60, labs(off) % 60);
	known = second;
	return text;
}

/* As RFC 3339 has it, in UTC. */
static const char *stamp_text(int64_t second)
{
	static _Thread_local int64_t known = INT64_MIN;
	static _Thread_local char text[64];
	time_t t = second;
	struct tm tm;

	if (second == known)
		return text;
	if (!gmtime_r(&t, &tm) || !strftime(text, sizeof(text), "%FT%TZ", &tm))
		strcpy(text, "-");
	known = second;
	return text;
}

/* Pieces, every other one of them from the client and so to be escaped. */
struct line {
	struct parts parts;	/* pieces point into its name */
	struct text piece[9];
	unsigned int nr;
	char begin[INET6_ADDRSTRLEN + 128], time[80], middle[80], end[96];
	size_t len;
	enum tbg_log_format format;
};

static void piece_add(struct line *l, const char *p, size_t len)
{
	struct text t = { p, len };

	l->len += l->nr & 1 ? escaped_len(t, l->format) : len;
	l->piece[l->nr++] = t;
}

#define own(l, text) piece_add(l, text, strlen(text))
#define theirs(l, text) piece_add(l, (text).p, (text).len)

static const char *tier_text(enum tbg_tier tier)
{
	static const char *const names[] = {
#define X(name) #name,
		TBG_TIER_LIST(X)
#undef X
	};

	return tier < TBG_TIER_NR ? names[tier] : "?";
}

/* The line's own texts around what the client sent; agent: before its name. */
static void line_join(struct line *l, const char *agent)
{
	const struct parts *p = &l->parts;

	own(l, l->begin);
	theirs(l, p->user);
	own(l, l->time);
	theirs(l, p->request);
	own(l, l->middle);
	theirs(l, p->referer);
	own(l, agent);
	theirs(l, p->agent);
	own(l, l->end);
}

/* What nginx writes for its combined; then tier, reason, seconds. */
static void combined_make(const struct tbg_log_record *r, struct line *l)
{
	char b[INET6_ADDRSTRLEN];

	head_split(r->req, r->req_len, &l->parts);
	snprintf(l->begin, sizeof(l->begin), "%s - ", remote_text(r, b));
	snprintf(l->time, sizeof(l->time), " [%s] \"", time_text(r->second));
	snprintf(l->middle, sizeof(l->middle), "\" %u %llu \"", r->status,
		 (unsigned long long)r->body);
	snprintf(l->end, sizeof(l->end), "\" %s %s %llu.%06llu\n",
		 tier_text(r->tier), r->reason ?: "-",
		 (unsigned long long)(r->took_ns / 1000000000),
		 (unsigned long long)(r->took_ns / 1000 % 1000000));
	line_join(l, "\" \"");
}

static void json_make(const struct tbg_log_record *r, struct line *l)
{
	char b[INET6_ADDRSTRLEN];

	head_split(r->req, r->req_len, &l->parts);
	snprintf(l->begin, sizeof(l->begin), "{\"time\":\"%s\",\"remote\":\"%s\",\"user\":\"",
		 stamp_text(r->second), remote_text(r, b));
	strcpy(l->time, "\",\"request\":\"");
	snprintf(l->middle, sizeof(l->middle), "\",\"status\":%u,\"body\":%llu,\"referer\":\"",
		 r->status, (unsigned long long)r->body);
	snprintf(l->end, sizeof(l->end), "\",\"tier\":\"%s\",\"reason\":\"%s\",\"seconds\":%llu.%06llu}\n",
		 tier_text(r->tier), r->reason ?: "-",
		 (unsigned long long)(r->took_ns / 1000000000),
		 (unsigned long long)(r->took_ns / 1000 % 1000000));
	line_join(l, "\",\"agent\":\"");
}

static void line_make(const struct tbg_log_record *r, enum tbg_log_format format,
		      struct line *ret)
{
	ret->nr = 0;
	ret->len = 0;
	ret->format = format;
	if (format == TBG_LOG_JSON)
		json_make(r, ret);
	else
		combined_make(r, ret);
}

static void line_put(char *to, const struct line *l)
{
	for (unsigned int i = 0; i < l->nr; i++)
		to = i & 1 ? escape(to, l->piece[i], l->format) :
			     mempcpy(to, l->piece[i].p, l->piece[i].len);
}

size_t tbg_log_line(char *ret, size_t size, enum tbg_log_format format,
		    const struct tbg_log_record *r)
{
	struct line line;

	line_make(r, format, &line);
	if (line.len <= size)
		line_put(ret, &line);
	return line.len;
}

const char *tbg_log_format_name(enum tbg_log_format format)
{
	static const char *const names[] = {
#define X(name, text) text,
		TBG_LOG_FORMAT_LIST(X)
#undef X
	};

	return names[format];
}

void tbg_log_write(struct tbg_log *l, const struct tbg_log_record *r)
{
	struct line line;
	struct half *h;
	bool wake = false;

	if (!l)
		return;
	line_make(r, l->format, &line);
	pthread_mutex_lock(&l->lock);
	h = &l->half[l->front];
	if (h->len + line.len <= HALF_LEN) {
		line_put(h->b + h->len, &line);
		wake = h->len < WAKE_LEN && h->len + line.len >= WAKE_LEN;
		h->len += line.len;
		l->flush |= wake;
	} else {
		atomic_fetch_add_explicit(&l->lost, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&l->lock);
	if (wake)
		pthread_cond_signal(&l->wake);
}

/* --- the writer thread --------------------------------------------------- */

/* All of it, or how much came through before errno was set. */
static size_t write_all(struct tbg_log *l, const char *p, size_t len)
{
	struct pollfd pfd = { .fd = l->fd, .events = POLLOUT };
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = write(l->fd, p + done, len - done);
		if (n > 0)
			done += n;
		else if (n == 0)
			break;
		else if (errno == EAGAIN && poll(&pfd, 1, STUCK_MS) > 0)
			continue;
		else if (errno != EINTR)
			break;
	}
	return done;
}

static void failing_say(struct tbg_log *l, int err)
{
	if (!l->failing)
		tbg_report("log: %s: %s; lines are being lost and counted, requests are served: free space, or move the file away and send SIGUSR1",
			l->path, strerror(err));
	l->failing = true;
}

static void lines_write(struct tbg_log *l, const char *b, size_t len)
{
	uint64_t lost = 0;
	size_t done = 0;

	if (!len)
		return;
	errno = ENOSPC;
	if (l->torn && write_all(l, "\n", 1) == 1)
		l->torn = false;
	if (!l->torn)
		done = write_all(l, b, len);
	if (done == len) {
		if (l->failing)
			tbg_report("log: %s: writing again, %llu lines lost so far",
				l->path, (unsigned long long)tbg_log_lost(l));
		l->failing = false;
		return;
	}
	failing_say(l, errno);
	if (done)
		l->torn = b[done - 1] != '\n';
	for (size_t i = done; i < len; i++)
		lost += b[i] == '\n';
	atomic_fetch_add_explicit(&l->lost, lost, memory_order_relaxed);
}

/*
 * next_fd: the file of what came after the reopen, or -1: there was none. One that
 * fails is left at once: the new one may take what it does not.
 */
static void half_write(struct tbg_log *l, const struct half *h, int next_fd)
{
	size_t old_len = next_fd < 0 ? h->len : l->failing ? 0 : h->old_len;

	lines_write(l, h->b, old_len);
	if (next_fd >= 0) {
		close(l->fd);
		l->fd = next_fd;
		l->torn = false;
	}
	lines_write(l, h->b + old_len, h->len - old_len);
}

static void *writer_run(void *arg)
{
	struct tbg_log *l = arg;
	struct half *h;
	int next_fd;

	pthread_mutex_lock(&l->lock);
	tbg_privilege_none();	/* all that it needs is an open file */
	l->running = true;
	pthread_cond_broadcast(&l->wake);
	for (;;) {
		while (!l->flush && !l->stop)
			pthread_cond_wait(&l->wake, &l->lock);
		l->flush = false;
		next_fd = l->next_fd;
		l->next_fd = -1;
		h = &l->half[l->front];
		if (!h->len && next_fd < 0) {
			if (l->stop)
				break;
			continue;
		}
		l->front ^= 1;
		pthread_mutex_unlock(&l->lock);
		half_write(l, h, next_fd);
		pthread_mutex_lock(&l->lock);
		h->len = h->old_len = 0;
		/* filled past the mark while we wrote: nobody will signal */
		l->flush |= l->half[l->front].len >= WAKE_LEN;
	}
	l->ended = true;
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* --- hits of the kernel tiers -------------------------------------------- */

static int event_log(void *arg, void *data, size_t size)
{
	struct tbg_log *l = arg;
	const struct tbg_event *e = data;
	struct tbg_log_record r = { 0 };

	if (size < sizeof(*e))
		return 0;
	r.remote6 = e->remote;
	r.req = (const char *)e->req;
	r.req_len = e->req_len;
	if (r.req_len > size - sizeof(*e))
		r.req_len = size - sizeof(*e);
	r.second = ((int64_t)e->mono_ns + l->real_ns) / 1000000000;
	r.status = e->status;
	r.body = e->body;
	r.tier = e->tier;
	r.reason = "hit";
	r.took_ns = e->took_ns;
	tbg_log_write(l, &r);
	/* the sample is consumed even so; the descriptor stays readable */
	return ++l->events_nr >= EVENTS_MAX ? -EAGAIN : 0;
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int tbg_log_fd(const struct tbg_log *l)
{
	return l && l->ring ? ring_buffer__epoll_fd(l->ring) : -1;
}

void tbg_log_ready(struct tbg_log *l)
{
	if (!l || !l->ring)
		return;
	l->real_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
	l->events_nr = 0;
	ring_buffer__consume(l->ring);
}

static void on_ring(void *arg, uint32_t events)
{
	tbg_log_ready(arg);
}

int tbg_log_watch(struct tbg_log *l, struct tbg_loop *loop)
{
	int fd = tbg_log_fd(l);

	return fd < 0 ? 0 : tbg_loop_add(loop, fd, EPOLLIN, on_ring, l);
}

void tbg_log_flush(struct tbg_log *l)
{
	if (!l)
		return;
	tbg_log_ready(l);
	pthread_mutex_lock(&l->lock);
	l->flush = true;
	pthread_mutex_unlock(&l->lock);
	pthread_cond_signal(&l->wake);
}

/* --- life ---------------------------------------------------------------- */

/* In l->folder. */
static const char *name_of(const struct tbg_log *l)
{
	const char *slash = strrchr(l->path, '/');

	return slash ? slash + 1 : l->path;
}

static int file_open_as(const struct tbg_log *l, int folder, int flags)
{
	int fd = openat(folder, name_of(l), O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0640);

	return fd < 0 ? -errno : fd;
}

/*
 * O_NONBLOCK: a pipe that nobody reads fails instead of hanging us. It is opened
 * with us as a reader then, who leaves: what is written is lost and counted until
 * another one comes, as behind one that went away.
 */
static int file_open(const struct tbg_log *l, int folder, int flags)
{
	int fd, reader;

	flags |= O_WRONLY | O_APPEND | O_CREAT;
	fd = file_open_as(l, folder, flags);
	if (fd != -ENXIO)
		return fd;
	reader = file_open_as(l, folder, O_RDONLY | (flags & O_NOFOLLOW));
	if (reader < 0)
		return fd;
	fd = file_open_as(l, folder, flags);
	close(reader);
	return fd;
}

/*
 * As our user may, else with the rights of who has started us. Who else may write
 * in the folder leads us to no file of another one then: neither kind of link will do.
 */
static int file_open_raised(const struct tbg_log *l, int folder)
{
	int fd = file_open(l, folder, 0);
	struct stat st, named;

	if (fd != -EACCES)
		return fd;
	tbg_privilege_raise();
	fd = file_open(l, folder, O_NOFOLLOW);
	tbg_privilege_lower();
	if (fd < 0)
		return fd;
	/* of the name, now: another one may have been there when it was opened */
	if (!fstat(fd, &st) && !fstatat(folder, name_of(l), &named, AT_SYMLINK_NOFOLLOW) &&
	    named.st_nlink == 1 && named.st_dev == st.st_dev && named.st_ino == st.st_ino)
		return fd;
	close(fd);
	return -EMLINK;
}

/* resolve: RESOLVE_* of openat2(2). */
static int folder_open(const char *path, uint64_t resolve)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = resolve };
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash - path + 1) : strdup(".");
	int fd = -ENOMEM;

	if (dir)
		fd = syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
	if (dir && fd < 0)
		fd = -errno;
	free(dir);
	return fd;
}

static bool folders_same(int a, int b)
{
	struct stat one, other;

	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/*
 * The folder that the path leads to by now. Who else may write on its way could
 * lead us into any other one: with more than our user's rights it is that of
 * before, or one that no symbolic link leads to.
 */
static int folder_now(const struct tbg_log *l, bool raised)
{
	int fd;

	if (!raised)
		return folder_open(l->path, 0);
	tbg_privilege_raise();
	fd = folder_open(l->path, 0);
	if (fd >= 0 && !folders_same(fd, l->folder)) {
		close(fd);
		fd = folder_open(l->path, RESOLVE_NO_SYMLINKS);
	}
	tbg_privilege_lower();
	return fd;
}

/* The file, and the folder it is in: *ret_folder, not changed if it fails. */
static int file_find(const struct tbg_log *l, bool raised, int *ret_folder)
{
	int folder = folder_now(l, raised), fd = folder;

	if (folder >= 0)
		fd = raised ? file_open_raised(l, folder) : file_open(l, folder, 0);
	if (fd >= 0)
		*ret_folder = folder;
	else if (folder >= 0)
		close(folder);
	return fd;
}

/* As file_find(); what fails by the path is done where the file was before, and told. */
static int file_find_again(const struct tbg_log *l, int *ret_folder)
{
	int fd = file_find(l, false, ret_folder), err;

	if (fd == -EACCES)
		fd = file_find(l, true, ret_folder);
	if (fd >= 0)
		return fd;
	err = fd;
	fd = file_open_raised(l, l->folder);
	if (fd >= 0)
		tbg_report("log: reopen %s: %s; opened in the folder where it was before: let the daemon's user create files in the new one",
			l->path, strerror(-err));
	return fd;
}

int tbg_log_reopen(struct tbg_log *l)
{
	int fd, folder = -1;
	struct half *h;

	if (!l)
		return 0;
	/* what has been answered by now is the old file's */
	for (int i = 0; i < REOPEN_READS && (!i || l->events_nr >= EVENTS_MAX); i++)
		tbg_log_ready(l);
	pthread_mutex_lock(&l->lock);
	h = &l->half[l->front];
	h->old_len = h->len;
	pthread_mutex_unlock(&l->lock);
	fd = file_find_again(l, &folder);
	if (fd < 0) {
		tbg_report("log: reopen %s: %s; still writing to the old file: let the daemon's user create files there",
			l->path, strerror(-fd));
		return fd;
	}
	if (folder >= 0) {
		close(l->folder);
		l->folder = folder;
	}
	pthread_mutex_lock(&l->lock);
	if (l->next_fd >= 0)
		close(l->next_fd);
	l->next_fd = fd;
	l->flush = true;
	pthread_mutex_unlock(&l->lock);
	pthread_cond_signal(&l->wake);
	return 0;
}

/* Signals are the control thread's; SIGPIPE becomes EPIPE. */
int tbg_log_start(struct tbg_log *l)
{
	sigset_t all, old;
	int err;

	if (!l)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&l->writer, NULL, writer_run, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		tbg_report("toboggand: --access-log %s: no thread to write it: %s", l->path,
			strerror(err));
		return -err;
	}
	pthread_setname_np(l->writer, "tbg-log");
	pthread_mutex_lock(&l->lock);
	while (!l->running)
		pthread_cond_wait(&l->wake, &l->lock);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

static int ring_open(struct tbg_log *l, const struct tbg_maps *maps)
{
	if (!maps)
		return 0;
	l->ring = ring_buffer__new(maps->events_fd, event_log, l, NULL);
	return l->ring ? 0 : -errno;
}

/* A pipe may have no reader yet. */
int tbg_log_check(const char *path)
{
	struct stat st;
	int folder, err;

	if (!stat(path, &st)) {
		if (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode))
			return S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
		return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? -errno : 0;
	}
	if (errno != ENOENT)
		return -errno;
	folder = folder_open(path, 0);
	if (folder < 0)
		return folder;
	err = faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) ? -errno : 0;
	close(folder);
	return err;
}

static void log_free(struct tbg_log *l)
{
	free(l->half[1].b);
	free(l->half[0].b);
	free(l->path);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int tbg_log_open(struct tbg_log **ret, const char *path,
		 enum tbg_log_format format, const struct tbg_maps *maps,
		 char *ret_msg, size_t msg_len)
{
	struct tbg_log *l = calloc(1, sizeof(*l));
	int err = -ENOMEM;

	if (!l)
		goto no_log;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->wake, NULL);
	l->next_fd = -1;
	l->format = format;
	l->path = strdup(path);
	l->half[0].b = malloc(HALF_LEN);
	l->half[1].b = malloc(HALF_LEN);
	if (!l->path || !l->half[0].b || !l->half[1].b)
		goto no_folder;
	err = l->folder = folder_open(path, 0);
	if (err < 0)
		goto no_folder;
	err = l->fd = file_open(l, l->folder, 0);
	if (err < 0)
		goto no_file;
	err = ring_open(l, maps);
	if (err)
		goto no_ring;
	if (maps) {
		l->knob = maps->knob;
		__atomic_store_n(&l->knob->log, 1, __ATOMIC_RELEASE);
	}
	*ret = l;
	return 0;

no_ring:
	close(l->fd);
no_file:
	close(l->folder);
no_folder:
	log_free(l);
no_log:
	snprintf(ret_msg, msg_len,
		 "%s: %s; choose a file that can be written, or off",
		 path, strerror(-err));
	return err;
}

const char *tbg_log_path(const struct tbg_log *l)
{
	return l ? l->path : NULL;
}

bool tbg_log_is(const struct tbg_log *l, const char *path,
		enum tbg_log_format format)
{
	return l && path ? !strcmp(l->path, path) && l->format == format :
			   !l && !path;
}

bool tbg_log_stop(struct tbg_log *l, const struct tbg_log *next)
{
	bool ret;

	if (!l->stop && !next) {
		if (l->knob)
			__atomic_store_n(&l->knob->log, 0, __ATOMIC_RELEASE);
		tbg_log_ready(l);
	}
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	ret = l->ended || !l->running;
	pthread_mutex_unlock(&l->lock);
	pthread_cond_signal(&l->wake);
	return ret;
}

void tbg_log_close(struct tbg_log *l, const struct tbg_log *next)
{
	if (!l)
		return;
	tbg_log_stop(l, next);
	if (l->running)
		pthread_join(l->writer, NULL);
	ring_buffer__free(l->ring);
	close(l->fd);
	if (l->next_fd >= 0)
		close(l->next_fd);
	close(l->folder);
	log_free(l);
}

uint64_t tbg_log_lost(const struct tbg_log *l)
{
	return l ? atomic_load_explicit(&l->lost, memory_order_relaxed) : 0;
}
