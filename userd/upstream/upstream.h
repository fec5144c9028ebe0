/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The servers behind us: where they are, whose turn it is, which of them have
 * failed. Made from the configuration (settings/upstream.c and settings/pool.c),
 * read by all workers; one that a reload leaves as it was stays the same object,
 * with all that is known of its servers.
 */
#ifndef TBG_USERD_UPSTREAM_UPSTREAM_H
#define TBG_USERD_UPSTREAM_UPSTREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "fastcgi/parameters.h"

#define TBG_BACKEND_MAX	32		/* servers of an upstream */
#define TBG_BACKEND_FAILURES 3		/* in a row, and a server rests */
#define TBG_BACKEND_REST_NS (10 * 1000000000ull)

/* What is spoken: X(name, in the configuration, is a root needed as well) */
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
	bool least;			/* fewest requests first, not in turn */
	unsigned int connect_ms, first_byte_ms, idle_ms;	/* time limits */
	unsigned int keep_ms;		/* of a connection without requests */
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
	unsigned int id;		/* of all that there ever were */
	unsigned int nr;		/* in its upstream */
	char text[256];			/* as it was given */
	char authority[256];		/* Host for requests without one */
	_Atomic uint32_t failures;	/* in a row */
	_Atomic uint64_t rest_ns;	/* not asked until then */
	_Atomic uint32_t active;	/* requests under way */
	_Atomic uint32_t open;		/* connections */
	_Atomic uint64_t starved_ns;	/* one of them had no process then */
	_Atomic uint64_t apart_ns;	/* none of them is used twice until then */
	_Atomic uint64_t requests, failed;
	_Atomic uint32_t logged;	/* enum tbg_news */
	_Atomic uint64_t logged_ns;
	uint32_t checked_ms;		/* the rest is health.c's */
	bool checking;
};

struct tbg_upstream {
	_Atomic uint32_t refs;
	_Atomic uint32_t sites;		/* configurations that name it; 0: gone */
	uint32_t id;			/* what is stored of its answers is under this */
	char *name;			/* as in the configuration, or its servers */
	char *servers;			/* as they were given, with blanks between */
	struct tbg_upstream_settings settings;
	struct tbg_pool_command *command; /* a pool that we run (gateway/supervise.h), or NULL */
	struct tbg_backend *backends;
	unsigned int nr;
	_Atomic uint32_t turn;
};

/* The protocol of a name; false: none. */
bool tbg_protocol_find(const char *name, uint8_t *ret);
bool tbg_protocol_needs_root(uint8_t protocol);
bool tbg_protocol_needs_length(uint8_t protocol);	/* of bodies, before they come */

/*
 * Where a server is: SCHEME://HOST[:PORT][/], unix:PATH or SCHEME://unix:PATH,
 * the scheme being the protocol's name; bare: HOST:PORT as well. Names are
 * looked up now (upstream/address.h); nr: which of the addresses, from 0. False: it is none
 * of these, or has no more addresses. A name that has none at all is a server whose
 * address_len is 0.
 */
bool tbg_backend_parse(const char *text, uint8_t protocol, bool bare, unsigned int nr,
		       struct tbg_backend *ret);

/*
 * Where a server of our own listens: a name that nobody can guess, and that
 * leaves nothing behind. text: what it is called. Negative errno.
 */
int tbg_backend_own(struct tbg_backend *ret, const char *text);

/* One without servers yet, and with one reference; NULL: no memory. */
struct tbg_upstream *tbg_upstream_new(const char *name, const char *servers,
				      const struct tbg_upstream_settings *settings);
/* One more server; before anyone else sees the upstream. False: no room. */
bool tbg_upstream_add(struct tbg_upstream *u, const struct tbg_backend *b);
/* Would it make no difference which of them is asked? */
bool tbg_upstream_same(const struct tbg_upstream *a, const struct tbg_upstream *b);

/*
 * If u was asked for in the words of old, it is the same upstream, whose servers' names
 * lead elsewhere now: what is stored of its answers stays, and what is known of a
 * server that is still among them. Before anyone else sees u.
 */
void tbg_upstream_follow(struct tbg_upstream *u, struct tbg_upstream *old);

/* Whether modules answer for it. */
bool tbg_upstream_module(const struct tbg_upstream *u);

/* Any thread. What uses it holds it. */
struct tbg_upstream *tbg_upstream_get(struct tbg_upstream *u);
void tbg_upstream_put(struct tbg_upstream *u);		/* NULL is allowed */

/*
 * The next server to ask. tried: bit per nr, of those that this request has
 * asked before. A resting one is taken only if all others are tried or rest.
 * NULL: all are tried.
 */
struct tbg_backend *tbg_upstream_choose(struct tbg_upstream *u, uint32_t tried,
					uint64_t now_ns);

/* How a request to it went; why: in words, for the log. */
void tbg_backend_worked(struct tbg_backend *b, uint64_t now_ns);
void tbg_backend_failed(struct tbg_backend *b, const char *why, uint64_t now_ns);

/*
 * What a health check found (status: of its answer, or 0): it may be asked, or rests
 * until another finds it well.
 */
void tbg_backend_found(struct tbg_backend *b, unsigned int status, uint64_t now_ns);
bool tbg_backend_rests(const struct tbg_backend *b, uint64_t now_ns);

#endif
