// SPDX-License-Identifier: GPL-2.0
/* userd/os/trace.c: the events of workers that are printed after a crash. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ktap.h"
#include "os/trace.h"

static struct tbg_trace rings[2];

static const char *phase_text(uint32_t phase)
{
	return phase == 3 ? "waits" : "?";
}

/* Returns what tbg_traces_dump() writes. */
static char *dump(void)
{
	static char text[1 << 16];
	FILE *f = tmpfile();
	size_t len = 0;

	if (f) {
		tbg_traces_dump(fileno(f));
		rewind(f);
		len = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[len] = 0;
	return text;
}

static unsigned int lines(const char *text)
{
	unsigned int nr = 0;

	for (; (text = strchr(text, '\n')); text++)
		nr++;
	return nr;
}

KTAP_TEST(t_events_are_written_oldest_first_by_worker)
{
	char *text;

	memset(rings, 0, sizeof(rings));
	tbg_traces_dump_at_crash(rings, 2, sizeof(*rings), phase_text);
	KTAP_EQ(lines(dump()), 0);
	tbg_trace_note(&rings[1], 5000, TBG_TRACE_FAIL, (void *)0xabc, 502);
	tbg_trace_note(&rings[0], 6000, TBG_TRACE_ACCEPT, (void *)0xdef, 7);
	tbg_trace_note(&rings[0], 7000, TBG_TRACE_CLOSE, (void *)0xdef, 7);
	tbg_trace_note(&rings[1], 8000, TBG_TRACE_PHASE, (void *)0xabc, 3);
	text = dump();
	KTAP_CHECK(!strcmp(text,
		"event: worker 0, 6 us: 0xdef: connection begins, descriptor 7\n"
		"event: worker 0, 7 us: 0xdef: connection closes, descriptor 7\n"
		"event: worker 1, 5 us: 0xabc: fetch fails, status 502\n"
		"event: worker 1, 8 us: 0xabc: transfer enters a phase: waits\n"));
}

KTAP_TEST(t_the_newest_events_stay)
{
	memset(rings, 0, sizeof(rings));
	tbg_traces_dump_at_crash(rings, 2, sizeof(*rings), phase_text);
	for (unsigned int i = 0; i < TBG_TRACED + 10; i++)
		tbg_trace_note(&rings[0], 0, TBG_TRACE_SEND, rings, i);
	KTAP_EQ(lines(dump()), TBG_TRACED);
	KTAP_CHECK(strstr(dump(), "attempt 10\n") && !strstr(dump(), "attempt 9\n"));
	KTAP_CHECK(strstr(dump(), "attempt 265\n"));
}

KTAP_MAIN()
