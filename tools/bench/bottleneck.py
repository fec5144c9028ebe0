# SPDX-License-Identifier: GPL-2.0
"""What limits a figure: the server, the client, the network, or nothing visible.

Pure functions over measured values. A throughput that the server does not limit is
refused, since it shows nothing about the server. If twice the clients get no more, the
limit may still be a network between them; only the server's own CPUs can show that
it is the server. Processor time per request needs no such check, since it counts only
the work of the server.
"""
from __future__ import annotations

from typing import Any

SATURATED = 0.90            # of the server's CPUs: they are full
CLIENT_FULL = 0.95          # of the clients' CPUs
BETTER = 1.10               # two half loads above one: the one was the client's limit
NETWORK_FULL = 0.80         # of the nominal rate: Ethernet gives 80 to 90 % of it

SERVER, CLIENT, NETWORK = "server", "client", "network"
DESCRIPTORS, DEMAND, UNKNOWN = "descriptors", "demand", "unknown"
OTHERS = "others"
AT_LEAST = "at least"

WORDS = {
    SERVER: "the server's limit",
    CLIENT: "the client's limit",
    NETWORK: "the network's limit",
    DESCRIPTORS: "the limit of descriptors",
    DEMAND: "what was asked for, no limit",
    OTHERS: "other programs on the server's CPUs",
    AT_LEAST: "at least: the clients were full, and the server's core only in part",
    UNKNOWN: "nobody's limit that could be seen",
}


def compared(ratio: Any, machines: Any) -> str:
    """The result of twice the clients, in words; ratio None: it was not tried."""
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

    server_share, client_share: of their CPUs, None if not known. server_busiest: share of
    the busiest CPU of the server, which may have only one worker. halves_ratio: the rate of
    twice the clients with half the load each, divided by the rate of the whole load; None if
    not tried. link_bps: None if the network has no rate of its own. machines: the number of
    client machines; with several, the ratio compares all with half of them. If half were too
    few, all may still be enough, if the server is full.
    """
    full = server_share is not None and server_share >= SATURATED
    if fd_errors:
        return DESCRIPTORS, f"{fd_errors} sockets could not be opened: no descriptors left"
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
        return UNKNOWN, f"the load of the server's CPUs is not known, and {halves}"
    if server_busiest < SATURATED:
        return UNKNOWN, f"no CPU of the server was full, and {halves}"
    return (UNKNOWN if halves_ratio is None else SERVER), \
        f"one CPU of the server was {server_busiest:.0%} busy, and {halves}"


def refused(whose: str) -> str | None:
    """Why a throughput with that limit is not reported; None if it may be."""
    return None if whose in (SERVER, DEMAND, AT_LEAST) else WORDS[whose]
