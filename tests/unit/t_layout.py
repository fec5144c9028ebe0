#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""tools/lint-layout names each file that is too long, is in no room, includes a room above
its own or itself, or has an include guard with another name."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import ktap

CLEAN = {"userd/os/a.c": '#include "os/b.h"\n',
         "userd/serve/a.c": '#include "os/b.h"\n#include <x/y.h>\n',
         "userd/main/a.c": '#include "serve/b.h"\n', "vm/a.c": '#include "main/b.h"\n',
         "bpf/maps.bpf.h": '#include "core/a.h"\n', "bpf/compat.bpf.h": '#include "core/a.h"\n',
         "bpf/wire/a.bpf.c": '#include "../maps.bpf.h"\n#include "../core/a.h"\n',
         "tools/bench/a.bpf.c": '#include "../../bpf/compat.bpf.h"\n',
         "tools/a.c": '#include "abi/b.h"\n#include "os/b.h"\n#include "bpf/wire.skel.h"\n',
         "tests/bpf/a.bpf.c": '#include "core/a.h"\n',
         "tests/unit/a.c": '#include "core/a.h"\n#include "main/b.h"\n',
         "bpf/core/a.h": "/* a */\n#ifndef TBG_CORE_A_H\n#define TBG_CORE_A_H\n#endif\n",
         "x.py": "pass\n" * 700,
         "table.rst": "x\n" * 900}
LONG = {"x.py": "pass\n" * 701}
GUARD = {"userd/os/a.h": "#ifndef TBG_A_H\n#define TBG_A_H\n#endif\n"}
UP = {"userd/os/a.c": '#include "main/b.h"\n'}
# what may not be included: by a file, in its words
FORBIDDEN = [
    ("userd/os/a.c", "../main/b.h"), ("userd/os/a.c", "wire/a.bpf.h"),
    ("userd/os/a.c", "../../bpf/maps.bpf.h"), ("userd/os/a.c", "../../tests/lib/b.h"),
    ("bpf/abi/a.h", "../core/a.h"), ("bpf/core/b.h", "../maps.bpf.h"),
    ("bpf/maps.bpf.h", "wire/a.bpf.h"), ("bpf/wire/a.bpf.c", "../sock/a.bpf.h"),
    ("bpf/wire/a.bpf.c", "../translate/a.bpf.h"), ("bpf/core/b.h", "os/b.h"),
    ("tools/bench/a.bpf.c", "../../bpf/wire/a.bpf.h"), ("tools/a.c", "core/a.h"),
    ("tools/bench/a.bpf.c", "../../bpf/maps.bpf.h"), ("tests/net/a.bpf.c", "sock/sock.bpf.c"),
    ("tests/net/a.bpf.h", "sock/pend.bpf.h"), ("tests/bpf/a.c", "../../bpf/compat.bpf.h")]


def lint(files: dict[str, str], only: list[str]) -> tuple[int, list[str]]:
    """(exit status, lines) for a tree of these files."""
    with tempfile.TemporaryDirectory(prefix="tbg-") as top:
        with open(os.path.join(ktap.ROOT, "tools/lint-layout"), encoding="utf-8") as f:
            tree = {**files, "tools/lint-layout": f.read()}
        for name, text in tree.items():
            os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
            with open(os.path.join(top, name), "w", encoding="utf-8") as f:
                f.write(text)
        r = subprocess.run([sys.executable, os.path.join(top, "tools/lint-layout"), *only],
                           capture_output=True, text=True,
                           check=False)
    return r.returncode, r.stderr.splitlines()


def names(tree: dict[str, str]) -> list[str]:
    return sorted(tree)


def t_a_tree_that_is_as_it_should_be():
    assert lint(CLEAN, names(CLEAN)) == (0, [])


def t_a_file_that_is_too_long_is_named():
    status, lines = lint({**CLEAN, **LONG}, names(CLEAN))
    assert status == 1 and len(lines) == 1 and "x.py: more than 700 lines" in lines[0], lines


def t_an_include_that_goes_up_is_named():
    status, lines = lint({**CLEAN, **UP}, names(CLEAN))
    assert status == 1 and len(lines) == 1 and "os/a.c: may not include main/b.h" in lines[0], lines


def t_each_include_that_the_layout_forbids_is_named():
    for name, header in FORBIDDEN:
        for form in '#include "%s"\n', '\t# include "%s" /* b */\n':
            tree = {**CLEAN, name: form % header}
            status, lines = lint(tree, names(tree))
            assert status == 1 and len(lines) == 1, (name, header, lines)
            assert f"{name}: may not include {header}" in lines[0], (name, header, lines)


def t_headers_that_include_each_other_are_named():
    tree = {**CLEAN, "userd/os/a.h": '#include "os/b.h"\n', "userd/os/b.h": '#include "c.h"\n',
            "userd/os/c.h": '#include "../os/a.h"\n'}
    status, lines = lint(tree, names(tree))
    circle = "userd/os/b.h > userd/os/c.h > userd/os/a.h > userd/os/b.h"
    assert status == 1 and len(lines) == 1 and circle in lines[0], lines


def t_a_guard_with_another_name_is_named():
    tree = {**CLEAN, **GUARD}
    status, lines = lint(tree, names(tree))
    assert status == 1 and len(lines) == 1 and "TBG_USERD_OS_A_H" in lines[0], lines


def t_a_file_in_no_room_is_named():
    for name in ("userd/new/a.c", "userd/a.c", "bpf/new/a.bpf.c"):
        status, lines = lint({**CLEAN, name: '#include "os/b.h"\n'}, [*names(CLEAN), name])
        assert status == 1 and len(lines) == 1 and f"{name}: is in no room" in lines[0], lines


def t_each_fault_is_named():
    status, lines = lint({**CLEAN, **LONG, **UP}, names(CLEAN))
    assert status == 1 and len(lines) == 2, lines


if __name__ == "__main__":
    ktap.run(globals())
