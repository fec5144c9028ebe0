// SPDX-License-Identifier: GPL-2.0
/*
 * Meta-variables of a request (userd/fastcgi/parameters.c): the program's path, the
 * request, its fields; and names that must never become variables.
 */
#include <stdlib.h>
#include <string.h>

#include "ktap.h"
#include "fastcgi/parameters.h"
#include "fastcgi/record.h"

static struct tbg_endpoints endpoints = {
	.peer = "192.0.2.9", .peer_port = 40000, .local = "192.0.2.1", .local_port = 8080,
};

static const char *found;	/* index of the path's folder */

/* Returns all of them, one "NAME=value" per line. */
static char *params(const struct tbg_script *s, const char *path, const char *target,
		    const char *fields, struct tbg_forward f)
{
	static char text[16384];
	static struct tbg_fields all;
	struct tbg_lines l = { 0 };
	struct tbg_slice name, v;
	size_t at = 0, n = 0;

	f.method = f.method.len ? f.method : TBG_SLICE("GET");
	f.target = (struct tbg_slice){ target, strlen(target) };
	if (tbg_fields_read(&all, fields, strlen(fields)) < 0)
		abort();
	f.fields = &all;
	tbg_fcgi_params_put(&l, &(struct tbg_fcgi_params){
		.request = &f, .script = s, .root = s->root, .endpoints = &endpoints,
		.path = { path, strlen(path) }, .index = found });
	*text = 0;
	while (tbg_pair_next((uint8_t *)l.text, l.len, &at, &name, &v) == TBG_PARSED_DONE)
		n += snprintf(text + n, sizeof(text) - n, "%.*s=%.*s\n", (int)name.len,
			      name.text, (int)v.len, v.text);
	if (l.failed || at != l.len)
		strcpy(text, "failed\n");
	tbg_lines_free(&l);
	return text;
}

/* Returns whether there is exactly one of that name with that value; NULL: none. */
static bool has(const char *text, const char *name, const char *value)
{
	const char *found = NULL;
	size_t len = strlen(name);
	unsigned int nr = 0;

	for (const char *line = text; *line; line = strchr(line, '\n') + 1)
		if (!strncmp(line, name, len) && line[len] == '=' && ++nr)
			found = line + len + 1;
	if (!value)
		return !nr;
	if (nr == 1 && !strncmp(found, value, strlen(value)) && found[strlen(value)] == '\n')
		return true;
	ktap_note("want one %s=%s in\n%s", name, value, text);
	return false;
}

#define PLAIN ((struct tbg_forward){ .host = TBG_SLICE("h:81"), .minor = true })

static const struct tbg_script php = { .root = "/srv", .index = "index.php",
				       .split = ".php" };

KTAP_TEST(t_request_is_whole)
{
	char *got = params(&php, "/a b.php", "/a%20b.php?x=1&y", "Host: h:81\r\n\r\n", PLAIN);

	KTAP_CHECK(!strcmp(got, "DOCUMENT_ROOT=/srv\nDOCUMENT_URI=/a b.php\n"
		"SCRIPT_NAME=/a b.php\nSCRIPT_FILENAME=/srv/a b.php\nPATH_INFO=\n"
		"GATEWAY_INTERFACE=CGI/1.1\nSERVER_SOFTWARE=toboggan\n"
		"SERVER_PROTOCOL=HTTP/1.1\nSERVER_NAME=h\nSERVER_ADDR=192.0.2.1\n"
		"SERVER_PORT=8080\nREMOTE_ADDR=192.0.2.9\nREMOTE_HOST=192.0.2.9\nREMOTE_PORT=40000\n"
		"REQUEST_SCHEME=http\nREQUEST_METHOD=GET\n"
		"REQUEST_URI=/a%20b.php?x=1&y\nQUERY_STRING=x=1&y\n"
		"REDIRECT_STATUS=200\nHTTP_HOST=h:81\n"));
}

KTAP_TEST(t_path_is_split_where_the_program_ends)
{
	static const struct {
		const char *path, *name, *info;
	} rows[] = {
		{ "/a.php", "/a.php", "" },
		{ "/a.php/b/c.php", "/a.php", "/b/c.php" },
		{ "/a.phpx/b.php/", "/a.phpx/b.php", "/" },
		{ "/a.php5", "/a.php5", "" },
		{ "/d/", "/d/index.php", "" },
		{ "/", "/index.php", "" },
		{ "/.php/x", "/.php", "/x" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *got = params(&php, rows[i].path, "/", "\r\n", PLAIN), file[64];

		snprintf(file, sizeof(file), "/srv%s", rows[i].info);
		KTAP_CHECK(has(got, "PATH_INFO", rows[i].info));
		KTAP_CHECK(has(got, "PATH_TRANSLATED", *rows[i].info ? file : NULL));
		snprintf(file, sizeof(file), "/srv%s", rows[i].name);
		KTAP_CHECK(has(got, "SCRIPT_NAME", rows[i].name));
		KTAP_CHECK(has(got, "SCRIPT_FILENAME", file));
	}
}

KTAP_TEST(t_index_that_was_found_is_the_program)
{
	char *got;

	found = "start.php";
	got = params(&php, "/d/", "/d/?a", "\r\n", PLAIN);
	found = NULL;
	KTAP_CHECK(has(got, "SCRIPT_NAME", "/d/start.php"));
	KTAP_CHECK(has(got, "SCRIPT_FILENAME", "/srv/d/start.php"));
	KTAP_CHECK(has(got, "DOCUMENT_URI", "/d/start.php"));
	KTAP_CHECK(has(got, "REQUEST_URI", "/d/?a") && has(got, "PATH_INFO", ""));
}

KTAP_TEST(t_without_split_the_path_is_the_program)
{
	struct tbg_script s = { .root = "/srv" };
	char *got = params(&s, "/a.php/b/", "/", "\r\n", PLAIN);

	KTAP_CHECK(has(got, "SCRIPT_NAME", "/a.php/b/") && has(got, "PATH_INFO", ""));
}

KTAP_TEST(t_one_program_for_all)
{
	struct tbg_script s = { .root = "/srv/app", .file = "/srv/app/public/i.php" };
	char *got = params(&s, "/x/y", "/x/y", "\r\n", PLAIN);

	KTAP_CHECK(has(got, "SCRIPT_FILENAME", "/srv/app/public/i.php"));
	KTAP_CHECK(has(got, "SCRIPT_NAME", "/public/i.php"));
	KTAP_CHECK(has(got, "PATH_INFO", "/x/y"));
	KTAP_CHECK(has(got, "PATH_TRANSLATED", "/srv/app/x/y"));
	s.file = "/srv/apple/i.php";
	KTAP_CHECK(has(params(&s, "/x", "/x", "\r\n", PLAIN), "SCRIPT_NAME", "/i.php"));
}

KTAP_TEST(t_fields_become_variables)
{
	char *got = params(&php, "/", "/", "Host: other\r\nAccept-Language: de\r\n"
			   "Cookie: a=1\r\nX-A: 1\r\ncookie: b=2\r\nx-a:\r\nX-A: 3\r\n\r\n",
			   PLAIN);

	KTAP_CHECK(has(got, "HTTP_HOST", "h:81"));
	KTAP_CHECK(has(got, "HTTP_ACCEPT_LANGUAGE", "de"));
	KTAP_CHECK(has(got, "HTTP_COOKIE", "a=1; b=2"));
	KTAP_CHECK(has(got, "HTTP_X_A", "1, , 3"));
}

KTAP_TEST(t_what_must_not_become_a_variable)
{
	char *got = params(&php, "/", "/", "Proxy: http://evil\r\npROXY: x\r\n"
			   "X_Real_Ip: 1\r\nX.Y: 1\r\nConnection: close, X-Mine\r\n"
			   "X-Mine: 1\r\nKeep-Alive: 1\r\nTE: trailers\r\n"
			   "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"
			   "Upgrade: h2c\r\nTrailer: X\r\nExpect: 100-continue\r\n\r\n", PLAIN);

	KTAP_CHECK(has(got, "HTTP_PROXY", NULL));
	KTAP_CHECK(!strstr(strstr(got, "HTTP_HOST=h:81\n") + 6, "HTTP_"));
	KTAP_CHECK(!strstr(got, "CONTENT_LENGTH") && !strstr(got, "HTTPS"));
}

KTAP_TEST(t_bodies_have_their_parameters)
{
	struct tbg_forward f = PLAIN;
	char *got;

	f.method = TBG_SLICE("POST");
	f.framing = TBG_FRAMING_LENGTH;
	f.length = 5000000000;
	got = params(&php, "/", "/", "Content-Type: a/b; c=d\r\nContent-Length: 1\r\n\r\n", f);
	KTAP_CHECK(has(got, "CONTENT_LENGTH", "5000000000"));
	KTAP_CHECK(has(got, "CONTENT_TYPE", "a/b; c=d"));
	KTAP_CHECK(has(got, "HTTP_CONTENT_TYPE", NULL));
	KTAP_CHECK(has(got, "REQUEST_METHOD", "POST"));
	f.framing = TBG_FRAMING_NONE;
	KTAP_CHECK(has(params(&php, "/", "/", "\r\n", f), "CONTENT_LENGTH", NULL));
	f.has_length = true;
	f.length = 0;
	KTAP_CHECK(has(params(&php, "/", "/", "\r\n", f), "CONTENT_LENGTH", "0"));
}

KTAP_TEST(t_our_own_conditions_replace_the_client_s)
{
	struct tbg_forward f = PLAIN;
	const char *fields = "If-None-Match: \"c\"\r\nIf-Modified-Since: x\r\n"
			     "Range: bytes=0-1\r\n\r\n";
	char *got = params(&php, "/", "/", fields, f);

	KTAP_CHECK(has(got, "HTTP_IF_NONE_MATCH", "\"c\"") &&
		   has(got, "HTTP_RANGE", "bytes=0-1"));
	f.unconditional = true;
	f.etag = TBG_SLICE("\"s\"");
	got = params(&php, "/", "/", fields, f);
	KTAP_CHECK(has(got, "HTTP_IF_NONE_MATCH", "\"s\"") &&
		   has(got, "HTTP_IF_MODIFIED_SINCE", NULL) && has(got, "HTTP_RANGE", NULL));
}

KTAP_TEST(t_names_of_hosts)
{
	static const char *const rows[][2] = {
		{ "h", "h" }, { "h:1", "h" }, { "[::1]:80", "[::1]" }, { "[::1]", "[::1]" },
		{ "h:", "h" }, { "1.2.3.4", "1.2.3.4" }, { "", "192.0.2.1" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct tbg_forward f = { .host = { rows[i][0], strlen(rows[i][0]) } };
		char *got = params(&php, "/", "/", "\r\n", f);

		KTAP_CHECK(has(got, "SERVER_NAME", rows[i][1]));
		KTAP_CHECK(has(got, "SERVER_PROTOCOL", "HTTP/1.0"));
		KTAP_CHECK(has(got, "HTTP_HOST", *rows[i][0] ? rows[i][0] : NULL));
	}
}

/* RFC 3875 4.1.14: IPv6 addresses have brackets there, and only there. */
KTAP_TEST(t_names_of_hosts_that_are_addresses)
{
	struct tbg_endpoints was = endpoints;
	char *got;

	strcpy(endpoints.local, "2001:db8::1");
	got = params(&php, "/", "/", "\r\n", (struct tbg_forward){ 0 });
	endpoints = was;
	KTAP_CHECK(has(got, "SERVER_NAME", "[2001:db8::1]"));
	KTAP_CHECK(has(got, "SERVER_ADDR", "2001:db8::1"));
}

KTAP_TEST(t_the_scheme_is_that_of_a_proxy)
{
	struct tbg_script s = { .root = "/r" };
	const char *got = params(&s, "/", "/", "X-Forwarded-Proto: HTTPS\r\n\r\n",
				 (struct tbg_forward){ .host = TBG_SLICE("h") });

	KTAP_CHECK(has(got, "HTTPS", "on") && has(got, "REQUEST_SCHEME", "https"));
	got = params(&s, "/", "/", "X-Forwarded-Proto:      \r\n\r\n",
		     (struct tbg_forward){ .host = TBG_SLICE("h") });
	KTAP_CHECK(has(got, "HTTPS", NULL) && has(got, "REQUEST_SCHEME", "http"));
}

KTAP_TEST(t_what_the_location_sets_wins)
{
	const char *more[] = { "APP=x=y", "SERVER_SOFTWARE=", "HTTP_X_USER=me", "HTTPS=on" };
	struct tbg_script s = php;
	char *got;

	s.params = more;
	s.params_nr = 4;
	got = params(&s, "/", "/", "X-User: forged\r\nX-Users: 2\r\n\r\n", PLAIN);
	KTAP_CHECK(has(got, "APP", "x=y") && has(got, "SERVER_SOFTWARE", ""));
	KTAP_CHECK(has(got, "HTTP_X_USER", "me") && has(got, "HTTP_X_USERS", "2"));
	KTAP_CHECK(has(got, "HTTPS", "on"));
}

KTAP_MAIN()
