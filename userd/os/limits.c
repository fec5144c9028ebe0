// SPDX-License-Identifier: GPL-2.0
/*
 * One counter for all workers: SO_REUSEPORT distributes connections unevenly, so a
 * limit per worker would refuse connections while other workers are idle.
 */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "os/limits.h"
#include "os/sysctl.h"

/*
 * Descriptors besides those of the daemon and its connections: a few for the control
 * socket and files that remain open; of the rest half, up to this number, for files and
 * idle connections to upstreams.
 */
#define FILES_FEW   8
#define FILES_OTHER 512

/*
 * One connection in four may send a large file at a time; beyond that, 503. With
 * upstreams, each may need one more descriptor, as long as a tunnel lasts.
 */
static rlim_t files_for(rlim_t conns, bool upstreams)
{
	return conns + (upstreams ? conns : (conns + 3) / 4);
}

static atomic_uint conn_max = 1;	/* a reload changes it while workers run */
static atomic_uint conn_nr;
static unsigned int files_own;		/* open in a daemon without connections */

void tbg_conn_limit_own(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int nr = 0;
	struct rlimit r;

	if (!dir && errno == EMFILE && !getrlimit(RLIMIT_NOFILE, &r))
		files_own = r.rlim_cur;
	if (!dir)
		return;
	while (readdir(dir))
		nr++;
	closedir(dir);
	files_own = nr - 3;		/* ".", ".." and dir */
}

unsigned int tbg_conn_limit_least(void)
{
	return files_own + FILES_FEW + 3;
}

/* Returns the number of connections for which that many descriptors suffice; monotonic. */
static rlim_t conns_of(rlim_t files, bool upstreams)
{
	rlim_t few = files_own + FILES_FEW;
	rlim_t left = files > few ? files - few : 0;
	rlim_t other = left / 2 < FILES_OTHER ? left / 2 : FILES_OTHER;

	return upstreams ? (left - other) / 2 : (left - other) * 4 / 5;
}

/* Returns the maximum for any process: not even root can raise a limit beyond it. */
static rlim_t files_most(void)
{
	return tbg_sysctl("/proc/sys/fs/nr_open", 0);
}

/* Raises the limit to `need`, or as far as permitted: first as root, then without privilege. */
static void files_raise(rlim_t need, const struct rlimit *had)
{
	rlim_t most = files_most();
	struct rlimit more = {};

	more.rlim_cur = most && most < need ? most : need;
	more.rlim_max = had->rlim_max > more.rlim_cur ? had->rlim_max : more.rlim_cur;
	if (!setrlimit(RLIMIT_NOFILE, &more))
		return;
	more.rlim_cur = had->rlim_max < need ? had->rlim_max : need;
	more.rlim_max = had->rlim_max;
	setrlimit(RLIMIT_NOFILE, &more);
}

unsigned int tbg_conn_limit_set(unsigned int wanted, bool upstreams)
{
	rlim_t need = files_own + FILES_FEW + FILES_OTHER +
		      files_for(wanted, upstreams);
	unsigned int max = wanted;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return conn_max = max;
	if (r.rlim_cur < need) {
		files_raise(need, &r);
		getrlimit(RLIMIT_NOFILE, &r);
	}
	if (conns_of(r.rlim_cur, upstreams) < max)
		max = conns_of(r.rlim_cur, upstreams);
	conn_max = max ?: 1;
	return max;
}

bool tbg_conn_limit_conn_get(void)
{
	unsigned int max = atomic_load_explicit(&conn_max, memory_order_relaxed);
	unsigned int nr = atomic_load_explicit(&conn_nr, memory_order_relaxed);

	do {
		if (nr >= max)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&conn_nr, &nr, nr + 1,
							memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

void tbg_conn_limit_conn_put(void)
{
	atomic_fetch_sub_explicit(&conn_nr, 1, memory_order_relaxed);
}

unsigned int tbg_conn_limit_conn_left(void)
{
	unsigned int max = atomic_load_explicit(&conn_max, memory_order_relaxed);
	unsigned int nr = atomic_load_explicit(&conn_nr, memory_order_relaxed);

	/* a reload may have lowered the limit below the number */
	return nr < max ? max - nr : 0;
}

static _Atomic int64_t output_held;
static int64_t output_max = INT64_MAX;

void tbg_output_limit_set(uint64_t bytes)
{
	output_max = bytes;
}

bool tbg_output_hold(int64_t bytes)
{
	int64_t held = atomic_fetch_add_explicit(&output_held, bytes, memory_order_relaxed);

	if (bytes <= 0 || held + bytes <= output_max)
		return true;
	atomic_fetch_sub_explicit(&output_held, bytes, memory_order_relaxed);
	return false;
}

bool tbg_output_tight(void)
{
	return atomic_load_explicit(&output_held, memory_order_relaxed) > output_max / 2;
}
