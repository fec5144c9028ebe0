// SPDX-License-Identifier: GPL-2.0
/*
 * Freshness of cached files (userd/files/watch.c): every way in which a file or a
 * folder can change, and which objects that withdraws. test_watch_lost.c has changes
 * that are not seen.
 */
#include "watched_site.h"

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

/* Every way in which a file's bytes or permissions can change. */
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

/* Makes leases of folders alone possible. */
static void folders_watch(void)
{
	static const char *const none[] = { "none", "a/none", "a/b/none", "c/none" };
	struct tbg_lease l;

	for (int i = 0; i < 4; i++)
		lease(none[i], &l);
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
	size_t nr = sizeof(changes) / sizeof(*changes);

	for (size_t i = 0; i < 2 * nr; i++) {
		NEED_SITE();
		KTAP_CHECK(!chdir(root));
		by_folders = i >= nr;
		if (by_folders)
			folders_watch();
		KTAP_CHECK(loaded_all());
		changes[i % nr].fn();
		if (left() != BUT(4))
			ktap_fail("%s: left %#x", changes[i % nr].how, left());
		KTAP_CHECK(!chdir("/"));
		site_close();
	}
	by_folders = false;
}

KTAP_TEST(t_folder_without_variants_is_known_until_one_comes)
{
	static const char *const names[] = { "a/one.gz", "a/b/two.br", "new" };
	struct tbg_lease l;

	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	folders_watch();
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "0/a/b/two" : "0/a/one";

		KTAP_CHECK(tbg_watch_look(watch, name, &l) && l.no_variants);
		write_file(names[i], "x");
		KTAP_CHECK(tbg_watch_look(watch, name, &l) && !l.no_variants);
	}
	write_file("new", "x");
	KTAP_CHECK(tbg_watch_look(watch, "0/top", &l) && l.no_variants);
	KTAP_CHECK(!rename("new", "c/four.zst"));
	KTAP_CHECK(tbg_watch_look(watch, "0/c/four", &l) && !l.no_variants);
	/* one that existed before its folder was watched */
	KTAP_CHECK(!mkdir("d", 0755));
	write_file("d/x.gz", "x");
	lease("d/x", &l);
	KTAP_CHECK(tbg_watch_look(watch, "0/d/x", &l) && !l.no_variants);
	KTAP_CHECK(!chdir("/"));
	site_close();
}

static void link_two(void)	{ link("a/b/two", "linked"); }

/* Changes between opening a file and watching it are not lost. */
KTAP_TEST(t_lease_of_folders_alone_is_made_whole_later)
{
	NEED_SITE();
	KTAP_CHECK(!chdir(root));
	by_folders = true;
	KTAP_EQ(load("a/b/two"), -ENOTSUP);
	folders_watch();
	KTAP_CHECK(!symlink("two", "a/b/link"));
	KTAP_EQ(load("a/b/link"), 1);
	file_opened = link_two;
	KTAP_EQ(load("a/b/two"), 1);
	file_opened = NULL;
	KTAP_EQ(load("a/one"), 0);
	tbg_watch_ready(watch);
	KTAP_CHECK(has("a/one"));
	KTAP_CHECK(!unlink("linked"));
	by_folders = false;
	KTAP_CHECK(!chdir("/"));
	site_close();
}

/* Written, then requested at once: the event of the write comes first. */
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
	/* another folder replaces it and is watched */
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
	/* the events of both renames are unread while leases are taken */
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
	/* none of its watches is left, so it can be served again */
	KTAP_CHECK(loaded_all());
	write_file("a/one", "1");
	KTAP_EQ(left(), BUT(2));
	site_close();
}

KTAP_MAIN()
