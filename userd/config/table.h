/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One row for each setting: its name, where it may stand, its type, field, range
 * and default, whether a reload changes it, and one sentence. For this folder,
 * and for the test that holds the man pages to it.
 */
#ifndef TBG_USERD_SETTINGS_TABLE_H
#define TBG_USERD_SETTINGS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TBG_SETTINGS_MAX 96	/* rows */

struct tbg_target;

enum tbg_scope_kind {
	TBG_SCOPE_TOP = 1,	/* the file itself */
	TBG_SCOPE_HOST = 2,
	TBG_SCOPE_LOCATION = 4,
	TBG_SCOPE_TYPE = 8,	/* a media type, in any of the others */
	TBG_SCOPE_UPSTREAM = 16,	/* servers that locations may name */
};

enum tbg_setting_flag {
	TBG_SETTING_LINE = 1,	/* the command line takes it too, as --name */
	TBG_SETTING_LIST = 2,	/* several values at a time */
	TBG_SETTING_OFF_ALONE = 4,	/* a list; "off" stands in place of all its values */
	TBG_SETTING_LATER = 8,	/* a reload does not change it: the next start does */
	/* of the daemon as a whole, though a host may have its own; on the command line too */
	TBG_SETTING_DAEMON = 16 | TBG_SETTING_LINE,
};

enum tbg_setting_type {
	TBG_SETTING_OWN,	/* a function takes the value */
	TBG_SETTING_NUMBER,	/* unsigned int */
	TBG_SETTING_SIZE,	/* uint64_t, bytes: "64K" */
	TBG_SETTING_TIME,	/* unsigned int, milliseconds: "5s", "500ms" */
	TBG_SETTING_SWITCH,	/* bool: "on", "off" */
	TBG_SETTING_WORD,	/* bool: one of two words; true: the one that is no default */
};

/* What has the field: a struct that struct tbg_target (target.h) points to. */
enum tbg_setting_object {
	TBG_OBJECT_OPTIONS,	/* struct tbg_options */
	TBG_OBJECT_LOCATION,	/* struct tbg_location */
	TBG_OBJECT_HEADERS,	/* struct tbg_header_rules, of the scope at hand */
	TBG_OBJECT_UPSTREAM,	/* struct tbg_upstream_terms */
	TBG_OBJECT_CGI, TBG_OBJECT_MODULE,	/* struct tbg_pool_command */
	TBG_OBJECT_SITE,	/* nothing: whoever makes the sites reads the scopes */
};

struct tbg_setting_row {
	const char *name;
	unsigned int scopes;	/* enum tbg_scope_kind */
	unsigned int flags;
	const char *arg;	/* what its value is called in --help */
	const char *unsaid;	/* default; in parentheses: code makes it; NULL: none */
	const char *note;	/* what is accepted; behind a range: examples */
	const char *about;	/* one sentence */
	enum tbg_setting_type type;
	enum tbg_setting_object object;
	size_t offset;		/* of its field in the object */
	uint64_t min, max;
	bool (*set)(struct tbg_target *t, const char *v);	/* TBG_SETTING_OWN's */
};

/* Row by row; NULL behind the last. */
const struct tbg_setting_row *tbg_setting_row(unsigned int row);

int tbg_setting_find(const char *name, size_t len);	/* its row, or -1 */

/* Whether the default is a value like others, that is applied. */
bool tbg_setting_is_applied(const struct tbg_setting_row *row);

/* What it accepts, for a message: "a number from 1 to 256". Until the next call. */
const char *tbg_setting_accepts(const struct tbg_setting_row *row);

/* The default as people read it; its length. */
size_t tbg_setting_print(const struct tbg_setting_row *row, char *ret, size_t size);

#endif
