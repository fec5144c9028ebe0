# SPDX-License-Identifier: GPL-2.0
"""An upstream server with answers that a test defines, and a client for requests through a proxy.

    with origin.Origin() as o, daemon.Daemon("--upstream", o.url, ...) as d:
        o.on("/a", origin.reply(200, b"text", "Cache-Control: max-age=9"))
        r = origin.ask(d.address, "GET", "/a")      # r.status, r.field("age"), r.body
        o.seen("/a")                                # requests that arrived

An answer is bytes, which are sent unchanged, or a function of (connection, request). A list
of answers is for successive requests, and its last for all later ones. END as an answer
closes the connection.
"""
from __future__ import annotations

import email.utils
import hashlib
import os
import socket
import tempfile
import threading
import time
from typing import Any, Callable

import client

END = object()


def date(offset: int | float = 0) -> str:
    """An IMF-fixdate, this many seconds from now."""
    return email.utils.formatdate(time.time() + offset, usegmt=True)


def reply(status: int = 200, body: bytes = b"", *fields: str, dated: bool = True,
          reason: str = "Whatever") -> bytes:
    """A response with a length, and by default a Date."""
    lines = [f"HTTP/1.1 {status} {reason}", *fields]
    if dated and not any(f.lower().startswith("date:") for f in fields):
        lines.append(f"Date: {date()}")
    if status not in (204, 304) and status >= 200:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def drips(*fields: str) -> Callable[..., Any]:
    """A chunked answer with these fields, sent byte by byte, without end."""
    def send(c: client.Client, r: Any) -> None:
        c.send("\r\n".join(["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *fields, "",
                            ""]).encode("latin-1"))
        while True:
            c.send(b"1\r\nx\r\n")
            time.sleep(0.01)
    return send


def then_closes(data: bytes) -> Callable[..., Any]:
    """An answer of these bytes, and the end of the connection."""
    def send(c: client.Client, r: Any) -> object:
        c.send(data)
        return END
    return send


class Request:
    def __init__(self, head: bytes, body: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = line.split(" ")
        self.fields = [tuple(f.split(": ", 1)) for f in fields]
        self.head, self.body = head, body

    def field(self, name: str) -> str | None:
        """The values of all its lines, joined; None: there is none."""
        values = [v for n, v in self.fields if n.lower() == name.lower()]
        return ", ".join(values) if values else None


def digest(c: Any, r: Any) -> None:
    """An answer for raw bodies: the hash of a body with a length, read as it arrives."""
    total, left = hashlib.sha256(), int(r.field("Content-Length"))
    while left:
        if not c.got:
            c.more()
        total.update(c.got)
        left -= len(c.got)
        c.got = b""
    c.send(reply(200, total.hexdigest().encode()))


class Connection:
    """The server's side of a connection."""

    def __init__(self, s: socket.socket | None, nr: int) -> None:
        self.s, self.nr, self.got = s, nr, b""

    def send(self, data: bytes) -> None:
        self.s.sendall(data)

    def line(self) -> bytes:
        while b"\n" not in self.got:
            self.more()
        line, self.got = self.got.split(b"\n", 1)
        return line.rstrip(b"\r")

    def more(self) -> None:
        data = self.s.recv(1 << 18)
        if not data:
            raise EOFError
        self.got += data

    def take(self, n: int) -> bytes:
        while len(self.got) < n:
            self.more()
        data, self.got = self.got[:n], self.got[n:]
        return data

    def head(self) -> bytes:
        while b"\r\n\r\n" not in self.got:
            self.more()
        head, self.got = self.got.split(b"\r\n\r\n", 1)
        return head

    def chunks(self) -> bytes:
        """A chunked body; its trailer lines are kept in self.trailer."""
        body = b""
        while size := int(self.line().split(b";")[0], 16):
            body += self.take(size)
            assert self.line() == b""
        self.trailer = []
        while line := self.line():
            self.trailer.append(line)
        return body

    def request(self, read_body: bool = True) -> Request:
        r = Request(self.head(), b"")
        if read_body:
            self.body(r)
        return r

    def body(self, r: Any) -> None:
        if (r.field("Transfer-Encoding") or "").lower() == "chunked":
            r.body = self.chunks()
        elif r.field("Content-Length"):
            r.body = self.take(int(r.field("Content-Length")))


class Origin:
    connection = Connection     # what is made of each

    def __init__(self, unix: bool = False, at: tuple = ("127.0.0.1", 0)) -> None:
        self.answers, self.requests, self.raw = {}, [], set()
        self.changed = threading.Condition()
        self.connections, self.open, self.ended = 0, set(), set()
        if unix:
            self.folder = tempfile.mkdtemp(prefix="tbg-origin-")
            self.path = os.path.join(self.folder, "sock")
            os.chmod(self.folder, 0o755)
            self.s = socket.socket(socket.AF_UNIX)
            self.s.bind(self.path)
            os.chmod(self.path, 0o777)
            self.url = "unix:" + self.path
        else:
            self.s = socket.socket()
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # inherited: later small writes do not wait for an ACK
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.s.bind(at)
            self.port = self.s.getsockname()[1]
            self.url = f"http://{at[0]}:{self.port}"
        self.s.listen(512)
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def on(self, target: str, *answers: Any, raw: Any = False) -> None:
        """raw: the answer is sent before the body is read."""
        with self.changed:
            self.answers[target] = list(answers)
            (self.raw.add if raw else self.raw.discard)(target)

    def _answer(self, target: str) -> Any:
        with self.changed:
            left = self.answers.get(target) or [reply(404, b"no answer\n")]
            return left.pop(0) if len(left) > 1 else left[0]

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self.s.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                self.open.add(s)
                nr = self.connections
            threading.Thread(target=self._serve, args=(self.connection(s, nr),),
                             daemon=True).start()

    def _serve(self, c: Any) -> None:
        try:
            while True:
                r = c.request(read_body=False)
                r.connection = c.nr
                if r.target not in self.raw:
                    c.body(r)
                with self.changed:
                    self.requests.append(r)
                    self.changed.notify_all()
                what = self._answer(r.target)
                if what is END or (callable(what) and what(c, r) is END):
                    return
                if isinstance(what, bytes):
                    c.send(what)
        except (EOFError, OSError):
            pass
        finally:
            with self.changed:
                self.open.discard(c.s)
                self.ended.add(c.nr)
                self.changed.notify_all()
            c.s.close()

    def seen(self, target: str | None = None) -> list:
        with self.changed:
            return [r for r in self.requests if target in (None, r.target)]

    def wait(self, target: str, nr: int = 1) -> Any:
        """Wait until this many requests for it have arrived; the last of them."""
        with self.changed:
            ok = self.changed.wait_for(
                lambda: sum(r.target == target for r in self.requests) >= nr, client.WAIT_S)
        assert ok, f"{target}: {len(self.seen(target))} requests, wanted {nr}"
        return self.seen(target)[nr - 1]

    def wait_end(self, target: str) -> bool | None:
        """Wait until all connections with requests for it have ended."""
        with self.changed:
            nrs = {r.connection for r in self.requests if r.target == target}
            assert nrs and self.changed.wait_for(lambda: nrs <= self.ended, client.WAIT_S), \
                f"{target}: connections {nrs - self.ended} are open"

    def close(self) -> None:
        # close and wait: a thread that accepts by a closed descriptor might use a new one
        self.s.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()
        self.s.close()
        with self.changed:
            for s in self.open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        if hasattr(self, "path"):
            os.unlink(self.path)
            os.rmdir(self.folder)

    def __enter__(self) -> Origin:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


class Answer:
    """A response as received: repeated fields are kept."""

    def __init__(self, head: bytes) -> None:
        line, *fields = head.decode("latin-1").split("\r\n")
        version, status, *reason = line.split(" ", 2)
        assert version == "HTTP/1.1", line
        self.status, self.reason, self.head = int(status), "".join(reason), head
        self.fields = [tuple(f.split(": ", 1)) for f in fields]
        self.body, self.trailer = b"", []

    field = Request.field

    @property
    def cache(self) -> list[str]:
        """The parameters of our member of Cache-Status."""
        return self.field("Cache-Status").split(", ")[-1].split("; ")[1:]

    @property
    def hit(self) -> bool:
        return "hit" in self.cache

    def __repr__(self) -> str:
        return f"<{self.head!r} {len(self.body)} bytes {self.body[:60]!r}>"


class Client(client.Client):
    """A connection to the proxy that accepts every framing."""

    def answer(self, method: str = "GET", body: bytes | None = None) -> Answer:
        """body: a function that receives each piece instead of keeping it."""
        r = Answer(self.head())
        if method == "HEAD" or r.status in (204, 304) or r.status < 200:
            return r
        if (r.field("Transfer-Encoding") or "") == "chunked":
            c = Connection(self.s, 0)
            c.got = self.got
            r.body, r.trailer, self.got = c.chunks(), c.trailer, c.got
        elif r.field("Content-Length") is not None:
            self._length(r, int(r.field("Content-Length")), body)
        else:
            while self._more():
                pass
            r.body, self.got = self.got, b""
        return r

    def _length(self, r: Any, left: int, body: Any) -> None:
        kept = []
        while left:
            if not self.got and not self._more():
                raise EOFError(f"end within a body, {left} bytes are missing")
            piece, self.got = self.got[:left], self.got[left:]
            left -= len(piece)
            (body or kept.append)(piece)
        r.body = b"".join(kept)

    def request(self, method: str, path: str, *fields: str, body: bytes | None = None,
                host: str = "test") -> Answer:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *fields]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        return self.answer(method)


def ask(address: tuple, method: str, path: str, *fields: str, **more: Any) -> Any:
    """One request on a connection of its own."""
    with Client(address) as c:
        return c.request(method, path, *fields, **more)
