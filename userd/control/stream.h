/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A long answer of the control socket: a thread of its own writes it, so that it does
 * not block the control thread.
 */
#ifndef TBG_USERD_CONTROL_STREAM_H
#define TBG_USERD_CONTROL_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define TBG_STREAM_IDLE_S 30	/* for a client to read something */

struct tbg_server;
struct tbg_sites;

struct tbg_stream {
	struct tbg_server *s;
	/* cleared before its last line: a client that has read it may start the next stream */
	atomic_bool heavy;
	const struct tbg_sites *sites;	/* at its start, with a reference */
	json_t *req;
	int fd;				/* of the client */
	atomic_bool done, failed;
	/* private to stream.c */
	pthread_t thread;
	int done_fd;
	int (*run)(struct tbg_stream *st);
};

bool tbg_stream_takes(const char *cmd);
/*
 * Returns whether a stream holds a copy of all rows, or reads files. Their number is
 * limited.
 */
bool tbg_stream_is_heavy(const char *cmd);

/*
 * Starts the stream of a command. When it ends, it adds 1 to the eventfd done_fd.
 * Returns NULL, or the answer if it could not be started.
 */
json_t *tbg_stream_start(struct tbg_stream **ret, struct tbg_server *s,
			 const char *cmd, const json_t *req, int fd,
			 int done_fd);

/* Joins the thread, which must be done or about to end. */
void tbg_stream_end(struct tbg_stream *st);

/*
 * For streams: sends everything, or returns a negative errno. Fails if the client reads
 * nothing for TBG_STREAM_IDLE_S.
 */
int tbg_stream_send(struct tbg_stream *st, const char *p, size_t len);
int tbg_stream_line(struct tbg_stream *st, json_t *line);	/* consumes line */

/* The streams. They return 0, or a negative errno, after which the client is closed. */
int tbg_listing_run(struct tbg_stream *st);
int tbg_warm_run(struct tbg_stream *st);
int tbg_connections_run(struct tbg_stream *st);
int tbg_log_run(struct tbg_stream *st);

#endif
