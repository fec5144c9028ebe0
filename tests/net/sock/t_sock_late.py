#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Sock beside connections without a socket: wire has them until a miss, then sock has them."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import beside
import client
import daemon
import ktap
import net
import talk
from beside import SIZES, SOCK, USER, connect, request, right

SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 32)))
BURSTS = 20 if client.IN_VM else 100
SMALL = [s for s in SIZES if s <= 8192]         # what wire answers
LARGE = [s for s in SIZES if s > 8192]          # what sock answers
n = sock = None
TIERS = "wire,sock,user"


def begin():
    global n, sock
    n, sock, _ = beside.begin(TIERS, "--wire", "tbg0", "--give-back", "1")
    tier = talk.ask(sock, "status")["tiers"]["wire"]
    why = None if tier["on"] else daemon.why_off("wire", tier["why"])
    why = why or talk.no_late_sockets(sock)
    if why:
        beside.end()
        raise ktap.Skip(why)
    # those of before had a socket while nothing was cached
    n.server.over(SOCK)


def late():
    return talk.ask(sock, "status")["late_sockets"]


def row(c):
    """The connection as wire lists it, as the daemon lists it, or both."""
    ip, port = c.s.getsockname()[:2]
    name = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return [x for x in talk.ask(sock, "connections")["connections"] if x["address"] == name]


def asked(c, size, *fields, method="GET"):
    data = request(size, *fields, method=method)
    c.send(data)
    r = c.response(method)
    assert r.bare() == right(data, method), (size, r)
    return r


def t_wire_answers_until_the_first_miss():
    for v6 in (False, True):
        with connect(v6=v6) as c:
            for size in SMALL:
                assert asked(c, size).tier == "wire", size
            before = late()["handed"]
            assert asked(c, LARGE[0]).tier == "sock"
            assert late()["handed"] == before + 1


def t_sock_keeps_a_connection_with_a_socket():
    """It answers there what wire would, whatever --give-back says."""
    given = late()["given"]
    with connect() as c:
        for size in LARGE:
            assert asked(c, size).tier == "sock", size
        for _ in range(3):
            for size in SMALL:
                assert asked(c, size).tier == "sock", size
    assert late()["given"] == given


def t_first_request_is_for_sock():
    for size in LARGE:
        with connect() as c:
            assert asked(c, size).tier == "sock", size


def t_wire_forgets_what_it_has_handed_over():
    """Although the daemon sees no request of these connections."""
    with connect() as c:
        asked(c, SMALL[0])
        asked(c, LARGE[0])
        net.until(lambda: len(row(c)) == 1 and row(c)[0]["state"] != "handed over",
                  "wire still has it")


def t_requests_sent_at_once():
    ktap.note(f"TBG_SEED={SEED}")
    order = random.Random(SEED)
    for _ in range(BURSTS):
        asks = [(request(order.choice(SIZES), method=method), method)
                for method in order.choices(("GET", "GET", "GET", "HEAD"), k=order.randint(1, 6))]
        with connect() as c:
            if order.random() < 0.5:
                asked(c, order.choice(SMALL))
            cut = order.randint(0, len(asks))
            for part in (asks[:cut], asks[cut:]):
                c.send(b"".join(data for data, _ in part))
                for data, method in part:
                    assert c.response(method).bare() == right(data, method), data


def t_miss_in_parts():
    """The hand-over has the beginning of a request, and sock passes it up."""
    data = request(LARGE[0])
    for at in (1, 20, len(data) - 1):
        with connect() as c:
            asked(c, SMALL[0])
            c.send(data[:at])
            net.until(lambda c=c: [x for x in n.server.sockets(SOCK) if x[0] == "ESTABLISHED"],
                      "no socket")
            c.send(data[at:])
            assert c.response().bare() == right(data)
            assert asked(c, LARGE[1]).tier == "sock"


def t_connections_that_the_kernel_begins():
    """With a firewall, wire takes them at the client's ACK, and sock has them after the miss."""
    with n.server.inside():
        d = daemon.Daemon("--tiers", TIERS, "--sock", "unlisted", "--wire", "tbg0", "--births",
                          "kernel", listen=f"0.0.0.0:{USER + 10}", root=sock.root).start()
    try:
        for want in (["stored", "stored"], ["wire", "sock"]):
            got = []
            with connect(USER + 10) as c:
                for size in (SMALL[-1], LARGE[0]):
                    data = request(size)
                    c.send(data)
                    r = c.response()
                    assert r.bare() == right(data), (size, r)
                    got.append(r.tier)
            assert got == want, got
    finally:
        assert d.stop() == 0, d.lines


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=beside.end)
