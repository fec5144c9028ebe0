/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The answerer of a request that is not answered at once: a table of operations, which the
 * connection calls and the room above it defines (proxy/transfer.c). A connection has one
 * answerer at a time, and eats nothing while it has.
 */
#ifndef TBG_USERD_CLIENT_ANSWERER_H
#define TBG_USERD_CLIENT_ANSWERER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/persist.h"
#include "http/header.h"

struct tbg_conn;
struct tbg_location;
struct tbg_message;
struct tbg_worker;
struct tbg_answerer_ops;

/*
 * The phases of a request, in words: the daemon's work for it, its arrival, its sending to
 * the server (NULL: no server is asked), and its answer.
 */
struct tbg_answerer_phases {
	const char *phase, *upload, *sending, *answer;
};

/* What is handed over; of the location, an answerer keeps what it needs. */
struct tbg_answerer_request {
	const struct tbg_location *location;
	const char *index;		/* file of the folder that is asked for, or NULL */
	enum tbg_persist persist;
	uint32_t taken;			/* bytes of the request, as far as it has come */
};

struct tbg_answerer {
	const struct tbg_answerer_ops *ops;
	uint32_t taken;			/* bytes of the request, body included */
	bool starting;			/* in begin(), whose caller goes on by itself */
};

/* The facts that the log records of a request and its answer. */
struct tbg_answerer_record {
	struct tbg_slice request;	/* its head, as received */
	struct tbg_slice host, request_id;
	unsigned int status;		/* 0: no byte of an answer is sent */
	uint64_t body;			/* bytes of content sent */
	const char *reason;
	const char *upstream;		/* that was asked, or NULL */
	uint64_t upstream_ns;		/* since then */
};

struct tbg_answerer_ops {
	/*
	 * Takes over the request whose head is m at b: sets c->active->answerer until it
	 * calls tbg_conn_answered() or tbg_conn_redirect(). False: no memory.
	 */
	bool (*begin)(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_message *m,
		      const void *b, const struct tbg_answerer_request *r);
	/* There may be more of the request's body, or its end. */
	void (*input)(struct tbg_answerer *a);
	/* The socket takes output again. */
	void (*writable)(struct tbg_answerer *a);
	/* The client is gone, or has another answerer. */
	void (*abandon)(struct tbg_answerer *a);
	/* The client does not send the body: answers 408. False: too late to say that. */
	bool (*late)(struct tbg_answerer *a);
	/* Is it the client that is waited for? */
	bool (*waits_client)(const struct tbg_answerer *a);
	void (*record)(const struct tbg_answerer *a, struct tbg_answerer_record *ret);
	void (*phases)(const struct tbg_answerer *a, struct tbg_answerer_phases *ret);
};

#endif
