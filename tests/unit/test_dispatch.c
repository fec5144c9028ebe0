// SPDX-License-Identifier: GPL-2.0
/*
 * The choice of the handler (userd/serve), with real files in a separate folder. The
 * watch is a fake: the test decides how long files stay fresh.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/objects.h"
#include "files/compressed.h"
#include "files/open_files.h"
#include "files/watch.h"
#include "http/header.h"
#include "http/media_types.h"
#include "ktap.h"
#include "os/clock.h"
#include "os/root.h"
#include "serve/server.h"
#include "serve/dispatch.h"
#include "site/site.h"

static struct {
	struct tbg_server s;
	struct tbg_sites sites;
	struct tbg_site site;
	struct tbg_location locations[3];
	const char *index[1];
	struct tbg_answer answer;
	char folder[32];
	uint64_t fresh_ns;		/* how long a file stays fresh */
	unsigned int leases;		/* number of files checked */
} it;

void tbg_watch_lease(struct tbg_watch *w, const char *name, struct tbg_lease *ret)
{
	*ret = (struct tbg_lease){ 0 };
	it.leases++;
}

/* no folder is watched */
bool tbg_watch_look(struct tbg_watch *w, const char *name, struct tbg_lease *ret)
{
	return false;
}

void tbg_watch_file(struct tbg_watch *w, const char *name, struct tbg_lease *lease)
{
}

uint64_t tbg_watch_expiry(struct tbg_watch *w, const struct tbg_lease *lease,
			  const struct stat *st, int fd, uint64_t now_ns)
{
	return now_ns + it.fresh_ns;
}

bool tbg_watch_unchanged(struct tbg_watch *w, const struct tbg_object *o)
{
	return true;
}

const char *tbg_watch_doubt(const struct tbg_lease *lease, const struct stat *st, int fd)
{
	return "a fake";
}

/* no file is large */
bool tbg_open_files_get(struct tbg_open_files *o, const char *name, struct tbg_file *ret)
{
	return false;
}

bool tbg_open_files_wants(struct tbg_open_files *o, const char *name)
{
	return false;
}

void tbg_open_files_keep(struct tbg_open_files *o, const char *name,
			 const struct tbg_file *f, const struct tbg_lease *lease)
{
}

int tbg_compressed_get(struct tbg_compressed *p, int fd, const struct stat *st,
		       enum tbg_encoding encoding)
{
	return -E2BIG;
}

/* no task is started */
void tbg_want_free(struct tbg_want *w)
{
}

int bpf_map_update_elem(int fd, const void *k, const void *value, __u64 flags)
{
	return -EBADF;
}

int bpf_map_delete_elem(int fd, const void *k)
{
	return -EBADF;
}

static void file_write(const char *name, const char *text)
{
	struct timespec old[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", it.folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
	    futimens(fd, old))
		abort();
	close(fd);
}

static void begin(void)
{
	static const uint64_t key[2] = { 1, 2 };
	struct tbg_location files = { .site = &it.site, .match = "/", .match_len = 1,
				      .kind = TBG_MATCH_PREFIX, .handler = TBG_HANDLER_FILES,
				      .index = it.index, .index_nr = 1 };
	char path[64];

	memset(&it, 0, sizeof(it));
	strcpy(it.folder, "/tmp/tbg-dispatch-XXXXXX");
	it.fresh_ns = 3600 * 1000000000ull;
	it.index[0] = "index.html";
	tbg_plan_make(&it.s.plan, 8 << 20, 0);
	if (!mkdtemp(it.folder) || tbg_roots_open(&it.s.files.roots) ||
	    tbg_cache_open(&it.s.files.cache, &it.s.plan, NULL, key) ||
	    tbg_mime_open(&it.sites.mime, NULL, NULL, 0))
		abort();
	files.root = tbg_root_get(it.s.files.roots, it.folder);
	it.locations[0] = it.locations[1] = it.locations[2] = files;
	it.locations[0].match = "/up/";
	it.locations[0].match_len = 4;
	it.locations[0].handler = TBG_HANDLER_UPSTREAM;
	it.locations[1].match = "/d/index.html";
	it.locations[1].match_len = strlen(it.locations[1].match);
	it.locations[1].handler = TBG_HANDLER_UPSTREAM;
	it.site = (struct tbg_site){ .sites = &it.sites, .locations = it.locations,
				     .locations_nr = 3, .name = "" };
	it.sites.files = true;
	it.s.sites = &it.sites;
	snprintf(path, sizeof(path), "%s/d", it.folder);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/e", it.folder);
	mkdir(path, 0755);
	file_write("a.txt", "hello world");
	file_write("e/index.html", "index");
	it.answer.fd = -1;
}

static void end(void)
{
	char command[64];

	tbg_answer_done(&it.answer);
	tbg_cache_close(it.s.files.cache);
	tbg_roots_close(it.s.files.roots);
	tbg_mime_close(it.sites.mime);
	snprintf(command, sizeof(command), "rm -r %s", it.folder);
	if (system(command))
		abort();
}

static struct tbg_ask asks(enum tbg_method method, const char *path)
{
	return (struct tbg_ask){ .method = method, .site = &it.site, .path = path,
				 .path_len = strlen(path) };
}

static unsigned int status_of(struct tbg_ask ask)
{
	tbg_answer_done(&it.answer);
	memset(&it.answer, 0, sizeof(it.answer));
	it.answer.fd = -1;
	tbg_route(&it.s, &ask, &it.answer);
	return it.answer.reply.status;
}

static unsigned int get(const char *path)
{
	return status_of(asks(TBG_METHOD_GET, path));
}

KTAP_TEST(t_file_is_read_once_and_then_a_hit)
{
	begin();
	KTAP_EQ(get("/a.txt"), 200);
	KTAP_CHECK(!it.answer.reply.location && it.leases == 1);
	KTAP_EQ(get("/a.txt"), 200);
	KTAP_CHECK(it.answer.hit && it.answer.part == TBG_PART_GET && it.leases == 1);
	KTAP_EQ(status_of(asks(TBG_METHOD_HEAD, "/a.txt")), 200);
	KTAP_CHECK(it.answer.hit && it.answer.part == TBG_PART_HEAD && it.leases == 1);
	end();
}

KTAP_TEST(t_file_that_is_no_longer_fresh_is_looked_at_again)
{
	begin();
	it.fresh_ns = 0;
	KTAP_EQ(get("/a.txt"), 200);
	file_write("a.txt", "other");
	KTAP_EQ(get("/a.txt"), 200);
	KTAP_CHECK(!it.answer.hit && it.leases > 1);
	KTAP_CHECK(it.answer.body_len == 5 && !memcmp(it.answer.body, "other", 5));
	end();
}

KTAP_TEST(t_what_is_not_there_is_a_404_and_a_folder_is_sent_to_its_slash)
{
	begin();
	KTAP_EQ(get("/none"), 404);
	KTAP_EQ(get("/e"), 301);
	KTAP_CHECK(!strcmp(it.answer.reply.location, "/e/"));
	KTAP_EQ(get("/e/"), 200);
	end();
}

KTAP_TEST(t_methods_that_files_do_not_have_are_refused)
{
	struct tbg_ask expects = asks(TBG_METHOD_GET, "/a.txt");

	begin();
	KTAP_EQ(status_of(asks(TBG_METHOD_POST, "/a.txt")), 405);
	KTAP_CHECK(strstr(it.answer.reply.allow, "GET"));
	KTAP_EQ(status_of(asks(TBG_METHOD_OTHER, "/a.txt")), 501);
	KTAP_EQ(status_of(asks(TBG_METHOD_OPTIONS, "/a.txt")), 204);
	expects.expect_other = true;
	KTAP_EQ(status_of(expects), 417);
	KTAP_EQ(it.leases, 0);
	end();
}

KTAP_TEST(t_handler_is_given_what_is_not_for_us)
{
	struct tbg_message m = { .method = TBG_METHOD_POST };
	const char *index = NULL;

	begin();
	KTAP_CHECK(tbg_route_hands_over(&it.locations[0], &m));
	KTAP_CHECK(!tbg_route_hands_over(&it.locations[2], &m));
	m.method = TBG_METHOD_TRACE;
	KTAP_CHECK(!tbg_route_hands_over(&it.locations[0], &m));
	KTAP_EQ(status_of(asks(TBG_METHOD_TRACE, "/up/x")), 405);
	m = (struct tbg_message){ .method = TBG_METHOD_OPTIONS, .last_hop = true };
	KTAP_CHECK(!tbg_route_hands_over(&it.locations[0], &m));
	file_write("d/index.html", "program");
	KTAP_CHECK(tbg_route_index(&it.s, &it.locations[2], "/d/", 3, &index) ==
		   &it.locations[1]);
	KTAP_CHECK(!tbg_route_index(&it.s, &it.locations[2], "/e/", 3, &index));
	end();
}

KTAP_TEST(t_ranges_and_conditions_of_a_hit)
{
	struct tbg_ask ask = asks(TBG_METHOD_GET, "/a.txt");

	begin();
	get("/a.txt");
	ask.range = TBG_SLICE("bytes=6-");
	KTAP_EQ(status_of(ask), 206);
	KTAP_CHECK(it.answer.body_len == 5 && !memcmp(it.answer.body, "world", 5));
	ask.range = TBG_SLICE("bytes=99-");
	KTAP_EQ(status_of(ask), 416);
	ask = asks(TBG_METHOD_GET, "/a.txt");
	ask.conditions.if_none_match = TBG_SLICE("*");
	KTAP_EQ(status_of(ask), 304);
	ask = asks(TBG_METHOD_GET, "/a.txt");
	ask.conditions.if_match = TBG_SLICE("\"another\"");
	KTAP_EQ(status_of(ask), 412);
	end();
}

KTAP_MAIN()
