// SPDX-License-Identifier: GPL-2.0
/*
 * Fields added to answers: Expires, Cache-Control and fields of the site, for
 * a scope and its media types. Called while a location is made; must refuse
 * fields that the daemon writes itself.
 */
#include "config/build.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "http/header.h"
#include "http/token.h"
#include "os/units.h"

bool tbg_expires_set(struct tbg_target *t, const char *v)
{
	uint64_t seconds;
	char text[48];

	if (!strcmp(v, "off"))
		strcpy(text, "");
	else if (!strcmp(v, "epoch"))
		strcpy(text, "no-cache");
	else if (!strcmp(v, "max"))
		strcpy(text, "max-age=315360000");
	else if (tbg_value_seconds(v, &seconds))
		sprintf(text, "max-age=%llu", (unsigned long long)seconds);
	else
		return false;
	t->header_rules->expires = tbg_sites_text(t->sites, text);
	return t->header_rules->expires;
}

bool tbg_cache_control_set(struct tbg_target *t, const char *v)
{
	if (!strcmp(v, "off"))
		v = "";
	else if (!tbg_field_value(v) || strlen(v) > TBG_CONTROL_MAX)
		return false;
	t->header_rules->cache_control = tbg_sites_text(t->sites, v);
	return t->header_rules->cache_control;
}

static bool header_valid(const char *v)
{
	size_t len = strcspn(v, ":");
	const char *value;

	if (!len || !v[len])
		return false;
	for (size_t i = 0; i < len; i++)
		if (!tbg_token_byte(v[i]))
			return false;
	/*
	 * fields that the daemon writes, framing, and those that a 304 repeats (RFC 9110
	 * 15.4.5)
	 */
	if (tbg_name_in(tbg_name_of((struct tbg_slice){ v, len }),
			tbg_names_with(TBG_FRAMING | TBG_SET_HERE)))
		return false;
	value = v + len + 1;
	while (*value == ' ')
		value++;
	return tbg_field_value(value);
}

bool tbg_headers_set(struct tbg_target *t, const char *v)
{
	return header_valid(v) && tbg_text_list_add(t, &t->header_rules->headers,
						    &t->header_rules->headers_nr, v);
}

static struct tbg_header_rules *header_rules_add(struct tbg_target *t)
{
	struct tbg_location *l = t->location;
	struct tbg_header_rules *more;

	more = tbg_list_grow(t, l->header_rules, l->header_rules_nr, sizeof(*more));
	if (!more)
		return NULL;
	l->header_rules = more;
	return &more[l->header_rules_nr++];
}

/* "image/" followed by a star is kept as "image/". */
static const char *type_pattern(struct tbg_sites *s, const char *title)
{
	char *ret = tbg_sites_text(s, title);
	char *star = ret ? strchr(ret, '*') : NULL;

	if (star)
		*star = 0;
	return ret;
}

/* Applies a scope's media types: either the complete ones or those that end in a star. */
static int types_apply(struct tbg_build *m, struct tbg_target *t, const struct tbg_scope *scope,
		       bool whole)
{
	int err = 0;

	/* the file itself may have ten thousand hosts below, but no media type */
	for (unsigned int i = 0; scope->types && i < scope->below_nr && !err; i++) {
		const struct tbg_scope *type = scope->below[i];

		if (type->kind != TBG_SCOPE_TYPE || whole != !strchr(type->title, '*'))
			continue;
		t->header_rules = header_rules_add(t);
		if (!t->header_rules ||
		    !(t->header_rules->type = type_pattern(t->sites, type->title)))
			return -ENOMEM;
		err = tbg_scope_apply(m, t, type, false);
	}
	return err;
}

int tbg_level_apply(struct tbg_build *m, struct tbg_target *t, const struct tbg_scope *scope)
{
	int err;

	t->header_rules = header_rules_add(t);
	err = t->header_rules ? tbg_scope_apply(m, t, scope, false) : -ENOMEM;
	err = err ?: types_apply(m, t, scope, false);
	return err ?: types_apply(m, t, scope, true);
}
