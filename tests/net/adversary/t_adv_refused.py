#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Segments that the stack drops: wire neither answers them nor learns from them."""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/ten": talk.content("ten", 13800)}
HIT, OTHER, TEN = (talk.request(t) for t in ("/hit", "/other", "/ten"))
os.environ["TOBOGGAND_TEST_TIMERS"] = "sweep=250ms,flow-spent=500ms"
BURIED_S = 2            # a flow that was reset is forgotten by then
stage = adversary.Stage(BODIES)


def packet(s, c, flags="P.", data=HIT, opts=None, **how):
    """An IP packet as the client would send it, sent by nobody."""
    seg = s.st.tcp(c.local, c.remote, c.port, c.rport, c.iss + c.at, c.irs + c.got, flags,
                   c.window, c.options() if opts is None else opts, data, **how)
    return s.st.ip(c.local, c.remote, seg)


def to(mac, frame):
    return bytes.fromhex(mac) + frame[6:]


def without_length(family, ip):
    p = bytearray(ip)
    if family == 4:
        p[2:4] = p[10:12] = b"\0\0"
        p[10:12] = struct.pack("!H", 0xffff - rawtcp.fold(bytes(p[:20])))
    else:
        p[4:6] = b"\0\0"
    return bytes(p)


def is_refused(frame_of, by_wire=True):
    """frame_of(s, c): a frame with the client's next request. Then the client's own is a hit."""
    def script(s):
        c = s.connect()
        with s.still():
            s.hit(c, OTHER)
            s.st.barrier(s.family)
        sent = c.sent_max
        frame = frame_of(s, c)
        c.sent_max = max(sent, c.at + len(HIT))
        s.st.put(frame)
        got = [x for x in c.pending() if x.data]
        assert not got, f"answered: {got}"
        if by_wire:
            s.hit(c, HIT)
        else:
            assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script, same=by_wire)


def t_frame_of_another_host():
    is_refused(lambda s, c: to("02deadbeef01", s.st.frame(s.family, packet(s, c))))


def t_frame_of_all_hosts():
    is_refused(lambda s, c: to("ff" * 6, s.st.frame(s.family, packet(s, c))))


def t_syn_to_an_ipv4_mapped_address():
    """The host has the IPv4 address; no packet has one that is mapped (RFC 4291 2.5.5.2)."""
    def script(s):
        s.hit(s.connect(), HIT)
        own4 = s.st.server(4)
        for _ in range(3):
            c = rawtcp.Connection(s.st, (f"::ffff:{own4}", s.address[1]))
            c.handshake()
            s.st.barrier(s.family)
            assert not c.queue, f"answered: {c.queue}"
            del s.st.connections[c.key]
    stage.play(script, families=(6,))


def t_vlan_that_is_not_the_connections():
    is_refused(lambda s, c: s.st.frame(s.family, packet(s, c), vlans=[77]))


def t_length_zero():
    """A jumbo length in a packet that is not BIG TCP."""
    is_refused(lambda s, c: s.st.frame(s.family, without_length(s.family, packet(s, c))))


def t_checksum_of_the_pseudo_header_alone():
    """As CHECKSUM_PARTIAL has it, but that never comes over a wire."""
    is_refused(lambda s, c: s.st.frame(s.family, packet(s, c, partial=True)))


def t_old_timestamp():
    """An old duplicate (RFC 7323 5.3): TCP judges it, and the connection is TCP's from there."""
    def frame(s, c):
        old = c.ts_now - (1 << 20)
        c.tsvals.add(old % (1 << 32))
        return s.st.frame(s.family, packet(s, c, opts=rawtcp.options(ts=(old, c.tsval_newest))))
    is_refused(frame, by_wire=False)


def t_resets_that_tcp_does_not_take():
    """Damaged, another host's, or beyond data that was out of window: no connection is
    forgotten."""
    def far_data_and_reset(s, c):
        far = 3000000
        c.put("P.", c.at + far, c.got + 12345678, b"x" * 10, b"")
        c.put("R", c.at + far + 10, None)

    def script(s):
        resets = (lambda s, c: c.put("R", c.at, None, raw=rawtcp.damaged),
                  lambda s, c: s.st.put(to("02deadbeef01", s.st.frame(
                      s.family, packet(s, c, "R", b"", b"")))),
                  far_data_and_reset)
        connections = []
        for reset in resets:
            c = s.connect()
            s.hit(c, HIT)
            sent = c.sent_max
            reset(s, c)
            c.pending()
            c.sent_max = sent
            connections.append(c)
        time.sleep(BURIED_S)
        for c in connections:
            assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script, families=(4,), same=False)


def t_data_out_of_window_does_not_end_wire():
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        sent = c.sent_max
        c.put("P.", c.at + 3000000, c.got + 12345678, b"x" * 10, b"")
        c.put("P.", c.at + 20, c.got, b"x" * 10, c.options(), raw=rawtcp.damaged)
        c.put("F.", c.at, c.got, opts=c.options(), raw=rawtcp.damaged)
        c.pending()
        c.sent_max = sent
        s.hit(c, OTHER)
    stage.play(script, same=False)


def t_acknowledgement_one_below_the_window():
    """With a lost reply, which its client then still receives."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        sent = c.sent_max
        c.put(".", c.at - 1, read + len(first.raw), opts=c.options())
        c.sent_max = sent
        c.pending()
        c.again(HIT, seq=at, ack=read)
        assert c.response().raw == first.raw
    with stage.impatient():
        stage.play(script, same=False)


def t_handshake_whose_end_is_damaged():
    """Has not ended, and takes no slot."""
    def script(s):
        before = stage.flows()
        for _ in range(50):
            c = s.new()
            c.handshake()
            c.expect("S.")
            c.put(".", c.at, c.got, opts=c.options(), raw=rawtcp.damaged)
        s.st.barrier(s.family)
        after = stage.flows()       # those of other scripts may have been swept
        assert after <= before, f"{after} flows, {before} before"
        for c in list(s.connections):
            c.put("R", 1, None)
            s.st.graves.add(c.key)
            s.st.connections.pop(c.key, None)
        s.connections.clear()
        s.st.barrier(s.family)
        s.st.strays.clear()
    stage.play(script, families=(4,), same=False, tiers=("wire",))


def t_partial_acknowledgements_with_options_in_another_order():
    """Timestamps before the padding: no loss, nothing is sent again."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        seen = []
        with s.still():
            c.send(TEN)
            while not c.whole(c.mask, "GET"):
                seg = c.next()
                if seg.data:
                    seen.append(seg.seq)
                    c.put(".", c.at, c.got, opts=c.options()[2:] + b"\1\1")
            seen += [x.seq for x in c.pending() if x.data]
        c.response()
        assert len(set(seen)) == len(seen), f"sent again: {seen}"
    stage.play(script, families=(4,), same=False)


def t_link_that_takes_less_than_when_the_reply_was_lost():
    """The socket sends it, in segments that fit."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at = c.at
        c.send(TEN)
        c.pending()
        c.queue.clear()         # all lost
        stage.net.server.run("ip", "link", "set", "tbg0", "mtu", "1400")
        try:
            c.again(TEN, seq=at, ack=c.got)
            assert c.response().body == BODIES["/ten"]
        finally:
            stage.net.server.run("ip", "link", "set", "tbg0", "mtu", "1500")
    with stage.impatient():
        stage.play(script, families=(4,), same=False)


def t_segments_sent_again_can_be_told_apart():
    """They may be fragmented: no two with one identification (RFC 6864 4.3)."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        ids = []
        with s.still():
            c.send(TEN)
            c.response(lose=True)
            c.again(TEN, seq=at, ack=read)
            while not c.whole(c.mask, "GET"):
                seg = c.next()
                if seg.data:
                    assert not seg.df
                    ids.append(seg.id)
                    c.send(flags=".")
        c.response()
        assert len(set(ids)) >= len(ids) - 1, ids       # they are random
    stage.play(script, families=(4,), same=False, tiers=("wire",))


adversary.runner(globals(), stage)
