#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's own reasoning: the machine, runs, servers and their room.

No load, no privilege: what tools/bench makes of given numbers and files.
"""
import argparse
import contextlib
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
sys.path.insert(0, os.path.join(HERE, "../../tools/bench"))
sys.dont_write_bytecode = True
import ktap                     # noqa: E402
from bench_records import options, record, refused, sample  # noqa: E402

import arrivals                 # noqa: E402
import catalogue                # noqa: E402
import clients                  # noqa: E402
import compare                  # noqa: E402
import contents                 # noqa: E402
import engine                   # noqa: E402
import experiment               # noqa: E402
import experiments              # noqa: E402
import fileset                  # noqa: E402
import invoke                   # noqa: E402
import lab                      # noqa: E402
import bottleneck               # noqa: E402
import loads                    # noqa: E402
import pressure                 # noqa: E402
import report                   # noqa: E402
import remote                   # noqa: E402
import servers                  # noqa: E402
import sessions                 # noqa: E402
from messages import Problem    # noqa: E402


def as_nobody(fn, *args):
    """The exception or result of fn, as text, for a user without privileges."""
    if os.geteuid():
        return str(fn(*args))
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            ret = fn(*args)
        except BaseException as e:      # pylint: disable=broad-except
            ret = f"{type(e).__name__}: {e}"
        os.write(write, str(ret).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as f:
        ret = f.read()
    os.waitpid(pid, 0)
    return ret


def t_roots_lock_is_also_the_users():
    old = lab.LOCK
    with tempfile.TemporaryDirectory() as there:
        os.chmod(there, 0o755)
        lab.LOCK = os.path.join(there, "lock")
        try:
            os.close(lab.lock())
            os.chmod(lab.LOCK, 0o444)
            assert as_nobody(lab.lock).isdigit(), as_nobody(lab.lock)
            held = lab.lock()
            assert "Problem: another benchmark" in as_nobody(lab.lock) or os.geteuid()
            os.close(held)
            os.chmod(lab.LOCK, 0)
            if not os.geteuid():
                assert f"Problem: {lab.LOCK}: Permission denied" in as_nobody(lab.lock)
        finally:
            lab.LOCK = old


def t_a_run_may_have_any_number_of_servers():
    old = lab.sh
    lab.sh = lambda *_, **__: ""
    try:
        with tempfile.TemporaryDirectory() as there:
            here = lab.Lab([0], [1])
            here.dir = there
            for _ in range(600):
                name, _, _ = here.link()
                assert not os.listdir(there), "files of the link's last server"
                for left in ("-tables/x", ".sock", "-0.fcgi"):
                    os.makedirs(os.path.join(there, name + left))
                here.unlink(name)
            held = {here.link()[:2] for _ in range(255)}
            assert len(held) == 255, held
            refused(here.link, text="more than 255 servers at a time")
            here.unlink(min(held)[0])
            assert here.link()[:2] == min(held)
    finally:
        lab.sh = old


def t_loops_that_keep_cpus_awake_end_with_a_killed_run():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        here = lab.Lab({min(os.sched_getaffinity(0))}, [1])
        here.soak()
        os.write(write, b"%d" % here.procs[0].pid)
        signal.pause()
    loop = os.pidfd_open(int(os.read(read, 20)))
    assert not select.select([loop], [], [], 0)[0]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ended = select.select([loop], [], [], 60)[0]
    if not ended:
        signal.pidfd_send_signal(loop, signal.SIGKILL)
    for fd in (loop, read, write):
        os.close(fd)
    assert ended, "it goes on"


def t_cgroups_lose_the_memory_that_they_had_of_us():
    def control():
        with open(f"{root}/cgroup.subtree_control", encoding="ascii") as f:
            return f.read()

    def put(name, text):
        os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
        with open(f"{root}/{name}", "w", encoding="ascii") as f:
            f.write(text)

    old, ends = lab.memory_roots, (lambda here: here.close(), lambda _: lab.remove_stale())
    old_sh, old_places = lab.sh, lab.places
    lab.sh = lambda *_, **__: ""
    try:
        for before, limit_, after in (("cpu", "max", "-memory"), ("cpu", "7", "cpu+memory"),
                                      ("cpu memory", "max", "cpu memory")):
            for end in ends:
                with tempfile.TemporaryDirectory() as root:
                    lab.memory_roots = lambda: [(root, "memory.max")]
                    lab.places = lambda: [root]
                    here = lab.Lab([0], [1])
                    here.dir = tempfile.mkdtemp(prefix=lab.FOLDER, dir=root)
                    put("cgroup.subtree_control", before)
                    put("theirs/memory.max", limit_)
                    os.unlink(here.limit_memory(5) + "/memory.max")     # of a real one it goes too
                    end(here)
                    assert control() == after and not os.path.exists(here.dir or ""), \
                           (before, control())
    finally:
        lab.memory_roots, lab.sh, lab.places = old, old_sh, old_places


def t_a_long_load_reports_that_it_continues():
    old, loads.SAY_S = loads.SAY_S, 0.02
    try:
        for text, limit_s, got in (("sleep 0.5; echo done", 60, "done\n"), ("sleep 60", 0.5, None)):
            with contextlib.redirect_stderr(io.StringIO()) as err, subprocess.Popen(
                    ["sh", "-c", "exec 2>&1; " + text], stdout=subprocess.PIPE, text=True) as proc:
                try:
                    assert loads.wait_for("x", proc, time.monotonic(), limit_s)[0] == got
                except Problem as e:
                    assert got is None and "still running 0.5 s" in str(e), e
                proc.kill()
            assert err.getvalue().count("x has run for 0 s\n") >= 2, err.getvalue()
    finally:
        loads.SAY_S = old


def t_a_server_that_cannot_start_leaves_nothing():
    old = lab.sh
    lab.sh = lambda *_, **__: ""

    class Server(servers.Server):
        def launch(self):
            self.file("conf", "")
            self.proc = here.spawn(["sleep", "1000"], [0], None)
            raise Problem("not ready")

    try:
        with tempfile.TemporaryDirectory() as there:
            here = lab.Lab([0], [1])
            here.dir, here.remote = there, True
            nr = len(here.free)
            server = Server(here, "x")
            for _ in range(2):
                with contextlib.redirect_stderr(io.StringIO()):
                    refused(server.start, text="not ready")
                left = here.procs, len(here.free), server.proc, os.listdir(there)
                assert left == ([], nr, None, []), left
    finally:
        lab.sh = old


def t_nginx_may_cache_files_however_few_descriptors_there_are():
    """No experiment has many files and many connections."""
    assert servers.descriptors(20000, 20000) == (10000, 10000)
    assert servers.descriptors(65536, 20000) == (32768, 32768)
    assert servers.descriptors(1048576, 20000) == (41000, 200000)
    assert servers.descriptors(20000, 1000) == (3000, 17000)


def t_numbers_are_finite_and_in_range():
    for name, *words in (("sessions", "--rates", "nan"), ("sessions", "--rates", "10,inf"),
                         ("sessions", "--rates", "10,10"), ("sessions", "--rates", "0"),
                         ("sessions", "--rates", "x"),
                         ("sessions", "--think", "nan"), ("sessions", "--size", "0"),
                         ("rates", "--low", "0"), ("rates", "--high", "0"),
                         ("rates", "--timeout", "0"),
                         ("rates", "--timeout", "-1"), ("rates", "--calls", "0"),
                         ("overload", "--limit", "0"), ("tiers", "--max-minutes", "nan"),
                         ("tiers", "--link-mbit", "nan", "--server", "a=h:1"),
                         ("tiers", "--repeats", "0"),
                         ("caches", "--folders", "0"), ("convert", "--idle", "nan", "x"),
                         ("convert", "--burst", "-1", "x"), ("convert", "--sessions", "0", "x"),
                         ("convert", "--methods", "FOO", "x"), ("cost", "--patience", "inf"),
                         ("cost", "--repeats", "0"), ("objects", "--objects", "x"),
                         ("objects", "--objects", "1,,2"), ("objects", "--objects", "5,5"),
                         ("overload", "--slow", "0"), ("connections", "--connections", "1.5"),
                         ("web99", "--connections", "-1"), ("held", "--hold", "x"),
                         ("cpus", "--cpus", "0"), ("cpus", "--cpus", "9999"),
                         ("rates", "--low", "5", "--high", "1"), ("dynamic", "--shares", "200"),
                         ("dynamic", "--shares", "x"), ("tiers", "--servers", "foo"),
                         ("tiers", "--servers", "nginx-wire"), ("tiers", "--servers", "toboggan-"),
                         ("tiers", "--servers", "nginx,nginx"), ("tiers", "--servers", "nginx,"),
                         ("tiers", "--stat", "cat '", "--server", "a=h:1"),
                         ("tiers", "--stat", " ", "--server", "a=h:1")):
        err = io.StringIO()
        try:
            with contextlib.redirect_stderr(err):
                catalogue.command(name)(words)
        except SystemExit as e:
            assert e.code == 2 and words[0] in err.getvalue(), (words, e.code, err.getvalue())
        else:
            raise AssertionError(f"{name} {words} was accepted")
    assert invoke.own_defaults(arrivals.Sessions)["rates"] == [10, 50]
    assert options("held", "--hold", "50,0").hold == [0, 50]
    assert "want seconds" in refused(sessions.parse, "/a think=nan\n")


def t_an_experiment_that_needs_the_lab_names_others_for_a_remote_server():
    for name in ("capacity", "caches"):
        try:
            catalogue.command(name)(["--server", "a=h:1"])
        except Problem as why:
            said = str(why)
        else:
            raise AssertionError(f"{name} was begun")
        assert f"--server is not for {name}: " in said and "leave it out" in said, said
        able = said.rsplit(": ", 1)[1].strip().split(", ")
        assert "rates" in able and "sizes" in able and name not in able, able


def t_a_record_that_lacks_something_is_named():
    with tempfile.TemporaryDirectory() as there:
        path = os.path.join(there, "run.json")
        for text, key in (('', "experiments"), (', "experiments": []', "machine"),
                          (', "experiments": [{"name": "x"}]', "points")):
            with open(path, "w", encoding="utf-8") as f:
                f.write('{"kind": "toboggan-bench", "format": 1%s}' % text)
            assert path in refused(compare.main, [there, there], text=f"`{key}`")
            refused(report.main, [there], text=path)


def t_the_program_needs_no_path():
    program = os.path.join(HERE, "../../tools/bench/bench")
    got = subprocess.run([sys.executable, program, "compare", "--help"], stdout=subprocess.PIPE,
                         text=True,
                         check=False, env={k: v for k, v in os.environ.items() if k != "PATH"})
    assert got.returncode == 0 and "95 % conf" in " ".join(got.stdout.split()), got


def t_an_interrupt_has_no_traceback_however_early():
    program = os.path.join(HERE, "../../tools/bench/bench")
    with tempfile.TemporaryDirectory() as there:
        shutil.copy(program, there)
        with open(os.path.join(there, "catalogue.py"), "w", encoding="ascii") as f:
            f.write("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        got = subprocess.run([sys.executable, os.path.join(there, "bench")], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, check=False)
    assert (got.returncode, got.stdout, got.stderr) == (130, "", ""), got


def t_only_the_first_interrupt_counts():
    ends, done = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), []

    class Quiet(lab.Lab):
        open = staticmethod(lambda: None)

        def close(self):
            os.kill(os.getpid(), signal.SIGINT)
            done.append("closed")

    here, old, before = Quiet([0], [1]), lab.lock, [signal.getsignal(s) for s in ends]
    lab.lock = lambda: os.open(os.devnull, os.O_RDONLY)
    try:
        with here:
            pass
        assert done == ["closed"] and [signal.getsignal(s) for s in ends] == before, done
        try:
            with here:
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("reported")
        assert done == ["closed", "closed", "reported"], done
    finally:
        lab.lock = old
        for signum, handler in zip(ends, before):
            signal.signal(signum, handler)


def t_a_full_disk_is_reported_in_one_line():
    program = os.path.join(HERE, "../../tools/bench/bench")
    for words in (["--help"], ["compare", "--help"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            got = subprocess.run([sys.executable, program, *words], stdout=full,
                                 stderr=subprocess.PIPE,
                                 text=True, check=False)
        assert got.returncode == 1 and got.stderr.count("\n") == 1, got
        assert got.stderr.startswith("bench: ") and "No space left" in got.stderr, got


def t_a_run_whose_disk_is_full_keeps_what_was_measured():
    class Run:
        lab, opts = contextlib.nullcontext(), argparse.Namespace(out=tempfile.gettempdir())

        def experiments(self, exps):
            raise OSError(28, "No space left on device")
    Run.lab.remote = False
    assert "No space left" in invoke.measure(Run(), [], {"experiments": [{"samples": [1]}]})


def t_what_the_benchmark_needs_of_a_build_lies_beside_the_tool():
    with tempfile.TemporaryDirectory() as there:
        for place, build in (("bin/tools/bench", f"{there}/bin"), ("lib/toboggan/bench", "none")):
            os.makedirs(f"{there}/bin", exist_ok=True)
            shutil.rmtree(f"{there}/bin/tools", ignore_errors=True)
            os.makedirs(f"{there}/{place}")
            shutil.copy(os.path.join(ktap.BUILD, "toboggan"), f"{there}/bin")
            with open(f"{there}/{place}/bench", "w", encoding="ascii") as f:
                f.write("#!/bin/sh\necho ${O-none}\n")
            os.chmod(f"{there}/{place}/bench", 0o755)
            got = subprocess.run([f"{there}/bin/toboggan", "bench"], stdout=subprocess.PIPE,
                                 text=True,
                                 check=True, env={**os.environ, "O": "/nonexistent"})
            assert got.stdout.strip() == build, (place, got)


def t_a_missing_tool_is_named_before_anything_is_made():
    which = invoke.shutil.which
    invoke.shutil.which = lambda tool: None if tool == "wrk" else "/bin/" + tool
    try:
        for name in ("tiers", "sizes", "cpus", "clients"):
            refused(invoke.build, name, options(name), text=f"{name}: wrk is missing")
        exps, refused_, out = invoke.build("all", options("all", "--quick"))
        assert {e.name for e in exps} == set(invoke.EXPERIMENTS) - {
            "tiers", "sizes", "cpus", "clients"} and len(out) == 4 and not refused_, out
        for words, code in (((), 1), (("--client", "load"), 0)):
            assert exit_code("rates" if words else "all", "--quick", *words) == code, words
        assert invoke.build("rates", options("rates", "--client", "load"))[0]
    finally:
        invoke.shutil.which = which


def t_a_server_that_is_not_installed_is_left_out_and_named():
    old = invoke.KINDS
    invoke.KINDS = {name: argparse.Namespace(installed=lambda name=name: name != "b")
                    for name in "abc"}
    try:
        got = invoke.choose_servers(argparse.Namespace(remote={}, servers=None))
    finally:
        invoke.KINDS = old
    assert got == (["a", "c"], ["b: it is not installed"]), got


def exit_code(name, *words):
    """The exit code of a run that measures nothing and ends normally."""
    old = {key: getattr(invoke, key) for key in ("measure", "make_lab", "choose_servers",
                                                 "make_record")}
    check_machine = invoke.laboratory.check_machine
    invoke.laboratory.check_machine = lambda _: None
    invoke.measure = lambda *_: None
    invoke.make_lab = lambda _: None
    invoke.choose_servers = lambda _: ([], [])
    invoke.make_record = lambda *_: dict(record(), experiments=[])
    try:
        with tempfile.TemporaryDirectory() as there, contextlib.redirect_stderr(io.StringIO()), \
             contextlib.redirect_stdout(io.StringIO()):
            return invoke.main(name, [*words, "--out", there])
    finally:
        vars(invoke).update(old)
        invoke.laboratory.check_machine = check_machine


def t_room_is_looked_for_where_the_files_will_be():
    """Also for folders that do not exist yet."""
    asked, old, room = [], (os.statvfs, os.getcwd()), 1 << 40

    def statvfs(path):
        asked.append(path)
        return argparse.Namespace(f_bavail=room, f_frsize=1, f_favail=0)

    rows = [(1, f"/{i}", 1 << 20) for i in range(4)]
    with tempfile.TemporaryDirectory() as there, contextlib.redirect_stderr(io.StringIO()) as err:
        os.statvfs = statvfs
        try:
            os.chdir(there)
            os.mkdir("mounted")
            for root in ("mounted", "site", f"{there}/a/b/c"):
                fileset.Files(rows[:2]).make(root)
            room = 3 << 20          # two of the four are there
            fileset.Files(rows).make("site")
            refused(fileset.Files(rows).make, "none", text="4 MiB of files needed, 3 MiB free")
        finally:
            os.statvfs = old[0]
            os.chdir(old[1])
    assert asked == [f"{there}/mounted", there, there, f"{there}/site", there], asked
    assert "make 2 files, 2 MiB\nmake 4 files, 4 MiB\n" in err.getvalue(), err.getvalue()


def t_objects_without_room_are_left_out_and_named():
    class Lab:
        remote = False

    class Run:
        lab = Lab

    class Full(fileset.Files):
        def make(self, root):
            raise Problem("no room")

    with contextlib.redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as Lab.dir:
        exp = clients.Objects(options("objects", "--objects", "10,20"))
        huge = experiment.Point(1 << 50, "huge")
        memory = exp.server_options(Run, huge)["memory"]
        assert int(memory[:-1]) < (1 << 50) * 8192 >> 20 and \
               "half of this machine's" in exp.notes[0]
        exp.points[1].files = Full([])
        exp.sites(Run)
        assert [p.x for p in exp.points] == [10] and "20 objects are left out" in exp.notes[-1]
        exp.points[0].files = Full([])
        refused(exp.sites, Run, text="no room")


def t_the_files_of_overload_are_several_times_its_memory():
    for mib in (64, 128, 500):
        exp = pressure.Overload(options("overload", "--limit", str(mib)))
        size = sum(r[2] for r in exp.files.rows)
        assert 4 <= size / (mib << 20) <= 8, (mib, size)
        assert max(r[2] for r in exp.files.rows) == 60 << 20
        assert abs(sum(r[0] for r in exp.files.rows) - 1) < 1e-9
    none = {"requests": 0, "errors": 0, "statuses": 0}
    assert exp.tolerate(engine.fault(loads.Ours(1), none), none) is None
    assert exp.tolerate("3 errors", dict(none, errors=3))
    with tempfile.TemporaryDirectory() as there:
        def write(name, text):
            with open(os.path.join(there, name), "w", encoding="ascii") as f:
                f.write(text)

        s, where = {}, (exp.points[0], argparse.Namespace(name="x", cgroup=there))
        write("memory.current", f"{300 << 20}")
        write("memory.events", "low 0\nhigh 0\nmax 7\noom 0\n")
        exp.full_before = 5
        exp.memory(*where, s)
        assert s == {"memory_bytes": 300 << 20, "memory_full": 2} and not exp.notes, s
        write("memory.peak", f"{400 << 20}")
        exp.memory(*where, s)
        assert s == {"memory_bytes": 400 << 20, "memory_full": 2} and not exp.notes, s
        exp.full_before = 7
        with contextlib.redirect_stderr(io.StringIO()):
            exp.memory(*where, s)
        assert "had 400 of 500 MiB at most: its memory was never full" in exp.notes[0], exp.notes
        write("memory.max_usage_in_bytes", f"{499 << 20}")
        write("memory.failcnt", "7")
        exp.memory(*where, s)
        assert s["memory_bytes"] == 499 << 20 and len(exp.notes) == 1, s
        lab.memory_begin(there)
        assert lab.memory_used(there) == (0, 7)


def t_the_last_point_of_cpus_notes_what_it_does_not_show():
    args = options("cpus")
    args.cpu_list = [3, 5, 6]
    exp = clients.Cpus(args)
    assert [p.x for p in exp.points] == [1, 2, 3] and "with all 3 CPUs, the clients" in exp.notes[0]
    s = {"cpus": 3, "cpu_ns": 1.0, "server_share": 1.0, "server_busiest": 1.0, "ran_ns": 5.0}
    exp.after(None, exp.points[2], None, s, {})
    assert s["cpu_ns"] is s["server_share"] is s["server_busiest"] is None and s["ran_ns"] == 5.0
    assert bottleneck.refused(exp.own_limit(s)[0]) and exp.own_limit({"cpus": 2}) is None
    args.cpus = [4]
    refused(clients.Cpus, args, text="there are 3")
    args.cpus = [2]
    assert not clients.Cpus(args).notes


def t_each_point_of_cpus_has_its_cpus():
    """Also where a server is the one of the last repeat, since it was left out at the points
    between."""
    args = options("cpus", "--repeats", "4")
    args.cpu_list, args.out, args.servers, seen = [3, 5, 6], None, ["a", "b"], []
    exp = clients.Cpus(args)
    here = argparse.Namespace(server_cpus={3}, client_cpus={5, 6}, remote=False, dir="/")
    exp.cpus = here.server_cpus, here.client_cpus
    run = engine.Run(here, args, {"experiments": []})

    class Server:
        def __init__(self, name, **_):
            self.name, self.cpus = name, here.server_cpus

        setup = staticmethod(lambda: {"commands": []})
        start = stop = lambda self: None

    def sample(_, point, server, repeat):
        seen.append((repeat, point.x, server.name))
        assert server.cpus == here.server_cpus == set(args.cpu_list[:point.x]), seen
        assert here.client_cpus == set(args.cpu_list[point.x:] or args.cpu_list), seen
        return engine.Sample(invalid="no" if server.name == "a" and point.x < 3 else None)

    run.sample, run.finish, run.progress = sample, lambda *_: None, lambda *_: None
    exp.prepare = lambda *_: None
    exp.sides = lambda _: [(name, lambda name=name, **kw: Server(name, **kw)) for name in "ab"]
    run.experiments([exp])
    assert len(seen) == 4 * 3 * 2 - 2 * 2 and (2, 2, "a") not in seen and (2, 3, "a") in seen, seen
    assert here.server_cpus == {3} and here.client_cpus == {5, 6}
    assert run.record["experiments"][0]["settings"] == exp.settings


def t_a_run_that_ends_early_names_what_it_never_began():
    args = options("all", "--repeats", "1")
    args.servers = ["a", "b"]
    exps = [experiments.EXPERIMENTS[name](options(name))
            for name in ("keepalive", "sizes", "caches")]
    here = argparse.Namespace(dir="/", remote=False)
    rec = record(complete=False)
    rec["experiments"] = []
    run = engine.Run(here, args, rec)
    server = argparse.Namespace(setup=lambda: {"commands": []}, start=lambda: None,
                                stop=lambda: None)
    taken = []

    def one(exp, point, name, repeat):
        taken.append((exp.name, point.label, name))
        if len(taken) == 2 * len(exps[0].points) + 3:
            run.deadline = 0
        return sample(point.x, name, repeat, 1000.0)
    run.sample = lambda exp, point, server, repeat: one(exp, point, server.name, repeat)
    run.server = lambda exp, point, name, make: argparse.Namespace(**vars(server), name=name)
    run.progress = lambda *_: None
    for exp in exps:
        exp.sides = lambda _: [(name, None) for name in "ab"]
        exp.prepare = exp.enter = exp.leave = lambda *_: None
    with tempfile.TemporaryDirectory() as folder:
        args.out = folder
        refused(run.experiments, exps, text="what was measured so far")
        assert [e["name"] for e in report.load(folder)["experiments"]] == \
            ["keepalive", "sizes", "caches"], "also of a run that is killed"
        report.write(rec, folder)
        assert not os.path.exists(os.path.join(folder, "caches.csv"))
    page = report.page(rec)
    sections = dict(zip(["head", "keepalive", "sizes", "caches"], page.split("<section")))
    assert "The run ended before" not in sections["keepalive"]
    assert f"<li>{exps[1].points[1].label}: b</li>" in sections["sizes"], sections["sizes"]
    assert f"<li>{exps[1].points[-1].label}: a, b</li>" in sections["sizes"]
    assert f"<li>{exps[1].points[0].label}:" not in sections["sizes"]
    assert "The run ended before this experiment." in sections["caches"], sections["caches"]
    rec["experiments"] = []
    refused(run.experiments, exps, text="nothing was measured")
    full = record()
    full["experiments"][0]["name"] = "caches"
    assert "caches: only in B" in compare.compare(rec, full)[1]


def t_servers_of_which_none_can_are_refused():
    class Lab:
        remote = False

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    class Run:
        lab, opts = Lab(), options("dynamic")

    Run.opts.servers = ["lighttpd", "apache2"]
    with tempfile.TemporaryDirectory() as there:
        # what was there stays, also if it is empty
        for left, out in (([], "a/b"), (["own"], "own")):
            Run.opts.out = os.path.join(there, out)
            if left:
                os.mkdir(Run.opts.out)
            refused(invoke.measure, Run, [contents.Dynamic(Run.opts)], {"experiments": []},
                    text="none of lighttpd, apache2 can do it")
            assert os.listdir(there) == left, os.listdir(there)


def t_a_run_that_is_not_let_in_touches_no_folder():
    @contextlib.contextmanager
    def locked():
        raise Problem("another benchmark is running")
        yield

    with tempfile.TemporaryDirectory() as there:
        os.mkdir(os.path.join(there, "theirs"))     # of the one that was let in, empty so far
        for name in ("theirs", "new"):
            run = argparse.Namespace(lab=locked(),
                                     opts=argparse.Namespace(out=os.path.join(there, name)))
            refused(invoke.measure, run, [], {"experiments": []}, text="another benchmark")
            assert os.listdir(there) == ["theirs"]


def t_servers_on_different_hosts_have_their_own_command_and_network():
    two = ("tiers", "--server", "a=127.0.0.1:1", "--server", "b=localhost:2")
    args = options(*two, "--stat", "a=echo 'cpu0 1 2 3 4 5 6 7 8'", "--stat", "b=cat /none")
    with contextlib.redirect_stderr(io.StringIO()) as err:
        here = invoke.make_lab(args)
    assert not err.getvalue(), err.getvalue()
    a, b = (servers.Existing(here, *one) for one in args.remote.items())
    assert here.stat(a)().startswith("cpu0 1"), "not its own command"
    refused(here.stat(b), text="--stat cat /none")
    here.ifaces["localhost"] = "none-there"
    assert here.net_bytes(a) and here.net_bytes(b) == (0, 0)
    place = invoke.topology(here, args)
    assert place["stat"]["b"] == "cat /none" and place["link_bps"] is None, place
    rec = record()
    rec["topology"] = dict(place, link_bps={"a": 1e9, "b": None})
    page = report.page(rec)
    for fact in ("processor", "kernel", "sysctls"):
        assert f"<dt>client&#x27;s {fact}</dt>" in page and \
               f"<dt>{fact}</dt>" in report.page(record())
    assert "b cat /none" in page and "link a 1 Gbit/s, b of unknown rate" in page, page[-3000:]
    with contextlib.redirect_stderr(io.StringIO()) as err:
        assert invoke.make_lab(options(*two, "--stat", "a=x")).stat(b) is None
    assert "no processor time of b" in err.getvalue()
    for words, text in ((("--stat", "cat /proc/stat"), "on different hosts"),
                        (("--stat", "a=x", "--stat", "a=y"), "a has a command already"),
                        (("--stat", "c=x"), "there is no --server c, but a, b")):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                options(*two, *words)
            except SystemExit as e:
                assert e.code == 2 and text in err.getvalue(), err.getvalue()
            else:
                raise AssertionError(f"{words} was accepted")
    same = options("tiers", "--server", "a=h:1", "--server", "b=h:2", "--stat", "cat x")
    assert same.stats == {"a": "cat x", "b": "cat x"}


def t_a_host_is_looked_up():
    assert remote.interface("localhost") == remote.interface("[::1]") == "lo"
    assert remote.nominal_bps("lo") is None and remote.nominal_bps(None) is None
    refused(remote.interface, "no.such.host.invalid", text="no.such.host.invalid")


def t_a_rate_is_believed_of_a_device_only():
    old = remote.NET
    with tempfile.TemporaryDirectory() as remote.NET:
        for name, parts in (("eth0", ("device", "speed")), ("vif", ("speed",)),
                            ("down", ("device",))):
            os.mkdir(os.path.join(remote.NET, name))
            for part in parts:
                with open(os.path.join(remote.NET, name, part), "w", encoding="ascii") as f:
                    f.write("10000\n")
        got = [remote.nominal_bps(name) for name in ("eth0", "vif", "down")]
    remote.NET = old
    assert got == [1e10, None, None], got


if __name__ == "__main__":
    ktap.run(globals())
