# SPDX-License-Identifier: GPL-2.0
"""Cached against fall-through on one kernel, as a table: instructions, hits, passes by reason.

*Above the floor* is the cost of a request beyond the client and a program that only answers.
Called by vm/bench. The column beside ours has the budget of the last commit or, with
--against, the count of another revision in the same boot.
It must never show a figure that was not counted there.
"""
from __future__ import annotations

import os
import re
import shlex
import statistics
import subprocess
from typing import Any, Callable

import kernel
from bench_rows import FLOOR


class RevisionError(Exception):
    """A revision that cannot be compared: its name, the cause."""


def git(*words: str) -> str:
    res = subprocess.run(["git", "-C", kernel.REPO, *words], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, check=False)
    if res.returncode:
        raise RevisionError(f"git {' '.join(words[:2])}: {res.stderr.strip()}")
    return res.stdout.strip()


def build_revision(rev: str, build: str, notify: Callable[[str], None]) -> tuple[str, str]:
    """(commit, its build folder): the products of rev, built once."""
    try:
        commit = git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")[:12]
    except RevisionError as e:
        raise RevisionError(f"{rev or 'an empty word'}: no commit of this repository; "
                            f"`git log` names them: {e}") from e
    tree = os.path.join(build, "guest", "against", commit)
    done = os.path.join(tree, "build", "built")
    if not os.path.exists(done):
        os.makedirs(tree, exist_ok=True)
        notify(f"building {rev} ({commit}) in {tree}")
        with open(f"{tree}.log", "wb") as log:
            for command in (f"git -C {shlex.quote(kernel.REPO)} archive {commit} | tar -x",
                            f"make -j{os.cpu_count()} O={shlex.quote(tree)}/build all"):
                res = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=tree,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env=clean_env(), check=False)
                if res.returncode:
                    raise RevisionError(f"{rev} ({commit}): does not build, see {tree}.log; give "
                                        "another revision")
        with open(done, "w", encoding="ascii"):
            pass
    return commit, os.path.join(tree, "build")


def clean_env() -> dict:
    """Our environment, without the variables of a surrounding make."""
    return {key: value for key, value in os.environ.items()
            if key not in ("O", "PREFIX", "DESTDIR", "V", "Q", "TARGETS") and
            not key.startswith("MAKE")}


def committed(name: str) -> dict:
    """{row: instructions} of vm/budget/<name> in the last commit."""
    try:
        text = git("show", f"HEAD:vm/budget/{name}")
    except RevisionError:
        return {}
    return {row: int(nr) for row, nr in re.findall(r"^([\w-]+)\s+(\d+)\s", text, re.M)}


def number(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def change(ours: Any, theirs: Any) -> str:
    return "-" if not ours or not theirs else f"{ours / theirs - 1:+.2%}"


def named(counts: dict) -> str:
    """'2,550 wire' or '2,550 escaped, 3 split', the most frequent first."""
    return ", ".join(f"{nr:,} {what}" for what, nr in
                     sorted(counts.items(), key=lambda item: -item[1])) or "-"


def lines(wanted: Any, ours: Any, theirs: Any, title: str) -> list:
    """The table. ours and theirs: {row: {"batches", "hits", "passes"}}, theirs perhaps figures."""
    head = ["row", "instructions", "above floor", title, "change", "hits", "passes by reason"]
    floor = round(statistics.median(ours[FLOOR]["batches"])) if FLOOR in ours else None
    whole = any(isinstance(v, dict) for v in theirs.values())
    if whole:
        head += [f"hits, {title}", f"passes, {title}"]
    rows = [head]
    for row in wanted:
        mine, other = ours.get(row), theirs.get(row)
        value = round(statistics.median(mine["batches"])) if mine else None
        against = round(statistics.median(other["batches"])) if isinstance(other, dict) else other
        above = None if None in (value, floor) or row == FLOOR else value - floor
        words = [row, number(value), number(above), number(against), change(value, against),
                 named(mine["hits"]) if mine else "-", named(mine["passes"]) if mine else "-"]
        if whole:
            words += [named(other["hits"]), named(other["passes"])] if other else ["-", "-"]
        rows.append(words)
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    return ["  ".join(f"{word:>{width}}" if 0 < i < 5 else f"{word:{width}}"
                      for i, (word, width) in enumerate(zip(r, widths))).rstrip() for r in rows]
