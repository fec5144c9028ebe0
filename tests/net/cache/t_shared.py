#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Whether the answer to one client is sent to another one: never unless the
response or the location says that it is for everybody. RFC 9111 rule by rule is
t_rules9111.py, of a daemon that allows all that a location may allow; here it
allows nothing.
"""
import concurrent.futures
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import origin
from origin import END, reply

o = d = None
MINUTE = "Cache-Control: max-age=60"
ONE_HIT = "detail=wire"
# a validator and no lifetime of its own: stored to be validated, and for nothing else
SPENT = (["X-Powered-By: Express"], ["Cache-Control: max-age=0"],
         ["Cache-Control: public, max-age=0"], ["Expires: 0"],
         ["Expires: Thu, 01 Jan 1981 00:00:00 GMT"], ["Pragma: no-cache", "Expires: -1"],
         ["Cache-Control: no-cache"],
         ["Cache-Control: max-age=0, must-revalidate"], ["Set-Cookie: sid=1", "Expires: 0"],
         ["Set-Cookie: sid=1", "X-Powered-By: Express"], ["Cache-Control: s-maxage=0"],
         ["Cache-Control: stale-while-revalidate=60"], ["Cache-Control: stale-if-error=60"])


def begin():
    global o, d
    o = origin.Origin()
    d = daemon.Daemon("--upstream", o.url, *daemon.USER, "--workers", "2").start()


def end():
    assert d.stop() == 0, d.lines
    o.close()


paths = iter(f"/{i}" for i in range(1 << 20))


def ask(path, *fields, to=None, **more):
    return origin.ask((to or d).address, "GET", path, *fields, **more)


def account(*fields, then=None):
    """Its own account for each, by Cookie and ETag; `then` for whoever has X-Then."""
    def send(c, r):
        if r.field("X-Then") is not None:
            return then if then is END else c.send(then)
        who = r.field("Cookie")
        if r.field("If-None-Match") == f'"{who}"':
            return c.send(reply(304, b"", f'ETag: "{who}"'))
        return c.send(reply(200, f"account of {who}".encode(), f'ETag: "{who}"', *fields))
    return send


def t_nobody_gets_what_has_no_lifetime_unvalidated():
    """Whatever he asks for, and whatever fails."""
    stale = ("max-stale", "only-if-cached, max-stale", "max-stale=99999", "stale-if-error=99999",
             "max-stale, stale-if-error=99999")
    for fields in SPENT:
        for then in (reply(500, b"bad"), reply(503, b"bad"), b"no HTTP", END):
            p = next(paths)
            o.on(p, account(*fields, then=then))
            assert ask(p, "Cookie: alice").body == b"account of alice"
            for line in stale:
                r = ask(p, "Cookie: mallory", f"Cache-Control: {line}")
                assert b"alice" not in r.body and not r.hit, (fields, line, r)
                r = ask(p, "Cookie: mallory", "X-Then: 1", f"Cache-Control: {line}")
                assert b"alice" not in r.body and r.status >= 500, (fields, then, line, r)
            assert b"alice" not in ask(p, "X-Then: 1").body
    p = next(paths)
    o.on(p, account(SPENT[0][0]))
    ask(p, "Cookie: alice")
    ask(p, "Cookie: alice")
    assert o.seen(p)[-1].field("If-None-Match") == '"alice"', "validated it is all the same"


def t_those_who_ask_at_the_same_time_get_their_own():
    for fields in SPENT:
        p, go = next(paths), threading.Event()
        inner = account(*fields)

        def slow(c, r, inner=inner, go=go):
            go.wait(client.WAIT_S)
            return inner(c, r)

        o.on(p, slow)
        with concurrent.futures.ThreadPoolExecutor(4) as many:
            got = [many.submit(ask, p, f"Cookie: {i}") for i in range(4)]
            o.wait(p)
            # for the others to arrive: later ones would be alone in any case
            time.sleep(0.1)
            go.set()
        for i, r in enumerate(got):
            assert r.result().body == b"account of %d" % i, (fields, r.result())


def t_a_head_gives_nobody_what_has_no_lifetime():
    """What one answers with a lifetime is of what is stored only if it has that one's tag."""
    old = f"Last-Modified: {origin.date(-864000)}"
    for fields, said in ((['ETag: "{}"'], [MINUTE]), (['ETag: "{}"'], [old]),
                         (['ETag: "{}"', "Expires: 0"], [f"Expires: {origin.date(60)}"]),
                         (['ETag: "{}"', "Cache-Control: no-cache, max-age=60"], [MINUTE]),
                         (['ETag: "{}"', MINUTE, "Set-Cookie: a"], [MINUTE]),
                         ([old], [old]), ([old], [old, MINUTE])):
        for cookies in ([], ["Cookie: mallory"]):
            def send(c, r, fields=fields, said=said):
                who = r.field("Cookie")
                head = b"" if r.method == "HEAD" else f"account of {who}".encode()
                lines = said if r.method == "HEAD" else [x.format(who) for x in fields]
                c.send("\r\n".join(["HTTP/1.1 200 OK", *lines, *(
                    [f"Content-Length: {len(head)}"] if head else []), "", ""]).encode() + head)

            p = next(paths)
            o.on(p, send)
            assert ask(p, "Cookie: alice").body == b"account of alice"
            origin.ask(d.address, "HEAD", p, *cookies)
            r = ask(p, *cookies)
            assert b"alice" not in r.body, (fields, said, cookies, r)


def t_a_guessed_lifetime_is_none_once_it_is_over():
    """A tenth of ten seconds: then the server is asked, and nothing stands in for it."""
    for then in (reply(503, b"bad"), END):
        p, old = next(paths), f"Last-Modified: {origin.date(-864000)}"
        o.on(p, reply(200, b"old", old, "Age: 86399"), then)
        assert "stored" in ask(p).cache
        for fields in ([], ["Cache-Control: max-stale"], ["Cache-Control: stale-if-error=99"]):
            r = client.until(lambda p=p, f=fields: next(
                (r for r in [ask(p, *f)] if not r.hit), None), "never over")
            assert r.status >= 500 and r.body != b"old", r


def t_a_location_may_forbid_guessed_lifetimes():
    text = 'upstream = "%s"\nlocation "/no/" { heuristic-freshness = off }\n' % o.url
    with conf.Conf(text) as e:
        for p, guessed in (("/yes", True), ("/no/a", False)):
            for more in ([], ["Cache-Control: public"], ['ETag: "a"']):
                old = f"Last-Modified: {origin.date(-864000)}"
                at = f"{p}{len(more and more[0])}"
                o.on(at, reply(200, b"1", old, *more), reply(200, b"2", old, *more))
                ask(at, to=e)
                assert ask(at, to=e).body == (b"1" if guessed else b"2"), (at, more)
        o.on("/no/own", reply(200, b"1", MINUTE))
        ask("/no/own", to=e)
        assert ask("/no/own", to=e).hit


def t_a_location_may_let_requests_have_what_is_stale():
    text = 'upstream = "%s"\nclient-stale = on\nlocation "/no/" { client-stale = off }\n' % o.url
    stale = (MINUTE, "Age: 90")
    with conf.Conf(text) as e:
        for p, allowed in (("/yes/", True), ("/no/", False)):
            o.on(p, reply(200, b"old", *stale), reply(503, b"bad"))
            ask(p, to=e)
            r = ask(p, "Cache-Control: only-if-cached, max-stale", to=e)
            assert (r.status == 200) == allowed and (r.hit and r.body == b"old") == allowed, (p, r)
            r = ask(p, "Cache-Control: stale-if-error=60", to=e)
            assert (r.body == b"old") == allowed, (p, r)
        o.on("/yes/spent", reply(200, b"old", 'ETag: "a"'), reply(503, b"bad"))
        ask("/yes/spent", to=e)
        for line in ("max-stale, only-if-cached", "stale-if-error=60"):
            r = ask("/yes/spent", f"Cache-Control: {line}", to=e)
            assert r.status in (503, 504), "nothing without a lifetime of its own: %r" % r


def t_what_sets_a_cookie_is_for_one():
    for fields in ([MINUTE], ["Cache-Control: public, s-maxage=60"],
                   [f"Expires: {origin.date(60)}"],
                   ["CDN-Cache-Control: max-age=60"], [MINUTE + ", stale-if-error=60"]):
        p = next(paths)
        o.on(p, *(reply(200, b"%d" % i, f"Set-Cookie: sid={i}", *fields) for i in range(2)))
        for i in range(2):
            r = ask(p)
            assert r.field("Set-Cookie") == f"sid={i}" and "stored" not in r.cache, (fields, r)
    p = next(paths)
    o.on(p, reply(200, b"x", "Set-Cookie: sid=1", MINUTE + ', private="Set-Cookie"'))
    assert ask(p).field("Set-Cookie") and ask(p).hit and not ask(p).field("Set-Cookie")


def t_a_location_may_store_cookies():
    text = 'upstream = "%s"\nlocation "/yes/" { store-cookies = on }\n' % o.url
    with conf.Conf(text) as e:
        for p, fields, stored in (("/yes/a", [MINUTE], True),
                                  ("/yes/b", ['ETag: "a"', "Expires: 0"], False),
                                  ("/no", [MINUTE], False)):
            o.on(p, reply(200, b"1", "Set-Cookie: a", *fields),
                 reply(200, b"2", "Set-Cookie: b", *fields))
            ask(p, to=e)
            assert ask(p, to=e).field("Set-Cookie") == ("a" if stored else "b"), p


def t_the_server_is_sent_the_host_of_the_key():
    def login(c, r):
        c.send(reply(301, b"", MINUTE, f"Location: http://{r.field('Host')}/login"))
    for host in ("shop.example:80", "SHOP.example", "Shop.Example:80"):
        p = next(paths)
        o.on(p, login)
        assert ask(p, host=host).field("Location") == "http://shop.example/login", host
        assert ask(p, host="shop.example").hit
        seen = o.seen(p)[-1]
        assert seen.field("X-Forwarded-Host") == "shop.example" and \
               'host="shop.example"' in seen.field("Forwarded"), seen.head
    p = next(paths)
    o.on(p, login)
    for host in ("shop.example", "shop.example:8080", "shop.example.", "shop.example:443"):
        assert ask(p, host=host).field("Location") == f"http://{host}/login"
    assert len(o.seen(p)) == 4


def t_the_server_is_sent_the_fields_of_the_key():
    for vary, bad, good in (("Origin", ["Origin: https://a.example,"], "Origin: https://a.example"),
                            ("Origin", ["Origin: https://a.example", "Origin:"],
                             "Origin: https://a.example"),
                            ("Accept-Language", ["Accept-Language: d e"], "Accept-Language: de"),
                            ("Accept", ["Accept: application/js on"], "Accept: application/json"),
                            ("X-Device", ["X-Device: mobile,"], "X-Device: mobile")):
        p = next(paths)
        o.on(p, lambda c, r,
             v=vary: c.send(reply(200, repr([x[1] for x in r.fields if x[0] == v]).encode(),
                                                  MINUTE, f"Vary: {v}")))
        wrong = ask(p, *bad)
        r = ask(p, good)
        assert r.body != wrong.body and r.body == repr([good.split(": ")[1]]).encode(), (vary, r)


def t_names_that_servers_confuse_are_not_sent_on():
    odd = ("X_Forwarded_Proto: https", "Transfer_Encoding: chunked", "Content_Length: 9",
           "X.Real.IP: 192.0.2.1", "X~: 1")
    with conf.Conf('upstream = "%s"\nlocation "/pass/" { odd-field-names = pass }\n' % o.url) as e:
        for p, there in (("/drop", False), ("/pass/", True)):
            o.on(p, reply(200, b"x"))
            ask(p, *odd, "X-Kept: 1", to=e)
            seen = o.seen(p)[-1]
            assert seen.field("X-Kept") == "1" and seen.field("X-Forwarded-Proto") == "http", \
                   seen.head
            for line in odd:
                assert (seen.field(line.split(":", maxsplit=1)[0]) is not None) == there, \
                       (p, seen.head)
            o.on(p, reply(200, b"x"))
            with origin.Client(e.address) as c:
                c.send(f"POST {p} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
                       "X_Forwarded_Proto: https\r\nX-Kept: 1\r\n\r\n".encode())
                assert c.answer("POST").status == 200


def t_other_messages_made_of_a_stored_one_show_nothing_of_its_bytes():
    p, body = next(paths), b"0123456789"
    sums = ["Content-Digest: sha-256=:x:", "Content-MD5: x", "Content-Range: bytes 0-9/10"]
    of_it = ["Content-Type: text/x-a", "Content-Encoding: x-none", "Repr-Digest: sha-256=:y:",
             "Content-Location: /z"]
    o.on(p, reply(200, body, MINUTE, 'ETag: "a"', *sums, *of_it, "X-Kept: 1"))
    ask(p)
    r = ask(p)
    assert r.hit and all(r.field(x.split(":", maxsplit=1)[0]) for x in sums + of_it), r
    for ranges, status in (("0-3", 206), ("0-1,4-5", 206), ("99-", 416)):
        r = ask(p, f"Range: bytes={ranges}")
        assert r.status == status and r.hit and r.field("X-Kept") == "1", r
        assert r.field("Content-Digest") is None and r.field("Content-MD5") is None, r
        assert r.field("Content-Range") == {"0-3": "bytes 0-3/10",
                                            "99-": "bytes */10"}.get(ranges), r
        for line in of_it:
            name, value = line.split(": ", 1)
            if status == 416:
                assert r.field(name) is None, r
            elif name != "Content-Type" or ranges == "0-3":
                assert r.field(name) == value, r


def t_a_claim_of_a_proxy_is_no_hit_of_the_kernels():
    """Wire knows one scheme and one host: a request that names others is the daemon's."""
    text = 'upstream = "%s"\ntrusted-proxies = "127.0.0.1"\n' % o.url
    with conf.Conf(text, wire=True) as e:
        def login(c, r):
            c.send(reply(301, b"", MINUTE, f"Location: {r.field('X-Forwarded-Proto')}://test/"))
        o.on("/", login)

        def hot():
            return client.until(lambda: next((r for r in [ask("/", to=e)] if ONE_HIT in r.cache),
                                             None),
                                "never a hit")
        assert hot() and hot().field("Location") == "http://test/"
        for fields, want in ((["X-Forwarded-Proto: https"], "https"),
                             (["x-forwarded-proto: https"], "https"),
                             (["X-Forwarded-Host: other"], "http"),
                             (["X-Forwarded-Proto: http"], "http")):
            for _ in range(3):
                r = ask("/", *fields, to=e)
                assert ONE_HIT not in r.cache and r.field("Location") == f"{want}://test/", \
                       (fields, r)
        assert ONE_HIT in ask("/", "X-Forwarded-For: 192.0.2.1", to=e).cache
        assert hot().field("Location") == "http://test/"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
