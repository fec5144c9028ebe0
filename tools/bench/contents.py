# SPDX-License-Identifier: GPL-2.0
"""Experiments that vary the content: tier, size, cached or not, dynamic, SPECweb99's mix."""
from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import subprocess
from typing import TYPE_CHECKING, Any, Iterable

import bottleneck
import loads
import fileset as files
from option_types import percent, whole, wholes
from engine import Check
from loads import Ours, Wrk
from messages import Problem
from servers import Toboggan, fetch
from fileset import SMALL
from experiment import (BPS, CONFORM_BPS, CPU, Experiment, LATENCIES, LINE_BPS, Point, RATE,
                        TAIL, able_to_compute, each_tier, list_file, most)

if TYPE_CHECKING:
    from engine import Run, Sample
    from fileset import Files, Pages
    from loads import Load
    from servers import Server


# ------------------------------------------------------------------ tiers

class Tiers(Experiment):
    name, title = "tiers", "cached against fall-through, per tier"
    about = ("The cost of a request by the tier that answers. `hit` rows are answered by the first "
             "tier that the server has; `fall-through` requests the same 1 KiB file by a path "
             "that only the daemon decodes, so it shows the cost of passing up. Compare toboggan "
             "with toboggan-user in that row: the difference is the price of a miss.")
    x_label, x_log, x_named = "request", False, True
    tools = ("curl", "wrk")
    left_out = ("dynamic content: see dynamic and web99",)

    def make_points(self, opts: argparse.Namespace) -> list:
        return [Point(0, "hit, 1 KiB", path=SMALL, size=1024, hit=True),
                Point(1, "304", path=SMALL, size=1024, hit=True, status=304),
                Point(2, "hit, 8 KiB", path=files.size_path(8192), size=8192, hit=True),
                Point(3, "64 KiB", path=files.size_path(65536), size=65536, hit=False),
                Point(4, "fall-through, 1 KiB", path="/%31k.jpg", size=1024, hit=False,
                      of=SMALL)]

    def names(self, opts: argparse.Namespace) -> list:
        return each_tier(opts)

    def headers(self, server: Any, point: Point) -> list:
        if getattr(point, "status", 200) != 304:
            return []
        if not getattr(server, "etag", None):
            server.etag = fetch(server.lab, server, SMALL)["etag"]
        if not server.etag:
            raise Problem(f"{server.name}: no ETag, so no 304 can be requested")
        return [("If-None-Match", server.etag)]

    def load(self, run: Run, point: Any, server: Server) -> Load:
        return Wrk(64, point.path, self.headers(server, point))

    def check(self, run: Run, point: Any, server: Server) -> Check | None:
        status = getattr(point, "status", 200)
        crc = files.crc(getattr(point, "of", point.path), point.size) if status == 200 else None
        want = ""
        if isinstance(server, Toboggan) and point.hit and point.size <= 1024:
            want = "detail=wire" if server.tier == "wire" else "hit"
        return Check(point.path, status, self.headers(server, point), crc, want)

    def after(self, run: Run, point: Any, server: Server, sample: Sample, got: dict) -> None:
        tiers, nr = sample.get("tiers"), got["requests"]
        if not tiers or server.tier == "user":
            return
        kernel = tiers.get(server.tier, 0)
        if point.hit and point.size <= 1024 and kernel < 0.98 * nr:
            raise Problem(f"{server.tier} answered only {kernel:,} of {nr:,} requests; "
                          "see toboggan stats")
        if not point.hit and point.size == 1024 and kernel > 0.02 * nr:
            raise Problem(f"{server.tier} answered {kernel:,} of {nr:,} requests that it "
                          "should have passed up")


# ------------------------------------------------------------------ caches

class Caches(Experiment):
    name, title = "caches", "cached, and not cached (cold page cache)"
    about = ("The same set of files: drawn at random and cached by every server; then each once, "
             "with its pages dropped and the server restarted, so that nothing is cached. The "
             "cold figure depends on the disk as much as on the server.")
    x_label, x_log, x_named = "state of the caches", False, True
    lab_only = "the page cache of another machine cannot be emptied from here"
    figures = (CPU, RATE, BPS)
    left_out = ("dynamic content: see dynamic and web99",)

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--folders", type=whole(), metavar="N",
                        help="of SPECweb99's file set, 5 MB each (25; quick 2)")

    def make_points(self, opts: argparse.Namespace) -> list:
        self.files = files.web99(opts.folders or (2 if opts.quick else 25))
        # The last class has a hundred times as large a share of the bytes as of the files.
        return [Point(0, "cached", cold=False), Point(1, "cold", cold=True)]

    def server_key(self, point: Any) -> Any:
        return point.cold

    def sites(self, run: Run) -> None:
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))
        subprocess.run(["sync", "-f", run.lab.dir], check=False)

    def asked(self, _point: Any) -> tuple[Files, str]:
        """(the files of a point, a name for their list)"""
        return self.files, "caches"

    def load(self, run: Run, point: Any, server: Server) -> Load:
        rows, name = self.asked(point)
        return Ours(16, list=list_file(run, name, lambda: rows), once=point.cold, timeout=30)

    def seconds(self, run: Run, point: Any) -> Any:
        return 600 if point.cold else run.opts.seconds

    def prepare(self, run: Run, point: Any, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)
        if not point.cold:
            walk = Ours(16, list=list_file(run, "caches", lambda: self.files), once=True,
                        timeout=30)
            for _ in range(2):
                loads.run(run.lab, walk, server, 600)

    def before(self, run: Run, point: Any, server: Any) -> None:
        if not point.cold:
            return
        if getattr(server, "used", False):
            server.stop()
            server.start()
            self.check(run, point, server).settle(run.lab, server)
        server.used = True
        root = os.path.join(run.lab.dir, "site")
        left = emptied([root + path for _, path, _ in self.asked(point)[0].rows])
        if left > 0.02:
            raise Problem(f"{left:.0%} of the pages stay in the page cache: "
                          "is the site on tmpfs?")

    def after(self, run: Run, point: Any, server: Server, sample: Sample, got: dict) -> None:
        nr = len(self.asked(point)[0].rows)
        sample["cold"] = point.cold
        if point.cold and got["requests"] < nr:
            raise Problem(f"only {got['requests']} of {nr} files in time")

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        if sample["cold"] and sample["client_cpus"] < bottleneck.CLIENT_FULL:
            return bottleneck.DEMAND, "each file once, by 16 connections"
        return None


def emptied(paths: Any) -> float:
    """Drop these files from the page cache; the share of pages of the first 500 that stay."""
    for path in paths:
        evict(path)
    return resident_pages(paths[:500])


def evict(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def resident_pages(paths: Iterable[str]) -> float:
    """Share of the files' pages that the page cache holds."""
    libc, held, pages = ctypes.CDLL(None, use_errno=True), 0, 0
    for path in paths:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE) as area:
            nr = -(-len(area) // mmap.PAGESIZE)
            seen = (ctypes.c_ubyte * nr)()
            start = ctypes.addressof(ctypes.c_char.from_buffer(area))
            if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(area)), seen):
                raise Problem(f"mincore: {os.strerror(ctypes.get_errno())}")
            held, pages = held + sum(x & 1 for x in seen), pages + nr
    return held / max(1, pages)


# ------------------------------------------------------------------ web99

class Computing(Experiment):
    """An experiment with the dynamic part of SPECweb99, made by the same module in all servers."""

    unable = "it cannot load the module that makes the dynamic part"
    lab_only = "the dynamic part of a server on another machine is not known here"

    def names(self, opts: argparse.Namespace) -> list:
        return able_to_compute(opts)

    def server_options(self, run: Run, point: Point) -> dict:
        return {"computes": True}

    def sites(self, run: Run) -> None:
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))

    def pages(self, run: Run, server: Server) -> Pages | None:
        """The requests for a server whose tables have been made."""
        reset = f"/spec?command/Reset&maxload={files.USERS}&exp=1,4000000000"
        if fetch(run.lab, server, reset)["status"] != 200:
            raise Problem(f"{server.name}: cannot make the tables: {server.last_words()}")
        return server.pages()


class Dynamic(Computing):
    name, title = "dynamic", "the share of dynamic requests, from none to all"
    about = ("Requests for a file of 1 KiB, and for a page that a module makes around such a "
             "file, in different shares. nginx uses the same module by FastCGI: its processes and "
             "those of the module are on the server's CPUs and in the figure, for both servers. A "
             "server that costs more at 100 % may cost less in total, if most requests are static.")
    x_label, x_log = "dynamic requests, %", False
    figures = (CPU, RATE, TAIL)

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--shares", type=wholes(0, 100), metavar="P,…",
                        default="0,10,25,50,75,100", help="percentages (0,10,25,50,75,100)")

    def make_points(self, opts: argparse.Namespace) -> list:
        self.files = files.web99(1)
        return [Point(p, f"{p} %") for p in opts.shares]

    def load(self, run: Run, point: Point, server: Server) -> Load:
        def make() -> Files:
            rows = [(100 - point.x, SMALL, 1024)] if point.x < 100 else []
            if point.x:
                rows.append(self.pages(run, server).row(
                    point.x, "get", files.web99_path(0, 1, 0), files.web99_size(1, 0)))
            return files.Files(rows)
        return Ours(64, list=list_file(run, f"{server.iface}-dynamic-{point.x}", make))


OLD_PERCENT = 30            # SPECweb99 has both versions; their shares were not published


class Web99(Computing):
    name, title = "web99", "a mix like SPECweb99's: conforming connections"
    about = ("Simultaneous connections on lines of 400 kbit/s, directories by Zipf's law, 30 % of "
             "connections for one request and the others for 5 to 15; 30 % use HTTP/1.0, with "
             "keep-alive if requests follow (--http-1.0). 70 % of the requests are "
             "static; 12.45 % are pages around a file, 12.6 % the same with ads rotated by cookie, "
             "4.8 % POSTs with a log, 0.15 % a CGI program. A connection conforms at "
             "320 kbit/s or more. It is like SPECweb99, not SPECweb99: no figure of it may be "
             "called one.")
    lab_only = None
    x_label = "simultaneous connections"
    figures = (("conforming_percent", "conforming connections", "%", "high"), CPU,
               ("rate", "requests a second", "/s", "high"), TAIL)
    withheld = (*LATENCIES, "conforming_percent", "rate")
    TIMEOUT_S = 40              # at their lines' speed the largest file takes 18.4 s

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--connections", type=wholes(), metavar="N,…",
                        help="(50,100,200,400; quick 10)")
        ap.add_argument("--http-1.0", dest="old", type=percent, default=OLD_PERCENT, metavar="P",
                        help=f"per cent of the connections that use HTTP/1.0 ({OLD_PERCENT})")
        ap.add_argument("--static", action="store_true",
                        help="without the dynamic 30 %%; always so with a remote server")
        ap.add_argument("--folders", type=whole(), metavar="N",
                        help="directories of the file set, 5 MB each (as SPECweb99 wants for the "
                        "most connections; quick 4)")

    def make_points(self, opts: argparse.Namespace) -> list:
        nrs = opts.connections or ((10,) if opts.quick else (50, 100, 200, 400))
        self.folders = opts.folders or (4 if opts.quick else files.web99_folders(max(nrs)))
        self.files = files.web99(self.folders)
        self.static, self.old = opts.static or bool(opts.remote), opts.old / 100
        if self.static:
            self.left_out = ("the dynamic 30 % of SPECweb99's mix (ad rotation, POST, CGI)",)
        return [Point(nr) for nr in nrs]

    def names(self, opts: argparse.Namespace) -> Any:
        return opts.servers if self.static else super().names(opts)

    def server_options(self, run: Run, point: Point) -> dict:
        return {} if self.static else super().server_options(run, point)

    def sites(self, run: Run) -> None:
        if not run.lab.remote:
            super().sites(run)

    def load(self, run: Run, point: Point, server: Server) -> Load:
        if self.static:
            rows = list_file(run, "web99", lambda: self.files)
        else:
            rows = list_file(run, f"{server.iface}-web99", lambda: files.web99_mix(
                self.folders, self.pages(run, server)))
        return Ours(point.x, line=LINE_BPS, conform=CONFORM_BPS, calls="5-15", single=0.3,
                    list=rows, timeout=self.TIMEOUT_S, **{"http-1.0": self.old})

    def seconds(self, run: Run, point: Point) -> Any:
        return max(run.opts.seconds, 5 if run.opts.quick else 60)

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        sample["conforming_percent"] = 100.0 * got["conforming"] / point.x

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        if sample["conforming_percent"] >= 100:
            return bottleneck.DEMAND, "the lines are the limit"
        # Without a full CPU of the clients the limit is unknown: try twice the clients.
        if sample["client_cpus"] < bottleneck.CLIENT_FULL and \
                (sample["server_busiest"] or 0) >= bottleneck.SATURATED:
            return bottleneck.SERVER, "lines were slow, with one of its CPUs " \
                f"{sample['server_busiest']:.0%} busy and {sample['client_cpus']:.2f} of the " \
                f"clients'"
        return None

    def derive(self, entry: dict) -> dict:
        return {"most connections of which 95 % conform":
                most(entry, "conforming_percent",
                     lambda row, share: share["median"] >= 95 and not row["errors"])}
