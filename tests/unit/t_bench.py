#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's own reasoning: grammar, judgement, statistics, reports.

No load, no privilege: what tools/bench makes of given numbers and files.
"""
import argparse
import contextlib
import csv
import gzip
import io
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
sys.path.insert(0, os.path.join(HERE, "../../tools/bench"))
sys.dont_write_bytecode = True
import ktap                     # noqa: E402

import arrivals                 # noqa: E402
import capacity                 # noqa: E402
import catalogue                # noqa: E402
import clients                  # noqa: E402
import compare                  # noqa: E402
import contents                 # noqa: E402
import curves                   # noqa: E402
import cost                     # noqa: E402
import engine                   # noqa: E402
import experiment               # noqa: E402
import experiments              # noqa: E402
import fileset                  # noqa: E402
import invoke                   # noqa: E402
import lab                      # noqa: E402
import bottleneck               # noqa: E402
import loads                    # noqa: E402
import meters                   # noqa: E402
import plot                     # noqa: E402
import pressure                 # noqa: E402
import report                   # noqa: E402
import remote                   # noqa: E402
import servers                  # noqa: E402
import sessions                 # noqa: E402
import stats                    # noqa: E402
import terminal                 # noqa: E402
import units                    # noqa: E402
from messages import Problem    # noqa: E402


def refused(fn, *args, text=""):
    try:
        fn(*args)
    except Problem as e:
        assert text in str(e), f"{e!s} lacks {text!r}"
        return str(e)
    raise AssertionError(f"{fn.__name__}{args} was accepted")


def as_nobody(fn, *args):
    """What fn raises or returns, as text, of a user without privileges."""
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


def t_a_long_load_says_that_it_goes_on():
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


def t_sessions_ask_for_files_that_the_lab_can_make():
    with tempfile.NamedTemporaryFile("w", suffix=".sessions") as f:
        f.write("/blog think=3\n  /blog/post\n/a%20b.html\n/x/..\n/1k.jpg/x\n/%00\n/" + "n" * 300 +
                "\n\n/blog\n")
        f.flush()
        ap = argparse.ArgumentParser()
        arrivals.Sessions.options(ap)
        with contextlib.redirect_stderr(io.StringIO()):
            exp = arrivals.Sessions(argparse.Namespace(**vars(ap.parse_args([f.name])),
                                                          remote={}))
    assert [[c.uri for b in s for c in b] for s in exp.sessions] == [["/blog/post", "/a%20b.html"]]
    assert exp.sessions[0][0][0].think_s == 3, exp.sessions
    assert "left out 6 of 8 requests, for 5 URIs" in exp.notes[0], exp.notes
    assert arrivals.file_of("/a%20b.html") == "/a b.html" and \
           arrivals.file_of("/d/") == "/d/index.html"


def t_a_remote_server_is_asked_for_what_a_session_gets():
    run = argparse.Namespace(lab=argparse.Namespace(remote=True))
    made_up = arrivals.Sessions(options("sessions", "--server", "a=h:1", "--size", "5"))
    assert {(path, size, crc) for path, size, crc in made_up.check(run, None, None).rows} <= \
        {(path, size, fileset.crc(path, size)) for _, path, size in fileset.basic().rows}
    with tempfile.NamedTemporaryFile("w") as f:
        print("/x", file=f, flush=True)
        exp = arrivals.Sessions(options("sessions", f.name, "--server", "a=h:1"))
    for text, want in (("/a method=POST\n/c?x=1\n/b\n", "/c?x=1"),
                       ("/a method=POST\n", fileset.SMALL)):
        exp.sessions = sessions.parse(text)
        assert exp.check(run, None, None).path == want, text


def t_brackets_in_a_path_are_no_pattern():
    """Nor does a proxy of the environment see what a server is asked."""
    if not shutil.which("curl"):
        raise ktap.Skip("no curl")
    asked, old = [], servers.subprocess.run
    servers.subprocess.run = lambda argv, **_: asked.append(argv) or subprocess.CompletedProcess(
        argv, 0, b"", b"")
    try:
        servers.fetch(argparse.Namespace(client_argv=list),
                      argparse.Namespace(authority="h:1"), "/a[1-3]{x,y}.html")
    finally:
        servers.subprocess.run = old
    plain = subprocess.run([*asked[0][:-1], "http://127.0.0.1:1/a[1-3]{x,y"], check=False,
                           env=dict(os.environ, http_proxy="http://["),
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert plain.returncode == 7, plain.returncode    # 3: a malformed pattern, 5: its proxy


def t_sessions_may_have_any_bytes():
    with tempfile.TemporaryDirectory() as there:
        file, out = os.path.join(there, "x"), os.path.join(there, "out")
        with open(file, "wb") as f:
            f.write(b"/a\xff.html\n  /caf\xc3\xa9\n/b\xfe/\n/b\xfe\n")
        with contextlib.redirect_stderr(io.StringIO()):
            exp = arrivals.Sessions(options("sessions", file))

        class Run:
            opts = argparse.Namespace(seconds=1)
            lab = argparse.Namespace(dir=there, remote=False)

        exp.load(Run, exp.points[0], None)
        with open(os.path.join(there, "sessions"), "rb") as f:
            assert f.read() == b"/a\xff.html\n    /caf\xc3\xa9\n/b\xfe/\n"
        fileset.Files([(1, path, size) for path, size, _ in exp.rows()]).list_for_load(out)
        with open(out, "rb") as f:
            assert b" /a\xff.html 8192 " in f.read()
        with contextlib.redirect_stderr(io.StringIO()):
            exp.sites(Run)
        assert os.path.exists(os.path.join(os.fsencode(there), b"site/a\xff.html"))
        rec = record()
        rec["experiments"][0]["notes"] = exp.notes
        engine.save(rec, there)
        report.write(report.load(there), there)


def t_a_load_that_ends_without_a_reply_has_no_ratio():
    run = engine.Run(None, argparse.Namespace(max_minutes=1, quick=False), {})
    rates = [2.0, 0.0]
    run.other_rate = lambda *_: rates.pop(0)
    refused(run.halves, None, None, None, 1, 1.0, 1, text="no reply at all")


def t_what_is_wrong_with_half_the_load_is_said():
    run, old = engine.Run(None, argparse.Namespace(max_minutes=1, quick=False), {}), loads.run
    got = {"requests": 0, "bytes": 0, "seconds": 1.0, "errors": 0, "statuses": 0, "kinds": {}}
    loads.run = lambda *_: (got, [])
    try:
        for more, text in (({}, "from 2 clients: no reply at all"),
                           ({"requests": 5, "errors": 2, "kinds": {"reset": 2}},
                            "2 errors (reset 2)")):
            got.update(more)
            refused(run.other_rate, contents.Tiers(options("tiers")), loads.Wrk(64, "/"), None,
                    1, 2,
                    text=text)
        assert run.other_rate(arrivals.Rates(options("rates")), loads.Httperf(5), None, 1,
                              2) == 5
    finally:
        loads.run = old


def t_nginx_may_cache_files_however_few_descriptors_there_are():
    """Of experiments that have many files none has many connections."""
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


def t_a_full_disk_is_told_in_one_line():
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


# --- sessions -------------------------------------------------------------

SESSIONS = """# a comment
/a.html think=2.5
\t/a.css
    /a.js
/form method=P contents='x=1&y="2"\\n'


/b.html method=HEAD
# another, in a session
/c.html contents="one \\
two"
"""


def t_sessions_are_read_as_httperf_reads_them():
    got = sessions.parse(SESSIONS)
    assert len(got) == 2, got
    first, second = got
    assert [len(burst) for burst in first] == [3, 1]
    assert first[0][0] == ("/a.html", "GET", 2.5, None)
    assert [c.uri for c in first[0]] == ["/a.html", "/a.css", "/a.js"]
    assert first[1][0].method == "POST" and first[1][0].contents == 'x=1&y="2"\n'
    assert second[0][0].method == "HEAD" and len(second) == 2
    assert second[1][0].contents == "one \ntwo", second[1][0].contents


def t_sessions_survive_being_written_and_read():
    got = sessions.parse(SESSIONS)
    assert sessions.parse(sessions.text(got)) == got
    assert sessions.parse(sessions.text(sessions.made_up())) == sessions.made_up()
    asked = {c.uri for s in sessions.made_up() for b in s for c in b}
    assert asked <= {path for _, path, _ in fileset.basic().rows}, "a remote server lacks one"


def t_what_goes_on_behind_a_line_is_what_httperf_takes():
    """Each of these as httperf 0.9.0 asks for it."""
    for text, want in (("# c \\\n/a\n", [["/a"]]), ("/back\\\n/next\n", [["/back\\"], ["/next"]]),
                       ("  /a\n/b\n", [["/a"], ["/b"]]), ("/a\n \n/b\n", [["/a"]]),
                       ("/p contents='x\\\n\ty'\n/b\n", [["/p"], ["/b"]]),
                       ("/p contents=x\\\ny\n/b\n", [["/p"], ["/b"]])):
        got = sessions.parse(text)
        assert [[c.uri for c in b] for b in got[0]] == want, (text, got)
    got = sessions.parse("/p method=POST contents='x\\\n#\ty\\'' think=1\n")[0][0][0]
    assert got == ("/p", "POST", 1, "x\n#\ty'"), got
    for text in ("x\\\ny", "'a b'\tcontents=x\\\ny",
                 "' contents=b\\\n'\tcontents=\"x\\\ny\" think=1"):
        assert sessions.parse(f"/p contents={text}\n")[0][0][0].contents == "x\ny", text


def t_quotes_may_be_anywhere_in_a_string():
    """Each of these as httperf 0.9.0 sends it."""
    for text, want in (('name="John Doe"', "name=John Doe"), ('a="b"', "a=b"),
                       ("'a'\"b c\"d", "ab cd"),
                       ("a'\"'b", 'a"b'), ("\"it's\"", "it's"), ("it\\'s", "it's"), ('""', ""),
                       ("a\\ b", "a b"), ("'x'think=1", "xthink=1"), ("a\"b\\\nc d\"e", "ab\nc de"),
                       ("a\tthink=1", "a"), ("'\\n\\r\\t\\q'", "\n\r\tq")):
        got = sessions.parse(f"/p method=POST contents={text} think=2\n  /q\n")
        assert got[0][0] == [("/p", "POST", 2, want), ("/q", "GET", None, None)], (text, got)
        assert sessions.parse(sessions.text(got)) == got, text
    for text in ("it's", 'a="b', "'a\n", "a\\"):
        refused(sessions.parse, f"/p contents={text}", text="does not end")


def t_wrong_sessions_are_named_with_their_line():
    for text, words in (("/a\n/b colour=red\n", "s:2: `colour`"), (" # x\n", "s:1: `x`"),
                        ("/a method=BREW\n", "method=BREW"), ("/a think=long\n", "think=long"),
                        ("/a think=-1\n", "not negative"), ("/a contents='x\n", "does not end"),
                        ("/a method\n", "want method=")):
        refused(sessions.parse, text, "s", text=words)


def t_a_line_is_no_longer_than_httperf_reads():
    """One byte more, and httperf 0.9.0 takes its end for a session's or for another request."""
    for line in ("/a{}\n", "/a\n  /b{} method=HEAD\n", "/a contents='{}'\n",
                 "/a think=1 contents=\\\nx{}\n",
                 "/a contents='\"{}'\n", "/a\n/b contents=\u00e9{}\n"):
        def longest(nr, line=line):
            return max(len(row.encode()) for row in
                       sessions.text(sessions.parse(line.format("x" * nr), "s")).split("\n"))
        nr = 9998 - longest(0)
        assert longest(nr) == 9998, line
        refused(longest, nr + 1,
                text=f"s:{1 + line.startswith('/a' + chr(10))}: 9999 bytes as a line for "
                "httperf, which reads at most 9998")


LOG = """10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.html HTTP/1.0" 200 2326
10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.css HTTP/1.0" 200 10
10.0.0.2 - frank [10/Oct/2000:13:55:37 -0700] "GET /b.html HTTP/1.0" 200 10
10.0.0.1 - - [10/Oct/2000:13:55:46 -0700] "GET /c.html HTTP/1.0" 304 -
10.0.0.1 - - [10/Oct/2000:13:55:50 -0700] "POST /form HTTP/1.0" 200 10
10.0.0.1 - - [10/Oct/2000:13:55:51 -0700] "GET /gone HTTP/1.0" 404 10
10.0.0.1 - - [10/Oct/2000:13:55:51 -0700] "GET /moved HTTP/1.0" 301 10
this is no log line
10.0.0.1 - - [99/Foo/2000:13:55:51 -0700] "GET /a HTTP/1.0" 200 10
10.0.0.1 - - [10/Oct/2000:20:55:50 +0000] "GET /d.html HTTP/1.0" 200 10
10.0.0.1 - - [10/Oct/2000:23:00:00 +0000] "GET /late.html HTTP/1.0" 200 10
"""


def t_a_common_log_becomes_sessions():
    conv, got = converted(LOG)
    assert len(got) == 3 == conv.nr, got
    first = got[0]
    assert [[c.uri for c in b] for b in first] == [["/a.html", "/a.css"], ["/c.html"],
                                                   ["/d.html"]], first
    assert [b[0].think_s for b in first] == [10, 4, None], first
    assert got[2] == [[("/late.html", "GET", None, None)]]
    assert conv.left_out == {"malformed": 2, "of other methods": 1, "that were redirected": 1,
                             "that were answered with an error": 1}, conv.left_out


def converted(log):
    """(the Converter that has read a log, its sessions)"""
    conv = sessions.Converter()
    text = "".join("\n" * begins + line + "\n" for begins, line in conv.lines(log.splitlines()))
    return conv, sessions.parse(text)


def log_lines(*rows):
    """The same of (seconds, target) of one client."""
    return converted(
        "\n".join(f'1.2.3.4 - - [10/Oct/2000:13:55:{second:02} +0000] "GET {target} HTTP/1.1" 200 1'
                               for second, target in rows))


def t_a_pause_is_the_burst_before_its():
    _, got = log_lines((0, "/a"), (3, "/b"), (4, "/b1"), (6, "/c"))
    assert sessions.text(got) == "/a think=3\n/b think=2\n    /b1\n/c\n", sessions.text(got)
    thinks = [[b[0].think_s for b in s] for s in sessions.made_up()]
    assert thinks == [[0.2] * i + [None] for i in range(4)], thinks


def t_lines_out_of_order_leave_pauses_true():
    _, got = log_lines((10, "/b"), (5, "/a"), (12, "/c"))
    assert sessions.text(got) == "/a think=5\n/b think=2\n/c\n", sessions.text(got)


def t_escapes_of_logs_are_undone():
    _, got = log_lines((0, r"/a\"b"), (0, r"/c\x22\x5Cd"), (0, "/e\\\\"),
                       (0, "/f%20\\xC3\\xa9\u00e9\udcff"),
                       (0, "/g\\n"))
    want = [['/a"b', '/c"%5Cd', "/e%5C", "/f%20%C3%A9%C3%A9%FF", "/g%0A"]]
    assert [[c.uri for c in b] for b in got[0]] == want, got
    assert [[c.uri for c in b] for b in sessions.parse(sessions.text(got))[0]] == want


def t_targets_of_logs_may_be_absolute_and_have_spaces():
    for target, want in (("/a b", "/a%20b"), ("/a#b", "/a%23b"),
                         ("/a  b c?d e", "/a%20%20b%20c?d%20e"), ("/a HTTP/1.0", "/a%20HTTP/1.0"),
                         (r"/a b\"c \x22", "/a%20b\"c%20\""), ('/a"b', '/a"b'),
                         ("http://h/a", "/a"),
                         ("http://h", "/"), ("HTTPS://h:1?q=/", "/?q=/")):
        conv, got = log_lines((0, target))
        assert [[[c.uri for c in b] for b in s] for s in got] == [[[want]]], (target, conv.left_out)
    conv, _ = log_lines((0, "*"), (0, "host:443"))
    assert conv.left_out == {"with a target that is no path": 2}, conv.left_out


def t_targets_too_long_for_httperf_are_left_out():
    conv, got = log_lines((0, "/" + "a" * 9947), (9, "/" + "a" * 9948), (9, "/" + "%" * 9949),
                          (9, "/" + " " * 4000 + "a"),
                          (20, "/b"))
    assert conv.left_out == {"too long for httperf": 3}, conv.left_out
    assert sessions.parse(sessions.text(got)) == got and len(got[0]) == 2


def t_a_log_from_stdin_may_have_any_bytes():
    line = b'1.2.3.4 - - [10/Oct/2000:13:55:01 +0000] "GET /a\xff HTTP/1.1" 200 1\n'
    got = subprocess.run([sys.executable, os.path.join(HERE, "../../tools/bench/bench"), "convert",
                          "-"],
                         input=line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                         env=dict(os.environ, LC_ALL="C.UTF-8", PYTHONIOENCODING="utf-8:strict"))
    assert (got.returncode, got.stdout) == (0, b"/a%FF\n\n"), got


def t_a_log_may_be_gzipped():
    """As logrotate leaves it, and in members one behind the other."""
    with tempfile.TemporaryDirectory() as there:
        path = os.path.join(there, "access.log.1.gz")
        whole = b"".join(gzip.compress(part.encode()) for part in (LOG[:300], LOG[300:]))
        for data, code in ((LOG.encode(), 0), (whole, 0), (whole[:-20], 1),
                           (whole[:2] + b"x" + whole[3:], 1),
                           (whole[:40] + b"x" * 40 + whole[80:], 1)):
            with open(path, "wb") as f:
                f.write(data)
            got = [subprocess.run([sys.executable, os.path.join(HERE, "../../tools/bench/bench"),
                                   "convert", name],
                                  stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  check=False,
                                  text=True) for stdin,
                   name in ((None, path), (open(path, "rb"), "-"))]
            assert [one.returncode for one in got] == [code] * 2, got
            assert all("Traceback" not in one.stderr for one in got), got
            if code:
                assert f"bench: {path}: " in got[0].stderr and "no request" not in got[0].stderr, \
                       got
            else:
                assert got[0].stdout == got[1].stdout == as_converted(LOG), got


def as_converted(log):
    return sessions.text(converted(log)[1]) + "\n"


def t_a_hostile_line_costs_no_more_than_its_length():
    for line in ("1.2.3.4 - " + "[" * 20000, "1.2.3.4 - " + '[x] "' * 4000,
                 "1.2.3.4 - " + "[a] " * 5000,
                 '1.2.3.4 - [x] "G ' + "a " * 20000, '1.2.3.4 - [x] "G ' + "a" * 40000,
                 "1.2.3.4 - " + '[x] "a b ' * 4000,
                 '1.2.3.4 - [x] "G ' + "\\ " * 20000):
        began = time.process_time()
        assert not sessions.Converter().call(line)
        assert time.process_time() - began < 0.5, line[:20]
    conv, got = converted('1.2.3.4 - a[b c] [10/Oct/2000:13:55:01 +0000] "GET /a HTTP/1.1" 200 1')
    assert len(got) == 1 and not conv.left_out, conv.left_out


def t_a_combined_log_tells_browsers_apart():
    line = '1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET /{} HTTP/1.1" 200 1 "-" "{}"'
    _, got = converted("\n".join(line.format(uri, agent) for uri, agent in (
        ("a", "Fox \\\" 1"), ("b", "Chrome"), ("c", "Fox \\\" 1"))))
    assert [[[c.uri for c in b] for b in s] for s in got] == [[["/a", "/c"]], [["/b"]]], got


def t_a_log_may_be_in_any_order():
    """Of clients whose requests are seconds apart: those of one second are in the log's order."""
    def line(nr):
        at = time.strftime("%d/%b/%Y:%H:%M:%S",
                           time.gmtime(971186100 + nr * (1 if nr % 7 else 600)))
        return f'10.0.0.{nr % 7} - - [{at} +0000] "GET /{nr} HTTP/1.1" 200 1 "-" "Fox ' \
               f'\u00e9\t\udcff"'

    rows = [line(nr) for nr in range(300)]
    _, want = converted("\n".join(rows))
    assert len(want) > 7 and sum(len(b) for s in want for b in s) == 300, want
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        _, got = converted("\n".join(rows))
        assert got == want, (seed, got, want)


def t_a_long_log_takes_no_more_memory():
    """Of 100,000 lines, which are 77 MiB where all of them are held."""
    code = "import meters, sessions, sys\nsessions.main(['-'])\n" \
        "print(meters.first('/proc/self/status', r'VmHWM:\\s+(\\d+)', ''), file=sys.stderr)"

    def peak_kib(nr):
        log = "".join(f'10.0.{i >> 8 & 255}.{i & 255} - - '
                      f'[10/Oct/2000:13:{i // 60 % 60:02}:{i % 60:02} +0000] '
                      f'"GET /some/file/{i} HTTP/1.1" 200 1\n' for i in range(nr))
        got = subprocess.run([sys.executable, "-c", code], input=log, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, check=True,
                             cwd=os.path.join(HERE, "../../tools/bench"))
        assert len(sessions.parse(got.stdout)) == min(nr, sessions.TEMPLATES_MAX), got.stderr
        return int(got.stderr.splitlines()[-1])

    few, many = peak_kib(100), peak_kib(100000)
    assert many < few + 8192, (few, many)


def t_a_log_that_cannot_be_sorted_is_said():
    bench = [sys.executable, os.path.join(HERE, "../../tools/bench/bench"), "convert", "-"]
    with tempfile.TemporaryDirectory() as there:
        for code, text in ((None, "sort is missing"), ("exit 2", "sort failed")):
            if code:
                with open(os.path.join(there, "sort"), "w", encoding="utf-8") as f:
                    f.write(f"#!/bin/sh\n/bin/cat >/dev/null; {code}\n")
                os.chmod(f.name, 0o755)
            got = subprocess.run(bench, input=LOG, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 check=False,
                                 text=True, env={"PATH": there})
            assert got.returncode == 1 and got.stdout == "" and text in got.stderr, got


def t_convert_says_what_it_left_out():
    with tempfile.NamedTemporaryFile("w", suffix=".log") as f:
        f.write(LOG)
        f.flush()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert sessions.main([f.name, "--sessions", "2"]) == 0
    assert len(sessions.parse(out.getvalue())) == 2
    assert "left out 2 lines malformed" in err.getvalue(), err.getvalue()
    assert "first 2 of 3 sessions" in err.getvalue()
    with tempfile.NamedTemporaryFile("w") as f:
        with contextlib.redirect_stderr(io.StringIO()):
            refused(sessions.main, [f.name], text="no request in it")


# --- whose limit ----------------------------------------------------------

def t_a_rate_is_refused_unless_it_is_the_servers():
    def judge(**kw):
        args = {"server_share": 0.5, "server_busiest": 0.5, "client_share": 0.5,
                "halves_ratio": 1.0,
                "net_bps": 1e6, "link_bps": None, "fd_errors": 0, **kw}
        return bottleneck.judge(**args)

    def whose(**kw):
        return judge(**kw)[0]

    assert whose(server_share=0.97) == bottleneck.SERVER
    assert whose(server_share=0.97, halves_ratio=1.5) == bottleneck.CLIENT
    assert whose(client_share=0.99) == bottleneck.CLIENT
    assert whose(net_bps=0.85e9, link_bps=1e9, server_share=0.97) == bottleneck.NETWORK
    assert whose(fd_errors=3, server_share=0.97) == bottleneck.DESCRIPTORS
    assert whose() == bottleneck.UNKNOWN and "no CPU of the server was full" in judge()[1]
    unseen = {"server_share": None, "server_busiest": None}
    # remote: a network that nobody knows does the same
    assert whose(**unseen) == bottleneck.UNKNOWN
    assert whose(**unseen, halves_ratio=1.3) == bottleneck.CLIENT
    assert whose(**unseen, halves_ratio=None) == bottleneck.UNKNOWN
    one = {"server_share": 0.13, "server_busiest": 0.98}    # of eight CPUs one has the worker
    assert whose(**one) == bottleneck.SERVER and \
           "one CPU of the server was 98% busy" in judge(**one)[1]
    assert whose(**one, halves_ratio=1.3) == whose(**one, client_share=0.99) == bottleneck.CLIENT
    assert whose(**one, halves_ratio=None) == bottleneck.UNKNOWN and \
           "98%" in judge(**one, halves_ratio=None)[1]
    for who in (bottleneck.CLIENT, bottleneck.NETWORK, bottleneck.DESCRIPTORS, bottleneck.UNKNOWN):
        assert bottleneck.refused(who)
    assert bottleneck.refused(bottleneck.SERVER) is None and \
           bottleneck.refused(bottleneck.DEMAND) is None


def t_the_busiest_cpu_is_known_beside_all():
    def stat(*busy):
        return "cpu  9 9 9 9 9 9 9 9\n" + "".join(f"cpu{i} {n} 0 0 {1000 - n} 0 0 0 0\n"
                                                  for i, n in enumerate(busy))

    texts, old = [stat(0, 0, 0, 0), stat(2, 98, 0, 0)], meters.time.monotonic
    try:
        meters.time.monotonic = iter((5.0, 5.0 + 100 / meters.USER_HZ)).__next__
        got = meters.Core(None, lambda: texts.pop(0)).since()
    finally:
        meters.time.monotonic = old
    assert abs(got["share"] - 0.25) < 1e-9 and abs(got["busiest"] - 0.98) < 1e-9, got
    assert refused(meters.core_ticks, {0, 9}, stat(1, 2), text="has CPUs [0], not [0, 9]")


def t_the_clients_share_is_of_the_load_alone():
    steps = []

    class Core:
        nr = 1

        def __init__(self, cpus, _=None):
            self.name = {0: "server", 1: "client"}[cpus[0]]
            steps.append(f"{self.name} begins")

        def since(self):
            steps.append(f"{self.name} ends")
            return {"share": 0.0, "busiest": 0.0, "busy_s": 0.0, "wall_s": 1.0, "not_idle_s": 0.0,
                    "steal_s": 0.0}

    class Lab:
        remote, stat, server_cpus, client_cpus = False, None, [0], [1]
        pids = net_bytes = staticmethod(lambda *_: [])

    old = engine.Core, engine.time.sleep
    engine.Core, engine.time.sleep = Core, lambda _: steps.append("quiet")
    try:
        meter = engine.Meter(Lab, Lab, meters.Idle())
        meter.begin()
        meter.read(1)
    finally:
        engine.Core, engine.time.sleep = old
    assert steps == ["server begins", "quiet", "server ends", "server begins", "client begins",
                     "client ends", "server ends"], steps


def t_what_is_worked_without_load_is_told_by_all_looks():
    """One hundredth of a second of ten looks at 0.3 s; others' work is subtracted from its sample
    alone."""
    idle = meters.Idle()
    got = [idle.share({"share": ticks / 30, "wall_s": 0.3})
           for ticks in (0, 0, 1, 0, 0, 6, 0, 0, 0, 0, 0)]
    assert got[5] == meters.IDLE_MAX < 6 / 30, got
    assert abs(got[2] - 1 / 90) < 1e-9 and abs(got[-1] - 1 / 300) < 1e-9, got


def t_what_was_asked_for_is_no_limit_if_it_was_met():
    web = contents.Web99(options("web99", "--static"))
    slow = {"conforming_percent": 99.0, "client_cpus": 0.5, "server_busiest": 0.98}
    assert web.own_limit(dict(slow, conforming_percent=100.0, client_cpus=1.0))[0] == \
           bottleneck.DEMAND
    assert web.own_limit(slow)[0] == bottleneck.SERVER
    for other in ({"client_cpus": 0.96}, {"server_busiest": 0.5}, {"server_busiest": None}):
        assert web.own_limit({**slow, **other}) is None, other
    cold = {"cold": True, "client_cpus": 0.5}
    caches = contents.Caches(options("caches"))
    assert caches.own_limit(cold)[0] == bottleneck.DEMAND and \
           caches.own_limit(dict(cold, cold=False)) is None
    assert caches.own_limit(dict(cold, client_cpus=0.96)) is None
    for name, asked in (("overload", 100), ("held", 1000)):
        exp = experiments.EXPERIMENTS[name](options(name))
        s = {"late": 0, "seconds": 5.0, "client_cpus": 0.5}
        assert exp.own_limit(s)[0] == bottleneck.DEMAND
        assert exp.own_limit(dict(s, late=0.06 * asked))[0] == bottleneck.SERVER
        assert exp.own_limit(dict(s, client_cpus=0.96)) is None


def t_sessions_may_think_for_minutes():
    class Run:
        opts = argparse.Namespace(seconds=5)
        lab = argparse.Namespace(remote=True, dir=None)

    exp = arrivals.Sessions(options("sessions", "--rates", "2,10"))
    exp.sessions = sessions.parse("/a\n\n" * 30 + "/a think=600\n/b\n")
    with tempfile.TemporaryDirectory() as Run.lab.dir, contextlib.redirect_stderr(io.StringIO()):
        few, all_ = (exp.load(Run, point, None) for point in exp.points)
        exp.sites(Run)
    assert few.limit_s(5) == 5 + loads.OVERTIME_S, "the one that thinks is not among ten"
    assert all_.limit_s(5) == 5 + 600 + loads.OVERTIME_S and all_.sessions[1] == 50, all_.sessions
    assert "think up to 600 s" in exp.notes[-1], exp.notes
    assert loads.Httperf(2).limit_s(5) == 5 + loads.OVERTIME_S


def t_what_sessions_think_is_in_no_rate():
    exp = arrivals.Sessions(options("sessions", "--rates", "10"))
    exp.sessions = sessions.parse("/a think=60\n/b\n")
    h = {"sess_total": 50.0, "sess_done": 50.0, "sess_life_s": 60.0, "resp_ms": 0.3,
         "transfer_ms": 0.0,
         "seconds": 64.9, "duration": 64.9}
    for more_s, want in ((0, 10), (5, 5)):      # the second began at half of the rate
        s = {}
        exp.after(None, exp.points[0], None, s, {"httperf": dict(h, duration=64.9 + more_s)})
        assert abs(s["sess_rate"] - want) < 0.02 * want, (more_s, s)


def t_sessions_that_began_late_are_not_what_was_asked_for():
    exp = arrivals.Sessions(options("sessions", "--think", "2"))
    exp.sessions = sessions.parse("/a think=3\n/b\n/c\n\n/d\n")     # 5 s and none
    got = {"sess_total": 100.0, "sess_life_s": 2.5 + 0.2, "duration": 9.8 + 5 + 0.4,
           "resp_ms": 90.0, "transfer_ms": 10.0}
    met = {"point": 10.0, "sess_total": 100.0, "late_s": exp.late_s(10.0, got)}
    assert met["late_s"] < 0.2 and exp.own_limit(met)[0] == bottleneck.DEMAND, met
    late = dict(met, late_s=exp.late_s(10.0, dict(got, duration=17.0)))
    assert 1.7 < late["late_s"] < 2 and exp.own_limit(late) is None, late
    # a session of many requests takes 4 s, and the mean, of 0.04 s, is told as 0.0
    exp.sessions = sessions.parse("/a\n\n" * 99 + "/a\n" + "  /a\n" * 1999)
    exp.think = 0
    got.update(sess_life_s=0.0, duration=9.9 + 4, resp_ms=1.9, transfer_ms=0.1)
    assert exp.late_s(10.0, got) < 0.1, exp.late_s(10.0, got)
    # replies that overlap: what they took in all is not what the session did
    got.update(duration=9.9 + 40, resp_ms=20)
    assert exp.late_s(10.0, got) > 35, exp.late_s(10.0, got)


# --- statistics -----------------------------------------------------------

def t_the_interval_of_a_ratio_is_students():
    got = stats.paired_ratio([2.0, 2.2, 1.8, 2.0], [1.0, 1.0, 1.0, 1.0])
    assert abs(got["ratio"] - 1.9950) < 1e-3 and got["pairs"] == 4, got
    # by hand: s = 0.08198 of the logarithms, t(3) = 3.182, half = 0.13043
    assert abs(got["low"] - 1.7510) < 2e-3 and abs(got["high"] - 2.2729) < 2e-3, got
    assert stats.paired_ratio([1.0], [2.0]) == {"ratio": 0.5, "low": None, "high": None,
                                                "chance": None, "pairs": 1, "dropped": 0}
    # published: by degrees of freedom, two-sided 95 %
    for freedom, t in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228),
                       (30, 2.042), (60, 2.000), (120, 1.980)):
        assert abs(stats.t95(freedom) - t) < 6e-4, (freedom, stats.t95(freedom))
    # and 99.9 %
    for freedom, t in ((1, 636.62), (2, 31.599), (4, 8.610), (9, 4.781), (40, 3.551)):
        assert abs(stats.by_chance(-t, freedom) - 0.001) < 2e-6, freedom
    assert stats.by_chance(0, 4) == 1 and stats.interval([3.0, 3.0])[3] == 0
    assert stats.interval([0.0, 0.0]) == (0, 0, 0, 1)


def t_chance_is_reckoned_with_how_many_rows_there_are():
    # Holm 1979: the smallest times all, the next times all but one, never below one before
    got = stats.holm([0.01, 0.04, 0.03, 0.005, 0.9])
    want = [0.04, 0.09, 0.09, 0.025, 0.9]
    assert all(abs(a - b) < 1e-12 for a, b in zip(got, want)) and stats.holm([]) == [], got


def t_pairs_without_a_ratio_are_said():
    def pairs(*values):
        return [({"x": a}, {"x": b}) for a, b in values]

    got = stats.paired("x", "ns", pairs((0, 1), (2, 1), (None, 1), (2, 1)))
    assert (got["ratio"], got["pairs"], got["dropped"]) == (2, 2, 1), got
    assert report.ratio_text(got) == "2 (2–2, pairs with a 0 left out: 1)"
    assert report.ratio_text(stats.paired("x", "ns",
                                          pairs((0, 1)))) == "(pairs with a 0 left out: 1)"
    assert stats.paired("x", "ns", pairs((None, 1), (1, None))) is None
    got = stats.paired("x", "%", pairs((3, 0), (5, 1), (4, 0.5)))
    assert abs(got["difference"] - 3.5) < 1e-9 and got["low"] > 0 and got["pairs"] == 3, got
    assert report.ratio_text(got).startswith("+3.5 points (+2.26 to +4.74"), report.ratio_text(got)
    assert compare.verdict(got, "low") == "B is worse" and \
           compare.verdict(got, "high") == "B is better"
    assert compare.verdict(stats.paired("x", "%", pairs((1, 0), (0, 1))),
                           "low") == "no difference shown"


def t_disturbed_pairs_count_only_without_others():
    rec, before = record(), record()
    for s in rec["experiments"][0]["samples"]:
        if s["repeat"] == 1 and s["server"] == "nginx":
            s.update(disturbed=True, cpu_ns=5e6)
    rec["experiments"][0]["summary"] = engine.summarise(rec["experiments"][0])
    got = row_of(rec, 1024, "toboggan")["ratios"]["cpu_ns"]
    assert got["pairs"] == 3 and abs(got["ratio"] - 0.125) < 0.01, got
    got = [r for r in compare.compare(before, rec)[0] if r["server"] == "nginx" and
           r["figure"] == "cpu_ns"]
    assert len(got) == 3 and all(r["pairs"] == 3 and abs(r["ratio"] - 1) < 1e-9 for r in got), got
    for s in rec["experiments"][0]["samples"]:
        s["disturbed"] = True
    got = compare.compare(before, rec)[0]
    assert all(r["pairs"] >= 3 for r in got) and got, got


def t_the_most_that_was_met_is_what_most_repeats_showed():
    """One that falls short is refused where it may be the client's fault, one that does not
    never."""
    for exp, key, asked in ((arrivals.Rates(options("rates")), "rate", 1000.0),
                            (contents.Web99(options("web99")), "conforming_percent", 100.0)):
        for met, most in ((5, {"x": 1000}), (3, {"x": 1000}), (2, {}), (0, {})):
            samples = [engine.Sample(point=1000, server="x", repeat=n, invalid=None, limit=None,
                                     refused=None, error_percent=0.0, **{key: asked})
                       for n in range(5)]
            for s in samples[met:]:
                s.update({"refused": bottleneck.CLIENT, key: None, "withheld": {key: 0.6 * asked}})
            entry = {"points": [{"x": 1000}], "servers": ["x"], "reference": None,
                     "samples": samples, "figures": exp.figures}
            entry["summary"] = engine.summarise(entry)
            (got,) = exp.derive(entry).values()
            assert got == most, (key, met, got)


def t_web99_is_the_published_file_set():
    sizes = [fileset.web99_size(k, i) for k in range(4) for i in range(9)]
    assert sizes[:9] == [102, 204, 307, 409, 512, 614, 716, 819, 921] and sum(sizes) == 5119484
    assert [fileset.web99_folders(n) for n in (100, 1000, 6000)] == [90, 680, 3959]
    rows = fileset.web99(10).rows
    by_folder = [sum(w for w, p, _ in rows if f"dir{i:05d}" in p) for i in range(10)]
    assert abs(by_folder[0] / by_folder[9] - 10) < 1e-9          # Zipf, alpha 1


def t_web99_files_have_marks_for_advertisements():
    for klass, marks in ((0, 0), (1, 1), (2, 9), (3, 0)):
        text = fileset.content(fileset.web99_path(3, klass, 8), fileset.web99_size(klass, 8))
        assert len(text) == fileset.web99_size(klass, 8) and text.count(fileset.MARK) == marks
        assert not set(text.replace(fileset.MARK, b"")) - set(b"0123456789abcdef\n")


def t_web99_mix_has_its_shares():
    rows = fileset.web99_mix(2, fileset.Pages(b"x", "198.18.1.10")).rows
    whole = sum(r[0] for r in rows)
    shares = {"post": sum(r[0] for r in rows if len(r) == 6) / whole,
              "ads": sum(r[0] for r in rows if len(r) == 5 and r[4] != "-") / whole,
              "cgi": sum(r[0] for r in rows if r[1].startswith("/cgi-bin/")) / whole,
              "static": sum(r[0] for r in rows if len(r) == 3) / whole}
    for kind, want in (("static", 0.70), ("ads", 0.126), ("post", 0.048), ("cgi", 0.0015)):
        assert abs(shares[kind] - want) < 1e-9, shares
    path = "/file_set/dir00001/class1_2"
    get, ads = (r for r in rows if r[1] == "/spec?" + path)
    posted = next(r for r in rows if len(r) == 6 and
                  r[5] == "urlroot=/file_set&dir=00001&class=1&num=2&client=####")
    assert get[2] == ads[2] == posted[2] + len(path) and ads[3].startswith(get[3] + "@"), (get, ads)
    dynamic = [r for r in rows if len(r) > 3]
    assert len({r[3] for r in dynamic if r[4:5] != (fileset.COOKIE,) or len(r) > 5}) == 3 * 2 * 36


def t_a_page_is_of_the_server_that_made_one():
    path, size = "/file_set/dir00000/class2_1", 20480
    for software in (b"nginx/1.22.1", b"", b"a b"):
        page = fileset.Pages(software, "198.18.1.10").body("/spec", path, path, size)
        same = fileset.Pages.like(page, "198.18.1.10")
        assert same.software == software and same.body("/spec", path, path, size) == page
        assert fileset.Pages.like(page, "198.18.1.11").body("/spec", path, path, size) != page
    at, length, every, times = map(int, re.fullmatch(r"@(\d+)\+(\d+)/(\d+)\*(\d+)",
                                                     fileset.any_ad(page)).groups())
    assert times == page.count(fileset.MARK) == 2
    assert all(page[at + i * every:][:length] == b"00000/class0_0" for i in range(times))


# --- the generators -------------------------------------------------------

def t_ab_does_not_wait_long_for_a_server_that_stalls():
    """Its own patience is 30 s."""
    if not shutil.which("ab"):
        raise ktap.Skip("no ab")
    with socket.create_server(("127.0.0.1", 0)) as s:
        server = argparse.Namespace(authority="127.0.0.1:%d" % s.getsockname()[1], sources=())
        argv = loads.Ab(2, "/", timeout_s=1).argv(server, 1, (0, 1))
        got = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             check=False, timeout=25)
    assert got.returncode and "timeout specified has expired" in got.stderr, got


def t_clients_share_a_load_and_the_cpus():
    """Nothing of it is lost, and there is a client on each CPU of theirs."""
    server = argparse.Namespace(authority="h:1", sources=())
    old = loads.need, loads.os.access
    loads.need, loads.os.access = str, lambda *_: True
    try:
        for load, word in ((loads.Wrk(64, "/"), "-c"), (loads.H2load(64, "/"), "-c"),
                           (loads.Ab(64, "/"), "-c"), (loads.Ours(64), "--connections"),
                           (loads.Ours(1000, active=64), "--active"),
                           (loads.Ours(1000, active=64), "--connections")):
            assert [load.clients(cpus) for cpus in (1, 2, 7, 100)] == [1, 2, 7, 32], load.tool
            for parts in (1, 2, 7, 14):
                shares = [int(argv[argv.index(word) + 1]) for argv in
                          (load.argv(server, 1, (nr, parts)) for nr in range(parts))]
                assert sum(shares) == (1000 if load.descriptors == 1000 and word[2:3] == "c"
                                       else 64)
                assert max(shares) - min(shares) <= 1, shares
        for load in (loads.Ours(64, once=True), loads.Ours(64, rate=9.0), loads.Httperf(9),
                     loads.Packets(64, "/"), loads.Wrk(1, "/")):
            assert load.clients(8) == 1, load.tool
        rates = [argv[argv.index("--rate") + 1] for argv in
                 (loads.Ours(64, rate=9.0).argv(server, 1, (nr, 2)) for nr in range(2))]
        assert rates == ["4.5", "4.5"]
    finally:
        loads.need, loads.os.access = old
    here, cpus = lab.Lab([0], [2, 3, 5]), []
    here.spawn = lambda argv, mine, *_, **__: cpus.append(sorted(mine))
    for parts in (1, 2, 3, 6):
        for nr in range(parts):
            here.spawn_client(["x"], nr, parts)
    assert cpus == [[2, 3, 5], [2, 5], [3], [2], [3], [5], [2], [3], [5], [2], [3], [5]], cpus


def t_each_cpu_that_the_server_has_not_asks():
    """A server on 1 to 8 of 8 CPUs; whether it is the clients, twice as many of them tell."""
    args = options("cpus")
    args.cpu_list, args.nofile, seen = list(range(8)), 10000, []
    exp = clients.Cpus(args)
    here = argparse.Namespace(remote=False, link_bps=lambda _: None, hosts=(),
                              spread=lambda load: load.clients(len(here.client_cpus)))
    run = engine.Run(here, args, {})
    server = argparse.Namespace(name="x", authority="h:1")
    run.lab.dir = tempfile.gettempdir()
    got = {"requests": 1000, "bytes": 1e6, "seconds": 1.0, "errors": 0, "statuses": 0, "kinds": {}}

    def load_run(_, load, server, seconds, parts=1, begin=None):
        seen.append((point.x, parts, load.connections))
        return got, []

    old = loads.run, engine.Meter, engine.tier_requests
    meter = argparse.Namespace(begin=None, core=True, read=lambda _: {
        "client_share": .5, "client_cpus": 1, "server_share": .95, "server_busiest": .95,
        "net_bps": None,
        "disturbed": False, "cpu_ns": 9.0, "ran_ns": 9.0})
    loads.run, engine.Meter, engine.tier_requests = load_run, lambda *_: meter, lambda _: None
    exp.check = lambda *_: argparse.Namespace(settle=lambda *_: 1000, verify=lambda *_: ({}, 0))
    try:
        for point in exp.points:
            exp.enter(run, point)
            sample = run.sample(exp, point, server, 0)
            assert not sample["invalid"] and \
                   (sample["limit"] == bottleneck.SERVER) == (point.x < 8), sample
            assert sample["clients"] == len(here.client_cpus) == (8 - point.x or 8), sample
            if point.x < 8:
                assert sample["per_cpu"] == 1000 / point.x, sample
    finally:
        loads.run, engine.Meter, engine.tier_requests = old
    want = [(nr, parts, 64 * nr) for nr in range(1, 8) for parts in (8 - nr, 16 - 2 * nr)]
    assert seen == want + [(8, 8, 512)], seen


# --- reading the generators -----------------------------------------------

HTTPERF = """httperf --timeout=5 --client=0/1 --server=10.0.0.1 --port=80 --uri=/a --rate=50
Maximum connect burst length: 1

Total: connections 500 requests 5000 replies 4990 test-duration 9.984 s

Connection rate: 50.1 conn/s (20.0 ms/conn, <=2 concurrent connections)
Connection time [ms]: min 0.3 avg 1.1 max 9.9 median 0.5 stddev 0.9
Connection time [ms]: connect 0.1
Connection length [replies/conn]: 10.000

Request rate: 500.8 req/s (2.0 ms/req)
Request size [B]: 66.0

Reply rate [replies/s]: min 499.0 avg 500.1 max 501.2 stddev 1.6 (2 samples)
Reply time [ms]: response 0.1 transfer 0.2
Reply size [B]: header 250.0 content 1024.0 footer 0.0 (total 1274.0)
Reply status: 1xx=0 2xx=4980 3xx=0 4xx=10 5xx=0

CPU time [s]: user 2.27 system 7.70 (user 22.7% system 77.1% total 99.9%)
Net I/O: 655.3 KB/s (5.4*10^6 bps)

Errors: total 3 client-timo 1 socket-timo 0 connrefused 0 connreset 0
Errors: fd-unavail 2 addrunavail 0 ftab-full 0 other 0
"""


def t_httperf_is_read_whole():
    got = loads.Httperf(50, 10, "/a").read(HTTPERF)
    assert got["requests"] == 4980 and got["statuses"] == 10 and got["errors"] == 3
    assert got["kinds"] == {"client-timo": 1, "fd-unavail": 2}
    assert got["httperf"]["rep_max"] == 501.2 and got["httperf"]["net_kb_s"] == 655.3
    assert got["seconds"] == 10.0, "500 connections at 50 a second"
    assert loads.httperf_numbers(HTTPERF.replace("9.984", "10.5"))["seconds"] == 10.5
    sess = "Session rate [sess/s]: min 9 avg 9 max 9 stddev 0 (590/600)\n"
    assert loads.httperf_numbers(HTTPERF + sess)["seconds"] == 12.0, \
           "600 sessions at 50 a second, some on one connection"
    short = loads.httperf_numbers(HTTPERF.replace("(2 samples)", "(0 samples)"))
    assert short["rep_min"] == short["rep_avg"] == short["rep_max"] == 499.0, short
    assert loads.Httperf(50).read("httperf: connection failed\n") is None
    assert "10 wrong statuses" in engine.fault(loads.Httperf(50), got)


def t_replies_that_are_errors_are_no_figure():
    good = {"requests": 1000, "errors": 0, "statuses": 0}
    assert engine.fault(loads.Wrk(2, "/a"), good) is None
    assert "no reply" in engine.fault(loads.Wrk(2, "/a"), dict(good, requests=0))
    assert "2 errors (reset 2)" in engine.fault(loads.Wrk(2, "/a"),
                                                dict(good, errors=2, kinds={"reset": 2}))


def t_replies_of_another_length_are_no_figure():
    """As a 204 or 304 in a file's place has, which wrk and httperf take for right."""
    good = {"requests": 1000, "bytes": 1264000, "errors": 0, "statuses": 0}
    for load in (loads.Wrk(2, "/a"), loads.Httperf(50, 10, "/a")):
        assert engine.other_length(load, 1264, good) is None
        assert "900 bytes a reply, not 1264" in engine.other_length(load, 1264,
                                                                    dict(good, bytes=900000))
    for load, reply_len in ((loads.Wrk(2, "/a"), 0),
                            (loads.Httperf(50, sessions=("f", 1, 1, 1)), 1264),
                            (loads.Ours(2), 1264)):
        assert engine.other_length(load, reply_len, dict(good, bytes=900000)) is None, \
               "of different replies"
    # errors are a column of the sweep, and replies of another length none of its figures
    empty = HTTPERF.replace("content 1024.0 footer 0.0 (total 1274.0)",
                            "content 700.0 footer 0.0 (total 950.0)"
                            ).replace("2xx=4980 3xx=0 4xx=10", "2xx=4990 3xx=0 4xx=0")
    for report, said in ((HTTPERF.replace("4xx=10", "4xx=0"), None),
                         (empty, "950 bytes a reply, not 1274")):
        got = loads.Httperf(50, 10, "/a").read(report)
        assert got["errors"] == 3 and sample_of("rates", got, 1274)["invalid"] == said, got


def t_work_for_replies_that_the_end_cuts_short_is_theirs():
    long, load = {"requests": 2, "bytes": 16.5 * (1 << 20)}, loads.Wrk(16, "/1m.bin")
    assert engine.worked_for(load, 1 << 20, long) == 16.5
    assert engine.worked_for(loads.Ours(16), 1 << 20, long) is None, "of a list of files"
    assert engine.worked_for(loads.Ours(16), 1 << 20, dict(long, requests=160)) == 160
    assert engine.worked_for(loads.Ours(4000, active=16), 0, dict(long, requests=160)) == 160
    for load in (loads.Ours(16, rate=9), loads.Ours(16, once=True),
                 loads.Httperf(9, sessions=("f", 1, 1, 1))):
        assert engine.worked_for(load, 1 << 20, long) == 2, load.tool
    s = {"cpu_ns": 1000.0}
    engine.Run.figures(s, dict(long, seconds=1.0, errors=0, statuses=0), 16.5)
    assert abs(s["cpu_ns_per_kib"] - 1000 / 1024) < 1e-9, s


def sample_of(name, got, reply_len=0, core=None, notes=None):
    """What the engine makes of such a result at the third point of an experiment."""
    exp = experiments.EXPERIMENTS[name](options(name))
    exp.check = lambda *_: argparse.Namespace(settle=lambda *_: reply_len,
                                              verify=lambda *_: ({}, 0))
    exp.run_load = lambda *_: (got, [])
    run = engine.Run(argparse.Namespace(spread=lambda _: 1),
                     argparse.Namespace(max_minutes=1, nofile=10000, seconds=1), {})
    run.judge = lambda *_: None
    meter = argparse.Namespace(core=core, begin=None, read=lambda nr: {"cpu_ns": None})
    old, engine.Meter = engine.Meter, lambda *_: meter
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            ret = run.sample(exp, exp.points[2], servers.Existing(None, "a", "h:1"), 0)
    finally:
        engine.Meter = old
    if notes is not None:
        notes += exp.notes
    return ret


def t_too_few_replies_are_said_of_a_cost_alone():
    for core, errors, said in ((True, 0, 1), (None, 0, 0), (True, 3, 0)):
        got = {"requests": 9, "bytes": 9, "errors": errors, "statuses": 0, "seconds": 1.0}
        notes = []
        sample_ = sample_of("clients", got, core=core, notes=notes)
        assert len(notes) == said and bool(sample_["invalid"]) == bool(errors), (notes, sample_)
        assert not said or "fewer than 10 replies" in notes[0], notes


# --- records and reports --------------------------------------------------

def sample(point, server, repeat, cpu, **kw):
    return dict({"point": point, "server": server, "repeat": repeat, "invalid": None,
                 "refused": None, "limit": "server", "cpu_ns": cpu, "throughput": 1e9 / cpu,
                 "throughput_bps": 1e12 / cpu, "errors": 0, "statuses": 0, "disturbed": False,
                 "command": [["wrk", "-c", "64", "http://198.18.1.1:8080/x"]]}, **kw)


def record(factor=1.0, complete=True):
    """A run as the engine writes it, of two servers at three sizes."""
    entry = {"name": "sizes", "title": "throughput against <size>", "about": "see `sizes`",
             "x": "connections", "x_log": True,
             "figures": [list(f) for f in curves.Sizes.figures],
             "points": [{"x": x, "label": str(x)} for x in (1, 1024, 1 << 20)],
             "left_out": [], "problems": [], "notes": [], "reference": "nginx", "derived": {},
             "servers": ["toboggan", "nginx"], "samples": []}
    for repeat in range(4):
        for i, point in enumerate(entry["points"]):
            noise = 1 + 0.01 * ((repeat * 7 + i) % 3)
            entry["samples"].append(sample(point["x"], "toboggan", repeat,
                                           1000 * (i + 1) * noise * factor))
            entry["samples"].append(sample(point["x"], "nginx", repeat, 8000 * (i + 1) * noise))
    entry["samples"][0].update(invalid="3 errors (reset 3) and 0 wrong statuses", errors=3,
                               cpu_ns=1e9)
    for s in entry["samples"]:
        if s["point"] == 1024 and s["server"] == "toboggan":
            s.update(limit="client", refused=bottleneck.refused("client"), throughput=None,
                     throughput_bps=None)
    entry["problems"].append("toboggan, 1: 3 errors (reset 3) and 0 wrong statuses")
    entry["summary"] = engine.summarise(entry)
    return {"format": engine.FORMAT, "kind": "toboggan-bench", "name": "sizes",
            "machine": {"kernel": "6.1", "build": "#1", "cpu": "a <cpu>", "cpus": 2,
                        "memory_mib": 1000, "virtual": True, "governor": "none", "system": "x",
                        "command_line": "", "sysctls": {"a.b": "1"}, "date": "2026"},
            "command": ["toboggan", "bench", "sizes"], "complete": complete,
            "ended": None if complete else "interrupted", "quick": False, "descriptors": 65536,
            "topology": {"kind": "lab", "server_cpus": [0], "client_cpus": [1], "link": "veth"},
            "servers": {"toboggan": "0.1", "nginx": "1.22"}, "repeats": 4, "seconds": 5,
            "experiments": [entry]}


def row_of(rec, point, server):
    return next(r for r in rec["experiments"][0]["summary"]
                if r["point"] == point and r["server"] == server)


def t_a_sample_with_errors_is_counted_and_not_averaged():
    row = row_of(record(), 1, "toboggan")
    assert row["valid"] == 3 and row["invalid"] == 1 and row["errors"] == 3, row
    assert row["figures"]["cpu_ns"]["max"] < 1100, "the invalid sample went into the figure"
    assert row["ratios"]["cpu_ns"]["pairs"] == 3


def t_a_refused_rate_is_nowhere():
    rec = record()
    row = row_of(rec, 1024, "toboggan")
    assert row["figures"]["throughput"] is None and row["figures"]["cpu_ns"]
    assert row["refused"] == ["the client's limit"]
    page = report.page(rec)
    assert "rate refused: the client&#x27;s limit" in page


def t_the_page_says_why_it_is_somebodys_limit():
    rec = record()
    assert report.notes(row_of(rec, 1, "nginx")) == "the server's limit", \
           "of an older version's run"
    for s in rec["experiments"][0]["samples"]:
        s.update(rate=s["throughput"], limit_why=f"its CPUs were {91 + s['repeat']}% busy")
        # with the rate itself, as `rates` does: the second repeat's is the median
        if s["refused"]:
            s.update(
                limit_why=f"two clients with half the load got 1.{4 + s['repeat']} times as much",
                     withheld={"rate": (5, 3, 1, 9)[s["repeat"]]})
    rec["experiments"][0]["summary"] = engine.summarise(rec["experiments"][0])
    row = row_of(rec, 1024, "toboggan")
    assert report.notes(row).startswith(
        "rate refused: the client's limit (two clients with half the load "
                                        "got 1.5 times as much)"), report.notes(row)
    assert "the server's limit (its CPUs were 9" in report.notes(row_of(rec, 1, "nginx"))
    rows = list(report.csv_rows(rec["experiments"][0]))
    assert [r[rows[0].index("why")] for r in rows if r[1:3] == ["1024", "toboggan"]] == [
        "two clients with half the load got 1.5 times as much"], rows
    del row["why"]
    assert report.notes(row).startswith("rate refused: the client's limit")
    assert list(report.csv_rows(rec["experiments"][0]))[3][8] == "", "of an older version's run"


def t_disturbed_samples_count_only_without_others():
    rec = record()
    entry = rec["experiments"][0]
    for s in entry["samples"]:
        if s["server"] == "nginx" and s["repeat"] == 1:
            s.update(disturbed=True, cpu_ns=5e6)
    entry["summary"] = engine.summarise(entry)
    row = row_of(rec, 1024, "nginx")
    assert row["disturbed"] == 1 and row["figures"]["cpu_ns"]["max"] < 20000, row


def t_how_a_server_was_started_is_kept():
    rec = record()
    entry = dict(rec["experiments"][0], setups=[])
    rec["experiments"][0] = entry
    point = experiment.Point(1, "1 object")
    with tempfile.TemporaryDirectory() as there:
        here = argparse.Namespace(dir=there, spawn_server=lambda *_, **__: None, server_cpus={0})
        for nr, workers in ((1, 1), (2, 1), (3, 2)):
            server = servers.Nginx(here, "nginx")
            server.iface, server.addr, server.log = f"tbg{nr}", f"198.18.{nr}.1", there + "/log"
            server.wait_for_answer = lambda: None
            here.server_cpus = set(range(workers))
            server.launch()
            engine.keep_setup(entry, point, server)
        engine.keep_setup(entry, point, servers.Existing(here, "far", "h:1"))
    assert len(entry["setups"]) == 2, [s["server"] for s in entry["setups"]]
    page = report.page(rec)
    assert "nginx -e" in page and "198.18.1.1:8080 backlog" in page and \
           "worker_processes 2;" in page
    assert "198.18.2.1" not in page and "# nginx, from connections 1 object" in page
    del entry["setups"]
    assert "how servers were started" not in report.page(rec), \
           "of a run that an older version wrote"


def t_what_the_commands_read_is_kept():
    """Lists and sessions go with the lab."""
    rec = record()
    entry = dict(rec["experiments"][0], lists={})
    rec["experiments"][0] = entry
    with tempfile.TemporaryDirectory() as there:
        for name, text in (("one.list", "1 /a 5 -\n"), ("sessions", "/<b>\n"),
                           ("many.list", "1 /a 5 -\n" * 1000)):
            with open(os.path.join(there, name), "w", encoding="ascii") as f:
                f.write(text)
        argvs = [["load", "--list", f"{there}/one.list"],
                 ["load", "--list", f"{there}/many.list", "h"],
                 ["httperf", "--wsesslog", f"5,0.1,{there}/sessions"], ["load", f"{there}/none"]]
        engine.keep_lists(entry, argvs, there)
        assert [os.path.basename(path) for path in entry["lists"]] == ["one.list", "many.list",
                                                                       "sessions"]
        entry["samples"][0]["command"] = argvs
    page = report.page(rec)
    for text in (f"# {there}/one.list\n1 /a 5 -\n\n#", f"# {there}/sessions\n/&lt;b&gt;<",
                 "[9,000 bytes in all]"):
        assert text in page, (text, page[-3000:])
    assert len(entry["lists"][f"{there}/many.list"]) <= engine.LIST_MAX + 30
    del entry["lists"]
    assert "one.list" in report.page(rec), "of a run that an older version wrote"


def t_a_server_that_was_killed_is_said_to_be():
    with tempfile.NamedTemporaryFile() as log:
        server = servers.Nginx(None, "nginx")
        server.log = log.name
        for script, text in (("kill -9 $$", "it said nothing (killed by SIGKILL)"),
                             ("exit 3", "it said nothing")):
            server.proc = subprocess.Popen(["sh", "-c", script])
            server.proc.wait()
            assert server.last_words() == text, server.last_words()


def t_servers_that_cannot_are_named():
    for name, words in (("dynamic", ()), ("web99", ())):
        exp = experiments.EXPERIMENTS[name](options(name, *words))
        run = engine.Run(None, options(name, "--servers", "toboggan,apache2,lighttpd"), {})
        run.opts.servers = run.opts.names
        entry = {"servers": exp.names(run.opts), "left_out": []}
        with contextlib.redirect_stderr(io.StringIO()) as err:
            run.say_unable(exp, entry)
        assert "apache2, lighttpd: it cannot be given" in entry["left_out"][0], entry
        assert "apache2" in err.getvalue()


def t_a_page_stands_alone_and_escapes():
    page = report.page(record(complete=False))
    assert "A partial result: interrupted" in page
    assert "a &lt;cpu&gt;" in page and "<cpu>" not in page and "&lt;size&gt;" in page
    assert page.count("<svg viewBox") == len(curves.Sizes.figures)
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in page.replace("http://198.18.1.1", ""), outside
    assert "wrk -c 64" in page and "6.1 #1" in page


def t_points_that_are_numbers_have_their_places_and_a_line():
    """Also 0, 10, 25 %, which are on no logarithmic axis; things stand side by side."""
    named = {name for name, kind in experiments.EXPERIMENTS.items() if kind.x_named}
    assert named == {"tiers", "caches", "clients"}, named
    entry = record()["experiments"][0]
    for point in entry["points"]:
        point["label"] = f"point {point['x']}"
    for log, is_named in ((True, False), (False, False), (False, True)):
        entry.update(x_log=log, x_named=is_named)
        page = report.charts(entry)
        assert ('d="M' in page and 'fill="none" stroke=' in page) != is_named, (log, is_named)
        assert (">point 1<" in page) == is_named, (log, is_named)


def t_a_refused_point_is_hollow_and_breaks_the_line():
    rec = record()
    entry = rec["experiments"][0]
    for s in entry["samples"]:
        if s["point"] == 1024 and s["server"] == "toboggan":
            s["withheld"] = {"throughput": 5000.0}
    entry["summary"] = engine.summarise(entry)
    figure = next(f for f in entry["figures"] if f[0] == "throughput")
    svg = report.picture(entry, figure)
    ours, theirs = plot.style("toboggan")[0], plot.style("nginx")[0]
    assert svg.count('class="hollow"') == 1 and "no figure: rate refused" in svg, svg
    assert f'fill="none" stroke="{ours}"' not in svg, "a line is drawn through the gap"
    assert f'fill="none" stroke="{theirs}"' in svg


def t_a_server_looks_the_same_everywhere():
    assert plot.styles(["nginx", "toboggan"])["nginx"] == plot.styles(["x", "nginx"])["nginx"]
    looks = plot.styles(["a", "b", "toboggan"])
    assert len(set(looks.values())) == 3, looks
    assert len({plot.STYLES[n][0] for n in ("toboggan", "toboggan-user", "nginx", "apache2",
                                            "floor")}) == 5


def t_rates_have_the_diagonal():
    lines = {"nginx": {500: (500, 500, 500), 4000: (2000, 2000, 2000)}}
    assert 'class="same"' in plot.chart("t", "x", "/s", [500, 4000], lines, True, diagonal=True)
    assert 'class="same"' not in plot.chart("t", "x", "/s", [500, 4000], lines, True)


def t_the_terminal_has_the_table_and_the_reasons():
    rec = record()
    text = terminal.tables(rec)
    assert "[1] no figure: " in text and "the client's limit" in text, text
    row = next(line for line in text.splitlines() if line.startswith("1048576"))
    assert " µs" in row and row.split()[-1].startswith("0.125") or "0.125" in row, row
    plain = terminal.plain(rec)["experiments"]["sizes"]["points"]
    assert "no_figure" in plain["1024"]["toboggan"] and plain["1"]["nginx"]["cpu_ns"]["n"] == 4, \
           plain


def t_where_wire_pays_follows_from_the_rates():
    assert capacity.pays_from(1e6, 1e5, 1.25e5) == "23 %"
    assert capacity.pays_from(1e5, 9e4, 1.2e5).startswith("never")
    assert capacity.pays_from(1e6, None, 1e5) is None
    assert capacity.pays_up_to([(8192, 2e5, 1e5), (16384, 5e4, 1e5)]) == "12.0 KiB"
    assert capacity.pays_up_to([(1024, 2e5, 1e5), (4096, 3e5, 1e5)]) == "all that it answers"
    assert capacity.pays_up_to([(1024, 1e5, 2e5), (4096, 1e5, 2e5)]) == "none of these"


def t_capacity_has_no_figure_where_something_else_is_the_limit():
    exp = capacity.Capacity(options("capacity"))
    full = {"server_share": 0.99, "client_share": 0.4, "others_share": 0.0, "stolen": 0.0}
    assert bottleneck.refused(exp.own_limit(full)[0]) is None
    for change, whose in (({"server_share": 0.8}, bottleneck.UNKNOWN),
                          ({"server_share": 0.8, "client_share": 0.99}, bottleneck.CLIENT),
                          ({"others_share": 0.2}, bottleneck.OTHERS),
                          ({"stolen": 0.2}, bottleneck.OTHERS)):
        got = exp.own_limit({**full, **change})
        assert got[0] == whose and bottleneck.refused(whose) and "%" in got[1], (change, got)


def t_capacity_s_rows_are_those_that_were_asked_for():
    exp = capacity.Capacity(options("capacity", "--rows", "304,10", "--requests-per-connection",
                                    "3"))
    assert [(p.label, p.calls) for p in exp.points] == [("304", 3), ("1 KiB, 10 a connection", 3)]
    refused(lambda: capacity.Capacity(options("capacity", "--rows", "5k")), text="--rows 5k")
    refused(lambda: capacity.Capacity(options("capacity", "--misses", "101")), text="--misses 101")
    exp = capacity.Capacity(options("capacity", "--misses", "20"))
    rows = exp.rows_for(exp.points[1], None, "10.99.1.1")
    assert [(r[0], r[1]) for r in rows] == [(80, "/1k.jpg"), (20, capacity.MISS_PATH)], rows


def t_numbers_are_rounded_before_their_unit_is_chosen():
    for value, want in ((999.4, "999"), (999.7, "1k"), (999400, "999k"), (999700, "1M"),
                        (1234567, "1.23M"),
                        (-999.7, "-1k"), (0, "0"), (0.01234, "0.0123"), (9.997e8, "1G")):
        assert units.human(value) == want, (value, units.human(value))
    for value, unit, want in ((3321, "ns a request", "3.32 µs"), (498, "ns", "498 ns"),
                              (1900, "µs", "1.9 ms"),
                              (130000, "/s", "130k/s"), (999600, "/s", "1M/s"),
                              (87.65e6, "bit/s", "87.6 Mbit/s"),
                              (12.34, "%", "12.3 %"), (2048, "B", "2 KiB"), (2e9, "ns", "2 s"),
                              (None, "/s", "")):
        assert units.human(value, unit) == want, (value, unit, units.human(value, unit))


def t_a_runs_files_are_whole_and_can_be_made_again():
    with tempfile.TemporaryDirectory() as folder:
        rec = record()
        engine.save(rec, folder)
        report.write(rec, folder)
        assert sorted(os.listdir(folder)) == ["report.html", "run.json", "sizes.csv"]
        with open(os.path.join(folder, "sizes.csv"), encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        assert len(rows) == 6 and rows[2]["server"] == "toboggan"
        assert rows[2]["refused"] == "the client's limit" and rows[2]["throughput_median"] == ""
        os.unlink(os.path.join(folder, "report.html"))
        with contextlib.redirect_stdout(io.StringIO()):
            assert report.main([folder]) == 0
        assert os.path.exists(os.path.join(folder, "report.html"))
        for text, words in (("{", "not JSON"), ('{"kind": 1}', "not a run")):
            with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as f:
                f.write(text)
            refused(report.load, folder, text=words)
    refused(report.load, "/nonexistent", text="No such file")


def t_compare_tells_a_change_from_noise():
    rows, missing = compare.compare(record(), record(1.2))
    found = {(r["point"], r["server"], r["figure"]): r for r in rows}
    row = found["1024", "toboggan", "cpu_ns"]
    assert abs(row["ratio"] - 1.2) < 1e-6 and row["low"] > 1 and row["verdict"] == "B is worse"
    assert found["1024", "nginx", "cpu_ns"]["verdict"] == "no difference shown"
    rate = found["1", "toboggan", "throughput"]
    assert rate["ratio"] < 1 and rate["verdict"] == "B is worse", rate
    assert ("1024", "toboggan", "throughput") not in found      # refused in both
    assert not missing


def t_one_row_of_many_that_chance_moved_fails_nothing():
    """Forty rows, all of equal builds: one interval excludes 1, and it takes more than that."""
    def runs(ratios):
        ret = record(), record()
        for rec, mine in zip(ret, (False, True)):
            entry = rec["experiments"][0]
            entry.update(points=[{"x": x, "label": str(x)} for x in range(40)],
                         servers=["nginx"], figures=[["cpu_ns", "cost", "ns", "low"]],
                         samples=[engine.Sample(point=x, server="nginx", repeat=i, invalid=None,
                                                refused=None, cpu_ns=1000 * (r if mine else 1))
                                  for x in range(40)
                                  for i, r in enumerate(ratios(x))])
        return ret

    def noise(x):
        return (1.06, 1.03, 1.05, 1.01, 1.02) if x == 7 else (1.03, 0.97, 1.01, 0.99, 1.0)

    def slower(x):
        return (1.31, 1.30, 1.30, 1.29, 1.30) if x == 7 else noise(0)

    with tempfile.TemporaryDirectory() as folder:
        for ratios, code in ((noise, 0), (slower, 1)):
            names = [os.path.join(folder, f"{code}{name}") for name in "ab"]
            for name, rec in zip(names, runs(ratios)):
                os.mkdir(name)
                engine.save(rec, name)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                assert compare.main([*names, "--strict"]) == code, out.getvalue()
            said = [line for line in out.getvalue().splitlines() if "B is worse" in line]
            assert len(said) == 1 and ("also as one of 40 rows" in said[0]) == code, said
            with contextlib.redirect_stdout(out):
                assert compare.main(names) == 0


def t_compare_says_which_figures_only_one_has():
    a, b = record(), record()
    for s in b["experiments"][0]["samples"]:
        if (s["point"], s["server"]) == (1024, "nginx"):
            s.update(limit="client", refused=bottleneck.refused("client"), throughput=None,
                     throughput_bps=None)
        if (s["point"], s["server"]) == (1, "nginx"):
            s["cpu_ns"] = None
        if (s["point"], s["server"]) == (1 << 20, "nginx"):
            del s["throughput_bps"]
    said = ["sizes 1 nginx cpu_ns: only in {A}",
            "sizes 1024 nginx throughput_bps: only in {A} (refused in {B}: the client's limit)",
            "sizes 1024 nginx throughput: only in {A} (refused in {B}: the client's limit)",
            "sizes 1048576 nginx throughput_bps: only in {A}"]
    for one, other, names in ((a, b, {"A": "A", "B": "B"}), (b, a, {"A": "B", "B": "A"})):
        rows, missing = compare.compare(one, other)
        assert missing == [text.format(**names) for text in said], missing
        assert len(rows) == 6 * 3 - 2 - len(said), "but for those and what is refused in both"
    for s in a["experiments"][0]["samples"]:
        if s["server"] == "nginx" and s["repeat"] % 2:
            s["cpu_ns"] = None
    for s in b["experiments"][0]["samples"]:
        if s["server"] == "nginx" and s["repeat"] % 2 == 0:
            s["cpu_ns"] = None
    assert "sizes 1024 nginx cpu_ns: in no repeat of both" in compare.compare(a, b)[1]


def t_compare_says_what_it_cannot():
    a, b = record(), record()
    b["experiments"][0]["samples"] = [s for s in b["experiments"][0]["samples"]
                                      if s["server"] != "nginx"]
    b["machine"]["kernel"] = "6.12"
    rows, missing = compare.compare(a, b)
    assert len(missing) == 3 and "no figure in B" in missing[0], missing
    more = record()
    more["experiments"][0]["points"].append({"x": 7, "label": "7 B"})
    more["experiments"][0]["servers"].append("lighttpd")
    assert compare.compare(a, more)[1] == [f"sizes {p} {s}: only in B" for p, s in
                                           [(x, "lighttpd") for x in (1, 1024, 1 << 20)] +
                                           [("7 B", s) for s in ("toboggan", "nginx", "lighttpd")]]
    assert "kernel: 6.1 in A, 6.12 in B" in compare.differences(a, b)
    with tempfile.TemporaryDirectory() as folder:
        for name, rec in (("a", a), ("b", record(1.5))):
            os.mkdir(os.path.join(folder, name))
            engine.save(rec, os.path.join(folder, name))
        argv = [os.path.join(folder, "a"), os.path.join(folder, "b"), "--json"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert compare.main(argv) == 0
            assert compare.main(argv + ["--strict"]) == 1
        assert json.loads(out.getvalue().split("\n}\n")[0] + "}")["rows"]


def t_compare_says_what_else_differs():
    a, b = record(), record()
    assert not compare.differences(a, b)
    for run, options_ in ((a, ("--limit", "128")), (b, ("--limit", "64", "--slow", "1,50"))):
        run["experiments"][0].update(
            name="overload",
            settings=invoke.build("overload", options("overload", *options_))[0][0].settings)
    b["machine"].update(date="2027", governor="performance", sysctls={"a.b": "2", "c.d": "3"})
    b.update(quick=True, seconds=9, repeats=1, topology=dict(a["topology"], client_cpus=[1, 2]))
    assert compare.differences(a, b) == [
        "a.b: 1 in A, 2 in B", "c.d: absent in A, 3 in B", "governor: none in A, performance in B",
        "quick: False in A, True in B", "repeats: 4 in A, 1 in B", "seconds: 5 in A, 9 in B",
        "topology client_cpus: [1] in A, [1, 2] in B",
        "overload limit: 128 in A, 64 in B", "overload slow: default in A, [1, 50] in B"], \
        compare.differences(a, b)
    del a["experiments"][0]["settings"]
    assert not [d for d in compare.differences(a, b) if "overload" in d], \
           "of an older version's run"


def t_what_was_asked_is_kept():
    with tempfile.TemporaryDirectory() as there:
        file, seen = os.path.join(there, "x"), []
        for text in ("/a\n", "/b\n"):
            with open(file, "w", encoding="ascii") as f:
                f.write(text)
            seen.append(invoke.build("sessions", options("sessions", file))[0][0].settings)
    assert [a["file"].startswith("x, CRC-32 ") for a in seen] == [True] * 2 and \
        seen[0]["file"] != seen[1]["file"] and seen[0]["think"] == 0.1 and "out" not in seen[0], \
           seen
    with contextlib.redirect_stderr(io.StringIO()):
        exps = invoke.build("all", options("all", "--quick"))[0]
    assert {e.name: e.settings for e in exps}["rates"] == {
        "low": None, "high": None, "step": None, "calls": 10, "client": "httperf", "timeout": 5}
    json.dumps([e.settings for e in exps])


def t_autobench_columns_are_autobenchs():
    h = loads.httperf_numbers(HTTPERF)
    entry = {"servers": ["toboggan", "nginx"], "points": [{"x": 500, "label": "500/s"},
                                                          {"x": 1000, "label": "1,000/s"}],
             "samples": [{"point": 500, "server": "toboggan", "repeat": nr, "invalid": None,
                          "refused": None, "rate": rate, "httperf": dict(h, con_rate=rate / 10),
                          "error_percent": 0.06} for nr, rate in enumerate((501, 900, 100))] +
                        [{"point": 500, "server": "nginx", "repeat": 0, "invalid": "no",
                          "refused": None, "rate": 1, "httperf": h, "error_percent": 101}]}
    rows = arrivals.autobench_rows(entry)
    assert rows[0][:10] == ["dem_req_rate", "req_rate_toboggan", "con_rate_toboggan",
                            "min_rep_rate_toboggan", "avg_rep_rate_toboggan",
                            "max_rep_rate_toboggan", "stddev_rep_rate_toboggan",
                            "resp_time_toboggan", "net_io_toboggan", "errors_toboggan"], rows[0]
    assert rows[1][:10] == [500, 500.8, 50.1, 499.0, 500.1, 501.2, 1.6, 0.1, 655.3, 0.06]
    assert rows[1][10:] == [""] * 9 and len(rows) == 2
    entry["samples"][0].update(refused=bottleneck.refused(bottleneck.CLIENT), rate=None)
    assert arrivals.autobench_rows(entry)[1][2] == 90.0, "a refused sample is among them"
    for s in entry["samples"][:3]:
        s.update(refused=bottleneck.refused(bottleneck.CLIENT), rate=None)
    assert arrivals.autobench_rows(entry)[1][1:] == [""] * 8 + [0.06] + [""] * 9


def t_figures_that_are_rates_are_refused_with_the_rate():
    class Lab:
        link_bps = staticmethod(lambda _: None)

    run = engine.Run(Lab, argparse.Namespace(max_minutes=1), {})
    for name, given in (("tiers", {}), ("connections", {}),
                        ("rates", {"kept_up": False, "resp_ms": 1.0}),
                        ("web99", {"conforming_percent": 50.0}),
                        ("overload", {"late": 0, "slow_bps": 1.0}), ("held", {"late": 0}),
                        ("sessions",
                         {"sess_total": 10, "late_s": 9.0, "resp_ms": 1.0, "sess_rate": 1.0})):
        exp = experiments.EXPERIMENTS[name](options(name))
        exp.halves[5, "x"] = 1.0
        s = engine.Sample(point=5, server="x", invalid=None, throughput=None, rate=7.0, bps=7.0,
                          net_bps=None, seconds=5.0, kinds={}, server_share=0.5, client_share=1.0,
                          client_cpus=1.0, server_busiest=0.5, clients=1,
                          mean_us=1, p50_us=1, p90_us=1, p99_us=2, max_us=3, cpu_ns=4.0,
                          error_percent=0.0,
                          **given)
        run.judge(s, exp, loads.Ours(2), argparse.Namespace(name="x"), 1)
        assert s["limit"] == bottleneck.CLIENT and s["refused"] and s["throughput"] is None, s
        shown = {f[0] for f in exp.figures if s.get(f[0]) is not None}
        assert shown <= {"cpu_ns", "error_percent"}, (name, shown)
        assert not [s[key] for key in s if re.fullmatch("(p[0-9]+|max|mean)_us", key) and
                    s[key] is not None], s
        assert s["withheld"].keys() >= set(exp.withheld) and exp.line({**s, **s["withheld"]})


def t_a_rate_at_which_nothing_is_answered_is_a_point_of_the_sweep():
    sweep = arrivals.Rates(options("rates", "--high", "500"))
    got = {"requests": 0, "statuses": 0, "errors": 7, "seconds": 5.0}
    assert sweep.tolerate(engine.fault(loads.Httperf(50), got), got) is None
    assert sweep.tolerate("3 wrong statuses", dict(got, statuses=3))
    assert sweep.tolerate("7 errors", dict(got, kinds={"reset": 7})) is None
    for kind in engine.WRONG:
        assert sweep.tolerate("7 errors", dict(got, kinds={"reset": 6, kind: 1})), kind
    s = {"requests": 0, "rate": 0.0, "errors": 7, "seconds": 5.0, "p50_us": None, "bytes": 0,
         "connects": 20, "refused": None, "mean_us": 1500, "sent": 5120}
    sweep.after(None, sweep.points[0], None, s, {"httperf": None})
    assert s["error_percent"] == 101 and not s["kept_up"]
    block = arrivals.autobench_block(s)
    assert block == [1.4, 4.0, "", 0.0, "", "", 1.5, 1.0, 101], block
    del s["connects"], s["sent"]
    block = arrivals.autobench_block(s)
    assert block[1] == block[7] == "", "of a run that an older version wrote"


# --- what is left out -----------------------------------------------------

def options(name, *words):
    ap = invoke.parser(name)
    args = ap.parse_args(words)
    invoke.check(ap, args)
    return args


def t_a_missing_tool_is_said_before_anything_is_made():
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


def t_a_server_that_is_not_installed_is_left_out_and_said():
    old = invoke.KINDS
    invoke.KINDS = {name: argparse.Namespace(installed=lambda name=name: name != "b")
                    for name in "abc"}
    try:
        got = invoke.choose_servers(argparse.Namespace(remote={}, servers=None))
    finally:
        invoke.KINDS = old
    assert got == (["a", "c"], ["b: it is not installed"]), got


def exit_code(name, *words):
    """Of a run that measures nothing and comes to its end."""
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
    """And for those that are not there yet."""
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
            refused(fileset.Files(rows).make, "none", text="4 MiB of files wanted, 3 MiB free")
        finally:
            os.statvfs = old[0]
            os.chdir(old[1])
    assert asked == [f"{there}/mounted", there, there, f"{there}/site", there], asked
    assert "make 2 files, 2 MiB\nmake 4 files, 4 MiB\n" in err.getvalue(), err.getvalue()


def t_objects_without_room_are_left_out_and_said():
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
        assert "had 400 of 500 MiB at most: its memory was not little" in exp.notes[0], exp.notes
        write("memory.max_usage_in_bytes", f"{499 << 20}")
        write("memory.failcnt", "7")
        exp.memory(*where, s)
        assert s["memory_bytes"] == 499 << 20 and len(exp.notes) == 1, s
        lab.memory_begin(there)
        assert lab.memory_used(there) == (0, 7)


def t_the_last_point_of_cpus_says_what_it_cannot_tell():
    args = options("cpus")
    args.cpu_list = [3, 5, 6]
    exp = clients.Cpus(args)
    assert [p.x for p in exp.points] == [1, 2, 3] and "with 3 CPUs, which are all" in exp.notes[0]
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


def t_a_run_that_ends_early_says_what_it_never_began():
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
                        (("--stat", "a=x", "--stat", "a=y"), "a has one"),
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


def t_the_table_of_costs_explains_each_row_once():
    rows = [{"row": key, "what": cost.ROWS[key]} for key in ("wire", "sock-1k", "sock-1k")]
    assert cost.legend(rows).splitlines() == [f"  {key:13} {cost.ROWS[key]}"
                                              for key in ("wire", "sock-1k")]


if __name__ == "__main__":
    ktap.run(globals())
