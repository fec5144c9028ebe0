#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""More clients than there is room for, or too few descriptors: some wait, others are closed."""
import contextlib
import json
import os
import re
import resource
import select
import selectors
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
from limits import anonymous, both, daemon_of, descriptors, reset, running, served, ticks

GET = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"


def stats(d):
    r = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", d.control, "--json",
                        "stats"],
                       capture_output=True, check=True, timeout=client.WAIT_S)
    return json.loads(r.stdout)["tiers"]["user"]


def t_connections_max_is_exact():
    """Further clients wait, and are served when one of the others leaves."""
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
                # on a busy machine some were idle for so long that they were closed
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
    """Run as the daemon's own user: root may lack the capability."""
    with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    uid, gid = (fields[x].split()[0] for x in ("Uid", "Gid"))
    become = [] if os.geteuid() else ["setpriv", f"--reuid={uid}", f"--regid={gid}",
                                      "--clear-groups"]
    subprocess.run(become + ["prlimit", "--pid", str(d.pid), f"--nofile={nr}:"], check=True)


def t_out_of_descriptors():
    """For files, and for connections: of few, each is accepted by the limit as it is then."""
    def one(make):
        with running(make("--connections-max", "1000", "--give-back", "0")) as d:
            d.write("big", b"x" * 200000)
            # on one connection, which keeps its socket from the first miss on
            client.hot(d, "/a.txt", "wire" if "tiers wire" in d.ready and not daemon.LATE
                       else "user")
            with client.Client(d.address) as old:
                assert old.get("/none").status == 404   # it has a socket
                old.get("/a.txt")
                used = max(int(x) for x in os.listdir(f"/proc/{d.pid}/fd")) + 1
                lower_files(d, used + 20)
                held = [client.Client(d.address) for _ in range(100)]
                for c in held:
                    c.send(b"G")
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
    both(lambda make: one(make, 98))


def t_no_descriptors_for_connections_are_reported_at_the_start():
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
            if tier == "wire" and daemon.LATE:
                assert descriptors(d) < 200, "sockets of connections that have never missed"
            else:
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


if __name__ == "__main__":
    ktap.run(globals())
