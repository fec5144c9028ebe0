#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One fetch for many requests for the same response, and its end when they leave."""
import concurrent.futures
import contextlib
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from origin import ask, reply  # noqa: E402
from proxied import path, proxy, sleep_to_stale  # noqa: E402

LOST_S = 4          # 15 in the product
d = o = None


def begin():
    global d, o
    o = origin.Origin()
    with daemon.shortened(f"fetch-lost={LOST_S}s"):
        d = proxy(o.url, workers=2, options=("--memory", "256M")).start()


def end():
    d.stop()
    o.close()


def fetched(p):
    return len(o.seen(p))


def t_many_requests_make_one_fetch():
    p, go = path(), threading.Event()
    answer = reply(200, b"x" * 50000, "Cache-Control: max-age=60")

    def slow(c, r):
        go.wait(20)
        c.send(answer)

    o.on(p, slow)
    got, threads = [], []
    for _ in range(24):
        t = threading.Thread(target=lambda: got.append(ask(d.address, "GET", p)))
        t.start()
        threads.append(t)
    o.wait(p)
    sleep_to_stale(0.5)         # for the others to arrive: later ones would only be hits
    go.set()
    for t in threads:
        t.join()
    assert len(got) == 24 and all(r.body == b"x" * 50000 for r in got)
    assert fetched(p) == 1, f"{fetched(p)} fetches"
    collapsed = [r.cache for r in got if "collapsed" in r.cache]
    assert collapsed and all("fwd=uri-miss" in c for c in collapsed), collapsed


def t_many_conditional_requests_make_one_fetch():
    """Each is answered by its own condition, the first of them while the body still comes."""
    p, go = path(), threading.Event()
    head, body = reply(200, b"x" * 50000, "Cache-Control: max-age=60",
                       'ETag: "a"').split(b"\r\n\r\n")

    def slow(c, r):
        c.send(head + b"\r\n\r\n")
        go.wait(client.WAIT_S)
        c.send(body)

    o.on(p, slow)
    assert ask(d.address, "GET", p, 'If-None-Match: "a"').status == 304
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        got = [pool.submit(ask, d.address, "GET", p, f'If-None-Match: "{tag}"')
               for tag in "ab" * 10]
        sleep_to_stale(0.3)     # for them to arrive: later ones would only be hits
        go.set()
        got = [f.result() for f in got]
    assert [r.status for r in got] == [304, 200] * 10 and all(r.body in (b"", body) for r in got), \
           got
    assert fetched(p) == 1 and o.seen(p)[0].field("If-None-Match") is None, o.seen(p)[0].head
    assert any("collapsed" in r.cache for r in got), got


def t_head_and_ranges_wait_for_a_fetch_of_the_whole():
    p, go = path(), threading.Event()

    def slow(c, r):
        go.wait(client.WAIT_S)
        c.send(reply(200, b"0123456789", "Cache-Control: max-age=60", 'ETag: "a"'))

    o.on(p, slow)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        whole = pool.submit(ask, d.address, "GET", p)
        o.wait(p)
        heads = [pool.submit(ask, d.address, "HEAD", p) for _ in range(4)]
        parts = [pool.submit(ask, d.address, "GET", p, f"Range: bytes={i}-5") for i in range(4)]
        sleep_to_stale(0.3)     # for them to arrive: later ones would only be hits
        go.set()
        heads, parts = ([f.result() for f in some] for some in (heads, parts))
        assert whole.result().body == b"0123456789", whole.result()
    assert fetched(p) == 1, [r.method for r in o.seen(p)]
    assert all(r.status == 200 and r.field("Content-Length") == "10" for r in heads), heads
    assert [(r.status, r.body) for r in parts] == [(206, b"012345"[i:]) for i in range(4)], parts
    assert any("collapsed" in r.cache for r in heads + parts), heads + parts


def t_head_and_ranges_do_not_wait_long_for_more_than_they_ask_for():
    for what in (("HEAD",), ("GET", "Range: bytes=0-3")):
        p, go = path(), threading.Event()

        def slow(c, r, go=go):
            if r.method == "GET" and not r.field("Range"):
                go.wait(client.WAIT_S)
            c.send(reply(200, b"" if r.method == "HEAD" else b"whole", "Cache-Control: max-age=60"))

        o.on(p, slow)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            whole = pool.submit(ask, d.address, "GET", p)
            o.wait(p)
            r = ask(d.address, what[0], p, *what[1:])
            assert r.status == 200 and not go.is_set() and not whole.done(), r
            go.set()
            assert whole.result().body == b"whole", whole.result()
        assert fetched(p) == 2, fetched(p)


def t_head_and_ranges_have_nobody_wait():
    for what in (("HEAD",), ("GET", "Range: bytes=0-3")):
        p, go = path(), threading.Event()

        def slow(c, r, go=go):
            if r.method == "HEAD" or r.field("Range"):
                go.wait(client.WAIT_S)
            c.send(reply(200, b"" if r.method == "HEAD" else b"whole"))

        o.on(p, slow)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            less = pool.submit(ask, d.address, what[0], p, *what[1:])
            o.wait(p)
            r = ask(d.address, "GET", p)
            assert r.body == b"whole" and not less.done(), r
            go.set()
            assert less.result().status == 200, less.result()


def t_a_slow_fetch_stays_the_only_one():
    """Other requests wait as long as it makes progress, from the first to the last byte."""
    head, body, ended = path(), path(), threading.Event()

    def late(c, r):
        if not ended.wait(LOST_S + 2):
            c.send(reply(200, b"late", "Cache-Control: max-age=60"))

    def drips(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nCache-Control: max-age=60\r\n\r\n")
        for _ in range(12):
            if not ended.wait((LOST_S + 2) / 12):
                c.send(b"x")

    o.on(head, late)
    o.on(body, drips)
    got, threads = [], []
    for i in range(16):
        p = (head, body)[i % 2]
        threads.append(threading.Thread(target=lambda p=p: got.append(ask(d.address, "GET", p))))
        threads[-1].start()
    for t in threads:
        t.join()
    ended.set()
    assert sorted(r.body for r in got) == [b"late"] * 8 + [b"x" * 12] * 8, got
    assert fetched(head) == fetched(body) == 1, (fetched(head), fetched(body))


def t_many_requests_make_one_validation():
    p, go = path(), threading.Event()

    def slow(c, r):
        go.wait(20)
        c.send(reply(304, b"", 'ETag: "1"', "Cache-Control: max-age=60"))

    o.on(p, reply(200, b"x", 'ETag: "1"', "Cache-Control: max-age=1", "Age: 5"), slow)
    ask(d.address, "GET", p)
    got = []
    threads = [threading.Thread(target=lambda: got.append(ask(d.address, "GET", p)))
               for _ in range(16)]
    for t in threads:
        t.start()
    o.wait(p, 2)
    sleep_to_stale(0.3)         # for the others to arrive
    go.set()
    for t in threads:
        t.join()
    assert [r.body for r in got] == [b"x"] * 16 and fetched(p) == 2, (got, fetched(p))
    assert sum("fwd=stale" in r.cache and "fwd-status=304" in r.cache for r in got) == 1, \
           [r.cache for r in got]


def t_one_error_is_hidden_from_many_requests():
    """By what the response allows."""
    for told, *asked in (("stale-if-error=60",),):
        p, go = path(), threading.Event()

        def slow(c, r, go=go):
            go.wait(20)
            c.send(reply(503, b"bad"))

        def run(p=p, asked=asked):
            return ask(d.address, "GET", p, *asked)

        o.on(p, reply(200, b"old", 'ETag: "1"', f"Cache-Control: max-age=1, {told}", "Age: 5"),
             slow)
        run()
        with concurrent.futures.ThreadPoolExecutor(16) as many:
            answers = [many.submit(run) for _ in range(16)]
            o.wait(p, 2)
            sleep_to_stale(0.3)         # for the others to arrive
            go.set()
        got = [x.result() for x in answers]
        assert [r.body for r in got] == [b"old"] * 16 and fetched(p) == 2, (got, fetched(p))
        assert sum("fwd=stale" in r.cache and "collapsed" in r.cache for r in got) == 15, \
               [r.cache for r in got]


def t_those_who_wait_for_what_is_not_stored_fetch_themselves():
    """Or what is stored for the time of an error, or to be validated, and is nobody's answer until
    then."""
    for fields in (["private"], ["max-age=0, stale-if-error=600"],
                   ["max-age=0, must-revalidate", 'ETag: "a"'],
                   ["max-age=0, proxy-revalidate", 'ETag: "a"'], ["s-maxage=0", 'ETag: "a"'],
                   ["max-age=0", 'ETag: "a"', "Set-Cookie: a=b"], ["max-age=0", 'ETag: "a"'],
                   ["public", 'ETag: "a"'],
                   ["public", 'ETag: "a"', "Expires: 0"], ["max-age=60", "Set-Cookie: a=b"]):
        fetch_themselves("Cache-Control: " + fields[0], *fields[1:])


def fetch_themselves(*fields):
    p, go = path(), threading.Event()

    def private(c, r):
        go.wait(20)
        c.send(reply(200, b"for %s" % r.field("Cookie").encode(), *fields))

    o.on(p, private)
    got = {}
    threads = []
    for i in range(8):
        def run(i=i):
            got[i] = ask(d.address, "GET", p, f"Cookie: {i}")
        threads.append(threading.Thread(target=run))
        threads[-1].start()
    o.wait(p)
    sleep_to_stale(0.3)         # for the others to arrive
    go.set()
    for t in threads:
        t.join()
    assert all(got[i].body == b"for %d" % i for i in range(8)), (fields, got)
    assert fetched(p) == 8, fields


def t_leader_that_leaves_does_not_take_the_others_with_it():
    p, go = path(), threading.Event()

    def slow(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nCache-Control: max-age=60\r\n\r\nabc")
        go.wait(20)
        c.send(b"def")

    o.on(p, slow)
    leader = origin.Client(d.address)
    leader.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    o.wait(p)
    leader.head()
    got = []
    t = threading.Thread(target=lambda: got.append(ask(d.address, "GET", p)))
    t.start()
    sleep_to_stale(0.4)         # it waits by now
    leader.s.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")     # SO_LINGER: close is a reset
    leader.close()
    go.set()
    t.join()
    assert got[0].body == b"abcdef" and fetched(p) == 1, (got, fetched(p))


def t_fetch_that_nobody_waits_for_any_more_ends():
    p = path()
    o.on(p, origin.drips("Cache-Control: max-age=60"))
    with contextlib.ExitStack() as stack:
        leader = stack.enter_context(origin.Client(d.address))
        leader.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        leader.head()
        for _ in range(3):
            c = stack.enter_context(origin.Client(d.address))
            c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        sleep_to_stale(0.4)     # they wait by now
    o.wait_end(p)
    assert fetched(p) == 1


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
