// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The smallest module that does something: greets by name, from the query
 * (/hello?name=Ada) or from a cookie, and remembers the name in a cookie. An
 * answer without a name is the same for all, and cached for as long as the
 * module's first argument gives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "toboggan-module.h"

static unsigned int fresh_s;

static int hello_open(int argc, char **argv, void **ret_state)
{
	fresh_s = argc ? strtoul(argv[0], NULL, 10) : 0;
	return 0;
}

/* What a browser would not take for markup, or a cookie for its end. */
static const char *name_of(struct tbg_request *r)
{
	const char *name = tbg_request_parameter(r, "name");

	name = name ? name : tbg_request_cookie(r, "name");
	if (!name || !*name || strlen(name) > 64)
		return NULL;
	for (const char *c = name; *c; c++)
		if (*c <= ' ' || *c > '~' || strchr("<>&\"',;\\", *c))
			return NULL;
	return name;
}

static void hello(struct tbg_request *r, void *state)
{
	const char *name = name_of(r);
	char text[128];
	int n;

	tbg_response_field(r, "Content-Type", "text/plain");
	tbg_response_field(r, "Vary", "Cookie");
	if (name) {
		snprintf(text, sizeof(text), "name=%s", name);
		tbg_response_field(r, "Set-Cookie", text);
		tbg_response_field(r, "Cache-Control", "private");
	} else if (fresh_s) {
		tbg_response_cache(r, fresh_s);
		tbg_response_tag(r, "hello");
	}
	n = snprintf(text, sizeof(text), "hello%s%s\n", name ? ", " : "",
		     name ? name : "");
	tbg_response_send(r, text, n);
	tbg_response_end(r);
}

const struct tbg_module tbg_module = {
	.abi = TBG_MODULE_ABI,
	.open = hello_open,
	.request = hello,
};
