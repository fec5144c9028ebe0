// SPDX-License-Identifier: GPL-2.0
/*
 * Connections to servers and the pool of idle ones (userd/proxy/connection_pool.c):
 * which one a request gets, what closes one, and which ones are not reused. The ring is
 * a fake, and the test owns the other end of each connection.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_ring.h"
#include "ktap.h"
#include "proxy/connection_pool.h"
#include "proxy/fetch.h"
#include "proxy/protocol.h"
#include "proxy/transfer.h"

static struct {
	struct tbg_server s;
	struct tbg_worker w;
	struct tbg_upstream upstream;
	struct tbg_backend b[2];
	struct tbg_transfer x[4];
	struct tbg_protocol_ops protocol;
	int peer;			/* the other end of the latest connection */
	int connected, sent, received;	/* results last reported to the fetch */
	unsigned int gone, failed, withdrawn;
	char withdrawn_uri[64];
} it;

void tbg_fetch_connected(struct tbg_transfer *x, int res)
{
	it.connected = res;
}

void tbg_fetch_sent(struct tbg_transfer *x, int res)
{
	it.sent = res;
}

void tbg_fetch_received(struct tbg_transfer *x, int res)
{
	it.received = res;
}

void tbg_transfer_conn_gone(struct tbg_transfer *x)
{
	it.gone++;
}

struct tbg_upstream *tbg_upstream_get(struct tbg_upstream *u)
{
	u->refs++;
	return u;
}

void tbg_upstream_put(struct tbg_upstream *u)
{
	u->refs--;
}

void tbg_backend_failed(struct tbg_backend *b, const char *why, uint64_t now_ns)
{
	it.failed++;
}

unsigned int tbg_store_withdraw(struct tbg_store *s, const struct tbg_uri *u)
{
	it.withdrawn++;
	snprintf(it.withdrawn_uri, sizeof(it.withdrawn_uri), "%.*s", (int)u->len, u->text);
	return 1;
}

bool tbg_method_idempotent(unsigned int method)
{
	return method == TBG_METHOD_GET;
}

static void begin(void)
{
	static struct tbg_upstream_conn_pool idle[TBG_UPSTREAM_CONN_POOLS];

	memset(&it, 0, sizeof(it));
	memset(idle, 0, sizeof(idle));
	it.w.s = &it.s;
	it.w.idle = idle;
	it.w.now_ns = 100000000000ull;
	it.w.now_ms = 100000;
	STAILQ_INIT(&it.w.due_upstream_conns);
	fake_ring_open(&it.w.ring);
	it.upstream.sites = 1;
	it.upstream.settings.keep_ms = 5000;
	it.upstream.backends = it.b;
	it.upstream.nr = 2;
	for (int i = 0; i < 2; i++) {
		it.b[i] = (struct tbg_backend){ .upstream = &it.upstream, .id = i, .nr = i };
		it.b[i].address.ss_family = AF_INET;
	}
	for (int i = 0; i < 4; i++) {
		it.x[i].upstream = &it.upstream;
		it.x[i].protocol = &it.protocol;
		it.x[i].m.method = TBG_METHOD_GET;
	}
	it.connected = it.sent = it.received = 1;
}

/* Returns a connected one for x; the other end is it.peer. */
static struct tbg_upstream_conn *connection(struct tbg_transfer *x, struct tbg_backend *b)
{
	struct tbg_upstream_conn *o = tbg_upstream_conn_take(&it.w, x, b, true);
	int pair[2];

	if (!o || o->reused || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
		return NULL;
	dup2(pair[0], o->fd);
	close(pair[0]);
	it.peer = pair[1];
	fake_ring_complete(&it.w, &o->connect, 0);
	return it.connected ? NULL : o;
}

/* Completes all its operations, as for a closed descriptor. */
static void ended(struct tbg_upstream_conn *o)
{
	if (o->connect.busy)
		fake_ring_complete(&it.w, &o->connect, -ECANCELED);
	else if (o->recv.busy)
		fake_ring_complete(&it.w, &o->recv, -ECANCELED);
}

/* Closes one that is in use, and the idle ones: as at the end of a worker. */
static void finish(struct tbg_upstream_conn *used)
{
	struct tbg_upstream_conn *idle[TBG_UPSTREAM_CONNS_IDLE * 2], *o;
	unsigned int nr = 0;

	for (int i = 0; i < TBG_UPSTREAM_CONN_POOLS; i++)
		LIST_FOREACH(o, &it.w.idle[i].all, link)
			idle[nr++] = o;
	tbg_upstream_conns_end(&it.w);
	for (unsigned int i = 0; i < nr; i++)
		ended(idle[i]);
	if (used && (used->connect.busy || used->recv.busy)) {
		tbg_upstream_conn_drop(&it.w, used);
		ended(used);
	} else if (used) {
		tbg_upstream_conn_drop(&it.w, used);
	}
}

KTAP_TEST(t_a_connection_is_made_and_reported)
{
	struct tbg_upstream_conn *o;

	begin();
	o = connection(&it.x[0], &it.b[0]);
	KTAP_CHECK(o && o->connected && !o->reused);
	KTAP_EQ(fake_ring_ops(IORING_OP_CONNECT, NULL), 1);
	KTAP_EQ(it.w.upstream_conns_nr, 1);
	KTAP_EQ(it.b[0].open, 1);
	KTAP_EQ(it.upstream.refs, 1);
	tbg_upstream_conn_drop(&it.w, o);
	KTAP_EQ(it.gone, 1);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
	KTAP_EQ(it.b[0].open, 0);
	KTAP_EQ(it.upstream.refs, 0);
	close(it.peer);
}

KTAP_TEST(t_one_that_is_dropped_stays_until_its_operations_have_ended)
{
	struct tbg_upstream_conn *o;

	begin();
	o = connection(&it.x[0], &it.b[0]);
	KTAP_CHECK(o);
	tbg_upstream_conn_listen(&it.w, o);
	tbg_upstream_conn_drop(&it.w, o);
	KTAP_EQ(it.gone, 0);
	KTAP_EQ(it.w.upstream_conns_nr, 1);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, NULL), 1);
	ended(o);
	KTAP_EQ(it.received, 1);	/* nothing more is reported to the fetch */
	KTAP_EQ(it.gone, 1);
	close(it.peer);
}

/*
 * A connection from the first request to the first server, which has just been returned
 * to the pool.
 */
static struct tbg_upstream_conn *kept(void)
{
	struct tbg_upstream_conn *o = connection(&it.x[0], &it.b[0]);

	if (o)
		tbg_upstream_conn_keep(&it.w, o);
	return o;
}

KTAP_TEST(t_what_is_kept_is_used_by_the_next_request)
{
	struct tbg_upstream_conn *o, *other[3];

	begin();
	o = kept();
	KTAP_CHECK(o);
	KTAP_EQ(it.gone, 1);
	KTAP_CHECK(o->recv.busy);	/* so that its end is noticed */
	/* requests to another server, or that need a new connection, do not get it */
	other[0] = tbg_upstream_conn_take(&it.w, &it.x[1], &it.b[1], true);
	other[1] = tbg_upstream_conn_take(&it.w, &it.x[2], &it.b[0], false);
	KTAP_CHECK(other[0] != o && other[1] != o);
	KTAP_CHECK(tbg_upstream_conn_take(&it.w, &it.x[3], &it.b[0], true) == o);
	KTAP_CHECK(o->reused && !o->sent && o->x == &it.x[3]);
	other[2] = tbg_upstream_conn_take(&it.w, &it.x[0], &it.b[0], true);
	KTAP_CHECK(other[2] != o);
	for (int i = 0; i < 3; i++)
		finish(other[i]);
	finish(o);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
	close(it.peer);
}

KTAP_TEST(t_the_newest_idle_one_is_used_first)
{
	struct tbg_upstream_conn *o[2];

	begin();
	for (int i = 0; i < 2; i++) {
		o[i] = connection(&it.x[i], &it.b[0]);
		KTAP_CHECK(o[i]);
	}
	for (int i = 0; i < 2; i++)
		tbg_upstream_conn_keep(&it.w, o[i]);
	KTAP_CHECK(tbg_upstream_conn_take(&it.w, &it.x[2], &it.b[0], true) == o[1]);
	KTAP_CHECK(tbg_upstream_conn_take(&it.w, &it.x[3], &it.b[0], true) == o[0]);
	for (int i = 0; i < 2; i++)
		finish(o[i]);
}

KTAP_TEST(t_an_idle_one_that_its_server_ends_is_gone)
{
	struct tbg_upstream_conn *o;

	begin();
	o = kept();
	KTAP_CHECK(o);
	fake_ring_complete(&it.w, &o->recv, 0);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
	KTAP_EQ(it.failed, 0);
	KTAP_EQ(it.b[0].apart_ns, 0);
	close(it.peer);
}

/* Such data could follow the next request as well, and look like its answer. */
KTAP_TEST(t_what_comes_unasked_ends_it_and_keeps_requests_apart)
{
	static const char said[] = "HTTP/1.1 200 OK\r\n\r\n", over[] = "HTTP/1.1 408 Timeout\r\n\r\n";
	const struct tbg_uri u = { .text = "a/b", .len = 3, .path_off = 1 };
	struct tbg_upstream_conn *o;

	begin();
	o = kept();
	KTAP_CHECK(o);
	memcpy(o->head, over, sizeof(over));
	fake_ring_complete(&it.w, &o->recv, strlen(over));
	KTAP_EQ(it.failed, 0);		/* servers announce the end of an idle connection with it */
	close(it.peer);
	o = connection(&it.x[0], &it.b[0]);
	KTAP_CHECK(o);
	tbg_upstream_conn_stored(o, &u);
	tbg_upstream_conn_keep(&it.w, o);
	memcpy(o->head, said, sizeof(said));
	fake_ring_complete(&it.w, &o->recv, strlen(said));
	KTAP_EQ(it.failed, 1);
	KTAP_EQ(it.withdrawn, 1);
	KTAP_CHECK(!strcmp(it.withdrawn_uri, "a/b"));
	close(it.peer);
	/* for a while none is kept, then again */
	o = kept();
	KTAP_CHECK(o);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
	close(it.peer);
	it.w.now_ns += 61000000000ull;
	o = kept();
	KTAP_CHECK(o);
	KTAP_EQ(it.w.upstream_conns_nr, 1);
	finish(NULL);
	close(it.peer);
}

/* Returns how long a connection is kept idle, in ms, if its server allows keep_s seconds. */
static uint32_t kept_ms(uint32_t keep_s)
{
	struct tbg_upstream_conn *o;
	uint32_t ms = 0;

	begin();
	it.x[0].r.keep_s = keep_s;
	o = connection(&it.x[0], &it.b[0]);
	if (!o)
		return 0;
	tbg_upstream_conn_keep(&it.w, o);
	close(it.peer);
	for (; it.w.upstream_conns_nr && !o->closing && ms < 10000; ms += 100) {
		it.w.now_ms += 100;
		tbg_upstream_conns_check(&it.w);
	}
	ended(o);
	return ms;
}

KTAP_TEST(t_idle_ones_end_before_the_server_ends_them)
{
	KTAP_EQ(kept_ms(0), 5000);	/* no limit from the server: as configured */
	KTAP_EQ(kept_ms(60), 5000);
	KTAP_EQ(kept_ms(4), 3000);
	KTAP_EQ(kept_ms(1), 500);
}

KTAP_TEST(t_no_more_are_kept_than_there_is_room_for)
{
	begin();
	for (int i = 0; i < TBG_UPSTREAM_CONNS_IDLE + 2; i++) {
		struct tbg_upstream_conn *o = tbg_upstream_conn_take(&it.w, &it.x[0], &it.b[0],
								     false);

		KTAP_CHECK(o);
		fake_ring_complete(&it.w, &o->connect, 0);
		tbg_upstream_conn_keep(&it.w, o);
	}
	KTAP_EQ(it.w.upstream_conns_nr, TBG_UPSTREAM_CONNS_IDLE);
	KTAP_EQ(it.w.idle[0].nr, TBG_UPSTREAM_CONNS_IDLE);
	finish(NULL);
	KTAP_EQ(it.w.idle[0].nr, 0);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
}

KTAP_TEST(t_a_drain_ends_those_that_are_idle)
{
	struct tbg_upstream_conn *o;

	begin();
	o = kept();
	KTAP_CHECK(o);
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(!o->closing);
	it.w.draining = true;
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(o->closing);
	ended(o);
	close(it.peer);
}

KTAP_TEST(t_those_of_an_upstream_that_no_configuration_has_go)
{
	struct tbg_upstream_conn *o;

	begin();
	o = kept();
	KTAP_CHECK(o);
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(!o->closing);
	it.upstream.sites = 0;
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(o->closing);
	ended(o);
	KTAP_EQ(it.upstream.refs, 0);
	close(it.peer);
}

/* A request that must not be sent twice avoids the close of a program's server. */
KTAP_TEST(t_a_post_to_a_program_goes_by_the_oldest_that_has_rested)
{
	struct tbg_upstream_conn *o[2], *other;

	begin();
	it.protocol.runs_programs = true;
	it.x[2].m.method = it.x[3].m.method = TBG_METHOD_POST;
	for (int i = 0; i < 2; i++) {
		o[i] = connection(&it.x[i], &it.b[0]);
		KTAP_CHECK(o[i]);
	}
	for (int i = 0; i < 2; i++)
		tbg_upstream_conn_keep(&it.w, o[i]);
	it.w.now_ms += 100;
	KTAP_CHECK(tbg_upstream_conn_take(&it.w, &it.x[2], &it.b[0], true) == o[0]);
	o[1]->stamp_ms = it.w.now_ms;			/* became idle only just now */
	other = tbg_upstream_conn_take(&it.w, &it.x[3], &it.b[0], true);
	KTAP_CHECK(other && other != o[1]);
	KTAP_CHECK(o[1]->closing);
	finish(o[0]);
	finish(other);
	ended(o[1]);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
}

KTAP_TEST(t_requests_go_out_once_what_has_come_is_looked_at)
{
	struct tbg_upstream_conn *o;
	char got[8];

	begin();
	o = connection(&it.x[0], &it.b[0]);
	KTAP_CHECK(o);
	o->iov[0] = (struct iovec){ "GET", 3 };
	o->iov[1] = (struct iovec){ " /", 2 };
	tbg_upstream_conn_send(&it.w, o, 2);
	/* not marked by tbg_upstream_conns_look() yet */
	tbg_upstream_conns_due(&it.w);
	KTAP_EQ(recv(it.peer, got, sizeof(got), 0), -1);
	tbg_upstream_conns_look(&it.w);
	tbg_upstream_conns_due(&it.w);
	KTAP_EQ(recv(it.peer, got, sizeof(got), 0), 5);
	KTAP_CHECK(!memcmp(got, "GET /", 5));
	KTAP_EQ(it.sent, 5);
	KTAP_CHECK(o->sent && tbg_upstream_conn_acknowledged(o));
	/* a cancelled send is not performed */
	tbg_upstream_conn_send(&it.w, o, 1);
	KTAP_CHECK(tbg_upstream_conn_unsend(&it.w, o));
	KTAP_CHECK(!tbg_upstream_conn_unsend(&it.w, o));
	tbg_upstream_conns_look(&it.w);
	tbg_upstream_conns_due(&it.w);
	KTAP_EQ(recv(it.peer, got, sizeof(got), 0), -1);
	tbg_upstream_conn_drop(&it.w, o);
	close(it.peer);
}

KTAP_TEST(t_what_the_socket_does_not_take_is_the_ring_s_to_send)
{
	static char much[8 << 20];
	struct tbg_upstream_conn *o;

	begin();
	o = connection(&it.x[0], &it.b[0]);
	KTAP_CHECK(o);
	while (send(o->fd, much, sizeof(much), MSG_DONTWAIT) > 0)
		;
	o->iov[0] = (struct iovec){ "x", 1 };
	tbg_upstream_conn_send(&it.w, o, 1);
	tbg_upstream_conns_look(&it.w);
	tbg_upstream_conns_due(&it.w);
	KTAP_EQ(fake_ring_ops(IORING_OP_SENDMSG, NULL), 1);
	KTAP_CHECK(o->send.busy && !o->sent);
	fake_ring_complete(&it.w, &o->send, 1);
	KTAP_EQ(it.sent, 1);
	tbg_upstream_conn_drop(&it.w, o);
	close(it.peer);
}

KTAP_TEST(t_a_full_queue_of_a_unix_socket_is_tried_again)
{
	struct tbg_upstream_conn *o;

	begin();
	it.b[0].address.ss_family = AF_UNIX;
	o = tbg_upstream_conn_take(&it.w, &it.x[0], &it.b[0], true);
	KTAP_CHECK(o);
	fake_ring_complete(&it.w, &o->connect, -EAGAIN);
	KTAP_EQ(it.connected, 1);			/* nothing is reported yet */
	KTAP_EQ(fake_ring_ops(IORING_OP_CONNECT, NULL), 1);
	tbg_upstream_conn_again(&it.w, o);
	KTAP_EQ(fake_ring_ops(IORING_OP_CONNECT, NULL), 2);
	fake_ring_complete(&it.w, &o->connect, 0);
	KTAP_EQ(it.connected, 0);
	tbg_upstream_conn_drop(&it.w, o);
}

/* A FastCGI server has one process per connection: idle connections make requests wait. */
KTAP_TEST(t_one_that_starves_ends_the_idle_ones_of_its_server)
{
	struct tbg_upstream_conn *o[2];

	begin();
	for (int i = 0; i < 2; i++) {
		o[i] = connection(&it.x[i], &it.b[0]);
		KTAP_CHECK(o[i]);
	}
	tbg_upstream_conn_keep(&it.w, o[0]);
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(!o[0]->closing);
	tbg_upstream_conn_starves(&it.w, o[1]);
	tbg_upstream_conns_check(&it.w);
	KTAP_CHECK(o[0]->closing);
	tbg_upstream_conn_keep(&it.w, o[1]);		/* and no other one is kept */
	KTAP_EQ(it.w.idle[0].nr, 0);
	ended(o[0]);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
}

KTAP_TEST(t_the_end_of_a_worker_closes_all_that_are_idle)
{
	struct tbg_upstream_conn *o[2];

	begin();
	for (int i = 0; i < 2; i++) {
		o[i] = connection(&it.x[i], &it.b[i]);
		KTAP_CHECK(o[i]);
		tbg_upstream_conn_keep(&it.w, o[i]);
	}
	tbg_upstream_conns_end(&it.w);
	for (int i = 0; i < 2; i++)
		ended(o[i]);
	KTAP_EQ(it.w.upstream_conns_nr, 0);
}

KTAP_MAIN()
