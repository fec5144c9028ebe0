#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A kernel booted with lockdown=confidentiality: the tiers, and the messages about them.

From Linux 6.2 on, the kernel's tiers read its memory by loads in place of a helper that
lockdown forbids; before, the user tier is alone, and `toboggan probe` names the cause.
"""
import contextlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import talk

PORT = 8080
BODY = b"of a kernel that tells nobody what it knows\n" * 20
LARGE = talk.content("large", 300000)
FILES = {"a": BODY, "large": LARGE}


def begin():
    with open("/proc/cmdline", encoding="ascii") as f:
        if "lockdown=confidentiality" not in f.read().split():
            raise ktap.Skip("the kernel is not locked down")


def reads():
    """The result of probe for it: {"state": …}"""
    done = subprocess.run([daemon.TOOL, "--json", "probe"], capture_output=True, text=True,
                          check=False)
    return next(x for x in json.loads(done.stdout)["features"] if x["name"] == "reads")


def can():
    return reads()["state"] == "present"


@contextlib.contextmanager
def connected(n):
    """A connection on which a tier of the kernel has answered."""
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        net.until(lambda: c.get("/a").tier == daemon.FAST, "no hit")
        yield c


def in_turns(n):
    with connected(n) as c:
        for _ in range(3):
            assert c.get("/large").body == LARGE
            assert c.get("/a").body == BODY


def t_hits_and_misses():
    if not can():
        raise ktap.Skip("before Linux 6.2: no loads")
    with net.Net() as n, talk.serving(n.server, "tbg0", listen=f"0.0.0.0:{PORT}", **FILES):
        in_turns(n)


def t_programs_removed():
    """The guard reads what is on the interface: a reset, and no other bytes."""
    if not can():
        raise ktap.Skip("before Linux 6.2: no loads")
    with net.Net() as n, talk.serving(n.server, "tbg0", "--late-sockets", "off",
                                      listen=f"0.0.0.0:{PORT}", **FILES) as d:
        with connected(n) as c:
            n.server.strip("tbg0")
            with contextlib.suppress(ConnectionResetError, EOFError):
                assert c.get("/large").body == LARGE
        # a connection of before is never followed
        net.until(lambda: any("attached again" in line for line in d.lines), "not attached again")
        in_turns(n)


def t_sock():
    if not can():
        raise ktap.Skip("before Linux 6.2: no loads")
    d = daemon.Daemon("--tiers", "sock,user", "--sock", "unlisted")
    with d:
        d.write("a", BODY)
        tier = talk.ask(d, "status")["tiers"]["sock"]
        assert tier["on"], tier
        with client.Client(d.address) as c:
            net.until(lambda: c.get("/a").tier == "sock", "sock does not answer")


def t_without_loads_the_user_tier_is_alone_and_probe_shows_why():
    if can():
        raise ktap.Skip("Linux 6.2 or newer: loads do it")
    assert "lockdown=integrity" in str(reads()), reads()
    with daemon.Daemon("--wire", "lo") as d:
        d.write("a", BODY)
        why = talk.ask(d, "status")["tiers"]["wire"]["why"]
        assert "probe" in why, why
        with client.Client(d.address) as c:
            for _ in range(3):
                r = c.get("/a")
                assert (r.tier, r.body) != ("wire", BODY) and r.body == BODY


if __name__ == "__main__":
    ktap.run(globals(), setup=begin)
