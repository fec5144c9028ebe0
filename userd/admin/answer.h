/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the admin listener answers: from a whole request to a whole response, or
 * to a line for the control socket whose answer becomes the response.
 */
#ifndef TBG_USERD_ADMIN_ANSWER_H
#define TBG_USERD_ADMIN_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tbg_server;

#define TBG_ADMIN_TOKEN_MIN	16	/* bytes of a token */

struct tbg_admin_request {
	const char *head;
	size_t head_len;
	bool get, is_head, post;	/* else: another method */
	bool close;
	const char *path;		/* canonical */
	const char *query;
	size_t query_len;
	const char *body;
	size_t body_len;
};

struct tbg_admin_answer {
	char *text;			/* the response, to be freed; NULL: ask */
	size_t len;
	char *ask;			/* a line for the control socket, to be freed */
};

/* token: NULL if there is none. False: no memory. */
bool tbg_admin_answer(struct tbg_server *s, const char *token,
		      const struct tbg_admin_request *r, struct tbg_admin_answer *ret);

/* The response that a line of the control socket becomes; text NULL: none came. */
char *tbg_admin_answered(const char *text, size_t len, bool close, size_t *ret_len);

/* A response that is a status and a line of text. */
char *tbg_admin_error(unsigned int status, const char *line, size_t *ret_len);

#endif
