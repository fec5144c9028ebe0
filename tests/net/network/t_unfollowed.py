#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Wire that is on and follows none of its connections says so, with the reason, in `status` and
`why`."""
import os
import select
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import ktap
import nat
import net
import talk

PORT = 8080
BODY = b"by the daemon, and nobody knows why\n"
OK = 0                  # TC_ACT_OK, another tool's verdict


def serving(n, wire, late="off"):
    return talk.serving(n.server, wire, "--late-sockets", late,
                        listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"), a=BODY)


def note(d):
    return talk.ask(d, "status")["tiers"]["wire"].get("note", "")


def logs(where, d, address, reason):
    """Connections from there are the daemon's, and that is said."""
    for _ in range(3):
        with talk.Connection(where.connect(address)) as c:
            for _ in range(2):
                r = c.get("/a")
                assert r.tier != "wire" and r.body == BODY, r.head
    wanted = f"follows none of its connections: {reason}"
    assert wanted in note(d), note(d)
    assert wanted in talk.text(d, "status") and wanted in talk.text(d, "why", "/a")


def t_clients_come_by_an_interface_where_wire_is_not():
    with net.Net(links=2) as n, serving(n, "tbg0") as d:
        assert not note(d), "nobody has come yet"
        logs(n.client, d, (n.links[1].server4, PORT), "clients come by tbg1, where wire is not")


def accept_by_any_interface(n):
    for ns in (n.server, n.client):
        for name in ("all", "tbg0", "tbg1"):
            ns.sysctl(f"ipv4.conf.{name}.rp_filter", 0)


def t_clients_come_by_another_interface_than_their_address_is_on():
    """As ARP lets them, on hosts with two interfaces on one link."""
    for late in ("off", "auto"):
        with net.Net(links=2) as n, serving(n, "tbg0", late) as d:
            if late == "auto" and talk.no_late_sockets(d):
                ktap.note(talk.no_late_sockets(d))
                continue
            accept_by_any_interface(n)
            first, second = n.links
            n.client.run("ip", "route", "add", first.server4, "via", second.server4, "src",
                         first.client4)
            n.client.run("ip", "-6", "route", "add", first.server6, "via", second.server6, "src",
                         first.client6)
            for address in (first.server4, first.server6):
                logs(n.client, d, (address, PORT), "clients come by tbg1, where wire is not")


def lead_elsewhere(n, d):
    """Moves the route to the client to the second interface, where wire is not: that is logged."""
    first, second = n.links
    n.server.run("ip", "route", "add", first.client4, "via", second.client4, "src", first.server4)
    net.until(lambda: talk.ask(d, "why", "--client", first.client4, "/a")["why"] == "IFACE",
              "the route is not known")
    logs(n.client, d, (first.server4, PORT),
         "the routes to clients lead out of interfaces where wire is not")


def t_routes_to_clients_lead_elsewhere():
    with net.Net(links=2) as n, serving(n, "tbg0", "auto") as d:
        if talk.no_late_sockets(d):
            raise ktap.Skip("before Linux 6.9: no late sockets")
        accept_by_any_interface(n)
        lead_elsewhere(n, d)


def t_reason_is_the_one_that_was_counted_last():
    """Another process has listened at the port, too; now the routes lead elsewhere."""
    with net.Net(links=2) as n, serving(n, "tbg0", "auto") as d:
        if talk.no_late_sockets(d):
            raise ktap.Skip("before Linux 6.9: no late sockets")
        accept_by_any_interface(n)

        def shared():
            with n.client.connect((n.links[0].server4, PORT)) as c:
                c.sendall(talk.request("/a"))
                select.select([c], [], [], 0.2)         # or it is the other's
            return "another process listens at their port, too" in note(d)

        with n.server.inside():
            other = socket.create_server(("0.0.0.0", PORT), reuse_port=True)
        with other:
            net.until(shared, "no reason is given")
        lead_elsewhere(n, d)


def t_clients_are_on_this_machine():
    with net.Net() as n, serving(n, "tbg0") as d:
        logs(n.server, d, (n.links[0].server4, PORT), "clients come by lo, where wire is not")


def t_addresses_are_translated():
    with net.Net() as n, serving(n, "tbg0") as d:
        n.client.run("ip", "route", "add", "10.99.0.9", "via", n.links[0].server4)
        with nat.to(n.server, 4, n.links[0].server4):
            logs(n.client, d, ("10.99.0.9", PORT),
                 f"NAT on this machine (REDIRECT, DNAT) makes {n.links[0].server4}:{PORT} of "
                 f"10.99.0.9:{PORT}")


def t_syn_cookies():
    with net.Net() as n, serving(n, "tbg0") as d:
        if n.server.sysctl("ipv4.tcp_syncookies", 2) is None:
            raise ktap.Skip("no SYN cookies in this kernel")
        logs(n.client, d, (n.links[0].server4, PORT), "SYN cookies")


def t_another_program_stands_first():
    for hook in net.TCX:
        with net.Net() as n, serving(n, "tbg0") as d:
            n.server.put_in_front("tbg0", hook, OK)
            logs(n.client, d, (n.links[0].server4, PORT),
                 f"another program stands before wire's on tbg0 ({hook})")


def t_nothing_is_logged_of_wire_that_follows_some():
    with net.Net(links=2) as n, serving(n, "tbg0") as d:
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            net.until(lambda: c.get("/a").tier == "wire", "wire does not answer")
            with talk.Connection(n.client.connect((n.links[1].server4, PORT))) as other:
                assert other.get("/a").tier != "wire"
            net.until(lambda: talk.ask(d, "status")["flows"], "its flow is not counted")
            assert not note(d), note(d)
        assert "follows none" not in talk.text(d, "status")


def t_of_connections_without_a_socket_too():
    with net.Net(links=2) as n, serving(n, "tbg0", "auto") as d:
        if talk.ask(d, "status")["late_sockets"] is None:
            raise ktap.Skip("before Linux 6.9: no late sockets")
        logs(n.client, d, (n.links[1].server4, PORT), "clients come by tbg1, where wire is not")
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            net.until(lambda: c.get("/a").tier == "wire", "wire does not answer")
            net.until(lambda: not note(d), "it follows one, and is still said to follow none")


if __name__ == "__main__":
    ktap.run(globals())
