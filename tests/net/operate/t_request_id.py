#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A request's id, and the client behind proxies: created or trusted, forwarded, logged.

Every request has an id. Of a trusted proxy it is taken over, of anybody else it is
made anew; upstreams get the one that the log has, whichever tier answers.
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import fastcgi
import ktap
import origin

TEXT = '''root = "{root}"
access-log = "{folder}/access.log"
access-log-format = "$target $client $request_id $tier"
location "/up/" { upstream = "%s" }
location "/app/" { upstream = app }
upstream app { server = "%s" protocol = fastcgi }
'''
TRUSTED = 'trusted-proxies = {"127.0.0.0/8", "10.0.0.0/8"}\n'
MADE = re.compile(r"[0-9a-f]{32}\Z")


def lines(d, nr):
    """
    [(target, client, id, tier)] once there are nr lines. Their order says nothing: a worker
    writes one when it is done with the request, of which the client may have the answer and have
    asked another worker; and hits of a kernel tier pass through another thread.
    """
    path = os.path.join(d.folder, "access.log")
    deadline = time.monotonic() + client.WAIT_S
    while True:
        try:
            with open(path, encoding="ascii") as f:
                got = f.read().splitlines(keepends=True)
        except FileNotFoundError:
            got = []
        got = [x for x in got if x.endswith("\n")]
        if len(got) >= nr:
            return [x.split() for x in got]
        assert time.monotonic() < deadline, got
        time.sleep(0.01)


def served(test, trusted):
    with origin.Origin() as o, fastcgi.Server(unix=True) as f:
        text = (TRUSTED if trusted else "") + TEXT % (o.url, f.url)
        conf.both(text, lambda d: test(o, f, d))


def each_kind(o, f, d, name, sent_id):
    """Asks once for what an upstream, a program and a file answer: the log's lines of
    these, and what the upstream and the program got."""
    up, app = f"/up/{name}{d.wire}", f"/app/{name}{d.wire}"
    o.on(up, origin.reply(200, b"x"))
    f.on(app, fastcgi.answer(b"Content-Type: a/b\r\n\r\nx"))
    d.write("f.txt", b"x")
    for path in (up, app, "/f.txt"):
        r = origin.ask(d.address, "GET", path, f"X-Request-ID: {sent_id}",
                       "X-Forwarded-For: 192.0.2.1")
        assert r.status == 200, r
    of = {x[0]: x for x in lines(d, 3)}
    return [of[path] for path in (up, app, "/f.txt")], o.seen(up)[0], f.seen(app)[0].params


def t_an_id_is_made_sent_on_and_logged():
    def test(o, f, d):
        got, seen, params = each_kind(o, f, d, "a", "forged")
        ids = [x[2] for x in got]
        assert all(MADE.match(x) for x in ids) and len(set(ids)) == 3, got
        assert all(x[1] == "127.0.0.1" for x in got), got
        assert seen.field("x-request-id") == ids[0], (seen.head, ids)
        assert params["HTTP_X_REQUEST_ID"] == ids[1], (params, ids)
    served(test, False)


def t_an_id_of_a_trusted_proxy_is_taken_over():
    def test(o, f, d):
        got, seen, params = each_kind(o, f, d, "b", "proxy-7")
        assert [x[1:3] for x in got] == [["192.0.2.1", "proxy-7"]] * 3, got
        assert [v for n,
                v in re.findall(rb"(?im)^(x-request-id): *(.*?)\r?$", seen.head)] == [b"proxy-7"]
        assert params["HTTP_X_REQUEST_ID"] == "proxy-7", params
        for bad in ("a b", 'a"b', "x" * 129):
            origin.ask(d.address, "GET", f"/up/b{d.wire}", f"X-Request-ID: {bad}")
        assert all(MADE.match(x[2]) for x in lines(d, 6)[3:]), lines(d, 6)
    served(test, True)


CLIENTS = (
    (("X-Forwarded-For: 192.0.2.1",), "192.0.2.1"),
    # the first is anybody's
    (("X-Forwarded-For: 203.0.113.9, 192.0.2.1, 10.0.0.5",), "192.0.2.1"),
    (("X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 192.0.2.2"), "192.0.2.2"),
    (("X-Forwarded-For: 10.0.0.6, 10.0.0.5",), "10.0.0.6"),
    (("X-Forwarded-For: [2001:db8::7]:99",), "2001:db8::7"),
    (("X-Forwarded-For: 192.0.2.1:80",), "192.0.2.1"),
    (("X-Forwarded-For: 203.0.113.9, nonsense",), "127.0.0.1"),
    (("X-Forwarded-For: 203.0.113.9, unknown, 10.0.0.5",), "10.0.0.5"),
    (('Forwarded: for=203.0.113.9, For="[2001:db8::8]:1";proto=https',), "2001:db8::8"),
    (("Forwarded: proto=http; for=192.0.2.3",), "192.0.2.3"),
    (("Forwarded: for=_hidden",), "127.0.0.1"),
    (("X-Forwarded-For: " + ", ".join(["10.0.0.5"] * 40),), "10.0.0.5"),
    ((), "127.0.0.1"),
)


def t_the_client_is_the_last_that_no_trusted_proxy_is():
    def test(o, f, d):
        d.write("f.txt", b"x")
        for i, (fields, _) in enumerate(CLIENTS):
            r = origin.ask(d.address, "GET", "/f.txt", f"X-Request-ID: {i}", *fields)
            assert r.status == 200, r
        got = {x[2]: x for x in lines(d, len(CLIENTS))}
        for i, (fields, want) in enumerate(CLIENTS):
            assert got[str(i)][1] == want, (fields, want, got[str(i)])
    served(test, True)


def t_hits_of_the_kernel_have_both():
    def test(o, f, d):
        tier = "wire" if d.wire else "user"
        d.write("f.txt", b"x")
        client.hot(d, "/f.txt", tier)
        with client.Client(d.address) as c:
            seen = []
            while not seen:         # until that tier has answered one of them
                c.get("/f.txt", "X-Request-ID: id-1", "X-Forwarded-For: 192.0.2.1")
                seen = [x for x in lines(d, 1) if x[2:] == ["id-1", tier]]
        assert seen[0][1] == "192.0.2.1", seen
    served(test, True)


if __name__ == "__main__":
    ktap.run(globals())
