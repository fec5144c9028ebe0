/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TBG_TOOLS_BENCH_H
#define TBG_TOOLS_BENCH_H

/*
 * Become the benchmark, tools/bench/bench of a checkout or the installed one,
 * with these arguments (without "bench" itself). Returns only if there is
 * none: an exit status, the reason said.
 */
int tbg_bench(int argc, char **argv);

#endif
