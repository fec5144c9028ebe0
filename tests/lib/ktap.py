# SPDX-License-Identifier: GPL-2.0
"""KTAP for test programs written in Python.

A test file defines functions named t_<behaviour> and ends with

    if __name__ == "__main__":
        ktap.run(globals())

which runs them in order of definition, one result line each, and exits
0 (all passed), 1 (something failed) or 4 (all skipped). Inside a test, raise
to fail, raise ktap.Skip("reason") to skip, call ktap.note() to explain.
Nothing here retries, waits or hides an exception. stdout carries KTAP only: any other
output of a test or its children must go through note().
"""
from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable

PASS, FAIL, SKIP = 0, 1, 4


class Skip(Exception):
    """The test cannot run here; the text is the reason, which tests/expect lists."""


def note(text: Skip | str) -> None:
    """Diagnostic lines, attached to the result line that follows them."""
    for line in str(text).splitlines() or [""]:
        print(f"# {line}", flush=True)


def plan(nr: int) -> None:
    print(f"TAP version 13\n1..{nr}", flush=True)


def skip_all(reason: Skip) -> None:
    """The whole program cannot run: one plan line, exit 4. Does not return."""
    print(f"TAP version 13\n1..0 # SKIP {reason}", flush=True)
    sys.exit(SKIP)


def _one(fn: Callable[..., Any]) -> tuple[str, str]:
    try:
        fn()
    except Skip as why:
        return "ok", f" # SKIP {' '.join(str(why).split()) or 'no reason given'}"
    except KeyboardInterrupt:
        raise
    except BaseException:       # a test that calls sys.exit() has failed too
        note(traceback.format_exc())
        return "not ok", ""
    return "ok", ""


def _say_where_it_hangs() -> None:
    """
    On stderr, shortly before the runner ends the program. By a signal: a thread would be
    in the way of tests that enter namespaces.
    """
    limit_s = float(os.environ.get("TBG_TIMEOUT_S", 0))
    if limit_s:
        faulthandler.register(signal.SIGALRM)
        signal.setitimer(signal.ITIMER_REAL, 0.8 * limit_s)


def run(scope: dict, setup: Any = None, teardown: Any = None) -> None:
    """Run every t_* function of scope; never returns.

    setup and teardown, if given, run once around all of them; a Skip raised
    by setup skips the program. With arguments, only the tests named run; with
    TBG_PART=2/3 in the environment every third one, from the second.
    """
    tests = [fn for name, fn in scope.items()
             if name.startswith("t_") and callable(fn)]
    wanted = sys.argv[1:]
    if wanted:
        unknown = set(wanted) - {fn.__name__ for fn in tests}
        if unknown:
            print(f"Bail out! no such test: {' '.join(sorted(unknown))}")
            sys.exit(FAIL)
        tests = [fn for fn in tests if fn.__name__ in wanted]
    part, _, parts = os.environ.get("TBG_PART", "1/1").partition("/")
    tests = tests[int(part) - 1::int(parts)]
    failed = skipped = 0
    _say_where_it_hangs()
    try:
        if setup:
            setup()
    except Skip as why:
        skip_all(why)
    plan(len(tests))
    try:
        for nr, fn in enumerate(tests, 1):
            start = time.monotonic()
            verdict, tail = _one(fn)
            failed += verdict != "ok"
            skipped += tail != ""
            print(f"# {fn.__name__} {time.monotonic() - start:.3f} s")
            print(f"{verdict} {nr} {fn.__name__}{tail}", flush=True)
    finally:
        if teardown:
            teardown()
    if failed or not tests:
        code = FAIL
    else:
        code = SKIP if skipped == len(tests) else PASS
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


# The top of the repository, or of an installation as kselftest, in which the folder of this
# file is a link.
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.abspath(os.environ.get("O") or os.path.join(ROOT, "build"))
