# SPDX-License-Identifier: GPL-2.0
"""Run one test program separated from all others.

Called by tests/run, once a program. As root the program gets network, mount, PID,
IPC and UTS namespaces: lo alone, which is up, and /tmp, /var/tmp, /run, /dev/shm
and /sys/fs/bpf of its own; and a cgroup if there is a cgroup2 hierarchy.
Everything that it leaves running ends with its PID namespace. Without root, a process
adopts what it leaves behind, and kills it.

A Run is a process of ours (the keeper) that waits for the program, so that many
can run side by side. It must never outlive the caller.
"""
from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import struct
import sys
import time
from typing import Any, Iterable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 1, 0x40

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: Any) -> None:
    if getattr(_libc, name)(*args) < 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{name}: {os.strerror(err)}")


def _mount(what: str, where: str, kind: str | None = None, flags: int = 0,
           data: str | None = None) -> None:
    def text(word: Any) -> bytes | None:
        return word.encode() if word else None
    try:
        _call("mount", text(what), text(where), text(kind), ctypes.c_ulong(flags), text(data))
    except OSError as why:
        raise OSError(why.errno, f"mount {kind or what} on {where}: {os.strerror(why.errno)}") \
            from why


def can_isolate() -> str:
    """"", or why no namespaces can be made here."""
    if os.geteuid():
        return "not root"
    pid = os.fork()
    if not pid:
        try:
            _call("unshare", NAMESPACES)
            os._exit(0)
        except OSError as why:
            os._exit(why.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return os.strerror(code) if code else ""


def _own_cgroup(name: str) -> str | None:
    """Move this process to a new cgroup below its own; its path, or None without cgroup2."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as f:
            top = next((line.split()[1] for line in f if line.split()[2] == "cgroup2"), None)
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            own = next((line[3:].strip() for line in f if line.startswith("0::")), None)
        if top is None or own is None:
            return None
        path = os.path.join(top + own.rstrip("/"), name)
        os.mkdir(path)
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write("0")
    except OSError:
        return None             # read-only in a container: its programs share one
    return path


def _own_files(tmp: str, visible: Iterable[str]) -> None:
    """Mount folders below tmp over /tmp and similar ones; the visible paths stay visible."""
    folders = {"/tmp": "tmp", "/var/tmp": "var-tmp", "/run": "run"}
    binds = []                  # (descriptor of what will be covered, where it goes)
    for where, name in folders.items():
        folder = folders[where] = os.path.join(tmp, name)
        os.mkdir(folder)
        os.chmod(folder, 0o755 if where == "/run" else 0o1777)
        for path in {os.path.realpath(p) for p in visible}:
            if not path.startswith(where + "/") or not os.path.exists(path):
                continue
            binds.append((os.open(path, os.O_PATH), path))
            at = folder + path[len(where):]
            os.makedirs(at if os.path.isdir(path) else os.path.dirname(at), exist_ok=True)
            if not os.path.isdir(path):
                open(at, "xb").close()
    os.mkdir(os.path.join(tmp, "run", "lock"))
    os.chmod(os.path.join(tmp, "run", "lock"), 0o1777)
    over = [(os.open(folder, os.O_PATH), where) for where, folder in folders.items()]
    for fd, where in over + binds:
        _mount(f"/proc/self/fd/{fd}", where, flags=MS_BIND | MS_REC)
        os.close(fd)


def _own_system(tmp: str) -> None:
    """/proc and /sys of the new namespaces, with the cgroups and traces of the old."""
    old = os.path.join(tmp, "sys")
    os.mkdir(old)
    _mount("/sys", old, flags=MS_BIND | MS_REC)
    fd = os.open(old, os.O_PATH)
    nodev = MS_NOSUID | MS_NODEV | MS_NOEXEC
    _mount("proc", "/proc", "proc", nodev)
    _call("umount2", b"/sys", MNT_DETACH)       # covered mounts would still be listed
    _mount("sysfs", "/sys", "sysfs", nodev)
    for name in ("fs/cgroup", "kernel/debug", "kernel/tracing"):
        if os.path.ismount(f"/proc/self/fd/{fd}/{name}"):
            _mount(f"/proc/self/fd/{fd}/{name}", f"/sys/{name}", flags=MS_BIND | MS_REC)
    if os.path.isdir("/sys/fs/bpf"):
        _mount("bpf", "/sys/fs/bpf", "bpf", nodev)
    os.close(fd)
    _call("umount2", old.encode(), MNT_DETACH)
    _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def _lo_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def _hear_sigterm(how: int = signal.SIG_UNBLOCK) -> None:
    """Signals, blocked from the fork until the keeper can end its children: none is lost."""
    signal.pthread_sigmask(how, {signal.SIGTERM})


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _start(argv: list[str], cwd: str, env: dict[str, str] | None) -> int:
    """Fork and exec the program in a session of its own; its PID."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.chdir(cwd)
        os.execve(argv[0], argv, env)
    except OSError as why:
        os.write(2, f"cannot run {argv[0]}: {why}\n".encode())
    os._exit(127)


def _running(pids: Iterable[int]) -> list[str]:
    """"name (PID)" of those that have not ended."""
    ret = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                name, state = re.search(r"\((.*)\) (\S)", f.read(), re.S).groups()
            if state not in "ZX":
                ret.append(f"{name} ({pid})")
        except OSError:
            pass
    return ret


def _running_in_namespace() -> list[str]:
    return _running(sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and pid != "1"))


def _wait_for(pid: int) -> int:
    """Reap processes until pid ends; its exit code."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _as_init(argv: list[str], cwd: str, env: dict[str, str] | None, tmp: str,
             visible: Iterable[str], report: Any) -> None:
    """PID 1 of the namespaces: run the program and report; its end also ends the rest."""
    _die_with_parent()
    _mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _own_system(tmp)
    _own_files(tmp, visible)
    _lo_up()
    code = _wait_for(_start(argv, cwd, env))
    report(code, _running_in_namespace())


def _as_subreaper(argv: list[str], cwd: str, env: dict[str, str] | None, report: Any) -> None:
    """Without namespaces: kill and reap the program's children, one generation at a time."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    names = []

    def bury() -> None:
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
                pids = [int(pid) for pid in f.read().split()]
            if not pids:
                return
            names.extend(_running(pids))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def give_up(*_: object) -> None:
        bury()
        report(None, names)
        os._exit(0)

    signal.signal(signal.SIGTERM, give_up)
    _hear_sigterm()
    code = _wait_for(_start(argv, cwd, env))
    bury()
    report(code, names)


def _as_parent(init: int, report: Any) -> None:
    """Outside of the PID namespace: wait until all in it have ended."""
    def give_up(*_: object) -> None:
        report(None, _running_in_namespace())
        os.kill(init, signal.SIGKILL)

    signal.signal(signal.SIGTERM, give_up)
    _hear_sigterm()
    os.waitpid(init, 0)


def _leave_cgroup(path: str) -> None:
    with open(os.path.join(os.path.dirname(path), "cgroup.procs"), "w", encoding="ascii") as f:
        f.write("0")
    for folder, _, _ in os.walk(path, topdown=False):
        os.rmdir(folder)


def _keep(argv: list[str], cwd: str, env: dict[str, str] | None, tmp: str, isolated: bool,
          visible: Iterable[str], report_fd: int) -> None:
    """The keeper: runs from the fork to the report."""
    def report(code: int, names: list[str]) -> None:
        os.write(report_fd, json.dumps({"code": code, "running": names}).encode())

    _die_with_parent()
    os.setsid()
    if not isolated:
        _as_subreaper(argv, cwd, env, report)
        return
    cgroup = _own_cgroup(f"tbg-test-{os.getpid()}")
    _call("unshare", NAMESPACES)
    init = os.fork()
    if not init:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _hear_sigterm()
        _as_init(argv, cwd, env, tmp, visible, report)
        return
    _as_parent(init, report)
    if cgroup:
        _leave_cgroup(cgroup)


class Run:
    """A running program: .pidfd is readable when everything has ended, .out and .err are pipes."""

    def __init__(self, argv: list[str], cwd: str, env: dict[str, str] | None, tmp: str,
                 isolated: bool, visible: Iterable[str] = ()) -> None:
        """tmp: an empty folder for its files. visible: paths that it needs below /tmp or /run."""
        self.began = time.monotonic()
        out, err, report = os.pipe(), os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        _hear_sigterm(signal.SIG_BLOCK)
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out[1], 1)
                os.dup2(err[1], 2)
                _keep(argv, cwd, env, tmp, isolated, visible, report[1])
                os._exit(0)
            except BaseException as why:
                os.write(2, f"sandbox: {type(why).__name__}: {why}\n".encode())
            finally:
                os._exit(1)
        _hear_sigterm()
        for pair in (out, err, report):
            os.close(pair[1])
            os.set_blocking(pair[0], False)
        self.out, self.err, self._report = out[0], err[0], report[0]
        self.pidfd = os.pidfd_open(self.pid)

    def stop(self) -> None:
        """End the program and its children; pidfd shows when this is done."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def finish(self) -> tuple:
        """Reap it: (exit code or None, names of what ran on, CPU seconds of all of its)."""
        _, status, usage = os.wait4(self.pid, 0)
        try:
            report = json.loads(os.read(self._report, 1 << 20) or b"{}")
        except BlockingIOError:
            report = {}
        for fd in (self.out, self.err, self._report, self.pidfd):
            os.close(fd)
        code = report.get("code") if not os.waitstatus_to_exitcode(status) else None
        return code, report.get("running", []), usage.ru_utime + usage.ru_stime
