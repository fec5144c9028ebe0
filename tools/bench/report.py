# SPDX-License-Identifier: GPL-2.0
"""A run as one page that needs no other file, and its tables as CSV.

report.html, run.json, NAME.csv for each experiment, and for `rates` also
rates.autobench.csv and .tsv with autobench's columns. Everything shown comes
from run.json, so a page can be made again with `bench report`.
"""
from __future__ import annotations

import argparse
import csv
import functools
import html
import json
import os
import re
import shlex
from typing import Any, Iterator

import plot
import terminal
from engine import FORMAT, counted
from arrivals import autobench_rows
from bottleneck import WORDS, refused
from messages import Problem
from units import human

CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #f4f4f2; --line: #ddd;
  --grid: #e4e4e0; --faint: #5a5a5a; --bad: #b00020; --warn: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e3; --paper: #17191c; --soft: #24272b;
  --line: #3a3e44; --grid: #30343a; --faint: #a5a8ad; --bad: #ff8a94; --warn: #3d3417; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 74rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .86rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; }
th { background: var(--soft); vertical-align: bottom; white-space: normal; overflow-wrap: normal; }
.l { text-align: left; }
td.note { white-space: normal; min-width: 20rem; text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
          gap: 1rem; } figure { margin: 0; max-width: 46rem; }
figcaption { font-weight: 600; font-size: .9rem; }
.top .lines { font-size: 1.05rem; padding-left: 1.2rem; }
svg.chart { width: 100%; height: auto; } svg.chart text { font-size: 12px; fill: var(--ink); }
svg.chart .strong { font-weight: 600; } .hollow { fill: var(--paper); stroke-width: 1.6; }
.grid { stroke: var(--grid); } .axis { stroke: var(--faint); fill: none; }
.same { stroke: var(--faint); stroke-dasharray: 4 4; fill: none; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.legend svg { margin-right: .4rem; } .bad { color: var(--bad); } .warn { background: var(--warn);
padding: .6rem .8rem; border-left: 4px solid #d99a00; }
pre { background: var(--soft); padding: .6rem;
overflow-x: auto; white-space: pre-wrap; font-size: .8rem; } dl { display: grid;
grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; } dd { margin: 0; }
dt { color: var(--faint); } @media (max-width: 40rem) { dl { grid-template-columns: 1fr; }
dd { margin-bottom: .4rem; } }
"""


CODE = re.compile("`([^`]+)`")


def esc(value: Any) -> str:
    return html.escape(str(value))


def ratio_text(r: Any) -> str:
    """A ratio, or the difference of percentages, with its interval."""
    if not r:
        return ""
    form, end = ("{:+.3g}", " points") if "difference" in r else ("{:.3g}", "")
    mean = r["difference"] if "difference" in r else r["ratio"]
    why = [f"pairs with a 0 left out: {r['dropped']}"] if r.get("dropped") else []
    if mean is None:
        return f"({why[0]})"
    if r["low"] is None:
        why.insert(0, f"{counted(r['pairs'], 'pair')}, too few for an interval")
    else:
        dash = " to " if end else "–"
        why.insert(0, form.format(r["low"]) + dash + form.format(r["high"]))
    return form.format(mean) + end + f" ({', '.join(why)})"


def column(title: str, unit: str) -> str:
    """The head of a figure's column, with the part after the unit (`a request`)."""
    what = unit.partition(" ")[2]
    return title + f", {what}" * bool(what)


def cell(spread: Any, unit: str) -> str:
    if not spread:
        return "–"
    text = human(spread["median"], unit)
    if spread["n"] > 1:
        text += f" ({human(spread['min'], unit)}–{human(spread['max'], unit)})"
    return text


def notes(row: Any) -> str:
    """The notes beside a figure: its limit, refusals, errors, disturbances."""
    ret = []
    if row["limit"]:
        bad = [w for w in row["limit"] if refused(w)]
        ret.append("rate refused: " * bool(bad) +
                   ", ".join(WORDS[w] + f" ({why})" * bool(why)
                             for w in bad or row["limit"] for why in [row.get("why", {}).get(w)]))
    if row["invalid"]:
        ret.append(f"{row['invalid']} samples gave no figure")
    if row["errors"]:
        ret.append(f"{row['errors']:,} errors or wrong answers")
    if row["disturbed"]:
        ret.append(f"{row['disturbed']} of {row['valid']} disturbed by other work")
    return "; ".join(ret)


def table(entry: dict) -> str:
    labels = {p["x"]: p["label"] for p in entry["points"]}
    first = entry["figures"][0]
    head = [entry["x"], "server"] + [column(title, unit) for _, title, unit, _ in entry["figures"]]
    if entry["reference"]:
        head.append(f"{first[1]} against {entry['reference']} (95 %)")
    out = ["<tr>" + "".join(f'<th class="l">{esc(h)}</th>' for h in head[:2]) +
           "".join(f"<th>{esc(h)}</th>" for h in head[2:]) +
           '<th class="l">whose limit the rate was, and what to mind</th></tr>']
    for row in entry["summary"]:
        cells = [f'<td class="l">{esc(labels[row["point"]])}</td>',
                 f'<td class="l">{esc(row["server"])}</td>']
        cells += [f"<td>{terminal.mark(row, key)}{cell(row['figures'][key], unit)}</td>"
                  for key, _, unit, _ in entry["figures"]]
        if entry["reference"]:
            cells.append(f"<td>{ratio_text(row['ratios'].get(first[0]))}</td>")
        bad = ' class="note bad"' if row["invalid"] else ' class="note"'
        out.append(f"<tr>{''.join(cells)}<td{bad}>{esc(notes(row))}</td></tr>")
    return f'<div class="wide"><table>{"".join(out)}</table></div>'


def withheld(entry: dict, row: Any, key: str) -> tuple[Any, str] | None:
    """(the refused rate, why it is no figure) of a row, or None."""
    values = sorted(s["withheld"][key] for s in entry["samples"]
                    if s["point"] == row["point"] and s["server"] == row["server"] and
                    (s.get("withheld") or {}).get(key))
    if not values:
        return None
    return values[len(values) // 2], notes({**row, "errors": 0, "disturbed": 0, "invalid": 0})


def picture(entry: dict, figure: Any) -> str | None:
    """The chart of one figure, None if there is nothing to draw."""
    key, title, unit, _ = figure
    labels = {p["x"]: p["label"] for p in entry["points"]}
    rows = {(r["point"], r["server"]): r for r in entry["summary"]}
    words = f"{title} by {entry['x']}"
    if entry.get("x_named"):
        groups = []
        for x, label in labels.items():
            each = {name: bar(entry, rows.get((x, name)), key) for name in entry["servers"]}
            groups.append((label, {name: value for name, value in each.items() if value}))
        return plot.bars(words, unit, groups, entry["servers"])
    lines, hollow = {}, {}
    for (x, name), row in rows.items():
        if row["figures"][key]:
            f = row["figures"][key]
            lines.setdefault(name, {})[x] = f["min"], f["median"], f["max"], \
                terminal.mark(row, key)
        elif row["refused"] and (was := withheld(entry, row, key)):
            hollow.setdefault(name, {})[x] = was
    order = {name: lines[name] for name in entry["servers"] if name in lines}
    return plot.chart(words, entry["x"], unit, list(labels), order, entry["x_log"], hollow,
                      entry["name"] == "rates" and key == "rate")


def bar(entry: dict, row: Any, key: str) -> Any:
    """(low, median, high) of a row, why there is none, or None if it was not measured."""
    if not row:
        return None
    f = row["figures"][key]
    if f:
        return f["min"], f["median"], f["max"], terminal.mark(row, key)
    return terminal.why_not(entry, row["point"], row["server"], row)


def framed(entry: dict, figure: str) -> str:
    svg = picture(entry, figure)
    what = column(figure[1], figure[2])
    if svg:
        return f"<figure><figcaption>{esc(what)}</figcaption>{svg}</figure>"
    return f"<figure><figcaption>{esc(what)}</figcaption><p>No figure: see the " \
        "last column of the table.</p></figure>"


def charts(entry: dict, figures: list[str] | None = None) -> str:
    figures = entry["figures"] if figures is None else figures
    return plot.legend(entry["servers"]) + \
        f'<div class="charts">{"".join(framed(entry, f) for f in figures)}</div>' if figures else ""


def marks(entry: dict) -> str:
    """What the marks before its figures mean."""
    return "".join(f"<p>{esc(words)}.</p>" for words in terminal.marks(entry))


def summary(record: dict) -> str:
    """The top of the page: the conclusions of a run, and its main chart."""
    begun = [e for e in record["experiments"] if e["samples"]]
    if not begun:
        return ""
    lines = [line for e in begun for line in e.get("last_lines") or list(terminal.derived(e))]
    out = '<ul class="lines">' + "".join(f"<li>{esc(line)}</li>" for line in lines[:12]) + "</ul>" \
        if lines else ""
    return f'<div class="top">{out}{plot.legend(begun[0]["servers"])}' \
        f'{framed(begun[0], begun[0]["figures"][0])}{marks(begun[0])}</div>'


def derived(entry: dict) -> str:
    if entry.get("ranking"):
        head, *rows = entry["ranking"]
        cells = [[f'<th class="l">{esc(head[0])}</th>', *(f"<th>{esc(h)}</th>" for h in head[1:])]]
        cells += [[f'<td class="l">{esc(row[0])}</td>', *(f"<td>{esc(c)}</td>" for c in row[1:])]
                  for row in rows]
        return '<div class="wide"><table>' + \
            "".join(f"<tr>{''.join(row)}</tr>" for row in cells) + "</table></div>"
    rows = [f'<tr><td class="l">{esc(title)}</td><td class="l">{esc(name)}</td>'
            f"<td>{esc(words)}</td></tr>" for title, name, words in terminal.derived_rows(entry)]
    return f'<div class="wide"><table>{"".join(rows)}</table></div>' if rows else ""


def commands(entry: dict) -> str:
    """One command line of each kind, which differ only in the server's address; and their
    input files."""
    seen = {}
    for s in entry["samples"]:
        for argv in s.get("command") or []:
            where = argv[1] if argv[0] == "ssh" else ""
            seen.setdefault((s["point"], argv[0], where, len(argv)), shlex.join(argv))
    text = "\n".join(dict.fromkeys(seen.values()))
    text += "".join(f"\n\n# {path}\n{body.rstrip()}" for path,
                    body in entry.get("lists", {}).items()
                    if path in text)
    return f"<details><summary>exact commands</summary><pre>{esc(text)}</pre></details>" if text \
           else ""


def setups(entry: dict) -> str:
    """Each server's command lines and configurations, which differ only in its address."""
    text = ""
    for s in entry.get("setups", []):
        text += f"# {s['server']}, from {entry['x']} {s['point']}\n"
        text += "".join(f"{shlex.join(argv)}\n" for argv in s["commands"])
        text += "".join(f"\n# {path}\n{body.rstrip()}\n" for path, body in s["files"].items())
        text += "\n"
    return "<details><summary>how servers were started</summary><pre>" + \
        esc(text.rstrip()) + "</pre></details>" if text else ""


def never(entry: dict) -> Iterator[str]:
    """The points without samples because the run ended before; a line for each."""
    have = {(s["point"], s["server"]) for s in entry["samples"]}
    for p in entry["points"]:
        lack = [name for name in entry["servers"] if (p["x"], name) not in have]
        if lack:
            yield f"{p['label']}: {', '.join(lack)}"


def section(entry: dict, ended: bool = False, first: bool = False) -> str:
    """ended: the run ended within this experiment. first: its first chart is on top."""
    about = CODE.sub(r"<code>\1</code>", esc(entry["about"]))
    out = [f'<section id="{esc(entry["name"])}"><h2>{esc(entry["title"])}</h2><p>{about}</p>']
    if not entry["samples"]:
        return out[0] + '<p class="warn">The run ended before this experiment.</p></section>'
    out += [charts(entry, entry["figures"][first:]), table(entry), marks(entry), derived(entry)]
    lack = "".join(f"<li>{esc(text)}</li>" for text in never(entry)) if ended else ""
    if lack:
        out.append(f'<p class="warn">The run ended before a sample of:</p><ul>{lack}</ul>')
    if entry["problems"]:
        kinds = {}
        for text in entry["problems"]:
            kinds[text] = kinds.get(text, 0) + 1
        out.append('<h3>Not figures</h3><ul class="bad">' + "".join(
            f"<li>{esc(t)}{f' ({n} times)' if n > 1 else ''}</li>" for t, n in kinds.items()) +
            "</ul>")
    for text in entry["notes"]:
        out.append(f"<p>Note: {esc(text)}.</p>")
    for text in entry["left_out"]:
        out.append(f"<p>Left out: {esc(text)}.</p>")
    return "".join(out) + commands(entry) + setups(entry) + "</section>"


def named(value: Any, text: Any) -> Any:
    """The common value of all servers, or each with its name."""
    return ", ".join(f"{name} {text(v)}" for name, v in value.items()) \
        if isinstance(value, dict) else text(value)


def facts(record: dict) -> str:
    m, t = record["machine"], record["topology"]
    place = f"lab: servers on CPUs {t['server_cpus']}, clients on {t['client_cpus']}, {t['link']}" \
        if t["kind"] == "lab" else f"remote: {t['servers']}; processor time by " \
        f"{named(t['stat'], lambda s: s or 'nothing')}; link " + \
        named(t["link_bps"], lambda bps: human(bps, "bit/s") if bps else "of unknown rate")
    if t.get("clients"):
        place += "; clients on " + ", ".join(f"{host} (share {share:g})"
                                             for host, share in t["clients"].items())
    # Only /proc/stat is known of a server elsewhere.
    its = "" if t["kind"] == "lab" else "client's "
    rows = [("date", m["date"]), (its + "processor", f"{m['cpu']}, {m['cpus']} CPUs" +
                                  ", virtual" * m["virtual"] + f", governor {m['governor']}"),
            (its + "memory", f"{m['memory_mib']:,} MiB"),
            (its + "kernel", f"{m['kernel']} {m['build']}"),
            (its + "kernel command line", m["command_line"]), (its + "system", m["system"]),
            ("servers", ", ".join(f"{k} {v}" for k, v in record["servers"].items())),
            ("topology", place), ("samples", f"{record['repeats']} repeats of "
                                  f"{record['seconds']} s at each point"),
            ("descriptors", f"{record['descriptors']:,} for each process"),
            (its + "sysctls", ", ".join(f"{k}={v}" for k, v in m["sysctls"].items() if v)),
            ("command", shlex.join(record["command"]))]
    return "<dl>" + "".join(f"<dt>{esc(k)}</dt><dd>{esc(v)}</dd>" for k, v in rows) + "</dl>"


def page(record: dict) -> str:
    title = f"toboggan bench {record['name']}"
    warn = ""
    if not record["complete"]:
        warn = f'<p class="warn">A partial result: ' \
               f'{esc(record["ended"] or "killed, or not at its end")}.</p>'
    if record["quick"]:
        warn += '<p class="warn">Made with --quick: it shows that the run works, not how fast ' \
            "anything is.</p>"
    index = "".join(f'<li><a href="#{esc(e["name"])}">{esc(e["title"])}</a></li>'
                    for e in record["experiments"])
    index = f"<ul>{index}</ul>" if len(record["experiments"]) > 1 else ""
    left = "".join(f"<p>Left out: {esc(t)}.</p>" for t in record.get("left_out", []))
    begun = [e for e in record["experiments"] if e["samples"]]
    top = begun[0] if begun else None
    last = begun[-1] if begun and not record["complete"] else None
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{CSS}</style></head>
<body><h1>{esc(title)}</h1>{warn}{summary(record)}{index}{left}
{"".join(section(e, e is last, e is top) for e in record["experiments"])}
<h2>Where and how</h2>{facts(record)}
<p>Figures are medians of the valid samples, with the smallest and the largest in brackets.
Ratios are geometric means over pairs of neighbouring samples, with the 95 % interval of
Student's t; percentages are compared by their difference. A rate is refused where
it is the client's limit or the network's, or nobody's that could be seen, and with it the
times of replies; processor time is the server's side only and needs no such judgement. A
sample with a single error, wrong status or wrong byte is counted, and never averaged in,
but for the rate sweep, where errors are a column.</p>
</body></html>
"""


def csv_rows(entry: dict) -> Iterator[list]:
    keys = [f[0] for f in entry["figures"]]
    hows = {key: "difference" if unit == "%" else "ratio" for key, _, unit, _ in entry["figures"]}
    yield ["point", "label", "server", "valid", "invalid", "errors", "limit", "refused", "why"] + \
        [f"{k}_{what}" for k in keys for what in ("median", "min", "max")] + \
        [f"{key}_{how}{what}" for key, how in hows.items() for what in ("", "_low", "_high")] + \
        ["disturbed"]
    labels = {p["x"]: p["label"] for p in entry["points"]}
    for row in entry["summary"]:
        ret = [row["point"], labels[row["point"]], row["server"], row["valid"], row["invalid"],
               row["errors"], " ".join(row["limit"]), " ".join(row["refused"]),
               "; ".join(why for why in row.get("why", {}).values() if why)]
        for key in keys:
            f = row["figures"][key] or {}
            ret += [f.get(what, "") for what in ("median", "min", "max")]
        for key, how in hows.items():
            r = row["ratios"].get(key) or {}
            ret += ["" if r.get(w) is None else r[w] for w in (how, "low", "high")]
        yield [*ret, row["disturbed"]]


def write_table(path: str, rows: Any, delimiter: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as f:
        csv.writer(f, delimiter=delimiter, lineterminator="\n").writerows(rows)


def write(record: dict, folder: str) -> str:
    """Write all files of a run; returns the message with their place."""
    for entry in record["experiments"]:
        if not entry["samples"]:
            continue
        base = os.path.join(folder, entry["name"])
        write_table(base + ".csv", csv_rows(entry), ",")
        if entry["name"] == "rates":
            rows = autobench_rows(entry)
            write_table(base + ".autobench.csv", rows, ",")
            write_table(base + ".autobench.tsv", rows, "\t")
    path = os.path.join(folder, "report.html")
    with open(path + ".new", "w", encoding="utf-8", errors="backslashreplace") as f:
        f.write(page(record))
    os.rename(path + ".new", path)
    return f"{path}{'' if record['complete'] else ' (partial)'}"


class Part(dict):
    """An object of a record; a missing key is reported with the file's name."""

    def __init__(self, path: str, values: Any) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, key: str) -> None:
        raise Problem(f"{self.path}: a run without `{key}`")


def load(path: str) -> dict:
    """The record of a run, given its folder or its run.json."""
    if os.path.isdir(path):
        path = os.path.join(path, "run.json")
    try:
        with open(path, encoding="utf-8") as f:
            ret = json.load(f, object_hook=functools.partial(Part, path))
    except OSError as e:
        raise Problem(f"{path}: {e.strerror}") from e
    except ValueError as e:
        raise Problem(f"{path}: not JSON: {e}") from e
    if not isinstance(ret, dict) or ret.get("kind") != "toboggan-bench" or \
            ret.get("format") != FORMAT:
        raise Problem(f"{path}: not a run of `toboggan bench` that this version reads")
    return ret


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(
        prog="bench report", description="Write report.html and the tables of a run again.")
    ap.add_argument("run", metavar="DIR", help="of a run, with its run.json")
    ap.add_argument("--markdown", action="store_true",
                    help="instead print its tables for a README")
    args = ap.parse_args(argv)
    if args.markdown:
        print(terminal.markdown(load(args.run)))
        return 0
    print(write(load(args.run), args.run if os.path.isdir(args.run) else
                os.path.dirname(args.run) or "."))
    return 0
