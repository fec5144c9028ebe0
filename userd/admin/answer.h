/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The answers of the admin listener: from a complete request to a complete response, or
 * to a line for the control socket whose answer becomes the response.
 */
#ifndef TBG_USERD_ADMIN_ANSWER_H
#define TBG_USERD_ADMIN_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tbg_server;

struct tbg_admin_request {
	const char *head;
	size_t head_len;
	bool get, is_head, post;	/* none of them: another method */
	bool close;
	const char *path;		/* canonical */
	const char *query;
	size_t query_len;
	const char *body;
	size_t body_len;
};

struct tbg_admin_answer {
	char *text;			/* the response, freed by the caller; NULL: ask */
	size_t len;
	char *ask;			/* a line for the control socket, freed by the caller */
};

/* token: NULL if none is configured. Returns false without memory. */
bool tbg_admin_answer(struct tbg_server *s, const char *token,
		      const struct tbg_admin_request *r, struct tbg_admin_answer *ret);

/* Makes the response from an answer of the control socket; text NULL: it gave none. */
char *tbg_admin_answered(const char *text, size_t len, bool close, size_t *ret_len);

/* Makes a response with a status and one line of text. */
char *tbg_admin_error(unsigned int status, const char *line, size_t *ret_len);

#endif
