#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of loss, repetition and delay where a reply is one segment.

What was lost comes again byte for byte, Date included, from whoever sent it.
"""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import daemon
import maps
import net
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 600),
          "/tiny": b"", "/replaced": talk.content("first", 500),
          "/large": talk.content("large", 40000)}
HIT, OTHER, LARGE = (talk.request(t) for t in ("/hit", "/other", "/large"))
stage = adversary.Stage(BODIES, rto_ms=200)


def next_second():
    """Now would carry another Date."""
    start = int(time.time())
    net.until(lambda: int(time.time()) > start, "time stands still")


def single(s, c, request, at=1, read=1, **more):
    """A hit that is one segment: the segment; without wire, its response."""
    if not s.wire:
        c.response(lose=more.get("lose", False))
        return None
    return c.expect("P.", seq=read, ack=at + len(request), **more)


def t_hit_is_one_segment():
    def script(s):
        c = s.connect()
        c.send(HIT)
        if s.wire:
            seg = c.expect("P.", seq=1, ack=1 + len(HIT))
            assert seg.df and not seg.tos, seg
            c.quiet()
        r = c.response()
        assert (r.status, r.body, r.tier) == (200, BODIES["/hit"], s.tier), r
        c.send(flags=".")
        c.quiet()
    stage.play(script)


def t_lost_reply_comes_again_byte_for_byte():
    """Soon, by wire; a second on, when it has been given to the socket: with the old Date."""
    def script(s, wait):
        c = s.connect()
        c.send(HIT)
        first = c.response(lose=True)
        wait()
        c.again(HIT, seq=1, ack=1)
        r = c.response()
        assert r.raw == first.raw, f"{r.raw!r}, first {first.raw!r}"
        s.hit(c, OTHER, tier="user")    # a flow that saw loss is the socket's
        if not daemon.LATE:             # else it is given back
            s.hit(c, HIT, tier="user")
    before = talk.counts(stage.daemons["wire"])
    stage.play(lambda s: script(s, lambda: None))
    stage.play(lambda s: script(s, next_second))
    now = talk.counts(stage.daemons["wire"])
    assert now["REPEAT"] > before["REPEAT"], "never by wire"


def t_reply_lost_three_times():
    def script(s):
        c = s.connect()
        s.hit(c, OTHER)
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        if s.wire:
            for _ in range(3):
                c.again(HIT, seq=at, ack=read)
                assert c.expect("P.", seq=read, ack=at + len(HIT), lose=True).data == first.raw
            c.again(HIT, seq=at, ack=read)
        assert c.response().raw == first.raw
        s.hit(c, OTHER, tier="user")
    # on a slow machine the socket has the request before the client says it once more
    stage.play(script, ignore=("TcpExt.TCPDSACKOldSent",))


def t_reset_by_who_has_not_acknowledged():
    """There is nothing to send again, and no worker continues to search for that connection."""
    adversary.needs_socket("no worker has the connection")
    def unacknowledged():
        words = maps.array(stage.daemons["wire"].pid, "tbg_conns")
        return sum(bool(sent_ms) for _, sent_ms, _ in struct.iter_unpack("=QII", words))

    def script(s):
        with s.still():
            c = s.connect()
            c.send(HIT)
            single(s, c, HIT, lose=True)
            assert unacknowledged() == 1
            c.put("R", c.at, None, opts=c.options())
            c.gone()
        net.until(lambda: not unacknowledged(), "still looked for")
        c.forget()

    stage.play(script, tiers=("wire",))


def t_request_sent_twice_at_once():
    """By a network that duplicates: one reply is enough, and the second does no harm."""
    def script(s):
        while True:
            c = s.connect()
            with s.still():
                c.send(HIT, copies=2)
                took_s = c.took_s
                c.response()
                c.pending()
            c.send(flags=".")
            if took_s < 0.005:
                break
            # wire may have taken the second for a retransmission: try another connection
            c.drop()
            s.connections.remove(c)
        s.hit(c, OTHER)                 # nothing was lost
    before = talk.counts(stage.daemons["wire"])
    stage.play(script)
    now = talk.counts(stage.daemons["wire"])
    assert now["DOUBLED"] > before["DOUBLED"], "answered twice"


def t_request_comes_again_after_its_reply_was_acknowledged():
    """A straggler: answered by an acknowledgement, not by a reply."""
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        read = c.read
        c.send(HIT, seq=1, ack=1)
        c.send(HIT, seq=1, ack=read)
        for seg in c.pending():
            assert not seg.data, seg
        s.hit(c, OTHER)
        c.send(HIT, seq=1, ack=1)
        for seg in c.pending():
            assert not seg.data, seg
        s.hit(c, HIT)
    stage.play(script)


def t_lost_acknowledgement_of_a_reply():
    """The next request acknowledges it."""
    def script(s):
        c = s.connect()
        for _ in range(5):
            c.get(HIT, ack=False)
            c.get(OTHER, ack=False)
        c.send(flags=".")
        c.quiet()
        assert s.hit(c, HIT).body == BODIES["/hit"]
    stage.play(script)


def t_tail_of_the_request_again():
    """A client that has its head acknowledged resends the rest: the same reply."""
    def script(s):
        c = s.connect()
        c.send(HIT)
        first = c.response(lose=True)
        c.again(HIT[10:], seq=11, ack=1)
        assert c.response().raw == first.raw
        s.hit(c, OTHER, tier="user")
    stage.play(script)


def t_request_again_and_the_next_one_with_it():
    """Retransmissions may be cut anew, and what is behind comes along."""
    def script(s):
        c = s.connect()
        c.send(HIT)
        first = c.response(lose=True)
        c.again(HIT + OTHER, seq=1, ack=1)
        c.st.barrier(c.family)
        c.at = 1 + len(HIT)
        r = c.response()
        assert r.raw == first.raw
        c.send(OTHER)
        assert c.response().body == BODIES["/other"]
    stage.play(script)


def replaced(target, first, second, tiers=("wire", "user")):
    request = talk.request(target)

    def script(s):
        stage.replace(target, first, s.tier)
        c = s.connect()
        c.send(request)
        old = c.response(lose=True)
        assert old.body == first
        stage.replace(target, second, s.tier)
        c.send(request, seq=1, ack=1)
        again = c.response()
        assert again.raw == old.raw, f"{again.raw!r}, first {old.raw!r}"
        r = c.get(request)
        assert r.body == second, r
    stage.play(script, tiers=tiers, same=False)


def t_object_of_the_same_length_replaced_before_the_repeat():
    replaced("/replaced", talk.content("old", 500), talk.content("new", 500))


def t_object_of_another_length_replaced_before_the_repeat():
    replaced("/replaced", talk.content("old", 500), talk.content("newer", 900))
    replaced("/replaced", talk.content("old", 900), b"")


def t_object_removed_before_the_repeat():
    def script(s):
        stage.replace("/replaced", talk.content("old", 300), s.tier)
        c = s.connect()
        request = talk.request("/replaced")
        c.send(request)
        old = c.response(lose=True)
        os.unlink(os.path.join(stage.site.root, "replaced"))
        fresh = s.connect()
        net.until(lambda: fresh.get(request).status == 404, "it is still served")
        c.again(request, seq=1, ack=1)
        assert c.response().raw == old.raw
    stage.play(script, same=False)


def t_object_purged_before_the_repeat():
    def script(s):
        c = s.connect()
        c.send(HIT)
        old = c.response(lose=True)
        talk.ask(s.d, "purge", "--all")
        c.again(HIT, seq=1, ack=1)
        assert c.response().raw == old.raw
        stage.warm(s.tier, *(t for t in BODIES if t != "/replaced"))
    stage.play(script, same=False)


def t_lost_reply_of_304():
    def script(s):
        c = s.connect()
        etag = s.hit(c, HIT).fields["ETag"]
        request = talk.request("/hit", f"If-None-Match: {etag}")
        at, read = c.at, c.read
        c.send(request)
        first = c.response(lose=True)
        assert first.status == 304 and first.tier == s.tier, first
        next_second()
        c.send(request, seq=at, ack=read)
        assert c.response().raw == first.raw
    stage.play(script)


def t_lost_reply_to_head():
    request = talk.request("/hit", method="HEAD")

    def script(s):
        c = s.connect()
        c.send(request)
        first = c.response(method="HEAD", lose=True)
        c.again(request, seq=1, ack=1)
        assert c.response(method="HEAD").raw == first.raw
    stage.play(script)


def t_duplicate_acknowledgements_of_a_lost_reply():
    """Without anything behind it they show nothing: no reply, no stray byte."""
    def script(s):
        c = s.connect()
        c.send(HIT)
        first = c.response(lose=True)
        for _ in range(5):
            c.send(flags=".", ack=1)
        c.st.barrier(c.family)
        c.send(HIT, seq=1, ack=1)
        assert c.response().raw == first.raw
    stage.play(script)


def t_old_acknowledgements_come_late():
    """Numbers before, within and behind wire's bytes: they cause no repetition."""
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        c.send(LARGE)
        r = c.response()
        assert r.body == BODIES["/large"], r
        for ack in (1, 100, c.got - 1000, c.got):
            c.send(flags=".", ack=ack)
        assert not [x for x in c.pending() if x.data]
        s.hit(c, HIT)
    stage.play(script)


def t_socket_s_segments_lost_after_a_hit():
    """The socket's own retransmission, in the client's numbers, SACK and all."""
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        s.hit(c, OTHER)
        first = c.read
        c.send(LARGE)
        lost = c.expect("P.", ".", lose=True)
        while not lost.data:
            lost = c.expect("P.", ".", lose=True)
        assert lost.seq == first
        # the hole shows at the next ones
        mss = len(lost.data)
        for _ in range(3):
            seg = c.next()
            c.send(flags=".", ack=first, sack=[(first + mss, seg.seq + len(seg.data))])
        r = c.response()
        assert r.body == BODIES["/large"]
        assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script)


def t_request_lost_within_a_burst():
    """Pipelined: the second segment comes before the first."""
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        at = c.at
        c.send(OTHER, seq=at + len(HIT))
        c.expect(".", ack=at, sack=None if s.late else
                 [(at + len(HIT), at + len(HIT) + len(OTHER))])
        c.send(HIT, seq=at)
        assert c.response().body == BODIES["/hit"]
        if s.late:                      # kept by nobody, and said so: sent again
            c.send(OTHER, seq=at + len(HIT))
        assert c.response().body == BODIES["/other"]
        assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script)


def t_request_lost_behind_a_reply_under_way():
    """Later data is reported at its place, although wire's request is not."""
    adversary.needs_socket("what comes too early is kept by nobody")
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        with s.still():
            at, read = c.at, c.read
            c.send(HIT)
            c.response(ack=False)
            behind = c.at + len(HIT)
            c.send(OTHER, seq=behind, ack=read)
            c.expect(".", ack=at if s.wire else at + len(HIT), sack=[(behind, behind + len(OTHER))])
        c.send(flags=".")
        c.send(HIT, seq=at + len(HIT))
        assert c.response().body == BODIES["/hit"]
        assert c.response().body == BODIES["/other"]
        assert c.get(HIT).body == BODIES["/hit"]
    with stage.impatient(adversary.PATIENT_MS):     # the reply is not sent again meanwhile
        stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
