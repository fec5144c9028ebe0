/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cost of wire on this machine, from the kernel's own statistics of BPF programs
 * (sysctl kernel.bpf_stats_enabled). They are switched on only while somebody looks, and
 * cost each packet some 50 ns meanwhile.
 */
#ifndef TBG_TOOLS_RUN_TIME_H
#define TBG_TOOLS_RUN_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

/* What the kernel has counted of one program. */
struct tbg_run_time {
	uint64_t ns, runs;
};

/* Negative: not known. */
struct tbg_wire_cost {
	double hit_ns;		/* of a request that wire answers */
	double pass_ns;		/* of a packet that it does not: a request, or an ACK */
	double user_ns;		/* of the daemon's CPU time, for a request of its own */
	double pays_from;	/* share of hits from which wire saves time; 1 or more: never */
};

/* Switches the statistics on; a descriptor whose close switches them off, or -errno. */
int tbg_run_time_begin(void);

/* For the program that the answer of `stats` names. Returns whether it is known. */
bool tbg_run_time_read(const json_t *stats, struct tbg_run_time *ret);

/* From two answers of `stats`, and the kernel's counters at each. */
void tbg_wire_cost(const json_t *before, const json_t *now, const struct tbg_run_time *then,
		   const struct tbg_run_time *since, struct tbg_wire_cost *ret);

/* Sets pays_from from the rest. */
void tbg_wire_pays(struct tbg_wire_cost *c);

/* "wire: a hit takes 0.8 µs, ..." for a page; false: nothing is known. room: of ret. */
bool tbg_wire_cost_text(const struct tbg_wire_cost *cost, char *ret, size_t room);

#endif
