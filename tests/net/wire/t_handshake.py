#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""How connections without a socket begin and end, segment by segment, where wire answers SYNs.

Whatever overtakes what, and whatever a client offers: the same bytes as with a socket.
"""
import contextlib
import itertools
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import rawtcp
import talk

PORT, DRAINED, GUESSED = 8080, 8081, 8082
GUESSES = 8000 // client.SLOW   # half of a cookie's proof is right in one of 512
rawtcp.WINDOW_LESS = 2048        # a socket that is made late begins with its first window
BODIES = {"/hit": talk.content("hit", 600), "/long": talk.content("long", 2500)}
HIT, LONG = talk.request("/hit"), talk.request("/long")
LAST = talk.request("/hit", "Connection: close")
BY_WIRE = ("--wire", "tbg0,tbg1", "--late-sockets", "auto", "--idle-timeout", "3600s")
n = st = d = None


def start(port, births="wire"):
    with n.server.inside():
        ret = daemon.Daemon(*BY_WIRE, "--births", births,
                            listen=(f"0.0.0.0:{port}", f"[::]:{port}"))
        for target, body in BODIES.items():
            ret.write(target[1:], body)
        return ret.start()


def begin():
    global n, st, d
    n = net.Net(links=2)
    d = start(PORT)
    why = None if talk.ask(d, "status")["tiers"]["wire"]["on"] else d.why_no_wire()
    why = why or talk.no_late_sockets(d)
    if why:
        end()
        raise ktap.Skip(why)
    st = rawtcp.Station(n, n.links[0])
    warm(PORT)


def warm(port):
    for target in BODIES:
        with talk.Connection(n.client.connect((n.links[0].server4, port))) as c:
            c.hot(target, "wire")


def end():
    if st:
        st.close()
    code = d.stop() if d else 0
    if n:
        n.close()
    assert code == 0, d.lines


def syn(family, port=PORT, **how):
    """
    A connection whose SYN wire has answered. One SYN a second of each kind is the kernel's,
    for wire to learn from, and wire takes it over at the ACK.
    """
    for _ in range(10):
        before = talk.counts(d)["SYN_ACK"]
        c = rawtcp.Connection(st, (st.server(family), port), **how)
        c.handshake()
        c.expect("S.")
        if talk.counts(d)["SYN_ACK"] > before:
            return c
        c.send(flags=".")
        c.drop()
        how.pop("port", None)
    raise AssertionError(f"no SYN is answered by wire: {talk.counts(d)}")


def opened(family, **how):
    c = syn(family, **how)
    c.send(flags=".")
    return c


KINDS = [{"ts": ts, "sack": sack, "wscale": scale}
         for ts, sack, scale in itertools.product((True, False), (True, False), (7, None))]
WAYS = list(itertools.product((4, 6), KINDS))


def hit(c, request, body):
    """An answer of wire's, unless the machine was so slow that wire has sent another again."""
    slow = talk.late(d) + talk.counts(d)["REPEAT"]
    r = c.get(request)
    assert r.body == BODIES[body], r
    assert r.tier == "wire" or talk.late(d) + talk.counts(d)["REPEAT"] > slow, r


def until_fin(c):
    """The server's bytes up to its FIN, which is acknowledged; no reset."""
    while c.fin is None:
        seg = c.next("FIN")
        assert not seg.bits & rawtcp.RST, f"reset: {seg}"
    c.send(flags=".")


def acked(c):
    """All that the client has sent; what comes before may be sent again."""
    while (seg := c.next("acknowledgement")).ack < c.at:
        assert not seg.bits & rawtcp.RST, f"reset: {seg}"
    assert not seg.bits & rawtcp.RST, f"reset: {seg}"


def rested(c):
    """Both have closed, and acknowledged it."""
    assert not any(seg.bits & rawtcp.RST for seg in c.pending())
    assert c.got == c.fin + 1, (c.got, c.fin)
    c.forget()


def closed(c):
    """The client's FIN is sent, and the server's comes."""
    until_fin(c)
    rested(c)


# --- what overtakes ------------------------------------------------------------

def t_second_half_of_a_request_overtakes_the_handshake():
    """It is neither kept nor answered with a reset: the client repeats it after the first."""
    for family, kind in WAYS:
        c = syn(family, **kind)
        for _ in range(2):
            c.put("P.", 21, 1, HIT[20:], c.options())
            c.quiet()
        c.send(HIT[:20])
        c.send(HIT[20:])
        assert c.response().body == BODIES["/hit"]
        c.drop()


def t_second_request_overtakes_the_first():
    for family, kind in WAYS:
        c = syn(family, **kind)
        c.put("P.", 1 + len(HIT), 1, LONG, c.options())
        c.quiet()
        hit(c, HIT, "/hit")
        hit(c, LONG, "/long")
        c.drop()


def t_fin_overtakes_the_request():
    for family, kind in WAYS:
        c = syn(family, **kind)
        c.put("F.", 1 + len(HIT), 1, opts=c.options())
        c.quiet()
        assert c.get(HIT).body == BODIES["/hit"]
        c.send(flags="F.")
        closed(c)


def t_last_ack_of_the_handshake_is_lost():
    """The next segment begins the connection: a request, one with a FIN, a FIN alone."""
    for family, kind in WAYS:
        c = syn(family, **kind)
        hit(c, HIT, "/hit")
        c.drop()
        c = syn(family, **kind)
        c.send(HIT, flags="FP.")
        assert c.response().body == BODIES["/hit"]
        closed(c)
        c = syn(family, **kind)
        c.send(flags="F.")
        closed(c)


def t_segments_of_no_connection_are_reset():
    """Like the kernel: its client may have slept for a day."""
    for family, ts in itertools.product((4, 6), (True, False)):
        for flags, data in ((".", b""), ("P.", HIT), ("F.", b"")):
            resets = 0
            for _ in range(4):          # one of a thousand may look like one that overtook
                c = rawtcp.Connection(st, (st.server(family), PORT), ts=ts)
                c.irs = st.random.randrange(rawtcp.MOD)
                c.put(flags, 1, 1, data, c.options())
                st.barrier(family)
                resets += any(seg.bits & rawtcp.RST for seg in c.queue)
                st.connections.pop(c.key)
                st.graves.add(c.key)
            assert resets >= 3, f"IPv{family}, {flags}: {resets} of 4"


def t_segments_to_another_server_of_the_port_are_that_one_s():
    """Its connections may have no socket either: none of their segments is a guess here."""
    here, there = st.server(4), "10.87.0.77"
    n.server.run("ip", "address", "add", f"{there}/32", "dev", "tbg0")
    with n.server.inside():
        first = daemon.Daemon(*BY_WIRE, "--births", "wire", listen=f"{here}:{GUESSED}").start()
        second = socket.create_server((there, GUESSED))
    try:
        c = rawtcp.Connection(st, (there, GUESSED), ts=False)
        for guess in range(GUESSES):
            c.irs = st.random.randrange(rawtcp.MOD)
            c.put(".", 1, 1)
            if not guess % 100:
                st.barrier(4)
        st.barrier(4)
        st.connections.pop(c.key)
        assert len(c.queue) == GUESSES, f"{GUESSES - len(c.queue)} were dropped"
        assert all(seg.bits & rawtcp.RST for seg in c.queue)
    finally:
        second.close()
        assert first.stop() == 0, first.lines
        n.server.run("ip", "address", "del", f"{there}/32", "dev", "tbg0")


def t_requests_without_a_handshake_begin_nothing():
    """Where the kernel answers SYNs, which its firewall may have refused to this client."""
    other = start(GUESSED, "kernel")
    try:
        warm(GUESSED)
        # wire learns what the kernel offers, and knows it when it reads a cookie
        for kind in KINDS:
            c = rawtcp.Connection(st, (st.server(4), GUESSED), **kind).open()
            hit(c, HIT, "/hit")
            c.drop()
        before = talk.counts(other)["HIT_WIRE"]
        c = rawtcp.Connection(st, (st.server(4), GUESSED), ts=False)
        st.connections.pop(c.key)
        st.graves.add(c.key)
        for guess in range(GUESSES):
            c.irs = st.random.randrange(rawtcp.MOD)
            c.put("P.", 1, 1, HIT, c.options())
            if not guess % 100:
                st.barrier(4)
        st.barrier(4)
        assert talk.counts(other)["HIT_WIRE"] == before, "guessed"
    finally:
        assert other.stop() == 0, other.lines


# --- the segments' size ----------------------------------------------------------

MSS_TS = (536, 700, 1000, 1220, 1300, 1360, 1380, 1412, 1452, 1453, 1460)
MSS_STEPS = {4: (536, 1300, 1360, 1400, 1440, 1452, 1460),
             6: (1220, 1340, 1380, 1400, 1420, 1432, 1440)}


def longest(c, request, tier):
    """Payload of the longest segment of an answer, and the timestamp's bytes."""
    c.send(request)
    most = 0
    while c.whole(c.mask, "GET") is None:
        seg = c.receive(c.next("rest"))
        most = max(most, len(seg.data))
        c.send(flags=".")
    r = c.whole(c.mask, "GET")
    c.read += len(r.raw)
    assert r.tier == tier, r
    return most + (12 if c.ts else 0)


def t_segments_are_as_long_as_the_client_permits():
    """By wire, and by the socket that is made late. With timestamps whatever it says is kept."""
    for family, ts in itertools.product((4, 6), (True, False)):
        for mss in MSS_TS if ts else MSS_STEPS[family]:
            if family == 6 and not 1220 <= mss <= 1440:
                continue        # the kernel's, or longer than a packet
            c = opened(family, mss=mss, ts=ts)
            # as a reply is cut: a later segment begins at a multiple of 4
            assert mss - 4 < longest(c, LONG, "wire") <= mss, f"IPv{family}, {mss}, {ts}"
            target = f"/{family}/{mss}/{ts}"
            d.write(target[1:], BODIES["/long"])
            assert longest(c, talk.request(target), "stored") == mss, f"IPv{family}, {mss}, {ts}"
            c.drop()


def t_no_segment_is_longer_than_the_client_permits():
    """Between the steps, without timestamps: the next shorter."""
    for family, mss in ((4, 1459), (4, 1401), (4, 600), (6, 1439), (6, 1300)):
        c = opened(family, mss=mss, ts=False)
        step = max(x for x in MSS_STEPS[family] if x <= mss)
        assert step - 4 < longest(c, LONG, "wire") <= step
        c.drop()


# --- how they end ----------------------------------------------------------------

def rest(family, **how):
    """A connection that the server has closed first, in TIME_WAIT."""
    c = opened(family, **how)
    c.send(LAST)
    assert c.response(ack=False).tier == "wire"
    while c.fin is None:
        c.next("FIN")
    c.send(flags="F.")
    acked(c)
    c.pending()
    return c


def t_port_is_used_again_in_time_wait():
    """A SYN that is newer, by its number or by its timestamp, begins a connection at once."""
    for family, ts in itertools.product((4, 6), (True, False)):
        for further in (1, 1 << 20, -1 << 20) if ts else (1, 1 << 20):
            old = rest(family, ts=ts)
            old.forget()
            c = rawtcp.Connection(st, (st.server(family), PORT), port=old.port, ts=ts,
                                  iss=(old.iss + old.at + further) % rawtcp.MOD,
                                  ts_start=old.ts_now)
            c.open()
            assert c.get(HIT).body == BODIES["/hit"]
            c.drop()


def t_old_syns_begin_nothing_in_time_wait():
    """By number, without timestamps; by timestamp, whatever the number (as PAWS has it)."""
    for family in (4, 6):
        for ts, seq in ((False, 0), (False, 1), (True, 1 << 20)):
            c = rest(family, ts=ts)
            opts = rawtcp.options(mss=1460, ts=(c.ts_now - 1000, 0) if ts else None)
            sent = c.sent_max
            c.put("S", seq, None, opts=opts)
            c.sent_max = sent
            c.expect(".", seq=c.got, ack=c.at)
            c.forget()


def t_fins_cross():
    """Both close at once: each is acknowledged, in whatever order."""
    for family, kind in WAYS:
        c = opened(family, **kind)
        c.send(LAST)
        assert c.response(ack=False).tier == "wire"
        at = c.read
        c.put("F.", c.at, at, opts=c.options())        # has not seen the server's
        c.at += 1
        acked(c)
        c.fin = at
        c.send(flags=".")
        rested(c)


def gone(c):
    """
    No connection is left. One ACK of a thousand may look like one that overtook, not two. What
    the timer had sent again before the connection ended may still come.
    """
    for got in (c.got, c.got - 1):
        c.put(".", c.at, got, opts=c.options())
        if any(seg.bits & rawtcp.RST for seg in c.pending()):
            break
    else:
        raise AssertionError("an ACK of the connection is not reset")
    c.forget()


def t_resets_count_at_the_next_number_alone():
    """RFC 5961 3.2: within the window they are challenged, elsewhere they are nothing."""
    for family, kind in WAYS:
        c = opened(family, **kind)
        hit(c, HIT, "/hit")
        for seq in (c.at - 1, c.at - len(HIT), c.at + (1 << 30)):
            c.put("R", seq, None)
            c.quiet()
        sent = c.sent_max
        c.put("R", c.at + 1, None)
        c.expect(".", seq=c.read, ack=c.at)
        c.sent_max = sent
        hit(c, HIT, "/hit")
        c.put("R", c.at, None)
        gone(c)


def t_a_client_that_has_left_resets_a_reply_of_two_segments():
    """
    At what the first of them acknowledges, which is not yet its request. So does one whose reset
    takes longer than wire's timer, which has sent that segment again meanwhile.
    """
    for (family, kind), late in itertools.product(WAYS, (False, True)):
        c = opened(family, **kind)
        at = c.at
        c.send(LONG)
        seg = c.expect(".", "P.")
        if late:
            net.until(lambda c=c: repeated(c, seg), "no segment is sent again")
        else:
            c.pending()
        assert seg.ack == at, seg
        c.put("R", seg.ack, None)
        gone(c)


def repeated(c, seg):
    """Whether it has come once more; left where it is, among what has come."""
    c.st.pump(0.1)
    return any(x.seq == seg.seq for x in c.queue)


@contextlib.contextmanager
def draining():
    """A daemon that can be told to end, at DRAINED."""
    other = start(DRAINED)
    try:
        warm(DRAINED)
        yield other
    finally:
        assert other.stop() == 0, other.lines


def t_draining_daemon_resets_nobody():
    """
    Idle connections get a FIN at once. One that has not acknowledged its answer gets one
    when it does, or in place of an answer to what it asks then: never a reset.
    """
    with draining() as other:
        ways = list(itertools.product((4, 6), ("idle", "late ack", "asks")))
        all_of_them = [rawtcp.Connection(st, (st.server(family), DRAINED)).open()
                       for family, _ in ways]
        for c, (_, how) in zip(all_of_them, ways):
            c.send(HIT)
            assert c.response(ack=how == "idle").tier == "wire"
        other.process.send_signal(signal.SIGTERM)
        net.until(lambda: "draining" in talk.ask(other, "why", "/hit")["detail"])
        for c, (_, how) in zip(all_of_them, ways):
            if how == "late ack":
                c.send(flags=".")
            elif how == "asks":
                c.send(HIT)
            until_fin(c)
        for c in all_of_them:
            c.send(flags="F.")
            acked(c)
            c.forget()
        assert other.process.wait(daemon.STOP_S) == 0, other.lines


def t_draining_daemon_waits_two_seconds_for_clients_that_keep_their_side_open():
    """As with a socket: they have all that was sent, and its end. No line names them."""
    with draining() as other:
        c = rawtcp.Connection(st, (st.server(4), DRAINED)).open()
        c.send(HIT)
        assert c.response().tier == "wire"
        other.process.send_signal(signal.SIGTERM)
        until_fin(c)
        c.send(flags=".")
        assert other.process.wait(daemon.STOP_S) == 0, other.lines
        assert not any("clients have not closed" in x for x in other.lines), other.lines
        assert not c.pending(), "more than a FIN"
        c.forget()



def t_syn_ack_that_takes_longer_than_a_second():
    """
    The client sends its SYN again, which the kernel may answer, with other numbers; the first
    answer to arrive is wire's. Its ACK may be lost, too.
    """
    state = ("irs", "offered", "shift", "edge", "tsval_last", "tsval_newest")
    for family, ts, lost in itertools.product((4, 6), (True, False), (False, True)):
        c = syn(family, ts=ts)
        was = {name: getattr(c, name) for name in state}
        time.sleep(1.1)                     # the offer is old: this SYN is the kernel's
        c.handshake()
        st.barrier(family)
        assert [seg.flags for seg in c.queue] == ["S."] and c.irs != was["irs"], c.queue
        c.queue.clear()
        for name, value in was.items():
            setattr(c, name, value)
        if not lost:
            c.send(flags=".")
        c.send(HIT)
        st.barrier(family)
        if lost:
            c.again(HIT, seq=1)
        assert c.response().body == BODIES["/hit"], (family, ts, lost)
        assert c.get(talk.request("/none")).status == 404, (family, ts, lost)
        c.drop()


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
