#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's records, pages and tables, and the comparison of two runs."""
import argparse
import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
sys.path.insert(0, os.path.join(HERE, "../../tools/bench"))
sys.dont_write_bytecode = True
import ktap                     # noqa: E402
from bench_records import HTTPERF, options, record, refused, row_of  # noqa: E402

import arrivals                 # noqa: E402
import compare                  # noqa: E402
import curves                   # noqa: E402
import cost                     # noqa: E402
import engine                   # noqa: E402
import experiment               # noqa: E402
import experiments              # noqa: E402
import invoke                   # noqa: E402
import bottleneck               # noqa: E402
import loads                    # noqa: E402
import plot                     # noqa: E402
import report                   # noqa: E402
import servers                  # noqa: E402
import terminal                 # noqa: E402
import units                    # noqa: E402


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


def t_the_page_shows_why_it_is_somebodys_limit():
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
    """Lists and sessions are removed with the lab."""
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


def t_a_server_that_was_killed_is_reported_as_killed():
    with tempfile.NamedTemporaryFile() as log:
        server = servers.Nginx(None, "nginx")
        server.log = log.name
        for script, text in (("kill -9 $$", "no message (killed by SIGKILL)"),
                             ("exit 3", "no message")):
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
        assert "apache2, lighttpd: it cannot load" in entry["left_out"][0], entry
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


def t_a_point_of_a_busy_machine_is_marked():
    rec = record()
    entry = rec["experiments"][0]
    for s in entry["samples"]:
        s["disturbed"] = s["point"] == 1 << 20 and s["server"] == "nginx"
    entry["summary"] = engine.summarise(entry)
    assert report.picture(entry, entry["figures"][0]).count(">~</text>") == 1
    assert "~ other programs" in terminal.table(entry)
    assert report.page(rec).count("~ other programs took") == 2, "by the chart and by the table"
    assert dict(zip(*list(report.csv_rows(entry))[::6]))["disturbed"] == 4


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


def t_the_diagonal_is_straight():
    for xs in ([500, 4000], [100, 100000]):
        lines = {"nginx": {x: (x, x, x) for x in xs}}
        svg = plot.chart("t", "x", "/s", xs, lines, True, diagonal=True)
        points = re.search('class="same" d="M([^"]*)"', svg).group(1).split("L")
        (ax, ay), (bx, by), (cx, cy) = (map(float, points[i].split()) for i in (0, 50, -1))
        assert len(points) == 101 and abs((ax + cx) / 2 - bx) < 1, points
        assert abs((ay + cy) / 2 - by) < 1, points


def t_a_value_in_ns_is_shown_in_a_unit_that_a_person_reads():
    entry = {"servers": ["a", "b"], "derived": {"mix, ns of processor time": {"a": 161400.0},
                                                "highest, requests a second": {"b": 4000}}}
    assert list(terminal.derived(entry)) == ["mix, processor time: 161 µs (a)",
                                             "highest, requests a second: 4000 (b)"]
    table = report.derived(entry)
    assert ">mix, processor time<" in table and ">161 µs<" in table and ">4000<" in table, table


def t_the_titles_of_derived_values_are_shown_as_they_are():
    """Of all experiments that have some; only a unit that stands with the value is left out."""
    seen, medians = {}, {"error_percent": 0.5, "conforming_percent": 99.0}
    for name, kind in invoke.EXPERIMENTS.items():
        if kind.derive is experiment.Experiment.derive:
            continue
        exp = kind(options(name))
        entry = {"servers": ["toboggan", "toboggan-user"],
                 "points": [{"x": p.x, "label": p.label} for p in exp.points], "summary": [
                     {"point": p.x, "server": server, "limit": [], "errors": 0, "valid": 1,
                      "invalid": 0, "counted": 1, "disturbed": 0, "figures": {
                          f[0]: {"n": 1, "median": medians.get(f[0], 1e6)}
                          for f in exp.figures}}
                     for p in exp.points for server in ("toboggan", "toboggan-user")]}
        entry["derived"] = exp.derive(entry)
        assert entry["derived"], name
        lines = list(terminal.derived(entry))
        for title in entry["derived"]:
            own = title.replace(", ns of processor time", ", processor time")
            mine = [line for line in lines if line.startswith(f"{own}: ")]
            assert mine, (name, title, lines)
            assert all("s (t" in line for line in mine) == (own != title), mine
            assert f">{own}<" in report.derived({**entry, "ranking": None}), title
            seen[title] = mine
    assert "most connections of which 95 % conform" in seen, seen
    assert "SPECweb99 mix, ns of processor time a request" in seen, seen


def t_the_terminal_has_the_table_and_the_reasons():
    rec = record()
    text = terminal.tables(rec)
    assert "[1] no figure: " in text and "the client's limit" in text, text
    row = next(line for line in text.splitlines() if line.startswith("1048576"))
    assert " µs" in row and row.split()[-1].startswith("0.125") or "0.125" in row, row
    plain = terminal.plain(rec)["experiments"]["sizes"]["points"]
    assert "no_figure" in plain["1024"]["toboggan"] and plain["1"]["nginx"]["cpu_ns"]["n"] == 4, \
           plain


def t_reasons_that_differ_in_their_numbers_share_one():
    rec = record()
    entry = rec["experiments"][0]
    for s in entry["samples"]:
        if s["server"] == "nginx":
            s.update(limit="client", refused=bottleneck.refused("client"), throughput=None,
                     throughput_bps=None, limit_why=f"the clients' CPUs were {s['point']} % busy")
    entry["summary"] = engine.summarise(entry)
    text = terminal.tables(rec)
    assert "elsewhere with other numbers" in text and "[2]" not in text, text


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


def t_compare_names_the_figures_that_only_one_has():
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


def t_compare_names_what_it_cannot_compare():
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


def t_compare_names_what_else_differs():
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
        assert s["withheld"].keys() >= {*exp.withheld, "throughput", "throughput_bps"}
        assert s["withheld"]["throughput"] == exp.rate({**s, "rate": 7.0}), "a hollow mark"


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


def t_the_table_of_costs_explains_each_row_once():
    rows = [{"row": key, "what": cost.ROWS[key]} for key in ("wire", "sock-1k", "sock-1k")]
    assert cost.legend(rows).splitlines() == [f"  {key:13} {cost.ROWS[key]}"
                                              for key in ("wire", "sock-1k")]


if __name__ == "__main__":
    ktap.run(globals())
