/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The admin listener: HTTP for monitoring (/metrics, /ready, /live), a page for
 * people, and what the page asks. A thread of its own with an event loop; it
 * must never hold up a worker or the control thread.
 */
#ifndef TBG_USERD_ADMIN_ADMIN_H
#define TBG_USERD_ADMIN_ADMIN_H

#include <stdbool.h>
#include <sys/stat.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct tbg_admin;
struct tbg_identity;
struct tbg_server;

/*
 * Binds the address, or the path, that the options name, before privileges are
 * dropped. *ret NULL: off. 0 or negative errno, upon which ret_msg says why.
 */
int tbg_admin_open(struct tbg_admin **ret, struct tbg_server *s,
		   const struct tbg_identity *id, char *ret_msg,
		   size_t msg_len);

/*
 * Its socket, for whoever removes it where we may not, and the folder, to be closed.
 * False: it has none.
 */
bool tbg_admin_socket(const struct tbg_admin *a, int *ret_folder, const char **ret_name,
		      struct stat *ret_st);

/* Starts the thread, once privileges are dropped. NULL: 0. Negative errno. */
int tbg_admin_start(struct tbg_admin *a);

/* Stops the thread, unlinks. NULL is allowed. */
void tbg_admin_close(struct tbg_admin *a);

/* The address as text, with the port that the kernel has chosen; NULL: off. */
const char *tbg_admin_text(const struct tbg_admin *a);

#endif
