#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What a location says of heads holds beside an upstream too, in each tier: fields,
Expires' and Cache-Control's rules, and also on errors.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import ktap
import origin

ADDED = ("X-Content-Type-Options", "X-Frame-Options")
TEXT = '''headers = {"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY"}
expires = 1h
upstream = "%s"
location "/plain/" { expires = off }
location "/types/" {
	expires = off
	type "text/css" { cache-control = "public" headers = {"X-Css: yes"} }
}
location "/dead/" { upstream = "unix:/nonexistent/s" headers = {"X-Dead: yes"} }
'''


def served(test):
    with origin.Origin() as o:
        conf.both(TEXT % o.url, lambda d: test(o, d))


def has_added(r):
    return [r.field(x) for x in ADDED] == ["nosniff", "DENY"]


def t_fields_are_added_in_every_tier():
    def test(o, d):
        path = f"/a{d.wire}"
        o.on(path, origin.reply(200, b"text", "Cache-Control: max-age=900", "ETag: \"v\"",
                                "Content-Type: text/plain"))
        first = origin.ask(d.address, "GET", path)
        tier = "wire" if d.wire else "user"
        hit = client.hot(d, path, tier)
        assert has_added(first) and first.field("cache-control") == "max-age=3600", first
        assert [hit.fields.get(x) for x in ADDED] == ["nosniff", "DENY"], hit
        assert hit.fields["Cache-Control"] == "max-age=3600", hit
        assert len(o.seen(path)) == 1, o.seen(path)
        with client.Client(d.address) as c:
            r = c.get(path, 'If-None-Match: "v"')
            assert r.status == 304 and r.fields["Cache-Control"] == "max-age=3600", r
            assert ADDED[0] not in r.fields, r
    served(test)


def t_the_store_goes_by_the_upstream_alone():
    """expires is for clients: what may not be stored is not, however long they keep it."""
    def test(o, d):
        path = f"/b{d.wire}"
        o.on(path, origin.reply(200, b"x", "Cache-Control: max-age=0"))
        for _ in range(2):
            r = origin.ask(d.address, "GET", path)
            assert r.field("cache-control") == "max-age=3600", r
        assert len(o.seen(path)) == 2, o.seen(path)
    served(test)


def t_an_answer_for_one_client_stays_so():
    def test(o, d):
        for i, control in enumerate(("private", "no-store, max-age=5",
                                     'private="Set-Cookie", max-age=5')):
            path = f"/c{i}{d.wire}"
            o.on(path, origin.reply(200, b"x", f"Cache-Control: {control}"))
            r = origin.ask(d.address, "GET", path)
            assert r.field("cache-control") == control and has_added(r), r
    served(test)


def t_a_field_of_both_is_sent_once():
    def test(o, d):
        path = f"/plain/d{d.wire}"
        o.on(path, origin.reply(200, b"x", "x-frame-options: SAMEORIGIN", "Set-Cookie: a=b",
                                "Expires: 0", "Cache-Control: max-age=7"))
        r = origin.ask(d.address, "GET", path)
        assert [v for n, v in r.fields if n.lower() == "x-frame-options"] == ["DENY"], r
        assert r.field("cache-control") == "max-age=7" and r.field("expires") == "0", r
        path = f"/e{d.wire}"
        o.on(path, origin.reply(200, b"x", "Expires: 0", "Pragma: no-cache", "Set-Cookie: a=b"))
        r = origin.ask(d.address, "GET", path)
        assert r.field("expires") is None and r.field("pragma") is None, r
        assert r.field("set-cookie") == "a=b" and r.field("cache-control") == "max-age=3600", r
    served(test)


def t_types_are_told_apart():
    def test(o, d):
        for name, type_, css in (("x", "text/css; charset=utf-8", "yes"),
                                 ("y", "text/plain", None)):
            path = f"/types/{name}{d.wire}"
            o.on(path, origin.reply(200, b"x", f"Content-Type: {type_}"))
            r = origin.ask(d.address, "GET", path)
            assert r.field("x-css") == css and \
                   r.field("cache-control") == ("public" if css else None), r
    served(test)


def t_errors_have_the_fields_and_no_lifetime():
    def test(o, d):
        path = f"/f{d.wire}"
        o.on(path, origin.reply(404, b"none"))
        r = origin.ask(d.address, "GET", path)
        assert r.status == 404 and has_added(r) and r.field("cache-control") is None, r
        r = origin.ask(d.address, "GET", "/dead/x")
        assert r.status == 502 and has_added(r) and r.field("x-dead") == "yes", r
        assert r.field("cache-control") is None, r
        r = origin.ask(d.address, "TRACE", "/")
        assert r.status == 405 and has_added(r), r
    served(test)


if __name__ == "__main__":
    ktap.run(globals())
