# SPDX-License-Identifier: GPL-2.0
"""Client machines: `--client-host`, reached by ssh, each with its share of the load.

The generator and its input are copied into a folder of its own in the machine's /tmp,
which is removed when the run ends. Each client's output ends with the lines of /proc/stat
before and after its load, which show whether the machine was full. A client ends by
itself, at the latest at its time limit, so a lost connection leaves none behind.
"""
from __future__ import annotations

import collections
import math
import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

from messages import Problem
from meters import core_ticks

if TYPE_CHECKING:
    from loads import Load

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
REACH_S = 30                # for a command that only prepares
TOOLS = ("wrk", "h2load", "ab", "httperf")
BEGIN, END = "TBG-BEGIN ", "TBG-END "
USER = r"[A-Za-z0-9._][A-Za-z0-9._-]*"
HOST = re.compile(rf"((?:{USER}@)?(?:[A-Za-z0-9][A-Za-z0-9._-]*|[0-9a-fA-F:]+))"
                  r"(?:=(\d+(?:\.\d+)?))?")

# A client of a load: where, and its weight beside the others.
Part = collections.namedtuple("Part", "host weight", defaults=(None, 1))


def parse(words: str) -> dict[str, float]:
    """{[USER@]HOST: share} of --client-host, in their order; ValueError with the fault."""
    ret = {}
    for word in words:
        m = HOST.fullmatch(word)
        if not m or m.group(2) and not float(m.group(2)):
            raise ValueError(f"--client-host {word}: want [USER@]HOST[=SHARE]")
        if m.group(1) in ret:
            raise ValueError(f"--client-host {word}: named twice")
        ret[m.group(1)] = float(m.group(2) or 1)
    return ret


class Host:
    """One client machine."""

    def __init__(self, name: str, share: tuple, local: Any) -> None:
        """local: the folder on this machine with the files that clients read."""
        self.name, self.share, self.local = name, share, local
        self.folder, self.sent, self.cpus, self.tools = None, {}, 1, set()

    def run(self, script: str, **kw: Any) -> Any:
        try:
            res = subprocess.run([*SSH, self.name, script], stdout=subprocess.PIPE, check=False,
                                 stderr=subprocess.PIPE, timeout=REACH_S, **kw)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Problem(f"--client-host {self.name}: {e}") from e
        if res.returncode:
            why = res.stderr.decode("utf-8", "replace").strip().splitlines() or \
                [f"ssh: exit {res.returncode}"]
            raise Problem(f"--client-host {self.name}: {why[-1]}")
        return res.stdout.decode("utf-8", "replace")

    def open(self) -> None:
        out = self.run("PATH=$PATH:/usr/sbin:/sbin; mktemp -d /tmp/tbg-bench.XXXXXX && "
                       f"grep ^cpu /proc/stat && for t in {' '.join(TOOLS)}; do "
                       "command -v $t; done; true", stdin=subprocess.DEVNULL)
        m = re.match(r"(/tmp/tbg-bench\.\w+)\n", out)
        if not m:
            raise Problem(f"--client-host {self.name}: no folder could be made there")
        self.folder = m.group(1)
        self.cpus = len(core_ticks(None, out))
        self.tools = {os.path.basename(line) for line in out.splitlines()} & set(TOOLS)

    def close(self) -> None:
        """Remove the folder in its /tmp; it stays if the machine is not reachable any more."""
        if self.folder:
            try:
                self.run(f"rm -r {shlex.quote(self.folder)}", stdin=subprocess.DEVNULL)
            except Problem:
                pass
            self.folder = None

    def send(self, path: str, more: str = "") -> str:
        """The name of a file there; each version is copied once.

        more: options of the command that copies it.
        """
        name = f"{self.folder}/{os.path.basename(path)}"
        now = os.stat(path)
        if self.sent.get(path) != (now.st_mtime_ns, now.st_size):
            with open(path, "rb") as f:
                self.run(f"cat > {shlex.quote(name)}{more}", stdin=f)
            self.sent[path] = now.st_mtime_ns, now.st_size
        return name

    def program(self, path: str) -> str:
        """The command that runs a local program there."""
        name = os.path.basename(path)
        if name in self.tools:
            return name
        if name in TOOLS:
            raise Problem(f"--client-host {self.name}: {name} is missing: install its package "
                          "there")
        return self.send(path, f" && chmod 755 {shlex.quote(f'{self.folder}/{name}')}")

    def word(self, word: Any) -> str:
        """An argument with local file names replaced by those there."""
        if word.startswith("/") and word.endswith(".lua") and os.path.isfile(word):
            return self.send(word)
        return re.sub(rf"{re.escape(self.local)}/[^,\s]+", lambda m: self.send(m.group(0)), word)

    def argv(self, argv: list[str], limit_s: float) -> list:
        """The command that runs a client there, for at most limit_s, and reports the CPUs' work."""
        there = shlex.join([self.program(argv[0]), *map(self.word, argv[1:])])
        script = (f"cd {shlex.quote(self.folder)} && PATH=$PATH:/usr/sbin:/sbin && "
                  "{ ulimit -n $(ulimit -Hn) || true; } 2>/dev/null; "
                  "{ cat > /dev/null; grep ^cpu /proc/stat > begin.$$; } | "
                  f"timeout {math.ceil(limit_s)} {there}; rc=$?; "
                  f"sed 's/^/{BEGIN}/' begin.$$; grep ^cpu /proc/stat | sed 's/^/{END}/'; "
                  "exit $rc")
        return [*SSH, self.name, script]

    def cpu_of(self, out: str) -> None:
        """(busy share of the CPUs, their number) from a client's output, or None."""
        texts = ["".join(re.findall(rf"^{mark}(.*\n)", out, re.M)) for mark in (BEGIN, END)]
        try:
            before, after = (core_ticks(None, text) for text in texts)
        except Problem:
            return None
        each = [[b - a for a, b in zip(before[cpu], after[cpu])] for cpu in before if cpu in after]
        busy, idle, steal = map(sum, zip(*each))
        all_s = busy + idle + steal
        return (busy / all_s if all_s else 0.0), len(each)


def spread(hosts: Any, load: Load) -> list:
    """[Part] of a load: a client on each CPU of each machine, if the load can be divided.

    An open loop has one client on each machine: requests of several would arrive in bunches.
    """
    most = load.most()
    if most < 2:
        return [Part(hosts[0])]
    one = load.clients(1 << 20) == 1
    total, ret = sum(host.share for host in hosts), []
    for host in hosts:
        its = most * host.share / total
        nr = 1 if one else max(1, min(host.cpus, int(its / 2)))
        ret += [Part(host, host.share / nr)] * nr
    while len(ret) > 1 and (few := [p for p in ret if most * p.weight / sum(
            q.weight for q in ret) < 1]):
        ret.remove(few[-1])     # less than one request at a time is not possible
    return ret


def half(hosts: Any) -> Any:
    """The machines that get twice as much each, to check whether all are needed."""
    return hosts[:(len(hosts) + 1) // 2]


def number(parts: int) -> int:
    """How many clients share a load."""
    return parts if isinstance(parts, int) else len(parts)


def doubled(parts: int) -> int:
    """Twice the clients with half of each one's load."""
    if isinstance(parts, int):
        return 2 * parts
    return [Part(part.host, part.weight / 2) for part in parts for _ in range(2)]
