/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request that is answered from behind: by what is stored, by another
 * request's fetch, or by an upstream. Three files in the order of a request:
 *
 *	transfer.c	what answers, and the life of it all
 *	fetch.c		the upstream's half: request out, response in
 *	deliver.c	the client's half: response out
 *
 * Belongs to one worker. It outlives its client where others wait for its
 * fetch, and always the operations that use its memory.
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

/* Why a request goes on to the upstream (RFC 9211 2.2). */
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
	TBG_SERVES_OTHERS,		/* its client has left, and they have waited for it */
	TBG_SERVES_CACHE,		/* behind an answer that has been given */
	TBG_SERVES_HEALTH,		/* a check of the server in checks */
};

/* What the cache has to do with the answer (RFC 9211). */
enum tbg_answer_from {
	TBG_ANSWER_FETCHED,		/* nothing, or stale in place of an error */
	TBG_ANSWER_STORED,		/* it is stored, or renews what is */
	TBG_ANSWER_HIT,
	TBG_ANSWER_COLLAPSED,		/* it comes from the fetch of another request */
};

/* How a server is asked. */
enum tbg_asked {
	TBG_ASKED_NEW = 1,		/* on a new connection, none of the pool */
	TBG_ASKED_PLAIN = 2,		/* with the client's conditions alone */
	TBG_ASKED_UNCONDITIONAL = 4,	/* without the client's conditions */
	TBG_ASKED_REST = 8,		/* for what x->partial lacks, and no more */
};

/* What has come behind a response. */
enum tbg_behind {
	TBG_BEHIND_NOTHING,
	TBG_BEHIND_BYTES,
	TBG_BEHIND_RESPONSE,		/* the beginning of another one */
};

/* How far the body that is sent to a client is known. */
enum tbg_source_end {
	TBG_SOURCE_GROWS,
	TBG_SOURCE_WHOLE,
	TBG_SOURCE_ENDED,		/* and its last chunk is in pre or post */
};

struct tbg_spool;

/* How a request is read: what its location allows. */
struct tbg_reading {
	bool believed;			/* what it says of the client's scheme and host */
	bool odd_names;			/* fields of odd names are sent on, see forward.h */
	bool client_stale, store_cookies, heuristic;	/* see struct tbg_request_directives */
};

struct tbg_transfer {
	struct tbg_answerer answerer;	/* of c's request */
	struct tbg_worker *w;
	struct tbg_conn *c;		/* NULL: nobody is to be answered (now) */
	LIST_ENTRY(tbg_transfer) link;	/* in one of the worker's lists */
	unsigned int holds;		/* calls that are still using it */
	unsigned int upstream_conns_nr;	/* connections that may use its memory */
	uint8_t phase, upload, sending, delivery;	/* see phases.h */
	uint8_t serves;			/* enum tbg_serves */

	/* the request */
	char *req;			/* its head as received, in text */
	struct tbg_lines text;
	struct tbg_message m;		/* expect_continue: the client waits for a 100 yet */
	struct tbg_slice method, target, host, fields;
	struct tbg_fields req_fields;	/* the lines of fields */
	struct tbg_slice request_id;	/* in text, or */
	char id_made[TBG_REQUEST_ID_MADE + 1];
	struct tbg_upstream *upstream;
	const struct tbg_protocol_ops *protocol;	/* that it speaks */
	struct tbg_reading reading;
	struct tbg_request_directives req_directives;
	struct tbg_uri uri;		/* in text too */
	struct tbg_endpoints endpoints;
	char *root;			/* of the location, as a path; NULL: none */
	char *index;			/* stands for the folder; NULL: none */
	uint64_t body_max;		/* more: 413 */
	enum tbg_persist persist;
	uint64_t start_ns;

	/* the cache's part */
	struct tbg_waiter waiter;
	uint8_t waits;			/* so far */
	struct tbg_pending_fetch *pending;	/* NULL: nobody waits for us */
	struct tbg_stored *selected;	/* to be validated, or better than nothing */
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
	uint8_t asked;			/* bits of enum tbg_asked */
	struct tbg_lines up_head;
	struct iovec up_iov[TBG_TRANSFER_IOV];
	uint8_t up_nr;
	uint64_t body_gone;		/* bytes of the body that are sent, and not kept */
	/* the body, or as much of it as has come; NULL: it is sent as it comes */
	struct tbg_spool *spool;
	uint64_t spool_sent;
	int up_queued;			/* bytes that the kernel still held for it */
	struct tbg_body_decoder up_decoder;
	uint64_t body_len;
	uint8_t *up_data, *up_at;	/* of the body; up_left bytes of it from here */
	uint32_t up_left;		/* are not taken yet */
	struct tbg_lines up_pre, up_post;

	/* fetch.c: response in */
	struct tbg_response r;
	struct tbg_fields resp_fields;	/* its lines; they stay with o */
	struct tbg_body_decoder decoder;
	struct tbg_fcgi_answer answer;	/* of PROTOCOL_FASTCGI: what decoder decodes */
	char *sent_on;			/* where a program has us look; or NULL */
	uint64_t errors_len, errors_cut;	/* of a program's error output: bytes, and */
	uint8_t interims;			/* those of them that were not reported */
	uint8_t behind;			/* enum tbg_behind */
	uint64_t sent_ns, seq;
	uint32_t stamp_ms;		/* last progress of the upstream */
	struct tbg_byte_chain *resp_body;	/* stays while the ring may receive into it */
	struct tbg_piece *into;		/* being received into */
	struct tbg_response_directives resp_directives;
	struct tbg_lines trailer;	/* fields of it that go on */

	/* deliver.c */
	struct tbg_lines pre, post;
	uint32_t pre_off, post_off;
	uint32_t head_at;		/* in pre, while delivery is MADE */
	uint32_t begun_ms;
	struct tbg_byte_chain *source;	/* our own reference */
	struct tbg_piece *at;
	uint32_t at_off;
	uint64_t read, chunk_left;	/* bytes of source that are sent */
	uint64_t limit;			/* where it ends; UINT64_MAX: at its end */
	uint8_t out_framing;		/* enum tbg_framing, of a body that is not in pre */
	uint8_t source_end;		/* enum tbg_source_end */
	bool due;			/* in the worker's list */
	STAILQ_ENTRY(tbg_transfer) due_link;
	uint16_t status;
	uint64_t body_sent;
};

/* For connections: what answers a request from behind, see client/answerer.h. */
extern const struct tbg_answerer_ops tbg_transfer_answers;

/* The source of its answer, as the log names it. */
const char *tbg_transfer_reason(const struct tbg_transfer *x);

/* Whether what is stored has answered, and nobody was asked (RFC 9211 2.1). */
bool tbg_transfer_is_hit(const struct tbg_transfer *x);

/* Whether the request's body is longer than it may be, as far as is known yet. */
bool tbg_transfer_exceeds(const struct tbg_transfer *x);

/* Whether the upstream has all of the request's body that the client has sent so far. */
bool tbg_transfer_starves(const struct tbg_transfer *x);
/* health.c: a request of our own to one server, held. NULL: no memory. */
struct tbg_transfer *tbg_transfer_check(struct tbg_worker *w,
					const struct tbg_message *m,
					const char *head, struct tbg_backend *b);

/* proxy/connection_pool.c: a connection no longer uses the transfer's memory. */
void tbg_transfer_conn_gone(struct tbg_transfer *x);
/* Lets go of what has come, once nobody receives into it: its client may be slow. */
void tbg_transfer_resp_body_put(struct tbg_transfer *x);

/* Time limits, on every tick. */
void tbg_transfers_check(struct tbg_worker *w);

/* At the worker's end: stops all fetches. */
void tbg_transfers_end(struct tbg_worker *w);

/* Behind that: the memory that is kept for the next ones. */
void tbg_transfers_free(struct tbg_worker *w);

/*
 * Whether other connections, maybe other workers', wait for what one of them fetches, or
 * a program is at work behind the answer it has given.
 */
bool tbg_transfers_awaited(const struct tbg_worker *w);

/* Whether its fetch has begun and not ended. */
static inline bool tbg_transfer_fetches(const struct tbg_transfer *x)
{
	return x->phase >= TBG_TRANSFER_CONNECT && x->phase < TBG_TRANSFER_DONE;
}

/* Whether a server is asked, and the head of its response is not there. */
static inline bool tbg_transfer_asks(const struct tbg_transfer *x)
{
	return x->phase == TBG_TRANSFER_ASK || x->phase == TBG_TRANSFER_HEAD;
}

/* Whether the head of a response is there, and the rest of it comes. */
static inline bool tbg_transfer_receives(const struct tbg_transfer *x)
{
	return x->phase >= TBG_TRANSFER_RECEIVE && x->phase < TBG_TRANSFER_DONE;
}

/* Whether more of the request comes: of its body, or of a tunnel behind it. */
static inline bool tbg_transfer_uploads(const struct tbg_transfer *x)
{
	return x->upload != TBG_UPLOAD_END;
}

/* Around whatever may end it. */
static inline void tbg_transfer_hold(struct tbg_transfer *x)
{
	x->holds++;
}
void tbg_transfer_release(struct tbg_transfer *x);

/*
 * The request is there as far as it has to be: what answers it? The phase that follows,
 * for tbg_transfer_go_on().
 */
enum tbg_transfer_phase tbg_transfer_decide(struct tbg_transfer *x);
/* Enters the phase that the one before it has returned, and begins what that does. */
void tbg_transfer_go_on(struct tbg_transfer *x, enum tbg_transfer_phase next);

/* Stores one of its own, for the kernel tiers too; takes over the reference. */
bool tbg_transfer_store(struct tbg_transfer *x, struct tbg_stored *s);

/*
 * Whether a response of these directives and fields is a 304 to the client, by the conditions
 * that a cache evaluates (RFC 9111 4.3.2).
 */
bool tbg_transfer_not_modified(const struct tbg_transfer *x,
			       const struct tbg_response_directives *t, const char *fields,
			       size_t len);

/* Whether the answer, of its own fetch, is stored. */
static inline void tbg_transfer_answer_stored(struct tbg_transfer *x, bool stored)
{
	x->answer_from = stored ? TBG_ANSWER_STORED : TBG_ANSWER_FETCHED;
}

/* Answers with a stored response; takes over the reference. */
void tbg_transfer_stored(struct tbg_transfer *x, struct tbg_stored *s, bool hit);

/* Answers without an upstream's response: stale where that is right. */
void tbg_transfer_failed(struct tbg_transfer *x, unsigned int status);

/* The program has ended that wants x->sent_on to be answered (RFC 3875 6.2.2). */
void tbg_transfer_redirect(struct tbg_transfer *x);

/* The fetch has ended: informs the transfers that wait for it, see struct tbg_waiter. */
void tbg_transfer_pending_end(struct tbg_transfer *x, unsigned int status, bool pass);

#endif
