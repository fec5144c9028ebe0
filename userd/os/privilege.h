/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Selects the user as which the daemon runs after everything that needs root is open,
 * and keeps the few capabilities that are needed to undo it.
 */
#ifndef TBG_USERD_OS_PRIVILEGE_H
#define TBG_USERD_OS_PRIVILEGE_H

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
 * user: a name or a number. NULL: www-data, else nobody; if that user cannot search
 * root_fd: the owner of the root, unless that is root, which must be named explicitly.
 * root_fd -1: there is no root. Returns 0, or a negative errno with a message.
 */
int tbg_privilege_choose(struct tbg_identity *ret, const char *user,
			 int root_fd, char *ret_msg, size_t msg_len);

/* Returns whether that is a user, by name or by number. */
bool tbg_privilege_user_known(const char *user);

/*
 * Prevents other processes of the same user, such as programs that the daemon runs,
 * from reading this process (ptrace, /proc). Call it first in main(): a core of root
 * would otherwise be readable after the change of user.
 */
void tbg_privilege_close(void);

/* Returns whether the process may bind sockets to low ports. */
bool tbg_privilege_binds(void);

/* Returns whether the process may write files regardless of their permissions. */
bool tbg_privilege_writes(void);

/*
 * Changes the whole process to that user, irrevocably. The calling thread keeps the
 * capabilities that tbg_privilege_raise() needs, but not effective.
 */
int tbg_privilege_drop(const struct tbg_identity *id);

/* As tbg_privilege_drop(), but keeps only CAP_DAC_OVERRIDE, effective. */
int tbg_privilege_writer(const struct tbg_identity *id);

/* As tbg_privilege_drop(), but keeps CAP_NET_ADMIN and CAP_NET_BIND_SERVICE, effective. */
int tbg_privilege_repairer(const struct tbg_identity *id);

/* The calling thread keeps the capabilities to become other users, effective. */
int tbg_privilege_becomer(void);

/* The calling thread gives up all capabilities, irrevocably. */
int tbg_privilege_none(void);

/* Between these two calls, the thread has the file permissions of that user. */
void tbg_privilege_files_of(const struct tbg_identity *id);
void tbg_privilege_files_own(void);

/*
 * Enclose what undoes the start (detaching from interfaces) or repeats it (reading the
 * configuration and the files it names).
 */
void tbg_privilege_raise(void);
void tbg_privilege_lower(void);

#endif
