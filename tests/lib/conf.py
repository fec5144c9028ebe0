# SPDX-License-Identifier: GPL-2.0
"""A daemon with a configuration file.

    with conf.Conf({"/x/": ...}, text) as d:    # a daemon.Daemon
        d.reconfigure(text)                     # SIGHUP, and wait for its line

The text may contain {root} for d.root and {folder} for the folder of all files. With
wire=True the daemon has wire, or a Skip gives the reason why not.
"""
from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Iterable

import client
import daemon
import ktap


class Conf(daemon.Daemon):
    def __init__(self, text: str, *options: str, wire: bool = False,
                 listen: Iterable[str] = ("127.0.0.1:0",)) -> None:
        if wire and os.geteuid():
            raise ktap.Skip("not root: wire cannot be loaded")
        super().__init__("--wire", "lo" if wire else "off", *options, listen=listen)
        self.wire = wire
        self.path = os.path.join(self.folder, "toboggan.conf")
        self.save(text)

    def save(self, text: str) -> None:
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text.replace("{root}", self.root).replace("{folder}", self.folder))

    def command(self) -> list[str]:
        words = self.prefix + [daemon.BINARY, "--config", self.path, "--control", self.control]
        with open(self.path, encoding="utf-8") as f:
            text = f.read()
        if self.body_max and "body-max" not in text and "--body-max" not in self.options and \
                any(x in text for x in ("upstream", "cgi", "module")):
            words += ["--body-max", self.body_max]
        for where in self.listen:
            words += ["--listen", where]
        return words + self.options

    def start(self) -> Conf:
        super().start()
        if self.wire and "tiers wire," not in self.ready:
            self.stop()
            raise ktap.Skip(self.why_no_wire())
        return self

    def hup(self, texts: tuple[str, str]) -> Any:
        """SIGHUP; returns the first new line that contains one of texts."""
        seen = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + client.WAIT_S
        while True:
            for line in self.lines[seen:]:
                if any(x in line for x in texts):
                    return line
            assert time.monotonic() < deadline, f"never logged {texts}: {self.lines[seen:]}"
            assert self.process.poll() is None, self.lines
            time.sleep(0.005)

    def reconfigure(self, text: str) -> Any:
        self.save(text)
        line = self.hup((": reloaded", "reload failed"))
        assert ": reloaded" in line, line
        return line


def both(text: str, test: Callable[..., None], *options: str) -> None:
    """Run Run test(daemon) with the fast path off and on; a Skip if it can only be off."""
    with Conf(text, *options) as d:
        test(d)
    with Conf(text, *options, wire=True) as d:
        test(d)


class Host(client.Client):
    """A client that sends requests for one host."""

    def __init__(self, address: tuple, host: str, **more: Any) -> None:
        super().__init__(address, **more)
        self.host = host

    def ask(self, method: str, path: str, *fields: str, version: str = "1.1") -> client.Response:
        lines = [f"{method} {path} HTTP/{version}"]
        if self.host is not None:
            lines.append(f"Host: {self.host}")
        self.send("\r\n".join([*lines, *fields, "", ""]).encode("latin-1"))
        return self.response(method)
