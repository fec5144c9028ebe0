/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Destinations other than files: syslog (RFC 5424, by a local socket or UDP) and the
 * journal. One datagram per line. Called by the log's writer thread.
 *
 * syslog: /dev/log
 * syslog:/PATH another local socket
 * syslog:udp:ADDR:PORT or syslog:udp:[ADDR6]:PORT
 * journald:
 */
#ifndef TBG_USERD_LOG_SINK_H
#define TBG_USERD_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_sink;

/* Returns whether a path has the form of a sink, valid or not: "WORD:" at its start. */
bool tbg_sink_is(const char *path);
/* Returns the syntax error of a sink's name; "": none. */
const char *tbg_sink_wrong(const char *path);
/* Returns 0 if it could be opened, or a negative errno. */
int tbg_sink_check(const char *path);

int tbg_sink_open(struct tbg_sink **ret, const char *path);
void tbg_sink_close(struct tbg_sink *s);	/* accepts NULL */

/* Sends complete lines. Returns the number of bytes sent; if fewer, errno is the reason. */
size_t tbg_sink_write(struct tbg_sink *s, const char *lines, size_t len);

#endif
