// SPDX-License-Identifier: GPL-2.0
/*
 * A socket that is connected once, and again after its peer was restarted. Waiting for
 * a full socket is limited as for a file.
 */
#include "log/sink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOCAL		"/dev/log"
#define JOURNAL		"/run/systemd/journal/socket"
#define PRIORITY	(3 * 8 + 6)	/* daemon.info (RFC 5424 6.2.1) */
#define STUCK_MS	1000
#define HEAD_ROOM	512
#define LINE_SHORT	1024		/* of a line that exceeds a datagram */

enum kind { SYSLOG_LOCAL, SYSLOG_UDP, JOURNALD };

struct tbg_sink {
	enum kind kind;
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} to;
	socklen_t to_len;
	int fd;
	char host[256];
};

bool tbg_sink_is(const char *path)
{
	size_t len = strspn(path, "abcdefghijklmnopqrstuvwxyz");

	return len && path[len] == ':';
}

static bool local_parse(const char *path, struct tbg_sink *ret)
{
	ret->to.local.sun_family = AF_UNIX;
	ret->to_len = sizeof(ret->to.local);
	if (!*path || strlen(path) >= sizeof(ret->to.local.sun_path))
		return false;
	strcpy(ret->to.local.sun_path, path);
	return true;
}

static bool udp_parse(const char *at, struct tbg_sink *ret)
{
	const char *colon = strrchr(at, ':');
	char host[INET6_ADDRSTRLEN + 2], *end;
	unsigned long port;
	size_t len;

	if (!colon || (len = colon - at) >= sizeof(host))
		return false;
	port = strtoul(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end || !port || port > 65535)
		return false;
	if (len > 2 && *at == '[' && at[len - 1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, at + 1);
		ret->to.six.sin6_family = AF_INET6;
		ret->to.six.sin6_port = htons(port);
		ret->to_len = sizeof(ret->to.six);
		return inet_pton(AF_INET6, host, &ret->to.six.sin6_addr) == 1;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, at);
	ret->to.four.sin_family = AF_INET;
	ret->to.four.sin_port = htons(port);
	ret->to_len = sizeof(ret->to.four);
	return inet_pton(AF_INET, host, &ret->to.four.sin_addr) == 1;
}

/* Returns the syntax error; "": none. */
static const char *parse(const char *path, struct tbg_sink *ret)
{
	*ret = (struct tbg_sink){ .fd = -1 };
	if (!strcmp(path, "journald:")) {
		ret->kind = JOURNALD;
		return local_parse(JOURNAL, ret) ? "" : "journald: the path is too long";
	}
	if (strncmp(path, "syslog:", 7))
		return "no such kind of log";
	path += 7;
	if (!strncmp(path, "udp:", 4)) {
		ret->kind = SYSLOG_UDP;
		return udp_parse(path + 4, ret) ? "" : "no address and port after syslog:udp:";
	}
	ret->kind = SYSLOG_LOCAL;
	if (*path && *path != '/')
		return "no path after syslog:";
	return local_parse(*path ? path : LOCAL, ret) ? "" : "the socket's path is too long";
}

const char *tbg_sink_wrong(const char *path)
{
	struct tbg_sink s;

	return parse(path, &s);
}

static int sink_connect(struct tbg_sink *s)
{
	int fd = socket(s->to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, &s->to.any, s->to_len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	if (s->fd >= 0)
		close(s->fd);
	s->fd = fd;
	return 0;
}

int tbg_sink_check(const char *path)
{
	struct tbg_sink s;
	int err = *parse(path, &s) ? -EINVAL : sink_connect(&s);

	if (!err)
		close(s.fd);
	return err;
}

int tbg_sink_open(struct tbg_sink **ret, const char *path)
{
	struct tbg_sink *s = malloc(sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	err = *parse(path, s) ? -EINVAL : sink_connect(s);
	if (err) {
		free(s);
		return err;
	}
	if (gethostname(s->host, sizeof(s->host) - 1) || !*s->host)
		strcpy(s->host, "-");
	*ret = s;
	return 0;
}

void tbg_sink_close(struct tbg_sink *s)
{
	if (!s)
		return;
	close(s->fd);
	free(s);
}

/* RFC 5424 6: "<PRI>1 TIMESTAMP HOST APP PROCID MSGID SD " */
static int syslog_head(const struct tbg_sink *s, char ret[HEAD_ROOM])
{
	struct timeval now;
	char stamp[40];
	struct tm tm;

	gettimeofday(&now, NULL);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%FT%T", &tm);
	return snprintf(ret, HEAD_ROOM, "<%d>1 %s.%06ldZ %s toboggand %d access - ", PRIORITY,
			stamp, (long)now.tv_usec, s->host, (int)getpid());
}

static int journal_head(char ret[HEAD_ROOM])
{
	return snprintf(ret, HEAD_ROOM, "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=toboggand\nMESSAGE=");
}

/* Returns false with errno set on failure. */
static bool line_send(struct tbg_sink *s, const char *line, size_t len)
{
	char head[HEAD_ROOM];
	int n = s->kind == JOURNALD ? journal_head(head) : syslog_head(s, head);
	struct iovec iov[3] = { { head, n }, { (char *)line, len }, { "\n", 1 } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = s->kind == JOURNALD ? 3 : 2 };
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };

	for (int i = 0; i < 3; i++) {
		if (sendmsg(s->fd, &m, MSG_NOSIGNAL) >= 0)
			return true;
		if (errno == EAGAIN || errno == ENOBUFS) {
			if (poll(&p, 1, STUCK_MS) < 1)
				return false;
		} else if (errno == EMSGSIZE && iov[1].iov_len > LINE_SHORT) {
			iov[1].iov_len = LINE_SHORT;
		} else if (errno == EMSGSIZE || sink_connect(s)) {
			return false;
		}
		p.fd = s->fd;
	}
	return false;
}

size_t tbg_sink_write(struct tbg_sink *s, const char *lines, size_t len)
{
	size_t done = 0;

	while (done < len) {
		const char *end = memchr(lines + done, '\n', len - done);
		size_t n = end ? (size_t)(end - lines) - done : len - done;

		if (n && !line_send(s, lines + done, n))
			break;
		done += n + (end != NULL);
	}
	return done;
}
