#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Paths that make refuses, because it would split them; the packages that it installs first; and
what it builds again, in a tree that has been copied.

Makefiles are read in a folder of their own; at most a few objects are built there.
"""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import ktap                     # noqa: E402

REPO = os.path.join(HERE, os.pardir, os.pardir)
TOP, VM = "Makefile", "vm/Makefile"
clone = ""


def begin():
    global clone
    clone = tempfile.mkdtemp()
    for where in ("one", "two words"):
        os.makedirs(os.path.join(clone, where, "vm"))
        for name in (TOP, VM):
            shutil.copy(os.path.join(REPO, name), os.path.join(clone, where, name))


def end():
    shutil.rmtree(clone)


def make(name, *words, where="one"):
    env = {k: v for k, v in os.environ.items()
           if k not in ("O", "DESTDIR", "PREFIX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", "-C", os.path.join(clone, where, os.path.dirname(name)), "-n",
                           "clean", *words], capture_output=True, text=True, env=env, check=False)


def refused(says, *args, **more):
    got = make(*args, **more)
    assert got.returncode == 2 and says in got.stderr and "rm " not in got.stdout, got


def t_help_lists_each_target_that_has_a_description():
    """Such as check-arm64, whose name has digits."""
    with open(os.path.join(REPO, TOP), encoding="utf-8") as f:
        wanted = [line.split(":")[0] for line in f if "\t## " in line and line[0] != "\t"]
    out = subprocess.run(["make", "-C", REPO, "--no-print-directory", "help"], capture_output=True,
                         text=True, check=True).stdout
    assert [line.split()[0] for line in out.splitlines()] == wanted, out
    assert {"all", "check", "check-arm64", "build-arm64"} <= set(wanted), wanted


def t_run_needs_no_package_of_the_tests():
    """Building and running need neither a browser nor another server nor an emulator."""
    steps = subprocess.run(["make", "-C", REPO, "-n", "run"], capture_output=True, text=True,
                           check=True).stdout
    groups = next(line for line in steps.splitlines() if "tools/deps" in line).split()[1:]
    assert groups == ["build", "run"], steps
    rows = subprocess.run([os.path.join(REPO, "tools/deps"), "--list"], capture_output=True,
                          text=True, check=True).stdout.splitlines()
    names = {row.split()[1] for row in rows if row.split()[0] in groups}
    assert {"clang", "curl"} <= names, names
    for other in ("chromium", "php", "apache", "nginx", "qemu", "python", "llvm"):
        assert not any(other in name for name in names), (other, names)


def t_a_source_that_has_moved_since_the_last_build_is_built_again():
    """The file of dependencies still names the old place, and removed headers."""
    for folder, object_name in (("tools", "selftest.o"), ("userd", "os/clock.o")):
        out = os.path.join(clone, "built", folder)
        os.makedirs(os.path.join(out, os.path.dirname(object_name)), exist_ok=True)
        path = os.path.join(out, object_name)
        with open(path[:-1] + "d", "w", encoding="ascii") as f:
            f.write(f"{path}: ../userd/gone.c ../userd/gone.h\n../userd/gone.h:\n")
        with open(path, "w", encoding="ascii"):
            pass
        got = subprocess.run(["make", "-n", "-C", os.path.join(REPO, folder),
                              f"O={os.path.join(clone, 'built')}", path],
                             capture_output=True, text=True, check=False)
        # -MT: ccache may write another path than make knows
        assert got.returncode == 0 and f"-MT {path} " in got.stdout, got


# {folder: (an object of it, a header that it includes)}
COPIED = {"bpf": ("selftest.bpf.o", "bpf/abi/selftest.h"),
          "userd": ("os/clock.o", "bpf/abi/types.h"),
          "tools": ("probe.o", "kernel/level.h")}


def built(tree, folder):
    """When the object was built that make has then, in this copy of the sources."""
    path = os.path.join(tree, "build", folder, COPIED[folder][0])
    env = {k: v for k, v in os.environ.items() if k != "O" and not k.startswith("MAKE")}
    done = subprocess.run(["make", "-C", os.path.join(tree, folder), f"O={tree}/build", path],
                          capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return os.stat(path).st_mtime_ns


def t_a_copied_tree_builds_what_has_changed_in_it():
    """The files of dependencies were written in another folder, which is gone."""
    first, second = (os.path.join(clone, name) for name in ("first", "second"))
    for name in ("bpf", "kernel", "userd", "tools"):
        shutil.copytree(os.path.join(REPO, name), os.path.join(first, name), symlinks=True)
    times = {folder: built(first, folder) for folder in COPIED}
    shutil.copytree(first, second, symlinks=True)
    shutil.rmtree(first)
    for folder, (_, header) in COPIED.items():
        assert built(second, folder) == times[folder], f"{folder}: built again without a reason"
        os.utime(os.path.join(second, header), ns=(times[folder] + 1,) * 2)
        assert built(second, folder) > times[folder], f"{folder}: not built again"


def t_paths_of_one_word_are_taken():
    for name in (TOP, VM):
        for words in ([], ["O=/tmp/o"], ["O=o", "DESTDIR=/d", "PREFIX="]):
            got = make(name, *words)
            assert got.returncode == 0 and "rm -rf" in got.stdout, got


def t_a_clone_with_a_blank_is_refused():
    for name in (TOP, VM):
        refused("two words", name, where="two words")
        refused("two words", name, "O=/tmp/o", where="two words")


def t_a_build_folder_with_a_blank_is_refused():
    for name in (TOP, VM):
        refused('"/tmp/o p"', name, "O=/tmp/o p")
        refused('""', name, "O=")


def t_a_place_to_install_with_a_blank_is_refused():
    refused('DESTDIR="/d e"', TOP, "DESTDIR=/d e")
    refused('PREFIX="/usr local"', TOP, "PREFIX=/usr local")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
