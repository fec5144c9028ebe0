// SPDX-License-Identifier: GPL-2.0
/*
 * The sock tier as one object: a connection's birth, its requests, its replies; and what
 * it would say of a request.
 */
#include "life.bpf.c"
#include "verdict.bpf.c"
#include "expand.bpf.c"
#include "ask.bpf.c"

char _license[] SEC("license") = "GPL";
