/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is configured of sites and their locations, by the rows of table.h. Scopes
 * are kept as they were written, and a location is made by applying its scopes'
 * settings from the outermost to its own: that is all there is to inheritance.
 */
#ifndef TBG_USERD_SETTINGS_H
#define TBG_USERD_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/table.h"
#include "site/site.h"

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
	bool types;			/* some of them are media types */
	const void *section;		/* config/file.c's */
};

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
