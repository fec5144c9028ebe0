/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which tier would answer a plain GET of a URL now, and why not the kernel. Called
 * by the control socket, in the control thread. Changes nothing.
 */
#ifndef TBG_USERD_WHY_H
#define TBG_USERD_WHY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "http/reply.h"

struct tbg_server;
struct tbg_object;
struct tbg_site;

#define TBG_URL_MAX 4096

/* A URL or a path, as the daemon looks it up. */
struct tbg_why_path {
	char path[TBG_URL_MAX];		/* canonical, NUL-terminated */
	size_t len;
	const struct tbg_site *site;	/* without a host, the default one */
	bool has_host;
	char uri[TBG_URL_MAX];		/* authority (if it has_host) and target */
	size_t uri_len, target_off;
	struct tbg_value accept;	/* Accept-Encoding; text NULL: none */
	int fast;			/* TBG_WHY_*: 0, or why the fast grammar
					 * does not take it */
	int host_why;			/* or why the kernel has no site for it */
};

/* 0; -EINVAL: neither URL nor path, or the daemon would not take it either. */
int tbg_why_path_parse(const struct tbg_server *s, struct tbg_why_path *ret,
		       const char *url, char *ret_msg, size_t msg_len);

/* Bytes of the longest reply that wire sends by some interface; 0: it is on none. */
unsigned int tbg_why_room(const struct tbg_server *s);

/* A new object for the reply, or NULL without memory. */
json_t *tbg_why_url(struct tbg_server *s, const struct tbg_why_path *p);

const char *tbg_why_name(int why);
const char *tbg_why_text(int why);

/* Text from outside as JSON: what is not UTF-8 is percent-encoded. */
json_t *tbg_json_text(const char *text, size_t len);

#endif
