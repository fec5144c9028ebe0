// SPDX-License-Identifier: GPL-2.0
/*
 * The table of settings: one row for each, which with its member and its use is
 * everything that defines it. The parser, --help, defaults, the list of settings
 * that a reload cannot change, suggestions for typing errors and the tables of
 * the man pages come from it (tests/unit/test_settings.c checks them). Reads no
 * file and prints nothing.
 */
#include "config/table.h"

#include <stdio.h>
#include <string.h>

#include "abi/conn.h"
#include "config/target.h"
#include "core/span.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/units.h"
#include "tiers/rate.h"

#define DAY_MS	86400000
#define ANY	UINT64_MAX	/* the maximum of the type, not shown as a bound */

/* Scopes in which a setting is allowed. */
#define T TBG_SCOPE_TOP
#define H TBG_SCOPE_HOST
#define L TBG_SCOPE_LOCATION
#define M TBG_SCOPE_TYPE
#define U TBG_SCOPE_UPSTREAM
#define SITE	(T | H | L)

#define DAEMON	TBG_SETTING_DAEMON
#define LINE	TBG_SETTING_LINE
#define LIST	TBG_SETTING_LIST
#define OFF	TBG_SETTING_OFF_ALONE
#define LATER	TBG_SETTING_LATER

#define STRUCT_OPTIONS	struct tbg_options
#define STRUCT_LOCATION	struct tbg_location
#define STRUCT_UPSTREAM	struct tbg_upstream_settings
#define STRUCT_CGI	struct tbg_pool_command
#define STRUCT_MODULE	struct tbg_pool_command

/* A member of an object; asserts its type. */
#define FIELD(object_, field, type_) \
	.object = TBG_OBJECT_##object_, .offset = offsetof(STRUCT_##object_, field) + \
	0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((STRUCT_##object_ *)0)->field), \
						     type_) ? 1 : -1])
#define NUMBER(object_, field, min_, max_) \
	.type = TBG_SETTING_NUMBER, FIELD(object_, field, unsigned int), .min = min_, .max = max_
#define SIZE(object_, field, max_) \
	.type = TBG_SETTING_SIZE, FIELD(object_, field, uint64_t), .max = max_
#define TIME(object_, field, min_, max_) \
	.type = TBG_SETTING_TIME, FIELD(object_, field, unsigned int), .min = min_, .max = max_
#define SWITCH(object_, field) \
	.type = TBG_SETTING_SWITCH, FIELD(object_, field, bool)
#define WORD(object_, field) \
	.type = TBG_SETTING_WORD, FIELD(object_, field, bool)
#define OWN(object_, function) \
	.type = TBG_SETTING_OWN, .object = TBG_OBJECT_##object_, .set = tbg_##function##_set

#define NEEDS(what) .needs = TBG_NEEDS_##what

/*
 * Columns: name, scopes, flags, value in --help, default ("(...)": a description of a
 * computed one), what is accepted, description; type, member and range. For a range,
 * what is accepted is only examples. Last, what the setting needs to have an effect:
 * without, config/effect.c refuses it.
 */
static const struct tbg_setting_row rows[] = {
	/* handlers */
	{ "root", SITE, LINE, "DIR", NULL, "a folder",
	  "folder to serve", OWN(LOCATION, root) },
	{ "upstream", SITE, LINE | LIST, "URL", NULL, "the name of an upstream, or http://HOST:PORT or unix:PATH, at most 32 of them",
	  "server to pass requests to; can be repeated", OWN(LOCATION, upstream) },
	{ "cgi", SITE, 0, "DIR", NULL, "a folder of programs, as an absolute path",
	  "folder of CGI programs", OWN(CGI, cgi) },
	{ "module", SITE, LIST, "FILE", NULL, "the absolute path of a shared object, then its arguments, of at most " TBG_STRING(TBG_POOL_COMMAND_ARGS) " bytes",
	  "shared object that answers", OWN(MODULE, module) },
	/* upstreams */
	{ "server", U, LIST, "SERVER", NULL, "HOST:PORT, http://HOST:PORT or unix:PATH, at most 32 of them",
	  "server of the upstream", OWN(UPSTREAM, server) },
	{ "protocol", U, 0, "NAME", "http", "http or fastcgi",
	  "protocol of the servers", OWN(UPSTREAM, protocol) },
	{ "balance", T | U, LINE, "HOW", "turn", "turn (or round-robin) or least",
	  "choice of the server: in turn, or the one with the fewest requests", OWN(UPSTREAM, balance), NEEDS(SERVERS) },
	{ "connect-timeout", T | U, LINE, "TIME", "5s", "such as 5s",
	  "limit for connecting to an upstream", TIME(UPSTREAM, connect_ms, 0, DAY_MS), NEEDS(BEHIND) },
	{ "first-byte-timeout", T | U, LINE, "TIME", "60s", "such as 60s",
	  "limit for an upstream's response head", TIME(UPSTREAM, first_byte_ms, 0, DAY_MS), NEEDS(BEHIND) },
	{ "upstream-idle-timeout", T | U, LINE, "TIME", "60s", "such as 60s",
	  "limit for a pause within an upstream's response", TIME(UPSTREAM, idle_ms, 0, DAY_MS), NEEDS(BEHIND) },
	{ "upstream-keep", T | U, LINE, "TIME", "30s", "such as 30s",
	  "how long a connection waits for its next request", TIME(UPSTREAM, keep_ms, 0, DAY_MS), NEEDS(BEHIND) },
	{ "health-path", T | U, LINE, "PATH", NULL, "a path such as /health, of at most 512 bytes",
	  "path of the servers' health checks", OWN(UPSTREAM, health_path), NEEDS(SERVERS) },
	{ "health-interval", T | U, LINE, "TIME", "5s", "such as 5s",
	  "interval between two checks", TIME(UPSTREAM, health_ms, 0, DAY_MS), NEEDS(HEALTH) },
	{ "script-root", U, 0, "PATH", NULL, "an absolute path",
	  "document root, as the FastCGI server sees it", OWN(UPSTREAM, script_root), NEEDS(FASTCGI) },
	{ "script-filename", U, 0, "PATH", NULL, "the absolute path of a program",
	  "the one program that runs for every path", OWN(UPSTREAM, script_filename), NEEDS(FASTCGI) },
	{ "script-index", U, 0, "NAME", NULL, "the name of a program",
	  "program of a path that ends in a slash", OWN(UPSTREAM, script_index), NEEDS(SCRIPTS) },
	{ "script-split", U, 0, "END", NULL, "the end of the names of programs, such as .php",
	  "end of the names of programs", OWN(UPSTREAM, script_split), NEEDS(SCRIPTS) },
	{ "script-params", U, LIST, "NAME=VALUE", NULL, "\"NAME=value\" with a name of A-Z, 0-9 and _",
	  "more variables for programs", OWN(UPSTREAM, script_params), NEEDS(FASTCGI) },
	/* programs and modules */
	{ "cgi-time", SITE, 0, "TIME", TBG_CGI_TIME, "such as 30s",
	  "limit for a program to run", TIME(CGI, time_ms, 0, DAY_MS), NEEDS(CGI) },
	{ "cgi-cpu", SITE, 0, "TIME", TBG_CGI_CPU, "a time up to a day, such as 10s; 0: no limit",
	  "processor time of a program", OWN(CGI, cgi_cpu), NEEDS(CGI) },
	{ "cgi-memory", SITE, 0, "SIZE", TBG_CGI_MEMORY, "such as 256M; 0: no limit",
	  "address space of a program", SIZE(CGI, memory, 1ull << 40), NEEDS(CGI) },
	{ "cgi-output", SITE, 0, "SIZE", TBG_CGI_OUTPUT, "such as 64M; 0: no limit",
	  "bytes that a program may write", SIZE(CGI, output, 1ull << 40), NEEDS(CGI) },
	{ "cgi-at-once", SITE, 0, "N", TBG_CGI_AT_ONCE, NULL,
	  "programs that run at a time", NUMBER(CGI, at_once, 1, 1000), NEEDS(CGI) },
	{ "cgi-processes", SITE, 0, "N", TBG_CGI_PROCESSES, "; 0: no limit",
	  "processes of the programs' user", NUMBER(CGI, processes, 0, 1000000), NEEDS(CGI) },
	{ "cgi-user", SITE, 0, "NAME", "(the daemon's)", "the name of a user who is not root",
	  "user that programs run as", OWN(CGI, cgi_user), NEEDS(CGI) },
	{ "cgi-chroot", SITE, 0, "DIR", NULL, "a folder that the programs are in, as an absolute path",
	  "root folder that programs see", OWN(CGI, cgi_chroot), NEEDS(CGI) },
	{ "module-workers", SITE, 0, "N", TBG_MODULE_WORKERS, NULL,
	  "processes that have the module loaded", NUMBER(MODULE, at_once, 1, TBG_MODULE_WORKERS_MAX), NEEDS(MODULE) },
	{ "module-time", SITE, 0, "TIME", TBG_MODULE_TIME, "such as 10s",
	  "limit for one callback of a module", TIME(MODULE, time_ms, 0, DAY_MS), NEEDS(MODULE) },
	{ "module-memory", SITE, 0, "SIZE", TBG_MODULE_MEMORY, "such as 256M; 0: no limit",
	  "address space of a module's worker", SIZE(MODULE, memory, 1ull << 40), NEEDS(MODULE) },
	{ "module-requests", SITE, 0, "N", "0", "; 0: no limit",
	  "requests after which a fresh worker takes over", NUMBER(MODULE, requests, 0, 1000000000), NEEDS(MODULE) },
	/* files */
	{ "index", SITE, LIST | OFF, "NAME", "index.html", "names of files without a slash, or off alone",
	  "files that answer for a folder", OWN(LOCATION, index), NEEDS(FILES) },
	{ "autoindex", SITE, 0, "on|off", "off", NULL,
	  "answer for a folder with a list of its files", SWITCH(LOCATION, autoindex), NEEDS(FILES) },
	{ "error-page", SITE, LIST, "STATUS PATH", NULL, "statuses from 400 to 599, each once, and the path of a file, without //, /./ and /../, such as \"500 503 /50x.html\"",
	  "files in place of the short texts of errors", OWN(LOCATION, error_page) },
	{ "precompressed", SITE, 0, "HOW", "on", "on, any-age or off",
	  "answer with name.gz, name.br and name.zst beside name", OWN(LOCATION, precompressed), NEEDS(FILES) },
	{ "codings", SITE, LIST | OFF, "CODING SUFFIX", "gzip svgz", "a coding and suffixes without a dot, such as \"gzip svgz\", or off alone",
	  "files that are compressed themselves, by suffix", OWN(LOCATION, codings), NEEDS(FILES) },
	{ "compress", SITE, LIST | OFF, "CODING", "gzip, br, zstd", "gzip, br and zstd, or off alone",
	  "codings that texts are compressed into", OWN(LOCATION, compress), NEEDS(FILES) },
	{ "compress-min", SITE, 0, "SIZE", "256", "such as 512 or 4K",
	  "texts of fewer bytes are not compressed", SIZE(LOCATION, compress_min, 1ull << 40), NEEDS(FILES) },
	/* fields of answers */
	{ "expires", SITE | M, 0, "TIME", "(off)", "a time such as 30d, 12h, 90s or 0; max, epoch or off",
	  "max-age of answers", OWN(HEADERS, expires) },
	{ "cache-control", SITE | M, 0, "VALUE", "(off)", "a value for Cache-Control of at most " TBG_STRING(TBG_CONTROL_MAX) " bytes, or off",
	  "more of Cache-Control", OWN(HEADERS, cache_control) },
	{ "headers", SITE | M, LIST, "NAME: VALUE", NULL, "\"Name: value\", of fields that the daemon does not make itself",
	  "fields to add to answers", OWN(HEADERS, headers) },
	/* requests */
	{ "cookies", SITE, 0, "HOW", "ignore", "pass or ignore",
	  "whether kernel tiers leave requests with a Cookie to the daemon", WORD(LOCATION, cookies_pass) },
	{ "store-cookies", SITE, 0, "on|off", "off", NULL,
	  "store answers that set cookies and have a lifetime", SWITCH(LOCATION, store_cookies), NEEDS(BEHIND) },
	{ "heuristic-freshness", SITE, 0, "on|off", "on", NULL,
	  "let Last-Modified give a lifetime to answers that have none", SWITCH(LOCATION, heuristic), NEEDS(BEHIND) },
	{ "odd-field-names", SITE, 0, "HOW", "drop", "drop or pass",
	  "request fields whose names have other bytes than letters, digits and dashes", WORD(LOCATION, odd_names), NEEDS(HTTP) },
	{ "client-stale", SITE, 0, "on|off", "off", NULL,
	  "let requests ask for stale answers", SWITCH(LOCATION, client_stale), NEEDS(BEHIND) },
	{ "trusted-proxies", SITE, LIST | OFF, "ADDRESS", "off", "addresses or prefixes such as 192.0.2.1, 10.0.0.0/8 and 2001:db8::/32, with no bit set after the prefix, or off alone",
	  "proxies whose X-Forwarded-Proto and -Host count", OWN(LOCATION, trusted_proxies) },
	{ "body-max", SITE, LINE, "SIZE", "1M", "such as 512, 64K or 8M",
	  "bytes of a request's body", SIZE(LOCATION, body_max, 1ull << 40) },
	{ "body-buffer", SITE, LINE, "SIZE", "(as needed)", "a size up to 1024M, such as 64K, or off",
	  "receive bodies whole, with this much of each in memory", OWN(LOCATION, body_buffer), NEEDS(BEHIND) },
	{ "body-folder", SITE, LINE, "DIR", "(" TBG_BODY_FOLDER ")", "a folder, from its slash on",
	  "folder for the rest of such bodies", OWN(LOCATION, body_folder), NEEDS(BEHIND) },
	/* hosts */
	{ "alias", H, LIST, "NAME", NULL, "names of hosts, or *. and a name",
	  "more names of the host", OWN(SITE, alias) },
	{ "default", H, 0, "yes|no", "(the first host)", "yes or no",
	  "the host answers for names that no other has", OWN(SITE, default) },
	{ "media-types", T, 0, "FILE", "(/etc/mime.types)", "a file of \"type suffix ...\" lines",
	  "media types by suffix", OWN(SITE, media_types), NEEDS(FILES) },
	{ "types", T, LIST, "TYPE SUFFIX", NULL, "a media type and its suffixes without a dot, such as \"text/markdown md markdown\" or \"text/html; charset=utf-8 html\"",
	  "more of them", OWN(SITE, types), NEEDS(FILES) },
	/* the daemon */
	{ "listen", T, DAEMON | LATER | LIST, "ADDR:PORT", NULL, "ADDR:PORT or [ADDR6]:PORT, each once, at most 32 of them",
	  "address to serve on; can be repeated", OWN(OPTIONS, listen) },
	{ "wire", T, DAEMON | LATER, "IFACE,...", "auto", "interface names with commas, each once, at most 64 of them, IFACE:xdp for XDP too, or one word alone: auto or off",
	  "interfaces that answer at the packet, IFACE:xdp: in its driver too", OWN(OPTIONS, wire) },
	{ "late-sockets", T, DAEMON | LATER, "auto|off", "auto", "auto or off",
	  "connections without a socket until their first miss: auto (Linux 6.9 or newer), or off", WORD(OPTIONS, translate) },
	{ "births", T, DAEMON | LATER, "WHO", "auto", "auto, kernel or wire",
	  "with late-sockets, the side that answers SYNs; auto: the kernel where a firewall could refuse a client, else wire", OWN(OPTIONS, births) },
	{ "wire-size", T, DAEMON | LATER, "SIZE", "auto", "a size up to 64K, or auto",
	  "longest response that wire sends, head included; auto: ten segments", OWN(OPTIONS, wire_size) },
	{ "give-back", T, DAEMON | LATER, "N", "3", NULL,
	  "requests in a row that wire could answer, before it has a connection back; 0: never", NUMBER(OPTIONS, give_back, 0, 1000000) },
	{ "tiers", T, DAEMON | LATER, "LIST", "wire,user", "one or more of wire, sock and user with commas, such as wire,user",
	  "tiers in use", OWN(OPTIONS, tiers) },
	{ "sock", T, DAEMON | LATER, "KERNELS", "listed", "listed or unlisted",
	  "kernels that sock may run on", WORD(OPTIONS, sock_unlisted), NEEDS(SOCK) },
	{ "memory", T, DAEMON | LATER, "SIZE", "(a sixteenth of the machine's, 16M to 256M)", "a size from 1M to 1024G that this machine has, such as 256M",
	  "memory budget of the cache", OWN(OPTIONS, memory) },
	{ "workers", T, DAEMON | LATER, "N", "(one per CPU)", NULL,
	  "worker threads", NUMBER(OPTIONS, workers, 1, 256) },
	{ "control", T, DAEMON | LATER, "PATH", "(/run/toboggan/control.sock, if root)", "a socket's path of at most 107 bytes, in a folder that can be written",
	  "control socket", OWN(OPTIONS, control) },
	{ "admin", T, DAEMON | LATER, "WHERE", "(admin.sock beside the control socket)", "ADDR:PORT, [ADDR6]:PORT, a socket's path of at most 107 bytes, or off",
	  "metrics and a page for operators", OWN(OPTIONS, admin) },
	{ "admin-token", T, DAEMON | LATER, "FILE", NULL, "a file that others cannot read, whose first line has 16 to 256 bytes",
	  "token for changes from the page; without one, it changes nothing", OWN(OPTIONS, admin_token) },
	{ "access-log", T | H, DAEMON, "PATH", "off", "the path of a file that can be written, syslog:, syslog:udp:ADDR:PORT, journald: or off",
	  "access log", OWN(OPTIONS, access_log) },
	{ "access-log-format", T | H, DAEMON, "FORMAT", "combined", "combined, json, or fields by name such as \"$remote $status $seconds\"",
	  "format of its lines", OWN(OPTIONS, access_log_format) },
	{ "log-level", T, DAEMON, "LEVEL", "notice", "error, warning, notice or debug",
	  "lowest level of the lines that the daemon writes to stderr", OWN(OPTIONS, log_level) },
	{ "user", T, DAEMON | LATER, "NAME", "(www-data)", "a user that there is, by name or number",
	  "user to run as when started by root", OWN(OPTIONS, user) },
	{ "deny", SITE, DAEMON | LIST, "ADDRESS", NULL, "all, or addresses or prefixes such as 192.0.2.1, 10.0.0.0/8 and 2001:db8::/32, with no bit set after the prefix",
	  "clients to refuse; the longest prefix of deny and allow decides", OWN(OPTIONS, clients) },
	{ "allow", SITE, DAEMON | LIST, "ADDRESS", NULL, "as for deny",
	  "clients to serve; without any deny, all others are refused", OWN(OPTIONS, clients) },
	{ "listen-deny", T, DAEMON | LATER | LIST, "ADDR:PORT ADDRESS", NULL, "an address of listen, a blank and a value of deny",
	  "clients to refuse at that address", OWN(OPTIONS, listen_deny) },
	{ "listen-allow", T, DAEMON | LATER | LIST, "ADDR:PORT ADDRESS", NULL, "as for listen-deny",
	  "clients to serve at that address; without any listen-deny of it, all others are refused", OWN(OPTIONS, listen_allow) },
	{ "deny-answer", T, DAEMON, "HOW", "auto", "403, 429, drop, or auto: 403 by lists, 429 by limits",
	  "response to refused clients, or a reset connection", OWN(OPTIONS, deny_answer) },
	{ "limit-requests", T, DAEMON, "RATE", "off", "requests a second, or a minute or an hour, such as 20, 20/s, 300/m and 1000/h, or off",
	  "rate of requests of each client", OWN(OPTIONS, limit_requests) },
	{ "limit-burst", T, DAEMON, "N", "0", "; 0: as many as in a second",
	  "requests that a client may send at once", NUMBER(OPTIONS, request_burst, 0, TBG_RATE_MAX), NEEDS(RATE) },
	{ "limit-connections", T, DAEMON, "N", "0", "; 0: no limit",
	  "connections that a client may have at once", NUMBER(OPTIONS, limit_connections, 0, 10000000) },
	{ "limit-heads", T, DAEMON, "N", "0", "; 0: no limit",
	  "unfinished heads of requests that a client may have at once", NUMBER(OPTIONS, limit_heads, 0, 10000000) },
	{ "client-prefix4", T, DAEMON, "BITS", "32", NULL,
	  "leading bits of an IPv4 address that limits take for a client", NUMBER(OPTIONS, client_v4_bits, 1, TBG_RATE_V4_BITS), NEEDS(LIMITS) },
	{ "client-prefix6", T, DAEMON, "BITS", "64", NULL,
	  "leading bits of an IPv6 address that limits take for a client", NUMBER(OPTIONS, client_v6_bits, 1, TBG_RATE_V6_BITS), NEEDS(LIMITS) },
	{ "header-timeout", T, DAEMON, "TIME", "20s", "such as 10s or 500ms",
	  "for a request's head to arrive", TIME(OPTIONS, header_ms, 0, DAY_MS) },
	{ "idle-timeout", T, DAEMON, "TIME", "75s", "such as 60s",
	  "for an idle connection", TIME(OPTIONS, idle_ms, 0, DAY_MS) },
	{ "send-timeout", T, DAEMON, "TIME", "60s", "such as 60s",
	  "for a client that takes nothing", TIME(OPTIONS, send_ms, 0, DAY_MS) },
	{ "drain-timeout", T, DAEMON, "TIME", "300s", "such as 600s or 90s",
	  "for clients to receive their answers when the daemon ends", TIME(OPTIONS, drain_ms, 0, DAY_MS) },
	{ "unattended-timeout", T, DAEMON | LATER, "TIME", "64s", NULL,
	  "for kernel tiers to answer while the daemon is not scheduled", TIME(OPTIONS, unattended_ms, 1000, TBG_DATE_AHEAD * 1000) },
	{ "connections-max", T, DAEMON, "N", "(" TBG_STRING(TBG_CONNECTIONS) ")", NULL,
	  "connections at a time", NUMBER(OPTIONS, connections_max, 1, 10000000) },
	{ "body-total", T, DAEMON, "SIZE", "1G", "such as 512M or 8G",
	  "bytes of bodies that are held at a time", SIZE(OPTIONS, body_total, ANY), NEEDS(BEHIND) },
	{ "header-max", T, DAEMON, "N", "16384", NULL,
	  "bytes of a request's head", NUMBER(OPTIONS, header_max, TBG_REQ_MAX, 65536) },
};

#define ROWS (sizeof(rows) / sizeof(*rows))

_Static_assert(ROWS <= TBG_SETTINGS_MAX, "settings");

const struct tbg_setting_row *tbg_setting_row(unsigned int row)
{
	return row < ROWS ? &rows[row] : NULL;
}

int tbg_setting_find(const char *name, size_t len)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == len && !strncmp(rows[i].name, name, len))
			return i;
	return -1;
}

bool tbg_setting_is_applied(const struct tbg_setting_row *row)
{
	return row->preset && *row->preset != '(';
}

/* --- values as people write them ------------------------------------------ */

/* Writes "1M" or "90s", in the largest unit that divides the value. */
static void bound_print(char ret[32], enum tbg_setting_type type, uint64_t n)
{
	static const char units[] = "KMG";
	int unit = -1;

	if (type == TBG_SETTING_TIME) {
		snprintf(ret, 32, n == DAY_MS ? "a day" : "%llus", (unsigned long long)n / 1000);
		return;
	}
	while (type == TBG_SETTING_SIZE && unit < 2 && n >= 1024 && !(n % 1024)) {
		n /= 1024;
		unit++;
	}
	snprintf(ret, 32, "%llu%.1s", (unsigned long long)n, unit < 0 ? "" : units + unit);
}

const char *tbg_setting_accepts(const struct tbg_setting_row *row)
{
	static const char *const kinds[] = {
		[TBG_SETTING_NUMBER] = "number", [TBG_SETTING_SIZE] = "size",
		[TBG_SETTING_TIME] = "time",
	};
	const char *note = row->note ?: "";
	static char text[256];
	char min[32], max[32];

	if (row->type == TBG_SETTING_SWITCH)
		return "on or off";
	if (row->type == TBG_SETTING_OWN || row->type == TBG_SETTING_WORD)
		return note;
	bound_print(min, row->type, row->min);
	bound_print(max, row->type, row->max);
	snprintf(text, sizeof(text), "a %s%s%s%s%s%s%s", kinds[row->type],
		 row->min ? " from " : "", row->min ? min : "",
		 row->max == ANY ? "" : row->min ? " to " : " up to ",
		 row->max == ANY ? "" : max, !*note || *note == ';' ? "" : ", ", note);
	return text;
}

size_t tbg_setting_print(const struct tbg_setting_row *row, char *ret, size_t size)
{
	const char *preset = row->preset ?: "";
	bool made = *preset == '(';

	return snprintf(ret, size, "%.*s", (int)strlen(preset) - 2 * made, preset + made);
}
