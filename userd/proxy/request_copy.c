// SPDX-License-Identifier: GPL-2.0
/*
 * The copy of the request that a transfer keeps: its URI, its fields except for those
 * that must not be forwarded, and its script settings.
 */
#include <string.h>

#include "os/root.h"
#include "site/site.h"
#include "http/vary.h"
#include "proxy/transfer.h"
#include "proxy/transfer_internal.h"

/* Copies, and returns the end of the copy. */
static char *text_add(char *at, const char *b, size_t len)
{
	if (len)
		memcpy(at, b, len);
	return at + len;
}

/*
 * Makes the URI that is used for storage and forwarding; nothing else may select an
 * answer. The host is in lower case and without the scheme's default port; an empty
 * path is "/" (RFC 9110 4.2.3). A folder's index is part of the target, except for
 * programs, which receive both.
 */
static void uri_make(struct tbg_transfer *x, struct tbg_slice target)
{
	bool names = x->index && x->upstream->settings.protocol == TBG_PROTOCOL_HTTP;
	size_t index_len = names ? strlen(x->index) : 0, n = x->host.len;
	const char *mark = target.len ? memchr(target.text, '?', target.len) : NULL;
	size_t path_len = mark ? (size_t)(mark - target.text) : target.len;
	/* a folder whose name ends in a dot segment */
	bool slash = names && path_len && target.text[path_len - 1] != '/';
	const char *authority = x->host.text, *port;
	struct tbg_slice named = tbg_forward_host(&x->req_fields);
	bool https = tbg_forward_https(&x->req_fields);
	char *uri, *at;

	port = https ? ":443" : ":80";
	if (n > strlen(port) && !memcmp(authority + n - strlen(port), port, strlen(port)))
		n -= strlen(port);
	uri = at = x->text.text + x->text.len;
	for (size_t i = 0; i < n; i++)
		*at++ = tbg_lower(authority[i]);
	at = text_add(at, path_len ? target.text : "/", path_len ?: 1);
	at = text_add(at, "/", slash);
	at = text_add(at, x->index, index_len);
	at = text_add(at, mark, target.len - path_len);
	x->text.len = at - x->text.text;
	x->host = (struct tbg_slice){ uri, n };
	if (tbg_slice_same(named, x->host))
		named.len = 0;
	x->uri = (struct tbg_uri){ uri, at - uri, n, x->upstream->id, https, named };
	x->target = (struct tbg_slice){ uri + n, at - uri - n };
}

/* Returns the target in origin form (RFC 9112 3.2.1): the part after the authority; or "*". */
static struct tbg_slice origin_form(const struct tbg_message *m, struct tbg_slice t)
{
	const char *at = t.text, *end = t.text + t.len;

	if (m->asterisk)
		return TBG_SLICE("*");
	if (!t.len || *at == '/')
		return t;
	at = memchr(at, ':', t.len);
	for (at = at ? at + 3 : end; at < end && *at != '/' && *at != '?'; at++)
		;
	return (struct tbg_slice){ at, end > at ? end - at : 0 };
}

struct tbg_slice tbg_transfer_text_of(const struct tbg_transfer *x, struct tbg_text t)
{
	return (struct tbg_slice){ x->req + t.off, t.off ? t.len : 0 };
}

/* Returns whether the client offers to switch to another protocol. */
static bool upgrades(const struct tbg_transfer *x)
{
	const struct tbg_fields *fields = &x->req_fields;

	return x->upstream->settings.protocol == TBG_PROTOCOL_HTTP &&
	       x->m.method == TBG_METHOD_GET && x->m.minor &&
	       tbg_fields_have(fields, TBG_NAME_CONNECTION, TBG_SLICE("Upgrade")) &&
	       tbg_name_in(TBG_NAME_UPGRADE, fields->has) &&
	       /* this offer may be ignored */
	       !tbg_fields_have(fields, TBG_NAME_UPGRADE, TBG_SLICE("h2c"));
}

/* Takes the request id of a trusted proxy, or makes one. */
static void request_id_take(struct tbg_transfer *x)
{
	const struct tbg_field_line *f =
		tbg_fields_next(&x->req_fields, NULL, TBG_NAME_X_REQUEST_ID);

	if (x->reading.believed && f && tbg_request_id_valid(f->value)) {
		x->request_id = f->value;
		return;
	}
	tbg_request_id_make(x->id_made);
	x->request_id = (struct tbg_slice){ x->id_made, TBG_REQUEST_ID_MADE };
}

/*
 * Blanks fields that only a trusted proxy may set, if another client sent them: no
 * upstream and no program may believe them, and no Vary may select by them.
 */
static void claims_empty(struct tbg_transfer *x)
{
	const uint64_t claims = TBG_NAME_BIT(X_FORWARDED_PROTO) | TBG_NAME_BIT(X_FORWARDED_HOST);

	for (uint32_t i = 0; x->req_fields.has & claims && i < x->req_fields.nr; i++) {
		struct tbg_field_line *f = &x->req_fields.all[i];

		if (!tbg_name_in(f->id, claims))
			continue;
		memset(x->req + (f->value.text - x->req), ' ', f->value.len);
		f->value.len = 0;
	}
}

static void odd_names_drop(struct tbg_fields *f)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < f->nr; i++)
		if (f->all[i].id || !tbg_forward_odd(f->all[i].name))
			f->all[nr++] = f->all[i];
	f->nr = nr;
}

/*
 * Normalizes Accept-Encoding: responses that vary by it are stored under this form,
 * which also is the one forwarded.
 */
static void encodings_join(struct tbg_transfer *x)
{
	size_t from = x->text.len;
	struct tbg_slice one;
	uint32_t nr = 0;

	if (!tbg_name_in(TBG_NAME_ACCEPT_ENCODING, x->req_fields.has))
		return;
	if (!tbg_vary_encoding(&x->text, x->fields.text, x->fields.len)) {
		x->text.len = from;
		return;
	}
	one = (struct tbg_slice){ x->text.text + from, x->text.len - from };
	for (uint32_t i = 0; i < x->req_fields.nr; i++) {
		if (x->req_fields.all[i].id == TBG_NAME_ACCEPT_ENCODING) {
			if (!one.len)
				continue;
			x->req_fields.all[i].value = one;
			one.len = 0;
		}
		x->req_fields.all[nr++] = x->req_fields.all[i];
	}
	x->req_fields.nr = nr;
}

bool tbg_transfer_request_read(struct tbg_transfer *x)
{
	const char *line = x->req + x->m.head_off;
	const char *end = x->req + x->m.len;
	const char *lf = memchr(line, '\n', end - line);
	const char *space = memchr(line, ' ', end - line);

	x->method = (struct tbg_slice){ line, space - line };
	x->host = tbg_transfer_text_of(x, x->m.host);
	x->fields = (struct tbg_slice){ lf + 1, end - lf - 1 };
	if (tbg_fields_read(&x->req_fields, x->fields.text, x->fields.len) < 0)
		return false;
	request_id_take(x);
	if (!x->reading.believed)
		claims_empty(x);
	if (!x->reading.odd_names)
		odd_names_drop(&x->req_fields);
	encodings_join(x);
	tbg_request_directives_read(&x->req_directives, x->m.method, &x->req_fields);
	x->req_directives.client_stale = x->reading.client_stale;
	x->req_directives.store_cookies = x->reading.store_cookies;
	x->req_directives.heuristic = x->reading.heuristic;
	x->req_directives.content = x->m.chunked || x->m.content_length;
	tbg_upload_enter(x, x->req_directives.content ? TBG_UPLOAD_BODY :
			    upgrades(x) ? TBG_UPLOAD_OFFER : TBG_UPLOAD_END);
	uri_make(x, origin_form(&x->m, tbg_transfer_text_of(x, x->m.target)));
	return true;
}

bool tbg_transfer_script_read(struct tbg_transfer *x, const struct tbg_location *l)
{
	if (!tbg_protocol_needs_root(x->upstream->settings.protocol) || l->root < 0)
		return true;
	x->root = strdup(tbg_root_path(x->w->s->files.roots, l->root));
	return x->root;
}
