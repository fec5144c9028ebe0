// SPDX-License-Identifier: GPL-2.0
/*
 * The threads of long answers: start, transmission and end.
 */
#include "control/stream.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/commands.h"
#include "os/privilege.h"
#include "serve/server.h"

int tbg_stream_send(struct tbg_stream *st, const char *p, size_t len)
{
	struct pollfd pfd = { .fd = st->fd, .events = POLLOUT };
	ssize_t n;

	while (len) {
		n = send(st->fd, p, len, MSG_NOSIGNAL);
		if (n > 0) {
			p += n;
			len -= n;
		} else if (n < 0 && errno == EAGAIN) {
			n = poll(&pfd, 1, TBG_STREAM_IDLE_S * 1000);
			if (n == 0)
				return -ETIMEDOUT;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

int tbg_stream_line(struct tbg_stream *st, json_t *line)
{
	char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0;
	int err = -ENOMEM;

	json_decref(line);
	if (text) {
		text[len] = '\n';	/* replaces the NUL */
		err = tbg_stream_send(st, text, len + 1);
	}
	free(text);
	return err;
}

static void *stream_thread(void *arg)
{
	struct tbg_stream *st = arg;
	uint64_t one = 1;

	tbg_privilege_none();
	atomic_store(&st->failed, st->run(st) != 0);
	atomic_store(&st->done, true);
	while (write(st->done_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	return NULL;
}

static int thread_start(struct tbg_stream *st)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&st->thread, NULL, stream_thread, st);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

static const struct kind {
	const char *cmd;
	int (*run)(struct tbg_stream *st);
	bool heavy;
} kinds[] = {
	{ "objects", tbg_listing_run, true },
	{ "connections", tbg_connections_run, true },
	{ "warm",    tbg_warm_run, true },
	{ "log",     tbg_log_run, false },
};

static const struct kind *kind_of(const char *cmd)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(cmd, kinds[i].cmd))
			return &kinds[i];
	return NULL;
}

bool tbg_stream_takes(const char *cmd)
{
	return kind_of(cmd);
}

bool tbg_stream_is_heavy(const char *cmd)
{
	return kind_of(cmd)->heavy;
}

json_t *tbg_stream_start(struct tbg_stream **ret, struct tbg_server *s,
			 const char *cmd, const json_t *req, int fd, int done_fd)
{
	struct tbg_stream *st = calloc(1, sizeof(*st));
	json_t *error;
	int err;

	if (!st)
		return tbg_command_error("out of memory");
	st->s = s;
	st->run = kind_of(cmd)->run;
	st->heavy = kind_of(cmd)->heavy;
	st->fd = fd;
	st->done_fd = done_fd;
	/* reference counts of jansson are not safe between threads */
	st->req = json_deep_copy(req);
	st->sites = s->sites;
	tbg_sites_hold(st->sites);
	err = st->req ? thread_start(st) : -ENOMEM;
	if (!err) {
		*ret = st;
		return NULL;
	}
	error = tbg_command_error("no thread: %s", strerror(-err));
	tbg_sites_put(st->sites);
	json_decref(st->req);
	free(st);
	return error;
}

void tbg_stream_end(struct tbg_stream *st)
{
	pthread_join(st->thread, NULL);
	tbg_sites_put(st->sites);
	json_decref(st->req);
	free(st);
}
