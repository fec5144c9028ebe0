// SPDX-License-Identifier: GPL-2.0
/*
 * Joins files to one text for libconfuse, whose own include has no globs and
 * reports lines of the wrong file. include("PATTERN") is allowed where a setting
 * is; each file must be complete in itself, so that an error is reported in its
 * own file. Called for each reading of a configuration; must not accept the end of
 * a file as the end of an open section, as libconfuse does.
 */
#include "config/text.h"

#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX	(64 << 20)	/* bytes of all files; a client has 16 to 45 of them */
#define DEPTH_MAX	8		/* nesting of included files */
#define BRACES_MAX	8		/* nesting of braces; sections and lists need less */

/* State of one reading: the text so far. */
struct assembly {
	char *text;
	size_t len;
	unsigned int line;		/* number of its last line */
	struct tbg_config_places *places;
	struct tbg_config_fault *fault;
};

__attribute__((format(printf, 4, 5)))
static bool wrong(struct assembly *a, const char *path, unsigned int line, const char *format, ...)
{
	va_list args;

	/* a copy of the path that outlives this function */
	a->fault->path = path && a->places->nr ? a->places->pieces[a->places->nr - 1].path : NULL;
	a->fault->line = line;
	va_start(args, format);
	vsnprintf(a->fault->text, sizeof(a->fault->text), format, args);
	va_end(args);
	for (char *at = a->fault->text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return false;
}

/* --- tokens ----------------------------------------------------------------- */

/* The end of the quoted text that begins at `at`; NULL: unterminated. */
static char *quoted_end(char *at)
{
	char quote = *at++, *brace;

	for (; *at && *at != quote; at++) {
		/* "${NAME}" is a variable, whatever its name contains */
		brace = quote == '"' && at[0] == '$' && at[1] == '{' ? strchr(at, '}') : NULL;
		if (brace)
			at = brace;
		else if (*at == '\\' && at[1])
			at++;
	}
	return *at ? at + 1 : NULL;
}

static bool is_comment(const char *at)
{
	return *at == '#' || (at[0] == '/' && (at[1] == '/' || at[1] == '*'));
}

/*
 * The end of the token that begins at `at`, as libconfuse divides the text:
 * white space, a comment, a quoted text, a word or a single character. NULL:
 * unterminated. A word may contain slashes, so no comment begins in it.
 */
char *tbg_token_end(char *at)
{
	static const char blanks[] = " \t\r\n", marks[] = "#\"'={}()+,*";
	char *end;

	if (strchr(blanks, *at))
		return at + strspn(at, blanks);
	if (at[0] == '$' && at[1] == '{' && (end = strchr(at, '}')))
		return end + 1;		/* an environment variable */
	if (*at == '"' || *at == '\'')
		return quoted_end(at);
	if (at[0] == '/' && at[1] == '*') {
		end = strstr(at + 2, "*/");
		return end ? end + 2 : NULL;
	}
	if (is_comment(at))
		return at + strcspn(at, "\n");
	if (strchr(marks, *at))
		return at + 1;
	while (*at && !strchr(blanks, *at) && !strchr(marks, *at))
		at++;
	return at;
}

unsigned int tbg_line_of(const char *text, const char *at)
{
	unsigned int line = 1;

	for (; text < at; text++)
		line += *text == '\n';
	return line;
}

/* The next token that is no blank. */
static char *token_next(char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* libconfuse accepts the end of the file as the end of every section. */
unsigned int tbg_brace_open(char *text)
{
	const char *open[BRACES_MAX];
	unsigned int depth = 0;

	for (char *at = text; *at; at = tbg_token_end(at)) {
		if (*at == '{' && depth < BRACES_MAX)
			open[depth++] = at;
		else if (*at == '}' && depth)
			depth--;
	}
	return depth ? tbg_line_of(text, open[depth - 1]) : 0;
}

/* --- one file ----------------------------------------------------------------- */

/*
 * Replaces comments by spaces: libconfuse miscounts lines after them. Refuses
 * unterminated comments and quotes, which libconfuse accepts.
 */
static bool comments_blank(struct assembly *a, const char *path, char *text)
{
	for (char *at = text, *end; *at; at = end) {
		bool blank = is_comment(at);

		end = tbg_token_end(at);
		if (!end && blank)
			return wrong(a, path, tbg_line_of(text, at), "the comment is never closed; expected */");
		if (!end)
			return wrong(a, path, tbg_line_of(text, at),
				     "the quote %c is never closed; expected another %c", *at, *at);
		for (; blank && at < end; at++)
			if (*at != '\n')
				*at = ' ';
	}
	return true;
}

/* The byte order mark that some editors begin a text with. */
static void mark_blank(char *text, size_t len)
{
	static const char mark[] = { 0xef, 0xbb, 0xbf };

	if (len >= sizeof(mark) && !memcmp(text, mark, sizeof(mark)))
		memset(text, ' ', sizeof(mark));
}

/* The line of an unmatched closing brace; 0: none. */
static unsigned int brace_lone(char *text)
{
	unsigned int depth = 0;

	for (char *at = text; *at; at = tbg_token_end(at)) {
		if (*at == '}' && !depth)
			return tbg_line_of(text, at);
		depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
	}
	return 0;
}

/* Checks a text in place: no zero byte; blanks its comments. */
static bool text_check(struct assembly *a, const char *path, char *text, size_t len, bool included)
{
	if (len > CONFIG_MAX)
		return wrong(a, path, 0, "too long; expected at most %d bytes", CONFIG_MAX);
	text[len] = 0;
	mark_blank(text, len);
	if (strlen(text) < len)
		return wrong(a, path, tbg_line_of(text, text + strlen(text)), "a zero byte; expected text");
	if (!comments_blank(a, path, text))
		return false;
	if (included && tbg_brace_open(text))
		return wrong(a, path, tbg_brace_open(text), "\"{\" is never closed; expected }");
	if (included && brace_lone(text))
		return wrong(a, path, brace_lone(text), "\"}\" closes nothing that this file opens; expected { before it");
	return true;
}

/* Reads the text, with room for a zero byte; of a longer one than is allowed, some more. */
static int text_read(FILE *f, char **ret, size_t *ret_len)
{
	size_t room = 1 << 14, len = 0;
	char *text = NULL, *more;

	do {
		room *= 2;
		more = realloc(text, room);
		if (!more)
			break;
		text = more;
		len += fread(text + len, 1, room - 1 - len, f);
	} while (!feof(f) && !ferror(f) && len <= CONFIG_MAX);
	if (more && !ferror(f)) {
		*ret = text;
		*ret_len = len;
		return 0;
	}
	free(text);
	return more ? errno ?: EIO : ENOMEM;
}

/* NULL: it cannot be read; the error is stored. */
static char *file_read(struct assembly *a, const char *path, bool included)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t len = 0;
	int err = f ? text_read(f, &text, &len) : errno;

	if (f)
		fclose(f);
	if (err)
		wrong(a, included ? path : NULL, 0, "%s; expected a file that can be read",
		      strerror(err));
	else if (text_check(a, path, text, len, included))
		return text;
	free(text);
	return NULL;
}

/* --- all of them -------------------------------------------------------------- */

static bool text_add(struct assembly *a, const char *path, const char *text, size_t len)
{
	char *more;

	if (a->len + len > CONFIG_MAX)
		return wrong(a, path, 0, "too long; expected at most %d bytes", CONFIG_MAX);
	more = realloc(a->text, a->len + len + 1);
	if (!more)
		return wrong(a, path, 0, "out of memory");
	a->text = more;
	memcpy(more + a->len, text, len);
	a->len += len;
	more[a->len] = 0;
	a->line += tbg_line_of(text, text + len) - 1;
	return true;
}

/* Text added from now on is from path, beginning with its line `own`. */
static bool piece_add(struct assembly *a, const char *path, unsigned int own)
{
	struct tbg_config_places *p = a->places;
	struct tbg_config_piece *more = reallocarray(p->pieces, p->nr + 1, sizeof(*more));
	char *copy = strdup(path);

	if (more)
		p->pieces = more;
	if (!more || !copy) {
		free(copy);
		return wrong(a, path, 0, "out of memory");
	}
	if (a->len && !text_add(a, path, "\n", 1)) {
		free(copy);
		return false;
	}
	more[p->nr++] = (struct tbg_config_piece){ a->line, own, copy };
	return true;
}

/* A relative pattern is relative to the folder of its file. */
static char *pattern_of(const char *path, const char *quoted, size_t len)
{
	const char *slash = strrchr(path, '/');
	char *ret = malloc(2 * strlen(path) + len + 1), *to = ret;

	if (!ret)
		return NULL;
	/* special characters in the folder's name are literal */
	for (const char *at = path; slash && *quoted != '/' && at <= slash; at++) {
		if (strchr("*?[\\", *at))
			*to++ = '\\';
		*to++ = *at;
	}
	memcpy(to, quoted, len);
	to[len] = 0;
	return ret;
}

static bool file_add(struct assembly *a, const char *path, unsigned int depth);

/* A missing folder has no files; an unreadable one is an error. */
static int glob_stops(const char *path, int err)
{
	return err != ENOENT && err != ENOTDIR;
}

/* A fault of an included file as a whole is reported at the line of its include. */
static bool included_add(struct assembly *a, const char *path, unsigned int line,
			 unsigned int depth)
{
	unsigned int piece = a->places->nr - 1;
	char text[sizeof(a->fault->text)];

	if (file_add(a, path, depth))
		return true;
	if (!a->fault->line) {
		memcpy(text, a->fault->text, sizeof(text));
		wrong(a, path, line, "include \"%.200s\": %.200s", path, text);
		a->fault->path = a->places->pieces[piece].path;
	}
	return false;
}

/* A plain name must exist; a pattern need not match anything. */
static bool pattern_add(struct assembly *a, const char *path, unsigned int line,
			const char *quoted, size_t len, unsigned int depth)
{
	char *pattern = pattern_of(path, quoted, len);
	glob_t found = { 0 };
	bool ok = true;
	int err = pattern ? glob(pattern, 0, glob_stops, &found) : GLOB_NOSPACE;

	free(pattern);
	if (err == GLOB_NOMATCH)
		err = strcspn(quoted, "*?[") < len ? 0 : ENOENT;
	else if (err)
		err = err == GLOB_NOSPACE ? ENOMEM : errno ?: EIO;
	if (err)
		ok = wrong(a, path, line, "include \"%.*s\": %s; expected a file that can be read, or a pattern such as \"conf.d/*.conf\"",
			   (int)len, quoted, strerror(err));
	else if (found.gl_pathc && depth == DEPTH_MAX)
		ok = wrong(a, path, line, "include \"%.*s\": more than %d files deep; expected files that do not include themselves",
			   (int)len, quoted, DEPTH_MAX);
	for (size_t i = 0; ok && i < found.gl_pathc; i++)
		ok = included_add(a, found.gl_pathv[i], line, depth + 1);
	globfree(&found);
	return ok;
}

/*
 * Parses include ( "PATTERN" ) at `at`: returns its end, and the pattern; NULL:
 * something else.
 */
static char *include_end(char *at, char **ret_pattern, size_t *ret_len)
{
	char *end = tbg_token_end(at);

	if (end - at != strlen("include") || strncmp(at, "include", end - at))
		return NULL;
	at = token_next(end);
	if (*at != '(')
		return NULL;
	at = token_next(at + 1);
	end = *at ? tbg_token_end(at) : at;
	*ret_pattern = at + (*at == '"' || *at == '\'');
	*ret_len = end - at - 2 * (*ret_pattern - at);
	at = token_next(end);
	return *at == ')' && *ret_len ? at + 1 : NULL;
}

/* Adds the text of a file, with included files inserted. */
static bool pieces_add(struct assembly *a, const char *path, char *text, unsigned int depth)
{
	char *from = text, *end, *pattern = NULL, *next;
	bool ok = true, value = false;
	size_t len = 0;

	for (char *at = text; ok && *at; at = end) {
		end = tbg_token_end(at);
		next = value ? NULL : include_end(at, &pattern, &len);
		if (strchr(" \t\r\n", *at))
			continue;
		/* after = and between the braces of a list there are values */
		value = *at == '=' || (value && strchr("{,", *at));
		if (!next)
			continue;
		ok = text_add(a, path, from, at - from) &&
		     pattern_add(a, path, tbg_line_of(text, at), pattern, len, depth) &&
		     piece_add(a, path, tbg_line_of(text, next));
		from = end = next;
	}
	return ok && text_add(a, path, from, strlen(from));
}

static bool file_add(struct assembly *a, const char *path, unsigned int depth)
{
	char *text;
	bool ok;

	if (!piece_add(a, path, 1))
		return false;
	text = file_read(a, path, depth);
	ok = text && pieces_add(a, path, text, depth);
	free(text);
	return ok;
}

char *tbg_config_text(const char *path, struct tbg_config_places *places,
		      struct tbg_config_fault *ret_fault)
{
	struct assembly a = { .line = 1, .places = places, .fault = ret_fault };

	*places = (struct tbg_config_places){ 0 };
	if (file_add(&a, path, 0))
		return a.text;
	free(a.text);
	return NULL;
}

unsigned int tbg_config_place(const struct tbg_config_places *places, unsigned int line,
			      const char **ret_path)
{
	unsigned int nr = places->nr;

	while (nr > 1 && places->pieces[nr - 1].line > line)
		nr--;
	*ret_path = places->pieces[nr - 1].path;
	return places->pieces[nr - 1].own + line - places->pieces[nr - 1].line;
}

void tbg_config_places_free(struct tbg_config_places *places)
{
	for (unsigned int i = 0; i < places->nr; i++)
		free(places->pieces[i].path);
	free(places->pieces);
	*places = (struct tbg_config_places){ 0 };
}
