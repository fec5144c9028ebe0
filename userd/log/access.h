/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An access log: one line per request whichever tier answered, in a file or a sink.
 * Lines go through a bounded queue to a writer; what does not fit is counted, never
 * waited for. Which request is logged where, main/access_log.c decides.
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
	const struct sockaddr_storage *remote;	/* or NULL and */
	const uint32_t *remote6;		/* 4 words, IPv4-mapped */
	const char *req;	/* the request head as received */
	size_t req_len;
	int64_t second;		/* CLOCK_REALTIME, when it was answered */
	unsigned int status;
	uint64_t body;		/* body bytes sent */
	uint64_t sent;		/* bytes sent, head included */
	const char *upstream;	/* which was asked, or NULL */
	uint64_t upstream_ns;	/* since it was sent the request */
	enum tbg_tier tier;
	const char *reason;	/* a word: hit, stored, miss, refused */
	uint64_t took_ns;	/* until it was answered, see toboggand(8) */
	const char *client;	/* behind the proxy that is remote; NULL: remote itself */
	const char *request_id;	/* NULL: as the head has it */
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

#define TBG_LOGS_MAX	256	/* open at a time: each has a thread and two buffers */

const char *tbg_log_format_name(enum tbg_log_format format);

/* Whether who calls could open path, which is not made. 0 or negative errno. */
int tbg_log_check(const char *path);

/*
 * Opens path for who has the right to, where our user has not: a descriptor, and one of
 * its folder. *ret_before: 0, or why it is in the folder of before. Negative errno,
 * -EPERM: there is nobody.
 */
typedef int tbg_log_open_fn(const char *path, int *ret_folder, int *ret_before);

/*
 * path opened for appending, as our user, or by open_as_root (NULL: nobody); or a sink,
 * see sink.h. pattern: of TBG_LOG_CUSTOM, else NULL.
 */
int tbg_log_open(struct tbg_log **ret, const char *path,
		 enum tbg_log_format format, const char *pattern,
		 tbg_log_open_fn *open_as_root, char *ret_msg, size_t msg_len);
/*
 * Starts the writer, after they are: a thread has of no-new-privileges and
 * capabilities what its maker has. It holds none when this returns. NULL: 0.
 * Otherwise a negative errno, which it has said.
 */
int tbg_log_start(struct tbg_log *l);
/*
 * No line follows: what there is is written, which a reader that has stopped holds
 * up. Returns whether that is over, so that tbg_log_close() does not wait. May be
 * repeated.
 */
bool tbg_log_stop(struct tbg_log *l);
/* The same, waited for, and its memory. NULL is allowed. */
void tbg_log_close(struct tbg_log *l);

const char *tbg_log_path(const struct tbg_log *l);	/* NULL: off */

/* Whether lines have a client or an id, which the caller is to find for the record. */
bool tbg_log_needs_site(const struct tbg_log *l);

/* The peer's address as text, in b or not. */
const char *tbg_log_peer(const struct tbg_log_record *r, char b[INET6_ADDRSTRLEN]);

/* Any worker; formats and queues. Never blocks. NULL log: nothing. */
void tbg_log_write(struct tbg_log *l, const struct tbg_log_record *r);

/*
 * The line, with its newline and no NUL, if it fits in size. Returns its
 * length. tbg_log_write() without the queue.
 */
size_t tbg_log_line(char *ret, size_t size, enum tbg_log_format format,
		    const struct tbg_log_record *r);

/* Control thread, every 100 ms or so. */
void tbg_log_flush(struct tbg_log *l);
/* Opens the path again (SIGUSR1); on error the old file stays. NULL allowed. */
int tbg_log_reopen(struct tbg_log *l);
/* Lines that did not reach the file. */
uint64_t tbg_log_lost(const struct tbg_log *l);
/* Of all logs that there have been. Any thread. */
uint64_t tbg_logs_lost(void);

#endif
