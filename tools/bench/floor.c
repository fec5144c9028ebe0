// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches the floor (floor.bpf.c) to an interface until it is ended: every request to the
 * port is answered with the bytes of a file, in one segment. Run by `bench` in the servers'
 * namespace.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "floor.h"

static void end(int signum)
{
	(void)signum;		/* it ends pause(); then the program is detached */
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(err < 0 ? -err : err));
	return 1;
}

int main(int argc, char **argv)
{
	DECLARE_LIBBPF_OPTS(bpf_tc_hook, hook, .attach_point = BPF_TC_INGRESS);
	DECLARE_LIBBPF_OPTS(bpf_tc_opts, opts, .handle = 1, .priority = 1);
	struct floor_reply reply = {};
	struct bpf_object *o;
	unsigned int zero = 0;
	FILE *f;
	int err;

	if (argc != 5) {
		fputs("usage: floor OBJECT INTERFACE PORT FILE\n", stderr);
		return 2;
	}
	f = fopen(argv[4], "rb");
	if (!f)
		return fail(argv[4], errno);
	reply.len = fread(reply.bytes, 1, sizeof(reply.bytes), f);
	if (!reply.len || getc(f) != EOF)
		return fail(argv[4], EMSGSIZE);
	fclose(f);
	for (unsigned int i = 0; i < reply.len; i++)
		reply.sum += i & 1 ? reply.bytes[i] << 8 : reply.bytes[i];
	reply.port = htons(atoi(argv[3]));
	hook.ifindex = if_nametoindex(argv[2]);
	if (!hook.ifindex)
		return fail(argv[2], errno);
	o = bpf_object__open_file(argv[1], NULL);
	if (!o || bpf_object__load(o))
		return fail(argv[1], errno);
	err = bpf_map_update_elem(bpf_object__find_map_fd_by_name(o, "floor_replies"), &zero,
				  &reply, 0);
	if (err)
		return fail("reply", err);
	opts.prog_fd = bpf_program__fd(bpf_object__find_program_by_name(o, "tbg_floor"));
	err = bpf_tc_hook_create(&hook);
	if (err && err != -EEXIST)
		return fail("clsact", err);
	err = bpf_tc_attach(&hook, &opts);
	if (err)
		return fail(argv[2], err);
	signal(SIGTERM, end);
	signal(SIGINT, end);
	puts("ready");
	fflush(stdout);
	pause();
	hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
	bpf_tc_hook_destroy(&hook);
	return 0;
}
