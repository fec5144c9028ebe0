/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The checked settings of the command line and the configuration file: those of
 * the daemon as members, those of sites as scopes (settings.h).
 */
#ifndef TBG_USERD_CONFIG_OPTIONS_H
#define TBG_USERD_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "abi/knob.h"
#include "config/table.h"
#include "config/text.h"
#include "os/client_list.h"
#include "tiers/births.h"

struct tbg_roots;
struct tbg_scope;
struct tbg_sites;

/* The answer to clients that a list denies or that exceed a limit: X(name, text) */
#define TBG_DENY_ANSWER_LIST(X) \
	X(AUTO, "auto")		/* 403 by a list, 429 by a limit */ \
	X(403, "403") \
	X(429, "429") \
	X(DROP, "drop")		/* a reset connection */

enum tbg_deny_answer {
#define X(name, text) TBG_DENY_##name,
	TBG_DENY_ANSWER_LIST(X)
#undef X
	TBG_DENY_ANSWER_NR
};

#define TBG_LISTEN_FAILED "%s: %s; choose another address or port, or stop the program that uses it"

/* One rule of a listener's list of clients. */
struct tbg_listen_rule {
	struct sockaddr_storage at;
	struct tbg_client_rule rule;
};

struct tbg_options {
	const char *config;		/* path of the file; NULL: none */
	struct tbg_config_places places;	/* where its lines come from, includes considered */
	bool check;			/* --check: also checks that paths exist */
	struct tbg_scope *top;		/* settings of sites, see settings.h */
	struct tbg_roots *roots;
	struct sockaddr_storage listen[TBG_LISTENER_MAX];
	char listen_text[TBG_LISTENER_MAX][64];
	unsigned int listen_nr;
	const char *wire;		/* "auto", "off" or names */
	bool tier_wire, tier_sock;
	unsigned int give_back;		/* answers that wire could have given; 0: no give-back */
	bool translate;			/* no late sockets: wire owns no connection */
	enum tbg_births_wanted births;	/* who answers SYNs, with late sockets */
	unsigned int wire_size;		/* bytes; 0: ten segments */
	bool sock_unlisted;		/* also on kernel series without listed fixes */
	uint64_t memory;		/* bytes */
	unsigned int workers;
	const char *control;		/* path of the control socket */
	const char *admin;		/* address or path of the admin listener; NULL: off */
	struct sockaddr_storage admin_address;	/* family 0: a path */
	bool admin_given;
	const char *admin_token_file;
	char *admin_token;		/* NULL: none */
	char admin_default[108];
	const char *access_log;		/* NULL: off */
	const char *log_format;		/* as configured, see log/line.h */
	unsigned int log_level;		/* enum tbg_report_level */
	const char *user;		/* NULL: choose */
	unsigned int header_ms, idle_ms, send_ms;	/* time limits */
	uint64_t body_total;		/* bytes of request bodies in memory and files */
	unsigned int drain_ms;		/* longest time of draining */
	unsigned int unattended_ms;	/* how long kernel tiers answer without the daemon */
	unsigned int connections_max;	/* of all workers; 0: as many as descriptors allow */
	unsigned int header_max;	/* bytes of a request head */
	struct tbg_listen_rule *listen_rule;	/* allow and deny lists of listeners */
	unsigned int listen_rules_nr;
	struct tbg_client_list listen_clients[TBG_LISTENER_MAX];	/* the same, for look-ups */
	bool listen_lists;		/* some listener has a list */
	enum tbg_deny_answer deny_answer;	/* what refused clients get */
	uint64_t request_gap_ns;	/* minimum time between requests of a client; 0: none */
	unsigned int request_burst;	/* requests above the rate; 0: those of one second */
	unsigned int limit_connections, limit_heads;	/* maximum of a client; 0: none */
	unsigned int client_v4_bits, client_v6_bits;	/* address bits that identify a client */
	char control_default[108];
	char *given[TBG_SETTINGS_MAX];	/* values as written; NULL: not given */
	size_t given_len[TBG_SETTINGS_MAX];	/* of lists */
	/* line of the file of each value of a list; 0: the command line */
	unsigned int line[TBG_SETTINGS_MAX][TBG_LISTENER_MAX];
};

/* Reads a number that a reload may change at the same time. */
static inline unsigned int tbg_option_now(const unsigned int *number)
{
	return __atomic_load_n(number, __ATOMIC_RELAXED);
}

/*
 * Returns 0, or an exit status after it has printed the message:
 * TBG_OPTIONS_MISSING if something named does not exist, 2 for a bad option or
 * file. TBG_OPTIONS_DONE: --help, --version or a successful --check; exit. Also
 * called at a reload.
 */
#define TBG_OPTIONS_MISSING 1
#define TBG_OPTIONS_DONE 0x100
int tbg_options_parse(struct tbg_options *ret, char **argv,
		      struct tbg_roots *roots);

/* Checks that the interfaces named by --wire exist. Returns 0, or -ENODEV after a message. */
int tbg_options_ifaces_check(const struct tbg_options *o);

/*
 * Makes the lists of listeners from their rules. Returns 0, -ENOMEM, or -EINVAL after a
 * message: there is no such listener.
 */
int tbg_options_listen_lists(struct tbg_options *o);

void tbg_options_free(struct tbg_options *o);

/* The value of a setting of the daemon as given, of a list all values; NULL: not given. */
const char *tbg_option_given(const struct tbg_options *o, const char *name);

/* Names of settings that differ between now and wanted and that a reload cannot change. */
void tbg_options_later(const struct tbg_options *now,
		       const struct tbg_options *wanted, char *ret, size_t len);

/*
 * Makes the sites of these options; old as in tbg_sites_make(). Returns 0 or an exit
 * status.
 */
int tbg_options_sites(const struct tbg_options *o, const struct tbg_sites *old,
		      struct tbg_sites **ret);

/*
 * Logs an error in the nr-th value of an option, preceded by its origin:
 * "FILE:LINE: NAME" or "--NAME".
 */
__attribute__((format(printf, 4, 5)))
void tbg_option_log(const struct tbg_options *o, const char *name, unsigned int nr,
		    const char *format, ...);

/*
 * The first setting of the daemon in the file that has no effect, and the reason;
 * NULL: none.
 */
const char *tbg_effect_options(const struct tbg_options *o, const struct tbg_sites *sites,
			       char *ret, size_t len);

/* The same for a setting in some scope, by its line. */
void tbg_option_log_at(const struct tbg_options *o, unsigned int line, const char *name,
		       const char *text);

/* Whether an access log of the daemon or of a host has this path. */
bool tbg_options_log(const struct tbg_options *o, const char *path);

/*
 * For config/file.c: sets one value of a setting of the daemon. line: of the file.
 * begins: it is the first value of a list. False: not accepted; *ret_why: the reason,
 * or "".
 */
bool tbg_option_set(struct tbg_options *o, unsigned int row, unsigned int line,
		    const char *v, bool begins, const char **ret_why);

#endif
