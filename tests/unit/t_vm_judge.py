#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What vm/judge.py makes of boots that broke, vm/fetch.py of downloads that did,
and how versions are compared.

Each test writes the files a guest would have sent and asks for the faults.
No kernel is booted and nothing is fetched.
"""
import argparse
import importlib.machinery
import importlib.util
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, os.pardir, "lib"), os.path.join(REPO, "vm")]
import fetch                    # noqa: E402
import judge                    # noqa: E402
import ktap                     # noqa: E402

KTAP = "KTAP version 1\n1..2\nok 1 bpf\nok 2 net\n5 passed, 0 failed\n"
DMESG = "6,1,10,-;Linux version\n12,2,20,-;BUG: said by user space\n"


def vm_run():
    loader = importlib.machinery.SourceFileLoader("vm_run", os.path.join(REPO, "vm", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm_run", loader))
    loader.exec_module(module)
    return module


def judged(ktap_text=KTAP, dmesg=DMESG, console="", code=0, verdict=None, ended=None):
    if verdict is None:
        verdict = f"ready 4.2\nexit {code}\nktap {len(ktap_text)}\ndmesg {len(dmesg)}\nend\n"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("ktap", ktap_text), ("dmesg", dmesg), ("console", console),
                           ("verdict", verdict)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        return judge.judge("6.1", folder, ["bpf", "net/t_x.py"], ended)


def faults(**sent):
    return judged(**sent).faults


def t_good_boot_passes():
    assert faults() == [], faults()


def t_each_part_missing_fails():
    assert faults(ktap_text="")
    assert faults(dmesg="")
    assert faults(verdict="")
    assert faults(verdict="ready 4.2\n")
    with tempfile.TemporaryDirectory() as folder:
        assert judge.judge("6.1", folder, ["bpf"], None).faults


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


def t_only_what_says_nothing_of_the_tests_is_stillborn():
    assert not judged().stillborn
    assert not judged(code=1).stillborn
    assert not judged(verdict="ready 4.2\n").stillborn
    assert not judged(console="[    9.1] Oops: 0002 [#1] SMP\n").stillborn
    assert not judged(console=STEP.replace("exc_debug_kernel", "tcp_recvmsg")).stillborn
    assert not judged(console=STEP, code=1, ktap_text=KTAP.replace("0 failed", "1 failed")).stillborn
    for sent in ({"verdict": ""}, {"verdict": "ready 4.2\n", "console": INT3},
                 {"console": STEP}, {"dmesg": STEP}):
        assert judged(**sent).stillborn and judged(**sent).faults


def t_stillborn_boots_are_tried_again_and_told():
    run = vm_run()

    def booted(outcomes):
        tries = []

        def once(*_args):
            tries.append(judge.Boot())
            tries[-1].stillborn = outcomes[len(tries) - 1]
            tries[-1].faults = [f"fault {len(tries)}"] * tries[-1].stillborn
            return tries[-1]
        run.boot_once = once
        return run.boot("6.1", "", None), len(tries)
    for outcomes, tries, notes in (([False], 1, 0), ([True, False], 2, 1),
                                   ([True] * run.BOOTS_MAX, run.BOOTS_MAX, run.BOOTS_MAX - 1)):
        res, nr = booted(outcomes)
        assert nr == tries and len(res.notes) == notes, (outcomes, nr, res.notes)
        assert bool(res.faults) == outcomes[-1]


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
              "4,2,10,-;WARNING: CPU: 0 PID: 53 at net/ipv4/af_inet.c:%d inet_sock_destruct+0x1/0x2\n"
              "4,3,10,-;RIP: 0010:inet_sock_destruct+0x1/0x2\n4,4,10,-;Call Trace:\n"
              "4,5,10,-;---[ end trace 0000000000000000 ]---\n")
    assert not faults(dmesg=DMESG + report % 154)
    assert faults(dmesg=DMESG + report % 151)
    assert faults(dmesg=DMESG + report % 154 + report % 151)
    assert faults(dmesg=DMESG + report % 154 + "4,6,10,-;BUG: another\n")
    assert faults(dmesg=DMESG + (report % 154).replace("---[ end trace", "---"))     # cut off


def t_tests_may_talk_about_bugs():
    assert faults(console="net/t_x.py: PASS looked for BUG: and Oops\n") == []


def t_init_complaint_fails():
    assert faults(console="vm-init: module /modules/001-9p.ko: No such file\n")


def t_fix_levels():
    is_fixed = vm_run().is_fixed
    levels = "6.1.187,6.12.105,7.2.11"
    for version, good in (("6.1.186", False), ("6.1.187", True), ("6.12.104", False),
                          ("6.12.117", True), ("7.2.10", False), ("7.2.11", True),
                          ("7.3.0", True), ("7.3", True), ("6.6.200", False),
                          ("6.18.44", False), ("5.10.300", False)):
        assert is_fixed(version, levels) == good, version


def guest_conf(test_timeout=None):
    opts = argparse.Namespace(build="/b", env=[], shell=None, accel="tcg", suites=["net"],
                              test_timeout=test_timeout)
    return vm_run().guest_conf("6.1", opts)


def t_a_guest_accepts_listed_skips_only():
    """Whatever the host is."""
    assert ("env", "CI=true") in guest_conf()


def t_a_program_has_its_suites_time_or_what_is_said():
    def words(conf):
        return [value for key, value in conf if key == "arg"]

    assert "--timeout" not in words(guest_conf()) and words(guest_conf())[-1] == "net"
    assert words(guest_conf(1080))[-3:] == ["--timeout", "1080", "net"]


def fetch_fails(says, fn, *args):
    try:
        fn(*args)
    except fetch.FetchError as e:
        assert says in str(e), e
        return
    raise AssertionError(f"{fn.__name__} did what it cannot")


def t_a_download_is_whole_or_not_there():
    with tempfile.TemporaryDirectory() as build:
        apt = fetch.Apt(build)
        apt.env["PATH"] = f"{build}:{os.environ['PATH']}"
        before = os.listdir(apt.dir)
        for script, says in (("echo half >p_1%3a2_amd64.deb; echo gone >&2; exit 1", "gone"), ("exit 0", "left no")):
            with open(f"{build}/apt-get", "w", encoding="ascii") as f:
                f.write(f"#!/bin/sh\n{script}\n")
            os.chmod(f"{build}/apt-get", 0o755)
            fetch_fails(says, apt.download, "p", "1:2")
            assert not os.listdir(apt.debs) and os.listdir(apt.dir) == before
        with open(f"{build}/apt-get", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho whole >p_1%3a2_amd64.deb\n")
        deb = apt.download("p", "1:2")
        assert os.listdir(apt.debs) == [os.path.basename(deb)] and os.listdir(apt.dir) == before
        fetch_fails("deleted", fetch.unpack, [deb], "p", f"{build}/kernel")
        assert not os.path.exists(deb) and not os.path.exists(f"{build}/kernel")


def t_requirements_are_well_formed():
    reqs = vm_run().requirements()
    names = [req["name"] for req in reqs]
    assert len(names) == len(set(names)) > 20
    for req in reqs:
        assert all(req.values()), req
        assert set(req["tiers"].split(",")) <= {"wire", "sock", "user", "later"}, req
        assert req["need"] in ("must", "faster", "later"), req
        kind, _, what = req["probe"].partition(":")
        assert req["probe"] == "-" or what and kind in (
            "file", "mount", "sysctl", "syscall", "map", "prog", "helper", "kfunc", "struct",
            "attach", "io_uring", "cap", "trial"), req
        assert req["probe"] != "-" or req["fixed"] != "-", req


if __name__ == "__main__":
    ktap.run(globals())
