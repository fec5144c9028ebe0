# SPDX-License-Identifier: GPL-2.0
"""A TCP client whose every segment the test writes, and sees.

    st = rawtcp.Station(n, n.links[0])          # n: a net.Net; an own MAC, own addresses
    c = st.connect((n.links[0].server4, 8080), sack=False)
    c.send(REQUEST)                             # <  P. 1:29(28) ack 1
    lost = c.expect("P.", seq=1, ack=29, lose=True)
    c.send(REQUEST, seq=1)
    again = c.expect("P.", seq=1, ack=29)

Packets enter and leave by a packet socket at the client's end of a link, under
a MAC and addresses that are nobody's, so that no kernel's TCP but the server's
takes part. Numbers are as in packetdrill: 1 is the first byte of each stream.
Flags are letters: F S R P U E W A (the last three of ECN) and "." for ACK.

Whatever comes is held against what was said before, or the test fails: both
checksums, options as negotiated, timestamps that never go back and echo one
of ours, acknowledgements of what was sent alone, segment size, our window, no
byte of the stream that differs from what has been seen there, and no segment
for a connection that there is not.
"""
from __future__ import annotations

import errno
import os
import random
import select
import socket
import struct
import time
from typing import Any, Iterable

import client
import daemon

WAIT_S = client.WAIT_S
REPEAT_S = 0.011    # TBG_AGAIN_MS and one: sooner it may be the network's double
SEED = int(os.environ.get("TBG_SEED", 0x7462_0001))
MAC = bytes.fromhex("027462670064")
# Bytes that a window may shrink: a socket that is made late begins with its first window.
WINDOW_LESS = 2048 if daemon.LATE else 0
FLAGS = (("F", 0x001), ("S", 0x002), ("R", 0x004), ("P", 0x008), ("U", 0x020),
         ("E", 0x040), ("W", 0x080), ("A", 0x100), (".", 0x010))
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
ETH_IP, ETH_IPV6, ETH_VLAN, ETH_ALL = 0x0800, 0x86dd, 0x8100, 3
SOL_PACKET, PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 8, 15, 23
SO_RCVBUFFORCE = 33
TP_STATUS_VLAN_VALID = 1 << 4
NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6 = 1, 1, 4
ICMP_ECHO = {4: (8, 0), 6: (128, 129)}
IPPROTO_ICMP = {4: 1, 6: 58}
MOD = 1 << 32


def fold(data: bytes) -> int:
    """The ones' complement sum of 16-bit words, folded; 0 for nothing but zeros."""
    if len(data) % 2:
        data += b"\0"
    n = int.from_bytes(data, "big")
    return n and (n % 0xffff or 0xffff)


def plain(addr: str) -> str:
    """An address as packets show it."""
    af = socket.AF_INET6 if ":" in addr else socket.AF_INET
    return socket.inet_ntop(af, socket.inet_pton(af, addr))


def flag_bits(text: int | str) -> int:
    bits = 0
    for letter in text:
        bits |= dict(FLAGS)[letter]
    return bits


def flag_text(bits: int) -> str:
    return "".join(letter for letter, bit in FLAGS if bits & bit)


def after(a: Any, b: Any) -> Any:
    """Whether sequence number a is past b."""
    return 0 < (a - b) % MOD < MOD // 2


def damaged(seg: Any) -> Any:
    """With another TCP checksum than it should have."""
    return seg[:16] + bytes([seg[16] ^ 1]) + seg[17:]


def options(mss: int | None = None, sackok: bool = False, ts: Any = None, wscale: int | None = None,
            sack: Iterable = (), extra: bytes = b"") -> bytes:
    """TCP options, padded; a timestamp as everybody has it: NOP NOP TS."""
    out = b""
    if mss is not None:
        out += struct.pack("!BBH", 2, 4, mss)
    if sackok:
        out += b"\4\2"
    if ts is not None:
        out += (b"" if sackok else b"\1\1") + struct.pack("!BBII", 8, 10, *(x % MOD for x in ts))
    if wscale is not None:
        out += struct.pack("!BBBB", 1, 3, 3, wscale)
    if sack:
        out += struct.pack("!BBBB", 1, 1, 5, 2 + 8 * len(sack))
        out += b"".join(struct.pack("!II", a % MOD, b % MOD) for a, b in sack)
    out += extra
    return out + b"\0" * (-len(out) % 4)


def parse_options(data: bytes) -> dict[str, Any]:
    """{"mss": …, "ts": (val, ecr), "sack": [(left, right)], …, kind: bytes}"""
    ret, at = {}, 0
    while at < len(data) and data[at]:
        if data[at] == 1:
            at += 1
            continue
        kind, size = data[at], data[at + 1]
        body = data[at + 2:at + size]
        assert size >= 2 and len(body) == size - 2, f"options {data.hex()}"
        if (kind, size) == (2, 4):
            ret["mss"] = struct.unpack("!H", body)[0]
        elif (kind, size) == (3, 3):
            ret["wscale"] = body[0]
        elif (kind, size) == (4, 2):
            ret["sackok"] = True
        elif (kind, size) == (8, 10):
            ret["ts"] = struct.unpack("!II", body)
        elif kind == 5:
            ret["sack"] = [struct.unpack_from("!II", body, i) for i in range(0, len(body), 8)]
        else:
            ret[kind] = body
        at += size
    return ret


class Packet:
    """An IP packet that came: family, src, dst, tos, ttl, df, proto, payload, vlan."""

    def __init__(self, frame: bytes, vlan: int | None = None) -> None:
        kind, at = struct.unpack_from("!H", frame, 12)[0], 14
        if kind == ETH_VLAN:
            vlan, kind = struct.unpack_from("!HH", frame, 14)
            at = 18
        self.vlan = vlan
        ip = frame[at:]
        if kind == ETH_IP:
            self.family = 4
            head = (ip[0] & 15) * 4
            total, self.id, frag = struct.unpack_from("!HHH", ip, 2)
            assert fold(ip[:head]) == 0xffff, f"IPv4 checksum: {ip[:head].hex()}"
            self.tos, self.ttl, self.proto, self.df = ip[1], ip[8], ip[9], bool(frag & 0x4000)
            self.fragment = bool(frag & 0x3fff)
            self.src, self.dst = (socket.inet_ntop(socket.AF_INET, ip[i:i + 4]) for i in (12, 16))
            self.pseudo = ip[12:20]
        else:
            self.family, head, total = 6, 40, 40 + struct.unpack_from("!H", ip, 4)[0]
            self.tos, self.ttl, self.proto, self.df = ip[0] << 4 & 0xf0 | ip[1] >> 4, ip[7], ip[
                6], True
            self.fragment, self.id = False, 0
            self.src, self.dst = (socket.inet_ntop(socket.AF_INET6, ip[i:i + 16]) for i in (8, 24))
            self.pseudo = ip[8:40]
        assert total <= len(ip), f"{len(ip)} bytes of an IP packet of {total}"
        self.len = total
        self.ip = ip[:total]
        self.payload = ip[head:total]


class Segment(Packet):
    """With TCP's fields; seq and ack as they are, made relative by the connection."""

    def __init__(self, packet: Packet) -> None:
        self.__dict__.update(packet.__dict__)
        tcp = packet.payload
        self.sport, self.dport, self.seq, self.ack, off, self.win, _, self.urg = \
            struct.unpack_from("!HHIIHHHH", tcp)
        assert fold(self.pseudo + struct.pack("!II", len(tcp), 6) + tcp) == 0xffff, \
            f"TCP checksum: {tcp[:40].hex()}"
        self.bits = off & 0x1ff
        self.options = parse_options(tcp[20:(off >> 12) * 4])
        self.data = tcp[(off >> 12) * 4:]

    @property
    def flags(self) -> str:
        return flag_text(self.bits)

    @property
    def next(self) -> Any:
        """The sequence number behind it."""
        return self.seq + len(self.data) + bool(self.bits & SYN) + bool(self.bits & FIN)

    def __repr__(self) -> str:
        text = f"{self.flags} {self.seq}:{self.seq + len(self.data)}({len(self.data)})"
        if self.bits & ACK:
            text += f" ack {self.ack}"
        text += f" win {self.win}"
        for name, value in self.options.items():
            text += f" {name} {value}"
        return text + (f" tos {self.tos:#x}" if self.tos else "") + ("" if self.df else " -DF")


class Station:
    """A host of nobody on a link: its addresses, its packet socket, its connections."""

    def __init__(self, n: Any, link: Any, lladdr: bytes = MAC) -> None:
        self.net, self.link, self.mac = n, link, lladdr
        self.addresses = {4: [], 6: []}
        self.connections = {}       # (local, port, remote, port) → Connection
        self.strays = []            # segments of no connection
        self.graves = set()         # of failed scripts: what they still get is no news
        self.icmp = []
        self.random = random.Random(SEED)
        self.port = 20000
        self.echoes = 0
        self.vlan = None            # of all frames sent
        self.outer: list[int] = []  # tags before that
        self.bringer = None         # their source MAC, if not the one that is answered
        with n.client.inside():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
            self.socket.bind((link.name, ETH_ALL))
            self.offloaded = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.offloaded.bind((link.name, 0))
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.offloaded.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        words = n.server.run("ip", "-o", "link", "show", link.name).split()
        self.server_mac = bytes.fromhex(words[words.index("link/ether") + 1].replace(":", ""))
        # whole checksums on the wire, and segments as a network would carry them
        link.offload(ends=("server",), tx="off", tso="off", gso="off")
        self.address(4)
        self.address(6)

    def address(self, family: int) -> str:
        """One more address of that family; the last one is used by connect()."""
        nr = 100 + len(self.addresses[family])
        addr = f"10.87.{self.link.nr}.{nr}" if family == 4 else f"fd87:{self.link.nr}::{nr:x}"
        addr = plain(addr)
        self.addresses[family].append(addr)
        self.neighbours()
        return addr

    def neighbours(self, device: str | None = None) -> None:
        """The server knows where we are; again after its interface was down."""
        for addr in self.addresses[4] + self.addresses[6]:
            self.net.server.run("ip", "neigh", "replace", addr, "lladdr", self.mac.hex(":"),
                                "dev", device or self.link.name, "nud", "permanent")

    def server(self, family: int) -> str:
        return plain(self.link.server4 if family == 4 else self.link.server6)

    def close(self) -> None:
        self.socket.close()
        self.offloaded.close()

    def frame(self, family: int, ip: bytes, vlans: Any = None) -> bytes:
        vlans = vlans if vlans is not None else [*self.outer, self.vlan] if self.vlan else []
        tags = b"".join(struct.pack("!HH", ETH_VLAN, v) for v in vlans)
        return (self.server_mac + (self.bringer or self.mac) + tags +
                struct.pack("!H", ETH_IP if family == 4 else ETH_IPV6) + ip)

    @staticmethod
    def ip(src: str | bytes, dst: str, payload: bytes, proto: Any = 6, tos: int = 0,
           options: bytes = b"", ext: Iterable = (), ttl: int = 64, ident: int = 0,
           frag: int = 0x4000, flow: int = 0) -> bytes:
        """An IP packet. ext: [(number, bytes without the first)] of IPv6."""
        if ":" in src:
            for kind, body in reversed(ext):
                payload, proto = bytes([proto]) + body + payload, kind
            return (struct.pack("!IHBB", 6 << 28 | tos << 20 | flow, len(payload), proto, ttl) +
                    socket.inet_pton(socket.AF_INET6, src) +
                    socket.inet_pton(socket.AF_INET6, dst) + payload)
        head = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, tos,
                           20 + len(options) + len(payload), ident, frag, ttl, proto, 0,
                           socket.inet_aton(src), socket.inet_aton(dst)) + options
        return head[:10] + struct.pack("!H", 0xffff - fold(head)) + head[12:] + payload

    @staticmethod
    def tcp(src: str, dst: bytes, sport: int, dport: int, seq: int, ack: int, flags: str, win: int,
            opts: bytes = b"", data: bytes = b"", urg: int = 0, partial: bool = False) -> bytes:
        """A segment with its checksum, or (partial) with what a device starts from."""
        af = socket.AF_INET6 if ":" in src else socket.AF_INET
        seg = struct.pack("!HHIIHHHH", sport, dport, seq % MOD, ack % MOD,
                          (5 + len(opts) // 4) << 12 | flag_bits(flags), win, 0, urg) + opts + data
        pseudo = socket.inet_pton(af, src) + socket.inet_pton(af,
                                                              dst) + struct.pack("!II", len(seg), 6)
        check = fold(pseudo) if partial else 0xffff - fold(pseudo + seg)
        return seg[:16] + struct.pack("!H", check) + seg[18:]

    def put(self, frame: bytes) -> int:
        """Without a carrier there is no room: until the link is up again."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self.socket.send(frame)
            except OSError as why:
                if why.errno not in (errno.ENOBUFS, errno.ENETDOWN) or time.monotonic() > deadline:
                    raise
            time.sleep(0.002)

    def put_merged(self, family: int, ip: bytes, head_len: int, size: int) -> None:
        """As GRO leaves segments of size bytes: one packet, its checksum yet to be made."""
        start = 14 + (20 if family == 4 else 40)
        vnet = struct.pack("=BBHHHH", NEEDS_CSUM, GSO_TCPV4 if family == 4 else GSO_TCPV6,
                           start + head_len, size, start, 16)
        self.offloaded.send(vnet + self.frame(family, ip))

    def pump(self, timeout: float) -> bool:
        """Takes one packet in; False if none comes in time."""
        if not select.select([self.socket], [], [], timeout)[0]:
            return False
        frame, ancillary, _, _ = self.socket.recvmsg(1 << 17, 64)
        if frame[:6] != self.mac:
            return True
        vlan = None
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, _ = struct.unpack_from("=IIIHHHH", data)
                vlan = tci if status & TP_STATUS_VLAN_VALID else None
        if frame[12:14] in (b"\x08\x00", b"\x86\xdd", b"\x81\x00"):
            self.take(Packet(frame, vlan))
        return True

    def take(self, packet: Packet) -> None:
        if packet.dst not in self.addresses[packet.family]:
            return
        if packet.proto == IPPROTO_ICMP[packet.family]:
            self.icmp.append(packet)
        if packet.proto != 6:
            return
        seg = Segment(packet)
        c = self.connections.get((seg.dst, seg.dport, seg.src, seg.sport))
        if c:
            c.came(seg)
        elif (seg.dst, seg.dport, seg.src, seg.sport) not in self.graves:
            self.strays.append(seg)

    def icmp_sum(self, family: int, src: bytes, dst: str, icmp: bytes, **ip: Any) -> bytes:
        """icmp with its checksum, in an IP packet."""
        pseudo = b"" if family == 4 else (socket.inet_pton(socket.AF_INET6, src) +
                                          socket.inet_pton(socket.AF_INET6, dst) +
                                          struct.pack("!II", len(icmp), 58))
        icmp = icmp[:2] + struct.pack("!H", 0xffff - fold(pseudo + icmp)) + icmp[4:]
        return self.ip(src, dst, icmp, proto=IPPROTO_ICMP[family], **ip)

    def barrier(self, family: int, again_s: float = WAIT_S / 4) -> None:
        """
        All that the server's kernel says to what was sent so far is here: it
        has answered an echo request. again_s: how often to ask.
        """
        deadline = time.monotonic() + WAIT_S
        ask, answer = ICMP_ECHO[family]
        while True:
            self.echoes += 1
            body = struct.pack("!HHIQ", 0x7462, self.echoes & 0xffff, self.echoes, 0)
            self.icmp = [p for p in self.icmp if p.payload[0] != answer]
            self.put(self.frame(family, self.icmp_sum(
                family, self.addresses[family][0], self.server(family),
                struct.pack("!BBH", ask, 0, 0) + body)))
            turn = min(deadline, time.monotonic() + again_s)
            while self.pump(max(0, turn - time.monotonic())):
                if any(p.payload[0] == answer and p.payload[4:] == body for p in self.icmp):
                    return
            assert time.monotonic() < deadline, "the server's kernel is silent"

    def icmp_error(self, quoted: Any, mtu: int = 0, kind: Any = None, router: Any = None) -> None:
        """A router's word that quoted (a Packet that came) was too big, or lost."""
        family = quoted.family
        kind = kind or ((3, 4) if family == 4 else (2, 0))
        dst = quoted.src
        src = router or self.addresses[family][0]
        icmp = struct.pack("!BBHI", *kind, 0, mtu) + quoted.ip[:(68 if family == 4 else 1000)]
        self.put(self.frame(family, self.icmp_sum(family, src, dst, icmp)))

    def connect(self, address: tuple, **how: Any) -> Connection:
        """An established connection: Connection(…) and its handshake."""
        return Connection(self, address, **how).open()


class Connection:
    """
    One end of a connection. at: our next sequence number; got: what we say
    to have received, both relative. Options: mss, sack, ts, wscale (None: not
    offered), window (the raw field of all segments), tos.
    """

    def __init__(self, station: Any, address: tuple, sack: bool = True, ts: Any = True,
                 wscale: int | None = 7, mss: int | None = 1460, window: int = 65535,
                 port: int | None = None, source: str | None = None, iss: int | None = None,
                 tos: int = 0, syn: str = "S", extra: bytes = b"",
                 ts_start: int | None = None) -> None:
        self.st, (self.remote, self.rport) = station, address
        self.family = 6 if ":" in self.remote else 4
        self.local = source or station.addresses[self.family][-1]
        if port is None:
            port = station.port = station.port + 1
        self.port = port
        # every other one has its wrap within the first bytes
        self.iss = iss if iss is not None else (MOD - 20 if port % 2 else
                                                station.random.randrange(MOD))
        self.irs = None
        self.sack, self.ts, self.wscale, self.mss = sack, ts, wscale, mss
        self.window, self.tos, self.syn, self.extra = window, tos, syn, extra
        self.at = 0             # next number of ours, relative
        self.sent_max = 0       # behind all that was ever sent
        self.seen = bytearray()     # their stream as seen, whatever was lost of it
        self.seen_mask = bytearray()
        self.mask = bytearray()     # of them: received
        self.fin = None         # their FIN's number, once received
        self.reset = False
        self.read = 1           # responses are read up to here
        self.queue = []
        self.trace = []
        self.frames = []        # as sent
        self.took_s = 0.0       # to send the last one
        self.shift = 0          # of their window field
        self.edge = 0           # their bytes up to here have room with us
        self.acked = 0          # … and these are acknowledged
        self.their_edge = self.their_ack = 0
        self.tsvals, self.tsval_last, self.tsval_newest = set(), None, None
        self.ts_now = ts_start if ts_start is not None else station.random.randrange(MOD)
        self.last_data = None
        self.key = (self.local, port, self.remote, self.rport)
        station.connections[self.key] = self

    def tsval(self) -> int:
        """The next timestamp: a clock that ticks with each segment, so that no run differs."""
        self.ts_now = (self.ts_now + 1) % MOD
        return self.ts_now

    # what goes out

    @property
    def got(self) -> int:
        """Relative number of the first byte not received, their FIN counted."""
        end = 1 + (self.mask.find(0) if 0 in self.mask else len(self.mask))
        return end + (self.fin is not None and self.fin == end)

    def handshake(self, flags: int | None = None) -> None:
        ts = (self.tsval(), 0) if self.ts else None
        if ts:
            self.tsvals.add(ts[0])
        opts = options(mss=self.mss, sackok=self.sack, ts=ts, wscale=self.wscale, extra=self.extra)
        self.put(flags or self.syn, 0, None, opts=opts, win=self.window)
        self.at = 1

    def open(self) -> Connection:
        self.handshake()
        self.expect("S.", "S.E")
        self.send(flags=".")
        return self

    def put(self, flags: int | str | None, seq: int | None, ack: int | None, data: Any = b"",
            opts: bytes = b"", win: int | None = None, urg: int = 0, raw: Any = None,
            ip: bytes | None = None, copies: int = 1) -> None:
        """One segment, relative numbers; the network makes some copies of it."""
        win = self.window if win is None else win
        absolute_ack = 0 if ack is None or self.irs is None else self.irs + ack
        seg = self.st.tcp(self.local, self.remote, self.port, self.rport, self.iss + seq,
                          absolute_ack, flags, win, opts, data, urg)
        if raw:
            seg = raw(seg)
        self.trace.append(f"< {flags} {seq}:{seq + len(data)}({len(data)}) ack {ack} win {win}")
        packet = self.st.ip(self.local, self.remote, seg, **{"tos": self.tos, **(ip or {})})
        frame = self.st.frame(self.family, packet)
        self.frames.append(frame)
        began = time.monotonic()
        for _ in range(copies):
            self.st.put(frame)
        self.took_s = time.monotonic() - began
        self.note_sent(flags, seq, ack, data, win)

    def note_sent(self, flags: str | int | None, seq: Any, ack: Any, data: Any, win: Any) -> None:
        end = seq + len(data) + ("S" in flags) + ("F" in flags)
        self.sent_max = max(self.sent_max, end)
        if ack is not None:
            self.acked = max(self.acked, ack)
            shift = self.wscale if self.wscale is not None and self.shift is not None else 0
            self.edge = max(self.edge, ack + (win << (0 if "S" in flags else shift)))

    def options(self, sack: Iterable = (), ts: Any = None, extra: bytes = b"") -> bytes:
        """Those of a segment now; sack in relative numbers."""
        if self.ts and ts is None:
            ts = (self.tsval(), self.tsval_newest or 0)
        if self.ts:
            self.tsvals.add(ts[0])
        return options(ts=ts if self.ts else None, extra=extra,
                       sack=[(self.irs + a, self.irs + b) for a, b in sack])

    def send(self, data: Any = b"", flags: str | None = None, seq: int | None = None,
             ack: int | None = None, sack: Iterable = (), ts: Any = None, win: int | None = None,
             extra: Any = b"", **more: Any) -> None:
        """Data, or an acknowledgement; what is not given is as it is due."""
        flags = flags or ("P." if data else ".")
        here = seq is None
        seq = self.at if here else seq
        ack = self.got if ack is None else ack
        self.put(flags, seq, ack if "." in flags else None, data, self.options(sack, ts, extra),
                 win, **more)
        self.at = max(self.at, seq + len(data) + ("F" in flags)) if "R" not in flags else self.at

    def again(self, data: bytes, **more: Any) -> None:
        """What was sent before, as a client does whose timer has run out."""
        time.sleep(REPEAT_S)
        self.send(data, **more)

    def send_merged(self, data: Any, size: int) -> None:
        """Data that came in segments of size bytes, which GRO has made one of."""
        opts = self.options()
        seg = self.st.tcp(self.local, self.remote, self.port, self.rport, self.iss + self.at,
                          self.irs + self.got, "P.", self.window, opts, data, partial=True)
        self.trace.append(f"< P. {self.at}:{self.at + len(data)}({len(data)}) in pieces of {size}")
        self.st.put_merged(self.family, self.st.ip(self.local, self.remote, seg), 20 + len(opts),
                           size)
        self.note_sent("P.", self.at, self.got, data, self.window)
        self.at += len(data)

    # what comes in

    def came(self, seg: Segment) -> None:
        """Any segment of the connection: relative numbers from here on."""
        if seg.bits & SYN:
            self.irs, self.offered = seg.seq, seg.options
            self.shift = seg.options.get("wscale") if self.wscale is not None else None
            self.edge = 1 + self.window
        assert self.irs is not None or seg.bits & RST, f"before the handshake: {seg}"
        seg.seq = (seg.seq - (self.irs or 0) + MOD // 2) % MOD - MOD // 2
        if seg.bits & ACK:
            seg.ack = (seg.ack - self.iss + MOD // 2) % MOD - MOD // 2
        self.trace.append(f"> {seg}")
        self.check(seg)
        self.queue.append(seg)

    def check(self, seg: Segment) -> None:
        """What no segment may ever be."""
        assert not seg.fragment, f"a fragment: {seg}"
        if seg.bits & ACK and not seg.bits & RST:
            assert 0 <= seg.ack <= self.sent_max, f"acknowledges what was not sent: {seg}"
        if seg.bits & RST:
            return
        assert seg.bits & ACK, f"no acknowledgement: {seg}"
        if seg.bits & SYN:
            self.check_syn(seg)
        else:
            self.check_options(seg)
            self.check_window(seg)
        if seg.data:
            self.check_data(seg)

    def check_syn(self, seg: Segment) -> None:
        assert self.ts or "ts" not in seg.options, f"timestamps for who has none: {seg}"
        assert self.sack or "sackok" not in seg.options, f"SACK for who has none: {seg}"
        self.ts = self.ts and "ts" in seg.options
        self.sack = self.sack and "sackok" in seg.options
        if self.ts:
            self.tsval_last = self.tsval_newest = seg.options["ts"][0]

    def check_options(self, seg: Segment) -> None:
        assert self.sack or "sack" not in seg.options, f"SACK for who has none: {seg}"
        odd = set(seg.options) - {"ts", "sack"}
        assert not odd, f"options {odd}: {seg}"
        assert self.ts == ("ts" in seg.options), f"timestamps: {seg}"
        if self.ts:
            val, ecr = seg.options["ts"]
            assert not after(self.tsval_last, val), f"timestamp before {self.tsval_last}: {seg}"
            assert ecr in self.tsvals, f"echoes a timestamp that was not sent: {seg}"
            self.tsval_last = val
        for left, right in seg.options.get("sack", ()):
            ends = [(x - self.iss + MOD // 2) % MOD - MOD // 2 for x in (left, right)]
            # below the acknowledgement: of what came twice (RFC 2883)
            assert ends[0] < ends[1] <= self.sent_max and (ends[0] >= 0 or ends[1] <= seg.ack), \
                f"SACK of {ends}: {seg}"

    def check_window(self, seg: Segment) -> None:
        edge = seg.ack + (seg.win << (self.shift or 0))
        if seg.ack >= self.their_ack:   # else an older word than the last one
            assert edge >= self.their_edge - WINDOW_LESS, \
                f"window has shrunk from {self.their_edge}: {seg}"
            self.their_ack, self.their_edge = seg.ack, edge

    def check_data(self, seg: Segment) -> None:
        most = (self.mss or (536 if self.family == 4 else 1220)) - (12 if self.ts else 0)
        assert len(seg.data) <= most, f"larger than {most}: {seg}"
        start, end = seg.seq - 1, seg.seq - 1 + len(seg.data)
        assert start >= 0, f"before the stream: {seg}"
        assert end + 1 <= self.edge, f"beyond the window ({self.edge}): {seg}"
        if end > len(self.seen):
            grow = end - len(self.seen)
            self.seen += bytes(grow)
            self.seen_mask += bytes(grow)
        for i in range(start, end):
            if self.seen_mask[i]:
                assert self.seen[i] == seg.data[i - start], \
                    f"other bytes at {i + 1}: {self.seen[start:end]!r}, now {seg.data!r}"
        self.seen[start:end] = seg.data
        self.seen_mask[start:end] = b"\1" * len(seg.data)

    def receive(self, seg: Segment) -> Segment:
        """Count it among what we have received."""
        if seg.data:
            start, end = seg.seq - 1, seg.seq - 1 + len(seg.data)
            self.mask += bytes(max(0, end - len(self.mask)))
            self.mask[start:end] = b"\1" * len(seg.data)
        if seg.bits & FIN:
            self.fin = seg.seq + len(seg.data)
        if seg.bits & RST:
            self.reset = True
        if "ts" in seg.options and seg.seq <= self.got:
            self.tsval_newest = seg.options["ts"][0]
        return seg

    def next(self, what: str = "a segment", lose: bool = False, wait_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + wait_s
        while not self.queue:
            assert self.st.pump(max(0, deadline - time.monotonic())), f"no {what}"
        seg = self.queue.pop(0)
        return seg if lose else self.receive(seg)

    def expect(self, *flags: Any, seq: int | None = None, ack: int | None = None,
               data: bytes | None = None, length: int | None = None, lose: bool = False,
               sack: Iterable | None = None) -> Any:
        """The next segment, which must be this; lose: the network loses it."""
        seg = self.next(" or ".join(flags) or "segment", lose)
        assert not flags or set(seg.flags) in [set(f) for f in flags], f"wanted {flags}: {seg}"
        assert seq is None or seg.seq == seq, f"wanted seq {seq}: {seg}"
        assert ack is None or seg.ack == ack, f"wanted ack {ack}: {seg}"
        assert data is None or seg.data == data, f"wanted {data!r}: {seg} {seg.data!r}"
        assert length is None or len(seg.data) == length, f"wanted {length} bytes: {seg}"
        if sack is not None:
            blocks = [((a - self.iss) % MOD, (b - self.iss) % MOD) for a,
                      b in seg.options.get("sack", ())]
            assert blocks == sack, f"wanted SACK {sack}: {blocks}"
        return seg

    def quiet(self) -> None:
        """Nothing came, and the server's kernel has nothing more to say for now."""
        self.st.barrier(self.family)
        assert not self.queue, f"wanted nothing: {self.queue}"

    def pending(self) -> list[Segment]:
        """What has come so far to all that was sent, received."""
        self.st.barrier(self.family)
        ret = [self.receive(seg) for seg in self.queue]
        self.queue.clear()
        return ret

    def response(self, method: str = "GET", lose: bool = False,
                 ack: bool = True) -> client.Response:
        """
        The next whole response. Acknowledges each of its segments, or (ack
        False) none. lose: it is seen, but all its segments are lost.
        """
        mask = bytearray(self.mask)
        while not (r := self.whole(mask, method)):
            seg = self.next(f"rest of a response, {len(self.seen)} seen", lose)
            assert not seg.bits & RST, f"reset: {seg}"
            if seg.data:
                end = seg.seq - 1 + len(seg.data)
                mask += bytes(max(0, end - len(mask)))
                mask[seg.seq - 1:end] = b"\1" * len(seg.data)
                if not lose and ack:
                    self.send(flags=".")
        if not lose:
            self.read += len(r.raw)
        return r

    def whole(self, mask: bytes, method: str) -> client.Response | None:
        """The response at self.read, if all of it is there."""
        start = self.read - 1
        end = mask.find(0, start)
        got = bytes(self.seen[start:len(mask) if end < 0 else end])
        head, found, rest = got.partition(b"\r\n\r\n")
        if not found:
            return None
        r = client.Response(head, b"")
        length = 0 if method == "HEAD" or r.status == 304 else int(r.fields["Content-Length"])
        if len(rest) < length:
            return None
        r.body = rest[:length]
        r.raw = got[:len(head) + 4 + length]
        return r

    def get(self, request: Any, **more: Any) -> client.Response:
        self.send(request)
        return self.response(**more)

    def drop(self) -> None:
        """End with an RST; waits until the server's socket is gone."""
        if not self.reset:
            # what a forger has put into the stream is acknowledged, too
            self.put("R.", max(self.at, self.their_ack), self.got, opts=self.options())
        self.gone()
        self.forget()

    def gone(self) -> None:
        self.st.net.server.over(self.rport, self.port)

    def forget(self) -> None:
        """Its segments are strays from now on."""
        self.st.barrier(self.family)
        self.st.connections.pop(self.key, None)
