# SPDX-License-Identifier: GPL-2.0
"""Helpers of tests about limits.

    def one(make):
        with limits.running(make("--connections-max", "10")) as d:
            limits.served(d)
    limits.both(one)
"""
from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from typing import Any, Callable, Iterator

import client
import daemon
import ktap


def daemon_of(*options: str, wire: bool = False, **more: Any) -> daemon.Daemon:
    """A started daemon with some files."""
    if wire:
        d = client.start_wire(*options, **more)
    else:
        d = daemon.Daemon("--wire", "off", *options, **more).start()
    d.write("a.txt", b"a text\n")
    return d


def both(fn: Callable[..., Any]) -> None:
    """Call fn(make) for a daemon without wire and, if possible, one with it."""
    fn(daemon_of)
    try:
        fn(lambda *options, **more: daemon_of(*options, wire=True, **more))
    except ktap.Skip as why:
        ktap.note(why)


@contextlib.contextmanager
def running(d: daemon.Daemon) -> Iterator[daemon.Daemon]:
    """Stop a started daemon at the end; after a failure its log is printed."""
    try:
        yield d
    except BaseException:
        for line in d.lines[-20:]:
            ktap.note(f"toboggand: {line}")
        raise
    finally:
        d.stop()


def descriptors(d: daemon.Daemon) -> int:
    return len(os.listdir(f"/proc/{d.pid}/fd"))


def served(d: daemon.Daemon, nr: int = 1) -> None:
    for _ in range(nr):
        with client.Client(d.address) as c:
            assert c.get("/a.txt").body == b"a text\n"


def ticks(d: daemon.Daemon) -> float:
    """CPU time so far, seconds."""
    with open(f"/proc/{d.pid}/stat", encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rests(d: daemon.Daemon) -> bool:
    """Whether it does almost nothing for a moment."""
    before, moment = ticks(d), 0.1 * client.SLOW
    time.sleep(moment)
    return ticks(d) - before < moment / 5


def reset(s: socket.socket) -> None:
    """Close with an RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def anonymous(d: daemon.Daemon) -> tuple[int, ...]:
    """(RssAnon, VmRSS) in bytes."""
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    return tuple(int(fields[x].split()[0]) * 1024 for x in ("RssAnon", "VmRSS"))
