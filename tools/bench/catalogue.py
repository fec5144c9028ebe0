# SPDX-License-Identifier: GPL-2.0
"""The commands of `toboggan bench`: name, one line about it, module.

Read by bench; the module of a command is loaded only when it runs.
"""
from __future__ import annotations

import importlib
from typing import Any

EXPERIMENTS = {
    "capacity": "requests a second of a full core, and where wire pays (the default)",
    "tiers": "cached compared with fall-through, per tier",
    "rates": "rate sweep to saturation, with autobench's columns",
    "sessions": "replay of sessions in httperf's wsesslog grammar",
    "sizes": "throughput against response size, and SPECweb99-weighted sums",
    "small": "304 and 50 to 1,000 bytes: the sizes of most responses",
    "caches": "cached, and not cached (cold page cache)",
    "cold": "files that are not cached, by size, and SPECweb99-weighted sums",
    "dynamic": "the share of dynamic requests, from none to all",
    "pages": "a module's pages, by size, and SPECweb99-weighted sums",
    "web99": "a mix like SPECweb99's: conforming connections",
    "ramp": "1 to 64 clients in a closed loop: requests and bytes a second",
    "keepalive": "1 to 100 requests on each connection",
    "objects": "10 to 1,000,000 files",
    "connections": "1 to 100,000 connections held open",
    "cpus": "1 to N processors",
    "overload": "a small page timed beside slow clients, with little memory",
    "held": "a cached page timed while the server's processes are stopped",
    "clients": "the same load from different generators, packets without TCP among them",
    "all": "all of the above in one report",
}
OTHERS = {
    "cost": ("cost", "processor time by tick on a core that is partly idle"),
    "convert": ("sessions", "make sessions of a Common or Combined access log"),
    "site": ("makesite", "make the files that the experiments ask for"),
    "compare": ("compare", "compare two runs: ratios with confidence intervals"),
    "report": ("report", "write the page and the tables of a run again"),
}


def names() -> list:
    return [*OTHERS, *EXPERIMENTS]


def overview() -> str:
    lines = ["usage: toboggan bench [COMMAND] [option ...]", "",
             "Compare the speed of web servers, on this machine or across a network.", ""]
    for title, rows in (("experiments:", EXPERIMENTS),
                        ("others:", {k: v[1] for k, v in OTHERS.items()})):
        lines += [title] + [f"  {k:12} {v}" for k, v in rows.items()] + [""]
    return "\n".join(lines + ["`toboggan bench COMMAND --help` lists the options. The default is",
                              "`capacity`, with options such as --quick and --rows.", "",
                              "toboggan-bench(1), Documentation/measuring.rst, "
                              "tools/bench/METHOD.md"])


def command(name: str) -> Any:
    """The function that runs the command; None: there is no such command."""
    if name in EXPERIMENTS:
        invoke = importlib.import_module("invoke")
        return lambda argv: invoke.main(name, argv)
    if name in OTHERS:
        return importlib.import_module(OTHERS[name][0]).main
    return None
