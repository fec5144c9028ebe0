# SPDX-License-Identifier: GPL-2.0
"""The tables of a run as text, for the terminal.

Pure: everything comes from the record. A row for each point, a column for each
server; where there is no figure, a number in brackets leads to the reason below.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

from bottleneck import AT_LEAST
from stats import LEAST, disturbed
from units import digits, human

if TYPE_CHECKING:
    from experiment import Point

BOUND = "≥ a lower bound, from the core's time for a reply: the client was full before the core"
BUSY = "~ other programs took a part of these CPUs"
NS_OF = ", ns of "          # in the title of a value that is shown with a unit of its own
FIGURES = 2                 # of an experiment, the first that have values


def why_not(entry: dict, point: Point, name: str, row: Any) -> Any:
    """Why a server has no figure at a point; None if it was not measured there."""
    if row and row["refused"]:
        reason = "; ".join(filter(None, row["why"].values()))
        return row["refused"][0] + f" ({reason})" * bool(reason)
    faults = [s["invalid"] for s in entry["samples"]
              if s["point"] == point and s["server"] == name and s["invalid"]]
    return faults[0] if faults else None


def bound(row: Any, key: str) -> str:
    """The mark of a lower bound."""
    return "≥" * (key == "throughput" and AT_LEAST in row["limit"] and bool(row["figures"][key]))


def mark(row: Any, key: str) -> str:
    """The marks before a figure; none if there is no figure."""
    return ("~" * disturbed(row) + bound(row, key)) if row["figures"].get(key) else ""


def marks(entry: dict) -> list[str]:
    """What the marks before its figures mean."""
    shown = "".join(mark(row, f[0]) for row in entry["summary"] for f in entry["figures"])
    return [words for sign, words in (("~", BUSY), ("≥", BOUND)) if sign in shown]


def ratio(r: Any) -> str:
    """A ratio with its interval, short."""
    if not r or r.get("ratio") is None:
        return ""
    form = digits(r["ratio"], 3)
    return form if r["low"] is None else \
        f"{form} ({digits(r['low'], 3)}–{digits(r['high'], 3)})"


def ours_of(entry: dict) -> list[str]:
    """The server whose ratios are shown."""
    return [n for n in entry["servers"]
            if n != entry["reference"] and n.startswith("toboggan")][:1]


def without_interval(entry: dict) -> list[str]:
    """Why ratios of the table have no interval; empty if all have one."""
    shown = [r for row in entry["summary"] if row["server"] in ours_of(entry)
             for r in row["ratios"].values() if r and r.get("ratio") is not None]
    return [f"ratios without an interval: they are of fewer than {LEAST} pairs of samples"] * \
        any(r["low"] is None for r in shown)


def number_of(reasons: dict[str, list[str]], row: Any, why: str) -> int:
    """The number of a reason in {kind: reasons}; those that differ only in their details share
    one, or a busy machine's table would have a number for each cell."""
    kind = row["refused"][0] if row and row["refused"] else why
    if why not in reasons.setdefault(kind, []):
        reasons[kind].append(why)
    return list(reasons).index(kind) + 1


def explained(reasons: dict[str, list[str]]) -> list[str]:
    """A line for each number."""
    return [f"[{nr}] no figure: {whys[0]}" +
            "; elsewhere with other numbers, which the report has" * (len(whys) > 1)
            for nr, whys in enumerate(reasons.values(), 1)]


def block(entry: dict, figure: Any, reasons: dict[str, list[str]]) -> list[list]:
    """The lines of one figure's table: [[cell]], the first being the heads."""
    key, title, unit, _ = figure
    rows = {(r["point"], r["server"]): r for r in entry["summary"]}
    names, reference = entry["servers"], entry["reference"]
    ours = ours_of(entry)
    lines = [[f"{title}", *names, *(f"{n} : {reference}" for n in ours if reference)]]
    for point in entry["points"]:
        cells = []
        for name in names:
            row = rows.get((point["x"], name))
            value = row and row["figures"].get(key)
            if value:
                cells.append(mark(row, key) + human(value["median"], unit))
                continue
            why = why_not(entry, point["x"], name, row)
            cells.append(f"[{number_of(reasons, row, why)}]" if why else "")
        for name in ours:
            row = rows.get((point["x"], name))
            if reference:
                cells.append(ratio(row and row["ratios"].get(key)))
        lines.append([point["label"], *cells])
    return lines


def aligned(lines: Any) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
                     for line in lines)


def derived_rows(entry: dict) -> Iterator[tuple[str, str, str]]:
    """(title, server, value in words) of each."""
    for title, values in entry["derived"].items():
        for name, value in values.items():
            yield title.replace(NS_OF, ", ", 1), name, value if isinstance(value, str) else \
                human(value, "ns") if NS_OF in title else digits(value, 4)


def derived(entry: dict) -> Iterator[str]:
    """A line for each."""
    for title, name, words in derived_rows(entry):
        yield f"{title}: {words}" + f" ({name})" * (len(entry["servers"]) > 1)


def table(entry: dict) -> str:
    """All of one experiment."""
    out, reasons = [f"{entry['title']}"], {}
    shown = [f for f in entry["figures"]
             if any(r["figures"].get(f[0]) for r in entry["summary"])]
    for figure in (shown or entry["figures"][:1])[:FIGURES]:
        out.append(aligned(block(entry, figure, reasons)))
    notes = explained(reasons) + marks(entry) + without_interval(entry)
    if notes:
        out.append("\n".join(notes))
    lines = entry.get("last_lines") or list(derived(entry))
    if entry.get("ranking"):
        out.append(aligned(entry["ranking"]))
    elif lines:
        out.append("\n".join(lines))
    return "\n\n".join(out)


def plain(record: dict) -> dict:
    """The tables for programs: {experiment: {point: {server: {figure: numbers}}}}."""
    ret = {}
    for entry in record["experiments"]:
        labels = {p["x"]: p["label"] for p in entry["points"]}
        points = {}
        for row in entry["summary"]:
            one = {key: value for key, value in row["figures"].items() if value}
            one["ratios"] = {key: value for key, value in row["ratios"].items() if value}
            why = why_not(entry, row["point"], row["server"], row)
            if AT_LEAST in row["limit"]:
                one["at_least"] = True
            if disturbed(row):
                one["disturbed"] = True
            if why:
                one["no_figure"] = why
            points.setdefault(labels[row["point"]], {})[row["server"]] = one
        ret[entry["name"]] = {"points": points, "derived": entry["derived"],
                              "ranking": entry.get("ranking"),
                              "lines": entry.get("last_lines") or list(derived(entry))}
    return {"machine": record["machine"], "servers": record["servers"],
            "command": record["command"], "complete": record["complete"], "experiments": ret}


MARK = "<!-- bench: the table of `sudo make bench` -->"
MARK_END = "<!-- bench: end -->"


def markdown(record: dict) -> str:
    """The first figure of each experiment for a README, with the machine and the command.

    It is between marks, so that it can replace the output of an earlier run.
    """
    out = [MARK]
    for entry in record["experiments"]:
        if not entry["samples"]:
            continue
        reasons = {}
        head, *rows = block(entry, entry["figures"][0], reasons)
        out += [" | ".join(["", *head, ""]).strip(), "|" + "---|" * len(head)]
        out += [" | ".join(["", *row, ""]).strip() for row in rows]
        out += ["", *(f"- {line}" for line in entry.get("last_lines") or derived(entry)),
                *(f"- {line}" for line in explained(reasons)),
                *(f"- {words}" for words in marks(entry) + without_interval(entry)), ""]
    m = record["machine"]
    servers = ", ".join(" ".join(one) for one in record["servers"].items())
    virtual = "virtual, " * m["virtual"]
    where = f"{m['cpu']}, {virtual}{m['cpus']} CPUs, Linux {m['kernel']}"
    how = f"`{' '.join(record['command'])}`, {record['repeats']} repeats"
    return "\n".join([*out, f"{where}, {servers}, {m['date']}; {how} of {record['seconds']:g} s.",
                      MARK_END])


def tables(record: dict) -> str:
    return "\n\n\n".join(table(e) for e in record["experiments"] if e["samples"])
