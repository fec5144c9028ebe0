#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ways round wire's programs, taken while a connection that has had hits downloads.

Whatever lets a segment leave without translation ends the connection by a reset at once:
the client has the right bytes up to there, and an error. Never other bytes, never silence.
"""
import contextlib
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
HIT = b"answered by wire before the way changes\n" * 20
LARGE = talk.content("large", 8 << 20)
AT = 1 << 20            # bytes of it that have come when the way changes
SOON_S = 4              # a tick of the worker, and the resets that follow
OK = 0                  # TC_ACT_OK, another tool's verdict


@contextlib.contextmanager
def serving(n, wire="auto"):
    with n.server.inside():
        d = daemon.Daemon("--wire", wire, "--workers", "1", "--late-sockets", "off",
                          listen=f"0.0.0.0:{PORT}").start()
    try:
        tier = talk.ask(d, "status")["tiers"]["wire"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("wire", tier["why"]))
        d.write("hit", HIT)
        d.write("large", LARGE)
        yield d
    finally:
        d.stop()


def slow(n, name="tbg0"):
    n.server.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", "40mbit",
                 "burst", "64kb", "latency", "100ms")


def connected(n, ip, source=None):
    """A connection on which wire has answered."""
    c = talk.Connection(n.client.connect((ip, PORT), source=source))
    net.until(lambda: c.get("/hit").tier == "wire", "wire does not answer")
    for _ in range(3):
        r = c.get("/hit")
        assert (r.tier, r.body) == ("wire", HIT), r.head
    return c


def download(c, act):
    """Calls act() amid the body. "reset", or "whole"; fails on other bytes and on silence."""
    c.send(talk.request("/large"))
    c.head()
    got, c.got, did, last = bytearray(c.got), b"", False, time.monotonic()
    c.s.settimeout(SOON_S)
    while len(got) < len(LARGE):
        try:
            more = c.s.recv(1 << 16)
        except ConnectionResetError:
            break
        except TimeoutError as why:
            raise AssertionError(f"silence at {len(got)}") from why
        assert more, f"an end without an error at {len(got)}"
        got += more
        if len(got) > AT and not did:
            did = True
            act()
    at = next((i for i in range(len(got)) if got[i] != LARGE[i]), None) \
        if got != LARGE[:len(got)] else None
    assert at is None, f"other bytes from {at} on, of {len(got)}"
    assert did and time.monotonic() - last < 60
    return "whole" if len(got) == len(LARGE) else "reset"


def cut_off(n, d, act, source=None):
    """act() takes the translation away: a reset, which is counted."""
    before = talk.counts(d)["ASTRAY"]
    with connected(n, n.links[0].server4, source) as c:
        assert download(c, act) == "reset", "nothing has changed"
    assert talk.counts(d)["ASTRAY"] > before
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        assert c.get("/hit").body == HIT


def t_programs_removed():
    with net.Net() as n, serving(n, "tbg0") as d:
        slow(n)
        cut_off(n, d, lambda: n.server.strip("tbg0"))


def t_route_by_a_link_that_has_just_come_up():
    with net.Net(links=2) as n, serving(n, "tbg0") as d:
        a, b = n.links
        for name in ("all", "tbg1"):
            n.client.sysctl(f"ipv4.conf.{name}.rp_filter", 0)
        slow(n)
        cut_off(n, d, lambda: n.server.run("ip", "route", "add", f"{a.client4}/32", "via",
                                           b.client4, "dev", "tbg1", "src", a.server4))


def tunnel(n):
    """tbgt at both ends, beside tbg0."""
    link = n.links[0]
    for ns, local, remote in ((n.server, link.server4, link.client4),
                              (n.client, link.client4, link.server4)):
        try:
            ns.run("ip", "link", "add", "tbgt", "type", "ipip", "local", local,
                   "remote", remote, "dev", "tbg0")
        except RuntimeError as why:
            raise ktap.Skip(f"no tunnel in this kernel: {why}") from why
        ns.run("ip", "link", "set", "tbgt", "up")


def t_route_by_a_tunnel():
    with net.Net() as n:
        link = n.links[0]
        tunnel(n)
        n.client.run("ip", "address", "add", "10.98.0.2/32", "dev", "lo")
        n.server.run("ip", "route", "add", "10.98.0.2/32", "via", link.client4)
        with serving(n) as d:
            slow(n)
            cut_off(n, d, lambda: n.server.run("ip", "route", "replace", "10.98.0.2/32",
                                               "dev", "tbgt"), source=("10.98.0.2", 0))


def t_route_with_a_label():
    """The device is the same, and what passes its hook is MPLS."""
    with net.Net() as n, serving(n) as d:
        link = n.links[0]
        slow(n)

        def act():
            n.server.run("ip", "route", "replace", f"{link.client4}/32", "encap", "mpls", "100",
                         "via", link.client4, "dev", "tbg0", "src", link.server4)
        try:
            n.server.run("ip", "route", "replace", "10.98.0.9/32", "encap", "mpls", "100",
                         "via", link.client4, "dev", "tbg0")
        except RuntimeError as why:
            raise ktap.Skip(f"no MPLS in this kernel: {why}") from why
        with connected(n, link.server4) as c:
            try:
                assert download(c, act) == "reset"
            except AssertionError as why:
                # the reset takes the same way
                assert "silence" in str(why), why
        assert talk.counts(d)["ASTRAY"]


def in_front(hook):
    """Its verdict is final: ours are not run any more."""
    with net.Net() as n, serving(n, "tbg0") as d:
        slow(n)
        with connected(n, n.links[0].server4) as c:
            done = []
            act = lambda: done.append(n.server.put_in_front("tbg0", hook, OK))  # pylint: disable=C3001
            end = download(c, act)
            if not done[0]:
                raise ktap.Skip("no tcx in this kernel")
            assert end == "reset"
        assert talk.counts(d)["ASTRAY"]
        # who connects now is not followed, and right
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            for _ in range(3):
                r = c.get("/hit")
                assert (r.tier, r.body) == ("user", HIT), r.head


def t_another_verdict_in_front_of_what_is_sent():
    in_front("egress")


def t_another_verdict_in_front_of_what_comes():
    in_front("ingress")


def t_bridge_deleted_and_made_again():
    """ifdown, ifup: the right bytes, or a reset."""
    def make(n):
        n.server.run("ip", "link", "add", "tbgb", "address", "02:00:00:00:00:07",
                     "type", "bridge")
        n.server.run("ip", "link", "set", "tbg0", "master", "tbgb")
        n.server.run("ip", "link", "set", "tbgb", "up")
        n.server.run("ip", "address", "add", f"{n.links[0].server4}/24", "dev", "tbgb")
        slow(n, "tbgb")

    def again(n):
        n.server.run("ip", "link", "del", "tbgb")
        make(n)

    with net.Net() as n:
        n.server.run("ip", "address", "flush", "dev", "tbg0")
        try:
            make(n)
        except RuntimeError as why:
            raise ktap.Skip(f"no bridge in this kernel: {why}") from why
        with serving(n):
            for _ in range(3):
                with connected(n, n.links[0].server4) as c:
                    download(c, lambda: threading.Thread(target=again, args=(n,)).start())
                net.until(lambda: ("tbgb", "egress") in n.server.programs(), "not attached again")


if __name__ == "__main__":
    ktap.run(globals())
