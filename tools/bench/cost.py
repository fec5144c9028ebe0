# SPDX-License-Identifier: GPL-2.0
"""The processor time of a request in the server, compared with nginx, in one run.

Two network namespaces are joined by veth pairs (MTU 1500), one pair per server, so
that none pays for another's programs. Servers are pinned to CPU 0 and clients to CPU 1,
and receive work is steered in the same way. So the work of CPU 0 is the cost of the
server's side: sockets, interrupts and BPF included. Servers take turns (A B C, C B A, ...);
a row is the median of its repeats' ratios. A sample with one error, one wrong status or
one reply of an unexpected length is never averaged in.
"""
from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import time
import zlib
from typing import Any, Iterable

import fileset
import lab as laboratory
import loads
from option_types import not_negative, whole
from engine import VERIFY_NR, Check, wrong_text
from lab import HERE, Lab, check_machine
from meters import (FORKS_MAX, QUIET_SHARE, QUIET_WAIT_S, Core, Others, Patience, machine,
                    ran_s, resident)
from messages import Problem, notify
from servers import BUILD, PORT, Bare, Nginx, Origin, Reflector, Toboggan
from servers import binary, fetch, part, settle

SERVER_CPU, CLIENT_CPU = 0, 1
IDLE_CONNECTIONS = 10000
OBJECTS = 100000
TREND = 8                       # runs of this build that the row `parse` shows
LOADS = 7                       # of its program in one run
# Responses of several segments: row, body. The last is 14 KiB with its head, the largest
# round figure that fits into ten segments of 1,448 bytes.
SIZES = {"wire-4k": 4096, "wire-8k": 8192, "wire-14k": 14336 - 400}
SOCK_SIZES = {"sock-1k": 1024, "sock-8k": 8192, "sock-16k": 16384, "sock-32k": 32768,
              "sock-64k": 65536}

# A request head of 600 bytes, as a browser sends it; Host and the request
# line are added by the client and the cookie is filled up to the length.
BROWSER_LEN = 600


def client(lab: Lab, argv: list[str], seconds: float) -> Any:
    proc = lab.spawn_client(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    try:
        out, err = proc.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired as e:
        raise Problem(f"{argv[0]}: still running 60 s after its time") from e
    finally:
        lab.end(proc)
    m = re.search(r"^(?:JSON )?(\{.*\})$", out, re.M)
    if proc.returncode or not m:
        why = (err.strip() or out.strip() or f"exit {proc.returncode}").splitlines()[0]
        raise Problem(f"{argv[0]}: {why}")
    return json.loads(m.group(1))


class Scenario:
    """One kind of request, sent to several servers in turn."""

    def __init__(self, name: str, servers: list[str], connections: int = 256, path: str = "/1k.jpg",
                 headers: Iterable[str] = (), status: int = 200, objects: int = 0,
                 cached: bool = True, file: str | None = "", part: slice = slice(None),
                 page: tuple[str, int] | None = None) -> None:
        self.name, self.servers, self.connections = name, servers, connections
        self.cached = cached    # small and fresh, so that a kernel tier answers
        self.path, self.headers, self.status, self.objects = path, headers, status, objects
        self.file, self.part = file, part   # file: with the expected bytes; None: unknown
        self.page = page                    # (file, size) in a page that a module makes
        self.checks = {}
        self.samples = {s.name: [] for s in servers}

    def argv(self, server: Any, seconds: float, walk: bool = False, connections: int | None = None,
             objects: int | None = None) -> list:
        if isinstance(server, Reflector):
            # As long on the wire as wrk's request: TCP's header with
            # timestamps is 24 bytes longer than UDP's.
            payload = len(f"GET {self.path} HTTP/1.1\r\nHost: {server.addr}:{PORT}\r\n\r\n") + 24
            return [part("reflect_load"), server.addr, str(PORT),
                    str(self.connections), str(payload), str(seconds)]
        return ["wrk", "-t", "1", "-c", str(connections or self.connections),
                "-d", f"{max(1, round(seconds))}s",
                "--timeout", "8s", "-s", os.path.join(HERE, "wrk.lua"),
                f"http://{server.addr}:{PORT}{self.path}", "--",
                str(objects or self.objects), "1" if walk else "0",
                *(f"{n}: {v}" for n, v in self.headers)]

    def row(self, server: Any, path: str) -> tuple[str, int | None, int | None]:
        """(path, length, CRC-32) of the right answer."""
        if self.page:
            body = server.pages().body("/spec", self.page[0], *self.page)
        elif self.file is None:
            return path, None, None
        else:
            with open((server.origin or server).root + (self.file or path), "rb") as f:
                body = f.read()[self.part]
        return path, len(body), zlib.crc32(body)

    def prepare(self, server: Any) -> None:
        server.start()
        paths = [f"/o/{i}" for i in range(self.objects)] or [self.path]
        rows = [self.row(server, path) for path in random.sample(paths, min(len(paths), VERIFY_NR))]
        want = "" if not self.cached or not isinstance(server, Toboggan) else \
            "hit" if server.tier == "user" else f"detail={server.tier}"
        self.checks[server.name] = Check(rows[0][0], self.status, self.headers, rows[0][2],
                                         want, rows)
        self.check(server)

    def check(self, server: Any) -> Check | None:
        """Bytes of one reply, once the tier of the row answers."""
        check = self.checks[server.name]
        reply_len = check.settle(self.lab, server)
        wrong, nr = check.verify(self.lab, server, loads.Wrk(self.connections, self.path))
        if wrong:
            raise Problem(f"{server.name}: {wrong_text(wrong, nr)}")
        return reply_len

    def measure(self, server: Any, seconds: float, patience: Patience) -> dict:
        """One sample, or a Problem."""
        http = not isinstance(server, Reflector)
        reply_len = self.check(server)
        before = server.ask("stats") if isinstance(server, Toboggan) else None
        ours = self.lab.pids()
        just_now, idle = patience.wait(ours)
        pids, core, others = server.pids(), Core({SERVER_CPU}), Others(ours)
        ran = ran_s(pids)
        got = client(self.lab, self.argv(server, seconds), seconds)
        now = core.since()
        ran = ran_s(pids) - ran
        others_s, forks = others.since_s(), others.forks() - others.forks_before
        after = Core({SERVER_CPU})
        time.sleep(0.3)
        after = after.since()
        left = after["share"]
        nr = got["requests"]
        if not nr:
            raise Problem(f"{server.name}: no reply at all")
        if got["errors"] or got.get("statuses"):
            raise Problem(f"{server.name}: {got['errors']} errors and "
                          f"{got.get('statuses', 0)} wrong statuses in {nr} requests")
        # wrk stops within replies: the last few may be truncated or uncounted.
        slack = self.connections * reply_len + 0.005 * nr * reply_len
        if http and abs(got["bytes"] - nr * reply_len) > slack:
            raise Problem(f"{server.name}: {got['bytes'] / nr:.0f} bytes a reply, "
                          f"not {reply_len}")
        self.check(server)
        stats = server.ask("stats") if before is not None else None
        if stats and "wire" in server.tiers and self.cached:
            hits = stats["tiers"]["wire"]["requests"] - before["tiers"]["wire"]["requests"]
            if hits < 0.98 * nr:
                raise Problem(f"{server.name}: wire answered only {hits} of {nr} requests; "
                              "see toboggan stats")
        busy = max(0.0, now["busy_s"] - idle * now["wall_s"])
        return {"requests": nr, "bytes": got["bytes"], "rate": nr / got["seconds"],
                "cpu_ns": busy / nr * 1e9, "cpu_ns_per_kib": busy / got["bytes"] * 1e9 * 1024
                if got["bytes"] else None,
                "core_share": now["share"], "idle_share": idle,
                "ran_ns": ran / nr * 1e9, "not_idle_ns": now["not_idle_s"] / nr * 1e9,
                "steal_share": now["steal_s"] / now["wall_s"],
                "others_s": others_s, "forks": forks,
                "disturbed": forks > FORKS_MAX or max(just_now, left) > 3 * QUIET_SHARE or
                others_s > 0.03 * now["busy_s"] + 0.04 or
                now["steal_s"] > 0.02 * now["wall_s"],
                "p50_us": got.get("p50_us"), "p99_us": got.get("p99_us"),
                "stats_before": before,
                "stats_after": stats}


# ---------------------------------------------------------------- rows

class Row:
    """One line of the table: one figure of A compared with B, or with a limit."""

    def __init__(self, key: str, what: str, scenario: Scenario | None, ours: str,
                 theirs: str | None, target: float | None, figure: str = "cpu_ns") -> None:
        self.key, self.what, self.scenario, self.figure = key, what, scenario, figure
        self.ours, self.theirs, self.target = ours, theirs, target
        self.problem = self.value = self.unit = None

    def result(self) -> dict:
        """dict for the table and for --json."""
        ret = {"row": self.key, "what": self.what, "target": self.target, "problem": self.problem}
        if self.value is not None:
            ret.update(ours=self.value, unit=self.unit, ratio=self.value / self.target,
                       verdict="PASS" if self.value <= self.target else "MISS")
            return ret
        pairs = [(a, b) for a, b in zip(self.scenario.samples.get(self.ours, []),
                                        self.scenario.samples.get(self.theirs, []))
                 if a and b] if self.scenario else []
        if not pairs:
            ret.update(verdict="NONE", against=self.theirs, problem=self.problem or "no sample")
            return ret
        clean = [p for p in pairs if not (p[0]["disturbed"] or p[1]["disturbed"])]
        noisy = 2 * len(clean) < len(pairs)     # too few for a median
        pairs = pairs if noisy else clean
        ratios = [a[self.figure] / b[self.figure] for a, b in pairs]
        ratio = statistics.median(ratios)
        ret.update(ours=statistics.median(a[self.figure] for a, _ in pairs),
                   theirs=statistics.median(b[self.figure] for _, b in pairs),
                   against=self.theirs, unit="ns" if self.figure == "cpu_ns" else "ns/KiB",
                   ratio=ratio, ratio_min=min(ratios), ratio_max=max(ratios),
                   pairs=len(pairs), disturbed=noisy,
                   verdict="NOISY" if noisy else "INFO" if self.target is None else
                   "PASS" if ratio <= self.target else "MISS")
        return ret


ROWS = {
    "wire": "1 KiB keep-alive GET, wire against nginx",
    "wire-reflect": "1 KiB keep-alive GET, wire against reflecting the packet",
    "wire-header": "the same with a 600-byte browser's head, wire against nginx",
    "wire-304": "If-None-Match answered 304, wire against nginx",
    "wire-4k": "4 KiB keep-alive GET, wire against nginx",
    "wire-8k": "8 KiB keep-alive GET, wire against nginx",
    "wire-14k": "a response of 14 KiB, wire against nginx",
    "user": "1 KiB keep-alive GET, user tier against nginx",
    "user-gzip": "a text with a .gz beside it, user tier against nginx (gzip_static)",
    "user-304": "If-None-Match answered 304, user tier against nginx",
    "user-bare": "the same, user tier against a loop that parses nothing",
    "user-range": "200 bytes of 1 KiB, user tier against nginx",
    **{key: f"{size >> 10} KiB keep-alive GET, sock against the user tier and nginx"
       for key, size in SOCK_SIZES.items()},
    "large": "1 MiB file, processor time per byte against nginx",
    "proxy": "1 KiB from an upstream, not to be stored, against nginx as a proxy",
    "proxy-bare": "the same, against a loop that forwards what it receives",
    "proxy-large": "1 MiB from an upstream, not to be stored, against nginx as a proxy",
    "dynamic": "1 KiB page made by a module, against nginx with FastCGI to the same module",
    "objects": f"a hit among {OBJECTS:,} objects against one among 10",
    "parse": "a Chrome head of 20 fields parsed and looked up in BPF (BPF_PROG_TEST_RUN)",
    "memory": "resident memory without the cache budget",
    "idle": f"user memory of each of {IDLE_CONNECTIONS:,} idle connections",
}


def browser_headers(addr: Any, path: str) -> list[tuple[str, str]]:
    """BROWSER and a cookie that makes the whole head BROWSER_LEN bytes."""
    fixed = f"GET {path} HTTP/1.1\r\nHost: {addr}:{PORT}\r\n" + \
        "".join(f"{n}: {v}\r\n" for n, v in fileset.BROWSER) + "Cookie: id=\r\n\r\n"
    return fileset.BROWSER + \
           [("Cookie", "id=" + "0123456789abcdef"[:1] * (BROWSER_LEN - len(fixed)))]


def make_site(lab: Lab, objects: int) -> None:
    def put(path: str, what: int | bytes | str | None) -> None:
        with open(path, "wb") as f:
            f.write(what if isinstance(what, bytes) else os.urandom(what))
        os.utime(path, (1700000000, 1700000000))

    site = os.path.join(lab.dir, "site")
    os.makedirs(site)
    put(f"{site}/1k.jpg", 1024)
    put(f"{site}/1m.bin", 1 << 20)
    text = "".join(f"<p>{i * i:x}</p>\n" for i in range(1 << 10)).encode()
    for path, data in ((TEXT, text), (TEXT + ".gz", gzip.compress(text))):
        put(site + path, data)
    for key, size in (SIZES | SOCK_SIZES).items():
        put(f"{site}/{key}.jpg", size)
    fileset.web99(1).make(site)
    for name, nr in (("few", 10), ("many", OBJECTS)) if objects else ():
        folder = os.path.join(lab.dir, name, "o")
        os.makedirs(folder)
        for i in range(nr):
            put(f"{folder}/{i}", 1024)
    for folder, _, _ in os.walk(lab.dir):
        os.chmod(folder, 0o755)


PAGE_OF = fileset.web99_path(0, 1, 0), fileset.web99_size(1, 0)
TEXT = "/page.html"


def etag(lab: Lab, server: Any) -> object:
    tag = fetch(lab, server, "/1k.jpg")["etag"]
    if not tag:
        raise Problem(f"{server.name}: no ETag")
    return tag


class Bench:
    def __init__(self, lab: Lab, keys: list[str], repeats: int, seconds: float,
                 patience_s: float) -> None:
        self.lab, self.keys, self.repeats, self.seconds = lab, keys, repeats, seconds
        nginx, wire = Nginx(lab, "nginx"), Toboggan(lab, "wire")
        user, reflect = Toboggan(lab, "user", tiers="user"), Reflector(lab, "reflect")
        sock = Toboggan(lab, "sock", tiers="sock,user")
        bare = Bare(lab, "bare")
        few = Toboggan(lab, "few", memory="1G", site="few")
        many = Toboggan(lab, "many", memory="1G", site="many")
        origin = Origin(lab, "origin")
        proxy = Toboggan(lab, "proxy", tiers="user", origin=origin)
        nginx_proxy = Nginx(lab, "nginx-proxy", origin=origin)
        bare_proxy = Bare(lab, "bare-proxy", origin=origin)
        module = Toboggan(lab, "module", computes=True)
        nginx_fcgi = Nginx(lab, "nginx-fastcgi", computes=True)
        self.wire_server = wire
        self.patience = Patience({SERVER_CPU}, patience_s)

        def servers(*pairs: Any) -> list:
            return [s for s, *ks in pairs if any(k in keys for k in ks)]

        get = Scenario("1 KiB GET", servers(
            (nginx, "wire", "user"), (wire, "wire", "wire-reflect"),
            (user, "user"), (reflect, "wire-reflect")))
        head = Scenario("browser head", servers((nginx, "wire-header"), (wire, "wire-header")))
        notmod = Scenario("304", servers((nginx, "wire-304"), (wire, "wire-304")), status=304,
                          file=None)
        user_304 = Scenario("user-304", servers(
            (nginx, "user-304"), (user, "user-304", "user-bare"), (bare, "user-bare")),
                            status=304, file=None)
        of_user = {key: Scenario(key, servers((nginx, key), (user, key)), **how) for key, how in (
            ("user-gzip", {"path": TEXT, "headers": [("Accept-Encoding", "gzip")],
                           "file": TEXT + ".gz"}),
            ("user-range", {"headers": [("Range", "bytes=100-299")], "status": 206,
                            "part": slice(100, 300)}))}
        of_user["user-304"] = user_304
        large = Scenario("1 MiB", servers((nginx, "large"), (wire, "large")),
                         connections=16, path="/1m.bin", cached=False)
        sizes = {key: Scenario(ROWS[key].split(",")[0], servers((nginx, key), (wire, key)),
                               connections=64, path=f"/{key}.jpg") for key in SIZES}
        socks = {key: Scenario(ROWS[key].split(",")[0], servers((nginx, key), (user, key),
                                                                (sock, key)),
                               connections=64, path=f"/{key}.jpg") for key in SOCK_SIZES}
        proxied = {key: Scenario(key, servers((proxy, key, f"{key}-bare"), (nginx_proxy, key),
                                              (bare_proxy, f"{key}-bare")),
                                 connections=nr, path=path, cached=False)
                   for key, nr, path in (("proxy", 64, "/1k.jpg"), ("proxy-large", 16, "/1m.bin"))}
        dynamic = Scenario("dynamic", servers((module, "dynamic"), (nginx_fcgi, "dynamic")),
                           connections=64, path=f"/spec?{PAGE_OF[0]}", cached=False, page=PAGE_OF)
        objects = Scenario("objects", servers((few, "objects"), (many, "objects")), path="/o/0")
        self.scenarios = [s for s in (get, head, notmod, *sizes.values(), *of_user.values(),
                                      *socks.values(), large, *proxied.values(), dynamic, objects)
                          if s.servers]
        self.objects, self.few, self.many = objects, few, many
        self.head = head
        for s in self.scenarios:
            s.lab = lab
        table = [
            Row("wire", ROWS["wire"], get, "wire", "nginx", 1 / 8),
            Row("wire-reflect", ROWS["wire-reflect"], get, "wire", "reflect", 2),
            Row("wire-header", ROWS["wire-header"], head, "wire", "nginx", 1 / 6),
            Row("wire-304", ROWS["wire-304"], notmod, "wire", "nginx", 1 / 10),
            *(Row(key, ROWS[key], sizes[key], "wire", "nginx", 1 / 3) for key in SIZES),
            Row("user", ROWS["user"], get, "user", "nginx", 0.65),
            *(Row(key, ROWS[key], scenario, "user", "nginx", 0.65)
              for key, scenario in of_user.items()),
            Row("user-bare", ROWS["user-bare"], user_304, "user", "bare", None),
            *(Row(key, ROWS[key], socks[key], "sock", theirs, None)
              for key in SOCK_SIZES for theirs in ("user", "nginx")),
            Row("large", ROWS["large"], large, "wire", "nginx", 1.0, "cpu_ns_per_kib"),
            Row("proxy", ROWS["proxy"], proxied["proxy"], "proxy", "nginx-proxy", 0.8),
            Row("proxy-bare", ROWS["proxy-bare"], proxied["proxy"], "proxy", "bare-proxy", None),
            Row("proxy-large", ROWS["proxy-large"], proxied["proxy-large"], "proxy",
                "nginx-proxy", 0.8, "cpu_ns_per_kib"),
            Row("dynamic", ROWS["dynamic"], dynamic, "module", "nginx-fastcgi", 0.8),
            Row("objects", ROWS["objects"], objects, "many", "few", 1.15),
            Row("parse", ROWS["parse"], None, "wire", None, 400),
            Row("memory", ROWS["memory"], None, "wire", None, 20 << 20),
            Row("idle", ROWS["idle"], None, "user", None, 2048),
        ]
        self.rows = [r for r in table if r.key in keys]

    def per_server(self, scenario: Scenario, server: Any) -> None:
        """Header fields that name the server or its object."""
        if scenario is self.head:
            scenario.headers = browser_headers(server.addr, scenario.path)
        elif scenario.status == 304:
            scenario.headers = [("If-None-Match", etag(self.lab, server))]
        elif scenario is self.objects:
            scenario.objects = OBJECTS if server is self.many else 10

    def publish(self, server: Any) -> None:
        """Request every object until the server has stored them all."""
        nr = OBJECTS if server is self.many else 10
        scenario = Scenario("publish", [server], path="/o/0")
        for attempt in range(6):
            client(self.lab, scenario.argv(server, 8, walk=True, connections=32, objects=nr), 8)
            stored = server.stored()
            notify(f"publish {server.name}: {stored} of {nr} objects")
            if stored >= nr:
                return
        raise Problem(f"{server.name}: only {stored} of {nr} objects published")

    def fail(self, scenario: Any, server: Any, problem: Problem) -> None:
        notify(f"  cannot measure {scenario.name}, {server.name}: {problem}")
        for row in self.rows:
            if row.scenario is scenario and server.name in (row.ours, row.theirs):
                row.problem = row.problem or str(problem)

    def scenario_run(self, scenario: Any) -> None:
        alive = []
        for server in scenario.servers:
            try:
                server.start()
                self.per_server(scenario, server)
                if scenario is self.objects:
                    self.publish(server)
                scenario.prepare(server)
                client(self.lab, scenario.argv(server, 1), 1)       # warm
                alive.append(server)
            except Problem as e:
                self.fail(scenario, server, e)
        for rep in range(self.repeats):
            for server in alive if rep % 2 == 0 else alive[::-1]:
                sample = None
                try:
                    self.per_server(scenario, server)
                    for _ in range(3):
                        sample = scenario.measure(server, self.seconds, self.patience)
                        if not sample["disturbed"] or self.patience.left_s <= 0:
                            break
                    notify(f"{scenario.name}: {server.name} {rep + 1}/{self.repeats}: "
                           f"{sample['cpu_ns']:,.0f} ns, {sample['rate']:,.0f}/s, "
                           f"CPU {SERVER_CPU} {sample['core_share']:.0%} busy" +
                           (f", DISTURBED by {sample['others_s']:.2f} s of other work, "
                              f"{sample['forks']} forks"
                              if sample["disturbed"] else ""))
                except Problem as e:
                    self.fail(scenario, server, e)
                scenario.samples[server.name].append(sample)

    def parse(self, row: Any) -> None:
        """The figure of tests/bpf/core, and those of the runs before it in this build.

        It is the median of several loads: the place in memory in which the kernel's compiler
        puts a program changes its time by up to two thirds.
        """
        folder = os.path.join(HERE, "../../tests/bpf")
        program = os.path.join(BUILD, "tests/bpf/core")
        if not os.access(program, os.X_OK):
            raise Problem(f"{program}: not built; run `make -C tests/bpf` in a checkout")
        loaded = []
        for _ in range(LOADS):
            out = subprocess.run([program, "t_cost_of_a_request"], cwd=folder,
                                 stdout=subprocess.PIPE, text=True, check=False).stdout
            m = re.search(r"with lookup +(\d+) ns.* chrome_900$", out, re.M)
            if not m:
                raise Problem(f"{program}: {(out.strip().splitlines() or ['no output'])[-1]}")
            loaded.append(int(m.group(1)))
        notify("parse: loaded " + ", ".join(map(str, loaded)) + " ns")
        row.value, row.unit = int(statistics.median(loaded)), "ns"
        trend = os.path.join(BUILD, "tools/bench/lookup.trend")
        with open(trend, "a+", encoding="utf-8") as f:
            f.write(f"{row.value}\n")
            f.seek(0)
            notify("parse: " + ", ".join(f.read().split()[-TREND:]) + " ns, the newest last")

    def memory(self, row: Any) -> None:
        server = self.wire_server
        server.start()
        settle(self.lab, server, "/1k.jpg")
        total, cache = resident(server.pids())
        row.value, row.unit = total - cache, "bytes"
        notify(f"memory: {total / 2**20:.1f} MiB resident, {cache / 2**20:.1f} MiB of it cache")

    def idle(self, row: Any) -> None:
        server = Toboggan(self.lab, "idle", tiers="user")
        server.start()
        settle(self.lab, server, "/1k.jpg")
        before = sum(resident(server.pids())[:1])
        proc = self.lab.spawn_client([sys.executable, os.path.join(HERE, "cost.py"), "--hold",
                                      f"{server.addr}:{PORT}:{IDLE_CONNECTIONS}"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = proc.stdout.readline().strip()
        if line != f"held {IDLE_CONNECTIONS}":
            raise Problem(f"{IDLE_CONNECTIONS} connections wanted: {line or 'client died'}")
        time.sleep(1)       # let the kernel and the daemon finish the last one
        after = sum(resident(server.pids())[:1])
        row.value, row.unit = max(0, after - before) / IDLE_CONNECTIONS, "bytes"
        notify(f"idle: {before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB with "
               f"{IDLE_CONNECTIONS} connections")
        proc.stdin.close()
        self.lab.end(proc)
        self.lab.end(server.proc)

    def run(self) -> None:
        for i, scenario in enumerate(self.scenarios, 1):
            notify(f"[{i}/{len(self.scenarios)}] {scenario.name}: "
                   f"{', '.join(s.name for s in scenario.servers)}; "
                   f"{self.repeats} x {self.seconds:g} s each")
            self.scenario_run(scenario)
        for row in self.rows:
            try:
                if row.key == "parse":
                    self.parse(row)
                elif row.key == "memory":
                    self.memory(row)
                elif row.key == "idle":
                    self.idle(row)
            except (Problem, OSError) as e:
                row.problem = str(e)
                notify(f"  cannot measure {row.key}: {e}")


def hold(spec: str) -> int:
    """Child of `idle`: N connections, one answered request on each, then wait."""
    addr, port, nr = spec.split(":")
    socks = []
    try:
        for _ in range(int(nr)):
            s = socket.create_connection((addr, int(port)), timeout=10)
            s.sendall(f"GET /1k.jpg HTTP/1.1\r\nHost: {addr}\r\n\r\n".encode())
            got = 0
            while got < 1024:
                data = s.recv(65536)
                if not data:
                    raise OSError("closed by the server")
                got += len(data)
            socks.append(s)
        print(f"held {len(socks)}", flush=True)
    except OSError as e:
        print(f"after {len(socks)} connections: {e}", flush=True)
        return 1
    sys.stdin.read()
    return 0


# ---------------------------------------------------------------- report

def amount(value: Any, unit: str | None) -> str:
    if unit == "bytes" and value >= 1 << 20:
        return f"{value / 2**20:.1f} MiB"
    return f"{value:,.0f} {unit}"


def legend(results: list[dict[str, str | None]]) -> str:
    """Describe each row once: a row may compare several servers."""
    return "".join(f"  {row:13} {what}\n"
                   for row, what in {r["row"]: r["what"] for r in results}.items())


def table(results: list[dict[str, str | None]]) -> str:
    lines = [("row", "toboggan", "against", "ratio (min-max)", "target", "")]
    for r in results:
        if r["verdict"] == "NONE":
            lines.append((r["row"], "-", r["against"] or "-", "-", "",
                          f"NOT MEASURED: {r['problem']}"))
        elif "theirs" not in r:
            lines.append((r["row"], amount(r["ours"], r["unit"]), "", "",
                          "<= " + amount(r["target"], r["unit"]), r["verdict"]))
        else:
            note = " (other work in most samples)" if r["disturbed"] else ""
            note += f" ({r['problem']})" if r["problem"] else ""
            lines.append((r["row"], amount(r["ours"], r["unit"]),
                          f"{amount(r['theirs'], r['unit'])} {r['against']}",
                          f"{r['ratio']:.3f} ({r['ratio_min']:.3f}-{r['ratio_max']:.3f})",
                          "" if r["target"] is None else f"<= {r['target']:.3f}",
                          r["verdict"] + note))
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths + [0])).rstrip()
                     for line in lines)


def check_build(keys: list[str]) -> None:
    need = ["toboggand", "toboggan"] if set(keys) - {"nginx"} else []
    for path in [binary(name) for name in need] + [part("reflect.bpf.o"), part("reflect_load")]:
        if not os.path.exists(path):
            notify(f"bench: {path} is missing (run `make`); rows that need it are left out")


def options(argv: list[str]) -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="bench cost", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog="rows:\n" +
        "\n".join(f"  {k:13} {v}" for k, v in ROWS.items()) +
        "\n\nVerdicts: PASS and MISS against the target, INFO where there is none, NOISY where\n"
        "other work on the machine left too few samples. Exit 0 if every row was\n"
        "measured (with --strict: and is PASS or INFO), 1 otherwise, 2 for wrong options.\n"
        "Documentation of the method: tools/bench/METHOD.md")
    ap.add_argument("--quick", action="store_true", help="3 repeats of 2 s instead of 5 of 5 s")
    ap.add_argument("--rows", metavar="R,…", help="only these rows")
    ap.add_argument("--repeats", type=whole(), metavar="N")
    ap.add_argument("--seconds", type=whole(), metavar="S", help="per sample")
    ap.add_argument("--patience", type=not_negative, default=QUIET_WAIT_S, metavar="S",
                    help=f"for other work here to end, in all the run ({QUIET_WAIT_S})")
    ap.add_argument("--json", metavar="FILE", help="every sample, and the table, as JSON")
    ap.add_argument("--strict", action="store_true", help="exit 1 also for a MISS")
    ap.add_argument("--soak", action="store_true",
                    help="keep the server's CPU from becoming idle (see METHOD.md)")
    args = ap.parse_args(argv)
    args.keys = args.rows.split(",") if args.rows else list(ROWS)
    for key in args.keys:
        if key not in ROWS:
            ap.error(f"--rows: {key}: there are {' '.join(ROWS)}")
    args.repeats = 3 if args.repeats is None and args.quick else \
        5 if args.repeats is None else args.repeats
    args.seconds = 2 if args.seconds is None and args.quick else \
        5 if args.seconds is None else args.seconds
    return args


def measure(args: argparse.Namespace, lab: Lab) -> tuple[Bench | None, bool]:
    """(Bench, or None if nothing was measured; whether it was interrupted)."""
    bench = None
    try:
        with lab:
            if args.soak:
                lab.soak()
            notify("make the sites")
            make_site(lab, "objects" in args.keys)
            bench = Bench(lab, args.keys, args.repeats, args.seconds, args.patience)
            bench.run()
    except KeyboardInterrupt:
        notify("interrupted: what was measured so far follows")
        return bench, True
    return bench, False


def main(argv: list[str]) -> int:
    args = options(argv)
    check_machine(("ip", "tc", "nsenter", "curl", "wrk", "nginx", "sysctl"))
    check_build(args.keys)
    if not {SERVER_CPU, CLIENT_CPU} <= os.sched_getaffinity(0):
        raise Problem(f"CPUs {SERVER_CPU} and {CLIENT_CPU} are needed, one for each side")
    nofile = laboratory.raise_nofile()
    if "idle" in args.keys and nofile < IDLE_CONNECTIONS + 100:
        notify(f"bench: only {nofile} descriptors allowed: the row `idle` will fail")
    where = machine()
    os.sched_setaffinity(0, {CLIENT_CPU})
    bench, interrupted = measure(args, Lab({SERVER_CPU}, {CLIENT_CPU}))
    if not bench:
        return 130
    results = [row.result() for row in bench.rows]
    print(f"Processor time of the server's core; {where['cpu']}, Linux {where['kernel']}, "
          f"nginx {Nginx.version()}, {where['date']}\n")
    print(legend(results))
    print(table(results))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"machine": where, "command": sys.argv, "complete": not interrupted,
                       "rows": results, "samples":
                       {s.name: s.samples for s in bench.scenarios}}, f, indent=1)
    if interrupted:
        return 130
    verdicts = [r["verdict"] for r in results]
    return 1 if "NONE" in verdicts or any(r["problem"] for r in results) or \
        (args.strict and {"MISS", "NOISY"} & set(verdicts)) else 0


if __name__ == "__main__":
    sys.exit(hold(sys.argv[2]) if sys.argv[1:2] == ["--hold"] else 2)
