/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whom the daemon runs as once everything that needs root is open, and what
 * little of root is kept to undo it.
 */
#ifndef TBG_USERD_PRIVILEGE_H
#define TBG_USERD_PRIVILEGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tbg_identity {
	bool change;		/* we are root */
	uid_t uid;
	gid_t gid;
	char name[64];		/* for messages */
	bool fallback;		/* the usual user cannot read the root */
};

/*
 * user NULL: www-data, else nobody, else (where they cannot search root_fd)
 * the owner of the root. root_fd -1: there is none. Negative errno with a
 * message.
 */
int tbg_privilege_choose(struct tbg_identity *ret, const char *user,
			 int root_fd, char *ret_msg, size_t msg_len);

/*
 * The whole process becomes that user, for good; the calling thread keeps
 * what tbg_privilege_raise() needs, but not in effect.
 */
int tbg_privilege_drop(const struct tbg_identity *id);

/* The calling thread has no capability any more, ever. */
int tbg_privilege_none(void);

/* The same but for CAP_NET_ADMIN, permitted and not in effect: for TCP_REPAIR. */
int tbg_privilege_net(void);

/*
 * Around what undoes the start (detaching, unlinking the control socket) or is
 * done again as it was then (reading the configuration, opening the log).
 */
void tbg_privilege_raise(void);
void tbg_privilege_lower(void);

#endif
