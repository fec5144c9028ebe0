#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of unusual but legal clients: options, windows, marks, shapes.

Where wire may answer, it must do so in one segment; where it may not, the
daemon does, and wire answers the next plain request as if nothing had been.
"""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import daemon
import ktap
import net
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/full": talk.content("full", 1100), "/large": talk.content("large", 40000)}
HIT, OTHER, FULL, LARGE = (talk.request(t) for t in ("/hit", "/other", "/full", "/large"))
stage = adversary.Stage(BODIES)


def passes(s, c, why, request=HIT, **how):
    """A request that wire leaves to the daemon, for this reason; the next is wire's."""
    before = s.counted(why) if s.wire else 0
    c.send(request, **how)
    r = c.response()
    assert (r.status, r.body, r.tier) == (200, BODIES["/hit"], "user"), r
    assert not s.wire or s.counted(why) > before, f"{why} was not the reason"
    s.hit(c, OTHER)


def options(**how):
    """Hits, a miss of wire's and an object of many segments, on such a connection."""
    def script(s):
        c = s.connect(**how)
        for request in (HIT, OTHER, LARGE, OTHER, HIT, LARGE, HIT):
            if request is LARGE:
                assert c.get(LARGE).body == BODIES["/large"]
            else:
                s.hit(c, request)
        # the last reply lost: without any option, too
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        c.again(HIT, seq=at, ack=read)
        assert c.response().raw == first.raw
    with stage.impatient():
        stage.play(script)


def t_without_timestamps():
    options(ts=False)


def t_without_sack():
    options(sack=False)


def t_without_window_scaling():
    options(wscale=None)


def t_without_any_option():
    options(ts=False, sack=False, wscale=None)


def t_window_scale_of_14():
    options(wscale=14, window=65535)


def t_mss_that_just_holds_the_reply():
    """One byte less, and it takes two segments."""
    def script(s):
        c = s.connect()
        size = len(s.hit(c, FULL).raw)
        # a connection without a socket knows the client's MSS in steps (wire/cookie.bpf.h)
        sizes = ((1400, 1), (536, 3)) if daemon.LATE else \
            ((size + 12, 1), (size + 11, 2), (size // 2 + 24, 2), (536, 3))
        for mss, nr in sizes:
            c = s.connect(mss=mss)
            for _ in range(2):
                before = len(c.trace)
                s.hit(c, FULL)
                got = [x for x in c.trace[before:] if x.startswith(">") and "(0)" not in x]
                assert len(got) == nr, f"an MSS of {mss}: {got}"
    # no socket is made late for less than 1220 bytes over IPv6
    stage.play(script, families=(4,) if daemon.LATE else (4, 6))


def t_without_mss():
    """RFC 9293 3.7.1: 536 bytes, or 1220."""
    def script(s):
        c = s.connect(mss=None, ts=False, sack=False, wscale=None)
        r = c.get(HIT)
        assert (r.tier, r.body) == (s.tier, BODIES["/hit"]), r
    stage.play(script)


def t_reply_acknowledged_piece_by_piece():
    def script(s):
        c = s.connect()
        for _ in range(3):
            read = c.read
            r = c.get(HIT, ack=False)
            for part in (1, 2, len(r.raw) // 2, len(r.raw) - 1, len(r.raw)):
                c.send(flags=".", ack=read + part)
            c.quiet()
        c.send(OTHER)
        assert c.response().body == BODIES["/other"]
        c.send(LARGE)
        assert c.response().body == BODIES["/large"]
    stage.play(script)


def t_next_request_before_all_is_acknowledged():
    """Half a reply acknowledged is not idle: the daemon's, in order."""
    def script(s):
        c = s.connect()
        r = c.get(HIT, ack=False)
        c.send(OTHER, ack=1 + len(r.raw) // 2)
        n = c.response()
        assert (n.tier, n.body) == ("user", BODIES["/other"]), n
        s.hit(c, HIT)
    stage.play(script)


def t_delayed_acknowledgements():
    """Every acknowledgement rides on the next request; one comes much later."""
    def script(s):
        c = s.connect()
        for request in (HIT, OTHER, FULL, HIT):
            c.get(request, ack=False)
        time.sleep(0.25)
        # so late that the socket sends it again, with the same bytes
        c.send(flags=".")
        assert c.get(HIT).body == BODIES["/hit"]
        assert c.get(LARGE).body == BODIES["/large"]
    stage.play(script)


def t_keepalive_probes():
    """An old number, with a byte of garbage or without: an acknowledgement each."""
    def script(s):
        c = s.connect()
        for request in (HIT, LARGE, OTHER):
            c.get(request)
            c.st.barrier(c.family)
            for garbage in (b"", b"\0", b"", b"\0"):
                c.send(garbage, flags=".", seq=c.at - 1)
                c.expect(".", seq=c.read, ack=c.at)
            c.quiet()
        s.hit(c, HIT)
    # OTHER is nothing to the socket: 6.1 sees the probes of LARGE again, and takes the
    # garbage for data that is sent for ever because no acknowledgement arrives
    stage.play(script, ignore=("TcpExt.TcpDuplicateDataRehash",))


def t_keepalive_probe_of_a_connection_without_a_request():
    def script(s):
        c = s.connect()
        for garbage in (b"", b"\0"):
            c.send(garbage, flags=".", seq=0)
            c.expect(".", seq=1, ack=1)
        s.hit(c, HIT)
    stage.play(script)


def t_urgent_byte_within_a_request():
    """It is no part of the stream that the daemon reads, but has a number."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        before = s.counted("FLAGS")
        c.send(HIT[:10] + b"!" + HIT[10:], flags="PU.", urg=11)
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
        assert not s.wire or s.counted("FLAGS") == before + 1
        for request in (OTHER, HIT):
            c.send(request)
            assert c.response().body in (BODIES["/hit"], BODIES["/other"])
    stage.play(script)


def t_urgent_pointer_without_its_flag():
    """Means nothing (RFC 9293 3.1)."""
    def script(s):
        c = s.connect()
        c.send(HIT, urg=5)
        r = c.response()
        assert (r.tier, r.body) == (s.tier, BODIES["/hit"]), r
    stage.play(script)


def t_without_psh():
    def script(s):
        c = s.connect()
        for _ in range(3):
            c.send(HIT, flags=".")
            r = c.response()
            assert (r.tier, r.body) == (s.tier, BODIES["/hit"]), r
    stage.play(script)


def t_ecn_capable_requests():
    """ECT on what comes, none on what wire sends."""
    def script(s):
        c = s.connect(syn="SEW")
        c.tos = 2
        c.send(HIT)
        if s.wire:
            seg = c.expect("P.", seq=1)
            assert not seg.tos & 3, f"ECN-capable: {seg}"
        c.response()
        c.send(flags=".")
        s.hit(c, OTHER)
        c.tos = 1
        s.hit(c, HIT)
    stage.play(script)


def t_congestion_experienced():
    """The kernel must echo it: such a request is the daemon's. So is one with CWR."""
    def script(s):
        c = s.connect(syn="SEW")
        c.tos = 2
        s.hit(c, OTHER)
        before = s.counted("FLAGS")
        c.send(HIT, ip={"tos": 3})
        seg = c.next()
        while not seg.data:
            seg = c.next()
        assert "E" in seg.flags, f"no echo of congestion: {seg}"
        c.send(flags=".")
        r = c.response()
        assert r.tier == "user", r
        c.send(HIT, flags="PW.")
        r = c.response()
        assert r.tier == "user" or s.late, r     # the socket has been given back
        assert not s.wire or s.late or s.counted("FLAGS") == before + 2
        s.hit(c, HIT)
    stage.play(script)


def t_congestion_experienced_without_ecn():
    """Marks of a network on a connection without ECN: the segment is passed up nevertheless."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        passes(s, c, "FLAGS", ip={"tos": 3})
    stage.play(script)


def t_accurate_ecn_marks():
    """AE, CWR and ECE as a counter (RFC 9768): the daemon's."""
    def script(s):
        c = s.connect(syn="SEWA")
        for flags in ("PA.", "PAE.", "PWE.", "PAWE."):
            before = s.counted("FLAGS")
            c.send(HIT, flags=flags)
            r = c.response()
            assert s.late or r.tier == "user", r
            assert r.body == BODIES["/hit"], r
            assert not s.wire or s.late or s.counted("FLAGS") == before + 1, flags
    stage.play(script, ignore=("TcpExt.TCPDeliveredCE",) if daemon.LATE else ())


def t_accurate_ecn_agreed():
    """Where the kernel can do it and is told to: no flow of wire's answers wrongly."""
    try:
        was = stage.net.server.sysctl("ipv4.tcp_ecn", 3)
    except OSError as why:
        raise ktap.Skip(f"the kernel has no accurate ECN: {why}") from why

    def script(s):
        c = s.new(syn="SEWA")
        c.handshake()
        synack = c.expect()
        assert set(synack.flags) & set("AW"), f"not agreed: {synack}"
        c.send(flags="AE.")
        for _ in range(3):
            c.send(HIT, flags="PAE.")
            r = c.response(ack=False)
            assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
            c.send(flags="AE.")
    try:
        stage.play(script)
    finally:
        stage.net.server.sysctl("ipv4.tcp_ecn", was)


def t_ip_options():
    """NOPs, and a route to be recorded."""
    def script(s):
        for opts in (b"\1\1\1\0", b"\7\7\4\0\0\0\0\0"):
            c = s.connect()
            passes(s, c, "IP_ODD", ip={"options": opts})
            c.send(flags=".", ip={"options": opts})
            s.hit(c, HIT)
    stage.play(script, families=(4,))


def t_ipv6_extension_headers():
    """Hop-by-hop, destination options, a fragment header of an unfragmented packet. 7.2 takes
    12."""
    pad = bytes([0, 1, 4, 0, 0, 0, 0])

    def script(s):
        for ext in ([(0, pad)], [(60, pad)], [(0, pad), (60, pad)],
                    [(44, struct.pack("!BHI", 0, 0, 77))], [(0, pad)] + [(60, pad)] * 4,
                    [(60, pad)] * 12):
            c = s.connect()
            passes(s, c, "IP_ODD", ip={"ext": ext})
            c.send(flags=".", ip={"ext": ext})
            s.hit(c, HIT)
            passes(s, c, "IP_ODD", ip={"ext": ext})
    stage.play(script, families=(6,))


def t_every_segment_with_extension_headers():
    pad = bytes([0, 1, 4, 0, 0, 0, 0])

    def script(s):
        c = s.new()
        put = c.put
        c.put = lambda *args, **more: put(*args, **{**more, "ip": {"ext": [(60, pad)]}})
        c.open()
        for request in (HIT, OTHER, LARGE, HIT):
            assert c.get(request).tier == "user"
    stage.play(script, families=(6,))


def fragments(c, data, cut):
    """Data in two fragments, the first with cut bytes behind the IP header; then back to front."""
    seg = c.st.tcp(c.local, c.remote, c.port, c.rport, c.iss + c.at, c.irs + c.got, "P.", c.window,
                   c.options(), data)
    c.note_sent("P.", c.at, c.got, data, c.window)
    c.at += len(data)
    ident = c.at & 0xffff
    if c.family == 4:
        return [c.st.ip(c.local, c.remote, seg[:cut], ident=ident, frag=0x2000),
                c.st.ip(c.local, c.remote, seg[cut:], ident=ident, frag=cut // 8)]
    return [c.st.ip(c.local, c.remote, part, proto=6,
                    ext=[(44, struct.pack("!BHI", 0, off, ident))])
            for part, off in ((seg[:cut], 1), (seg[cut:], cut))]


def t_request_in_fragments():
    def script(s):
        for kind in ("new", "hit"):
            for cut in (32, 40, 48):
                for turn in (1, -1):
                    c = s.connect()
                    if kind == "hit":
                        s.hit(c, OTHER)
                    packets = fragments(c, HIT, cut)[::turn]
                    for _ in range(2 if s.late else 1):     # a socket first, which reads it then
                        for packet in packets:
                            c.st.put(c.st.frame(c.family, packet))
                        c.st.barrier(c.family)
                    r = c.response()
                    assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
                    assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script, ignore=("Ip.ReasmReqds", "Ip6ReasmReqds") if daemon.LATE else ())


def in_fragments_and_whole(s, c, cut):
    """One request sent twice; what comes of it while the daemon is stopped."""
    at, read = c.at, c.read
    with s.still():
        for packet in fragments(c, HIT, cut):
            c.st.put(c.st.frame(c.family, packet))
        c.send(HIT, seq=at, ack=read)
        return c.pending()


def t_request_in_fragments_and_again_whole():
    """The socket has it, although no segment of it was counted."""
    adversary.needs_socket("the first fragment makes one, and the whole is read by it")
    def script(s):
        for cut in (32, 48):
            c = s.connect()
            s.hit(c, OTHER)
            for seg in in_fragments_and_whole(s, c, cut):
                assert not (s.wire and seg.data), f"answered twice: {seg}"
            r = c.response()
            assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
            assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script)


# IPv6 wants the whole TCP header in the first fragment, and says so (RFC 8200 4.5), but
# not each time: errors are limited in rate.
CUT = ("Icmp6OutParmProblems", "Icmp6OutType4")


def t_fragment_that_cuts_the_tcp_header():
    """What has no place in the socket's numbers does not get there: sent again whole, it counts."""
    def script(s):
        for cut in (8, 16, 24):
            for nr in (0, 1):
                c = s.connect()
                for _ in range(nr):
                    s.hit(c, HIT)
                for seg in in_fragments_and_whole(s, c, cut):
                    assert nr or s.late or not (s.wire and seg.data), f"answered twice: {seg}"
                for request in (None, LARGE, OTHER):
                    r = c.get(request) if request else c.response()
                    assert r.status == 200, r
    stage.play(script, ignore=CUT)


def t_fragment_that_cuts_the_tcp_header_and_the_whole_before_the_rest():
    """Wire has answered, or the socket: never both, whichever of the handshake came first."""
    dropped = ("Ip.ReasmFails", "Tcp.InErrs", "Tcp.InCsumErrors", "IpExt.ReasmOverlaps",
               "Ip6ReasmFails") if daemon.LATE else ()
    def script(s):
        for cut in (8, 16, 24):
            for early in (False, True):
                c = s.new()
                c.handshake()
                c.expect("S.", "S.E")
                if not early:
                    c.send(flags=".")
                at, read = c.at, c.read
                first, rest = fragments(c, HIT, cut)
                c.st.put(c.st.frame(c.family, first))
                if early:
                    c.send(flags=".", seq=at)
                c.send(HIT, seq=at, ack=read)
                assert c.response().body == BODIES["/hit"]
                c.st.put(c.st.frame(c.family, rest))
                for _ in range(2):
                    assert not any(seg.data for seg in c.pending()), "answered twice"
                for request in (LARGE, OTHER):
                    assert c.get(request).status == 200
    stage.play(script, ignore=(*CUT, *dropped))


def t_merged_by_gro():
    """One request that came in pieces and was put together before wire sees it."""
    def script(s):
        c = s.connect()
        for size in (8, 20, len(HIT) - 1):
            c.send_merged(HIT, size)
            r = c.response()
            assert (r.tier, r.body) == (s.tier, BODIES["/hit"]), r
        # one and a half
        c.send_merged(HIT + OTHER[:9], 20)
        assert c.response().body == BODIES["/hit"]
        c.send(OTHER[9:])
        assert c.response().body == BODIES["/other"]
        s.hit(c, HIT)
        c.send_merged(HIT + OTHER, len(HIT))
        assert c.response().body == BODIES["/hit"]
        assert c.response().body == BODIES["/other"]
        s.hit(c, HIT)
    stage.play(script)


def t_head_in_two_segments():
    def script(s):
        c = s.connect()
        for cut in (1, 3, 4, 10, len(HIT) - 4, len(HIT) - 2, len(HIT) - 1):
            c.send(HIT[:cut])
            for seg in c.pending():
                assert not seg.data, f"an answer to half a request: {seg}"
            c.send(HIT[cut:])
            r = c.response()
            assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
            s.hit(c, OTHER)
    stage.play(script)


def t_data_with_the_handshake_s_last_ack():
    """The request is the first thing that comes after the SYN-ACK."""
    def script(s):
        # from a usual one wire learns how the kernel answers a SYN, and answers the next itself
        s.hit(s.connect(), HIT)
        c = s.new()
        c.handshake()
        c.expect("S.")
        c.send(HIT)
        assert c.response().body == BODIES["/hit"]
        s.hit(c, HIT)
    stage.play(script)


def t_syn_sent_again():
    """Before its answer, and after: the handshake is one."""
    def script(s):
        c = s.new()
        c.handshake()
        c.expect("S.")
        c.tsvals.add(c.tsval())
        opts = rawtcp.options(mss=c.mss, sackok=True, ts=(c.ts_now, 0), wscale=c.wscale)
        c.put("S", 0, None, opts=opts)
        c.expect("S.")
        c.send(flags=".")
        c.quiet()
        assert c.get(HIT).body == BODIES["/hit"]
        assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script)


def t_data_in_the_syn():
    """Without a cookie it is not taken (RFC 7413), and comes again."""
    def script(s):
        c = s.new()
        c.tsvals.add(c.tsval())
        opts = rawtcp.options(mss=c.mss, sackok=True, ts=(c.ts_now, 0), wscale=c.wscale)
        c.put("S", 0, None, data=HIT, opts=opts)
        c.sent_max = 1 + len(HIT)
        c.expect("S.", ack=1)
        c.at = 1
        c.send(HIT)
        assert c.get(OTHER, ack=False) and c.response().body == BODIES["/other"]
    stage.play(script)


def t_second_request_overtakes_the_handshake():
    """Its socket keeps it for the time when the first is there: both are the daemon's, once."""
    adversary.needs_socket("what comes before the handshake's end is kept by nobody")
    def script(s):
        c = s.new()
        c.handshake()
        c.expect("S.")
        c.put("P.", 1 + len(HIT), 1, OTHER, c.options())
        c.expect(".", ack=1, sack=[(1 + len(HIT), 1 + len(HIT + OTHER))])
        c.send(flags=".")
        c.send(HIT)
        c.at += len(OTHER)
        bodies = [c.response().body for _ in range(2)]
        assert bodies == [BODIES["/hit"], BODIES["/other"]], bodies
        c.put("P.", 1 + len(HIT), c.got, OTHER, c.options())
        s.st.barrier(s.family)
        assert not any(seg.data for seg in c.pending())
        assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script)


def t_options_that_wire_does_not_know():
    """An experiment's, in a request: the daemon's. The kernel ignores it."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        passes(s, c, "TCP_ODD", extra=b"\xfd\x04\x12\x34")
    stage.play(script)


def t_timestamps_in_another_order():
    """TS NOP NOP instead of NOP NOP TS: legal, and passed up."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        opts = c.options()
        assert opts[:4] == b"\1\1\x08\x0a"
        c.put("P.", c.at, c.got, HIT, opts[2:] + b"\1\1")
        c.at += len(HIT)
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
        s.hit(c, HIT)
    stage.play(script)


def t_first_and_last_source_port():
    def script(s):
        for port in (1, 65535):
            c = s.connect(port=port)
            s.hit(c, HIT)
            s.hit(c, OTHER)
            c.drop()
    stage.play(script)


def t_hits_around_every_wrap():
    """Sequence numbers pass 2^32 at each byte of a request."""
    def script(s):
        for i in range(len(HIT) + 3):
            c = s.connect(iss=rawtcp.MOD - 1 - i)
            s.hit(c, HIT)
            s.hit(c, OTHER)
    stage.play(script)


def t_wire_is_well():
    def script(s):
        s.hit(s.connect(), HIT)
        net.until(lambda: not s.st.strays, "strays")
    stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
