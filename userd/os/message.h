/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the daemon and toboggan-gateway say on stderr. Whoever does not read it holds
 * up nothing: a thread waits at most 10 ms of a second, then lines are lost,
 * and counted in the first that is read again. Between the look and the write another
 * process may take the last room of a pipe that both share: that is not seen.
 */
#ifndef TBG_USERD_OS_MESSAGE_H
#define TBG_USERD_OS_MESSAGE_H

/* X(level, its name in --log-level), the gravest first. */
#define TBG_REPORT_LIST(X) \
	X(ERROR, "error")	/* something fails, or does not start */ \
	X(WARNING, "warning")	/* it goes on, but slower, or with less */ \
	X(NOTICE, "notice")	/* a change of state that an operator wants to know of */ \
	X(DEBUG, "debug")	/* one request that failed, for who looks for the cause */

enum tbg_report_level {
#define X(level, name) TBG_REPORT_##level,
	TBG_REPORT_LIST(X)
#undef X
	TBG_REPORT_NR
};

const char *tbg_report_level_name(unsigned int level);

/* Lines of higher levels are left out from now on. Before: NOTICE. Any thread. */
void tbg_report_level_set(enum tbg_report_level level);

/* A line on stderr, in one write: whole, whoever else writes there. */
__attribute__((format(printf, 2, 3)))
void tbg_report_at(enum tbg_report_level level, const char *format, ...);

#define tbg_report(...)	tbg_report_at(TBG_REPORT_ERROR, __VA_ARGS__)
#define tbg_warn(...)	tbg_report_at(TBG_REPORT_WARNING, __VA_ARGS__)
#define tbg_notice(...)	tbg_report_at(TBG_REPORT_NOTICE, __VA_ARGS__)
#define tbg_debug(...)	tbg_report_at(TBG_REPORT_DEBUG, __VA_ARGS__)

#endif
