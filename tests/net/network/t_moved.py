#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Clients that change to another interface, with wire or without, or to a tunnel.

Both ends have an address that belongs to none of the links, so that a route alone decides by
which of them the packets of a connection come and go. The client gets the right bytes.
"""
import contextlib
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
TUNNEL, IN_TUNNEL = "tbgx", {4: ("10.97.0.1", "10.97.0.2"), 6: ("fd97::1", "fd97::2")}
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
    link = None if way == TUNNEL else n.links[WAYS.index(way)]
    vias = IN_TUNNEL[family][::-1] if way == TUNNEL else \
        (link.client4, link.server4) if family == 4 else (link.client6, link.server6)
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


@contextlib.contextmanager
def tunnel(*kind):
    """Over tbg0; wire is not on it. False where the kernel has none of this kind."""
    link = n.links[0]
    ends = [(n.server, link.server4, link.client4), (n.client, link.client4, link.server4)]
    try:
        for i, (ns, local, remote) in enumerate(ends):
            try:
                ns.run("ip", "link", "add", TUNNEL, "type", *kind, "local", local, "remote",
                       remote, "dev", "tbg0")
            except RuntimeError as why:
                ktap.note(f"no {kind[0]} in this kernel: {why}")
                yield False
                return
            ns.run("ip", "link", "set", TUNNEL, "up")
            ns.sysctl(f"ipv4.conf.{TUNNEL}.rp_filter", 0)
            for family, bits in ((4, "24"), (6, "64")):
                ns.run("ip", "address", "add", f"{IN_TUNNEL[family][i]}/{bits}", "dev", TUNNEL,
                       *("nodad",) * (family == 6))
        yield True
    finally:
        for family in ENDS:
            move(family, "tbg0")
        for ns, _, _ in ends:
            ns.run("ip", "link", "del", TUNNEL, check=False)


def into_and_out(family):
    """Right bytes, or a reset where wire had the connection and does not see its next request."""
    with contextlib.closing(connect(family)) as c:
        for way in (TUNNEL, "tbg0", "tbg1", TUNNEL, "tbg1"):
            owned = tier_of(c, "/hit") == "wire"
            move(family, way)
            try:
                tier_of(c, "/hit")
            except ConnectionResetError:
                assert owned and way == TUNNEL, f"IPv{family}, reset on {way}"
                c.close()
                c.s, c.got = connect(family).s, b""
            for target in ("/large", "/nine"):
                tier_of(c, target)
            net.until(lambda way=way: why(family) == ("IFACE" if way == TUNNEL else "HIT_WIRE"),
                      f"IPv{family}, {way}: `why` does not know the way")


def t_routes_that_move_into_a_tunnel_and_out_of_it():
    nr = 0
    for kind in (("vxlan", "id", "7", "dstport", "4789"), ("gretap",), ("gre",)):
        with tunnel(*kind) as there:
            for family in ENDS if there else ():
                move(family, "tbg0")
                into_and_out(family)
                nr += 1
    if not nr:
        raise ktap.Skip("no tunnel in this kernel")


def t_interface_that_is_away_with_a_request_in_flight():
    """In another namespace, and back: connections without a socket and with one end in the
    right bytes, or a reset."""
    link, fd = n.links[1], f"/proc/{os.getpid()}/fd"
    reset = []
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            cs = [stack.enter_context(talk.Connection(n.client.connect((link.server4, PORT))))
                  for _ in range(4)]
            for c in cs:
                answered(c, "tbg1")
            tier_of(cs[0], "/large")
            n.server.run("ip", "link", "set", "tbg1", "name", "away", "netns",
                         f"{fd}/{n.client.fd}")
            for c, target in zip(cs, ("/hit", "/nine", "/large")):
                c.send(talk.request(target))
            n.client.run("ip", "link", "set", "away", "name", "tbg1", "netns",
                         f"{fd}/{n.server.fd}")
            link.up()
            for c, target in zip(cs, ("/hit", "/nine", "/large", "/hit")):
                try:
                    if target != "/hit" or c is cs[0]:
                        assert c.response().body == BODIES[target]
                    for again in BODIES:
                        tier_of(c, again)
                except ConnectionResetError:
                    reset.append(target)
    ktap.note(f"{len(reset)} of 8 were reset: {reset}")
    net.until(lambda: ("tbg1", "ingress") in n.server.programs(), "not attached again")
    assert not [key for key in n.client.programs()]


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
