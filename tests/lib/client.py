# SPDX-License-Identifier: GPL-2.0
"""An HTTP client for tests: it repairs nothing and loses nothing.

    c = client.Client(d.address)
    r = c.get("/a.txt")             # r.status, r.fields, r.body, r.tier
    c.send(b"GET ... ")             # any bytes
    r = c.response()                # the answer to them
    c.ended()                       # True: the server closed, nothing was left

A response that is not framed exactly by RFC 9112 raises. Field names are kept as sent; a
repeated one raises.
"""
from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import termios
import time
from typing import Any, Callable

import daemon
import ktap

IN_VM, SLOW = daemon.IN_VM, daemon.SLOW
WAIT_S = 12 * SLOW if IN_VM else 20     # for what must happen, and then at once
ASKED_AT_ONCE = 10 if IN_VM else 100    # without a pause: each takes CPU time
_TIER = {"toboggan; hit; detail=wire": "wire", "toboggan; hit; detail=sock": "sock",
         "toboggan; hit; detail=user": "user",
         "toboggan; fwd=uri-miss; stored": "stored", "toboggan; fwd=uri-miss": "miss",
         "toboggan": "none"}


class Response:
    def __init__(self, head: bytes, body: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d\d\d) ([A-Za-z ]+)", line)
        assert match, f"status line {line!r}"
        self.status, self.head, self.body, self.fields = int(match[1]), head, body, {}
        for field in fields:
            name, colon, value = field.partition(": ")
            assert colon and name not in self.fields, f"field {field!r}"
            self.fields[name] = value

    @property
    def tier(self) -> str:
        """wire, sock, user (hits), stored, miss or none (of the server itself)."""
        return _TIER[self.fields["Cache-Status"]]

    def bare(self) -> tuple[bytes, bytes]:
        """Everything that must be equal in all tiers: all but Date and Cache-Status."""
        head = re.sub(rb"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", b"", self.head)
        head = re.sub(rb"\r\nCache-Status: [^\r]*", b"", head)
        return head, self.body

    def __repr__(self) -> str:
        return f"<{self.head!r} {len(self.body)} bytes {self.body[:60]!r}>"


class Client:
    def __init__(self, address: tuple, timeout: float = WAIT_S, rcvbuf: int = 0,
                 source: str | None = None) -> None:
        host = address[0]
        self.s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if rcvbuf:      # before the handshake, or the window is larger already
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if source:
            self.s.bind((source, 0))
        self.s.settimeout(timeout)
        self.s.connect(address)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def send(self, data: bytes) -> None:
        self.s.sendall(data)

    def _more(self) -> bytes:
        data = self.s.recv(1 << 18)
        self.got += data
        return data

    def head(self) -> bytes:
        """The next head, without its empty line."""
        while b"\r\n\r\n" not in self.got:
            if not self._more():
                raise EOFError(f"end within a head: {self.got[:200]!r}")
        head, self.got = self.got.split(b"\r\n\r\n", 1)
        return head

    def response(self, method: str = "GET") -> Response:
        r = Response(self.head(), b"")
        if method == "HEAD" or r.status < 200 or r.status in (204, 304):
            return r
        length = int(r.fields["Content-Length"])
        parts, have = [self.got], len(self.got)
        while have < length:
            data = self.s.recv(1 << 18)
            if not data:
                raise EOFError(f"end within a body, {have} of {length}")
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        r.body, self.got = whole[:length], whole[length:]
        return r

    def ask(self, method: str, path: str, *fields: str, version: str = "1.1") -> Response:
        if isinstance(path, str):
            path = path.encode("latin-1")
        lines = [method.encode() + b" " + path + b" HTTP/" + version.encode(), b"Host: test"]
        self.send(b"\r\n".join(lines + [x.encode() for x in fields]) + b"\r\n\r\n")
        return self.response(method)

    def get(self, path: str, *fields: str, version: str = "1.1") -> Response:
        return self.ask("GET", path, *fields, version=version)

    def hot(self, path: str, want: str) -> Any:
        """Repeat a GET until that tier answers."""
        for _ in range(1000):
            r = self.get(path)
            if daemon.is_tier(r.tier, want):
                return r
        raise AssertionError(f"{path}: never a hit of {want}: {r}")

    def ended(self) -> bool:
        """Wait for the end of the server's stream; whether nothing preceded it."""
        try:
            while self._more():
                pass
        except ConnectionResetError:
            pass
        return not self.got

    def close(self) -> None:
        self.s.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def once(address: tuple, data: bytes, method: str = "GET") -> tuple[Response, bool]:
    """(response, whether the server closed the connection then) on its own connection."""
    with Client(address) as c:
        c.send(data)
        r = c.response(method)
        close = r.fields.get("Connection") == "close"
        assert not close or c.ended(), "bytes behind the last answer"
        return r, close


def start_wire(*options: str, interfaces: str = "lo", **more: Any) -> daemon.Daemon:
    """A started daemon with wire, or a Skip with the reason why there is none."""
    if os.geteuid():
        raise ktap.Skip("not root: wire cannot be loaded")
    d = daemon.Daemon("--wire", interfaces, *options, **more)
    d.start()
    if "tiers wire," in d.ready:
        return d
    d.stop()
    raise ktap.Skip(d.why_no_wire())


def wire_beside(user: daemon.Daemon) -> tuple[daemon.Daemon | None, str]:
    """(a daemon with wire on the root of user, "") or (None, why there is none)."""
    try:
        return start_wire(root=user.root), ""
    except ktap.Skip as why:
        ktap.note(why)
        return None, str(why)


def until(fn: Callable[..., Any], why: str = "never became true") -> Any:
    """Wait until fn() is true, and return it: for actions of other threads and processes."""
    deadline = time.monotonic() + WAIT_S
    while not (ret := fn()):
        assert time.monotonic() < deadline, why
        time.sleep(0.005)
    return ret


def logs(of: Any, text: str, seen: int = 0) -> str:
    """Wait for a line of a daemon that contains text, after the first ones; that line."""
    deadline = time.monotonic() + WAIT_S
    while not (line := next((x for x in of.lines[seen:] if text in x), "")):
        assert time.monotonic() < deadline, f"never logged {text}: {of.lines[-5:]}"
        time.sleep(0.005)
    return line


def acked(s: socket.socket) -> None:
    """Wait until the peer's TCP has received everything."""
    waits = 0
    while struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]:
        waits += 1
        if waits > ASKED_AT_ONCE:
            time.sleep(0.001)
        assert waits < 60000, "sent bytes are never acknowledged"


def hot(d: daemon.Daemon, path: str, want: str = "wire") -> Any:
    """Repeat a GET on one connection until that tier answers from its cache."""
    with Client(d.address) as c:
        return c.hot(path, want)
