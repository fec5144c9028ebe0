// SPDX-License-Identifier: GPL-2.0
/*
 * The values are byte for byte those that the upstream receives: a value that
 * seems equivalent may select another answer there, which would then be served
 * to all. Called for each lookup and each stored response; must never normalize
 * a value that is not forwarded normalized.
 */
#include <stdlib.h>
#include <string.h>

#include "http/freshness.h"
#include "http/token.h"
#include "http/vary.h"

#define CODINGS_MAX 32		/* of an Accept-Encoding; longer lists are not normalized */

/* Significant bytes of a weight "0.5" (RFC 9110 12.4.2); 0: it is 1; -1: invalid. */
static int weight_len(struct tbg_slice v)
{
	size_t len = v.len;

	if (!len || len > 5 || (*v.text != '0' && *v.text != '1') || (len > 1 && v.text[1] != '.'))
		return -1;
	for (size_t i = 2; i < len; i++)
		if (v.text[i] < '0' || v.text[i] > (*v.text == '1' ? '0' : '9'))
			return -1;
	while (len > 1 && (v.text[len - 1] == '0' || v.text[len - 1] == '.'))
		if (v.text[--len] == '.')
			break;
	return *v.text == '1' ? 0 : (int)len;
}

static size_t blanks(struct tbg_slice v, size_t at)
{
	while (at < v.len && (v.text[at] == ' ' || v.text[at] == '\t'))
		at++;
	return at;
}

/* Writes "GZip ; q=0.50" as "gzip;q=0.5". False: not a coding with a weight. */
static bool coding_put(struct tbg_lines *ret, struct tbg_slice one)
{
	struct tbg_slice weight;
	size_t at = 0;
	int len;

	for (; at < one.len && tbg_token_byte(one.text[at]); at++)
		tbg_lines_put(ret, &(char){ tbg_lower(one.text[at]) }, 1);
	if (!at)
		return false;
	at = blanks(one, at);
	if (at == one.len)
		return true;
	if (one.text[at] != ';')
		return false;
	at = blanks(one, at + 1);
	if (one.len - at < 2 || tbg_lower(one.text[at]) != 'q' || one.text[at + 1] != '=')
		return false;
	weight = (struct tbg_slice){ one.text + at + 2, one.len - at - 2 };
	len = weight_len(weight);
	if (len > 0) {
		tbg_lines_put(ret, ";q=", 3);
		tbg_lines_put(ret, weight.text, len);
	}
	return len >= 0;
}

static int compare(const void *a, const void *b)
{
	const struct tbg_slice *one = a, *other = b;
	size_t n = one->len < other->len ? one->len : other->len;

	return memcmp(one->text, other->text, n) ?:
	       (one->len > other->len) - (one->len < other->len);
}

/* Writes the elements of all lines, each followed by a comma. False: see above. */
static bool codings_put(struct tbg_lines *ret, const char *req, size_t req_len)
{
	struct tbg_elements all = { .b = req, .len = req_len };
	struct tbg_slice one;

	while (tbg_elements_next(&all, TBG_SLICE("Accept-Encoding"), &one)) {
		if (!coding_put(ret, one))
			return false;
		tbg_lines_put(ret, ",", 1);
	}
	return ret->len && !ret->failed;
}

bool tbg_vary_encoding(struct tbg_lines *ret, const char *req, size_t req_len)
{
	struct tbg_slice codings[CODINGS_MAX];
	struct tbg_lines list = { 0 };
	size_t nr = 0, at = 0;
	bool ok = codings_put(&list, req, req_len);

	while (ok && nr < CODINGS_MAX &&
	       tbg_list_next((struct tbg_slice){ list.text, list.len }, &at, &codings[nr]))
		nr++;
	ok = ok && nr < CODINGS_MAX;
	if (ok)
		qsort(codings, nr, sizeof(*codings), compare);
	for (size_t i = 0; ok && i < nr; i++) {
		tbg_lines_put(ret, ",", !!i);
		tbg_lines_put(ret, codings[i].text, codings[i].len);
	}
	tbg_lines_free(&list);
	return ok && !ret->failed;
}

/*
 * Whether this field of the request was forwarded (RFC 9110 7.6.1): a field that has
 * not reached the upstream has not selected its answer. TE is forwarded in part.
 */
static bool seen(struct tbg_slice name, const char *req, size_t req_len)
{
	enum tbg_name id = tbg_name_of(name);

	return id == TBG_NAME_TE ||
	       (!tbg_name_in(id, tbg_names_with(TBG_HOP)) &&
		!tbg_elements_have(req, req_len, TBG_SLICE("Connection"), name));
}

/* "name:first line\rsecond line\n"; no value has a CR or LF. Absent: "name\n". */
static void field_put(struct tbg_lines *ret, struct tbg_slice wanted,
		      const char *req, size_t req_len)
{
	struct tbg_slice name, v;
	const char *mark = ":";
	size_t at = 0;

	/* the name's letters are lowered, so that "Foo" and "foo" are one */
	for (size_t i = 0; i < wanted.len; i++)
		tbg_lines_put(ret, &(char){ tbg_lower(wanted.text[i]) }, 1);
	if (!seen(wanted, req, req_len))
		req_len = 0;
	if (tbg_name_of(wanted) == TBG_NAME_ACCEPT_ENCODING) {
		size_t name_len = ret->len;

		tbg_lines_put(ret, mark, 1);
		if (tbg_vary_encoding(ret, req, req_len))
			req_len = 0;
		else
			ret->len = name_len;
	}
	while (tbg_field_next(req, req_len, &at, &name, &v)) {
		if (!tbg_slice_same(name, wanted))
			continue;
		tbg_lines_put(ret, mark, 1);	/* an empty value differs from none */
		tbg_lines_put(ret, v.text, v.len);
		mark = "\r";
	}
	tbg_lines_put(ret, "\n", 1);
}

bool tbg_vary_make(struct tbg_lines *ret, const char *head, size_t head_len,
		     const char *req, size_t req_len)
{
	struct tbg_elements all = { .b = head, .len = head_len };
	struct tbg_slice one;

	while (tbg_elements_next(&all, TBG_SLICE("Vary"), &one))
		field_put(ret, one, req, req_len);
	return !ret->failed;
}
