// SPDX-License-Identifier: GPL-2.0
/*
 * One small experiment for each line of kernel/requirements, which describes its format.
 * Versions decide only where a line names fix levels. A feature that the caller is not
 * permitted to try is unknown, not missing.
 */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <sys/capability.h>

#include "level.h"
#include "probe_uring.h"
#include "tiers/direct.h"
#include "tiers/sock_selftest.h"

#define TCX_INGRESS	46	/* BPF_TCX_INGRESS; headers of Debian 12 lack it */
#define FIELDS_NR	7

/* The result of an experiment: present, or the reason why not. */
enum state { PRESENT, MISSING, UNKNOWN };

struct result {
	enum state state;
	char detail[160];
};

struct row {
	const char *name, *tiers, *need, *probe, *since, *fixed, *lost;
};

static const char *const state_names[] = { "present", "missing", "unknown" };

static void present(struct result *r)
{
	r->state = PRESENT;
}

/* Whether this process has a seccomp filter, as in containers. */
static bool filtered(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	int mode = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	if (f)
		fclose(f);
	return mode == 2;
}

/* What forbids the experiment, and where to run it instead. */
static const char *forbidden(void)
{
	if (filtered())
		return "forbidden by a seccomp filter (containers have one); run outside of it to find out";
	if (geteuid())
		return "not permitted; run as root to find out";
	return "forbidden to this root (a container, a security module, lockdown); run on the host to find out";
}

static void absent(struct result *r, int err)
{
	r->state = err == EPERM || err == EACCES ? UNKNOWN : MISSING;
	snprintf(r->detail, sizeof(r->detail), "%s",
		 r->state == UNKNOWN ? forbidden() : strerror(err));
}

/* fd of an experiment that worked, or negative errno. */
static void judge_fd(struct result *r, int fd)
{
	if (fd < 0) {
		absent(r, -fd);
		return;
	}
	close(fd);
	present(r);
}

/* --- files, system calls, capabilities ----------------------------------- */

static void try_file(const char *path, struct result *r)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	judge_fd(r, fd < 0 ? -errno : fd);
}

/* It is mounted, or can be mounted where nobody else sees it. */
static void try_mount(const char *type, struct result *r)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], mark[64];
	bool found = false;
	int fs, fd = -1;

	snprintf(mark, sizeof(mark), " - %s ", type);
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, mark);
	if (f)
		fclose(f);
	if (found) {
		present(r);
		return;
	}
	fs = fsopen(type, FSOPEN_CLOEXEC);
	if (fs >= 0 && !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	judge_fd(r, fd < 0 ? -errno : fd);
	if (fs >= 0)
		close(fs);
}

static void try_sysctl(const char *arg, struct result *r)
{
	char path[128];
	long long want, have;
	FILE *f;

	if (sscanf(arg, "%127[^=]=%lld", path, &want) != 2) {
		absent(r, EINVAL);
		return;
	}
	f = fopen(path, "re");
	if (!f) {
		absent(r, errno);
		return;
	}
	if (fscanf(f, "%lld", &have) == 1 && have >= want) {
		present(r);
	} else {
		r->state = MISSING;
		snprintf(r->detail, sizeof(r->detail), "%s is below %lld",
			 path, want);
	}
	fclose(f);
}

/* Calls that cannot succeed, and fail with another error than ENOSYS if they exist. */
static void try_syscall(const char *name, struct result *r)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH };
	long ret = -1;

	errno = ENOSYS;
	if (!strcmp(name, "bpf"))
		ret = syscall(SYS_bpf, -1, NULL, 0);
	else if (!strcmp(name, "openat2"))
		ret = syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));
	else if (!strcmp(name, "inotify_init1"))
		ret = inotify_init1(IN_CLOEXEC);
	else
		errno = EINVAL, r->state = UNKNOWN;
	if (ret >= 0)
		close(ret);
	if (ret >= 0 || (errno != ENOSYS && errno != EPERM))
		present(r);
	else
		absent(r, errno);
}

static void try_cap(const char *name, struct result *r)
{
	char lower[64] = "";
	cap_t caps = cap_get_proc();
	cap_flag_value_t set = CAP_CLEAR;
	cap_value_t cap;

	for (size_t i = 0; name[i] && i < sizeof(lower) - 1; i++)
		lower[i] = name[i] | 0x20;
	/* '_' | 0x20 is DEL */
	for (char *p = lower; *p; p++)
		if (*p == 0x7f)
			*p = '_';
	if (caps && !cap_from_name(lower, &cap))
		cap_get_flag(caps, cap, CAP_EFFECTIVE, &set);
	cap_free(caps);
	r->state = set == CAP_SET ? PRESENT : MISSING;
	if (set != CAP_SET)
		snprintf(r->detail, sizeof(r->detail), "not held by uid %d",
			 (int)geteuid());
}

/* --- BPF ----------------------------------------------------------------- */

static enum bpf_prog_type prog_type(const char *name, size_t len)
{
	static const struct {
		const char *name;
		enum bpf_prog_type type;
	} types[] = {
		{ "sched_cls",	BPF_PROG_TYPE_SCHED_CLS },
		{ "sock_ops",	BPF_PROG_TYPE_SOCK_OPS },
		{ "sk_skb",	BPF_PROG_TYPE_SK_SKB },
		{ "sk_msg",	BPF_PROG_TYPE_SK_MSG },
		{ "xdp",	BPF_PROG_TYPE_XDP },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strlen(types[i].name) == len &&
		    !memcmp(types[i].name, name, len))
			return types[i].type;
	return BPF_PROG_TYPE_UNSPEC;
}

/* "return 0": a descriptor or negative errno. */
static int prog_load(enum bpf_prog_type type)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(type, "tbg_probe", "GPL", insns, 2, NULL);

	return fd < 0 ? -errno : fd;
}

/*
 * Only the first network namespace has the sysctl. Elsewhere, a loaded program shows
 * whether it was compiled, if loading is permitted.
 */
static void try_jit(const char *arg, struct result *r)
{
	struct bpf_prog_info info = { 0 };
	__u32 len = sizeof(info);
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%.*s", (int)strcspn(arg, "="), arg);
	if (!access(path, F_OK)) {
		try_sysctl(arg, r);
		return;
	}
	fd = prog_load(BPF_PROG_TYPE_SCHED_CLS);
	if (fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &len) && info.jited_prog_len) {
		present(r);
	} else if (fd >= 0) {
		r->state = MISSING;
		snprintf(r->detail, sizeof(r->detail), "programs are not compiled");
	} else {
		r->state = UNKNOWN;
		snprintf(r->detail, sizeof(r->detail),
			 "%s does not exist in this network namespace; run on the host", path);
	}
	if (fd >= 0)
		close(fd);
}

static void try_prog(const char *arg, struct result *r)
{
	judge_fd(r, prog_load(prog_type(arg, strlen(arg))));
}

static void try_map(const char *arg, struct result *r)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);
	size_t len = strcspn(arg, "+");
	enum bpf_map_type type;
	int key = 4, value = 8, nr = 1, fd;

	if (!strncmp(arg, "hash", len)) {
		type = BPF_MAP_TYPE_HASH;
	} else if (!strncmp(arg, "array", len)) {
		type = BPF_MAP_TYPE_ARRAY;
	} else if (!strncmp(arg, "ringbuf", len)) {
		type = BPF_MAP_TYPE_RINGBUF;
		key = value = 0;
		nr = sysconf(_SC_PAGESIZE);
	} else if (!strncmp(arg, "sockmap", len)) {
		type = BPF_MAP_TYPE_SOCKMAP;
	} else {
		absent(r, EINVAL);
		return;
	}
	if (!strcmp(arg + len, "+mmapable"))
		opts.map_flags = BPF_F_MMAPABLE;
	fd = bpf_map_create(type, "tbg_probe", key, value, nr, &opts);
	judge_fd(r, fd < 0 ? -errno : fd);
}

/* Numbers of the helpers that lines of requirements may name. */
static int helper_id(const char *name)
{
	static const char *const names[] = {
#define X(name, ...) [BPF_FUNC_##name] = "bpf_" #name,
#ifdef ___BPF_FUNC_MAPPER
		___BPF_FUNC_MAPPER(X, )
#else
		[BPF_FUNC_loop] = "bpf_loop",
		[BPF_FUNC_clone_redirect] = "bpf_clone_redirect",
		[BPF_FUNC_dynptr_read] = "bpf_dynptr_read",
		[BPF_FUNC_get_listener_sock] = "bpf_get_listener_sock",
		[BPF_FUNC_sk_storage_get] = "bpf_sk_storage_get",
		[BPF_FUNC_xdp_load_bytes] = "bpf_xdp_load_bytes",
#endif
#undef X
	};

	for (size_t i = 1; i < sizeof(names) / sizeof(*names); i++)
		if (names[i] && !strcmp(names[i], name))
			return i;
	return -1;
}

/* Loads a program that calls it; the verifier must not report "unknown func". */
static void try_helper(const char *arg, struct result *r)
{
	const char *slash = strchr(arg, '/');
	int id = slash ? helper_id(slash + 1) : -1;
	enum bpf_prog_type type;
	int fd, err;

	if (id < 0) {
		absent(r, EINVAL);
		return;
	}
	type = prog_type(arg, slash - arg);
	fd = prog_load(type);	/* the call below cannot distinguish EPERM */
	if (fd < 0) {
		absent(r, -fd);
		return;
	}
	close(fd);
	err = libbpf_probe_bpf_helper(type, id, NULL);
	if (err == 1)
		present(r);
	else
		absent(r, err ? -err : ENOSYS);
}

static void try_btf(const char *name, int kind, struct result *r)
{
	static struct btf *btf;
	static bool asked;
	int err;

	if (!asked)
		btf = btf__load_vmlinux_btf();
	asked = true;
	err = btf ? btf__find_by_name_kind(btf, name, kind) : -ENODATA;
	if (err >= 0) {
		present(r);
		return;
	}
	r->state = MISSING;
	snprintf(r->detail, sizeof(r->detail), "%s", btf ?
		 "not in kernel BTF" : "no kernel BTF to look it up in");
}

static void try_kfunc(const char *name, struct result *r)
{
	try_btf(name, BTF_KIND_FUNC, r);
}

/* As the daemon does, which has its programs in both forms. */
static void try_reads(const char *type, struct result *r)
{
	int fd = prog_load(prog_type(type, strlen(type)));

	judge_fd(r, fd);
	if (fd >= 0 && tbg_direct_needed())
		try_kfunc("bpf_rdonly_cast", r);
}

static void try_struct(const char *name, struct result *r)
{
	try_btf(name, BTF_KIND_STRUCT, r);
}

/* 0 or negative errno. */
static int attach_tcx(int prog)
{
	union bpf_attr attr = { 0 };
	int fd;

	attr.link_create.prog_fd = prog;
	attr.link_create.target_ifindex = 1;	/* lo */
	attr.link_create.attach_type = TCX_INGRESS;
	fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int attach_clsact(int prog)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = 1,
		    .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = prog);
	int err = bpf_tc_hook_create(&hook);

	return err ?: bpf_tc_attach(&hook, &opts);
}

/* In a child with a network namespace of its own, which removes everything at its end. */
static void try_attach(const char *arg, struct result *r)
{
	int prog = prog_load(BPF_PROG_TYPE_SCHED_CLS), status = 0, err;
	pid_t pid;

	if (prog < 0) {
		absent(r, -prog);
		return;
	}
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNET))
			_exit(errno);
		err = !strcmp(arg, "tcx") ? attach_tcx(prog) :
					    attach_clsact(prog);
		_exit(-err & 0xff);
	}
	close(prog);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		absent(r, EAGAIN);
	else if (WEXITSTATUS(status))
		absent(r, WEXITSTATUS(status));
	else
		present(r);
}

/* EPERM has two causes, one of which can be read: 1 exempts CAP_SYS_ADMIN. */
static bool uring_disabled(int err, struct result *r)
{
	FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	int level = 0;

	if (f && fscanf(f, "%d", &level) != 1)
		level = 0;
	if (f)
		fclose(f);
	if (err != EPERM || !level)
		return false;
	r->state = MISSING;
	snprintf(r->detail, sizeof(r->detail), "the sysctl kernel.io_uring_disabled is %d", level);
	return true;
}

static void try_io_uring(const char *name, struct result *r)
{
	int err = tbg_uring_try(name);

	if (err && !uring_disabled(-err, r))
		absent(r, -err);
	else if (!err)
		present(r);
}

/* --- fix levels ---------------------------------------------------------- */

static void try_fixed(const struct row *row, struct result *r)
{
	struct tbg_version v;

	if (!strcmp(row->fixed, "-"))
		return;
	switch (tbg_level_running(row->fixed, &v)) {
	case TBG_LEVEL_FIXED:
		break;
	case TBG_LEVEL_UNKNOWN:
		r->state = UNKNOWN;
		snprintf(r->detail, sizeof(r->detail), "uname reports no version");
		break;
	case TBG_LEVEL_UNLISTED:
		r->state = MISSING;
		snprintf(r->detail, sizeof(r->detail),
			 "kernel is %s, of a series that is not listed: fixed in %s; --sock unlisted tries it",
			 v.text, row->fixed);
		break;
	case TBG_LEVEL_OPEN:
		r->state = MISSING;
		snprintf(r->detail, sizeof(r->detail),
			 "kernel is %s, fixed in %s", v.text, row->fixed);
	}
}

/* --- the table ----------------------------------------------------------- */

static const char requirements[] =
#include "requirements.inc"
;

/* Cuts a line in place; false: not a feature. */
static bool row_parse(char *line, struct row *ret)
{
	const char **fields[FIELDS_NR] = {
		&ret->name, &ret->tiers, &ret->need, &ret->probe, &ret->since,
		&ret->fixed, &ret->lost,
	};

	if (!*line || *line == '#')
		return false;
	for (int i = 0; i < FIELDS_NR; i++) {
		*fields[i] = strsep(&line, "|");
		if (!*fields[i])
			return false;
	}
	return true;
}

/*
 * The self-test of sock, unless the line of that name shows that the kernel lacks fixes: a
 * user who only asks must not trigger the bugs.
 */
static void try_selftest(const char *name, struct result *r)
{
	char mark[64], line[512] = "";
	const char *at;
	struct tbg_version v;
	struct row row;
	int err;

	snprintf(mark, sizeof(mark), "\n%s|", name);
	at = strstr(requirements, mark);
	if (at)
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
	if (!row_parse(line, &row)) {
		absent(r, EINVAL);
		return;
	}
	if (tbg_level_running(row.fixed, &v) == TBG_LEVEL_OPEN) {
		r->state = UNKNOWN;
		snprintf(r->detail, sizeof(r->detail), "not tried without %s", name);
		return;
	}
	err = tbg_sock_selftest(r->detail, sizeof(r->detail));
	if (err == -EPERM || err == -EACCES)
		absent(r, -err);
	else
		r->state = err ? MISSING : PRESENT;
}

static void row_try(const struct row *row, struct result *r)
{
	static const struct {
		const char *kind;
		void (*try)(const char *arg, struct result *r);
	} kinds[] = {
		{ "file:",	try_file },	{ "sysctl:",	try_sysctl },
		{ "syscall:",	try_syscall },	{ "map:",	try_map },
		{ "prog:",	try_prog },	{ "helper:",	try_helper },
		{ "kfunc:",	try_kfunc },	{ "struct:",	try_struct },
		{ "reads:",	try_reads },
		{ "attach:",	try_attach },	{ "io_uring:",	try_io_uring },
		{ "cap:",	try_cap },	{ "mount:",	try_mount },
		{ "selftest:",	try_selftest },	{ "jit:",	try_jit },
	};
	bool known = !strcmp(row->probe, "-");

	*r = (struct result){ .state = PRESENT };
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		size_t len = strlen(kinds[i].kind);

		if (strncmp(row->probe, kinds[i].kind, len))
			continue;
		kinds[i].try(row->probe + len, r);
		known = true;
	}
	if (!known) {
		r->state = UNKNOWN;
		snprintf(r->detail, sizeof(r->detail),
			 "this version does not know how to try %s", row->probe);
	}
	if (r->state == PRESENT)
		try_fixed(row, r);
}

static const char *const tier_names[] = { "wire", "sock", "user" };
#define TIERS_NR 3

struct tier {
	enum state state;
	json_t *lacks;
};

/* A required feature that is not present decides about its tiers. */
static void tiers_judge(const struct row *row, const struct result *r,
			struct tier *tiers)
{
	if (r->state == PRESENT || strcmp(row->need, "must"))
		return;
	for (int i = 0; i < TIERS_NR; i++) {
		if (!strstr(row->tiers, tier_names[i]))
			continue;
		if (tiers[i].state != MISSING)
			tiers[i].state = r->state;
		json_array_append_new(tiers[i].lacks, json_string(row->name));
	}
}

static json_t *row_json(const struct row *row, const struct result *r)
{
	json_t *tiers = json_array();
	char copy[64], *rest = copy, *tier;

	snprintf(copy, sizeof(copy), "%s", row->tiers);
	while ((tier = strsep(&rest, ",")))
		json_array_append_new(tiers, json_string(tier));
	return json_pack("{s:s, s:o, s:s, s:s, s:o, s:s, s:s, s:s}",
			 "name", row->name, "tiers", tiers, "need", row->need,
			 "state", state_names[r->state],
			 "present", r->state == UNKNOWN ? json_null() :
				    json_boolean(r->state == PRESENT),
			 "detail", r->detail,
			 "since", row->since, "lost", row->lost);
}

static json_t *tiers_json(struct tier *tiers)
{
	static const char *const names[] = { "ready", "off", "unknown" };
	json_t *ret = json_object();

	for (int i = 0; i < TIERS_NR; i++)
		json_object_set_new(ret, tier_names[i], json_pack(
			"{s:s, s:o}", "state", names[tiers[i].state],
			"lacks", tiers[i].lacks));
	return ret;
}

json_t *tbg_probe(void)
{
	struct tier tiers[TIERS_NR] = { 0 };
	json_t *features = json_array();
	char *copy = strdup(requirements), *rest = copy, *line;
	struct tbg_version v = { 0 };
	struct utsname u = { 0 };
	struct result r;
	struct row row;

	libbpf_set_print(NULL);
	for (int i = 0; i < TIERS_NR; i++)
		tiers[i].lacks = json_array();
	while (copy && (line = strsep(&rest, "\n"))) {
		if (!row_parse(line, &row))
			continue;
		row_try(&row, &r);
		tiers_judge(&row, &r, tiers);
		json_array_append_new(features, row_json(&row, &r));
	}
	free(copy);
	uname(&u);
	tbg_version_running(&v);
	return json_pack("{s:b, s:s, s:s, s:o, s:o}", "ok", 1,
			 "kernel", u.release,
			 "version", u.version, "features", features,
			 "tiers", tiers_json(tiers));
}
