#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Rules of iptables beside connections without a socket.

iptables-legacy has tables that netlink does not list; iptables-nft writes into those of nftables.

A table of iptables-legacy stays until its namespace goes, so the tests are in this order. The two
daemons and what is played are those of t_firewalls.py.
"""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ktap
import net
import t_firewalls as fw

COMMANDS = {4: "iptables", 6: "ip6tables"}
LIMIT = ("-p", "tcp", "--syn", "--dport", "8080:8081", "-m", "connlimit", "--connlimit-above", "3",
         "--connlimit-mask", "0", "-j", "REJECT", "--reject-with", "tcp-reset")
OUTWARD = ("-p", "tcp", "--sport", "8080:8081", "-m", "conntrack", "--ctdir", "ORIGINAL",
           "-j", "DROP")


def begin():
    fw.begin()
    try:
        with rule(4, "nft", "INPUT", *LIMIT):
            pass
    except RuntimeError as why:
        fw.end()
        raise ktap.Skip(f"no connlimit: {why}") from why


end = fw.end                            # pylint: disable=invalid-name


@contextlib.contextmanager
def rule(family, variant, chain, *words, table="filter"):
    command = (f"{COMMANDS[family]}-{variant}", "-w", "-t", table)
    fw.n.server.run(*command, "-A", chain, *words)
    try:
        yield
    finally:
        fw.n.server.run(*command, "-D", chain, *words)


def admitted(port, family):
    """A connection, as soon as those that have ended do not count any more."""
    end = time.monotonic() + net.WAIT_S
    while True:
        try:
            return fw.connect(port, family)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def fourth(port, family):
    """Whether a client gets a fourth connection beside three with hits."""
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            c = stack.enter_context(admitted(port, family))
            assert c.get("/hit").body == fw.HIT
        try:
            fw.connect(port, family).close()
        except ConnectionRefusedError:
            return False
        return True


def limited(variant):
    for family in (4, 6):
        assert fourth(fw.PORT, family) and fourth(fw.OTHER, family)
        with rule(family, variant, "INPUT", *LIMIT):
            net.until(lambda: "connlimit" in fw.late()["syns_why"], "the rule is not seen")
            for port in (fw.OTHER, fw.PORT):
                assert not fourth(port, family), (variant, family, port)
                with admitted(port, family) as c:
                    fw.dialogue(c)
        net.until(lambda: "connlimit" not in fw.late()["syns_why"], "the rule does not go")


def directed(variant):
    """Answers of connections that others began are no answers: the daemon's entries would be."""
    with rule(4, variant, "PREROUTING", "-p", "udp", "--dport", "9", "-j", "REDIRECT",
              table="nat"):
        net.until(lambda: "NAT" in fw.late()["syns_why"], "the table is not seen")
        for family in (4, 6):
            with rule(family, variant, "OUTPUT", *OUTWARD):
                net.until(lambda: "direction" in fw.late()["syns_why"], "the rule is not seen")
                assert fw.late()["syns"] == "the kernel alone, which keeps the connections"
                for port in (fw.OTHER, fw.PORT):
                    with fw.connect(port, family) as c:
                        fw.dialogue(c)
            net.until(lambda: "direction" not in fw.late()["syns_why"], "the rule does not go")


def t_limits_of_iptables_nft():
    limited("nft")
    fw.n.server.run("nft", "flush", "ruleset")


def t_directions_of_iptables_nft():
    directed("nft")
    fw.n.server.run("nft", "flush", "ruleset")


def t_limits_of_iptables_legacy():
    net.until(lambda: fw.late()["syns"] == "wire", "it is not seen that the rules have gone")
    limited("legacy")
    assert fw.late()["syns"] == "the kernel", fw.late()


def t_rules_beside_the_limit_change_nothing():
    """A rule among many of iptables-legacy is found; without it wire has its connections again."""
    rules = "\n".join(f"-A INPUT -s 203.0.113.{nr % 256} -m conntrack --ctstate NEW "
                      f"-m comment --comment x{nr} -j DROP" for nr in range(300))
    fw.n.server.run("sh", "-c", f"iptables-legacy-restore --noflush <<'END'\n"
                                f"*filter\n{rules}\nCOMMIT\nEND")
    with rule(4, "legacy", "INPUT", *LIMIT):
        net.until(lambda: "connlimit" in fw.late()["syns_why"], "the rule is not seen")
        assert not fourth(fw.PORT, 4)
    net.until(lambda: fw.late()["syns"] == "the kernel", "the rule does not go")
    before = fw.late()
    with fw.connect(fw.PORT, 4) as c:
        fw.dialogue(c)
    after = fw.late()
    assert after["births"] > before["births"] and after["handed"] > before["handed"], after
    fw.n.server.run("iptables-legacy", "-F", "INPUT")


def t_directions_of_iptables_legacy():
    directed("legacy")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
