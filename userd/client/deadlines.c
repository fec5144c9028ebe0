// SPDX-License-Identifier: GPL-2.0
/*
 * Time limits of a connection, checked about once a second, and other reasons to end
 * one: memory or slots for other clients, and a draining daemon.
 */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "client/connection.h"
#include "os/limits.h"
#include "os/units.h"
#include "tiers/sock.h"
#include "tiers/wire.h"
#include "client/internal.h"

#define TBG_HITS_MS 1000	/* after this time without a hit of sock, events are looked for */

/* The client does not send the rest of a head or a body. */
static void head_timeout(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
	bool ok;

	tbg_stat_add(&w->stats.timeouts, 1);
	if (!t->in_body && (!t->has_message || !t->in_len)) {
		tbg_conn_end(w, c);
		return;
	}
	t->has_message = false;
	if (t->in_body)
		ok = tbg_conn_error_put(w, c, 408, tbg_conn_location_held(w, t), t->held,
					t->held_len);
	else
		ok = tbg_conn_error_put(w, c, 408, NULL, t->in, t->in_len);
	if (ok)
		tbg_conn_settle(w, c);
}

static uint64_t ms_ago(const struct tbg_worker *w, uint64_t ns)
{
	return ns < w->now_ns ? (w->now_ns - ns) / 1000000 : 0;
}

/*
 * Returns whether events are pending that BPF has not reported: its ring buffer was
 * full, or the kernel's worker failed during a hit.
 */
static bool has_event(const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN | POLLRDHUP };

	return !c->eof && !c->waiting && poll(&p, 1, 0) > 0;
}

/*
 * Lets an idle connection rest after sock has answered on it. While it receives, the
 * kernel wakes it for every packet, also for hits of sock. A resting one starts to
 * receive again when there is something to read. A hit under way looks like that, too,
 * so nothing is looked for while sock answers and has passed nothing.
 */
static void rest_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	struct tbg_sock_conn *s = tbg_conn_sock(w, c);

	if (!s || c->active)
		return;
	if (!c->receiving) {
		bool hits = tbg_sock_rests(s) && ms_ago(w, s->seen_ns) < TBG_HITS_MS;

		if (!hits && has_event(c))
			tbg_conn_recv_arm(w, c);
	} else if (ms_ago(w, s->seen_ns) < age_ms) {
		tbg_sock_rest(s);
		tbg_conn_recv_stop(w, c);
	}
}

/*
 * Ends an idle connection after its time limit. The daemon does not see hits of the
 * kernel tiers: a connection that looks idle may be busy, and one without a request to
 * the daemon may have had answers. age_ms: since stamp_ms.
 */
static void idle_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	uint64_t seen_ns = w->s->wire ? tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns) : 0;
	const struct tbg_options *o = &w->s->opt;
	const struct tbg_sock_conn *s = tbg_conn_sock(w, c);
	uint64_t seen_ago_ms;

	if (s && s->seen_ns > seen_ns)
		seen_ns = s->seen_ns;
	seen_ago_ms = ms_ago(w, seen_ns);
	if (seen_ns)
		c->used = true;
	if (seen_ago_ms < age_ms) {
		age_ms = seen_ago_ms;
		c->stamp_ms = w->now_ms - age_ms;
	}
	if (age_ms <= (c->used ? o->idle_ms : o->header_ms))
		return;
	tbg_stat_add(&w->stats.timeouts, 1);
	tbg_conn_end(w, c);
}

/*
 * Returns whether the client has reset the connection. Up to Linux 6.18 at least,
 * io_uring can miss a reset after a multishot receive that filled more than 32 buffers.
 */
static bool is_gone(const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}

/*
 * Returns whether the client has acknowledged bytes since the last check although no
 * send has succeeded: a full socket becomes writable only when a third of its buffer is
 * free.
 */
static bool client_takes(struct tbg_conn *c)
{
	bool ret;
	int left;

	if (ioctl(c->fd, SIOCOUTQ, &left))
		return false;
	ret = c->left_stamp_ms == c->stamp_ms && left < c->left;
	c->left = left;
	c->left_stamp_ms = c->stamp_ms;
	return ret;
}

/* Our side is shut down: closes the connection when the client has all bytes. */
static void linger_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	if (!c->eof && age_ms <= TBG_LINGER_MS)
		return;
	if (age_ms > tbg_option_now(&w->s->opt.send_ms))
		tbg_conn_kill(w, c);
	else if (client_takes(c))
		c->stamp_ms = c->left_stamp_ms = w->now_ms;
	else
		tbg_conn_end(w, c);
}

void tbg_conn_check(struct tbg_worker *w, struct tbg_conn *c)
{
	uint32_t send_ms = tbg_option_now(&w->s->opt.send_ms);
	uint32_t header_ms = tbg_option_now(&w->s->opt.header_ms);
	uint32_t age_ms = w->now_ms - c->stamp_ms;
	struct tbg_answerer *a = answerer_of(c);

	switch (c->state) {
	case TBG_CONN_LINGER:
		linger_check(w, c, age_ms);
		return;
	case TBG_CONN_OPEN:
		break;
	default:
		return;
	}
	if (tbg_conn_is_broken(w, c)) {
		tbg_conn_kill(w, c);
		return;
	}
	if (a && !a->ops->waits_client(a))
		return;			/* the answerer has its own time limits */
	if (a && c->receiving && is_gone(c)) {
		tbg_conn_kill(w, c);
		return;
	}
	if (blocked(c)) {
		bool looked = c->left_stamp_ms == c->stamp_ms;

		if (age_ms > send_ms / 2 && client_takes(c)) {
			c->stamp_ms = c->left_stamp_ms = w->now_ms;
		} else if (age_ms > send_ms && looked) {
			tbg_stat_add(&w->stats.timeouts, 1);
			if (!a || !a->ops->late(a))
				tbg_conn_kill(w, c);
		}
		return;
	}
	if (!is_idle(c)) {
		if (age_ms > header_ms)
			head_timeout(w, c);
		return;
	}
	rest_check(w, c, age_ms);
	if (age_ms > tbg_option_now(&w->s->opt.idle_ms) || (!c->used && age_ms > header_ms))
		idle_check(w, c, age_ms);
}

bool tbg_conn_holds(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && c->active && c->active->out;
}

bool tbg_conn_rests(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && is_idle(c);
}

bool tbg_conn_give_way(struct tbg_worker *w, struct tbg_conn *c, uint32_t idle_ms)
{
	uint64_t seen_ns = w->s->wire ? tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns) : 0;
	const struct tbg_sock_conn *s = tbg_conn_sock(w, c);

	if (s && s->seen_ns > seen_ns)
		seen_ns = s->seen_ns;
	if (ms_ago(w, seen_ns) < w->now_ms - c->stamp_ms)
		c->stamp_ms = w->now_ms - ms_ago(w, seen_ns);
	if (!tbg_conn_rests(c) || w->now_ms - c->stamp_ms < idle_ms)
		return false;
	tbg_stat_add(&w->stats.timeouts, 1);
	tbg_conn_end(w, c);
	return true;
}

bool tbg_conn_head_is_late(const struct tbg_worker *w, const struct tbg_conn *c, uint32_t ms)
{
	const struct tbg_conn_active *t = c->active;

	return c->state == TBG_CONN_OPEN && t && t->has_message && !t->in_body && !blocked(c) &&
	       tbg_message_begun(&t->message) && w->now_ms - c->stamp_ms >= ms;
}

void tbg_conn_head_end(struct tbg_worker *w, struct tbg_conn *c)
{
	head_timeout(w, c);
}

bool tbg_conn_same_client(struct tbg_conn *a, struct tbg_conn *b)
{
	const struct sockaddr *one = (const void *)tbg_conn_peer(a);
	const struct sockaddr *other = (const void *)tbg_conn_peer(b);
	struct tbg_prefix p, q;

	if (!one || !other || one->sa_family != other->sa_family ||
	    !tbg_prefix_of(one, &p) || !tbg_prefix_of(other, &q))
		return false;
	if (!tbg_prefix_is_v4(&p))
		p.bits = 64;
	return tbg_prefix_has(&p, &q);
}

bool tbg_conn_takes(struct tbg_worker *w, struct tbg_conn *c, uint32_t bytes, uint32_t within_ms)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	if (!c->taking_ms || info.tcpi_bytes_acked - c->taken_nr >= bytes) {
		c->taken_nr = info.tcpi_bytes_acked;
		c->taking_ms = w->now_ms ?: 1;
	}
	return w->now_ms - c->taking_ms < within_ms;
}

void tbg_conn_drain(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN)
		return;
	/* hits in progress are sent first; the last one may just be being queued */
	if (!is_idle(c) || (c->sock >= 0 && !tbg_sock_shut(tbg_conn_sock(w, c))))
		c->drained = false;
	else if (c->sock < 0 || c->drained)
		tbg_conn_finish(w, c);
	else
		c->drained = true;
}
