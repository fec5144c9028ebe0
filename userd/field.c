// SPDX-License-Identifier: GPL-2.0
/*
 * Fields as text. What walks over them relies on a parser (parse.c,
 * response.c) having accepted the head: here nothing is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"
#include "token.h"

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

bool tbg_field_next(const char *b, size_t len, size_t *at,
		    struct tbg_value *ret_name, struct tbg_value *ret_value)
{
	const char *line = b + *at, *end, *until, *colon, *value;
	const char *lf = *at < len ? memchr(line, '\n', len - *at) : NULL;

	if (!lf)
		return false;
	end = lf > line && lf[-1] == '\r' ? lf - 1 : lf;
	colon = memchr(line, ':', end - line);
	if (end == line || !colon)
		return false;
	for (value = colon + 1; value < end && blank(*value); value++)
		;
	while (end > value && blank(end[-1]))
		end--;
	for (until = colon; until > line && blank(until[-1]); until--)
		;
	*ret_name = (struct tbg_value){ line, until - line };
	*ret_value = (struct tbg_value){ value, end - value };
	*at = lf + 1 - b;
	return true;
}

bool tbg_field_find(const char *b, size_t len, const char *name,
		    struct tbg_value *ret_value)
{
	struct tbg_value n, v;
	size_t at = 0;

	while (tbg_field_next(b, len, &at, &n, &v)) {
		if (!tbg_value_is(n, name))
			continue;
		*ret_value = v;
		return true;
	}
	return false;
}

bool tbg_value_in(struct tbg_value v, const struct tbg_value *words, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (tbg_value_same(v, words[i]))
			return true;
	return false;
}

bool tbg_list_next(struct tbg_value list, size_t *at, struct tbg_value *ret)
{
	const char *p = list.text + *at, *end = list.text + list.len, *from;
	bool quoted = false;

	while (p < end && (blank(*p) || *p == ','))
		p++;
	if (p >= end)
		return false;
	for (from = p; p < end && (quoted || *p != ','); p++) {
		if (*p == '\\' && quoted && p + 1 < end)
			p++;
		else if (*p == '"')
			quoted = !quoted;
	}
	*at = p - list.text;
	while (p > from && blank(p[-1]))
		p--;
	*ret = (struct tbg_value){ from, p - from };
	return true;
}

bool tbg_elements_next(struct tbg_elements *e, struct tbg_value name,
		       struct tbg_value *ret)
{
	struct tbg_value field;

	while (!e->line.len || !tbg_list_next(e->line, &e->in, ret)) {
		do
			if (!tbg_field_next(e->b, e->len, &e->at, &field, &e->line))
				return false;
		while (!tbg_value_same(field, name));
		e->in = 0;
	}
	return true;
}

bool tbg_elements_have(const char *b, size_t len, struct tbg_value name,
		       struct tbg_value one)
{
	struct tbg_elements all = { .b = b, .len = len };
	struct tbg_value v;

	while (tbg_elements_next(&all, name, &v))
		if (tbg_value_same(v, one))
			return true;
	return false;
}

bool tbg_list_has(struct tbg_value list, const char *word)
{
	struct tbg_value v;
	size_t at = 0;

	while (tbg_list_next(list, &at, &v))
		if (tbg_value_is(v, word))
			return true;
	return false;
}

bool tbg_digits_parse(struct tbg_value v, uint64_t *ret)
{
	uint64_t n = 0;

	if (!v.len || v.len > 18)
		return false;
	for (size_t i = 0; i < v.len; i++) {
		if (v.text[i] < '0' || v.text[i] > '9')
			return false;
		n = n * 10 + v.text[i] - '0';
	}
	*ret = n;
	return true;
}

struct tbg_value tbg_digits_make(uint64_t n, char b[TBG_DIGITS])
{
	char *end = b + TBG_DIGITS, *at = end;

	do
		*--at = '0' + n % 10;
	while (n /= 10);
	return (struct tbg_value){ at, end - at };
}

bool tbg_token_valid(const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!tbg_token_byte(b[i]))
			return false;
	return len;
}

bool tbg_value_valid(const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!tbg_value_byte(b[i]))
			return false;
	return true;
}

#define LINE_USUAL 128		/* bytes of one that need not be made twice */

static bool room_grow(struct tbg_lines *l, size_t more)
{
	size_t room = l->room ?: 512;
	char *text;

	if (l->failed)
		return false;
	while (room < l->len + more)
		room *= 2;
	text = realloc(l->text, room);
	if (!text) {
		l->failed = true;
		return false;
	}
	l->text = text;
	l->room = room;
	return true;
}

static inline bool room_make(struct tbg_lines *l, size_t more)
{
	return (l->len + more <= l->room && !l->failed) || room_grow(l, more);
}

/* There is room. */
static inline void put(struct tbg_lines *l, const void *text, size_t len)
{
	memcpy(l->text + l->len, text, len);
	l->len += len;
}

void tbg_lines_put(struct tbg_lines *l, const void *text, size_t len)
{
	if (len && room_make(l, len))
		put(l, text, len);
}

char *tbg_lines_take(struct tbg_lines *l, size_t len)
{
	if (!room_make(l, len))
		return NULL;
	l->len += len;
	return l->text + l->len - len;
}

void tbg_lines_number(struct tbg_lines *l, uint64_t n)
{
	char digits[TBG_DIGITS];
	struct tbg_value v = tbg_digits_make(n, digits);

	tbg_lines_put(l, v.text, v.len);
}

void tbg_lines_add(struct tbg_lines *l, const char *format, ...)
{
	int room = LINE_USUAL, n = -1;
	va_list args;

	while (n < 0 && room_make(l, room)) {
		va_start(args, format);
		n = vsnprintf(l->text + l->len, room, format, args);
		va_end(args);
		if (n < 0)
			return;
		if (n >= room) {	/* once more, with as much */
			room = n + 1;
			n = -1;
		}
	}
	if (n > 0)
		l->len += n;
}

void tbg_lines_field(struct tbg_lines *l, struct tbg_value name,
		     struct tbg_value value)
{
	if (!room_make(l, name.len + value.len + 4))
		return;
	put(l, name.text, name.len);
	put(l, ": ", 2);
	if (value.len)
		put(l, value.text, value.len);
	put(l, "\r\n", 2);
}

void tbg_lines_copy(struct tbg_lines *l, struct tbg_value name, const char *b, size_t len)
{
	struct tbg_value one, v;
	size_t at = 0;

	while (tbg_field_next(b, len, &at, &one, &v))
		if (tbg_value_same(one, name))
			tbg_lines_field(l, name, v);
}

void tbg_lines_free(struct tbg_lines *l)
{
	free(l->text);
	*l = (struct tbg_lines){ 0 };
}
