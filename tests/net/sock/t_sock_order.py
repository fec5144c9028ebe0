#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The order of sock's hits, with any content of the send buffer, and on idle connections."""
import contextlib
import ctypes
import json
import os
import random
import re
import select
import signal
import socket
import statistics
import subprocess
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
import rawtcp
import talk
from beside import ALL, PIECE, SHARE, SIZES, SOCK, connect, request, right

PIDFD_GETFD = 438
SO_TIMESTAMPING, TX_ACK = 37, 1 << 9 | 1 << 4 | 1 << 11      # by software, without the packet
CROWD = 1024                    # connections
ON_THEIR_WAY = 16               # hits of one, at most (abi/sock.h)
SEND_BYTES = 96 << 10           # of a send buffer, at first
libc = ctypes.CDLL(None, use_errno=True)

n = sock = user = None


def begin():
    global n, sock, user
    n, sock, user = beside.begin()


def small_window(size):
    return lambda s: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def t_send_buffer_still_grows():
    """Although it does not begin as the kernel has it, which would be too small for 64 KiB."""
    sock.write("large.bin", os.urandom(8 << 20))
    with connect() as c:
        c.get("/65536.txt")
        with server_end(c) as s:
            was = s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert len(c.get("/large.bin").body) == 8 << 20
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > was >= SEND_BYTES


def passed():
    """How often a request was the daemon's for more having been sent than fits."""
    c = talk.counts(sock)
    return c["SNDBUF"] + c["BUSY"] + c["PIPELINED"]


def t_slow_reader_gets_no_request_and_nothing_twice():
    """More than the send buffer holds: the rest is the daemon's, in its turn."""
    data, nr = request(16000), 200 // SHARE
    want = right(data)
    for window in (2048, 0):
        with connect(setup=small_window(window) if window else None) as c:
            before = passed()
            sender = threading.Thread(target=lambda s=c: [s.send(data) for _ in range(nr)])
            sender.start()
            # nothing is read until the server has had to wait
            deadline = time.monotonic() + client.WAIT_S
            while window and passed() == before:
                assert time.monotonic() < deadline, talk.counts(sock)
            for i in range(nr):
                assert c.response().bare() == want, i
            sender.join(client.WAIT_S)
            # and when all is read, the kernel answers again
            c.get("/100.txt")
            assert c.get("/100.txt").tier == "sock"


def t_machine_that_keeps_little_unsent():
    """Its limit is not ours: what there was room for is taken whole, and no connection ends."""
    data, nr = request(30000), 60
    want = right(data)

    def some_are_hits():
        with connect(setup=small_window(8192)) as c:
            client.until(lambda: c.get("/100.txt").tier == "sock", "never a hit of sock")
            before = talk.counts(sock)["HIT_SOCK"]
            for _ in range(nr):
                c.send(data)
                c.acked()
            for i in range(nr):
                assert c.response().bare() == want, i
            return talk.counts(sock)["HIT_SOCK"] > before

    was = n.server.sysctl("ipv4.tcp_notsent_lowat", 1)
    try:
        client.until(some_are_hits, "all of them are the daemon's")
    finally:
        n.server.sysctl("ipv4.tcp_notsent_lowat", was)


def t_answer_that_the_socket_does_not_take_ends_the_connection():
    """Nothing of the placeholder in the kernel's queue is sent."""
    for size in (16000, 65536):
        cut = sum(taken_in_part(size) for _ in range(20 // SHARE))
        ktap.note(f"{cut} ended early")
        assert cut, f"the socket took all of {size} bytes each time"


def taken_in_part(size):
    """Whether a connection ended early where the kernel takes less than it has room for."""
    data = request(size)
    want = right(data)
    with connect(setup=small_window(8192)) as c:
        client.until(lambda: c.get("/100.txt").tier == "sock", "never a hit of sock")
        with server_end(c) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400000)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1)
        for _ in range(8):
            try:
                c.send(data)
            except ConnectionError:
                break
        try:
            for i in range(8):
                assert c.response().bare() == want, i
        except (ConnectionError, EOFError):
            assert want[1].startswith(c.got) or b"HTTP/1.1 200 OK\r\n".startswith(c.got[:17]), \
                c.got[:200]
            assert b" 503 " not in c.got, c.got[:200]
            return True
    return False


def t_request_that_nothing_expands_is_an_error_response():
    """Of its own length, to the byte, whoever has taken the program off: no request is echoed."""
    with n.server.inside(), \
         daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", listen=f"0.0.0.0:{ALL}",
                       root=sock.root) as d:
        for size in (0, 100, 16000):
            with connect(ALL) as c:
                assert c.get(f"/{size}.txt").status == 200
        asks = [request(100), request(0, "Accept: text/html,*/*;q=0.1", "Cookie: a=" + "b" * 900),
                request(16000, "If-None-Match: \"x\"", method="HEAD")]
        maps.detach(d.pid, "tbg_expand", "sk_msg_verdict", "tbg_socks")
        for data in asks:
            c = connect(ALL)
            c.send(data)
            got = b""
            while len(got) < len(data):
                more = c.s.recv(65536)
                assert more, got
                got += more
            assert len(got) == len(data), got
            assert re.fullmatch(rb"HTTP/1\.1 503 \r\n(?:X:[0-o]{6}\r\nConnection:close\r\n"
                                rb"Content-Length:0\r\nY:x*|X:[0-o]{6}x*)\r\n\r\n", got), got
            c.reset()


@contextlib.contextmanager
def short_of_memory(d, piece):
    """The kernel has none for that piece of d's responses; yields a process that counts them."""
    with maps.opened(d.pid) as fds, \
         subprocess.Popen([os.path.join(ktap.BUILD, "tests/net/short"), str(piece),
                           *(f"{name}={fd}" for name, fd in fds.items()
                             if name[0] != "." or name == ".rodata")],
                          pass_fds=list(fds.values()), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "ready\n", f"short: exit {p.wait()}"
        yield p


def t_response_without_memory_for_one_of_its_pieces():
    """Whichever it is: the daemon answers, with the same bytes and in its turn."""
    for piece in range(3):
        with n.server.inside(), \
             daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", listen=f"0.0.0.0:{ALL}",
                           root=sock.root) as d:
            for size in SIZES:
                with connect(ALL) as c:
                    assert c.get(f"/{size}.txt").status == 200
            lacking = [size for size in SIZES if size + 200 > piece * PIECE]
            with short_of_memory(d, piece) as p:
                for _ in range(4):
                    for size in SIZES:
                        with connect(ALL) as c:
                            got = []
                            for last in (False, False, True):
                                c.send(request(size))
                                if last:
                                    c.half_close()
                                got.append(c.response())
                            c.end()
                        assert [r.bare() for r in got] == [right(request(size))] * 3, (piece, size)
                        assert size not in lacking or "sock" not in [r.tier for r in got], size
                counts = talk.counts(d)
                nr = int(p.communicate()[0])
            ktap.note(f"piece {piece}: {nr} were without memory")
            assert nr >= len(lacking) and counts["ROOM"] == nr, (piece, nr, counts)
            assert (counts["HIT_SOCK"] > 0) == (len(lacking) < len(SIZES)), counts


def t_interface_that_takes_little_at_once():
    """Answers in many small skbs, each with its price: none is cut where the buffer is full."""
    link = n.links[0]
    links = json.loads(n.server.run("ip", "-json", "-details", "link", "show", link.name))
    asks = {size: (request(size), right(request(size))) for size in (16000, 30000, 65536)}
    before = talk.counts(sock)["HIT_SOCK"]
    for limit, value in (("gso_max_segs", 1), ("gso_max_size", 4000)):
        n.server.run("ip", "link", "set", link.name, limit, str(value))
        try:
            for data, want in asks.values():
                with connect(setup=small_window(65536)) as c:
                    for _ in range(20):     # the send buffer grows
                        assert c.get("/60000.txt").status == 200
                    for _ in range(60):
                        c.send(data)
                        c.acked()
                    for i in range(60):
                        assert c.response().bare() == want, (limit, i)
        finally:
            n.server.run("ip", "link", "set", link.name, limit, str(links[0][limit]))
    assert talk.counts(sock)["HIT_SOCK"] > before


def t_segments_of_a_few_bytes():
    """Where each is an skb of its own, with many times their room in the send buffer."""
    link = n.links[0]
    links = json.loads(n.server.run("ip", "-json", "-details", "link", "show", link.name))
    st = rawtcp.Station(n, link)
    n.server.run("ip", "link", "set", link.name, "gso_max_segs", "1")
    try:
        for mss in (48, 52, 88):
            for size in (100, 1024, 4096, 8192, 16000):
                c = st.connect((link.server4, SOCK), mss=mss)
                for _ in range(2):
                    c.send(request(size))
                    r = c.response()
                    assert r.bare() == right(request(size)), (mss, size, r)
                c.drop()
    finally:
        n.server.run("ip", "link", "set", link.name, "gso_max_segs", str(links[0]["gso_max_segs"]))
        st.close()


def t_handed_over_request_leaves_the_next_one_alone():
    """A request that came while the buffer was full, then one at a time again."""
    data = request(30000)
    want = right(data)
    with connect(setup=small_window(4096)) as c:
        for _ in range(30):
            for _ in range(6):
                c.send(data)
                c.acked()
            for _ in range(6):
                assert c.response().bare() == want
            for _ in range(2):
                assert c.get("/100.txt").status == 200


def server_end(c):
    """The daemon's own socket of connection c, for its options; once it has accepted that."""
    return net.until(lambda: accepted(c), "the daemon has no such connection")


def accepted(c):
    pidfd, fds = os.pidfd_open(sock.pid), f"/proc/{sock.pid}/fd"
    try:
        for name in os.listdir(fds):
            # one of them may be closed by now
            with contextlib.suppress(FileNotFoundError, ValueError):
                if not os.readlink(f"{fds}/{name}").startswith("socket:"):
                    continue
                s = socket.socket(fileno=libc.syscall(PIDFD_GETFD, pidfd, int(name), 0))
                with contextlib.suppress(OSError):      # of those that listen
                    if s.getpeername()[:2] == c.s.getsockname()[:2]:
                        return s
                s.close()
    finally:
        os.close(pidfd)
    return None


def t_send_buffer_that_shrinks_keeps_the_order():
    """There was room when a hit was queued, is none when its turn comes, and for the next there
    is."""
    hits = [request(100), request(1024)]
    want = {data: right(data) for data in hits}
    before, going = talk.counts(sock), True

    def squeeze(s):
        while going:
            for size in (1, 200000):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
            for _ in range(random.randrange(300)):
                pass

    with connect() as c:
        c.get("/100.txt")
        with server_end(c) as s:
            squeezer = threading.Thread(target=squeeze, args=(s,))
            squeezer.start()
            try:
                for i in range(800 // SHARE):
                    burst = random.choices(hits, k=8)
                    for data in burst:
                        c.send(data)
                    for data in burst:
                        assert c.response().bare() == want[data], i
            finally:
                going = False
                squeezer.join()
    now = talk.counts(sock)
    assert now["HIT_SOCK"] > before["HIT_SOCK"] and now["SNDBUF"] > before["SNDBUF"], now


@contextlib.contextmanager
def before_workers():
    """Packets of this thread are received at once; the kernel's workers of the CPU wait."""
    was = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {0})    # where net.Link steers it
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError as why:  # also of a control group without time for it
            raise ktap.Skip(f"no SCHED_FIFO: {why}") from why
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, was)


def t_request_that_is_handed_over_is_whole():
    """
    The kernel has some of them in two pieces, where its page of 32 KB ends: a second
    piece that stays disguised has no colons, nor the condition that comes last.
    """
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(connect()) for _ in range(8)]
        ends = [stack.enter_context(server_end(c)) for c in conns]
        etag = conns[0].get("/100.txt").fields["ETag"]
        data = request(100, *(f"A{i}: b" for i in range(200)), f"If-None-Match: {etag}")
        want, before = right(data), talk.counts(sock)["SNDBUF"]
        assert b" 304 " in want[0] and len(data) < 2048
        deadline = time.monotonic() + client.WAIT_S
        # a slow machine leaves what it receives to a thread of its own, behind the workers
        while talk.counts(sock)["SNDBUF"] - before < len(conns):
            assert time.monotonic() < deadline, talk.counts(sock)
            for c, s in zip(conns, ends):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
                client.until(lambda c=c: c.get("/100.txt").tier == "sock", "never a hit of sock")
            with daemon.stopped(sock.pid):
                for c, s in zip(conns, ends):
                    with before_workers():
                        for _ in range(16):
                            c.send(data)
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            for i, c in enumerate(conns):
                for k in range(16):
                    assert c.response().bare() == want, (i, k)


def t_hit_behind_a_file_that_still_waits_to_be_sent():
    """The daemon has promised the file's end; there is room for it, but it is stopped."""
    body = talk.content("large", 1 << 20)
    sock.write("large.bin", body)
    hit = request(1024)
    want = right(hit)
    with connect(setup=small_window(4096)) as c:
        c.send(talk.request("/large.bin"))
        c.got += c.s.recv(1)
        time.sleep(0.1)         # until nothing more fits; if it is too short, all is easier
        with daemon.stopped(sock.pid):
            while select.select([c.s], [], [], 0.3)[0]:
                c.got += c.s.recv(65536)
            assert len(c.got) < len(body)
            c.send(hit)
            c.acked()
        assert c.response().body == body
        assert c.response().bare() == want


def t_hit_with_room_waits_for_the_one_without_before_it():
    """In the send buffer, where the first was promised room that is gone at its turn."""
    asks = [request(30000), request(100)]
    want = [right(data) for data in asks]
    seen, deadline = 0, time.monotonic() + client.WAIT_S
    while seen < 5:
        assert time.monotonic() < deadline, f"{seen} times in all"
        with connect() as c, server_end(c) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
            with before_workers():
                for data in asks:
                    c.send(data)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10000)
            answers = [c.response() for _ in asks]
            assert [r.bare() for r in answers] == want, answers
            # a daemon that has just accepted may hold the socket, and what comes in then
            # is received behind it, on its CPU, whose workers do not wait
            if answers[0].tier == "user":
                assert answers[1].tier == "user", answers
                seen += 1


@contextlib.contextmanager
def resting(nr):
    """Connections that had hits and nothing else, which the daemon does not receive on."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(connect()) for _ in range(nr)]
        # it looks at each once a second, but more often if they are fewer than that
        for _ in range(CROWD - nr):
            stack.enter_context(connect())
        for c in conns:
            assert c.get("/100.txt").tier == "sock"
        time.sleep(2.5)
        yield conns


def switches(name=""):
    """How often the daemon's threads have gone to sleep, or those whose name begins so."""
    total = 0
    for task in os.listdir(f"/proc/{sock.pid}/task"):
        with open(f"/proc/{sock.pid}/task/{task}/status", encoding="ascii") as f:
            text = f.read()
        if text.startswith(f"Name:\t{name}"):
            total += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.M)[1])
    return total


def woken_by(test, name=""):
    """(how often they go to sleep during test(), how often by themselves in the same time)."""
    began, slept = time.monotonic(), switches(name)
    test()
    took, slept = time.monotonic() - began, switches(name) - slept
    by_itself = switches(name)
    time.sleep(took)
    by_itself = switches(name) - by_itself
    ktap.note(f"slept {slept} times in {took:.1f} s, {by_itself} without hits")
    return slept, by_itself


def t_hits_do_not_wake_the_daemon():
    def hits():
        for _ in range(500):
            assert c.get("/100.txt").tier == "sock"
    with resting(3) as conns:
        for c in conns:
            slept, by_itself = woken_by(hits)
            assert slept - by_itself < 250, (slept, by_itself)


def t_hits_do_not_wake_the_daemon_when_their_socket_has_an_event():
    """On some kernels, a hit under way looks like one to poll(). This one stays: an entry in the
    error queue. The daemon looks at it, and does not receive while there are hits."""
    hits = 0

    def test():
        nonlocal hits
        began = time.monotonic()
        while time.monotonic() < began + 0.8:
            assert c.get("/100.txt").tier == "sock"
            hits += 1
            time.sleep(0.001)
        assert poll.poll(0), "the event is gone"
    with connect() as c, server_end(c) as s:
        assert c.get("/100.txt").tier == "sock"
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_ACK)
        assert c.get("/100.txt").tier == "sock"
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 0)
        poll = select.poll()
        poll.register(s, 0)
        client.until(lambda: poll.poll(0), "no event")
        time.sleep(0.3)         # until this one rests
        slept, by_itself = woken_by(test, "tbg/")
        assert slept - by_itself < hits / 4, (slept, by_itself, hits)


def answers_at_once(conns, ask):
    """It takes half a second if only the daemon's look at all connections finds out."""
    took = []
    for c in conns:
        begun = time.monotonic()
        ask(c)
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < 0.25, took


def t_what_came_before_the_accept_is_answered_at_once():
    """Hits, misses, one behind the other: nothing but a first receive has the kernel look."""
    hit, miss = request(100), talk.request("/none")
    want = {data: right(data) for data in (hit, miss)}
    rows = [[miss], [hit], [hit, miss], [miss, hit]] * 2
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):  # as in resting()
            stack.enter_context(connect())

        def ask(conns):
            os.kill(sock.pid, signal.SIGCONT)
            for c, row in zip(conns, rows):
                assert [c.response().bare() for _ in row] == [want[data] for data in row]

        def early():
            os.kill(sock.pid, signal.SIGSTOP)
            for row in rows:
                c = stack.enter_context(connect())
                c.send(b"".join(row))
                c.acked()
                yield c
        try:
            answers_at_once((list(early()) for _ in range(3)), ask)
        finally:
            os.kill(sock.pid, signal.SIGCONT)


def t_resting_connection_is_heard_at_once():
    post = talk.request("/100.txt", "Content-Length: 40000", method="POST", body=b"b" * 40000)
    asks = [(talk.request("/none"), "GET"), (post, "POST"),
            (request(100, "Range: bytes=10-19"), "GET")]
    want = {data: right(data, method) for data, method in asks}

    def ask(c):
        for data, method in asks * 2:
            c.send(data)
            assert c.response(method).bare() == want[data]
            assert c.get("/100.txt").tier == "sock"

    with resting(8) as conns:
        answers_at_once(conns, ask)
        time.sleep(2.5)         # they rest again
        answers_at_once(conns, ask)


def t_hit_that_is_handed_over_wakes_who_rests():
    """There was room at its verdict, and is none when its turn comes."""
    want = right(request(30000))

    def ask(c):
        with server_end(c) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
            with before_workers():
                c.send(request(30000))
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            r = c.response()
            assert r.tier == "user" and r.bare() == want, r

    with resting(8) as conns:
        answers_at_once(conns, ask)


def t_end_of_a_resting_connection_is_seen_at_once():
    def ask(c):
        c.half_close()
        c.end()

    with resting(8) as conns:
        answers_at_once(conns, ask)


def t_reset_of_a_resting_connection_is_seen():
    def connections():
        return talk.ask(sock, "status")["connections"]

    with resting(8) as conns:
        before = connections()
        for c in conns:
            c.reset()
        client.until(lambda: connections() <= before - 8)


def t_clients_that_leave_behind_hits_are_forgotten():
    """Their FIN is followed by a reset, once a hit reaches nobody: the rest of them is dropped."""
    def connections():
        return talk.ask(sock, "status")["connections"]

    before = connections()
    with n.server.inside():             # a client on this machine resets at once
        for _ in range(1000 // SHARE):
            with socket.create_connection(("127.0.0.1", SOCK)) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(4):
                    s.send(request(60000))
    client.until(lambda: connections() <= before)


def t_slots_come_back():
    """More connections than there are slots, one after the other, and resets."""
    for i in range(200 // SHARE):
        with connect() as c:
            c.send(request(1024))
            if i % 3:
                assert c.response().status == 200
            if i % 2:
                c.reset()
    with connect() as c:
        assert c.get("/1024.txt").tier == "sock"


def t_hits_beyond_those_that_may_be_on_their_way_are_busy():
    """No side closes, and the send buffer has room for all."""
    def some_are_busy():
        client.until(lambda: c.get("/100.txt").tier == "sock", "never a hit of sock")
        before = talk.counts(sock)
        with before_workers():
            for _ in range(40):
                c.send(request(100))
        for _ in range(40):
            assert c.response().status == 200
        now = talk.counts(sock)
        for why in "CLOSING", "SNDBUF":
            assert now[why] == before[why], now
        # what is received on another CPU meets workers that do not wait
        return now["BUSY"] - before["BUSY"] == 40 - ON_THEIR_WAY

    with connect() as c, server_end(c) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
        # one may be the daemon's for another reason, and so those behind it, but not so many
        assert any(some_are_busy() for _ in range(10)), talk.counts(sock)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=beside.end)
