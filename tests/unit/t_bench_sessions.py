#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Sessions and logs for a benchmark: httperf's grammar, conversion of a log, the requests."""
import argparse
import contextlib
import gzip
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
sys.path.insert(0, os.path.join(HERE, "../../tools/bench"))
sys.dont_write_bytecode = True
import ktap                     # noqa: E402
from bench_records import options, record, refused  # noqa: E402

import arrivals                 # noqa: E402
import engine                   # noqa: E402
import fileset                  # noqa: E402
import report                   # noqa: E402
import servers                  # noqa: E402
import sessions                 # noqa: E402


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
    """A proxy of the environment does not see the requests, either."""
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
    """Each of these as httperf 0.9.0 requests it."""
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
    """The same for (seconds, target) of one client."""
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
    assert conv.left_out == {"with a target that is not a path": 2}, conv.left_out


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
    """As logrotate leaves it, and with several gzip members."""
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


def t_a_log_that_cannot_be_sorted_is_reported():
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


def t_convert_reports_what_it_left_out():
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


if __name__ == "__main__":
    ktap.run(globals())
