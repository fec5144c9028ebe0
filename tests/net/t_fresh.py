#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A file that changes is never answered stale, and never half old, half new.

The promise is 100 ms after the change has completed. A version of a file is its
number, one line of nine bytes again and again, so that every body tells which
version it is and whether it is one. Two daemons serve one folder, one of them
with wire on lo; both are asked all the time while the folder changes.

A write in place is not atomic in Linux itself: what a reader gets during it may
be both. That is allowed here until the promise is due, and then not any more.
"""
import contextlib
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import client
import daemon
import ktap
import net

# An emulated machine has a tenth of the speed, and all of it is ours to share.
PROMISE_S = 0.1 * client.SLOW
CLOCK_REALTIME_COARSE = 5       # Python names it not
ANSWERS = 3             # fresh ones, after the promise is due
LINES = 60              # of a body: 540 bytes, one packet
user = wire = None
wire_off = no_mounts = ""
number = 0
worst_s = 0.0           # age of the stalest answer so far


def begin():
    global user, wire, wire_off, no_mounts
    no_mounts = net.own_mounts()        # the daemons have to see what is mounted
    user = daemon.Daemon("--wire", "off")
    user.start()
    wire, wire_off = client.wire_beside(user)


def end():
    for d in (wire, user):
        if d:
            d.stop()


def daemons():
    return [d for d in (user, wire) if d]


def version(lines=None):
    """The bytes of a new version."""
    global number
    number += 1
    return b"%08d\n" % number * (lines or LINES)


def whole(body):
    """Is it one version, and nothing else?"""
    return not body or len(body) % 9 == 0 and body == body[:9] * (len(body) // 9)


def at(name):
    return os.path.join(user.root, name)


class Watcher:
    """One connection to each daemon, and one path on them."""
    def __init__(self, path):
        self.path, self.clients = path, [client.Client(d.address) for d in daemons()]

    def __enter__(self):
        return self

    def __exit__(self, *why):
        for c in self.clients:
            c.close()

    def cached(self, want):
        """Until each daemon answers with want from its cache."""
        for c, tier in zip(self.clients, ("user", "wire")):
            deadline = time.monotonic() + client.WAIT_S
            while not (daemon.is_tier((r := c.get(self.path)).tier, tier) and r.body == want):
                assert time.monotonic() < deadline, f"{self.path}: not cached: {r!r}"

    def fresh(self, want, done):
        """done: when the change had completed. want: a body, or a status."""
        global worst_s
        for c in self.clients:
            right, first = 0, None
            while right < ANSWERS:
                asked = time.monotonic()
                r = c.get(self.path)
                if r.status == want or r.status == 200 and r.body == want:
                    first = first or asked
                    right += asked > done + PROMISE_S or r.tier in daemon.HITS
                    continue
                assert asked < done + PROMISE_S, \
                    f"{self.path}: {asked - done:.3f} s after the change: {r!r}"
                assert first is None or not isinstance(want, bytes) or not r.status == 200 or \
                    r.tier not in daemon.HITS, f"{self.path}: old after new: {r!r}"
                worst_s = max(worst_s, asked - done)
                right = 0

    def change(self, old, fn, want):
        """From old (cached, or a status) by fn() to want."""
        if isinstance(old, bytes):
            self.cached(old)
        else:
            for c in self.clients:
                assert (r := c.get(self.path)).status == old, r
        fn()
        self.fresh(want, time.monotonic())


def put(name, data):
    """In place: the same inode."""
    with open(at(name), "r+b") as f:
        f.write(data)
        f.truncate()


def replace(name, data, mode=0o644):
    user.write(name, data, mode)


def t_rewrite_in_place():
    old = version()
    replace("a", old)
    with Watcher("/a") as w:
        for lines in (LINES, LINES, 10, LINES * 2, 1, LINES):
            new = version(lines)
            w.change(old, lambda new=new: put("a", new), new)
            old = new


def t_replace_by_rename():
    old = version()
    replace("b", old)
    with Watcher("/b") as w:
        for lines in (LINES, LINES, 10, LINES * 2, 1, LINES):
            new = version(lines)
            w.change(old, lambda new=new: replace("b", new), new)
            old = new


def t_truncate_and_append():
    old = version()
    replace("c", old)
    with Watcher("/c") as w:
        w.change(old, lambda: os.truncate(at("c"), 90), old[:90])
        w.change(old[:90], lambda: os.truncate(at("c"), 0), b"")

        def append():
            with open(at("c"), "ab") as f:
                f.write(old)
        w.change(b"", append, old)


def t_delete_and_create():
    old = version()
    replace("d", old)
    with Watcher("/d") as w:
        for _ in range(3):
            w.change(old, lambda: os.unlink(at("d")), 404)
            new = version()
            w.change(404, lambda new=new: replace("d", new), new)
            old = new


def t_delete_and_create_at_once():
    """The new file often has the inode number of the old one."""
    old = version()
    replace("d2", old)
    with Watcher("/d2") as w:
        for _ in range(3):
            new = version()

            def again(new=new):
                os.unlink(at("d2"))
                with open(at("d2"), "wb") as f:
                    f.write(new)
                os.chmod(at("d2"), 0o644)
            w.change(old, again, new)
            old = new


def t_chmod_of_the_file():
    old = version()
    replace("e", old)
    with Watcher("/e") as w:
        for _ in range(2):
            w.change(old, lambda: os.chmod(at("e"), 0), 403)
            w.change(403, lambda: os.chmod(at("e"), 0o644), old)


def t_chown_of_the_file():
    if os.geteuid():
        raise ktap.Skip("not root: a file cannot be given away")
    old = version()
    replace("e2", old)
    os.chmod(at("e2"), 0o444)
    with Watcher("/e2") as w:
        w.change(old, lambda: os.chmod(at("e2"), 0o440), 403)
        with open(f"/proc/{user.pid}/status", encoding="ascii") as f:
            group = next(int(x.split()[1]) for x in f if x.startswith("Gid:"))
        w.change(403, lambda: os.chown(at("e2"), -1, group), old)
        w.change(old, lambda: os.chown(at("e2"), -1, 0), 403)


def t_chmod_of_a_folder_above():
    old = version()
    replace("f/g/h/x", old)
    with Watcher("/f/g/h/x") as w:
        for name in ("f/g/h", "f/g", "f"):
            w.change(old, lambda name=name: os.chmod(at(name), 0), 403)
            w.change(403, lambda name=name: os.chmod(at(name), 0o755), old)


def t_rename_of_a_folder_above():
    old = version()
    replace("i/j/k/x", old)
    with Watcher("/i/j/k/x") as w, Watcher("/i/j2/k/x") as w2:
        for _ in range(2):
            w.cached(old)
            os.rename(at("i/j"), at("i/j2"))
            done = time.monotonic()
            w.fresh(404, done)
            w2.fresh(old, done)
            w2.change(old, lambda: os.rename(at("i/j2"), at("i/j")), 404)
            w.fresh(old, time.monotonic())
        w.change(old, lambda: os.rename(at("i"), os.path.join(user.folder, "out")), 404)
        w.change(404, lambda: os.rename(os.path.join(user.folder, "out"), at("i")), old)


def t_folder_replaced_by_another():
    old, new = version(), version()
    replace("l/m/x", old)
    replace("l.new/m/x", new)

    def swap():
        os.rename(at("l"), at("l.old"))
        os.rename(at("l.new"), at("l"))
    with Watcher("/l/m/x") as w:
        w.change(old, swap, new)
        newer = version()       # the watches are those of the new folder
        w.change(new, lambda: put("l/m/x", newer), newer)
        w.change(newer, lambda: shutil.rmtree(at("l")), 404)


def t_root_replaced_by_another():
    """Served is what the root's path leads to: another folder, or a link's new target."""
    parts = [user.root + end for end in (".a", ".b")]
    old, new = version(), version()
    replace("r", old)
    os.mkdir(parts[1])
    os.chmod(parts[1], 0o755)
    with open(os.path.join(parts[1], "r"), "wb") as f:
        f.write(new)

    def swap():
        os.rename(user.root, parts[0])
        os.rename(parts[1], user.root)
        parts.reverse()

    def lead_to(part):
        os.symlink(part, user.root + ".link")
        os.rename(user.root + ".link", user.root)

    try:
        with Watcher("/r") as w:
            w.change(old, swap, new)
            w.change(new, swap, old)
            os.rename(user.root, parts[0])
            lead_to(parts[0])
            w.change(old, lambda: lead_to(parts[1]), new)
            newer = version()
            w.change(new, lambda: replace("r", newer), newer)   # changes there are seen too
            w.change(newer, lambda: lead_to(parts[0]), old)
    finally:
        if os.path.islink(user.root):
            os.unlink(user.root)
            os.rename(parts[0], user.root)
        elif os.path.exists(user.root + ".a"):
            swap()
        shutil.rmtree(user.root + ".b", ignore_errors=True)


def t_many_hard_links_delay_nothing():
    """Their names are news of a served folder, each perhaps of a file that is cached."""
    outside = user.root + ".outside"
    one, two = version(), version()

    def change():
        for i in range(500):
            os.link(outside, at(f"kept/link-{i}"))
        user.write("beside", two)
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
        user.write("beside", one)
        with Watcher("/beside") as w:
            w.change(one, change, two)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(outside)
        shutil.rmtree(at("kept"))


def t_symbolic_link_swapped():
    def point(name, to):
        os.symlink(to, at(name + "~"))
        os.rename(at(name + "~"), at(name))
    one, two, three = version(), version(), version()
    replace("one", one)
    replace("two", two)
    point("link", "one")
    with Watcher("/link") as w:
        w.change(one, lambda: point("link", "two"), two)
        w.change(two, lambda: point("link", "one"), one)
        w.change(one, lambda: replace("one", three), three)     # its target
        w.change(three, lambda: put("one", one), one)
        w.change(one, lambda: point("link", "../control.sock"), 403)
        w.change(403, lambda: point("link", "two"), two)


def t_folder_link_swapped():
    """How a site is deployed: current -> releases/1 -> releases/2."""
    one, two = version(), version()
    replace("releases/1/x", one)
    replace("releases/2/x", two)
    os.symlink("releases/1", at("current"))
    with Watcher("/current/x") as w:
        old, new = (one, "1"), (two, "2")
        for _ in range(3):
            def swap(new=new):
                os.symlink("releases/" + new[1], at("current~"))
                os.rename(at("current~"), at("current"))
            w.change(old[0], swap, new[0])
            old, new = new, old


def t_hard_link_changed_by_its_other_name():
    old, new = version(), version()
    other = os.path.join(user.folder, "other-name")
    replace("hard", old)
    os.link(at("hard"), other)
    with Watcher("/hard") as w:
        def through_other(data):
            with open(other, "r+b") as f:
                f.write(data)
        w.change(old, lambda: through_other(new), new)
        w.change(new, lambda: os.chmod(other, 0), 403)
        w.change(403, lambda: os.chmod(other, 0o644), new)
    os.unlink(other)
    with Watcher("/hard") as w:     # linked when it is cached already
        w.cached(new)
        os.link(at("hard"), other)
        w.change(new, lambda: through_other(old), old)


def t_index_comes_and_goes():
    old, new = version(), version()
    os.makedirs(at("n"))
    with Watcher("/n/") as w:
        w.change(403, lambda: replace("n/index.html", old), old)
        w.change(old, lambda: replace("n/index.html", new), new)
        w.change(new, lambda: os.unlink(at("n/index.html")), 403)
        w.change(403, lambda: replace("n/index.html", old), old)
        w.change(old, lambda: shutil.rmtree(at("n")), 404)


def t_same_time_and_size():
    old = version()
    replace("o", old)
    os.utime(at("o"), ns=(10**18, 10**18))
    with Watcher("/o") as w:
        for _ in range(3):
            new = version()

            def in_place(new=new):
                with open(at("o"), "r+b") as f:
                    f.write(new)
                os.utime(at("o"), ns=(10**18, 10**18))
            w.change(old, in_place, new)
            old = version()

            def by_rename(old=old):
                with open(at("o~"), "wb") as f:
                    f.write(old)
                os.chmod(at("o~"), 0o644)
                os.utime(at("o~"), ns=(10**18, 10**18))
                os.rename(at("o~"), at("o"))
            w.change(new, by_rename, old)


def next_tick():
    """A file that changes now has as much of a tick as there is until its time is another."""
    now = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) == now:
        pass


def t_two_writes_within_a_tick():
    """As long as each other, so that nothing tells them apart; and no inotify for a link."""
    if no_mounts:
        raise ktap.Skip(no_mounts)
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
            assert all(seen), "never twice within a tick"
            w.cached(two)
    finally:
        subprocess.run(["umount", "-l", at("tick")], check=False)


def t_written_through_a_mapping():
    old, new = version(), version()
    replace("p", old)
    with Watcher("/p") as w:
        def mapped():
            with open(at("p"), "r+b") as f, mmap.mmap(f.fileno(), len(new)) as m:
                m[:] = new
        w.change(old, mapped, new)


def t_written_by_the_kernel():
    """Copies that never pass through the writer's memory."""
    old = version()
    replace("q", old)
    with Watcher("/q") as w:
        for how in ("copy_file_range", "sendfile"):
            new = version()
            replace("q.from", new)

            def copy(new=new, how=how):
                with open(at("q.from"), "rb") as a, open(at("q"), "r+b") as b:
                    if how == "sendfile":
                        n = os.sendfile(b.fileno(), a.fileno(), 0, len(new))
                    else:
                        n = os.copy_file_range(a.fileno(), b.fileno(), len(new))
                    assert n == len(new)
            w.change(old, copy, new)
            old = new


def t_file_and_folder_change_places():
    old = version()
    replace("r", old)
    with Watcher("/r") as w:
        def folder():
            os.unlink(at("r"))
            os.mkdir(at("r"))

        def file():
            os.rmdir(at("r"))
            replace("r", old)
        w.change(old, folder, 301)
        w.change(301, file, old)


def t_exchange_of_two_files():
    """renameat2(RENAME_EXCHANGE): both names in one step."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    a, b = version(), version()
    replace("s1", a)
    replace("s2", b)
    with Watcher("/s1") as w1, Watcher("/s2") as w2:
        for _ in range(2):
            w1.cached(a)
            w2.cached(b)
            r = libc.renameat2(-100, at("s1").encode(), -100, at("s2").encode(), 2)
            done = time.monotonic()
            if r:
                raise ktap.Skip(f"no RENAME_EXCHANGE here: errno {ctypes.get_errno()}")
            w1.fresh(b, done)
            w2.fresh(a, done)
            a, b = b, a


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

    def allowed(self, got, asked, answered):
        """got: status or body, of a request between these two times."""
        with self.lock:
            states = [list(x) for x in self.states]
        for i, (want, begun, done, atomic) in enumerate(states):
            over = states[i + 1][2] if i + 1 < len(states) else None
            if begun > answered or over is not None and over + PROMISE_S < asked:
                continue
            if got == want or not atomic and (done is None or asked < done + PROMISE_S):
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
        self.wrong, self.tiers = [], {}

    def run(self):
        try:
            with client.Client(self.d.address) as c:
                while not self.stop.is_set() and len(self.wrong) < 5:
                    self.one(c)
        except Exception as why:        # said by the main thread
            self.wrong.append(repr(why))

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
            self.wrong.append(f"{kind}: {f.name}: {r!r}; states {now}")


def t_thousand_changes_under_load():
    rng, files, stop = random.Random(7), [], threading.Event()
    for i in range(100):
        f, first = File(f"many/{i % 7}/{i}"), version()
        files.append(f)
        f.become(first, lambda f=f, first=first: replace(f.name, first), True)
    readers = [Reader(d, files, i, stop) for i in range(2) for d in daemons()]
    for r in readers:
        r.start()
    try:
        for _ in range(1000):
            change_one(rng, rng.choice(files))
            time.sleep(rng.random() * 0.02)     # the rate of the load, no wait
            if any(r.wrong for r in readers):
                break
    finally:
        stop.set()
        for r in readers:
            r.join(client.WAIT_S)
    ktap.note("answers " + ", ".join(str(r.tiers) for r in readers))
    wrong = [x for r in readers for x in r.wrong]
    for line in wrong[:10]:
        ktap.note(line)
    assert not wrong, f"{len(wrong)} wrong answers"
    assert all(not r.is_alive() and sum(r.tiers.values()) > 100 for r in readers)
    for f in files:                             # and in the end all is right
        with Watcher("/" + f.name) as w:
            w.fresh(f.states[-1][0], f.states[-1][2])


def t_stalest_answer_of_all():
    ktap.note(f"{worst_s * 1000:.1f} ms, {PROMISE_S * 1000:.0f} are promised")
    assert worst_s <= PROMISE_S


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
