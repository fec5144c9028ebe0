// SPDX-License-Identifier: GPL-2.0
/* Timers of the control thread's loop (userd/os/loop.c): when they run, and how often it wakes. */
#include <stdint.h>

#include "ktap.h"
#include "os/clock.h"
#include "os/loop.h"

/* A time that is wanted, and what became of it. */
struct once {
	struct tbg_loop *loop;
	uint64_t due_ns, ran_ns;
	unsigned int asked, runs;
};

static uint64_t due_of(void *arg)
{
	struct once *o = arg;

	o->asked++;
	return o->due_ns;
}

static void on_due(void *arg, uint64_t now_ns)
{
	struct once *o = arg;

	o->ran_ns = now_ns;
	o->due_ns = 0;
	o->runs++;
	tbg_loop_stop(o->loop);
}

static void on_never(void *arg, uint64_t now_ns)
{
	++*(unsigned int *)arg;
}

static uint64_t never(void *arg)
{
	return 0;
}

/* Other timers are far away, as the daemon's may be: the time alone wakes it, and once. */
KTAP_TEST(t_a_time_is_waited_for_without_polling)
{
	unsigned int nevers = 0;
	struct once o = { 0 };
	uint64_t due_ns;

	KTAP_EQ(tbg_loop_open(&o.loop), 0);
	KTAP_EQ(tbg_loop_every(o.loop, 3600000, on_never, &nevers), 0);
	KTAP_EQ(tbg_loop_at(o.loop, never, on_never, &nevers), 0);
	KTAP_EQ(tbg_loop_at(o.loop, due_of, on_due, &o), 0);
	for (unsigned int i = 1; i <= 3; i++) {
		due_ns = o.due_ns = tbg_mono_ns() + 30000000;
		KTAP_EQ(tbg_loop_run(o.loop), 0);
		KTAP_EQ(o.runs, i);
		KTAP_CHECK(o.ran_ns >= due_ns);
	}
	KTAP_CHECK(o.asked <= 3 * 4);
	KTAP_EQ(nevers, 0);
	tbg_loop_close(o.loop);
}

KTAP_MAIN()
