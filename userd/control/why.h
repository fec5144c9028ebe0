/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds the tier that would answer a request now, and why a kernel tier would not.
 * Called by the control socket in the control thread. Changes nothing.
 */
#ifndef TBG_USERD_CONTROL_WHY_H
#define TBG_USERD_CONTROL_WHY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/span.h"
#include "http/reply.h"
#include "http/request.h"

struct tbg_server;
struct tbg_object;
struct tbg_site;
struct tbg_sites;

#define TBG_URL_MAX 4096

/* A URL or a path, in the form in which the daemon looks it up. */
struct tbg_why_path {
	char path[TBG_URL_MAX];		/* canonical, NUL-terminated */
	size_t len;
	const struct tbg_site *site;	/* without a host, the default one */
	bool has_host;
	const char *host;		/* in the URL; NULL: none */
	size_t host_len;
	char uri[TBG_URL_MAX];		/* authority (if it has_host) and target */
	size_t uri_len, target_off;
};

/* Returns 0; -EINVAL: neither a URL nor a path, or one that the daemon would refuse. */
int tbg_why_path_parse(const struct tbg_sites *sites, struct tbg_why_path *ret,
		       const char *url, char *ret_msg, size_t msg_len);

/* The request in question. */
struct tbg_why_request {
	uint8_t b[TBG_REQ_MAX + 2];	/* as sent by a client */
	size_t len;			/* 0: a plain GET of the URL, */
	struct tbg_slice accept;	/* with this Accept-Encoding; text NULL: none */
	struct tbg_message message;	/* parsed from b, if it is a complete request */
	uint32_t client[4];		/* IPv4-mapped; zero: a client that is in no list */
	bool has_client;
};

/*
 * Makes the URL of a request of len bytes in r->b in ret[size]. Returns false if the
 * daemon would refuse the request or wait for more.
 */
bool tbg_why_request_parse(struct tbg_why_request *r, char *ret, size_t size);

/*
 * Returns a new object for the answer, or NULL without memory. p: from the request's
 * URL; NULL if it has none, then r->len must not be 0.
 */
json_t *tbg_why_answer(struct tbg_server *s, const struct tbg_why_path *p,
		       struct tbg_why_request *r);

const char *tbg_why_name(int why);
const char *tbg_why_text(int why);

/* Makes JSON from external text: percent-encodes text that is not UTF-8. */
json_t *tbg_json_text(const char *text, size_t len);

#endif
