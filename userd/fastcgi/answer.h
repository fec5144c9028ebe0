/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decodes the answer of a FastCGI server in place: removes the records, leaves the
 * content of STDOUT, and detects END. Used by fetches as the framing of a body
 * (http/framing.h). Strict: an unexpected record is an error. No I/O; allocates only
 * memory for the error output.
 */
#ifndef TBG_USERD_FASTCGI_ANSWER_H
#define TBG_USERD_FASTCGI_ANSWER_H

#include "fastcgi/record.h"

#define TBG_FASTCGI_ID	1	/* of every request: one at a time on a connection */

/* Zero it before use. */
struct tbg_fcgi_answer {
	struct tbg_fcgi_record_reader reader;
	bool over;		/* STDOUT has ended, the answer has not */
	bool ended;
	bool failed;		/* the program's exit status is not 0 */
	bool refused;		/* the server has not started the request: FCGI_OVERLOADED */
	bool marked;		/* part of STDOUT is the gateway's, see TBG_FCGI_RECORD_MARK */
	struct tbg_lines errors; /* received STDERR; the caller removes it */
};

void tbg_fcgi_answer_end(struct tbg_fcgi_answer *a);	/* frees its memory */

/* For tbg_body_decoder_begin_records(). answer: a struct tbg_fcgi_answer. */
enum tbg_parsed tbg_fcgi_answer_eat(void *answer, uint8_t *b, size_t len, size_t *ret_used,
				    size_t *ret_data);

#endif
