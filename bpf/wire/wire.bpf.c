// SPDX-License-Identifier: GPL-2.0
/*
 * The wire tier as one object, where the kernel can make a socket late (6.9): a
 * connection is wire's or the kernel's, never both.
 */
#define TBG_MAY_CLOSE 1
#include "ingress.bpf.c"
#include "push.bpf.c"

char _license[] SEC("license") = "GPL";
