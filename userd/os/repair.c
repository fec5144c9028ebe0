// SPDX-License-Identifier: GPL-2.0
/*
 * Requests and answers are messages of a socket pair, see repair.h. Workers take turns:
 * a round trip takes some 8 us, and connections are given back much less often than
 * they are used.
 */
#include "os/repair.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/filter.h"
#include "os/message.h"
#include "os/pass.h"
#include "os/privilege.h"

#define WAIT_S	1		/* for an answer */
#define KEPT_MAX 64		/* sockets in repair mode that are reset if the daemon is killed */
#define CLOSED	7		/* TCP_CLOSE of the kernel, in tcpi_state */
#define END	2		/* beside TCP_REPAIR_*: nothing is to be reset */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ours = -1;		/* the daemon's end, protected by the lock */
static pid_t pid;

/* The process */

/*
 * Sockets that were put into repair mode. If the daemon is killed while it gives one back, that
 * is reset: the kernel closes it without a packet, and its client, whose request it may have
 * acknowledged, would wait for ever. Connected: as it is. Disconnected already: by another
 * socket with its addresses and numbers, for the answer may not have left; a client that has
 * the answer ignores such a reset, which is below its window. One socket for each worker; with
 * more, some are not here.
 */
struct kept {
	int fd;			/* -1: disconnected, or nothing */
	unsigned int at;	/* which one of all it was, 0: nothing */
	struct sockaddr_storage local, remote;
	socklen_t len;		/* of each address */
	uint32_t sent, received;	/* the next numbers */
	int interface, mark;
};

static struct kept kept[KEPT_MAX];
static unsigned int kept_nr;	/* of all */

static bool is_connected(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) && info.tcpi_state != CLOSED;
}

static bool is_same(int one, int other)
{
	struct stat a, b;

	return !fstat(one, &a) && !fstat(other, &b) && a.st_ino == b.st_ino;
}

/* Closes those that are disconnected, and forgets this one. */
static void kept_clean(int fd)
{
	for (struct kept *k = kept; k < kept + KEPT_MAX; k++) {
		bool same = k->fd >= 0 && is_same(k->fd, fd);

		if (k->fd < 0 || (!same && is_connected(k->fd)))
			continue;
		close(k->fd);
		k->fd = -1;
		if (same)
			k->at = 0;
	}
}

static uint32_t number_get(int fd, int queue)
{
	uint32_t ret = 0;
	socklen_t len = sizeof(ret);

	setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue));
	getsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &ret, &len);
	return ret;
}

static bool number_set(int fd, int queue, uint32_t number)
{
	return !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof(queue)) &&
	       !setsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &number, sizeof(number));
}

/* In place of nothing, or of the oldest that is disconnected. Returns whether it is kept. */
static bool kept_add(int fd)
{
	struct kept *k = NULL;
	socklen_t remote_len = sizeof(k->remote), len = sizeof(k->interface);

	for (struct kept *i = kept; i < kept + KEPT_MAX; i++)
		if (i->fd < 0 && (!k || i->at < k->at))
			k = i;
	if (!k)
		return false;
	*k = (struct kept){ .fd = fd, .at = ++kept_nr, .len = sizeof(k->local) };
	if (getsockname(fd, (void *)&k->local, &k->len) ||
	    getpeername(fd, (void *)&k->remote, &remote_len))
		k->at = 0;
	k->sent = number_get(fd, TCP_SEND_QUEUE);
	k->received = number_get(fd, TCP_RECV_QUEUE);
	getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &k->interface, &len);
	getsockopt(fd, SOL_SOCKET, SO_MARK, &k->mark, &len);
	return true;
}

/* Makes it anew, in repair mode. Fails where another connection has its addresses. */
static int connect_anew(const struct kept *k)
{
	const int on = TCP_REPAIR_ON, no = 0;
	int fd = socket(k->local.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (k->local.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	setsockopt(fd, SOL_SOCKET, SO_MARK, &k->mark, sizeof(k->mark));
	if (!setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) &&
	    !setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &k->interface, sizeof(k->interface)) &&
	    number_set(fd, TCP_SEND_QUEUE, k->sent) &&
	    number_set(fd, TCP_RECV_QUEUE, k->received) &&
	    !bind(fd, (const void *)&k->local, k->len) &&
	    !connect(fd, (const void *)&k->remote, k->len))
		return fd;
	close(fd);
	return -1;
}

static void kept_reset(void)
{
	const struct linger now = { .l_onoff = 1 };
	const int off = TCP_REPAIR_OFF_NO_WP;

	for (struct kept *k = kept; k < kept + KEPT_MAX; k++) {
		int fd = k->fd >= 0 && is_connected(k->fd) ? k->fd :
			 k->at ? connect_anew(k) : -1;

		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fd);
	}
}

/* Returns whether the daemon has ended without a word. */
static bool run(int fd)
{
	int value, err, fds[TBG_PASS_MAX];

	while (tbg_pass_receive(fd, &value, sizeof(value), fds)) {
		if (value == END)
			return false;
		err = setsockopt(fds[0], IPPROTO_TCP, TCP_REPAIR, &value, sizeof(value));
		kept_clean(fds[0]);
		if (!err && value == TCP_REPAIR_ON && kept_add(fds[0]))
			fds[0] = -1;
		/* close before answering: then the daemon's own close() releases the socket */
		for (int i = 0; i < TBG_PASS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		if (!tbg_pass_send(fd, &err, sizeof(err), NULL, 0))
			break;
	}
	return true;
}

static void child_main(const struct tbg_identity *id, int fd)
{
	prctl(PR_SET_NAME, "tbg-repair");
	tbg_pass_alone(fd);
	if (tbg_privilege_repairer(id) || tbg_filter_load(TBG_FILTER_PROGRAM))
		_exit(1);
	for (struct kept *k = kept; k < kept + KEPT_MAX; k++)
		k->fd = -1;
	if (run(fd))
		kept_reset();
	_exit(0);
}

/* The daemon */

int tbg_repair_start(const struct tbg_identity *id)
{
	int fd = tbg_pass_fork(WAIT_S, &pid);

	if (fd < 0)
		return fd;
	if (!pid)
		child_main(id, fd);
	ours = fd;
	return 0;
}

/* Ends the process. */
static void end(void)
{
	int value = END;

	tbg_pass_send(ours, &value, sizeof(value), NULL, 0);
	close(ours);
	ours = -1;
}

/* Called with the lock held. */
static enum tbg_repaired ask(int fd, int value)
{
	int answer, fds[TBG_PASS_MAX];

	if (ours < 0 || !tbg_pass_send(ours, &value, sizeof(value), &fd, 1))
		return TBG_REPAIR_NO;
	if (tbg_pass_receive(ours, &answer, sizeof(answer), fds))
		return answer ? TBG_REPAIR_NO : TBG_REPAIR_DONE;
	/* a late answer would be taken for that of the next request */
	end();
	tbg_warn("toboggand: tbg-repair, pid %d, does not answer: no connection is given back to wire any more; restart the daemon",
		 pid);
	return TBG_REPAIR_UNKNOWN;
}

enum tbg_repaired tbg_repair_set(int fd, bool on)
{
	enum tbg_repaired ret;

	pthread_mutex_lock(&lock);
	ret = ask(fd, on ? TCP_REPAIR_ON : TCP_REPAIR_OFF_NO_WP);
	pthread_mutex_unlock(&lock);
	return ret;
}

void tbg_repair_stop(void)
{
	if (pid <= 0)
		return;
	if (ours >= 0)
		end();
	waitpid(pid, NULL, 0);
	pid = 0;
}
