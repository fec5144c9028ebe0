#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""vm/kernel.py, vm/fetch.py and vm/run with images, configurations and modules:
those that cannot be booted, and those that are not the ones asked for.

No kernel is booted and nothing is fetched.
"""
import argparse
import contextlib
import gzip
import importlib.machinery
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import fakeboot                 # noqa: E402
import fetch                    # noqa: E402
import guest                    # noqa: E402
import judge                    # noqa: E402
import kernel                   # noqa: E402
import ktap                     # noqa: E402
import results                  # noqa: E402

write = fakeboot.write
VM_RUN = os.path.join(fakeboot.REPO, "vm", "run")


def refused(says, fn, *args, error=kernel.KernelError):
    try:
        fn(*args)
    except error as e:
        for words in (says,) if isinstance(says, str) else says:
            assert words in str(e), e
        return
    raise AssertionError(f"{fn.__name__} did what it cannot")


def t_an_image_shows_which_kernel_it_is():
    with tempfile.TemporaryDirectory() as d:
        assert kernel.identity(fakeboot.bzimage(f"{d}/x")) == \
            ("amd64", fakeboot.RELEASE, fakeboot.VERSION)
        image = bytearray(4096)
        image[0x38:0x3c] = b"ARM\x64"
        image += b"\0Linux version 6.12.1-arm64 (a@b) (gcc (Debian 14) 14, ld) #1 SMP Debian " \
                 b"6.12.1-1 (x)\n\0"
        assert kernel.identity(write(f"{d}/Image", bytes(image))) == \
            ("arm64", "6.12.1-arm64", "#1 SMP Debian 6.12.1-1 (x)")


def t_what_qemu_cannot_boot_is_refused_by_name_with_what_to_give():
    with tempfile.TemporaryDirectory() as d:
        refused((f"{d}/none", "No such file", "give --kernel"), kernel.identity, f"{d}/none")
        with open(fakeboot.bzimage(f"{d}/half"), "r+b") as f:
            f.seek(kernel.SYSSIZE)
            f.write(b"\0\1")
        refused((f"{d}/half", "cut short", "copy or build"), kernel.identity, f"{d}/half")
        os.truncate(f"{d}/half", kernel.SETUP_VERSION)
        refused((f"{d}/half", "without a version"), kernel.identity, f"{d}/half")
        for data, says in ((gzip.compress(b"x"), "gzip"), (lzma.compress(b"x"), "xz"),
                           (b"\x28\xb5\x2f\xfd123", "zstd"), (b"BZh91", "bzip2"),
                           (b"\x04\x22\x4d\x18", "lz4"), (b"\x02\x21\x4c\x18", "lz4"),
                           (b"MZ\0\0zimg" + bytes(64), "EFI_ZBOOT"),
                           (b"\x7fELF" + bytes(600), "vmlinux"),
                           (b"", "empty"), (b"text", "no kernel image")):
            refused((f"{d}/x", says, "give "), kernel.identity, write(f"{d}/x", data))


def t_a_package_and_its_image_belong_together():
    rt = fakeboot.VERSION.replace("PREEMPT_DYNAMIC", "PREEMPT_RT")
    for change, says in (
            ({}, None),
            ({"package": "linux-image-6.1.0-56-rt-amd64 6.1.192-2"},
             "linux-image-6.1.0-56-rt-amd64 was asked for"),
            ({"package": "linux-image-6.1.0-56-cloud-amd64 6.1.192-2"},
             "-cloud-amd64 was asked for"),
            ({"package": "linux-image-6.1.0-56-amd64 6.1.193-1"}, "not 6.1.193-1"),
            ({"version": rt}, "the image is `#1 SMP PREEMPT_RT"),
            ({"config": fakeboot.CONFIG.replace("6.1.192", "6.12.3")}, "of Linux 6.12.3"),
            ({"config": fakeboot.CONFIG.replace("x86", "arm64")}, "of arm64")):
        with tempfile.TemporaryDirectory() as d:
            got = kernel.belongs_together(fakeboot.asked(d, **change))
            assert [says in fault for fault in got] == [True] if says else not got, (change, got)


def t_preempt_lazy_is_reported_as_preempt():
    """7.2 on arm64 has CONFIG_PREEMPT_LAZY without CONFIG_PREEMPT; its uname -v says PREEMPT."""
    lazy = "CONFIG_SMP=y\nCONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_LAZY=y\n"
    assert kernel.flags_wanted(lazy) == kernel.flags("#1 SMP PREEMPT Debian 7.2.13-1")
    assert kernel.flags_wanted("CONFIG_SMP=y\n") == kernel.flags("#1 SMP Debian 6.1.192-2")


def t_each_machine_wants_its_own_options():
    own = {"CONFIG_SERIAL_8250_CONSOLE": "amd64", "CONFIG_SERIAL_AMBA_PL011_CONSOLE": "arm64"}
    wanted = {arch: {key for _, key, _ in kernel.fragments(arch)} for arch in own.values()}
    for key, arch in own.items():
        assert [a for a, keys in wanted.items() if key in keys] == [arch], key
    assert "CONFIG_VIRTIO_CONSOLE" in wanted["amd64"] & wanted["arm64"]


def arm64(folder):
    """A Kernel for arm64 that cannot be booted."""
    image = bytearray(4096)
    image[0x38:0x3c] = b"ARM\x64"
    image += b"\0Linux version 6.1.0-56-arm64 (a@b) (gcc) #1 SMP Debian 6.1.192-2 (x)\n\0"
    return kernel.Kernel("6.1-arm64", write(f"{folder}/Image", bytes(image)), "", None)


def t_a_guest_of_arm64_has_a_root_and_products_of_its_own():
    with tempfile.TemporaryDirectory() as build:
        root = os.path.realpath(f"{build}/vm/root-arm64")
        os.makedirs(root)
        conf = guest.base_conf(arm64(build), build)
        assert ("tree", root) in conf and ("env", f"O={build}/arm64") in conf, conf
        for key, path in conf:
            assert key != "bind" or os.path.isdir(root + path), path
        conf = guest.base_conf(fakeboot.asked(build), build)
        assert ("tree", "/") in conf and ("env", f"O={build}") in conf, conf


def t_an_emulated_guest_receives_the_rate_of_its_counter():
    """On a busy machine a guest measured 653 MHz instead of 2595: all its limits were a quarter."""
    if os.uname().machine != "x86_64":
        raise ktap.Skip("the counter is another machine's")
    with tempfile.TemporaryDirectory() as build:
        tool = f"{build}/guest/tsc"
        refused((tool, "make -C vm"), guest.emulated_clock, build, "amd64", error=guest.HostError)
        os.chmod(write(tool, "#!/bin/sh\necho 2596118\n"), 0o755)
        assert guest.emulated_clock(build, "arm64") == ""
        for accel, told in (("tcg", True), ("kvm", False)):
            opts = argparse.Namespace(build=build, accel=accel, cpus=2, memory=64, append="",
                                      gdb=None, shell=True)
            argv = guest.Guest(fakeboot.asked(build), build, [], opts).argv()
            words = argv[argv.index("-append") + 1].split()
            assert ("tsc_early_khz=2596118" in words) == told, (accel, words)
        os.chmod(write(tool, "#!/bin/sh\nexit 1\n"), 0o755)
        refused((tool, "make -C vm"), guest.emulated_clock, build, "amd64", error=guest.HostError)


def t_a_comma_in_the_path_of_a_guest_reaches_qemu():
    with tempfile.TemporaryDirectory(suffix=",x") as build:
        opts = argparse.Namespace(build=build, accel="kvm", cpus=2, memory=64, append="", gdb=None,
                                  shell=True)
        argv = guest.Guest(fakeboot.asked(build), build, [], opts).argv()
        assert f"file,id=ktap,path={build.replace(',', ',,')}/ktap" in argv, argv


def t_what_a_guest_of_arm64_lacks_is_named():
    with tempfile.TemporaryDirectory() as build, tempfile.TemporaryDirectory() as path:
        before = os.environ["PATH"]
        try:
            os.environ["PATH"] = path
            refused(("qemu-system-aarch64", "install qemu-system-arm"), guest.need, "arm64", build,
                    "tcg", error=guest.HostError)
            os.chmod(write(f"{path}/qemu-system-aarch64", ""), 0o755)
            refused(("init", "make build-arm64"), guest.need, "arm64", build, "tcg",
                    error=guest.HostError)
            os.chmod(write(f"{build}/guest/init-arm64", ""), 0o755)
            refused(("no root", "make build-arm64"), guest.need, "arm64", build, "tcg",
                    error=guest.HostError)
            os.makedirs(f"{build}/vm/root-arm64")
            guest.need("arm64", build, "tcg")
            if os.uname().machine == "x86_64":
                refused(("no arm64", "leave out --accel kvm"), guest.need, "arm64", build, "kvm",
                        error=guest.HostError)
        finally:
            os.environ["PATH"] = before


def t_a_root_for_arm64_has_the_libraries_and_no_compilers():
    sysroot = importlib.machinery.SourceFileLoader(
        "sysroot", os.path.join(fakeboot.REPO, "vm", "sysroot")).load_module()
    words = sysroot.packages()
    # bpftool runs at the build machine, and in the guest, for net/sock/t_sock.py
    assert {"libbpf-dev", "liburing-dev", "python3", "iproute2", "bpftool",
            "?essential"} <= set(words), words
    assert not {"clang", "gcc", "make", "qemu-system-x86"} & set(words), words
    with tempfile.TemporaryDirectory() as root:
        write(f"{root}/usr/lib/x/libz.so.1", "z")
        os.symlink("/usr/lib/x/libz.so.1", f"{root}/usr/lib/x/libz.so")
        sysroot.relative_links(root)
        assert os.readlink(f"{root}/usr/lib/x/libz.so") == "libz.so.1"


def t_two_flavours_of_one_version_have_a_folder_each():
    folders = {fetch.folder_of("/b", f"linux-image-6.12.118+deb13{flavour}-amd64", "6.12.118-1")
               for flavour in ("", "-rt", "-cloud")}
    assert len(folders) == 3, folders


def t_a_cached_kernel_of_another_package_is_not_taken():
    """A name that led to plain 6.12 before its line asked for the flavour."""
    with tempfile.TemporaryDirectory() as build:
        folder = fetch.folder_of(build, "linux-image-6.12.118+deb13-amd64", "6.12.118-1")
        write(f"{folder}/origin", "linux-image-6.12.118+deb13-amd64 6.12.118-1\n")
        fetch.call_it(build, "6.12-rt", folder)
        refused(("6.12-rt", "no earlier run has left such a kernel"),
                fetch.fetch, ["6.12-rt"], build, lambda _: None, False, True,
                error=fetch.FetchError)


def t_missing_options_are_named():
    with tempfile.TemporaryDirectory() as d:
        assert kernel.config_faults(fakeboot.asked(d, config=fakeboot.whole_config())) == []
        text = fakeboot.whole_config().replace("CONFIG_DEBUG_INFO_BTF=y\n", "")
        got = kernel.config_faults(fakeboot.asked(d, config=text))
        assert got and all("CONFIG_DEBUG_INFO_BTF=y" in f and "has n" in f for f in got), got
        text = fakeboot.whole_config().replace("CONFIG_VETH=m", "CONFIG_VETH=y")
        assert kernel.config_faults(fakeboot.asked(d, config=text)) == [], "built in is better"


def t_modules_are_those_of_the_kernel_or_refused():
    with tempfile.TemporaryDirectory() as d:
        tree = f"{d}/lib/modules/{fakeboot.RELEASE}"
        for name, optional in kernel.wanted_modules():
            if not optional and name != "veth":
                fakeboot.module(f"{tree}/kernel/{name}.ko")
        for name in kernel.ROOTS["9p"][1]:
            fakeboot.module(f"{tree}/kernel/{name}.ko")
        fakeboot.module(f"{tree}/kernel/bridge.ko", depends="stp")
        fakeboot.module(f"{tree}/kernel/stp.ko")
        write(f"{tree}/modules.builtin", "kernel/drivers/net/veth.ko\n")
        assert kernel.find_modules(d, fakeboot.RELEASE) == tree
        asked = fakeboot.asked(d, modules=tree)
        names = [name for name, _ in kernel.modules_in_order(asked)]
        assert names.index("stp") < names.index("bridge") and "veth" not in names
        refused((fakeboot.RELEASE, "6.2.0", "modules_install"), kernel.find_modules, d, "6.2.0")
        refused(f"{d}/none", kernel.find_modules, f"{d}/none", "6.2.0")
        fakeboot.module(f"{tree}/kernel/tun.ko", release="6.1.0-55-amd64")
        refused(("tun.ko", "6.1.0-55-amd64", fakeboot.RELEASE), kernel.modules_in_order, asked)
        os.unlink(f"{tree}/kernel/tun.ko")
        refused("wants module tun", kernel.modules_in_order, asked)
        for data in (b"\xfd7zXZ\0", b"text", lzma.compress(bytes(99))[:-20]):
            damaged = write(f"{tree}/kernel/tun.ko.xz", data)
            refused((damaged, "decompressed", "modules_install"), kernel.modules_in_order, asked)


def t_a_configuration_is_found_beside_the_image():
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(f"{d}/arch/x86/boot")
        image = fakeboot.bzimage(f"{d}/arch/x86/boot/bzImage")
        refused(("no configuration beside it", "--config"), kernel.own, image, None, None)
        write(f"{d}/.config", fakeboot.CONFIG)
        assert kernel.own(image, None, None).config == fakeboot.CONFIG
        other = write(f"{d}/other", "CONFIG_X=y\n")
        assert kernel.own(image, None, other).config == "CONFIG_X=y\n"
        refused("without one CONFIG_ line", kernel.own, image, None, write(f"{d}/other", "hello\n"))


def vm_run(build, *words):
    res = subprocess.run([VM_RUN, "--build", build, *words], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, check=False)
    return res.returncode, res.stdout, res.stderr


def t_no_such_kernel_is_125_and_never_a_pass():
    with tempfile.TemporaryDirectory() as d:
        for words, says in (
                (("--kernel", f"{d}/none"), f"{d}/none: no kernel image"),
                (("--kernels", "6.1,5.4"), "5.4: no such kernel"),
                (("--kernel", write(f"{d}/x.gz", gzip.compress(b"x"))), "compressed with gzip")):
            code, out, err = vm_run(d, "--offline", *words, "bpf")
            assert code == 125 and says in err and out == "0 passed, 1 failed\n", (code, out, err)


def t_what_was_not_booted_is_a_failure_in_each_form():
    """And what an earlier run has left is no result of this one."""
    with tempfile.TemporaryDirectory() as d:
        for words, says in (((), f"{d}/none: no kernel image"), (("--exec", "true"), "no kernel")):
            path = write(f"{d}/junit.xml", '<testsuites tests="1" failures="0"/>')
            asked = ("--kernel", f"{d}/none", "--junit", path, *words)
            code, out, _ = vm_run(d, *asked, *([] if words else ["--json"]))
            assert code == 125, out
            root = xml.parse(path).getroot()
            assert root.get("tests") == root.get("failures") == "1", xml.tostring(root)
            assert says in root.find("testsuite/testcase/failure").get("message")
            if not words:
                got = json.loads(out)
                assert got["failed"] == 1 and not got["passed"] and says in got["error"], got


def t_a_command_that_fails_is_a_failure_for_junit():
    with tempfile.TemporaryDirectory() as d:
        boot = judge.Boot()
        boot.asked, boot.seconds, boot.rows, boot.ready_s = fakeboot.asked(d), 1, [], 1.0
        boot.folder = d
        for code, failures in ((0, "0"), (7, "1"), (None, "1")):
            boot.code = code
            results.write_junit(f"{d}/x", {"6.1": boot}, 1, "exit 7")
            root = xml.parse(f"{d}/x").getroot()
            assert (root.get("tests"), root.get("failures")) == ("2", failures), (code, failures)
            assert root.find("testsuite").get("failures") == failures
            case, = root.findall("testsuite/testcase[@name='exit 7']")
            assert (case.find("failure") is None) == (code == 0), code


def t_a_program_that_a_panic_ends_is_an_error():
    """It has no result of its own, and what was before it keeps its own."""
    reader = results.Reader()
    for line in KTAP_OF_A_GUEST.splitlines():
        reader.feed(line)
    with tempfile.TemporaryDirectory() as d:
        boot = judge.Boot()
        boot.asked, boot.seconds, boot.ready_s, boot.folder = fakeboot.asked(d), 4, 1.0, d
        boot.faults, boot.times = ["Kernel panic - not syncing: y", "no verdict: z"], {}
        boot.stack, boot.cut_short = ["BUG: x", "f+0x1"], ["net/wire/t_y.py"]
        boot.rows = reader.rows + results.cut_short(boot)
        results.write_junit(f"{d}/x", {"6.1": boot}, 4)
        suite = xml.parse(f"{d}/x").getroot().find("testsuite")
        row = json.loads(results.as_json({"6.1": boot}, 4))["kernels"][0]["tests"][-1]
    case, = suite.findall("testcase[@classname='6.1.net.wire/t_y.py']")
    assert case.find("error").get("message") == \
        "the guest ended while it ran: Kernel panic - not syncing: y", xml.tostring(case)
    assert "f+0x1" in case.find("error").text.splitlines(), xml.tostring(case)
    assert [suite.get(word) for word in ("tests", "failures", "errors")] == ["5", "2", "1"]
    assert (row["program"], row["verdict"]) == ("wire/t_y.py", "error"), row


KTAP_OF_A_GUEST = """\
KTAP version 1
1..1
  KTAP version 1
  # Subtest: net
  1..1
    KTAP version 1
    # Subtest: wire/t_x.py
    1..3
    # t_hit 2.500 s
    ok 1 t_hit
    printed by print()
    # Traceback (most recent call last):
    #   assert 1 == 2
    # t_miss 0.250 s
    not ok 2 t_miss
    # before Linux 6.9
    # t_late 0.001 s
    ok 3 t_late # SKIP no late sockets
    # FAULT skip not in tests/expect/skips
    # stderr: a warning
  # CPU time 2.000 s
  # time 3.000 s
  not ok 1 wire/t_x.py
not ok 1 net
"""


def t_junit_has_what_each_test_printed():
    reader = results.Reader()
    failed = [reader.feed(line) for line in KTAP_OF_A_GUEST.splitlines()]
    assert [x for x in failed if x] == ["net/wire/t_x.py: t_miss"], failed
    with tempfile.TemporaryDirectory() as d:
        boot = judge.Boot()
        boot.asked, boot.seconds, boot.ready_s, boot.folder = fakeboot.asked(d), 4, 1.0, "logs/1"
        boot.rows, boot.times = reader.rows, reader.seconds
        boot.faults = ["tests/run: exit 1", "1 tests failed"]
        results.write_junit(f"{d}/x", {"6.1": boot}, 4)
        root = xml.parse(f"{d}/x").getroot()
        hit, miss, late = (root.find(f"testsuite/testcase[@name='{name}']")
                           for name in ("t_hit", "t_miss", "t_late"))
        got = json.loads(results.as_json({"6.1": boot}, 4))["kernels"][0]
    assert {case.get("classname") for case in (hit, miss, late)} == {"6.1.net.wire/t_x.py"}
    assert [case.get("time") for case in (hit, miss, late)] == ["2.500", "0.250", "0.001"]
    assert not list(hit), xml.tostring(hit)
    assert miss.find("failure").text.splitlines() == [
        "t_miss", "printed by print()", "Traceback (most recent call last):", "  assert 1 == 2",
        "FAULT skip not in tests/expect/skips", "stderr: a warning"], xml.tostring(miss)
    assert late.find("skipped").get("message") == "no late sockets", xml.tostring(late)
    assert late.find("system-out").text == "before Linux 6.9", xml.tostring(late)
    assert root.find("testsuite/system-out").text == "logs in logs/1"
    assert root.get("failures") == "1" and root.find("testsuite/testcase[@classname='6.1.boot']") \
        .find("failure") is None, xml.tostring(root)
    assert got["times"] == {"net/wire/t_x.py": 3.0}, got
    assert [(row["name"], row["verdict"], row["seconds"]) for row in got["tests"]] == [
        ("t_hit", "pass", 2.5), ("t_miss", "fail", 0.25), ("t_late", "skip", 0.001)], got


def t_a_kernel_without_btf_is_refused_before_it_boots():
    with tempfile.TemporaryDirectory() as d:
        image = fakeboot.bzimage(f"{d}/bzImage")
        text = fakeboot.whole_config().replace("CONFIG_DEBUG_INFO_BTF=y\n", "")
        for name in ("guest/init",):
            os.chmod(write(f"{d}/{name}", "#!/bin/false\n"), 0o755)
        code, out, err = vm_run(d, "--kernel", image, "--config", write(f"{d}/c", text), "bpf")
        assert code == 125 and "CONFIG_DEBUG_INFO_BTF=y" in err and "merge" in err, (code, err)
        assert f"alone: vm/run --kernel {image} --config {d}/c bpf\n" in out, out
        assert "not ok 1 own" in out and out.endswith("0 passed, 1 failed\n"), out


def t_a_kernel_without_its_modules_is_a_row_of_its_own():
    """Those that boot beside it keep their results."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(write(f"{d}/guest/init", "#!/bin/false\n"), 0o755)
        code, out, err = vm_run(d, "--kernel", fakeboot.bzimage(f"{d}/bzImage"), "--config",
                                write(f"{d}/c", fakeboot.whole_config()), "--modules", d, "bpf")
        assert code == 125 and "own: " in err and "wants module" in err, (code, err)
        assert "# FAULT " in out and "not ok 1 own" in out, out
        assert out.endswith("0 passed, 1 failed\n"), out


def t_usage_is_no_verdict_on_a_kernel():
    with tempfile.TemporaryDirectory() as d:
        code, _, err = vm_run(d, "--offline", "--junit", f"{d}/none/x.xml", "bpf")
        assert code == 2 and f"{d}/none/x.xml" in err, (code, err)
        assert vm_run(d, "--offline", "--junit", d, "bpf")[0] == 2
        for words in (("--kernel", "x", "--kernels", "6.1"), ("--modules", "x"),
                      ("--exec", "a", "b"), ("--cpus", "0"), ("--cpus", "2,"), ("--cpus", "17"),
                      ("--memory", "0"), ("--jobs", "-1"), ("--timeout", "nan"),
                      ("--offline", "nosuite"), ("--offline", "net/t_none.py"),
                      ("--nonsense",)):
            assert vm_run(d, *words)[0] == 2, words
            assert vm_run(d, "--bisect", *words)[0] == 128, words
        code, _, err = vm_run(d, "--bisect", "bpf")
        assert code == 128 and "no kernel tree" in err, (code, err)


def t_a_kernel_that_cannot_be_fetched_is_no_verdict_on_it():
    with tempfile.TemporaryDirectory() as d:
        code, out, err = vm_run(d, "--offline", "--kernels", "6.12", "bpf")
        assert code == 128 and "6.12: offline as asked" in err, (code, err)
        assert out == "0 passed, 1 failed\n", out


def t_guests_have_cpus_by_turns():
    """The last number is for all others."""
    run = importlib.machinery.SourceFileLoader("vm_run", VM_RUN).load_module()
    for words, wanted in ((("--cpus", "2,1"), [2, 1, 1]), (("--cpus", "4"), [4, 4, 4]),
                          ((), [2, 2, 2])):
        opts = run.parser().parse_args(words)
        assert [run.of_guest(opts, nr).cpus for nr in range(3)] == wanted, words


def t_a_debug_kernel_that_lacks_what_is_wanted_by_now_is_built_again():
    """Else vm/run refused it, and what builds it said that it was there."""
    tool = importlib.machinery.SourceFileLoader(
        "debug_kernel", os.path.join(fakeboot.REPO, "vm", "debug-kernel")).load_module()
    lines = [f"{key}={value}\n" for key, value in tool.wanted().items()]

    class Apt:
        dir = None

        @staticmethod
        def download(*_):
            raise kernel.KernelError("it would be built")

    with tempfile.TemporaryDirectory() as d:
        Apt.dir = d
        tool.fetch = argparse.Namespace(
            chosen=lambda *_: (Apt, [("linux-source-6.12", "6.12.1-1", 1)]), origin=fetch.origin,
            folder_of=fetch.folder_of, call_it=lambda *_: None)
        dest = fetch.folder_of(d, "linux-source-6.12", "6.12.1-1")
        for name, text in (("origin", "linux-source-6.12 6.12.1-1\n"), ("config", "".join(lines))):
            write(f"{dest}/{name}", text)
        assert tool.build("6.12-debug", d) == dest
        for left in ("".join(lines[1:]), lines[0]):
            write(f"{dest}/config", left)
            refused("it would be built", tool.build, "6.12-debug", d)
        write(f"{dest}/config", "".join(lines))
        write(f"{dest}/origin", "linux-source-6.12 6.12.0-1\n")
        refused("it would be built", tool.build, "6.12-debug", d)


def t_a_download_is_whole_or_not_there():
    with tempfile.TemporaryDirectory() as build:
        apt = fetch.Apt(build)
        apt.env["PATH"] = f"{build}:{os.environ['PATH']}"
        before = os.listdir(apt.dir)
        for script, says in (("echo half >p_1%3a2_amd64.deb; echo gone >&2; exit 1", "gone"),
                             ("exit 0", "left no")):
            os.chmod(write(f"{build}/apt-get", f"#!/bin/sh\n{script}\n"), 0o755)
            refused(says, apt.download, "p", "1:2", error=fetch.FetchError)
            assert not os.listdir(apt.debs) and os.listdir(apt.dir) == before
        write(f"{build}/apt-get", "#!/bin/sh\necho whole >p_1%3a2_amd64.deb\n")
        deb = apt.download("p", "1:2")
        assert os.listdir(apt.debs) == [os.path.basename(deb)] and os.listdir(apt.dir) == before
        refused("deleted", fetch.unpack, [deb], "p", f"{build}/kernel", error=fetch.FetchError)
        assert not os.path.exists(deb) and not os.path.exists(f"{build}/kernel")


def t_the_index_is_read_once_until_it_is_asked_again():
    with tempfile.TemporaryDirectory() as build:
        apt, reads = fetch.Apt(build), []
        apt.read_index = lambda suites: reads.append(suites) or \
            {"p": [{"Version": str(len(reads))}]}
        apt.write("updated", "")
        os.utime(f"{apt.dir}/updated", (1, 1))
        assert apt.stanzas(["s"]) == apt.stanzas(["s"]) and len(reads) == 1
        apt.stanzas(["s", "t"])
        assert len(reads) == 2, "other suites"
        os.utime(f"{apt.dir}/updated", (2 ** 32, 2 ** 32))
        assert apt.stanzas(["s"])["p"][0]["Version"] == "3", "asked again"


@contextlib.contextmanager
def apt_that_waits(does, until):
    """(an Apt, its output): its apt-get runs that, and ends once it prints `until`."""
    said = []
    with tempfile.TemporaryDirectory() as build:
        def seen(text):
            said.append(text)
            if until in text:
                write(f"{build}/go", "")
        apt = fetch.Apt(build, notify=seen)
        apt.env["PATH"] = f"{build}:{os.environ['PATH']}"
        fetch.PROGRESS_S = 0.05
        os.chmod(write(f"{build}/apt-get", f"#!/bin/sh\n{does.format(dir=apt.dir)}\n"
                       f"until [ -e {build}/go ]; do sleep 0.05; done\n"), 0o755)
        yield apt, said


def t_a_download_shows_how_far_it_is():
    with apt_that_waits("printf 12345 >p_1_amd64.deb", "(50%)") as (apt, said):
        apt.download("p", "1", 10)
    assert "downloading p, 0 kB" in said[0] and any("(50%)" in text for text in said), said


def t_the_index_shows_that_it_comes():
    """Its size is not known before, and on a slow line it takes minutes."""
    with apt_that_waits("head -c 2000000 /dev/zero >{dir}/lists/x", "2 MB so far") as (apt, said):
        apt.configure = lambda suites: None
        apt.update(["stable"], False)
    assert said[0] == "asking the mirror for its index (stable)" and len(said) > 1, said


def t_a_cache_that_other_builds_share_is_named_as_it_lies():
    """apt.conf was that of the build which had asked last, even when that was deleted."""
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(f"{d}/cache")
        for build in ("a", "b"):
            os.makedirs(f"{d}/{build}")
            os.symlink(f"{d}/cache", f"{d}/{build}/vm")
        asked = []
        fetch.output, before = lambda step, argv, **kw: asked.append(argv) or "", fetch.output
        try:
            for build in ("a", "b"):
                apt = fetch.Apt(f"{d}/{build}")
                apt.configure = lambda suites: None
                apt.update(["s"], False)
                with open(f"{d}/cache/apt/apt.conf", encoding="ascii") as f:
                    text = f.read()
                assert f'"{os.path.realpath(d)}/cache/apt/sources"' in text and f"{d}/a" not in text
                shutil.rmtree(f"{d}/{build}")
            assert asked == [["apt-get", "-qq", "update"]], asked
            os.rename(f"{d}/cache", f"{d}/moved")
            os.makedirs(f"{d}/c")
            os.symlink(f"{d}/moved", f"{d}/c/vm")
            fetch.Apt(f"{d}/c").update(["s"], False)
            with open(f"{d}/moved/apt/apt.conf", encoding="ascii") as f:
                assert "/cache/apt/" not in f.read()
        finally:
            fetch.output = before


def t_kernels_in_use_are_not_pruned():
    with tempfile.TemporaryDirectory() as build:
        folder = fetch.folder_of(build, "linux-image-1-amd64", "1")
        write(f"{folder}/origin", "linux-image-1-amd64 1\n")
        fd = os.open(folder, os.O_RDONLY)
        fetch.fcntl.flock(fd, fetch.fcntl.LOCK_SH)
        fetch.prune(build)
        assert os.path.exists(folder)
        os.close(fd)
        fetch.call_it(build, "mine", folder)
        fetch.prune(build)
        assert os.path.exists(folder), "it has a name"
        os.unlink(fetch.name_link(build, "mine"))
        fetch.prune(build)
        assert not os.path.exists(folder)


def t_logs_of_earlier_boots_stay():
    with tempfile.TemporaryDirectory() as build:
        first, second = guest.new_folder(build, "6.1"), guest.new_folder(build, "6.1")
        assert first != second and os.path.isdir(first)
        assert os.path.realpath(f"{build}/guest/log/latest/6.1") == os.path.realpath(second)


if __name__ == "__main__":
    ktap.run(globals())
