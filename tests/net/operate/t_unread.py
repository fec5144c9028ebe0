#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A stderr that nobody reads: its lines delay no client and no command."""
import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import origin

F_SETPIPE_SZ = 1031
TOOL = os.path.join(ktap.BUILD, "toboggan")
folder = ""             # of all that the tests make


def begin():
    global folder
    folder = daemon.folder_with_root()


def end():
    shutil.rmtree(folder)


def base(**more):
    return daemon.options(folder, **more)


@contextlib.contextmanager
def unread(*options):
    """A daemon whose stderr is full, the end of that which nobody reads, and its port."""
    r, w = os.pipe()
    fcntl.fcntl(w, F_SETPIPE_SZ, 4096)
    d = subprocess.Popen([daemon.BINARY, *options], stderr=w)
    os.close(w)
    got = b""
    while b"ready " not in got:
        assert select.select([r], [], [], client.WAIT_S)[0], got
        more = os.read(r, 4096)
        assert more, got
        got += more
    w = os.open(f"/proc/self/fd/{r}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while os.write(w, b"-\n"):
            pass
    except BlockingIOError:
        pass
    os.close(w)
    try:
        yield d, r, int(re.search(rb"ready .*?:(\d+)", got)[1])
    finally:
        d.terminate()
        assert d.wait(client.WAIT_S) == 0
        os.close(r)


def t_stderr_that_nobody_reads_holds_up_nothing():
    control = os.path.join(folder, "stuck.sock")
    with unread(*base(control=control)) as (d, _, _):
        for _ in range(100):        # a line for each, 9 KB of them
            d.send_signal(signal.SIGHUP)
            subprocess.run([TOOL, "--control", control, "status"], capture_output=True,
                           timeout=client.WAIT_S,
                           check=True)


def t_a_module_that_crashes_and_nobody_reads_of_it():
    control = os.path.join(folder, "crash.sock")
    path = os.path.join(folder, "crash.conf")
    bad = shutil.copy(os.path.join(ktap.BUILD, "tests/net/bad.so"), folder)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'location "/bad" {{ module = "{bad}" module-workers = 1 module-time = 1s }}\n')
    with unread(*base(control=control, config=path)) as (_, _, port):
        for what, status in (("crash", 502), ("loop", 504)):
            assert origin.ask(("127.0.0.1", port), "GET", "/bad?" + what).status == status, what
            client.until(lambda: origin.ask(("127.0.0.1", port), "GET", "/bad?pid").status == 200,
                         "no new worker")


def t_a_bad_reload_and_a_bad_log_that_nobody_reads_of():
    """Each line was a plain write(), of the control thread or of one that it waits for."""
    path = os.path.join(folder, "stuck.conf")
    control = os.path.join(folder, "stuck.sock")
    with open(path, "w", encoding="utf-8"):
        pass
    logs = os.path.join(folder, "logs")
    os.mkdir(logs)
    log = os.path.join(logs, "log")
    os.symlink("/dev/full", log)
    with unread(*base(control=control, config=path, access_log=log)) as (d, _, port):
        for text in ('speed = 9\n', 'upstream = "none"\n', f'root = "{log}"\n'):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            for _ in range(40):
                for _ in range(2):
                    with client.Client(("127.0.0.1", port)) as c:
                        c.get("/none")
                d.send_signal(signal.SIGHUP)
                shutil.rmtree(logs, ignore_errors=True)     # nowhere to open it again
                d.send_signal(signal.SIGUSR1)
                subprocess.run([TOOL, "--control", control, "status"], capture_output=True,
                               timeout=client.WAIT_S,
                               check=True)


def t_what_a_program_writes_to_nobody_holds_up_no_worker():
    programs = os.path.join(folder, "programs")
    os.mkdir(programs)
    with open(os.path.join(programs, "loud"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nyes 'that is how it is' | head -n 900 >&2\nprintf 'A: b\\n\\nsaid'\n")
    os.chmod(f.name, 0o755)
    path = os.path.join(folder, "loud.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'location "/p/" {{ cgi = "{programs}" }}\n')
    with unread(*base(workers="1", config=path)) as (d, r, port):
        began = time.monotonic()
        for _ in range(2):
            assert origin.ask(("127.0.0.1", port), "GET", "/p/loud").body == b"said"
        took = time.monotonic() - began
        assert took < 5, f"{took:.1f} s; 10 ms for each line are 18 s"
        os.set_blocking(r, False)
        got = b""
        while b"are lost" not in got:       # told once there is room again
            d.send_signal(signal.SIGHUP)
            try:
                got += os.read(r, 65536)
            except BlockingIOError:
                time.sleep(0.01)
            assert time.monotonic() < began + client.WAIT_S, got[-200:]
        assert re.search(rb"\nstderr: nobody read it; \d{3,4} lines before the last one are lost\n",
                         got), got[-500:]


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
