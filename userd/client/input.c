// SPDX-License-Identifier: GPL-2.0
/*
 * Input: parses heads and bodies in order. While the socket accepts no output, input
 * waits; more than IN_MAX is not received.
 */
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "client/connection.h"
#include "os/limits.h"
#include "tiers/sock.h"
#include "client/internal.h"

#define IN_MAX		(64 << 10)	/* received ahead for a client that reads slowly */
#define OUT_FLUSH	(TBG_OUT_BYTES - (64 << 10))
#define TURN_NS		200000		/* per turn, for requests received together */

/* Returns whether the message has a body that must be received before it is answered. */
static bool body_follows(const struct tbg_message *m)
{
	return m->chunked || m->content_length;
}

bool tbg_conn_handed_over(const struct tbg_worker *w, const struct tbg_message *m,
			  struct tbg_answerer_request *e)
{
	const struct tbg_location *other;

	if (tbg_route_hands_over(e->location, m))
		return true;
	other = tbg_route_index(w->s, e->location, w->path, m->path_len, &e->index);
	if (!other || !tbg_route_hands_over(other, m))
		return false;
	e->location = other;
	return true;
}

bool tbg_conn_answerer_begin(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const void *b,
			     const struct tbg_answerer_request *e)
{
	struct tbg_conn_active *t = tbg_conn_active_get(c);

	if (t) {
		t->begin_ns = t->begin_ns ?: w->now_ns;
		if (w->answerer_ops->begin(w, c, m, b, e))
			return c->state == TBG_CONN_OPEN;
	}
	tbg_conn_kill(w, c);
	return false;
}

static bool body_hold(struct tbg_worker *w, struct tbg_conn *c,
		      const struct tbg_message *m, const uint8_t *b,
		      uint64_t body_max)
{
	struct tbg_conn_active *t = tbg_conn_active_get(c);

	if (!tbg_conn_head_hold(t, m, b))
		return false;
	t->body_max = body_max;
	t->begin_ns = t->begin_ns ?: w->now_ns;
	t->in_body = true;
	t->body_len = t->body_taken = 0;
	tbg_body_decoder_begin_request(&t->body, m);
	return true;
}

/*
 * Sent even if the body has begun to arrive. RFC 9110 10.1.1 allows to omit it then,
 * but the answer must not depend on how the bytes are split into segments.
 */
static void continue_put(struct tbg_worker *w, struct tbg_conn *c)
{
	static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";

	memcpy(w->out + w->out_len, line, sizeof(line) - 1);
	w->out_len += sizeof(line) - 1;
	c->written += sizeof(line) - 1;
}

/*
 * Handles the whole head at b. denied: lists deny the client. Returns false if no more
 * input may be parsed.
 */
static bool head_done(struct tbg_worker *w, struct tbg_conn *c,
		      struct tbg_message *m, const uint8_t *b, bool missed, bool denied)
{
	const struct tbg_location *location = tbg_conn_location(w, m, b);
	struct tbg_answerer_request e = { .location = location, .persist = tbg_conn_persist(w, m),
				.taken = m->len };
	uint64_t wait_ns;

	if (denied || tbg_conn_is_denied_there(c, location))
		return tbg_conn_client_refuse(w, c, TBG_REFUSAL_list, 0, location, b, m->len);
	wait_ns = tbg_conn_rate_take(w, c);
	if (wait_ns)
		return tbg_conn_client_refuse(w, c, TBG_REFUSAL_requests, wait_ns, location, b,
					      m->len);
	if (tbg_conn_handed_over(w, m, &e))
		return m->raw_target ? tbg_conn_request_refuse(w, c, 400, location, b, m->len) :
				       tbg_conn_answerer_begin(w, c, m, b, &e);
	if (!body_follows(m))
		return tbg_conn_request_answer(w, c, m, b, m->len, missed);
	if (m->content_length > location->body_max)
		return tbg_conn_request_refuse(w, c, 413, location, b, m->len);
	if (m->expect_other || (m->expect_continue && !tbg_route_takes(m->method))) {
		m->close = true;	/* the client may never send its body */
		return tbg_conn_request_answer(w, c, m, b, m->len, missed);
	}
	if (m->expect_continue)
		continue_put(w, c);
	if (body_hold(w, c, m, b, location->body_max))
		return true;
	tbg_conn_kill(w, c);
	return false;
}

/* Consumes *ret_used bytes of a body. Returns false if no more input may be parsed. */
static bool body_eat(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
		     size_t len, size_t *ret_used)
{
	struct tbg_conn_active *t = c->active;
	struct tbg_message m = { 0 };
	size_t content;
	enum tbg_parsed p = tbg_body_decoder_skip(&t->body, b, len, ret_used, &content);
	uint8_t *held;
	uint32_t taken;
	bool ok;

	c->stamp_ms = w->now_ms;
	t->body_taken += *ret_used;
	t->body_len += content;
	if (p == TBG_PARSED_BAD)
		return tbg_conn_request_refuse(w, c, 400, tbg_conn_location_held(w, t), t->held,
					       t->held_len);
	if (tbg_body_exceeds(t->body_len, tbg_body_decoder_comes(&t->body), t->body_max))
		return tbg_conn_request_refuse(w, c, 413, tbg_conn_location_held(w, t), t->held,
					       t->held_len);
	if (p == TBG_PARSED_MORE)
		return true;
	t->in_body = false;
	held = t->held;
	taken = t->held_len + t->body_taken;
	t->held = NULL;
	/* the head was accepted, but a reload may have lowered the limit since */
	p = tbg_message_parse(&m, held, t->held_len, t->held_len + 1, w->path);
	ok = p == TBG_PARSED_DONE ? tbg_conn_request_answer(w, c, &m, held, taken, false) :
				    tbg_conn_request_refuse(w, c, 400, NULL, held, t->held_len);
	free(held);
	return ok;
}

/*
 * Parses one head, or the part that has been received. Returns false if no more input
 * may be parsed now.
 */
static bool head_eat(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
		     size_t len, bool missed, bool denied, size_t *ret_used)
{
	struct tbg_conn_active *t = c->active;
	bool resumed = t && t->has_message;
	bool begun = resumed && tbg_message_begun(&t->message);
	struct tbg_message m = { 0 };
	enum tbg_parsed p;
	uint64_t wait_ns;

	*ret_used = 0;
	if (resumed)
		m = t->message;
	if (resumed && !begun)
		t->begin_ns = w->now_ns;
	p = tbg_message_parse(&m, b, len, tbg_option_now(&w->s->opt.header_max), w->path);
	if (p == TBG_PARSED_DONE && resumed) {
		/*
		 * w->path belongs to whichever connection was parsed last. Parse again
		 * to set it, with the limits of a reload.
		 */
		m = (struct tbg_message){ 0 };
		p = tbg_message_parse(&m, b, len, tbg_option_now(&w->s->opt.header_max), w->path);
	}
	if (p == TBG_PARSED_MORE) {
		t = tbg_conn_active_get(c);
		if (!t) {
			tbg_conn_kill(w, c);
			return false;
		}
		if (!begun) {
			c->stamp_ms = w->now_ms;
			t->begin_ns = w->now_ns;
		}
		if (tbg_message_begun(&m) && !tbg_conn_head_count(w, c)) {
			t->has_message = false;
			*ret_used = len;
			return tbg_conn_client_refuse(w, c, TBG_REFUSAL_heads, TBG_ASK_AGAIN_NS,
						      NULL, b, len);
		}
		t->message = m;
		t->has_message = true;
		return false;
	}
	tbg_conn_head_uncount(w, c);
	if (t)
		t->has_message = false;
	if (p == TBG_PARSED_BAD) {
		*ret_used = len;
		wait_ns = denied ? 0 : tbg_conn_rate_take(w, c);
		if (wait_ns)
			return tbg_conn_client_refuse(w, c, TBG_REFUSAL_requests, wait_ns, NULL,
						      b, len);
		return tbg_conn_request_refuse(w, c, m.status, NULL, b, len);
	}
	*ret_used = m.len;
	return head_done(w, c, &m, b, missed, denied);
}

bool tbg_conn_may_eat(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && !blocked(c) && !turn_over(c) &&
	       !(c->active && c->active->close_after);
}

/*
 * Returns whether the turn ends after a request. Its time starts at the first call,
 * after the first request, which alone may have taken as long.
 */
static bool turn_ends(struct tbg_worker *w, struct tbg_conn *c, uint64_t *until_ns)
{
	uint64_t now_ns = tbg_mono_ns();
	struct tbg_conn_active *t;

	if (!*until_ns)
		*until_ns = now_ns + TURN_NS;
	if (now_ns < *until_ns)
		return false;
	t = tbg_conn_active_get(c);
	if (t)
		t->turn_over = true;
	else
		tbg_conn_kill(w, c);
	return true;
}

/*
 * Answers the requests in len bytes and returns the number of bytes consumed. fast:
 * TBG_REQ_SLACK bytes after them are readable, as the fast grammar requires.
 */
static size_t conn_eat(struct tbg_worker *w, struct tbg_conn *c,
		       const uint8_t *b, size_t len, bool fast)
{
	bool denied = tbg_conn_is_denied(w, c);
	uint64_t until_ns = 0;
	size_t at = 0, used;

	while (at < len && tbg_conn_may_eat(c)) {
		struct tbg_conn_active *t = c->active;
		bool missed = false;

		if (at && turn_ends(w, c, &until_ns))
			break;
		if (w->out_len > OUT_FLUSH) {
			if (!tbg_conn_flush(w, c, NULL, 0, 0))
				break;
			continue;
		}
		if (t && t->in_body) {
			if (!body_eat(w, c, b + at, len - at, &used))
				break;
			at += used;
			continue;
		}
		if (fast && !(t && t->has_message) && !w->draining && !denied &&
		    tbg_conn_fast_answer(w, c, b + at, len - at, &missed)) {
			at = len;
			break;
		}
		if (!head_eat(w, c, b + at, len - at, missed, denied, &used)) {
			at += used;
			break;
		}
		at += used;
	}
	return at;
}

/* Appends to the input that waits to be parsed. */
static bool in_add(struct tbg_conn *c, const uint8_t *b, size_t len)
{
	struct tbg_conn_active *t = tbg_conn_active_get(c);

	if (!t)
		return false;
	if (t->in_len + len > t->in_room) {
		size_t room = t->in_len + len + 1024;
		uint8_t *in = realloc(t->in, room);

		if (!in)
			return false;
		t->in = in;
		t->in_room = room;
	}
	memcpy(t->in + t->in_len, b, len);
	t->in_len += len;
	return true;
}

void tbg_conn_input_eat(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
	uint8_t *in = t->in;
	uint32_t len = t->in_len, room = t->in_room;
	size_t used;

	t->in = NULL;
	t->in_len = t->in_room = 0;
	used = conn_eat(w, c, in, len, false);
	t = c->active;
	if (used < len && c->state == TBG_CONN_OPEN && t && !t->close_after) {
		memmove(in, in + used, len - used);
		t->in = in;
		t->in_len = len - used;
		t->in_room = room;
	} else {
		free(in);
	}
}

bool tbg_conn_is_full(const struct tbg_conn *c)
{
	uint32_t most = tbg_output_tight() ? IN_MAX / 8 : IN_MAX;

	return c->active && c->active->in_len > most && (blocked(c) || turn_over(c));
}

void tbg_conn_recv(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = tbg_conn_sock(w, c);

	if (c->state == TBG_CONN_OPEN && !c->receiving && !c->eof && !c->waiting &&
	    !tbg_conn_is_full(c) && !(s && tbg_sock_rests(s)))
		tbg_conn_recv_arm(w, c);
}

uint8_t *tbg_conn_input_take(struct tbg_conn *c, uint32_t *ret_len)
{
	struct tbg_conn_active *t = c->active;
	uint8_t *in = t->in_len ? t->in : NULL;

	if (!in)
		return NULL;
	*ret_len = t->in_len;
	t->in = NULL;
	t->in_len = t->in_room = 0;
	return in;
}

bool tbg_conn_input_back(struct tbg_conn *c, const uint8_t *b, size_t len)
{
	struct tbg_conn_active *t = c->active;

	if (!len || !in_add(c, b, len))
		return !len;
	memmove(t->in + len, t->in, t->in_len - len);	/* these bytes came first */
	memcpy(t->in, b, len);
	return true;
}

void tbg_conn_input_more(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state == TBG_CONN_OPEN && !c->receiving && !c->eof)
		tbg_conn_recv_arm(w, c);
}

void tbg_conn_receive(struct tbg_worker *w, struct tbg_conn *c,
		      const uint8_t *b, uint32_t n)
{
	struct tbg_conn_active *t = c->active;
	size_t used;

	if (c->state != TBG_CONN_OPEN) {
		tbg_conn_is_closing(w, c);
		return;
	}
	if (tbg_conn_denied_drop(w, c, b, n))
		return;
	tbg_conn_claim_slot(w, c);
	tbg_conn_take_over(w, c);
	if (c->claimed && tbg_conn_give_back(w, c, b, n))
		return;
	c->claimed = true;	/* it had no flow at its first request, so it never gets one */
	if (t && (t->in_len || !tbg_conn_may_eat(c))) {
		if (t->answerer)
			c->stamp_ms = w->now_ms;
		if (!in_add(c, b, n))
			tbg_conn_kill(w, c);
		else if (tbg_conn_may_eat(c))
			tbg_conn_input_eat(w, c);
	} else {
		used = conn_eat(w, c, b, n, true);
		if (used < n && c->state == TBG_CONN_OPEN &&
		    !(c->active && c->active->close_after) &&
		    !in_add(c, b + used, n - used))
			tbg_conn_kill(w, c);
	}
	tbg_conn_after(w, c);
}

/*
 * Returns whether the end of input is reported too early. With sock, the kernel reports
 * it as soon as nothing is readable, even if data is still queued after hits in
 * progress.
 */
static bool eof_is_early(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = tbg_conn_sock(w, c);

	return s && c->state == TBG_CONN_OPEN && !tbg_conn_is_broken(w, c) &&
	       tbg_sock_owes(s);
}

void tbg_conn_again(struct tbg_worker *w, struct tbg_conn *c)
{
	if (!tbg_conn_is_closing(w, c) && !c->receiving && !c->eof)
		tbg_conn_recv_arm(w, c);
}

void tbg_conn_eof(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_answerer *a;

	if (eof_is_early(w, c)) {
		tbg_conn_wait(w, c);
		return;
	}
	c->eof = true;
	if (tbg_conn_is_closing(w, c))
		return;
	if (c->state == TBG_CONN_OPEN && (blocked(c) || turn_over(c))) {
		c->stamp_ms = w->now_ms;
		a = answerer_of(c);
		if (a)
			a->ops->input(a);
		return;		/* a half-closed client still gets its answers */
	}
	tbg_conn_end(w, c);
}
