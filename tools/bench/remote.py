# SPDX-License-Identifier: GPL-2.0
"""The topology without a lab: servers that run already, clients on this machine.

The same interface as lab.Lab, with nothing to build. The server's processor
time is read by a command that prints its /proc/stat, if one is given.
"""
import os
import re
import shlex
import shutil
import subprocess
import tempfile

from lab import FOLDER, Lab
from meters import first
from say import Problem

STAT_S = 10


class Remote(Lab):
    remote = True

    def __init__(self, stat=None, link_bps=None, client_cpus=None):
        super().__init__(set(), client_cpus or os.sched_getaffinity(0))
        self.stat, self.link_bps = stat, link_bps

    def open(self):
        self.dir = tempfile.mkdtemp(prefix=FOLDER)

    def close(self):
        for proc in list(self.procs):
            self.end(proc)
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    def client_argv(self, argv):
        return list(argv)

    def read_stat(self):
        """The server's /proc/stat, by the user's own command."""
        try:
            res = subprocess.run(shlex.split(self.stat), stdin=subprocess.DEVNULL, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 timeout=STAT_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Problem(f"--stat {self.stat}: {e}") from e
        if res.returncode or not re.search(r"^cpu0? ", res.stdout, re.M):
            why = res.stderr.strip().splitlines() or ["no lines of /proc/stat"]
            raise Problem(f"--stat {self.stat}: {why[0]}")
        return res.stdout

    def limit_memory(self, limit):
        raise Problem("a remote server's memory cannot be limited from here; "
                      "start it under a limit and say so with the figures")


def nominal_bps(host):
    """The rate of the interface that leads to host, None if it has none."""
    res = subprocess.run(["ip", "route", "get", host], stdin=subprocess.DEVNULL, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    m = re.search(r"\bdev (\S+)", res.stdout)
    if not m or m.group(1) == "lo" or m.group(1).startswith("veth"):
        return None
    speed = first(f"/sys/class/net/{m.group(1)}/speed", r"^(\d+)$", "0")
    return int(speed) * 1e6 or None
