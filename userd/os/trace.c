// SPDX-License-Identifier: GPL-2.0
/*
 * Prints events after a crash. Runs in a signal handler: uses no memory allocation, no
 * lock and no stdio, and a reader of stderr that does not read cannot block it. Other
 * workers continue meanwhile, so one of their newest events may be inconsistent.
 */
#include "os/trace.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct {
	const char *rings;
	unsigned int nr;
	size_t next;
	const char *(*phase_text)(uint32_t phase);
} dumped;

/* A line that is composed without stdio. */
struct line {
	char text[200];
	size_t len;
};

static void text_put(struct line *l, const char *text)
{
	size_t len = strlen(text), room = sizeof(l->text) - l->len;

	len = len < room ? len : room;
	memcpy(l->text + l->len, text, len);
	l->len += len;
}

static void number_put(struct line *l, uint64_t n, unsigned int base)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = 0;
	do
		*--at = "0123456789abcdef"[n % base];
	while (n /= base);
	text_put(l, at);
}

static void line_end(struct line *l, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	text_put(l, "\n");
	if (poll(&p, 1, 10) > 0 && write(fd, l->text, l->len) < 0)
		return;			/* no other place to report it */
}

static void event_dump(const struct tbg_traced *e, unsigned int worker, int fd)
{
	static const char *const texts[] = {
#define X(kind, text, value) text,
		TBG_TRACE_LIST(X)
#undef X
	}, *const values[] = {
#define X(kind, text, value) value,
		TBG_TRACE_LIST(X)
#undef X
	};
	struct line l = { .len = 0 };

	if (e->kind >= TBG_TRACE_NR)
		return;
	text_put(&l, "event: worker ");
	number_put(&l, worker, 10);
	text_put(&l, ", ");
	number_put(&l, e->ns / 1000, 10);
	text_put(&l, " us: 0x");
	number_put(&l, e->subject, 16);
	text_put(&l, ": ");
	text_put(&l, texts[e->kind]);
	text_put(&l, values[e->kind] ? ", " : ": ");
	text_put(&l, values[e->kind] ?: dumped.phase_text(e->value));
	if (values[e->kind]) {
		text_put(&l, " ");
		number_put(&l, e->value, 10);
	}
	line_end(&l, fd);
}

void tbg_traces_dump(int fd)
{
	for (unsigned int i = 0; i < dumped.nr; i++) {
		const struct tbg_trace *r = (const void *)(dumped.rings + i * dumped.next);
		uint64_t nr = r->nr, at = nr < TBG_TRACED ? 0 : nr - TBG_TRACED;

		for (; at < nr; at++)
			event_dump(&r->at[at % TBG_TRACED], i, fd);
	}
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void on_crash(int nr)
{
	struct line l = { .len = 0 };

	text_put(&l, "toboggand: signal ");
	number_put(&l, nr, 10);
	text_put(&l, ", a fault in the daemon; what its workers did last, oldest first:");
	line_end(&l, STDERR_FILENO);
	tbg_traces_dump(STDERR_FILENO);
	raise(nr);			/* the default action is installed again */
}

static void handle(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
	struct sigaction crash = { .sa_handler = on_crash,
				   .sa_flags = SA_RESETHAND | SA_NODEFER };

	for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
		sigaction(crashes[i], &crash, NULL);
}
#else
static void handle(void)
{
}
#endif

void tbg_traces_dump_at_crash(const struct tbg_trace *rings, unsigned int nr,
			      size_t ring_next, const char *(*phase_text)(uint32_t phase))
{
	dumped.rings = (const char *)rings;
	dumped.nr = nr;
	dumped.next = ring_next;
	dumped.phase_text = phase_text;
	handle();
}
