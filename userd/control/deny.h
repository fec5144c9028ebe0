/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket's command `deny`: clients are denied, let in again, or listed.
 */
#ifndef TBG_USERD_CONTROL_DENY_H
#define TBG_USERD_CONTROL_DENY_H

#include <jansson.h>

struct tbg_bans;

json_t *tbg_deny_answer(struct tbg_bans *b, const json_t *req);

#endif
