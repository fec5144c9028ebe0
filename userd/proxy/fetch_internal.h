/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of a fetch call of each other: its servers and time limits
 * (fetch.c), the request (request_out.c), the response's head (response_head.c) and
 * the rest of it (response_in.c), what it makes of what is stored (validate.c).
 * For this folder alone.
 */
#ifndef TBG_USERD_PROXY_FETCH_INTERNAL_H
#define TBG_USERD_PROXY_FETCH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proxy/fetch.h"

/*
 * What returns a phase returns the one that follows: that which x is in, if nothing
 * changes, and DONE if the fetch has ended. The caller passes it on, down to
 * tbg_transfer_go_on(), and does nothing more for a fetch that has ended.
 */

/* fetch.c */
/* Lets go of the connection. keep: it is in order. */
void tbg_fetch_conn_end(struct tbg_transfer *x, bool keep);
/* The end of the fetch, whatever it came to. */
enum tbg_transfer_phase tbg_fetch_end(struct tbg_transfer *x, unsigned int status, bool pass);
/* The same without an answer: other requests that wait for it ask for themselves. */
enum tbg_transfer_phase tbg_fetch_give_up(struct tbg_transfer *x);
/* Ends it with that status (502, 504), or by cutting off what has begun. */
enum tbg_transfer_phase tbg_fetch_fail(struct tbg_transfer *x, unsigned int status);
/* The next server, or the end. */
enum tbg_transfer_phase tbg_fetch_try_next(struct tbg_transfer *x, unsigned int status);
/*
 * An answer that cannot be used counts against its server. That of a program is logged
 * here, since the gateway does not see it.
 */
void tbg_fetch_answer_bad(struct tbg_transfer *x, const char *why);
/* Before a byte of an answer. One from the pool may have been closed at that moment. */
enum tbg_transfer_phase tbg_fetch_head_died(struct tbg_transfer *x);

/* request_out.c */
void tbg_fetch_tell_continue(struct tbg_transfer *x);
/* Nothing more of its body comes, or is wanted: it ends where it is. */
void tbg_fetch_request_close(struct tbg_transfer *x);
/* Sends on what has come of a tunnel, or its end. */
enum tbg_transfer_phase tbg_fetch_send_on(struct tbg_transfer *x);

/* response_in.c */
/*
 * Another answer than the stale one that was validated, as much of it as anybody wants:
 * unless it takes its place, that goes all the same (RFC 9111 4.3.3), but for one that is
 * about who has asked, or how often.
 */
void tbg_fetch_outdate(struct tbg_transfer *x);
enum tbg_framing tbg_fetch_framing_of(const struct tbg_transfer *x);
/* More than a program has promised, or an end with less. */
bool tbg_fetch_contradicts(const struct tbg_transfer *x, uint64_t len, bool ended);
/*
 * All of a short body has come with its head, and nothing behind it. If it is not stored
 * it goes to the client with the head too.
 */
bool tbg_fetch_is_whole(const struct tbg_transfer *x);
bool tbg_fetch_has_body(const struct tbg_transfer *x);
/* Behind the head in its buffer; of a program's, the framing is off already. */
enum tbg_transfer_phase tbg_fetch_body_first(struct tbg_transfer *x);

/* response_head.c */
/* A server may leave it out, a program often does. */
struct tbg_slice tbg_fetch_reason_of(const struct tbg_transfer *x);
/* What follows ASK: a final head, or the 101 of a tunnel, has come. */
enum tbg_transfer_phase tbg_fetch_head_final(struct tbg_transfer *x);

/* validate.c */
/* The stored part and the one that has come, as far as that is one (RFC 9111 3.4). */
struct tbg_stored *tbg_fetch_joined(struct tbg_transfer *x, const struct tbg_lines *news);
/*
 * What an unsafe request makes old (RFC 9111 4.4), before it is answered. A POST's answer
 * may say that it is what a GET would be answered: it is newer then than what goes here,
 * if not than what others have made old since it was asked for.
 */
void tbg_fetch_withdraw(struct tbg_transfer *x, const char *fields, size_t len);
/* Whether a 304 is about something else than what is stored (RFC 9111 4.3.4). */
bool tbg_fetch_of_another(const struct tbg_stored *s, const char *fields, size_t len);
enum tbg_transfer_phase tbg_fetch_validated(struct tbg_transfer *x);
/* Renews the stored GET by the response of a HEAD, or withdraws it (RFC 9111 4.3.5). */
void tbg_fetch_head_compare(struct tbg_transfer *x, const char *fields, size_t len);

#endif
