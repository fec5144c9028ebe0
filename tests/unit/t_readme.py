#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""README's figures: the capacity table names its origin, and no sentence contradicts it."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../../tools/bench"), HERE]
import ktap                     # noqa: E402
import t_bench                  # noqa: E402
import terminal                 # noqa: E402

TIMES = {"": 1, "k": 1e3, "M": 1e6}


def readme():
    with open(os.path.join(ktap.ROOT, "README.md"), encoding="utf-8") as f:
        return f.read()


def section(text):
    """The text between the marks that the benchmark prints."""
    assert text.count(terminal.MARK) == text.count(terminal.MARK_END) == 1, "the marks are gone"
    return text[text.index(terminal.MARK):text.index(terminal.MARK_END)]


def number(cell):
    """666,000 or 666k/s; None: no figure."""
    m = re.fullmatch(r"[~≥]*([\d.,]+)([kM]?)(?:/s)?(?: .*)?", cell)
    return float(m.group(1).replace(",", "")) * TIMES[m.group(2)] if m else None


def table(text):
    """{request: {column: rate}}, the columns by the names of the servers."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in text.splitlines() if line.startswith("|")]
    head = [{"wire": "toboggan", "user tier": "toboggan-user"}.get(x, x.partition(" ")[0]
            if x.startswith("nginx") else x.replace("wire : ", "toboggan : ")) for x in lines[0]]
    return {line[0]: dict(zip(head[1:], map(number, line[1:]))) for line in lines[2:]}


def row(rows, pattern):
    return next(rows[name] for name in rows if re.match(pattern, name))


def t_the_table_names_its_machine_date_and_command():
    text = section(readme())
    for what, pattern in (("machine", r"CPU|processor"), ("kernel", r"Linux \d+\.\d+"),
                          ("date", r"\b20\d\d\b"), ("command", r"`[^`]*\bbench\b[^`]*`")):
        assert re.search(pattern, text), f"the {what} is not said"
    behind = readme().partition(terminal.MARK_END)[2]
    assert "nstructions" in behind and "vm bench" in behind, "they would go with the table"


def t_ratios_are_those_of_the_rates_beside_them():
    seen = 0
    for name, cells in table(section(readme())).items():
        ours, theirs, ratio = (cells.get(k) for k in ("toboggan", "nginx", "toboggan : nginx"))
        if ours and theirs and ratio:
            seen += 1
            # of pairs of samples, and the rates are medians: they differ on a noisy machine
            assert abs(ratio / (ours / theirs) - 1) < 0.35, (name, ours, theirs, ratio)
    assert seen, "no ratio was found"


def t_what_follows_agrees_with_the_table():
    text, rows = readme(), table(section(readme()))
    with open(os.path.join(ktap.ROOT, "bpf/abi/cache.h"), encoding="utf-8") as f:
        most = int(re.search(r"TBG_SEG_MAX (\d+)", f.read()).group(1))
    assert f"up to {('zero one two three four five six seven eight nine ten'.split())[most]} " \
           "segments" in text
    one = row(rows, r"1 KiB, 1 (a|request)")
    if "slower than the user tier for one request a connection" in text and \
            one["toboggan"] and one["toboggan-user"]:
        assert one["toboggan"] < one["toboggan-user"], one
    large = row(rows, "14 KiB")
    if large["toboggan"] and large["toboggan-user"]:
        slower = "slower than the user tier at 14 KiB" in text
        assert slower == (large["toboggan"] < 0.95 * large["toboggan-user"]), large
    small = row(rows, "1 KiB(,|$)")
    assert not small["toboggan"] or small["toboggan"] > (small["toboggan-user"] or 0), small


def t_no_other_rate_stands_in_readme():
    """It would come from another run."""
    rest = readme().replace(section(readme()), "")
    found = re.findall(r"[\d.,]+ ?[kM]?/s\b|[\d.,]+ requests a second|"
                       r"[\d.,]+ times (?:nginx|faster|as)", rest)
    assert not found, found


def t_what_the_benchmark_prints_takes_the_place_of_the_table():
    rec = t_bench.record()
    printed = terminal.markdown(rec)
    text = readme()
    new = text.replace(section(text) + terminal.MARK_END, printed)
    assert new != text and section(new) + terminal.MARK_END == printed
    for word in (rec["machine"]["date"], "a <cpu>, virtual, 2 CPUs", "Linux 6.1",
                 "`toboggan bench sizes`", "nginx 1.22"):
        assert word in printed, (word, printed)
    assert re.search(r"^\|processor|^\| processor", printed, re.M) and "|---|" in printed


if __name__ == "__main__":
    ktap.run(globals())
