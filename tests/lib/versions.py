# SPDX-License-Identifier: GPL-2.0
"""Files that change, and the time until two daemons serve the new version.

    ktap.run(globals(), setup=versions.begin, teardown=versions.end)

    versions.replace("a", old)              # below the root of both
    with versions.Watcher("/a") as w:
        w.change(old, lambda: versions.put("a", new), new)

The promise is PROMISE_S after the change has completed, and later by what the daemons
then wait for a CPU. A version of a file is its number, repeated as a line of nine bytes, so
that each body shows its version, and whether it is only one version. One of the daemons has
wire on lo, if possible.
"""
from __future__ import annotations

import os
import time
from typing import Any, Callable

import client
import daemon
import net
import stalls

# An emulated machine has a tenth of the speed, and all of it is ours to share.
PROMISE_S = 0.1 * client.SLOW
ANSWERS = 3             # fresh ones, after the promise is due
LINES = 60              # of a body: 540 bytes, one packet

user: Any = None
wire: Any = None
no_mounts = ""          # why nothing can be mounted
number = 0
worst_s = 0.0           # age of the stalest answer so far, less what daemons waited


def begin() -> None:
    global user, wire, no_mounts
    no_mounts = net.own_mounts()        # the daemons have to see what is mounted
    user = daemon.Daemon("--wire", "off")
    user.start()
    wire, _ = client.wire_beside(user)


def end() -> None:
    for d in (wire, user):
        if d:
            d.stop()


def daemons() -> list[daemon.Daemon]:
    return [d for d in (user, wire) if d]


def pids() -> list[int]:
    return [d.pid for d in daemons()]


def version(lines: int | None = None) -> bytes:
    """The bytes of a new version."""
    global number
    number += 1
    return b"%08d\n" % number * (lines or LINES)


def whole(body: bytes) -> bool:
    """Whether it is exactly one version."""
    return not body or len(body) % 9 == 0 and body == body[:9] * (len(body) // 9)


def at(name: str) -> str:
    return os.path.join(user.root, name)


def put(name: str, data: bytes) -> None:
    """In place: the same inode."""
    with open(at(name), "r+b") as f:
        f.write(data)
        f.truncate()


def replace(name: str, data: bytes, mode: int = 0o644) -> None:
    user.write(name, data, mode)


def promised() -> None:
    """Sleep until daemons must have noticed a change, had they got a CPU when they wanted."""
    waited = stalls.waited_s(pids())
    time.sleep(PROMISE_S)
    time.sleep(max(0, stalls.waited_s(pids()) - waited))


class Watcher:
    """One connection to each daemon, and one path on them."""

    def __init__(self, path: str) -> None:
        self.path, self.clients = path, [client.Client(d.address) for d in daemons()]

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *why: object) -> None:
        for c in self.clients:
            c.close()

    def cached(self, want: bytes) -> None:
        """Wait until each daemon answers with want from its cache."""
        for c, tier in zip(self.clients, ("user", "wire")):
            deadline = time.monotonic() + client.WAIT_S
            while not (daemon.is_tier((r := c.get(self.path)).tier, tier) and r.body == want):
                assert time.monotonic() < deadline, f"{self.path}: not cached: {r!r}"

    def fresh(self, want: bytes | int, done: float) -> None:
        """done: the time at which the change was complete. want: a body, or a status."""
        waited = stalls.waited_s(pids())
        for c in self.clients:
            stalest_s, last = self.answers(c, want, done)
            lost_s = stalls.waited_s(pids()) - waited if stalest_s > PROMISE_S else 0
            assert stalest_s <= PROMISE_S + lost_s, \
                f"{self.path}: {stalest_s:.3f} s after the change, of which the daemons waited " \
                f"{lost_s:.3f} s: {last!r}"
            note_age(stalest_s - lost_s)

    def answers(self, c: client.Client, want: bytes | int,
                done: float) -> tuple[float, client.Response | None]:
        """Send requests until the answer stays right; the last wrong answer, and its age."""
        right, first, stalest_s, last = 0, None, 0.0, None
        while right < ANSWERS:
            asked = time.monotonic()
            r = c.get(self.path)
            if r.status == want or r.status == 200 and r.body == want:
                first = first or asked
                right += asked > done + PROMISE_S or r.tier in daemon.HITS
                continue
            assert asked < done + client.WAIT_S, f"{self.path}: old for good: {r!r}"
            assert first is None or not isinstance(want, bytes) or not r.status == 200 or \
                r.tier not in daemon.HITS, f"{self.path}: old after new: {r!r}"
            right, stalest_s, last = 0, asked - done, r
        return stalest_s, last

    def change(self, old: bytes | int, fn: Callable[[], Any], want: bytes | int) -> None:
        """Change from old (cached, or a status) to want by fn()."""
        if isinstance(old, bytes):
            self.cached(old)
        else:
            for c in self.clients:
                assert (r := c.get(self.path)).status == old, r
        fn()
        self.fresh(want, time.monotonic())


def note_age(age_s: float) -> None:
    global worst_s
    worst_s = max(worst_s, age_s)
