# SPDX-License-Identifier: GPL-2.0
"""A daemon with modules: the examples, and misbehaving ones.

    with modules.Modules(text=TEXT) as d:       # {folder}/hello.so, {folder}/bad.so, …
"""
from __future__ import annotations

import os
import shutil
from typing import Any

import conf
import ktap

TEXT = """
root = "{root}"
location "/hello" { module = {"{folder}/hello.so", "60"} }
location "/echo" { module = "{folder}/echo.so" }
location "/bad" {
    module = "{folder}/bad.so"
    module-workers = "1"
    module-time = "2s"
    module-memory = "256M"
    %s
}
location "/unfit" { module = {"{folder}/bad.so", MANY "unfit"} }
location "/future" { module = "{folder}/future.so" }
location "/mute" { module = "{folder}/mute.so" }
"""


class Modules(conf.Conf):
    """settings: more of the location of bad.so."""

    def __init__(self, settings: str = "", text: str = TEXT, **more: Any) -> None:
        super().__init__(text.replace("%s", settings).replace("MANY", '"another",' * 99),
                         "--workers", "1", **more)
        for name in ("modules/hello.so", "modules/echo.so", "tests/net/bad.so",
                     "tests/net/future.so",
                     "tests/net/mute.so", "tests/net/loops.so", "tests/net/lasts.so"):
            shutil.copy(os.path.join(ktap.BUILD, name), self.folder)
