# SPDX-License-Identifier: GPL-2.0
"""Experiments on who asks: connections and their reuse, objects, processors, generators."""
import os

import bottleneck
import loads
import fileset as files
from option_types import wholes
from engine import Check
from loads import Ours, Wrk
from meters import first
from messages import Problem, Usage, say
from servers import Toboggan
from fileset import SMALL
from experiment import CPU, Experiment, Point, RATE, list_file, one_file


# ------------------------------------------------------------------ keep-alive

class KeepAlive(Experiment):
    name, title = "keepalive", "requests on each connection, 1 to 100"
    about = ("One request per connection and endless keep-alive are the extremes; real pages make "
             "5 to 20. What the first point costs above the last is the connection.")
    x_label = "requests on a connection"

    def make_points(self, opts):
        return [Point(n) for n in ((1, 10, 100) if opts.quick else (1, 2, 5, 10, 20, 50, 100))]

    def server_options(self, run, point):
        return {"sources": 8}

    def load(self, run, point, server):
        return Ours(64, calls=point.x, list=one_file(run, SMALL, 1024), sources=server.sources)


# ------------------------------------------------------------------ objects

class Objects(Experiment):
    name, title = "objects", "number of objects, 10 to 1,000,000"
    about = ("Random hits among so many files of 1 KiB. Where the curve rises, a cache no longer "
             "holds them: the processor's first, then the server's.")
    x_label = "files"

    @staticmethod
    def options(ap):
        ap.add_argument("--objects", type=wholes(), metavar="N,…",
                        help="(10,100,1000,10000,100000,1000000; quick 10,1000)")
        ap.add_argument("--memory", metavar="SIZE",
                        help="Toboggan's budget (8 KiB for each object, at least 256M)")

    def make_points(self, opts):
        self.memory = opts.memory
        nrs = opts.objects or ((10, 1000) if opts.quick else [10 ** i for i in range(1, 7)])
        return [Point(nr, f"{nr:,}", files=files.objects(nr)) for nr in nrs]

    def server_key(self, point):
        return point.x

    def server_options(self, run, point):
        # A quarter of the budget is for slots of this size, 2 KiB each.
        want_mib = max(256, point.x * 8192 >> 20)
        most_mib = int(first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) >> 11
        if not self.memory and want_mib > most_mib > 0:
            self.note(f"{point.label} objects want a budget of {want_mib:,} MiB and get "
                      f"{most_mib:,} MiB, half of this machine's memory")
            want_mib = most_mib
        return {"memory": self.memory or f"{want_mib}M"}

    def sites(self, run):
        """A number of files for which there is no room is left out, and said."""
        super().sites(run)
        for point in [] if run.lab.remote else list(self.points):
            try:
                point.files.make(os.path.join(run.lab.dir, "site"))
            except Problem as e:
                self.note(f"{point.label} objects are left out: {e}")
                self.points.remove(point)
        if not self.points:
            raise Problem(self.notes[-1])

    def load(self, run, point, server):
        return Ours(64, list=list_file(run, f"objects{point.x}", lambda: point.files))

    def check(self, run, point, server):
        """One of the objects, so that no other is stored beside them."""
        path = files.object_path(point.x, 0)
        return Check(path, crc=files.crc(path, 1024))

    def prepare(self, run, point, server):
        """Each object once, and for Toboggan until all are stored or no more will be."""
        self.check(run, point, server).settle(run.lab, server)
        walk = Ours(32, list=list_file(run, f"objects{point.x}", lambda: point.files), once=True)
        stored = before = -1
        for _ in range(6):
            say(f"  {server.name}: each of {point.label} objects once, 10 minutes at most")
            loads.run(run.lab, walk, server, 600)
            if not isinstance(server, Toboggan):
                return
            stored = server.stored()
            say(f"  {server.name}: {stored:,} of {point.label} are stored")
            if stored >= point.x or stored == before:
                break
            before = stored
        if stored < point.x:
            self.note(f"{server.name} holds {stored:,} of {point.x:,} objects: the rest are misses")


# ------------------------------------------------------------------ connections

class Connections(Experiment):
    name, title = "connections", "connections held open, 1 to 100,000"
    about = ("So many keep-alive connections, of which at most 64 have a request in flight at a "
             "time, each in its turn: what merely holding the others costs. The load is the same "
             "from 64 on, so a curve that rises is the price of the rest.")
    x_label = "connections"
    ACTIVE = 64

    @staticmethod
    def options(ap):
        ap.add_argument("--connections", type=wholes(), metavar="N,…",
                        help="(1,10,100,1000,10000,100000; quick 1,100,1000)")

    def make_points(self, opts):
        nrs = opts.connections or ((1, 100, 1000) if opts.quick else
                     [10 ** i for i in range(6)])
        return [Point(nr, f"{nr:,}") for nr in nrs]

    def server_key(self, point):
        return max(20000, point.x)

    def server_options(self, run, point):
        return {"connections": max(20000, point.x), "sources": 1 + point.x // 20000}

    def load(self, run, point, server):
        return Ours(point.x, active=min(point.x, self.ACTIVE), list=one_file(run, SMALL, 1024))

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)


# ------------------------------------------------------------------ processors

class Cpus(Experiment):
    name, title = "cpus", "processors, 1 to N: requests a second for each"
    about = ("Servers are started with one worker on each of 1, 2, … CPUs; the clients keep the "
             "others. Requests a second per CPU: flat is ideal. With all CPUs the clients have "
             "none "
             "of their own: what is left is the time that the scheduler charged to the server's "
             "processes, without interrupts and what is answered in them.")
    x_label, x_log = "CPUs of the server", False
    tools = ("curl", "wrk")
    lab_only = "a remote server's CPUs are not ours to give"
    figures = (("per_cpu", "requests a second and CPU", "/s", "high"), CPU, RATE,
               ("ran_ns", "time of the server's processes", "ns a request", "low"))

    @staticmethod
    def options(ap):
        ap.add_argument("--cpus", type=wholes(), metavar="N,…", help="(1 to all)")

    def make_points(self, opts):
        self.have = opts.cpu_list
        nrs = opts.cpus or list(range(1, len(self.have) + 1))
        if nrs[-1] > len(self.have):
            raise Usage(f"--cpus: {nrs[-1]} for the server, there are {len(self.have)}")
        if self.shared(nrs[-1]):
            self.notes.append(f"with {nrs[-1]} CPUs, which are all, the clients work on the "
                              "server's: no rate and no processor time is the server's alone")
        return [Point(nr) for nr in nrs]

    def shared(self, nr):
        return nr == len(self.have)

    def server_key(self, point):
        return point.x

    def sites(self, run):
        super().sites(run)
        self.cpus = run.lab.server_cpus, run.lab.client_cpus

    def enter(self, run, point):
        run.lab.server_cpus = set(self.have[:point.x])
        run.lab.client_cpus = set(self.have[point.x:] or self.have)

    def leave(self, run):
        run.lab.server_cpus, run.lab.client_cpus = self.cpus

    def load(self, run, point, server):
        return Wrk(64 * point.x, SMALL)

    def after(self, run, point, server, sample, got):
        sample["cpus"] = point.x
        if self.shared(point.x):
            sample.update(cpu_ns=None, cpu_ns_per_kib=None, not_idle_ns=None, server_share=None,
                          server_busiest=None)

    def own_limit(self, sample):
        if self.shared(sample["cpus"]):
            return bottleneck.CLIENT, "the clients work on the server's CPUs"
        return None

    def seal(self, sample):
        if sample["throughput"]:
            sample["per_cpu"] = sample["throughput"] / sample["cpus"]


# ------------------------------------------------------------------ clients

class Clients(Experiment):
    name, title = "clients", "the same load from different generators"
    about = ("If generators disagree about one server, the slowest figure is a generator's. "
             "Processor time of the server should differ little. `packets` has no TCP and costs "
             "the client least; its server meets fewer acknowledgements.")
    x_label, x_log, x_named = "generator", False, True
    KINDS = ("wrk", "h2load", "ab", "load")
    tools = ("curl", "wrk", "h2load", "ab")

    def make_points(self, opts):
        kinds = self.KINDS + (() if opts.remote else ("packets",))
        return [Point(i, name) for i, name in enumerate(kinds)]

    def load(self, run, point, server):
        if point.label == "load":
            return Ours(64, list=one_file(run, SMALL, 1024))
        return {"wrk": Wrk, "h2load": loads.H2load, "ab": loads.Ab,
                "packets": loads.Packets}[point.label](64, SMALL)
