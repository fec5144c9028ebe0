// SPDX-License-Identifier: GPL-2.0
/* The access log without a daemon: its lines byte for byte, its file, its losses. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "log/access.h"
#include "log/line.h"
#include "log/metrics.h"
#include "log/sink.h"

#define SECOND 784111777	/* Sun, 06 Nov 1994 08:49:37 GMT */
#define THREADS 4
#define LINES 5000		/* per thread: less than the queue holds */

__attribute__((constructor)) static void zone_set(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
}

static struct sockaddr_storage remote_of(const char *text)
{
	struct sockaddr_storage ret = { 0 };
	struct sockaddr_in *four = (void *)&ret;
	struct sockaddr_in6 *six = (void *)&ret;

	if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
		ret.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
		ret.ss_family = AF_INET6;
	return ret;
}

static bool line_is(const char *remote, const void *head, size_t len,
		    const char *want)
{
	struct sockaddr_storage from = remote_of(remote);
	struct tbg_log_record r = {
		.remote = &from, .req = head, .req_len = len, .second = SECOND,
		.status = 200, .body = 1024, .tier = TBG_TIER_user,
		.reason = "hit", .took_ns = 61000001999,
	};
	static char line[65536];
	size_t n = tbg_log_line(line, sizeof(line), TBG_LOG_COMBINED, &r);

	if (n == strlen(want) && !memcmp(line, want, n))
		return true;
	ktap_note("is   %.*s", (int)n, line);
	ktap_note("want %s", want);
	return false;
}

#define LINE(head, want) \
	KTAP_CHECK(line_is("192.0.2.1", head, sizeof(head) - 1, \
		"192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] " want " user hit 61.000001\n"))

KTAP_TEST(t_combined_format)
{
	LINE("GET /a?b=c HTTP/1.1\r\nHost: x\r\nReferer: http://r/\r\nUser-Agent: curl/8 (x)\r\n\r\n",
	     "\"GET /a?b=c HTTP/1.1\" 200 1024 \"http://r/\" \"curl/8 (x)\"");
}

/* The complete line; every byte that is special in JSON or UTF-8 is escaped. */
KTAP_TEST(t_json_format)
{
	static const char head[] =
		"GET /\"\\\x01\x7f\xc3\xa9 HTTP/1.1\r\nReferer: r\tr\r\n"
		"Authorization: Basic dSJzCjpw\r\n\r\n";
	static const char want[] =
		"{\"time\":\"1994-11-06T08:49:37Z\",\"remote\":\"2001:db8::1\",\"user\":\"u\\u0022s\\u000A\","
		"\"request\":\"GET /\\u0022\\u005C\\u0001\\u007F\\u00C3\\u00A9 HTTP/1.1\","
		"\"status\":304,\"body\":0,\"referer\":\"r\\u0009r\",\"agent\":\"-\","
		"\"tier\":\"wire\",\"reason\":\"hit\",\"seconds\":0.000002}\n";
	struct sockaddr_storage from = remote_of("2001:db8::1");
	struct tbg_log_record r = {
		.remote = &from, .req = head, .req_len = sizeof(head) - 1,
		.second = SECOND, .status = 304, .tier = TBG_TIER_wire,
		.reason = "hit", .took_ns = 2345,
	};
	char line[1024];
	size_t n = tbg_log_line(line, sizeof(line), TBG_LOG_JSON, &r);

	if (n != sizeof(want) - 1 || memcmp(line, want, n))
		ktap_fail("%.*s", (int)n, line);
}

KTAP_TEST(t_absent_fields_are_dashes)
{
	LINE("GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	     "\"GET / HTTP/1.1\" 200 1024 \"-\" \"-\"");
	LINE("", "\"-\" 200 1024 \"-\" \"-\"");
	LINE("\r\n\r\n", "\"-\" 200 1024 \"-\" \"-\"");
}

KTAP_TEST(t_empty_fields_are_empty)
{
	LINE("GET / HTTP/1.1\r\nReferer:\r\nUser-Agent: \t\r\n\r\n",
	     "\"GET / HTTP/1.1\" 200 1024 \"\" \"\"");
}

KTAP_TEST(t_escapes_like_nginx)
{
	LINE("GET /\"\\\x01\x7f\xc3\xa9 HTTP/1.1\r\nUser-Agent: \x1b[31m~\r\n\r\n",
	     "\"GET /\\x22\\x5C\\x01\\x7F\\xC3\\xA9 HTTP/1.1\" 200 1024 \"-\" \"\\x1B[31m~\"");
}

KTAP_TEST(t_no_byte_forges_a_line)
{
	LINE("GET /\r HTTP/1.1\r\nReferer: a\rb\0c\r\n\r\n",
	     "\"GET /\\x0D HTTP/1.1\" 200 1024 \"a\\x0Db\\x00c\" \"-\"");
}

KTAP_TEST(t_field_names_in_any_case_and_whole)
{
	LINE("GET / HTTP/1.1\r\nreFERER: r\r\nX-User-Agent: no\r\nUSER-agent:u\r\n\r\n",
	     "\"GET / HTTP/1.1\" 200 1024 \"r\" \"u\"");
}

KTAP_TEST(t_first_of_repeated_fields)
{
	LINE("GET / HTTP/1.1\r\nReferer: 1\r\nReferer: 2\r\n\r\n",
	     "\"GET / HTTP/1.1\" 200 1024 \"1\" \"-\"");
}

/* $remote_user: dXNlcjpwYXNz is user:pass. Without a colon or a name, there is none. */
KTAP_TEST(t_user_of_basic_authorization)
{
	static const struct {
		const char *field, *user;
	} cases[] = {
		{ "Basic dXNlcjpwYXNz", "user" }, { "basic   dXNlcjpwYXNz", "user" },
		{ "Basic dXNlcg==", "-" }, { "Basic OnB3", "-" }, { "Basic", "-" },
		{ "Basic !", "-" }, { "Bearer dXNlcjpwYXNz", "-" }, { "", "-" },
		{ "Basic dSJzCjpw", "u\\x22s\\x0A" },
		/*
		 * without padding, with text after it, with blanks, with one character
		 * too many
		 */
		{ "Basic Ym9iOng", "bob" }, { "Basic Ym9iOn", "bob" }, { "Basic Ym9iOng=!", "bob" },
		{ "Basic Ym9i Ong=", "-" }, { "Basic Ym9iO", "-" }, { "Basic Ym9iOngx", "bob" },
		{ "Basic =Ym9iOng", "-" }, { "Basic Ym9iOng-", "-" },
	};
	char head[2048], want[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nAuthorization: %s\r\n\r\n",
			 cases[i].field);
		snprintf(want, sizeof(want),
			 "192.0.2.1 - %s [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 1024 \"-\" \"-\" user hit 61.000001\n",
			 cases[i].user);
		KTAP_CHECK(line_is("192.0.2.1", head, strlen(head), want));
	}
}

/* Long user names, too; those of more than 8 KiB are cut there. */
KTAP_TEST(t_long_user)
{
	static const char *const agent = "\"-\" \"-\" user hit 61.000001\n";
	static char head[32768], want[32768];

	for (size_t nr = 200; nr <= 6400; nr *= 2) {	/* number of "AAA" */
		size_t len = 3 * nr < 8192 ? 3 * nr : 8192;
		char *at = stpcpy(head, "GET / HTTP/1.1\r\nAuthorization: Basic ");

		for (size_t i = 0; i < nr; i++)
			at = stpcpy(at, "QUFB");
		strcpy(at, "Og==\r\n\r\n");
		at = stpcpy(want, "192.0.2.1 - ");
		memset(at, 'A', len);
		sprintf(at + len, " [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 1024 %s", agent);
		KTAP_CHECK(line_is("192.0.2.1", head, strlen(head), want));
	}
}

KTAP_TEST(t_fields_end_with_the_head)
{
	LINE("GET / HTTP/1.1\r\nHost: x\r\n\r\nReferer: body\r\n\r\n",
	     "\"GET / HTTP/1.1\" 200 1024 \"-\" \"-\"");
}

KTAP_TEST(t_bare_line_feeds)
{
	LINE("\nGET / HTTP/1.0\nReferer: r\n\n",
	     "\"GET / HTTP/1.0\" 200 1024 \"r\" \"-\"");
}

/* Heads are not NUL-terminated: wherever one ends, no byte after it is used. */
KTAP_TEST(t_cut_at_every_byte)
{
	static const char head[] =
		"GET /a HTTP/1.1\r\nReferer: rr\r\nUser-Agent: uu\r\n\r\n";
	char line[512];

	for (size_t len = 0; len < sizeof(head); len++) {
		char *cut = malloc(len ?: 1);
		struct tbg_log_record r = { .req = cut, .req_len = len };
		size_t n;

		memcpy(cut, head, len);
		n = tbg_log_line(line, sizeof(line), TBG_LOG_COMBINED, &r);
		free(cut);
		KTAP_CHECK(n < sizeof(line) && line[n - 1] == '\n');
		KTAP_CHECK(memchr(line, '\n', n) == line + n - 1);
	}
}

KTAP_TEST(t_addresses)
{
	static const char head[] = "GET / HTTP/1.1\r\n\r\n";
	const char rest[] =
		" - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 1024 \"-\" \"-\" user hit 61.000001\n";
	static const char *const cases[][2] = {
		{ "2001:db8::1", "2001:db8::1" },
		{ "::ffff:192.0.2.7", "192.0.2.7" },
		{ "::1", "::1" },
		{ "neither", "unix:" },
	};
	char want[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(want, sizeof(want), "%s%s", cases[i][1], rest);
		KTAP_CHECK(line_is(cases[i][0], head, sizeof(head) - 1, want));
	}
}

/* Kernel events contain IPv4-mapped addresses of four words. */
KTAP_TEST(t_addresses_of_kernel_hits)
{
	uint32_t words[4] = { 0, 0, htonl(0xffff), htonl(0xc0000207) };
	struct tbg_log_record r = { .remote6 = words, .req = "", .second = SECOND };
	char line[512];

	tbg_log_line(line, sizeof(line), TBG_LOG_COMBINED, &r);
	KTAP_CHECK(!strncmp(line, "192.0.2.7 - - [", 15));
}

KTAP_TEST(t_zone_as_nginx_has_it)
{
	struct tbg_log_record r = { .req = "", .second = SECOND + 1 };
	char line[512];

	setenv("TZ", "XXX3:30", 1);
	tzset();
	tbg_log_line(line, sizeof(line), TBG_LOG_COMBINED, &r);
	zone_set();
	KTAP_CHECK(strstr(line, "[06/Nov/1994:05:19:38 -0330]"));
}

KTAP_TEST(t_long_fields_are_cut)
{
	size_t len = 200000;
	char *head = malloc(len);
	struct tbg_log_record r = { .req = head, .req_len = len };

	memset(head, 1, len);
	KTAP_CHECK(tbg_log_line(NULL, 0, TBG_LOG_COMBINED, &r) < 4 * 8192 + 512);
	free(head);
}

/* --- the file ------------------------------------------------------------ */

static char file[] = "/tmp/tbg-log-XXXXXX";

static struct tbg_log *log_at(const char *path)
{
	struct tbg_log *l = NULL;
	char msg[256] = "";

	if (tbg_log_open(&l, path, TBG_LOG_COMBINED, NULL, NULL, msg, sizeof(msg)))
		ktap_note("%s", msg);
	else if (tbg_log_start(l))
		ktap_note("no writer");
	return l;
}

static unsigned int lines_of(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned int nr = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		nr += strlen(line) > 60 && line[strlen(line) - 1] == '\n';
	if (f)
		fclose(f);
	return nr;
}

static void write_lines(struct tbg_log *l, unsigned int nr)
{
	static const char head[] = "GET /x HTTP/1.1\r\nUser-Agent: u\r\n\r\n";
	struct tbg_log_record r = { .req = head, .req_len = sizeof(head) - 1,
				    .status = 200 };

	while (nr--)
		tbg_log_write(l, &r);
}

static void *lines_thread(void *l)
{
	write_lines(l, LINES);
	return NULL;
}

KTAP_TEST(t_every_line_of_every_thread)
{
	pthread_t threads[THREADS];
	struct tbg_log *l;
	uint64_t lost;

	close(mkstemp(file));
	l = log_at(file);
	KTAP_CHECK(l);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, lines_thread, l);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	lost = tbg_log_lost(l);
	tbg_log_close(l);
	KTAP_EQ(lines_of(file) + lost, THREADS * LINES);
}

KTAP_TEST(t_reopen_starts_a_new_file)
{
	char old[64];
	struct tbg_log *l = log_at(file);
	unsigned int before = lines_of(file);

	KTAP_CHECK(l);
	snprintf(old, sizeof(old), "%s.1", file);
	write_lines(l, 1);
	tbg_log_close(l);	/* the only way to wait for the writer */
	KTAP_EQ(lines_of(file), before + 1);
	l = log_at(file);
	KTAP_CHECK(l && !rename(file, old));
	write_lines(l, 3);
	KTAP_EQ(tbg_log_reopen(l), 0);
	write_lines(l, 2);
	tbg_log_close(l);
	KTAP_EQ(lines_of(old), before + 4);	/* lines before the reopen */
	KTAP_EQ(lines_of(file), 2);
	unlink(old);
	unlink(file);
}

/* Enough for both halves: the queue never waits for a full disk. */
KTAP_TEST(t_full_disk_counts_every_line)
{
	struct tbg_log *l = log_at("/dev/full");
	struct timespec ms = { .tv_nsec = 1000000 };

	KTAP_CHECK(l);
	fclose(freopen("/dev/null", "w", stderr) ?: stdin);
	write_lines(l, 100000);
	for (int i = 0; i < 5000 && tbg_log_lost(l) < 100000; i++) {
		tbg_log_flush(l);
		nanosleep(&ms, NULL);
	}
	KTAP_EQ(tbg_log_lost(l), 100000);
	tbg_log_close(l);
}

KTAP_TEST(t_a_log_that_is_off)
{
	struct tbg_log_record r = { .req = "" };

	tbg_log_write(NULL, &r);
	tbg_log_flush(NULL);
	KTAP_EQ(tbg_log_reopen(NULL), 0);
	KTAP_EQ(tbg_log_lost(NULL), 0);
	tbg_log_close(NULL);
}

KTAP_TEST(t_names_the_file_that_cannot_be_opened)
{
	struct tbg_log *l = NULL;
	char msg[256] = "";

	KTAP_CHECK(tbg_log_open(&l, "/no/such/folder/log", TBG_LOG_COMBINED, NULL, NULL, msg, sizeof(msg)) < 0);
	KTAP_CHECK(strstr(msg, "/no/such/folder/log: No such file or directory; choose a file that can be written"));
}

KTAP_TEST(t_fields_by_name)
{
	static const char head[] = "GET /a\"b HTTP/1.1\r\nHost: h.example\r\nX-Request-ID: 7\r\n\r\n";
	static const char want[] = "192.0.2.1 GET /a\\x22b HTTP/1.1 h.example 7 200 1024 1300 up 0.002000 - $end\n";
	struct sockaddr_storage from = remote_of("192.0.2.1");
	struct tbg_log_record r = {
		.remote = &from, .req = head, .req_len = sizeof(head) - 1, .status = 200,
		.body = 1024, .sent = 1300, .upstream = "up", .upstream_ns = 2000000,
	};
	const char *pattern = "$remote $method $target $protocol $host $request_id $status $body_bytes $bytes $upstream $upstream_seconds $agent";
	static struct tbg_log_made made;
	char line[512], msg[128] = "";

	KTAP_CHECK(tbg_log_pattern_check(pattern, msg, sizeof(msg)));
	tbg_log_make(&made, &r, TBG_LOG_CUSTOM, pattern);
	KTAP_CHECK(made.len < sizeof(line));
	tbg_log_put(&made, line);
	line[made.len] = 0;
	KTAP_EQ(strlen(want) - 5, made.len);
	KTAP_CHECK(!memcmp(line, want, made.len - 1) && line[made.len - 1] == '\n');
	KTAP_CHECK(!tbg_log_pattern_check("$nothing", msg, sizeof(msg)));
	KTAP_CHECK(strstr(msg, "$nothing: no field of that name"));
	KTAP_CHECK(!tbg_log_pattern_check("no field", msg, sizeof(msg)));
	KTAP_CHECK(!tbg_log_pattern_check("$status\n", msg, sizeof(msg)));
}

KTAP_TEST(t_sinks_are_told_from_files)
{
	KTAP_CHECK(!tbg_sink_is("/var/log/a:b") && !tbg_sink_is("log"));
	KTAP_CHECK(tbg_sink_is("syslog:") && tbg_sink_is("nothing:"));
	KTAP_CHECK(!*tbg_sink_wrong("syslog:") && !*tbg_sink_wrong("journald:"));
	KTAP_CHECK(!*tbg_sink_wrong("syslog:udp:[::1]:514"));
	KTAP_CHECK(*tbg_sink_wrong("syslog:udp:host:514") && *tbg_sink_wrong("syslog:relative"));
	KTAP_CHECK(*tbg_sink_wrong("nothing:"));
}

KTAP_TEST(t_latencies_fall_into_the_bucket_that_holds_them)
{
	for (unsigned int i = 0; i < TBG_METRIC_BUCKETS - 1; i++) {
		uint64_t bound = 1ull << (i + TBG_METRIC_SHIFT);

		KTAP_EQ(tbg_metric_bucket(bound), i);
		KTAP_EQ(tbg_metric_bucket(bound + 1), i + 1);
	}
	KTAP_EQ(tbg_metric_bucket(0), 0);
	KTAP_EQ(tbg_metric_bucket(UINT64_MAX), TBG_METRIC_BUCKETS - 1);
}

KTAP_MAIN()
