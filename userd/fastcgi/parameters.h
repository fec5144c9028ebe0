/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the meta-variables of CGI (RFC 3875 4.1) from a request, in the encoding of
 * FastCGI. Called by fetches from FastCGI servers. No I/O; allocates only memory of
 * struct tbg_lines.
 */
#ifndef TBG_USERD_FASTCGI_PARAMETERS_H
#define TBG_USERD_FASTCGI_PARAMETERS_H

#include <stdint.h>

#include "os/endpoints.h"
#include "http/forward.h"

/* Which program a path means to servers that run programs. */
struct tbg_script {
	const char *root;	/* as the servers see it; NULL: the location's */
	const char *file;	/* runs for every path; NULL: the path below root */
	const char *index;	/* file for a path that ends in '/'; NULL: the path itself */
	const char *split;	/* ".php": PATH_INFO follows it; NULL: never */
	const char **params;	/* "NAME=value"; these override others */
	unsigned int params_nr;
};

struct tbg_fcgi_params {
	const struct tbg_forward *request;	/* target in origin form */
	const struct tbg_script *script;
	const char *root;		/* DOCUMENT_ROOT, without final '/' */
	const struct tbg_endpoints *endpoints;
	struct tbg_slice path;		/* canonical, begins with '/' */
	const char *index;		/* index of the folder `path`, from the location; or NULL */
};

/*
 * Appends name-value pairs. Fields become HTTP_*; lines of the same name are joined.
 * Fields that concern the connection or were evaluated by the daemon are omitted, and
 * so are names that could be mistaken for another variable: Proxy ("httpoxy"), and
 * names with bytes other than letters, digits and '-'.
 */
void tbg_fcgi_params_put(struct tbg_lines *ret, const struct tbg_fcgi_params *p);

#endif
