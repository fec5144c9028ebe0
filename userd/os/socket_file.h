/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The file of a Unix socket that listens at a path, for the control socket and the
 * admin listener.
 */
#ifndef TBG_USERD_OS_SOCKET_FILE_H
#define TBG_USERD_OS_SOCKET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct tbg_identity;

struct tbg_socket_file {
	const char *name;	/* file name of the socket */
	int folder_fd;		/* in this folder */
	bool as_user;		/* the path has a symbolic link that root must not follow */
	int fd;			/* the listening socket */
	struct stat st;		/* of the file, so that no other file is unlinked */
};

/*
 * Checks whether the caller could bind path, of less than 108 bytes. An existing socket
 * is fine: it may be that of the running daemon. Returns 0 or a negative errno.
 */
int tbg_socket_file_check(const char *path);

/*
 * Binds path for the user that the daemon will become. Replaces the socket of a dead
 * daemon, but not that of a running one. path must outlive *s. Returns 0, or a negative
 * errno with a message.
 */
int tbg_socket_file_open(struct tbg_socket_file *s, const char *path,
			    const struct tbg_identity *id, char *ret_msg, size_t msg_len);
void tbg_socket_file_close(struct tbg_socket_file *s);

/* Makes a message for an error of opening path. pid: of the daemon that answers there, or 0. */
void tbg_socket_file_explain(const char *path, int err, pid_t pid, char *ret_msg,
				size_t msg_len);

#endif
