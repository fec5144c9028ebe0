/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that the files of a fetch share: servers and time limits (fetch.c), the
 * request (request_out.c), the response's head (response_head.c) and body
 * (response_in.c), and changes of stored responses (validate.c). Not to be included
 * elsewhere.
 */
#ifndef TBG_USERD_PROXY_FETCH_INTERNAL_H
#define TBG_USERD_PROXY_FETCH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proxy/fetch.h"

/*
 * Functions that return a phase return the next one: the current phase of x if nothing
 * changes, DONE if the fetch has ended. The caller passes it on, down to
 * tbg_transfer_go_on(), and does nothing more for a fetch that has ended.
 */

/* fetch.c */
/* Releases the connection. keep: it can be reused. */
void tbg_fetch_conn_end(struct tbg_transfer *x, bool keep);
/* Ends the fetch, successful or not. */
enum tbg_transfer_phase tbg_fetch_end(struct tbg_transfer *x, unsigned int status, bool pass);
/* Ends the fetch without an answer. Requests that wait for it fetch themselves. */
enum tbg_transfer_phase tbg_fetch_give_up(struct tbg_transfer *x);
/* Ends the fetch with a status (502, 504), or by cutting off an answer that has begun. */
enum tbg_transfer_phase tbg_fetch_fail(struct tbg_transfer *x, unsigned int status);
/* Asks the next server, or ends the fetch. */
enum tbg_transfer_phase tbg_fetch_try_next(struct tbg_transfer *x, unsigned int status);
/*
 * Counts an unusable answer against its server. For a program, also logs it, because
 * the gateway does not see it.
 */
void tbg_fetch_answer_bad(struct tbg_transfer *x, const char *why);
/*
 * The connection ended before any byte of an answer. One from the pool may have been
 * closed by the server at the same time as it was reused.
 */
enum tbg_transfer_phase tbg_fetch_head_died(struct tbg_transfer *x);

/* request_out.c */
void tbg_fetch_send_continue(struct tbg_transfer *x);
/* Ends the request's body: no more arrives, or is wanted. */
void tbg_fetch_request_close(struct tbg_transfer *x);
/* Forwards received bytes of a body or tunnel, and its end. */
enum tbg_transfer_phase tbg_fetch_send_on(struct tbg_transfer *x);

/* response_in.c */
/*
 * After a validation: if the response is neither a 304 nor stored in place of the stale
 * one, withdraws the stale one nevertheless (RFC 9111 4.3.3), except for responses that
 * concern the requester or its request rate.
 */
void tbg_fetch_outdate(struct tbg_transfer *x);
enum tbg_framing tbg_fetch_framing_of(const struct tbg_transfer *x);
/* Returns whether a program has sent more than its Content-Length, or ended with less. */
bool tbg_fetch_contradicts(const struct tbg_transfer *x, uint64_t len, bool ended);
/*
 * Returns whether a short body has arrived completely with its head, and nothing after
 * it. If it is not stored, both are sent to the client together.
 */
bool tbg_fetch_is_whole(const struct tbg_transfer *x);
bool tbg_fetch_has_body(const struct tbg_transfer *x);
/*
 * Handles body bytes that arrived with the head. For programs, the records are already
 * removed.
 */
enum tbg_transfer_phase tbg_fetch_body_first(struct tbg_transfer *x);

/* response_head.c */
/* Returns the reason phrase, or the standard one: programs often send none. */
struct tbg_slice tbg_fetch_reason_of(const struct tbg_transfer *x);
/* Leaves ASK after a final head, or the 101 of a tunnel. Returns the next phase. */
enum tbg_transfer_phase tbg_fetch_head_final(struct tbg_transfer *x);

/* validate.c */
/* Returns the combination of a stored part and a received one, if they join (RFC 9111 3.4). */
struct tbg_stored *tbg_fetch_joined(struct tbg_transfer *x, const struct tbg_lines *news);
/*
 * Withdraws what an unsafe request invalidates (RFC 9111 4.4), before it is answered. A
 * POST's answer may state that it is the representation for a GET: then it may be
 * stored, unless another withdrawal has happened since the request.
 */
void tbg_fetch_withdraw(struct tbg_transfer *x, const char *fields, size_t len);
/* Returns whether a 304 does not match the stored response (RFC 9111 4.3.4). */
bool tbg_fetch_of_another(const struct tbg_stored *s, const char *fields, size_t len);
enum tbg_transfer_phase tbg_fetch_validated(struct tbg_transfer *x);
/* Updates the stored GET from the response to a HEAD, or withdraws it (RFC 9111 4.3.5). */
void tbg_fetch_head_compare(struct tbg_transfer *x, const char *fields, size_t len);

#endif
