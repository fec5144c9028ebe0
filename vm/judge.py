# SPDX-License-Identifier: GPL-2.0
"""Decide whether one boot of a test kernel passed.

Called by vm/run with the folder of the guest's output: console, ktap, dmesg, verdict,
facts and config. A boot passes only if the requested kernel has booted, the verdict is
complete and agrees with the other files, tests/run succeeded and has all its rows, and
neither kernel log has a splat that vm/expect does not name with a reason. It reports the
programs that ran at a splat, a panic or a hang, and shows the stack.
It must never take absence for success.
"""
from __future__ import annotations

import os
import re
from typing import Any

import guest
import kernel

HERE = os.path.dirname(os.path.abspath(__file__))
SPLAT = re.compile(
    r"\bBUG:|\bWARNING:|\bOops\b|\bRIP: 0010|KASAN|KCSAN|KFENCE|UBSAN|unable to handle|"
    r"general protection|stack-protector|Kernel panic|Call Trace:|cut here|"
    r"rcu.*(self-detected|detected) stall|rcu.*stalls on|blocked for more than \d+ seconds|"
    r"(soft|hard) lockup|lockup detected|refcount_t:|list_(add|del) corruption|"
    r"divide error|stack segment|invalid opcode|double fault|bad page|Bad page|"
    r"page allocation failure|Out of memory|kernel log records lost|kmemleak: \d+ new|"
    r"scheduling while atomic|sleeping function called|possible circular locking|"
    r"vm-init: |unregister_netdevice: waiting|nf_conntrack: table full|memory leak")
# Faults of QEMU's emulation, not of the kernel: a breakpoint of the kernel's text patching
# that one virtual CPU still meets after another has removed it, and a single-step trap in
# kernel text that nothing requested.
EMULATOR = re.compile(r"\bOops: int3\b|\bWARNING: .*\bexc_debug_kernel\+")
VERDICT = re.compile(r"ready ([\d.]+)\nexit (\d+)\nktap (\d+)\ndmesg (\d+)\nend\n")
TOTALS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
SPLATS_SHOWN = 20
STACK_LINES_MAX = 80
STAMP = re.compile(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ")
MARK = re.compile(r"kselftest: (running|ended) (\S+)$")      # of tests/run
STACK_BEGINS = re.compile(r"\bBUG:|\bWARNING:|\bOops\b|Kernel panic|cut here|(?i:lockup)|"
                          r"general protection|unable to handle|detected stall|stalls on|"
                          r"blocked for more than|circular locking|sysrq: Show")
STACK_ENDS = re.compile(r"\[ end trace |end Kernel panic")


class Boot:
    """The result of one boot. faults is empty if and only if it passed.

    stillborn: it ended before the first test, or no test failed but the emulator had a
    fault of its own; the boot shows nothing about the tests. mute: it never answered.
    """

    def __init__(self) -> None:
        self.faults, self.ktap, self.notes, self.stack = [], [], [], []
        self.cut_short = []             # programs that ran when the guest ended
        self.passed = self.failed = self.skipped = 0
        self.ready_s = None             # None: it did not boot, or another kernel did
        self.stillborn = self.mute = False
        self.code = None                # of the command


def expected_splats(name: str) -> list[re.Pattern[str]]:
    """Patterns of vm/expect for the kernel called name; those of 6.1 also apply to 6.1-rt."""
    ret = []
    with open(os.path.join(HERE, "expect"), encoding="utf-8") as f:
        for nr, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            m = re.match(r"(\S+)\s+(.+) -- \S.*$", line)
            if not m:
                raise ValueError(f"vm/expect:{nr}: want `kernel|any regexp -- reason`")
            if m.group(1) in (name, name.split("-")[0], "any"):
                ret.append(re.compile(m.group(2).strip()))
    return ret


def read(folder: str, name: str) -> bytes:
    try:
        with open(os.path.join(folder, name), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""


def text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n")


def records(dmesg: str) -> list[tuple[bool, str]]:
    """[(whether the kernel itself wrote it, text)] of /dev/kmsg records."""
    ret = []
    for line in dmesg.splitlines():
        head, _, message = line.partition(";")
        if re.match(r"\d+,\d+,\d+,", head):
            ret.append((int(head.split(",")[0]) >> 3 == 0, message))
        elif not line.startswith(" "):
            ret.append((True, line))
    return ret


def messages(dmesg: str) -> list:
    """The text of each /dev/kmsg record that the kernel itself wrote."""
    return [message for of_kernel, message in records(dmesg) if of_kernel]


def running(lines: list[str]) -> list[tuple[str, list]]:
    """Each line with the programs that ran when it was written: [(line, [suite/test])]."""
    ret, now = [], {}
    for line in lines:
        m = MARK.search(line)
        if m and m.group(1) == "running":
            now[m.group(2)] = None
        elif m:
            now.pop(m.group(2), None)
        ret.append((line, list(now)))
    return ret


def culprits(found: list, console: str, dmesg: str) -> list:
    """Programs that ran when the first of the splats was written, or at the end."""
    logs = [message for _, message in records(dmesg)] or console.splitlines()
    timeline = running(logs)
    for line, programs in timeline:
        if any(splat in line for splat in found):
            return programs
    return timeline[-1][1] if timeline else []


def stack_of(console: str) -> list[str]:
    """The first report in the console's lines, and what SysRq showed of CPUs and tasks."""
    # The command line has words such as softlockup_panic.
    lines = [STAMP.sub("", line) for line in console.splitlines()
             if STAMP.match(line) and "ommand line: " not in line]
    ret, asked = [], []
    begin = next((i for i, line in enumerate(lines) if STACK_BEGINS.search(line)), None)
    for line in lines[begin:] if begin is not None else []:
        if len(ret) == STACK_LINES_MAX or "sysrq: Show" in line:
            break
        ret.append(line)
        if STACK_ENDS.search(line):
            break
    of_user = False
    for line in lines:
        if "sysrq: Show" in line:
            asked.append(line)
            of_user = "State" not in line
        elif asked:
            m = re.match(r"task:\S.* pid:(\d+) +(?:tgid:\d+ +)?ppid:(\d+)", line)
            if m and "2" not in m.groups():
                of_user = True
            elif m:
                of_user = False
            if of_user:
                asked.append(line)
    return ret + asked[:4 * STACK_LINES_MAX]


def unexpected(lines: list[str], tolerated: list) -> list:
    """The lines, without tolerated reports ("cut here" to "end trace")."""
    ret, begin = [], None
    for line in lines:
        if "[ cut here ]" in line:
            begin = len(ret)
        ret.append(line)
        if "[ end trace " in line and begin is not None:
            if any(t.search(x) for x in ret[begin:] for t in tolerated):
                del ret[begin:]
            begin = None
    return [line for line in ret if not any(t.search(line) for t in tolerated)]


def splats(name: str, console: str, dmesg: str) -> list:
    tolerated = expected_splats(name)
    # On the console, kernel lines have a timestamp; the others are output of the tests.
    lines = [STAMP.sub("", line) for line in console.splitlines()
             if STAMP.match(line) or line.startswith("vm-init: ")]
    lines = lines[:next((i for i, line in enumerate(lines) if "sysrq: Show" in line), None)]
    found = {}
    for line in unexpected(messages(dmesg), tolerated) + unexpected(lines, tolerated):
        if SPLAT.search(line):
            found.setdefault(line, None)
    return list(found)


def judge_identity(boot: Boot, asked: kernel.Kernel, folder: str) -> bool:
    """Check that the requested kernel has booted; True if the guest reported."""
    facts = guest.facts(folder)
    if not facts:
        return False
    for word, want in (("release", asked.release), ("version", asked.version)):
        if facts.get(word) != want:
            boot.faults.append(f"wrong kernel: {word} `{facts.get(word)}` has booted, "
                               f"{asked} is `{want}`")
    have = kernel.options(asked.config)
    for option, path in guest.WITNESSES.items():
        if facts.get(path) != ("present" if have.get(option) == "y" else "absent"):
            boot.faults.append(f"wrong kernel: {path} is {facts.get(path, 'not reported')}, "
                               f"{asked} has {option}={have.get(option, 'n')}")
    data = read(folder, "config")
    if data:
        got = kernel.options(kernel.embedded_config(data))
        differ = [key for key in sorted(got.keys() | have.keys()) if got.get(key) != have.get(key)]
        if differ:
            key = differ[0]
            boot.faults.append(f"wrong kernel: its configuration differs in {len(differ)} options, "
                               f"the first {key}={got.get(key, 'n')}, not {have.get(key, 'n')}")
    elif have.get("CONFIG_IKCONFIG_PROC") == "y":
        boot.faults.append("wrong kernel: no /proc/config.gz, which its configuration promises")
    return True


def judge_verdict(boot: Boot, verdict: str, ktap: bytes, dmesg: bytes, folder: str) -> None:
    m = VERDICT.fullmatch(verdict)
    if not m:
        step = "before the tests began" if not verdict else \
               "before the tests ended" if "exit" not in verdict else "while reporting"
        path = os.path.join(folder, "console")
        shows = f"the end of {path} shows how far it came" if read(folder, "console").strip() \
            else "it has printed nothing: is the image whole, and for this machine?"
        boot.faults.append(f"no verdict: the guest ended {step}; {shows}")
        m = re.match(r"ready (\d+\.\d+)\n", verdict)
        boot.ready_s = float(m.group(1)) if m else None
        boot.stillborn = not verdict
        return
    boot.ready_s = float(m.group(1))
    boot.code, ktap_len, dmesg_len = (int(word) for word in m.groups()[1:])
    if ktap_len != len(ktap):
        boot.faults.append(f"results: {ktap_len} bytes sent, {len(ktap)} received")
    if dmesg_len != len(dmesg) or not dmesg:
        boot.faults.append(f"kernel log: {dmesg_len} bytes sent, {len(dmesg)} received")


def judge_results(boot: Boot, suites: list[str]) -> None:
    """Check the rows of tests/run: each requested suite, and the totals at the end."""
    m = TOTALS.fullmatch(boot.ktap[-1]) if boot.ktap else None
    if not m:
        boot.faults.append("results: no totals at their end")
        return
    boot.passed, boot.failed, boot.skipped = (int(word or 0) for word in m.groups())
    if boot.failed:
        boot.faults.append(f"{boot.failed} tests failed")
    if not boot.passed:
        boot.faults.append("no test passed")
    for suite in sorted({s.split("/")[0] for s in suites}):
        if not any(re.match(rf"(not )?ok \d+ {suite}\b", line) for line in boot.ktap):
            boot.faults.append(f"results: no row for {suite}")
    if any(line.startswith("not ok") for line in boot.ktap) and not boot.failed:
        boot.faults.append("results: a row failed that the totals do not count")


def judge(asked: kernel.Kernel, folder: str, suites: Any, ended: Any) -> Boot:
    """The Boot of asked, a Kernel. suites: None for a command of the user.

    ended: None, or why QEMU did not end by itself.
    """
    boot = Boot()
    ktap, dmesg = read(folder, "ktap"), read(folder, "dmesg")
    console, log = text(read(folder, "console")), text(dmesg)
    boot.ktap = text(ktap).splitlines()
    if ended:
        boot.faults.append(ended)
    judge_verdict(boot, text(read(folder, "verdict")), ktap, dmesg, folder)
    if not judge_identity(boot, asked, folder) and boot.ready_s is not None:
        boot.faults.append("wrong kernel: the guest did not report which one it is")
    if any(fault.startswith("wrong kernel") for fault in boot.faults):
        boot.ready_s = None
    if suites is not None:
        if boot.code:
            boot.faults.append(f"tests/run: exit {boot.code}")
        judge_results(boot, suites)
    found = splats(asked.name, console, log)
    boot.faults[:0] = [line for line in found if "Kernel panic" in line][:1]
    if found:
        boot.faults.append(f"kernel log: {len(found)} lines that are splats")
        boot.notes += [f"splat: {line}" for line in found[:SPLATS_SHOWN]]
        boot.stillborn |= not boot.failed and any(EMULATOR.search(line) for line in found)
    if found or ended or boot.code is None:
        boot.stack = stack_of(console)
        programs = culprits(found, console, log)
        if programs:
            boot.faults.append(f"running {'at the first splat' if found else 'at the end'}: "
                               f"{', '.join(programs)}")
        if boot.code is None:
            boot.cut_short = culprits([], console, log)
    return boot
