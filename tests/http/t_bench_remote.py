#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark against servers that it did not start, good and bad ones.

What is wrong is said plainly, counted, and in no figure. All over loopback.
"""
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import benched                  # noqa: E402
import ktap                     # noqa: E402
import origin                   # noqa: E402

import cost                     # noqa: E402
import engine                   # noqa: E402
import loads                    # noqa: E402
import remote as remote_lab     # noqa: E402
import servers                  # noqa: E402
from messages import Problem    # noqa: E402

QUICK = ("connections", "--quick", "--connections", "4")


def remote(sham, *words, command=QUICK, **kw):
    return benched.run(*command, "--server", f"sham={sham.authority}", *words, **kw)


def here():
    """The place of clients of a server on this machine."""
    os.close(benched.wait_for_lock())
    return remote_lab.Remote("127.0.0.1")


def bad(done, *words):
    """No sample gives a figure, each has its reason, and none is in a summary."""
    assert done.code == 1, done.code
    for s in benched.samples(done.record):
        assert s["invalid"] and any(w in s["invalid"] for w in words), s
    for row in done.record["experiments"][0]["summary"]:
        assert not row["valid"] and row["invalid"], row
        assert not any(row["figures"].values()), row
    with open(os.path.join(done.folder, "report.html"), encoding="utf-8") as f:
        assert "Not figures" in f.read()


def run_load(authority, *words):
    """The report of our load generator about 1 s, or as the arguments say."""
    out = subprocess.run([os.path.join(ktap.BUILD, "tools/bench/load"), "--seconds", "1", *words,
                          *authority.split(":")],
                         stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout
    return json.loads(out)


def t_a_good_server_is_measured():
    with benched.Sham() as sham:
        done = remote(sham, "--stat", "cat /proc/stat")
    assert done.code == 0 and done.record["complete"], done.record["ended"]
    for s in benched.samples(done.record):
        assert s["requests"] > 0 and not s["invalid"] and s["limit"], s
        assert s["cpu_ns"] and s["server_share"] is not None
    assert done.record["topology"]["kind"] == "remote"


def t_without_stat_there_is_no_processor_time_and_a_note():
    with benched.Sham() as sham:
        done = remote(sham)
    assert done.code == 0 and "no --stat" in done.err
    assert all(s["cpu_ns"] is None for s in benched.samples(done.record))


def t_a_stat_command_that_fails_is_named():
    with benched.Sham() as sham:
        done = remote(sham, "--stat", "cat /nonexistent")
    bad(done, "--stat cat /nonexistent")


def t_wrong_bytes_are_no_figure():
    with benched.Sham("body") as sham:
        bad(remote(sham), "body", "wrong bytes")


def t_replies_of_another_length_are_no_figure():
    with benched.Sham("length") as sham:
        bad(remote(sham), "length", "wrong bytes")


def t_wrong_statuses_are_no_figure():
    with benched.Sham("status") as sham:
        bad(remote(sham), "wrong statuses", "status 500")


def t_resets_are_no_figure():
    with benched.Sham("reset") as sham:
        bad(remote(sham), "reset", "no answer", "closed")


def t_replies_that_no_generator_looks_at_are_verified():
    """Some replies are wrong and have the right length: wrk, h2load, ab and httperf accept them."""
    clients = ("clients", "--quick")
    rates = ("rates", "--quick", "--low", "100", "--high", "100")
    tools = ["wrk", "h2load", "ab", "load"]
    for command in (clients, rates):
        for fault, words in (("body", "replies had wrong bytes"), (302, "replies had status 302"),
                             (206, "replies had status 206")):
            with benched.Sham(fault, after=20, every=10) as sham:
                done = remote(sham, command=command)
            # curl may meet the tenth too
            bad(done, words, "wrong bytes", f"status {fault}", "wrong statuses", "errors")
            got = benched.samples(done.record)
            assert len(got) == (len(tools) if command is clients else 1), got
            assert any(words in s["invalid"] for s in got), got
            if any("wrong" in s for s in got):
                assert any(row["errors"] for row in done.record["experiments"][0]["summary"]), got


def t_what_has_no_reply_is_counted_where_the_generator_keeps_silent():
    """h2load says nothing of connections that end, nor wrk of those that hang; packets asks
    again."""
    check = engine.Check(benched.fileset.SMALL,
                         crc=benched.fileset.crc(benched.fileset.SMALL, 1024))
    for fault, texts in (("reset", {"reset", "closed"}), ("hang", {"timeout"})):
        for load, silent in ((loads.Wrk, True), (loads.H2load, True), (loads.Ab, False),
                             (loads.Packets, True)):
            # the first reply is wrong: on a busy machine few are checked in the time that there is
            with benched.Sham(fault, after=0, every=70) as sham, here() as lab:
                wrong, nr = check.verify(lab, servers.Existing(lab, "sham", sham.authority),
                                         load(8, benched.fileset.SMALL))
            found = {kind for kind, text in engine.LOST.items() if text in wrong}
            assert bool(found) == silent and found <= texts and \
                   set(wrong.values()) <= set(range(1, 9)), \
                (fault, load.tool, wrong, nr)


def t_a_load_with_a_long_reply_under_way_has_forgotten_nothing():
    """As long as its bytes arrive."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            with server.accept()[0] as conn:
                conn.recv(4096)
                conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                with contextlib.suppress(OSError):
                    for _ in range(nr):
                        conn.sendall(b"x")
                        time.sleep(0.02)
                over.wait(60)

        for nr, kinds in ((400, {}), (5, {"timeout": 1})):
            over, answering = threading.Event(), threading.Thread(target=answer)
            answering.start()
            try:
                got = run_load("127.0.0.1:%d" % server.getsockname()[1], "--seconds", "2")
            finally:
                over.set()
                answering.join()
            assert got["kinds"] == kinds and not got["requests"], got


def t_made_up_sessions_are_of_known_bytes():
    command = ("sessions", "--quick", "--rates", "10", "--think", "0.05")
    for fault, right in ((None, True), ("body", False)):
        with benched.Sham(fault, after=20, every=3) as sham:
            done = remote(sham, command=command)
        assert bool(benched.samples(done.record)[0]["invalid"]) != right, done.err


def t_a_pass_that_verifies_is_short_and_in_no_figure():
    load = loads.Wrk(8, benched.fileset.SMALL)
    check = engine.Check(benched.fileset.SMALL,
                         crc=benched.fileset.crc(benched.fileset.SMALL, 1024))
    with benched.Sham("body", after=0, every=10) as sham, here() as lab:
        server = servers.Existing(lab, "sham", sham.authority)
        began = time.monotonic()
        wrong, nr = check.verify(lab, server, load)
        assert time.monotonic() - began < 2, "it takes long"
        assert 200 <= nr <= 500 and abs(wrong.pop("wrong bytes") - nr / 10) <= 1 and not wrong, \
               (wrong, nr)
        before = sham.nr
        assert check.verify(lab, server, loads.Ours(8)) == ({}, 0) and sham.nr == before
    with benched.Sham() as sham, here() as lab:
        server = servers.Existing(lab, "sham", sham.authority)
        assert check.verify(lab, server, load)[0] == {}
        wrong, nr = engine.Check(benched.fileset.SMALL, 304).verify(lab, server, load)
        assert wrong == {"status 200": nr}, (wrong, nr)


def t_costs_are_of_right_bytes():
    path = benched.fileset.SMALL
    with here() as lab:
        for fault in (None, "body"):
            with benched.Sham(fault, after=5, every=10) as sham:
                server = servers.Existing(lab, "sham", sham.authority)
                server.started = True
                benched.fileset.put(server.root, path, 1024)
                scenario = cost.Scenario("1 KiB", [server], path=path)
                scenario.lab = lab
                try:
                    scenario.prepare(server)
                    said = None
                except Problem as e:
                    said = str(e)
            assert (said is None) == (fault is None), said
            assert not said or "wrong bytes" in said, said


def t_a_dead_server_is_reported_before_anything_is_timed():
    with benched.Sham() as sham:
        where = sham.authority
    done = benched.run(*QUICK, "--server", f"dead={where}")
    assert done.code == 1 and f"dead: no answer from {where}" in done.err, done.err
    assert os.listdir(done.folder) == [], "it is empty, and stays: it was there"
    assert "Traceback" not in done.err


def t_a_server_may_be_named():
    with benched.Sham() as sham:
        port = sham.authority.rpartition(":")[2]
        for words in (QUICK, ("rates", "--quick", "--low", "100", "--high", "100")):
            done = benched.run(*words, "--server", f"named=localhost:{port}")
            assert done.code == 0 and all(not s["invalid"] for s in benched.samples(done.record))
    done = benched.run(*QUICK, "--server", "x=no.such.host.invalid:80")
    assert done.code == 1 and "no.such.host.invalid: " in done.err, done.err
    assert "Traceback" not in done.err


def t_a_server_without_the_files_is_reported():
    with benched.Sham("status", after=0) as sham:
        done = remote(sham)
    assert done.code == 1 and "bench site" in done.err, done.err
    with benched.Sham() as sham:
        done = remote(sham, command=("objects", "--quick", "--objects", "10"))
    assert done.code == 1 and \
           "/o10/0/0: status 404: give it the files of `bench site`" in done.err, done.err


def t_a_server_needs_only_what_it_is_asked_for():
    """The example of the manual: sessions of one's own log, against one's own server."""
    path = os.path.join(benched.folder(), "sessions")
    for uri, code in (("/mine.html", 0), ("/theirs.html", 1)):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"{uri} think=0.01\n  /mine.html\n")
        with origin.Origin() as o:
            o.on("/mine.html", origin.reply(200, b"mine"))
            o.on("/theirs.html", origin.reply(404))
            done = benched.run("sessions", "--quick", path, "--rates", "4", "--server",
                               f"own=127.0.0.1:{o.port}")
            assert not o.seen(benched.fileset.SMALL)
        if not code:
            s = benched.samples(done.record)[0]
            assert 0 < {**s, **s.get("withheld", {})}["sess_rate"] <= 4.0, "more than began"
        assert done.code == code and "bench site" not in done.err, done.err
    assert "own: /theirs.html: status 404" in done.err, done.err


def t_the_networks_limit_is_refused():
    with benched.Sham() as sham:
        done = remote(sham, "--link-mbit", "0.1")
    for s in benched.samples(done.record):
        assert s["limit"] == "network" and s["refused"] and s["throughput"] is None, s
        assert s["net_bps"] > s["bps"], "headers of packets are also on the wire"
    for row in done.record["experiments"][0]["summary"]:
        assert row["figures"]["throughput"] is None and row["refused"]


def t_too_few_descriptors_are_reported():
    with benched.Sham() as sham:
        done = remote(sham, command=("connections", "--quick", "--connections", "1000"),
                      prefix=("prlimit", "--nofile=600:600"))
    bad(done, "1100 descriptors needed, 600 allowed")


def t_a_missing_tool_is_named():
    with benched.Sham() as sham:
        done = remote(sham, command=("rates", "--quick"),
                      env=dict(os.environ, PATH=no_httperf()))
    assert done.code == 1 and "httperf is missing" in done.err, done.err
    assert "Traceback" not in done.err


def no_httperf():
    """A PATH without that program."""
    there = benched.folder()
    for name in ("python3", "curl", "wrk", "ip", "env"):
        for place in ("/usr/bin", "/bin", "/usr/sbin"):
            path = os.path.join(place, name)
            if os.path.exists(path) and not os.path.exists(os.path.join(there, name)):
                os.symlink(path, os.path.join(there, name))
    # the program adds the folders of administrators, where httperf is not
    return there


def t_what_needs_a_lab_is_refused_with_the_reason():
    with benched.Sham() as sham:
        for command in ("cpus", "overload", "caches"):
            done = remote(sham, command=(command, "--quick"))
            assert done.code == 1, done.code
            assert "from here" in done.err or "not ours" in done.err, done.err


def t_wrong_options_are_named():
    for words in (("--server", "x"), ("--server", "a=h:99999"), ("--repeats", "0"),
                  ("--lab", "--server", "a=h:1"), ("--stat", "x"), ("--cpus-used", "77"),
                  ("--servers", "")):
        done = benched.run("tiers", *words)
        assert done.code == 2 and "usage" in done.err and "Traceback" not in done.err, done.err


def t_a_rate_sweep_has_autobenchs_tables():
    with benched.Sham() as sham:
        done = remote(sham, "--low", "20", "--high", "100", "--step", "20",
                      command=("rates", "--quick"))
    assert done.code == 0, done.err
    with open(os.path.join(done.folder, "rates.autobench.tsv"), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    assert rows[0][:3] == ["dem_req_rate", "req_rate_sham", "con_rate_sham"], rows[0]
    assert [r[0] for r in rows[1:]] == ["20", "40", "60", "80", "100"] and len(rows[1]) == 10
    for row, s in zip(rows[1:], benched.samples(done.record)):
        if s["refused"]:        # on a busy machine httperf falls behind
            assert row[1:-1] == [""] * 8 and float(row[-1]) >= 0, row
            continue
        demand, conns = s["point"], s["point"] / 10
        for rate in (s["rate"], *map(float, row[3:6])):
            assert abs(rate / demand - 1) < 0.08, (rate, row)
        # its own rates are those of the time to the last reply
        assert 0.92 < float(row[1]) / demand < 1.08 * conns / (conns - 1), row


def t_load_counts_every_kind_of_error():
    rows = benched.folder() + "/list"
    benched.fileset.Files([(1, benched.fileset.SMALL, 1024)]).list_for_load(rows)
    listed = ("--list", rows, "--connections", "4")
    with benched.Sham() as sham:
        got = run_load(sham.authority, *listed)
        assert got["requests"] > 10 and not got["errors"] and not got["statuses"], got
        assert got["connects"] == got["opened"] == 4, \
               "each at its first request, however early it came"
        assert got["mean_us"] > 0 and got["sent"] > 40 * got["requests"], got
        got = run_load(sham.authority, *listed, "--calls", "3", "--rate", "40")
        assert got["requests"] >= 20 and got["connects"] >= (got["requests"] - 4 * 3) // 3, got
        once = run_load(sham.authority, *listed, "--once")
        assert once["requests"] == 1, once
    for fault, kinds in (("body", {"body"}), ("length", {"length"}),
                         ("reset", {"reset", "closed"})):
        with benched.Sham(fault, after=5) as sham:
            got = run_load(sham.authority, *listed)
            assert got["requests"] == 5 and kinds & set(got["kinds"]), got
    for fault, status in (("status", "500"), (999, "999")):
        with benched.Sham(fault, after=5) as sham:
            got = run_load(sham.authority, *listed)
        assert got["requests"] == 5 and got["wrong_statuses"] == {status: got["statuses"]}, got
    with benched.Sham("hang", after=5) as sham:
        got = run_load(sham.authority, *listed, "--timeout", "0.3")
        assert got["kinds"].get("timeout"), got
        got = run_load(sham.authority, *listed)     # which ends before they are late
        assert got["kinds"] == {"timeout": 4} and got["errors"] == 4, got
    with benched.Sham("hang", after=20) as sham:    # a stall to the end, of one connection or all
        for nr in ("1", "200"):
            got = run_load(sham.authority, "--list", rows, "--connections", nr, "--rate", "50",
                           "--timeout", "60", "--seconds", "2")
            assert got["max_us"] > 1.5e6 and not got["errors"], got
            assert got["p50_us"] > 5e5 and got["p99_us"] > 1.4e6, got
            sham.nr = 0
    got = run_load(sham.authority, *listed, "--seconds", "20")    # a thousand errors end it
    assert got["kinds"].get("refused") and not got["requests"] and got["stopped"], got


def t_a_lost_syn_is_no_error_of_a_short_sample():
    """It is repeated after one second and two more; then the server is at fault."""
    for seconds, errors in ((1, 0), (4, 1)):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
            authority = "127.0.0.1:%d" % server.getsockname()[1]

            def answer():
                with server.accept()[0] as conn, socket.create_connection(server.getsockname()):
                    assert conn.recv(4096)      # the queue is full: what comes now gets no answer
                    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    conn.recv(1)
                    over.wait(60)

            over, answering = threading.Event(), threading.Thread(target=answer)
            answering.start()
            try:
                got = run_load(authority, "--calls", "1", "--seconds", str(seconds))
            finally:
                over.set()
                answering.join()
        assert (got["requests"], got["errors"], got["connects"]) == (1, errors, 1), (seconds, got)
        assert got["kinds"] == ({"timeout": 1} if errors else {}), (seconds, got)


def t_load_keeps_a_connection_no_longer_than_the_server():
    """RFC 9112, 9.3: those of HTTP/1.0 end unless it says otherwise, and `close` may be any
    member."""
    for version, field, kept in ((1, b"", True), (1, b"Connection: x, Close\r\n", False),
                                 (1, b"Connection: closed\r\n", True),
                                 (1, b"Connection: x\r\nConnection: close\r\n", False),
                                 (0, b"", False),
                                 (0, b"Connection: Keep-Alive\r\n", True)):
        with origin.Origin() as o:
            o.on("/", b"HTTP/1.%d 200 OK\r\n%bContent-Length: 1\r\n\r\nx" % (version, field))
            # 1 s, half of it, is the limit for an answer: for a busy machine
            got = run_load(f"127.0.0.1:{o.port}", "--seconds", "2")
        assert got["requests"] > 2 and not got["errors"], (version, field, got)
        assert (got["connects"] < 2) == kept, (version, field, got)


def t_a_share_of_load_s_connections_speaks_http_1_0():
    seen = []

    def answer(c, r):
        seen.append((r.version, r.field("Connection")))
        if r.version == "HTTP/1.1" or r.field("Connection"):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc")
        else:                   # without a length, to its end
            c.send(b"HTTP/1.0 200 OK\r\n\r\na")
            c.send(b"bc")
            return origin.END
        return None

    rows = benched.folder() + "/list"
    with open(rows, "w", encoding="utf-8") as f:
        f.write(f"1 /a 3 {zlib.crc32(b'abc'):08x}\n" * 60)
    for share, calls in (("1", 3), ("0.5", 1), ("0", 2)):
        seen.clear()
        with origin.Origin() as o:
            o.on("/a", answer)
            got = run_load(f"127.0.0.1:{o.port}", "--list", rows, "--once", "--seconds", "30",
                           "--http-1.0", share, "--calls", str(calls))
        assert got["requests"] == 60 and not got["errors"] and not got["statuses"], got
        old = [field for version, field in seen if version == "HTTP/1.0"]
        assert len(old) == 60 * float(share) or share == "0.5" and 5 < len(old) < 55, (share, old)
        assert old.count("keep-alive") == (40 if share == "1" else 0), (share, old)
        assert got["connects"] == 60 / calls, got


def t_figures_begin_when_all_connections_are_open():
    rows = benched.folder() + "/list"
    benched.fileset.Files([(1, benched.fileset.SMALL, 1024)]).list_for_load(rows)
    seen = []
    with benched.Sham() as sham, here() as lab:
        server = servers.Existing(lab, "sham", sham.authority)
        port = sham.authority.rpartition(":")[2]

        def begin():
            out = subprocess.run(["ss", "-Htn", "state", "established", "dst", f":{port}"],
                                 stdout=subprocess.PIPE, text=True, check=True).stdout
            seen.append((len(out.splitlines()), sham.nr))

        for load, parts in ((loads.Ours(40, list=rows), 2), (loads.Wrk(40, "/1k.jpg"), 1)):
            before = sham.nr
            got, _ = loads.run(lab, load, server, 1, parts, begin)
            assert got["requests"] > 40 and not got["errors"], got
            opened, nr = seen.pop()
            assert not seen and not lab.procs, (seen, lab.procs)
            # wrk says nothing: its figures begin with it, whatever it has done since
            if load.prints_ready:
                assert (opened, nr - before) == (40, 0), (opened, nr - before)

        def wrong():
            raise Problem("no clock")

        try:
            loads.run(lab, loads.Ours(4, list=rows), server, 1, begin=wrong)
        except Problem:
            assert not lab.procs, "a client stayed"
        else:
            raise AssertionError("a load without a beginning ran")


def t_load_takes_chunks_and_sends_cookies_and_bodies():
    rows = benched.folder() + "/list"
    seen = []

    def answer(c, r):
        seen.append((r.method, r.field("Cookie"), r.body))
        parts = b"".join(b"%x;e=f\r\n%s\r\n" % (n, b"x" * n) for n in (1, 16, 5000))
        for part in (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts[:700],
                     parts[700:],
                     b"0\r\nA: b\r\n\r\n"):
            c.send(part)

    with origin.Origin() as o:
        o.on("/a", answer)
        for length, crc, fault in ((5017, f"{zlib.crc32(b'x' * 5017):08x}", None),
                                   (5016, "-", "length"),
                                   (5017, "01234567", "body")):
            with open(rows, "w", encoding="utf-8") as f:
                f.write(f"1 /a {length} {crc} k=1### a=##&b\n1 /a {length} {crc}\n")
            got = run_load(f"127.0.0.1:{o.port}", "--list", rows, "--once", "--connections", "1")
            assert got["kinds"] == ({fault: 2} if fault else {}) and \
                   got["requests"] == (0 if fault else 2), got
        post, get = seen[:2]
        assert re.fullmatch(r"k=1\d{3}", post[1]) and re.fullmatch(rb"a=\d\d&b", post[2]), post
        assert (post[0], *get) == ("POST", "GET", None, b""), seen


def t_load_takes_any_digits_where_a_list_has_them_and_there_alone():
    rows, runs = benched.folder() + "/list", "@4+3/10*2"
    right = b"head000...tail000...000"
    with open(rows, "w", encoding="utf-8") as f:
        f.write(f"1 /a {len(right)} {zlib.crc32(right):08x}{runs}\n")
    with origin.Origin() as o:
        for body, kinds in ((right, {}), (b"head127...tail906...000", {}),
                            (b"head12x...tail906...000", {"body": 1}),
                            (b"head127...taiL906...000", {"body": 1}),
                            (b"head127...tail906...001", {"body": 1})):
            for parts in ([body], [body[:5], body[5:]], [body[i:i + 1] for i in range(len(body))]):
                plain = b"".join(parts)
                chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
                for reply in (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(plain),
                                                                                    plain),
                              b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks):
                    o.on("/a", reply)
                    got = run_load(f"127.0.0.1:{o.port}", "--list", rows, "--once")
                    assert got["kinds"] == kinds, (body, parts, got)
    for wrong in ("@4", "@4+3/2*1", "@-1+3/10*2", "@4+3/10*0", "x"):
        with open(rows, "w", encoding="utf-8") as f:
            f.write(f"1 /a 23 -\n1 /a 23 01234567{wrong}\n")
        res = subprocess.run([os.path.join(ktap.BUILD, "tools/bench/load"), "--list", rows,
                              "127.0.0.1", "1"],
                             stderr=subprocess.PIPE, text=True, check=False)
        assert res.returncode == 2 and f"{rows}: line 2" in res.stderr, res


def t_a_chunk_of_no_size_that_can_be_is_broken_framing():
    def answer(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\nxxxx" % size)

    with origin.Origin() as o:
        o.on("/", answer)
        for size in (b"F" * 16, b"8" + b"0" * 15, b"1" + b"0" * 16, b"f" * 40):
            got = run_load(f"127.0.0.1:{o.port}", "--once")
            assert got["kinds"] == {"framing": 1} and not got["requests"], (size, got)


def t_load_asks_from_a_random_byte_on():
    rows = benched.folder() + "/list"
    with open(rows, "w", encoding="utf-8") as f:
        f.write("1 /a 5000 01234567\n")
    seen, more = [], [0]

    def answer(c, r):
        seen.append(int(re.fullmatch(r"bytes=(\d+)-", r.field("Range")).group(1)))
        body = b"x" * (5000 - seen[-1] + more[0])
        c.send(b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with origin.Origin() as o:
        o.on("/a", answer)
        for more[0], kinds in ((0, set()), (1, {"length"})):
            got = run_load(f"127.0.0.1:{o.port}", "--list", rows, "--offsets", "--expect", "206",
                           "--seconds", "0.3")
            assert set(got["kinds"]) == kinds, got
    assert len(set(seen)) > 5 and max(seen) < 5000, seen


def t_a_line_is_as_slow_as_requested():
    rows = benched.folder() + "/list"
    benched.fileset.Files([(1, benched.fileset.LARGE, 1 << 20)]).list_for_load(rows)
    with benched.Sham() as sham:
        got = run_load(sham.authority, "--seconds", "2", "--line", "400000", "--list", rows,
                       "--connections", "2")
    bps = 8 * got["bytes"] / 2
    assert 400000 < bps <= 1.05 * 800000, bps


def t_a_connection_that_stalls_does_not_conform():
    lines = ("--connections", "10", "--line", "400000", "--conform", "320000", "--seconds", "3")
    for fault, path, least, most in (("hang", benched.fileset.SMALL, 0, 0),
                                     (None, benched.fileset.LARGE, 5, 10)):     # 20 s each
        with benched.Sham(fault, after=50) as sham:
            got = run_load(sham.authority, *lines, "--path", path)
        assert least <= got["conforming"] <= most and not got["errors"], got
        assert bool(got["requests"]) == bool(fault), got


def t_toboggan_finds_its_benchmark():
    tool = os.path.join(ktap.BUILD, "toboggan")
    out = subprocess.run([tool, "bench", "--help"], stdout=subprocess.PIPE, text=True, check=True)
    assert "experiments:" in out.stdout and "compare" in out.stdout
    out = subprocess.run([tool, "bench", "nothing"], stderr=subprocess.PIPE, text=True,
                         check=False)
    assert out.returncode == 2 and "unknown command" in out.stderr
    read, write = os.pipe()
    os.close(read)
    out = subprocess.run([tool, "bench", "--help"], stdout=write, stderr=subprocess.PIPE, text=True,
                         check=False, env={k: v for k, v in os.environ.items()
                                           if k != "PYTHONUNBUFFERED"})
    os.close(write)
    assert out.returncode == 1 and not out.stderr, "nobody reads stdout: " + out.stderr
    out = subprocess.run([tool, "bench", "cost", "--rows", "nothing"], stderr=subprocess.PIPE,
                         text=True, check=False)
    assert out.returncode == 2 and "wire-reflect" in out.stderr
    out = subprocess.run([tool, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    assert "bench" in out.stdout


if __name__ == "__main__":
    ktap.run(globals())
