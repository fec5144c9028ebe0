/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the daemon and toboggan-gateway say on stderr. Whoever does not read it holds
 * up nothing: a thread waits at most 10 ms of a second, then lines are lost,
 * and counted in the first that is read again. Between the look and the write another
 * process may take the last room of a pipe that both share: that is not seen.
 */
#ifndef TBG_USERD_SAY_H
#define TBG_USERD_SAY_H

/* A line on stderr, in one write: whole, whoever else writes there. */
__attribute__((format(printf, 1, 2)))
void tbg_report(const char *format, ...);

#endif
