# SPDX-License-Identifier: GPL-2.0
"""Runs tools/bench for a test, and a small server with faults on demand.

    with benched.Sham(fault="body") as s:       # s.authority
        done = benched.run("keepalive", "--server", f"x={s.authority}")
    done.code, done.out, done.err, done.record

A run has a folder of its own, which is removed at exit. It waits while another benchmark
is running, since two exclude each other.
"""
from __future__ import annotations

import asyncio
import atexit
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import Any, Iterable

import ktap

BENCH = os.path.join(ktap.ROOT, "tools/bench")
sys.path.insert(0, BENCH)
import fileset                  # noqa: E402
import lab                      # noqa: E402

PROGRAM = os.path.join(BENCH, "bench")
SITE = {path: size for _, path, size in fileset.basic().rows}
RUN_S = 400                     # on a machine that does much else
Done = collections.namedtuple("Done", "code out err record folder")


def folder() -> str:
    ret = tempfile.mkdtemp(prefix="tbg-test-bench.")
    atexit.register(shutil.rmtree, ret, ignore_errors=True)
    return ret


def start(*words: str, prefix: Iterable[str] = (),
          env: dict[str, str] | None = None) -> tuple[subprocess.Popen, str]:
    """(process, its folder for the report)"""
    out = folder()
    argv = [*prefix, PROGRAM, *words, "--out", out]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=env), out


def record_of(out: str) -> dict | None:
    try:
        with open(os.path.join(out, "run.json"), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def run(*words: str, **kw: Any) -> Done:
    """Run an experiment to its end."""
    while True:
        proc, out = start(*words, **kw)
        try:
            text, err = proc.communicate(timeout=RUN_S)
        finally:
            proc.kill()
        if "another benchmark is running" not in err:
            for line in err.splitlines()[-30:]:
                ktap.note(line)
            return Done(proc.returncode, text, err, record_of(out), out)
        os.close(wait_for_lock())


def wait_for_lock() -> int:
    import fcntl
    fd = os.open(lab.LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def samples(record: dict) -> list[dict]:
    return [s for e in record["experiments"] for s in e["samples"]]


def leftovers() -> list[str]:
    """Everything that a benchmark could leave behind: namespaces, folders, cgroups."""
    names = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split()
    found = [n for n in names if n.startswith(lab.NETNS)]
    for place in lab.places():
        found += [n for n in os.listdir(place) if n.startswith(lab.FOLDER)]
    for root, _ in lab.memory_roots():
        found += [n for n in os.listdir(root) if n.startswith(lab.NETNS)]
    return found


class Sham:
    """An HTTP server with the fileset's files, without a fault for the first `after` replies.

    fault: None, "body" (one other byte), "length" (one byte more), "status"
    (500), "reset" (no answer), "hang" (never an answer), or the status of an otherwise
    right answer. every: the first reply behind those is wrong, and one of so many.
    """

    def __init__(self, fault: str | None = None, after: int = 50, only: str | None = None,
                 every: int = 1) -> None:
        self.every = every
        self.fault, self.after, self.only, self.nr = fault, after, only, 0
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> Sham:
        ready = threading.Event()
        self.thread = threading.Thread(target=self.serve, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def serve(self, ready: Any) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.client, "127.0.0.1", 0))
        self.authority = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def client(self, reader: Any, writer: Any) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                if not await self.answer(writer, path):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, writer: Any, path: str) -> bool:
        self.nr += 1
        bad = self.fault if self.nr > self.after and self.only in (None, path) and \
            (self.nr - self.after - 1) % self.every == 0 else None
        if bad == "hang":
            await asyncio.sleep(3600)
        if bad == "reset":
            writer.transport.abort()
            return False
        size = SITE.get(path)
        body = fileset.content(path, size) if size else None
        if body is None or bad == "status":
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" %
                         (b"500 No" if body else b"404 No"))
            return True
        if bad == "body":
            body = body[:500] + bytes([body[500] ^ 1]) + body[501:]
        if bad == "length":
            body += b"x"
        writer.write(b"HTTP/1.1 %d OK\r\nConnection: keep-alive\r\n"
                     b"Content-Length: %d\r\nETag: \"a\"\r\n\r\n%s" %
                     (bad if isinstance(bad, int) else 200, len(body), body))
        await writer.drain()
        return True
