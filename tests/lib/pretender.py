# SPDX-License-Identifier: GPL-2.0
"""A control socket with answers of the test, for tools that ask a daemon."""
from __future__ import annotations

import copy
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any

import client

STATUS = {"ok": True, "version": "9.8", "pid": 77, "uptime_s": 3700.5, "draining": False,
          "root": "/srv",
          "listeners": ["192.0.2.1:80", "[::1]:81"],
          "tiers": {"wire": {"on": True}, "user": {"on": True}},
          "interfaces": [], "workers": 2, "objects": 3, "objects_in_kernel": 2,
          "memory": {"used": 1 << 20, "budget": 1 << 28}, "quarantined": 0, "connections": 5,
          "flows": 4,
          "access_log": None}
STATS = {"ok": True, "tiers": {"wire": {"requests": 900, "bytes": 90000, "repeats": 0},
                               "user": {"cpu_s": 1.0, "requests": 100, "bytes": 10000, "hits": 60}},
         "passes": [{"name": "MISS", "text": "not in the cache", "count": 40},
                    {"name": "SPLIT", "text": "request not whole", "count": 0},
                    {"name": "QUERY", "text": "has a query", "count": 4000}]}
OBJECTS = {"ok": True, "total": 3, "objects": [
    {"path": f"/o{i}", "vhost": 0, "size": 1000 * i, "hits": 500 - i, "tiers": ["wire", "user"]}
    for i in range(3)]}


class Pretender:
    """Its answers .status, .stats and .objects may be changed at any time."""
    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="tbg-")
        self.path = os.path.join(self.folder, "control.sock")
        self.status, self.stats, self.objects = (copy.deepcopy(x) for x in (STATUS, STATS, OBJECTS))
        self.asked = []             # (monotonic, cmd)
        self.on_stats = lambda: None    # called before each answer to stats
        self.list_s = 0             # how long a listing takes
        self.raw = None             # bytes instead of an answer
        self.changed = threading.Condition()
        self.open = []
        self.begin()

    def begin(self) -> None:
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen()
        threading.Thread(target=self.accept, args=(self.server,), daemon=True).start()

    def accept(self, server: Any) -> None:
        try:
            while True:
                s, _ = server.accept()
                self.open.append(s)
                threading.Thread(target=self.serve, args=(s,), daemon=True).start()
        except OSError:
            pass

    def serve(self, s: socket.socket) -> None:
        try:
            for line in s.makefile("rb"):
                req = json.loads(line)
                if req["cmd"] == "stats":
                    self.on_stats()
                if req["cmd"] == "objects":
                    time.sleep(self.list_s)
                s.sendall(self.raw or json.dumps(getattr(self, req["cmd"])).encode() + b"\n")
                with self.changed:
                    self.asked.append((time.monotonic(), req["cmd"]))
                    self.changed.notify_all()
        except OSError:
            pass

    def rounds(self) -> Any:
        return sum(x == "stats" for _, x in self.asked)

    def listings(self) -> Any:
        return sum(x == "objects" for _, x in self.asked)

    def wait(self, nr: int) -> None:
        """Wait until this many rounds have been requested."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.rounds() >= nr, client.WAIT_S), self.asked

    def end(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for s in self.open:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open.clear()
        os.unlink(self.path)

    def __enter__(self) -> Pretender:
        return self

    def __exit__(self, *why: object) -> None:
        if os.path.exists(self.path):
            self.end()
        shutil.rmtree(self.folder)
