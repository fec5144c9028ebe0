// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan log`: shows requests as they are answered, one a line, until it is interrupted.
 * The daemon filters. Where it had to drop lines, their number is shown. Called by the
 * command line alone.
 */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "ask.h"
#include "fault.h"
#include "show.h"

#define ROOM	(256u << 10)	/* for received lines; one has 160K at most */

/* What has been read from the daemon. */
struct lines {
	const struct tbg_given *opt;
	int fd;
	char b[ROOM];
	size_t len;
	bool begun;		/* the daemon has accepted the filter */
	long long left;		/* lines until the end; -1: none */
	int ret;		/* the exit status, once it is over */
	bool over;
};

static json_t *request_pack(const struct tbg_given *opt)
{
	const char *const options[][2] = {
		{ "host", opt->host }, { "tier", opt->tier }, { "status", opt->status },
		{ "slow", opt->slow }, { "path", opt->path },
	};
	json_t *ret = json_pack("{s:s}", "cmd", "log");

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		if (options[i][1])
			json_object_set_new(ret, options[i][0], json_string(options[i][1]));
	return ret;
}

static void end(struct lines *l, int ret)
{
	l->ret = ret;
	l->over = true;
}

static void lost_show(struct lines *l, const json_t *a, const char *line)
{
	fflush(stdout);
	if (l->opt->json)
		puts(line);
	else
		tbg_fault_print("log: %lld lines lost here: too many requests to show all; use a filter",
				number_of(a, "lost"));
}

static void request_show(struct lines *l, const json_t *a, const char *line)
{
	if (l->opt->json) {
		puts(line);
		return;
	}
	printf("%s %-4s %lld %.6f ", text_of(a, "time"), text_of(a, "tier"),
	       number_of(a, "status"), json_real_value(json_object_get(a, "seconds")));
	print_safe(text_of(a, "client"), 0);
	putchar(' ');
	print_safe(text_of(a, "host"), 0);
	printf(" \"");
	print_safe(text_of(a, "request"), 0);
	printf("\" %lld %s\n", number_of(a, "body"), text_of(a, "reason"));
}

static void line_take(struct lines *l, const char *line, size_t len)
{
	json_t *a = json_loadb(line, len, JSON_ALLOW_NUL, NULL);

	if (!a) {
		tbg_fault_print("log: the server at %s is not toboggand; give --control PATH",
				l->opt->control);
		end(l, EXIT_FAILURE);
	} else if (!l->begun && !true_of(a, "ok")) {
		tbg_fault_print("log: %s", text_of(a, "error"));
		end(l, EXIT_FAILURE);
	} else if (!l->begun) {
		l->begun = true;
		if (l->opt->json)
			puts(line);
	} else if (json_object_get(a, "lost")) {
		lost_show(l, a, line);
	} else {
		request_show(l, a, line);
		if (l->left > 0 && !--l->left)
			end(l, EXIT_SUCCESS);
	}
	json_decref(a);
}

static void whole_take(struct lines *l)
{
	char *at = l->b, *lf;

	while (!l->over && (lf = memchr(at, '\n', l->b + l->len - at))) {
		*lf = 0;
		line_take(l, at, lf - at);
		at = lf + 1;
	}
	l->len -= at - l->b;
	memmove(l->b, at, l->len);
}

static void some_read(struct lines *l)
{
	ssize_t n = recv(l->fd, l->b + l->len, sizeof(l->b) - l->len, 0);

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		tbg_fault_print("log: daemon at %s: %s", l->opt->control,
				n ? strerror(errno == EAGAIN ? ETIMEDOUT : errno) : "connection closed");
		end(l, EXIT_FAILURE);
		return;
	}
	l->len += n;
	whole_take(l);
	if (fflush(stdout))
		end(l, tbg_fault_print("stdout: %s", strerror(errno)));
	/* after the first line there may be nothing to receive for a long time */
	if (l->begun)
		setsockopt(l->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ 0 },
			   sizeof(struct timeval));
}

int tbg_log_run(const struct tbg_given *opt, int argc, char **argv)
{
	static struct lines l;
	json_t *req = request_pack(opt);
	int err;

	l.opt = opt;
	l.left = opt->limit > 0 ? opt->limit : -1;
	l.fd = tbg_control_connect(opt->control);
	if (l.fd < 0)
		return EXIT_FAILURE;
	err = tbg_line_send(l.fd, req);
	json_decref(req);
	if (err)
		return tbg_fault_print("log: daemon at %s: %s", opt->control, strerror(-err));
	while (!l.over)
		some_read(&l);
	close(l.fd);
	return l.ret;
}
