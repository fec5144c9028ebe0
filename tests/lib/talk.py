# SPDX-License-Identifier: GPL-2.0
"""A client on a socket that the test makes, and the daemon's counters.

    with talk.Connection(n.client.connect(address)) as c:       # n: a net.Net
        c.get("/a").tier, c.half_close(), c.reset(), …
"""
from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from typing import Any, Callable, Iterable, Iterator

import client
import daemon
import ktap

TOOL = os.path.join(ktap.BUILD, "toboggan")
WAITING_MAX = 4         # connections that wait by chance, one behind the other


class Connection(client.Client):
    def __init__(self, s: Any) -> None:      # pylint: disable=super-init-not-called
        self.s, self.got = s, b""

    def reset(self) -> None:
        """Close with an RST."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()

    def half_close(self) -> None:
        self.s.shutdown(socket.SHUT_WR)

    def acked(self) -> None:
        client.acked(self.s)

    def end(self) -> None:
        """Wait for the server's FIN, which must be the next thing to come."""
        assert not self.got and not self.s.recv(65536), f"more than the answers: {self.got!r}"


def request(target: str, *fields: str, method: str = "GET", version: str = "HTTP/1.1",
            body: bytes = b"") -> bytes:
    lines = [f"{method} {target} {version}", "Host: test", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def ask(d: daemon.Daemon, *args: Any) -> Any:
    """The tool's answer in JSON."""
    out = subprocess.run([TOOL, "--control", d.control, "--json", *args],
                         capture_output=True, check=True, timeout=client.WAIT_S).stdout
    return json.loads(out)


def text(d: daemon.Daemon, *args: Any) -> str:
    """The tool's output as text."""
    return subprocess.run([TOOL, "--control", d.control, *args], check=True, capture_output=True,
                          text=True, timeout=client.WAIT_S).stdout


@contextlib.contextmanager
def serving(where: Any, wire: str, *options: str, listen: Iterable[str], workers: int = 1,
            **files: Any) -> Iterator[daemon.Daemon]:
    """A daemon with wire and these files in a namespace, whose end is checked; or a Skip."""
    with where.inside():
        d = daemon.Daemon("--wire", wire, "--workers", str(workers), *options,
                          listen=listen).start()
    try:
        tier = ask(d, "status")["tiers"]["wire"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("wire", tier["why"]))
        for name, body in files.items():
            d.write(name, body)
        yield d
    except BaseException:
        d.stop()
        raise
    code = d.stop()
    assert code == 0, f"exit {code}: {d.lines}"


def ask_itself(d: daemon.Daemon, cmd: str) -> Any:
    """The daemon's answer to a command, without the tool, for frequent use."""
    with socket.socket(socket.AF_UNIX) as s, s.makefile("rb") as lines:
        s.settimeout(client.WAIT_S)
        s.connect(d.control)
        s.sendall(json.dumps({"cmd": cmd}).encode() + b"\n")
        return json.loads(lines.readline())


def counts(d: daemon.Daemon) -> dict:
    """{"HIT_WIRE": 1, "MISS": 1, …}"""
    stats = ask_itself(d, "stats")
    return {x["name"]: x["count"] for x in stats["packets"] + stats["passes"]}


def hits(d: daemon.Daemon) -> Any:
    return hits_of(counts(d))


def hits_of(counted: dict) -> int:
    return sum(counted[f"HIT_{tier.upper()}"] for tier in daemon.FASTS)


def no_late_sockets(d: daemon.Daemon) -> str | None:
    """Why d has connections with sockets only; None if not. Wire is on."""
    if ask(d, "status")["late_sockets"] is not None:
        return None
    with open("/proc/kallsyms", encoding="ascii") as f:
        assert " bpf_sk_assign_tcp_reqsk\n" not in f.read(), d.lines
    return "no late sockets: before Linux 6.9"


def late(d: daemon.Daemon) -> Any:
    """
    What wire counts on a busy machine alone: answers left to the daemon because of time, and
    requests that came twice within 10 ms. A client repeats one after 200 ms, so the first of
    them was on its way for as long; wire drops the second, and no socket sees it.
    """
    c = counts(d)
    return c["CLOCK"] + c["YIELD"] + c["DOUBLED"] + (c["REPEAT"] if daemon.LATE else 0)


def held(d: daemon.Daemon) -> Any:
    """Segments that wire dropped, since the daemon was preempted while it gave connections back."""
    return counts(d)["HAND_HELD"]


def kept_waiting(where: Any, address: tuple,
                 fresh: Callable[[int], tuple[str, bytes]]) -> list[tuple[int, int]]:
    """
    [(size, SO_RCVBUF), …] of clients that wait for an answer as long as a timer of the
    daemon's socket, among some whose buffers have room for few; on the test kernels that are
    run together each has a share of them. fresh: of a size.

    A client that reads late, on a busy machine, has the kernel narrow its window for good,
    and each answer then waits for that timer, with wire and without. So a pair counts that
    waits on each of some connections.
    """
    if client.SLOW > 10:
        raise ktap.Skip("on a kernel that checks itself any answer may take 200 ms")
    ret, files = [], {}
    pairs = [(size, room) for size in range(300, 801, 100) for room in (1, 1300, 1500, 1800, 2100)]
    for size, room in daemon.share(pairs):
        if size not in files:
            files[size] = fresh(size)
            with Connection(where.connect(address)) as c:
                c.get(files[size][0])
        if all(waits(where, address, room, *files[size]) for _ in range(WAITING_MAX)):
            ret.append((size, room))
    return ret


def waits(where: Any, address: tuple, room: int, target: str, body: bytes) -> bool:
    """Whether one of four answers does, on a connection with so small a buffer."""
    with Connection(where.connect(address, setup=lambda s: s.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, room))) as c:
        for _ in range(4):
            began = time.monotonic()
            assert c.get(target).body == body
            if time.monotonic() - began > 0.19:
                return True
    return False


def content(path: str, length: int) -> bytes:
    """A body whose bytes identify the file and their place in it."""
    unit = f"[{path}:%06d]"
    out, at = [], 0
    while at < length:
        out.append((unit % at).encode())
        at += len(out[-1])
    return b"".join(out)[:length]
