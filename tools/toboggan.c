// SPDX-License-Identifier: GPL-2.0
/*
 * The command-line tool: one line of JSON to the daemon's control socket, one
 * line back, shown as text or, with --json, as it is. Text from the daemon is
 * never trusted to be printable: paths are what clients and file names made.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "abi/version.h"
#include "bench.h"
#include "probe.h"
#include "show.h"
#include "stdio_hold.h"
#include "top.h"

#define CONTROL_PATH	"/run/toboggan/control.sock"
#define WAIT_MS		30000
#define EXIT_USAGE	2

struct options {
	const char *control;
	bool json, all, help;
	const char *host;		/* of --host */
	bool prefix;
	long long limit;		/* -1: not given */
	const char *tag;		/* NULL: not given */
	const char *accept;		/* an Accept-Encoding, or NULL */
	unsigned int interval_ms;	/* 0: not given */
	long long count;		/* -1: not given */
};

struct command {
	const char *name;
	const char *usage;
	const char *about;
	const char *more;
	int (*run)(const struct options *opt, int argc, char **argv);
	int args_min, args_max;
	bool takes_limit, takes_rounds;
	bool takes_accept;
	bool takes_purge;		/* --all, --host, --prefix, --tag */
};

/* --- printing ------------------------------------------------------------ */

static int complain(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

static bool want_json;

/* As JSON, which has UTF-8 alone: other bytes, and what is in `also`, as "%XX". */
static json_t *text_encoded(const char *text, const char *also)
{
	char *b = malloc(3 * strlen(text) + 1), *to = b;
	json_t *ret;

	if (!b)
		return NULL;
	for (; *text; text++) {
		unsigned char c = *text;

		to += sprintf(to, c >= 0x80 || strchr(also, c) ? "%%%02X" : "%c", c);
	}
	*to = 0;
	ret = json_string(b);
	free(b);
	return ret;
}

static json_t *url_json(const char *url)
{
	return json_string(url) ?: text_encoded(url, "");
}

/* To a person; and to a program, that gets its line of JSON in any case. */
static int complain(const char *fmt, ...)
{
	char text[1024];
	va_list args;
	json_t *o;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fputs("toboggan: ", stderr);
	text_put(stderr, text, 0);
	putc('\n', stderr);
	if (!want_json)
		return EXIT_FAILURE;
	o = json_pack("{s:b, s:o}", "ok", 0, "error", url_json(text));
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
	return EXIT_FAILURE;
}

/* Columns of the terminal; 0: not one, print in full. */
static unsigned int width(void)
{
	struct winsize w;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
		return 0;
	return w.ws_col;
}

static void print_safe(const char *text, unsigned int max)
{
	text_put(stdout, text, max);
}

static void uptime_print(double s)
{
	long long m = s / 60, h = m / 60, d = h / 24;

	if (d)
		printf("%lld d %lld h", d, h % 24);
	else if (h)
		printf("%lld h %lld min", h, m % 60);
	else if (m)
		printf("%lld min", m);
	else
		printf("%.0f s", s);
}

/* --- talking to the daemon ----------------------------------------------- */

static int control_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = WAIT_MS / 1000 };
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		complain("--control %s: a socket's path has at most %zu bytes",
			 path, sizeof(addr.sun_path) - 1);
		return -1;
	}
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* a stopped daemon's queue may be full: connect() would wait for ever */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	err = errno;
	if (err == EAGAIN)
		complain("daemon at %s takes no connections for %d s; is it stopped?",
			 path, WAIT_MS / 1000);
	else if (err == EACCES || err == EPERM)
		complain("%s: %s; the control socket is for the daemon's owner alone: run as root or as that user",
			 path, strerror(err));
	else
		complain("no daemon at %s: %s; start toboggand or give --control PATH",
			 path, strerror(err));
	if (fd >= 0)
		close(fd);
	return -1;
}

static int line_send(int fd, const json_t *req)
{
	char *text = json_dumps(req, JSON_COMPACT);
	size_t len, done = 0;

	if (!text)
		return -ENOMEM;
	len = strlen(text);
	text[len] = '\n';	/* where the NUL was */
	while (done <= len) {
		ssize_t n = send(fd, text + done, len + 1 - done, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			done += n;
	}
	free(text);
	return done > len ? 0 : -errno;
}

/* One line, without its end, NUL-terminated; NULL and errno. */
static char *line_recv(FILE *from, size_t *ret_len)
{
	char *ret = NULL;
	size_t room = 0;
	ssize_t n;

	errno = 0;
	n = getline(&ret, &room, from);
	if (n > 0 && ret[n - 1] == '\n') {
		ret[n - 1] = 0;
		*ret_len = n - 1;
		return ret;
	}
	if (errno == EAGAIN)
		errno = ETIMEDOUT;
	else if (!errno)
		errno = ECONNRESET;
	free(ret);
	return NULL;
}

/* What is shown of lines that come before the answer; NULL: nothing. */
static void (*progress_shown)(const json_t *line);

/*
 * Sends req (and drops it), and returns the answer if it is a good one. With
 * --json it has been printed. Else says why not and returns NULL.
 */
static json_t *ask(const struct options *opt, json_t *req)
{
	const char *cmd = text_of(req, "cmd");
	int fd = control_connect(opt->control), err = 0;
	FILE *from = fd < 0 ? NULL : fdopen(fd, "r");
	json_t *ret = NULL;
	char *line = NULL;
	size_t len;

	if (!from)
		goto out;
	err = line_send(fd, req);
	do {
		free(line);
		json_decref(ret);
		line = err ? NULL : line_recv(from, &len);
		ret = line ? json_loadb(line, len, JSON_ALLOW_NUL, NULL) : NULL;
		if (ret && true_of(ret, "progress") && progress_shown)
			progress_shown(ret);
	} while (ret && true_of(ret, "progress"));
	if (!line) {
		complain("%s: daemon at %s: %s; see what it says on stderr, and toboggan status",
			 cmd, opt->control, strerror(err ? -err : errno));
	} else if (!ret) {
		complain("%s: what answers at %s is not toboggand; give --control PATH",
			 cmd, opt->control);
	} else if (!true_of(ret, "ok")) {
		complain("%s: %s", cmd, text_of(ret, "error"));
		json_decref(ret);
		ret = NULL;
	} else if (opt->json) {
		puts(line);
	}
out:
	if (from)
		fclose(from);
	free(line);
	json_decref(req);
	return ret;
}

/* --- status -------------------------------------------------------------- */

static void status_wire(const json_t *a)
{
	json_t *tier = json_object_get(json_object_get(a, "tiers"), "wire");
	json_t *ifaces = json_object_get(a, "interfaces"), *i;
	const char *comma = "";
	size_t nr;

	printf("wire         %s", true_of(tier, "on") ? "on: " : "off: ");
	print_safe(text_of(tier, "why"), 0);
	json_array_foreach(ifaces, nr, i) {
		if (!strcmp(text_of(i, "how"), "off"))
			continue;
		printf("%s%s (%s%s)", comma, text_of(i, "name"), text_of(i, "how"),
		       strcmp(text_of(i, "xdp"), "on") ? "" : ", xdp");
		comma = ", ";
	}
	puts(true_of(tier, "on") && !*comma ? "no interface" : "");
	json_array_foreach(ifaces, nr, i) {
		bool xdp = strcmp(text_of(i, "how"), "off");

		if (xdp && strcmp(text_of(i, "xdp"), "off"))
			continue;
		printf("             %s on %s: ", xdp ? "no XDP" : "not", text_of(i, "name"));
		print_safe(text_of(i, xdp ? "xdp_why" : "why"), 0);
		putchar('\n');
	}
}

static void status_sock(const json_t *a)
{
	json_t *tier = json_object_get(json_object_get(a, "tiers"), "sock");

	printf("sock         %s", true_of(tier, "on") ? "on" : "off: ");
	print_safe(text_of(tier, "why"), 0);
	putchar('\n');
}

/* Of several sites, one to a line; of one, its root has been told. */
static void sites_show(const json_t *sites)
{
	json_t *site;
	size_t nr;

	json_array_foreach(sites, nr, site) {
		if (!*text_of(site, "name"))
			continue;
		printf("\n%s%s, %lld location%s%s, ", nr ? "             " : "sites        ",
		       text_of(site, "name"), number_of(site, "locations"),
		       number_of(site, "locations") == 1 ? "" : "s",
		       true_of(site, "default") ? ", the default" : "");
		print_safe(text_of(site, "root"), 0);
	}
}

/* The servers that are asked, one to a line, and what is stored of answers. */
static void upstreams_show(const json_t *a)
{
	json_t *stock = json_object_get(a, "stock"), *one;
	size_t nr;

	json_array_foreach(json_object_get(a, "upstreams"), nr, one) {
		printf("%s", nr ? "             " : "upstreams    ");
		print_safe(text_of(one, "server"), 0);
		printf(", %lld requests, %lld under way, %lld failed%s\n",
		       number_of(one, "requests"), number_of(one, "active"),
		       number_of(one, "failed"), true_of(one, "rests") ? ", rests" : "");
	}
	if (!stock)
		return;
	printf("stock        %lld responses, %s", number_of(stock, "responses"),
	       bytes_text(number_of(stock, "used")));
	printf(" of %s\n", bytes_text(number_of(stock, "budget")));
}

static void status_show(const json_t *a)
{
	json_t *memory = json_object_get(a, "memory"), *listener;
	const char *comma = "";
	size_t nr;

	printf("toboggand    %s, pid %lld, up ", text_of(a, "version"),
	       number_of(a, "pid"));
	uptime_print(json_number_value(json_object_get(a, "uptime_s")));
	printf("%s", true_of(a, "draining") ? ", draining" : "");
	if (!json_object_get(a, "upstreams")) {
		printf("\nroot         ");
		print_safe(text_of(a, "root"), 0);
	}
	sites_show(json_object_get(a, "sites"));
	printf("\nlistening    ");
	json_array_foreach(json_object_get(a, "listeners"), nr, listener) {
		printf("%s%s", comma, json_string_value(listener));
		comma = ", ";
	}
	putchar('\n');
	status_wire(a);
	status_sock(a);
	printf("user         on: %lld worker%s\n", number_of(a, "workers"),
	       number_of(a, "workers") == 1 ? "" : "s");
	upstreams_show(a);
	printf("objects      %lld, %lld of them in the kernel\n",
	       number_of(a, "objects"), number_of(a, "objects_in_kernel"));
	printf("memory       %s of %s\n", bytes_text(number_of(memory, "used")),
	       bytes_text(number_of(memory, "budget")));
	printf("connections  %lld, flows %lld\n", number_of(a, "connections"),
	       number_of(a, "flows"));
	printf("access log   ");
	print_safe(json_is_null(json_object_get(a, "access_log")) ? "off" :
		   text_of(a, "access_log"), 0);
	putchar('\n');
}

static int status_run(const struct options *opt, int argc, char **argv)
{
	json_t *a = ask(opt, json_pack("{s:s}", "cmd", "status"));

	if (!a)
		return EXIT_FAILURE;
	if (!opt->json)
		status_show(a);
	json_decref(a);
	return EXIT_SUCCESS;
}

/* --- stats --------------------------------------------------------------- */

/* Reasons that never came up are left out. */
static void reasons_show(const json_t *list, const char *title)
{
	unsigned int columns = width();
	json_t *why;
	size_t nr;
	bool any = false;

	printf("\n%-14s %12s\n", title, "count");
	json_array_foreach(list, nr, why) {
		if (!number_of(why, "count"))
			continue;
		printf("%-14s %12lld  ", text_of(why, "name"),
		       number_of(why, "count"));
		print_safe(text_of(why, "text"),
			   columns > 40 ? columns - 30 : 0);
		putchar('\n');
		any = true;
	}
	if (!any)
		puts("none");
}

static void numbers_show(const json_t *o, const char *title)
{
	const char *key;
	json_t *value;

	printf("\n%s\n", title);
	json_object_foreach((json_t *)o, key, value)
		if (json_is_integer(value))
			printf("  %-18s %12lld\n", key,
			       (long long)json_integer_value(value));
}

static void stats_show(const json_t *a)
{
	json_t *tiers = json_object_get(a, "tiers"), *tier;
	json_t *log = json_object_get(a, "log");
	const char *name;

	printf("%-6s %14s %18s\n", "tier", "requests", "bytes");
	json_object_foreach(tiers, name, tier)
		printf("%-6s %14lld %18lld\n", name, number_of(tier, "requests"),
		       number_of(tier, "bytes"));
	tier = json_object_get(tiers, "wire");
	if (number_of(tier, "xdp"))
		printf("\nof wire's requests %lld answered by XDP\n", number_of(tier, "xdp"));
	reasons_show(json_object_get(a, "passes"), "passed up");
	if (json_array_size(json_object_get(a, "left_by_xdp")))
		reasons_show(json_object_get(a, "left_by_xdp"), "left by XDP to TC");
	reasons_show(json_object_get(a, "packets"), "packets");
	tier = json_object_get(tiers, "user");
	numbers_show(tier, "user tier");
	numbers_show(json_object_get(tier, "status"), "responses by status");
	numbers_show(json_object_get(a, "cache"), "cache");
	if (true_of(log, "on"))
		printf("\naccess log: %lld lines lost, %lld hits lost in the kernel's ring\n",
		       number_of(log, "lost"), number_of(log, "lost_in_kernel"));
}

static int stats_run(const struct options *opt, int argc, char **argv)
{
	json_t *a = ask(opt, json_pack("{s:s}", "cmd", "stats"));

	if (!a)
		return EXIT_FAILURE;
	if (!opt->json)
		stats_show(a);
	json_decref(a);
	return EXIT_SUCCESS;
}

/* --- objects ------------------------------------------------------------- */

static void object_show(const json_t *o, unsigned int columns)
{
	json_t *expires = json_object_get(o, "expires_s");
	json_t *tiers = json_object_get(o, "tiers");
	unsigned int used = 75 + strlen(text_of(o, "site"));
	char until[32] = "-";

	if (!json_is_null(expires))
		snprintf(until, sizeof(until), "%.1f s",
			 json_number_value(expires));
	printf("%12lld %10s %-5s %6lld %10s %-24.24s ", number_of(o, "hits"),
	       bytes_text(number_of(o, "size")),
	       json_string_value(json_array_get(tiers, 0)),
	       number_of(o, "class"), until, text_of(o, "etag"));
	print_safe(text_of(o, "site"), 0);
	print_safe(text_of(o, "path"), columns > used + 10 ? columns - used : 0);
	encoding_put(stdout, o);
	putchar('\n');
}

static void objects_show(const json_t *a)
{
	json_t *list = json_object_get(a, "objects"), *o;
	unsigned int columns = width();
	long long total = number_of(a, "total");
	size_t nr;

	printf("%12s %10s %-5s %6s %10s %-24s %s\n", "hits", "size", "tier",
	       "class", "expires", "etag", "path");
	json_array_foreach(list, nr, o)
		object_show(o, columns);
	if ((size_t)total > json_array_size(list))
		printf("and %lld more\n", total - (long long)json_array_size(list));
}

static int objects_run(const struct options *opt, int argc, char **argv)
{
	json_t *a = ask(opt, json_pack("{s:s, s:I}", "cmd", "objects", "limit",
				       (json_int_t)(opt->limit < 0 ? 0 : opt->limit)));

	if (!a)
		return EXIT_FAILURE;
	if (!opt->json)
		objects_show(a);
	json_decref(a);
	return EXIT_SUCCESS;
}

/* --- why ----------------------------------------------------------------- */

static void why_line(const char *label, const char *text)
{
	if (!*text)
		return;
	printf("  %-10s ", label);
	print_safe(text, 0);
	putchar('\n');
}

static void why_show(const json_t *a)
{
	json_t *ifaces = json_object_get(a, "interfaces"), *i;
	bool user = !strcmp(text_of(a, "tier"), "user");
	size_t nr;

	print_safe(text_of(a, "path"), 0);
	printf(": %s\n", text_of(a, "tier"));
	why_line("site", text_of(a, "site"));
	why_line("location", text_of(a, "location"));
	if (user) {
		printf("  %-10s %s: ", "why", text_of(a, "why"));
		print_safe(text_of(a, "text"), 0);
		putchar('\n');
	}
	why_line("", text_of(a, "detail"));
	if (!true_of(a, "cached"))
		return;
	if (strcmp(text_of(a, "encoding"), "identity"))
		why_line("encoding", text_of(a, "encoding"));
	why_line("file", text_of(a, "file"));
	why_line("fresh", text_of(a, "fresh"));
	printf("  %-10s %lld bytes with its head, in a slot of %lld; %lld hits\n",
	       "response", number_of(a, "response_bytes"),
	       number_of(a, "class"), number_of(a, "hits"));
	json_array_foreach(ifaces, nr, i) {
		const char *xdp = strcmp(text_of(i, "xdp"), "on") ? "" :
				  true_of(i, "xdp_may") ? ", xdp if its frame has room" :
							  ", not xdp";

		if (!strcmp(text_of(i, "how"), "off")) {
			printf("  %-10s off: %s\n", text_of(i, "name"), text_of(i, "why"));
			continue;
		}
		printf("  %-10s %s%s, MTU %lld: %s over IPv4, %s over IPv6\n",
		       text_of(i, "name"), text_of(i, "how"), xdp,
		       number_of(i, "mtu"),
		       true_of(i, "fits_ipv4") ? "fits" : "no",
		       true_of(i, "fits_ipv6") ? "fits" : "no");
	}
}

static int why_run(const struct options *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	for (int i = 0; i < argc; i++) {
		json_t *a = ask(opt, json_pack("{s:s, s:o, s:s*}", "cmd", "why",
					       "url", url_json(argv[i]),
					       "accept_encoding", opt->accept));

		if (!a)
			ret = EXIT_FAILURE;
		else if (!opt->json)
			why_show(a);
		json_decref(a);
	}
	return ret;
}

/* --- purge --------------------------------------------------------------- */

static int purge_one(const struct options *opt, json_t *req, const char *what)
{
	json_t *a = ask(opt, req);
	long long nr;

	if (!a)
		return EXIT_FAILURE;
	nr = number_of(a, "purged");
	if (!opt->json) {
		print_safe(what, 0);
		printf(nr ? ": %lld object%s purged\n" :
		       ": not in the cache, %lld object%s purged\n", nr,
		       nr == 1 ? "" : "s");
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

/* One of the ways to say what: all, a host, or URLs (or what they begin with). */
static int purge_run(const struct options *opt, int argc, char **argv)
{
	const char *key = opt->prefix ? "prefix" : "url";
	int ret = EXIT_SUCCESS;

	/* an empty name is a mistake in a script, and could mean a lot */
	if (opt->all + !!opt->host + !!opt->tag + !!argc != 1 || (opt->prefix && !argc) ||
	    (opt->host && !*opt->host) || (opt->tag && !*opt->tag)) {
		complain("purge: give either URLs, or --prefix and URLs, or --host NAME, or --tag TAG, or --all");
		return EXIT_USAGE;
	}
	if (opt->tag)
		return purge_one(opt, json_pack("{s:s, s:s}", "cmd", "purge",
						"tag", opt->tag), opt->tag);
	if (opt->all)
		return purge_one(opt, json_pack("{s:s, s:b}", "cmd", "purge",
						"all", 1), "everything");
	if (opt->host)
		return purge_one(opt, json_pack("{s:s, s:s}", "cmd", "purge",
						"host", opt->host), opt->host);
	for (int i = 0; i < argc; i++)
		if (purge_one(opt, json_pack("{s:s, s:o}", "cmd", "purge", key,
					     url_json(argv[i])), argv[i]))
			ret = EXIT_FAILURE;
	return ret;
}

/* --- warm ---------------------------------------------------------------- */

#define BAR_COLUMNS 30

/* On a terminal alone: it is drawn over itself. */
static void bar_show(const json_t *a)
{
	long long done = number_of(a, "done"), total = number_of(a, "total");
	int columns = total ? done * BAR_COLUMNS / total : 0;

	fprintf(stderr, "\r[");
	for (int i = 0; i < BAR_COLUMNS; i++)
		putc(i < columns ? '#' : '.', stderr);
	fprintf(stderr, "] %lld of %lld files ", done, total);
	fflush(stderr);
}

/*
 * Where it really is, as roots are; but a file by the name that it is asked for
 * by, be that a link's. NULL and errno.
 */
static char *served_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder, *real, *ret = NULL;
	struct stat st;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return realpath(path, NULL);
	folder = slash ? strndup(path, slash - path + 1) : strdup(".");
	real = folder ? realpath(folder, NULL) : NULL;
	if (real && asprintf(&ret, "%s/%s", strcmp(real, "/") ? real : "",
			     slash ? slash + 1 : path) < 0)
		ret = NULL;
	free(real);
	free(folder);
	return ret;
}

static int warm_one(const struct options *opt, const char *path)
{
	char *real = served_path(path);
	json_t *a, *name;

	if (!real)
		return complain("warm: %s: %s; give a folder or a file that is served",
				path, strerror(errno));
	progress_shown = isatty(STDERR_FILENO) ? bar_show : NULL;
	name = json_string(real);
	a = ask(opt, json_pack("{s:s, s:o}", "cmd", "warm",
			       name ? "path" : "path_encoded",
			       name ?: text_encoded(real, "%")));
	free(real);
	if (progress_shown)
		fprintf(stderr, "\r%*s\r", BAR_COLUMNS + 48, "");
	progress_shown = NULL;
	if (!a)
		return EXIT_FAILURE;
	if (!opt->json) {
		print_safe(path, 0);
		printf(": %lld file%s, %lld answers stored, %lld there before, %lld not kept\n",
		       number_of(a, "files"), number_of(a, "files") == 1 ? "" : "s",
		       number_of(a, "stored"), number_of(a, "cached"),
		       number_of(a, "left"));
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

static int warm_run(const struct options *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	for (int i = 0; i < argc; i++)
		if (warm_one(opt, argv[i]))
			ret = EXIT_FAILURE;
	return ret;
}

/* --- top ----------------------------------------------------------------- */

static int top_run(const struct options *opt, int argc, char **argv)
{
	struct tbg_top how = {
		.control = opt->control, .json = opt->json,
		.interval_ms = opt->interval_ms ?: 1000,
		.count = opt->count >= 0 ? opt->count : opt->json,
	};
	int fd = control_connect(opt->control);
	char msg[512];

	if (fd < 0)
		return EXIT_FAILURE;
	return tbg_top(&how, fd, msg, sizeof(msg)) ? complain("top: %s", msg) :
						     EXIT_SUCCESS;
}

/* --- probe --------------------------------------------------------------- */

static void probe_tiers_show(const json_t *tiers)
{
	const char *name;
	json_t *tier, *lack;
	size_t nr;

	putchar('\n');
	json_object_foreach((json_t *)tiers, name, tier) {
		json_t *lacks = json_object_get(tier, "lacks");

		printf("%-5s %s", name, text_of(tier, "state"));
		json_array_foreach(lacks, nr, lack)
			printf("%s %s", nr ? "," : ":", json_string_value(lack));
		putchar('\n');
	}
}

static void feature_show(const json_t *f)
{
	const char *state = text_of(f, "state"), *lost = text_of(f, "lost");
	bool later = !strcmp(text_of(f, "need"), "later");

	if (!strcmp(state, "present")) {
		printf("%-26s present\n", text_of(f, "name"));
		return;
	}
	printf("%-26s %-8s", text_of(f, "name"), state);
	if (*text_of(f, "detail"))
		printf(" %s;", text_of(f, "detail"));
	printf(" without it: %s%s\n", strcmp(lost, "-") ? lost : "nothing lost",
	       later ? " (nothing uses it yet)" : "");
}

static void probe_show(const json_t *a)
{
	json_t *f;
	size_t nr;

	printf("kernel %s %s\n\n", text_of(a, "kernel"), text_of(a, "version"));
	json_array_foreach(json_object_get(a, "features"), nr, f)
		feature_show(f);
	probe_tiers_show(json_object_get(a, "tiers"));
}

static int probe_run(const struct options *opt, int argc, char **argv)
{
	json_t *a = tbg_probe();

	if (!a)
		return complain("probe: out of memory");
	if (opt->json) {
		json_dumpf(a, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		probe_show(a);
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

/* --- bench --------------------------------------------------------------- */

/* main() has run it, unless it came after options, of which it takes none. */
static int bench_run(const struct options *opt, int argc, char **argv)
{
	(void)opt;
	return tbg_bench(argc, argv);
}

/* --- the command line ---------------------------------------------------- */

static const struct command commands[] = {
	{ "status", "status", "what runs, what is attached where, objects, memory",
	  "Shows the tiers that are on, or why they are off; the interfaces and how wire\nis attached to them; objects and memory of the cache; connections and flows.",
	  status_run, .args_max = 0 },
	{ "stats", "stats", "requests and bytes per tier, passes per reason",
	  "Counters since the daemon started. Reasons that never came up are left out of\nthe text, but not of --json.",
	  stats_run, .args_max = 0 },
	{ "objects", "objects [--limit N]", "what is cached, most popular first",
	  "tier is the lowest that can answer a GET of the object; class the bytes of its\nslot; expires \"-\" means until the file changes.",
	  objects_run, 0, 0, .takes_limit = true },
	{ "why", "why [--accept-encoding VALUE] URL...", "which tier would answer, and why not the kernel",
	  "URL is a whole URL or a path. Judges a plain GET as of now: one client's window\nor a header field of its own may still make a difference. --accept-encoding: of the\nvariant that a client with this field gets.",
	  why_run, .args_min = 1, .args_max = INT_MAX, .takes_accept = true },
	{ "purge", "purge [--prefix] URL... | --host NAME | --tag TAG | --all", "take objects out of the cache",
	  "The next request reads the file, or asks the upstream, again. --prefix: all that\nbegins with a URL. A path without a host is meant of every site; --host: all of\none site; --tag: what upstreams have marked with it in Surrogate-Key.",
	  purge_run, 0, INT_MAX, .takes_purge = true },
	{ "warm", "warm DIR|FILE...", "put files into the cache ahead of their first request",
	  "Files as they lie on the disk, below a root that is served. Shows a bar on a\nterminal. Says how many answers were stored, were there before, or were not kept:\nthose that are too large, or that give way to more popular ones.",
	  warm_run, .args_min = 1, .args_max = INT_MAX },
	{ "top", "top [--interval TIME] [--count N | --once]",
	  "the same as it happens: rates, hit ratio, top objects, top reasons",
	  "In place on a terminal (q or Ctrl-C ends it, blank asks at once); elsewhere, and\non a terminal that cannot, a snapshot after each interval (1s). --json gives one\nsnapshot unless --count says how many; 0 means until it is ended.",
	  top_run, 0, 0, .takes_rounds = true },
	{ "probe", "probe", "what this kernel can do for Toboggan",
	  "Tries each feature and says what is lost without it. Needs no daemon, but\nprivilege to try all: what it may not try is unknown.",
	  probe_run, .args_max = 0 },
	{ "bench", "bench [COMMAND] ...", "measure it beside other servers",
	  "An own tool with options of its own: see toboggan bench --help.",
	  bench_run, .args_max = 1000 },
};

#define COMMANDS_NR (sizeof(commands) / sizeof(*commands))

static void help(FILE *f)
{
	fprintf(f, "usage: toboggan [--control PATH] [--json] COMMAND\n\n");
	for (size_t i = 0; i < COMMANDS_NR; i++)
		fprintf(f, "  %-22s %s\n", commands[i].usage, commands[i].about);
	fprintf(f, "  %-22s %s\n", "help COMMAND", "more about one of them");
	fprintf(f, "\n  --control PATH         the daemon's control socket (%s)\n"
		"  --json                 answers as JSON, one line each\n"
		"  --help, --version\n", CONTROL_PATH);
}

static const struct command *command_of(const char *name)
{
	for (size_t i = 0; i < COMMANDS_NR; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	complain("%s: unknown command; there are status, stats, objects, why, purge, warm, top, probe and bench",
		 name);
	return NULL;
}

static int help_one(const char *name)
{
	const struct command *c = command_of(name);

	if (!c)
		return EXIT_USAGE;
	printf("usage: toboggan [--control PATH] [--json] %s\n\n%s.\n", c->usage,
	       c->about);
	printf("%s\n", c->more);
	return EXIT_SUCCESS;
}

static bool number_parse(const char *v, long long max, long long *ret)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(v, &end, 10);
	if (errno || *end || end == v || n < 0 || n > max)
		return false;
	*ret = n;
	return true;
}

/* "2", "0.5", "2s", "500ms" */
static bool interval_parse(const char *v, unsigned int *ret_ms)
{
	char *end;
	double ms;

	if (!isdigit((unsigned char)*v))
		return false;
	ms = strtod(v, &end);
	if (end != v + strspn(v, "0123456789."))	/* "1e3", "0x1" */
		return false;
	if (strcmp(end, "ms")) {
		ms *= 1000;
		if (*end && strcmp(end, "s"))
			return false;
	}
	if (!(ms >= 100 && ms <= 3600000))
		return false;
	*ret_ms = ms;
	return true;
}

static const char shorts[] = ":c:jhV";
static const struct option longs[] = {
	{ "control", required_argument, NULL, 'c' },
	{ "json", no_argument, NULL, 'j' },
	{ "limit", required_argument, NULL, 'l' },
	{ "accept-encoding", required_argument, NULL, 'e' },
	{ "tag", required_argument, NULL, 't' },
	{ "all", no_argument, NULL, 'a' },
	{ "host", required_argument, NULL, 'H' },
	{ "prefix", no_argument, NULL, 'p' },
	{ "interval", required_argument, NULL, 'i' },
	{ "count", required_argument, NULL, 'n' },
	{ "once", no_argument, NULL, 'o' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ 0 }
};

/* Wherever it stands: also what is wrong before it is told so. */
static bool json_wanted(int argc, char **argv)
{
	bool ret = false;
	int o;

	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		ret |= o == 'j';
	optind = 0;			/* from the beginning again */
	return ret;
}

/* 0, or the exit status plus one. */
static int options_parse(struct options *opt, int argc, char **argv)
{
	int o;

	opterr = 0;
	opt->json = want_json = json_wanted(argc, argv);
	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		switch (o) {
		case 'c':
			opt->control = optarg;
			break;
		case 'j':
			break;
		case 'a':
			opt->all = true;
			break;
		case 'H':
			opt->host = optarg;
			break;
		case 'p':
			opt->prefix = true;
			break;
		case 'h':
			opt->help = true;
			break;
		case 't':
			opt->tag = optarg;
			break;
		case 'e':
			opt->accept = optarg;
			break;
		case 'o':
			opt->count = 1;
			break;
		case 'n':
			if (number_parse(optarg, 1000000000, &opt->count))
				break;
			complain("--count %s: give a number of snapshots, or 0 for no end",
				 optarg);
			return EXIT_USAGE + 1;
		case 'i':
			if (interval_parse(optarg, &opt->interval_ms))
				break;
			complain("--interval %s: give a time from 100ms to 3600s, such as 0.5 or 2s",
				 optarg);
			return EXIT_USAGE + 1;
		case 'l':
			if (number_parse(optarg, LLONG_MAX, &opt->limit))
				break;
			complain("--limit %s: give a number of objects, or 0 for all",
				 optarg);
			return EXIT_USAGE + 1;
		case 'V':
			puts("toboggan " TBG_VERSION);
			return EXIT_SUCCESS + 1;
		case ':':
			complain("%s: needs a value; see toboggan --help",
				 argv[optind - 1]);
			return EXIT_USAGE + 1;
		default:
			complain("%s: unknown option; see toboggan --help",
				 argv[optind - 1]);
			return EXIT_USAGE + 1;
		}
	}
	return 0;
}

/* What an option says as it is: not to be said in JSON if it is not UTF-8. */
static bool options_sayable(const struct options *opt)
{
	const char *const options[][2] = {
		{ "--accept-encoding", opt->accept }, { "--host", opt->host },
		{ "--tag", opt->tag },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		json_t *text = json_string(options[i][1] ?: "");

		json_decref(text);
		if (text)
			continue;
		complain("%s: not UTF-8", options[i][0]);
		return false;
	}
	return true;
}

static int command_run(const struct options *opt, int argc, char **argv)
{
	const struct command *c = command_of(argv[0]);
	const char *extra = NULL;

	if (!c)
		return EXIT_USAGE;
	argc--;
	argv++;
	if (argc < c->args_min || argc > c->args_max) {
		complain("%s: %s; usage: toboggan %s", c->name,
			 argc < c->args_min ? "argument missing" :
			 "too many arguments", c->usage);
		return EXIT_USAGE;
	}
	if (opt->limit >= 0 && !c->takes_limit)
		extra = "--limit";
	else if (opt->accept && !c->takes_accept)
		extra = "--accept-encoding";
	else if ((opt->all || opt->host || opt->tag || opt->prefix) && !c->takes_purge)
		extra = opt->all ? "--all" : opt->host ? "--host" :
			opt->tag ? "--tag" : "--prefix";
	else if ((opt->interval_ms || opt->count >= 0) && !c->takes_rounds)
		extra = opt->interval_ms ? "--interval" : "--count";
	if (extra) {
		complain("%s: does not take %s; usage: toboggan %s", c->name,
			 extra, c->usage);
		return EXIT_USAGE;
	}
	return options_sayable(opt) ? c->run(opt, argc, argv) : EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct options opt = { .control = CONTROL_PATH, .limit = -1,
			       .count = -1 };
	int ret;

	tbg_stdio_hold(O_RDONLY);
	if (argc > 1 && !strcmp(argv[1], "bench"))
		return tbg_bench(argc - 2, argv + 2);
	ret = options_parse(&opt, argc, argv);
	if (ret)
		return ret - 1;
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "help")) {
		opt.help = true;
		argc--;
		argv++;
	}
	if (opt.help && argc)
		ret = help_one(argv[0]);
	else if (opt.help)
		help(stdout);
	else if (argc)
		ret = command_run(&opt, argc, argv);
	else if (want_json)
		complain("no command; see toboggan --help"), ret = EXIT_USAGE;
	else
		help(stderr), ret = EXIT_USAGE;
	if (fflush(stdout) || ferror(stdout))
		return complain("stdout: %s", strerror(errno));
	return ret;
}
