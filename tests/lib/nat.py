# SPDX-License-Identifier: GPL-2.0
"""Destination NAT in a namespace, told to nf_tables without nft.

    with nat.to(n.server, 4, "10.87.0.1"):      # whatever address a client asks for

It has the effect of `nft add rule ip t c dnat to 10.87.0.1` with a chain of type nat at
prerouting. Existing connections keep their translation.
"""
from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Any, Iterator

NETLINK_NETFILTER, SUBSYS = 12, 10      # NFNL_SUBSYS_NFTABLES
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NEWTABLE, DELTABLE, NEWCHAIN, NEWRULE = (SUBSYS << 8 | n for n in (0, 2, 3, 6))
REQUEST, ACK, CREATE, NESTED = 1, 4, 0x400, 0x8000
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}    # NFPROTO_* are the same numbers
PRIORITY = -100                         # NF_IP_PRI_NAT_DST
NAME = b"t\0"


def _attr(kind: int, value: Any) -> Any:
    """An attribute; an int is one of 32 bits, a list is nested."""
    if isinstance(value, list):
        kind, value = kind | NESTED, b"".join(value)
    if isinstance(value, int):
        value = struct.pack(">i", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _message(kind: int, family: Any, *attrs: Any, flags: int = ACK) -> bytes:
    data = struct.pack(">BBH", family, 0, SUBSYS if kind < 0x100 else 0) + b"".join(attrs)
    return struct.pack("=IHHII", 16 + len(data), kind, REQUEST | flags, 0, 0) + data


def _expression(name: bytes, *attrs: Any) -> Any:
    return _attr(1, [_attr(1, name + b"\0"), _attr(2, list(attrs))])


def _say(where: Any, *messages: Any) -> None:
    """A batch, which the kernel accepts completely or not at all."""
    with where.inside(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as s:
        s.settimeout(20)
        s.send(_message(BATCH_BEGIN, 0, flags=0) + b"".join(messages) +
               _message(BATCH_END, 0, flags=0))
        for _ in messages:
            code = struct.unpack_from("=i", s.recv(65536), 16)[0]
            if code:
                raise OSError(-code, f"nf_tables: {os.strerror(-code)}")


@contextlib.contextmanager
def to(where: str, version: str, address: tuple) -> Iterator[None]:
    """Redirect new connections of that IP version to address, in the namespace where."""
    family = FAMILY[version]
    rule = [_expression(b"immediate", _attr(1, 1),
                        _attr(2, [_attr(1, socket.inet_pton(family, address))])),
            _expression(b"nat", _attr(1, 1), _attr(2, int(family)), _attr(3, 1))]
    _say(where,
         _message(NEWTABLE, family, _attr(1, NAME), flags=ACK | CREATE),
         _message(NEWCHAIN, family, _attr(1, NAME), _attr(3, NAME),
                  _attr(4, [_attr(1, 0), _attr(2, PRIORITY)]), _attr(7, b"nat\0"),
                  flags=ACK | CREATE),
         _message(NEWRULE, family, _attr(1, NAME), _attr(2, NAME), _attr(4, rule),
                  flags=ACK | CREATE))
    try:
        yield
    finally:
        _say(where, _message(DELTABLE, family, _attr(1, NAME)))
