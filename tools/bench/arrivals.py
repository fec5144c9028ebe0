# SPDX-License-Identifier: GPL-2.0
"""Experiments in which requests arrive at a rate: rate sweeps, and sessions of users."""
from __future__ import annotations

import argparse
import os
import re
import urllib.parse
import zlib
from typing import TYPE_CHECKING, Any

import bottleneck
import loads
import sessions
import fileset as files
from option_types import not_negative, positives, whole
from engine import Check, wrong_answers
from loads import Ours
from messages import Problem, Usage, notify
from fileset import LARGE, SMALL
from experiment import CPU, Experiment, LATENCIES, Point, able_to_compute, most, one_file

if TYPE_CHECKING:
    from engine import Run, Sample
    from loads import Load
    from servers import Server


# ------------------------------------------------------------------ rates

class Rates(Experiment):
    name, title = "rates", "replies against demanded rate, to saturation"
    about = ("An open loop: connections arrive at a given rate, independent of the earlier "
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
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--low", type=whole(), metavar="R", help="first rate, requests a second")
        ap.add_argument("--high", type=whole(), metavar="R", help="last rate")
        ap.add_argument("--step", type=whole(), metavar="R", help="apart (default: doubling)")
        ap.add_argument("--calls", type=whole(), default=10, metavar="N",
                        help="requests on each connection (10)")
        ap.add_argument("--client", choices=("httperf", "load"), default="httperf",
                        help="load makes higher rates than one httperf")
        ap.add_argument("--timeout", type=whole(), default=5, metavar="S",
                        help="a later reply is an error (5)")

    def make_points(self, opts: argparse.Namespace) -> list:
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

    def load(self, run: Run, point: Point, server: Server) -> Load:
        opts = self.opts
        if opts.client == "load":
            return Ours(min(2000, max(64, point.x // 20)), rate=float(point.x), calls=opts.calls,
                        list=one_file(run, SMALL, 1024), timeout=opts.timeout)
        return loads.Httperf(point.x / opts.calls, opts.calls, SMALL, opts.timeout)

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)

    def tolerate(self, fault: str, got: dict) -> str | None:
        """Errors are a column, even without any reply; a wrong reply invalidates the sample."""
        return fault if wrong_answers(got) else None

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        h = got.get("httperf")
        errors = sample["errors"]
        sample["error_percent"] = 100.0 * errors / sample["requests"] if sample["requests"] else 101
        sample["resp_ms"] = h["resp_ms"] if h else sample["mean_us"] / 1000
        sample["kept_up"] = sample["rate"] >= 0.95 * point.x and not errors

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        if sample.get("kept_up"):
            return bottleneck.DEMAND, "it kept up"
        return None

    def enough(self, entry: dict, point: Point, name: str) -> bool:
        """Three points past saturation are enough."""
        lost = {s["point"] for s in entry["samples"] if s["server"] == name and
                s["point"] < point.x and (s["invalid"] or not s.get("kept_up"))}
        return len(lost) >= 3

    def derive(self, entry: dict) -> dict:
        def kept_up(row: Any, rate: Any) -> Any:
            return rate["median"] >= 0.95 * row["point"] and \
                row["figures"]["error_percent"]["median"] <= 1
        return {"highest rate kept up with, requests a second": most(entry, "rate", kept_up)}


AUTOBENCH = ("req_rate", "con_rate", "min_rep_rate", "avg_rep_rate", "max_rep_rate",
             "stddev_rep_rate", "resp_time", "net_io", "errors")


def autobench_rows(entry: dict) -> list[list[str]]:
    """The table that autobench prints: a block of columns per server, the median of its repeats.

    If the rates of all samples were refused, it has their errors alone.
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


def autobench_block(s: dict) -> list:
    h = s.get("httperf")
    errors = round(s["error_percent"], 3)
    if s["refused"]:
        return [""] * (len(AUTOBENCH) - 1) + [errors]
    if not h:                   # of load.c, which samples no rate every 5 s
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
    about = ("Users who follow links: bursts of requests with think times between them. A "
             "session counts only if all its replies came. Sessions finished are those of a "
             "second in which they began: how long each thinks is in no rate.")
    x_label = "sessions started a second"
    figures = (("sess_rate", "sessions finished a second", "/s", "high"), CPU,
               ("resp_ms", "response time", "ms", "low"))
    tools = ("curl", "httperf")
    withheld = (*LATENCIES, "sess_rate", "resp_ms")
    unable = "POST and other methods need a module, which it cannot load"
    LIFETIME_S = 0.1            # to which httperf rounds the time of a session

    @staticmethod
    def options(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("file", nargs="?", metavar="FILE",
                        help="sessions, as `bench convert` prints them (default: made up)")
        ap.add_argument("--rates", type=positives, default="10,50", metavar="R,…",
                        help="sessions a second (10,50)")
        ap.add_argument("--think", type=not_negative, default=0.1, metavar="S",
                        help="after bursts without one (0.1)")
        ap.add_argument("--size", type=whole(), default=files.PAGE_SIZE, metavar="BYTES",
                        help="of the file that the lab makes for each URI (8192)")

    def make_points(self, opts: argparse.Namespace) -> list:
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

    def names(self, opts: argparse.Namespace) -> Any:
        return able_to_compute(opts) if self.echoes else opts.servers

    def server_options(self, run: Run, point: Point) -> dict:
        return {"echoes": self.echoes}

    def uris(self) -> list:
        return sorted({c.uri.partition("?")[0] for s in self.sessions for b in s for c in b})

    def leave_out_unmakeable(self) -> None:
        """The requests that cannot be files of the lab's site, and all others."""
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
        notify(f"  {self.notes[-1]}")
        if not self.sessions:
            raise Problem("no request in the sessions that the lab can answer")

    def sites(self, run: Run) -> None:
        super().sites(run)
        longest_s = self.longest_s(self.sessions_nr(run, max(p.x for p in self.points)))
        if longest_s > run.opts.seconds:
            self.note(f"sessions think up to {longest_s:g} s: a sample is longer by this than "
                      "--seconds")
        root = os.path.join(run.lab.dir, "site")
        for uri in [] if run.lab.remote else self.uris():
            try:
                files.put(root, file_of(uri), self.file_size(uri))
            except OSError as e:
                raise Problem(f"{uri}: cannot be a file of the lab's site: "
                              f"{e.strerror}") from e

    def file_size(self, uri: str) -> Any:
        return {SMALL: 1024, LARGE: 1 << 20}.get(file_of(uri), self.size)

    def load(self, run: Run, point: Point, server: Server) -> Load:
        path = os.path.join(run.lab.dir, "sessions")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
                f.write(sessions.text(self.sessions[:sessions.TEMPLATES_MAX]))
        nr = self.sessions_nr(run, point.x)
        return loads.Httperf(point.x, sessions=(path, nr, self.think, self.longest_s(nr)),
                             timeout_s=10)

    @staticmethod
    def sessions_nr(run: Run, rate: float) -> Any:
        return max(1, round(rate * run.opts.seconds))

    def asked_by(self, nr: int) -> list:
        """The requests of nr sessions: httperf starts again after the last one."""
        each = self.sessions[:sessions.TEMPLATES_MAX]
        return [each[i % len(each)] for i in range(nr)]

    def longest_s(self, nr: int) -> Any:
        """Of nr sessions, the one with the longest think time."""
        return max(sessions.think_s(s, self.think) for s in self.asked_by(nr))

    def check(self, run: Run, point: Point, server: Server) -> Check | None:
        if not self.known:
            return Check(next((uri for uri in self.asked() if len(uri) < 2000), SMALL))
        return Check(SMALL, crc=files.crc(SMALL, 1024), rows=self.rows())

    def asked(self) -> list:
        """All GET requests, in order."""
        return [c.uri for s in self.sessions for b in s for c in b if c.method == "GET"]

    def rows(self) -> list:
        """The files of the sessions."""
        return [(uri, self.file_size(path), files.crc(file_of(path), self.file_size(path)))
                for uri in sorted(set(self.asked())) for path in [uri.partition("?")[0]]
                if path not in self.echoes and len(uri) < 2000]

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)

    def after(self, run: Run, point: Point, server: Server, sample: Sample, got: dict) -> None:
        h = got["httperf"]
        late_s = self.late_s(point.x, h)
        sample.update(sess_rate=h["sess_done"] / (h["sess_total"] / point.x + late_s),
                      sess_done=h["sess_done"], sess_total=h["sess_total"], late_s=late_s,
                      resp_ms=h["resp_ms"])
        if h["sess_done"] < h["sess_total"]:
            raise Problem(f"only {h['sess_done']:.0f} of {h['sess_total']:.0f} sessions "
                          "were finished")

    def late_s(self, rate: float, h: Any) -> Any:
        """The time from the expected end of the last session to the end of httperf.

        httperf does not report when a session began. A session should take its think times
        and its share of the time of replies, of each reply to 0.1 ms. Within a burst replies
        overlap, and take no more than the rest of the sessions' time; its rounding is
        multiplied by the requests of a session. Both are assumed to be rounded down.
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

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        began_s = sample["sess_total"] / sample["point"]
        if sample["late_s"] <= 0.05 * began_s + self.LIFETIME_S:
            return bottleneck.DEMAND, "sessions began at the requested rate"
        return None

    def line(self, sample: Sample) -> str:
        return f"{sample.get('sess_rate', 0):.1f} sessions/s; " + super().line(sample)


def file_of(uri: str) -> str | None:
    """The file of a URI without its query, as servers decode it; None if there can be none."""
    raw = urllib.parse.unquote_to_bytes(uri.encode("utf-8", "surrogateescape"))
    path = raw.decode("utf-8", "surrogateescape") + "index.html" * uri.endswith("/")
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path or \
            "%2f" in uri.lower() or len(raw) > 2000 or \
            any(len(os.fsencode(name)) > 255 for name in path.split("/")):
        return None
    return path


def without(burst: Any, uris: Any) -> list:
    """A burst with other requests; the pause after it stays."""
    think = next((c.think_s for c in burst[::-1] if c.think_s is not None), None)
    ret = [c._replace(think_s=None) for c in burst if c.uri.partition("?")[0] not in uris]
    return [ret[0]._replace(think_s=think), *ret[1:]] if ret else []


def parents(path: str) -> list:
    """'/a/b/c' → ['/a', '/a/b']"""
    return [path[:i] for i in range(1, len(path)) if path[i] == "/"]
