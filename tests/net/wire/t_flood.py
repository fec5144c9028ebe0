#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""SYNs from forged addresses: they take no memory, and connected clients notice nothing.

    TBG_FLOOD=1000000           SYNs, from addresses that nobody has

Wire answers SYNs itself here: each with a number that proves the address, and no entry.
"""
import json
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import talk

PORT = 8080
SYNS = int(os.environ.get("TBG_FLOOD", 20000 // client.SLOW))
FEW = 64
MEMORY_KB = 1024                # of the daemon's own, whatever else it does meanwhile
HIT = talk.content("hit", 600)
n = d = None


def begin():
    global n, d
    n = net.Net(links=1)
    link = n.links[0]
    n.server.run("ip", "route", "add", "10.99.0.0/16", "via", link.client4)
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", "--late-sockets", "auto", "--idle-timeout", "3600s",
                          listen=f"0.0.0.0:{PORT}")
        d.write("hit", HIT)
        d.start()
    why = None if talk.ask(d, "status")["tiers"]["wire"]["on"] else d.why_no_wire()
    why = why or talk.no_late_sockets(d)
    if why:
        end()
        raise ktap.Skip(why)


def end():
    if d and d.process:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


def folded(total):
    """A checksum of this sum of words."""
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def syns(count):
    """That many frames, each from another address or port."""
    link = n.links[0]
    other, own = (bytes.fromhex(json.loads(ns.run("ip", "-j", "link", "show",
                                                  link.name))[0]["address"]
                                .replace(":", "")) for ns in (n.server, n.client))
    ether = other + own + b"\x08\0"
    to = socket.inet_aton(link.server4)
    to_sum = sum(struct.unpack("!2H", to))
    options = bytes.fromhex("020405b40402080a0000000100000000 01030307".replace(" ", ""))
    length = 20 + len(options)
    options_sum = sum(struct.unpack(f"!{len(options) // 2}H", options))
    for i in range(count):
        low, port, seq = i & 0xffff, 1024 + (i >> 16) + \
            (i * 7 & 0x7fff), i * 2654435761 & 0xffffffff
        ip_sum = 0x4500 + 20 + length + 0x4000 + 0x4006 + 0x0a63 + low + to_sum
        head = (length // 4) << 12 | 0x02
        tcp_sum = 0x0a63 + low + to_sum + 6 + length + port + PORT + (seq >> 16) + \
            (seq & 0xffff) + \
            head + 0xffff + options_sum
        yield ether + struct.pack("!BBHHHBBHHH4sHHIIHHHH", 0x45, 0, 20 + length, 0, 0x4000, 64, 6,
                                  folded(ip_sum), 0x0a63, low, to, port, PORT, seq, 0, head,
                                  0xffff, folded(tcp_sum), 0) + options


def flood(count):
    """Sends them, with no more on their way than a queue has room for; how many."""
    with n.client.inside():
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        tap.bind((n.links[0].name, 0))
    with tap:
        for frame in syns(count):
            tap.send(frame)


def kept():
    """The connections in the daemon, its maps and the kernel."""
    listed = talk.ask(d, "connections", "--limit", "1")["total"]
    half_open = [x for x in n.server.sockets(PORT) if x[0] == "SYN_RECV"]
    return listed, len(half_open), talk.ask(d, "status")["late_sockets"]["births"]


def t_nothing_is_kept_of_forged_syns():
    answered = talk.counts(d)["SYN_ACK"]
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        c.hot("/hit", "wire")
        before, memory = kept(), daemon.own_kb(d.pid)
        flood(SYNS)
        listed, half_open, births = kept()
        # one SYN a second is the kernel's, for wire to learn from; these it forgets by itself
        assert (listed, births) == (before[0], before[2]), (before, listed, births)
        assert half_open <= before[1] + FEW + SYNS // 1000, (before, half_open)
        assert daemon.own_kb(d.pid) - memory < MEMORY_KB, (memory, daemon.own_kb(d.pid))
        assert c.hot("/hit", "wire").body == HIT
    answered = talk.counts(d)["SYN_ACK"] - answered
    ktap.note(f"{SYNS} SYNs, {answered} answered by wire")
    assert answered > SYNS // 2, answered


def t_hits_and_new_clients_go_on_meanwhile():
    over = threading.Event()

    def all_of_it():
        try:
            flood(SYNS)
        finally:
            over.set()

    thread = threading.Thread(target=all_of_it)
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        c.hot("/hit", "wire")
        thread.start()
        asked = 0
        while not over.is_set() or not asked:
            assert c.get("/hit").body == HIT
            with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as new:
                assert new.get("/hit").body == HIT
            asked += 1
        thread.join()
    ktap.note(f"{asked} hits and new clients beside {SYNS} SYNs")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
