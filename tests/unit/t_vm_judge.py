#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The verdicts of vm/judge.py about broken boots, and the comparison of versions.

Each test writes the files a guest would have sent and asks for the faults.
No kernel is booted.
"""
import argparse
import contextlib
import gzip
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, os.pardir, "lib"), os.path.join(REPO, "vm")]
import fakeboot                 # noqa: E402
import guest                    # noqa: E402
import judge                    # noqa: E402
import kernel                   # noqa: E402
import ktap                     # noqa: E402
import results                  # noqa: E402

KTAP = "KTAP version 1\n1..2\nok 1 bpf\nok 2 net\n5 passed, 0 failed\n"
DMESG = "6,1,10,-;Linux version\n12,2,20,-;BUG: said by user space\n"


def vm_run():
    loader = importlib.machinery.SourceFileLoader("vm_run", os.path.join(REPO, "vm", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_run", loader))
    loader.exec_module(module)
    return module


def judged(ktap_text=KTAP, dmesg=DMESG, console="", code=0, verdict=None, ended=None, **sent):
    if verdict is None:
        verdict = f"ready 4.2\nexit {code}\nktap {len(ktap_text)}\ndmesg {len(dmesg)}\nend\n"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("ktap", ktap_text), ("dmesg", dmesg), ("console", console),
                           ("verdict", verdict), ("facts", sent.get("facts", fakeboot.facts()))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        if "config" in sent:
            with open(os.path.join(folder, "config"), "wb") as f:
                f.write(sent["config"])
        asked = fakeboot.asked(folder, **sent.get("asked", {}))
        return judge.judge(asked, folder, sent.get("suites", ["bpf", "net/t_x.py"]), ended)


def faults(**sent):
    return judged(**sent).faults


def t_flakes_and_failures_of_a_guest_are_in_the_last_lines():
    flaky = "# FLAKY net/t_x.py:t_y\n#     log:   /of/guest\n"
    ends = {"a": judged(ktap_text=KTAP.replace("5 passed", flaky + "5 passed")),
            "b": judged(ktap_text=KTAP.replace("5 passed", flaky + "5 passed"),
                        dmesg=DMESG + "4,3,30,-;BUG: sleeping\n")}
    for res in ends.values():
        res.folder = "/of/boot"
    *of_a, of_b, of_b_log, failed, alone, log = results.failures(ends, ["net/t_x.py"])
    assert of_a == [of_b, of_b_log] == flaky.splitlines(), of_a
    assert failed.startswith("# FAILED kernel b: ") and "splats" in failed, failed
    assert alone == '#     alone: make check-vm KERNELS=b SUITES="net/t_x.py"', alone
    assert log == "#     log:   /of/boot", log


def t_good_boot_passes():
    assert faults() == [], faults()


def t_each_part_missing_fails():
    assert faults(ktap_text="")
    assert faults(dmesg="")
    assert faults(verdict="")
    assert faults(verdict="ready 4.2\n")
    assert faults(facts="")
    assert faults(facts=fakeboot.facts()[:-1])
    with tempfile.TemporaryDirectory() as folder:
        assert judge.judge(fakeboot.asked(folder), folder, ["bpf"], None).faults


def t_another_kernel_than_asked_for_fails():
    assert any("wrong kernel: release `6.12.1`" in f
               for f in faults(facts=fakeboot.facts(release="6.12.1")))
    rt = fakeboot.VERSION.replace("PREEMPT_DYNAMIC", "PREEMPT_RT")
    res = judged(asked={"package": "linux-image-6.1.0-56-rt-amd64 6.1.192-2", "version": rt})
    assert any("wrong kernel: version" in f for f in res.faults) and res.ready_s is None, res.faults
    for sent in ({"btf": "absent"}, {"lockdep": "present"}):
        assert any("wrong kernel" in f for f in faults(facts=fakeboot.facts(**sent))), sent


def t_another_configuration_than_asked_for_fails():
    text = fakeboot.CONFIG + "CONFIG_IKCONFIG_PROC=y\n"
    for data, good in ((gzip.compress(text.encode()), True), (b"", False),
                       (gzip.compress(text.replace("BTF=y", "BTF=m").encode()), False),
                       (gzip.compress((text + "CONFIG_KASAN=y\n").encode()), False)):
        got = faults(config=data, asked={"config": text})
        assert good == (not got) and (good or "wrong kernel" in got[0]), got


PANIC = """[    0.0] Command line: console=ttyS0 softlockup_panic=1
[    8.1] kselftest: running bpf/wire
[    9.1] kselftest: ended bpf/wire
[    9.2] kselftest: running net/wire/t_close.py
[   10.0] BUG: kernel NULL pointer dereference, address: 0000000000000000
[   10.1] RIP: 0010:tcp_close+0x1/0x2
[   10.2] Call Trace:
[   10.3]  inet_release+0x1/0x2
[   10.4] ---[ end trace 0000000000000000 ]---
[   10.5] Kernel panic - not syncing: Fatal exception
"""


def t_a_panic_names_the_test_and_shows_the_stack():
    res = judged(console=PANIC, dmesg="", verdict="ready 4.2\n", ktap_text="")
    assert "running at the first splat: net/wire/t_close.py" in res.faults, res.faults
    assert "inet_release" in res.stack[3] and "end trace" in res.stack[-1], res.stack
    assert res.faults[0] == "Kernel panic - not syncing: Fatal exception", res.faults
    assert res.cut_short == ["net/wire/t_close.py"], res.cut_short


def t_a_splat_that_is_no_end_names_the_test_too():
    dmesg = "12,1,10,-;kselftest: running net/t_a.py\n12,2,10,-;kselftest: running net/t_b.py\n" \
            "12,3,10,-;kselftest: ended net/t_a.py\n4,4,10,-;WARNING: CPU: 0 at net/x.c:1 x+0x1\n" \
            "12,5,10,-;kselftest: ended net/t_b.py\n"
    res = judged(dmesg=dmesg)
    assert "running at the first splat: net/t_b.py" in res.faults and not res.cut_short


HANG = PANIC[:PANIC.index("[   10.0]")] + """[   90.0] sysrq: Show backtrace of all active CPUs
[   90.1] NMI backtrace for cpu 0
[   90.2]  sock_map_close+0x1/0x2
[   91.0] sysrq: Show State
[   91.1] task:kthreadd        state:S stack:0     pid:2     ppid:0      flags:0x00004000
[   91.2]  kthreadd+0x1/0x2
[   91.3] task:toboggand       state:D stack:0     pid:300   ppid:9      flags:0x00004000
[   91.4]  lock_sock_nested+0x1/0x2
"""


def t_a_hang_names_the_test_and_shows_cpus_and_programs():
    res = judged(console=HANG, dmesg="", verdict="ready 4.2\n", ktap_text="", ended="hang: x")
    assert res.faults[0] == "hang: x" and "running at the end: net/wire/t_close.py" in res.faults
    text = "\n".join(res.stack)
    assert "sock_map_close" in text and "lock_sock_nested" in text, text
    assert "kthreadd+" not in text, text
    assert not any("splat" in f for f in res.faults), "what was asked for is no splat"


def t_a_command_of_the_users_own_has_its_code_and_is_held_against_the_log():
    assert judged(code=3, suites=None).code == 3 and not faults(code=3, suites=None)
    assert faults(suites=None, dmesg=DMESG + "4,1,30,-;BUG: x\n")
    assert faults(suites=None, verdict="ready 4.2\n")


def t_truncated_anywhere_fails():
    whole = f"ready 4.2\nexit 0\nktap {len(KTAP)}\ndmesg {len(DMESG)}\nend\n"
    for size in range(len(whole)):
        assert faults(verdict=whole[:size]), size
    for size in range(len(KTAP)):
        assert faults(ktap_text=KTAP[:size], verdict=whole), size


def t_runner_failure_fails():
    assert faults(code=1)
    assert faults(code=139)
    assert faults(ktap_text=KTAP.replace("0 failed", "1 failed"))
    assert faults(ktap_text=KTAP.replace("5 passed", "0 passed"))


def t_failed_row_fails_whatever_the_totals():
    assert faults(ktap_text=KTAP.replace("ok 2 net", "not ok 2 net"))


def t_missing_suite_fails():
    assert faults(ktap_text=KTAP.replace("ok 2 net\n", ""))


INT3 = "[    2.1] Oops: int3: 0000 [#1] SMP NOPTI\n[    2.1] Kernel panic - not syncing: x\n"
STEP = "[    9.1] WARNING: CPU: 0 PID: 16 at arch/x86/kernel/traps.c:9 exc_debug_kernel+0xc/0x6\n"


def t_only_what_shows_nothing_of_the_tests_is_stillborn():
    assert not judged().stillborn
    assert not judged(code=1).stillborn
    assert not judged(verdict="ready 4.2\n").stillborn
    assert not judged(console="[    9.1] Oops: 0002 [#1] SMP\n").stillborn
    assert not judged(console=STEP.replace("exc_debug_kernel", "tcp_recvmsg")).stillborn
    assert not judged(console=STEP, code=1,
                      ktap_text=KTAP.replace("0 failed", "1 failed")).stillborn
    for sent in ({"verdict": ""}, {"verdict": "ready 4.2\n", "console": INT3},
                 {"console": STEP}, {"dmesg": STEP}):
        assert judged(**sent).stillborn and judged(**sent).faults


def t_stillborn_boots_are_tried_again_and_reported():
    run = vm_run()

    def booted(outcomes, retry=True):
        tries = []

        def once(*_args):
            tries.append(judge.Boot())
            tries[-1].stillborn = outcomes[len(tries) - 1]
            tries[-1].faults = [f"fault {len(tries)}"] * tries[-1].stillborn
            return tries[-1]
        run.boot_once = once
        with tempfile.TemporaryDirectory() as folder, \
             contextlib.redirect_stderr(io.StringIO()):
            return run.boot(fakeboot.asked(folder), None,
                            argparse.Namespace(retry=retry)), len(tries)
    for outcomes, tries, notes in (([False], 1, 0), ([True, False], 2, 1),
                                   ([True] * run.BOOTS_MAX, run.BOOTS_MAX, run.BOOTS_MAX - 1)):
        res, nr = booted(outcomes)
        assert nr == tries and len(res.notes) == notes, (outcomes, nr, res.notes)
        assert bool(res.faults) == outcomes[-1]
    res, nr = booted([True, False], retry=False)
    assert nr == 1 and res.faults, "--no-retry"


def t_qemu_failure_fails():
    assert faults(ended="killed after 5 s")


def t_splats_fail():
    for line in ("WARNING: CPU: 1 PID: 77 at net/core/skbuff.c:1 x+0x1/0x2",
                 "BUG: kernel NULL pointer dereference, address: 0000000000000008",
                 "Oops: 0000 [#1] PREEMPT SMP", "RIP: 0010:skb_push+0x1/0x2",
                 "BUG: KASAN: use-after-free in x", "Oops: general protection fault",
                 "unable to handle page fault for address: 1", "refcount_t: underflow",
                 "rcu: INFO: rcu_preempt self-detected stall on CPU",
                 "watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
                 "INFO: task kworker/1:1 blocked for more than 120 seconds.",
                 "list_del corruption, 1->next is NULL",
                 "unregister_netdevice: waiting for veth0 to become free."):
        assert faults(dmesg=DMESG + f"4,3,30,-;{line}\n"), line
        assert faults(console=f"[    1.234567] {line}\r\n"), line


def t_expected_reports_are_left_out_whole():
    report = ("4,1,10,-;------------[ cut here ]------------\n"
              "4,2,10,-;WARNING: CPU: 0 PID: 53 at net/ipv4/af_inet.c:%d "
              "inet_sock_destruct+0x1/0x2\n"
              "4,3,10,-;RIP: 0010:inet_sock_destruct+0x1/0x2\n4,4,10,-;Call Trace:\n"
              "4,5,10,-;---[ end trace 0000000000000000 ]---\n")
    assert not faults(dmesg=DMESG + report % 154)
    assert faults(dmesg=DMESG + report % 151)
    assert faults(dmesg=DMESG + report % 154 + report % 151)
    assert faults(dmesg=DMESG + report % 154 + "4,6,10,-;BUG: another\n")
    assert faults(dmesg=DMESG + (report % 154).replace("---[ end trace", "---"))     # cut off


def t_the_kernel_s_lines_have_stamps_whatever_its_configuration():
    """One without CONFIG_PRINTK_TIME (6.12-debug) locked up, and its stack was not shown."""
    assert "printk.time=1" in guest.KERNEL_ARGS.split()
    assert judge.stack_of("[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck\n")
    assert not judge.stack_of("BUG: soft lockup, says a test\n")


def t_tests_may_talk_about_bugs():
    assert faults(console="net/t_x.py: PASS looked for BUG: and Oops\n") == []


def t_init_complaint_fails():
    assert faults(console="vm-init: module /modules/001-9p.ko: No such file\n")


def t_fix_levels():
    is_fixed = kernel.is_fixed
    levels = "6.1.187,6.12.105,7.2.11"
    for version, good in (("6.1.186", False), ("6.1.187", True), ("6.12.104", False),
                          ("6.12.117", True), ("7.2.10", False), ("7.2.11", True),
                          ("7.3.0", True), ("7.3", True), ("6.6.200", False),
                          ("6.18.44", False), ("5.10.300", False)):
        assert is_fixed(version, levels) == good, version


def guest_conf(test_timeout=None, config=fakeboot.CONFIG, **other):
    opts = argparse.Namespace(**{"build": "/b", "test_jobs": 0, "env": [], "shell": None,
                                 "accel": "tcg",
                                 "suites": ["net"], "exec": None, "kernel": None, "retry": True,
                                 "test_timeout": test_timeout, **other})
    with tempfile.TemporaryDirectory() as folder:
        return vm_run().guest_conf(fakeboot.asked(folder, config=config), opts)


def t_a_guest_accepts_listed_skips_only():
    """On any host."""
    assert ("env", "CI=true") in guest_conf() and ("env", "TBG_KERNEL=6.1") in guest_conf()
    assert ("env", "CI=true") not in guest_conf(kernel="bzImage"), \
           "which nobody has listed skips of"
    assert ("arg", "--retry") in guest_conf() and ("arg", "--retry") not in guest_conf(retry=False)


def t_a_program_has_its_suites_time_or_its_own():
    def words(conf):
        return [value for key, value in conf if key == "arg"]

    assert "--timeout" not in words(guest_conf()) and words(guest_conf())[-1] == "net"
    assert words(guest_conf(1080))[-3:] == ["--timeout", "1080", "net"]


def t_a_kernel_that_checks_itself_has_more_time():
    """Daemons were given up while KASAN's verifier was at their programs."""
    checked = guest_conf(config=fakeboot.CONFIG + "CONFIG_KASAN=y\n")
    assert ("env", "TBG_SLOW=40") in checked and ("arg", "40") in checked, checked
    assert not any("TBG_SLOW" in value for _, value in guest_conf()) and \
           ("arg", "10") in guest_conf()


def t_requirements_are_well_formed():
    reqs = kernel.requirements()
    names = [req["name"] for req in reqs]
    assert len(names) == len(set(names)) > 20
    for req in reqs:
        assert all(req.values()), req
        assert set(req["tiers"].split(",")) <= {"wire", "sock", "user", "later"}, req
        assert req["need"] in ("must", "faster", "later"), req
        kind, _, what = req["probe"].partition(":")
        assert req["probe"] == "-" or what and kind in (
            "file", "mount", "sysctl", "syscall", "map", "prog", "helper", "reads", "kfunc",
            "struct",
            "attach", "io_uring", "cap", "selftest", "jit"), req
        assert req["probe"] != "-" or req["fixed"] != "-", req


if __name__ == "__main__":
    ktap.run(globals())
