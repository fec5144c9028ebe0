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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import talk

TEXT = 'root = "{root}"\naccess-log = "{folder}/access.log"\n'
DENIED = "127.0.0.9"


def toboggan(d, *words, bad=False):
    run = subprocess.run([talk.TOOL, "--control", d.control, "--json", *words], capture_output=True,
                         text=True,
                         check=False, timeout=client.WAIT_S)
    assert (run.returncode != 0) == bad, (run.returncode, run.stdout, run.stderr)
    return json.loads(run.stdout if run.stdout.strip() else run.stderr)


def ask(d, source):
    return client.Client(d.address, source=source)


def again(c):
    """The answer on a connection; None: it was reset or closed, without a byte."""
    try:
        return c.get("/f.txt")
    except (ConnectionError, EOFError):
        assert not c.got, c.got
        return None


def status(d, source):
    """The status of an answer on a new connection from that address."""
    with ask(d, source) as c:
        r = again(c)
        return r and r.status


def hot(d, c):
    """Until wire answers the connection's requests, where it is on."""
    c.hot("/f.txt", "wire" if d.wire else "user")


def served(test, text=TEXT):
    def run(d):
        d.write("f.txt", b"text\n")
        test(d)
    conf.both(text, run)


def t_a_ban_ends_the_hits_of_a_connection_that_exists():
    def test(d):
        with ask(d, DENIED) as s, ask(d, "127.0.0.10") as other:
            hot(d, s)
            hot(d, other)
            assert toboggan(d, "deny", DENIED)["denied"] == 1
            got = again(s)
            assert got.status == 403 and b"text\n" not in got.body, got
            assert status(d, DENIED) == 403
            assert again(other).status == 200
            if d.wire:
                assert talk.counts(d).get("DENIED"), talk.counts(d)
            assert talk.ask(d, "stats")["tiers"]["user"]["denied"] == 2
            assert toboggan(d, "deny", "--remove", DENIED)["removed"] == 1
            assert status(d, DENIED) == 200
    served(test)


def t_a_ban_ends_the_hits_of_sock():
    with conf.Conf(TEXT, "--tiers", "sock,user", "--sock", "unlisted") as d:
        tier = talk.ask(d, "status")["tiers"]["sock"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("sock", tier["why"]))
        d.write("f.txt", b"text\n")
        with ask(d, DENIED) as s, ask(d, "127.0.0.10") as other:
            s.hot("/f.txt", "sock")
            other.hot("/f.txt", "sock")
            toboggan(d, "deny", DENIED)
            assert again(s).status == 403 and status(d, DENIED) == 403
            assert talk.counts(d).get("DENIED"), talk.counts(d)
            assert again(other).status == 200
            toboggan(d, "deny", "--remove", DENIED)
            with ask(d, DENIED) as s2:
                s2.hot("/f.txt", "sock")


def t_a_ban_for_a_time_is_over_after_that():
    def test(d):
        toboggan(d, "deny", DENIED, "--for", "1h")
        listed = toboggan(d, "deny")
        assert listed["entries"] == 1 and 0 < listed["clients"][0]["left_s"] <= 3600, listed
        assert status(d, DENIED) == 403
        toboggan(d, "deny", DENIED, "--for", "1s")
        client.until(lambda: not toboggan(d, "deny")["entries"], "it is never over")
        assert status(d, DENIED) == 200
    served(test)


def t_bans_that_begin_one_after_another_end_so():
    """Each at its own time, not with others at the next full second of the daemon."""
    def test(d):
        sources = [f"127.0.0.{x}" for x in range(20, 25)]
        for source in sources:
            toboggan(d, "deny", source, "--for", "2s")
            time.sleep(0.2)
        left = set()

        def over():
            left.add(sum(status(d, x) == 403 for x in sources))
            return 0 in left
        client.until(over, "they are never over")
        assert len(left & {1, 2, 3, 4}) >= 3, left
    served(test)


def t_the_longest_prefix_decides():
    def test(d):
        assert status(d, "127.0.0.5") == 403
        assert status(d, "127.0.0.9") == 200
        assert status(d, "127.0.1.1") == 200
        toboggan(d, "deny", "127.0.0.0/8")
        assert status(d, "127.0.1.1") == 403
        assert status(d, "127.0.0.9") == 200
    served(test, TEXT + 'deny = {"127.0.0.0/29", "2001:db8::/32"}\nallow = "127.0.0.8/29"\n')


def t_allow_alone_denies_all_others():
    def test(d):
        assert status(d, "127.0.0.9") == 200
        assert status(d, "127.0.0.5") == 403
        toboggan(d, "deny", "127.0.0.9")
        assert status(d, "127.0.0.9") == 403
    served(test, TEXT + 'allow = "127.0.0.8/29"\n')


BOTH = (("allow = all", 200, 200),
        ('allow = {"all", "127.0.0.9"}', 200, 200),
        ('allow = {"0.0.0.0/0", "::/0"}', 200, 200),
        ('allow = "0.0.0.0/0"', 200, 403),
        ('allow = "::/0"', 403, 200),
        ('allow = "::/1"', 403, 200),
        ('allow = "2000::/3"', 403, 403),
        ("deny = all", 403, 403),
        ('deny = "::/0"', 200, 403),
        ('deny = "::/1"', 200, 403),
        ('deny = "::/80"', 200, 403),
        ('deny = "0.0.0.0/0"', 403, 200),
        ('deny = {"::/8", "127.0.0.0/8"}', 403, 403),
        ('deny = all allow = "::/1"', 403, 200),
        ('deny = all allow = "::/0"', 403, 200),
        ('deny = {"all", "::/8"} allow = "127.0.0.1"', 200, 403),
        ('deny = "::/1" allow = all', 200, 403),
        ('deny = "192.0.2.1" allow = all', 200, 200))


def families(d, where, want, path, times):
    for (host, port), status_want in zip(d.addresses, want):
        with client.Client((host, port)) as c:
            for _ in range(times):
                got = c.get(path).status
                assert got == status_want, f"{where}: {host}: {got}, not {status_want}"
                if got != 200:
                    break


def t_prefixes_of_one_family_are_not_for_the_other():
    """Also in a location, and whichever tier answers."""
    for on in (False, True):
        with conf.Conf(TEXT, wire=on, listen=("127.0.0.1:0", "[::1]:0")) as d:
            for path in ("/f.txt", "/in/f.txt"):
                d.write(path[1:], b"text\n")
            for says, *want in BOTH:
                for text, path in ((f"{says}\n", "/f.txt"),
                                   (f'location "/in/" {{ {says} }}\n', "/in/f.txt")):
                    d.reconfigure(TEXT + text)
                    families(d, text, want, path, 1)
                    families(d, text, want, path, 20)


def t_a_command_that_denies_all_is_for_both_families():
    """Whatever the file says of IPv6 alone; and a prefix that is for neither is refused."""
    for on in (False, True):
        with conf.Conf(TEXT + 'deny = "::/8"\n', wire=on,
                       listen=("127.0.0.1:0", "[::1]:0")) as d:
            d.write("f.txt", b"text\n")
            shown = {x["address"]: x["deny"] for x in toboggan(d, "deny")["clients"]}
            assert shown == {"::/8": True, "0.0.0.0/0": False}, shown
            families(d, "file", (200, 403), "/f.txt", 20)
            toboggan(d, "deny", "all")
            families(d, "all", (403, 403), "/f.txt", 1)
            d.reconfigure(TEXT + 'deny = "::/1"\n')
            families(d, "all, and a reload", (403, 403), "/f.txt", 1)
            toboggan(d, "deny", "--remove", "all")
            families(d, "removed", (200, 403), "/f.txt", 20)
            for bad in ("::/0", "::/1", "::/80"):
                says = toboggan(d, "deny", bad, bad=True)
                assert "IPv4" in json.dumps(says) and "2000::/3" in json.dumps(says), says
            toboggan(d, "deny", "2000::/3")


def t_who_is_dropped_gets_no_byte():
    def test(d):
        with ask(d, DENIED) as s:
            hot(d, s)
            toboggan(d, "deny", DENIED)
            assert again(s) is None
        assert status(d, DENIED) is None
        assert status(d, "127.0.0.10") == 200
    served(test, TEXT + "deny-answer = drop\n")


def t_a_reload_takes_the_lists_of_the_file_and_keeps_those_of_commands():
    def test(d):
        assert status(d, "127.0.0.5") == 403
        toboggan(d, "deny", "127.0.0.7")
        says = toboggan(d, "deny", "--remove", "127.0.0.5", bad=True)
        assert "configuration" in json.dumps(says), says
        d.reconfigure(TEXT + 'deny = "127.0.0.6"\n')
        got = {x: status(d, f"127.0.0.{x}") for x in (5, 6, 7, 8)}
        assert got == {5: 200, 6: 403, 7: 403, 8: 200}, got
        d.reconfigure(TEXT + "deny-answer = drop\n")
        assert status(d, "127.0.0.6") == 200
        assert status(d, "127.0.0.7") is None
    served(test, TEXT + 'deny = "127.0.0.5"\n')


def t_what_is_no_address_is_refused_and_changes_nothing():
    def test(d):
        for bad in ("nobody", "127.0.0.1/33", "127.0.0.1/8", "::/129", ""):
            says = toboggan(d, "deny", DENIED, bad, bad=True)
            assert says["error"].startswith(f"deny: {bad}: expected an address"), says
        for bad in ("0", "-1s", "soon"):
            says = toboggan(d, "deny", DENIED, f"--for={bad}", bad=True)
            assert says["error"].startswith(f"deny: {bad}: expected a time"), says
        assert toboggan(d, "deny")["entries"] == 0
        assert "not denied" in json.dumps(toboggan(d, "deny", "--remove", DENIED, bad=True))
    served(test)


def answer_of(d, data):
    """The answer to one line on the control socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(client.WAIT_S)
        s.connect(d.control)
        s.sendall(json.dumps(data).encode() + b"\n")
        with s.makefile("rb") as f:
            return json.loads(f.readline())


def t_a_field_of_the_wrong_type_is_named():
    """It is not ignored: nobody is to believe that a client is denied."""
    with conf.Conf(TEXT) as d:
        for field, data in (
                ("addresses", {"cmd": "deny", "addresses": "10.0.0.1"}),
                ("addresses", {"cmd": "deny", "addresses": None}),
                ("for", {"cmd": "deny", "addresses": ["10.0.0.1"], "for": 0}),
                ("remove", {"cmd": "deny", "addresses": ["10.0.0.1"], "remove": 1}),
                ("client", {"cmd": "why", "url": "/", "client": 7}),
                ("accept_encoding", {"cmd": "why", "url": "/", "accept_encoding": ["gzip"]}),
                ("all", {"cmd": "purge", "all": "yes", "url": "/"}),
                ("tag", {"cmd": "purge", "tag": 1, "url": "/"}),
                ("path_encoded", {"cmd": "warm", "path": "/", "path_encoded": 1}),
                ("limit", {"cmd": "objects", "limit": "1"})):
            answer = answer_of(d, data)
            assert answer["ok"] is False, (data, answer)
            assert answer["error"].startswith(f"{field}: ") and "give " in answer["error"], answer
        assert toboggan(d, "deny")["entries"] == 0


def t_the_log_has_who_was_refused():
    def test(d):
        toboggan(d, "deny", DENIED)
        assert status(d, DENIED) == 403

        def logged():
            with open(os.path.join(d.folder, "access.log"), encoding="ascii") as f:
                return any(x.startswith(DENIED + " ") and " 403 " in x for x in f)
        client.until(logged, "not logged")
    served(test)


if __name__ == "__main__":
    ktap.run(globals())
