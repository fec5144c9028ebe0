# SPDX-License-Identifier: GPL-2.0
"""What the benchmark says to a person, and how it says that it cannot go on.

Progress goes to stderr, results to stdout. Everything else here imports this;
it must import nothing of ours.
"""
from __future__ import annotations

import contextlib
import sys


class Problem(Exception):
    """What cannot be measured, and why, in words."""


class Usage(Problem):
    """Options that do not go together; it names them, and ends the command with 2."""


def say(text: str) -> None:
    """To whoever listens: a terminal that was closed does not end a run."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
