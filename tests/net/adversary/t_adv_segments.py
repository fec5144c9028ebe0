#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of replies in several segments, and of each way to lose some of them.

Every segment but the last repeats the old acknowledgement number; the last has
PSH and acknowledges the request. What is lost comes again with the same bytes
and borders: asked for by the request, shown by acknowledgements, or, 200 ms
on, by the socket, which has been handed the bytes.
"""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import daemon
import net
import rawtcp
import talk

SIZES = {"/two": 1800, "/three": 3600, "/nine": 12400, "/ten": 13800, "/many": 20000}
BODIES = {target: talk.content(target[1:], size) for target, size in SIZES.items()}
BODIES["/hit"] = talk.content("hit", 600)
BODIES["/replaced"] = talk.content("old", 5000)
HIT, TWO, THREE, NINE, TEN, MANY = (talk.request(t) for t in ("/hit", "/two", "/three", "/nine",
                                                             "/ten", "/many"))
SEGMENTS_MAX = 10
stage = adversary.Stage(BODIES)


def next_second():
    """Now would carry another Date."""
    start = int(time.time())
    net.until(lambda: int(time.time()) > start, "time stands still")


def size_of(c):
    """Payload of a whole segment."""
    return min(c.mss, 1460 if c.family == 4 else 1440) - (12 if c.ts else 0)


def reply(c, at, request, lose=(), df=True):
    """
    The segments of a reply by wire to the request at `at`, as they must be.
    Those in lose (from 0; all, if it is True) are seen, but not received. A
    repeat may be fragmented: the path may have shrunk.
    """
    ret, read, size = [], c.read, size_of(c)
    while not ret or not ret[-1].bits & 8:
        i = len(ret)
        lost = lose is True or i in lose
        seg = c.expect("P.", ".", seq=read + i * size, lose=lost)
        ret.append(seg)
        assert i < SEGMENTS_MAX, f"more than {SEGMENTS_MAX} segments: {seg}"
        last = "P" in seg.flags
        assert seg.ack == (at + len(request) if last else at), f"segment {i}: {seg}"
        assert len(seg.data) == size or last, f"segment {i} of {size}: {seg}"
        assert seg.df >= df and not seg.tos, seg
    return ret


def ask(s, c, request, lose=()):
    """
    (where the request began, where its reply did, the reply's bytes, its
    segments). Without wire the whole reply is lost if anything is, and comes by
    the socket's timer.
    """
    at, read = c.at, c.read
    c.send(request)
    if s.wire:
        segs = reply(c, at, request, lose)
        return at, read, b"".join(x.data for x in segs), segs
    r = c.response(lose=bool(lose))
    return at, read, r.raw, []


def rest(s, c, raw):
    """What was lost is sent again, by wire or by the socket, with the same bytes; from then
    on the flow is the socket's."""
    r = c.response()
    assert r.raw == raw, f"{len(r.raw)} other bytes than the {len(raw)} before"
    c.send(flags=".")
    c.st.barrier(c.family)
    s.hit(c, HIT, tier="user")


def whole(s, c, request, segments=None, missed=False):
    """A reply without loss. missed: a miss was before, so the daemon may have to give it back."""
    at, back = c.at, s.late and missed
    with contextlib.nullcontext() if back else s.still():
        c.send(request)
        if s.wire and not back:
            segs = reply(c, at, request)
            assert segments in (None, len(segs)), f"{len(segs)} segments, wanted {segments}"
            c.send(flags=".")
            c.quiet()
    r = c.response()
    if back or not s.wire:
        c.send(flags=".")
    assert r.tier == s.tier, r
    return r


def t_shape_of_a_reply():
    def script(s):
        for ts in (True, False):
            c = s.connect(ts=ts)
            for request, target, nr in ((TWO, "/two", 2), (THREE, "/three", 3), (HIT, "/hit", 1),
                                        (NINE, "/nine", 9), (TEN, "/ten", 10), (TWO, "/two", 2)):
                assert whole(s, c, request, nr).body == BODIES[target]
    stage.play(script)


def t_eleven_segments_are_the_socket_s():
    def script(s):
        c = s.connect()
        assert s.hit(c, MANY, tier="user").body == BODIES["/many"]
        whole(s, c, TEN, missed=True)
    stage.play(script)


def t_small_segments():
    """An MSS of 536: ten of them hold 5 KB."""
    def script(s):
        c = s.connect(mss=536)
        assert whole(s, c, THREE).body == BODIES["/three"]
        s.hit(c, NINE, tier="user")
        whole(s, c, TWO, missed=True)
    # no socket is made late for less than 1220 bytes over IPv6
    stage.play(script, families=(4,) if daemon.LATE else (4, 6))


def t_many_replies_on_one_connection():
    """Nothing of it is noticed by the kernel's TCP; misses of wire's in between."""
    def script(s):
        c = s.connect()
        for turn in range(5):
            for request in (TEN, HIT, TWO, NINE):
                whole(s, c, request, missed=turn and request == TEN)
            c.get(MANY)
    stage.play(script)


def t_window_that_just_holds_the_reply():
    def script(s):
        c = s.connect(wscale=None)
        size = len(whole(s, c, NINE).raw)
        c.window = size
        whole(s, c, NINE)
        c.send(NINE, win=size - 1)
        assert c.response().tier == "user"
        c.window = 65535
        c.send(flags=".")
        c.st.barrier(c.family)
        whole(s, c, NINE, missed=True)
    stage.play(script)


def t_acknowledged_segment_by_segment():
    """Delayed acknowledgements, one for two, and one for each: the flow stays wire's."""
    def script(s):
        c = s.connect()
        for step in (1, 2):
            at = c.at
            with s.still():
                c.send(TEN)
                if s.wire:
                    segs = reply(c, at, TEN)
                    for seg in segs[step - 1::step]:
                        c.send(flags=".", ack=seg.seq + len(seg.data))
                    c.send(flags=".")
                    c.quiet()
            c.response()
        whole(s, c, TWO)
    stage.play(script)


def lost(request, lose, how, ignore=(), **options):
    """A reply with some segments lost; how(s, c, at, read, raw, segs) shows the loss."""
    def script(s):
        c = s.connect(**options)
        with s.still():
            whole(s, c, TWO)
            at, read, raw, segs = ask(s, c, request, lose)
            if s.wire:
                how(c, at, read, segs)
        if not s.wire:
            next_second()
            c.send(request, seq=at, ack=read)
        rest(s, c, raw)
    with stage.impatient():
        stage.play(script, ignore=ignore)


def by_request(request):
    """The client's own timer: the request again, with what it has acknowledged."""
    def how(c, at, read, _segs):
        got = c.got
        if got > read:
            c.send(flags=".", ack=got)
        c.again(request, seq=at, ack=got)
        c.st.barrier(c.family)
        data = [x for x in c.queue if x.data]
        assert data, "the request again, and no reply"
        assert all(x.seq >= got for x in data), f"what is acknowledged comes again: {data}"
        assert any(x.ack == at + len(request) for x in data), data
    return how


def t_last_segment_lost():
    for request in (TWO, TEN):
        lost(request, (1 if request is TWO else 9,), by_request(request))


def t_whole_reply_lost():
    for request in (TWO, TEN):
        lost(request, True, by_request(request))


def t_all_but_the_first_lost():
    lost(NINE, range(1, 9), by_request(NINE))


def t_whole_reply_lost_three_times():
    def how(c, at, read, segs):
        for _ in range(3):
            c.again(THREE, seq=at, ack=read)
            again = reply(c, at, THREE, lose=True, df=False)
            assert [x.data for x in again] == [x.data for x in segs]
        c.again(THREE, seq=at, ack=read)
    lost(THREE, True, how)


def holes(lose, exact=True):
    """
    Acknowledgements with SACK blocks, as each segment behind a hole comes in.
    Something comes at once, and (exact) nothing that was not lost.
    """
    def how(c, _at, read, segs):
        blocks, have, cumulative = [], 0, read
        for i, seg in enumerate(segs):
            end = seg.seq + len(seg.data)
            if i in lose:
                continue
            if seg.seq == cumulative:
                cumulative = end
                c.send(flags=".", ack=cumulative)
                continue
            if blocks and blocks[0][1] == seg.seq:
                blocks[0] = (blocks[0][0], end)
            else:
                blocks.insert(0, (seg.seq, end))
            have += 1
            c.send(flags=".", ack=cumulative, sack=blocks[:3])
        c.st.barrier(c.family)
        gone = [(segs[i].seq, segs[i].seq + len(segs[i].data)) for i in lose]
        data = [x for x in c.queue if x.data]
        assert data, f"{have} acknowledgements show a hole, and nothing comes"
        for x in data if exact else ():
            assert any(a <= x.seq and x.seq + len(x.data) <= b for a, b in gone), \
                f"was not lost ({gone}): {x}"
    return how


def t_first_segment_lost():
    lost(TEN, (0,), holes((0,)))


def t_middle_segment_lost():
    lost(TEN, (4,), holes((4,)))


def t_two_holes():
    lost(TEN, (2, 5), holes((2, 5)))


def t_first_half_lost():
    lost(TEN, range(5), holes(range(5)))


def t_every_other_segment_lost():
    """More holes than an acknowledgement has room for: some comes twice."""
    lost(TEN, range(0, 9, 2), holes(range(0, 9, 2), exact=False))


def t_hole_and_the_last_segment_lost():
    """The hole is filled at once, the tail when the request comes again."""
    def how(c, at, read, segs):
        holes((3, 9))(c, at, read, segs)
        while c.queue:
            c.next()
        got = c.got
        c.send(TEN, seq=at, ack=got)
    lost(TEN, (3, 9), how)


def t_repeated_segment_lost_too():
    def how(c, at, read, segs):
        holes((4,))(c, at, read, segs)
        c.queue.clear()
        time.sleep(rawtcp.REPEAT_S)
        end = segs[-1].seq + len(segs[-1].data)
        hole = segs[4].seq + len(segs[4].data)
        for _ in range(3):
            c.send(flags=".", ack=segs[4].seq, sack=[(hole, end)])
    lost(TEN, (4,), how)


def t_hole_shown_without_sack():
    """Three acknowledgements of the same number."""
    def how(c, _at, _read, segs):
        for _ in segs[3:]:
            c.send(flags=".", ack=segs[2].seq)
        c.st.barrier(c.family)
        assert [x for x in c.queue if x.data], "six duplicates, and nothing comes"
    lost(NINE, (2,), how, sack=False)


def t_reordered_segments():
    """The first comes last: what comes again for it does no harm."""
    def script(s):
        c = s.connect()
        at = c.at
        c.send(TEN)
        if s.wire:
            segs = reply(c, at, TEN, lose=(0,))
            second = segs[1].seq
            for seg in segs[1:3]:
                c.send(flags=".", ack=segs[0].seq, sack=[(second, seg.seq + len(seg.data))])
            c.receive(segs[0])
            c.send(flags=".")
        r = c.response()
        assert r.body == BODIES["/ten"]
        c.pending()
        c.send(flags=".")
        c.get(HIT)
        c.get(TWO)
    stage.play(script)


def t_silence_is_for_the_socket():
    """Nothing is acknowledged, nothing asked for again: kernel TCP sends the same bytes."""
    for request in (HIT, TWO, TEN):
        def script(s, request=request):
            c = s.connect()
            with s.still():
                whole(s, c, TWO)
            _, _, raw, _ = ask(s, c, request, True)
            next_second()
            rest(s, c, raw)
        with stage.impatient():
            stage.play(script)


def t_silence_after_the_first_reply():
    """Of one segment: a client asks for it again, but this one does not."""
    def script(s):
        c = s.connect()
        _, _, raw, _ = ask(s, c, HIT, True)
        rest(s, c, raw)
    with stage.impatient():
        stage.play(script)


def t_silence_after_half_of_it():
    """Only what is not acknowledged is handed over."""
    def script(s):
        c = s.connect()
        lose = range(5, 10)
        with s.still():
            whole(s, c, TWO)
            _, read, raw, segs = ask(s, c, TEN, lose)
            if s.wire:
                got = segs[5].seq
                c.send(flags=".", ack=got)
                c.st.barrier(c.family)
        if s.wire:
            seg = c.next()
            while not seg.data:
                seg = c.next()
            assert seg.seq == got > read, f"from {got} on is missing: {seg}"
        rest(s, c, raw)
    with stage.impatient():
        stage.play(script)


def t_request_again_after_the_socket_took_over():
    def script(s):
        c = s.connect()
        with s.still():
            whole(s, c, TWO)
        at, read, raw, _ = ask(s, c, TEN, True)
        seg = c.next(lose=True)         # by the socket
        while not seg.data:
            seg = c.next(lose=True)
        c.send(TEN, seq=at, ack=read)
        rest(s, c, raw)
    with stage.impatient():
        stage.play(script)


def t_request_between_silence_and_the_socket():
    """The daemon is stopped: it hands nothing over, and the request again gets the reply."""
    def script(s):
        c = s.connect()
        with s.still():
            whole(s, c, TWO)
            at, read, raw, _ = ask(s, c, THREE, True)
            time.sleep(0.5)
            c.send(THREE, seq=at, ack=read)
            if s.wire:
                c.st.barrier(c.family)
        rest(s, c, raw)
    with stage.impatient():
        stage.play(script)


def t_object_replaced_before_the_repeat():
    """The old bytes to the end, or a reset: for each way of repeating."""
    request = talk.request("/replaced")

    def show(c, at, how):
        if how == "request":
            c.send(request, seq=at, ack=c.got)
        elif how == "holes":
            for _ in range(3):
                c.send(flags=".", ack=c.got, sack=[(c.got + size_of(c), c.got + 2 * size_of(c))])

    for how in ("request", "holes", "silence"):
        for new in (5000, 900):
            def script(s, how=how, new=new):
                stage.replace("/replaced", talk.content("old", 5000), s.tier)
                c = s.connect()
                at, _, raw, _ = ask(s, c, request, (0, 3))
                stage.replace("/replaced", talk.content("new", new), s.tier)
                show(c, at, how)
                while not c.reset and not c.whole(c.mask, "GET"):
                    if c.next().data:
                        c.send(flags=".")
                if not c.reset:
                    r = c.response()
                    assert r.raw == raw, f"{r.raw!r}, first {raw!r}"
                    assert c.get(request).body == talk.content("new", new)
            with stage.impatient():
                stage.play(script, same=False)


def t_next_request_before_all_is_acknowledged():
    """Never more than ten segments in flight: the socket's, in order."""
    def script(s):
        c = s.connect()
        at = c.at
        c.send(TEN)
        if s.wire:
            reply(c, at, TEN)
        r = c.response()
        c.send(TWO, ack=c.got - 100)
        n = c.response()
        assert (r.body, n.body, n.tier) == (BODIES["/ten"], BODIES["/two"], "user"), n
    stage.play(script)


def t_request_twice_at_once():
    def script(s):
        c = s.connect()
        at = c.at
        c.send(TEN)
        c.send(TEN, seq=at)
        assert c.response().body == BODIES["/ten"]
        c.pending()
        c.send(flags=".")
        c.get(TWO)
    stage.play(script)


def t_sack_of_what_the_socket_sent_behind_a_lost_tail():
    """For the socket there is no hole before it: no block of SACK that it would discard."""
    def script(s):
        c = s.connect()
        whole = s.hit(c, TEN)
        at, edge = c.at, c.read + len(whole.raw)
        c.send(TEN)
        if s.wire:
            reply(c, at, TEN, lose=(-(-len(whole.raw) // size_of(c)) - 1,))
        c.send(MANY)
        while c.got < edge + 1:
            seg = c.next()
            ahead = seg.data and c.got < edge and seg.seq >= edge
            c.send(flags=".", sack=[(edge, seg.seq + len(seg.data))] if ahead else ())
        assert c.response().bare() == whole.bare()      # Date apart: it is another reply
        assert c.response().body == BODIES["/many"]
    stage.play(script, same=False)


def t_fin_while_segments_are_lost():
    def script(s):
        c = s.connect()
        at, _, raw, _ = ask(s, c, TEN, (3,) if s.wire else True)
        c.send(flags="F.", ack=c.got)
        c.again(TEN, seq=at, ack=c.got)
        r = c.response()
        assert r.raw == raw
        while c.fin is None:
            c.next("FIN")
        assert c.fin == c.read, f"FIN at {c.fin}, wanted {c.read}"
        if c.acked < c.got:      # else the socket is gone, and what comes is reset
            c.send(flags=".")
    with stage.impatient():
        stage.play(script)


def silence_behind_a_fin(request, lose):
    """Half-closed right behind the request; nothing but acknowledgements comes from the client."""
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        c.send(request)
        if s.wire:
            segs = [c.next(lose=True)]
            while "P" not in segs[-1].flags:
                segs.append(c.next(lose=True))
            for i, seg in enumerate(segs):
                if lose is not True and i not in lose:
                    c.receive(seg)
        c.send(flags="F.")
        deadline = time.monotonic() + net.WAIT_S / 4
        while not c.reset and not c.whole(c.mask, "GET"):
            try:
                c.next("the rest", wait_s=0.5)
            except AssertionError:
                assert time.monotonic() < deadline, f"stalled at {c.got}"
            c.send(flags=".")
        assert c.reset or c.response().body in BODIES.values()
    with stage.impatient():
        stage.play(script, same=False)


def t_middle_of_a_reply_lost_behind_a_fin():
    """The request is acknowledged, so the client has nothing to send again."""
    silence_behind_a_fin(TEN, (4,))


def t_reply_lost_behind_a_fin():
    silence_behind_a_fin(HIT, True)


def t_reset_while_segments_are_in_flight():
    def script(s):
        c = s.connect()
        ask(s, c, TEN, True)
        c.put("R", c.at, None)
        c.gone()
        c.pending()     # of a socket that was given the bytes before
        c.quiet()
    stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
