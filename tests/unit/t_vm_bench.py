#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The verdicts of vm/bench about counts and budgets. No kernel is booted."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, os.pardir, "lib"), os.path.join(REPO, "vm")]
import bench_guest              # noqa: E402
import fakeboot                 # noqa: E402
import ktap                     # noqa: E402


def load():
    loader = importlib.machinery.SourceFileLoader("vm_bench", os.path.join(REPO, "vm", "bench"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_bench", loader))
    loader.exec_module(module)
    return module


bench = load()
PACKAGE = "linux-image-6.1.0-1-amd64 6.1.1-1, cc 1 clang 1"
STEADY = [1000, 1001, 999, 1000, 1002, 1000, 998, 1000]


def judged(batches, allowed=1000, package=PACKAGE, row="wire-1k"):
    budget = {("6.1", row): (allowed, package)} if allowed else {}
    return bench.verdict("6.1", PACKAGE, row, batches, budget)


def t_two_percent_more_is_a_failure():
    assert judged(STEADY)[0]
    ok, words = judged([round(x * 1.02) for x in STEADY])
    assert not ok and "exceeds" in words and "+2.00%" in words, words
    assert not judged([x * 1.005 for x in STEADY])[0], "2 % of a fifth, which is the server's"
    assert judged([x * 1.001 for x in STEADY])[0] and judged([x * 0.999 for x in STEADY])[0]


def t_a_stale_budget_is_a_failure():
    for factor in (0.5, 0.98):
        ok, words = judged([x * factor for x in STEADY])
        assert not ok and "--update" in words, words


def t_a_missing_budget_is_a_failure():
    ok, words = judged(STEADY, allowed=None)
    assert not ok and "no budget" in words, words


def t_counts_that_scatter_are_no_figure():
    ok, words = judged([900, 950, 1000, 1050, 1100, 1000, 920, 1080])
    assert not ok and "not repeatable" in words, words


def t_another_kernel_package_may_cost_a_little_more_or_less():
    other = "linux-image-6.1.0-0 6.1.0-1, cc 1 clang 1"
    for factor, passes in ((0.9, True), (1.015, True), (1.025, False)):
        ok, words = judged([x * factor for x in STEADY], package=other)
        assert ok == passes and f"made on {other}" in words, words


def t_what_other_compilers_have_built_is_shown_but_not_judged():
    for other in ("linux-image-6.1.0-1-amd64 6.1.1-1, cc 1 clang 2",
                  "linux-image-6.1.0-1-amd64 6.1.1-1"):
        ok, words = judged([x * 1.5 for x in STEADY], package=other)
        assert ok is None and other in words and "1,500 instructions" in words, words
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert bench.report({"6.1": (PACKAGE, {"wire-1k": STEADY}, [], {})},
                                {("6.1", "wire-1k"): (500, other)}, ["wire-1k"]) == 0
        assert "ok 1 wire-1k # SKIP" in out.getvalue(), out.getvalue()
        assert out.getvalue().endswith("0 passed, 0 failed, 1 skipped\n"), out.getvalue()


def t_the_reference_needs_no_budget():
    assert judged(STEADY, allowed=None, row=bench.REFERENCES[0])[0]


def t_budgets_survive_being_written_and_read():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "6.1")
        with open(path, "w", encoding="utf-8") as f:
            f.write("# head\nwire-1k 10 p 1\n")
        budget = bench.read_budget(folder)
        assert budget == {("6.1", "wire-1k"): (10, "p 1")}, budget
        boots = {"6.1": (PACKAGE, {"wire-1k": STEADY, "user-1k": [1, 900] * 9, "nginx-1k": STEADY},
                         [], {}),
                 "6.12": (PACKAGE, {"wire-1k": STEADY}, ["kernel log: BUG"], {}),
                 "newest": (PACKAGE, {"wire-1k": STEADY}, [], {})}
        budget = bench.updated(budget, boots)
        assert budget == {("6.1", "wire-1k"): (1000, PACKAGE),
                          ("newest", "wire-1k"): (1000, PACKAGE)}, budget
        bench.write_budget(budget, folder)
        assert sorted(os.listdir(folder)) == ["6.1", "newest"]
        assert bench.read_budget(folder) == budget
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        assert lines[0].startswith("# Instructions") and len(lines) == 6, lines
        with open(path, "a", encoding="utf-8") as f:
            f.write("wire many\n")
        try:
            bench.read_budget(folder)
        except ValueError as e:
            assert "budget/6.1:7" in str(e), e
        else:
            raise AssertionError("a line that is no budget was read")


def guest(folder, out, verdict=None, dmesg="6,1,10,-;Linux\n"):
    verdict = verdict or f"ready 1.0\nexit 0\nktap {len(out)}\ndmesg {len(dmesg)}\nend\n"
    for name, text in (("ktap", out), ("dmesg", dmesg), ("console", ""), ("verdict", verdict),
                       ("facts", fakeboot.facts())):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    return bench.results(fakeboot.asked(folder), folder, None)


def t_what_a_guest_did_not_send_is_a_problem():
    whole = json.dumps({"rows": {row: STEADY for row in bench.ROWS}, "problems": {}}) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        assert guest(folder, whole)[1] == []
        assert guest(folder, whole, verdict="ready 1.0\n")[1], "no verdict"
        assert guest(folder, whole[:-9] + "\n")[1], "half a result"
        assert any("BUG" in p for p in guest(folder, whole, dmesg="4,1,1,-;BUG: bad\n")[1])
        part = json.dumps({"rows": {"wire-1k": STEADY}, "problems": {"user-1k": "it ended"}}) + "\n"
        rows, problems, absent = guest(folder, part)
        assert "user-1k: it ended" in problems and "nginx-1k: no figure" in problems, problems
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = bench.report({"6.1": (PACKAGE, rows, problems, absent)},
                                {("6.1", "wire-1k"): (1000, PACKAGE)})
        assert code == 1 and " user-1k\n" in out.getvalue(), out.getvalue()


def t_rows_may_be_chosen_and_no_other_is_missed():
    whole = json.dumps({"rows": {"wire-1k": STEADY}, "problems": {}}) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        guest(folder, whole)
        rows, problems, absent = bench.results(fakeboot.asked(folder), folder, None, ["wire-1k"])
        assert not problems
        assert "user-1k: no figure" in bench.results(fakeboot.asked(folder), folder, None,
                                                     ["wire-1k", "user-1k"])[1]
    for wanted, code in ((["wire-1k"], 0), (["wire-1k", "user-1k"], 1)):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert bench.report({"6.1": (PACKAGE, rows, problems, absent)},
                                {("6.1", "wire-1k"): (1000, PACKAGE)}, wanted) == code, \
                   out.getvalue()
        assert f"  1..{len(wanted)}\n" in out.getvalue()
    before = sys.argv
    try:
        sys.argv = ["vm/bench", "--rows", "wire-1k user-1k"]
        assert bench.options().rows == ["wire-1k", "user-1k"]
        with tempfile.TemporaryDirectory() as folder:
            conf = bench.guest_conf(fakeboot.asked(folder), bench.options())
        assert conf[-3:] == [("arg", os.path.join(REPO, "vm/bench_guest.py")), ("arg", "wire-1k"),
                             ("arg", "user-1k")]
        sys.argv = ["vm/bench", "--rows", "wire-1k,wired"]
        with contextlib.redirect_stderr(io.StringIO()) as err:
            bench.options()
    except SystemExit as e:
        assert e.code == 2 and "not wired" in err.getvalue()
    else:
        raise AssertionError("an unknown row was taken")
    finally:
        sys.argv = before


def t_rows_that_a_kernel_cannot_have_are_skipped_unless_it_had_them():
    gone = [row for row in bench.ROWS if row.startswith("sock")]
    counted = {row: STEADY for row in bench.ROWS if row not in gone}
    sent = {"rows": counted, "problems": {}, "absent": {row: "kernel is 6.1.1" for row in gone}}
    budget = {("6.1", row): (1000, PACKAGE) for row in counted}
    with tempfile.TemporaryDirectory() as folder:
        boot = (PACKAGE, *guest(folder, json.dumps(sent) + "\n"))
    for more, code, last in (({}, 0, f"{len(counted)} passed, 0 failed, 2 skipped"),
                             ({("6.1", gone[0]): (1000, PACKAGE)}, 1,
                              f"{len(counted)} passed, 1 failed, 1 skipped")):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert bench.report({"6.1": boot}, {**budget, **more}) == code
        assert out.getvalue().splitlines()[-1] == last, out.getvalue()
        assert "sock-8k # SKIP kernel is 6.1.1" in out.getvalue(), out.getvalue()


def t_what_closed_connections_leave_is_in_no_other_row_of_wire():
    rows = ("wire-1k", "wire-1k-10", "wire-1k-1", "mixed", "user-1k", "user-1k-1")
    assert bench_guest.servers_of({name: bench.ROWS[name] for name in rows}) == [
        ("wire", ["wire-1k", "wire-1k-10", "mixed"]), ("wire", ["wire-1k-1"]),
        ("user", ["user-1k", "user-1k-1"])]


def t_each_kernel_has_its_budget():
    """Except for rows that scatter there."""
    budget = bench.read_budget()
    for kernel in bench.fetch.default_names():
        missing = [row for row in bench.ROWS if row not in bench.REFERENCES and
                   (kernel, row) not in budget]
        assert all((kernel, row) in bench.SCATTER for row in missing), (kernel, missing)


def t_the_machine_is_that_of_vm_run():
    """Whatever options that takes."""
    before, sys.argv = sys.argv, ["vm/bench"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            argv = bench.Counting(fakeboot.asked(folder), folder, [], bench.options()).argv()
    finally:
        sys.argv = before
    assert "-icount" in argv and argv[argv.index("-smp") + 1] == "1", argv
    assert "tsc_early_khz" not in " ".join(argv), "its counter counts instructions"


def t_cached_against_fall_through_is_one_table():
    counted = {"rows": {"wire-1k": STEADY, "fall-through": [x * 2 for x in STEADY],
                        "nginx-1k": STEADY,
                        "floor": [900] * 8},
               "counts": {"wire-1k": {"hits": {"wire": 2550}, "passes": {}},
                          "fall-through": {"hits": {"user": 2550},
                                           "passes": {"escaped": 2550, "split": 3}}},
               "problems": {}}
    rows = ["wire-1k", "fall-through", "nginx-1k", "user-1k"]
    got = bench.table.lines(rows, bench.with_counts(counted), {"wire-1k": 800}, "last commit")
    assert [line.split()[0] for line in got] == ["row", *rows], got
    assert got[1].split() == ["wire-1k", "1,000", "100", "800", "+25.00%", "2,550", "wire", "-"], \
           got
    assert got[2].endswith("2,550 user  2,550 escaped, 3 split"), got
    assert got[4].split() == ["user-1k", "-", "-", "-", "-", "-", "-"], got
    other = {**counted, "rows": {"wire-1k": [500] * 8},
             "counts": {"wire-1k": {"hits": {}, "passes": {"full": 9}}}}
    got = bench.table.lines(rows, bench.with_counts(counted), bench.with_counts(other), "abc")
    assert "passes, abc" in got[0] and got[1].endswith("9 full") and "+100.00%" in got[1], got


def t_a_row_fails_only_if_a_second_boot_shows_the_same():
    opts = argparse.Namespace(update=False, against=None)
    asked = argparse.Namespace(name="6.1")
    high, low = [x * 1.005 for x in STEADY], [x * 0.995 for x in STEADY]

    def boots(*series, problems=((), ())):
        """(batches that are judged, boots) for a row with these batches in boot after boot."""
        ret = [({"wire-1k": batches, "wire-304": STEADY}, list(why), {}, [])
               for batches, why in zip(series, problems)]
        with mock.patch.object(bench, "boot", side_effect=ret) as boot, \
                mock.patch.object(bench, "made", return_value=PACKAGE), \
                mock.patch.object(bench, "notify"):
            rows, faults = bench.judged_twice(asked, opts, budget)[:2]
        assert rows["wire-304"] is STEADY
        return rows["wire-1k"], boot.call_count, faults

    budget = {("6.1", row): (1000, PACKAGE) for row in ("wire-1k", "wire-304")}
    assert boots(STEADY, high) == (STEADY, 1, [])
    assert boots(high, STEADY) == (STEADY, 2, []) == boots(low, STEADY)
    assert boots(high, high) == (high, 2, [])
    assert boots(low, high) == (low, 2, [])
    assert boots(high, STEADY, problems=((), ["splat"])) == (STEADY, 2, ["splat"])
    assert boots(high, STEADY, problems=(["splat"], ())) == (high, 1, ["splat"])
    opts.update = True
    assert boots(high, STEADY) == (high, 1, [])


def t_beside_another_revision_no_budget_is_judged():
    assert bench.verdict("6.1", PACKAGE, "wire-1k", STEADY, None)[0]
    assert not bench.verdict("6.1", PACKAGE, "wire-1k", [900, 1000, 1100, 1000] * 3, None)[0], \
           "scatters"


def said_of(rev, build):
    """The message about a revision that cannot be counted."""
    try:
        bench.table.build_revision(rev, build, lambda _: None)
    except bench.table.RevisionError as why:
        return str(why)
    raise AssertionError(f"{rev!r} was built")


def t_a_revision_that_is_not_there_is_named():
    for rev in ("no-such-revision", "--help", "HEAD:vm"):
        why = said_of(rev, "/nowhere")
        assert why.startswith(f"{rev}: no commit of this repository"), why
    assert said_of("", "/nowhere").startswith("an empty word: no commit")


def t_a_revision_that_does_not_build_is_named_with_its_log():
    """It is built each time until it succeeds, and only once from then on."""
    with tempfile.TemporaryDirectory() as d:
        def git(*words):
            subprocess.run(["git", "-C", f"{d}/repo", "-c", "user.name=a", "-c", "user.email=a@b",
                            *words], check=True, stdout=subprocess.DEVNULL)

        def commit(line):
            with open(f"{d}/repo/Makefile", "w", encoding="ascii") as f:
                f.write(f"all:\n\techo one >>$(O)-builds\n\t{line}\n")
            git("add", "Makefile")
            git("commit", "-q", "-m", line)

        os.mkdir(f"{d}/repo")
        git("init", "-q")
        with mock.patch.object(bench.table.kernel, "REPO", f"{d}/repo"):
            commit("false")
            for _ in range(2):
                why = said_of("HEAD", d)
                assert why.startswith("HEAD (") and "does not build" in why, why
                with open(re.search(r"see (\S+\.log)", why)[1], encoding="ascii") as f:
                    assert "echo one" in f.read()
            commit("mkdir -p $(O)")
            built = [bench.table.build_revision("HEAD", d, lambda _: None) for _ in range(2)]
        assert built[0] == built[1], built
        with open(f"{built[0][1]}-builds", encoding="ascii") as f:
            assert f.read() == "one\n"


def t_another_revision_is_counted_in_the_same_boot():
    opts = argparse.Namespace(build="/b", rows=["wire-1k"],
                              against=("abc", "/b/guest/against/abc/build"))
    with tempfile.TemporaryDirectory() as folder:
        conf = bench.guest_conf(fakeboot.asked(folder), opts)
    words = [value for key, value in conf if key == "arg"]
    assert words[:2] == ["/bin/sh", "-c"] and words[2].count("bench_guest.py wire-1k") == 2, words
    assert "O=/b/guest/against/abc/build" in words[2].split("&&")[1], words


if __name__ == "__main__":
    ktap.run(globals())
