# SPDX-License-Identifier: GPL-2.0
"""Runs experiments: takes samples of the servers in turn, checks them, and keeps them all.

An experiment (experiment.py) defines the requests and the points. This module takes the
samples, forwards and backwards over the servers, decides which are valid, and tries half
the load from twice the clients. It writes the run to disk after each sample, so that an
end at any moment leaves a usable partial result. A sample with an error is counted and
kept separately; nothing averages it in.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable

import bottleneck
import hosts
import loads
from meters import FORKS_MAX, IDLE_MAX, Core, Idle, Others, ran_s
from messages import Problem, notify
from servers import FLOOR, Reflector, Toboggan, settle
from stats import paired, pairs_of, spread

if TYPE_CHECKING:
    from experiment import Experiment, Point
    from lab import Lab
    from loads import Load
    from servers import Server

FORMAT = 1
QUIET_S = 0.3               # before a load: work at that time does not belong to the load
SLACK = 0.005               # share of the replies that may be truncated at the end
VERIFY_NR, VERIFY_S, VERIFY_CONNECTIONS = 500, 0.25, 64     # replies checked around a load
STALL_S = 2.0               # a silence of half of that is not caused by a busy machine
LIST_MAX = 4000             # characters that are kept of files that clients read, such as sessions
REPLIES_MIN = 10            # for each in flight: truncated replies have cost work, too
WRONG = {"body": "wrong bytes", "length": "another length", "framing": "broken framing"}
LOST = {"reset": "a reset in their place", "closed": "a connection that ended before them",
        "timeout": "not come any further for a second"}


class Sample(dict):
    """Figures of one load on one server; `invalid` gives the reason if there is none."""


class Meter:
    """The work of both sides' CPUs, and of all other processes, from begin() to read()."""

    def __init__(self, lab: Lab, server: Server, idle: Idle, core_too: bool = True) -> None:
        self.lab, self.server, self.idle = lab, server, idle
        self.core_too = core_too        # False: the load itself reports the work of the CPUs

    def begin(self) -> None:
        lab = self.lab
        self.pids = self.server.pids()
        self.others = Others(lab.pids(), None if self.core_too else lab.server_cpus)
        self.ran = ran_s(self.pids)
        self.core, self.idle_share = None, 0.0
        if not self.core_too:
            pass
        elif not lab.remote:
            quiet = Core(lab.server_cpus)
            time.sleep(QUIET_S)
            self.idle_now = quiet.since()
            self.idle_share = self.idle.share(self.idle_now)
            self.core = Core(lab.server_cpus)
        elif read := lab.stat(self.server):
            self.core = Core(None, read)
        self.net, self.since = lab.net_bytes(self.server), time.monotonic()
        self.client = Core(lab.client_cpus)     # last, so that no idle time is added

    def lab_nr(self) -> int:
        return max(1, len(self.lab.server_cpus))

    def net_bps(self) -> Any:
        """Bytes of the busier direction; None where nothing counts them."""
        now = self.lab.net_bytes(self.server)
        return self.net and now and 8 * max(b - a for a, b in zip(self.net, now)) / \
            (time.monotonic() - self.since)

    def read(self, requests: int) -> dict | None:
        """requests: the divisor of the work, None if it is not known well enough."""
        client, net_bps = self.client.since(), self.net_bps()
        now = self.core.since() if self.core else None
        ret = {"client_share": client["share"], "client_cpus": client["share"] * self.client.nr,
               "server_share": now["share"] if now else None,
               "server_busiest": now["busiest"] if now else None, "cpu_ns": None, "ran_ns": None,
               "disturbed": False, "net_bps": net_bps}
        if now and requests:
            busy = max(0.0, now["busy_s"] - self.idle_share * now["wall_s"] * self.core.nr)
            # less than one unit of the kernel's clock, or than the idle share, is not known
            ret["cpu_ns"] = busy / requests * 1e9 or None
            ret["not_idle_ns"] = now["not_idle_s"] / requests * 1e9
        if not self.core_too:
            ret["others_s"] = self.others.since_s()
            ret["others_share"] = ret["others_s"] / (time.monotonic() - self.since) / self.lab_nr()
        elif not self.lab.remote:
            others_s, forks = self.others.since_s(), self.others.forks() - self.others.forks_before
            ret.update(others_s=others_s, forks=forks, steal_s=now["steal_s"],
                       disturbed=forks > FORKS_MAX + 5 or
                       self.idle_now["share"] >= IDLE_MAX or others_s > 0.03 * now["wall_s"] + 0.04
                       or now["steal_s"] > 0.02 * now["wall_s"])
            if requests and self.pids:
                ret["ran_ns"] = (ran_s(self.pids) - self.ran) / requests * 1e9
        return ret


def fault(load: Any, got: dict) -> str | None:
    """Why the result of a load is not a figure, None if it is one."""
    nr, out = got["requests"], []
    wanted = load.options["connections"] if got.get("opened") is not None else 0
    if wanted > (got.get("opened") or 0) and (load.counts_answered or
                                              not load.options.get("calls")):
        out.append(f"only {got['opened']} of {wanted} connections " +
                   ("had a reply" if load.counts_answered else "were opened"))
    wrong = [counted(got["errors"], "error") + kinds_of(got), counted(got["statuses"],
                                                                      "wrong status")]
    wrong = [text for text, n in zip(wrong, (got["errors"], got["statuses"])) if n]
    if wrong:
        out.append(f"{' and '.join(wrong)} beside {counted(nr, 'good reply')}")
    if not nr and not out:
        out.append("no reply at all")
    return "; ".join(out) or None


def counted(nr: int, what: str) -> str:
    """`1 error`, `2 replies`, `3 wrong statuses`."""
    more = {"y": what[:-1] + "ies", "s": what + "es"}.get(what[-1], what + "s")
    return f"{nr} {what if nr == 1 else more}"


def kinds_of(got: dict) -> str:
    """The errors of a load by kind, in brackets."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(got.get("kinds", {}).items())
                      if kind != "status" and n)
    return f" ({kinds})" * bool(kinds)


def other_length(load: Load, reply_len: int, got: dict) -> str | None:
    """The fault if replies differ from those that settle() has seen, whatever their status.

    A client stops within replies: the last few may be truncated or uncounted.
    """
    nr = got["requests"]
    if nr and reply_len and load.one_reply and not got["statuses"] and \
            abs(got["bytes"] - nr * reply_len) > (load.descriptors + SLACK * nr) * reply_len:
        return f"{got['bytes'] / nr:.0f} bytes a reply, not {reply_len}"
    return None


def wrong_answers(got: dict) -> Any:
    """The number of wrong replies of a load, without requests that had no reply."""
    return got["statuses"] + sum(got.get("kinds", {}).get(kind, 0) for kind in WRONG)


def worked_for(load: Load, reply_len: int, got: dict) -> Any:
    """The divisor of the server's work, with fractions; None: too few requests.

    A long reply that the end of the sample truncates counts by the part that arrived.
    """
    if reply_len and load.one_reply:
        return got["bytes"] / reply_len
    return got["requests"] if got["requests"] >= REPLIES_MIN * load.in_flight else None


class Check:
    """The right answer, requested before and after each load."""

    def __init__(self, path: str, status: int = 200, headers: list[tuple] | Iterable[str] = (),
                 crc: int | None = None, want: Any = "", rows: Any = None) -> None:
        self.rows = rows or [(path, None, crc)]     # (path, length, CRC-32) that verify() asks for
        self.path, self.status, self.headers, self.crc = path, status, list(headers), crc
        self.want = want

    def settle(self, lab: Lab, server: Server) -> Any:
        if isinstance(server, Reflector):
            return 0
        return settle(lab, server, self.path, self.headers, self.status, self.want, self.crc)

    def verify(self, lab: Lab, server: Server, load: Load) -> tuple[dict, int]:
        """Check some replies, since generators other than load.c do not check bodies.

        This is outside of the load and in none of its figures. Returns the number of wrong
        replies by kind, and of all; and, for generators that do not report them, the number of
        requests without a reply.
        """
        if load.verifies or isinstance(server, Reflector):
            return {}, 0
        rows = random.sample(self.rows, min(len(self.rows), VERIFY_NR))
        file = os.path.join(lab.dir, "verify.list")
        with open(file, "w", encoding="utf-8", errors="surrogateescape") as f:
            for i in range(VERIFY_NR):
                path, size, crc = rows[i % len(rows)]
                f.write(f"1 {path} {-1 if size is None else size} "
                        f"{'-' if crc is None else f'{crc:08x}'}\n")
        nr = min(VERIFY_CONNECTIONS, load.descriptors or VERIFY_CONNECTIONS)
        for seconds in (VERIFY_S, STALL_S):
            got, _ = loads.run(lab, loads.Ours(nr, list=file, once=True, expect=self.status,
                                               opening=5,
                                               header=[f"{n}: {v}" for n, v in self.headers]),
                               server, seconds)
            if load.reports_lost or not got["kinds"].get("timeout"):
                break
        known = self.status != 200 or rows[0][2] is not None
        kinds = WRONG if load.reports_lost else WRONG | LOST
        wrong = {text: got["kinds"].get(kind, 0) for kind, text in kinds.items()
                 if kind != "framing" or known}
        wrong.update((f"status {status}", n) for status, n in got["wrong_statuses"].items())
        wrong = {text: n for text, n in wrong.items() if n}
        return wrong, got["requests"] + sum(wrong.values())


def client_machines(sample: Sample, cpus: Any) -> None:
    """The work of the CPUs of other client machines, instead of this machine's.

    cpus: {machine: (share, CPUs), None if it did not report them}; the fullest decides.
    """
    known = [each for each in (cpus or {}).values() if each]
    if not cpus:
        return
    sample["client_machines"] = {name: each and each[0] for name, each in cpus.items()}
    sample["client_share"] = max((share for share, _ in known), default=None)
    sample["client_cpus"] = sum(share * nr for share, nr in known)


def wrong_text(wrong: Any, nr: int) -> str:
    return " and ".join(f"{n} of {nr} replies had {text}" for text, n in wrong.items())


class Run:
    """One invocation: its lab, its options, its record."""

    def __init__(self, lab: Lab, opts: argparse.Namespace, record: dict) -> None:
        self.lab, self.opts, self.record = lab, opts, record
        self.started = time.monotonic()
        self.total = self.taken = 0
        self.deadline = self.started + opts.max_minutes * 60
        self.servers, self.idle = {}, Idle()

    # --- samples ---------------------------------------------------------

    def sample(self, exp: Experiment, point: Point, server: Server, repeat: int) -> Sample:
        """A Sample; if measuring is impossible, one with the reason."""
        load, check = exp.load(self, point, server), exp.check(self, point, server)
        ret = Sample(point=point.x, server=server.name, repeat=repeat, invalid=None,
                     refused=None, limit=None, throughput=None)
        seconds = exp.seconds(self, point)
        try:
            self.check_descriptors(load)
            reply_len = check.settle(self.lab, server)
            self.verify(ret, check, server, load)
            exp.before(self, point, server)
            tiers = tier_requests(server)
            meter = Meter(self.lab, server, self.idle, not load.reports_cpus)
            parts = self.lab.spread(load)
            ret["clients"] = hosts.number(parts)
            got, argvs = exp.run_load(self, load, server, seconds, meter.begin)
            nr, bad = worked_for(load, reply_len, got), fault(load, got)
            if nr is None and meter.core and not bad:
                exp.note(f"{server.name}, {point.label}: fewer than {REPLIES_MIN} replies to each "
                         "request in flight are too few to compute the cost of one")
            ret.update(meter.read(nr))
            if nr and meter.core and ret["cpu_ns"] is None and not bad:
                exp.note(f"{server.name}, {point.label}: {got['requests']:,} requests took too "
                         "little processor time to be seen in hundredths of a second")
            client_machines(ret, got.get("client_cpus_of"))
            ret["command"] = argvs
            self.figures(ret, got, nr)
            if tiers is not None:
                ret["tiers"] = {k: v - tiers.get(k, 0) for k, v in tier_requests(server).items()}
            ret["invalid"] = exp.tolerate(bad, got) or other_length(load, reply_len, got)
            check.settle(self.lab, server)
            self.verify(ret, check, server, load)
            exp.after(self, point, server, ret, got)
            self.judge(ret, exp, load, server, seconds)
        except (Problem, OSError) as e:
            ret["invalid"] = str(e) if ret.get("wrong") else ret["invalid"] or str(e)
        return ret

    def verify(self, ret: Sample, check: Any, server: Server, load: Load) -> None:
        wrong, nr = check.verify(self.lab, server, load)
        if wrong:
            ret["wrong"] = wrong
            raise Problem("; ".join(filter(None, (ret["invalid"], wrong_text(wrong, nr)))))

    def check_descriptors(self, load: Load) -> None:
        want = load.descriptors + 100
        if want > self.opts.nofile:
            raise Problem(f"{want} descriptors needed, {self.opts.nofile} allowed: raise "
                          "`ulimit -n` (and fs.nr_open)")

    @staticmethod
    def figures(ret: Sample, got: dict, nr: int) -> None:
        seconds = got["seconds"] or 1e-9
        ret.update(requests=got["requests"], bytes=got["bytes"], seconds=got["seconds"],
                   rate=got["requests"] / seconds, bps=8 * got["bytes"] / seconds,
                   errors=got["errors"], statuses=got["statuses"], kinds=got.get("kinds", {}),
                   p50_us=got.get("p50_us"), p90_us=got.get("p90_us"),
                   p99_us=got.get("p99_us"), max_us=got.get("max_us"))
        if ret.get("cpu_ns") and got["bytes"]:
            ret["cpu_ns_per_kib"] = ret["cpu_ns"] * nr / got["bytes"] * 1024
        for key in ("idle", "stolen", "windows", "gaps", "repeated", "resent", "segments",
                    "verified",
                    "unsampled", "httperf", "conforming", "opened", "connects", "sent", "mean_us",
                    "late",
                    "lost"):
            if key in got:
                ret[key] = got[key]

    def judge(self, ret: Sample, exp: Experiment, load: Load, server: Server,
              seconds: float) -> None:
        """The limit of the rate; tries half the load from twice the clients once a point."""
        if ret["invalid"]:
            return
        ratio, own = None, exp.own_limit(ret)
        machines = len(ret.get("client_machines") or ())
        machines *= machines > 1
        if not own and ret["rate"] and (machines or load.most() >= 2 * ret["clients"]):
            ratio = exp.halves.get((ret["point"], server.name))
            if ratio is None:
                compare = self.machines if machines else self.halves
                ratio = compare(exp, load, server, seconds, ret["rate"], self.lab.spread(load))
                exp.halves[ret["point"], server.name] = ratio
        fds = ret["kinds"].get("fd", 0) + ret["kinds"].get("fd-unavail", 0)
        whose, why = bottleneck.judge(ret["server_share"], ret["server_busiest"],
                                 ret["client_share"], ratio,
                                 max(ret["bps"], ret["net_bps"] or 0),
                                 self.lab.link_bps(server), fds, machines)
        if own and whose not in (bottleneck.DESCRIPTORS, bottleneck.NETWORK):
            whose, why = own
        ret.update(limit=whose, limit_why=why, halves_ratio=ratio,
                   refused=bottleneck.refused(whose))
        rates = {"throughput": exp.rate(ret), "throughput_bps": ret["bps"]}
        if ret["refused"]:
            ret["withheld"] = {key: ret[key] for key in exp.withheld if ret.get(key) is not None}
            ret.update(dict.fromkeys(ret["withheld"]))
            ret["withheld"].update(rates)       # hollow marks of the charts
        else:
            ret.update(rates)
        exp.seal(ret)

    def halves(self, exp: Experiment, load: Load, server: Server, seconds: float, rate: float,
               clients: int) -> Any:
        """Twice the clients with half of each one's load: the ratio of the rates.

        If the ratio shows that the client was the limit, it is measured again beside a new
        whole load, and the median of three decides, since work of a neighbour between
        two samples looks the same. --quick does not repeat it.
        """
        most = 1 if self.opts.quick else 3
        twice = hosts.doubled(clients)
        ratios = [self.other_rate(exp, load, server, seconds, twice) / rate]
        while ratios[0] > bottleneck.BETTER and len(ratios) < most:
            whole = self.other_rate(exp, load, server, seconds, clients)
            if not whole:
                raise Problem("no reply at all to the same load once more")
            ratios.append(self.other_rate(exp, load, server, seconds, twice) / whole)
        return statistics.median(ratios)

    def machines(self, exp: Experiment, load: Load, server: Server, seconds: float, rate: float,
                 clients: int) -> Any:
        """The rate of all client machines divided by the rate of half of them with the same load.

        If it shows that the clients were the limit, it is measured again, as in halves().
        """
        few = self.lab.spread(load, hosts.half(self.lab.hosts))
        most = 1 if self.opts.quick else 3
        ratios = []
        while not ratios or ratios[0] > bottleneck.BETTER and len(ratios) < most:
            whole = rate if not ratios else self.other_rate(exp, load, server, seconds, clients)
            part = self.other_rate(exp, load, server, seconds, few)
            ratios.append(whole / part if part else float("inf"))
        return statistics.median(ratios)

    def other_rate(self, exp: Experiment, load: Load, server: Server, seconds: float,
                   parts: int) -> Any:
        got, _ = loads.run(self.lab, load, server, seconds, parts)
        bad = exp.tolerate(fault(load, got), got)
        if bad:
            raise Problem(f"the load from {hosts.number(parts)} clients: {bad}")
        return got["requests"] / (got["seconds"] or 1e-9)

    # --- servers ---------------------------------------------------------

    def server(self, exp: Experiment, point: Point, name: Any, make: Callable[..., Any]) -> Any:
        """The server of that name for this point: the running one, or a new one."""
        key = exp.server_key(point)
        name = (name, key) if exp.keep_servers else name
        old = self.servers.get(name)
        if old and old[0] == key:
            return old[1]
        if old:
            old[1].stop()
        server = make(**exp.server_options(self, point))
        self.servers[name] = (key, server)
        return server

    def stop_servers(self) -> None:
        for _, server in self.servers.values():
            server.stop()
        self.servers = {}

    # --- the whole -------------------------------------------------------

    def progress(self, exp: Experiment, point: Point, sample: Sample) -> None:
        self.taken += 1
        spent = time.monotonic() - self.started
        left = spent / self.taken * (self.total - self.taken)
        why = sample["invalid"] or sample["refused"] and \
            f"{sample['refused']} ({sample['limit_why']})"
        text = why and f"NO FIGURE: {why}"
        if not text:
            text = exp.line(sample)
            text += f"; {sample['limit']}" * bool(sample["limit"])
            text += ", DISTURBED by other work" * sample["disturbed"]
        notify(f"[{self.taken}/{self.total}, {left:,.0f} s left] {exp.name} {point.label} "
               f"{sample['server']} {sample['repeat'] + 1}/{self.opts.repeats}: {text}")

    @staticmethod
    def entry(exp: Experiment) -> dict:
        """The record of an experiment without samples."""
        return {"name": exp.name, "title": exp.title, "about": exp.about, "x": exp.x_label,
                "x_log": exp.x_log, "x_named": exp.x_named,
                "figures": [list(f) for f in exp.figures],
                "points": [{"x": p.x, "label": p.label} for p in exp.points],
                "settings": exp.settings,
                "left_out": list(exp.left_out), "samples": [], "problems": [], "notes": exp.notes,
                "reference": None, "derived": {}, "summary": [], "setups": [], "lists": {},
                "servers": []}

    def experiment(self, exp: Experiment, entry: dict) -> None:
        sides = exp.sides(self)
        entry["servers"] = [name for name, _ in sides]
        self.say_unable(exp, entry)
        entry["reference"] = reference(entry["servers"])
        failed = {}
        for repeat in range(self.opts.repeats):
            for point in exp.points:
                for name, make in sides if repeat % 2 == 0 else sides[::-1]:
                    self.step(exp, entry, point, name, make, repeat, failed)
        self.stop_servers()
        exp.leave(self)

    def say_unable(self, exp: Experiment, entry: dict) -> None:
        unable = [name for name in self.opts.servers if name not in entry["servers"]]
        if unable:
            entry["left_out"].append(f"{', '.join(unable)}: {exp.unable}")
            notify(f"  left out {entry['left_out'][-1]}")

    def step(self, exp: Experiment, entry: dict, point: Point, name: str, make: Callable[..., Any],
             repeat: int, failed: Any) -> None:
        """One sample of one server; a server that cannot start is reported once."""
        if time.monotonic() > self.deadline:
            measured = any(e["samples"] for e in self.record["experiments"])
            raise Problem(f"--max-minutes {self.opts.max_minutes:g} are over" +
                          ("; what was measured so far follows" if measured else
                           ", and nothing was measured"))
        if exp.unfit(point, name) or failed.get((point.x, name), 0) > 1 or \
           exp.enough(entry, point, name):
            self.total -= 1         # twice no figure: do not try again
            return
        try:
            exp.enter(self, point)
            server = self.server(exp, point, name, make)
            server.start()
            keep_setup(entry, point, server)
            if getattr(server, "ready_for", None) != (exp.name, point.x):
                exp.prepare(self, point, server)
                server.ready_for = (exp.name, point.x)
            sample = self.sample(exp, point, server, repeat)
            keep_lists(entry, sample.get("command", []), self.lab.dir)
        except (Problem, OSError) as e:
            sample = Sample(point=point.x, server=name, repeat=repeat, invalid=str(e),
                            refused=None, limit=None, throughput=None)
        if sample["invalid"]:
            failed[point.x, name] = failed.get((point.x, name), 0) + 1
            entry["problems"].append(f"{name}, {point.label}: {sample['invalid']}")
        entry["samples"].append(sample)
        self.finish(exp, entry)
        self.progress(exp, point, sample)       # messages are also kept

    def finish(self, exp: Experiment, entry: dict) -> None:
        """Write the samples so far and their summary to disk."""
        entry["summary"] = summarise(entry)
        entry["derived"] = exp.derive(entry)
        save(self.record, self.opts.out)

    def experiments(self, exps: list[Experiment]) -> None:
        self.total = sum(len(e.points) * len(e.sides(self)) * self.opts.repeats for e in exps)
        # all of them first: a run that ends early also lists what it did not begin
        entries = [self.entry(exp) for exp in exps]
        self.record["experiments"] += entries
        for exp, entry in zip(exps, entries):
            notify(f"{exp.name}: {exp.title}")
            self.experiment(exp, entry)


def keep_setup(entry: dict, point: Point, server: Server) -> None:
    """The commands of each server, once for all of its links."""
    def alike(setup: dict) -> str:
        return re.sub(r"tbg\d+|198\.18\.\d+", "", json.dumps(setup))

    setup = {"server": server.name, **server.setup()}
    if setup["commands"] and not any(
            alike({k: v for k, v in old.items() if k != "point"}) == alike(setup)
            for old in entry["setups"]):
        entry["setups"].append({"point": point.label, **setup})


def keep_lists(entry: dict, argvs: list, folder: Any) -> None:
    """The content of the lab's files that the clients' commands name: {path: text}."""
    words = "\n".join(word for argv in argvs for word in argv)
    for path in re.findall(rf"{re.escape(str(folder))}/[^,\n]+", words):
        if path not in entry["lists"] and os.path.exists(path):
            with open(path, encoding="utf-8", errors="backslashreplace") as f:
                text = f.read(LIST_MAX)
            size = os.path.getsize(path)
            more = f"\n[{size:,} bytes in all]\n" if size > LIST_MAX else ""
            entry["lists"][path] = (text[:text.rfind("\n")] if more else text) + more


def reference(names: list[str]) -> str | None:
    """The server that the others are compared with; None: there is no other.

    The first that is not Toboggan, else the first. The floor is no server.
    """
    others = [n for n in names if not n.startswith("toboggan") and n != FLOOR]
    return (others or names)[0] if len(names) > 1 else None


def summarise(entry: dict) -> list[dict[str, Any]]:
    """[{point, server, figures: {key: spread}, ratios: {key: interval}, …}], valid samples only.

    limit: the limits of the rates; why: {limit: its reason}.

    Samples that other work disturbed count if there are no others.
    """
    ret = []
    reference = entry["reference"]
    for point in entry["points"]:
        by_repeat = {}
        for s in entry["samples"]:
            if s["point"] == point["x"]:
                by_repeat.setdefault(s["server"], {})[s["repeat"]] = s
        for name in entry["servers"]:
            mine = by_repeat.get(name, {})
            good = {r: s for r, s in mine.items() if not s["invalid"]}
            if not mine:
                continue
            clean = {r: s for r, s in good.items() if not s.get("disturbed")} or good
            row = {"point": point["x"], "server": name, "valid": len(good),
                   "invalid": len(mine) - len(good),
                   "disturbed": sum(bool(s.get("disturbed")) for s in good.values()),
                   "counted": len(clean),
                   "errors": sum(s.get("errors", 0) + s.get("statuses", 0) +
                                 sum(s.get("wrong", {}).values()) for s in mine.values()),
                   "limit": sorted({s["limit"] for s in good.values() if s["limit"]}),
                   "refused": sorted({s["refused"] for s in good.values() if s["refused"]}),
                   "why": {}, "figures": {}, "ratios": {}}
            for whose in row["limit"]:
                row["why"][whose] = why([s for s in good.values() if s["limit"] == whose])
            theirs = {r: s for r, s in by_repeat.get(reference, {}).items() if not s["invalid"]}
            for key, _, unit, _ in entry["figures"]:
                row["figures"][key] = spread([s.get(key) for s in clean.values()])
                if name != reference and reference:
                    row["ratios"][key] = paired(key, unit, pairs_of(good, theirs))
            ret.append(row)
    return ret


def why(samples: list) -> Any:
    """The reason for one limit: that of the sample with the median rate."""
    ranked = sorted(samples, key=lambda s: {**s, **s.get("withheld", {})}.get("rate") or 0)
    return ranked[(len(ranked) - 1) // 2].get("limit_why")


def tier_requests(server: Server) -> dict | None:
    """{tier: requests it has answered} of a Toboggan server of ours, else None."""
    if not isinstance(server, Toboggan):
        return None
    return {name: tier["requests"] for name, tier in server.ask("stats")["tiers"].items()
            if isinstance(tier, dict) and "requests" in tier}


def save(record: dict, folder: str) -> None:
    """Write a file completely or not at all, whenever the program ends."""
    path = os.path.join(folder, "run.json")
    try:
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(record, f, indent=1)
        os.rename(path + ".new", path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")
        raise Problem(f"{path}: {e.strerror}") from e

