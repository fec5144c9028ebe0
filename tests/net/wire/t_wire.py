#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hits at the packet, over veth and lo: same bytes, and TCP that notices nothing.

Most tests run in a clean() block: the MIBs of both namespaces must show no
retransmission, no wrong checksum, nothing out of order.
"""
import contextlib
import ctypes
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import nat
import net
import talk

PORT = 8080
ROUNDS = 4 if daemon.IN_VM else 20
SO_ATTACH_FILTER = 26
# Of segments of 600 bytes and more one of four is lost, at random.
_steps = [(0x80, 0, 0, 0), (0x35, 0, 2, 600), (0x20, 0, 0, 0xfffff038), (0x25, 1, 0, 0xc0000000),
          (0x06, 0, 0, 0xffffffff), (0x06, 0, 0, 0)]
_code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in _steps))
LOSSY = struct.pack("HP", len(_steps), ctypes.addressof(_code))
n = d = two = None
name_nr = 0


def begin():
    global n, d
    n = net.Net(links=2)
    with n.server.inside():
        # the objects of all tests stay; a small machine has less, and refuses the last
        d = daemon.Daemon("--wire", "tbg0,tbg1,lo", "--workers", "2", "--memory", "256M",
                          listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}")).start()
    n.late = lambda: talk.late(d)
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))


def end():
    for one in (d, two):
        if one:
            assert one.stop() == 0, one.lines
    if n:
        n.close()


def translating():
    """A daemon beside, with the same files, whose connections all have a socket, and none by lo."""
    global two
    if not two:
        with n.server.inside():
            two = daemon.Daemon("--wire", "tbg0,tbg1", "--workers", "1", "--late-sockets", "off",
                                root=d.root, listen=(f"0.0.0.0:{PORT + 1}",
                                                     f"[::]:{PORT + 1}")).start()
    return two


def fresh(size=500):
    """A file that nobody has asked for yet: (target, body).

    In a folder that the daemon has not seen yet: the news of its birth could
    otherwise come after the first GET, and take the object out again.
    """
    global name_nr
    name_nr += 1
    body = talk.content(f"f{name_nr}", size)
    d.write(f"{name_nr}/f.txt", body)
    return f"/{name_nr}/f.txt", body


def ways(families=(4, 6), lo=True):
    """(where the client is, address) for each way to the daemon."""
    for link in n.links:
        if 4 in families:
            yield n.client, (link.server4, PORT)
        if 6 in families:
            yield n.client, (link.server6, PORT)
    if lo:
        for address in ["127.0.0.1"] * (4 in families) + ["::1"] * (6 in families):
            yield n.server, (address, PORT)


@contextlib.contextmanager
def connection(where, address):
    with talk.Connection(where.connect(address)) as c:
        yield c


def windows(c):
    """rcv_ssthresh and rcv_space of its struct tcp_info."""
    info = c.s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return [struct.unpack_from("=I", info, 8 + 4 * word)[0] for word in (14, 22)]


def miss_then_hit(where, address, size=500, wire=True):
    """
    First by the daemon, then by wire, on connections of their own and on one. wire
    None: each by either, since segments may be cut short (tbg_reply_true).
    """
    target, body = fresh(size)
    before = talk.counts(d)
    with connection(where, address) as c:
        first = c.get(target)
    assert (first.status, first.body) == (200, body), first
    assert first.tier == "stored", first
    got = []
    with connection(where, address) as c:
        got.append(c.get(target))
    with connection(where, address) as c:
        got += [c.get(target) for _ in range(3)]
    after = talk.counts(d)
    for r in got:
        assert r.bare() == first.bare(), f"{r} differs from {first}"
        assert wire is None or (r.tier == "wire") == wire, f"{address} {size}: {r}"
    assert after["HIT_WIRE"] - before["HIT_WIRE"] == sum(r.tier == "wire" for r in got)
    return first


def mixed(where, address, rounds=ROUNDS, small=500, large=40000):
    """Hits and misses, turn by turn, on one connection."""
    hit, hit_body = fresh(small)
    with connection(where, address) as c:
        c.get(hit)
    wired, before = 0, talk.counts(d)
    with connection(where, address) as c:
        for i in range(rounds):
            target, body = fresh(small + i)
            want = [(hit, hit_body), (target, body), (hit, hit_body), (hit, hit_body)]
            if i % 4 == 1:
                want.insert(2, fresh(large))
            for t, b in want:
                r = c.get(t)
                assert (r.status, r.body) == (200, b), f"{address}: {r}"
                wired += r.tier == "wire"
    why = {name: nr - before[name] for name, nr in talk.counts(d).items() if nr > before[name]}
    assert wired >= rounds, f"{address}: {wired} of {3 * rounds} by wire; {why}"


def all_ways(fn, shared=False, **which):
    """shared: a third of them on each of the test kernels that are run together."""
    found = list(ways(**which))
    for where, address in daemon.share(found) if shared else found:
        with n.clean(PORT):
            try:
                fn(where, address)
            except Exception as why:
                raise AssertionError(f"{address[0]}: {why!r}") from why


def t_first_by_user_second_by_wire():
    all_ways(miss_then_hit)


def t_no_length_of_a_reply_closes_the_client_s_window():
    """
    A client here judges by the first reply how much payload its buffer holds; the
    skb was its own request's, which no reply may outgrow unnoticed.
    """
    for where, address in ways((4,)):
        for size in range(450, 1400, 60):
            target, body = fresh(size)
            with connection(where, address) as c:
                c.get(target)
            with connection(where, address) as c:
                r = c.get(target)
                assert r.tier == "wire" and r.body == body, r
                assert min(windows(c)) > 8192, \
                    f"{len(r.head) + 4 + size} bytes: rcv_ssthresh, rcv_space {windows(c)}"


def t_head():
    def one(where, address):
        target, body = fresh()
        with connection(where, address) as c:
            miss = c.ask("HEAD", target)
            assert miss.status == 200 and miss.tier != "wire"
            full = c.get(target)
            assert full.body == body
        with connection(where, address) as c:
            before = talk.hits(d)
            for _ in range(3):
                r = c.ask("HEAD", target)
                assert r.tier == "wire", r
                assert r.bare() == miss.bare(), r
                assert (r.bare()[0], body) == c.get(target).bare()
            assert talk.hits(d) == before + 6
    all_ways(one)


def t_304():
    def one(where, address):
        target, body = fresh()
        with connection(where, address) as c:
            first = c.get(target)
            etag = first.fields["ETag"]
            modified = first.fields["Last-Modified"]
        with connection(where, address) as c:
            before = talk.hits(d)
            same = (etag, f"W/{etag}", f'"a", W/"b" ,{etag}, "c"', f"{etag},", "*")
            since = (modified, "Fri, 01 Jan 2100 00:00:00 GMT")
            for field in [f"If-None-Match: {x}" for x in same] + \
                         [f"If-Modified-Since: {x}" for x in since]:
                r = c.get(target, field)
                assert r.status == 304 and r.tier == "wire", (field, r)
                assert r.fields["ETag"] == etag
            for field in ('If-None-Match: "other"', f'If-None-Match: "a", W/"b{etag[1:]}',
                          "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"):
                r = c.get(target, field)
                assert r.tier == "wire" and (r.status, r.body) == (200, body), (field, r)
            assert talk.hits(d) == before + len(same) + len(since) + 3
            for field in ("If-None-Match: x", "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT"):
                r = c.get(target, field)
                assert r.tier == "user" and (r.status, r.body) == (200, body), (field, r)
            # the daemon too: two requests in one segment are not wire's
            ask = talk.request(target, f"If-None-Match: {etag}")
            c.send(ask + ask)
            for by_user in (c.response(), c.response()):
                assert by_user.tier == "user"
                assert by_user.bare() == c.get(target, f"If-None-Match: {etag}").bare()
    all_ways(one)


def t_hit_miss_hit_on_one_connection():
    all_ways(mixed)


def t_hit_right_after_an_answer_of_any_size():
    def one(where, address):
        hit, hit_body = fresh()
        with connection(where, address) as c:
            c.get(hit)
            for size in (0, 1, 1000, 4000, 5000, 20000, 60000, 100000, 1000000):
                if size > 100000 and daemon.IN_VM and address[0] != n.links[0].server4:
                    continue
                target, body = fresh(size)
                for _ in range(2):      # both from the file and from the cache
                    r = c.get(target)
                    assert r.body == body, r
                    r = c.get(hit)
                    assert (r.tier, r.body) == ("wire", hit_body), f"after {size} bytes: {r}"
    all_ways(one)


def t_all_interfaces_at_once():
    with contextlib.ExitStack() as stack, n.clean(PORT):
        cs = [stack.enter_context(connection(*way)) for way in ways()]
        target, body = fresh()
        for i in range(10):
            for c in cs:
                c.send(talk.request(target))
            other, other_body = fresh()
            for c in cs:
                assert c.response().body == body
                assert c.get(other).body == other_body
    assert talk.hits(d)


def t_connection_to_a_translated_address_stays_on_the_stack():
    """Its packets have another address here than in its socket: the daemon could not tell whose
    they are. Where a connection has one owner, NAT makes all of them the kernel's."""
    link, port = n.links[0], PORT + 1
    translating()
    for version, own, other in ((4, link.server4, f"10.87.{link.nr}.9/24"),
                                (6, link.server6, f"fd87:{link.nr}::9/64")):
        n.server.run("ip", "address", "add", other, "dev", link.name, *["nodad"] * (version == 6))
        target, body = fresh()
        with connection(n.client, (own, port)) as c:
            assert c.get(target).tier == "stored"
        with nat.to(n.server, version, own), n.clean(port):
            for address, tier in ((other.split("/")[0], "user"), (own, "wire")):
                with connection(n.client, (address, port)) as c:
                    tiers = set()
                    for _ in range(3):
                        r = c.get(target)
                        assert r.body == body
                        tiers.add(r.tier)
                assert tiers == {tier}, (address, tiers)


def t_link_local_clients_of_two_links_may_have_the_same_ends():
    """So they stay on the stack, which tells the links apart."""
    target, body = fresh()
    for link in n.links:
        n.server.run("ip", "address", "add", "fe80::1/64", "dev", link.name, "nodad")
        n.client.run("ip", "address", "add", "fe80::2/64", "dev", link.name, "nodad")
        for ns in (n.server, n.client):     # as Link.up() has it for other addresses
            ns.run("ip", "-6", "route", "replace", "fe80::/64", "dev", link.name, "metric", "1",
                   "rto_min", "2s")

    def connect(link):
        with n.client.inside():
            scope = socket.if_nametoindex(link.name)
        return talk.Connection(n.client.connect(("fe80::1", PORT, 0, scope),
                                                source=("fe80::2", 40000, 0, scope)))

    try:
        with n.clean(PORT), contextlib.ExitStack() as stack:
            cs = []
            for link in n.links:
                cs.append(stack.enter_context(connect(link)))
                for c in cs * 3:
                    r = c.get(target)
                    assert r.body == body and r.tier in ("stored", "user"), r
    finally:
        for link in n.links:
            n.server.run("ip", "address", "del", "fe80::1/64", "dev", link.name)
            n.client.run("ip", "address", "del", "fe80::2/64", "dev", link.name)


def t_requests_of_browser_size():
    fields = ["User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101",
              "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
              "Accept-Language: en-GB,en;q=0.7,de;q=0.3", "Connection: keep-alive",
              "Cookie: " + "k" * 350, "Upgrade-Insecure-Requests: 1", "DNT: 1"]

    def one(where, address):
        target, body = fresh()
        with connection(where, address) as c:
            c.get(target, *fields)
            for _ in range(5):
                r = c.get(target, *fields)
                assert r.tier == "wire" and r.body == body, r
    all_ways(one)


@contextlib.contextmanager
def client_sysctl(name, value):
    was = {ns: ns.sysctl(name, value) for ns in (n.client,)}
    try:
        yield
    finally:
        for ns, old in was.items():
            ns.sysctl(name, old)


def without(name):
    with client_sysctl(name, 0):
        all_ways(miss_then_hit, shared=True, lo=False)
        all_ways(mixed, shared=True, lo=False)


def t_client_without_timestamps():
    without("ipv4.tcp_timestamps")


def t_client_without_sack():
    without("ipv4.tcp_sack")


def t_client_without_window_scaling():
    without("ipv4.tcp_window_scaling")


def t_client_without_any_option():
    with client_sysctl("ipv4.tcp_timestamps", 0), client_sysctl("ipv4.tcp_sack", 0):
        without("ipv4.tcp_window_scaling")


def t_client_with_a_small_window():
    """A response that does not fit into the window is left to the socket."""
    def one(where, address):
        target, body = fresh(1200)
        with connection(where, address) as c:
            c.get(target)
        s = where.connect(address, setup=lambda s: s.setsockopt(1, 8, 1))   # SO_RCVBUF
        with talk.Connection(s) as c:
            for _ in range(10):
                r = c.get(target)
                assert r.body == body
    all_ways(one, lo=False)


def t_small_buffer_of_a_client_here_makes_nobody_wait():
    """Like after any reply of the socket, it opens its window for the next."""
    for where, address in ways((4,)):
        late = talk.kept_waiting(where, address, fresh)
        assert not late, f"{address[0]}: {late}"


SEGMENTS = 10           # of the longest reply
LONGEST = 45000         # within a client's first window, and a blob


def fitting(address, room):
    """The body whose response is room bytes long."""
    fits = room - 300
    for _ in range(3):      # a head's length depends on the body's
        with connection(n.client, address) as c:
            r = c.get(fresh(fits)[0])
        head = len(r.head + b"\r\n\r\n" + b"hit; detail=wire")
        fits = room - head + len("fwd=uri-miss; stored")
    return fits


def mtu(size, families):
    """
    Whatever is about as large as some segments, on either side of it. In a guest with the
    first of families alone, where each of these takes half a minute.
    """
    link = n.links[0]
    link.set_mtu(size)
    try:
        for family in families[:1] if daemon.IN_VM else families:
            address = (link.server4 if family == 4 else link.server6, PORT)
            mss = size - (40 if family == 4 else 60) - 12
            with n.clean(PORT):
                for k in (1, 2, SEGMENTS) if daemon.IN_VM else (1, 2, 3, SEGMENTS):
                    room = mss if k == 1 else k * (mss & ~3)
                    if room > LONGEST:
                        continue
                    fits = fitting(address, room)
                    for length in (fits - 1, fits, fits + 1):
                        miss_then_hit(n.client, address, length,
                                      k < SEGMENTS or (None if length <= fits else False))
                    # so much fits, however they are cut
                    miss_then_hit(n.client, address, fits * 3 // 4)
                    if k == SEGMENTS:
                        fits = fits * 3 // 4
                    mixed(n.client, address, small=fits - ROUNDS)
    finally:
        link.set_mtu(1500)


def t_mtu_1500():
    mtu(1500, (4, 6))


def other_mtu(size, families):
    """One of them on each of the test kernels that are run together."""
    if size not in daemon.share((9000, 1280, 576)):
        raise ktap.Skip("another test kernel has this MTU")
    mtu(size, families)


def t_mtu_9000():
    other_mtu(9000, (6, 4))


def t_mtu_1280():
    other_mtu(1280, (6, 4))


def t_mtu_576():
    other_mtu(576, (4,))


def offload(ends=("server", "client"), **features):
    link = n.links[0]
    everything = {"rx": "on", "tx": "on", "sg": "on", "tso": "on", "gso": "on", "gro": "off"}
    link.offload(ends, **features)
    try:
        for address in daemon.share((link.server4, link.server6), 2):
            with n.clean(PORT):
                miss_then_hit(n.client, (address, PORT), 1)     # an odd length
                miss_then_hit(n.client, (address, PORT), 1000)
                mixed(n.client, (address, PORT), rounds=min(8, ROUNDS))
    finally:
        link.offload(**everything)


def t_offloads_all_on():
    offload(rx="on", tx="on", sg="on", tso="on", gso="on", gro="on")


def t_offloads_all_off():
    offload(gro="off", tso="off", gso="off", tx="off", rx="off")


def t_checksums_by_software_both_ends():
    offload(tx="off")


def t_checksums_by_software_at_the_client():
    offload(("client",), tx="off")


def t_checksums_by_software_at_the_server():
    offload(("server",), tx="off")


def t_checksums_unchecked_by_the_device():
    offload(tx="off", rx="off", gro="on")


def t_segments_by_software_with_gro():
    offload(tso="off", gso="off", gro="on")


def t_nothing_was_lost_on_the_way():
    c = talk.counts(d)
    for name in ("REPEAT", "STALE_REPEAT", "CSUM", "RACE", "BLOB", "CLOCK", "ROOM"):
        assert c[name] == 0, f"{name} {c[name]}"


def t_repeats_keep_the_client_s_window():
    """The same for repetitions, which replace acknowledgements with a truesize of 2."""
    target, body = fresh(9000)          # ten segments hold it however it is cut
    before = talk.counts(d)["REPEAT"]
    link = n.links[0]
    n.server.run("ip", "route", "change", "10.87.0.0/24", "dev", link.name, "src", link.server4)
    try:
        for _ in range(16 if daemon.IN_VM else 40):
            with connection(n.client, (link.server4, PORT)) as c:
                c.s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, LOSSY)
                assert c.get(target).body == body
                assert min(windows(c)) > 8192, f"rcv_ssthresh, rcv_space {windows(c)}"
                c.reset()
    finally:
        link.up()
    assert talk.counts(d)["REPEAT"] > before


def t_http_1_0_and_close_are_the_daemon_s_where_there_is_a_socket():
    """The socket has to close, or to say keep-alive: t_late has those that wire ends itself."""
    target, body = fresh()
    one, address = translating(), (n.links[0].server4, PORT + 1)
    with connection(n.client, address) as c:
        c.get(target)
    for version, fields, why, line in (
            ("HTTP/1.0", (), "VERSION", "close"),
            ("HTTP/1.0", ("Connection: Keep-Alive",), "VERSION", "keep-alive"),
            ("HTTP/1.1", ("Connection: close",), "FIELD", "close")):
        before = talk.counts(one)
        with connection(n.client, address) as c:
            assert c.get(target).tier == "wire"
            c.send(talk.request(target, *fields, version=version))
            r = c.response()
            assert (r.tier, r.body, r.fields["Connection"]) == ("user", body, line), r
            if line == "close":
                c.end()
        now = talk.counts(one)
        assert now[why] == before[why] + 1, (why, {k: now[k] - before[k] for k in now
                                                   if now[k] != before[k]})


def longest_segment(c):
    """rcv_mss of its struct tcp_info, never less than 536."""
    return struct.unpack_from("=I", c.s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 20)[0]


def tcp_divides_by_truesize():
    """Whether this kernel's TCP is of those for which wire cuts segments short (tbg_reply_true)."""
    with open("/sys/kernel/btf/vmlinux", "rb") as f:
        return b"\0scaling_ratio\0" in f.read()


def sizes_by_wire(one, port):
    """
    [(bytes of a reply, whether wire answered it)], the payload of wire's segments to this
    client, which may be cut short (tbg_reply_true), and what the daemon says of its limit.
    """
    address, ret = (n.links[1].server4, port), []
    for size in (1000, 3000, 9000, 10300, 12000, 13500, 14700):
        with open(os.path.join(one.root, f"{size}.bin"), "wb") as f:
            f.write(os.urandom(size))
        with connection(n.client, address) as c:
            replies = [c.get(f"/{size}.bin") for _ in range(4)]
        last = replies[-1]
        ret.append((len(last.head) + 4 + len(last.body), last.tier == "wire"))
        if size == 3000:
            with connection(n.client, address) as c:
                assert c.get(f"/{size}.bin").tier == "wire"
                segment = longest_segment(c)
    return ret, segment, talk.ask(one, "status"), talk.ask(one, "why", "/14700.bin")


def t_more_than_ten_segments_are_left_to_the_daemon():
    """By default, on connections without a socket and with one."""
    link = n.links[1]
    for late in daemon.share(["auto", "off"], 2):
        with n.server.inside():
            one = daemon.Daemon("--wire", link.name, "--workers", "1", "--late-sockets", late,
                                listen=f"{link.server4}:{PORT + 2}")
            one.start()
        try:
            sizes, segment, status, why = sizes_by_wire(one, PORT + 2)
        finally:
            assert one.stop() == 0, one.lines
        limit = status["wire_size"]
        assert status["wire_size_auto"] and limit == 10 * (1500 - 52), status
        least = limit * 4 // 5 if tcp_divides_by_truesize() else limit - 1
        assert least < 10 * segment <= limit, (segment, limit)
        assert sizes == [(size, size <= 10 * segment) for size, _ in sizes], (late, sizes, segment)
        assert why["why"] == "SIZE" and "sends at once (ten segments at most)" in why["detail"], why


def t_wire_size_is_the_limit_that_was_asked_for():
    """One of them on each of the test kernels that are run together."""
    link = n.links[1]
    for text, limit in daemon.share([("3400", 3400), ("8K", 8192), ("64K", None)]):
        with talk.serving(n.server, link.name, "--wire-size", text,
                          listen=(f"{link.server4}:{PORT + 2}",)) as one:
            sizes, segment, status, _ = sizes_by_wire(one, PORT + 2)
        longest = limit or 10 * segment
        assert sizes == [(size, size <= longest) for size, _ in sizes], (text, sizes, segment)
        assert not status["wire_size_auto"], status
        assert status["wire_size"] == limit or not limit and status["wire_size"] > 14000, status


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
