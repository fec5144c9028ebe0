#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Settings of a location with files: fields, indices, listings, error pages, limits, types."""
import os
import re
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import talk

FIELDS = """
root = "{root}"
headers = {"X-All: yes", "X-Deep: top"}
location "/a/" {
	expires = 1h
	cache-control = "public"
	headers = {"X-Deep: a"}
	type "text/css" { expires = 1d }
}
location "*.png" { expires = max }
type "text/html" { expires = epoch }
"""
WANTED = {      # path: (Cache-Control, X-Deep)
    "/x.html": ("no-cache", "top"), "/x.css": (None, "top"),
          "/a/x.html": ("max-age=3600, public", "a"),
    "/a/x.css": ("max-age=86400, public", "a"), "/a/x.png": ("max-age=315360000", "top"),
    "/x.png": ("max-age=315360000", "top"),
}


def t_fields_of_a_location_are_the_same_in_every_tier():
    def test(d):
        os.makedirs(os.path.join(d.root, "a"), exist_ok=True)
        for path in WANTED:
            d.write(path[1:], path.encode())
        d.write("big.html", b"x" * 200000)
        for path, (control, deep) in WANTED.items():
            first = client.once(d.address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())[0]
            hit = client.hot(d, path, "wire" if d.wire else "user")
            for r in (first, hit):
                assert r.fields.get("Cache-Control") == control, (path, r)
                assert (r.fields.get("X-Deep"), r.fields.get("X-All")) == (deep, "yes"), (path, r)
            assert first.bare() == hit.bare(), (first, hit)
            with client.Client(d.address) as c:
                head = c.ask("HEAD", path)
                assert head.bare()[0] == hit.bare()[0], (head, hit)
                r = c.get(path, f"If-None-Match: {hit.fields['ETag']}")
                assert r.status == 304 and r.fields.get("Cache-Control") == control, r
                assert "X-All" not in r.fields, r
        with client.Client(d.address) as c:
            r = c.get("/big.html")
            assert (r.fields["Cache-Control"], r.fields["X-All"]) == ("no-cache", "yes"), r
            r = c.get("/none")
            assert r.status == 404 and "X-All" not in r.fields, r
            r = c.get("/a")
            assert r.status == 301 and r.fields["X-All"] == "yes", r
    conf.both(FIELDS, test)


def t_cookie_is_left_to_the_daemon_where_the_location_requests_it():
    def test(d):
        os.makedirs(os.path.join(d.root, "app"), exist_ok=True)
        d.write("app/x.txt", b"x")
        d.write("x.txt", b"x")
        hit = "wire" if d.wire else "user"
        for path, with_cookie in (("/x.txt", hit), ("/app/x.txt", "user")):
            client.hot(d, path, hit)
            with client.Client(d.address) as c:
                for _ in range(5):
                    assert daemon.is_tier(c.get(path, "Cookie: a=b").tier, with_cookie), path
                    c.get(path)
    conf.both('root = "{root}"\nlocation "/app/" { cookies = pass }\n', test)


def t_longest_lines_fit():
    """A 304 must hold the longest Cache-Control there can be, and stay with wire."""
    text = f'''root = "{{root}}"
expires = 100y
cache-control = "{"x" * 150}"
headers = {{"A: {"a" * 900}", "B: {"b" * 800}"}}
'''

    def test(d):
        tier = "wire" if d.wire else "user"
        d.write("x.txt", b"x")
        etag = client.hot(d, "/x.txt", tier).fields["ETag"]
        with client.Client(d.address) as c:
            r = c.get("/x.txt", f"If-None-Match: {etag}")
            assert r.status == 304 and daemon.is_tier(r.tier, tier), r
            assert r.fields["Cache-Control"] == f"max-age=3153600000, {'x' * 150}", r
    conf.both(text, test)


def t_index_names_in_order_and_off():
    text = 'root = "{root}"\nindex = {"one.html", "two.html"}\nlocation "/off/" { index = off }\n'

    def test(d):
        for name in ("a", "b", "off", "c"):
            os.makedirs(os.path.join(d.root, name), exist_ok=True)
        d.write("a/one.html", b"a one")
        d.write("a/two.html", b"a two")
        d.write("b/two.html", b"b two")
        d.write("off/one.html", b"off")
        with client.Client(d.address) as c:
            assert c.get("/a/").body == b"a one"
            for _ in range(3):
                r = c.get("/b/")
                assert (r.body, r.tier) == (b"b two", "miss"), r
            assert c.get("/off/").status == 403
            assert c.get("/c/").status == 403
            assert c.get("/d/").status == 404
            # a better one comes, and is seen at once
            d.write("b/one.html", b"b one")
            assert c.get("/b/").body == b"b one"
            os.unlink(os.path.join(d.root, "b/one.html"))
            while (r := c.get("/b/")).body != b"b two":
                assert r.body == b"b one" and r.tier in daemon.HITS, r
    conf.both(text, test)


def t_folder_is_no_index_file():
    text = """root = "{root}"
index = {"one.html", "two.html"}
location "/list/" { autoindex = on }
"""

    def test(d):
        for path in ("a/one.html", "bare/one.html", "bare/two.html", "list/one.html"):
            os.makedirs(os.path.join(d.root, path), exist_ok=True)
        d.write("a/two.html", b"a two")
        with client.Client(d.address) as c:
            for _ in range(3):
                r = c.get("/a/")
                assert (r.status, r.body, r.tier) == (200, b"a two", "miss"), r
            assert c.get("/bare/").status == 403
            r = c.get("/list/")
            assert r.status == 200 and b">one.html/<" in r.body, r
            # a file in its place answers, and is seen at once
            os.rmdir(os.path.join(d.root, "a/one.html"))
            d.write("a/one.html", b"a one")
            assert c.get("/a/").body == b"a one"
    conf.both(text, test)


def t_autoindex_lists_what_can_be_asked_for():
    with conf.Conf('root = "{root}"\nlocation "/pub/" { autoindex = on }\n') as d:
        os.makedirs(os.path.join(d.root, "pub/sub"))
        os.makedirs(os.path.join(d.root, "private"))
        names = ["a b.txt", '<script>"&\'.txt', "%41.txt", "javascript:x", "ü.txt", "n\nl"]
        for name in names:
            d.write("pub/" + name, b"x")
        d.write("pub/.hidden", b"x")
        os.mkfifo(os.path.join(d.root, "pub/pipe"))
        d.write("private/x", b"x")
        names.append("to-file")
        for name, to in (("to-file", "../private/x"), ("to-folder", "../private"),
                         ("to-pipe", "pipe"),
                         ("out", "../../toboggan.conf"), ("out-folder", "../.."), ("gone", "none"),
                         ("loop", "loop")):
            os.symlink(to, os.path.join(d.root, "pub", name))
        with client.Client(d.address) as c:
            r = c.get("/pub/")
            assert (r.status, r.fields["Content-Type"], r.tier) == (200, "text/html; charset=utf-8",
                                                                    "miss"), r
            page = r.body.decode()
            links = re.findall(r'<a href="([^"]*)">', page)
            assert "hidden" not in page and "pipe" not in page and "<script" not in page, page
            assert links[:3] == ["../", "./sub/", "./to-folder/"] and \
                   len(links) == 3 + len(names), links
            for link in links[3:]:
                got = c.get("/pub/" + link.removeprefix("./"))
                # what no path may hold is refused, not found elsewhere
                assert got.body == b"x" or "%0A" in link, (link, got)
            assert c.ask("HEAD", "/pub/").fields["Content-Length"] == str(len(r.body))
            assert c.get("/pub/sub/").status == 200
            assert c.get("/private/").status == 403
            assert c.get("/pub/none/").status == 404
            d.write("pub/index.html", b"own")
            assert c.get("/pub/").body == b"own"


def t_listing_follows_the_links_that_a_request_does():
    with conf.Conf('root = "{root}"\nautoindex = on\n') as d, client.Client(d.address) as c:
        d.write("kept/in", b"123")
        d.write("../outside", b"not below the root")
        for name, to in (("file", os.path.join(d.root, "kept/in")),
                         ("folder", os.path.join(d.root, "kept")),
                         ("relative", "kept/in"), ("up", os.path.dirname(d.root)),
                         ("out", os.path.join(os.path.dirname(d.root), "outside"))):
            os.symlink(to, os.path.join(d.root, name))

        def links(path):
            return re.findall(rb'href="([^"]*)"', c.get(path).body)
        assert links("/") == [b"./folder/", b"./kept/", b"./file", b"./relative"], links("/")
        assert links("/folder/") == [b"../", b"./in"], links("/folder/")
        assert c.get("/file").body == b"123"
        assert c.get("/out").status == 403


def t_listing_meets_conditions_without_a_tag():
    """It is there, and has neither tag nor date (RFC 9110 13.1)."""
    with conf.Conf('root = "{root}"\nautoindex = on\ncache-control = "no-cache"\n') as d:
        d.write("pub/x", b"x")
        with client.Client(d.address) as c:
            for method in ("GET", "HEAD"):
                for fields, status in ((('If-Match: "x"',), 412), (("If-Match: *",), 200),
                                       (('If-None-Match: "x"',), 200),
                                       (("If-None-Match: *",), 304),
                                       (('If-Match: "x"', "If-None-Match: *"), 412),
                                       (("If-Match: *", "If-None-Match: *"), 304),
                                       (("If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT",), 200),
                                       (("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT",),
                                        200)):
                    r = c.ask(method, "/pub/", *fields)
                    assert r.status == status, (method, fields, r)
                    assert (b"./x" in r.body) == (status == 200 and method == "GET"), \
                           (method, fields, r)
                    if status == 304:
                        assert not r.body and "Content-Type" not in r.fields, r
                        assert r.fields["Cache-Control"] == "no-cache", r
                assert c.ask(method, "/none/", "If-None-Match: *").status == 404


def t_error_pages_are_files():
    text = """
root = "{root}"
error-page = {"404 /err/404.html", "400 405 501 /err/bad.txt", "403 /err/none.html",
              "413 /err/big.bin"}
location "/in/" { error-page = {"404 /err/in.html"} }
"""
    with conf.Conf(text) as d:
        os.makedirs(os.path.join(d.root, "err"))
        os.makedirs(os.path.join(d.root, "folder"))
        d.write("err/404.html", b"<p>not here\n")
        d.write("err/in.html", b"<p>not in here\n")
        d.write("err/bad.txt", b"bad\n")
        d.write("err/big.bin", b"x" * 70000)
        with client.Client(d.address) as c:
            r = c.get("/none")
            assert (r.status, r.body, r.fields["Content-Type"]) == (404, b"<p>not here\n",
                                                                    "text/html"), r
            assert "ETag" not in r.fields and "Last-Modified" not in r.fields, r
            r = c.ask("HEAD", "/none")
            assert (r.status, r.fields["Content-Length"]) == (404, "12"), r
            assert c.get("/in/none").body == b"<p>not in here\n"
            r = c.get("/folder/")
            assert (r.status, r.body) == (403, b"403 Forbidden\n"), "a page that is not there"
            r = c.ask("POST", "/x")
            assert (r.status, r.body) == (405, b"bad\n") and r.fields["Allow"], r
            assert c.ask("BREW", "/x").body == b"bad\n"
            d.write("err/404.html", b"<p>new\n")
            assert c.get("/none").body == b"<p>new\n"
        r, closed = client.once(d.address, b"GET / HTTP/1.1\r\n\r\n")
        assert (r.status, r.body, closed) == (400, b"bad\n", True), r


def t_error_page_of_an_index_file_is_its_location_s_cached_or_not():
    text = '''
root = "{root}"
error-page = {"412 416 /folder.txt"}
location "*.html" { error-page = {"412 416 /file.txt"} }
'''
    with conf.Conf(text) as d:
        d.write("folder.txt", b"of the folder\n")
        d.write("file.txt", b"of the file\n")
        d.write("index.html", b"index")
        for tier in ("stored", "user"):
            with client.Client(d.address) as c:
                for field, status in (('If-Match: "x"', 412), ("Range: bytes=9-", 416)):
                    if tier == "stored":
                        talk.ask(d, "purge", "--all")
                    r = c.get("/", field)
                    assert (r.status, r.body) == (status, b"of the file\n"), (field, r)
                    assert daemon.is_tier(r.tier, tier), (field, r)


def t_error_pages_of_bodies_are_the_location_s():
    """Not the default site's: host and path are known."""
    text = """
body-max = 1K
send-timeout = 300ms
header-timeout = 300ms
host "one" { root = "{root}/one" error-page = {"400 408 413 /e.txt"} }
host "two" {
    root = "{root}/two"
    error-page = {"400 408 413 /e.txt"}
    location "/in/" { error-page = {"400 408 413 /in.txt"} }
}
"""
    bodies = (("Content-Length: 2000", b"", 413), ("Content-Length: 1000", b"x", 408),
              ("Transfer-Encoding: chunked", b"7d0\r\n" + b"x" * 2000 + b"\r\n", 413),
              ("Transfer-Encoding: chunked", b"3\r\nabcd", 400),
              ("Transfer-Encoding: chunked", b"3\r\nab", 408))
    d = conf.Conf(text)
    for name in ("one/e.txt", "two/e.txt", "two/in.txt"):
        d.write(name, name.encode())
    with d:
        for host, path, page in (("one", "/x", b"one/e.txt"), ("two", "/x", b"two/e.txt"),
                                 ("two", "/in/x", b"two/in.txt"), ("none", "/x", b"one/e.txt")):
            for field, body, status in bodies:
                for method in ("POST", "HEAD"):
                    r, closed = client.once(
                        d.address, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n"
                                            .encode() + body, method)
                    assert r.status == status and r.fields["Content-Length"] == str(len(page)), \
                           (host, path, field, r)
                    assert closed and r.body == (page if method == "POST" else b""), \
                           (host, path, field, r)
        # of a head that is none, nothing is known
        r, _ = client.once(d.address, b"GET / HTTP/1.1\r\nHost: two\r\nHost: two\r\n\r\n")
        assert (r.status, r.body) == (400, b"one/e.txt"), r


def t_body_limit_is_the_locations():
    text = 'root = "{root}"\nbody-max = 1K\nlocation "/large/" { body-max = 4M }\n' \
           'location "/none/" { body-max = 0 }\n'
    with conf.Conf(text) as d:
        for path, size, refused in (("/x", 1024, False), ("/x", 1025, True),
                                    ("/large/x", 3 << 20, False),
                                    ("/large/x", (4 << 20) + 1, True), ("/none/x", 1, True)):
            with client.Client(d.address) as c:
                c.send(
                    f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
                if not refused:
                    c.send(b"x" * size)
                r = c.response()
                assert r.status == (413 if refused else 405), (path, size, r)
                if refused:
                    assert r.fields["Connection"] == "close" and c.ended()
        with client.Client(d.address) as c:
            c.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(200):
                    c.send(b"400\r\n" + b"x" * 1024 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError, socket.timeout):
                pass
            assert c.response().status == 413


def t_media_types_can_be_added():
    with conf.Conf('root = "{root}"\ntypes = {"text/x-one one", "text/x-two html", '
                   '"text/x-three; charset=utf-8;a=b three 3"}\n') as d:
        for name in ("a.one", "a.html", "a.css", "a.three", "a.3"):
            d.write(name, b"x")
        with client.Client(d.address) as c:
            assert c.get("/a.one").fields["Content-Type"] == "text/x-one"
            assert c.get("/a.html").fields["Content-Type"] == "text/x-two"
            assert c.get("/a.css").fields["Content-Type"] == "text/css"
            for name in ("/a.three", "/a.3"):
                assert c.get(name).fields["Content-Type"] == "text/x-three; charset=utf-8;a=b"


if __name__ == "__main__":
    ktap.run(globals())
