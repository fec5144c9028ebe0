// SPDX-License-Identifier: GPL-2.0
/*
 * The pure functions of the gateway: which program a path names, its environment, the
 * end of its head; how a module reads cookies and forms. And the server side of FastCGI
 * on a socket pair.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/clock.h"
#include "gateway/cgi.h"
#include "gateway/cgi_input.h"
#include "gateway/module.h"
#include "gateway/script.h"
#include "gateway/responder.h"
#include "ktap.h"
#include "os/loop.h"

/* --- programs ------------------------------------------------------------ */

static char folder[] = "/tmp/tbg-script-XXXXXX";

static void file(const char *name, mode_t mode)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	if (fd < 0 || fchmod(fd, mode))
		abort();
	close(fd);
}

static int find(const char *below, struct tbg_executable *ret)
{
	int fd = open(folder, O_PATH), err = tbg_script_find(fd, folder, below, ret);

	close(fd);
	return err;
}

static void folder_make(void)
{
	char path[200];

	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/sub", folder);
	mkdir(path, 0755);
	file("run", 0755);
	file("data", 0644);
	file("nph-run", 0755);
	file("sub/run", 0755);
	snprintf(path, sizeof(path), "%s/out", folder);
	if (symlink("/bin/sh", path))
		abort();
	snprintf(path, sizeof(path), "%s/up", folder);
	if (symlink("../../bin/sh", path))
		abort();
	snprintf(path, sizeof(path), "%s/in", folder);
	if (symlink("sub/run", path))
		abort();
	snprintf(path, sizeof(path), "%s/fifo", folder);
	mkfifo(path, 0755);
}

static void folder_remove(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command))
		abort();
}

KTAP_TEST(t_programs_by_path)
{
	static const struct {
		const char *below;
		int err;
		size_t name_len;
	} rows[] = {
		{ "run", 0, 3 }, { "run/", 0, 3 }, { "run/a/b", 0, 3 },
		{ "sub/run", 0, 7 }, { "sub/run/x", 0, 7 }, { "in", 0, 2 },
		{ "sub", -EACCES, 0 }, { "sub/", -EACCES, 0 }, { "data", -EACCES, 0 },
		{ "data/x", -EACCES, 0 }, { "nph-run", -EACCES, 0 }, { "fifo", -EACCES, 0 },
		{ "", -ENOENT, 0 }, { "none", -ENOENT, 0 }, { "sub/none", -ENOENT, 0 },
		{ "out", -ENOENT, 0 }, { "up", -ENOENT, 0 }, { "../run", -ENOENT, 0 },
		{ "sub/../../etc/passwd", -ENOENT, 0 }, { "/run", -ENOENT, 0 },
	};
	struct tbg_executable s;

	folder_make();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int err = find(rows[i].below, &s);

		if (err != rows[i].err || (!err && s.name_len != rows[i].name_len))
			ktap_fail("%s: %d", rows[i].below, err);
	}
	KTAP_EQ(find("sub/run/x", &s), 0);
	KTAP_CHECK(!strncmp(s.path, folder, strlen(folder)) &&
		   !strcmp(s.path + strlen(folder), "/sub/run"));
	KTAP_CHECK(!strcmp(s.folder + strlen(folder), "/sub"));
	folder_remove();
}

KTAP_TEST(t_heads_of_programs)
{
	static const struct {
		const char *text;
		long end;
	} rows[] = {
		{ "A: b\n\nbody", 6 }, { "A: b\r\n\r\nbody", 8 },
		{ "A: b\r\nC:d\r\n\r\n", 13 }, { "A: b\n\r\n", 7 },
		{ "A: b\n", 0 }, { "A: b", 0 }, { "", 0 },
		{ "\n", -EBADMSG }, { "\r\n", -EBADMSG }, { "hello\n\n", -EBADMSG },
		{ "A : b\n\n", -EBADMSG }, { "A: b\n c\n\n", -EBADMSG },
		{ ": b\n\n", -EBADMSG }, { "A: \x01\n\n", -EBADMSG },
		{ "HTTP/1.1 200 OK\n\n", -EBADMSG },
	};
	static char long_line[40 << 10];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t len = strlen(rows[i].text);
		char *exact = malloc(len ?: 1);
		long end;

		memcpy(exact, rows[i].text, len);
		end = tbg_cgi_head(exact, len);
		free(exact);
		if (end != rows[i].end)
			ktap_fail("row %zu: %ld", i, end);
	}
	memset(long_line, 'a', sizeof(long_line));
	KTAP_EQ(tbg_cgi_head(long_line, sizeof(long_line)), -EMSGSIZE);
}

KTAP_TEST(t_variables_of_programs)
{
	static const char *const yes[] = {
		"REQUEST_METHOD", "HTTP_ACCEPT", "HTTP_X_1", "CONTENT_LENGTH",
	};
	static const char *const no[] = {
		"HTTP_PROXY", "HTTP_AUTHORIZATION", "LD_PRELOAD", "PATH",
		"SCRIPT_FILENAME", "HTTP_a", "HTTP_X=Y", "PHP_VALUE", "",
	};

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		KTAP_CHECK(tbg_cgi_variable(yes[i]));
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
		KTAP_CHECK(!tbg_cgi_variable(no[i]));
}

/* --- input of modules ---------------------------------------------------- */

/* module.c is not linked: it runs in a process of its own. */
void tbg_request_mark(struct tbg_request *r)
{
}

#define PARAM(name, value) { name, value, sizeof(name) - 1, sizeof(value) - 1 }

static struct tbg_param params[] = {
	PARAM("HTTP_COOKIE", "a=1; b=\"two\"; bb=3;c= 4 ; d="),
	PARAM("QUERY_STRING", "x=1&y=%41+b%2&%7A=z&empty=&x=2&nul=a%00b&flag"),
	PARAM("HTTP_ACCEPT_LANGUAGE", "de"),
	PARAM("CONTENT_LENGTH", ""),
	PARAM("CONTENT_TYPE", "text/plain"),
};

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static void chunks_free(struct tbg_request *r)
{
	struct tbg_chunk *c;

	while ((c = SLIST_FIRST(&r->chunks))) {
		SLIST_REMOVE_HEAD(&r->chunks, link);
		free(c);
	}
}

KTAP_TEST(t_cookies_parameters_and_fields)
{
	struct tbg_gateway_request v = { .params = params,
			       .params_nr = sizeof(params) / sizeof(*params) };
	struct tbg_request r = { .v = &v };
	bool ok = same(tbg_request_cookie(&r, "a"), "1") &&
		  same(tbg_request_cookie(&r, "b"), "two") &&
		  same(tbg_request_cookie(&r, "bb"), "3") &&
		  same(tbg_request_cookie(&r, "c"), " 4") &&
		  same(tbg_request_cookie(&r, "d"), "") &&
		  same(tbg_request_cookie(&r, "e"), NULL) &&
		  same(tbg_request_parameter(&r, "x"), "1") &&
		  same(tbg_request_parameter(&r, "y"), "A b%2") &&
		  same(tbg_request_parameter(&r, "z"), "z") &&
		  same(tbg_request_parameter(&r, "empty"), "") &&
		  same(tbg_request_parameter(&r, "flag"), "") &&
		  same(tbg_request_parameter(&r, "nul"), "a%00b") &&
		  same(tbg_request_parameter(&r, "no"), NULL) &&
		  same(tbg_form_parameter(&r, "a=b&c=dX", 7, "c"), "d") &&
		  same(tbg_form_parameter(&r, "", 0, "c"), NULL) &&
		  same(tbg_request_field(&r, "Accept-language"), "de") &&
		  same(tbg_request_field(&r, "content-type"), "text/plain") &&
		  same(tbg_request_field(&r, "Content-Length"), NULL) &&
		  same(tbg_request_field(&r, "X"), NULL);

	chunks_free(&r);
	KTAP_CHECK(ok);
	KTAP_EQ(tbg_request_length(&r), -1);
}

/* --- the server ---------------------------------------------------------- */

static struct {
	struct tbg_serve s;
	unsigned int begun, gone;
	char body[100];
	size_t body_len;
	bool hold;			/* no answer */
	size_t more;			/* bytes after the answer's body */
} server;

static const char zeros[1 << 20];

static void on_input(struct tbg_gateway_request *v)
{
	server.body_len += tbg_gateway_request_read(v, server.body + server.body_len,
					  sizeof(server.body) - server.body_len);
	if (!v->input_over || server.hold)
		return;
	tbg_gateway_request_send(v, "A: b\n\n", 6);
	tbg_gateway_request_send(v, server.body, server.body_len);
	tbg_gateway_request_send(v, zeros, server.more);
	tbg_gateway_request_end(v);
}

static void on_begin(struct tbg_gateway_request *v)
{
	server.begun++;
	server.body_len = 0;
}

static void on_gone(struct tbg_gateway_request *v)
{
	server.gone++;
}

static void on_output(struct tbg_gateway_request *v)
{
}

static void tick(void *arg, uint64_t now_ns)
{
	tbg_loop_stop(server.s.loop);
}

/* Two ends: *ret_fd is the daemon's. */
static void server_open(int *ret_fd)
{
	static const struct tbg_answerer answerer = {
		.begin = on_begin, .input = on_input, .output = on_output, .gone = on_gone,
	};
	struct sockaddr a = { .sa_family = AF_UNIX };
	socklen_t len = sizeof(a.sa_family);
	struct sockaddr_storage bound;
	socklen_t bound_len = sizeof(bound);
	struct tbg_loop *l;

	memset(&server, 0, sizeof(server));
	if (tbg_loop_open(&l) || tbg_loop_every(l, 1, tick, NULL))
		abort();
	server.s = (struct tbg_serve){ .loop = l, .answerer = &answerer, .state_fd = -1 };
	server.s.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	*ret_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(server.s.listen_fd, &a, len) || listen(server.s.listen_fd, 1) ||
	    getsockname(server.s.listen_fd, (struct sockaddr *)&bound, &bound_len) ||
	    tbg_serve_open(&server.s) ||
	    connect(*ret_fd, (struct sockaddr *)&bound, bound_len))
		abort();
}

/* Runs a few rounds: handles everything that was sent. */
static void rounds(void)
{
	for (int i = 0; i < 3; i++)
		tbg_loop_run(server.s.loop);
}

static void server_close(int fd)
{
	close(fd);
	rounds();
	tbg_serve_retire(&server.s);
	close(server.s.listen_fd);
	close(server.s.term_fd);
	tbg_loop_close(server.s.loop);
}

static void put(struct tbg_lines *l, uint8_t type, uint16_t id, const char *text)
{
	uint8_t h[TBG_FCGI_RECORD_HEADER];
	size_t len = strlen(text);

	tbg_fcgi_record_header(h, type, id, len, 3);
	tbg_lines_put(l, h, sizeof(h));
	tbg_lines_put(l, text, len);
	tbg_lines_put(l, "\0\0\0", 3);
}

static void request_put(struct tbg_lines *l, uint16_t id, uint8_t role, uint8_t flags)
{
	uint8_t b[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];

	tbg_fcgi_record_begin(b, id, role, flags);
	tbg_lines_put(l, b, sizeof(b));
	put(l, TBG_FCGI_RECORD_PARAMS, id, "\x01\x01" "AB");
	put(l, TBG_FCGI_RECORD_PARAMS, id, "");
	put(l, TBG_FCGI_RECORD_STDIN, id, "body");
	put(l, TBG_FCGI_RECORD_STDIN, id, "");
}

/* Returns the received content of one type, and how the request ended; -1: not yet. */
static int answer(int fd, uint8_t type, char *ret, size_t *ret_len)
{
	struct tbg_fcgi_record_reader rd = { 0 };
	uint8_t b[4096];
	ssize_t n = recv(fd, b, sizeof(b), MSG_DONTWAIT);
	size_t at = 0, used;
	struct tbg_fcgi_record r;
	int status = -1;

	*ret_len = 0;
	while (n > 0 && at < (size_t)n &&
	       tbg_fcgi_record_next(&rd, b + at, n - at, &used, &r) == TBG_PARSED_DONE) {
		at += used;
		if (r.type == type && r.len) {
			memcpy(ret + *ret_len, r.data, r.len);
			*ret_len += r.len;
		}
		if (r.type == TBG_FCGI_RECORD_END)
			status = r.status;
	}
	return status;
}

KTAP_TEST(t_requests_split_at_every_byte)
{
	struct tbg_lines l = { 0 };
	char out[200];
	size_t len;
	int fd;

	server_open(&fd);
	request_put(&l, 7, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	for (size_t at = 0; at <= l.len; at++) {
		if (send(fd, l.text, at, 0) < 0)
			abort();
		rounds();
		if (send(fd, l.text + at, l.len - at, 0) < 0)
			abort();
		rounds();
		if (answer(fd, TBG_FCGI_RECORD_STDOUT, out, &len) != TBG_FCGI_RECORD_COMPLETE ||
		    len != 10 || memcmp(out, "A: b\n\nbody", 10))
			ktap_fail("split at %zu: %.*s", at, (int)len, out);
	}
	KTAP_EQ(server.begun, l.len + 1);
	KTAP_EQ(server.gone, server.begun);
	tbg_lines_free(&l);
	server_close(fd);
}

KTAP_TEST(t_roles_values_and_more_at_once)
{
	struct tbg_lines l = { 0 };
	char out[200];
	size_t len;
	int fd;

	server_open(&fd);
	request_put(&l, 1, TBG_ROLE_FILTER, TBG_FCGI_RECORD_KEEP_CONN);
	put(&l, TBG_FCGI_RECORD_GET_VALUES, 0, "\x01\x01" "AB" "\x0f\x01" "FCGI_MPXS_CONNS?");
	put(&l, TBG_FCGI_RECORD_GET_VALUES, 0, "\x01\x01" "AB");
	put(&l, TBG_FCGI_RECORD_GET_VALUES, 0, "");
	put(&l, 77, 0, "");
	if (send(fd, l.text, l.len, 0) < 0)
		abort();
	rounds();
	KTAP_EQ(answer(fd, TBG_FCGI_RECORD_GET_VALUES_RESULT, out, &len),
		TBG_FCGI_RECORD_UNKNOWN_ROLE);
	KTAP_CHECK(len == 18 && !memcmp(out, "\x0f\x01" "FCGI_MPXS_CONNS0", 18));
	KTAP_EQ(server.begun, 0);
	l.len = 0;
	server.hold = true;
	request_put(&l, 1, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	request_put(&l, 2, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	if (send(fd, l.text, l.len, 0) < 0)
		abort();
	rounds();
	KTAP_EQ(answer(fd, TBG_FCGI_RECORD_STDOUT, out, &len), TBG_FCGI_RECORD_CANT_MPX_CONN);
	KTAP_EQ(server.begun, 1);
	KTAP_EQ(server.gone, 0);
	l.len = 0;
	put(&l, TBG_FCGI_RECORD_ABORT, 1, "");
	if (send(fd, l.text, l.len, 0) < 0)
		abort();
	rounds();
	KTAP_EQ(answer(fd, TBG_FCGI_RECORD_STDOUT, out, &len), TBG_FCGI_RECORD_COMPLETE);
	KTAP_EQ(server.gone, 1);
	tbg_lines_free(&l);
	server_close(fd);
}

KTAP_TEST(t_a_connection_that_ends_is_an_abort)
{
	struct tbg_lines l = { 0 };
	int fd;

	server_open(&fd);
	server.hold = true;
	request_put(&l, 1, TBG_ROLE_RESPONDER, 0);
	if (send(fd, l.text, l.len, 0) < 0)
		abort();
	rounds();
	KTAP_EQ(server.s.connections_nr, 1);
	close(fd);
	rounds();
	KTAP_EQ(server.gone, 1);
	KTAP_EQ(server.s.connections_nr, 0);
	tbg_lines_free(&l);
	server_close(-1);
}

KTAP_TEST(t_what_is_no_fastcgi_ends_the_connection)
{
	static const char *const rows[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"\x01\x01\0\x01\0\x07\0\0\0\0\0\0\0\0\0",
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char c;
		int fd;

		server_open(&fd);
		if (send(fd, rows[i], 16, 0) < 0)
			abort();
		rounds();
		KTAP_EQ(server.s.connections_nr, 0);
		errno = 0;
		KTAP_CHECK(recv(fd, &c, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN);
		server_close(fd);
	}
}

KTAP_TEST(t_retiring_loses_no_request)
{
	struct tbg_lines l = { 0 };
	char out[200];
	size_t len;
	int fd;

	server_open(&fd);
	rounds();
	KTAP_EQ(server.s.connections_nr, 1);
	request_put(&l, 1, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	/* in transit while it retires, and incomplete */
	if (send(fd, l.text, l.len / 2, 0) < 0)
		abort();
	tbg_serve_retire(&server.s);
	rounds();
	if (send(fd, l.text + l.len / 2, l.len - l.len / 2, 0) < 0)
		abort();
	rounds();
	KTAP_EQ(answer(fd, TBG_FCGI_RECORD_STDOUT, out, &len), TBG_FCGI_RECORD_COMPLETE);
	KTAP_EQ(len, 10);
	rounds();
	KTAP_EQ(server.s.connections_nr, 0);
	KTAP_CHECK(send(fd, l.text, l.len, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	tbg_lines_free(&l);
	server_close(fd);
}

/* Even if its socket has not accepted all of it. */
KTAP_TEST(t_retiring_loses_no_answer)
{
	static char b[64 << 10];
	struct tbg_lines l = { 0 };
	size_t got = 0;
	ssize_t n = 1;
	int fd;

	server_open(&fd);
	server.more = sizeof(zeros);
	rounds();
	request_put(&l, 1, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	if (send(fd, l.text, l.len, 0) < 0)
		abort();
	tbg_serve_retire(&server.s);
	for (unsigned int i = 0; n && i < 1000; i++) {
		rounds();
		n = recv(fd, b, sizeof(b), MSG_DONTWAIT);
		got += n > 0 ? n : 0;
	}
	KTAP_CHECK(got > sizeof(zeros));
	KTAP_EQ(n, 0);
	KTAP_EQ(server.s.connections_nr, 0);
	tbg_lines_free(&l);
	server_close(fd);
}

/* Sends a request on fd and reads its answer. */
static bool asked(int fd)
{
	struct tbg_lines l = { 0 };
	char out[200];
	bool ok;
	size_t len;

	request_put(&l, 1, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	ok = send(fd, l.text, l.len, MSG_NOSIGNAL) == (ssize_t)l.len;
	tbg_lines_free(&l);
	rounds();
	return ok && answer(fd, TBG_FCGI_RECORD_STDOUT, out, &len) == TBG_FCGI_RECORD_COMPLETE &&
	       len == 10;
}

KTAP_TEST(t_retiring_ends_idle_connections)
{
	int fd;

	server_open(&fd);
	rounds();
	KTAP_CHECK(asked(fd));
	tbg_serve_retire(&server.s);
	KTAP_CHECK(send(fd, "", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	rounds();
	KTAP_EQ(server.s.connections_nr, 0);
	server_close(fd);
}

/* The connection was made for a request, which the daemon cannot send elsewhere. */
KTAP_TEST(t_retiring_serves_what_a_new_connection_is_for)
{
	int fd;

	server_open(&fd);
	rounds();
	tbg_serve_retire(&server.s);
	rounds();
	KTAP_EQ(server.s.connections_nr, 1);
	KTAP_CHECK(asked(fd));
	rounds();
	KTAP_EQ(server.s.connections_nr, 0);
	server_close(fd);
}

/* Otherwise it would never learn that a descriptor is free again. */
KTAP_TEST(t_without_a_descriptor_for_its_first_connection_it_retires)
{
	struct rlimit was, none;
	int fd, lowest;

	server_open(&fd);
	lowest = dup(fd);
	close(lowest);
	if (lowest < 0 || getrlimit(RLIMIT_NOFILE, &was))
		abort();
	none = (struct rlimit){ lowest, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	rounds();
	setrlimit(RLIMIT_NOFILE, &was);
	KTAP_CHECK(server.s.retiring);
	KTAP_EQ(server.s.connections_nr, 0);
	server_close(fd);
}

KTAP_MAIN()
