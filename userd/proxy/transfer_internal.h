/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that the files of a transfer share: its life (transfer.c), its copy of the
 * request (request_copy.c), and the choice of its answer (decide.c). Not to be included
 * elsewhere.
 */
#ifndef TBG_USERD_PROXY_TRANSFER_INTERNAL_H
#define TBG_USERD_PROXY_TRANSFER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proxy/transfer.h"

#define WAITS_MAX	2		/* for fetches of others, before its own */

/* transfer.c */
struct tbg_transfer *tbg_transfer_new(struct tbg_worker *w, const void *req,
				      const struct tbg_message *m,
				      struct tbg_upstream *upstream, const char *index,
				      const struct tbg_reading *reading);

/* request_copy.c */
struct tbg_slice tbg_transfer_text_of(const struct tbg_transfer *x, struct tbg_text t);
bool tbg_transfer_request_read(struct tbg_transfer *x);
/* Copies the location's settings for programs. Returns false without memory. */
bool tbg_transfer_script_read(struct tbg_transfer *x, const struct tbg_location *l);

/* decide.c */
/*
 * Returns whether the request is HEAD or for a range: its response cannot answer
 * others, but theirs may answer it.
 */
bool tbg_transfer_asks_less(const struct tbg_request_directives *w);
enum tbg_transfer_phase tbg_transfer_ask(struct tbg_transfer *x);
/* Returns whether this daemon has already forwarded the request (RFC 9110 7.6.3). */
bool tbg_transfer_loops(const struct tbg_transfer *x);
enum tbg_transfer_phase tbg_transfer_refuse(struct tbg_transfer *x, unsigned int status);
/* Returns whether the cache is not used. x->fwd is set. */
bool tbg_transfer_bypasses(struct tbg_transfer *x);
void tbg_transfer_on_waited(void *worker, struct tbg_mail *mail);

#endif
