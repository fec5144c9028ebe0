// SPDX-License-Identifier: GPL-2.0
/*
 * Scopes as written: a tree of sections, each with its settings. Filled by
 * config/file.c and options.c; knows the allowed titles of sections, but not the
 * meaning of settings.
 */
#include "config/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"

struct tbg_scope *tbg_scope_new(enum tbg_scope_kind kind, const char *title)
{
	struct tbg_scope *ret = calloc(1, sizeof(*ret));

	if (!ret)
		return NULL;
	ret->kind = kind;
	ret->title = strdup(title);
	if (ret->title)
		return ret;
	free(ret);
	return NULL;
}

int tbg_scope_add(struct tbg_scope *scope, struct tbg_scope *below)
{
	struct tbg_scope **more = reallocarray(scope->below, scope->below_nr + 1,
					       sizeof(*more));

	if (!more)
		return -ENOMEM;
	scope->below = more;
	more[scope->below_nr++] = below;
	scope->types |= below->kind == TBG_SCOPE_TYPE;
	return 0;
}

static void setting_free(struct tbg_setting *s)
{
	for (unsigned int i = 0; i < s->values_nr; i++)
		free(s->values[i]);
	free(s->values);
}

void tbg_scope_free(struct tbg_scope *scope)
{
	if (!scope)
		return;
	for (unsigned int i = 0; i < scope->below_nr; i++)
		tbg_scope_free(scope->below[i]);
	for (unsigned int i = 0; i < scope->settings_nr; i++)
		setting_free(&scope->settings[i]);
	free(scope->settings);
	free(scope->below);
	free(scope->title);
	free(scope);
}

void tbg_scope_unset(struct tbg_scope *scope, unsigned int row)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		struct tbg_setting *s = &scope->settings[i];

		if (s->row != row)
			continue;
		setting_free(s);
		memmove(s, s + 1, (--scope->settings_nr - i) * sizeof(*s));
		return;
	}
}

const struct tbg_setting *tbg_setting_of(const struct tbg_scope *scope,
					 const char *name)
{
	int row = tbg_setting_find(name, strlen(name));

	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == (unsigned int)row)
			return &scope->settings[i];
	return NULL;
}

const char *tbg_scope_name(const struct tbg_scope *scope)
{
	return *scope->title ? scope->title : "outside of all sections";
}

bool tbg_scope_title(enum tbg_scope_kind kind, const char *title,
		     const char **ret_accepts)
{
	const char *slash = strchr(title, '/'), *star = strchr(title, '*');

	switch (kind) {
	case TBG_SCOPE_HOST:
		*ret_accepts = "a host's name, or *. and a name";
		return tbg_host_valid(title);
	case TBG_SCOPE_LOCATION:
		*ret_accepts = "a path that begins with a slash, = and such a path, or * and what paths end in; decoded, without //, /./ and /../";
		if (!tbg_path_plain(title))
			return false;
		return title[0] == '/' || (title[0] == '=' && title[1] == '/') ||
		       (title[0] == '*' && title[1] && !strchr(title + 1, '*'));
	case TBG_SCOPE_UPSTREAM:
		*ret_accepts = "a name of letters, digits, dots, dashes and underscores";
		return tbg_name_valid(title);
	default:
		*ret_accepts = "a media type such as text/html or image/*";
		return slash && slash != title && slash[1] && !strchr(slash + 1, '/') &&
		       (!star || (star == slash + 1 && !star[1])) &&
		       tbg_field_value(title) && !strpbrk(title, " ;,");
	}
}
