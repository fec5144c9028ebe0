/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request as the meta-variables of CGI (RFC 3875, 4.1), in the form that
 * FastCGI sends them. Called by the fetch for servers that speak FastCGI. Pure
 * but for the memory of struct tbg_lines.
 */
#ifndef TBG_USERD_FASTCGI_PARAMETERS_H
#define TBG_USERD_FASTCGI_PARAMETERS_H

#include <stdint.h>

#include "os/endpoints.h"
#include "http/forward.h"

/* Which program a path means to servers that run programs. */
struct tbg_script {
	const char *root;	/* as they see it; NULL: the location's */
	const char *file;	/* runs for every path; NULL: the path below root */
	const char *index;	/* what a path that ends in '/' means; NULL: itself */
	const char *split;	/* ".php": behind it is PATH_INFO; NULL: nowhere */
	const char **params;	/* more of them, "NAME=value"; these win */
	unsigned int params_nr;
};

struct tbg_fcgi_params {
	const struct tbg_forward *request;	/* target in origin form */
	const struct tbg_script *script;
	const char *root;		/* DOCUMENT_ROOT, no '/' at its end */
	const struct tbg_endpoints *endpoints;
	struct tbg_slice path;		/* canonical, begins with '/' */
	const char *index;		/* of the folder that path is, not the script's; or NULL */
};

/*
 * Appends them as name-value pairs. Fields become HTTP_*, those of one name
 * together, without what concerns the connection or was ours to evaluate, and
 * without names that a variable's could be confused with: Proxy ("httpoxy"),
 * and any with other bytes than letters, digits and '-'.
 */
void tbg_fcgi_params_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p);

#endif
