/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Take-back: gives replies of wire that clients have not acknowledged in time to their
 * connections, which send them again.
 */
#ifndef TBG_USERD_CLIENT_TAKE_BACK_H
#define TBG_USERD_CLIENT_TAKE_BACK_H

struct tbg_worker;

/* Checks every slot for overdue replies of w's connections. */
void tbg_take_back_tick(struct tbg_worker *w);

#endif
