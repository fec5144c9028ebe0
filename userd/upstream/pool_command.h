/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commands of the daemon to toboggan-gateway, one per packet, over the socket pair with
 * which it was started. A command that opens a pool carries the listening socket of the
 * pool. When the socket is closed, all pools end.
 */
#ifndef TBG_USERD_UPSTREAM_POOL_COMMAND_H
#define TBG_USERD_UPSTREAM_POOL_COMMAND_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define TBG_POOL_COMMAND_FD	3	/* of the socket, in toboggan-gateway */
#define TBG_POOL_COMMAND_PATH	1024	/* limit of a path, with its NUL */
#define TBG_POOL_COMMAND_ARGS	2048	/* limit of all arguments, each with its NUL */
#define TBG_POOL_COMMAND_MARK	33	/* bytes of the mark, with its NUL */

/* Defaults of the settings of pools, as written in a configuration; and a limit. */
#define TBG_MODULE_TIME	"10s"
#define TBG_MODULE_WORKERS "2"
#define TBG_MODULE_WORKERS_MAX 64
#define TBG_MODULE_MEMORY "512M"
#define TBG_CGI_TIME	"30s"
#define TBG_CGI_CPU	"10s"
#define TBG_CGI_AT_ONCE	"32"
#define TBG_CGI_PROCESSES "1024"
#define TBG_CGI_MEMORY	"512M"
#define TBG_CGI_OUTPUT	"1G"

enum tbg_pool_command_what {
	TBG_POOL_COMMAND_OPEN = 1,	/* opens a pool; with its listening socket */
	TBG_POOL_COMMAND_CLOSE,	/* ends the pool of that id when it is idle */
	TBG_POOL_COMMAND_STARTED,	/* from now on, unknown users and chroots are refused */
};

enum tbg_pool_kind {
	TBG_POOL_CGI = 1,
	TBG_POOL_MODULE,
};

struct tbg_pool_command {
	uint32_t size;			/* of this struct: both sides are from one build */
	uint32_t what;			/* enum tbg_pool_command_what */
	uint32_t id;
	uint32_t kind;			/* enum tbg_pool_kind */
	uid_t uid;			/* that the pool runs as */
	gid_t gid;
	uid_t daemon;			/* the pool accepts connections only from this user */
	uint32_t time_ms;		/* limit of a request; of a module's callback */
	uint32_t cpu_s;			/* 0: not limited */
	uint32_t at_once;		/* limit of programs; number of worker processes */
	uint32_t processes;		/* limit of all programs of the user; 0: not limited */
	uint32_t requests;		/* limit per worker process */
	uint64_t memory, output;	/* bytes; 0: not limited */
	struct sockaddr_storage fetch;	/* where the daemon listens */
	/* random per run: proves that a request is a module's fetch */
	char mark[TBG_POOL_COMMAND_MARK];
	char path[TBG_POOL_COMMAND_PATH];	/* folder of programs; module */
	/* part of the request's path that is not below it */
	char prefix[TBG_POOL_COMMAND_PATH];
	char chroot[TBG_POOL_COMMAND_PATH];	/* "": none */
	char args[TBG_POOL_COMMAND_ARGS];
	uint32_t args_len;
};

#endif
