// SPDX-License-Identifier: GPL-2.0
/*
 * All lines of a field are one list without blanks around its commas. Of the
 * fields of content negotiation more is known: what is not said in letters of
 * one case alone, and where order says nothing. That of languages is left as it
 * is: servers take the first of equals for the wanted one (RFC 9110 12.5.4).
 */
#include <stdlib.h>
#include <string.h>

#include "http/freshness.h"
#include "http/vary.h"

#define SORTED_MAX 32		/* elements; longer lists stay as they are */

struct known {
	const char *name;
	bool blanks;		/* and none around ";" and "=" either */
	bool caseless;
	bool sorted;
};

static const struct known known[] = {
	{ "Accept", true, false, true },
	{ "Accept-Charset", true, true, true },
	{ "Accept-Encoding", true, true, true },
	{ "Accept-Language", true, true, false },
};

static const struct known *known_find(struct tbg_value name)
{
	static const struct known none;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (tbg_value_is(name, known[i].name))
			return &known[i];
	return &none;
}

/*
 * A weight at the end of what begins at that offset: the zeros behind its point
 * say nothing, nor does a weight of 1 (RFC 9110 12.4.2).
 */
static void weight_shorten(struct tbg_lines *l, size_t from)
{
	size_t at = l->len, len = l->len;

	while (at > from && l->text[at - 1] != ';')
		at--;
	if (l->failed || at == from || len - at < 3 || tbg_lower(l->text[at]) != 'q' ||
	    l->text[at + 1] != '=')
		return;
	if (memchr(l->text + at, '.', len - at))
		while (l->text[len - 1] == '0' || l->text[len - 1] == '.')
			if (l->text[--len] == '.')
				break;
	l->len = len == at + 3 && l->text[at + 2] == '1' ? at - 1 : len;
}

static void element_put(struct tbg_lines *ret, struct tbg_value one,
			const struct known *k)
{
	size_t from = ret->len;
	bool quoted = false;

	for (size_t i = 0; i < one.len; i++) {
		char c = one.text[i];

		quoted ^= c == '"';
		if (!quoted && k->blanks && (c == ' ' || c == '\t'))
			continue;
		c = !quoted && k->caseless ? tbg_lower(c) : c;
		tbg_lines_put(ret, &c, 1);
	}
	if (k->blanks)
		weight_shorten(ret, from);
}

static int compare(const void *a, const void *b)
{
	const struct tbg_value *one = a, *other = b;
	size_t n = one->len < other->len ? one->len : other->len;

	return memcmp(one->text, other->text, n) ?:
	       (one->len > other->len) - (one->len < other->len);
}

/* The list that begins at that offset, in the order of its elements' bytes. */
static void list_sort(struct tbg_lines *l, size_t from)
{
	struct tbg_value all[SORTED_MAX], list;
	struct tbg_lines copy = { 0 };
	size_t at = 0, nr = 0, to = from;

	if (l->failed || from == l->len)
		return;
	tbg_lines_put(&copy, l->text + from, l->len - from);
	list = (struct tbg_value){ copy.text, copy.len };
	while (nr < SORTED_MAX && tbg_list_next(list, &at, &all[nr]))
		nr++;
	l->failed = copy.failed;
	if (nr < SORTED_MAX && !l->failed) {
		qsort(all, nr, sizeof(*all), compare);
		for (size_t i = 0; i < nr; i++) {
			if (i)
				l->text[to++] = ',';
			memcpy(l->text + to, all[i].text, all[i].len);
			to += all[i].len;
		}
	}
	tbg_lines_free(&copy);
}

/*
 * Whether who answered has seen that field of the request (RFC 9110 7.6.1): what has
 * not reached the upstream has not selected its answer. TE does in part.
 */
static bool seen(struct tbg_value name, const char *req, size_t req_len)
{
	enum tbg_name id = tbg_name_of(name);

	return id == TBG_NAME_TE ||
	       (!tbg_name_in(id, TBG_HOPS) &&
		!tbg_elements_have(req, req_len, TBG_VALUE("Connection"), name));
}

static void field_put(struct tbg_lines *ret, struct tbg_value wanted,
		      const char *req, size_t req_len)
{
	const struct known *k = known_find(wanted);
	struct tbg_value name, v, one;
	const char *comma = "";
	bool present = false;
	size_t at = 0, from;

	/* the name's letters are lowered, so that "Foo" and "foo" are one */
	for (size_t i = 0; i < wanted.len; i++)
		tbg_lines_put(ret, &(char){ tbg_lower(wanted.text[i]) }, 1);
	from = ret->len + 1;
	if (!seen(wanted, req, req_len))
		req_len = 0;
	while (tbg_field_next(req, req_len, &at, &name, &v)) {
		size_t in = 0;

		if (!tbg_value_same(name, wanted))
			continue;
		if (!present)		/* if empty: not as absent */
			tbg_lines_put(ret, ":", 1);
		present = true;
		while (tbg_list_next(v, &in, &one)) {
			tbg_lines_put(ret, comma, strlen(comma));
			element_put(ret, one, k);
			comma = ",";
		}
	}
	if (present && k->sorted)
		list_sort(ret, from);
	tbg_lines_put(ret, "\n", 1);
}

bool tbg_vary_make(struct tbg_lines *ret, const char *head, size_t head_len,
		     const char *req, size_t req_len)
{
	struct tbg_elements all = { .b = head, .len = head_len };
	struct tbg_value one;

	while (tbg_elements_next(&all, TBG_VALUE("Vary"), &one))
		field_put(ret, one, req, req_len);
	return !ret->failed;
}
