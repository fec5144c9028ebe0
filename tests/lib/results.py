# SPDX-License-Identifier: GPL-2.0
"""Evaluates a program's output: rows, faults, verdict, and their presentation.

Called by tests/run with the output of a program and the way it ended. Anything unclear is a
failure: no plan, other rows than planned, an exit code other than 0 or 4. It must never
take absence for success.
"""
from __future__ import annotations

import fnmatch
import re
import signal
from typing import Any, Iterator

PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*SKIP\b\s*(.*))?$", re.I)
ROW = re.compile(r"(not )?ok\b(?:\s+(\d+))?(?:\s+(?:- )?(.*?))??(?:\s*#\s*(SKIP)\b\s*(.*))?$", re.I)
NESTED_FAILURE = re.compile(r"\s+not ok\b")
FAILURES_SHOWN = 40


def expected_skips(path: str) -> list[tuple[str, str, re.Pattern[str]]]:
    """[(where, what, reason regexp)] of tests/expect/skips; ValueError on another line."""
    ret = []
    with open(path, encoding="utf-8") as f:
        for nr, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            words = line.split(None, 2)
            if len(words) != 3 or not re.match(r"(host|any|vm(/.+)?)$", words[0]):
                raise ValueError(f"expect/skips:{nr}: want `host|vm|vm/KERNEL|any "
                                 "suite/test[:row] reason-regexp`")
            ret.append((words[0], words[1], re.compile(words[2].strip())))
    return ret


def skip_is_expected(skips: list, here: str, program: str, row: str, reason: str) -> bool:
    for where, what, pattern in skips:
        if where not in ("any", here, here.split("/")[0]):
            continue
        name, _, row_pattern = what.partition(":")
        if (fnmatch.fnmatchcase(program, name) and pattern.search(reason) and
                (not row_pattern or fnmatch.fnmatchcase(row, row_pattern))):
            return True
    return False


def parse(text: str) -> tuple[list[dict[str, str]], list[str], str | None]:
    """KTAP of one program: (rows, faults, reason why the whole was skipped)."""
    rows, faults, planned, skip_all = [], [], None, None
    for line in text.splitlines():
        if NESTED_FAILURE.match(line):
            faults.append(f"nested: {line.strip()}")
        elif line.startswith("Bail out!"):
            faults.append(line)
        elif m := PLAN.match(line):
            if planned is not None:
                faults.append("two plans")
            planned, skip_all = int(m.group(1)), m.group(2)
        elif m := ROW.match(line):
            failed, nr, name, skip, reason = m.groups()
            if nr is None or int(nr) != len(rows) + 1:
                faults.append(f"row {len(rows) + 1} expected: {line}")
            verdict = "fail" if failed else "skip" if skip else "pass"
            rows.append({"name": name or f"row{len(rows) + 1}", "verdict": verdict,
                         "reason": reason or ""})
    if planned is None:
        faults.append("no KTAP plan")
    elif planned != len(rows):
        faults.append(f"{planned} rows planned, {len(rows)} printed")
    elif planned == 0 and skip_all is None:
        faults.append("an empty plan that is no skip")
    return rows, faults, skip_all


def judge(text: str, code: int, ended: Any) -> dict:
    """
    A record without its names: rows, faults, reason, verdict. ended: why the program
    did not end by itself, or None; code: its exit code, None if there is none.
    """
    rows, faults, skip_all = parse(text)
    if ended:
        faults.insert(0, ended)
    elif code is None:
        faults.insert(0, "no exit code: its sandbox failed")
    elif code not in (0, 4):
        faults.append(f"exit {code}" if code >= 0 else
                      f"killed by {signal.Signals(-code).name}")
    if faults == [f"exit {code}"] and code == 1 and any(r["verdict"] == "fail" for r in rows):
        faults = []             # the code only repeats what the rows say
    return {"exit": code, "rows": rows, "faults": faults, "reason": skip_all or "",
            "whole_skipped": skip_all is not None, "text": text}


def settle(res: dict, skips: list, here: str) -> None:
    """Add the record's verdict; with skips, those that are not expected are faults."""
    program = f"{res['suite']}/{res['test']}"
    whole = res.pop("whole_skipped")
    skipped = [("*", res["reason"])] if whole and not res["faults"] else \
              [(r["name"], r["reason"]) for r in res["rows"] if r["verdict"] == "skip"]
    for row, reason in skipped if skips is not None else ():
        if not skip_is_expected(skips, here, program, row, reason):
            res["faults"].append(f"skip not in tests/expect/skips: {here} {program}:{row} {reason}")
    verdicts = [r["verdict"] for r in res["rows"]]
    if res["faults"] or "fail" in verdicts:
        res["verdict"] = "fail"
    else:
        res["verdict"] = "skip" if all(v == "skip" for v in verdicts) else "pass"


def counts(res: dict) -> tuple[int, int, int]:
    """(passed, failed, skipped): rows, and one for each lot of faults."""
    verdicts = [r["verdict"] for r in res["rows"]]
    return (verdicts.count("pass"), verdicts.count("fail") + bool(res["faults"]),
            verdicts.count("skip") + (res["verdict"] == "skip" and not verdicts))


def output(res: Any) -> Iterator[str]:
    """What the program printed, and what was found about it."""
    for line in res["text"].splitlines():
        if not re.match(r"K?TAP version", line):
            yield line
    for line in res["faults"]:
        yield f"# FAULT {line}"
    for line in res["stderr"] if res["verdict"] == "fail" else []:
        yield f"# stderr: {line}"
    for line in res["leftovers"]:
        yield f"# left running: {line}"


def ktap(nr: int, res: Any) -> Iterator[str]:
    """Lines of the record as the nr-th subtest of its suite, with their indents."""
    failed = res["verdict"] == "fail"
    yield "    KTAP version 1"
    yield f"    # Subtest: {res['label']}"
    for run_nr, old in enumerate(res.get("earlier", []), 1):
        for line in output(old):
            yield f"    # run {run_nr}: {line}"
    for line in output(res):
        yield f"    {line}"
    yield f"  # CPU time {res['cpu_seconds']:.3f} s"
    yield f"  # time {res['seconds']:.3f} s"
    tail = f" # SKIP {res['reason'] or 'all rows skipped'}" if res["verdict"] == "skip" else ""
    yield f"  {'not ok' if failed else 'ok'} {nr} {res['label']}{tail}"


def progress(res: dict) -> Iterator[str]:
    """The progress lines."""
    numbers = [f"{n} {word}" for n, word in zip(counts(res), ("passed", "failed", "skipped")) if n]
    yield (f"{res['suite']}/{res['label']}: {res['verdict'].upper()} "
           f"({', '.join(numbers) if res['rows'] else res['reason']}) {res['seconds']:.1f} s")
    if res["verdict"] == "fail":
        for line in res["faults"]:
            yield f"    {line}"
        for row in res["rows"]:
            if row["verdict"] == "fail":
                yield f"    not ok: {row['name']}"


def flakes(records: list) -> Iterator[str]:
    """The lines before those of failures(): what passed when repeated, and its first log."""
    for res in records:
        if res["verdict"] != "fail" and res.get("earlier"):
            first = res["earlier"][0]
            rows = [f":{r['name']}" for r in first["rows"] if r["verdict"] == "fail"]
            for row in rows or [""]:
                yield f"# FLAKY {res['suite']}/{res['test']}{row}" + \
                    (f": {first['faults'][0]}" if first["faults"] else "")
                yield f"#     log:   {first['log']}"


def failures(records: list, target: str, how_alone: str) -> Iterator[str]:
    """
    The last lines of a run: what failed, how to run it alone, where its log is.
    target: of make; how_alone: text after the selection of a test, or "".
    """
    shown = 0
    for res in records:
        if res["verdict"] != "fail":
            continue
        program = f"{res['suite']}/{res['test']}"
        rows = [r["name"] for r in res["rows"] if r["verdict"] == "fail"]
        named = [f"{program}:{row}" for row in rows] or [program]
        for name in named[:max(0, FAILURES_SHOWN - shown)]:
            shown += 1
            yield f"# FAILED {name}" + (f": {res['faults'][0]}" if res["faults"] else "")
            yield f"#     alone: make {target} TEST={name}{how_alone}"
            yield f"#     log:   {res['log']}"
    left = sum(max(1, [r["verdict"] for r in res["rows"]].count("fail"))
               for res in records if res["verdict"] == "fail") - shown
    if left > 0:
        yield f"# and {left} more"
