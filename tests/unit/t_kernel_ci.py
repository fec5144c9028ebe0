#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The files of Documentation/kernel-ci for other CI systems: everything that they call exists.

Each command is looked at as its system would run it: make's targets exist, vm/run takes the
words and tests/run knows the programs, what is kept afterwards is where it is written.
"""
import importlib.machinery
import os
import re
import shlex
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import fakeboot                 # noqa: E402
import fetch                    # noqa: E402
import guest                    # noqa: E402
import ktap                     # noqa: E402

REPO = fakeboot.REPO
FOLDER = os.path.join(REPO, "Documentation", "kernel-ci")
PREPARES = ("apt-get", "git")           # of the system's own image
JUNIT = "build/junit.xml"


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return yaml.safe_load(f)


def github():
    """(the job, its commands)"""
    job = read("github-actions.yml")["jobs"]["kernel"]
    assert all(("run" in step) != ("uses" in step) for step in job["steps"]), job["steps"]
    return job, [step["run"] for step in job["steps"] if "run" in step]


def gitlab():
    job = read("gitlab-ci.yml")["kernels"]
    return job, [*job["before_script"], *job["script"]]


def simple(command, kernel):
    """[[word]] of the commands that && joins, for one kernel, as a shell parses them."""
    subprocess.run(["sh", "-n", "-c", command], check=True)
    text = command.replace("${{ matrix.kernel }}", kernel).replace('"$KERNEL"', kernel)
    text = text.replace('"$(nproc)"', "2")
    assert "${{" not in text, text
    return [shlex.split(part) for part in text.split("&&")]


def make_has(words):
    """Only the commands of `make -n` are checked."""
    env = {k: v for k, v in os.environ.items() if k != "O" and not k.startswith("MAKE")}
    done = subprocess.run(["make", "-n", *words, "O=/nonexistent/build"], cwd=REPO, env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    # what has not been built yet may be missing, a target may not
    assert "No rule to make target" not in done.stderr or "needed by" in done.stderr, done.stderr


def vm_run_takes(words, kernel):
    """They also name programs."""
    run = importlib.machinery.SourceFileLoader(
        "vm_run", os.path.join(REPO, "vm", "run")).load_module()
    opts = run.parser().parse_args(words)
    assert opts.kernels == kernel and opts.junit == JUNIT, words
    listed = subprocess.run([os.path.join(REPO, "tests", "run"), "--list", *opts.suites],
                            check=True, capture_output=True, text=True).stdout.split()
    for program in ("bpf/core", "net/wire/t_wire.py", "net/wire/t_close.py", "net/wire/t_split.py"):
        assert program in listed, listed


def can_run(commands, kernel):
    """Everything that they call exists; returns the names."""
    called = []
    for command in commands:
        for name, *words in simple(command, kernel):
            called.append(name)
            if name == "make":
                make_has(words)
            elif name == "vm/run":
                vm_run_takes(words, kernel)
            else:
                assert name in PREPARES, command
    return called


def holds(commands, kernels):
    """The steps of both, in this order, for each of these kernels."""
    assert kernels == fetch.default_names(), kernels
    for kernel in kernels:
        called = can_run(commands, kernel)
        assert called == ["apt-get", "apt-get", "git", "make", "make", "make", "make",
                          "vm/run"], called


def kept(paths):
    """The JUnit file, and the folder of the guests' logs."""
    with tempfile.TemporaryDirectory() as d:
        logs = os.path.relpath(os.path.dirname(guest.new_folder(f"{d}/build", "6.1")), d)
    assert paths == [JUNIT, logs], paths


def cached(paths):
    """The folder that kernels are unpacked to."""
    where = fetch.folder_of("build", "p", "1")
    assert [os.path.dirname(where)] == paths, (where, paths)


def t_the_commands_of_github_are_here():
    job, commands = github()
    holds(commands, job["strategy"]["matrix"]["kernel"])
    assert job["container"] == "debian:12" and job["runs-on"] == "ubuntu-latest", job


def t_what_github_keeps_is_where_it_is_written():
    job, commands = github()
    uses = {step["uses"].split("@")[0]: step for step in job["steps"] if "uses" in step}
    assert set(uses) == {f"actions/{x}" for x in ("checkout", "cache", "upload-artifact")}, uses
    assert all(re.search(r"@v\d+$", step["uses"]) for step in uses.values()), uses
    cached([uses["actions/cache"]["with"]["path"]])
    kept(uses["actions/upload-artifact"]["with"]["path"].split())
    # of a job that has failed, too
    assert uses["actions/upload-artifact"]["if"] == "always()"
    # without git, checkout fetches an archive: nothing to take a version from
    names = [step.get("uses", step.get("run")) for step in job["steps"]]
    assert names[0] == commands[0] and "git" in commands[0] and "checkout" in names[1], names


def t_the_commands_of_gitlab_are_here():
    job, commands = gitlab()
    holds(commands, job["parallel"]["matrix"][0]["KERNEL"])
    assert job["image"] == "debian:12", job


def t_what_gitlab_keeps_is_where_it_is_written():
    job, _ = gitlab()
    cached(job["cache"]["paths"])
    kept(job["artifacts"]["paths"])
    assert job["artifacts"]["reports"]["junit"] == JUNIT and job["artifacts"]["when"] == "always"


def t_a_command_that_is_not_here_is_found():
    """The text of what the tests above check."""
    for command in ("vm/walk --kernels 6.1", "make nonsense", "make -C vm nonsense",
                    "vm/run --kernels 6.1 --junit build/junit.xml bpf net/t_gone.py",
                    "vm/run --kernels 6.1 bpf",
                    "vm/run --kernels 6.12 --junit build/junit.xml bpf"):
        try:
            can_run([command], "6.1")
        except (AssertionError, IndexError, ValueError, subprocess.CalledProcessError):
            continue
        raise AssertionError(f"{command} was found good")


def lava_steps():
    job = read("lava-job.yml")
    test = next(x["test"] for x in job["actions"] if "test" in x)
    return job, test["definitions"][0]["repository"]["run"]["steps"]


KSELFTEST = """TAP version 13
1..4
# selftests: bpf: core
ok 1 selftests: bpf: core
ok 2 selftests: bpf: sweep # SKIP
not ok 3 selftests: bpf: wire # exit=1
not ok 4 selftests: net: t_wire.py # TIMEOUT 45 seconds
"""


def t_lava_receives_each_result():
    """By the job's own steps, of what the kernel's runner prints."""
    _, steps = lava_steps()
    reports = [step for step in steps if "lava-test-case" in step or step.startswith("grep ")]
    assert len(reports) == 2, steps
    with tempfile.TemporaryDirectory() as d:
        for name, text in (("output.txt", KSELFTEST),
                           ("lava-test-case", "#!/bin/sh\necho \"$@\" >>told\n")):
            with open(f"{d}/{name}", "w", encoding="ascii") as f:
                f.write(text)
        os.chmod(f"{d}/lava-test-case", 0o755)
        for step in reports:
            subprocess.run(["sh", "-ec", step], cwd=d, check=True, stdin=subprocess.DEVNULL,
                           env={**os.environ, "PATH": f"{d}:{os.environ['PATH']}"})
        with open(f"{d}/told", encoding="ascii") as f:
            told = f.read().splitlines()
        assert told == ["bpf-core --result pass", "bpf-sweep --result skip",
                        "bpf-wire --result fail", "net-t_wire.py --result fail"], told
        # without one that passed, the job fails
        with open(f"{d}/output.txt", "w", encoding="ascii") as f:
            f.write("not ok 1 selftests: bpf: core\n")
        assert subprocess.run(["sh", "-ec", reports[1]], cwd=d, check=False).returncode


def t_lava_runs_what_the_archive_has():
    job, steps = lava_steps()
    images = next(x["deploy"]["images"] for x in job["actions"] if "deploy" in x)
    assert images["kernel"]["url"] == "KERNEL_URL" and images["rootfs"]["url"] == "ROOTFS_URL"
    whole = "\n".join(steps)
    assert "KSELFTEST_URL" in whole and "./run_kselftest.sh -c bpf" in whole, whole
    for step in steps:
        subprocess.run(["sh", "-n", "-c", step], check=True)
    assert os.path.exists(os.path.join(REPO, "tests", "bpf", "Makefile"))


if __name__ == "__main__":
    ktap.run(globals())
