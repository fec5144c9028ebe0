/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The servers behind us: where they are, whose turn it is, which of them have
 * failed. Made from the options; read by all workers.
 */
#ifndef TBG_USERD_UPSTREAM_H
#define TBG_USERD_UPSTREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define TBG_BACKEND_MAX	32		/* servers, all upstreams together */
#define TBG_BACKEND_FAILURES 3		/* in a row, and a server rests */
#define TBG_BACKEND_REST_NS (10 * 1000000000ull)

struct tbg_backend {
	struct sockaddr_storage address;
	socklen_t address_len;
	unsigned int id;		/* below TBG_BACKEND_MAX */
	char text[256];			/* as it was given */
	char authority[256];		/* Host for requests without one */
	_Atomic uint32_t failures;	/* in a row */
	_Atomic uint64_t rest_ns;	/* not asked until then */
	_Atomic uint32_t active;	/* requests under way */
	_Atomic uint64_t requests, failed;
	uint32_t checked_ms;		/* the rest is health.c's */
	bool checking;
};

struct tbg_upstream {
	struct tbg_backend backends[TBG_BACKEND_MAX];
	unsigned int nr;
	bool least;			/* fewest requests first, not in turn */
	_Atomic uint32_t turn;
};

/*
 * One more server: http://HOST[:PORT][/], unix:PATH or http://unix:PATH. Names
 * are looked up now. False: it is none of these, or there is no room.
 */
bool tbg_upstream_add(struct tbg_upstream *u, const char *text);

/*
 * The next server to ask. tried: bit per index, of those that this request has
 * asked before. A resting one is taken only if all others are tried or rest.
 * NULL: all are tried.
 */
struct tbg_backend *tbg_upstream_choose(struct tbg_upstream *u, uint32_t tried,
					uint64_t now_ns);

/* How a request to it went. */
void tbg_backend_worked(struct tbg_backend *b);
void tbg_backend_failed(struct tbg_backend *b, uint64_t now_ns);

/* What a health check found: it may be asked, or rests until then. */
void tbg_backend_found(struct tbg_backend *b, bool well, uint64_t rest_ns);
bool tbg_backend_rests(const struct tbg_backend *b, uint64_t now_ns);

#endif
