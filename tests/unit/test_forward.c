// SPDX-License-Identifier: GPL-2.0
/*
 * Heads through a gateway (userd/http/forward.c, http/header.c) and upstream servers
 * (upstream.c): what is forwarded, replaced and dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "http/forward.h"
#include "upstream/pool_command.h"
#include "ktap.h"
#include "upstream/upstream.h"

static char *text_of(struct tbg_lines *l)
{
	static char text[8192];

	snprintf(text, sizeof(text), "%.*s", (int)l->len, l->text ?: "");
	tbg_lines_free(l);
	return text;
}

/* Valid until the next call. */
static const struct tbg_fields *fields_of(const char *text)
{
	static struct tbg_fields f;

	if (tbg_fields_read(&f, text, strlen(text)) < 0)
		abort();
	return &f;
}

static char *request(const char *fields, struct tbg_forward f)
{
	struct tbg_lines l = { 0 };

	f.method = TBG_SLICE("GET");
	f.target = TBG_SLICE("/a?b");
	f.fields = fields_of(fields);
	f.peer = f.peer ?: "192.0.2.9";
	f.authority = "up:8080";
	f.minor = true;
	f.via = "toboggan (1)";
	tbg_forward_request(&l, &f);
	return text_of(&l);
}

#define PLAIN ((struct tbg_forward){ .host = TBG_SLICE("h") })

KTAP_TEST(t_request_is_whole)
{
	KTAP_CHECK(!strcmp(request("Host: h\r\nA: b\r\nC:  d \r\n\r\n", PLAIN),
		"GET /a?b HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\nVia: 1.1 toboggan (1)\r\n"
		"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: http\r\n"
		"X-Forwarded-Host: h\r\n"
		"Forwarded: for=192.0.2.9;host=\"h\";proto=http\r\n\r\n"));
}

KTAP_TEST(t_request_without_host_gets_the_servers)
{
	char *got = request("\r\n", (struct tbg_forward){ 0 });

	KTAP_CHECK(strstr(got, "\r\nHost: up:8080\r\n") && !strstr(got, "X-Forwarded-Host"));
}

KTAP_TEST(t_ipv6_clients_are_quoted_in_forwarded)
{
	struct tbg_forward f = PLAIN;
	char *got;

	f.peer = "2001:db8::1";
	got = request("\r\n", f);
	KTAP_CHECK(strstr(got, "X-Forwarded-For: 2001:db8::1\r\n"));
	KTAP_CHECK(strstr(got, "Forwarded: for=\"[2001:db8::1]\";"));
}

KTAP_TEST(t_no_line_of_forwarded_takes_ours_in)
{
	static const char *const open[] = {
		"for=10.0.0.1;by=\"", "\"", "by=\"a\\\"", "by=\"a\";for=\"", "by=\"\\",
	};
	static const char *const fine[] = {
		"for=10.0.0.1", "by=\"a\"", "by=\"a\\\"b\"", "by=\"\\\\\"", "by=\\;for=\"x\"",
	};
	char fields[128], want[128];

	for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++) {
		snprintf(fields, sizeof(fields), "Forwarded: a=b\r\nForwarded: %s\r\n\r\n", open[i]);
		KTAP_CHECK(strstr(request(fields, PLAIN), "\r\nForwarded: a=b, for=192.0.2.9;"));
	}
	for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++) {
		snprintf(fields, sizeof(fields), "Forwarded: %s\r\n\r\n", fine[i]);
		snprintf(want, sizeof(want), "\r\nForwarded: %s, for=192.0.2.9;", fine[i]);
		KTAP_CHECK(strstr(request(fields, PLAIN), want));
	}
	KTAP_CHECK(strstr(request("X-Forwarded-For: \"\r\n\r\n", PLAIN), "For: \", 192.0.2.9"));
}

KTAP_TEST(t_framing_is_written_anew)
{
	struct tbg_forward f = PLAIN;
	const char *fields = "Content-Length: 5\r\nTransfer-Encoding: x\r\n\r\n";

	KTAP_CHECK(!strstr(request(fields, f), "Content-Length"));
	KTAP_CHECK(!strstr(request(fields, f), "Transfer-Encoding"));
	f.framing = TBG_FRAMING_LENGTH;
	f.length = 7;
	KTAP_CHECK(strstr(request(fields, f), "\r\nContent-Length: 7\r\n"));
	f.framing = TBG_FRAMING_CHUNKED;
	KTAP_CHECK(strstr(request(fields, f), "\r\nTransfer-Encoding: chunked\r\n"));
}

KTAP_TEST(t_conditions_of_our_own_replace_the_clients)
{
	struct tbg_forward f = PLAIN;
	char *got;

	f.unconditional = true;
	f.etag = TBG_SLICE("\"ours\"");
	got = request("If-None-Match: \"c\"\r\nIf-Modified-Since: x\r\nRange: bytes=0-1\r\n"
		      "If-Range: y\r\n\r\n", f);
	KTAP_CHECK(strstr(got, "If-None-Match: \"ours\"\r\n") && !strstr(got, "\"c\""));
	KTAP_CHECK(!strstr(got, "Range") && !strstr(got, "Modified"));
}

KTAP_TEST(t_the_mark_of_fetches_is_for_modules_alone)
{
	struct tbg_forward f = PLAIN;
	const char *fields = TBG_DEPTH_FIELD ": 0-1\r\n\r\n";

	KTAP_CHECK(!strstr(request(fields, f), "0-1"));
	f.depth = true;
	KTAP_CHECK(strstr(request(fields, f), "\r\n" TBG_DEPTH_FIELD ": 0-1\r\n"));
}

KTAP_TEST(t_connection_cannot_name_what_we_say_ourselves)
{
	char *got = request("Connection: host, x-forwarded-for, via, a\r\nA: b\r\n\r\n", PLAIN);

	KTAP_CHECK(strstr(got, "Host: h\r\n") && strstr(got, "X-Forwarded-For: 192.0.2.9\r\n"));
	KTAP_CHECK(strstr(got, "Via: ") && !strstr(got, "A: b"));
	/* but the client's own values of these fields are dropped */
	got = request("Connection: via, Forwarded\r\nVia: 1.0 x\r\nForwarded: for=x\r\n\r\n", PLAIN);
	KTAP_CHECK(strstr(got, "\r\nVia: 1.1 toboggan (1)\r\n"));
	KTAP_CHECK(strstr(got, "\r\nForwarded: for=192.0.2.9;"));
}

static const char date[] = "Sun, 06 Nov 1994 08:49:37 GMT";

static char *fields_on(const char *from, const char *on, bool store)
{
	struct tbg_lines l = { 0 };

	tbg_forward_fields(&l, fields_of(from), on, store);
	return text_of(&l);
}

static char *fields(const char *from, bool store)
{
	return fields_on(from, date, store);
}

KTAP_TEST(t_response_fields)
{
	KTAP_CHECK(!strcmp(fields("A: 1\r\nConnection: b\r\nB: 2\r\nContent-Length: 3\r\n"
				  "Date: x\r\nA: 3\r\n\r\nZ: behind\r\n", false),
			   "A: 1\r\nDate: x\r\nA: 3\r\n"));
	KTAP_CHECK(!strcmp(fields("\r\n", false), "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
	KTAP_CHECK(!strcmp(fields_on("Connection: b\r\nB: 2\r\nA: 1\r\n", NULL, false), "A: 1\r\n"));
	KTAP_CHECK(!strcmp(fields("Date: x\r\nProxy-Authenticate: y\r\nA: b\r\nC: d\r\n"
				  "Cache-Control: no-cache=\"a\", private=c\r\n\r\n", true),
			   "Date: x\r\nCache-Control: no-cache=\"a\", private=c\r\n"));
}

KTAP_TEST(t_update)
{
	const char *old = "A: 1\r\nB: 1\r\nB: 2\r\nAge: 9\r\nContent-Range: x\r\n";
	const char *news = "b: 3\r\nC: 4\r\nContent-Range: y\r\nContent-Length: 0\r\n";
	struct tbg_lines l = { 0 };

	tbg_forward_update(&l, old, strlen(old), news, strlen(news));
	KTAP_CHECK(!strcmp(text_of(&l), "A: 1\r\nContent-Range: x\r\nb: 3\r\nC: 4\r\n"));
	old = "Cache-Control: private=\"b\"\r\nA: 1\r\n";
	tbg_forward_update(&l, old, strlen(old), news, strlen(news));
	KTAP_CHECK(!strcmp(text_of(&l), "Cache-Control: private=\"b\"\r\nA: 1\r\nC: 4\r\n"));
}

/* These fields describe the stored bytes, which do not change. */
KTAP_TEST(t_update_keeps_the_fields_that_describe_the_bytes)
{
	const char *old = "Content-Encoding: gzip\r\nContent-Digest: a\r\n";
	const char *news = "Content-Encoding: br\r\nContent-MD5: b\r\nContent-Digest: c\r\nX: 1\r\n";
	struct tbg_lines l = { 0 };

	tbg_forward_update(&l, old, strlen(old), news, strlen(news));
	KTAP_CHECK(!strcmp(text_of(&l), "Content-Encoding: gzip\r\nContent-Digest: a\r\nX: 1\r\n"));
	tbg_forward_update(&l, "", 0, news, strlen(news));
	KTAP_CHECK(!strcmp(text_of(&l), "X: 1\r\n"));
	/* nor are those of a part kept for the combined response */
	tbg_forward_fields(&l, fields_of("Content-Digest: c\r\nContent-MD5: b\r\nX: 1\r\n"),
			   NULL, 206);
	KTAP_CHECK(!strcmp(text_of(&l), "X: 1\r\n"));
}

KTAP_TEST(t_odd_names)
{
	static const char *const plain[] = { "Host", "X-Forwarded-Proto", "X1" };
	static const char *const odd[] = {
		"X_Forwarded_Proto", "Transfer_Encoding", "X.Forwarded.Proto", "X-\"", "~",
	};

	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		KTAP_CHECK(!tbg_forward_odd((struct tbg_slice){ plain[i], strlen(plain[i]) }));
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
		KTAP_CHECK(tbg_forward_odd((struct tbg_slice){ odd[i], strlen(odd[i]) }));
}

KTAP_TEST(t_trailers_that_could_lie_are_dropped)
{
	const char *t = "X: 1\r\nContent-Length: 1\r\nHOST: x\r\nset-cookie: a\r\n"
			"Transfer-Encoding: chunked\r\nY: 2\r\n";
	struct tbg_lines l = { 0 };

	tbg_forward_trailer(&l, t, strlen(t), fields_of("A: y\r\n"), true);
	KTAP_CHECK(!strcmp(text_of(&l), "X: 1\r\nY: 2\r\n"));
	tbg_forward_trailer(&l, t, strlen(t), fields_of("Connection: close, y\r\n"), true);
	KTAP_CHECK(!strcmp(text_of(&l), "X: 1\r\n"));
	t = "X_Forwarded_Proto: https\r\nX: 1\r\n";
	tbg_forward_trailer(&l, t, strlen(t), fields_of(""), false);
	KTAP_CHECK(!strcmp(text_of(&l), "X: 1\r\n"));
}

KTAP_TEST(t_lists)
{
	struct tbg_slice v, list = TBG_SLICE(" a , ,\"b, \\\" c\";d ,,e");
	static const char *const want[] = { "a", "\"b, \\\" c\";d", "e" };
	size_t at = 0;

	for (int i = 0; i < 3; i++) {
		KTAP_CHECK(tbg_list_next(list, &at, &v));
		KTAP_CHECK(tbg_slice_is(v, want[i]));
	}
	KTAP_CHECK(!tbg_list_next(list, &at, &v));
	at = 0;
	KTAP_CHECK(tbg_list_next(TBG_SLICE("\"open, to the end"), &at, &v));
	KTAP_CHECK(v.len == 17);
}

KTAP_TEST(t_addresses_of_servers)
{
	static const char *const good[] = {
		"http://127.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:1/",
		"http://[::1]:8080", "http://[::1]", "unix:/run/x", "http://unix:/run/x",
		"HTTP://127.0.0.1:9",
	};
	static const char *const bad[] = {
		"", "127.0.0.1:80", "https://127.0.0.1", "http://", "http://:80",
		"http://127.0.0.1:", "http://127.0.0.1:x", "http://127.0.0.1:0",
		"http://127.0.0.1:65536", "http://[::1]:91005", "http://127.0.0.1:+80", "http://127.0.0.1/path",
		"http://[::1", "http://[::1]x", "unix:run", "unix:", "ftp://127.0.0.1",
		"http://10.0.0.300", "http://a b", "http://[name]",
	};
	struct tbg_backend b;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		KTAP_CHECK(tbg_backend_parse(good[i], TBG_PROTOCOL_HTTP, false, 0, &b));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		KTAP_CHECK(!tbg_backend_parse(bad[i], TBG_PROTOCOL_HTTP, false, 0, &b));
	KTAP_CHECK(tbg_backend_parse("127.0.0.1:80", TBG_PROTOCOL_HTTP, true, 0, &b));
}

static struct tbg_upstream *upstream(const char *server, int nr, bool least)
{
	struct tbg_upstream_settings settings = { .least = least, .health_path = "/h" };
	struct tbg_upstream *u = tbg_upstream_new("x", server, &settings);
	struct tbg_backend b;

	if (!u || !tbg_backend_parse(server, TBG_PROTOCOL_HTTP, false, 0, &b))
		abort();
	while (nr--)
		if (!tbg_upstream_add(u, &b))
			abort();
	return u;
}

KTAP_TEST(t_no_more_servers_than_there_is_room_for)
{
	struct tbg_upstream *u = upstream("unix:/x", TBG_BACKEND_MAX, false);

	KTAP_CHECK(!tbg_upstream_add(u, &u->backends[0]));
	tbg_upstream_put(u);
}

KTAP_TEST(t_sameness)
{
	struct tbg_upstream *a = upstream("unix:/x", 2, false);
	struct tbg_upstream *b[] = {
		upstream("unix:/x", 2, false), upstream("unix:/y", 2, false),
		upstream("unix:/x", 3, false), upstream("unix:/x", 2, true),
		upstream("unix:/x", 2, false),
	};

	b[4]->settings.keep_ms++;
	for (int i = 0; i < 5; i++) {
		KTAP_EQ(tbg_upstream_same(a, b[i]), !i);
		KTAP_CHECK(a->id != b[i]->id && a->backends[0].id != b[i]->backends[0].id);
		tbg_upstream_put(b[i]);
	}
	tbg_upstream_put(a);
}

KTAP_TEST(t_turns_failures_and_rest)
{
	struct tbg_upstream *u = upstream("http://127.0.0.1:1", 3, false);
	struct tbg_backend *b;

	for (unsigned int i = 0; i < 9; i++)
		KTAP_EQ(tbg_upstream_choose(u, 0, 1)->nr, i % 3);
	KTAP_CHECK(tbg_upstream_choose(u, 5, 1)->nr == 1);
	KTAP_CHECK(!tbg_upstream_choose(u, 7, 1));
	for (int i = 0; i < TBG_BACKEND_FAILURES; i++)
		tbg_backend_failed(&u->backends[1], "refused", 1);
	for (int i = 0; i < 9; i++)
		KTAP_CHECK(tbg_upstream_choose(u, 0, 2)->nr != 1);
	/* among the remaining ones */
	for (unsigned int i = 0, turns[3] = { 0 }; i < 10; i++) {
		turns[tbg_upstream_choose(u, 0, 2)->nr]++;
		KTAP_CHECK(i < 9 || (turns[0] == 5 && turns[2] == 5));
	}
	KTAP_EQ(tbg_upstream_choose(u, 5, 2)->nr, 1);	/* better than none */
	b = tbg_upstream_choose(u, 5, 2 + TBG_BACKEND_REST_NS);
	KTAP_EQ(b->nr, 1);
	KTAP_EQ(atomic_load(&b->logged), TBG_NEWS_RESTS);
	tbg_backend_worked(b, 1);		/* from a request sent before it rested */
	KTAP_EQ(atomic_load(&b->logged), TBG_NEWS_RESTS);
	tbg_backend_worked(b, 2 + TBG_BACKEND_REST_NS);
	KTAP_EQ(atomic_load(&b->logged), TBG_NEWS_WELL);
	tbg_backend_failed(b, "refused", 1ull << 40);
	KTAP_CHECK(atomic_load(&b->rest_ns) < 1ull << 40);
	u->settings.least = true;
	atomic_store(&u->backends[0].active, 2);
	atomic_store(&u->backends[1].active, 1);
	atomic_store(&u->backends[2].active, 3);
	for (int i = 0; i < 3; i++)
		KTAP_EQ(tbg_upstream_choose(u, 0, 1ull << 50)->nr, 1);
	tbg_upstream_put(u);
}

KTAP_MAIN()
