// SPDX-License-Identifier: GPL-2.0
/*
 * Where the program is, then what the request says, then its fields. A path is
 * canonical before it comes here: joined to a root it stays below it.
 */
#include <stdio.h>
#include <string.h>

#include "params.h"
#include "record.h"

static struct tbg_value text(const char *s)
{
	return (struct tbg_value){ s, strlen(s) };
}

/* Whether the location says that one itself. */
static bool said(const struct tbg_script *s, const char *name)
{
	size_t len = strlen(name);

	for (unsigned int i = 0; i < s->params_nr; i++)
		if (!strncmp(s->params[i], name, len) && s->params[i][len] == '=')
			return true;
	return false;
}

static void put(struct tbg_lines *ret, const struct tbg_params *p,
		const char *name, struct tbg_value v)
{
	if (!said(p->script, name))
		tbg_pair_put(ret, text(name), v);
}

static void put_number(struct tbg_lines *ret, const struct tbg_params *p,
		       const char *name, uint64_t n)
{
	char digits[TBG_DIGITS];

	put(ret, p, name, tbg_digits_make(n, digits));
}

static void put_joined(struct tbg_lines *ret, const struct tbg_params *p,
		       const char *name, struct tbg_value first, struct tbg_value then)
{
	struct tbg_lines joined = { 0 };

	tbg_lines_put(&joined, first.text, first.len);
	tbg_lines_put(&joined, then.text, then.len);
	ret->failed |= joined.failed;
	put(ret, p, name, (struct tbg_value){ joined.text, joined.len });
	tbg_lines_free(&joined);
}

/* How much of the path names the program; all of it without a split. */
static size_t script_len(const struct tbg_script *s, struct tbg_value path)
{
	size_t n = s->split ? strlen(s->split) : 0;

	if (!n)
		return path.len;
	for (size_t i = n; i <= path.len; i++)
		if (!memcmp(path.text + i - n, s->split, n) &&
		    (i == path.len || path.text[i] == '/'))
			return i;
	return path.len;
}

/* One program for all: its name below the root, or its last part. */
static const char *file_name(const char *file, const char *root)
{
	size_t n = strlen(root);

	if (!strncmp(file, root, n) && file[n] == '/')
		return file + n;
	return strrchr(file, '/') ?: file;
}

static void info_put(struct tbg_lines *ret, const struct tbg_params *p,
		     struct tbg_value info)
{
	put(ret, p, "PATH_INFO", info);
	if (info.len)
		put_joined(ret, p, "PATH_TRANSLATED", text(p->root), info);
}

static void script_put(struct tbg_lines *ret, const struct tbg_params *p)
{
	const struct tbg_script *s = p->script;
	const char *index = p->index ?: s->index;
	size_t n = script_len(s, p->path);
	struct tbg_value info = { p->path.text + n, p->path.len - n }, script;
	struct tbg_lines name = { 0 };

	put(ret, p, "DOCUMENT_ROOT", text(p->root));
	if (s->file) {
		put(ret, p, "DOCUMENT_URI", p->path);
		put(ret, p, "SCRIPT_FILENAME", text(s->file));
		put(ret, p, "SCRIPT_NAME", text(file_name(s->file, p->root)));
		info_put(ret, p, p->path);
		return;
	}
	tbg_lines_put(&name, p->path.text, n);
	if (index && n && p->path.text[n - 1] == '/')
		tbg_lines_put(&name, index, strlen(index));
	ret->failed |= name.failed;
	script = (struct tbg_value){ name.text, name.len };
	put_joined(ret, p, "DOCUMENT_URI", script, info);
	put(ret, p, "SCRIPT_NAME", script);
	put_joined(ret, p, "SCRIPT_FILENAME", text(p->root), script);
	tbg_lines_free(&name);
	info_put(ret, p, info);
}

/* The host alone; what the client calls us, or where it has reached us. */
static void server_name_put(struct tbg_lines *ret, const struct tbg_params *p)
{
	const char *local = p->ends->local;
	struct tbg_value host = p->request->host;
	size_t n = host.len;

	if (!n) {
		char address[TBG_END_TEXT + 2];

		snprintf(address, sizeof(address), strchr(local, ':') ? "[%s]" : "%s", local);
		put(ret, p, "SERVER_NAME", text(address));
		return;
	}
	while (n && host.text[n - 1] >= '0' && host.text[n - 1] <= '9')
		n--;
	if (n && host.text[n - 1] == ':')
		host.len = n - 1;
	put(ret, p, "SERVER_NAME", host);
}

static void request_put(struct tbg_lines *ret, const struct tbg_params *p)
{
	const struct tbg_forward *f = p->request;
	const char *mark = memchr(f->target.text, '?', f->target.len);
	const char *scheme = tbg_forward_scheme(f);
	struct tbg_value query = { "", 0 }, v;

	if (mark)
		query = (struct tbg_value){ mark + 1, f->target.text + f->target.len - mark - 1 };
	put(ret, p, "GATEWAY_INTERFACE", text("CGI/1.1"));
	put(ret, p, "SERVER_SOFTWARE", text("toboggan"));
	put(ret, p, "SERVER_PROTOCOL", text(f->minor ? "HTTP/1.1" : "HTTP/1.0"));
	server_name_put(ret, p);
	put(ret, p, "SERVER_ADDR", text(p->ends->local));
	put_number(ret, p, "SERVER_PORT", p->ends->local_port);
	put(ret, p, "REMOTE_ADDR", text(p->ends->peer));
	put_number(ret, p, "REMOTE_PORT", p->ends->peer_port);
	put(ret, p, "REQUEST_SCHEME", text(scheme));
	if (!strcmp(scheme, "https"))
		put(ret, p, "HTTPS", text("on"));
	put(ret, p, "REQUEST_METHOD", f->method);
	put(ret, p, "REQUEST_URI", f->target);
	put(ret, p, "QUERY_STRING", query);
	/* PHP runs nothing without it where it was built to be careful */
	put(ret, p, "REDIRECT_STATUS", text("200"));
	if (f->has_length || f->framing == TBG_FRAMING_LENGTH)
		put_number(ret, p, "CONTENT_LENGTH", f->length);
	if (tbg_field_find(f->fields, f->fields_len, "Content-Type", &v))
		put(ret, p, "CONTENT_TYPE", v);
}

#define NAME_MAX_ 200		/* bytes of a field's name; longer: no variable */

/* "Accept-Language" as HTTP_ACCEPT_LANGUAGE. False: it gets none. */
static bool variable(struct tbg_value name, char ret[NAME_MAX_ + 6])
{
	if (name.len > NAME_MAX_ || tbg_value_is(name, "Proxy") ||
	    tbg_value_is(name, "Content-Type") || tbg_value_is(name, "Host"))
		return false;
	strcpy(ret, "HTTP_");
	for (size_t i = 0; i < name.len; i++) {
		char c = name.text[i];

		if (c >= 'a' && c <= 'z')
			c -= 'a' - 'A';
		else if (c == '-')
			c = '_';
		else if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9'))
			return false;
		ret[5 + i] = c;
	}
	ret[5 + name.len] = 0;
	return true;
}

/* All values of a name, whose first line ends at `at`. */
static void field_put(struct tbg_lines *ret, const struct tbg_params *p,
		      const char *var, struct tbg_value name, struct tbg_value first,
		      size_t at)
{
	const struct tbg_forward *f = p->request;
	const char *between = tbg_value_is(name, "Cookie") ? "; " : ", ";
	struct tbg_lines joined = { 0 };
	struct tbg_value one, v;

	tbg_lines_put(&joined, first.text, first.len);
	while (tbg_field_next(f->fields, f->fields_len, &at, &one, &v)) {
		if (!tbg_value_same(one, name))
			continue;
		tbg_lines_put(&joined, between, 2);
		tbg_lines_put(&joined, v.text, v.len);
	}
	ret->failed |= joined.failed;
	put(ret, p, var, (struct tbg_value){ joined.text ?: "", joined.len });
	tbg_lines_free(&joined);
}

/* Whether a line before the one that ends at `end` has that name. */
static bool had(const struct tbg_forward *f, size_t end, struct tbg_value name)
{
	struct tbg_value one, v;
	size_t at = 0;

	while (tbg_field_next(f->fields, f->fields_len, &at, &one, &v) && at < end)
		if (tbg_value_same(one, name))
			return true;
	return false;
}

static void fields_put(struct tbg_lines *ret, const struct tbg_params *p)
{
	const struct tbg_forward *f = p->request;
	bool connection = tbg_forward_connection(f);
	struct tbg_value name, v;
	char var[NAME_MAX_ + 6];
	size_t at = 0;

	if (f->host.len)
		put(ret, p, "HTTP_HOST", f->host);
	while (tbg_field_next(f->fields, f->fields_len, &at, &name, &v))
		if (!tbg_forward_drops(f, name, connection) && variable(name, var) &&
		    !had(f, at, name))
			field_put(ret, p, var, name, v, at);
	if (f->etag.len)
		put(ret, p, "HTTP_IF_NONE_MATCH", f->etag);
	if (f->modified.len)
		put(ret, p, "HTTP_IF_MODIFIED_SINCE", f->modified);
}

void tbg_params_put(struct tbg_lines *ret, const struct tbg_params *p)
{
	const struct tbg_script *s = p->script;

	script_put(ret, p);
	request_put(ret, p);
	fields_put(ret, p);
	for (unsigned int i = 0; i < s->params_nr; i++) {
		const char *sign = strchr(s->params[i], '=');

		tbg_pair_put(ret, (struct tbg_value){ s->params[i], sign - s->params[i] },
			     text(sign + 1));
	}
}
