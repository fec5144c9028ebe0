/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sends a transfer's request to an upstream and receives the response: chooses a
 * server, sends the request with its body, parses the response, stores it where RFC
 * 9111 allows it, and passes it to deliver.c as it arrives.
 */
#ifndef TBG_USERD_PROXY_FETCH_H
#define TBG_USERD_PROXY_FETCH_H

#include <stdbool.h>

#include "proxy/transfer.h"

/*
 * Enter the phases CONNECT, ASK and RECEIVE, start their work, and return the next
 * phase. Called only by tbg_transfer_go_on().
 */
enum tbg_transfer_phase tbg_fetch_begin(struct tbg_transfer *x);
enum tbg_transfer_phase tbg_fetch_ask(struct tbg_transfer *x);
enum tbg_transfer_phase tbg_fetch_receive(struct tbg_transfer *x);

/*
 * Called by proxy/connection_pool.c: connect() has ended (0 or an errno); bytes were
 * sent; bytes were received.
 */
void tbg_fetch_connected(struct tbg_transfer *x, int err);
void tbg_fetch_sent(struct tbg_transfer *x, int res);
void tbg_fetch_received(struct tbg_transfer *x, int res);

/* More of the body has arrived from the client. */
void tbg_fetch_input(struct tbg_transfer *x);
/* The client has accepted data: receives from the upstream again if it was paused. */
void tbg_fetch_resume(struct tbg_transfer *x);

/* Ends the fetch without an answer. */
void tbg_fetch_stop(struct tbg_transfer *x);

/* Checks the time limits. */
void tbg_fetch_check(struct tbg_transfer *x);

#endif
