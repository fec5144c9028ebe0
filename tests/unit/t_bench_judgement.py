#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's decisions: the limit of a figure, valid replies, and chance."""
import argparse
import contextlib
import io
import os
import re
import shutil
import socket
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
import clients                  # noqa: E402
import compare                  # noqa: E402
import contents                 # noqa: E402
import engine                   # noqa: E402
import experiments              # noqa: E402
import fileset                  # noqa: E402
import lab                      # noqa: E402
import bottleneck               # noqa: E402
import loads                    # noqa: E402
import meters                   # noqa: E402
import report                   # noqa: E402
import servers                  # noqa: E402
import sessions                 # noqa: E402
import stats                    # noqa: E402


def t_a_load_that_ends_without_a_reply_has_no_ratio():
    run = engine.Run(None, argparse.Namespace(max_minutes=1, quick=False), {})
    rates = [2.0, 0.0]
    run.other_rate = lambda *_: rates.pop(0)
    refused(run.halves, None, None, None, 1, 1.0, 1, text="no reply at all")


def t_what_is_wrong_with_half_the_load_is_reported():
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


THREAD = """import os, sys, threading, time
os.sched_setaffinity(0, {int(sys.argv[1])})
def busy():
    os.sched_setaffinity(0, {int(sys.argv[2])})
    while time.thread_time() < 0.2:
        pass
    print(flush=True)
    while True:
        time.sleep(60)
threading.Thread(target=busy, daemon=True).start()
sys.stdin.read()
"""


def t_a_thread_has_run_where_it_is():
    """Whatever CPU the first thread of its program waits on."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise ktap.Skip("one CPU")
    with subprocess.Popen([sys.executable, "-c", THREAD, str(cpus[0]), str(cpus[1])],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        tids = os.listdir(f"/proc/{child.pid}/task")
        got = [time_cpu for (tid, _), time_cpu in meters.Others([], {cpus[1]}).look().items()
               if tid in tids]
        child.stdin.close()
    assert sorted(cpu for _, cpu in got) == cpus[:2], got
    assert [s for s, cpu in got if cpu == cpus[1]][0] >= 0.19, got


def t_programs_that_have_ended_have_taken_time_too():
    """Of that of the CPUs, what ours have not taken is the others'."""
    cpu = min(os.sched_getaffinity(0))
    code = "import sys, time\nwhile time.process_time() < 0.5: sum(range(10000))\n" \
        "print(flush=True)\nsys.stdin.read()"
    old, took = meters.user_s, []
    meters.user_s, look, meters.Others.look = lambda _: took.pop(0), meters.Others.look, \
        lambda _: {}
    try:
        for more_s, ours, least, most in ((0.9, True, 0.3, 0.5), (0.9, False, 0.8, 0.9),
                                          (0.05, False, 0, 0), (0.5, True, 0, 0)):
            took[:] = 1000.0, 1000.0 + more_s
            with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE,
                                  preexec_fn=lambda: os.sched_setaffinity(0, {cpu})) as child:
                others = meters.Others([child.pid] if ours else [], {cpu})
                child.stdout.readline()
                got = others.since_s()
                child.stdin.close()
            assert least - 0.1 <= got <= most + 0.02, (more_s, ours, got)
    finally:
        meters.user_s, meters.Others.look = old, look


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


def t_work_that_the_clock_does_not_show_is_no_figure():
    """A few requests take less than its hundredth of a second, or than the idle machine."""
    class Core:
        nr, busy_s = 1, 0.0

        def __init__(self, _cpus, _=None):
            pass

        def since(self):
            return {"share": 0.0, "busiest": 0.0, "busy_s": self.busy_s, "wall_s": 1.0,
                    "not_idle_s": self.busy_s, "steal_s": 0.0}

    class Lab:
        remote, stat, server_cpus, client_cpus = True, lambda *_: str, [0], [1]
        pids = net_bytes = staticmethod(lambda *_: [])

    old, engine.Core = engine.Core, Core
    try:
        for Core.busy_s, idle_share, want in ((0.0, 0.0, None), (0.01, 0.02, None),
                                              (0.03, 0.0, 7.5e6)):
            meter = engine.Meter(Lab(), Lab(), meters.Idle())
            meter.begin()
            meter.idle_share = idle_share
            assert meter.read(4)["cpu_ns"] == want, (Core.busy_s, idle_share)
    finally:
        engine.Core = old


def t_what_is_worked_without_load_is_seen_by_all_looks():
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


def t_the_interval_of_a_ratio_is_students():
    got = stats.paired_ratio([2.0, 2.2, 1.8, 2.0], [1.0, 1.0, 1.0, 1.0])
    assert abs(got["ratio"] - 1.9950) < 1e-3 and got["pairs"] == 4, got
    # by hand: s = 0.08198 of the logarithms, t(3) = 3.182, half = 0.13043
    assert abs(got["low"] - 1.7510) < 2e-3 and abs(got["high"] - 2.2729) < 2e-3, got
    for nr in (1, 2):               # that of two would be wider than all that is possible
        few = stats.paired_ratio(nr * [1.0], nr * [2.0])
        assert few == {"ratio": 0.5, "low": None, "high": None, "chance": None, "pairs": nr,
                       "dropped": 0}, few
    # published: by degrees of freedom, two-sided 95 %
    for freedom, t in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228),
                       (30, 2.042), (60, 2.000), (120, 1.980)):
        assert abs(stats.t95(freedom) - t) < 6e-4, (freedom, stats.t95(freedom))
    # and 99.9 %
    for freedom, t in ((1, 636.62), (2, 31.599), (4, 8.610), (9, 4.781), (40, 3.551)):
        assert abs(stats.by_chance(-t, freedom) - 0.001) < 2e-6, freedom
    assert stats.by_chance(0, 4) == 1 and stats.interval([3.0, 3.0, 3.0])[3] == 0
    assert stats.interval([0.0, 0.0, 0.0]) == (0, 0, 0, 1)


def t_chance_is_reckoned_with_how_many_rows_there_are():
    # Holm 1979: the smallest times all, the next times all but one, never below one before
    got = stats.holm([0.01, 0.04, 0.03, 0.005, 0.9])
    want = [0.04, 0.09, 0.09, 0.025, 0.9]
    assert all(abs(a - b) < 1e-12 for a, b in zip(got, want)) and stats.holm([]) == [], got


def t_pairs_without_a_ratio_are_named():
    def pairs(*values):
        return [({"x": a}, {"x": b}) for a, b in values]

    got = stats.paired("x", "ns", pairs((0, 1), (2, 1), (None, 1), (2, 1), (2, 1)))
    assert (got["ratio"], got["pairs"], got["dropped"]) == (2, 3, 1), got
    assert report.ratio_text(got) == "2 (2–2, pairs with a 0 left out: 1)"
    got = stats.paired("x", "ns", pairs((2, 1), (4, 1)))
    assert report.ratio_text(got) == "2.83 (2 pairs, too few for an interval)"
    assert report.ratio_text(stats.paired("x", "ns", pairs((2, 1)))) == \
        "2 (1 pair, too few for an interval)"
    assert report.ratio_text(stats.paired("x", "ns",
                                          pairs((0, 1)))) == "(pairs with a 0 left out: 1)"
    assert stats.paired("x", "ns", pairs((None, 1), (1, None))) is None
    got = stats.paired("x", "%", pairs((3, 0), (5, 1), (4, 0.5)))
    assert abs(got["difference"] - 3.5) < 1e-9 and got["low"] > 0 and got["pairs"] == 3, got
    assert report.ratio_text(got).startswith("+3.5 points (+2.26 to +4.74"), report.ratio_text(got)
    assert compare.verdict(got, "low") == "B is worse" and \
           compare.verdict(got, "high") == "B is better"
    assert compare.verdict(stats.paired("x", "%", pairs((1, 0), (0, 1), (1, 0))),
                           "low") == "no difference shown"
    assert compare.verdict(stats.paired("x", "%", pairs((5, 0), (5, 0))),
                           "low") == "too few pairs to tell"


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


def t_ab_does_not_wait_long_for_a_server_that_stalls():
    """Its own timeout is 30 s."""
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
    """Like a 204 or 304 instead of a file, which wrk and httperf accept."""
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
    """The engine's sample for such a result at the third point of an experiment."""
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


def t_a_cost_that_is_not_known_is_noted():
    few, short = "fewer than 10 replies", "hundredths of a second"
    for requests, core, errors, said in ((9, True, 0, few), (9, None, 0, ""), (9, True, 3, ""),
                                         (90000, True, 0, short), (90000, None, 0, ""),
                                         (90000, True, 3, "")):
        got = {"requests": requests, "bytes": 9, "errors": errors, "statuses": 0, "seconds": 1.0}
        notes = []
        sample_ = sample_of("clients", got, core=core, notes=notes)
        assert len(notes) == bool(said) and bool(sample_["invalid"]) == bool(errors), \
               (notes, sample_)
        assert not said or said in notes[0], notes


if __name__ == "__main__":
    ktap.run(globals())
