# SPDX-License-Identifier: GPL-2.0
"""What the benchmark says to a person, and how it says that it cannot go on.

Progress goes to stderr, results to stdout. Everything else here imports this;
it must import nothing of ours.
"""
import sys


class Problem(Exception):
    """What cannot be measured, and why, in words."""


def say(text):
    print(text, file=sys.stderr, flush=True)
