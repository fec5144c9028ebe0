#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hits on the socket's own TCP: the bytes of the other tiers, and the kernel's traps.

Each trap is a way in which the kernel loses, doubles or delays what a socket in
a sockmap receives or sends; the tests are named after what a client would see
without the measure against it. The kernel's own fixes are not what is tested:
on a series that nobody has listed sock is told to run all the same.
"""
import contextlib
import hashlib
import json
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import beside
import client
import daemon
import ktap
import maps
import net
import origin
import rawtcp
import talk
from beside import ALL, PIECE, SHARE, SIZES, SOCK, USER, connect, request, right

LONGEST = 66960                 # bytes of an answer, its head among them
HEAD_ROOM = 32768               # bytes of the longest head of one (abi/cache.h)
SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 32)))

n = sock = user = None


def begin():
    global n, sock, user
    n, sock, user = beside.begin()


def t_hits_are_the_bytes_of_the_user_tier():
    before = talk.counts(sock)["HIT_SOCK"]
    etag = {}
    for v6 in (False, True):
        with connect(v6=v6) as c:
            for size in SIZES:
                data = request(size)
                c.send(data)
                r = c.response()
                assert r.bare() == right(data), r
                etag[size] = r.fields["ETag"]
                data = request(size, method="HEAD")
                c.send(data)
                assert c.response("HEAD").bare() == right(data, "HEAD")
                data = request(size, f"If-None-Match: {etag[size]}")
                c.send(data)
                r = c.response()
                assert r.status == 304 and r.bare() == right(data), r
    assert talk.counts(sock)["HIT_SOCK"] - before == 2 * 3 * len(SIZES), talk.counts(sock)


def t_first_request_of_a_connection_is_a_hit():
    for size in (100, 8192, 65536):
        with connect() as c:
            assert c.get(f"/{size}.txt").tier == "sock"


def t_hits_and_misses_in_turn():
    """Every answer compared, one request at a time and several."""
    ktap.note(f"TBG_SEED={SEED}")
    order = random.Random(SEED)
    asks = [(request(s), "GET") for s in SIZES] + [
        (request(100, "Range: bytes=10-19"), "GET"),
        (request(1024, "Accept: " + "a" * 6000), "GET"),
        (talk.request("/none"), "GET"),
        (talk.request("/1024.txt", "Content-Length: 5", method="POST", body=b"a=b&c"), "POST"),
        (talk.request("/100.txt", "Content-Length: 40000", method="POST",
                      body=b"b" * 40000), "POST"),
        (talk.request("/%31024.txt"), "GET")]
    want = {data: right(data, method) for data, method in asks}
    for burst in (1, 2, 7):
        with connect() as c:
            for _ in range(300 // SHARE // burst):
                picked = order.choices(asks, k=burst)
                # each in a segment of its own, as far as TCP goes along
                for data, _ in picked:
                    c.send(data)
                for data, method in picked:
                    assert c.response(method).bare() == want[data], data[:60]


def t_split_anywhere_and_pipelined():
    data = request(1024)
    want = right(data)
    with connect() as c:
        for at in range(1, len(data)):
            c.send(data[:at])
            c.acked()
            c.send(data[at:])
            assert c.response().bare() == want, at
        c.send(data * 20)
        for _ in range(20):
            assert c.response().bare() == want
        assert c.get("/1024.txt").tier == "sock"


def t_end_of_a_half_closing_client_waits_for_its_answer():
    data, lost = request(8192), []
    want = right(data)
    for i in range(50 // SHARE):
        with connect() as c:
            c.send(data)
            c.half_close()
            try:
                assert c.response().bare() == want
                c.end()
            except (EOFError, OSError) as why:
                lost.append((i, why))
    assert not lost, lost


def t_end_behind_hits_and_misses_waits_for_all():
    hit, miss = request(1024), talk.request("/none")
    want = [right(hit), right(miss)]
    for i in range(50 // SHARE):
        with connect() as c:
            for data in (hit, hit, miss, hit, miss):
                c.send(data)
            c.half_close()
            for k in (0, 0, 1, 0, 1):
                assert c.response().bare() == want[k], i
            c.end()


def t_fin_right_behind_a_hit_breaks_no_later_answer():
    """Without a read in between: the FIN stands behind the hit in the kernel's queue."""
    hit, bad = request(1024), b"X" * 20 + b"\r\n\r\n"
    with connect(USER) as c:
        c.send(bad)
        want = c.response().bare()
    for _ in range(50 // SHARE):
        with connect() as c:
            c.send(hit)
            c.send(bad)
            c.half_close()
            assert c.response().status == 200
            assert c.response().bare() == want


def t_bytes_that_arrive_slowly_stall_nothing():
    """Parts of a body that the daemon reads late, then requests again."""
    with connect() as c:
        head = talk.request("/100.txt", "Content-Length: 120", method="POST")
        c.send(head)
        for _ in range(6):
            c.send(b"x" * 20)
            c.acked()
        assert c.response("POST").status == 405
        for _ in range(8):
            assert c.get("/1024.txt").status == 200
        assert c.get("/1024.txt").tier == "sock"


def t_overlapping_retransmission_is_read_once():
    """A segment that repeats what was read, with new bytes behind it."""
    data = request(100)
    want = right(data)
    st = rawtcp.Station(n, n.links[0])
    try:
        c = st.connect((n.links[0].server4, SOCK))
        seq = 1

        def answered():
            r = c.response()
            assert r.bare() == want, r
            assert r.tier == "sock", r

        c.send(data)
        seq += len(data)
        answered()
        for _ in range(4):
            # the last request again and a new one, in one segment
            c.send(data + data, seq=seq - len(data))
            seq += len(data)
            answered()
            c.send(data)
            seq += len(data)
            answered()
        c.drop()
    finally:
        st.close()


def t_paced_hits_on_many_connections():
    conns = [connect() for _ in range(50)]
    want = right(request(4096))
    try:
        for _ in range(20 // SHARE):
            for c in conns:
                c.send(request(4096))
            for c in conns:
                assert c.response().bare() == want
    finally:
        for c in conns:
            c.close()


def t_hits_do_not_wait_for_a_stopped_daemon():
    with connect() as c:
        assert c.get("/1024.txt").status == 200
        assert c.get("/1024.txt").tier == "sock"
        with daemon.stopped(sock.pid):
            for _ in range(20):
                assert c.get("/1024.txt").tier == "sock"


def t_connections_beyond_the_slots_are_the_daemon_s_and_counted():
    d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", "--memory", "1M",
                      listen=f"0.0.0.0:{ALL}", root=sock.root)
    with n.server.inside(), d, contextlib.ExitStack() as stack:
        conns = []
        while not talk.counts(d)["NO_FLOW"]:
            assert len(conns) < 2000, talk.counts(d)
            conns += [stack.enter_context(connect(ALL)) for _ in range(100)]
        conns[0].get("/100.txt")
        assert conns[0].get("/100.txt").tier == "sock"
        assert conns[-1].get("/100.txt").tier == "user"
        c = talk.counts(d)
        assert c["ENROLLED"] + c["NO_FLOW"] == len(conns), c


def hits(c, path):
    """Three of them, of which each byte is right."""
    client.until(lambda: c.get(path).tier == "sock", f"{path} is never a hit of sock")
    got = [c.get(path) for _ in range(3)]
    assert {r.tier for r in got} == {"sock"}, got
    assert {r.bare() for r in got} == {right(talk.request(path))}, got


def t_longest_file_and_one_byte_more():
    """The limit in toboggand(8); longer bodies are never stored."""
    sock.write("65537.txt", talk.content("65537", 65537))
    with connect() as c:
        hits(c, "/65536.txt")
        got = [c.get("/65537.txt") for _ in range(3)]
        assert {r.tier for r in got} == {"miss"}, got
        assert {r.bare() for r in got} == {right(talk.request("/65537.txt"))}, got


def t_answers_that_end_with_a_piece_of_them():
    with connect() as c:
        head = len(c.get("/60000.txt").head) + 4
        for length in (PIECE, 2 * PIECE):
            for size in range(length - head - 1, length - head + 2):
                sock.write(f"{size}.txt", talk.content(str(size), size))
                hits(c, f"/{size}.txt")


def t_longest_answer_and_one_byte_more():
    """The limit in toboggand(8): with a body of 64 KiB, and a long head."""
    body = talk.content("longest", 65536)

    def answer(pad):
        path = f"/{pad}"
        o.on(path, origin.reply(200, body, "Cache-Control: max-age=3600", "X: " + "x" * pad))
        client.until(lambda: c.request("GET", path).hit, f"{path} is never stored")
        r = c.request("GET", path)
        assert r.body == body, r
        return r

    with proxies() as (o, d, _), origin.Client(d.address) as c:
        pad = LONGEST - len(body) - len(answer(100).head) - 4 + 100
        for more, tier in ((0, "sock"), (1, "user")):
            r = answer(pad + more)
            assert len(r.head) + 4 + len(body) == LONGEST + more, r
            assert f"detail={tier}" in r.cache, r


def t_changed_file_is_not_answered_with_the_old_one():
    with connect() as c:
        for i in range(20):
            body = f"version {i}".encode() * 30
            sock.write("changes.txt", body)
            deadline = time.monotonic() + client.WAIT_S
            while c.get("/changes.txt").body != body:
                assert time.monotonic() < deadline
            assert c.get("/changes.txt").body == body


def t_status_why_and_stats_know_the_tier():
    assert talk.ask(sock, "status")["tiers"]["sock"]["on"]
    for path in ("/100.txt", "/60000.txt"):
        why = talk.ask(sock, "why", path)
        assert (why["tier"], why["why"]) == ("sock", "HIT_SOCK"), why
    sock.write("66000.txt", bytes(66000))
    with connect() as c:
        assert {c.get("/66000.txt").tier for _ in range(3)} == {"miss"}
        assert c.get("/100.txt").tier == "sock"
    why = talk.ask(sock, "why", "/66000.txt")
    assert why["tier"] == "user" and "66000 bytes: cached is what has 65536" in why["detail"], why
    stats = talk.ask(sock, "stats")["tiers"]["sock"]
    assert stats["requests"] and stats["bytes"], stats
    assert "sock" in sock.ready.split("tiers ")[1].split()[0].split(","), sock.ready
    tier = talk.ask(user, "status")["tiers"]["sock"]
    assert (tier["on"], tier["why"]) == (False, "--tiers user"), tier


def t_hit_on_a_variant_counts_for_its_identity():
    """By which it is found: else what is asked for all the time would be evicted."""
    sock.write("page.css", talk.content("page", 3000))

    def hits():
        return {o["encoding"]: o["hits"] for o in talk.ask(sock, "objects", "--limit",
                                                           "0")["objects"]
                if o["path"] == "/page.css"}

    with connect() as c:
        c.get("/page.css")
        deadline = time.monotonic() + client.WAIT_S
        while (r := c.get("/page.css", "Accept-Encoding: gzip")).tier != "sock" \
                or "Content-Encoding" not in r.fields:
            assert time.monotonic() < deadline, r
        before = hits()
        for _ in range(5):
            assert c.get("/page.css", "Accept-Encoding: gzip").tier == "sock"
        now = hits()
    assert {e: now[e] - before[e] for e in now} == {"identity": 5, "gzip": 5}, (before, now)


def t_lines_of_hits_in_the_access_log():
    log = os.path.join(sock.folder, "sock.log")
    with n.server.inside():
        d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", "--user", "root",
                          "--access-log", log, listen=f"0.0.0.0:{ALL}", root=sock.root)
        with d:
            with connect(ALL) as c:
                for _ in range(3):
                    c.get("/100.txt", "User-Agent: it")
    with open(log, encoding="ascii") as f:
        lines = [x.split('"') for x in f]
    words = [(x[1], x[2].split(), x[5], x[6].split()[:2]) for x in lines]
    line = ("GET /100.txt HTTP/1.1", ["200", "100"], "it")
    assert words == [(*line, ["user", "stored"]), (*line, ["sock", "hit"]),
                     (*line, ["sock", "hit"])], lines


def t_draining_answers_what_is_on_its_way():
    with n.server.inside():
        d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted",
                          listen=f"0.0.0.0:{ALL}", root=sock.root).start()
    c = connect(ALL)
    c.get("/1024.txt")
    assert c.get("/1024.txt").tier == "sock"
    assert d.stop() == 0
    assert c.ended()


@contextlib.contextmanager
def all_tiers():
    """With translation: t_sock_late.py has connections without a socket."""
    with n.server.inside():
        d = daemon.Daemon("--tiers", "wire,sock,user", "--sock", "unlisted", "--wire", "tbg0",
                          "--late-sockets", "off",
                          listen=(f"0.0.0.0:{ALL}", f"[::]:{ALL}"), root=sock.root).start()
    try:
        tiers = talk.ask(d, "status")["tiers"]
        for tier in ("wire", "sock"):
            if not tiers[tier]["on"]:
                raise ktap.Skip(daemon.why_off(tier, tiers[tier]["why"]))
        yield d
    finally:
        assert d.stop() == 0, d.lines


@contextlib.contextmanager
def proxies():
    """(upstream, address by way of sock, address of the user tier alone)"""
    with origin.Origin() as o, \
            daemon.Daemon("--upstream", o.url, "--tiers", "sock,user", "--sock", "unlisted",
                          "--body-max", "1G") as d, \
            daemon.Daemon("--upstream", o.url, "--tiers", "user") as u:
        assert talk.ask(d, "status")["tiers"]["sock"]["on"], d.lines
        yield o, d, u


def t_answers_of_upstreams():
    """The bytes of the user tier, Age to the second, between misses and bodies."""
    with proxies() as (o, d, u):
        fields = "Cache-Control: max-age=3600", "Age: 8", 'ETag: "e"', f"Date: {origin.date(-8)}"
        o.on("/s", origin.reply(200, b"small", *fields))
        o.on("/l", origin.reply(200, talk.content("l", 40000), *fields))
        o.on("/echo", lambda c, r: (c.send(origin.reply(200, r.body))))
        with origin.Client(d.address) as c, origin.Client(u.address) as other:
            ages, begun = set(), time.monotonic()
            while time.monotonic() < begun + 4:
                for path in ("/s", "/l"):
                    for method, *field in (("GET",), ("HEAD",), ("GET", 'If-None-Match: "e"')):
                        mine, theirs = (x.request(method, path, *field) for x in (c, other))
                        bare = [(re.sub(rb"Age: \d+|detail=\w+|fwd=.*", b"", x.head), x.body)
                                for x in (mine, theirs)]
                        assert bare[0] == bare[1], (mine, theirs)
                        if "detail=sock" in mine.cache:
                            age = int(mine.field("Age"))
                            assert 8 <= age <= 9 + time.monotonic() - begun, (age, mine)
                            ages.add(age)
                body = talk.content("body", 5000)
                assert c.request("POST", "/echo", body=body).body == body
                time.sleep(0.1)
        assert len(ages) >= 3, ages
        assert talk.counts(d)["HIT_SOCK"] >= 10, talk.counts(d)


def t_answers_with_long_heads():
    """To the longest that sock patches, and beyond: the longest that is taken of an upstream."""
    def answer(pad):
        path = f"/{pad}"
        o.on(path, origin.reply(200, b"small", "Cache-Control: max-age=3600", "X: " + "x" * pad))
        client.until(lambda: c.request("GET", path).hit, f"{path} is never stored")
        r = c.request("GET", path)
        assert (r.body, r.field("X")) == (b"small", "x" * pad), r
        return r

    with proxies() as (o, d, _), origin.Client(d.address) as c:
        pad = HEAD_ROOM - len(answer(100).head) - 4 + 100
        for length, tier in ((16000, "sock"), (20000, "sock"), (pad, "sock"), (pad + 1, "user")):
            r = answer(length)
            assert f"detail={tier}" in r.cache, (length, r)
        assert len(r.head) + 4 == HEAD_ROOM + 1, len(r.head)


def t_body_that_its_upstream_does_not_take_yet():
    """More than a socket in a sockmap may hold: nothing is lost, and the memory is not ours."""
    size, go = ((48 << 20) // SHARE) & ~0xffff, threading.Event()
    want = hashlib.sha256()

    def take(c, r):
        go.wait(client.WAIT_S)
        origin.digest(c, r)

    with proxies() as (o, d, _):
        o.on("/", take, raw=True)
        with origin.Client(d.address) as c:
            c.send(b"PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size >> 16):
                piece = os.urandom(1 << 16)
                want.update(piece)
                c.send(piece)
            kb = daemon.own_kb(d.pid)
            go.set()
            assert c.answer().body == want.hexdigest().encode()
            assert c.request("GET", "/missing").status == 404
        assert kb < 32 << 10, kb


def t_tunnel_through_a_proxy():
    def echo(c, _):
        c.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello")
        while True:
            if not c.got:
                c.more()
            c.send(c.got.upper())
            c.got = b""

    with proxies() as (o, d, _):
        o.on("/", echo)
        with origin.Client(d.address) as c:
            c.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly ")
            assert c.answer().status == 101
            want = b"helloEARLY "
            for i in range(200):
                c.send(request(100) + b"message %d" % i)
                want += request(100).upper() + b"MESSAGE %d" % i
            while len(c.got) < len(want):
                assert c._more()        # pylint: disable=protected-access
            assert c.got == want
        o.wait_end("/")


def t_ready_is_not_written_before_the_descriptors_of_all_workers_are_there():
    """With too few it says so and is not ready; it does not die behind that."""
    served = []
    for limit in (310, 335, 360, 1024):
        d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", "--workers", "64",
                          root=sock.root, prefix=("prlimit", f"--nofile={limit}:{limit}",
                                                  "setpriv", "--bounding-set=-sys_resource"))
        try:
            with d, client.Client(d.address) as c:
                assert c.get("/100.txt").status == 200
                assert d.process.poll() is None, (limit, d.lines)
            served.append(limit)
        except RuntimeError as e:
            assert "leaves none for connections; raise it" in str(e) or \
                "raise the limit of open files (ulimit -n)" in str(e), e
    assert 1024 in served, served


def t_without_a_mounted_cgroup2():
    """As in `ip netns exec`, whose new /sys hides the mount of cgroup2."""
    hidden = 'umount -l -t cgroup2 -a; exec "$0" "$@"'
    d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", root=sock.root,
                      prefix=("unshare", "--mount", "sh", "-c", hidden))
    with d, client.Client(d.address) as c:
        tier = talk.ask(d, "status")["tiers"]["sock"]
        assert tier["on"], tier
        assert [c.get("/100.txt").tier for _ in range(2)] == ["stored", "sock"]


def t_kernel_is_tried_before_sock_is_on():
    """Whatever its version is. Where the self-test fails, sock is off; start and probe say why."""
    def probed():
        out = space.run(daemon.TOOL, "--json", "probe")
        return next(x for x in json.loads(out)["features"] if x["name"] == "sock_selftest")

    space = net.Namespace()
    try:
        for up, state in (("down", "missing"), ("up", "present")):
            space.run("ip", "link", "set", "lo", up)
            with space.inside(), daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted",
                                               listen="0.0.0.0:0", root=sock.root) as d:
                tier, found = talk.ask(d, "status")["tiers"]["sock"], probed()
                assert (tier["on"], found["state"]) == (up == "up", state), (tier, found)
                assert tier.get("why", "") == found["detail"], (tier, found)
                if up == "down":
                    assert tier["why"].startswith("self-test: 127.0.0.1 to itself: "), tier
                    assert f"toboggand: sock is off: {tier['why']}" in d.lines, d.lines
                # nothing is left of it: programs, maps, sockets
                names = [json.loads(maps.bpftool(kind, "show", "id", str(i)))["name"]
                         for kind in ("map", "prog") for i in maps.held(d.pid, kind)]
                assert not [x for x in names if x.startswith("tbg_try")], names
                ports = {int(x.split()[1].split(":")[1], 16) for x in
                         space.run("cat", "/proc/net/tcp").splitlines()[1:]}
                assert ports == {d.addresses[0][1]}, ports
    finally:
        space.close()


def t_kernel_that_is_slow_to_answer_is_fit_all_the_same():
    """Its self-test takes seconds, of which some pass without a byte."""
    space = net.Namespace()
    try:
        space.run("ip", "link", "set", "lo", "up")
        # 1.1 s for each answer of the self-test but the first
        space.run("tc", "qdisc", "add", "dev", "lo", "root", "tbf",
                  "rate", "60kbit", "burst", "10kb", "latency", "20s")
        begun = time.monotonic()
        with space.inside(), daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted",
                                           listen="0.0.0.0:0", root=sock.root) as d:
            tier = talk.ask(d, "status")["tiers"]["sock"]
            assert tier["on"], tier
        assert time.monotonic() - begun > 2, "it was not slow"
    finally:
        space.close()


def t_beside_wire():
    """All three: the same bytes; what is small is wire's, also behind sock's answers."""
    with all_tiers(), connect(ALL) as c:
        for warm in (False, True, True):
            for size in SIZES:
                data = request(size)
                c.send(data)
                r = c.response()
                assert r.bare() == right(data), r
                if warm:
                    assert r.tier == ("wire" if size < 14000 else "sock"), (size, r.tier)


def t_small_hit_behind_a_first_one_of_sock():
    """On a connection that never misses, which the daemon knows nothing of."""
    with all_tiers():
        with connect(ALL) as c:
            for size in (30000, 100):
                c.get(f"/{size}.txt")
        for v6 in (False, True):
            with connect(ALL, v6=v6) as c:
                tiers = [c.get(f"/{size}.txt").tier for size in (30000, 100, 100, 30000, 100)]
                assert tiers == ["sock", "wire", "wire", "sock", "wire"], (v6, tiers)


def t_lost_reply_of_wire_behind_hits_of_sock():
    """The socket sends it again, in its place; from then on sock answers all."""
    st = rawtcp.Station(n, n.links[0])
    try:
        with all_tiers() as d:
            c = st.connect((n.links[0].server4, ALL))
            tiers = [c.get(request(size)).tier
                     for size in (30000, 30000, 100, 30000, 100, 30000)]
            assert tiers == ["stored", "sock", "stored", "sock", "wire", "sock"], tiers
            c.send(request(100))
            lost = c.response(lose=True)
            assert lost.tier == "wire", lost
            # nothing acknowledges it: after 200 ms it is the socket's
            again = c.response()
            assert again.raw == lost.raw
            assert talk.counts(d)["YIELD"] == 1
            for size in (100, 30000, 100):
                r = c.get(request(size))
                assert (r.tier, r.bare()) == ("sock", right(request(size))), r
            c.drop()
    finally:
        st.close()


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=beside.end)
