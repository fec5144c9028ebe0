#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Client machines of the benchmark, with a fake `ssh` that stays on this machine.

What it was asked to run, and where, is in its log. No server but one over loopback.
"""
import collections
import contextlib
import os
import re
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import benched                  # noqa: E402
import ktap                     # noqa: E402

import bottleneck               # noqa: E402
import hosts                    # noqa: E402
import loads                    # noqa: E402

FEW = ("connections", "--quick", "--connections", "8", "--seconds", "2")
SSH = """#!/bin/sh
while :; do
	case $1 in
	-T)	shift ;;
	-o)	shift 2 ;;
	*)	break ;;
	esac
done
[ $# = 2 ] || exit 97
printf '%s\\t%s\\n' "$1" "$2" >> {log}
[ -d {places}/"$1" ] && PATH={places}/"$1"
case $1 in
*down*)	echo "ssh: connect to host down port 22: Connection refused" >&2; exit 255 ;;
esac
exec /bin/sh -c "$2"
"""
# Its CPUs have worked all the time, whenever they are looked at.
FULL_GREP = """#!/bin/sh
now=$(date +%s%N)
echo "cpu0 $((now / 10000000)) 0 0 1000 0 0 0 0 0 0"
echo "cpu1 $((now / 10000000)) 0 0 1000 0 0 0 0 0 0"
"""

Asked = collections.namedtuple("Asked", "host script")


class Machines:
    """Hosts of any name, all on this machine; place(NAME) contains the files of NAME."""

    def __init__(self):
        self.folder = benched.folder()
        self.log, self.places = (os.path.join(self.folder, x) for x in ("log", "places"))
        self.put(os.path.join(self.folder, "bin", "ssh"),
                 SSH.format(log=self.log, places=self.places))

    @staticmethod
    def put(path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    def place(self, host, without=(), **programs):
        """The PATH of a host: that of this machine, except for these."""
        there = os.path.join(self.places, host)
        for folder in ("/usr/bin", "/bin"):
            for name in os.listdir(folder):
                with contextlib.suppress(FileExistsError):
                    os.makedirs(there, exist_ok=True)
                    if name not in without and name not in programs:
                        os.symlink(os.path.join(folder, name), os.path.join(there, name))
        for name, text in programs.items():
            self.put(os.path.join(there, name), text)

    def run(self, sham, *words, command=FEW):
        env = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}")
        return benched.run(*command, "--server", f"sham={sham.authority}", *words, env=env)

    def asked(self):
        with open(self.log, encoding="utf-8") as f:
            return [Asked(*line.rstrip("\n").split("\t")) for line in f]

    def loads(self):
        """[(host, connections)] of each client that was run, in order."""
        ret = []
        for host, script in self.asked():
            m = re.search(r"timeout \d+ (\S*load .*?); rc=", script)
            if m:
                words = shlex.split(m.group(1))
                ret.append((host, int(words[words.index("--connections") + 1])))
        return ret

    def left(self):
        """Folders that runs have left there."""
        made = {m.group(0) for one in self.asked()
                for m in re.finditer(r"/tmp/tbg-bench\.\w{6}\b", one.script)} - \
            {"/tmp/tbg-bench.XXXXXX"}
        assert made, "no folder was made"
        return [path for path in made if os.path.exists(path)]


def shares(clients):
    ret = collections.Counter()
    for host, nr in clients:
        ret[host] += nr
    return dict(ret)


def t_client_machines_share_a_load_and_half_of_them_are_tried_with_all_of_it():
    machines = Machines()
    with benched.Sham() as sham:
        done = machines.run(sham, "--stat", "cat /proc/stat", "--client-host", "alpha=3",
                            "--client-host", "me@beta")
    sample, = benched.samples(done.record)
    assert done.code == 0 and not sample["invalid"] and sample["requests"], done.err
    assert set(sample["client_machines"]) == {"alpha", "me@beta"}, sample["client_machines"]
    assert all(0 <= share <= 1 for share in sample["client_machines"].values()), sample
    clients = machines.loads()
    whole = clients[:sample["clients"]]
    assert shares(whole) == {"alpha": 6, "me@beta": 2}, clients
    assert sample["halves_ratio"] and sample["limit"], sample
    half = clients[sample["clients"]:]
    assert half and shares(half) == {"alpha": 8}, "what one of the two gets of the same load"
    assert not machines.left(), machines.left()
    assert done.record["topology"]["clients"] == {"alpha": 3, "me@beta": 1}
    assert {argv[1] for argv in sample["command"]} == {"alpha", "me@beta"}, sample["command"]
    with open(os.path.join(done.folder, "report.html"), encoding="utf-8") as f:
        page = f.read()
    assert "alpha (share 3), me@beta (share 1)" in page and "ssh me@beta" in page


def machine(name, share, cpus=4):
    ret = hosts.Host(name, share, "/nowhere")
    ret.cpus = cpus
    return ret


def t_no_part_of_a_load_is_lost_between_machines():
    for cpus, wanted in (((4, 4), (48, 16)), ((1, 8), (48, 16))):
        two = [machine("a", 3, cpus[0]), machine("b", 1, cpus[1])]
        parts = hosts.spread(two, loads.Wrk(64, "/"))
        weights = [part.weight for part in parts]
        each = [loads.part_of(64, (nr, weights)) for nr in range(len(parts))]
        got = shares((part.host.name, nr) for part, nr in zip(parts, each))
        assert tuple(got.values()) == wanted and min(each) > 0, (parts, each)
        assert sum(part.host.name == "a" for part in parts) == cpus[0]
        twice = hosts.doubled(parts)
        assert len(twice) == 2 * len(parts) and hosts.doubled(3) == 6
        assert sum(part.weight for part in twice) == sum(weights)
    one = hosts.spread([machine("a", 1), machine("b", 99)], loads.Wrk(4, "/"))
    assert {part.host.name for part in one} == {"b"}, "less than one connection is none"
    open_loop = hosts.spread([machine("a", 2), machine("b", 1)], loads.Httperf(90, 10))
    assert [part.host.name for part in open_loop] == ["a", "b"]
    whole = hosts.spread([machine("a", 1), machine("b", 1)], loads.Ours(8, once=True))
    assert [part.host.name for part in whole] == ["a"], "it cannot be divided"
    assert [h.name for h in hosts.half([machine(n, 1) for n in "abc"])] == ["a", "b"]


def t_whose_limit_a_rate_of_several_machines_is():
    def whose(ratio, server=None, client=0.5):
        return bottleneck.judge(server, server, client, ratio, 0, None, machines=2)
    assert whose(1.5)[0] == bottleneck.CLIENT and "all 2 client machines" in whose(1.5)[1]
    assert whose(1.5, 0.5)[0] == bottleneck.CLIENT
    assert whose(1.5, 0.97)[0] == bottleneck.SERVER, "half were too few, all fill it"
    assert whose(1.0, 0.97)[0] == bottleneck.SERVER
    assert whose(1.0)[0] == bottleneck.UNKNOWN and "with all of the load" in whose(1.0)[1]


def t_reports_of_several_httperfs_are_one():
    each = dict.fromkeys(("connections", "requests", "replies", "rate", "con_rate", "req_rate",
                          "rep_min", "rep_avg", "rep_max", "net_kb_s", "errors_total"), 10)
    each.update(resp_ms=2.0, transfer_ms=1.0, rep_stddev=3.0, seconds=5.0, duration=4.0)
    got = loads.merged_httperf([each, {**each, "replies": 30, "resp_ms": 6.0, "rep_stddev": 4.0}])
    assert got["rate"] == 20 and got["replies"] == 40 and got["resp_ms"] == 5.0, got
    assert got["rep_stddev"] == 5.0 and got["seconds"] == 5.0, got


def t_a_client_machine_whose_cpus_are_full_is_the_limit():
    machines = Machines()
    machines.place("alpha", grep=FULL_GREP)
    with benched.Sham() as sham:
        done = machines.run(sham, "--client-host", "alpha")
    sample, = benched.samples(done.record)
    assert sample["client_machines"] == {"alpha": 1} and sample["client_share"] == 1, sample
    assert sample["limit"] == "client" and sample["throughput"] is None, sample


def t_a_machine_that_cannot_be_reached_is_named_and_the_others_are_left_as_they_were():
    machines = Machines()
    with benched.Sham() as sham:
        done = machines.run(sham, "--client-host", "alpha", "--client-host", "down")
    assert done.code == 1 and "Traceback" not in done.err, done.err
    assert "--client-host down: ssh: connect to host down port 22: Connection refused" in \
           done.err, done.err
    assert not machines.left() and not machines.loads()


def t_a_generator_that_a_machine_lacks_is_named():
    machines = Machines()
    machines.place("bare", without=("wrk",))
    with benched.Sham() as sham:
        done = machines.run(sham, "--client-host", "bare", command=("cpus", "--quick"))
        assert done.code == 1, "of the lab alone"
        done = machines.run(sham, "--client-host", "bare",
                            command=("sizes", "--quick", "--seconds", "0.2"))
    for sample in benched.samples(done.record):
        assert "--client-host bare: wrk is missing" in sample["invalid"], sample
    assert not machines.left()


def t_an_open_loop_is_divided_by_the_shares_too():
    machines = Machines()
    with benched.Sham() as sham:
        done = machines.run(sham, "--client-host", "alpha=4", "--client-host", "beta=1",
                            command=("rates", "--quick", "--low", "100", "--high", "100"))
    sample, = benched.samples(done.record)
    rates = [(host, re.search(r"httperf .* --rate (\S+)", script).group(1))
             for host, script in machines.asked() if "httperf --hog" in script]
    # of 10 connections a second, 10 requests each; a busy machine runs a second load
    assert sorted(rates[:2]) == [("alpha", "8"), ("beta", "2")], rates
    assert not sample["invalid"] or "the client's limit" in sample["invalid"], sample
    assert sample["httperf"]["connections"] == 10, sample


def t_wrong_client_machines_are_named():
    for words, text in ((("--client-host", "a"), "need --server"),
                        (("--server", "x=h:1", "--client-host", "-oProxyCommand=x"), ""),
                        (("--server", "x=h:1", "--client-host", "a=0"), "want [USER@]HOST"),
                        (("--server", "x=h:1", "--client-host", "a b"), "want [USER@]HOST"),
                        (("--server", "x=h:1", "--client-host", "a", "--client-host", "a=2"),
                         "named twice")):
        done = benched.run("tiers", *words)
        assert done.code == 2 and text in done.err and "Traceback" not in done.err, done.err


if __name__ == "__main__":
    ktap.run(globals())
