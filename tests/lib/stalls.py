# SPDX-License-Identifier: GPL-2.0
"""How long threads waited for a CPU: on a busy machine, a promise is late by this time.

The kernel counts it as a wait ends (sched-stats.rst). A wait that begins within some
time may end, and be counted, behind it: lost_s() looks that far.
"""
from __future__ import annotations

import bisect
import contextlib
import os
import threading
import time
from typing import Iterable, Iterator

PERIOD_S = 0.01
PENDING_S = 10          # the longest wait that is looked for behind the end of a time


def waited_s(pids: Iterable[int]) -> float:
    """Waits of all threads of these processes, since they began."""
    ret = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            # the thread has ended, or this kernel does not count
            with contextlib.suppress(OSError, IndexError), \
                    open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                ret += int(f.read().split()[1])
    return ret / 1e9


class Waits:
    """A record of these processes' waits, for as long as it is sampled."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = list(pids)
        self.times, self.lost = [time.monotonic()], [0.0]   # lost: since the sample before
        self.total = waited_s(self.pids)

    def sample(self) -> None:
        total, now = waited_s(self.pids), time.monotonic()
        # nothing ran here either: if the machine is emulated, the host may be the cause
        gap = now - self.times[-1] - 2 * PERIOD_S
        self.times.append(now)
        self.lost.append(max(total - self.total, gap, 0))
        self.total = total

    def lost_s(self, begin_s: float, end_s: float) -> float:
        """The part of that time during which some of the threads may have waited."""
        ret = 0
        for at in range(bisect.bisect_right(self.times, begin_s), len(self.times)):
            if self.times[at] > end_s + PENDING_S:
                break
            if self.times[at] - self.lost[at] <= end_s:
                ret += self.lost[at]
        return ret


@contextlib.contextmanager
def recorded(pids: Iterable[int]) -> Iterator[Waits]:
    """Take samples during the block."""
    waits, stop = Waits(pids), threading.Event()

    def run() -> None:
        while not stop.wait(PERIOD_S):
            waits.sample()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield waits
    finally:
        stop.set()
        thread.join()
        waits.sample()
