# SPDX-License-Identifier: GPL-2.0
"""Conntrack's table of a namespace by ctnetlink, as the tool `conntrack` reaches it.

    conntrack.flush(n.server)           # conntrack -F
    with conntrack.full(n.server): …    # no entry is accepted

Needs root; raises ktap.Skip where the limit is too high.
"""
from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Iterator

import ktap

NETLINK_NETFILTER, CTNETLINK, NLMSG_ERROR, NLA_F_NESTED = 12, 1, 2, 0x8000
CT_NEW, CT_DELETE = 0, 2
NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE = 1, 4, 0x200, 0x400
TUPLE_ORIG, TUPLE_REPLY, STATUS, PROTOINFO, TIMEOUT = 1, 2, 3, 4, 7
CONFIRMED_ASSURED = 14          # IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED
ESTABLISHED, LASTS_S = 3, 600
# Each namespace has a count of its own, but all have one limit: never a low one.
LEAST, MAX_FILE = 4000, "/proc/sys/net/netfilter/nf_conntrack_max"
MOST = 300000                   # entries to fill a table with; each takes some 320 bytes
ENOMEM, BATCH = 12, 100


def _attr(kind: int, *parts: bytes) -> bytes:
    """One attribute; nested if it has several parts or is one of a tuple."""
    data = b"".join(parts)
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _nest(kind: int, *parts: bytes) -> bytes:
    return _attr(kind | NLA_F_NESTED, *parts)


def _tuple(kind: int, src: bytes, dst: bytes, sport: int, dport: int) -> bytes:
    return _nest(kind, _nest(1, _attr(1, src), _attr(2, dst)),
                 _nest(2, _attr(1, bytes([socket.IPPROTO_TCP])),
                       _attr(2, struct.pack(">H", sport)), _attr(3, struct.pack(">H", dport))))


def _message(what: int, flags: int, family: int, seq: int, body: bytes = b"") -> bytes:
    data = struct.pack("=BBH", family, 0, 0) + body
    return struct.pack("=IHHII", 16 + len(data), CTNETLINK << 8 | what, NLM_F_REQUEST | flags,
                       seq, 0) + data


@contextlib.contextmanager
def _socket(namespace: Any) -> Iterator[socket.socket]:
    with namespace.inside():
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    with s:
        s.settimeout(10)
        s.bind((0, 0))
        yield s


def _error(s: socket.socket) -> int:
    """Of the next answer: an errno, or 0."""
    data = s.recv(65536)
    kind = struct.unpack_from("=H", data, 4)[0]
    assert kind == NLMSG_ERROR, f"answer {kind}"
    return -struct.unpack_from("=i", data, 16)[0]


def flush(namespace: Any) -> None:
    """Remove all entries."""
    with _socket(namespace) as s:
        s.send(_message(CT_DELETE, NLM_F_ACK, socket.AF_UNSPEC, 1))
        assert not (err := _error(s)), f"error {err}"


def _filler(src: bytes) -> bytes:
    """An established connection between addresses for benchmarks (RFC 2544)."""
    dst = bytes((198, 19, 255, 255))
    return _message(CT_NEW, NLM_F_CREATE | NLM_F_EXCL, socket.AF_INET, 1,
                    _tuple(TUPLE_ORIG, src, dst, 9, 9) + _tuple(TUPLE_REPLY, dst, src, 9, 9) +
                    _attr(STATUS, struct.pack(">I", CONFIRMED_ASSURED)) +
                    _attr(TIMEOUT, struct.pack(">I", LASTS_S)) +
                    _nest(PROTOINFO, _nest(1, _attr(1, bytes([ESTABLISHED])))))


def _fill(s: socket.socket, most: int) -> int:
    """Add entries until one is refused: its errno, or 0."""
    mark = b"\xc6\x12\xa5\x5a"     # stands for the address, which is all that differs
    one = _filler(mark)
    places = one.index(mark), one.rindex(mark)
    batch = bytearray(one * BATCH)
    s.setblocking(False)
    for first in range(0, most, BATCH):
        for nr in range(BATCH):
            for place in places:
                struct.pack_into(">I", batch, nr * len(one) + place, 0xc6120000 + first + nr)
        s.send(batch)
        with contextlib.suppress(BlockingIOError):
            return _error(s)
    return 0


def _limit() -> tuple[int, str | None]:
    """The limit, lowered if this process may do that; and what it was then."""
    with open(MAX_FILE, encoding="ascii") as f, \
            open(MAX_FILE.replace("max", "count"), encoding="ascii") as here:
        was, most = f.read(), max(LEAST, 2 * int(here.read()))
    try:
        with open(MAX_FILE, "w", encoding="ascii") as f:
            f.write(f"{most}\n")
    except PermissionError:
        return int(was), None
    return most, was


@contextlib.contextmanager
def full(namespace: Any) -> Iterator[None]:
    """The table has no place, and nothing in it that conntrack would remove for a new entry."""
    most, was = _limit()
    try:
        if most > MOST:
            raise ktap.Skip(f"conntrack's table has room for {most} connections")
        flush(namespace)        # of closed connections it would remove some
        with _socket(namespace) as s:
            err = _fill(s, most + 2 * BATCH)
        assert err == ENOMEM, f"error {err}, not ENOMEM"
        yield
    finally:
        if was:
            with open(MAX_FILE, "w", encoding="ascii") as f:
                f.write(was)
        flush(namespace)
