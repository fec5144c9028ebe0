#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ten thousand files change at random under load, and no answer is wrong.

Every answer must be wholly one version of what its path led to, and that version
must have been there at some instant from 100 ms before the request was sent to
the moment its answer had come. A version is the number of its path and its own,
one line again and again. One process changes and notes when each system call
began and had ended; others ask daemons of all tiers on the same root and note
what they got; what they noted is judged when all is over. How long the daemons waited for a CPU is
recorded (tests/lib/stalls.py), and the promise is that much longer then.

What one write() puts into a file is one version: no answer shows half of it.

TBG_CHURN_FILES and TBG_CHURN_S: how many files, and how long (10000, 12 s).
"""
import os
import pickle
import random
import re
import subprocess
import sys
import time
import traceback
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import stalls
import talk

FILES = int(os.environ.get("TBG_CHURN_FILES", "2000" if client.IN_VM else "10000"))
SECONDS = float(os.environ.get("TBG_CHURN_S", "12"))
PROMISE_S = 1.0 if client.IN_VM else 0.1
LEAST = 5 if client.IN_VM else 100      # answers of each tier
PER_FOLDER = 50
HOT = 100               # files that most requests and changes are about,
HOT_S = 1               # for so long
PAUSE_S = 0.0005        # between changes
REST_S = 0.02           # no file changes twice within the coarsest clock's tick
LINE = 16
SMALL = (1, 10, 60, 60, 60, 500, 3500)          # lines: 16 bytes to 56 KB
LARGE = 8000            # 125 KiB: never stored

user = None
daemons = {}            # name of the fastest tier: daemon
number = 0


def begin():
    global user
    user = daemon.Daemon("--wire", "off").start()
    daemons["user"] = user
    wire, _ = client.wire_beside(user)
    if wire:
        daemons["wire"] = wire
    if not os.geteuid():
        sock = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted", "--wire", "off",
                             root=user.root).start()
        tier = talk.ask(sock, "status")["tiers"]["sock"]
        if tier["on"]:
            daemons["sock"] = sock
        else:
            ktap.note(daemon.why_off("sock", tier["why"]))
            sock.stop()
    for name in ("beside", "away"):
        os.mkdir(os.path.join(user.folder, name))


def end():
    for d in reversed(daemons.values()):
        d.stop()


def beside(name):
    """A folder on the same file system that is not served."""
    return os.path.join(user.folder, "beside", name)


class Model:
    """What a path leads to. A folder that goes takes the models with it."""
    def __init__(self, want, kind):
        self.want = want                # (version, lines), or a status
        self.kind = kind                # file, link, hard, none, folder
        self.other = ""                 # a second name, or what is pointed to


class Path:
    """One path, and what it has been: (want, begun, done, torn allowed)."""
    def __init__(self, nr):
        self.nr = nr
        self.name = f"d{nr // PER_FOLDER}/{nr}." + ("txt" if nr % 3 else "bin")
        self.at = os.path.join(user.root, self.name)
        self.model = Model(404, "none")
        self.states, self.changed = [(404, 0, 0, False)], 0

    def do(self, want, how, torn=False):
        """One system call that makes it lead to want."""
        begun = time.monotonic()
        how()
        self.become(want, begun, time.monotonic(), torn)

    def become(self, want, begun, done, torn=False):
        self.states.append((want, begun, done, torn))
        self.model.want, self.changed = want, done


def text(nr, version, lines):
    return b"%06d %08d\n" % (nr, version) * lines


def fresh(path, rng, lines=None):
    """(want, bytes) of a new version."""
    global number
    number += 1
    lines = lines or (LARGE if path.nr % 100 == 99 else rng.choice(SMALL))
    return (number, lines), text(path.nr, number, lines)


def put(name, data):
    with open(name, "wb") as f:
        f.write(data)
    os.chmod(name, 0o644)


def unlink(path):
    path.do(404, lambda: os.unlink(path.at))
    if path.model.other:
        os.unlink(path.model.other)
    path.model.kind, path.model.other = "none", ""


def replace(path, rng):
    """By rename: of nothing, of a link, of a file that was not to be read."""
    want, data = fresh(path, rng)
    put(beside("new"), data)
    path.do(want, lambda: os.rename(beside("new"), path.at))
    if path.model.other:
        os.unlink(path.model.other)
    path.model.kind, path.model.other = "file", ""


def link(path, rng):
    """A symbolic link to another file each time; also to one with another name's kind."""
    want, data = fresh(path, rng)
    target = os.path.join(user.root, "targets", f"{want[0]}")
    put(target, data)
    old = path.model.other
    os.symlink(f"../targets/{want[0]}", beside("link"))
    path.do(want, lambda: os.rename(beside("link"), path.at))
    if old:
        os.unlink(old)
    path.model.kind, path.model.other = "link", target


def hard(path, rng):
    """A second name, which is out of the root."""
    if path.model.kind != "file" or not isinstance(path.model.want, tuple):
        replace(path, rng)
    if path.model.kind == "file":
        path.model.other = beside(f"hard{path.nr}")
        os.link(path.at, path.model.other)
        path.model.kind = "hard"


def file_of(path):
    """A name to write it by: of a hard link the other one."""
    return path.model.other if path.model.kind in ("link", "hard") else path.at


def pwrite(path, rng):
    """In place: as long as before, by one system call."""
    want, data = fresh(path, rng, path.model.want[1])
    fd = os.open(file_of(path), os.O_WRONLY)
    path.do(want, lambda: os.pwrite(fd, data, 0), want[1] >= LARGE)
    os.close(fd)


def rewrite(path, rng):
    """Like an editor or a shell: truncate, then write."""
    want, data = fresh(path, rng)
    fds = []
    path.do((want[0], 0), lambda: fds.append(os.open(file_of(path), os.O_WRONLY | os.O_TRUNC)),
            path.model.want[1] >= LARGE)
    path.do(want, lambda: os.write(fds[0], data), want[1] >= LARGE)
    os.close(fds[0])


def truncate(path, rng):
    version, lines = path.model.want
    left = rng.randrange(lines + 1) if lines else 0
    path.do((version, left), lambda: os.truncate(file_of(path), left * LINE), lines >= LARGE)


def append(path, rng):
    version, lines = path.model.want
    more = rng.choice(SMALL)
    if lines + more > 4000 and lines < LARGE:
        return
    fd = os.open(file_of(path), os.O_WRONLY | os.O_APPEND)
    path.do((version, lines + more), lambda: os.write(fd, text(path.nr, version, more)))
    os.close(fd)


def forbid(path, rng):
    """and allow it again, some time"""
    want = path.model.want
    path.do(403, lambda: os.chmod(file_of(path), 0))
    path.model.kind = ("allow", path.model.kind, want)


def allow(path, rng):
    _, kind, want = path.model.kind
    path.model.kind = kind
    path.do(want, lambda: os.chmod(file_of(path), 0o644))


def folder(path, rng):
    """In place of a file; and a file in place of the folder."""
    unlink(path)
    path.do(301, lambda: os.mkdir(path.at))
    path.model.kind = "folder"


def create(path, rng):
    """Made where it is to be: empty at first."""
    want, data = fresh(path, rng)
    fds = []
    path.do((want[0], 0), lambda: fds.append(os.open(path.at, os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                                                      0o644)))
    path.do(want, lambda: os.write(fds[0], data), want[1] >= LARGE)
    os.close(fds[0])
    path.model.kind = "file"


def longer(path, rng):
    """Like cp: truncate, then write more than before."""
    want, data = fresh(path, rng, path.model.want[1] + LARGE)
    put(path.at, data)
    path.become(want, 0, 0)


WAYS = ((replace, 6), (pwrite, 6), (rewrite, 4), (truncate, 2), (append, 3), (unlink, 2),
        (forbid, 2), (link, 3), (hard, 1), (folder, 1))
PICK = [fn for fn, weight in WAYS for _ in range(weight)]


def change_one(path, rng):
    """A random change of a path, from whatever it is now; what it was."""
    kind = path.model.kind
    if isinstance(kind, tuple):
        how = allow
    elif kind == "none":
        how = rng.choice((create, replace, link))
    elif kind == "folder":
        path.do(404, lambda: os.rmdir(path.at))
        path.model.kind, how = "none", create
    else:
        how = rng.choice(PICK)
    if how is unlink:
        how(path)
    else:
        how(path, rng)
    return how.__name__


class Folder:
    """Folders that move as a whole, with all paths in them."""
    def __init__(self, nr, paths):
        self.at, self.paths = os.path.join(user.root, f"d{nr}"), paths
        self.away = os.path.join(user.folder, "away", f"d{nr}")
        self.gone = self.forbidden = False

    def all_become(self, wants, how):
        begun = time.monotonic()
        how()
        done = time.monotonic()
        for p, want in zip(self.paths, wants):
            p.states.append((want, begun, done, False))
            p.changed = done

    def wants(self):
        return [p.model.want for p in self.paths]

    def change(self, rng):
        if self.gone:
            os.chmod(self.away, 0o755)
            self.all_become(self.wants(), lambda: os.rename(self.away, self.at))
            self.gone = False
        elif self.forbidden:
            self.all_become(self.wants(), lambda: os.chmod(self.at, 0o755))
            self.forbidden = False
        elif rng.randrange(2):
            self.all_become([404] * len(self.paths), lambda: os.rename(self.at, self.away))
            self.gone = True
        else:
            self.all_become([403] * len(self.paths), lambda: os.chmod(self.at, 0))
            self.forbidden = True
        return "folder " + ("gone" if self.gone else "forbidden" if self.forbidden else "back")


def hot(t, nr):
    """First of the paths that most is about at a time; the same for everybody."""
    return int(t / HOT_S) * HOT % nr


def pick(rng, nr):
    if rng.randrange(10):
        return (hot(time.monotonic(), nr) + min(rng.randrange(HOT), rng.randrange(HOT))) % nr
    return rng.randrange(nr)


class Asker:
    """The requests of one process to one daemon, and the answers."""
    def __init__(self, address, names, seed):
        self.address, self.names, self.rng = address, names, random.Random(seed)
        self.got = []           # (path, asked, answered, tier, what)
        self.tags = {}          # path: (tag, what)
        self.versions = re.compile(rb"(\d{6}) (\d{8})\n")

    def what(self, nr, body):
        """(version, lines) of a body, or why it is none."""
        lines, rest = divmod(len(body), LINE)
        if not body:
            return (0, 0)
        m = self.versions.match(body)
        if rest or not m or int(m[1]) != nr or body != body[:LINE] * lines:
            seen = sorted(set(self.versions.findall(body)))
            return f"a mixture of {seen[:4]}, {len(body)} bytes"
        return (int(m[2]), lines)

    def one(self, c):
        nr = pick(self.rng, len(self.names))
        fields, tag = [], self.tags.get(nr)
        if self.rng.randrange(2):
            fields.append("Accept-Encoding: gzip")
        if tag and self.rng.randrange(2):
            fields.append(f"If-None-Match: {tag[0]}")
        asked = time.monotonic()
        r = c.get("/" + self.names[nr], *fields)
        answered = time.monotonic()
        if r.status == 304:
            what = tag[1]
        elif r.status != 200:
            what = r.status
        else:
            body = r.body
            if "Content-Encoding" in r.fields:
                body = zlib.decompress(body, 31)
            what = self.what(nr, body)
            self.tags[nr] = r.fields["ETag"], what
        self.got.append((nr, asked, answered, r.tier, what))

    def run(self, until):
        while time.monotonic() < until:
            try:
                with client.Client(self.address) as c:
                    for _ in range(200):
                        self.one(c)
            except (EOFError, ConnectionResetError):
                self.got.append((0, 0, 0, "broken", 0))     # a file that shrank
        return self.got


class Canary:
    """How long the threads of these daemons waited for a CPU, and when."""
    def __init__(self, those):
        self.waits = stalls.Waits(d.pid for d in those.values())

    def run(self, until):
        while time.monotonic() < until:
            time.sleep(stalls.PERIOD_S)
            self.waits.sample()
        return self.waits


class Child:
    """worker.run(until) in a process of its own; what it returns."""
    def __init__(self, worker, until):
        self.r, w = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                os.close(self.r)
                with os.fdopen(w, "wb") as f:
                    pickle.dump(worker.run(until), f)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(w)

    def result(self):
        with os.fdopen(self.r, "rb") as f:
            data = f.read()
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, f"a process ended with {status:#x}"
        return pickle.loads(data)


def same(got, want):
    """An empty file is of no version."""
    return got == want or isinstance(want, tuple) and not want[1] and got == (0, 0)


def wrong(path, waits, asked, answered, got):
    """Age of the answer beyond the promise, or None: it is right."""
    ages = []
    for i, (want, begun, _, torn) in enumerate(path.states):
        if begun > answered:
            break
        over = path.states[i + 1][2] if i + 1 < len(path.states) else None
        if torn and isinstance(got, str) and (not over or over + PROMISE_S >= asked):
            return None
        if not same(got, want):
            continue
        if not over or over >= asked:
            return None
        ages.append(asked - over - waits.lost_s(over, asked))
    if ages and min(ages) <= PROMISE_S:
        return None
    return min(ages) if ages else float("inf")


def judge(paths, name, got, waits):
    """Faults of what one process was told, as text."""
    faults, tiers = [], {}
    for nr, asked, answered, tier, what in got:
        tiers[tier] = tiers.get(tier, 0) + 1
        if tier == "broken":
            continue
        age = wrong(paths[nr], waits, asked, answered, what)
        if age is None:
            continue
        states = [(w, round(b - asked, 4), round(d - asked, 4))
                  for w, b, d, _ in paths[nr].states if b - asked > -3 and b <= answered]
        faults.append(f"{name}: /{paths[nr].name} from {tier}: {what}, {age:.3f} s old; "
                      f"within {answered - asked:.4f} s; {states}")
    ktap.note(f"{name}: {tiers}")
    return faults, tiers


def sweep(paths):
    """In the end all is right, everywhere: no news was lost."""
    time.sleep(PROMISE_S)
    for name, d in daemons.items():
        asker = Asker(d.address, [p.name for p in paths], 0)
        with client.Client(d.address) as c:
            for p in paths:
                r = c.get("/" + p.name)
                what = asker.what(p.nr, r.body) if r.status == 200 else r.status
                assert same(what, p.states[-1][0]), \
                    f"{name}: /{p.name}: {what} for good, {p.states[-3:]}"


def populate(rng):
    paths = [Path(i) for i in range(FILES)]
    folders = []
    os.mkdir(os.path.join(user.root, "targets"))
    for i in range(0, FILES, PER_FOLDER):
        folders.append(Folder(i // PER_FOLDER, paths[i:i + PER_FOLDER]))
        os.mkdir(folders[-1].at)
    for p in paths:
        replace(p, rng)
    return paths, folders


def churn(paths, folders, rng, until):
    counts = {}
    while (now := time.monotonic()) < until:
        if not rng.randrange(400):
            what = folders[pick(rng, FILES) // PER_FOLDER].change(rng)
        else:
            p = paths[pick(rng, FILES)]
            f = folders[p.nr // PER_FOLDER]
            if f.gone or f.forbidden:
                what = f.change(rng) if not rng.randrange(20) else "nothing"
            elif now - p.changed < REST_S:
                what = "nothing"
            else:
                what = change_one(p, rng)
        counts[what] = counts.get(what, 0) + 1
        time.sleep(PAUSE_S)             # the rate of the load, no wait
    for f in folders:
        if f.gone or f.forbidden:
            f.change(rng)
    return counts


def under_load(those, paths, seconds, change):
    """change(until) while those daemons are asked; the tiers that answered."""
    until = time.monotonic() + seconds
    names = [p.name for p in paths]
    children = {name: Child(Asker(d.address, names, name), until)
                for name, d in those.items()}
    canary = Child(Canary(those), until)
    counts = change(until)
    got = {name: c.result() for name, c in children.items()}
    waits = canary.result()
    ktap.note(f"{len(paths)} files, {seconds} s, {sum(counts.values())} changes: {counts}")
    ktap.note(f"the daemons waited {sum(waits.lost):.1f} s for a CPU, "
              f"{max(waits.lost) * 1000:.0f} ms at most at a time")
    faults, ret = [], {}
    for name, records in got.items():
        found, ret[name] = judge(paths, name, records, waits)
        faults += found
    for line in faults[:20]:
        ktap.note(line)
    assert not faults, f"{len(faults)} wrong answers"
    return ret


def t_ten_thousand_files_change_under_load():
    rng = random.Random(11)
    paths, folders = populate(rng)
    tiers = under_load(daemons, paths, SECONDS, lambda until: churn(paths, folders, rng, until))
    for name in tiers:
        assert tiers[name].get(name, 0) >= LEAST, f"{name} answered hardly anything: {tiers[name]}"
    sweep(paths)


class Few(Path):
    """One of a few files of 8 to 56 KB, which are written all the time."""
    def __init__(self, nr, under="few"):
        super().__init__(nr)
        self.name = f"{under}/{nr}.bin"
        self.at = os.path.join(user.root, self.name)


def rewrites(paths, rng, until):
    counts = {}
    while time.monotonic() < until:
        how = rng.choice((pwrite, pwrite, rewrite))
        how(rng.choice(paths), rng)
        counts[how.__name__] = counts.get(how.__name__, 0) + 1
        time.sleep(REST_S / len(paths))     # the rate of the load, no wait
    return counts


def t_what_one_write_puts_is_one_version():
    rng = random.Random(5)
    paths = [Few(i) for i in range(4)]
    os.mkdir(os.path.join(user.root, "few"))
    for p in paths:
        replace(p, rng)
    under_load(daemons, paths, min(SECONDS, 8), lambda until: rewrites(paths, rng, until))


def t_no_two_versions_in_one_large_body():
    """Written in place amid its transfer: it ends early. What is appended is no other version."""
    path = Few(200000, "large")
    os.mkdir(os.path.join(user.root, "large"))
    for d in daemons.values():
        for change, whole in ((pwrite, False), (longer, False), (append, True)):
            rng, lines = random.Random(1), 1 << 20
            want, data = fresh(path, rng, lines)
            put(path.at, data)
            path.become(want, 0, 0)
            path.model.kind = "file"
            with client.Client(d.address, rcvbuf=16384) as c:
                c.send(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path.name.encode())
                c.head()
                change(path, rng)
                got = len(c.got)
                try:
                    while got < lines * LINE and (more := len(c.s.recv(1 << 20))):
                        got += more
                except ConnectionResetError:
                    pass
                assert (got == lines * LINE) == whole, f"{change.__name__}: {got} bytes"


def overlay(folder):
    """A mounted overlay in the root, and the folder below it; or a Skip."""
    if os.geteuid():
        raise ktap.Skip("not root: nothing can be mounted")
    at = {x: os.path.join(user.folder, x) for x in ("lower", "upper", "work")}
    at["merged"] = os.path.join(user.root, folder)
    for name in at.values():
        os.mkdir(name)
        os.chmod(name, 0o755)
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                           f"lowerdir={at['lower']},upperdir={at['upper']},workdir={at['work']}",
                           at["merged"]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ktap.Skip(f"no overlay: {done.stderr.strip()}")
    return at["lower"], at["merged"]


def t_below_an_overlay():
    """inotify sees nothing of it: the stat interval bounds it, and why says so."""
    rng = random.Random(6)
    lower, merged = overlay("merged")
    try:
        paths = [Few(i, "merged") for i in range(20)]
        for p in paths:
            p.at = os.path.join(lower, os.path.basename(p.name))
            replace(p, rng)
        below = {name: daemon.Daemon("--tiers", "user" if name == "user" else "wire,user",
                                     "--wire", "off" if name == "user" else "lo",
                                     root=user.root).start()
                 for name in daemons if name != "sock"}
        try:
            tiers = under_load(below, paths, min(SECONDS, 8),
                               lambda until: rewrites(paths, rng, until))
            for name, d in below.items():
                assert tiers[name].get(name, 0) >= LEAST, tiers
                why = talk.ask(d, "why", "/" + paths[0].name)
                assert why["stat_ms"] <= 100 and "stat interval" in why["fresh"], why
        finally:
            for d in below.values():
                d.stop()
    finally:
        subprocess.run(["umount", "-l", merged], check=False)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
