#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""RFC 9111 rule by rule, and what RFC 9110 and 5861 add to it: how what is stored is validated,
chosen by conditions, withdrawn, used when it is stale, and sent in parts.

What is stored at all is in t_rules9111.py. Rows of name and steps, see tests/lib/rules.py.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import ktap                         # noqa: E402
import ruled                        # noqa: E402
from ruled import AT, FOO, HOUR, OLD, STALE  # noqa: E402
from rules import CC, hit, origin, stamp  # noqa: E402

table = ruled.Table(globals())
rule = table.rule

# 4.3.1, 4.3.3, 4.3.4
table.section = "validation"
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
table.section = "condition"


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
table.section = "method"
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
table.section = "invalidation"
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
table.section = "stale"
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
table.section = "range"
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

table.section = "part"


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


def t_kernel_answered_its_share():
    table.wire_has_answered(60)


if __name__ == "__main__":
    ktap.run(globals(), setup=table.begin, teardown=table.end)
