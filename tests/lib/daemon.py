# SPDX-License-Identifier: GPL-2.0
"""Start and stop build/toboggand for a test.

    with daemon.Daemon("--tiers", "user") as d:
        d.write("index.html", b"hello")         # below d.root
        s = socket.create_connection(d.address)

The root, the control socket and the log are in one temporary folder, which is removed
with the daemon. start() returns when the daemon has written `ready`; it raises if the
daemon exits before that, or writes nothing for READY_S. The kernel chooses the port unless
listen is given.
"""
from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any, Iterable, Iterator, Sequence

import ktap

PAST_NS = 5 * 10**9

WHERE = os.environ.get("TBG_WHERE", "")
IN_VM = WHERE.startswith("vm")
KERNELS = ("vm/6.1", "vm/6.12", "vm/newest")    # of `make check-vm`
# The number of the commit, where these kernels run together and share rows.
TURN = os.environ.get("TBG_TURN", "")
# Factor of times, at most; vm/run has another one for debug kernels.
SLOW = int(os.environ.get("TBG_SLOW", 0)) or \
    (10 if IN_VM else 5 if os.environ.get("TBG_SANITIZER") else 1)
READY_S = 24 * SLOW if IN_VM else 60
STOP_S = 12 * SLOW if IN_VM else 60
BINARY = os.path.join(ktap.BUILD, "toboggand")
TOOL = os.path.join(ktap.BUILD, "toboggan")


# The tiers of daemons for which the test names none: `sock,user` uses sock with every
# test that does not choose tiers.
TIERS = os.environ.get("TBG_TIERS", "")
# No kernel tier, unless the environment names one.
USER = () if TIERS else ("--tiers", "user")
# The kernel tiers that are on; tests compare their answers with those of the user tier.
FASTS = tuple(x for x in ("wire", "sock") if x in TIERS.split(",")) or ("wire",)
FAST = FASTS[0]
SANITIZER = os.environ.get("TBG_SANITIZER", "")     # what the daemon is built with
HITS = ("wire", "sock", "user")        # the tier that answers from the cache
XDP = os.environ.get("TBG_XDP", "")     # on the veths of net.py: IFACE becomes IFACE:xdp
# off: connections have a socket and are translated, as before Linux 6.9.
LATE_SOCKETS = os.environ.get("TBG_LATE", "")


def _late_sockets() -> bool:
    if LATE_SOCKETS == "off" or (TIERS and "wire" not in TIERS):
        return False
    with open("/proc/kallsyms", encoding="ascii") as f:
        return " bpf_sk_assign_tcp_reqsk\n" in f.read()


# Connections have no socket before their first miss, and lose it with the next hit.
LATE = _late_sockets()

_running = set()


@contextlib.contextmanager
def shortened(timers: str) -> Iterator[None]:
    """Daemons that begin in the block have shorter timers (os/timers.h): "drain=2s"."""
    os.environ["TOBOGGAND_TEST_TIMERS"] = timers
    try:
        yield
    finally:
        del os.environ["TOBOGGAND_TEST_TIMERS"]


def share(rows: Sequence, parts: int = len(KERNELS)) -> Sequence:
    """All; with a TURN this test kernel's part, another one than the others', and in each turn.

    Of more parts than there are kernels some are left out in each turn; of two, one is had twice.
    """
    if not TURN or WHERE not in KERNELS:
        return rows
    at = KERNELS.index(WHERE) + (2 * len(KERNELS) + 1) * int(TURN)
    return rows[at % parts::parts]


def is_tier(got: str, want: str) -> bool:
    """Whether a hit is by the tier that a test expects, or by sock in its place.

    Sock may answer for user, and for wire on a connection that has had a miss: it has a socket
    then, and beside sock it is not given back.
    """
    return got == want or (got == "sock" and "sock" in TIERS and
                           (want == "user" or (want == "wire" and LATE)))


@atexit.register
def _kill_all() -> None:
    """End the daemon together with a test that dies."""
    for d in list(_running):
        d.kill()


def why_off(tier: str, why: str) -> str:
    """The reason why a kernel tier is off, for a skip; a failure if it could be on.

    `toboggan probe` decides that, not the daemon's message.
    """
    if TIERS and why.startswith("--tiers "):    # the environment asks for others
        return f"{tier} is off: {why}"
    probe = subprocess.run([TOOL, "--json", "probe"], capture_output=True, check=True,
                           timeout=READY_S).stdout
    found = json.loads(probe)["tiers"][tier]
    unlisted = found["lacks"] == ["sock_fixes"] and not why.startswith("kernel ")
    assert found["state"] != "ready" and not unlisted, f"{tier} could be on here, is off: {why}"
    return f"{tier} is off: {why}"


NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def folder_with_root() -> str:
    """A new folder for options() and their files; the caller removes it."""
    ret = tempfile.mkdtemp(prefix="tbg-")
    os.chmod(ret, 0o755)
    os.mkdir(os.path.join(ret, "root"))
    return ret


def options(folder: str, **more: Any) -> list:
    """Valid options; more: others, or other values. None leaves an option out."""
    ret = {"root": os.path.join(folder, "root"), "listen": "127.0.0.1:0",
           "control": os.path.join(folder, "control.sock"), "wire": "off"}
    ret.update({k.replace("_", "-"): v for k, v in more.items()})
    return [x for k, v in ret.items() if v is not None for x in ("--" + k, v)]


def not_sanitized(what: str, *by: str) -> None:
    """Skip a test of something that sanitizers, or some of them, change, such as memory."""
    if SANITIZER and SANITIZER in (by or (SANITIZER,)):
        raise ktap.Skip(f"{what} under a sanitizer: {SANITIZER}")


def own_kb(pid: int) -> int:
    """KiB of a process's own memory, without shared memory such as maps."""
    not_sanitized("memory of a process")
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(x.split()[1]) for x in f if x.startswith("RssAnon:"))


def _is_stopped(pid: int) -> bool:
    """Wait until all of its threads are stopped: running ones receive the signal late."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="latin-1") as f:
            if f.read().rpartition(")")[2].split()[0] != "T":
                return False
    return True


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the process during the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + STOP_S
        while not _is_stopped(pid):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Daemon:
    def __init__(self, *options: bool | str, listen: Iterable[str] = ("127.0.0.1:0",),
                 root: str | None = None, prefix: Iterable[str] = ()) -> None:
        """prefix: words before the command, such as ip netns exec NAME."""
        self.folder = tempfile.mkdtemp(prefix="tbg-")
        os.chmod(self.folder, 0o755)
        self.root = root or os.path.join(self.folder, "root")
        self.control = os.path.join(self.folder, "control.sock")
        if not root:
            os.mkdir(self.root)
            os.chmod(self.root, 0o755)
        self.options = list(options)
        if TIERS and "--tiers" not in options and "--config" not in options:
            self.options += ["--tiers", TIERS, "--sock", "unlisted"]
        if XDP:
            self.options = [re.sub(r"\btbg(\d+)(?=,|$)", r"tbg\1:xdp", o) if before == "--wire"
                            else o
                            for before, o in zip(["", *self.options], self.options)]
        self.listen = [listen] if isinstance(listen, str) else list(listen)
        self.prefix = list(prefix)
        self.body_max = "1024G"         # of upstreams and programs; None: the default
        self.process = None
        self.ready = ""         # the ready line
        self.lines = []         # all of stderr so far
        self.addresses = []     # [(host, port)] in order of listen

    def command(self) -> list[str]:
        words = self.prefix + [BINARY, "--control", self.control]
        if LATE_SOCKETS and not {"--late-sockets", "--config"} & set(self.options):
            words += ["--late-sockets", LATE_SOCKETS]
        if not {"--give-back", "--config"} & set(self.options):
            words += ["--give-back", "1"]
        if "--upstream" not in self.options:
            words += ["--root", self.root]
        elif self.body_max and "--body-max" not in self.options:
            words += ["--body-max", self.body_max]
        for where in self.listen:
            words += ["--listen", where]
        return words + self.options

    def start(self) -> Daemon:
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        _running.add(self)
        deadline = time.monotonic() + READY_S
        os.set_blocking(self.process.stderr.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            rest = ""
            while not self.ready:
                if not selector.select(max(0, deadline - time.monotonic())):
                    self.kill()
                    raise TimeoutError(f"no ready line within {READY_S} s: {self.lines}")
                got = os.read(self.process.stderr.fileno(), 65536).decode(errors="replace")
                if not got:
                    code = self.process.wait(STOP_S)
                    self.clean()
                    raise RuntimeError(f"exit {code} before ready: {self.lines + [rest]}")
                *whole, rest = (rest + got).split("\n")
                self.lines += whole
                self.ready = next((x for x in whole if x.startswith("ready ")), "")
        os.set_blocking(self.process.stderr.fileno(), True)
        threading.Thread(target=self._read, daemon=True).start()
        self.addresses = [(h.strip("[]"), int(p)) for h, p in
                          re.findall(r"(\[[0-9a-f:.]+\]|\d+\.\d+\.\d+\.\d+):(\d+)", self.ready)]
        return self

    def why_no_wire(self) -> str:
        """As why_off(), from the daemon's messages."""
        logged = (x.partition("wire is off: ") for x in self.lines)
        return why_off("wire", next((why for _, found, why in logged if found), "no reason given"))

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def address(self) -> tuple[str, Any]:
        host, port = self.addresses[0]
        return ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    @property
    def pid(self) -> Any:
        """The PID of the daemon itself, without its prefixes."""
        return self.process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Signal, wait, clean up; the exit status."""
        code = None
        if self.process:
            if self.process.poll() is None:
                self.process.send_signal(how)
            try:
                code = self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_S)
                self.clean()
                raise
        self.clean()
        return code

    def kill(self) -> None:
        return self.stop(signal.SIGKILL)

    def clean(self) -> None:
        _running.discard(self)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name: dict | str, data: bytes, mode: int = 0o644) -> str:
        """Write a file below the root, replaced as a whole; its path.

        Its time is a little in the past: Last-Modified is never later than Date, so the
        Last-Modified of a file of this second may differ between two answers.
        """
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new~", "wb") as f:
            f.write(data)
        os.chmod(path + ".new~", mode)
        modified = time.time_ns() - PAST_NS
        os.utime(path + ".new~", ns=(modified, modified))
        os.rename(path + ".new~", path)
        return path

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(self, kind: str, value: Any, trace: object) -> None:
        if kind:
            for line in self.lines[-20:]:
                ktap.note(f"toboggand: {line}")
        self.stop()
