/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A transfer's way to an upstream and back: chooses a server, sends the request
 * with its body, takes the response apart, stores it where RFC 9111 allows,
 * and hands it to deliver.c as it comes.
 */
#ifndef TBG_USERD_PROXY_FETCH_H
#define TBG_USERD_PROXY_FETCH_H

#include <stdbool.h>

#include "proxy/transfer.h"

/*
 * Enter the phases CONNECT, ASK and RECEIVE, begin what is done in them, and return the
 * phase that follows. For tbg_transfer_go_on() alone.
 */
enum tbg_transfer_phase tbg_fetch_begin(struct tbg_transfer *x);
enum tbg_transfer_phase tbg_fetch_ask(struct tbg_transfer *x);
enum tbg_transfer_phase tbg_fetch_receive(struct tbg_transfer *x);

/* proxy/connection_pool.c's: the connection stands (0) or does not; bytes went; came. */
void tbg_fetch_connected(struct tbg_transfer *x, int err);
void tbg_fetch_sent(struct tbg_transfer *x, int res);
void tbg_fetch_received(struct tbg_transfer *x, int res);

/* The client has sent more of the body. */
void tbg_fetch_input(struct tbg_transfer *x);
/* The client has taken some: the upstream may go on. */
void tbg_fetch_resume(struct tbg_transfer *x);

/* Ends it silently. */
void tbg_fetch_stop(struct tbg_transfer *x);

/* Time limits. */
void tbg_fetch_check(struct tbg_transfer *x);

#endif
