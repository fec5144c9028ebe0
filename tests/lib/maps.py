# SPDX-License-Identifier: GPL-2.0
"""The BPF maps of a daemon, seen from outside: their type and content.

    maps.info(d.pid, "tbg_conns")["max_entries"]
    maps.count(d.pid, maps.FLOWS)

Other daemons have maps of the same names, so only maps of this process are used.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import struct
import subprocess
from typing import Any, Iterator

SYS_BPF = 321                           # x86-64
BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_KEY, BPF_MAP_GET_FD_BY_ID = 1, 4, 14
BPF_ENABLE_STATS, BPF_STATS_RUN_TIME = 32, 0
FLOWS, EMBRYOS, TCBS = "tbg_flows", "tbg_embryos", "tbg_tcbs"
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: Any) -> Any:
    attr = ctypes.create_string_buffer(attr.ljust(64, b"\0"), 64)
    return _libc.syscall(SYS_BPF, command, attr, 64)


def held(pid: int, kind: str = "map") -> dict[int, int]:
    """{id: bytes of memory} of the maps of a process; of its programs, kind "prog", only ids."""
    folder, ret = f"/proc/{pid}/fdinfo", {}
    for fd in os.listdir(folder):
        try:
            with open(os.path.join(folder, fd), encoding="ascii") as f:
                fields = dict(line.split(":", 1) for line in f if ":" in line)
        except FileNotFoundError:
            continue            # a connection, closed meanwhile
        if f"{kind}_id" in fields:
            ret[int(fields[f"{kind}_id"])] = int(fields.get("memlock", 0))
    return ret


def bpftool(*words: str) -> bytes:
    return subprocess.run(["bpftool", "-j", *words], check=True, capture_output=True).stdout


def info(pid: int, name: str, kind: str = "map") -> Any:
    """The description by bpftool of the process's map (or program) of that name."""
    for number in held(pid, kind):
        out = json.loads(bpftool(kind, "show", "id", str(number)))
        if out["name"] == name:
            return out
    raise AssertionError(f"process {pid} has no {kind} {name}")


@contextlib.contextmanager
def runs(pid: int, program: str) -> Iterator[list[int]]:
    """A list that has one number after the block: how often the program has run in it."""
    fd = _bpf(BPF_ENABLE_STATS, struct.pack("=I", BPF_STATS_RUN_TIME))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    ret: list[int] = []
    try:
        before = info(pid, program, "prog").get("run_cnt", 0)
        yield ret
        ret.append(info(pid, program, "prog").get("run_cnt", 0) - before)
    finally:
        os.close(fd)


def detach(pid: int, program: str, where: str, name: str) -> None:
    """Detach a program from the map of sockets."""
    bpftool("prog", "detach", "id", str(info(pid, program, "prog")["id"]), where,
            "id", str(info(pid, name)["id"]))


def _open(what: Any) -> Any:
    fd = _bpf(BPF_MAP_GET_FD_BY_ID, struct.pack("=III", what["id"], 0, 0))
    assert fd >= 0, f"map {what['name']}: {os.strerror(ctypes.get_errno())}"
    return fd


@contextlib.contextmanager
def opened(pid: int) -> Iterator[dict]:
    """
    {name: descriptor} of a process's maps, those of constants by the name of their section.

    A map of maps has the name of the maps in it, which are without keys.
    """
    found, fds = {}, {}
    for number in held(pid):
        what = json.loads(bpftool("map", "show", "id", str(number)))
        head, dot, section = what.get("name", "").partition(".")
        name = dot + section or head
        if name not in found or what["bytes_key"] > found[name]["bytes_key"]:
            found[name] = what
    try:
        for name, what in found.items():
            fds[name] = _open(what)
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


def array(pid: int, name: str) -> bytes:
    """All the bytes of an mmapped array, whose elements are of a multiple of 8."""
    what = info(pid, name)
    fd = _open(what)
    try:
        size = what["bytes_value"] * what["max_entries"]
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
            return m[:]
    finally:
        os.close(fd)


def element(what: Any, index: int) -> bytes:
    """One element of the array with this info(), none of those for each CPU."""
    fd = _open(what)
    try:
        key, value = ctypes.c_uint32(index), ctypes.create_string_buffer(what["bytes_value"])
        attr = struct.pack("=IIQQQ", fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
        assert _bpf(BPF_MAP_LOOKUP_ELEM, attr) == 0, os.strerror(ctypes.get_errno())
        return value.raw
    finally:
        os.close(fd)


def count(pid: int, name: str) -> int:
    """Entries of a hash map, however many."""
    what = info(pid, name)
    fd = _open(what)
    try:
        key = ctypes.create_string_buffer(what["bytes_key"])
        last, nr = 0, 0
        while _bpf(BPF_MAP_GET_NEXT_KEY, struct.pack("=IIQQQ", fd, 0, last,
                                                     ctypes.addressof(key), 0)) == 0:
            last = ctypes.addressof(key)
            nr += 1
        return nr
    finally:
        os.close(fd)
