// SPDX-License-Identifier: GPL-2.0
/*
 * What a module can read of its request. Values are decoded at the first use
 * and kept with the request.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "module.h"
#include "http/token.h"

#define NAME_MAX_LEN 256	/* maximum length of a field's name */

char *tbg_request_alloc(struct tbg_request *r, size_t size)
{
	struct tbg_chunk *c = malloc(sizeof(*c) + size);

	if (!c)
		return NULL;
	SLIST_INSERT_HEAD(&r->chunks, c, link);
	return c->b;
}

const char *tbg_request_variable(const struct tbg_request *r, const char *name)
{
	return tbg_gateway_request_param(r->v, name);
}

const char *tbg_request_method(const struct tbg_request *r)
{
	return tbg_gateway_request_param(r->v, "REQUEST_METHOD");
}

const char *tbg_request_target(const struct tbg_request *r)
{
	return tbg_gateway_request_param(r->v, "REQUEST_URI");
}

const char *tbg_request_path(const struct tbg_request *r)
{
	return r->path;
}

const char *tbg_request_query(const struct tbg_request *r)
{
	return tbg_gateway_request_param(r->v, "QUERY_STRING") ?: "";
}

const char *tbg_request_host(const struct tbg_request *r)
{
	return tbg_gateway_request_param(r->v, "HTTP_HOST") ?:
	       tbg_gateway_request_param(r->v, "SERVER_NAME");
}

const char *tbg_request_remote(const struct tbg_request *r)
{
	return tbg_gateway_request_param(r->v, "REMOTE_ADDR");
}

/* Two fields have special variables (RFC 3875 4.1.2, 4.1.3). */
const char *tbg_request_field(const struct tbg_request *r, const char *name)
{
	char variable[NAME_MAX_LEN + 8] = "HTTP_";
	size_t len = strlen(name), at = 5;
	const char *v;

	if (len > NAME_MAX_LEN)
		return NULL;
	if (!strcasecmp(name, "Content-Type") || !strcasecmp(name, "Content-Length"))
		at = 0;
	for (size_t i = 0; i <= len; i++)
		variable[at + i] = name[i] == '-' ? '_' : toupper((unsigned char)name[i]);
	v = tbg_gateway_request_param(r->v, variable);
	return v && (*v || at) ? v : NULL;
}

static const char *text_keep(struct tbg_request *r, const char *b, size_t len)
{
	char *ret = tbg_request_alloc(r, len + 1);

	if (!ret)
		return NULL;
	memcpy(ret, b, len);
	ret[len] = 0;
	return ret;
}

/*
 * Cookies by RFC 6265 4.2.1, as servers usually parse them: pairs separated by ';',
 * quotes removed.
 */
const char *tbg_request_cookie(struct tbg_request *r, const char *name)
{
	const char *at = tbg_gateway_request_param(r->v, "HTTP_COOKIE");
	size_t name_len = strlen(name);

	for (; at && *at; at += *at == ';') {
		size_t len;

		at += strspn(at, " \t");
		len = strcspn(at, ";");
		if (len > name_len && at[name_len] == '=' &&
		    !memcmp(at, name, name_len)) {
			const char *value = at + name_len + 1;

			len -= name_len + 1;
			while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
				len--;
			if (len > 1 && *value == '"' && value[len - 1] == '"')
				return text_keep(r, value + 1, len - 2);
			return text_keep(r, value, len);
		}
		at += len;
	}
	return NULL;
}

/*
 * Decodes len bytes of a form into ret[len + 1]. Invalid escapes are kept, and so is
 * %00, which would end a C string.
 */
static size_t form_decode(const char *b, size_t len, char *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = b[i] == '+' ? ' ' : b[i];
		bool escape = c == '%' && len - i > 2;
		int high = escape ? tbg_hex_value(b[i + 1]) : -1;
		int low = escape ? tbg_hex_value(b[i + 2]) : -1;

		if (high >= 0 && low >= 0 && high + low) {
			c = high << 4 | low;
			i += 2;
		}
		ret[n++] = c;
	}
	ret[n] = 0;
	return n;
}

const char *tbg_form_parameter(struct tbg_request *r, const char *form, size_t len,
			       const char *name)
{
	const char *end = form + len;
	size_t want = strlen(name);

	while (form < end) {
		const char *amp = memchr(form, '&', end - form) ?: end;
		const char *equals = memchr(form, '=', amp - form) ?: amp;
		char *ret = tbg_request_alloc(r, amp - form + 2);

		if (!ret)
			return NULL;
		if (form_decode(form, equals - form, ret) == want &&
		    !memcmp(ret, name, want)) {
			form = equals + (equals < amp);
			form_decode(form, amp - form, ret);
			return ret;
		}
		form = amp + 1;
	}
	return NULL;
}

const char *tbg_request_parameter(struct tbg_request *r, const char *name)
{
	const char *query = tbg_request_query(r);

	return tbg_form_parameter(r, query, strlen(query), name);
}

void tbg_request_set(struct tbg_request *r, void *own)
{
	r->own = own;
}

void *tbg_request_get(const struct tbg_request *r)
{
	return r->own;
}

int64_t tbg_request_length(const struct tbg_request *r)
{
	const char *v = tbg_gateway_request_param(r->v, "CONTENT_LENGTH");
	uint64_t n;

	if (!v || !tbg_digits_parse((struct tbg_slice){ v, strlen(v) }, &n))
		return -1;
	return n;
}

ssize_t tbg_request_read(struct tbg_request *r, void *to, size_t size)
{
	size_t n = tbg_gateway_request_read(r->v, to, size);

	if (n || r->v->input_over || !size)
		return n;
	r->wants_input = true;
	return -EAGAIN;
}
