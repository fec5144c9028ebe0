#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Connections whose way changes: between interfaces with wire and without, and tunnels.

Both ends have an address that belongs to none of the links, so that a route alone decides by
which of them the packets of a connection come and go. The client gets the right bytes.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
ENDS = {4: ("10.98.0.1", "10.98.0.2"), 6: ("fd98::1", "fd98::2")}      # the server's, the client's
HIT, NINE, LARGE = (talk.content(name, size) for name, size in
                    (("hit", 600), ("nine", 9000), ("large", 300000)))
BODIES = {"/hit": HIT, "/nine": NINE, "/large": LARGE}
WAYS = "tbg0", "tbg1", "tbg2"           # wire is on the first two
n = d = None


def begin():
    global n, d
    n = net.Net(links=3)
    for ns in (n.server, n.client):
        for name in ("all", *WAYS):
            ns.sysctl(f"ipv4.conf.{name}.rp_filter", 0)
    for family, ends in ENDS.items():
        for ns, own in zip((n.server, n.client), ends):
            ns.run("ip", "address", "add", f"{own}/{32 if family == 4 else 128}", "dev", "lo")
        move(family, "tbg0")
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0,tbg1", "--give-back", "1",
                          listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        for target, body in BODIES.items():
            d.write(target[1:], body)
        d.start()
    n.late = lambda: talk.late(d)
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    off = talk.no_late_sockets(d)
    if off:
        end()
        raise ktap.Skip(off)
    with connect(4) as c:
        for target in ("/hit", "/nine"):
            net.until(lambda target=target: c.get(target).tier == "wire", "never published")


def end():
    if d:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


def move(family, way):
    """Both ends send by this link."""
    link = n.links[WAYS.index(way)]
    vias = (link.client4, link.server4) if family == 4 else (link.client6, link.server6)
    for ns, own, other, via in zip((n.server, n.client), ENDS[family], ENDS[family][::-1], vias):
        ns.run("ip", f"-{family}", "route", "replace", other, "via", via, "dev", way, "src", own)


def connect(family):
    server, own = ENDS[family]
    return talk.Connection(n.client.connect((server, PORT), (own, 0)))


def tier_of(c, target):
    r = c.get(target)
    assert r.body == BODIES[target], r
    return r.tier


def answered(c, what):
    """By wire, once the daemon has read the routes."""
    net.until(lambda: [tier_of(c, target) for target in ("/hit", "/nine")] == ["wire"] * 2,
              f"{what}: wire does not answer")


def why(family):
    """What `why` says of the client."""
    return talk.ask(d, "why", "--client", ENDS[family][1], "/hit")["why"]


def t_given_back_on_the_interface_that_its_client_has_moved_to():
    """While the connection had a socket. Where wire is not, the daemon goes on to answer."""
    for family in ENDS:
        with connect(family) as c:
            answered(c, f"IPv{family}")
            for way in ("tbg1", "tbg2", "tbg0"):
                tier_of(c, "/large")
                move(family, way)
                if way != "tbg2":
                    answered(c, f"IPv{family} on {way}")
                    assert why(family) == "HIT_WIRE"
                    continue
                net.until(lambda: why(family) == "IFACE", "`why` does not know the way")
                assert [tier_of(c, "/hit") for _ in range(20)] == ["user"] * 20


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
