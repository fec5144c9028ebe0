# SPDX-License-Identifier: GPL-2.0
"""The definition of an experiment: points, servers and figures, and common functions.

The classes are in modules by what they vary (experiments.py has the table);
engine.py takes the samples. Nothing here checks a sample.
"""
from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Callable

import bottleneck
import loads
import fileset as files
from engine import Check
from loads import Wrk
from messages import notify
from servers import KINDS, Existing, Toboggan
from fileset import SMALL

if TYPE_CHECKING:
    from engine import Run, Sample
    from lab import Lab
    from loads import Load
    from servers import Server

CPU = ("cpu_ns", "processor time of the server", "ns a request", "low")
RATE = ("throughput", "requests a second", "/s", "high")
BPS = ("throughput_bps", "throughput", "bit/s", "high")
MEDIAN = ("p50_us", "median time of a reply", "µs", "low")
TAIL = ("p99_us", "99th percentile of a reply", "µs", "low")
# With N requests always in flight their times are N over the rate: the same figure.
LATENCIES = ("mean_us", "p50_us", "p90_us", "p99_us", "max_us")
LINE_BPS, CONFORM_BPS = 400000, 320000


class Point:
    """x: its place on the axis; label: its name; more attributes."""

    def __init__(self, x: float, label: str | None = None, **what: Any) -> None:
        self.x, self.label = x, label if label is not None else number(x)
        self.__dict__.update(what)


def number(x: float) -> str:
    for size, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if x >= size and x % size == 0:
            return f"{x // size}{unit}"
    return f"{x:,}"


class Experiment:
    name = title = about = x_label = ""
    x_log, x_named = True, False        # x_named: a point is a name, not a number
    figures = (CPU, RATE, TAIL)
    withheld = LATENCIES        # refused together with the rate, besides those of seal()
    left_out = ()
    unable = ""                 # what the servers that names() leaves out cannot do
    lab_only = None             # why the experiment is impossible with a remote server
    repeats, sample_s = 5, 5    # seconds of each sample, by default
    keep_servers = False        # servers with different keys run at the same time
    tools = ("curl",)           # tools that it needs, besides our load.c
    known = True                # it requests files that `bench site` makes, not the user's files
    made_by = "bench site"

    def __init__(self, opts: argparse.Namespace) -> None:
        self.halves, self.notes = {}, []
        self.settings = {}      # its options; here those whose value needs an explanation
        self.points = list(self.make_points(opts))

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        """Options of its own."""

    def make_points(self, opts: argparse.Namespace) -> None:
        raise NotImplementedError

    # --- servers

    def names(self, opts: argparse.Namespace) -> Any:
        return opts.servers

    def sides(self, run: Run) -> list:
        """[(name, the function that makes it)]"""
        if run.lab.remote:
            return [(name, lambda name=name, where=where, **_: Existing(run.lab, name, where))
                    for name, where in run.opts.remote.items()]
        return [(name, lambda name=name, **kw: make(run.lab, name, **kw))
                for name in self.names(run.opts)]

    def server_key(self, point: Point) -> int:
        """Points of equal keys are served by the same process."""
        return 0

    def server_options(self, run: Run, point: Point) -> dict:
        return {}

    def sites(self, run: Run) -> None:
        """Make the files; once, before the first sample."""
        if not run.lab.remote:
            files.basic().make(os.path.join(run.lab.dir, "site"))

    def enter(self, run: Run, point: Point) -> None:
        """Before each sample and its servers: prepare the lab for the point."""

    def leave(self, run: Run) -> None:
        """After the last sample: restore the lab."""

    # --- one sample

    def seconds(self, run: Run, point: Point) -> Any:
        return run.opts.seconds

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Wrk(connections=64, path=SMALL)

    def check(self, run: Run, point: Point, server: Server) -> Check | None:
        return Check(SMALL, crc=files.crc(SMALL, 1024))

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        """Warm a server, once at a point."""
        self.check(run, point, server).settle(run.lab, server)
        loads.run(run.lab, self.load(run, point, server), server, 1)

    def before(self, run: Run, point: Point, server: Server) -> None:
        """Prepare right before each load."""

    def run_load(self, run: Run, load: Load, server: Server, seconds: float,
                 begin: Callable[[], None] | None) -> tuple:
        """Run the load; call begin() when the figures begin."""
        return loads.run(run.lab, load, server, seconds, run.lab.spread(load), begin)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        """Right after the load: more figures; a Problem invalidates the sample."""

    def rate(self, sample: Sample) -> Any:
        """The throughput of a sample whose rate is not refused."""
        return sample["rate"]

    def seal(self, sample: Sample) -> None:
        """Figures that follow from a throughput that was not refused."""

    def tolerate(self, fault: str | None, got: dict) -> str | None:
        """The fault, or None if errors are the subject of the experiment."""
        return fault

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        """(limit, reason) if they follow from the experiment, else None."""
        return None

    def note(self, text: str) -> None:
        if text not in self.notes:
            notify(f"  {text}")
            self.notes.append(text)

    def unfit(self, point: Point, name: str) -> bool:
        """Whether that server cannot answer the requests of that point."""
        return False

    def enough(self, entry: dict, point: Point, name: str) -> bool:
        """Whether earlier points make this one unnecessary."""
        return False

    # --- words

    def line(self, sample: dict) -> str:
        cpu = sample.get("cpu_ns")
        return f"{sample['rate']:,.0f}/s" + (f", {cpu:,.0f} ns" if cpu else "") + \
            (f", server {sample['server_share']:.0%} busy"
             if sample.get("server_share") is not None else "")

    def derive(self, entry: dict) -> dict:
        """Figures derived from the summary: {name: {server: value}}."""
        return {}


def make(lab: Lab, name: str, **kw: Any) -> Any:
    """A server by the name that --servers gives it."""
    if name.startswith("toboggan"):
        tier = name.partition("-")[2] or Toboggan.TIERS[0]
        return Toboggan(lab, name, tiers=",".join(dict.fromkeys([tier, "user"])), **kw)
    kw.pop("memory", None)
    return KINDS[name](lab, name, **kw)


def each_tier(opts: argparse.Namespace) -> list:
    """The servers of --servers, and with Toboggan its tiers but the fastest alone."""
    ret = []
    for name in opts.servers:
        ret.append(name)
        if name == "toboggan":
            ret += [f"toboggan-{tier}" for tier in Toboggan.TIERS[1:]
                    if f"toboggan-{tier}" not in opts.servers]
    return ret


def able_to_compute(opts: argparse.Namespace) -> list:
    """The servers of --servers that can load a module."""
    return [n for n in opts.servers if (Toboggan if n.startswith("toboggan") else
                                        KINDS[n]).can_compute]


def list_file(run: Run, name: Any, make: Callable[..., Any]) -> Any:
    """A list of Files for load.c, which are made for it, in the lab's folder; written once."""
    path = os.path.join(run.lab.dir, f"{name}.list")
    return path if os.path.exists(path) else make().list_for_load(path)


def one_file(run: Run, path: str, size: int) -> Any:
    return list_file(run, f"one-{size}", lambda: files.Files([(1, path, size)]))


def most(entry: dict, key: str, met: Callable[..., bool]) -> dict:
    """{server: highest point at which met(row, figure key of it)}.

    A repeat that fell short may have been refused; one that met the demand is not. More
    than half of the repeats that count must have met it.
    """
    best = {}
    for row in entry["summary"]:
        figure = row["figures"][key]
        repeats = row["counted"] + row["invalid"]
        if figure and 2 * figure["n"] > repeats and met(row, figure):
            best[row["server"]] = max(best.get(row["server"], 0), row["point"])
    return best


def whose_time(sample: Sample, rate: float) -> tuple[str, str] | None:
    """(limit, reason) of times in an open loop; None if full clients may be the cause.

    A client is one thread: it may be full although several CPUs are not.
    """
    if sample["client_cpus"] >= bottleneck.CLIENT_FULL:
        return None
    if sample["late"] > 0.05 * rate * sample["seconds"]:
        return bottleneck.SERVER, \
               f"{sample['late']} pages were requested late, behind others, " \
            f"by clients that kept {sample['client_cpus']:.2f} CPUs busy"
    return bottleneck.DEMAND, f"{rate:g} pages a second were requested"
