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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ours = -1;		/* the daemon's end, protected by the lock */
static pid_t pid;

/* The process */

/*
 * Sockets in repair mode, until the daemon has disconnected them. If it is killed before, they
 * are reset: the kernel closes them without a packet, and their clients, whose requests it may
 * have acknowledged, would wait for ever. One for each worker; with more, some are not here.
 */
static int kept[KEPT_MAX];
static unsigned int kept_nr;

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

/* Forgets those that are disconnected, and this one. */
static void kept_clean(int fd)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < kept_nr; i++)
		if (is_connected(kept[i]) && !is_same(kept[i], fd))
			kept[nr++] = kept[i];
		else
			close(kept[i]);
	kept_nr = nr;
}

static void kept_reset(void)
{
	const struct linger now = { .l_onoff = 1 };
	const int off = TCP_REPAIR_OFF_NO_WP;

	for (unsigned int i = 0; i < kept_nr; i++) {
		if (is_connected(kept[i])) {
			setsockopt(kept[i], IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
			setsockopt(kept[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		}
		close(kept[i]);
	}
}

static void run(int fd)
{
	int value, err, fds[TBG_PASS_MAX];

	while (tbg_pass_receive(fd, &value, sizeof(value), fds)) {
		err = setsockopt(fds[0], IPPROTO_TCP, TCP_REPAIR, &value, sizeof(value));
		kept_clean(fds[0]);
		if (!err && value == TCP_REPAIR_ON && kept_nr < KEPT_MAX) {
			kept[kept_nr++] = fds[0];
			fds[0] = -1;
		}
		/* close before answering: then the daemon's own close() releases the socket */
		for (int i = 0; i < TBG_PASS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		if (!tbg_pass_send(fd, &err, sizeof(err), NULL, 0))
			return;
	}
}

static void child_main(const struct tbg_identity *id, int fd)
{
	prctl(PR_SET_NAME, "tbg-repair");
	tbg_pass_alone(fd);
	if (tbg_privilege_repairer(id) || tbg_filter_load(TBG_FILTER_PROGRAM))
		_exit(1);
	run(fd);
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

/* Called with the lock held. */
static enum tbg_repaired ask(int fd, int value)
{
	int answer, fds[TBG_PASS_MAX];

	if (ours < 0 || !tbg_pass_send(ours, &value, sizeof(value), &fd, 1))
		return TBG_REPAIR_NO;
	if (tbg_pass_receive(ours, &answer, sizeof(answer), fds))
		return answer ? TBG_REPAIR_NO : TBG_REPAIR_DONE;
	/* a late answer would be taken for that of the next request */
	close(ours);
	ours = -1;
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
		close(ours);
	ours = -1;
	waitpid(pid, NULL, 0);
	pid = 0;
}
