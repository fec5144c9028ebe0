// SPDX-License-Identifier: GPL-2.0
/*
 * Parses the argument of a command, a URL or a request as sent by a client, into the
 * form in which the daemon looks it up; and the names of reasons. See why.h.
 */
#include "control/why.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "abi/why.h"
#include "http/header.h"
#include "site/site.h"

const char *tbg_why_name(int why)
{
	static const char *const names[] = {
#define X(name, text) #name,
		TBG_WHY_LIST(X)
#undef X
	};

	return why >= 0 && why < TBG_WHY_NR ? names[why] : "?";
}

const char *tbg_why_text(int why)
{
	static const char *const texts[] = {
#define X(name, text) text,
		TBG_WHY_LIST(X)
#undef X
	};

	return why >= 0 && why < TBG_WHY_NR ? texts[why] : "?";
}

json_t *tbg_json_text(const char *text, size_t len)
{
	json_t *ret = json_stringn(text, len);
	char *b, *to;

	if (ret)
		return ret;
	b = to = malloc(3 * len + 1);
	if (!b)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = text[i];

		if (c >= 0x20 && c < 0x7f)
			*to++ = c;
		else
			to += sprintf(to, "%%%02X", c);
	}
	ret = json_stringn(b, to - b);
	free(b);
	return ret;
}

/*
 * Returns the part after scheme and authority (*ret_host; NULL: none), which may be
 * empty. NULL: neither a URL nor a path.
 */
static const char *path_begin(const char *url, const char **ret_host)
{
	const char *p = url;

	*ret_host = NULL;
	if (!strncasecmp(p, "http://", 7))
		p += 7;
	else if (!strncasecmp(p, "https://", 8))
		p += 8;
	else
		return *url == '/' ? url : NULL;
	*ret_host = p;
	return p + strcspn(p, "/?#");
}

/* Makes the URI that is used for upstreams and stored responses (request_copy.c). */
static void uri_make(struct tbg_why_path *ret, const char *host, const char *target)
{
	size_t n = host ? strcspn(host, "/?#") : 0, rest = strcspn(target, "#");
	bool slash = *target != '/';

	if (n > 3 && !memcmp(host + n - 3, ":80", 3))
		n -= 3;
	ret->target_off = ret->uri_len = 0;
	if (n + slash + rest > sizeof(ret->uri))	/* too long: none is stored */
		return;
	for (size_t i = 0; i < n; i++)
		ret->uri[i] = tbg_lower(host[i]);
	ret->uri[n] = '/';
	memcpy(ret->uri + n + slash, target, rest);
	ret->target_off = n;
	ret->uri_len = n + slash + rest;
}

/* Makes a message for a path that would be answered with 400. */
static int refuse(const char *url, char *ret_msg, size_t msg_len)
{
	snprintf(ret_msg, msg_len, "%.200s: no path that the daemon would take: a bad escape, or above the root",
		 url);
	return -EINVAL;
}

int tbg_why_path_parse(const struct tbg_sites *sites, struct tbg_why_path *ret,
		       const char *url, char *ret_msg, size_t msg_len)
{
	const char *host, *target = path_begin(url, &host), *p = target;
	size_t len;
	int canonical;

	if (!p) {
		snprintf(ret_msg, msg_len, "%.200s: neither a URL (http://...) nor a path (/...)",
			 url);
		return -EINVAL;
	}
	len = strcspn(p, "?#");
	if (!len) {
		p = "/";
		len = 1;
	}
	if (len >= sizeof(ret->path)) {
		snprintf(ret_msg, msg_len, "%.60s...: path of %zu bytes, the longest is %zu",
			 url, len, sizeof(ret->path) - 1);
		return -EINVAL;
	}
	canonical = tbg_path_decode((const uint8_t *)p, len, ret->path);
	if (canonical < 0)
		return refuse(url, ret_msg, msg_len);
	ret->len = canonical;
	ret->has_host = host;
	ret->host = host;
	ret->host_len = host ? strcspn(host, "/?#") : 0;
	ret->site = tbg_site_find(sites, host, host ? strcspn(host, "/?#") : 0);
	uri_make(ret, host, target);
	return 0;
}

bool tbg_why_request_parse(struct tbg_why_request *r, char *ret, size_t size)
{
	char path[TBG_TARGET_MAX + 1];
	const struct tbg_message *m = &r->message;
	const char *b = (const char *)r->b;
	bool absolute;
	int nr;

	r->message = (struct tbg_message){ 0 };
	if (tbg_message_parse(&r->message, r->b, r->len, TBG_REQ_MAX, path) != TBG_PARSED_DONE ||
	    m->asterisk)
		return false;
	absolute = b[m->target.off] != '/';
	nr = absolute ? snprintf(ret, size, "%.*s", (int)m->target.len, b + m->target.off) :
			snprintf(ret, size, "http://%.*s%.*s", (int)m->host.len, b + m->host.off,
				 (int)m->target.len, b + m->target.off);
	return nr > 0 && (size_t)nr < size;
}
