// SPDX-License-Identifier: GPL-2.0
/*
 * Fields as text. Relies on a parser (http/request.c, response.c) that has
 * accepted the head: refuses nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/header.h"
#include "http/token.h"

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

bool tbg_field_next(const char *b, size_t len, size_t *at,
		    struct tbg_slice *ret_name, struct tbg_slice *ret_value)
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
	*ret_name = (struct tbg_slice){ line, until - line };
	*ret_value = (struct tbg_slice){ value, end - value };
	*at = lf + 1 - b;
	return true;
}

bool tbg_field_find(const char *b, size_t len, const char *name,
		    struct tbg_slice *ret_value)
{
	struct tbg_slice n, v;
	size_t at = 0;

	while (tbg_field_next(b, len, &at, &n, &v)) {
		if (!tbg_slice_is(n, name))
			continue;
		*ret_value = v;
		return true;
	}
	return false;
}

/* Names */

#define SLOTS 256		/* hash slots, a multiple of the number of names */

static const struct tbg_slice names[] = {
#define X(name, text, flags) [TBG_NAME_##name] = { text, sizeof(text) - 1 },
	TBG_NAME_LIST(X)
#undef X
};

static uint8_t slots[SLOTS];	/* enum tbg_name by hash */

static unsigned int slot_of(struct tbg_slice name)
{
	return name.len * 11 + (name.text[0] | 0x20) * 5 + (name.text[name.len - 1] | 0x20) * 3 +
	       (name.text[name.len / 2] | 0x20);
}

__attribute__((constructor)) static void slots_init(void)
{
	for (unsigned int id = 1; id < TBG_NAME_NR; id++) {
		unsigned int at = slot_of(names[id]);

		while (slots[at % SLOTS])
			at++;
		slots[at % SLOTS] = id;
	}
}

enum tbg_name tbg_name_of(struct tbg_slice name)
{
	unsigned int at, id;

	if (!name.len)
		return TBG_NAME_OTHER;
	for (at = slot_of(name); (id = slots[at % SLOTS]); at++)
		if (tbg_slice_same(names[id], name))
			break;
	return id;
}

const char *tbg_name_text(enum tbg_name id)
{
	return names[id].text;
}

#define FIELDS_USUAL 24		/* of a head */

static bool fields_grow(struct tbg_fields *f)
{
	uint32_t room = f->room ? 2 * f->room : FIELDS_USUAL;
	struct tbg_field_line *all = reallocarray(f->all, room, sizeof(*all));

	if (!all)
		return false;
	f->all = all;
	f->room = room;
	return true;
}

long tbg_fields_read(struct tbg_fields *f, const char *b, size_t len)
{
	struct tbg_field_line one;
	size_t at = 0;

	f->nr = 0;
	f->has = 0;
	while (tbg_field_next(b, len, &at, &one.name, &one.value)) {
		if (f->nr == f->room && !fields_grow(f))
			return -ENOMEM;
		one.id = tbg_name_of(one.name);
		f->has |= 1ull << one.id;
		f->all[f->nr++] = one;
	}
	return at;
}

void tbg_fields_free(struct tbg_fields *f)
{
	free(f->all);
	*f = (struct tbg_fields){ 0 };
}

const struct tbg_field_line *tbg_fields_next(const struct tbg_fields *f,
					const struct tbg_field_line *last, enum tbg_name id)
{
	const struct tbg_field_line *one = last ? last + 1 : f->all;

	if (!tbg_name_in(id, f->has))
		return NULL;
	while (one < f->all + f->nr && one->id != id)
		one++;
	return one < f->all + f->nr ? one : NULL;
}

bool tbg_fields_have(const struct tbg_fields *f, enum tbg_name id, struct tbg_slice one)
{
	const struct tbg_field_line *line = NULL;
	struct tbg_slice v;

	while ((line = tbg_fields_next(f, line, id)))
		for (size_t at = 0; tbg_list_next(line->value, &at, &v);)
			if (tbg_slice_same(v, one))
				return true;
	return false;
}

bool tbg_list_next(struct tbg_slice list, size_t *at, struct tbg_slice *ret)
{
	const char *p = list.text + *at, *end = list.text + list.len, *from;
	bool quoted = false;

	while (p < end && (blank(*p) || *p == ','))
		p++;
	if (p >= end)
		return false;
	for (from = p; p < end && *p != ',' && *p != '"'; p++)
		;		/* the usual case, to the end of the line */
	for (; p < end && (quoted || *p != ','); p++) {
		if (*p == '\\' && quoted && p + 1 < end)
			p++;
		else if (*p == '"')
			quoted = !quoted;
	}
	*at = p - list.text;
	while (p > from && blank(p[-1]))
		p--;
	*ret = (struct tbg_slice){ from, p - from };
	return true;
}

bool tbg_elements_next(struct tbg_elements *e, struct tbg_slice name,
		       struct tbg_slice *ret)
{
	struct tbg_slice field;

	while (!e->line.len || !tbg_list_next(e->line, &e->in, ret)) {
		do
			if (!tbg_field_next(e->b, e->len, &e->at, &field, &e->line))
				return false;
		while (!tbg_slice_same(field, name));
		e->in = 0;
	}
	return true;
}

bool tbg_elements_have(const char *b, size_t len, struct tbg_slice name,
		       struct tbg_slice one)
{
	struct tbg_elements all = { .b = b, .len = len };
	struct tbg_slice v;

	while (tbg_elements_next(&all, name, &v))
		if (tbg_slice_same(v, one))
			return true;
	return false;
}

bool tbg_digits_parse(struct tbg_slice v, uint64_t *ret)
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

struct tbg_slice tbg_digits_make(uint64_t n, char b[TBG_DIGITS])
{
	char *end = b + TBG_DIGITS, *at = end;

	do
		*--at = '0' + n % 10;
	while (n /= 10);
	return (struct tbg_slice){ at, end - at };
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

#define LINE_USUAL 128		/* bytes of a line that is formatted only once */

bool tbg_lines_grow(struct tbg_lines *l, size_t more)
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

/* Appends; the room was reserved before. */
static inline void put(struct tbg_lines *l, const void *text, size_t len)
{
	memcpy(l->text + l->len, text, len);
	l->len += len;
}

char *tbg_lines_take(struct tbg_lines *l, size_t len)
{
	if (!tbg_lines_room(l, len))
		return NULL;
	l->len += len;
	return l->text + l->len - len;
}

void tbg_lines_number(struct tbg_lines *l, uint64_t n)
{
	char digits[TBG_DIGITS];
	struct tbg_slice v = tbg_digits_make(n, digits);

	tbg_lines_put(l, v.text, v.len);
}

void tbg_lines_add(struct tbg_lines *l, const char *format, ...)
{
	int room = LINE_USUAL, n = -1;
	va_list args;

	while (n < 0 && tbg_lines_room(l, room)) {
		va_start(args, format);
		n = vsnprintf(l->text + l->len, room, format, args);
		va_end(args);
		if (n < 0)
			return;
		if (n >= room) {	/* again, with enough room */
			room = n + 1;
			n = -1;
		}
	}
	if (n > 0)
		l->len += n;
}

void tbg_lines_field(struct tbg_lines *l, struct tbg_slice name,
		     struct tbg_slice value)
{
	if (!tbg_lines_room(l, name.len + value.len + 4))
		return;
	put(l, name.text, name.len);
	put(l, ": ", 2);
	if (value.len)
		put(l, value.text, value.len);
	put(l, "\r\n", 2);
}

void tbg_lines_copy(struct tbg_lines *l, const struct tbg_fields *f, enum tbg_name id)
{
	const struct tbg_field_line *one = NULL;

	while ((one = tbg_fields_next(f, one, id)))
		tbg_lines_field(l, names[id], one->value);
}

void tbg_lines_free(struct tbg_lines *l)
{
	free(l->text);
	*l = (struct tbg_lines){ 0 };
}
