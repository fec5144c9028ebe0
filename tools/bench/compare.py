# SPDX-License-Identifier: GPL-2.0
"""Compare two runs of the same experiments: ratios of B to A, with confidence intervals.

The n-th repeats of both form a pair; repeats that other work disturbed count only if
there are no others. Rows that are in only one run are listed, not guessed. An interval is
that of one row: of many rows without a change, some exclude 1 by chance. So each row also
shows whether it differs as one of all rows (Holm's method).
"""
from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from report import load, ratio_text
from stats import SURE, holm, paired, pairs_of

if TYPE_CHECKING:
    from engine import Run
    from experiment import Point
    from servers import Server


def samples(entry: dict, point: Point, server: Server) -> dict:
    """{repeat: sample}, valid ones."""
    return {s["repeat"]: s for s in entry["samples"] if s["point"] == point and
            s["server"] == server and not s["invalid"]}


def verdict(ratio: Any, better: str) -> str:
    """The result in words, by what the interval excludes."""
    if not ratio or ratio["low"] is None:
        return "too few pairs to tell"
    same = 1 if "ratio" in ratio else 0
    if ratio["low"] <= same <= ratio["high"]:
        return "no difference shown"
    less = ratio["high"] < same
    return "B is better" if less == (better == "low") else "B is worse"


def correct(rows: Any) -> None:
    """Add each row's probability as one of N: `corrected`, None without an interval."""
    known = [r for r in rows if r["chance"] is not None]
    for row in rows:
        row["corrected"] = None
    for row, chance in zip(known, holm([r["chance"] for r in known])):
        row["corrected"] = chance


def beyond_chance(row: Any) -> bool:
    """Whether a row differs by more than chance would make one of N rows differ."""
    return row["corrected"] is not None and row["corrected"] <= SURE


def compare(a: Any, b: Any) -> tuple[list, list[str]]:
    """([row], [what could not be compared])"""
    rows, missing = [], []
    theirs = {e["name"]: e for e in begun(b)}
    for entry in begun(a):
        other = theirs.pop(entry["name"], None)
        if not other:
            missing.append(f"{entry['name']}: only in A")
            continue
        for point, server in places(entry):
            mine, its = samples(entry, point["x"], server), samples(other, point["x"], server)
            if mine and its:
                found, lacking = compare_point(entry, point, server, mine, its)
                rows, missing = rows + found, missing + lacking
            else:
                missing.append(f"{entry['name']} {point['label']} {server}: no figure in " +
                               ("A" if not mine else "B"))
        known = {(p["x"], server) for p, server in places(entry)}
        missing += [f"{entry['name']} {p['label']} {server}: only in B"
                    for p, server in places(other) if (p["x"], server) not in known]
    correct(rows)
    return rows, missing + [f"{name}: only in B" for name in theirs]


def begun(run: Any) -> list:
    """Its experiments, except those that it did not begin."""
    return [e for e in run["experiments"] if places(e)]


def places(entry: dict) -> list:
    return [(point, server) for point in entry["points"] for server in entry["servers"]]


def compare_point(entry: Any, point: Any, server: Server, mine: Any,
                  its: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """([row], [what could not be compared]), without what neither has."""
    rows, missing = [], []
    pairs = pairs_of(its, mine)
    for key, title, unit, better in entry["figures"]:
        ratio = paired(key, unit, pairs)
        if ratio:
            rows.append({"experiment": entry["name"], "point": point["label"], "server": server,
                         "figure": key, "title": title, **ratio,
                         "verdict": verdict(ratio, better)})
        elif why := one_sided(key, mine, its):
            missing.append(f"{entry['name']} {point['label']} {server} {key}: {why}")
    return rows, missing


def one_sided(key: str, mine: Any, its: Any) -> str | None:
    """Which run has a figure without a pair; None if neither has one."""
    in_a, in_b = (any(s.get(key) is not None for s in side.values()) for side in (mine, its))
    if in_a and in_b:
        return "in no repeat of both"
    if in_a or in_b:
        return f"only in {'AB'[in_b]}" + why_not(key, "BA"[in_b], mine if in_b else its)
    return None


def why_not(key: str, name: str, side: Any) -> str:
    """The refusals, in brackets; processor time is never refused."""
    why = sorted({s["refused"] for s in side.values() if s["refused"]})
    return f" (refused in {name}: {', '.join(why)})" if why and not key.endswith("_ns") else ""


def unlike(what: str, a: Any, b: Any) -> list:
    """The differences of two objects, key by key."""
    return [f"{what}{key}: {a.get(key, 'absent')} in A, {b.get(key, 'absent')} in B"
            for key in sorted(set(a) | set(b)) if a.get(key) != b.get(key)]


def facts(machine: dict) -> dict:
    """The machine, with its sysctls one by one."""
    return {**{k: v for k, v in machine.items() if k not in ("date", "sysctls")},
            **machine.get("sysctls", {})}


def settings(run: Run) -> dict:
    """{experiment: its options}, if the run has kept them."""
    return {e["name"]: {k: "default" if v is None else v for k, v in e["settings"].items()}
            for e in begun(run) if "settings" in e}


def differences(a: Any, b: Any) -> list:
    """Other differences, which may be the reason."""
    ret = unlike("", facts(a["machine"]), facts(b["machine"]))
    ret += unlike("", a["servers"], b["servers"])
    ret += unlike("", *({key: run[key] for key in ("quick", "repeats", "seconds")}
                        for run in (a, b)))
    ret += unlike("topology ", a["topology"], b["topology"])
    its = settings(b)
    for name, mine in settings(a).items():
        ret += unlike(f"{name} ", mine, its.get(name, mine))
    for name, run in (("A", a), ("B", b)):
        if not run["complete"]:
            ret.append(f"{name} is a partial run: {run['ended'] or 'killed, or not at its end'}")
    return ret


def show(rows: Any, missing: list, notes: list) -> None:
    lines = [("experiment", "point", "server", "figure", "B/A or B-A (95 %)", "")]
    lines += [(r["experiment"], r["point"], r["server"], r["title"], ratio_text(r),
               r["verdict"] + f", also as one of {len(rows)} rows" * beyond_chance(r))
              for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(6)]
    print("\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip()
                    for line in lines))
    for text in notes:
        print(f"note: {text}")
    for text in missing:
        print(f"not compared: {text}")


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(
        prog="bench compare", description="Ratios of run B to run A, of percentages the "
        "difference B - A in points, with their 95 % confidence intervals, from paired repeats. "
        "A ratio below 1, or a difference below 0, is less: better for times, worse for rates.",
        epilog="Exit status: 0; 1 if nothing could be compared; with --strict also if B is "
        "worse in anything that could be, beyond what chance does to one of N rows.")
    ap.add_argument("a", metavar="A", help="folder of a run, or its run.json")
    ap.add_argument("b", metavar="B")
    ap.add_argument("--json", action="store_true", help="as JSON")
    ap.add_argument("--strict", action="store_true",
                    help="exit 1 if B is worse in anything, as one "
                    "of N rows")
    args = ap.parse_args(argv)
    a, b = load(args.a), load(args.b)
    rows, missing = compare(a, b)
    notes = differences(a, b)
    if args.json:
        json.dump({"rows": rows, "missing": missing, "notes": notes}, sys.stdout, indent=1)
        print()
    else:
        show(rows, missing, notes)
    worse = any(r["verdict"] == "B is worse" and beyond_chance(r) for r in rows)
    return 1 if not rows or (args.strict and worse) else 0
