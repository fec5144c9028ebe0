/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stored responses of upstreams: by the request's URI, then by what Vary names
 * (RFC 9111 2 and 4.1). Shared by all workers. Also who is fetching what, so
 * that many requests make one fetch, and what was withdrawn meanwhile.
 *
 * A stored response never changes: a validation makes a new one around the
 * same body. Whoever found or made one holds a reference.
 */
#ifndef TBG_USERD_STORE_RESPONSES_H
#define TBG_USERD_STORE_RESPONSES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "http/freshness.h"
#include "os/mail.h"

struct tbg_store;

/* A body's bytes in the order they came. */
struct tbg_piece {
	TAILQ_ENTRY(tbg_piece) link;
	uint32_t len, room;
	uint8_t data[];
};

TAILQ_HEAD(tbg_pieces, tbg_piece);

struct tbg_byte_chain {
	_Atomic uint32_t refs;
	struct tbg_pieces pieces;
	uint64_t len;
	uint64_t room;			/* of its pieces */
	_Atomic int64_t *outside;	/* sum of its store, see tbg_store_count(); or NULL */
	bool read_once;			/* by one reader, who frees what has been read */
};

struct tbg_byte_chain *tbg_byte_chain_new(void);
void tbg_byte_chain_put(struct tbg_byte_chain *p);		/* NULL is allowed */
/* A piece with room at the end, or NULL. */
struct tbg_piece *tbg_byte_chain_room(struct tbg_byte_chain *p, uint32_t room);
/* Frees the pieces before that one: nobody else reads p. */
void tbg_byte_chain_cut(struct tbg_byte_chain *p, const struct tbg_piece *until);
bool tbg_byte_chain_add(struct tbg_byte_chain *p, const void *b, size_t len);
/*
 * To be kept for long: another reference, or a copy if most of p is room that
 * nothing has come into. NULL: no memory.
 */
struct tbg_byte_chain *tbg_byte_chain_keep(struct tbg_byte_chain *p);

/* Most ways to write an Accept-Encoding that the kernel tiers know one by. */
#define TBG_STORED_OBJECTS 4

struct tbg_stored {
	_Atomic uint32_t refs;
	LIST_ENTRY(tbg_stored) link;	/* variants of the same URI */
	struct tbg_response_directives directives;
	char reason[64];
	char *head;			/* field lines */
	uint32_t head_len;
	char *secondary;		/* secondary key, see tbg_vary_make() */
	uint32_t secondary_len;
	char *vary;			/* that of a request without any field */
	uint32_t vary_len;
	struct tbg_byte_chain *body;
	_Atomic uint64_t refresh_ns;	/* put off by each try */
	bool authorized;		/* its request had Authorization */
	bool made_here, older;		/* by a program; by HTTP/1.0: see deliver.h */
	bool by_encoding;		/* its Vary names Accept-Encoding, once, alone */
	/* of the store, under its lock */
	const void *entry;		/* where it is found; NULL: it is not */
	/* as the kernel tiers knew it, each under a text: watched, from the front */
	struct tbg_object *objects[TBG_STORED_OBJECTS];
	uint64_t replaced_ns;		/* when one of them gave way to another */
	uint64_t hits;			/* but for those of the objects */
	uint64_t heat_seen;		/* of the objects */
};

/*
 * A stored response of these field lines (copied), to a request with that head.
 * body's reference is taken over. NULL: no memory.
 */
struct tbg_stored *tbg_stored_new(const struct tbg_response_directives *t, const char *reason,
				  const char *head, size_t head_len,
				  const char *req, size_t req_len,
				  struct tbg_byte_chain *body);
void tbg_stored_get(struct tbg_stored *s);
void tbg_stored_put(struct tbg_stored *s);	/* NULL is allowed */

/* Whether its Vary lets it answer a request with these field lines. */
bool tbg_stored_selects(const struct tbg_stored *s, const char *req, size_t req_len);

/* A URI as it is stored: authority, then the target from its slash on. */
struct tbg_uri {
	const char *text;
	uint32_t len;
	uint32_t path_off;
	uint32_t upstream;	/* which has answered; each upstream has responses of its own */
	/* as a trusted proxy says; whatever withdraws a URI withdraws all of these */
	bool https;
	struct tbg_slice proxy_host;	/* the host it names, if another; len 0: none */
};

/* budget: bytes of all that is stored; key: of the hash. */
int tbg_store_open(struct tbg_store **ret, uint64_t budget,
		   const uint64_t key[2]);
void tbg_store_close(struct tbg_store *s);	/* NULL is allowed */

/* Bytes of the largest body that is stored. */
uint64_t tbg_store_body_max(const struct tbg_store *s);

/*
 * A body that may be stored: its pieces count until they are freed, beside the budget
 * while it is not stored, be it not yet or, for the sake of slow clients, still.
 */
void tbg_store_count(struct tbg_store *s, struct tbg_byte_chain *p);
/* Whether one may be received to be stored: there are not too many of these bytes. */
bool tbg_store_has_room(const struct tbg_store *s);

/*
 * The stored response that the request selects, referenced. NULL: none;
 * *ret_others: whether the URI has others.
 */
struct tbg_stored *tbg_store_find(struct tbg_store *s, const struct tbg_uri *u,
				  const char *req, size_t req_len,
				  bool *ret_others);

/*
 * Stores; takes over the reference. seq: tbg_store_seq() from before the
 * request was sent: false if the URI has been withdrawn since, or no memory.
 * old: what the request had selected, and would again; it goes. NULL: nothing.
 */
bool tbg_store_put(struct tbg_store *s, const struct tbg_uri *u,
		   struct tbg_stored *one, uint64_t seq, const struct tbg_stored *old);
uint64_t tbg_store_seq(struct tbg_store *s);

/*
 * Makes what is stored known to the kernel tiers as the object of a draft, if the
 * draft's text says which of the URI's variants answers: false: it is not found
 * any more, has variants that other fields tell apart, or has as many objects as
 * it may. What withdraws it from here withdraws it from there at once.
 */
struct tbg_draft;
struct tbg_key;
bool tbg_store_publish(struct tbg_store *s, struct tbg_stored *one,
		       struct tbg_draft *d, uint64_t now_ns);
/* Whether a draft of that key would be taken: it costs more than to ask. */
bool tbg_store_wants(struct tbg_store *s, struct tbg_stored *one,
		     const struct tbg_key *key, uint64_t now_ns);

/* Visits all that is stored, a URI's newest first, until fn returns false. */
struct tbg_store_row {
	struct tbg_uri uri;
	const struct tbg_stored *stored;
	uint64_t hits;			/* of all tiers */
};
void tbg_store_each(struct tbg_store *s,
		    bool (*fn)(const struct tbg_store_row *row, void *arg),
		    void *arg);

/* Withdraws that one, if it is still found; what is fetched meanwhile is stored. */
void tbg_store_drop(struct tbg_store *s, const struct tbg_uri *u,
		    const struct tbg_stored *one);

/* Withdraws all variants. Number of responses withdrawn. */
unsigned int tbg_store_withdraw(struct tbg_store *s, const struct tbg_uri *u);
/*
 * The same for an answer that may take their place: unless somebody else has withdrawn
 * them since *seq, *seq is moved behind this, so that tbg_store_put() stores. False:
 * somebody has.
 */
bool tbg_store_withdraw_own(struct tbg_store *s, const struct tbg_uri *u, uint64_t *seq);
/* Of any authority and query; path NULL: everything. */
unsigned int tbg_store_purge(struct tbg_store *s, const char *path, size_t len);
/* Whose path begins so. */
unsigned int tbg_store_purge_below(struct tbg_store *s, const char *path,
				   size_t len);
/* Of a host, on any port. */
unsigned int tbg_store_purge_host(struct tbg_store *s, const char *host);
/* Whose Surrogate-Key names the tag. */
unsigned int tbg_store_purge_tag(struct tbg_store *s, const char *tag);

/* A request that waits for another request's fetch. */
struct tbg_waiter {
	struct tbg_mail mail;		/* the news of its end, */
	struct tbg_mailbox *mailbox;	/* in its worker */
	struct tbg_pending_fetch *pending;	/* NULL: it has ended, or never waited */
	TAILQ_ENTRY(tbg_waiter) link;
	unsigned int status;		/* 0: look again; or how the fetch failed */
};

/* In place of a status: the server answered with an error that a stale response may replace. */
#define TBG_PENDING_ERROR 1

enum tbg_turn {
	TBG_TURN_LEAD,		/* fetch, then tbg_store_pending_end() */
	TBG_TURN_WAIT,		/* mail comes */
	TBG_TURN_ALONE,		/* fetch; nobody waits for it */
};

/* Whether a request may wait for others, and others for it. */
enum tbg_join {
	TBG_JOIN_NOT,		/* its turn is ALONE */
	TBG_JOIN,
	TBG_JOIN_HOPING,	/* not where that was of no use of late */
	TBG_JOIN_AFTER,		/* may wait for others, but nobody for it */
};

/* Once tbg_store_find() has found nothing of use. */
enum tbg_turn tbg_store_enter(struct tbg_store *s, const struct tbg_uri *u,
			      const char *req, size_t req_len, enum tbg_join join,
			      struct tbg_waiter *waiter, uint64_t now_ns,
			      struct tbg_pending_fetch **ret_pending);
/* The fetch is over: informs the waiting requests. pass: do not wait next time. */
void tbg_store_pending_end(struct tbg_store *s, struct tbg_pending_fetch *f,
			   unsigned int status, bool pass, uint64_t now_ns);
/* How many wait for it now. */
unsigned int tbg_store_waiting(struct tbg_store *s, const struct tbg_pending_fetch *f);
/* Reports that it is under way, more often than others ask whether it is lost. */
void tbg_store_pending_alive(struct tbg_pending_fetch *f, uint64_t now_ns);
/* Whether what is waited for has not been under way since then, nor has ended. */
bool tbg_store_lost(struct tbg_store *s, const struct tbg_waiter *waiter,
		    uint64_t since_ns);
/* Stops waiting; no mail comes any more. */
void tbg_store_leave(struct tbg_store *s, struct tbg_waiter *waiter);

struct tbg_store_stats {
	uint64_t responses, uris, bytes_used, bytes_budget, evicted, withdrawn;
};
void tbg_store_stats(struct tbg_store *s, struct tbg_store_stats *ret);

#endif
