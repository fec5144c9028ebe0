#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Bodies of any size between slow clients and slow servers: flow control on both sides."""
import contextlib
import os
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402
from origin import END, reply  # noqa: E402
from proxied import path, proxy  # noqa: E402

d = o = None
HUGE = int(os.environ.get("TBG_HUGE_MB", "256")) << 20      # bytes each way


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


def t_huge_download_in_constant_memory():
    block = bytes(range(256)) * 4096

    def send(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nCache-Control: max-age=60\r\n\r\n" % HUGE)
        for _ in range(HUGE // len(block)):
            c.send(block)

    p = path()
    o.on(p, send)
    got = [0, 0]

    def count(piece):
        got[0] += len(piece)
        got[1] = max(got[1], daemon.own_kb(d.pid) if got[0] >> 24 != (got[0] - len(piece)) >> 24
                     else 0)

    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.answer(body=count)
    assert got[0] == HUGE and got[1] < 56 << 10, got


def t_huge_upload_in_constant_memory():
    block, got, most = bytes(1 << 20), [0], [0]

    def take(c, r):
        n = len(c.got)
        c.got = b""
        while n < HUGE:
            data = c.s.recv(1 << 20)
            if not data:
                return END
            n += len(data)
        got[0] = n
        c.send(reply(200, b"done"))

    p = path()
    o.on(p, take, raw=True)
    with origin.Client(d.address) as c:
        c.send(f"PUT {p} HTTP/1.1\r\nHost: t\r\nContent-Length: {HUGE}\r\n\r\n".encode())
        for i in range(HUGE // len(block)):
            c.send(block)
            if not i % 16:
                most[0] = max(most[0], daemon.own_kb(d.pid))
        assert c.answer().body == b"done"
    assert got[0] == HUGE and most[0] < 56 << 10, (got, most)


def kernel_buffers():
    """Bytes that the kernel may keep of one connection, both ends together."""
    both = 0
    for name in ("tcp_rmem", "tcp_wmem"):
        with open(f"/proc/sys/net/ipv4/{name}", encoding="ascii") as f:
            both += int(f.read().split()[2])
    return both


def t_slow_client_holds_the_upstream_back():
    sent = [0]

    def send(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
        c.s.settimeout(1)
        try:
            while True:
                sent[0] += c.s.send(bytes(1 << 16))
        except TimeoutError:
            return END

    p = path()
    o.on(p, send)
    with origin.Client(d.address, rcvbuf=8192) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.head()
        o.wait_end(p)               # the upstream has given up
        assert sent[0] < kernel_buffers() + (16 << 20), \
               f"{sent[0]} bytes were taken for a client that reads none"
    assert daemon.own_kb(d.pid) < 56 << 10


def t_what_slow_clients_hold_is_bounded():
    """What is stored, and goes again while they still have not read it, counts."""
    body, sent, go = reply(200, bytes(4000000), "Cache-Control: max-age=600"), [], threading.Event()

    def send(c, r):
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        c.s.settimeout(0.2)
        try:
            c.send(body)
            sent.append(c.nr)
            return None
        except TimeoutError:
            sent.append(c.nr)
            go.wait(client.WAIT_S)
            return END

    with origin.Origin() as up, proxy(up.url, options=("--memory", "128M")) as p, \
        contextlib.ExitStack() as clients:
        for i in range(64):
            up.on(f"/{i}", send)
            c = clients.enter_context(origin.Client(p.address, rcvbuf=8192))
            c.send(f"GET /{i} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            client.until(lambda i=i: len(sent) > i, "neither sent nor held back")
        kb, used = daemon.own_kb(p.pid), talk.ask(p, "status")["stock"]["used"]
        go.set()
    # half of it is for what is stored, half as much beside that; the rest is held back
    assert used > 56 << 20 and kb < 160 << 10, (used, kb)


def t_slow_upstream_holds_the_client_back():
    p, go = path(), threading.Event()
    # sock's sockets take it all: what the upstream does not is in a file
    held = "sock" not in daemon.TIERS
    length = (1024 if held else 128) << 20

    def take(c, r):
        go.wait(20)
        return END

    o.on(p, take, raw=True)
    with origin.Client(d.address, timeout=1) as c:
        c.send(f"PUT {p} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n".encode())
        sent = 0
        try:
            while sent < length:
                sent += c.s.send(bytes(1 << 16))
        except TimeoutError:
            pass
    go.set()
    assert sent < 32 << 20 or not held, sent
    assert daemon.own_kb(d.pid) < 56 << 10


def t_server_that_takes_a_body_slowly_is_not_late():
    """Its time for an answer begins when it has all of the request."""
    length, step = 3 << 18, 24 << 10

    def take(c, r):
        left = length
        while left:
            time.sleep(0.1)
            left -= len(c.got or c.s.recv(step))
            c.got = b""
        c.send(reply(200, b"all of it"))

    with origin.Origin() as up, proxy(up.url, options=(
            "--first-byte-timeout", "1500ms", "--body-max", "2M")) as p:
        up.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        up.on("/slow", take, raw=True)
        begun = time.monotonic()
        with origin.Client(p.address, timeout=30) as c:
            c.send(f"PUT /slow HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n".encode()
                   + bytes(length))
            a = c.answer()
        assert (a.status, a.body) == (200, b"all of it"), a
        assert time.monotonic() - begun > 2, "not slow"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
