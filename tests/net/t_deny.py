#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Clients that lists deny: refused by every tier, from the next request on.

Each test runs on the fast path and without it, and asks for the same bytes.
"""
import json
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import client
import conf
import daemon
import ktap

TEXT = 'root = "{root}"\naccess-log = "{folder}/access.log"\n'
DENIED = "127.0.0.9"


def toboggan(d, *words, bad=False):
    run = subprocess.run([daemon.TOOL, "--control", d.control, "--json", *words], capture_output=True, text=True,
                         check=False, timeout=client.WAIT_S)
    assert (run.returncode != 0) == bad, (run.returncode, run.stdout, run.stderr)
    return json.loads(run.stdout if run.stdout.strip() else run.stderr)


def answer(d, source, path="/f.txt"):
    """The status and whether the connection was closed without one, of a new connection."""
    with ask(d, source) as s:
        return again(s, path)


def ask(d, source):
    s = socket.create_connection(d.address, client.WAIT_S, source_address=(source, 0))
    s.settimeout(client.WAIT_S)
    return s


def again(s, path="/f.txt"):
    """The answer on a connection; b"": it was reset or closed."""
    got = b""
    try:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        while b"\r\n\r\n" not in got or len(got.split(b"\r\n\r\n", 1)[1]) < length(got):
            more = s.recv(65536)
            if not more:
                break
            got += more
    except ConnectionError:
        return b""
    return got


def length(got):
    for line in got.split(b"\r\n\r\n", 1)[0].split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":", 1)[1])
    return 0


def status(got):
    return int(got.split(b" ", 2)[1]) if got else None


def hot(d, s):
    """Until wire answers the connection's requests, where it is on."""
    want = "wire" if d.wire else "user"
    deadline = time.monotonic() + client.WAIT_S
    while True:
        before = toboggan(d, "stats")["tiers"][want]["requests"]
        assert status(again(s)) == 200
        if toboggan(d, "stats")["tiers"][want]["requests"] > before:
            return
        assert time.monotonic() < deadline, toboggan(d, "stats")


def served(test, text=TEXT):
    def run(d):
        d.write("f.txt", b"text\n")
        test(d)
    conf.both(text, run)


def passes(d):
    return {x["name"]: x["count"] for x in toboggan(d, "stats")["passes"]}


def t_a_ban_ends_the_hits_of_a_connection_that_exists():
    def test(d):
        with ask(d, DENIED) as s, ask(d, "127.0.0.10") as other:
            hot(d, s)
            hot(d, other)
            assert toboggan(d, "deny", DENIED)["denied"] == 1
            got = again(s)
            assert status(got) == 403 and b"text\n" not in got, got
            assert status(answer(d, DENIED)) == 403
            assert status(again(other)) == 200
            if d.wire:
                assert passes(d).get("DENIED"), passes(d)
            assert toboggan(d, "stats")["tiers"]["user"]["denied"] == 2
            assert toboggan(d, "deny", "--remove", DENIED)["removed"] == 1
            assert status(answer(d, DENIED)) == 200
    served(test)


def t_a_ban_for_a_time_is_over_after_that():
    def test(d):
        toboggan(d, "deny", DENIED, "--for", "1h")
        listed = toboggan(d, "deny")
        assert listed["entries"] == 1 and 0 < listed["clients"][0]["left_s"] <= 3600, listed
        assert status(answer(d, DENIED)) == 403
        toboggan(d, "deny", DENIED, "--for", "1s")
        deadline = time.monotonic() + client.WAIT_S
        while toboggan(d, "deny")["entries"]:
            assert time.monotonic() < deadline, toboggan(d, "deny")
            time.sleep(0.05)
        assert status(answer(d, DENIED)) == 200
    served(test)


def t_the_longest_prefix_decides():
    def test(d):
        assert status(answer(d, "127.0.0.5")) == 403
        assert status(answer(d, "127.0.0.9")) == 200
        assert status(answer(d, "127.0.1.1")) == 200
        toboggan(d, "deny", "127.0.0.0/8")
        assert status(answer(d, "127.0.1.1")) == 403
        assert status(answer(d, "127.0.0.9")) == 200
    served(test, TEXT + 'deny = {"127.0.0.0/29", "2001:db8::/32"}\nallow = "127.0.0.8/29"\n')


def t_allow_alone_denies_all_others():
    def test(d):
        assert status(answer(d, "127.0.0.9")) == 200
        assert status(answer(d, "127.0.0.5")) == 403
        toboggan(d, "deny", "127.0.0.9")
        assert status(answer(d, "127.0.0.9")) == 403
    served(test, TEXT + 'allow = "127.0.0.8/29"\n')


def t_who_is_dropped_gets_no_byte():
    def test(d):
        with ask(d, DENIED) as s:
            hot(d, s)
            toboggan(d, "deny", DENIED)
            assert again(s) == b""
        assert answer(d, DENIED) == b""
        assert status(answer(d, "127.0.0.10")) == 200
    served(test, TEXT + "deny-answer = drop\n")


def t_a_reload_takes_the_lists_of_the_file_and_keeps_those_of_commands():
    def test(d):
        assert status(answer(d, "127.0.0.5")) == 403
        toboggan(d, "deny", "127.0.0.7")
        says = toboggan(d, "deny", "--remove", "127.0.0.5", bad=True)
        assert "configuration" in json.dumps(says), says
        d.reconfigure(TEXT + 'deny = "127.0.0.6"\n')
        got = {x: status(answer(d, f"127.0.0.{x}")) for x in (5, 6, 7, 8)}
        assert got == {5: 200, 6: 403, 7: 403, 8: 200}, got
        d.reconfigure(TEXT + "deny-answer = drop\n")
        assert status(answer(d, "127.0.0.6")) == 200
        assert answer(d, "127.0.0.7") == b""
    served(test, TEXT + 'deny = "127.0.0.5"\n')


def t_what_is_no_address_is_refused_and_changes_nothing():
    def test(d):
        for bad in ("nobody", "127.0.0.1/33", "127.0.0.1/8", "::/129", ""):
            says = toboggan(d, "deny", DENIED, bad, bad=True)
            assert "expected" in json.dumps(says), says
        for bad in ("0", "-1s", "soon"):
            toboggan(d, "deny", DENIED, f"--for={bad}", bad=True)
        assert toboggan(d, "deny")["entries"] == 0
        assert "not denied" in json.dumps(toboggan(d, "deny", "--remove", DENIED, bad=True))
    served(test)


def t_the_log_has_who_was_refused():
    def test(d):
        toboggan(d, "deny", DENIED)
        assert status(answer(d, DENIED)) == 403
        deadline = time.monotonic() + client.WAIT_S
        while True:
            with open(os.path.join(d.folder, "access.log"), encoding="ascii") as f:
                lines = f.read().splitlines()
            if any(x.startswith(DENIED + " ") and " 403 " in x for x in lines):
                return
            assert time.monotonic() < deadline, lines
            time.sleep(0.02)
    served(test)


if __name__ == "__main__":
    ktap.run(globals())
