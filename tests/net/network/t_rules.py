#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Connections without a socket where rules (`ip rule`) choose the routes.

The daemon asks the kernel for the way to each client: its first connection is the kernel's,
those after it are wire's where the way leads back by the interface that the client comes by. No
rule set makes the daemon translate.
"""
import contextlib
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import ktap
import limits
import net
import rawtcp
import talk

PORT = 8080
ONE, TWO = talk.content("one", 600), talk.content("two", 9000)
FAR = {4: "10.99.0.1", 6: "fd99::1"}        # the client, behind both links
TABLE = "101"


@contextlib.contextmanager
def serving(n, *options, births="wire"):
    with talk.serving(n.server, "tbg0,tbg1", "--late-sockets", "auto", "--births", births,
                      "--give-back", "1", *options, listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"),
                      one=ONE, two=TWO) as d:
        if why := talk.no_late_sockets(d):
            raise ktap.Skip(why)
        for target in ("/one", "/two"):         # so that it is in the cache
            get(n, 4, n.links[0], own=n.links[0].client4, target=target)
        yield d


def late(d):
    return talk.ask_itself(d, "status")["late_sockets"]


def ends(family, link):
    """The server's address on the link, the client's."""
    return (link.server4, link.client4) if family == 4 else (link.server6, link.client6)


def ip(ns, family, *words):
    ns.run("ip", f"-{family}", *words)


@contextlib.contextmanager
def hosts():
    """A client with an address behind both links, to which the table main leads by the first."""
    with net.Net(links=2) as n:
        for family, own in FAR.items():
            ip(n.client, family, "address", "add", f"{own}/{32 if family == 4 else 128}", "dev",
               "lo", *(("nodad",) if family == 6 else ()))
            ip(n.server, family, "route", "add", own, "via", ends(family, n.links[0])[1])
            ip(n.server, family, "route", "add", "default", "via", ends(family, n.links[1])[1],
               "table", TABLE)
        for ns in (n.server, n.client):
            for name in ("all", "tbg0", "tbg1"):
                ns.sysctl(f"ipv4.conf.{name}.rp_filter", 0)
        yield n


@contextlib.contextmanager
def rule(n, *words, families=(4, 6)):
    for family in families:
        ip(n.server, family, "rule", "add", *words)
    try:
        yield
    finally:
        for family in families:
            ip(n.server, family, "rule", "del", *words)


def by_source(n):
    """As cloud images have it: what the second address sends leaves by the second link."""
    stack = contextlib.ExitStack()
    for family in (4, 6):
        stack.enter_context(rule(n, "from", ends(family, n.links[1])[0], "lookup", TABLE,
                                 families=(family,)))
    return stack


def get(n, family, link, own=None, target="/one"):
    """The tier that answers a new connection to the link's address from the far one."""
    address = (ends(family, link)[0], PORT)
    with talk.Connection(n.client.connect(address, (own or FAR[family], 0))) as c:
        r = c.get(target)
        assert r.body == (ONE if target == "/one" else TWO), r
        return r.tier


def settled(n, d):
    """The daemon has looked at rules since."""
    for what in ("add", "del"):
        n.server.run("ip", "address", what, "10.98.0.1/32", "dev", "lo")
        time.sleep(0.03 * client.SLOW)      # it may have read routes a moment ago
        for _ in range(3):      # whatever it reads first, in one of these turns
            late(d)


def is_wire(n, family, link, **how):
    net.until(lambda: get(n, family, link, **how) == "wire", f"IPv{family}: it is never wire's")


def nothing_is_translated(n, d):
    assert late(d) is not None, talk.ask_itself(d, "status")
    assert not [x for x in n.server.programs() if x[1] == "egress"], n.server.programs()


def t_a_rule_for_each_source():
    """The same client at two addresses of the host, each with its own way back."""
    for births in ("wire", "kernel"):
        with hosts() as n, by_source(n), serving(n, births=births) as d:
            nothing_is_translated(n, d)
            assert "rules" in late(d)["asks_why"], late(d)
            text = talk.text(d, "status")
            assert "the kernel is asked for the route to each client" in text, text
            for family in (4, 6):
                for link in n.links:
                    before = talk.counts(d)["ROUTE"]
                    assert get(n, family, link) == "user", "the way back was not known"
                    assert talk.counts(d)["ROUTE"] > before
                    is_wire(n, family, link)
                    syn_acks = talk.counts(d)["SYN_ACK"]
                    is_wire(n, family, link)
                    assert births == "kernel" or talk.counts(d)["SYN_ACK"] > syn_acks
            why = talk.ask(d, "why", "--client", FAR[4], "/one")
            assert why["why"] == "HIT_WIRE", why


def t_a_way_back_by_another_interface_is_the_kernel_s():
    """What comes by the first link for the second one's address leaves by the second."""
    with hosts() as n, by_source(n), serving(n) as d:
        for family in (4, 6):
            server, _ = ends(family, n.links[1])
            ip(n.client, family, "route", "add", server, "via", ends(family, n.links[0])[0])
            for _ in range(3):
                assert get(n, family, n.links[1], target="/two") == "user"
                settled(n, d)
            ip(n.client, family, "route", "del", server)
            is_wire(n, family, n.links[1])


def t_rules_of_wg_quick():
    """All that has no mark goes into the tunnel, but what more than the default route covers."""
    with hosts() as n:
        n.server.run("ip", "link", "add", "tbgwg", "type", "veth", "peer", "name", "tbgfar")
        for name in ("tbgwg", "tbgfar"):
            n.server.run("ip", "link", "set", name, "up")
        for family in (4, 6):
            ip(n.server, family, "route", "add", "default", "dev", "tbgwg", "table", "51820")
        with rule(n, "not", "fwmark", "51820", "table", "51820"), \
                rule(n, "table", "main", "suppress_prefixlength", "0"), serving(n) as d:
            nothing_is_translated(n, d)
            for family in (4, 6):
                is_wire(n, family, n.links[0])
                own = "10.97.0.1" if family == 4 else "fd97::1"
                why = talk.ask(d, "why", "--client", own, "/one")
                assert why["why"] == "IFACE", why
                ip(n.server, family, "route", "add", own, "dev", "tbg0")
                net.until(lambda own=own: talk.ask(d, "why", "--client", own, "/one")["why"] ==
                          "HIT_WIRE", "the route is not seen")


def t_rules_that_come_and_go_under_traffic():
    """Right bytes or a reset, and wire's as long as the way leads back."""
    with hosts() as n, serving(n) as d:
        for family in (4, 6):
            stop, seen, wrong, resets = threading.Event(), set(), [], []

            def ask(family=family, stop=stop, seen=seen, wrong=wrong, resets=resets):
                address = (ends(family, n.links[0])[0], PORT)
                while not stop.is_set():
                    try:
                        with talk.Connection(n.client.connect(address, (FAR[family], 0))) as c:
                            for i in range(50):
                                r = c.get("/two" if i % 2 else "/one")
                                seen.add(r.tier)
                                if r.body != (TWO if i % 2 else ONE):
                                    wrong.append(r)
                    except ConnectionResetError:
                        resets.append(time.monotonic())
                    except BaseException as why:    # pylint: disable=broad-except
                        wrong.append(repr(why))
                        break

            ip(n.server, family, "route", "add", "default", "via", ends(family, n.links[0])[1],
               "table", "102")
            asks = [threading.Thread(target=ask) for _ in range(2)]
            for t in asks:
                t.start()
            try:
                for i in range(4 if client.IN_VM else 12):
                    with rule(n, "from", ends(family, n.links[0])[0], "lookup",
                              (TABLE, "102")[i % 2], families=(family,)):
                        settled(n, d)
                    settled(n, d)
            finally:
                stop.set()
                for t in asks:
                    t.join()
            ktap.note(f"IPv{family}: {len(resets)} resets")
            assert not wrong and len(resets) <= 24, (family, wrong[:3], len(resets))
            assert seen == {"wire", "user"}, seen
            is_wire(n, family, n.links[0])
        nothing_is_translated(n, d)


def t_connections_that_exist_keep_to_rules_that_change():
    """A rule that leaves the way as it is changes nothing; one that moves it, the owner."""
    with hosts() as n, by_source(n), serving(n) as d:
        for family in (4, 6):
            first, far = n.links[0], FAR[family]
            is_wire(n, family, first)
            address = (ends(family, first)[0], PORT)
            with talk.Connection(n.client.connect(address, (far, 0))) as c:
                assert c.get("/one").tier == "wire"
                with rule(n, "from", "10.96.0.1" if family == 4 else "fd96::1", "lookup", TABLE,
                          families=(family,)):
                    settled(n, d)
                    assert c.get("/one").tier == "wire", "its way has not changed"
                with rule(n, "to", far, "lookup", TABLE, families=(family,)):
                    settled(n, d)
                    before = talk.counts(d)["IFACE"]
                    r = c.get("/two")
                    assert (r.tier, r.body) == ("user", TWO), r
                    assert talk.counts(d)["IFACE"] > before
                settled(n, d)
                net.until(lambda c=c: c.get("/one").tier == "wire", "it is never given back")


def t_routes_for_some_sources_alone():
    """Of IPv6, in the table main: no rule is needed for them."""
    with hosts() as n, serving(n) as d:
        try:
            for link in n.links:
                ip(n.server, 6, "route", "add", FAR[6], "from", f"{link.server6}/128", "via",
                   link.client6)
        except RuntimeError as why:
            raise ktap.Skip(f"no routes for some sources: {why}") from why
        net.until(lambda: "some sources" in late(d)["asks_why"], "it is not seen")
        for link in n.links:
            is_wire(n, 6, link)
        # the other version is known as before
        assert get(n, 4, n.links[0]) == "wire"
        nothing_is_translated(n, d)


def t_rules_that_no_answer_fits_need_no_question():
    """The daemon's packets have no mark and no type of service; they are TCP, and are sent."""
    with hosts() as n, serving(n) as d:
        for words in (("fwmark", "7"), ("tos", "0x10"), ("ipproto", "udp"), ("iif", "tbg1")):
            with rule(n, *words, "lookup", TABLE):
                settled(n, d)
                assert late(d)["asks_why"] == "", (words, late(d))
                for family in (4, 6):
                    is_wire(n, family, n.links[0])
            with rule(n, "not", *words, "lookup", TABLE):
                settled(n, d)
                assert late(d)["asks_why"], words
                for family in (4, 6):
                    is_wire(n, family, n.links[1])
                    assert get(n, family, n.links[0]) == "user", words


def t_what_a_question_cannot_state_is_the_kernel_s():
    """Users of several sockets, marks that netfilter sets, what comes before the table local."""
    def left(d, why):
        net.until(lambda: why in late(d)["syns_why"], f"{why}: {late(d)['syns_why']}")
        assert late(d)["syns"] == "the kernel alone, which keeps the connections", late(d)
        assert get(n, 4, n.links[0]) == "user"

    with hosts() as n, serving(n) as d:
        with rule(n, "fwmark", "7", "lookup", TABLE):
            was = n.server.sysctl("ipv4.tcp_fwmark_accept", 1)
            settled(n, d)
            left(d, "tcp_fwmark_accept")
            n.server.sysctl("ipv4.tcp_fwmark_accept", was)
            settled(n, d)
            is_wire(n, 4, n.links[0])
        # netfilter can set both, and has the route looked up again
        for words in (("fwmark", "7"), ("tos", "0x10")):
            with rule(n, *words, "lookup", TABLE):
                settled(n, d)
                is_wire(n, 4, n.links[0])
                try:
                    n.server.run("nft", "add table ip tbg; add chain ip tbg out "
                                 "{ type route hook output priority 0; }")
                except (RuntimeError, FileNotFoundError) as why:
                    ktap.note(f"no nftables: {why}")
                else:
                    left(d, "netfilter can set")
                    n.server.run("nft", "flush", "ruleset")
        is_wire(n, 4, n.links[0])
        with rule(n, "uidrange", "0-0", "lookup", TABLE):
            settled(n, d)
            if os.stat(f"/proc/{d.process.pid}").st_uid:
                left(d, "selects by user")
            else:
                is_wire(n, 4, n.links[1])
        settled(n, d)
        is_wire(n, 4, n.links[0])
        with rule(n, "dport", "40000-40010", "lookup", TABLE):
            settled(n, d)
            is_wire(n, 4, n.links[0])
            before, address = talk.counts(d)["IFACE"], (n.links[0].server4, PORT)
            with talk.Connection(n.client.connect(address, (FAR[4], 40005))) as c:
                assert c.get("/one").tier == "user"
            assert talk.counts(d)["IFACE"] > before
        ip(n.server, 4, "rule", "add", "pref", "10", "lookup", "local")
        ip(n.server, 4, "rule", "del", "pref", "0")
        address = (n.links[0].server4, PORT)
        with talk.Connection(n.client.connect(address, (FAR[4], 0))) as c:
            assert c.get("/one").tier == "wire"
            with rule(n, "pref", "5", "iif", "tbg1", "lookup", TABLE, families=(4,)):
                left(d, "before the table local")
                assert c.get("/one").tier == "user", "a connection that exists stays wire's"
        with rule(n, "pref", "5", "fwmark", "7", "lookup", TABLE, families=(4,)):
            net.until(lambda: late(d)["syns"] == "wire", late(d))
            is_wire(n, 4, n.links[0])
        nothing_is_translated(n, d)


def t_settings_at_the_start_make_nobody_translate():
    """Without SYN cookies the kernel makes no socket late; as soon as it has them, it does."""
    with hosts() as n:
        n.server.sysctl("ipv4.tcp_syncookies", 0)
        with serving(n) as d:
            nothing_is_translated(n, d)
            assert "tcp_syncookies" in late(d)["syns_why"], late(d)
            assert get(n, 4, n.links[0]) == "user"
            n.server.sysctl("ipv4.tcp_syncookies", 1)
            settled(n, d)
            is_wire(n, 4, n.links[0])


class Crowd:
    """Clients with an address each behind a station, that open a connection and end it."""

    def __init__(self, n, net_nr, nr):
        self.st = rawtcp.Station(n, n.links[0])
        self.sources = [f"10.{net_nr}.{i >> 8}.{i & 255}" for i in range(nr)]
        self.acks = {}          # source: its numbers, once the server has answered
        ip(n.server, 4, "route", "add", f"10.{net_nr}.0.0/16", "via", self.st.addresses[4][0])
        self.st.addresses[4] += self.sources

    def frame(self, source, seq, ack, flags, options=b""):
        to = self.st.server(4)
        return self.st.frame(4, self.st.ip(source, to, self.st.tcp(
            source, to, 1024, PORT, seq, ack, flags, 65535, options)))

    def put(self, frames):
        """No more at once than a CPU's queue of received frames holds."""
        for i in range(0, len(frames), 250):
            for frame in frames[i:i + 250]:
                self.st.put(frame)
            self.st.barrier(4)

    def begin(self):
        """Each has its SYN answered. The frames that acknowledge that."""
        syn = rawtcp.options(mss=1460)
        self.put([self.frame(source, 0, 0, "S", syn) for source in self.sources])
        acks = {x.dst: x.seq + 1 for x in self.st.strays if x.flags == "S."}
        assert set(acks) == set(self.sources), f"{len(acks)} SYNs are answered"
        self.acks = acks
        return [self.frame(source, 1, ack, ".") for source, ack in acks.items()]

    def close(self):
        self.put([self.frame(source, 1, ack, "R.") for source, ack in self.acks.items()])
        self.st.close()


def questions(n, d, crowd, at_once):
    """Opens their connections, at_once at a time. (Questions asked, the most that are allowed.)"""
    settled(n, d)
    is_wire(n, 4, n.links[0])
    acks = crowd.begin()
    before, begun = late(d)["asked"], time.monotonic()
    for i in range(0, len(acks), at_once):
        crowd.put(acks[i:i + at_once])
        time.sleep(0.12)        # the daemon looks ten times a second
    # a thousand, and one each millisecond after that
    return late(d)["asked"] - before, 1000 * (1 + time.monotonic() - begun)


def t_many_clients_at_once_have_1000_questions_a_second():
    """The others are the kernel's."""
    nr = 3000
    with hosts() as n, by_source(n), serving(n) as d:
        for net_nr in (90, 91, 92):
            with contextlib.closing(Crowd(n, net_nr, nr)) as crowd:
                asked, most = questions(n, d, crowd, 1000)
            ktap.note(f"{nr} clients: {asked} questions, {most:.0f} allowed")
            assert 1000 <= asked <= most, (asked, most)
            if most < nr:       # else the clients were too slow to reach the limit
                break
        assert most < nr, "the limit was never reached"
        is_wire(n, 4, n.links[0])


def t_floods_ask_for_little():
    """A forged address is not asked for, and clients with many are, within limits."""
    with hosts() as n, by_source(n), serving(n) as d:
        is_wire(n, 4, n.links[0])
        st = rawtcp.Station(n, n.links[0])
        try:
            before = late(d)["asked"]
            syn = rawtcp.options(mss=1460, sackok=True, ts=(1, 0), wscale=7)
            to = st.server(4)
            for i in range(2000):
                source = f"10.95.{i >> 8}.{i & 255}"
                st.put(st.frame(4, st.ip(source, to, st.tcp(source, to, 1024 + i, PORT, 1, 0, "S",
                                                            65535, syn))))
            st.barrier(4)
            settled(n, d)
            assert late(d)["asked"] <= before + 20, (before, late(d))
            assert get(n, 4, n.links[0]) == "wire", "others are pushed out"
        finally:
            st.close()
        ip(n.client, 4, "route", "add", "local", "10.94.0.0/16", "dev", "lo")
        ip(n.server, 4, "route", "add", "10.94.0.0/16", "via", n.links[0].client4)
        settled(n, d)
        begun, before, cpu = time.monotonic(), late(d)["asked"], limits.ticks(d)
        nr = 300 if client.IN_VM else 1500
        for i in range(nr):
            get(n, 4, n.links[0], own=f"10.94.{i >> 8}.{i & 255}")
        # a change would let those that are asked for last be forgotten
        assert get(n, 4, n.links[0]) == "wire", "others are pushed out"
        settled(n, d)
        asked, took_s = late(d)["asked"] - before, time.monotonic() - begun
        ktap.note(f"{nr} clients in {took_s:.2f} s: {asked} questions, "
                  f"{limits.ticks(d) - cpu:.2f} s of the daemon")
        assert asked >= 100, "nothing was asked"
        # 1,000 questions at once and 1,000 a second after that; 1,024 pairs are asked for again
        assert asked <= 1000 * (took_s + 1) + 2 * 1024, (asked, took_s)
        is_wire(n, 4, n.links[0])
        is_wire(n, 4, n.links[0], own="10.94.0.1")


if __name__ == "__main__":
    ktap.run(globals())
