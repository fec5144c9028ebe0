/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a program is started with: variables and arguments made of a request
 * (RFC 3875 4.1, 4.4). For cgi.c.
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

/* Whether a program gets to see a variable that the daemon has sent. */
bool tbg_cgi_variable(const char *name);

/* info: where the program's name ends in path, the request's. False: no memory. */
bool tbg_cgi_variables_make(struct tbg_cgi_variables *e, const struct tbg_gateway_request *v,
			    const struct tbg_executable *script, const char *path,
			    const char *info);
/* Of what was made or not. */
void tbg_cgi_variables_free(struct tbg_cgi_variables *e);

/* The query, to be cut into words where it may have some; the caller's. NULL: no memory. */
char *tbg_cgi_query(const struct tbg_gateway_request *v);
/* The program and the words of a query, which is cut up. NULL: no memory. */
char **tbg_cgi_arguments(char *program, char *query);

#endif
