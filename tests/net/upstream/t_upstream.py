#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The reverse proxy: heads and bodies in both directions, framing, and reused connections."""
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402
from origin import END, ask, reply  # noqa: E402
from proxied import connections, path, proxy  # noqa: E402

d = o = None


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


def t_needs_neither_root_nor_a_folder():
    """Run as user nobody, in a folder that this user may not read."""
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


def t_via_has_the_version_that_was_received():
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
    """Fields that Connection names are removed, also from a trailer section (RFC 9110 7.6.1)."""
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
    """Its Keep-Alive is respected, so that no POST meets the end of the connection."""
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


def t_client_that_leaves_takes_the_fetch_with_it():
    p = path()
    o.on(p, origin.drips())
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.head()
    o.wait_end(p)


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


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
