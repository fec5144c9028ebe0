/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The answerer that is a loaded module, in a worker process: shared by the
 * files that implement toboggan-module.h.
 *
 *	module.c	loads it, calls it, watches its time
 *	request.c	what it reads
 *	reply.c		what it answers
 *	lookup.c	what it fetches
 */
#ifndef TBG_USERD_GATEWAY_MODULE_H
#define TBG_USERD_GATEWAY_MODULE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "http/header.h"
#include "gateway/responder.h"
#include "toboggan-module.h"

struct tbg_lookup;
struct tbg_pool_command;

struct tbg_chunk {			/* memory freed with its request */
	SLIST_ENTRY(tbg_chunk) link;
	char b[];
};

struct tbg_request {
	struct tbg_gateway_request *v;
	STAILQ_ENTRY(tbg_request) todo;	/* list of those that requests_settle() handles */
	bool marked;			/* in that list */
	void *own;			/* private to the module */
	SLIST_HEAD(, tbg_chunk) chunks;
	char *path;
	/* the answer */
	unsigned int status;		/* 0: not set */
	struct tbg_lines fields, tags, early;
	bool head_given;		/* to v */
	bool ended;			/* the module has ended the answer */
	bool failed;			/* no memory for it */
	bool wants_input, wants_room;
	/* postponed */
	bool called;			/* tbg_request_resume() */
	int timer_fd, wait_fd;		/* -1: none; wait_fd is a duplicate */
	struct tbg_lookup *lookup;
};

/* Serves until SIGTERM; runs in a process of its own, as its user. */
int tbg_module_run(const struct tbg_pool_command *o, int listen_fd, int state_fd);

/* Schedules r to be handled once the callback has returned. */
void tbg_request_mark(struct tbg_request *r);

struct tbg_loop *tbg_module_loop(void);
const struct tbg_pool_command *tbg_module_command(void);

/* Allocates memory that is freed with r. NULL: no memory. */
char *tbg_request_alloc(struct tbg_request *r, size_t size);

/* reply.c: gives r->v the output that there is, and its end if it has ended. */
void tbg_reply_settle(struct tbg_request *r);

/* Called by lookup.c; the second is called by module.c to cancel a fetch under way. */
void tbg_module_fetched(struct tbg_request *r, const struct tbg_fetched *f);
void tbg_lookup_cancel(struct tbg_lookup *l);

#endif
