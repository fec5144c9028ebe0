#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ways around wire's programs, during a download on a connection that has had hits.

Whatever lets a segment leave without translation ends the connection by a reset at once:
the client has the right bytes up to there, and an error. Never other bytes, never silence.
"""
import concurrent.futures
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import ktap
import net
import talk

PORT = 8080
HIT = b"answered by wire before the way changes\n" * 20
LARGE = talk.content("large", 8 << 20)
AT = 1 << 20            # bytes of it that have come when the way changes
SOON_S = 4              # a tick of the worker, and the resets that follow
OK = 0                  # TC_ACT_OK, another tool's verdict


def serving(n, wire="auto"):
    return talk.serving(n.server, wire, "--late-sockets", "off", listen=f"0.0.0.0:{PORT}",
                        hit=HIT, large=LARGE)


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
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        return read_beside(c, lambda: beside.submit(act))


def read_beside(c, act):
    """
    act() returns a future, for the body must be read on while it runs: on a slow machine the
    window would be full by the time that it changes something.
    """
    c.send(talk.request("/large"))
    c.head()
    got, c.got, did, last = bytearray(c.got), b"", None, time.monotonic()
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
            did = act()
    at = next((i for i in range(len(got)) if got[i] != LARGE[i]), None) \
        if got != LARGE[:len(got)] else None
    assert at is None, f"other bytes from {at} on, of {len(got)}"
    assert did and time.monotonic() - last < 60
    did.result()
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


def t_guard_removed_by_somebody():
    """It is attached again, and then sees what leaves without the programs."""
    with net.Net() as n, serving(n, "tbg0") as d:
        _, folder = net.own_cgroup()

        def guards():
            text = n.server.run("bpftool", "-j", "cgroup", "show", folder)
            return [x["id"] for x in json.loads(text.strip() or "[]") if x["name"] == "tbg_guard"]
        was = guards()
        assert was, "there is none"
        for prog_id in was:
            n.server.run("bpftool", "cgroup", "detach", folder, "egress", "id", str(prog_id))
        assert not guards()
        net.until(lambda: guards() == was, "it is not attached again")
        assert any("its guard was removed" in line for line in d.lines), d.lines
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
            assert download(c, lambda: n.server.put_in_front("tbg0", hook, OK)) == "reset"
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


def t_filters_of_usual_priorities():
    """Their verdicts are final, and ours are run before."""
    with net.Net() as n, serving(n, "tbg0") as d:
        with connected(n, n.links[0].server4) as c:
            for hook in net.TCX:
                try:
                    n.server.add_filter("tbg0", hook, OK, 10)
                except RuntimeError as why:
                    raise ktap.Skip(f"no filters in this kernel: {why}") from why
                for how in (("matchall", "action", "ok"),
                            ("u32", "match", "ip", "protocol", "6", "0xff", "action", "ok")):
                    # where the kernel has them
                    n.server.run("tc", "filter", "add", "dev", "tbg0", hook, "pref", "20",
                                 "protocol", "ip", *how, check=False)
                in_turns(c)
                assert c.get("/hit").tier == "wire"
        # and who connects now
        with connected(n, n.links[0].server4) as c:
            in_turns(c)
        assert not talk.counts(d)["ASTRAY"]


def t_bridge_deleted_and_made_again():
    """ifdown, ifup: the right bytes, or a reset."""
    def make(n):
        bridged(n, "address", "02:00:00:00:00:07")
        slow(n, "tbgb")

    def again(n):
        n.server.run("ip", "link", "del", "tbgb")
        make(n)

    with net.Net() as n:
        make(n)
        with serving(n):
            for _ in range(3):
                with connected(n, n.links[0].server4) as c:
                    download(c, lambda: again(n))
                net.until(lambda: ("tbgb", "egress") in n.server.programs(), "not attached again")


def bridged(n, *options):
    """tbg0 is a port of tbgb, which has its addresses."""
    n.server.run("ip", "address", "flush", "dev", "tbg0")
    try:
        n.server.run("ip", "link", "add", "tbgb", *options, "type", "bridge")
    except RuntimeError as why:
        raise ktap.Skip(f"no bridge in this kernel: {why}") from why
    n.server.run("ip", "link", "set", "tbg0", "master", "tbgb")
    n.server.run("ip", "link", "set", "tbgb", "up")
    n.server.run("ip", "address", "add", f"{n.links[0].server4}/24", "dev", "tbgb")


def in_turns(c, times=3):
    for _ in range(times):
        assert c.get("/large").body == LARGE
        assert c.get("/hit").body == HIT


def t_bridge_takes_another_port_s_address():
    """Wire is on a port, whose own address frames do not have any more."""
    with net.Net() as n:
        n.server.run("ip", "link", "set", "tbg0", "address", "02:bb:00:00:00:07")
        bridged(n)
        with serving(n, "tbg0"), connected(n, n.links[0].server4) as c:
            n.server.run("ip", "link", "add", "tap7", "address", "02:00:00:00:00:01",
                         "type", "veth", "peer", "name", "tap7p")
            n.server.run("ip", "link", "set", "tap7", "master", "tbgb")
            n.client.run("ip", "neighbour", "flush", "all")
            in_turns(c)


def t_interface_back_from_another_namespace():
    with net.Net() as n:
        link = n.links[0]
        with serving(n, "tbg0") as d:
            with connected(n, link.server4):
                pass
            n.server.run("ip", "link", "set", "tbg0", "netns",
                         f"/proc/{os.getpid()}/fd/{n.client.fd}",
                         "name", "away")
            net.until(lambda: any("tbg0 is gone" in line for line in d.lines), "it is not missed")
            n.client.run("ip", "link", "set", "away", "netns",
                         f"/proc/{os.getpid()}/fd/{n.server.fd}", "name", "tbg0")
            n.server.run("ip", "link", "set", "tbg0", "up")
            n.server.run("ip", "address", "add", f"{link.server4}/24", "dev", "tbg0")
            net.until(lambda: any("wire: on tbg0" in line for line in d.lines),
                      "not attached again")
            assert {len(v) for k, v in n.server.programs().items() if k[0] == "tbg0"} == {1}
            with connected(n, link.server4) as c:
                in_turns(c, 1)
        assert not [k for k in n.server.programs() if k[0] == "tbg0"]


def t_conntrack_before_wire():
    """br_netfilter shows it the client's numbers, and the socket's: such are left alone."""
    with net.Net() as n:
        bridged(n)
        try:
            n.server.run("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1")
            n.server.run("nft", "table inet f { chain i { type filter hook input priority 0; "
                                "ct state invalid drop; }; }")
        except (OSError, RuntimeError) as why:
            raise ktap.Skip(f"no br_netfilter or nft: {why}") from why
        with serving(n) as d, talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            in_turns(c)
            assert talk.counts(d)["TRACKED"]


def through_a_tunnel(*kind):
    """Its payload was translated by wire on it, and passes wire on tbg0 again."""
    with net.Net() as n:
        link = n.links[0]
        for ns, local, remote, ip in ((n.server, link.server4, link.client4, "10.98.0.1/24"),
                                      (n.client, link.client4, link.server4, "10.98.0.2/24")):
            try:
                ns.run("ip", "link", "add", "tbgg", "type", *kind, "local", local,
                       "remote", remote, "dev", "tbg0")
            except RuntimeError as why:
                raise ktap.Skip(f"no tunnel in this kernel: {why}") from why
            ns.run("ip", "link", "set", "tbgg", "up")
            ns.run("ip", "address", "add", ip, "dev", "tbgg")
        with serving(n, "tbg0,tbgg") as d, connected(n, "10.98.0.1") as c:
            in_turns(c)
            assert not talk.counts(d)["ASTRAY"]


def t_tunnel_s_frames_are_not_those_below_it():
    through_a_tunnel("gretap")


def t_frames_within_datagrams_are_not_those_below_them():
    through_a_tunnel("vxlan", "id", "7", "dstport", "4789")


def t_two_domains_of_the_same_addresses():
    """Each VRF has its own 10.87.0.1 and 10.87.0.2: one connection is not another's."""
    with net.Net(links=2) as n:
        other = net.Namespace()
        try:
            n.client.run("ip", "link", "set", "tbg1", "netns", f"/proc/{os.getpid()}/fd/{other.fd}")
            other.run("ip", "link", "set", "tbg1", "up")
            other.run("ip", "address", "add", "10.87.0.2/24", "dev", "tbg1")
            n.server.run("ip", "address", "flush", "dev", "tbg1")
            for i in range(2):
                try:
                    n.server.run("ip", "link", "add", f"tbgv{i}", "type", "vrf",
                                 "table", str(10 + i))
                except RuntimeError as why:
                    raise ktap.Skip(f"no VRF in this kernel: {why}") from why
                n.server.run("ip", "link", "set", f"tbgv{i}", "up")
                n.server.run("ip", "link", "set", f"tbg{i}", "master", f"tbgv{i}")
            n.server.run("ip", "address", "replace", "10.87.0.1/24", "dev", "tbg0")
            n.server.run("ip", "address", "add", "10.87.0.1/24", "dev", "tbg1")
            n.server.sysctl("ipv4.tcp_l3mdev_accept", 1)
            with serving(n, "tbg0,tbg1"):
                with connected(n, "10.87.0.1", ("10.87.0.2", 4321)) as a, \
                     talk.Connection(other.connect(("10.87.0.1", PORT),
                                                   source=("10.87.0.2", 4321))) as b:
                    for _ in range(3):
                        for c in (a, b):
                            assert c.get("/hit").body == HIT
                        in_turns(a, 1)
                        in_turns(b, 1)
        finally:
            other.close()


if __name__ == "__main__":
    ktap.run(globals())
