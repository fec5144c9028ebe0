#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Wire's replies are cut, marked and sent as the socket's would be: MSS, first window, DF, VLAN."""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
os.environ["TBG_LATE"] = "off"          # translated connections alone are cut so
import adversary                # noqa: E402
import ktap                     # noqa: E402
import talk                     # noqa: E402

BODIES = {"/hit": talk.content("hit", 600), "/full": talk.content("full", 1100),
          "/two": talk.content("two", 2000), "/ten": talk.content("ten", 9000)}
HIT, FULL, TWO, TEN = (talk.request(t) for t in BODIES)
IN, OUT = 5, 7
stage = adversary.Stage(BODIES)


class WithoutDiscovery(adversary.Stage):
    """A server that does no path MTU discovery."""

    def start(self, tier):
        self.net.server.sysctl("ipv4.ip_no_pmtu_disc", 1)
        return super().start(tier)


@contextlib.contextmanager
def route(*metrics):
    """The server's routes to its clients say that, too."""
    link, server = stage.net.links[0], stage.net.server
    server.run("ip", "route", "change", f"10.87.{link.nr}.0/24", "dev", link.name, "src",
               link.server4, "rto_min", "30s", *metrics)
    server.run("ip", "-6", "route", "replace", f"fd87:{link.nr}::/64", "dev", link.name,
               "metric", "1", "rto_min", "30s", *metrics)
    try:
        yield
    finally:
        stage.patience(stage.rto_ms)


def segments(c, request):
    """The segments of a response, acknowledged one by one, and the response."""
    ret = []
    c.send(request)
    while not c.whole(c.mask, "GET"):
        seg = c.next()
        ret += [seg] if seg.data else []
        c.send(flags=".")
    return ret, c.response()


def t_no_larger_than_the_route_allows():
    """Though both ends offer more."""

    def script(s):
        c = s.connect()
        got, r = segments(c, FULL)
        assert (r.tier, r.body) == (s.tier, BODIES["/full"]), r
        assert len(got) == 2 and all(x.len <= 1280 for x in got), got
        s.hit(c, HIT)
    with route("mtu", "1280", "advmss", "1440"):
        stage.play(script)


def t_no_larger_than_the_firewall_lets_the_socket_know():
    """It has lowered the MSS of the SYN behind our hook."""
    server = stage.net.server
    try:
        server.run("nft", "table inet tbgm { chain i { type filter hook prerouting priority -150; "
                   "tcp flags syn tcp option maxseg size set 700; }; }")
    except (RuntimeError, FileNotFoundError) as why:
        raise ktap.Skip(f"no nft: {why}") from why

    def script(s):
        c = s.connect()
        got, r = segments(c, FULL)
        assert (r.tier, r.body) == (s.tier, BODIES["/full"]), r
        assert [len(x.data) for x in got] == [688, 688, len(r.raw) - 2 * 688], got
    try:
        stage.play(script)
    finally:
        server.run("nft", "delete table inet tbgm")


def t_no_more_at_once_than_the_route_allows():
    """A response that needs more than the first window is left to the socket."""

    def script(s):
        c = s.connect()
        c.send(TEN)
        for _ in range(2):
            while not c.next("the first two").data:
                pass
        c.st.barrier(c.family)
        assert not [x for x in c.queue if x.data], "more than initcwnd before an acknowledgement"
        c.send(flags=".")
        while not c.whole(c.mask, "GET"):
            c.next()
            c.send(flags=".")
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/ten"]), r
        s.hit(c, TWO)
    with route("initcwnd", "2"):
        stage.play(script)


def df_is(wanted):
    def script(s):
        got, r = segments(s.connect(), HIT)
        assert (r.tier, r.body) == (s.tier, BODIES["/hit"]), r
        assert [x.df for x in got] == [wanted], got
    return script


def t_may_be_fragmented_where_the_socket_s_may():
    """Without path MTU discovery, or where the route's MTU is locked."""
    stage.play(df_is(True), families=(4,))
    with route("mtu", "lock", "1400"):
        stage.play(df_is(False), families=(4,))
    other = WithoutDiscovery(BODIES).open()
    try:
        other.play(df_is(False), families=(4,))
    finally:
        other.close()


def t_by_the_vlan_of_the_route():
    """Requests come by one VLAN, and the route back is another: that is the socket's to know."""
    server, link, st = stage.net.server, stage.net.links[0], stage.station
    for tag in (IN, OUT):
        try:
            server.run("ip", "link", "add", "link", link.name, "name", f"tag{tag}", "type", "vlan",
                       "id", str(tag))
        except RuntimeError as why:
            raise ktap.Skip(f"no VLAN interfaces: {why}") from why
        server.run("ip", "link", "set", f"tag{tag}", "up")
        server.run("ip", "address", "add", f"10.88.{tag}.1/24", "dev", f"tag{tag}")
    for name in ("all", link.name, "tag5", "tag7"):
        server.sysctl(f"ipv4.conf.{name}.rp_filter", 0)
    ours, servers = "10.90.0.100", st.server
    server.run("ip", "neigh", "replace", ours, "lladdr", st.mac.hex(":"), "dev", f"tag{OUT}", "nud",
               "permanent")
    server.run("ip", "route", "add", ours, "dev", f"tag{OUT}")
    st.addresses[4].insert(0, ours)
    st.vlan, st.server = IN, lambda family: f"10.88.{IN}.1"

    def script(s):
        c = s.connect(source=ours)
        for request, body in ((HIT, "/hit"), (TEN, "/ten"), (HIT, "/hit")):
            got, r = segments(c, request)
            assert r.body == BODIES[body], r
            assert {(x.vlan or 0) & 0xfff for x in got} == {OUT}, got
    try:
        stage.play(script, families=(4,))
    finally:
        st.addresses[4].remove(ours)
        st.vlan, st.server = None, servers
        for tag in (IN, OUT):
            server.run("ip", "link", "del", f"tag{tag}")


if __name__ == "__main__":
    adversary.runner(globals(), stage)
