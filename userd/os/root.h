/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The open root folders, by number. Everywhere in the daemon (cache, watch, file), a
 * file's name is rooted: the number of its root, a slash, and the path below that root,
 * such as "0/css/site.css". So names of different roots never collide, and the name of
 * a root, "0", looks like a common parent folder.
 */
#ifndef TBG_USERD_OS_ROOT_H
#define TBG_USERD_OS_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TBG_ROOTS_MAX	512	/* of two configurations, during a reload */
#define TBG_SITES_ROOTS	256	/* of one configuration */
#define TBG_ROOT_TEXT	5	/* bytes of "511/" and its NUL */

struct tbg_roots;

int tbg_roots_open(struct tbg_roots **ret);
void tbg_roots_close(struct tbg_roots *r);	/* accepts NULL */

/*
 * Returns the number of a folder's root with a reference. Each path to a folder is a
 * root of its own, because it may lead elsewhere later. Returns a negative errno on
 * failure; -E2BIG: TBG_ROOTS_MAX are open. Called only by the control thread.
 */
int tbg_root_get(struct tbg_roots *r, const char *path);
void tbg_root_put(struct tbg_roots *r, int nr);
bool tbg_root_last(const struct tbg_roots *r, int nr);	/* one reference is left */

/*
 * Checks whether paths of roots lead to other folders by now (a changed symbolic link,
 * a replaced folder), switches those roots to them, and calls moved(). A root whose
 * path leads nowhere remains unchanged. hidden() is called once for a path that
 * permissions do not allow to search. Any thread, but only one at a time; it may run
 * while the control thread takes and releases roots.
 */
void tbg_roots_follow(struct tbg_roots *r, void (*moved)(void *arg, int nr),
		      void (*hidden)(const char *path), void *arg);

/* Returns its resolved path, for messages; "" for -1, no root. */
const char *tbg_root_path(const struct tbg_roots *r, int nr);

/*
 * Any thread: returns the open folder of a rooted name. *ret_below: the path to look up
 * in it ("." for the root itself). -1: there is no such root (any more).
 */
int tbg_root_fd(const struct tbg_roots *r, const char *name,
		const char **ret_below);

/*
 * Opens a rooted name; the result is always below its root. flags: as for open();
 * resolve: additional RESOLVE_* flags of openat2(2). Returns a negative errno on
 * failure.
 */
int tbg_root_openat(const struct tbg_roots *r, const char *name,
		    uint64_t flags, uint64_t resolve);

/*
 * Two paths of a root, resolved and as configured: an absolute link that stays below
 * the root begins with one of them.
 */
struct tbg_root_ways {
	char *resolved, *asked;
};

/* Copies those of a rooted name; free them afterwards. Returns false without memory or root. */
bool tbg_root_ways(const struct tbg_roots *r, const char *name, struct tbg_root_ways *ret);
void tbg_root_ways_free(struct tbg_root_ways *w);

/*
 * As tbg_root_openat(), for a name below an open root. ways NULL: absolute links are
 * refused.
 */
int tbg_root_open_below(int root_fd, const struct tbg_root_ways *ways, const char *name,
			uint64_t flags, uint64_t resolve);

/* FNV-1a of a rooted name. Not keyed: hashed names are those of existing files. */
static inline uint64_t tbg_name_hash(const char *name, size_t len)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return h ^ h >> 32;
}

/* Writes "NUMBER/", NUL-terminated. Returns its length. */
size_t tbg_root_text(int nr, char ret[TBG_ROOT_TEXT]);

#endif
