#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's laboratory: its measurements, and that it leaves nothing behind.

Short samples on a machine that may be busy: that figures are there and whole is
checked, never what they are.
"""
import glob
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import benched                  # noqa: E402
import ktap                     # noqa: E402

import fileset                  # noqa: E402
import lab                      # noqa: E402
import meters                   # noqa: E402
import servers                  # noqa: E402

RUNS_MAX = 5
# Ends by itself: nobody kills it if this program is killed. RUNS_MAX runs may take half an hour.
BUSY = """import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(10000))
"""
ONE = ("connections", "--quick", "--connections", "4", "--servers", "toboggan")


def setup():
    if os.geteuid():
        raise ktap.Skip("not root: no network namespace can be made")
    os.close(benched.wait_for_lock())


def clean():
    assert not benched.leftovers(), benched.leftovers()


def whole(done, experiment):
    """Every sample gives a figure, and the files exist."""
    assert done.code == 0 and done.record["complete"], (done.code, done.record["ended"])
    for s in benched.samples(done.record):
        assert not s["invalid"] and s["requests"] > 0 and s["limit"], s
    files = os.listdir(done.folder)
    assert {"report.html", "run.json", f"{experiment}.csv"} <= set(files), files
    clean()


class Watched:
    """A run whose progress is read line by line."""

    def __init__(self, *words):
        while True:
            self.proc, self.out = benched.start(*words)
            self.lines, first = [], self.proc.stderr.readline()
            self.lines.append(first)
            if "another benchmark" not in first:
                break
            self.proc.wait()
            os.close(benched.wait_for_lock())
        self.timer = threading.Timer(benched.RUN_S, self.proc.kill)
        self.timer.start()

    def until(self, text):
        for line in self.proc.stderr:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"no `{text}` in {''.join(self.lines)}")

    def end(self):
        self.lines += self.proc.stderr.readlines()
        code = self.proc.wait()
        self.timer.cancel()
        ktap.note("".join(self.lines))
        return benched.Done(code, self.proc.stdout.read(), "".join(self.lines),
                            benched.record_of(self.out), self.out)


def descendants(pid):
    out = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as f:
            for child in map(int, f.read().split()):
                out += [child] + descendants(child)
    return out


def named(pid, name):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read().strip() == name


def t_every_installed_server_is_measured_beside_toboggan():
    there = [n for n, kind in servers.KINDS.items() if kind.installed()]
    assert "toboggan" in there and "nginx" in there, there
    done = benched.run("connections", "--quick", "--connections", "2")
    whole(done, "connections")
    assert {s["server"] for s in benched.samples(done.record)} == set(there)
    assert all(done.record["servers"].values()), done.record["servers"]
    for row in done.record["experiments"][0]["summary"]:
        if row["server"].startswith("toboggan"):
            ratio = row["ratios"]["cpu_ns"]     # a second of a busy machine may be 0 ns
            assert ratio is None or ratio["pairs"] + ratio["dropped"] == 1, ratio
    for s in benched.samples(done.record):
        assert s["limit_why"] and s["halves_ratio"], s


def t_each_side_has_its_cpus_and_the_receiving_of_its_packets():
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise ktap.Skip("one CPU")
    sides = {cpus[-1]}, {cpus[0]}       # not what is there without
    with lab.Lab(*sides) as here:
        name, _, _ = here.link()
        for cpu, ns, spawn in zip(sides, (here.server, here.client),
                                  (here.spawn_server, here.spawn_client)):
            proc = spawn(["sleep", "60"])
            assert os.sched_getaffinity(proc.pid) == cpu, (ns, os.sched_getaffinity(proc.pid))
            got = subprocess.run(["ip", "netns", "exec", ns, "sh", "-c",
                                  f"cat /sys/class/net/{name}/queues/rx-*/rps_cpus"],
                                 stdout=subprocess.PIPE, text=True, check=True).stdout.split()
            masks = [int(mask.replace(",", ""), 16) for mask in got]
            assert masks and set(masks) == {1 << min(cpu)}, (ns, got)
    clean()


SERVER = """import socket, sys
with socket.create_server(("", 1)) as server:
    print(flush=True)
    conns = [server.accept()[0] for _ in range(100)]
    for conn in conns:
        conn.recv(1)
    print(*{conn.getsockopt(socket.SOL_SOCKET, 49) for conn in conns})      # SO_INCOMING_CPU
"""
CLIENT = """import socket, sys
conns = [socket.create_connection((sys.argv[1], 1)) for _ in range(100)]
for conn in conns:
    conn.send(b"x")
for conn in conns:
    conn.recv(1)
"""


def t_what_comes_to_the_server_is_received_on_its_cpus():
    """From every queue of the clients' end; those are as many as their CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise ktap.Skip("one CPU")
    with lab.Lab({cpus[0]}, set(cpus[1:])) as here:
        name, addr, _ = here.link()
        server = here.spawn_server([sys.executable, "-c", SERVER], stdout=subprocess.PIPE,
                                   text=True)
        server.stdout.readline()
        here.spawn_client([sys.executable, "-c", CLIENT, addr])
        got = {int(word) for word in server.communicate(timeout=60)[0].split()}
        assert got == {cpus[0]}, got
        ends = [subprocess.run(["ip", "netns", "exec", ns, "ls", f"/sys/class/net/{name}/queues"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout
                for ns in (here.server, here.client)]
        assert ends[0] == ends[1], ends
    clean()


def t_ctrl_c_leaves_a_usable_partial_result():
    run = Watched(*ONE, "--repeats", "100")
    run.until("[2/")
    run.proc.send_signal(signal.SIGINT)
    partial(run.end())


def t_a_closed_terminal_leaves_a_usable_partial_result():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)    # under nohup the run would go on, as it should
    run = Watched(*ONE, "--repeats", "100")
    run.until("[2/")
    run.proc.stderr.close()
    run.proc.send_signal(signal.SIGHUP)
    run.proc.stderr = io.StringIO()
    partial(run.end())


def partial(done):
    assert done.code == 130 and done.record["ended"] == "interrupted", done.code
    assert not done.record["complete"]
    assert len([s for s in benched.samples(done.record) if not s["invalid"]]) >= 2
    with open(os.path.join(done.folder, "report.html"), encoding="utf-8") as f:
        page = f.read()
    assert "A partial result: interrupted" in page and "svg" in page
    clean()


def t_the_time_limit_leaves_a_usable_partial_result():
    done = benched.run(*ONE, "--repeats", "100", "--max-minutes", "0.08")
    assert done.code == 1 and "--max-minutes" in done.record["ended"], done.record["ended"]
    assert benched.samples(done.record)
    clean()


def t_a_report_that_cannot_be_written_is_named_and_its_tables_are_shown():
    """Here by a limit of the size of files; a full disk is the same to a program."""
    done = benched.run("capacity", "--rows", "1k", "--servers", "nginx", "--busy-machine",
                       "--repeats", "20", prefix=("prlimit", "--fsize=12000"))
    assert done.code == 1 and "Traceback" not in done.err, done.err
    assert done.err.count("run.json: File too large") == 2 and "Errno" not in done.err, done.err
    assert re.search(r"^requests a second .* nginx", done.out, re.M), done.out
    assert os.listdir(done.folder) == ["run.json"] and benched.samples(done.record), done.folder
    clean()


def t_a_server_that_dies_is_no_figure():
    run = Watched(*ONE, "--repeats", "5")
    run.until("[1/5")
    pid = next(p for p in descendants(run.proc.pid) if named(p, "toboggand"))
    os.kill(pid, signal.SIGKILL)
    done = run.end()
    first, *rest = benched.samples(done.record)
    assert done.code == 1 and not first["invalid"] and rest
    assert all(s["invalid"] for s in rest), rest
    row = done.record["experiments"][0]["summary"][0]
    assert row["valid"] == 1 and row["invalid"] == len(rest), row
    clean()


def t_pages_of_other_bytes_are_no_figure():
    """Of the right length: the file in them is another from the second sample on."""
    run = Watched("dynamic", "--quick", "--shares", "100", "--repeats", "2", "--servers",
                  "toboggan,nginx")
    run.until("[1/4")
    with open(file_of_the_lab(fileset.web99_path(0, 1, 0)), "r+b") as f:
        f.seek(500)
        f.write(b"X")
    done = run.end()
    first, *rest = benched.samples(done.record)
    assert done.code == 1 and not first["invalid"] and first["requests"] and len(rest) == 3, rest
    for s in rest:
        assert "body" in s["invalid"] and not s["requests"], s
    clean()


def file_of_the_lab(path):
    found = [name for place in lab.places()
             for name in glob.glob(f"{place}/{lab.FOLDER}*/site{path}")]
    assert len(found) == 1, found
    return found[0]


def t_a_killed_run_is_cleaned_up_by_the_next():
    run = Watched(*ONE, "--repeats", "100")
    run.until("[1/")
    run.proc.kill()
    assert run.end().code == -signal.SIGKILL
    assert benched.leftovers(), "nothing stayed: the test shows nothing"
    assert benched.record_of(run.out), "a killed run leaves its record"
    whole(benched.run(*ONE), "connections")


def t_two_runs_exclude_each_other():
    run = Watched(*ONE, "--repeats", "100")
    run.until("start toboggan")
    other, _ = benched.start(*ONE)
    _, err = other.communicate(timeout=benched.RUN_S)
    assert other.returncode == 1 and "another benchmark is running" in err, err
    run.proc.send_signal(signal.SIGTERM)
    assert run.end().code in (1, 130)
    clean()


def on_disk():
    """A place for a lab whose files can leave the page cache; of a tmpfs they are memory."""
    for place in lab.places():
        kind = subprocess.run(["stat", "-fc", "%T", place], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()
        if kind not in ("tmpfs", "ramfs"):
            return place
    raise ktap.Skip(f"no disk: {' '.join(lab.places())} are in memory")


def t_overload_is_held_to_its_memory():
    done = benched.run("overload", "--quick", "--slow", "5", "--limit", "64", "--seconds", "4",
                       env=dict(os.environ, TMPDIR=on_disk()))
    whole(done, "overload")
    assert len(benched.samples(done.record)) == len(done.record["servers"]) > 1
    for s in benched.samples(done.record):
        got = {**s, **s.get("withheld", {})}       # on a busy machine also the clients' CPUs are
        assert s["memory_full"] and s["memory_bytes"] > 0.9 * (64 << 20), s
        assert s["disk_reads"] > 0, "what does not fit is read from the disk"
        assert got["max_us"] and got["slow_bps"] > 0 and not s["slow_errors"], s


def t_the_table_of_costs_is_what_it_was():
    done = subprocess.run([benched.PROGRAM, "cost", "--quick", "--rows",
                           "wire,user-bare,proxy-bare,memory",
                           "--repeats", "1", "--seconds", "1", "--patience", "0"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=benched.RUN_S, check=False)
    ktap.note(done.stderr)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^row +toboggan +against +ratio \(min-max\) +target", done.stdout, re.M)
    assert re.search(r"^wire +[\d,]+ ns +[\d,]+ ns nginx +[\d.]+ .*<= 0.125", done.stdout, re.M)
    for row, floor in (("user-bare", "bare"), ("proxy-bare", "bare-proxy")):
        assert re.search(rf"^{row} +[\d,]+ ns +[\d,]+ ns {floor} +[\d.]+ .*(INFO|NOISY)",
                         done.stdout, re.M), done.stdout
    assert re.search(r"^memory +[\d.]+ MiB +<= 20.0 MiB +PASS", done.stdout, re.M), done.stdout
    clean()


def t_capacity_ends_with_its_table():
    done = benched.run("capacity", "--rows", "304,1k,8k", "--servers", "toboggan,nginx",
                       "--seconds", "0.5",
                       "--repeats", "1", "--busy-machine")
    assert {"report.html", "run.json", "capacity.csv"} <= set(os.listdir(done.folder)), done.out
    assert re.search(r"^requests a second +toboggan +nginx .*toboggan : nginx$", done.out, re.M), \
           done.out
    good = [s for s in benched.samples(done.record) if not s["invalid"]]
    assert {s["server"] for s in good} >= {"toboggan", "nginx", "floor"}, done.out
    for s in good:
        assert s["verified"] > 0 and s["requests"] > 0 and s["limit"], s
        assert bool(s["throughput"]) == (s["server_share"] >= 0.95 or s["limit"] == "at least"), s
    clean()


def t_capacity_s_tables_for_programs():
    done = benched.run("capacity", "--rows", "304", "--servers", "nginx", "--seconds", "0.3",
                       "--repeats", "1", "--json", "--busy-machine")
    got = json.loads(done.out)
    assert set(got["experiments"]["capacity"]["points"]) == {"304"} and got["machine"]["kernel"], \
           got
    clean()


def t_a_load_of_many_connections_comes_to_its_end():
    """Its first frames circulate between two TC programs, and are never free again."""
    queue = meters.first("/proc/sys/net/core/netdev_max_backlog", r"(\d+)", 1000)
    most = min(500, int(queue) // 2)
    done = benched.run("capacity", "--rows", "1k", "--servers", "toboggan", "--seconds", "0.2",
                       "--repeats", "1", "--busy-machine", "--browser", "--connections", str(most))
    for s in benched.samples(done.record):
        assert s["opened"] == most and s["requests"] > most, s
    assert len(benched.samples(done.record)) == 2, done.out
    clean()


def t_a_core_that_something_else_uses_gives_no_figure():
    first = min(os.sched_getaffinity(0))

    def beside():               # as urgent as the server, which else leaves it 2 %
        os.sched_setaffinity(0, {first})
        os.setpriority(os.PRIO_PROCESS, 0, -20)

    with open(os.devnull, "wb") as null:
        other = subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())], stdout=null,
                                 preexec_fn=beside)
    try:
        done, good = judged("capacity", "--rows", "304", "--servers", "nginx", "--seconds", "1",
                            "--repeats", "2")
    finally:
        other.kill()
        other.wait()
    for s in good:
        assert s["refused"] == "other programs on the server's CPUs", s
        assert "of their time" in s["limit_why"], s
    assert "other programs on the server's CPUs" in done.out, done.out
    clean()


def judged(*words):
    """(a run without any figure, its samples of loads that came to their end).

    The other work itself, on a machine that is busy besides, may make a load lose segments or
    connections. That sample is invalid before anything is asked about its core: run again.
    """
    for _ in range(RUNS_MAX):
        done = benched.run(*words)
        for s in benched.samples(done.record):
            assert s["invalid"] or s["refused"] and s["throughput"] is None, s
        good = [s for s in benched.samples(done.record) if not s["invalid"]]
        if good:
            return done, good
    raise AssertionError(f"no load came to its end in {RUNS_MAX} runs")


if __name__ == "__main__":
    ktap.run(globals(), setup=setup)
