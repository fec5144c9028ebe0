// SPDX-License-Identifier: GPL-2.0
/*
 * libconfuse parses the text of text.c. This file makes libconfuse's tables from
 * ours and reports errors. Every value is checked when the parser has just read
 * it, the only moment at which its line is known.
 */
#include "config/file.h"

#include <confuse.h>
#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/near.h"
#include "config/options.h"
#include "config/settings.h"
#include "config/text.h"

#define OPTS_MAX	128		/* number of names in one scope */
#define SCOPES_MAX	4		/* nesting of scopes */
#define GIVEN		(1 << 30)	/* our flag in an option of libconfuse: it has been set */

/* The reading under way: libconfuse passes no argument to callbacks. */
static struct reading {
	struct tbg_options *o;
	struct tbg_roots *roots;
	struct tbg_scope *top;
	struct tbg_scope *open[SCOPES_MAX];	/* open sections */
	unsigned int open_nr;
	char *at;			/* end of the last closed section, */
	unsigned int line;		/* its line, and number of open braces there */
	unsigned int begun[SCOPES_MAX * 2], begun_nr;	/* title lines; of a list: 0 */
	cfg_t *cfg;
	const cfg_opt_t *last;		/* the value checked last, */
	unsigned int last_nr;		/* its number in its list */
	bool missing;			/* the error: a value names something that does not exist */
	char *msg;
	size_t msg_len;
} *reading;

static const struct {
	const char *name;
	enum tbg_scope_kind kind;
	unsigned int in;		/* scopes in which it is allowed */
} sections[] = {
	{ "host", TBG_SCOPE_HOST, TBG_SCOPE_TOP },
	{ "location", TBG_SCOPE_LOCATION, TBG_SCOPE_TOP | TBG_SCOPE_HOST },
	{ "type", TBG_SCOPE_TYPE,
	  TBG_SCOPE_TOP | TBG_SCOPE_HOST | TBG_SCOPE_LOCATION },
	/* "upstream" in the file: see sections_mark() */
	{ "Upstream", TBG_SCOPE_UPSTREAM, TBG_SCOPE_TOP },
};

#define SECTIONS (sizeof(sections) / sizeof(*sections))

static enum tbg_scope_kind kind_of(const cfg_t *cfg)
{
	for (size_t i = 0; cfg != reading->cfg && i < SECTIONS; i++)
		if (!strcmp(cfg->name, sections[i].name))
			return sections[i].kind;
	return TBG_SCOPE_TOP;
}

static const char *section_word(const char *name)
{
	return *name == 'U' ? "upstream" : name;
}

/* --- what is wrong ------------------------------------------------------- */

/* Reports the first error only, not its consequences. */
__attribute__((format(printf, 2, 3)))
static void fault(unsigned int line, const char *format, ...)
{
	const char *path = reading->o->places.pieces[0].path;
	va_list args;
	int n;

	if (*reading->msg)
		return;
	if (line)
		line = tbg_config_place(&reading->o->places, line, &path);
	if (line)
		n = snprintf(reading->msg, reading->msg_len, "%s:%u: ", path, line);
	else
		n = snprintf(reading->msg, reading->msg_len, "%s: ", path);
	if ((size_t)n >= reading->msg_len)
		return;
	va_start(args, format);
	vsnprintf(reading->msg + n, reading->msg_len - n, format, args);
	va_end(args);
	/* a value may have several lines, a message may not */
	for (char *at = reading->msg; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
}

static void name_add(char *text, size_t size, const char *name)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%s", len ? ", " : "", name);
}

/* Lists every name allowed in a scope, and the nearest one to an unknown word. */
static void names_of(enum tbg_scope_kind kind, char *ret, size_t size, struct tbg_near *near)
{
	const struct tbg_setting_row *row;

	*ret = 0;
	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		if (!(row->scopes & kind))
			continue;
		name_add(ret, size, row->name);
		tbg_near_try(near, row->name);
	}
	for (size_t i = 0; i < SECTIONS; i++) {
		if (!(sections[i].in & kind))
			continue;
		name_add(ret, size, section_word(sections[i].name));
		tbg_near_try(near, section_word(sections[i].name));
	}
	tbg_near_try(near, "include");
}

/* "no such option 'memroy'": the word. */
static struct tbg_near word_of(const char *format, const char *text)
{
	const char *begin = strchr(text, '\''), *end = strrchr(text, '\'');

	if (!strstr(format, "no such option") || !begin || end == begin)
		return (struct tbg_near){ .word = "" };
	return (struct tbg_near){ .word = begin + 1, .len = end - begin - 1 };
}

/* The scopes of a setting or section with that name; 0: there is none. */
static unsigned int scopes_of(const char *word, size_t len)
{
	int row = tbg_setting_find(word, len);
	const char *name;

	if (row >= 0)
		return tbg_setting_row(row)->scopes;
	for (size_t i = 0; i < SECTIONS; i++) {
		name = section_word(sections[i].name);
		if (strlen(name) == len && !memcmp(name, word, len))
			return sections[i].in;
	}
	return 0;
}

/* What to do about an unknown word: the name that is meant, or the scopes that have it. */
static void hint_of(const struct tbg_near *near, char *ret, size_t size)
{
	static const struct {
		unsigned int kind;
		const char *place;
	} scopes[] = {
		{ TBG_SCOPE_TOP, "outside of sections" },
		{ TBG_SCOPE_HOST, "in a host section" },
		{ TBG_SCOPE_LOCATION, "in a location section" },
		{ TBG_SCOPE_TYPE, "in a type section" },
		{ TBG_SCOPE_UPSTREAM, "in an upstream section" },
	};
	unsigned int in = scopes_of(near->word, near->len);
	char places[160] = "";

	*ret = 0;
	for (size_t i = 0; i < sizeof(scopes) / sizeof(*scopes); i++)
		if (scopes[i].kind & in)
			name_add(places, sizeof(places), scopes[i].place);
	if (in)
		snprintf(ret, size, "it is allowed %s; ", places);
	else if (near->name)
		snprintf(ret, size, "did you mean %s? ", near->name);
}

static void parser_error(cfg_t *cfg, const char *format, va_list args)
{
	char text[256], names[1200], hint[200];
	struct tbg_near near;

	vsnprintf(text, sizeof(text), format, args);
	near = word_of(format, text);
	names_of(cfg ? kind_of(cfg) : TBG_SCOPE_TOP, names, sizeof(names), &near);
	hint_of(&near, hint, sizeof(hint));
	fault(cfg ? cfg->line : 0, "%s; %saccepted here: name = \"value\" and name \"title\" { ... } with %s",
	      text, hint, names);
}

/* --- where sections begin ------------------------------------------------ */

/*
 * The line of the title of the section that ends next; the parser only knows the
 * line of its end. A brace after '=' begins a list.
 */
static unsigned int section_line(struct reading *r)
{
	unsigned int title = r->line, line;
	bool list = false;
	char *end;

	for (; *r->at; r->at = end) {
		end = tbg_token_end(r->at);
		line = r->line;
		r->line += tbg_line_of(r->at, end) - 1;
		if (*r->at == '{' && r->begun_nr < SCOPES_MAX * 2) {
			r->begun[r->begun_nr++] = list ? 0 : title;
		} else if (*r->at == '}' && r->begun_nr && r->begun[--r->begun_nr]) {
			r->at = end;
			return r->begun[r->begun_nr];
		}
		if (isspace((unsigned char)*r->at))
			continue;
		list = *r->at == '=';
		title = line;
	}
	return r->line;
}

/* --- what is right ------------------------------------------------------- */

static struct tbg_scope *scope_of(cfg_t *cfg)
{
	struct tbg_scope *s;

	if (cfg == reading->cfg)
		return reading->top;
	for (unsigned int i = 0; i < reading->open_nr; i++)
		if (reading->open[i]->section == cfg)
			return reading->open[i];
	if (reading->open_nr == SCOPES_MAX)
		return NULL;
	s = tbg_scope_new(kind_of(cfg), cfg_title(cfg) ?: "");
	if (!s)
		return NULL;
	s->section = cfg;
	reading->open[reading->open_nr++] = s;
	return s;
}

/* The value to be checked; NULL: none, or the last one of a list again. */
static const char *value_new(cfg_opt_t *opt)
{
	unsigned int nr = cfg_opt_size(opt);
	bool again = opt == reading->last && nr == reading->last_nr && nr > 1;

	reading->last = opt;
	reading->last_nr = nr;
	return nr && !again ? cfg_opt_getnstr(opt, nr - 1) : NULL;
}

/*
 * Whether it is set again rather than added to: libconfuse sets MODIFIED at each
 * '=', where it also empties a list; the first value clears it here.
 */
static bool given_twice(const cfg_t *cfg, cfg_opt_t *opt)
{
	bool again = opt->flags & CFGF_MODIFIED && opt->flags & GIVEN &&
		     cfg_opt_size(opt) == 1;

	opt->flags = (opt->flags & ~CFGF_MODIFIED) | GIVEN;
	if (again)
		fault(cfg->line, "%s \"%.200s\": given twice; expected it once in a section%s",
		      opt->name, cfg_opt_getnstr(opt, 0),
		      opt->flags & CFGF_LIST ? ", and += where a list is added to" : "");
	return again;
}

static int value_wrong(const cfg_t *cfg, const cfg_opt_t *opt, const char *v,
		       unsigned int row, const char *why)
{
	fault(cfg->line, "%s \"%.200s\": %s%sexpected %s", opt->name, v, why,
	      *why ? "; " : "", tbg_setting_accepts(tbg_setting_row(row)));
	return -1;
}

static int setting_value(cfg_t *cfg, cfg_opt_t *opt)
{
	const char *v = value_new(opt), *why = "";
	int row = tbg_setting_find(opt->name, strlen(opt->name));
	struct tbg_scope *scope = scope_of(cfg);

	if (given_twice(cfg, opt))
		return -1;
	if (!v)
		return 0;
	if (!scope) {
		fault(cfg->line, "out of memory");
		return -1;
	}
	/* the only value of a list, a second time */
	if (cfg_opt_size(opt) == 1)
		tbg_scope_unset(scope, row);
	if (tbg_scope_set(scope, row, cfg->line, v, reading->roots, &why))
		return 0;
	reading->missing = *v && *why;
	return value_wrong(cfg, opt, v, row, why);
}

static int option_value(cfg_t *cfg, cfg_opt_t *opt)
{
	int row = tbg_setting_find(opt->name, strlen(opt->name));
	const char *v = value_new(opt), *why;

	if (given_twice(cfg, opt))
		return -1;
	if (!v || tbg_option_set(reading->o, row, cfg->line, v, cfg_opt_size(opt) == 1, &why))
		return 0;
	return value_wrong(cfg, opt, v, row, why);
}

/* A section has ended: adds it to the enclosing one. */
static int section_end(cfg_t *cfg, cfg_opt_t *opt)
{
	cfg_t *section = cfg_opt_getnsec(opt, cfg_opt_size(opt) - 1);
	const char *accepts, *title = cfg_title(section) ?: "";
	struct tbg_scope *own = scope_of(section), *outer = scope_of(cfg);
	unsigned int line = section_line(reading);

	if (!tbg_scope_title(kind_of(section), title, &accepts)) {
		fault(line, "%s \"%.200s\": expected %s", section_word(opt->name),
		      title, accepts);
		return -1;
	}
	if (!own || !outer || tbg_scope_add(outer, own)) {
		fault(line, "out of memory");
		return -1;
	}
	own->line = line;
	for (unsigned int i = 0; i < reading->open_nr; i++)
		if (reading->open[i] == own)
			reading->open[i--] = reading->open[--reading->open_nr];
	return 0;
}

/* --- the parser's tables ------------------------------------------------- */

static cfg_opt_t opt_of(const char *name, bool list, cfg_validate_callback_t fn)
{
	cfg_opt_t ret = CFG_STR(NULL, NULL, CFGF_NONE);

	ret.name = name;
	if (list)
		ret.flags = CFGF_LIST;
	ret.validcb = fn;
	return ret;
}

/* Fills the table to[OPTS_MAX] of a scope; below: tables of its sections. */
static void opts_fill(cfg_opt_t *to, enum tbg_scope_kind kind,
		      cfg_opt_t *const *below)
{
	const struct tbg_setting_row *row;
	unsigned int nr = 0;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		/* in a host it is the host's, not the daemon's */
		bool option = row->object == TBG_OBJECT_OPTIONS && kind == TBG_SCOPE_TOP;

		if (row->scopes & kind)
			to[nr++] = opt_of(row->name, row->flags & TBG_SETTING_LIST,
					  option ? option_value : setting_value);
	}
	for (size_t i = 0; i < SECTIONS; i++) {
		cfg_opt_t section = CFG_SEC(NULL, NULL, CFGF_MULTI | CFGF_TITLE |
					    CFGF_NO_TITLE_DUPES);

		if (!(sections[i].in & kind))
			continue;
		section.name = sections[i].name;
		section.subopts = below[i];
		section.validcb = section_end;
		to[nr++] = section;
	}
	to[nr] = (cfg_opt_t)CFG_END();
}

static int text_parse(struct reading *r, const char *text)
{
	static cfg_opt_t top[OPTS_MAX], host[OPTS_MAX], location[OPTS_MAX], type[OPTS_MAX],
			 upstream[OPTS_MAX];
	cfg_opt_t *const below[SECTIONS] = { host, location, type, upstream };
	int err;

	opts_fill(upstream, TBG_SCOPE_UPSTREAM, below);
	opts_fill(type, TBG_SCOPE_TYPE, below);
	opts_fill(location, TBG_SCOPE_LOCATION, below);
	opts_fill(host, TBG_SCOPE_HOST, below);
	opts_fill(top, TBG_SCOPE_TOP, below);
	r->cfg = cfg_init(top, CFGF_NONE);
	if (!r->cfg)
		return -ENOMEM;
	cfg_set_error_function(r->cfg, parser_error);
	err = cfg_parse_buf(r->cfg, text) == CFG_SUCCESS ? 0 : -EINVAL;
	if (err)
		fault(0, "cannot be read as a configuration; accepted: name = \"value\" lines");
	cfg_free(r->cfg);
	malloc_trim(0);		/* libconfuse has used 10 KiB for each section */
	for (unsigned int i = 0; i < r->open_nr; i++)
		tbg_scope_free(r->open[i]);
	return err;
}

/* --- the file ------------------------------------------------------------ */

/* The next token that is not white space. */
static char *token_next(char *at)
{
	return at + strspn(at, " \t\r\n");
}

/*
 * "upstream" is both a setting and a section, but libconfuse allows a name only
 * once. So the name of a section (followed by a title and a brace) gets a capital
 * letter.
 */
static void sections_mark(char *text)
{
	static const char word[] = "upstream";
	unsigned int depth = 0;
	char *title;

	for (char *at = text, *end; *at; at = end) {
		end = tbg_token_end(at);
		if (*at == '{' || *at == '}')
			depth += *at == '{' ? 1 : depth ? -1 : 0;
		if (depth || end - at != sizeof(word) - 1 || strncmp(at, word, end - at))
			continue;
		title = token_next(end);
		if (*title && !strchr("=+", *title) && *token_next(tbg_token_end(title)) == '{')
			*at = 'U';
	}
}

int tbg_config_read(const char *option, const char *path, struct tbg_options *o,
		    struct tbg_scope *top, struct tbg_roots *roots,
		    char *ret_msg, size_t msg_len)
{
	struct reading r = {
		.o = o, .top = top, .roots = roots,
		.msg = ret_msg, .msg_len = msg_len, .line = 1,
	};
	struct tbg_config_fault wrong;
	char *text = tbg_config_text(path, &o->places, &wrong);
	int err;

	*ret_msg = 0;
	if (!text && !wrong.path)
		snprintf(ret_msg, msg_len, "--%s \"%s\": %s", option, path, wrong.text);
	else if (!text && !wrong.line)
		snprintf(ret_msg, msg_len, "%s: %s", wrong.path, wrong.text);
	else if (!text)
		snprintf(ret_msg, msg_len, "%s:%u: %s", wrong.path, wrong.line, wrong.text);
	if (!text)
		return -EINVAL;
	reading = &r;
	r.at = text;
	sections_mark(text);
	err = text_parse(&r, text);
	if (!err && tbg_brace_open(text)) {
		fault(tbg_brace_open(text), "\"{\" is never closed; expected }");
		err = -EINVAL;
	}
	free(text);
	reading = NULL;
	return err && r.missing ? -ENOENT : err;
}
