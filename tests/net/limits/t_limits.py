#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""At a limit the daemon degrades for those beyond it, and recovers by itself."""
import os
import random
import select
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
from limits import anonymous, both, daemon_of, descriptors, reset, rests, running, served, ticks

GET = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"


def t_slow_heads_end_and_disturb_nobody():
    """Byte by byte for ever, 50 at a time."""
    def one(make):
        with running(make("--header-timeout", "1s")) as d:
            slow = [client.Client(d.address) for _ in range(50)]
            begun, left = time.monotonic(), dict.fromkeys(slow)
            for c in slow:
                c.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\nX: ")
            while left:
                assert time.monotonic() - begun < 5 * client.SLOW, f"{len(left)} are still there"
                served(d, 5)
                ready, _, _ = select.select([c.s for c in left], [], [], 0.05)
                for c in list(left):
                    if c.s in ready:
                        assert c.response().status == 408
                        assert c.ended()
                        del left[c]
                    else:
                        try:
                            c.send(b"x")
                        except (BrokenPipeError, ConnectionResetError):
                            pass
            for c in slow:
                c.close()
    both(one)


def t_idle_connections_end():
    def one(make):
        with running(make("--idle-timeout", "1s", "--header-timeout", "1s")) as d:
            client.hot(d, "/a.txt", "wire" if "tiers wire" in d.ready else "user")
            first = time.monotonic()        # the oldest is idle from here at the earliest
            clients = [client.Client(d.address) for _ in range(10)]
            for asks, c in enumerate(clients):
                for _ in range(asks):
                    assert c.get("/a.txt").body == b"a text\n"
            last = time.monotonic()
            for asks, c in enumerate(clients):
                assert c.ended()
                now = time.monotonic()
                assert now - first > 0.8 and now - last < 5 * client.SLOW, \
                    f"{asks} requests: ended after {now - first:.2f} s, {now - last:.2f} s idle"
                c.close()
    both(one)


def t_idle_time_begins_with_a_hit_of_wire():
    """For a connection that has sent no request to the daemon."""
    with running(daemon_of("--idle-timeout", "1s", "--header-timeout", "60s", wire=True)) as d:
        client.hot(d, "/a.txt")
        c, silent = client.Client(d.address), client.Client(d.address)
        start = time.monotonic()
        assert c.get("/a.txt").tier == "wire"
        assert c.ended()
        took = time.monotonic() - start
        assert 0.8 < took < 5 * client.SLOW, f"ended after {took:.2f} s"
        c.close()
        assert silent.get("/a.txt").tier == "wire"      # its head has time yet
        silent.close()


def t_probes_of_a_client_keep_no_connection():
    """Answers do not count either, only requests."""
    def one(make):
        with running(make("--idle-timeout", "2s", "--header-timeout", "2s")) as d:
            client.hot(d, "/a.txt", "wire" if "tiers wire" in d.ready else "user")
            with client.Client(d.address) as c:
                c.s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                    c.s.setsockopt(socket.IPPROTO_TCP, option, 1)
                for _ in range(2):
                    assert c.get("/a.txt").body == b"a text\n"
                assert c.ended()
    both(one)


def t_first_head_has_its_own_time():
    """A connection that wire follows is not idle before it has asked for something."""
    with running(daemon_of("--idle-timeout", "60s", "--header-timeout", "1s", wire=True)) as d:
        start = time.monotonic()
        c = client.Client(d.address)
        assert c.ended()
        took = time.monotonic() - start
        assert 0.8 < took < 5 * client.SLOW, f"ended after {took:.2f} s"
        c.close()


def t_hits_of_wire_keep_a_connection():
    """The socket sees none of them, and must not be closed for that."""
    limit_s = 1 * (3 if client.IN_VM else 1)
    options = ("--idle-timeout", f"{limit_s}s", "--header-timeout", f"{limit_s}s")
    with running(daemon_of(*options, wire=True)) as d:
        d.write("b.txt", b"x" * 60000)
        client.hot(d, "/a.txt")
        used, unused = client.Client(d.address), client.Client(d.address)
        used.get("/b.txt")          # by the daemon; the other never asks it
        end = time.monotonic() + 4 * limit_s
        while time.monotonic() < end:
            for c in (used, unused):
                r = c.get("/a.txt")
                assert (r.tier, r.body) == ("wire", b"a text\n"), r
            time.sleep(limit_s / 5)         # the rate of the load, no wait
        for c in (used, unused):
            assert c.ended()        # and then it is idle
            c.close()


def t_reader_that_stops_is_given_up():
    def one(make):
        with running(make("--send-timeout", "1s")) as d:
            d.write("big", b"x" * (16 << 20))
            before = descriptors(d)
            with client.Client(d.address, rcvbuf=8192) as c:
                c.send(GET.replace(b"a.txt", b"big"))
                client.until(lambda: descriptors(d) > before, "never sending")
                client.until(lambda: descriptors(d) <= before, "never given up")
                served(d)
    both(one)


def t_reader_that_goes_on_is_not_given_up():
    """Though no write ends for longer than the limit: the buffers are large."""
    def one(make):
        with running(make("--send-timeout", "1s")) as d:
            d.write("big", b"x" * (30 << 20))
            with client.Client(d.address) as c:
                c.send(GET.replace(b"a.txt", b"big"))
                end, got = time.monotonic() + 4, 0
                while time.monotonic() < end:
                    got += len(c.s.recv(25000))
                    time.sleep(0.1)             # the reader's rate, no wait
                while got < 30 << 20:
                    data = c.s.recv(1 << 20)
                    assert data, f"given up after {got} bytes"
                    got += len(data)
    both(one)


def t_reader_is_not_given_up_for_time_that_the_daemon_lost():
    """It was stopped; what had come meanwhile is looked at after the time."""
    with running(daemon_of("--send-timeout", "1s")) as d, client.Client(d.address) as c:
        d.write("big", b"x" * (16 << 20))
        c.send(GET.replace(b"a.txt", b"big"))
        client.until(lambda: rests(d), "its buffer is never full")
        with daemon.stopped(d.pid):
            time.sleep(0.5)                     # its clock ticks before we take anything
            got = len(c.s.recv(1 << 20))
            while select.select([c.s], [], [], 0.5)[0]:
                got += len(c.s.recv(1 << 20))
        while got < 16 << 20:
            data = c.s.recv(1 << 20)
            assert data, f"given up after {got} bytes"
            got += len(data)


def t_request_is_not_late_for_time_that_the_daemon_lost():
    with running(daemon_of("--idle-timeout", "1s", "--header-timeout", "1s")) as d, \
            client.Client(d.address) as used, client.Client(d.address) as begun:
        assert used.get("/a.txt").body == b"a text\n"
        begun.send(GET[:10])
        with daemon.stopped(d.pid):
            time.sleep(0.5)                     # its clock ticks before we go on
            used.send(GET)
            begun.send(GET[10:])
            time.sleep(1)                       # the limits, and more
        for c in (used, begun):
            assert c.response().body == b"a text\n"


def t_slow_readers_block_nobody():
    nr = 40 if client.IN_VM else 200    # sock copies what fills their buffers, 3 MiB each

    def one(make):
        with running(make("--workers", "1")) as d:
            data = os.urandom(4 << 20)
            d.write("big", data)
            served(d, 200)                      # what it needs once for all
            with client.Client(d.address) as c:
                for _ in range(520):            # each of its buffers
                    assert c.get("/none").status == 404
            before = anonymous(d)[0]
            slow = [client.Client(d.address, rcvbuf=8192) for _ in range(nr)]
            for c in slow:
                c.send(GET.replace(b"a.txt", b"big") + GET)
            client.until(lambda: rests(d), "their buffers are never full")
            begun = time.monotonic()
            served(d, 200)
            assert time.monotonic() - begun < 5 * client.SLOW
            cpu = ticks(d)
            client.until(lambda: time.monotonic() - begun > 1)
            assert ticks(d) - cpu < 0.5, "it spins while they read nothing"
            assert anonymous(d)[0] - before < nr * 8192, "they cost too much memory"
            for c in slow[:10]:
                assert c.response().body == data
                assert c.response().body == b"a text\n"
            for c in slow[10:]:
                reset(c.s)
            for c in slow[:10]:
                c.close()
            served(d, 10)
    both(one)


def t_head_up_to_its_limit_and_no_further():
    """Whole or in two pieces: 2048 is the lowest limit, and the most that the fast grammar
    takes."""
    def one(make, most):
        with running(make("--header-max", str(most))) as d:
            for total in (1000, most - 2, most - 1, most, most + 1, most + 2, 10000, 100000,
                          4 << 20):
                for shape in ("one field", "many fields", "two pieces"):
                    room = total - len(GET) - 5
                    if shape == "many fields":
                        more = b"X: 34567\r\n" * (room // 10)
                        more += b"Y: " + b"y" * (total - len(GET) - len(more) - 5) + b"\r\n"
                    else:
                        more = b"X: " + b"x" * room + b"\r\n"
                    data = GET[:-2] + more + b"\r\n"
                    assert len(data) == total, (len(data), total)
                    with client.Client(d.address) as c:
                        try:
                            if shape == "two pieces":
                                c.send(data[:30])
                                data = data[30:]
                            c.send(data)
                        except (BrokenPipeError, ConnectionResetError):
                            assert total > 10000    # refused before the end of it
                        r = c.response()
                        assert r.status == (200 if total <= most else 431), (total, shape, r)
                        assert total <= most or c.ended()
            served(d)
    for most in (2048, 4096):
        both(lambda make, most=most: one(make, most))


def t_head_that_never_ends_is_cut_off():
    """After the answer what still comes is thrown away for a while, not for ever."""
    def one(make):
        with running(make()) as d:
            still = []

            def send(begin_, fill):
                with client.Client(d.address) as c:
                    begun = time.monotonic()
                    try:
                        c.send(begin_)
                        while time.monotonic() - begun < 8 * client.SLOW:
                            c.send(fill * (65536 // len(fill)))
                        still.append(fill)
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                    except TimeoutError:
                        still.append((fill, "neither taken nor reset"))
            threads = [threading.Thread(target=send, args=x) for x in (
                (b"", b"x"), (b"GET /", b"a"), (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
                (b"GET / HTTP/1.1\r\nX: ", b"x"), (b"", b"\r\n"))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert not still, f"still received: {still}"
            served(d)
            assert anonymous(d)[0] < 100 << 20
    both(one)
    # where the kernel has it: TCP knows nothing of what sock has handed up and nobody reads
    one(lambda: daemon_of("--tiers", "sock,user", "--sock", "unlisted"))


def t_pipelined_in_one_write():
    def one(make):
        with running(make()) as d:
            rng, bodies = random.Random(1), {}
            for i in range(30):
                bodies[f"p{i}"] = rng.randbytes(rng.choice((0, 10, 700, 5000, 20000, 100000)))
                d.write(f"p{i}", bodies[f"p{i}"])
            for _ in range(3):
                names = [rng.choice(list(bodies)) for _ in range(1000)]
                with client.Client(d.address) as c:
                    data = b"".join(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % x.encode()
                                    for x in names)
                    sender = threading.Thread(target=c.send, args=(data,))
                    sender.start()
                    for i, name in enumerate(names):
                        assert c.response().body == bodies[name], f"answer {i} is not {name}"
                    sender.join()
                    assert c.get("/p1").body == bodies["p1"]
    both(one)


def t_pipelined_by_who_does_not_read():
    """The daemon stops receiving; nothing grows, nothing is lost."""
    def one(make):
        with running(make("--workers", "1")) as d:
            d.write("b", b"b" * 30000)
            before = anonymous(d)[0]
            sent, slow = 0, client.Client(d.address, rcvbuf=8192)
            request = GET.replace(b"a.txt", b"b")
            slow.s.settimeout(0.5)
            try:
                while sent < 300000:
                    slow.s.sendall(request)
                    sent += 1
            except TimeoutError:
                pass
            assert sent < 300000, "everything was taken"
            served(d, 10)
            grown = anonymous(d)[0] - before
            assert grown < 8 << 20, f"{grown} bytes for one connection"
            slow.s.settimeout(client.WAIT_S)
            for _ in range(100):
                assert slow.response().body == b"b" * 30000
            reset(slow.s)
            served(d)
    both(one)


def t_garbage():
    def one(make):
        with running(make("--header-timeout", "1s")) as d:
            rng, before = random.Random(2), None
            hello = bytes.fromhex("16030100c8010000c40303") + rng.randbytes(190)
            fixed = [b"", b"\r\n" * 10, b"\0", b"\0" * 5000, b"\xff" * 100, hello,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"SSH-2.0-x\r\n", b"{}\n", b"GET", b"GET / HTTP/1.1\r\n", b"\n\n\n\n",
                     b"HTTP/1.1 200 OK\r\n\r\n"]
            before = descriptors(d)
            for i in range(400):
                data = fixed[i] if i < len(fixed) else rng.randbytes(rng.choice((1, 10, 100, 2000,
                                                                                 40000)))
                if i % 3 == 2:      # from a real one
                    data = bytearray(GET * 5)
                    for _ in range(rng.randrange(1, 6)):
                        data[rng.randrange(len(data))] = rng.randrange(256)
                with client.Client(d.address) as c:
                    try:
                        c.send(data)
                        c.s.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                    c.ended()
                    while c.got:
                        head, _, rest = c.got.partition(b"\r\n\r\n")
                        r = client.Response(head, b"")
                        # a method that begins with HEAD cannot come of this
                        c.got = rest[int(r.fields.get("Content-Length", 0)):]
                        assert r.status in (200, 204, 400, 404, 405, 408, 412, 414, 417, 431, 501,
                                            505), r
            served(d, 10)
            client.until(lambda: descriptors(d) <= before, "never closed")
    both(one)


def t_no_descriptor_is_lost():
    """2000 connections that end in every way there is."""
    def one(make):
        with running(make("--idle-timeout", "2s", "--header-timeout", "2s", "--send-timeout",
                          "2s")) as d:
            d.write("big", b"x" * (2 << 20))
            served(d, 5)
            client.until(lambda: not connections(d), "never idle")
            before, rng = descriptors(d), random.Random(3)
            open_ = []
            for i in range(2000):
                c = client.Client(d.address)
                how = i % 8
                if how:
                    c.send(GET if how < 6 else GET.replace(b"a.txt", b"big"))
                if how == 1:
                    c.response()
                elif how == 2:
                    c.s.shutdown(socket.SHUT_WR)
                elif how == 3:
                    c.response()
                    c.send(GET[:rng.randrange(len(GET))])
                elif how == 4:
                    c.get("/none", "Connection: close")
                elif how == 6:
                    c.s.recv(1000)
                if rng.random() < 0.5:
                    open_.append(c)
                elif rng.random() < 0.5:
                    reset(c.s)
                else:
                    c.close()
                if len(open_) > 200:
                    reset(open_.pop(rng.randrange(len(open_))).s)
            for c in open_:
                c.close()
            client.until(lambda: descriptors(d) <= before,
                         f"never as few descriptors as {before} again")
            served(d, 10)
    both(one)


def connections(d):
    """Connected sockets of the daemon."""
    port = f":{d.address[1]:04X}"
    with open("/proc/net/tcp", encoding="ascii") as f:
        return sum(1 for x in f.readlines()[1:]
                   if x.split()[1].endswith(port) and x.split()[3] == "01")


if __name__ == "__main__":
    ktap.run(globals())
