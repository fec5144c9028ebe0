#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The shared cache against RFC 9111, rule by rule, through a real daemon.

Most rules are rows of tables: what the origin says, what is asked, and whether
the second request may be answered without the origin.
"""
import itertools
import json
import os
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from origin import ask, date, reply  # noqa: E402

d = o = None
_names = itertools.count()


def begin():
    global d, o
    o = origin.Origin()
    d = daemon.Daemon("--upstream", o.url, "--tiers", "user", "--workers", "2").start()


def end():
    d.stop()
    o.close()


def path(what="p"):
    """One that no other test uses."""
    return f"/{what}-{next(_names)}"


def fetched(p):
    return len(o.seen(p))


def twice(fields, status=200, first=(), second=(), method="GET"):
    """Ask twice for a new path with that answer: the second answer, and the path."""
    p = path()
    o.on(p, reply(status, b"one", *fields), reply(status, b"two", *fields))
    assert ask(d.address, "GET", p, *first).status == status
    return ask(d.address, method, p, *second), p


def table(rows, **more):
    """Rows of (whether the second is a hit, fields of the answer…); all that fail are told."""
    wrong = []
    for hit, *fields in rows:
        r, p = twice(fields, **more)
        if r.hit != hit or fetched(p) != (1 if hit else 2):
            wrong.append(f"{fields}: wanted {'a hit' if hit else 'the origin'}: {r}")
    assert not wrong, "\n".join(wrong)


def sleep_to_stale(seconds):
    """Time itself is what is tested: there is no event to wait for."""
    time.sleep(seconds)


def t_lifetime_comes_from_max_age():
    cc = "Cache-Control: "
    table([
        (True, cc + "max-age=3600"), (True, cc + "MaX-aGe=3600"),
        (True, cc + 'max-age="3600"'), (True, cc + "max-age=007200"),
        (True, cc + "max-age=2147483647"), (True, cc + "max-age=2147483648"),
        (True, cc + "max-age=99999999999"), (True, cc + "foobar, max-age=3600"),
        (True, cc + "foo=bar, max-age=3600"), (True, cc + "max-age=3600,"),
        (True, cc + "a=\"b, c\", max-age=3600"),
        (False, cc + "max-age=0"), (False, cc + "max-age=-3600"),
        (False, cc + "max-age=3600.0"), (False, cc + "max-age=a3600"),
        (False, cc + "max-age=3600a"), (False, cc + "max-age='3600'"),
        (False, cc + "max-age =3600"), (False, cc + "max-age= 3600"),
        (False, cc + "max-age"), (False, cc + "max-age="),
        (False, cc + 'extension="max-age=3600"'),
        (False, cc + 'extension="a, max-age=3600, b"'),
        (False, cc + "max-age=0, max-age=3600"), (False, cc + "max-age=3600, max-age=0"),
        (False, cc + "max-age=3600", cc + "max-age=0"),
    ])


def t_s_maxage_goes_before_max_age_before_expires():
    table([
        (True, "Cache-Control: max-age=0, s-maxage=3600"),
        (True, "Cache-Control: s-maxage=3600, max-age=0"),
        (True, "Cache-Control: max-age=0", "Cache-Control: s-maxage=3600"),
        (False, "Cache-Control: max-age=3600, s-maxage=0"),
        (True, "Cache-Control: max-age=3600", f"Expires: {date(-3600)}"),
        (True, "Cache-Control: max-age=3600", "Expires: 0"),
        (False, "Cache-Control: max-age=0", f"Expires: {date(3600)}"),
        (False, "Cache-Control: s-maxage=0", f"Expires: {date(3600)}"),
    ])


def t_lifetime_comes_from_expires_less_date():
    year = time.gmtime().tm_year + 3
    rfc850 = time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    asctime = time.asctime(time.gmtime(time.time() + 3600))
    good = f"Thu, 18 Aug {year} 02:01:18 GMT"
    table([
        (True, f"Expires: {date(3600)}"), (True, f"Expires: {rfc850}"),
        (True, f"Expires: {date(3600).upper()}"), (True, f"Expires: {date(3600).lower()}"),
        (True, f"Expires: {rfc850.upper()}"), (True, f"Expires: {rfc850.lower()}"),
        (True, f"Expires: {asctime}"),
        (False, f"Expires: {date(-3600)}"), (False, f"Expires: {date()}"),
        (False, "Expires: 0"), (False, "Expires: -1"), (False, "Expires: "),
        (False, "Expires: " + good.replace("GMT", "UTC")),
        (False, "Expires: " + good.replace("GMT", "AEST")),
        (False, "Expires: " + good.replace(" GMT", "")),
        (False, "Expires: " + good.replace("02:01:18", "2:01:18")),
        (False, "Expires: " + good.replace("02:01:18", "02:01")),
        (False, "Expires: " + good.replace(", ", " ")),
        (False, f"Expires: {date(3600)}", f"Expires: {date(-1)}"),
        (True, f"Date: {date(-10)}", f"Expires: {date(10)}"),
        (False, f"Date: {date(-10)}", f"Expires: {date(10)}", "Age: 25"),
        (True, f"Date: {date(10)}", f"Expires: {date(40)}", "Age: 15"),
        (False, f"Date: {date(10)}", f"Expires: {date(20)}", "Age: 15"),
    ])


def t_age_counts():
    cc = "Cache-Control: max-age=3600"
    table([
        (True, cc, "Age: 1800"), (False, cc, "Age: 7200"), (False, cc, "Age: 3600"),
        (False, cc, f"Date: {date(-7200)}"), (True, cc, f"Date: {date(-1800)}"),
        (True, cc, f"Date: {date(7200)}"),
        (False, cc, "Age: 7200, 0"), (True, cc, "Age: 0, 7200"),
        (False, cc, "Age: 7200", "Age: 0"), (True, cc, "Age: 0", "Age: 7200"),
        (True, cc, "Age: abc"), (True, cc, "Age: -7200"), (True, cc, "Age: 7200.0"),
        (False, cc, "Age: 2147483649"), (False, cc, "Age: 99999999999999999999"),
        (True, cc, "Age: 7200;foo=bar"),
    ])


def t_age_is_told_and_grows():
    r, p = twice(["Cache-Control: max-age=3600"])
    assert r.hit and r.field("Age") in ("0", "1"), r
    r, p = twice(["Cache-Control: max-age=3600", "Age: 100"])
    assert r.hit and r.field("Age") in ("100", "101"), r
    at = int(r.field("Age"))
    sleep_to_stale(2.1)
    r = ask(d.address, "GET", p)
    assert r.hit and at + 2 <= int(r.field("Age")) <= at + 4, r
    r, p = twice(["Cache-Control: max-age=3600", f"Date: {date(-500)}"])
    assert r.hit and 500 <= int(r.field("Age")) <= 503, r
    assert len([n for n, v in r.fields if n == "Age"]) == 1, r
    # a forwarded answer keeps the origin's
    p = path()
    o.on(p, reply(200, b"", "Age: 7", "Cache-Control: max-age=9"))
    assert ask(d.address, "GET", p).field("Age") == "7"


def t_date_is_kept_or_added():
    at = date(-100)
    r, _ = twice(["Cache-Control: max-age=3600", f"Date: {at}"])
    assert r.hit and r.field("Date") == at, r
    p = path()
    o.on(p, reply(200, b"x", "Cache-Control: max-age=60", dated=False))
    assert ask(d.address, "GET", p).field("Date").endswith("GMT")
    assert ask(d.address, "GET", p).hit


def t_heuristic_lifetime():
    lm = f"Last-Modified: {date(-100000)}"
    for status in (200, 203, 204, 404, 405, 410, 414, 501):
        table([(True, lm)], status=status)
    for status in (201, 202, 403, 502, 503, 504, 599):
        table([(False, lm)], status=status)
    for status in (201, 403, 599):
        table([(True, lm, "Cache-Control: public")], status=status)
    table([
        (False, f"Last-Modified: {date(-3)}"),          # a tenth of 3 s is nothing
        (False, f"Last-Modified: {date(1000)}"),
        (False, lm, "Age: 99999"),
        (False, lm, "Set-Cookie: a=b"),
        (False, lm, "Cache-Control: no-cache"),
        (False, "X-Nothing: at all"),
    ])


def t_any_final_status_with_a_lifetime_is_stored():
    for status in (200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499,
                   500, 502, 503, 504, 599):
        table([(True, "Cache-Control: max-age=3600"), (False, "Cache-Control: max-age=0")],
              status=status)


def t_206_is_not_stored():
    p = path()
    part = reply(206, b"on", "Cache-Control: max-age=60", "Content-Range: bytes 0-1/3")
    o.on(p, part)
    for _ in range(2):
        assert ask(d.address, "GET", p, "Range: bytes=0-1").status == 206
    assert fetched(p) == 2


def t_response_directives():
    cc = "Cache-Control: max-age=3600, "
    table([
        (False, cc + "no-store"), (False, cc + "NO-store"), (False, cc + "no-cache"),
        (False, cc + "private"), (False, cc + "PRIVATE"),
        (True, cc + "public"), (True, cc + "must-revalidate"), (True, cc + "immutable"),
        (True, cc + "proxy-revalidate"), (True, cc + "no-transform"),
        (True, cc + "unknown"), (True, cc + 'private="x-a"'), (True, cc + 'no-cache="x-a"'),
        (False, cc + 'private="x-a", private'), (False, cc + 'no-cache, no-cache="x-a"'),
        (True, cc + "must-understand"), (True, cc + "no-store, must-understand"),
        (True, "Cache-Control: max-age=3600", "Pragma: no-cache"),
    ])
    table([(False, cc + "no-store, must-understand"), (False, cc + "must-understand")],
          status=599)


def t_targeted_directives_go_before_the_others():
    """RFC 9213: CDN-Cache-Control in place of Cache-Control and Expires, if it is a dictionary."""
    cdn, cc = "CDN-Cache-Control: ", "Cache-Control: "
    table([
        (True, cdn + "max-age=3600"), (True, cdn + "max-age=3600", cc + "max-age=0"),
        (True, cdn + "max-age=3600", cc + "no-store"), (True, cdn + "max-age=3600", cc + "private"),
        (True, cdn + "max-age=3600", f"Expires: {date(-3600)}"),
        (True, cdn + "max-age=3600", "Pragma: no-cache"), (True, cdn + "max-age=3600, ext=1;a"),
        (False, cdn + "max-age=3600", "Age: 7200"), (False, cdn + "max-age=0", cc + "max-age=3600"),
        (False, cdn + "no-store", cc + "max-age=3600"), (False, cdn + "private", cc + "max-age=3600"),
        (False, cdn + "no-cache", cc + "max-age=3600"), (False, cdn + "foo", f"Expires: {date(3600)}"),
        (False, cdn + 'max-age="3600"', cc + "max-age=3600"),
        (True, cdn + "max-age=0,", cc + "max-age=3600"), (True, cdn + "MAX-AGE=0", cc + "max-age=3600"),
        (False, cdn + "max-age= 3600"), (True, cdn, cc + "max-age=3600"),
    ])


def t_fields_named_by_directives_are_not_reused():
    r, _ = twice(['Cache-Control: max-age=60, no-cache="x-a, X-B"', "X-A: 1", "x-b: 2", "X-C: 3"])
    assert r.hit and not r.field("X-A") and not r.field("X-B") and r.field("X-C"), r
    r, _ = twice(['Cache-Control: max-age=60, private="x-a"', "X-A: 1", "X-C: 3"])
    assert r.hit and not r.field("X-A") and r.field("X-C"), r


def t_hop_by_hop_fields_are_neither_stored_nor_sent_on():
    hops = ["Connection: x-hop", "X-Hop: 1", "Keep-Alive: 5", "Proxy-Connection: x",
            "Upgrade: h9", "TE: x", "X-Kept: 1"]
    p = path()
    o.on(p, reply(200, b"x", "Cache-Control: max-age=60", "Proxy-Authenticate: Basic", *hops))
    for hit in (False, True):
        r = ask(d.address, "GET", p)
        assert r.hit == hit and r.field("X-Kept") == "1", r
        for name in ("X-Hop", "Keep-Alive", "Proxy-Connection", "Upgrade", "TE"):
            assert r.field(name) is None, (name, r)
    assert r.field("Proxy-Authenticate") is None, r


def t_request_directives():
    cc = "Cache-Control: "
    rows = [(True, "max-age=3600"), (False, "max-age=0"), (False, "no-cache"),
            (False, "min-fresh=7200"), (True, "min-fresh=100"), (True, "max-stale=100"),
            (True, "no-store"), (True, "only-if-cached"), (True, "unknown"),
            (False, "max-age=100"), (True, "max-age=500")]
    for hit, directive in rows:
        r, p = twice(["Cache-Control: max-age=3600", "Age: 300"], second=[cc + directive])
        assert r.hit == hit and fetched(p) == 2 - hit, (directive, r)
    r, _ = twice(["Cache-Control: max-age=3600"], second=["Pragma: no-cache"])
    assert not r.hit, r
    r, _ = twice(["Cache-Control: max-age=3600"],
                 second=["Pragma: no-cache", "Cache-Control: max-age=99"])
    assert r.hit, r
    r, _ = twice(["Cache-Control: max-age=3600"], first=["Cache-Control: no-store"])
    assert not r.hit, "the answer to a no-store request was stored"


def t_max_stale_and_min_fresh_of_the_stale():
    fields = ["Cache-Control: max-age=100", "Age: 200"]
    for hit, directive in [(True, "max-stale"), (True, "max-stale=1000"), (False, "max-stale=10"),
                           (False, "min-fresh=1")]:
        r, _ = twice(fields + ['ETag: "a"'], second=["Cache-Control: " + directive])
        assert r.hit == hit, (directive, r)
    for rule in ("must-revalidate", "proxy-revalidate"):
        r, _ = twice([f"Cache-Control: max-age=100, {rule}", "Age: 200", 'ETag: "a"'],
                     second=["Cache-Control: max-stale"])
        assert not r.hit, (rule, r)


def t_only_if_cached_is_504_without_the_origin():
    p = path()
    o.on(p, reply(200, b"x"))
    assert ask(d.address, "GET", p, "Cache-Control: only-if-cached").status == 504
    assert fetched(p) == 0


def t_authorization():
    auth = ["Authorization: Basic eDp5"]
    for hit, directive in [(False, "max-age=60"), (True, "max-age=60, public"),
                           (True, "max-age=60, must-revalidate"), (True, "s-maxage=60"),
                           (False, "max-age=60, proxy-revalidate")]:
        r, _ = twice(["Cache-Control: " + directive], first=auth, second=auth)
        assert r.hit == hit, (directive, r)


def t_set_cookie_with_a_lifetime_is_stored():
    r, _ = twice(["Cache-Control: max-age=60", "Set-Cookie: a=b", "Set-Cookie: c=d"])
    assert r.hit and [v for n, v in r.fields if n == "Set-Cookie"] == ["a=b", "c=d"], r


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


def vary(header, requests):
    """Answer 1 to the first of requests, 2 to the second…; what each was answered."""
    p = path()
    o.on(p, *[reply(200, b"%d" % i, "Cache-Control: max-age=60", *header)
              for i in range(1, len(requests) + 1)])
    return [int(ask(d.address, "GET", p, *fields).body) for fields in requests]


def t_vary_selects():
    foo = ["Vary: Foo"]
    assert vary(foo, [["Foo: 1"], ["Foo: 1"], ["foo: 1"]]) == [1, 1, 1]
    assert vary(foo, [["Foo: 1"], ["Foo: 2"], ["Foo: 1"], ["Foo: 2"]]) == [1, 2, 1, 2]
    assert vary(foo, [["Foo: 1"], [], ["Foo: 1"], []]) == [1, 2, 1, 2]
    assert vary(foo, [[], ["Foo: 1"], []]) == [1, 2, 1]
    assert vary(foo, [["Foo: "], []]) == [1, 2]
    assert vary(foo, [["Foo: 1"], ["Foo: 1", "Bar: 2"]]) == [1, 1]
    assert vary(["Vary: Foo, Bar"], [["Foo: 1", "Bar: a"], ["Foo: 1", "Bar: b"],
                                     ["Bar: a", "Foo: 1"]]) == [1, 2, 1]
    assert vary(["Vary: Foo", "Vary: Bar"], [["Foo: 1", "Bar: a"], ["Foo: 1", "Bar: b"],
                                            ["Foo: 1", "Bar: a"]]) == [1, 2, 1]
    assert vary(foo, [["Foo: 1, 2"], ["Foo: 1,2"], ["Foo: 1", "Foo: 2"], ["Foo: 1 ,  2"]]) \
        == [1, 1, 1, 1]
    assert vary(foo, [["Foo: 1, 2"], ["Foo: 2, 1"]]) == [1, 2]
    # no value can pass for another field's
    assert vary(["Vary: A, B"], [["A: x", "B: y"], ["A: x b:y"]]) == [1, 2]


def t_vary_star_never_matches():
    for header in (["Vary: *"], ["Vary: *, Foo"], ["Vary: Foo, *"], ["Vary: , *"],
                   ["Vary: Foo", "Vary: *"], ["Vary: *, *"]):
        assert vary(header, [["Foo: 1"], ["Foo: 1"]]) == [1, 2], header


def t_vary_miss_is_told():
    p = path()
    o.on(p, reply(200, b"x", "Cache-Control: max-age=60", "Vary: Foo"))
    assert "fwd=uri-miss" in ask(d.address, "GET", p, "Foo: 1").cache
    assert "fwd=vary-miss" in ask(d.address, "GET", p, "Foo: 2").cache


def t_validation_with_etag():
    p = path()
    o.on(p, reply(200, b"body", 'ETag: "abc"', "Cache-Control: max-age=0", "X-A: 1", "X-B: 1"),
         reply(304, b"", 'ETag: "abc"', "Cache-Control: max-age=60", "X-A: 2"))
    assert "stored" in ask(d.address, "GET", p).cache
    r = ask(d.address, "GET", p)
    assert r.status == 200 and r.body == b"body" and "fwd=stale" in r.cache, r
    assert "fwd-status=304" in r.cache and "stored" in r.cache, r
    assert o.seen(p)[1].field("If-None-Match") == '"abc"'
    assert r.field("X-A") == "2" and r.field("X-B") == "1", r
    r = ask(d.address, "GET", p)
    assert r.hit and r.field("X-A") == "2" and r.body == b"body", r


def t_validation_with_weak_etag_and_last_modified():
    p, at = path(), date(-100)
    o.on(p, reply(200, b"body", 'ETag: W/"abc"', f"Last-Modified: {at}", "Cache-Control: max-age=0"),
         reply(304, b"", 'ETag: W/"abc"', "Cache-Control: max-age=60"))
    ask(d.address, "GET", p)
    assert ask(d.address, "GET", p).body == b"body"
    assert o.seen(p)[1].field("If-None-Match") == 'W/"abc"'
    assert o.seen(p)[1].field("If-Modified-Since") == at
    assert ask(d.address, "GET", p).hit


def t_validation_that_brings_a_new_one():
    p = path()
    o.on(p, reply(200, b"old", 'ETag: "1"', "Cache-Control: max-age=0"),
         reply(200, b"new", 'ETag: "2"', "Cache-Control: max-age=60"))
    assert ask(d.address, "GET", p).body == b"old"
    assert ask(d.address, "GET", p).body == b"new"
    r = ask(d.address, "GET", p)
    assert r.hit and r.body == b"new"


def t_validation_of_something_else_is_repeated_plainly():
    p = path()
    o.on(p, reply(200, b"old", 'ETag: "1"', "Cache-Control: max-age=0"),
         reply(304, b"", 'ETag: "2"'), reply(200, b"new", 'ETag: "2"'))
    ask(d.address, "GET", p)
    assert ask(d.address, "GET", p).body == b"new"
    assert o.seen(p)[2].field("If-None-Match") is None


def t_no_cache_is_validated_every_time():
    p = path()
    o.on(p, reply(200, b"body", 'ETag: "1"', "Cache-Control: no-cache, max-age=60"),
         reply(304, b"", 'ETag: "1"'))
    for i in range(3):
        r = ask(d.address, "GET", p)
        assert r.body == b"body" and fetched(p) == i + 1, r
    assert o.seen(p)[2].field("If-None-Match") == '"1"'


def t_304_updates_fields_but_not_what_describes_the_bytes():
    p = path()
    names = ["Test-Header", "X-Test", "Content-Foo", "Content-Location", "Content-Type",
             "Content-Security-Policy", "X-Frame-Options", "Set-Cookie", "Expires-X"]
    kept = ["Content-Encoding", "Content-Range", "Content-MD5"]
    o.on(p, reply(200, b"body", 'ETag: "1"', "Cache-Control: max-age=0",
                  *[f"{n}: old" for n in names + kept]),
         reply(304, b"", 'ETag: "1"', "Cache-Control: max-age=60", "Connection: x-hop", "X-Hop: 1",
               *[f"{n}: new" for n in names + kept]))
    ask(d.address, "GET", p)
    for _ in range(2):
        r = ask(d.address, "GET", p)
        for name in names:
            assert r.field(name) == "new", (name, r)
        for name in kept:
            assert r.field(name) == "old", (name, r)
        assert r.field("X-Hop") is None and r.field("Content-Length") == "4", r
    assert r.hit


def t_client_conditions_are_answered_from_the_store():
    at = date(-1000)
    p = path()
    o.on(p, reply(200, b"body", 'ETag: "a\\b"', f"Last-Modified: {at}", "Cache-Control: max-age=60"))
    ask(d.address, "GET", p)
    rows = [(304, 'If-None-Match: "a\\b"'), (304, 'If-None-Match: W/"a\\b"'),
            (304, 'If-None-Match: "x", "a\\b"'), (304, 'If-None-Match: "a\\b", "x"'),
            (304, "If-None-Match: *"), (200, 'If-None-Match: "x"'), (200, 'If-None-Match: a\\b'),
            (304, f"If-Modified-Since: {at}"), (304, f"If-Modified-Since: {date()}"),
            (200, f"If-Modified-Since: {date(-2000)}"), (200, "If-Modified-Since: never")]
    for status, field in rows:
        r = ask(d.address, "GET", p, field)
        assert r.status == status and r.hit, (field, r)
        if status == 304:
            assert r.field("ETag") == '"a\\b"' and r.field("Content-Length") is None, r
    r = ask(d.address, "GET", p, 'If-None-Match: "x"', f"If-Modified-Since: {at}")
    assert r.status == 200, "If-None-Match goes before If-Modified-Since"
    assert fetched(p) == 1
    # without Last-Modified the Date counts (RFC 9111 4.3.2)
    r, _ = twice(["Cache-Control: max-age=60"], second=[f"If-Modified-Since: {date(5)}"])
    assert r.status == 304, r


def t_client_conditions_go_to_the_origin_on_a_miss():
    p = path()
    o.on(p, reply(304, b"", 'ETag: "1"'))
    assert ask(d.address, "GET", p, 'If-None-Match: "1"').status == 304
    assert o.seen(p)[0].field("If-None-Match") == '"1"'
    for field in ('If-Match: "1"', f"If-Unmodified-Since: {date()}"):
        p = path()
        o.on(p, reply(200, b"x", 'ETag: "1"', "Cache-Control: max-age=60"),
             reply(412, b"", 'ETag: "1"'))
        ask(d.address, "GET", p)
        assert ask(d.address, "GET", p, field).status == 412, "the origin's to evaluate"


def t_client_conditions_after_validation():
    p = path()
    o.on(p, reply(200, b"body", 'ETag: "1"', "Cache-Control: max-age=0"),
         reply(304, b"", 'ETag: "1"'), reply(200, b"new", 'ETag: "2"'))
    ask(d.address, "GET", p)
    assert ask(d.address, "GET", p, 'If-None-Match: "1"').status == 304
    assert ask(d.address, "GET", p, 'If-None-Match: "1"').body == b"new"


def t_head_is_answered_from_a_stored_get():
    p = path()
    o.on(p, reply(200, b"body", "Cache-Control: max-age=60"))
    ask(d.address, "GET", p)
    r = ask(d.address, "HEAD", p)
    assert r.hit and r.field("Content-Length") == "4" and r.body == b"", r
    p = path()
    o.on(p, reply(200, b"", "Cache-Control: max-age=60"))
    o.on(p, lambda c, r: c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n"
                                b"Cache-Control: max-age=60\r\n\r\n"))
    r = ask(d.address, "HEAD", p)
    assert r.field("Content-Length") == "99" and not r.hit, r
    assert not ask(d.address, "HEAD", p).hit, "a HEAD was stored"


def t_head_tells_of_the_stored_get():
    old = ["Cache-Control: max-age=100", "Age: 200", 'ETag: "1"', "X-A: old"]
    for fresh, length, fields in [(True, 4, ['ETag: "1"', "Cache-Control: max-age=60", "X-A: new"]),
                                  (False, 4, ['ETag: "2"', "Cache-Control: max-age=60"]),
                                  (False, 9, ['ETag: "1"', "Cache-Control: max-age=60"])]:
        p = path()
        head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {length}", *fields]) + "\r\n\r\n"
        o.on(p, reply(200, b"body", *old), head.encode(), reply(200, b"anew", "Cache-Control: max-age=60"))
        ask(d.address, "GET", p)
        assert ask(d.address, "HEAD", p).status == 200
        assert o.seen(p)[1].method == "HEAD" and o.seen(p)[1].field("If-None-Match") == '"1"'
        r = ask(d.address, "GET", p)
        assert r.hit == fresh and r.body == (b"body" if fresh else b"anew"), (fields, r)
        assert not fresh or r.field("X-A") == "new"
        assert o.seen(p)[-1].field("If-None-Match") == ('"1"' if fresh else None)


def t_ranges_of_what_is_stored():
    p = path()
    body = bytes(range(200))
    o.on(p, reply(200, body, "Cache-Control: max-age=60", 'ETag: "1"'))
    ask(d.address, "GET", p)
    rows = [("0-9", 0, 10), ("10-", 10, 200), ("-5", 195, 200), ("199-300", 199, 200), ("-900", 0, 200)]
    for text, a, b in rows:
        r = ask(d.address, "GET", p, f"Range: bytes={text}")
        assert r.status == 206 and r.body == body[a:b] and r.hit, (text, r)
        assert r.field("Content-Range") == f"bytes {a}-{b - 1}/200", r
    for text in ("200-", "-0"):
        r = ask(d.address, "GET", p, f"Range: bytes={text}")
        assert r.status == 416 and r.field("Content-Range") == "bytes */200", (text, r)
    for text in ("bytes=5-2", "bytes=a-b", "lines=0-1", "bytes=0-1,5-6"):
        r = ask(d.address, "GET", p, f"Range: {text}")
        assert r.status == 200 and r.body == body, (text, r)
    assert ask(d.address, "GET", p, "Range: bytes=0-1", 'If-Range: "1"').status == 206
    assert ask(d.address, "GET", p, "Range: bytes=0-1", 'If-Range: "2"').status == 200
    assert fetched(p) == 1


def t_unsafe_methods_withdraw():
    for method in ("POST", "PUT", "DELETE", "PATCH", "M-SEARCH"):
        p = path()
        o.on(p, reply(200, b"x", "Cache-Control: max-age=60"))
        ask(d.address, "GET", p)
        assert ask(d.address, "GET", p).hit
        ask(d.address, method, p, body=b"")
        assert not ask(d.address, "GET", p).hit, method


def t_withdrawn_by_location_of_the_same_origin_only():
    for name, form, gone in [("Location", "{p}", True), ("Content-Location", "{p}", True),
                             ("Location", "http://test{p}", True),
                             ("Location", "http://TEST{p}", True),
                             ("Location", "http://other{p}", False),
                             ("Location", "http://testify{p}", False),
                             ("Content-Location", "//other{p}", False)]:
        p, poster = path("there"), path("post")
        o.on(p, reply(200, b"x", "Cache-Control: max-age=60"))
        o.on(poster, reply(201, b"", f"{name}: {form.format(p=p)}"))
        ask(d.address, "GET", p)
        ask(d.address, "POST", poster, body=b"x")
        assert ask(d.address, "GET", p).hit != gone, (name, form)


def t_failed_unsafe_and_safe_methods_withdraw_nothing():
    for method, status in (("POST", 500), ("POST", 404), ("OPTIONS", 200), ("HEAD", 200)):
        p = path()
        get = reply(200, b"x", "Cache-Control: max-age=60")
        o.on(p, get, reply(status, b""))
        ask(d.address, "GET", p)
        ask(d.address, method, p)
        assert ask(d.address, "GET", p).hit, (method, status)


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


def t_stale_while_revalidate():
    p = path()
    cc = "Cache-Control: max-age=1, stale-while-revalidate=60"
    o.on(p, reply(200, b"one", cc), reply(200, b"two", cc))
    ask(d.address, "GET", p)
    sleep_to_stale(1.2)
    r = ask(d.address, "GET", p)
    assert r.hit and r.body == b"one" and "ttl=0" in r.cache or "ttl=-1" in r.cache, r
    o.wait(p, 2)
    for _ in range(1000):       # the refresh is stored soon after the origin has seen it
        r = ask(d.address, "GET", p)
        if r.body == b"two":
            break
    assert r.body == b"two", r
    r, p = twice(["Cache-Control: max-age=100, stale-while-revalidate=60", "Age: 170"])
    assert not r.hit, "beyond the window"
    r, p = twice(["Cache-Control: max-age=100, stale-while-revalidate=60, must-revalidate", "Age: 110"])
    assert not r.hit, r


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
    assert after(["Cache-Control: max-age=100, stale-if-error=60", "Age: 900", e],
                 reply(503, b"bad")).status == 503
    plain = ["Cache-Control: max-age=100", "Age: 110", e]
    assert after(plain, reply(503, b"bad")).status == 503
    assert after(plain, reply(503, b"bad"),
                 second=["Cache-Control: stale-if-error=60"]).body == b"old"
    assert after(plain, origin.END).body == b"old"      # disconnected: 4.2.4
    for rule in ("must-revalidate", "proxy-revalidate", "no-cache"):
        r = after([f"Cache-Control: max-age=100, stale-if-error=60, {rule}", "Age: 110", e], origin.END)
        assert r.status == (502 if rule == "no-cache" else 504), (rule, r)
    r = after(["Cache-Control: s-maxage=100, stale-if-error=60", "Age: 110", e], origin.END)
    assert r.status == 504, r


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
    assert sum("collapsed" in r.cache for r in got) >= 1, [r.cache for r in got]


def t_those_who_wait_for_what_is_not_stored_fetch_themselves():
    p, go = path(), threading.Event()

    def private(c, r):
        go.wait(20)
        c.send(reply(200, b"for %s" % r.field("Cookie").encode(), "Cache-Control: private"))

    o.on(p, private)
    got = {}
    threads = []
    for i in range(8):
        def run(i=i):
            got[i] = ask(d.address, "GET", p, f"Cookie: {i}")
        threads.append(threading.Thread(target=run))
        threads[-1].start()
    o.wait(p)
    go.set()
    for t in threads:
        t.join()
    assert all(got[i].body == b"for %d" % i for i in range(8)), got
    assert fetched(p) == 8


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
