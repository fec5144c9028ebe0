// SPDX-License-Identifier: GPL-2.0
/*
 * {"cmd":"connections"}: lists the connections of the workers, and those of wire
 * without a socket. Each worker describes its own in its thread, one slab per message,
 * so that no worker is delayed and at most one slab is held in memory. Connections that
 * begin or end meanwhile may be missing. Runs in its own thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/connection.h"
#include "control/stream.h"
#include "os/clock.h"
#include "serve/worker.h"
#include "tiers/tcb.h"
#include "tiers/wire.h"

#define CHUNK_BYTES	65536		/* per send */
#define ROW_BYTES	512		/* limit of each half of a row's text */

struct listing {
	struct tbg_stream *stream;
	uint64_t limit, total, shown;	/* rows; no limit: UINT64_MAX */
	uint32_t now_ms;
	char *chunk;
	size_t len;
	int err;
	/* a request to a worker */
	struct tbg_mail mail;
	sem_t answered;
	unsigned int slab, rows_nr;
	bool more;
	struct tbg_conn_shown rows[TBG_SLAB_CONNS];
};

static void flush(struct listing *l)
{
	if (!l->err)
		l->err = tbg_stream_send(l->stream, l->chunk, l->len);
	l->len = 0;
}

static void end_text(const struct tbg_prefix *p, uint16_t port, char ret[TBG_PREFIX_TEXT])
{
	if (p->bits)
		tbg_prefix_end_text(p, port, ret);
	else
		snprintf(ret, TBG_PREFIX_TEXT, "unknown:%u", port);
}

static void phase_put(struct listing *l, const char *key, const char *text)
{
	if (text)
		l->len += snprintf(l->chunk + l->len, ROW_BYTES / 4, ",\"%s\":\"%s\"", key, text);
}

static void row_put(struct listing *l, const struct tbg_conn_shown *c)
{
	char peer[TBG_PREFIX_TEXT], local[TBG_PREFIX_TEXT];

	if (l->total++ >= l->limit || l->err)
		return;
	end_text(&c->peer, c->peer_port, peer);
	end_text(&c->local, c->local_port, local);
	l->len += snprintf(l->chunk + l->len, ROW_BYTES,
			   "%s{\"address\":\"%s\",\"listener\":\"%s\",\"tier\":\"%s\",\"socket\":%s,\"state\":\"%s\",\"age_s\":%.3f,\"idle_s\":%.3f,\"requests\":%u",
			   l->shown++ ? "," : "", peer, local, c->tier,
			   c->socket ? "true" : "false", c->state, c->age_ms / 1e3,
			   c->idle_ms / 1e3, c->answers);
	phase_put(l, "phase", c->phases.phase);
	phase_put(l, "upload", c->phases.upload);
	phase_put(l, "sending", c->phases.sending);
	phase_put(l, "answer", c->phases.answer);
	l->chunk[l->len++] = '}';
	if (l->len > CHUNK_BYTES - 2 * ROW_BYTES)
		flush(l);
}

/* Called in the worker's thread. */
static void on_mail(void *worker, struct tbg_mail *mail)
{
	struct listing *l = (void *)((char *)mail - offsetof(struct listing, mail));

	l->more = tbg_conns_slab_show(worker, l->slab, l->rows, &l->rows_nr);
	sem_post(&l->answered);
}

static void worker_list(struct listing *l, struct tbg_worker *w)
{
	for (l->slab = 0, l->more = true; l->more && !l->err; l->slab++) {
		if (!tbg_mail_post(&w->mailbox, &l->mail))
			return;
		while (sem_wait(&l->answered) && errno == EINTR)
			;
		for (unsigned int i = 0; i < l->rows_nr; i++)
			row_put(l, &l->rows[i]);
	}
}

static uint32_t ms_since(const struct listing *l, uint32_t then_ms)
{
	int32_t ms = l->now_ms - then_ms;

	return ms > 0 ? ms : 0;		/* negative: a segment has arrived since the start */
}

static bool own_list(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb, void *arg)
{
	static const char *const states[] = {
#define X(name, text) [TBG_TCB_##name] = text,
		TBG_TCB_LIST(X)
#undef X
	};
	struct listing *l = arg;
	struct tbg_conn_shown row = {
		.peer.bits = 128, .peer_port = ntohs(key->flow.remote_port),
		.local.bits = 128, .local_port = ntohs(key->flow.local_port),
		.tier = "wire", .state = "?", .answers = tcb->answers,
		.age_ms = ms_since(l, tcb->born_ms), .idle_ms = ms_since(l, tcb->seen_ms),
	};

	memcpy(row.peer.address, key->flow.remote, 16);
	memcpy(row.local.address, key->flow.local, 16);
	if (tcb->state < TBG_TCB_STATES)
		row.state = states[tcb->state];
	row_put(l, &row);
	return !l->err;
}

static void all_list(struct listing *l)
{
	const struct tbg_server *s = l->stream->s;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		worker_list(l, &s->workers[i]);
	l->now_ms = tbg_mono_ns() / 1000000;
	if (s->wire && !l->err)
		tbg_wire_own_each(s->wire, own_list, l);
	l->len += sprintf(l->chunk + l->len, "],\"total\":%llu}\n", (unsigned long long)l->total);
	flush(l);
}

int tbg_connections_run(struct tbg_stream *st)
{
	static const char no_memory[] =
		"{\"ok\":false,\"error\":\"connections: out of memory\"}\n";
	struct listing *l = calloc(1, sizeof(*l));
	char *chunk = malloc(CHUNK_BYTES);
	int err;

	if (l && chunk && !sem_init(&l->answered, 0, 0)) {
		l->stream = st;
		l->limit = (uint64_t)json_integer_value(json_object_get(st->req, "limit")) ?: UINT64_MAX;
		l->chunk = chunk;
		l->mail.fn = on_mail;
		l->len = sprintf(chunk, "{\"ok\":true,\"connections\":[");
		all_list(l);
		err = l->err;
		sem_destroy(&l->answered);
	} else {
		err = tbg_stream_send(st, no_memory, sizeof(no_memory) - 1);
	}
	free(chunk);
	free(l);
	return err;
}
