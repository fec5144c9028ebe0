#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Interfaces that go and come back, have several names, or are many."""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
BODY = b"by wire, where there is an interface\n"


@contextlib.contextmanager
def serving(where, wire):
    with where.inside():
        d = daemon.Daemon("--wire", wire, "--workers", "1", listen=f"0.0.0.0:{PORT}").start()
    try:
        tier = talk.ask(d, "status")["tiers"]["wire"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("wire", tier["why"]))
        d.write("a", BODY)
        yield d
    finally:
        d.stop()


def ifaces(d):
    """{name: why it is off, or ""}"""
    listed = talk.ask(d, "status")["interfaces"]
    ret = {i["name"]: i.get("why", "") for i in listed}
    assert len(ret) == len(listed), listed
    return ret


def hit(n, link):
    def by_wire():
        with talk.Connection(n.client.connect((link.server4, PORT))) as c:
            r = c.get("/a")
        assert r.body == BODY
        return r.tier == "wire"

    net.until(by_wire, "wire does not answer")


def t_another_name_is_no_other_interface():
    with net.Net(links=2) as n:
        n.server.run("ip", "link", "property", "add", "dev", "tbg0", "altname", "enalt0")
        with serving(n.server, "enalt0,tbg1,tbg0") as d:
            both = {"tbg0": "", "tbg1": ""}
            assert ifaces(d) == both
            # so that names are looked at again
            n.server.run("ip", "link", "del", "tbg1")
            net.until(lambda: ifaces(d) != both, "it is not missed")
            net.Link(n, 1)
            net.until(lambda: ifaces(d) == both, "it is not attached again")
            hit(n, n.links[0])


if __name__ == "__main__":
    ktap.run(globals())
