// SPDX-License-Identifier: GPL-2.0
/*
 * The variables and arguments that a program is started with (RFC 3875 4.1, 4.4).
 * Called by cgi.c; starts nothing itself.
 */
#include "gateway/cgi_input.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/token.h"
#include "gateway/responder.h"
#include "gateway/script.h"

#define VARIABLES	32		/* maximum that is made here */

bool tbg_cgi_variable(const char *name)
{
	static const char *const metas[] = {
		"AUTH_TYPE", "CONTENT_LENGTH", "CONTENT_TYPE", "DOCUMENT_ROOT",
		"HTTPS", "QUERY_STRING", "REMOTE_ADDR", "REMOTE_HOST",
		"REMOTE_IDENT", "REMOTE_PORT", "REMOTE_USER", "REQUEST_METHOD",
		"REQUEST_SCHEME", "REQUEST_URI", "SERVER_ADDR", "SERVER_NAME",
		"SERVER_PORT", "SERVER_PROTOCOL", "SERVER_SOFTWARE",
	};
	/*
	 * HTTP_PROXY would set a proxy for the program's requests; the others are
	 * withheld by RFC 3875 9.2
	 */
	static const char *const never[] = {
		"HTTP_PROXY", "HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION",
		"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE",
	};

	for (size_t i = 0; i < sizeof(metas) / sizeof(*metas); i++)
		if (!strcmp(name, metas[i]))
			return true;
	for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
		if (!strcmp(name, never[i]))
			return false;
	return !strncmp(name, "HTTP_", 5) &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

__attribute__((format(printf, 2, 3)))
static void variable(struct tbg_cgi_variables *e, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (vasprintf(&e->list[e->nr], format, args) < 0) {
		e->list[e->nr] = NULL;
		e->failed = true;
	} else {
		e->nr++;
	}
	va_end(args);
}

void tbg_cgi_variables_free(struct tbg_cgi_variables *e)
{
	for (unsigned int i = 0; i < e->nr; i++)
		free(e->list[i]);
	free(e->list);
}

static void variables_ours(struct tbg_cgi_variables *e, const struct tbg_gateway_request *v,
			   const struct tbg_executable *script, const char *path,
			   const char *info)
{
	const char *root = tbg_gateway_request_param(v, "DOCUMENT_ROOT");

	variable(e, "GATEWAY_INTERFACE=CGI/1.1");
	variable(e, "PATH=/usr/local/bin:/usr/bin:/bin");
	variable(e, "SCRIPT_FILENAME=%s", script->path);
	variable(e, "SCRIPT_NAME=%.*s", (int)(info - path), path);
	if (*info)
		variable(e, "PATH_INFO=%s", info);
	if (*info && root && *root)
		variable(e, "PATH_TRANSLATED=%s%s", root, info);
	if (!tbg_gateway_request_param(v, "QUERY_STRING"))
		variable(e, "QUERY_STRING=");
}

bool tbg_cgi_variables_make(struct tbg_cgi_variables *e, const struct tbg_gateway_request *v,
			    const struct tbg_executable *script, const char *path,
			    const char *info)
{
	*e = (struct tbg_cgi_variables){
		.list = calloc(v->params_nr + VARIABLES, sizeof(char *)),
	};
	if (!e->list)
		return false;
	variables_ours(e, v, script, path, info);
	for (unsigned int i = 0; i < v->params_nr; i++) {
		const struct tbg_param *one = &v->params[i];

		/* empty: there is no body */
		if (tbg_cgi_variable(one->name) &&
		    (one->len || strncmp(one->name, "CONTENT_", 8)))
			variable(e, "%s=%s", one->name, one->value);
	}
	return !e->failed;
}

/* Words that are not passed as arguments: empty ones, those with a NUL, and options. */
static bool word_decode(char *word)
{
	char *to = word;

	for (const char *at = word; *at; at++) {
		*to = *at;
		if (*at == '%') {
			int high = tbg_hex_value(at[1]);
			int low = high < 0 ? -1 : tbg_hex_value(at[2]);

			if (low < 0)
				return false;
			*to = high << 4 | low;
			at += 2;
		}
		if (!*to++)
			return false;
	}
	*to = 0;
	return *word && *word != '-';
}

char **tbg_cgi_arguments(char *program, char *query)
{
	char **ret, *word;
	size_t nr = 3;

	for (const char *at = query; *at; at++)
		nr += *at == '+';
	ret = calloc(nr, sizeof(*ret));
	if (!ret)
		return NULL;
	ret[0] = program;
	if (!*query || strchr(query, '='))
		return ret;
	for (nr = 1; (word = strsep(&query, "+")); nr++) {
		if (!word_decode(word)) {
			ret[1] = NULL;
			break;
		}
		ret[nr] = word;
	}
	return ret;
}

char *tbg_cgi_query(const struct tbg_gateway_request *v)
{
	const char *method = tbg_gateway_request_param(v, "REQUEST_METHOD") ?: "";
	const char *query = tbg_gateway_request_param(v, "QUERY_STRING") ?: "";

	return strdup(strcmp(method, "GET") && strcmp(method, "HEAD") ? "" : query);
}
