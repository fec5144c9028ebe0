#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Packets that pass several hooks, or belong to another server.

Interfaces upon interfaces (VLAN, macvlan, bridge) are attached once, so that
nothing is translated twice; what is only forwarded is never answered.
"""
import contextlib
import json
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import rawtcp
import talk

PORT = 8080
BODY = b"from the cache of this host\n" * 10


@contextlib.contextmanager
def serving(n, wire, births="auto"):
    listen = (f"0.0.0.0:{PORT}", f"[::]:{PORT}")
    with talk.serving(n.server, wire, "--births", births, listen=listen, small=BODY,
                      large=BODY * 200) as d:
        n.late = lambda: talk.late(d)
        yield d


def hits_and_misses(n, address):
    """By wire, unless the machine is too slow for it, and by the socket in turns."""
    began = n.late()
    with talk.Connection(n.client.connect((address, PORT))) as c:
        net.until(lambda: c.get("/small").tier == "wire" or n.late() > began, "never published")
        in_turns(n, c, began)


def by_sockets(n, address):
    with talk.Connection(n.client.connect((address, PORT))) as c:
        for path, body in (("/small", BODY), ("/large", BODY * 200)) * 3:
            r = c.get(path)
            assert r.tier != "wire" and r.body == body, r.head


def in_turns(n, c, began):
    for _ in range(3):
        r = c.get("/small")
        assert r.body == BODY and (r.tier == "wire" or n.late() > began), r.head
        assert c.get("/large").body == BODY * 200


def add(ns, *words):
    """A link of this kind; False where the kernel has none."""
    try:
        ns.run("ip", "link", "add", *words)
    except RuntimeError as why:
        assert "Unknown device type" in str(why), why
        return False
    return True


def address(ns, name, value):
    ns.run("ip", "address", "add", value, "dev", name)
    ns.run("ip", "link", "set", name, "up")


def mac(ns, name):
    (shown,) = json.loads(ns.run("ip", "-json", "link", "show", "dev", name))
    return shown["address"]


def stacked(make, wire="auto", ask=hits_and_misses):
    with net.Net(links=1) as n:
        if not make(n):
            ktap.note(f"{make.__name__}: not in this kernel")
            return False
        with serving(n, wire), n.clean(PORT):
            ask(n, "10.98.0.1")
            ask(n, n.links[0].server4)
    return True


def vlan(n):
    for ns, ip in ((n.server, "10.98.0.1/24"), (n.client, "10.98.0.2/24")):
        if not add(ns, "link", "tbg0", "name", "tbg0.5", "type", "vlan", "id", "5"):
            return False
        address(ns, "tbg0.5", ip)
    return True


def macvlan(n):
    if not add(n.server, "link", "tbg0", "name", "tbgm", "type", "macvlan", "mode", "bridge"):
        return False
    address(n.server, "tbgm", "10.98.0.1/24")
    address(n.client, "tbg0", "10.98.0.2/24")
    send_to(n, "tbg0", "10.98.0.1", n.links[0].server4)
    return True


def send_to(n, device, *addresses):
    """The client sends to device's MAC; left to ARP, tbg0 and tbgm both claim every address."""
    for ip in addresses:
        n.client.run("ip", "neighbour", "replace", ip, "lladdr", mac(n.server, device),
                     "dev", "tbg0", "nud", "permanent")


def t_interface_upon_an_attached_one():
    if not [True for make in (vlan, macvlan) if stacked(make)]:
        raise ktap.Skip("no VLAN and no macvlan in this kernel")


def t_macvlan_beside_its_device():
    """Frames to it are another host's at its device, so wire is on both."""
    if not daemon.LATE:
        raise ktap.Skip("translated connections: they have a socket")
    for births in ("auto", "kernel"):
        with net.Net(links=1) as n:
            if not macvlan(n):
                raise ktap.Skip("no macvlan in this kernel")
            send_to(n, "tbgm", "10.98.0.1")
            with serving(n, "auto", births) as d, n.clean(PORT):
                on = {i["name"]: i.get("why", "") for i in talk.ask(d, "status")["interfaces"]}
                assert not on["tbg0"] and not on["tbgm"], on
                for ip in ("10.98.0.1", n.links[0].server4):
                    hits_and_misses(n, ip)
                assert talk.ask(d, "why", "--client", "10.98.0.2", "/small")["tier"] == "wire"


def t_frames_to_a_macvlan_are_left_to_the_daemon():
    """They pass tbg0 as another host's, and become ours only behind it."""
    with net.Net(links=1) as n:
        if not macvlan(n):
            raise ktap.Skip("no macvlan in this kernel")
        send_to(n, "tbgm", "10.98.0.1")
        with serving(n, "tbg0"), n.clean(PORT):
            hits_and_misses(n, n.links[0].server4)
            with talk.Connection(n.client.connect(("10.98.0.1", PORT))) as c:
                for path, body in (("/small", BODY), ("/large", BODY * 200)) * 2:
                    r = c.get(path)
                    assert (r.tier, r.body) == ("user", body), r.head


def bridge(n):
    if not add(n.server, "name", "tbgb", "type", "bridge"):
        return False
    link = n.links[0]
    n.server.run("ip", "link", "set", "tbg0", "master", "tbgb")
    n.server.run("ip", "address", "del", f"{link.server4}/24", "dev", "tbg0")
    address(n.server, "tbgb", f"{link.server4}/24")
    address(n.server, "tbgb", "10.98.0.1/24")
    address(n.client, "tbg0", "10.98.0.2/24")
    return True


def t_bridge_and_its_port():
    """The bridge alone has the address; its port is not attached with it."""
    if not stacked(bridge):
        raise ktap.Skip("no bridge in this kernel")


def t_port_of_a_bridge():
    """A bridge takes the socket away that wire gives to a frame at its port, so the kernel
    makes the connections there, and the daemon answers."""
    if not daemon.LATE:
        raise ktap.Skip("translated connections: net/network/t_guard.py")
    with net.Net(links=1) as n:
        if not bridge(n):
            raise ktap.Skip("no bridge in this kernel")
        with serving(n, "tbg0") as d, n.clean(PORT):
            for _ in range(3):
                with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
                    for path, body in (("/small", BODY), ("/large", BODY * 200)) * 2:
                        r = c.get(path)
                        assert r.tier != "wire" and r.body == body, r.head
            assert talk.counts(d)["IFACE"], talk.counts(d)


def wrapped(n):
    """A tunnel that sends nothing but what routes tell it where to."""
    link, ends = n.links[0], ((n.server, "10.98.0.1"), (n.client, "10.98.0.2"))
    for ns, ip in ends:
        if not add(ns, "name", "tbgx", "type", "vxlan", "external", "dstport", "4789"):
            return False
        address(ns, "tbgx", f"{ip}/32")
    for (ns, _), (peer, ip), to in zip(ends, ends[::-1], (link.client4, link.server4)):
        ns.run("ip", "route", "add", ip, "encap", "ip", "id", "7", "dst", to, "dev", "tbgx")
        ns.run("ip", "neighbour", "replace", ip, "lladdr", mac(peer, "tbgx"), "dev", "tbgx")
    n.server.run("ip", "route", "add", "10.98.0.3", "nexthop", "encap", "ip", "id", "7", "dst",
                 link.client4, "dev", "tbgx", "nexthop", "via", link.client4, "dev", "tbg0")
    return True


def t_routes_that_wrap_what_they_carry_are_the_kernel_s():
    if not daemon.LATE:
        raise ktap.Skip("translated connections: net/network/t_guard.py")
    with net.Net(links=1) as n:
        try:
            there = wrapped(n)
        except RuntimeError as why:
            raise ktap.Skip(f"no routes that wrap: {why}") from why
        if not there:
            raise ktap.Skip("no tunnel in this kernel")
        with serving(n, "tbg0,tbgx") as d:
            hits_and_misses(n, n.links[0].server4)
            by_sockets(n, "10.98.0.1")
            for client, why in (("10.98.0.2", "IFACE"), ("10.98.0.3", "IFACE"),
                                (n.links[0].client4, "HIT_WIRE")):
                told = talk.ask(d, "why", "--client", client, "/small")
                assert told["why"] == why, (client, told)


def t_routing_domain():
    """Its interface has the address, its device the routes: a listener of all domains takes
    both. BPF finds no socket there: without translation, all connections are the kernel's."""
    def vrf(n):
        if not add(n.server, "name", "tbgv", "type", "vrf", "table", "10"):
            return False
        n.server.run("ip", "link", "set", "tbgv", "up")
        n.server.run("ip", "link", "set", "tbg0", "master", "tbgv")
        n.server.sysctl("ipv4.tcp_l3mdev_accept", 1)
        address(n.server, "tbg0", "10.98.0.1/24")
        address(n.client, "tbg0", "10.98.0.2/24")
        return True

    ask = by_sockets if daemon.LATE else hits_and_misses
    if not all(stacked(vrf, wire, ask) for wire in ("auto", "tbg0")):
        raise ktap.Skip("no VRF in this kernel")


def t_named_interface_upon_a_named_one_is_refused():
    with net.Net(links=1) as n:
        if not bridge(n):
            raise ktap.Skip("no bridge in this kernel")
        with n.server.inside():
            d = daemon.Daemon("--tiers", "wire,user", "--wire", "tbg0,tbgb",
                              listen=f"0.0.0.0:{PORT}").start()
        try:
            tier = talk.ask(d, "status")["tiers"]["wire"]
        finally:
            d.stop()
        assert not tier["on"] and "tbgb" in tier["why"] and "tbg0" in tier["why"], tier


def not_answered(n, where, ip):
    """A server of another namespace answers itself, on a port that we serve."""
    def answer(listener):
        s, _ = listener.accept()
        with s:
            s.recv(65536)
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbehind")

    with serving(n, "tbg0"):
        hits_and_misses(n, n.links[0].server4)
        with where.inside():
            listener = socket.create_server((ip, PORT), reuse_port=True)
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        with listener, talk.Connection(n.client.connect((ip, PORT))) as c:
            assert c.get("/small").body == b"behind"
        thread.join()


def t_another_server_on_our_port():
    """At an address of its own, beside our wildcard: its connections are its."""
    with net.Net(links=1) as n:
        n.server.run("ip", "address", "add", "10.87.0.77/24", "dev", "tbg0")
        not_answered(n, n.server, "10.87.0.77")


def t_another_server_that_comes_gets_no_connection_of_ours():
    """At an address of its own, or as some more of the port's: it has not seen the beginning."""
    if not daemon.LATE:
        raise ktap.Skip("translated connections: they have a socket")
    for ip, nr in (("10.87.0.77", 1), ("0.0.0.0", 8)):
        with net.Net(links=1) as n, contextlib.ExitStack() as stack:
            n.server.run("ip", "address", "add", "10.87.0.77/24", "dev", "tbg0")
            stack.enter_context(serving(n, "tbg0"))
            cs = []
            for _ in range(8):
                c = stack.enter_context(talk.Connection(n.client.connect(("10.87.0.77", PORT))))
                net.until(lambda c=c: c.get("/small").tier == "wire", "never published")
                cs.append(c)
            with n.server.inside():
                others = [stack.enter_context(socket.create_server((ip, PORT), reuse_port=True))
                          for _ in range(nr)]
            for c in cs:
                try:
                    raise AssertionError(f"answered: {c.get('/large').head}")
                except ConnectionResetError:
                    pass
            for other in others:
                other.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    raise AssertionError(f"it got one: {other.accept()}")


def behind(n):
    """A namespace that the server forwards to: 10.99.0.2, fd99::2."""
    ret = net.Namespace()
    n.server.run("ip", "link", "add", "tbgf", "type", "veth", "peer", "name", "tbgf",
                 "netns", f"/proc/{os.getpid()}/fd/{ret.fd}")
    for ns, four, six in ((n.server, "10.99.0.1/24", "fd99::1/64"),
                          (ret, "10.99.0.2/24", "fd99::2/64")):
        address(ns, "tbgf", four)
        address(ns, "tbgf", six)
    ret.run("ip", "route", "add", "default", "via", "10.99.0.1")
    ret.run("ip", "-6", "route", "add", "default", "via", "fd99::1")
    n.client.run("ip", "route", "add", "10.99.0.0/24", "via", n.links[0].server4)
    n.server.sysctl("ipv4.ip_forward", 1)
    n.server.sysctl("ipv6.conf.all.forwarding", 1)
    return ret


def t_forwarded_connections_are_not_answered():
    """A router that is a web server too: the port is ours, the connection not."""
    with net.Net(links=1) as n, contextlib.closing(behind(n)) as host:
        not_answered(n, host, "10.99.0.2")


@contextlib.contextmanager
def container():
    """A network, and a namespace with a macvlan upon the server's interface: 10.87.0.9."""
    with net.Net(links=1) as n, contextlib.closing(net.Namespace()) as other:
        if not add(n.server, "link", "tbg0", "name", "tbgm", "netns",
                   f"/proc/{os.getpid()}/fd/{other.fd}", "type", "macvlan", "mode", "bridge"):
            raise ktap.Skip("no macvlan in this kernel")
        address(other, "tbgm", "10.87.0.9/24")
        address(other, "tbgm", "fd87:0::9/64")
        link = n.links[0]
        for ip in (link.client4, link.client6):
            other.run("ip", "neighbour", "replace", ip, "lladdr", mac(n.client, "tbg0"),
                      "dev", "tbgm", "nud", "permanent")
        send_to(n, "tbg0", link.server4, link.server6)
        yield n, other


def t_connections_of_a_macvlan_elsewhere_are_not_answered():
    """A container upon our interface: its packets pass it, its sockets do not."""
    with container() as (n, other):
        not_answered(n, other, "10.87.0.9")


def send_raw(where, packet, ip):
    """A whole IP packet, by a raw socket of that namespace."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with where.inside(), socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.sendto(packet, (ip, 0))


def forge(n, where, c, flags, data=b""):
    """A segment in the name of our socket, which arrives: its wrong checksum is counted."""
    (server, port), (ip, rport) = c.s.getpeername()[:2], c.s.getsockname()[:2]
    before = n.client.mibs()["Tcp.InCsumErrors"]
    tcp = rawtcp.damaged(rawtcp.Station.tcp(server, ip, port, rport, 1 << 30, 1 << 30, flags, 1000,
                                            data=data))
    send_raw(where, rawtcp.Station.ip(server, ip, tcp), ip)
    net.until(lambda: n.client.mibs()["Tcp.InCsumErrors"] > before, "it never arrives")


def not_disturbed(n, disturb, addresses):
    """disturb(c) between a connection's hits and misses, by each of addresses."""
    with serving(n, "tbg0"):
        for ip in addresses:
            began = n.late()
            with talk.Connection(n.client.connect((ip, PORT))) as c:
                net.until(lambda c=c: c.get("/small").tier == "wire" or n.late() > began,
                          "never published")
                for _ in disturb(c):
                    in_turns(n, c, began)


def every_forgery(n, where):
    def disturb(c):
        for flags, data in (("S.", b""), (".", b""), ("P.", b"forged"), ("F.", b""), ("R.", b""),
                            ("R", b"")):
            yield forge(n, where, c, flags, data)
    return disturb


def t_forgeries_of_a_macvlan_disturb_no_connection():
    """A container upon our interface may send what it likes: our flows are not its to change."""
    with container() as (n, other):
        link = n.links[0]
        not_disturbed(n, every_forgery(n, other), (link.server4, link.server6))


def t_resets_of_another_stack_disturb_no_connection():
    """A container that takes our addresses: its kernel resets what its raw socket shows it."""
    with container() as (n, other):
        link = n.links[0]

        def disturb(c):
            (server, port), (ip, rport) = c.s.getpeername()[:2], c.s.getsockname()[:2]
            tcp = rawtcp.Station.tcp(ip, server, rport, port, 1, 1 << 30, ".", 1000)
            before = other.mibs()["Tcp.OutRsts"]
            send_raw(other, rawtcp.Station.ip(ip, server, tcp), server)
            yield net.until(lambda: other.mibs()["Tcp.OutRsts"] > before, "no reset")

        other.sysctl("ipv4.conf.all.rp_filter", 0)
        other.sysctl("ipv4.conf.lo.rp_filter", 0)
        for ip in (f"{link.server4}/32", f"{link.server6}/128"):
            other.run("ip", "address", "add", ip, "dev", "lo")
        not_disturbed(n, disturb, (link.server4, link.server6))


def t_forwarded_forgeries_disturb_no_connection():
    """IPv6 forwards what claims to be from ourselves."""
    with net.Net(links=1) as n, contextlib.closing(behind(n)) as host:
        not_disturbed(n, every_forgery(n, host), (n.links[0].server6,))


if __name__ == "__main__":
    ktap.run(globals())
