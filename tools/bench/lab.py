# SPDX-License-Identifier: GPL-2.0
"""The laboratory: two namespaces on this machine, pinned and steered.

Servers run in one, clients in the other, joined by a veth pair per server, so that none
pays for another's programs. A lab removes everything that it made; remove_stale()
removes what a killed one left. remote.py has the same interface for servers on another
machine.
"""
from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable

from meters import SYSCTLS, first, tasks
from messages import Problem

if TYPE_CHECKING:
    from loads import Load
    from servers import Server

HERE = os.path.dirname(os.path.realpath(__file__))
NOFILE = 65536
NETNS = "tbg-bench-"
FOLDER = "tbg-bench."
ENABLED = "memory-enabled"  # in it, the cgroups to which we have given the controller
LOCK = "/run/lock/toboggan-bench"
SOURCES_MAX = 200           # client addresses on one link
ROUTES_S = 1.5              # toboggand reads routes once a second
PR_SET_PDEATHSIG = 1
LINKS_MAX = 255             # at a time: one octet of the address distinguishes them


def sh(*argv: str | None, check: bool = True) -> str:
    res = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    if check and res.returncode:
        why = (res.stderr.strip() or res.stdout.strip() or f"exit {res.returncode}")
        raise Problem(f"{' '.join(argv[:6])}: {why.splitlines()[0]}")
    return res.stdout


def open_lock() -> int:
    """Open our lock, or that of another user for reading, which is enough for flock."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(LOCK, flags | os.O_CREAT | os.O_RDWR, 0o644)
    except PermissionError:
        return os.open(LOCK, flags | os.O_RDONLY)


def lock() -> int:
    """Lock out other benchmarks, which would disturb this one, until this process ends."""
    try:
        fd = open_lock()
    except OSError as e:
        raise Problem(f"{LOCK}: {e.strerror}: cannot see whether another benchmark runs") from e
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        os.close(fd)
        raise Problem("another benchmark is running; two would measure each other") from e
    return fd


def check_machine(tools: Iterable[str]) -> None:
    """Why a lab cannot be made here; None if it can."""
    if os.geteuid() != 0:
        raise Problem("namespaces and BPF need root: run it with sudo")
    for tool in tools:
        if not shutil.which(tool):
            raise Problem(f"{tool} is missing: run `sudo make deps`")


def prepare(cpus: Iterable[int], cgroup: str | None = None,
            urgent: bool = True) -> Callable[..., Any]:
    """Runs in a child before it becomes a server or a client.

    urgent: with priority over other processes, so that only servers and clients compete.
    """
    def run() -> None:
        if cgroup:
            with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        os.sched_setaffinity(0, cpus)
        if urgent:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, -20)
            except PermissionError:
                pass
        os.setpgid(0, 0)        # only the benchmark itself handles a Ctrl-C
    return run


def prepare_soaker(cpu: int) -> Callable[..., Any]:
    """End the child with us: it is in no namespace by which the next run would find it."""
    prctl, us = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def run() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != us:
            os._exit(1)
        os.sched_setaffinity(0, {cpu})
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.setpgid(0, 0)
    return run


def raise_nofile(want: Any = NOFILE) -> int:
    """Raise the limit of descriptors for us and our children; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= want:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(want, hard),) * 2)
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def places() -> list:
    """Places for a lab's folder: a disk rather than memory, if possible."""
    named = dict.fromkeys((os.environ.get("TMPDIR"), "/var/tmp", "/tmp"))   # each once
    return [place for place in named if place and os.path.isdir(place)]


def make_folder() -> str:
    """A folder that servers which drop their privileges can reach."""
    for place in places():
        parts = os.path.realpath(place)
        while os.stat(parts).st_mode & 0o001 and parts != "/":
            parts = os.path.dirname(parts)
        if parts == "/" and os.access(place, os.W_OK):
            ret = tempfile.mkdtemp(prefix=FOLDER, dir=place)
            os.chmod(ret, 0o755)
            return ret
    raise Problem(f"none of {' '.join(places())} is writable here and reachable for other users")


class Lab:
    """Two namespaces, a folder for sites, and the processes in them."""

    remote = False
    hosts = ()                  # client machines other than this one

    def __init__(self, server_cpus: set, client_cpus: set[int]) -> None:
        self.server_cpus, self.client_cpus = set(server_cpus), set(client_cpus)
        self.server, self.client = f"{NETNS}s{os.getpid()}", f"{NETNS}c{os.getpid()}"
        self.dir, self.cgroups, self.nets = None, [], 0
        self.led: set[str] = set()      # links that have the route of lead_nowhere()
        self.v6 = False         # links have addresses of IPv6
        self.procs, self.interrupted = [], False
        # A number is reused as late as possible: peers keep metrics of its addresses.
        self.free = collections.deque(range(1, LINKS_MAX + 1))

    def open(self) -> None:
        remove_stale()
        self.dir = make_folder()
        for ns in (self.server, self.client):
            sh("ip", "netns", "add", ns)
            sh("ip", "-n", ns, "link", "set", "lo", "up")
            sh("ip", "netns", "exec", ns, "sysctl", "-qw",
               "net.ipv4.ip_local_port_range=10000 64999", "net.ipv4.tcp_tw_reuse=1",
               "net.ipv4.tcp_max_syn_backlog=16384", "net.core.somaxconn=16384")

    def __enter__(self) -> Lab:
        """Open it; it is closed also after Ctrl-C in the background, or a closed terminal."""
        self.lock = lock()
        # an ignored hangup is that of nohup
        self.ends = [signal.SIGINT, signal.SIGTERM] + \
            [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) != signal.SIG_IGN)
        self.before = {signum: signal.signal(signum, self.interrupt) for signum in self.ends}
        try:
            self.open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for signum in self.ends:
                signal.signal(signum, signal.SIG_IGN)
        finally:                # interrupted on the way to it
            self.close()
            os.close(self.lock)
        if not self.interrupted:
            for signum, handler in self.before.items():
                signal.signal(signum, handler)

    def interrupt(self, *_: object) -> None:
        """Handle one signal: a second one would end the removal or the report."""
        self.interrupted = True
        for signum in self.ends:
            signal.signal(signum, signal.SIG_IGN)
        raise KeyboardInterrupt

    def sysctls(self) -> dict:
        """Sysctls of the servers' side that differ between namespaces."""
        out = sh("ip", "netns", "exec", self.server, "sysctl", "-e",
                 *(name for name in SYSCTLS if name.startswith("net.")), check=False)
        pairs = (line.partition(" = ") for line in out.splitlines())
        return {name: value.strip() for name, _, value in pairs}

    def soak(self) -> None:
        """Keep the server's CPUs from becoming idle, by loops of the lowest priority."""
        for cpu in self.server_cpus:
            self.procs.append(subprocess.Popen(
                [sys.executable, "-c", "while True: pass"], preexec_fn=prepare_soaker(cpu),
                stdin=subprocess.DEVNULL))

    def link(self, sources: int = 1) -> tuple[str, str, list[str]]:
        """A veth pair for one server: (interface, server's address, clients' addresses)."""
        if not self.free:
            raise Problem(f"more than {LINKS_MAX} servers at a time")
        nr = self.free.popleft()
        name, net = f"tbg{nr}", f"fd18:{nr:x}:" if self.v6 else f"198.18.{nr}"
        # A queue for each CPU of the side that has more, at both ends: packets of a queue that
        # the other end lacks are not steered.
        queues = str(max(len(self.server_cpus), len(self.client_cpus), 1))
        end = ["name", name, "mtu", "1500", "numrxqueues", queues, "numtxqueues", queues]
        sh("ip", "-n", self.server, "link", "add", *end, "type", "veth", "peer", *end, "netns",
           self.client)
        dot, bits = (":", ["64", "nodad"]) if self.v6 else (".", ["24"])
        clients = [f"{net}{dot}{10 + i}" for i in range(min(sources, SOURCES_MAX))]
        for ns, hosts, cpus in ((self.server, [f"{net}{dot}1"], self.server_cpus),
                                (self.client, clients, self.client_cpus)):
            for host in hosts:
                sh("ip", "-n", ns, "addr", "add", f"{host}/{bits[0]}", "dev", name, *bits[1:])
            sh("ip", "-n", ns, "link", "set", name, "up")
            mask = f"{sum(1 << cpu for cpu in cpus):x}"
            groups = [mask[max(0, i - 8):i] for i in range(len(mask), 0, -8)][::-1]
            sh("ip", "netns", "exec", ns, "sh", "-c",
               f"for q in /sys/class/net/{name}/queues/rx-*; do "
               f"echo {','.join(groups)} > $q/rps_cpus; done")
        return name, f"{net}{dot}1", clients

    def _net_nowhere(self, name: str) -> str:
        """How addresses begin that no interface has, of the clients on this link."""
        nr = int(name.removeprefix("tbg"))
        return f"fd99:{nr:x}::" if self.v6 else f"10.{99 + nr}."

    def nowhere(self, name: str) -> str:
        """The first of 256 addresses that no interface has.

        They differ each time, so that no connection is taken for one of an earlier run.
        """
        self.nets = self.nets % 250 + 1
        return self._net_nowhere(name) + (f"{self.nets:x}00" if self.v6 else f"{self.nets}.0")

    def lead_nowhere(self, name: str, client: str) -> Any:
        """Route those addresses to the clients' end of the server's link; returns its MAC."""
        net = self._net_nowhere(name) + ("/32" if self.v6 else "0.0/16")
        if name not in self.led:
            sh("ip", "-n", self.server, "route", "replace", net, "via", client, "dev", name)
            self.led.add(name)
            time.sleep(ROUTES_S)
        out = sh("ip", "-n", self.server, "-o", "link", "show", "dev", name)
        return re.search(r"link/ether (\S+)", out).group(1)

    def nobody(self, name: Any) -> tuple[str, str]:
        """(the server's MAC, an address on its link that no interface has).

        Packets to that address reach the clients' end nevertheless, and their TCP, which
        does not know it, does not answer.
        """
        macs = {}
        for ns in (self.server, self.client):
            out = sh("ip", "-n", ns, "-o", "link", "show", "dev", name)
            macs[ns] = re.search(r"link/ether (\S+)", out).group(1)
        net = sh("ip", "-n", self.server, "-o", "-4", "addr", "show", "dev", name)
        address = re.search(r"inet (\d+\.\d+\.\d+)\.", net).group(1) + ".250"
        sh("ip", "-n", self.server, "neigh", "replace", address, "lladdr", macs[self.client],
           "dev", name)
        return macs[self.server], address

    def bare_client(self, name: str) -> None:
        """The clients' end of a link without any program."""
        sh("tc", "-n", self.client, "qdisc", "del", "dev", name, "clsact", check=False)

    def unlink(self, name: Any) -> None:
        """Remove the link of a server that has ended, and with it its programs."""
        sh("ip", "-n", self.server, "link", "del", name, check=False)
        for path in glob.glob(os.path.join(self.dir, f"{name}[-.]*")):
            remove(path)        # or the link's next server would find this one's sockets
        self.free.append(int(name[3:]))

    def client_argv(self, argv: list[str]) -> list:
        return ["nsenter", f"--net=/run/netns/{self.client}", *argv]

    def spread(self, load: Load) -> Any:
        """The clients that share a load, as loads.started() takes them."""
        return load.clients(len(self.client_cpus))

    def spawn_server(self, argv: list[str], cgroup: str | None = None,
                     **kw: Any) -> subprocess.Popen:
        return self.spawn(["nsenter", f"--net=/run/netns/{self.server}", *argv],
                          self.server_cpus, cgroup, **kw)

    def spawn_client(self, argv: list[str], nr: int = 0, of: int = 1,
                     **kw: Any) -> subprocess.Popen:
        """The share of the clients' CPUs for the nr-th of several clients."""
        cpus = sorted(self.client_cpus)
        mine = cpus[nr::of] or [cpus[nr % len(cpus)]]
        return self.spawn(self.client_argv(argv), set(mine), None, **kw)

    def spawn(self, argv: list[str], cpus: Iterable[int], cgroup: str | None,
              **kw: Any) -> subprocess.Popen:
        proc = subprocess.Popen(argv, preexec_fn=prepare(cpus, cgroup, not self.remote), **kw)
        self.procs.append(proc)
        return proc

    def end(self, proc: Any) -> None:
        """Stop one process and its descendants, first by SIGTERM."""
        pids = tasks(proc.pid)
        if proc.poll() is None:
            proc.terminate()
            try:
                proc.wait(5)
            except subprocess.TimeoutExpired:
                pass
        for pid in pids:
            if pid != proc.pid or proc.poll() is None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        proc.wait()
        if proc in self.procs:
            self.procs.remove(proc)

    def pids(self) -> list:
        return [pid for proc in self.procs for pid in tasks(proc.pid)]

    def link_bps(self, _server: Server) -> float | None:
        """A veth pair has no rate that could be the limit."""
        return None

    def net_bytes(self, server: Server) -> tuple | None:
        """
        Bytes of a server's link, the frames of a batch counted as one: (received, sent).
        The link is no limit here, but this shows how much of the network a figure used.
        """
        nrs = server.proc and first(f"/proc/{server.proc.pid}/net/dev",
                                    rf"^ *{server.iface}:(.*)$", "").split()
        return (int(nrs[0]), int(nrs[8])) if nrs else None

    def retransmitted(self, server: Server) -> int:
        """Segments that the servers' kernel has sent again since the lab was made."""
        text = server.proc and first(f"/proc/{server.proc.pid}/net/snmp", r"(Tcp:.*\nTcp:.*)", "")
        names, _, values = (text or "").partition("\n")
        return int(dict(zip(names.split(), values.split())).get("RetransSegs", 0))

    def limit_memory(self, limit: int) -> Any:
        """A cgroup for one server that may use `limit` bytes; its folder."""
        self.cgroups.append(memory_cgroup(f"{NETNS}{os.getpid()}-{len(self.cgroups)}", limit,
                                          os.path.join(self.dir, ENABLED)))
        return self.cgroups[-1]

    def close(self) -> None:
        for proc in list(self.procs):
            self.end(proc)
        for ns in (self.server, self.client):
            remove_netns(ns)
        while self.cgroups:
            remove_cgroup(self.cgroups.pop())
        if self.dir:
            remove_folder(self.dir)
            self.dir = None


def remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):    # its owner may have removed it
            os.unlink(path)


LIMIT, LIMIT_1 = "memory.max", "memory.limit_in_bytes"      # of cgroups of version 2 and 1


def memory_roots() -> list[tuple[str, str]]:
    """[(folder for new groups, file of the limit)]: version 2 first, then 1."""
    ret = []
    with open("/proc/mounts", encoding="utf-8") as f:
        for line in f:
            _, where, kind, opts = line.split()[:4]
            if kind == "cgroup2":
                ret.insert(0, (where, LIMIT))
            elif kind == "cgroup" and "memory" in opts.split(","):
                ret.append((where, LIMIT_1))
    return ret


def memory_cgroup(name: str, limit: int, enabled: list[str]) -> str:
    """enabled: the file that lists where we have enabled memory for groups."""
    for root, knob in memory_roots():
        folder = os.path.join(root, name)
        try:
            if knob == LIMIT:
                enable_memory(root, enabled)
            os.mkdir(folder)
            limit_memory(folder, limit)
            return folder
        except OSError:
            remove_cgroup(folder)
    raise Problem("no cgroup with a memory controller can be made here; "
                  "mount cgroup2 with memory enabled, or run as root on the host")


def limit_memory(folder: str, limit: int) -> None:
    """What a group may use from now on, version 2 or 1. OSError: that cannot be limited."""
    paths = (os.path.join(folder, knob) for knob in (LIMIT, LIMIT_1))
    path = next(filter(os.path.exists, paths), os.path.join(folder, LIMIT))
    with open(path, "w", encoding="ascii") as f:
        f.write(str(limit))


def enable_memory(root: str, enabled: list[str]) -> None:
    with open(os.path.join(root, "cgroup.subtree_control"), "r+", encoding="ascii") as f:
        if "memory" in f.read().split():
            return
        with open(enabled, "w", encoding="utf-8") as note:
            note.write(root)
        f.write("+memory")


def disable_memory(enabled: str) -> None:
    """Restore the previous state, unless others use the controller by now."""
    try:
        with open(enabled, encoding="utf-8") as f:
            root = f.read()
    except FileNotFoundError:
        return
    limits = {first(path, r"(\S+)", "max")
              for path in glob.glob(f"{glob.escape(root)}/*/memory.max")}
    if limits <= {"max"}:
        with contextlib.suppress(OSError), \
             open(os.path.join(root, "cgroup.subtree_control"), "w", encoding="ascii") as f:
            f.write("-memory")


def memory_begin(folder: str | None) -> None:
    """Reset the maximum of memory, if the kernel can do so (version 1)."""
    with contextlib.suppress(OSError):
        with open(os.path.join(folder, "memory.max_usage_in_bytes"), "w", encoding="ascii") as f:
            f.write("0")


def memory_used(folder: str | None) -> tuple[int | None, int | None]:
    """
    (maximum bytes of a group; how often it was at its limit). Version 2 has the maximum
    since Linux 5.19; before, this is the current value.
    """
    def number(name: str, pattern: str = r"(\d+)") -> int | None:
        ret = first(os.path.join(folder, name), pattern, None)
        return None if ret is None else int(ret)

    most = number("memory.max_usage_in_bytes")
    if most is not None:
        return most, number("memory.failcnt")
    most = number("memory.peak")
    return (number("memory.current") if most is None else most,
            number("memory.events", r"^max (\d+)"))


def remove_cgroup(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass


def remove_folder(folder: str) -> None:
    """Remove the lab's folder, as the last step."""
    disable_memory(os.path.join(folder, ENABLED))
    shutil.rmtree(folder, ignore_errors=True)


def remove_netns(ns: str) -> None:
    for pid in sh("ip", "netns", "pids", ns, check=False).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    sh("ip", "netns", "del", ns, check=False)


def remove_stale() -> None:
    """Remove what a killed benchmark left behind; the lock shows that none is running."""
    for line in sh("ip", "netns", "list").splitlines():
        if line.startswith(NETNS):
            remove_netns(line.split()[0])
    for root, _ in memory_roots():
        for folder in glob.glob(os.path.join(root, NETNS + "*")):
            remove_cgroup(folder)
    for place in places():
        for folder in glob.glob(os.path.join(place, FOLDER + "*")):
            remove_folder(folder)
