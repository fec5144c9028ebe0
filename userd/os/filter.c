// SPDX-License-Identifier: GPL-2.0
/*
 * The filters list what is refused (EPERM), not what is allowed: the gateway and every
 * program inherit the daemon's filter, and a program may need anything that an ordinary
 * user's program does. Refused are calls which such programs do not use, but attacks on
 * the kernel and on other processes do.
 */
#include "os/filter.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/socket.h>

/*
 * One string each, separated by blanks. Names unknown to the installed libseccomp are
 * skipped.
 */
static const char *const refused[] = {
	[TBG_FILTER_DAEMON] =
		/* other processes' memory and descriptors */
#ifndef __SANITIZE_ADDRESS__		/* LeakSanitizer uses ptrace */
		"ptrace "
#endif
		"process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp "
		/*
		 * files by handle, bypassing folder permissions: needs only
		 * CAP_DAC_READ_SEARCH
		 */
		"open_by_handle_at name_to_handle_at "
		/* the machine */
		"init_module finit_module delete_module kexec_load kexec_file_load reboot "
		"swapon swapoff acct quotactl quotactl_fd syslog sethostname setdomainname "
		"settimeofday clock_settime clock_adjtime adjtimex stime iopl ioperm "
		/* mounts and namespaces */
		"mount umount umount2 pivot_root move_mount open_tree fsopen fsconfig fsmount "
		"fspick mount_setattr unshare setns "
		/* rarely used and often vulnerable */
		"add_key request_key keyctl userfaultfd perf_event_open lookup_dcookie "
		"nfsservctl modify_ldt vm86 vm86old uselib sysfs _sysctl remap_file_pages "
		"fanotify_init vhangup ",
	[TBG_FILTER_GATEWAY] =
		"bpf io_uring_setup io_uring_enter io_uring_register ",
	[TBG_FILTER_PROGRAM] =
		"chroot mknod mknodat ",
};

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | \
		    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static int names_refuse(scmp_filter_ctx f, const char *names)
{
	char name[64];
	int err = 0;

	for (size_t len; !err && *names; names += len + 1) {
		int nr;

		len = strcspn(names, " ");
		memcpy(name, names, len);
		name[len] = 0;
		nr = seccomp_syscall_resolve_name(name);
		if (nr != __NR_SCMP_ERROR)
			err = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr, 0);
	}
	return err;
}

/*
 * Refuses socket families other than unix, inet and netlink: kernel code that is not
 * needed here.
 */
static int families_refuse(scmp_filter_ctx f)
{
	int err = 0;

	for (int family = AF_INET + 1; !err && family <= AF_NETLINK; family++)
		if (family != AF_INET6 && family != AF_NETLINK)
			err = seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
					       SCMP_A0_32(SCMP_CMP_EQ, family));
	return err ?: seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				       SCMP_A0_32(SCMP_CMP_GT, AF_NETLINK));
}

/*
 * clone3() passes its flags in memory, which a filter cannot read; on ENOSYS libc falls
 * back to clone().
 */
static int namespaces_refuse(scmp_filter_ctx f)
{
	int err = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	for (unsigned long flag = 1; !err && flag <= NAMESPACES; flag <<= 1)
		if (flag & NAMESPACES)
			err = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
					       SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
	return err;
}

int tbg_filter_load(enum tbg_filter which)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int err;

	if (!f)
		return -ENOMEM;
	err = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
#ifdef __x86_64__
	/* otherwise a 32-bit program would be killed */
	err = err ?: seccomp_arch_add(f, SCMP_ARCH_X86);
#endif
	for (unsigned int i = 0; !err && i <= which; i++)
		err = names_refuse(f, refused[i]);
	err = err ?: families_refuse(f);
	if (which == TBG_FILTER_PROGRAM)
		err = err ?: namespaces_refuse(f);
	err = err ?: seccomp_load(f);
	seccomp_release(f);
	return err;
}
