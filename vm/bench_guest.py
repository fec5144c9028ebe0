#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What vm/bench runs inside the guest: servers, one after the other, counted, for the rows named.

Prints one line of JSON: {"rows": {row: [instructions of a request, by batch]},
"counts": {row: {"hits": {tier: requests}, "passes": {reason: requests}}},
"problems": {row: why}, "absent": {row: why}}: these a kernel without the fixes that
they need does not have. The build folder O may be that of another revision. The guest has one CPU and a clock that counts
instructions; nothing here waits by that clock but for servers to start.
"""
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/bench"))

import fileset                  # noqa: E402
from lab import Lab             # noqa: E402
from messages import Problem    # noqa: E402
from servers import BUILD, PORT, Nginx, Toboggan, fetch, settle  # noqa: E402

WARM, BATCHES, REQUESTS = 10, 41, 50
PATHS = {"/1k.jpg": 1024, "/8k.bin": 8192}

# row: (server, path, Cache-Status must say, conditional)
ROWS = {
    "wire": ("wire", "/1k.jpg", "detail=wire", False),
    "wire-304": ("wire", "/1k.jpg", "detail=wire", True),
    "wire-8k": ("wire", "/8k.bin", "detail=wire", False),
    "fall-through": ("wire", "/%31k.jpg", "", False),
    "sock": ("sock", "/1k.jpg", "detail=sock", False),
    "sock-8k": ("sock", "/8k.bin", "detail=sock", False),
    "user": ("user", "/1k.jpg", "hit", False),
    "user-8k": ("user", "/8k.bin", "hit", False),
    "nginx": ("nginx", "/1k.jpg", "", False),
}


def count(lab, server, path, header):
    client = os.environ.get("TBG_COUNT") or os.path.join(BUILD, "guest", "count")
    argv = lab.client_argv([client, server.addr, str(PORT), path,
                            str(WARM + BATCHES), str(REQUESTS), *([header] if header else [])])
    res = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    lines = res.stdout.split()
    if res.returncode or len(lines) != WARM + BATCHES:
        raise Problem(res.stderr.strip() or f"count: exit {res.returncode}")
    return [int(line) for line in lines[WARM:]]


def stats(server):
    """{"hits": {tier: requests}, "passes": {reason: requests}} until now; {} of another's."""
    if not isinstance(server, Toboggan):
        return {}
    said = server.ask("stats")
    return {"hits": {tier: v["requests"] for tier, v in said["tiers"].items()},
            "passes": {v["name"]: v["count"] for v in said["passes"]}}


def between(before, after):
    """What was counted from one stats() to the other, without what was not."""
    return {kind: {name: nr - before[kind].get(name, 0) for name, nr in after[kind].items()
                   if nr != before[kind].get(name, 0)} for kind in after}


def measure(lab, server, path, want, conditional):
    header, status = None, 200
    if conditional:
        header, status = f"If-None-Match: {fetch(lab, server, path)['etag']}", 304
    crc = fileset.crc("/1k.jpg" if "1k" in path or "%31k" in path else path,
                      PATHS.get(path, 1024)) if status == 200 else None
    headers = [tuple(header.split(": ", 1))] if header else []
    settle(lab, server, path, headers, status, want, crc, limit_s=30)
    before = stats(server)
    ret = count(lab, server, path, header), between(before, stats(server))
    settle(lab, server, path, headers, status, want, crc, limit_s=30)
    return ret


def absent():
    """{row: why}, of tiers that wait for fixes; what else is missing is a problem."""
    out = subprocess.run([os.path.join(BUILD, "toboggan"), "--json", "probe"], text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    why = {tier: f["detail"] for f in json.loads(out)["features"] for tier in f["tiers"]
           if f["name"] == f"{tier}_fixes" and f["state"] == "missing"}
    return {row: why[v[0]] for row, v in ROWS.items() if v[0] in why}


def main(wanted):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    # The batches are the same work each time: what runs beside must not be.
    rows, counts, problems, left_out = {}, {}, {}, absent()
    with Lab({0}, {0}) as lab:
        for path, size in PATHS.items():
            fileset.put(os.path.join(lab.dir, "site"), path, size)
        makers = {"wire": lambda: Toboggan(lab, "wire", memory="16M"),
                  "sock": lambda: Toboggan(lab, "sock", tiers="sock,user", memory="16M"),
                  "user": lambda: Toboggan(lab, "user", tiers="user", memory="16M"),
                  "nginx": lambda: Nginx(lab, "nginx")}
        todo = {row: v for row, v in ROWS.items() if row in wanted and row not in left_out}
        for which in dict.fromkeys(v[0] for v in todo.values()):
            server = makers[which]()
            try:
                server.start()
                for row in [r for r, v in todo.items() if v[0] == which]:
                    try:
                        rows[row], counts[row] = measure(lab, server, *todo[row][1:])
                    except Problem as e:
                        problems[row] = str(e)
            except Problem as e:
                problems[which] = str(e)
            finally:
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
