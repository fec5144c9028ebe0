# SPDX-License-Identifier: GPL-2.0
"""One guest: its initramfs, its QEMU, and its end when it stops answering.

Called by vm/run and vm/bench with a kernel.Kernel and the folder of this boot, which
contains everything of the boot. It watches the guest: if PID 1 gives no sign of life, or
is never ready, the guest is made to print the stacks of its tasks, and is ended.
It must never write outside the folder it is given.
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Callable, Iterator

import kernel

REPO = kernel.REPO
PR_SET_PDEATHSIG = 1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# printk.time: vm/judge.py distinguishes the kernel's lines from those of the tests by it
# loglevel: verbose until vm/init is up, since a boot that shows nothing new counts as dead
KERNEL_ARGS = ("printk.time=1 loglevel=7 log_buf_len=8M panic=-1 oops=panic softlockup_panic=1 "
               "sysrq_always_enabled mitigations=off random.trust_cpu=on audit=0 apparmor=0 "
               "net.ifnames=0 rcupdate.rcu_cpu_stall_timeout=120")
# Each emulated machine: its QEMU, and the parameters that only it needs.
MACHINES = {
    "amd64": ("qemu-system-x86_64", ["-machine", "pc"],
              "console=ttyS0 tsc=reliable no_timer_check"),
    "arm64": ("qemu-system-aarch64", ["-machine", "virt,gic-version=3"], "console=ttyAMA0"),
}
# Under emulation these features cost time and test nothing: `rep movsb` copies byte by byte,
# stac and clac end each translated block, and a fifth level of page tables is walked without
# need. The same is true of arm64's own algorithm for signed pointers.
CPU_EMULATED = {"amd64": "max,erms=off,fsrm=off,smap=off,smep=off,la57=off,pku=off,umip=off",
                "arm64": "max,pauth-impdef=on,sve=off"}
ARCHES_OF_HOSTS = {"x86_64": "amd64", "aarch64": "arm64"}       # uname -m
# Nested KVM offers arch-capabilities, and may refuse the value that QEMU then sets.
CPU_KVM = {"amd64": "max,arch-capabilities=off", "arm64": "max"}
PORTS = ("ktap", "dmesg", "verdict", "facts", "config", "alive", "errors")
# Files that exist if and only if an option is set.
WITNESSES = {"CONFIG_DEBUG_INFO_BTF": "/sys/kernel/btf/vmlinux",
             "CONFIG_LOCKDEP": "/proc/lockdep"}
BOOT_S = 600                    # until the guest is ready
BOOT_SILENCE_S = 240            # and the maximum between two lines of its console until then
SILENCE_S = 240                 # PID 1 reports every five seconds
POLL_S = 0.2
STACKS_S = 20                   # time for a hanging guest to print its stacks
# "SIGTERM" or "SIGINT" after the handler of vm/run: all guests end.
ended_by = ""

VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
SERVE = """set -e
daemon=$1 socket=$2 root=$3
shift 3
mount --make-rprivate /
mount --bind / "$root"
mount -o remount,bind,ro "$root"
for dir; do mount --bind "$dir" "$root$dir" && mount -o remount,bind,ro "$root$dir"; done
exec "$daemon" --socket-path="$socket" -o source="$root",sandbox=chroot,cache=always"""


class HostError(Exception):
    """This machine cannot run guests: the object, the cause, what to do."""


def cpio(entries: list) -> bytes:
    """A newc archive of [(name, mode, bytes)], which the kernel can unpack."""
    out = bytearray()
    for ino, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
        head = (ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % field for field in head)
        out += name.encode() + b"\0"
        out += bytes(-len(out) % 4)
        out += data
        out += bytes(-len(out) % 4)
    return bytes(out)


def init_path(build: str, arch: str) -> str:
    return os.path.join(build, "guest", "init" if arch == "amd64" else f"init-{arch}")


def initramfs(asked: kernel.Kernel, build: str, conf: Any) -> bytes:
    """init, the kernel's modules in load order, and vm.conf."""
    entries = [("modules", 0o040755, b"")]
    lines = []
    for nr, (name, data) in enumerate(kernel.modules_in_order(asked)):
        path = f"modules/{nr:03}-{name}.ko"
        entries.append((path, 0o100644, data))
        lines.append(("module", f"/{path}"))
    lines += [("witness", path) for path in WITNESSES.values()]
    lines.append(("root", kernel.root_of(asked)))
    with open(init_path(build, asked.arch), "rb") as f:
        entries.append(("init", 0o100755, f.read()))
    text = "".join(f"{key} {value}\n" for key, value in lines + conf)
    entries.append(("vm.conf", 0o100644, text.encode()))
    return cpio(entries)


def products(build: str, arch: str) -> str:
    """The build folder for guests of arch."""
    return build if arch == "amd64" else os.path.join(build, arch)


def tree_of(build: str, arch: str) -> str:
    """The folder that the guest has as its root: the host's root, or that of vm/sysroot."""
    return "/" if arch == "amd64" else os.path.realpath(os.path.join(build, "vm", f"root-{arch}"))


def base_conf(asked: kernel.Kernel, build: str) -> list:
    """The lines of vm.conf for every command in a guest; vm/init.c explains them."""
    tree, where = tree_of(build, asked.arch), asked.name.split("-")[0]
    binds = list(dict.fromkeys((REPO, build, os.path.realpath(build))))
    if tree != "/":
        for path in binds:
            os.makedirs(tree + path, exist_ok=True)
    return [("tree", tree), *(("bind", path) for path in binds), ("cwd", REPO),
            ("env", f"PATH={PATH}"), ("env", "HOME=/tmp"), ("env", "LANG=C.UTF-8"),
            ("env", f"TBG_WHERE=vm/{where}"), ("env", f"O={products(build, asked.arch)}")]


def new_folder(build: str, name: str) -> str:
    """A folder for this boot. Earlier ones stay; latest/<name> leads to the last."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for nr in range(1000):
        folder = os.path.join(build, "guest", "log", f"{stamp}-{name}" + f".{nr}" * bool(nr))
        with contextlib.suppress(FileExistsError):
            os.makedirs(folder)
            break
    latest = os.path.join(build, "guest", "log", "latest")
    os.makedirs(latest, exist_ok=True)
    fresh = os.path.join(latest, f".{name}.{os.getpid()}")
    os.symlink(os.path.join(os.pardir, os.path.basename(folder)), fresh)
    os.rename(fresh, os.path.join(latest, name))
    return folder


def die_with_us() -> None:
    """For a child in a session of its own: signals to our group are for us to handle."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def emulated_clock(build: str, arch: str) -> str:
    """The kernel parameter with the rate of an emulated guest's counter.

    The counter is this machine's. On a busy machine a guest has measured a quarter of its
    rate, and all its time limits were then a quarter of what they should be.
    """
    if arch != "amd64" or os.uname().machine != "x86_64":
        return ""
    path = os.path.join(build, "guest", "tsc")
    try:
        return f"tsc_early_khz={int(subprocess.check_output([path]))}"
    except (OSError, ValueError, subprocess.CalledProcessError) as e:
        raise HostError(f"{path}: the rate of this machine's time stamp counter: {e}; "
                        "use `make -C vm`, or --accel kvm") from e


def need(arch: str, build: str, accel: str) -> None:
    """HostError unless this machine can boot guests of arch: QEMU, and the build."""
    name = MACHINES[arch][0]
    if not shutil.which(name):
        package = {"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}[arch]
        raise HostError(f"qemu: no {name}; install {package}")
    if accel == "kvm" and ARCHES_OF_HOSTS.get(os.uname().machine) != arch:
        raise HostError(f"kvm: this machine is no {arch}; leave out --accel kvm")
    make = "make -C vm` or `make check-vm" if arch == "amd64" else f"make build-{arch}"
    if not os.access(init_path(build, arch), os.X_OK):
        raise HostError(f"init: not built; use `{make}`")
    if not os.path.isdir(tree_of(build, arch)):
        raise HostError(f"{tree_of(build, arch)}: no root for guests of {arch}; use `{make}`")


class Guest:
    """asked: the Kernel. opts: build, accel, cpus, memory, append, gdb, shell, timeout."""

    counts_host_ticks = True            # with its time stamp counter, where emulated

    def __init__(self, asked: kernel.Kernel, folder: str, conf: list,
                 opts: argparse.Namespace) -> None:
        self.asked, self.folder, self.conf, self.opts = asked, folder, conf, opts
        self.ended = None               # why QEMU did not end by itself
        self.never_ready = False        # that there was no sign of vm/init
        self.sockets = None

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def file(self, name: str, folder: str | None = None) -> str:
        """path(), or that of a socket, as the value of a QEMU option: commas are doubled."""
        return f"{folder or self.folder}/{name}".replace(",", ",,")

    def size(self, name: str) -> int:
        try:
            return os.path.getsize(self.path(name))
        except FileNotFoundError:
            return 0

    def argv(self) -> list:
        program, machine, args = MACHINES[self.asked.arch]
        if self.opts.gdb:
            args += " nokaslr"
        kvm = self.opts.accel == "kvm"
        if not kvm and self.counts_host_ticks:
            args += f" {emulated_clock(self.opts.build, self.asked.arch)}"
        argv = [program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                *machine, "-cpu", CPU_KVM[self.asked.arch] if kvm
                else CPU_EMULATED[self.asked.arch],
                "-accel", "kvm" if kvm else "tcg,thread=multi",
                # Of CPUs without a common cache few wake each other. Emulated, that is dear:
                # the one that wakes holds a lock meanwhile, which the other spins for.
                "-smp", f"{self.opts.cpus},sockets={self.opts.cpus}",
                "-m", str(self.opts.memory), "-nic", "none",
                "-kernel", self.asked.image, "-initrd", self.path("initramfs"),
                "-append", " ".join([args, KERNEL_ARGS, self.opts.append]).strip(),
                "-device", "virtio-serial-pci", *self.root()]
        for port in PORTS:
            argv += ["-chardev", f"file,id={port},path={self.file(port)}",
                     "-device", f"virtserialport,chardev={port},name=tbg.{port}"]
        if self.opts.gdb:
            argv += ["-gdb", f"tcp:127.0.0.1:{self.opts.gdb}", "-S"]
        if self.opts.shell:
            return argv + ["-serial", "mon:stdio"]
        return argv + [
            "-chardev", f"socket,id=console,path={self.file('console', self.sockets)},server=on,"
                        f"wait=off,logfile={self.file('console')}", "-serial", "chardev:console",
            "-qmp", f"unix:{self.file('qmp', self.sockets)},server=on,wait=off"]

    def root(self) -> list:
        """The device that shows the guest the host's files, read-only."""
        if kernel.root_of(self.asked) == "9p":
            return ["-virtfs", "local,path=/,mount_tag=host,readonly=on,security_model=none,"
                               "multidevs=remap"]
        return ["-object", f"memory-backend-memfd,id=ram,size={self.opts.memory}M,share=on",
                "-numa", "node,memdev=ram",
                "-chardev", f"socket,id=root,path={self.file('root', self.sockets)}",
                "-device", "vhost-user-fs-pci,chardev=root,tag=host"]

    @contextlib.contextmanager
    def served_root(self) -> Iterator[None]:
        """virtiofsd while the guest runs, if its root is not 9p.

        virtiofsd has no read-only mode. So it runs in a mount namespace of its own, in which
        the host's root and the folders on other file systems are read-only.
        """
        if kernel.root_of(self.asked) == "9p":
            yield
            return
        daemon = next((p for p in VIRTIOFSD if os.access(p, os.X_OK)), None)
        if not daemon:
            raise HostError(f"virtiofsd: none of {' '.join(VIRTIOFSD)}, and {self.asked} has no "
                            "9p; install qemu-system-common or virtiofsd")
        root = os.path.join(self.sockets, "host")
        os.mkdir(root)
        binds = [path for path in dict.fromkeys(
            value for key, value in self.conf if key == "bind") if os.stat(path).st_dev !=
            os.stat("/").st_dev]
        argv = ["unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", "-c", SERVE, "sh",
                daemon, f"{self.sockets}/root", root, *binds]
        with open(self.path("virtiofsd"), "wb") as log, \
             subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                              start_new_session=True, preexec_fn=die_with_us) as proc:
            try:
                while not os.path.exists(f"{self.sockets}/root"):
                    if proc.poll() is not None:
                        with open(self.path("virtiofsd"), encoding="utf-8") as f:
                            raise HostError(f"virtiofsd: {f.read().strip()}")
                    time.sleep(POLL_S / 10)
                yield
            finally:
                proc.terminate()

    def write_initramfs(self) -> None:
        data = initramfs(self.asked, self.opts.build, self.conf)
        with open(self.path("initramfs"), "wb") as f:
            f.write(data)

    def interactive(self) -> int:
        """A shell on the kernel's console; its exit code."""
        self.write_initramfs()
        with tempfile.TemporaryDirectory(prefix="tbg-vm.") as self.sockets, self.served_root():
            return subprocess.call(self.argv())

    def run(self, watch: Callable[..., None] = lambda _: None) -> None:
        """Boot to the end, or to a limit; calls watch(self) as output arrives."""
        self.write_initramfs()
        # The name of a Unix socket has at most 107 bytes; a build folder's path may be longer.
        with tempfile.TemporaryDirectory(prefix="tbg-vm.") as self.sockets, \
             open(self.path("qemu"), "wb") as log, self.served_root(), \
             subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                              start_new_session=True, preexec_fn=die_with_us) as proc:
            try:
                self.wait(proc, watch)
            finally:
                proc.kill()
        full = self.disk_is_full()
        os.unlink(self.path("initramfs"))
        watch(self)
        if proc.returncode and not self.ended:
            with open(self.path("qemu"), encoding="utf-8", errors="replace") as f:
                self.ended = f"qemu: exit {proc.returncode}: {f.read().strip()}"
        if full:
            raise HostError(f"disk full: no room left for the logs in {self.folder}; make room, "
                            "or give another --build")

    def disk_is_full(self) -> bool:
        return shutil.disk_usage(self.folder).free < kernel.ROOM_MIN

    def wait(self, proc: subprocess.Popen, watch: Callable[..., None]) -> None:
        start = alive = time.monotonic()
        seen = 0
        while True:
            try:
                proc.wait(timeout=POLL_S)
                return
            except subprocess.TimeoutExpired:
                watch(self)
            if ended_by:
                self.ended = f"ended by {ended_by}"
                return
            now = time.monotonic()
            if self.disk_is_full():             # QEMU would try to write forever
                return
            if self.opts.gdb:
                continue
            # PID 1 writes to ports; before it runs there is only the console
            shown = PORTS if self.size("verdict") else (*PORTS, "console")
            if sum(map(self.size, shown)) != seen:
                seen, alive = sum(map(self.size, shown)), now
            ready = self.size("verdict")
            if not ready and (now - start > min(BOOT_S, self.opts.timeout) or
                              now - alive > BOOT_SILENCE_S):
                self.ended = f"not ready after {now - start:.0f} s, the last {now - alive:.0f} " \
                             "without output: the kernel, or vm/init in it, never answered; the " \
                             f"end of {self.path('console')} shows how far it came"
            elif ready and now - alive > SILENCE_S:
                self.ended = f"hang: PID 1 has not run for {now - alive:.0f} s"
            elif now - start > self.opts.timeout:
                self.ended = f"killed after {self.opts.timeout:g} s"
            if self.ended:
                self.never_ready = not ready
                self.print_stacks(watch)
                return

    def print_stacks(self, watch: Callable[..., None]) -> None:
        """Make the guest print the stacks of its CPUs and tasks (SysRq) to its console."""
        with contextlib.suppress(OSError, ValueError):
            with socket.socket(socket.AF_UNIX) as console, socket.socket(socket.AF_UNIX) as qmp:
                console.connect(f"{self.sockets}/console")
                qmp.settimeout(STACKS_S)
                qmp.connect(f"{self.sockets}/qmp")
                commands = qmp.makefile("rw")
                json.loads(commands.readline())
                for key in (None, "9", "l", "w", "t"):     # 9: to the console, all of it
                    if key:
                        self.command(commands, "chardev-send-break", id="console")
                        console.sendall(key.encode())
                        self.let_it_print(console, watch)
                    else:
                        self.command(commands, "qmp_capabilities")

    @staticmethod
    def command(commands: Any, name: str, **args: Any) -> None:
        commands.write(json.dumps({"execute": name, "arguments": args}) + "\n")
        commands.flush()
        while "return" not in (reply := json.loads(commands.readline())):
            if "error" in reply:
                raise ValueError(reply["error"])

    def let_it_print(self, console: Any, watch: Callable[..., None]) -> None:
        """Read until the end of the output. A guest stops if its output is not read."""
        end, silent = time.monotonic() + STACKS_S, 0
        console.settimeout(POLL_S)
        while time.monotonic() < end and silent < 10:
            try:
                console.recv(1 << 16)
                silent = 0
            except TimeoutError:
                silent += 1
                watch(self)


def facts(folder: str) -> dict:
    """{word: value} that the guest reported, or {} if it did not get so far."""
    try:
        with open(os.path.join(folder, "facts"), encoding="utf-8", errors="replace") as f:
            text = f.read()
    except FileNotFoundError:
        return {}
    if not text.endswith("end\n"):
        return {}
    return dict(re.findall(r"^(\S+) (.*)$", text, re.M))
