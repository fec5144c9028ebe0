#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The shared cache of RFC 9111 in cases in which threads, time or a broken origin are part of
the rule. What can be told as requests in turn is in t_rules9111.py.
"""
import contextlib
import json
import os
import random
import re
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
from origin import ask, reply  # noqa: E402
from proxied import path, proxy, sleep_to_stale  # noqa: E402

d = o = None


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url, workers=2, options=("--memory", "256M")).start()


def end():
    d.stop()
    o.close()


def fetched(p):
    return len(o.seen(p))


def t_query_and_host_are_part_of_the_key():
    p = path()
    for q in ("?a=1", "?a=2", ""):
        o.on(p + q, reply(200, b"x" + q.encode(), "Cache-Control: max-age=60"))
    for _ in range(2):
        for q in ("?a=1", "?a=2", ""):
            r = ask(d.address, "GET", p + q)
            assert r.body == b"x" + q.encode()
    assert r.hit
    assert not ask(d.address, "GET", p, host="other").hit
    assert ask(d.address, "GET", p, host="TEST:80").hit


def t_validation_of_something_else_is_repeated_plainly():
    one, two = (f"Last-Modified: {origin.date(-age)}" for age in (9000, 1000))
    for first, second in ((['ETag: "1"'], ['ETag: "2"']), ([one], [two]),
                          (['ETag: "1"', one], [two]),
                          (['ETag: "1"', one], ['ETag: "2"', one])):
        p = path()
        o.on(p, reply(200, b"old", *first, "Cache-Control: max-age=0"),
             reply(304, b"", *second, "Cache-Control: max-age=60"),
             reply(200, b"new", *second, "Cache-Control: max-age=60"))
        ask(d.address, "GET", p)
        for _ in range(2):
            r = ask(d.address, "GET", p)
            assert r.body == b"new" and (not second[0] == two or
                                         r.field("Last-Modified") == two[15:]), (first, second, r)
        assert len(o.seen(p)) == 3
        assert o.seen(p)[2].field("If-None-Match") is None and \
               o.seen(p)[2].field("If-Modified-Since") is None


def t_validation_of_something_else_on_a_second_connection():
    """The first has been closed by the server: that was no try of what is then repeated."""
    p = path()
    o.on(p, reply(200, b"old", 'ETag: "1"', "Cache-Control: max-age=0"), origin.END,
         reply(304, b"", 'ETag: "2"'), reply(200, b"new", 'ETag: "2"'))
    with origin.Client(d.address) as c:
        assert [c.request("GET", p).body for _ in range(2)] == [b"old", b"new"]
    assert len({r.connection for r in o.seen(p)[:2]}) == 1 and fetched(p) == 4


def t_a_304_revives_nothing_but_a_200():
    for status in (301, 404, 503):
        p = path()
        o.on(p, reply(status, b"old", 'ETag: "1"', "Cache-Control: max-age=1", "Age: 2"),
             reply(304, b"", 'ETag: "1"', "Cache-Control: max-age=60"),
             reply(200, b"new", 'ETag: "1"', "Cache-Control: max-age=60"))
        assert ask(d.address, "GET", p).status == status
        for _ in range(2):
            r = ask(d.address, "GET", p)
            assert r.status == 200 and r.body == b"new", r
        assert len(o.seen(p)) == 3
        assert all(r.field("If-None-Match") is None for r in o.seen(p))


def t_ranges_of_what_is_stored():
    p = path()
    body = bytes(range(200))
    o.on(p, reply(200, body, "Cache-Control: max-age=60", 'ETag: "1"'))
    ask(d.address, "GET", p)
    rows = [("0-9", 0, 10), ("10-", 10, 200), ("-5", 195, 200), ("199-300", 199, 200),
            ("-900", 0, 200)]
    for text, a, b in rows:
        r = ask(d.address, "GET", p, f"Range: bytes={text}")
        assert r.status == 206 and r.body == body[a:b] and r.hit, (text, r)
        assert r.field("Content-Range") == f"bytes {a}-{b - 1}/200", r
    for text in ("200-", "-0"):
        r = ask(d.address, "GET", p, f"Range: bytes={text}")
        assert r.status == 416 and r.field("Content-Range") == "bytes */200", (text, r)
    for text in ("bytes=5-2", "bytes=a-b", "lines=0-1", "bytes=0-199,5-6", "bytes=0-1,5-2",
                 "bytes=0-1,5"):
        r = ask(d.address, "GET", p, f"Range: {text}")
        assert r.status == 200 and r.body == body, (text, r)
    assert ask(d.address, "GET", p, "Range: bytes=0-1", 'If-Range: "1"').status == 206
    assert ask(d.address, "GET", p, "Range: bytes=0-1", 'If-Range: "2"').status == 200
    assert fetched(p) == 1


def t_several_ranges_of_what_is_stored():
    """In a copy of 512 KiB at most, however many clients do not read theirs; more is the whole."""
    p, body = path(), bytes(range(256)) * (4 << 12)
    o.on(p, reply(200, body, "Cache-Control: max-age=60", "Content-Type: a/b", 'ETag: "1"'))
    assert ask(d.address, "GET", p).body == body
    size = len(body)
    r = ask(d.address, "GET", p, "Range: bytes=70000-70002,-1,0-1")
    kind, _, boundary = r.field("Content-Type").partition("; boundary=")
    assert kind == "multipart/byteranges" and r.status == 206 and r.hit and \
           not r.field("Content-Range"), r
    assert r.body == b"".join(
        f"{before}--{boundary}\r\nContent-Type: a/b\r\n"
        f"Content-Range: bytes {a}-{b}/{size}\r\n\r\n".encode() + body[a:b + 1]
        for before, a, b in (("", 70000, 70002), ("\r\n", size - 1, size - 1), ("\r\n", 0, 1))) + \
           f"\r\n--{boundary}--\r\n".encode()
    assert ask(d.address, "GET", p, "Range: bytes=0-1,5-6", 'If-Range: "2"').body == body
    assert ask(d.address, "GET", p, "Range: bytes=0-1,5-6", 'If-None-Match: "1"').status == 304
    assert ask(d.address, "HEAD", p, "Range: bytes=0-1,5-6").field("Content-Length") == str(size)
    for most, status in ((500000, 206), (524288, 200), (size - 100, 200)):
        r = ask(d.address, "GET", p, f"Range: bytes=0-0,2-{most}")
        assert r.status == status and r.hit, (most, r)
    value = ",".join(f"{i}-{i + 65000}" for i in range(0, 7 * 65536, 65536))
    with contextlib.ExitStack() as clients:
        before = daemon.own_kb(d.pid)
        for _ in range(40):
            for ranges in (value, f"0-0,2-{size - 1}"):
                c = clients.enter_context(origin.Client(d.address, rcvbuf=8192))
                c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\nRange: bytes={ranges}\r\n\r\n".encode())
                c.s.recv(1, socket.MSG_PEEK)
        cost = (daemon.own_kb(d.pid) - before) / 80
        assert cost < 512, f"{cost:.0f} KiB each"
    assert fetched(p) == 1


def part(body, a, b, tag, *fields):
    """The 206 with bytes a to b of body."""
    return reply(206, body[a:b + 1], f"Content-Range: bytes {a}-{b}/{len(body)}", f'ETag: "{tag}"',
                 "Cache-Control: max-age=60", *fields)


def t_rest_that_does_not_fit_is_asked_for_whole():
    body, whole = b"0123456789", reply(200, b"another", "Cache-Control: max-age=60")
    for rest in (part(body, 5, 9, "b"), part(body, 6, 9, "a"), part(body, 5, 8, "a"),
                 part(body + b"a", 5, 10, "a"),
                 reply(206, b"56789"), reply(416, b"", "Content-Range: bytes */5"),
                 reply(304, b"", 'ETag: "a"'),
                 part(body, 5, 9, "a").replace(b"Content-Length: 5", b"Content-Length: 6") + b"x"):
        p = path()
        o.on(p, part(body, 0, 4, "a"), rest, whole)
        assert ask(d.address, "GET", p, "Range: bytes=0-4").status == 206
        r = ask(d.address, "GET", p)
        assert r.status == 200 and r.body == b"another", (rest, r)
        assert [q.field("Range") for q in o.seen(p)] == ["bytes=0-4", "bytes=5-", None]
        assert ask(d.address, "GET", p).hit


def t_rest_that_is_cut_off_is_502_and_not_stored():
    body = b"0123456789"
    rest = part(body, 5, 9, "a")
    chunked = rest.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")[:-5]
    for cut in (rest[:-1], rest[:-5], chunked + b"4\r\n5678\r\n0\r\n\r\n",
                chunked + b"5\r\n56789\r\n"):
        p = path()
        o.on(p, part(body, 0, 4, "a"), origin.then_closes(cut), reply(200, body, 'ETag: "a"'))
        ask(d.address, "GET", p, "Range: bytes=0-4")
        assert ask(d.address, "GET", p).status == 502
        assert ask(d.address, "GET", p, "Range: bytes=1-2").body == b"12"
        r = ask(d.address, "GET", p)
        assert r.status == 200 and r.body == body and not r.hit, r


def t_parts_at_random_are_always_the_right_bytes():
    """Responses of an origin that changes its content from time to time."""
    rand = random.Random(9111)
    p, versions = path(), [rand.randbytes(3000)]

    def serve(c, r):
        body, tag = versions[-1], str(len(versions))
        m = re.fullmatch(r"bytes=(\d*)-(\d*)", r.field("Range") or "")
        if not m or (r.field("If-Range") or f'"{tag}"') != f'"{tag}"':
            c.send(reply(200, body, f'ETag: "{tag}"', "Cache-Control: max-age=60"))
            return
        a, b = (len(body) - int(m[2]), len(body) - 1) if not m[1] else \
               (int(m[1]), min(int(m[2] or len(body)), len(body) - 1))
        c.send(part(body, a, b, tag))

    o.on(p, serve)
    hits = 0
    for nr in range(600):
        if nr % 60 == 59:       # the next finds what is stored gone, and the origin another
            versions.append(rand.randbytes(rand.choice((3000, 3100))))
            ask(d.address, "POST", p, body=b"")
        body = versions[-1]
        a = rand.randrange(0, 2999)
        b = min(a + rand.randrange(1, 900), 2999)
        kind = rand.randrange(12)
        text, want = (None, body) if not kind else (f"-{len(body) - a}",
                                                    body[a:]) if kind == 1 else \
                     (f"{a}-{b}", body[a:b + 1])
        r = ask(d.address, "GET", p, *([f"Range: bytes={text}"] if text else []))
        assert r.status == (206 if text else 200) and r.body == want, (nr, text, r)
        hits += r.hit
    assert 100 < hits < 600, hits


def t_withdrawn_while_fetched_is_not_stored():
    p, go = path(), threading.Event()

    def slow(c, r):
        go.wait(20)
        c.send(reply(200, b"old", "Cache-Control: max-age=60"))

    o.on(p, slow, reply(200, b""), reply(200, b"new", "Cache-Control: max-age=60"))
    got = []
    t = threading.Thread(target=lambda: got.append(ask(d.address, "GET", p)))
    t.start()
    o.wait(p)
    ask(d.address, "POST", p, body=b"x")
    go.set()
    t.join()
    assert got[0].body == b"old"
    assert ask(d.address, "GET", p).body == b"new", "what a POST withdrew was stored after it"


def t_a_posts_answer_is_stored_whatever_others_make_old():
    """Unless that is what it would be stored for."""
    for other, kept in ((path(), True), (None, False)):
        p, go = path(), threading.Event()

        def slow(c, r, p=p, go=go):
            go.wait(20)
            c.send(reply(200, b"posted", "Cache-Control: max-age=60", f"Content-Location: {p}"))

        o.on(p, slow, reply(200, b"else"))
        o.on(other or p + "-", reply(200, b""))
        got = []
        t = threading.Thread(target=lambda p=p,
                             got=got: got.append(ask(d.address, "POST", p, body=b"x")))
        t.start()
        o.wait(p)
        if other:
            ask(d.address, "POST", other, body=b"y")
        else:
            ask(d.address, "DELETE", p)
        go.set()
        t.join()
        assert got[0].body == b"posted" and ("stored" in got[0].cache) == kept, got
        assert ask(d.address, "GET", p).hit == kept, (other, kept)


def t_what_is_not_stored_is_not_marked_as_stored():
    for bad in (reply(206, b"abcde", "Cache-Control: max-age=60", "Content-Range: bytes 4-9/10"),
                reply(200, b"abcde", "Cache-Control: max-age=60") + b"more"):
        p = path()
        o.on(p, bad, reply(200, b"second"))
        r = ask(d.address, "GET", p, "Range: bytes=4-9")
        assert r.body == b"abcde" and "stored" not in r.cache, r
        assert ask(d.address, "GET", p).body == b"second"


def t_what_its_way_has_made_stale_is_marked_as_stale():
    p = path()

    def slow(c, r):
        time.sleep(0.8)
        c.send(reply(200, b"x", "Cache-Control: max-age=1"))

    o.on(p, slow)
    ask(d.address, "GET", p)
    sleep_to_stale(0.5)         # no second that an Age would tell
    r = ask(d.address, "GET", p)
    assert "fwd=stale" in r.cache, r


def t_stale_while_revalidate():
    p = path()
    cc = "Cache-Control: max-age=1, stale-while-revalidate=60"
    o.on(p, reply(200, b"one", cc), reply(200, b"two", cc))
    ask(d.address, "GET", p)
    sleep_to_stale(1.2)
    r = ask(d.address, "GET", p)
    assert r.hit and r.body == b"one" and ("ttl=0" in r.cache or "ttl=-1" in r.cache), r
    o.wait(p, 2)
    for _ in range(1000):       # the refresh is stored soon after the origin has seen it
        r = ask(d.address, "GET", p)
        if r.body == b"two":
            break
    assert r.body == b"two", r


def t_stale_while_revalidate_of_no_lifetime():
    p = path()
    cc = "Cache-Control: max-age=0, stale-while-revalidate=60"
    o.on(p, reply(200, b"one", cc), reply(200, b"two", cc))
    ask(d.address, "GET", p)
    r = ask(d.address, "GET", p)
    assert r.hit and r.body == b"one", r
    client.until(lambda: ask(d.address, "GET", p).body == b"two", "never fresh")


def t_stale_while_revalidate_by_any_request():
    """None is answered with what is stale without an attempt to validate it."""
    cc = "Cache-Control: max-age=100, stale-while-revalidate=60, public"
    for method, *fields in (("HEAD",), ("GET", "Range: bytes=1-1"), ("HEAD", "Range: bytes=1-1"),
                            ("GET", "If-None-Match: \"1\"")):
        p = path()
        o.on(p, reply(200, b"one", cc, "Age: 110", 'ETag: "1"'),
             reply(200, b"two", cc, 'ETag: "2"'))
        ask(d.address, "GET", p)
        r = ask(d.address, method, p, *fields)
        assert r.hit and r.status in (200, 206, 304) and r.body in (b"", b"n"), (method, fields, r)
        o.wait(p, 2)
        seen = o.seen(p)[1]
        assert seen.method == "GET" and seen.field("Range") is None, (method, fields, seen.head)
        assert seen.field("If-None-Match") == '"1"', seen.head
        client.until(lambda p=p: ask(d.address, "GET", p).body == b"two", "never fresh")
        assert fetched(p) == 2, (method, fields, fetched(p))
    for line in ("Authorization: Basic YTpi", "Cache-Control: no-store"):
        p = path()
        o.on(p, reply(200, b"one", cc, "Age: 110", 'ETag: "1"'), reply(200, b"two", cc))
        ask(d.address, "GET", p)
        r = ask(d.address, "GET", p, line)
        assert not r.hit and r.body == b"two" and "fwd=stale" in r.cache, r
        assert line.encode() in o.seen(p)[1].head and o.seen(p)[1].field("If-None-Match") == '"1"'


def t_a_refresh_asks_for_what_no_client_has_restricted():
    cc = "Cache-Control: max-age=100, stale-while-revalidate=60"
    for line in ("only-if-cached", "max-stale=5, foo"):
        p = path()
        o.on(p, reply(200, b"one", cc, "Age: 110"), reply(200, b"two", cc))
        ask(d.address, "GET", p)
        r = ask(d.address, "GET", p, f"Cache-Control: {line}", "X-A: 1")
        assert r.hit and r.body == b"one", r
        seen = o.wait(p, 2)
        assert seen.field("X-A") == "1" and seen.field("Cache-Control") is None, seen.head


def t_stale_if_error():
    def after(fields, *later, second=()):
        p = path()
        o.on(p, reply(200, b"old", *fields), *later)
        ask(d.address, "GET", p)
        return ask(d.address, "GET", p, *second)

    e = 'ETag: "1"'
    sie = ["Cache-Control: max-age=100, stale-if-error=60", "Age: 110", e]
    for status in (500, 502, 503, 504):
        r = after(sie, reply(status, b"bad"))
        assert r.status == 200 and r.body == b"old", r
    assert after(sie, reply(404, b"bad")).status == 404
    assert after(sie, origin.END).body == b"old"
    late = ["Cache-Control: max-age=100, stale-if-error=60", "Age: 900", e]
    assert after(late, reply(503, b"bad")).status == 503
    assert after(late, origin.END).status == 502, "longer than it says itself"
    plain = ["Cache-Control: max-age=100", "Age: 110", e]
    assert after(plain, reply(503, b"bad")).status == 503
    assert after(plain, reply(503, b"bad"),
                 second=["Cache-Control: stale-if-error=60"]).status == 503, \
           "a request makes nothing staler"
    assert after(plain, origin.END).body == b"old"      # disconnected: 4.2.4
    for rule in ("must-revalidate", "proxy-revalidate", "no-cache"):
        r = after([f"Cache-Control: max-age=100, stale-if-error=60, {rule}", "Age: 110", e],
                  origin.END)
        assert r.status == (502 if rule == "no-cache" else 504), (rule, r)
    r = after(["Cache-Control: s-maxage=100, stale-if-error=60", "Age: 110", e], origin.END)
    assert r.status == 504, r


def t_hot_response_is_refreshed_before_it_is_stale():
    p = path()
    o.on(p, reply(200, b"one", "Cache-Control: max-age=100", "Age: 92"),
         reply(200, b"two", "Cache-Control: max-age=100"))
    ask(d.address, "GET", p)
    assert ask(d.address, "GET", p).body == b"one"
    o.wait(p, 2)
    for _ in range(1000):
        r = ask(d.address, "GET", p)
        assert r.hit, r
        if r.body == b"two":
            break
    assert r.body == b"two"


def t_refresh_that_brings_nothing_does_not_come_with_every_hit():
    for fields in (["max-age=100", "Age: 95"], ["max-age=1, stale-while-revalidate=60", "Age: 1"]):
        for bad in (reply(503), reply(200, b"x", "Cache-Control: no-store"), origin.END):
            p = path()
            o.on(p, reply(200, b"one", "Cache-Control: " + fields[0], *fields[1:]), bad)
            ask(d.address, "GET", p)
            end, hits = time.monotonic() + 0.8, 0
            while time.monotonic() < end:
                r = ask(d.address, "GET", p)
                if not r.hit:           # another answer may have made it go
                    break
                hits += 1
                # each may be tried with one server twice
                assert fetched(p) <= 1 + 2 * (1 + (time.monotonic() - end + 0.8) // 1), \
                       (fields, hits)
            o.wait(p, 2)


def t_an_encoded_slash_is_withdrawn_too():
    p, q = path() + "%2Fx", path()
    o.on(p, reply(200, b"x", "Cache-Control: max-age=60"))
    o.on(q, reply(201, b"", f"Location: {p}"))
    ask(d.address, "GET", p)
    assert ask(d.address, "GET", p).hit
    assert ask(d.address, "POST", q, body=b"x").status == 201
    assert not ask(d.address, "GET", p).hit


def t_purge_by_path_tag_and_all():
    def purge(**what):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(d.control)
            s.sendall(json.dumps({"cmd": "purge", **what}).encode() + b"\n")
            return json.loads(s.makefile().readline())["purged"]

    a, b = path(), path()
    for p, tag in ((a, "red blue"), (b, "blue")):
        o.on(p, reply(200, b"x", "Cache-Control: max-age=60", f"Surrogate-Key: {tag}"))
        ask(d.address, "GET", p)
    assert purge(url=a) == 1
    assert not ask(d.address, "GET", a).hit and ask(d.address, "GET", b).hit
    assert purge(tag="red") == 1 and purge(tag="re") == 0
    assert ask(d.address, "GET", b).hit
    assert purge(tag="blue") == 1
    assert not ask(d.address, "GET", b).hit
    assert purge(prefix=b[:-1]) >= 1
    assert not ask(d.address, "GET", b).hit and ask(d.address, "GET", b).hit
    assert purge(host="no.such.host") == 0 and purge(host="test") >= 1
    assert not ask(d.address, "GET", b).hit
    assert purge(all=True) >= 1
    assert not ask(d.address, "GET", b).hit


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
