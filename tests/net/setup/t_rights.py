#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The privileges of the daemon, its gateway and its programs, and what root opens for them."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
from origin import ask              # noqa: E402

NOBODY = 65534
TEXT = 'root = "{root}"\nlocation "/cgi/" { cgi = "{folder}/programs" }\n'
CAPS = "+net_admin,+bpf,+dac_override,+net_bind_service,+perfmon"
AMBIENT = [*daemon.AS_NOBODY,
           f"--inh-caps={CAPS}", f"--ambient-caps={CAPS}"]


def begin():
    if os.geteuid():
        raise ktap.Skip("not root: there is nothing to give away")


class Programs(conf.Conf):
    """A daemon with programs, in a folder that its user may read."""

    def __init__(self, *options, wire=False, prefix=()):
        super().__init__(TEXT, *options, wire=wire)
        self.prefix = list(prefix)
        os.mkdir(os.path.join(self.folder, "programs"))
        os.chmod(os.path.join(self.folder, "programs"), 0o755)

    def run(self, text, *arguments):
        """The output of a Python program."""
        path = os.path.join(self.folder, "programs", "p")
        with open(path + "~", "w", encoding="ascii") as f:
            f.write(
                f"#!/usr/bin/env python3\nprint('Content-Type: text/plain\\n', flush=True)\n{text}")
        os.chmod(path + "~", 0o755)
        os.rename(path + "~", path)
        r = ask(self.address, "GET",
                "/cgi/p" + ("?" + "+".join(map(str, arguments)) if arguments else ""))
        assert r.status == 200, (r, self.lines)
        return r.body.decode()


def descendants(pid):
    """The process and all that came of it."""
    ret = [pid]
    for at in ret:
        for task in os.listdir(f"/proc/{at}/task"):
            with open(f"/proc/{at}/task/{task}/children", encoding="ascii") as f:
                ret += map(int, f.read().split())
    return ret


def status(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(x.split(":", 1)[1].strip() for x in f if x.startswith(name + ":"))


MEMORY = """
import os, sys
for pid in sys.argv[1:]:
    for task in os.listdir(f"/proc/{pid}/task"):
        for path in (f"/proc/{pid}/mem", f"/proc/{pid}/task/{task}/mem"):
            try:
                os.close(os.open(path, os.O_RDWR))
                print("opened", path)
            except PermissionError:
                print("refused")
"""


def t_a_program_reads_and_writes_no_memory_of_ours():
    """As the same user, which is what programs run as; also where that user has started the
    daemon."""
    for prefix in ((), AMBIENT):
        d = Programs(prefix=prefix)
        os.chown(d.folder, NOBODY, NOBODY)
        with d:
            client.until(lambda d=d: len(descendants(d.pid)) > 2, "no gateway")
            ours = descendants(d.pid)
            got = d.run(MEMORY, *ours).split("\n")
            assert "refused" in got and not [x for x in got if x.startswith("opened")], got


REFUSED = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
for name, nr, *args in (("bpf", 321, 0, 0, 0), ("io_uring_setup", 425, 1, 0),
                        ("ptrace", 101, 0, 0, 0, 0),
                        ("process_vm_writev", 311, os.getppid(), 0, 0, 0, 0, 0),
                        ("keyctl", 250, 0, 0, 0),
                        ("unshare", 272, 0x10000000), ("mount", 165, 0, 0, 0, 0, 0),
                        ("setns", 308, 0, 0),
                        ("perf_event_open", 298, 0, 0, 0, 0, 0), ("userfaultfd", 323, 0),
                        ("open_by_handle_at", 304, 0, 0, 0), ("clone", 56, 0x10000011, 0, 0, 0, 0)):
    r = libc.syscall(nr, *map(ctypes.c_long, args))
    if not r and name == "clone":
        os._exit(0)
    print(name, "EPERM" if r < 0 and ctypes.get_errno() == errno.EPERM
          else f"{r} {ctypes.get_errno()}")
for family in (socket.AF_PACKET, 38):
    try:
        socket.socket(family, socket.SOCK_RAW)
        print("socket", family)
    except OSError as e:
        print("socket", "EPERM" if e.errno == errno.EAFNOSUPPORT else e)
"""


def t_system_calls_that_attacks_use_are_refused():
    daemon.not_sanitized("ptrace, by which leaks are looked for", "asan")
    with Programs() as d:
        got = d.run(REFUSED).strip().split("\n")
        assert len(got) == 14 and all(x.endswith(" EPERM") for x in got), got
        assert d.run("print(open('/proc/self/status').read())").count("\nSeccomp:\t2\n") == 1
        modes = {status(x, "Name"): status(x, "Seccomp") for x in descendants(d.pid)}
        assert len(modes) >= 4 and set(modes.values()) == {"2"}, modes


def t_programs_do_what_programs_do():
    """Threads, other processes, sockets, locks: no filter is in their way."""
    with Programs() as d:
        got = d.run("import subprocess, threading, socket, tempfile, mmap, signal\n"
                    "t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()\n"
                    "print(subprocess.run(['sh', '-c', 'echo shell | cat'], capture_output=True, "
                    "text=True).stdout)\n"
                    "a, b = socket.socketpair(); a.send(b'x'); b.recv(1); "
                    "socket.getaddrinfo('127.0.0.1', 80)\n"
                    "mmap.mmap(-1, 4096, prot=7); tempfile.TemporaryFile().write(b'x')\n"
                    "print('done')\n")
        assert got.split() == ["thread", "shell", "done"], got


def t_no_child_has_a_descriptor_of_bpf():
    """It cannot obtain the daemon's rights on maps and programs."""
    def has(pid):
        links = [os.readlink(f"/proc/{pid}/fd/{x}") for x in os.listdir(f"/proc/{pid}/fd")]
        return any("bpf" in x or "io_uring" in x for x in links)

    with Programs(wire=True) as d:
        assert has(d.pid)
        client.until(lambda: len(descendants(d.pid)) > 3, "no worker of the gateway")
        children = descendants(d.pid)[1:]
        assert len(children) >= 3 and not any(map(has, children)), children
        assert "bpf" not in d.run("import os\nfor x in os.listdir('/proc/self/fd'):\n"
                                  "    print(os.readlink('/proc/self/fd/' + x) if "
                                  "os.path.exists('/proc/self/fd/' + x) else '')\n")


def t_rights_to_write_anywhere_go_with_the_start():
    """Except those of one process, which the daemon can only ask for its log."""
    writers = []
    with Programs("--access-log", "/dev/null") as d:
        def rid(pid):
            return not int(status(pid, "CapPrm"), 16) & 1 << 1
        assert rid(d.pid)
        client.until(lambda: len(descendants(d.pid)) > 3, "no gateway")
        client.until(lambda: any(status(x, "Name") == "tbg-privileged" for x in descendants(d.pid)),
                     "none of them")
        for pid in descendants(d.pid):
            if status(pid, "Name") == "tbg-privileged":
                writers.append(pid)
            else:
                client.until(lambda pid=pid: rid(pid), f"{status(pid, 'Name')} keeps its rights")
    assert len(writers) == 1 and not os.path.exists(f"/proc/{writers[0]}")


def t_the_log_in_a_folder_of_somebody_else_leads_root_nowhere():
    """Whose user has put a link there, be it to a file or to a folder on the way."""
    for link in (os.symlink, os.link):
        d = daemon.Daemon("--tiers", "user", "--user", "nobody")
        own = os.path.join(d.folder, "own")
        os.mkdir(own)
        os.chown(own, NOBODY, NOBODY)
        secret = os.path.join(d.folder, "secret")
        with open(secret, "w", encoding="ascii") as f:
            f.write("secret")
        os.chmod(secret, 0o600)
        link(secret, os.path.join(own, "log"))
        d.options += ["--access-log", os.path.join(own, "log")]
        refuses(d, "access-log")
        with open(secret, encoding="ascii") as f:
            assert f.read() == "secret"
    d = daemon.Daemon("--tiers", "user", "--user", "nobody")
    own, closed = os.path.join(d.folder, "own"), os.path.join(d.folder, "closed")
    os.mkdir(own)
    os.chown(own, NOBODY, NOBODY)
    os.mkdir(closed, 0o755)
    os.symlink(closed, os.path.join(own, "logs"))
    d.options += ["--access-log", os.path.join(own, "logs", "log")]
    refuses(d, "access-log", lambda: not os.listdir(closed) or 1 / 0)


def t_the_log_where_root_alone_leads_is_opened():
    d = daemon.Daemon("--tiers", "user", "--user", "nobody")
    os.mkdir(os.path.join(d.folder, "logs"), 0o755)
    os.symlink("logs", os.path.join(d.folder, "current"))
    d.options += ["--access-log", os.path.join(d.folder, "current", "log")]
    with d:
        ask(d.address, "GET", "/x")
        client.until(lambda: os.path.getsize(os.path.join(d.folder, "logs", "log")), "no line")


def refuses(d, what, then=lambda: None):
    """The daemon does not start, and says why in a line with that in it."""
    clean, d.clean = d.clean, lambda: None
    try:
        d.start()
        d.stop()
        raise AssertionError("started")
    except RuntimeError as why:
        assert what in str(why), why
        then()
    finally:
        daemon._running.discard(d)
        d.clean = clean
    return d


RACE = """
import os, stat, sys, time
folder, victim = sys.argv[1:]
print("on", flush=True)
name = folder + "/control.sock"
while True:
    try:
        if stat.S_ISSOCK(os.lstat(name).st_mode):
            os.rename(name, folder + "/away")
            os.link(victim, name)
            break
    except OSError:
        pass
"""


def t_the_control_socket_is_given_away_by_descriptor():
    """Its folder is the user's, who puts a file of root's in the place of the socket at once.

    Root makes the link here: where fs.protected_hardlinks is 0, that user may.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        run = os.path.join(folder, "run")
        victim = os.path.join(folder, "victim")
        with open(victim, "w", encoding="ascii") as f:
            f.write("secret")
        os.chmod(victim, 0o600)
        for _ in range(6):
            # their gateway takes a while to begin
            d = Programs("--tiers", "user", "--user", "nobody")
            d.control = os.path.join(run, "control.sock")
            if os.path.isdir(run):
                for name in os.listdir(run):
                    os.unlink(os.path.join(run, name))
                racer = subprocess.Popen([sys.executable, "-c", RACE, run, victim],
                                         stdout=subprocess.PIPE, text=True)
                racer.stdout.readline()
            else:
                racer = None
            try:
                d.start()
                assert os.stat(run).st_uid == NOBODY, os.stat(run)
                d.stop()
            except RuntimeError:        # refused: as good
                pass
            finally:
                if racer:
                    racer.kill()
                    racer.wait()
            st = os.stat(victim)
            assert (st.st_uid, st.st_mode & 0o777) == (0, 0o600), st


def t_sockets_in_a_folder_that_only_root_may_enter():
    """Root binds them, gives them to the daemon's user, and removes them at the end."""
    with tempfile.TemporaryDirectory() as folder:       # 0700, and root's
        d = daemon.Daemon("--tiers", "user")
        d.control = os.path.join(folder, "control")
        paths = (d.control, d.control + ".admin")
        with d:
            owner = os.stat(f"/proc/{d.pid}").st_uid
            assert owner and not os.stat(folder).st_uid
            for path in paths:
                assert os.stat(path).st_uid == owner, os.stat(path)
        assert not os.listdir(folder), os.listdir(folder)


def t_a_root_that_only_root_may_enter_makes_nobody_root():
    d = daemon.Daemon("--tiers", "user")
    os.chmod(d.root, 0o700)
    refuses(d, "its owner is root")
    d.options += ["--user", "root"]
    with d:
        assert status(d.pid, "Uid").split() == ["0"] * 4
    d = daemon.Daemon("--tiers", "user")
    os.chmod(d.root, 0o700)
    os.chown(d.root, 4242, 0)
    with d:
        assert set(status(d.pid, "Uid").split()) == {"4242"}
        assert "0" not in status(d.pid, "Gid").split()


def t_the_user_is_a_name_or_a_number():
    for user, uid in (("nobody", NOBODY), (str(NOBODY), NOBODY), ("4242", 4242)):
        with daemon.Daemon("--tiers", "user", "--user", user) as d:
            assert set(status(d.pid, "Uid").split()) == {str(uid)}, user
            assert "0" not in status(d.pid, "Gid").split()
    for user in ("nobody-here", "12x", "4294967295", "99999999999"):
        refuses(daemon.Daemon("--tiers", "user", "--user", user), "--user")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin)
