# SPDX-License-Identifier: GPL-2.0
"""Kernels and guests' output for tests of vm/, made without booting anything."""
from __future__ import annotations

import os
import struct
import sys
from typing import Any

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "vm"))
import guest                    # noqa: E402
import kernel                   # noqa: E402

RELEASE = "6.1.0-56-amd64"
VERSION = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)"
PACKAGE = f"linux-image-{RELEASE} 6.1.192-2"
CONFIG = "# Linux/x86 6.1.192 Kernel Configuration\n" \
         "CONFIG_SMP=y\nCONFIG_PREEMPT_DYNAMIC=y\nCONFIG_DEBUG_INFO_BTF=y\n"


def write(path: str, data: str | bytes) -> str:
    """Make a file, and its folder; its path."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
    return path


def bzimage(path: str, release: str = RELEASE, version: str = VERSION) -> str:
    """Make a file with the boot header of an x86 kernel, which cannot boot."""
    data = bytearray(1024) + f"{release} (someone@somewhere) {version}".encode() + bytes(2048)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20e, 1024 - 0x200)
    with open(path, "wb") as f:
        f.write(data)
    return path


def module(path: str, release: str = RELEASE, depends: str = "") -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x7fELF\0vermagic=" + release.encode() + b" SMP mod_unload\0depends=" +
                depends.encode() + b"\0")
    return path


def asked(folder: str, name: str = "6.1", package: str = PACKAGE, config: str = CONFIG,
          modules: str | None = None, **header: Any) -> Any:
    return kernel.Kernel(name, bzimage(os.path.join(folder, "vmlinuz"), **header), config,
                         modules, package)


def whole_config() -> str:
    """A .config with all options of the fragments."""
    return CONFIG + "".join(f"{key}={value}\n" for _, key, value in kernel.fragments())


def facts(release: str = RELEASE, version: str = VERSION, btf: str = "present",
          lockdep: str = "absent") -> str:
    return f"release {release}\nversion {version}\nmachine x86_64\n" \
           f"{guest.WITNESSES['CONFIG_DEBUG_INFO_BTF']} {btf}\n" \
           f"{guest.WITNESSES['CONFIG_LOCKDEP']} {lockdep}\nend\n"
