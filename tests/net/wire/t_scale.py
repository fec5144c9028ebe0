#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Many connections on real sockets: wire answers each, and none leaves anything behind.

    TBG_CONCURRENT=100000       open at one time
    TBG_CONNECTIONS=1000000     opened and closed, one crowd after the other

Both ends of each are sockets of this machine: memory for 8 KiB of each, and
as many descriptors as TBG_CONCURRENT; who may raise its limit does it, as
does the daemon. It notes time and memory, and what is left must be nothing.
Without late sockets the server's end of each is a socket, and a flow of wire's.
"""
import errno
import os
import resource
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import maps
import net
import talk

SLOW = client.SLOW
OPEN = int(os.environ.get("TBG_CONCURRENT", 10000 // SLOW))
TOTAL = int(os.environ.get("TBG_CONNECTIONS", 30000 // SLOW))
PORT = 8080
BODY = talk.content("/hit", 1000)
HIT = talk.request("/hit")
CROWD = 1000            # as many as wait for the daemon at most
BURST = 200             # packets that any queue on the way has room for
OF_ONE_SOURCE = 5000    # ports are found by trying
TRIES = 20              # a machine that does not schedule the daemon stops wire's clock
CONN_BYTES = 512        # of the daemon's own memory that a connection may take
LATE_BYTES = 256        # of one without a socket, the kernel's included
READ_KB = 640           # buffers that the daemon reads the map with, however many it has
KEPT = maps.TCBS if daemon.LATE else maps.FLOWS        # what wire knows of each
IP_BIND_ADDRESS_NO_PORT, IPV6_FREEBIND = 24, 78
LINGER_NONE = struct.pack("ii", 1, 0)

world, wire = None, None
users = 0               # connections made so far, for their addresses


def begin():
    global world, wire
    files(OPEN + 1000)
    world = net.Net()
    link = world.links[0]
    # addresses without end, for ports without end
    world.client.run("ip", "route", "add", "local", "10.99.0.0/16", "dev", "lo")
    world.client.run("ip", "-6", "route", "add", "local", "fd99::/64", "dev", "lo")
    world.server.run("ip", "route", "add", "10.99.0.0/16", "via", link.client4)
    world.server.run("ip", "-6", "route", "add", "fd99::/64", "via", link.client6)
    world.client.sysctl("ipv4.tcp_max_tw_buckets", TOTAL + OPEN)
    with world.server.inside():
        wire = client.start_wire("--connections-max", str(OPEN), "--idle-timeout", "3600s",
                                 "--header-timeout", "3600s", interfaces=link.name,
                                 listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
    wire.write("hit", BODY)
    with talk.Connection(world.client.connect((link.server4, PORT))) as c:
        net.until(lambda: c.get("/hit").tier == "wire", "/hit is never a hit of wire")
        c.reset()
    emptied()


def end():
    if wire:
        assert wire.stop() == 0
    if world:
        world.close()


def files(nr):
    """This process may open this many, or the test cannot be. The daemon sees to itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, nr), max(hard, nr)))
    except (ValueError, OSError) as no:
        raise ktap.Skip(f"{nr} descriptors are more than the limit, {hard}: {no}") from no


def begun():
    """A connection that is on its way, from the next address, of either family by turns."""
    global users
    at, users = users // 2 // OF_ONE_SOURCE, users + 1
    link = world.links[0]
    if users % 2:
        s, server = socket.socket(socket.AF_INET), link.server4
        source = f"10.99.{at >> 8}.{at & 255}"
    else:
        s, server = socket.socket(socket.AF_INET6), link.server6
        source = f"fd99::{at + 1:x}"
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.bind((source, 0))
    s.setblocking(False)
    assert s.connect_ex((server, PORT)) in (0, errno.EINPROGRESS)
    s.settimeout(client.WAIT_S)
    return s


def answered(s):
    """It has sent a request, and asks until wire answers; how often it was the socket. TRIES
    where wire has given a reply to the socket, since nobody acknowledged it, and so the rest."""
    for tried in range(TRIES):
        if tried:
            s.sendall(HIT)
        got = s.recv(65536)
        while len(got) < len(BODY) or not got.endswith(BODY):
            more = s.recv(65536)
            assert more, f"the end after {got!r}"
            got += more
        if b"detail=wire" in got:
            return tried
    return TRIES


def ask(sockets):
    """All of them, some at a time; how often others than wire answered."""
    tried = []
    for at in range(0, len(sockets), BURST):
        some = sockets[at:at + BURST]
        for s in some:
            s.sendall(HIT)
        tried += [answered(s) for s in some]
    never = tried.count(TRIES)
    assert never <= len(sockets) // 100, f"{never} of {len(sockets)} never by wire: {why()}"
    return sum(tried)


def why():
    return {name: nr for name, nr in talk.counts(wire).items() if nr}


def leave(sockets):
    """By turns: the client closes; the client resets. The last one sees to the pace."""
    for i, s in enumerate(sockets):
        if i % BURST == BURST - 1:
            ask(sockets[-1:])
        if i & 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        s.close()


def crowd(nr, known):
    """nr connections that have each been answered by wire; the daemon has accepted all."""
    ret, again = [], 0
    while len(ret) < nr:
        with world.client.inside():
            some = [begun() for _ in range(min(BURST, nr - len(ret)))]
        again += ask(some)
        ret += some
    net.until(lambda: connections() == known + nr, "the daemon does not accept them")
    return ret, again


def connections():
    """Open ones: those that workers have, and those that are wire's alone."""
    return talk.ask(wire, "status")["connections"] + (flows() if daemon.LATE else 0)


def flows():
    return maps.count(wire.pid, KEPT)


def emptied():
    """No connection is left, and nothing that wire knew of one."""
    net.until(lambda: connections() == 0, "the daemon still has connections")
    net.until(lambda: not flows(), "flows are never buried", wait_s=client.WAIT_S + 60,
              every_s=0.5)
    # one that the handshake's last packets overtook may be left, until another needs its place
    assert daemon.LATE or not maps.count(wire.pid, maps.EMBRYOS), "embryos are left"


def descriptors():
    return len(os.listdir(f"/proc/{wire.pid}/fd"))


def slab():
    """MiB of the whole machine's."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Slab:")) >> 10


def spent(began):
    return f"{time.monotonic() - began:.1f} s"


def t_open_at_one_time():
    """Each is followed by wire, asks twice, and costs the daemon little."""
    assert maps.info(wire.pid, KEPT)["max_entries"] >= OPEN, "less room than connections"
    rss, slabs, began = daemon.own_kb(wire.pid), slab(), time.monotonic()
    sockets, again = [], 0
    while len(sockets) < OPEN:
        some, tried = crowd(min(CROWD, OPEN - len(sockets)), len(sockets))
        sockets, again = sockets + some, again + tried
    ktap.note(f"{OPEN} connections opened and answered by wire in {spent(began)}, "
              f"{again} asked again")
    assert flows() == OPEN, f"{flows()} flows"
    began = time.monotonic()
    again = ask(sockets)
    ktap.note(f"all asked once more in {spent(began)}, {again} asked again")
    grown = daemon.own_kb(wire.pid) - rss
    ktap.note(f"daemon {daemon.own_kb(wire.pid)} KiB, {grown} KiB more; slab {slab()} MiB, "
              f"{slab() - slabs} more; "
              f"maps {sum(maps.held(wire.pid).values()) >> 20} MiB")
    assert grown * 1024 <= OPEN * CONN_BYTES, f"{grown} KiB for {OPEN} connections"
    listed(sockets)
    if daemon.LATE:
        costs_little(grown)
    began = time.monotonic()
    leave(sockets)
    emptied()
    ktap.note(f"all closed and forgotten in {spent(began)}; slab {slab()} MiB")


def listed(sockets):
    """`toboggan connections` has each of them once, with its end of it."""
    began = time.monotonic()
    rows = talk.ask_itself(wire, "connections")["connections"]
    ktap.note(f"{len(rows)} listed in {spent(began)}")
    found = [row["address"] for row in rows]
    names = {f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
             for host, port in (s.getsockname()[:2] for s in sockets)}
    assert len(found) == len(names) and set(found) == names, \
        f"{len(found)} rows, {len(names - set(found))} connections without one"
    if daemon.LATE:
        without = sum(not row["socket"] for row in rows)
        assert without == OPEN, f"{OPEN - without} of {OPEN} have a socket"


def costs_little(grown):
    """An idle connection, by the memory of the map of all that there can be, and the daemon's."""
    here = maps.info(wire.pid, KEPT)
    each = maps.held(wire.pid)[here["id"]] / here["max_entries"] + \
        max(grown - READ_KB, 0) * 1024 / OPEN
    with world.server.inside():
        sockets = [x for x in world.server.sockets(PORT) if x[0] != "LISTEN"]
    ktap.note(f"{each:.0f} bytes for a connection without a socket, {len(sockets)} sockets")
    assert each <= LATE_BYTES and not sockets, (each, sockets[:3])


def t_opened_and_closed():
    """As many connections, flows and descriptors after it as before, and no more memory."""
    began, nr, again, rss, fds = time.monotonic(), 0, 0, 0, descriptors()
    while nr < TOTAL:
        some, tried = crowd(min(CROWD, TOTAL - nr), 0)
        nr, again = nr + len(some), again + tried
        leave(some)
        net.until(lambda: connections() == 0, "the daemon still has connections")
        rss = rss or daemon.own_kb(wire.pid)
    ktap.note(f"{nr} connections opened, answered by wire and closed in {spent(began)}, "
              f"{again} asked again; {flows()} flows, "
              f"room for {maps.info(wire.pid, KEPT)['max_entries']}")
    emptied()
    grown = daemon.own_kb(wire.pid) - rss
    ktap.note(f"all forgotten after {spent(began)}; daemon {daemon.own_kb(wire.pid)} KiB, {grown} "
              f"KiB more")
    net.until(lambda: descriptors() <= fds, "descriptors are left")
    assert grown < 2048, f"the daemon has grown by {grown} KiB"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
