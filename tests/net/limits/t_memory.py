#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The formula for memory in Documentation/operating/sizing.rst, compared with a daemon.

It is a bound: what is measured is never more, and of what is resident from the start
not much less.
"""
import os
import re
import resource
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import origin
import talk
from client import until

MIB = 1024
MANUAL = os.path.join(ktap.ROOT, "Documentation/operating/sizing.rst")
CONNECTIONS, TRANSFERS = 4000, 200
SLACK = 3 * MIB         # pages are taken many at a time, huge ones maybe


def manual():
    """KiB of {what: figure} in the formula."""
    with open(MANUAL, encoding="utf-8") as f:
        text = re.search(r"^ +resident = memory.*?\n\n", f.read(), re.M | re.S).group()

    def kib(pattern):
        number, unit = re.search(pattern, text).groups()
        return float(number) * (MIB if unit == "M" else 1)
    return {"program": kib(r"\+ (\d+) (M)iB "), "worker": kib(r"workers x ([\d.]+) (M)iB"),
            "connection": kib(r"connections x ([\d.]+) (K)iB"),
            "receiving": kib(r"; (\d+) (K)iB while a request is received"),
            "transfer": kib(r"transfers x (\d+) (K)iB")}


def resident(d):
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        return next(int(x.split()[1]) for x in f if x.startswith("VmRSS:"))


def t_a_daemon_without_kernel_tiers():
    m = manual()
    for workers in (1, 8):
        with daemon.Daemon("--tiers", "user", "--memory", "16M", "--workers", str(workers)) as d:
            took = resident(d)
            ktap.note(f"{workers} workers: {took} KiB")
            assert took <= m["program"] + workers * m["worker"], took


def t_a_daemon_with_wire():
    """Most of the budget is resident from the start."""
    m = manual()
    for mib in (16, 64):
        with conf.Conf('root = "{root}"\n', "--memory", f"{mib}M", "--workers", "1",
                       wire=True) as d:
            took, most = resident(d), mib * MIB + m["program"] + m["worker"]
            ktap.note(f"memory {mib}M: {took} KiB")
            assert most / 2 < took <= most, (took, most)


def t_connections():
    m = manual()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 8192), files))
    nr = min(CONNECTIONS, min(files, 8192) - 100)
    with daemon.Daemon("--tiers", "user", "--memory", "16M", "--workers", "1") as d:
        def counted(what, value):
            until(lambda: talk.ask(d, "stats")["tiers"]["user"][what] == value)
        with socket.create_connection(d.address):       # what the first one makes stays
            counted("connections", 1)
        counted("connections", 0)
        before = resident(d)
        all_of_them = [socket.create_connection(d.address) for _ in range(nr)]
        counted("connections", nr)
        idle = resident(d)
        for s in all_of_them:
            s.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n")
        # the last bytes are taken when an answer to a later connection is there
        for _ in range(3):
            client.Client(d.address).get("/none")
        receiving = resident(d)
        for s in all_of_them:
            s.close()
    ktap.note(f"idle: {(idle - before) / nr:.2f} KiB, receiving: {(receiving - idle) / nr:.2f} KiB")
    assert idle - before <= nr * m["connection"] + SLACK, (before, idle)
    assert receiving - idle <= nr * m["receiving"] + SLACK, (idle, receiving)


def rows():
    """[(bytes of the largest body, KiB of a slot, share of the budget)] of the manual's table."""
    with open(MANUAL, encoding="utf-8") as f:
        found = re.findall(r"^([\d.]+) KiB +([\d.]+) KiB +([\d.]+) %$", f.read(), re.M)
    assert len(found) == 5, found
    return [(int(float(body) * 1024), float(slot), float(share) / 100)
            for body, slot, share in found]


def t_documents_and_clients():
    """The formula's memory holds the documents, as many as it says, and the whole is its bound."""
    m, memory, nr, names = manual(), 24, 1000, []
    with daemon.Daemon("--tiers", "user", "--memory", f"{memory}M", "--workers", "1") as d:
        for size, slot, share in rows():
            each = int(memory * MIB * share / (slot + 0.8))
            names += [d.write(f"{size}/{i}", b"x" * size) and f"/{size}/{i}" for i in range(each)]
        with client.Client(d.address) as c:
            for _ in range(2):
                assert all(c.get(name).status == 200 for name in names)
        until(lambda: talk.ask(d, "status")["objects"] == len(names))
        all_of_them = [socket.create_connection(d.address) for _ in range(nr)]
        until(lambda: talk.ask(d, "stats")["tiers"]["user"]["connections"] >= nr)
        took = resident(d)
        for s in all_of_them:
            s.close()
    most = memory * MIB + m["program"] + m["worker"] + nr * m["connection"]
    ktap.note(f"{len(names)} documents and {nr} clients: {took} KiB of {most:.0f}")
    assert most / 3 < took <= most, (took, most)


def t_transfers():
    m = manual()
    goes_on, asked = threading.Event(), threading.Semaphore(0)

    def slow(c, r):
        asked.release()
        goes_on.wait(client.WAIT_S * 3)
        c.send(origin.reply(200, b"late"))

    with origin.Origin() as o, daemon.Daemon("--tiers", "user", "--memory", "16M", "--workers", "1",
                                             "--upstream", o.url) as d:
        for i in range(TRANSFERS):
            o.on(f"/slow?{i}", slow)
        before = resident(d)
        all_of_them = [socket.create_connection(d.address) for _ in range(TRANSFERS)]
        try:
            for i, s in enumerate(all_of_them):
                s.sendall(b"GET /slow?%d HTTP/1.1\r\nHost: x\r\n\r\n" % i)
            for _ in all_of_them:
                assert asked.acquire(timeout=client.WAIT_S * 3)
            took = resident(d) - before
            ktap.note(f"a transfer: {took / TRANSFERS:.1f} KiB")
            assert took <= TRANSFERS * m["transfer"], took
        finally:
            goes_on.set()
            for s in all_of_them:
                s.close()


if __name__ == "__main__":
    ktap.run(globals())
