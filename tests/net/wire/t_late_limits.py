#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Lists and limits of clients, with connections that have no socket until their first miss.

Whoever answers the SYN: what a client with sockets would be refused, it is refused.
"""
import contextlib
import json
import os
import resource
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import ktap
import maps
import net
import talk

HIT = talk.content("hit", 600)
MOST = 4
CLOSED, OPEN = 2500, 2000       # a memory of 1 MiB has fewer places
GIVEN = 200
n = None
ports = iter(range(8080, 8200))


def begin():
    global n
    n = net.Net(links=1)


def end():
    if n:
        n.close()


@contextlib.contextmanager
def serving(*options):
    """A daemon whose /hit is wire's, and connect(family=4)."""
    port = next(ports)
    with talk.serving(n.server, "tbg0", "--late-sockets", "auto", *options, workers=2,
                      listen=(f"0.0.0.0:{port}", f"[::]:{port}"), hit=HIT) as d:
        if why := talk.no_late_sockets(d):
            raise ktap.Skip(why)

        def connect(family=4):
            link = n.links[0]
            return talk.Connection(n.client.connect((link.server4 if family == 4
                                                     else link.server6, port)))
        with connect() as c:
            c.hot("/hit", "wire")
        n.server.over(port)
        yield d, connect


def open_of(d):
    return [x for x in talk.ask(d, "connections")["connections"] if x["state"] == "open"]


def room_of(d):
    """What wire and the daemon count in its table of connections (struct tbg_tcb_room)."""
    of_map = maps.info(d.process.pid, "tbg_tcb_rooms")["id"]
    (element,) = json.loads(maps.bpftool("map", "dump", "id", str(of_map)))
    values = struct.unpack("=4i", bytes(int(x, 16) for x in element["value"]))
    return dict(zip(("taken", "most", "closed", "closed_most"), values))


def status(c):
    """The status of the answer to a request; None: closed or reset without one."""
    try:
        return c.get("/hit").status
    except (ConnectionError, EOFError):
        return None


def t_connections_without_a_socket_count():
    """The one too many is refused, whoever answers SYNs; one that has ended makes room."""
    for births in ("wire", "kernel"):
        with serving("--births", births, "--limit-connections", str(MOST)) as (d, connect):
            for family in (4, 6):
                held = [connect(family) for _ in range(MOST)]
                for c in held:
                    r = c.get("/hit")
                    assert (r.status, r.body) == (200, HIT), r
                net.until(lambda: sum(not x["socket"] for x in open_of(d)) == MOST,
                          "not all are without a socket")
                for _ in range(3):
                    with connect(family) as c:
                        assert status(c) == 429
                for c in held:
                    assert c.get("/hit").status == 200
                held.pop().close()
                net.until(lambda: len(open_of(d)) < MOST, "it stays open")
                with connect(family) as c:
                    assert status(c) == 200
                for c in held:
                    c.close()
                net.until(lambda: not open_of(d), "they stay open")


def t_connections_with_a_socket_and_without_count_together():
    """Connections that are handed over and given back count once."""
    with serving("--limit-connections", str(MOST), "--give-back", "1") as (d, connect):
        for turn in range(3):
            held = [connect() for _ in range(MOST)]
            for i, c in enumerate(held):
                assert c.get("/hit").status == 200
                if i % 2:
                    d.write(f"miss{turn}{i}", HIT)
                    assert c.get(f"/miss{turn}{i}").body == HIT
            with connect() as c:
                assert status(c) == 429, open_of(d)
            for c in held:              # given back
                for _ in range(3):
                    assert c.get("/hit").body == HIT
            with connect() as c:
                assert status(c) == 429, open_of(d)
            for c in held:
                c.close()
            net.until(lambda: not open_of(d), "they stay open")


def t_connections_that_end_in_whatever_way_make_room():
    """By the client's FIN, by its reset, by an answer that closes, by the idle timeout."""
    with serving("--limit-connections", str(MOST), "--idle-timeout", "1s") as (d, connect):
        for how in ("close", "reset", "last", "idle"):
            for _ in range(2):
                held = [connect() for _ in range(MOST)]
                for c in held:
                    if how == "last":
                        c.send(talk.request("/hit", "Connection: close"))
                        assert c.response().status == 200
                    else:
                        assert status(c) == 200, how
                for c in held:
                    if how == "idle":
                        assert c.ended()
                    if how == "reset":
                        c.reset()
                    else:
                        c.close()
                net.until(lambda: not open_of(d), "they stay open")


def t_connections_that_wire_closed_leave_room_for_others():
    """More of them in a minute than the table of connections has room for."""
    for births in ("wire", "kernel"):
        with serving("--births", births, "--memory", "1M") as (d, connect):
            assert room_of(d)["most"] < CLOSED, room_of(d)
            tiers = []
            for nr in range(CLOSED):
                with connect() as c:
                    c.send(talk.request("/hit", "Connection: close"))
                    r = c.response()
                    assert r.status == 200, (births, nr)
                    assert c.ended()
                tiers.append(r.tier)
            assert tiers[-CLOSED // 2:].count("wire") > CLOSED // 4, tiers[-100:]


def t_connections_that_are_the_kernel_s_take_no_room():
    """Each goes over at its first miss, and comes back after a hit if it goes on."""
    for give_back in ("3", "1"):
        with serving("--give-back", give_back) as (d, connect):
            for _ in range(GIVEN):
                with connect() as c:
                    assert c.get("/none").status == 404
                    assert c.get("/hit").body == HIT
            net.until(lambda: not open_of(d), "they stay open")
            assert abs(room_of(d)["taken"]) < GIVEN // 4, (give_back, room_of(d))


def t_more_open_connections_than_there_is_room_for_are_answered():
    """Those beyond are the kernel's, which then answers SYNs."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, 4096), max(hard, 4096)))
    for births in ("wire", "kernel"):
        with serving("--births", births, "--memory", "1M", "--header-timeout", "3600s",
                     "--idle-timeout", "3600s") as (d, connect), contextlib.ExitStack() as held:
            opened = [held.enter_context(connect()) for _ in range(OPEN)]
            for nr, c in enumerate(opened):
                assert c.get("/hit").body == HIT, (births, nr)
            of_wire = sum(not x["socket"] for x in open_of(d))
            assert 0 < of_wire < OPEN, (births, of_wire)


def t_a_list_ends_hits_of_connections_without_a_socket():
    for births in ("wire", "kernel"):
        with serving("--births", births) as (d, connect):
            client = n.links[0].client4
            with connect() as c, connect(6) as other:
                for x in (c, other):
                    assert x.get("/hit").tier == "wire"
                talk.ask(d, "deny", client)
                assert status(c) == 403
                assert other.get("/hit").status == 200
                with connect() as new:
                    assert status(new) == 403
                assert talk.counts(d)["DENIED"], talk.counts(d)


def t_a_rate_limits_requests_of_connections_without_a_socket():
    """One bucket, by however many connections; Retry-After says when."""
    with serving("--limit-requests", "1/h", "--limit-burst", "40") as (d, connect):
        answers = []
        while not answers or answers[-1].status == 200:
            with connect() as c:
                for _ in range(5):
                    answers.append(c.get("/hit"))
                    if answers[-1].status != 200:
                        break
            assert len(answers) <= 41, len(answers)
        assert answers[-1].status == 429 and answers[-1].fields["Retry-After"], answers[-1]
        assert talk.counts(d)["LIMITED"], talk.counts(d)
        assert any(r.tier == "wire" for r in answers)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
