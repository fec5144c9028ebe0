/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fakes of a client's connection and of connections to servers, for tests of the code
 * between them: data sent to either is kept as text, and the test decides what each
 * sends, and when. Also fakes of all functions of other folders that a transfer calls.
 * Include it once per test.
 */
#ifndef TBG_TESTS_UNIT_FAKE_CONNECTIONS_H
#define TBG_TESTS_UNIT_FAKE_CONNECTIONS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/publish.h"
#include "client/connection.h"
#include "serve/pages.h"
#include "ktap.h"
#include "serve/server.h"
#include "os/endpoints.h"
#include "os/message.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/transfer.h"
#include "site/site.h"
#include "site/forwarded.h"

#define UP_MAX 8		/* connections to servers in one test */

static struct {
	struct tbg_server s;
	struct tbg_worker w;
	struct tbg_site site;
	struct tbg_location location;
	struct tbg_sites sites;
	struct tbg_upstream *upstream;
	struct tbg_conn c[2];
	struct tbg_conn_active active[2];
	char sent[2][1 << 16];		/* to each client */
	size_t sent_len[2];
	size_t room;			/* free space in the clients' sockets */
	unsigned int status[2];		/* of complete answers */
	bool killed[2];
	char input[4096];		/* from the first client, after its head */
	struct tbg_upstream_conn *up;	/* the latest one */
	unsigned int up_nr;
	char asked[4096];		/* received by the latest one */
	unsigned int nr[UP_MAX];	/* the servers that were asked, in order */
	void *into;			/* target of its receive, */
	uint32_t into_len;		/* and the size of that */
	bool pooled;			/* connections are established immediately */
	unsigned int kept, dropped;
} it;

/* the client */

static unsigned int client_nr(const struct tbg_conn *c)
{
	return c - it.c;
}

ssize_t tbg_conn_write(struct tbg_worker *w, struct tbg_conn *c, struct iovec *iov, int nr,
		       size_t len, bool last, uint32_t taken)
{
	unsigned int i = client_nr(c);
	size_t n = 0;

	if (!it.room) {
		c->polling = true;
		return -EAGAIN;
	}
	for (int k = 0; k < nr; k++) {
		size_t part = iov[k].iov_len < it.room - n ? iov[k].iov_len : it.room - n;

		if (it.sent_len[i] + part < sizeof(it.sent[i]))
			memcpy(it.sent[i] + it.sent_len[i], iov[k].iov_base, part);
		it.sent_len[i] += part;
		n += part;
	}
	it.room -= n;
	return n;
}

void tbg_conn_answered(struct tbg_worker *w, struct tbg_conn *c, struct tbg_answerer *a)
{
	struct tbg_answerer_record r;

	a->ops->record(a, &r);
	it.status[client_nr(c)] = r.status;
	c->active->answerer = NULL;
}

void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_answerer *a = c->active->answerer;

	it.killed[client_nr(c)] = true;
	c->active->answerer = NULL;
	if (a)
		a->ops->abandon(a);
}

unsigned int tbg_conn_redirect(struct tbg_worker *w, struct tbg_conn *c, struct tbg_answerer *a,
			       const struct tbg_lines *head)
{
	return 500;
}

uint8_t *tbg_conn_input_take(struct tbg_conn *c, uint32_t *ret_len)
{
	uint8_t *b = *it.input ? (uint8_t *)strdup(it.input) : NULL;

	*ret_len = strlen(it.input);
	*it.input = 0;
	return b;
}

bool tbg_conn_input_back(struct tbg_conn *c, const uint8_t *b, size_t len)
{
	memcpy(it.input, b, len);
	it.input[len] = 0;
	return true;
}

void tbg_conn_input_more(struct tbg_worker *w, struct tbg_conn *c)
{
}

const struct tbg_endpoints *tbg_conn_endpoints(struct tbg_conn *c)
{
	static const struct tbg_endpoints endpoints = { .peer = "192.0.2.9", .local = "192.0.2.1" };

	return &endpoints;
}

/* the servers */

struct tbg_upstream_conn *tbg_upstream_conn_take(struct tbg_worker *w, struct tbg_transfer *x,
						 struct tbg_backend *b, bool pooled)
{
	struct tbg_upstream_conn *o = calloc(1, sizeof(*o));

	o->backend = b;
	o->x = x;
	o->fd = -1;
	o->head = calloc(1, TBG_RESPONSE_HEAD_MAX);
	o->connected = o->reused = it.pooled && pooled;
	it.up = o;
	it.nr[it.up_nr++ % UP_MAX] = b->nr;
	*it.asked = 0;
	return o;
}

void tbg_upstream_conn_send(struct tbg_worker *w, struct tbg_upstream_conn *o, unsigned int nr)
{
	size_t len = strlen(it.asked);

	for (unsigned int i = 0; i < nr; i++) {
		memcpy(it.asked + len, o->iov[i].iov_base, o->iov[i].iov_len);
		len += o->iov[i].iov_len;
	}
	it.asked[len] = 0;
	o->sent = o->send.busy = true;
}

bool tbg_upstream_conn_unsend(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	return false;
}

void tbg_upstream_conn_recv(struct tbg_worker *w, struct tbg_upstream_conn *o, void *b,
			    uint32_t len)
{
	o->recv.busy = true;
	it.into = b;
	it.into_len = len;
}

void tbg_upstream_conn_listen(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	tbg_upstream_conn_recv(w, o, o->head, TBG_RESPONSE_HEAD_MAX);
}

bool tbg_upstream_conn_acknowledged(const struct tbg_upstream_conn *o)
{
	return true;
}

static void up_end(struct tbg_upstream_conn *o)
{
	struct tbg_transfer *x = o->x;

	if (it.up == o)
		it.up = NULL;
	free(o->head);
	free(o);
	tbg_transfer_conn_gone(x);
}

void tbg_upstream_conn_keep(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	it.kept++;
	up_end(o);
}

void tbg_upstream_conn_drop(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	it.dropped++;
	up_end(o);
}

void tbg_upstream_conn_starves(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
}

void tbg_upstream_conn_again(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
}

void tbg_upstream_conn_check(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
}

void tbg_upstream_conn_stored(struct tbg_upstream_conn *o, const struct tbg_uri *u)
{
}

void tbg_upstream_conn_unsolicited(struct tbg_worker *w, struct tbg_upstream_conn *o, size_t len)
{
}

void tbg_upstream_conn_apart(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
}

/* other functions that a transfer calls */

bool tbg_mail_post(struct tbg_mailbox *b, struct tbg_mail *mail)
{
	mail->posted = true;
	TAILQ_INSERT_TAIL(&it.w.mailbox.mail, mail, link);
	return true;
}

void tbg_mail_unpost(struct tbg_mailbox *b, struct tbg_mail *mail)
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

size_t tbg_location_fields(const struct tbg_location *l, unsigned int status, const char *type,
			   char ret[TBG_FIELDS_MAX + 1])
{
	return 0;
}

const struct tbg_location *tbg_route_index(const struct tbg_server *s,
					   const struct tbg_location *l, const char *path,
					   size_t len, const char **ret_index)
{
	return NULL;
}

char *tbg_pages_read(const struct tbg_server *s, const struct tbg_location *location,
		     unsigned int status, size_t *ret_len, const char **ret_type)
{
	return NULL;
}

void tbg_publish(struct tbg_cache *cache, struct tbg_store *store, const struct tbg_site *site,
		 const struct tbg_uri *u, struct tbg_stored *one, const char *req, size_t req_len,
		 uint64_t now_ns)
{
}

const char *tbg_root_path(const struct tbg_roots *r, int root)
{
	return NULL;
}

bool tbg_trusts(const struct tbg_location *l, const char *peer)
{
	return false;
}

bool tbg_request_id_valid(struct tbg_slice id)
{
	return false;
}

void tbg_request_id_make(char ret[TBG_REQUEST_ID_MADE + 1])
{
	memset(ret, '1', TBG_REQUEST_ID_MADE);
	ret[TBG_REQUEST_ID_MADE] = 0;
}

int bpf_map_update_elem(int fd, const void *k, const void *value, __u64 flags)
{
	return -EBADF;
}

int bpf_map_delete_elem(int fd, const void *k)
{
	return -EBADF;
}

/* functions for tests */

static void begin(void)
{
	static const uint64_t key[2] = { 1, 2 };
	struct tbg_upstream_settings settings = {
		.protocol = TBG_PROTOCOL_HTTP, .connect_ms = 1000, .first_byte_ms = 2000,
		.idle_ms = 3000,
	};

	memset(&it, 0, sizeof(it));
	it.room = SIZE_MAX;
	it.upstream = tbg_upstream_new("up", "a b", &settings);
	for (unsigned int i = 0; i < 2; i++) {
		struct tbg_backend b = { .authority = "up:80" };

		tbg_upstream_add(it.upstream, &b);
	}
	if (tbg_store_open(&it.s.store, 1 << 20, key))
		abort();
	strcpy(it.s.via, "toboggan (1)");
	it.site = (struct tbg_site){ .sites = &it.sites, .locations = &it.location,
				     .locations_nr = 1 };
	it.location = (struct tbg_location){ .site = &it.site, .match = "/", .root = -1,
		.handler = TBG_HANDLER_UPSTREAM, .upstream = it.upstream, .body_max = 1 << 20,
		.body_buffer = TBG_BODY_STREAMED, .body_folder = "/tmp" };
	it.w.s = &it.s;
	it.w.sites = &it.sites;
	STAILQ_INIT(&it.w.due);
	TAILQ_INIT(&it.w.mailbox.mail);
	it.w.answerer_ops = &tbg_transfer_answers;
	it.w.now_ns = 1000000000;
	it.w.now_ms = 1000;
	memcpy(it.w.date, "Sun, 06 Nov 1994 08:49:37 GMT", TBG_DATE_LEN);
	for (unsigned int i = 0; i < 2; i++)
		it.c[i] = (struct tbg_conn){ .fd = -1, .sock = -1, .slot = -1,
					     .active = &it.active[i] };
}

static void end(void)
{
	for (unsigned int i = 0; i < 2; i++)
		if (it.active[i].answerer)
			tbg_conn_kill(&it.w, &it.c[i]);
	tbg_transfers_end(&it.w);
	tbg_deliver_due(&it.w);
	tbg_store_close(it.s.store);
	tbg_upstream_put(it.upstream);
	tbg_transfers_free(&it.w);
}

/* A client's request with this head. */
static struct tbg_transfer *ask_by(unsigned int client, const char *text)
{
	struct tbg_message m = { 0 };
	struct tbg_answerer_request r = { .location = &it.location,
					  .persist = TBG_PERSIST };

	if (tbg_message_parse(&m, (const uint8_t *)text, strlen(text), 8192, it.w.path) !=
	    TBG_PARSED_DONE)
		abort();
	r.taken = m.len;
	if (!it.w.answerer_ops->begin(&it.w, &it.c[client], &m, text, &r))
		abort();
	return (struct tbg_transfer *)it.active[client].answerer;
}

static struct tbg_transfer *ask(const char *text)
{
	return ask_by(0, text);
}

/* Sends the data that is due to clients. */
static void round_end(void)
{
	while (!TAILQ_EMPTY(&it.w.mailbox.mail)) {
		struct tbg_mail *mail = TAILQ_FIRST(&it.w.mailbox.mail);

		TAILQ_REMOVE(&it.w.mailbox.mail, mail, link);
		mail->fn(&it.w, mail);
	}
	tbg_deliver_due(&it.w);
}

static void connected(int err)
{
	it.up->connected = !err;
	tbg_fetch_connected(it.up->x, err);
	round_end();
}

/* The server accepts everything that is being sent. */
static void taken(void)
{
	size_t len = 0;

	for (unsigned int i = 0; i < it.up->x->up_nr; i++)
		len += it.up->x->up_iov[i].iov_len;
	it.up->send.busy = false;
	tbg_fetch_sent(it.up->x, len);
	round_end();
}

/* The client's socket accepts everything from now on. */
static void client_reads(struct tbg_transfer *x)
{
	it.room = SIZE_MAX;
	x->c->polling = false;
	x->answerer.ops->writable(&x->answerer);
	round_end();
}

/* The server sends text; "": it ends its stream. */
static void answers(const char *text)
{
	size_t len = strlen(text);

	if (!it.up || !it.up->recv.busy || len > it.into_len)
		abort();
	memcpy(it.into, text, len);
	it.up->recv.busy = false;
	tbg_fetch_received(it.up->x, len);
	round_end();
}

static bool client_has(unsigned int client, const char *text)
{
	it.sent[client][it.sent_len[client]] = 0;
	return strstr(it.sent[client], text);
}

#define GET "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

#endif
