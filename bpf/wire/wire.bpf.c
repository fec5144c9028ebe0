// SPDX-License-Identifier: GPL-2.0
/*
 * The wire tier as one object, for kernels that can make a socket out of a later
 * segment (since 6.9): a connection is either wire's or the kernel's, never both.
 */
#define TBG_MAY_CLOSE 1
#include "ingress.bpf.c"
#include "push.bpf.c"
#include "vrf.bpf.c"

char _license[] SEC("license") = "GPL";
