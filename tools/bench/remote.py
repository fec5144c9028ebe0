# SPDX-License-Identifier: GPL-2.0
"""The topology without a lab: running servers, clients on this machine.

The same interface as lab.Lab, with nothing to build. A server's processor time
is read by a command that prints its /proc/stat, if one is given. Servers may be
on different hosts: each has the command and the network of its own.
"""
from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Callable

import hosts
from lab import FOLDER, Lab
from meters import first
from messages import Problem

if TYPE_CHECKING:
    from loads import Load
    from servers import Server

STAT_S = 10
NET = "/sys/class/net"
FRAME = 24                  # bytes of a packet that no counter has: preamble, checksum, gap


class Remote(Lab):
    remote = True

    def __init__(self, *servers: Any, stats: Any = None, link_bps: float | None = None,
                 clients: int | None = None) -> None:
        """
        stats: {name of a server: command}; link_bps: of every link, if not the interface's;
        clients: {client machine: its share of the load}, where it is not this one.
        """
        super().__init__(set(), os.sched_getaffinity(0))
        self.shares = clients or {}
        self.stats, self.given_bps = stats or {}, link_bps
        self.ifaces = {host.strip("[]"): interface(host) for host in servers}

    def open(self) -> None:
        self.dir, self.hosts = tempfile.mkdtemp(prefix=FOLDER), []
        for name, share in self.shares.items():
            self.hosts.append(hosts.Host(name, share, self.dir))
            self.hosts[-1].open()

    def close(self) -> None:
        for proc in list(self.procs):
            self.end(proc)
        for host in self.hosts:
            host.close()
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    def sysctls(self) -> dict:
        return {}

    def client_argv(self, argv: list[str]) -> list:
        return list(argv)

    def spread(self, load: Load, of: int | None = None) -> Any:
        return hosts.spread(of or self.hosts, load) if self.hosts else super().spread(load)

    def link_bps(self, server: Server) -> float | None:
        return self.given_bps or \
            (None if self.shares else nominal_bps(self.ifaces[server.addr]))

    def stat(self, server: Server) -> Callable[[], str] | None:
        """The function that reads that server's /proc/stat; None if there is none."""
        command = self.stats.get(server.name)
        return command and functools.partial(self.read_stat, command)

    @staticmethod
    def read_stat(command: str) -> str:
        """A server's /proc/stat, by the user's own command."""
        try:
            res = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 errors="replace", timeout=STAT_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Problem(f"--stat {command}: {e}") from e
        if res.returncode or not re.search(r"^cpu0? ", res.stdout, re.M):
            why = res.stderr.strip().splitlines() or ["no lines of /proc/stat"]
            raise Problem(f"--stat {command}: {why[0]}")
        return res.stdout

    def net_bytes(self, server: Server) -> tuple | None:
        """Bytes of the interface to it, with their overhead on a wire: (received, sent)."""
        iface = self.ifaces[server.addr]
        if not iface or self.shares:
            return None
        nrs = {name: int(first(f"{NET}/{iface}/statistics/{name}", r"(\d+)", "0"))
               for name in ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")}
        return tuple(nrs[f"{way}_bytes"] + FRAME * nrs[f"{way}_packets"] for way in ("rx", "tx"))

    def limit_memory(self, limit: int) -> None:
        raise Problem("a remote server's memory cannot be limited from here; "
                      "start it under a limit, and state the limit with the figures")


def interface(host: str) -> str | None:
    """The interface that leads to host, a name or an address; None if not known."""
    try:
        address = socket.getaddrinfo(host.strip("[]"), None)[0][4][0]
    except OSError as e:
        raise Problem(f"{host}: {e.strerror}") from e
    res = subprocess.run(["ip", "route", "get", address], stdin=subprocess.DEVNULL, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    m = re.search(r"\bdev (\S+)", res.stdout)
    return m and m.group(1)


def nominal_bps(iface: str | None) -> float | None:
    """The rate of an interface, None if it has no real one.

    Virtual interfaces report a rate without a meaning: 10,000 for a veth pair, 10 for a tap.
    """
    if not iface or not os.path.exists(f"{NET}/{iface}/device"):
        return None
    return int(first(f"{NET}/{iface}/speed", r"^(\d+)$", "0")) * 1e6 or None
