/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that the files of this folder share: the life of a connection
 * (connection.c), input (input.c), its answer (answer.c), output (output.c), time
 * limits (deadlines.c), the access record (record.c), and the exchange with the kernel
 * tiers (hand_over.c). Not to be included elsewhere.
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

/* Returns NULL if it has none. */
static inline struct tbg_answerer *answerer_of(const struct tbg_conn *c)
{
	return c->active ? c->active->answerer : NULL;
}

/* Its turn is over although requests have already been received. */
static inline bool turn_over(const struct tbg_conn *c)
{
	return c->active && c->active->turn_over;
}

/* Nothing is in progress: bytes received so far, if any, do not begin a request. */
static inline bool is_idle(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->active;

	return !t || (t->has_message && !blocked(c) && !tbg_message_begun(&t->message));
}

/* connection.c */
struct tbg_conn_active *tbg_conn_active_get(struct tbg_conn *c);
/* Makes the close send a reset and free the socket immediately. */
void tbg_conn_reset_at_close(const struct tbg_conn *c);
/* Returns whether sock has lost bytes of either direction. */
bool tbg_conn_is_broken(const struct tbg_worker *w, const struct tbg_conn *c);
void tbg_conn_close(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Frees a connection in CLOSING after its last operation has ended. False: it is in
 * another state.
 */
bool tbg_conn_is_closing(struct tbg_worker *w, struct tbg_conn *c);
/* Shuts our side down. The client may still be sending and must not get a reset. */
void tbg_conn_finish(struct tbg_worker *w, struct tbg_conn *c);
/* Nothing is in progress: closes the connection as soon as nothing is left to send. */
void tbg_conn_end(struct tbg_worker *w, struct tbg_conn *c);
/* After answers: sends them, and ends the connection if one of them has Connection: close. */
void tbg_conn_settle(struct tbg_worker *w, struct tbg_conn *c);
/* After all possible input is parsed: sends, frees memory, closes, or continues to receive. */
void tbg_conn_after(struct tbg_worker *w, struct tbg_conn *c);
/* An answer has been sent, or the next one has begun. */
void tbg_conn_go_on(struct tbg_worker *w, struct tbg_conn *c);

/* record.c */
/*
 * Returns the client's address; NULL: unknown. It is kept, because a broken socket no
 * longer knows it.
 */
const struct sockaddr_storage *tbg_conn_peer(struct tbg_conn *c);
void tbg_conn_log_held(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Sets *req to the client's own request if a program has redirected it: the log records
 * that one.
 */
void tbg_conn_original(const struct tbg_conn *c, const uint8_t **req, size_t *len);
/* The request is answered: forgets the original one. */
void tbg_conn_original_end(struct tbg_conn *c);
/* by: the answerer's facts, or NULL. */
void tbg_conn_log_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
			 size_t req_len, unsigned int status, uint64_t body,
			 const char *reason, const struct tbg_answerer_record *by);
/* As tbg_conn_log_answer(), for a body that will be sent from a file. */
void tbg_conn_log_hold(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
		       size_t req_len, unsigned int status, uint64_t body, const char *reason);
void tbg_conn_answer_count(struct tbg_worker *w, struct tbg_conn *c, unsigned int status);
/* Counts and logs what an answerer has sent to its client, if anything. */
void tbg_conn_answerer_note(struct tbg_worker *w, struct tbg_conn *c,
			    const struct tbg_answerer *a);

/* hand_over.c */
/* Returns its state in sock; NULL: sock does not have it. */
struct tbg_sock_conn *tbg_conn_sock(const struct tbg_worker *w, const struct tbg_conn *c);
/*
 * Publishes nothing for a connection that ends with its answer: it must not look idle,
 * or wire could take a request that arrives before our FIN.
 */
void tbg_conn_word_publish(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			   uint32_t written);
/* Lets the kernel tiers continue if nothing waits to be sent. */
void tbg_conn_kernel_resume(struct tbg_worker *w, struct tbg_conn *c);
/* Takes the state of a connection that wire has just handed over and may get back. */
void tbg_conn_take_over(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Gives the connection back to wire, which answers this request, if wire could have
 * answered enough requests before it. Only while nothing else is in progress on the
 * connection.
 */
bool tbg_conn_give_back(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, uint32_t n);

/* output.c */
/* Frees unsent output and returns it to the shared budget. */
void tbg_conn_output_drop(struct tbg_conn_active *t);
/* Sends the worker's buffer, then body. Returns false if the connection broke. */
bool tbg_conn_flush(struct tbg_worker *w, struct tbg_conn *c, const void *body,
		    size_t body_len, int flags);
/*
 * Sends a part of an object as it is in the cache, except for Date, the tier's name and
 * the Connection line. Returns false if the connection broke.
 */
bool tbg_conn_object_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_object *o,
			 enum tbg_part_id id, enum tbg_persist persist);
/* Sends w->answer to the request at req. Returns false if no more input may be parsed. */
bool tbg_conn_answer_put(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			 const uint8_t *req, size_t req_len);

/* answer.c */
enum tbg_persist tbg_conn_persist(const struct tbg_worker *w, const struct tbg_message *m);
/* Keeps the head of a request until it can be answered. */
bool tbg_conn_head_hold(struct tbg_conn_active *t, const struct tbg_message *m, const uint8_t *b);
/* Answers the request m, whose head is at b and whose path is in w->path. */
bool tbg_conn_request_answer(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const uint8_t *b, uint32_t taken,
			     bool missed);
/* A refusal and the fields that depend on it. */
struct tbg_refused {
	unsigned int status, retry_s;	/* 0: no Retry-After */
	const char *reason;		/* for the log */
};

/* As tbg_conn_error_put(). */
bool tbg_conn_refused_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_refused *r,
			  const struct tbg_location *location, const uint8_t *b, size_t len);
/*
 * Sends an error with the page of a location. NULL: the host is not known, so the
 * default site's page is used.
 */
bool tbg_conn_error_put(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			const struct tbg_location *location, const uint8_t *b, size_t len);
/* Refuses a request and closes: the position of the next request in the stream is unknown. */
bool tbg_conn_request_refuse(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			     const struct tbg_location *location, const uint8_t *b, size_t len);
/* Returns the location of a request whose path is in w->path. */
const struct tbg_location *tbg_conn_location(struct tbg_worker *w, const struct tbg_message *m,
					     const uint8_t *b);
/*
 * Returns the location of the request whose body is being received; NULL: it has none
 * any more, after a reload.
 */
const struct tbg_location *tbg_conn_location_held(struct tbg_worker *w,
						  const struct tbg_conn_active *t);
/*
 * Answers exactly one whole request in the fast grammar from the cache. *ret_missed:
 * the cache does not have it.
 */
bool tbg_conn_fast_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
			  size_t len, bool *ret_missed);

/* refuse.c */
/* Returns whether a list denies its client by now. */
bool tbg_conn_is_denied(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Returns whether the lists of the location deny its client. Those of the daemon and
 * its listener are not checked.
 */
bool tbg_conn_is_denied_there(struct tbg_conn *c, const struct tbg_location *location);
bool tbg_conn_denied_drop(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, size_t len);
/* Counts a new connection. False: its client has too many, it is refused. */
bool tbg_conn_admit(struct tbg_worker *w, struct tbg_conn *c);
/* Counts an unfinished head (false: its client has too many), and no longer counts it. */
bool tbg_conn_head_count(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_head_uncount(struct tbg_worker *w, struct tbg_conn *c);
/*
 * Counts a request of its client and returns 0, or returns the ns until one is allowed
 * again.
 */
uint64_t tbg_conn_rate_take(struct tbg_worker *w, struct tbg_conn *c);
/* Retry-After for limits on connections and heads, which may end at any time. */
#define TBG_ASK_AGAIN_NS 1000000000
/*
 * Refuses the len bytes at b as --deny-answer requires. wait_ns: until the client may ask
 * again; 0: unknown. Returns false if no more input may be parsed.
 */
bool tbg_conn_client_refuse(struct tbg_worker *w, struct tbg_conn *c, enum tbg_refusal by,
			    uint64_t wait_ns, const struct tbg_location *location,
			    const uint8_t *b, size_t len);

/* input.c */
/*
 * Returns whether a handler other than files answers the request. e->location: that of
 * its path; may be changed to that of an index.
 */
bool tbg_conn_handed_over(const struct tbg_worker *w, const struct tbg_message *m,
			  struct tbg_answerer_request *e);
/* Starts the answerer of a request. The bytes after its head belong to the answerer. */
bool tbg_conn_answerer_begin(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const void *b,
			     const struct tbg_answerer_request *e);
bool tbg_conn_may_eat(const struct tbg_conn *c);
/* Parses the buffered input. The buffer may be freed if an answer ends the connection. */
void tbg_conn_input_eat(struct tbg_worker *w, struct tbg_conn *c);
/* The client reads slowly and sends much: further input stays in the socket. */
bool tbg_conn_is_full(const struct tbg_conn *c);

#endif
