/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PID 1 of a test kernel, and all of its initramfs but the modules.
 *
 * vm/run packs it with /vm.conf, which configures it, one `key value` a line:
 *
 *	module FILE	load it, in this order		bind DIR	keep it visible
 *	env K=V		environment of the command	cwd DIR		where it starts
 *	arg WORD	one word of the command		shell 1		on the console
 *	witness FILE	report whether it exists	errors 1	its stderr to a port
 *	root TYPE	the host's: 9p or virtiofs	tree DIR	the root's folder in it
 *
 * It loads the modules, mounts the host's root read-only with tmpfs
 * where tests write, runs the command there and reports over virtio-serial:
 * the kernel (tbg.facts, tbg.config), a sign of life (tbg.alive, every
 * ALIVE_MS), the command's output (tbg.ktap, tbg.errors), the kernel log (tbg.dmesg),
 * and last, on tbg.verdict, the exit code and the number of bytes of tbg.ktap and
 * tbg.dmesg. Any error ends the machine without that line, and vm/judge.py fails the run.
 * It must never report success on the command's behalf.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOST "/host"		/* the host's root, as the device shows it */
#define NEW "/new"		/* the same, prepared as the guest's root */
#define WORDS_MAX 64
#define NOFILE_MAX 200000
#define PORT_WAIT_MS 60000
#define ALIVE_MS 5000
#define KLOG_LEVEL 8			/* syslog(2): levels on the console */
#define SHOW_WARNINGS 5

static char *args[WORDS_MAX + 1], *envs[WORDS_MAX + 1], *binds[WORDS_MAX];
static char *modules[4 * WORDS_MAX], *witnesses[WORDS_MAX];
static unsigned int arg_nr, env_nr, bind_nr, module_nr, witness_nr;
static char *cwd = "/", *root = "9p", *tree = "/";
static bool shell, errors;

/* The port of each kind of output; -1 with a shell, which uses the console. */
static struct {
	int ktap, dmesg, verdict, facts, config, alive, errors;
} ports = { -1, -1, -1, -1, -1, -1, -1 };

__attribute__((noreturn)) static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

__attribute__((noreturn, format(printf, 1, 2)))
static void die(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	fprintf(stderr, "vm-init: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", strerror(err));
	power_off();
}

static void mount_at(const char *type, const char *dir, unsigned long flags, const char *opts)
{
	if (mkdir(dir, 0755) && errno != EEXIST && errno != EROFS)
		die("mkdir %s", dir);
	if (mount(type, dir, type, flags, opts))
		die("mount %s on %s", type, dir);
}

static void keep(char **list, unsigned int *nr, unsigned int max, const char *value)
{
	errno = E2BIG;
	if (*nr == max)
		die("vm.conf: too many lines like %s", value);
	list[(*nr)++] = strdup(value);
}

static void read_conf(void)
{
	static char line[4096];
	FILE *f = fopen("/vm.conf", "re");
	char *value;

	if (!f)
		die("vm.conf");
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = 0;
		if (!strcmp(line, "arg"))
			keep(args, &arg_nr, WORDS_MAX, value);
		else if (!strcmp(line, "env"))
			keep(envs, &env_nr, WORDS_MAX, value);
		else if (!strcmp(line, "bind"))
			keep(binds, &bind_nr, WORDS_MAX, value);
		else if (!strcmp(line, "module"))
			keep(modules, &module_nr, 4 * WORDS_MAX, value);
		else if (!strcmp(line, "cwd"))
			cwd = strdup(value);
		else if (!strcmp(line, "witness"))
			keep(witnesses, &witness_nr, WORDS_MAX, value);
		else if (!strcmp(line, "root"))
			root = strdup(value);
		else if (!strcmp(line, "tree"))
			tree = strdup(value);
		else if (!strcmp(line, "shell"))
			shell = true;
		else if (!strcmp(line, "errors"))
			errors = true;
	}
	fclose(f);
}

static void load_modules(void)
{
	for (unsigned int i = 0; i < module_nr; i++) {
		int fd = open(modules[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
			die("module %s", modules[i]);
		close(fd);
	}
}

/* The kernel's announcements of devices, to wait for ports without polling. */
static int open_uevents(void)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = 1 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

	if (fd < 0 || bind(fd, (void *)&addr, sizeof(addr)))
		die("uevent socket");
	return fd;
}

static int try_port(const char *name)
{
	char path[512], text[64];
	struct dirent *ent;
	DIR *dir = opendir("/sys/class/virtio-ports");
	int ret = -1;

	while (dir && ret < 0 && (ent = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", ent->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(text, sizeof(text), f)) {
			text[strcspn(text, "\n")] = 0;
			snprintf(path, sizeof(path), "/dev/%s", ent->d_name);
			if (!strcmp(text, name))
				ret = open(path, O_WRONLY | O_CLOEXEC);
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return ret;
}

static int open_port(const char *name, int uevents)
{
	struct pollfd p = { .fd = uevents, .events = POLLIN };
	static char event[8192];
	int fd;

	while ((fd = try_port(name)) < 0) {
		errno = ETIMEDOUT;
		if (poll(&p, 1, PORT_WAIT_MS) <= 0)
			die("port %s", name);
		if (recv(uevents, event, sizeof(event), MSG_DONTWAIT) < 0 && errno != ENOBUFS)
			die("uevents");
	}
	return fd;
}

static void write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR)
			die("write to a port");
		if (n > 0) {
			data += n;
			len -= n;
		}
	}
}

/* mkdir -p below the guest's root, on a tmpfs. */
static void make_path(char *path)
{
	for (char *p = path + sizeof(NEW); (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(path, 0755);
		*p = '/';
	}
	mkdir(path, 0755);
}

/*
 * The repository may be under /tmp, where the guest has a tmpfs; and a tree of its own has
 * only an empty folder in that place.
 */
static void bind_back(const char *dir)
{
	char to[4096], from[4096];

	snprintf(to, sizeof(to), NEW "%s", dir);
	snprintf(from, sizeof(from), HOST "%s", dir);
	if (access(to, F_OK) == 0 && !strcmp(tree, "/"))
		return;
	make_path(to);
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL))
		die("bind %s", dir);
}

static void enter_host_root(void)
{
	char from[4096];

	snprintf(from, sizeof(from), HOST "%s", tree);
	mkdir(HOST, 0755);
	mkdir(NEW, 0755);
	if (mount("host", HOST, root, MS_RDONLY, strcmp(root, "9p") ? NULL :
		  "trans=virtio,version=9p2000.L,msize=512000,cache=loose"))
		die("mount %s", root);
	if (mount(from, NEW, NULL, MS_BIND, NULL))
		die("bind %s", from);
	mount_at("proc", NEW "/proc", 0, NULL);
	mount_at("sysfs", NEW "/sys", 0, NULL);
	mount_at("devtmpfs", NEW "/dev", 0, NULL);
	mount_at("devpts", NEW "/dev/pts", 0, "mode=620,ptmxmode=666");
	mount_at("tmpfs", NEW "/dev/shm", 0, NULL);
	mount_at("bpf", NEW "/sys/fs/bpf", 0, NULL);
	mount_at("cgroup2", NEW "/sys/fs/cgroup", 0, NULL);
	mount_at("debugfs", NEW "/sys/kernel/debug", 0, NULL);
	mount_at("tracefs", NEW "/sys/kernel/tracing", 0, NULL);
	mount_at("tmpfs", NEW "/tmp", 0, "mode=1777");
	mount_at("tmpfs", NEW "/run", 0, "mode=755");
	mount_at("tmpfs", NEW "/var/tmp", 0, "mode=1777");
	for (unsigned int i = 0; i < bind_nr; i++)
		bind_back(binds[i]);
	if (chdir(NEW) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("enter the host root");
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
	mkdir("/run/lock", 01777);
}

static void port_print(int port, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void port_print(int port, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	write_all(port, text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1);
}

static void copy_file(const char *path, int port)
{
	static char buf[1 << 16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		write_all(port, buf, n);
	close(fd);
}

/* The booted kernel, which vm/judge.py compares with the requested one. */
static void report_kernel(void)
{
	struct utsname uts;

	if (uname(&uts))
		die("uname");
	copy_file("/proc/config.gz", ports.config);
	port_print(ports.facts, "release %s\nversion %s\nmachine %s\n", uts.release, uts.version,
		   uts.machine);
	for (unsigned int i = 0; i < witness_nr; i++)
		port_print(ports.facts, "%s %s\n", witnesses[i],
			   access(witnesses[i], F_OK) ? "absent" : "present");
	port_print(ports.facts, "end\n");
}

static void prepare_machine(void)
{
	struct rlimit files = { NOFILE_MAX, NOFILE_MAX };
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo))
		die("lo up");
	close(fd);
	if (setrlimit(RLIMIT_NOFILE, &files) || setrlimit(RLIMIT_MEMLOCK, &unlimited))
		die("limits");
	sethostname("tbg-vm", 6);
}

__attribute__((noreturn)) static void run_command(int out, int err)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (shell) {
		int tty = open("/dev/console", O_RDWR);

		for (int fd = 0; fd < 3; fd++)
			dup2(tty, fd);
		ioctl(0, TIOCSCTTY, 1);
	} else {
		dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
		dup2(out, 1);
		if (errors)
			dup2(err, 2);
	}
	if (chdir(cwd))
		die("chdir %s", cwd);
	execve(args[0], args, envs);
	fprintf(stderr, "vm-init: %s: %s\n", args[0], strerror(errno));
	_exit(127);
}

/* Moves the pipe's bytes to the port; false: none now (EAGAIN), or none any more. */
static bool forward(int from, int to, size_t *len)
{
	static char buf[1 << 16];
	ssize_t n;

	errno = 0;
	n = read(from, buf, sizeof(buf));
	if (n <= 0)
		return n < 0 && errno == EINTR;
	write_all(to, buf, n);
	*len += n;
	return true;
}

/* Reaps ended processes; returns the command's exit code, or -1 while it runs. */
static int reap(int chld_fd, pid_t command)
{
	struct signalfd_siginfo info;
	int status, code = -1;
	pid_t pid;

	if (read(chld_fd, &info, sizeof(info)) < 0)
		die("signalfd");
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == command)
			code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return code;
}

/* Runs the command to its end, even if children keep its pipes open; its exit code. */
static int supervise(size_t *ret_len)
{
	struct pollfd fds[3] = { { .events = POLLIN }, { .events = POLLIN }, { .events = POLLIN } };
	int out[2], err[2], code = -1;
	size_t err_len = 0;
	sigset_t chld;
	pid_t pid;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	fds[2].fd = signalfd(-1, &chld, SFD_CLOEXEC);
	if (fds[2].fd < 0 || pipe2(out, O_CLOEXEC | O_NONBLOCK) ||
	    pipe2(err, O_CLOEXEC | O_NONBLOCK))
		die("pipe");
	fcntl(out[1], F_SETFL, 0);
	fcntl(err[1], F_SETFL, 0);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		run_command(out[1], err[1]);
	close(out[1]);
	close(err[1]);
	fds[0].fd = out[0];
	fds[1].fd = err[0];
	while (code < 0) {
		if (poll(fds, 3, ALIVE_MS) == 0 && !shell)
			write_all(ports.alive, ".", 1);
		if (fds[0].revents && !forward(out[0], ports.ktap, ret_len) && errno != EAGAIN)
			fds[0].fd = -1;
		if (fds[1].revents && !forward(err[0], ports.errors, &err_len) && errno != EAGAIN)
			fds[1].fd = -1;
		if (fds[2].revents)
			code = reap(fds[2].fd, pid);
	}
	while (forward(out[0], ports.ktap, ret_len))
		;
	while (forward(err[0], ports.errors, &err_len))
		;
	return code;
}

static size_t dump_kernel_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	static char record[8192];
	size_t len = 0;

	if (fd < 0)
		die("/dev/kmsg");
	for (;;) {
		ssize_t n = read(fd, record, sizeof(record));

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0 && errno == EPIPE)
			n = snprintf(record, sizeof(record), "vm-init: kernel log records lost\n");
		if (n < 0)
			die("read /dev/kmsg");
		write_all(ports.dmesg, record, n);
		len += n;
	}
	close(fd);
	return len;
}

static void open_ports(void)
{
	int uevents = open_uevents();

	load_modules();
	if (!shell) {
		ports.ktap = open_port("tbg.ktap", uevents);
		ports.dmesg = open_port("tbg.dmesg", uevents);
		ports.verdict = open_port("tbg.verdict", uevents);
		ports.facts = open_port("tbg.facts", uevents);
		ports.config = open_port("tbg.config", uevents);
		ports.alive = open_port("tbg.alive", uevents);
		ports.errors = open_port("tbg.errors", uevents);
	}
	close(uevents);
}

int main(void)
{
	size_t ktap_len = 0, dmesg_len;
	struct timespec now;
	int code;

	mount_at("proc", "/proc", 0, NULL);
	mount_at("sysfs", "/sys", 0, NULL);
	mount_at("devtmpfs", "/dev", 0, NULL);
	for (int fd = open("/dev/console", O_RDWR); fd >= 0 && fd < 2;)
		fd = dup(fd);
	read_conf();
	open_ports();
	klogctl(KLOG_LEVEL, NULL, SHOW_WARNINGS);	/* until here */
	if (!shell)
		report_kernel();
	enter_host_root();
	prepare_machine();
	if (shell) {
		supervise(&ktap_len);
		power_off();
	}
	clock_gettime(CLOCK_BOOTTIME, &now);
	port_print(ports.verdict, "ready %lld.%03ld\n", (long long)now.tv_sec, now.tv_nsec / 1000000);
	code = supervise(&ktap_len);
	dmesg_len = dump_kernel_log();
	port_print(ports.verdict, "exit %d\nktap %zu\ndmesg %zu\nend\n", code, ktap_len, dmesg_len);
	power_off();
}
