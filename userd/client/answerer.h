/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The operations of an answerer: it produces the answer to a request that cannot be
 * answered immediately. The connection calls them; a folder above this one implements
 * them (proxy/transfer.c). A connection has at most one answerer, and parses no further
 * request while it has one.
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
 * The phases of a request, as words: the daemon's work for it, the arrival of its body,
 * its transmission to the server (NULL: no server is asked), and its answer.
 */
struct tbg_answerer_phases {
	const char *phase, *upload, *sending, *answer;
};

/* The parameters of begin(). An answerer copies what it keeps of the location. */
struct tbg_answerer_request {
	const struct tbg_location *location;
	const char *index;		/* index file of the requested folder, or NULL */
	enum tbg_persist persist;
	uint32_t taken;			/* request bytes received so far */
};

struct tbg_answerer {
	const struct tbg_answerer_ops *ops;
	uint32_t taken;			/* length of the request, body included */
	bool starting;			/* begin() is running; its caller continues by itself */
};

/* The facts about a request and its answer that go into the log. */
struct tbg_answerer_record {
	struct tbg_slice request;	/* the request's head, as received */
	struct tbg_slice host, request_id;
	unsigned int status;		/* 0: no byte of an answer was sent */
	uint64_t body;			/* bytes of content sent */
	const char *reason;
	const char *upstream;		/* the server that was asked, or NULL */
	uint64_t upstream_ns;		/* time since the request was sent to that server */
};

struct tbg_answerer_ops {
	/*
	 * Takes over the request whose head is m at b: sets c->active->answerer until
	 * it calls tbg_conn_answered() or tbg_conn_redirect(). Returns false without
	 * memory.
	 */
	bool (*begin)(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_message *m,
		      const void *b, const struct tbg_answerer_request *r);
	/* More of the request's body may have arrived, or its end. */
	void (*input)(struct tbg_answerer *a);
	/* The socket accepts output again. */
	void (*writable)(struct tbg_answerer *a);
	/* The client has closed the connection, or another answerer takes the request over. */
	void (*abandon)(struct tbg_answerer *a);
	/*
	 * The client does not send the rest of the body: answers 408. Returns false if
	 * an answer has already begun.
	 */
	bool (*late)(struct tbg_answerer *a);
	/*
	 * Returns whether the client has to act next: to send its body, or to read the
	 * answer.
	 */
	bool (*waits_client)(const struct tbg_answerer *a);
	void (*record)(const struct tbg_answerer *a, struct tbg_answerer_record *ret);
	void (*phases)(const struct tbg_answerer *a, struct tbg_answerer_phases *ret);
};

#endif
