#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A daemon without clients sleeps: what it follows is reported by the kernel, not asked for."""
import contextlib
import ctypes
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import ktap
import net
import talk

PORT = 8080
SECONDS = 4
# of system calls, all threads together: a tick of the clock, of the worker and of the roots'
# watch each, and a look at everything every two seconds
CALLS_MOST = 300
SYS_ENTER = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id"
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
PERF_TYPE_TRACEPOINT, PERF_ATTR_BYTES = 2, 64


def counter(event, thread):
    """A descriptor from which the number of a thread's events can be read."""
    attr = struct.pack("=IIQ", PERF_TYPE_TRACEPOINT, PERF_ATTR_BYTES, event)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    fd = syscall(PERF_EVENT_OPEN[os.uname().machine], attr.ljust(PERF_ATTR_BYTES, b"\0"),
                 thread, -1, -1, 0)
    if fd < 0:
        raise ktap.Skip(f"no tracepoint of system calls: {os.strerror(ctypes.get_errno())}")
    return fd


def calls_of(d, seconds):
    """System calls of a daemon in a second, by thread."""
    try:
        with open(SYS_ENTER, encoding="ascii") as f:
            event = int(f.read())
    except OSError as why:
        raise ktap.Skip(f"no tracepoint of system calls: {why}") from why
    threads = os.listdir(f"/proc/{d.pid}/task")
    with contextlib.ExitStack() as stack:
        fds = {}
        for thread in threads:
            with open(f"/proc/{d.pid}/task/{thread}/comm", encoding="ascii") as f:
                name = f.read().strip()
            fds[name] = counter(event, int(thread))
            stack.callback(os.close, fds[name])
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return {name: int.from_bytes(os.read(fd, 8), "little") / took
                for name, fd in fds.items()}


def t_system_calls_of_an_idle_daemon_are_few():
    with net.Net() as n, \
            talk.serving(n.server, "tbg0", listen=f"0.0.0.0:{PORT}", hit=b"a hit") as d:
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            c.get("/hit")
        calls = calls_of(d, SECONDS)
        ktap.note({name: round(nr) for name, nr in calls.items()})
        assert 0 < sum(calls.values()) < CALLS_MOST, calls


if __name__ == "__main__":
    ktap.run(globals())
