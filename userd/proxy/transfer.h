/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request that is answered by a stored response, by another request's fetch, or by an
 * upstream. The main files, in the order of a request:
 *
 * transfer.c: chooses the answer; the life of a transfer
 * fetch.c: the upstream side: request out, response in
 * deliver.c: the client side: response out
 *
 * A transfer belongs to one worker. It outlives its client while others wait for its
 * fetch, and always while operations use its memory.
 */
#ifndef TBG_USERD_PROXY_TRANSFER_H
#define TBG_USERD_PROXY_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "client/answerer.h"
#include "http/header.h"
#include "http/forward.h"
#include "http/framing.h"
#include "proxy/connection_pool.h"
#include "proxy/phases.h"
#include "proxy/protocol.h"
#include "fastcgi/answer.h"
#include "fastcgi/parameters.h"
#include "http/freshness.h"
#include "http/response.h"
#include "site/forwarded.h"
#include "store/responses.h"
#include "serve/worker.h"

#define TBG_TRANSFER_IOV 3

/* Why a request is forwarded to the upstream (RFC 9211 2.2). */
#define TBG_FWD_LIST(X) \
	X(BYPASS, "bypass") \
	X(METHOD, "method") \
	X(URI_MISS, "uri-miss") \
	X(VARY_MISS, "vary-miss") \
	X(REQUEST, "request") \
	X(STALE, "stale") \
	X(PARTIAL, "partial")

enum tbg_fwd {
	TBG_FWD_NOT,		/* refused */
#define X(name, text) TBG_FWD_##name,
	TBG_FWD_LIST(X)
#undef X
};

/* The receiver of the response that a transfer fetches. */
enum tbg_serves {
	TBG_SERVES_CLIENT,
	TBG_SERVES_OTHERS,		/* waiting requests; its own client has left */
	TBG_SERVES_CACHE,		/* the store, after its client got a stale answer */
	TBG_SERVES_HEALTH,		/* a health check of the server in `checks` */
};

/* The origin of the answer with regard to the cache (RFC 9211). */
enum tbg_answer_from {
	TBG_ANSWER_FETCHED,		/* not stored; or stale, in place of an error */
	TBG_ANSWER_STORED,		/* stored, or renews a stored response */
	TBG_ANSWER_HIT,
	TBG_ANSWER_COLLAPSED,		/* received from the fetch of another request */
};

/* How a request was sent to a server. */
enum tbg_sent_how {
	TBG_SENT_NEW = 1,		/* on a new connection, not from the pool */
	TBG_SENT_PLAIN = 2,		/* with no conditions other than the client's */
	TBG_SENT_UNCONDITIONAL = 4,	/* without the client's conditions */
	TBG_SENT_REST = 8,		/* only for the bytes that x->partial lacks */
};

/* Data received after a response. */
enum tbg_excess {
	TBG_EXCESS_NONE,
	TBG_EXCESS_BYTES,
	TBG_EXCESS_RESPONSE,		/* the beginning of another response */
};

/* How much of the source of an answer is known. */
enum tbg_source_end {
	TBG_SOURCE_GROWS,
	TBG_SOURCE_WHOLE,
	TBG_SOURCE_ENDED,		/* and its last chunk is in pre or post */
};

struct tbg_spool;

/* Settings of the location that control how a request is interpreted. */
struct tbg_reading {
	bool believed;			/* the client's claims of scheme and host are trusted */
	bool odd_names;			/* fields with unusual names are forwarded, see forward.h */
	bool client_stale, store_cookies, heuristic;	/* see struct tbg_request_directives */
};

struct tbg_transfer {
	struct tbg_answerer answerer;	/* of c's request */
	struct tbg_worker *w;
	struct tbg_conn *c;		/* NULL: no client is waiting */
	LIST_ENTRY(tbg_transfer) link;	/* in one of the worker's lists */
	unsigned int holds;		/* number of calls that are using it */
	unsigned int upstream_conns_nr;	/* number of connections that may use its memory */
	uint8_t phase, upload, sending, delivery;	/* see phases.h */
	uint8_t serves;			/* enum tbg_serves */

	/* the request */
	char *req;			/* its head as received, in `text` */
	struct tbg_lines text;
	struct tbg_message m;		/* expect_continue: the client still waits for a 100 */
	struct tbg_slice method, target, host, fields;
	struct tbg_fields req_fields;	/* parsed lines of `fields` */
	struct tbg_slice request_id;	/* in text, or */
	char id_made[TBG_REQUEST_ID_MADE + 1];
	struct tbg_upstream *upstream;
	const struct tbg_protocol_ops *protocol;	/* that the upstream uses */
	struct tbg_reading reading;
	struct tbg_request_directives req_directives;
	struct tbg_uri uri;		/* also in text */
	struct tbg_endpoints endpoints;
	char *root;			/* of the location, as a path; NULL: none */
	char *index;			/* index file of the folder; NULL: none */
	uint64_t body_max;		/* beyond: 413 */
	enum tbg_persist persist;
	uint64_t start_ns;

	/* the cache */
	struct tbg_waiter waiter;
	uint8_t waits;			/* number of waits so far */
	struct tbg_pending_fetch *pending;	/* fetch that others may wait for; NULL: none */
	struct tbg_stored *selected;	/* stale response: to be validated, or used for an error */
	struct tbg_stored *partial;	/* stored part that the answer may complete */
	struct tbg_stored *hit;		/* being delivered */
	enum tbg_fwd fwd;
	uint16_t fwd_status;		/* 0: not yet */
	uint8_t answer_from;		/* enum tbg_answer_from */

	/* fetch.c: request out */
	struct tbg_backend *checks;	/* of SERVES_HEALTH */
	struct tbg_upstream_conn *o;
	uint32_t tried;			/* bits of backends */
	uint8_t tries;
	uint8_t asked;			/* bits of enum tbg_sent_how */
	struct tbg_lines up_head;
	struct iovec up_iov[TBG_TRANSFER_IOV];
	uint8_t up_nr;
	uint64_t body_gone;		/* body bytes sent and not kept: no retry */
	/* received bytes of the body; NULL: the body is sent as it arrives */
	struct tbg_spool *spool;
	uint64_t spool_sent;
	int up_queued;			/* unsent bytes in the server's socket at the last check */
	struct tbg_body_decoder up_decoder;
	uint64_t body_len;
	uint8_t *up_data, *up_at;	/* body bytes; from up_at on, up_left of them */
	uint32_t up_left;		/* are not consumed yet */
	struct tbg_lines up_pre, up_post;

	/* fetch.c: response in */
	struct tbg_response r;
	struct tbg_fields resp_fields;	/* its lines, in the memory of o */
	struct tbg_body_decoder decoder;
	struct tbg_fcgi_answer answer;	/* of PROTOCOL_FASTCGI: the records in decoder */
	char *sent_on;			/* internal redirect by a program, or NULL */
	uint64_t errors_len, errors_cut;	/* bytes of a program's error output, and */
	uint8_t interims;			/* of those, bytes that were not logged */
	uint8_t excess;			/* enum tbg_excess */
	uint64_t sent_ns, seq;
	uint32_t stamp_ms;		/* last progress of the upstream */
	struct tbg_byte_chain *resp_body;	/* stays while the ring may receive into it */
	struct tbg_piece *into;		/* target of the current receive */
	struct tbg_response_directives resp_directives;
	struct tbg_lines trailer;	/* fields of the trailer that are forwarded */

	/* deliver.c */
	struct tbg_lines pre, post;
	uint32_t pre_off, post_off;
	uint32_t head_at;		/* offset of the head in pre, while delivery is MADE */
	uint32_t begun_ms;
	struct tbg_byte_chain *source;	/* a reference of its own */
	struct tbg_piece *at;
	uint32_t at_off;
	uint64_t read, chunk_left;	/* bytes of source that were sent */
	uint64_t limit;			/* end in source; UINT64_MAX: at its end */
	uint8_t out_framing;		/* enum tbg_framing, of a body that is not in pre */
	uint8_t source_end;		/* enum tbg_source_end */
	bool due;			/* in the worker's list */
	STAILQ_ENTRY(tbg_transfer) due_link;
	uint16_t status;
	uint64_t body_sent;
};

/* The operations that connections use, see client/answerer.h. */
extern const struct tbg_answerer_ops tbg_transfer_answers;

/* Returns whether a stored response answered without a request to a server (RFC 9211 2.1). */
bool tbg_transfer_is_hit(const struct tbg_transfer *x);

/* Returns whether the request's body is known to be longer than allowed. */
bool tbg_transfer_exceeds(const struct tbg_transfer *x);

/* Returns whether the upstream has received all body bytes that the client has sent so far. */
bool tbg_transfer_starves(const struct tbg_transfer *x);
/* For health.c: makes a request to one server; the caller holds it. NULL: no memory. */
struct tbg_transfer *tbg_transfer_check(struct tbg_worker *w,
					const struct tbg_message *m,
					const char *head, struct tbg_backend *b);

/* Called by proxy/connection_pool.c: a connection no longer uses the transfer's memory. */
void tbg_transfer_conn_gone(struct tbg_transfer *x);

/* Checks time limits, on every tick. */
void tbg_transfers_check(struct tbg_worker *w);

/* Stops all fetches at the worker's end. */
void tbg_transfers_end(struct tbg_worker *w);

/* Frees the memory kept for reuse, after tbg_transfers_end(). */
void tbg_transfers_free(struct tbg_worker *w);

/*
 * Returns whether connections, perhaps of other workers, wait for a fetch of this
 * worker, or a program still runs after its answer was sent.
 */
bool tbg_transfers_awaited(const struct tbg_worker *w);

/* Returns whether its fetch has begun and not ended. */
static inline bool tbg_transfer_fetches(const struct tbg_transfer *x)
{
	return x->phase >= TBG_TRANSFER_CONNECT && x->phase < TBG_TRANSFER_DONE;
}

/* Returns whether a server was asked and the head of its response is incomplete. */
static inline bool tbg_transfer_asks(const struct tbg_transfer *x)
{
	return x->phase == TBG_TRANSFER_ASK || x->phase == TBG_TRANSFER_HEAD;
}

/* Returns whether the head of a response is complete and the rest is being received. */
static inline bool tbg_transfer_receives(const struct tbg_transfer *x)
{
	return x->phase >= TBG_TRANSFER_RECEIVE && x->phase < TBG_TRANSFER_DONE;
}

/* Returns whether more of the request is expected: of its body or of a tunnel. */
static inline bool tbg_transfer_uploads(const struct tbg_transfer *x)
{
	return x->upload != TBG_UPLOAD_END;
}

/* Hold x during calls that may end it. */
static inline void tbg_transfer_hold(struct tbg_transfer *x)
{
	x->holds++;
}
void tbg_transfer_release(struct tbg_transfer *x);

/*
 * The request has arrived as far as necessary: decides how to answer it. Returns the
 * next phase, for tbg_transfer_go_on().
 */
enum tbg_transfer_phase tbg_transfer_decide(struct tbg_transfer *x);
/* Enters `next`, starts its work, and continues with the phases that follow from it. */
void tbg_transfer_go_on(struct tbg_transfer *x, enum tbg_transfer_phase next);

/* Stores a response that this transfer fetched, and publishes it. Takes over the reference. */
bool tbg_transfer_store(struct tbg_transfer *x, struct tbg_stored *s);

/*
 * Returns whether a response with these directives and fields becomes a 304 for the
 * client, by the conditions that a cache evaluates (RFC 9111 4.3.2).
 */
bool tbg_transfer_not_modified(const struct tbg_transfer *x,
			       const struct tbg_response_directives *t, const char *fields,
			       size_t len);

/* Records whether the fetched answer was stored. */
static inline void tbg_transfer_answer_stored(struct tbg_transfer *x, bool stored)
{
	x->answer_from = stored ? TBG_ANSWER_STORED : TBG_ANSWER_FETCHED;
}

/* Answers with a stored response; takes over the reference. */
void tbg_transfer_stored(struct tbg_transfer *x, struct tbg_stored *s, bool hit);

/* Answers without an upstream's response: with a stale one where that is allowed. */
void tbg_transfer_failed(struct tbg_transfer *x, unsigned int status);

/* The program has ended after an internal redirect: answers x->sent_on (RFC 3875 6.2.2). */
void tbg_transfer_redirect(struct tbg_transfer *x);

/* The fetch has ended: informs the transfers that wait for it, see struct tbg_waiter. */
void tbg_transfer_pending_end(struct tbg_transfer *x, unsigned int status, bool pass);

#endif
