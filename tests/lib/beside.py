# SPDX-License-Identifier: GPL-2.0
"""A daemon with sock in a namespace, and one without a fast path on the same files.

    def begin():
        global n, sock, user
        n, sock, user = beside.begin()      # or ktap.Skip
    with beside.connect() as c:
        assert c.get("/8192.txt").bare() == beside.right(beside.request(8192))
    ktap.run(globals(), setup=begin, teardown=beside.end)
"""
from __future__ import annotations

import resource
from typing import Any

import client
import daemon
import ktap
import net
import talk

SOCK, USER, ALL = 8080, 8081, 8082
SIZES = [0, 1, 100, 500, 1024, 4096, 8192, 16000, 30000, 60000, 65536]     # of files that are hits
PIECE = 32768                   # bytes that the kernel receives at once (bpf/sock/pend.bpf.h)
SHARE = 5 if client.IN_VM else 1

n: Any = None
sock: Any = None
user: Any = None


def begin(tiers: str = "sock,user", *options: str) -> tuple[net.Net, daemon.Daemon, daemon.Daemon]:
    global n, sock, user
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, 4096), max(hard, 4096)))
    n = net.Net(links=1)
    with n.server.inside():
        # an emulated kernel takes long to connect a thousand clients that ask nothing yet
        sock = daemon.Daemon("--tiers", tiers, "--sock", "unlisted",
                             "--header-timeout", "300s", *options,
                             listen=(f"0.0.0.0:{SOCK}", f"[::]:{SOCK}"))
        for size in SIZES:
            sock.write(f"{size}.txt", talk.content(str(size), size))
        sock.start()
        user = daemon.Daemon("--tiers", "user", listen=f"0.0.0.0:{USER}",
                             root=sock.root).start()
    tier = talk.ask(sock, "status")["tiers"]["sock"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("sock", tier["why"]))
    for size in SIZES:
        with connect() as c:
            assert c.get(f"/{size}.txt").status == 200
    return n, sock, user


def end() -> None:
    for d in (sock, user):
        if d:
            assert d.stop() == 0, d.lines
    if n:
        n.close()


def connect(port: int = SOCK, setup: Any = None, v6: bool = False) -> talk.Connection:
    link = n.links[0]
    where = (link.server6 if v6 else link.server4, port)
    return talk.Connection(n.client.connect(where, setup=setup))


def request(size: int, *fields: str, method: str = "GET") -> bytes:
    return talk.request(f"/{size}.txt", *fields, method=method)


def right(data: bytes, method: str = "GET") -> tuple[bytes, bytes]:
    """The answer of a daemon without a fast path."""
    with connect(USER) as c:
        c.send(data)
        return c.response(method).bare()
