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
#include <sys/wait.h>
#include <unistd.h>

#include "os/filter.h"
#include "os/message.h"
#include "os/pass.h"
#include "os/privilege.h"

#define WAIT_S	1		/* for an answer */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ours = -1;		/* the daemon's end, protected by the lock */
static pid_t pid;

/* The process */

static void run(int fd)
{
	int value, fds[TBG_PASS_MAX];

	while (tbg_pass_receive(fd, &value, sizeof(value), fds)) {
		value = setsockopt(fds[0], IPPROTO_TCP, TCP_REPAIR, &value, sizeof(value));
		/* close before answering: then the daemon's own close() releases the socket */
		for (int i = 0; i < TBG_PASS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		if (!tbg_pass_send(fd, &value, sizeof(value), NULL, 0))
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
