// SPDX-License-Identifier: GPL-2.0
/*
 * mime.types: "type/subtype ext ext …" lines into a sorted table, searched by
 * extension without regard to case. A type may have parameters, "a/b; c=d".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/media_types.h"
#include "http/token.h"

#define EXT_MAX	 32
#define TYPE_MAX 120
#define MIME_SYSTEM "/etc/mime.types"
#define NR(a)	 (sizeof(a) / sizeof(*(a)))

struct row {
	char *ext;
	char *type;
	unsigned int line;	/* for an extension the first row counts */
};

struct tbg_mime {
	struct row *rows;
	size_t nr, room;
};

/* For systems without the package media-types. */
static const char *const built_in[] = {
	"text/html html htm", "text/css css", "text/javascript js mjs",
	"text/plain txt", "image/png png", "image/jpeg jpg jpeg",
	"image/gif gif", "image/svg+xml svg svgz", "image/webp webp",
	"image/vnd.microsoft.icon ico", "application/json json",
	"application/pdf pdf", "application/xml xml", "font/woff2 woff2",
	"video/mp4 mp4", "application/wasm wasm",
	"application/vnd.apple.mpegurl m3u8",
};

/*
 * Overrides the system's file, in which "ts" means files of translators: on the web it
 * is video (RFC 8216 3.2).
 */
static const char *const before_system[] = {
	"video/mp2t ts",
};

static int row_add(struct tbg_mime *m, const char *ext, const char *type,
		   unsigned int line)
{
	struct row *r;

	if (m->nr == m->room) {
		size_t room = m->room ? m->room * 2 : 512;

		r = reallocarray(m->rows, room, sizeof(*r));
		if (!r)
			return -ENOMEM;
		m->rows = r;
		m->room = room;
	}
	r = &m->rows[m->nr];
	*r = (struct row){ strdup(ext), strdup(type), line };
	m->nr++;
	return r->ext && r->type ? 0 : -ENOMEM;
}

/* Length of the token at the beginning of the text. */
static size_t token_len(const char *at)
{
	size_t len = 0;

	while (tbg_token_byte(at[len]))
		len++;
	return len;
}

/* Length of a parameter ";name=value", white space around the semicolon allowed; 0: none. */
static size_t parameter_len(const char *at)
{
	size_t len = strspn(at, " \t"), name, value;

	if (at[len++] != ';')
		return 0;
	len += strspn(at + len, " \t");
	name = token_len(at + len);
	if (!name || at[len + name] != '=')
		return 0;
	len += name + 1;
	if (at[len] == '"') {
		value = strcspn(at + len + 1, "\"\\\t") + 2;
		return at[len + value - 1] == '"' ? len + value : 0;
	}
	value = token_len(at + len);
	return value ? len + value : 0;
}

/* Length of the type at the beginning of a line; 0: none. */
static size_t type_len(const char *line)
{
	size_t len = token_len(line), more = len && line[len] == '/' ?
					     token_len(line + len + 1) : 0;

	if (!more)
		return 0;
	for (len++; more; more = parameter_len(line + len))
		len += more;
	if (len > TYPE_MAX || (line[len] && line[len] != ' ' && line[len] != '\t'))
		return 0;
	return len;
}

/* "md", not ".md" or "md;" */
static bool suffix_valid(const char *at, size_t len)
{
	if (!len || len >= EXT_MAX || *at == '.')
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)at[i] <= ' ' || strchr("\x7f/;,{}\"", at[i]))
			return false;
	return true;
}

/* Number of suffixes after a type; -1: something else follows. */
static int suffixes_count(const char *at)
{
	int nr = 0;

	for (at += strspn(at, " \t"); *at; nr++) {
		size_t len = strcspn(at, " \t");

		if (!suffix_valid(at, len))
			return -1;
		at += len;
		at += strspn(at, " \t");
	}
	return nr;
}

/* Removes the comment and the line end; returns the beginning of the text. */
static char *line_trim(char *line)
{
	line[strcspn(line, "#\r\n")] = 0;
	return line + strspn(line, " \t");
}

static int line_take(struct tbg_mime *m, char *line, unsigned int nr)
{
	char *type = line_trim(line), *save, *ext;
	size_t len = type_len(type);
	int err;

	if (!len || !type[len])
		return 0;
	type[len] = 0;
	for (ext = strtok_r(type + len + 1, " \t", &save); ext;
	     ext = strtok_r(NULL, " \t", &save)) {
		if (!suffix_valid(ext, strlen(ext)))
			continue;
		err = row_add(m, ext, type, nr);
		if (err)
			return err;
	}
	return 0;
}

static int lines_take(struct tbg_mime *m, const char *const *lines, size_t lines_nr,
		      unsigned int *nr)
{
	int err = 0;

	for (size_t i = 0; i < lines_nr && !err; i++) {
		char *copy = strdup(lines[i]);

		err = copy ? line_take(m, copy, (*nr)++) : -ENOMEM;
		free(copy);
	}
	return err;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = strcasecmp(x->ext, y->ext);

	return c ? c : (x->line > y->line) - (x->line < y->line);
}

bool tbg_mime_line_valid(const char *line)
{
	size_t len = type_len(line);

	return len && !strpbrk(line, "#\r\n") && suffixes_count(line + len) > 0;
}

int tbg_mime_file_check(const char *path, char ret_why[TBG_MIME_WHY])
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *line = NULL;
	unsigned int nr = 0;
	size_t room = 0;
	struct stat st;
	int err = 0;

	if (!f || fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	snprintf(ret_why, TBG_MIME_WHY, "%s", !err ? "" : f && err == -EINVAL ?
		 "not a regular file" : strerror(-err));
	while (!err && getline(&line, &room, f) > 0) {
		char *at = line_trim(line);
		size_t len = type_len(at);

		nr++;
		if (!*at || (len && suffixes_count(at + len) >= 0))
			continue;
		snprintf(ret_why, TBG_MIME_WHY, "its line %u, \"%.60s\", is none", nr, at);
		err = -EINVAL;
	}
	free(line);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return err;
}

uint64_t tbg_mime_print(const struct tbg_mime *m)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < m->nr; i++) {
		const char *const parts[] = { m->rows[i].ext, m->rows[i].type };

		for (int j = 0; j < 2; j++)
			for (const char *c = parts[j]; c == parts[j] || c[-1]; c++)
				h = (h ^ (uint8_t)*c) * 0x100000001b3ull;
	}
	return h;
}

int tbg_mime_open(struct tbg_mime **ret, const char *path, char *const *lines,
		  unsigned int lines_nr)
{
	struct tbg_mime *m = calloc(1, sizeof(*m));
	FILE *f = fopen(path ?: MIME_SYSTEM, "re");
	size_t room = 0, kept = 0;
	char *line = NULL;
	unsigned int nr = 0;
	int err = m ? 0 : -ENOMEM;

	err = err ?: lines_take(m, (const char *const *)lines, lines_nr, &nr);
	if (!path && !err)
		err = lines_take(m, before_system, NR(before_system), &nr);
	while (f && !err && getline(&line, &room, f) > 0)
		err = line_take(m, line, nr++);
	if (!f && !err)
		err = lines_take(m, built_in, NR(built_in), &nr);
	free(line);
	if (f)
		fclose(f);
	if (err) {
		tbg_mime_close(m);
		return err;
	}
	qsort(m->rows, m->nr, sizeof(*m->rows), row_compare);
	for (size_t i = 0; i < m->nr; i++) {
		if (kept && !strcasecmp(m->rows[kept - 1].ext, m->rows[i].ext)) {
			free(m->rows[i].ext);
			free(m->rows[i].type);
		} else {
			m->rows[kept++] = m->rows[i];
		}
	}
	m->nr = kept;
	*ret = m;
	return 0;
}

void tbg_mime_close(struct tbg_mime *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->nr; i++) {
		free(m->rows[i].ext);
		free(m->rows[i].type);
	}
	free(m->rows);
	free(m);
}

const char *tbg_mime_type(const struct tbg_mime *m, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *dot = strrchr(slash ? slash : name, '.');
	size_t lo = 0, hi = m->nr;

	if (!dot || strlen(dot) > EXT_MAX)
		return TBG_MIME_DEFAULT;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = strcasecmp(dot + 1, m->rows[mid].ext);

		if (!c)
			return m->rows[mid].type;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return TBG_MIME_DEFAULT;
}
