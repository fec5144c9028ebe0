// SPDX-License-Identifier: GPL-2.0
/*
 * short PIECE NAME=FD...: puts the tbg_expand that short.bpf.h changes, which has no memory
 * for that piece of a response, onto the maps of a daemon, in place of its own.
 * Called by t_sock_order.py with the descriptors of those maps. At the end of stdin it
 * prints how often that piece was pushed. It stays attached until the maps are removed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "short.skel.h"

static int reuse(struct bpf_object *obj, const char *word)
{
	const char *fd = strchr(word, '=');
	char name[64];
	struct bpf_map *map;

	if (!fd)
		return -1;
	snprintf(name, sizeof(name), "%.*s", (int)(fd - word), word);
	map = bpf_object__find_map_by_name(obj, name);
	return map ? bpf_map__reuse_fd(map, atoi(fd + 1)) : 0;
}

int main(int argc, char **argv)
{
	struct tbg_short *b = tbg_short__open();
	struct bpf_program *prog;
	int i;

	if (!b || argc < 3)
		return 2;
	for (i = 2; i < argc; i++)
		if (reuse(b->obj, argv[i]))
			return 3;
	bpf_object__for_each_program(prog, b->obj)
		bpf_program__set_autoload(prog, prog == b->progs.tbg_expand);
	b->data->tbg_short_at = strtoul(argv[1], NULL, 10);
	if (tbg_short__load(b))
		return 4;
	if (bpf_prog_attach(bpf_program__fd(b->progs.tbg_expand),
			    bpf_map__fd(b->maps.tbg_socks), BPF_SK_MSG_VERDICT, 0))
		return 5;
	puts("ready");
	fflush(stdout);
	while (read(0, &i, 1) > 0)
		;
	printf("%u\n", b->bss->tbg_short_nr);
	return 0;
}
