# SPDX-License-Identifier: GPL-2.0
"""A stage for scripted connections: two daemons on one root, one without wire.

    stage = adversary.Stage({"/hit": body}).open()      # or ktap.Skip
    def script(s):                  # s: a Play
        c = s.connect()
        r = c.get(talk.request("/hit"))
    stage.play(script)              # IPv4 and IPv6, with wire and without

A script runs once for each. Its connections must receive the same with wire and without,
except Date and Cache-Status. No counter of the server's kernel (nstat) may be higher with
wire than without, except those of MAY_DIFFER.
"""
from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any, Callable, Iterable, Iterator

import client
import daemon
import ktap
import maps
import net
import rawtcp
import talk

WIRE, USER = 8080, 8081
PORTS = {"wire": WIRE, "user": USER}
PATIENT_MS = 10000  # no retransmission by the server's socket, however busy the machine is

# {why a counter may be higher with wire: counters}. All others may not, whatever
# the kernel counts: one that is new with the next kernel is compared, too.
MAY_DIFFER = {
    "the barrier's echo requests": """
        Icmp.InMsgs Icmp.InEchos Icmp.OutMsgs Icmp.OutEchoReps IcmpMsg.InType8
        IcmpMsg.OutType0 Icmp6InMsgs Icmp6InEchos Icmp6OutMsgs Icmp6OutEchoReplies
        Icmp6InType128 Icmp6OutType129""",
    "IPv6 asks for routers, neighbours and groups when it is time": """
        Icmp6OutRouterSolicits Icmp6OutType133
        Icmp6InNeighborSolicits Icmp6InType135 Icmp6OutNeighborSolicits Icmp6OutType135
        Icmp6InNeighborAdvertisements Icmp6InType136
        Icmp6OutNeighborAdvertisements Icmp6OutType136
        Icmp6InMLDv2Reports Icmp6InType143 Icmp6OutMLDv2Reports Icmp6OutType143
        Ip6InMcastPkts Ip6OutMcastPkts Ip6InMcastOctets Ip6OutMcastOctets""",
    "all these are packets; what is wrong with one has a counter of its own": """
        Ip.InReceives Ip.InDelivers Ip.OutRequests Ip.OutTransmits
        IpExt.InOctets IpExt.OutOctets IpExt.InNoECTPkts
        Ip6InReceives Ip6InDelivers Ip6OutRequests Ip6OutTransmits
        Ip6InOctets Ip6OutOctets Ip6InNoECTPkts""",
    "an acknowledgement goes alone, or with an answer that is soon enough": """
        Tcp.InSegs Tcp.OutSegs
        TcpExt.DelayedACKs TcpExt.DelayedACKLocked TcpExt.DelayedACKLost""",
    "a request that wire answers may come to the socket as an acknowledgement": """
        TcpExt.TCPPureAcks TcpExt.TCPHPAcks""",
    "how much comes before the daemon reads, and where answers are cut as it writes": """
        TcpExt.TCPHPHits TcpExt.TCPRcvCoalesce TcpExt.TCPBacklogCoalesce
        TcpExt.TCPAutoCorking TcpExt.TCPOrigDataSent TcpExt.TCPDelivered
        TcpExt.TCPSackShifted TcpExt.TCPSackMerged TcpExt.TCPSackShiftFallback""",
    "slow start ends by the times between acknowledgements": """
        TcpExt.TCPHystartTrainDetect TcpExt.TCPHystartTrainCwnd
        TcpExt.TCPHystartDelayDetect TcpExt.TCPHystartDelayCwnd""",
    "of connections closed a minute ago": "TcpExt.TW TcpExt.TWKilled",
    "an error comes while the daemon has the socket in hand, or does not": """
        TcpExt.LockDroppedIcmps""",
    "while an interface is down or new there is no route, for as many as come meanwhile": """
        Ip.OutNoRoutes Ip6OutNoRoutes Ip6InNoRoutes""",
    "a SYN-ACK waits for one second, whatever the route says": "TcpExt.TCPSynRetrans",
}
# Counters of connections without a socket that get or lose one: the request that is
# withdrawn at the birth; sockets that are made late, or closed without a packet; ICMP errors
# that find no socket; challenges of the socket where wire would have sent nothing.
LATE = """
    Tcp.AttemptFails TcpExt.EmbryonicRsts Tcp.PassiveOpens Tcp.EstabResets
    Icmp.InErrors Icmp6InErrors TcpExt.TCPChallengeACK""".split()
# Effects of an early timer of the socket: a lost reply of wire is then sent by the socket for
# the first time.
TIMED = """
    Tcp.RetransSegs TcpExt.TCPTimeouts TcpExt.TcpTimeoutRehash TcpExt.TCPLossProbes
    TcpExt.TCPLossProbeRecovery TcpExt.TCPFastRetrans TcpExt.TCPSlowStartRetrans
    TcpExt.TCPLostRetransmit TcpExt.TCPRetransFail
    TcpExt.TCPSackRecovery TcpExt.TCPSackFailures TcpExt.TCPSackRecoveryFail
    TcpExt.TCPRenoRecovery TcpExt.TCPRenoFailures TcpExt.TCPRenoRecoveryFail
    TcpExt.TCPLossFailures TcpExt.TCPLossUndo TcpExt.TCPFullUndo TcpExt.TCPPartialUndo
    TcpExt.TCPSpuriousRTOs TcpExt.TCPSpuriousRtxHostQueues
    TcpExt.TCPTSReorder TcpExt.TCPSACKReorder TcpExt.TCPRenoReorder""".split()
ALLOWED = {key for keys in MAY_DIFFER.values() for key in keys.split()}
ALLOWED.update(LATE if daemon.LATE else ())
TRACE = 24          # packets of a connection that a failure shows


def needs_socket(what: str) -> None:
    """Skip a test about the socket of a connection, or about translation."""
    if daemon.LATE:
        raise ktap.Skip(f"no socket there: {what}")


def needs_late(what: str) -> None:
    """Skip a test about connections that wire owns."""
    if not daemon.LATE:
        raise ktap.Skip(f"translated connections: {what}")


def bare(stream: bytes) -> bytes:
    """A stream of responses without the parts that may differ."""
    stream = re.sub(rb"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", b"", stream)
    return re.sub(rb"\r\nCache-Status: [^\r]*", b"", stream)


def moved(before: dict, now: dict) -> dict:
    """{counter: by how much it has grown} of two net.Namespace.mibs()."""
    ret = {key: value - before.get(key, 0) for key, value in now.items()}
    for key in net.SYN_AGAIN:   # for a slow machine's sake, as TCPSynRetrans is
        ret[key] -= ret["TcpExt.TCPSynRetrans"]
    return {key: by for key, by in ret.items() if by > 0}


class Play:
    """One run of a script: its connections, and their daemon."""

    def __init__(self, stage: Stage, family: int, tier: str) -> None:
        self.stage, self.family, self.tier = stage, family, tier
        self.st, self.d = stage.station, stage.daemons[tier]
        self.wire = tier == "wire"
        self.late = self.wire and bool(daemon.LATE)     # no socket before the first miss
        self.connections, self.stills = [], 0
        self.notes = []         # what else must be the same with wire and without
        self.began = stage.late() if self.wire else 0

    @property
    def address(self) -> tuple[Any, int]:
        return (self.st.server(self.family), PORTS[self.tier])

    def new(self, **how: Any) -> rawtcp.Connection:
        """A connection that has sent nothing yet."""
        c = rawtcp.Connection(self.st, self.address, **how)
        self.connections.append(c)
        return c

    def connect(self, **how: Any) -> rawtcp.Connection:
        return self.new(**how).open()

    def hit(self, c: client.Client, request: Any, tier: str | None = None, **more: Any) -> Any:
        """
        A request and its response, by wire if there is wire (or by tier). If wire had no
        clock, or no acknowledgement for 200 ms, the machine was too busy.
        """
        r = c.get(request, **more)
        tier = tier or self.tier
        assert r.tier == tier or tier == "wire" and self.stage.late() > self.began, \
               f"by {r.tier}: {r}"
        return r

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """
        Wire alone: its daemon is stopped, so that no reply is given to the socket when this
        machine takes more than 200 ms to acknowledge it. No effect without wire. Can be nested.
        """
        self.stills += 1
        try:
            with daemon.stopped(self.d.pid) if self.wire and self.stills == 1 else \
                    contextlib.nullcontext():
                yield
        finally:
            self.stills -= 1

    def counted(self, name: str) -> Any:
        return talk.counts(self.stage.daemons["wire"])[name]

    def outcome(self) -> tuple[list[tuple[Any, bool, Any]], list]:
        """What the client saw, to compare."""
        return [(bare(bytes(c.seen)), c.fin is not None, c.reset) for c in self.connections], \
               self.notes

    def abandon(self) -> None:
        """After a failure: end these connections, so that the next script does not see them."""
        for c in self.connections:
            if c.irs is not None:
                c.put("R.", c.at, c.got, opts=c.options())
            self.st.graves.add(c.key)
            self.st.connections.pop(c.key, None)
        self.st.strays.clear()

    def end(self) -> None:
        for c in self.connections:
            if c.irs is not None and self.st.connections.get(c.key) is c:
                c.drop()


class Stage:
    def __init__(self, bodies: dict[str, bytes], *options: str, links: Any = 1,
                 rto_ms: int = PATIENT_MS, interfaces: str = "tbg0") -> None:
        self.bodies, self.options, self.links = bodies, options, links
        self.rto_ms, self.interfaces = rto_ms, interfaces
        self.net = self.station = self.site = None
        self.daemons = {}
        self.plays = len(os.environ.get("TBG_WHERE", ""))

    def open(self) -> Stage:
        try:
            self.net = net.Net(links=self.links)
            self.net.client.sysctl("ipv4.ip_forward", 0)
            # answers of the stack to strange segments must not depend on time
            self.net.server.sysctl("ipv4.tcp_invalid_ratelimit", 0)
            self.site = daemon.Daemon()     # never started: it provides the root of both
            for target, body in self.bodies.items():
                self.site.write(target[1:], body)
            for tier in PORTS:
                self.daemons[tier] = self.start(tier)
            self.station = rawtcp.Station(self.net, self.net.links[0])
            self.patience(self.rto_ms)
            for tier in PORTS:
                self.warm(tier, *self.bodies)
        except BaseException:
            self.close(failed=True)
            raise
        return self

    def start(self, tier: str) -> daemon.Daemon:
        port = PORTS[tier]
        options = ("--wire", self.interfaces) if tier == "wire" else ("--tiers", "user")
        options += ("--idle-timeout", "3600s")      # for connections that wait for a slow machine
        with self.net.server.inside():
            d = daemon.Daemon(*options, *self.options, root=self.site.root,
                              listen=(f"0.0.0.0:{port}", f"[::]:{port}")).start()
        status = talk.ask(d, "status")["tiers"]["wire"]
        if tier == "wire" and not status["on"]:
            d.stop()
            raise ktap.Skip(daemon.why_off("wire", status["why"]))
        return d

    @contextlib.contextmanager
    def impatient(self, ms: int = 200) -> Iterator[None]:
        """The server's socket retransmits early, as it would in a network."""
        was = self.rto_ms
        self.patience(ms)
        try:
            yield
        finally:
            self.patience(was)

    def patience(self, ms: int) -> None:
        """The server's least retransmission timeout."""
        self.rto_ms = ms
        link, server = self.net.links[0], self.net.server
        server.run("ip", "route", "change", f"10.87.{link.nr}.0/24", "dev", link.name, "src",
                   link.server4, "rto_min", f"{ms}ms")
        server.run("ip", "-6", "route", "replace", f"fd87:{link.nr}::/64", "dev", link.name,
                   "metric", "1", "rto_min", f"{ms}ms")

    def routes_read(self) -> None:
        """The daemon has read the routes and interfaces as they are now."""
        time.sleep(0.05 * client.SLOW)      # it may have done so a moment ago
        for _ in range(3):
            talk.ask(self.daemons["wire"], "status")

    def warm(self, tier: str, *targets: str) -> None:
        """Wait until they are cached, so that the next request is a hit."""
        link = self.net.links[0]
        with talk.Connection(self.net.client.connect((link.server4, PORTS[tier]))) as c:
            for target in targets:
                net.until(lambda target=target: c.get(target).tier in ("wire", "user"),
                          f"{target} is never cached")
            port = c.s.getsockname()[1]
            c.reset()       # a flow that ends with a FIN is kept for two minutes
            self.net.server.over(PORTS[tier], port)     # counted before any script begins

    def replace(self, target: str, body: bytes, *tiers: str) -> None:
        """Write a new version, and wait until the daemons serve it."""
        self.site.write(target[1:], body)
        for tier in tiers or PORTS:
            link = self.net.links[0]
            with talk.Connection(self.net.client.connect((link.server4, PORTS[tier]))) as c:
                net.until(lambda c=c: c.get(target).body == body, f"{target} stays old")
                net.until(lambda c=c: c.get(target).tier in ("wire", "user"),
                          f"{target} is not cached")

    def close(self, failed: bool = False) -> None:
        codes = {tier: d.stop() for tier, d in self.daemons.items()}
        lines = {tier: d.lines for tier, d in self.daemons.items()}
        self.daemons = {}
        if self.station:
            self.station.close()
        if self.site:
            self.site.clean()
        if self.net:
            self.net.close()
        assert failed or not any(codes.values()), f"{codes}: {lines}"

    def late(self) -> Any:
        """How often wire has left an answer to the daemon because of time."""
        return talk.late(self.daemons["wire"])

    def flows(self) -> int:
        """How many connections the wire daemon follows, the closed ones too."""
        return self.count(maps.FLOWS)

    def map_info(self, name: str) -> Any:
        return maps.info(self.daemons["wire"].pid, name)

    def count(self, name: str) -> int:
        return maps.count(self.daemons["wire"].pid, name)

    @contextlib.contextmanager
    def explained(self, play: Play) -> Iterator[None]:
        """On failure: print the packets."""
        try:
            yield
        except Exception as why:
            for c in play.connections:
                ktap.note(f"{c.local} port {c.port}, {play.tier}:")
                for line in c.trace[-TRACE:]:
                    ktap.note(f"  {line}")
            play.abandon()
            raise AssertionError(f"IPv{play.family}, {play.tier}: {why!r}") from why

    def run(self, script: Callable[..., Any], family: int,
            tier: str) -> tuple[tuple[list[tuple[Any, bool, Any]], list], dict]:
        """(what the client received, the counters of the server's kernel)"""
        before = self.net.server.mibs()
        play = Play(self, family, tier)
        with self.explained(play):
            script(play)
            play.end()
            assert not self.station.strays, f"for no connection: {self.station.strays}"
        self.station.strays.clear()
        return play.outcome(), moved(before, self.net.server.mibs())

    def play(self, script: Callable[..., Any], families: Any = (4, 6),
             tiers: Iterable[str] = ("wire", "user"), ignore: Iterable[str] = (),
             same: bool = True) -> None:
        """
        ignore: more counters that may differ; those of timers do if the server's socket
        retransmits early. same: the streams must be equal.
        A test kernel plays each script for one address family, which differs between kernels.
        """
        self.plays += 1
        if client.IN_VM:
            families = families[self.plays % len(families):][:1]
        ignore = ALLOWED.union(ignore, TIMED if self.rto_ms < PATIENT_MS else ())
        for family in families:
            seen, counts = {}, {}
            for tier in tiers:
                seen[tier], counts[tier] = self.run(script, family, tier)
            if len(tiers) < 2:
                continue
            if same:
                compare(family, *seen.values())
            more = {k: (v, counts["user"].get(k, 0)) for k, v in counts["wire"].items()
                    if v > counts["user"].get(k, 0) and k not in ignore}
            assert not more, f"IPv{family}: counters with wire, and without: {more}"


def first_data(c: rawtcp.Connection) -> rawtcp.Segment:
    """The next segment with data, which the network loses."""
    while True:
        seg = c.next(lose=True)
        if seg.data:
            return seg


def differ(x: Any, y: Any) -> str:
    """Where two streams part, since whole ones fill a screen."""
    if not (isinstance(x, tuple) and isinstance(y, tuple) and x and y and
            isinstance(x[0], bytes) and isinstance(y[0], bytes)):
        return f"with wire\n{x}\nand without\n{y}"
    a, b = x[0], y[0]
    at = next((k for k, (p, q) in enumerate(zip(a, b)) if p != q), min(len(a), len(b)))
    return (f"{len(a)} bytes with wire and {len(b)} without, from {at} on\n"
            f"{a[at:at + 200]!r} {x[1:]}\nand\n{b[at:at + 200]!r} {y[1:]}")


def compare(family: int, wire: Any, user: daemon.Daemon) -> None:
    """Two outcomes: the same streams, ends and notes."""
    for what, a, b in zip(("connections", "notes"), wire, user):
        assert len(a) == len(b), f"IPv{family}: {len(a)} {what} with wire, {len(b)} without"
        for i, (x, y) in enumerate(zip(a, b)):
            assert x == y, f"IPv{family}, {what} {i}: {differ(x, y)}"


def runner(scope: dict, stage: Stage) -> None:
    """ktap.run() of a program with one stage."""
    ktap.run(scope, setup=stage.open, teardown=lambda: stage.net and stage.close())


