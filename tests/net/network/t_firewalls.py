#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Rule sets of hosts: a client that the user tier serves is served without a socket, too.

Each is loaded, then a daemon of the user tier and one of connections without a socket play the
same dialogue: hits, a miss, hits until the connection is given back, a miss, a large answer. What
may not connect to the one may not to the other, and no rule set makes any connection hang.
"""
import contextlib
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import rawtcp
import talk

PORT, OTHER = 8080, 8081                # without a socket; of the user tier
GIVE_BACK = 2
HIT = talk.content("hit", 600)
LARGE = talk.content("large", 200000)
n = d = user = None
miss_nr = 0

# What is dropped is `BAD`, an address of the client's.
BAD4, BAD6 = "10.87.0.66", "fd87::66"
PORTS = "{ 8080, 8081 }"
FIREWALLD = """
table inet firewalld {
  chain mangle_PREROUTING { type filter hook prerouting priority -140; policy accept; }
  chain nat_PREROUTING { type nat hook prerouting priority -90; policy accept; }
  chain nat_POSTROUTING { type nat hook postrouting priority 110; policy accept; }
  chain raw_PREROUTING { type filter hook prerouting priority -290; policy accept;
    icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
    meta nfproto ipv6 fib saddr . iif oif missing drop
  }
  chain filter_INPUT { type filter hook input priority 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_IN_public
    reject with icmpx type admin-prohibited
  }
  chain filter_IN_public { icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ip saddr 10.87.0.66 drop
    ip6 saddr fd87::66 drop
    meta l4proto { icmp, icmpv6 } accept
    tcp dport { 8080, 8081 } accept
  }
}"""
UFW = """
table ip6 filter {
  chain INPUT { type filter hook input priority 0; policy drop;
    iifname "lo" accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ct state related,established accept
    ct state invalid drop
    ip6 saddr fd87::66 drop
    tcp dport { 8080, 8081 } accept
  }
}
table ip filter {
  chain INPUT { type filter hook input priority 0; policy drop;
    iifname "lo" accept
    ct state related,established accept
    ct state invalid drop
    ip saddr 10.87.0.66 drop
    tcp dport { 8080, 8081 } accept
  }
}"""
# the server of nftables' own documentation
NFTABLES = """
table inet firewall {
  chain inbound_ipv4 {
    icmp type echo-request limit rate 5/second accept
  }
  chain inbound_ipv6 {
    icmpv6 type { nd-neighbor-solicit, nd-router-advert, nd-neighbor-advert } accept
  }
  chain inbound { type filter hook input priority 0; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname lo accept
    ip saddr 10.87.0.66 drop
    ip6 saddr fd87::66 drop
    meta protocol vmap { ip : jump inbound_ipv4, ip6 : jump inbound_ipv6 }
    tcp dport { 22, 80, 443, 8080, 8081 } accept
  }
  chain forward { type filter hook forward priority 0; policy drop; }
}"""
DOCKER = """
table ip nat {
  chain DOCKER { iifname "docker0" return
    iifname != "docker0" tcp dport 8089 dnat to 172.17.0.2:80
  }
  chain PREROUTING { type nat hook prerouting priority -100; policy accept;
    fib daddr type local jump DOCKER
  }
  chain OUTPUT { type nat hook output priority -100; policy accept;
    ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER
  }
  chain POSTROUTING { type nat hook postrouting priority 100; policy accept;
    oifname != "docker0" ip saddr 172.17.0.0/16 masquerade
  }
}
table ip filter {
  chain FORWARD { type filter hook forward priority 0; policy drop;
    oifname "docker0" ct state related,established accept
  }
}"""
NEW_NOT_SYN = """
table inet strict {
  chain inward { type filter hook input priority 0; policy accept;
    tcp flags & (fin|syn|rst|ack) != syn ct state new drop
    ct state invalid drop
  }
}"""
SYN_ALONE_IS_NEW = """
table inet strict {
  chain inward { type filter hook input priority 0; policy drop;
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ip saddr 10.87.0.66 drop
    ip6 saddr fd87::66 drop
    tcp dport { 8080, 8081 } tcp flags & (fin|syn|rst|ack) == syn ct state new accept
  }
}"""
NOTRACK = """
table inet raw {
  chain prerouting {
    type filter hook prerouting priority -300; tcp dport { 8080, 8081 } notrack
  }
  chain output {
    type filter hook output priority -300; tcp sport { 8080, 8081 } notrack
  }
  chain inward { type filter hook input priority 0; policy drop;
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ct state invalid drop
    ct state established,related accept
    ip saddr 10.87.0.66 drop
    ip6 saddr fd87::66 drop
    ct state untracked tcp dport { 8080, 8081 } accept
  }
}"""
OUTWARD = """
table inet outward {
  chain answers { type filter hook %s priority 0; policy accept;
    ip daddr 10.87.0.66 drop
    ip6 daddr fd87::66 drop
  }
}"""
OPEN = """
table inet odd {
  chain inward { type filter hook input priority 0; policy accept;
    ct state invalid drop
  }
}"""
NO_RESETS = """
table inet odd {
  chain inward { type filter hook input priority 0; policy accept;
    ct state invalid drop
    tcp dport { 8080, 8081 } tcp flags & rst == rst drop
  }
}"""


def begin():
    global n, d, user
    n = net.Net(links=1)
    n.client.run("ip", "addr", "add", BAD4 + "/24", "dev", n.links[0].name)
    n.client.run("ip", "addr", "add", BAD6 + "/64", "dev", n.links[0].name, "nodad",
                 "preferred_lft", "0")
    # a segment that a rule drops is sent again soon
    n.client.run("ip", "route", "change", "10.87.0.0/24", "dev", n.links[0].name, "src",
                 n.links[0].client4, "rto_min", "200ms")
    n.client.run("ip", "-6", "route", "replace", "fd87:0::/64", "dev", n.links[0].name,
                 "metric", "1", "rto_min", "200ms")
    # what the machine does without, no test below can load
    try:
        load(
            "add table inet tbg; add chain inet tbg inward { type filter hook input priority 0; }\n"
             "add rule inet tbg inward ct state new accept")
        n.server.run("nft", "flush", "ruleset")
    except (RuntimeError, FileNotFoundError) as why:
        end()
        raise ktap.Skip(f"no nftables with conntrack: {why}") from why
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", "--late-sockets", "auto", "--give-back",
                          str(GIVE_BACK), listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        user = daemon.Daemon("--tiers", "user", listen=(f"0.0.0.0:{OTHER}", f"[::]:{OTHER}"))
        for one in (d, user):
            one.write("hit", HIT)
            one.write("large", LARGE)
            one.start()
    why = None if talk.ask(d, "status")["tiers"]["wire"]["on"] else d.why_no_wire()
    why = why or talk.no_late_sockets(d)
    if why:
        end()
        raise ktap.Skip(why)
    with connect(PORT, 4) as c:
        c.get("/hit")
        c.get("/large")


def end():
    for one in (d, user):
        if one and one.process:
            assert one.stop() == 0, one.lines
    if n:
        n.close()


def late():
    return talk.ask(d, "status")["late_sockets"]


def load(rules):
    n.server.run("sh", "-c", f"nft -f - <<'END'\n{rules}\nEND")


@contextlib.contextmanager
def firewall(rules, **sysctls):
    """The rules and conntrack's settings, until the end."""
    load(rules)
    was = {name: n.server.sysctl(f"netfilter.nf_conntrack_tcp_{name}", value)
           for name, value in sysctls.items()}
    try:
        net.until(lambda: late()["syns"] != "wire", "the rules are not seen")
        if sysctls.get("loose") == 0:
            net.until(lambda: late()["tracks"], "the sysctl is not seen")
        yield
    finally:
        for name, value in was.items():
            n.server.sysctl(f"netfilter.nf_conntrack_tcp_{name}", value)
        n.server.run("nft", "flush", "ruleset")
        net.until(lambda: late()["syns"] == "wire", "it is not seen that the rules have gone")


def connect(port, family, bad=False, timeout=client.WAIT_S):
    link = n.links[0]
    source = ((BAD4 if family == 4 else BAD6), 0) if bad else None
    address = (link.server4 if family == 4 else link.server6, port)
    return talk.Connection(n.client.connect(address, source=source, timeout=timeout))


def miss():
    global miss_nr
    miss_nr += 1
    body = talk.content(f"miss {miss_nr}", 700)
    for one in (d, user):
        one.write(f"{miss_nr}/miss", body)
    return f"/{miss_nr}/miss", body


def dialogue(c):
    """Every byte of the answers of all tiers, on one connection, to its end."""
    for _ in range(2):
        for _ in range(3):
            assert c.get("/hit").body == HIT
        target, body = miss()
        assert c.get(target).body == body
        for _ in range(GIVE_BACK + 2):
            assert c.get("/hit").body == HIT
    assert c.get("/large").body == LARGE
    c.send(talk.request("/hit", "Connection: close"))
    assert c.response().body == HIT
    c.end()


def refused(port, family):
    try:
        connect(port, family, bad=True, timeout=0.4).close()
    except (TimeoutError, ConnectionRefusedError, OSError):
        return True
    return False


def played(rules, bad=True, clean=True, times=1, **sysctls):
    """What becomes of each client is the same, by either daemon. By how late sockets went."""
    with firewall(rules, **sysctls):
        before = late()
        for family in (4, 6):
            for port in (OTHER, PORT):
                for _ in range(times):
                    with connect(port, family) as c:
                        dialogue(c)
                assert refused(port, family) == bad, (port, family)
        after = late()
        assert clean == (after["refused"] == before["refused"]), after
        return {key: after[key] - before[key] for key in ("births", "handed", "given")}, after


def t_firewalld():
    """It has NAT, which loses late sockets: the daemon tells conntrack of each first."""
    moved, after = played(FIREWALLD)
    assert "table firewalld" in after["syns_why"] and "NAT" in after["syns_why"], after
    assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


def t_ufw():
    moved, _ = played(UFW)
    assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


def t_nftables_own_example():
    moved, _ = played(NFTABLES)
    assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


def t_docker():
    """The same. With others coming between, no late socket has the port of its client by chance."""
    with firewall(DOCKER):
        opened = [connect(PORT, 4) for _ in range(10)]
        for c in opened:
            assert c.get("/hit").body == HIT
        others = [connect(OTHER, 4) for _ in range(10)]
        for c in opened:
            dialogue(c)
        for c in others:
            c.close()
    moved, after = played(DOCKER, bad=False)
    assert "table nat" in after["syns_why"] and "NAT" in after["syns_why"], after
    assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


def repeats(c):
    """Segments that the client has sent again so far (struct tcp_info)."""
    info = c.s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("I", info, 100)[0]


def t_no_client_waits_for_conntrack():
    """The segment that is the first of the kernel is not sent again by its client."""
    with firewall(FIREWALLD):
        silent = 0
        for i in range(20):
            with connect(PORT, 4 + 2 * (i % 2)) as c:
                assert c.get("/hit").body == HIT
                target, body = miss()
                assert c.get(target).body == body
                silent += not repeats(c)
        # the rest: a machine that stands still for 200 ms
        assert silent >= 15, silent


def t_misses_of_all_kinds_beside_nat():
    """Longer than what the daemon lets arrive again, in parts, the last, behind hits."""
    long = talk.request("/hit", *[f"X-{i}: {1000 * 'x'}" for i in range(6)])
    with firewall(FIREWALLD):
        for family in (4, 6):
            with connect(PORT, family) as c:
                c.send(3 * talk.request("/hit") + talk.request("/none") + talk.request("/hit"))
                assert [c.response().status for _ in range(5)] == [200, 200, 200, 404, 200]
            with connect(PORT, family) as c:
                assert c.get("/hit").body == HIT
                c.send(long)
                assert c.response().body == HIT
            with connect(PORT, family) as c:
                for part in (long[:10], long[10:2000], long[2000:]):
                    c.send(part)
                    time.sleep(0.02)
                assert c.response().body == HIT
            with connect(PORT, family) as c:
                assert c.get("/hit").body == HIT
                target, body = miss()
                c.send(talk.request(target))
                c.s.shutdown(socket.SHUT_WR)
                assert c.response().body == body
                c.end()


def t_entries_do_not_stay_for_days():
    """Conntrack does not see the end of a connection that was given back."""
    for rules in (UFW, FIREWALLD):
        with firewall(rules, timeout_unacknowledged=86400, timeout_established=86400):
            before = late()["given"]
            with connect(PORT, 4) as c:
                target, body = miss()
                assert c.get(target).body == body
                for _ in range(GIVE_BACK + 2):
                    assert c.get("/hit").body == HIT
                assert late()["given"] == before + 1
                c.send(talk.request("/hit", "Connection: close"))
                assert c.response().body == HIT
                c.end()
                [line] = tracked(c)
                assert int(line.split()[4]) <= 300, line


def used(st, port, family):
    """A connection from a fixed port that has had a hit, and an answer of the daemon."""
    c = rawtcp.Connection(st, (st.server(family), port), port=30000 + family).open()
    assert c.get(talk.request("/hit")).body == HIT
    target, body = miss()
    assert c.get(talk.request(target)).body == body
    return c


def t_ports_that_clients_use_again_beside_nat():
    """After a reset, after a FIN, and where the client has forgotten a connection that exists."""
    st = rawtcp.Station(n, n.links[0])

    def challenged(c):
        c.put("S", c.at + 100000, None, opts=rawtcp.options(mss=1460))
        st.barrier(c.family)
        return any(seg.flags == "." for seg in c.pending())

    try:
        with firewall(FIREWALLD):
            for port, family in ((OTHER, 4), (PORT, 4), (OTHER, 6), (PORT, 6)):
                used(st, port, family).drop()
                c = used(st, port, family)
                net.until(lambda c=c: challenged(c), "no answer to a SYN", 10)
                c.drop()
                c = used(st, port, family)
                c.send(flags="F.")
                c.expect("F.")
                c.send()
                c.forget()
                used(st, port, family).drop()
    finally:
        st.close()


def t_who_is_refused_by_what_drops_the_answers():
    for hook in ("output", "postrouting"):
        moved, after = played(OUTWARD % hook)
        assert hook in after["syns_why"], after
        assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


def t_what_is_not_tracked():
    moved, _ = played(NOTRACK)
    assert moved["births"] >= 2 and moved["handed"] >= 2, moved


def t_conntrack_that_forgets_within_a_second():
    """Between any two of the dialogue, what conntrack knew may have gone."""
    for rules, family in ((UFW, 6), (NFTABLES, 4)):
        with firewall(rules, timeout_established=1, timeout_close=1, timeout_unacknowledged=1), \
                connect(PORT, family) as c:
            assert c.get("/hit").body == HIT
            # conntrack's clock, and no event that tells of it
            net.until(lambda c=c: not tracked(c), "conntrack forgets nothing", 60)
            target, body = miss()
            assert c.get(target).body == body
            net.until(lambda c=c: not tracked(c), "conntrack forgets nothing", 60)
            dialogue(c)


def tracked(c):
    """The connection's entry in conntrack. A socket in use would make a new one."""
    with n.server.inside(), open("/proc/thread-self/net/nf_conntrack", encoding="ascii") as f:
        return [line for line in f if f"sport={c.s.getsockname()[1]} " in line]


def t_hand_over_that_conntrack_calls_new_is_helped():
    """
    The rules drop what is new and no SYN, as the miss of such a connection is: conntrack is told
    of it, and the client's next try gets through. After a few, it is told of each before.
    """
    for rules in (NEW_NOT_SYN, SYN_ALONE_IS_NEW):
        with firewall(rules):
            for _ in range(20):
                with connect(PORT, 4) as c:
                    dialogue(c)
                if late()["tracks"]:
                    break
            assert refused(PORT, 4) == (rules is SYN_ALONE_IS_NEW)
            time.sleep(0.3)     # all of the last dialogue are counted
            assert "dropped by the firewall" in talk.text(d, "status")
            assert "conntrack learns" in talk.text(d, "status")
            before = late()
            for family in (4, 6):
                with connect(PORT, family) as c:
                    dialogue(c)
            after = late()
            assert after["refused"] == before["refused"], (before, after)
            assert after["handed"] >= before["handed"] + 2, (before, after)
    assert (late()["syns"], late()["tracks"]) == ("wire", False), late()


def t_connections_that_cannot_be_withdrawn_are_the_kernel_s():
    """
    Rules that drop resets leave the half-open request in the kernel: it goes on with the first
    request of the connection, and after a few, nothing is taken from it any more.
    """
    def alone():
        for family in (4, 6):
            with connect(PORT, family) as c:
                dialogue(c)
        return late()["syns"] == "the kernel alone, which keeps the connections"

    with firewall(NO_RESETS):
        for family in (4, 6):
            with connect(OTHER, family) as c:
                dialogue(c)
        net.until(alone, "half-open requests that stay are not noticed")
        assert "drops resets" in late()["syns_why"], late()


@contextlib.contextmanager
def blamed_on_nobody():
    """Raw connections, whatever segments of theirs the kernel drops: the firewall drops none."""
    st = rawtcp.Station(n, n.links[0])
    try:
        with firewall(OPEN):
            before = late()["refused"]
            yield lambda **how: rawtcp.Connection(st, (st.server(4), PORT), **how)
            after = late()
            assert (after["refused"], after["syns"]) == (before, "the kernel"), after
    finally:
        st.close()


def t_timestamps_that_the_kernel_refuses_are_not_blamed_on_the_rules():
    """It ignores a reset with an older one than the SYN's, or (6.14) that echoes an unknown one."""
    with blamed_on_nobody() as new:
        for older, wrong in ((1000, 0), (0, 5000), (0, -5000)):
            for _ in range(4):
                c = new(ts_start=5000)
                c.handshake()
                val, ecr = c.tsval() - older, c.expect("S.").options["ts"][0] + wrong
                c.tsvals.add(val)
                c.put(".", 1, 1, opts=rawtcp.options(ts=(val, ecr)))
                c.st.barrier(4)
                c.queue.clear()         # what the kernel says to that; not echoed below
                assert c.get(talk.request("/hit")).body == HIT
                c.drop()


def t_damaged_segments_are_not_blamed_on_the_rules():
    """A request that is too long for wire to check, damaged and then whole."""
    request = talk.request("/hit", "X-Long: " + 3000 * "x")
    for end in (n.server, n.client):
        end.run("ip", "link", "set", "tbg0", "mtu", "9000")
    with blamed_on_nobody() as new:
        for _ in range(4):
            c = new(mss=8960).open()
            c.put("P.", 1, 1, request, c.options(), raw=rawtcp.damaged)
            c.quiet()
            c.send_merged(request, 1448)
            assert c.response().body == HIT
            c.drop()
    for end in (n.server, n.client):
        end.run("ip", "link", "set", "tbg0", "mtu", "1500")


def t_loose_conntrack_that_is_off():
    """Conntrack takes up no connection in its middle: the daemon tells it of each first."""
    for rules in (UFW, SYN_ALONE_IS_NEW):
        moved, _ = played(rules, loose=0)
        assert moved["births"] >= 2 and moved["handed"] >= 2 and moved["given"] >= 2, moved


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
