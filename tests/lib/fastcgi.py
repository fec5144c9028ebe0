# SPDX-License-Identifier: GPL-2.0
"""A FastCGI server with answers that a test defines, right or wrong, and records for them.

    with fastcgi.Server(unix=True) as f:
        f.on("/a", fastcgi.answer(b"Content-Type: text/plain\r\n\r\nhello"))
        r = f.wait("/a")            # r.params, r.body, r.keep, r.connection

Otherwise it is like origin.Origin; targets are REQUEST_URIs. Answers are sent unchanged,
so that they may be any bytes.
"""
from __future__ import annotations

import struct
from typing import Any

import origin

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR = range(1, 8)


def record(kind: int, content: bytes = b"", id_: int = 1, padding: int = 0,
           version: int = 1) -> bytes:
    head = struct.pack(">BBHHBB", version, kind, id_, len(content), padding, 0)
    return head + content + b"\0" * padding


def end(app: int = 0, status: int = 0, id_: int = 1) -> bytes:
    return record(END, struct.pack(">IB3x", app, status), id_)


def out(data: bytes, size: int = 65535, **how: Any) -> bytes:
    """As many STDOUT records as needed."""
    return b"".join(record(STDOUT, data[i:i + size], **how) for i in range(0, len(data), size))


def answer(data: bytes, errors: bytes = b"", **how: Any) -> bytes:
    """A complete answer: a head and a body in the form of a program's output."""
    return (record(STDERR, errors) if errors else b"") + out(data, **how) + record(STDOUT) + end()


class Request:
    def __init__(self, params: dict, body: bytes, keep: bool) -> None:
        self.params, self.body, self.keep = params, body, keep
        self.target = params["REQUEST_URI"]


class Connection(origin.Connection):
    def record(self) -> tuple[Any, bytes]:
        version, kind, id_, size, padding, _ = struct.unpack(">BBHHBB", self.take(8))
        assert version == 1 and id_ == 1, (version, id_)
        return kind, self.take(size + padding)[:size]

    def stream(self, kind: int) -> bytes:
        data = b""
        while True:
            got, content = self.record()
            assert got == kind, (got, kind)
            if not content:
                return data
            data += content

    def request(self, read_body: bool = True) -> Request:
        kind, content = self.record()
        role, flags = struct.unpack(">HB5x", content)
        assert kind == BEGIN and role == 1, (kind, role)
        r = Request(pairs(self.stream(PARAMS)), b"", bool(flags & 1))
        return r

    def body(self, r: Any) -> None:
        r.body = self.stream(STDIN)


def pairs(data: bytes) -> dict[str, str]:
    found, at = {}, 0

    def length() -> Any:
        nonlocal at
        size = 1 if data[at] < 128 else 4
        at += size
        return data[at - 1] if size == 1 else struct.unpack(">I", data[at - 4:at])[0] & 0x7fffffff

    while at < len(data):
        name, value = length(), length()
        key = data[at:at + name].decode("latin-1")
        assert key not in found, key
        found[key] = data[at + name:at + name + value].decode("latin-1")
        at += name + value
    return found


class Server(origin.Origin):
    connection = Connection

    @property
    def server(self) -> str:
        """As the configuration has it."""
        return self.url.removeprefix("http://")
