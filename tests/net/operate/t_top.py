#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""`toboggan top`, with a daemon and with a fake of one.

What is on a screen is read from tmux, which is a terminal; whether the terminal
is given back is asked of a pseudoterminal.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
from pretender import Pretender

TOOL = os.path.join(ktap.BUILD, "toboggan")
WAIT_S = client.WAIT_S
ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm"}


def top(where, *words, **env):
    return subprocess.run([TOOL, "--control", where, "top", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=WAIT_S, env={**ENV, **env}, check=False)


def with_rates(p):
    """
    One snapshot, from two listings of the objects. They are asked for more seldom
    than the rest where they take long, as on a busy machine.
    """
    interval_s = 0.2
    while True:
        m = json.loads(good(top(p.path, "--json", "--interval", f"{interval_s}")))
        if any(x["hits_per_s"] is not None for x in m["objects"]):
            return m
        interval_s *= 2
        assert interval_s < WAIT_S, p.asked


def lines_of(where, *words):
    """A running top in a pipe."""
    return subprocess.Popen([TOOL, "--control", where, "top", *words], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)


def good(r):
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout


def near(value, want):
    assert abs(value - want) <= 1e-6 * max(1, abs(want)), (value, want)


# --- numbers

def t_rates_are_differences_over_time():
    with Pretender() as p:
        p.stats["tiers"]["sock"] = {"requests": 0, "bytes": 0}

        def more():
            p.stats["tiers"]["wire"]["requests"] += 3000
            p.stats["tiers"]["wire"]["bytes"] += 5000000
            p.stats["tiers"]["user"]["requests"] += 600
            p.stats["tiers"]["user"]["hits"] += 100
            p.stats["tiers"]["sock"]["requests"] += 400
            p.stats["tiers"]["user"]["bytes"] += 1000000
            p.stats["tiers"]["user"]["cpu_s"] += 0.25
            p.stats["passes"][0]["count"] += 800
            p.objects["objects"][1]["hits"] += 100
        p.on_stats = more
        m = json.loads(good(top(p.path, "--json", "--interval", "0.2")))
        s = m["interval_s"]
        assert m["ok"] is True and 0.1 < s < WAIT_S, s
        near(m["requests_per_s"] * s, 4000)
        near(m["bytes_per_s"] * s, 6000000)
        near(m["tiers"]["wire"]["requests_per_s"] * s, 3000)
        near(m["tiers"]["user"]["bytes_per_s"] * s, 1000000)
        near(m["tiers"]["wire"]["share"], 0.75)
        near(m["hit_ratio"], 0.875)         # (3000 + 400 + 100) of 4000
        near(m["hit_ratio_ever"], (900 + 6000 + 60 + 1000) / (1000 + 8000))
        near(m["cpu"]["daemon"] * s, 0.25)
        assert m["cpu"]["idle"] is None or 0 <= m["cpu"]["idle"] <= 1, m["cpu"]
        near(m["requests_per_s_history"][-1], m["requests_per_s"])
        assert len(m["requests_per_s_history"]) == 1


def t_reasons_by_how_often_now():
    with Pretender() as p:
        def more():
            p.stats["passes"][0]["count"] += 10
        p.on_stats = more
        m = json.loads(good(top(p.path, "--json", "--interval", "100ms")))
        assert [x["name"] for x in m["passes"]] == ["MISS", "QUERY"], m["passes"]
        near(m["passes"][0]["per_s"] * m["interval_s"], 10)
        assert m["passes"][1]["per_s"] == 0 and m["passes"][1]["count"] == 4000


def t_objects_by_hits_and_their_rates():
    with Pretender() as p:
        def more():
            p.objects["objects"][2]["hits"] += 1
        p.on_stats = more
        m = with_rates(p)
        assert [x["path"] for x in m["objects"]] == ["/o0", "/o1", "/o2"]
        rates = [x["hits_per_s"] for x in m["objects"]]
        assert rates[0] == rates[1] == 0 and 0 < rates[2] < 10, rates
        assert m["objects_total"] == 3


def t_object_that_is_new_has_no_rate():
    with Pretender() as p:
        def more():
            p.objects["objects"][0]["path"] += "x"      # another one
            p.objects["objects"][1]["hits"] -= 5        # published anew
        p.on_stats = more
        m = with_rates(p)
        assert [x["hits_per_s"] for x in m["objects"]] == [None, None, 0]


def t_variants_are_objects_of_their_own():
    with Pretender() as p:
        rows = p.objects["objects"]
        for row in rows:
            row.update(path="/o", encoding="identity")
        rows[1]["encoding"] = "gzip"
        rows.append(dict(rows[1], hits=300, etag='"2"'))
        rows.append(dict(rows[0], hits=200, path="/one", encoding="br"))

        def more():
            rows[1]["hits"] += 10
            rows[2]["hits"] += 5
        p.on_stats = more
        m = with_rates(p)
        # two are not to be told from each other
        assert [x["hits_per_s"] is None for x in m["objects"]] == [True, False, True, False,
                                                                   False], m["objects"]
        assert m["objects"][1]["hits_per_s"] > 0 and m["objects"][3]["hits_per_s"] == 0, \
               m["objects"]
        assert [x["encoding"] for x in m["objects"]] == ["identity", "gzip", "identity", "gzip",
                                                         "br"]
        text = good(top(p.path, "--once"))
        assert "/o (gzip)\n" in text and "/one (br)\n" in text and "/o\n" in text, text


def t_without_requests_nothing_is_divided():
    with Pretender() as p:
        p.stats["tiers"] = {x: dict.fromkeys(y, 0) for x, y in p.stats["tiers"].items()}
        m = json.loads(good(top(p.path, "--json", "--interval", "0.1")))
        assert m["requests_per_s"] == 0 and m["hit_ratio"] is None and m["hit_ratio_ever"] is None
        assert "hit ratio - now, - since" in good(top(p.path, "--once", "--interval", "0.1"))


def t_tier_that_is_off_and_one_unknown_yet():
    with Pretender() as p:
        p.status["tiers"]["wire"] = {"on": False, "why": "no \x1b[2J BTF"}
        p.status["tiers"]["sock"] = {"on": True}
        p.stats["tiers"]["sock"] = {"requests": 10, "bytes": 100}
        text = good(top(p.path, "--once", "--interval", "0.1"))
        wire = next(x for x in text.splitlines() if x.startswith("wire "))
        assert "off: no \\x1B[2J BTF" in wire, wire
        assert any(x.startswith("sock ") for x in text.splitlines()), text


def t_large_numbers():
    with Pretender() as p:
        def more():
            p.stats["tiers"]["wire"]["requests"] += 10 ** 15
            p.stats["tiers"]["wire"]["bytes"] += 10 ** 18
        p.on_stats = more
        m = json.loads(good(top(p.path, "--json", "--interval", "0.1")))
        near(m["requests_per_s"] * m["interval_s"] / 1e15, 1)
        good(top(p.path, "--once", "--interval", "0.1"))


def t_of_a_daemon():
    """All of it, with as much wire as there is."""
    try:
        d = client.start_wire()
        tier = "wire"
    except ktap.Skip as why:
        ktap.note(why)
        d, tier = daemon.Daemon("--tiers", "user").start(), "user"
    try:
        d.write("a.txt", b"a" * 1000)
        client.hot(d, "/a.txt", tier)
        interval_s = slowest_s = 0.3
        while slowest_s > interval_s / 2:       # it has looked while they were asked
            interval_s *= 2
            seen, slowest_s = [], 0
            t = lines_of(d.control, "--json", "--count", "3", "--interval", f"{interval_s}")
            with client.Client(d.address) as c:
                for line in t.stdout:
                    seen.append(json.loads(line))
                    begun_s = time.monotonic()
                    for _ in range(100):
                        assert c.get("/a.txt").tier == tier
                    slowest_s = max(slowest_s, time.monotonic() - begun_s)
            assert t.wait(WAIT_S) == 0
            t.stdout.close(), t.stderr.close()
            assert len(seen) == 3
        # the last is from behind 200 of them, and nobody else asked
        last = seen[-1]["tiers"][tier]["requests"] - seen[0]["tiers"][tier]["requests"]
        assert last == 200, (last, seen)
        near(sum(m["requests_per_s"] * m["interval_s"] for m in seen[1:]), 200)
        assert seen[-1]["hit_ratio"] == 1
        assert seen[-1]["cpu"]["daemon"] >= 0
        assert [x["path"] for x in seen[-1]["objects"]] == ["/a.txt"]
        text = good(top(d.control, "--once", "--interval", "0.1"))
        for word in ("toboggan ", f"pid {d.pid}", "requests/s |", "hit ratio", "top objects",
                     "/a.txt", "passed up"):
            assert word in text, (word, text)
    finally:
        d.stop()


# --- pipes and terminals that only know the next line

def t_what_wire_costs_is_shown_and_the_kernel_s_statistics_end():
    """By its own clock and by the kernel's, which runs only while somebody looks."""
    def switched_on():
        with open("/proc/sys/kernel/bpf_stats_enabled", encoding="ascii") as f:
            return f.read() != "0\n"

    before = switched_on()
    with client.start_wire() as d, client.Client(d.address) as c:
        d.write("a.txt", b"a" * 100)
        c.hot("/a.txt", "wire")
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                assert c.get("/a.txt").status == 200 and c.get("/%61.txt").status == 200

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            # long enough for a hundred requests to the daemon
            cost = json.loads(top(d.control, "--json", "--interval", "2").stdout)["wire_cost"]
            said = subprocess.run([TOOL, "--control", d.control, "stats"], check=True,
                                  capture_output=True, text=True).stdout
        finally:
            stop.set()
            asking.join()
        assert 50 < cost["hit_ns"] < 1e7 and 10 < cost["pass_ns"] < 1e7, cost
        assert cost["user_ns"] > 1000 and cost["pays_from"] > 0, cost
        assert re.search(r"wire: a hit [0-9.]+ [nµ]s, a packet passed up [0-9.]+ [nµ]s; ", said), \
               said
        assert switched_on() == before
        told = json.loads(subprocess.run([TOOL, "--control", d.control, "--json", "stats"],
                                         check=True,
                                         capture_output=True, text=True).stdout)["tiers"]["wire"]
        assert told["took_ns"] > 0 and told["program"] > 0, told


def t_a_few_requests_do_not_show_what_one_costs_the_daemon():
    """Its time is then that of its start, and of other work."""
    with client.start_wire() as d, client.Client(d.address) as c:
        d.write("a.txt", b"a" * 100)
        c.hot("/a.txt", "wire")
        said = subprocess.run([TOOL, "--control", d.control, "stats"], check=True,
                              capture_output=True, text=True).stdout
        assert "; a request to the daemon - (fewer than 100 came)\n" in said, said
        cost = json.loads(top(d.control, "--json", "--interval", "0.5").stdout)["wire_cost"]
        assert cost["user_ns"] is None, cost


def t_in_a_pipe_a_snapshot_each_interval():
    with Pretender() as p:
        text = good(top(p.path, "--count", "3", "--interval", "0.1"))
        assert text.count("toboggan 9.8, pid 77") == 3 and "\x1b" not in text, text
        assert text.count("\n\ntoboggan 9.8") == 2     # with an empty line between
        for word in ("192.0.2.1:80 [::1]:81", "connections 5, flows 4, objects 3 (2 in the kernel)",
                     "/o2",
                     "QUERY", "has a query"):
            assert text.count(word) == 3, word
        assert "SPLIT" not in text              # never came up
        assert p.rounds() == 4


def t_in_a_pipe_it_goes_on_until_it_is_ended():
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Pretender() as p:
            t = lines_of(p.path, "--interval", "0.1")
            p.wait(4)
            t.send_signal(how)
            text, err = t.communicate(timeout=WAIT_S)
            assert t.returncode == 0 and not err, (how, t.returncode, err)
            assert text.count("toboggan 9.8") >= 2 and text.endswith("\n"), text


def t_reader_that_leaves_ends_it():
    with Pretender() as p:
        t = lines_of(p.path, "--interval", "0.1")
        assert t.stdout.readline().startswith("toboggan")
        t.stdout.close()
        assert t.wait(WAIT_S) in (1, -signal.SIGPIPE)
        t.stderr.close()


def t_full_disk_is_an_error():
    with Pretender() as p, open("/dev/full", "w", encoding="ascii") as full:
        for words in ([], ["--json"]):
            r = subprocess.run([TOOL, "--control", p.path, *words, "top", "--once", "--interval",
                                "0.1"], stdout=full,
                               stderr=subprocess.PIPE, text=True, timeout=WAIT_S, env=ENV,
                               check=False)
            assert r.returncode == 1 and "top: stdout: No space left" in r.stderr, r
            assert "Broken pipe" not in r.stderr, r


def t_history_is_ascii_where_the_terminal_is():
    with Pretender() as p:
        def more():
            p.stats["tiers"]["wire"]["requests"] += 100
        p.on_stats = more
        for locale, inside in (("C", True), ("C.UTF-8", False)):
            line = next(x for x in good(top(p.path, "--once", "--interval", "0.1",
                                            LC_ALL=locale)).splitlines()
                        if x.startswith("requests/s"))
            assert line.isascii() is inside, (locale, line)


def t_paths_cannot_drive_a_terminal():
    with Pretender() as p:
        p.objects["objects"][0]["path"] = "/\x1b[2J\x9b1m\r\n\x7f"
        text = good(top(p.path, "--once", "--interval", "0.1"))
        assert r"/\x1B[2J\x9B1m\x0D\x0A\x7F" in text, text


# --- what goes wrong

def t_no_daemon_is_named():
    r = top("/nonexistent/c.sock", "--once")
    assert r.returncode == 1 and "/nonexistent/c.sock" in r.stderr and not r.stdout, r
    r = subprocess.run([TOOL, "--control", "/nonexistent/c.sock", "--json", "top"],
                       capture_output=True, text=True,
                       timeout=WAIT_S, check=False)
    assert r.returncode == 1 and json.loads(r.stdout)["ok"] is False, r


def t_daemon_that_goes_ends_snapshots():
    with Pretender() as p:
        t = lines_of(p.path, "--interval", "0.1")
        p.wait(3)
        p.end()
        _, err = t.communicate(timeout=WAIT_S)
        assert t.returncode == 1 and p.path in err and err.count("\n") == 1, (t.returncode, err)


def t_answers_that_are_none():
    for raw in (b"\n", b"garbage\n", b"[]\n", b"7\n", b'{"ok":false,"error":"no"}\n',
                b'{"ok":true}\n',
                b'{"ok":true,"tiers":[]}\n',
                b'{"ok":true,"tiers":{"wire":3},"passes":{"a":1},"objects":7}\n',
                b'{"ok":true,"tiers":{"wire":{"requests":"many"}},"passes":[1,{}],'
                b'"objects":[1,{},{"path":1}]}\n',
                b'{"ok":true,"pid":"x","listeners":[1,null],"memory":[]}\n', b"\0\n",
                b"x" * 100000 + b"\n"):
        with Pretender() as p:
            p.raw = raw
            for words in (("--once",), ("--json",)):
                r = top(p.path, *words, "--interval", "0.1")
                assert r.returncode in (0, 1), (raw, r)
                assert r.returncode == 0 or r.stderr.startswith("toboggan: top: "), (raw, r)


def t_daemon_that_does_not_answer_is_given_up():
    with Pretender() as p:
        p.on_stats = lambda: time.sleep(WAIT_S)
        begun = time.monotonic()
        r = top(p.path, "--once")
        assert r.returncode == 1 and p.path in r.stderr, r
        assert time.monotonic() - begun < WAIT_S


def t_wrong_usage_exits_2():
    for words in (["--interval", "0"], ["--interval", ""], ["--interval", "0.05"],
                  ["--interval", "99ms"],
                  ["--interval", "3601"], ["--interval", "soon"], ["--interval", "-1"],
                  ["--interval", "1h"],
                  ["--interval", "nan"], ["--interval", "inf"], ["--interval", "1e3"],
                  ["--interval", "0x1"],
                  ["--interval", "0x1p1s"], ["--interval", "1.2.3"], ["--interval"],
                  ["--count", "-1"],
                  ["--count", "x"], ["--count", ""], ["--count"], ["more"], ["--limit", "3"],
                  ["--all"]):
        r = top("/nonexistent", *words)
        assert r.returncode == 2 and r.stderr.count("\n") == 1 and not r.stdout, (words, r)
    for words in (["--once"], ["--interval", "2"], ["--count", "3"]):
        r = subprocess.run([TOOL, "status", *words], capture_output=True, text=True, timeout=WAIT_S,
                           check=False)
        assert r.returncode == 2 and "status" in r.stderr, r


def t_slow_listings_are_asked_for_rarely():
    """A listing may take one part in twenty of the daemon's time."""
    with Pretender() as p:
        p.list_s = 0.02
        t = lines_of(p.path, "--interval", "0.1")

        def lists():
            return [x for x, cmd in p.asked if cmd == "objects"]
        with p.changed:
            assert p.changed.wait_for(lambda: len(lists()) > 3, WAIT_S), p.asked
        t.terminate()
        t.communicate(timeout=WAIT_S)
        for a, b in zip(lists(), lists()[1:]):
            assert b - a > 0.35, lists()


# --- screens

class Screen:
    """top in tmux, a window of this many columns and rows."""
    def __init__(self, where, *words, columns=80, rows=24):
        if not shutil.which("tmux"):
            raise ktap.Skip("tmux is missing")
        self.socket = where + ".tmux"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  f"'{TOOL}' --control '{where}' top {' '.join(words)}; echo \"exit $?\"; exec cat")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *words], capture_output=True,
                              text=True, check=True,
                              timeout=WAIT_S, env=ENV).stdout

    def lines(self):
        return self.tmux("capture-pane", "-p").split("\n")[:-1]

    def until(self, fn, what):
        deadline = time.monotonic() + WAIT_S
        while not fn(lines := self.lines()):
            assert time.monotonic() < deadline, f"never {what}: {lines}"
            time.sleep(0.02)
        return lines

    def __enter__(self):
        return self

    def __exit__(self, *why):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, timeout=WAIT_S,
                       stderr=subprocess.DEVNULL)


def t_screen_shows_all_of_it_and_resizes():
    with Pretender() as p:
        p.objects["objects"] = [{"path": f"/{i}/" + "long" * 40, "vhost": 0, "size": i,
                                 "hits": 1000 - i,
                                 "tiers": ["user"]} for i in range(100)]
        p.objects["objects"][1]["path"] = "/1/" + "日本語" * 40
        with Screen(p.path, "--interval", "0.2") as s:
            for columns, rows in ((80, 24), (120, 50), (40, 12), (200, 30), (10, 3), (80, 24)):
                s.tmux("resize-window", "-x", str(columns), "-y", str(rows))
                title = "toboggan 9.8, pid 77"[:columns]
                lines = s.until(lambda x, title=title, n=rows: len(x) == n and
                                x[0].startswith(title) and
                                (n < 20 or "MISS" in x[-1]), f"{columns}×{rows}")
                # one row each: nothing wraps, nothing scrolls
                if rows >= 24:
                    assert sum("/0/" in x for x in lines) == sum("/1/日" in x for x in lines) == 1, \
                           lines
                    heads = [i for i, x in enumerate(lines) if "top objects" in x or
                             "passed up" in x]
                    assert len(heads) == 2 and heads[1] - heads[0] == rows - 13, (heads, lines)
                    assert lines[heads[1] + 2].split()[1] == "40", lines
            s.tmux("send-keys", "q")
            s.until(lambda x: any(y == "exit 0" for y in x), "ended by q")


def t_screen_goes_on_without_the_daemon():
    with Pretender() as p, Screen(p.path, "--interval", "0.1", columns=120) as s:
        s.until(lambda x: "pid 77" in x[0], "shown")
        p.end()
        s.until(lambda x: x[-1].startswith("daemon at") and "No such file" in x[-1], "told")
        p.status["pid"] = 78
        # another's: no measure for the last one's
        p.stats["tiers"]["wire"]["requests"] += 10 ** 9
        begun = p.rounds()
        p.begin()
        lines = s.until(lambda x: "pid 78" in x[0] and p.rounds() > begun + 2, "there again")
        assert any(x.endswith("| most 0") for x in lines), lines
        assert not lines[-1].startswith("daemon at"), lines
        s.tmux("send-keys", "C-c")
        s.until(lambda x: any(y == "exit 0" for y in x), "ended by Ctrl-C")


def t_history_grows_to_the_right():
    with Pretender() as p:
        def more():
            p.stats["tiers"]["wire"]["requests"] += 10 ** 6 if p.rounds() == 4 else 10
        p.on_stats = more

        def one_high(lines):
            bar = next((x for x in lines if x.startswith("requests/s |")), "||").split("|")[1]
            return len(bar) > 6 and bar.count("█") == 1 and bar.replace("█", "").strip("▁") == ""
        with Screen(p.path, "--interval", "0.1", columns=600) as s:    # wide: it stays for 50 s
            p.wait(8)
            s.until(one_high, "drawn")


def on_pty(where, *words, term="xterm"):
    """(process, its terminal's two ends, what the terminal was before)"""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    t = subprocess.Popen([TOOL, "--control", where, "top", *words], stdin=slave, stdout=slave,
                         stderr=slave,
                         env={**ENV, "TERM": term}, start_new_session=True,
                         preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    return t, master, slave, before


def read(master, seconds=0):
    got = b""
    while select.select([master], [], [], seconds)[0]:
        got += os.read(master, 65536)
    return got


def t_terminal_is_given_back():
    def key(data):
        return lambda t, master: os.write(master, data)
    ways = {"q": key(b"q"), "Ctrl-C": key(b"\x03")}
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        ways[how.name] = lambda t, master, how=how: t.send_signal(how)
    for name, end in ways.items():
        with Pretender() as p:
            t, master, slave, before = on_pty(p.path, "--interval", "0.1")
            try:
                p.wait(3)
                out = read(master)
                assert b"\x1b[?1049h" in out, out        # it had a screen of its own
                assert termios.tcgetattr(slave) != before
                end(t, master)
                out = b""
                while t.poll() is None:
                    out += read(master, 0.05)
                out += read(master)
                assert t.returncode == 0, (name, t.returncode)
                assert b"\x1b[?1049l" in out, (name, out)
                assert termios.tcgetattr(slave) == before, name
            finally:
                t.kill()
                t.wait()
                os.close(master)
                os.close(slave)


def t_daemon_that_does_not_answer_holds_up_no_key():
    blocked, go_on = threading.Event(), threading.Event()

    def stats():
        if p.rounds() == 2:
            blocked.set()
            go_on.wait(WAIT_S)

    with Pretender() as p:
        p.on_stats = stats
        t, master, slave, _ = on_pty(p.path, "--interval", "0.1")
        try:
            assert blocked.wait(WAIT_S), p.asked
            begun = time.monotonic()
            os.write(master, b"q")
            while t.poll() is None:
                read(master, 0.05)
                assert time.monotonic() - begun < 4, "it waits for the answer"
            assert t.returncode == 0
        finally:
            go_on.set()
            t.kill()
            t.wait()
            os.close(master)
            os.close(slave)


def t_dumb_terminals_get_snapshots():
    for term in ("dumb", "no-such-terminal", ""):
        with Pretender() as p:
            t, master, slave, _ = on_pty(p.path, "--count", "2", "--interval", "0.1", term=term)
            out = b""
            while t.poll() is None:
                out += read(master, 0.05)
            out += read(master)
            os.close(master)
            os.close(slave)
            assert t.returncode == 0, (term, out)
            assert out.count(b"toboggan 9.8") == 2 and b"\x1b" not in out, (term, out)


def t_stopped_and_continued():
    with Pretender() as p, Screen(p.path, "--interval", "0.1") as s:
        s.until(lambda x: "pid 77" in x[0], "shown")
        pid = int(subprocess.run(["pgrep", "-f", f"^{TOOL} --control {p.path} top"],
                                 capture_output=True, text=True,
                                 check=True).stdout)
        os.kill(pid, signal.SIGSTOP)
        p.status["pid"] = 79
        os.kill(pid, signal.SIGCONT)
        s.until(lambda x: "pid 79" in x[0], "going on")


def t_hung_up_terminal_ends_it():
    with Pretender() as p:
        t, master, slave, _ = on_pty(p.path, "--interval", "0.1")
        p.wait(2)
        os.close(slave)
        os.close(master)
        assert t.wait(WAIT_S) is not None


if __name__ == "__main__":
    ktap.run(globals())
