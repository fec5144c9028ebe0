#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of changes between the ends: errors, routers, VLANs, interfaces, daemons.

A connection outlives its interface's absence and its daemon's end.
"""
import contextlib
import os
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import client
import daemon
import ktap
import net
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/full": talk.content("full", 1100), "/nine": talk.content("nine", 9000),
          "/large": talk.content("large", 40000)}
HIT, OTHER, FULL, LARGE, NINE = (talk.request(t) for t in (
    "/hit", "/other", "/full", "/large", "/nine"))
TAG = 5
stage = adversary.Stage(BODIES)


def t_unreachable_does_not_kill():
    """A soft error (RFC 5461) about a reply of wire's, and about the socket's."""
    def script(s):
        kind = (3, 1) if s.family == 4 else (1, 0)
        c = s.connect()
        for request in (HIT, LARGE, HIT):
            c.send(request)
            seg = adversary.first_data(c)
            s.st.icmp_error(seg, kind=kind)
            c.receive(seg)
            c.response()
        s.hit(c, HIT)
    stage.play(script)


def t_requests_brought_by_another_host():
    """A balancer that answers go past (LVS-DR): they take the socket's way, and it may change."""
    adversary.needs_socket("wire replies to the host that brought the request")
    mac = rawtcp.MAC

    def goes(s, c):
        for request in (LARGE, HIT, OTHER):
            c.get(request)
        with s.still():
            for request in (HIT, FULL, OTHER):
                c.get(request)

    def script(s):
        try:
            s.st.bringer = bytes.fromhex("027462670065")
            c = s.connect()
            with s.still():
                s.hit(c, HIT)
            goes(s, c)
            s.st.mac = bytes.fromhex("027462670066")
            s.st.neighbours()
            goes(s, c)
        finally:
            s.st.bringer, s.st.mac = None, mac
            s.st.neighbours()
    stage.play(script)


@contextlib.contextmanager
def moving(s):
    """Calling it gives the client another link address, until the end of the block."""
    def set_mac(mac=bytes.fromhex("027462670066")):
        s.st.mac = mac
        s.st.neighbours()
    try:
        yield set_mac
    finally:
        set_mac(rawtcp.MAC)


def lose_repeats(c, seconds):
    """The network loses the reply for so long; it is repeated all the time."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        c.next("repeat", lose=True)


def t_repeats_go_where_the_last_request_came_from():
    """The client has another address on the link by now, or is behind another router."""
    def script(s):
        with moving(s) as move:
            c = s.connect()
            s.hit(c, HIT)
            move()
            s.hit(c, HIT)
            c.send(NINE)
            lose_repeats(c, 0.5)
            assert c.response().body == BODIES["/nine"]
    with stage.impatient():
        stage.play(script)


def t_repeats_go_where_the_request_was_repeated_from():
    """The client moves while its reply is outstanding, as where a router has failed."""
    def script(s):
        with moving(s) as move:
            c = s.connect()
            s.hit(c, HIT)
            at = c.at
            c.send(NINE)
            adversary.first_data(c)
            move()
            time.sleep(0.05)        # not at once: that would be a duplicate
            c.again(NINE, seq=at, ack=c.got)
            lose_repeats(c, 1)
            c.again(NINE, seq=at, ack=c.got)
            assert c.response().body == BODIES["/nine"]
    with stage.impatient():
        stage.play(script)


def t_repeats_go_where_the_next_request_came_from():
    """It is handed over, while the reply to the one before is outstanding."""
    adversary.needs_late("the socket repeats what wire has sent")

    def script(s):
        with moving(s) as move:
            c = s.connect()
            s.hit(c, HIT)
            read = c.read
            c.send(NINE)
            adversary.first_data(c)
            c.st.barrier(c.family)
            c.queue.clear()
            move()
            c.send(OTHER)
            began = time.monotonic()
            while c.next("repeat", lose=True).seq != read:
                assert time.monotonic() - began < 5 * client.SLOW, "only what the socket sends"
            while c.whole(c.mask, "GET") is None:
                c.receive(c.next("rest"))
                c.send(flags=".")
            assert c.response().body == BODIES["/nine"]
            assert c.response().body == BODIES["/other"]
    with stage.impatient():
        stage.play(script)


def t_given_back_to_where_the_last_request_came_from():
    """The client moves while its connection has a socket, and later once more."""
    def script(s):
        with moving(s) as move:
            c = s.connect()
            s.hit(c, HIT)
            for mac in ("027462670066", "027462670067"):
                assert c.get(LARGE).body == BODIES["/large"]
                move(bytes.fromhex(mac))
                s.hit(c, HIT)
                s.hit(c, OTHER)
    stage.play(script)


def tagged(device, *options):
    """The server on a VLAN: its interface, addresses there, and a play of hits and more."""
    server, link = stage.net.server, stage.net.links[0]
    try:
        server.run("ip", "link", "add", "link", link.name, "name", "tag5", "type", "vlan",
                   "id", str(TAG))
    except RuntimeError as why:
        raise ktap.Skip(f"no VLAN interfaces: {why}") from why
    try:
        server.run("ip", "link", "set", "tag5", "up")
        server.sysctl("ipv6.conf.tag5.accept_dad", 0)
        server.run("ip", "address", "add", "10.88.0.1/24", "dev", "tag5")
        server.run("ip", "address", "add", "fd88::1/64", "dev", "tag5", "nodad")
        stage.daemons.pop("wire").stop()
        stage.interfaces = device
        stage.daemons["wire"] = stage.start("wire")
        for tier in adversary.PORTS:
            stage.warm(tier, *BODIES)
        st = stage.station
        ours, st.vlan = {4: "10.88.0.100", 6: "fd88::64"}, TAG
        for family, addr in ours.items():
            st.addresses[family].append(addr)
            server.run("ip", "neigh", "replace", addr, "lladdr", st.mac.hex(":"), "dev", "tag5",
                       "nud", "permanent")
        servers = st.server
        st.server = lambda family: "10.88.0.1" if family == 4 else "fd88::1"
        barrier_from = {f: st.addresses[f][0] for f in ours}
        for family, addr in ours.items():       # barriers, too, are on the VLAN
            st.addresses[family].insert(0, st.addresses[family].pop())
        try:
            yield st
        finally:
            for family, addr in ours.items():
                st.addresses[family].remove(addr)
            st.vlan, st.server = None, servers
            assert barrier_from == {f: st.addresses[f][0] for f in ours}
    finally:
        server.run("ip", "link", "del", "tag5")
        stage.daemons.pop("wire").stop()
        stage.interfaces = "tbg0"
        stage.daemons["wire"] = stage.start("wire")
        stage.warm("wire", *BODIES)


def vlan(device, by_wire):
    def script(s):
        c = s.connect(source=s.st.addresses[s.family][0])
        tier = s.tier if by_wire else "user"
        c.send(HIT)
        seg = c.expect("P.", ".")
        assert (seg.vlan or 0) & 0xfff == TAG, f"VLAN {seg.vlan}: {seg}"
        r = c.response()
        c.send(flags=".")
        assert (r.tier, r.body) == (tier, BODIES["/hit"]), r
        assert c.get(LARGE).body == BODIES["/large"]
        s.hit(c, OTHER, tier=tier)
        # lost, and again
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        c.again(HIT, seq=at, ack=read)
        assert c.response().raw == first.raw
    for _ in tagged(device):
        with stage.impatient():
            stage.play(script)


def t_wire_on_a_vlan_interface():
    """The tag is gone when wire sees the request, and the reply has it again."""
    vlan("tag5", True)


def t_wire_below_a_vlan_interface():
    """On the device that carries the tags: the reply goes back with the request's."""
    vlan("tbg0", True)


def within(s, most, hops):
    """The tiers of four answers. No packet exceeds most; those of IPv6 have this hop limit."""
    tiers = set()
    c = s.connect(source=s.st.addresses[s.family][0])
    for request in (HIT, NINE, HIT, NINE):
        c.send(request)
        while c.whole(c.mask, "GET") is None:
            seg = c.receive(c.next("rest"))
            assert seg.len <= most and (s.family == 4 or seg.ttl == hops), \
                f"{seg.len} bytes of {most}, {seg.ttl} hops: {seg}"
            c.send(flags=".")
        tiers.add(c.response().tier)
    c.drop()
    return tiers


def t_packets_are_those_of_a_vlan_interface_above():
    """Its MTU and its hop limit, not those of the device where wire is; a smaller MTU later."""
    adversary.needs_late("MTU and hop limit are the socket's")

    def script(s):
        tiers.update(within(s, mtu[s.family], hops))
    for _ in tagged("tbg0"):
        server = stage.net.server
        for mtu, hops in (({4: 1400, 6: 1400}, 64), ({4: 1300, 6: 1290}, 77)):
            server.run("ip", "link", "set", "tag5", "mtu", str(mtu[4]))
            server.sysctl("ipv6.conf.tag5.mtu", mtu[6])
            server.sysctl("ipv6.conf.tag5.hop_limit", hops)
            server.run("ip", "link", "set", "tag5", "alias", f"of {hops} hops")  # which is news
            tiers = set()
            stage.routes_read()
            stage.play(script)
            assert "wire" in tiers, tiers


def advertise(st, hops, mtu):
    """A router sends these (RFC 4861 4.2), but is no default router."""
    icmp = struct.pack("!BBHBBHII", 134, 0, 0, hops, 0, 0, 0, 0) + \
        struct.pack("!BBHI", 5, 1, 0, mtu)
    st.put(st.frame(6, st.icmp_sum(6, "fe80::1", "ff02::1", icmp, ttl=255)))


def t_router_that_advertises_on_a_vlan_is_heard():
    """Its hop limit and its MTU, which are the VLAN's interface's alone."""
    adversary.needs_late("MTU and hop limit are the socket's")

    def script(s):
        tiers.update(within(s, 1290, 55))
    for st in tagged("tbg0"):
        server, tiers = stage.net.server, set()
        server.sysctl("ipv6.conf.tag5.accept_ra", 2)
        advertise(st, 55, 1290)
        st.barrier(6)
        stage.routes_read()
        stage.play(script, families=(6,))
        assert "wire" in tiers, tiers


def t_why_knows_the_mtu_of_a_vlan_interface_above():
    """The answer to its clients has more segments than wire sends; that to others has not."""
    adversary.needs_late("the MTU is the socket's")
    for _ in tagged("tbg0"):
        stage.net.server.run("ip", "link", "set", "tag5", "mtu", "900")
        stage.routes_read()
        d = stage.daemons["wire"]
        got = [talk.ask(d, "why", "--client", of, "/nine")["why"]
               for of in ("10.88.0.100", stage.net.links[0].client4)]
        assert got == ["SIZE", "HIT_WIRE"], got


def t_reply_on_a_vlan_is_repeated_while_nothing_is_heard():
    """For longer than the time after which the client's route is looked up again."""
    def script(s):
        c = s.connect(source=s.st.addresses[s.family][0])
        s.hit(c, HIT)
        c.send(NINE)
        lose_repeats(c, 4)
        assert c.response().body == BODIES["/nine"]
    for _ in tagged("tbg0"):
        with stage.impatient():
            stage.play(script)


@contextlib.contextmanager
def other_vlan(s):
    """The server on one more VLAN. Calling it moves the client there, until the block ends."""
    server, (four, six) = stage.net.server, (s.st.addresses[f][0] for f in (4, 6))

    def move():
        for addr in (four, six):
            server.run("ip", "neigh", "replace", addr, "lladdr", s.st.mac.hex(":"), "dev", "tag6",
                       "nud", "permanent")
        server.run("ip", "route", "add", f"{four}/32", "dev", "tag6", "src", "10.88.0.1")
        server.run("ip", "-6", "route", "add", f"{six}/128", "dev", "tag6", "src", "fd88::1")
        s.st.vlan = TAG + 1
        stage.routes_read()
    server.run("ip", "link", "add", "link", stage.net.links[0].name, "name", "tag6", "type",
               "vlan", "id", str(TAG + 1))
    try:
        server.run("ip", "link", "set", "tag6", "up")
        stage.routes_read()
        yield move
    finally:
        s.st.vlan = TAG
        server.run("ip", "link", "del", "tag6")
        stage.routes_read()


def t_given_back_on_a_vlan_that_its_client_has_moved_to():
    """Between two interfaces of VLANs, while the connection had a socket."""
    adversary.needs_late("the socket has the connection")

    def script(s):
        with other_vlan(s) as move:
            c = s.connect(source=s.st.addresses[s.family][0])
            s.hit(c, HIT)
            assert c.get(LARGE).body == BODIES["/large"]
            move()
            for _ in range(2):
                c.send(HIT)
                seg = adversary.first_data(c)
                assert (seg.vlan or 0) & 0xfff == TAG + 1, f"VLAN {seg.vlan}: {seg}"
                c.receive(seg)
                assert c.response().body == BODIES["/hit"]
            s.hit(c, OTHER)
    for _ in tagged("tbg0"):
        stage.play(script)


def t_two_tags_of_priority():
    """Linux takes both off, but not before it would make a socket late."""
    def script(s):
        s.st.outer, s.st.vlan = [0xa000], 0xa000
        c = s.connect()
        for target in ("/hit", "/other", "/large", "/hit"):
            assert c.get(talk.request(target)).body == BODIES[target], target
    try:
        with stage.impatient():
            stage.play(script)
    finally:
        stage.station.outer, stage.station.vlan = [], None


def t_tag_of_priority_alone():
    """It names no VLAN (IEEE 802.1Q 6.9.1): answers are without, as the socket's are."""
    def script(s):
        for tag in (0xa000, None):
            s.st.vlan = tag
            c = s.connect()
            for request in (HIT, LARGE, OTHER):
                at, read = c.at, c.read
                c.send(request)
                seg = c.next(lose=True)
                while not seg.data:
                    seg = c.next(lose=True)
                assert seg.vlan is None, f"a tag: {seg.vlan:#x}"
                c.again(request, seq=at, ack=read)
                c.response()
            s.st.vlan = None
            assert c.get(HIT).body == BODIES["/hit"]
    try:
        with stage.impatient():
            stage.play(script)
    finally:
        stage.station.vlan = None


def down_and_up():
    link = stage.net.links[0]
    stage.net.server.run("ip", "link", "set", link.name, "down")
    link.up()
    stage.patience(stage.rto_ms)
    stage.station.neighbours()
    for family in (4, 6):
        stage.station.barrier(family, again_s=0.05)


def t_interface_down_and_up():
    """Connections go on where they were; what was lost meanwhile comes again."""
    def script(s):
        c, idle = s.connect(), s.connect()
        s.hit(c, HIT)
        c.get(LARGE)
        s.hit(idle, HIT)
        at, read = c.at, c.read
        c.send(OTHER)
        first = c.response(lose=True)
        down_and_up()
        c.send(OTHER, seq=at, ack=read)
        assert c.response().raw == first.raw
        s.hit(idle, OTHER)
        assert idle.get(LARGE).body == BODIES["/large"]
        assert s.hit(s.connect(), HIT)
    with stage.impatient():
        stage.play(script)


def t_interface_down_while_the_socket_sends():
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        c.send(LARGE)
        adversary.first_data(c)
        c.st.barrier(c.family)
        c.queue.clear()
        down_and_up()
        assert c.response().body == BODIES["/large"]
        assert c.get(HIT).body == BODIES["/hit"]
    with stage.impatient():
        stage.play(script)


def t_mtu_that_shrinks_between_hits():
    def script(s):
        c = s.connect()
        s.hit(c, FULL)
        link = stage.net.links[0]
        stage.net.server.run("ip", "link", "set", link.name, "mtu", "1280")
        try:
            c.send(FULL)
            while not c.whole(c.mask, "GET"):
                seg = c.next()
                assert seg.len <= 1280, f"larger than the MTU: {seg}"
                c.send(flags=".")
            assert c.response().body == BODIES["/full"]
            s.hit(c, OTHER)
        finally:
            stage.net.server.run("ip", "link", "set", link.name, "mtu", "1500")
            stage.station.neighbours()
        assert c.get(FULL).body == BODIES["/full"]
    with stage.impatient():
        stage.play(script)


def shifted(s):
    """A connection with deltas, on which wire and the socket have both answered."""
    c = s.connect()
    s.hit(c, HIT)
    c.get(LARGE)
    s.hit(c, OTHER)
    return c


def ended_by(how):
    """Connections with deltas, idle, busy and with a reply lost, while their daemon ends."""
    for family in (4, 6):
        s = adversary.Play(stage, family, "wire")
        with stage.explained(s):
            idle, half, slow = shifted(s), shifted(s), shifted(s)
            slow.window = 20            # 2560 bytes
            slow.send(LARGE)
            data = slow.next()
            while not data.data:
                data = slow.next()
            half.send(HIT[:20])
            half.st.barrier(family)
            s.st.net.server.taken(half.rport, half.port)    # a socket with bytes unread resets
            d = stage.daemons.pop("wire")
            d.process.send_signal(how)
            yield s, idle, half, slow, d
            stage.daemons["wire"] = stage.start("wire")
            stage.warm("wire", *BODIES)
            after = s.connect()
            s.hit(after, HIT)
            s.end()


def fin_of(c):
    """The server's FIN, in the client's numbers, and the rest of the close."""
    while c.fin is None:
        seg = c.next("FIN")
        assert not seg.bits & rawtcp.RST, f"reset: {seg}"
        assert not seg.data or seg.seq < c.read or c.read < seg.seq, seg
    assert c.fin == c.read, f"FIN at {c.fin}, wanted {c.read}"
    c.send(flags="F.")
    c.expect(".", seq=c.got, ack=c.at)


def t_daemon_drains_and_detaches():
    """SIGTERM: what has begun is finished in the client's numbers, then each is closed."""
    adversary.needs_socket("connections of wire's own end in t_late.py")
    for _, idle, half, slow, d in ended_by(signal.SIGTERM):
        fin_of(idle)
        half.send(HIT[20:])
        r = half.response()
        assert (r.body, r.fields["Connection"]) == (BODIES["/hit"], "close"), r
        fin_of(half)
        slow.window = 65535
        slow.send(flags=".")
        assert slow.response().body == BODIES["/large"]
        fin_of(slow)
        assert d.stop() == 0, d.lines


def drained(closes=True):
    """
    A connection with deltas, the FIN of a draining daemon acknowledged, and that daemon.
    closes: the client will, too; else the server's socket has to forget it.
    """
    for family in (4, 6) if closes else (4,):
        s = adversary.Play(stage, family, "wire")
        with stage.explained(s):
            c = shifted(s)
            d = stage.daemons.pop("wire")
            d.process.send_signal(signal.SIGTERM)
            while c.fin is None:
                c.next("FIN")
            c.send(flags=".")
            net.until(lambda d=d: not talk.ask(d, "status")["connections"],
                      "it keeps the connection")
            yield c, d
            stage.daemons["wire"] = stage.start("wire")
            stage.warm("wire", *BODIES)
            if closes:
                s.end()
            else:
                s.abandon()


def t_draining_daemon_waits_for_a_client_that_closes_late():
    adversary.needs_socket("no client has a socket to close")
    for c, d in drained():
        fin_of(c)
        assert d.process.wait(daemon.STOP_S) == 0, d.lines
        assert d.stop() == 0 and not any("clients have not closed" in x for x in d.lines), d.lines


def t_draining_daemon_does_not_wait_for_ever():
    adversary.needs_socket("no client has a socket to close")
    for _, d in drained(closes=False):
        assert d.process.wait(daemon.STOP_S) == 0, d.lines
        d.stop()
        assert sum("1 connections that clients have not closed" in x for x in d.lines) == 1, d.lines


def t_draining_daemon_ends_at_once_at_the_second_signal():
    adversary.needs_socket("no client has a socket to close")
    for _, d in drained(closes=False):
        assert d.stop() == 0, d.lines
        assert not any("clients have not closed" in x for x in d.lines), d.lines


def t_second_signal_resets_clients_that_have_not_read_all():
    """Bytes that a socket continues to send without wire would have the place of other bytes."""
    adversary.needs_socket("no client has a socket to close")
    for family in (4, 6):
        for flags in (None, "FP."):
            s = adversary.Play(stage, family, "wire")
            with stage.explained(s):
                c = shifted(s)
                c.window = 20
                c.send(LARGE, flags)
                adversary.first_data(c)
                d = stage.daemons.pop("wire")
                d.process.send_signal(signal.SIGTERM)
                net.until(lambda d=d: "draining" in talk.ask(d, "why", "/hit")["detail"])
                assert d.stop() == 0, d.lines
                c.window = 65535
                c.send(flags=".")
                while not c.reset:
                    c.next("a reset")
                stage.daemons["wire"] = stage.start("wire")
                stage.warm("wire", *BODIES)
                s.end()


def t_daemon_is_killed():
    """The kernel closes its sockets: a FIN or an RST in the client's numbers, no other byte."""
    adversary.needs_socket("no client has a socket to close")
    for s, idle, half, slow, d in ended_by(signal.SIGKILL):
        d.process.wait(daemon.STOP_S)
        d.stop()
        fin_of(idle)
        fin_of(half)
        slow.window = 65535
        slow.send(flags=".")
        s.st.barrier(s.family)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
