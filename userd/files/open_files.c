// SPDX-License-Identifier: GPL-2.0
/*
 * Open files by name, one in each slot of a table. Called by serve/file.c; learns of
 * changes from the cache's log of them (watch.c). Must never return a file that the
 * name no longer leads to.
 *
 * inotify reports changes of names: a file that replaces another, a sibling, a
 * folder in the path. Changes of the file itself are noticed at each request by
 * fstat().
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "files/files.h"
#include "files/open_files.h"
#include "files/watch.h"

#define SLOTS	128			/* maximum of files, with one descriptor each */
#define FILES_SHARE 16			/* divisor of the limit of descriptors */
#define IDLE_NS	2000000000ull		/* closed if not requested for this long */
#define AGE_NS	5000000000ull		/* maximum age: one round of the periodic stat */
#define PAUSE_NS 200000000ull		/* between attempts to keep a file */

struct kept {
	char *name;			/* NULL: the slot is empty */
	struct tbg_file f;
	uint64_t seq;			/* number of the last change considered */
	uint64_t opened_ns, used_ns;
	uint64_t asked_hash, asked_ns;	/* the last requested name that was not kept */
	uint64_t not_before_ns;		/* requests before this do not count */
};

struct tbg_open_files {
	struct tbg_cache *cache;
	unsigned int nr;		/* of slots */
	pthread_mutex_t lock;		/* before the cache's */
	struct kept slots[SLOTS];
};

static struct kept *slot_of(struct tbg_open_files *o, uint64_t hash)
{
	return &o->slots[hash % o->nr];
}

/*
 * Empties a slot and returns its descriptor, or -1. It is to be closed without
 * the lock, since the last close of a deleted file frees its blocks.
 */
static int drop(struct kept *k)
{
	if (!k->name)
		return -1;
	free(k->name);
	k->name = NULL;
	return k->f.fd;
}

static void unlock(struct tbg_open_files *o, int dropped)
{
	pthread_mutex_unlock(&o->lock);
	if (dropped >= 0)
		close(dropped);
}

static bool is_good(const struct tbg_open_files *o, struct kept *k, uint64_t now_ns)
{
	return k->name && now_ns < k->opened_ns + AGE_NS &&
	       !tbg_cache_changed(o->cache, k->name, &k->seq);
}

bool tbg_open_files_get(struct tbg_open_files *o, const char *name, struct tbg_file *ret)
{
	struct kept *k = slot_of(o, tbg_name_hash(name, strlen(name)));
	struct stat st;
	int old = -1;

	pthread_mutex_lock(&o->lock);
	ret->fd = -1;
	if (k->name && !strcmp(k->name, name)) {
		uint64_t now_ns = tbg_mono_ns();

		if (is_good(o, k, now_ns) && !fstat(k->f.fd, &st) &&
		    tbg_version_same(&st, &k->f.st)) {
			*ret = k->f;
			ret->fd = fcntl(k->f.fd, F_DUPFD_CLOEXEC, 0);
			k->used_ns = now_ns;
		} else {
			old = drop(k);
			k->not_before_ns = now_ns + PAUSE_NS;
		}
	}
	unlock(o, old);
	return ret->fd >= 0;
}

bool tbg_open_files_wants(struct tbg_open_files *o, const char *name)
{
	uint64_t hash = tbg_name_hash(name, strlen(name)), now_ns = tbg_mono_ns();
	struct kept *k = slot_of(o, hash);
	int old = -1;
	bool again;

	pthread_mutex_lock(&o->lock);
	if (k->name && !strcmp(k->name, name)) {	/* it was outdated */
		old = drop(k);
		k->not_before_ns = now_ns + PAUSE_NS;
	}
	again = k->asked_hash == hash && now_ns < k->asked_ns + IDLE_NS &&
		now_ns >= k->not_before_ns;
	k->asked_hash = hash;
	k->asked_ns = now_ns;
	unlock(o, old);
	return again;
}

void tbg_open_files_keep(struct tbg_open_files *o, const char *name,
		     const struct tbg_file *f, const struct tbg_lease *lease)
{
	struct kept *k = slot_of(o, tbg_name_hash(name, strlen(name)));
	struct tbg_file own = *f;
	char *copy = NULL;
	int old;

	own.type = own.coding = NULL;
	own.memory = NULL;
	own.fd = -1;
	if (f->size > TBG_FILE_SMALL && !tbg_version_recent(&f->st) &&
	    f->modified_s == f->st.st_mtim.tv_sec &&
	    !tbg_watch_doubt(lease, &f->st, f->fd)) {
		own.fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
		copy = strdup(name);
	}
	pthread_mutex_lock(&o->lock);
	old = drop(k);
	k->used_ns = k->opened_ns = tbg_mono_ns();
	if (copy && own.fd >= 0) {
		k->name = copy;
		k->f = own;
		k->seq = lease->seq;
	} else {
		k->not_before_ns = k->opened_ns + PAUSE_NS;
		tbg_file_close(&own);
		free(copy);
	}
	unlock(o, old);
}

void tbg_open_files_tick(struct tbg_open_files *o, uint64_t now_ns)
{
	for (unsigned int i = 0; i < o->nr; i++) {
		struct kept *k = &o->slots[i];
		int old = -1;

		pthread_mutex_lock(&o->lock);
		if (now_ns > k->used_ns + IDLE_NS || !is_good(o, k, now_ns))
			old = drop(k);
		unlock(o, old);
	}
}

int tbg_open_files_open(struct tbg_open_files **ret, struct tbg_cache *cache)
{
	struct tbg_open_files *o = calloc(1, sizeof(*o));
	struct rlimit files;

	if (!o)
		return -ENOMEM;
	o->cache = cache;
	o->nr = SLOTS;
	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur / FILES_SHARE < SLOTS)
		o->nr = files.rlim_cur / FILES_SHARE + 1;
	pthread_mutex_init(&o->lock, NULL);
	*ret = o;
	return 0;
}
