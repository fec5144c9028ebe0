// SPDX-License-Identifier: GPL-2.0
/*
 * forbid CALL COMMAND...: runs a command where a system call is forbidden, as the
 * profiles of container runtimes do: it fails with EPERM in the command and in all that
 * it starts.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	unsigned int nr;
} calls[] = {
	{ "io_uring_setup", SYS_io_uring_setup },
	{ "openat2", SYS_openat2 },
};

static int forbid(unsigned int nr)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog all = { sizeof(rules) / sizeof(*rules), rules };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ?:
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 2 && i < sizeof(calls) / sizeof(*calls); i++) {
		if (strcmp(argv[1], calls[i].name))
			continue;
		if (forbid(calls[i].nr)) {
			perror("forbid");
			return 1;
		}
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		return 1;
	}
	fprintf(stderr, "forbid: expected a system call of its list, and a command\n");
	return 2;
}
