// SPDX-License-Identifier: GPL-2.0
/*
 * Bodies, byte by byte through their framing and at once over their content.
 * What the grammar of RFC 9112 7.1 does not have is refused, white space and
 * extensions included: parsers that disagree there have been smuggled past.
 */
#include "http/request_framing.h"
#include "http/token.h"

#define SIZE_GROWS	(1ull << 56)	/* below it a size may have another digit */
#define SIZE_DIGITS	16		/* the zeros of longer ones count as framing */

enum {
	LENGTH,			/* content of a Content-Length */
	SIZE,			/* chunk-size */
	EXT,			/* white space before ';' */
	EXT_NAME_GAP, EXT_NAME, EXT_EQUALS,
	EXT_VALUE_GAP, EXT_VALUE, EXT_QUOTED, EXT_ESCAPE, EXT_QUOTED_END,
	SIZE_LF,
	DATA, DATA_CR, DATA_LF,
	TRAILER, TRAILER_NAME, TRAILER_VALUE, TRAILER_VALUE_LF, TRAILER_LF,
	END,
	WRONG,
};

void tbg_body_begin(struct tbg_body *body, const struct tbg_message *m)
{
	*body = (struct tbg_body){ .left = m->content_length };
	if (m->chunked)
		*body = (struct tbg_body){ .state = SIZE };
	else if (!m->content_length)
		body->state = END;
}

static bool blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

/* What follows a size, a name or a value of an extension. */
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

static uint8_t size_byte(struct tbg_body *body, uint8_t c)
{
	if (tbg_hex_value(c) < 0 || body->left >= SIZE_GROWS)
		return body->digits ? ext_next(c) : WRONG;
	body->left = body->left << 4 | tbg_hex_value(c);
	if (body->digits < SIZE_DIGITS)
		body->digits++;
	else if (++body->framing > TBG_BODY_FRAMING_MAX)
		return WRONG;
	return SIZE;
}

uint64_t tbg_body_comes(const struct tbg_body *body)
{
	return body->state == DATA ? body->left : 0;
}

/* One byte of framing: the state behind it. */
static uint8_t frame_byte(struct tbg_body *body, uint8_t c)
{
	uint8_t state = body->state;

	switch (state) {
	case SIZE:
		return size_byte(body, c);
	case SIZE_LF:
		body->digits = 0;
		if (c != '\n')
			return WRONG;
		return body->left ? DATA : TRAILER;
	case DATA_CR:
		return c == '\r' ? DATA_LF : WRONG;
	case DATA_LF:
		return c == '\n' ? SIZE : WRONG;
	}
	if (state != TRAILER_LF && ++body->framing > TBG_BODY_FRAMING_MAX)
		return WRONG;
	return state < SIZE_LF ? ext_byte(state, c) : trailer_byte(state, c);
}

/* The run of content at the start of len bytes: how long it is. */
static size_t content_take(struct tbg_body *body, size_t len)
{
	size_t n = len < body->left ? len : body->left;

	body->left -= n;
	body->content += n;
	if (!body->left)
		body->state = body->state == LENGTH ? END : DATA_CR;
	return n;
}

static enum tbg_parsed verdict(const struct tbg_body *body)
{
	if (body->state == WRONG)
		return TBG_PARSED_BAD;
	return body->state == END ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}

enum tbg_parsed tbg_body_read(struct tbg_body *body, const uint8_t *b,
			      size_t len, size_t *ret_used,
			      struct tbg_text *ret_data)
{
	size_t i = 0;

	*ret_data = (struct tbg_text){ 0 };
	while (i < len && body->state != END && body->state != WRONG &&
	       !ret_data->len) {
		if (body->state == LENGTH || body->state == DATA) {
			*ret_data = (struct tbg_text){ i, content_take(body, len - i) };
			i += ret_data->len;
		} else {
			body->state = frame_byte(body, b[i++]);
		}
	}
	body->taken += i;
	*ret_used = i;
	return verdict(body);
}

enum tbg_parsed tbg_body_skip(struct tbg_body *body, const uint8_t *b,
			      size_t len, size_t *ret_used)
{
	enum tbg_parsed p;
	size_t at = 0, used;
	struct tbg_text data;

	do {
		p = tbg_body_read(body, b + at, len - at, &used, &data);
		at += used;
	} while (p == TBG_PARSED_MORE && at < len);
	*ret_used = at;
	return p;
}
