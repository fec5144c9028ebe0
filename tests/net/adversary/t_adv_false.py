#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Segments that TCP would reject, or would not accept for what they seem to be: wire does
not either, though most of them never reach TCP."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import net
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/ten": talk.content("ten", 13800)}
HIT, OTHER, TEN = (talk.request(t) for t in ("/hit", "/other", "/ten"))
stage = adversary.Stage(BODIES)


def t_fin_and_request_again_after_a_lost_reply():
    """A client that sends its request again together with its FIN is not left alone."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        c.again(HIT, flags="FP.", seq=at, ack=read)
        c.at = at + len(HIT) + 1
        deadline = time.monotonic() + net.WAIT_S / 4
        # as any client would, until it is answered or reset
        while not c.reset:
            try:
                seg = c.next("answer", wait_s=0.3)
            except AssertionError:
                assert time.monotonic() < deadline, "stalled: neither answered nor reset"
                c.send(HIT, flags="FP.", seq=at, ack=c.got)
                continue
            if seg.data:
                c.send(flags=".")
            if c.whole(c.mask, "GET"):
                assert c.whole(c.mask, "GET").raw == first.raw
                c.send(flags="F.", seq=at + len(HIT))
                while c.fin is None:
                    c.next("the server's FIN")
                c.send(flags=".")
                return
    with stage.impatient():
        stage.play(script, same=False)


def false_acknowledgement(forge):
    """A lost reply, acknowledged by somebody else: the client's repeated request gets the reply."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        sent = c.sent_max
        forge(c, read + len(first.raw))
        c.sent_max = sent
        c.st.barrier(c.family)
        c.queue.clear()
        for _ in range(3):
            c.again(HIT, seq=at, ack=read)
            c.st.barrier(c.family)
        assert c.response().raw == first.raw
    with stage.impatient():
        stage.play(script)


def t_damaged_acknowledgement():
    """Its checksum is wrong: what it says was never said."""
    false_acknowledgement(lambda c,
                          ack: c.put(".", c.at, ack, opts=c.options(), raw=rawtcp.damaged))


def t_blind_acknowledgement():
    """Its sequence number is out of the window: what it says is not heard (RFC 9293 3.10.7.4)."""
    def forge(c, ack):
        for off in (1 << 20, 1 << 30, -(1 << 20)):
            c.put(".", c.at + off, ack, opts=c.options())
    false_acknowledgement(forge)


def t_blind_duplicate_acknowledgements():
    """The same with three duplicates: they show no loss."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        read = c.read
        c.send(TEN)
        c.response(ack=False)
        sent = c.sent_max
        for off in (1 << 20, -(1 << 20), 1 << 30) * 3:
            c.put(".", c.at + off, read, opts=c.options())
        got = [x for x in c.pending() if x.data]
        assert not got, f"sent again: {got}"
        c.sent_max = sent
        c.send(flags=".")
        s.hit(c, OTHER)
    stage.play(script)


def put_damaged(s, c):
    """
    Sends HIT with one flipped bit in the IPv4 header: the kernel drops the packet. Needs
    s.still(): a daemon that runs sends a reply again that was acknowledged too late.
    """
    seg = s.st.tcp(c.local, c.remote, c.port, c.rport, c.iss + c.at, c.irs + c.got, "P.",
                   c.window, c.options(), HIT)
    packet = bytearray(s.st.ip(c.local, c.remote, seg))
    packet[10] ^= 1
    c.note_sent("P.", c.at, c.got, HIT, c.window)
    s.st.put(s.st.frame(4, bytes(packet)))
    assert not c.pending(), "a damaged packet was answered"


def t_wrong_ipv4_header_checksum():
    """A router's flipped bit: dropped (RFC 1122 3.2.1.2), not answered."""
    def script(s):
        c = s.connect()
        with s.still():
            s.hit(c, OTHER)
            put_damaged(s, c)
        # wire has seen it go up, and leaves it to the socket
        assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script, families=(4,))


def before_its_socket(request, meanwhile):
    """
    The segment with which wire hands the connection over gets lost behind wire: until the
    client sends it again, there is no socket. Other segments change nothing.
    """
    def script(s):
        c = s.connect()
        with s.still():
            assert c.get(request).tier == s.tier
            put_damaged(s, c)
        sent = c.sent_max
        meanwhile(c)
        c.sent_max = sent
        c.pending()
        r = c.get(HIT)
        assert (r.body, c.reset) == (BODIES["/hit"], False), r
    stage.play(script, families=(4,))


def t_reply_of_many_segments_before_its_socket():
    """The timer of that reply, which is acknowledged, ends after 200 ms."""
    before_its_socket(TEN, lambda c: time.sleep(0.7))


def t_damaged_segments_before_its_socket():
    def meanwhile(c):
        for flags in ("R", "R.", "S"):
            c.put(flags, c.at, c.got, opts=c.options(), raw=rawtcp.damaged)
    before_its_socket(OTHER, meanwhile)


def t_blind_segments_before_its_socket():
    """Challenged or dropped (RFC 5961 3.2, 4.2)."""
    def meanwhile(c):
        for off in (1, 1000, -1000, 1 << 30):
            c.put("R.", c.at + off, c.got, opts=c.options())
        c.put("S", c.at + 77, c.got, opts=c.options())
    before_its_socket(OTHER, meanwhile)


def t_blind_data_with_an_old_acknowledgement():
    """Older than any window of ours: challenged, not taken (RFC 5961 5.2), after hits too."""
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        s.hit(c, OTHER)
        at = c.at
        for ack in (-70000, -(1 << 24), -(1 << 30)):
            c.put("P.", at, c.got + ack, HIT, c.options())
            for seg in c.pending():
                assert not seg.data and seg.ack == at, f"taken: {seg}"
        assert c.get(HIT).body == BODIES["/hit"]
    # kernels before 6.7 have only the client's largest window for it: 8 MB here
    stage.play(script, same=False)


def t_two_holes_shown_by_sack():
    """Blocks of nothing but wire's bytes mean nothing to the kernel, duplicates least of all."""
    def script(s):
        c = s.connect()
        c.send(TEN)
        if s.wire:
            segs = [c.next(lose=True)]
            while "P" not in segs[-1].flags:
                segs.append(c.next(lose=True))
            for i, seg in enumerate(segs):
                if i not in (2, 5):
                    c.receive(seg)
            for seg in segs[7:]:
                c.send(flags=".", sack=[(segs[6].seq, seg.seq + len(seg.data)),
                                        (segs[3].seq, segs[5].seq)])
        assert c.response().body == BODIES["/ten"]
    with stage.impatient():
        stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
