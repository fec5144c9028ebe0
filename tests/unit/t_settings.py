#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The tables of settings in the man pages match userd/config/table.c.

With --write the tables are put into the pages, between their two comments; what
a setting means is told there by hand, once for each.
"""
import os
import re
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import ktap

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PROGRAM = os.path.join(ktap.BUILD, "tests/unit/test_settings")
BEGIN, END = ".. The table of settings begins (tests/unit/t_settings.py --write)", ".. The table " \
                                                                                   "of settings " \
                                                                                   "ends"
SCOPES = {1: "top", 2: "host", 4: "location", 8: "type", 16: "upstream"}
LINE, LATER, DAEMON = 1, 8, 16
IN_TOP = 1               # of SCOPES: all that most settings of the daemon may stand in


def rows() -> list[dict]:
    with tempfile.NamedTemporaryFile(prefix="tbg-") as f:
        subprocess.run([PROGRAM], env={**os.environ, "TBG_ROWS": f.name}, check=True,
                       stdout=subprocess.DEVNULL)
        lines = f.read().decode().splitlines()
    names = ("name", "scopes", "flags", "accepts", "default")
    ret = [dict(zip(names, line.split("\t"), strict=True)) for line in lines]
    return [{**row, "scopes": int(row["scopes"]), "flags": int(row["flags"])} for row in ret]


def plain(text: str) -> str:
    """Escape all markup."""
    return re.sub(r"([*\\|`_])", r"\\\1", text)


def table(head: list[str], widths: list[int], body: list[list[str]]) -> str:
    """A grid table, cells wrapped to the widths."""
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+\n"
    ret = rule
    for nr, cells in enumerate([head, *body]):
        wrapped = [textwrap.wrap(plain(c), w, break_long_words=False, break_on_hyphens=False) or
                   [""]
                   for c, w in zip(cells, widths, strict=True)]
        for i in range(max(map(len, wrapped))):
            line = [x[i] if i < len(x) else "" for x in wrapped]
            assert all(len(x) <= w for x, w in zip(line, widths, strict=True)), (line, widths)
            ret += "| " + " | ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)) + " |\n"
        ret += rule if nr else rule.replace("-", "=")
    return ret


def of_a_site(row: dict) -> bool:
    return not row["flags"] & DAEMON or row["scopes"] != IN_TOP


def of_options() -> str:
    return table(["Option", "Value", "Default", "Reload"], [23, 26, 27, 6],
                 [["--" + r["name"], r["accepts"], r["default"], "no" if r["flags"] & LATER
                   else "yes"]
                  for r in rows() if r["flags"] & LINE])


def of_sites() -> str:
    return table(["Setting", "In", "Value", "Default"], [21, 9, 33, 17],
                 [[r["name"], ", ".join(name for bit, name in SCOPES.items() if r["scopes"] & bit),
                   r["accepts"], r["default"]]
                  for r in rows() if of_a_site(r)])


PAGES = (("toboggand.8.rst", of_options), ("toboggan.conf.5.rst", of_sites))


def page(name: str) -> tuple[str, str]:
    path = os.path.join(TOP, "Documentation", name)
    with open(path, encoding="utf-8") as f:
        return path, f.read()


def with_table(text: str, made: str) -> str:
    begin, end = text.index(BEGIN), text.index(END)
    return text[:begin] + BEGIN + "\n\n" + made + "\n" + text[end:]


def t_man_pages_have_the_table():
    for name, make in PAGES:
        path, text = page(name)
        assert text == with_table(text, make()), \
               f"{path}: not the table of userd/config/table.c; run {__file__} --write"


def t_every_setting_is_explained():
    _, options = page("toboggand.8.rst")
    _, sites = page("toboggan.conf.5.rst")
    for r in rows():
        if r["flags"] & LINE:
            assert re.search(rf"^--.*\b{r['name']}\b",
                             re.sub(r"(?<=TIME), --|(?<=SIZE), --", ", --", options), re.M) or \
                re.search(rf"^--.* --{r['name']} ", options, re.M), f"--{r['name']}"
        if of_a_site(r):
            assert re.search(rf"^\*\*.*\b{r['name']} =", sites, re.M), r["name"]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for page_name, make_table in PAGES:
            where, was = page(page_name)
            written = with_table(was, make_table())
            with open(where, "w", encoding="utf-8") as out:
                out.write(written)
        sys.exit()
    ktap.run(globals())
