/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Recent events of each worker, to analyse a crash: a ring that only its worker writes,
 * at the cost of a few stores. A fatal signal, including that of a failed assertion,
 * prints it to stderr.
 */
#ifndef TBG_USERD_OS_TRACE_H
#define TBG_USERD_OS_TRACE_H

#include <stddef.h>
#include <stdint.h>

/* X(kind, text, meaning of its value; NULL: a phase) */
#define TBG_TRACE_LIST(X) \
	X(ACCEPT, "connection begins", "descriptor") \
	X(CLOSE, "connection closes", "descriptor") \
	X(TRANSFER, "transfer begins", "descriptor") \
	X(PHASE, "transfer enters a phase", NULL) \
	X(SEND, "request is sent to a server", "attempt") \
	X(HEAD, "head of a response has arrived", "status") \
	X(DELIVER, "answer begins", "status") \
	X(FAIL, "fetch fails", "status") \
	X(LAND, "fetch ends", "status")

enum tbg_trace_kind {
#define X(kind, text, value) TBG_TRACE_##kind,
	TBG_TRACE_LIST(X)
#undef X
	TBG_TRACE_NR
};

#define TBG_TRACED 256		/* events per ring: a power of two */

struct tbg_traced {
	uint64_t ns;		/* CLOCK_MONOTONIC of the worker's round */
	uint64_t subject;	/* address of the connection or transfer */
	uint32_t value, kind;
};

struct tbg_trace {
	uint64_t nr;		/* number of events so far */
	struct tbg_traced at[TBG_TRACED];
};

static inline void tbg_trace_note(struct tbg_trace *r, uint64_t ns,
				  enum tbg_trace_kind kind, const void *subject, uint32_t value)
{
	r->at[r->nr++ % TBG_TRACED] = (struct tbg_traced){ ns, (uintptr_t)subject, value, kind };
}

/*
 * Makes a fatal signal print rings[nr] to stderr before the process dies. ring_next:
 * bytes from one ring to the next. phase_text: of any number. Without effect in builds
 * with sanitizers, which report such signals themselves.
 */
void tbg_traces_dump_at_crash(const struct tbg_trace *rings, unsigned int nr,
			      size_t ring_next, const char *(*phase_text)(uint32_t phase));

/* Prints the rings; used by tests. */
void tbg_traces_dump(int fd);

#endif
