/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Receives a request's body completely before the request is handled: the next server
 * needs its length, or must be protected from slow clients. Used between the begin of a
 * transfer and tbg_transfer_decide().
 */
#ifndef TBG_USERD_PROXY_REQUEST_BODY_H
#define TBG_USERD_PROXY_REQUEST_BODY_H

#include <stdbool.h>

#include "http/request.h"
#include "proxy/phases.h"

struct tbg_location;
struct tbg_transfer;

bool tbg_request_body_wanted(const struct tbg_transfer *x, const struct tbg_location *l);

/* Returns whether a length is needed but the body must not be buffered to find it: 411. */
bool tbg_request_body_lacks_length(const struct tbg_transfer *x,
			     const struct tbg_location *l);

/* Returns the next phase: BODY, or DONE with an error. */
enum tbg_transfer_phase tbg_request_body_begin(struct tbg_transfer *x,
					       const struct tbg_location *l);

/*
 * Decodes received bytes of the body into x->spool. Returns 0, with *ret telling
 * whether the body has ended, or the status to answer with.
 */
unsigned int tbg_request_body_eat(struct tbg_transfer *x, enum tbg_parsed *ret);

/* Handles more of the body, or its end. Returns the next phase. */
enum tbg_transfer_phase tbg_request_body_input(struct tbg_transfer *x);

#endif
