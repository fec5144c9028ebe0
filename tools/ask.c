// SPDX-License-Identifier: GPL-2.0
/*
 * Sends requests to the daemon: connects to its control socket, sends a line of JSON, and
 * waits for the line that answers it. Called by all commands; must never wait for
 * ever, whatever state the daemon is in.
 */
#include "ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "abi/version.h"
#include "fault.h"
#include "show.h"

#define WAIT_MS		30000

json_t *tbg_text_encode(const char *text, const char *also)
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

json_t *tbg_url_pack(const char *url)
{
	return json_string(url) ?: tbg_text_encode(url, "");
}

int tbg_control_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = WAIT_MS / 1000 };
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		tbg_fault_print("--control %s: a socket's path has at most %zu bytes",
				path, sizeof(addr.sun_path) - 1);
		return -1;
	}
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* the queue of a stopped daemon may be full: connect() would then wait forever */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	err = errno;
	if (err == EAGAIN)
		tbg_fault_print("daemon at %s has accepted no connection for %d s; check that it is not stopped",
				path, WAIT_MS / 1000);
	else if (err == EACCES || err == EPERM)
		tbg_fault_print("%s: %s; only the daemon's owner may use the control socket: run as root or as that user",
				path, strerror(err));
	else
		tbg_fault_print("no daemon at %s: %s; start toboggand or give --control PATH",
				path, strerror(err));
	if (fd >= 0)
		close(fd);
	return -1;
}

int tbg_line_send(int fd, json_t *req)
{
	char *text = json_object_set_new(req, "version", json_string(TBG_VERSION)) ? NULL :
		     json_dumps(req, JSON_COMPACT);
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

json_t *tbg_control_ask(const struct tbg_given *opt, json_t *req,
			void (*progress)(const json_t *line))
{
	const char *cmd = text_of(req, "cmd");
	int fd = tbg_control_connect(opt->control), err = 0;
	FILE *from = fd < 0 ? NULL : fdopen(fd, "r");
	json_t *ret = NULL;
	char *line = NULL;
	size_t len;

	if (!from)
		goto out;
	err = tbg_line_send(fd, req);
	do {
		free(line);
		json_decref(ret);
		line = err ? NULL : line_recv(from, &len);
		ret = line ? json_loadb(line, len, JSON_ALLOW_NUL, NULL) : NULL;
		if (ret && true_of(ret, "progress") && progress)
			progress(ret);
	} while (ret && true_of(ret, "progress"));
	if (!line) {
		tbg_fault_print("%s: daemon at %s: %s; see its messages on stderr, and toboggan status",
				cmd, opt->control, strerror(err ? -err : errno));
	} else if (!ret) {
		tbg_fault_print("%s: the server at %s is not toboggand; give --control PATH",
				cmd, opt->control);
	} else if (!true_of(ret, "ok")) {
		tbg_fault_print("%s: %s", cmd, text_of(ret, "error"));
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

int tbg_control_show(const struct tbg_given *opt, json_t *req,
		     void (*show)(const json_t *answer))
{
	json_t *a = tbg_control_ask(opt, req, NULL);

	if (!a)
		return EXIT_FAILURE;
	if (!opt->json)
		show(a);
	json_decref(a);
	return EXIT_SUCCESS;
}

int tbg_control_list(const struct tbg_given *opt, const char *cmd,
		     void (*show)(const json_t *answer))
{
	json_int_t limit = opt->limit < 0 ? 0 : opt->limit;

	return tbg_control_show(opt, json_pack("{s:s, s:I}", "cmd", cmd, "limit", limit), show);
}
