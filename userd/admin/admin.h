/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The admin listener: HTTP for monitoring (/metrics, /ready, /live), a page for people,
 * and the requests of that page. It has its own thread with an event loop, and never
 * blocks a worker or the control thread.
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
 * Binds the address or path of the options, before privileges are dropped. *ret NULL:
 * off. Returns 0, or a negative errno with a message in ret_msg.
 */
int tbg_admin_open(struct tbg_admin **ret, struct tbg_server *s,
		   const struct tbg_identity *id, char *ret_msg,
		   size_t msg_len);

/*
 * Identifies its socket file for the process that removes it where the daemon may not.
 * False: it has no such file.
 */
bool tbg_admin_socket(const struct tbg_admin *a, int *ret_folder, const char **ret_name,
		      struct stat *ret_st);

/*
 * Starts the thread, after privileges were dropped. Returns 0 (also for NULL) or a
 * negative errno.
 */
int tbg_admin_start(struct tbg_admin *a);

/* Stops the thread and unlinks the socket file. Accepts NULL. */
void tbg_admin_close(struct tbg_admin *a);

/* Returns the address as text, with the port that the kernel has chosen; NULL: off. */
const char *tbg_admin_text(const struct tbg_admin *a);

#endif
