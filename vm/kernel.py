# SPDX-License-Identifier: GPL-2.0
"""A kernel to boot: its image, configuration and modules, and whether they belong together.

vm/fetch.py makes one from a package, vm/run one from --kernel. The release and version
(as uname -r and uname -v print them) are read from the image itself, never from a file's
name. vm/judge.py compares them with the guest's report.
It must never accept an image in place of another, or modules of another kernel.
"""
from __future__ import annotations

import errno
import glob
import lzma
import os
import re
import struct
import subprocess
import zlib
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(HERE)
BUILD = os.path.abspath(os.environ.get("O") or os.path.join(REPO, "build"))
ARCHES = {"x86": "amd64", "arm64": "arm64"}     # in the header of a .config, and Debian's names
ROOM_MIN = 1 << 20               # bytes: a disk with less is full
# Documentation/arch/x86/boot.rst: kernel_version, setup_sects, syssize
SETUP_VERSION, SETUP_BASE, SETUP_SECTS, SYSSIZE = 0x20e, 0x200, 0x1f1, 0x1f4
BANNER = re.compile(rb"Linux version (\S+) \(.*?\) (#\d[^\n\0]*)")
COMPRESSED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd",
              b"BZh": "bzip2", b"\x02\x21\x4c\x18": "lz4", b"\x04\x22\x4d\x18": "lz4",
              b"\x5d\0\0": "lzma", b"\x89LZO": "lzop"}


class KernelError(Exception):
    """Not a kernel that can be booted: the object, the cause, what to do."""


class Kernel:
    """A requested kernel. package: Debian's name and version, or None for the user's own."""

    def __init__(self, name: str, image: str, config: str, modules: str | None,
                 package: str | None = None) -> None:
        self.name, self.image, self.package = name, image, package
        self.config, self.modules = config, modules
        self.arch, self.release, self.version = identity(image)

    def __str__(self) -> str:
        return self.package or f"{self.image} ({self.release})"


# What to do where the build folder cannot be made, or be written to.
REMEDIES = {errno.ENOSPC: "make room there, or give another build folder",
            errno.EDQUOT: "make room there, or give another build folder",
            **dict.fromkeys((errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT,
                             errno.ENAMETOOLONG, errno.ELOOP), "give another build folder")}


def refusal(error: OSError, build: str) -> str:
    """What this machine refused: the name, the cause and, of the build folder, what to do."""
    name = os.fspath(error.filename or build)
    text = f"{name}: {error.strerror or error}"
    within = os.path.commonpath([build, os.path.abspath(name)]) in (build, os.path.abspath(name))
    if not within or error.errno not in REMEDIES:
        return text
    return f"{text}; {REMEDIES[error.errno]} (--build DIR, or O=DIR)"


def read(path: str, what: str, remedy: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise KernelError(f"{path}: {what}: {e.strerror}; {remedy}") from e


def identity(path: str) -> tuple[str, str, str]:
    """(arch, uname -r, uname -v) of an image that QEMU can boot."""
    data = read(path, "no kernel image", "give --kernel a bzImage or an arm64 Image")
    if data[0x202:0x206] == b"HdrS":
        data = data.ljust(SETUP_VERSION + 2, b"\0")
        start = struct.unpack_from("<H", data, SETUP_VERSION)[0] + SETUP_BASE
        text = data[start:start + 512].split(b"\0")[0].decode(errors="replace")
        m = re.fullmatch(r"(\S+) \(.*?\) (#.*)", text)
        if not m:
            raise KernelError(f"{path}: a boot header without a version: {text!r}; build it again")
        whole = ((data[SETUP_SECTS] or 4) + 1) * SETUP_BASE + \
            16 * struct.unpack_from("<I", data, SYSSIZE)[0]
        if len(data) < whole:
            raise KernelError(f"{path}: cut short, {len(data)} of {whole} bytes; copy or build it "
                              "again")
        return "amd64", m.group(1), m.group(2).strip()
    if data[0x38:0x3c] == b"ARM\x64":
        m = BANNER.search(data)
        if m:
            return "arm64", m.group(1).decode(), m.group(2).decode().strip()
        raise KernelError(f"{path}: an arm64 image without `Linux version`; build it again")
    for magic, how in COMPRESSED.items():
        if data.startswith(magic):
            raise KernelError(f"{path}: compressed with {how}, which QEMU cannot boot; "
                              "decompress it, or give arch/x86/boot/bzImage")
    if data[4:8] == b"zimg":
        raise KernelError(f"{path}: a compressed EFI image (CONFIG_EFI_ZBOOT), which QEMU cannot "
                          "boot; give arch/arm64/boot/Image")
    kind = "an ELF file such as vmlinux" if data.startswith(b"\x7fELF") else \
        "empty" if not data else "no kernel image that is known"
    raise KernelError(f"{path}: {kind}; give arch/x86/boot/bzImage or arch/arm64/boot/Image")


def options(text: str) -> dict:
    """{CONFIG_X: value} of a .config, without options that are not set."""
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.M))


def embedded_config(data: bytes) -> str:
    """The text of /proc/config.gz, or KernelError."""
    try:
        return zlib.decompress(data, wbits=31).decode()
    except (zlib.error, UnicodeDecodeError) as e:
        raise KernelError(f"/proc/config.gz: cannot be read: {e}") from e


def fragments(arch: str = "amd64") -> list[tuple[str, Any, Any]]:
    """[(file, CONFIG_X, value)] that the suites and vm/init require of a kernel."""
    folder = os.path.join(REPO, "kernel", "config")
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    ret = []
    for path in paths + [os.path.join(REPO, "tests", "config")]:
        of = re.search(r"\.(\w+)$", os.path.basename(path))     # vm.amd64, vm.arm64
        if of and of.group(1) != arch:
            continue
        with open(path, encoding="utf-8") as f:
            ret += [(os.path.relpath(path, REPO), key, value)
                    for key, value in re.findall(r"^(CONFIG_\w+)=(.*)$", f.read(), re.M)]
    return ret


# The guest's access to the host's files: option, modules. Cloud kernels have no 9p.
ROOTS = {"9p": ("CONFIG_9P_FS", ["9pnet_virtio", "9p"]),
         "virtiofs": ("CONFIG_VIRTIO_FS", ["virtiofs"])}


def root_of(kernel: Kernel) -> Any:
    """Which of ROOTS a guest of this kernel uses."""
    have = options(kernel.config)
    return next((name for name, (option, _) in ROOTS.items() if option in have), "9p")


def config_faults(kernel: Kernel) -> list:
    """Options of kernel/config and tests/config that this kernel does not have."""
    have = options(kernel.config)
    if root_of(kernel) == "virtiofs":
        have |= {"CONFIG_NET_9P": "y", "CONFIG_NET_9P_VIRTIO": "y", "CONFIG_9P_FS": "y"}
    return [f"config: {path} wants {key}={value}, {kernel} has {have.get(key, 'n')}"
            for path, key, value in fragments(kernel.arch)
            if have.get(key) != value and not (value == "m" and have.get(key) == "y")]


def flags(version: str) -> set[str]:
    """The words of uname -v that the configuration determines."""
    return set(version.split()) & {"SMP", "PREEMPT", "PREEMPT_RT", "PREEMPT_DYNAMIC"}


def flags_wanted(config: str) -> set[str]:
    have = options(config)
    ret = {"SMP"} & ({"SMP"} if "CONFIG_SMP" in have else set())
    if "CONFIG_PREEMPT_RT" in have:
        return ret | {"PREEMPT_RT"}
    if "CONFIG_PREEMPT_DYNAMIC" in have:
        return ret | {"PREEMPT_DYNAMIC"}
    # PREEMPT_LAZY without PREEMPT (7.2 on arm64) is shown in the same way.
    return ret | ({"PREEMPT"} if have.keys() & {"CONFIG_PREEMPT", "CONFIG_PREEMPT_BUILD"}
                  else set())


def belongs_together(kernel: Kernel) -> list[str]:
    """Faults if image, package, configuration and modules do not belong to one kernel."""
    ret = []
    if kernel.package:
        name, version = kernel.package.split()
        if name.startswith("linux-image-") and name != f"linux-image-{kernel.release}":
            ret.append(f"image: {kernel.image} is {kernel.release}, {name} was asked for; "
                       "delete its folder, and it is fetched again")
        elif name.startswith("linux-image-") and f"Debian {version} " not in kernel.version + " ":
            ret.append(f"image: {kernel.image} is `{kernel.version}`, not {version}; "
                       "delete its folder, and it is fetched again")
    m = re.search(r"^# Linux/(\w+) (\S+) Kernel Configuration$", kernel.config, re.M)
    if m and not kernel.release.startswith(m.group(2)) and \
       major_minor(m.group(2)) != major_minor(kernel.release):
        ret.append(f"config: is of Linux {m.group(2)}, the image is {kernel.release}; "
                   "give --config the one it was built with")
    if m and ARCHES.get(m.group(1)) not in (None, kernel.arch):
        ret.append(f"config: is of {m.group(1)}, the image is of {kernel.arch}; "
                   "give --config the one it was built with")
    if flags(kernel.version) != flags_wanted(kernel.config):
        ret.append(
            f"config: asks for {' '.join(sorted(flags_wanted(kernel.config))) or 'nothing'}, "
                   f"the image is `{kernel.version}`; give --config the one it was built with")
    return ret


def major_minor(version: str) -> tuple:
    return tuple(re.findall(r"\d+", version)[:2])


# ---- missing fixes

def series(version: str) -> tuple[tuple[int, ...], int]:
    """'6.1.192' → ((6, 1), 192)."""
    words = [int(word) for word in version.split(".")] + [0]
    return tuple(words[:2]), words[2]


def is_fixed(version: str, levels: Any) -> bool:
    """Whether version has the fixes; kernel/requirements defines the rule."""
    have, patch = series(version)
    floors = dict(series(level) for level in levels.split(","))
    return patch >= floors[have] if have in floors else have > max(floors)


def requirements() -> list[dict[str, str]]:
    """[{field: text}] of kernel/requirements."""
    ret = []
    names = ("name", "tiers", "need", "probe", "since", "fixed", "lost")
    with open(os.path.join(REPO, "kernel", "requirements"), encoding="utf-8") as f:
        for nr, line in enumerate(f, 1):
            fields = line.rstrip("\n").split("|")
            if line.startswith("#") or not line.strip():
                continue
            if len(fields) != len(names):
                raise ValueError(f"kernel/requirements:{nr}: {len(fields)} fields")
            ret.append(dict(zip(names, fields)))
    return ret


def requirement_notes(kernel: Kernel) -> list[str]:
    """Features and fixes that this kernel lacks by its version, for the report."""
    version = re.match(r"[\d.]*\d", (kernel.package or f"- {kernel.release}").split()[1]).group()
    ret = []
    for req in requirements():
        if series(version) < series(req["since"]):
            ret.append(f"{req['name']}: absent before {req['since']}: {req['lost']}")
        elif req["fixed"] != "-" and not is_fixed(version, req["fixed"]):
            ret.append(f"{req['name']}: {version} lacks fixes: {req['lost']}")
    return ret


# ---- modules

def canonical(name: str) -> str:
    return re.sub(r"\.ko(\.\w+)?$", "", os.path.basename(name)).replace("-", "_")


def inflate(path: str) -> bytes:
    """The bytes of a module, with any compression; KernelError if it is damaged."""
    try:
        if path.endswith(".zst"):
            return subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
        if path.endswith(".gz"):
            with open(path, "rb") as f:
                return zlib.decompress(f.read(), wbits=31)
        with (lzma.open(path) if path.endswith(".xz") else open(path, "rb")) as f:
            return f.read()
    except (EOFError, lzma.LZMAError, zlib.error, subprocess.CalledProcessError) as e:
        raise KernelError(f"{path}: cannot be decompressed: {e}; run modules_install again, or "
                          "give its --modules") from e


def modinfo(data: bytes, field: str) -> Any:
    m = re.search(rb"\0" + field.encode() + rb"=([^\0]*)\0", data)
    return m.group(1).decode() if m else ""


def wanted_modules() -> list:
    with open(os.path.join(HERE, "modules"), encoding="utf-8") as f:
        words = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    return [(canonical(w.rstrip("?")), w.endswith("?")) for w in words]


def find_modules(folder: str, release: str) -> str:
    """The tree of modules of release in folder: an installation's root, its lib/modules,
    that of one release, or a build tree."""
    if not os.path.isdir(folder):
        raise KernelError(f"{folder}: no folder of modules; give --modules the folder that "
                          "`make modules_install INSTALL_MOD_PATH=…` filled")
    for sub in (f"lib/modules/{release}", f"usr/lib/modules/{release}", f"modules/{release}",
                release):
        if os.path.isdir(os.path.join(folder, sub)):
            return os.path.join(folder, sub)
    others = sorted(os.path.basename(p) for sub in ("lib/modules", "usr/lib/modules")
                    for p in glob.glob(os.path.join(folder, sub, "*")))
    if others:
        raise KernelError(f"{folder}: modules of {', '.join(others)}, the kernel is {release}; "
                          "run modules_install for it, or give its --modules")
    return folder


def modules_in_order(kernel: Kernel) -> list:
    """[(name, bytes)]: the required modules, each after its dependencies (modinfo)."""
    files, builtin, tree = {}, set(), kernel.modules
    if tree:
        for folder, _, names in os.walk(tree):
            files |= {canonical(n): os.path.join(folder, n) for n in names
                      if re.search(r"\.ko(\.(xz|zst|gz))?$", n)}
        path = os.path.join(tree, "modules.builtin")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                builtin = {canonical(line.strip()) for line in f}
    as_module = "=m\n" in kernel.config
    ret = {}

    def add(name: str, optional: bool, user: str) -> None:
        if name in ret or name in builtin:
            return
        if name not in files:
            # Without a list of built-in modules, the configuration has been checked already.
            if optional or not (builtin or as_module):
                return
            where = f"{tree} has none" if tree else "there are none: give --modules"
            raise KernelError(f"{kernel}: {user} wants module {name}, {where}")
        data = inflate(files[name])
        of = modinfo(data, "vermagic").split(" ")[0]
        if of != kernel.release:
            raise KernelError(f"{files[name]}: a module of {of or 'no version'}, the kernel is "
                              f"{kernel.release}; run modules_install for it, or give its "
                              "--modules")
        for dep in modinfo(data, "depends").split(","):
            if dep:
                add(canonical(dep), False, name)
        ret[name] = data

    for name in ROOTS[root_of(kernel)][1]:
        add(name, False, "the guest's root")
    for name, optional in wanted_modules():
        add(name, optional, "vm/modules")
    return list(ret.items())


# ---- the user's own kernel

def own_config(image: str, config: str) -> str:
    """The text of the configuration of --kernel: the one given, or the one beside it."""
    if config:
        text = read(config, "no configuration", "give --config the .config it was built with")
        return text.decode(errors="replace")
    folder = os.path.dirname(os.path.realpath(image))
    _, release, _ = identity(image)
    tree = re.sub(r"/arch/\w+/boot$", "", folder)
    for path in (os.path.join(tree, ".config"), os.path.join(folder, "config"),
                 os.path.join(folder, f"config-{release}")):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as f:
                return f.read()
    raise KernelError(f"{image}: no configuration beside it (.config of its tree, config or "
                      f"config-{release}); give --config FILE")


def own(image: str, modules: str | None, config: str) -> Kernel:
    """The Kernel that --kernel, --modules and --config name."""
    text = own_config(image, config)
    if not options(text):
        raise KernelError(f"{config or image}: a configuration without one CONFIG_ line; "
                          "give --config the .config it was built with")
    _, release, _ = identity(image)
    folder = os.path.dirname(os.path.realpath(image))
    if not modules:
        tree = re.sub(r"/arch/\w+/boot$", "", folder)
        if tree != folder and os.path.exists(os.path.join(tree, "modules.builtin")):
            modules = tree
        elif os.path.isdir(f"/lib/modules/{release}"):
            modules = f"/lib/modules/{release}"
        return Kernel("own", os.path.abspath(image), text, modules)
    return Kernel("own", os.path.abspath(image), text, find_modules(modules, release))
