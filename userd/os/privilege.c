// SPDX-License-Identifier: GPL-2.0
/*
 * Capabilities belong to threads, user ids (through the C library) to the
 * process: the drop comes before workers are made, and each worker gives up
 * the rest for itself. No-new-privileges makes it final.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/privilege.h"

/*
 * To detach from interfaces, to unlink the control socket, and to read the
 * configuration and open the log again.
 */
static const cap_value_t kept[] = { CAP_NET_ADMIN, CAP_BPF, CAP_DAC_OVERRIDE };

/* Whether uid can search and read root_fd, by the kernel's own rules. */
static bool can_search(int root_fd, uid_t uid, gid_t gid)
{
	bool can;

	setfsgid(gid);
	setfsuid(uid);		/* takes the file capabilities out of effect */
	can = !faccessat(root_fd, ".", R_OK | X_OK, AT_EACCESS);
	if (!can)		/* a folder may be searched and not listed */
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

int tbg_privilege_choose(struct tbg_identity *ret, const char *user,
			 int root_fd, char *ret_msg, size_t msg_len)
{
	struct passwd *pw = user ? getpwnam(user) : NULL;
	struct stat st;

	*ret = (struct tbg_identity){ .change = !geteuid(), .uid = geteuid(),
				      .gid = getegid() };
	if (user && !pw) {
		snprintf(ret_msg, msg_len, "--user %s: no such user; want a name that `getent passwd` knows", user);
		return -ENOENT;
	}
	if (ret->change && setgroups(0, NULL)) {
		snprintf(ret_msg, msg_len, "root cannot be dropped: setgroups: %s; grant CAP_SETGID and CAP_SETUID, or start as another user",
			 strerror(errno));
		return -errno;
	}
	if (!ret->change) {
		if (!user || pw->pw_uid == geteuid())
			return 0;
		snprintf(ret_msg, msg_len, "--user %s: only root can become another user", user);
		return -EPERM;
	}
	pw = pw ?: getpwnam("www-data") ?: getpwnam("nobody");
	if (pw) {
		take(ret, pw);
		if (root_fd < 0 || can_search(root_fd, ret->uid, ret->gid))
			return 0;
	}
	if (user) {
		snprintf(ret_msg, msg_len, "--user %s: cannot search the root; choose a user who can, or chmod o+x it", user);
		return -EACCES;
	}
	if (fstat(root_fd, &st)) {
		snprintf(ret_msg, msg_len, "root: %s", strerror(errno));
		return -errno;
	}
	ret->fallback = true;
	ret->uid = st.st_uid;
	ret->gid = st.st_gid;
	pw = getpwuid(st.st_uid);
	if (pw)
		snprintf(ret->name, sizeof(ret->name), "%s", pw->pw_name);
	else
		snprintf(ret->name, sizeof(ret->name), "uid %u", st.st_uid);
	return 0;
}

/* Sets the thread's capabilities: kept ones permitted, none or all effective. */
static int caps_set(bool permitted, bool effective)
{
	cap_t had = cap_get_proc(), caps = cap_init();
	int err = had && caps ? 0 : -ENOMEM;

	for (size_t i = 0; !err && permitted && i < sizeof(kept) / sizeof(*kept); i++) {
		cap_flag_value_t on = CAP_CLEAR;

		if (cap_get_flag(had, kept[i], CAP_PERMITTED, &on) || on != CAP_SET)
			continue;
		cap_set_flag(caps, CAP_PERMITTED, 1, &kept[i], CAP_SET);
		if (effective)
			cap_set_flag(caps, CAP_EFFECTIVE, 1, &kept[i], CAP_SET);
	}
	if (!err && cap_set_proc(caps))
		err = -errno;
	cap_free(caps);
	cap_free(had);
	return err;
}

int tbg_privilege_drop(const struct tbg_identity *id)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (!id->change)
		return caps_set(true, false);
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) ||
	    setresgid(id->gid, id->gid, id->gid))
		return -errno;
	/*
	 * Root without capabilities must not get them back by exec. Where
	 * CAP_SETPCAP is missing (containers) this cannot be said.
	 */
	prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NOROOT |
	      SECBIT_NOROOT_LOCKED, 0, 0, 0);
	if (id->uid && setresuid(id->uid, id->uid, id->uid))
		return -errno;
	prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return caps_set(true, false);
}

int tbg_privilege_none(void)
{
	return caps_set(false, false);
}

int tbg_privilege_net(void)
{
	cap_t had = cap_get_proc(), caps = cap_init();
	const cap_value_t net = CAP_NET_ADMIN;
	cap_flag_value_t on = CAP_CLEAR;
	int err = had && caps ? 0 : -ENOMEM;

	if (!err && !cap_get_flag(had, net, CAP_PERMITTED, &on) && on == CAP_SET)
		cap_set_flag(caps, CAP_PERMITTED, 1, &net, CAP_SET);
	if (!err && cap_set_proc(caps))
		err = -errno;
	cap_free(caps);
	cap_free(had);
	return err;
}

void tbg_privilege_raise(void)
{
	caps_set(true, true);
}

void tbg_privilege_lower(void)
{
	caps_set(true, false);
}
