// SPDX-License-Identifier: GPL-2.0
/*
 * Called by the code that answers with an error (the route, deliver.c), and by the
 * route for a folder. File names become text of a page: they are escaped, so that no
 * byte of them is markup or part of another URL.
 */
#include "serve/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files/files.h"
#include "os/root.h"
#include "serve/dispatch.h"
#include "serve/server.h"
#include "upstream/upstream.h"

#define ENTRIES_MAX 10000	/* of a listing, which ends with a remark if there are more */

/* --- error pages --------------------------------------------------------- */

/*
 * Returns whether the location has a root of its own. A root outside of an HTTP
 * upstream's location does not count.
 */
static bool has_root(const struct tbg_location *l)
{
	return l->root >= 0 && (l->handler == TBG_HANDLER_FILES ||
				tbg_protocol_needs_root(l->upstream->settings.protocol));
}

char *tbg_pages_read(const struct tbg_server *s, const struct tbg_location *l,
		    unsigned int status, size_t *ret_len, const char **ret_type)
{
	const char *path = tbg_location_error(l, status);
	char name[TBG_ROOT_TEXT + TBG_TARGET_MAX];
	const struct tbg_location *where;
	struct tbg_file f;
	char *text;

	if (!path || strlen(path) >= TBG_TARGET_MAX)
		return NULL;
	where = tbg_location_find(l->site, path, strlen(path));
	if (where->handler != TBG_HANDLER_FILES)
		return NULL;		/* never show the source of a program */
	strcpy(name + tbg_root_text(has_root(l) ? l->root : where->root, name), path + 1);
	if (tbg_file_open(&s->files, l, name, &f))
		return NULL;
	/* an error page has no Content-Encoding, so its file must not be compressed */
	text = f.st.st_size <= TBG_FILE_SMALL && !f.coding ? malloc(f.st.st_size + 1) : NULL;
	if (text && tbg_file_read(&f, text)) {
		free(text);
		text = NULL;
	}
	if (text) {
		*ret_len = f.st.st_size;
		*ret_type = f.type;
	}
	tbg_file_close(&f);
	return text;
}

void tbg_pages_error(const struct tbg_server *s, const struct tbg_location *l,
		    struct tbg_answer *ret)
{
	struct tbg_reply *r = &ret->reply;
	char *text = tbg_pages_read(s, l, r->status, &ret->body_len, &r->type);

	if (text) {
		free(ret->heap);
		ret->heap = text;
		ret->body = text;
		r->length = ret->body_len;
	}
	if (l->handler == TBG_HANDLER_FILES)
		return;
	tbg_location_fields(l, r->status, r->type, ret->fields);
	r->fields = ret->fields;
}

/* --- listings ------------------------------------------------------------ */

struct entry {
	char *name;
	bool folder;
	int64_t size;
	time_t modified;
};

struct listing {
	struct entry *entries;
	unsigned int nr, room;
	bool more;		/* there are more entries */
};

static bool entry_add(struct listing *l, const char *name, const struct stat *st)
{
	struct entry *more;

	if (l->nr == l->room) {
		l->room = l->room ? 2 * l->room : 64;
		more = reallocarray(l->entries, l->room, sizeof(*more));
		if (!more)
			return false;
		l->entries = more;
	}
	l->entries[l->nr] = (struct entry){
		.name = strdup(name), .folder = S_ISDIR(st->st_mode),
		.size = st->st_size, .modified = st->st_mtim.tv_sec,
	};
	return l->entries[l->nr].name && ++l->nr;
}

/* Follows a symbolic link. Returns false if it does not lead to a file below the root. */
static bool link_stat(int root_fd, const struct tbg_root_ways *ways, const char *folder,
		      const char *name, struct stat *ret)
{
	char path[TBG_TARGET_MAX + NAME_MAX + 2];
	bool ok;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = tbg_root_open_below(root_fd, ways, path, O_PATH, 0);
	if (fd < 0)
		return false;
	ok = !fstat(fd, ret);
	close(fd);
	return ok;
}

/* Lists what a request could get: no dot files, only regular files and folders. */
static bool folder_read(int root_fd, const struct tbg_root_ways *ways, const char *folder,
			DIR *dir, struct listing *l)
{
	const struct dirent *d;
	struct stat st;

	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.' ||
		    fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    (S_ISLNK(st.st_mode) && !link_stat(root_fd, ways, folder, d->d_name, &st)) ||
		    (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
			continue;
		l->more = l->nr == ENTRIES_MAX;
		if (l->more)
			break;
		if (!entry_add(l, d->d_name, &st))
			return false;
	}
	return true;
}

/* Folders first, then by the bytes of the name. */
static int entry_compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->folder != y->folder)
		return x->folder ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void text_put(FILE *f, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			putc((unsigned char)*text < ' ' ? '?' : *text, f);
		}
}

/* "./" first: a name with a colon must not look like a scheme. */
static void href_put(FILE *f, const char *name)
{
	fputs("<a href=\"./", f);
	for (; *name; name++) {
		unsigned char c = *name;

		if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
		    strchr("-._~", c))
			putc(c, f);
		else
			fprintf(f, "%%%02X", c);
	}
}

static void entry_put(FILE *f, const struct entry *e)
{
	char when[32];
	struct tm tm;

	fputs("<tr><td>", f);
	href_put(f, e->name);
	fputs(e->folder ? "/\">" : "\">", f);
	text_put(f, e->name);
	if (!gmtime_r(&e->modified, &tm) ||
	    !strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm))
		strcpy(when, "-");
	fprintf(f, "%s</a></td><td>%s</td><td>", e->folder ? "/" : "", when);
	if (e->folder)
		putc('-', f);
	else
		fprintf(f, "%lld", (long long)e->size);
	fputs("</td></tr>\n", f);
}

static char *page_make(const char *path, const struct listing *l, size_t *ret_len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);

	if (!f)
		return NULL;
	fputs("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>", f);
	text_put(f, path);
	fputs("</title></head>\n<body><h1>", f);
	text_put(f, path);
	fputs("</h1>\n<table>\n<tr><th>name</th><th>modified (UTC)</th><th>bytes</th></tr>\n",
	      f);
	if (strcmp(path, "/"))
		fputs("<tr><td><a href=\"../\">../</a></td></tr>\n", f);
	for (unsigned int i = 0; i < l->nr; i++)
		entry_put(f, &l->entries[i]);
	fprintf(f, "%s</table>\n</body></html>\n",
		l->more ? "<tr><td>and more</td></tr>\n" : "");
	if (!fclose(f))
		return text;
	free(text);
	return NULL;
}

unsigned int tbg_pages_listing_make(int root_fd, const struct tbg_root_ways *ways,
				    const char *folder, const char *path,
				    char **ret, size_t *ret_len)
{
	int fd = tbg_root_open_below(root_fd, ways, folder, O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct listing l = { 0 };

	*ret = NULL;
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return fd == -EACCES || fd == -EXDEV || fd == -ELOOP ? 403 :
		       fd == -EMFILE || fd == -ENFILE ? 503 : 404;
	}
	if (folder_read(root_fd, ways, folder, dir, &l)) {
		if (l.nr)
			qsort(l.entries, l.nr, sizeof(*l.entries), entry_compare);
		*ret = page_make(path, &l, ret_len);
	}
	closedir(dir);
	for (unsigned int i = 0; i < l.nr; i++)
		free(l.entries[i].name);
	free(l.entries);
	return *ret ? 0 : 503;
}

void tbg_pages_listing(const struct tbg_ask *ask, const char *text, size_t len,
		       struct tbg_answer *ret)
{
	tbg_answer_error(ret, 200, ask->persist);
	ret->reply.cache = TBG_CACHE_MISS;
	ret->body = text;
	ret->body_len = ret->reply.length = len;
	ret->reply.type = ret->media = "text/html; charset=utf-8";
}
