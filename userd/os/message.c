// SPDX-License-Identifier: GPL-2.0
/*
 * One lock: between poll() and write() another thread might fill the pipe.
 */
#include "os/message.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <linux/limits.h>

#include "os/clock.h"

#define LOST_LEN	100
#define LINE_LEN	(PIPE_BUF - LOST_LEN)
#define STUCK_MS	10	/* for stderr to take a line */
#define STUCK_NS	1000000000ull	/* until it is waited for again */

static struct {
	pthread_mutex_t lock;
	uint64_t stuck_ns;	/* when it was waited for in vain */
	unsigned int lost;	/* lines since */
} said = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool takes(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	bool waits = !said.stuck_ns || tbg_mono_ns() - said.stuck_ns > STUCK_NS;

	if (poll(&p, 1, waits ? STUCK_MS : 0) > 0) {
		said.stuck_ns = 0;
		return true;
	}
	if (waits)
		said.stuck_ns = tbg_mono_ns();
	return false;
}

static _Atomic enum tbg_report_level most = TBG_REPORT_NOTICE;

const char *tbg_report_level_name(unsigned int level)
{
	static const char *const names[] = {
#define X(level, name) name,
		TBG_REPORT_LIST(X)
#undef X
	};

	return level < TBG_REPORT_NR ? names[level] : "?";
}

void tbg_report_level_set(enum tbg_report_level level)
{
	most = level;
}

void tbg_report_at(enum tbg_report_level level, const char *format, ...)
{
	char line[LINE_LEN + LOST_LEN];
	va_list args;
	int n;

	if (level > most)
		return;
	va_start(args, format);
	n = vsnprintf(line, LINE_LEN, format, args);
	va_end(args);
	if (n > LINE_LEN - 1)
		n = LINE_LEN - 1;
	pthread_mutex_lock(&said.lock);
	if (!takes()) {
		said.lost++;
		goto out;
	}
	if (said.lost)
		n += snprintf(line + n, LOST_LEN, "\nstderr: nobody read it; %u lines before the last one are lost",
			      said.lost);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) == n)
		said.lost = 0;
out:
	pthread_mutex_unlock(&said.lock);
}
