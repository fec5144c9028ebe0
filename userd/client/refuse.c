// SPDX-License-Identifier: GPL-2.0
/*
 * Refuses clients that a list denies or that exceed a limit. --deny-answer selects the
 * response. Each refusal is counted by its reason and logged, also if no byte is sent.
 * Called by input.c and answer.c.
 */
#include "client/clients.h"
#include "client/connection.h"
#include "client/internal.h"
#include "os/units.h"
#include "tiers/bans.h"
#include "tiers/rate.h"
#include "tiers/tcb.h"
#include "tiers/wire.h"

#define STATUS_DROPPED	444		/* logged after a reset without an answer */
#define SECOND_NS	1000000000ull

static enum tbg_deny_answer answer_of(const struct tbg_worker *w, enum tbg_refusal by)
{
	enum tbg_deny_answer ret = __atomic_load_n(&w->s->opt.deny_answer, __ATOMIC_RELAXED);

	if (ret != TBG_DENY_AUTO)
		return ret;
	return by == TBG_REFUSAL_list ? TBG_DENY_403 : TBG_DENY_429;
}

static void drop(struct tbg_worker *w, struct tbg_conn *c, enum tbg_refusal by,
		 const uint8_t *b, size_t len)
{
	w->site = w->sites->fallback;
	tbg_conn_log_answer(w, c, b, len, STATUS_DROPPED, 0, tbg_refusal_reason(by), NULL);
	tbg_conn_reset_at_close(c);
	tbg_conn_kill(w, c);
}

bool tbg_conn_client_refuse(struct tbg_worker *w, struct tbg_conn *c, enum tbg_refusal by,
			    uint64_t wait_ns, const struct tbg_location *location,
			    const uint8_t *b, size_t len)
{
	enum tbg_deny_answer answer = answer_of(w, by);
	struct tbg_refused r = {
		.status = answer == TBG_DENY_429 ? 429 : 403, .reason = tbg_refusal_reason(by),
	};

	tbg_stat_add(&w->stats.refusals[by], 1);
	if (answer == TBG_DENY_DROP) {
		drop(w, c, by, b, len);
		return false;
	}
	if (r.status == 429)
		r.retry_s = (wait_ns + SECOND_NS - 1) / SECOND_NS;
	return tbg_conn_refused_put(w, c, &r, location, b, len);
}

static bool client_address(struct tbg_conn *c, struct tbg_prefix *ret)
{
	const struct sockaddr_storage *peer = tbg_conn_peer(c);

	return peer && tbg_prefix_of((const void *)peer, ret);
}

/*
 * Returns the index of the listener of a connection to this address: an exact match, or
 * the wildcard address of its family; listen_nr: none.
 */
static unsigned int listener_of(const struct tbg_options *o, const struct sockaddr_storage *at)
{
	const struct sockaddr_in6 *own6 = (const void *)at;
	const struct sockaddr_in *own = (const void *)at;
	unsigned int ret = o->listen_nr;

	for (unsigned int i = 0; i < o->listen_nr; i++) {
		const struct sockaddr_in6 *l6 = (const void *)&o->listen[i];
		const struct sockaddr_in *l = (const void *)&o->listen[i];
		bool v6 = at->ss_family == AF_INET6;

		if (l->sin_family != at->ss_family || l->sin_port != own->sin_port)
			continue;
		if (v6 ? IN6_ARE_ADDR_EQUAL(&l6->sin6_addr, &own6->sin6_addr) :
			 l->sin_addr.s_addr == own->sin_addr.s_addr)
			return i;
		if (v6 ? IN6_IS_ADDR_UNSPECIFIED(&l6->sin6_addr) : !l->sin_addr.s_addr)
			ret = i;
	}
	return ret;
}

/*
 * Returns whether the list of its listener denies the client. If any listener has a
 * list, a connection whose listener is unknown is denied.
 */
static bool listener_denies(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_options *o = &w->s->opt;
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	struct tbg_prefix address;

	if (!o->listen_lists)
		return false;
	if (!c->listener && getsockname(c->fd, (struct sockaddr *)&at, &len))
		return true;
	if (!c->listener)
		c->listener = listener_of(o, &at) + 1;
	if (c->listener > o->listen_nr)
		return true;
	return client_address(c, &address) &&
	       tbg_client_list_denies(&o->listen_clients[c->listener - 1], &address);
}

bool tbg_conn_is_denied(struct tbg_worker *w, struct tbg_conn *c)
{
	return listener_denies(w, c) ||
	       (tbg_bans_are(w->s->bans) && tbg_bans_deny(w->s->bans, tbg_conn_peer(c)));
}

bool tbg_conn_is_denied_there(struct tbg_conn *c, const struct tbg_location *location)
{
	struct tbg_prefix address;

	return location && location->clients.nr && client_address(c, &address) &&
	       tbg_client_list_denies(&location->clients, &address);
}

bool tbg_conn_denied_drop(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, size_t len)
{
	if (answer_of(w, TBG_REFUSAL_list) != TBG_DENY_DROP || !tbg_conn_is_denied(w, c))
		return false;
	tbg_conn_client_refuse(w, c, TBG_REFUSAL_list, 0, NULL, b, len);
	return true;
}

uint64_t tbg_conn_rate_take(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_prefix address;

	if (!tbg_rates_are(w->s->rates) || !client_address(c, &address))
		return 0;
	return tbg_rates_take(w->s->rates, &address, w->now_ns);
}

bool tbg_conn_admit(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_options *o = &w->s->opt;
	unsigned int most = tbg_option_now(&o->limit_connections), nr, v4, v6;
	struct tbg_prefix p;

	if ((!most && !tbg_option_now(&o->limit_heads)) || !client_address(c, &p))
		return true;
	v4 = tbg_option_now(&o->client_v4_bits) + 128 - TBG_RATE_V4_BITS;
	v6 = tbg_option_now(&o->client_v6_bits);
	tbg_prefix_cut(&p, tbg_prefix_is_v4(&p) ? v4 : v6);
	c->client = tbg_client_join(w->s->clients, &p, &nr);
	if (!c->client || !most || nr + tbg_tcbs_crowd_of(tbg_wire_tcbs(w->s->wire), &p) <= most)
		return true;
	tbg_client_leave(w->s->clients, c->client);
	c->client = NULL;
	/* take over what the kernel tiers know of it, as before any answer of the daemon */
	tbg_conn_claim_slot(w, c);
	tbg_conn_take_over(w, c);
	c->claimed = true;
	if (tbg_conn_client_refuse(w, c, TBG_REFUSAL_connections, TBG_ASK_AGAIN_NS, NULL,
				   (const uint8_t *)"", 0))
		tbg_conn_settle(w, c);
	return false;
}

bool tbg_conn_head_count(struct tbg_worker *w, struct tbg_conn *c)
{
	unsigned int most = tbg_option_now(&w->s->opt.limit_heads);

	if (c->head_counted || !c->client || !most)
		return true;
	c->head_counted = tbg_client_head_begin(w->s->clients, c->client, most);
	return c->head_counted;
}

void tbg_conn_head_uncount(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->head_counted)
		tbg_client_head_end(w->s->clients, c->client);
	c->head_counted = false;
}
