# SPDX-License-Identifier: GPL-2.0
"""Name resolution of a daemon: other files for the resolver, and a name server.

    names.resolve_by(d, "10.0.0.1 one.test\\n")  # before d starts
    d.hosts("10.0.0.2 one.test\\n")              # from now on
    names.resolve_by(d, names.SERVED)           # by a names.Server instead
"""
from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, Callable

import client
import ktap

SERVED = None
SERVER = "127.77.0.53"


def resolve_by(d: Any, hosts: dict) -> None:
    """Mount files of the daemon's folder over those of the resolver; hosts: its /etc/hosts."""
    if os.geteuid():
        raise ktap.Skip("not root: no other /etc/resolv.conf")
    mount, path = "", os.path.join(d.folder, "hosts")
    for name, text in (("resolv.conf", f"nameserver {SERVER}\noptions timeout:30 attempts:1\n"),
                       ("nsswitch.conf", f"hosts: {'dns' if hosts is SERVED else 'files'}\n"),
                       ("hosts", hosts or "")):
        if not os.path.exists(f"/etc/{name}"):      # a link into the /run of a guest's host, say
            raise ktap.Skip(f"nothing can be mounted on /etc/{name}: it is not there")
        with open(os.path.join(d.folder, name), "w", encoding="utf-8") as f:
            f.write(text)
        mount += f'mount --bind "$0"/{name} /etc/{name} && '
    d.prefix = ["unshare", "-m", "sh", "-c", mount + 'exec "$@"', d.folder]

    def write(text: str) -> None:
        with open(path, "r+", encoding="utf-8") as f:   # one write: it is never incomplete
            f.truncate(0)
            f.write(text)
    d.hosts = write


class Server(socket.socket):
    """A server that answers on demand: names with "good" in them are 127.0.0.1, others unknown."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.bind((SERVER, 53))
        self.settimeout(client.WAIT_S)

    def question(self) -> tuple[bytes, Any]:
        return self.recvfrom(512)

    def answers(self, query: bytes, who: tuple) -> None:
        end = query.index(b"\0", 12) + 5
        good = b"good" in query
        a = good and query[end - 3] == 1        # it has no address of IPv6
        head = query[:2] + struct.pack(">5H", 0x8180 if good else 0x8183, 1, a, 0,
                                       0) + query[12:end]
        self.sendto(head + b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x7f\0\0\x01" * a, who)

    def answers_until(self, query: Any, done: Callable[..., Any]) -> None:
        """Leave that question, and all later ones, unanswered until done()."""
        deadline = time.monotonic() + client.WAIT_S
        self.settimeout(0.05)
        while not done():
            assert time.monotonic() < deadline, "no answer was what it waits for"
            if query:
                self.answers(*query)
            try:
                query = self.question()
            except TimeoutError:
                query = None
        self.settimeout(client.WAIT_S)
