#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A network that loses, repeats, delays and reorders: the same bytes, later.

Forty connections at a time, each with one request on its way, mostly hits; the
network is tests/lib/bad_network.py's.
"""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import bad_network
import client
import daemon
import ktap
import net
import talk

PORT = 8080
CONNECTIONS = 40
CALLS = 25 if client.IN_VM else 60
SIZES = (0, 100, 700, 1000, 1100, 3000, 8000, 13000)
LARGE = (20000, 60000)
SITE = bad_network.Site([*SIZES, *LARGE])
n = d = w = None


def begin():
    global n, d, w
    n = net.Net(links=1)
    w = bad_network.BadNetwork(n)
    ktap.note(f"bad network by {w.what}, TBG_SEED={bad_network.SEED}")
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        SITE.write(d)
        d.start()
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    def connect():
        return talk.Connection(n.client.connect((n.links[0].server4, PORT)))
    with connect() as c:
        for target in SITE.bodies:
            c.get(target)
    with connect() as c:
        assert c.get("/100").tier == "wire"


def end():
    if d:
        assert d.stop() == 0, d.lines
    if w:
        w.close()
    if n:
        n.close()


class Asker:
    """One of ten is not for wire, or not cached: doubt between two hits."""

    def __init__(self, order, calls):
        self.order, self.left = order, calls

    def __call__(self, _caller):
        if not self.left:
            return None
        self.left -= 1
        kind = self.order.random()
        target = f"/{self.order.choice(LARGE if kind < 0.05 else SIZES)}"
        if 0.05 < kind < 0.1 and target != "/0":
            return [talk.request(target, "Range: bytes=0-")], [(target, (206,))]
        return [talk.request(target)], [(target, (200,))]


def run(address, calls=CALLS):
    """How many of the answers were wire's."""
    order = random.Random(f"{address} {bad_network.SEED}")
    callers = [bad_network.Caller(SITE, Asker(order, calls), bad_network.connector(n, address))
               for _ in range(CONNECTIONS)]
    bad_network.crowd(callers, bad_network.explainer(n, d))
    return sum(c.wired for c in callers)


def under(least=CONNECTIONS, repeats=False, **how):
    """A run per family."""
    before = talk.counts(d)
    with w.impaired(**how):
        for address in (n.links[0].server4, n.links[0].server6):
            start_s = time.monotonic()
            wired = run((address, PORT))
            ktap.note(f"{address}: {wired} of {CONNECTIONS * CALLS} by wire, "
                      f"{time.monotonic() - start_s:.1f} s")
            assert wired >= least, f"{wired} by wire"
    now = talk.counts(d)
    moved = {k: now[k] - before[k] for k in ("REPEAT", "STALE_REPEAT", "LEFT", "CSUM")}
    ktap.note(str(moved))
    assert not moved["STALE_REPEAT"] and not moved["CSUM"], moved
    late = talk.ask(d, "status")["late_sockets"]
    for ns, resets in ((n.server, late["given"] if late else 0), (n.client, 0)):
        m = ns.mibs()
        # a socket that is let go counts as one that was reset
        assert not m["Tcp.InCsumErrors"] and m["Tcp.EstabResets"] <= resets, m
    if repeats:
        assert moved["REPEAT"], "wire never sent a reply again"


def t_loss_of_1_in_100():
    under(loss=1, repeats=True)


def t_loss_of_5_in_100():
    under(loss=5, repeats=True)


def t_duplicates():
    under(duplicate=5)


def t_reordering():
    under(delay_ms=2, reorder=25)


def t_jitter():
    under(delay_ms=5, jitter_ms=4)


def t_everything():
    under(delay_ms=3, jitter_ms=2, loss=2, duplicate=2, reorder=10)


def t_corruption():
    """A flipped bit: checksums on both sides find it, wire's own check included."""
    n.links[0].offload(tx="off")
    with w.impaired(corrupt=1):
        run((n.links[0].server4, PORT), CALLS // 2)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
