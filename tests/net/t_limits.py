#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""At a limit the daemon degrades for those beyond it, and recovers by itself."""
import contextlib
import json
import os
import random
import re
import resource
import select
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import client
import conf
import daemon
import ktap

GET = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW = client.SLOW


def daemon_of(*options, wire=False, **more):
    """A started daemon with some files."""
    if wire:
        d = client.start_wire(*options, **more)
    else:
        d = daemon.Daemon("--wire", "off", *options, **more).start()
    d.write("a.txt", b"a text\n")
    return d


def both(fn):
    """fn(make) for a daemon without wire and, where it can be, one with it."""
    fn(daemon_of)
    try:
        fn(lambda *options, **more: daemon_of(*options, wire=True, **more))
    except ktap.Skip as why:
        ktap.note(why)


class running:
    """with running(daemon) as d: for one that is started already."""
    def __init__(self, d):
        self.d = d

    def __enter__(self):
        return self.d

    def __exit__(self, kind, value, trace):
        if kind:
            for line in self.d.lines[-20:]:
                ktap.note(f"toboggand: {line}")
        self.d.stop()


def descriptors(d):
    return len(os.listdir(f"/proc/{d.pid}/fd"))


def served(d, nr=1):
    for _ in range(nr):
        with client.Client(d.address) as c:
            assert c.get("/a.txt").body == b"a text\n"


def ticks(d):
    """CPU time so far, seconds."""
    with open(f"/proc/{d.pid}/stat", encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rests(d):
    """Whether it does next to nothing for a moment."""
    before, moment = ticks(d), 0.1 * SLOW
    time.sleep(moment)
    return ticks(d) - before < moment / 5


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


# --- time limits

def t_slow_heads_end_and_disturb_nobody():
    """Byte by byte for ever, 50 at a time."""
    def one(make):
        with running(make("--header-timeout", "1s")) as d:
            slow = [client.Client(d.address) for _ in range(50)]
            begun, left = time.monotonic(), dict.fromkeys(slow)
            for c in slow:
                c.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\nX: ")
            while left:
                assert time.monotonic() - begun < 5 * SLOW, f"{len(left)} are still there"
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
                assert now - first > 0.8 and now - last < 5 * SLOW, \
                    f"{asks} requests: ended after {now - first:.2f} s, {now - last:.2f} s idle"
                c.close()
    both(one)


def t_idle_time_begins_with_a_hit_of_wire():
    """Of a connection that has asked the daemon for nothing."""
    with running(daemon_of("--idle-timeout", "1s", "--header-timeout", "60s", wire=True)) as d:
        client.hot(d, "/a.txt")
        c, silent = client.Client(d.address), client.Client(d.address)
        start = time.monotonic()
        assert c.get("/a.txt").tier == "wire"
        assert c.ended()
        took = time.monotonic() - start
        assert 0.8 < took < 5 * SLOW, f"ended after {took:.2f} s"
        c.close()
        assert silent.get("/a.txt").tier == "wire"      # its head has time yet
        silent.close()


def t_probes_of_a_client_keep_no_connection():
    """Nor does what answers them: only requests count."""
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
        assert 0.8 < took < 5 * SLOW, f"ended after {took:.2f} s"
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
            assert time.monotonic() - begun < 5 * SLOW
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


# --- numbers

def stats(d):
    r = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", d.control, "--json",
                        "stats"],
                       capture_output=True, check=True, timeout=client.WAIT_S)
    return json.loads(r.stdout)["tiers"]["user"]


def t_connections_max_is_exact():
    """Whoever is beyond it waits, and is served when one of the others goes."""
    for most, workers, listen in ((1, 1, 1), (1, 4, 1), (7, 2, 3), (40, 2, 1)):
        options = ("--tiers", "user", "--connections-max", str(most), "--workers", str(workers))
        with running(daemon_of(*options, listen=("127.0.0.1:0",) * listen)) as d:
            left = {}
            for i in range(most + 100):
                c = client.Client(d.addresses[i % listen])
                c.send(GET)
                left[c.s] = c
            answered, gone = {}, 0
            while left or answered:
                full = len(answered) == most or not left
                ready, _, _ = select.select(list(left), [], [], 0 if full else client.WAIT_S)
                assert ready or full, f"{len(left)} wait, {len(answered)} are served"
                for s in ready:
                    answered[s] = left.pop(s)
                    assert answered[s].response().body == b"a text\n"
                # on a busy machine some have rested for so long that they gave way
                for s in select.select(list(answered), [], [], 0)[0]:
                    assert answered.pop(s).ended()
                    gone += 1
                assert len(answered) <= most, f"{len(answered)} served at a time, {most} allowed"
                if gone % 16 == 0:
                    assert stats(d)["connections"] <= most
                if len(answered) == most or not left:
                    s, c = answered.popitem()
                    c.close()
                    gone += 1
            assert gone == most + 100
            client.until(lambda: not stats(d)["connections"], "never closed")
            assert stats(d)["accepted"] == gone


def t_room_is_shared_with_other_workers():
    """One worker's clients come and go, another's wait: all get their turn."""
    with running(daemon_of("--connections-max", "2", "--workers", "2")) as d:
        waiting = [client.Client(d.address) for _ in range(40)]     # of both workers
        for c in waiting:
            c.send(GET)
        done = threading.Event()

        def crowd():
            while not done.is_set():
                with client.Client(d.address) as c:
                    c.send(GET)
                    while not done.is_set() and not select.select([c.s], [], [], 0.1)[0]:
                        pass
        threads = [threading.Thread(target=crowd) for _ in range(8)]
        for t in threads:
            t.start()
        try:
            left = {c.s: c for c in waiting}
            while left:
                ready, _, _ = select.select(list(left), [], [], client.WAIT_S)
                assert ready, f"{len(left)} are never served"
                for s in ready:
                    assert left[s].response().body == b"a text\n"
                    left.pop(s).close()
        finally:
            done.set()
            for t in threads:
                t.join()


def t_from_many_at_once_to_one_by_one():
    """With room for less than 4096 more they are accepted singly; nobody is lost on the way."""
    with running(daemon_of("--connections-max", "4110")) as d:
        for _ in range(3):
            held = [client.Client(d.address) for _ in range(100)]
            for c in held:
                c.send(GET)
            for c in held:
                assert c.response().body == b"a text\n"
            assert stats(d)["connections"] == 100
            for c in held:
                c.close()
            client.until(lambda: not stats(d)["connections"], "never closed")
        assert stats(d)["refused"] == 0


def t_waiting_ones_that_leave_take_no_room():
    with running(daemon_of("--connections-max", "3", "--workers", "2")) as d:
        before = descriptors(d)
        held = [client.Client(d.address) for _ in range(3)]
        for c in held:
            c.get("/a.txt")
        for i in range(50):
            c = client.Client(d.address)
            c.send(GET)
            if i % 2:
                reset(c.s)
            else:
                c.close()
        for c in held:
            assert c.get("/a.txt").body == b"a text\n"
            c.close()
        served(d, 10)
        client.until(lambda: descriptors(d) <= before + 1, "never closed")


def t_drain_with_connections_that_wait():
    d = daemon_of("--tiers", "user", "--connections-max", "2", "--workers", "2")
    held = [client.Client(d.address) for _ in range(2)]
    for c in held:
        c.get("/a.txt")
    waiting = [client.Client(d.address) for _ in range(10)]
    for c in waiting:
        c.send(GET)
    assert d.stop() == 0
    for c in waiting + held:
        assert c.ended()        # unanswered, but told
        c.close()


def t_burst_beyond_connections_max_is_survived():
    with running(daemon_of("--connections-max", "20")) as d:
        before = descriptors(d)
        for _ in range(3):
            held = [client.Client(d.address) for _ in range(300)]
            for c in held[:150]:
                c.send(GET)
            for c in held[150:]:
                reset(c.s)
            left = {c.s: c for c in held[:150]}
            while left:             # who has an answer leaves, and makes room
                ready, _, _ = select.select(list(left), [], [], client.WAIT_S)
                assert ready, f"{len(left)} are never answered"
                for s in ready:
                    assert left[s].response().body == b"a text\n"
                    left.pop(s).close()
        client.until(lambda: descriptors(d) <= before, "never closed")
        served(d, 10)


def t_idle_connections_give_way_to_new_ones():
    """The oldest first, after a second of rest; those with something under way stay."""
    with running(daemon_of("--connections-max", "12", "--workers", "1")) as d:
        held = []
        for _ in range(10):
            held.append(client.Client(d.address))
            assert held[-1].get("/a.txt").body == b"a text\n"
            time.sleep(0.02)
        busy = client.Client(d.address)         # a head under way is not at rest
        busy.send(GET[:-2])
        silent = client.Client(d.address)       # has never asked
        client.until(lambda: stats(d)["connections"] == 12, "never connected")
        time.sleep(1.1)
        more = [client.Client(d.address) for _ in range(4)]
        for c in more:
            c.send(GET)
        for c in more:
            assert c.response().body == b"a text\n"
        gone = [i for i, c in enumerate(held) if select.select([c.s], [], [], 0)[0]]
        assert gone == [0, 1, 2, 3], gone
        busy.send(GET[-2:])
        assert busy.response().body == b"a text\n"
        for c in [*held, *more, busy, silent]:
            c.close()


def t_unfinished_heads_of_one_client_do_not_hold_all_the_room():
    """They give way down to half of it; those of others stay."""
    with running(daemon_of("--connections-max", "10", "--workers", "1")) as d:
        other = socket.create_connection(d.address, client.WAIT_S, source_address=("127.0.0.9", 0))
        other.sendall(GET[:-2])
        held = [client.Client(d.address) for _ in range(9)]
        for c in held:
            c.send(GET[:-2])
        client.until(lambda: stats(d)["connections"] == 10, "never connected")
        for _ in range(12):
            with client.Client(d.address) as c:
                c.send(GET)
                assert c.response().body == b"a text\n"
        gone = [c for c in held if select.select([c.s], [], [], 0)[0]]
        assert 1 <= len(gone) <= 4, len(gone)
        assert gone[0].response().status == 408
        other.sendall(GET[-2:])
        assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
        other.close()
        for c in held:
            c.close()


def t_slow_clients_share_a_budget():
    """Those that have taken nothing for the longest are cut off; who reads is served as ever."""
    daemon.not_sanitized("a limit of memory")
    with running(daemon_of("--tiers", "user", "--memory", "16M", "--workers", "1")) as d:
        d.write("large", os.urandom(4000))
        slow = []
        for _ in range(80):
            c = client.Client(d.address, rcvbuf=4096)
            with contextlib.suppress(OSError):
                c.s.settimeout(1)
                c.s.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" * 2000)
            slow.append(c)
        client.until(lambda: any("slowest clients are cut off" in x for x in d.lines), "never said")
        assert anonymous(d)[0] < 48 << 20, anonymous(d)
        with client.Client(d.address) as c:
            for _ in range(20):
                assert len(c.get("/large").body) == 4000
        for c in slow:
            c.close()


def t_idle_connections_make_room():
    with running(daemon_of("--connections-max", "20", "--idle-timeout", "1s")) as d:
        held = [client.Client(d.address) for _ in range(30)]
        for c in held:
            c.send(GET)
        for c in held:          # the last wait for the first to be idle for long
            assert c.response().body == b"a text\n"
        for c in held:
            c.close()


def t_wire_answers_beyond_the_limit():
    """Connections that the daemon has no room for are wire's all the same."""
    with running(daemon_of("--connections-max", "10", wire=True)) as d:
        client.hot(d, "/a.txt")
        held = [client.Client(d.address) for _ in range(40)]
        for c in held:
            assert c.get("/a.txt").tier == "wire"
        for c in held:
            c.close()
        d.write("new.txt", b"new\n")
        with client.Client(d.address) as c:
            assert c.get("/new.txt").body == b"new\n"


def lower_files(d, nr):
    """As the daemon's own user: root may lack the capability."""
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    uid, gid = (fields[x].split()[0] for x in ("Uid", "Gid"))
    become = [] if os.geteuid() else ["setpriv", f"--reuid={uid}", f"--regid={gid}",
                                      "--clear-groups"]
    subprocess.run(become + ["prlimit", "--pid", str(d.pid), f"--nofile={nr}:"], check=True)


def t_out_of_descriptors():
    """For files, and for connections: of few, each is accepted by the limit as it is then."""
    def one(make):
        with running(make("--connections-max", "1000")) as d:
            d.write("big", b"x" * 200000)
            client.hot(d, "/a.txt", "wire" if "tiers wire" in d.ready else "user")
            with client.Client(d.address) as old:
                old.get("/a.txt")
                used = max(int(x) for x in os.listdir(f"/proc/{d.pid}/fd")) + 1
                lower_files(d, used + 20)
                held = [client.Client(d.address) for _ in range(100)]
                client.until(lambda: descriptors(d) >= used + 15, "never out of descriptors")
                assert old.get("/a.txt").body == b"a text\n"        # needs none
                cpu, begun = ticks(d), time.monotonic()
                statuses = set()
                # wire's look at its interfaces is within
                while time.monotonic() - begun < 3:
                    statuses.add(old.get("/big").status)    # needs one
                    time.sleep(0.05)
                assert statuses <= {200, 503}, statuses
                # and one for each worker
                assert descriptors(d) < used + 50, "it was never out of them"
                assert ticks(d) - cpu < 0.5 * max(1, time.monotonic() - begun), "it spins"
                for c in held:
                    c.close()
                served(d, 50)
                client.until(lambda: old.get("/big").status == 200, "never served again")
            assert not any("is gone" in x for x in d.lines), d.lines
    both(one)


def t_little_descriptors_from_the_start():
    """Not root: it cannot raise the limit, and says for how many it suffices."""
    if os.geteuid():
        raise ktap.Skip("not root: nobody else to become")
    d = daemon.Daemon("--wire", "off", "--connections-max", "1000", "--header-timeout", "1s",
                      prefix=[
        *daemon.AS_NOBODY, "prlimit", "--nofile=300:300"])
    os.chown(d.folder, 65534, 65534)
    d.write("a.txt", b"a text\n")
    with d:
        assert any("--connections-max 1000" in x and "raise" in x for x in d.lines), d.lines
        for _ in range(2):
            held = [client.Client(d.address) for _ in range(100)]
            held[-1].send(GET)      # behind the silent ones, who are given up
            assert held[-1].response().body == b"a text\n"
            for c in held:
                c.close()
            served(d, 20)


def limited(nr, *more):
    """Words before a daemon that may have nr descriptors and cannot raise that; more: for
    setpriv."""
    return ["prlimit", f"--nofile={nr}:{nr}", "setpriv", "--bounding-set=-sys_resource", *more]


def t_little_descriptors_suffice_for_files_and_control():
    """Every connection that is let in gets its file, and `toboggan status` its answer."""
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    def one(make, nr):
        with running(make("--workers", "2", prefix=limited(nr))) as d:
            d.write("big", b"x" * (8 << 20))
            held = [client.Client(d.address, rcvbuf=65536) for _ in range(25)]
            for c in held:
                c.send(GET.replace(b"a.txt", b"big"))
            left = {c.s: c for c in held}
            while left:
                assert len(select.select(list(left), [], [], client.WAIT_S)[0]), \
                       f"{len(left)} are never served"
                assert stats(d)["connections"]
                for s in select.select(list(left), [], [], 0)[0]:
                    assert left[s].response().status == 200, nr
                    left.pop(s).close()
    one(lambda *options, **more: daemon_of("--tiers", "user", *options, **more), 40)
    both(lambda make: one(make, 80))


def t_no_descriptors_for_connections_are_said_at_the_start():
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    for nr in (8, 12, 16, 20, 24):
        for more in ((), ("--reuid=65534", "--regid=65534", "--clear-groups")):
            d = daemon.Daemon("--wire", "off", "--workers", "2", prefix=limited(nr, *more))
            os.chown(d.folder, 65534, 65534)
            try:
                d.start()
            except RuntimeError as e:
                assert "exit 1" in str(e) and "open files" in str(e) and "ulimit -n" in str(e), \
                       (nr, e)
            else:
                d.stop()
                raise AssertionError(f"it started with {nr} descriptors")


def t_more_descriptors_are_for_no_fewer_connections():
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    before = 0
    for nr in (40, 64, 256, 511, 512, 520, 530, 600, 1024, 1536, 1600):
        with running(daemon_of("--connections-max", "100000", "--workers", "2", "--tiers", "user",
                               prefix=limited(nr))) as d:
            line = next(x for x in d.lines if "--connections-max 100000" in x)
            fit = int(re.search(r"suffice for (\d+)", line)[1])
            assert before <= fit < nr, (nr, fit, before)
            before = fit
    assert before > 700, before


class Holder(threading.Thread):
    """An upstream of one thread that answers a round of nr requests when all of them have come."""

    def __init__(self):
        super().__init__(daemon=True)
        self.nr, self.waiting = 0, []
        self.s = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.url = f"http://127.0.0.1:{self.s.getsockname()[1]}"
        self.start()

    @staticmethod
    def _asked(s):
        try:
            return s.recv(4096)
        except ConnectionResetError:
            return b""

    def run(self):
        with selectors.DefaultSelector() as sel:
            sel.register(self.s, selectors.EVENT_READ)
            while True:
                for key, _ in sel.select():
                    if key.fileobj is self.s:
                        sel.register(self.s.accept()[0], selectors.EVENT_READ)
                    elif self._asked(key.fileobj):
                        self.waiting.append(key.fileobj)
                    else:
                        sel.unregister(key.fileobj)
                        key.fileobj.close()
                if len(self.waiting) == self.nr:
                    while self.waiting:
                        self.waiting.pop().sendall(
                            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def t_every_connection_has_one_to_an_upstream():
    """From the start, and where a reload has brought the upstream."""
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), max(hard, 4096)))
    files = 'root = "{root}"\nconnections-max = 100000\n'
    up = Holder()
    asked = f'upstream = "{up.url}"\nconnections-max = 100000\n'
    try:
        for text in (asked, files):
            d = conf.Conf(text, "--workers", "1")
            d.prefix = limited(1700)
            with d:
                if text == asked:
                    line = next(x for x in d.lines if "--connections-max 100000" in x)
                    up.nr = int(re.search(r"suffice for (\d+)", line)[1])
                    assert up.nr > 500, line
                else:
                    up.nr -= 8      # who has files has more descriptors of its own
                d.reconfigure(asked)
                held = [client.Client(d.address) for _ in range(up.nr)]
                for i, c in enumerate(held):
                    c.send(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % i)
                for c in held:
                    assert c.response().status == 200
                    c.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def anonymous(d):
    """(RssAnon, VmRSS) in bytes."""
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    return tuple(int(fields[x].split()[0]) * 1024 for x in ("RssAnon", "VmRSS"))


def t_ten_thousand_idle_connections_cost_little():
    if client.IN_VM:
        raise ktap.Skip("10,000 connections take minutes in an emulated machine")
    want = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < want + 200:
        raise ktap.Skip(f"{hard} descriptors are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (want + 200, hard))

    def one(make):
        with running(make()) as d:
            tier = "wire" if "tiers wire" in d.ready else "user"
            client.hot(d, "/a.txt", tier)
            before, held = anonymous(d), []
            for _ in range(want):
                held.append(client.Client(d.address))
                assert daemon.is_tier(held[-1].get("/a.txt").tier, tier)
            client.until(lambda: descriptors(d) > want, "never accepted")
            anon, rss = ((x - y) / want for x, y in zip(anonymous(d), before))
            ktap.note(f"{tier}: {anon:.0f} bytes each, {rss:.0f} with mapped ones; "
                      f"{before[1] >> 10} KiB resident before")
            assert anon < 2048 and rss < 2048, (anon, rss)
            for c in held:
                assert c.get("/a.txt").body == b"a text\n"      # each is still good
                c.close()
            served(d, 10)
    try:
        both(one)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def t_start_after_a_kill_with_many_connections():
    """Their flows are taken over: 1500 of them share buckets of the map."""
    d = daemon_of(wire=True)
    client.hot(d, "/a.txt")
    for _ in range(1500):
        with client.Client(d.address) as c:
            assert c.get("/a.txt").tier == "wire"
    d.kill()
    with running(daemon_of(wire=True)) as d:
        assert client.hot(d, "/a.txt").body == b"a text\n"


# --- bytes

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
                        while time.monotonic() - begun < 8 * SLOW:
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
