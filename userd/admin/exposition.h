/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the text of /metrics in the format of Prometheus or OpenMetrics 1.0. Called by
 * the admin listener's thread. Takes no lock that a worker may wait for.
 */
#ifndef TBG_USERD_ADMIN_EXPOSITION_H
#define TBG_USERD_ADMIN_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_server;

/* Returns the text, which the caller frees, and its length; NULL: no memory. */
char *tbg_exposition(struct tbg_server *s, bool openmetrics, size_t *ret_len);

#endif
