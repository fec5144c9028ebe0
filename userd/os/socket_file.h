/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file of a socket that listens at a path: the control socket's, the admin
 * listener's.
 */
#ifndef TBG_USERD_OS_SOCKET_FILE_H
#define TBG_USERD_OS_SOCKET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct tbg_identity;

struct tbg_socket_file {
	const char *name;	/* of the socket, */
	int folder_fd;		/* in there */
	bool as_user;		/* a link leads there that root does not follow */
	int fd;			/* listens */
	struct stat st;		/* of the file, to unlink no other */
};

/*
 * Whether the caller could bind path, of less than 108 bytes: a socket there is fine,
 * it may be that of the daemon that runs. 0 or negative errno.
 */
int tbg_socket_file_check(const char *path);

/*
 * Binds path (a dead daemon's socket there is replaced, a live one's is not), for the
 * user that the daemon is about to become. path outlives *s. 0, or negative errno and a
 * message.
 */
int tbg_socket_file_open(struct tbg_socket_file *s, const char *path,
			    const struct tbg_identity *id, char *ret_msg, size_t msg_len);
void tbg_socket_file_close(struct tbg_socket_file *s);

/* A message for an error of opening path; pid: whose daemon answers there, or 0. */
void tbg_socket_file_explain(const char *path, int err, pid_t pid, char *ret_msg,
				size_t msg_len);

#endif
