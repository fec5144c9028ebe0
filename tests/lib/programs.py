# SPDX-License-Identifier: GPL-2.0
"""A daemon with CGI programs that tests write.

    d = programs.Programs('cgi-time = "5s"').start()
    ask(d.address, "GET", d.program("printf 'A: b\\n\\ntext'"))
"""
from __future__ import annotations

import itertools
import os

import client
import conf

TEXT = """
root = "{root}"
location "/cgi-bin/" { cgi = "{folder}/programs" %s }
"""
OK = "printf 'Content-Type: text/plain\\n\\n'\n"
_names = itertools.count()


class Programs(conf.Conf):
    """A daemon with a folder of programs, and one that they may write to."""

    def __init__(self, settings: str = "", text: str = TEXT, *options: str,
                 wire: bool = False) -> None:
        super().__init__(text % settings, "--workers", "1", *options, wire=wire)
        self.programs = os.path.join(self.folder, "programs")
        self.notes = os.path.join(self.folder, "notes")
        os.mkdir(self.programs)
        os.mkdir(self.notes)
        os.chmod(self.programs, 0o755)
        os.chmod(self.notes, 0o777)

    def program(self, script: str, name: str | None = None, mode: int = 0o755) -> str:
        """A shell script; its path below the location."""
        name = name or f"p{next(_names)}"
        path = os.path.join(self.programs, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + script.replace("NOTES", self.notes))
        os.chmod(path, mode)
        return "/cgi-bin/" + name

    def note(self, name: str) -> str:
        """The content that a program writes there; waits for it."""
        path = os.path.join(self.notes, name)
        client.until(lambda: os.path.exists(path) and os.path.getsize(path), f"no {name}")
        with open(path, encoding="utf-8") as f:
            return f.read()


def redirect(path: str, before: str = "") -> str:
    """A script that redirects locally to that path (RFC 3875 6.2.2)."""
    return before + f"printf 'Location: {path}\\n\\n'"
