#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""tools/lint-paths names each file in a document that does not exist, and nothing else."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import ktap

TREE = {"userd/http/framing.c": "", "tests/net/wire/t_split.py": "def t_get():\n    pass\n",
        "tests/bpf/wire.c": "", "vm/run": "", "Documentation/other.rst": "",
        "Documentation/pictures/a.png": ""}
TRUE = """
`Other <other.rst>`_ has it; ``userd/http/framing.c``, ``http/framing.c`` and `framing.c` are one
file. *vm/run*, **vm/**\\ ``run`` and ``tests/*/t_split.py``; ~/userd/none.c is not of this tree.

    make check TEST=net/wire/t_split.py:t_get bpf/wire

.. image:: pictures/a.png
"""


def lint(text: str, name: str = "Documentation/page.rst") -> list[str]:
    """The output for a tree with this document; it fails if and only if there is any."""
    with tempfile.TemporaryDirectory(prefix="tbg-") as top:
        tree = {**TREE, name: text}
        for path, content in tree.items():
            os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
            with open(os.path.join(top, path), "w", encoding="utf-8") as f:
                f.write(content)
        os.makedirs(os.path.join(top, "tools"))
        shutil.copy(os.path.join(ktap.ROOT, "tools/lint-paths"), os.path.join(top, "tools"))
        r = subprocess.run([sys.executable, os.path.join(top, "tools/lint-paths"), *tree],
                           capture_output=True, text=True, check=False)
    lines = r.stderr.splitlines()
    assert r.returncode == bool(lines), r
    return lines


def t_paths_that_exist_are_accepted():
    assert lint(TRUE) == []


def t_each_path_that_does_not_exist_is_named():
    for path in ("userd/http/gone.c", "http/gone.h", "net/t_gone.py", "net/wire/t_split.py:t_gone",
                 "bpf/gone", "vm/gone/", "tests/*/t_gone.py"):
        lines = lint(f"One line.\nThen ``{path}``.\n")
        assert len(lines) == 1 and f"Documentation/page.rst:2: there is no {path}" in lines[0], \
            (path, lines)


def t_a_name_without_a_folder_is_that_of_some_file():
    assert "there is no gone.c" in lint("See ``gone.c``.\n")[0]


def t_links_begin_at_their_document():
    assert lint("[other](Documentation/other.rst)\n", "page.md") == []
    for name, text in (("page.md", "[other](other.rst)\n"),
                       ("Documentation/page.rst", "`x <vm/other.rst>`_\n"),
                       ("Documentation/page.rst", ".. image:: pictures/b.png\n")):
        assert len(lint(text, name)) == 1, text


def t_links_to_other_places_are_not_looked_at():
    assert lint("[x](https://example.org/userd/none.c)\n", "page.md") == []


if __name__ == "__main__":
    ktap.run(globals())
