/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The socket file of the control socket, for control.c alone.
 */
#ifndef TBG_USERD_CONTROL_SOCKET_H
#define TBG_USERD_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct tbg_identity;

struct tbg_control_socket {
	const char *name;	/* of the socket, */
	int folder_fd;		/* in there */
	bool as_user;		/* a link leads there that root does not follow */
	int fd;			/* listens */
	struct stat st;		/* of the file, to unlink no other */
};

/* See tbg_control_open(). path outlives *s. 0, or negative errno and a message. */
int tbg_control_socket_open(struct tbg_control_socket *s, const char *path,
			    const struct tbg_identity *id, char *ret_msg, size_t msg_len);
void tbg_control_socket_close(struct tbg_control_socket *s);

/* A message for an error of opening path; pid: whose daemon answers there, or 0. */
void tbg_control_socket_explain(const char *path, int err, pid_t pid, char *ret_msg,
				size_t msg_len);

#endif
