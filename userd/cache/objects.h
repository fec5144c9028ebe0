/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cache: objects by key, shared by all workers and, through the index
 * map, by the kernel tiers. Publishing, withdrawing, admission, eviction,
 * quarantine.
 *
 * Any thread may call anything here but tbg_cache_tick(). An object found or
 * published is referenced; its blob stays as it is until tbg_object_put().
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
	struct tbg_key key;		/* a find reads no further than path */
	const struct tbg_blob *blob;
	uint32_t blob_id;
	uint32_t vhost;
	_Atomic uint64_t expires_ns;	/* CLOCK_MONOTONIC */
	uint64_t born_ns;		/* see tbg_entry; if blob->age_len */
	_Atomic uint32_t refs;		/* cache/objects.c's */
	uint16_t path_len;		/* canonical request path */
	bool in_kernel;			/* the kernel tiers can find it */
	uint8_t etag_len;
	uint8_t flags;			/* TBG_ENTRY_* */
	uint8_t encoding;		/* enum tbg_encoding */
	uint8_t siblings;		/* files of its variants, see files/files.h */
	_Atomic uint8_t variants;	/* that there may be, 1 << encoding each */
	_Atomic uint64_t refused_ns;	/* until then no variant is tried again */
	char *path;			/* NUL-terminated */
	char *name;			/* file, relative to the root, no leading / */
	char etag[40];			/* with quotes, zero-padded */
	int64_t modified_s;		/* Last-Modified, seconds since 1970 */
	struct {			/* the file's identity, for revalidation */
		uint64_t dev, ino, size;
		int64_t mtime_ns, ctime_ns;
		uint32_t mode, uid, gid;
	} file;
	/* the rest is cache/objects.c's */
	struct tbg_cache *cache;
};

/* maps NULL: no kernel tiers. */
int tbg_cache_open(struct tbg_cache **ret, const struct tbg_plan *plan,
		   const struct tbg_cache_maps *maps, const uint64_t key[2]);
void tbg_cache_close(struct tbg_cache *c);

/* The key of the hash, as tbg_key_make() in bpf/core/key.h wants it. */
const uint64_t *tbg_cache_hash_key(const struct tbg_cache *c);

/*
 * The object of a canonical path, referenced; NULL: a miss. Counts a hit for
 * admission (a miss too). An expired object is returned as well: the caller
 * looks at expires_ns and revalidates.
 */
struct tbg_object *tbg_cache_find(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len);
/* The same where no client asks: it is no hit and no miss in any count. */
struct tbg_object *tbg_cache_look(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len);
void tbg_object_get(struct tbg_object *o);	/* one reference more */
void tbg_object_put(struct tbg_object *o);

/*
 * Instead of a reference: its key, path and heat stay to be read, and it can be
 * withdrawn, but its slot is free to go to others, and with it the blob.
 */
void tbg_object_watch(struct tbg_object *o);
void tbg_object_unwatch(struct tbg_object *o);
/* Whether it can be found yet; its slot then lasts for TBG_QUARANTINE_S. */
bool tbg_object_known(const struct tbg_object *o);

/* Taken before a file is opened, handed in with the draft; see files/watch.h. */
struct tbg_lease {
	uint64_t seq;
	bool trusted;		/* inotify covers every folder on the way */
	bool no_variants;	/* nor has its folder a name such as name.gz */
	bool folders_only;	/* the file's own watch is to be made yet: tbg_watch_file() */
	char why[64];		/* why not */
};

/*
 * A response set being written. The caller fills data[0..data_len) with the
 * response head, the body right behind it, and the 304 head after that, where
 * data_len counts TBG_304_ROOM bytes for it whatever its length;
 * sets blob->part[] (all fields but csum) and blob->age_len; fills the object's
 * etag, modified_s, file, expires_ns, born_ns; then publishes or abandons.
 */
struct tbg_draft {
	struct tbg_blob *blob;		/* writable */
	uint32_t data_len;
	struct tbg_object *object;	/* writable until published */
	struct tbg_lease *lease;	/* NULL: not a file */
};

/*
 * Room for data_len bytes under a key. -ENOSPC: not admitted (no room that is
 * not better used); -EFBIG: larger than the largest class. path is copied.
 */
int tbg_draft_open(struct tbg_cache *c, const struct tbg_key *key,
		   uint32_t vhost, const char *path, size_t path_len,
		   const char *name, uint32_t data_len, struct tbg_draft *ret);

/*
 * Computes checksums, makes the object visible to every tier that can hold
 * it, and returns it referenced. -ESTALE: the lease was broken meanwhile (the
 * file changed); -EEXIST never: it replaces. On error the draft is abandoned.
 */
int tbg_draft_publish(struct tbg_draft *d, struct tbg_object **ret);
void tbg_draft_abandon(struct tbg_draft *d);

/* How often the kernel tiers have answered with it, found or not. */
uint64_t tbg_object_heat(const struct tbg_object *o);

/* A new expiry, in every tier, for an object proven fresh. */
void tbg_object_renew(struct tbg_object *o, uint64_t expires_ns);

/* Other variants, in every tier, for an object that has such. */
void tbg_object_vary(struct tbg_object *o, unsigned int variants);

/* Withdraws. Number of objects withdrawn. */
unsigned int tbg_cache_withdraw(struct tbg_cache *c, struct tbg_object *o);
#define TBG_VHOST_ANY UINT32_MAX	/* of every site */
unsigned int tbg_cache_withdraw_path(struct tbg_cache *c, uint32_t vhost,
				     const char *path, size_t path_len);
/* All whose path begins so. */
unsigned int tbg_cache_withdraw_below(struct tbg_cache *c, uint32_t vhost,
				      const char *prefix, size_t prefix_len);
/*
 * By file: name itself, where it is a folder everything below it, and what it
 * is a variant of by its suffix (name.gz of name).
 */
unsigned int tbg_cache_withdraw_name(struct tbg_cache *c, const char *name);
unsigned int tbg_cache_withdraw_all(struct tbg_cache *c);

/* Visits every object (referenced for the call) until fn returns false. */
void tbg_cache_each(struct tbg_cache *c,
		    bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		    void *arg);

/* The same for the objects of one shard, 0..TBG_CACHE_SHARDS - 1. */
#define TBG_CACHE_SHARDS 64
void tbg_cache_shard(struct tbg_cache *c, unsigned int shard,
		     bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		     void *arg);

/*
 * How many withdrawals by name (or of everything) there have been: a lease
 * remembers it before the file is opened, and tbg_draft_publish() refuses what
 * has been named since.
 */
uint64_t tbg_cache_changes(const struct tbg_cache *c);

/*
 * Whether a name, or a folder above it, is among them since *seq, which becomes
 * the number of now.
 */
bool tbg_cache_changed(struct tbg_cache *c, const char *name, uint64_t *seq);

/* Is there an object of this file? */
bool tbg_cache_has_name(struct tbg_cache *c, const char *name);

/* Refuses whatever has a lease now, under any name. */
void tbg_cache_break_leases(struct tbg_cache *c);

struct tbg_cache_stats {
	uint64_t objects, in_kernel, bytes_used, bytes_budget, quarantined;
	uint64_t hits, misses, published, withdrawn, evicted, refused;
	uint64_t stale;			/* publishes whose lease was broken */
	uint64_t index_failed;		/* objects the index map did not take */
};
void tbg_cache_stats(struct tbg_cache *c, struct tbg_cache_stats *ret);

/* Ages hit counts, ends quarantines. About once a second, control thread. */
void tbg_cache_tick(struct tbg_cache *c, uint64_t now_ns);

#endif
