#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Connections without a socket: answers, hand-over, and what they leave behind."""
import contextlib
import os
import select
import shutil
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import maps
import net
import ptrace
import talk

PORT = 8080
GIVE_BACK = 3
IDLE_S = 30 if client.IN_VM else 3      # no client of a busy guest may be that slow
n = d = table = None
HIT = talk.content("hit", 600)
LARGE = talk.content("large", 300000)
miss_nr = 0


def begin():
    global n, d, table
    n = net.Net(links=1)
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0,lo", "--late-sockets", "auto",
                          "--give-back", str(GIVE_BACK), "--idle-timeout", f"{IDLE_S}s",
                          listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        d.write("hit", HIT)
        d.write("large", LARGE)
        d.start()
    n.late, n.held = slow, lambda: talk.held(d)
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    if talk.ask(d, "status")["late_sockets"] is None:
        why = f"no late sockets: {d.lines}"
        end()
        with open("/proc/kallsyms", encoding="ascii") as f:
            assert " bpf_sk_assign_tcp_reqsk\n" not in f.read(), why
        raise ktap.Skip("before Linux 6.9: no late sockets")
    table = maps.info(d.pid, "tbg_knowns")
    with connect() as c:
        c.get("/hit")
        c.get("/large")
    n.server.over(PORT)


def slow():
    """Repetitions on a slow machine: wire repeats bytes that are not acknowledged for 200 ms."""
    return talk.late(d) + talk.counts(d)["REPEAT"]


def end():
    if d:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


def address(family=4):
    return (n.links[0].server4 if family == 4 else n.links[0].server6, PORT)


def connect(family=4):
    return talk.Connection(n.client.connect(address(family)))


def miss():
    """A target that nobody has asked for: (target, body)."""
    global miss_nr
    miss_nr += 1
    body = talk.content(f"miss {miss_nr}", 700)
    d.write(f"{miss_nr}/miss", body)
    return f"/{miss_nr}/miss", body


def late():
    return talk.ask(d, "status")["late_sockets"]


def text(end):
    return f"[{end[0]}]:{end[1]}" if ":" in end[0] else f"{end[0]}:{end[1]}"


def row(c):
    """The connection as it is listed."""
    return next((x for x in talk.ask(d, "connections")["connections"]
                 if x["address"] == text(c.s.getsockname()) and x["state"] != "handed over"),
                None)


def sockets():
    """The connected sockets of the server's port."""
    return [x for x in n.server.sockets(PORT) if x[0] not in ("LISTEN", "TIME_WAIT")]


def t_nothing_looks_at_what_leaves():
    """One program on each interface, on the way in."""
    found = n.server.programs()
    assert {hook for _, hook in found} == {"ingress"}, found
    assert {name for names in found.values() for name in names} == {"tbg_ingress"}, found


def t_hits_have_no_socket():
    """From the SYN to the last FIN, whoever answered the SYN."""
    n.server.over(PORT)
    for family in (4, 6):
        for _ in range(20):
            with connect(family) as c:
                for _ in range(3):
                    r = c.get("/hit")
                    assert (r.tier, r.body) == ("wire", HIT), r
                assert not sockets(), sockets()
    assert not sockets()


def t_first_miss_gets_a_socket_and_every_byte():
    for family in (4, 6):
        before = late()["handed"]
        with connect(family) as c:
            assert c.get("/hit").tier == "wire"
            n.server.over(PORT)
            target, body = miss()
            r = c.get(target)
            assert (r.status, r.body) == (200, body), r
            assert len(sockets()) == 1, sockets()
            r = c.get("/large")
            assert r.body == LARGE and r.tier != "wire"
        assert late()["handed"] == before + 1


def t_requests_behind_a_hit_are_answered_in_order():
    """A hit, a miss and a hit in one segment; and each in its own, unacknowledged."""
    for whole in (True, False):
        with connect() as c:
            assert c.get("/hit").tier == "wire"
            target, body = miss()
            asks = [(talk.request("/hit"), HIT), (talk.request(target), body),
                    (talk.request("/hit"), HIT)]
            if whole:
                c.send(b"".join(data for data, _ in asks))
            else:
                for data, _ in asks:
                    c.send(data)
            for _, want in asks:
                assert c.response().body == want


def t_requests_in_pieces_wait_for_nothing():
    """
    Each in a segment of its own, sent before the answers to those before it have come:
    the connection changes hands with replies under way, and no segment is lost by that.
    """
    with n.clean(PORT):
        for family in (4, 6):
            with connect(family) as c:
                for i in range(60):
                    wants = [HIT if (i + k) % 3 else miss() for k in range(5)]
                    for want in wants:
                        c.send(talk.request("/hit" if want is HIT else want[0]))
                    for want in wants:
                        assert c.response().body == (HIT if want is HIT else want[1])
                    # the connection is wire's again
                    for _ in range(GIVE_BACK):
                        assert c.get("/hit").body == HIT


def t_idle_connection_is_given_back():
    """After this many answers that wire could have given; no packet tells of it."""
    n.server.over(PORT)
    before = late()["given"]
    with connect() as c, n.clean(PORT):
        target, body = miss()
        assert c.get(target).body == body
        tiers = [c.get("/hit").tier for _ in range(GIVE_BACK + 5)]
        assert tiers[:GIVE_BACK - 1] == ["user"] * (GIVE_BACK - 1), tiers
        assert tiers[GIVE_BACK - 1:] == ["wire"] * 6, tiers
        assert not sockets(), sockets()
        target, body = miss()
        assert c.get(target).body == body
    assert late()["given"] == before + 1


def t_segment_while_the_socket_is_being_closed_is_repeated():
    """A preempted daemon: wire has the connection already, and the socket still exists."""
    n.server.over(PORT)
    target, body = miss()
    with connect() as c:
        c.get(miss()[0])
        for _ in range(GIVE_BACK - 1):
            assert c.get("/hit").tier == "user"
        before, given = talk.held(d), late()["given"]
        with ptrace.stopped_at(d.pid, ptrace.CONNECT, lambda: c.send(talk.request("/hit"))):
            c.send(talk.request(target))
            net.until(lambda: talk.held(d) > before, "never dropped")
        assert (c.response().body, c.response().body) == (HIT, body)
    assert late()["given"] == given + 1


def t_segments_behind_one_that_is_repeated_are_repeated_too():
    """Wire keeps nothing behind a gap, and the client has sent them before its timeout."""
    n.server.over(PORT)
    (target, body), (other, more) = miss(), miss()
    with n.clean(PORT), connect() as c:
        c.get(miss()[0])
        for _ in range(GIVE_BACK - 1):
            assert c.get("/hit").tier == "user"
        held, behind = talk.held(d), talk.counts(d)["CHALLENGE"]
        with ptrace.stopped_at(d.pid, ptrace.CONNECT,
                               lambda: c.send(talk.request("/hit"))) as close:
            c.send(talk.request(target))
            net.until(lambda: talk.held(d) > held, "never dropped")
            close()
            # two segments and more, which the client does not put into one
            c.send(talk.request(other, "X: " + "x" * 4000))
            net.until(lambda: talk.counts(d)["CHALLENGE"] > behind, "never out of order")
        assert [c.response().body for _ in range(3)] == [HIT, body, more]


@contextlib.contextmanager
def to_be_killed(family):
    """A daemon of its own at port 80, and a connection that its next request gives back."""
    with net.Net() as other:
        with other.server.inside():
            killed = daemon.Daemon("--wire", "tbg0", "--give-back", "1", "--workers", "1",
                                   listen=("0.0.0.0:80", "[::]:80"))
            killed.write("hit", HIT)
            killed.write("large", LARGE)
            killed.start()
        link = other.links[0]
        try:
            with talk.Connection(other.client.connect(
                    (link.server4 if family == 4 else link.server6, 80))) as c:
                net.until(lambda: c.get("/hit").tier == "wire", "never published")
                assert c.get("/large").body == LARGE
                yield killed, c, other.client
        finally:
            killed.kill()


def child(pid, name):
    """The process of that name that another one has started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = f.read().split()
    for one in children:
        with open(f"/proc/{one}/comm", encoding="ascii") as f:
            if f.read().strip() == name:
                return int(one)
    raise AssertionError(f"no {name} among {children}")


def is_reset(c):
    try:
        raise AssertionError(f"not reset: {c.s.recv(100)}")
    except ConnectionResetError:
        pass


def t_daemon_that_is_killed_while_it_gives_a_connection_back_resets_it():
    """The kernel closes such a socket without a packet, and has acknowledged the request."""
    with to_be_killed(4) as (killed, c, _):
        with ptrace.stopped_at(killed.pid, ptrace.CONNECT, lambda: c.send(talk.request("/hit"))):
            c.acked()
            killed.process.kill()
        killed.process.wait()
        is_reset(c)


def t_daemon_that_is_killed_before_the_answer_of_a_give_back_resets_the_connection():
    """Its socket is closed already: the reset needs another one, at the same port."""
    for family in (4, 6):
        with to_be_killed(family) as (killed, c, _):
            with ptrace.stopped_at(killed.pid, ptrace.CONNECT,
                                   lambda c=c: c.send(talk.request("/hit"))) as disconnect:
                c.acked()       # or the client would send it again
                disconnect()
                killed.process.kill()
            killed.process.wait()
            is_reset(c)


def t_daemon_that_is_killed_after_a_give_back_resets_nobody_for_it():
    """The client has the answer; the numbers that a reset would have are below its window."""
    with to_be_killed(4) as (killed, c, where):
        assert c.get("/hit").tier == "wire"
        repair = os.pidfd_open(child(killed.pid, "tbg-repair"))
        killed.process.kill()
        killed.process.wait()
        assert select.select([repair], [], [], client.WAIT_S)[0], "tbg-repair does not end"
        os.close(repair)
        # what it may have sent has come before the answer to what is sent now
        try:
            raise AssertionError(f"listens: {where.connect((c.s.getpeername()[0], 1))}")
        except ConnectionRefusedError:
            pass
        c.s.setblocking(False)
        try:
            raise AssertionError(f"ended: {c.s.recv(100)}")
        except BlockingIOError:
            pass


def t_what_is_too_long_for_wire_is_not_given_back():
    """The daemon asks less and less often, and makes no attempt."""
    long = talk.content("long", 30000)
    d.write("long", long)
    with connect() as c:
        net.until(lambda: c.get("/long").tier == "user", "the daemon does not cache it")
    with connect() as c:
        target, body = miss()
        assert c.get(target).body == body
        with maps.runs(d.pid, "tbg_push") as runs:
            for _ in range(14):
                assert c.get("/long").body == long
    assert runs[0] <= 5, f"{runs[0]} questions and attempts"


def place(port, family=4):
    """(where the table has a connection from this port, its mark): bpf/wire/known.bpf.h."""
    link, mix, most = n.links[0], 0x9e3779b97f4a7c15, (1 << 64) - 1
    if family == 4:
        mark, = struct.unpack("<Q", socket.inet_aton(link.client4) + socket.inet_aton(link.server4))
    else:
        mark, *rest = struct.unpack("<4Q", socket.inet_pton(socket.AF_INET6, link.client6) +
                                    socket.inet_pton(socket.AF_INET6, link.server6))
        for word in rest:
            mark = mark * mix & most ^ word
    ports = socket.htons(PORT) << 16 | socket.htons(port)
    mark = (mark ^ ports << 24 ^ (family == 6)) * mix & most
    return mark >> 50, mark


def is_known(port, family=4):
    """Whether wire passes segments of this connection without looking for it."""
    at, mark = place(port, family)
    return struct.unpack_from("<Q", maps.element(table, at))[0] == mark


def from_port(port, family=4):
    """A connection of this port of the client."""
    link = n.links[0]
    source = link.client4 if family == 4 else link.client6
    return talk.Connection(n.client.connect(address(family), source=(source, port)))


def one_of_the_kernel_s(port, family=4):
    """It has a socket, and wire knows; the place of another one it does not take at once."""
    c = from_port(port, family)
    for _ in range(400):
        target, body = miss()
        assert c.get(target).body == body
        if is_known(port, family):
            return c
    raise AssertionError("its segments are searched for each time")


def t_known_connection_that_is_closed_is_forgotten():
    for close in (talk.Connection.close, talk.Connection.half_close, talk.Connection.reset):
        for family, port in ((4, 40005), (6, 40006)):
            with one_of_the_kernel_s(port, family) as c:
                close(c)
                net.until(lambda: not is_known(port, family), "still known")
            n.server.over(PORT)


def t_port_of_a_connection_with_a_socket_is_used_again():
    """What wire knows of the old connection does not concern the new one."""
    for family, port in ((4, 40001), (6, 40002)):
        n.server.over(PORT)
        with one_of_the_kernel_s(port, family) as c:
            c.reset()
        with from_port(port, family) as c:
            for _ in range(3):
                r = c.get("/hit")
                assert (r.tier, r.body) == ("wire", HIT), r
            assert not is_known(port, family)
            target, body = miss()
            assert c.get(target).body == body


def t_known_connection_is_given_back():
    for family, port in ((4, 40003), (6, 40004)):
        with one_of_the_kernel_s(port, family) as c, n.clean(PORT):
            tiers = [c.get("/hit").tier for _ in range(GIVE_BACK + 3)]
            assert tiers[-4:] == ["wire"] * 4, tiers
            assert not is_known(port, family)
            target, body = miss()
            assert c.get(target).body == body


def t_connections_of_one_slot_are_all_served():
    """One of them at most is known, and which one changes."""
    ports = [port for port in range(2000, 65000) if place(port)[0] == place(41000)[0]][:3]
    assert len(ports) == 3
    with contextlib.ExitStack() as stack:
        cs = [stack.enter_context(one_of_the_kernel_s(port)) for port in ports]
        seen = set()
        while len(seen) < 2:
            for c in 10 * cs:
                target, body = miss()
                assert c.get(target).body == body
            seen.update(filter(is_known, ports))
        for c in cs:
            # the more attempts were refused, the fewer are made
            assert any(c.get("/hit").tier == "wire" for _ in range(200))


def t_page_of_thirty_files_behind_one_dynamic_answer():
    with connect() as c:
        target, body = miss()
        assert c.get(target).body == body
        wired = sum(c.get("/hit").tier == "wire" for _ in range(30))
    assert wired > 25, f"{wired} of 30 by wire"


def t_idle_connection_is_closed_with_a_fin():
    """One that has had an answer, after --idle-timeout."""
    with connect() as c:
        assert c.get("/hit").tier == "wire"
        c.s.settimeout(IDLE_S + client.WAIT_S)
        assert c.s.recv(1) == b""


def t_idle_client_on_this_machine_gets_the_fin():
    """Its own addresses are no valid sources of what comes in, unless it was routed before."""
    for host in ("127.0.0.1", n.links[0].server4, "::1"):
        with talk.Connection(n.server.connect((host, PORT))) as c:
            assert c.get("/hit").tier == "wire", host
            assert not row(c)["socket"], row(c)
            c.s.settimeout(IDLE_S + client.WAIT_S)
            assert c.s.recv(1) == b"", host


def t_half_close_gets_the_answer_and_a_fin():
    with connect() as c:
        c.send(talk.request("/hit"))
        c.half_close()
        r = c.response()
        assert (r.tier, r.body) == ("wire", HIT), r
        assert c.ended()


@contextlib.contextmanager
def filtered(*rules):
    """nftables has these rules in a chain at input of the server."""
    lines = ["add table inet tbg",
             "add chain inet tbg inward { type filter hook input priority 0; }",
             *(f"add rule inet tbg inward {rule}" for rule in rules)]
    try:
        n.server.run("nft", "; ".join(lines))
    except (RuntimeError, FileNotFoundError) as why:
        raise ktap.Skip(f"no nftables: {why}") from why
    try:
        net.until(lambda: late()["syns"] != "wire", "the filter is not seen")
        assert late()["syns_why"] == "nftables has a chain at input: table tbg, chain inward", \
               late()
        yield
    finally:
        n.server.run("nft", "delete table inet tbg")
        net.until(lambda: late()["syns"] == "wire", "it is not seen that the filter has gone")


def t_kernel_answers_syns_where_a_filter_could_refuse_them():
    """Wire takes the connection over at the client's next segment, without a socket."""
    with filtered():
        assert late()["syns"] == "the kernel", late()
        n.server.over(PORT)
        before = talk.counts(d)["SYN_ACK"]
        for family in (4, 6):
            for _ in range(10):
                with connect(family) as c:
                    r = c.get("/hit")
                    assert (r.tier, r.body) == ("wire", HIT), r
                    assert not sockets(), sockets()
        assert talk.counts(d)["SYN_ACK"] == before


def t_client_that_is_refused_gets_nothing_from_wire():
    with connect() as c:
        assert c.get("/hit").tier == "wire"
    with filtered(f"ip saddr {n.links[0].client4} tcp dport {PORT} drop"):
        for _ in range(3):
            try:
                n.client.connect(address(), timeout=0.5).close()
            except TimeoutError:
                continue
            raise AssertionError("connected")
        with connect(6) as c:
            assert c.get("/hit").tier == "wire"
    with connect() as c:
        assert c.get("/hit").tier == "wire"


def t_filter_that_drops_what_is_invalid_lets_misses_through():
    """firewalld and ufw do: conntrack has not seen what wire has sent."""
    with filtered("ct state invalid counter drop"), n.clean(PORT):
        if late()["syns"] != "the kernel":
            raise ktap.Skip(f"connections stay the kernel's: {late()['syns_why']}")
        for family in (4, 6):
            with connect(family) as c:
                for _ in range(3):
                    for _ in range(50):
                        assert c.get("/hit").body == HIT
                    for _ in range(2):
                        target, body = miss()
                        assert c.get(target).body == body
                    for _ in range(GIVE_BACK + 2):
                        assert c.get("/hit").body == HIT
                    assert c.get("/hit").tier == "wire"
                assert c.get("/large").body == LARGE
        assert " packets 0 " in n.server.run("nft", "list", "table", "inet", "tbg")


def t_connections_are_listed_with_a_socket_and_without():
    """The requests that wire answered before are counted on, and those of the daemon."""
    for family in (4, 6):
        with connect(family) as c:
            for _ in range(5):
                assert c.get("/hit").tier == "wire"
            one = row(c)
            assert (one["tier"], one["socket"], one["state"], one["requests"]) == \
                ("wire", False, "open", 5), one
            assert one["listener"] == text(c.s.getpeername()), one
            target, body = miss()
            assert c.get(target).body == body
            later = row(c)
            assert (later["tier"], later["socket"], later["requests"]) == ("user", True, 6), later
            assert later["age_s"] >= one["age_s"], (one, later)
            for _ in range(GIVE_BACK):
                c.get("/hit")
            again = row(c)
            assert (again["tier"], again["socket"], again["requests"]) == \
                ("wire", False, 6 + GIVE_BACK), again
            assert again["age_s"] >= later["age_s"], (later, again)


# (HTTP version, fields, Connection of the answer, closed behind it)
ENDS = (("HTTP/1.0", (), "close", True),
        ("HTTP/1.0", ("Connection: Keep-Alive",), "keep-alive", False),
        ("HTTP/1.1", ("Connection: close",), "close", True),
        ("HTTP/1.0", ("Connection: close",), "close", True),
        ("HTTP/1.1", ("Connection: keep-alive",), None, False))


def ends(target, body, version, fields, line, closes, method="GET"):
    """One such request on a connection of its own; the answer."""
    with connect() as c:
        c.send(talk.request(target, *fields, method=method, version=version))
        r = c.response(method)
        assert r.fields.get("Connection") == line, r
        assert r.body == body, r
        if closes:
            c.end()
        else:
            assert c.get("/hit").body == HIT
    return r


def t_answers_that_end_a_connection_are_the_user_tier_s():
    """HTTP/1.0, keep-alive, close: the same bytes, one segment or several, and no socket."""
    sizes = (600, 601, 1300, 1400, 1420, 1430, 1440, 1447, 2900, 9001)
    for size in sizes:
        d.write(f"ends/{size}", talk.content(str(size), size))
    for how in ENDS:
        for size in sizes:
            target, body = f"/ends/{size}", talk.content(str(size), size)
            talk.ask(d, "purge", target)
            slow = ends(target, body, *how)
            assert slow.tier != "wire", slow
            etag = slow.fields["ETag"]
            with n.clean(PORT):
                fast = ends(target, body, *how)
            assert fast.tier == "wire" and fast.bare() == slow.bare(), (fast, slow)
        for fields, method, status in (((), "HEAD", 200),
                                       ((f"If-None-Match: {etag}",), "GET", 304)):
            r = ends(target, b"", how[0], how[1] + fields, *how[2:], method=method)
            assert (r.tier, r.status) == ("wire", status), r


def t_data_behind_our_fin_is_taken():
    """The client comes to its end, though nobody reads what it sends."""
    with connect() as c, n.clean(PORT):
        c.send(talk.request("/hit", "Connection: close"))
        c.send(talk.request("/hit"))
        assert c.response().body == HIT
        c.end()
        c.send(b"x" * 3000)
        c.acked()
        port = c.s.getsockname()[1]
    net.until(lambda: not any(state not in ("TIME_WAIT",) and remote == PORT
                              for state, remote, *_ in n.client.sockets(port)),
              "the client's socket stays")


def t_apache_bench_is_answered_by_wire():
    """The real one, from the first SYN to the last FIN, with -k and without."""
    ab = shutil.which("ab")
    if not ab:
        raise ktap.Skip("no ab: install apache2-utils")
    count = 200 if client.IN_VM else 1000
    host, port = address()
    for words in ((), ("-k",)):
        before, hits = late(), talk.hits(d)
        out = n.client.run(ab, "-q", *words, "-n", str(count), "-c", str(count // 5),
                           f"http://{host}:{port}/hit", timeout=120)
        assert f"Complete requests:      {count}\nFailed requests:        0\n" in out, out
        # a SYN now and then is the kernel's, to learn from, and wire's at its ACK
        assert talk.hits(d) - hits == count, (talk.hits(d) - hits, out)
        assert late()["handed"] == before["handed"], late()
        assert not sockets(), sockets()


def syn_acks(count):
    """The options and windows of the next SYN-ACKs that leave, as sent: [(raw, window)]."""
    ret = []
    with n.client.inside():
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        tap.bind((n.links[0].name, 0))
    tap.settimeout(10)
    try:
        for _ in range(count):
            connect().close()
        while len(ret) < count:
            frame = tap.recv(2048)
            if frame[12:14] != b"\x08\0" or frame[23] != 6 or frame[47] & 0x3f != 0x12:
                continue
            tcp = frame[34:]
            options = tcp[20:(tcp[12] >> 4) * 4]
            kinds, at = [], 0
            while at < len(options):
                kind = options[at]
                size = 1 if kind < 2 else options[at + 1]
                kinds.append((kind, b"" if kind == 8 else options[at + 2:at + size]))
                at += size
            ret.append((kinds, struct.unpack("!H", tcp[14:16])[0], frame[22], frame[20:22]))
    finally:
        tap.close()
    return ret


def t_syn_ack_is_as_the_kernel_s():
    """Options and their order, window, TTL, DF: wire's and the kernel's are the same."""
    time.sleep(1.1)                         # the next SYN is the kernel's, to learn from
    before = talk.counts(d)["SYN_ACK"] if "SYN_ACK" in talk.counts(d) else 0
    seen = syn_acks(12)
    assert all(x == seen[0] for x in seen), seen
    after = talk.counts(d).get("SYN_ACK", 0)
    assert 6 <= after - before < 12, f"{after - before} of 12 by wire"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
