/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The text of /metrics, in the format of Prometheus or of OpenMetrics 1.0. Called
 * by the admin listener's thread; reads counters and takes no lock that a worker
 * holds for longer than one addition.
 */
#ifndef TBG_USERD_ADMIN_EXPOSITION_H
#define TBG_USERD_ADMIN_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_server;

/* The text, to be freed, and its length; NULL: no memory. */
char *tbg_exposition(struct tbg_server *s, bool openmetrics, size_t *ret_len);

#endif
