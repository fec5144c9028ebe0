// SPDX-License-Identifier: GPL-2.0
/*
 * One lock: between poll() and write(), another thread could fill the pipe. Another
 * process that writes to it, such as a program, still could; therefore the write does
 * not wait.
 */
#include "os/message.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/limits.h>

#include "os/clock.h"

#define LOST_LEN	100
#define LINE_LEN	(PIPE_BUF - LOST_LEN)
#define STUCK_MS	10	/* maximum wait for stderr */
#define STUCK_NS	1000000000ull	/* until the next wait */

static struct {
	pthread_mutex_t lock;
	uint64_t stuck_ns;	/* when the last wait failed */
	unsigned int lost;	/* lines since then */
} output = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool takes(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	bool waits = !output.stuck_ns || tbg_mono_ns() - output.stuck_ns > STUCK_NS;

	if (poll(&p, 1, waits ? STUCK_MS : 0) > 0) {
		output.stuck_ns = 0;
		return true;
	}
	if (waits)
		output.stuck_ns = tbg_mono_ns();
	return false;
}

/*
 * Returns false if stderr is full. Before Linux 6.4, a write to a pipe waits
 * nevertheless. A write to a file may wait for its disk, never for a reader.
 */
static bool write_line(char *line, size_t len)
{
	struct iovec iov = { .iov_base = line, .iov_len = len };
	struct stat st;
	bool file = fstat(STDERR_FILENO, &st) || S_ISREG(st.st_mode);
	ssize_t n = file ? -1 : pwritev2(STDERR_FILENO, &iov, 1, -1, RWF_NOWAIT);

	if (file || (n < 0 && errno != EAGAIN))
		n = write(STDERR_FILENO, line, len);
	return n == (ssize_t)len;
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
	pthread_mutex_lock(&output.lock);
	if (!takes()) {
		output.lost++;
		goto out;
	}
	if (output.lost)
		n += snprintf(line + n, LOST_LEN, "\nstderr: nobody read it; %u lines before the last one are lost",
			      output.lost);
	line[n++] = '\n';
	if (write_line(line, n))
		output.lost = 0;
	else
		output.lost++;
out:
	pthread_mutex_unlock(&output.lock);
}
