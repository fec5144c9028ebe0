/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where lines go that go to no file: syslog (RFC 5424, by a local socket or UDP)
 * and the journal. One datagram a line. Called by the log's writer thread.
 *
 *	syslog:			/dev/log
 *	syslog:/PATH		another local socket
 *	syslog:udp:ADDR:PORT	or [ADDR6]:PORT
 *	journald:
 */
#ifndef TBG_USERD_LOG_SINK_H
#define TBG_USERD_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_sink;

/* Whether a path names a sink, well or badly: "WORD:" at its begin. */
bool tbg_sink_is(const char *path);
/* What is wrong with its spelling; "": nothing. */
const char *tbg_sink_wrong(const char *path);
/* Whether it could be opened. 0 or negative errno. */
int tbg_sink_check(const char *path);

int tbg_sink_open(struct tbg_sink **ret, const char *path);
void tbg_sink_close(struct tbg_sink *s);	/* NULL is allowed */

/* Whole lines. How many bytes of them are sent; fewer: errno says why. */
size_t tbg_sink_write(struct tbg_sink *s, const char *lines, size_t len);

#endif
