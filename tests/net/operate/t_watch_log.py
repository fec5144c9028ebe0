#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""`toboggan log`: live requests of all tiers, filtered, without delaying requests."""
import contextlib
import json
import os
import select
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import conf
import daemon
import ktap
import origin
from client import WAIT_S, until

TEXT = ('host "one.example" {\n root = "{root}"\n alias = {"www.one.example"}\n default = true\n}\n'
        'host "two.example" {\n root = "{root}"\n}\n')
FIELDS = {"time", "tier", "status", "seconds", "client", "host", "request", "body", "bytes",
          "reason", "upstream",
          "upstream_seconds", "agent", "id"}


@contextlib.contextmanager
def watching(d, *words, text=False):
    """The tool, once it watches; told() is its next line."""
    p = subprocess.Popen([daemon.TOOL, "--control", d.control, *([] if text else ["--json"]), "log",
                          *words],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if not text:
            assert told(p) == {"ok": True}
        yield p
    finally:
        p.kill()
        p.wait(WAIT_S)
        p.stdout.close()
        p.stderr.close()


def told(p):
    line = p.stdout.readline()
    assert line, p.stderr.read()
    return json.loads(line)


def ask(d, host, path, *fields):
    return conf.Host(d.address, host).ask("GET", path, *fields)


def lost(d):
    out = subprocess.run([daemon.TOOL, "--control", d.control, "--json", "stats"],
                         capture_output=True, check=True,
                         timeout=WAIT_S).stdout
    return json.loads(out)["log"]


def t_a_line_of_each_request():
    with conf.Conf(TEXT) as d:
        d.write("a.txt", b"a" * 100)
        with watching(d) as p:
            ask(d, "one.example", "/a.txt?x", "User-Agent: an \"agent\"\xfc")
            line = told(p)
            assert set(line) == FIELDS, line
            assert (line["request"], line["status"], line["body"], line["tier"], line["host"],
                    line["client"]) == \
                ("GET /a.txt?x HTTP/1.1", 200, 100, "user", "one.example", "127.0.0.1"), line
            assert line["agent"] == "an \"agent\"\xfc" and line["bytes"] > 200 and \
                   len(line["id"]) == 32, line
            ask(d, "two.example", "/none")
            assert told(p)["status"] == 404


def t_a_line_for_people():
    with conf.Conf(TEXT) as d, watching(d) as ready, watching(d, "--limit", "2", text=True) as p:
        def shown():                        # nothing says when it has begun
            ask(d, "one.example", "/\x1b[31m")
            told(ready)
            return select.select([p.stdout], [], [], 0.1)[0]
        until(shown)
        ask(d, "one.example", "/second")
        lines = p.communicate(timeout=WAIT_S)[0].splitlines()
        assert not p.returncode and len(lines) == 2, lines
        assert " user 400 0." in lines[0] and \
               '127.0.0.1 one.example "GET /\\x1B[31m HTTP/1.1" ' in lines[0], lines


def t_hits_of_wire_are_reported_while_somebody_watches():
    with conf.Conf(TEXT, wire=True) as d:
        d.write("a.txt", b"a" * 100)
        c = conf.Host(d.address, "one.example")
        until(lambda: c.ask("GET", "/a.txt").tier == "wire")
        with watching(d, "--tier", "wire") as p:
            until(lambda: c.ask("GET", "/a.txt?seen").tier == "wire")
            line = told(p)
            assert (line["tier"], line["reason"],
                    line["request"]) == ("wire", "hit", "GET /a.txt?seen HTTP/1.1"), line
            assert 0 <= line["seconds"] < WAIT_S and line["host"] == "one.example" and \
                   line["bytes"] > 200, line
        with watching(d) as p:              # who came before is nobody's any more
            until(lambda: c.ask("GET", "/a.txt?again").tier == "wire")
            assert "?again" in told(p)["request"]
        c.s.close()


def t_filters_let_through_what_they_say():
    with conf.Conf(TEXT) as d:
        d.write("a.txt", b"a")
        d.write("b/c", b"a")
        asked = (("one.example", "/a.txt"), ("two.example", "/a.txt"),
                 ("www.one.example:80", "/none"),
                 ("two.example", "/b/c"), ("unknown.example", "/b/none"))
        for words, want in ((("--host", "one.example"), (0, 2, 4)),
                            (("--host", "WWW.one.example"), (2,)),
                            (("--host", "two.example", "--status", "200"), (1, 3)),
                            (("--status", "404,5xx"), (2, 4)),
                            (("--status", "4xx", "--path", "/b"), (4,)),
                            (("--path", "/a.txt", "--tier", "sock,user"), (0, 1)),
                            (("--slow", "60s"), ()),
                            (("--tier", "wire"), ()), (("--path", "/"), (0, 1, 2, 3, 4))):
            with watching(d, *words) as p, watching(d) as every:
                for host, path in asked:
                    ask(d, host, path)
                assert [told(every)["host"] for _ in asked] == [host for host, _ in asked]
                again = [*want, *want[:1]]  # a last one: what is between would be seen
                if want:
                    ask(d, *asked[want[0]])
                assert [told(p)["host"] for _ in again] == [asked[i][0] for i in again], words
                assert want or not select.select([p.stdout], [], [], 0.3)[0], words


def t_a_filter_that_is_none_is_refused():
    with conf.Conf(TEXT) as d:
        for words, says in ((("--host", "a b"), "the name of a host"),
                            (("--tier", "wires"), "wire, sock and user"),
                            (("--tier", "wire,"), "wire, sock and user"),
                            (("--status", "40"), "such as 404"),
                            (("--status", "604"), "such as 404"),
                            (("--status", "4x4"), "such as 404"),
                            (("--slow", "soon"), "a time such as"),
                            (("--path", "b"), "from its slash on")):
            out = subprocess.run([daemon.TOOL, "--control", d.control, "log", *words],
                                 capture_output=True,
                                 text=True, check=False, timeout=WAIT_S)
            assert out.returncode == 1 and \
                   f'log: {words[0][2:]} "{words[1]}": expected' in out.stderr and \
                says in out.stderr, out
        for words in (["status", "--slow", "1s"], ["log", "--tag", "x"], ["log", "x"],
                      ["log", "--limit", "-1"]):
            out = subprocess.run([daemon.TOOL, "--control", d.control, *words], capture_output=True,
                                 text=True,
                                 check=False, timeout=WAIT_S)
            assert out.returncode == 2, out


def t_who_does_not_read_loses_lines_and_holds_up_nobody():
    """Lines without room are counted, and their number is printed in their place."""
    with conf.Conf(TEXT) as d:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(WAIT_S)
            s.connect(d.control)
            s.sendall(b'{"cmd":"log"}\n')
            f = s.makefile("r", encoding="utf-8")
            assert json.loads(f.readline()) == {"ok": True}
            nr, room = 2500, "x" * 1500             # twice what waits for who reads
            c = conf.Host(d.address, "one.example")
            for i in range(nr):
                assert c.ask("GET", f"/{i}", "User-Agent: " + room).status == 404
            seen = missing = 0
            while seen + missing < nr:
                line = json.loads(f.readline())
                missing += line.get("lost", 0)
                seen += "request" in line
            assert seen + missing == nr and missing, (seen, missing)
            # and it goes on from there
            c.ask("GET", "/last")
            assert json.loads(f.readline())["request"] == "GET /last HTTP/1.1"
        assert lost(d)["lost"] == 0                 # there is no access log that has lost any


def t_nine_cannot_watch_and_one_that_leaves_makes_room():
    with conf.Conf(TEXT) as d, contextlib.ExitStack() as stack:
        for _ in range(7):
            stack.enter_context(watching(d))
        with watching(d):
            out = subprocess.run([daemon.TOOL, "--control", d.control, "log"], capture_output=True,
                                 text=True,
                                 check=False, timeout=WAIT_S)
            assert out.returncode == 1 and "8 watch already" in out.stderr, out
            # others are answered all the same
            assert lost(d)["on"] is False

        def room():
            p = subprocess.Popen([daemon.TOOL, "--control", d.control, "--json", "log"],
                                 stdout=subprocess.PIPE,
                                 text=True)
            line = p.stdout.readline()
            p.kill()
            p.wait(WAIT_S)
            p.stdout.close()
            return "true" in line
        until(room)


def t_it_ends_with_the_daemon():
    d = conf.Conf(TEXT)
    with d, watching(d) as p:
        d.stop()
        _, said = p.communicate(timeout=WAIT_S)
        assert p.returncode == 1, said


def t_upstreams_and_their_times_are_shown():
    with origin.Origin() as o:
        o.on("/up", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup")
        with conf.Conf(f'upstream = "{o.url}"\n') as d, watching(d, "--path", "/up") as p:
            assert ask(d, "any.example", "/up").body == b"up"
            line = told(p)
            assert line["upstream"] != "-" and float(line["upstream_seconds"]) < WAIT_S, line


if __name__ == "__main__":
    ktap.run(globals())
