/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TBG_TOOLS_BENCH_H
#define TBG_TOOLS_BENCH_H

/*
 * Executes the benchmark, tools/bench/bench of a checkout or the installed one, with these
 * arguments (without "bench" itself). Returns only if there is none: an exit status, after
 * it has reported the reason.
 */
int tbg_bench(int argc, char **argv);

#endif
