/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A FastCGI server (responder): accepts the daemon's connections on a listening
 * socket, and makes of what comes on each one request at a time, a tbg_gateway_request, that
 * somebody answers: a program (cgi.c) or a module (module.c). One thread, one
 * loop; nothing here waits.
 */
#ifndef TBG_USERD_GATEWAY_SERVE_H
#define TBG_USERD_GATEWAY_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "http/header.h"
#include "fastcgi/record.h"

#define TBG_FCGI_PARAMS_MAX	(512 << 10)	/* bytes of all meta-variables */
#define TBG_GATEWAY_REQUEST_BODY	(128 << 10)	/* of a body that wait to be taken */
#define TBG_GATEWAY_REQUEST_OUT	(256 << 10)	/* of an answer that wait to be sent */

struct tbg_loop;
struct tbg_serve;
struct tbg_gateway_request;

/* Bytes that wait; those before off have been taken. */
struct tbg_bytes {
	struct tbg_lines l;
	size_t off;
};

struct tbg_param {
	const char *name, *value;	/* NUL-terminated */
	size_t name_len, len;		/* without that */
};

/* Who answers. */
struct tbg_answerer {
	/* The request's variables are all there. */
	void (*begin)(struct tbg_gateway_request *v);
	/* More of its body, or its end. */
	void (*input)(struct tbg_gateway_request *v);
	/* There is room for output again. */
	void (*output)(struct tbg_gateway_request *v);
	/* It is over, or nobody is there any more: forget it. */
	void (*gone)(struct tbg_gateway_request *v);
	/* There was no descriptor for another connection. NULL: nothing to do. */
	void (*full)(struct tbg_serve *s);
};

struct tbg_gateway_request {
	struct tbg_serve *s;
	LIST_ENTRY(tbg_gateway_request) link;
	int fd;
	uint32_t events;		/* that the loop waits for */
	struct tbg_fcgi_record_reader reader;
	/* the request */
	uint16_t id;
	bool begun;			/* between BEGIN and END */
	bool known;			/* all its variables: answerer->begin was called */
	bool keep;			/* the connection, behind the answer */
	bool ended;			/* the answer has, or nobody waits for it */
	bool input_over;		/* its body has ended */
	bool last;			/* nothing will come behind it */
	bool output_begun;		/* some of its answer is given */
	bool starved;			/* there was no room, and now there is */
	bool closing;			/* once all is sent */
	bool served;			/* one request, at least, is answered */
	bool dead;			/* freed when nobody uses it any more */
	unsigned int holds;
	struct tbg_lines pairs;		/* its variables as they came */
	char *text;			/* and NUL-terminated */
	struct tbg_param *params;
	unsigned int params_nr;
	struct tbg_lines values;	/* names of those it asks for */
	struct tbg_bytes body, out;
	void *own;			/* the answerer's */
};

struct tbg_serve {
	struct tbg_loop *loop;
	const struct tbg_answerer *answerer;
	int listen_fd, term_fd;
	int state_fd;			/* a byte: we serve; another: we take no more. -1: none */
	bool listening;
	uid_t daemon;
	LIST_HEAD(, tbg_gateway_request) visits;
	unsigned int visits_nr;
	bool retiring;			/* no request but those that are here */
};

/*
 * loop, answerer, listen_fd, state_fd and daemon are set. SIGTERM retires it, and is blocked in all
 * threads: it would be taken by one that does not block it.
 */
int tbg_serve_open(struct tbg_serve *s);
/* No request more but those that are here; then the loop ends. */
void tbg_serve_retire(struct tbg_serve *s);

/* A meta-variable; NULL: it has none of that name. */
const char *tbg_gateway_request_param(const struct tbg_gateway_request *v, const char *name);

/* Takes bytes off the body; 0: there are none now, see input_over. */
size_t tbg_gateway_request_read(struct tbg_gateway_request *v, void *to, size_t size);

/* Bytes that there is room for. */
size_t tbg_gateway_request_room(const struct tbg_gateway_request *v);
/* The answer, as a program writes it (RFC 3875 6). False: no memory. */
bool tbg_gateway_request_send(struct tbg_gateway_request *v, const void *b, size_t len);
/* Lines for the daemon's log. */
void tbg_gateway_request_complain(struct tbg_gateway_request *v, const void *b, size_t len);
/* What was sent goes out now, as far as it does. */
void tbg_gateway_request_flush(struct tbg_gateway_request *v);
/*
 * The answer is complete. Calls answerer->gone; so does tbg_gateway_request_fail(), which
 * answers with a status if nothing has been sent and cuts it off otherwise.
 */
void tbg_gateway_request_end(struct tbg_gateway_request *v);
/* The same of a program that has exited so: not 0, and the answer is not stored. */
void tbg_gateway_request_exit(struct tbg_gateway_request *v, uint32_t exit_status);
void tbg_gateway_request_fail(struct tbg_gateway_request *v, unsigned int status);

/*
 * What waits to be sent and what tbg_gateway_request_fail() would send, or, of an answer that is
 * complete, its end; if it can be sent at once. For signal handlers: nothing is touched
 * but the socket. For another thread: where that one makes room for output at this very
 * moment, what is sent may be no record, which the daemon takes for a 502.
 */
void tbg_gateway_request_last_words(const struct tbg_gateway_request *v, unsigned int status);

#endif
