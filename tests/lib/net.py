# SPDX-License-Identifier: GPL-2.0
"""Network namespaces and links for a test, made by the test itself.

    with net.Net(links=2) as n:             # n.server <== tbg0, tbg1 ==> n.client
        with n.server.inside():             # this thread, and what it starts
            d = daemon.Daemon("--wire", "tbg0,lo", listen="0.0.0.0:80").start()
        s = n.client.connect((n.links[0].server4, 80))

The namespaces have no names: descriptors of this process hold them, so the kernel removes
them with their interfaces when the last process that uses them ends, however the test
ends. A socket stays in the namespace that it was made
in. Needs root; raises ktap.Skip without, or where the kernel has no veth.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time
from typing import Any, Callable, Iterable, Iterator

import client
import ktap

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
SYS_BPF = 321                           # x86-64
WAIT_S = client.WAIT_S
BPF_PROG_LOAD, BPF_OBJ_PIN, BPF_PROG_ATTACH, BPF_PROG_DETACH, BPF_PROG_GET_FD_BY_ID = 5, 6, 8, 9, 13
BPF_PROG_QUERY, BPF_LINK_CREATE, BPF_LINK_GET_FD_BY_ID, BPF_LINK_DETACH = 16, 28, 30, 34
PROG_TYPE_CLS, PROG_TYPE_XDP, PROG_TYPE_CGROUP_SKB, ATTACH_XDP = 3, 6, 8, 37
BPF_F_ALLOW_MULTI, BPF_F_BEFORE = 2, 8
XDP_FLAGS_DRV_MODE, XDP_HAS_FRAGS = 4, 32
TCX = {"ingress": 46, "egress": 47}     # enum bpf_attach_type
TCP_STATES = ("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",
              "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING",
              "NEW_SYN_RECV")

# Counters that do not change while nothing is lost, late or out of order.
TROUBLE = {
    "Tcp": "RetransSegs InErrs InCsumErrors EstabResets OutRsts",
    "TcpExt": "TCPChallengeACK TCPSYNChallenge TCPOFOQueue TCPOFODrop TCPOFOMerge "
              "TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv TCPDSACKOfoRecv "
              "TCPDSACKIgnoredOld TCPDSACKIgnoredNoUndo TCPDSACKIgnoredDubious "
              "TCPSpuriousRTOs TCPTimeouts TCPLossProbes TCPFastRetrans "
              "TCPSlowStartRetrans TCPLostRetransmit TCPRetransFail TCPSACKReorder "
              "TCPTSReorder TCPRenoReorder TCPSackRecovery TCPRenoRecovery TCPSACKReneging "
              "TCPSACKDiscard PAWSActive PAWSEstab TSEcrRejected BeyondWindow "
              "TCPACKSkippedSeq TCPACKSkippedPAWS TCPACKSkippedChallenge "
              "TCPACKSkippedFinWait2 TCPACKSkippedTimeWait DelayedACKLost "
              "TCPAbortOnData TCPAbortOnTimeout TCPAbortFailed TCPZeroWindowDrop "
              "TCPRcvQDrop TCPBacklogDrop TCPKeepAlive OutOfWindowIcmps",
    "IpExt": "InCsumErrors",
}
# The retransmission was to be of a packet that still lay in a queue of its own host: nothing
# was lost, the machine did not get round to sending it.
UNSENT = "TcpExt.TCPSpuriousRtxHostQueues"
BEHIND = "TcpExt.TCPSlowStartRetrans"   # behind what was sent again after a timeout
SYN_AGAIN = "Tcp.RetransSegs", "TcpExt.TCPTimeouts"     # which count that, too

_libc = ctypes.CDLL(None, use_errno=True)


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    ret = fn(*args)
    if ret < 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{fn.__name__}: {os.strerror(err)}")
    return ret


def here() -> int:
    """A descriptor of the namespace that this thread is in."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def own_mounts() -> str:
    """
    Make later mounts of this thread and its children private; they are removed with the
    last of these processes. Returns "", or the reason why this is impossible.
    """
    if os.geteuid():
        return "not root: nothing can be mounted"
    try:
        _call(_libc.unshare, CLONE_NEWNS)
        _call(_libc.mount, None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    except OSError as why:
        return f"no mount namespace: {why}"
    return ""


class Namespace:
    """A network namespace of its own, with lo up."""

    def __init__(self) -> None:
        if os.geteuid():
            raise ktap.Skip("not root: no network namespace can be made")
        back = here()
        try:
            _call(_libc.unshare, CLONE_NEWNET)
            try:
                self.fd = here()
            finally:
                _call(_libc.setns, back, CLONE_NEWNET)
        except OSError as why:
            raise ktap.Skip(f"no network namespaces: {why}") from why
        finally:
            os.close(back)
        # no duplicate address detection, no spurious probe of a busy machine
        self.sysctl("ipv6.conf.all.accept_dad", 0)
        self.sysctl("ipv6.conf.default.accept_dad", 0)
        self.sysctl("ipv4.tcp_early_retrans", 0)
        # A closed socket whose FIN is acknowledged becomes a TIME_WAIT of half
        # its size at once, unless it has more than 60 s to wait for the other
        # FIN; that one, if another CPU has it by then, is lost with the socket.
        self.sysctl("ipv4.tcp_fin_timeout", 120)
        self.run("ip", "link", "set", "lo", "up")
        self.steer("lo", 0)

    def steer(self, interface: str, cpu: int) -> None:
        """Let the namespace receive on one CPU: two would reorder a connection's segments."""
        cpus = os.cpu_count() or 1
        if cpus == 1:
            return
        done = self.run("unshare", "--mount", "sh", "-c", "mount -t sysfs sysfs /sys && "
                        f"cd /sys/class/net/{interface}/queues/rx-0 && "
                        "if [ -e rps_cpus ]; then "
                        f"echo {1 << min(cpu, cpus - 1):x} > rps_cpus; else echo none; fi")
        if done:
            raise ktap.Skip("this kernel cannot have one CPU receive (CONFIG_RPS), and has more")

    @contextlib.contextmanager
    def inside(self) -> Iterator[Namespace]:
        """This thread, its new sockets and children are in the namespace."""
        back = here()
        _call(_libc.setns, self.fd, CLONE_NEWNET)
        try:
            yield self
        finally:
            _call(_libc.setns, back, CLONE_NEWNET)
            os.close(back)

    def run(self, *words: Any, check: bool = True, timeout: float = WAIT_S) -> str:
        """Output of a command that runs in the namespace."""
        with self.inside():
            done = subprocess.run(words, capture_output=True, text=True, check=False,
                                  errors="replace", stdin=subprocess.DEVNULL, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: "
                               f"{done.stderr.strip()}")
        return done.stdout

    def sysctl(self, name: str, value: Any) -> str | None:
        """Set net.NAME; returns the previous value, or None if the kernel lacks it."""
        path = "/proc/sys/net/" + name.replace(".", "/")
        with self.inside():
            try:
                with open(path, "r+", encoding="ascii") as f:
                    was = f.read().strip()
                    f.seek(0)
                    f.write(f"{value}\n")
            except FileNotFoundError:
                return None
        return was

    def connect(self, address: tuple, source: str | None = None, timeout: float = WAIT_S,
                setup: Any = None) -> socket.socket:
        """A TCP connection from here. setup(socket) runs before connect."""
        with self.inside():
            s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            s.settimeout(timeout)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if setup:
                setup(s)
            if source:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(source)
            s.connect(address)
        except BaseException:
            s.close()
            raise
        return s

    def mibs(self) -> dict[str, int]:
        """{"Tcp.RetransSegs": 0, "Ip6InReceives": 0, …} of the namespace."""
        ret = {}
        with self.inside():
            for name in ("snmp", "netstat"):
                with open(f"/proc/thread-self/net/{name}", encoding="ascii") as f:
                    for names in f:
                        proto, keys = names.split(":")
                        values = next(f).split(":")[1]
                        for key, value in zip(keys.split(), values.split()):
                            ret[f"{proto}.{key}"] = int(value)
            with contextlib.suppress(FileNotFoundError), \
                    open("/proc/thread-self/net/snmp6", encoding="ascii") as f:
                ret |= {key: int(value) for key, value in map(str.split, f)}
        return ret

    def sockets(self, port: int) -> list[tuple]:
        """[(state, remote port, unacknowledged bytes, unread ones)] with this local TCP port."""
        ret = []
        for name in ("tcp", "tcp6"):
            with self.inside(), open(f"/proc/thread-self/net/{name}", encoding="ascii") as f:
                next(f)
                for line in f:
                    words = line.split()
                    if int(words[1].rsplit(":")[1], 16) == port:
                        ret.append((TCP_STATES[int(words[3], 16)],
                                    int(words[2].rsplit(":")[1], 16),
                                    *(int(x, 16) for x in words[4].split(":"))))
        return ret

    def settle(self, port: int) -> None:
        """Wait until each connection of port has all it sent acknowledged."""
        until(lambda: not any(unacked for state, _, unacked, _ in self.sockets(port)
                              if state not in ("LISTEN", "TIME_WAIT")),
              "sent bytes are never acknowledged")

    def taken(self, port: int, remote: tuple | None) -> None:
        """Wait until the connection from that remote port has nothing left to read."""
        until(lambda: not any(unread for _, peer, _, unread in self.sockets(port)
                              if peer == remote),
              "what has come is never read")

    def over(self, port: int, remote: tuple | None = None) -> None:
        """Wait until no connection of port (to that remote port) is left but in TIME_WAIT."""
        until(lambda: all(state in ("LISTEN", "TIME_WAIT") for state, peer, _,
                          _ in self.sockets(port)
                          if remote in (None, peer)),
              "the server's socket stays")

    def programs(self) -> dict[tuple[str, str], list[str]]:
        """{(interface, hook): [program names]} of tcx and clsact, sorted."""
        ret = {}
        with self.inside():
            for ifindex, name in socket.if_nameindex():
                for hook, number in TCX.items():
                    found = _prog_names(i for i, _ in _tcx_ids(ifindex, number))
                    found += [line.split()[line.split().index("handle") + 2].split(":")[0]
                              for line in self.run("tc", "filter", "show", "dev", name, hook,
                                                   check=False).splitlines()
                              if " handle " in line and "direct-action" in line]
                    if found:
                        ret[name, hook] = sorted(found)
        return ret

    def strip(self, name: str, hooks: Iterable[str] = tuple(TCX), links: Any = True) -> None:
        """
        Remove all programs from an interface's hooks, as another tool may. Without links: as a
        tool that does not know links, which does not remove programs attached by them.
        """
        with self.inside():
            ifindex = socket.if_nametoindex(name)
            tcx = {TCX[hook]: _tcx_ids(ifindex, TCX[hook]) for hook in hooks}
            for hook, ids in tcx.items():
                for prog_id, link_id in ids:
                    if link_id and links:
                        link = _bpf_fd(BPF_LINK_GET_FD_BY_ID, struct.pack("=3I", link_id, 0, 0))
                        _bpf_fd(BPF_LINK_DETACH, struct.pack("=I", link))
                        os.close(link)
                        continue
                    prog = _bpf_fd(BPF_PROG_GET_FD_BY_ID, struct.pack("=3I", prog_id, 0, 0))
                    # target_ifindex, attach_bpf_fd, attach_type, and five that are zero
                    did = _bpf(BPF_PROG_DETACH,
                               struct.pack("=3I", ifindex, prog, hook) + bytes(20))
                    os.close(prog)
                    assert (did is None) == bool(link_id), f"{did} of link {link_id}"
        if not any(tcx.values()) and len(hooks) == len(TCX):
            self.run("tc", "qdisc", "del", "dev", name, "clsact")
        elif not any(tcx.values()):
            for hook in hooks:
                self.run("tc", "filter", "del", "dev", name, hook)

    def put_in_front(self, name: str, hook: str, verdict: int) -> None:
        """
        Another tool's TC program, before all others; without tcx before those of wire, where
        that has made the qdisc.
        """
        with self.inside():
            prog = _verdict(PROG_TYPE_CLS, verdict)
            try:
                # target_ifindex, attach_bpf_fd, attach_type, flags, and four that are zero
                if _bpf(BPF_PROG_ATTACH, struct.pack(
                        "=4I", socket.if_nametoindex(name), prog, TCX[hook], BPF_F_BEFORE) +
                        bytes(16)) is not None:
                    return
            finally:
                os.close(prog)
        self.add_filter(name, hook, verdict, 1)

    def add_filter(self, name: str, hook: str, verdict: int, priority: int) -> None:
        """Add a BPF filter to the hook of a clsact, which is made if there is none."""
        pin = f"/sys/fs/bpf/tbg-test-{os.getpid()}"
        prog = _verdict(PROG_TYPE_CLS, verdict)
        path = ctypes.create_string_buffer(pin.encode())
        try:
            _bpf_fd(BPF_OBJ_PIN, struct.pack("=QII", ctypes.addressof(path), prog, 0))
            self.run("tc", "qdisc", "add", "dev", name, "clsact", check=False)
            # not by `ip netns exec`, which covers the pin
            self.run("tc", "filter", "add", "dev", name, hook, "pref", str(priority), "protocol",
                     "all", "bpf", "direct-action", "object-pinned", pin)
        finally:
            os.close(prog)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(pin)

    def traces(self) -> str:
        """Everything that a daemon could leave on the interfaces, as text to compare."""
        names = [name for _, name in self._names()]
        return "\n".join([str(sorted(self.programs().items())),
                          self.run("tc", "qdisc", "show"), self.run("bpftool", "net", "show"),
                          *(self.run("tc", "filter", "show", "dev", name, hook, check=False)
                            for name in names for hook in TCX)])

    def _names(self) -> list[tuple[int, str]]:
        with self.inside():
            return socket.if_nameindex()

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _bpf(cmd: int, attr: Any) -> bytes | None:
    buf = ctypes.create_string_buffer(attr, len(attr))
    if _libc.syscall(SYS_BPF, cmd, buf, len(attr)) < 0:
        return None
    return buf.raw


def _bpf_fd(cmd: int, attr: Any) -> Any:
    buf = ctypes.create_string_buffer(attr, len(attr))
    return _call(_libc.syscall, SYS_BPF, cmd, buf, len(attr))


def _verdict(kind: int, verdict: int, flags: int = 0) -> Any:
    """A descriptor of a program that only returns a verdict."""
    insns = ctypes.create_string_buffer(
        struct.pack("=BBhiBBhi", 0xb7, 0, 0, verdict, 0x95, 0, 0, 0))
    name = ctypes.create_string_buffer(b"GPL")
    # prog_type, insn_cnt, insns, license, the log's three, kern_version, prog_flags
    return _bpf_fd(BPF_PROG_LOAD, struct.pack(
        "=IIQQIIQII", kind, 2, ctypes.addressof(insns), ctypes.addressof(name),
        0, 0, 0, 0, flags) + bytes(24))


def own_cgroup() -> tuple[str, str]:
    """Where cgroups (version 2) are mounted, and the folder of this process; StopIteration: no."""
    with open("/proc/mounts", encoding="ascii") as f:
        top = next(words[1] for words in map(str.split, f) if words[2] == "cgroup2")
    with open("/proc/self/cgroup", encoding="ascii") as f:
        return top, top + next(line[3:] for line in f.read().split() if line.startswith("0::"))


@contextlib.contextmanager
def cgroup_filter(folder: str, verdict: int) -> Iterator[None]:
    """A BPF program with this verdict on all that sockets of the cgroup receive."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    prog = _verdict(PROG_TYPE_CGROUP_SKB, verdict)

    # target_fd, attach_bpf_fd, attach_type (ingress: 0), flags
    def attr(flags: int) -> bytes:
        return struct.pack("=4I", fd, prog, 0, flags) + bytes(16)
    try:
        assert _bpf(BPF_PROG_ATTACH, attr(BPF_F_ALLOW_MULTI)) is not None, "not attached"
        try:
            yield
        finally:
            assert _bpf(BPF_PROG_DETACH, attr(0)) is not None, "not detached"
    finally:
        os.close(prog)
        os.close(fd)


def xdp_pass(namespace: Any, interface: str) -> Any:
    """A native XDP program that passes everything, until the descriptor is closed."""
    prog = _verdict(PROG_TYPE_XDP, 2, XDP_HAS_FRAGS)
    try:
        with namespace.inside():
            return _bpf_fd(BPF_LINK_CREATE, struct.pack(
                "=4I", prog, socket.if_nametoindex(interface), ATTACH_XDP, XDP_FLAGS_DRV_MODE))
    finally:
        os.close(prog)


def _tcx_ids(ifindex: int, hook: int) -> list[tuple]:
    """[(program, link or 0)] of a tcx hook, as ids; a kernel without tcx has none."""
    progs, links = (ctypes.c_uint32 * 64)(), (ctypes.c_uint32 * 64)()
    # target_ifindex, attach_type, query_flags, attach_flags, prog_ids, count, prog_attach_flags,
    # link_ids, link_attach_flags and revision
    attr = _bpf(BPF_PROG_QUERY, struct.pack(
        "=4IQIIQQQQ", ifindex, hook, 0, 0, ctypes.addressof(progs), 64, 0, 0,
        ctypes.addressof(links), 0, 0))
    return list(zip(progs, links))[:struct.unpack_from("=I", attr, 24)[0]] if attr else []


def _prog_names(prog_ids: Iterable[int]) -> list[str]:
    """Of those that there are still: the kernel frees a program at any time after its list."""
    ret = []
    for prog_id in prog_ids:
        res = subprocess.run(["bpftool", "prog", "show", "id", str(prog_id)], check=False,
                             capture_output=True, text=True)
        if not res.returncode:
            words = res.stdout.split()
            ret.append(words[words.index("name") + 1])
        else:
            assert "No such file or directory" in res.stderr, res.stderr
    return ret


def dropped() -> int:
    """Packets of any namespace that were dropped at full queues of the CPUs."""
    with open("/proc/net/softnet_stat", encoding="ascii") as f:
        return sum(int(line.split()[1], 16) for line in f)


class Link:
    """One veth pair: tbg<nr> at both ends, a pair of addresses per family."""

    def __init__(self, net: Net, nr: int) -> None:
        self.name = f"tbg{nr}"
        self.nr, self.net = nr, net
        self.server4, self.client4 = f"10.87.{nr}.1", f"10.87.{nr}.2"
        self.server6, self.client6 = f"fd87:{nr}::1", f"fd87:{nr}::2"
        with net.client.inside():
            try:
                # the other end goes to the server by way of our descriptor
                net.client.run("ip", "link", "add", self.name, "type", "veth",
                               "peer", "name", self.name,
                               "netns", f"/proc/{os.getpid()}/fd/{net.server.fd}")
            except RuntimeError as why:
                raise ktap.Skip(f"no veth interfaces: {why}") from why
        self.peer = xdp_pass(net.client, self.name) if os.environ.get("TBG_XDP") else None
        self.up()
        net.server.steer(self.name, 0)
        net.client.steer(self.name, 1)

    def up(self) -> None:
        """Set addresses and routes; again after an MTU below IPv6's minimum."""
        for ns, four, six in ((self.net.server, self.server4, self.server6),
                              (self.net.client, self.client4, self.client6)):
            ns.run("ip", "link", "set", self.name, "up")
            ns.run("ip", "address", "replace", f"{four}/24", "dev", self.name)
            # a busy machine is not a lossy network: no timeout below 2 s
            ns.run("ip", "route", "change", f"10.87.{self.nr}.0/24", "dev", self.name,
                   "src", four, "rto_min", "2s")
            if ns.sysctl(f"ipv6.conf.{self.name}.accept_dad", 0) is not None:
                ns.run("ip", "address", "replace", f"{six}/64", "dev", self.name, "nodad")
                ns.run("ip", "-6", "route", "replace", f"fd87:{self.nr}::/64", "dev",
                       self.name, "metric", "1", "rto_min", "2s")

    def set_mtu(self, mtu: int) -> None:
        for ns in (self.net.server, self.net.client):
            ns.run("ip", "link", "set", self.name, "mtu", str(mtu))
        self.up()

    def offload(self, ends: Iterable[str] = ("server", "client"), **features: Any) -> None:
        """offload(tx="off", gro="on"): ethtool -K at these ends."""
        words = [word for pair in features.items() for word in pair]
        for end in ends:
            getattr(self.net, end).run("ethtool", "-K", self.name, *words)


class Net:
    def __init__(self, links: Any = 1) -> None:
        self.server = self.client = None
        self.late = None        # counts what the machine was too slow for
        self.held = None        # counts segments that wire dropped for that reason
        self.links = []
        try:
            self.server, self.client = Namespace(), Namespace()
            for nr in range(links):
                self.links.append(Link(self, nr))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for link in self.links:
            if link.peer is not None:
                os.close(link.peer)
        for ns in (self.server, self.client):
            if ns:
                ns.close()

    def __enter__(self) -> Net:
        return self

    def __exit__(self, kind: str, value: Any, trace: object) -> None:
        self.close()

    @contextlib.contextmanager
    def clean(self, port: int, *ignore: Any, syns: int = 0) -> Iterator[None]:
        """
        What runs inside sees no loss, no reordering, no wrong checksum; syns: so many
        SYNs may be sent again. A client that was starved for 200 ms got its reply from
        wire and from the socket, or timed out before its packet left its own queue, and
        packets are dropped where a CPU has a thousand waiting, whosever they are: what
        the kernels count then says nothing. A segment that wire drops because the daemon was
        preempted while it gave the connection back (HAND_HELD) is sent again by the client, after
        a timeout each, and so is all that it has sent behind it: wire keeps nothing behind a gap.
        """
        ends = (("server", self.server), ("client", self.client))
        before = {name: ns.mibs() for name, ns in ends}
        held = self.held() if self.held else 0
        late = (self.late and self.late(), dropped())
        yield
        self.server.settle(port)
        held = self.held() - held if self.held else 0
        wrong, unsent = [], 0
        for name, ns in ends:
            now = ns.mibs()
            moves = {key: value - before[name].get(key, 0) for key, value in now.items()}
            unsent += moves.get(UNSENT, 0)
            if name == "client" and 0 < moves["TcpExt.TCPTimeouts"] <= held:
                moves["Tcp.RetransSegs"] -= moves.pop(BEHIND)
            for key in SYN_AGAIN:
                moves[key] -= min(moves["TcpExt.TCPSynRetrans"], syns)
                if name == "client":
                    moves[key] -= min(moves[key], held)
            for proto, keys in TROUBLE.items():
                for key in keys.split():
                    moved = moves.get(f"{proto}.{key}", 0)
                    # a socket that is given back to wire counts as one; a client would, too
                    if (name, key) == ("server", "EstabResets"):
                        continue
                    if moved > 0 and key not in ignore:
                        wrong.append(f"{name}: {proto}{key} {moved:+}")
        if wrong and (unsent or (self.late and self.late(), dropped()) != late):
            ktap.note(f"the machine was too slow to judge: {'; '.join(wrong)}")
            return
        assert not wrong, "; ".join(wrong)


def until(fn: Callable[..., Any], what: str = "never happened", wait_s: float = WAIT_S,
          every_s: float = 0.002) -> Any:
    """The first true value of fn, which is asked as often as that."""
    deadline = time.monotonic() + wait_s
    while not (ret := fn()):
        assert time.monotonic() < deadline, what
        time.sleep(every_s)
    return ret
