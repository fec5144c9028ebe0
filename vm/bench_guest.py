#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs inside the guest of vm/bench: starts servers one after the other, counts the named rows.

Prints one line of JSON: {"rows": {row: [instructions of a request, by batch]},
"counts": {row: {"hits": {tier: requests}, "passes": {reason: requests}}},
"problems": {row: why}, "absent": {row: why}}. A row is absent if the kernel lacks fixes that
its tier needs. The build folder O may be that of another revision; TBG_LOOP is the folder of
the client. The guest has one CPU, which is never idle while a row is counted, and a clock
that counts instructions: a batch's requests a second give the instructions of each.
"""
from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from typing import Any

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../tools/bench")]

import fileset                  # noqa: E402
from bench_rows import HEADS, MISSES, MIXED, PAGE, ROWS, SIZES     # noqa: E402
from lab import Lab             # noqa: E402
from loads import Loop          # noqa: E402
from messages import Problem    # noqa: E402
from servers import BUILD, Floor, Nginx, Origin, Toboggan, fetch, settle  # noqa: E402

CONNECTIONS = 16
# A worker of the kernel sends sock's replies. When it has sent one, this client's next request
# is there already, so with one CPU the worker never leaves the connection, and the others wait:
# on 6.1 until the load ends, since 6.5 for 10 ms, until workqueues start another worker.
CONNECTIONS_OF = {"sock": 1}
SECONDS, BATCH_MS = 0.8, 80     # of the guest's clock
# the share that the row's own tier has to answer
TIERS, TIER_LEAST = ("wire", "sock", "user"), 0.9
PIECES = 256                    # samples that are read at a time: the only core has to answer, too
CLIENT = os.environ.get("TBG_LOOP") or os.path.join(BUILD, "tools/bench")
KINDS = {"floor": Floor, "nginx": Nginx}
# What each server of bench_rows.py is started with.
OPTIONS = {
    "wire": {"memory": "16M"},
    "wire-small": {"caches": False},
    "sock": {"tiers": "sock,user", "memory": "16M"},
    "user": {"tiers": "user", "memory": "16M"},
    "module": {"tiers": "user", "memory": "16M", "computes": True},
}

Target = collections.namedtuple("Target", "rows path status headers crc")


def start(lab: Lab, origin: Origin, name: str) -> Any:
    kind = name.removesuffix("-proxy")
    options = {"origin": origin} if kind != name else {}
    if kind == "module":
        fileset.web99(1).make(os.path.join(lab.dir, "site"))
    server = KINDS.get(kind, Toboggan)(lab, name, **{**OPTIONS.get(kind, {}), **options})
    server.start()
    return server


def target(lab: Lab, server: Any, row: Any, source: str) -> tuple:
    """The requests: the rows of the list, and the required answer of each."""
    if row.size == "miss":
        files = fileset.objects(MISSES).rows
        return Target([(1, path, size, fileset.crc(path, size)) for _, path, size in files],
                      files[0][1], 200, [], None)
    if row.size == "page":
        software = server.pages().software
        path, size, crc = fileset.Pages(software, source[:-1] + "1").row(1, "get", *PAGE)[1:4]
        return Target([(1, path, size, int(crc, 16))], path, 200, [], None)
    if row.size == "mixed":
        rows = [(1, path, size, fileset.crc(SIZES[MIXED[0]][0], size))
                for path, size in map(SIZES.get, MIXED)]
        return Target(rows, rows[0][1], 200, [], None)
    if row.size == "heads":
        path, size = SIZES["1k"]
        crc = fileset.crc(path, size)
        rows = [(1, f"{path}?{nr:04}", size, crc) for nr in range(HEADS)]
        return Target(rows, path, 200, [], crc)
    path, size = SIZES[row.size]
    of = re.sub("%31", "1", path)
    if row.status == 304:
        headers = [("If-None-Match", fetch(lab, server, path)["etag"])]
        return Target([(1, path, size, 0)], path, 304, headers, None)
    crc = None if row.server == "floor" else fileset.crc(of, size)
    return Target([(1, path, size, fileset.crc(of, size))], path, 200, [], crc)


def count(lab: Lab, server: Any, row: Any, asked: Any, source: str) -> list:
    """Instructions per request, by batch."""
    path = os.path.join(lab.dir, f"{server.iface}.list")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{w} {p} {s} {crc:08x}\n" for w, p, s, crc in asked.rows)
    load = Loop(CONNECTIONS_OF.get(row.server, CONNECTIONS), path, source=source,
                calls=row.calls, status=asked.status, window=BATCH_MS, pieces=PIECES,
                header=[f"{name}: {value}" for name, value in asked.headers])
    argv = load.argv(server, SECONDS, (0, 1))
    argv[0] = os.path.join(CLIENT, "loop")
    argv[argv.index("--object") + 1] = os.path.join(CLIENT, "loop.bpf.o")
    res = subprocess.run(lab.client_argv(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    got = load.read(res.stdout)
    if res.returncode or not got:
        raise Problem(res.stderr.strip() or f"loop: exit {res.returncode}")
    if got["errors"] or got["statuses"] or (asked.status == 200 and not got["verified"]):
        raise Problem(f"wrong answers: {got}")
    return [round(1e9 / rate) if rate else 0 for rate in got["windows"]]


def stats(server: Any) -> dict:
    """{"hits": {tier: requests}, "passes": {reason: requests}} until now; {} for another server."""
    if not isinstance(server, Toboggan):
        return {}
    stats = server.ask("stats")
    return {"hits": {tier: v["requests"] for tier, v in stats["tiers"].items()},
            "passes": {v["name"]: v["count"] for v in stats["passes"]}}


def between(before: dict, after: dict) -> dict:
    """The growth from one stats() to the other, without zeros."""
    return {kind: {name: nr - before[kind].get(name, 0) for name, nr in after[kind].items()
                   if nr != before[kind].get(name, 0)} for kind in after}


def measure(lab: Lab, server: Any, row: Any) -> tuple[list, dict]:
    source = lab.nowhere(server.iface)
    asked = target(lab, server, row, source)
    check = (asked.path, asked.headers, asked.status, row.want, asked.crc)
    settle(lab, server, *check, limit_s=30)
    if row.size == "miss":          # once through all, which settles which objects stay
        count(lab, server, row, asked, source)
        source = lab.nowhere(server.iface)
    before = stats(server)
    ret = count(lab, server, row, asked, source), between(before, stats(server))
    settle(lab, server, *check, limit_s=30)
    by_tier, tier = ret[1].get("hits", {}), row.server
    if tier in TIERS and row.size not in ("pass", "mixed", "miss") and \
       by_tier.get(tier, 0) < TIER_LEAST * sum(by_tier.values()):
        raise Problem(f"answered by others than {tier}: {ret[1]}")
    return ret


def servers_of(todo: dict) -> list[tuple]:
    """
    [(server, the rows that it is counted with)]. One request a connection has a server of its own:
    on 6.1 wire keeps the slot of a connection for two minutes, and has some 16,000.
    """
    ret: dict[tuple, list] = {}
    for name, row in todo.items():
        alone = row.server == "wire" and row.calls == 1
        ret.setdefault((row.server, alone), []).append(name)
    return [(which, names) for (which, _), names in ret.items()]


def absent() -> dict:
    """{row: why} for tiers that lack fixes; any other absence is a problem."""
    out = subprocess.run([os.path.join(BUILD, "toboggan"), "--json", "probe"], text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    why = {tier: f["detail"] for f in json.loads(out)["features"] for tier in f["tiers"]
           if f["name"] == f"{tier}_fixes" and f["state"] == "missing"}
    return {name: why[row.server] for name, row in ROWS.items() if row.server in why}


def main(wanted: Any) -> int:
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    # Every batch is the same work: nothing else may run beside it.
    rows, counts, problems, left_out = {}, {}, {}, absent()
    todo = {name: row for name, row in ROWS.items() if name in wanted and name not in left_out}
    with Lab({0}, {0}) as lab:
        site = os.path.join(lab.dir, "site")
        for path, size in SIZES.values():
            if "%" not in path:
                fileset.put(site, path, size)
        if any(row.size == "miss" for row in todo.values()):
            fileset.objects(MISSES).make(site)
        origin = Origin(lab, "origin")
        if any(row.server.endswith("-proxy") for row in todo.values()):
            origin.start()
        for which, names in servers_of(todo):
            server = None
            try:
                server = start(lab, origin, which)
                for name in names:
                    try:
                        rows[name], counts[name] = measure(lab, server, todo[name])
                    except Problem as e:
                        problems[name] = str(e)
            except Problem as e:
                problems[which] = str(e)
            finally:
                if server:
                    server.stop()
    print(json.dumps({"rows": rows, "counts": counts, "problems": problems, "absent": left_out,
                      "kernel": re.sub(r"\s+", " ", os.uname().release)}), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Problem as e:
        print(json.dumps({"rows": {}, "problems": {"lab": str(e)}}), flush=True)
        sys.exit(1)
