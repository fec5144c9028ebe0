/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire's replies that clients have not acknowledged in time, given to their connections.
 */
#ifndef TBG_USERD_CLIENT_TAKE_BACK_H
#define TBG_USERD_CLIENT_TAKE_BACK_H

struct tbg_worker;

/* Looks at every slot; gives what is overdue of w's connections to them. */
void tbg_take_back_tick(struct tbg_worker *w);

#endif
