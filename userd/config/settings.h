/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be said of a site and its locations: one table (settings.c) gives
 * each setting its name, the scopes it may stand in, what it accepts, and the
 * function that puts it into a struct tbg_location (site.h). Scopes are kept as
 * they were written, and a location is made by applying its scopes' settings
 * from the outermost to its own: that is all there is to inheritance.
 */
#ifndef TBG_USERD_SETTINGS_H
#define TBG_USERD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "site/site.h"

enum tbg_scope_kind {
	TBG_SCOPE_TOP = 1,	/* the file itself */
	TBG_SCOPE_HOST = 2,
	TBG_SCOPE_LOCATION = 4,
	TBG_SCOPE_TYPE = 8,	/* a media type, in any of the others */
	TBG_SCOPE_UPSTREAM = 16,	/* servers that locations may name */
};

struct tbg_setting {
	unsigned int row;	/* of the table */
	unsigned int line;	/* 0: of the command line */
	char **values;
	unsigned int values_nr;
};

struct tbg_scope {
	enum tbg_scope_kind kind;
	char *title;
	unsigned int line;
	struct tbg_setting *settings;
	unsigned int settings_nr;
	struct tbg_scope **below;	/* in order of the file */
	unsigned int below_nr;
	const void *section;		/* config/file.c's */
};

/* The table, row by row; false behind the last. */
struct tbg_setting_row {
	const char *name;
	unsigned int scopes;	/* where it may stand */
	bool list;		/* several values at a time */
	const char *accepts;
};
bool tbg_setting_row(unsigned int row, struct tbg_setting_row *ret);
int tbg_setting_find(const char *name);		/* row, or -1 */

struct tbg_scope *tbg_scope_new(enum tbg_scope_kind kind, const char *title);
int tbg_scope_add(struct tbg_scope *scope, struct tbg_scope *below);
void tbg_scope_free(struct tbg_scope *scope);	/* and all below; NULL allowed */

/*
 * Says it once more: a value given before in this scope is replaced, or in a
 * list added to. *ret_why: what the system says ("No such file…"), or "".
 * False: not what the row accepts.
 */
bool tbg_scope_set(struct tbg_scope *scope, unsigned int row,
		   unsigned int line, const char *value,
		   struct tbg_roots *roots, const char **ret_why);
void tbg_scope_unset(struct tbg_scope *scope, unsigned int row);

/* What it says under a name; NULL: nothing. */
const struct tbg_setting *tbg_setting_of(const struct tbg_scope *scope,
					 const char *name);

/* Whether a section may have this title; ret_accepts: what may. */
bool tbg_scope_title(enum tbg_scope_kind kind, const char *title,
		     const char **ret_accepts);

struct tbg_settings_error {
	unsigned int line;	/* of the scope; 0: of the file as a whole */
	char text[300];		/* value, and what is accepted */
};

/*
 * Sites from the scopes. old: the sites of before, or NULL; a site whose
 * answers stay the same keeps its id, an upstream that does its state.
 * Negative errno and *ret_error.
 */
int tbg_sites_make(struct tbg_sites **ret, const struct tbg_scope *top,
		   const struct tbg_sites *old, struct tbg_roots *roots,
		   struct tbg_settings_error *ret_error);

#endif
