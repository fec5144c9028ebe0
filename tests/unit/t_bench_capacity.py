#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The table of a full core: what is a figure, what is a bound, what follows from them.

No load, no privilege: what tools/bench makes of given numbers.
"""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../../tools/bench"), HERE]
import ktap                     # noqa: E402
from bench_records import options, record, refused  # noqa: E402

import bottleneck               # noqa: E402
import capacity                 # noqa: E402
import clients                  # noqa: E402
import engine                   # noqa: E402
import invoke                   # noqa: E402
import loads                    # noqa: E402
import report                   # noqa: E402
import servers                  # noqa: E402
import terminal                 # noqa: E402


def t_where_wire_pays_follows_from_the_rates():
    assert capacity.pays_from(1e6, 1e5, 1.25e5) == "23 %"
    assert capacity.pays_from(1e5, 9e4, 1.2e5).startswith("never")
    for passed in (1.25e5, 2e5, 1e6, 2e6):      # no less than the daemon alone, up to hits' rate
        assert capacity.pays_from(1e6, passed, 1.25e5) == "0 %", passed
    assert capacity.pays_from(1e6, None, 1e5) is None
    assert capacity.pays_up_to([(8192, 2e5, 1e5), (16384, 5e4, 1e5)]) == "12.0 KiB"
    assert capacity.pays_up_to([(1024, 2e5, 1e5), (13936, 3e5, 1e5)]) == "all that it answers"
    assert capacity.pays_up_to([(1024, 1e5, 2e5), (4096, 1e5, 2e5)]) == "none of these"


def t_wire_pays_up_to_the_longest_size_that_was_measured():
    sizes = [(1024, 3e5, 1e5), (4096, 2e5, 1e5), (8192, 2e5, 1e5)]
    assert capacity.pays_up_to(sizes[:2]) == "at least 4 KiB"
    assert capacity.pays_up_to(sizes) == "at least 8 KiB"
    for refused_ in (13936, None, 1e5), (13936, 2e5, None):
        assert capacity.pays_up_to([*sizes, refused_]) == "at least 8 KiB", refused_
    assert capacity.pays_up_to([*sizes, (13936, 2e5, 1e5)]) == "all that it answers"
    assert capacity.conclusion("28 %", "at least 8 KiB") == \
        "wire pays from 28 % hits on, and up to at least 8 KiB, on this machine"
    for words, rates, want in (
            (("--quick",), {"1 KiB": 2, "8 KiB": 2}, "up to at least 8 KiB"),
            (("--rows", "1k,4k"), {"1 KiB": 2, "4 KiB": 2}, "up to at least 4 KiB"),
            ((), {"1 KiB": 2, "8 KiB": 2, "14 KiB": 0}, "up to at least 8 KiB"),
            ((), {"1 KiB": 2, "8 KiB": 2, "14 KiB": 2}, "up to all that it answers")):
        exp = capacity.Capacity(options("capacity", *words))
        entry = of_points(exp, {(label, server): rate * 1e5 / (1 + (server != "toboggan"))
                                for label, rate in rates.items()
                                for server in ("toboggan", "toboggan-user")})
        exp.derive(entry)
        assert f"{want}, on this machine" in entry["last_lines"][0], (words, entry["last_lines"])


def t_the_conclusion_is_a_sentence():
    assert capacity.conclusion("28 %", "11.7 KiB") == \
        "wire pays from 28 % hits on, and up to 11.7 KiB, on this machine"
    assert capacity.conclusion(None, "all that it answers") == \
        "wire pays up to all that it answers, on this machine"
    assert capacity.conclusion(capacity.pays_from(1e5, 9e4, 1.2e5), "2.0 KiB") == \
        "wire never pays: a hit costs as much as an answer of the daemon, on this machine"
    assert capacity.conclusion("28 %", capacity.NO_SIZE) == \
        "wire pays at none of these sizes, on this machine"


def t_capacity_has_no_figure_where_something_else_is_the_limit():
    exp = capacity.Capacity(options("capacity"))
    full = {"server_share": 0.99, "client_share": 0.4, "others_share": 0.0, "stolen": 0.0,
            "held_ms": 20}
    assert bottleneck.refused(exp.own_limit(full)[0]) is None
    for change, whose in (({"server_share": 0.8}, bottleneck.UNKNOWN),
                          ({"server_share": 0.8, "client_share": 0.99}, bottleneck.CLIENT),
                          ({"others_share": 0.2}, bottleneck.OTHERS),
                          ({"stolen": 0.2}, bottleneck.OTHERS),
                          ({"held_ms": 312}, bottleneck.OTHERS)):
        got = exp.own_limit({**full, **change})
        unit = "ms" if "held_ms" in change else "%"
        assert got[0] == whose and bottleneck.refused(whose) and unit in got[1], (change, got)
    assert "100% of their time" in exp.own_limit({**full, "others_share": 4.02})[1]


def t_on_a_busy_machine_a_figure_is_marked():
    exp = capacity.Capacity(options("capacity", "--rows", "1k", "--busy-machine"))
    for change in {}, {"others_share": 0.2}, {"stolen": 0.2}, {"held_ms": 312}:
        sample = {"server_share": 0.99, "client_share": 0.4, "others_share": 0.0, "stolen": 0.0,
                  "held_ms": 20, **change}
        assert exp.own_limit(sample)[0] == bottleneck.SERVER
        assert sample["disturbed"] == bool(change), sample
    entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER), "floor": (1e6, bottleneck.SERVER)})
    entry["summary"][0]["disturbed"] = entry["summary"][0]["valid"]
    both = {**record(), "experiments": [{**entry, "samples": [{"point": None}]}]}
    for text in terminal.table(entry), terminal.markdown(both):
        assert "~500k/s" in text and "1M/s" in text and "~1M/s" not in text, text
        assert "~ other programs took a part of these CPUs" in text, text
    page = report.page({**both, "experiments": [
        {**entry, "samples": [{"point": None, "server": None}], "about": "", "problems": [],
         "notes": [], "left_out": []}]})
    assert page.count("~500k/s") == 3 and "~1M/s" not in page, "a bar, its title, the table"
    assert page.count("~ other programs took a part of these CPUs") == 2, page
    entry["summary"][0]["figures"] = {"throughput": None, "core_ns": None}  # a refused one
    assert "~" not in terminal.table(entry), terminal.table(entry)
    entry["summary"][0]["figures"] = {"throughput": {"median": 5e5}}
    rows = terminal.plain(both)["experiments"]["capacity"]["points"]["1 KiB"]
    assert rows["toboggan"]["disturbed"] and "disturbed" not in rows["floor"], rows


def t_a_refused_rate_is_not_on_the_progress_lines():
    run = engine.Run.__new__(engine.Run)
    run.taken, run.total, run.started = 0, 2, 0.0
    run.opts = argparse.Namespace(repeats=1)
    exp = capacity.Capacity(options("capacity", "--rows", "1k"))
    sample = engine.Sample(point=1024, server="x", repeat=0, rate=12345.0, server_share=0.99,
                           core_ns=None, disturbed=False, invalid=None,
                           limit=bottleneck.OTHERS, limit_why="70% of their time",
                           refused=bottleneck.refused(bottleneck.OTHERS))
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        run.progress(exp, exp.points[0], sample)
        run.progress(exp, exp.points[0], {**sample, "limit": bottleneck.SERVER, "refused": None})
    refused_, good = err.getvalue().splitlines()
    assert "NO FIGURE: other programs" in refused_ and "70% of their time" in refused_, refused_
    assert "12,345" not in refused_ and "12,345/s" in good, err.getvalue()


def t_a_header_line_is_a_field():
    opts = options("capacity", "--header", "Cookie: a=b", "--header", "X-Y:")
    assert opts.header == [("Cookie", "a=b"), ("X-Y", "")], opts.header
    for line in "foo", "a b: c", ": c", "a: b\r\nc: d", "":
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
            options("capacity", "--header", line)
        assert "--header: " in err.getvalue() and "want NAME: VALUE" in err.getvalue(), line


def t_a_floor_that_the_client_cannot_fill_is_a_bound():
    exp = capacity.Capacity(options("capacity", "--rows", "1k"))
    sample = {"server": capacity.FLOOR, "server_share": 0.8, "client_share": 0.98,
              "others_share": 0.0, "stolen": 0.0, "held_ms": 20, "rate": 1e6}
    sample["limit"], why = exp.own_limit(sample)
    assert sample["limit"] == bottleneck.AT_LEAST and "80%" in why and "98%" in why, why
    assert bottleneck.refused(bottleneck.AT_LEAST) is None and exp.rate(sample) == 1.25e6
    for change, whose in (({"server": "toboggan"}, bottleneck.CLIENT),
                          ({"client_share": 0.5}, bottleneck.UNKNOWN),
                          ({"server_share": 0.99}, bottleneck.SERVER)):
        assert exp.own_limit({**sample, **change})[0] == whose, change
    assert exp.rate({**sample, "limit": bottleneck.SERVER}) == 1e6
    for limit, least in ((bottleneck.AT_LEAST, "at least "), (bottleneck.SERVER, "")):
        entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER), "floor": (1.25e6, limit)})
        exp.derive(entry)
        line = entry["last_lines"][-1]
        assert f": {least}1.25M/s" in line and f"takes {least}2.50 times" in line, line
        text = terminal.table(entry)
        assert ("≥1.25M/s" in text) == bool(least) and (terminal.BOUND in text) == bool(least), text
        one = terminal.plain({**record(), "experiments": [entry]})["experiments"]["capacity"]
        assert one["points"]["1 KiB"]["floor"].get("at_least", False) == bool(least), one


def t_a_bound_is_marked_on_the_page_and_a_long_reason_ends_with_a_word():
    exp = capacity.Capacity(options("capacity", "--rows", "1k"))
    entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER),
                           "floor": (1.25e6, bottleneck.AT_LEAST),
                           "nginx": (0, bottleneck.UNKNOWN)})
    entry["summary"][2]["why"] = {bottleneck.UNKNOWN: "the server's core was 65% busy"}
    chart, table = report.picture(entry, entry["figures"][0]), report.table(entry)
    assert ">≥1.25M/s<" in chart and ">500k/s<" in chart, chart
    assert ">≥1.25M/s" in table and "≥500" not in table, table
    assert "no figure: nobody&#x27;s limit that could be seen (the server&#x27;s …<" in chart, chart


def t_the_last_line_notes_that_the_floor_is_not_known():
    exp = capacity.Capacity(options("capacity", "--rows", "1k"))
    entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER), "floor": (0, bottleneck.UNKNOWN)})
    exp.derive(entry)
    assert "the floor has no figure" in entry["last_lines"][-1], entry["last_lines"]


def t_a_wire_tier_that_was_asked_for_by_name_has_its_distance_from_the_floor():
    exp = capacity.Capacity(options("capacity", "--rows", "1k"))
    entry = of_rates(exp, {"toboggan-wire": (5e5, bottleneck.SERVER),
                           "floor": (1e6, bottleneck.SERVER)})
    exp.derive(entry)
    assert "takes 2.00 times as long" in entry["last_lines"][-1], entry["last_lines"]


def t_the_floor_is_beside_hits_on_lasting_connections_only():
    for words, beside in (((), True), (("--http-1.0",), False), (("--misses", "20"), False),
                          (("--requests-per-connection", "5"), False)):
        exp = capacity.Capacity(options("capacity", "--rows", "1k,304", *words))
        run = types.SimpleNamespace(opts=types.SimpleNamespace(servers=["toboggan"], asked=True),
                                    lab=types.SimpleNamespace())
        assert (capacity.FLOOR in [name for name, _ in exp.sides(run)]) == beside, words


def t_where_misses_are_among_the_requests_no_row_shows_a_hit():
    exp = capacity.Capacity(options("capacity", "--rows", "1k", "--misses", "20"))
    entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER), "floor": (1e6, bottleneck.SERVER)})
    assert exp.derive(entry) == {} and not entry["last_lines"], entry["last_lines"]


def t_conclusions_from_figures_that_were_disturbed_are_marked():
    exp = capacity.Capacity(options("capacity", "--rows", "1k", "--busy-machine"))
    entry = of_rates(exp, {"toboggan": (5e5, bottleneck.SERVER), "floor": (1e6, bottleneck.SERVER)})
    exp.derive(entry)
    assert "do not quote" not in entry["last_lines"][-1], entry["last_lines"]
    for row in entry["summary"]:
        row["disturbed"] = row["valid"]
    exp.derive(entry)
    assert "do not quote" in entry["last_lines"][-1], entry["last_lines"]


def t_only_figures_that_a_conclusion_comes_from_mark_it():
    exp = capacity.Capacity(options("capacity", "--busy-machine"))
    names = ("1 KiB", "4 KiB", "14 KiB", "64 KiB", "1 KiB, passed up", "1 KiB, proxied")
    entry = of_points(exp, {(label, server): 1e5 * (1 + (server == "toboggan")) /
                            (3 if "passed" in label else 1)
                            for label in names for server in ("toboggan", "toboggan-user")})
    labels, words = {p.x: p.label for p in exp.points}, {}
    for row in entry["summary"]:
        row["disturbed"] = 1            # of three: the figure is that of the others
    exp.derive(entry)
    assert len(entry["last_lines"]) == 1, entry["last_lines"]
    for row in entry["summary"]:
        row["disturbed"] = 3
        exp.derive(entry)
        row["disturbed"] = 0
        words[labels[row["point"]], row["server"]] = "do not quote" in entry["last_lines"][-1]
    assert [key for key, marked in words.items() if not marked] == [
        ("64 KiB", "toboggan"), ("64 KiB", "toboggan-user"), ("1 KiB, passed up", "toboggan-user"),
        ("1 KiB, proxied", "toboggan"), ("1 KiB, proxied", "toboggan-user")], words


def t_ratios_are_to_another_kind_of_server_or_to_the_first():
    for names, to in ((["toboggan", "toboggan-user", "nginx", "floor"], "nginx"),
                      (["toboggan-wire", "toboggan-user", "floor"], "toboggan-wire"),
                      (["toboggan", "floor"], "toboggan"), (["toboggan"], None), ([], None)):
        assert engine.reference(names) == to, (names, engine.reference(names))


def of_rates(exp, rates):
    """A run of that one point: {server: (requests a second, whose limit)}."""
    summary = [{"point": 0, "server": name, "valid": 3, "invalid": 0, "disturbed": 0,
                "errors": 0, "limit": [limit], "why": {}, "ratios": {},
                "refused": [bottleneck.WORDS[limit]] * bool(bottleneck.refused(limit)),
                "figures": {"core_ns": None, "throughput": rate and {
                    "median": rate, "min": rate, "max": rate, "n": 3}}}
               for name, (rate, limit) in rates.items()]
    return {"name": "capacity", "title": exp.title, "x": exp.x_label, "x_log": False,
            "x_named": True, "summary": summary,
            "figures": [list(f) for f in exp.figures], "servers": list(rates), "reference": None,
            "points": [{"x": 0, "label": "1 KiB"}], "samples": [], "derived": {}}


def of_points(exp, rates):
    """A run of some of its points: {(label, server): requests a second}; 0: refused."""
    servers_, x = list(dict.fromkeys(s for _, s in rates)), {p.label: p.x for p in exp.points}
    ret = of_rates(exp, {name: (0, bottleneck.SERVER) for name in servers_})
    ret["summary"] = [
        {**of_rates(exp, {name: (rate, bottleneck.SERVER if rate else bottleneck.UNKNOWN)})
         ["summary"][0], "point": x[label]} for (label, name), rate in rates.items()]
    return {**ret, "points": [{"x": p.x, "label": p.label} for p in exp.points]}


def t_connections_are_no_more_than_a_core_s_queue_has_room_for():
    was = capacity.first
    capacity.first = lambda path, pattern, default: "1000"
    try:
        assert capacity.fitting(None) == capacity.CONNECTIONS and capacity.fitting(500) == 500
        refused(capacity.fitting, 501, text="net.core.netdev_max_backlog = 1000")
        refused(lambda: capacity.Capacity(options("capacity", "--connections", "1024")),
                text="at most 500")
        capacity.first = lambda path, pattern, default: "100"
        assert capacity.fitting(None) == 50
        for name in ("capacity", "small"):
            assert invoke.EXPERIMENTS[name](options(name)).opts.connections == 50
        refused(lambda: clients.Ramp(options("ramp", "--clients", "64")), text="--connections 64")
    finally:
        capacity.first = was


def t_another_toboggan_has_options_of_its_own():
    exp = capacity.Capacity(options("capacity", "--also", "late=--late-sockets auto"))
    assert exp.others == [("toboggan late", ["--late-sockets", "auto"])], exp.others
    for bad in ("late", "=--late-sockets auto", "late=", "late='"):
        refused(capacity.Capacity, options("capacity", "--also", bad), text=f"--also {bad}")


def t_a_real_miss_is_one_for_every_server():
    """None of them has a cache that the others have not."""
    exp = capacity.Capacity(options("capacity", "--rows", "miss"))
    exp.origin = None
    how = exp.server_options(None, exp.points[0])
    assert how == {"caches": False}, how
    made = servers.Toboggan(None, "toboggan", **how)
    assert made.memory == servers.NEXT_TO_NONE and servers.Toboggan(None, "x").memory == "256M"
    for caches, line in ((True, "open_file_cache max="), (False, "open_file_cache off;")):
        assert line in conf_of(servers.Nginx, caches), line
    for caches, line in ((True, '"simple"'), (False, '"disable"')):
        assert f"stat-cache-engine = {line}" in conf_of(servers.Lighttpd, caches), line


def conf_of(kind, caches):
    """The configuration that a server is started with."""
    written = []
    server = kind(types.SimpleNamespace(dir="/none", server_cpus={0}), "x", caches=caches)
    server.iface, server.addr, server.log = "tbg1", "198.18.1.1", "/none/log"
    server.file = lambda name, text: written.append(text) or name
    server.run = server.wait = lambda *_: None
    server.launch()
    return written[0]


def t_bad_input_is_reported_and_gives_no_figure():
    exp, sample = capacity.Capacity(options("capacity", "--rows", "1k")), {}
    again = iter((5, 5, 5, 5, 25, 5, 5))     # segments that the server's kernel has sent again
    lab = types.SimpleNamespace(server_cpus={0}, client_cpus={1},
                                retransmitted=lambda _: next(again))
    run = types.SimpleNamespace(lab=lab, opts=types.SimpleNamespace(nofile=300))
    nginx = types.SimpleNamespace(tier=None)
    load = loads.Loop(256, "x.list")
    good = {"requests": 1000, "bytes": 1e6, "seconds": 1, "errors": 0, "statuses": 0, "kinds": {},
            "opened": 256, "verified": 10, "gaps": 0, "resent": 0, "segments": 1000,
            "held_ms": 20, "idle": {"0": 0.0, "1": 0.5}, "stolen": {"0": 0.0}}

    def after(others=0.0, **change):
        sample.update(invalid=None, rate=1000, others_share=others)
        exp.after(run, exp.points[0], nginx, sample, {**good, **change})

    exp.before(run, exp.points[0], nginx)
    after()
    assert engine.fault(load, good) is None and sample["server_share"] == 1.0
    # a link that drops; a client that looked at nothing
    for change, text in (({"gaps": 20}, "the link lost segments: 2.0%"),
                         ({"resent": 20}, "the link lost segments"),
                         ({}, "the link lost segments"),
                         ({"verified": 0}, "not one reply was verified")):
        refused(lambda change=change: after(**change), text=text)
    again = iter((25,) * 3)
    after(others=0.2, resent=20)        # other programs hold them up: that is said instead
    refused(lambda: after(others=0.2, gaps=20), text="the link lost segments: 2.0%")
    after(held_ms=312, resent=20)
    assert "held up for 312 ms" in exp.own_limit(sample)[1], sample
    refused(lambda: after(held_ms=312, gaps=20), text="the link lost segments: 2.0%")
    # wrong bytes, statuses; connections that were not opened
    for change, text in (({"errors": 3, "kinds": {"body": 3}}, "body 3"),
                         ({"statuses": 2}, "2 wrong statuses"),
                         ({"opened": 80}, "only 80 of 256 connections had a reply")):
        assert text in engine.fault(load, {**good, **change}), change
    # on connections of one request, too
    assert "only 80" in engine.fault(loads.Loop(256, "x.list", calls=1), {**good, "opened": 80})
    assert engine.fault(load, {**good, "errors": 1, "statuses": 1, "requests": 1,
                               "kinds": {"body": 0, "reset": 1}}) == \
        "1 error (reset 1) and 1 wrong status beside 1 good reply"
    # fewer descriptors than connections
    refused(engine.Run.check_descriptors, run, load, text="356 descriptors needed, 300 allowed")
    run.opts.nofile = 400
    engine.Run.check_descriptors(run, load)


def t_wire_answers_all_rows_of_its_sizes():
    """A column whose requests went to the daemon shows nothing of wire."""
    exp = capacity.Capacity(options("capacity"))
    late = servers.Toboggan(None, "toboggan x", options=["--wire-size", "4096"])
    wire, user = servers.Toboggan(None, "toboggan"), servers.Toboggan(None, "x", tiers="user")
    points = {p.label: p for p in exp.points}
    for label, server, want in (
            *((label, wire, "detail=wire") for label in ("304", "1 KiB", "4 KiB", "8 KiB",
                                                         "14 KiB", "1 KiB, 1 a connection")),
            ("64 KiB", wire, ""), ("1 KiB, passed up", wire, ""), ("14 KiB", user, "hit"),
            ("1 KiB", late, "detail=wire"), ("8 KiB", late, "hit")):
        assert exp.want(points[label], server) == want, (label, server.name)
        after_load(exp, points[label], server, 90 if want == "detail=wire" else 0)
        if want == "detail=wire":
            refused(after_load, exp, points[label], server, 89,
                    text="wire answered only 89 of 100 requests")
    for words in ("--browser",), ("--header", "Cookie: a=b"):       # to curl, not to loop.c
        exp = capacity.Capacity(options("capacity", *words))
        assert exp.want(points["8 KiB"], wire) == "detail=wire", words
        assert exp.want(points["14 KiB"], wire) == "hit", words
        refused(after_load, exp, points["14 KiB"], wire, 89, text="wire answered only 89")


def after_load(exp, point, server, by_wire):
    """Let an experiment judge 100 good replies, so many of them by wire."""
    run = types.SimpleNamespace(lab=types.SimpleNamespace(server_cpus={0}, client_cpus={1}))
    exp.sent_again = None
    exp.after(run, point, server, {"invalid": None, "rate": 100, "others_share": 0.0,
                                   "tiers": {"wire": by_wire, "user": 100 - by_wire}},
              {"requests": 100, "verified": 1, "gaps": 0, "resent": 0, "segments": 100,
               "held_ms": 20, "idle": {"0": 0.0, "1": 0.5}, "stolen": {"0": 0.0}})


def t_a_load_that_was_killed_leaves_no_program():
    load, bared = loads.Loop(4, "x.list"), []
    load.iface = "tbg7"
    proc = types.SimpleNamespace(returncode=0, communicate=lambda timeout: (
        json.dumps({"requests": 1, "seconds": 1}), ""))
    here = types.SimpleNamespace(end=lambda _: None, bare_client=bared.append)
    loads.finished(here, load, [proc], 1)
    assert not bared, bared
    here.end = lambda p: setattr(p, "returncode", -9)
    refused(loads.finished, here, load, [types.SimpleNamespace(
        returncode=None, communicate=lambda timeout: never(timeout))], 0, text="still running")
    assert bared == ["tbg7"], bared


def never(timeout):
    raise subprocess.TimeoutExpired("loop", timeout)


def t_capacity_s_rows_are_those_that_were_asked_for():
    exp = capacity.Capacity(options("capacity", "--rows", "304,10", "--requests-per-connection",
                                    "3"))
    assert [(p.label, p.calls) for p in exp.points] == [("304", 3), ("1 KiB, 10 a connection", 3)]
    for rows, text in (("5k", "--rows 5k"), ("304,5k", "--rows 5k"), ("", "--rows ''")):
        refused(lambda rows=rows: capacity.Capacity(options("capacity", "--rows", rows)), text=text)
    refused(lambda: capacity.Capacity(options("capacity", "--misses", "101")), text="--misses 101")
    exp = capacity.Capacity(options("capacity", "--misses", "20"))
    rows = exp.rows_for(exp.points[1], None, "10.99.1.1")
    assert [(r[0], r[1]) for r in rows] == [(80, "/1k.jpg"), (20, capacity.MISS_PATH)], rows


if __name__ == "__main__":
    ktap.run(globals())
