// SPDX-License-Identifier: GPL-2.0
/*
 * The socket is a path that is configured in the web server, too. responder.c
 * accepts connections of root and of our own user; so this process runs as the
 * web server's user, and modules and programs have that user's rights.
 */
#include "gateway/standalone.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "upstream/pool_command.h"
#include "os/units.h"

#define BACKLOG		4096

static const char *bound;	/* path of our socket */

static int usage(int code)
{
	fprintf(code ? stderr : stdout,
		"usage: toboggan-gateway --listen SOCKET [--workers N] MODULE [ARGUMENT ...]\n"
		"       toboggan-gateway --listen SOCKET --cgi FOLDER [--prefix PATH]\n\n"
		"Serve a module, or CGI programs, by FastCGI on a Unix socket and without\n"
		"toboggand: to any web server that runs as the same user, or as root. See\n"
		"toboggan-module(3). Without any word it is started by toboggand alone.\n\n"
		"  --listen SOCKET  its path; one that is left over is replaced\n"
		"  --workers N      processes that have the module loaded, 1 to 64 (2)\n"
		"  --cgi FOLDER     of programs\n"
		"  --prefix PATH    what of a request's path is not below it (/)\n"
		"  --help           this text\n");
	return code;
}

static int listener_open(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd < 0 || strlen(path) >= sizeof(a.sun_path)) {
		errno = fd < 0 ? errno : ENAMETOOLONG;
		goto fail;
	}
	strcpy(a.sun_path, path);
	if (!connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		errno = EADDRINUSE;	/* another process serves it */
		goto fail;
	}
	/* no process does; but the error is the same for a file that is no socket */
	if (errno == ECONNREFUSED && !lstat(path, &st) && S_ISSOCK(st.st_mode))
		unlink(path);
	if (!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, BACKLOG)) {
		bound = path;
		return fd;
	}
fail:
	fprintf(stderr, "toboggan-gateway: %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool path_take(struct tbg_pool_command *o, const char *word)
{
	char *path = realpath(word, NULL);
	bool ok = path && strlen(path) < sizeof(o->path);

	if (ok)
		strcpy(o->path, path);
	else
		fprintf(stderr, "toboggan-gateway: %s: %s\n", word,
			strerror(path ? ENAMETOOLONG : errno));
	free(path);
	return ok;
}

/* Defaults are texts as in a configuration, and always parse. */
static void programs_take(struct tbg_pool_command *o)
{
	unsigned int cpu_ms = 0;

	o->kind = TBG_POOL_CGI;
	tbg_value_ms(TBG_CGI_TIME, &o->time_ms);
	tbg_value_ms(TBG_CGI_CPU, &cpu_ms);
	o->cpu_s = cpu_ms / 1000;
	tbg_value_number(TBG_CGI_AT_ONCE, 1, UINT32_MAX, &o->at_once);
	tbg_value_number(TBG_CGI_PROCESSES, 0, UINT32_MAX, &o->processes);
	tbg_value_size(TBG_CGI_MEMORY, 0, UINT64_MAX, &o->memory);
	tbg_value_size(TBG_CGI_OUTPUT, 0, UINT64_MAX, &o->output);
}

static void module_take(struct tbg_pool_command *o)
{
	o->kind = TBG_POOL_MODULE;
	tbg_value_ms(TBG_MODULE_TIME, &o->time_ms);
	tbg_value_size(TBG_MODULE_MEMORY, 0, UINT64_MAX, &o->memory);
	tbg_value_number(TBG_MODULE_WORKERS, 1, UINT32_MAX, &o->at_once);
}

static bool args_take(struct tbg_pool_command *o, char **words)
{
	bool ok = true;

	for (; ok && *words; words++) {
		size_t len = strlen(*words) + 1;

		ok = o->args_len + len <= sizeof(o->args);
		if (ok)
			memcpy(o->args + o->args_len, *words, len);
		o->args_len += len;
	}
	if (!ok)
		fprintf(stderr, "toboggan-gateway: %s: arguments of more than %zu bytes\n",
			o->path, sizeof(o->args));
	return ok;
}

int tbg_standalone_read(int argc, char **argv, struct tbg_pool_command *ret, int *ret_listen_fd)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "workers", required_argument, NULL, 'w' },
		{ "cgi", required_argument, NULL, 'c' },
		{ "prefix", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	const char *path = NULL, *folder = NULL, *workers = NULL;
	int o;

	*ret = (struct tbg_pool_command){
		.size = sizeof(*ret), .what = TBG_POOL_COMMAND_OPEN, .id = 1,
		.uid = geteuid(), .gid = getegid(), .daemon = geteuid(), .prefix = "/",
	};
	module_take(ret);
	while ((o = getopt_long(argc, argv, "+", options, NULL)) >= 0) {
		if (o == 'l')
			path = optarg;
		else if (o == 'w')
			workers = optarg;
		else if (o == 'c')
			folder = optarg;
		else if (o == 'p' && strlen(optarg) < sizeof(ret->prefix))
			strcpy(ret->prefix, optarg);
		else
			return usage(o == 'h' ? 0 : 2);
	}
	if (!path || (optind == argc) == !folder ||
	    (workers && !tbg_value_number(workers, 1, TBG_MODULE_WORKERS_MAX, &ret->at_once)))
		return usage(2);
	if (folder)
		programs_take(ret);
	if (!path_take(ret, folder ?: argv[optind]) ||
	    (!folder && !args_take(ret, argv + optind + 1)))
		return 2;
	*ret_listen_fd = listener_open(path);
	return *ret_listen_fd < 0 ? 1 : -1;
}

void tbg_standalone_end(void)
{
	if (bound)
		unlink(bound);
}
