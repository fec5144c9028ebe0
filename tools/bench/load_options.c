// SPDX-License-Identifier: GPL-2.0
/* The load's command line, and its list of requests. Called by load.c, once. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

/* --- the command line ----------------------------------------------------- */

/* A word of a list; "-" or nothing: NULL. */
static char *word_keep(const char *word)
{
	return word && *word && strcmp(word, "-") ? strdup(word) : NULL;
}

/* CRC[@FIRST+LEN/EVERY*TIMES] */
static bool crc_read(struct target *t, const char *text)
{
	struct digits d;
	char *end;

	t->crc = strtoul(text, &end, 16);
	if (end == text || !*end)
		return end > text;
	if (sscanf(end, "@%ld+%ld/%ld*%ld", &d.first, &d.len, &d.every, &d.times) != 4 ||
	    d.first < 0 || d.len < 1 || d.every < d.len || d.times < 1)
		return false;
	t->digits = malloc(sizeof(d));
	if (!t->digits)
		die("memory");
	*t->digits = d;
	return true;
}

static bool target_add(const char *path, double weight, long body_len, const char *crc,
		       const char *cookie, const char *post)
{
	struct target *t;

	if (!(target_nr & (target_nr + 1)))
		targets = realloc(targets, (2 * target_nr + 2) * sizeof(*targets));
	if (!targets)
		die("memory");
	t = &targets[target_nr];
	*t = (struct target){ .path = strdup(path), .body_len = body_len,
			      .cookie = word_keep(cookie), .post = word_keep(post),
			      .crc_known = crc && strcmp(crc, "-") };
	t->up_to = weight + (target_nr ? targets[target_nr - 1].up_to : 0);
	target_nr++;
	return !t->crc_known || crc_read(t, crc);
}

static void list_read(const char *file)
{
	static char path[2048], crc[64], cookie[256], post[1024];
	FILE *f = fopen(file, "re");
	double weight;
	long body_len, line_nr = 0;
	char *line = NULL;
	size_t room = 0;
	bool ok = true;

	if (!f)
		die(file);
	while (ok && getline(&line, &room, f) > 0) {
		*cookie = *post = 0;
		line_nr++;
		ok = sscanf(line, "%lf %2047s %ld %63s %255s %1023s", &weight, path,
			    &body_len, crc, cookie, post) >= 4 &&
		     target_add(path, weight, body_len, crc, cookie, post);
	}
	free(line);
	fclose(f);
	if (!ok || !target_nr) {
		fprintf(stderr, "load: %s: line %ld: want `weight path length crc32|- [cookie|-] [post]`\n",
			file, line_nr);
		exit(2);
	}
}

__attribute__((noreturn)) static void usage(int code)
{
	fprintf(code ? stderr : stdout,
		"usage: load [option ...] HOST PORT\n\n"
		"  --connections N      slots, opened before the measure (1)\n"
		"  --active N           requests in flight (all slots)\n"
		"  --calls N | MIN-MAX  requests on one connection (no limit)\n"
		"  --single SHARE       share of connections with only one\n"
		"  --http-1.0 SHARE     share of connections with HTTP/1.0, with keep-alive if\n"
		"                       more requests follow\n"
		"  --rate R             requests a second; latency counts from when one is due,\n"
		"                       until the end if it has no reply\n"
		"  --line BPS           bits a second that each connection reads\n"
		"  --conform BPS        count connections at least as fast\n"
		"  --list FILE          lines of: weight path length crc32|- [cookie|- [body]],\n"
		"                       where a body is POSTed, and # is any digit; with\n"
		"                       crc32@FIRST+LEN/EVERY*TIMES digits of a reply in LEN bytes\n"
		"                       from FIRST on, and so on EVERY bytes, count as 0\n"
		"  --once               each line of the list once, in order\n"
		"  --path PATH          target without a list (/)\n"
		"  --header LINE        one more header field\n"
		"  --expect STATUS      any other is an error (200)\n"
		"  --offsets            request from a random byte on, by Range: --expect 206\n"
		"  --no-verify          do not check the bytes\n"
		"  --source A,B         addresses to connect from\n"
		"  --seconds S          length of the load (1)\n"
		"  --opening S          time to open all connections (60)\n"
		"  --wait               then print `ready`, and begin when stdin ends\n"
		"  --timeout S          for one request (8; without --rate and --line also for those\n"
		"                       without a byte in the second half of the run)\n");
	exit(code);
}

static bool listens(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ret = fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen);

	if (fd >= 0)
		close(fd);
	return ret;
}

/* The first address of a name that accepts connections, or else the last one. */
static socklen_t resolve(const char *host, const char *port, struct sockaddr_storage *ret_to)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found, *a;
	int err = getaddrinfo(host, port, &hints, &found);
	socklen_t len;

	if (err) {
		fprintf(stderr, "load: %s: %s\n", host, gai_strerror(err));
		exit(1);
	}
	for (a = found; a->ai_next && !listens(a);)
		a = a->ai_next;
	len = a->ai_addrlen;
	memcpy(ret_to, a->ai_addr, len);
	freeaddrinfo(found);
	return len;
}

static void sources_set(char *text)
{
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (opt.source_nr == SOURCE_MAX)
			usage(2);
		resolve(word, NULL, &opt.sources[opt.source_nr++]);
	}
}

static void header_add(const char *line)
{
	char *text = NULL;

	if (asprintf(&text, "%s%s\r\n", opt.headers, line) < 0)
		die("memory");
	opt.headers = text;
}

static void option_set(int o, char *arg)
{
	switch (o) {
	case 'c':	opt.connections = atoi(arg); break;
	case 'a':	opt.active = atoi(arg); break;
	case 'n':
		opt.calls_min = opt.calls_max = atoi(arg);
		if (strchr(arg, '-'))
			opt.calls_max = atoi(strchr(arg, '-') + 1);
		break;
	case '1':	opt.single = atof(arg); break;
	case '0':	opt.old = atof(arg); break;
	case 'r':	opt.rate = atof(arg); break;
	case 'l':	opt.line_bps = atof(arg); break;
	case 'C':	opt.conform_bps = atof(arg); break;
	case 'f':	opt.list = arg; break;
	case 'o':	opt.once = true; break;
	case 'p':	opt.path = arg; break;
	case 'H':	header_add(arg); break;
	case 'e':	opt.expect = atoi(arg); break;
	case 'V':	opt.verify = false; break;
	case 'F':	opt.offsets = true; break;
	case 's':	sources_set(arg); break;
	case 't':	opt.seconds = atof(arg); break;
	case 'w':	opt.wait = true; break;
	case 'O':	opt.opening_s = atof(arg); break;
	case 'T':	opt.timeout_s = atof(arg); break;
	default:	usage(o == 'h' ? 0 : 2);
	}
}

void options_read(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "connections", 1, 0, 'c' }, { "active", 1, 0, 'a' }, { "calls", 1, 0, 'n' },
		{ "single", 1, 0, '1' }, { "rate", 1, 0, 'r' }, { "line", 1, 0, 'l' },
		{ "conform", 1, 0, 'C' }, { "list", 1, 0, 'f' }, { "once", 0, 0, 'o' },
		{ "path", 1, 0, 'p' }, { "header", 1, 0, 'H' }, { "expect", 1, 0, 'e' },
		{ "no-verify", 0, 0, 'V' }, { "source", 1, 0, 's' }, { "seconds", 1, 0, 't' },
		{ "offsets", 0, 0, 'F' }, { "opening", 1, 0, 'O' }, { "wait", 0, 0, 'w' },
		{ "http-1.0", 1, 0, '0' },
		{ "timeout", 1, 0, 'T' }, { "help", 0, 0, 'h' }, { 0 }
	};
	int o;

	while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1)
		option_set(o, optarg);
	if (argc - optind != 2 || opt.connections < 1 || opt.seconds <= 0 ||
	    opt.calls_min > opt.calls_max || (opt.calls_max && opt.calls_min < 1))
		usage(2);
	opt.to_len = resolve(argv[optind], argv[optind + 1], &opt.to);
	snprintf(opt.authority, sizeof(opt.authority), strchr(argv[optind], ':') ? "[%s]:%s" : "%s:%s",
		 argv[optind], argv[optind + 1]);
	if (opt.active < 1 || opt.active > opt.connections)
		opt.active = opt.connections;
	if (opt.list)
		list_read(opt.list);
	else
		target_add(opt.path, 1, -1, NULL, NULL, NULL);
}
