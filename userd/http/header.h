/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Field lines of a head that a parser has accepted: splitting, iterating over
 * lines and over lists in their values, writing new ones. No I/O; allocates
 * memory for struct tbg_fields and struct tbg_lines.
 */
#ifndef TBG_USERD_HTTP_HEADER_H
#define TBG_USERD_HTTP_HEADER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "http/field_names.h"
#include "http/reply.h"

#define TBG_SLICE(text) ((struct tbg_slice){ text, sizeof(text) - 1 })

/*
 * The next line of b[len] from *at on, which starts at 0; false at the empty line
 * or the end. Lines end in LF or CRLF. The white space after the name and around
 * the value is removed.
 */
bool tbg_field_next(const char *b, size_t len, size_t *at,
		    struct tbg_slice *ret_name, struct tbg_slice *ret_value);

/* The first field of that name. False: there is none. */
bool tbg_field_find(const char *b, size_t len, const char *name,
		    struct tbg_slice *ret_value);

/*
 * Compares without regard to case. Inline: for a constant, length and first
 * letter are known to the compiler, and these differ for nearly all names.
 */
static inline bool tbg_slice_same(struct tbg_slice a, struct tbg_slice b)
{
	if (a.len != b.len || (a.len && (*a.text ^ *b.text) & ~0x20))
		return false;
	return !a.len || !strncasecmp(a.text, b.text, a.len);
}

static inline bool tbg_slice_is(struct tbg_slice v, const char *word)
{
	return tbg_slice_same(v, (struct tbg_slice){ word, strlen(word) });
}

static inline char tbg_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

/* The next element of a comma-separated list; quoted strings are not split. */
bool tbg_list_next(struct tbg_slice list, size_t *at, struct tbg_slice *ret);

enum tbg_name tbg_name_of(struct tbg_slice name);
/* The usual spelling of a name; OTHER: NULL. */
const char *tbg_name_text(enum tbg_name id);

struct tbg_field_line {
	struct tbg_slice name, value;
	enum tbg_name id;		/* TBG_NAME_OTHER: not in the table */
};

/* The lines of a head in their order, split once. They point into its text. */
struct tbg_fields {
	struct tbg_field_line *all;
	uint32_t nr, room;
	uint64_t has;			/* set of their names */
};

/*
 * Reads the lines of b[len] up to the empty line, the end, or an invalid line.
 * Returns the number of bytes read, or -ENOMEM. Replaces what was in f and reuses
 * its memory.
 */
long tbg_fields_read(struct tbg_fields *f, const char *b, size_t len);
void tbg_fields_free(struct tbg_fields *f);

/* The next line with this name after `last`, or the first (NULL); NULL: none. */
const struct tbg_field_line *tbg_fields_next(const struct tbg_fields *f,
					const struct tbg_field_line *last, enum tbg_name id);

/* Whether the lists of this name contain the element. */
bool tbg_fields_have(const struct tbg_fields *f, enum tbg_name id, struct tbg_slice one);

/* Iterator over the elements of all lines of a list field; begins as { .b, .len }. */
struct tbg_elements {
	const char *b;
	size_t len, at, in;
	struct tbg_slice line;
};

bool tbg_elements_next(struct tbg_elements *e, struct tbg_slice name,
		       struct tbg_slice *ret);

/* Whether one of the elements is this one. */
bool tbg_elements_have(const char *b, size_t len, struct tbg_slice name,
		       struct tbg_slice one);

/* Parses 1 to 18 digits; false: something else. */
bool tbg_digits_parse(struct tbg_slice v, uint64_t *ret);

#define TBG_DIGITS 20		/* of the largest number */

/* Writes the digits of a number at the end of b; returns their beginning. */
struct tbg_slice tbg_digits_make(uint64_t n, char b[TBG_DIGITS]);

/* Whether the bytes are a non-empty token, or valid in a field value. */
bool tbg_token_valid(const char *b, size_t len);
bool tbg_value_valid(const char *b, size_t len);

/* A growing text. Once `failed` (no memory) is set, it does not change any more. */
struct tbg_lines {
	char *text;
	size_t len, room;
	bool failed;
};

/* Reserves this many bytes more; false: no memory. */
bool tbg_lines_grow(struct tbg_lines *l, size_t more);

static inline bool tbg_lines_room(struct tbg_lines *l, size_t more)
{
	return (l->len + more <= l->room && !l->failed) || tbg_lines_grow(l, more);
}

/* Inline: most texts are short and of constant length. */
static inline void tbg_lines_put(struct tbg_lines *l, const void *text, size_t len)
{
	if (!len || !tbg_lines_room(l, len))
		return;
	memcpy(l->text + l->len, text, len);
	l->len += len;
}

/* Appends len bytes, which the caller writes; NULL: no memory, l->failed is set. */
char *tbg_lines_take(struct tbg_lines *l, size_t len);
void tbg_lines_number(struct tbg_lines *l, uint64_t n);
__attribute__((format(printf, 2, 3)))
void tbg_lines_add(struct tbg_lines *l, const char *format, ...);
void tbg_lines_field(struct tbg_lines *l, struct tbg_slice name,
		     struct tbg_slice value);
/* Copies all lines with this name. */
void tbg_lines_copy(struct tbg_lines *l, const struct tbg_fields *f, enum tbg_name id);
void tbg_lines_free(struct tbg_lines *l);

static inline void tbg_lines_text(struct tbg_lines *l, const char *text)
{
	tbg_lines_put(l, text, strlen(text));
}

#endif
