# SPDX-License-Identifier: GPL-2.0
"""The results of a run, while it runs and at its end: KTAP, failures by name, JSON, JUnit.

Called by vm/run. A Reader follows the KTAP of tests/run in one guest, line by line;
as_json() and write_junit() cover all guests. It must never report a test as passed that
it has not seen pass.
"""
from __future__ import annotations

import json
import re
import xml.etree.ElementTree as xml
from typing import Any

import judge

ROW = re.compile(r"( *)(not ok|ok) \d+ ?(?:- )?(.*?)(?: # SKIP\b ?(.*))?$")
SUBTEST = re.compile(r"( *)# Subtest: (.*)$")
RUNNING = re.compile(r" *# running (\S+)")
TIME = re.compile(r" *# time ([\d.]+) s$")
TIME_OF_ROW = re.compile(r" +# (t_\w+) ([\d.]+) s$")  # of tests/lib/ktap.py
# As tests/run ends (tests/lib/results.py).
OF_FAILURES = re.compile(r"# (FLAKY |FAILED |    (alone|log): |and \d+ more)")
ALONE = re.compile(r"make check TEST=(\S+) KERNEL=own\b.*")
PROGRAM_INDENT, ROW_INDENT = 2, 4
NOTE = re.compile(r" {%d}(?!KTAP version|\d+\.\.\d)(?:# ?)?(.*)$" % ROW_INDENT)
# Characters that XML 1.0 does not allow.
NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Reader:
    """Rows of one guest: [{suite, program, name, verdict, reason, seconds, notes}], line by line.

    verdict: pass, fail, skip, or error: the guest ended while it ran. reason: of the last two.
    notes: what the test printed and, if it failed, the faults and the stderr of its program.
    """

    def __init__(self) -> None:
        self.rows, self.running = [], None
        self.suite = self.program = ""
        self.notes, self.faults, self.seconds, self.took = [], [], {}, {}

    def feed(self, line: Any) -> str | None:
        """Process a line; the name of the test that it reports as failed, or None."""
        if m := RUNNING.match(line):
            self.running = m.group(1)
        elif m := SUBTEST.match(line):
            if len(m.group(1)) < PROGRAM_INDENT + 2:
                self.suite = m.group(2)
            else:
                self.program, self.notes, self.faults = m.group(2), [], []
        elif m := TIME.match(line):
            self.seconds[f"{self.suite}/{self.program}"] = float(m.group(1))
        elif m := ROW.match(line):
            return self.row(len(m.group(1)), m.group(2) == "ok", m.group(3), m.group(4))
        elif m := TIME_OF_ROW.match(line):
            self.took = {m.group(1): float(m.group(2))}
        elif self.program and (m := NOTE.match(line)):
            text = m.group(1)
            (self.faults if re.match("FAULT|stderr:", text) else self.notes).append(text)
        return None

    def row(self, indent: int, ok: bool, name: str, skip: str | None) -> str | None:
        if indent not in (PROGRAM_INDENT, ROW_INDENT):
            return None
        inside = indent == ROW_INDENT
        mine = [r for r in self.rows if (r["suite"], r["program"]) == (self.suite, self.program)]
        if not inside and mine and (ok or any(r["verdict"] == "fail" for r in mine)):
            for r in mine:
                r["notes"] += self.faults if r["verdict"] == "fail" else []
            return None             # the program only repeats its rows
        notes, self.notes = self.notes, []
        took = self.took if inside else self.seconds
        self.rows.append({
            "suite": self.suite, "program": self.program, "name": name if inside else "program",
            "verdict": "fail" if not ok else "skip" if skip is not None else "pass",
            "reason": skip or "",
            "seconds": took.get(name if inside else f"{self.suite}/{self.program}"),
            "notes": notes if inside else notes + self.faults})
        if ok:
            return None
        return f"{self.suite}/{self.program}" + (f": {name}" if inside else "")


def cut_short(res: judge.Boot) -> list[dict]:
    """A row for each program that ran when the guest ended: it has no result of its own."""
    return [{"suite": name.partition("/")[0], "program": name.partition("/")[2],
             "name": "program", "verdict": "error",
             "reason": f"the guest ended while it ran: {res.faults[0]}",
             "seconds": None, "notes": res.stack} for name in res.cut_short]


def outcome(res: Any) -> str:
    """The result of one guest, in a word."""
    if not res.faults:
        return "pass"
    return "fail" if res.ready_s is not None else "not booted"


def totals(boots: Any) -> tuple[int, int, int]:
    """(passed, failed, skipped) of all; a boot that failed without a failed test counts as one."""
    return (sum(res.passed for res in boots.values()),
            sum(max(res.failed, bool(res.faults)) for res in boots.values()),
            sum(res.skipped for res in boots.values()))


def last_line(boots: dict) -> str:
    passed, failed, skipped = totals(boots)
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def failures(boots: dict, suites: list[str], own: str = "") -> list:
    """The flakes and failures in the last lines of each tests/run, or the boot's own faults.

    own: the command that calls vm/run for a kernel that is not in vm/kernels.
    """
    ret = []
    for name, res in boots.items():
        lines = [line for line in res.ktap if OF_FAILURES.match(line)]
        if own:
            lines = [ALONE.sub(lambda m: f"{own} {m[1]}", line) for line in lines]
        if res.faults and not any(line.startswith("# FAILED ") for line in lines):
            words = " ".join(suites)
            how = f"{own} {words}" if own else f'make check-vm KERNELS={name} SUITES="{words}"'
            lines += [f"# FAILED kernel {name}: {'; '.join(res.faults)}",
                      f"#     alone: {how}",
                      f"#     log:   {res.folder}"]
        ret += lines
    return ret


def stream(name: str, line: bytes) -> str:
    """A line of a guest's KTAP, nested into ours."""
    return f"  # {line}" if judge.TOTALS.fullmatch(line) else f"  {line}"


def ktap_end(nr: int, name: str, res: judge.Boot) -> list[str]:
    """The lines after a guest's own KTAP."""
    ret = [f"# FAULT {line}" for line in res.faults] + [f"# note {line}" for line in res.notes]
    ret += [f"# stack {line}" for line in res.stack]
    if res.ready_s is not None:
        ret.append(f"# {name}: ready after {res.ready_s:.1f} s, {res.seconds:.1f} s in all")
    return ret + [f"# {name}: logs in {res.folder}",
                  f"{'not ok' if res.faults else 'ok'} {nr} {name}"]


def as_json(boots: dict, seconds: float, error: str = "") -> str:
    """error: why nothing has been booted."""
    passed, failed, skipped = totals(boots) if not error else (0, 1, 0)
    return json.dumps({
        "passed": passed, "failed": failed, "skipped": skipped, "seconds": round(seconds, 1),
        **({"error": error} if error else {}),
        "kernels": [{
            "name": name, "kernel": str(res.asked), "release": res.asked.release,
            "version": res.asked.version, "arch": res.asked.arch, "verdict": outcome(res),
            "passed": res.passed, "failed": res.failed, "skipped": res.skipped,
            "ready_s": res.ready_s, "seconds": round(res.seconds, 1), "faults": res.faults,
            "notes": res.notes, "stack": res.stack, "logs": res.folder, "tests": res.rows,
            "times": res.times} for name, res in boots.items()]}, indent=1)


def case_of(suite: xml.Element, kind: str, name: str, **more: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=f"{suite.get('name')}.{kind}",
                          name=NO_XML.sub("?", name), **more)


def fail(case: xml.Element, lines: list[str], kind: str = "failure") -> None:
    fault = xml.SubElement(case, kind, message=NO_XML.sub("?", lines[0]))
    fault.text = NO_XML.sub("?", "\n".join(lines))


def add_suite(root: xml.Element, name: str, res: judge.Boot, command: str | None) -> None:
    """The testsuite of one kernel: the boot, the command or each row."""
    suite = xml.SubElement(root, "testsuite", name=name, hostname=res.asked.release,
                           time=f"{res.seconds:.1f}")
    boot = case_of(suite, "boot", str(res.asked), time=f"{res.ready_s or 0:.1f}")
    # What follows from a failed row is no fault of the boot.
    shown = any(row["verdict"] == "fail" for row in res.rows)
    own = [line for line in res.faults
           if not (shown and re.fullmatch(r"\d+ tests failed|tests/run: exit 1", line))]
    if own:
        fail(boot, own + res.notes + res.stack)
    if command is not None:
        case = case_of(suite, "exec", command)
        if res.code != 0:
            fail(case, ["it did not end" if res.code is None else f"exit {res.code}"])
    for row in res.rows:
        case = case_of(suite, f"{row['suite']}.{row['program']}", row["name"],
                       **({} if row["seconds"] is None else {"time": f"{row['seconds']:.3f}"}))
        if row["verdict"] == "skip":
            xml.SubElement(case, "skipped", message=NO_XML.sub("?", row["reason"]))
        elif row["verdict"] == "fail":
            fail(case, [row["name"], *row["notes"]])
        elif row["verdict"] == "error":
            fail(case, [row["reason"], *row["notes"]], "error")
        if row["notes"] and row["verdict"] in ("pass", "skip"):
            xml.SubElement(case, "system-out").text = NO_XML.sub("?", "\n".join(row["notes"]))
    xml.SubElement(suite, "system-out").text = f"logs in {res.folder}"


def write_junit(path: str, boots: dict, seconds: float, command: str | None = None,
                error: str = "") -> None:
    """One testsuite a kernel; a program is a class, a row a case, and the boot one more.

    What a test printed is in its case, and where the guest's logs are in its testsuite.

    command: of the user, in place of rows. error: why nothing has been booted.
    """
    root = xml.Element("testsuites", name="toboggan", time=f"{seconds:.1f}")
    for name, res in boots.items():
        add_suite(root, name, res, command)
    if error:
        fail(case_of(xml.SubElement(root, "testsuite", name="vm"), "run", "vm/run"), [error])
    for part in [*root, root]:
        cases = list(part.iter("testcase"))
        part.set("tests", str(len(cases)))
        for word, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            part.set(word, str(sum(case.find(kind) is not None for case in cases)))
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
