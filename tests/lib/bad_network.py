# SPDX-License-Identifier: GPL-2.0
"""Bad networks, and crowds of clients that check every byte that comes through.

    w = bad_network.BadNetwork(n)               # n: a net.Net; its first link
    with w.impaired(loss=5, delay_ms=3):        # at both ends, percent and ms
        bad_network.crowd(callers)              # [Caller(…)], until all is answered

The kernel's sch_netem impairs the links; where there is none, a process between
two links does, with the same words: frame by frame, from a seed. Either way the
route's timeouts are the kernel's own, not the patient ones of net.Link.
"""
from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import multiprocessing
import os
import random
import select
import selectors
import socket
import time
from typing import Any, Callable, Iterable, Iterator

import client
import daemon
import ktap
import maps
import net
import rawtcp
import talk

SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 31)))
STALL_S = 60            # without a byte for any connection of a crowd
QUEUE_MAX = 20000       # frames on their way
WORDS = ("loss", "duplicate", "corrupt", "reorder", "delay_ms", "jitter_ms", "rate_mbit")


class _Way:
    """One direction of the relay: frames that come, and when they go on."""

    def __init__(self, source: str | None, sink: Any, seed: int) -> None:
        self.source, self.sink = source, sink
        self.random = random.Random(seed)
        self.queue, self.nr, self.free_s = [], 0, 0.0
        self.how = {}

    def take(self, now_s: float) -> None:
        for _ in range(64):
            try:
                frame = self.source.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self.put(frame, now_s)

    def chance(self, what: str) -> Any:
        percent = self.how.get(what, 0)
        return percent and self.random.random() * 100 < percent

    def put(self, frame: bytes, now_s: float) -> None:
        copies = 2 if self.chance("duplicate") else 1
        for _ in range(copies):
            if self.chance("loss") or len(self.queue) >= QUEUE_MAX:
                continue
            if self.chance("corrupt"):
                at = self.random.randrange(14, len(frame))
                frame = frame[:at] + bytes([frame[at] ^ 1 << self.random.randrange(8)]) + \
                    frame[at + 1:]
            due_s = now_s
            if not self.chance("reorder"):
                jitter = self.how.get("jitter_ms", 0)
                due_s += (self.how.get("delay_ms", 0) + self.random.uniform(-jitter, jitter)) / 1e3
            if "rate_mbit" in self.how:
                self.free_s = max(self.free_s, due_s) + len(frame) * 8e-6 / self.how["rate_mbit"]
                due_s = self.free_s
            self.nr += 1
            heapq.heappush(self.queue, (due_s, self.nr, frame))

    def give(self, now_s: float) -> None:
        while self.queue and self.queue[0][0] <= now_s:
            frame = heapq.heappop(self.queue)[2]
            with contextlib.suppress(OSError):      # full, or down: lost
                self.sink.send(frame, socket.MSG_DONTWAIT)


def _socket(name: str) -> socket.socket:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(rawtcp.ETH_ALL))
    s.bind((name, rawtcp.ETH_ALL))
    s.setsockopt(rawtcp.SOL_PACKET, rawtcp.PACKET_IGNORE_OUTGOING, 1)
    s.setsockopt(socket.SOL_SOCKET, rawtcp.SO_RCVBUFFORCE, 16 << 20)
    return s


def _relay(sockets: Any, control: socket.socket) -> None:
    """Carries frames both ways until control ends; its lines say how bad the links are."""
    ways = [_Way(*sockets, SEED), _Way(*sockets[::-1], SEED + 1)]
    poll = select.poll()
    for s in (*sockets, control):
        poll.register(s, select.POLLIN)
    while True:
        now_s = time.monotonic()
        due = min((w.queue[0][0] for w in ways if w.queue), default=now_s + 1)
        ready = {fd for fd, _ in poll.poll(max(0, (due - now_s) * 1e3))}
        now_s = time.monotonic()
        if control.fileno() in ready:
            try:
                how = control.recv()
            except EOFError:
                return
            for way, words in zip(ways, how):
                way.how = words
        for w in ways:
            if w.source.fileno() in ready:
                w.take(now_s)
            w.give(now_s)


class BadNetwork:
    """What lies between the two ends of a network's first link."""

    def __init__(self, n: Any) -> None:
        self.net, self.link = n, n.links[0]
        self.control = self.process = None
        try:
            n.client.run("tc", "qdisc", "add", "dev", "tbg0", "root", "netem", "loss", "1%")
            n.client.run("tc", "qdisc", "del", "dev", "tbg0", "root")
        except RuntimeError:
            self.insert()
        link = self.link
        for ns, source in ((n.server, link.server4), (n.client, link.client4)):
            # here timeouts matter: the kernel's own least again, and its probes
            ns.run("ip", "route", "change", "10.87.0.0/24", "dev", link.name, "src", source)
            ns.run("ip", "-6", "route", "del", "fd87:0::/64", "dev", link.name, "metric", "1")
            ns.sysctl("ipv4.tcp_early_retrans", 3)
            # or who is unlucky ten times in a row waits for minutes
            ns.sysctl("ipv4.tcp_thin_linear_timeouts", 1)
        self.what = "a relay" if self.process else "netem"

    def insert(self) -> None:
        """Two links in place of the one, and a process between them."""
        n, link, middle = self.net, self.link, net.Namespace()
        n.client.run("ip", "link", "del", link.name)
        for ns, name in ((n.client, "client"), (n.server, "server")):
            middle.run("ip", "link", "add", name, "type", "veth", "peer", "name", link.name,
                       "netns", f"/proc/{os.getpid()}/fd/{ns.fd}")
            middle.run("ip", "link", "set", name, "up")
        link.up()
        n.server.steer(link.name, 0)
        n.client.steer(link.name, 1)
        # frames as a network would carry them, their checksums whole
        link.offload(tx="off", tso="off", gso="off")
        with middle.inside():
            sockets = _socket("client"), _socket("server")
        there, self.control = multiprocessing.Pipe(False)
        self.process = multiprocessing.get_context("fork").Process(
            target=self.serve, args=(sockets, there), daemon=True)
        self.process.start()
        there.close()

    def serve(self, sockets: Any, there: Any) -> None:
        self.control.close()
        _relay(sockets, there)

    @contextlib.contextmanager
    def impaired(self, back: dict | None = None, **how: Any) -> Iterator[None]:
        """Percentages and milliseconds (WORDS), in each direction, or another way back."""
        back = how if back is None else back
        assert set(how) | set(back) <= set(WORDS), (how, back)
        self.set(how, back)
        try:
            yield
        finally:
            self.set({}, {})

    def set(self, out: Any, back: dict | None) -> None:
        """What the server sends, and what the client does."""
        if self.process:
            self.control.send((back, out))      # as the relay's ways are
            return
        for how, ns in ((out, self.net.server), (back, self.net.client)):
            if how:
                ns.run("tc", "qdisc", "add", "dev", self.link.name, "root", "netem",
                       *netem_words(how), "limit", str(QUEUE_MAX))
            else:
                ns.run("tc", "qdisc", "del", "dev", self.link.name, "root", check=False)

    def close(self) -> None:
        if self.process:
            self.control.close()
            self.process.join(net.WAIT_S)


def netem_words(how: Any) -> list[str]:
    words = []
    if "delay_ms" in how:
        words += ["delay", f"{how['delay_ms']}ms", f"{how.get('jitter_ms', 0)}ms"]
    if "rate_mbit" in how:
        words += ["rate", f"{how['rate_mbit']}mbit"]
    for word in ("loss", "duplicate", "corrupt", "reorder"):
        if word in how:
            words += [word, f"{how[word]}%"]
    return words


class Site:
    """Targets and what they must be answered with: by size of the body, and its hash."""

    def __init__(self, sizes: Any) -> None:
        self.bodies = {f"/{size}": talk.content(str(size), size) for size in sizes}
        self.hashes = {t: hashlib.sha256(body).digest() for t, body in self.bodies.items()}

    def write(self, d: dict | str) -> None:
        for target, body in self.bodies.items():
            d.write(target[1:], body)


class Caller(talk.Connection):
    """
    Asks for one thing after the other, as ask(self) chooses: (texts to send one by
    one, [(target, statuses it may have)]), or None at the end. connect() makes each
    connection of its, before the handshake is over; ask() may call renew().
    """

    def __init__(self, site: str, ask: Any, connect: Callable[..., Any]) -> None:
        super().__init__(None)
        self.site, self.ask, self.connect = site, ask, connect
        self.texts, self.wants = [], []
        self.took_s, self.wired, self.bytes = [], 0, 0
        self.asked_s = self.heard_s = 0
        self.connected = False

    def renew(self) -> None:
        if self.s:
            self.s.close()
        self.s, self.connected = self.connect(), False

    def ask_next(self) -> bool:
        """False when all is asked."""
        what = self.ask(self)
        if not what:
            return False
        self.texts, self.wants = what
        self.asked_s = self.heard_s = time.monotonic()
        if not self.s:
            self.renew()
        if self.connected:
            self.send()
        return True

    def send(self) -> None:
        for text in self.texts:
            assert self.s.send(text) == len(text)

    def ready(self) -> bool:
        """The handshake is over, or something has come; True when all is answered."""
        if not self.connected:
            why = self.s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            assert not why, f"connect: {os.strerror(why)}"
            self.connected, self.heard_s = True, time.monotonic()
            self.send()
            return False
        data = self.s.recv(1 << 18)
        assert data, f"closed, {self.wants} to come, {self.got[:200]!r} of it here"
        self.heard_s = time.monotonic()
        self.got += data
        while self.wants:
            if not self.take(*self.wants[0]):
                return False
            self.wants.pop(0)
        assert not self.got, f"more than the answers: {self.got[:200]!r}"
        self.took_s.append(time.monotonic() - self.asked_s)
        return True

    def take(self, target: str, statuses: Iterable[int]) -> bool:
        """One response off what has come; False if it is not all there."""
        head, found, rest = self.got.partition(b"\r\n\r\n")
        if not found:
            return False
        r = client.Response(head, b"")
        assert r.status in statuses, f"{target}: {r}"
        length = 0 if r.status == 304 else int(r.fields["Content-Length"])
        if len(rest) < length:
            return False
        body, self.got = rest[:length], rest[length:]
        if r.status == 200:
            assert hashlib.sha256(body).digest() == self.site.hashes[target], \
                f"{target}: other bytes, {len(body)} of them"
        elif r.status == 206:
            assert body and self.site.bodies[target].endswith(body), f"{target}: other bytes: {r}"
        self.wired += "detail=wire" in r.fields["Cache-Status"]
        self.bytes += len(head) + 4 + length
        return True


def connector(n: int, address: tuple) -> Callable[..., Any]:
    """What makes connections from n.client, before their handshake is over."""
    def connect() -> socket.socket:
        with n.client.inside():
            s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        s.setblocking(False)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect_ex(address)
        return s
    return connect


def explainer(n: int, d: daemon.Daemon) -> Callable[..., Any]:
    """What tells all that both ends, and wire, know of connections that stand still."""
    def explain(callers: list) -> None:
        ktap.note(f"{talk.counts(d)}")
        flows = n.server.run("bpftool", "-j", "map", "dump", "name",
                             maps.TCBS if daemon.LATE else maps.FLOWS, check=False)
        for c in callers:
            port = c.s.getsockname()[1]
            ktap.note(f"port {port} waits for {c.wants}, has {len(c.got)} bytes of it, "
                      f"connected {c.connected}")
            for ns, side in ((n.server, f"dport = :{port}"), (n.client, f"sport = :{port}")):
                ktap.note(ns.run("ss", "-tionH", side, check=False))
            for flow in json.loads(flows or "[]"):
                flow = flow.get("formatted", flow)
                key = flow["key"].get("flow", flow["key"])
                if key["remote_port"] == socket.htons(port):
                    ktap.note(f"{flow['value']}")
    return explain


def crowd(callers: list, explain: Any = None, stall_s: float = STALL_S) -> None:
    """Until each of them has asked all; explain(those that stand still) before it fails."""
    with selectors.DefaultSelector() as selector:
        def watch(c: Any) -> None:
            events = selectors.EVENT_READ if c.connected else selectors.EVENT_WRITE
            selector.register(c.s, events, c)

        for c in callers:
            if c.ask_next():
                watch(c)
        checked_s = time.monotonic()
        while selector.get_map():
            for key, _ in selector.select(1):
                c, was = key.data, (key.data.s, key.data.connected)
                more = not c.ready() or c.ask_next()
                if more and was == (c.s, c.connected):
                    continue
                selector.unregister(was[0])
                if more:
                    watch(c)
                else:
                    c.close()
            now_s = time.monotonic()
            if now_s < checked_s + 1:
                continue
            checked_s = now_s
            still = [key.data for key in selector.get_map().values()
                     if now_s - key.data.heard_s > stall_s]
            if still:
                if explain:
                    explain(still)
                raise AssertionError(f"{len(still)} connections stand still for {stall_s} s")
