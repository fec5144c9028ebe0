/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An answer of the control socket that takes its time: a thread of its own has
 * the socket until it is done, so that the control thread is never held up.
 */
#ifndef TBG_USERD_CONTROL_STREAM_H
#define TBG_USERD_CONTROL_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define TBG_STREAM_IDLE_S 30	/* for a client to take something */

struct tbg_server;
struct tbg_sites;

struct tbg_stream {
	struct tbg_server *s;
	/* cleared before its last line: whoever has that may ask for the next */
	atomic_bool heavy;
	const struct tbg_sites *sites;	/* of its begin; held */
	json_t *req;
	int fd;				/* of the client */
	atomic_bool done, failed;
	/* the rest is stream.c's */
	pthread_t thread;
	int done_fd;
	int (*run)(struct tbg_stream *st);
};

bool tbg_stream_takes(const char *cmd);
/* One that holds a copy of all rows, or reads files: few of them at a time. */
bool tbg_stream_is_heavy(const char *cmd);

/*
 * Starts a stream for a command that is answered so; it adds 1 to the eventfd
 * done_fd when it is done. NULL, or the answer that says why there is none.
 */
json_t *tbg_stream_start(struct tbg_stream **ret, struct tbg_server *s,
			 const char *cmd, const json_t *req, int fd,
			 int done_fd);

/* Joins the thread, which must be done or about to be. */
void tbg_stream_end(struct tbg_stream *st);

/* For what runs: all of it or negative errno, no longer than it moves. */
int tbg_stream_send(struct tbg_stream *st, const char *p, size_t len);
int tbg_stream_line(struct tbg_stream *st, json_t *line);	/* drops line */

/* What runs: 0, or negative errno, upon which the client is let go. */
int tbg_listing_run(struct tbg_stream *st);
int tbg_warm_run(struct tbg_stream *st);
int tbg_connections_run(struct tbg_stream *st);
int tbg_log_run(struct tbg_stream *st);

#endif
