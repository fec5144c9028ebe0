// SPDX-License-Identifier: GPL-2.0
/*
 * A client's connection (userd/client) on one end of a socket pair. A fake answerer
 * sends the path back; the ring and the kernel tiers are fakes, too. The test supplies
 * input and reads output.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/objects.h"
#include "core/span.h"
#include "client/connection.h"
#include "files/files.h"
#include "http/header.h"
#include "ktap.h"
#include "log/access.h"
#include "log/metrics.h"
#include "serve/pages.h"
#include "serve/server.h"
#include "site/site.h"
#include "site/forwarded.h"
#include "tiers/bans.h"
#include "tiers/rate.h"
#include "tiers/sock.h"
#include "tiers/take_back.h"
#include "tiers/tcb.h"
#include "tiers/wire.h"

static struct {
	struct tbg_server s;
	struct tbg_worker w;
	struct tbg_sites sites;
	struct tbg_site site;
	struct tbg_location location;
	struct tbg_conn c;
	int client;			/* the other end */
	bool receiving, freed;
	unsigned int asked;		/* requests answered */
	unsigned int logged;		/* status last logged */
	char path[256];			/* of the last request */
} it;

/* the ring */

void tbg_conn_recv_arm(struct tbg_worker *w, struct tbg_conn *c)
{
	it.receiving = true;
}

void tbg_conn_recv_stop(struct tbg_worker *w, struct tbg_conn *c)
{
	it.receiving = false;
}

void tbg_conn_poll(struct tbg_worker *w, struct tbg_conn *c)
{
}

void tbg_conn_wait(struct tbg_worker *w, struct tbg_conn *c)
{
}

void tbg_conn_free(struct tbg_worker *w, struct tbg_conn *c)
{
	it.freed = true;
	c->state = TBG_CONN_FREE;
}

void tbg_conn_turn_await(struct tbg_worker *w, struct tbg_conn *c)
{
	c->active->in_turns = true;
}

void tbg_conn_turn_leave(struct tbg_worker *w, struct tbg_conn_active *t)
{
	t->in_turns = false;
}

struct tbg_conn *tbg_conns_oldest(struct tbg_worker *w, const struct tbg_conn *but,
				  bool (*is)(const struct tbg_conn *c))
{
	return NULL;
}

/* the answers */

void tbg_route(const struct tbg_server *s, const struct tbg_ask *ask, struct tbg_answer *ret)
{
	it.asked++;
	snprintf(it.path, sizeof(it.path), "%.*s", (int)ask->path_len, ask->path);
	tbg_answer_error(ret, 200, ask->persist);
	ret->body = it.path;
	ret->body_len = ret->reply.length = strlen(it.path);
	ret->want.kind = TBG_WANT_NOTHING;
	if (ask->method == TBG_METHOD_HEAD)
		ret->body_len = 0;
}

void tbg_answer_error(struct tbg_answer *ret, unsigned int status, enum tbg_persist persist)
{
	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	ret->reply = (struct tbg_reply){ .status = status, .cache = TBG_CACHE_NONE,
					 .persist = persist };
}

void tbg_answer_done(struct tbg_answer *a)
{
}

bool tbg_route_takes(uint8_t method)
{
	return method == TBG_METHOD_GET || method == TBG_METHOD_HEAD;
}

bool tbg_route_hands_over(const struct tbg_location *location, const struct tbg_message *m)
{
	return false;
}

const struct tbg_location *tbg_route_index(const struct tbg_server *s,
					   const struct tbg_location *l, const char *path,
					   size_t len, const char **ret_index)
{
	return NULL;
}

void tbg_pages_error(const struct tbg_server *s, const struct tbg_location *l,
		     struct tbg_answer *ret)
{
}

const struct tbg_site *tbg_site_find(const struct tbg_sites *sites, const char *host, size_t len)
{
	return &it.site;
}

const struct tbg_location *tbg_location_find(const struct tbg_site *site, const char *path,
					     size_t len)
{
	return &it.location;
}

bool tbg_server_logs(const struct tbg_server *s)
{
	return false;
}

void tbg_server_log(const struct tbg_server *s, const struct tbg_sites *sites,
		    const struct tbg_site *site, struct tbg_log_record *r)
{
	it.logged = r->status;
}

bool tbg_bans_are(const struct tbg_bans *b)
{
	return false;
}

bool tbg_rates_are(const struct tbg_rates *r)
{
	return false;
}

/* never called here: tiers, files, tasks */

#define NEVER(type, name, ...) type name(__VA_ARGS__) { abort(); }

NEVER(struct tbg_tcbs *, tbg_wire_tcbs, struct tbg_wire *w)
NEVER(unsigned int, tbg_tcbs_crowd_of, const struct tbg_tcbs *t, const struct tbg_prefix *client)
NEVER(struct tbg_object *, tbg_route_find, const struct tbg_server *s, const struct tbg_key *key,
      uint32_t vhost, const char *path, size_t path_len, uint64_t now_ns, bool warms)
NEVER(struct tbg_object *, tbg_route_variant, const struct tbg_server *s,
      const struct tbg_key *key, struct tbg_object *o, enum tbg_encoding encoding,
      uint64_t now_ns, bool warms)
NEVER(struct tbg_aside_task *, tbg_aside_begin, struct tbg_aside *a, struct tbg_want *want,
      struct tbg_mailbox *mailbox, void (*made)(void *reader, void *arg), void *arg)
NEVER(void, tbg_aside_leave, struct tbg_aside_task *t)
NEVER(const struct tbg_made *, tbg_aside_made, const struct tbg_aside_task *t)
NEVER(void, tbg_want_free, struct tbg_want *w)
NEVER(bool, tbg_bans_deny, struct tbg_bans *b, const struct sockaddr_storage *peer)
NEVER(uint64_t, tbg_rates_take, struct tbg_rates *r, const struct tbg_prefix *p, uint64_t now_ns)
NEVER(const uint64_t *, tbg_cache_hash_key, const struct tbg_cache *c)
NEVER(void, tbg_object_put, struct tbg_object *o)
NEVER(int, tbg_conn_claim, struct tbg_wire *w, int fd)
NEVER(bool, tbg_conn_give, struct tbg_wire *w, struct tbg_taken *k, int fd, uint32_t taken,
      const uint8_t *b, uint32_t len, unsigned int answers)
NEVER(uint64_t, tbg_conn_hit_ns, struct tbg_wire *w, int fd, uint64_t now_ns)
NEVER(void, tbg_conn_release, struct tbg_wire *w, int slot)
NEVER(int, tbg_conn_take, struct tbg_wire *w, int fd, struct tbg_taken *ret)
NEVER(int, tbg_sock_claim, struct tbg_sock *s, int fd)
NEVER(struct tbg_sock_conn *, tbg_sock_conn, const struct tbg_sock *s, int slot)
NEVER(bool, tbg_sock_owes, const struct tbg_sock_conn *c)
NEVER(void, tbg_sock_release, struct tbg_sock *s, int slot)
NEVER(void, tbg_sock_reopen, struct tbg_sock_conn *c)
NEVER(void, tbg_sock_rest, struct tbg_sock_conn *c)
NEVER(bool, tbg_sock_rests, const struct tbg_sock_conn *c)
NEVER(bool, tbg_sock_shut, struct tbg_sock_conn *c)
NEVER(bool, tbg_wire_owns, const struct tbg_wire *w)
NEVER(int, tbg_take_back_bytes, const struct tbg_maps *maps, int slot, uint32_t written,
      uint8_t *out, size_t size)
NEVER(void, tbg_file_mark, int fd, struct tbg_file_version *v)
NEVER(bool, tbg_file_rewritten, const struct tbg_roots *roots, int fd,
      const struct tbg_file_version *v)
NEVER(const struct tbg_site *, tbg_forwarded_site, const struct tbg_sites *sites, const char *head,
      size_t len)

void tbg_file_version_end(struct tbg_file_version *v)
{
}

enum tbg_metric_method tbg_metric_method(const char *req, size_t len)
{
	return 0;
}

void tbg_metrics_count(struct tbg_metrics *m, uint32_t vhost, enum tbg_metric_method method,
		       unsigned int status, uint64_t body, uint64_t took_ns)
{
}

/* functions for tests */

static void begin(void)
{
	int ends[2];

	memset(&it, 0, sizeof(it));
	it.site = (struct tbg_site){ .sites = &it.sites, .locations = &it.location,
				     .locations_nr = 1 };
	it.location = (struct tbg_location){ .site = &it.site, .match = "/",
					     .body_max = 1 << 20 };
	it.s.opt.header_max = 16384;
	it.s.opt.header_ms = it.s.opt.send_ms = 10000;
	it.s.opt.idle_ms = 60000;
	it.w.s = &it.s;
	it.w.sites = &it.sites;
	it.w.out = malloc(TBG_OUT_BYTES);
	it.w.now_ns = 1000000000;
	it.w.now_ms = 1000;
	memcpy(it.w.date, "Sun, 06 Nov 1994 08:49:37 GMT", TBG_DATE_LEN);
	TAILQ_INIT(&it.w.turns);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
		abort();
	it.client = ends[1];
	tbg_conn_begin(&it.w, &it.c, ends[0]);
}

static void end(void)
{
	if (!it.freed)
		tbg_conn_kill(&it.w, &it.c);
	close(it.client);
	free(it.w.out);
}

/* The client sends text, `step` bytes at a time. */
static void sends(const char *text, size_t step)
{
	static uint8_t b[TBG_REQ_MAX + TBG_REQ_SLACK];
	size_t len = strlen(text);

	for (size_t at = 0; at < len && it.c.state == TBG_CONN_OPEN; at += step) {
		size_t n = len - at < step ? len - at : step;

		memcpy(b, text + at, n);
		tbg_conn_receive(&it.w, &it.c, b, n);
	}
}

/* Returns what the client has received so far. */
static const char *received(void)
{
	static char b[1 << 16];
	ssize_t n = recv(it.client, b, sizeof(b) - 1, MSG_DONTWAIT);

	b[n > 0 ? n : 0] = 0;
	return b;
}

#define GET "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

KTAP_TEST(t_request_in_any_pieces_is_answered_once)
{
	for (size_t step = 1; step <= sizeof(GET); step++) {
		const char *got;

		begin();
		KTAP_CHECK(it.receiving);
		sends(GET, step);
		got = received();
		KTAP_CHECK(it.asked == 1 && !strcmp(it.path, "/a"));
		KTAP_CHECK(strstr(got, "HTTP/1.1 200 OK\r\n") && strstr(got, "\r\n\r\n/a"));
		KTAP_CHECK(it.c.state == TBG_CONN_OPEN && tbg_conn_rests(&it.c));
		end();
	}
}

KTAP_TEST(t_requests_behind_each_other_are_answered_in_order)
{
	const char *got, *first, *second;

	begin();
	sends(GET "GET /b HTTP/1.1\r\nHost: h\r\n\r\n", 4096);
	got = received();
	first = strstr(got, "\r\n\r\n/a");
	second = strstr(got, "\r\n\r\n/b");
	KTAP_CHECK(it.asked == 2 && first && second && first < second);
	KTAP_EQ(it.c.answers, 2);
	end();
}

KTAP_TEST(t_malformed_head_is_a_400_and_the_last_answer)
{
	begin();
	sends("GET /a HTTP/1.1\r\nHost: h\r\nbad field\r\n\r\n" GET, 4096);
	KTAP_CHECK(!it.asked && it.c.state != TBG_CONN_OPEN);
	KTAP_CHECK(strstr(received(), "HTTP/1.1 400 ") && it.logged == 400);
	end();
}

KTAP_TEST(t_close_is_as_the_client_asks)
{
	const char *got;

	begin();
	sends("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 4096);
	got = received();
	KTAP_CHECK(strstr(got, "Connection: close\r\n") && it.c.state != TBG_CONN_OPEN);
	end();
	begin();
	sends("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 4096);
	KTAP_CHECK(strstr(received(), "keep-alive") && it.c.state == TBG_CONN_OPEN);
	end();
}

KTAP_TEST(t_client_that_ends_its_idle_connection_is_let_go)
{
	begin();
	sends(GET, 4096);
	it.c.eof = true;
	tbg_conn_eof(&it.w, &it.c);
	KTAP_CHECK(it.freed);
	end();
}

KTAP_TEST(t_head_that_does_not_end_is_given_up)
{
	begin();
	sends("GET /a HTTP/1.1\r\nHo", 4096);
	it.w.now_ms += 9000;
	it.w.now_ns += 9000 * 1000000ull;
	tbg_conn_check(&it.w, &it.c);
	KTAP_EQ(it.c.state, TBG_CONN_OPEN);
	it.w.now_ms += 2000;
	it.w.now_ns += 2000 * 1000000ull;
	tbg_conn_check(&it.w, &it.c);
	KTAP_CHECK(it.c.state != TBG_CONN_OPEN && !it.asked);
	end();
}

KTAP_MAIN()
