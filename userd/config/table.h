/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One row for each setting: name, scopes, type, member, range and default,
 * whether a reload changes it, and one sentence. For this folder, and for the
 * test that compares the man pages with it.
 */
#ifndef TBG_USERD_CONFIG_TABLE_H
#define TBG_USERD_CONFIG_TABLE_H

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
	TBG_SCOPE_UPSTREAM = 16,	/* a group of servers that locations may name */
};

enum tbg_setting_flag {
	TBG_SETTING_LINE = 1,	/* also an option of the command line, --name */
	TBG_SETTING_LIST = 2,	/* may have several values */
	TBG_SETTING_OFF_ALONE = 4,	/* a list, or "off" alone */
	TBG_SETTING_LATER = 8,	/* needs a restart; a reload does not change it */
	/* of the daemon, although hosts and locations may have their own */
	TBG_SETTING_DAEMON = 16 | TBG_SETTING_LINE,
};

enum tbg_setting_type {
	TBG_SETTING_OWN,	/* a function parses the value */
	TBG_SETTING_NUMBER,	/* unsigned int */
	TBG_SETTING_SIZE,	/* uint64_t, bytes: "64K" */
	TBG_SETTING_TIME,	/* unsigned int, milliseconds: "5s", "500ms" */
	TBG_SETTING_SWITCH,	/* bool: "on", "off" */
	TBG_SETTING_WORD,	/* bool: one of two words; true: the one that is not the default */
};

/* The object with the member: a struct that struct tbg_target (target.h) points to. */
enum tbg_setting_object {
	TBG_OBJECT_OPTIONS,	/* struct tbg_options */
	TBG_OBJECT_LOCATION,	/* struct tbg_location */
	TBG_OBJECT_HEADERS,	/* struct tbg_header_rules, of the scope at hand */
	TBG_OBJECT_UPSTREAM,	/* struct tbg_upstream_settings */
	TBG_OBJECT_CGI, TBG_OBJECT_MODULE,	/* struct tbg_pool_command */
	TBG_OBJECT_SITE,	/* none: the code that makes sites reads it from the scopes */
};

/* What settings of a scope can have an effect on: handlers there, and enabled features. */
enum tbg_reach {
	TBG_REACH_FILES = 1,
	TBG_REACH_HTTP = 2,	/* upstreams, by protocol */
	TBG_REACH_FASTCGI = 4,
	TBG_REACH_CGI = 8,
	TBG_REACH_MODULE = 16,
	TBG_REACH_SCRIPTS = 32,	/* FastCGI, where paths name programs */
	TBG_REACH_HEALTH = 64,	/* an upstream with checks */
	TBG_REACH_SOCK = 128,	/* of the daemon's settings */
	TBG_REACH_RATE = 256,
	TBG_REACH_LIMITS = 512,
	TBG_REACH_SERVERS = TBG_REACH_HTTP | TBG_REACH_FASTCGI,
	TBG_REACH_PROGRAMS = TBG_REACH_CGI | TBG_REACH_MODULE,
	TBG_REACH_BEHIND = TBG_REACH_SERVERS | TBG_REACH_PROGRAMS,
};

/* What a setting needs: one of these. With the text of the message if it is missing. */
#define TBG_NEEDS_LIST(X) \
	X(NOTHING, 0, "", "") \
	X(FILES, TBG_REACH_FILES, \
	  "nothing in this scope is answered with files", "a root") \
	X(BEHIND, TBG_REACH_BEHIND, \
	  "nothing in this scope is answered by an upstream, a program or a module", \
	  "an upstream, a cgi or a module") \
	X(SERVERS, TBG_REACH_SERVERS, "there is no upstream", "an upstream") \
	X(HTTP, TBG_REACH_HTTP, \
	  "nothing in this scope is answered by an upstream of HTTP", "an upstream") \
	X(FASTCGI, TBG_REACH_FASTCGI, "the upstream does not speak FastCGI", "protocol = fastcgi") \
	X(SCRIPTS, TBG_REACH_SCRIPTS, "no path of the upstream names a program", \
	  "protocol = fastcgi without a script-filename") \
	X(HEALTH, TBG_REACH_HEALTH, "there is no health check", "a health-path") \
	X(CGI, TBG_REACH_CGI, "nothing in this scope is answered by programs", "a cgi") \
	X(MODULE, TBG_REACH_MODULE, "nothing in this scope is answered by a module", "a module") \
	X(SOCK, TBG_REACH_SOCK, "sock is off", "it in tiers") \
	X(RATE, TBG_REACH_RATE, "requests have no limit", "a limit-requests") \
	X(LIMITS, TBG_REACH_RATE | TBG_REACH_LIMITS, "clients have no limit", \
	  "a limit-requests, limit-connections or limit-heads")

enum tbg_setting_needs {
#define X(name, reach, lacks, expected) TBG_NEEDS_##name,
	TBG_NEEDS_LIST(X)
#undef X
	TBG_NEEDS_NR
};

struct tbg_setting_row {
	const char *name;
	unsigned int scopes;	/* enum tbg_scope_kind */
	unsigned int flags;
	const char *arg;	/* name of its value in --help */
	const char *preset;	/* default; in parentheses: computed; NULL: none */
	const char *note;	/* what is accepted; for a range: examples */
	const char *about;	/* one sentence */
	enum tbg_setting_type type;
	enum tbg_setting_object object;
	size_t offset;		/* of its field in the object */
	uint64_t min, max;
	bool (*set)(struct tbg_target *t, const char *v);	/* TBG_SETTING_OWN's */
	enum tbg_setting_needs needs;	/* without which it has no effect */
};

/* The nr-th row; NULL after the last. */
const struct tbg_setting_row *tbg_setting_row(unsigned int row);

int tbg_setting_find(const char *name, size_t len);	/* number of its row, or -1 */

/* Whether the default is a plain value, which is applied as any other. */
bool tbg_setting_is_applied(const struct tbg_setting_row *row);

/* What it accepts, for a message: "a number from 1 to 256". Valid until the next call. */
const char *tbg_setting_accepts(const struct tbg_setting_row *row);

/* Writes the default for people; returns its length. */
size_t tbg_setting_print(const struct tbg_setting_row *row, char *ret, size_t size);

#endif
