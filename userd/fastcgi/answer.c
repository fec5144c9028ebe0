// SPDX-License-Identifier: GPL-2.0
/*
 * Checks the sequence of records in the answer to the single request of a connection
 * (FastCGI 1.0, 3.3 and 6).
 */
#include "fastcgi/answer.h"

#include <string.h>

void tbg_fcgi_answer_end(struct tbg_fcgi_answer *a)
{
	tbg_lines_free(&a->errors);
}

/* Handles a record. Returns false if a FastCGI server may not send it in an answer. */
static bool record_take(struct tbg_fcgi_answer *a, const struct tbg_fcgi_record *r,
			uint8_t *to, size_t *data)
{
	if (!r->id)			/* management record: none was requested */
		return r->type == TBG_FCGI_RECORD_GET_VALUES_RESULT ||
		       r->type == TBG_FCGI_RECORD_UNKNOWN;
	if (r->id != TBG_FASTCGI_ID)
		return false;
	switch (r->type) {
	case TBG_FCGI_RECORD_STDOUT:
		if (r->len)
			memmove(to + *data, r->data, r->len);
		*data += r->len;
		a->marked |= r->marked;
		if (a->over && r->len)
			return false;
		a->over = !r->len;
		return true;
	case TBG_FCGI_RECORD_STDERR:
		tbg_lines_put(&a->errors, r->data, r->len);
		return true;
	case TBG_FCGI_RECORD_END:
		a->ended = true;
		a->failed = r->app_status;
		a->refused = r->status == TBG_FCGI_RECORD_OVERLOADED;
		return r->status == TBG_FCGI_RECORD_COMPLETE;
	}
	return false;
}

enum tbg_parsed tbg_fcgi_answer_eat(void *answer, uint8_t *b, size_t len, size_t *ret_used,
				    size_t *ret_data)
{
	struct tbg_fcgi_answer *a = answer;
	size_t i = 0, n, data = 0;
	enum tbg_parsed p = TBG_PARSED_DONE;
	struct tbg_fcgi_record r;

	while (i < len && !a->ended && p == TBG_PARSED_DONE) {
		p = tbg_fcgi_record_next(&a->reader, b + i, len - i, &n, &r);
		i += n;
		if (p == TBG_PARSED_DONE && !record_take(a, &r, b, &data))
			p = TBG_PARSED_BAD;
	}
	*ret_used = i;
	*ret_data = data;
	if (p == TBG_PARSED_BAD)
		return p;
	return a->ended ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}
