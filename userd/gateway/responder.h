/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A FastCGI server (responder): accepts the daemon's connections on a listening socket
 * and reads one request at a time from each (struct tbg_gateway_request), which a program
 * (cgi.c) or a module (module.c) answers. One thread, one loop; nothing here waits.
 */
#ifndef TBG_USERD_GATEWAY_RESPONDER_H
#define TBG_USERD_GATEWAY_RESPONDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "http/header.h"
#include "fastcgi/record.h"

#define TBG_FCGI_PARAMS_MAX	(512 << 10)	/* bytes of all meta-variables */
#define TBG_GATEWAY_REQUEST_BODY	(128 << 10)	/* of a body that are buffered */
#define TBG_GATEWAY_REQUEST_OUT	(256 << 10)	/* of an answer that are buffered */

struct tbg_loop;
struct tbg_serve;
struct tbg_gateway_request;

/* A buffer; bytes before off have been consumed. */
struct tbg_bytes {
	struct tbg_lines l;
	size_t off;
};

struct tbg_param {
	const char *name, *value;	/* NUL-terminated */
	size_t name_len, len;		/* without the NUL */
};

/* What answers requests: programs or a module. */
struct tbg_answerer {
	/* All variables of the request have been received. */
	void (*begin)(struct tbg_gateway_request *v);
	/* More of its body has been received, or its end. */
	void (*input)(struct tbg_gateway_request *v);
	/* The output buffer has room again. */
	void (*output)(struct tbg_gateway_request *v);
	/* The request has ended or was aborted: v is no longer valid. */
	void (*gone)(struct tbg_gateway_request *v);
	/* No descriptor was free for another connection. NULL: nothing to do. */
	void (*full)(struct tbg_serve *s);
};

struct tbg_gateway_request {
	struct tbg_serve *s;
	LIST_ENTRY(tbg_gateway_request) link;
	int fd;
	uint32_t events;		/* that the loop polls for */
	struct tbg_fcgi_record_reader reader;
	/* the request */
	uint16_t id;
	bool begun;			/* between BEGIN and END */
	bool known;			/* all variables received: answerer->begin was called */
	bool keep;			/* keep the connection after the answer */
	bool ended;			/* the answer has ended, or was aborted */
	bool input_over;		/* its body has ended */
	bool last;			/* no further request will come */
	bool output_begun;		/* part of the answer has been written */
	bool starved;			/* the output buffer was full, and has room now */
	bool closing;			/* close once everything is sent */
	bool served;			/* at least one request was answered */
	bool dead;			/* to be freed when no longer in use */
	unsigned int holds;
	struct tbg_lines pairs;		/* its variables as received */
	char *text;			/* the same, NUL-terminated */
	struct tbg_param *params;
	unsigned int params_nr;
	struct tbg_lines values;	/* names in a GET_VALUES request */
	struct tbg_bytes body, out;
	void *own;			/* private to the answerer */
};

struct tbg_serve {
	struct tbg_loop *loop;
	const struct tbg_answerer *answerer;
	int listen_fd, term_fd;
	int state_fd;			/* gets a byte at the begin and end of serving; -1: none */
	bool listening;
	uid_t daemon;
	LIST_HEAD(, tbg_gateway_request) visits;
	unsigned int connections_nr;
	bool retiring;			/* no further requests are accepted */
};

/*
 * Before: loop, answerer, listen_fd, state_fd and daemon are set. SIGTERM retires it.
 * SIGTERM must be blocked in all threads, or a thread that does not block it would
 * receive it.
 */
int tbg_serve_open(struct tbg_serve *s);
/* Accepts no further requests; ends the loop after the current ones. */
void tbg_serve_retire(struct tbg_serve *s);

/* The value of a meta-variable; NULL: not set. */
const char *tbg_gateway_request_param(const struct tbg_gateway_request *v, const char *name);

/* Reads bytes of the body; 0: none now, see input_over. */
size_t tbg_gateway_request_read(struct tbg_gateway_request *v, void *to, size_t size);

/* Free bytes in the output buffer. */
size_t tbg_gateway_request_room(const struct tbg_gateway_request *v);
/* Writes a part of the answer, in the format of programs (RFC 3875 6). False: no memory. */
bool tbg_gateway_request_send(struct tbg_gateway_request *v, const void *b, size_t len);
/* Sends lines to the daemon's log. */
void tbg_gateway_request_complain(struct tbg_gateway_request *v, const void *b, size_t len);
/* Sends buffered output now, as far as the socket takes it. */
void tbg_gateway_request_flush(struct tbg_gateway_request *v);
/*
 * Completes the answer, and calls answerer->gone. tbg_gateway_request_fail() does so,
 * too, after it has answered with a status if nothing was sent, else cut off the answer.
 */
void tbg_gateway_request_end(struct tbg_gateway_request *v);
/* The same with a program's exit status: if it is not 0, the answer is not stored. */
void tbg_gateway_request_exit(struct tbg_gateway_request *v, uint32_t exit_status);
void tbg_gateway_request_fail(struct tbg_gateway_request *v, unsigned int status);

/*
 * Sends buffered output and what tbg_gateway_request_fail() would send, or the end of a
 * complete answer, if the socket takes it at once. For signal handlers: changes nothing
 * but the socket. Also from another thread: if the first one is reallocating the buffer
 * at this moment, the bytes may be no valid record, which the daemon treats as a 502.
 */
void tbg_gateway_request_last_words(const struct tbg_gateway_request *v, unsigned int status);

#endif
