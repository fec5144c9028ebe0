#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Lists of clients of a host, a location or a listener, beside those of the daemon.

Each test runs on the fast path and without it, and asks for the same bytes.
"""
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import origin
import talk

HEAD = 'root = "{root}"\naccess-log = "{folder}/access.log"\n'
INSIDE, OUTSIDE = "127.0.0.9", "127.0.1.1"
PLACES = HEAD + '''
location "/" {}
location "/inner/" { allow = "127.0.0.0/24" }
location "/inner/open/" { allow = "all" }
location "=/inner/most.txt" { deny = {"127.0.0.8/30", "::1"} allow = "127.0.0.10" }
'''
HOSTS = HEAD + '''
host "all.test" { default = on }
host "some.test" {
	deny = "127.0.1.0/24"
	location "/free/" { deny = "127.0.0.9" }
}
'''
FILES = ("f.txt", "inner/f.txt", "inner/open/f.txt", "inner/most.txt", "free/f.txt")


def write(d):
    for name in FILES:
        d.write(name, name.encode())


def ask(d, source, path, host="all.test", times=1, address=None):
    """The status of the last of this many answers to a client from there; None: dropped."""
    with conf.Host(address or d.address, host, source=source) as c:
        for _ in range(times):
            try:
                r = c.get(path)
            except (ConnectionError, EOFError):
                return None
            assert r.status != 200 or r.body == path[1:].encode(), r
            if r.status != 200:
                assert path[1:].encode() not in r.body, r
                break               # and the connection is closed
        return r.status


def table(d, rows, host="all.test"):
    """Each path once cold and then often: neither makes a difference."""
    for times in (1, 20):
        for path, inside, outside in rows:
            for source, want in ((INSIDE, inside), (OUTSIDE, outside)):
                got = ask(d, source, path, host, times)
                assert got == want, f"{host}{path} of {source}, {times} times: {got}"


def served(text, test, *options):
    def run(d):
        write(d)
        test(d)
    conf.both(text, run, *options)


def t_locations_have_lists_of_their_own():
    """The innermost scope that says any has all of them; others' are not asked."""
    def test(d):
        table(d, (("/f.txt", 200, 200), ("/inner/f.txt", 200, 403),
                  ("/inner/open/f.txt", 200, 200), ("/inner/most.txt", 403, 200)))
        assert ask(d, "127.0.0.10", "/inner/most.txt") == 200
        if d.wire:
            counts = talk.counts(d)
            assert counts.get("LISTED") and counts.get("HIT_WIRE"), counts
    served(PLACES, test)


def t_hosts_have_lists_of_their_own():
    def test(d):
        table(d, (("/f.txt", 200, 200), ("/free/f.txt", 200, 200)))
        table(d, (("/f.txt", 200, 403), ("/free/f.txt", 403, 200)), "some.test")
    served(HOSTS, test)


def t_lists_of_the_daemon_hold_everywhere():
    """They deny clients even if a location allows them."""
    def test(d):
        table(d, (("/f.txt", 200, 403), ("/inner/f.txt", 200, 403),
                  ("/inner/open/f.txt", 200, 403)))
        talk.ask(d, "deny", INSIDE)
        table(d, (("/inner/open/f.txt", 403, 403),))
    served('deny = "127.0.1.0/24"\n' + PLACES, test)


def t_a_list_that_a_reload_brings_ends_hits():
    """Also for objects that were in the kernel's cache before, and in both directions."""
    def test(d):
        def hot():
            c = conf.Host(d.address, "all.test", source=OUTSIDE)
            c.hot("/f.txt", "wire" if d.wire else "user")
            return c
        with contextlib.closing(hot()) as c:
            d.reconfigure(HEAD + 'location "/" { allow = "127.0.0.0/24" }\n')
            assert c.get("/f.txt").status == 403
            assert ask(d, OUTSIDE, "/f.txt") == 403
        d.reconfigure(HEAD + 'location "/" { deny = "127.0.0.0/24" }\n')
        for times in (1, 20):
            assert ask(d, OUTSIDE, "/f.txt", times=times) == 200
        d.reconfigure(HEAD + 'location "/" { deny = "127.0.0.0/16" }\n')
        assert ask(d, OUTSIDE, "/f.txt") == 403
        d.reconfigure(HEAD)
        hot().close()
    served(HEAD, test)


def t_clients_denied_by_a_location_are_dropped_where_configured():
    def test(d):
        table(d, (("/f.txt", 200, 200), ("/inner/f.txt", 200, None)))
        client.until(lambda: any(x.startswith(OUTSIDE) and " 444 " in x for x in lines(d)),
                     "not logged")
    served(PLACES + "deny-answer = drop\n", test)


def lines(d):
    with open(os.path.join(d.folder, "access.log"), encoding="ascii") as f:
        return f.readlines()


def t_what_an_upstream_stored_is_denied_too():
    """Whichever client has fetched it, and however often it was requested."""
    with origin.Origin() as o:
        o.on("/up/x", origin.reply(200, b"up/x", "Cache-Control: max-age=600"))
        served(f'access-log = "{{folder}}/access.log"\nupstream = "{o.url}"\n'
               'location "/up/" { allow = "127.0.0.0/24" }\n',
               lambda d: table(d, (("/up/x", 200, 403),)))


def t_sock_leaves_places_with_lists_to_the_daemon():
    with conf.Conf(PLACES, "--tiers", "sock,user", "--sock", "unlisted") as d:
        tier = talk.ask(d, "status")["tiers"]["sock"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("sock", tier["why"]))
        write(d)
        for _ in range(20):
            with conf.Host(d.address, "all.test", source=OUTSIDE) as c:
                c.hot("/f.txt", "sock")
                assert c.get("/inner/open/f.txt").status == 200
                assert c.get("/inner/f.txt").status == 403
        assert talk.counts(d).get("LISTED"), talk.counts(d)


def t_listeners_have_lists_of_their_own():
    """Two listeners, one with lists: whom it denies, the other serves."""
    first, second = "127.0.0.1:18081", "127.0.0.2:18081"
    text = HEAD + f'listen-deny = "{second} 127.0.1.0/24"\n'

    def at(d, where, source):
        return ask(d, source, "/f.txt", times=20, address=(where.split(":")[0], 18081))
    for wire in (False, True):
        with conf.Conf(text, wire=wire, listen=(first, second)) as d:
            write(d)
            for _ in range(2):
                assert at(d, second, OUTSIDE) == 403
                assert at(d, second, INSIDE) == 200
                assert at(d, first, OUTSIDE) == 200
                assert at(d, first, INSIDE) == 200
    text = HEAD + f'listen-allow = "{second} 127.0.0.9"\nlisten-deny = "{first} all"\n'
    with conf.Conf(text, listen=(first, second)) as d:
        write(d)
        assert at(d, second, OUTSIDE) == 403
        assert at(d, second, INSIDE) == 200
        assert at(d, first, INSIDE) == 403


def t_a_check_refuses_what_is_no_list():
    for text, says in (
            ('location "/x/" { deny = "nobody" }\n', "deny"),
            ('location "/x/" { allow = "10.0.0.1/8" }\n', "allow"),
            ('location "/x/" { deny = {' +
             ", ".join(f'"10.0.{i // 250}.{i % 250 + 1}"' for i in range(1001)) + "} }\n",
             "at most 1000"),
            ('listen-deny = "127.0.0.1:1 10.0.0.0/8"\n', "it is not served"),
            ('location "/x/" { listen-deny = "127.0.0.1:80 all" }\n', "listen-deny")):
        d = conf.Conf('listen = "127.0.0.1:8080"\n' + HEAD + text)
        try:
            run = subprocess.run([daemon.BINARY, "--check", d.path], capture_output=True,
                                 text=True, check=False, timeout=client.WAIT_S)
            assert run.returncode == 2 and says in run.stderr, (text[:60], run)
        finally:
            d.clean()


if __name__ == "__main__":
    ktap.run(globals())
