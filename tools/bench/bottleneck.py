# SPDX-License-Identifier: GPL-2.0
"""Whose limit a figure is: the server's, or the client's, the network's, or none.

Pure functions over what was measured. A throughput that is not the server's is
refused: it says nothing about the server. That twice the clients get no more
does not make it the server's, since a network between them all does the same:
only its own CPUs do. Processor time per request needs no such judgement, since
it counts only what the server worked.
"""
from __future__ import annotations

from typing import Any

SATURATED = 0.90            # of the server's CPUs: there is no more to be had
CLIENT_FULL = 0.95          # of the clients' CPUs
BETTER = 1.10               # two half loads above one: the one was the client's limit
NETWORK_FULL = 0.80         # of the nominal rate: Ethernet gives 80 to 90 % of it

SERVER, CLIENT, NETWORK = "server", "client", "network"
DESCRIPTORS, DEMAND, UNKNOWN = "descriptors", "demand", "unknown"
OTHERS = "others"

WORDS = {
    SERVER: "the server's limit",
    CLIENT: "the client's limit",
    NETWORK: "the network's limit",
    DESCRIPTORS: "the limit of descriptors",
    DEMAND: "what was asked for, no limit",
    OTHERS: "other programs on the server's CPUs",
    UNKNOWN: "nobody's limit that could be seen",
}


def compared(ratio: Any, machines: Any) -> str:
    """What twice the clients got, in words; ratio None: it was not tried."""
    if ratio is None:
        return "the load cannot be halved"
    if machines:
        return f"all {machines} client machines got {ratio:.2f} times as much as half of them " \
            "with all of the load"
    return f"twice the clients with half the load each got {ratio:.2f} times as much"


def judge(server_share: float, server_busiest: float, client_share: float,
          halves_ratio: float | None, net_bps: float, link_bps: float | None, fd_errors: int = 0,
          machines: int = 0) -> tuple[str, str]:
    """(whose limit, why in words).

    server_share, client_share: of their CPUs, None if not known. server_busiest: of
    the server's CPU that worked most: it may have but one worker. halves_ratio:
    twice the clients with half the load each against those of it all, None if not
    tried. link_bps: None if the network has no rate of its own. machines: the
    figure is of this many client machines, and the ratio is its own to what half of
    them got: that these were too few does not say that all are, if the server is full.
    """
    full = server_share is not None and server_share >= SATURATED
    if fd_errors:
        return DESCRIPTORS, f"{fd_errors} sockets could not be opened for want of descriptors"
    if link_bps and net_bps >= NETWORK_FULL * link_bps:
        return NETWORK, f"{net_bps / link_bps:.0%} of the link's nominal rate"
    if halves_ratio is not None and halves_ratio > BETTER and not (machines and full):
        return CLIENT, compared(halves_ratio, machines)
    if full:
        return SERVER, f"its CPUs were {server_share:.0%} busy"
    if client_share is not None and client_share >= CLIENT_FULL:
        return CLIENT, f"the clients' CPUs were {client_share:.0%} busy and " + \
            ("the server's unknown" if server_share is None else
             f"the server's {server_share:.0%}")
    halves = compared(halves_ratio, machines)
    if server_share is None:
        return UNKNOWN, f"what the server's CPUs worked is not known, and {halves}"
    if server_busiest < SATURATED:
        return UNKNOWN, f"no CPU of the server was full, and {halves}"
    return (UNKNOWN if halves_ratio is None else SERVER), \
        f"one CPU of the server was {server_busiest:.0%} busy, and {halves}"


def refused(whose: str) -> str | None:
    """Why a throughput of that origin is not reported; None if it may be."""
    return None if whose in (SERVER, DEMAND) else WORDS[whose]
