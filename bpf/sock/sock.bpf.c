// SPDX-License-Identifier: GPL-2.0
/*
 * The sock tier as one object: the beginning of a connection, its requests, its replies,
 * and the program for tiers/ask.h.
 */
#include "life.bpf.c"
#include "verdict.bpf.c"
#include "expand.bpf.c"
#include "ask.bpf.c"

char _license[] SEC("license") = "GPL";
