// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan warm`: makes the daemon put files into its cache, and shows the progress. Called
 * by the command line alone. Reads no file itself; names each by the path by which the
 * daemon would serve it.
 */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "fault.h"
#include "show.h"

#define BAR_COLUMNS 30

/* On a terminal alone, where it is redrawn in place. */
static void bar_show(const json_t *a)
{
	long long done = number_of(a, "done"), total = number_of(a, "total");
	int columns = total ? done * BAR_COLUMNS / total : 0;

	fprintf(stderr, "\r[");
	for (int i = 0; i < BAR_COLUMNS; i++)
		putc(i < columns ? '#' : '.', stderr);
	fprintf(stderr, "] %lld of %lld files ", done, total);
	fflush(stderr);
}

/*
 * The real path, as for roots; but a file keeps its last name, even if that is a link.
 * NULL and errno.
 */
static char *served_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder, *real, *ret = NULL;
	struct stat st;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return realpath(path, NULL);
	folder = slash ? strndup(path, slash - path + 1) : strdup(".");
	real = folder ? realpath(folder, NULL) : NULL;
	if (real && asprintf(&ret, "%s/%s", strcmp(real, "/") ? real : "",
			     slash ? slash + 1 : path) < 0)
		ret = NULL;
	free(real);
	free(folder);
	return ret;
}

static int warm_one(const struct tbg_given *opt, const char *path)
{
	char *real = served_path(path);
	json_t *a, *name;
	bool bar;

	if (!real)
		return tbg_fault_print("warm: %s: %s; give a folder or a file that is served",
				       path, strerror(errno));
	bar = isatty(STDERR_FILENO);
	name = json_string(real);
	a = tbg_control_ask(opt, json_pack("{s:s, s:o}", "cmd", "warm",
					   name ? "path" : "path_encoded",
					   name ?: tbg_text_encode(real, "%")),
			    bar ? bar_show : NULL);
	free(real);
	if (bar)
		fprintf(stderr, "\r%*s\r", BAR_COLUMNS + 48, "");
	if (!a)
		return EXIT_FAILURE;
	if (!opt->json) {
		print_safe(path, 0);
		printf(": %lld file%s, %lld answers stored, %lld there before, %lld not kept\n",
		       number_of(a, "files"), number_of(a, "files") == 1 ? "" : "s",
		       number_of(a, "stored"), number_of(a, "cached"),
		       number_of(a, "left"));
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

int tbg_warm_run(const struct tbg_given *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	for (int i = 0; i < argc; i++)
		if (warm_one(opt, argv[i]))
			ret = EXIT_FAILURE;
	return ret;
}
