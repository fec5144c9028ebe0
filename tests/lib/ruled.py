# SPDX-License-Identifier: GPL-2.0
"""Rules of tests/lib/rules.py as tests, each with the user tier alone and with wire before it.

    table = ruled.Table(globals())          # where its tests go
    table.section = "max_age"
    table.rule("zero", origin(CC + "max-age=0"), origin())      # t_max_age_zero
    ktap.run(globals(), setup=table.begin, teardown=table.end)
"""
from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, Iterable

import daemon
import ktap
import net
import rules
import talk
from origin import Client, Origin
from rules import CC, Step, hit, origin, stamp

# The beginning of many rules.
HOUR = CC + "max-age=3600"
OLD = stamp("Last-Modified", -100000)
STALE = [CC + "max-age=100", "Age: 200", 'ETag: "a"']
FOO = ["Vary: Foo"]
AT = "Sun, 06 Nov 1994 08:49:37 GMT"


class From(Client):
    """A connection that is opened in a namespace."""

    def __init__(self, where: net.Namespace,
                 address: tuple) -> None:   # pylint: disable=super-init-not-called
        self.s, self.got = where.connect(address), b""


class Table:
    def __init__(self, tests: dict[str, Any]) -> None:
        self.tests, self.section = tests, ""
        self.net = self.origin = None
        self.allows: Any = None     # everything that a location may allow and does not by default
        self.daemons, self.asked = [], {}       # asked: by the name of the tier
        self.at_wire, self.wire_off = 0, ""

    def begin(self) -> None:
        try:
            self.net = net.Net(links=1)
        except ktap.Skip as why:
            self.wire_off = str(why)
            ktap.note(f"without wire: {why}")
        # pylint: disable=consider-using-with
        self.allows = tempfile.NamedTemporaryFile("w", suffix=".conf")
        self.allows.write("client-stale = on\nstore-cookies = on\n")
        self.allows.flush()
        os.chmod(self.allows.name, 0o644)
        options = ("--config", self.allows.name, "--workers", "2")
        n = self.net
        with n.server.inside() if n else contextlib.nullcontext():
            self.origin = Origin()
            u = daemon.Daemon("--upstream", self.origin.url, *daemon.USER, *options).start()
            self.daemons.append(u)
            self.asked["user"] = (n and n.server, u.address)
            if not n:
                return
            d = daemon.Daemon("--upstream", self.origin.url, "--wire", "tbg0,lo", *options,
                              listen="0.0.0.0:8080").start()
            self.daemons.append(d)
        tier = talk.ask(d, "status")["tiers"]["wire"]
        if tier["on"]:
            self.asked["wire"] = (n.client, (n.links[0].server4, 8080))
        else:
            self.wire_off = daemon.why_off("wire", tier["why"])
            ktap.note(self.wire_off)

    def end(self) -> None:
        for d in self.daemons:
            assert d.stop() == 0, d.lines
        self.origin.close()
        self.allows.close()
        if self.net:
            self.net.close()

    def follow(self, steps: Iterable[Step]) -> None:
        """Take the steps with each tier."""
        for tier, (where, address) in self.asked.items():
            def connect(to: tuple, method: str, path: str, *fields: str, where: Any = where,
                        **more: Any) -> Any:
                with From(where, to) if where else Client(to) as c:
                    r = c.request(method, path, *fields, **more)
                    while r.status < 200:
                        r = c.answer(method)
                    return r
            try:
                answers = rules.follow(self.origin, address, steps, connect)
            except AssertionError as why:
                raise AssertionError(f"{tier}: {why}") from None
            self.at_wire += sum("detail=wire" in r.cache for r in answers)

    def rule(self, name: str, *steps: Step) -> None:
        """A test of its own."""
        def test() -> None:
            self.follow(steps)
        test.__name__ = f"t_{self.section}_{name}"
        assert test.__name__ not in self.tests, test.__name__
        self.tests[test.__name__] = test

    def fresh(self, name: str, *fields: str, **more: Any) -> None:
        """A response with these fields answers the next request."""
        self.rule(name, origin(*fields, **more), hit())

    def spent(self, name: str, *fields: str, **more: Any) -> None:
        """A response with these fields does not answer the next request."""
        self.rule(name, origin(*fields, **more), origin(**more))

    def wire_has_answered(self, least: int) -> None:
        if "wire" not in self.asked:
            raise ktap.Skip(self.wire_off)
        assert self.at_wire >= least, f"{self.at_wire} answers of the kernel"
