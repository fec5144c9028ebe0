// SPDX-License-Identifier: GPL-2.0
/*
 * One table makes the command line, --help and the options of the configuration
 * file (config/file.c). A wrong value is told in one line: where, what it was, what
 * is accepted. The command line wins over the file.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/conn.h"
#include "abi/version.h"
#include "config/file.h"
#include "control/control.h"
#include "core/span.h"
#include "log/access.h"
#include "log/line.h"
#include "log/sink.h"
#include "config/options.h"
#include "os/message.h"
#include "os/service.h"
#include "os/privilege.h"
#include "config/settings.h"
#include "config/units.h"

#define BAD_OPTION 2
#define MSG_LEN	   1200
#define TBG_LISTEN_TEXT	sizeof(((struct tbg_options *)0)->listen_text[0])
#define TOKEN_MIN  16		/* bytes of an admin token */
#define TOKEN_MAX  256
#define MEMORY_LEAST	(16u << 20)
#define MEMORY_MOST	(256u << 20)

struct given {
	struct tbg_options *o;
	unsigned int line;	/* of the file; 0: the command line */
	bool begins;		/* of a list: what was given before goes */
	bool line_began[TBG_OPTIONS_MAX];	/* lists that the command line has */
	const char *line_list;	/* the same of the settings: there is one */
	const char *check;
	const char *why;	/* what is wrong with a value that is what it should be */
};

/* Each returns false for a value that is not what `accepts` says. */

/* v lives as long as the options do. */
static bool set_text(const char **to, const char *v)
{
	*to = v;
	return *v;
}

static bool port_parse(const char *v, in_port_t *ret)
{
	char *end;
	unsigned long n = strtoul(v, &end, 10);

	if (*v < '0' || *v > '9' || *end || n > 65535)
		return false;
	*ret = htons(n);
	return true;
}

/* Port 0 is another one each time. Both families have the port in one place. */
static bool listened(const struct tbg_options *o, const struct sockaddr_storage *a)
{
	if (!((const struct sockaddr_in *)a)->sin_port)
		return false;
	for (unsigned int i = 0; i < o->listen_nr; i++)
		if (!memcmp(&o->listen[i], a, sizeof(*a)))
			return true;
	return false;
}

/* ADDR:PORT or [ADDR6]:PORT */
static bool address_parse(const char *v, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	const char *colon = strrchr(v, ':');
	char host[TBG_LISTEN_TEXT];
	size_t len;

	if (!colon || strlen(v) >= sizeof(host))
		return false;
	len = colon - v;
	memset(ret, 0, sizeof(*ret));
	if (len > 2 && v[0] == '[' && v[len - 1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, v + 1);
		if (inet_pton(AF_INET6, host, &a6.sin6_addr) != 1 ||
		    !port_parse(colon + 1, &a6.sin6_port))
			return false;
		memcpy(ret, &a6, sizeof(a6));
	} else {
		snprintf(host, sizeof(host), "%.*s", (int)len, v);
		if (inet_pton(AF_INET, host, &a4.sin_addr) != 1 ||
		    !port_parse(colon + 1, &a4.sin_port))
			return false;
		memcpy(ret, &a4, sizeof(a4));
	}
	return true;
}

static bool set_listen(struct given *g, const char *v)
{
	struct tbg_options *o = g->o;

	if (g->begins)
		o->listen_nr = 0;
	if (o->listen_nr == TBG_LISTENER_MAX ||
	    !address_parse(v, &o->listen[o->listen_nr]) ||
	    listened(o, &o->listen[o->listen_nr]))
		return false;
	snprintf(o->listen_text[o->listen_nr], sizeof(o->listen_text[0]), "%s", v);
	o->listen_nr++;
	return true;
}

static bool set_wire(struct given *g, const char *v)
{
	const char *at = v;
	char name[16], before[16];
	unsigned int nr = 0;
	bool xdp;

	if (!strcmp(v, "auto") || !strcmp(v, "off"))
		return set_text(&g->o->wire, v);
	do {				/* no empty and no overlong names, none twice */
		if (nr++ == TBG_IFACES_MAX || !tbg_value_iface(at, name, &xdp) || !strcasecmp(name, "auto") ||
		    !strcasecmp(name, "off"))
			return false;
		for (const char *b = v; b < at; b += strcspn(b, ",") + 1)
			if (tbg_value_iface(b, before, &xdp) && !strcmp(before, name))
				return false;
		at += strcspn(at, ",");
	} while (*at++);
	return set_text(&g->o->wire, v);
}

/* Somebody has to answer what the others pass up: user is on, named or not. */
static bool set_tiers(struct given *g, const char *v)
{
	char copy[64], *rest = copy, *word;
	bool wire = false, sock = false;

	if (strlen(v) >= sizeof(copy))
		return false;
	strcpy(copy, v);
	while ((word = strsep(&rest, ","))) {	/* empty words too, to refuse them */
		if (!strcmp(word, "wire"))
			wire = true;
		else if (!strcmp(word, "sock"))
			sock = true;
		else if (strcmp(word, "user"))
			return false;
	}
	g->o->tier_wire = wire;
	g->o->tier_sock = sock;
	return true;
}

static bool set_late_sockets(struct given *g, const char *v)
{
	g->o->late_sockets = !strcmp(v, "auto");
	return g->o->late_sockets || !strcmp(v, "off");
}

static bool set_wire_size(struct given *g, const char *v)
{
	uint64_t size = 0;
	bool ret = !strcmp(v, "auto") || tbg_value_size(v, 1, TBG_WIRE_MAX + 1, &size);

	if (ret)
		g->o->wire_size = size;
	return ret;
}

static bool set_sock(struct given *g, const char *v)
{
	g->o->sock_unlisted = !strcmp(v, "unlisted");
	return g->o->sock_unlisted || !strcmp(v, "listed");
}

/* What there is not would be looked for until the machine has none left. */
static bool set_memory(struct given *g, const char *v)
{
	uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	uint64_t max = 1ull << 40;

	return tbg_value_size(v, 1 << 20, there < max ? there : max, &g->o->memory);
}

static bool set_workers(struct given *g, const char *v)
{
	return tbg_value_number(v, 1, 256, &g->o->workers);
}

/* err: of --check, which looks at where a path leads. */
static bool set_path(struct given *g, const char **to, const char *v, int err)
{
	if (err)
		g->why = strerror(-err);
	return !err && set_text(to, v);
}

static bool set_control(struct given *g, const char *v)
{
	return *v && strlen(v) < 108 &&
	       set_path(g, &g->o->control, v, g->o->check ? tbg_control_check(v) : 0);
}

/* A path has a slash, which no address has. */
static bool set_admin(struct given *g, const char *v)
{
	struct tbg_options *o = g->o;

	o->admin_said = true;
	o->admin_address.ss_family = 0;
	o->admin = NULL;
	if (!strcmp(v, "off"))
		return true;
	if (!strchr(v, '/'))
		return address_parse(v, &o->admin_address) && set_text(&o->admin, v);
	return strlen(v) < 108 &&
	       set_path(g, &o->admin, v, o->check ? tbg_control_check(v) : 0);
}

/* The first line of the file, which is a secret. */
static bool token_read(struct given *g, const char *path)
{
	char line[TOKEN_MAX + 2] = "";
	FILE *f = fopen(path, "re");
	struct stat st;

	if (!f || fstat(fileno(f), &st) || !fgets(line, sizeof(line), f))
		line[0] = 0;
	g->why = !f ? strerror(errno) : st.st_mode & 07 ? "others can read it" :
		 strcspn(line, "\r\n") < TOKEN_MIN ? "its first line is shorter" : "";
	if (f)
		fclose(f);
	if (*g->why)
		return false;
	line[strcspn(line, "\r\n")] = 0;
	free(g->o->admin_token);
	g->o->admin_token = strdup(line);
	return g->o->admin_token;
}

static bool set_admin_token(struct given *g, const char *v)
{
	return token_read(g, v) && set_text(&g->o->admin_token_file, v);
}

static bool set_access_log(struct given *g, const char *v)
{
	if (tbg_sink_is(v)) {
		g->why = tbg_sink_wrong(v);
		return !*g->why && set_text(&g->o->access_log, v);
	}
	if (*v && strcmp(v, "off"))
		return set_path(g, &g->o->access_log, v, g->o->check ? tbg_log_check(v) : 0);
	g->o->access_log = NULL;
	return *v;
}

static bool set_log_format(struct given *g, const char *v)
{
	static char msg[128];

	if (strchr(v, '$')) {
		g->o->log_format = TBG_LOG_CUSTOM;
		if (tbg_log_pattern_check(v, msg, sizeof(msg)))
			return set_text(&g->o->log_pattern, v);
		g->why = msg;
		return false;
	}
	g->o->log_pattern = NULL;
	for (unsigned int i = 0; i < TBG_LOG_CUSTOM; i++) {
		if (strcmp(v, tbg_log_format_name(i)))
			continue;
		g->o->log_format = i;
		return true;
	}
	return false;
}

static bool set_user(struct given *g, const char *v)
{
	return tbg_privilege_user_known(v) && set_text(&g->o->user, v);
}

static bool set_header_timeout(struct given *g, const char *v)
{
	return tbg_value_ms(v, &g->o->header_ms);
}

static bool set_idle_timeout(struct given *g, const char *v)
{
	return tbg_value_ms(v, &g->o->idle_ms);
}

static bool set_send_timeout(struct given *g, const char *v)
{
	return tbg_value_ms(v, &g->o->send_ms);
}

static bool set_drain_timeout(struct given *g, const char *v)
{
	return tbg_value_ms(v, &g->o->drain_ms);
}

/* As far as dates are made ahead. */
static bool set_unattended_timeout(struct given *g, const char *v)
{
	unsigned int ms;

	if (!tbg_value_ms(v, &ms) || ms < 1000 || ms > TBG_DATE_AHEAD * 1000)
		return false;
	g->o->unattended_ms = ms;
	return true;
}

static bool set_body_total(struct given *g, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 50, &g->o->body_total);
}

static bool set_connections_max(struct given *g, const char *v)
{
	return tbg_value_number(v, 1, 10000000, &g->o->connections_max);
}

static bool set_give_back(struct given *g, const char *v)
{
	return tbg_value_number(v, 0, 1000000, &g->o->give_back);
}

static bool set_header_max(struct given *g, const char *v)
{
	/* heads up to TBG_REQ_MAX are answered before their limit is asked for */
	return tbg_value_number(v, TBG_REQ_MAX, 65536, &g->o->header_max);
}

/*
 * X(name, function's, argument, may change at a reload, what is accepted, help)
 */
#define OPTION_LIST(X) \
	X("listen", listen, "ADDR:PORT", false, "ADDR:PORT or [ADDR6]:PORT, each once, at most 32 of them", "address to serve on; can be repeated") \
	X("wire", wire, "IFACE,...", false, "interface names with commas, each once, at most 64 of them, IFACE:xdp for XDP too, or one word alone: auto or off", "interfaces that answer at the packet, IFACE:xdp: in its driver too (auto)") \
	X("late-sockets", late_sockets, "auto|off", false, "auto or off", "connections without a socket until their first miss: auto (Linux 6.9 or newer), or off (off)") \
	X("wire-size", wire_size, "SIZE", false, "a size up to 64K, or auto", "longest response that wire sends, head included (auto: as long as it is cheaper than the daemon)") \
	X("give-back", give_back, "N", false, "a number up to 1000000", "requests in a row that wire could answer, before it has a connection back; 0: never (3)") \
	X("tiers", tiers, "LIST", false, "one or more of wire, sock and user with commas, such as wire,user", "tiers in use (wire,user)") \
	X("sock", sock, "KERNELS", false, "listed or unlisted", "kernels that sock may run on (listed)") \
	X("memory", memory, "SIZE", false, "a size from 1M to 1024G that this machine has, such as 256M", "memory budget of the cache (a sixteenth of the machine's, 16M to 256M)") \
	X("workers", workers, "N", false, "a number from 1 to 256", "worker threads (one per CPU)") \
	X("control", control, "PATH", false, "a socket's path of at most 107 bytes, in a folder that can be written", "control socket (/run/toboggan/control.sock, if root)") \
	X("admin", admin, "WHERE", false, "ADDR:PORT, [ADDR6]:PORT, a socket's path of at most 107 bytes, or off", "metrics and a page for operators (admin.sock beside the control socket)") \
	X("admin-token", admin_token, "FILE", false, "a file that others cannot read, whose first line has 16 to 256 bytes", "token for what the page may change (none: nothing)") \
	X("access-log", access_log, "PATH", true, "the path of a file that can be written, syslog:, syslog:udp:ADDR:PORT, journald: or off", "access log (off)") \
	X("access-log-format", log_format, "FORMAT", true, "combined, json, or fields by name such as \"$remote $status $seconds\"", "of its lines (combined)") \
	X("user", user, "NAME", false, "a user that there is, by name or number", "whom to run as when started by root (www-data)") \
	X("header-timeout", header_timeout, "TIME", true, "a time up to a day, such as 10s or 500ms", "for a request's head to arrive (20s)") \
	X("idle-timeout", idle_timeout, "TIME", true, "a time up to a day, such as 60s", "for an idle connection (75s)") \
	X("send-timeout", send_timeout, "TIME", true, "a time up to a day, such as 60s", "for a client that takes nothing (60s)") \
	X("drain-timeout", drain_timeout, "TIME", true, "a time up to a day, such as 10m or 90s", "for clients to take what is under way when the daemon ends (5m)") \
	X("unattended-timeout", unattended_timeout, "TIME", false, "a time from 1s to 64s", "for kernel tiers to answer while the daemon is not scheduled (64s)") \
	X("connections-max", connections_max, "N", true, "a number from 1 to 10000000", "connections at a time (50000)") \
	X("body-total", body_total, "SIZE", true, "a size, such as 512M or 8G", "bytes of bodies that are held at a time (1G)") \
	X("header-max", header_max, "N", true, "a number from 2048 to 65536", "bytes of a request's head, 2048 or more (16384)")

/* Settings of all sites that have none of their own: X(name, argument, help) */
#define LINE_SETTING_LIST(X) \
	X("root", "DIR", "folder to serve") \
	X("upstream", "URL", "server to pass requests to; can be repeated") \
	X("balance", "HOW", "which server: in turn, or of least requests (turn)") \
	X("connect-timeout", "TIME", "for an upstream's connection (5s)") \
	X("first-byte-timeout", "TIME", "for an upstream's response head (60s)") \
	X("upstream-idle-timeout", "TIME", "for an upstream that stops amid a response (60s)") \
	X("upstream-keep", "TIME", "how long a connection waits for its next request (30s)") \
	X("health-path", "PATH", "what servers are asked for to see whether they are well") \
	X("health-interval", "TIME", "between two such checks (5s)") \
	X("body-max", "SIZE", "bytes of a request's body (1M)") \
	X("body-buffer", "SIZE", "receive bodies whole, and keep so much of one in memory (off)") \
	X("body-folder", "DIR", "for the rest of such bodies (/var/tmp)")

struct option_row {
	const char *name;
	bool (*set)(struct given *g, const char *v);
	const char *arg;
	bool live;
	const char *accepts, *help;
};

static const struct option_row rows[] = {
#define X(name, fn, arg, live, accepts, help) \
	{ name, set_##fn, arg, live, accepts, help },
	OPTION_LIST(X)
#undef X
};

#define ROWS (sizeof(rows) / sizeof(*rows))

_Static_assert(ROWS <= TBG_OPTIONS_MAX, "options");

static const struct option_row *row_of(const char *name, size_t len)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == len && !strncmp(rows[i].name, name, len))
			return &rows[i];
	return NULL;
}

static void help_row(const char *name, const char *arg, const char *help)
{
	char left[40];

	snprintf(left, sizeof(left), "--%s %s", name, arg);
	printf("  %-28s %s\n", left, help);
}

static void help(void)
{
	printf("usage: toboggand --root DIR --listen ADDR:PORT [option ...]\n"
	       "       toboggand --upstream URL --listen ADDR:PORT [option ...]\n"
	       "       toboggand --config FILE [option ...]\n"
	       "       toboggand --check FILE\n\n"
	       "An HTTP accelerator: what is cached is answered by the kernel.\n\n");
#define X(name, arg, help) help_row(name, arg, help);
	LINE_SETTING_LIST(X)
#undef X
	for (size_t i = 0; i < ROWS; i++)
		help_row(rows[i].name, rows[i].arg, rows[i].help);
	help_row("config", "FILE", "configuration, see toboggan.conf(5); the command line wins");
	help_row("check", "FILE", "say whether FILE is a good configuration, and end");
	help_row("version", "", "print the version");
	help_row("help", "", "print this");
}

const char *tbg_option_name(unsigned int nr)
{
	return nr < ROWS ? rows[nr].name : NULL;
}

static bool is_list(const struct option_row *row)
{
	return row->set == set_listen;
}

bool tbg_option_list(unsigned int nr)
{
	return is_list(&rows[nr]);
}

/* Sets it and keeps what was said: of a list, all of it. */
static bool row_set(struct given *g, const struct option_row *row, const char *v)
{
	char **said = &g->o->said[row - rows];
	bool more = is_list(row) && !g->begins && *said;
	char *text;

	if (!row->set(g, v))
		return false;
	if (asprintf(&text, "%s%s%s", more ? *said : "", more ? " " : "", v) < 0)
		return false;
	free(*said);
	*said = text;
	g->o->line[row - rows][is_list(row) ? g->o->listen_nr - 1 : 0] = g->line;
	/* again, with the copy that stays */
	return is_list(row) || row->set(g, text);
}

void tbg_option_say(const struct tbg_options *o, const char *name, unsigned int nr,
		    const char *format, ...)
{
	unsigned int line = o->line[row_of(name, strlen(name)) - rows][nr];
	char text[MSG_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (line)
		tbg_report("toboggand: %s:%u: %s %s", o->config, line, name, text);
	else
		tbg_report("toboggand: --%s %s", name, text);
}

bool tbg_option_set(struct tbg_options *o, const char *name, unsigned int line,
		    const char *v, bool begins, const char **ret_accepts,
		    const char **ret_why)
{
	const struct option_row *row = row_of(name, strlen(name));
	struct given g = { .o = o, .line = line, .begins = begins, .why = "" };
	bool good = row_set(&g, row, v);

	*ret_accepts = row->accepts;
	*ret_why = g.why;
	return good;
}

void tbg_options_later(const struct tbg_options *now,
		       const struct tbg_options *wanted, char *ret, size_t len)
{
	*ret = 0;
	for (size_t i = 0; i < ROWS; i++) {
		const char *a = now->said[i], *b = wanted->said[i];
		size_t at = strlen(ret);

		if (!rows[i].live && (a && b ? strcmp(a, b) : a != b))
			snprintf(ret + at, len - at, "%s%s", at ? ", " : "",
				 rows[i].name);
	}
}

void tbg_options_free(struct tbg_options *o)
{
	for (size_t i = 0; i < ROWS; i++)
		free(o->said[i]);
	free(o->admin_token);
	tbg_scope_free(o->top);
}

static bool is(const char *name, const char *word, size_t len)
{
	return strlen(name) == len && !strncmp(name, word, len);
}

static const char *line_setting(const char *word, size_t len)
{
	static const char *const names[] = {
#define X(name, arg, help) name,
		LINE_SETTING_LIST(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (is(names[i], word, len))
			return names[i];
	return NULL;
}

/* What an option that has a value accepts; NULL: it is none. */
static const char *accepted(const char *word, size_t len)
{
	const struct option_row *row = row_of(word, len);
	const char *name = line_setting(word, len);
	struct tbg_setting_row setting;

	if (row)
		return row->accepts;
	if (is("config", word, len) || is("check", word, len))
		return "a file that can be read";
	if (!name)
		return NULL;
	tbg_setting_row(tbg_setting_find(name), &setting);
	return setting.accepts;
}

/*
 * Splits argv[*at] into name and value, which may be the next word. NULL: told
 * what is wrong.
 */
static const char *word_split(char **argv, int *at, size_t *ret_len)
{
	const char *word = argv[*at], *eq, *accepts;

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
	accepts = accepted(word + 2, *ret_len);
	if (accepts)
		tbg_report("toboggand: %s: no value; expected %s", word, accepts);
	else
		tbg_report("toboggand: %s: unknown option; see --help for what is accepted",
			word);
	return NULL;
}

/* A list of the command line replaces the file's. */
static int setting_take(struct given *g, const char *name, const char *v)
{
	struct tbg_options *o = g->o;
	int nr = tbg_setting_find(name);
	struct tbg_setting_row row;
	const char *why;

	tbg_setting_row(nr, &row);
	if (row.list && g->line_list != row.name) {
		tbg_scope_unset(o->top, nr);
		g->line_list = row.name;
	}
	if (tbg_scope_set(o->top, nr, 0, v, o->roots, &why))
		return 0;
	tbg_report("toboggand: --%s \"%s\": %s%sexpected %s", name, v, why,
		*why ? "; " : "", row.accepts);
	return *v && *why ? TBG_OPTIONS_MISSING : BAD_OPTION;
}

static int option_take(struct given *g, const char *name, size_t len,
		       const char *v)
{
	const struct option_row *row = row_of(name, len);

	if (is("help", name, len) || is("version", name, len)) {
		tbg_report("toboggand: --%.*s \"%s\": expected no value", (int)len, name, v);
		return BAD_OPTION;
	}
	if (!row) {
		tbg_report("toboggand: --%.*s: unknown option; see --help for what is accepted",
			(int)len, name);
		return BAD_OPTION;
	}
	g->begins = is_list(row) && !g->line_began[row - rows];
	g->line_began[row - rows] = true;
	if (row_set(g, row, v))
		return 0;
	tbg_report("toboggand: --%s \"%s\": %s%sexpected %s", row->name, v, g->why,
		*g->why ? "; " : "", row->accepts);
	return BAD_OPTION;
}

/* files: only which configuration there is, and what needs none. */
static int line_read(struct given *g, char **argv, bool files)
{
	int err = 0;

	for (int i = 1; argv[i] && !err; i++) {
		const char *word = argv[i], *v;
		size_t len;

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
		if (is("config", word + 2, len))
			g->o->config = v;
		else if (is("check", word + 2, len))
			g->check = v;
		else if (!line_setting(word + 2, len) && (!files || !row_of(word + 2, len)))
			err = option_take(g, word + 2, len, v);
		else if (!files)
			err = setting_take(g, line_setting(word + 2, len), v);
	}
	return err;
}

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
 * Most of the budget is the kernel's from the start, so it follows the machine, or
 * the container: a sixteenth, between MEMORY_LEAST and MEMORY_MOST.
 */
static uint64_t memory_default(void)
{
	uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	uint64_t most = number_in("/sys/fs/cgroup/memory.max"), ret;

	ret = (most < there ? most : there) / 16;
	return ret < MEMORY_LEAST ? MEMORY_LEAST : ret > MEMORY_MOST ? MEMORY_MOST : ret;
}

/* Whether nobody else can put a socket there before us. */
static bool folder_ours(const char *dir)
{
	struct stat st;

	return *dir == '/' && !stat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* NULL: there is no folder of our own. /tmp is everybody's. */
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

int tbg_options_sites(const struct tbg_options *o, const struct tbg_sites *old,
		      struct tbg_sites **ret)
{
	struct tbg_settings_error error;

	if (!tbg_sites_make(ret, o->top, old, o->roots, &error))
		return 0;
	if (error.line)
		tbg_report("toboggand: %s:%u: %s", o->config, error.line, error.text);
	else
		tbg_report("toboggand: %s%s%s", o->config ?: "", o->config ? ": " : "",
			error.text);
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
	if (!o->control)
		o->control = control_default(o);
	if (!o->control) {
		tbg_report("toboggand: --control: missing; expected --control PATH, or in XDG_RUNTIME_DIR a folder that is yours and nobody else's to write");
		return BAD_OPTION;
	}
	if (!o->admin_said)
		o->admin = admin_default(o);
	return 0;
}

/* Of a file, with the other options: all that a start would refuse. */
static int sites_check(struct tbg_options *o)
{
	struct tbg_sites *sites = NULL;
	int err = tbg_options_sites(o, NULL, &sites);

	tbg_sites_close(sites, NULL, NULL);
	err = err ?: complete(o);
	if (!err)
		printf("%s: good\n", o->config);
	return err ? BAD_OPTION : TBG_OPTIONS_DONE;
}

int tbg_options_parse(struct tbg_options *ret, char **argv,
		      struct tbg_roots *roots)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct given g = { .o = ret, .why = "" };
	int err;

	*ret = (struct tbg_options){
		.wire = "auto", .tier_wire = true, .give_back = 3,
		.memory = memory_default(), .workers = cpus > 0 ? cpus : 1,
		.header_ms = 20000, .idle_ms = 75000, .send_ms = 60000, .body_total = 1 << 30,
		.drain_ms = 300000, .unattended_ms = TBG_DATE_AHEAD * 1000,
		.header_max = 16384, .roots = roots,
		.top = tbg_scope_new(TBG_SCOPE_TOP, ""),
	};
	if (!ret->top)
		return TBG_OPTIONS_MISSING;
	err = line_read(&g, argv, true);
	ret->check = g.check;
	if (g.check)
		ret->config = g.check;
	if (!err && ret->config)
		err = config_read(ret, g.check ? "check" : "config", ret->config);
	err = err ?: line_read(&g, argv, false);
	if (g.check && err != TBG_OPTIONS_DONE)
		return err ? BAD_OPTION : sites_check(ret);
	return err ?: complete(ret);
}
