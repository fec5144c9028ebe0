// SPDX-License-Identifier: GPL-2.0
/*
 * Wire with translation of sequence numbers, for kernels without late sockets
 * (before 6.9), as one object: both directions share the maps.
 */
#include "ingress.bpf.c"
#include "egress.bpf.c"
#include "take_back.bpf.c"
#include "bury.bpf.c"
#include "socket.bpf.c"
#include "guard.bpf.c"

char _license[] SEC("license") = "GPL";
