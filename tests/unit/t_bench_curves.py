#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The classic comparisons: lists with weights, ramps, curves and their weighted sums.

No load, no privilege: what tools/bench makes of given numbers and files.
"""
import contextlib
import io
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../../tools/bench"), HERE]
import ktap                     # noqa: E402

import bottleneck               # noqa: E402
import capacity                 # noqa: E402
import clients                  # noqa: E402
import contents                 # noqa: E402
import curves                   # noqa: E402
import engine                   # noqa: E402
import fileset                  # noqa: E402
import lists                    # noqa: E402
import makesite                 # noqa: E402
import report                   # noqa: E402
import t_bench                  # noqa: E402
import terminal                 # noqa: E402
from t_bench import refused     # noqa: E402

FILELIST = """# as WebStone's own, with sizes behind them
/file500.html\t350\t#500
/file5k.html 500 #5120

/image.gif 9
/never.html 0 #10
  /page 1 # of 17 bytes, it is said
"""


def t_a_filelist_of_webstone_is_a_weighted_list():
    rows = lists.parse(FILELIST, "filelist")
    assert rows == [(350, "/file500.html", 500), (500, "/file5k.html", 5120),
                    (9, "/image.gif", -1), (1, "/page", -1)], rows
    assert [r[1] for r in lists.made(rows).rows] == ["/file500.html", "/file5k.html"]
    assert lists.without_size(rows) == "/image.gif"
    for name, size in (("/file50k.html", 51200), ("/file5m.html", 5 << 20), ("/a/2K.gif", 2048),
                       ("/v2/index.html", -1), ("/5k/index.html", -1)):
        assert lists.parse(f"{name} 1\n", "x") == [(1, name, size)], name
    assert lists.parse("/a.html\n", "x") == [(1, "/a.html", -1)], "of WebStone 1"


def t_the_clients_read_what_a_filelist_lists():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "list")
        lists.write(lists.parse(FILELIST, "filelist"), path)
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
    crc = fileset.crc("/file500.html", 500)
    assert lines[0] == f"350 /file500.html 500 {crc:08x}" and lines[2] == "9 /image.gif -1 -", lines


def t_the_files_of_a_list_can_be_made_elsewhere():
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        filelist = os.path.join(folder, "filelist")
        with open(filelist, "w", encoding="utf-8") as f:
            f.write("/a/b.html 350 #500\n")
        site = os.path.join(folder, "site")
        assert makesite.main([site, "--only", "--list", filelist, "--list", "webstone"]) == 0
        assert os.path.getsize(os.path.join(site, "a/b.html")) == 500
        for _, path, size in lists.STANDARD:
            assert os.path.getsize(site + path) == size


def t_lines_of_our_own_are_lists_too():
    text = "1.5 /a 7 01234567\n2 /b 9 - k=1 a=2\n3 /c 5\n"
    assert lists.parse(text, "x") == [(1.5, "/a", 7, "01234567"), (2, "/b", 9, "- k=1 a=2"),
                                      (3, "/c", 5)]


def t_a_list_makes_only_files_of_its_folder():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "list")
        for line, text in (("/../../out 1 #5", "not the plain path"), ("/a/ 1 #5", "not the plain"),
                           ("//a 1 #5", "not the plain path"), ("/a?b 1 #5", "not the plain path"),
                           ("/%41 1 #5", "not the plain path"), ("/a/./b 1 #5", "not the plain"),
                           ("/a 1 #5\n/a/b/c 1 #5", "/a is also the folder"),
                           ("/a 1 #5\n/a 2 #6", "/a has 5 bytes in another line"),
                           ("/1k.jpg 1 #5", "/1k.jpg has 1024 bytes in every lab"),
                           (f"/{'a' * 256} 1 #5", "not the plain path")):
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"{line}\n")
            refused(lambda: capacity.Capacity(t_bench.options("capacity", "--list",
                                                                      path)), text=text)
            err = io.StringIO()
            with contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
                makesite.main([f"{folder}/s", "--only", "--list", path])
            assert text in err.getvalue(), err.getvalue()
            assert sorted(os.listdir(folder)) == ["list", "s"] and not os.listdir(f"{folder}/s")
    assert lists.unmakeable(lists.parse("/a/b 1 #5\n/a/c 1 #5\n/a/b 2 #5", "x")) is None
    assert lists.unmakeable(lists.STANDARD) is None


def t_a_list_that_asks_for_nothing_or_is_none_is_refused():
    for text, words in (("", "no request in it"), ("# only\n/a 0\n", "no request in it"),
                        ("/a x\n", "line 1: want `PATH WEIGHT [#SIZE]`"),
                        ("/a 1 2\n", "line 1"), ("# x\n1 a 2 -\n", "line 2"),
                        ("1 /a b -\n", "line 1"), ("-1 /a 2 -\n", "line 1")):
        refused(lists.parse, text, "x", text=words)
    refused(lists.read, "/nonexistent", text="--list /nonexistent: No such file")
    assert len(lists.read("webstone")) == 5 and sum(r[0] for r in lists.STANDARD) == 1000


def t_the_lab_makes_no_file_whose_size_it_does_not_know():
    with tempfile.NamedTemporaryFile("w", suffix=".list") as f:
        f.write(FILELIST)
        f.flush()
        for name in ("ramp", "capacity"):
            refused(lambda: t_bench.experiments.EXPERIMENTS[name](t_bench.options(
                name, "--list", f.name)) if name == "ramp" else
                capacity.Capacity(t_bench.options(name, "--list", f.name)),
                text="/image.gif has no size")
        exp = clients.Ramp(t_bench.options("ramp", "--list", f.name, "--server", "a=h:1"))
        assert len(exp.listed) == 4 and not exp.in_kernel


def t_a_ramp_is_of_1_to_64_clients():
    exp = clients.Ramp(t_bench.options("ramp"))
    assert [p.x for p in exp.points] == [1, 2, 4, 8, 16, 32, 64]
    assert [exp.connections(p) for p in exp.points] == [1, 2, 4, 8, 16, 32, 64]
    assert {f[2] for f in exp.figures} == {"/s", "B/s"}
    refused(lambda: clients.Ramp(t_bench.options("ramp", "--client", "loop", "--server", "a=h:1")),
            text="--client loop")


def t_a_rate_of_the_ramp_is_what_so_few_clients_ask_for_until_a_side_is_full():
    exp = clients.Ramp(t_bench.options("ramp"))
    few = {"clients_nr": 2, "server_share": 0.5, "client_share": 0.3, "others_share": 0.0,
           "stolen": 0.0, "held_ms": 20}
    assert exp.own_limit(few) == (bottleneck.DEMAND, "2 clients had one request each at a time")
    for change, whose in (({"server_share": 0.99}, bottleneck.SERVER),
                          ({"client_share": 0.99}, bottleneck.CLIENT),
                          ({"others_share": 0.5}, bottleneck.OTHERS)):
        assert exp.own_limit({**few, **change})[0] == whose, change
    exp = clients.Ramp(t_bench.options("ramp", "--client", "load"))
    assert exp.own_limit(few)[0] == exp.own_limit({**few, "server_share": None})[0] == \
           bottleneck.DEMAND
    assert exp.own_limit({**few, "client_share": 0.99}) is None, "twice the clients tell"
    sample = {"throughput": 10.0, "throughput_bps": 800.0}
    exp.seal(sample)
    assert sample["bytes_s"] == 100
    sample = {"throughput": None}
    exp.seal(sample)
    assert "bytes_s" not in sample, "the rate was refused"


def t_small_is_a_curve_from_the_304_on():
    exp = curves.Small(t_bench.options("small"))
    assert [p.label for p in exp.points][0] == "304" and not exp.x_named and not exp.x_log
    assert [p.x for p in exp.points] == [0, 50, 100, 200, 400, 600, 800, 1000]
    assert exp.load and [p.kind for p in exp.points][:2] == ["304", ""]
    exp = curves.Small(t_bench.options("small", "--sizes", "70,80"))
    assert [p.x for p in exp.points] == [0, 70, 80]


def t_cold_files_of_each_size_are_files_of_their_own():
    exp = curves.Cold(t_bench.options("cold"))
    paths = [row[1] for p in exp.points for row in p.files.rows]
    assert len(set(paths)) == len(paths) and [p.x for p in exp.points] == list(fileset.SIZES)
    for p in exp.points:
        assert 4 <= len(p.files.rows) <= 400 and {r[2] for r in p.files.rows} == {p.x}, p.label
        assert exp.asked(p)[0] is p.files and p.cold


def t_pages_span_the_classes_of_the_weighted_sum():
    exp = curves.PageSizes(t_bench.options("pages"))
    xs = [p.x for p in exp.points]
    assert xs == sorted(xs) and xs[0] == fileset.web99_size(0, 0) and \
           xs[-1] == fileset.web99_size(3, 8), xs
    assert all((1, p.path, p.x)[1:] in {r[1:] for r in exp.files.rows} for p in exp.points)


def t_some_connections_of_web99_speak_http_1_0():
    for words, share in (((), 0.3), (("--http-1.0", "50"), 0.5), (("--http-1.0", "0"), 0)):
        exp = contents.Web99(t_bench.options("web99", "--static", *words))
        assert exp.old == share, (words, exp.old)
    for bad in ("101", "-1", "x"):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                t_bench.options("web99", "--http-1.0", bad)
            except SystemExit as e:
                assert e.code == 2 and "--http-1.0" in err.getvalue()
            else:
                raise AssertionError(f"--http-1.0 {bad} was accepted")


def t_the_weighted_sum_is_of_the_curve():
    xs, flat = list(fileset.SIZES), [1000.0] * len(fileset.SIZES)
    cost, mbit, papers = curves.mix_sums(xs, flat, [1e6] * len(xs))
    assert abs(cost - 1000) < 1, cost
    mean = sum(w * s for w, _, s in fileset.web99(1).rows) / sum(
        w for w, _, s in fileset.web99(1).rows)
    assert abs(mbit - mean * 8 * 1e6 / 1e6) < 1e-3 * mbit, (mbit, mean)
    assert abs(papers - mbit) < 1e-6 * mbit         # every size takes as long
    cost, mbit, papers = curves.mix_sums(xs, flat, [1e6] * (len(xs) - 1) + [None])
    assert mbit is None and papers is None and cost, "a refused rate went into a sum"
    assert curves.mix_sums(xs, [0.0] * len(xs), [1e6] * len(xs))[0] is None


def t_the_weighted_sum_is_of_a_whole_curve():
    sizes, rec = curves.Sizes(t_bench.options("sizes")), t_bench.record()
    entry = rec["experiments"][0]
    assert sorted(len(v) for v in sizes.derive(entry).values()) == [1, 1, 2], \
           "nginx's rate, and both costs"
    for left in (lambda s: s["point"] == 1, lambda s: s["point"] != 1024):
        part = dict(entry, samples=[s for s in entry["samples"] if left(s)])
        part["summary"] = engine.summarise(part)
        assert sizes.derive(part) == {}, sizes.derive(part)
    for s in entry["samples"]:
        if s["point"] == 1 << 20 and s["server"] == "nginx":
            s["cpu_ns"] = None
    entry["summary"] = engine.summarise(entry)
    got = sizes.derive(entry)["SPECweb99 mix, ns of processor time a request"]
    assert list(got) == ["toboggan"], got


def t_servers_stand_in_the_order_of_their_sums_in_per_cent_of_the_first():
    rows = curves.ranking({"slow": (2000.0, 30.0, 40.0), "fast": (1000.0, 60.0, 80.0),
                           "refused": (500.0, None, None)})
    assert [r[0] for r in rows[1:]] == ["fast", "slow", "refused"], rows
    assert rows[0][-2] == "processor time a request", "its figures have units of their own"
    assert rows[1][1:] == ["80", "100 %", "60", "100 %", "1 µs", "100 %"], rows[1]
    assert rows[2][1:] == ["40", "50 %", "30", "50 %", "2 µs", "200 %"], rows[2]
    assert rows[3][1:] == ["", "", "", "", "500 ns", "50 %"], rows[3]


def t_the_table_of_the_sums_is_in_the_terminal_and_on_the_page():
    rec = t_bench.record()
    entry = rec["experiments"][0]
    entry["derived"] = curves.Sizes(t_bench.options("sizes")).derive(entry)
    text = terminal.tables(rec)
    assert "SPECweb99-weighted" in text and "of the first" in text, text
    last = [line for line in text.splitlines() if line.startswith(("nginx ", "toboggan "))][-2:]
    assert last[0].startswith("nginx") and last[1].startswith("toboggan"), "its rate was refused"
    assert "100 %" in last[0], last
    assert "<th>of the first</th>" in report.page(rec)
    assert terminal.plain(rec)["experiments"]["sizes"]["ranking"] == entry["ranking"]


if __name__ == "__main__":
    ktap.run(globals())
