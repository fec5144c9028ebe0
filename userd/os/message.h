/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of the daemon and toboggan-gateway on stderr. A reader that does not read
 * blocks neither: a thread waits at most 10 ms per second; further lines are dropped
 * and counted in the next line that is written. Another process may fill a shared pipe
 * between poll() and write(); on kernels before 6.4 that write blocks.
 */
#ifndef TBG_USERD_OS_MESSAGE_H
#define TBG_USERD_OS_MESSAGE_H

/* X(level, its name in --log-level), the most severe first */
#define TBG_REPORT_LIST(X) \
	X(ERROR, "error")	/* something fails, or does not start */ \
	X(WARNING, "warning")	/* operation continues, but slower or with less */ \
	X(NOTICE, "notice")	/* a change of state that concerns the operator */ \
	X(DEBUG, "debug")	/* one failed request, to find the cause */

enum tbg_report_level {
#define X(level, name) TBG_REPORT_##level,
	TBG_REPORT_LIST(X)
#undef X
	TBG_REPORT_NR
};

const char *tbg_report_level_name(unsigned int level);

/* Drops lines of less severe levels from now on. The default is NOTICE. Any thread. */
void tbg_report_level_set(enum tbg_report_level level);

/* Writes a line to stderr in one write, so that lines of several processes do not mix. */
__attribute__((format(printf, 2, 3)))
void tbg_report_at(enum tbg_report_level level, const char *format, ...);

#define tbg_report(...)	tbg_report_at(TBG_REPORT_ERROR, __VA_ARGS__)
#define tbg_warn(...)	tbg_report_at(TBG_REPORT_WARNING, __VA_ARGS__)
#define tbg_notice(...)	tbg_report_at(TBG_REPORT_NOTICE, __VA_ARGS__)
#define tbg_debug(...)	tbg_report_at(TBG_REPORT_DEBUG, __VA_ARGS__)

#endif
