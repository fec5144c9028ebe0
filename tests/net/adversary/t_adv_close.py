#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of how connections end after hits: FIN, RST, TIME_WAIT, ports again.

The socket's last segments, and those of its TIME_WAIT, are in the client's
numbers, whatever wire has put in between.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import daemon
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/large": talk.content("large", 40000)}
HIT, OTHER, LARGE = (talk.request(t) for t in ("/hit", "/other", "/large"))
NONE = talk.request("/none")
LAST = talk.request("/hit", "Connection: close")
os.environ["TOBOGGAND_TEST_TIMERS"] = "sweep=250ms,flow-spent=500ms"
stage = adversary.Stage(BODIES)


def used(s, **how):
    """A connection that has had hits and the socket's own answers."""
    c = s.connect(**how)
    s.hit(c, HIT)
    c.get(LARGE)
    s.hit(c, OTHER)
    return c


def until_fin(c):
    """All the server says up to its FIN; the FIN's segment."""
    while True:
        seg = c.next("FIN")
        assert "R" not in seg.flags, f"reset: {seg}"
        if "F" in seg.flags:
            return seg
        assert not seg.data, f"data behind the last answer: {seg}"


def closed(s, c):
    """The client's FIN is sent: the server's comes, and is acknowledged."""
    fin = until_fin(c)
    assert fin.seq + len(fin.data) == c.read and fin.ack == c.at, fin
    c.send(flags=".")
    for seg in c.pending():     # an answer to what came twice, at most
        assert not seg.data and not seg.bits & rawtcp.RST, seg
    c.gone()


def last(c):
    """A request whose answer the server's FIN follows: the response."""
    c.send(LAST)
    r = c.response(ack=False)
    if c.fin is None:
        until_fin(c)
    return r


def time_wait(c):
    """
    The client acknowledges the server's FIN with its own. The socket answers
    first and goes to TIME_WAIT then; a segment between the two would be lost.
    """
    c.send(flags="F.")
    c.expect(".", seq=c.got, ack=c.at)
    c.gone()


def t_fin_with_the_request():
    def script(s):
        c = used(s)
        c.send(HIT, flags="FP.")
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/hit"]), r
        closed(s, c)
    stage.play(script)


def t_fin_alone():
    def script(s):
        for how in (s.connect, lambda: used(s)):
            c = how()
            c.send(flags="F.")
            closed(s, c)
    stage.play(script)


def t_fin_overtakes_the_request():
    """The socket keeps it until the request is there: it does not have to come again."""
    def script(s):
        # who has no socket yet knows the client by the handshake's last segment alone
        for c in (used(s), *([] if daemon.LATE else [s.new()])):
            if c.irs is None:           # and even the handshake's last segment
                c.handshake()
                c.expect("S.")
            at = c.at
            c.put("F.", at + len(HIT), c.got, opts=c.options())
            c.expect(".", ack=at, sack=None if s.late else [(at + len(HIT), at + len(HIT) + 1)])
            c.send(flags=".")
            c.send(HIT)
            if s.late:                  # kept by nobody, and said so: sent again
                c.send(flags="F.")
            else:
                c.at += 1
            assert c.response().body == BODIES["/hit"]
            closed(s, c)
    stage.play(script)


def t_fin_that_acknowledges_a_hit():
    def script(s):
        c = used(s)
        c.send(HIT)
        c.response(ack=False)
        c.send(flags="F.")
        closed(s, c)
    stage.play(script)


def t_fin_behind_a_lost_reply():
    """A client that half-closes and then resends its request, FIN apart."""
    def script(s):
        c = used(s)
        at, read = c.at, c.read
        c.send(HIT)
        first = c.response(lose=True)
        c.send(flags="F.", ack=read)
        c.st.barrier(c.family)
        c.queue.clear()         # all lost, the acknowledgement of the FIN too
        c.again(HIT, seq=at, ack=read)
        assert c.response().raw == first.raw
        c.send(flags="F.", seq=c.at - 1)
        if c.fin is None:
            closed(s, c)
    with stage.impatient():
        stage.play(script)


def t_reset_by_the_client():
    """Exact: the socket is gone at once, and the daemon's next segment does not come."""
    def script(s):
        for flags in ("R.", "R"):
            c = used(s)
            c.put(flags, c.at, c.got if "." in flags else None, opts=c.options() if "." in flags
                  else b"")
            c.gone()
            c.quiet()
    stage.play(script)


def t_reset_while_a_hit_is_unacknowledged():
    def script(s):
        c = used(s)
        c.send(HIT)
        c.response(ack=False)
        c.put("R", c.at, None)
        c.gone()
        c.quiet()
    stage.play(script)


def t_data_after_the_client_s_reset():
    """Answered by a reset in the numbers that the client asks for."""
    def script(s):
        c = used(s)
        c.put("R", c.at, None)
        c.gone()
        c.send(HIT)
        rst = c.expect("R")
        assert rst.seq == c.read, f"wanted {c.read}: {rst}"
        c.reset = False
    stage.play(script)


def t_server_closes_first():
    """Connection: close after hits: FIN, TIME_WAIT, and its answer to a FIN sent again."""
    def script(s):
        c = used(s)
        assert last(c).body == BODIES["/hit"]
        assert c.fin == c.read, f"FIN at {c.fin}, wanted {c.read}"
        time_wait(c)
        # the acknowledgement was lost: TIME_WAIT says it again, in these numbers
        for _ in range(2):
            c.send(flags="F.", seq=c.at - 1)
            c.expect(".", seq=c.got, ack=c.at)
        c.quiet()
    stage.play(script)


def t_time_wait_is_translated_for_long():
    """Two seconds on: longer than a flow without deltas would be kept."""
    plays = [(family, tier) for family in (4, 6) for tier in adversary.PORTS]
    open_ = []
    for family, tier in plays:
        s = adversary.Play(stage, family, tier)
        c = used(s)
        last(c)
        time_wait(c)
        open_.append((s, c))
    time.sleep(2)
    for s, c in open_:
        with stage.explained(s):
            c.send(flags="F.", seq=c.at - 1)
            c.expect(".", seq=c.got, ack=c.at)
            c.forget()


def t_simultaneous_close():
    """Both FINs cross: CLOSING, and then TIME_WAIT."""
    def script(s):
        c = used(s)
        last(c)
        c.send(flags="F.", ack=c.fin)       # has not seen it
        if s.late:                          # acknowledges, and its own FIN once more
            c.expect("F.", seq=c.fin, ack=c.at)
        else:
            c.expect(".", seq=c.fin + 1, ack=c.at)
        c.send(flags=".")
        c.quiet()
        c.gone()
    stage.play(script)


def t_server_s_fin_lost():
    """Sent again by the socket, where the client expects it."""
    def script(s):
        c = used(s)
        read = c.read
        last(c)
        c.fin = None
        c.send(flags=".", ack=c.read)
        again = until_fin(c)
        assert again.seq + len(again.data) == c.read and c.read > read, again
        time_wait(c)
    with stage.impatient():
        stage.play(script)


def again(s, end):
    """Connections from one port one after the other, each with numbers of its own."""
    source, port, iss, ts = s.st.addresses[s.family][-1], 30001, 77, 5
    for i in range(6):
        c = s.connect(source=source, port=port, iss=iss, ts_start=ts)
        if i % 3 == 0:
            s.hit(c, HIT)
        elif i % 3 == 1:
            c.get(LARGE)
        else:
            used(s)
            s.hit(c, HIT)
            s.hit(c, OTHER)
        end(s, c)
        iss, ts = (c.iss + c.at + 100000) % rawtcp.MOD, c.ts_now
        c.forget()


def t_port_again_after_a_fin():
    def end(s, c):
        c.send(flags="F.")
        closed(s, c)
    stage.play(lambda s: again(s, end))


def t_port_again_after_a_reset():
    def end(s, c):
        c.put("R", c.at, None)
        c.gone()
    stage.play(lambda s: again(s, end))


def t_port_again_after_a_request_that_waits_for_no_acknowledgement():
    """The kernel takes the second request while wire's reply to the first is under way."""
    def end(s, c):
        read = c.read
        c.send(HIT, ack=read)
        c.send(NONE, ack=read)
        c.response(ack=False)
        assert c.response(ack=False).status == 404
        c.send(flags="F.")
        closed(s, c)
        c.send(HIT)             # nobody is there any more
        c.expect("R", seq=c.got)
        c.reset = False
    stage.play(lambda s: again(s, end))


def t_port_again_in_time_wait():
    """The new SYN is past all that the old connection sent (RFC 6191)."""
    def end(s, c):
        last(c)
        time_wait(c)
    stage.play(lambda s: again(s, end))


def timeless(s, hits=1, **how):
    """A connection without timestamps that has had hits, and is in TIME_WAIT."""
    c = s.connect(source=s.st.addresses[s.family][-1], ts=False, **how)
    for _ in range(hits):
        s.hit(c, HIT)
    c.get(LARGE)
    s.hit(c, OTHER)
    s.hit(c, HIT)
    last(c)
    time_wait(c)
    c.forget()
    return c


def t_port_again_in_time_wait_without_timestamps():
    def script(s):
        c = timeless(s, port=30003)
        for _ in range(3):
            c = timeless(s, port=30003, iss=(c.iss + c.at + 100000) % rawtcp.MOD)
    stage.play(script)


def t_port_again_in_time_wait_after_much_by_wire():
    """
    TIME_WAIT's next number would be among what the client has seen: it has to ask again.
    RFC 9293 3.10.7.3: what is no answer to its SYN, the client resets.
    """
    adversary.needs_socket("TIME_WAIT in two numberings")
    def script(s):
        old = timeless(s, port=30004, hits=80)
        after = old.at + 100000
        for _ in range(2):
            old.st.connections[old.key] = old
            old.put("S", after, None, opts=rawtcp.options(mss=1460))
            old.expect(".", seq=old.got, ack=old.at)
        old.put("R", old.at, None)
        old.forget()
        c = s.connect(source=old.local, port=old.port, ts=False, iss=(old.iss + after) % rawtcp.MOD)
        assert 0 < (c.irs - old.irs - old.got) % rawtcp.MOD < 1 << 31, (c.irs, old.irs, old.got)
        s.hit(c, HIT)
        c.get(LARGE)
        s.hit(c, OTHER)
    stage.play(script, tiers=("wire",), same=False)


def t_old_syn_in_time_wait():
    """A SYN within the requests that wire took is older than TIME_WAIT, and refused."""
    def script(s):
        c = timeless(s, port=30005)
        for seq in (0, 1, c.at - 1, c.at - len(LAST) - 1, c.at - len(LAST) - len(HIT)):
            c.st.connections[c.key] = c
            c.put("S", seq, None, opts=rawtcp.options(mss=1460))
            c.expect(".", seq=c.got, ack=c.at)
            c.forget()
    stage.play(script)


def t_stragglers_of_the_last_connection():
    """Old segments meet the new connection of the same port: nothing of theirs is taken."""
    def script(s):
        source, port = s.st.addresses[s.family][-1], 30002
        old = s.connect(source=source, port=port, iss=5000, ts_start=1000)
        s.hit(old, HIT)
        s.hit(old, OTHER)
        old.put("R", old.at, None)
        old.gone()
        old.forget()
        c = s.connect(source=source, port=port, iss=900000, ts_start=2000)
        s.hit(c, HIT)
        for seq, ack in ((1, 1), (1, old.got), (old.at, old.got)):
            seg = s.st.tcp(source, c.remote, port, c.rport, 5000 + seq, old.irs + ack, "P.", 65535,
                           rawtcp.options(ts=(old.tsval(), old.tsval_newest)), HIT)
            s.st.put(s.st.frame(s.family, s.st.ip(source, c.remote, seg)))
        for seg in c.pending():
            assert not seg.data and seg.ack == c.at and seg.seq == c.read, seg
        s.hit(c, OTHER)
    stage.play(script)


def t_syn_on_an_established_connection():
    """A challenge (RFC 5961 4.2) in the client's numbers, and no new flow."""
    def script(s):
        c = used(s)
        for seq in (0, c.at, c.at + 5, 1 << 30):
            opts = rawtcp.options(mss=536, sackok=True, ts=(c.tsval(), 0), wscale=3)
            sent = c.sent_max
            c.put("S", seq, None, opts=opts)
            c.sent_max = sent
            c.expect(".", seq=c.read, ack=c.at)
        s.hit(c, HIT)
        c.get(LARGE)
        s.hit(c, OTHER)
    stage.play(script)


def t_syn_ack_and_urgent_nonsense_on_an_established_connection():
    def script(s):
        c = used(s)
        c.put("S.", c.at, c.got, opts=rawtcp.options(mss=536))
        c.expect(".", seq=c.read, ack=c.at)
        c.sent_max = c.at
        s.hit(c, OTHER)
    stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
