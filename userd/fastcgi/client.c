// SPDX-License-Identifier: GPL-2.0
/*
 * One request at a time on a connection, which the server is asked to keep:
 * multiplexing, which hardly any server does, would gain nothing over a pool.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "fastcgi/client.h"
#include "gateway/pool_command.h"
#include "fastcgi/parameters.h"
#include "fastcgi/record.h"
#include "os/clock.h"
#include "os/message.h"
#include "main/server.h"

#define ERROR_LINE 800		/* bytes; longer ones are told in parts */
#define ERRORS_MAX	(64u << 10)	/* bytes of a request's */
#define ERROR_LINES_PER_S 1000

static void stream_end(struct tbg_lines *l, uint8_t type)
{
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	tbg_fcgi_record_header(header, type, TBG_FASTCGI_ID, 0, 0);
	tbg_lines_put(l, header, sizeof(header));
}

/* The target's path as programs are told it; "/" without one. */
static struct tbg_value path_of(struct tbg_value target, char ret[TBG_TARGET_MAX + 1])
{
	int n = tbg_target_path(target.text, target.len, ret);

	return n > 0 ? (struct tbg_value){ ret, n } : TBG_VALUE("/");
}

void tbg_fastcgi_head(struct tbg_transfer *x, const struct tbg_forward *f)
{
	const struct tbg_script *s = &x->upstream->terms.script;
	const char *root = s->root ?: x->root ?: "";
	uint8_t begin[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];
	struct tbg_lines pairs = { 0 };
	char path[TBG_TARGET_MAX + 1];

	tbg_fcgi_params_put(&pairs, &(struct tbg_fcgi_params){
		.request = f, .script = s, .ends = &x->ends,
		.root = strcmp(root, "/") ? root : "", .path = path_of(f->target, path),
		.index = x->index });
	tbg_fcgi_record_begin(begin, TBG_FASTCGI_ID, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	tbg_lines_put(&x->up_head, begin, sizeof(begin));
	tbg_fcgi_record_put(&x->up_head, TBG_FCGI_RECORD_PARAMS, TBG_FASTCGI_ID, pairs.text,
			    pairs.len);
	stream_end(&x->up_head, TBG_FCGI_RECORD_PARAMS);
	if (f->framing == TBG_FRAMING_NONE || !f->length)
		stream_end(&x->up_head, TBG_FCGI_RECORD_STDIN);
	x->up_head.failed |= pairs.failed;
	tbg_lines_free(&pairs);
}

void tbg_fastcgi_body(struct tbg_lines *pre, struct tbg_lines *post, size_t len,
		      bool done)
{
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	if (len) {
		tbg_fcgi_record_header(header, TBG_FCGI_RECORD_STDIN, TBG_FASTCGI_ID, len, 0);
		tbg_lines_put(pre, header, sizeof(header));
	}
	if (done)
		stream_end(post, TBG_FCGI_RECORD_STDIN);
}

/* Bytes of the character in UTF-8 (RFC 3629) at p; 0: none, or one of C0 or C1. */
static size_t printable(const uint8_t *p, size_t len)
{
	size_t n = *p < 0xc2 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

	if (n == 1)
		return *p >= ' ' && *p < 0x7f;
	if (n > len || *p > 0xf4 || (*p == 0xc2 && p[1] < 0xa0) ||
	    (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* With nothing in it that a terminal would obey. */
void tbg_fastcgi_say(const struct tbg_transfer *x, const char *b, size_t len)
{
	const struct tbg_pool_command *o = x->upstream->order;
	const char *kind = !o ? "upstream" : o->kind == TBG_POOL_CGI ? "cgi" : "module";
	char line[ERROR_LINE];

	while (len && (b[len - 1] == '\r' || b[len - 1] == ' '))
		len--;
	memcpy(line, b, len);
	for (size_t i = 0, n; i < len; i += n ?: 1) {
		n = printable((const uint8_t *)line + i, len - i);
		if (!n)
			line[i] = '?';
	}
	if (len)
		tbg_warn("%s %s: %.*s", kind, o ? o->path : x->upstream->name, (int)len, line);
}

/*
 * Of all workers, a second: a program in a loop is not to fill the disk. What is left
 * out is told with the first line after it.
 */
static bool rate_takes(const struct tbg_transfer *x)
{
	static _Atomic uint64_t window;		/* its second, and the lines in it */
	static atomic_uint lost;
	uint64_t now = x->w->now_ns / TBG_NS_PER_S << 32, seen = atomic_load(&window);
	unsigned int nr;

	if (seen >> 32 != now >> 32)
		atomic_compare_exchange_strong(&window, &seen, now);
	if ((uint32_t)atomic_fetch_add(&window, 1) >= ERROR_LINES_PER_S) {
		atomic_fetch_add(&lost, 1);
		return false;
	}
	nr = atomic_exchange(&lost, 0);
	if (nr)
		tbg_warn("error output of programs: %u lines left out: no more than %d a second are reported",
			   nr, ERROR_LINES_PER_S);
	return true;
}

static void error_say(struct tbg_transfer *x, const char *b, size_t len)
{
	x->errors_len += len;
	if (x->errors_len > ERRORS_MAX)
		x->errors_cut += len;
	else if (rate_takes(x))
		tbg_fastcgi_say(x, b, len);
}

static void cut_say(struct tbg_transfer *x)
{
	char text[96];
	int n;

	if (!x->errors_cut)
		return;
	n = snprintf(text, sizeof(text), "%llu bytes more of error output are left out of this request's",
		     (unsigned long long)x->errors_cut);
	x->errors_cut = 0;
	tbg_fastcgi_say(x, text, n);
}

void tbg_fastcgi_errors(struct tbg_transfer *x, bool all)
{
	struct tbg_lines *l = &x->frame.errors;
	size_t at = 0;

	while (at < l->len) {
		size_t rest = l->len - at;
		size_t max = rest < ERROR_LINE ? rest : ERROR_LINE;
		const char *lf = memchr(l->text + at, '\n', max);

		if (!lf && rest < ERROR_LINE && !all)
			break;
		if (lf)
			max = lf - l->text - at;
		error_say(x, l->text + at, max);
		at += max + !!lf;
	}
	if (all)
		cut_say(x);
	if (at)
		memmove(l->text, l->text + at, l->len - at);
	l->len -= at;
}

void tbg_fastcgi_abort(struct tbg_transfer *x)
{
	const struct tbg_upstream_conn *o = x->o;
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	/* between two records, of a request that has begun and not ended */
	if (!o->connected || !o->sent || o->send.busy || x->up_nr ||
	    tbg_body_decoder_ended(&x->frame))
		return;
	tbg_fcgi_record_header(header, TBG_FCGI_RECORD_ABORT, TBG_FASTCGI_ID, 0, 0);
	send(o->fd, header, sizeof(header), MSG_DONTWAIT | MSG_NOSIGNAL);
}
