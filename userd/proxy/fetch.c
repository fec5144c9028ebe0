// SPDX-License-Identifier: GPL-2.0
/*
 * Sends one request to an upstream, on one connection after another until one answers.
 * A request is repeated only if no byte of an answer was received, and if it was not
 * sent, was refused (FCGI_OVERLOADED), or is idempotent. The repetition goes to another
 * server, or, after a pooled connection that the server may have just closed, to the
 * same one on a new connection. A server that timed out is not retried.
 *
 * Received bytes are not copied: the head is received into the connection's buffer, the
 * body into the pieces that are sent to the client and stored. A body that is not
 * stored is received only as fast as the client accepts it.
 */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "os/message.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/program_errors.h"
#include "proxy/health.h"
#include "proxy/fetch_internal.h"

#define MISSED_MS	1000		/* without an event, until the socket is checked */
#define EXPECT_MS	300		/* for a 100 from the upstream */
#define STARVE_MS	100		/* for a process to accept a connection */

void tbg_fetch_conn_end(struct tbg_transfer *x, bool keep)
{
	struct tbg_upstream_conn *o = x->o;

	if (!o)
		return;
	tbg_program_errors(x, true);
	if (!keep)
		x->protocol->abandon(x);
	x->o = NULL;
	x->into = NULL;
	assert(atomic_load(&o->backend->active) > 0);
	atomic_fetch_sub(&o->backend->active, 1);
	if (keep)
		tbg_upstream_conn_keep(x->w, o);
	else
		tbg_upstream_conn_drop(x->w, o);
}

enum tbg_transfer_phase tbg_fetch_end(struct tbg_transfer *x, unsigned int status, bool pass)
{
	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_LAND, x, status);
	tbg_transfer_pending_end(x, status, pass);
	return TBG_TRANSFER_DONE;
}

enum tbg_transfer_phase tbg_fetch_give_up(struct tbg_transfer *x)
{
	tbg_fetch_conn_end(x, false);
	return tbg_fetch_end(x, 0, false);
}

void tbg_fetch_stop(struct tbg_transfer *x)
{
	if (tbg_transfer_fetches(x))
		tbg_transfer_go_on(x, tbg_fetch_give_up(x));
}

enum tbg_transfer_phase tbg_fetch_fail(struct tbg_transfer *x, unsigned int status)
{
	enum tbg_transfer_phase next;

	if (!tbg_transfer_fetches(x))
		return x->phase;
	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_FAIL, x, status);
	tbg_debug("upstream %s: %.*s %.*s: %u after %llu ms, %u attempts; it %s; of the request, %s, %s; of the answer, %s",
		  x->upstream->name, (int)x->method.len, x->method.text, (int)x->target.len,
		  x->target.text, status,
		  (unsigned long long)(x->w->now_ns - x->start_ns) / 1000000, x->tries,
		  tbg_transfer_phase_text(x->phase), tbg_upload_phase_text(x->upload),
		  tbg_sending_phase_text(x->sending), tbg_delivery_phase_text(x->delivery));
	tbg_fetch_conn_end(x, false);
	next = tbg_fetch_end(x, status, false);
	if (x->hit)			/* the client is being answered from there */
		return next;
	if (x->checks)
		tbg_health_found(x, 0);
	else if (x->delivery && !tbg_deliver_retract(x))
		tbg_deliver_break(x);
	else
		tbg_transfer_failed(x, status);
	return next;
}

/* Returns NULL if all have been asked. */
static struct tbg_backend *server_choose(struct tbg_transfer *x)
{
	struct tbg_upstream *u = x->upstream;

	if (x->checks)
		return x->tries++ ? NULL : x->checks;
	return x->tries++ <= u->nr ? tbg_upstream_choose(u, x->tried, x->w->now_ns) : NULL;
}

/* x->o is a connection to b, or will be when connect() has ended. */
static enum tbg_transfer_phase server_taken(struct tbg_transfer *x, struct tbg_backend *b)
{
	x->upstream_conns_nr++;
	x->stamp_ms = x->w->now_ms;
	atomic_fetch_add(&b->active, 1);
	atomic_fetch_add_explicit(&b->requests, 1, memory_order_relaxed);
	/* a module has two workers: its next connection may reach the other one */
	if (!x->o->reused && (x->asked & TBG_SENT_NEW || !tbg_upstream_module(x->upstream)))
		x->tried |= 1u << b->nr;
	return x->o->connected ? TBG_TRANSFER_ASK : TBG_TRANSFER_CONNECT;
}

/* In phase CONNECT: asks the next server. status: the answer if there is none. */
static enum tbg_transfer_phase server_take(struct tbg_transfer *x, unsigned int status)
{
	struct tbg_backend *b;

	while ((b = server_choose(x))) {
		x->o = tbg_upstream_conn_take(x->w, x, b, !(x->asked & TBG_SENT_NEW) &&
							  x->upload != TBG_UPLOAD_OFFER);
		if (x->o)
			return server_taken(x, b);
		status = 503;
		if (errno != EAFNOSUPPORT)
			break;
		/* the next address of this family would fail, too */
		x->tried |= 1u << b->nr;
		tbg_backend_failed(b, strerror(EAFNOSUPPORT), x->w->now_ns);
		status = 502;
	}
	if (b && x->checks) {		/* a lack of resources here is not the server's failure */
		x->checks->checking = false;
		return tbg_fetch_end(x, status, false);
	}
	return tbg_fetch_fail(x, status);
}

enum tbg_transfer_phase tbg_fetch_try_next(struct tbg_transfer *x, unsigned int status)
{
	if (x->phase != TBG_TRANSFER_CONNECT)
		tbg_transfer_enter(x, TBG_TRANSFER_CONNECT);
	return server_take(x, status);
}

enum tbg_transfer_phase tbg_fetch_begin(struct tbg_transfer *x)
{
	struct tbg_message *m = &x->m;

	tbg_transfer_enter(x, TBG_TRANSFER_CONNECT);
	m->expect_continue &= tbg_transfer_uploads(x);
	tbg_body_decoder_end(&x->up_decoder);
	if (x->upload == TBG_UPLOAD_OFFER)
		tbg_body_decoder_begin(&x->up_decoder, TBG_FRAMING_CLOSE, 0);
	else
		tbg_body_decoder_begin_request(&x->up_decoder, m);
	if (m->expect_continue && x->protocol->runs_programs)
		tbg_fetch_send_continue(x);	/* programs have no interim responses */
	return tbg_fetch_try_next(x, 502);
}

static void backend_failed(struct tbg_transfer *x, const char *why)
{
	tbg_backend_failed(x->o->backend, why, x->w->now_ns);
}

void tbg_fetch_answer_bad(struct tbg_transfer *x, const char *why)
{
	backend_failed(x, why);
	if (x->upstream->command)
		tbg_program_log(x, why, strlen(why));
}

/* Returns the phase after CONNECT. */
static enum tbg_transfer_phase connected(struct tbg_transfer *x, int err)
{
	if (!err)
		return TBG_TRANSFER_ASK;
	backend_failed(x, strerror(-err));
	tbg_fetch_conn_end(x, false);
	return server_take(x, 502);
}

void tbg_fetch_connected(struct tbg_transfer *x, int err)
{
	tbg_transfer_hold(x);
	tbg_transfer_go_on(x, connected(x, err));
	tbg_transfer_release(x);
}

/* Returns whether the request may be sent again. Cancels a pending send. */
static bool may_repeat(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;

	return x->phase < TBG_TRANSFER_HEAD && !x->interims && !x->body_gone &&
	       (!o->send.busy || tbg_upstream_conn_unsend(x->w, o)) &&
	       (!o->sent || x->answer.refused || tbg_method_idempotent(x->m.method));
}

/* Asks the next server, or ends with that status. */
static enum tbg_transfer_phase repeat(struct tbg_transfer *x, unsigned int status)
{
	x->up_nr = 0;
	x->asked |= TBG_SENT_NEW;
	tbg_fetch_conn_end(x, false);
	return tbg_fetch_try_next(x, status);
}

enum tbg_transfer_phase tbg_fetch_head_died(struct tbg_transfer *x)
{
	bool again = may_repeat(x);

	if (!again || !x->o->reused)
		backend_failed(x, "ended the connection before its answer");
	return again ? repeat(x, 502) : tbg_fetch_fail(x, 502);
}

static void expect_check(struct tbg_transfer *x)
{
	if (!x->m.expect_continue || !x->c || x->sending == TBG_SENDING_HEAD ||
	    x->w->now_ms - x->stamp_ms < EXPECT_MS)
		return;
	tbg_fetch_send_continue(x);
}

/*
 * A server that is still reading the request from the socket is working: its time limit
 * for an answer begins when it has all of it.
 */
static void taking_check(struct tbg_transfer *x)
{
	int queued;

	if (!tbg_transfer_asks(x) || ioctl(x->o->fd, SIOCOUTQ, &queued))
		return;
	if (queued < x->up_queued)
		x->stamp_ms = x->w->now_ms;
	x->up_queued = queued;
}

/* Returns the time limit of the current phase. */
static uint32_t limit_of(const struct tbg_transfer *x)
{
	const struct tbg_upstream_settings *settings = &x->upstream->settings;
	uint32_t limit_ms = settings->idle_ms;

	if (x->phase == TBG_TRANSFER_CONNECT)
		limit_ms = settings->connect_ms;
	else if (tbg_transfer_asks(x))
		limit_ms = settings->first_byte_ms;
	if (x->checks && limit_ms > tbg_health_limit_ms(x->upstream))
		limit_ms = tbg_health_limit_ms(x->upstream);
	return limit_ms;
}

static const char *late_text(const struct tbg_transfer *x)
{
	switch (x->phase) {
	case TBG_TRANSFER_CONNECT:
		return "no connection in time";
	case TBG_TRANSFER_ASK:
	case TBG_TRANSFER_HEAD:
		return "no answer in time";
	default:
		return "its body does not go on";
	}
}

/* Checks the time limits. Returns the next phase. */
static enum tbg_transfer_phase checked(struct tbg_transfer *x)
{
	uint32_t age_ms;

	taking_check(x);
	age_ms = x->w->now_ms - x->stamp_ms;
	expect_check(x);
	if (!tbg_transfer_fetches(x) || !x->o)
		return x->phase;
	if (x->delivery == TBG_DELIVERY_MADE)	/* held back too long, see held() */
		tbg_deliver_push(x);
	if (x->protocol->runs_programs && x->phase < TBG_TRANSFER_HEAD && age_ms > STARVE_MS)
		tbg_upstream_conn_starves(x->w, x->o);
	if (age_ms >= MISSED_MS)
		tbg_upstream_conn_check(x->w, x->o);
	if (x->phase == TBG_TRANSFER_PAUSE || age_ms <= limit_of(x)) {
		tbg_upstream_conn_again(x->w, x->o);
		return x->phase;
	}
	/* a client that sends its body slowly has its own time limits */
	if (tbg_transfer_starves(x))
		return x->phase;
	/*
	 * A tunnel may be silent, a server may wait for the rest of a body, and a
	 * program may run on after its complete answer: no failure of the server.
	 */
	if (!tbg_transfer_receives(x) ||
	    (x->r.status != 101 && tbg_fetch_has_body(x) && (!tbg_transfer_uploads(x) || x->up_nr)))
		backend_failed(x, late_text(x));
	/* it timed out: do not ask it again on any connection */
	x->tried |= 1u << x->o->backend->nr;
	if (x->phase == TBG_TRANSFER_CONNECT ||
	    (tbg_transfer_asks(x) && may_repeat(x)))
		return repeat(x, 504);
	return tbg_fetch_fail(x, 504);
}

void tbg_fetch_check(struct tbg_transfer *x)
{
	if (tbg_transfer_fetches(x) && x->o)
		tbg_transfer_go_on(x, checked(x));
}
