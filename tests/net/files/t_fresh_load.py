#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Files that change under load: no answer is stale, and none mixes two versions.

A write in place is not atomic in Linux itself: what a reader gets during it may be both.
That is allowed here until the promise is due (tests/lib/versions.py), and then not any more.
"""
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import ktap
import stalls
import versions
from versions import LINES, PROMISE_S, Watcher, at, daemons, put, replace, version, whole

CLOCK_REALTIME_COARSE = 5       # Python names it not


def t_many_hard_links_delay_nothing():
    """Their names are news of a served folder, each perhaps of a file that is cached."""
    outside = versions.user.root + ".outside"
    one, two = version(), version()

    def change():
        for i in range(500):
            os.link(outside, at(f"kept/link-{i}"))
        versions.user.write("beside", two)
    os.makedirs(at("kept"))
    try:
        for i in range(3000):
            with open(at(f"kept/{i}"), "wb") as f:
                f.write(b"%d" % i)
        for d in daemons():
            with client.Client(d.address) as c:
                for i in range(3000):
                    c.get(f"/kept/{i}")
        with open(outside, "wb") as f:
            f.write(b"a file that nobody asks for")
        versions.user.write("beside", one)
        with Watcher("/beside") as w:
            w.change(one, change, two)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(outside)
        shutil.rmtree(at("kept"))


def next_tick():
    """A file that changes now has as much of a tick as there is until its time is another."""
    now = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) == now:
        pass


def t_two_writes_within_a_tick():
    """Versions of equal length, and a link, which inotify does not cover."""
    if versions.no_mounts:
        raise ktap.Skip(versions.no_mounts)
    os.mkdir(at("tick"))
    # its times are those of the clock's ticks, on every kernel
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=755", "ramfs", at("tick")], check=True)
    try:
        replace("tick/x", version())
        os.symlink("x", at("tick/link"))
        seen = [0] * len(daemons())
        with Watcher("/tick/link") as w:
            for tries in range(400):
                if min(seen) == 5:
                    break
                time.sleep(0.06)        # what is stored has to be looked at again
                one, two = version(), version()
                asked = tries % len(seen)       # a tick is too short for all of them
                next_tick()
                put("tick/x", one)
                before = os.stat(at("tick/x")).st_ctime_ns
                w.clients[asked].get(w.path)
                put("tick/x", two)
                done = time.monotonic()
                if os.stat(at("tick/x")).st_ctime_ns != before or seen[asked] == 5:
                    continue
                w.fresh(two, done)
                time.sleep(PROMISE_S)   # still, when it has been renewed
                w.fresh(two, done)
                seen[asked] += 1
            ktap.note(f"{seen} times of {tries}")
            if client.IN_VM and not all(seen):
                raise ktap.Skip("a request takes longer than a tick")
            assert all(seen), "never twice within a tick"
            w.cached(two)
    finally:
        subprocess.run(["umount", "-l", at("tick")], check=False)


def t_large_file_replaced_under_a_slow_reader():
    """Old bytes to the end; whoever asks behind it gets the new ones."""
    old, new = version(2 << 20), version(2 << 20)
    replace("large", old)
    for d in daemons():
        with client.Client(d.address, rcvbuf=16384) as c:
            c.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            head = c.head()
            assert b"\r\nContent-Length: %d\r\n" % len(old) in head + b"\r\n", head
            replace("large", new)
            body = bytearray(c.got)
            while len(body) < len(old):
                got = c.s.recv(1 << 20)
                assert got, f"end after {len(body)}"
                body += got
            assert body == old, "a mixture"
            c.got = b""
            assert c.get("/large").body == new
        old, new = new, old


def t_flood_of_other_changes():
    """Events of other files in its folder come before those of this one."""
    old, stop, nr = version(), threading.Event(), 0
    replace("flood/x", old)

    def flood():
        nonlocal nr
        with open(at("flood/other"), "wb", buffering=0) as f:
            while not stop.is_set():
                f.write(b"x")
                f.truncate(0)
                os.chmod(at("flood/other"), 0o644)
                nr += 3
    thread = threading.Thread(target=flood)
    with Watcher("/flood/x") as w:
        w.cached(old)
        thread.start()
        try:
            for how in (put, replace) * 10:
                new = version()
                how("flood/x", new)
                w.fresh(new, time.monotonic())
        finally:
            stop.set()
            thread.join()
        w.cached(new)
    ktap.note(f"{nr} other changes")


def t_events_are_lost():
    """More than the kernel's queue holds, while the daemon is stopped."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as f:
        queue = int(f.read())
    old, new = version(), version()
    replace("lost/x", old)
    for i in range(200):
        replace(f"lost/{i}", b"")
    with Watcher("/lost/x") as w:
        w.cached(old)
        for d in daemons():
            d.process.send_signal(signal.SIGSTOP)
        try:
            for i in range(queue + 1000):       # neighbours that are alike are merged
                os.chmod(at(f"lost/{i % 200}"), 0o644)
            put("lost/x", new)
        finally:
            for d in daemons():
                d.process.send_signal(signal.SIGCONT)
        w.fresh(new, time.monotonic())


def due(done, asked, waits):
    """Whether what was complete then has to be what is asked for now."""
    return done is not None and \
        asked > done + PROMISE_S + (waits.lost_s(done, asked) if waits else 0)


class File:
    """What /many/N has been: (expected answer, when it began, when it was complete)."""
    def __init__(self, name):
        self.name, self.path, self.atomic = name, at(name), True
        self.lock = threading.Lock()
        self.states = []

    def become(self, want, how, atomic):
        begun = time.monotonic()
        with self.lock:
            self.states.append([want, begun, None, atomic])
        how()
        with self.lock:
            self.states[-1][2] = time.monotonic()

    def allowed(self, got, asked, answered, waits=None):
        """got: status or body, of a request between these two times. waits: the daemons'."""
        with self.lock:
            states = [list(x) for x in self.states]
        for i, (want, begun, done, atomic) in enumerate(states):
            over = states[i + 1][2] if i + 1 < len(states) else None
            if begun > answered or due(over, asked, waits):
                continue
            if got == want or not atomic and not due(done, asked, waits):
                return True
            # in the middle of a change in place anything may be there
            if i + 1 < len(states) and not states[i + 1][3] and states[i + 1][1] <= answered:
                return True
        return False


def change_one(rng, f):
    """A random change of a file, from whatever it is now."""
    want = f.states[-1][0]
    new = version(rng.choice((1, 10, LINES, 500, 2000)))
    kind = rng.choice(("rename", "rename", "rename", "in place", "truncate", "unlink", "chmod"))
    if not isinstance(want, bytes) or kind == "rename":
        f.become(new, lambda: replace(f.name, new), True)
    elif kind == "in place":
        f.become(new, lambda: put(f.name, new), False)
    elif kind == "truncate":
        short = want[:len(want) // 2 // 9 * 9]
        f.become(short, lambda: os.truncate(f.path, len(short)), False)
    elif kind == "unlink":
        f.become(404, lambda: os.unlink(f.path), True)
    else:
        f.become(403, lambda: os.chmod(f.path, 0), True)


class Reader(threading.Thread):
    def __init__(self, d, files, seed, stop):
        super().__init__(daemon=True)
        self.d, self.files, self.rng, self.stop = d, files, random.Random(seed), stop
        self.doubts, self.failed, self.tiers = [], None, {}

    def run(self):
        try:
            with client.Client(self.d.address) as c:
                while not self.stop.is_set() and len(self.doubts) < 1000:
                    self.one(c)
        except Exception as why:        # said by the main thread
            self.failed = repr(why)

    def one(self, c):
        f = self.files[min(self.rng.randrange(100), self.rng.randrange(100))]
        asked = time.monotonic()
        r = c.get("/" + f.name)
        answered = time.monotonic()
        self.tiers[r.tier] = self.tiers.get(r.tier, 0) + 1
        got = r.body if r.status == 200 else r.status
        if not f.allowed(got, asked, answered):
            kind = "a mixture" if r.status == 200 and not whole(r.body) else "stale"
            with f.lock:
                now = [(str(w)[:12], round(asked - b, 3), e and round(asked - e, 3))
                       for w, b, e, _ in f.states[-4:]]
            self.doubts.append((f, got, asked, answered,
                                f"{kind}: {f.name}: {r!r}; states {now}"))

    def wrong(self, waits):
        """What is still wrong where the time that the daemons waited for a CPU is none."""
        return [self.failed] * bool(self.failed) + \
            [text for f, got, asked, answered, text in self.doubts
             if not f.allowed(got, asked, answered, waits)]


def t_thousand_changes_under_load():
    rng, files, stop = random.Random(7), [], threading.Event()
    for i in range(100):
        f, first = File(f"many/{i % 7}/{i}"), version()
        files.append(f)
        f.become(first, lambda f=f, first=first: replace(f.name, first), True)
    readers = [Reader(d, files, i, stop) for i in range(2) for d in daemons()]
    with stalls.recorded(versions.pids()) as waits:
        for r in readers:
            r.start()
        try:
            for _ in range(1000):
                change_one(rng, rng.choice(files))
                time.sleep(rng.random() * 0.02)     # the rate of the load, no wait
        finally:
            stop.set()
            for r in readers:
                r.join(client.WAIT_S)
    ktap.note("answers " + ", ".join(str(r.tiers) for r in readers))
    wrong = [x for r in readers for x in r.wrong(waits)]
    for line in wrong[:10]:
        ktap.note(line)
    assert not wrong, f"{len(wrong)} wrong answers"
    assert all(not r.is_alive() and sum(r.tiers.values()) > 100 for r in readers)
    for f in files:                             # and in the end all is right
        with Watcher("/" + f.name) as w:
            w.fresh(f.states[-1][0], f.states[-1][2])


def t_stalest_answer_of_all():
    ktap.note(f"{versions.worst_s * 1000:.1f} ms, {PROMISE_S * 1000:.0f} are promised")
    assert versions.worst_s <= PROMISE_S


if __name__ == "__main__":
    ktap.run(globals(), setup=versions.begin, teardown=versions.end)
