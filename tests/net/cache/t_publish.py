#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Responses of upstreams, sent by the kernel tiers: the same bytes as the daemon's own
hits, Age to the second, and never a moment longer than it may be.

Two daemons ask one origin: d answers at the packet, u is the user tier alone.
"""
import itertools
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import net
import origin
import talk
from origin import date, reply

PORT, USER_PORT = 8080, 8081
MINUTE = "Cache-Control: max-age=60"
n = d = u = o = None
_names = itertools.count()


def begin():
    global n, d, u, o
    n = net.Net(links=1)
    with n.server.inside():
        o = origin.Origin()
        d = daemon.Daemon("--upstream", o.url, "--wire", "tbg0,lo", "--workers", "2",
                          listen=f"0.0.0.0:{PORT}").start()
        u = daemon.Daemon("--upstream", o.url, "--tiers", "user", "--workers", "1",
                          listen=f"0.0.0.0:{USER_PORT}").start()
    tier = talk.ask(d, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))


def end():
    for one in (d, u):
        if one:
            assert one.stop() == 0, one.lines
    if o:
        o.close()
    if n:
        n.close()


class Client(origin.Client):
    """On a connection over the wire, to d unless told."""

    def __init__(self, port=PORT, lo=False):    # pylint: disable=super-init-not-called
        where, address = (n.server, "127.0.0.1") if lo else (n.client, n.links[0].server4)
        self.s, self.got = where.connect((address, port)), b""


def ask(*args, port=PORT, **more):
    with Client(port) as c:
        return c.request(*args, **more)


def path(what="p"):
    """One that no other test uses."""
    return f"/{what}-{next(_names)}"


def kernel(r):
    return "hit" in r.cache and f"detail={daemon.FAST}" in r.cache


def stored(answer, *fields, **more):
    """A new path with that answer, which d has stored."""
    p = path()
    o.on(p, answer)
    assert "stored" in ask("GET", p, *fields, **more).cache
    return p


def plain(r):
    """Head and body, but for what may differ."""
    head = re.sub(rb"\r\nAge: \d+", b"\r\nAge: n", r.head)
    return re.sub(rb"detail=(wire|sock|user)", b"detail=tier", head), r.body


def t_the_second_answer_is_the_kernels():
    p = stored(reply(200, b"body", MINUTE))
    r = ask("GET", p)
    assert kernel(r) and r.body == b"body" and r.field("Age") in ("0", "1", "2"), r
    with Client() as c:
        for _ in range(5):
            assert kernel(c.request("GET", p))
        assert not kernel(c.request("GET", path()))
        assert kernel(c.request("GET", p)), "after a miss on the same connection"
    assert len(o.seen(p)) == 1


def t_same_bytes_in_both_tiers():
    tag, at = 'ETag: "t-1"', f"Last-Modified: {date(-1000)}"
    dated = f"Date: {date(-5)}"
    chunked = "\r\n".join(["HTTP/1.1 200 Fine", dated, MINUTE, "Transfer-Encoding: chunked", "",
                           "3",
                           "abc", "4", "defg", "0", "X-Trailer: 1", "", ""]).encode()
    answers = [
        reply(200, b"body", MINUTE, dated, tag, at, "Content-Type: text/plain", "X-A: 1", "x-a: 2"),
        reply(200, b"", MINUTE, dated), reply(200, b"x" * 13000, MINUTE, dated, tag),
        reply(200, b"x", MINUTE, dated, 'ETag: W/"weak"'),
        reply(200, b"x", MINUTE, dated, "ETag: odd"),
        reply(200, b"x", MINUTE, dated, "Age: 17", "Surrogate-Key: a b", "Via: 1.1 other",
              "Cache-Status: other; hit"),
        reply(404, b"none", MINUTE, dated, tag), reply(301, b"", MINUTE, dated, "Location: /there"),
        reply(204, b"", MINUTE, dated), reply(410, b"gone", MINUTE, dated), chunked,
        reply(200, b"x", "Cache-Control: s-maxage=60, public, must-revalidate", dated),
    ]
    asked = [["GET"], ["HEAD"], ["GET", 'If-None-Match: "t-1"'], ["GET", 'If-None-Match: W/"weak"'],
             ["GET", 'If-None-Match: "other"'], ["HEAD", 'If-None-Match: "t-1"'],
             ["GET", "If-None-Match: odd"],
             ["GET", "If-None-Match: *"], ["GET", at.replace("Last-Modified", "If-Modified-Since")],
             ["GET", f"If-Modified-Since: {date()}"], ["GET", "Cookie: a=b"],
             ["GET", "Accept-Encoding: gzip, br"]]
    by_kernel = 0
    for answer in answers:
        p = stored(answer)
        ask("GET", p, port=USER_PORT)
        for method, *fields in asked:
            one, other = ask(method, p, *fields), ask(method, p, *fields, port=USER_PORT)
            assert "hit" in one.cache and "hit" in other.cache, (one, other)
            assert plain(one) == plain(other), (method, fields, one, other)
            by_kernel += kernel(one)
    assert by_kernel >= len(answers) * 8, f"only {by_kernel} of them came from the kernel"


def t_not_modified_and_head_come_from_the_kernel():
    p = stored(reply(200, b"body", MINUTE, 'ETag: "a"', f"Last-Modified: {date(-100)}"))
    r = ask("GET", p, 'If-None-Match: "a"')
    assert r.status == 304 and kernel(r) and r.field("ETag") == '"a"' and \
           r.field("Content-Length") is None, r
    r = ask("HEAD", p)
    assert kernel(r) and r.field("Content-Length") == "4", r
    p = stored(reply(404, b"none", MINUTE, 'ETag: "a"'))
    assert ask("GET", p, 'If-None-Match: "a"').status == 404


def t_age_is_exact_to_the_second():
    """Over both turns that an Age can take: a digit changes, and one is added."""
    for age in (8, 97):
        p = path()
        o.on(p, reply(200, b"x", "Cache-Control: max-age=3600", f"Age: {age}"))
        before = time.monotonic()
        ask("GET", p)
        after = time.monotonic()
        seen, tiers = set(), []
        with Client() as c:
            while not seen or max(seen) < age + 4:
                asked = time.monotonic()
                r = c.request("GET", p)
                got = time.monotonic()
                told = int(r.field("Age"))
                seen.add(told)
                tiers.append(kernel(r))
                # it was received between before and after
                assert age + int(asked - after) <= told <= age + got - before, (told, r)
                assert re.search(rb"\r\nAge: (0|[1-9]\d*)\r\n", r.head), r
                time.sleep(0.01)
        assert seen >= set(range(age + 1, age + 5)), seen
        assert tiers.count(False) <= len(tiers) // 4, "the daemon answered most"
        assert len(o.seen(p)) == 1


def t_nothing_is_answered_beyond_its_lifetime():
    """An answer tells when it was made; when it is asked for, it must not be too old."""
    for more in ("", ", must-revalidate", ", stale-if-error=60"):
        p = path()

        def made(c, r, more=more):
            c.send(reply(200, b"%.6f" % time.monotonic(), "Cache-Control: max-age=1" + more))

        o.on(p, made)
        begun, by_kernel = time.monotonic(), 0
        with Client() as a, Client(lo=True) as b:
            while time.monotonic() < begun + 3.5:
                for c in (a, b):
                    asked = time.monotonic()
                    r = c.request("GET", p)
                    age = asked - float(r.body)
                    by_kernel += kernel(r)
                    assert age < 1.05, f"{age:.3f} s old: {r}"
        assert by_kernel > 20, f"{by_kernel} answers of the kernel"
        nr = len(o.seen(p))
        assert nr <= (time.monotonic() - begun) / 0.7 + 2, f"{nr} fetches"


def t_stale_answers_are_the_daemons():
    p = stored(reply(200, b"x", "Cache-Control: max-age=100, stale-while-revalidate=60", "Age: 99"))
    time.sleep(1.1)         # whoever asked meanwhile would bring the next
    r = ask("GET", p)
    assert int(r.field("Age")) >= 100 and "hit" in r.cache and not kernel(r), r


def t_hot_response_is_fetched_again_before_it_is_stale():
    p = path()
    o.on(p, reply(200, b"one", "Cache-Control: max-age=100", "Age: 88"),
         reply(200, b"two", "Cache-Control: max-age=100"))
    ask("GET", p)
    nr = 0
    with Client() as c:
        while True:
            r = c.request("GET", p)
            assert "hit" in r.cache, r
            if r.body == b"two":
                break
            nr += kernel(r)
    assert nr > 10, nr
    assert kernel(ask("GET", p))
    assert len(o.seen(p)) == 2
    # one that is old when it comes is not fetched for ever
    p = path()
    o.on(p, reply(200, b"old", "Cache-Control: max-age=100", "Age: 91"))
    ask("GET", p)
    for _ in range(300):
        assert "hit" in ask("GET", p).cache
    assert len(o.seen(p)) <= 4, len(o.seen(p))


def t_who_does_not_refresh_does_not_publish():
    """Or nobody would fetch it again before it is stale."""
    for line in ("Authorization: Basic eDp5", "Cache-Control: no-store"):
        p = path()
        o.on(p, reply(200, b"one", "Cache-Control: max-age=100", "Age: 92"),
             reply(200, b"two", "Cache-Control: max-age=100"))
        ask("GET", p)
        assert "hit" in ask("GET", p, line).cache
        assert not kernel(ask("GET", p)), line
        o.wait(p, 2)


def t_only_what_answers_anybody_is_published():
    rows = [["Vary: Foo"], ["Set-Cookie: a=b"], ["Cache-Control: no-cache"],
            ["Cache-Control: private"],
            ["Cache-Control: no-store"], ["Cache-Control: max-age=0"], ['ETag: "%s"' % ("x" * 60)]]
    for fields in rows:
        p = path()
        o.on(p, reply(200, b"x", MINUTE, *fields))
        for _ in range(3):
            assert not kernel(ask("GET", p)), fields
    p = stored(reply(200, b"x", "Cache-Control: max-age=60, public"), "Authorization: Basic eDp5")
    assert not kernel(ask("GET", p)) and "hit" in ask("GET", p).cache
    p = path() + "-" + "x" * 190
    o.on(p, reply(200, b"x", MINUTE))
    for _ in range(3):
        r = ask("GET", p)
    assert "hit" in r.cache and not kernel(r)


def t_requests_that_the_kernel_must_not_answer():
    p = stored(reply(200, b"0123456789", MINUTE, 'ETag: "a"'))
    assert kernel(ask("GET", p))
    for field in ("Cache-Control: no-cache", "Cache-Control: max-age=0",
                  "Cache-Control: min-fresh=99",
                  "Cache-Control: only-if-cached", "Cache-Control: no-store", "Pragma: no-cache",
                  "Range: bytes=2-3", "Authorization: Basic eDp5", 'If-Match: "a"',
                  'If-Range: "a"'):
        r, other = ask("GET", p, field), ask("GET", p, field, port=USER_PORT)
        assert not kernel(r) and r.status == other.status and r.body == other.body, (field, r)


def t_sites_and_queries_never_share():
    p = path()
    what = [("a.test", p), ("b.test", p), ("a.test:81", p), ("a.test", p + "?"),
            ("a.test", p + "?q=1"),
            ("a.test", p + "?q=2"), ("xa.test", p)]

    def made(c, r):
        c.send(reply(200, f"{r.field('Host')} {r.target}".encode(), MINUTE))

    for host, target in what:
        o.on(target, made)
    for _ in range(3):
        got = [ask("GET", target, host=host) for host, target in what]
        for r, (host, target) in zip(got, what):
            assert r.body == f"{host} {target}".encode(), (host, target, r)
    assert all(kernel(r) for r in got), got
    r = ask("GET", p, host="A.TEST")
    assert "hit" in r.cache and r.body == f"a.test {p}".encode(), r


def t_unsafe_methods_withdraw_before_they_are_answered():
    """While clients hammer it: whoever asks after the answer to a POST gets what came after it."""
    p, version, over = path(), [0], threading.Event()
    wrong, seen = [], []

    def made(c, r):
        if r.method == "POST":
            version[0] += 1
            c.send(reply(200, b"done"))
        else:
            c.send(reply(200, b"%d" % version[0], MINUTE))

    o.on(p, made)

    def hammer():
        with Client() as c:
            while not over.is_set():
                least = done[0]
                r = c.request("GET", p)
                seen.append(kernel(r))
                if int(r.body) < least:
                    wrong.append((least, r))

    done = [0]
    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        for i in range(1, 31):
            at = len(seen)
            while not any(seen[at:]):           # until the kernel answers with it
                time.sleep(0.001)
                assert all(t.is_alive() for t in threads)
            assert ask("POST", p, body=b"x").status == 200
            done[0] = i
    finally:
        over.set()
        for t in threads:
            t.join()
    assert not wrong, wrong[:3]


def t_purges_withdraw_at_once():
    def fresh():
        p = path("x")
        o.on(p, reply(200, b"x", MINUTE, f"Surrogate-Key: red t{p[1:]}"))
        ask("GET", p, host="purge.test")
        for _ in range(8):  # wire keeps the answer
            assert kernel(ask("GET", p, host="purge.test"))
        return p

    for how in (lambda p: [p], lambda p: ["--prefix", p[:-1]], lambda p: ["--tag", "t" + p[1:]],
                lambda p: ["--host", "purge.test"], lambda p: ["--all"]):
        p = fresh()
        purged = talk.ask(d, "purge", *how(p))["purged"]
        assert purged >= 1, how(p)
        r = ask("GET", p, host="purge.test")
        assert "hit" not in r.cache, (how(p), r)
    p = fresh()
    assert talk.ask(d, "purge", p)["purged"] == 1, "counted twice"
    talk.ask(d, "purge", "--all")
    p = fresh()
    assert talk.ask(d, "purge", "--host", "other.test")["purged"] == 0
    assert kernel(ask("GET", p, host="purge.test"))
    assert talk.ask(d, "purge", "--host", "purge.test")["purged"] == 1, "counted twice"


def t_location_and_a_head_that_differs_withdraw():
    p, poster = stored(reply(200, b"x", MINUTE)), path()
    o.on(poster, reply(201, b"", f"Location: {p}"))
    assert kernel(ask("GET", p))
    ask("POST", poster, body=b"x")
    assert "hit" not in ask("GET", p).cache
    p = path()
    o.on(p, reply(200, b"x", MINUTE, 'ETag: "1"'),
         b'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: "2"\r\nCache-Control: max-age=60\r\n\r\n',
         reply(200, b"y", MINUTE, 'ETag: "2"'))
    ask("GET", p)
    assert kernel(ask("GET", p))
    ask("HEAD", p, "Cache-Control: no-cache")
    assert ask("GET", p).body == b"y"


def t_variants_take_it_from_the_kernel():
    p = path()
    o.on(p, reply(200, b"one", MINUTE), reply(200, b"two", MINUTE, "Vary: Foo"))
    ask("GET", p)
    assert kernel(ask("GET", p))
    assert ask("GET", p, "Cache-Control: no-cache", "Foo: 1").body == b"two"
    for _ in range(2):
        assert not kernel(ask("GET", p))


GZIP, BR = "Accept-Encoding: gzip", "Accept-Encoding: gzip, deflate, br, zstd"
VARY = "Vary: Accept-Encoding"


def varying(what="p", *fields):
    """A path whose answer to each Accept-Encoding is that field's value."""
    p = path(what)

    def answer(c, r):
        c.send(reply(200, f"<{r.field('Accept-Encoding')}>".encode(), MINUTE, VARY, *fields))
    o.on(p, answer)
    return p


def t_variants_of_an_encoding_come_from_the_kernel():
    p = varying("v", 'ETag: "e"', f"Date: {date(-5)}")
    wants = [((), b"<None>"), ((GZIP,), b"<gzip>"), ((BR,), b"<br,deflate,gzip,zstd>")]
    for fields, body in wants:
        assert ask("GET", p, *fields).body == body
    for _ in range(2):
        for fields, body in wants:
            r = ask("GET", p, *fields)
            assert kernel(r) and r.body == body and r.field("Vary") == "Accept-Encoding", r
            r = ask("GET", p, *fields, 'If-None-Match: "e"')
            assert kernel(r) and r.status == 304 and r.field("Vary") == "Accept-Encoding", r
    assert len(o.seen(p)) == 3
    for fields, body in wants:          # as the user tier has it
        ask("GET", p, *fields, port=USER_PORT)
        assert plain(ask("GET", p, *fields, port=USER_PORT)) == plain(ask("GET", p, *fields))
    for accept, tier in (("gzip", daemon.FAST), ("gzip, deflate, br, zstd", daemon.FAST),
                         ("br", "user")):
        why = talk.ask(d, "why", "--accept-encoding", accept, p)
        assert why["tier"] == tier, why
    talk.ask(d, "purge", p)
    for fields, body in wants:
        r = ask("GET", p, *fields)
        assert "stored" in r.cache and r.body == body, r


def t_ways_to_write_an_encoding_share_what_is_stored():
    p = varying()
    first = ask("GET", p, "Accept-Encoding: br, gzip")
    same = ["br,gzip", "gzip, br", "gzip,br;q=1.0", "br , gzip", "gzip;q=1,br", "gzip , br",
            "br;q=1, gzip"]
    for text in same:
        for _ in range(3):
            assert ask("GET", p, f"Accept-Encoding: {text}").body == first.body
    assert len(o.seen(p)) == 1
    # those that are asked for stay known; the many that come by do not drive them out
    client_s = "Accept-Encoding: br, gzip"
    client.until(lambda: kernel(ask("GET", p, client_s)), "never the kernel's again")
    for _ in range(20):
        assert kernel(ask("GET", p, client_s))
    for i in range(200):
        assert ask("GET", p, f"Accept-Encoding: gzip,{' ' * (i % 100)}br").body == first.body
        assert kernel(ask("GET", p, client_s)), i
    assert len(o.seen(p)) == 1


def t_variants_that_the_kernel_must_not_tell_apart():
    p = varying("n")
    for fields in ((GZIP, "Accept-Encoding: br"), ("Accept-Encoding:",),
                   ("Accept-Encoding: gzip\t",),
                   ("Accept-Encoding: " + "gzip, " * 40 + "br",)):
        bodies = {ask("GET", p, *fields).body for _ in range(3)}
        assert len(bodies) == 1 and not kernel(ask("GET", p, *fields)), fields
    p = path("o")
    o.on(p, *[reply(200, b"x", MINUTE, f"{VARY}, Origin")] * 9)
    for _ in range(3):
        assert not kernel(ask("GET", p, GZIP))
    # what has no Vary answers everybody; what comes to have one does not
    p = path("c")
    o.on(p, reply(200, b"all", MINUTE), *[reply(200, b"some", MINUTE, VARY)] * 9)
    ask("GET", p)
    assert kernel(ask("GET", p, GZIP))
    assert ask("GET", p, GZIP, "Cache-Control: no-cache").body == b"some"
    for _ in range(3):
        assert ask("GET", p, GZIP).body == b"some"


def t_files_and_upstreams_in_one_site():
    """Also across a reload that sends a location elsewhere."""
    text = 'root = "{root}"\nlocation "/app/" { upstream = {"%s"} }\n'

    def second(target):
        with Client(port, lo=True) as c:
            c.request("GET", target)
        with Client(port, lo=True) as c:
            return c.request("GET", target)

    with n.server.inside():
        other = origin.Origin()
        m = conf.Conf(text % o.url, wire=daemon.FAST == "wire").start()
    try:
        port = m.address[1]
        m.write("docs/a.txt", b"file")
        o.on("/app/x", reply(200, b"one", MINUTE))
        other.on("/app/x", reply(200, b"two", MINUTE))
        for target, body in (("/docs/a.txt", b"file"), ("/docs/a.txt?q", b"file"),
                             ("/app/x", b"one")):
            r = second(target)
            assert kernel(r) and r.body == body, r
        m.reconfigure(text % other.url)
        r = second("/app/x")
        assert kernel(r) and r.body == b"two", r
        assert kernel(second("/docs/a.txt"))
    finally:
        m.stop()
        other.close()


def t_objects_why_and_stats_show_variants():
    p = path()
    o.on(p, reply(200, b"body", MINUTE, 'ETag: "a"'))
    o.on(p + "?v", reply(200, b"body", MINUTE, "Vary: Foo"))
    before = talk.hits(d)
    for _ in range(6):
        ask("GET", p, host="tell.test")
        ask("GET", p + "?v", host="tell.test")
    assert talk.hits(d) == before + 5
    rows = {x["path"]: x for x in talk.ask(d, "objects")["objects"]}
    row = rows["tell.test" + p]
    assert row["tiers"] == [daemon.FAST, "user"] and row["hits"] == 5 and row["size"] == 4, row
    assert row["etag"] == '"a"' and 50 < row["expires_s"] <= 60, row
    row = rows[f"tell.test{p}?v"]
    assert row["tiers"] == ["user"] and row["hits"] == 5 and row["size"] == 4, row
    why = talk.ask(d, "why", f"http://tell.test{p}")
    assert why["tier"] == daemon.FAST and why["cached"] and why["in_kernel"] and why["hits"] == 5, \
           why
    why = talk.ask(d, "why", f"http://tell.test{p}?v")
    assert why["tier"] == "user" and why["cached"] and "Vary" in why["detail"], why
    o.on("/?v", reply(200, b"body", MINUTE))
    ask("GET", "/?v", host="bare.test")
    why = talk.ask(d, "why", "http://bare.test?v")
    assert why["cached"] and why["path"] == "/", why
    assert not talk.ask(d, "why", "http://bare.test")["cached"]
    why = talk.ask(d, "why", f"http://tell.test{p}-no")
    assert why["tier"] == "user" and not why["cached"] and why["why"] == "MISS", why


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
