#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Connections without a socket with metrics of routes and sysctls of the namespace.

Whatever the client's SYN says and the host is set to, wire's SYN-ACK is the kernel's,
byte for byte; where wire cannot, the kernel is the one that answers.
"""
import contextlib
import itertools
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import limits
import net
import rawtcp
import talk

WIRE, USER = 8080, 8081
rawtcp.WINDOW_LESS = 2048        # a socket that is made late begins with its first window
n = st = d = user = site = None
BODIES = {"/hit": talk.content("hit", 600), "/nine": talk.content("nine", 9000)}
HIT, NINE = talk.request("/hit"), talk.request("/nine")
BY_WIRE = ("--wire", "tbg0,tbg1", "--late-sockets", "auto", "--give-back", "1",
           "--births", "wire")
LABEL = 0x12345                 # of a SYN's flow
RENEWED_S = 1.1                 # TBG_OFFER_MS: what the kernel offers is learned anew


def start(port, *options):
    with n.server.inside():
        return daemon.Daemon(*options, "--idle-timeout", "3600s", root=site.root,
                             listen=(f"0.0.0.0:{port}", f"[::]:{port}")).start()


def begin():
    global n, st, d, user, site
    n = net.Net(links=2)
    site = daemon.Daemon()
    for target, body in BODIES.items():
        site.write(target[1:], body)
    d = start(WIRE, *BY_WIRE)
    user = start(USER, "--tiers", "user")
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    if late() is None:
        end()
        raise ktap.Skip("no late sockets: before Linux 6.9")
    st = rawtcp.Station(n, n.links[0])
    for target in BODIES:
        with talk.Connection(n.client.connect((n.links[0].server4, WIRE))) as c:
            net.until(lambda c=c, target=target: c.get(target).tier == "wire",
                      f"{target} is never wire's")


def end():
    if st:
        st.close()
    codes = [x.stop() for x in (d, user) if x]
    if n:
        n.close()
    site.clean()
    assert not any(codes), codes


def late():
    return talk.ask(d, "status")["late_sockets"]


def address(family, port=WIRE):
    return (st.server(family), port)


# --- SYN-ACKs ----------------------------------------------------------------

NOP, MSS = b"\1", b"\2\4\5\xb4"
SCALE, SACK, TS = b"\3\3\7", b"\4\2", b"\x08\x0a\0\0\x30\x39\0\0\0\0"


def each(*parts):
    """{name: bytes} of options in that order, padded."""
    raw = b"".join(parts)
    return raw + b"\0" * (-len(raw) % 4)


# What clients send, and what none should.
SYNS = {
    "none": b"", "mss": MSS, "as Linux": each(MSS, SACK, TS, NOP, SCALE),
    "as Windows": each(MSS, NOP, SCALE, NOP, NOP, SACK),
    "as macOS": each(MSS, NOP, SCALE, NOP, NOP, TS, SACK, b"\0"),
    "backwards": each(SCALE, TS, SACK, MSS), "NOPs first": each(NOP * 4, MSS, NOP, NOP, TS),
    **{f"mss {mss}": each(b"\2\4", mss.to_bytes(2, "big"), SACK, TS, NOP, SCALE)
       for mss in (0, 1, 87, 88, 535, 536, 537, 1219, 1220, 1221, 1439, 1440, 1460, 1461,
                   8960, 65495, 65535)},
    **{f"scale {s}": each(MSS, SACK, TS, NOP, b"\3\3", bytes([s]))
       for s in (*range(16), 255)},
    **{"with " + "+".join(names) if names else "mss alone": each(MSS, *(dict(
        sack=SACK, ts=TS, scale=SCALE)[x] for x in names))
       for k in range(4) for names in itertools.combinations(("sack", "ts", "scale"), k)},
    "without mss": each(SACK, TS, NOP, SCALE), "mss twice": each(MSS, b"\2\4\2\x18", SACK),
    "ts not zero": each(MSS, TS[:6] + b"\0\0\0\1"), "unknown": each(MSS, b"\xfe\4ab", SACK),
    "unknown long": each(MSS, b"\xfd\x0cabcdefghij"), "MD5": each(MSS, b"\x13\x12" + b"m" * 16),
    "fast open": each(MSS, b"\x22\2", SACK), "MPTCP": each(MSS, b"\x1e\x0c\0\1" + b"k" * 8),
    "cut mss": b"\1\1\2\4", "cut ts": each(MSS)[:4] + b"\1\1\x08\x0a", "size 0": MSS + b"\3\0\1\1",
    "size 1": MSS + b"\4\1\1\1", "mss of 3": b"\2\3\5\1", "scale of 4": MSS + b"\3\4\7\1",
    "sack of 3": MSS + b"\4\3\0\1", "end, then more": MSS + b"\0" + SCALE,
}
FLAGS = ("S", "SEW", "SE", "SW", "SEWA", "SP")


def answer(port, family, flags, opts, tos=0, open_it=False):
    """What comes to that SYN: all that a client sees but numbers and times; and the number."""
    c = rawtcp.Connection(st, address(family, port), port=next_port(), iss=12345)
    c.ts = c.sack = True            # of what it offers, the test judges
    c.put(flags, 0, None, opts=opts, win=65535, ip={"tos": tos, "flow": LABEL})
    c.at = 1
    try:
        st.barrier(family)
        if not c.queue:
            return None, None
        seg = c.queue.pop(0)
        assert not c.queue, f"answered twice: {seg} {c.queue}"
        tcp = seg.payload
        raw = bytearray(tcp[20:(tcp[12] >> 4) * 4])
        at = raw.find(b"\x08\x0a")
        if "ts" in seg.options and at >= 0:
            raw[at + 2:at + 6] = bytes(4)
        irs = c.irs
        if open_it and seg.bits & rawtcp.SYN:
            c.ts = "ts" in seg.options
            c.put(".", 1, 1, opts=b"\1\1" + TS[:6] + seg.options["ts"][0].to_bytes(4, "big")
                  if c.ts else b"", win=65535)
            st.barrier(family)
        c.put("R", 1, None)
        st.barrier(family)
        return (seg.flags, raw.hex(), seg.win, seg.tos, seg.ttl, seg.df, seg.ack, seg.urg,
                label(seg)), irs
    finally:
        st.connections.pop(c.key, None)
        st.graves.add(c.key)


def label(seg):
    """The kind of IPv6 flow label that a segment has: none, the client's or its own."""
    value = int.from_bytes(seg.ip[:4], "big") & 0xfffff if seg.family == 6 else 0
    return {0: "none", LABEL: "the client's"}.get(value, "its own")


def next_port():
    st.port += 1
    return st.port


def compare(what, syns=SYNS, flags=("S",), families=(4, 6), ports=(WIRE, USER),
            toses=(0,)):
    """[(combination, wire's, the kernel's)] that differ, after wire has learned what to offer."""
    time.sleep(RENEWED_S)
    differ = []
    for family, flag, (name, opts), tos in itertools.product(families, flags, syns.items(),
                                                             toses):
        want, _ = answer(ports[1], family, flag, opts, tos)
        for learn in (True, False):
            got, _ = answer(ports[0], family, flag, opts, tos, open_it=learn)
            if got != want:
                differ.append((f"{what}, IPv{family}, {flag}, {name}, TOS {tos}", got, want))
                break
    return differ


def judge(differ):
    for one in differ[:20]:
        ktap.note(f"{one[0]}:\n  wire {one[1]}\n  kernel {one[2]}")
    assert not differ, f"{len(differ)} combinations differ, the first: {differ[0]}"


def t_syn_acks_are_the_kernel_s_whatever_the_client_offers():
    before = talk.counts(d)["SYN_ACK"]
    judge(compare("as set by default"))
    by_wire = talk.counts(d)["SYN_ACK"] - before
    assert by_wire > 10, f"{by_wire} by wire: nothing was compared"


def t_syn_acks_are_the_kernel_s_whatever_flags_the_syn_has():
    judge(compare("flags", {name: SYNS[name] for name in ("as Linux", "mss")}, FLAGS,
                  toses=(0, 1, 2, 3, 0xb8)))


FEW = {name: SYNS[name] for name in ("none", "as Linux", "mss", "with sack+scale", "with ts")}


@contextlib.contextmanager
def setting(name, value):
    was = n.server.sysctl(name, value)
    if was is None:
        raise ktap.Skip(f"no net.{name}")
    try:
        yield
    finally:
        n.server.sysctl(name, was)


def t_syn_acks_are_the_kernel_s_whatever_it_is_set_to():
    differ = []
    for name, value in (("ipv4.tcp_window_scaling", 0), ("ipv4.tcp_sack", 0),
                        ("ipv4.tcp_timestamps", 0), ("ipv4.tcp_timestamps", 2),
                        ("ipv4.tcp_ecn", 0), ("ipv4.tcp_ecn", 1), ("ipv4.ip_default_ttl", 99),
                        ("ipv6.conf.tbg0.hop_limit", 77), ("ipv6.conf.all.hop_limit", 77),
                        ("ipv6.auto_flowlabels", 0), ("ipv6.auto_flowlabels", 2),
                        ("ipv6.auto_flowlabels", 3), ("ipv6.flowlabel_reflect", 1),
                        ("ipv6.conf.tbg0.mtu", 1400)):
        with setting(name, value):
            settled()
            differ += compare(f"{name}={value}", FEW, ("S", "SEW"))
    settled()
    judge(differ)


def df_of(port):
    """The lengths of an answer's segments."""
    c = st.connect(address(4, port))
    c.send(HIT)
    seg = c.next()
    while not seg.data:
        seg = c.next()
    c.drop()
    return seg.df


def t_syn_acks_are_the_kernel_s_where_listeners_discover_no_mtu():
    """net.ipv4.ip_no_pmtu_disc counts from when a listener is made."""
    with setting("ipv4.ip_no_pmtu_disc", 1):
        more = [start(8082, *BY_WIRE), start(8083, "--tiers", "user")]
        try:
            differ = compare("ip_no_pmtu_disc=1", FEW, ports=(8082, 8083))
            df = {df_of(port) for port in (8082, 8083) for _ in range(3)}
        finally:
            codes = [x.stop() for x in more]
    judge(differ)
    assert df == {False} and not any(codes), (df, codes)


def settled():
    """The daemon has looked at settings and routes since, as it does when an address is new."""
    for what in ("add", "del"):
        n.server.run("ip", "address", what, "10.99.99.99/32", "dev", "lo")
        time.sleep(0.03 * client.SLOW)      # it may have read routes a moment ago
        for _ in range(3):      # whatever it reads first, in one of these turns
            talk.ask(d, "status")


def connection():
    """One without a socket, to which wire has answered."""
    c = talk.Connection(n.client.connect(address(4)))
    r = c.get("/hit")
    assert (r.tier, r.body) == ("wire", BODIES["/hit"]), r
    return c


def t_without_syn_cookies_the_kernel_keeps_connections():
    """It makes no socket late then: a miss would be reset."""
    with setting("ipv4.tcp_syncookies", 0):
        settled()
        assert "tcp_syncookies" in late()["syns_why"], late()
        with talk.Connection(n.client.connect(address(4))) as c:
            assert c.get("/none").status == 404 and c.get("/hit").body == BODIES["/hit"]
    settled()
    connection().close()


def t_type_of_service_of_the_syn_is_that_of_the_answers():
    """Where net.ipv4.tcp_reflect_tos is set; the kernel keeps connections then."""
    with setting("ipv4.tcp_reflect_tos", 1):
        settled()
        for port in (WIRE, USER):
            c = st.connect(address(4, port), tos=0x28)
            c.send(HIT)
            seg = c.next()
            while not seg.data:
                seg = c.next()
            assert seg.tos == 0x28, (port, seg)
            c.drop()
    settled()


def t_miss_of_which_no_socket_is_made_is_tried_again_and_reset_in_the_end():
    """An option that the connection has was switched off meanwhile."""
    link = n.links[0]
    n.client.run("ip", "route", "change", "10.87.0.0/24", "dev", link.name, "src", link.client4,
                 "rto_min", "200ms")
    for name in ("tcp_sack", "tcp_timestamps", "tcp_window_scaling"):
        for again in (True, False):
            fails = talk.counts(d)["HAND_FAIL"]
            with connection() as c, setting(f"ipv4.{name}", 0):
                c.send(talk.request("/none"))
                net.until(lambda f=fails: talk.counts(d)["HAND_FAIL"] > f, f"{name}: not refused")
                if again:
                    n.server.sysctl(f"ipv4.{name}", 1)
                    assert c.response().status == 404
                    continue
                try:
                    raise AssertionError(f"{name}: {c.response()}")
                except ConnectionResetError:
                    pass
        settled()


def t_addresses_that_no_client_has_get_no_syn_ack():
    """Multicast, broadcast, no address: the kernel drops what claims to be from there."""
    sources = ((4, "224.0.0.1"), (4, "255.255.255.255"), (4, "0.0.0.0"), (6, "ff0e::1"))
    for family in (4, 6):
        n.server.run("ip", f"-{family}", "route", "add", "default", "via",
                     n.links[0].client4 if family == 4 else n.links[0].client6)
    try:
        settled()
        for family, source in sources:
            answer(WIRE, family, "S", SYNS["as Linux"])     # so that wire knows what to offer
            before = talk.counts(d)["SYN_ACK"]
            for port in range(20000, 20003):    # one a second is the kernel's in any case
                to = st.server(family)
                seg = st.tcp(source, to, port, WIRE, 1, 0, "S", 65535, SYNS["as Linux"])
                st.put(st.frame(family, st.ip(source, to, seg)))
            st.barrier(family)
            assert talk.counts(d)["SYN_ACK"] == before, source
    finally:
        for family in (4, 6):
            n.server.run("ip", f"-{family}", "route", "del", "default")


def t_numbers_cannot_be_foretold():
    """Of the same SYN from one port after another, and from the same one again."""
    numbers = [answer(WIRE, 4, "S", SYNS["as Linux"])[1] for _ in range(50)]
    steps = {(b - a) % rawtcp.MOD for a, b in zip(numbers, numbers[1:])}
    assert len(set(numbers)) == 50 and len(steps) == 49, numbers
    assert max(numbers) - min(numbers) > 1 << 30, numbers


# --- routes ------------------------------------------------------------------

@contextlib.contextmanager
def route(*metrics):
    """The route to the client has these metrics, and the daemon knows."""
    def change(*words):
        link = n.links[0]
        n.server.run("ip", "route", "replace", "10.87.0.0/24", "dev", link.name, "src",
                     link.server4, "rto_min", "2s", *words)
        n.server.run("ip", "-6", "route", "replace", "fd87::/64", "dev", link.name,
                     "metric", "1", "rto_min", "2s", *words)
        settled()
    change(*metrics)
    try:
        yield
    finally:
        change()


def t_syn_acks_are_the_kernel_s_whatever_a_route_has():
    differ = []
    for metrics in (("advmss", "900"), ("mtu", "1300"), ("mtu", "lock", "1300"),
                    ("window", "20000"), ("initrwnd", "4"), ("hoplimit", "77"),
                    ("initcwnd", "2"), ("features", "ecn")):
        with route(*metrics):
            differ += compare(" ".join(metrics), FEW, ("S", "SEW"))
    judge(differ)


def flight(c, request):
    """Segments that come to a request while nothing is acknowledged."""
    c.send(request)
    got = [c.receive(c.next())]
    got += c.pending()
    return [x for x in got if x.data]


def t_answers_are_no_longer_than_a_route_s_initial_window():
    with route("initcwnd", "2"):
        for family in (4, 6):
            c = st.connect(address(family), mss=1440)
            assert c.get(HIT).body == BODIES["/hit"]
            got = flight(c, NINE)
            assert len(got) <= 2, f"{len(got)} segments: {got}"
            c.send(flags=".")
            while c.whole(c.mask, "GET") is None:
                c.receive(c.next("rest"))
                c.send(flags=".")
            c.drop()


def within(most, family, what):
    """Asks for answers on a connection: no packet is longer."""
    c = st.connect(address(family), mss=1440)
    for request in (HIT, NINE, HIT, NINE):
        c.send(request)
        while c.whole(c.mask, "GET") is None:
            seg = c.receive(c.next("rest"))
            assert seg.len <= most, f"IPv{family}, {what}: {seg.len} bytes"
            c.send(flags=".")
        c.read += len(c.whole(c.mask, "GET").raw)
    c.drop()


def t_packets_are_no_longer_than_a_route_s_mtu():
    for metrics in (("mtu", "1300"), ("mtu", "lock", "1300")):
        with route(*metrics):
            for family in (4, 6):
                within(1300, family, metrics)


def t_packets_are_no_longer_than_a_router_allows_for_ipv6():
    """Its advertisements set the interface's MTU for IPv6 alone (RFC 4861 4.6.4)."""
    with setting("ipv6.conf.tbg0.mtu", 1300):
        settled()
        before = talk.counts(d)["HIT_WIRE"]
        within(1300, 6, "a router's MTU")
        assert talk.counts(d)["HIT_WIRE"] > before
    settled()


# --- the way back ------------------------------------------------------------

@contextlib.contextmanager
def loose():
    """A packet may come by another interface than its answer leaves by."""
    names = [f"ipv4.conf.{name}.rp_filter" for name in
             ("all", *(link.name for link in n.links))]
    was = [[ns.sysctl(name, 0) for name in names] for ns in (n.server, n.client)]
    try:
        yield
    finally:
        for ns, values in zip((n.server, n.client), was):
            for name, value in zip(names, values):
                ns.sysctl(name, value)


@contextlib.contextmanager
def moved(ns, to, by, via):
    """A route to this one address by another link."""
    words = ("ip", *(("-6",) if ":" in to else ()), "route")
    where = (to, "via", via, "dev", by.name)
    ns.run(*words, "add", *where)
    try:
        yield
    finally:
        ns.run(*words, "del", *where)


def ways(family):
    """For both links: the server's address, the client's."""
    return [(x.server4, x.client4) if family == 4 else (x.server6, x.client6) for x in n.links]


def t_what_the_kernel_answers_by_another_interface_is_the_kernel_s():
    """Requests come by the second link, for the first one's addresses, whoever answers SYNs."""
    taken = start(8082, *BY_WIRE[:-1], "kernel")
    try:
        for one, port in ((d, WIRE), (taken, 8082)):
            net.until(lambda one=one, port=port: get(one, port) == "wire", "it is never wire's")
        for family, (one, port) in itertools.product((4, 6), ((d, WIRE), (taken, 8082))):
            (server, own), (via, _) = ways(family)
            with loose(), moved(n.client, server, n.links[1], via):
                births = talk.ask(one, "status")["late_sockets"]["births"]
                for _ in range(4):
                    with talk.Connection(n.client.connect((server, port), (own, 0))) as c:
                        r = c.get("/nine")
                        assert r.tier != "wire" and r.body == BODIES["/nine"], (family, port, r)
                assert talk.ask(one, "status")["late_sockets"]["births"] == births, (family, port)
                if one is taken:
                    assert talk.counts(one)["IFACE"], "it was not for the way back"
            assert get(one, port, server) == "wire", (family, port)
    finally:
        assert taken.stop() == 0, taken.lines


def get(one, port, server=None):
    """The tier that answers on a new connection by the first link."""
    with talk.Connection(n.client.connect((server or n.links[0].server4, port))) as c:
        return c.get("/hit").tier


def t_a_route_back_that_moves_away_ends_in_right_bytes_or_a_reset():
    """Nothing that is sent by the old one arrives; the client learns it by its next turns."""
    link = n.links[0]
    for ns in (n.client, n.server):
        ns.run("ip", "route", "replace", "10.87.0.0/24", "dev", link.name)
    with loose(), talk.Connection(n.client.connect((link.server4, WIRE))) as c:
        assert c.get("/hit").tier == "wire"
        n.server.run("tc", "qdisc", "add", "dev", link.name, "root", "blackhole")
        try:
            hits = talk.hits(d)
            c.send(NINE)
            net.until(lambda: talk.hits(d) > hits, "it is not answered")
            with moved(n.server, link.client4, n.links[1], n.links[1].client4):
                settled()
                try:
                    body = c.response().body
                except ConnectionResetError:
                    body = None
                assert body in (None, BODIES["/nine"]), body
        finally:
            n.server.run("tc", "qdisc", "del", "dev", link.name, "root")
    for ns, own in ((n.client, link.client4), (n.server, link.server4)):
        ns.run("ip", "route", "replace", "10.87.0.0/24", "dev", link.name, "src", own, "rto_min",
               "2s")


@contextlib.contextmanager
def without(*words):
    """Without this address or route of the server, which comes back."""
    n.server.run("ip", *words[:1], "del", *words[1:])
    settled()
    yield
    n.server.run("ip", *words[:1], "add", *words[1:])
    settled()


@contextlib.contextmanager
def unreachable(to):
    """The way to ban a client that needs no firewall."""
    n.server.run("ip", "route", "add", "unreachable", to)
    settled()
    yield
    n.server.run("ip", "route", "del", "unreachable", to)
    settled()


def t_connections_that_exist_keep_to_routes_and_addresses_that_change():
    """As with a socket: no answer without a way back, nor for an address that is gone."""
    link = n.links[0]
    one, six = ("10.87.0.77", "10.87.0.77/32"), ("fd87::77", "fd87::77/128")
    for ip, prefix in (one, six):
        n.server.run("ip", "address", "add", prefix, "dev", link.name,
                     *("nodad",) * (":" in ip))
    settled()
    try:
        for ip, change in (
                (one[0], lambda: without("address", one[1], "dev", link.name)),
                (six[0], lambda: without("address", six[1], "dev", link.name)),
                (one[0], lambda: without("route", "local", one[0], "dev", link.name)),
                (link.server4, lambda: unreachable(link.client4))):
            with talk.Connection(n.client.connect((ip, WIRE))) as c:
                assert c.get("/hit").tier == "wire", ip
                counts = talk.counts(d)
                with change():
                    c.send(HIT)
                    net.until(lambda: talk.counts(d)["IFACE"] > counts["IFACE"],
                              "it is not the kernel's")
                r = c.response()
                assert (r.tier, r.body) == ("user", BODIES["/hit"]), (ip, r)
                assert talk.hits(d) == talk.hits_of(counts), ip
    finally:
        for _, prefix in (one, six):
            n.server.run("ip", "address", "del", prefix, "dev", link.name)


@contextlib.contextmanager
def rule(*words):
    n.server.run("ip", "rule", "add", *words)
    try:
        settled()
        yield
    finally:
        n.server.run("ip", "rule", "del", *words)
        settled()


def t_ways_that_depend_on_more_than_the_address_are_asked_for():
    """A rule that chooses by more than the address; and the start where there is one."""
    with rule("from", "10.99.99.99", "lookup", "77"):
        assert "rules" in late()["asks_why"], late()
        assert get(d, WIRE) == "user"
        net.until(lambda: get(d, WIRE) == "wire", "it is never wire's")
        other = start(8083, *BY_WIRE)
        try:
            status = talk.ask(other, "status")
            assert "rules" in status["late_sockets"]["asks_why"], status
            net.until(lambda: get(other, 8083) == "wire", "it is never wire's")
        finally:
            assert other.stop() == 0, other.lines
    assert late()["asks_why"] == "", late()
    assert get(d, WIRE) == "wire"


def t_a_new_route_is_known_at_once():
    """The first connection after it is wire's. Before, a packet from there finds no way back."""
    own, nr = "10.200.0.1", 12
    n.client.run("ip", "address", "add", f"{own}/32", "dev", n.links[0].name)

    def first_tier():
        time.sleep(0.1)         # so that no other reading is near
        with moved(n.server, own, n.links[0], n.links[0].client4):
            time.sleep(0.02 * client.SLOW)
            with talk.Connection(n.client.connect((n.links[0].server4, WIRE), (own, 0))) as c:
                return c.get("/hit").tier

    try:
        # on a busy machine the daemon may have to wait for a processor
        net.until(lambda: [first_tier() for _ in range(nr)].count("wire") >= nr // 2,
                  "it is never known that soon")
    finally:
        n.client.run("ip", "address", "del", f"{own}/32", "dev", n.links[0].name)


def t_a_table_that_is_being_loaded_takes_little_time():
    """Each route is a change, and to read them all after each would take a core."""
    nr = 100000 // (20 if client.IN_VM else 1)
    link = n.links[0]
    with tempfile.NamedTemporaryFile("w") as f:
        for i in range(nr):
            f.write(f"route add 11.{i >> 16}.{i >> 8 & 255}.{i & 255}/32 via {link.client4} "
                    f"dev {link.name}\n")
        f.flush()
        before, begun = limits.ticks(d), time.monotonic()
        try:
            n.server.run("ip", "-batch", f.name, timeout=client.WAIT_S * 5)
            took_s, cpu_s = time.monotonic() - begun, limits.ticks(d) - before
            ktap.note(f"{nr} routes in {took_s:.2f} s, and {cpu_s:.2f} s of the daemon")
            assert cpu_s < 0.5 + took_s / 3, (took_s, cpu_s)
            if nr > 65536:
                net.until(lambda: "beyond the 65536th" in late()["asks_why"], "they are read")
                net.until(lambda: get(d, WIRE) == "wire", "it is never wire's")
        finally:
            n.server.run("ip", "route", "flush", "root", "11.0.0.0/8", timeout=client.WAIT_S * 5)
    net.until(lambda: get(d, WIRE) == "wire", "it is never wire's again")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
