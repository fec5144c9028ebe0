# SPDX-License-Identifier: GPL-2.0
"""Kernels and guests' output for tests of vm/, made without booting anything."""
import os
import struct
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "vm"))
import guest                    # noqa: E402
import kernel                   # noqa: E402

RELEASE = "6.1.0-56-amd64"
VERSION = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)"
PACKAGE = f"linux-image-{RELEASE} 6.1.192-2"
CONFIG = "# Linux/x86 6.1.192 Kernel Configuration\n" \
         "CONFIG_SMP=y\nCONFIG_PREEMPT_DYNAMIC=y\nCONFIG_DEBUG_INFO_BTF=y\n"


def bzimage(path, release=RELEASE, version=VERSION):
    """A file with the boot header of an x86 kernel, and nothing that could boot."""
    data = bytearray(1024) + f"{release} (someone@somewhere) {version}".encode() + bytes(512)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20e, 1024 - 0x200)
    with open(path, "wb") as f:
        f.write(data)
    return path


def module(path, release=RELEASE, depends=""):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x7fELF\0vermagic=" + release.encode() + b" SMP mod_unload\0depends=" +
                depends.encode() + b"\0")
    return path


def asked(folder, name="6.1", package=PACKAGE, config=CONFIG, modules=None, **header):
    return kernel.Kernel(name, bzimage(os.path.join(folder, "vmlinuz"), **header), config,
                         modules, package)


def whole_config():
    """All that the fragments want, as a .config."""
    return CONFIG + "".join(f"{key}={value}\n" for _, key, value in kernel.fragments())


def facts(release=RELEASE, version=VERSION, btf="present", lockdep="absent"):
    return f"release {release}\nversion {version}\nmachine x86_64\n" \
           f"{guest.WITNESSES['CONFIG_DEBUG_INFO_BTF']} {btf}\n" \
           f"{guest.WITNESSES['CONFIG_LOCKDEP']} {lockdep}\nend\n"
