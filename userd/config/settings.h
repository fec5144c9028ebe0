/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The configuration of sites and locations, by the rows of table.h. Scopes are
 * kept as written; a location is made by applying the settings of its scopes from
 * the outermost to its own. Inheritance is nothing more than that.
 */
#ifndef TBG_USERD_CONFIG_SETTINGS_H
#define TBG_USERD_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/table.h"
#include "site/site.h"

struct tbg_setting {
	unsigned int row;	/* of the table */
	unsigned int line;	/* 0: the command line */
	char **values;
	unsigned int values_nr;
};

struct tbg_scope {
	enum tbg_scope_kind kind;
	char *title;
	unsigned int line;
	struct tbg_setting *settings;
	unsigned int settings_nr;
	struct tbg_scope **below;	/* in the order of the file */
	unsigned int below_nr;
	bool types;			/* some of them are media types */
	const void *section;		/* config/file.c's */
};

struct tbg_scope *tbg_scope_new(enum tbg_scope_kind kind, const char *title);
int tbg_scope_add(struct tbg_scope *scope, struct tbg_scope *below);
void tbg_scope_free(struct tbg_scope *scope);	/* and all below; NULL allowed */

/*
 * Adds a setting to the scope: replaces an earlier value, or appends to a
 * list. False: the row does not accept the value; *ret_why: the system's
 * error ("No such file…"), or "".
 */
bool tbg_scope_set(struct tbg_scope *scope, unsigned int row,
		   unsigned int line, const char *value,
		   struct tbg_roots *roots, const char **ret_why);
void tbg_scope_unset(struct tbg_scope *scope, unsigned int row);

/* The value of the setting with this name; NULL: not given. */
const struct tbg_setting *tbg_setting_of(const struct tbg_scope *scope,
					 const char *name);

/* Whether a section may have this title; ret_accepts: what is allowed. */
bool tbg_scope_title(enum tbg_scope_kind kind, const char *title,
		     const char **ret_accepts);

struct tbg_settings_error {
	unsigned int line;	/* of the scope; 0: of the file as a whole */
	char text[300];		/* the value, and what is accepted */
};

/*
 * Makes the sites from the scopes. old: the previous sites, or NULL; an
 * unchanged site keeps its id, an unchanged upstream its state. On error
 * returns negative errno and fills *ret_error.
 */
int tbg_sites_make(struct tbg_sites **ret, const struct tbg_scope *top,
		   const struct tbg_sites *old, struct tbg_roots *roots,
		   struct tbg_settings_error *ret_error);

#endif
