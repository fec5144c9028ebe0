// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the variables of the program, then those of the request, then its fields. Paths
 * are canonical, so a path joined to a root stays below it.
 */
#include <stdio.h>
#include <string.h>

#include "fastcgi/parameters.h"
#include "fastcgi/record.h"

static struct tbg_slice text(const char *s)
{
	return (struct tbg_slice){ s, strlen(s) };
}

/* Returns whether the location sets this variable itself. */
static bool is_set(const struct tbg_script *s, const char *name)
{
	size_t len = strlen(name);

	for (unsigned int i = 0; i < s->params_nr; i++)
		if (!strncmp(s->params[i], name, len) && s->params[i][len] == '=')
			return true;
	return false;
}

static void put(struct tbg_lines *ret, const struct tbg_fcgi_params *p,
		const char *name, struct tbg_slice v)
{
	if (!is_set(p->script, name))
		tbg_pair_put(ret, text(name), v);
}

static void put_number(struct tbg_lines *ret, const struct tbg_fcgi_params *p,
		       const char *name, uint64_t n)
{
	char digits[TBG_DIGITS];

	put(ret, p, name, tbg_digits_make(n, digits));
}

static void put_joined(struct tbg_lines *ret, const struct tbg_fcgi_params *p,
		       const char *name, struct tbg_slice first, struct tbg_slice then)
{
	struct tbg_lines joined = { 0 };

	tbg_lines_put(&joined, first.text, first.len);
	tbg_lines_put(&joined, then.text, then.len);
	ret->failed |= joined.failed;
	put(ret, p, name, (struct tbg_slice){ joined.text, joined.len });
	tbg_lines_free(&joined);
}

/*
 * Returns the length of the part of the path that names the program; without `split`,
 * all of it.
 */
static size_t script_len(const struct tbg_script *s, struct tbg_slice path)
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

/* Returns the name of a single program for all paths: below the root, or its last component. */
static const char *file_name(const char *file, const char *root)
{
	size_t n = strlen(root);

	if (!strncmp(file, root, n) && file[n] == '/')
		return file + n;
	return strrchr(file, '/') ?: file;
}

static void info_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p,
		     struct tbg_slice info)
{
	put(ret, p, "PATH_INFO", info);
	if (info.len)
		put_joined(ret, p, "PATH_TRANSLATED", text(p->root), info);
}

static void script_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p)
{
	const struct tbg_script *s = p->script;
	const char *index = p->index ?: s->index;
	size_t n = script_len(s, p->path);
	struct tbg_slice info = { p->path.text + n, p->path.len - n }, script;
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
	script = (struct tbg_slice){ name.text, name.len };
	put_joined(ret, p, "DOCUMENT_URI", script, info);
	put(ret, p, "SCRIPT_NAME", script);
	put_joined(ret, p, "SCRIPT_FILENAME", text(p->root), script);
	tbg_lines_free(&name);
	info_put(ret, p, info);
}

/* Sets SERVER_NAME without port: the requested host, or the local address. */
static void server_name_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p)
{
	const char *local = p->endpoints->local;
	struct tbg_slice host = p->request->host;
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

static void request_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p)
{
	const struct tbg_forward *f = p->request;
	const char *mark = memchr(f->target.text, '?', f->target.len);
	bool https = tbg_forward_https(f->fields);
	struct tbg_slice query = { "", 0 };
	const struct tbg_field_line *type;

	if (mark)
		query = (struct tbg_slice){ mark + 1, f->target.text + f->target.len - mark - 1 };
	put(ret, p, "GATEWAY_INTERFACE", text("CGI/1.1"));
	put(ret, p, "SERVER_SOFTWARE", text("toboggan"));
	put(ret, p, "SERVER_PROTOCOL", text(f->minor ? "HTTP/1.1" : "HTTP/1.0"));
	server_name_put(ret, p);
	put(ret, p, "SERVER_ADDR", text(p->endpoints->local));
	put_number(ret, p, "SERVER_PORT", p->endpoints->local_port);
	put(ret, p, "REMOTE_ADDR", text(p->endpoints->peer));
	/* RFC 3875 4.1.9: the address, if the name is not looked up */
	put(ret, p, "REMOTE_HOST", text(p->endpoints->peer));
	put_number(ret, p, "REMOTE_PORT", p->endpoints->peer_port);
	put(ret, p, "REQUEST_SCHEME", text(https ? "https" : "http"));
	if (https)
		put(ret, p, "HTTPS", text("on"));
	put(ret, p, "REQUEST_METHOD", f->method);
	put(ret, p, "REQUEST_URI", f->target);
	put(ret, p, "QUERY_STRING", query);
	/* required by PHP if built with force-redirect */
	put(ret, p, "REDIRECT_STATUS", text("200"));
	if (f->has_length || f->framing == TBG_FRAMING_LENGTH)
		put_number(ret, p, "CONTENT_LENGTH", f->length);
	type = tbg_fields_next(f->fields, NULL, TBG_NAME_CONTENT_TYPE);
	if (type)
		put(ret, p, "CONTENT_TYPE", type->value);
}

#define NAME_MAX_ 200		/* limit of a field's name; longer ones get no variable */

/*
 * Converts "Accept-Language" to HTTP_ACCEPT_LANGUAGE. Returns false if the field gets
 * no variable.
 */
static bool variable(const struct tbg_field_line *f, char ret[NAME_MAX_ + 6])
{
	struct tbg_slice name = f->name;

	if (name.len > NAME_MAX_ || tbg_name_in(f->id, TBG_NAME_BIT(PROXY) |
						TBG_NAME_BIT(CONTENT_TYPE) | TBG_NAME_BIT(HOST)))
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

/* Returns whether two lines have the same name. */
static bool same_name(const struct tbg_field_line *a, const struct tbg_field_line *b)
{
	return a->id == b->id && (a->id || tbg_slice_same(a->name, b->name));
}

/* Adds all values of a name, starting at its first line. */
static void field_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p,
		      const char *var, const struct tbg_field_line *first)
{
	const struct tbg_fields *f = p->request->fields;
	const char *between = first->id == TBG_NAME_COOKIE ? "; " : ", ";
	struct tbg_lines joined = { 0 };

	tbg_lines_put(&joined, first->value.text, first->value.len);
	for (const struct tbg_field_line *one = first + 1; one < f->all + f->nr; one++) {
		if (!same_name(one, first))
			continue;
		tbg_lines_put(&joined, between, 2);
		tbg_lines_put(&joined, one->value.text, one->value.len);
	}
	ret->failed |= joined.failed;
	put(ret, p, var, (struct tbg_slice){ joined.text ?: "", joined.len });
	tbg_lines_free(&joined);
}

/* Returns whether an earlier line has the same name. */
static bool had(const struct tbg_fields *f, const struct tbg_field_line *line)
{
	for (const struct tbg_field_line *one = f->all; one < line; one++)
		if (same_name(one, line))
			return true;
	return false;
}

static void fields_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p)
{
	const struct tbg_forward *f = p->request;
	bool connection = tbg_forward_connection(f);
	char var[NAME_MAX_ + 6];

	if (f->host.len)
		put(ret, p, "HTTP_HOST", f->host);
	for (uint32_t i = 0; i < f->fields->nr; i++) {
		const struct tbg_field_line *one = &f->fields->all[i];

		if (!tbg_forward_drops(f, one, connection) && variable(one, var) &&
		    one->id != TBG_NAME_X_REQUEST_ID && !had(f->fields, one))
			field_put(ret, p, var, one);
	}
	if (f->id.len)
		put(ret, p, "HTTP_X_REQUEST_ID", f->id);
	if (f->etag.len)
		put(ret, p, "HTTP_IF_NONE_MATCH", f->etag);
	if (f->modified.len)
		put(ret, p, "HTTP_IF_MODIFIED_SINCE", f->modified);
}

void tbg_fcgi_params_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p)
{
	const struct tbg_script *s = p->script;

	script_put(ret, p);
	request_put(ret, p);
	fields_put(ret, p);
	for (unsigned int i = 0; i < s->params_nr; i++) {
		const char *sign = strchr(s->params[i], '=');

		tbg_pair_put(ret, (struct tbg_slice){ s->params[i], sign - s->params[i] },
			     text(sign + 1));
	}
}
