// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan bench`: finds the benchmark beside this binary and executes it. Called by
 * toboggan.c before it parses options, since all of them are the benchmark's. It must
 * not search PATH: the benchmark runs as root.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

/* From the folder of the binary: build/ of a checkout, then PREFIX/bin. */
static const char *const places[] = {
	"tools/bench/bench",
	"../lib/toboggan/bench/bench",
};

static int run(const char *path, int argc, char **argv)
{
	char **args = calloc(argc + 2, sizeof(*args));

	if (!args)
		return -ENOMEM;
	args[0] = (char *)path;
	memcpy(args + 1, argv, argc * sizeof(*args));
	execv(path, args);
	free(args);
	return -errno;
}

int tbg_bench(int argc, char **argv)
{
	char folder[PATH_MAX], path[PATH_MAX + 64];
	ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	int err = len < 0 ? -errno : -ENOENT;

	folder[len < 0 ? 0 : len] = 0;
	if (strrchr(folder, '/'))
		*strrchr(folder, '/') = 0;
	for (size_t i = 0; len > 0 && i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
		if (access(path, X_OK))
			continue;
		/* the products of a build that it needs are beside us, or beside itself */
		if (!i)
			setenv("O", folder, 1);
		else
			unsetenv("O");
		err = run(path, argc, argv);
		break;
	}
	fprintf(stderr, "toboggan: bench: not found beside %s (%s); run make, or make install\n",
		len > 0 ? folder : "this binary", strerror(-err));
	return EXIT_FAILURE;
}
