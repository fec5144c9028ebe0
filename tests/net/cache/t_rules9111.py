#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""RFC 9111 rule by rule, and what RFC 9110, 9211 and 9213 add to it: what is stored, for how
long, and which requests it answers. Rows of name and steps, see tests/lib/rules.py.

What becomes of it then is in t_rules9111_reuse.py; threads, time and the tool in t_cache9111.py.
"""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import ktap                         # noqa: E402
import ruled                        # noqa: E402
from origin import date             # noqa: E402
from ruled import FOO, HOUR, OLD, STALE  # noqa: E402
from rules import CC, hit, origin, stamp  # noqa: E402

table = ruled.Table(globals())
fresh, rule, spent = table.fresh, table.rule, table.spent

# 4.2.1: the lifetime from max-age, and how directives are read (5.2)
table.section = "max_age"
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

table.section = "s_maxage"
fresh("alone", CC + "s-maxage=3600")
fresh("goes_before_max_age", CC + "max-age=0, s-maxage=3600")
fresh("goes_before_max_age_in_any_order", CC + "s-maxage=3600, max-age=0")
fresh("goes_before_max_age_of_another_line", CC + "max-age=0", CC + "s-maxage=3600")
fresh("goes_before_expires", CC + "s-maxage=3600", "Expires: 0")
spent("shortens_max_age", CC + "max-age=3600, s-maxage=0")
spent("shortens_expires", CC + "s-maxage=0", stamp("Expires", 3600))

# 4.2.1 and 5.3
table.section = "expires"
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
table.section = "age"
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
table.section = "date"
rule("is_kept", origin(HOUR, "Date: Sun, 06 Nov 1994 08:49:37 GMT", CC + "s-maxage=2147483647"),
     hit(has=["Date: Sun, 06 Nov 1994 08:49:37 GMT"]))
rule("invalid_does_not_age", origin(HOUR, "Date: yesterday"), hit(age=(0, 30)))
rule("invalid_counts_as_now", origin("Date: yesterday", stamp("Expires", 3600)), hit())
rule("twice", origin(HOUR, stamp("Date", -1), stamp("Date", -1)), hit())
rule("missing",
     origin(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nCache-Control: max-age=60\r\n\r\n1"),
     hit(text=b"1", age=(0, 30)))

# 4.2.2
table.section = "heuristic"
for _status in (200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 451, 501):
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
table.section = "status"
STATUSES = (200, 203, 204, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 418,
            451, 499,
            500, 501, 502, 503, 504, 599)
for _status in STATUSES:
    fresh(f"{_status}_with_a_lifetime", CC + "max-age=3600", status=_status)
    spent(f"{_status}_without_one", CC + "max-age=0", status=_status)
for _status in (200, 203, 204, 301, 302, 303, 307, 308, 404, 410, 414, 451, 500, 501, 503):
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
table.section = "response"
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
table.section = "request"
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
table.section = "authorization"
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
table.section = "fields"
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
table.section = "key"
rule("has_the_query", origin(HOUR), origin(to="?a=1"), origin(to="?a=2"), hit(text=b"1"))
rule("is_of_the_same_query", origin(HOUR, to="?a=1"), hit(to="?a=1"))
rule("has_an_empty_query", origin(HOUR), origin(to="?"))
rule("is_of_letters_as_they_are", origin(HOUR, to="/a"), origin(to="/A"))

# 4.1
table.section = "vary"


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

# RFC 9213
table.section = "targeted"
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
table.section = "told"
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
    table.wire_has_answered(100)


if __name__ == "__main__":
    ktap.run(globals(), setup=table.begin, teardown=table.end)
