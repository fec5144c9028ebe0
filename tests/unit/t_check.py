#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""tests/check with small commands as parts, which print the output of real ones."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import daemon                           # noqa: E402
import ktap                             # noqa: E402

sys.dont_write_bytecode = True
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../check")
loader = importlib.machinery.SourceFileLoader("check", PATH)
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
loader.exec_module(check)

FAILS = "echo '# FAILED unit/a:t_x'; echo '#     alone: x'; echo '2 passed, 1 failed'; exit 1"
PASSES = "echo '3 passed, 0 failed'"


def part(script, name="part", programs=("unit/a", "unit/b")):
    return check.Part(name, ["sh", "-c", script, "part"], programs)


def run(*parts, last=()):
    """(Results, the whole output)."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        results = check.run_twice([(parts, 2, 0)], last)
    ktap.note(out.getvalue())
    return results, out.getvalue()


def t_what_fails_once_is_reported_and_passes():
    with tempfile.TemporaryDirectory() as folder:
        [result], out = run(part(f"mkdir {folder}/x && {{ {FAILS}; }}; {PASSES}"))
    assert result.sums == [3, 0, 0] and not result.failures, result
    assert result.flakes == ["# FLAKY unit/a:t_x", "#     alone: x"], result
    assert "once more" in out, out


def t_a_repeated_program_has_a_log_of_its_own():
    """The second run knows that it is the second one; tests/run names its logs by that."""
    with tempfile.TemporaryDirectory() as folder:
        run(part(f'echo "$TBG_RUN_NR" >> {folder}/x; {FAILS}'))
        with open(f"{folder}/x", encoding="ascii") as f:
            assert f.read().split("\n") == ["", "2", ""]


def t_flakes_of_a_part_are_no_failures():
    """Such as those of a test kernel, which repeats programs itself."""
    flaky = "echo '# FLAKY net/a:t_y'; echo '#     log:   /of/it'"
    [result], _ = run(part(f"{flaky}; {PASSES}"))
    assert result.sums == [3, 0, 0] and not result.failures, result
    assert result.flakes == ["# FLAKY net/a:t_y", "#     log:   /of/it"], result
    with tempfile.TemporaryDirectory() as folder:
        [result], _ = run(part(f"mkdir {folder}/x && {{ {flaky}; {FAILS}; }}; {PASSES}"))
    assert result.flakes == ["# FLAKY net/a:t_y", "#     log:   /of/it",
                             "# FLAKY unit/a:t_x", "#     alone: x"], result
    [result], _ = run(part(f"{flaky}; {FAILS}"))
    assert result.failures == ["# FAILED unit/a:t_x", "#     alone: x"], result


def t_the_last_lines_name_flakes_before_failures():
    results = [check.Result(part(PASSES), [1, 0, 0], [], flakes=["# FLAKY unit/a:t_x"]),
               check.Result(part(FAILS), [1, 1, 0], ["# FAILED unit/b:t_y"])]
    out, was = io.StringIO(), (check.plan, check.run_twice, check.run_parts, sys.argv)
    check.plan = lambda *_: ([], [])
    check.run_twice = check.run_parts = lambda *_: results
    sys.argv = ["check"]
    try:
        with contextlib.redirect_stdout(out):
            assert check.main() == 1
    finally:
        check.plan, check.run_twice, check.run_parts, sys.argv = was
    assert out.getvalue().splitlines() == ["# FLAKY unit/a:t_x", "# FAILED unit/b:t_y",
                                           "2 passed, 1 failed"], out.getvalue()


def t_what_fails_twice_stays_failed():
    [result], _ = run(part(FAILS))
    assert result.sums == [2, 1, 0] and "# FAILED unit/a:t_x" in result.failures, result


def t_only_what_failed_runs_again_and_after_all_else():
    with tempfile.TemporaryDirectory() as folder:
        said = f"{folder}/said"
        results, _ = run(part(f'echo "$@" >> {said}; {FAILS}', "first"),
                         part(f"sleep 0.3; echo long >> {said}; {PASSES}", "second"),
                         last=[part(f"echo last >> {said}; {PASSES}", "last")])
        with open(said, encoding="ascii") as f:
            lines = f.read().splitlines()
    assert lines == ["unit/a unit/b", "long", "last", "unit/a"], lines
    assert [sum(r.sums) for r in results] == [3, 3, 3], results


def t_what_is_cut_off_is_a_failure():
    [result], out = run(part("echo '# FAILED unit/a:t_x'; exit 1"))
    assert result.sums == [0, 1, 0] and result.failures, result
    assert "once more" not in out, out


def t_an_exit_code_without_a_failure_is_one():
    [result], _ = run(part(f"{PASSES}; exit 1"))
    assert result.sums == [3, 1, 0] and result.failures, result


def t_a_failure_without_a_test_has_its_reason():
    """Such as a test kernel that is unknown: what came before the sum."""
    [result], _ = run(part("echo 'vm/run: 9.9: no such kernel'; echo '0 passed, 1 failed'; exit 2"))
    assert result.failures[0] == "# FAILED part: vm/run: 9.9: no such kernel", result


def t_a_second_run_that_is_cut_off_stays_failed():
    with tempfile.TemporaryDirectory() as folder:
        [result], _ = run(part(f"mkdir {folder}/x && {{ {FAILS}; }}; kill -9 $$"))
    assert result.sums == [2, 1, 0] and result.failures, result


def t_many_failures_are_no_want_of_time():
    lines = "".join(f"echo '# FAILED unit/a{i}:t_x'; " for i in range(check.AGAIN_MAX + 1))
    [result], out = run(part(f"{lines} echo '0 passed, 9 failed'; exit 1"))
    assert result.sums == [0, 9, 0] and "once more" not in out, result


def t_a_guest_s_own_fault_stays_a_failure():
    splat = "echo '# FAULT 1 tests failed'; echo '# FAULT the kernel log has a splat'"
    [result], out = run(part(f"{splat}; {FAILS}"))
    assert result.sums == [2, 1, 0] and "once more" not in out, result
    # what follows from tests that failed is none of its own
    follows = "echo '# FAULT tests/run: exit 1'; echo '# FAULT 1 tests failed'"
    [result], out = run(part(f"{follows}; {FAILS}"))
    assert "once more" in out, out


def t_each_program_of_a_share_is_there():
    known = set(check.listed(check.SUITES, ()))
    for shares in (check.WIRE_SHARES, check.SOCK_SHARES, check.ASAN_SHARES, check.TSAN_SHARES):
        unknown = set(" ".join(shares).split()) - known
        assert not unknown, unknown
    assert set(check.TSAN_LONG) <= known and set(check.NOT_QUICK) <= known


def shares(rows, parts, turn):
    """{kernel: its share} in a turn."""
    was = daemon.WHERE, daemon.TURN
    try:
        ret = {}
        for daemon.WHERE in daemon.KERNELS:
            daemon.TURN = turn
            ret[daemon.WHERE] = list(daemon.share(rows, parts))
        return ret
    finally:
        daemon.WHERE, daemon.TURN = was


def t_test_kernels_share_rows_and_have_all_by_turns():
    rows = list(range(100))
    for parts in (2, 3, 9):
        seen = {kernel: set() for kernel in daemon.KERNELS}
        for turn in range(1260, 1260 + parts):
            got = shares(rows, parts, str(turn))
            together = sorted(row for share in got.values() for row in share)
            assert parts < 3 or len(together) == len(set(together)), (parts, turn, together)
            assert len(set(together)) >= 100 * min(3, parts) // parts - 3, (parts, turn, together)
            for kernel, share in got.items():
                seen[kernel].update(share)
        assert all(sorted(some) == rows for some in seen.values()), (parts, seen)
    # of three that are no test kernels together, each has all
    assert all(share == rows for share in shares(rows, 9, "").values())


def t_what_has_no_programs_runs_once():
    [result], out = run(part(FAILS, programs=()))
    assert result.sums == [2, 1, 0] and "once more" not in out, result


def selected(test):
    """(exit code, output) of `make check TEST=...` once everything is built."""
    done = subprocess.run([PATH], env=dict(os.environ, TEST=test), check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ktap.note(done.stdout)
    return done.returncode, done.stdout


def t_a_selected_test_that_is_unknown_fails():
    built = os.path.exists(os.path.join(ktap.BUILD, "tests/unit/test_header"))
    for program in "unit/t_check.py", *["unit/test_header"] * built:
        for tests in "t_nonexistent", "t_nonexistent,t_shares":
            code, out = selected(f"{program}:{tests}")
            assert code == 1 and "once more" not in out, out
            last = "\n".join(out.splitlines()[-4:])
            assert re.search(rf"# FAILED {program}: .*no such test: .*t_nonexistent", last), out


def t_the_last_lines_name_a_program_that_is_unknown():
    for test in "net/nowhere/t_x.py", "t_split.py", "net/wire/t_split.py:t_idle unit/nothing":
        code, out = selected(test)
        last = "\n".join(out.splitlines()[-2:])
        assert code == 1 and f"# FAILED {test.split()[-1]}: " in last, out


if __name__ == "__main__":
    ktap.run(globals())
