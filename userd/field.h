/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Field lines of a head that a parser has accepted: walking over them and
 * over the lists in their values, and writing new ones. Pure but for the
 * memory of struct tbg_lines.
 */
#ifndef TBG_USERD_FIELD_H
#define TBG_USERD_FIELD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "respond.h"

#define TBG_VALUE(text) ((struct tbg_value){ text, sizeof(text) - 1 })

/*
 * The next line of b[len] from *at on, which begins at 0; false at the empty
 * line or the end. Lines end in LF or CRLF. Name and value come without the white
 * space that follows the name or is around the value.
 */
bool tbg_field_next(const char *b, size_t len, size_t *at,
		    struct tbg_value *ret_name, struct tbg_value *ret_value);

/* The first field of that name. False: there is none. */
bool tbg_field_find(const char *b, size_t len, const char *name,
		    struct tbg_value *ret_value);

/*
 * Letters of either case are the same. Inline: where a word stands its length and
 * its first letter are known, and these tell nearly all names apart.
 */
static inline bool tbg_value_same(struct tbg_value a, struct tbg_value b)
{
	if (a.len != b.len || (a.len && (*a.text ^ *b.text) & ~0x20))
		return false;
	return !strncasecmp(a.text, b.text, a.len);
}

static inline bool tbg_value_is(struct tbg_value v, const char *word)
{
	return tbg_value_same(v, (struct tbg_value){ word, strlen(word) });
}

bool tbg_value_in(struct tbg_value v, const struct tbg_value *words, size_t nr);

static inline char tbg_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/* The next element of a comma-separated list; quoted strings are whole. */
bool tbg_list_next(struct tbg_value list, size_t *at, struct tbg_value *ret);

/* The elements of all lines of a list field: of { .b, .len }, the first is next. */
struct tbg_elements {
	const char *b;
	size_t len, at, in;
	struct tbg_value line;
};

bool tbg_elements_next(struct tbg_elements *e, struct tbg_value name,
		       struct tbg_value *ret);

/* Whether any of them is that one. */
bool tbg_elements_have(const char *b, size_t len, struct tbg_value name,
		       struct tbg_value one);

/* Whether a list has that element. */
bool tbg_list_has(struct tbg_value list, const char *word);

/* 1 to 18 digits; false: something else. */
bool tbg_digits_parse(struct tbg_value v, uint64_t *ret);

#define TBG_DIGITS 20		/* of the largest number */

/* The number's digits, at the end of b. */
struct tbg_value tbg_digits_make(uint64_t n, char b[TBG_DIGITS]);

/* Whether bytes are all of a token, which is not empty, or of a field value. */
bool tbg_token_valid(const char *b, size_t len);
bool tbg_value_valid(const char *b, size_t len);

/* Text that grows. After failed (no memory) it stays as it is. */
struct tbg_lines {
	char *text;
	size_t len, room;
	bool failed;
};

void tbg_lines_put(struct tbg_lines *l, const void *text, size_t len);
/* The next len bytes, which the caller writes; NULL: no memory, l->failed is set. */
char *tbg_lines_take(struct tbg_lines *l, size_t len);
void tbg_lines_number(struct tbg_lines *l, uint64_t n);
__attribute__((format(printf, 2, 3)))
void tbg_lines_add(struct tbg_lines *l, const char *format, ...);
void tbg_lines_field(struct tbg_lines *l, struct tbg_value name,
		     struct tbg_value value);
/* All lines of that name in b[len]. */
void tbg_lines_copy(struct tbg_lines *l, struct tbg_value name, const char *b, size_t len);
void tbg_lines_free(struct tbg_lines *l);

static inline void tbg_lines_text(struct tbg_lines *l, const char *text)
{
	tbg_lines_put(l, text, strlen(text));
}

#endif
