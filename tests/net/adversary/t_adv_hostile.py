#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of attackers: forged numbers, replays, floods, any header byte changed.

Nothing of it reaches another connection, makes the kernel's TCP count what it
would not count without wire, or leaves anything behind.
"""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import client
import daemon
import maps
import net
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/large": talk.content("large", 40000)}
HIT, OTHER, LARGE = (talk.request(t) for t in ("/hit", "/other", "/large"))
SYNS = 2000 if client.IN_VM else 20000
VALUES = 1 if client.IN_VM else 2       # tried for each byte of the headers
EMBRYOS = 16384                         # entries of tbg_embryos
FLAGS_AT = {4: 20 + 13, 6: 40 + 13}
# Who has a changed address is told of as unreachable, once nobody has said for seconds.
NOBODY = ("Icmp.InErrors", "Icmp.InDestUnreachs", "Icmp.OutDestUnreachs", "IcmpMsg.InType3",
          "IcmpMsg.OutType3", "Icmp.OutRateLimitHost", "Icmp6InErrors", "Icmp6InDestUnreachs",
          "Icmp6OutDestUnreachs", "Icmp6InType1", "Icmp6OutType1", "Icmp6OutRateLimitHost")
stage = adversary.Stage(BODIES)


def used(s, **how):
    c = s.connect(**how)
    s.hit(c, OTHER)
    c.get(LARGE)
    s.hit(c, OTHER)
    return c


def t_numbers_off_by_one():
    """A request one byte too early or late, or one that acknowledges too much or little."""
    def script(s):
        # a segment that begins before the next byte is trimmed by a socket alone
        for dseq in (0, 1) if daemon.LATE else (-1, 0, 1):
            for dack in (-1, 0, 1):
                if not dseq and not dack:
                    continue
                c = used(s)
                c.send(HIT, seq=c.at + dseq, ack=c.got + dack)
                c.at -= max(0, len(HIT) + dseq)
                for seg in c.pending():
                    assert not seg.data or dseq <= 0 and dack <= 0, f"{dseq} {dack}: {seg}"
                c.send(HIT)
                r = c.response()
                s.notes.append((dseq, dack, r.status, r.bare()))
    stage.play(script)


def t_numbers_far_off():
    def script(s):
        for far in (1000, 70000, 1 << 22, 1 << 30, (1 << 31) - 1, -70000, -(1 << 22), -(1 << 30)):
            # an old acknowledgement alone is not among them
            for seq, ack in ((far, 0), (far, far), *([(0, far)] if far > 0 else [])):
                c = used(s)
                at = c.at
                c.put("P.", at + seq, c.got + ack, HIT, c.options())
                for seg in c.pending():
                    assert not seg.data, f"{seq} {ack}: {seg}"
                    assert (seg.seq, seg.ack) == (c.read, at), f"{seq} {ack}: {seg}"
                c.send(HIT)
                assert c.response().body == BODIES["/hit"]
    stage.play(script)


def t_everything_replayed():
    """All that was ever sent, in order, backwards and at random: acknowledgements at most."""
    def script(s):
        c = used(s)
        order = random.Random(rawtcp.SEED)
        old = [f for f in c.frames[1:]]
        for frames in (old, old[::-1], [order.choice(old) for _ in range(50)]):
            for frame in frames:
                s.st.put(frame)
                for seg in c.pending():
                    assert not seg.data, f"data for a replay: {seg}"
                    assert (seg.seq, seg.ack) == (c.read, c.at), seg
        s.hit(c, HIT)
    stage.play(script)


def t_blind_resets():
    """In window, but not exact: a challenge. Outside: nothing. Wire goes on."""
    def script(s):
        c = used(s)
        for off, challenged in ((1, True), (1000, True), (60000, True), (-1, False), (-1000, False),
                                (1 << 24, False), (1 << 30, False), (-(1 << 30), False)):
            sent = c.sent_max
            c.put("R", c.at + off, None)
            if challenged:
                c.expect(".", seq=c.read, ack=c.at)
            c.quiet()
            c.sent_max = sent
        s.hit(c, HIT)
        c.get(LARGE)
        s.hit(c, OTHER)
    stage.play(script)


def yielded(s):
    """A connection whose first reply was lost, so that its socket had to send it."""
    before = s.counted("YIELD")
    c = s.connect()
    c.send(HIT)
    lost = c.response(lose=True)
    assert c.response().raw == lost.raw
    c.send(flags=".")
    assert not s.wire or s.counted("YIELD") > before
    return c


def blind_data(s, c, beyond):
    for off in (0, 1, 500, 30000):
        sent = c.sent_max
        c.put("P.", c.at + off, c.got + beyond, b"GET /other HTTP/1.1\r\n", c.options())
        for seg in c.pending():
            assert not seg.data and (seg.seq, seg.ack) == (c.read, c.at), seg
        c.sent_max = sent
    c.send(HIT)
    assert c.response().body == BODIES["/hit"]


def t_blind_data():
    """Within the window, acknowledging nothing that was sent: not taken."""
    stage.play(lambda s: blind_data(s, used(s), 5000))


def t_blind_data_after_a_reply_that_the_socket_had_to_send():
    adversary.needs_socket("the client repeats its request")
    def script(s):
        for beyond in (70000, 1 << 20, (1 << 31) - 100):
            blind_data(s, yielded(s), beyond)
    with stage.impatient():
        stage.play(script)


def unsent_acknowledged(s, c, beyond):
    answers = 0
    for ack in beyond:
        for _ in range(5):
            c.put(".", c.at, c.got + ack, opts=c.options())
            got = c.pending()
            assert len(got) <= 1, f"{len(got)} answers: {got}"
            for seg in got:
                assert seg.flags == "." and (seg.seq, seg.ack) == (c.read, c.at), seg
            answers += len(got)
    c.edge = c.read + 65535 * 128
    # wire answers, as RFC 9293 3.10.7.4 says; Linux 6.12 does not
    if not daemon.LATE:
        s.notes.append(answers)


def t_acknowledgements_of_unsent_data():
    """One answer each at the very most, in right numbers; none answers itself."""
    def script(s):
        c = used(s)
        unsent_acknowledged(s, c, (1, 100, 70000, 1 << 20, 1 << 29, (1 << 31) - 1))
        s.hit(c, HIT)
    stage.play(script)


def t_acknowledgements_of_unsent_data_after_a_reply_that_the_socket_had_to_send():
    adversary.needs_socket("the client repeats its request")
    """And none of them takes a lost segment for one that has come."""
    def script(s):
        c = yielded(s)
        unsent_acknowledged(s, c, (1, 100, 70000, 1 << 20, 1 << 29, (1 << 31) - 100))
        c.send(OTHER)
        lost = c.response(lose=True)
        for beyond in (1, 5000, 60000, 1 << 20):
            c.put(".", c.at, c.got + len(lost.raw) + beyond, opts=c.options())
        assert c.response().raw == lost.raw
        c.send(flags=".")
    with stage.impatient():
        stage.play(script)


def t_sack_of_anything():
    """Blocks of what was never sent, of wire's bytes, back to front."""
    def script(s):
        c = used(s)
        end = c.got
        for blocks in ([(1, end)], [(end, end + 1000)], [(end - 100, end + 100)], [(100, 50)],
                       [(1, 2), (3, 4), (5, 6)], [(end + (1 << 30), end + (1 << 30) + 1)]):
            c.send(flags=".", sack=blocks)
            assert not [x for x in c.pending() if x.data]
        c.send(LARGE)
        c.response()
        s.hit(c, HIT)
    stage.play(script)


def t_client_that_never_acknowledges():
    """Requests and no word about the answers: a window's worth of bytes, and no more."""
    def script(s):
        c = used(s)
        read = c.read
        for _ in range(200):
            if c.at + len(LARGE) > c.their_edge:
                break
            c.send(LARGE, ack=read)
            c.st.barrier(c.family)
        total = 0
        for seg in c.pending():
            total += len(seg.data)
        assert total <= c.edge - read, f"{total} bytes"
    stage.play(script, same=False, ignore=adversary.TIMED)  # on a slow machine it runs out


def t_client_with_a_window_of_zero():
    def script(s):
        c = used(s)
        c.window = 0
        c.send(flags=".")
        for request in (HIT, LARGE, HIT) * 50:
            if c.at + len(LARGE) > c.their_edge:
                break
            c.send(request)
        c.pending()     # what fits into the window that was open before, at most
    stage.play(script, same=False)


def t_handshake_acks_of_nothing():
    """ACKs with data that no SYN preceded: resets, no flows, no answers."""
    def script(s):
        st, (dst, dport) = s.st, s.address
        src = st.addresses[s.family][-1]
        for i in range(SYNS // 20):
            seg = st.tcp(src, dst, 45000 + i % 1000, dport, i, i * 3, "P.", 65535,
                         rawtcp.options(ts=(1, 1)), HIT)
            st.put(st.frame(s.family, st.ip(src, dst, seg)))
        st.barrier(s.family)
        assert st.strays and all(seg.bits & rawtcp.RST and not seg.data for seg in st.strays), \
               st.strays[:5]
        s.notes.append(len(st.strays))
        st.strays.clear()
    before = stage.flows()
    stage.play(script)
    assert stage.flows() <= before


def changed(packet, family, at, value):
    """The packet with one byte of its headers changed, and right checksums, but for TCP's own."""
    out = bytearray(packet)
    out[at] = value
    tcp = 20 if family == 4 else 40
    if family == 4:     # a wrong one would end it in IP, whatever else was changed
        out[10:12] = b"\0\0"
        out[10:12] = struct.pack("!H", 0xffff - rawtcp.fold(bytes(out[:20])))
    if at not in (tcp + 16, tcp + 17):
        out[tcp + 16:tcp + 18] = b"\0\0"
        pseudo = bytes(out[12:20] if family == 4 else out[8:40])
        pseudo += struct.pack("!II", len(out) - tcp, 6)
        out[tcp + 16:tcp + 18] = struct.pack("!H", 0xffff - rawtcp.fold(pseudo + bytes(out[tcp:])))
    return bytes(out)


def mutation(s, at, value, witness):
    """Hit, a request with one byte changed, the request as it is, and the end."""
    c = s.connect(iss=at << 20 | value << 4, ts_start=at << 24 | value)
    s.hit(c, OTHER)
    tcp = 20 if s.family == 4 else 40
    in_ack = tcp + 8 <= at < tcp + 12   # the server's numbers are random, the change is not
    off = (value - 128) << 8 * (tcp + 11 - at) if in_ack else 0
    seg = s.st.tcp(c.local, c.remote, c.port, c.rport, c.iss + c.at, c.irs + c.got + off, "P.",
                   c.window, c.options(), HIT)
    packet = s.st.ip(c.local, c.remote, seg)
    if not in_ack:
        packet = changed(packet, s.family, at, value)
    c.trace.append(f"< P. with byte {at} as {value:#x}")
    mut = packet[tcp:]
    ports = struct.unpack_from("!HH", mut)
    seq, tsval = struct.unpack_from("!I", mut, 4)[0], struct.unpack_from("!I", mut, 24)[0]
    rel = (seq - c.iss + rawtcp.MOD // 2) % rawtcp.MOD - rawtcp.MOD // 2
    c.sent_max = max(c.sent_max, rel + len(mut))
    c.tsvals.add(tsval)
    # the edge of the window is where the changed segment says, if it is taken
    c.edge = max(c.edge, c.got + 65535 * 128)
    s.st.put(s.st.frame(s.family, packet))
    s.st.barrier(s.family)
    if rawtcp.after(tsval, c.ts_now):
        c.ts_now = tsval        # its clock is ahead from now on
    c.send(HIT)
    c.send(flags="F.")
    while c.fin is None and not c.reset:
        if c.next("the end").data:
            c.send(flags=".")
    for stray in s.st.strays:
        assert stray.bits & rawtcp.RST and not stray.data, f"byte {at}, {value:#x}: {stray}"
        assert stray.dport == ports[0] and stray.sport == ports[1], \
               f"byte {at}, {value:#x}: {stray}"
    s.st.strays.clear()
    assert not witness.queue, f"byte {at}, {value:#x}: to another connection: {witness.queue}"
    ended = "reset" if c.reset else "closed"
    s.notes.append((at, value, ended, adversary.bare(bytes(c.seen))))
    c.drop()
    s.connections.remove(c)


def t_every_byte_of_the_headers_changed():
    """IP and TCP, options included: what the client gets is what it gets without wire."""
    adversary.needs_socket("a segment that begins too early is trimmed")
    def script(s):
        order = random.Random(rawtcp.SEED)
        witness = used(s)
        for at in range((20 if s.family == 4 else 40) + 32):
            for _ in range(VALUES):
                value = order.randrange(256)
                if at == FLAGS_AT[s.family] and value & (rawtcp.SYN | rawtcp.RST) == \
                   rawtcp.SYN | rawtcp.RST:
                    continue    # nobody's: a SYN is not translated, so it resets nothing
                mutation(s, at, value, witness)
        s.hit(witness, HIT)
    stage.play(script, ignore=NOBODY)


def t_wire_is_well():
    def script(s):
        c = used(s)
        s.hit(c, HIT)
    stage.play(script, ignore=NOBODY)   # of the test before


def t_syn_flood():
    """
    Half-open connections are no flows: what wire keeps of them is bounded.
    The last test: the kernel sends SYN-ACKs for seconds after it.
    """
    adversary.needs_socket("t_flood.py has a flood for connections without")
    server = stage.net.server
    def memory():
        return sum(maps.held(stage.daemons["wire"].pid).values())

    before, held = stage.flows(), memory()
    was = server.sysctl("ipv4.tcp_synack_retries", 1)
    st = stage.station
    opts = rawtcp.options(mss=1460, sackok=True, ts=(1, 0), wscale=7)
    try:
        for family in (4, 6):
            source = st.address(family)
            st.addresses[family].remove(source)     # deaf to what comes back
            for i in range(SYNS // 2):
                syn = st.tcp(source, st.server(family), 1024 + i, adversary.WIRE, i * 7919, 0, "S",
                             65535, opts)
                st.put(st.frame(family, st.ip(source, st.server(family), syn)))
                if i % 512 == 0:
                    st.barrier(family)
            st.barrier(family)
        assert stage.flows() <= before, "half-open connections are flows"
        # preallocated, and evicts its oldest: a flood of any length makes it no larger
        kept = stage.map_info(maps.EMBRYOS)
        assert (kept["type"], kept["max_entries"]) == ("lru_hash", EMBRYOS), kept
        assert stage.count(maps.EMBRYOS), "the flood has not come as far as wire"
        grown = memory() - held
        assert grown <= 0, f"the maps take {grown} bytes more"

        # once the kernel has given them up, without cookies again
        def served():
            s = adversary.Play(stage, 4, "wire")
            c = s.connect()
            tier = c.get(HIT).tier
            s.end()
            return tier == "wire"
        net.until(served, "wire does not answer after the flood")
    finally:
        server.sysctl("ipv4.tcp_synack_retries", was)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
