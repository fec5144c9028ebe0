#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Interfaces that disappear and return, have several names, or are many."""
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
MOST = 64               # TBG_IFACES_MAX
BODY = b"by wire, where there is an interface\n"


def serving(where, wire, *options):
    return talk.serving(where, wire, *options, listen=f"0.0.0.0:{PORT}", a=BODY)


def ifaces(d):
    """{name: why it is off, or ""}"""
    listed = talk.ask(d, "status")["interfaces"]
    ret = {i["name"]: i.get("why", "") for i in listed}
    assert len(ret) == len(listed), listed
    return ret


def logged(d, what):
    net.until(lambda: any(what in line for line in d.lines), f"{what} is not logged: {d.lines}")


def hit(n, link):
    def by_wire():
        with talk.Connection(n.client.connect((link.server4, PORT))) as c:
            r = c.get("/a")
        assert r.body == BODY
        return r.tier == "wire"

    net.until(by_wire, "wire does not answer")


def t_interface_that_goes_is_missed_until_it_is_back():
    with net.Net(links=1) as n, serving(n.server, "tbg0") as d:
        hit(n, n.links[0])
        n.server.run("ip", "link", "del", "tbg0")
        net.until(lambda: ifaces(d) == {"tbg0": "no such interface"}, "it is not missed")
        logged(d, "wire: tbg0 is gone")
        assert "not on tbg0: no such interface" in talk.text(d, "status")
        assert "on: no interface" in talk.text(d, "status")
        assert "tbg0       off: no such interface" in talk.text(d, "why", "/a")
        # what is called that now is not fit
        n.server.run("ip", "tuntap", "add", "dev", "tbg0", "mode", "tun")
        net.until(lambda: "not an Ethernet" in ifaces(d)["tbg0"], "it is not looked at again")
        n.server.run("ip", "link", "del", "tbg0")
        link = net.Link(n, 0)
        net.until(lambda: ifaces(d) == {"tbg0": ""}, "it is not attached again")
        logged(d, "wire: on tbg0 (")
        hit(n, link)
        assert len([line for line in d.lines if "tbg0" in line]) == 3, d.lines


def t_interface_that_goes_while_the_daemon_drains():
    """The rest of its connections' bytes is translated as before, or the connection is reset."""
    large = talk.content("large", 8 << 20)
    with net.Net(links=1) as n, serving(n.server, "tbg0") as d:
        d.write("large", large)
        hit(n, n.links[0])
        with talk.Connection(n.client.connect(
                (n.links[0].server4, PORT),
                setup=lambda s: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000))) as c:
            assert c.get("/a").tier == "wire"
            c.send(talk.request("/large"))
            c.got = c.s.recv(1)
            d.process.send_signal(signal.SIGTERM)
            net.until(lambda: talk.ask(d, "status")["draining"], "it does not drain")
            n.server.run("ip", "link", "del", "tbg0")
            logged(d, "wire: tbg0 is gone")
            net.Link(n, 0)
            # where the guard has seen a segment that nobody translated, the client is reset
            with contextlib.suppress(ConnectionResetError):
                assert c.response().body == large
                ktap.note("the whole of it")
        assert d.process.wait(daemon.STOP_S) == 0, d.lines


def t_another_name_is_no_other_interface():
    with net.Net(links=2) as n:
        n.server.run("ip", "link", "property", "add", "dev", "tbg0", "altname", "enalt0")
        with serving(n.server, "enalt0,tbg1,tbg0") as d:
            both = {"tbg0": "", "tbg1": ""}
            assert ifaces(d) == both
            # so that names are looked at again
            n.server.run("ip", "link", "del", "tbg1")
            net.until(lambda: ifaces(d) != both, "it is not missed")
            net.Link(n, 1)
            net.until(lambda: ifaces(d) == both, "it is not attached again")
            hit(n, n.links[0])


def renamed(ns, was, name):
    """Linux before 6.2 gives no other name to one that is up."""
    ns.run("ip", "link", "set", was, "down")
    ns.run("ip", "link", "set", was, "name", name)
    ns.run("ip", "link", "set", name, "up")


def t_interface_of_a_name_that_another_had():
    """Both are attached: the one that is called something else now has connections."""
    with net.Net(links=2) as n, serving(n.server, "tbg0") as d:
        renamed(n.server, "tbg0", "was0")
        net.until(lambda: ifaces(d) == {"was0": "", "tbg0": "no such interface"}, "not missed")
        renamed(n.server, "tbg1", "tbg0")
        net.until(lambda: ifaces(d) == {"was0": "", "tbg0": ""}, "not attached")


def t_auto_logs_where_it_stops():
    pairs = MOST // 2 + 1
    with contextlib.closing(net.Namespace()) as ns, \
         tempfile.NamedTemporaryFile("w", encoding="ascii") as batch:
        for i in range(pairs):
            batch.write(f"link add a{i} type veth peer name b{i}\n")
            for name, address in ((f"a{i}", f"10.99.0.{i}"), (f"b{i}", f"10.99.1.{i}")):
                batch.write(f"link set {name} up\naddress add {address}/32 dev {name}\n")
        batch.flush()
        try:
            ns.run("ip", "-batch", batch.name)
        except RuntimeError as why:
            raise ktap.Skip(f"no veth interfaces: {why}") from why
        with serving(ns, "auto") as d:
            assert len(ifaces(d)) == MOST and not any(ifaces(d).values()), ifaces(d)
            ns.run("ip", "link", "del", "a0")
            logged(d, "is gone")
            net.until(lambda: len(ifaces(d)) == MOST, "one that was left out is not taken")
            full = [line for line in d.lines if f"on {MOST} interfaces" in line]
            assert len(full) == 1, d.lines


def t_interface_that_comes_is_followed_at_once():
    """Netlink tells; what looks every two seconds needs as long for each that comes behind a
    look."""
    with net.Net(links=2) as n, serving(n.server, "tbg0,tbg1") as d:
        took = []
        for _ in range(4):
            n.server.run("ip", "link", "del", "tbg1")
            net.until(lambda: ifaces(d)["tbg1"] == "no such interface", "not missed")
            net.Link(n, 1)
            began = time.monotonic()
            net.until(lambda: ifaces(d) == {"tbg0": "", "tbg1": ""}, "not attached")
            took.append(time.monotonic() - began)
        assert min(took) < 1, took


def tunnel(n):
    """Up, with an address, but no Ethernet: `auto` leaves it out."""
    n.server.run("ip", "tuntap", "add", "dev", "tbgt", "mode", "tun")
    n.server.run("ip", "address", "add", "10.99.0.1/24", "dev", "tbgt")
    n.server.run("ip", "link", "set", "tbgt", "up")


def wire_is(d):
    """"", or why it is off."""
    return talk.ask(d, "status")["tiers"]["wire"].get("why", "")


def t_auto_logs_what_it_leaves_out():
    with net.Net(links=1) as n, serving(n.server, "auto") as d:
        hit(n, n.links[0])
        tunnel(n)
        logged(d, "auto leaves out tbgt: not an Ethernet")
        net.until(lambda: "not an Ethernet" in ifaces(d).get("tbgt", ""), "it is not in status")
        assert not wire_is(d)
        hit(n, n.links[0])
        n.server.run("ip", "link", "del", "tbgt")
        net.until(lambda: "tbgt" not in ifaces(d), "it is still there")
        assert len([line for line in d.lines if "leaves out" in line]) == 1, d.lines


def t_auto_answers_nothing_where_what_it_leaves_out_could_carry_it():
    """A route to anybody, or to the subnet of an interface that wire is on."""
    with net.Net(links=1) as n, serving(n.server, "auto", "--late-sockets", "off") as d:
        hit(n, n.links[0])
        tunnel(n)
        logged(d, "auto leaves out tbgt")
        for route in ("default", "10.87.0.128/25", "10.0.0.0/8", "::/0"):
            family = "-6" if ":" in route else "-4"
            n.server.run("ip", family, "route", "add", route, "dev", "tbgt", "metric", "4000")
            net.until(lambda: "tbgt, which auto leaves out" in wire_is(d), f"{route}: wire is on")
            with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
                for _ in range(2):
                    r = c.get("/a")
                    assert (r.tier, r.body) == ("user", BODY), r.head
            assert "tbgt, which auto leaves out" in talk.text(d, "why", "/a")
            n.server.run("ip", family, "route", "del", route, "dev", "tbgt", "metric", "4000")
            net.until(lambda: not wire_is(d), f"{route} is gone: wire is off")
            hit(n, n.links[0])
        net.until(lambda: len([line for line in d.lines if "answers again" in line]) == 4,
                  "not said")


def t_named_interfaces_answer_whatever_else_there_is():
    with net.Net(links=1) as n, serving(n.server, "tbg0") as d:
        tunnel(n)
        n.server.run("ip", "route", "add", "default", "dev", "tbgt")
        n.server.run("ip", "link", "add", "late0", "type", "veth", "peer", "name", "late1")
        hit(n, n.links[0])
        assert not wire_is(d) and ifaces(d) == {"tbg0": ""}


if __name__ == "__main__":
    ktap.run(globals())
