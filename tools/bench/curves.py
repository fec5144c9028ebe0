# SPDX-License-Identifier: GPL-2.0
"""Curves over the size of a response: cached, cold, dynamic, and the sizes of most responses.

The first three end with the sum that the papers use: each server's curve, weighted by
the classes of SPECweb99's static files.
"""
from __future__ import annotations


import argparse
import fileset as files
from capacity import FullCore, fitting
from contents import Caches, Computing
from engine import Check
from experiment import BPS, CPU, Experiment, Point, RATE, list_file
from fileset import SMALL
from loads import Ours, Wrk
from option_types import whole, wholes
from stats import at
from typing import TYPE_CHECKING, Any
from units import digits, human

if TYPE_CHECKING:
    from engine import Run
    from fileset import Files
    from loads import Load
    from servers import Server

TIME, MIX, PAPERS = "processor time a request", "Mbit/s of the mix", "Mbit/s, classes weighted"


class Weighted(Experiment):
    """A curve with a weighted sum for each server."""

    figures = (CPU, BPS, RATE)

    def derive(self, entry: dict) -> dict:
        sums, entry["ranking"] = self.sums(entry), None
        if sums:
            entry["ranking"] = ranking(sums)
        ret = {"SPECweb99 mix, ns of processor time a request": 0, "SPECweb99 mix, Mbit/s": 1,
               "classes weighted as the papers did, Mbit/s": 2}
        ret = {title: {name: each[i] for name, each in sums.items() if each[i] is not None}
               for title, i in ret.items()}
        return {title: values for title, values in ret.items() if values}

    @staticmethod
    def sums(entry: dict) -> dict[Any, tuple[int | None, float | None, int | None]]:
        """{server: result of mix_sums()}, without servers that have none"""
        ret, xs = {}, [p["x"] for p in entry["points"]]
        for name in entry["servers"]:
            rows = {r["point"]: r["figures"] for r in entry["summary"] if r["server"] == name}
            cpu, rate = ([(rows.get(x, {}).get(key) or {}).get("median") for x in xs]
                         for key in ("cpu_ns", "throughput"))
            each = mix_sums(xs, cpu, rate)
            if any(value is not None for value in each):
                ret[name] = each
        return ret


def mix_sums(xs: list[float], cpu_ns: Any,
             rate: list[None]) -> tuple[int | None, float | None, int | None]:
    """(ns a request, Mbit/s of the mix, weighted sum of the classes' Mbit/s); None if unknown.

    If a size was refused or not measured, the curve there is unknown, and so are the sums
    over it.
    """
    shares = [(c * f / sum(files.FILE_SHARES), files.web99_size(k, i), k)
              for k, c in enumerate(files.CLASS_SHARES)
              for i, f in enumerate(files.FILE_SHARES)]
    cost = None if None in cpu_ns or not any(cpu_ns) else \
        sum(w * at(xs, cpu_ns, s) for w, s, _ in shares)
    if None in rate:
        return cost, None, None
    times = [1e9 / r for r in rate]
    mean_ns = sum(w * at(xs, times, s) for w, s, _ in shares)
    bits = sum(w * s * 8 for w, s, _ in shares)
    papers = sum(w * s * 8e3 / at(xs, times, s) for w, s, _ in shares)
    return cost, bits / mean_ns * 1e3, papers


def ranking(sums: Any) -> list[list[str]]:
    """The papers' table: a row for each server, the best first, and per cent of the first.

    By throughput; servers whose rates were refused come last, by the cost of a request.
    """
    none = float("inf")
    order = sorted(sums, key=lambda name: (-(sums[name][2] or 0), -(sums[name][1] or 0),
                                           none if sums[name][0] is None else sums[name][0]))
    best = sums[order[0]]

    def share(value: Any, first: bool) -> str:
        return f"{digits(100 * value / first)} %" if value and first else ""

    rows = [["SPECweb99-weighted", PAPERS, "of the first", MIX, "of the first", TIME,
             "of the first"]]
    for name in order:
        cost, mix, papers = sums[name]
        rows.append([name, *(cell for value, first, unit in (
            (papers, best[2], ""), (mix, best[1], ""), (cost, best[0], "ns"))
            for cell in (human(value, unit) if unit else
                         "" if value is None else digits(value), share(value, first)))])
    return rows


# ------------------------------------------------------------------ sizes

class Sizes(Weighted):
    name, title = "sizes", "throughput by response size, 1 B to 10 MB"
    about = ("Small responses cost by the request, large ones by the byte. The weighted sums show "
             "the cost of a mix of SPECweb99's static classes (35/50/14/1 % of requests): "
             "the file sizes of each class, from the curve.")
    x_label = "bytes of the body"
    tools = ("curl", "wrk")

    def make_points(self, opts: argparse.Namespace) -> list:
        sizes = files.SIZES if not opts.quick else (1, 1024, 16384, 1 << 20)
        return [Point(s) for s in sizes]

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Wrk(64 if point.x <= 65536 else 16, files.size_path(point.x), timeout_s=30)

    def check(self, run: Run, point: Point, server: Server) -> Check | None:
        path = files.size_path(point.x)
        return Check(path, crc=files.crc(path, point.x))


# ------------------------------------------------------------------ cold

class Cold(Weighted, Caches):
    name, title = "cold", "files that are not cached, by size"
    about = ("Each file once, with its pages dropped before and the server restarted, 16 "
             "connections at a time: the disk's figure as much as the server's. The weighted sums "
             "are of the same classes as those of `sizes`.")
    x_label, x_log, x_named = "bytes of the body", True, False
    lab_only = Caches.lab_only
    left_out = ()
    EACH_MIB, NR_MIN, NR_MAX = 16, 4, 400

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--each-mib", type=whole(), metavar="MIB",
                        help="of files of each size, at least 4 and at most 400 files (16; "
                        "quick 2)")

    def make_points(self, opts: argparse.Namespace) -> list:
        each = (opts.each_mib or (2 if opts.quick else self.EACH_MIB)) << 20
        sizes = files.SIZES if not opts.quick else (1, 1024, 16384, 1 << 20)
        return [Point(size, cold=True, files=self.file_set(size, each)) for size in sizes]

    def file_set(self, size: int, each: Any) -> Files:
        nr = min(self.NR_MAX, max(self.NR_MIN, each // size))
        return files.Files([(1, f"/cold/{size}/{i}.bin", size) for i in range(nr)])

    def sites(self, run: Run) -> None:
        self.files = files.Files([row for p in self.points for row in p.files.rows])
        super().sites(run)

    def asked(self, point: Any) -> tuple[Any, str]:
        return point.files, f"cold-{point.x}"


# ------------------------------------------------------------------ pages

class PageSizes(Weighted, Computing):
    name, title = "pages", "pages that a module makes, by the size of the file in them"
    about = ("The page of SPECweb99's standard dynamic request, made by one module in all servers "
             "around files of its classes; nginx uses it by FastCGI. The weighted sums are of the "
             "same classes as those of `sizes`.")
    x_label = "bytes of the file in the page"
    lab_only = Computing.lab_only
    FILES = ((0, 0), (0, 4), (0, 8), (1, 2), (1, 4), (1, 8), (2, 1), (2, 4), (2, 8), (3, 2), (3, 8))
    QUICK = ((0, 0), (1, 4), (2, 4), (3, 8))

    def make_points(self, opts: argparse.Namespace) -> list:
        self.files = files.web99(1)
        return [Point(files.web99_size(*which), path=files.web99_path(0, *which))
                for which in (self.QUICK if opts.quick else self.FILES)]

    def load(self, run: Run, point: Point, server: Server) -> Load:
        def make() -> Files:
            return files.Files([self.pages(run, server).row(1, "get", point.path, point.x)])
        return Ours(64 if point.x <= 65536 else 16, timeout=30,
                    list=list_file(run, f"{server.iface}-page-{point.x}", make))


# ------------------------------------------------------------------ small

class Small(FullCore):
    name, title = "small", "304 and bodies of 50 to 1,000 bytes, with a full core"
    about = ("The sizes of most responses, where servers differ most: small images and "
             "304 answers, drawn at 0 bytes. The load is that of `capacity`.")
    x_label, x_log = "bytes of the body", False
    SIZES, QUICK = (50, 100, 200, 400, 600, 800, 1000), (50, 1000)

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--sizes", type=wholes(), metavar="BYTES,…",
                        help="besides the 304 (50,100,200,400,600,800,1000; quick 50,1000)")
        FullCore.at_a_time(ap)
        FullCore.asking(ap)

    def make_points(self, opts: argparse.Namespace) -> list[Point]:
        self.opts = opts
        opts.connections, self.others = fitting(opts.connections), self.take_also(opts.also)
        sizes = opts.sizes or (self.QUICK if opts.quick else self.SIZES)
        return [Point(0, "304", path=SMALL, size=1024, kind="304", calls=0)] + \
            [Point(s, path=files.size_path(s), size=s, kind="", calls=0) for s in sizes]
