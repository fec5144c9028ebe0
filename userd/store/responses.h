/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stored responses of upstreams, found by the request's URI and then by the fields that
 * Vary names (RFC 9111 2 and 4.1). Shared by all workers. The store also knows pending
 * fetches, so that many requests cause one fetch, and recent withdrawals, so that a
 * response that was withdrawn during its fetch is not stored.
 *
 * A stored response never changes: a validation makes a new one with the same body.
 * tbg_store_find() and tbg_stored_new() return a reference.
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

/* A piece of a body; pieces are in the order of arrival. */
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
	uint64_t room;			/* allocated bytes of its pieces */
	_Atomic int64_t *outside;	/* counter of its store, see tbg_store_count(), or NULL */
	bool read_once;			/* one reader, which frees the bytes that it has read */
};

struct tbg_byte_chain *tbg_byte_chain_new(void);
void tbg_byte_chain_put(struct tbg_byte_chain *p);		/* accepts NULL */
/*
 * Returns the last piece if it has free space, or a new one with `room` bytes. NULL: no
 * memory.
 */
struct tbg_piece *tbg_byte_chain_room(struct tbg_byte_chain *p, uint32_t room);
/* Frees the pieces before `until`. The caller must be the only reader. */
void tbg_byte_chain_cut(struct tbg_byte_chain *p, const struct tbg_piece *until);
bool tbg_byte_chain_add(struct tbg_byte_chain *p, const void *b, size_t len);
/*
 * Returns the chain for long-term use: another reference, or a copy if more than half
 * of its memory is unused. NULL: no memory.
 */
struct tbg_byte_chain *tbg_byte_chain_keep(struct tbg_byte_chain *p);

/* Limit for the objects of one response, each for a different text of Accept-Encoding. */
#define TBG_STORED_OBJECTS 4

struct tbg_stored {
	_Atomic uint32_t refs;
	LIST_ENTRY(tbg_stored) link;	/* in the list of variants of its URI */
	struct tbg_response_directives directives;
	char reason[64];
	char *head;			/* field lines */
	uint32_t head_len;
	char *secondary;		/* secondary key, see tbg_vary_make() */
	uint32_t secondary_len;
	char *vary;			/* secondary key of a request without fields */
	uint32_t vary_len;
	struct tbg_byte_chain *body;
	_Atomic uint64_t refresh_ns;	/* when to refresh it next; each attempt moves it on */
	bool authorized;		/* its request had Authorization */
	/* made by a program; received from an HTTP/1.0 server: see deliver.h */
	bool made_here, older;
	bool by_encoding;		/* its only Vary is Accept-Encoding */
	/* the following members belong to the store and its lock */
	const void *entry;		/* entry that contains it; NULL: none */
	/*
	 * objects published from it, one per Accept-Encoding text, watched; filled from
	 * the front
	 */
	struct tbg_object *objects[TBG_STORED_OBJECTS];
	uint64_t replaced_ns;		/* when one of them was last replaced */
	uint64_t hits;			/* without those of the objects */
	uint64_t heat_seen;		/* hits of the objects when last checked */
};

/*
 * Makes a stored response from these field lines, which are copied, and the head of its
 * request. Takes over the reference to body. NULL: no memory.
 */
struct tbg_stored *tbg_stored_new(const struct tbg_response_directives *t, const char *reason,
				  const char *head, size_t head_len,
				  const char *req, size_t req_len,
				  struct tbg_byte_chain *body);
void tbg_stored_get(struct tbg_stored *s);
void tbg_stored_put(struct tbg_stored *s);	/* accepts NULL */

/* Returns whether its Vary allows it to answer a request with these field lines. */
bool tbg_stored_selects(const struct tbg_stored *s, const char *req, size_t req_len);

/* The URI of a stored response: authority, then the target from its first slash on. */
struct tbg_uri {
	const char *text;
	uint32_t len;
	uint32_t path_off;
	uint32_t upstream;	/* each upstream has responses of its own */
	/* as a trusted proxy reports it; a withdrawal of the URI ignores both */
	bool https;
	struct tbg_slice proxy_host;	/* host from the proxy if it differs; len 0: none */
};

/* budget: limit in bytes for all stored responses; key: of the hash. */
int tbg_store_open(struct tbg_store **ret, uint64_t budget,
		   const uint64_t key[2]);
void tbg_store_close(struct tbg_store *s);	/* accepts NULL */

/* Returns the size limit of a stored body. */
uint64_t tbg_store_body_max(const struct tbg_store *s);

/*
 * Counts the memory of a body that may be stored, until it is freed. While it is not
 * stored (not yet, or no longer but still being sent), it counts outside of the budget.
 */
void tbg_store_count(struct tbg_store *s, struct tbg_byte_chain *p);
/*
 * Returns whether another body may be received for storage: memory outside of the
 * budget is limited.
 */
bool tbg_store_has_room(const struct tbg_store *s);

/*
 * Returns the stored response that the request selects, with a reference. NULL: none;
 * *ret_others: whether the URI has other variants.
 */
struct tbg_stored *tbg_store_find(struct tbg_store *s, const struct tbg_uri *u,
				  const char *req, size_t req_len,
				  bool *ret_others);

/*
 * Stores a response and takes over the reference. seq: tbg_store_seq() before the
 * request was sent. Returns false without memory, or if the URI was withdrawn since.
 * old: the response that the request selected before, which is replaced; or NULL.
 */
bool tbg_store_put(struct tbg_store *s, const struct tbg_uri *u,
		   struct tbg_stored *one, uint64_t seq, const struct tbg_stored *old);
uint64_t tbg_store_seq(struct tbg_store *s);

/*
 * Publishes a stored response to the kernel tiers as the object of a draft. Returns
 * false if the response is not stored any more, if the URI has variants that the
 * draft's text (URI and Accept-Encoding) does not distinguish, or if the response has
 * too many objects. A withdrawal of the response withdraws the object at the same time.
 */
struct tbg_draft;
struct tbg_key;
bool tbg_store_publish(struct tbg_store *s, struct tbg_stored *one,
		       struct tbg_draft *d, uint64_t now_ns);
/*
 * Returns whether tbg_store_publish() would accept a draft of that key: a draft is
 * expensive.
 */
bool tbg_store_wants(struct tbg_store *s, struct tbg_stored *one,
		     const struct tbg_key *key, uint64_t now_ns);

/* Calls fn for all stored responses, the newest of each URI first, until fn returns false. */
struct tbg_store_row {
	struct tbg_uri uri;
	const struct tbg_stored *stored;
	uint64_t hits;			/* of all tiers */
};
void tbg_store_each(struct tbg_store *s,
		    bool (*fn)(const struct tbg_store_row *row, void *arg),
		    void *arg);

/*
 * Withdraws this response if it is still stored. Fetches in progress are stored
 * nevertheless.
 */
void tbg_store_drop(struct tbg_store *s, const struct tbg_uri *u,
		    const struct tbg_stored *one);

/* Withdraws all variants. Returns the number of responses withdrawn. */
unsigned int tbg_store_withdraw(struct tbg_store *s, const struct tbg_uri *u);
/*
 * Withdraws all variants for an answer that may replace them. If nothing else has
 * withdrawn them since *seq, returns true and updates *seq, so that tbg_store_put()
 * accepts the answer. Otherwise returns false.
 */
bool tbg_store_withdraw_own(struct tbg_store *s, const struct tbg_uri *u, uint64_t *seq);
/* Withdraws a path with any authority and query; NULL: everything. */
unsigned int tbg_store_purge(struct tbg_store *s, const char *path, size_t len);
/* Withdraws all paths with this prefix. */
unsigned int tbg_store_purge_below(struct tbg_store *s, const char *path,
				   size_t len);
/* Withdraws all URIs of a host, on any port. */
unsigned int tbg_store_purge_host(struct tbg_store *s, const char *host);
/* Withdraws responses with the tag in Surrogate-Key. */
unsigned int tbg_store_purge_tag(struct tbg_store *s, const char *tag);

/* A request that waits for the fetch of another request. */
struct tbg_waiter {
	struct tbg_mail mail;		/* sent when the fetch has ended, */
	struct tbg_mailbox *mailbox;	/* to the mailbox of the request's worker */
	/* NULL: it has ended, or the request never waited */
	struct tbg_pending_fetch *pending;
	TAILQ_ENTRY(tbg_waiter) link;
	/* 0: look the response up again; else how the fetch failed */
	unsigned int status;
};

/* A value for `status`: the server answered with an error that a stale response may replace. */
#define TBG_PENDING_ERROR 1

enum tbg_turn {
	TBG_TURN_LEAD,		/* fetch, then call tbg_store_pending_end() */
	TBG_TURN_WAIT,		/* wait for mail */
	TBG_TURN_ALONE,		/* fetch; no request waits for this one */
};

/* Whether a request may wait for others, and others for it. */
enum tbg_join {
	TBG_JOIN_NOT,		/* neither; it gets TBG_TURN_ALONE */
	TBG_JOIN,
	TBG_JOIN_HOPING,	/* as JOIN, but not if waiting was recently useless for this URI */
	TBG_JOIN_AFTER,		/* it may wait for others, but others not for it */
};

/* Called when tbg_store_find() has found no usable response. */
enum tbg_turn tbg_store_enter(struct tbg_store *s, const struct tbg_uri *u,
			      const char *req, size_t req_len, enum tbg_join join,
			      struct tbg_waiter *waiter, uint64_t now_ns,
			      struct tbg_pending_fetch **ret_pending);
/* Ends a fetch and informs the waiting requests. pass: do not wait for the next fetches. */
void tbg_store_pending_end(struct tbg_store *s, struct tbg_pending_fetch *f,
			   unsigned int status, bool pass, uint64_t now_ns);
/* Returns the number of requests that wait for it. */
unsigned int tbg_store_waiting(struct tbg_store *s, const struct tbg_pending_fetch *f);
/* Reports that the fetch runs. Must be called more often than tbg_store_lost() is. */
void tbg_store_pending_alive(struct tbg_pending_fetch *f, uint64_t now_ns);
/* Returns whether the fetch has neither ended nor been reported running since since_ns. */
bool tbg_store_lost(struct tbg_store *s, const struct tbg_waiter *waiter,
		    uint64_t since_ns);
/* Stops waiting. No mail arrives afterwards. */
void tbg_store_leave(struct tbg_store *s, struct tbg_waiter *waiter);

struct tbg_store_stats {
	uint64_t responses, uris, bytes_used, bytes_budget, evicted, withdrawn;
};
void tbg_store_stats(struct tbg_store *s, struct tbg_store_stats *ret);

#endif
