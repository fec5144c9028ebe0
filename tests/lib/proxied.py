# SPDX-License-Identifier: GPL-2.0
"""A daemon in front of servers, without a file of configuration."""
from __future__ import annotations

import itertools
from typing import Any, Iterable

import daemon
import talk

_names = itertools.count()


def proxy(*upstreams: str, workers: int = 1, options: Iterable[str] = ()) -> daemon.Daemon:
    """One of user alone, not started yet, for servers that are each other's equals."""
    words = [w for u in upstreams for w in ("--upstream", u)]
    return daemon.Daemon(*words, *daemon.USER, "--workers", str(workers), *options)


def connections(p: daemon.Daemon) -> Any:
    return talk.ask(p, "status")["connections"]


def path() -> str:
    """One that no other test asks for."""
    return f"/u-{next(_names)}"
