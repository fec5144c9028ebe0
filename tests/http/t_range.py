#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ranges and preconditions (RFC 9110 13 and 14) against a model of the RFC.

What is asked for is a file that the cache holds, one that it does not yet, and
one too large for it; of a daemon without wire and, where it can be had, of one
with wire; ranges also of what a daemon has stored of an upstream's. Connections are
kept, so that a wrong length shows with the next one.
"""
import email.parser
import email.utils
import itertools
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import client
import daemon
import ktap
import origin

SIZES = {"empty": 0, "one": 1, "small": 100, "mid": 40000, "large": 300000}
SECOND = 1700000000             # Last-Modified of every file
user = wire = proxy = upstream = None
content = {}


def begin():
    global user, wire, proxy, upstream
    user = daemon.Daemon("--tiers", "user")
    for name, size in SIZES.items():
        content[name] = random.Random(name).randbytes(size)
        os.utime(user.write(name + ".txt", content[name]), (SECOND, SECOND))
    user.start()
    wire, _ = client.wire_beside(user)
    upstream = origin.Origin()
    proxy = daemon.Daemon("--upstream", upstream.url, *daemon.USER).start()
    with client.Client(proxy.address) as c:
        for name, data in content.items():
            upstream.on(f"/{name}.txt", origin.reply(
                200, data, "Content-Type: text/plain", "Accept-Ranges: bytes", f'ETag: "{name}"',
                "Cache-Control: max-age=3600"), origin.END)
            assert c.get(f"/{name}.txt").body == data


def end():
    for d in (proxy, wire, user):
        if d:
            assert d.stop() == 0, d.lines
    upstream.close()


def daemons(*more):
    return [d for d in (user, wire, *more) if d]


def spec_of(text, size):
    """(first, last) of a range-spec, None: unsatisfiable; ValueError: malformed."""
    match = re.fullmatch(r"(\d*)-(\d*)", text)
    if not match or text == "-":
        raise ValueError(text)
    first, last = match.groups()
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) and size else None
    if last and int(last) < int(first):
        raise ValueError(text)
    if int(first) >= size:
        return None
    return int(first), min(int(last or size), size - 1)


def model(value, size, malformed):
    """(status, [(first, last)]) of a Range field's value; malformed: the status then."""
    unit, equals, rest = value.partition("=")
    if unit.lower() != "bytes" or not equals:
        return 200, []
    specs = [x.strip(" \t") for x in rest.split(",") if x.strip(" \t")]
    try:
        ranges = [spec_of(x, size) for x in specs]
    except ValueError:
        return malformed, []
    if not specs:
        return malformed, []
    if not size and any(x.startswith("-") and int(x[1:]) for x in specs):
        return 200, []
    ranges = [x for x in ranges if x]
    if sum(b - a + 1 for a, b in ranges) > size:
        return 200, []
    return (206, ranges) if ranges else (416, [])


def parts_of(r):
    """[(Content-Type, Content-Range, body)] of a multipart/byteranges answer."""
    whole = b"Content-Type: " + r.fields["Content-Type"].encode() + b"\r\n\r\n" + r.body
    message = email.parser.BytesParser().parsebytes(whole)
    assert message.is_multipart() and not message.defects, message.defects
    boundary = b"--" + message.get_boundary().encode()
    # the bodies by hand: the parser is for texts
    pieces = r.body.split(boundary)
    assert pieces[0] == b"" and pieces[-1] == b"--\r\n", pieces[-1]
    out = []
    for piece, part in zip(pieces[1:-1], message.get_payload(), strict=True):
        head, body = piece.split(b"\r\n\r\n", 1)
        assert piece.startswith(b"\r\n") and body.endswith(b"\r\n") and head.count(b"\r\n") == 2
        out.append((part["Content-Type"], part["Content-Range"], body[:-2]))
    return out


def check(name, value, r):
    data = content[name]
    status, ranges = model(value, len(data), 200 if "Via" in r.fields else 416)
    assert r.status == status, f"{name} {value}: {r!r}, wanted {status}"
    if status == 416:
        assert r.fields["Content-Range"] == f"bytes */{len(data)}", r
        return
    assert r.fields["Accept-Ranges"] == "bytes" and r.fields["ETag"], r
    if status == 200:
        assert r.body == data and "Content-Range" not in r.fields, (value, r)
        return
    want = [("text/plain", f"bytes {a}-{b}/{len(data)}", data[a:b + 1]) for a, b in ranges]
    if len(ranges) == 1:
        got = [(r.fields["Content-Type"], r.fields["Content-Range"], r.body)]
    else:
        assert "Content-Range" not in r.fields, r
        got = parts_of(r)
    assert got == want, f"{name} {value}: {r!r}"


VALUES = ["bytes=0-0", "bytes=0-", "bytes=5-9", "bytes=-1", "bytes=-7", "bytes=-0",
          "bytes=99-", "bytes=100-", "bytes=39999-40005", "bytes=299999-", "bytes=300000-",
          "bytes=0-99999999999999999999999", "bytes=-99999999999999999999999",
          "bytes=0-1,3-4", "bytes=3-4,0-1", "bytes=0-5,3-8", "bytes=-1,0-0", "bytes=0-0,0-0",
          "bytes=0-,0-", "bytes=0-60,40-99", "bytes=0-0,999999-", "bytes=999999-,999998-",
          "bytes=,0-1,,2-3,", "bytes= 0-1 , 2-3\t", "BYTES=0-1", "bytes=", "bytes=,", "bytes",
          "bytes=5-4", "bytes=a-b", "bytes=0-1,x", "bytes=0 - 1", "bytes=0-1;2-3", "bytes 0-1",
          "lines=0-1", "bytes=-", "bytes=--1", "bytes=0-20000,20002-39999",
          "bytes=0-99999,100001-200000,200002-299999", "bytes=0-149999,149999-299998"]


def t_ranges_of_every_kind():
    for d, name in itertools.product(daemons(proxy), SIZES):
        with client.Client(d.address) as c:
            for value in VALUES * 2:
                check(name, value, c.get(f"/{name}.txt", f"Range: {value}"))
            assert c.get(f"/{name}.txt").body == content[name]


def t_random_ranges():
    rng = random.Random(9110)
    for d, name in itertools.product((user, proxy), SIZES):
        size = len(content[name])
        with client.Client(d.address) as c:
            for _ in range(150):
                specs = []
                for _ in range(rng.choice((1, 1, 2, 3, 10, 50))):
                    first = rng.randrange(size + 2)
                    last = first + rng.randrange(1 + size // rng.choice((1, 10, 1000)))
                    specs.append(rng.choice((f"{first}-{last}", f"{first}-{last}", f"{first}-",
                                             f"-{rng.randrange(1 + size // 20)}")))
                value = "bytes=" + ",".join(specs)
                check(name, value, c.get(f"/{name}.txt", f"Range: {value}"))


def t_range_is_of_get_alone():
    for d, name in itertools.product(daemons(proxy), SIZES):
        with client.Client(d.address) as c:
            for _ in range(2):
                plain = c.ask("HEAD", f"/{name}.txt")
                ranged = c.ask("HEAD", f"/{name}.txt", "Range: bytes=0-0")
                assert ranged.bare() == plain.bare() and plain.status == 200, ranged
                assert int(plain.fields["Content-Length"]) == len(content[name])


def t_range_on_two_lines_does_not_count():
    for d in (user, proxy):
        with client.Client(d.address) as c:
            for _ in range(2):
                assert c.get("/small.txt", "Range: bytes=0-0", "Range: bytes=1-1").status == 200
                assert c.get("/small.txt", "Range: bytes=0-0", "If-Range: \"x\"",
                             "If-Range: \"y\"").status == 200


def t_thousands_of_parts():
    value = "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 3200, 2))
    assert len(value) < 16000
    for d, name in itertools.product(daemons(proxy), ("mid", "large")):
        with client.Client(d.address) as c:
            for _ in range(2):
                check(name, value, c.get(f"/{name}.txt", f"Range: {value}"))
            assert c.get("/one.txt").status == 200


def rss(pid):
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(x.split()[1]) * 1024 for x in f if x.startswith("VmRSS"))


def t_slow_readers_of_many_parts_cost_no_more_than_the_field():
    """60 bodies of 12 MB that are not read, then all of one of them."""
    data = random.Random(1).randbytes(12 << 20)
    d = daemon.Daemon("--tiers", "user", "--workers", "1")
    with d:
        d.write("big.bin", data)
        ranges = [(i, i + (300000 if i % 1200000 == 0 else 4000))
                  for i in range(0, len(data) - 400000, 400000)]
        value = "bytes=" + ",".join(f"{a}-{b}" for a, b in ranges)
        ask = f"GET /big.bin HTTP/1.1\r\nHost: a\r\nRange: {value}\r\n\r\n".encode()
        with client.Client(d.address) as c:
            c.get("/big.bin", "Range: bytes=0-0,2-2")
        before = rss(d.pid)
        held = [client.Client(d.address, rcvbuf=8192) for _ in range(60)]
        for c in held:
            c.send(ask)
            c.s.recv(16, 2)                 # MSG_PEEK: it has begun
        cost = (rss(d.pid) - before) / len(held)
        ktap.note(f"{cost:.0f} bytes each")
        assert cost < 100000, f"{cost:.0f} bytes each"
        for c in held[:3]:
            r = c.response()
            assert r.status == 206
            got = [x[2] for x in parts_of(r)]
            assert got == [data[a:b + 1] for a, b in ranges], "differs"
        for c in held:
            c.close()


def t_parts_between_pipelined_requests():
    ask = b"GET /%b.txt HTTP/1.1\r\nHost: test\r\n%b\r\n"
    rng = random.Random(3)
    for d in daemons(proxy):
        with client.Client(d.address) as c:
            sent = []
            for _ in range(60):
                sent.append((rng.choice(("one", "small", "mid", "large")), rng.choice(VALUES)))
            c.send(b"".join(ask % (name.encode(), b"Range: " + value.encode() + b"\r\n")
                            for name, value in sent) + ask % (b"one", b""))
            for name, value in sent:
                check(name, value, c.response())
            assert c.response().body == content["one"] and not c.got


def t_file_that_shrinks_is_never_padded():
    with daemon.Daemon("--tiers", "user") as d:
        path = d.write("big", b"x" * (32 << 20))
        with client.Client(d.address, rcvbuf=8192) as c:
            c.send(
                b"GET /big HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9999999,10000001-30000000\r\n\r\n")
            head = c.head()
            os.truncate(path, 1 << 20)
            assert b" 206 " in head
            assert not c.ended() and len(c.got) < 30 << 20


def t_parts_of_two_versions_are_never_complete():
    """Parts too short for sendfile, of a file that is written in place meanwhile."""
    size = 16 << 20
    ask = b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=%s\r\n\r\n" % \
        b",".join(b"%d-%d" % (i, i + 20000) for i in range(0, size, 24000))
    with daemon.Daemon("--tiers", "user") as d:
        path = d.write("big", b"x" * size)
        with client.Client(d.address, rcvbuf=8192) as c:
            c.send(ask)
            head = c.head()
            assert b" 206 " in head
            with open(path, "r+b") as f:
                f.write(b"y" * size)
            c.ended()
            assert not c.got.endswith(b"--\r\n"), "a mixture"


# What each field of a precondition can be, and whether it then is true.
DATES = {"same": email.utils.formatdate(SECOND, usegmt=True),
         "later": email.utils.formatdate(SECOND + 1, usegmt=True),
         "earlier": email.utils.formatdate(SECOND - 1, usegmt=True),
         "asctime": "Tue Nov 14 22:13:20 2023", "850": "Tuesday, 14-Nov-23 22:13:20 GMT",
         "none": "yesterday"}
MATCH = {"": None, "*": True, "ETAG": True, "W/ETAG": False, '"x"': False, '"x", ETAG': True,
         'W/"x" ,\tW/ETAG': False, '"x,ETAG"': False, "": None}
NONE_MATCH = {"": None, "*": False, "ETAG": False, "W/ETAG": False, '"x"': True,
              '"x", W/ETAG': False, '"x"|ETAG': False, "ETAGx": True}
RANGE = {"": None, "bytes=1-3": 206, "bytes=1-2,4-5": 206, "bytes=999999-": 416}
# The files were given their dates later: such a date is of no version for certain.
IF_RANGE = {"": True, "ETAG": True, "W/ETAG": False, '"x"': False, DATES["same"]: False,
            DATES["later"]: False, DATES["asctime"]: False, "nonsense": False}


def wanted(method, match, unmodified, none_match, modified, range_, if_range):
    """RFC 9110 13.2.2, step by step."""
    if match:
        if not MATCH[match]:
            return 412
    elif unmodified and unmodified == "earlier":
        return 412
    if none_match:
        if not NONE_MATCH[none_match]:
            return 304
    elif modified and modified in ("same", "later", "asctime", "850"):
        return 304
    if method == "GET" and range_ and IF_RANGE[if_range]:
        return RANGE[range_]
    return 200


def fields_of(etag, match, unmodified, none_match, modified, range_, if_range):
    out = []
    for name, value in (("If-Match", match), ("If-None-Match", none_match), ("Range", range_),
                        ("If-Range", if_range)):
        if value:       # a bar: on two lines
            out += [f"{name}: {x}" for x in value.replace("ETAG", etag).split("|")]
    for name, value in (("If-Unmodified-Since", unmodified), ("If-Modified-Since", modified)):
        if value:
            out.append(f"{name}: {DATES[value]}")
    return out


def preconditions(d, name, sample):
    dates = ["", "same", "later", "earlier", "asctime", "850", "none"]
    combinations = list(itertools.product(("GET", "HEAD"), MATCH, dates, NONE_MATCH, dates,
                                          RANGE, IF_RANGE))
    with client.Client(d.address) as c:
        etag = c.get(f"/{name}.txt").fields["ETag"]
        for method, *combination in random.Random(name).sample(combinations, sample):
            fields = fields_of(etag, *combination)
            r = c.ask(method, f"/{name}.txt", *fields)
            want = wanted(method, *combination)
            assert r.status == want, f"{method} {name} {fields}: {r.status}, wanted {want}"
            if want == 200 and method == "GET":
                assert r.body == content[name]
            if want in (200, 206, 304):
                assert r.fields["ETag"] == etag, r


def t_preconditions_in_the_order_of_the_rfc():
    for d in daemons():
        preconditions(d, "small", 5000)


def t_preconditions_of_what_is_not_cached():
    preconditions(user, "large", 800)


def t_preconditions_one_at_a_time():
    """All values of each field alone, and of each pair."""
    dates = ["", "same", "later", "earlier", "asctime", "850", "none"]
    axes = [MATCH, dates, NONE_MATCH, dates, RANGE, IF_RANGE]
    for d in daemons():
        with client.Client(d.address) as c:
            etag = c.get("/small.txt").fields["ETag"]
            for (i, one), (j, two) in itertools.combinations(enumerate(axes), 2):
                for a, b in itertools.product(one, two):
                    combination = [""] * 6
                    combination[i], combination[j] = a, b
                    fields = fields_of(etag, *combination)
                    r = c.ask("GET", "/small.txt", *fields)
                    assert r.status == wanted("GET", *combination), (fields, r)


def t_preconditions_do_not_count_without_a_representation():
    with client.Client(user.address) as c:
        for path, status in (("/none", 404), ("/dir/../none/", 404)):
            for field in ("If-Match: *", "If-None-Match: *", "If-Match: \"x\"", "Range: bytes=0-1",
                          "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"):
                assert c.get(path, field).status == status, (path, field)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
