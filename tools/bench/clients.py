# SPDX-License-Identifier: GPL-2.0
"""Experiments that vary the clients: connections and reuse, objects, processors, generators."""
from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import bottleneck
import loads
import lists
import fileset as files
from capacity import FullCore, fitting
from option_types import wholes
from engine import Check
from loads import Ours, Wrk
from meters import first
from messages import Problem, Usage, notify
from units import human
from servers import Toboggan
from fileset import SMALL
from experiment import CPU, Experiment, LATENCIES, Point, RATE, list_file, one_file

if TYPE_CHECKING:
    from engine import Run, Sample
    from loads import Load
    from servers import Server


# ------------------------------------------------------------------ ramp

class Ramp(FullCore):
    name, title = "ramp", "clients in a closed loop, 1 to 64"
    about = ("N clients, each with one request at a time and the next one once its reply is "
             "complete, as in WebBench and WebStone: requests and bytes a second rise until the "
             "server is full. Before that, a rate is what so few clients request; if "
             "the clients are full, there is none.")
    x_label, lab_only = "clients", None
    figures = (RATE, ("bytes_s", "bytes a second", "B/s", "high"))
    withheld = LATENCIES
    sample_s = 1
    CLIENTS, QUICK = (1, 2, 4, 8, 16, 32, 64), (1, 4, 64)

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--clients", type=wholes(), metavar="N,…",
                        help="(1,2,4,8,16,32,64; quick 1,4,64)")
        ap.add_argument("--list", metavar="FILE", default=lists.STANDARD_NAME,
                        help="the requests: a filelist of WebStone, `path weight #size`, or "
                        "`weight path size CRC-32` of files of `bench site`; webstone, the "
                        "default: its standard mix")
        ap.add_argument("--client", choices=("loop", "load"),
                        help="loop is in the kernel, load a program (loop in the lab, else load)")
        FullCore.asking(ap)

    def make_points(self, opts: argparse.Namespace) -> list:
        self.opts = opts
        self.in_kernel = (opts.client or ("load" if opts.remote else "loop")) == "loop"
        if opts.remote and self.in_kernel:
            raise Usage("--client loop: it is a program at the other end of a veth pair")
        if not self.in_kernel and (opts.ipv6 or opts.no_timestamps):
            raise Usage("--ipv6 and --no-timestamps go with --client loop")
        if opts.also and not self.in_kernel:
            raise Usage("--also goes with --client loop")
        self.others = self.take_also(opts.also)
        if self.in_kernel:
            fitting(max(opts.clients or self.CLIENTS))
        self.take_list(opts.list, to_be_made=not opts.remote)
        self.keep_servers, self.made_by = self.in_kernel, f"bench site --list {opts.list}"
        return [Point(n, path=self.listed[0][1], size=self.listed[0][2], kind="list", calls=0)
                for n in opts.clients or (self.QUICK if opts.quick else self.CLIENTS)]

    def connections(self, point: Point) -> float:
        return point.x

    def sides(self, run: Run) -> list:
        return super().sides(run) if self.in_kernel else Experiment.sides(self, run)

    def sites(self, run: Run) -> None:
        if not run.lab.remote:
            super().sites(run)

    def load(self, run: Run, point: Point, server: Server) -> Load:
        if self.in_kernel:
            return super().load(run, point, server)
        path = os.path.join(run.lab.dir, "ramp.list")
        lists.write(self.listed, path)
        return Ours(point.x, list=path, timeout=30,
                    header=[f"{n}: {v}" for n, v in self.headers(server, point)])

    def check(self, run: Run, point: Any, server: Server) -> Check | None:
        crc = files.crc(point.path, point.size) if lists.is_made(self.listed[0]) else None
        return Check(point.path, headers=self.headers(server, point), crc=crc)

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        """Request each file once or twice, to fill the caches."""
        self.check(run, point, server).settle(run.lab, server)
        path = os.path.join(run.lab.dir, "ramp.walk")
        lists.write(self.listed, path)
        for _ in range(2):
            loads.run(run.lab, Ours(4, list=path, once=True, timeout=30), server, 600)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        sample["clients_nr"] = point.x
        if self.in_kernel:
            super().after(run, point, server, sample, got)

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        if self.in_kernel:
            whose, why = super().own_limit(sample)
            if whose != bottleneck.UNKNOWN:
                return whose, why
        elif sample["client_share"] >= bottleneck.CLIENT_FULL or \
                (sample["server_share"] or 0) >= bottleneck.SATURATED:
            return None
        return bottleneck.DEMAND, f"{sample['clients_nr']} clients had one request each at a time"

    def seal(self, sample: Sample) -> None:
        if sample["throughput"]:
            sample["bytes_s"] = sample["throughput_bps"] / 8

    def line(self, sample: Sample) -> str:
        return f"{sample['rate']:,.0f}/s, {human(sample['bps'] / 8, 'B/s')}"


# ------------------------------------------------------------------ keep-alive

class KeepAlive(Experiment):
    name, title = "keepalive", "requests on each connection, 1 to 100"
    about = ("One request per connection and endless keep-alive are the extremes; real pages have "
             "5 to 20. The first point less the last is the cost of a connection.")
    x_label = "requests on a connection"

    def make_points(self, opts: argparse.Namespace) -> list:
        return [Point(n) for n in ((1, 10, 100) if opts.quick else (1, 2, 5, 10, 20, 50, 100))]

    def server_options(self, run: Run, point: Point) -> dict:
        return {"sources": 8}

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Ours(64, calls=point.x, list=one_file(run, SMALL, 1024), sources=server.sources)


# ------------------------------------------------------------------ objects

class Objects(Experiment):
    name, title = "objects", "number of objects, 10 to 1,000,000"
    about = ("Random hits among N files of 1 KiB. The curve rises where a cache does not "
             "hold them all: first the processor's, then the server's.")
    x_label = "files"

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--objects", type=wholes(), metavar="N,…",
                        help="(10,100,1000,10000,100000,1000000; quick 10,1000)")
        ap.add_argument("--memory", metavar="SIZE",
                        help="Toboggan's budget (8 KiB for each object, at least 256M)")

    def make_points(self, opts: argparse.Namespace) -> list:
        self.memory = opts.memory
        nrs = opts.objects or ((10, 1000) if opts.quick else [10 ** i for i in range(1, 7)])
        return [Point(nr, f"{nr:,}", files=files.objects(nr)) for nr in nrs]

    def server_key(self, point: Point) -> float:
        return point.x

    def server_options(self, run: Run, point: Point) -> dict:
        # A quarter of the budget is for slots of this size, 2 KiB each.
        want_mib = max(256, point.x * 8192 >> 20)
        most_mib = int(first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) >> 11
        if not self.memory and want_mib > most_mib > 0:
            self.note(f"{point.label} objects need a budget of {want_mib:,} MiB and get "
                      f"{most_mib:,} MiB, half of this machine's memory")
            want_mib = most_mib
        return {"memory": self.memory or f"{want_mib}M"}

    def sites(self, run: Run) -> None:
        """Leave out a number of files for which there is no room, and report it."""
        super().sites(run)
        for point in [] if run.lab.remote else list(self.points):
            try:
                point.files.make(os.path.join(run.lab.dir, "site"))
            except Problem as e:
                self.note(f"{point.label} objects are left out: {e}")
                self.points.remove(point)
        if not self.points:
            raise Problem(self.notes[-1])

    def load(self, run: Run, point: Any, server: Server) -> Load:
        return Ours(64, list=list_file(run, f"objects{point.x}", lambda: point.files))

    def check(self, run: Run, point: Point, server: Server) -> Check | None:
        """Request one of the objects, so that no other file is stored beside them."""
        path = files.object_path(point.x, 0)
        return Check(path, crc=files.crc(path, 1024))

    def prepare(self, run: Run, point: Any, server: Server) -> None:
        """Request each object once; for Toboggan until all, or no more, are stored."""
        self.check(run, point, server).settle(run.lab, server)
        walk = Ours(32, list=list_file(run, f"objects{point.x}", lambda: point.files), once=True)
        stored = before = -1
        for _ in range(6):
            notify(f"  {server.name}: each of {point.label} objects once, 10 minutes at most")
            loads.run(run.lab, walk, server, 600)
            if not isinstance(server, Toboggan):
                return
            stored = server.stored()
            notify(f"  {server.name}: {stored:,} of {point.label} are stored")
            if stored >= point.x or stored == before:
                break
            before = stored
        if stored < point.x:
            self.note(f"{server.name} holds {stored:,} of {point.x:,} objects: the rest are misses")


# ------------------------------------------------------------------ connections

class Connections(Experiment):
    name, title = "connections", "connections held open, 1 to 100,000"
    about = ("N keep-alive connections, of which at most 64 have a request in flight at a "
             "time, in turn. This shows the cost of holding the others. The load is the same "
             "from 64 on, so a rising curve is that cost.")
    x_label = "connections"
    ACTIVE = 64

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--connections", type=wholes(), metavar="N,…",
                        help="(1,10,100,1000,10000,100000; quick 1,100,1000)")

    def make_points(self, opts: argparse.Namespace) -> list:
        nrs = opts.connections or ((1, 100, 1000) if opts.quick else
                     [10 ** i for i in range(6)])
        return [Point(nr, f"{nr:,}") for nr in nrs]

    def server_key(self, point: Point) -> float:
        return max(20000, point.x)

    def server_options(self, run: Run, point: Point) -> dict:
        return {"connections": max(20000, point.x), "sources": 1 + point.x // 20000}

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Ours(point.x, active=min(point.x, self.ACTIVE), list=one_file(run, SMALL, 1024))

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)


# ------------------------------------------------------------------ processors

class Cpus(Experiment):
    name, title = "cpus", "processors, 1 to N: requests a second for each"
    about = ("Servers are started with one worker on each of 1, 2, … CPUs; the clients use the "
             "others. Requests a second per CPU: flat is ideal. With all CPUs the clients have "
             "none "
             "of their own: what is left is the time that the scheduler charged to the server's "
             "processes, without interrupts and what is answered in them.")
    x_label, x_log = "CPUs of the server", False
    tools = ("curl", "wrk")
    lab_only = "the CPUs of a remote server cannot be assigned from here"
    figures = (("per_cpu", "requests a second and CPU", "/s", "high"), CPU, RATE,
               ("ran_ns", "time of the server's processes", "ns a request", "low"))

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--cpus", type=wholes(), metavar="N,…", help="(1 to all)")

    def make_points(self, opts: argparse.Namespace) -> list:
        self.have = opts.cpu_list
        nrs = opts.cpus or list(range(1, len(self.have) + 1))
        if nrs[-1] > len(self.have):
            raise Usage(f"--cpus: {nrs[-1]} for the server, there are {len(self.have)}")
        if self.shared(nrs[-1]):
            self.notes.append(f"with all {nrs[-1]} CPUs, the clients work on the "
                              "server's CPUs: no rate and no processor time is the server's alone")
        return [Point(nr) for nr in nrs]

    def shared(self, nr: float) -> bool:
        return nr == len(self.have)

    def server_key(self, point: Point) -> float:
        return point.x

    def sites(self, run: Run) -> None:
        super().sites(run)
        self.cpus = run.lab.server_cpus, run.lab.client_cpus

    def enter(self, run: Run, point: Point) -> None:
        run.lab.server_cpus = set(self.have[:point.x])
        run.lab.client_cpus = set(self.have[point.x:] or self.have)

    def leave(self, run: Run) -> None:
        run.lab.server_cpus, run.lab.client_cpus = self.cpus

    def load(self, run: Run, point: Point, server: Server) -> Load:
        return Wrk(64 * point.x, SMALL)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        sample["cpus"] = point.x
        if self.shared(point.x):
            sample.update(cpu_ns=None, cpu_ns_per_kib=None, not_idle_ns=None, server_share=None,
                          server_busiest=None)

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        if self.shared(sample["cpus"]):
            return bottleneck.CLIENT, "the clients work on the server's CPUs"
        return None

    def seal(self, sample: Sample) -> None:
        if sample["throughput"]:
            sample["per_cpu"] = sample["throughput"] / sample["cpus"]


# ------------------------------------------------------------------ clients

class Clients(Experiment):
    name, title = "clients", "the same load from different generators"
    about = ("If generators disagree about one server, the slower ones measured themselves. "
             "Processor time of the server should differ little. `packets` has no TCP and costs "
             "the client least; its server meets fewer acknowledgements.")
    x_label, x_log, x_named = "generator", False, True
    KINDS = ("wrk", "h2load", "ab", "load")
    tools = ("curl", "wrk", "h2load", "ab")

    def make_points(self, opts: argparse.Namespace) -> list:
        kinds = self.KINDS + (() if opts.remote else ("packets",))
        return [Point(i, name) for i, name in enumerate(kinds)]

    def load(self, run: Run, point: Point, server: Server) -> Load:
        if point.label == "load":
            return Ours(64, list=one_file(run, SMALL, 1024))
        return {"wrk": Wrk, "h2load": loads.H2load, "ab": loads.Ab,
                "packets": loads.Packets}[point.label](64, SMALL)
