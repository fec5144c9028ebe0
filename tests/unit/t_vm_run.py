#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""vm/run with guests that end badly: a full disk, a kernel that never answers, a signal.

QEMU is a script here, and no kernel is booted.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, os.pardir, "lib"))
import client                   # noqa: E402
import fakeboot                 # noqa: E402
import kernel                   # noqa: E402
import ktap                     # noqa: E402

write = fakeboot.write
VM_RUN = os.path.join(fakeboot.REPO, "vm", "run")


def program(path, text):
    os.chmod(write(path, "#!/bin/sh\n" + text), 0o755)


def fake_kernel(path):
    """The options of vm/run for an image in the folder path, with built-in modules."""
    image = fakeboot.bzimage(f"{path}/bzImage")
    config = write(f"{path}/c", fakeboot.whole_config())
    write(f"{path}/modules/modules.builtin",
          "".join(f"kernel/{name}.ko\n" for name in
                  [*(name for name, _ in kernel.wanted_modules()), *kernel.ROOTS["9p"][1]]))
    return ["--kernel", image, "--config", config, "--modules", f"{path}/modules"]


def with_a_small_disk(size, path, *words):
    """Run vm/run with a small file system as its build folder; (exit code, stderr).

    path: a folder for what it is given; its guest/ is the build's, too.
    """
    script = ('mount -t tmpfs -o size="$3" none "$1" && mkdir -p "$1"/guest && '
              'cp -s "$2"/guest/* "$1"/guest/ && shift 3 && exec "$@"')
    own = fake_kernel(path)
    os.chmod(write(f"{path}/guest/init", "x" * (3 << 20)), 0o755)
    with tempfile.TemporaryDirectory() as d:
        res = subprocess.run(
            ["unshare", "-r", "-m", "sh", "-c", script, "sh", d, path, size, VM_RUN, "--build", d,
             *own, *words],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{path}/bin:{os.environ['PATH']}"})
    if "unshare" in res.stderr or "mount:" in res.stderr:
        raise ktap.Skip("no mount namespace for a small file system")
    return res.returncode, res.stderr


def t_a_full_disk_is_named():
    """The build folder is a file system of one page."""
    with tempfile.TemporaryDirectory() as d:
        code, err = with_a_small_disk("4k", d, "bpf")
        assert code == 128 and "No space left" in err, (code, err)


def t_a_build_folder_that_cannot_be_made_is_named():
    """By all that write to one."""
    with tempfile.TemporaryDirectory() as d:
        where = os.path.join(write(f"{d}/file", ""), "build")
        env = {**os.environ, "O": where}
        for words in (("run", "bpf"), ("kselftest",), ("sysroot",)):
            done = subprocess.run([os.path.join(fakeboot.REPO, "vm", words[0]), *words[1:]],
                                  env=env, capture_output=True, text=True, check=False)
            assert done.returncode == (128 if words[0] == "run" else 1), done
            assert f"{where}: Not a directory; give another build folder" in done.stderr, done
        # a path elsewhere gets no such advice
        fault = FileNotFoundError(2, "No such file or directory", f"{d}/none")
        assert kernel.refusal(fault, where) == f"{d}/none: No such file or directory"


def t_a_disk_that_fills_up_ends_the_run():
    """QEMU would try to write forever."""
    with tempfile.TemporaryDirectory() as d:
        program(f"{d}/guest/tsc", "echo 2600000\n")
        program(f"{d}/bin/qemu-system-x86_64", """
for word; do
        case $word in file,id=ktap,path=*) head -c 32M /dev/zero >"${word#*path=}" ;; esac
done
exec sleep 600
""")
        for words in (("bpf",), ("--bisect", "bpf"), ("--exec", "true")):
            code, err = with_a_small_disk("8m", d, "--no-retry", *words)
            assert code == 128 and "disk full" in err and "--build" in err, (code, err)


def mute_qemu(path):
    """Make a QEMU that prints one line for its guest; each boot adds a line to path/boots."""
    program(f"{path}/guest/init", "")
    program(f"{path}/guest/tsc", "echo 2600000\n")
    program(f"{path}/bin/qemu-system-x86_64", f"""
echo >>{path}/boots
for word; do
        case $word in socket,id=console,*) echo begins >"${{word#*logfile=}}" ;; esac
done
exec sleep 600
""")


def t_a_guest_that_shows_nothing_new_is_given_up_and_tried_once_more():
    run = ("import runpy, sys; sys.argv = sys.argv[1:]; import os; "
           "sys.path.insert(0, os.path.dirname(sys.argv[0])); import guest; "
           "guest.BOOT_SILENCE_S = 2; runpy.run_path(sys.argv[0], run_name='__main__')")
    with tempfile.TemporaryDirectory() as d:
        mute_qemu(d)
        for words, boots in (([], 2), (["--no-retry"], 1)):
            res = subprocess.run([sys.executable, "-c", run, VM_RUN, "--build", d, *fake_kernel(d),
                                  *words, "bpf"],
                                 capture_output=True, text=True, check=False,
                                 env={**os.environ, "PATH": f"{d}/bin:{os.environ['PATH']}"})
            assert res.returncode == 125, res
            assert "without output" in res.stderr and "never answered" in res.stderr and \
                   "/console shows" in res.stderr, res.stderr
            with open(f"{d}/boots", encoding="ascii") as f:
                assert len(f.readlines()) == boots, res.stderr
            os.unlink(f"{d}/boots")


def t_a_run_that_is_ended_has_results():
    """By a signal to its whole group, as `timeout` and pipelines send it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with tempfile.TemporaryDirectory() as d:
            mute_qemu(d)
            with subprocess.Popen([VM_RUN, "--build", d, *fake_kernel(d), "--junit", f"{d}/x.xml",
                                   "--json", "bpf"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**os.environ, "PATH": f"{d}/bin:{os.environ['PATH']}"},
                                  text=True, start_new_session=True) as run:
                try:
                    client.until(lambda: os.path.exists(f"{d}/boots"))
                    os.killpg(run.pid, number)
                    out, err = run.communicate(timeout=30)
                finally:
                    run.kill()
            why = f"ended by {number.name}"
            assert run.returncode == 128 + number and why in err, (run.returncode, err)
            got, = json.loads(out)["kernels"]
            assert got["faults"][0] == why and got["verdict"] != "pass", got
            root = xml.parse(f"{d}/x.xml").getroot()
            assert root.get("tests") == root.get("failures") == "1", xml.tostring(root)
            with open(f"{d}/boots", encoding="ascii") as f:
                assert len(f.readlines()) == 1      # not repeated


if __name__ == "__main__":
    ktap.run(globals())
