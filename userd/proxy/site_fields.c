// SPDX-License-Identifier: GPL-2.0
/*
 * An added field replaces the upstream's field of the same name: browsers ignore
 * X-Frame-Options, for example, if it occurs twice. No I/O.
 */
#include "proxy/site_fields.h"

#include <string.h>
#include <strings.h>

#define CONTROL "Cache-Control: "

/* Each line of these fields is independent, so adding one does not replace others. */
static bool repeatable(struct tbg_slice name)
{
	return tbg_slice_is(name, "Set-Cookie") || tbg_slice_is(name, "Link");
}

static bool begins(struct tbg_slice v, const char *word)
{
	size_t len = strlen(word);

	return v.len >= len && !strncasecmp(v.text, word, len) &&
	       (v.len == len || v.text[len] == '=' || v.text[len] == ' ');
}

/*
 * Returns whether the response is for one client only: the location must not change
 * that. A list of fields (private="Set-Cookie") counts, too.
 */
static bool for_one_client(const char *fields, size_t len)
{
	struct tbg_elements e = { .b = fields, .len = len };
	struct tbg_slice one;

	while (tbg_elements_next(&e, TBG_SLICE("Cache-Control"), &one))
		if (begins(one, "private") || begins(one, "no-store"))
			return true;
	return false;
}

static void control_remove(struct tbg_site_fields *f)
{
	const char *end = strstr(f->lines, "\r\n") + 2;

	f->len -= end - f->lines;
	memmove(f->lines, end, f->len + 1);
	f->control = false;
}

void tbg_site_fields_make(struct tbg_site_fields *ret, const struct tbg_location *location,
			  unsigned int status, const char *fields, size_t len)
{
	struct tbg_slice type = { "", 0 };
	char text[128];

	ret->lines[0] = ret->len = 0;
	ret->control = false;
	if (!location || status < 200)
		return;
	tbg_field_find(fields, len, "Content-Type", &type);
	if (type.len >= sizeof(text))
		type.len = sizeof(text) - 1;
	memcpy(text, type.text, type.len);
	text[type.len] = 0;
	ret->len = tbg_location_fields(location, status, type.len ? text : NULL, ret->lines);
	ret->control = !strncmp(ret->lines, CONTROL, strlen(CONTROL));
	if (ret->control && for_one_client(fields, len))
		control_remove(ret);
}

void tbg_site_fields_error(struct tbg_site_fields *ret, const struct tbg_location *location,
			   unsigned int status, const char *type)
{
	ret->control = false;
	ret->len = tbg_location_fields(location, status, type, ret->lines);
}

bool tbg_site_fields_replace(const struct tbg_site_fields *f, struct tbg_slice name)
{
	struct tbg_slice own, v;
	size_t at = 0;

	if (f->control && (tbg_slice_is(name, "Expires") || tbg_slice_is(name, "Pragma")))
		return true;
	while (tbg_field_next(f->lines, f->len, &at, &own, &v))
		if (tbg_slice_same(own, name))
			return !repeatable(name);
	return false;
}
