/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commands of the daemon to toboggan-gateway, one a packet, over the socket pair
 * that it was started with. A command that opens a pool carries the listening
 * socket that the pool serves. When the socket is closed, all pools end.
 */
#ifndef TBG_USERD_UPSTREAM_POOL_COMMAND_H
#define TBG_USERD_UPSTREAM_POOL_COMMAND_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define TBG_POOL_COMMAND_FD	3	/* of the socket, in toboggan-gateway */
#define TBG_POOL_COMMAND_PATH	1024	/* bytes of a path, its NUL included */
#define TBG_POOL_COMMAND_ARGS	2048	/* bytes of all arguments, each with its NUL */
#define TBG_POOL_COMMAND_MARK	33	/* bytes of the mark, its NUL included */

/* Defaults of the settings of pools, as they are written; and a bound. */
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
	TBG_POOL_COMMAND_OPEN = 1,	/* a pool; with its listening socket */
	TBG_POOL_COMMAND_CLOSE,	/* the pool of that id ends, once it is idle */
	TBG_POOL_COMMAND_STARTED,	/* users and chroots not known by now are refused */
};

enum tbg_pool_kind {
	TBG_POOL_CGI = 1,
	TBG_POOL_MODULE,
};

struct tbg_pool_command {
	uint32_t size;			/* of this struct: both are of one build */
	uint32_t what;			/* enum tbg_pool_command_what */
	uint32_t id;
	uint32_t kind;			/* enum tbg_pool_kind */
	uid_t uid;			/* that the pool runs as */
	gid_t gid;
	uid_t daemon;			/* it serves connections of this user alone */
	uint32_t time_ms;		/* of a request; of a module's callback */
	uint32_t cpu_s;			/* 0: not limited */
	uint32_t at_once;		/* programs; worker processes */
	uint32_t processes;		/* of all programs of the user; 0: not limited */
	uint32_t requests;		/* of a worker process */
	uint64_t memory, output;	/* bytes; 0: not limited */
	struct sockaddr_storage fetch;	/* where the daemon listens */
	char mark[TBG_POOL_COMMAND_MARK];	/* of this run: no client can claim to be a fetch */
	char path[TBG_POOL_COMMAND_PATH];	/* folder of programs; module */
	char prefix[TBG_POOL_COMMAND_PATH];	/* what of the request's path is not below it */
	char chroot[TBG_POOL_COMMAND_PATH];	/* "": none */
	char args[TBG_POOL_COMMAND_ARGS];
	uint32_t args_len;
};

#endif
