#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""RFC 9111 rule by rule, and what RFC 9110, 5861, 9211 and 9213 add to it: each is
taken with the user tier alone, and with wire in front of it. The tables of rules
are rows of name and steps, see tests/lib/rules.py.

What needs threads, time or the tool is in t_cache9111.py.
"""
import contextlib
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import net                          # noqa: E402
import rules                        # noqa: E402
import talk                         # noqa: E402
from origin import Client, Origin, date             # noqa: E402
from rules import CC, hit, origin, stamp            # noqa: E402

n = o = allows = None       # allows: all that a location may allow, and does not by default
daemons, asked = [], {}             # by the name of the tier
at_wire = 0
wire_off = ""


def begin():
    global n, o, wire_off
    try:
        n = net.Net(links=1)
    except ktap.Skip as why:
        wire_off = str(why)
        ktap.note(f"without wire: {why}")
    global allows
    # pylint: disable=consider-using-with
    allows = tempfile.NamedTemporaryFile("w", suffix=".conf")
    allows.write("client-stale = on\nstore-cookies = on\n")
    allows.flush()
    os.chmod(allows.name, 0o644)
    options = ("--config", allows.name, "--workers", "2")
    with n.server.inside() if n else contextlib.nullcontext():
        o = Origin()
        u = daemon.Daemon("--upstream", o.url, *daemon.USER, *options).start()
        daemons.append(u)
        asked["user"] = (n and n.server, u.address)
        if not n:
            return
        d = daemon.Daemon("--upstream", o.url, "--wire", "tbg0,lo", *options,
                          listen="0.0.0.0:8080").start()
        daemons.append(d)
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if tier["on"]:
        asked["wire"] = (n.client, (n.links[0].server4, 8080))
    else:
        wire_off = daemon.why_off("wire", tier["why"])
        ktap.note(wire_off)


def end():
    for d in daemons:
        assert d.stop() == 0, d.lines
    o.close()
    allows.close()
    if n:
        n.close()


class From(Client):
    """A connection that begins in a namespace."""

    def __init__(self, where, address):     # pylint: disable=super-init-not-called
        self.s, self.got = where.connect(address), b""


def follow(steps):
    """Take the steps with each tier."""
    global at_wire
    for tier, (where, address) in asked.items():
        def connect(to, method, path, *fields, where=where, **more):
            with From(where, to) if where else Client(to) as c:
                r = c.request(method, path, *fields, **more)
                while r.status < 200:
                    r = c.answer(method)
                return r
        try:
            answers = rules.follow(o, address, steps, connect)
        except AssertionError as why:
            raise AssertionError(f"{tier}: {why}") from None
        at_wire += sum("detail=wire" in r.cache for r in answers)


def rule(name, *steps):
    """A test of its own."""
    def test():
        follow(steps)
    test.__name__ = f"t_{section}_{name}"
    assert test.__name__ not in globals(), test.__name__
    globals()[test.__name__] = test


def fresh(name, *fields, **more):
    """What comes with these fields answers the next request."""
    rule(name, origin(*fields, **more), hit())


def spent(name, *fields, **more):
    """It does not."""
    rule(name, origin(*fields, **more), origin(**more))


# 4.2.1: the lifetime from max-age, and how directives are read (5.2)
section = "max_age"
fresh("in_the_future", CC + "max-age=3600")
fresh("in_letters_of_any_case", CC + "MaX-aGe=3600")
fresh("field_name_of_any_case", "cACHE-cONTROL: max-age=3600")
fresh("quoted", CC + 'max-age="3600"')
fresh("leading_zeros", CC + "max-age=003600")
fresh("of_31_bits", CC + "max-age=2147483647")
fresh("beyond_31_bits", CC + "max-age=2147483648")
fresh("beyond_32_bits", CC + "max-age=4294967296")
fresh("beyond_64_bits", CC + "max-age=18446744073709551617")
fresh("of_a_hundred_digits", CC + "max-age=" + "9" * 100)
fresh("behind_an_unknown_directive", CC + "foobar, max-age=3600")
fresh("behind_an_unknown_argument", CC + "foo=bar, max-age=3600")
fresh("behind_a_quoted_comma", CC + 'foo="a, b", max-age=3600')
fresh("behind_an_escaped_quote", CC + 'foo="a\\", no-store, \\"b", max-age=3600')
fresh("behind_empty_elements", CC + ", ,, max-age=3600, ,")
fresh("without_blanks", CC + "public,max-age=3600,foo")
fresh("with_tabs", CC + "public,\tmax-age=3600\t, foo")
fresh("on_a_second_line", CC + "public", CC + "max-age=3600")
fresh("on_a_line_behind_an_empty_one", CC, CC + "max-age=3600")
spent("nothing_said")
spent("zero", CC + "max-age=0")
spent("minus_zero", CC + "max-age=-0")
spent("negative", CC + "max-age=-3600")
spent("decimal", CC + "max-age=3600.0")
spent("letters_before", CC + "max-age=a3600")
spent("letters_behind", CC + "max-age=3600a")
spent("single_quotes", CC + "max-age='3600'")
spent("half_quoted", CC + 'max-age="3600')
spent("empty_quotes", CC + 'max-age=""')
spent("blank_before_equals", CC + "max-age =3600")
spent("blank_behind_equals", CC + "max-age= 3600")
spent("blank_within", CC + "max-age=36 00")
spent("without_an_argument", CC + "max-age")
spent("empty_argument", CC + "max-age=")
spent("hexadecimal", CC + "max-age=0x3600")
spent("exponent", CC + "max-age=1e9")
spent("signed", CC + "max-age=+3600")
spent("within_an_argument", CC + 'foo="max-age=3600"')
spent("within_a_quoted_list", CC + 'foo="a, max-age=3600, b"')
spent("as_the_end_of_another_name", CC + "x-max-age=3600")
spent("as_the_start_of_another_name", CC + "max-age-x=3600")
spent("semicolon_for_a_comma", CC + "max-age=3600;public")
spent("twice_the_first_is_stale", CC + "max-age=0, max-age=3600")
spent("twice_the_second_is_stale", CC + "max-age=3600, max-age=0")
spent("on_two_lines_the_second_is_stale", CC + "max-age=3600", CC + "max-age=0")

section = "s_maxage"
fresh("alone", CC + "s-maxage=3600")
fresh("goes_before_max_age", CC + "max-age=0, s-maxage=3600")
fresh("goes_before_max_age_in_any_order", CC + "s-maxage=3600, max-age=0")
fresh("goes_before_max_age_of_another_line", CC + "max-age=0", CC + "s-maxage=3600")
fresh("goes_before_expires", CC + "s-maxage=3600", "Expires: 0")
spent("shortens_max_age", CC + "max-age=3600, s-maxage=0")
spent("shortens_expires", CC + "s-maxage=0", stamp("Expires", 3600))

# 4.2.1 and 5.3
section = "expires"
fresh("in_the_future", stamp("Expires", 3600))
fresh("in_the_far_future", "Expires: Sun, 21 Nov 2286 04:46:39 GMT")
fresh("beyond_2038", "Expires: Fri, 20 Jan 2068 04:46:39 GMT")
fresh("rfc850", lambda: "Expires: " + time.strftime("%A, %d-%b-%y %H:%M:%S GMT",
                                                    time.gmtime(time.time() + 3600)))
fresh("asctime", lambda: "Expires: " + time.asctime(time.gmtime(time.time() + 3600)))
fresh("capitals", lambda: "Expires: " + date(3600).upper())
fresh("small_letters", lambda: "Expires: " + date(3600).lower())
fresh("of_a_slow_origin", stamp("Date", -3600), stamp("Expires", 3600))
fresh("of_an_origin_ahead", stamp("Date", 3600), stamp("Expires", 7200))
fresh("with_an_age", stamp("Date", -10), stamp("Expires", 50), "Age: 15")
spent("in_the_past", stamp("Expires", -3600))
spent("now", stamp("Expires", 0))
spent("zero", "Expires: 0")
spent("minus_one", "Expires: -1")
spent("empty", "Expires: ")
spent("no_date", "Expires: tomorrow")
spent("before_an_age", stamp("Date", 10), stamp("Expires", 20), "Age: 15")
spent("of_an_origin_ahead_in_the_past", stamp("Date", 7200), stamp("Expires", 3600))
spent("twice_one_in_the_past", stamp("Expires", 3600), stamp("Expires", -1))
spent("shortened_by_max_age", CC + "max-age=0", stamp("Expires", 3600))
fresh("lengthened_by_max_age", CC + "max-age=3600", stamp("Expires", -3600))
fresh("invalid_beside_max_age", CC + "max-age=3600", "Expires: 0")
for _name, _text in [
        ("utc", "18 Aug 2098 02:01:18 UTC"), ("other_zone", "18 Aug 2098 02:01:18 AEST"),
        ("without_zone", "18 Aug 2098 02:01:18"), ("offset_zone", "18 Aug 2098 02:01:18 +0000"),
        ("two_digit_year", "18 Aug 98 02:01:18 GMT"), ("one_digit_hour", "18 Aug 2098 2:01:18 GMT"),
        ("one_digit_day", "8 Aug 2098 02:01:18 GMT"), ("without_seconds", "18 Aug 2098 02:01 GMT"),
        ("dashes", "18-Aug-2098 02:01:18 GMT"), ("periods", "18 Aug 2098 02.01.18 GMT"),
        ("two_blanks", "18  Aug 2098 02:01:18 GMT"), ("unknown_month", "18 Hug 2098 02:01:18 GMT"),
        ("hour_24", "18 Aug 2098 24:01:18 GMT"), ("more_behind", "18 Aug 2098 02:01:18 GMT;x")]:
    spent(_name, "Expires: Mon, " + _text)
spent("without_comma", "Expires: Mon 18 Aug 2098 02:01:18 GMT")

# 4.2.3 and 5.1
section = "age"
HOUR = CC + "max-age=3600"
fresh("less_than_the_lifetime", HOUR, "Age: 1800")
spent("more_than_the_lifetime", HOUR, "Age: 7200")
spent("just_the_lifetime", HOUR, "Age: 3600")
fresh("of_the_date", HOUR, stamp("Date", -1800))
spent("of_an_old_date", HOUR, stamp("Date", -7200))
fresh("of_a_date_to_come", HOUR, stamp("Date", 7200))
spent("of_a_date_to_come_and_an_age", HOUR, stamp("Date", 7200), "Age: 7200")
spent("list_the_first_is_old", HOUR, "Age: 7200, 0")
fresh("list_the_first_is_young", HOUR, "Age: 0, 7200")
spent("two_lines_the_first_is_old", HOUR, "Age: 7200", "Age: 0")
fresh("two_lines_the_first_is_young", HOUR, "Age: 0", "Age: 7200")
spent("of_31_bits", HOUR, "Age: 2147483647")
spent("beyond_31_bits", HOUR, "Age: 2147483649")
spent("beyond_64_bits", HOUR, "Age: 99999999999999999999")
for _name, _text in [("letters", "abc"), ("negative", "-7200"), ("decimal", "7200.0"),
                     ("suffix", "7200a"),
                     ("prefix", "a7200"), ("parameter", "7200;foo=bar"), ("empty", ""),
                     ("quoted", '"7200"')]:
    fresh("invalid_" + _name, HOUR, "Age: " + _text)
rule("told", origin(HOUR, "Age: 100"), hit(age=(100, 130)))
rule("told_of_the_date", origin(HOUR, stamp("Date", -500)), hit(age=(500, 530)))
rule("told_is_the_greater", origin(HOUR, stamp("Date", -500), "Age: 600"), hit(age=(600, 630)))
rule("passed_on", origin(CC + "max-age=9", "Age: 7", has=["Age: 7"]))
rule("of_a_validated_one", origin(CC + "max-age=1", "Age: 50", 'ETag: "a"'),
     origin(HOUR, 'ETag: "a"', status=304, gets=200, text=b"1"), hit(text=b"1", age=(0, 30)))

# 6.6.1 of RFC 9110
section = "date"
rule("is_kept", origin(HOUR, "Date: Sun, 06 Nov 1994 08:49:37 GMT", CC + "s-maxage=2147483647"),
     hit(has=["Date: Sun, 06 Nov 1994 08:49:37 GMT"]))
rule("invalid_does_not_age", origin(HOUR, "Date: yesterday"), hit(age=(0, 30)))
rule("invalid_counts_as_now", origin("Date: yesterday", stamp("Expires", 3600)), hit())
rule("twice", origin(HOUR, stamp("Date", -1), stamp("Date", -1)), hit())
rule("missing",
     origin(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nCache-Control: max-age=60\r\n\r\n1"),
     hit(text=b"1", age=(0, 30)))

# 4.2.2
section = "heuristic"
OLD = stamp("Last-Modified", -100000)
for _status in (200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501):
    fresh(f"of_{_status}", OLD, status=_status)
for _status in (201, 202, 302, 303, 307, 400, 403, 500, 502, 503, 504, 599):
    spent(f"not_of_{_status}", OLD, status=_status)
for _status in (201, 302, 403, 500, 599):
    fresh(f"of_public_{_status}", OLD, CC + "public", status=_status)
spent("a_tenth_of_little", stamp("Last-Modified", -3))
spent("modified_in_the_future", stamp("Last-Modified", 1000))
spent("modified_at_no_date", "Last-Modified: 0")
spent("less_the_age", OLD, "Age: 99999")
spent("not_of_no_cache", OLD, CC + "no-cache")
spent("not_with_a_cookie", OLD, "Set-Cookie: a=b")
spent("without_last_modified", 'ETag: "a"')
rule("not_of_a_request_with_cookies", origin(OLD, ask=["Cookie: who=me"]), origin(OLD))
rule("not_of_one_validated_with_cookies", origin('ETag: "a"', OLD, "Age: 99999"),
     origin(status=304, gets=200, text=b"1", ask=["Cookie: a=b"], sends=['If-None-Match: "a"']),
     origin(status=304, gets=200, text=b"1", sends=['If-None-Match: "a"']))
rule("of_a_request_with_cookies_if_public", origin(OLD, CC + "public", ask=["Cookie: a=b"]),
     hit(age=(0, 30)))
rule("of_one_without_answers_one_with_cookies", origin(OLD), hit("Cookie: a=b", age=(0, 30)))
fresh("of_attachments", OLD, "Content-Disposition: attachment; filename=a")
fresh("though_pragma", OLD, "Pragma: foo")
fresh("is_not_asked_with_max_age", stamp("Last-Modified", -3), CC + "max-age=60")

# 3, and 15 of RFC 9110
section = "status"
STATUSES = (200, 203, 204, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 418,
            451, 499,
            500, 501, 502, 503, 504, 599)
for _status in STATUSES:
    fresh(f"{_status}_with_a_lifetime", CC + "max-age=3600", status=_status)
    spent(f"{_status}_without_one", CC + "max-age=0", status=_status)
for _status in (200, 203, 204, 301, 302, 303, 307, 308, 404, 410, 414, 500, 501, 503):
    fresh(f"{_status}_is_understood", CC + "max-age=3600, no-store, must-understand",
          status=_status)
for _status in (299, 499, 599):
    spent(f"{_status}_is_not_understood", CC + "max-age=3600, no-store, must-understand",
          status=_status)
    spent(f"{_status}_must_be_understood", CC + "max-age=3600, must-understand", status=_status)

for _status, _line in [(412, 'If-Match: "a"'), (416, "Range: bytes=99-")]:
    rule(f"{_status}_is_of_its_request_alone",
         origin(CC + "max-age=3600", status=_status, ask=[_line]), origin())
    spent(f"{_status}_is_stored_for_nobody", CC + "max-age=3600, no-store, must-understand",
          status=_status)

# 5.2.2
section = "response"
spent("no_store", HOUR + ", no-store")
spent("no_store_of_any_case", HOUR + ", No-StOrE")
spent("no_store_with_an_argument", HOUR + ', no-store="a"')
spent("private", HOUR + ", private")
spent("private_of_any_case", HOUR + ", PrIvAtE")
spent("private_and_public", HOUR + ", public, private")
spent("private_fields_and_private", HOUR + ', private="x-a", private')
for _name, _value in [("half_quoted", '"x-a'), ("quote_alone", '"'), ("escaped_end", '"x-a\\"'),
                      ("more_behind", '"x-a"b'), ("half_quoted_list", '"x-a, x-b')]:
    spent("private_fields_" + _name, HOUR, CC + "private=" + _value)
    spent("no_cache_fields_" + _name, HOUR, CC + "no-cache=" + _value)
spent("no_cache_without_validator", HOUR + ", no-cache")
spent("no_cache_fields_and_no_cache", HOUR + ', no-cache="x-a", no-cache')
spent("no_cache_on_another_line", HOUR, CC + "no-cache")
rule("no_cache_is_validated", origin(HOUR + ", No-Cache", 'ETag: "a"'),
     origin(status=304, gets=200, text=b"1", sends=['If-None-Match: "a"']),
     origin(status=304, gets=200, text=b"1", sends=['If-None-Match: "a"']))
fresh("public", HOUR + ", public")
fresh("must_revalidate_while_fresh", HOUR + ", must-revalidate")
fresh("proxy_revalidate_while_fresh", HOUR + ", proxy-revalidate")
fresh("immutable_while_fresh", HOUR + ", immutable")
fresh("no_transform", HOUR + ", no-transform")
fresh("unknown_directive", HOUR + ", foo, bar=baz")
fresh("pragma_is_the_requests", HOUR, "Pragma: no-cache")
fresh("must_understand", HOUR + ", must-understand")
spent("immutable_when_stale", CC + "max-age=1, immutable", "Age: 2")
rule("no_cache_fields", origin(HOUR + ', no-cache="x-a, X-B"', "X-A: 1", "x-b: 2", "X-C: 3",
                               has=["X-A: 1"]),
     hit(has=["X-C: 3"], lacks=["X-A", "X-B"]))
rule("no_cache_field_without_quotes", origin(HOUR + ", no-cache=x-a", "X-A: 1"), hit(lacks=["X-A"]))
rule("private_fields", origin(HOUR + ', private="Set-Cookie"', "Set-Cookie: a=b", "X-C: 3"),
     hit(has=["X-C: 3"], lacks=["Set-Cookie"]))
rule("no_store_keeps_the_older", origin(HOUR), origin(CC + "no-store", ask=[CC + "no-cache"]),
     hit(text=b"1"))
rule("private_keeps_the_older", origin(HOUR), origin(HOUR + ", private", ask=[CC + "no-cache"]),
     hit(text=b"1"))
rule("newer_takes_its_place", origin(HOUR), origin(HOUR, ask=[CC + "no-cache"]), hit(text=b"2"))

# 5.2.1
section = "request"
AGED = [HOUR, "Age: 300"]
for _directive in ("max-age=3600", "max-age=500", "min-fresh=100", "max-stale", "max-stale=100",
                   "no-store",
                   "only-if-cached", "unknown", "foo=bar", "no-transform", "stale-if-error=10"):
    rule("reuse_" + _directive.replace("-", "_").replace("=", "_"), origin(*AGED),
         hit(CC + _directive))
for _directive in ("max-age=0", "max-age=100", 'max-age="100"', "no-cache", "NO-CACHE",
                   "min-fresh=7200",
                   "min-fresh=3400", "max-age=3600, no-cache", "max-stale, max-age=100"):
    _name = "".join(c if c.isalnum() else "_" for c in _directive)
    rule("go_on_" + _name, origin(*AGED), origin(ask=[CC + _directive], cache=["fwd=request"]))
rule("pragma_no_cache", origin(*AGED), origin(ask=["Pragma: no-cache"]))
rule("pragma_of_any_case", origin(*AGED), origin(ask=["pragma: No-Cache"]))
rule("pragma_beside_cache_control", origin(*AGED), hit("Pragma: no-cache", CC + "max-age=3600"))
rule("pragma_extension", origin(*AGED), hit("Pragma: foo"))
rule("no_cache_validates_by_tag", origin(HOUR, 'ETag: "a"'),
     origin(status=304, gets=200, text=b"1", ask=[CC + "no-cache"], sends=['If-None-Match: "a"']))
rule("no_cache_validates_by_date", origin(HOUR, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"),
     origin(status=304, gets=200, text=b"1", ask=[CC + "no-cache"],
            sends=["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]))
rule("no_store_is_not_stored", origin(HOUR, ask=[CC + "no-store"]), origin())
rule("no_store_among_others", origin(HOUR, ask=[CC + "max-age=9, no-store"]), origin())
rule("only_if_cached_without", hit(CC + "only-if-cached", gets=504, has=["Cache-Status: toboggan"]))
rule("only_if_cached_with_if_match",
     hit(CC + "only-if-cached", 'If-Match: "a"', gets=504, has=["Cache-Status: toboggan"]))
rule("only_if_cached_stale", origin(CC + "max-age=1, must-revalidate", "Age: 2", 'ETag: "a"'),
     hit(CC + "only-if-cached", gets=504, has=["Cache-Status: toboggan"]))
rule("only_if_cached_with_max_stale", origin(CC + "max-age=1", "Age: 2", 'ETag: "a"'),
     hit(CC + "only-if-cached, max-stale"))
STALE = [CC + "max-age=100", "Age: 200", 'ETag: "a"']
rule("max_stale_of_the_stale", origin(*STALE), hit(CC + "max-stale"))
rule("max_stale_enough", origin(*STALE), hit(CC + "max-stale=1000"))
rule("max_stale_too_little", origin(*STALE), origin(ask=[CC + "max-stale=10"], cache=["fwd=stale"]))
rule("max_stale_and_min_fresh", origin(*STALE), origin(ask=[CC + "max-stale, min-fresh=1"]))
for _directive in ("must-revalidate", "proxy-revalidate", "s-maxage=1", "no-cache"):
    rule("max_stale_not_of_" + _directive.replace("-", "_").replace("=", "_"),
         origin(CC + "max-age=100, " + _directive, "Age: 200", 'ETag: "a"'),
         origin(ask=[CC + "max-stale"]))
rule("with_a_body_passes", origin(HOUR), origin(content=b"x", cache=["fwd=bypass"]), hit(text=b"1"))
rule("with_a_body_is_not_stored", origin(HOUR, content=b"x"), origin())
rule("cookies_do_not_matter", origin(HOUR, ask=["Cookie: a=b"]), hit("Cookie: c=d"))

# 3.5
section = "authorization"
AUTH = "Authorization: Basic eDp5"
for _name, _how, _directive in [
        ("alone", origin, "max-age=60"), ("private", origin, "max-age=60, private"),
        ("proxy_revalidate", origin, "max-age=60, proxy-revalidate"),
    ("public", hit, "max-age=60, public"),
        ("must_revalidate", hit, "max-age=60, must-revalidate"), ("s_maxage", hit, "s-maxage=60")]:
    rule(_name, origin(CC + _directive, ask=[AUTH]),
         hit(AUTH) if _how is hit else origin(CC + _directive, ask=[AUTH]),
         hit() if _how is hit else origin())
rule("of_another_goes_on", origin(HOUR + ", no-cache", 'ETag: "a"', ask=[AUTH]), origin())

# 3.1, and 7.6.1 of RFC 9110
section = "fields"
for _name in ("Connection", "Keep-Alive", "Proxy-Connection", "TE", "Upgrade", "Proxy-Authenticate",
              "Proxy-Authentication-Info", "Proxy-Authorization"):
    rule("without_" + _name.lower().replace("-", "_"),
         origin(HOUR, f"{_name}: x-value", "X-Kept: 1"),
         hit(has=["X-Kept: 1"], lacks=[_name] if _name != "Connection" else []))
rule("without_those_of_connection", origin(HOUR, "Connection: x-a, X-B", "X-A: 1", "x-b: 2",
                                           "X-C: 3",
                                           lacks=["X-A", "X-B"]),
     hit(has=["X-C: 3"], lacks=["X-A", "X-B"]))
rule("without_those_of_two_connections",
     origin(HOUR, "Connection: x-a", "Connection: x-b", "X-A: 1", "X-B: 2"),
     hit(lacks=["X-A", "X-B"]))
for _line in ("Test-Header: a", "X-Test-Header: a", "Content-Foo: a", "X-Content-Foo: a",
              "Content-Encoding: x-none",
              "Content-Language: de", "Content-Location: /elsewhere",
              "Content-MD5: rL0Y20zC+Fzt72VPzMSk2A==",
              "Content-Range: x", "Content-Security-Policy: default-src 'self'",
              "Content-Type: text/x-test",
              "Clear-Site-Data: cookies", 'ETag: "x"', "Set-Cookie: a=b", "Set-Cookie2: a=b",
              "X-Frame-Options: deny",
              "X-XSS-Protection: 1", "Link: </a>; rel=b", "Server: other", "Warning: 299 - x",
              "Trailer: X-T"):
    rule("with_" + _line.split(":", maxsplit=1)[0].lower().replace("-", "_"), origin(HOUR, _line),
         hit(has=[_line]))
rule("of_interim_answers_are_theirs",
     origin(raw=b"HTTP/1.1 102 Processing\r\nCache-Control: max-age=3600\r\nX-A: 1\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1", lacks=["X-A"]), origin(lacks=["X-A"]))
rule("of_chunked_answers_have_a_length",
     origin(
         raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n"
            b"3\r\nabc\r\n0\r\n\r\n"),
     hit(text=b"abc", has=["Content-Length: 3"], lacks=["Transfer-Encoding"]))

# 2
section = "key"
rule("has_the_query", origin(HOUR), origin(to="?a=1"), origin(to="?a=2"), hit(text=b"1"))
rule("is_of_the_same_query", origin(HOUR, to="?a=1"), hit(to="?a=1"))
rule("has_an_empty_query", origin(HOUR), origin(to="?"))
rule("is_of_letters_as_they_are", origin(HOUR, to="/a"), origin(to="/A"))

# 4.1
section = "vary"


def vary(name, header, *requests):
    """Rows of (nr of the answer that is to be had, fields of the request…)."""
    seen, steps = 0, []
    for nr, *fields in requests:
        if nr > seen:
            seen = nr
            steps.append(origin(HOUR, *header, ask=fields, body=b"v%d" % nr))
        else:
            steps.append(hit(*fields, text=b"v%d" % nr))
    rule(name, *steps)


FOO = ["Vary: Foo"]
vary("same", FOO, (1, "Foo: 1"), (1, "Foo: 1"), (1, "foo: 1"))
vary("other", FOO, (1, "Foo: 1"), (2, "Foo: 2"), (1, "Foo: 1"), (2, "Foo: 2"))
vary("absent_is_another", FOO, (1, "Foo: 1"), (2,), (1, "Foo: 1"), (2,))
vary("absent_first", FOO, (1,), (2, "Foo: 1"), (1,))
vary("absent_both", FOO, (1,), (1,))
vary("empty_is_not_absent", FOO, (1, "Foo: "), (2,))
vary("not_by_others", FOO, (1, "Foo: 1"), (1, "Foo: 1", "Bar: 2"))
vary("name_of_any_case", ["vAry: fOO"], (1, "Foo: 1"), (1, "foo: 1"), (2, "FOO: 2"))
vary("value_as_it_is", FOO, (1, "Foo: a"), (2, "Foo: A"))
vary("by_two", ["Vary: Foo, Bar"], (1, "Foo: 1", "Bar: a"), (2, "Foo: 1", "Bar: b"),
     (1, "Bar: a", "Foo: 1"))
vary("by_two_lines", ["Vary: Foo", "Vary: Bar"], (1, "Foo: 1", "Bar: a"), (2, "Foo: 1", "Bar: b"),
     (1, "Foo: 1", "Bar: a"))
vary("by_two_without_one", ["Vary: Foo, Bar"], (1, "Foo: 1"), (1, "Foo: 1"), (2, "Bar: 1"))
vary("by_three", ["Vary: Foo, Bar, Baz"], (1, "Foo: 1", "Bar: a", "Baz: x"),
     (1, "Baz: x", "Bar: a", "Foo: 1"),
     (2, "Foo: 1", "Bar: a", "Baz: y"))
vary("by_name_within_a_name", FOO, (1, "Foo: 1", "Foo-Bar: 1"), (1, "Foo: 1", "Foo-Bar: 2"))
vary("empty", ["Vary: "], (1, "Foo: 1"), (1, "Foo: 2"))
vary("blanks_at_commas_count", FOO, (1, "Foo: 1, 2"), (2, "Foo: 1,2"), (3, "Foo: 1 ,  2"),
     (1, "Foo: 1, 2"))
vary("blanks_around_it_do_not_count", FOO, (1, "Foo: 1, 2"), (1, "Foo:1, 2  "), (1, "Foo:  1, 2"))
vary("lines_count", FOO, (1, "Foo: 1, 2"), (2, "Foo: 1", "Foo: 2"), (3, "Foo: 1:2"),
     (2, "Foo: 1", "Foo: 2"))
vary("empty_elements_count", ["Vary: Origin"], (1, "Origin: https://a.example,"),
     (2, "Origin: https://a.example"),
     (3, "Origin: ,https://a.example"), (4, "Origin: https://a.example", "Origin:"))
vary("order_of_what_is_unknown", FOO, (1, "Foo: 1, 2"), (2, "Foo: 2, 1"))
vary("no_value_passes_for_another_field", ["Vary: A, B"], (1, "A: x", "B: y"), (2, "A: x b:y"))
vary("language_of_any_case_counts", ["Vary: Accept-Language"], (1, "Accept-Language: en, de"),
     (2, "Accept-Language: eN, De"), (3, "Accept-Language: en,de"), (4, "Accept-Language: e n, de"))
vary("encoding_of_any_order_and_case", ["Vary: Accept-Encoding"],
     (1, "Accept-Encoding: gzip, br;q=0.5"),
     (1, "Accept-Encoding: BR; Q=0.5,GZip"), (2, "Accept-Encoding: gzip"),
     (3, "Accept-Encoding: br"), (4,))
vary("weights_of_one", ["Vary: Accept-Encoding"], (1, "Accept-Encoding: gzip, br"),
     (1, "Accept-Encoding: br;q=1.0,gzip; Q=1"), (1, "Accept-Encoding: br;q=1.,gzip;q=1.000"),
     (2, "Accept-Encoding: br;q=0.1,gzip"))
vary("encoding_that_is_none_is_as_it_is", ["Vary: Accept-Encoding"], (1, "Accept-Encoding: g zip"),
     (2, "Accept-Encoding: gzip"),
     (3, "Accept-Encoding: gzip;q=2"), (4, "Accept-Encoding: gzip;q"),
     (5, "Accept-Encoding: gzip;q=0.5555"),
     (6, "Accept-Encoding: gzip;x=1"), (1, "Accept-Encoding: g zip"),
     (7, "Accept-Encoding: g  zip"))
rule("encoding_is_sent_as_it_is_stored",
     origin(HOUR, "Vary: Accept-Encoding", ask=["Accept-Encoding: BR; Q=0.50 ,, gzip;q=1"],
                                                sends=["Accept-Encoding: br;q=0.5,gzip"]))
rule("encodings_are_sent_as_one",
     origin(HOUR, ask=["Accept-Encoding: zstd", "Accept-Encoding: gzip"],
                                         sends=["Accept-Encoding: gzip,zstd"]))
vary("accept_of_another_order", ["Vary: Accept"], (1, "Accept: text/html, text/plain"),
     (2, "Accept: text/plain, text/html"), (1, "Accept: text/html, text/plain"))
vary("not_seen_is_absent", ["Vary: Origin"], (1, "Origin: x", "Connection: close, Origin"), (1,),
     (2, "Origin: x"),
     (1, "Origin: y", "Connection: keep-alive", "Connection: origin"))
vary("not_seen_encoding_is_absent", ["Vary: Accept-Encoding"],
     (1, "Accept-Encoding: gzip", "Connection: Accept-Encoding"), (2, "Accept-Encoding: gzip"),
     (1, "Accept-Encoding: gzip", "Connection: Accept-Encoding"), (2, "Accept-Encoding: gzip"),
     (1,))
vary("hops_are_absent", ["Vary: Keep-Alive, Proxy-Authorization"],
     (1, "Keep-Alive: 1", "Proxy-Authorization: a"), (1,))
vary("by_te", ["Vary: TE"], (1, "TE: trailers", "Connection: TE"), (2, "Connection: TE"),
     (1, "TE: trailers"))
for _name in ("X-Forwarded-For", "forwarded", "Via"):
    rule("of_what_we_add_" + _name.lower().replace("-", "_"),
         origin(HOUR, f"Vary: Accept, {_name}"), origin())
for _name, _lines in [("alone", ["*"]), ("first", ["*, Foo"]), ("last", ["Foo, *"]),
                      ("empty_before", [", *"]),
                      ("twice", ["*, *"]), ("on_two_lines", ["*", "*"]),
                      ("on_the_second_line", ["Foo", "*"]),
                      ("behind_an_empty_line", ["", "*"])]:
    rule("star_" + _name, origin(HOUR, *["Vary: " + x for x in _lines], ask=["Foo: 1"]),
         origin(ask=["Foo: 1"]))
rule("hides_one_without", origin(HOUR, *FOO, stamp("Date", -9), ask=["Foo: 1"]),
     origin(HOUR, ask=["Foo: 2"]), hit("Foo: 1", text=b"1"), hit("Foo: 2", text=b"2"))
rule("hides_none_that_came_in_its_place", origin(HOUR, *FOO, ask=["Foo: 1"]),
     origin(HOUR, ask=["Foo: 1", CC + "no-cache"]), hit("Foo: 1", text=b"2"),
     hit("Foo: 2", text=b"2"))
rule("miss_is_told", origin(HOUR, *FOO, ask=["Foo: 1"], cache=["fwd=uri-miss", "stored"]),
     origin(HOUR, *FOO, ask=["Foo: 2"], cache=["fwd=vary-miss", "stored"]))
rule("is_validated_by_its_own", origin(*STALE[:2], 'ETag: "1"', *FOO, ask=["Foo: 1"]),
     origin(*STALE[:2], 'ETag: "2"', *FOO, ask=["Foo: 2"]),
     origin('ETag: "1"', HOUR, status=304, gets=200, text=b"1", ask=["Foo: 1"],
            sends=['If-None-Match: "1"']))

# 4.3.1, 4.3.3, 4.3.4
section = "validation"
AT = "Sun, 06 Nov 1994 08:49:37 GMT"
rule("by_tag", origin(*STALE, "X-A: 1", "X-B: 1", cache=["stored"]),
     origin('ETag: "a"', HOUR, "X-A: 2", status=304, gets=200, text=b"1",
            sends=['If-None-Match: "a"'],
            cache=["fwd=stale", "fwd-status=304", "stored"], has=["X-A: 2", "X-B: 1"]),
     hit(text=b"1", has=["X-A: 2", "X-B: 1"]))
rule("by_weak_tag", origin(*STALE[:2], 'ETag: W/"a"'),
     origin('ETag: W/"a"', HOUR, status=304, gets=200, text=b"1", sends=['If-None-Match: W/"a"']),
     hit(text=b"1"))
rule("by_tag_without_quotes", origin(*STALE[:2], "ETag: a"),
     origin("ETag: a", HOUR, status=304, gets=200, text=b"1", sends=["If-None-Match: a"]),
     hit(text=b"1"))
rule("by_date", origin(*STALE[:2], f"Last-Modified: {AT}"),
     origin(f"Last-Modified: {AT}", HOUR, status=304, gets=200, text=b"1",
            sends=[f"If-Modified-Since: {AT}"],
            unsent=["If-None-Match"]), hit(text=b"1"))
rule("by_both", origin(*STALE, f"Last-Modified: {AT}"),
     origin(HOUR, status=304, gets=200, text=b"1",
            sends=['If-None-Match: "a"', f"If-Modified-Since: {AT}"]),
     hit(text=b"1"))
rule("without_validator", origin(*STALE[:1], "Age: 99"), origin(HOUR, ask=[CC + "no-cache"],
                                                                unsent=["If-None-Match",
                                                                        "If-Modified-Since"]))
rule("brings_another", origin(*STALE), origin(HOUR, 'ETag: "b"', sends=['If-None-Match: "a"']),
     hit())
rule("brings_an_error", origin(*STALE), origin(status=404))
MAX_STALE = CC + "max-stale"
for _name, _fields, _more in [("no_store", [CC + "no-store"], {}),
                              ("private", [HOUR + ", private"], {}),
                              ("star", [HOUR, "Vary: *"], {}), ("not_found", [], {"status": 404})]:
    rule(f"brings_{_name}_in_the_stales_place", origin(*STALE), origin(*_fields, **_more),
         origin(ask=[MAX_STALE], cache=["fwd=uri-miss"]))
rule("brings_an_error_beside_the_stale", origin(*STALE), origin(status=500),
     hit(MAX_STALE, gets=200, text=b"1"))
for _name, _line in [("no_store", CC + "no-store"), ("authorization", "Authorization: Basic eDp5")]:
    rule(f"brings_another_for_{_name}_alone", origin(*STALE), origin(HOUR, ask=[_line]),
         hit(MAX_STALE, text=b"1"))
    rule(f"brings_no_store_for_{_name}_alone", origin(*STALE), origin(CC + "no-store", ask=[_line]),
         hit(MAX_STALE, text=b"1"))
rule("brings_nothing_for_head", origin(*STALE), origin(method="HEAD", status=404),
     hit(MAX_STALE, gets=200, text=b"1"))
rule("brings_a_redirect", origin(*STALE), origin(HOUR, "Location: /x", status=301), hit())
rule("of_a_304_without_validators", origin(*STALE), origin(HOUR, status=304, gets=200, text=b"1"),
     hit(text=b"1"))
rule("makes_no_cache_again", origin(*STALE),
     origin(CC + "no-cache", status=304, gets=200, text=b"1"),
     origin(status=304, gets=200, text=b"1"))
rule("makes_no_store", origin(*STALE), origin(CC + "no-store", status=304, gets=200, text=b"1"),
     origin())
for _name, _fields in [("no_store", [CC + "no-store"]),
                       ("authorization", ["Authorization: Basic eDp5"])]:
    rule(f"for_{_name}_changes_nothing", origin(*STALE),
         origin(HOUR, status=304, gets=200, text=b"1", ask=_fields, sends=['If-None-Match: "a"']),
         origin(HOUR, status=304, gets=200, text=b"1", sends=['If-None-Match: "a"'],
                cache=["fwd=stale", "stored"]))
    rule(f"for_{_name}_withdraws_what_nobody_may_store", origin(*STALE),
         origin(CC + "no-store", status=304, gets=200, text=b"1", ask=_fields),
         origin(unsent=["If-None-Match"], cache=["fwd=uri-miss"]))
    rule(f"of_head_for_{_name}_changes_nothing", origin(HOUR, 'ETag: "a"'),
         origin(HOUR, 'ETag: "a"', method="HEAD", ask=[*_fields, CC + "no-cache"]), hit(text=b"1"))
rule("keeps_the_lifetime", origin(CC + "max-age=100", "Age: 200", 'ETag: "a"'),
     origin('ETag: "a"', status=304, gets=200, text=b"1"), hit(text=b"1", age=(0, 30)))
rule("by_expires_anew", origin(stamp("Date", -200), stamp("Expires", -100), 'ETag: "a"'),
     origin('ETag: "a"', stamp("Expires", 3600), status=304, gets=200, text=b"1"), hit(text=b"1"))
rule("replaces_the_date", origin(*STALE, "Date: " + AT),
     origin('ETag: "a"', HOUR, status=304, gets=200, text=b"1"), hit(text=b"1", age=(0, 30)))
for _line in ("Test-Header: b", "X-Test-Header: b", "Content-Foo: b", "X-Content-Foo: b",
              "Content-Language: fr", "Content-Location: /there", "Content-Type: text/x-other",
              "X-Frame-Options: allow",
              "Content-Security-Policy: default-src 'none'", "Set-Cookie: c=d", "Set-Cookie2: c=d",
              "X-XSS-Protection: 0", "Clear-Site-Data: storage", "Link: </b>; rel=b",
              "Server: another"):
    _name = _line.split(":", maxsplit=1)[0]
    rule("updates_" + _name.lower().replace("-", "_"), origin(*STALE, f"{_name}: old"),
         origin('ETag: "a"', HOUR, _line, status=304, gets=200, text=b"1", has=[_line]),
         hit(text=b"1", has=[_line]))
# what tells of the stored bytes stays, or stays away (8.4 of RFC 9110, 2 of RFC 9530)
for _line in ("Content-Encoding: x-other", "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==",
              "Content-Digest: sha-256=:AA==:",
              "Content-Range: bytes 0-0/9"):
    _name = _line.split(":", maxsplit=1)[0]
    for _what, _old in (("keeps_the", [f"{_name}: old"]), ("takes_no", [])):
        _like = {"has": _old} if _old else {"lacks": [_name]}
        rule(f"{_what}_{_name.lower().replace('-', '_')}", origin(*STALE, *_old),
             origin('ETag: "a"', HOUR, _line, status=304, gets=200, text=b"1", **_like),
             hit(text=b"1", **_like))
rule("never_updates_the_length", origin(*STALE),
     origin(raw=b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 99\r\n'
            b"Cache-Control: max-age=60\r\n\r\n", gets=200),
     hit(text=b"1", has=["Content-Length: 1"]))
rule("brings_no_hops", origin(*STALE, "X-A: 1"),
     origin('ETag: "a"', HOUR, "Connection: x-h", "X-H: 1", "Keep-Alive: 9", status=304, gets=200,
            text=b"1"),
     hit(text=b"1", has=["X-A: 1"], lacks=["X-H", "Keep-Alive"]))
for _status in (204, 301, 404, 503):
    rule(f"not_of_{_status}", origin(*STALE, f"Last-Modified: {AT}", status=_status),
         origin(HOUR, unsent=["If-None-Match", "If-Modified-Since"]), hit(text=b"2"))
    rule(f"keeps_no_{_status}_without_a_lifetime",
         origin(CC + "max-age=0", 'ETag: "a"', status=_status),
         origin(cache=["fwd=uri-miss"]))
rule("of_203", origin(*STALE, status=203),
     origin(HOUR, status=304, gets=203, text=b"1", sends=['If-None-Match: "a"']), hit(text=b"1"))
for _directive in ("no-cache", "private"):
    _name = _directive.replace("-", "_")
    rule(f"brings_back_no_{_name}_fields", origin(CC + f'max-age=1, {_directive}="Set-Cookie, x-a"',
                                                  *STALE[1:]),
         origin("Set-Cookie: a=b", "X-A: 1", "X-B: 1", "Age: 0", status=304, gets=200, text=b"1",
                lacks=["Set-Cookie", "X-A"]),
         hit(CC + "max-stale", text=b"1", has=["X-B: 1"], lacks=["Set-Cookie", "X-A"]))
    rule(f"drops_what_is_now_of_{_name}_fields", origin(*STALE, "X-A: 1", "X-B: 1"),
         origin(HOUR + f', {_directive}="X-A"', status=304, gets=200, text=b"1"),
         hit(text=b"1", has=["X-B: 1"], lacks=["X-A"]))
rule("replaces_all_lines", origin(*STALE, "X-A: 1", "X-A: 2"),
     origin('ETag: "a"', HOUR, "X-A: 3", status=304, gets=200, text=b"1", has=["X-A: 3"]),
     hit(text=b"1", has=["X-A: 3"]))
rule("hides_the_clients_conditions", origin(*STALE),
     origin('ETag: "a"', HOUR, status=304, gets=200, text=b"1",
            ask=['If-None-Match: "z"', f"If-Modified-Since: {AT}"],
            sends=['If-None-Match: "a"'], unsent=["If-Modified-Since"]))
rule("answers_the_clients_condition", origin(*STALE),
     origin('ETag: "a"', HOUR, status=304, gets=304, ask=['If-None-Match: "a"'],
            sends=['If-None-Match: "a"']))

# 4.3.2, and 13 of RFC 9110
section = "condition"


def condition(name, stored, status, *fields):
    rule(name, origin(HOUR, *stored), hit(*fields, gets=status))


TAG, WEAK, LM = 'ETag: "a"', 'ETag: W/"a"', f"Last-Modified: {AT}"
condition("tag", [TAG], 304, 'If-None-Match: "a"')
condition("tag_is_another", [TAG], 200, 'If-None-Match: "b"')
condition("tag_of_any_case_is_another", [TAG], 200, 'If-None-Match: "A"')
condition("tag_in_a_list_first", [TAG], 304, 'If-None-Match: "a", "b"')
condition("tag_in_a_list_last", [TAG], 304, 'If-None-Match: "b", "a"')
condition("tag_in_a_list_without_blanks", [TAG], 304, 'If-None-Match: "b","a","c"')
condition("tag_in_a_list_with_weak_ones", [TAG], 304, 'If-None-Match: W/"b", W/"a"')
condition("tag_on_the_second_line", [TAG], 304, 'If-None-Match: "b"', 'If-None-Match: "a"')
condition("tag_with_a_comma", ['ETag: "a,b"'], 304, 'If-None-Match: "x", "a,b"')
condition("tag_with_a_backslash", ['ETag: "a\\b"'], 304, 'If-None-Match: "a\\b"')
condition("tag_with_high_bytes", ['ETag: "a\xffb"'], 304, 'If-None-Match: "a\xffb"')
condition("tag_that_is_empty", ['ETag: ""'], 304, 'If-None-Match: ""')
condition("tag_any", [TAG], 304, "If-None-Match: *")
condition("tag_any_without_one", [], 304, "If-None-Match: *")
condition("tag_without_one", [], 200, 'If-None-Match: "a"')
condition("weak_for_strong", [TAG], 304, 'If-None-Match: W/"a"')
condition("strong_for_weak", [WEAK], 304, 'If-None-Match: "a"')
condition("weak_for_weak", [WEAK], 304, 'If-None-Match: W/"a"')
condition("weak_in_small_letters", [WEAK], 200, 'If-None-Match: w/"a"')
condition("weak_without_slash", [WEAK], 200, 'If-None-Match: W"a"')
condition("unquoted_for_quoted", [TAG], 200, "If-None-Match: a")
condition("quoted_for_unquoted", ["ETag: a"], 200, 'If-None-Match: "a"')
condition("date", [LM], 304, f"If-Modified-Since: {AT}")
condition("date_later", [LM], 304, "If-Modified-Since: Mon, 07 Nov 1994 08:49:37 GMT")
condition("date_earlier", [LM], 200, "If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT")
condition("date_rfc850", [LM], 304, "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT")
condition("date_asctime", [LM], 304, "If-Modified-Since: Sun Nov  6 08:49:37 1994")
condition("date_invalid", [LM], 200, "If-Modified-Since: never")
condition("date_against_date", [], 304, stamp("If-Modified-Since", 5))
condition("date_against_an_earlier_date", [], 200, f"If-Modified-Since: {AT}")
condition("tag_goes_first_differs", [TAG, LM], 200, 'If-None-Match: "b"',
          f"If-Modified-Since: {AT}")
condition("tag_goes_first_same", [TAG, LM], 304, 'If-None-Match: "a"',
          "If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT")
rule("not_of_other_status", origin(HOUR, TAG, status=404), hit('If-None-Match: "a"', gets=404))
rule("of_head", origin(HOUR, TAG), hit('If-None-Match: "a"', method="HEAD", gets=304))
rule("of_a_variant", origin(HOUR, TAG, *FOO, ask=["Foo: 1"]),
     hit("Foo: 1", 'If-None-Match: "a"', gets=304))
rule("of_another_variant", origin(HOUR, TAG, *FOO, ask=["Foo: 1"]),
     origin(TAG, ask=["Foo: 2", 'If-None-Match: "a"'], status=304, sends=['If-None-Match: "a"']))
rule("told_again", origin(HOUR, TAG, LM, "Vary: Foo", "Content-Location: /x", stamp("Expires", 5),
                          "X-A: 1"),
     hit('If-None-Match: "a"', gets=304, has=[TAG, HOUR, "Vary: Foo", "Content-Location: /x"],
         lacks=["X-A", "Content-Length"]))
# without a stored one the whole is fetched, and answers as if it had been stored
for _name, _ask, _gets in (("same", 'If-None-Match: "a"', 304),
                           ("differs", 'If-None-Match: "b"', 200),
                           ("date", f"If-Modified-Since: {AT}", 304),
                           ("earlier", "If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT", 200)):
    rule(f"fills_the_cache_{_name}", origin(HOUR, TAG, LM, "X-A: 1", ask=[_ask], gets=_gets,
                                            cache=["fwd=uri-miss", "stored"],
                                            lacks=["X-A", "Content-Length"] if _gets == 304 else [],
                                            unsent=["If-None-Match", "If-Modified-Since"]),
         hit(has=["X-A: 1"]))
rule("goes_on_where_nothing_is_stored", origin(CC + "no-store", TAG, ask=['If-None-Match: "a"'],
                                               gets=304,
                                               unsent=["If-None-Match"], lacks=["Content-Length"]),
     origin(TAG, status=304, ask=['If-None-Match: "a"'], sends=['If-None-Match: "a"']),
     origin(TAG, status=304, ask=['If-None-Match: "a"'], sends=['If-None-Match: "a"']))
rule("goes_on_beside_a_range",
     origin(TAG, status=304, ask=['If-None-Match: "a"', "Range: bytes=0-0"],
            sends=['If-None-Match: "a"']))
rule("if_match_is_the_origins", origin(HOUR, TAG), origin(ask=['If-Match: "a"'], status=412,
                                                          sends=['If-Match: "a"'],
                                                          cache=["fwd=bypass"]))
rule("if_unmodified_is_the_origins", origin(HOUR, LM),
     origin(ask=[f"If-Unmodified-Since: {AT}"], status=412, sends=[f"If-Unmodified-Since: {AT}"]))

# 4.3.5, and 9.3 of RFC 9110
section = "method"
rule("head_of_a_stored_get", origin(HOUR, "X-A: 1", body=b"four"),
     hit(method="HEAD", has=["Content-Length: 4", "X-A: 1"]))
rule("head_is_not_stored_as_get", origin(HOUR, method="HEAD"), origin(HOUR, body=b"four"))
rule("head_is_the_origins_when_stale", origin(*STALE), origin(method="HEAD", cache=["fwd=stale"]))
rule("head_freshens", origin(*STALE, "X-A: 1", "X-B: 1"),
     origin(TAG, HOUR, "X-A: 2", method="HEAD"),
     hit(text=b"1", has=["X-A: 2", "X-B: 1"]))
rule("head_freshens_without_validators", origin(CC + "max-age=1", "Age: 0", OLD),
     origin(HOUR, OLD, "X-A: 2", method="HEAD", ask=[CC + "no-cache"]),
     hit(text=b"1", has=["X-A: 2"]))
rule("head_of_another_tag_withdraws", origin(HOUR, TAG),
     origin('ETag: "b"', HOUR, method="HEAD", ask=[CC + "no-cache"]),
     origin(HOUR))
rule("head_of_another_length_withdraws", origin(HOUR, TAG),
     origin(raw=b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: "a"\r\n\r\n', method="HEAD",
            ask=[CC + "no-cache"]),
     origin(HOUR))
rule("post_withdraws", origin(HOUR), origin(method="POST", content=b"x"), origin(HOUR))
POSTED = {"method": "POST", "content": b"x"}
rule("post_is_stored_for_get", origin(HOUR, "Content-Location: {path}", body=b"posted", **POSTED),
     hit(text=b"posted"))
rule("post_is_stored_in_place", origin(HOUR),
     origin(HOUR, "Content-Location: {path}", body=b"posted", **POSTED),
     hit(text=b"posted"))
rule("post_by_an_absolute_uri", origin(HOUR, "Content-Location: http://test{path}", body=b"posted",
                                       **POSTED),
     hit(text=b"posted"))
rule("post_never_answers_post", origin(HOUR, "Content-Location: {path}", **POSTED),
     origin(HOUR, **POSTED))
rule("post_without_content_location", origin(HOUR, **POSTED), origin())
rule("post_of_another_location", origin(HOUR, "Content-Location: {path}x", **POSTED), origin())
rule("post_of_another_authority", origin(HOUR, "Content-Location: http://other{path}", **POSTED),
     origin())
rule("post_without_a_lifetime", origin(OLD, "Content-Location: {path}", **POSTED), origin())
rule("post_of_no_lifetime", origin(CC + "max-age=0", "Content-Location: {path}", **POSTED),
     origin())
rule("post_private", origin(HOUR + ", private", "Content-Location: {path}", **POSTED), origin())
rule("post_that_failed", origin(HOUR, "Content-Location: {path}", status=500, **POSTED), origin())
rule("put_is_not_stored", origin(HOUR, "Content-Location: {path}", method="PUT", content=b"x"),
     origin())
rule("options_is_not_stored", origin(HOUR, method="OPTIONS"), origin())
rule("unknown_is_not_stored", origin(HOUR, "Content-Location: {path}", method="FOO", content=b"x"),
     origin())

# 4.4
section = "invalidation"
for _method in ("POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "FOO"):
    _more = {"method": _method, "content": b"x"}
    _name = _method.lower().replace("-", "_")
    rule(f"by_{_name}", origin(HOUR), hit(), origin(cache=["fwd=method"], **_more), origin())
    rule(f"not_by_a_failed_{_name}", origin(HOUR), origin(status=500, **_more), hit())
    rule(f"by_{_name}_of_location", origin(HOUR, to="/b"), origin("Location: {path}/b", **_more),
         origin(to="/b"))
    rule(f"by_{_name}_of_content_location", origin(HOUR, to="/b"),
         origin("Content-Location: {path}/b", **_more),
         origin(to="/b"))
    rule(f"not_by_a_failed_{_name}_of_location", origin(HOUR, to="/b"),
         origin("Location: {path}/b", status=500, **_more), hit(to="/b"))
    rule(f"not_by_{_name}_of_another_host", origin(HOUR, to="/b"),
         origin("Location: http://other{path}/b", "Content-Location: http://other{path}/b",
                **_more), hit(to="/b"))
POST = {"method": "POST", "content": b"x"}
for _name, _status, _how in [("client_error", 404, hit), ("redirect", 303, origin),
                             ("creation", 201, origin),
                             ("no_content", 204, origin)]:
    rule("by_the_answer_" + _name, origin(HOUR), origin(status=_status, **POST), _how())
for _name, _value, _how in [("absolute", "http://test{path}/b", origin),
                            ("other_case", "http://TEST{path}/b", origin),
                            ("default_port", "http://test:80{path}/b", origin),
                            ("other_port", "http://test:81{path}/b", hit),
                            ("other_scheme", "https://test{path}/b", hit),
                            ("begins_alike", "http://testify{path}/b", hit),
                            ("network_path", "//other{path}/b", hit),
                            ("own_network_path", "//test{path}/b", origin),
                            ("fragment", "{path}/b#top", origin),
                            ("dot_segments", "{path}/c/../b", origin)]:
    rule("by_location_" + _name, origin(HOUR, to="/b"),
         origin("Location: " + _value, status=201, **POST), _how(to="/b"))
rule("of_all_variants", origin(HOUR, *FOO, ask=["Foo: 1"]), origin(HOUR, *FOO, ask=["Foo: 2"]),
     origin(**POST),
     origin(ask=["Foo: 1"]), origin(ask=["Foo: 2"]))
rule("of_the_query_alone", origin(HOUR), origin(HOUR, to="?a"), origin(to="?a", **POST),
     hit(text=b"1"), origin(to="?a"))
for _method in ("OPTIONS", "HEAD"):
    rule("not_by_" + _method.lower(), origin(HOUR), origin(method=_method, ask=[CC + "no-cache"]),
         hit())

# 4.2.4, and RFC 5861
section = "stale"
rule("is_validated", origin(*STALE), origin(HOUR, cache=["fwd=stale", "fwd-status=200", "stored"]),
     hit())
rule("without_validator_is_fetched", origin(*STALE[:2]), origin(HOUR, cache=["fwd=stale"]), hit())
rule("if_error_of_no_lifetime", origin(CC + "max-age=0, stale-if-error=600"),
     origin(status=503, gets=200, text=b"1"))
rule("while_revalidate_of_no_lifetime",
     origin(CC + "max-age=0, stale-while-revalidate=600", cache=["stored"]))
rule("if_error_of_no_lifetime_and_must_revalidate",
     origin(CC + "max-age=0, stale-if-error=600, must-revalidate"),
     origin(cache=["fwd=uri-miss"]))
rule("for_no_time_without_validator_is_not_kept", origin(CC + "max-age=0"),
     origin(cache=["fwd=uri-miss"]))
for _status in (500, 502, 503, 504):
    rule(f"if_error_{_status}", origin(CC + "max-age=100, stale-if-error=600", *STALE[1:]),
         origin(status=_status, gets=200, text=b"1"))
    rule(f"not_if_error_{_status}", origin(*STALE), origin(status=_status))
rule("not_if_404", origin(CC + "max-age=100, stale-if-error=600", *STALE[1:]), origin(status=404))
rule("not_if_error_too_long_ago", origin(CC + "max-age=100, stale-if-error=60", *STALE[1:]),
     origin(status=503))
rule("if_error_by_request", origin(*STALE),
     origin(status=503, ask=[CC + "stale-if-error=600"], gets=200, text=b"1"))
for _directive in ("must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=1"):
    rule("not_if_error_" + _directive.replace("-", "_").replace("=", "_"),
         origin(CC + f"max-age=100, stale-if-error=600, {_directive}", *STALE[1:]),
         origin(status=503))
rule("while_revalidate_too_long_ago",
     origin(CC + "max-age=100, stale-while-revalidate=60", *STALE[1:]), origin())
rule("while_revalidate_not_of_must_revalidate",
     origin(CC + "max-age=100, stale-while-revalidate=600, must-revalidate", *STALE[1:]), origin())
rule("while_revalidate_not_of_no_cache",
     origin(CC + "max-age=100, stale-while-revalidate=600", *STALE[1:]),
     origin(ask=[CC + "no-cache"]))

# 3.3 and 3.4, and 14 of RFC 9110
section = "range"
BODY = b"0123456789"
WHOLE = origin(HOUR, stamp("Expires", 3600), "CDN-Cache-Control: max-age=3600", TAG, LM, body=BODY)
for _text, _a, _b in [("0-4", 0, 5), ("5-", 5, 10), ("-3", 7, 10), ("9-99", 9, 10), ("-99", 0, 10),
                      ("0-0", 0, 1)]:
    rule("of_the_whole_" + _text.replace("-", "_"), WHOLE,
         hit(f"Range: bytes={_text}", gets=206, text=BODY[_a:_b], lacks=["Transfer-Encoding"],
             has=[f"Content-Range: bytes {_a}-{_b - 1}/10", f"Content-Length: {_b - _a}", TAG]))
for _text in ("10-", "-0", "10-20"):
    rule("not_in_the_whole_" + _text.replace("-", "_"), WHOLE,
         hit(f"Range: bytes={_text}", gets=416, has=["Content-Range: bytes */10", TAG],
             lacks=["Cache-Control", "Expires", "CDN-Cache-Control"]))
for _name, _text in [("malformed", "bytes=a-b"), ("backwards", "bytes=5-2"),
                     ("other_unit", "lines=0-1"),
                     ("empty", "bytes="), ("dash_alone", "bytes=-")]:
    rule(_name + "_is_ignored", WHOLE, hit("Range: " + _text, gets=200, text=BODY))
rule("if_range_of_the_same_tag", WHOLE,
     hit("Range: bytes=0-1", 'If-Range: "a"', gets=206, text=b"01"))
rule("if_range_of_another_tag", WHOLE,
     hit("Range: bytes=0-1", 'If-Range: "b"', gets=200, text=BODY))
rule("if_range_of_a_weak_tag", origin(HOUR, WEAK, body=BODY),
     hit("Range: bytes=0-1", 'If-Range: W/"a"', gets=200, text=BODY))
rule("if_range_of_the_same_date", WHOLE,
     hit("Range: bytes=0-1", f"If-Range: {AT}", gets=206, text=b"01"))
rule("if_range_of_another_date", WHOLE,
     hit("Range: bytes=0-1", "If-Range: Mon, 07 Nov 1994 08:49:37 GMT", gets=200, text=BODY))
for _name, _second, _status in [("weak", 37, 200), ("still_weak", 36, 200), ("strong", 38, 206)]:
    rule(f"if_range_of_a_{_name}_date",
         origin(CC + "max-age=2147483647", LM, f"Date: {AT[:23]}{_second}{AT[25:]}", body=BODY),
         hit("Range: bytes=0-1", f"If-Range: {AT}", gets=_status, text=BODY[:2] if _status == 206
             else BODY))
rule("after_the_condition", WHOLE, hit("Range: bytes=0-1", 'If-None-Match: "a"', gets=304))
rule("not_of_head", WHOLE,
     hit("Range: bytes=0-1", method="HEAD", gets=200, has=["Content-Length: 10"]))
rule("not_of_404", origin(HOUR, status=404, body=BODY),
     hit("Range: bytes=0-1", gets=404, text=BODY))
rule("ignored_by_the_origin", origin(HOUR, TAG, body=BODY, ask=["Range: bytes=0-1"], gets=200),
     hit(text=BODY), hit("Range: bytes=2-3", gets=206, text=b"23"))
rule("of_the_stale_is_fetched_whole", origin(*STALE, body=BODY),
     origin(TAG, HOUR, status=304, ask=["Range: bytes=2-3"], gets=206, text=b"23", unsent=["Range"],
            sends=['If-None-Match: "a"']), hit("Range: bytes=4-5", gets=206, text=b"45"))

section = "part"


def part(a, b, *fields, ask=None, size=10, **more):
    """The origin answers with bytes a to b of what is asked for like that."""
    more.setdefault("gets", 206)
    more.setdefault("text", BODY[a:b + 1])
    return origin(*(fields or [HOUR, TAG]), f"Content-Range: bytes {a}-{b}/{size}", status=206,
                  body=BODY[a:b + 1],
                  ask=[f"Range: bytes={a}-{b}"] if ask is None else ask, **more)


def held(text, a, b, *fields, **more):
    """It is answered without the origin."""
    return hit(f"Range: bytes={text}", *fields, gets=206, text=BODY[a:b + 1],
               lacks=["Transfer-Encoding"],
               has=[f"Content-Range: bytes {a}-{b}/10", f"Content-Length: {b - a + 1}"], **more)


rule("answers_the_same", part(2, 5, cache=["stored"]), held("2-5", 2, 5))
rule("answers_what_is_within", part(2, 5), held("3-4", 3, 4), held("2-2", 2, 2), held("5-5", 5, 5))
rule("answers_a_suffix", part(5, 9, ask=["Range: bytes=-5"]), held("-5", 5, 9), held("-2", 8, 9),
     held("7-", 7, 9))
rule("with_its_fields_and_age", part(2, 5, HOUR, TAG, "X-A: 1", "Age: 50"),
     held("2-5", 2, 5, age=(50, 80)))
rule("without_validator", part(2, 5, HOUR), held("3-4", 3, 4))
rule("with_a_weak_tag", part(2, 5, HOUR, WEAK), held("3-4", 3, 4))
rule("with_a_heuristic_lifetime", part(2, 5, OLD), held("3-4", 3, 4))
rule("by_its_if_range", part(2, 5), held("3-4", 3, 4, 'If-Range: "a"'))
rule("not_by_another_if_range", part(2, 5),
     origin(body=BODY, ask=["Range: bytes=3-4", 'If-Range: "b"'],
                                                   sends=['If-Range: "b"']))
rule("by_what_vary_names", part(2, 5, HOUR, TAG, *FOO, ask=["Range: bytes=2-5", "Foo: 1"]),
     held("2-5", 2, 5, "Foo: 1"), part(2, 5, HOUR, *FOO, ask=["Range: bytes=2-5", "Foo: 2"]))
for _name, _fields in [("with_a_tag", [HOUR, TAG]), ("without_a_tag", [HOUR])]:
    rule("of_all_bytes_is_the_whole_" + _name,
         part(0, 9, *_fields, ask=["Range: bytes=0-"], cache=["stored"]),
         hit(gets=200, text=BODY, has=["Content-Length: 10"], lacks=["Content-Range"]),
         held("0-", 0, 9), held("3-4", 3, 4))
rule("of_all_bytes_is_not_validated", part(0, 9, *STALE), origin(HOUR, TAG, body=BODY))
rule("never_answers_the_whole", part(0, 4, HOUR),
     origin(HOUR, body=BODY, unsent=["Range"], cache=["fwd=partial"]),
     hit(text=BODY))
rule("never_answers_more", part(2, 5, HOUR), part(2, 6, HOUR, cache=["fwd=partial"]),
     held("6-6", 6, 6))
rule("never_answers_a_condition", part(2, 5),
     origin(HOUR, TAG, status=304, ask=["Range: bytes=2-5", 'If-None-Match: "a"']))
rule("never_answers_head", part(2, 5), origin(HOUR, TAG, method="HEAD"))
rule("not_of_no_store", part(2, 5, HOUR + ", no-store"), part(2, 5))
rule("not_of_private", part(2, 5, HOUR + ", private"), part(2, 5))
rule("not_of_no_lifetime", part(2, 5, CC + "max-age=0", TAG), part(2, 5))
rule("not_of_a_stale_one", part(2, 5, *STALE), part(2, 5, cache=["fwd=stale"]))
rule("not_of_no_cache", part(2, 5),
     part(2, 5, ask=["Range: bytes=2-5", CC + "no-cache"], cache=["fwd=request"]))
rule("not_of_an_unknown_size", part(2, 5, size="*"), part(2, 5))
rule("not_of_another_length", part(2, 6, size=5), part(2, 6))
rule("not_of_what_was_not_asked_for", part(2, 5, ask=()), part(2, 5))
rule("not_of_several_parts", origin(HOUR, TAG, "Content-Type: multipart/byteranges; boundary=x",
                                    status=206, body=b"x",
                                    ask=["Range: bytes=0-1,4-5"], text=b"x"), part(0, 1))
rule("joins_the_next", part(0, 4), part(5, 7), held("3-7", 3, 7), held("0-7", 0, 7))
rule("joins_the_one_before", part(5, 7), part(2, 4), held("2-7", 2, 7))
rule("joins_what_overlaps", part(2, 5), part(4, 8), held("2-8", 2, 8))
rule("joins_what_is_around", part(4, 5), part(2, 8), held("2-8", 2, 8))
rule("joined_is_the_whole", part(0, 4), part(5, 9, HOUR, TAG, "X-A: 2"),
     hit(gets=200, text=BODY, has=["Content-Length: 10", "X-A: 2"], lacks=["Content-Range"]),
     hit('If-None-Match: "a"', gets=304), held("4-5", 4, 5))
rule("joined_has_the_newer_fields", part(0, 4, HOUR, TAG, "X-A: 1", "X-B: 1"),
     part(5, 7, HOUR, TAG, "X-A: 2"),
     hit("Range: bytes=0-7", gets=206, text=BODY[:8], has=["X-A: 2", "X-B: 1"]))
rule("joined_has_no_private_fields", part(0, 4, HOUR + ', private="X-A"', TAG),
     part(5, 7, TAG, stamp("Expires", 99), "X-A: 1", "X-B: 1"),
     hit("Range: bytes=0-7", gets=206, text=BODY[:8], has=["X-B: 1"], lacks=["X-A"]))
rule("joins_no_other_tag", part(0, 4), part(5, 9, HOUR, 'ETag: "b"'), held("6-7", 6, 7), part(0, 4))
rule("joins_no_weak_tag", part(0, 4, HOUR, WEAK), part(5, 9, HOUR, WEAK), part(0, 4, HOUR, WEAK))
rule("joins_none_without_tag", part(0, 4, HOUR), part(5, 9, HOUR), part(0, 4, HOUR))
rule("joins_none_of_another_size", part(0, 4), part(5, 9, size=11), part(0, 4))
rule("joins_nothing_over_a_gap", part(0, 2), part(5, 9), held("6-7", 6, 7), part(0, 2))
rule("that_was_stale_is_joined", part(0, 4, *STALE), part(5, 9), hit(gets=200, text=BODY))
REST = {"sends": ["Range: bytes=5-", 'If-Range: "a"'], "unsent": ["If-None-Match"]}
rule("is_completed", part(0, 4), part(5, 9, HOUR, TAG, "X-A: 2", ask=(), gets=200, text=BODY,
                                      has=["Content-Length: 10", "X-A: 2"], lacks=["Content-Range"],
                                      cache=["fwd=partial", "fwd-status=206", "stored"], **REST),
     hit(gets=200, text=BODY))
rule("is_completed_from_behind", part(5, 9),
     part(0, 4, ask=(), gets=200, text=BODY, sends=["Range: bytes=0-4"]),
     hit(gets=200, text=BODY))
rule("is_completed_by_chunks", part(0, 4),
     origin(raw=b"HTTP/1.1 206 x\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes 5-9/10\r\n" +
            f'{TAG}\r\n{HOUR}\r\n\r\n5\r\n56789\r\n0\r\n\r\n'.encode(), gets=200, **REST),
     hit(gets=200, text=BODY))
rule("is_completed_but_not_stored", part(0, 4),
     part(5, 9, CC + "no-store", TAG, ask=(), gets=200, text=BODY, **REST),
     held("1-2", 1, 2))
rule("has_become_another", part(0, 4), origin(HOUR, 'ETag: "b"', body=b"another", **REST),
     hit(text=b"another"))
rule("is_gone", part(0, 4), origin(status=404, **REST))
rule("is_not_completed_from_the_middle", part(2, 4),
     origin(HOUR, TAG, body=BODY, unsent=["Range"], cache=["fwd=partial"]))
rule("gives_way_to_the_whole", part(0, 4), origin(HOUR, TAG, body=BODY, ask=[CC + "no-cache"]),
     held("2-6", 2, 6))
rule("does_not_take_the_wholes_place", origin(HOUR, TAG, body=BODY),
     part(0, 4, ask=["Range: bytes=0-4", 'If-Match: "a"']), hit(gets=200, text=BODY))
rule("is_withdrawn", part(0, 4), origin(method="POST", content=b"x"), part(0, 4))

# RFC 9213
section = "targeted"
CDN = "CDN-Cache-Control: "
fresh("max_age", CDN + "max-age=3600")
fresh("goes_before_max_age", CDN + "max-age=3600", CC + "max-age=0")
fresh("goes_before_no_store", CDN + "max-age=3600", CC + "no-store")
fresh("goes_before_private", CDN + "max-age=3600", CC + "private")
fresh("goes_before_no_cache", CDN + "max-age=3600", CC + "no-cache")
fresh("goes_before_expires", CDN + "max-age=3600", stamp("Expires", -3600))
fresh("goes_before_pragma", CDN + "max-age=3600", "Pragma: no-cache")
fresh("of_31_bits", CDN + "max-age=2147483647")
fresh("beyond_31_bits", CDN + "max-age=2147483648")
fresh("with_extensions", CDN + "max-age=3600, ext, foo=bar, baz=(1 2);x")
fresh("with_parameters", CDN + "max-age=3600;a=b;c")
fresh("on_two_lines", CDN + "public", CDN + "max-age=3600")
fresh("s_maxage", CDN + "max-age=0, s-maxage=3600")
fresh("the_last_of_a_name", CDN + "max-age=0, max-age=3600")
fresh("empty_is_ignored", CDN, CC + "max-age=3600")
fresh("invalid_is_ignored_comma", CDN + "max-age=0,", CC + "max-age=3600")
fresh("invalid_is_ignored_capitals", CDN + "MAX-AGE=0", CC + "max-age=3600")
fresh("invalid_is_ignored_text", CDN + "max-age=0, &&&&", CC + "max-age=3600")
fresh("invalid_is_ignored_blank", CDN + "max-age= 0", CC + "max-age=3600")
spent("zero", CDN + "max-age=0", CC + "max-age=3600")
spent("zero_before_expires", CDN + "max-age=0", stamp("Expires", 3600))
spent("age", CDN + "max-age=3600", "Age: 7200")
spent("no_store", CDN + "no-store", CC + "max-age=3600")
spent("private", CDN + "private", CC + "max-age=3600")
spent("no_cache", CDN + "no-cache", CC + "max-age=3600")
spent("says_nothing_of_a_lifetime", CDN + "foo", stamp("Expires", 3600))
spent("wrong_type", CDN + 'max-age="3600"', CC + "max-age=3600")
spent("wrong_type_decimal", CDN + "max-age=3600.0", CC + "max-age=3600")
spent("wrong_type_token", CDN + "max-age=soon", CC + "max-age=3600")
spent("invalid_alone", CDN + "max-age =3600")
rule("is_passed_on", origin(CDN + "max-age=3600", has=[CDN + "max-age=3600"]),
     hit(has=[CDN + "max-age=3600"]))

# RFC 9211
section = "told"
rule("a_miss", origin(HOUR, cache=["fwd=uri-miss", "fwd-status=200", "stored"]), hit())
rule("what_is_not_stored", origin(CC + "no-store", cache=["fwd=uri-miss", "fwd-status=200"]))
rule("the_lifetime_of_what_is_stored", origin(HOUR, ttl=(3570, 3600)), hit())
rule("the_lifetime_left", origin(HOUR, "Age: 1000", ttl=(2570, 2600)), hit())
rule("behind_another_cache", origin(HOUR, "Cache-Status: other; hit", cache=["stored"]), hit())
rule("a_method", origin(method="DELETE", cache=["fwd=method", "fwd-status=200"]))
rule("an_error", origin(status=500, cache=["fwd=uri-miss", "fwd-status=500"]))
rule("a_request", origin(HOUR), origin(ask=[CC + "max-age=0"], cache=["fwd=request"]))
rule("a_stale_one", origin(*STALE), origin(cache=["fwd=stale"]))
rule("a_stale_hit", origin(*STALE), hit(CC + "max-stale=1000", ttl=(-130, -100)))


def t_kernel_answered_its_share():
    if "wire" not in asked:
        raise ktap.Skip(wire_off)
    assert at_wire > 200, f"{at_wire} answers of the kernel"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
