# SPDX-License-Identifier: GPL-2.0
"""One invocation of an experiment: options, lab or remote, run, report.

Called by catalogue.py for every experiment and for `all`. However a run ends (Ctrl-C,
the time limit, a problem), the lab is removed and the figures so far are reported.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Iterator

import hosts as client_hosts
import lab as laboratory
import report
import terminal
from option_types import positive, whole
from catalogue import EXPERIMENTS as LINES
from engine import FORMAT, Run, counted, save
from capacity import Capacity
from experiments import EXPERIMENTS as OTHERS
from experiment import Experiment
from meters import machine
from remote import Remote
from messages import Problem, Usage, notify
from servers import KINDS, Existing, Toboggan, fetch

if TYPE_CHECKING:
    import remote
    from lab import Lab

INTERRUPTED = 130
EXPERIMENTS = {Capacity.name: Capacity, **OTHERS}


def parser(name: str) -> argparse.ArgumentParser:
    about = EXPERIMENTS[name].about if name in EXPERIMENTS else \
        "Every experiment, one after the other, with its own defaults."
    ap = argparse.ArgumentParser(
        prog=f"bench {name}", description=f"{LINES[name]}. {about}",
        epilog="Exit status: 0 if every sample was valid, even if rates were refused; 1 if some "
        "were not, a tool is missing or the run could not start; 2 for wrong options; 130 if "
        "interrupted. A partial run is reported, too.")
    ap.add_argument("--quick", action="store_true",
                    help="few points, 1 repeat of 1 s, to check that it works")
    ap.add_argument("--repeats", type=whole(), metavar="N",
                    help=f"of each sample ({EXPERIMENTS.get(name, Experiment).repeats})")
    ap.add_argument("--seconds", type=positive, metavar="S",
                    help=f"per sample ({EXPERIMENTS.get(name, Experiment).sample_s:g})")
    ap.add_argument("--servers", metavar="S,…",
                    help="which, of toboggan, toboggan-TIER, " + ", ".join(list(KINDS)[1:]) +
                    " (default: all that are installed)")
    ap.add_argument("--json", action="store_true",
                    help="print the tables as JSON, and the report's place to stderr")
    ap.add_argument("--markdown", action="store_true",
                    help="print them for a README, with the machine, the date and the command")
    ap.add_argument("--out", metavar="DIR",
                    help="for the report (bench-NAME-DATE in the current folder)")
    ap.add_argument("--max-minutes", type=positive, default=600, metavar="M",
                    help="end after that time and the current sample (600)")
    where = ap.add_argument_group("where")
    where.add_argument("--lab", action="store_true",
                       help="in two namespaces of this machine (the default; needs root)")
    where.add_argument("--cpus-used", metavar="N,…", help="of this machine, for the lab (all)")
    where.add_argument("--server", action="append", default=[], metavar="NAME=HOST:PORT",
                       help="a server that is running already, with the files of `bench site`; "
                       "can be repeated")
    where.add_argument("--stat", action="append", default=[], metavar="[NAME=]COMMAND",
                       help="a command that prints the server's /proc/stat, such as `ssh HOST cat "
                       "/proc/stat`, for the work of all its CPUs; without it there is no "
                       "processor time, and no rate except a requested one that was met. NAME=: "
                       "for that server alone, if servers are on different hosts")
    where.add_argument("--link-mbit", type=positive, metavar="MBIT",
                       help="nominal rate of the network (that of the interface)")
    where.add_argument("--client-host", action="append", default=[],
                       metavar="[USER@]HOST[=SHARE]",
                       help="a client machine, by ssh, instead of this one, with that share of "
                       "the load (1); can be repeated")
    for exp in (EXPERIMENTS.values() if name == "all" else [EXPERIMENTS[name]]):
        if name != "all":
            exp.options(ap.add_argument_group("of this experiment"))
    return ap


def own_defaults(exp: type[Capacity]) -> dict[str, Any]:
    """The default options of an experiment."""
    ap = argparse.ArgumentParser()
    exp.options(ap)
    return vars(ap.parse_args([]))


def check(ap: argparse.ArgumentParser, args: Any, kind: Any = Experiment) -> None:
    if args.repeats is None:
        args.repeats = 1 if args.quick else kind.repeats
    if args.seconds is None:
        args.seconds = 1 if args.quick else kind.sample_s
    if args.json and args.markdown:
        ap.error("--json and --markdown: want one of them")
    if args.server and (args.lab or args.servers or args.cpus_used):
        ap.error("--server excludes --lab, --servers and --cpus-used")
    if (args.stat or args.link_mbit or args.client_host) and not args.server:
        ap.error("--stat, --link-mbit and --client-host need --server")
    try:
        args.clients_at = client_hosts.parse(args.client_host)
    except ValueError as e:
        ap.error(str(e))
    args.remote = {}
    for word in args.server:
        m = re.fullmatch(r"([A-Za-z0-9._-]+)=([^/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", word)
        if not m or int(m.group(3)) > 65535:
            ap.error(f"--server {word}: want NAME=HOST:PORT")
        if m.group(1) in args.remote:
            ap.error(f"--server {word}: that name is taken")
        args.remote[m.group(1)] = f"{m.group(2)}:{m.group(3)}"
    args.cpu_list = cpu_list(ap, args.cpus_used)
    args.names = server_names(ap, args.servers)
    args.asked = args.servers is not None
    args.stats = stat_commands(ap, args)


def hosts(args: argparse.Namespace) -> list:
    return sorted({where.rpartition(":")[0] for where in args.remote.values()})


def stat_commands(ap: argparse.ArgumentParser, args: argparse.Namespace) -> dict:
    """{name: the command that prints its /proc/stat}"""
    ret = {}
    for text in args.stat:
        name, _, command = text.partition("=")
        if name not in args.remote:
            if re.match(r"[A-Za-z0-9._-]+=", text):
                ap.error(f"--stat {text}: there is no --server {name}, but "
                         f"{', '.join(args.remote)}")
            name, command = None, text
        try:
            if not shlex.split(command):
                ap.error(f"--stat {text}: want a command")
        except ValueError as e:
            ap.error(f"--stat {text}: {e}")
        if name is None and len(hosts(args)) > 1:
            ap.error(f"--stat {text}: the servers are on different hosts: want NAME=COMMAND "
                     "for each")
        for one in [name] if name else args.remote:
            if one in ret:
                ap.error(f"--stat {text}: {one} has a command already")
            ret[one] = command
    return ret


def server_names(ap: argparse.ArgumentParser, text: str) -> list[str]:
    """The names of --servers, installed or not."""
    ret = text.split(",") if text is not None else []
    for name in ret:
        kind, dash, tier = name.partition("-")
        if kind not in KINDS:
            ap.error(f"--servers {name or repr('')}: there are {' '.join(KINDS)}")
        if dash and (KINDS[kind] is not Toboggan or tier not in Toboggan.TIERS):
            ap.error(f"--servers {name}: there is no such tier")
        if ret.count(name) > 1:
            ap.error(f"--servers {text}: {name} is named twice")
    return ret


def cpu_list(ap: argparse.ArgumentParser, text: str) -> list:
    have = os.sched_getaffinity(0)
    if not text:
        return sorted(have)
    if not re.fullmatch(r"\d+(,\d+)*", text) or not set(map(int, text.split(","))) <= have:
        ap.error(f"--cpus-used {text}: want numbers out of {','.join(map(str, sorted(have)))}")
    return sorted(set(map(int, text.split(","))))


def choose_servers(args: argparse.Namespace) -> tuple[list, list]:
    """(names in the order of KINDS, what is left out and why); requested ones must exist."""
    if args.remote:
        return list(args.remote), []
    if not args.servers:
        ret = [name for name, kind in KINDS.items() if kind.installed()]
        return ret, [f"{name}: it is not installed" for name in KINDS if name not in ret]
    for name in args.names:
        kind = KINDS[name.partition("-")[0]]
        if not kind.installed():
            raise Problem(f"{name} is missing: {kind.program} is not installed"
                          if kind is not Toboggan else f"{name} is missing: run `make`")
    return args.names, []


def make_lab(args: argparse.Namespace) -> Lab | remote.Remote:
    if not args.remote:
        nr = max(1, len(args.cpu_list) // 4)
        if len(args.cpu_list) < 2:
            raise Problem("two CPUs are needed, one for each side")
        return laboratory.Lab(args.cpu_list[:nr], args.cpu_list[nr:])
    without = [name for name in args.remote if name not in args.stats]
    if without:
        notify(f"bench: no --stat: there will be no processor time of {', '.join(without)}")
    if args.clients_at and not shutil.which("ssh"):
        raise Problem("--client-host: ssh is missing: install openssh-client")
    return Remote(*hosts(args), stats=args.stats,
                  link_bps=args.link_mbit and args.link_mbit * 1e6, clients=args.clients_at)


def common(values: Any) -> Any:
    """The common value, or the values by name."""
    return values if len(set(values.values())) > 1 else next(iter(values.values()))


def topology(lab: Lab, args: argparse.Namespace) -> dict:
    if lab.remote:
        links = {name: lab.link_bps(Existing(lab, name, where))
                 for name, where in args.remote.items()}
        return {"kind": "remote", "servers": args.remote, "link_bps": common(links),
                "clients": args.clients_at,
                "stat": common({name: args.stats.get(name) for name in args.remote})}
    return {"kind": "lab", "server_cpus": sorted(lab.server_cpus),
            "client_cpus": sorted(lab.client_cpus), "link": "veth pair per server, MTU 1500, "
            "receive work of each side steered to its CPUs (RPS)"}


def make_record(name: str, lab: Lab, args: argparse.Namespace) -> dict:
    versions = {n: n in args.remote and "remote" or KINDS[n.partition("-")[0]].version()
                for n in args.servers}
    return {"format": FORMAT, "kind": "toboggan-bench", "name": name, "machine": machine(),
            "command": ["toboggan", "bench", name, *args.argv], "complete": False,
            "ended": None, "topology": topology(lab, args), "servers": versions,
            "repeats": args.repeats, "seconds": args.seconds, "quick": args.quick,
            "descriptors": args.nofile, "experiments": []}


def build(name: str, args: argparse.Namespace) -> tuple[list, list[str], list[str]]:
    """(the requested experiments, those that are impossible here, those that lack a tool)."""
    exps, refused, lacking = [], [], []
    for kind in EXPERIMENTS.values() if name == "all" else [EXPERIMENTS[name]]:
        own = own_defaults(kind)
        opts = args if name != "all" else argparse.Namespace(**{**own, **vars(args)})
        exp = kind(opts)
        exp.settings = {**{key: getattr(opts, key) for key in own}, **exp.settings}
        if args.remote and exp.lab_only:
            refused.append(f"{exp.name}: {exp.lab_only}")
        elif why := missing_tool(exp):
            lacking.append(f"{exp.name}: {why}")
        else:
            exps.append(exp)
    if refused and not exps:
        able = ", ".join(one.name for one in EXPERIMENTS.values() if not one.lab_only)
        raise Problem(f"--server is not for {refused[0]}; leave it out to measure in namespaces of "
                      f"this machine, or run another experiment: {able}")
    if not exps:
        raise Problem(lacking[0])
    return exps, refused, lacking


def missing_tool(exp: Experiment) -> Any:
    """A message about a missing tool; None if all exist."""
    return next((f"{tool} is missing: run `sudo make deps`" for tool in exp.tools
                 if not shutil.which(tool)), None)


def check_remote(run: Run, exps: list[Experiment]) -> None:
    """Detect dead servers, and servers without the requested files, before anything is timed."""
    for name, where in run.opts.remote.items():
        server = Existing(run.lab, name, where)
        made = {e.check(run, e.points[0], server).path: e.known and e.made_by for e in exps}
        for path, command in made.items():
            got = fetch(run.lab, server, path)
            if not got["status"]:
                raise Problem(f"{name}: no answer from {where}")
            if got["status"] != 200:
                raise Problem(f"{name}: {path}: status {got['status']}" +
                              (f": give it the files of `{command}`" if command else ""))


def measure(run: Run, exps: list[Experiment], record: dict) -> str | None:
    """How the run ended early, None if it did not."""
    try:
        with run.lab, out_folder(run.opts.out):
            if "machine" in record:
                record["machine"]["sysctls"].update(run.lab.sysctls())
            if run.lab.remote:
                check_remote(run, exps)
            for exp in list(exps):
                try:
                    if not exp.sides(run):
                        raise Problem(f"none of {', '.join(run.opts.servers)} can do it")
                    exp.sites(run)
                except Problem as e:
                    if len(exps) == 1:
                        raise
                    notify(f"bench: left out {exp.name}: {e}")
                    record["left_out"].append(f"{exp.name}: {e}")
                    exps.remove(exp)
            run.experiments(exps)
        return None
    except (KeyboardInterrupt, Problem, OSError) as e:
        interrupted = isinstance(e, KeyboardInterrupt)
        if not any(e_["samples"] for e_ in record["experiments"]):
            if interrupted:
                notify("interrupted: nothing was measured")
            raise
        notify("interrupted: the report has the figures so far" if interrupted else
               f"bench: {e}")
        return "interrupted" if interrupted else str(e)


@contextlib.contextmanager
def out_folder(path: str) -> Iterator[None]:
    """The folder of the report. If it stays empty, it and new folders above it are removed.

    Call it within the lab, whose lock excludes another run with the same folder.
    """
    made, folder = [], path
    while not os.path.lexists(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise Problem(f"--out {path}: {e.strerror}") from e
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for folder in made:
                os.rmdir(folder)


def main(name: str, argv: list[str]) -> int:
    ap = parser(name)
    args = ap.parse_args(argv)
    args.argv = argv
    check(ap, args, EXPERIMENTS.get(name, Experiment))
    try:
        exps, refused, lacking = build(name, args)
    except Usage as e:
        ap.error(str(e))
    if not args.remote:
        laboratory.check_machine(["ip", "tc", "nsenter", "sysctl", "ss"])
    args.servers, absent = choose_servers(args)
    left_out = refused + lacking + absent
    for text in left_out:
        notify(f"bench: left out {text}")
    args.nofile = laboratory.raise_nofile(max(laboratory.NOFILE, 250000
                                              if name in ("connections", "all") else 0))
    lab = make_lab(args)
    args.out = os.path.abspath(args.out or f"bench-{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    record = make_record(name, lab, args)
    record["left_out"] = left_out
    run = Run(lab, args, record)
    record["ended"] = measure(run, exps, record)
    record["complete"] = record["ended"] is None
    where_is = written(record, args.out)
    print(json.dumps(terminal.plain(record), indent=1) if args.json else
          terminal.markdown(record) if args.markdown else terminal.tables(record))
    if where_is:
        print(where_is, file=sys.stderr if args.json or args.markdown else sys.stdout)
    without = [e["name"] for e in record["experiments"] if not e["samples"]]
    if without:
        notify(f"bench: the run ended before {', '.join(without)}")
    if record["ended"] == "interrupted":
        return INTERRUPTED
    say_without(record)
    bad = any(s["invalid"] for e in record["experiments"] for s in e["samples"])
    return 1 if bad or lacking or not where_is or not record["complete"] else 0


def written(record: dict, folder: str) -> str | None:
    """Write the run and its page: the page's place; None if that is not possible."""
    try:
        save(record, folder)
        return report.write(record, folder)
    except (Problem, OSError) as e:
        why = str(e) if isinstance(e, Problem) else f"{e.filename or folder}: {e.strerror}"
        notify(f"bench: {why}: there is no report, only its tables")
        return None


def say_without(record: dict) -> None:
    """Print how many samples were faulty, and how many had a refused rate; nothing if none."""
    samples = [s for e in record["experiments"] for s in e["samples"]]
    bad = sum(bool(s["invalid"]) for s in samples)
    refused = sum(bool(s["refused"]) and not s["invalid"] for s in samples)
    words = [f"{bad} gave no figure"] * bool(bad) + [f"the rate of {refused} was refused"] * \
        bool(refused)
    if words:
        notify(f"bench: of {counted(len(samples), 'sample')}, {', and '.join(words)}; "
               "the report has the reasons")
