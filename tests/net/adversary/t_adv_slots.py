#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Crowds of connections: every slot of a connection is returned, and none is used twice.

The clients are a few bytes each, without sockets: rawtcp answers for them. More
of them, on sockets: t_scale.py. TBG_CONNECTIONS says how many in all.
"""
import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import client
import ktap
import net
import rawtcp
import talk

BODY = talk.content("hit", 100)
HIT = talk.request("/hit")
# what the plan makes of the memory is read from the map; this is 873, so that a few crowds are
# as many connections as there are slots several times over
MEMORY = "1M"
TOTAL = int(os.environ.get("TBG_CONNECTIONS", 2000 if client.IN_VM else 3000))
CHUNK = 100             # connections at a time: their packets fit into any queue on the way
FIRST_PORT = 10000
OPTS = rawtcp.options(mss=1460, sackok=True, ts=(1000, 0), wscale=7)
stage = adversary.Stage({"/hit": BODY}, "--memory", MEMORY)


class Member:
    """One connection of a crowd, as little of it as there can be."""
    __slots__ = ("crowd", "port", "at", "got", "seen", "state", "ts", "end")

    def __init__(self, crowd, port):
        self.crowd, self.port = crowd, port
        self.at, self.got, self.seen, self.state, self.ts = port * 4000, 0, 0, "syn", 1000
        self.end = None

    def put(self, flags, data=b""):
        st, crowd = self.crowd.st, self.crowd
        self.ts += 1
        opts = OPTS if flags == "S" else rawtcp.options(ts=(self.ts, crowd.tsval.get(self.port, 0)))
        seg = st.tcp(crowd.source, crowd.server, self.port, crowd.rport, self.at,
                     self.got, flags, 65535, opts, data)
        st.put(st.frame(crowd.family, st.ip(crowd.source, crowd.server, seg)))
        self.at += len(data) + ("S" in flags or "F" in flags)

    def came(self, seg):
        """The next step of what this one is to do."""
        crowd = self.crowd
        if seg.flags == "S." and self.state != "syn":
            self.put(".")       # our ACK has waited for longer than a second
            return
        assert seg.bits & rawtcp.RST or (seg.ack - self.at) % rawtcp.MOD == 0, f"{self.port}: {seg}"
        assert not seg.bits & rawtcp.RST, f"{self.port} {self.state}: {seg}"
        if "ts" in seg.options:
            crowd.tsval[self.port] = seg.options["ts"][0]
        if self.state == "syn":
            assert seg.flags == "S.", f"{self.port}: {seg}"
            self.got = (seg.seq + 1) % rawtcp.MOD
            if crowd.then == "leave":
                self.put("R.")
                self.step("left", True)
                return
            self.put(".")
            self.step("open", crowd.then != "ask")
            if crowd.then == "ask":
                self.ask()
        elif self.state == "asked":
            if not seg.data or seg.seq != self.got:
                assert crowd.late(), f"{self.port}: {seg}, wanted {self.got}"
                return          # the socket's ACK, or what it took over
            assert b"detail=wire" in seg.data or crowd.late(), f"{self.port}: {seg.data}"
            assert seg.data.endswith(BODY), f"{self.port}: {seg.data}"
            self.got = (self.got + len(seg.data)) % rawtcp.MOD
            self.put(".")
            self.step("answered", True)
        elif self.state == "closing" and seg.bits & rawtcp.FIN:
            self.got = (self.got + 1) % rawtcp.MOD
            self.put(".")
            self.step("closed", True)

    def step(self, state, done):
        self.state = state
        if done:
            self.crowd.waiting.discard(self)

    def ask(self):
        self.put("P.", HIT)
        self.state = "asked"


class Crowd:
    """Connections from one address to the wire daemon, moved on in chunks."""

    def __init__(self, family, source=None):
        self.st, self.family = stage.station, family
        self.source = source or self.st.address(family)
        self.server, self.rport = self.st.server(family), adversary.WIRE
        self.members, self.waiting, self.tsval = [], set(), {}
        self.then, self.began = "", stage.late()

    def late(self):
        """The machine was too busy for wire: another answer than its own is right."""
        return stage.late() > self.began

    def move(self, members, first):
        """first(member) for all; until each of them is where it stops by itself."""
        for at in range(0, len(members), CHUNK):
            chunk = members[at:at + CHUNK]
            self.waiting.update(chunk)
            for m in chunk:
                first(m)
            while self.waiting:
                assert self.st.pump(net.WAIT_S), \
                    f"{len(self.waiting)} wait, such as {next(iter(self.waiting)).state}"

    def begin(self, nr, then):
        self.then = then
        self.members = [Member(self, FIRST_PORT + i) for i in range(nr)]
        for m in self.members:
            self.st.connections[(self.source, m.port, self.server, self.rport)] = m
        self.move(self.members, lambda m: m.put("S"))

    def forget(self):
        self.st.barrier(self.family)
        for m in self.members:
            self.st.connections.pop((self.source, m.port, self.server, self.rport))
        self.members = []

    def open(self, nr, ask=True):
        self.begin(nr, "ask" if ask else "")

    def leave(self, nr):
        """Reset as soon as there is an answer: a health check of TCP alone."""
        self.begin(nr, "leave")
        self.forget()

    def ask(self):
        self.then = ""
        self.move(self.members, Member.ask)

    def reset(self):
        for i, m in enumerate(self.members):
            self.st.connections.pop((self.source, m.port, self.server, self.rport))
            m.put("R.")
            if i % CHUNK == 0:
                self.st.barrier(self.family)
        self.st.barrier(self.family)
        self.members = []

    def finish(self):
        """Close in both directions, ours first."""
        def fin(m):
            m.put("F.")
            m.state = "closing"
        self.move(self.members, fin)
        self.forget()


def status(name):
    return talk.ask(stage.daemons["wire"], "status")[name]


def emptied():
    """No connection, and no flow of one, is left."""
    net.until(lambda: status("connections") == 0, "the daemon still has connections", every_s=0.05)
    # seconds later, and to count them reads them all
    net.until(lambda: not stage.flows(), "flows are never buried", every_s=0.2)


def slots():
    """How many connections wire can follow at a time."""
    return stage.map_info("tbg_conns")["max_entries"]


def descriptors(nr):
    """Skips unless the daemon could have this many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < nr + 1000:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (nr + 1000, nr + 1000))
        except (ValueError, OSError) as why:
            raise ktap.Skip(f"{nr} connections need as many descriptors, "
                            f"and the limit is {hard}: {why}") from why


def begin():
    stage.open()
    # the warm-up's connection
    emptied()


def t_every_slot_comes_back():
    """Crowds as large as there are slots: one lost, and wire could not serve all of the next."""
    adversary.needs_socket("nor a slot of the daemon's")
    nr = slots()
    descriptors(nr)
    crowds = {family: Crowd(family) for family in (4, 6)}
    total, turn = 0, 0
    while total < TOTAL:
        crowd = crowds[4 if turn % 2 else 6]
        crowd.open(nr)
        if turn == 0:
            assert stage.flows() == nr, "not every connection has a flow"
        crowd.reset()
        emptied()
        total, turn = total + nr, turn + 1
    ktap.note(f"{total} connections opened and closed, {nr} at a time")
    assert not stage.flows(), "entries are left in the map of flows"
    assert not stage.count("tbg_embryos"), "embryos are left of those who are grown up"


def t_slots_of_who_never_asked_come_back():
    """Closed in both directions without a request; half-open ones that are reset, early or late."""
    nr = slots()
    descriptors(nr)
    crowd = Crowd(4)
    crowd.open(nr // 2, ask=False)
    crowd.finish()
    for port in range(FIRST_PORT + nr // 2, FIRST_PORT + nr):
        m = Member(crowd, port)
        seg = crowd.st.tcp(crowd.source, crowd.server, port, crowd.rport, m.at, 0, "S", 65535, OPTS)
        crowd.st.put(crowd.st.frame(4, crowd.st.ip(crowd.source, crowd.server, seg)))
        seg = crowd.st.tcp(crowd.source, crowd.server, port, crowd.rport, m.at + 1, 0, "R", 0)
        crowd.st.put(crowd.st.frame(4, crowd.st.ip(crowd.source, crowd.server, seg)))
        if port % CHUNK == 0:
            crowd.st.barrier(4)
    crowd.st.barrier(4)
    crowd.st.strays.clear()     # the SYN-ACKs
    emptied()
    crowd.leave(nr)
    assert not stage.flows(), "a flow of who has reset the handshake"
    emptied()
    crowd.open(nr)
    crowd.reset()
    emptied()


def t_beyond_the_slots_the_socket_answers():
    """A full pool is no error: the next tier, and wire again when there is room."""
    adversary.needs_socket("nor a slot of the daemon's")
    nr = slots()
    descriptors(nr)
    crowd = Crowd(6)
    crowd.open(nr)
    s = adversary.Play(stage, 4, "wire")
    with stage.explained(s):
        s.hit(s.connect(), HIT, tier="user")
        s.end()
    crowd.ask()             # all of them are wire's still
    crowd.reset()
    emptied()
    s = adversary.Play(stage, 4, "wire")
    with stage.explained(s):
        s.hit(s.connect(), HIT)
        s.end()
    emptied()


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=lambda: stage.net and stage.close())
