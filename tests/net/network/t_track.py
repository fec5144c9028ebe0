#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hand-overs beside NAT when something is in their way.

Conntrack loses its entries or accepts none, the daemon stands still, requests have many segments,
or NAT sends other connections elsewhere. The rules, the two daemons and what is played are those
of t_firewalls.py.
"""
import contextlib
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import conntrack
import daemon
import ktap
import net
import origin
import rawtcp
import t_firewalls as fw
import talk

begin, end = fw.begin, fw.end           # pylint: disable=invalid-name

UPLOAD = talk.content("upload", 1 << 20)
RING_SEGMENTS = 165             # of the ring between BPF and the daemon


def flush():
    conntrack.flush(fw.n.server)


def miss(c):
    target, body = fw.miss()
    assert c.get(target).body == body


def hits(c, nr=fw.GIVE_BACK + 2):
    for _ in range(nr):
        assert c.get("/hit").body == fw.HIT


def t_conntrack_forgets_idle_connections():
    """Before a miss, after it, once the connection is given back, and again."""
    for rules in (fw.FIREWALLD, fw.DOCKER, fw.UFW):
        with fw.firewall(rules):
            before = fw.late()
            for family in (4, 6):
                for port in (fw.OTHER, fw.PORT):
                    with fw.connect(port, family) as c:
                        for _ in range(3):
                            hits(c)
                            flush()
                            hits(c)
                            flush()
                            miss(c)
                            flush()
                            miss(c)
                            flush()
                        fw.dialogue(c)
            after = fw.late()
            assert after["handed"] >= before["handed"] + 6, (before, after)
            assert after["given"] >= before["given"] + 2, (before, after)
            assert after["refused"] == before["refused"], (before, after)


def t_conntrack_forgets_what_it_would_not_pick_up():
    """With nf_conntrack_tcp_loose=0, what has a socket is lost, by the user tier as well."""
    for rules in (fw.UFW, fw.FIREWALLD):
        for family in (4, 6):
            with fw.firewall(rules, loose=0), fw.connect(fw.PORT, family) as c:
                hits(c)
                flush()
                miss(c)
                given = fw.late()["given"]
                hits(c)
                assert fw.late()["given"] == given + 1
                flush()
                fw.dialogue(c)


def t_conntrack_forgets_during_a_large_answer():
    """The kernel's own segments bring the connection back."""
    for rules in (fw.FIREWALLD, fw.DOCKER):
        with fw.firewall(rules):
            for family in (4, 6):
                for port in (fw.OTHER, fw.PORT):
                    with fw.connect(port, family) as c:
                        hits(c)
                        c.send(talk.request("/large"))
                        got = c.s.recv(1000)
                        flush()
                        got += c.s.recv(1000)
                        flush()
                        c.got = got + c.got
                        assert c.response().body == fw.LARGE
                        fw.dialogue(c)


def t_conntrack_forgets_all_the_time():
    """Right bytes, or a reset; and never a client that waits for ever."""
    over = threading.Event()
    flushes = resets = 0

    def flush_on():
        nonlocal flushes
        while not over.wait(0.002):
            flush()
            flushes += 1

    with fw.firewall(fw.FIREWALLD):
        flusher = threading.Thread(target=flush_on)
        flusher.start()
        try:
            for i in range(20):
                with fw.connect((fw.OTHER, fw.PORT)[i % 2], 4 + i // 2 % 2 * 2) as c:
                    try:
                        fw.dialogue(c)
                    except (ConnectionResetError, EOFError):
                        resets += 1
        finally:
            over.set()
            flusher.join()
        assert flushes > 20 and resets < 5, (flushes, resets)
        for family in (4, 6):
            with fw.connect(fw.PORT, family) as c:
                fw.dialogue(c)


@contextlib.contextmanager
def offloads(gro="off", **features):
    """How the client sends, and whether the server merges what it receives."""
    link = fw.n.links[0]
    try:
        link.offload(("client",), **features)
        link.offload(("server",), gro=gro)
        yield
    finally:
        link.offload(("client",), **dict.fromkeys(features, "on"))
        link.offload(("server",), gro="off")


# segments as long as the client's kernel makes them, single ones, and merged by the receiver
WAYS = ({"tso": "on"}, {"tso": "off", "gso": "off"}, {"tso": "off", "gso": "off", "gro": "on"})


def t_no_segment_of_a_long_miss_is_sent_again():
    """All of them wait for conntrack, and arrive in order."""
    with fw.firewall(fw.FIREWALLD):
        for length in (2500, 6000, 12000):
            request = talk.request("/hit", *[f"X-{i}: {500 * 'x'}" for i in range(length // 500)])
            for way in WAYS:
                silent = 0
                with offloads(**way):
                    for i in range(10):
                        with fw.connect(fw.PORT, 4 + 2 * (i % 2)) as c:
                            assert c.get("/hit").body == fw.HIT
                            c.send(request)
                            assert c.response().body == fw.HIT
                            silent += not fw.repeats(c)
                # the rest: a machine that stands still for 200 ms
                assert silent >= 7, (length, way, silent)


def t_segments_that_wait_arrive_once_and_in_order():
    """
    A client that never sends anything again is answered, whatever comes between its segments:
    damaged ones, repeats, other bytes for the same place, one from beyond a gap.
    """
    request = talk.request("/hit", *[f"X-{i}: {500 * 'x'}" for i in range(5)])
    parts = [request[at:at + 700] for at in range(0, len(request), 700)]
    st = rawtcp.Station(fw.n, fw.n.links[0])
    try:
        with fw.firewall(fw.FIREWALLD):
            for family in (4, 6):
                c = rawtcp.Connection(st, (st.server(family), fw.PORT)).open()
                assert c.get(talk.request("/hit")).body == fw.HIT
                before, first = talk.counts(fw.d), c.at
                with daemon.stopped(fw.d.pid):
                    for part in parts:
                        other = bytes(len(part))
                        c.put("P.", c.at, c.got, other, c.options(), raw=rawtcp.damaged)
                        c.put("P.", c.at + 3000, c.got, other, c.options())
                        c.send(part)
                        c.put("P.", c.at - len(part), c.got, other, c.options())
                        c.put("P.", first, c.got, parts[0], c.options())
                    st.barrier(family)
                assert c.response().body == fw.HIT
                after = talk.counts(fw.d)
                # the parts, and what came again in the first one's place: other bytes, and itself
                counted = after["UNTRACKED"] - before["UNTRACKED"]
                assert counted == len(parts) + 1 + len(parts), (counted, after)
                assert c.get(talk.request("/hit")).body == fw.HIT
                c.drop()
    finally:
        st.close()


@contextlib.contextmanager
def proxies():
    """An upstream server, and the ports of two daemons in front of it."""
    with fw.n.server.inside(), origin.Origin() as o:
        o.on("/hit", origin.reply(200, fw.HIT, "Cache-Control: max-age=600"))
        o.on("/up", origin.digest, raw=True)
        ports = {"--tiers user": 8083, "--wire tbg0": 8082}
        with contextlib.ExitStack() as stack:
            for words, port in ports.items():
                stack.enter_context(daemon.Daemon(
                    *words.split(), "--give-back", str(fw.GIVE_BACK), "--upstream", o.url,
                    listen=(f"0.0.0.0:{port}", f"[::]:{port}")))
            yield o, ports.values()


def t_uploads():
    """As the first miss of a connection, and as a later one; the upstream server sees each once."""
    with proxies() as (o, ports), fw.firewall(
            fw.DOCKER + fw.FIREWALLD.replace("{ 8080, 8081 }", "{ 8080-8083 }")):
        digest = origin.hashlib.sha256(UPLOAD).hexdigest().encode()
        wanted = 0
        for way in WAYS:
            with offloads(**way):
                for port in ports:
                    for family in (4, 6):
                        for method in ("POST", "PUT"):
                            with fw.connect(port, family) as c:
                                hits(c)
                                for _ in range(2):
                                    c.send(talk.request("/up", f"Content-Length: {len(UPLOAD)}",
                                                        method=method, body=UPLOAD))
                                    assert c.response().body == digest
                                    hits(c)
                            wanted += 2
                            assert len(o.seen("/up")) == wanted


def t_conntrack_that_is_full():
    """Wire's hits go on. What misses waits a little, or is reset; then all is as before."""
    for rules in (fw.FIREWALLD, fw.UFW):
        with fw.firewall(rules), contextlib.ExitStack() as stack:
            hit, waits, *lost = (stack.enter_context(fw.connect(fw.PORT, 4)) for _ in range(5))
            for c in (hit, waits, *lost):
                hits(c)
            with conntrack.full(fw.n.server):
                for c in lost:
                    c.send(talk.request("/none"))
                assert all(c.ended() for c in lost)
                net.until(lambda: rules is fw.UFW or "takes no entries" in fw.late()["syns_why"],
                          "what conntrack refuses is not seen")
                assert fw.refused(fw.PORT, 4) and fw.refused(fw.OTHER, 4)
                hits(hit)
                target, body = fw.miss()
                waits.send(talk.request(target))
                net.until(lambda: fw.repeats(waits), "nothing is sent again")
            assert waits.response().body == body
            net.until(lambda: fw.late()["syns"] == "the kernel", "conntrack stays refused")
            before = fw.late()
            for c in (hit, waits):
                fw.dialogue(c)
            for family in (4, 6):
                with fw.connect(fw.PORT, family) as c:
                    fw.dialogue(c)
            after = fw.late()
            assert after["births"] >= before["births"] + 2, (before, after)
            assert after["handed"] >= before["handed"] + 2, (before, after)


def t_daemon_that_stands_still():
    """
    Longer than a client would try in vain, with more misses than the ring holds. Wire goes on; what
    misses waits; new connections are the kernel's, until the daemon is there again.
    """
    with fw.firewall(fw.FIREWALLD), contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(fw.connect(fw.PORT, 4 + 2 * (i % 2)))
                   for i in range(RING_SEGMENTS + 40)]
        go_on = stack.enter_context(fw.connect(fw.PORT, 4))
        for c in (*waiting, go_on):
            assert c.get("/hit").tier == "wire"
        births = fw.late()["births"]
        target, body = fw.miss()
        with daemon.stopped(fw.d.pid):
            for c in waiting:
                c.send(talk.request(target))
            new = stack.enter_context(fw.connect(fw.PORT, 4))
            new.send(talk.request("/hit"))
            # by then it would be given up
            net.until(lambda: fw.repeats(waiting[0]) > 4, "nothing is sent again")
            hits(go_on)
            assert not waiting[0].got and not new.got
        for c in waiting:
            assert c.response().body == body
        assert new.response().body == fw.HIT
        assert fw.late()["births"] == births, "a birth, although the daemon is behind"
        for family in (4, 6):
            with fw.connect(fw.PORT, family) as c:
                fw.dialogue(c)
        assert fw.late()["births"] == births + 2, "the daemon has caught up"
        for c in waiting[:10]:
            fw.dialogue(c)


# As Docker publishes ports: another one than ours, ours at another address, and from within.
PUBLISHED = """
table ip nat {
  chain DOCKER {
    ip daddr 10.87.0.98 tcp dport 8080 dnat to 172.17.0.2:8080
    ip daddr 10.87.0.98 tcp dport 8089 dnat to 10.87.0.1:8080
    tcp dport 8089 dnat to 172.17.0.2:8080
  }
  chain PREROUTING { type nat hook prerouting priority -100; policy accept;
    fib daddr type local jump DOCKER
  }
  chain OUTPUT { type nat hook output priority -100; policy accept;
    fib daddr type local jump DOCKER
  }
  chain POSTROUTING { type nat hook postrouting priority 100; policy accept;
    ip saddr 172.17.0.2 ip daddr 172.17.0.2 masquerade
    oifname != "docker0" ip saddr 172.17.0.0/16 masquerade
  }
}
table ip filter {
  chain FORWARD { type filter hook forward priority 0; policy accept; }
}"""


@contextlib.contextmanager
def container():
    """A network behind the server, on a bridge, with a server at the port that wire serves."""
    ns = net.Namespace()
    server = fw.n.server
    try:
        try:
            server.run("ip", "link", "add", "docker0", "type", "bridge")
        except RuntimeError as why:
            raise ktap.Skip(f"no bridge: {why}") from why
        server.run("ip", "link", "add", "port0", "type", "veth", "peer", "name", "eth0", "netns",
                   f"/proc/{os.getpid()}/fd/{ns.fd}")
        server.run("ip", "link", "set", "port0", "master", "docker0", "up")
        server.run("ip", "link", "set", "port0", "type", "bridge_slave", "hairpin", "on")
        server.run("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        server.run("ip", "link", "set", "docker0", "up")
        ns.run("ip", "address", "add", "172.17.0.2/16", "dev", "eth0")
        ns.run("ip", "link", "set", "eth0", "up")
        ns.run("ip", "route", "add", "default", "via", "172.17.0.1")
        server.sysctl("ipv4.ip_forward", 1)
        with ns.inside():
            inner = daemon.Daemon("--tiers", "user", listen=("0.0.0.0:8080",))
            inner.write("hit", b"inner")
            inner.start()
        try:
            yield ns
        finally:
            assert inner.stop() == 0, inner.lines
    finally:
        server.sysctl("ipv4.ip_forward", 0)
        server.run("ip", "link", "del", "docker0", check=False)
        ns.close()


def t_published_ports():
    """A container's connections are not wire's, whatever port they have on the way."""
    server, outside = fw.n.server, fw.n.client
    server.run("ip", "address", "add", "10.87.0.98/24", "dev", "tbg0")
    try:
        with container() as inside, fw.firewall(PUBLISHED), server.inside():
            net.until(lambda: "NAT" in fw.late()["syns_why"], "the rules are not seen")
            with daemon.Daemon("--wire", "docker0", listen=("172.17.0.1:8082",)) as bridge:
                bridge.write("hit", b"bridge")
                for who, address, want in (
                        (outside, ("10.87.0.1", 8089), b"inner"),
                        (outside, ("10.87.0.98", 8080), b"inner"),
                        (outside, ("10.87.0.98", 8089), fw.HIT),
                        (outside, ("10.87.0.1", 8080), fw.HIT),
                        (server, ("10.87.0.1", 8089), b"inner"),
                        (server, ("10.87.0.1", 8080), fw.HIT),
                        (inside, ("172.17.0.1", 8089), b"inner"),
                        (inside, ("10.87.0.1", 8089), b"inner"),
                        (inside, ("10.87.0.98", 8080), b"inner"),
                        (inside, ("172.17.0.1", 8082), b"bridge"),
                        (inside, ("172.17.0.1", 8080), fw.HIT),
                        (inside, ("10.87.0.1", 8080), fw.HIT),
                        (inside, ("10.87.0.98", 8089), fw.HIT)):
                    with talk.Connection(who.connect(address)) as c:
                        for _ in range(2):
                            for _ in range(4):
                                got = c.get("/hit").body
                                assert got == want, (who, address, got)
                            assert c.get("/none").status == 404
    finally:
        server.run("ip", "address", "del", "10.87.0.98/24", "dev", "tbg0")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
