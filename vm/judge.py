# SPDX-License-Identifier: GPL-2.0
"""Decide whether one boot of a test kernel passed.

Called by vm/run with the folder that holds what the guest sent: console, ktap,
dmesg and verdict. A boot passes only if the verdict is complete and agrees
with the other files, tests/run succeeded, its rows are all there, and neither
kernel log holds a splat that vm/expect does not name with a reason.
It must never take absence for success.
"""
import os
import re

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
# QEMU's emulation, not the kernel: a breakpoint of the kernel's own text patching
# that one virtual CPU still meets after another has taken it out, and a single-step
# trap in kernel text, where nothing asked for one.
EMULATOR = re.compile(r"\bOops: int3\b|\bWARNING: .*\bexc_debug_kernel\+")
VERDICT = re.compile(r"ready ([\d.]+)\nexit (\d+)\nktap (\d+)\ndmesg (\d+)\nend\n")
TOTALS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
SPLATS_SHOWN = 20


class Boot:
    """What one boot showed. faults is empty exactly if it passed.

    stillborn: it ended before the first test, or no test failed but the emulator
    showed its own fault; it says nothing about what is tested.
    """

    def __init__(self):
        self.faults, self.ktap, self.notes = [], [], []
        self.passed = self.failed = self.skipped = 0
        self.ready_s = None
        self.stillborn = False


def expected_splats(kernel):
    """Patterns of vm/expect for this kernel."""
    ret = []
    with open(os.path.join(HERE, "expect"), encoding="utf-8") as f:
        for nr, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            m = re.match(r"(\S+)\s+(.+) -- \S.*$", line)
            if not m:
                raise ValueError(f"vm/expect:{nr}: want `kernel|any regexp -- reason`")
            if m.group(1) in (kernel, "any"):
                ret.append(re.compile(m.group(2).strip()))
    return ret


def read(folder, name):
    try:
        with open(os.path.join(folder, name), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""


def text(data):
    return data.decode(errors="replace").replace("\r\n", "\n")


def messages(dmesg):
    """The text of each /dev/kmsg record that the kernel itself wrote."""
    ret = []
    for line in dmesg.splitlines():
        head, _, message = line.partition(";")
        if re.match(r"\d+,\d+,\d+,", head):
            if int(head.split(",")[0]) >> 3 == 0:       # facility 0: not user space
                ret.append(message)
        elif not line.startswith(" "):
            ret.append(line)
    return ret


def unexpected(lines, tolerated):
    """The lines, without a report ("cut here" to "end trace") of what is tolerated."""
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


def splats(kernel, console, dmesg):
    tolerated = expected_splats(kernel)
    # On the console, kernel lines carry a timestamp; the rest is the tests talking.
    lines = [re.sub(r"^\[ *[\d.]+\] ", "", line) for line in console.splitlines()
             if re.match(r"\[ *\d+\.\d+\]|vm-init: ", line)]
    found = {}
    for line in unexpected(messages(dmesg), tolerated) + unexpected(lines, tolerated):
        if SPLAT.search(line):
            found.setdefault(line, None)
    return list(found)


def judge_verdict(boot, verdict, ktap, dmesg):
    m = VERDICT.fullmatch(verdict)
    if not m:
        step = "before the tests began" if not verdict else \
               "before the tests ended" if "exit" not in verdict else "while reporting"
        boot.faults.append(f"no verdict: the guest ended {step}")
        m = re.match(r"ready (\d+\.\d+)\n", verdict)
        boot.ready_s = float(m.group(1)) if m else None
        boot.stillborn = not verdict
        return
    boot.ready_s = float(m.group(1))
    code, ktap_len, dmesg_len = (int(word) for word in m.groups()[1:])
    if ktap_len != len(ktap):
        boot.faults.append(f"results: {ktap_len} bytes sent, {len(ktap)} received")
    if dmesg_len != len(dmesg) or not dmesg:
        boot.faults.append(f"kernel log: {dmesg_len} bytes sent, {len(dmesg)} received")
    if code:
        boot.faults.append(f"tests/run: exit {code}")


def judge_results(boot, suites):
    """The rows of tests/run: each suite asked for is there, and the sum is at the end."""
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


def judge(kernel, folder, suites, ended):
    """The Boot of kernel. ended: None, or why QEMU did not end by itself."""
    boot = Boot()
    ktap, dmesg = read(folder, "ktap"), read(folder, "dmesg")
    boot.ktap = text(ktap).splitlines()
    if ended:
        boot.faults.append(ended)
    judge_verdict(boot, text(read(folder, "verdict")), ktap, dmesg)
    judge_results(boot, suites)
    found = splats(kernel, text(read(folder, "console")), text(dmesg))
    if found:
        boot.faults.append(f"kernel log: {len(found)} lines that are splats")
        boot.notes += [f"splat: {line}" for line in found[:SPLATS_SHOWN]]
        boot.stillborn |= not boot.failed and any(EMULATOR.search(line) for line in found)
    return boot
