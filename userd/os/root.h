/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The folders that are served, open, by number. A file's name everywhere in the
 * daemon (cache, watch, file) is rooted: the number of its root, a slash, and
 * the path below that root, "0/css/site.css". So names of different roots never
 * meet, and the name of a root, "0", is that of a folder which holds them all.
 */
#ifndef TBG_USERD_OS_ROOT_H
#define TBG_USERD_OS_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TBG_ROOTS_MAX	512	/* two configurations', while one follows the other */
#define TBG_SITES_ROOTS	256	/* of one configuration */
#define TBG_ROOT_TEXT	5	/* bytes of "511/" and its NUL */

struct tbg_roots;

int tbg_roots_open(struct tbg_roots **ret);
void tbg_roots_close(struct tbg_roots *r);	/* NULL allowed */

/*
 * The number of a folder, referenced. Each path to it makes a root of its own:
 * what one of them leads to may change alone. Negative errno; -E2BIG:
 * TBG_ROOTS_MAX are open. Control thread alone.
 */
int tbg_root_get(struct tbg_roots *r, const char *path);
void tbg_root_put(struct tbg_roots *r, int nr);
bool tbg_root_last(const struct tbg_roots *r, int nr);	/* one reference left */

/*
 * Roots whose path leads to another folder by now (a symbolic link that was
 * switched, a folder that was replaced) become that one, and moved() is told.
 * A path that leads nowhere leaves its root as it was. hidden() is told once of a
 * path on which we may not go. Any thread but one at a time; beside the control
 * thread's taking and giving back.
 */
void tbg_roots_follow(struct tbg_roots *r, void (*moved)(void *arg, int nr),
		      void (*hidden)(const char *path), void *arg);

/* Its resolved path, for messages; of -1, which is none, nothing. */
const char *tbg_root_path(const struct tbg_roots *r, int nr);

/*
 * Any thread: the open folder of a rooted name, and what is to be looked up
 * there ("." for the root itself). -1: no such root (any more).
 */
int tbg_root_fd(const struct tbg_roots *r, const char *name,
		const char **ret_below);

/*
 * Opens what a rooted name leads to; nothing leads out of its root. flags as of
 * open(); resolve: RESOLVE_* of openat2(2) beyond that. Negative errno.
 */
int tbg_root_openat(const struct tbg_roots *r, const char *name,
		    uint64_t flags, uint64_t resolve);

/* The paths that lead to a root: an absolute link below it begins with one of them. */
struct tbg_root_ways {
	char *resolved, *asked;
};

/* Copies of those of a rooted name, to be freed; false: no memory, or no such root. */
bool tbg_root_ways(const struct tbg_roots *r, const char *name, struct tbg_root_ways *ret);
void tbg_root_ways_free(struct tbg_root_ways *w);

/* As tbg_root_openat() of a name below an open root; without ways no absolute link leads on. */
int tbg_root_open_below(int root_fd, const struct tbg_root_ways *ways, const char *name,
			uint64_t flags, uint64_t resolve);

/* FNV-1a of a rooted name. Those of a table are of files that there are. */
static inline uint64_t tbg_name_hash(const char *name, size_t len)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return h ^ h >> 32;
}

/* Writes "NUMBER/", NUL-terminated; its length. */
size_t tbg_root_text(int nr, char ret[TBG_ROOT_TEXT]);

#endif
