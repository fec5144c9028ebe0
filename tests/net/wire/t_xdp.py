#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hits by XDP, over veth: the bytes that TC would send, and TCP that notices nothing.

The frames of a veth have room for what the request and a little more takes, so
requests here are long and replies short; others are TC's. What XDP_TX sends
arrives where the other end has an XDP program as well.
"""
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

PORT, OTHER = 8080, 8081
ROUNDS = 20
LONG = "User-Agent: " + "u" * 1000
ETAG = "If-None-Match: "
n = d = None
peers = []
name_nr = 0


def begin():
    global n, d
    n = net.Net(links=3)
    for link in (0, 2):
        peers.append(net.xdp_pass(n.client, n.links[link].name))
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0:xdp,tbg1,lo:xdp", "--workers", "2",
                          listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}")).start()
    n.late = lambda: talk.late(d)
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))


def end():
    if d:
        assert d.stop() == 0, d.lines
    for fd in peers:
        os.close(fd)
    if n:
        n.close()


def fresh(size):
    """A file that nobody has asked for yet: (target, body)."""
    global name_nr
    name_nr += 1
    body = talk.content(f"x{name_nr}", size)
    d.write(f"{name_nr}/f.txt", body)
    return f"/{name_nr}/f.txt", body


def by_xdp(who=None):
    """Hits by XDP so far."""
    return talk.ask(who or d, "stats")["tiers"]["wire"]["xdp"]


def left(who=None):
    """{why: requests that XDP left to TC}"""
    return {x["name"]: x["count"] for x in talk.ask(who or d, "stats")["left_by_xdp"]}


def iface(who, name):
    return next(i for i in talk.ask(who, "status")["interfaces"] if i["name"] == name)


def attached(name):
    """Whether a native XDP program is on the server's end."""
    return " xdp " in n.server.run("ip", "link", "show", name)


@contextlib.contextmanager
def connection(address, port=PORT):
    with talk.Connection(n.client.connect((address, port))) as c:
        yield c


def until_xdp(address, nr, exchange, port=PORT, who=None):
    """
    exchange(connection) on one connection after the other, until XDP has answered
    this many: a flow whose client was starved for 200 ms has left wire.
    """
    before = by_xdp(who)

    def reached():
        with connection(address, port) as c:
            for _ in range(4):
                exchange(c)
        return by_xdp(who) >= before + nr

    net.until(reached, f"XDP does not answer: {left(who)}")


def proven(address, port=PORT, who=None):
    """The interface has shown that its replies arrive; returns a cached object."""
    target, body = fresh(300)

    def one(c):
        r = c.get(target, LONG)
        assert (r.status, r.body) == (200, body), r

    until_xdp(address, 2, one, port, who)
    return target, body


def t_hits_by_xdp():
    link = n.links[0]
    assert iface(d, "tbg0")["xdp"] == "on", d.lines
    assert attached("tbg0") and not attached("tbg1")
    for address in (link.server4, link.server6):
        target, body = proven(address)
        def one(c, target=target, body=body):
            r = c.get(target, LONG)
            assert (r.status, r.body) == (200, body), r

        with n.clean(PORT):
            before, wire = by_xdp(), talk.hits(d)
            until_xdp(address, ROUNDS, one)
            assert talk.hits(d) - wire >= by_xdp() - before >= ROUNDS


def t_hits_on_a_connection_without_a_socket():
    """XDP and TC answer in turn on it, and it is handed over like any other."""
    if not daemon.LATE:
        raise ktap.Skip("no late sockets: before Linux 6.9")
    link = n.links[0]
    target, body = proven(link.server4)
    large, large_body = fresh(9000)
    with connection(link.server4) as c:
        c.get(large)
    with n.clean(PORT), connection(link.server4) as c:
        before, handed = by_xdp(), talk.ask(d, "status")["late_sockets"]["handed"]
        for _ in range(3):
            assert c.get(target, LONG).body == body
            assert c.get(large, LONG).body == large_body
        assert by_xdp() >= before + 2, left()
        own = c.s.getsockname()[1]
        assert not [x for x in n.server.sockets(PORT) if x[1] == own]
        miss, miss_body = fresh(400)
        assert c.get(miss, LONG).body == miss_body
        assert [x for x in n.server.sockets(PORT) if x[1] == own]
        assert talk.ask(d, "status")["late_sockets"]["handed"] > handed
        assert c.get(target, LONG).body == body


def t_http_1_0_and_a_close():
    """The Connection line is in the reply of XDP, too; what ends a connection is TC's."""
    target, body = proven(n.links[0].server4)
    for version, want in (("HTTP/1.0", "keep-alive"), ("HTTP/1.1", "close")):
        data = talk.request(target, LONG, f"Connection: {want}", version=version)

        def once(c, data=data, want=want):
            c.send(data)
            r = c.response()
            assert (r.status, r.body, r.fields.get("Connection")) == (200, body, want), r

        if want == "close":
            before = by_xdp()
            with connection(n.links[0].server4) as c:
                once(c)
                assert c.ended()
            assert by_xdp() == before
        elif daemon.LATE:
            until_xdp(n.links[0].server4, 3, once)


def t_same_bytes_as_tc():
    """GET, HEAD, 304: of XDP, of TC on another interface, and of TC on this one."""
    target, _ = proven(n.links[0].server4)
    with connection(n.links[1].server4) as c:
        tag = ETAG + c.get(target, LONG).fields["ETag"]
    for method, *fields in (("GET", LONG), ("HEAD", LONG), ("GET", LONG, tag)):
        got = []
        with connection(n.links[1].server4) as c:
            want = c.ask(method, target, *fields)
        until_xdp(n.links[0].server4, 3,
                  lambda c, got=got, method=method, fields=fields:
                  got.append(c.ask(method, target, *fields)))
        assert all(r.bare() == want.bare() for r in got), (got, want)
        assert sum(r.tier == "wire" for r in got) >= 3, got


def t_misses_in_turn_with_hits():
    for address in (n.links[0].server4, n.links[0].server6):
        hit, hit_body = proven(address)
        def turn(c, hit=hit, hit_body=hit_body):
            for target, body in ((hit, hit_body), fresh(40000 if name_nr % 4 == 1 else 400),
                                 (hit, hit_body), (hit, hit_body)):
                r = c.get(target, LONG)
                assert (r.status, r.body) == (200, body), r

        with n.clean(PORT):
            # the first after a miss may have to tell the socket what it acknowledges
            until_xdp(address, ROUNDS, turn)


def t_what_has_no_room_is_answered_by_tc():
    """Or by XDP, where the kernel's frames have the room."""
    target, body = fresh(1000)
    proven(n.links[0].server4)
    with connection(n.links[0].server4) as c:
        c.get(target)
    before = by_xdp() + left().get("ROOM", 0)

    def answered():
        with connection(n.links[0].server4) as c:
            for _ in range(4):
                r = c.get(target)
                assert (r.status, r.body) == (200, body), r
        return by_xdp() + left().get("ROOM", 0) >= before + ROUNDS

    with n.clean(PORT):
        net.until(answered, "neither by XDP nor left by it")


def t_more_than_a_segment_is_answered_by_tc():
    target, body = fresh(9000)
    with connection(n.links[0].server4) as c:
        c.get(target)
    with n.clean(PORT), connection(n.links[0].server4) as c:
        before = by_xdp()
        for _ in range(3):
            r = c.get(target, LONG)
            assert (r.status, r.body) == (200, body), r
        assert by_xdp() == before


def t_small_buffer_of_a_client_makes_nobody_wait():
    """Neither XDP nor TC behind it knows that the client is here."""
    address = n.links[0].server4
    proven(address)
    late = talk.kept_waiting(n.client, (address, PORT), fresh)
    assert not late, late


def t_address_that_changes_is_followed():
    """Frames of another address are not for this host; of the interface's new one, they are."""
    target, body = proven(n.links[0].server4)
    words = n.server.run("ip", "link", "show", "tbg0").split()
    was = words[words.index("link/ether") + 1]
    try:
        for mac in ("02:00:00:00:00:57", was):
            n.server.run("ip", "link", "set", "tbg0", "address", mac)
            n.client.run("ip", "neigh", "flush", "dev", "tbg0")

            def turn(c):
                r = c.get(target, LONG)
                assert (r.status, r.body) == (200, body), r

            until_xdp(n.links[0].server4, ROUNDS, turn)
    finally:
        n.server.run("ip", "link", "set", "tbg0", "address", was)


def t_why_and_the_ready_line_show_xdp():
    target, _ = proven(n.links[0].server4)
    why = next(i for i in talk.ask(d, "why", target)["interfaces"] if i["name"] == "tbg0")
    assert why["xdp"] == "on" and why["xdp_may"], why
    assert "tbg0 (tcx, xdp)" in d.lines[-1] or "tbg0 (clsact, xdp)" in d.lines[-1], d.lines


def t_falls_back_to_tc_with_the_reason():
    """lo has no native XDP: one line, the same in the status, and TC answers."""
    on = iface(d, "lo")
    assert on["xdp"] == "off" and "no native XDP" in on["xdp_why"], on
    said = [line for line in d.lines if "no XDP on lo" in line]
    assert len(said) == 1 and on["xdp_why"] in said[0], d.lines
    target, body = fresh(300)
    for want in ("stored", "wire"):
        with talk.Connection(n.server.connect(("127.0.0.1", PORT))) as c:
            r = c.get(target)
            assert (r.body, r.tier) == (body, want), r


@contextlib.contextmanager
def another(interfaces, *options):
    with n.server.inside():
        o = daemon.Daemon("--wire", interfaces, *options, listen=f"0.0.0.0:{OTHER}",
                          root=d.root).start()
    try:
        yield o
    finally:
        assert o.stop() == 0, o.lines


def t_what_follows_a_hit_goes_where_the_client_has_moved_to():
    """The FIN of an idle connection: the last segment that shows where the client is was XDP's."""
    if not daemon.LATE:
        raise ktap.Skip("no late sockets: before Linux 6.9")
    address = n.links[2].server4
    words = n.client.run("ip", "link", "show", "tbg2").split()
    was = words[words.index("link/ether") + 1]
    with another("tbg2:xdp", "--idle-timeout", "2s") as o:
        target, body = proven(address, OTHER, o)
        try:
            with connection(address, OTHER) as c:
                assert c.get(target, LONG).body == body
                n.client.run("ip", "link", "set", "tbg2", "address", "02:00:00:00:00:58")
                assert c.get(target, LONG).body == body
                assert c.s.recv(1) == b""
        finally:
            n.client.run("ip", "link", "set", "tbg2", "address", was)
            n.server.run("ip", "neigh", "flush", "dev", "tbg2")


def t_another_program_goes_first_and_may_go():
    fd = net.xdp_pass(n.server, "tbg2")
    try:
        with another("tbg2:xdp") as o:
            on = iface(o, "tbg2")
            assert on["xdp"] == "off" and "another XDP program" in on["xdp_why"], on
            os.close(fd)
            fd = None
            net.until(lambda: iface(o, "tbg2")["xdp"] == "on", "never tried again")
            proven(n.links[2].server4, OTHER, o)
            assert len([line for line in o.lines if "no XDP" in line]) == 1, o.lines
    finally:
        if fd is not None:
            os.close(fd)
    assert not attached("tbg2")


def links(who):
    """Numbers of the XDP links that a daemon has."""
    folder, ret = f"/proc/{who.pid}/fdinfo", []
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError), \
             open(os.path.join(folder, fd), encoding="ascii") as f:
            fields = dict(line.split(":", 1) for line in f if ":" in line)
            if fields.get("link_type", "").strip() == "xdp":
                ret.append(fields["link_id"].strip())
    return ret


def t_program_that_somebody_detaches_is_attached_again():
    with another("tbg2:xdp") as o:
        for link in links(o):
            subprocess.run(["bpftool", "link", "detach", "id", link], check=True)
        assert not attached("tbg2")
        net.until(lambda: attached("tbg2"), "not attached again")
        net.until(lambda: any("attached again" in line for line in o.lines), "not said")
        assert iface(o, "tbg2")["xdp"] == "on", o.lines
        proven(n.links[2].server4, OTHER, o)


def t_nothing_is_left_behind():
    for kill in (False, True):
        before = n.server.run("ip", "link", "show", "tbg2")
        with n.server.inside():
            o = daemon.Daemon("--wire", "tbg2:xdp", listen=f"0.0.0.0:{OTHER}",
                              root=d.root).start()
        assert attached("tbg2"), o.lines
        if kill:
            o.kill()
        else:
            assert o.stop() == 0, o.lines
        assert n.server.run("ip", "link", "show", "tbg2") == before
    # what the killed one left at TC
    with another("tbg2:xdp"):
        assert attached("tbg2")
    assert ("tbg2", "ingress") not in n.server.programs()


def t_a_ban_ends_the_hits_of_xdp():
    address, client = n.links[0].server4, n.links[0].client4
    target, body = proven(address)
    with connection(address) as c:
        assert c.get(target, LONG).body == body
        talk.ask(d, "deny", client)
        before = by_xdp()
        assert c.get(target, LONG).status == 403
    with connection(address) as c:
        assert c.get(target, LONG).status == 403 and by_xdp() == before
    talk.ask(d, "deny", "--remove", client)
    until_xdp(address, 2, lambda c: c.get(target, LONG))


def t_a_limit_counts_the_hits_of_xdp():
    """
    Not one request more than the burst, of whichever tier; and XDP itself leaves the one
    beyond it, if that is not the first of its connection, whose client was never starved.
    """
    each = 4                            # requests of a connection
    burst = 200 + each - 1
    target, _ = fresh(300)

    def limited_by_xdp():
        got = []
        with another("tbg2:xdp", "--limit-requests", "1/h", "--limit-burst", str(burst)) as o:
            while len(got) <= burst:
                with connection(n.links[2].server4, OTHER) as c:
                    got += [c.get(target, LONG).status for _ in range(each)]
            assert got == burst * [200] + [429], got
            return by_xdp(o) and left(o).get("LIMITED")

    net.until(limited_by_xdp, "XDP does not look at the limit")


def given_up_with(rto_min):
    """tbg2, whose other end drops what XDP sends, while clients repeat a request so late."""
    link = n.links[2]
    n.client.run("ip", "route", "change", f"10.87.{link.nr}.0/24", "dev", link.name, "src",
                 link.client4, "rto_min", rto_min)
    target, body = fresh(300)
    with another("tbg2:xdp") as o:
        address = link.server4
        with connection(address, OTHER) as c:
            c.get(target)

        def given_up():
            with connection(address, OTHER) as c:
                r = c.get(target, LONG)
                assert (r.status, r.body) == (200, body), r
            return iface(o, "tbg2")["xdp"] == "off"

        net.until(given_up, "it is never given up")
        assert not attached("tbg2")
        net.until(lambda: any("not acknowledged" in line for line in o.lines), "no line says so")
        with n.clean(OTHER), connection(address, OTHER) as c:
            for _ in range(ROUNDS):
                assert c.get(target, LONG).body == body


def t_device_that_drops_the_replies_is_given_up():
    """
    A veth whose other end has no NAPI: late at worst, never lost, and then TC. Also if no client
    repeats its request before wire's timer repeats the reply.
    """
    os.close(peers.pop())
    for rto_min in ("2s", "60s"):
        given_up_with(rto_min)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
