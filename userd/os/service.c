// SPDX-License-Identifier: GPL-2.0
/*
 * One datagram per message. The socket's path is opened for each: it remains the same
 * when privileges are dropped, and messages are rare.
 */
#include "os/service.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/clock.h"

static struct {
	struct sockaddr_un to;
	socklen_t to_len;		/* 0: no manager */
	uint64_t beat_ns, due_ns;	/* 0: no watchdog */
	unsigned int sockets;
} service;

static unsigned long long number(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : 0;
}

/* Returns whether the variable is meant for this process, not for its parent. */
static bool is_ours(const char *name)
{
	return !getenv(name) || number(name) == (unsigned long long)getpid();
}

static void sockets_take(void)
{
	service.sockets = getenv("LISTEN_PID") && is_ours("LISTEN_PID") ?
			  number("LISTEN_FDS") : 0;
	for (unsigned int i = 0; i < service.sockets; i++) {
		int fd = TBG_SERVICE_FDS + i, flags = fcntl(fd, F_GETFL);

		if (flags < 0) {
			service.sockets = i;
			break;
		}
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	}
}

void tbg_service_begin(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	if (len > 1 && len < sizeof(service.to.sun_path) && strchr("/@", *path)) {
		service.to.sun_family = AF_UNIX;
		memcpy(service.to.sun_path, path, len);
		if (*path == '@')
			service.to.sun_path[0] = 0;
		service.to_len = offsetof(struct sockaddr_un, sun_path) + len;
	}
	/* twice as often as required */
	if (service.to_len && is_ours("WATCHDOG_PID"))
		service.beat_ns = number("WATCHDOG_USEC") * 1000 / 2;
	sockets_take();
	/* programs that the daemon starts are not the service */
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
}

void tbg_service_notify(const char *state)
{
	int fd;

	if (!service.to_len)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&service.to,
	       service.to_len);
	close(fd);
}

void tbg_service_reloading(void)
{
	char text[80];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)tbg_mono_ns() / 1000);
	tbg_service_notify(text);
}

void tbg_service_stopping(unsigned int most_ms)
{
	char text[80];

	snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", most_ms * 1000ull);
	tbg_service_notify(text);
}

void tbg_service_beat(uint64_t now_ns)
{
	if (!service.beat_ns || now_ns < service.due_ns)
		return;
	service.due_ns = now_ns + service.beat_ns;
	tbg_service_notify("WATCHDOG=1");
}

unsigned int tbg_service_sockets(void)
{
	return service.sockets;
}
