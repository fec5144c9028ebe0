// SPDX-License-Identifier: GPL-2.0
/*
 * {"cmd":"warm","path":"/srv/www/css"}: publishes files before their first request.
 * Routes a request for each file and each site that serves it, as a client's: nothing
 * is stored that a request could not get or that the cache would not keep.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "control/commands.h"
#include "http/content_coding.h"
#include "files/files.h"
#include "os/root.h"
#include "serve/dispatch.h"
#include "serve/server.h"
#include "control/stream.h"
#include "control/why.h"

#define DEPTH_MAX	64		/* nested folders */
#define PROGRESS_NS		100000000ull	/* between two progress lines */

struct warm {
	struct tbg_stream *st;
	struct tbg_answer *answer;
	/* rooted name of the current file or folder */
	char name[TBG_ROOT_TEXT + TBG_TARGET_MAX + 1];
	bool counting;			/* first walk: only count */
	uint64_t total, done;		/* files that a request could get */
	uint64_t asked;			/* requests in both walks */
	uint64_t stored, cached, left;	/* requests: published, already cached, not kept */
	uint64_t progress_ns;
	int err;			/* the client has disconnected, or the sites have changed */
};

static int progress_send(struct warm *w)
{
	return tbg_stream_line(w->st, json_pack("{s:b, s:I, s:I}", "progress", 1,
						"done", (json_int_t)w->done,
						"total", (json_int_t)w->total));
}

/* Routes requests for the variants, too; these are not counted. */
static void variants_ask(struct warm *w, struct tbg_ask *a, unsigned int have)
{
	for (int e = 0; e < TBG_ENCODING_NR; e++) {
		const char *name = tbg_encoding_name(e);

		if (!(have >> e & 1))
			continue;
		a->accept_encoding = (struct tbg_slice){ name, strlen(name) };
		tbg_route(w->st->s, a, w->answer);
		tbg_answer_done(w->answer);
	}
}

/* Routes a request for a path of a site and discards the answer. */
static void ask(struct warm *w, const struct tbg_site *site, const char *path)
{
	struct tbg_ask a = {
		.method = TBG_METHOD_GET, .path = path, .path_len = strlen(path),
		.site = site, .warms = true,
	};
	unsigned int have;

	w->asked++;
	if (w->counting)
		return;
	tbg_route(w->st->s, &a, w->answer);
	if (w->answer->hit)
		w->cached++;
	else if (w->answer->reply.cache == TBG_CACHE_STORED)
		w->stored++;
	else
		w->left++;
	have = w->answer->object ? atomic_load(&w->answer->object->variants) : 0;
	tbg_answer_done(w->answer);
	variants_ask(w, &a, have);
}

/* Returns whether a file in w->name's root answers this path of the site. */
static bool leads_here(const struct warm *w, const struct tbg_site *site,
		       const char *path)
{
	const struct tbg_location *l = tbg_location_find(site, path, strlen(path));

	return l->handler == TBG_HANDLER_FILES && l->root == atoi(w->name);
}

/* Requests the file w->name, and the folder whose index it is. */
static void file_ask(struct warm *w, const struct tbg_site *site)
{
	const char *file = strrchr(w->name, '/') + 1;
	char path[TBG_TARGET_MAX + 1];
	const struct tbg_location *l;

	snprintf(path, sizeof(path), "%s", strchr(w->name, '/'));
	if (!leads_here(w, site, path))
		return;
	ask(w, site, path);
	strrchr(path, '/')[1] = 0;
	l = tbg_location_find(site, path, strlen(path));
	if (leads_here(w, site, path) && l->index_nr && !strcmp(file, l->index[0]))
		ask(w, site, path);
}

static void file_warm(struct warm *w)
{
	const struct tbg_sites *sites = w->st->sites;

	uint64_t asked = w->asked;

	for (unsigned int i = 0; i < sites->nr; i++)
		file_ask(w, &sites->site[i]);
	if (asked == w->asked)		/* other locations hide the file */
		return;
	if (w->counting)
		w->total++;
	else
		w->done++;
	if (sites != w->st->s->sites)
		w->err = -ESTALE;
	if (tbg_mono_ns() - w->progress_ns < PROGRESS_NS || w->err)
		return;
	w->progress_ns = tbg_mono_ns();
	w->err = progress_send(w);
}

static void walk(struct warm *w, unsigned int depth);

/* Ignores dot files and links to folders, which might form a loop. */
static void entry_walk(struct warm *w, int dir, const char *entry,
		       unsigned int depth)
{
	size_t len = strlen(w->name);
	struct stat st;

	if (entry[0] == '.' || len + 1 + strlen(entry) >= sizeof(w->name) ||
	    fstatat(dir, entry, &st, AT_SYMLINK_NOFOLLOW))
		return;
	sprintf(w->name + len, "%s%s", w->name[len - 1] == '/' ? "" : "/", entry);
	if (S_ISDIR(st.st_mode))
		walk(w, depth + 1);
	else if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		file_warm(w);
	w->name[len] = 0;
}

static void walk(struct warm *w, unsigned int depth)
{
	int fd = depth > DEPTH_MAX ? -1 :
		 tbg_root_openat(w->st->s->files.roots, w->name, O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *d;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!w->err && (d = readdir(dir)))
		entry_walk(w, dirfd(dir), d->d_name, depth);
	closedir(dir);
}

/* Starts at w->name, a folder or a file. */
static void start(struct warm *w)
{
	struct stat st;
	int fd = tbg_root_openat(w->st->s->files.roots, w->name, O_PATH, 0);

	if (fd < 0)
		return;
	if (!fstat(fd, &st)) {
		if (S_ISDIR(st.st_mode))
			walk(w, 0);
		else if (S_ISREG(st.st_mode))
			file_warm(w);
	}
	close(fd);
}

/* Returns the path relative to a folder, "" for the folder itself; NULL: not below it. */
static const char *below(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	if (!strcmp(folder, "/"))
		return path + 1;
	if (strncmp(path, folder, len) || (path[len] && path[len] != '/'))
		return NULL;
	return path[len] ? path + len + 1 : path + len;
}

/*
 * Walks each root that contains path or lies below it, once even if several locations
 * serve it.
 */
static unsigned int roots_walk(struct warm *w, const char *path)
{
	const struct tbg_sites *sites = w->st->sites;
	bool seen[TBG_ROOTS_MAX] = { false };
	unsigned int nr = 0;

	for (unsigned int i = 0; i < sites->nr; i++)
		for (unsigned int j = 0; j < sites->site[i].locations_nr; j++) {
			int root = sites->site[i].locations[j].root;
			const char *at = tbg_root_path(w->st->s->files.roots, root);
			const char *rest = below(path, at);

			if (root < 0 || seen[root] || (!rest && !below(at, path)))
				continue;
			seen[root] = true;
			nr++;
			if (rest && strlen(rest) >= TBG_TARGET_MAX)
				continue;
			strcpy(w->name + tbg_root_text(root, w->name), rest ?: "");
			start(w);
		}
	return nr;
}

/* Sends the last line. */
static int end(struct warm *w, json_t *line)
{
	atomic_store(&w->st->heavy, false);
	return tbg_stream_line(w->st, line);
}

static int run(struct warm *w, const char *path)
{
	unsigned int nr;

	w->counting = true;
	nr = roots_walk(w, path);
	if (!w->err && (!nr || !w->total))
		return end(w, tbg_command_error(nr ?
			"%.300s: no file there that the daemon's user can reach" :
			"%.300s: not below a root, see toboggan status; give a folder or file that is served",
			path));
	w->counting = false;
	w->err = progress_send(w);
	if (!w->err)
		roots_walk(w, path);
	if (w->err == -ESTALE)
		return end(w, tbg_command_error("the configuration was exchanged meanwhile; begin again"));
	if (w->err)
		return w->err;
	return end(w, json_pack("{s:b, s:I, s:I, s:I, s:I}", "ok", 1,
				"files", (json_int_t)w->done, "stored", (json_int_t)w->stored,
				"cached", (json_int_t)w->cached, "left", (json_int_t)w->left));
}

/* Takes the path, plain or percent-encoded: JSON has only UTF-8. */
static const char *path_take(const json_t *req, char room[TBG_TARGET_MAX + 1])
{
	const char *encoded = json_string_value(json_object_get(req, "path_encoded"));
	size_t len = encoded ? strlen(encoded) : 0;

	if (!encoded)
		return json_string_value(json_object_get(req, "path"));
	return len <= TBG_TARGET_MAX &&
	       tbg_path_decode((const uint8_t *)encoded, len, room) > 0 ? room : NULL;
}

int tbg_warm_run(struct tbg_stream *st)
{
	char room[TBG_TARGET_MAX + 1];
	const char *path = path_take(st->req, room);
	struct warm *w;
	int err;

	if (!path || *path != '/')
		return tbg_stream_line(st, tbg_command_error("path: missing; give the absolute path of a folder or file"));
	w = calloc(1, sizeof(*w));
	if (!w || !(w->answer = calloc(1, sizeof(*w->answer)))) {
		free(w);
		return tbg_stream_line(st, tbg_command_error("out of memory"));
	}
	w->st = st;
	err = run(w, path);
	free(w->answer);
	free(w);
	return err;
}
