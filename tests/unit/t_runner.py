#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""How tests/run treats programs that break its rules.

Each test writes programs into a scratch copy of tests/ and reads the runner's
exit code, totals and faults. Needs no privilege and touches no other suite.
"""
import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import daemon                   # noqa: E402
import ktap                     # noqa: E402
import sandbox                  # noqa: E402

SCRATCH = None
ROWS = "echo TAP version 13; echo 1..2; echo ok 1 a; echo ok 2 b; "


def begin():
    global SCRATCH
    SCRATCH = tempfile.mkdtemp()
    os.makedirs(os.path.join(SCRATCH, "unit"))
    os.makedirs(os.path.join(SCRATCH, "expect"))
    shutil.copy(os.path.join(HERE, os.pardir, "run"), SCRATCH)
    os.symlink(os.path.realpath(os.path.join(HERE, os.pardir, "lib")), os.path.join(SCRATCH, "lib"))
    write("settings", "timeout=60\n")
    write("expect/skips", "# none\n")


def end():
    shutil.rmtree(SCRATCH)


def write(name, text):
    path = os.path.join(SCRATCH, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o755)


def judge(script, *options, env=()):
    """(exit code, totals line, result record) of one program, by the default settings."""
    write("unit/t_x.sh", "#!/bin/sh\n" + script + "\n")
    write("unit/Makefile", "TEST_PROGS := \\\n\tt_x.sh # one\n")
    out = os.path.join(SCRATCH, "result.json")
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "TBG_WHERE", "O")}
    run = subprocess.run([os.path.join(SCRATCH, "run"), "--json", out, *options, "unit"],
                         env=dict(clean, **dict(env)), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    ktap.note(run.stdout)
    with open(out, encoding="utf-8") as f:
        return run.returncode, run.stdout.splitlines()[-1], json.load(f)["tests"][0]


def run(programs, *words, settings="", env=()):
    """(exit code, stdout, {label: record}) of {name: script}; words as for tests/run."""
    for name, script in programs.items():
        write(f"unit/{name}", "#!/bin/sh\n" + script + "\n")
    write("unit/Makefile", f"TEST_PROGS := {' '.join(programs)}\n")
    write("unit/settings", "timeout=60\n" + settings)
    out = os.path.join(SCRATCH, "result.json")
    clean = {k: v for k, v in os.environ.items() if k not in ("CI", "TBG_WHERE", "TBG_PART")}
    done = subprocess.run([os.path.join(SCRATCH, "run"), "--json", out, *words],
                          env=dict(clean, O=os.path.join(SCRATCH, "build"), **dict(env)),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    ktap.note(done.stdout)
    os.unlink(os.path.join(SCRATCH, "unit/settings"))
    with open(out, encoding="utf-8") as f:
        return done.returncode, done.stdout, {r["label"]: r for r in json.load(f)["tests"]}


def needs_namespaces():
    why = sandbox.can_isolate()
    if why:
        raise ktap.Skip(f"no namespaces: {why}")


def must_fail(script, totals, fault, *options, env=()):
    code, last, res = judge(script, *options, env=env)
    assert (code, last, res["verdict"]) == (1, totals, "fail"), (code, last, res)
    assert any(fault in line for line in res["faults"]), res["faults"]


def t_all_rows_pass():
    code, last, res = judge(ROWS)
    assert (code, last, res["faults"]) == (0, "2 passed, 0 failed", []), (code, last, res)


def t_failed_row_fails():
    code, last, _ = judge("echo 1..2; echo ok 1 a; echo not ok 2 b; exit 1")
    assert (code, last) == (1, "1 passed, 1 failed"), (code, last)


def t_failed_row_with_exit_0_fails():
    code, last, _ = judge("echo 1..1; echo not ok 1 b")
    assert (code, last) == (1, "0 passed, 1 failed"), (code, last)


def t_nested_failure_fails():
    must_fail("echo 1..1; echo '  not ok 1 x'; echo ok 1 a", "1 passed, 1 failed", "nested")


def t_no_plan_fails():
    must_fail("echo ok 1 a", "1 passed, 1 failed", "no KTAP plan")


def t_no_output_fails():
    must_fail("exit 0", "0 passed, 1 failed", "no KTAP plan")


def t_bare_exit_4_fails():
    must_fail("exit 4", "0 passed, 1 failed", "no KTAP plan")


def t_missing_row_fails():
    must_fail("echo 1..3; echo ok 1 a; echo ok 2 b", "2 passed, 1 failed", "3 rows planned")


def t_row_out_of_order_fails():
    must_fail("echo 1..2; echo ok 2 a; echo ok 1 b", "2 passed, 1 failed", "row 1 expected")


def t_empty_plan_fails():
    must_fail("echo 1..0", "0 passed, 1 failed", "empty plan")


def t_exit_code_fails():
    must_fail(ROWS + "exit 3", "2 passed, 1 failed", "exit 3")


def t_death_by_signal_fails():
    must_fail(ROWS + "kill -SEGV $$", "2 passed, 1 failed", "SIGSEGV")


def t_bail_out_fails():
    must_fail(ROWS + "echo 'Bail out! lost'", "2 passed, 1 failed", "Bail out!")


def t_missing_program_fails():
    judge(ROWS)
    write("unit/Makefile", "TEST_GEN_PROGS := t_absent\n")
    run = subprocess.run([os.path.join(SCRATCH, "run"), "unit"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False)
    assert run.returncode == 1 and run.stdout.endswith("0 passed, 1 failed\n"), run.stdout


def t_suite_without_programs_fails():
    write("unit/Makefile", "# nothing\n")
    run = subprocess.run([os.path.join(SCRATCH, "run"), "unit"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False)
    assert run.returncode == 1 and run.stdout.endswith("0 passed, 1 failed\n"), run.stdout


def t_a_test_that_hangs_shows_where():
    lib = os.path.join(SCRATCH, "lib")
    script = (f"exec python3 - <<'EOF'\nimport sys, time\nsys.path.insert(0, {lib!r})\n"
              "import ktap\ndef t_x():\n    time.sleep(1000)\nktap.run(globals())\nEOF")
    _, _, res = judge(script, "--timeout", "15")
    assert res["verdict"] == "fail" and "killed after 15 s" in res["faults"], res
    assert any("in t_x" in line for line in res["stderr"]), res["stderr"]


def t_timeout_kills_the_group():
    must_fail("echo 1..1; sleep 1000 & wait", "0 passed, 1 failed", "killed after",
              "--timeout", "0.2")


def t_a_program_that_is_ended_before_it_began_has_failed():
    must_fail("echo 1..1; sleep 1000", "0 passed, 1 failed", "killed after", "--timeout", "0.0001")


def t_daemon_left_behind_is_killed():
    """It keeps stdout open in a session of its own, which must not block the runner."""
    mark = os.path.join(SCRATCH, "mark")
    sleep = ["sleep", f"1000.{os.getpid()}"]    # its PID is that of another namespace
    code, _, res = judge(ROWS + f"mkfifo {mark}; "
                         f"setsid sh -c 'echo >{mark}; exec {' '.join(sleep)}' & cat {mark}")
    assert code == 0 and res["leftovers"], res
    assert sleep not in cmdlines(), "the daemon lives on"


def cmdlines():
    """The words of each process."""
    ret = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as f:
            ret.append(f.read().split("\0")[:-1])
    return ret


def t_programs_run_side_by_side():
    """Each waits for the other, by pipes that both can see."""
    meet = [os.path.join(SCRATCH, name) for name in ("one", "two")]
    for name in meet:
        os.mkfifo(name)
    code, _, res = run({"t_a.sh": f"echo x >{meet[0]}; read y <{meet[1]}; " + ROWS,
                        "t_b.sh": f"read y <{meet[0]}; echo x >{meet[1]}; " + ROWS},
                       "-j", "2", "unit")
    assert code == 0 and len(res) == 2, res


def t_one_that_is_marked_alone_runs_when_no_other_does():
    """It reports what each of the others leaves behind."""
    folder = os.path.join(SCRATCH, "ended")
    os.mkdir(folder)
    others = {f"t_{nr}.sh": f"{ROWS} : >{folder}/{nr}" for nr in range(5)}
    code, _, _ = run({"t_alone.sh": f"[ $(ls {folder} | wc -l) = 5 ] && {ROWS}", **others},
                     "-j", "4", "unit", settings="alone=t_alone.sh\n")
    assert code == 0


def t_programs_see_nothing_of_each_other():
    """Interfaces, processes, /tmp, /run, /dev/shm, the host's name, pinned objects."""
    needs_namespaces()
    meet = [os.path.join(SCRATCH, name) for name in ("set", "seen")]
    for name in meet:
        os.mkfifo(name)
    sets = ("ip link add x0 type dummy || ip tuntap add x0 mode tap; "
            "hostname other; sleep 1000 & touch /tmp/x /run/x /dev/shm/x /var/tmp/x; "
            "mkdir /sys/fs/bpf/x; ")
    sees = ("[ ! -e /sys/class/net/x0 ] && ! ip link show x0 2>/dev/null && "
            "[ $(hostname) != other ] && ! pidof sleep && "
            "for d in /tmp /run /dev/shm /var/tmp /sys/fs/bpf; do "
            "[ ! -e $d/x ] || exit 9; done && ")
    code, _, res = run(
        {"t_a.sh": sets + f"[ -e /sys/class/net/x0 ] || exit 9; echo x >{meet[0]}; "
                          f"read y <{meet[1]}; " + ROWS,
         "t_b.sh": f"read y <{meet[0]}; ({sees} true); bad=$?; echo x >{meet[1]}; "
                   f"[ $bad = 0 ] && {ROWS}"}, "-j", "2", "unit")
    assert code == 0, res
    assert res["t_a.sh"]["leftovers"], res      # the shell's still, or sleep already


def t_loopback_is_up_and_there_is_no_other_interface():
    needs_namespaces()
    code, _, res = run({"t_a.sh": "ip -o link | grep -q 'lo: <.*UP' && "
                                  "[ $(ip -o -4 addr | wc -l) = 1 ] && " + ROWS}, "unit")
    assert code == 0, res


def t_a_program_that_hangs_is_ended_and_named():
    mark = os.path.join(SCRATCH, "hangs")
    code, out, res = run({"t_a.sh": "echo 1..1; trap '' TERM; (setsid sleep 1000) & "
                                    f": >{mark}; exec sleep 1000", "t_b.sh": ROWS},
                         "--timeout", "4", "unit")
    assert code == 1 and "killed after 4 s" in res["t_a.sh"]["faults"], res
    assert any("sleep" in x for x in res["t_a.sh"]["leftovers"]), res
    assert res["t_b.sh"]["verdict"] == "pass", res
    assert "# FAILED unit/t_a.sh: killed after 4 s\n" in out, out


def t_an_interrupted_run_leaves_nothing():
    mark = os.path.join(SCRATCH, "began")
    os.mkfifo(mark)
    write("unit/t_a.sh", f"#!/bin/sh\nsetsid sh -c 'echo $$; exec sleep 1000' >{mark}\n")
    write("unit/Makefile", "TEST_PROGS := t_a.sh\n")
    with subprocess.Popen([os.path.join(SCRATCH, "run"), "unit"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as proc:
        with open(mark, encoding="ascii") as f:
            f.read(1)
            kids = children_of(proc.pid)
            proc.terminate()
            assert proc.wait(20) == 130
            assert f.read(), "sh never said its number"
    assert kids
    deadline = time.monotonic() + 60        # somebody else reaps them
    while any(os.path.exists(f"/proc/{pid}") for pid in kids):
        assert time.monotonic() < deadline, kids
        time.sleep(0.01)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        kids = [int(x) for x in f.read().split()]
    return kids + [x for kid in kids for x in children_of(kid)]


def t_last_lines_name_what_failed_how_to_run_it_alone_and_its_log():
    code, out, _ = run({"t_a.sh": "echo 1..2; echo ok 1 t_x; echo not ok 2 t_y; exit 1",
                        "t_b.sh": ROWS, "t_c.sh": "echo lost >&2; exit 3"}, "unit")
    *_, a, a_alone, a_log, c, c_alone, c_log, last = out.splitlines()
    assert code == 1 and last == "3 passed, 2 failed", last
    assert a == "# FAILED unit/t_a.sh:t_y" and c == "# FAILED unit/t_c.sh: no KTAP plan", (a, c)
    assert a_alone.split(None, 2)[2] == "make check TEST=unit/t_a.sh:t_y", a_alone
    assert c_alone.split(None, 2)[2] == "make check TEST=unit/t_c.sh", c_alone
    for line, text in ((a_log, "not ok 2 t_y"), (c_log, "# stderr: lost")):
        with open(line.split(None, 2)[2], encoding="utf-8") as f:
            assert text in f.read().splitlines(), line


def t_one_test_is_selected_wherever_its_program_lies():
    os.makedirs(os.path.join(SCRATCH, "unit/deep"), exist_ok=True)
    programs = {"deep/t_a.sh": "echo 1..1; echo ok 1 $1-$2", "t_b.sh": ROWS}
    for word in ("unit/deep/t_a.sh:t_y", "unit/t_a.sh:t_y"):
        code, _, res = run(programs, word)
        assert code == 0 and [r["name"] for r in res["deep/t_a.sh"]["rows"]] == ["t_y-"], res
        assert len(res) == 1, res
    _, _, res = run(programs, "unit/t_a.sh:t_y,t_z")
    assert [r["name"] for r in res["deep/t_a.sh"]["rows"]] == ["t_y-t_z"], res
    code, out, _ = run(programs, "unit/deep")
    assert code == 0 and out.endswith("\n1 passed, 0 failed\n"), out


def t_what_a_sanitizer_reports_is_a_failure():
    """Of any process, even if nobody checks its exit code."""
    code, out, res = run({"t_a.sh": 'for x in $(echo $ASAN_OPTIONS | tr : " "); do '
                                    'case $x in log_path=*) log=${x#*=} ;; esac; done; '
                                    'echo "==7==ERROR: LeakSanitizer: lost" >$log.7; ' + ROWS},
                         "unit", env={"ASAN_OPTIONS": "exitcode=99"})
    assert code == 1 and "sanitizer: ==7==ERROR: LeakSanitizer: lost" in res["t_a.sh"]["faults"]
    assert "2 passed, 1 failed" in out, out


def t_a_search_for_leaks_that_met_a_thread_is_none():
    code, _, _ = run({"t_a.sh": 'for x in $(echo $ASAN_OPTIONS | tr : " "); do '
                                'case $x in log_path=*) log=${x#*=} ;; esac; done; '
                                'echo "==7==Running thread 6 was not suspended. '
                                'False leaks are possible." >$log.7; ' + ROWS},
                     "unit", env={"ASAN_OPTIONS": "exitcode=99"})
    assert code == 0


def t_a_program_is_run_alone_on_the_kernel_that_it_failed_on():
    """The flavour is part of that kernel's name, but not of what the skips are listed for."""
    for more, kernel in (({}, "6.1"), ({"TBG_KERNEL": "6.1-rt"}, "6.1-rt")):
        _, out, _ = run({"t_a.sh": "echo 1..1; echo not ok 1 t_x"}, "unit",
                        env={"TBG_WHERE": "vm/6.1", **more})
        assert f"make check TEST=unit/t_a.sh:t_x KERNEL={kernel}\n" in out, out


def t_what_a_sanitizer_has_built_is_run_alone_as_that():
    _, out, _ = run({"t_a.sh": "echo 1..1; echo not ok 1 t_x"}, "unit",
                    env={"TBG_SANITIZER": "asan"})
    assert "alone: make check-asan TEST=unit/t_a.sh:t_x\n" in out, out


def t_durations_are_written_and_order_the_next_run():
    known = os.path.join(SCRATCH, "durations")
    programs = {"t_short.sh": ROWS, "t_long.sh": "sleep 0.5; " + ROWS}
    run(programs, "--durations", known, "unit")
    try:
        with open(known, encoding="utf-8") as f:
            names = [line.split()[1] for line in f if not line.startswith("#")]
        assert names == ["unit/t_long.sh", "unit/t_short.sh"], names
        _, out, _ = run(programs, "-j", "1", "unit")
        began = [line.split()[-1] for line in out.splitlines() if "# running" in line]
        assert began == names, began
    finally:
        os.unlink(known)


def t_parts_of_a_program_run_apart():
    """All of its tests run once."""
    lib = os.path.realpath(os.path.join(HERE, os.pardir, "lib"))
    script = (f"exec python3 - <<'EOF'\nimport sys\nsys.path.insert(0, {lib!r})\nimport ktap\n"
              "for name in 'abcde':\n    exec(f'def t_{name}(): pass')\n"
              "ktap.run(globals())\nEOF")
    code, out, res = run({"t_a.sh": script}, "unit", settings="parts=t_a.sh:2\n")
    names = [[r["name"] for r in res[f"t_a.sh[{nr}/2]"]["rows"]] for nr in (1, 2)]
    assert code == 0 and names == [["t_a", "t_c", "t_e"], ["t_b", "t_d"]], names
    assert out.endswith("\n5 passed, 0 failed\n"), out


FLAKE = "if [ -e ../flake ]; then " + ROWS + "else : >../flake; exit 3; fi"


def t_flake_passes_only_with_retry_and_is_reported():
    must_fail(FLAKE, "0 passed, 1 failed", "no KTAP plan")
    os.unlink(os.path.join(SCRATCH, "flake"))
    code, last, res = judge(FLAKE, "--retry", "1")
    assert (code, last, res["verdict"]) == (0, "2 passed, 0 failed", "pass"), res
    assert "FLAKY, exit 3" in res["first"], res


FLAKY_ROW = ("echo 1..1; if [ -e ../flaky-row ]; then echo ok 1 t_x; else : >../flaky-row; "
             "echo '# the first time'; echo not ok 1 t_x; echo lost >&2; exit 1; fi")


def t_the_log_of_a_flake_stays_and_the_last_lines_name_it():
    for label, env in (("t_a.sh.log", {}), ("t_a.sh-wire.log", {"TBG_TIERS": "wire"}),
                       ("t_a.sh-run2.log", {"TBG_RUN_NR": "2"})):
        code, out, _ = run({"t_a.sh": FLAKY_ROW}, "--retry", "1", "unit", env=env)
        os.unlink(os.path.join(SCRATCH, "flaky-row"))
        *_, flaky, log, last = out.splitlines()
        assert (code, last) == (0, "1 passed, 0 failed"), out
        assert flaky == "# FLAKY unit/t_a.sh:t_x" and log.endswith("/unit/" + label), out
        with open(log.split(None, 2)[2], encoding="utf-8") as f:
            assert f.read().splitlines()[1:] == ["# the first time", "not ok 1 t_x",
                                                 "# stderr: lost"]
        # where a test kernel's log has all programs, too
        for line in "# the first time", "not ok 1 t_x", "# stderr: lost":
            assert f"    # run 1: {line}" in out.splitlines(), out


def t_failing_each_time_fails():
    must_fail("echo >>../runs; exit 3", "0 passed, 1 failed", "exit 3", "--retry", "2")
    with open(os.path.join(SCRATCH, "runs"), encoding="ascii") as f:
        assert len(f.readlines()) == 3


def t_skips_count():
    code, last, res = judge("echo 1..2; echo ok 1 a; echo 'ok 2 b # SKIP no tcx'")
    assert (code, last) == (0, "1 passed, 0 failed, 1 skipped"), (code, last)
    assert res["rows"][1]["reason"] == "no tcx", res


def t_program_skip_counts_once():
    code, last, _ = judge("echo '1..0 # SKIP not root'; exit 4")
    assert (code, last) == (0, "0 passed, 0 failed, 1 skipped"), (code, last)


def t_ci_accepts_listed_skips_only():
    script = "echo 1..2; echo ok 1 a; echo 'ok 2 b # SKIP no tcx here'"
    must_fail(script, "1 passed, 1 failed, 1 skipped", "skip not in", env={"CI": "true"})
    for where, line, good in (("host", "host unit/t_x.sh:b no tcx", True),
                              ("host", "vm unit/t_x.sh:b no tcx", False),
                              ("host", "any unit/t_x.sh .*", True),
                              ("host", "any unit/t_x.sh:a no tcx", False),
                              ("vm/6.1", "vm/6.1 unit/*:b no tcx", True),
                              ("vm/6.1", "vm unit/*:b no tcx", True),
                              ("vm/6.12", "vm/6.1 unit/*:b no tcx", False),
                              ("host", "host unit/t_x.sh:b not root", False)):
        write("expect/skips", line + "\n")
        code, _, _ = judge(script, env={"CI": "true", "TBG_WHERE": where})
        assert (code == 0) == good, (where, line, code)
    write("expect/skips", "# none\n")


def t_a_tier_that_could_be_on_is_no_reason_to_skip():
    def off(state, lacks, why):
        write(
            "toboggan", f"#!/bin/sh\necho "
                        f"'{json.dumps({'tiers': {'sock': {'state': state, 'lacks': lacks}}})}'\n")
        return daemon.why_off("sock", why)
    was, daemon.TOOL = daemon.TOOL, os.path.join(SCRATCH, "toboggan")
    try:
        assert off("off", ["btf"], "no BTF") == "sock is off: no BTF"
        assert off("off", ["sock_fixes"], "kernel 6.12.9: lacks fixes")
        for bad in (("ready", [], "no BTF"), ("off", ["sock_fixes"], "no BTF")):
            try:
                off(*bad)
            except AssertionError:
                continue
            raise AssertionError(f"{bad}: skipped")
    finally:
        daemon.TOOL = was


def t_each_suite_has_what_kselftest_reads():
    """Its runner looks in no other folder, and has a default of 45 s."""
    tests = os.path.join(HERE, os.pardir)
    suites = [x for x in os.listdir(tests) if os.path.exists(os.path.join(tests, x, "Makefile"))]
    assert {"unit", "net"} <= set(suites), suites
    for suite in suites:
        with open(os.path.join(tests, suite, "settings"), encoding="utf-8") as f:
            assert int(f.readline().removeprefix("timeout=")) >= 60, suite
        with open(os.path.join(tests, suite, "config"), encoding="utf-8") as f:
            assert "CONFIG_BPF_SYSCALL=y" in f.read().splitlines(), suite


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
