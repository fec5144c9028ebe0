# SPDX-License-Identifier: GPL-2.0
"""The record of a benchmark run, an output of httperf, and options of a run, for tests.

The caller has tools/bench in its path.
"""
from __future__ import annotations

from typing import Any, Callable

import bottleneck
import curves
import engine
import invoke
from messages import Problem


def refused(fn: Callable[..., Any], *args: Any, text: str = "") -> str:
    """The message with which fn refuses its arguments; it must contain text."""
    try:
        fn(*args)
    except Problem as e:
        assert text in str(e), f"{e!s} lacks {text!r}"
        return str(e)
    raise AssertionError(f"{fn.__name__}{args} was accepted")


HTTPERF = """httperf --timeout=5 --client=0/1 --server=10.0.0.1 --port=80 --uri=/a --rate=50
Maximum connect burst length: 1

Total: connections 500 requests 5000 replies 4990 test-duration 9.984 s

Connection rate: 50.1 conn/s (20.0 ms/conn, <=2 concurrent connections)
Connection time [ms]: min 0.3 avg 1.1 max 9.9 median 0.5 stddev 0.9
Connection time [ms]: connect 0.1
Connection length [replies/conn]: 10.000

Request rate: 500.8 req/s (2.0 ms/req)
Request size [B]: 66.0

Reply rate [replies/s]: min 499.0 avg 500.1 max 501.2 stddev 1.6 (2 samples)
Reply time [ms]: response 0.1 transfer 0.2
Reply size [B]: header 250.0 content 1024.0 footer 0.0 (total 1274.0)
Reply status: 1xx=0 2xx=4980 3xx=0 4xx=10 5xx=0

CPU time [s]: user 2.27 system 7.70 (user 22.7% system 77.1% total 99.9%)
Net I/O: 655.3 KB/s (5.4*10^6 bps)

Errors: total 3 client-timo 1 socket-timo 0 connrefused 0 connreset 0
Errors: fd-unavail 2 addrunavail 0 ftab-full 0 other 0
"""


def sample(point: float, server: str, repeat: int, cpu: float, **kw: Any) -> dict:
    return dict({"point": point, "server": server, "repeat": repeat, "invalid": None,
                 "refused": None, "limit": "server", "cpu_ns": cpu, "throughput": 1e9 / cpu,
                 "throughput_bps": 1e12 / cpu, "errors": 0, "statuses": 0, "disturbed": False,
                 "command": [["wrk", "-c", "64", "http://198.18.1.1:8080/x"]]}, **kw)


def record(factor: float = 1.0, complete: bool = True) -> dict:
    """A record in the format of the engine, with two servers at three sizes."""
    entry = {"name": "sizes", "title": "throughput against <size>", "about": "see `sizes`",
             "x": "connections", "x_log": True,
             "figures": [list(f) for f in curves.Sizes.figures],
             "points": [{"x": x, "label": str(x)} for x in (1, 1024, 1 << 20)],
             "left_out": [], "problems": [], "notes": [], "reference": "nginx", "derived": {},
             "servers": ["toboggan", "nginx"], "samples": []}
    for repeat in range(4):
        for i, point in enumerate(entry["points"]):
            noise = 1 + 0.01 * ((repeat * 7 + i) % 3)
            entry["samples"].append(sample(point["x"], "toboggan", repeat,
                                           1000 * (i + 1) * noise * factor))
            entry["samples"].append(sample(point["x"], "nginx", repeat, 8000 * (i + 1) * noise))
    entry["samples"][0].update(invalid="3 errors (reset 3) and 0 wrong statuses", errors=3,
                               cpu_ns=1e9)
    for s in entry["samples"]:
        if s["point"] == 1024 and s["server"] == "toboggan":
            s.update(limit="client", refused=bottleneck.refused("client"), throughput=None,
                     throughput_bps=None)
    entry["problems"].append("toboggan, 1: 3 errors (reset 3) and 0 wrong statuses")
    entry["summary"] = engine.summarise(entry)
    return {"format": engine.FORMAT, "kind": "toboggan-bench", "name": "sizes",
            "machine": {"kernel": "6.1", "build": "#1", "cpu": "a <cpu>", "cpus": 2,
                        "memory_mib": 1000, "virtual": True, "governor": "none", "system": "x",
                        "command_line": "", "sysctls": {"a.b": "1"}, "date": "2026"},
            "command": ["toboggan", "bench", "sizes"], "complete": complete,
            "ended": None if complete else "interrupted", "quick": False, "descriptors": 65536,
            "topology": {"kind": "lab", "server_cpus": [0], "client_cpus": [1], "link": "veth"},
            "servers": {"toboggan": "0.1", "nginx": "1.22"}, "repeats": 4, "seconds": 5,
            "experiments": [entry]}


def row_of(rec: dict, point: float, server: str) -> dict:
    return next(r for r in rec["experiments"][0]["summary"]
                if r["point"] == point and r["server"] == server)


def options(name: str, *words: str) -> Any:
    """The arguments of `toboggan bench name` with these words."""
    ap = invoke.parser(name)
    args = ap.parse_args(words)
    invoke.check(ap, args)
    return args
