/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request with a body that is received whole before anything is done with it: what
 * it is sent to needs its length, or is to be kept from slow clients. Between
 * the begin of a transfer and its deciding what answers.
 */
#ifndef TBG_USERD_PROXY_REQUEST_BODY_H
#define TBG_USERD_PROXY_REQUEST_BODY_H

#include <stdbool.h>

#include "http/request.h"
#include "proxy/phases.h"

struct tbg_location;
struct tbg_transfer;

bool tbg_request_body_wanted(const struct tbg_transfer *x, const struct tbg_location *l);

/* A length is needed, and must not be found out like this: 411. */
bool tbg_request_body_lacks_length(const struct tbg_transfer *x,
			     const struct tbg_location *l);

/* The phase that follows: its own, or DONE with an error. */
enum tbg_transfer_phase tbg_request_body_begin(struct tbg_transfer *x,
					       const struct tbg_location *l);

/*
 * What has come of the body, off its framing, into x->spool. 0, *ret telling
 * whether it has ended; or the status that answers it.
 */
unsigned int tbg_request_body_eat(struct tbg_transfer *x, enum tbg_parsed *ret);

/* There may be more of the body, or its end: the phase that follows. */
enum tbg_transfer_phase tbg_request_body_input(struct tbg_transfer *x);

#endif
