#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Requests in pieces, and segments that look like requests: wire changes nothing.

The same bytes in the same pieces go to a daemon with wire and to one without.
Status, answer and what becomes of the connection must be the same.
"""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import corpus
import daemon
import ktap
import net
import talk

WIRE, USER = 8080, 8081
IDLE_S = 0.3        # a reply of wire is not waited for that long
PROBE = talk.request("/probe.txt")
n = wire = user = None


def begin():
    global n, wire, user
    n = net.Net(links=1)
    with n.server.inside():
        # one worker: what one connection leaves behind meets the next
        wire = daemon.Daemon("--wire", "tbg0,lo", "--workers", "1", listen=f"0.0.0.0:{WIRE}")
        corpus.fill(wire.root)
        wire.write("b.txt", b"B" * 900)
        wire.start()
        user = daemon.Daemon("--tiers", "user", "--workers", "1",
                             listen=f"0.0.0.0:{USER}", root=wire.root).start()
    n.late = lambda: talk.late(wire)
    tier = talk.ask(wire, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))
    for port in (WIRE, USER):
        with connect(port) as c:
            for target in ("/", "/a.txt", "/b.txt", "/probe.txt", "/k.bin"):
                c.get(target)
    with connect(WIRE) as c:
        assert c.get("/a.txt").tier == daemon.FAST


def end():
    for d in (wire, user):
        if d:
            assert d.stop() == 0, d.lines
    if n:
        n.close()


def connect(port):
    return talk.Connection(n.client.connect((n.links[0].server4, port)))


def fate(port, pieces, heads=(), before=b""):
    """All that comes back, and whether the connection was left open.

    before: a request that is answered first, so that the pieces come to a
    connection that wire has answered on. Each piece is acknowledged before
    the next one goes. A probe at the end shows whether the stream is still in
    step; a half-close behind it, what a connection that waits for more does.
    """
    with connect(port) as c:
        if before:
            c.send(before)
            c.response()
        try:
            for piece in pieces[:-1]:
                c.send(piece)
                c.acked()
            c.send(pieces[-1])
            c.acked()
            c.send(PROBE)
            c.half_close()
        except (BrokenPipeError, ConnectionResetError, OSError):
            pass            # refused early: the answer is what counts
        out = []
        heads = list(heads)
        try:
            while True:
                r = c.response("HEAD" if heads and heads.pop(0) else "GET")
                out.append((r.status, r.fields.get("Connection"), *r.bare()))
        except EOFError:
            out.append(("end", c.got))
        except ConnectionResetError:
            out.append(("reset", c.got))
        return out


def compare(name, pieces, heads=()):
    """
    What the daemon without wire makes of the pieces, which the other one must do as well. In a
    guest it is asked for that once: it is the same program on each kernel.
    """
    for before in (b"", talk.request("/a.txt")):
        if not (daemon.IN_VM and before):
            want = fate(USER, pieces, heads, before)
        got = fate(WIRE, pieces, heads, before)
        if got != want:
            raise AssertionError(f"{name}{' after a hit' if before else ''}:\nwith wire {got}\n"
                                 f"without   {want}")
    return want


REQUESTS = {
    "get": talk.request("/a.txt"),
    "long": talk.request("/b.txt", "User-Agent: some browser", "Accept: */*",
                         "Cookie: " + "c" * 60),
    "conditional": talk.request("/a.txt", 'If-None-Match: "x"'),
    "missing": talk.request("/none"),
    "post": talk.request("/a.txt", "Content-Length: 9", method="POST", body=b"123456789"),
    "two": talk.request("/a.txt") + talk.request("/b.txt"),
}


# While the daemon sends the reply of a connection that it gives back, the client's FIN may be
# answered on another CPU, and overtake it.
OVERTAKES = ("TCPOFOQueue",) if daemon.LATE else ()


def split_everywhere(name):
    data = REQUESTS[name]
    want = compare(name, [data])
    with n.clean(WIRE, "OutRsts", "EstabResets", *OVERTAKES):
        for i in daemon.share(range(1, len(data))):
            for before in (b"", talk.request("/a.txt")):
                got = fate(WIRE, [data[:i], data[i:]], before=before)
                assert got == want, f"{name} split at {i}: {got}, wanted {want}"
    for i in daemon.share(range(1, len(data), 7)):
        assert fate(USER, [data[:i], data[i:]]) == want, f"{name} split at {i} without wire"


def t_get_split_at_every_byte():
    split_everywhere("get")


def t_long_get_split_at_every_byte():
    split_everywhere("long")


def t_conditional_get_split_at_every_byte():
    split_everywhere("conditional")


def t_missing_split_at_every_byte():
    split_everywhere("missing")


def t_post_split_at_every_byte():
    split_everywhere("post")


def t_two_requests_split_at_every_byte():
    split_everywhere("two")


def t_get_byte_by_byte():
    for name, data in REQUESTS.items():
        want = compare(name, [data])
        for port in (WIRE, USER):
            assert fate(port, [data[i:i + 1] for i in range(len(data))]) == want, name


def t_pieces_of_two_connections():
    """A request of another connection in between does not influence the answer."""
    data = talk.request("/b.txt", "Cookie: " + "c" * 100)
    for port in (WIRE, USER):
        for i in daemon.share(range(1, len(data))):
            with connect(port) as c, connect(port) as other:
                c.send(data[:i])
                c.acked()
                # for the daemon's own parser, whatever is cached
                r = other.get("/%61.txt")
                assert r.body == b"a text\n", r
                c.send(data[i:])
                r = c.response()
                assert (r.status, r.body) == (200, b"B" * 900), f"split at {i}: {r}"


def t_idle():
    """A connection that is idle within a request, for longer than wire waits for anything."""
    data = talk.request("/b.txt", "Cookie: " + "c" * 100)
    for port in (WIRE, USER):
        for before in (b"", talk.request("/a.txt")):
            with connect(port) as c:
                if before:
                    c.send(before)
                    c.response()
                c.send(data[:30])
                c.acked()
                time.sleep(IDLE_S)
                c.send(data[30:])
                r = c.response()
                assert (r.status, r.body) == (200, b"B" * 900), r
                time.sleep(IDLE_S)
                c.send(data)
                r = c.response()
                assert r.body == b"B" * 900 and (r.tier == daemon.FAST) == (port == WIRE), r


def t_first_piece_answers_nothing():
    """A request that could be two: wire must not answer the first line alone."""
    for tail in (b"\r\n", b"\n", b"", b"X: y\r\n\r\n", b"\r\n\r\n"):
        compare(repr(tail), [b"GET /a.txt HTTP/1.1\r\nHost: a\r\n", tail or b"\r\n"])


# Whatever a fast path could take for a whole request, or for part of one
SHAPES = {
    "bare lf": b"GET /a.txt HTTP/1.1\nHost: a\n\n",
    "lf in the head": b"GET /a.txt HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "cr alone": b"GET /a.txt HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
    "fold": b"GET /a.txt HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n",
    "space before colon": b"GET /a.txt HTTP/1.1\r\nHost : a\r\n\r\n",
    "no host": b"GET /a.txt HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "empty host": b"GET /a.txt HTTP/1.1\r\nHost:\r\n\r\n",
    "nul": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
    "nul in path": b"GET /a\0.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab in request line": b"GET\t/a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces": b"GET  /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /a.txt\r\n\r\n",
    "HTTP/1.2": b"GET /a.txt HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET /a.txt HTTP/2.0\r\nHost: a\r\n\r\n",
    "http/1.1": b"GET /a.txt http/1.1\r\nHost: a\r\n\r\n",
    "lower case method": b"get /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "absolute": b"GET http://a/a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "absolute, other host": b"GET http://b/a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "asterisk": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "no slash": b"GET a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "fragment": b"GET /a.txt#x HTTP/1.1\r\nHost: a\r\n\r\n",
    "dots": b"GET /x/../a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "two slashes": b"GET //a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "percent": b"GET /%61.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "bad percent": b"GET /%6 HTTP/1.1\r\nHost: a\r\n\r\n",
    "percent nul": b"GET /a.txt%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "high byte": b"GET /a.txt\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "length 0": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "length with body": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
    "length hides a request": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                              % len(PROBE) + PROBE,
    "length in odd case": b"GET /a.txt HTTP/1.1\r\nHost: a\r\ncOnTeNt-LeNgTh: 3\r\n\r\nabc",
    "two lengths": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                   b"Content-Length: 5\r\n\r\nabcde",
    "length and chunked": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"3\r\nabc\r\n0\r\n\r\n",
    "chunked, not quite": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "coding with a tab": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n"
                         b"0\r\n\r\n",
    "upgrade": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "expect": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
    "range": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n",
    "close": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "close among others": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
    "keep-alive": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    "1.0": b"GET /a.txt HTTP/1.0\r\n\r\n",
    "1.0 keep-alive": b"GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "bytes behind": b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nX",
    "crlf behind": b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n\r\n",
    "crlf before": b"\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "long path": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "long field": b"GET /a.txt HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 30000 + b"\r\n\r\n",
    "many fields": b"GET /a.txt HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 4000 + b"\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "h2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "connect": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "trace": b"TRACE /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
}


def t_shapes_have_the_same_fate():
    failures, shapes = [], daemon.share(list(SHAPES.items()))
    for name, data in shapes:
        try:
            compare(name, [data])
            half = len(data) // 2
            compare(f"{name} in two pieces", [data[:half], data[half:]])
            compare(f"{name}, last byte late", [data[:-1], data[-1:]])
        except AssertionError as why:
            failures.append(str(why)[:1500])
    for line in failures:
        ktap.note(line)
    assert not failures, f"{len(failures)} of {len(shapes)}"


def t_corpus_has_the_same_fate():
    # each test kernel has all of it in nine turns
    failures, cases, rng = [], daemon.share(corpus.read(), 9), random.Random(1)
    with connect(USER) as c:
        etag = c.get("/").fields["ETag"]
    for case in cases:
        try:
            data = case.bytes(etag)
            want = compare(case.name, [data], case.heads())
            ways = ((WIRE, b""), (WIRE, talk.request("/a.txt")), (USER, b""))
            for port, before in ways[:2] if daemon.IN_VM else ways:
                pieces = corpus.pieces(data, rng, most=4)
                got = fate(port, pieces, case.heads(), before)
                assert got == want, f"{case}: in pieces {pieces}: {got}, wanted {want}"
        except AssertionError as why:
            failures.append(str(why)[:1500])
    for line in failures:
        ktap.note(line)
    assert not failures, f"{len(failures)} of {len(cases)}"


def t_wire_still_answers():
    with connect(WIRE) as c:
        assert c.get("/a.txt").tier == daemon.FAST
    c = talk.counts(wire)
    assert c["SPLIT"] and c["PIPELINED"] and talk.hits(wire), c
    # without a socket, wire itself repeats what a slow machine acknowledges late
    assert (daemon.LATE or not c["REPEAT"]) and not c["CSUM"], c


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
