// SPDX-License-Identifier: GPL-2.0
/*
 * Bodies, decoded in place: content only ever moves towards the front.
 */
#include <stdlib.h>
#include <string.h>

#include "http/header.h"
#include "http/framing.h"
#include "http/token.h"

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF,
       TRAILER, TRAILER_LINE, TRAILER_LF, END_LF, END };

void tbg_body_decoder_begin(struct tbg_body_decoder *f, enum tbg_framing framing,
		     uint64_t length)
{
	*f = (struct tbg_body_decoder){ .framing = framing, .left = length };
	if (framing == TBG_FRAMING_CHUNKED)
		f->left = 0;
	else if (framing == TBG_FRAMING_NONE ||
		 (framing == TBG_FRAMING_LENGTH && !length))
		f->state = END;
}

void tbg_body_decoder_end(struct tbg_body_decoder *f)
{
	free(f->trailer);
	f->trailer = NULL;
	tbg_lines_free(&f->errors);
}

bool tbg_body_decoder_ended(const struct tbg_body_decoder *f)
{
	return f->state == END;
}

uint64_t tbg_body_decoder_comes(const struct tbg_body_decoder *f)
{
	return f->state == DATA ? f->left : 0;
}

bool tbg_body_decoder_closes(const struct tbg_body_decoder *f)
{
	return f->framing == TBG_FRAMING_CLOSE;
}

static bool size_byte(struct tbg_body_decoder *f, uint8_t c)
{
	int v = tbg_hex_value(c);

	if (v >= 0 && f->digits < 15) {
		f->left = f->left << 4 | v;
		f->digits++;
		return true;
	}
	if (!f->digits || (c != ';' && c != '\r' && c != ' ' && c != '\t'))
		return false;
	f->state = c == '\r' ? SIZE_LF : EXTENSION;
	return true;
}

static bool trailer_byte(struct tbg_body_decoder *f, uint8_t c)
{
	if (f->trailer_len >= TBG_TRAILER_MAX)
		return false;
	if (!f->trailer && !(f->trailer = malloc(TBG_TRAILER_MAX)))
		return false;
	f->trailer[f->trailer_len++] = c;
	return true;
}

/* The line that has just ended: a name, a colon, a value. */
static bool trailer_check(const struct tbg_body_decoder *f)
{
	size_t from = f->trailer_len - 2;	/* at its CRLF */
	const char *line, *colon;
	size_t len;

	while (from && f->trailer[from - 1] != '\n')
		from--;
	line = f->trailer + from;
	len = f->trailer_len - 2 - from;
	colon = memchr(line, ':', len);
	return colon && tbg_token_valid(line, colon - line) &&
	       tbg_value_valid(colon + 1, line + len - colon - 1);
}

/* One byte that is not content; false: wrong. */
static bool frame_byte(struct tbg_body_decoder *f, uint8_t c)
{
	switch (f->state) {
	case SIZE:
		return size_byte(f, c);
	case EXTENSION:
		if (c == '\r')
			f->state = SIZE_LF;
		else if (!tbg_value_byte(c) || ++f->line > TBG_TRAILER_MAX)
			return false;
		return true;
	case SIZE_LF:
		f->state = f->left ? DATA : TRAILER;
		f->digits = f->line = 0;
		return c == '\n';
	case DATA_CR:
		f->state = DATA_LF;
		return c == '\r';
	case DATA_LF:
		f->state = SIZE;
		return c == '\n';
	case TRAILER:
		f->state = c == '\r' ? END_LF : TRAILER_LINE;
		return c == '\r' || trailer_byte(f, c);
	case TRAILER_LINE:
		if (c == '\r')
			f->state = TRAILER_LF;
		return c != '\n' && trailer_byte(f, c);
	case TRAILER_LF:
		f->state = TRAILER;
		return c == '\n' && trailer_byte(f, c) && trailer_check(f);
	case END_LF:
		f->state = END;
		return c == '\n';
	}
	return false;
}

static enum tbg_parsed chunks_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				  size_t *ret_used, size_t *ret_data)
{
	size_t i = 0, data = 0;
	bool ok = true;

	while (i < len && f->state != END && ok) {
		size_t n = len - i < f->left ? len - i : f->left;

		if (f->state != DATA) {
			ok = frame_byte(f, b[i++]);
			continue;
		}
		if (data != i)
			memmove(b + data, b + i, n);
		data += n;
		i += n;
		f->left -= n;
		if (!f->left)
			f->state = DATA_CR;
	}
	*ret_used = i;
	*ret_data = data;
	if (!ok)
		return TBG_PARSED_BAD;
	return f->state == END ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}

/* What a FastCGI server may say of our request; false: anything else. */
static bool record_take(struct tbg_body_decoder *f, const struct tbg_fcgi_record *r,
			uint8_t *to, size_t *data)
{
	if (!r->id)			/* management: we have asked for nothing */
		return r->type == TBG_FCGI_RECORD_GET_VALUES_RESULT ||
		       r->type == TBG_FCGI_RECORD_UNKNOWN;
	if (r->id != TBG_FASTCGI_ID)
		return false;
	switch (r->type) {
	case TBG_FCGI_RECORD_STDOUT:
		if (r->len)
			memmove(to + *data, r->data, r->len);
		*data += r->len;
		f->marked |= r->marked;
		if (f->over && r->len)
			return false;
		f->over = !r->len;
		return true;
	case TBG_FCGI_RECORD_STDERR:
		tbg_lines_put(&f->errors, r->data, r->len);
		return true;
	case TBG_FCGI_RECORD_END:
		f->state = END;
		f->failed = r->app_status;
		f->refused = r->status == TBG_FCGI_RECORD_OVERLOADED;
		return r->status == TBG_FCGI_RECORD_COMPLETE;
	}
	return false;
}

static enum tbg_parsed records_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				   size_t *ret_used, size_t *ret_data)
{
	size_t i = 0, n, data = 0;
	enum tbg_parsed p = TBG_PARSED_DONE;
	struct tbg_fcgi_record r;

	while (i < len && f->state != END && p == TBG_PARSED_DONE) {
		p = tbg_fcgi_record_next(&f->records, b + i, len - i, &n, &r);
		i += n;
		if (p == TBG_PARSED_DONE && !record_take(f, &r, b, &data))
			p = TBG_PARSED_BAD;
	}
	*ret_used = i;
	*ret_data = data;
	if (p == TBG_PARSED_BAD)
		return p;
	return f->state == END ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}

enum tbg_parsed tbg_body_decoder_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
			      size_t *ret_used, size_t *ret_data)
{
	size_t n = len;

	switch ((enum tbg_framing)f->framing) {
	case TBG_FRAMING_CHUNKED:
		return chunks_eat(f, b, len, ret_used, ret_data);
	case TBG_FRAMING_RECORDS:
		return records_eat(f, b, len, ret_used, ret_data);
	case TBG_FRAMING_CLOSE:
		break;
	case TBG_FRAMING_NONE:
	case TBG_FRAMING_LENGTH:
		n = len < f->left ? len : f->left;
		f->left -= n;
		if (!f->left)
			f->state = END;
		break;
	}
	*ret_used = *ret_data = n;
	return f->state == END ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}
