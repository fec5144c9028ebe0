#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""tools/lint-files names each fault of a file by its line, and nothing else."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import ktap

SPDX = "/* SPDX-License-Identifier: GPL-2.0 */\n"
CLEAN = {"userd/os/a.c": SPDX + "int a;\n", "Documentation/a.rst": "A daemon reports it.\n",
         "tests/unit/t_a.py": "# SPDX-License-Identifier: GPL-2.0\nsaid = 1\n",
         "userd/os/b.c": SPDX + "int aforesaid, whose;\n"}


def lint(files: dict[str, str]) -> list[str]:
    """What is printed about a tree; the program fails if and only if that is anything."""
    with tempfile.TemporaryDirectory(prefix="tbg-") as top:
        for path, text in files.items():
            os.makedirs(os.path.join(top, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(top, path), "w", encoding="utf-8") as f:
                f.write(text)
        r = subprocess.run([os.path.join(ktap.ROOT, "tools/lint-files"), *files], cwd=top,
                           capture_output=True, text=True, check=False)
    lines = [line.removeprefix("lint: ") for line in r.stderr.splitlines()]
    assert r.returncode == bool(lines), r
    return lines


def t_what_has_no_fault_passes():
    assert lint(CLEAN) == []


def t_colloquial_words_are_named_in_what_people_read():
    words = ("whoever", "Told", "said", "says", "is had", "the same of", "so many")
    paths = ("userd/os/c.c", "bpf/core/a.h", "tools/a.c", "kernel/a.h", "vm/a.c",
             "Documentation/b.rst", "README.md", "CHANGELOG.md")
    text = SPDX + "".join(f"/* x **{word}** y */\n" for word in words)
    got = lint({**CLEAN, **dict.fromkeys(paths, text)})
    wanted = [f"{path}:{nr}: `{word}` " for path in paths for nr, word in enumerate(words, 2)]
    assert len(got) == len(wanted), got
    for line, begin in zip(got, wanted):
        assert line.startswith(begin), (line, begin)


def t_other_faults_are_named_by_their_lines():
    rows = (("userd/os/c.c", "int a;\n", ": no SPDX-License-Identifier"),
            ("userd/os/d.c", SPDX + "int a; \n", ":2: blank at the end"),
            ("userd/os/e.c", f"{SPDX}int {'a' * 100};\n", ":2: more than 100"),
            ("userd/os/f.c", SPDX + " " * 8 + "int a;\n", ":2: eight blanks"),
            ("a.rst", "from pypi" + ".org\n", ":1: names a package host"),
            ("a", "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\n", ": has an interpreter"))
    got = lint({**CLEAN, **{path: text for path, text, _ in rows}})
    assert len(got) == len(rows), got
    for line, (path, _, fault) in zip(got, rows):
        assert line.startswith(path + fault), (line, path, fault)


if __name__ == "__main__":
    ktap.run(globals())
