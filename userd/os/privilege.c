// SPDX-License-Identifier: GPL-2.0
/*
 * Capabilities belong to threads, user ids (through the C library) to the process: the
 * user is changed before workers start, and each worker then gives up the remaining
 * capabilities. No-new-privileges makes it irrevocable.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/privilege.h"

/* To detach from interfaces and to read the configuration again; none allows writing files. */
static const cap_value_t kept[] = { CAP_NET_ADMIN, CAP_BPF, CAP_DAC_READ_SEARCH };
static const cap_value_t writing[] = { CAP_DAC_OVERRIDE };
/* To switch sockets to repair mode (TCP_REPAIR), and to bind one to a low port again. */
static const cap_value_t repairing[] = { CAP_NET_ADMIN, CAP_NET_BIND_SERVICE };
/* To start programs as other users and in other roots, and to end them: see gateway/pool.c. */
static const cap_value_t becoming[] = {
	CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_SYS_CHROOT, CAP_KILL, CAP_DAC_READ_SEARCH,
};

/* Returns whether uid can search root_fd, by the kernel's own rules. */
static bool can_search(int root_fd, uid_t uid, gid_t gid)
{
	bool can;

	setfsgid(gid);
	setfsuid(uid);		/* makes the file capabilities ineffective */
	can = !faccessat(root_fd, ".", R_OK | X_OK, AT_EACCESS);
	if (!can)		/* search permission without read permission suffices */
		can = !faccessat(root_fd, ".", X_OK, AT_EACCESS);
	setfsuid(geteuid());
	setfsgid(getegid());
	return can;
}

static void take(struct tbg_identity *id, const struct passwd *pw)
{
	id->uid = pw->pw_uid;
	id->gid = pw->pw_gid;
	snprintf(id->name, sizeof(id->name), "%s", pw->pw_name);
}

static bool uid_read(const char *text, uid_t *ret)
{
	unsigned long n;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoul(text, &end, 10);
	*ret = n;
	return !*end && !errno && n < (uid_t)-1;
}

/* A number need not be a known user; then it is used for the group, too. */
static bool user_find(struct tbg_identity *id, const char *user)
{
	struct passwd *pw = getpwnam(user);
	uid_t uid;

	if (!pw && uid_read(user, &uid)) {
		pw = getpwuid(uid);
		if (!pw) {
			id->uid = id->gid = uid;
			snprintf(id->name, sizeof(id->name), "uid %u", uid);
			return true;
		}
	}
	if (pw)
		take(id, pw);
	return pw;
}

bool tbg_privilege_user_known(const char *user)
{
	struct tbg_identity id;

	return user_find(&id, user);
}

/* Finds the owner of the root folder. Returns false if that is root. */
static bool owner_find(struct tbg_identity *id, const struct stat *st)
{
	struct passwd *pw = getpwuid(st->st_uid);

	if (!st->st_uid)
		return false;
	id->fallback = true;
	if (pw) {
		take(id, pw);
		return true;
	}
	id->uid = st->st_uid;
	id->gid = st->st_gid ?: st->st_uid;	/* never use the group of root */
	snprintf(id->name, sizeof(id->name), "uid %u", st->st_uid);
	return true;
}

static int usual_find(struct tbg_identity *id, int root_fd, char *ret_msg, size_t msg_len)
{
	struct passwd *pw = getpwnam("www-data") ?: getpwnam("nobody");
	struct stat st;

	if (pw) {
		take(id, pw);
		if (root_fd < 0 || can_search(root_fd, id->uid, id->gid))
			return 0;
	}
	if (root_fd < 0 || fstat(root_fd, &st)) {
		snprintf(ret_msg, msg_len, "no user www-data or nobody to run as; name one by --user");
		return -ENOENT;
	}
	if (owner_find(id, &st))
		return 0;
	snprintf(ret_msg, msg_len, "the root is closed to %s, and its owner is root; chmod o+x it, or name its user by --user (root: CGI programs run as root, too)",
		 pw ? pw->pw_name : "all users");
	return -EACCES;
}

int tbg_privilege_choose(struct tbg_identity *ret, const char *user,
			 int root_fd, char *ret_msg, size_t msg_len)
{
	struct tbg_identity id;

	*ret = (struct tbg_identity){ .change = !geteuid(), .uid = geteuid(),
				      .gid = getegid() };
	id = *ret;
	if (user && !user_find(&id, user)) {
		snprintf(ret_msg, msg_len, "--user %s: no such user; want a number, or a name that `getent passwd` knows", user);
		return -ENOENT;
	}
	if (!ret->change) {
		if (!user || id.uid == geteuid())
			return 0;
		snprintf(ret_msg, msg_len, "--user %s: only root can become another user", user);
		return -EPERM;
	}
	if (setgroups(0, NULL)) {
		snprintf(ret_msg, msg_len, "root cannot be dropped: setgroups: %s; grant CAP_SETGID and CAP_SETUID, or start as another user",
			 strerror(errno));
		return -errno;
	}
	if (!user)
		return usual_find(ret, root_fd, ret_msg, msg_len);
	*ret = id;
	if (root_fd < 0 || can_search(root_fd, ret->uid, ret->gid))
		return 0;
	snprintf(ret_msg, msg_len, "--user %s: cannot search the root; choose a user who can, or chmod o+x it", user);
	return -EACCES;
}

/*
 * Keeps those of `caps` that the thread has, permitted or effective, and gives up all
 * others.
 */
static int caps_set(const cap_value_t *caps, size_t nr, bool effective)
{
	cap_t had = cap_get_proc(), to = cap_init();
	int err = had && to ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < nr; i++) {
		cap_flag_value_t on = CAP_CLEAR;

		if (cap_get_flag(had, caps[i], CAP_PERMITTED, &on) || on != CAP_SET)
			continue;
		cap_set_flag(to, CAP_PERMITTED, 1, &caps[i], CAP_SET);
		if (effective)
			cap_set_flag(to, CAP_EFFECTIVE, 1, &caps[i], CAP_SET);
	}
	if (!err && cap_set_proc(to))
		err = -errno;
	cap_free(to);
	cap_free(had);
	return err;
}

#define KEPT	(sizeof(kept) / sizeof(*kept))
#define WRITING (sizeof(writing) / sizeof(*writing))
#define REPAIRING (sizeof(repairing) / sizeof(*repairing))
#define BECOMING (sizeof(becoming) / sizeof(*becoming))

/* Changes to the user; permitted capabilities are kept for now. */
static int user_become(const struct tbg_identity *id)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (!id->change)
		return 0;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) ||
	    setresgid(id->gid, id->gid, id->gid))
		return -errno;
	/*
	 * Root without capabilities must not regain them by exec. Without CAP_SETPCAP
	 * (in containers) this cannot be set.
	 */
	prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NOROOT |
	      SECBIT_NOROOT_LOCKED, 0, 0, 0);
	if (id->uid && setresuid(id->uid, id->uid, id->uid))
		return -errno;
	prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return 0;
}

void tbg_privilege_close(void)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

bool tbg_privilege_writes(void)
{
	cap_flag_value_t on = CAP_CLEAR;
	cap_t had = cap_get_proc();
	bool ret = had && !cap_get_flag(had, CAP_DAC_OVERRIDE, CAP_PERMITTED, &on) && on == CAP_SET;

	cap_free(had);
	return ret;
}

bool tbg_privilege_binds(void)
{
	cap_flag_value_t on = CAP_CLEAR;
	cap_t had = cap_get_proc();
	bool ret = had && !cap_get_flag(had, CAP_NET_BIND_SERVICE, CAP_PERMITTED, &on) &&
		   on == CAP_SET;

	cap_free(had);
	return ret;
}

int tbg_privilege_drop(const struct tbg_identity *id)
{
	return user_become(id) ?: caps_set(kept, KEPT, false);
}

int tbg_privilege_writer(const struct tbg_identity *id)
{
	int err = user_become(id) ?: caps_set(writing, WRITING, true);

	tbg_privilege_close();
	return err;
}

int tbg_privilege_repairer(const struct tbg_identity *id)
{
	int err = user_become(id) ?: caps_set(repairing, REPAIRING, true);

	tbg_privilege_close();
	return err;
}

int tbg_privilege_becomer(void)
{
	return caps_set(becoming, BECOMING, true);
}

int tbg_privilege_none(void)
{
	return caps_set(NULL, 0, false);
}

/*
 * The C library changes these for the calling thread only. Leaving root also drops its
 * file capabilities.
 */
void tbg_privilege_files_of(const struct tbg_identity *id)
{
	setfsgid(id->gid);
	setfsuid(id->uid);
}

void tbg_privilege_files_own(void)
{
	setfsuid(geteuid());
	setfsgid(getegid());
}

void tbg_privilege_raise(void)
{
	caps_set(kept, KEPT, true);
}

void tbg_privilege_lower(void)
{
	caps_set(kept, KEPT, false);
}
