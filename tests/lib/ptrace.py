# SPDX-License-Identifier: GPL-2.0
"""Stop one thread of a program while the others run."""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Iterator

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000               # __WALL of waitpid(2)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: Any, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None):
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
