#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of unusual but legal windows: zero, shrinking, filled by replies, unread."""
import fcntl
import os
import socket
import struct
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import client
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300),
          "/full": talk.content("full", 1100), "/large": talk.content("large", 40000)}
HIT, OTHER, FULL, LARGE = (talk.request(t) for t in ("/hit", "/other", "/full", "/large"))
UNREAD = 22     # hits whose replies a client leaves in its buffer, if as many fit
UNREAD_S = 0.5 if client.IN_VM else 0.05
stage = adversary.Stage(BODIES)


def t_window_that_just_holds_the_reply():
    """One byte less, and it is the socket's, which waits for the window."""
    def script(s):
        c = s.connect(wscale=None)
        size = len(s.hit(c, FULL).raw)
        c = s.connect(wscale=None)
        c.window = size
        s.hit(c, FULL)
        # the socket knows of the window from the segment itself
        c.send(FULL, win=size - 1)
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/full"]), r
        c.window = 65535
        s.hit(c, FULL)
    with stage.impatient():     # the socket waits for its timer where the window is full
        stage.play(script)


def t_segment_fills_no_more_than_half_the_window():
    """As the socket's, or the client's own rule (RFC 9293 3.8.6.2.2) keeps its window shut."""
    def script(s):
        size = len(s.hit(s.connect(), FULL).raw)
        for wscale in (None, 2):
            c = s.connect(wscale=wscale, window=size + 200 >> (wscale or 0))
            for _ in range(2):
                before = len(c.seen)
                c.send(FULL)
                while len(c.seen) < before + size:
                    seg = c.next()
                    assert len(seg.data) <= (size + 200) // 2, f"a window of {size + 200}: {seg}"
                c.send(flags=".")
                r = c.response()
                assert (r.tier, r.body) == (s.tier, BODIES["/full"]), r
    stage.play(script)


def t_window_is_scaled():
    def script(s):
        c = s.connect(wscale=7)
        size = len(s.hit(c, FULL).raw)
        fits = -(-size // 128)
        c.window = fits
        s.hit(c, FULL)
        c.send(FULL, win=fits - 1)
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/full"]), r
    with stage.impatient():     # the socket waits for its timer where the window is full
        stage.play(script)


def t_window_of_zero_that_opens():
    def script(s):
        c = s.connect()
        s.hit(c, HIT)
        c.window = 0
        c.send(flags=".")
        c.send(HIT)
        c.pending()     # not every kernel minds a window that closes at the same number
        c.window = 500
        c.send(flags=".")
        r = c.response()
        assert (r.tier, r.body) == ("user", BODIES["/hit"])
        s.hit(c, HIT)
    stage.play(script)


def unread(s, c, nr):
    """Hits whose client does not read: its window ends where it ended. Returns that end."""
    shift = c.wscale or 0
    edge = c.got + (c.window << shift)
    for _ in range(nr):
        s.hit(c, FULL, ack=False)
        c.window = (edge - c.got) >> shift
    return c.got + (c.window << shift)


def fills(s, c, end, cut=len(LARGE)):
    """A reply of the socket fills the window, and goes on once that opens."""
    c.send(LARGE[:cut])
    if cut < len(LARGE):
        c.st.barrier(c.family)
        c.send(LARGE[cut:])
    filled(c, end)
    s.hit(c, HIT)


def filled(c, end):
    """The reply that has been asked for, which fills the window first."""
    while c.got < end:
        c.next("rest of what fits into the window")
        c.window = (end - c.got) >> (c.wscale or 0)
        c.send(flags=".")
    c.window = 65535
    c.send(flags=".")
    assert c.response().body == BODIES["/large"]


def t_window_that_shrinks_over_hits():
    """The socket keeps to it (no byte goes beyond: rawtcp), whether an ACK told of it or the
    request."""
    def script(s):
        for acked in (True, False):
            for how in ({"wscale": None}, {"wscale": None, "ts": False},
                        {"wscale": 2, "window": 3000}):
                c = s.connect(**{"window": 12000, **how})
                end = unread(s, c, 4)
                if acked:
                    c.send(flags=".")
                fills(s, c, end)
    with stage.impatient():
        stage.play(script)


def shrinks(send):
    """The request for what fills the window, sent by send(connection)."""
    def script(s):
        for how in ({"wscale": None}, {"wscale": None, "ts": False}):
            c = s.connect(**{"window": 12000, **how})
            end = unread(s, c, 4)
            send(c)
            filled(c, end)
    with stage.impatient():
        stage.play(script)


def t_window_that_shrinks_over_hits_and_a_request_with_the_client_s_end():
    shrinks(lambda c: c.send(LARGE, flags="FP."))


def t_window_that_shrinks_over_hits_and_a_request_that_reports_what_came_twice():
    """By a selective acknowledgement of bytes below the cumulative one (D-SACK, RFC 2883)."""
    shrinks(lambda c: c.send(LARGE, sack=[(1, 2)]))


def t_window_that_shrinks_over_hits_and_a_request_longer_than_any_of_wire():
    """It comes as one segment, merged by GRO."""
    longer = LARGE[:-2] + b"X-Note: " + b"n" * 3000 + b"\r\n\r\n"
    shrinks(lambda c: c.send_merged(longer, 1000))


def t_window_that_shrinks_again_after_the_socket_has_it():
    def script(s):
        c = s.connect(wscale=None)
        c.get(LARGE)
        for window in (12000, 9000, 6000):
            c.window = window
            fills(s, c, unread(s, c, 3))
    with stage.impatient():
        stage.play(script)


def t_window_that_shrinks_over_hits_and_a_request_in_pieces():
    def script(s):
        for cut in (1, len(LARGE) // 2, len(LARGE) - 1):
            c = s.connect(wscale=None, window=12000)
            fills(s, c, unread(s, c, 4), cut)
    with stage.impatient():
        stage.play(script)


def t_window_that_hits_have_filled():
    """Not a byte from the socket, but its probes, until the window opens."""
    def script(s):
        c = s.connect(wscale=None, window=4 * len(s.hit(s.connect(), FULL).raw))
        end = unread(s, c, 4)
        assert (c.window, end) == (0, c.got)
        c.send(LARGE)
        for window in (0, 65535):
            seg = c.next()
            while seg.seq == end and not seg.data:      # the request is acknowledged
                seg = c.next()
            assert (seg.seq, seg.data) == (end - 1, b""), f"wanted a probe: {seg}"
            c.window = window
            c.send(flags=".")
        assert c.response().body == BODIES["/large"]
        s.hit(c, HIT)
    with stage.impatient():
        stage.play(script)


def t_window_that_a_reply_under_way_takes_its_share_of():
    """The request behind it has come before the reply was acknowledged: not a byte beyond."""
    def script(s):
        for how in ({"wscale": None}, {"wscale": None, "ts": False}, {"wscale": 2, "window": 3000}):
            c = s.connect(**{"window": 12000, **how})
            s.hit(c, HIT)
            read, end = c.read, c.got + (c.window << (c.wscale or 0))
            c.send(FULL)
            c.send(LARGE, ack=read)
            while c.got < end:
                c.next("rest of what fits into the window")
                c.window = (end - c.got) >> (c.wscale or 0)
                c.send(flags=".")
            c.window = 65535
            c.send(flags=".")
            assert [c.response().body for _ in range(2)] == [BODIES["/full"], BODIES["/large"]]
            s.hit(c, HIT)
    with stage.impatient():
        stage.play(script)


def opened(s, c, window):
    """The reply's acknowledgement opens the window, and the answer to OTHER is sent: no probe."""
    assert not any(x.data for x in c.pending())
    c.window = window
    c.send(flags=".")
    seg = c.next()
    while not seg.data:
        assert seg.seq == c.got, f"a probe: {seg}"
        seg = c.next()
    c.send(flags=".")
    assert c.response().body == BODIES["/other"]
    s.hit(c, HIT)


def t_window_that_a_reply_under_way_fills():
    """The acknowledgement of the reply opens it, and the socket is notified: it sends no probe."""
    def script(s):
        size = len(s.hit(s.connect(), FULL).raw)
        c = s.connect(wscale=None, window=size)
        read = c.read
        c.send(FULL)
        c.send(OTHER, ack=read)
        assert c.response(ack=False).body == BODIES["/full"]
        opened(s, c, 65535)
    stage.play(script)


def opens(s, how, window):
    """A reply's acknowledgement, behind a request in two pieces, opens the window: no probe."""
    size = len(s.hit(s.connect(), FULL).raw)
    c = s.connect(wscale=None, window=window or size)
    read = c.read
    c.send(FULL)
    c.send(OTHER[:20], ack=read)
    c.window = size
    c.send(OTHER[20:], ack=read)
    assert c.response(ack=False).body == BODIES["/full"]
    how(c)
    opened(s, c, 10000)


def t_window_that_the_socket_has_not_heard_of():
    """It was in a segment that TCP does not take."""
    def script(s):
        opens(s, lambda c: c.send(flags=".", win=65535, raw=rawtcp.damaged), None)
        opens(s, lambda c: c.put(".", c.at + (1 << 20), c.got, opts=c.options(), win=65535), None)
    stage.play(script)


def t_window_that_shrinks_within_a_request():
    """The socket believes its second piece, and hears of what opens it again."""
    stage.play(lambda s: opens(s, lambda c: None, 12000), tiers=("wire",))


def small(s):
    """A receive buffer of some forty replies; before the handshake."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)


def waiting(c):
    """Bytes that came, and were not read."""
    return struct.unpack("i", fcntl.ioctl(c.s, termios.FIONREAD, b"\0" * 4))[0]


def t_client_that_does_not_read():
    """A kernel's: nothing comes beyond its window, and nothing is sent twice."""
    def script(s):
        ends, link = (stage.net.client, stage.net.server), stage.net.links[0]
        address = link.server4 if s.family == 4 else link.server6
        with talk.Connection(ends[0].connect((address, adversary.PORTS[s.tier]), setup=small)) as c:
            c.send(FULL)
            r = c.response()
            size = len(r.head) + 4 + len(r.body)
            before = [ns.mibs() for ns in ends]
            unread = 0
            while waiting(c) == unread * size and unread < UNREAD:
                c.send(FULL)
                unread += 1
                time.sleep(UNREAD_S)
            assert unread > UNREAD // 2, f"only {unread} replies fit"
            c.send(LARGE)
            time.sleep(UNREAD_S)
            tiers = [c.response().tier for _ in range(unread)]
            # what fills the window is the socket's, or comes while it is moved (6.1)
            assert tiers.count(s.tier) > unread // 2 and set(tiers) <= {s.tier, "user"}, tiers
            assert c.response().body == BODIES["/large"]
            beyond, again = (adversary.moved(was, ns.mibs()) for was, ns in zip(before, ends))
        # the client's own timers know a slow machine, the server's wait for it
        assert "TcpExt.BeyondWindow" not in beyond and "Tcp.RetransSegs" not in again, \
               (beyond, again)
    stage.play(script, tiers=("wire",))


def t_window_update_between_hits():
    """Not wire's to swallow: it is of bytes that wire sent, but says more."""
    def script(s):
        c = s.connect()
        c.get(LARGE)
        for win in (10, 20, 65535, 3000, 65535):
            s.hit(c, HIT)
            c.window = win
            c.send(flags=".")
        assert c.get(LARGE).body == BODIES["/large"]
        s.hit(c, HIT)
    stage.play(script)


if __name__ == "__main__":
    adversary.runner(globals(), stage)
