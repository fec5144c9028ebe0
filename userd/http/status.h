/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TBG_USERD_HTTP_STATUS_H
#define TBG_USERD_HTTP_STATUS_H

#include <stddef.h>

/* The reason of a status; "Unknown" of one that has none. */
const char *tbg_status_text(unsigned int status);

/* The text body of an error, and its length. */
size_t tbg_error_body(unsigned int status, char ret[64]);

#endif
