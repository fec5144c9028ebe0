/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A watched folder of cached files (userd/files/watch.c), on a file system where
 * inotify can be trusted. The events of a call are in the queue when it returns, so
 * tbg_watch_ready() replaces the control thread and no test waits. No privilege, no
 * BPF. Include it once per test.
 */
#ifndef TBG_TESTS_UNIT_WATCHED_SITE_H
#define TBG_TESTS_UNIT_WATCHED_SITE_H

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/objects.h"
#include "files/watch.h"
#include "ktap.h"
#include "os/clock.h"
#include "os/root.h"
#include "tiers/wire.h"

/* There are no kernel tiers. */
int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	return -EBADF;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	return -EBADF;
}

static bool no_file_watches;

/* A file's own watch ends with its first event. */
int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	if (no_file_watches && mask & IN_ONESHOT) {
		errno = ENOSPC;
		return -1;
	}
	return syscall(SYS_inotify_add_watch, fd, path, mask);
}

static char root[64];
static int root_fd;
static struct tbg_roots *roots;
static struct tbg_cache *cache;
static struct tbg_watch *watch;

#define NEED_SITE() do { if (!site_open()) KTAP_SKIP(site_why); } while (0)
static const char *site_why;

static void write_file(const char *name, const char *text)
{
	int fd = openat(root_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		ktap_fail("%s: %m", name);
	close(fd);
}

static void make_files(void)
{
	mkdirat(root_fd, "a", 0755);
	mkdirat(root_fd, "a/b", 0755);
	mkdirat(root_fd, "c", 0755);
	write_file("top", "top");
	write_file("a/one", "one");
	write_file("a/b/two", "two");
	write_file("a/b/three", "three");
	write_file("c/four", "four");
}

static bool site_trusted(void)
{
	struct tbg_lease lease = { .trusted = true };
	struct stat st;
	int fd = openat(root_fd, "top", O_RDONLY);
	const char *why;

	fstat(fd, &st);
	why = tbg_watch_doubt(&lease, &st, fd);
	close(fd);
	return !why;
}

static void site_remove(void)
{
	char cmd[192];

	close(root_fd);
	tbg_roots_close(roots);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", root);
	if (system(cmd))
		ktap_note("%s could not be removed", root);
}

/* Makes and opens a new folder on the first file system that can be trusted. */
static bool site_open(void)
{
	static const char *const places[] = { "/tmp", "/dev/shm", "/var/tmp" };
	static const uint64_t key[2] = { 1, 2 };
	struct tbg_plan plan;

	tbg_plan_make(&plan, 8 << 20, 0);
	for (int i = 0; i < 3; i++) {
		snprintf(root, sizeof(root), "%s/tbg-watch-XXXXXX", places[i]);
		if (!mkdtemp(root))
			continue;
		root_fd = open(root, O_PATH | O_DIRECTORY);
		if (tbg_roots_open(&roots) || tbg_root_get(roots, root))
			ktap_fail("%s cannot be root 0", root);
		make_files();
		if (!site_trusted()) {
			site_remove();
			continue;
		}
		if (tbg_cache_open(&cache, &plan, NULL, key) ||
		    tbg_watch_open(&watch, roots, cache)) {
			site_why = "no inotify";
			return false;
		}
		return true;
	}
	site_why = "no file system here that inotify is trusted with";
	return false;
}

static void site_close(void)
{
	tbg_watch_close(watch);
	tbg_cache_close(cache);
	site_remove();
}

static struct tbg_key key_of(const char *name)
{
	struct tbg_key k = { { 14695981039346656037ull, 99 } };

	for (; *name; name++) {
		k.h[0] = (k.h[0] ^ (uint8_t)*name) * 0x100000001b3ull;
		k.h[1] = k.h[0] * 0x9e3779b97f4a7c15ull;
	}
	return k;
}

struct load {			/* a file that is being loaded into the cache */
	struct tbg_lease lease;
	struct tbg_draft draft;
	const char *why;	/* why it is not trusted */
};

static void lease(const char *name, struct tbg_lease *ret)
{
	char rooted[64];

	snprintf(rooted, sizeof(rooted), "0/%s", name);
	tbg_watch_lease(watch, rooted, ret);
}

static bool by_folders;		/* leases without the file's watch, which is added later */
static void (*file_opened)(void);	/* called right after the file was opened */

/* Leases, opens and reads, as the daemon does. */
static int load_begin(const char *name, struct load *l)
{
	char rooted[64];
	struct tbg_key key = key_of(name);
	struct tbg_object *o;
	struct stat st;
	char text[64];
	ssize_t len;
	int fd, err;

	memset(l, 0, sizeof(*l));
	snprintf(rooted, sizeof(rooted), "0/%s", name);
	if (!by_folders)
		tbg_watch_lease(watch, rooted, &l->lease);
	else if (!tbg_watch_look(watch, rooted, &l->lease))
		return -ENOTSUP;
	fd = openat(root_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fstat(fd, &st);
	if (file_opened)
		file_opened();
	if (l->lease.folders_only)
		tbg_watch_file(watch, rooted, &l->lease);
	len = pread(fd, text, sizeof(text), 0);
	if (len < 0)
		len = 0;
	err = tbg_draft_open(cache, &key, 0, name, strlen(name), rooted,
			     len + 1, &l->draft);
	if (err) {
		close(fd);
		return err;
	}
	memcpy(l->draft.blob->data, text, len);
	l->draft.blob->data[len] = 0;
	l->draft.lease = &l->lease;
	o = l->draft.object;
	o->file.dev = st.st_dev;
	o->file.ino = st.st_ino;
	o->file.size = st.st_size;
	o->file.mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	o->file.ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
	o->file.mode = st.st_mode;
	o->file.uid = st.st_uid;
	o->file.gid = st.st_gid;
	l->why = tbg_watch_doubt(&l->lease, &st, fd);
	atomic_store(&o->expires_ns,
		     tbg_watch_expiry(watch, &l->lease, &st, fd,
				      tbg_mono_ns()));
	close(fd);
	return 0;
}

static int load_end(struct load *l)
{
	struct tbg_object *o;
	int err = tbg_draft_publish(&l->draft, &o);

	if (!err)
		tbg_object_put(o);
	return err;
}

/* Returns 0: cached and trusted; 1: cached, but only for TBG_STAT_MS. */
static int load(const char *name)
{
	struct load l;
	int err = load_begin(name, &l);

	if (err)
		return err;
	if (l.why)
		ktap_note("%s: %s", name, l.why);
	err = load_end(&l);
	return err ? err : !!l.why;
}

static struct tbg_object *find(const char *name)
{
	struct tbg_key key = key_of(name);

	return tbg_cache_find(cache, &key, 0, name, strlen(name));
}

static bool has(const char *name)
{
	struct tbg_object *o = find(name);

	tbg_object_put(o);
	return o;
}

/* Loads all files. The test then makes a change and checks what is left. */
static bool loaded_all(void)
{
	return !load("top") && !load("a/one") && !load("a/b/two") &&
	       !load("a/b/three") && !load("c/four");
}

static unsigned int left(void)
{
	tbg_watch_ready(watch);
	return has("top") << 0 | has("a/one") << 1 | has("a/b/two") << 2 |
	       has("a/b/three") << 3 | has("c/four") << 4;
}

#define ALL 0x1f
#define BUT(bits) (ALL & ~(bits))

#endif
