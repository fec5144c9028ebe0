// SPDX-License-Identifier: GPL-2.0
/*
 * Freshness of cached files (userd/files/watch.c) without watches or events: more files
 * than watches, events that are lost or not read yet, and changes in several threads.
 */
#include "watched_site.h"

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
	tbg_watch_tick(watch, tbg_mono_ns());	/* watches without objects are removed */
	KTAP_EQ(left(), ALL);
	write_file("a/one", "1");
	KTAP_EQ(left(), BUT(2));
	site_close();
}

KTAP_TEST(t_unread_change_refuses_or_withdraws)
{
	struct load l;

	NEED_SITE();
	/* event read before the publish: refused */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/two", "2");
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), -ESTALE);
	/* event read after it: withdrawn */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/two", "3");
	KTAP_EQ(load_end(&l), 0);
	KTAP_EQ(left(), 0);
	/* a folder of the path was exchanged: the same */
	KTAP_CHECK(!load_begin("a/b/two", &l));
	KTAP_CHECK(!renameat(root_fd, "a", root_fd, "z"));
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), -ESTALE);
	KTAP_CHECK(!renameat(root_fd, "z", root_fd, "a"));
	/* a change of another file has no effect */
	tbg_watch_ready(watch);
	KTAP_CHECK(!load_begin("a/b/two", &l));
	write_file("a/b/three", "3");
	tbg_watch_ready(watch);
	KTAP_EQ(load_end(&l), 0);
	KTAP_EQ(left(), 4);
	/* a link made while the draft knew of none */
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
		/* two events each, never the same twice in a row */
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
	/* the queue is never read, as if inotify saw nothing */
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

/* Runs in a user namespace of its own, where the limit can be set. */
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
#ifdef __SANITIZE_THREAD__	/* its own thread prevents that */
		KTAP_SKIP("a user namespace under a sanitizer: tsan");
#else
		KTAP_SKIP("no user namespace with a limit of its own");
#endif
	KTAP_EQ(WEXITSTATUS(status), 0);
}

/*
 * Workers load and find; one thread changes files in every way and then reads the
 * events: from then on, nobody finds the old content.
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
	case 3:			/* its folder is moved away and back, and changed there */
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
