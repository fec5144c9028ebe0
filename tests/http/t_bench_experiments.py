#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Each experiment of the benchmark once, short and small, with Toboggan alone or beside others.

That it runs, that every sample is a figure and what follows from them is there;
never how fast anything is.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import benched                  # noqa: E402
import ktap                     # noqa: E402

import servers                  # noqa: E402
import t_bench_lab              # noqa: E402
from t_bench_lab import whole   # noqa: E402


def run(name, *words, beside=()):
    done = benched.run(name, "--quick", "--servers", ",".join(("toboggan", *beside)), *words)
    whole(done, name)
    return done.record["experiments"][0], done.folder


def others():
    """All installed servers besides Toboggan."""
    return [n for n, kind in servers.KINDS.items() if n != "toboggan" and kind.installed()]


def t_each_tier_answers_where_it_should():
    done = benched.run("tiers", "--quick", "--servers", "toboggan")
    whole(done, "tiers")
    entry = done.record["experiments"][0]
    assert {"toboggan", "toboggan-user"} <= set(entry["servers"]), entry["servers"]
    for s in entry["samples"]:
        # heads of frames are on the link, too; replies are counted for a little shorter
        assert 0.8 < s["net_bps"] / s["bps"] < 2, s
        wire = s["tiers"].get("wire", 0) / s["requests"]
        if s["server"] == "toboggan" and s["point"] in (0, 1):
            assert wire >= 0.98, s
        if s["server"] == "toboggan-user" or s["point"] == 4:
            assert wire <= 0.02, s


def t_held_processes_hold_no_tier_of_the_kernel():
    done = benched.run("held", "--quick", "--servers", "toboggan,toboggan-user")
    whole(done, "held")
    for s in benched.samples(done.record):
        tier = {"toboggan": "wire", "toboggan-sock": "sock"}.get(s["server"])
        if tier:
            assert s["tiers"][tier] >= 0.98 * s["requests"], s
        elif s["point"]:
            # a quarter of the requests, at least, waits for half of the time held
            assert s["p90_us"] > 25000 / 2, s


def t_rates():
    entry, folder = run("rates", "--low", "100", "--high", "200", "--calls", "5")
    assert entry["derived"]["highest rate kept up with, requests a second"], entry["derived"]
    assert {"rates.autobench.csv", "rates.autobench.tsv"} <= set(os.listdir(folder))


def t_rates_beyond_httperf():
    entry, _ = run("rates", "--low", "300", "--high", "300", "--client", "load")
    assert "load" in entry["samples"][0]["command"][0][0]


def t_sessions():
    path = os.path.join(benched.folder(), "sessions")
    with open(path, "w", encoding="utf-8") as f:
        f.write("/a.html think=0.05\n  /a.css\n  /b/c.png\n/d.html\n\n/e.html\n")
    entry, _ = run("sessions", path, "--rates", "8", "--think", "0.05")
    s = entry["samples"][0]
    assert s["sess_done"] == s["sess_total"] == 8 and s["requests"] == 4 * 4 + 4, s


def t_sessions_of_a_log_can_be_replayed():
    """Percent escapes, a path that is another's folder, a backslash."""
    path = os.path.join(benched.folder(), "sessions")
    with open(path, "w", encoding="utf-8") as f:
        f.write("/a%20b.html?x=1\n/%C3%A9/\n/blog\n/blog/post\n/c%5Cd\n/1k.jpg\n/%FF.html\n")
    entry, _ = run("sessions", path, "--rates", "4", "--think", "0.05")
    assert entry["samples"][0]["requests"] == 6 * 4, entry["samples"]
    assert "left out 1 of 7 requests" in entry["notes"][0] and "/blog" in entry["notes"][0], \
           entry["notes"]


def t_sessions_with_posts():
    """The example of httperf's manual."""
    path = os.path.join(benched.folder(), "sessions")
    with open(path, "w", encoding="utf-8") as f:
        f.write("# session 1 definition\n/foo.html think=0.1\n\t/pict1.gif\n\t/pict2.gif\n"
                "/foo2.html method=POST contents='Post data'\n\t/pict3.gif\n\t/pict4.gif\n\n"
                '/foo3.html method=POST contents="Multiline\\ndata"\n/foo4.html method=HEAD\n')
    done = benched.run("sessions", "--quick", path, "--rates", "4", "--think", "0.05",
                       "--servers", "toboggan,nginx")
    whole(done, "sessions")
    for s in benched.samples(done.record):
        assert s["sess_done"] == 4 and s["requests"] == 2 * 6 + 2 * 2, s


def t_sessions_that_are_wrong_are_refused_before_anything_runs():
    path = os.path.join(benched.folder(), "sessions")
    with open(path, "w", encoding="utf-8") as f:
        f.write("/a.html colour=blue\n")
    done = benched.run("sessions", "--quick", path)
    assert done.code == 1 and f"{path}:1" in done.err and done.record is None, done.err


def t_sizes():
    entry, _ = run("sizes")
    assert entry["derived"]["SPECweb99 mix, ns of processor time a request"]["toboggan"] > 0


def t_small():
    entry, _ = run("small", "--busy-machine", beside=["nginx"])
    assert [p["label"] for p in entry["points"]] == ["304", "50", "1,000"]
    assert all(s["verified"] for s in entry["samples"])


def t_cold():
    entry, _ = run("cold", "--each-mib", "1", beside=["nginx"])
    assert [s["requests"] for s in entry["samples"] if s["server"] == "nginx"] == [400, 400, 64, 4]
    assert [row[0] for row in entry["ranking"]][0] == "SPECweb99-weighted", entry["ranking"]


def t_pages():
    entry, _ = run("pages", beside=["nginx"])
    assert [p["x"] for p in entry["points"]] == [102, 5120, 51200, 921600]
    assert {row[0] for row in entry["ranking"][1:]} == {"toboggan", "nginx"}, entry["ranking"]


def t_ramp():
    for client in ("loop", "load"):
        entry, _ = run("ramp", "--busy-machine", "--client", client, beside=["nginx"])
        assert [p["x"] for p in entry["points"]] == [1, 4, 64]
        # a kilobyte in half of the requests, and half a megabyte in each hundredth
        assert all(s["bytes"] / s["requests"] > 4000 for s in entry["samples"])


def t_ramp_of_a_filelist():
    path = os.path.join(benched.folder(), "filelist")
    with open(path, "w", encoding="utf-8") as f:
        f.write("/a.html 3 #100\n/b.html 1 #2000\n")
    entry, _ = run("ramp", "--busy-machine", "--clients", "2", "--list", path)
    text = next(iter(entry["lists"].values()))
    assert text.split()[:3] == ["3", "/a.html", "100"], text


def t_caches():
    entry, _ = run("caches", "--folders", "1")
    cold = next(s for s in entry["samples"] if s["point"] == 1)
    assert cold["requests"] == 36, cold


def t_web99():
    entry, _ = run("web99", "--folders", "1", "--connections", "4", "--seconds", "5",
                   beside=["nginx"])
    assert [s["server"] for s in entry["samples"]] == ["toboggan", "nginx"]
    for s in ({**s, **s.get("withheld", {})} for s in entry["samples"]):
        assert 0 < s["conforming_percent"] <= 100 and 8 * s["bytes"] / 5 < 1.1 * 4 * 400000, s


def t_web99_static():
    entry, _ = run("web99", "--static", "--folders", "1", "--connections", "4", "--seconds", "5")
    assert "dynamic 30 %" in entry["left_out"][0], entry["left_out"]


def t_dynamic():
    """Wire has a mix in which pages are rare. Of an even one it has what comes before a page at
    once, for a connection is given back where that has paid, and here it seldom does."""
    entry, _ = run("dynamic", "--shares", "0,1,50,100", beside=["nginx"])
    assert [p["x"] for p in entry["points"]] == [0, 1, 50, 100]
    none, rare, even, all_ = (s for s in entry["samples"] if s["server"] == "toboggan")
    assert len(entry["samples"]) == 8 and not entry["x_named"]
    assert none["tiers"]["wire"] >= 0.98 * none["requests"], none
    assert 0.5 < rare["tiers"]["wire"] / rare["requests"] < 0.995, rare
    # two or three give-backs of each of 64 connections, and one answer after each on average
    assert 32 <= even["tiers"]["wire"] <= 64 * 10 < 0.1 * even["requests"], even
    assert not all_["tiers"]["wire"], all_


def t_keepalive():
    entry, _ = run("keepalive", beside=others())
    assert [p["x"] for p in entry["points"]] == [1, 10, 100]


def t_objects():
    done = benched.run("objects", "--quick", "--objects", "10,200", "--servers", "toboggan,nginx")
    whole(done, "objects")
    assert len(benched.samples(done.record)) == 4
    assert "10 of 10 are stored" in done.err and "200 of 200 are stored" in done.err, done.err


def t_many_connections_from_many_addresses():
    entry, _ = run("connections", "--connections", "1,2000")
    assert entry["samples"][1]["opened"] == 2000


def t_cpus():
    entry, _ = run("cpus", beside=others())
    assert [p["x"] for p in entry["points"]] == list(range(1, 1 + len(os.sched_getaffinity(0))))
    last = entry["samples"][-1]
    assert last["refused"] and last["throughput"] is None and last["cpu_ns"] is None, last
    assert last["ran_ns"] and "the clients work on the server's CPUs" in entry["notes"][0], last


def t_clients_agree_on_what_a_reply_is():
    entry, _ = run("clients")
    assert [p["label"] for p in entry["points"]] == ["wrk", "h2load", "ab", "load", "packets"]
    packets = entry["samples"][-1]
    assert packets["tiers"]["wire"] >= 0.98 * packets["requests"], packets


if __name__ == "__main__":
    ktap.run({k: v for k, v in globals().items() if k != "t_bench_lab"}, setup=t_bench_lab.setup)
