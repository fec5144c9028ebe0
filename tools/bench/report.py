# SPDX-License-Identifier: GPL-2.0
"""A run as one page that needs nothing but itself, and its tables as CSV.

report.html, run.json, NAME.csv for each experiment, and for `rates` also
rates.autobench.csv and .tsv with autobench's columns. Everything shown comes
from run.json, so a page can be made again with `bench report`.
"""
import argparse
import csv
import functools
import html
import json
import os
import re
import shlex

import plot
from engine import FORMAT
from experiments import autobench_rows
from limit import WORDS, refused
from say import Problem

CSS = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 74rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .86rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd;
         white-space: nowrap; }
th { background: #f4f4f2; vertical-align: bottom; white-space: normal; overflow-wrap: normal; } .l { text-align: left; }
td.note { white-space: normal; min-width: 20rem; text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
          gap: 1rem; } figure { margin: 0; } figcaption { font-weight: 600; font-size: .9rem; }
svg.chart { width: 100%; height: auto; } svg.chart text { font-size: 12.5px; fill: #333; }
.grid { stroke: #e4e4e0; } .axis { stroke: #555; fill: none; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.legend svg { margin-right: .4rem; } .bad { color: #b00020; } .warn { background: #fff4d6;
padding: .6rem .8rem; border-left: 4px solid #d99a00; } pre { background: #f4f4f2; padding: .6rem;
overflow-x: auto; white-space: pre-wrap; font-size: .8rem; } dl { display: grid;
grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; } dd { margin: 0; }
dt { color: #555; } @media (max-width: 40rem) { dl { grid-template-columns: 1fr; }
dd { margin-bottom: .4rem; } }
"""


CODE = re.compile("`([^`]+)`")


def esc(value):
    return html.escape(str(value))


def ratio_text(r):
    """A ratio, or the difference of percentages, with its interval."""
    if not r:
        return ""
    form, end = ("{:+.3g}", " points") if "difference" in r else ("{:.3g}", "")
    mean = r["difference"] if "difference" in r else r["ratio"]
    why = [f"pairs with a 0 left out: {r['dropped']}"] if r.get("dropped") else []
    if mean is None:
        return f"({why[0]})"
    if r["low"] is None:
        why.insert(0, "one pair")
    else:
        dash = " to " if end else "–"
        why.insert(0, form.format(r["low"]) + dash + form.format(r["high"]))
    return form.format(mean) + end + f" ({', '.join(why)})"


def cell(spread, unit):
    if not spread:
        return "–"
    text = plot.short(spread["median"], unit)
    if spread["n"] > 1:
        text += f" ({plot.short(spread['min'], unit)}–{plot.short(spread['max'], unit)})"
    return text


def notes(row):
    """What stands beside a figure so that it is not believed blindly."""
    ret = []
    if row["limit"]:
        bad = [w for w in row["limit"] if refused(w)]
        ret.append("rate refused: " * bool(bad) +
                   ", ".join(WORDS[w] + f" ({why})" * bool(why)
                             for w in bad or row["limit"] for why in [row.get("why", {}).get(w)]))
    if row["invalid"]:
        ret.append(f"{row['invalid']} samples were no figures")
    if row["errors"]:
        ret.append(f"{row['errors']:,} errors or wrong answers")
    if row["disturbed"]:
        ret.append(f"{row['disturbed']} of {row['valid']} disturbed by other work")
    return "; ".join(ret)


def table(entry):
    labels = {p["x"]: p["label"] for p in entry["points"]}
    first = entry["figures"][0]
    head = [entry["x"], "server"] + [f"{title}, {unit}" for _, title, unit, _ in entry["figures"]]
    if entry["reference"]:
        head.append(f"{first[1]} against {entry['reference']} (95 %)")
    out = ["<tr>" + "".join(f'<th class="l">{esc(h)}</th>' for h in head[:2]) +
           "".join(f"<th>{esc(h)}</th>" for h in head[2:]) + '<th class="l">whose limit the rate was, and what to mind</th></tr>']
    for row in entry["summary"]:
        cells = [f'<td class="l">{esc(labels[row["point"]])}</td>',
                 f'<td class="l">{esc(row["server"])}</td>']
        cells += [f"<td>{cell(row['figures'][key], unit)}</td>"
                  for key, _, unit, _ in entry["figures"]]
        if entry["reference"]:
            cells.append(f"<td>{ratio_text(row['ratios'].get(first[0]))}</td>")
        bad = ' class="note bad"' if row["invalid"] else ' class="note"'
        out.append(f"<tr>{''.join(cells)}<td{bad}>{esc(notes(row))}</td></tr>")
    return f'<div class="wide"><table>{"".join(out)}</table></div>'


def charts(entry):
    out = []
    labels = {p["x"]: p["label"] for p in entry["points"]}
    categories = labels if entry.get("x_named") else None
    for key, title, unit, _ in entry["figures"]:
        lines = []
        for nr, name in enumerate(entry["servers"]):
            line = {r["point"]: (f["min"], f["median"], f["max"]) for r in entry["summary"]
                    if r["server"] == name and (f := r["figures"][key])}
            if line:
                lines.append((nr, line))
        svg = plot.chart(f"{title} ({unit}) by {entry['x']}", entry["x"], f"{title}, {unit}",
                         list(labels), lines, entry["x_log"], categories)
        if svg:
            out.append(f"<figure><figcaption>{esc(title)}</figcaption>{svg}</figure>")
        else:
            out.append(f"<figure><figcaption>{esc(title)}</figcaption><p>No figure: see the "
                       "last column of the table.</p></figure>")
    return plot.legend(entry["servers"]) + f'<div class="charts">{"".join(out)}</div>'


def derived(entry):
    rows = []
    for title, values in entry["derived"].items():
        for name, value in values.items():
            text = value if isinstance(value, str) else f"{value:,.0f}" if value >= 100 else \
                f"{value:.3g}"
            rows.append(f'<tr><td class="l">{esc(title)}</td><td class="l">{esc(name)}</td>'
                        f"<td>{esc(text)}</td></tr>")
    return f'<div class="wide"><table>{"".join(rows)}</table></div>' if rows else ""


def commands(entry):
    """One command line of each kind; they differ in the server's address only. And what they read."""
    seen = {}
    for s in entry["samples"]:
        for argv in s.get("command") or []:
            seen.setdefault((s["point"], argv[0], len(argv)), shlex.join(argv))
    text = "\n".join(dict.fromkeys(seen.values()))
    text += "".join(f"\n\n# {path}\n{body.rstrip()}" for path, body in entry.get("lists", {}).items()
                    if path in text)
    return f"<details><summary>exact commands</summary><pre>{esc(text)}</pre></details>" if text else ""


def setups(entry):
    """Each server's command lines and configurations; they differ in its address only."""
    text = ""
    for s in entry.get("setups", []):
        text += f"# {s['server']}, from {entry['x']} {s['point']}\n"
        text += "".join(f"{shlex.join(argv)}\n" for argv in s["commands"])
        text += "".join(f"\n# {path}\n{body.rstrip()}\n" for path, body in s["files"].items())
        text += "\n"
    return "<details><summary>how servers were started</summary><pre>" + \
        esc(text.rstrip()) + "</pre></details>" if text else ""


def never(entry):
    """What an experiment has no sample of, as its run ended before that; a line for each point."""
    have = {(s["point"], s["server"]) for s in entry["samples"]}
    for p in entry["points"]:
        lack = [name for name in entry["servers"] if (p["x"], name) not in have]
        if lack:
            yield f"{p['label']}: {', '.join(lack)}"


def section(entry, ended=False):
    """ended: the run did, within this experiment."""
    about = CODE.sub(r"<code>\1</code>", esc(entry["about"]))
    out = [f'<section id="{esc(entry["name"])}"><h2>{esc(entry["title"])}</h2><p>{about}</p>']
    if not entry["samples"]:
        return out[0] + '<p class="warn">The run ended before this experiment.</p></section>'
    out += [charts(entry), table(entry), derived(entry)]
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


def named(value, text):
    """One value of all servers, or each with its name."""
    return ", ".join(f"{name} {text(v)}" for name, v in value.items()) \
        if isinstance(value, dict) else text(value)


def facts(record):
    m, t = record["machine"], record["topology"]
    place = f"lab: servers on CPUs {t['server_cpus']}, clients on {t['client_cpus']}, {t['link']}" \
        if t["kind"] == "lab" else f"remote: {t['servers']}; processor time by " \
        f"{named(t['stat'], lambda s: s or 'nothing')}; link " + \
        named(t["link_bps"], lambda bps: f"{plot.short(bps)} bit/s" if bps else "of unknown rate")
    # Of a server elsewhere nobody has told us more than its /proc/stat.
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


def page(record):
    title = f"toboggan bench {record['name']}"
    warn = ""
    if not record["complete"]:
        warn = f'<p class="warn">A partial result: {esc(record["ended"] or "killed, or not at its end")}.</p>'
    if record["quick"]:
        warn += '<p class="warn">Made with --quick: it shows that the run works, not how fast ' \
            "anything is.</p>"
    index = "".join(f'<li><a href="#{esc(e["name"])}">{esc(e["title"])}</a></li>'
                    for e in record["experiments"])
    index = f"<ul>{index}</ul>" if len(record["experiments"]) > 1 else ""
    left = "".join(f"<p>Left out: {esc(t)}.</p>" for t in record.get("left_out", []))
    begun = [e for e in record["experiments"] if e["samples"]]
    last = begun[-1] if begun and not record["complete"] else None
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{CSS}</style></head>
<body><h1>{esc(title)}</h1>{warn}{index}{left}
{"".join(section(e, e is last) for e in record["experiments"])}
<h2>Where and how</h2>{facts(record)}
<p>Figures are medians of the valid samples, with the smallest and the largest in brackets.
Ratios are geometric means over pairs of neighbouring samples, with the 95 % interval of
Student's t; percentages are compared by their difference. A rate is refused where it is the client's limit or the network's, or nobody's that could be seen, and
with it the times of replies; processor time is the server's side only and needs no such judgement. A sample with a single error, wrong status
or wrong byte is counted, and never averaged in, but for the rate sweep, where errors are a column.</p>
</body></html>
"""


def csv_rows(entry):
    keys = [f[0] for f in entry["figures"]]
    hows = {key: "difference" if unit == "%" else "ratio" for key, _, unit, _ in entry["figures"]}
    yield ["point", "label", "server", "valid", "invalid", "errors", "limit", "refused", "why"] + \
        [f"{k}_{what}" for k in keys for what in ("median", "min", "max")] + \
        [f"{key}_{how}{what}" for key, how in hows.items() for what in ("", "_low", "_high")]
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
        yield ret


def write_table(path, rows, delimiter):
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as f:
        csv.writer(f, delimiter=delimiter, lineterminator="\n").writerows(rows)


def write(record, folder):
    """All files of a run; the text that says where they are."""
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
    """An object of a record; what it lacks is said, with the file's name."""

    def __init__(self, path, values):
        super().__init__(values)
        self.path = path

    def __missing__(self, key):
        raise Problem(f"{self.path}: a run without `{key}`")


def load(path):
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


def main(argv):
    ap = argparse.ArgumentParser(
        prog="bench report", description="Write report.html and the tables of a run again.")
    ap.add_argument("run", metavar="DIR", help="of a run, with its run.json")
    args = ap.parse_args(argv)
    print(write(load(args.run), args.run if os.path.isdir(args.run) else
                os.path.dirname(args.run) or "."))
    return 0
