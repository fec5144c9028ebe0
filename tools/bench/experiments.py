# SPDX-License-Identifier: GPL-2.0
"""The experiments: what is asked, at which points, and what a figure means.

Each class is one command of `toboggan bench`. engine.py takes the samples;
nothing here judges one. A new experiment is a class in EXPERIMENTS.
"""
import contextlib
import ctypes
import math
import mmap
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse
import zlib

import lab as laboratory
import bottleneck
import loads
import sessions
import fileset as files
from option_types import not_negative, positives, whole, wholes
from engine import Check, wrong_answers
from loads import Ours, Wrk
from meters import first
from messages import Problem, Usage, say
from servers import KINDS, Existing, Toboggan, fetch
from fileset import LARGE, SMALL
from stats import at

CPU = ("cpu_ns", "processor time of the server", "ns a request", "low")
RATE = ("throughput", "requests a second", "/s", "high")
BPS = ("throughput_bps", "throughput", "bit/s", "high")
MEDIAN = ("p50_us", "median time of a reply", "µs", "low")
TAIL = ("p99_us", "99th percentile of a reply", "µs", "low")
# With N requests always in flight their times are N over the rate: the same figure.
LATENCIES = ("mean_us", "p50_us", "p90_us", "p99_us", "max_us")
LINE_BPS, CONFORM_BPS = 400000, 320000


class Point:
    """x: its place on the axis; label: its name; what else it is, as attributes."""

    def __init__(self, x, label=None, **what):
        self.x, self.label = x, label if label is not None else number(x)
        self.__dict__.update(what)


def number(x):
    for size, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if x >= size and x % size == 0:
            return f"{x // size}{unit}"
    return f"{x:,}"


class Experiment:
    name = title = about = x_label = ""
    x_log, x_named = True, False        # x_named: a point is a thing and no number
    figures = (CPU, RATE, TAIL)
    withheld = LATENCIES        # figures that are refused with the rate, besides those of seal()
    left_out = ()
    unable = ""                 # what it is that servers which names() leaves out cannot do
    lab_only = None             # why it cannot be done with a remote server
    repeats, sample_s = 5, 5    # of each sample, unless it is said
    keep_servers = False        # those of different keys run at the same time
    tools = ("curl",)           # without which it cannot be made; load.c is ours
    known = True                # it asks for what `bench site` makes, not for files of the user's

    def __init__(self, opts):
        self.halves, self.notes = {}, []
        self.settings = {}      # its options; here those whose value does not say enough
        self.points = list(self.make_points(opts))

    @staticmethod
    def options(ap):
        """Options of its own."""

    def make_points(self, opts):
        raise NotImplementedError

    # --- servers

    def names(self, opts):
        return opts.servers

    def sides(self, run):
        """[(name, what makes it)]"""
        if run.lab.remote:
            return [(name, lambda name=name, where=where, **_: Existing(run.lab, name, where))
                    for name, where in run.opts.remote.items()]
        return [(name, lambda name=name, **kw: make(run.lab, name, **kw))
                for name in self.names(run.opts)]

    def server_key(self, point):
        """Points of equal keys are served by the same process."""
        return 0

    def server_options(self, run, point):
        return {}

    def sites(self, run):
        """Make the files; once, before the first sample."""
        if not run.lab.remote:
            files.basic().make(os.path.join(run.lab.dir, "site"))

    def enter(self, run, point):
        """Before each sample, and what starts for it: the lab is as the point wants it."""

    def leave(self, run):
        """After the last sample: the lab is as it was."""

    # --- one sample

    def seconds(self, run, point):
        return run.opts.seconds

    def load(self, run, point, server):
        return Wrk(connections=64, path=SMALL)

    def check(self, run, point, server):
        return Check(SMALL, crc=files.crc(SMALL, 1024))

    def prepare(self, run, point, server):
        """Once for a server at a point: warm it."""
        self.check(run, point, server).settle(run.lab, server)
        loads.run(run.lab, self.load(run, point, server), server, 1)

    def before(self, run, point, server):
        """Right before each load."""

    def run_load(self, run, load, server, seconds, begin):
        """begin() has to be called when the figures begin."""
        return loads.run(run.lab, load, server, seconds, load.clients(len(run.lab.client_cpus)),
                         begin)

    def after(self, run, point, server, sample, got):
        """Right after it: figures of its own; a Problem makes the sample none."""

    def seal(self, sample):
        """Figures that follow from a throughput that was not refused."""

    def tolerate(self, fault, got):
        """The fault, or None where errors are what the experiment is about."""
        return fault

    def own_limit(self, sample):
        """(whose limit, why) where it follows from the experiment, else None."""
        return None

    def note(self, text):
        if text not in self.notes:
            say(f"  {text}")
            self.notes.append(text)

    def unfit(self, point, name):
        """Whether that server cannot do what is asked there."""
        return False

    def enough(self, entry, point, name):
        """Whether earlier points say that this one need not be tried."""
        return False

    # --- words

    def line(self, sample):
        cpu = sample.get("cpu_ns")
        return f"{sample['rate']:,.0f}/s" + (f", {cpu:,.0f} ns" if cpu else "") + \
            (f", server {sample['server_share']:.0%} busy"
             if sample.get("server_share") is not None else "")

    def derive(self, entry):
        """What follows from the summary: {name: {server: value}}."""
        return {}


def make(lab, name, **kw):
    """A server by the name that --servers gives it."""
    if name.startswith("toboggan"):
        tier = name.partition("-")[2] or Toboggan.TIERS[0]
        return Toboggan(lab, name, tiers=",".join(dict.fromkeys([tier, "user"])), **kw)
    kw.pop("memory", None)
    return KINDS[name](lab, name, **kw)


def each_tier(opts):
    """The servers of --servers, and with Toboggan its tiers but the fastest alone."""
    ret = []
    for name in opts.servers:
        ret.append(name)
        if name == "toboggan":
            ret += [f"toboggan-{tier}" for tier in Toboggan.TIERS[1:]
                    if f"toboggan-{tier}" not in opts.servers]
    return ret


def able_to_compute(opts):
    """Those of --servers that can be given a module."""
    return [n for n in opts.servers if (Toboggan if n.startswith("toboggan") else
                                        KINDS[n]).can_compute]


def list_file(run, name, make):
    """A list for load.c of the Files that are made for it, in the lab's folder, written once."""
    path = os.path.join(run.lab.dir, f"{name}.list")
    return path if os.path.exists(path) else make().list_for_load(path)


def one_file(run, path, size):
    return list_file(run, f"one-{size}", lambda: files.Files([(1, path, size)]))


# ------------------------------------------------------------------ tiers

class Tiers(Experiment):
    name, title = "tiers", "cached against fall-through, per tier"
    about = ("What a request costs where it is answered. `hit` rows are answered by the first "
             "tier that the server has; `fall-through` asks for the same 1 KiB file by a path "
             "that only the daemon decodes, so it shows what passing up costs. Compare toboggan "
             "with toboggan-user in that row: the difference is the price of a miss.")
    x_label, x_log, x_named = "request", False, True
    tools = ("curl", "wrk")
    left_out = ("dynamic content: see dynamic and web99",)

    def make_points(self, opts):
        return [Point(0, "hit, 1 KiB", path=SMALL, size=1024, hit=True),
                Point(1, "304", path=SMALL, size=1024, hit=True, status=304),
                Point(2, "hit, 8 KiB", path=files.size_path(8192), size=8192, hit=True),
                Point(3, "64 KiB", path=files.size_path(65536), size=65536, hit=False),
                Point(4, "fall-through, 1 KiB", path="/%31k.jpg", size=1024, hit=False,
                      of=SMALL)]

    def names(self, opts):
        return each_tier(opts)

    def headers(self, server, point):
        if getattr(point, "status", 200) != 304:
            return []
        if not getattr(server, "etag", None):
            server.etag = fetch(server.lab, server, SMALL)["etag"]
        if not server.etag:
            raise Problem(f"{server.name}: no ETag, so it cannot be asked for a 304")
        return [("If-None-Match", server.etag)]

    def load(self, run, point, server):
        return Wrk(64, point.path, self.headers(server, point))

    def check(self, run, point, server):
        status = getattr(point, "status", 200)
        crc = files.crc(getattr(point, "of", point.path), point.size) if status == 200 else None
        want = ""
        if isinstance(server, Toboggan) and point.hit and point.size <= 1024:
            want = "detail=wire" if server.tier == "wire" else "hit"
        return Check(point.path, status, self.headers(server, point), crc, want)

    def after(self, run, point, server, sample, got):
        tiers, nr = sample.get("tiers"), got["requests"]
        if not tiers or server.tier == "user":
            return
        kernel = tiers.get(server.tier, 0)
        if point.hit and point.size <= 1024 and kernel < 0.98 * nr:
            raise Problem(f"{server.tier} answered only {kernel:,} of {nr:,} requests; "
                          "see toboggan stats")
        if not point.hit and point.size == 1024 and kernel > 0.02 * nr:
            raise Problem(f"{server.tier} answered {kernel:,} of {nr:,} requests that it "
                          "should have passed up")


# ------------------------------------------------------------------ rates

class Rates(Experiment):
    name, title = "rates", "replies against demanded rate, to saturation"
    about = ("An open loop: connections come at a given rate whatever becomes of the earlier "
             "ones. A server keeps up while replies equal the demand; where they part is its "
             "saturation, unless that is the client's limit, which then stands there instead of "
             "a rate. Errors stand "
             "beside every rate; a rate without its errors means nothing.")
    x_label = "demanded requests a second"
    figures = (("rate", "replies a second", "/s", "high"), ("error_percent", "errors", "%", "low"),
               CPU, ("resp_ms", "response time", "ms", "low"))
    withheld = (*LATENCIES, "rate", "resp_ms")
    tools = ("curl", "httperf")

    @staticmethod
    def options(ap):
        ap.add_argument("--low", type=whole(), metavar="R", help="requests a second to begin with")
        ap.add_argument("--high", type=whole(), metavar="R", help="and to end with")
        ap.add_argument("--step", type=whole(), metavar="R", help="apart (default: doubling)")
        ap.add_argument("--calls", type=whole(), default=10, metavar="N",
                        help="requests on each connection (10)")
        ap.add_argument("--client", choices=("httperf", "load"), default="httperf",
                        help="load goes beyond what one httperf can do")
        ap.add_argument("--timeout", type=whole(), default=5, metavar="S",
                        help="a reply later than that is an error (5)")

    def make_points(self, opts):
        self.opts = opts
        if opts.client == "load":
            self.tools = Experiment.tools
        low = opts.low or 500
        high = opts.high or max(low, 4000 if opts.quick else 256000)
        if high < low:
            raise Usage(f"--low, --high: want low <= high, not {low} and {high}")
        rates = list(range(low, high + 1, opts.step)) if opts.step else \
            [low << i for i in range(40) if low << i <= high]
        return [Point(r, f"{r:,}/s") for r in rates]

    def load(self, run, point, server):
        opts = self.opts
        if opts.client == "load":
            return Ours(min(2000, max(64, point.x // 20)), rate=float(point.x), calls=opts.calls,
                        list=one_file(run, SMALL, 1024), timeout=opts.timeout)
        return loads.Httperf(point.x / opts.calls, opts.calls, SMALL, opts.timeout)

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)

    def tolerate(self, fault, got):
        """Errors are a column, to where there is no reply at all; a wrong reply is none."""
        return fault if wrong_answers(got) else None

    def after(self, run, point, server, sample, got):
        h = got.get("httperf")
        errors = sample["errors"]
        sample["error_percent"] = 100.0 * errors / sample["requests"] if sample["requests"] else 101
        sample["resp_ms"] = h["resp_ms"] if h else sample["mean_us"] / 1000
        sample["kept_up"] = sample["rate"] >= 0.95 * point.x and not errors

    def own_limit(self, sample):
        if sample.get("kept_up"):
            return bottleneck.DEMAND, "it kept up"
        return None

    def enough(self, entry, point, name):
        """Three points past saturation show it."""
        lost = {s["point"] for s in entry["samples"] if s["server"] == name and
                s["point"] < point.x and (s["invalid"] or not s.get("kept_up"))}
        return len(lost) >= 3

    def derive(self, entry):
        def kept_up(row, rate):
            return rate["median"] >= 0.95 * row["point"] and \
                row["figures"]["error_percent"]["median"] <= 1
        return {"highest rate kept up with, requests a second": most(entry, "rate", kept_up)}


def most(entry, key, met):
    """{server: highest point at which met(row, figure key of it)}.

    A repeat that fell short may have been refused, one that met the demand is not: more
    than half of the repeats that count are to have shown it.
    """
    best = {}
    for row in entry["summary"]:
        figure = row["figures"][key]
        repeats = row["counted"] + row["invalid"]
        if figure and 2 * figure["n"] > repeats and met(row, figure):
            best[row["server"]] = max(best.get(row["server"], 0), row["point"])
    return best


AUTOBENCH = ("req_rate", "con_rate", "min_rep_rate", "avg_rep_rate", "max_rep_rate",
             "stddev_rep_rate", "resp_time", "net_io", "errors")


def autobench_rows(entry):
    """The table that autobench prints: a block of columns per server, the median of its repeats.

    Of samples whose rate was refused, if there are no others, the errors alone.
    """
    names = [n for n in entry["servers"]]
    head = ["dem_req_rate"] + [f"{c}_{n}" for n in names for c in AUTOBENCH]
    rows = [head]
    for point in entry["points"]:
        row = [point["x"]]
        for name in names:
            good = [s for s in entry["samples"] if s["point"] == point["x"] and
                    s["server"] == name and not s["invalid"]]
            got = sorted((s for s in good if not s["refused"]), key=lambda s: s["rate"]) or \
                sorted(good, key=lambda s: s["error_percent"])
            row += autobench_block(got[len(got) // 2]) if got else [""] * len(AUTOBENCH)
        if any(cell != "" for cell in row[1:]):
            rows.append(row)
    return rows


def autobench_block(s):
    h = s.get("httperf")
    errors = round(s["error_percent"], 3)
    if s["refused"]:
        return [""] * (len(AUTOBENCH) - 1) + [errors]
    if not h:                   # load.c's, which takes no rate every 5 s
        seconds = s["seconds"] or 1
        return [round((s["requests"] + s["errors"]) / seconds, 1),
                round(s["connects"] / seconds, 1) if "connects" in s else "",
                "", round(s["rate"], 1), "", "", round(s["resp_ms"], 1),
                round((s["bytes"] + s["sent"]) / 1024 / seconds, 1) if "sent" in s else "", errors]
    return [h["req_rate"], h["con_rate"], round(h["rep_min"], 1), round(h["rep_avg"], 1),
            round(h["rep_max"], 1), h["rep_stddev"], h["resp_ms"], h["net_kb_s"], errors]


# ------------------------------------------------------------------ sessions

class Sessions(Experiment):
    name, title = "sessions", "session replay, in httperf's wsesslog grammar"
    about = ("Users who follow links: bursts of requests with time to think between them. A "
             "session counts only if all its replies came. Sessions finished are those of a "
             "second in which they began: how long each thinks is in no rate.")
    x_label = "sessions started a second"
    figures = (("sess_rate", "sessions finished a second", "/s", "high"), CPU,
               ("resp_ms", "response time", "ms", "low"))
    tools = ("curl", "httperf")
    withheld = (*LATENCIES, "sess_rate", "resp_ms")
    unable = "POST and other methods go to a module, which cannot be given to it"
    LIFETIME_S = 0.1            # to which httperf tells that of a session

    @staticmethod
    def options(ap):
        ap.add_argument("file", nargs="?", metavar="FILE",
                        help="sessions, as `bench convert` prints them (default: made up)")
        ap.add_argument("--rates", type=positives, default="10,50", metavar="R,…",
                        help="sessions a second (10,50)")
        ap.add_argument("--think", type=not_negative, default=0.1, metavar="S",
                        help="between bursts that do not say (0.1)")
        ap.add_argument("--size", type=whole(), default=files.PAGE_SIZE, metavar="BYTES",
                        help="of the file that the lab makes for each URI (8192)")

    def make_points(self, opts):
        if opts.file:
            self.sessions = sessions.read(opts.file)
        else:
            self.sessions = sessions.made_up()
        text = sessions.text(self.sessions).encode("utf-8", "surrogateescape")
        self.settings["file"] = f"{os.path.basename(opts.file or 'made up')}, " \
            f"CRC-32 {zlib.crc32(text):08x}"
        self.think, self.size = opts.think, opts.size
        self.known = not opts.file or not opts.remote
        if opts.remote:
            self.size = files.PAGE_SIZE
        else:
            self.leave_out_unmakeable()
        self.echoes = sorted({c.uri.partition("?")[0] for s in self.sessions for b in s for c in b
                              if c.method not in ("GET", "HEAD")})
        return [Point(r, f"{r:g}/s") for r in opts.rates]

    def names(self, opts):
        return able_to_compute(opts) if self.echoes else opts.servers

    def server_options(self, run, point):
        return {"echoes": self.echoes}

    def uris(self):
        return sorted({c.uri.partition("?")[0] for s in self.sessions for b in s for c in b})

    def leave_out_unmakeable(self):
        """Requests for what cannot be a file of the lab's site, beside all others."""
        made = {uri: file_of(uri) for uri in self.uris()}
        basic = {path for _, path, _ in files.basic().rows}
        folders = {parent for path in {*made.values(), *basic} - {None} for parent in parents(path)}
        posted = {c.uri.partition("?")[0] for s in self.sessions for b in s for c in b
                  if c.method not in ("GET", "HEAD")}
        bad = {uri for uri, path in made.items()
               if not path or path in folders or basic & set(parents(path)) or
               uri in posted and not re.fullmatch(r"[\w/.~-]+", uri)}
        if not bad:
            return
        nr = sum(len(burst) for session in self.sessions for burst in session)
        kept = [[without(b, bad) for b in s] for s in self.sessions]
        self.sessions = [s for s in ([b for b in s if b] for s in kept) if s]
        left = sum(len(burst) for session in self.sessions for burst in session)
        self.notes.append(f"left out {nr - left} of {nr} requests, for {len(bad)} URIs that cannot "
                          f"be files of the lab's site, such as {min(bad)}")
        say(f"  {self.notes[-1]}")
        if not self.sessions:
            raise Problem("no request in the sessions that the lab can answer")

    def sites(self, run):
        super().sites(run)
        longest_s = self.longest_s(self.sessions_nr(run, max(p.x for p in self.points)))
        if longest_s > run.opts.seconds:
            self.note(f"sessions think up to {longest_s:g} s: by so much is a sample longer than "
                      "--seconds")
        root = os.path.join(run.lab.dir, "site")
        for uri in [] if run.lab.remote else self.uris():
            try:
                files.put(root, file_of(uri), self.file_size(uri))
            except OSError as e:
                raise Problem(f"{uri}: cannot be made a file of the lab's site: "
                              f"{e.strerror}") from e

    def file_size(self, uri):
        return {SMALL: 1024, LARGE: 1 << 20}.get(file_of(uri), self.size)

    def load(self, run, point, server):
        path = os.path.join(run.lab.dir, "sessions")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
                f.write(sessions.text(self.sessions[:sessions.TEMPLATES_MAX]))
        nr = self.sessions_nr(run, point.x)
        return loads.Httperf(point.x, sessions=(path, nr, self.think, self.longest_s(nr)),
                             timeout_s=10)

    @staticmethod
    def sessions_nr(run, rate):
        return max(1, round(rate * run.opts.seconds))

    def asked_by(self, nr):
        """What each of nr sessions asks for: httperf begins anew behind the last one."""
        each = self.sessions[:sessions.TEMPLATES_MAX]
        return [each[i % len(each)] for i in range(nr)]

    def longest_s(self, nr):
        """What that of nr sessions which thinks longest does."""
        return max(sessions.think_s(s, self.think) for s in self.asked_by(nr))

    def check(self, run, point, server):
        if not self.known:
            return Check(next((uri for uri in self.asked() if len(uri) < 2000), SMALL))
        return Check(SMALL, crc=files.crc(SMALL, 1024), rows=self.rows())

    def asked(self):
        """All that is asked for by GET, in order."""
        return [c.uri for s in self.sessions for b in s for c in b if c.method == "GET"]

    def rows(self):
        """The files of it."""
        return [(uri, self.file_size(path), files.crc(file_of(path), self.file_size(path)))
                for uri in sorted(set(self.asked())) for path in [uri.partition("?")[0]]
                if path not in self.echoes and len(uri) < 2000]

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)

    def after(self, run, point, server, sample, got):
        h = got["httperf"]
        late_s = self.late_s(point.x, h)
        sample.update(sess_rate=h["sess_done"] / (h["sess_total"] / point.x + late_s),
                      sess_done=h["sess_done"], sess_total=h["sess_total"], late_s=late_s,
                      resp_ms=h["resp_ms"])
        if h["sess_done"] < h["sess_total"]:
            raise Problem(f"only {h['sess_done']:.0f} of {h['sess_total']:.0f} sessions "
                          "were finished")

    def late_s(self, rate, h):
        """How long after the last session was due to end httperf did: it says not when one began.

        A session is due to take what it thinks, and its part of the time that replies took:
        of one reply to 0.1 ms; but within a burst they overlap, and take no more than is
        left of the sessions' time, whose rounding a session of many requests multiplies.
        Both are taken to have been rounded down.
        """
        each = self.asked_by(int(h["sess_total"]))
        thinks = [sessions.think_s(s, self.think) for s in each]
        calls = [sum(map(len, s)) for s in each]
        life_s = (h["sess_life_s"] + self.LIFETIME_S / 2) * len(each)
        reply_s = min((h["resp_ms"] + h["transfer_ms"] + 0.1) / 1000,
                      max(0.0, life_s - sum(thinks)) / max(1, sum(calls)))
        due = max((i / rate + t + n * reply_s for i, (t, n) in enumerate(zip(thinks, calls))),
                  default=0)
        return max(0.0, h["duration"] - due)

    def own_limit(self, sample):
        began_s = sample["sess_total"] / sample["point"]
        if sample["late_s"] <= 0.05 * began_s + self.LIFETIME_S:
            return bottleneck.DEMAND, "sessions came at the rate that was asked for"
        return None

    def line(self, sample):
        return f"{sample.get('sess_rate', 0):.1f} sessions/s; " + super().line(sample)


def file_of(uri):
    """The file of the site that a URI without query is, as servers decode it; None: none can be."""
    raw = urllib.parse.unquote_to_bytes(uri.encode("utf-8", "surrogateescape"))
    path = raw.decode("utf-8", "surrogateescape") + "index.html" * uri.endswith("/")
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path or \
            "%2f" in uri.lower() or len(raw) > 2000 or \
            any(len(os.fsencode(name)) > 255 for name in path.split("/")):
        return None
    return path


def without(burst, uris):
    """A burst's requests for others; the pause behind it stays."""
    think = next((c.think_s for c in burst[::-1] if c.think_s is not None), None)
    ret = [c._replace(think_s=None) for c in burst if c.uri.partition("?")[0] not in uris]
    return [ret[0]._replace(think_s=think), *ret[1:]] if ret else []


def parents(path):
    """'/a/b/c' → ['/a', '/a/b']"""
    return [path[:i] for i in range(1, len(path)) if path[i] == "/"]


# ------------------------------------------------------------------ sizes

class Sizes(Experiment):
    name, title = "sizes", "throughput against response size, 1 B to 10 MB"
    about = ("Small responses cost by the request, large ones by the byte. The weighted sums say "
             "what a mix of SPECweb99's static classes (35/50/14/1 % of requests) would cost: "
             "each class's file sizes, read off the curve.")
    x_label = "bytes of the body"
    tools = ("curl", "wrk")
    figures = (CPU, BPS, RATE)

    def make_points(self, opts):
        sizes = files.SIZES if not opts.quick else (1, 1024, 16384, 1 << 20)
        return [Point(s) for s in sizes]

    def load(self, run, point, server):
        return Wrk(64 if point.x <= 65536 else 16, files.size_path(point.x), timeout_s=30)

    def check(self, run, point, server):
        path = files.size_path(point.x)
        return Check(path, crc=files.crc(path, point.x))

    def derive(self, entry):
        ret = {"SPECweb99 mix, ns of processor time a request": {},
               "SPECweb99 mix, Mbit/s": {}, "classes weighted as the papers did, Mbit/s": {}}
        xs = [p["x"] for p in entry["points"]]
        for name in entry["servers"]:
            rows = {r["point"]: r["figures"] for r in entry["summary"] if r["server"] == name}
            cpu, rate = ([(rows.get(x, {}).get(key) or {}).get("median") for x in xs]
                         for key in ("cpu_ns", "throughput"))
            mix = mix_sums(xs, cpu, rate)
            for key, value in zip(ret, mix):
                if value is not None:
                    ret[key][name] = value
        return {k: v for k, v in ret.items() if v}


def mix_sums(xs, cpu_ns, rate):
    """(ns a request, Mbit/s of the mix, weighted sum of the classes' Mbit/s); None if unknown.

    What was refused, or not measured, at one size leaves the curve there unknown,
    and the sums over it with it: they would say what nobody measured.
    """
    shares = [(c * f / sum(files.FILE_SHARES), files.web99_size(k, i), k)
              for k, c in enumerate(files.CLASS_SHARES)
              for i, f in enumerate(files.FILE_SHARES)]
    cost = None if None in cpu_ns or not any(cpu_ns) else \
        sum(w * at(xs, cpu_ns, s) for w, s, _ in shares)
    if None in rate:
        return cost, None, None
    times = [1e9 / r for r in rate]
    mean_ns = sum(w * at(xs, times, s) for w, s, _ in shares)
    bits = sum(w * s * 8 for w, s, _ in shares)
    papers = sum(w * s * 8e3 / at(xs, times, s) for w, s, _ in shares)
    return cost, bits / mean_ns * 1e3, papers


# ------------------------------------------------------------------ caches

class Caches(Experiment):
    name, title = "caches", "cached, and not cached (cold page cache)"
    about = ("The same set of files, drawn at random and cached everywhere, and then each once "
             "with its pages dropped before and the server started anew: nothing is cached. The "
             "cold figure is the disk's as much as the server's.")
    x_label, x_log, x_named = "state of the caches", False, True
    lab_only = "another machine's page cache cannot be emptied from here"
    figures = (CPU, RATE, BPS)
    left_out = ("dynamic content: see dynamic and web99",)

    @staticmethod
    def options(ap):
        ap.add_argument("--folders", type=whole(), metavar="N",
                        help="of SPECweb99's file set, 5 MB each (25; quick 2)")

    def make_points(self, opts):
        self.files = files.web99(opts.folders or (2 if opts.quick else 25))
        # The last class has a hundred times its share of the files in the bytes.
        return [Point(0, "cached", cold=False), Point(1, "cold", cold=True)]

    def server_key(self, point):
        return point.cold

    def sites(self, run):
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))
        subprocess.run(["sync", "-f", run.lab.dir], check=False)

    def load(self, run, point, server):
        return Ours(16, list=list_file(run, "caches", lambda: self.files), once=point.cold,
                    timeout=30)

    def seconds(self, run, point):
        return 600 if point.cold else run.opts.seconds

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)
        if not point.cold:
            walk = Ours(16, list=list_file(run, "caches", lambda: self.files), once=True,
                        timeout=30)
            for _ in range(2):
                loads.run(run.lab, walk, server, 600)

    def before(self, run, point, server):
        if not point.cold:
            return
        if getattr(server, "used", False):
            server.stop()
            server.start()
            self.check(run, point, server).settle(run.lab, server)
        server.used = True
        root = os.path.join(run.lab.dir, "site")
        left = emptied([root + path for _, path, _ in self.files.rows])
        if left > 0.02:
            raise Problem(f"{left:.0%} of the pages stay in the page cache: "
                          "is the site on tmpfs?")

    def after(self, run, point, server, sample, got):
        if point.cold and got["requests"] < len(self.files.rows):
            raise Problem(f"only {got['requests']} of {len(self.files.rows)} files in time")

    def own_limit(self, sample):
        if sample["point"] == 1 and sample["client_cpus"] < bottleneck.CLIENT_FULL:
            return bottleneck.DEMAND, "each file once, by 16 connections"
        return None


def emptied(paths):
    """The page cache without these files; the share of pages that stay, of the first 500."""
    for path in paths:
        evict(path)
    return resident_pages(paths[:500])


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def resident_pages(paths):
    """Share of the files' pages that the page cache holds."""
    libc, held, pages = ctypes.CDLL(None, use_errno=True), 0, 0
    for path in paths:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE) as area:
            nr = -(-len(area) // mmap.PAGESIZE)
            seen = (ctypes.c_ubyte * nr)()
            start = ctypes.addressof(ctypes.c_char.from_buffer(area))
            if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(area)), seen):
                raise Problem(f"mincore: {os.strerror(ctypes.get_errno())}")
            held, pages = held + sum(x & 1 for x in seen), pages + nr
    return held / max(1, pages)


# ------------------------------------------------------------------ web99

class Computing(Experiment):
    """Of servers that are given the dynamic part of SPECweb99, by one module in all of them."""

    unable = "it cannot be given the module that makes the dynamic part"
    lab_only = "the dynamic part of another machine's server is not known here"

    def names(self, opts):
        return able_to_compute(opts)

    def server_options(self, run, point):
        return {"computes": True}

    def sites(self, run):
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))

    def pages(self, run, server):
        """Those of a server whose tables are made."""
        reset = f"/spec?command/Reset&maxload={files.USERS}&exp=1,4000000000"
        if fetch(run.lab, server, reset)["status"] != 200:
            raise Problem(f"{server.name}: cannot make the tables: {server.last_words()}")
        return server.pages()


class Dynamic(Computing):
    name, title = "dynamic", "the share of dynamic requests, from none to all"
    about = ("Requests for a file of 1 KiB, and for a page that a module makes around such a "
             "file, in different shares. nginx asks the same module by FastCGI: its processes and "
             "the module's are on the server's CPUs and in the figure, of both servers. What one "
             "costs more at 100 % may be cheaper in all, if most requests are static.")
    x_label, x_log = "dynamic requests, %", False
    figures = (CPU, RATE, TAIL)

    @staticmethod
    def options(ap):
        ap.add_argument("--shares", type=wholes(0, 100), metavar="P,…",
                        default="0,10,25,50,75,100", help="percentages (0,10,25,50,75,100)")

    def make_points(self, opts):
        self.files = files.web99(1)
        return [Point(p, f"{p} %") for p in opts.shares]

    def load(self, run, point, server):
        def make():
            rows = [(100 - point.x, SMALL, 1024)] if point.x < 100 else []
            if point.x:
                rows.append(self.pages(run, server).row(
                    point.x, "get", files.web99_path(0, 1, 0), files.web99_size(1, 0)))
            return files.Files(rows)
        return Ours(64, list=list_file(run, f"{server.iface}-dynamic-{point.x}", make))


class Web99(Computing):
    name, title = "web99", "a mix like SPECweb99's: conforming connections"
    about = ("Simultaneous connections on lines of 400 kbit/s, directories by Zipf's law, 30 % of "
             "connections for one request and the others for 5 to 15. 70 % of the requests are "
             "static; 12.45 % are pages around a file, 12.6 % the same with ads rotated by cookie, "
             "4.8 % POSTs with a log, 0.15 % a CGI program. A connection conforms at "
             "320 kbit/s or more. It is like SPECweb99, not SPECweb99: no figure of it may be "
             "called one.")
    lab_only = None
    x_label = "simultaneous connections"
    figures = (("conforming_percent", "conforming connections", "%", "high"), CPU,
               ("rate", "requests a second", "/s", "high"), TAIL)
    withheld = (*LATENCIES, "conforming_percent", "rate")
    TIMEOUT_S = 40              # at their lines' speed the largest file takes 18.4 s

    @staticmethod
    def options(ap):
        ap.add_argument("--connections", type=wholes(), metavar="N,…",
                        help="(50,100,200,400; quick 10)")
        ap.add_argument("--static", action="store_true",
                        help="without the dynamic 30 %%; always so with a remote server")
        ap.add_argument("--folders", type=whole(), metavar="N",
                        help="directories of the file set, 5 MB each (as SPECweb99 wants for the "
                        "most connections; quick 4)")

    def make_points(self, opts):
        nrs = opts.connections or ((10,) if opts.quick else (50, 100, 200, 400))
        self.folders = opts.folders or (4 if opts.quick else files.web99_folders(max(nrs)))
        self.files = files.web99(self.folders)
        self.static = opts.static or bool(opts.remote)
        if self.static:
            self.left_out = ("the dynamic 30 % of SPECweb99's mix (ad rotation, POST, CGI)",)
        return [Point(nr) for nr in nrs]

    def names(self, opts):
        return opts.servers if self.static else super().names(opts)

    def server_options(self, run, point):
        return {} if self.static else super().server_options(run, point)

    def sites(self, run):
        if not run.lab.remote:
            super().sites(run)

    def load(self, run, point, server):
        if self.static:
            rows = list_file(run, "web99", lambda: self.files)
        else:
            rows = list_file(run, f"{server.iface}-web99", lambda: files.web99_mix(
                self.folders, self.pages(run, server)))
        return Ours(point.x, line=LINE_BPS, conform=CONFORM_BPS, calls="5-15", single=0.3,
                    list=rows, timeout=self.TIMEOUT_S)

    def seconds(self, run, point):
        return max(run.opts.seconds, 5 if run.opts.quick else 60)

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)

    def after(self, run, point, server, sample, got):
        sample["conforming_percent"] = 100.0 * got["conforming"] / point.x

    def own_limit(self, sample):
        if sample["conforming_percent"] >= 100:
            return bottleneck.DEMAND, "the lines are what is slow"
        # Without a full CPU of the clients' it may be anything's: twice the clients tell.
        if sample["client_cpus"] < bottleneck.CLIENT_FULL and \
                (sample["server_busiest"] or 0) >= bottleneck.SATURATED:
            return bottleneck.SERVER, "lines were slow, with one of its CPUs " \
                f"{sample['server_busiest']:.0%} busy and {sample['client_cpus']:.2f} of the " \
                f"clients'"
        return None

    def derive(self, entry):
        return {"most connections of which 95 % conform":
                most(entry, "conforming_percent",
                     lambda row, share: share["median"] >= 95 and not row["errors"])}


# ------------------------------------------------------------------ keep-alive

class KeepAlive(Experiment):
    name, title = "keepalive", "requests on each connection, 1 to 100"
    about = ("One request per connection and endless keep-alive are the extremes; real pages make "
             "5 to 20. What the first point costs above the last is the connection.")
    x_label = "requests on a connection"

    def make_points(self, opts):
        return [Point(n) for n in ((1, 10, 100) if opts.quick else (1, 2, 5, 10, 20, 50, 100))]

    def server_options(self, run, point):
        return {"sources": 8}

    def load(self, run, point, server):
        return Ours(64, calls=point.x, list=one_file(run, SMALL, 1024), sources=server.sources)


# ------------------------------------------------------------------ objects

class Objects(Experiment):
    name, title = "objects", "number of objects, 10 to 1,000,000"
    about = ("Random hits among so many files of 1 KiB. Where the curve rises, a cache no longer "
             "holds them: the processor's first, then the server's.")
    x_label = "files"

    @staticmethod
    def options(ap):
        ap.add_argument("--objects", type=wholes(), metavar="N,…",
                        help="(10,100,1000,10000,100000,1000000; quick 10,1000)")
        ap.add_argument("--memory", metavar="SIZE",
                        help="Toboggan's budget (8 KiB for each object, at least 256M)")

    def make_points(self, opts):
        self.memory = opts.memory
        nrs = opts.objects or ((10, 1000) if opts.quick else [10 ** i for i in range(1, 7)])
        return [Point(nr, f"{nr:,}", files=files.objects(nr)) for nr in nrs]

    def server_key(self, point):
        return point.x

    def server_options(self, run, point):
        # A quarter of the budget is for slots of this size, 2 KiB each.
        want_mib = max(256, point.x * 8192 >> 20)
        most_mib = int(first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) >> 11
        if not self.memory and want_mib > most_mib > 0:
            self.note(f"{point.label} objects want a budget of {want_mib:,} MiB and get "
                      f"{most_mib:,} MiB, half of this machine's memory")
            want_mib = most_mib
        return {"memory": self.memory or f"{want_mib}M"}

    def sites(self, run):
        """A number of files for which there is no room is left out, and said."""
        super().sites(run)
        for point in [] if run.lab.remote else list(self.points):
            try:
                point.files.make(os.path.join(run.lab.dir, "site"))
            except Problem as e:
                self.note(f"{point.label} objects are left out: {e}")
                self.points.remove(point)
        if not self.points:
            raise Problem(self.notes[-1])

    def load(self, run, point, server):
        return Ours(64, list=list_file(run, f"objects{point.x}", lambda: point.files))

    def check(self, run, point, server):
        """One of the objects, so that no other is stored beside them."""
        path = files.object_path(point.x, 0)
        return Check(path, crc=files.crc(path, 1024))

    def prepare(self, run, point, server):
        """Each object once, and for Toboggan until all are stored or no more will be."""
        self.check(run, point, server).settle(run.lab, server)
        walk = Ours(32, list=list_file(run, f"objects{point.x}", lambda: point.files), once=True)
        stored = before = -1
        for _ in range(6):
            say(f"  {server.name}: each of {point.label} objects once, 10 minutes at most")
            loads.run(run.lab, walk, server, 600)
            if not isinstance(server, Toboggan):
                return
            stored = server.stored()
            say(f"  {server.name}: {stored:,} of {point.label} are stored")
            if stored >= point.x or stored == before:
                break
            before = stored
        if stored < point.x:
            self.note(f"{server.name} holds {stored:,} of {point.x:,} objects: the rest are misses")


# ------------------------------------------------------------------ connections

class Connections(Experiment):
    name, title = "connections", "connections held open, 1 to 100,000"
    about = ("So many keep-alive connections, of which at most 64 have a request in flight at a "
             "time, each in its turn: what merely holding the others costs. The load is the same "
             "from 64 on, so a curve that rises is the price of the rest.")
    x_label = "connections"
    ACTIVE = 64

    @staticmethod
    def options(ap):
        ap.add_argument("--connections", type=wholes(), metavar="N,…",
                        help="(1,10,100,1000,10000,100000; quick 1,100,1000)")

    def make_points(self, opts):
        nrs = opts.connections or ((1, 100, 1000) if opts.quick else
                     [10 ** i for i in range(6)])
        return [Point(nr, f"{nr:,}") for nr in nrs]

    def server_key(self, point):
        return max(20000, point.x)

    def server_options(self, run, point):
        return {"connections": max(20000, point.x), "sources": 1 + point.x // 20000}

    def load(self, run, point, server):
        return Ours(point.x, active=min(point.x, self.ACTIVE), list=one_file(run, SMALL, 1024))

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)


# ------------------------------------------------------------------ processors

class Cpus(Experiment):
    name, title = "cpus", "processors, 1 to N: requests a second for each"
    about = ("Servers are started with one worker on each of 1, 2, … CPUs; the clients keep the "
             "others. Requests a second per CPU: flat is ideal. With all CPUs the clients have "
             "none "
             "of their own: what is left is the time that the scheduler charged to the server's "
             "processes, without interrupts and what is answered in them.")
    x_label, x_log = "CPUs of the server", False
    tools = ("curl", "wrk")
    lab_only = "a remote server's CPUs are not ours to give"
    figures = (("per_cpu", "requests a second and CPU", "/s", "high"), CPU, RATE,
               ("ran_ns", "time of the server's processes", "ns a request", "low"))

    @staticmethod
    def options(ap):
        ap.add_argument("--cpus", type=wholes(), metavar="N,…", help="(1 to all)")

    def make_points(self, opts):
        self.have = opts.cpu_list
        nrs = opts.cpus or list(range(1, len(self.have) + 1))
        if nrs[-1] > len(self.have):
            raise Usage(f"--cpus: {nrs[-1]} for the server, there are {len(self.have)}")
        if self.shared(nrs[-1]):
            self.notes.append(f"with {nrs[-1]} CPUs, which are all, the clients work on the "
                              "server's: no rate and no processor time is the server's alone")
        return [Point(nr) for nr in nrs]

    def shared(self, nr):
        return nr == len(self.have)

    def server_key(self, point):
        return point.x

    def sites(self, run):
        super().sites(run)
        self.cpus = run.lab.server_cpus, run.lab.client_cpus

    def enter(self, run, point):
        run.lab.server_cpus = set(self.have[:point.x])
        run.lab.client_cpus = set(self.have[point.x:] or self.have)

    def leave(self, run):
        run.lab.server_cpus, run.lab.client_cpus = self.cpus

    def load(self, run, point, server):
        return Wrk(64 * point.x, SMALL)

    def after(self, run, point, server, sample, got):
        sample["cpus"] = point.x
        if self.shared(point.x):
            sample.update(cpu_ns=None, cpu_ns_per_kib=None, not_idle_ns=None, server_share=None,
                          server_busiest=None)

    def own_limit(self, sample):
        if self.shared(sample["cpus"]):
            return bottleneck.CLIENT, "the clients work on the server's CPUs"
        return None

    def seal(self, sample):
        if sample["throughput"]:
            sample["per_cpu"] = sample["throughput"] / sample["cpus"]


def whose_time(sample, rate):
    """(whose limit, why) of times in an open loop; None where full clients may be what took it.

    Each is one thread: on several CPUs it is full where they are not.
    """
    if sample["client_cpus"] >= bottleneck.CLIENT_FULL:
        return None
    if sample["late"] > 0.05 * rate * sample["seconds"]:
        return bottleneck.SERVER, \
               f"{sample['late']} pages were not asked for in time, behind others, " \
            f"by clients that kept {sample['client_cpus']:.2f} CPUs busy"
    return bottleneck.DEMAND, f"{rate:g} pages a second were asked for"


# ------------------------------------------------------------------ overload

class Overload(Experiment):
    name, title = "overload", "a small page, timed beside slow clients and with little memory"
    about = ("So many users on lines of 50 kbit/s fetch files of 10 KB to 60 MB, each from a "
             "random byte on, from a server whose memory a cgroup limits, page cache included, to "
             "a "
             "quarter of these files, which it has all sent before; meanwhile a small page is "
             "asked for on a connection of its own. What matters is the worst time.")
    x_label, x_log = "slow clients", False
    lab_only = "a remote server's memory cannot be limited from here"
    figures = (("max_us", "longest time of the small page", "µs", "low"), TAIL, MEDIAN,
               ("slow_bps", "what the slow clients got", "bit/s", "high"),
               ("memory_bytes", "most memory of the server", "B", "low"),
               ("memory_full", "its memory was full", "times", "low"))
    # (bytes of a file, share of the requests, share of all files' bytes)
    CLASSES = ((10 << 10, 0.20, 0.002), (1 << 20, 0.40, 0.198), (10 << 20, 0.25, 0.35),
               (60 << 20, 0.15, 0.45))
    TIMES = 4                   # the limit, in bytes of files
    withheld = (*LATENCIES, "slow_bps")
    SLOW_BPS, PROBE_RATE = 50000, 20.0

    @staticmethod
    def options(ap):
        ap.add_argument("--slow", type=wholes(), metavar="N,…",
                        help="slow clients (1,50,242,500; quick 1,50)")
        ap.add_argument("--limit", type=whole(64), default=128, metavar="MIB",
                        help="memory of the server, page cache included (128; at least 64); "
                        "four times that are made as files")

    def make_points(self, opts):
        self.limit = opts.limit << 20
        nrs = opts.slow or ((1, 50) if opts.quick else (1, 50, 242, 500))
        self.files = self.file_set()
        return [Point(nr) for nr in nrs]

    def file_set(self):
        rows = []
        for size, requests, share in self.CLASSES:
            nr = max(1, math.ceil(self.TIMES * self.limit * share / size))
            rows += [(requests / nr, f"/slow/{size}/{i}.bin", size) for i in range(nr)]
        return files.Files(rows)

    def server_key(self, point):
        return point.x

    def server_options(self, run, point):
        return {"cgroup": run.lab.limit_memory(self.limit), "memory": "16M"}

    def sites(self, run):
        super().sites(run)
        self.files.make(os.path.join(run.lab.dir, "site"))
        subprocess.run(["sync", "-f", run.lab.dir], check=False)

    def load(self, run, point, server):
        load = Ours(1, calls=1, rate=self.PROBE_RATE, list=one_file(run, SMALL, 1024), timeout=60)
        load.slow = Ours(point.x, line=self.SLOW_BPS,
                         list=list_file(run, "slow", lambda: self.files),
                         timeout=3600, offsets=True, expect=206)
        return load

    def prepare(self, run, point, server):
        self.check(run, point, server).settle(run.lab, server)

    def before(self, run, point, server):
        """The server reads all files: pages belong to the group of whoever touches them first."""
        root = os.path.join(run.lab.dir, "site")
        left = emptied([root + path for _, path, _ in self.files.rows])
        if left > 0.02:
            self.note(f"{left:.0%} of the files' pages stayed in the page cache, whosever they are")
        walk = Ours(8, list=list_file(run, "slow", lambda: self.files), once=True, timeout=60)
        got, _ = loads.run(run.lab, walk, server, 600)
        if got["requests"] < len(self.files.rows):
            raise Problem(f"only {got['requests']} of {len(self.files.rows)} files were sent "
                          f"before the load: {got['kinds']}")
        laboratory.memory_begin(server.cgroup)
        self.full_before = laboratory.memory_used(server.cgroup)[1]

    def tolerate(self, fault, got):
        """That no page came at all is the worst that is looked for, and in the times."""
        return fault if got["requests"] or got["errors"] or got["statuses"] else None

    def memory(self, point, server, sample):
        """What it had; said where it was not little."""
        most, full = laboratory.memory_used(server.cgroup)
        sample.update(memory_bytes=most, memory_full=full - self.full_before)
        if not sample["memory_full"] and most < 0.9 * self.limit:
            self.note(f"{server.name} with {point.label} slow clients had {most >> 20} of "
                      f"{self.limit >> 20} MiB at most: its memory was not little")

    def run_load(self, run, load, server, seconds, begin):
        """The slow clients first; they end with the probe, their transfers unfinished."""
        procs, argvs = loads.started(run.lab, load.slow, server, seconds + 600)
        try:
            self.wait_for_slow(run, server, load.slow.descriptors)
            got, more = loads.run(run.lab, load, server, seconds, begin=begin)
            for proc in procs:
                proc.terminate()
            slow = loads.finished(run.lab, load.slow, procs, 30)
        finally:
            for proc in procs:
                run.lab.end(proc)
        got["slow"] = slow
        return got, argvs + more

    @staticmethod
    def wait_for_slow(run, server, nr):
        deadline = time.monotonic() + 60
        while True:
            out = subprocess.run(run.lab.client_argv(["ss", "-Htn", "state", "established", "dst",
                                                      server.addr]), text=True, check=False,
                                 stdout=subprocess.PIPE).stdout
            if len(out.splitlines()) >= nr:
                return
            if time.monotonic() > deadline:
                raise Problem(f"only {len(out.splitlines())} of {nr} slow clients are connected "
                              "after 60 s")
            time.sleep(0.1)

    def after(self, run, point, server, sample, got):
        slow = got["slow"]
        self.memory(point, server, sample)
        sample["slow_bps"] = 8 * slow["bytes"] / slow["seconds"] if slow["seconds"] else None
        sample["slow_errors"] = slow["kinds"]
        if slow["errors"] or slow["statuses"]:
            raise Problem(f"slow clients: {slow['errors']} errors {slow['kinds']} and "
                          f"{slow['statuses']} wrong statuses")

    def own_limit(self, sample):
        return whose_time(sample, self.PROBE_RATE)

    def line(self, sample):
        return (f"p50 {sample['p50_us'] / 1000:,.1f} ms, p99 {sample['p99_us'] / 1000:,.1f} ms, "
                f"worst {sample['max_us'] / 1000:,.1f} ms")


# ------------------------------------------------------------------ held

class Held(Experiment):
    name, title = "held", "a cached page, timed while all of the server's processes are held"
    about = ("All processes of the server are stopped for so many milliseconds out of 100 or "
             "twice that time, as long work in every worker would hold them; meanwhile a cached "
             "1 KiB page is asked for 200 times a second. What a kernel tier answers must not "
             "wait for it: its p99 stays, where that of a server in user space follows.")
    x_label, x_log = "held for (ms)", False
    lab_only = "a remote server's processes cannot be held from here"
    figures = (TAIL, MEDIAN, ("max_us", "longest time of a reply", "µs", "low"))
    CYCLE_S, RATE = 0.1, 200

    @staticmethod
    def options(ap):
        ap.add_argument("--hold", type=wholes(0), metavar="MS,…", help="(0,5,20,50; quick 0,50)")

    def make_points(self, opts):
        return [Point(ms) for ms in opts.hold or ((0, 50) if opts.quick else (0, 5, 20, 50))]

    def names(self, opts):
        return each_tier(opts)

    def load(self, run, point, server):
        return Ours(8, rate=float(self.RATE), calls=1000000, list=one_file(run, SMALL, 1024))

    def check(self, run, point, server):
        want = f"detail={server.tier}" if isinstance(server, Toboggan) else ""
        return Check(SMALL, crc=files.crc(SMALL, 1024), want=want)

    def run_load(self, run, load, server, seconds, begin):
        over = threading.Event()
        holder = threading.Thread(target=self.hold, args=(server.pids(), over))
        if self.held_s:
            holder.start()
        try:
            return super().run_load(run, load, server, seconds, begin)
        finally:
            over.set()
            if holder.ident:
                holder.join()

    def before(self, run, point, server):
        self.held_s = point.x / 1000

    def hold(self, pids, over):
        """Until it is over; nobody stays stopped."""
        while not over.wait(max(self.CYCLE_S - self.held_s, self.held_s)):
            try:
                signal_all(pids, signal.SIGSTOP)
                time.sleep(self.held_s)
            finally:
                signal_all(pids, signal.SIGCONT)

    def own_limit(self, sample):
        return whose_time(sample, self.RATE)

    def line(self, sample):
        return (f"p50 {sample['p50_us'] / 1000:,.2f} ms, p99 {sample['p99_us'] / 1000:,.2f} ms, "
                f"worst {sample['max_us'] / 1000:,.2f} ms")


def signal_all(pids, number_):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number_)


# ------------------------------------------------------------------ clients

class Clients(Experiment):
    name, title = "clients", "the same load from different generators"
    about = ("If generators disagree about one server, the slowest figure is a generator's. "
             "Processor time of the server should differ little. `packets` has no TCP and costs "
             "the client least; its server meets fewer acknowledgements.")
    x_label, x_log, x_named = "generator", False, True
    KINDS = ("wrk", "h2load", "ab", "load")
    tools = ("curl", "wrk", "h2load", "ab")

    def make_points(self, opts):
        kinds = self.KINDS + (() if opts.remote else ("packets",))
        return [Point(i, name) for i, name in enumerate(kinds)]

    def load(self, run, point, server):
        if point.label == "load":
            return Ours(64, list=one_file(run, SMALL, 1024))
        return {"wrk": Wrk, "h2load": loads.H2load, "ab": loads.Ab,
                "packets": loads.Packets}[point.label](64, SMALL)


EXPERIMENTS = {e.name: e for e in (Tiers, Rates, Sessions, Sizes, Caches, Dynamic, Web99, KeepAlive,
                                   Objects, Connections, Cpus, Overload, Held, Clients)}
