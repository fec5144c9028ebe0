#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What tests/run makes of programs that break its rules.

Each test writes programs into a scratch copy of tests/ and reads the runner's
exit code, totals and faults. Needs no privilege and touches no other suite.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import daemon                   # noqa: E402
import ktap                     # noqa: E402

SCRATCH = None
ROWS = "echo TAP version 13; echo 1..2; echo ok 1 a; echo ok 2 b; "


def begin():
    global SCRATCH
    SCRATCH = tempfile.mkdtemp()
    os.makedirs(os.path.join(SCRATCH, "unit"))
    os.makedirs(os.path.join(SCRATCH, "expect"))
    shutil.copy(os.path.join(HERE, os.pardir, "run"), SCRATCH)
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
    """(exit code, totals line, result record) of one program."""
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


def t_timeout_kills_the_group():
    must_fail("echo 1..1; sleep 1000 & wait", "0 passed, 1 failed", "killed after",
              "--timeout", "0.2")


def t_daemon_left_behind_is_killed():
    """It holds stdout open in a session of its own, which must not hang the runner."""
    mark = os.path.join(SCRATCH, "pid")
    code, _, res = judge(ROWS + f"mkfifo {mark}; setsid sh -c 'echo $$ >{mark}; exec sleep 1000' & "
                         f"cat {mark} >{mark}.txt")
    with open(mark + ".txt", encoding="ascii") as f:
        pid = int(f.read())
    assert code == 0 and res["leftovers"], res
    assert not os.path.exists(f"/proc/{pid}"), "the daemon lives on"


FLAKE = "if [ -e ../flake ]; then " + ROWS + "else : >../flake; exit 3; fi"


def t_flake_passes_only_with_retry_and_is_told():
    must_fail(FLAKE, "0 passed, 1 failed", "no KTAP plan")
    os.unlink(os.path.join(SCRATCH, "flake"))
    code, last, res = judge(FLAKE, "--retry", "1")
    assert (code, last, res["verdict"]) == (0, "2 passed, 0 failed", "pass"), res
    assert "exit 3" in res["first"], res


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
        write("toboggan", f"#!/bin/sh\necho '{json.dumps({'tiers': {'sock': {'state': state, 'lacks': lacks}}})}'\n")
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
    """Its runner knows no other folder, and gives 45 s where nothing is said."""
    tests = os.path.join(HERE, os.pardir)
    suites = [x for x in os.listdir(tests) if os.path.exists(os.path.join(tests, x, "Makefile"))]
    assert {"unit", "net"} <= set(suites), suites
    for suite in suites:
        with open(os.path.join(tests, suite, "settings"), encoding="utf-8") as f:
            assert int(f.read().removeprefix("timeout=")) >= 60, suite
        with open(os.path.join(tests, suite, "config"), encoding="utf-8") as f:
            assert "CONFIG_BPF_SYSCALL=y" in f.read().splitlines(), suite


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
