#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Connections without a socket on interfaces in VRFs.

Two tenants, each with a link, a VRF and a daemon of its own, have the same addresses and ports
and other content. A third daemon serves both VRFs, by sockets that are bound to none.
"""
import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import rawtcp
import talk

PORT, SHARED, USER, OWN = 8080, 8081, 8082, 8083
LISTEN = """
import os, socket, sys
for fd, family in enumerate((socket.AF_INET, socket.AF_INET6), 3):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[1].encode())
    s.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", int(sys.argv[2])))
    s.listen(128)
    if s.fileno() != fd:
        os.dup2(s.fileno(), fd)
    os.set_inheritable(fd, True)
    s.detach()
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), "2"
os.execv(sys.argv[3], sys.argv[3:])
"""
BY_WIRE = ("--late-sockets", "auto", "--give-back", "1", "--births", "wire", "--idle-timeout",
           "3600s")
n = None
tenants = ()
shared = user = None
miss_nr = 0


class Tenant:
    """A client, its link and VRF, and the daemon that is bound to it."""

    def __init__(self, nr):
        self.nr, self.link, self.vrf = nr, n.links[nr], f"tbgv{nr}"
        self.where = n.client if not nr else net.Namespace()
        self.daemon = None
        self.hit = talk.content(f"hit of tenant {nr}", 600)
        self.nine = talk.content(f"nine of tenant {nr}", 9000)

    def enter(self):
        """Puts the server's interface into the VRF, with the addresses of the first link."""
        first = n.links[0]
        n.server.run("ip", "link", "set", self.link.name, "master", self.vrf)
        n.server.run("ip", "address", "replace", f"{first.server4}/24", "dev", self.link.name)
        n.server.run("ip", "address", "replace", f"{first.server6}/64", "dev", self.link.name,
                     "nodad")

    def open(self):
        first = n.links[0]
        n.server.run("ip", "link", "add", self.vrf, "type", "vrf", "table", str(10 + self.nr))
        n.server.run("ip", "link", "set", self.vrf, "up")
        if self.nr:
            name, back = self.link.name, n.client
            n.server.run("ip", "address", "flush", "dev", name)
            back.run("ip", "link", "set", name, "netns", f"/proc/{os.getpid()}/fd/{self.where.fd}")
            self.where.run("ip", "link", "set", name, "up")
            self.where.run("ip", "address", "add", f"{first.client4}/24", "dev", name)
            self.where.run("ip", "address", "add", f"{first.client6}/64", "dev", name, "nodad")
            self.where.steer(name, 0)
        self.enter()

    def start(self):
        with n.server.inside():
            self.daemon = daemon.Daemon(
                "--wire", self.link.name, *BY_WIRE, listen=(),
                prefix=(sys.executable, "-c", LISTEN, self.vrf, str(PORT)))
            self.daemon.write("hit", self.hit)
            self.daemon.write("nine", self.nine)
            self.daemon.start()

    def connect(self, port=PORT, family=4, source=None):
        first = n.links[0]
        address = first.server4 if family == 4 else first.server6
        own = (first.client4 if family == 4 else first.client6, source) if source else None
        return talk.Connection(self.where.connect((address, port), source=own))

    def born(self, port=PORT, family=4):
        """A connection that wire has begun, and whose first request it has answered."""
        deadline = time.monotonic() + client.WAIT_S
        while True:         # the kernel answers one SYN a second
            c = self.connect(port, family)
            if c.get("/hit").tier == "wire":
                return c
            c.s.close()
            assert time.monotonic() < deadline, f"tenant {self.nr}, IPv{family}: never wire's"


def begin():
    global n, tenants, shared, user
    n = net.Net(links=2)
    tenants = (Tenant(0), Tenant(1))
    try:
        for t in tenants:
            t.open()
    except RuntimeError as why:
        end()
        raise ktap.Skip(f"no VRFs: {why}") from why
    for t in tenants:
        t.start()
    n.server.sysctl("ipv4.tcp_l3mdev_accept", 1)
    with n.server.inside():
        root = tenants[0].daemon.root
        shared = daemon.Daemon("--wire", "tbg0,tbg1", *BY_WIRE, root=root,
                               listen=(f"0.0.0.0:{SHARED}", f"[::]:{SHARED}")).start()
        user = daemon.Daemon("--tiers", "user", root=root,
                             listen=(f"0.0.0.0:{USER}", f"[::]:{USER}")).start()
    # the tenants' daemons are given their sockets, with which no wire is on before 6.9
    tier = talk.ask(shared, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    if late(shared) is None:
        end()
        raise ktap.Skip("no late sockets: before Linux 6.9")
    for t in tenants:
        for family in (4, 6):
            t.born(PORT, family).s.close()
            t.born(SHARED, family).s.close()


def end():
    codes = [x.stop() for x in (shared, user, *(t.daemon for t in tenants)) if x]
    if n:
        n.close()
    for t in tenants:
        if t.nr:
            t.where.close()
    assert not any(codes), codes


@contextlib.contextmanager
def own(*options, listen=(f"0.0.0.0:{OWN}", f"[::]:{OWN}"), **more):
    """Another daemon at the first tenant's interface, with its files."""
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", *BY_WIRE, *options, root=tenants[0].daemon.root,
                          listen=listen, **more).start()
    try:
        yield d
    finally:
        assert d.stop() == 0, d.lines


def late(d):
    return talk.ask(d, "status")["late_sockets"]


def miss(d):
    """A target that nobody has asked for: (target, body)."""
    global miss_nr
    miss_nr += 1
    body = talk.content(f"miss {miss_nr}", 700)
    d.write(f"{miss_nr}/miss", body)
    return f"/{miss_nr}/miss", body


def sockets(port=PORT):
    return [x for x in n.server.sockets(port) if x[0] not in ("LISTEN", "TIME_WAIT")]


def each():
    """(tenant, daemon, port, family) of all that wire serves."""
    for family in (4, 6):
        for t in tenants:
            yield t, t.daemon, PORT, family
            yield t, shared, SHARED, family


def hit_of(t, d):
    return tenants[0].hit if d is shared else t.hit


def has_hits_and_misses(d):
    for family in (4, 6):
        with tenants[0].born(OWN, family) as c:
            for _ in range(8):
                target, body = miss(tenants[0].daemon)
                assert c.get(target).body == body
                assert c.get("/hit").tier == "wire", "not given back"
    assert late(d)["handed"] >= 16, late(d)


def t_status_has_nothing_to_complain_of():
    for d in (shared, *(t.daemon for t in tenants)):
        assert late(d)["vrfs_why"] is None, late(d)
        assert " in VRFs" not in talk.text(d, "status"), talk.text(d, "status")


def t_listeners_that_the_daemon_makes_in_a_vrf():
    """One for each worker, that share the port: the kernel chooses among all of them."""
    with own("--workers", "2", prefix=("ip", "vrf", "exec", "tbgv0")) as d:
        has_hits_and_misses(d)


def t_listeners_bound_to_no_device_follow_the_setting():
    """The kernel lets them serve VRFs or not; what wire has there goes on until its first miss."""
    def refused(family):
        try:
            with tenants[0].connect(OWN, family):
                return False
        except ConnectionRefusedError:
            return True

    n.server.sysctl("ipv4.tcp_l3mdev_accept", 0)
    try:
        with own() as d:
            for _ in range(2):
                assert refused(4) and refused(6)
                assert late(d)["vrfs_why"] is None, late(d)
                n.server.sysctl("ipv4.tcp_l3mdev_accept", 1)
                has_hits_and_misses(d)
                with tenants[0].born(OWN) as c:
                    n.server.sysctl("ipv4.tcp_l3mdev_accept", 0)
                    assert c.get("/hit").tier == "wire"
                    c.send(talk.request(miss(tenants[0].daemon)[0]))
                    try:
                        got = c.s.recv(100)
                    except ConnectionError:
                        got = b""
                    assert not got, got
    finally:
        n.server.sysctl("ipv4.tcp_l3mdev_accept", 1)


def t_where_no_cgroup2_is_mounted():
    """The daemon may mount it at the start only, when no listener serves VRFs yet."""
    hidden = 'umount -l -t cgroup2 -a; exec "$0" "$@"'
    with own(prefix=("unshare", "--mount", "sh", "-c", hidden)) as d:
        assert late(d)["vrfs_why"] is None, late(d)
        has_hits_and_misses(d)


def are_the_kernel_s(t):
    """Connections to OWN, all of which have a socket from their beginning."""
    for family in (4, 6):
        for _ in range(3):
            with t.connect(OWN, family) as c:
                for _ in range(2):
                    assert c.get("/hit").tier != "wire", family
                    target, body = miss(tenants[0].daemon)
                    assert c.get(target).body == body


def t_a_listener_made_outside_the_cgroup_namespace_is_the_kernel_s():
    """No program of the namespace would see the socket of a miss, which wire would lose."""
    try:
        folder = f"{net.own_cgroup()[1]}/tbg-vrfs-{os.getpid()}"
        os.mkdir(folder)
    except (StopIteration, OSError) as why:
        raise ktap.Skip(f"no cgroup can be made: {why!r}") from why
    inside = f'echo $$ > {folder}/cgroup.procs; exec unshare --cgroup "$0" "$@"'
    try:
        with own(listen=(), prefix=(sys.executable, "-c", LISTEN, tenants[0].vrf, str(OWN),
                                    "/bin/sh", "-c", inside)) as d:
            assert "cgroup namespace" in late(d)["vrfs_why"], late(d)
            are_the_kernel_s(tenants[0])
            assert not late(d)["births"], late(d)
    finally:
        os.rmdir(folder)


def t_a_listener_bound_to_another_device_does_not_serve_vrfs():
    """Although it has the connections of an interface in one, with sockets bound to that."""
    def attached():
        return n.server.run("bpftool", "cgroup", "show", top).count("tbg_vrf_birth")

    top = net.own_cgroup()[0]
    before = attached()
    assert before, "the other daemons have attached it"
    with own(listen=(), prefix=(sys.executable, "-c", LISTEN, "tbg0", str(OWN))) as d:
        assert late(d)["vrfs_why"] is None, late(d)
        are_the_kernel_s(tenants[0])
        assert not late(d)["births"], late(d)
        assert attached() == before, "a program for no listener"


def t_hits_have_no_socket():
    """From the SYN to the last FIN, and with `Connection: close`."""
    for t, d, port, family in each():
        t.born(port, family).s.close()
        n.server.over(port)
        for more in ((), ("Connection: close",)):
            def is_whole(t=t, d=d, port=port, family=family, more=more):
                before = late(d)
                with t.connect(port, family) as c:
                    for _ in range(1 if more else 3):
                        c.send(talk.request("/hit", *more))
                        r = c.response()
                        assert r.body == hit_of(t, d), (t.nr, port, family, r)
                        if r.tier != "wire":
                            return False        # the kernel had to answer its SYN
                    assert not sockets(port), sockets(port)
                    if more:
                        c.end()
                after = late(d)
                return after["births"] == before["births"] + 1 and \
                    after["handed"] == before["handed"]
            net.until(is_whole, f"{(t.nr, port, family, more)}: never from the SYN to the FIN")
        n.server.over(port)


def t_the_same_four_tuple_is_another_connection_in_each():
    """Hits, misses, give-backs, in turns: by two daemons, and by one."""
    for port, one in ((PORT, None), (SHARED, shared)):
        for family in (4, 6):
            with contextlib.ExitStack() as stack:
                pair = [(t, stack.enter_context(t.connect(port, family, 30000 + family)))
                        for t in tenants]
                for turn in range(6):
                    for t, c in pair:
                        target = ("/nine", "/hit")[t.nr]
                        c.send(talk.request(target))
                    for t, c in pair:
                        of = tenants[0] if one else t
                        assert c.response().body == (of.nine, of.hit)[t.nr], (port, turn, t.nr)
                    for t, c in pair:
                        target, body = miss((tenants[0] if one else t).daemon)
                        assert c.get(target).body == body
                    for t, c in pair:
                        of = tenants[0] if one else t
                        assert c.get("/hit").body == of.hit, (port, turn, t.nr)


def t_a_miss_gets_a_socket_and_a_hit_loses_it():
    for t, d, port, family in each():
        n.server.over(port)
        before = late(d)
        with t.born(port, family) as c:
            for turn in range(5):
                assert c.get("/hit").body == hit_of(t, d)
                target, body = miss(d if d is not shared else tenants[0].daemon)
                r = c.get(target)
                assert r.body == body and r.tier != "wire", (turn, r)
                assert any(x[0] == "ESTABLISHED" for x in sockets(port)), sockets(port)
            assert c.get("/hit").tier == "wire", "not given back"
            n.server.over(port)
        after = late(d)
        assert after["handed"] >= before["handed"] + 4, (before, after)
        assert after["given"] >= before["given"] + 4, (before, after)


def t_what_follows_the_first_segment_of_a_miss_reaches_its_socket():
    """Before the daemon has accepted it, and after: a POST in pieces, requests one by one."""
    for t, d, port, family in each():
        with t.born(port, family) as c, n.clean(port):
            with daemon.stopped(d.pid):
                target, body = miss(d if d is not shared else tenants[0].daemon)
                for i in range(0, len(talk.request(target)), 7):
                    c.send(talk.request(target)[i:i + 7])
                for _ in range(3):
                    c.send(talk.request("/hit"))
            assert c.response().body == body
            for _ in range(3):
                assert c.response().body == hit_of(t, d)
        with t.connect(port, family) as c:
            c.send(b"POST /hit HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n")
            for _ in range(40):
                c.send(b"x" * 1000)
            assert c.response().status == 405


def t_the_same_bytes_as_from_the_user_tier():
    t = tenants[1]
    for family in (4, 6):
        with t.born(SHARED, family) as a, t.connect(USER, family) as b:
            for target in ("/hit", "/nine", "/none", "/hit", "/"):
                x, y = a.get(target), b.get(target)
                assert x.bare() == y.bare(), (target, x, y)


def t_a_port_is_used_again():
    """The kernel may have a closed socket that nothing shows: it decides about the SYN."""
    t = tenants[0]
    for closing in (True, False):
        for _ in range(4):
            with t.connect(PORT, 4, 31000) as c:
                assert c.get("/hit").body == t.hit
                target, body = miss(t.daemon)
                c.send(talk.request(target, *["Connection: close"][:closing]))
                assert c.response().body == body
                if closing:
                    c.end()
                else:
                    c.reset()
            # the kernel has to acknowledge its FIN
            net.until(lambda: not t.where.sockets(31000), "the client's socket stays")
    n.server.over(PORT)


def t_forged_clients_ask_for_nothing():
    """A SYN and an ACK that nobody has sent: the kernel gets them, and is not asked for a way."""
    t = tenants[0]
    t.born().s.close()
    st = rawtcp.Station(n, n.links[0])
    try:
        before, to = late(t.daemon)["asked"], st.server(4)
        syn = rawtcp.options(mss=1460, sackok=True, ts=(1, 0), wscale=7)
        for i in range(500):
            source = f"10.95.{i >> 8}.{i & 255}"
            for seq, ack, flags, opts in ((1, 0, "S", syn), (2, 12345, "A", b"")):
                st.put(st.frame(4, st.ip(source, to, st.tcp(source, to, 1024 + i, PORT, seq, ack,
                                                            flags, 65535, opts))))
        st.barrier(4)
        talk.ask(t.daemon, "status")
        time.sleep(0.5)         # several times as long as the daemon waits before it asks
        assert late(t.daemon)["asked"] <= before + 20, (before, late(t.daemon))
    finally:
        st.close()


def is_orphan(remote):
    """Whether the kernel alone has the socket to this port of the client, and repeats its bytes."""
    with n.server.inside(), open("/proc/thread-self/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    return any(row[9] == "0" and row[3] == "04" for row in rows
               if row[2].endswith(f":{remote:04X}"))


def t_a_flood_of_syns_lets_no_connection_begin_twice():
    """A first request comes again: the kernel has answered it, with a socket that it has closed."""
    def is_wire():
        c = st.connect(to)
        try:
            return c.get(talk.request("/hit")).tier == "wire"
        finally:
            c.drop()

    t = tenants[0]
    t.born().s.close()
    st = rawtcp.Station(n, n.links[0])
    try:
        to = (st.server(4), PORT)
        net.until(is_wire, "never wire's")
        before, target = late(t.daemon), "/flood/page"
        c = st.connect(to)
        request = talk.request(target, "Connection: close")
        c.send(request)
        assert c.response(lose=True).status == 404
        after = late(t.daemon)
        assert [after[x] - before[x] for x in ("births", "handed")] == [1, 1], (before, after)
        # two seconds after that it is no socket of the daemon's any more
        net.until(lambda: is_orphan(c.port), "the daemon does not close it")
        # now wire would give another answer
        t.daemon.write(target[1:], talk.content("page", 600))
        with t.born() as other:
            net.until(lambda: other.get(target).tier == "wire", "it is not in the cache")
        syn = rawtcp.options(mss=1460, sackok=True, ts=(1, 0), wscale=7)
        for i in range(3 * 8192):       # of which wire remembers a third
            source = f"10.95.{i >> 8}.{i & 255}"
            frame = st.frame(4, st.ip(source, to[0], st.tcp(source, to[0], 1024, PORT, 1, 0, "S",
                                                            65535, syn)))
            for _ in range(2):          # as important as those of true clients
                st.put(frame)
        st.barrier(4)
        before = late(t.daemon)["births"]
        c.again(request, seq=1)
        c.pending()
        assert late(t.daemon)["births"] == before, "it has begun a second time"
        c.drop()
    finally:
        st.close()


def t_an_interface_leaves_its_vrf_and_comes_back():
    """Its connections end by a reset, or go on; new ones are the kernel's while it is out."""
    t = tenants[0]
    with t.born() as c, t.born(SHARED) as both:
        n.server.run("ip", "link", "set", t.link.name, "nomaster")
        try:
            for x in (c, both):
                x.s.settimeout(client.WAIT_S)
                got = t.hit
                with contextlib.suppress(ConnectionError, EOFError):
                    got = x.get("/hit").body
                assert got == t.hit, "of another connection"
            with t.connect(SHARED) as again:
                assert again.get("/hit").body == t.hit
        finally:
            t.enter()
    t.born().s.close()
    t.born(SHARED).s.close()
    with tenants[1].born() as c:
        assert c.get("/hit").body == tenants[1].hit


def t_a_connection_whose_interface_has_left_does_not_delay_the_end_of_the_daemon():
    """Its idle connections cannot be closed by a FIN any more."""
    t = tenants[0]
    try:
        with own() as d, t.born(OWN), t.born(OWN, 6):
            n.server.run("ip", "link", "set", t.link.name, "nomaster")
            begun = time.monotonic()
            assert d.stop() == 0, d.lines
            ktap.note(f"stopped within {time.monotonic() - begun:.1f} s")
    finally:
        t.enter()


def t_a_daemon_that_ends_resets_or_closes_its_connections():
    """And with it, all that is left of it in the VRF; the other tenant sees nothing."""
    t, other = tenants
    with other.born() as beside, t.born() as c, t.born() as late_one:
        target, body = miss(t.daemon)
        assert late_one.get(target).body == body
        t.daemon.process.send_signal(signal.SIGKILL)
        t.daemon.process.wait()
        for x in (c, late_one):
            x.s.settimeout(client.WAIT_S)
            try:
                x.send(talk.request("/hit"))
                x.send(talk.request("/hit"))
                got = x.s.recv(100)
                assert not got, got
            except ConnectionError:
                pass
        assert beside.get("/hit").body == other.hit
    t.daemon.clean()
    t.start()
    t.born().s.close()


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
