#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hand-overs beside NAT, where each segment that misses first arrives twice.

The daemon tells conntrack of the connection in between. The rules, the two daemons and what is
played are those of t_firewalls.py.
"""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon
import ktap
import net
import rawtcp
import t_firewalls as fw
import talk

begin, end = fw.begin, fw.end           # pylint: disable=invalid-name

BY_TTL = """
table inet nats {
  chain before { type nat hook prerouting priority -100; policy accept; }
  chain inward { type filter hook input priority 0; policy accept;
    tcp dport { 8080, 8081 } ip ttl < 65 drop
    tcp dport { 8080, 8081 } ip6 hoplimit < 65 drop
    tcp dport { 8080, 8081 } ct state established ip dscp != cs1 drop
    tcp dport { 8080, 8081 } ct state established ip6 dscp != cs1 drop
  }
}"""
MASQUERADE = """
table inet nats {
  chain behind { type nat hook postrouting priority 100; policy accept;
    oifname "lo" tcp dport { 8080, 8081 } masquerade random
  }
}"""
FROM_ELSEWHERE = """
table inet nats {
  chain behind { type nat hook postrouting priority 100; policy accept;
    oifname "lo" tcp dport { 8080, 8081 } snat ip to 127.0.0.9
  }
}"""
TO_OURSELVES = """
table inet nats {
  chain outward { type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.5 dnat ip to 127.0.0.1
    ip daddr 10.87.0.1 dnat ip to 127.0.0.1
    ip6 daddr fd87::1 dnat ip6 to ::1
  }
}"""
# at prerouting and input, of what comes from other hosts
AT_THE_DOOR = """
table inet nats {
  chain before { type nat hook prerouting priority -100; policy accept;
    ip daddr 10.87.0.0/24 tcp dport 80 dnat ip to 10.87.0.1:8080
    ip daddr 10.87.0.0/24 tcp dport 81 dnat ip to 10.87.0.1:8081
    ip daddr 10.87.0.98 dnat ip to 10.87.0.1
  }
  chain inward { type nat hook input priority 100; policy accept;
    ip daddr 10.87.0.1 tcp dport { 8080, 8081 } snat ip to 10.87.0.200
  }
}"""


@contextlib.contextmanager
def option(namespace, **values):
    was = {name: namespace.sysctl(name.replace("__", "."), value)
           for name, value in values.items()}
    try:
        yield
    finally:
        for name, value in was.items():
            namespace.sysctl(name.replace("__", "."), value)


def t_damaged_segment_does_not_arrive_again():
    """Wire does not check so long a one; the one made of it would have a right checksum."""
    request = talk.request("/none", "X-Long: " + 2500 * "x")
    st = rawtcp.Station(fw.n, fw.n.links[0])
    for ns in (fw.n.server, fw.n.client):
        ns.run("ip", "link", "set", "tbg0", "mtu", "9000")
    try:
        with fw.firewall(fw.FIREWALLD):
            for family in (4, 6):
                c = rawtcp.Connection(st, (st.server(family), fw.PORT), mss=8940).open()
                assert c.get(talk.request("/hit")).body == fw.HIT
                before = talk.counts(fw.d)["UNTRACKED"]
                c.put("P.", c.at, c.got, request, c.options(),
                      raw=lambda seg: seg.replace(b"/none", b"/hit?"))
                net.until(lambda: talk.counts(fw.d)["UNTRACKED"] > before)  # pylint: disable=W0640
                for _ in range(5):
                    time.sleep(0.02)
                    c.quiet()
                c.send(request)
                assert c.response().status == 404
                c.drop()
    finally:
        st.close()
        for ns in (fw.n.server, fw.n.client):
            ns.run("ip", "link", "set", "tbg0", "mtu", "1500")


def t_segment_arrives_again_as_it_was():
    """Its hop limit and its class, which rules look at."""
    st = rawtcp.Station(fw.n, fw.n.links[0])
    put = st.ip
    st.ip = lambda *args, **more: put(*args, **{**more, "ttl": 128, "tos": 8 << 2})
    try:
        with fw.firewall(BY_TTL):
            before = fw.late()
            for family in (4, 6):
                for port in (fw.OTHER, fw.PORT):
                    c = rawtcp.Connection(st, (st.server(family), port)).open()
                    assert c.get(talk.request("/hit")).body == fw.HIT
                    target, body = fw.miss()
                    assert c.get(talk.request(target)).body == body
                    c.drop()
            after = fw.late()
            assert after["handed"] >= before["handed"] + 2, (before, after)
            assert after["refused"] == before["refused"], (before, after)
    finally:
        st.close()


def here(port, address):
    return talk.Connection(fw.n.server.connect((address, port)))


@contextlib.contextmanager
def on_lo():
    """Another daemon in place of the first one, for the clients of this machine."""
    assert fw.d.stop() == 0, fw.d.lines
    with fw.n.server.inside():
        fw.d = daemon.Daemon(*("lo" if word == "tbg0" or word == "tbg0:xdp" else word
                               for word in fw.d.options), listen=fw.d.listen)
        fw.d.write("hit", fw.HIT)
        fw.d.write("large", fw.LARGE)
        fw.d.start()
    try:
        with here(fw.PORT, "127.0.0.1") as c:
            c.get("/hit")
            c.get("/large")
        yield
    finally:
        assert fw.d.stop() == 0, fw.d.lines
        with fw.n.server.inside():
            fw.d = daemon.Daemon(*("tbg0" if word == "lo" else word for word in fw.d.options),
                                 listen=fw.d.listen)
            fw.d.write("hit", fw.HIT)
            fw.d.write("large", fw.LARGE)
            fw.d.start()
        with fw.connect(fw.PORT, 4) as c:
            c.get("/hit")
            c.get("/large")


def t_clients_of_this_machine():
    """Their segments have a route with them, without which they are not received again."""
    with on_lo():
        for rules in (fw.FIREWALLD, fw.DOCKER):
            with fw.firewall(rules):
                before = fw.late()
                for address in ("127.0.0.1", "::1", "10.87.0.1", "fd87::1"):
                    for port in (fw.OTHER, fw.PORT):
                        with here(port, address) as c:
                            fw.dialogue(c)
                after = fw.late()
                assert after["handed"] >= before["handed"] + 4, (before, after)
                assert after["given"] >= before["given"] + 4, (before, after)
                assert after["refused"] == before["refused"], (before, after)


def t_clients_of_this_machine_whose_addresses_nat_changes():
    """Conntrack alone knows the right ones."""
    with on_lo():
        for rules in (MASQUERADE, FROM_ELSEWHERE, TO_OURSELVES):
            with fw.firewall(rules):
                before = fw.late()
                for address in ("127.0.0.1", "127.0.0.5", "::1", "10.87.0.1", "fd87::1"):
                    for port in (fw.OTHER, fw.PORT):
                        with here(port, address) as c:
                            fw.dialogue(c)
                after = fw.late()
                assert after["refused"] == before["refused"], (before, after)


def t_addresses_that_nat_changes_at_the_door():
    fw.n.server.run("ip", "address", "add", "10.87.0.98/24", "dev", "tbg0")
    try:
        with fw.firewall(AT_THE_DOOR):
            for port in (81, fw.OTHER, 80, fw.PORT):
                with fw.connect(port, 4) as c:
                    fw.dialogue(c)
                with talk.Connection(fw.n.client.connect(("10.87.0.98", port))) as c:
                    fw.dialogue(c)
    finally:
        fw.n.server.run("ip", "address", "del", "10.87.0.98/24", "dev", "tbg0")


def t_vlan():
    """The tag comes again, too."""
    for ns, number in ((fw.n.server, 1), (fw.n.client, 2)):
        try:
            ns.run("ip", "link", "add", "link", "tbg0", "name", "tbg0.5", "type", "vlan", "id",
                   "5")
        except RuntimeError as why:
            raise ktap.Skip(f"no VLAN: {why}") from why
        ns.run("ip", "address", "add", f"10.98.0.{number}/24", "dev", "tbg0.5")
        ns.run("ip", "address", "add", f"fd98::{number}/64", "dev", "tbg0.5", "nodad")
        ns.run("ip", "link", "set", "tbg0.5", "up")
    try:
        with fw.firewall(fw.FIREWALLD):
            before = fw.late()
            for address in ("10.98.0.1", "fd98::1"):
                for port in (fw.OTHER, fw.PORT):
                    for _ in range(2):
                        with talk.Connection(fw.n.client.connect((address, port))) as c:
                            fw.dialogue(c)
            after = fw.late()
            assert after["handed"] >= before["handed"] + 2, (before, after)
            assert after["refused"] == before["refused"], (before, after)
    finally:
        for ns in (fw.n.server, fw.n.client):
            ns.run("ip", "link", "del", "tbg0.5")


def t_rules_that_have_just_come():
    """The daemon reads them ten times a second at most; NAT drops late sockets at once."""
    nats = "table inet nats { chain before { type nat hook prerouting priority -100; }\n}"
    with fw.firewall(fw.OPEN):
        for _ in range(10):
            with contextlib.ExitStack() as stack:
                opened = [stack.enter_context(fw.connect(fw.PORT, 4)) for _ in range(5)]
                for c in opened:
                    assert c.get("/hit").body == fw.HIT
                # no late socket has the port of its client by chance
                for _ in range(10):
                    stack.enter_context(fw.connect(fw.OTHER, 4))
                fw.load("table inet nats { }")
                fw.load(nats)
                for _ in range(2):      # it has been woken by the rules, too
                    talk.ask_itself(fw.d, "stats")
                for c in opened:
                    assert c.get("/none").status == 404
            net.until(lambda: "NAT" in fw.late()["syns_why"], "the rules are not seen")
            fw.load("delete table inet nats")
            net.until(lambda: "NAT" not in fw.late()["syns_why"], "the rules are not seen")


def t_entries_go_with_their_connections():
    """Conntrack does not see the end of one that was given back. Its entry expires soon."""
    with fw.firewall(fw.FIREWALLD):
        for family in (4, 6):
            with fw.connect(fw.PORT, family) as c:
                target, body = fw.miss()
                assert c.get(target).body == body
                before = fw.late()["given"]
                for _ in range(fw.GIVE_BACK + 2):
                    assert c.get("/hit").body == fw.HIT
                assert fw.late()["given"] == before + 1
                c.send(talk.request("/hit", "Connection: close"))
                assert c.response().body == fw.HIT
                c.end()
                [line] = fw.tracked(c)
                assert int(line.split()[4]) <= 10, line


def t_ban_that_comes_after_the_beginning():
    """Wire has answered the SYN; the rules judge the first segment that the kernel gets."""
    for rules in (fw.UFW, fw.FIREWALLD):
        with fw.connect(fw.PORT, 4, bad=True, timeout=2) as banned, fw.connect(fw.PORT, 4) as c:
            for one in (banned, c):
                assert one.get("/hit").body == fw.HIT
            with fw.firewall(rules):
                banned.send(talk.request("/none"))
                try:
                    assert not banned.s.recv(1)         # closed; to be asked again
                except TimeoutError:
                    pass
                if rules is fw.UFW:
                    assert c.get("/none").status == 404
                else:
                    # it could not be added to conntrack without letting the banned one in
                    c.send(talk.request("/none"))
                    assert not c.s.recv(1)


def t_losses_of_one_client_are_not_blamed_on_the_rules():
    """Every other segment of a client's is lost, always after the hand-over."""
    lossy = """
table inet nats {
  chain before { type nat hook prerouting priority -100; policy accept; }
  chain inward { type filter hook input priority 0; policy accept;
    ct state invalid drop
    ip saddr 10.87.0.66 tcp dport 8080 ip length > 80 numgen inc mod 2 0 drop
  }
}"""
    with fw.firewall(lossy):
        for _ in range(8):
            with fw.connect(fw.PORT, 4, bad=True) as c:
                assert c.get("/none").status == 404
        assert fw.late()["refused"] and fw.late()["syns"] == "the kernel", fw.late()


def t_marks_beside_nat():
    """Routes that go by marks, which another table sets behind the one with NAT."""
    fw.n.server.run("ip", "rule", "add", "fwmark", "7", "lookup", "main", "priority", "77")
    try:
        with fw.firewall("""
table inet a { chain before { type nat hook prerouting priority -100; policy accept; }
}
table inet b { chain outward { type route hook output priority -150; policy accept; }
}"""):
            net.until(lambda: "marks" in fw.late()["syns_why"], "the rules are not seen")
            assert fw.late()["syns"] == "the kernel alone, which keeps the connections"
    finally:
        fw.n.server.run("ip", "rule", "del", "priority", "77")


def t_limits_of_the_number_of_connections():
    """Conntrack counts what it has seen begin and not end: wire's connections are none of these."""
    direct = "\n".join(f"tcp dport {port} ct state new ct count over 3 reject with tcp reset"
                       for port in (fw.OTHER, fw.PORT))
    dynamic = """tcp dport { 8080, 8081 } ct state new \
      add @many { ip saddr . tcp dport ct count over 3 } reject with tcp reset"""
    for rule in (direct, dynamic):
        with fw.firewall(f"""
table inet limits {{
  set many {{ type ipv4_addr . inet_service; flags dynamic; }}
  chain inward {{ type filter hook input priority 0; policy accept;
    {rule}
  }}
}}"""):
            net.until(lambda: "ct count" in fw.late()["syns_why"], "the rule is not seen")
            for port in (fw.OTHER, fw.PORT):
                with contextlib.ExitStack() as stack:
                    for _ in range(3):
                        c = stack.enter_context(fw.connect(port, 4))
                        assert c.get("/hit").body == fw.HIT
                        time.sleep(0.02)        # what has ended is removed once in a tick
                    try:
                        fw.connect(port, 4).close()
                    except ConnectionRefusedError:
                        continue
                    raise AssertionError(f"a fourth connection to {port}: {rule}")


def t_rules_that_look_at_the_direction():
    """They would see the entries of the daemon's the wrong way round, or not at all."""
    nats = "chain before { type nat hook prerouting priority -100; policy accept; }"
    outward = """chain outward {{ type filter hook output priority 0; policy drop;
      icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
      {} accept
    }}"""
    for rule in ("ct direction reply", "meta l4proto tcp ct original proto-dst { 8080, 8081 }"):
        with fw.firewall(f"table inet ways {{ {nats}\n{outward.format(rule)}\n}}"):
            net.until(lambda: "direction" in fw.late()["syns_why"], "the rule is not seen")
            for port in (fw.OTHER, fw.PORT):
                for family in (4, 6):
                    with fw.connect(port, family) as c:
                        fw.dialogue(c)
    with fw.firewall(f"""table inet zones {{ {nats}
      chain first {{ type filter hook prerouting priority -300; ct zone set 5; }}
      chain last {{ type filter hook output priority -300; ct zone set 5; }}
    }}"""):
        net.until(lambda: "zone" in fw.late()["syns_why"], "the rule is not seen")
        for port in (fw.OTHER, fw.PORT):
            with fw.connect(port, 4) as c:
                fw.dialogue(c)


def t_births_by_wire_are_not_added_to_conntrack():
    """They would be established before a rule has seen them."""
    with fw.n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", "--births", "wire", listen=("0.0.0.0:8082",))
        with d, fw.firewall(fw.FIREWALLD):
            net.until(lambda: "--births wire" in talk.ask(d, "status")["late_sockets"]["syns_why"],
                      "the rules are not seen")
            late = talk.ask(d, "status")["late_sockets"]
            assert late["syns"] == "the kernel alone, which keeps the connections", late
            assert not late["tracks"], late


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
