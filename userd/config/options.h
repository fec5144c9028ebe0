/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the command line and the configuration file say, checked: the daemon's own
 * settings as fields, and those of sites as scopes (settings.h).
 */
#ifndef TBG_USERD_OPTIONS_H
#define TBG_USERD_OPTIONS_H

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

/* What a client gets that a list denies, or that is beyond a limit; and how it is written. */
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

/* One client, or more, of a listener's list. */
struct tbg_listen_rule {
	struct sockaddr_storage at;
	struct tbg_client_rule rule;
};

struct tbg_options {
	const char *config;		/* path of the file; NULL: none */
	struct tbg_config_places places;	/* of the lines of it and of what it includes */
	bool check;			/* --check: where paths lead is looked at */
	struct tbg_scope *top;		/* what was said of sites, see settings.h */
	struct tbg_roots *roots;
	struct sockaddr_storage listen[TBG_LISTENER_MAX];
	char listen_text[TBG_LISTENER_MAX][64];
	unsigned int listen_nr;
	const char *wire;		/* "auto", "off" or names */
	bool tier_wire, tier_sock;
	unsigned int give_back;		/* answers in a row that wire could have given; 0: never */
	bool late_sockets;		/* wire owns connections where the kernel lets it */
	enum tbg_births_wanted births;	/* who answers SYNs, with late_sockets */
	unsigned int wire_size;		/* bytes; 0: ten segments */
	bool sock_unlisted;		/* on kernels nobody has vouched for, too */
	uint64_t memory;		/* bytes */
	unsigned int workers;
	const char *control;		/* path of the control socket */
	const char *admin;		/* address or path of the admin listener; NULL: off */
	struct sockaddr_storage admin_address;	/* family 0: a path */
	bool admin_said;
	const char *admin_token_file;
	char *admin_token;		/* NULL: none */
	char admin_default[108];
	const char *access_log;		/* NULL: off */
	const char *log_format;		/* as it is written, see log/line.h */
	unsigned int log_level;		/* enum tbg_report_level */
	const char *user;		/* NULL: choose */
	unsigned int header_ms, idle_ms, send_ms;	/* time limits */
	uint64_t body_total;		/* bytes of requests' bodies that are held */
	unsigned int drain_ms;		/* at most, once it is told to end */
	unsigned int unattended_ms;	/* kernel tiers answer alone for so long */
	unsigned int connections_max;	/* all workers together; 0: as fits */
	unsigned int header_max;	/* bytes of a request head */
	struct tbg_listen_rule *listen_rule;	/* of listeners' own lists */
	unsigned int listen_rules_nr;
	struct tbg_client_list listen_clients[TBG_LISTENER_MAX];	/* made of them */
	bool listen_lists;		/* some listener has one */
	enum tbg_deny_answer deny_answer;	/* what refused clients get */
	uint64_t request_gap_ns;	/* least time between two of a client; 0: any */
	unsigned int request_burst;	/* but this many at once; 0: those of a second */
	unsigned int limit_connections, limit_heads;	/* of a client at once; 0: any */
	unsigned int client_v4_bits, client_v6_bits;	/* of an address that name a client */
	char control_default[108];
	char *said[TBG_SETTINGS_MAX];	/* as it was written; NULL: not at all */
	/* of the file, where each value of a list stands; 0: on the command line */
	unsigned int line[TBG_SETTINGS_MAX][TBG_LISTENER_MAX];
};

/* A number of the running server's, which a reload may change while a worker reads it. */
static inline unsigned int tbg_option_now(const unsigned int *number)
{
	return __atomic_load_n(number, __ATOMIC_RELAXED);
}

/*
 * 0; or an exit status after the message has been printed: TBG_OPTIONS_MISSING
 * for what is not there, 2 for a bad option or file. TBG_OPTIONS_DONE: --help,
 * --version or a good --check, nothing is left to do. At a reload the same again.
 */
#define TBG_OPTIONS_MISSING 1
#define TBG_OPTIONS_DONE 0x100
int tbg_options_parse(struct tbg_options *ret, char **argv,
		      struct tbg_roots *roots);

/* Whether there are the interfaces of wire: a name of none is a mistake. 0, or -ENODEV, told. */
int tbg_options_ifaces_check(const struct tbg_options *o);

/* The lists of listeners out of their rules. 0, -ENOMEM, or -EINVAL, told: nobody listens. */
int tbg_options_listen_lists(struct tbg_options *o);

/* Whether this machine has the addresses to listen on. 0, or negative errno, told. */
int tbg_options_listen_check(const struct tbg_options *o);

void tbg_options_free(struct tbg_options *o);

/* What was said of a setting of the daemon, of a list all of it; NULL: nothing. */
const char *tbg_option_said(const struct tbg_options *o, const char *name);

/* Names of what wanted says else than now, and a reload cannot change. */
void tbg_options_later(const struct tbg_options *now,
		       const struct tbg_options *wanted, char *ret, size_t len);

/* The sites of these options; old as in tbg_sites_make(). 0 or a status. */
int tbg_options_sites(const struct tbg_options *o, const struct tbg_sites *old,
		      struct tbg_sites **ret);

/*
 * Tells what is wrong with the nr-th value of an option, behind where it is from:
 * "FILE:LINE: NAME", or "--NAME".
 */
__attribute__((format(printf, 4, 5)))
void tbg_option_log(const struct tbg_options *o, const char *name, unsigned int nr,
		    const char *format, ...);

/*
 * The first setting of the daemon in the file that would be ignored, and what is wrong
 * with it; NULL: there is none.
 */
const char *tbg_effect_options(const struct tbg_options *o, const struct tbg_sites *sites,
			       char *ret, size_t len);

/* The same of a setting in some scope, by its line. */
void tbg_option_log_at(const struct tbg_options *o, unsigned int line, const char *name,
		       const char *text);

/* Whether the daemon or a host has its access log there. */
bool tbg_options_log(const struct tbg_options *o, const char *path);

/*
 * For config/file.c: one value of a setting of the daemon. line: of the file.
 * begins: the first value of a list. False: it is not accepted; *ret_why: why, or "".
 */
bool tbg_option_set(struct tbg_options *o, unsigned int row, unsigned int line,
		    const char *v, bool begins, const char **ret_why);

#endif
