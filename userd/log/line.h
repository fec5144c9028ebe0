/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A line of the access log, as a list of pieces: its length is known before it is
 * copied.
 */
#ifndef TBG_USERD_LOG_LINE_H
#define TBG_USERD_LOG_LINE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "log/access.h"

#define TBG_LOG_FIELD_MAX 8192		/* limit for the bytes of a field, before escaping */
#define TBG_LOG_PIECES	 80		/* per line: twice its fields, and one */

/* Fields of a pattern, each after a '$': see toboggand(8). X(name) */
#define TBG_LOG_FIELD_LIST(X) \
	X(remote) X(client) X(user) X(time) X(time_iso) X(request) X(method) X(target) X(protocol) \
	X(status) X(body_bytes) X(bytes) X(referer) X(agent) X(host) X(forwarded_for) \
	X(request_id) X(upstream) X(upstream_seconds) X(tier) X(reason) X(seconds)

enum tbg_log_field {
#define X(name) TBG_LOG_FIELD_##name,
	TBG_LOG_FIELD_LIST(X)
#undef X
	TBG_LOG_FIELD_NR
};

struct tbg_log_text {
	const char *p;
	size_t len;
};

struct tbg_log_parts {
	struct tbg_log_text user, request, referer, agent, host, forwarded, request_id;
	char name[TBG_LOG_FIELD_MAX];	/* decoded user name */
};

/* The pieces of a line. Those sent by the client must be escaped. */
struct tbg_log_made {
	struct tbg_log_parts parts;	/* pieces may point into its name */
	struct {
		struct tbg_log_text text;
		bool theirs;
	} piece[TBG_LOG_PIECES + 1];
	unsigned int nr;
	char begin[INET6_ADDRSTRLEN + 128], time[80], middle[80], end[96];
	char own[1024];
	size_t own_len;
	size_t len;
	enum tbg_log_format format;
};

/*
 * pattern: valid, or NULL; with a pattern, format selects the escaping of the client's
 * text. ret->len: length of the line with its newline.
 */
void tbg_log_make(struct tbg_log_made *ret, const struct tbg_log_record *r,
		  enum tbg_log_format format, const char *pattern);
void tbg_log_put(const struct tbg_log_made *l, char *to);

/* "wire", "sock", "user" */
const char *tbg_log_tier_text(enum tbg_tier tier);

/*
 * Finds the format named by a setting. Returns false for an unknown one; *ret_msg is
 * the reason, or "".
 */
bool tbg_log_format_find(const char *v, enum tbg_log_format *ret, char *ret_msg, size_t msg_len);

/* Returns false if the pattern is invalid; *ret_msg is the reason. */
bool tbg_log_pattern_check(const char *pattern, char *ret_msg, size_t msg_len);

#endif
