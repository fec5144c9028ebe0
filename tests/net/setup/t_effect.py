#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A setting that would be ignored, since nothing in reach of its scope has a use for
it, is refused with its line; one that some scope below can use is not.
"""
import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap

HTTP = 'upstream = "http://127.0.0.1:1"'
FASTCGI = 'upstream u { server = "unix:/run/none.sock" protocol = fastcgi %s }\nroot = "/tmp"\n'
# a scope: what it says of itself, and what answers in it
ANSWERS = {
    "files": ("", 'root = "/tmp"'),
    "http": ("", HTTP),
    "fastcgi": (FASTCGI % "", "upstream = u"),
    "cgi": ("", 'cgi = "/tmp"'),
    "module": ("", 'module = "{module}"'),
}
FILES = ["files"]
BEHIND = ["http", "fastcgi", "cgi", "module"]
NEEDS = (
    ("index = i.html", FILES), ("autoindex = on", FILES), ("precompressed = off", FILES),
    ("codings = off", FILES), ("compress = gzip", FILES), ("compress-min = 1K", FILES),
    ("store-cookies = on", BEHIND), ("heuristic-freshness = off", BEHIND),
    ("client-stale = on", BEHIND), ("body-buffer = 1K", BEHIND),
    ('body-folder = "/tmp"', BEHIND), ("odd-field-names = pass", ["http"]),
    ("cgi-time = 1s", ["cgi"]), ("cgi-cpu = 1s", ["cgi"]), ("cgi-memory = 1G", ["cgi"]),
    ("cgi-output = 1M", ["cgi"]), ("cgi-at-once = 2", ["cgi"]), ("cgi-processes = 9", ["cgi"]),
    ("cgi-user = www-data", ["cgi"]), ('cgi-chroot = "/tmp"', ["cgi"]),
    ("module-workers = 2", ["module"]), ("module-time = 1s", ["module"]),
    ("module-memory = 1G", ["module"]), ("module-requests = 9", ["module"]),
    ("expires = 1d", FILES + BEHIND), ("cache-control = public", FILES + BEHIND),
    ('headers = {"X-A: b"}', FILES + BEHIND), ("body-max = 1K", FILES + BEHIND),
    ("cookies = pass", FILES + BEHIND), ('trusted-proxies = "127.0.0.1"', FILES + BEHIND),
    ('error-page = {"404 /e"}', FILES + BEHIND),
)
# outside of all sections alone: good with one of these
TOP = (
    ("types = {\"text/x x\"}", FILES), ("media-types = \"{types}\"", FILES),
    ("body-total = 1M", BEHIND),
    ("connect-timeout = 1s", BEHIND), ("first-byte-timeout = 1s", BEHIND),
    ("upstream-idle-timeout = 1s", BEHIND), ("upstream-keep = 1s", BEHIND),
    ("balance = least", ["http", "fastcgi"]),
)
# with what beside it, what then is ignored
BESIDE = (
    ("", "health-interval = 1s"), ("", "limit-burst = 9"), ("", "client-prefix4 = 24"),
    ("", "client-prefix6 = 48"), ("", "sock = unlisted"),
)
BESIDE_GOOD = (
    ("health-path = /h\n" + HTTP, "health-interval = 1s"),
    ("late-sockets = off", "births = kernel"), ("", "give-back = 9"),
    ("limit-requests = off", "limit-burst = 9"),
    ("limit-heads = 9", "client-prefix4 = 24"), ("limit-connections = 9", "client-prefix6 = 48"),
    ('tiers = "user"', "sock = unlisted"), ("", "births = auto"), ("", "limit-burst = 0"),
)
IN_UPSTREAM = (     # protocol and so on, the setting, whether it has an effect
    ("", 'script-root = "/x"', False), ("", "script-index = i", False),
    ("", "script-split = .x", False), ("", "script-params = {\"A=b\"}", False),
    ("", 'script-filename = "/x"', False), ("", "health-interval = 1s", False),
    ("health-path = /", "health-interval = 1s", True),
    ("protocol = fastcgi", 'script-root = "/x"', True),
    ("protocol = fastcgi", "script-index = i", True),
    ("protocol = fastcgi", "script-split = .x", True),
    ("protocol = fastcgi", "script-params = {\"A=b\"}", True),
    ('protocol = fastcgi script-filename = "/x"', "script-index = i", False),
    ('protocol = fastcgi script-filename = "/x"', "script-split = .x", False),
    ("", "connect-timeout = 1s", True), ("", "balance = least", True),
)


@contextlib.contextmanager
def checks():
    """A function for --check of a text, which tells (line, name) of what is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path, types = (os.path.join(folder, x) for x in ("x.conf", "types"))
        with open(types, "w", encoding="utf-8") as f:
            f.write("text/x x\n")

        def check(text):
            text = text.replace("{module}", os.path.join(ktap.BUILD, "modules/hello.so"))
            text = text.replace("{types}", types)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            r = subprocess.run([daemon.BINARY, "--check", path, "--listen", "127.0.0.1:0"],
                               text=True, capture_output=True, timeout=client.WAIT_S, check=False)
            if not r.returncode:
                return None
            at = re.match(rf"toboggand: {re.escape(path)}:(\d+): ([a-z0-9-]+)\b.*: no effect, "
                          r".*; expected .*\n$", r.stderr.replace(": no effect", " x: no effect"))
            assert r.returncode == 2 and at, (text, r)
            return int(at[1]), at[2]
        yield check


def t_settings_that_nothing_in_their_scope_can_use_are_refused():
    """In one of four scopes each, and not where another scope below can."""
    turn = itertools.count()
    with checks() as check:
        for (setting, good), (what, (top, own)) in itertools.product(NEEDS, ANSWERS.items()):
            name, nr = setting.split()[0], next(turn)
            text, line = ((f"{top}{own}\n{setting}", 2),
                          (f"{top}host a {{\n{own}\n{setting}\n}}", 3),
                          (f'{top}host a {{ location "/" {{\n{own}\n{setting}\n}} }}', 3),
                          (f"{top}{setting}\nhost a {{ {own} }}", 1))[nr % 4]
            refused = None if what in good else (line + top.count("\n"), name)
            assert check(text) == refused, (text, refused)
            above, other = ANSWERS[good[0]]
            if refused and not (top and above):
                text = (f"{top}{above}{setting}\nhost a {{ {own} }}\nhost b {{ {other} }}",
                        f'{top}{above}host a {{\n{setting}\n{own}\n'
                        f'location "/x" {{ {other} }} }}')[nr % 2]
                assert check(text) is None, text


def t_settings_of_all_that_nothing_can_use_are_refused():
    with checks() as check:
        for setting, good in TOP:
            name = setting.split()[0]
            for what, (top, own) in ANSWERS.items():
                text = f"{setting}\n{top}host a {{ {own} }}"
                assert check(text) == (None if what in good else (1, name)), text
        for beside, setting in BESIDE:
            name = setting.split()[0]
            assert check(f'{setting}\nroot = "/tmp"\n{beside}') == (1, name), setting
        for beside, setting in BESIDE_GOOD:
            root = "" if HTTP in beside else 'root = "/tmp"'
            assert check(f"{setting}\n{root}\n{beside}") is None, (beside, setting)


def t_settings_that_an_upstream_cannot_use_are_refused():
    with checks() as check:
        for beside, setting, good in IN_UPSTREAM:
            text = f'root = "/tmp"\nupstream u {{ server = "127.0.0.1:1" {beside}\n{setting}\n}}'
            assert check(text) == (None if good else (3, setting.split()[0])), text


def t_the_command_line_is_held_to_it_too():
    r = subprocess.run([daemon.BINARY, "--root", "/tmp", "--listen", "127.0.0.1:0", "--tiers",
                        "user",
                        "--balance", "least"], text=True, capture_output=True,
                       timeout=client.WAIT_S, check=False)
    assert r.returncode == 2 and r.stderr.startswith("toboggand: --balance: no effect, "), r


if __name__ == "__main__":
    ktap.run(globals())
