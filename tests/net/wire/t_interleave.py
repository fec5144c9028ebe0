#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hits and misses in random order, every answer compared byte by byte.

What is right is asked of a daemon without a fast path, once per distinct
request; Date and Cache-Status apart, the answers of the daemon with wire must
be those bytes, whichever tier they are of. 100,000 requests in all, a fifth
of that in a test kernel. TBG_SEED repeats a run.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import talk

WIRE, USER = 8080, 8081
SHARE = 5 if client.IN_VM else 1
SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 32)))
SIZES = [0, 1, 2, 3, 100, 255, 256, 511, 512, 700, 1000, 1023, 1024, 1100, 1150, 1160, 1180,
         1200, 1300, 1447, 1448, 1449, 2000, 2047, 4000, 4096, 4097, 8000, 8192, 10000, 16000,
         20000, 32768, 50000, 65535, 65536, 65537, 80000, 100000, 102400]
# of ten requests six are small enough for one segment
WEIGHTS = [8 if size <= 1160 else 2 if size <= 10000 else 1 for size in SIZES]

n = wire = user = None
asks = []           # [(bytes, method, weight)]
right = {}          # bytes of a request → (head, body) that it must get


def begin():
    global n, wire, user
    n = net.Net(links=1)
    with n.server.inside():
        wire = daemon.Daemon("--wire", "tbg0,lo", listen=f"0.0.0.0:{WIRE}")
        for size in SIZES:
            wire.write(f"{size}.txt", talk.content(str(size), size))
        wire.start()
        user = daemon.Daemon("--tiers", "user", listen=f"0.0.0.0:{USER}",
                             root=wire.root).start()
    n.late, n.held = lambda: talk.late(wire), lambda: talk.held(wire)
    tier = talk.ask(wire, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))
    learn()


def end():
    for d in (wire, user):
        if d:
            assert d.stop() == 0, d.lines
    if n:
        n.close()


def connect(port):
    return talk.Connection(n.client.connect((n.links[0].server4, port)))


def learn():
    """All distinct requests, and what a daemon without a fast path says."""
    with connect(USER) as c:
        def add(weight, target, *fields, method="GET", body=b""):
            data = talk.request(target, *fields, method=method, body=body)
            asks.append((data, method, weight))
            c.send(data)
            r = c.response(method)
            assert r.tier not in daemon.FASTS
            right[data] = r.bare()
            return r

        for size, weight in zip(SIZES, WEIGHTS):
            target = f"/{size}.txt"
            r = add(weight * 10, target)
            assert (r.status, r.body) == (200, talk.content(str(size), size)), r
            etag = r.fields["ETag"]
            r = add(weight, target, method="HEAD")
            assert (r.status, r.fields["Content-Length"]) == (200, str(size)), r
            r = add(weight, target, f"If-None-Match: {etag}")
            assert r.status == 304, r
            r = add(weight, target, 'If-None-Match: "other"', "Cookie: " + "c" * (size % 700))
            assert r.status == 200, r
        # what wire never answers
        for i in range(5):
            add(10, f"/none-{i}")
        r = add(30, "/100.txt", "Content-Length: 5", method="POST", body=b"a=b&c")
        assert r.status == 405, r
        add(20, "/100.txt", "Content-Length: 40000", method="POST", body=b"b" * 40000)
        add(10, "/700.txt", "Transfer-Encoding: chunked", method="POST",
            body=b"5\r\nabcde\r\n0\r\n\r\n")
        add(10, "/1000.txt?query=1")
        add(10, "/%31000.txt")
        add(10, "/1000.txt", "Range: bytes=10-19")
        add(5, "/1000.txt", "Accept: " + "a" * 6000)
        add(10, "/511.txt", method="OPTIONS")


class Order:
    """Random requests, the same ones for the same name and seed."""

    def __init__(self, name):
        ktap.note(f"TBG_SEED={SEED}")
        self.random = random.Random(f"{name} {SEED}")
        self.weights = [weight for _, _, weight in asks]

    def pick(self, nr):
        return self.random.choices(asks, self.weights, k=nr)


def check(c, ask, at):
    data, method, _ = ask
    r = c.response(method)
    if r.bare() != right[data]:
        want = right[data]
        raise AssertionError(f"request {at}: {data[:200]!r}: got {r}, wanted {want[0]!r} "
                             f"{len(want[1])} bytes")
    return r.tier in daemon.FASTS


def one_at_a_time(name, nr, port, connections):
    """nr requests over some connections, each with at most one on its way."""
    order = Order(name)
    cs = [connect(port) for _ in range(connections)]
    wired = done = 0
    try:
        while done < nr:
            todo = [(cs[order.random.randrange(connections)], ask) for ask in order.pick(500)]
            for i in range(0, 500, connections):
                # at once to several; each of them at most one
                some = {c: ask for c, ask in todo[i:i + connections]}
                for c, ask in some.items():
                    c.send(ask[0])
                for c, ask in some.items():
                    wired += check(c, ask, done)
                    done += 1
    finally:
        for c in cs:
            c.close()
    ktap.note(f"{done} requests, {wired} by wire")
    return wired, done


def bursts(name, nr, port, connections, whole):
    """Pipelined bursts: in one piece, or with a piece per request."""
    order = Order(name)
    cs = [connect(port) for _ in range(connections)]
    wired = done = 0
    try:
        while done < nr:
            sent = []
            for c in cs:
                some = order.pick(order.random.choice((1, 1, 2, 3, 5, 8)))
                if whole:
                    c.send(b"".join(data for data, _, _ in some))
                else:
                    for data, _, _ in some:
                        c.send(data)
                sent.append((c, some))
            for c, some in sent:
                for ask in some:
                    wired += check(c, ask, done)
                    done += 1
                assert not c.got, f"more than the answers: {c.got[:200]!r}"
    finally:
        for c in cs:
            c.close()
    ktap.note(f"{done} requests, {wired} by wire")
    return wired, done


def with_wire(fn, nr, *more):
    before = talk.counts(wire)
    try:
        with n.clean(WIRE):
            wired, done = fn(nr // SHARE, WIRE, *more)
    except AssertionError:
        now = talk.counts(wire)
        ktap.note(f"wire: {({k: v - before.get(k, 0) for k, v in now.items()})}")
        raise
    hits = talk.hits(wire) - talk.hits_of(before)
    assert hits == wired, f"hits counted are not hits received: {hits}, {wired}"
    return wired, done


def t_one_connection():
    wired, done = with_wire(lambda *a: one_at_a_time("one", *a), 40000, 1)
    assert wired > done // 4, f"only {wired} of {done} by wire"


def t_several_connections():
    wired, done = with_wire(lambda *a: one_at_a_time("several", *a), 25000, 10)
    assert wired > done // 4, f"only {wired} of {done} by wire"


def t_pipelined_in_one_piece():
    with_wire(lambda *a: bursts("whole", *a), 10000, 4, True)


def t_pipelined_request_by_request():
    with_wire(lambda *a: bursts("pieces", *a), 10000, 4, False)


def t_objects_that_come_and_go():
    """Each purge makes a hit a miss again, with requests on their way."""
    order = Order("purge")
    nr = 5000 // SHARE
    cs = [connect(WIRE) for _ in range(4)]
    wired = 0
    try:
        for i in range(nr // 4):
            some = order.pick(4)
            if i % 100 == 0:
                talk.ask(wire, "purge", "--all")
            for c, ask in zip(cs, some):
                c.send(ask[0])
            for c, ask in zip(cs, some):
                wired += check(c, ask, i)
    finally:
        for c in cs:
            c.close()
    assert wired


def t_without_the_fast_path():
    wired, _ = one_at_a_time("user", 5000 // SHARE, USER, 1)
    more, _ = bursts("user bursts", 5000 // SHARE, USER, 4, True)
    assert not wired and not more


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
