#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A network that loses, repeats, delays and reorders: the same bytes, later.

Forty connections at a time, each with one request on its way, mostly hits;
netem at both ends of the link. Needs the kernel's sch_netem.
"""
import json
import os
import random
import selectors
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import client
import daemon
import ktap
import net
import talk

PORT = 8080
CONNECTIONS = 40
CALLS = 100
STALL_S = 60            # without a byte for any connection
SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 32)))
BODIES = {f"/{size}": talk.content(str(size), size) for size in
          (0, 100, 700, 1000, 1100, 3000, 8000, 13000)}
LARGE = {f"/{size}": talk.content(str(size), size) for size in (20000, 60000)}
n = d = None


def begin():
    global n, d
    n = net.Net(links=1)
    try:
        n.client.run("tc", "qdisc", "add", "dev", "tbg0", "root", "netem", "loss", "1%")
        n.client.run("tc", "qdisc", "del", "dev", "tbg0", "root")
    except RuntimeError as why:
        end()
        raise ktap.Skip(f"no sch_netem: {why}") from why
    for ns, source in ((n.server, n.links[0].server4), (n.client, n.links[0].client4)):
        # here timeouts matter: the kernel's own least again, and its probes
        ns.run("ip", "route", "change", "10.87.0.0/24", "dev", "tbg0", "src", source)
        ns.run("ip", "-6", "route", "del", "fd87:0::/64", "dev", "tbg0", "metric", "1")
        ns.sysctl("ipv4.tcp_early_retrans", 3)
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        for target, body in {**BODIES, **LARGE}.items():
            d.write(target[1:], body)
        d.start()
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(f"wire is off: {tier['why']}")
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        for target in {**BODIES, **LARGE}:
            c.get(target)
        assert c.get("/100").tier == "wire"


def end():
    if d:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


class Caller(talk.Connection):
    """Asks for one thing after the other; feed() takes what has come."""

    def __init__(self, address, order, calls):
        super().__init__(n.client.connect(address, timeout=STALL_S))
        self.order, self.left, self.wired = order, calls, 0
        self.target = None
        self.ask_next()

    def ask_next(self):
        # one of ten is not for wire, or not cached: doubt between two hits
        kind = self.order.random()
        self.target = self.order.choice(list(LARGE if kind < 0.05 else BODIES))
        fields = ("Range: bytes=0-",) if 0.05 < kind < 0.1 else ()
        self.partial = bool(fields)
        self.send(talk.request(self.target, *fields))

    def feed(self):
        """False when all is asked and answered."""
        assert self._more(), f"closed with {self.left} to come"
        head, found, rest = self.got.partition(b"\r\n\r\n")
        if not found:
            return True
        r = client.Response(head, b"")
        want = {**BODIES, **LARGE}[self.target]
        length = int(r.fields["Content-Length"])
        assert length == len(want) or r.status != 200, f"{self.target}: {r}"
        if len(rest) < length:
            assert r.status != 200 or want.startswith(rest), f"{self.target}: other bytes"
            return True
        assert len(rest) == length, f"{self.target}: {len(rest) - length} bytes too many"
        if r.status == 200:
            assert rest == want, f"{self.target}: other bytes"
        else:
            assert self.partial, r
        self.wired += r.tier == "wire"
        self.got = b""
        self.left -= 1
        if self.left:
            self.ask_next()
        return self.left > 0


def state():
    """All that is counted at both ends and between them."""
    ret = talk.counts(d)
    for name, ns in (("server", n.server), ("client", n.client)):
        ret.update({f"{name} {k}": v for k, v in ns.mibs().items()})
    return ret


def explain(cs, before):
    """What both ends, and wire, know of connections that stand still."""
    now = state()
    moved = {k: v - before[k] for k, v in now.items() if v != before[k]}
    ktap.note(f"while they stood still: {moved}")
    flows = n.server.run("bpftool", "-j", "map", "dump", "name", "tbg_flows", check=False)
    for c in cs:
        port = c.s.getsockname()[1]
        ktap.note(f"port {port} waits for {c.target}, has {len(c.got)} bytes of it, "
                  f"{c.left} to come")
        for ns, side in ((n.server, f"dport = :{port}"), (n.client, f"sport = :{port}")):
            ktap.note(ns.run("ss", "-tionH", side, check=False))
        for flow in json.loads(flows or "[]"):
            flow = flow.get("formatted", flow)
            if flow["key"]["remote_port"] == socket.htons(port):
                ktap.note(f"{flow['value']}")


def run(address, connections=CONNECTIONS, calls=CALLS):
    ktap.note(f"TBG_SEED={SEED}")
    order = random.Random(f"{address} {SEED}")
    wired = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            c = Caller(address, order, calls)
            selector.register(c.s, selectors.EVENT_READ, c)
        while selector.get_map():
            ready = selector.select(STALL_S / 3)
            before = None if ready else state()
            ready = ready or selector.select(STALL_S)
            if not ready:
                explain([key.data for key in selector.get_map().values()], before)
                raise AssertionError(f"{len(selector.get_map())} connections stand still")
            for key, _ in ready:
                if not key.data.feed():
                    selector.unregister(key.fileobj)
                    wired += key.data.wired
                    key.data.close()
    return wired


def under(*netem, least=CONNECTIONS, repeats=False):
    """A run per family with netem at both ends."""
    for ns in (n.server, n.client):
        ns.run("tc", "qdisc", "add", "dev", "tbg0", "root", "netem", *netem)
    before = talk.counts(d)
    try:
        for address in (n.links[0].server4, n.links[0].server6):
            start = time.monotonic()
            wired = run((address, PORT))
            ktap.note(f"{address}: {wired} of {CONNECTIONS * CALLS} by wire, "
                      f"{time.monotonic() - start:.1f} s")
            assert wired >= least, f"{wired} by wire"
    finally:
        for ns in (n.server, n.client):
            ns.run("tc", "qdisc", "del", "dev", "tbg0", "root")
    now = talk.counts(d)
    moved = {k: now[k] - before[k] for k in ("REPEAT", "STALE_REPEAT", "LEFT", "CSUM")}
    ktap.note(str(moved))
    assert not moved["STALE_REPEAT"] and not moved["CSUM"], moved
    for ns in (n.server, n.client):
        m = ns.mibs()
        assert not m["Tcp.InCsumErrors"] and not m["Tcp.EstabResets"], m
    if repeats:
        assert moved["REPEAT"], "wire never sent a reply again"


def t_loss_of_1_in_100():
    under("loss", "1%", repeats=True)


def t_loss_of_5_in_100():
    under("loss", "5%", repeats=True)


def t_duplicates():
    under("duplicate", "5%")


def t_reordering():
    under("delay", "2ms", "reorder", "25%", "50%")


def t_jitter():
    under("delay", "5ms", "4ms")


def t_everything():
    under("delay", "3ms", "2ms", "loss", "2%", "duplicate", "2%", "reorder", "10%")


def t_corruption():
    """A flipped bit: checksums on both sides find it, wire's own check included."""
    n.links[0].offload(tx="off")
    for ns in (n.server, n.client):
        ns.run("tc", "qdisc", "add", "dev", "tbg0", "root", "netem", "corrupt", "1%")
    try:
        run((n.links[0].server4, PORT), calls=CALLS // 2)
    finally:
        for ns in (n.server, n.client):
            ns.run("tc", "qdisc", "del", "dev", "tbg0", "root")
        n.links[0].offload(tx="on")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
