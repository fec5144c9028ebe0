# SPDX-License-Identifier: GPL-2.0
"""Messages of the benchmark, and the exceptions that end it.

Progress goes to stderr, results to stdout. Everything else here imports this;
it must import nothing of ours.
"""
from __future__ import annotations

import contextlib
import sys


class Problem(Exception):
    """A message: what cannot be measured, and why."""


class Usage(Problem):
    """Options that exclude each other; the message names them. Ends the command with 2."""


def notify(text: str) -> None:
    """Print a line; a terminal that was closed does not end a run."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
