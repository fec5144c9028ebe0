/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An access log: one line per request, whichever tier answered, in a file or a sink.
 * Lines pass through a bounded queue to a writer thread; lines that do not fit are
 * dropped and counted. main/access_log.c selects the log of each request.
 */
#ifndef TBG_USERD_LOG_ACCESS_H
#define TBG_USERD_LOG_ACCESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "abi/event.h"

struct tbg_log;

struct tbg_log_record {
	const struct sockaddr_storage *remote;	/* or NULL, and */
	const uint32_t *remote6;		/* 4 words, IPv4-mapped */
	const char *req;	/* the request head as received */
	size_t req_len;
	int64_t second;		/* CLOCK_REALTIME of the answer */
	unsigned int status;
	uint64_t body;		/* body bytes sent */
	uint64_t sent;		/* bytes sent, head included */
	const char *upstream;	/* the upstream asked, or NULL */
	uint64_t upstream_ns;	/* time since the request was sent to it */
	enum tbg_tier tier;
	const char *reason;	/* one word: hit, stored, miss, refused */
	uint64_t took_ns;	/* time until the answer, see toboggand(8) */
	const char *client;	/* the client of a trusted proxy; NULL: remote itself */
	const char *request_id;	/* NULL: as in the head */
	size_t request_id_len;
};

/* X(name, text) */
#define TBG_LOG_FORMAT_LIST(X) \
	X(COMBINED, "combined") \
	X(JSON,	    "json") \
	X(CUSTOM,   "fields by name")

enum tbg_log_format {
#define X(name, text) TBG_LOG_##name,
	TBG_LOG_FORMAT_LIST(X)
#undef X
	TBG_LOG_FORMAT_NR
};

#define TBG_LOGS_MAX	256	/* limit of open logs: each has a thread and two buffers */

/* Returns 0 if the caller could open path, or a negative errno. Does not create it. */
int tbg_log_check(const char *path);

/*
 * Opens path with more rights than the daemon's user has. Returns a descriptor, and one
 * of its folder in *ret_folder. *ret_before: 0, or why the file was opened in its
 * previous folder instead. Returns a negative errno on failure; -EPERM: no process has
 * these rights.
 */
typedef int tbg_log_open_fn(const char *path, int *ret_folder, int *ret_before);

/*
 * Opens path for appending, as the daemon's user or else by open_as_root (NULL: none);
 * or opens a sink, see sink.h. pattern: for TBG_LOG_CUSTOM, else NULL.
 */
int tbg_log_open(struct tbg_log **ret, const char *path,
		 enum tbg_log_format format, const char *pattern,
		 tbg_log_open_fn *open_as_root, char *ret_msg, size_t msg_len);
/*
 * Starts the writer thread. Call it after no-new-privileges and capabilities are set,
 * which threads inherit. The thread has dropped its capabilities when this returns.
 * Returns 0 (also for NULL), or a negative errno after logging it.
 */
int tbg_log_start(struct tbg_log *l);
/*
 * Lets the writer write the queued lines and end; no line may follow. A reader that
 * does not read delays it. Returns whether it has ended, so that tbg_log_close() does
 * not wait. May be called repeatedly.
 */
bool tbg_log_stop(struct tbg_log *l);
/* As tbg_log_stop(), waits for the end, and frees the log. Accepts NULL. */
void tbg_log_close(struct tbg_log *l);

const char *tbg_log_path(const struct tbg_log *l);	/* NULL: off */

/*
 * Returns whether the lines contain the client or request id, which the caller must
 * then set in the record.
 */
bool tbg_log_needs_site(const struct tbg_log *l);

/* Returns the peer's address as text, perhaps in b. */
const char *tbg_log_peer(const struct tbg_log_record *r, char b[INET6_ADDRSTRLEN]);

/* Formats and queues a line; never blocks. Any thread. NULL log: does nothing. */
void tbg_log_write(struct tbg_log *l, const struct tbg_log_record *r);

/*
 * Makes the line with its newline and no NUL, if it fits into size. Returns its length.
 * As tbg_log_write(), without a queue.
 */
size_t tbg_log_line(char *ret, size_t size, enum tbg_log_format format,
		    const struct tbg_log_record *r);

/* Lets the writer write what is queued. Called by the control thread about every 100 ms. */
void tbg_log_flush(struct tbg_log *l);
/* Opens the path again (SIGUSR1); on error the old file remains. Accepts NULL. */
int tbg_log_reopen(struct tbg_log *l);
/* Lines that were not written. */
uint64_t tbg_log_lost(const struct tbg_log *l);
/* Lines that were not written, of all logs since the start. Any thread. */
uint64_t tbg_logs_lost(void);

#endif
