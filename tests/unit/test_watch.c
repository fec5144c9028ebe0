// SPDX-License-Identifier: GPL-2.0
/*
 * Freshness of cached files (userd/files/watch.c) on a real folder, on a file system
 * that inotify can be trusted with. Events of a call are in the queue when it
 * returns, so tbg_watch_ready() stands for the control thread and no test
 * waits. No privilege, no BPF.
 */
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

#include "../lib/ktap.h"
#include "cache/objects.h"
#include "os/clock.h"
#include "os/root.h"
#include "files/watch.h"
#include "tiers/wire.h"

/* No kernel tiers here. */
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

/* A fresh folder on the first place that can be trusted; opened. */
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

struct load {			/* a file on its way into the cache */
	struct tbg_lease lease;
	struct tbg_draft draft;
	const char *why;	/* not trusted because */
};

static void lease(const char *name, struct tbg_lease *ret)
{
	char rooted[64];

	snprintf(rooted, sizeof(rooted), "0/%s", name);
	tbg_watch_lease(watch, rooted, ret);
}

/* Lease, open, read, as the daemon does. */
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
	lease(name, &l->lease);
	fd = openat(root_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fstat(fd, &st);
	len = pread(fd, text, sizeof(text), 0);
	if (len < 0)
		len = 0;
	snprintf(rooted, sizeof(rooted), "0/%s", name);
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

/* 0: in the cache and trusted. 1: in the cache, but for TBG_STAT_MS alone. */
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

/* Loads everything, lets the change happen, and says what is left of it. */
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

KTAP_TEST(t_untouched_files_stay)
{
	NEED_SITE();
	KTAP_CHECK(loaded_all());
	KTAP_EQ(left(), ALL);
	write_file("a/b/new", "x");
	write_file("c/new", "x");
	KTAP_EQ(left(), ALL);
	for (int i = 0; i < 10; i++)
		tbg_watch_tick(watch, tbg_mono_ns());
	KTAP_EQ(left(), ALL);
	site_close();
}

/* Every way a file's bytes or permissions can change. */
static void change_write(void)	{ write_file("a/b/two", "TWO"); }
static void change_trunc(void)	{ truncate("a/b/two", 1); }
static void change_chmod(void)	{ chmod("a/b/two", 0600); }
static void change_unlink(void)	{ unlink("a/b/two"); }
static void change_away(void)	{ rename("a/b/two", "a/b/2"); }
static void change_out(void)	{ rename("a/b/two", "elsewhere"); }
static void change_times(void)	{ utimensat(AT_FDCWD, "a/b/two", NULL, 0); }

static void change_replace(void)
{
	write_file("new", "TWO");
	rename("new", "a/b/two");
}

static void change_symlink(void)
{
	symlink("three", "new");
	rename("new", "a/b/two");
}

static void change_folder(void)
{
	unlink("a/b/two");
	mkdir("a/b/two", 0755);
}

static void change_link(void)
{
	link("a/b/two", "c/linked");
}

static void change_mapped(void)
{
	int fd = open("a/b/two", O_RDWR);
	char *p = mmap(NULL, 3, PROT_WRITE, MAP_SHARED, fd, 0);

	*p = 'T';
	munmap(p, 3);
	close(fd);
}

static void change_pwrite(void)
{
	int fd = open("a/b/two", O_RDWR);

	if (pwrite(fd, "T", 1, 0) != 1)
		ktap_fail("pwrite: %m");
	/* seen although the writer keeps it open */
	tbg_watch_ready(watch);
	if (has("a/b/two"))
		ktap_fail("write not seen before close");
	close(fd);
}

KTAP_TEST(t_changed_file_is_withdrawn_alone)
{
	static const struct {
		const char *how;
		void (*fn)(void);
	} changes[] = {
#define X(name) { #name, change_##name }
		X(write), X(trunc), X(chmod), X(unlink), X(away), X(out),
		X(times), X(replace), X(symlink), X(folder), X(link),
		X(mapped), X(pwrite),
#undef X
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		NEED_SITE();
		KTAP_CHECK(!chdir(root));
		KTAP_CHECK(loaded_all());
		changes[i].fn();
		if (left() != BUT(4))
			ktap_fail("%s: left %#x", changes[i].how, left());
		KTAP_CHECK(!chdir("/"));
		site_close();
	}
}

/* Written, then asked for at once: the news of the write comes first. */
KTAP_TEST(t_write_before_the_lease_is_old_news)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	KTAP_CHECK(loaded_all());
	write_file("a/b/two", "TWO");
	KTAP_EQ(load("a/b/two"), 0);
	KTAP_EQ(left(), ALL);
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_renamed_folder_takes_all_below_along)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	KTAP_CHECK(loaded_all());
	KTAP_CHECK(!rename("a", "z"));
	KTAP_EQ(left(), BUT(2 | 4 | 8));
	KTAP_EQ(load("a/b/two"), -ENOENT);
	/* another folder takes its place, watched anew */
	KTAP_CHECK(!mkdir("a", 0755) && !mkdir("a/b", 0755));
	write_file("a/b/two", "2");
	tbg_watch_ready(watch);
	KTAP_EQ(load("a/b/two"), 0);
	KTAP_EQ(load("z/b/two"), 0);
	write_file("z/b/two", "x");
	KTAP_EQ(left(), BUT(2 | 8));
	KTAP_CHECK(!has("z/b/two"));
	write_file("a/b/two", "x");
	KTAP_EQ(left(), BUT(2 | 4 | 8));
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_renamed_folder_read_before_its_event_is)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	KTAP_CHECK(loaded_all());
	/* The events of both renames are unread while leases are taken. */
	KTAP_CHECK(!rename("a/b", "c/b"));
	KTAP_EQ(load("c/b/two"), 0);
	KTAP_CHECK(!rename("c/b", "b"));
	KTAP_EQ(load("b/two"), 0);
	tbg_watch_ready(watch);
	KTAP_CHECK(!has("a/b/two") && !has("c/b/two"));
	if (!has("b/two"))
		KTAP_EQ(load("b/two"), 0);
	write_file("b/two", "x");
	tbg_watch_ready(watch);
	KTAP_CHECK(!has("b/two"));
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_two_folders_exchange_their_names)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	write_file("c/one", "uno");
	KTAP_CHECK(loaded_all());
	KTAP_EQ(load("c/one"), 0);
	KTAP_CHECK(!renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_EXCHANGE));
	KTAP_EQ(left(), 1);
	KTAP_CHECK(!has("c/one"));
	KTAP_EQ(load("a/one"), 0);
	write_file("a/one", "x");
	KTAP_EQ(left(), 1);
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_chmod_of_a_folder_withdraws_what_is_below)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	KTAP_CHECK(loaded_all());
	KTAP_CHECK(!chmod("a", 0700));
	KTAP_EQ(left(), BUT(2 | 4 | 8));
	KTAP_CHECK(loaded_all());
	KTAP_CHECK(!chmod(root, 0700));
	KTAP_EQ(left(), 0);
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_removed_folder_and_root)
{
	char cmd[128];

	NEED_SITE();
	KTAP_CHECK(loaded_all());
	snprintf(cmd, sizeof(cmd), "rm -r %s/a", root);
	KTAP_CHECK(!system(cmd));
	KTAP_EQ(left(), BUT(2 | 4 | 8));
	snprintf(cmd, sizeof(cmd), "rm -r %s", root);
	KTAP_CHECK(!system(cmd));
	KTAP_EQ(left(), 0);
	site_close();
}

KTAP_TEST(t_symbolic_links_are_not_trusted)
{
	NEED_SITE();
	KTAP_CHECK(!symlinkat("one", root_fd, "a/link"));
	KTAP_CHECK(!symlinkat("a", root_fd, "way"));
	KTAP_EQ(load("a/link"), 1);
	KTAP_EQ(load("way/one"), 1);
	KTAP_EQ(load("a/one"), 0);
	site_close();
}

KTAP_TEST(t_hard_links_are_not_trusted)
{
	struct tbg_object *o;
	uint64_t now;

	NEED_SITE();
	KTAP_CHECK(!linkat(root_fd, "a/one", root_fd, "c/uno", 0));
	now = tbg_mono_ns();
	KTAP_EQ(load("a/one"), 1);
	o = find("a/one");
	KTAP_CHECK(o && o->expires_ns >= now + TBG_STAT_MS * 1000000ull &&
		   o->expires_ns <= tbg_mono_ns() + TBG_STAT_MS * 1000000ull);
	KTAP_CHECK(tbg_watch_unchanged(watch, o));
	write_file("c/uno", "1");
	KTAP_CHECK(!tbg_watch_unchanged(watch, o));
	tbg_object_put(o);
	site_close();
}

KTAP_TEST(t_link_from_outside_is_seen_before_it_is_written_through)
{
	char other[80];

	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	KTAP_CHECK(loaded_all());
	snprintf(other, sizeof(other), "%s.outside", root);
	KTAP_CHECK(!link("a/b/two", other));
	KTAP_EQ(left(), BUT(4));
	KTAP_EQ(load("a/b/two"), 1);
	KTAP_CHECK(!unlink(other));
	tbg_watch_ready(watch);
	KTAP_EQ(load("a/b/two"), 0);
	/* moved, found again under its new name, linked there */
	KTAP_CHECK(!rename("a/b/two", "c/zwei"));
	KTAP_EQ(load("c/zwei"), 0);
	tbg_watch_ready(watch);
	KTAP_EQ(load("c/zwei"), 0);
	KTAP_CHECK(!link("c/zwei", other));
	KTAP_EQ(left(), BUT(4));
	KTAP_CHECK(!has("c/zwei"));
	KTAP_CHECK(!unlink(other));
	KTAP_CHECK(!chdir("/"));
	site_close();
}

KTAP_TEST(t_link_of_a_file_without_a_watch_is_seen_in_a_folder_of_ours)
{
	NEED_SITE();
	no_file_watches = true;
	KTAP_CHECK(loaded_all());
	no_file_watches = false;
	KTAP_CHECK(!linkat(root_fd, "a/b/two", root_fd, "c/zwei", 0));
	KTAP_CHECK(!linkat(root_fd, "a/one", root_fd, "c/uno", 0));
	KTAP_EQ(left(), BUT(2 | 4));
	site_close();
}

KTAP_TEST(t_root_that_is_closed_takes_its_objects)
{
	struct load l;

	NEED_SITE();
	KTAP_CHECK(loaded_all());
	KTAP_EQ(load_begin("a/one", &l), 0);
	tbg_watch_forget(watch, 0);
	KTAP_EQ(left(), 0);
	KTAP_EQ(load_end(&l), -ESTALE);
	/* nothing is left of its watches: it can be served again */
	KTAP_CHECK(loaded_all());
	write_file("a/one", "1");
	KTAP_EQ(left(), BUT(2));
	site_close();
}

KTAP_TEST(t_more_files_than_watches_for_them)
{
	char name[32];

	NEED_SITE();
	KTAP_CHECK(loaded_all());
	for (int i = 0; i < 17000; i++) {
		struct tbg_lease l;

		snprintf(name, sizeof(name), "c/%d", i);
		write_file(name, "");
		lease(name, &l);
		KTAP_CHECK(l.trusted);
		if (!(i % 1000))
			tbg_watch_ready(watch);
	}
	KTAP_EQ(left(), ALL);
	tbg_watch_tick(watch, tbg_mono_ns());	/* those of no object go */
	KTAP_EQ(left(), ALL);
	write_file("a/one", "1");
	KTAP_EQ(left(), BUT(2));
	site_close();
}

KTAP_TEST(t_unread_change_refuses_or_withdraws)
{
	struct load l;

	NEED_SITE();
	/* Event read before the publish: refused. */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/two", "2");
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), -ESTALE);
	/* Event read after it: withdrawn. */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/two", "3");
	KTAP_EQ(load_end(&l), 0);
	KTAP_EQ(left(), 0);
	/* A folder on the way was exchanged: the same. */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	KTAP_CHECK(!renameat(root_fd, "a", root_fd, "z"));
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), -ESTALE);
	KTAP_CHECK(!renameat(root_fd, "z", root_fd, "a"));
	/* Someone else's change is nobody's business. */
	tbg_watch_ready(watch);
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/three", "3");
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), 0);
	KTAP_EQ(left(), 4);
	/* A link made while the draft knew of none. */
	KTAP_CHECK(!load_begin("a/one", &l));
	KTAP_CHECK(!linkat(root_fd, "a/one", root_fd, "c/uno", 0));
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), -ESTALE);
	site_close();
}

KTAP_TEST(t_lost_events_withdraw_everything)
{
	unsigned int max = 16384;
	FILE *f;

	NEED_SITE();
	f = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
	if (f) {
		KTAP_EQ(fscanf(f, "%u", &max), 1);
		fclose(f);
	}
	if (max > 200000) {
		site_close();
		KTAP_SKIP("inotify queue longer than 200,000 events");
	}
	KTAP_CHECK(loaded_all());
	for (unsigned int i = 0; i < max / 2 + 1; i++) {
		/* two events each, never twice the same in a row */
		KTAP_CHECK(!fchmodat(root_fd, "a/one", 0644, 0));
		KTAP_CHECK(!fchmodat(root_fd, "top", 0644, 0));
	}
	KTAP_CHECK(!fchmodat(root_fd, "c/four", 0600, 0));
	KTAP_EQ(left(), 0);
	KTAP_CHECK(loaded_all());
	write_file("a/one", "1");
	KTAP_EQ(left(), BUT(2));
	site_close();
}

KTAP_TEST(t_stat_finds_what_inotify_missed)
{
	struct tbg_object *o;

	NEED_SITE();
	KTAP_CHECK(loaded_all());
	/* The queue is never read: inotify sees nothing, as it were. */
	write_file("a/b/two", "2");
	KTAP_CHECK(!fchmodat(root_fd, "top", 0600, 0));
	KTAP_CHECK(!unlinkat(root_fd, "c/four", 0));
	o = find("a/b/three");
	KTAP_CHECK(o && tbg_watch_unchanged(watch, o));
	tbg_object_put(o);
	for (int i = 0; i < 5; i++)
		tbg_watch_tick(watch, tbg_mono_ns());
	KTAP_CHECK(!has("a/b/two") && !has("top") && !has("c/four"));
	KTAP_CHECK(has("a/b/three") && has("a/one"));
	site_close();
}

/* In a user namespace of its own, where the limit can be set. */
static int without_watches(void)
{
	int fd, err;

	if (unshare(CLONE_NEWUSER))
		return 77;
	fd = open("/proc/sys/user/max_inotify_watches", O_WRONLY);
	if (fd < 0 || write(fd, "2", 1) != 1)
		return 77;
	if (!site_open())
		return 77;
	err = load("a/one");			/* root and a */
	if (!err)
		err = load("c/four") == 1 ? 0 : 2;	/* and c is too many */
	if (!err)
		err = load("a/one") == 0 ? 0 : 3;
	site_close();
	return err;
}

KTAP_TEST(t_watches_run_out)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		int err = without_watches();

		fflush(stdout);
		_exit(err);
	}
	KTAP_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
#ifdef __SANITIZE_THREAD__	/* whose own thread is in the way */
		KTAP_SKIP("a user namespace under a sanitizer: tsan");
#else
		KTAP_SKIP("no user namespace with a limit of its own");
#endif
	KTAP_EQ(WEXITSTATUS(status), 0);
}

/*
 * Workers load and find; one thread changes files in every way and then reads
 * the events: from then on nobody finds what was before.
 */
#define CHURN_FILES 12

static struct {
	_Atomic bool stop;
	_Atomic uint64_t loads;
} churn;

static void churn_name(uint32_t nr, char ret[32])
{
	snprintf(ret, 32, "d%u/e%u/%u", nr % 2, nr % 3, nr);
}

static void *churn_load(void *arg)
{
	uint32_t r = (uintptr_t)arg;
	struct load l;
	char name[32];

	while (!churn.stop) {
		r = r * 1664525 + 1013904223;
		churn_name((r >> 16) % CHURN_FILES, name);
		if (has(name) || load_begin(name, &l))
			continue;
		if (!load_end(&l))
			churn.loads++;
	}
	return NULL;
}

static void churn_change(uint32_t nr, uint32_t how, uint32_t version)
{
	char name[32], text[16], path[16];

	churn_name(nr, name);
	snprintf(text, sizeof(text), "%08u", version);
	switch (how % 4) {
	case 0:
		write_file(name, text);
		break;
	case 1:
		write_file("new", text);
		renameat(root_fd, "new", root_fd, name);
		break;
	case 2:
		unlinkat(root_fd, name, 0);
		write_file(name, text);
		break;
	case 3:			/* its folder away and back, changed there */
		snprintf(path, sizeof(path), "d%u", nr % 2);
		renameat(root_fd, path, root_fd, "away");
		snprintf(name, sizeof(name), "away/e%u/%u", nr % 3, nr);
		write_file(name, text);
		renameat(root_fd, "away", root_fd, path);
		break;
	}
}

KTAP_TEST(t_nothing_stale_under_churn)
{
	uint32_t versions[CHURN_FILES] = { 0 }, r = 7, bad = 0;
	pthread_t threads[2];
	char name[32];

	NEED_SITE();
	memset(&churn, 0, sizeof(churn));
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "d%d", i / 3);
		mkdirat(root_fd, name, 0755);
		snprintf(name, sizeof(name), "d%d/e%d", i / 3, i % 3);
		mkdirat(root_fd, name, 0755);
	}
	for (int i = 0; i < CHURN_FILES; i++)
		churn_change(i, 0, 0);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, churn_load, (void *)(i + 1));
	for (uint32_t v = 1; v < 4000 || churn.loads < 500; v++) {
		uint32_t nr;

		r = r * 1664525 + 1013904223;
		nr = (r >> 16) % CHURN_FILES;
		churn_change(nr, r >> 8 & 3, v);
		versions[nr] = v;
		tbg_watch_ready(watch);
		for (int i = 0; i < CHURN_FILES; i++) {
			struct tbg_object *o;

			churn_name(i, name);
			o = find(name);
			if (!o)
				continue;
			bad += strtoul((char *)o->blob->data, NULL, 10) <
			       versions[i] && o->blob->data[0];
			tbg_object_put(o);
		}
	}
	churn.stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ktap_note("%llu loads", (unsigned long long)churn.loads);
	KTAP_EQ(bad, 0);
	site_close();
}

KTAP_MAIN()
