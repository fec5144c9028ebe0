/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of upstream servers: their addresses, the selection of one, and their
 * failures. Made from the configuration (config/upstream.c and config/pool.c), read by
 * all workers. An upstream that a reload does not change remains the same object, with
 * the state of its servers.
 */
#ifndef TBG_USERD_UPSTREAM_UPSTREAM_H
#define TBG_USERD_UPSTREAM_UPSTREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "fastcgi/parameters.h"

#define TBG_BACKEND_MAX	32		/* limit of servers */
#define TBG_BACKEND_FAILURES 3		/* consecutive, before a server rests */
#define TBG_BACKEND_REST_NS (10 * 1000000000ull)

/* X(name, in the configuration, whether a root is required) */
#define TBG_PROTOCOL_LIST(X) \
	X(HTTP, "http", false) \
	X(FASTCGI, "fastcgi", true)

enum tbg_protocol {
#define X(name, text, root) TBG_PROTOCOL_##name,
	TBG_PROTOCOL_LIST(X)
#undef X
	TBG_PROTOCOL_NR
};

/* The settings of an upstream, without its servers. */
struct tbg_upstream_settings {
	uint8_t protocol;		/* enum tbg_protocol */
	bool least;			/* fewest active requests first, instead of round robin */
	unsigned int connect_ms, first_byte_ms, idle_ms;	/* time limits */
	unsigned int keep_ms;		/* of an idle connection */
	unsigned int health_ms;		/* between checks */
	const char *health_path;	/* NULL: no checks */
	struct tbg_script script;	/* of PROTOCOL_FASTCGI */
};

/* The last message about a server; a worse state is logged at once. */
enum tbg_news {
	TBG_NEWS_WELL,
	TBG_NEWS_FAILED,
	TBG_NEWS_RESTS,
	TBG_NEWS_SICK,			/* by a health check */
};

struct tbg_backend {
	struct tbg_upstream *upstream;
	struct sockaddr_storage address;
	socklen_t address_len;
	unsigned int id;		/* unique over the life of the process */
	unsigned int nr;		/* index in its upstream */
	char text[256];			/* as configured */
	char authority[256];		/* Host for requests without one */
	_Atomic uint32_t failures;	/* consecutive */
	_Atomic uint64_t rest_ns;	/* not asked until then */
	_Atomic uint32_t active;	/* requests in progress */
	_Atomic uint32_t open;		/* connections */
	_Atomic uint64_t starved_ns;	/* last time a request waited for a process */
	_Atomic uint64_t apart_ns;	/* until then, its connections are not reused */
	_Atomic uint64_t requests, failed;
	_Atomic uint32_t logged;	/* enum tbg_news */
	_Atomic uint64_t logged_ns;
	uint32_t checked_ms;		/* private to health.c */
	bool checking;
};

struct tbg_upstream {
	_Atomic uint32_t refs;
	_Atomic uint32_t sites;		/* configurations that name it; 0: removed */
	uint32_t id;			/* key of its stored responses */
	char *name;			/* as configured, or its servers */
	char *servers;			/* as configured, separated by blanks */
	struct tbg_upstream_settings settings;
	struct tbg_pool_command *command; /* of a local pool (gateway/supervise.h), or NULL */
	struct tbg_backend *backends;
	unsigned int nr;
	_Atomic uint32_t turn;
};

/* Finds the protocol of a name; false: unknown. */
bool tbg_protocol_find(const char *name, uint8_t *ret);
bool tbg_protocol_needs_root(uint8_t protocol);
bool tbg_protocol_needs_length(uint8_t protocol);	/* of bodies, before they are sent */

/*
 * Parses a server: SCHEME://HOST[:PORT][/], unix:PATH or SCHEME://unix:PATH, where the
 * scheme is the protocol's name; with `bare` also HOST:PORT. Names are looked up
 * (upstream/address.h); nr selects one of the addresses, from 0. Returns false if it is
 * malformed or has no more addresses. A name without any address gives a server with
 * address_len 0.
 */
bool tbg_backend_parse(const char *text, uint8_t protocol, bool bare, unsigned int nr,
		       struct tbg_backend *ret);

/*
 * Makes the address of a local server: a name that cannot be guessed and leaves no
 * file. text: its displayed name. Returns a negative errno on failure.
 */
int tbg_backend_own(struct tbg_backend *ret, const char *text);

/* Returns a new upstream without servers and with one reference; NULL: no memory. */
struct tbg_upstream *tbg_upstream_new(const char *name, const char *servers,
				      const struct tbg_upstream_settings *settings);
/* Adds a server, before other threads know the upstream. Returns false at the limit. */
bool tbg_upstream_add(struct tbg_upstream *u, const struct tbg_backend *b);
/* Returns whether both have the same settings and addresses. */
bool tbg_upstream_same(const struct tbg_upstream *a, const struct tbg_upstream *b);

/*
 * Called before other threads know u. If u is configured as old was, and only the
 * addresses of its servers' names have changed: keeps the id of its stored responses,
 * and the state of servers that remain.
 */
void tbg_upstream_follow(struct tbg_upstream *u, struct tbg_upstream *old);

/* Returns whether it is a pool of a module. */
bool tbg_upstream_module(const struct tbg_upstream *u);

/* Any thread: takes a reference. */
struct tbg_upstream *tbg_upstream_get(struct tbg_upstream *u);
void tbg_upstream_put(struct tbg_upstream *u);		/* accepts NULL */

/*
 * Returns the next server to ask. tried: bits of servers that this request has already
 * asked. A resting server is used only if all others were tried or rest. NULL: all were
 * tried.
 */
struct tbg_backend *tbg_upstream_choose(struct tbg_upstream *u, uint32_t tried,
					uint64_t now_ns);

/* Reports the result of a request. why: text for the log. */
void tbg_backend_worked(struct tbg_backend *b, uint64_t now_ns);
void tbg_backend_failed(struct tbg_backend *b, const char *why, uint64_t now_ns);

/*
 * Reports the result of a health check (status: of its answer, or 0): the server is
 * used, or rests until a check succeeds.
 */
void tbg_backend_found(struct tbg_backend *b, unsigned int status, uint64_t now_ns);
bool tbg_backend_rests(const struct tbg_backend *b, uint64_t now_ns);

#endif
