# SPDX-License-Identifier: GPL-2.0
"""The load generators: wrk, h2load, ab and httperf, and load.c for the rest.

A load defines how to run one client, or each of several that share it, and converts the
client's output into one form: requests, bytes, seconds, errors, statuses (wrong ones),
kinds, and latencies if the client reports them.
"""
from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable

from lab import HERE
from messages import Problem, notify
from servers import PORT, part

if TYPE_CHECKING:
    from lab import Lab
    from servers import Server

OVERTIME_S = 60             # a client that is not done by then will never be
SAY_S = 30                  # of silence are enough
HTTPERF_FDS = 1000          # of the FD_SETSIZE that it is compiled with


class Load:
    """A client has one thread, so several share a load if there are CPUs for them.

    share: (the number of a client, the number or the weights of all), for its part of the
    load.
    """

    tool = ""
    descriptors = 0
    in_flight = 0               # requests in flight all the time; 0: it depends on a rate
    one_reply = False           # all replies are alike, and all their bytes counted
    reports_lost = True         # it reports requests without a reply
    verifies = False            # it compares bodies with their CRC-32 itself
    reports_cpus = False        # and reports how long the CPUs were idle
    counts_answered = False     # of its connections, not those that are open
    prints_ready = False        # it reports open connections, then awaits the end of stdin

    def most(self) -> int:
        """How many clients can share the load; 1: it cannot be divided."""
        return 1

    def clients(self, cpus: int | Iterable[int]) -> Any:
        """How many clients share it, each on a CPU of its own; twice as many could."""
        return max(1, min(cpus, self.most() // 2))

    def argv(self, server: Server, seconds: float, share: tuple) -> None:
        raise NotImplementedError

    def read(self, out: str) -> None:
        raise NotImplementedError

    def limit_s(self, seconds: float) -> float:
        return seconds + OVERTIME_S

    def abandon(self, lab: Lab) -> None:
        """Remove what a client that was killed has left."""


def weights_of(share: tuple) -> Any:
    return [1] * share[1] if isinstance(share[1], int) else share[1]


def fraction(share: tuple) -> Any:
    """The part of a load for that client."""
    weights = weights_of(share)
    return weights[share[0]] / sum(weights)


def part_of(total: float, share: tuple) -> int:
    """The part of the nr-th of this many clients; all parts add up to the total."""
    nr, weights = share[0], weights_of(share)

    def up_to(i: int) -> int:
        return int(total * sum(weights[:i]) / sum(weights) + 1e-9)
    return up_to(nr + 1) - up_to(nr)


def need(tool: str) -> str:
    path = shutil.which(tool)
    if not path:
        raise Problem(f"{tool} is missing: run `sudo make deps`, or install its package")
    return path


def host_port(server: Server) -> tuple[str, str]:
    host, _, port = server.authority.rpartition(":")
    return host.strip("[]"), port or str(PORT)


class Wrk(Load):
    """Keep-alive connections, each with one request in flight: a closed loop."""

    tool = "wrk"
    one_reply = True
    reports_lost = False

    def __init__(self, connections: float, path: str, headers: Iterable[str] = (),
                 timeout_s: int = 8) -> None:
        self.connections, self.path, self.headers = connections, path, list(headers)
        self.timeout_s, self.descriptors, self.in_flight = timeout_s, connections, connections

    def most(self) -> float:
        return self.connections

    def argv(self, server: Server, seconds: float, share: tuple) -> list:
        return [need("wrk"), "-t", "1", "-c", str(part_of(self.connections, share)),
                "-d", f"{max(1, math.ceil(seconds))}s", "--timeout", f"{self.timeout_s}s",
                "-s", os.path.join(HERE, "wrk.lua"), f"http://{server.authority}{self.path}",
                "--", "0", "0", *(f"{n}: {v}" for n, v in self.headers)]

    def read(self, out: str) -> dict | None:
        m = re.search(r"^JSON (\{.*\})$", out, re.M)
        return dict(json.loads(m.group(1)), kinds={}) if m else None


class H2load(Wrk):
    tool = "h2load"

    def argv(self, server: Server, seconds: float, share: tuple) -> list:
        return [need("h2load"), "--h1", "-t", "1", "-c", str(part_of(self.connections, share)),
                "-D", f"{max(1, math.ceil(seconds))}", f"http://{server.authority}{self.path}"]

    def read(self, out: str) -> dict | None:
        m = re.search(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, "
                      r"(\d+) failed, (\d+) errored, (\d+) timeout", out)
        took = re.search(r"finished in ([\d.]+)(us|ms|s|m)", out)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
        size = re.search(r"traffic: .*?\((\d+)\) total", out)
        if not (m and took and codes and size):
            return None
        seconds = float(took.group(1)) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[took.group(2)]
        wrong = sum(int(x) for x in codes.groups()[1:])
        return {"requests": int(codes.group(1)), "bytes": int(size.group(1)), "seconds": seconds,
                "errors": max(0, int(m.group(4)) - wrong) + int(m.group(6)),
                "statuses": wrong, "kinds": {}}


class Ab(Wrk):
    """HTTP/1.0 with keep-alive, which only ab still supports."""

    tool = "ab"
    one_reply = False           # of the reply to HTTP/1.0, which may differ from the known one
    reports_lost = True

    def argv(self, server: Server, seconds: float, share: tuple) -> list:
        return [need("ab"), "-q", "-k", "-r", "-s", str(self.timeout_s), "-t",
                str(max(1, math.ceil(seconds))), "-n", "100000000", "-c",
                str(part_of(self.connections, share)),
                f"http://{server.authority}{self.path}"]

    def read(self, out: str) -> dict | None:
        def number(name: str, default: Any = None) -> Any:
            m = re.search(rf"^{name}:\s+([\d.]+)", out, re.M)
            return float(m.group(1)) if m else default

        if number("Complete requests") is None:
            return None
        return {"requests": int(number("Complete requests")),
                "bytes": int(number("Total transferred", 0)),
                "seconds": number("Time taken for tests"),
                "errors": int(number("Failed requests", 0)),
                "statuses": int(number("Non-2xx responses", 0)), "kinds": {}}


class Ours(Load):
    """load.c, with its options as keywords."""

    tool = "load"
    prints_ready = verifies = True
    SHARED = ("connections", "active", "rate")

    def __init__(self, connections: int | float = 1, sources: list = (), **options: Any) -> None:
        self.options = dict(options, connections=connections)
        self.descriptors, self.sources = connections, sources
        if not (options.get("rate") or options.get("once")):
            self.in_flight = options.get("active", connections)

    def most(self) -> Any:
        return 1 if self.options.get("once") else \
            self.options.get("active", self.options["connections"])

    def clients(self, cpus: Iterable[int]) -> Any:
        """An open loop has one client: requests of several would arrive in bunches."""
        return 1 if self.options.get("rate") else super().clients(cpus)

    def argv(self, server: Server, seconds: float, share: tuple) -> list[str]:
        program = part("load")
        if not os.access(program, os.X_OK):
            raise Problem("the generator `load` is not built: run `make`")
        ret = [program, "--wait", "--seconds", f"{seconds:g}"]
        for key, value in self.options.items():
            name = "--" + key.replace("_", "-")
            if value is True:
                ret.append(name)
            elif isinstance(value, (list, tuple)):
                for one in value:
                    ret += [name, str(one)]
            elif value not in (None, False):
                if key in self.SHARED:
                    value = value * fraction(share) if key == "rate" else part_of(value, share)
                ret += [name, f"{value:g}" if isinstance(value, float) else str(value)]
        sources = server.sources if self.descriptors > 20000 else self.sources
        if sources:
            ret += ["--source", ",".join(sources)]
        return ret + [str(word) for word in host_port(server)]

    def read(self, out: str) -> dict | None:
        m = re.search(r"^(\{.*\})$", out, re.M)
        return json.loads(m.group(1)) if m else None


class Loop(Load):
    """loop.c: a closed loop inside the kernel, faster than any server; only in the lab."""

    tool = "loop"
    one_reply = False           # it checks every length
    prints_ready = verifies = reports_cpus = counts_answered = True

    def __init__(self, connections: int, rows: Any, **options: Any) -> None:
        """rows: a list file in the format of load.c; source: from lab.nowhere(iface)."""
        self.options = dict(options, connections=connections, list=rows)
        self.in_flight = self.descriptors = connections     # of the server: our client has none
        self.iface = None       # where it runs

    def argv(self, server: Server, seconds: float, share: tuple) -> list:
        program = part("loop")
        if not os.access(program, os.X_OK):
            raise Problem("the generator `loop` is not built: run `make`")
        mac = server.lab.lead_nowhere(server.iface, server.sources[0])
        self.iface = server.iface
        ret = [program, "--wait", "--seconds", f"{seconds:g}", "--object", part("loop.bpf.o")]
        for key, value in self.options.items():
            name = "--" + key.replace("_", "-")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one not in (None, False):
                    ret += [name] if one is True else [name, str(one)]
        return [*ret, server.iface, mac, *(str(word) for word in host_port(server))]

    def abandon(self, lab: Lab) -> None:
        """Its program would go on without it, and send requests for ever."""
        lab.bare_client(self.iface)

    def read(self, out: str) -> dict | None:
        m = re.search(r"^(\{.*\})$", out, re.M)
        return json.loads(m.group(1)) if m else None


class Packets(Load):
    """packets.c: requests without a client's TCP; only in the lab."""

    tool = "packets"
    reports_lost = False        # it repeats requests without end

    def __init__(self, connections: int, path: str) -> None:
        self.connections, self.path = connections, path

    def most(self) -> int:
        return self.connections

    def clients(self, cpus: Iterable[int]) -> int:
        """One client: each would see the packets for all of them."""
        return 1

    def argv(self, server: Server, seconds: float, share: tuple) -> list:
        program = part("packets")
        if not os.access(program, os.X_OK):
            raise Problem("the generator `packets` is not built: run `make`")
        mac, source = server.lab.nobody(server.iface)
        return [program, server.iface, mac, source, *host_port(server), self.path,
                str(part_of(self.connections, share)), f"{seconds:g}"]

    def read(self, out: str) -> dict | None:
        m = re.search(r"^(\{.*\})$", out, re.M)
        if not m:
            return None
        ret = json.loads(m.group(1))
        ret["kinds"] = {k: v for k, v in ret["kinds"].items() if v}
        return ret


class Httperf(Load):
    """Connections started at a rate, independent of earlier ones: an open loop."""

    tool = "httperf"

    def __init__(self, rate: float, calls: int = 1, path: str = "/", timeout_s: int = 5,
                 sessions: Any = None) -> None:
        self.rate, self.calls, self.path, self.timeout_s = rate, calls, path, timeout_s
        self.sessions = sessions        # (file, how many, default think time, longest of all)
        self.one_reply = not sessions

    def most(self) -> int:
        return 1 if self.sessions else max(2, int(self.rate))

    def clients(self, cpus: Iterable[int]) -> int:
        """One client a machine: in an open loop requests of several would arrive in bunches."""
        return 1

    def argv(self, server: Server, seconds: float, share: tuple) -> list[str]:
        host, port = host_port(server)
        ret = [need("httperf"), "--hog", "--server", host, "--port", port,
               "--timeout", str(self.timeout_s), "--rate",
               f"{self.rate * fraction(share):g}"]
        if self.sessions:
            file, nr, think, _ = self.sessions
            return ret + ["--wsesslog", f"{nr},{think:g},{file}"]
        return ret + ["--uri", self.path, "--num-calls", str(self.calls), "--num-conns",
                      str(max(1, round(self.rate * fraction(share) * seconds)))]

    def limit_s(self, seconds: float) -> float:
        """The time limit: the last session begins when it is due, and has its think times then."""
        if self.sessions:
            seconds = self.sessions[1] / self.rate + self.sessions[3]
        return super().limit_s(seconds)

    def read(self, out: str) -> dict | None:
        got = httperf_numbers(out)
        if not got:
            return None
        wrong = got["status_1xx"] + got["status_3xx"] + got["status_4xx"] + got["status_5xx"]
        kinds = {k: v for k, v in got["errors_by_kind"].items() if v}
        return {"requests": got["replies"] - wrong,
                "bytes": round(got["replies"] * got["reply_bytes"]),
                "seconds": got["seconds"], "errors": got["errors_total"], "statuses": wrong,
                "kinds": kinds, "p50_us": None, "httperf": got}


def httperf_numbers(out: str) -> dict | None:
    """The figures of httperf's report, or None if the text is not a report."""
    ret = {}

    def take(pattern: str, *names: Any, kind: type[int] = float) -> bool:
        m = re.search(pattern, out)
        for name, value in zip(names, m.groups() if m else [0] * len(names)):
            ret[name] = kind(value)
        return bool(m)

    if not take(r"Total: connections (\d+) requests (\d+) replies (\d+)", "connections",
                "requests", "replies", kind=int):
        return None
    take(r" --rate=([\d.e+-]+)", "rate")
    take(r"test-duration ([\d.]+) s", "duration")
    take(r"Connection rate: ([\d.]+)", "con_rate")
    take(r"Connection time \[ms\]: min ([\d.]+) avg ([\d.]+) max ([\d.]+) median ([\d.]+) "
         r"stddev ([\d.]+)", "con_min_ms", "con_avg_ms", "con_max_ms", "con_median_ms",
         "con_stddev_ms")
    take(r"Request rate: ([\d.]+)", "req_rate")
    take(r"Reply rate \[replies/s\]: min ([\d.]+) avg ([\d.]+) max ([\d.]+) stddev ([\d.]+) "
         r"\((\d+) samples", "rep_min", "rep_avg", "rep_max", "rep_stddev", "rep_samples")
    take(r"Reply time \[ms\]: response ([\d.]+) transfer ([\d.]+)", "resp_ms", "transfer_ms")
    take(r"Reply status: 1xx=(\d+) 2xx=(\d+) 3xx=(\d+) 4xx=(\d+) 5xx=(\d+)",
         *(f"status_{i}xx" for i in range(1, 6)), kind=int)
    take(r"Reply size \[B\]: .*\(total ([\d.]+)\)", "reply_bytes")
    take(r"Net I/O: ([\d.]+) KB/s", "net_kb_s")
    take(r"Errors: total (\d+)", "errors_total", kind=int)
    ret["errors_by_kind"] = {name: int(nr) for name, nr in re.findall(
        r"(client-timo|socket-timo|connrefused|connreset|fd-unavail|addrunavail|ftab-full|other) "
        r"(\d+)", out)}
    take(
        r"Session rate \[sess/s\]: min [\d.]+ avg ([\d.]+) max [\d.]+ stddev [\d.]+ "
        r"\((\d+)/(\d+)\)",
         "sess_rate", "sess_done", "sess_total")
    take(r"Session lifetime \[s\]: ([\d.]+)", "sess_life_s")
    # It ends with the last reply; each rate counts the time to the next one, the last too.
    due = ret["sess_total"] or ret["connections"]
    ret["seconds"] = max(ret["duration"], due / ret["rate"] if ret["rate"] else 0.0)
    if not ret["rep_samples"] and ret["seconds"]:
        # It samples every 5 s: a shorter run has only its mean.
        ret["rep_min"] = ret["rep_avg"] = ret["rep_max"] = ret["replies"] / ret["seconds"]
    return ret


def merged_httperf(reports: Any) -> dict:
    """Merge httperfs that ran at the same time: rates add up, times are weighted by replies."""
    ret, replies = dict(reports[0]), sum(h["replies"] for h in reports)
    for key in ("connections", "requests", "replies", "rate", "con_rate", "req_rate", "rep_min",
                "rep_avg", "rep_max", "net_kb_s", "errors_total"):
        ret[key] = sum(h[key] for h in reports)
    for key in ("resp_ms", "transfer_ms"):
        ret[key] = sum(h[key] * h["replies"] for h in reports) / replies if replies else 0
    ret["rep_stddev"] = math.hypot(*(h["rep_stddev"] for h in reports))
    for key in ("seconds", "duration"):
        ret[key] = max(h[key] for h in reports)
    return ret


def merged(results: list) -> dict:
    """Merge the figures of clients that ran at the same time."""
    ret = dict(results[0])
    if len(results) > 1 and "httperf" in ret:
        ret["httperf"] = merged_httperf([r["httperf"] for r in results])
    for key in ("requests", "bytes", "sent", "errors", "statuses", "late", "opened", "connects",
                "conforming"):
        if key in ret:
            ret[key] = sum(r.get(key, 0) for r in results)
    ret["seconds"] = max(r["seconds"] for r in results)
    ret["kinds"] = {}
    for res in results:
        for kind, nr in res.get("kinds", {}).items():
            ret["kinds"][kind] = ret["kinds"].get(kind, 0) + nr
    for key in ("mean_us", "p50_us", "p90_us", "p99_us", "max_us"):
        values = [r[key] for r in results if r.get(key) is not None]
        if values:          # of the clients that waited longest
            ret[key] = max(values)
    return ret


def started(lab: Lab, load: Load, server: Server, seconds: float, parts: int = 1,
            begin: Callable[[], None] | None = None) -> tuple[list[subprocess.Popen], list]:
    """The clients of a load, running: (processes, their command lines).

    parts: the number of clients here, or a hosts.Part for each client elsewhere.

    begin() is called right before the first request, when those clients that open their
    connections beforehand have opened them, so that this work is not part of the load.
    """
    hosts = [None] * parts if isinstance(parts, int) else [part.host for part in parts]
    weights = parts if isinstance(parts, int) else [part.weight for part in parts]
    argvs = [load.argv(server, seconds, (nr, weights)) for nr in range(len(hosts))]
    run = [host.argv(argv, load.limit_s(seconds)) if host else argv
           for host, argv in zip(hosts, argvs)]
    if begin and not load.prints_ready:
        begin()
    procs = [lab.spawn_client(argv, nr, len(run), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for nr, argv in enumerate(run)]
    for proc, host in zip(procs, hosts):
        proc.host = host
    if load.prints_ready:
        for proc in procs:
            proc.stdout.readline()
        try:
            if begin:
                begin()
        except Problem:
            for proc in procs:
                lab.end(proc)
            raise
    for proc in procs:
        proc.stdin.close()
        proc.stdin = None
    return procs, [["ssh", host.name, *argv] if host else argv
                   for host, argv in zip(hosts, argvs)]


def wait_for(tool: str, proc: subprocess.Popen, began: float, limit_s: float) -> tuple:
    """(its stdout, its stderr); prints a line from time to time while it runs."""
    while True:
        spent = time.monotonic() - began
        try:
            return proc.communicate(timeout=max(0, min(limit_s - spent, SAY_S - spent % SAY_S)))
        except subprocess.TimeoutExpired as e:
            spent = time.monotonic() - began
            if spent >= limit_s:
                raise Problem(f"{tool}: still running {limit_s:g} s after its start") from e
            notify(f"  {tool} has run for {spent:.0f} s")


def finished(lab: Lab, load: Load, procs: list, limit_s: float) -> dict:
    """The merged results of the clients."""
    results, cpus, began = [], {}, time.monotonic()
    try:
        for proc in procs:
            out, err = wait_for(load.tool, proc, began, limit_s)
            got, host = load.read(out), getattr(proc, "host", None)
            if not got:
                why = (err.strip() or out.strip() or f"exit {proc.returncode}").splitlines()[-1]
                raise Problem(f"{load.tool}{f' on {host.name}' if host else ''}: {why}")
            results.append(got)
            if host:
                cpus[host.name] = host.cpu_of(out)
    finally:
        for proc in procs:
            lab.end(proc)
        if any(proc.returncode < 0 for proc in procs):
            load.abandon(lab)
    ret = merged(results)
    if cpus:
        ret["client_cpus_of"] = cpus
    return ret


def run(lab: Lab, load: Load, server: Server, seconds: float, parts: int = 1,
        begin: Callable[[], None] | None = None) -> tuple[dict, list]:
    """(the results of the clients, their command lines)"""
    procs, argvs = started(lab, load, server, seconds, parts, begin)
    return finished(lab, load, procs, load.limit_s(seconds)), argvs
