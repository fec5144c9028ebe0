/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The environment and arguments of a program, made from a request (RFC 3875
 * 4.1, 4.4). For cgi.c.
 */
#ifndef TBG_USERD_GATEWAY_CGI_INPUT_H
#define TBG_USERD_GATEWAY_CGI_INPUT_H

#include <stdbool.h>

struct tbg_executable;
struct tbg_gateway_request;

struct tbg_cgi_variables {
	char **list;		/* ends with NULL */
	unsigned int nr;
	bool failed;
};

/* Whether a variable sent by the daemon is passed to the program. */
bool tbg_cgi_variable(const char *name);

/* info: the offset in the request's path after the program's name. False: no memory. */
bool tbg_cgi_variables_make(struct tbg_cgi_variables *e, const struct tbg_gateway_request *v,
			    const struct tbg_executable *script, const char *path,
			    const char *info);
/* Frees the result, also after an error. */
void tbg_cgi_variables_free(struct tbg_cgi_variables *e);

/*
 * A copy of the query, to be split into words if it has any; the caller frees it. NULL:
 * no memory.
 */
char *tbg_cgi_query(const struct tbg_gateway_request *v);
/*
 * The arguments: the program and the words of the query, which is split in place. NULL:
 * no memory.
 */
char **tbg_cgi_arguments(char *program, char *query);

#endif
