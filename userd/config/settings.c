// SPDX-License-Identifier: GPL-2.0
/*
 * Values of settings: stores a value in its member, checks it when it is read,
 * and applies defaults and the settings of a scope. Called while the
 * configuration is read and sites are made; the settings are in table.c.
 */
#include "config/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"
#include "os/units.h"

bool tbg_setting_upstreams(const struct tbg_setting *s)
{
	return tbg_setting_row(s->row)->scopes & TBG_SCOPE_UPSTREAM;
}

/* --- a value goes into its field ------------------------------------------ */

static void *object_of(const struct tbg_target *t, enum tbg_setting_object object)
{
	switch (object) {
	case TBG_OBJECT_OPTIONS:
		return t->options;
	case TBG_OBJECT_LOCATION:
		return t->location;
	case TBG_OBJECT_HEADERS:
		return t->header_rules;
	case TBG_OBJECT_UPSTREAM:
		return t->upstream;
	case TBG_OBJECT_CGI:
		return t->cgi;
	case TBG_OBJECT_MODULE:
		return t->module;
	case TBG_OBJECT_SITE:
		break;
	}
	return NULL;
}

static bool time_set(const struct tbg_setting_row *row, unsigned int *to, const char *v)
{
	unsigned int ms;

	if (!tbg_value_ms(v, &ms) || ms < row->min || ms > row->max)
		return false;
	*to = ms;
	return true;
}

/* Of two words, as in "listed or unlisted": true for the one that is not the default. */
static bool word_set(const struct tbg_setting_row *row, bool *to, const char *v)
{
	const char *or = strstr(row->note, " or ");
	size_t len = or - row->note;

	if ((strlen(v) != len || strncmp(v, row->note, len)) && strcmp(v, or + strlen(" or ")))
		return false;
	*to = strcmp(v, row->preset);
	return true;
}

bool tbg_setting_put(const struct tbg_setting_row *row, struct tbg_target *t, const char *v)
{
	void *to = (char *)object_of(t, row->object) + row->offset;

	switch (row->type) {
	case TBG_SETTING_OWN:
		return row->set(t, v);
	case TBG_SETTING_NUMBER:
		return tbg_value_number(v, row->min, row->max, to);
	case TBG_SETTING_SIZE:
		return tbg_value_size(v, row->min, row->max, to);
	case TBG_SETTING_TIME:
		return time_set(row, to, v);
	case TBG_SETTING_SWITCH:
		return tbg_value_bool(v, to);
	case TBG_SETTING_WORD:
		return word_set(row, to, v);
	}
	return false;
}

/* The default of a list: values separated by ", ". */
static bool default_put(const struct tbg_setting_row *row, struct tbg_target *t)
{
	char value[128];
	size_t len;

	if (!(row->flags & TBG_SETTING_LIST))
		return tbg_setting_put(row, t, row->preset);
	t->begins = true;
	for (const char *at = row->preset; *at; at += len, at += 2 * !!*at) {
		len = strcspn(at, ",");
		snprintf(value, sizeof(value), "%.*s", (int)len, at);
		if (!tbg_setting_put(row, t, value))
			return false;
		t->begins = false;
	}
	return true;
}

int tbg_settings_default(struct tbg_target *t, enum tbg_setting_object object)
{
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++)
		if (row->object == object && tbg_setting_is_applied(row) && !default_put(row, t))
			return -ENOMEM;
	return 0;
}

/* --- a value is tried ---------------------------------------------------- */

static struct tbg_setting *setting_get(struct tbg_scope *scope,
				       unsigned int row)
{
	struct tbg_setting *more;

	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == row)
			return &scope->settings[i];
	more = reallocarray(scope->settings, scope->settings_nr + 1, sizeof(*more));
	if (!more)
		return NULL;
	scope->settings = more;
	more[scope->settings_nr] = (struct tbg_setting){ .row = row };
	return &more[scope->settings_nr++];
}

static bool setting_keep(struct tbg_scope *scope, unsigned int row,
			 unsigned int line, const char *value)
{
	struct tbg_setting *s = setting_get(scope, row);
	char **more;

	if (!s)
		return false;
	if (!(tbg_setting_row(row)->flags & TBG_SETTING_LIST) && s->values_nr) {
		free(s->values[0]);
		s->values_nr = 0;
	}
	more = reallocarray(s->values, s->values_nr + 1, sizeof(*more));
	if (!more)
		return false;
	s->values = more;
	s->line = line;
	more[s->values_nr] = strdup(value);
	return more[s->values_nr] && ++s->values_nr;
}

/* "off" stands in place of such a list, not in it. */
static bool off_beside(const struct tbg_scope *scope, unsigned int row,
		       const char *value)
{
	if (!(tbg_setting_row(row)->flags & TBG_SETTING_OFF_ALONE))
		return false;
	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == row)
			return !strcmp(value, "off") ||
			       !strcmp(scope->settings[i].values[0], "off");
	return false;
}

/* Checks the value on a temporary location. */
bool tbg_scope_set(struct tbg_scope *scope, unsigned int row,
		   unsigned int line, const char *value,
		   struct tbg_roots *roots, const char **ret_why)
{
	struct tbg_pool_command cgi = { 0 }, module = { 0 };
	struct tbg_upstream_settings settings = { 0 };
	struct tbg_location location = { 0 };
	struct tbg_header_rules header_rules = { 0 };
	struct tbg_target t = {
		.sites = tbg_sites_new(roots), .location = &location,
		.header_rules = &header_rules, .upstream = &settings, .cgi = &cgi,
		.module = &module, .check_only = true, .begins = true,
		.why = "",
	};
	bool ok = t.sites && tbg_setting_put(tbg_setting_row(row), &t, value);

	*ret_why = t.why;
	tbg_sites_close(t.sites, NULL, NULL);
	return ok && !off_beside(scope, row, value) &&
	       setting_keep(scope, row, line, value);
}

/* --- the values of a scope are applied ----------------------------------- */

int tbg_build_wrong(struct tbg_build *m, unsigned int line, const char *format, ...)
{
	va_list args;

	m->error->line = line;
	va_start(args, format);
	vsnprintf(m->error->text, sizeof(m->error->text), format, args);
	va_end(args);
	return -EINVAL;
}

/*
 * The value was accepted alone, but fails here: its list is too long, or a folder has
 * disappeared.
 */
static int refused(struct tbg_build *m, const struct tbg_target *t,
		   const struct tbg_setting *s, const char *v)
{
	const struct tbg_setting_row *row = tbg_setting_row(s->row);

	if (errno == ENOMEM)
		return -ENOMEM;
	return tbg_build_wrong(m, s->line, "%s \"%.100s\": %s%sexpected %s", row->name, v, t->why,
			       *t->why ? "; " : "", tbg_setting_accepts(row));
}

int tbg_scope_apply(struct tbg_build *m, struct tbg_target *t,
		    const struct tbg_scope *scope, bool upstreams)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];

		if (tbg_setting_upstreams(s) != upstreams)
			continue;
		for (unsigned int j = 0; j < s->values_nr; j++) {
			t->begins = !j;
			t->why = "";
			errno = 0;
			if (!tbg_setting_put(tbg_setting_row(s->row), t, s->values[j]))
				return refused(m, t, s, s->values[j]);
		}
	}
	return 0;
}
