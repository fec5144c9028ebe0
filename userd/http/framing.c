// SPDX-License-Identifier: GPL-2.0
/*
 * Decodes framing byte by byte and moves content in runs, always towards the
 * front. Framing outside the grammar of RFC 9112 7.1 is refused, also in white
 * space and extensions, where disagreeing parsers have allowed request smuggling.
 * Lines end in CRLF; a lone LF is refused for the same reason.
 */
#include <stdlib.h>
#include <string.h>

#include "http/header.h"
#include "http/framing.h"
#include "http/token.h"

#define SIZE_GROWS	(1ull << 56)	/* a smaller size may have another digit */
#define SIZE_DIGITS	16		/* leading zeros of longer sizes count as framing */

enum {
	SIZE,				/* chunk-size */
	EXT,				/* white space before ';' */
	EXT_NAME_GAP, EXT_NAME, EXT_EQUALS,
	EXT_VALUE_GAP, EXT_VALUE, EXT_QUOTED, EXT_ESCAPE, EXT_QUOTED_END,
	SIZE_LF,
	DATA, DATA_CR, DATA_LF,
	TRAILER, TRAILER_NAME, TRAILER_VALUE, TRAILER_VALUE_LF, TRAILER_LF,
	END,
	WRONG,
};

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

void tbg_body_decoder_begin_records(struct tbg_body_decoder *f, void *records,
				    enum tbg_parsed (*eat)(void *records, uint8_t *b, size_t len,
							   size_t *ret_used,
							   size_t *ret_data))
{
	tbg_body_decoder_begin(f, TBG_FRAMING_RECORDS, 0);
	f->records = records;
	f->records_eat = eat;
}

void tbg_body_decoder_begin_request(struct tbg_body_decoder *f, const struct tbg_message *m)
{
	tbg_body_decoder_begin(f, m->chunked ? TBG_FRAMING_CHUNKED : TBG_FRAMING_LENGTH,
			       m->content_length);
	f->request = true;
}

void tbg_body_decoder_end(struct tbg_body_decoder *f)
{
	free(f->trailer);
	f->trailer = NULL;
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

static bool blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

/* The state after a size, a name or a value of an extension. */
static uint8_t ext_next(uint8_t c)
{
	if (c == '\r')
		return SIZE_LF;
	if (c == ';')
		return EXT_NAME_GAP;
	return blank(c) ? EXT : WRONG;
}

/* chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) */
static uint8_t ext_byte(uint8_t state, uint8_t c)
{
	switch (state) {
	case EXT:
		return blank(c) ? EXT : c == ';' ? EXT_NAME_GAP : WRONG;
	case EXT_NAME_GAP:
		if (blank(c))
			return state;
		return tbg_token_byte(c) ? EXT_NAME : WRONG;
	case EXT_NAME:
		if (tbg_token_byte(c))
			return state;
		if (c == '=')
			return EXT_VALUE_GAP;
		return blank(c) ? EXT_EQUALS : ext_next(c);
	case EXT_EQUALS:
		if (c == '=')
			return EXT_VALUE_GAP;
		return blank(c) ? state : c == ';' ? EXT_NAME_GAP : WRONG;
	case EXT_VALUE_GAP:
		if (blank(c))
			return state;
		if (c == '"')
			return EXT_QUOTED;
		return tbg_token_byte(c) ? EXT_VALUE : WRONG;
	case EXT_VALUE:
		return tbg_token_byte(c) ? state : ext_next(c);
	case EXT_QUOTED:
		if (c == '"')
			return EXT_QUOTED_END;
		if (c == '\\')
			return EXT_ESCAPE;
		return tbg_value_byte(c) ? state : WRONG;
	case EXT_ESCAPE:
		return tbg_value_byte(c) ? EXT_QUOTED : WRONG;
	default:		/* EXT_QUOTED_END */
		return ext_next(c);
	}
}

static uint8_t trailer_byte(uint8_t state, uint8_t c)
{
	switch (state) {
	case TRAILER:
		if (c == '\r')
			return TRAILER_LF;
		return tbg_token_byte(c) ? TRAILER_NAME : WRONG;
	case TRAILER_NAME:
		if (c == ':')
			return TRAILER_VALUE;
		return tbg_token_byte(c) ? state : WRONG;
	case TRAILER_VALUE:
		if (c == '\r')
			return TRAILER_VALUE_LF;
		return tbg_value_byte(c) ? state : WRONG;
	case TRAILER_VALUE_LF:
		return c == '\n' ? TRAILER : WRONG;
	default:		/* TRAILER_LF */
		return c == '\n' ? END : WRONG;
	}
}

/* Stores one byte of the trailer section; false: too many. */
static bool trailer_keep(struct tbg_body_decoder *f, uint8_t c)
{
	if (f->trailer_len >= TBG_TRAILER_MAX)
		return false;
	if (!f->trailer && !(f->trailer = malloc(TBG_TRAILER_MAX)))
		return false;
	f->trailer[f->trailer_len++] = c;
	return true;
}

static uint8_t size_byte(struct tbg_body_decoder *f, uint8_t c)
{
	if (tbg_hex_value(c) < 0 || f->left >= SIZE_GROWS)
		return f->digits ? ext_next(c) : WRONG;
	f->left = f->left << 4 | tbg_hex_value(c);
	if (f->digits < SIZE_DIGITS)
		f->digits++;
	else if (++f->framing_len > TBG_FRAMING_MAX)
		return WRONG;
	return SIZE;
}

/*
 * The end of a chunk's line. A response may have any number of extensions, but lines
 * are limited; in a request, framing is limited in proportion to content.
 */
static uint8_t size_end(struct tbg_body_decoder *f, uint8_t c)
{
	f->digits = 0;
	if (!f->request || f->framing_len <= f->left)
		f->framing_len = 0;
	else
		f->framing_len -= f->left;
	if (c != '\n')
		return WRONG;
	return f->left ? DATA : TRAILER;
}

/* Consumes one byte of framing; returns the next state. */
static uint8_t frame_byte(struct tbg_body_decoder *f, uint8_t c)
{
	uint8_t state = f->state, next;

	switch (state) {
	case SIZE:
		return size_byte(f, c);
	case SIZE_LF:
		return size_end(f, c);
	case DATA_CR:
		return c == '\r' ? DATA_LF : WRONG;
	case DATA_LF:
		return c == '\n' ? SIZE : WRONG;
	case EXT:		/* white space after a size: some servers send it, clients do not */
		if (c == '\r' && !f->request)
			return SIZE_LF;
		break;
	}
	if (state != TRAILER_LF && ++f->framing_len > TBG_FRAMING_MAX)
		return WRONG;
	if (state < SIZE_LF)
		return ext_byte(state, c);
	next = trailer_byte(state, c);
	if (next < TRAILER_LF && f->keeps && !trailer_keep(f, c))
		return WRONG;
	return next;
}

static enum tbg_parsed verdict(const struct tbg_body_decoder *f)
{
	if (f->state == WRONG)
		return TBG_PARSED_BAD;
	return f->state == END ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}

/* Consumes the run of content at b[i]; returns its length. */
static size_t run_take(struct tbg_body_decoder *f, size_t len)
{
	size_t n = len < f->left ? len : f->left;

	f->left -= n;
	if (!f->left)
		f->state = DATA_CR;
	return n;
}

/* to: where content moves, b or NULL. */
static enum tbg_parsed chunks_eat(struct tbg_body_decoder *f, const uint8_t *b, size_t len,
				  uint8_t *to, size_t *ret_used, size_t *ret_data)
{
	size_t i = 0, data = 0;

	f->keeps = to;
	while (i < len && f->state < END) {
		size_t n;

		if (f->state != DATA) {
			f->state = frame_byte(f, b[i++]);
			continue;
		}
		n = run_take(f, len - i);
		if (to && data != i)
			memmove(to + data, b + i, n);
		data += n;
		i += n;
	}
	*ret_used = i;
	*ret_data = data;
	return verdict(f);
}

static enum tbg_parsed records_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				   size_t *ret_used, size_t *ret_data)
{
	enum tbg_parsed p;

	*ret_used = *ret_data = 0;
	if (f->state == END)
		return TBG_PARSED_DONE;
	p = f->records_eat(f->records, b, len, ret_used, ret_data);
	if (p == TBG_PARSED_DONE)
		f->state = END;
	return p;
}

/* Content up to a length, or to the end of the connection. */
static enum tbg_parsed plain_eat(struct tbg_body_decoder *f, size_t len, size_t *ret_used,
				 size_t *ret_data)
{
	size_t n = len;

	if (f->framing != TBG_FRAMING_CLOSE) {
		n = len < f->left ? len : f->left;
		f->left -= n;
		if (!f->left)
			f->state = END;
	}
	*ret_used = *ret_data = n;
	return verdict(f);
}

enum tbg_parsed tbg_body_decoder_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				     size_t *ret_used, size_t *ret_data)
{
	switch ((enum tbg_framing)f->framing) {
	case TBG_FRAMING_CHUNKED:
		return chunks_eat(f, b, len, b, ret_used, ret_data);
	case TBG_FRAMING_RECORDS:
		return records_eat(f, b, len, ret_used, ret_data);
	case TBG_FRAMING_CLOSE:
	case TBG_FRAMING_NONE:
	case TBG_FRAMING_LENGTH:
		break;
	}
	return plain_eat(f, len, ret_used, ret_data);
}

enum tbg_parsed tbg_body_decoder_skip(struct tbg_body_decoder *f, const uint8_t *b, size_t len,
				      size_t *ret_used, size_t *ret_data)
{
	if (f->framing == TBG_FRAMING_CHUNKED)
		return chunks_eat(f, b, len, NULL, ret_used, ret_data);
	return plain_eat(f, len, ret_used, ret_data);
}
