# SPDX-License-Identifier: GPL-2.0
"""Stop threads of a program: one at once, or the first that makes a system call."""
from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import struct
from typing import Any, Callable, Iterator

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
PTRACE_SYSCALL, PTRACE_GET_SYSCALL_INFO, ENTRY = 24, 0x420e, 1
PTRACE_O_TRACESYSGOOD = 1       # stops at system calls have this signal:
SYSCALL_STOP = signal.SIGTRAP | 0x80
CONNECT = {"x86_64": 42, "aarch64": 203}[platform.machine()]
WALL = 0x40000000               # __WALL of waitpid(2)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: Any, thread: int, addr: Any = None, data: Any = None) -> None:
    if _libc.ptrace(request, thread, addr, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {thread}")


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Stop the thread (its number; that of a process is its first) during the block."""
    _ptrace(PTRACE_SEIZE, thread)
    _ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        _ptrace(PTRACE_DETACH, thread)


def _call_of(thread: int) -> int | None:
    """The number of the system call that the stopped thread enters."""
    info = ctypes.create_string_buffer(88)
    _ptrace(PTRACE_GET_SYSCALL_INFO, thread, len(info), ctypes.addressof(info))
    return struct.unpack_from("=Q", info, 24)[0] if info.raw[0] == ENTRY else None


@contextlib.contextmanager
def stopped_at(process: int, call: int,
               cause: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """
    Call cause; stop the first thread that enters this system call, during the block, which gets
    a function to make the call and stop again behind it. A process that gets no signals
    meanwhile, but may be killed.
    """
    threads = {int(name) for name in os.listdir(f"/proc/{process}/task")}
    for thread in threads:
        _ptrace(PTRACE_SEIZE, thread, None, PTRACE_O_TRACESYSGOOD)
        _ptrace(PTRACE_INTERRUPT, thread)
        os.waitpid(thread, WALL)
        _ptrace(PTRACE_SYSCALL, thread)
    cause()
    while True:
        thread, status = os.waitpid(-1, WALL)
        if os.WSTOPSIG(status) == SYSCALL_STOP and _call_of(thread) == call:
            break
        _ptrace(PTRACE_SYSCALL, thread)
    for other in threads - {thread}:
        _ptrace(PTRACE_INTERRUPT, other)
        os.waitpid(other, WALL)
        _ptrace(PTRACE_DETACH, other)

    def make_call() -> None:
        _ptrace(PTRACE_SYSCALL, thread)
        os.waitpid(thread, WALL)

    try:
        yield make_call
    finally:
        try:
            _ptrace(PTRACE_DETACH, thread)
        except ProcessLookupError:
            os.waitpid(thread, WALL)
