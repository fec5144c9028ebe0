/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cache: objects by key, shared by all workers and, through the index map, by the
 * kernel tiers. Publishing, withdrawing, admission, eviction, quarantine.
 *
 * Any thread may call these functions, except for tbg_cache_tick(). A found or
 * published object has a reference for the caller; its blob does not change until
 * tbg_object_put().
 */
#ifndef TBG_USERD_CACHE_OBJECTS_H
#define TBG_USERD_CACHE_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "abi/cache.h"
#include "cache/slots.h"

struct tbg_cache;

#define TBG_FRESH_ALWAYS UINT64_MAX	/* expires_ns: until withdrawn */

struct tbg_object {
	struct tbg_key key;		/* a lookup reads only up to path */
	const struct tbg_blob *blob;
	uint32_t blob_id;
	uint32_t vhost;
	_Atomic uint64_t expires_ns;	/* CLOCK_MONOTONIC */
	uint64_t born_ns;		/* see tbg_entry; if blob->age_len */
	_Atomic uint32_t refs;		/* private to cache/objects.c */
	uint16_t path_len;		/* canonical request path */
	bool in_kernel;			/* in the index of the kernel tiers */
	uint8_t etag_len;
	uint8_t flags;			/* TBG_ENTRY_* */
	uint8_t encoding;		/* enum tbg_encoding */
	uint8_t siblings;		/* files of its variants, see files/files.h */
	_Atomic uint8_t variants;	/* possible variants, 1 << encoding each */
	_Atomic uint64_t refused_ns;	/* until then, no variant is attempted again */
	char *path;			/* NUL-terminated */
	char *name;			/* file, relative to the root, without leading / */
	char etag[40];			/* with quotes, zero-padded */
	int64_t modified_s;		/* Last-Modified, seconds since 1970 */
	struct {			/* the file's version, for revalidation */
		uint64_t dev, ino, size;
		int64_t mtime_ns, ctime_ns;
		uint32_t mode, uid, gid;
	} file;
	/* private to cache/objects.c */
	struct tbg_cache *cache;
};

/* maps NULL: no kernel tiers. */
int tbg_cache_open(struct tbg_cache **ret, const struct tbg_plan *plan,
		   const struct tbg_cache_maps *maps, const uint64_t key[2]);
void tbg_cache_close(struct tbg_cache *c);

/* Returns the hash key for tbg_key_make() in bpf/core/key.h. */
const uint64_t *tbg_cache_hash_key(const struct tbg_cache *c);

/*
 * Finds the object of a canonical path and returns it with a reference; NULL: a miss.
 * Counts hits and misses for admission. May return an expired object: the caller checks
 * expires_ns and revalidates.
 */
struct tbg_object *tbg_cache_find(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len);
/* As tbg_cache_find(), for lookups without a client: not counted as hit or miss. */
struct tbg_object *tbg_cache_look(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len);
void tbg_object_get(struct tbg_object *o);	/* one more reference */
void tbg_object_put(struct tbg_object *o);

/*
 * Replaces a reference: key, path and heat remain readable, and the object can be
 * withdrawn, but its slot and blob may be reused.
 */
void tbg_object_watch(struct tbg_object *o);
void tbg_object_unwatch(struct tbg_object *o);
/* Returns whether it can still be found. Its slot then lasts for TBG_QUARANTINE_S at least. */
bool tbg_object_known(const struct tbg_object *o);

/* Taken before a file is opened and passed with the draft; see files/watch.h. */
struct tbg_lease {
	uint64_t seq;
	bool trusted;		/* inotify watches every folder of the path */
	bool no_variants;	/* its folder has no name such as name.gz */
	bool folders_only;	/* the file's own watch is still missing: tbg_watch_file() */
	char why[64];		/* reason if not trusted */
};

/*
 * A new object. The caller fills data[0..data_len) with the response head, the body
 * directly after it, and the head of the 304 after that (data_len counts TBG_304_ROOM
 * bytes for it, whatever its length); sets blob->part[] (all fields except csum) and
 * blob->age_len; sets the object's etag, modified_s, file, expires_ns, born_ns; then
 * publishes or abandons it.
 */
struct tbg_draft {
	struct tbg_blob *blob;		/* writable */
	uint32_t data_len;
	struct tbg_object *object;	/* writable until published */
	struct tbg_lease *lease;	/* NULL: not a file */
};

/*
 * Allocates data_len bytes for a key. -ENOSPC: not admitted, the memory is better used
 * by others; -EFBIG: larger than the largest class. path is copied.
 */
int tbg_draft_open(struct tbg_cache *c, const struct tbg_key *key,
		   uint32_t vhost, const char *path, size_t path_len,
		   const char *name, uint32_t data_len, struct tbg_draft *ret);

/*
 * Computes checksums, makes the object visible to all tiers that can hold it, and
 * returns it with a reference. An existing object of the key is replaced. -ESTALE: the
 * file has changed since the lease. On error the draft is abandoned.
 */
int tbg_draft_publish(struct tbg_draft *d, struct tbg_object **ret);
void tbg_draft_abandon(struct tbg_draft *d);

/* Returns the number of hits in kernel tiers. */
uint64_t tbg_object_heat(const struct tbg_object *o);

/* Sets a new expiry in all tiers, after revalidation. */
void tbg_object_renew(struct tbg_object *o, uint64_t expires_ns);

/* Sets the possible variants in all tiers. */
void tbg_object_vary(struct tbg_object *o, unsigned int variants);

/* Withdraws an object. Returns the number of objects withdrawn. */
unsigned int tbg_cache_withdraw(struct tbg_cache *c, struct tbg_object *o);
#define TBG_VHOST_ANY UINT32_MAX	/* all sites */
unsigned int tbg_cache_withdraw_path(struct tbg_cache *c, uint32_t vhost,
				     const char *path, size_t path_len);
/* Withdraws all objects whose path begins with prefix. */
unsigned int tbg_cache_withdraw_below(struct tbg_cache *c, uint32_t vhost,
				      const char *prefix, size_t prefix_len);
/*
 * Withdraws by file: the file itself, everything below it if it is a folder, and the
 * file that it is a variant of by its suffix (name for name.gz).
 */
unsigned int tbg_cache_withdraw_name(struct tbg_cache *c, const char *name);
unsigned int tbg_cache_withdraw_all(struct tbg_cache *c);

/* Calls fn for every object, with a reference during the call, until fn returns false. */
void tbg_cache_each(struct tbg_cache *c,
		    bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		    void *arg);

/* As tbg_cache_each(), for one shard, 0..TBG_CACHE_SHARDS - 1. */
#define TBG_CACHE_SHARDS 64
void tbg_cache_shard(struct tbg_cache *c, unsigned int shard,
		     bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		     void *arg);

/*
 * Returns the number of withdrawals by name (or of everything) so far. A lease stores
 * it before the file is opened, and tbg_draft_publish() refuses names that were
 * withdrawn since.
 */
uint64_t tbg_cache_changes(const struct tbg_cache *c);

/* Returns whether a name or a folder above it was withdrawn since *seq, and updates *seq. */
bool tbg_cache_changed(struct tbg_cache *c, const char *name, uint64_t *seq);

/* Returns whether there is an object of this file. */
bool tbg_cache_has_name(struct tbg_cache *c, const char *name);

/* Makes all existing leases stale, for every name. */
void tbg_cache_break_leases(struct tbg_cache *c);

struct tbg_cache_stats {
	uint64_t objects, in_kernel, bytes_used, bytes_budget, quarantined;
	uint64_t hits, misses, published, withdrawn, evicted, refused;
	uint64_t stale;			/* drafts refused because of a stale lease */
	uint64_t index_failed;		/* objects for which the index map had no space */
};
void tbg_cache_stats(struct tbg_cache *c, struct tbg_cache_stats *ret);

/* Ages hit counts and ends quarantines. Called about once a second by the control thread. */
void tbg_cache_tick(struct tbg_cache *c, uint64_t now_ns);

#endif
