/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a FastCGI server answers to a request of ours: its records taken off where they
 * lie, STDOUT left there as content, to END. For the fetch, as the framing of a body
 * (http/framing.h). Strict: a record that has no place there ends the answer. Pure but
 * for the memory of the error output.
 */
#ifndef TBG_USERD_FASTCGI_ANSWER_H
#define TBG_USERD_FASTCGI_ANSWER_H

#include "fastcgi/record.h"

#define TBG_FASTCGI_ID	1	/* of every request: one at a time on a connection */

/* Zero it at its begin. */
struct tbg_fcgi_answer {
	struct tbg_fcgi_record_reader reader;
	bool over;		/* STDOUT, though not the answer */
	bool ended;
	bool failed;		/* the program has exited with another status than 0 */
	bool refused;		/* the server has not begun with it: FCGI_OVERLOADED */
	bool marked;		/* some of STDOUT is no program's, see TBG_FCGI_RECORD_MARK */
	struct tbg_lines errors; /* what STDERR has said; the caller's to take */
};

void tbg_fcgi_answer_end(struct tbg_fcgi_answer *a);	/* frees what it holds */

/* For tbg_body_decoder_begin_records(); answer: a struct tbg_fcgi_answer. */
enum tbg_parsed tbg_fcgi_answer_eat(void *answer, uint8_t *b, size_t len, size_t *ret_used,
				    size_t *ret_data);

#endif
