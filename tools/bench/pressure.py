# SPDX-License-Identifier: GPL-2.0
"""Experiments with a server under pressure: slow clients that fill its memory, held processes."""
from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable

import lab as laboratory
import loads
import fileset as files
from option_types import whole, wholes
from engine import Check
from loads import Ours
from messages import Problem
from meters import disk_read_bytes
from servers import Toboggan
from fileset import SMALL
from contents import emptied
from experiment import (Experiment, LATENCIES, MEDIAN, Point, TAIL, each_tier, list_file,
                        one_file, whose_time)

if TYPE_CHECKING:
    from engine import Run, Sample
    from fileset import Files
    from loads import Load
    from servers import Server


START_BYTES = 256 << 20         # beyond the limit of `overload`, until a server has started


# ------------------------------------------------------------------ overload

class Overload(Experiment):
    name, title = "overload", "a small page, timed beside slow clients and with little memory"
    about = ("N users on lines of 50 kbit/s fetch files of 10 KB to 60 MB, each from a "
             "random byte on, from a server whose memory a cgroup limits, page cache included, to "
             "a "
             "quarter of these files, all of which it has sent before. Meanwhile a small page is "
             "requested on a separate connection. The worst time matters.")
    x_label, x_log = "slow clients", False
    lab_only = "a remote server's memory cannot be limited from here"
    figures = (("max_us", "longest time of the small page", "µs", "low"), TAIL, MEDIAN,
               ("slow_bps", "what the slow clients got", "bit/s", "high"),
               ("memory_bytes", "most memory of the server", "B", "low"),
               ("memory_full", "its memory was full", "times", "low"),
               ("disk_reads", "what the disk read for it", "B/s", "low"))
    # (bytes of a file, share of the requests, share of all files' bytes)
    CLASSES = ((10 << 10, 0.20, 0.002), (1 << 20, 0.40, 0.198), (10 << 20, 0.25, 0.35),
               (60 << 20, 0.15, 0.45))
    TIMES = 4                   # the limit, in bytes of files
    withheld = (*LATENCIES, "slow_bps")
    SLOW_BPS, PROBE_RATE = 50000, 20.0

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--slow", type=wholes(), metavar="N,…",
                        help="slow clients (1,50,242,500; quick 1,50)")
        ap.add_argument("--limit", type=whole(64), default=128, metavar="MIB",
                        help="memory of the server, page cache included (128; at least 64); "
                        "four times that are made as files")

    def make_points(self, opts: argparse.Namespace) -> list:
        self.limit = opts.limit << 20
        nrs = opts.slow or ((1, 50) if opts.quick else (1, 50, 242, 500))
        self.files = self.file_set()
        return [Point(nr) for nr in nrs]

    def file_set(self) -> Files:
        rows = []
        for size, requests, share in self.CLASSES:
            nr = max(1, math.ceil(self.TIMES * self.limit * share / size))
            rows += [(requests / nr, f"/slow/{size}/{i}.bin", size) for i in range(nr)]
        return files.Files(rows)

    def server_key(self, point: Point) -> float:
        return point.x

    def server_options(self, run: Run, point: Point) -> dict:
        # while it starts, the kernel needs more, to verify its programs
        return {"cgroup": run.lab.limit_memory(self.limit + START_BYTES), "memory": "16M"}

    def sites(self, run: Run) -> None:
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))
        subprocess.run(["sync", "-f", run.lab.dir], check=False)

    def load(self, run: Run, point: Point, server: Server) -> Load:
        load = Ours(1, calls=1, rate=self.PROBE_RATE, list=one_file(run, SMALL, 1024), timeout=60)
        load.slow = Ours(point.x, line=self.SLOW_BPS,
                         list=list_file(run, "slow", lambda: self.files),
                         timeout=3600, offsets=True, expect=206)
        return load

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)

    def before(self, run: Run, point: Point, server: Server) -> None:
        """Make the server read all files: pages belong to the group that touches them first."""
        root = os.path.join(run.lab.dir, "site")
        try:
            laboratory.limit_memory(server.cgroup, self.limit)
        except OSError as why:
            raise Problem(f"the memory of {server.name} cannot be limited to "
                          f"{self.limit >> 20} MiB: {why.strerror}") from why
        left = emptied([root + path for _, path, _ in self.files.rows])
        if left > 0.02:
            self.note(f"{left:.0%} of the files' pages stayed in the page cache, charged to others")
        walk = Ours(8, list=list_file(run, "slow", lambda: self.files), once=True, timeout=60)
        got, _ = loads.run(run.lab, walk, server, 600)
        if got["requests"] < len(self.files.rows):
            raise Problem(f"only {got['requests']} of {len(self.files.rows)} files were sent "
                          f"before the load: {got['kinds']}")
        laboratory.memory_begin(server.cgroup)
        self.full_before = laboratory.memory_used(server.cgroup)[1]
        self.read_before = disk_read_bytes(server.pids()), time.monotonic()

    def tolerate(self, fault: str, got: dict) -> str | None:
        """No page at all is the worst case, and is in the times."""
        return fault if got["requests"] or got["errors"] or got["statuses"] else None

    def memory(self, point: Point, server: Server, sample: Sample) -> None:
        """The memory that it used; adds a note if that was not scarce."""
        most, full = laboratory.memory_used(server.cgroup)
        sample.update(memory_bytes=most, memory_full=full - self.full_before)
        if not sample["memory_full"] and most < 0.9 * self.limit:
            self.note(f"{server.name} with {point.label} slow clients had {most >> 20} of "
                      f"{self.limit >> 20} MiB at most: its memory was never full")

    def disk(self, server: Server, sample: Sample) -> None:
        """Bytes that the disk has read for it since the load began."""
        (before, since), now = self.read_before, disk_read_bytes(server.pids())
        sample["disk_reads"] = None if None in (before, now) else \
            (now - before) / (time.monotonic() - since)

    def run_load(self, run: Run, load: Any, server: Server, seconds: float,
                 begin: Callable[[], None] | None) -> tuple:
        """Start the slow clients first; they end with the probe, with unfinished transfers."""
        procs, argvs = loads.started(run.lab, load.slow, server, seconds + 600)
        try:
            self.wait_for_slow(run, server, load.slow.descriptors)
            got, more = loads.run(run.lab, load, server, seconds, begin=begin)
            for proc in procs:
                proc.terminate()
            slow = loads.finished(run.lab, load.slow, procs, 30)
        finally:
            for proc in procs:
                run.lab.end(proc)
        got["slow"] = slow
        return got, argvs + more

    @staticmethod
    def wait_for_slow(run: Run, server: Server, nr: int) -> None:
        deadline = time.monotonic() + 60
        while True:
            out = subprocess.run(run.lab.client_argv(["ss", "-Htn", "state", "established", "dst",
                                                      server.addr]), text=True, check=False,
                                 stdout=subprocess.PIPE).stdout
            if len(out.splitlines()) >= nr:
                return
            if time.monotonic() > deadline:
                raise Problem(f"only {len(out.splitlines())} of {nr} slow clients are connected "
                              "after 60 s")
            time.sleep(0.1)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        slow = got["slow"]
        self.memory(point, server, sample)
        self.disk(server, sample)
        sample["slow_bps"] = 8 * slow["bytes"] / slow["seconds"] if slow["seconds"] else None
        sample["slow_errors"] = slow["kinds"]
        if slow["errors"] or slow["statuses"]:
            raise Problem(f"slow clients: {slow['errors']} errors {slow['kinds']} and "
                          f"{slow['statuses']} wrong statuses")

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        return whose_time(sample, self.PROBE_RATE)

    def line(self, sample: Sample) -> str:
        return (f"p50 {sample['p50_us'] / 1000:,.1f} ms, p99 {sample['p99_us'] / 1000:,.1f} ms, "
                f"worst {sample['max_us'] / 1000:,.1f} ms")


# ------------------------------------------------------------------ held

class Held(Experiment):
    name, title = "held", "a cached page, timed while all of the server's processes are held"
    about = ("All processes of the server are stopped for N milliseconds out of 100 or "
             "twice that time, as long work in every worker would hold them; meanwhile a cached "
             "1 KiB page is requested 200 times a second. The answer of a kernel tier must not "
             "wait: its p99 stays, while that of a server in user space follows.")
    x_label, x_log = "held for (ms)", False
    lab_only = "a remote server's processes cannot be held from here"
    figures = (TAIL, MEDIAN, ("max_us", "longest time of a reply", "µs", "low"))
    CYCLE_S, RATE = 0.1, 200

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--hold", type=wholes(0), metavar="MS,…", help="(0,5,20,50; quick 0,50)")

    def make_points(self, opts: argparse.Namespace) -> list:
        return [Point(ms) for ms in opts.hold or ((0, 50) if opts.quick else (0, 5, 20, 50))]

    def names(self, opts: argparse.Namespace) -> list:
        return each_tier(opts)

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Ours(8, rate=float(self.RATE), calls=1000000, list=one_file(run, SMALL, 1024))

    def check(self, run: Run, point: Point, server: Server) -> Check | None:
        want = f"detail={server.tier}" if isinstance(server, Toboggan) else ""
        return Check(SMALL, crc=files.crc(SMALL, 1024), want=want)

    def run_load(self, run: Run, load: Load, server: Server, seconds: float,
                 begin: Callable[[], None] | None) -> tuple:
        over = threading.Event()
        holder = threading.Thread(target=self.hold, args=(server.pids(), over))
        if self.held_s:
            holder.start()
        try:
            return super().run_load(run, load, server, seconds, begin)
        finally:
            over.set()
            if holder.ident:
                holder.join()

    def before(self, run: Run, point: Point, server: Server) -> None:
        self.held_s = point.x / 1000

    def hold(self, pids: Iterable[int], over: Any) -> None:
        """Stop and continue the processes until the end; none stays stopped."""
        while not over.wait(max(self.CYCLE_S - self.held_s, self.held_s)):
            try:
                signal_all(pids, signal.SIGSTOP)
                time.sleep(self.held_s)
            finally:
                signal_all(pids, signal.SIGCONT)

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        return whose_time(sample, self.RATE)

    def line(self, sample: Sample) -> str:
        return (f"p50 {sample['p50_us'] / 1000:,.2f} ms, p99 {sample['p99_us'] / 1000:,.2f} ms, "
                f"worst {sample['max_us'] / 1000:,.2f} ms")


def signal_all(pids: Iterable[int], number_: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number_)
