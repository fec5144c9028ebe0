/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of a connection call of each other: its life (connection.c), what
 * comes in (input.c), what answers it (answer.c), what goes out (output.c), time
 * limits (deadlines.c), the access record (record.c), and the kernel tiers that
 * have it in between (hand_over.c). For this folder alone.
 */
#ifndef TBG_USERD_CLIENT_INTERNAL_H
#define TBG_USERD_CLIENT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/connection.h"
#include "tiers/refusal.h"

static inline bool blocked(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->active;

	return t && (t->out || t->fd >= 0 || t->parts || t->answerer || t->aside);
}

/* NULL: none. */
static inline struct tbg_answerer *answerer_of(const struct tbg_conn *c)
{
	return c->active ? c->active->answerer : NULL;
}

/* Its time is over for now, with requests left that have come already. */
static inline bool turn_over(const struct tbg_conn *c)
{
	return c->active && c->active->turn_over;
}

/* Nothing is under way: what has come, if anything, is no request yet. */
static inline bool is_idle(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->active;

	return !t || (t->has_message && !blocked(c) && !tbg_message_begun(&t->message));
}

/* connection.c */
struct tbg_conn_active *tbg_conn_active_get(struct tbg_conn *c);
/* When it is closed, the client gets a reset, and the socket is gone. */
void tbg_conn_reset_at_close(const struct tbg_conn *c);
/* Whether sock has lost bytes of either direction. */
bool tbg_conn_is_broken(const struct tbg_worker *w, const struct tbg_conn *c);
void tbg_conn_close(struct tbg_worker *w, struct tbg_conn *c);
/* A connection in CLOSING goes when its last operation has ended. */
bool tbg_conn_is_closing(struct tbg_worker *w, struct tbg_conn *c);
/* Our side ends: the client may still be sending, and must not get a reset. */
void tbg_conn_finish(struct tbg_worker *w, struct tbg_conn *c);
/* Nothing is under way: it goes, as soon as it owes nothing. */
void tbg_conn_end(struct tbg_worker *w, struct tbg_conn *c);
/* After answers: send, or end the connection if that is what they said. */
void tbg_conn_settle(struct tbg_worker *w, struct tbg_conn *c);
/* Once all that can be eaten is: send, trim, close, or go on receiving. */
void tbg_conn_after(struct tbg_worker *w, struct tbg_conn *c);
/* An answer is out, or the next one begun. */
void tbg_conn_go_on(struct tbg_worker *w, struct tbg_conn *c);

/* record.c */
/* The client's address; NULL: unknown. Kept: a broken socket no longer knows it. */
const struct sockaddr_storage *tbg_conn_peer(struct tbg_conn *c);
void tbg_conn_log_held(struct tbg_worker *w, struct tbg_conn *c);
/* The log records the client's own request, whichever request was answered in its place. */
void tbg_conn_asked(const struct tbg_conn *c, const uint8_t **req, size_t *len);
/* Its answer is made; the next request has come by itself. */
void tbg_conn_asked_end(struct tbg_conn *c);
/* by: of the answerer, or NULL. */
void tbg_conn_log_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
			 size_t req_len, unsigned int status, uint64_t body,
			 const char *reason, const struct tbg_answerer_record *by);
/* As log_answer(), for a body that is about to be sent from a file. */
void tbg_conn_log_hold(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
		       size_t req_len, unsigned int status, uint64_t body, const char *reason);
void tbg_conn_answer_count(struct tbg_worker *w, struct tbg_conn *c, unsigned int status);
/* What an answerer's client has had, if anything, is counted, and goes to the log. */
void tbg_conn_answerer_note(struct tbg_worker *w, struct tbg_conn *c,
			    const struct tbg_answerer *a);

/* hand_over.c */
/* Its counts in sock; NULL: it is not enrolled. */
struct tbg_sock_conn *tbg_conn_sock(const struct tbg_worker *w, const struct tbg_conn *c);
/*
 * A connection that ends with its answer is never idle again: wire could take
 * a request that comes before our FIN.
 */
void tbg_conn_word_publish(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			   uint32_t written);
/* Nothing waits to be sent, perhaps: the kernel tiers may go on. */
void tbg_conn_kernel_resume(struct tbg_worker *w, struct tbg_conn *c);
/* A connection that was wire's until now, and may be wire's again. */
void tbg_conn_take_over(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Wire answers the request, if it could have answered enough before it, and has the
 * connection again. Only where nothing else is under way on it.
 */
bool tbg_conn_give_back(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, uint32_t n);

/* output.c */
/* Memory that its client holds goes back to all. */
void tbg_conn_output_drop(struct tbg_conn_active *t);
/* Sends the worker's buffer and body behind it. False: the connection broke. */
bool tbg_conn_flush(struct tbg_worker *w, struct tbg_conn *c, const void *body,
		    size_t body_len, int flags);
/*
 * A part of an object, as it lies in the cache but for Date, the tier's name
 * and the Connection line. False: the connection broke.
 */
bool tbg_conn_object_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_object *o,
			 enum tbg_part_id id, enum tbg_persist persist);
/* w->answer, to the request whose bytes are req. False: stop. */
bool tbg_conn_answer_put(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			 const uint8_t *req, size_t req_len);

/* answer.c */
enum tbg_persist tbg_conn_persist(const struct tbg_worker *w, const struct tbg_message *m);
/* Keeps the head of a request until its answer can be made. */
bool tbg_conn_head_hold(struct tbg_conn_active *t, const struct tbg_message *m, const uint8_t *b);
/* The request m, whose head is at b; its path is in w->path. */
bool tbg_conn_request_answer(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const uint8_t *b, uint32_t taken,
			     bool missed);
/* An error, and the fields that go with it. */
struct tbg_refused {
	unsigned int status, retry_s;	/* 0: no Retry-After */
	const char *reason;		/* for the log */
};

/* The same as tbg_conn_error_put(). */
bool tbg_conn_refused_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_refused *r,
			  const struct tbg_location *location, const uint8_t *b, size_t len);
/*
 * An error in place of an answer, with the page of a location; NULL: its host is
 * not known, so the page is the default site's.
 */
bool tbg_conn_error_put(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			const struct tbg_location *location, const uint8_t *b, size_t len);
/* A refusal, after which nothing of the stream can be relied on. */
bool tbg_conn_request_refuse(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			     const struct tbg_location *location, const uint8_t *b, size_t len);
/* Of a request whose path is in w->path. */
const struct tbg_location *tbg_conn_location(struct tbg_worker *w, const struct tbg_message *m,
					     const uint8_t *b);
/* Of the request whose body is coming; NULL: it is none any more, since a reload. */
const struct tbg_location *tbg_conn_location_held(struct tbg_worker *w,
						  const struct tbg_conn_active *t);
/*
 * The fast grammar on exactly one whole request, answered from the cache.
 * *ret_missed: it is not there.
 */
bool tbg_conn_fast_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
			  size_t len, bool *ret_missed);

/* refuse.c */
/* Whether lists deny its client by now; where that means a reset, it has it. */
bool tbg_conn_is_denied(struct tbg_worker *w, struct tbg_conn *c);
/* Whether the lists of what is asked for deny its client, whom those of the daemon do not. */
bool tbg_conn_is_denied_there(struct tbg_conn *c, const struct tbg_location *location);
bool tbg_conn_denied_drop(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, size_t len);
/* A connection of its client begins; false: one too many, it is refused. */
bool tbg_conn_admit(struct tbg_worker *w, struct tbg_conn *c);
/* Its head is unfinished: false, one too many of its client's. And no more. */
bool tbg_conn_head_count(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_head_uncount(struct tbg_worker *w, struct tbg_conn *c);
/* A request of its client: 0, and it counts; or ns until there may be another. */
uint64_t tbg_conn_rate_take(struct tbg_worker *w, struct tbg_conn *c);
/* Of what may be over at any time: connections, heads. */
#define TBG_ASK_AGAIN_NS 1000000000
/*
 * What --deny-answer says, in place of an answer to the len bytes at b. wait_ns: until
 * it may ask again; 0: unknown. False: stop.
 */
bool tbg_conn_client_refuse(struct tbg_worker *w, struct tbg_conn *c, enum tbg_refusal by,
			    uint64_t wait_ns, const struct tbg_location *location,
			    const uint8_t *b, size_t len);

/* input.c */
/* Whose handler answers the request, if not files; e->location: its path's. */
bool tbg_conn_handed_over(const struct tbg_worker *w, const struct tbg_message *m,
			  struct tbg_answerer_request *e);
/* Its answer comes from behind; the bytes behind its head are the answerer's. */
bool tbg_conn_answerer_begin(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const void *b,
			     const struct tbg_answerer_request *e);
bool tbg_conn_may_eat(const struct tbg_conn *c);
/* Eats what waits; its buffer may go while an answer ends the connection. */
void tbg_conn_input_eat(struct tbg_worker *w, struct tbg_conn *c);
/* A slow reader's input waits in its socket. */
bool tbg_conn_is_full(const struct tbg_conn *c);

#endif
