#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The end of connections on which wire has answered: FIN, RST, reused ports."""
import contextlib
import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import talk

PORT = 8080
REUSES = 20 if client.IN_VM else 200
# Of these, in a guest whose CPUs wait for each other: a SYN that meets the server's socket in
# its last moment, on another CPU, waits for it there, and is lost with it.
SYNS_LOST = 2 if client.IN_VM else 0
MANY = 8 if client.IN_VM else 100
n = d = None
BODIES = {"/hit": talk.content("hit", 600), "/large": talk.content("large", 300000)}
miss_nr = 0


def begin():
    global n, d
    n = net.Net(links=1)
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0,lo", listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        for target, body in BODIES.items():
            d.write(target[1:], body)
        d.start()
    n.late = lambda: talk.late(d)
    tier = talk.ask(d, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))
    with connect(4) as c:
        for target in BODIES:
            c.get(target)
        assert c.get("/hit").tier == daemon.FAST


def end():
    if d:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


def connect(family, source=None):
    address = n.links[0].server4 if family == 4 else n.links[0].server6
    return talk.Connection(n.client.connect((address, PORT), source=source))


def miss():
    """A target that nobody has asked for: (target, body)."""
    global miss_nr
    miss_nr += 1
    body = talk.content(f"m{miss_nr}", 700)
    d.write(f"{miss_nr}/miss", body)
    return f"/{miss_nr}/miss", body


@contextlib.contextmanager
def clean_end(*ignore):
    """TCP notices nothing, and no connection stays half open on either side."""
    with n.clean(PORT, *ignore):
        yield
        n.server.over(PORT)


def after(c, kind):
    """Bring a connection to where wire has answered not at all, once, or in turns."""
    for what in {"new": (), "hit": ("hit",), "miss": ("miss",),
                 "turns": ("hit", "miss", "hit", "hit", "miss", "hit")}[kind]:
        target, body = ("/hit", BODIES["/hit"]) if what == "hit" else miss()
        assert c.get(target).body == body


def each(fn):
    for family in (4, 6):
        for kind in ("new", "hit", "miss", "turns"):
            for last in ("hit", "miss"):
                target, body = ("/hit", BODIES["/hit"]) if last == "hit" else miss()
                try:
                    with connect(family) as c:
                        after(c, kind)
                        fn(c, target, body)
                except Exception as why:
                    raise AssertionError(f"IPv{family}, {last} after {kind}: {why!r}") from why


def t_half_close_right_after_the_request():
    def one(c, target, body):
        c.send(talk.request(target))
        c.half_close()
        r = c.response()
        assert (r.status, r.body) == (200, body), r
        c.end()
    with clean_end():
        each(one)


def t_half_close_after_the_answer():
    def one(c, target, body):
        assert c.get(target).body == body
        c.half_close()
        c.end()
    with clean_end():
        each(one)


def t_fin_with_the_request():
    """Request and FIN in one segment: MSG_MORE holds the first back for the second."""
    def one(c, target, body):
        c.s.send(talk.request(target), 0x8000)      # MSG_MORE
        c.half_close()
        r = c.response()
        assert (r.status, r.body) == (200, body), r
        c.end()
    before = talk.counts(d)
    with clean_end():
        each(one)
    now = talk.counts(d)
    if daemon.FAST == "wire":       # the socket's stream does not show it
        assert now["FLAGS"] > before["FLAGS"], "no FIN came with a request"


def t_half_close_behind_a_burst():
    with clean_end():
        for family in (4, 6):
            with connect(family) as c:
                after(c, "turns")
                want = [("/hit", BODIES["/hit"]), miss(), ("/large", BODIES["/large"])] * 3
                c.send(b"".join(talk.request(target) for target, _ in want))
                c.half_close()
                for _, body in want:
                    assert c.response().body == body
                c.end()


def t_client_closes_at_once():
    """Without reading: the answer meets a closed socket, which resets."""
    for family in (4, 6):
        for _ in range(MANY):
            for target in ("/hit", miss()[0]):
                with connect(family) as c:
                    c.send(talk.request(target))
    n.server.over(PORT)
    usable()


def t_client_resets_mid_response():
    for family in (4, 6):
        for i in range(MANY):
            c = connect(family)
            after(c, ("new", "hit", "miss", "turns")[i % 4])
            c.send(talk.request("/large"))
            c.s.recv(1000 * (i % 5) + 1)
            c.reset()
            c = connect(family)
            after(c, "hit")
            c.send(talk.request(("/hit", "/large")[i % 2]))
            c.reset()
    n.server.over(PORT)
    usable()


def usable():
    """The daemon works, and wire answers."""
    for family in (4, 6):
        with connect(family) as c:
            assert c.get("/hit").tier == daemon.FAST
            target, body = miss()
            assert c.get(target).body == body
            assert c.get("/hit").tier == daemon.FAST


def reconnect(family, source):
    """None while the last connection from there has yet to hear of its end."""
    try:
        return connect(family, source)
    except OSError as why:
        if why.errno != errno.EADDRNOTAVAIL:
            raise
    return None


def reuse(family, finish, *ignore, syns=SYNS_LOST):
    """
    The same source port again and again; what comes is of this connection. syns: how many
    may be lost.
    """
    source = (n.links[0].client4 if family == 4 else n.links[0].client6, 40000 + family)
    wired = 0
    with n.clean(PORT, *ignore, syns=syns):
        for i in range(REUSES):
            with net.until(lambda: reconnect(family, source)) as c:
                want = [("/hit", BODIES["/hit"])] * (i % 3)
                if i % 4 == 0:
                    want.append(miss())
                want += [("/hit", BODIES["/hit"])] * 2
                for target, body in want:
                    r = c.get(target)
                    assert (r.status, r.body) == (200, body), f"round {i}: {r}"
                    wired += r.tier == daemon.FAST
                finish(c)
        n.server.over(PORT)
    assert wired >= 2 * REUSES - REUSES // 4, f"only {wired} by wire"


def t_port_used_again_after_a_reset():
    """A client that has its answer of sock may be faster than who holds the socket for that."""
    for family in (4, 6):
        reuse(family, lambda c: c.reset(), "EstabResets", "OutRsts", "TCPAbortOnData",
              syns=REUSES if daemon.FAST == "sock" else SYNS_LOST)


def t_port_used_again_after_the_server_closed_first():
    """TIME_WAIT is the server's: the next SYN must revive it, numbers translated."""
    def finish(c):
        c.send(talk.request("/hit", "Connection: close"))
        assert c.response().body == BODIES["/hit"]
        c.end()
    for family in (4, 6):
        reuse(family, finish)


def t_port_used_again_after_the_client_closed_first():
    """Without TIME_WAIT at the client: each SYN meets what wire knows of the last one.

    Some are sent again: seen on 6.1 under emulation, twice in 100.
    """
    def finish(c):
        c.half_close()
        c.end()
    was = n.client.sysctl("ipv4.tcp_max_tw_buckets", 0)
    try:
        for family in (4, 6):
            reuse(family, finish, syns=REUSES)
    finally:
        n.client.sysctl("ipv4.tcp_max_tw_buckets", was)


def t_server_closes_first():
    def one(c, target, body):
        c.send(talk.request(target, "Connection: close"))
        r = c.response()
        assert (r.status, r.body, r.fields["Connection"]) == (200, body, "close"), r
        c.end()
    with clean_end():
        each(one)
    states = {state for state, *_ in n.server.sockets(PORT)}
    assert "TIME_WAIT" in states, states


def t_http_1_0_closes():
    def one(c, target, body):
        c.send(talk.request(target, version="HTTP/1.0"))
        r = c.response()
        assert (r.status, r.body) == (200, body), r
        c.end()
    with clean_end():
        each(one)


def t_data_behind_the_server_s_fin():
    """A request that crosses the FIN is not answered, and nothing else breaks."""
    for family in (4, 6):
        for _ in range(10):
            with connect(family) as c:
                after(c, "turns")
                c.send(talk.request("/hit", "Connection: close"))
                c.send(talk.request("/hit"))
                assert c.response().body == BODIES["/hit"]
                assert c.ended(), c.got
    n.server.over(PORT)
    usable()


def t_idle_client_closes():
    with clean_end():
        for family in (4, 6):
            for kind in ("new", "hit", "miss", "turns"):
                with connect(family) as c:
                    after(c, kind)


def t_nothing_is_left():
    n.server.over(PORT)
    net.until(lambda: talk.ask(d, "stats")["tiers"]["user"]["connections"] == 0,
              "the daemon still has connections")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
