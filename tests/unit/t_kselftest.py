#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The suites as kselftest: listed, installed, run by our run_kselftest.sh and the kernel's.

The kernel's runner is that of the folder TBG_KSELFTEST, which `make -C vm kselftest` gives,
or of the source package that is in /usr/src; without, its tests skip.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import ktap                     # noqa: E402

TESTS = os.path.join(ktap.ROOT, "tests")
with open(os.path.join(TESTS, "kselftest", "kernel-files"), encoding="ascii") as _files:
    RUNNER = _files.read().split()
PROGRAMS = {"good": "echo TAP version 13; echo 1..1; echo ok 1 x", "bad": "echo not ok 1 x; exit 1",
            "skip": "echo 1..0; exit 4", "slow": "exec sleep 30", "loud": "echo to stderr >&2",
            "where": '[ "$(basename "$PWD")" = fake ]'}


def run(*argv, **kw):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("MAKE") and key not in ("O", "TARGETS")}
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env={**env, "O": ktap.BUILD}, **kw)


def kernel_source(into):
    """The kernel's kselftest, without its suites, in a tree of its own."""
    given = os.environ.get("TBG_KSELFTEST")
    if given:
        tree = os.path.abspath(os.path.join(given, "../../.."))
        for path in RUNNER:
            os.makedirs(os.path.dirname(os.path.join(into, path)), exist_ok=True)
            copy = shutil.copytree if os.path.isdir(os.path.join(tree, path)) else shutil.copy
            copy(os.path.join(tree, path), os.path.join(into, path))
    else:
        found = sorted(glob.glob("/usr/src/linux-source-*.tar.xz"))
        if not found:
            raise ktap.Skip("no kernel source package in /usr/src")
        name = os.path.basename(found[-1])[:-len(".tar.xz")]
        res = run("tar", "-xf", found[-1], "-C", into, "--strip-components=1",
                  *(f"{name}/{path}" for path in RUNNER))
        assert not res.returncode, res.stdout
    return os.path.join(into, "tools/testing/selftests")


def fake_install(folder):
    """An installation of one suite, whose programs end in all possible ways."""
    os.makedirs(f"{folder}/fake")
    os.makedirs(f"{folder}/kselftest")
    for name, script in PROGRAMS.items():
        with open(f"{folder}/fake/{name}", "w", encoding="ascii") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(f"{folder}/fake/{name}", 0o755)
    with open(f"{folder}/fake/settings", "w", encoding="ascii") as f:
        f.write("timeout=2\n")
    with open(f"{folder}/kselftest-list.txt", "w", encoding="ascii") as f:
        f.write("".join(f"fake:{name}\n" for name in (*PROGRAMS, "missing")))
    shutil.copy(f"{TESTS}/kselftest/runner.sh", f"{folder}/kselftest/")
    shutil.copy(f"{TESTS}/kselftest/run_kselftest.sh", folder)


def verdicts(text):
    """The results that a machine reads from the output: ok, not ok, SKIP, TIMEOUT, by program."""
    return re.findall(r"^(ok|not ok) (\d+) selftests: (\S+): (\S+)(?: # (SKIP|TIMEOUT))?", text,
                      re.M)


WANTED = [("ok", "1", "fake", "good", ""), ("not ok", "2", "fake", "bad", ""),
          ("ok", "3", "fake", "skip", "SKIP"), ("not ok", "4", "fake", "slow", "TIMEOUT"),
          ("ok", "5", "fake", "loud", ""), ("ok", "6", "fake", "where", ""),
          ("not ok", "7", "fake", "missing", "")]


def t_programs_end_as_kselftest_reports_them():
    with tempfile.TemporaryDirectory() as d:
        fake_install(d)
        res = run(f"{d}/run_kselftest.sh", cwd="/")
        assert verdicts(res.stdout) == WANTED, res.stdout
        assert res.returncode == 1 and "TAP version 13\n1..7\n" in res.stdout, res.stdout
        assert "# to stderr" in res.stdout and "# ok 1 x" in res.stdout, res.stdout


def t_the_options_of_run_kselftest():
    with tempfile.TemporaryDirectory() as d:
        fake_install(d)
        program = f"{d}/run_kselftest.sh"
        assert run(program, "-l").stdout.split() == [f"fake:{n}" for n in (*PROGRAMS, "missing")]
        one = run(program, "-t", "fake:good")
        assert one.returncode == 0 and verdicts(one.stdout) == WANTED[:1], one.stdout
        names = [v[3] for v in verdicts(run(program, "-c", "fake", "-S", "fake:slow").stdout)]
        assert "slow" not in names and "good" in names, names
        for words, says in ((("-c", "gone"), "No such collection"),
                            (("-t", "fake:x"), "No such test"), (("-t",), "wants an argument"),
                            (("--skip",), "wants an argument")):
            res = run(program, *words)
            assert res.returncode == 1 and says in res.stdout, res.stdout
        res = run(program, "-s", "-t", "fake:loud")
        with open(f"{d}/output.log", encoding="utf-8") as f:
            assert "to stderr" in f.read() and "to stderr" not in res.stdout, res.stdout
        res = run(program, "-o", "1", "-t", "fake:slow")
        assert "TIMEOUT 1 seconds" in res.stdout, res.stdout
        assert run(program, "--what").returncode == 1


def t_what_is_emitted_is_what_the_makefiles_name():
    res = run("make", "-s", "--no-print-directory", "-C", TESTS, "TARGETS=net bpf", "emit_tests")
    listed = run(f"{TESTS}/run", "--list", "net", "bpf").stdout
    assert res.stdout == re.sub("(?m)^([^/]+)/", r"\1:", listed), res.stdout
    assert {"bpf:core", "net:wire/t_wire.py"} <= set(res.stdout.split()), res.stdout
    res = run("make", "-C", TESTS, "TARGETS=nets", "emit_tests")
    assert res.returncode and "no suite called nets" in res.stdout, res.stdout


def t_an_installation_runs_elsewhere():
    """It is moved, run from another folder, and without the repository."""
    with tempfile.TemporaryDirectory() as d:
        res = run(f"{TESTS}/kselftest/install", f"{d}/a", "bpf", "net")
        assert not res.returncode, res.stdout
        os.rename(f"{d}/a", f"{d}/b")
        for test in run(f"{d}/b/run_kselftest.sh", "-l").stdout.split():
            suite, name = test.split(":")
            assert os.access(f"{d}/b/{suite}/{name}", os.X_OK), test
        code = "import sys; sys.path.insert(0, '../lib'); import ktap, daemon; print(daemon.BINARY)"
        out = subprocess.run(["python3", "-c", code], cwd=f"{d}/b/net", stdout=subprocess.PIPE,
                             text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
        assert out.strip() == f"{d}/b/toboggan/build/toboggand" and os.access(out.strip(), os.X_OK)
        again = run(f"{TESTS}/kselftest/install", f"{d}/b", "net")
        assert not again.returncode, again.stdout
        os.makedirs(f"{d}/other")
        with open(f"{d}/other/precious", "w", encoding="ascii"):
            pass
        res = run(f"{TESTS}/kselftest/install", f"{d}/other", "net")
        assert res.returncode and "not empty" in res.stdout, res.stdout


def t_the_kernels_runner_has_the_same_results():
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(f"{d}/linux")
        selftests = kernel_source(f"{d}/linux")
        fake_install(f"{d}/inst")
        shutil.copytree(f"{selftests}/kselftest", f"{d}/inst/kselftest", dirs_exist_ok=True)
        shutil.copy(f"{selftests}/run_kselftest.sh", f"{d}/inst")
        res = run(f"{d}/inst/run_kselftest.sh", cwd="/")
        assert verdicts(res.stdout) == WANTED, res.stdout


def t_suites_copied_into_a_kernel_build_and_run():
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(f"{d}/linux")
        selftests = kernel_source(f"{d}/linux")
        os.mkdir(f"{selftests}/toboggan")
        res = run("sh", "-c", 'git ls-files -z | tar -c --null -T - | tar -x -C "$1"', "sh",
                  f"{selftests}/toboggan", cwd=ktap.ROOT)
        assert not res.returncode, res.stdout
        # What is built already is as good as what would be built there, and newer.
        res = run("sh", "-c", 'mkdir "$2" && cd "$1" && tar -c --exclude=./vm --exclude=./guest '
                              '--exclude=./kselftest . | tar -x -m -C "$2"', "sh", ktap.BUILD,
                  f"{selftests}/toboggan/build")
        assert not res.returncode, res.stdout
        for targets, where in (("toboggan/tests/bpf", None),
                               ("toboggan/tests/bpf", f"{d}/objects")):
            more = [f"O={where}"] if where else []
            res = run("make", "-C", selftests, f"TARGETS={targets}", *more, "all")
            assert not res.returncode, res.stdout
            out = f"{where}/kselftest" if where else selftests
            assert os.access(f"{out}/toboggan/tests/bpf/core", os.X_OK), res.stdout
        res = run("make", "-C", selftests, "TARGETS=toboggan/tests/bpf toboggan/tests/net",
                  f"KSFT_INSTALL_PATH={d}/inst", "install")
        with open(f"{d}/inst/kselftest-list.txt", encoding="ascii") as f:
            listed = f.read().split()
        assert "toboggan/tests/bpf:core" in listed and "toboggan/tests/net:t_wire.py" in listed, \
               res.stdout
        if os.geteuid():
            raise ktap.Skip("to run them needs root")
        res = run(f"{d}/inst/run_kselftest.sh", "-t", "toboggan/tests/bpf:core",
                  "-t", "toboggan/tests/net:t_escape.py", cwd="/")
        assert [v[0] for v in verdicts(res.stdout)] == ["ok", "ok"], res.stdout


if __name__ == "__main__":
    ktap.run(globals())
