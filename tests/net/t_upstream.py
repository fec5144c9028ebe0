#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The reverse proxy: heads, bodies, connections, servers, tunnels; nginx behind it."""
import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402
from origin import END, ask, reply  # noqa: E402

d = o = None
_names = itertools.count()
HUGE = int(os.environ.get("TBG_HUGE_MB", "256")) << 20      # bytes each way


def proxy(*upstreams, workers=1, options=()):
    words = [w for u in upstreams for w in ("--upstream", u)]
    return daemon.Daemon(*words, *daemon.USER, "--workers", str(workers), *options)


def connections(p):
    return talk.ask(p, "status")["connections"]


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


def path():
    return f"/u-{next(_names)}"


def t_needs_neither_root_nor_a_folder():
    """As nobody, in a folder that nobody may read."""
    if os.geteuid():
        raise ktap.Skip("not root: cannot become nobody")
    with origin.Origin() as up:
        up.on("/", reply(200, b"unprivileged"))
        sock = f"/tmp/tbg-{os.getpid()}.sock"
        p = daemon.Daemon("--upstream", up.url, "--user", "nobody", prefix=daemon.AS_NOBODY)
        p.control = sock
        with p:
            assert ask(p.address, "GET", "/").body == b"unprivileged"


def t_most_fields():
    """256 of them; what is behind a request with more goes on as before."""
    p = path()
    o.on(p, reply(200, b"x"))
    with origin.Client(d.address) as c:
        assert c.request("GET", p, *["A: b"] * 255).body == b"x", "and Host"
        for nr in (256, 300):
            assert c.request("GET", p, *["A: b"] * nr).status == 431, nr
        assert c.request("GET", p).body == b"x"
    assert len(o.seen(p)) == 2


def t_connection_names_no_more_than_any_client_has_use_for():
    """Each would be compared with each field: 2 ms of a worker for 15 KB."""
    p = path()
    o.on(p, reply(200, b"x"))
    with origin.Client(d.address) as c:
        for lines in (["Connection: " + ",".join(f"x{i}" for i in range(64))],
                      [f"Connection: x{i}" for i in range(64)]):
            assert c.request("GET", p, *lines, "X0: 1", "X63: 1", "X64: 1").body == b"x"
            seen = o.seen(p)[-1]
            assert seen.field("X64") == "1" and not (seen.field("X0") or seen.field("X63")), \
                   seen.head
        for lines in (["Connection: " + ",".join(f"x{i}" for i in range(65))],
                      [f"Connection: x{i}" for i in range(65)]):
            assert c.request("GET", p, *lines).status == 400
        assert c.request("GET", p).body == b"x"
    assert len(o.seen(p)) == 3


def t_request_head_on_its_way():
    p = path()
    o.on(p, reply(200, b"x"))
    ask(d.address, "GET", p, "User-Agent: me", "X-Two: a", "X-Two: b", "Connection: close, x-hop",
        "X-Hop: 1", "Keep-Alive: 3", "Proxy-Connection: x", "TE: gzip", "Via: 1.0 before",
        "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https",
        "Forwarded: for=192.0.2.1", "Proxy-Authorization: secret", host="Some.Host:81")
    r = o.wait(p)
    assert r.version == "HTTP/1.1" and r.method == "GET"
    want = {"Host": "some.host:81", "User-Agent": "me", "X-Two": "a, b",
            "X-Forwarded-For": "192.0.2.1, 127.0.0.1", "X-Forwarded-Host": "some.host:81",
            "X-Forwarded-Proto": "http",
            "Forwarded": 'for=192.0.2.1, for=127.0.0.1;host="some.host:81";proto=http'}
    for name, value in want.items():
        assert r.field(name) == value, (name, r.field(name))
    assert re.fullmatch(r"1\.0 before, 1\.1 toboggan \([0-9a-f]{8}\)", r.field("Via")), \
           r.field("Via")
    for name in ("X-Hop", "Keep-Alive", "Proxy-Connection", "TE", "Connection",
                 "Proxy-Authorization", "Content-Length", "Transfer-Encoding"):
        assert r.field(name) is None, (name, r.head)


def t_targets_arrive_as_they_were_sent():
    for target in ("/a%20b", "/a/./b", "/a//b", "/?", "/?a=b&c=%2F", "/x;y=z", "/%7Euser",
                   "/@a%2Fb", "/a%2f..%2fb"):
        o.on(target, reply(200, target.encode()))
        assert ask(d.address, "GET", target).body == target.encode()
    for target in ("/..", "/a/../../b", "/..%2Fb", "/a%2f..%2f..%2fb", "/%00", "/%", "/%2", "/%zz"):
        assert ask(d.address, "GET", target).status == 400, target
        assert not o.seen(target)
    o.on("/", reply(200, b"root"))
    assert ask(d.address, "GET", "http://other.example").body == b"root"
    assert o.seen("/")[-1].field("Host") == "other.example"
    o.on("/?q", reply(200, b"query"))
    assert ask(d.address, "GET", "http://other.example?q").body == b"query"
    o.on("*", reply(200, b"", "Allow: GET"))
    assert ask(d.address, "OPTIONS", "*").field("Allow") == "GET"
    # without a path it is of the server as a whole (RFC 9112 3.2.4), but not with a query
    before = len(o.seen("*"))
    assert ask(d.address, "OPTIONS", "http://test").field("Allow") == "GET"
    assert len(o.seen("*")) == before + 1 and o.seen("*")[-1].field("Host") == "test"
    for method, target, want in (("OPTIONS", "http://test/", "/"),
                                 ("OPTIONS", "http://test?a", "/?a"),
                                 ("GET", "http://test", "/")):
        o.on(want, reply(200, b"whole"))
        assert ask(d.address, method, target).body == b"whole", target


def t_response_head_on_its_way():
    p = path()
    o.on(p, reply(201, b"x", "X-A: 1", "x-a: 2", "Set-Cookie: a", "Set-Cookie: b", "Server: behind",
                  "Connection: x-hop", "X-Hop: 1", "Keep-Alive: 5", "Via: 1.1 before",
                  "Cache-Status: before; hit", reason="Made Up"))
    r = ask(d.address, "GET", p)
    assert r.status == 201 and r.reason == "Made Up", r
    assert [v for n, v in r.fields if n == "Set-Cookie"] == ["a", "b"]
    assert r.field("X-A") == "1, 2" and r.field("Server") == "behind"
    assert r.field("Via") == "1.1 before, 1.1 toboggan"
    assert r.field("Cache-Status").startswith("before; hit, toboggan; fwd=uri-miss"), r
    for name in ("X-Hop", "Keep-Alive", "Connection"):
        assert r.field(name) is None, (name, r)


def t_via_tells_the_version_that_was_received():
    for minor in (0, 1):
        p = path()
        o.on(p, reply(200, b"x", "Cache-Control: max-age=60").replace(b"/1.1", b"/1.%d" % minor, 1))
        for hit in (False, True):
            r = ask(d.address, "GET", p)
            assert r.hit == hit and r.field("Via") == f"1.{minor} toboggan", r
        o.on(p, reply(404, b"", "Connection: keep-alive").replace(b"/1.1", b"/1.%d" % minor, 1))
        assert ask(d.address, "GET", p + "?").field("Via") == "1.1 toboggan"
        assert ask(d.address, "POST", p).field("Via") == f"1.{minor} toboggan"


def t_methods_arrive():
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "M-SEARCH"):
        p = path()
        o.on(p, reply(200, b"did"))
        r = ask(d.address, method, p, body=None if method in ("GET", "OPTIONS") else b"x")
        assert r.body == b"did" and o.wait(p).method == method
        want = "fwd=uri-miss" if method == "GET" else "fwd=method"
        assert want in r.cache, r
    for method in ("TRACE", "CONNECT"):
        r = ask(d.address, method, "/" if method == "TRACE" else "h:1")
        assert r.status == 405 and \
               r.field("Allow") == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", r


def t_framings_of_responses():
    te = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%d," % i for i in range(30000))
    pieces = b"".join(b"%x;ext=1\r\n" % len(body[i:i + 777]) + body[i:i + 777] + b"\r\n"
                      for i in range(0, len(body), 777))
    for data, close, want in [
            (reply(200, body), False, body), (reply(200, b""), False, b""),
            (te + pieces + b"0\r\n\r\n", False, body), (te + b"0\r\n\r\n", False, b""),
            (b"HTTP/1.1 200 OK\r\n\r\n" + body, True, body),
            (b"HTTP/1.0 200 OK\r\n\r\n" + body, True, body),
        (b"HTTP/1.1 200 OK\r\n\r\n", True, b"")]:
        p = path()
        o.on(p, (lambda c, r, data=data: (c.send(data), END)[1]) if close else data)
        with origin.Client(d.address) as c:
            for _ in range(2):      # the client's connection stays in order
                assert c.request("GET", p).body == want, data[:60]
        with origin.Client(d.address) as c:
            c.send(f"GET {p} HTTP/1.0\r\n\r\n".encode())
            r = c.answer()
            assert r.body == want and r.field("Transfer-Encoding") is None, r.head


def t_bodiless_responses():
    for data in (reply(204, b""), reply(304, b"", 'ETag: "1"')):
        p = path()
        o.on(p, data)
        with origin.Client(d.address) as c:
            for _ in range(3):
                r = c.request("GET", p)
                assert r.status in (204, 304) and r.field("Content-Length") is None, r
    p = path()
    o.on(p, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    with origin.Client(d.address) as c:
        for _ in range(3):
            assert c.request("HEAD", p).field("Content-Length") == "5"
    assert len({r.connection for r in o.seen(p)}) == 1


def t_trailers_pass_both_ways():
    p = path()
    trailed = []

    def answer(c, r):
        trailed.extend(c.trailer)
        c.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n")

    o.on(p, answer)
    with origin.Client(d.address) as c:
        c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\nTE: gzip\r\nTE: trailers\r\n"
               f"Transfer-Encoding: chunked\r\n\r\n".encode() +
               b"2\r\nhi\r\n0\r\nX-Up: 2\r\nHost: evil\r\n\r\n")
        r = c.answer()
    assert trailed == [b"X-Up: 2"], trailed
    assert o.wait(p).body == b"hi" and o.wait(p).field("TE") == "trailers"
    assert r.body == b"abc" and r.trailer == [b"X-Sum: 1"], r.trailer
    r = ask(d.address, "POST", p, body=b"")
    assert r.trailer == [], "nobody asked for trailers"


def t_trailers_of_this_connection_alone_stay_here():
    """What Connection names is removed, from a trailer section too (RFC 9110 7.6.1)."""
    p = path()
    trailed = []

    def answer(c, r):
        trailed.extend(c.trailer)
        c.send(b"HTTP/1.1 200 OK\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"3\r\nabc\r\n0\r\nX-Hop: 1\r\nX-Sum: 1\r\n\r\n")

    o.on(p, answer)
    with origin.Client(d.address) as c:
        c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\nConnection: TE, X-Up\r\nTE: trailers\r\n"
               f"Transfer-Encoding: chunked\r\n\r\n".encode() +
               b"2\r\nhi\r\n0\r\nX-Up: 2\r\nX-On: 3\r\n\r\n")
        r = c.answer()
    assert trailed == [b"X-On: 3"], trailed
    assert r.body == b"abc" and r.trailer == [b"X-Sum: 1"], r.trailer


def t_connections_are_used_again():
    p = path()
    o.on(p, reply(200, b"x"))
    for _ in range(20):
        ask(d.address, "GET", p)
    assert len({r.connection for r in o.seen(p)}) == 1
    for closing in ("Connection: close", "Connection: Close, x"):
        p = path()
        o.on(p, reply(200, b"x", closing))
        for _ in range(3):
            r = ask(d.address, "GET", p)
            assert r.field("Connection") is None, "the client's connection is its own"
        assert len({r.connection for r in o.seen(p)}) == 3


def t_connections_end_before_the_server_ends_them():
    """What its Keep-Alive says counts, so that no POST meets the end."""
    for field, uses in (("Keep-Alive: timeout=1", 2), ("Keep-Alive: max=9, Timeout=1", 2),
                        ("Keep-Alive: timeout=0", 3),
                        ("Keep-Alive: timeout=100, max=9", 1), ("Keep-Alive: x", 1)):
        p = path()
        o.on(p, reply(200, b"x", field))
        for _ in range(2):
            assert ask(d.address, "GET", p).field("Keep-Alive") is None, \
                   "the client's connection is its own"
        if uses == 2:
            o.wait_end(p)
        assert ask(d.address, "POST", p, body=b"x").status == 200
        assert len({r.connection for r in o.seen(p)}) == uses, (field, o.seen(p))


def t_pipelined_requests_are_answered_in_order():
    names = [path() for _ in range(20)]
    for i, p in enumerate(names):
        o.on(p, reply(200, p.encode() * (1 + 3000 * (i % 3)),
                      *(["Cache-Control: max-age=60"] if i % 2 else [])))
    for _ in range(2):
        with origin.Client(d.address) as c:
            c.send("".join(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n" for p in names).encode())
            for i, p in enumerate(names):
                r = c.answer()
                assert r.body == p.encode() * (1 + 3000 * (i % 3)), (p, r)


def t_request_bodies_of_every_framing():
    body = bytes(range(256)) * 700
    chunked = b"".join(b"%X\r\n" % len(body[i:i + 5000]) + body[i:i + 5000] + b"\r\n"
                       for i in range(0, len(body), 5000)) + b"0\r\n\r\n"
    for framing, data in ((f"Content-Length: {len(body)}", body),
                          ("Transfer-Encoding: chunked", chunked)):
        p = path()
        o.on(p, lambda c, r: c.send(reply(200, b"%d" % len(r.body))))
        for step in (1 << 20, 1000):
            with origin.Client(d.address) as c:
                for _ in range(2):
                    c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n".encode())
                    for i in range(0, len(data), step):
                        c.send(data[i:i + step])
                    assert c.answer().body == b"%d" % len(body)
        assert all(r.body == body for r in o.seen(p))
    p = path()
    o.on(p, lambda c, r: c.send(reply(200, r.body)))
    with origin.Client(d.address) as c:     # pipelined behind a body
        one = f"POST {p} HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc".encode()
        c.send(one * 5)
        assert [c.answer().body for _ in range(5)] == [b"abc"] * 5


def t_bad_request_bodies_are_400_and_end():
    p = path()
    o.on(p, reply(200, b"x"))
    for body in (b"x\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"fffffffffffffffff\r\n",
                 b"0\r\nbad trailer\r\n\r\n"):
        with origin.Client(d.address) as c:
            c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".encode() +
                   body)
            r = c.answer()
            assert r.status == 400 and c.ended(), r
    assert not o.seen(p), "a bad body looked whole to the upstream"


def t_client_that_leaves_within_its_body():
    for framing, data in (("Content-Length: 1000", b"abc"),
                          ("Transfer-Encoding: chunked", b"3\r\nabc\r\n")):
        p, whole = path(), []

        def take(c, r):
            c.body(r)                   # raises at the end of the connection
            whole.append(r)

        o.on(p, take, raw=True)
        with origin.Client(d.address) as c:
            c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n".encode() + data)
            o.wait(p)
        o.wait_end(p)
        assert not whole, "half a body looked whole to the upstream"


def t_too_large_bodies_are_413():
    with origin.Origin() as up, proxy(up.url, options=("--body-max", "1000")) as p:
        up.on("/", reply(200, b"ok"))
        assert ask(p.address, "POST", "/", body=b"x" * 1000).status == 200
        with origin.Client(p.address) as c:
            c.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n")
            assert c.answer().status == 413 and c.ended(), "before any of it was sent"
        with origin.Client(p.address) as c:
            c.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n"
                   b"Expect: 100-continue\r\n\r\n")
            assert c.answer().status == 413
        with origin.Client(p.address) as c:
            c.send(b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n")
            assert c.answer().status == 413
        assert len(up.seen("/")) == 1


def t_expect_100_continue():
    def cautious(c, r):
        c.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        c.body(r)
        c.send(reply(200, r.body))

    def refuses(c, r):
        c.send(reply(417, b"no", "Connection: close"))
        return END

    def ignores(c, r):
        c.body(r)
        c.send(reply(200, r.body))

    head = "POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    for what in (cautious, ignores):
        p = path()
        o.on(p, what, raw=True)
        with origin.Client(d.address) as c:
            c.send(head.format(p).encode())
            assert c.answer().status == 100
            c.send(b"body")
            r = c.answer()
            assert r.status == 200 and r.body == b"body", r
        assert o.seen(p)[0].field("Expect") == "100-continue"
    p = path()
    o.on(p, refuses, raw=True)
    with origin.Client(d.address) as c:
        c.send(head.format(p).encode())
        r = c.answer()
        assert r.status == 417 and r.body == b"no", r


def t_early_hints_pass():
    p = path()
    o.on(p, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + reply(200, b"x"))
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        r = c.answer()
        assert r.status == 103 and r.field("Link") == "</a>", r
        assert c.answer().body == b"x"
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.0\r\n\r\n".encode())
        assert c.answer().status == 200, "HTTP/1.0 has no interim responses"


def interim(data):
    """The heads that a client gets of that before a 200."""
    p, heads = path(), []
    o.on(p, data + reply(200, b"x"))
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        r = c.answer()
        while r.status < 200:
            heads.append(r)
            r = c.answer()
        assert r.status == 200 and r.body == b"x", r
    return heads


def t_fields_of_one_hop_are_in_no_interim_response():
    r, = interim(b"HTTP/1.1 103 Early Hints\r\nConnection: X-Hop\r\nX-Hop: 1\r\nLink: </a>\r\n\r\n")
    assert r.fields == [("Link", "</a>")], r


def t_interim_response_without_content_may_say_so():
    r, = interim(b"HTTP/1.1 102 Processing\r\nContent-Length: 0\r\n\r\n")
    assert r.status == 102 and not r.fields, r
    assert not interim(b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n")


def t_each_head_has_the_limit_of_heads():
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </" + b"a" * 20000 + b">\r\n\r\n"
    for nr in (1, 2, 5):
        assert [len(r.field("Link")) for r in interim(hints * nr)] == [20003] * nr
    p = path()
    o.on(p, hints + reply(200, b"x" * 100000, "X: " + "b" * 20000))
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        assert c.answer().status == 103
        r = c.answer()
        assert len(r.field("X")) == 20000 and r.body == b"x" * 100000


def t_early_answer_while_the_body_comes():
    p = path()

    def refuse(c, r):
        c.send(reply(403, b"no", "Connection: close"))
        return END

    o.on(p, refuse, raw=True)
    with origin.Client(d.address) as c:
        c.send(f"PUT {p} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n".encode() +
               b"x" * 10)
        r = c.answer()
        assert r.status == 403 and r.body == b"no" and r.field("Connection") == "close", r


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


def t_client_that_leaves_takes_the_fetch_with_it():
    p = path()
    o.on(p, origin.drips())
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.head()
    o.wait_end(p)


def t_reused_connection_that_dies_is_tried_again():
    for method, status in (("GET", 200), ("HEAD", 200), ("PUT", 200), ("POST", 502)):
        p, q = path(), path()
        o.on(q, reply(200, b"warm"))
        o.on(p, END, reply(200, b"second"))
        ask(d.address, "GET", q)
        r = ask(d.address, method, p, *(["Content-Length: 0"] if method in ("PUT", "POST") else []))
        assert r.status == status, (method, r)
        assert len(o.seen(p)) == (2 if status == 200 else 1), method


def t_no_second_try_after_a_byte_or_on_a_new_connection():
    def half(c, r):
        c.send(b"HTTP/1.1 2")
        return END

    p, q = path(), path()
    o.on(q, reply(200, b"warm"))
    o.on(p, half)
    ask(d.address, "GET", q)
    assert ask(d.address, "GET", p).status == 502 and len(o.seen(p)) == 1
    o.on(q, reply(200, b"", "Connection: close"))
    for _ in range(3):              # empties the pool
        ask(d.address, "GET", q)
    p = path()
    o.on(p, END)
    assert ask(d.address, "GET", p).status == 502 and len(o.seen(p)) == 1


def t_idempotent_request_goes_to_another_server_when_one_dies():
    """Before a byte of an answer; what is not idempotent is sent once."""
    with origin.Origin() as dies, origin.Origin() as good, proxy(dies.url, good.url) as p:
        good.on("/", lambda c, r: c.send(reply(200, b"good")))
        dies.on("/", lambda c, r: END)
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            for _ in range(4):
                assert ask(p.address, method, "/").status == 200, method
        assert dies.seen(), "it was never its turn"
    with origin.Origin() as dies, origin.Origin() as good, proxy(dies.url, good.url) as p:
        good.on("/", reply(200, b"good"))
        dies.on("/", lambda c, r: END)
        got = [ask(p.address, "POST", "/", body=b"x").status for _ in range(2)]
        assert sorted(got) == [200, 502], got
        assert len(dies.seen()) == len(good.seen()) == 1
    with origin.Origin() as one, origin.Origin() as two, proxy(one.url, two.url) as p:
        for o_ in (one, two):
            o_.on("/", lambda c, r: END)
        assert ask(p.address, "GET", "/").status == 502
        assert len(one.seen()) == len(two.seen()) == 1, "each is asked once"


def t_idempotent_request_goes_to_another_server_when_one_hangs():
    """For each its own first-byte-timeout; where there is no other, the 504 comes after one."""
    def hangs(c, r):
        c.more()

    options = ("--first-byte-timeout", "300ms")
    for method, statuses in (("GET", [200, 200]), ("DELETE", [200, 200]), ("POST", [200, 504])):
        with origin.Origin() as hung, origin.Origin() as good, \
            proxy(hung.url, good.url, options=options) as p:
            good.on("/", reply(200, b"good"))
            hung.on("/", hangs)
            got = [ask(p.address, method, "/", body=b"x" if method == "POST" else None).status
                   for _ in range(2)]
            assert sorted(got) == statuses, (method, got)
            assert len(hung.seen()) == 1 and len(good.seen()) == statuses.count(200), method
            assert [u["failed"] for u in talk.ask(p, "status")["upstreams"]] == [1, 0]
    with origin.Origin() as one, origin.Origin() as two, \
        proxy(one.url, two.url, options=options) as p:
        for o_ in (one, two):
            o_.on("/warm", reply(200))
            o_.on("/", hangs)
        for _ in range(2):
            assert ask(p.address, "GET", "/warm").status == 200
        assert ask(p.address, "GET", "/").status == 504
        assert len(one.seen("/")) == len(two.seen("/")) == 1, "each is asked once"


def t_answer_is_not_late_for_time_that_the_daemon_lost():
    asked, go = threading.Event(), threading.Event()

    def when_told(c, r):
        asked.set()
        assert go.wait(20)
        c.send(reply(200, b"in time"))

    with origin.Origin() as o, proxy(o.url, options=("--first-byte-timeout", "1s")) as p, \
            origin.Client(p.address) as c:
        o.on("/", when_told)
        c.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")
        assert asked.wait(20)
        with daemon.stopped(p.pid):
            time.sleep(0.5)             # its clock ticks before the answer comes
            go.set()
            time.sleep(1)               # the limit, and more
        assert (c.answer().status, len(o.seen("/"))) == (200, 1)


def t_servers_take_turns():
    with origin.Origin() as a, origin.Origin() as b, origin.Origin(unix=True) as c, \
            proxy(a.url, b.url, c.url) as p:
        for up in (a, b, c):
            up.on("/", reply(200, up.url.encode()))
        for _ in range(30):
            assert ask(p.address, "GET", "/").status == 200
        assert [len(up.seen("/")) for up in (a, b, c)] == [10, 10, 10]


def t_server_of_least_requests():
    go = threading.Event()
    with origin.Origin() as a, origin.Origin() as b, \
            proxy(a.url, b.url, options=("--balance", "least")) as p:
        for up in (a, b):
            up.on("/slow", lambda c, r: (go.wait(20), c.send(reply(200, b"x")))[0])
            up.on("/", reply(200, b"x"))
        t = threading.Thread(target=lambda: ask(p.address, "POST", "/slow", body=b""))
        t.start()
        while not a.seen("/slow") and not b.seen("/slow"):
            time.sleep(0.01)
        for _ in range(6):
            ask(p.address, "GET", "/")
        free = b if a.seen("/slow") else a
        go.set()
        t.join()
        assert len(free.seen("/")) == 6


def t_servers_that_are_down_are_passed_over():
    with socket.socket() as dead, origin.Origin() as up:
        dead.bind(("127.0.0.1", 0))     # bound, not listening: refused
        url = f"http://127.0.0.1:{dead.getsockname()[1]}"
        with proxy(url, up.url) as p:
            up.on("/", reply(200, b"x"))
            for method in ("GET", "POST"):
                for _ in range(10):
                    assert ask(p.address, method, "/", body=b"" if method == "POST"
                               else None).status == 200
        with proxy(url) as p:
            for _ in range(5):
                r = ask(p.address, "GET", "/")
                assert r.status == 502 and r.reason == "Bad Gateway", r
            up_late = socket.socket()
        up_late.close()


def t_loop_ends():
    """A proxy that is its own upstream."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    p = proxy(f"http://127.0.0.1:{port}")
    p.listen = [f"127.0.0.1:{port}"]
    with p:
        for method in ("GET", "POST"):
            r = ask(p.address, method, "/", body=b"abc" if method == "POST" else None)
            assert r.status == 508 and r.reason == "Loop Detected", r


def t_max_forwards_counts_hops_of_options():
    p = path()
    o.on(p, reply(200, b"there"))
    for method, value, seen in (("OPTIONS", "7", "6"), ("OPTIONS", "1", "0"), ("OPTIONS", "x", "x"),
                                ("GET", "0", "0"), ("GET", "3", "3")):
        assert ask(d.address, method, p, f"Max-Forwards: {value}").body == b"there"
        assert o.seen(p)[-1].field("Max-Forwards") == seen, (method, value)
    n = len(o.seen(p))
    r = ask(d.address, "OPTIONS", p, "Max-Forwards: 0")
    assert r.status == 204 and not r.field("Allow") and len(o.seen(p)) == n, r


def t_half_closed_client_gets_its_answer():
    go = threading.Event()
    p = path()
    o.on(p, lambda c, r: (go.wait(20), c.send(reply(200, b"late")))[0])
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.s.shutdown(socket.SHUT_WR)
        o.wait(p)
        go.set()
        assert c.answer().body == b"late" and c.ended()


def t_client_that_has_left_ends_its_request():
    p = path()
    o.on(p, lambda c, r: c.more())      # until the proxy ends it
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        o.wait(p)
    o.wait_end(p)


def t_requests_cut_at_every_byte():
    p = path()
    o.on(p, lambda c, r: c.send(reply(200, r.body)))
    data = f"PUT {p} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n" \
           f"1\r\nc\r\n0\r\nX: y\r\n\r\n"
    with origin.Client(d.address) as c:
        for i in range(1, len(data)):
            c.send(data[:i].encode())
            time.sleep(0.001)       # most often two segments; the answer is the same if not
            c.send(data[i:].encode())
            assert c.answer().body == b"abc", i


def t_health_checks_take_servers_out_and_back():
    with origin.Origin() as a, origin.Origin() as b, proxy(
            a.url, b.url, options=("--health-path", "/health?x", "--health-interval",
                                   "200ms")) as p:
        for up in (a, b):
            up.on("/", reply(200, up.url.encode()))
            up.on("/health?x", reply(204, b""))
        assert a.wait("/health?x").field("User-Agent") == "toboggan"

        def answers():
            return {ask(p.address, "GET", "/").body for _ in range(6)}

        assert answers() == {a.url.encode(), b.url.encode()}
        for sick in (reply(503, b""), END, b"garbage\r\n\r\n"):
            a.on("/health?x", sick)
            nr = len(a.seen("/health?x"))
            a.wait("/health?x", nr + 2)     # the first of them has been judged
            assert answers() == {b.url.encode()}, sick
            a.on("/health?x", reply(200, b"well"))
            nr = len(a.seen("/health?x"))
            a.wait("/health?x", nr + 2)
            assert answers() == {a.url.encode(), b.url.encode()}


def t_a_server_that_hangs_is_found_and_rests_until_it_is_well():
    """However long its checks go on, and requests that it is asked when all others fail."""
    go = threading.Event()

    def hang(c, r):
        if not go.is_set():
            c.more()
        c.send(reply(204))

    with origin.Origin() as a, origin.Origin() as b, proxy(
            a.url, b.url, options=("--health-path", "/h", "--health-interval", "200ms")) as p:
        a.on("/h", hang)
        b.on("/h", reply(204))
        for up in (a, b):
            up.on("/", reply(200, up.url.encode()))

        def rests():
            return [u["rests"] for u in talk.ask(p, "status")["upstreams"]]

        client.until(lambda: rests() == [True, False], "never found")
        nr = len(a.seen("/"))
        while len(a.seen("/h")) < 4:
            assert rests() == [True, False]
            assert ask(p.address, "GET", "/").body == b.url.encode()
            time.sleep(0.02)
        assert len(a.seen("/")) == nr
        go.set()
        client.until(lambda: not any(rests()), "never well again")


def files_max(p, nr):
    """As the daemon's own user: root may lack the capability."""
    with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    uid, gid = (fields[x].split()[0] for x in ("Uid", "Gid"))
    become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    subprocess.run((become if not os.geteuid() else []) + ["prlimit", "--pid", str(p.pid),
                                                           f"--nofile={nr}:"],
                   check=True)


def t_without_descriptors_no_server_is_taken_out():
    with origin.Origin() as up, \
        proxy(up.url, options=("--health-path", "/h", "--health-interval", "500ms")) as p:
        up.on("/h", reply(204, b""))
        up.wait("/h")
        used = max(int(x) for x in os.listdir(f"/proc/{p.pid}/fd")) + 1
        files_max(p, used)
        held = [client.Client(p.address) for _ in range(50)]

        def stopped():
            nr = len(up.seen("/h"))
            time.sleep(1.2)
            return len(up.seen("/h")) == nr
        client.until(stopped, "checks go on")
        files_max(p, used + 200)
        assert not talk.ask(p, "status")["upstreams"][0]["rests"]
        for c in held:
            c.close()
        nr = len(up.seen("/h"))
        up.wait("/h", nr + 1)


def t_without_descriptors_idle_connections_make_room():
    with origin.Origin() as one, origin.Origin() as two, conf.Conf(
            f'upstream = "{one.url}"\nlocation "/two" {{ upstream = "{two.url}" }}\n', *daemon.USER,
        "--workers", "1",
            # few: each is accepted with the limit of its moment
            "--connections-max", "100") as p:
        one.on("/", reply(200, b"one"))
        two.on("/two", reply(200, b"two"))
        with origin.Client(p.address) as c:
            assert c.request("GET", "/").body == b"one"
            files = f"/proc/{p.pid}/fd"
            nr = max(int(x) for x in os.listdir(files)) + 1
            files_max(p, nr)
            held = [client.Client(p.address) for _ in range(50)]
            client.until(lambda: not {*range(nr)} - {*map(int, os.listdir(files))}, "some are left")
            assert c.request("GET", "/two").body == b"two"
            one.wait_end("/")
            assert c.request("GET", "/").body == b"one"
            for h in held:
                h.close()


def t_client_that_has_what_turns_out_too_long_to_store():
    """As early as in the receive that brings the head: its 304 is on its way all the same."""
    with origin.Origin() as up, conf.Conf('root = "{root}"\n', *daemon.USER, "--memory", "1M") as p:
        p.reconfigure(f'upstream = "{up.url}"\n')      # what is stored has 4 KiB at most
        up.on("/", b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n2000\r\n" + b"x" * 8192 + b"\r\n0\r\n\r\n")
        with origin.Client(p.address) as c:
            assert c.request("GET", "/", "If-None-Match: *").status == 304
            assert c.request("GET", "/").body == b"x" * 8192


def t_connect_timeout_is_504():
    """A listener whose queue is full leaves SYNs unanswered."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        fill = []
        for _ in range(4):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(s.getsockname())
            fill.append(c)
        with proxy(f"http://127.0.0.1:{s.getsockname()[1]}",
                   options=("--connect-timeout", "500ms")) as p:
            start = time.monotonic()
            assert ask(p.address, "GET", "/").status == 504
            assert time.monotonic() - start < 10
        for c in fill:
            c.close()


def t_a_unix_socket_with_a_full_queue_is_waited_for():
    """As long as a connection may take; it is refused at once where that of TCP would wait."""
    with tempfile.TemporaryDirectory(prefix="tbg-") as folder, socket.socket(socket.AF_UNIX) as s:
        os.chmod(folder, 0o755)
        s.bind(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        s.listen(0)
        s.settimeout(client.WAIT_S)
        fill = socket.socket(socket.AF_UNIX)
        fill.connect(f"{folder}/s")
        with proxy(f"unix:{folder}/s", options=("--connect-timeout", "500ms")) as p:
            assert ask(p.address, "GET", "/").status == 504
        with proxy(f"unix:{folder}/s") as p, origin.Client(p.address) as c:
            c.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            client.until(lambda: talk.ask(p, "status")["upstreams"][0]["active"], "never asked")
            time.sleep(0.3)         # it has been tried more than once
            fill.close()
            s.accept()[0].close()
            with s.accept()[0] as up:
                origin.Connection(up, 0).request()
                up.sendall(reply(200, b"waited"))
                assert c.answer().body == b"waited"
            assert talk.ask(p, "status")["upstreams"][0]["failed"] == 0


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


def t_slow_bodies_say_nothing_about_the_server():
    """It has begun to answer, and waits for what the client does not send."""
    with origin.Origin() as up, proxy(up.url, options=("--upstream-idle-timeout", "200ms")) as p:
        def early(c, r):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            c.more()

        up.on("/", early, raw=True)
        for _ in range(4):          # more than take a server out
            with origin.Client(p.address) as c:
                c.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n")
                c.ended()
                assert c.got.endswith(b"half")
        assert talk.ask(p, "status")["upstreams"][0]["failed"] == 0


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


def t_reset_behind_two_requests_ends_nothing():
    """The first one's answer is still to be sent when the second one's begins."""
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/large", reply(200, b"x" * 40000, "Cache-Control: max-age=600"))
        ask(p.address, "GET", "/large")
        assert ask(p.address, "GET", "/large").hit
        for _ in range(10):
            c = talk.Connection(socket.create_connection(p.address))
            client.until(lambda: connections(p) == 1, "never accepted")
            os.kill(p.pid, signal.SIGSTOP)
            c.send(talk.request("/", "Max-Forwards: 0", method="OPTIONS") + talk.request("/large"))
            c.reset()
            os.kill(p.pid, signal.SIGCONT)
            assert ask(p.address, "GET", "/large").hit
        assert p.process.poll() is None


def accepts(p):
    try:
        socket.create_connection(p.address).close()
    except ConnectionResetError:        # it was in the queue of a listener that closed
        pass
    except ConnectionRefusedError:
        return False
    return True


def settled(p):
    """Has it read all that it was sent, and do all its threads wait for more?"""
    with open(f"/proc/{p.pid}/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    if any(int(row[1].rpartition(":")[2], 16) == p.address[1] and row[3] == "01" and
           int(row[4].rpartition(":")[2], 16) for row in rows):
        return False
    for tid in os.listdir(f"/proc/{p.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):     # it has just ended
            with open(f"/proc/{p.pid}/task/{tid}/stat", encoding="ascii") as f:
                if f.read().rpartition(")")[2].split()[0] != "S":
                    return False
    return True


def t_draining_lets_the_answer_finish_that_others_wait_for():
    """Of a fetch whose own client has left, on a worker without any other."""
    with origin.Origin() as up:
        go = threading.Event()
        up.on("/", lambda c, r: (go.wait(client.WAIT_S),
                                 c.send(reply(200, b"finished", "Cache-Control: max-age=60")))[0])
        with contextlib.ExitStack() as stack:
            p = stack.enter_context(proxy(up.url, workers=8))
            first, *others = [stack.enter_context(talk.Connection(socket.create_connection(
                p.address, timeout=client.WAIT_S))) for _ in range(5)]
            first.send(talk.request("/"))
            up.wait("/")
            for c in others:
                c.send(talk.request("/"))
                c.acked()
            client.until(lambda: settled(p), "never at rest")
            first.reset()
            client.until(lambda: connections(p) == 4, "never ended")
            p.process.send_signal(signal.SIGTERM)
            client.until(lambda: not accepts(p), "still accepts")
            client.until(lambda: settled(p), "never at rest")
            go.set()
            got = []
            for c in others:
                got.append(c.response().body)
                c.close()
            assert (got, len(up.seen("/"))) == ([b"finished"] * 4, 1), (got, up.seen("/"))
            assert p.process.wait(client.WAIT_S) == 0


def t_draining_lets_the_answer_finish():
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        with origin.Origin() as up:
            go = threading.Event()
            up.on("/", lambda c, r,
                  go=go: (go.wait(client.WAIT_S), c.send(reply(200, b"finished")))[0])
            with proxy(up.url) as p:
                got = []
                t = threading.Thread(target=lambda p=p,
                                     got=got: got.append(ask(p.address, "GET", "/")))
                t.start()
                up.wait("/")
                p.process.send_signal(how)
                client.until(lambda p=p: not accepts(p), "still accepts")
                go.set()
                t.join()
                assert got[0].body == b"finished" and got[0].field("Connection") == "close"
                assert p.process.wait(client.WAIT_S) == 0


def t_access_log_has_a_line_for_each():
    with origin.Origin() as up, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        log = os.path.join(folder, "log")
        up.on("/a", reply(200, b"12345", "Cache-Control: max-age=60"))
        up.on("/b", lambda c,
              r: c.send(
                  b"HTTP/1.1 404 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"))
        with proxy(up.url, options=("--access-log", log)) as p:
            for name in ("/a", "/a", "/b"):
                ask(p.address, "GET", name)
        with open(log, encoding="latin-1") as f:
            lines = [re.search(r'"GET (/\w) HTTP/1.1" (\d+) (\d+)', x).groups() for x in f]
        assert lines == [("/a", "200", "5"), ("/a", "200", "5"), ("/b", "404", "2")], lines


def mixed_origin(c, r):
    """Any framing, any length, sometimes an end too early; the body tells the path."""
    rng = random.Random(r.target)
    unit = f"[{r.target}]".encode()
    body = unit * rng.choice((0, 1, 1, 50, 2000, 30000))
    fields = rng.choice((["Cache-Control: max-age=1"], ["Cache-Control: max-age=60"],
                         ["Cache-Control: private"], ["Cache-Control: max-age=0", 'ETag: "1"'], []))
    if r.field("If-None-Match"):
        c.send(reply(304, b"", 'ETag: "1"', *fields))
        return None
    how = rng.randrange(6)
    if how < 3:
        data = reply(200, body, *fields)
    elif how == 3:
        data = b"HTTP/1.1 200 OK\r\n\r\n" + body
    else:
        data = ("\r\n".join(["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *fields]) +
                "\r\n\r\n").encode()
        data += b"".join(b"%x\r\n" % len(body[i:i + 9999]) + body[i:i + 9999] + b"\r\n"
                         for i in range(0, len(body), 9999)) + b"0\r\n\r\n"
    if how != 3 and random.random() < 0.05:     # not whole, and to be seen as such
        c.send(data[:random.randrange(len(data))])
        return END
    c.send(data)
    if how == 3 or random.random() < 0.1:
        return END
    return None


def mixed_client(address, seed, wrong, paths):
    rng = random.Random(seed)
    for _ in range(60):
        try:
            with origin.Client(address) as c:
                for _ in range(rng.randrange(1, 8)):
                    batch = [rng.choice(paths) for _ in range(rng.choice((1, 1, 4)))]
                    post = rng.random() < 0.2
                    for p in batch:
                        c.send((f"POST {p} HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nabcde"
                                if post else
                                f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n").encode())
                    if rng.random() < 0.1:
                        break           # and never read it
                    for p in batch:
                        r = c.answer()
                        unit = f"[{p}]".encode()
                        if r.status == 200 and r.body != unit * (len(r.body) // len(unit)):
                            wrong.append((p, r))
                        if r.field("Connection") == "close":
                            raise EOFError
        except (EOFError, OSError, ValueError, AssertionError) as e:
            if isinstance(e, AssertionError):
                wrong.append(repr(e))


def t_random_mix_gives_each_request_its_own_answer():
    with origin.Origin() as up, proxy(up.url, workers=2) as p:
        paths = [f"/mix/{i}" for i in range(60)]
        for name in paths:
            up.on(name, mixed_origin)
        wrong = []
        threads = [threading.Thread(target=mixed_client, args=(p.address, i, wrong, paths))
                   for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        assert p.process.poll() is None
        assert len(up.requests) > 500


def t_wire_lets_all_of_it_pass():
    with origin.Origin() as up:
        up.on("/a", reply(200, b"a" * 500, "Cache-Control: max-age=60"))
        up.on("/b", lambda c, r: c.send(reply(200, r.body)))
        p = daemon.Daemon("--upstream", up.url, "--wire", "lo")
        if os.geteuid():
            raise ktap.Skip("not root: wire cannot be loaded")
        with p:
            if "tiers wire,user" not in p.ready:
                raise ktap.Skip(p.why_no_wire())
            with origin.Client(p.address) as c:
                for i in range(50):
                    assert c.request("GET", "/a").body == b"a" * 500
                    assert c.request("POST", "/b", body=b"%d" % i).body == b"%d" % i
                    c.send(b"GET /a HTTP/1.1\r\nHost: test\r\n\r\n" * 3)
                    assert [c.answer().body for _ in range(3)] == [b"a" * 500] * 3
        assert len(up.seen("/a")) == 1


def t_status_tells_of_servers_and_stock():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/", reply(200, b"x" * 1000, "Cache-Control: max-age=60"))
        ask(p.address, "GET", "/")
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(p.control)
            s.sendall(b'{"cmd":"status"}\n')
            a = json.loads(s.makefile().readline())
        assert a["upstreams"] == [{"upstream": up.url, "server": up.url, "rests": False,
                                   "active": 0, "requests": 1, "failed": 0}], a
        assert a["stock"]["responses"] == 1 and 1000 < a["stock"]["used"] < a["stock"]["budget"], a


def t_stored_responses_take_the_memory_they_count_for():
    """Small ones of unknown length, which come into more room than they need."""
    with origin.Origin() as up, proxy(up.url, options=("--memory", "64M")) as p, \
        origin.Client(p.address) as c:
        chunked = (
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n")

        def fill(nrs):
            for i in nrs:
                up.on(f"/{i}", chunked)
                assert c.request("GET", f"/{i}").body == b"x" * 100
            return daemon.own_kb(p.pid) << 10, talk.ask(p, "status")["stock"]["used"]

        before = fill(range(500))
        took, counted = (x - y for x, y in zip(fill(range(500, 5000)), before))
        assert took < 2 * counted, (took, counted)


def t_tool_tells_of_servers_and_stock():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/", reply(200, b"x" * 1000, "Cache-Control: max-age=60"))
        ask(p.address, "GET", "/")
        out = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", p.control,
                              "status"],
                             capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^upstreams +{re.escape(up.url)}, 1 requests, 0 under way, 0 failed$",
                         out, re.M), out
        assert re.search(r"^stored +1 responses, ", out, re.M) and "root" not in out, out


def t_reload_keeps_servers_and_stock():
    """A limit is changed; who answers stays who it is."""
    held = threading.Event()

    def slow(c, _):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        assert held.wait(client.WAIT_S)
        c.send(b"def")

    with origin.Origin() as up:
        text = f'upstream = {{"{up.url}"}}\nbody-max = 10\nhost "any" {{ }}\n' \
               f'host "small" {{ body-max = 1 }}\n'
        longer = text.replace("= 10", "= 20")
        up.on("/kept", reply(200, b"kept", "Cache-Control: max-age=600"))
        up.on("/post", reply(200, b"taken"))
        up.on("/slow", slow)
        with conf.Conf(text, "--tiers", "user") as p:
            def post(size, host="any"):
                return ask(p.address, "POST", "/post", body=b"x" * size, host=host).status

            got = [post(10), post(11), post(1, "small"), post(2, "small")]
            assert got == [200, 413, 200, 413], got
            assert ask(p.address, "GET", "/kept").body == b"kept"
            with origin.Client(p.address) as c:
                c.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
                up.wait("/slow")
                p.reconfigure(longer)
                held.set()
                assert c.answer().body == b"abcdef"
            assert (post(20), post(21)) == (200, 413)
            assert ask(p.address, "GET", "/kept").hit


def t_sighup_without_a_file_changes_nothing():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/a", reply(200, b"a"))
        p.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + client.WAIT_S
        while not any("SIGHUP" in x for x in p.lines):
            assert time.monotonic() < deadline, p.lines
            time.sleep(0.005)
        assert ask(p.address, "GET", "/a").body == b"a"


class Nginx:
    """Files and a redirect, on a Unix socket and a port."""

    def __enter__(self):
        if not shutil.which("nginx"):
            raise ktap.Skip("no nginx")
        self.folder = tempfile.mkdtemp(prefix="tbg-nginx-")
        os.chmod(self.folder, 0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        os.mkdir(f"{self.folder}/root")
        with open(f"{self.folder}/conf", "w", encoding="ascii") as f:
            f.write(f"""
daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{ access_log off; client_max_body_size 0; types {{ text/plain txt; }}
  client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/p;
  fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u;
  scgi_temp_path {self.folder}/s;
  server {{ listen 127.0.0.1:{self.port}; listen unix:{self.folder}/sock; root {self.folder}/root;
    location / {{ expires 60s; }} location /old {{ return 301 /new; }} }} }}
""")
        self.process = subprocess.Popen(["nginx", "-p", self.folder, "-c", f"{self.folder}/conf"],
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + client.WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, "no nginx"
                time.sleep(0.02)
        return self

    def __exit__(self, *why):
        self.process.terminate()
        self.process.wait(client.WAIT_S)
        shutil.rmtree(self.folder)


def t_nginx_behind():
    with Nginx() as n:
        data = {"small.txt": b"small\n", "mib.txt": os.urandom(1 << 20), "empty.txt": b""}
        for name, body in data.items():
            with open(f"{n.folder}/root/{name}", "wb") as f:
                f.write(body)
        for url in (f"http://127.0.0.1:{n.port}", f"unix:{n.folder}/sock"):
            with proxy(url, workers=2) as p:
                for name, body in data.items():
                    direct = ask(("127.0.0.1", n.port), "GET", "/" + name)
                    for i in range(3):
                        r = ask(p.address, "GET", "/" + name)
                        assert r.body == body and r.hit == (i > 0), (name, i, r)
                        for field in ("ETag", "Last-Modified", "Content-Type", "Server"):
                            assert r.field(field) == direct.field(field), field
                    r = ask(p.address, "GET", "/" + name, f"If-None-Match: {r.field('ETag')}")
                    assert r.status == 304 and r.hit, r
                r = ask(p.address, "GET", "/mib.txt", "Range: bytes=1000-1999")
                assert r.status == 206 and r.body == data["mib.txt"][1000:2000], r
                assert ask(p.address, "GET", "/old").status == 301
                assert ask(p.address, "GET", "/none").status == 404
                assert ask(p.address, "PUT", "/small.txt", body=b"x" * 100000).status == 405


APP = """
import hashlib

def app(env, start):
    path, size = env["PATH_INFO"], int(env.get("CONTENT_LENGTH") or 0)
    if path == "/stream":
        start("200 OK", [("Content-Type", "text/plain"), ("X-Host", env["HTTP_HOST"])])
        return (b"%d," % i for i in range(20000))
    if path == "/fresh":
        start("200 OK", [("Cache-Control", "max-age=60"), ("Content-Length", "5"), ("ETag", '"e"')])
        return [b"fresh"]
    if path == "/upload":
        total, got = hashlib.sha256(), 0
        while got < size:
            piece = env["wsgi.input"].read(min(size - got, 65536))
            if not piece:
                break
            total.update(piece)
            got += len(piece)
        body = ("%s %d %s" % (env["REQUEST_METHOD"], got, total.hexdigest())).encode()
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]
    if path == "/fails":
        raise ValueError("as it should")
    start("404 Not Found", [("Content-Length", "0")])
    return [b""]
"""


class Application:
    """A WSGI server of the distribution with that application, on a Unix or a TCP socket."""

    def __init__(self, name, unix):
        self.folder = tempfile.mkdtemp(prefix="tbg-app-")
        os.chmod(self.folder, 0o755)
        with open(f"{self.folder}/tbgapp.py", "w", encoding="ascii") as f:
            f.write(APP)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.address = f"{self.folder}/sock" if unix else ("127.0.0.1", port)
        self.url = f"unix:{self.folder}/sock" if unix else f"http://127.0.0.1:{port}"
        if name == "gunicorn":
            words = ["gunicorn", "--worker-class", "gthread", "--threads", "4", "--bind",
                     self.url if unix else f"127.0.0.1:{port}"]
        else:
            words = ["waitress-serve", f"--unix-socket={self.folder}/sock",
                     "--unix-socket-perms=666"] if unix else \
                ["waitress-serve", f"--listen=127.0.0.1:{port}"]
        if not shutil.which(words[0], path="/usr/bin"):
            raise ktap.Skip(f"no {name}")
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(["/usr/bin/" + words[0], *words[1:], "tbgapp:app"],
                                            cwd=self.folder,
                                            stdout=log, stderr=log, start_new_session=True,
                                            env={**os.environ, "PYTHONPATH": self.folder})

    def __enter__(self):
        deadline = time.monotonic() + client.WAIT_S
        while True:
            try:
                with socket.socket(socket.AF_UNIX if isinstance(self.address, str)
                                   else socket.AF_INET) as s:
                    s.connect(self.address)
                if isinstance(self.address, str):
                    os.chmod(self.address, 0o777)
                return self
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, self.log()
                time.sleep(0.05)

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def __exit__(self, *why):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(client.WAIT_S)
        shutil.rmtree(self.folder)


def application(name):
    body, stream = os.urandom(3 << 20), b"".join(b"%d," % i for i in range(20000))
    for unix in (False, True):
        with Application(name, unix) as app, proxy(app.url, workers=2) as p:
            for _ in range(3):
                r = ask(p.address, "GET", "/stream", host="some.host")
                assert r.body == stream and r.field("X-Host") == "some.host", (r, app.log())
                r = ask(p.address, "PUT", "/upload", body=body)
                assert r.body.decode() == f"PUT {len(body)} {hashlib.sha256(body).hexdigest()}", \
                       (r, app.log())
                assert ask(p.address, "GET", "/fails").status == 500
                assert ask(p.address, "HEAD", "/none").status == 404
            assert not ask(p.address, "GET", "/fresh").hit
            assert ask(p.address, "GET", "/fresh").hit
            with origin.Client(p.address) as c:
                for _ in range(20):
                    assert c.request("POST", "/upload", body=b"abc").body.startswith(b"POST 3 "), \
                           app.log()
        # chunked with a length by the time it arrives: WSGI knows no other bodies
        with Application(name, unix) as app, \
            proxy(app.url, options=("--body-buffer", "64K")) as p, \
                origin.Client(p.address) as c:
            c.send(b"POST /upload HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(0, len(body), 50000):
                c.send(b"%x\r\n" % len(body[i:i + 50000]) + body[i:i + 50000] + b"\r\n")
            c.send(b"0\r\n\r\n")
            assert c.answer().body.decode() == \
                   f"POST {len(body)} {hashlib.sha256(body).hexdigest()}", app.log()


def t_gunicorn_behind():
    application("gunicorn")


def t_waitress_behind():
    application("waitress")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
