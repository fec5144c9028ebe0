/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whom the daemon runs as once everything that needs root is open, and what
 * little of root is kept to undo it.
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
 * user: a name or a number. NULL: www-data, else nobody, else (where they cannot
 * search root_fd) the owner of the root, unless that is root: then only "root" as
 * user will do. root_fd -1: there is none. Negative errno with a message.
 */
int tbg_privilege_choose(struct tbg_identity *ret, const char *user,
			 int root_fd, char *ret_msg, size_t msg_len);

/* Whether that is a user, by name or by number. */
bool tbg_privilege_user_known(const char *user);

/*
 * No other process of our user may look into this one, which a program that we run
 * is one of; not even while it has not changed its user yet. First of all in main().
 */
void tbg_privilege_close(void);

/* Whether we may write where only root may. */
bool tbg_privilege_writes(void);

/*
 * The whole process becomes that user, for good; the calling thread keeps
 * what tbg_privilege_raise() needs, but not in effect.
 */
int tbg_privilege_drop(const struct tbg_identity *id);

/* As tbg_privilege_drop(), and all that is kept, in effect, is to write anywhere. */
int tbg_privilege_writer(const struct tbg_identity *id);

/* As tbg_privilege_drop(), and all that is kept, in effect, is CAP_NET_ADMIN. */
int tbg_privilege_repairer(const struct tbg_identity *id);

/* The calling thread keeps what it takes to become other users, in effect. */
int tbg_privilege_becomer(void);

/* The calling thread has no capability any more, ever. */
int tbg_privilege_none(void);

/* Between the two, this thread may do with files what that user may. */
void tbg_privilege_files_of(const struct tbg_identity *id);
void tbg_privilege_files_own(void);

/*
 * Around what undoes the start (detaching from interfaces) or reads again what was
 * read then (the configuration, and what it names).
 */
void tbg_privilege_raise(void);
void tbg_privilege_lower(void);

#endif
