#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Upstreams that misbehave: the answer to the client, storing, and reuse of connections."""
import contextlib
import functools
import itertools
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
from origin import END, ask, reply, then_closes  # noqa: E402

CACHED = b"Cache-Control: max-age=60\r\n"
STALE = "Cache-Control: max-age=0, stale-if-error=60", 'ETag: "a"'
d = o = None
_names = itertools.count()


def begin():
    global d, o
    o = origin.Origin()
    d = daemon.Daemon("--upstream", o.url, *daemon.USER, "--workers", "1",
                      "--first-byte-timeout", "1500ms", "--upstream-idle-timeout", "1500ms").start()


@contextlib.contextmanager
def alone():
    """An origin and a daemon of its own: a second response makes it wary for a while."""
    global d, o
    before = d, o
    begin()
    try:
        yield
    finally:
        end()
        d, o = before


def is_alone(test):
    @functools.wraps(test)
    def run():
        with alone():
            test()
    return run


def end():
    d.stop()
    o.close()


def path():
    return f"/b-{next(_names)}"


def good_after(p, body=b"good"):
    """The next request for it is answered by the origin, and rightly."""
    o.on(p, reply(200, body))
    r = ask(d.address, "GET", p)
    assert r.status == 200 and r.body == body and not r.hit, r


MALFORMED = [
    b"garbage\r\n\r\n", b"\r\n\r\n", b"\0\0\0\0", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 \r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n", b"HTTP/0.9 200 OK\r\n\r\n", b"http/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 099 OK\r\n\r\n",
    b"HTTP/1.1 600 OK\r\n\r\n", b"HTTP/1.1 999 OK\r\n\r\n", b"HTTP/1.1  200 OK\r\n\r\n",
    b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/1.1 200\tOK\r\n\r\n", b"HTTP/1.1 200 O\0K\r\n\r\n",
    b"<html>HTTP/1.1 200 OK\r\n\r\n",
]

FIELDS = [
    b"Content-Length: 4\r\nContent-Length: 5\r\n", b"Content-Length: 4, 5\r\n",
    b"Content-Length: +4\r\n", b"Content-Length: -1\r\n", b"Content-Length: 4 4\r\n",
    b"Content-Length: 0x4\r\n", b"Content-Length: 4a\r\n", b"Content-Length: \r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 4,\r\n",
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    b"Transfer-Encoding: gzip\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: \r\n", b"Transfer-Encoding: identity\r\n",
    b"Content-Length : 4\r\nContent-Length: 5\r\n", b"Content-Length\r\n", b": x\r\n",
    b"X Y: z\r\n", b"X: a\r\n folded: b\r\n", b" Content-Length: 4\r\n", b"X: a\0b\r\n",
    b"X: a\rb\r\n", b"X: a\x01b\r\n", b"X\x80: a\r\n",
]


def t_malformed_heads_are_502_and_not_stored():
    wrong = []
    for data in MALFORMED + [b"HTTP/1.1 200 OK\r\n" + CACHED + f + b"\r\nbody" for f in FIELDS] + \
            [b"HTTP/1.0 200 OK\r\n" + CACHED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]:
        p = path()
        o.on(p, then_closes(data))
        r = ask(d.address, "GET", p)
        if r.status != 502:
            wrong.append(f"{data!r}: {r}")
        good_after(p)
    assert not wrong, "\n".join(wrong)


def t_tolerated_heads():
    for data in (b"HTTP/1.1 200\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.0 200 OK\r\n",
                 b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n", b"HTTP/1.1 200 OK\n",
                 b"HTTP/1.1 200 \xe4\xf6\r\nX: \xe4\r\n"):
        p = path()
        o.on(p, then_closes(data + b"Content-Length: 4\r\n\r\nbody"))
        r = ask(d.address, "GET", p)
        assert r.status == 200 and r.body == b"body", (data, r)


def t_blanks_before_a_colon_are_left_out():
    p = path()
    o.on(p, b"HTTP/1.1 200 OK\r\nX-A : b\r\nCache-Control\t : max-age=60\r\n"
         b"Content-Length : 2\r\n\r\nok")
    for hit in (False, True):
        r = ask(d.address, "GET", p)
        assert r.field("X-A") == "b" and r.body == b"ok" and r.hit == hit, r


def t_oversized_head_is_502():
    for line in (b"X: " + b"a" * 100000 + b"\r\n", b"X: y\r\n" * 20000, b"a: b\r\n" * 300,
                 b"X" * 100000):
        p = path()
        o.on(p, then_closes(b"HTTP/1.1 200 OK\r\n" + CACHED + line + b"\r\n"))
        assert ask(d.address, "GET", p).status == 502
        good_after(p)


def t_closed_before_the_head_ends_is_502():
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for n in (0, 1, 8, 15, 17, len(whole) - 2, len(whole) - 1):
        p = path()
        o.on(p, then_closes(whole[:n]))
        assert ask(d.address, "GET", p).status == 502, n
        good_after(p)


def truncated(p):
    """The client must see that the answer is not whole."""
    try:
        r = ask(d.address, "GET", p)
    except (EOFError, ConnectionResetError, ValueError):
        return True
    return r.status == 502


def t_truncated_bodies_end_the_connection_and_are_not_stored():
    ok = b"HTTP/1.1 200 OK\r\n" + CACHED
    te = ok + b"Transfer-Encoding: chunked\r\n\r\n"
    for data in (ok + b"Content-Length: 10\r\n\r\nabc", ok + b"Content-Length: 100000\r\n\r\n",
                 ok + b"Content-Length: 999999999999\r\n\r\n" + b"x" * 100000,
                 te, te + b"3", te + b"3\r\n", te + b"3\r\nab", te + b"3\r\nabc\r\n",
                 te + b"3\r\nabc\r\n0\r\n", te + b"3\r\nabc\r\n0\r\nX: y\r\n"):
        p = path()
        o.on(p, then_closes(data))
        assert truncated(p), data[-40:]
        good_after(p)


def t_short_bodies_that_are_cut_off_are_502_or_stale():
    """Though the client could have been sent the beginning."""
    for length, piece in ((10, b"abc"), (1000, b""), (65536, b"x" * 65535)):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % length + CACHED + b"\r\n"

        def dies(c, r, head=head, piece=piece):
            c.send(head)
            c.send(piece)
            return END

        for method in ("GET", "POST"):
            p = path()
            o.on(p, dies)
            r = ask(d.address, method, p)
            assert r.status == 502 and "stored" not in r.cache, (method, length, r)
            good_after(p)
        p = path()
        o.on(p, reply(200, b"old", *STALE), dies)
        for _ in range(2):
            r = ask(d.address, "GET", p)
            assert r.status == 200 and r.body == b"old", (length, r)


def t_what_is_cut_off_does_not_make_the_stale_one_go():
    """Though what is not stored takes the place of none: it is no answer before its end."""
    old = reply(200, b"old", "Cache-Control: max-age=0, stale-if-error=60", 'ETag: "a"')
    for line in ("200 OK", "404 Not Found"):
        p = path()
        o.on(p, old, then_closes(f"HTTP/1.1 {line}\r\nCache-Control: no-store\r\n"
                                 "Content-Length: 100\r\n\r\nx".encode()))
        for _ in range(4):
            r = ask(d.address, "GET", p)
            assert r.status == 200 and r.body == b"old", (line, r)
        o.on(p, reply(404, b"gone", "Cache-Control: no-store"), origin.END)
        assert ask(d.address, "GET", p).body == b"gone"
        assert ask(d.address, "GET", p).status == 502, line


def t_short_bodies_that_take_their_time_go_as_they_come():
    p, go = path(), threading.Event()

    def slow(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        assert go.wait(20)
        c.send(b"world")

    o.on(p, slow)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        head = c.head()
        assert head.startswith(b"HTTP/1.1 200"), head
        while len(c.got) < 5:
            assert c._more()        # pylint: disable=protected-access
        assert c.got == b"hello", c.got
        go.set()
        while len(c.got) < 10:
            assert c._more()        # pylint: disable=protected-access
        assert c.got == b"helloworld", c.got


def t_wrong_chunks_end_the_connection_and_are_not_stored():
    te = b"HTTP/1.1 200 OK\r\n" + CACHED + b"Transfer-Encoding: chunked\r\n\r\n"
    for tail in (b"x\r\n", b"\r\n", b"-1\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"3 \n abc",
                 b"3\nabc\r\n",
                 b"3\r\nabcd\r\n0\r\n\r\n", b"3\r\nabc0\r\n\r\n", b"ffffffffffffffff\r\n",
                 b"10000000000000000\r\nx", b"3;\0\r\nabc\r\n",
                 b"3\r\nabc\r\n0\r\nnot a field\r\n\r\n",
                 b"3\r\nabc\r\n0\r\n X: y\r\n\r\n", b"3;" + b"a" * 10000 + b"\r\n",
                 b"0\r\n" + b"X: y\r\n" * 2000 + b"\r\n", b"+3\r\nabc\r\n0\r\n\r\n"):
        p = path()
        o.on(p, then_closes(te + tail))
        assert truncated(p), tail[:40]
        good_after(p)


def t_wrong_bodies_that_come_with_the_head_are_502_or_stale():
    te = b"HTTP/1.1 200 OK\r\n" + CACHED + b"Transfer-Encoding: chunked\r\n\r\n"
    for tail in (b"xyz\r\n", b"1\r\naX0\r\n\r\n", b"3\r\nabc\r\nx\r\n"):
        for method in ("GET", "POST"):
            p = path()
            o.on(p, te + tail)
            r = ask(d.address, method, p)
            assert r.status == 502 and "stored" not in r.cache, (tail, r)
            good_after(p)
        p = path()
        o.on(p, reply(200, b"old", *STALE), te + tail)
        for _ in range(2):
            r = ask(d.address, "GET", p)
            assert r.status == 200 and r.body == b"old", (tail, r)
        assert "fwd=stale" in r.cache and not r.hit, r
        good_after(p)
    p = path()
    o.on(p, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + te + b"xyz\r\n")
    with origin.Client(d.address) as c:
        assert c.request("GET", p).status == 103
        assert c.answer().status == 502


def t_close_delimited_reset_is_not_taken_for_an_end():
    def reset(c, r):
        c.send(b"HTTP/1.1 200 OK\r\n" + CACHED + b"\r\nhalf")
        time.sleep(0.2)             # the reset must not overtake the bytes
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return END

    p = path()
    o.on(p, reset)
    assert truncated(p)
    good_after(p)


@is_alone
def t_smuggled_second_response_never_reaches_another_client():
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + CACHED + b"\r\nevil"
    first = [reply(200, b"first") + evil, reply(204, b"") + evil, reply(304, b"") + evil,
             b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + evil,
             reply(200, b"first") + b"\r\n",
             reply(204, b"").replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\n") + evil]
    for data in first:
        p, q = path(), path()
        o.on(p, data)
        o.on(q, reply(200, b"right"))
        ask(d.address, "GET", p)
        for _ in range(3):
            assert ask(d.address, "GET", q).body == b"right", data
        used = {r.connection for r in o.seen(p)}
        assert not used & {r.connection for r in o.seen(q)}, "the connection was used again"


@is_alone
def t_what_a_second_response_comes_with_is_not_stored():
    ok = b"HTTP/1.1 200 OK\r\n" + CACHED
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    for data in (ok + b"Content-Length: 4\r\n\r\nbody", ok + b"Content-Length: 0\r\n\r\n",
                 ok + b"Content-Length: 4\r\n\r\nbody\r\n",
                 ok + b"Content-Length: 4\r\n\r\nbody\n\r\n",
                 ok + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
                 ok.replace(b"200", b"204") + b"\r\n", ok.replace(b"200", b"304") + b"\r\n",
                 ok.replace(b"200", b"204") + b"Content-Length: 0\r\n\r\n"):
        p = path()
        o.on(p, data + evil)
        r = ask(d.address, "GET", p)
        assert r.status == 502 and b"body" not in r.body, (data, r)
        good_after(p)


@is_alone
def t_a_second_response_behind_a_304_is_not_believed():
    evil = b"HTTP/1.1 304 No\r\n" + CACHED + b'ETag: "a"\r\n\r\n'
    for behind_it, statuses in ((reply(200, b"evil"), (502, 504)), (b"junk", (200,))):
        p = path()
        o.on(p, reply(200, b"old", "Cache-Control: max-age=0, must-revalidate", 'ETag: "a"'),
             evil + behind_it, reply(200, b"good"))
        assert ask(d.address, "GET", p).body == b"old"
        r = ask(d.address, "GET", p)
        assert r.status in statuses and (r.status != 200 or r.body == b"old"), (behind_it, r)
        r = ask(d.address, "GET", p)
        assert r.body == b"good" and not r.hit, (behind_it, r)


def t_204_with_a_body_is_502():
    for fields, tail in ((b"Content-Length: 4\r\n", b"EVIL"), (b"Content-Length: 4\r\n", b""),
                         (b"Transfer-Encoding: chunked\r\n", b"4\r\nEVIL\r\n0\r\n\r\n"),
                         (b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n")):
        p = path()
        o.on(p, b"HTTP/1.1 204 No\r\n" + CACHED + fields + b"\r\n" + tail)
        r = ask(d.address, "GET", p)
        assert r.status == 502 and b"EVIL" not in r.body, (fields, tail, r)
        good_after(p)
    p = path()
    o.on(p, b"HTTP/1.1 204 No\r\n" + CACHED + b"Content-Length: 0\r\n\r\n")
    for hit in (False, True):
        r = ask(d.address, "GET", p)
        assert r.status == 204 and r.hit == hit, r


def t_what_is_longer_than_its_length_is_cut_to_it():
    p, q = path(), path()
    o.on(p, b"HTTP/1.1 200 OK\r\n" + CACHED + b"Content-Length: 4\r\n\r\nbody and more")
    o.on(q, reply(200, b"right"))
    for _ in range(2):
        r = ask(d.address, "GET", p)
        assert r.status == 200 and r.body == b"body" and not r.hit, r
        assert ask(d.address, "GET", q).body == b"right"
    assert o.seen(p)[0].connection != o.seen(q)[0].connection


def t_what_anything_is_behind_is_not_stored():
    te = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    for data in (b"200 OK\r\n" + CACHED + b"Content-Length: 1\r\n\r\na",
                 b"200 OK\r\n" + CACHED + te,
                 b"204 No\r\n" + CACHED + b"\r\n"):
        for junk in (b"JUNK", b"\r\n", b"\0"):
            p = path()
            o.on(p, b"HTTP/1.1 " + data + junk)
            r = ask(d.address, "GET", p)
            assert r.status in (200, 204) and r.body in (b"", b"a"), (data, r)
            good_after(p)


@is_alone
def t_bytes_on_an_idle_connection_end_it():
    p, go, sent = path(), threading.Event(), threading.Event()

    def later(c, r):
        c.send(reply(200, b"one"))
        go.wait(20)
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        sent.set()

    o.on(p, later, reply(200, b"two"))
    assert ask(d.address, "GET", p).body == b"one"
    go.set()
    sent.wait(20)
    o.wait_end(p)
    r = ask(d.address, "GET", p)
    assert r.body == b"two", r
    one, two = o.seen(p)
    assert one.connection != two.connection


def t_what_a_late_second_response_was_stored_as_goes():
    """Behind the next request it looks like the answer; when that comes too, it is known.

    That comes by itself, or with the answer to one more request.
    """
    for behind_another in (False, True):
        with alone():
            p, q, z, go = path(), path(), path(), threading.Event()
            o.on(p, reply(200, b"one"))

            def late_one(c, r, alone_=not behind_another, go=go):
                c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + CACHED + b"\r\nevil")
                if alone_:
                    go.wait(20)
                    c.send(reply(200, b"right"))

            o.on(q, late_one, reply(200, b"right"))
            o.on(z, reply(200, b"right") + reply(200, b"another"))
            assert ask(d.address, "GET", p).body == b"one"
            assert ask(d.address, "GET", q).body == b"evil"
            assert ask(d.address, "GET", q).hit
            if behind_another:
                assert ask(d.address, "GET", z).status == 502
            go.set()
            o.wait_end(q)
            client.until(lambda q=q: ask(d.address, "GET", q).body == b"right", "it is still there")
            client.logs(d, "its body does not match its head" if behind_another else
                        "sent data without a request")


def late(method, evil, first):
    """What a client gets that asks while the idle connection ends, or says more.

    The daemon sees both at once, as it does under load; first: the client's
    request has come before that.
    """
    p, q, go, sent = path(), path(), threading.Event(), threading.Event()

    def later(c, r):
        c.send(reply(200, b"one"))
        assert go.wait(20)
        if evil:
            c.send(evil)
        else:
            c.s.shutdown(socket.SHUT_RDWR)
        sent.set()

    o.on(p, later)
    o.on(q, reply(200, b"right"))
    assert ask(d.address, "GET", p).body == b"one"
    with origin.Client(d.address) as c:
        with daemon.stopped(d.pid):
            for step in (0, 1) if first else (1, 0):
                if step:
                    go.set()
                    assert sent.wait(20)
                else:
                    c.send(f"{method} {q} HTTP/1.1\r\nHost: test\r\n"
                           "Content-Length: 0\r\n\r\n".encode())
        r = c.answer()
    assert len(o.seen(q)) == 1 and o.seen(q)[0].connection != o.seen(p)[0].connection
    return r


def t_what_comes_before_a_request_does_not_answer_it():
    for method in ("GET", "PUT", "POST"):
        for evil in (b"", reply(200, b"evil"), b"HTTP/1.1 200 OK\r\nContent-"):
            for first in (False, True):
                with alone():
                    r = late(method, evil, first)
                assert r.status == 200 and r.body == b"right", (method, evil, first, r)


def kept():
    """Whether a connection is used again."""
    p = path()
    o.on(p, reply(200, b"one"))
    for _ in range(2):
        assert ask(d.address, "GET", p).body == b"one"
    one, two = o.seen(p)
    return one.connection == two.connection


def on_idle(text):
    p, go = path(), threading.Event()

    def later(c, r):
        c.send(reply(200, b"one"))
        go.wait(20)
        c.send(text)
        client.acked(c.s)
        return END

    o.on(p, later, reply(200, b"two"))
    assert ask(d.address, "GET", p).body == b"one"
    go.set()
    o.wait_end(p)
    assert ask(d.address, "GET", p).body == b"two"  # the daemon has seen it by then


def behind(text):
    p = path()
    o.on(p, text)
    ask(d.address, "GET", p)


def t_who_has_sent_a_second_response_is_asked_on_connections_that_are_not_kept():
    evil = reply(200, b"evil")
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    for how, text in ((on_idle, evil), (on_idle, b"evil"), (behind, reply(200, b"one") + evil),
                      (behind, b"HTTP/1.1 204 No\r\n\r\n" + evil), (behind, chunked + evil)):
        with alone():
            assert kept()
            how(text)
            assert not kept(), (how, text)


def t_who_ends_idle_connections_by_408_is_kept():
    with alone():
        on_idle(reply(408, b"", "Connection: close"))
        assert kept()


def t_head_with_a_body_is_not_read_as_a_response():
    p, q = path(), path()
    o.on(p, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    o.on(q, reply(200, b"right"))
    r = ask(d.address, "HEAD", p)
    assert r.field("Content-Length") == "4", r
    assert ask(d.address, "GET", q).body == b"right"


def t_endless_head_drip_is_504():
    def drip(c, r):
        while True:
            c.send(b"HTTP/1.1 200 OK\r\n"[:9] if not drip.nr else b"X")
            drip.nr += 1
            time.sleep(0.05)

    drip.nr = 0
    p = path()
    o.on(p, drip)
    start = time.monotonic()
    r = ask(d.address, "GET", p)
    assert r.status in (502, 504) and time.monotonic() - start < 10, r


def t_silence_is_504():
    p = path()
    o.on(p, lambda c, r: time.sleep(4))
    assert ask(d.address, "GET", p).status == 504


def t_silence_within_a_body_ends_it():
    p = path()

    def stall(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + CACHED + b"\r\nabc")
        time.sleep(4)
        return END

    o.on(p, stall)
    assert truncated(p)
    good_after(p)


def t_slow_bodies_byte_by_byte_arrive():
    p = path()
    whole = reply(200, b"slow body", "Cache-Control: max-age=60")

    def slow(c, r):
        for i in range(len(whole)):
            c.send(whole[i:i + 1])

    o.on(p, slow)
    assert ask(d.address, "GET", p).body == b"slow body"
    assert ask(d.address, "GET", p).hit


def t_endless_interim_responses_are_502():
    p = path()

    def endless(c, r):
        while True:
            c.send(b"HTTP/1.1 102 Processing\r\n\r\n")

    o.on(p, endless)
    with origin.Client(d.address) as c:
        r = c.request("GET", p)
        nr = 0
        while r.status == 102 and nr < 1000:
            r, nr = c.answer(), nr + 1
    assert r.status == 502 and nr < 100, (r, nr)


def t_101_to_another_protocol_is_502():
    for says in (b"Upgrade: other\r\n", b"", b"Upgrade: websocket, other\r\n"):
        p = path()
        o.on(p, b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n" + says + b"\r\n")
        r = ask(d.address, "GET", p, "Connection: upgrade", "Upgrade: websocket")
        assert r.status == 502 and r.field("Upgrade") is None, (says, r)


def t_unasked_101_is_502():
    p = path()
    o.on(p, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    assert ask(d.address, "GET", p).status == 502


def t_endless_body_of_a_storable_answer_is_not_kept():
    p, stop = path(), threading.Event()

    def endless(c, r):
        c.send(b"HTTP/1.1 200 OK\r\n" + CACHED + b"Transfer-Encoding: chunked\r\n\r\n")
        while not stop.is_set():
            c.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    o.on(p, endless)
    got = 0
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        c.head()
        while got < 200 << 20:
            got += len(c.s.recv(1 << 20))
    stop.set()
    assert daemon.own_kb(d.pid) < 112 << 10, daemon.own_kb(d.pid)
    good_after(p)
    # once it has turned out so, nobody is there who would take it
    p = path()
    stop.clear()
    o.on(p, endless)
    assert ask(d.address, "GET", p, "If-None-Match: *").status == 304
    o.wait_end(p)
    assert daemon.own_kb(d.pid) < 112 << 10, daemon.own_kb(d.pid)


def t_vary_of_countless_names_is_never_matched():
    """Each would be a copy of the request's field."""
    p = path()
    o.on(p, reply(200, b"x", "Vary: " + "Foo," * 3000, "Cache-Control: max-age=60"))
    for _ in range(2):
        r = ask(d.address, "GET", p, "Foo: " + "a" * 10000)
        assert r.status == 200 and not r.hit and "stored" not in r.cache, r
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        peak = next(int(x.split()[1]) for x in f if x.startswith("VmHWM"))
    assert peak < 200 << 10, f"{peak} kB at the most"


def t_waiters_of_a_fetch_that_dies_are_answered():
    p, go = path(), threading.Event()

    def dies(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + CACHED + b"\r\nhalf")
        go.wait(20)
        return END

    o.on(p, dies)
    got, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: got.append(truncated(p))))
        threads[-1].start()
    o.wait(p)
    go.set()
    for t in threads:
        t.join()
    assert got == [True] * 8, got
    good_after(p)


def t_head_asks_itself_when_the_whole_dies():
    p, go = path(), threading.Event()

    def dies(c, r):
        if r.method == "HEAD":
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + CACHED + b"\r\n")
            return None
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + CACHED + b"\r\nhalf")
        go.wait(20)
        return END

    o.on(p, dies)
    got = []
    whole = threading.Thread(target=lambda: got.append(truncated(p)))
    whole.start()
    o.wait(p)
    head = threading.Thread(target=lambda: got.append(ask(d.address, "HEAD", p).status))
    head.start()
    time.sleep(0.3)             # for it to wait: one that comes later asks anyway
    go.set()
    whole.join()
    head.join()
    assert sorted(got) == [True, 200], got


def t_nothing_is_left_behind():
    """After all of the above: no connection and no descriptor but the pool's."""
    o.on("/end", reply(200, b"x", "Connection: close"))
    for _ in range(20):
        assert ask(d.address, "GET", "/end").status == 200
    for _ in range(200):        # the daemon closes at its own pace
        fds = len(os.listdir(f"/proc/{d.pid}/fd"))
        if fds < 64:
            break
        time.sleep(0.05)
    assert fds < 64, f"{fds} descriptors are open"
    assert d.process.poll() is None


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
