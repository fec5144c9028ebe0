#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Requests of real clients (clients/) are answered by wire if the object is cached.

Each head goes to a daemon with wire and to one without; the answers are the
same but for Date and Cache-Status, and the first one's is a hit of wire. It asks
for a file that has variants, of which it gets the one that it takes, and for one
that has none.
"""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

FOLDER = os.path.join(ktap.ROOT, "tests/net/clients")
WIRE, USER = 8080, 8081
PATHS = "/a.html", "/small.html"
n = wire = user = None


def begin():
    global n, wire, user
    n = net.Net(links=1)
    with n.server.inside():
        wire = daemon.Daemon("--wire", "tbg0,lo", listen=f"0.0.0.0:{WIRE}")
        wire.write("a.html", talk.content("a", 900))
        wire.write("small.html", talk.content("small", 90))
        wire.start()
        user = daemon.Daemon("--tiers", "user", listen=f"0.0.0.0:{USER}", root=wire.root).start()
    tier = talk.ask(wire, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))


def end():
    for d in (wire, user):
        if d:
            assert d.stop() == 0, d.lines
    if n:
        n.close()


def connect(port):
    return talk.Connection(n.client.connect((n.links[0].server4, port)))


def accepted(head):
    """The coding that a head is answered with, of a file that has variants."""
    taken = re.search(rb"(?i)\r\naccept-encoding: ([^\r]*)", head)
    taken = taken[1].decode() if taken else ""
    return next((x for x in ("br", "zstd", "gzip") if x in taken), None)


def heads(path):
    """{name: bytes} for that path, with what they name put in."""
    out = {}
    for name, head in files():
        with connect(WIRE) as c:
            fields = c.get(path, f"Accept-Encoding: {accepted(head)}").fields
        head = head.replace(b"/a.html", path.encode(), 1)
        head = head.replace(b"HOST", f"{n.links[0].server4}:{WIRE}".encode())
        head = head.replace(b"ETAG", fields["ETag"].encode())
        out[name] = head.replace(b"MODIFIED", fields["Last-Modified"].encode())
    return out


def files():
    """[(name, bytes)] of what was recorded."""
    out = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "*"))):
        if os.path.basename(path) == "README":
            continue
        with open(path, "rb") as f:
            head = f.read()
        assert head.endswith(b"\r\n\r\n") and head.count(b"\r\n\r\n") == 1, path
        out.append((os.path.basename(path), head))
    assert len(out) >= 25, out
    return out


def method(head):
    return head.split(b" ", 1)[0].decode()


def warm(head):
    """Until the object, in the variant this client takes, is wire's."""
    with connect(WIRE) as c:
        for _ in range(100):
            c.send(head)
            if c.response(method(head)).tier == daemon.FAST:
                return
    ktap.note(f"wire never answers {head[:80]!r}")


def t_each_client_is_answered_by_wire():
    failures = []
    for path, name, head in [(p, *x) for p in PATHS for x in heads(p).items()]:
        warm(head)
        name, coding = path + " " + name, accepted(head) if path == PATHS[0] else None
        with connect(WIRE) as c, connect(USER) as other:
            for _ in range(3):      # the first request of a connection, and later ones
                c.send(head)
                other.send(head)
                got, want = c.response(method(head)), other.response(method(head))
                if got.bare() != want.bare():
                    failures.append(f"{name}: {got!r}, without wire {want!r}")
                elif got.tier != daemon.FAST:
                    failures.append(f"{name}: answered by {got.tier}")
                elif (got.status == 304) != (b"If-" in head):
                    failures.append(f"{name}: {got.status}")
                elif got.status == 200 and got.fields.get("Content-Encoding") != coding:
                    failures.append(f"{name}: {got!r}, not {coding}")
                elif ("Vary" in got.fields) != (path == PATHS[0]):
                    failures.append(f"{name}: {got!r}: Vary")
    for line in failures:
        ktap.note(line)
    assert not failures, f"{len(failures)} answers"


def t_with_cookies_and_queries_too():
    """A query is of no account for files, and neither is a cookie."""
    for name, head in heads("/a.html").items():
        head = head.replace(b"/a.html", b"/a.html?utm_source=x&id=%7B1%7D", 1)
        if b"Cookie" not in head:
            head = head[:-2] + b"Cookie: " + b"k=v; " * 100 + b"z=1\r\n\r\n"
        warm(head)
        with connect(WIRE) as c:
            c.send(head)
            r = c.response(method(head))
            assert r.tier == daemon.FAST, f"{name}: {r!r}"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
