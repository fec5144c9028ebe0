#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of path MTU discovery (RFC 1191, RFC 8201).

A router's error about a segment reaches the socket in its own numbers; wire believes true
ones, and the client's next connections know the path.
"""
import copy
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import net
import rawtcp
import talk

BODIES = {"/other": talk.content("other", 300), "/hit": talk.content("hit", 600),
          "/full": talk.content("full", 1100), "/nine": talk.content("nine", 9000),
          "/large": talk.content("large", 40000)}
HIT, OTHER, FULL, LARGE, NINE = (talk.request(t) for t in (
    "/hit", "/other", "/full", "/large", "/nine"))
LEAST = 552     # net.ipv4.route.min_pmtu
ERRORS = ("Icmp.InDestUnreachs", "IcmpMsg.InType3", "Icmp6.InPktTooBigs", "Icmp6.InType2")
stage = adversary.Stage(BODIES)


changes = 0     # of the routes to the client: each has a timeout that none had before
# Linux 7.2 offers the MSS of the interface on a path that it knows.
FORGETS = int(os.uname().release.split(".")[0]) >= 7


def forget_path():
    """The server's kernel and wire know nothing of the path any more: its route has changed."""
    global changes
    changes += 1
    ms = stage.rto_ms
    stage.patience(ms + changes)
    stage.rto_ms = ms
    stage.routes_read()


def t_forged_fragmentation_needed():
    """Errors with numbers that were never sent, or were acknowledged long ago: no change."""
    def script(s):
        forget_path()
        c = s.connect()
        c.send(FULL)
        seg = adversary.first_data(c)
        if s.family == 6:       # of no link (RFC 8201 4)
            s.st.icmp_error(seg, 1000)
        c.receive(seg)
        c.response()
        c.send(flags=".")
        mtu = 700 if s.family == 4 else 1280
        for off in (1 << 20, 1 << 30, -1, -(1 << 20), -(1 << 30)):
            ip = bytearray(seg.ip)
            at = 24 if s.family == 4 else 44
            seq = (int.from_bytes(seg.ip[at:at + 4], "big") + off) % rawtcp.MOD
            ip[at:at + 4] = seq.to_bytes(4, "big")
            forged = copy.copy(seg)
            forged.ip = bytes(ip)
            s.st.icmp_error(forged, mtu)
        c.quiet()
        s.hit(c, FULL)
        c.send(LARGE)
        seg = adversary.first_data(c)
        assert seg.len == 1500, f"a segment of {seg.len} bytes"
        c.receive(seg)
        assert c.response().body == BODIES["/large"]
        c = s.connect()
        c.send(FULL)
        seg = adversary.first_data(c)
        assert seg.len > 1280, f"a new connection believes it: {seg}"
        c.receive(seg)
        c.response()
        forget_path()
    stage.play(script)


def t_fragmentation_needed_for_the_socket_s_segment():
    """After hits: the socket finds the segment in its own numbers and sends smaller ones."""
    adversary.needs_socket("what the socket has learned of the path is forgotten with it")
    def script(s):
        mtu = 1000 if s.family == 4 else 1280
        forget_path()
        c = s.connect()
        s.hit(c, HIT)
        s.hit(c, OTHER)
        read = c.read
        c.send(LARGE)
        lost = adversary.first_data(c)
        assert lost.seq == read and lost.len == 1500, lost
        c.st.barrier(c.family)
        c.queue.clear()         # a router drops all of this size
        s.st.icmp_error(lost, mtu)
        got = []
        while not c.whole(c.mask, "GET"):
            seg = c.next("smaller segments")
            if seg.len <= mtu:
                got.append(seg)
                c.send(flags=".")
            elif seg.data:      # this one does not get through
                c.mask[seg.seq - 1:seg.seq - 1 + len(seg.data)] = bytes(len(seg.data))
        assert c.response().body == BODIES["/large"]
        assert got and all(seg.df for seg in got)
        # wire knows it, too, and leaves longer responses to the socket
        c.send(FULL)
        while not c.whole(c.mask, "GET"):
            seg = c.next()
            assert seg.len <= mtu, f"a packet of {seg.len} bytes on a path of {mtu}"
            c.send(flags=".")
        assert c.response().body == BODIES["/full"]
        forget_path()
    with stage.impatient():
        stage.play(script)


def t_connection_that_is_given_back_knows_the_path():
    """Its socket has learned it: wire keeps to it from its first reply on."""
    adversary.needs_late("the socket has the connection")

    def script(s):
        mtu = 1000 if s.family == 4 else 1280
        forget_path()
        c = s.connect()
        s.hit(c, FULL)
        c.send(LARGE)
        for _ in range(40):
            take_below(s, c, mtu)
            if c.whole(c.mask, "GET"):
                break
            time.sleep(0.05)
        assert c.response().body == BODIES["/large"]
        for i in range(8):
            c.send(FULL)
            while not c.whole(c.mask, "GET"):
                seg = c.next("the rest")
                assert seg.len <= mtu, f"request {i}: {seg.len} bytes on a path of {mtu}: {seg}"
                c.send(flags=".")
            assert c.response().body == BODIES["/full"]
        s.hit(c, OTHER)
        forget_path()
    with stage.impatient():
        stage.play(script, same=False, ignore=ERRORS)


def take_below(s, c, mtu):
    """What has arrived, behind a path of that MTU: larger segments are lost, with an error."""
    for seg in c.pending():
        if seg.data and seg.len > mtu and seg.df:
            c.mask[seg.seq - 1:seg.seq - 1 + len(seg.data)] = bytes(len(seg.data))
            s.st.icmp_error(seg, mtu)
        elif seg.data or seg.flags != ".":
            c.send(flags=".")


def t_fragmentation_needed_for_wire_s_reply():
    """It is larger than the path: it must get there, in whatever pieces."""
    def script(s):
        mtu = 1000 if s.family == 4 else 1280
        forget_path()
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        c.send(FULL)
        lost = adversary.first_data(c)
        assert lost.len > mtu, lost
        s.st.icmp_error(lost, mtu)
        for _ in range(5):
            c.again(FULL, seq=at, ack=c.got)
            take_below(s, c, mtu)
            if c.reset or c.whole(c.mask, "GET"):
                break
            time.sleep(0.25)        # the client's timer
        assert c.reset or c.whole(c.mask, "GET"), "it never gets through"
        if not c.reset:
            assert c.response().body == BODIES["/full"]
        assert c.read > read or c.reset
        forget_path()
    with stage.impatient():
        stage.play(script, same=False)


def t_path_for_which_the_reply_is_too_many_segments():
    """IPv4: wire's repeats are not cut as small as that, but have no DF."""
    def script(s):
        mtu = 576 if s.family == 4 else 1280
        forget_path()
        c = s.connect()
        at = c.at
        c.send(NINE)
        for _ in range(40):
            take_below(s, c, mtu)
            assert not c.reset, "a reset"
            if c.whole(c.mask, "GET"):
                break
            c.again(NINE, seq=at, ack=c.got)
            time.sleep(0.25)        # the client's timer
        assert c.response().body == BODIES["/nine"]
        forget_path()
    with stage.impatient():
        stage.play(script, same=False)


def behind(s, mtu):
    """
    A new connection; None: it is not cut for a path of that MTU, and gets the first error.
    Else the MSS that was offered.
    """
    locked = mtu < LEAST
    c = s.connect()
    at, read = c.at, c.read
    c.send(FULL)
    seg = adversary.first_data(c)
    if seg.len > mtu and seg.df:
        s.st.icmp_error(seg, mtu)
        c.drop()
        return None
    c.receive(seg)
    assert seg.df != locked, seg
    while not c.whole(c.mask, "GET"):
        seg = c.next("the rest")
        assert seg.len <= mtu or locked, f"a packet of {seg.len} bytes on a path of {mtu}"
        c.send(flags=".")
    assert c.response().body == BODIES["/full"] and (c.at, c.read) != (at, read)
    s.hit(c, OTHER)
    return c.offered["mss"]


def narrow(mtu):
    """
    Wire offers the MSS of the path, too. One SYN-ACK a second is the kernel's, which knows
    nothing of errors about wire's segments, and on Linux 7.2 offers the MSS of the interface.
    """
    def script(s):
        path = mtu if s.family == 4 else 1280
        heads = 40 if s.family == 4 else 60
        forget_path()
        net.until(lambda: behind(s, path) is not None, "each connection needs an error")
        offers = [behind(s, path) for _ in range(4)]
        right = offers.count(max(path, LEAST) - heads)
        if s.tier == "wire":
            assert None not in offers and right >= 3, offers
        else:
            assert right == 4 or (FORGETS and offers.count(1500 - heads) == 4), offers
        forget_path()
    return script


def t_new_connections_know_the_path():
    """What an error about one connection says is true for the client's next ones (RFC 1191 4)."""
    stage.play(narrow(1000), same=False, ignore=ERRORS)


def t_new_connections_know_the_path_of_a_socket():
    """The error is about a segment that the kernel has sent."""
    def script(s):
        mtu = 1000 if s.family == 4 else 1280
        forget_path()
        def known():
            c = s.connect()
            c.send(LARGE)
            seg = adversary.first_data(c)
            if seg.len > mtu:
                s.st.icmp_error(seg, mtu)
            c.drop()
            return seg.len <= mtu and behind(s, mtu) is not None
        net.until(known, "not learned")
        forget_path()
    stage.play(script, same=False, ignore=(*ERRORS, *adversary.TIMED))


def t_path_is_known_while_other_interfaces_come_up():
    """Those of containers, for example: their routes do not lead to the client."""
    def script(s):
        path = 1000 if s.family == 4 else 1280
        server = stage.net.server
        forget_path()
        net.until(lambda: behind(s, path) is not None, "each connection needs an error")
        try:
            server.run("ip", "link", "add", "box0", "type", "veth", "peer", "name", "box1")
            for words in (("link", "set", "box1", "up"), ("link", "set", "box0", "up"),
                          ("address", "add", "10.77.0.1/24", "dev", "box0"),
                          ("address", "add", "fd77::1/64", "dev", "box0", "nodad"),
                          ("route", "add", "10.78.0.0/24", "via", "10.77.0.2")):
                server.run("ip", *words)
                stage.routes_read()
                assert behind(s, path) is not None, f"forgotten with {words}"
        finally:
            server.run("ip", "link", "del", "box0")
            stage.routes_read()
        assert behind(s, path) is not None, "forgotten when it was removed"
        forget_path()
        assert behind(s, path) is None, "another route, and the old path"
        forget_path()
    stage.play(script, same=False, ignore=ERRORS)


def t_new_connections_know_a_path_that_routers_have_to_cut_for():
    """Below the least MTU that the kernel believes, its packets have no DF."""
    stage.play(narrow(500), families=(4,), same=False, ignore=ERRORS)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
