# SPDX-License-Identifier: GPL-2.0
"""The rows of vm/bench: the server and the request of each. Host and guest both read this."""
from __future__ import annotations

import collections
from typing import Any

MISSES = 2048                   # files of 1 KiB beside a memory of 1 MiB
PAGE = ("/file_set/dir00000/class1_0", 1024)    # as the module makes it from that file

# server: one that bench_guest.py starts. size: of SIZES, "heads", "mixed", "miss" or "page".
# calls: requests on a connection, 0: no end. want: what Cache-Status must have in it.
Row = collections.namedtuple("Row", "server size status calls want")

SIZES = {"1k": ("/1k.jpg", 1024), "2k": ("/2k.bin", 2048), "4k": ("/4k.bin", 4096),
         "8k": ("/8k.bin", 8192), "14k": ("/14k.bin", 13936), "pass": ("/%31k.jpg", 1024)}
HEADS = 1024                    # different requests for 1 KiB: the size "heads"
MIXED = ("1k", "pass")          # the size "mixed": hits and misses of wire, half and half


def rows_of(name: str, want: Any) -> dict:
    """A server's at each size, and on short connections."""
    ret = {f"{name}-304": Row(name, "1k", 304, 0, want)}
    for size in ("1k", "2k", "4k", "8k"):
        ret[f"{name}-{size}"] = Row(name, size, 200, 0, want)
    ret[f"{name}-14k"] = Row(name, "14k", 200, 0, want)
    for calls in (10, 1):
        ret[f"{name}-1k-{calls}"] = Row(name, "1k", 200, calls, want)
    return ret


ROWS = {
    "floor": Row("floor", "1k", 200, 0, ""),
    **rows_of("wire", "detail=wire"),
    "wire-1k-heads": Row("wire", "heads", 200, 0, "detail=wire"),
    "fall-through": Row("wire", "pass", 200, 0, ""),
    "mixed": Row("wire", "mixed", 200, 0, ""),
    "miss": Row("wire-small", "miss", 200, 0, ""),
    "sock-1k": Row("sock", "1k", 200, 0, "detail=sock"),
    "sock-8k": Row("sock", "8k", 200, 0, "detail=sock"),
    **rows_of("user", "hit"),
    "user-pass": Row("user", "pass", 200, 0, ""),
    "user-mixed": Row("user", "mixed", 200, 0, ""),
    "proxy": Row("user-proxy", "1k", 200, 0, ""),
    "module": Row("module", "page", 200, 0, ""),
    **rows_of("nginx", ""),
    "nginx-proxy": Row("nginx-proxy", "1k", 200, 0, ""),
}
# Shown, without a budget: these servers are not ours.
REFERENCES = tuple(name for name,
                   row in ROWS.items() if row.server in ("floor", "nginx", "nginx-proxy"))
# Shown, without a verdict: kernels and rows whose batches differ, or whose boots do. The cost of
# short connections depends on when the daemon wakes, that of a miss on the state of the cache. Why
# boots of one build have differed by up to 1.3 % for wire-8k is not known.
SCATTER = (("6.1", "wire-1k-1"), ("6.12", "wire-1k-1"), ("newest", "wire-1k-1"),
           ("6.1", "miss"), ("6.12", "miss"), ("newest", "miss"),
           ("6.12", "wire-8k"), ("newest", "wire-8k"))
FLOOR = "floor"                 # what the client and the least answer cost together
