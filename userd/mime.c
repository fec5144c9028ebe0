// SPDX-License-Identifier: GPL-2.0
/*
 * mime.types: "type/subtype ext ext …" lines into a sorted table, searched by
 * extension without regard to case.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mime.h"

#define EXT_MAX	 32
#define TYPE_MAX 120

struct row {
	char *ext;
	char *type;
	unsigned int line;	/* of two rows for an extension the first counts */
};

struct tbg_mime {
	struct row *rows;
	size_t nr, room;
};

/* For systems without the package media-types. */
static const char *const built_in[] = {
	"text/html html htm", "text/css css", "text/javascript js mjs",
	"text/plain txt", "image/png png", "image/jpeg jpg jpeg",
	"image/gif gif", "image/svg+xml svg", "image/webp webp",
	"image/vnd.microsoft.icon ico", "application/json json",
	"application/pdf pdf", "application/xml xml", "font/woff2 woff2",
	"video/mp4 mp4", "application/wasm wasm",
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

/* What a header field may carry and what cannot be a typing mistake. */
static bool type_valid(const char *type)
{
	size_t len = strlen(type);

	if (len > TYPE_MAX || !strchr(type, '/'))
		return false;
	for (; *type; type++)
		if (*type <= ' ' || *type == 0x7f)
			return false;
	return true;
}

static int line_take(struct tbg_mime *m, char *line, unsigned int nr)
{
	char *save, *type, *ext;
	int err;

	line[strcspn(line, "#\r\n")] = 0;
	type = strtok_r(line, " \t", &save);
	if (!type || !type_valid(type))
		return 0;
	while ((ext = strtok_r(NULL, " \t", &save))) {
		if (strlen(ext) >= EXT_MAX)
			continue;
		err = row_add(m, ext, type, nr);
		if (err)
			return err;
	}
	return 0;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = strcasecmp(x->ext, y->ext);

	return c ? c : (x->line > y->line) - (x->line < y->line);
}

bool tbg_mime_line_valid(const char *line)
{
	char type[TYPE_MAX + 1];
	size_t len = strcspn(line, " \t");

	if (len > TYPE_MAX || strchr(line, '#'))
		return false;
	snprintf(type, sizeof(type), "%.*s", (int)len, line);
	return type_valid(type) && line[len + strspn(line + len, " \t")];
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
	FILE *f = fopen(path, "re");
	size_t room = 0, kept = 0;
	char *line = NULL;
	unsigned int nr = 0;
	int err = m ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < lines_nr && !err; i++) {
		char *copy = strdup(lines[i]);

		err = copy ? line_take(m, copy, nr++) : -ENOMEM;
		free(copy);
	}
	while (f && !err && getline(&line, &room, f) > 0)
		err = line_take(m, line, nr++);
	for (size_t i = 0; !f && !err && i < sizeof(built_in) / sizeof(*built_in); i++) {
		char copy[64];

		snprintf(copy, sizeof(copy), "%s", built_in[i]);
		err = line_take(m, copy, nr++);
	}
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
