# SPDX-License-Identifier: GPL-2.0
"""Counters of a machine before and after a load: processors, processes.

Used by cost.py and engine.py. Nothing here starts, stops or changes anything.
"""
from __future__ import annotations

import os
import platform
import re
import time
from typing import Any, Iterable

from messages import Problem, notify

QUIET_SHARE = 0.02          # busy share of the server's CPUs without a load: more is work of others
IDLE_MAX = 0.05             # more than that is reported instead of subtracted
QUIET_WAIT_S = 90           # maximum wait for it in the whole run; then disturbed samples stay
UNSEEN_MIN_S = 0.1          # less may be rounding: each process has hundredths of a second
FORKS_MAX = 20              # forks in one sample: our client has fewer
USER_HZ = os.sysconf("SC_CLK_TCK")


def cpu_times(cpus: set | Iterable[int] | None, text: str | None = None) -> dict[int, list[float]]:
    """{CPU: seconds since the boot, in the order of /proc/stat} of these CPUs.

    text is /proc/stat of another machine.
    """
    if text is None:
        with open("/proc/stat", encoding="ascii") as f:
            text = f.read()
    ret = {}
    for line in text.splitlines():
        m = re.match(r"cpu(\d+) ", line)
        if m and (cpus is None or int(m.group(1)) in cpus):
            ret[int(m.group(1))] = [int(x) / USER_HZ for x in line.split()[1:9]]
    if not ret or (cpus is not None and set(ret) != set(cpus)):
        raise Problem(f"/proc/stat: has CPUs {sorted(ret)}, not {sorted(cpus or [])}")
    return ret


def core_ticks(cpus: set | Iterable[int] | None,
               text: str | None = None) -> dict[int, tuple[float, float, float]]:
    """{CPU: seconds since the boot (working, idle, stolen)} of these CPUs.

    text is /proc/stat of another machine. Niced time, that of the soaker, is left out.
    """
    ret = {}
    for cpu, times in cpu_times(cpus, text).items():
        user, _, system, idle, iowait, irq, softirq, steal = times
        ret[cpu] = user + system + irq + softirq, idle + iowait, steal
    return ret


def user_s(cpus: Iterable[int], text: str | None = None) -> float:
    """Seconds since the boot that programs have run on these CPUs, outside of the kernel."""
    return sum(user + nice for user, nice, *_ in cpu_times(cpus, text).values())


class Core:
    """The work of some CPUs since the object was made.

    cpus None: all of them. read: a function that returns another machine's /proc/stat.
    """

    def __init__(self, cpus: set | Iterable[int] | None, read: Any = None) -> None:
        self.cpus, self.read = cpus, read or (lambda: None)
        self.ticks = core_ticks(cpus, self.read())
        self.nr, self.wall = len(self.ticks), time.monotonic()

    def since(self) -> dict:
        """Times are summed over the CPUs; share is that of all of them, busiest that of one."""
        wall = time.monotonic() - self.wall
        now = core_ticks(self.cpus, self.read())
        each = [[b - a for a, b in zip(self.ticks[cpu], now[cpu])]
                for cpu in self.ticks if cpu in now]
        busy, idle, steal = map(sum, zip(*each))
        cpu_s = wall * self.nr
        return {"wall_s": wall, "busy_s": busy, "steal_s": steal,
                "not_idle_s": cpu_s - idle - steal,
                # the kernel counts in hundredths of a second, so a little more than all may show
                "share": min(1.0, busy / cpu_s) if cpu_s else 0.0,
                "busiest": min(1.0, max(one[0] for one in each) / wall) if wall else 0.0}


class Idle:
    """The busy share of the server's CPUs without a load, averaged over all looks so far.

    One look is too short for the kernel's unit of a hundredth of a second: one unit more
    or less is several per cent.
    """

    def __init__(self) -> None:
        self.busy_s = self.wall_s = 0.0

    def share(self, now: Any) -> float:
        """now: the result of Core.since(). A look with work of others is not averaged."""
        if now["share"] >= IDLE_MAX:
            return IDLE_MAX
        self.busy_s += now["share"] * now["wall_s"]
        self.wall_s += now["wall_s"]
        return self.busy_s / self.wall_s


def stat_of(folder: str) -> list[str] | None:
    """The fields of a task's stat behind its name; None: it has ended."""
    try:
        with open(f"{folder}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None


class Others:
    """Processor time that processes other than the benchmark's have taken.

    On any CPU, since a task moves, or only on `cpus`. Kernel threads are left out, since they
    work for the server too. Short-lived processes (of a compiler) are seen only as forks, of
    which a quiet machine has nearly none, or by what they take of `cpus` outside of the kernel.
    """

    def __init__(self, ours: Iterable[int], cpus: Iterable[int] | None = None) -> None:
        self.ours, self.cpus = set(ours), cpus
        self.before = self.look()
        self.unseen_before = self.unseen()
        self.forks_before = self.forks()

    def look(self) -> dict[tuple[str, str], tuple[float, int]]:
        """{(task, its start): (seconds, CPU)}; for `cpus`, of threads instead of processes."""
        ret = {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit() or int(pid) in self.ours or int(pid) == os.getpid():
                continue
            field = stat_of(f"/proc/{pid}")
            if not field or int(field[6]) & 0x00200000:     # PF_KTHREAD
                continue
            if self.cpus is not None and int(field[17]) > 1:
                ret.update(self.threads(pid))
            else:
                ret[pid, field[19]] = sum(map(int, field[11:15])) / USER_HZ, int(field[36])
        return ret

    @staticmethod
    def threads(pid: str) -> dict[tuple[str, str], tuple[float, int]]:
        """Each thread has run where it is; the first one stands for ended children, too."""
        ret = {}
        try:
            tids = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return ret
        for tid in tids:
            field = stat_of(f"/proc/{pid}/task/{tid}")
            if field:
                times = map(int, field[11:15 if tid == pid else 13])
                ret[tid, field[19]] = sum(times) / USER_HZ, int(field[36])
        return ret

    def unseen(self) -> float:
        """Seconds that programs have run on `cpus`, except for ours there."""
        if self.cpus is None:
            return 0.0
        ret = user_s(self.cpus)
        for pid in self.ours | {os.getpid()}:
            field = stat_of(f"/proc/{pid}")
            try:
                if field and (pid == os.getpid() or os.sched_getaffinity(pid) & set(self.cpus)):
                    ret -= (int(field[11]) + int(field[13])) / USER_HZ
            except OSError:
                pass
        return ret

    @staticmethod
    def forks() -> int:
        with open("/proc/stat", encoding="ascii") as f:
            return int(re.search(r"^processes (\d+)", f.read(), re.M).group(1))

    def since_s(self) -> float:
        """
        What the tasks have taken that are there now, or what was taken of `cpus`: tasks that
        have ended, or have moved to another CPU, are in that alone.
        """
        now, none = self.look(), (0, 0)
        seen = sum(max(0, t - self.before.get(task, none)[0]) for task, (t, cpu) in now.items()
                   if self.cpus is None or cpu in self.cpus)
        unseen = self.unseen() - self.unseen_before
        return max(seen, unseen) if unseen >= UNSEEN_MIN_S else seen


class Patience:
    """Waits until the server's CPUs are quiet, for at most wait_s in the whole run."""

    def __init__(self, cpus: Iterable[int], wait_s: float = QUIET_WAIT_S) -> None:
        self.left_s, self.cpus, self.noted = wait_s, cpus, False
        self.idle = Idle()

    def wait(self, ours: Iterable[int]) -> tuple[Any, float]:
        """Busy share of those CPUs without a load: (the current one, the one to subtract)."""
        while True:
            core, others = Core(self.cpus), Others(ours)
            time.sleep(0.5)
            now = core.since()
            share = now["share"]
            if share <= QUIET_SHARE and others.since_s() <= 0.05 and \
                    others.forks() - others.forks_before <= 3 or self.left_s <= 0:
                return share, self.idle.share(now)
            if not self.noted:
                notify("  waiting for other work on this machine to end")
                self.noted = True
            self.left_s -= 0.5


def tasks(pid: int) -> list[int]:
    """The process and its descendants."""
    ret = [pid]
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as f:
                for child in f.read().split():
                    ret += tasks(int(child))
    except OSError:
        pass
    return ret


def ran_s(pids: Iterable[int]) -> float:
    """Processor time of the processes, by the scheduler's accounting."""
    ns = 0
    for pid in pids:
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
                    ns += int(f.read().split()[0])
        except OSError:
            pass
    return ns / 1e9


def disk_read_bytes(pids: Iterable[int]) -> int | None:
    """Bytes that the disk read for the processes, in their own threads; None: not known."""
    each = [first(f"/proc/{pid}/io", r"^read_bytes: (\d+)", None) for pid in pids]
    return None if None in each or not each else sum(map(int, each))


def resident(pids: Iterable[int]) -> tuple[int, int]:
    """(resident bytes, those of them that belong to the cache budget)."""
    total = cache = 0
    for pid in pids:
        name = ""
        with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as f:
            for line in f:
                m = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)", line)
                if m:
                    name = m.group(1)
                elif line.startswith("Rss:"):
                    nr = int(line.split()[1]) * 1024
                    total += nr
                    if re.search(r"bpf-map|bpf_map|memfd:|anon:tbg", name):
                        cache += nr
    return total, cache


def first(path: str, pattern: str, default: Any = "unknown") -> Any:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            m = re.search(pattern, f.read(), re.M)
    except OSError:
        return default
    return m.group(1).strip() if m else default


SYSCTLS = ("net.core.somaxconn", "net.core.rps_sock_flow_entries", "net.core.netdev_max_backlog",
           "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_max_syn_backlog",
           "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.ip_local_port_range",
           "net.core.bpf_jit_enable", "fs.nr_open", "fs.file-max")


def machine() -> dict:
    """The facts about this machine that a reader of a figure needs."""
    sysctls = {}
    for name in SYSCTLS:
        sysctls[name] = first("/proc/sys/" + name.replace(".", "/"), r"(.*)", "")
    return {"kernel": platform.release(), "build": platform.version(),
            "cpu": first("/proc/cpuinfo", r"^model name\s*:\s*(.*)", platform.machine()),
            "cpus": os.cpu_count(),
            "memory_mib": int(first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) // 1024,
            "virtual": "hypervisor" in first("/proc/cpuinfo", r"^flags\s*:\s*(.*)", ""),
            "governor": first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", r"(.*)",
                              "none"),
            "system": first("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'),
            "command_line": first("/proc/cmdline", r"(.*)"), "sysctls": sysctls,
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z")}
