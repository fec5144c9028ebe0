/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The command `deny` of the control socket: denies clients, removes them from the list,
 * or shows the list.
 */
#ifndef TBG_USERD_CONTROL_DENY_H
#define TBG_USERD_CONTROL_DENY_H

#include <jansson.h>

struct tbg_bans;

json_t *tbg_deny_answer(struct tbg_bans *b, const json_t *req);

#endif
