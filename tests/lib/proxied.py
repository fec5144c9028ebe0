# SPDX-License-Identifier: GPL-2.0
"""A daemon in front of servers, without a configuration file."""
from __future__ import annotations

import itertools
import time
from typing import Any, Iterable

import daemon
import talk

_names = itertools.count()


def proxy(*upstreams: str, workers: int = 1, options: Iterable[str] = ()) -> daemon.Daemon:
    """A daemon with the user tier alone, not started yet, in front of equal servers."""
    words = [w for u in upstreams for w in ("--upstream", u)]
    return daemon.Daemon(*words, *daemon.USER, "--workers", str(workers), *options)


def connections(p: daemon.Daemon) -> Any:
    return talk.ask(p, "status")["connections"]


def path(what: str = "u") -> str:
    """A target that no other test requests."""
    return f"/{what}-{next(_names)}"


def sleep_to_stale(seconds: float) -> None:
    """Time itself is what is tested: there is no event to wait for."""
    time.sleep(seconds)
