// SPDX-License-Identifier: GPL-2.0
/*
 * The command line, --help, and the daemon's own settings from any source
 * (config/table.c lists them). A wrong value is reported in one line: where, the
 * value, what is accepted. The command line overrides the file.
 */
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/version.h"
#include "config/file.h"
#include "config/near.h"
#include "config/target.h"
#include "log/access.h"
#include "os/message.h"
#include "os/service.h"
#include "os/timers.h"
#include "os/units.h"
#include "upstream/address.h"

#define BAD_OPTION 2
#define MSG_LEN	   1600
#define MEMORY_LEAST	(16u << 20)
#define MEMORY_MOST	(256u << 20)

/* The command line, while it is read. */
struct line {
	struct tbg_options *o;
	const char *check;			/* --check's file */
	bool begun[TBG_SETTINGS_MAX];		/* lists of the daemon that it contains */
	int list;				/* a site of the configuration has one */
};

/* Options that are no settings: for the command line alone. */
static const struct {
	const char *name, *arg, *about;
} words[] = {
	{ "config", "FILE", "configuration, see toboggan.conf(5); the command line wins" },
	{ "check", "FILE", "check whether FILE is a valid configuration, and exit" },
	{ "version", "", "print the version" },
	{ "help", "", "print this" },
};

#define WORDS (sizeof(words) / sizeof(*words))

static bool is_daemon(const struct tbg_setting_row *row)
{
	return (row->flags & TBG_SETTING_DAEMON) == TBG_SETTING_DAEMON;
}

static void help_row(const char *name, const char *arg, const char *about, const char *preset)
{
	bool noted = *preset;
	char left[40];

	snprintf(left, sizeof(left), "--%s %s", name, arg);
	printf("  %-28s %s%s%s%s\n", left, about, noted ? " (" : "", preset, noted ? ")" : "");
}

static void help(void)
{
	const struct tbg_setting_row *row;
	char preset[128];

	printf("usage: toboggand --root DIR --listen ADDR:PORT [option ...]\n"
	       "       toboggand --upstream URL --listen ADDR:PORT [option ...]\n"
	       "       toboggand --config FILE [option ...]\n"
	       "       toboggand --check FILE\n\n"
	       "An HTTP accelerator: the kernel answers from a cache.\n\n");
	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		if (!(row->flags & TBG_SETTING_LINE))
			continue;
		tbg_setting_print(row, preset, sizeof(preset));
		help_row(row->name, row->arg, row->about, preset);
	}
	for (size_t i = 0; i < WORDS; i++)
		help_row(words[i].name, words[i].arg, words[i].about, "");
}

/* --- the daemon's own settings --------------------------------------------- */

void tbg_option_log(const struct tbg_options *o, const char *name, unsigned int nr,
		    const char *format, ...)
{
	unsigned int line = o->line[tbg_setting_find(name, strlen(name))][nr];
	char text[MSG_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	tbg_option_log_at(o, line, name, text);
}

void tbg_option_log_at(const struct tbg_options *o, unsigned int line, const char *name,
		       const char *text)
{
	const char *path;

	if (!line) {
		tbg_report("toboggand: --%s %s", name, text);
		return;
	}
	line = tbg_config_place(&o->places, line, &path);
	tbg_report("toboggand: %s:%u: %s %s", path, line, name, text);
}

const char *tbg_option_given(const struct tbg_options *o, const char *name)
{
	return o->given[tbg_setting_find(name, strlen(name))];
}

void tbg_options_later(const struct tbg_options *now,
		       const struct tbg_options *wanted, char *ret, size_t len)
{
	const struct tbg_setting_row *row;

	*ret = 0;
	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++) {
		const char *a = now->given[i], *b = wanted->given[i];
		size_t at = strlen(ret);

		if (row->flags & TBG_SETTING_LATER && (a && b ? strcmp(a, b) : a != b))
			snprintf(ret + at, len - at, "%s%s", at ? ", " : "", row->name);
	}
}

void tbg_options_free(struct tbg_options *o)
{
	for (size_t i = 0; i < TBG_SETTINGS_MAX; i++)
		free(o->given[i]);
	for (unsigned int i = 0; i < o->listen_nr; i++)
		free(o->listen_clients[i].rule);
	free(o->listen_rule);
	free(o->admin_token);
	tbg_config_places_free(&o->places);
	tbg_scope_free(o->top);
}

/* --- the command line ------------------------------------------------------- */

static bool is(const char *name, const char *word, size_t len)
{
	return strlen(name) == len && !strncmp(name, word, len);
}

/* The row of an option; -1: unknown. */
static int row_of(const char *word, size_t len)
{
	int row = tbg_setting_find(word, len);

	return row >= 0 && tbg_setting_row(row)->flags & TBG_SETTING_LINE ? row : -1;
}

static void unknown_log(const char *word, size_t len)
{
	struct tbg_near near = { .word = word, .len = len };
	const struct tbg_setting_row *row;

	for (unsigned int i = 0; (row = tbg_setting_row(i)); i++)
		if (row->flags & TBG_SETTING_LINE)
			tbg_near_try(&near, row->name);
	for (size_t i = 0; i < WORDS; i++)
		tbg_near_try(&near, words[i].name);
	tbg_report("toboggand: --%.*s: unknown option; %s%s%ssee --help for the options",
		   (int)len, word, near.name ? "did you mean --" : "", near.name ?: "",
		   near.name ? "? " : "");
}

/*
 * Splits argv[*at] into name and value, which may be the next word. NULL:
 * error, a message was printed.
 */
static const char *word_split(char **argv, int *at, size_t *ret_len)
{
	const char *word = argv[*at], *eq;
	int row;

	if (strncmp(word, "--", 2) || !word[2]) {
		tbg_report("toboggand: \"%s\": unexpected; expected options such as --root DIR, see --help",
			word);
		return NULL;
	}
	eq = strchr(word, '=');
	*ret_len = eq ? (size_t)(eq - word) - 2 : strlen(word) - 2;
	if (eq)
		return eq + 1;
	if (argv[*at + 1])
		return argv[++*at];
	row = row_of(word + 2, *ret_len);
	if (row >= 0)
		tbg_report("toboggand: %s: no value; expected %s", word,
			   tbg_setting_accepts(tbg_setting_row(row)));
	else if (is("config", word + 2, *ret_len) || is("check", word + 2, *ret_len))
		tbg_report("toboggand: %s: no value; expected a file that can be read", word);
	else
		unknown_log(word + 2, *ret_len);
	return NULL;
}

static int value_wrong(const struct tbg_setting_row *row, const char *v, const char *why)
{
	tbg_report("toboggand: --%s \"%s\": %s%sexpected %s", row->name, v, why,
		   *why ? "; " : "", tbg_setting_accepts(row));
	return *v && *why && !is_daemon(row) ? TBG_OPTIONS_MISSING : BAD_OPTION;
}

/* A list of the command line replaces the file's. */
static int setting_take(struct line *line, unsigned int nr, const char *v)
{
	const struct tbg_setting_row *row = tbg_setting_row(nr);
	struct tbg_options *o = line->o;
	const char *why;

	if (row->flags & TBG_SETTING_LIST && line->list != (int)nr) {
		tbg_scope_unset(o->top, nr);
		line->list = nr;
	}
	return tbg_scope_set(o->top, nr, 0, v, o->roots, &why) ? 0 : value_wrong(row, v, why);
}

static int option_take(struct line *line, unsigned int nr, const char *v)
{
	const struct tbg_setting_row *row = tbg_setting_row(nr);
	bool begins = row->flags & TBG_SETTING_LIST && !line->begun[nr];
	const char *why;

	line->begun[nr] = true;
	return tbg_option_set(line->o, nr, 0, v, begins, &why) ? 0 : value_wrong(row, v, why);
}

/* Reads an option that is no setting. */
static int word_take(struct line *line, const char *word, size_t len, const char *v)
{
	if (is("config", word, len)) {
		line->o->config = v;
	} else if (is("check", word, len)) {
		line->check = v;
	} else if (is("help", word, len) || is("version", word, len)) {
		tbg_report("toboggand: --%.*s \"%s\": expected no value", (int)len, word, v);
		return BAD_OPTION;
	} else {
		unknown_log(word, len);
		return BAD_OPTION;
	}
	return 0;
}

/* files: reads only the options that name the configuration file, and those that need none. */
static int line_read(struct line *line, char **argv, bool files)
{
	int err = 0;

	for (int i = 1; argv[i] && !err; i++) {
		const char *word = argv[i], *v;
		size_t len;
		int row;

		if (!strcmp(word, "--help") || !strcmp(word, "--version")) {
			if (word[2] == 'h')
				help();
			else
				puts("toboggand " TBG_VERSION);
			return TBG_OPTIONS_DONE;
		}
		v = word_split(argv, &i, &len);
		if (!v)
			return BAD_OPTION;
		row = row_of(word + 2, len);
		if (row < 0)
			err = word_take(line, word + 2, len, v);
		else if (!files)
			err = is_daemon(tbg_setting_row(row)) ? option_take(line, row, v) :
								setting_take(line, row, v);
	}
	return err;
}

/* --- defaults that depend on the machine ------------------------------------ */

/* The first number of a file; UINT64_MAX: there is none ("max"). */
static uint64_t number_in(const char *path)
{
	unsigned long long ret = UINT64_MAX;
	FILE *f = fopen(path, "re");

	if (f && fscanf(f, "%llu", &ret) != 1)
		ret = UINT64_MAX;
	if (f)
		fclose(f);
	return ret;
}

/*
 * The default budget is a sixteenth of the memory of the machine or container,
 * between MEMORY_LEAST and MEMORY_MOST: the kernel allocates most of it at the
 * start.
 */
static uint64_t memory_default(void)
{
	uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	uint64_t most = number_in("/sys/fs/cgroup/memory.max"), ret;

	ret = (most < there ? most : there) / 16;
	return ret < MEMORY_LEAST ? MEMORY_LEAST : ret > MEMORY_MOST ? MEMORY_MOST : ret;
}

/* Whether no other user can create a socket there before us. */
static bool folder_ours(const char *dir)
{
	struct stat st;

	return *dir == '/' && !stat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* The default folder; NULL: there is none that only we can write to, such as /tmp. */
static const char *control_default(struct tbg_options *o)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char *path = o->control_default, usual[32];
	size_t room = sizeof(o->control_default);

	if (!geteuid())
		return "/run/toboggan/control.sock";
	snprintf(usual, sizeof(usual), "/run/user/%u", geteuid());
	if (!dir || !folder_ours(dir))
		dir = usual;
	return folder_ours(dir) && snprintf(path, room, "%s/toboggan.sock", dir) < (int)room ?
	       path : NULL;
}

/* Beside the control socket; NULL: too long for a socket's path. */
static const char *admin_default(struct tbg_options *o)
{
	static const char usual[] = "control.sock";
	size_t len = strlen(o->control), end = len;
	const char *name = ".admin";

	if (len >= strlen(usual) && !strcmp(o->control + len - strlen(usual), usual)) {
		end = len - strlen(usual);
		name = "admin.sock";
	}
	return snprintf(o->admin_default, sizeof(o->admin_default), "%.*s%s", (int)end,
			o->control, name) < (int)sizeof(o->admin_default) ?
	       o->admin_default : NULL;
}

static int config_read(struct tbg_options *o, const char *option, const char *path)
{
	char msg[MSG_LEN];
	int err = tbg_config_read(option, path, o, o->top, o->roots, msg, sizeof(msg));

	if (!err)
		return 0;
	tbg_report("toboggand: %s", msg);
	return err == -ENOENT ? TBG_OPTIONS_MISSING : BAD_OPTION;
}

/* --- access logs of hosts --------------------------------------------------- */

bool tbg_options_log(const struct tbg_options *o, const char *path)
{
	const struct tbg_setting *s;

	if (o->access_log && !strcmp(o->access_log, path))
		return true;
	for (unsigned int i = 0; i < o->top->below_nr; i++) {
		s = tbg_setting_of(o->top->below[i], "access-log");
		if (s && !strcmp(s->values[0], path))
			return true;
	}
	return false;
}

/* Different logs, while they are compared. */
struct logs {
	const char *path[TBG_LOGS_MAX], *format[TBG_LOGS_MAX];
	unsigned int nr;
};

/* For --check: the same result as a start would have. */
static int log_reach(const struct tbg_options *o, const struct tbg_site *site)
{
	char text[MSG_LEN];
	int err = o->check ? tbg_log_check(site->log_path) : 0;

	if (!err)
		return 0;
	snprintf(text, sizeof(text), "%s: %s; choose a file that can be written, or off",
		 site->log_path, strerror(-err));
	tbg_option_log_at(o, site->log_line, "access-log", text);
	return BAD_OPTION;
}

static int log_compare(const struct tbg_options *o, const struct tbg_site *site, struct logs *l)
{
	const char *format = site->log_format ?: o->log_format;
	char text[MSG_LEN];
	unsigned int i = 0;

	while (i < l->nr && strcmp(l->path[i], site->log_path))
		i++;
	if (i < l->nr && !strcmp(l->format[i], format))
		return 0;
	if (i < TBG_LOGS_MAX && i == l->nr) {
		l->path[i] = site->log_path;
		l->format[l->nr++] = format;
		return log_reach(o, site);
	}
	if (i < l->nr)
		snprintf(text, sizeof(text), "%s: %.200s, and elsewhere %.200s; expected one format for a file",
			 site->log_path, format, l->format[i]);
	else
		snprintf(text, sizeof(text), "%s: one more than %d; expected hosts that share them",
			 site->log_path, TBG_LOGS_MAX);
	tbg_option_log_at(o, site->log_line, "access-log", text);
	return BAD_OPTION;
}

static int logs_compare(const struct tbg_options *o, const struct tbg_sites *sites)
{
	struct logs l = { .nr = o->access_log ? 1 : 0 };
	int err = 0;

	l.path[0] = o->access_log;
	l.format[0] = o->log_format;
	for (unsigned int i = 0; i < sites->nr && !err; i++)
		if (sites->site[i].log_path && *sites->site[i].log_path)
			err = log_compare(o, &sites->site[i], &l);
	return err;
}

static int effects_check(const struct tbg_options *o, const struct tbg_sites *sites)
{
	char text[MSG_LEN];
	const char *name = tbg_effect_options(o, sites, text, sizeof(text));

	if (name)
		tbg_option_log(o, name, 0, "%s", text);
	return name ? BAD_OPTION : 0;
}

int tbg_options_sites(const struct tbg_options *o, const struct tbg_sites *old,
		      struct tbg_sites **ret)
{
	struct tbg_settings_error error;
	unsigned int line;
	const char *path;

	if (!tbg_sites_make(ret, o->top, old, o->roots, &error)) {
		if (!logs_compare(o, *ret) && !effects_check(o, *ret))
			return 0;
		tbg_sites_close(*ret, NULL, NULL);
		*ret = NULL;
		return BAD_OPTION;
	}
	if (error.line) {
		line = tbg_config_place(&o->places, error.line, &path);
		tbg_report("toboggand: %s:%u: %s", path, line, error.text);
		return BAD_OPTION;
	}
	path = strncmp(error.text, "--", 2) ? o->config : NULL;
	tbg_report("toboggand: %s%s%s", path ?: "", path ? ": " : "", error.text);
	return BAD_OPTION;
}

static int complete(struct tbg_options *o)
{
	if (!o->top->below_nr && !tbg_setting_of(o->top, "root") &&
	    !tbg_setting_of(o->top, "upstream") && !tbg_setting_of(o->top, "cgi") &&
	    !tbg_setting_of(o->top, "module")) {
		tbg_report("toboggand: --root: missing; expected --root DIR or --upstream URL, or --config FILE with one");
		return BAD_OPTION;
	}
	if (!o->listen_nr && !tbg_service_sockets()) {
		tbg_report("toboggand: --listen: missing; expected --listen ADDR:PORT at least once");
		return BAD_OPTION;
	}
	if (!tbg_service_sockets() && tbg_options_listen_lists(o))
		return BAD_OPTION;
	if (!o->control)
		o->control = control_default(o);
	if (!o->control) {
		tbg_report("toboggand: --control: missing; expected --control PATH, or in XDG_RUNTIME_DIR a folder that only you can write to");
		return BAD_OPTION;
	}
	if (!o->admin_given)
		o->admin = admin_default(o);
	return 0;
}

/* Returns 0 if this machine has the addresses to listen on, or negative errno after a message. */
static int listen_check(const struct tbg_options *o)
{
	int on = 1, fd, err;

	for (unsigned int i = 0; i < o->listen_nr; i++) {
		const struct sockaddr_storage *a = &o->listen[i];

		fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		err = fd < 0 ? errno : 0;
		/* at the start, it may no longer be in use or forbidden */
		if (!err && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
		    bind(fd, (const struct sockaddr *)a, sizeof(*a)) && errno == EADDRNOTAVAIL)
			err = errno;
		if (fd >= 0)
			close(fd);
		if (!err)
			continue;
		tbg_option_log(o, "listen", i, TBG_LISTEN_FAILED, o->listen_text[i],
			       strerror(err));
		return -err;
	}
	return 0;
}

/* Checks a file with the other options for everything that a start would refuse. */
static int sites_check(struct tbg_options *o)
{
	struct tbg_sites *sites = NULL;
	int err;

	tbg_addresses_start(tbg_timer_ms(TBG_TIMER_ADDRESSES_START));
	err = tbg_options_sites(o, NULL, &sites);
	tbg_sites_close(sites, NULL, NULL);
	err = err ?: complete(o) ?: tbg_options_ifaces_check(o) ?: listen_check(o);
	if (!err)
		printf("%s: good\n", o->config);
	return err ? BAD_OPTION : TBG_OPTIONS_DONE;
}

int tbg_options_parse(struct tbg_options *ret, char **argv,
		      struct tbg_roots *roots)
{
	struct tbg_target preset = { .options = ret, .why = "" };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct line line = { .o = ret, .list = -1 };
	int err;

	*ret = (struct tbg_options){
		.memory = memory_default(), .workers = cpus > 0 ? cpus : 1,
		.roots = roots, .top = tbg_scope_new(TBG_SCOPE_TOP, ""),
	};
	if (!ret->top || tbg_settings_default(&preset, TBG_OBJECT_OPTIONS))
		return TBG_OPTIONS_MISSING;
	err = line_read(&line, argv, true);
	ret->check = line.check;
	if (line.check)
		ret->config = line.check;
	if (!err && ret->config)
		err = config_read(ret, line.check ? "check" : "config", ret->config);
	err = err ?: line_read(&line, argv, false);
	if (line.check && err != TBG_OPTIONS_DONE)
		return err ? BAD_OPTION : sites_check(ret);
	return err ?: complete(ret);
}

int tbg_options_ifaces_check(const struct tbg_options *o)
{
	const char *names = o->wire;
	char name[IF_NAMESIZE];
	bool xdp;

	if (!strcmp(names, "auto") || !strcmp(names, "off"))
		return 0;
	for (; *names; names += strcspn(names, ","), names += *names == ',') {
		if (tbg_value_iface(names, name, &xdp) && if_nametoindex(name))
			continue;
		tbg_option_log(o, "wire", 0, "%s: no such interface; see ip link for those there are",
			       name);
		return -ENODEV;
	}
	return 0;
}

/* Index of the listener at this address; listen_nr: none. */
static unsigned int listener_of(const struct tbg_options *o, const struct sockaddr_storage *at)
{
	unsigned int i = 0;

	while (i < o->listen_nr && memcmp(&o->listen[i], at, sizeof(*at)))
		i++;
	return i;
}

int tbg_options_listen_lists(struct tbg_options *o)
{
	struct tbg_client_rule *rule;
	unsigned int nr;

	for (unsigned int i = 0; i < o->listen_rules_nr; i++)
		if (listener_of(o, &o->listen_rule[i].at) == o->listen_nr) {
			tbg_option_log(o, o->listen_rule[i].rule.deny ? "listen-deny" : "listen-allow",
				       0, "it is not served; expected an address of listen");
			return -EINVAL;
		}
	for (unsigned int l = 0; l < o->listen_nr; l++) {
		rule = calloc(o->listen_rules_nr + 1, sizeof(*rule));
		if (!rule)
			return -ENOMEM;
		nr = 0;
		for (unsigned int i = 0; i < o->listen_rules_nr; i++)
			if (!memcmp(&o->listen[l], &o->listen_rule[i].at, sizeof(o->listen[l])))
				rule[nr++] = o->listen_rule[i].rule;
		free(o->listen_clients[l].rule);
		tbg_client_list_make(&o->listen_clients[l], rule, nr);
		o->listen_lists |= nr;
	}
	return 0;
}

