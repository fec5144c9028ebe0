#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnels through the proxy: upgrades, bytes in both directions, and the end of each."""
import os
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402
from origin import END, ask, reply  # noqa: E402
from proxied import path, proxy     # noqa: E402

d = o = None


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


def silent_tunnel(c, r):
    c.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    c.more()


def tunnelled(length):
    p = path()

    def echo(c, r):
        assert r.field("Upgrade") == "websocket" and r.field("Connection") == "upgrade"
        assert r.field("Sec-WebSocket-Key") == "k"
        c.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               b"Sec-WebSocket-Accept: a\r\n" + length + b"\r\nhello")
        while True:
            if not c.got:
                c.more()
            c.send(c.got.upper())
            c.got = b""

    o.on(p, echo)
    head = f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" \
           f"Sec-WebSocket-Key: k\r\n\r\n"
    with origin.Client(d.address) as c:
        c.send(head.encode() + b"early ")
        r = c.answer()
        assert r.status == 101 and r.field("Upgrade") == "websocket", r
        assert r.field("Connection") == "upgrade" and r.field("Sec-WebSocket-Accept") == "a"
        want = b"helloEARLY "
        for i in range(200):
            c.send(b"\0\r\nmessage %d" % i)
            want += b"\0\r\nMESSAGE %d" % i
        while len(c.got) < len(want):
            assert c._more()        # pylint: disable=protected-access
        assert c.got == want
    o.wait_end(p)                   # its end reaches the upstream

    p = path()
    o.on(p, reply(200, b"no tunnel"))
    with origin.Client(d.address) as c:
        for _ in range(2):
            c.send(head.replace(head.split()[1], p).encode())
            assert c.answer().body == b"no tunnel"


def t_websocket_is_tunnelled():
    for length in (b"", b"Content-Length: 0\r\n"):     # many servers say that
        tunnelled(length)


def t_upgrade_is_the_one_that_was_chosen():
    p = path()
    o.on(p, lambda c,
         r: c.send(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n") or
         origin.END)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n"
               f"Upgrade: other/2, websocket\r\n\r\n".encode())
        r = c.answer()
    assert r.status == 101 and r.field("Upgrade") == "websocket" and \
           r.field("Connection") == "upgrade", r
    assert o.wait(p).field("Upgrade") == "other/2, websocket"


def t_upgrade_that_is_required_is_named():
    p = path()
    o.on(p, reply(426, b"", "Upgrade: websocket", "Connection: upgrade"))
    with origin.Client(d.address) as c:
        for _ in range(2):
            r = c.request("GET", p)
            assert (r.status, r.field("Upgrade"),
                    r.field("Connection")) == (426, "websocket", "upgrade"), r


def t_upgrade_on_several_lines():
    p = path()
    o.on(p, lambda c, r: c.send(b"HTTP/1.1 101 x\r\nUpgrade: b\r\nConnection: Upgrade\r\n\r\n") or
         origin.END)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: keep-alive\r\nConnection: Upgrade\r\n"
               "Upgrade: a\r\nUpgrade: b\r\n\r\n".encode())
        assert c.answer().status == 101
    assert o.wait(p).field("Upgrade") == "a, b" and o.wait(p).field("Connection") == "upgrade"
    p = path()
    o.on(p, reply(200, b"no tunnel"))
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: a\r\n"
               f"Upgrade: h2c\r\n\r\n".encode())
        assert c.answer().body == b"no tunnel" and o.wait(p).field("Upgrade") is None


def t_answers_that_nobody_hears_to_the_end_are_none_that_failed():
    """They go on, their client leaves, or a stale response hides them: the failures around are not
    in a row."""
    with origin.Origin() as up, proxy(up.url) as p, origin.Client(p.address) as stays:
        def begins(c, r):
            c.send(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n"
                   b"\r\n5\r\nhello\r\n")
            c.more()

        def begin(c, target="/on", fields=""):
            c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.send(f"GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n".encode())
            c.head()

        def leave(target="/on", fields=""):
            with origin.Client(p.address) as c:
                begin(c, target, fields)
            up.wait_end(target)

        def hidden():
            r = ask(p.address, "GET", "/stale")
            assert (r.status, r.body) == (200, b"stale"), r

        up.on("/dies", END)
        up.on("/stale", reply(200, b"stale", "Cache-Control: max-age=1, stale-if-error=600"),
              reply(500))
        up.on("/on", begins)
        hidden()
        time.sleep(1.1)
        up.on("/ws", silent_tunnel)
        for between in (hidden, leave,
                        lambda: leave("/ws", "Connection: Upgrade\r\nUpgrade: x\r\n"),
                        lambda: begin(stays)):
            for _ in range(2):
                assert ask(p.address, "POST", "/dies").status == 502
            between()
        assert ask(p.address, "POST", "/dies").status == 502
        a = talk.ask(p, "status")["upstreams"][0]
        assert a["failed"] == 9 and not a["rests"], a


def t_idle_tunnels_say_nothing_about_the_server():
    with origin.Origin() as up, proxy(up.url, options=("--upstream-idle-timeout", "200ms")) as p:
        up.on("/", silent_tunnel)
        for _ in range(4):          # more than take a server out
            with origin.Client(p.address) as c:
                c.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
                assert c.answer().status == 101
                assert c.ended()
        assert talk.ask(p, "status")["upstreams"][0]["failed"] == 0


def told_all(c, r):
    """Goes on in another protocol, and answers when the client has ended its direction."""
    c.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    try:
        while True:
            c.more()
    except EOFError:
        c.send(b"all of " + c.got)
    return END


def t_a_tunnel_ends_one_direction_at_a_time():
    p = path()

    o.on(p, told_all)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n".encode())
        assert c.answer().status == 101
        c.send(b"it")
        c.s.shutdown(socket.SHUT_WR)
        while c._more():            # pylint: disable=protected-access
            pass
        assert c.got == b"all of it", c.got
    o.wait_end(p)


def t_a_client_may_end_its_direction_before_there_is_a_tunnel():
    """It is passed on behind the 101, with what came before; another answer is its own."""
    def late(c, r):
        time.sleep(0.5)             # the end is there by then
        return told_all(c, r)

    def none(c, r):
        time.sleep(0.5)
        c.send(reply(200, b"no tunnel"))

    for what, sent, status, want in ((late, b"", 101, b"all of "), (late, b"it", 101, b"all of it"),
                                     (none, b"", 200, b"no tunnel"),
                                     (none, b"it", 200, b"no tunnel")):
        p = path()
        o.on(p, what)
        with origin.Client(d.address) as c:
            c.send(
                f"GET {p} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n"
                "Upgrade: x\r\n\r\n".encode() + sent)
            c.s.shutdown(socket.SHUT_WR)
            r = c.answer()
            assert r.status == status, r
            while status == 101 and c._more():      # pylint: disable=protected-access
                pass
            assert (c.got if status == 101 else r.body) == want, (r, c.got)


def t_upgrade_that_is_not_answered_is_504():
    """However much the client sends meanwhile: nobody waits for it."""
    with origin.Origin() as up, proxy(up.url, options=(
            "--first-byte-timeout", "500ms", "--send-timeout", "60s")) as p:
        up.on("/", lambda c, r: c.more())
        for _ in range(3):
            with origin.Client(p.address) as c:
                c.send(
                    b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly")
                assert c.answer().status == 504
        assert talk.ask(p, "status")["upstreams"][0]["failed"] == 3


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
