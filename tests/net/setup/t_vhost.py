#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Several hosts: every tier selects the same site."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import talk

TEXT = """
root = "{root}/none"
host "a.example" {
	alias = {"www.a.example", "[::1]"}
	root = "{root}/a"
}
host "b.example" {
	default = yes
	root = "{root}/b"
	location "/shared/" { root = "{root}" }
}
host "c.example" {
	root = "{root}/c"
	headers = {"X-Site: c"}
}
"""
WILD = TEXT + """
host "*.w.example" { root = "{root}/w" }
"""
NAMES = {
    "a.example": "a", "A.EXAMPLE": "a", "a.example.": "a", "a.example:80": "a",
    "A.eXample.:65535": "a",
    "www.a.example": "a", "[::1]": "a", "[::1]:8080": "a",
    "b.example": "b", "c.example": "c", "C.example": "c",
    "unknown.example": "b", "127.0.0.1": "b", "example": "b", "a.example.evil": "b",
    "xa.example": "b",
    "a.examplx": "b", "[::2]": "b", "x" * 200: "b", ("x" * 60 + ".") * 3 + "a.example": "b",
    "w.example": "b", "x_y": "b", ".": "b", "..": "b",
}


class Sites(conf.Conf):
    def __init__(self, text, **more):
        super().__init__("", **more)
        for name in ("none", "a", "b", "c", "w", "shared"):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)
            self.write(f"{name}/index.html", f"site {name}\n".encode())
            self.write(f"{name}/{name}.txt", b"x")
        self.save(text)


def both(text, test):
    with Sites(text) as d:
        test(d)
    with Sites(text, wire=True) as d:
        test(d)


def t_host_selects_the_site_in_every_tier():
    def test(d):
        hit = "wire" if d.wire else "user"
        for turn in range(2):       # the second time all of them are cached
            for host, site in NAMES.items():
                with conf.Host(d.address, host) as c:
                    r = c.get("/")
                    assert (r.status, r.body) == (200, f"site {site}\n".encode()), (turn, host, r)
                    assert r.fields.get("X-Site") == ("c" if site == "c" else None), (host, r)
        for host, site in NAMES.items():
            # a name longer than the kernel holds, and none at all, is the daemon's
            tier = "user" if len(host) > 192 or host == "." else hit
            with conf.Host(d.address, host) as c:
                assert c.hot("/", tier).body == f"site {site}\n".encode(), host
    both(TEXT, test)


def t_answers_are_the_same_bytes_with_wire_and_without():
    seen = []

    def test(d):
        got = {}
        for host in NAMES:
            with conf.Host(d.address, host) as c:
                c.get("/")
                etag = c.get("/").fields["ETag"]
                for name in ("", f"If-None-Match: {etag}"):
                    head, body = c.get("/", *[name] if name else []).bare()
                    # each daemon has files of its own
                    got[host, bool(name)] = [x for x in head.split(b"\r\n") if not x.startswith(
                        (b"ETag", b"Last-Modified"))], body
        seen.append(got)
    both(TEXT, test)
    assert seen[0] == seen[1], \
           [(k, seen[0][k], seen[1][k]) for k in seen[0] if seen[0][k] != seen[1][k]]


def t_wildcard_is_the_daemons_and_other_unknown_names_too():
    def test(d):
        hit = "wire" if d.wire else "user"
        for host, site, tier in (("x.w.example", "w", "user"), ("y.x.w.example", "w", "user"),
                                 ("w.example", "b", "user"), ("a.example", "a", hit),
                                 ("unknown.example", "b", "user"), ("b.example", "b", hit)):
            with conf.Host(d.address, host) as c:
                c.get("/")
                assert c.hot("/", tier).body == f"site {site}\n".encode(), host
                for _ in range(20):
                    r = c.get("/")
                    assert r.body == f"site {site}\n".encode(), (host, r)
                    assert daemon.is_tier(r.tier, tier), (host, r)
    both(WILD, test)


def t_why_shows_what_the_kernel_does_with_the_host():
    """For each name, the tier that why names is the one that answers."""
    for text in (TEXT, WILD, 'root = "{root}/b"\n'):
        with Sites(text, wire=True) as d:
            for host in ("a.example", "A.example.:80", "www.a.example", "[::1]", "b.example",
                         "x.w.example",
                         "w.example", "unknown.example", "127.0.0.1", "x" * 200, "a.example.evil"):
                with conf.Host(d.address, host) as c:
                    c.get("/")
                with conf.Host(d.address, host) as c:
                    tier = {c.get("/").tier for _ in range(20)}
                a = talk.ask(d, "why", f"http://{host}/")
                assert {a["tier"]} == tier, (text, host, tier, a)
                if tier == {"user"}:
                    assert a["why"] == "HOST", (host, a)
            assert talk.ask(d, "why", "/")["tier"] == "wire"
            assert talk.ask(d, "why", "http://a b/")["why"] == "FIELD"


def t_absolute_target_and_no_host():
    with Sites(TEXT) as d:
        with conf.Host(d.address, "a.example") as c:
            assert c.get("http://c.example/").body == b"site c\n"
            assert c.get("http://C.EXAMPLE:80/").body == b"site c\n"
            assert c.get("/").body == b"site a\n"
        with conf.Host(d.address, None) as c:
            assert c.get("/", version="1.0").body == b"site b\n"


def t_location_has_a_root_of_its_own():
    def test(d):
        with conf.Host(d.address, "b.example") as c:
            assert c.get("/shared/shared.txt").body == b"x"
            assert c.get("/shared/").body == b"site shared\n"
            assert c.get("/shared/b.txt").status == 404
            assert c.get("/a/a.txt").status == 404, "the location's root is the location's alone"
        with conf.Host(d.address, "a.example") as c:
            assert c.get("/shared/shared.txt").status == 404
    both(TEXT, test)


def t_no_request_leaves_its_root():
    with Sites(TEXT) as d:
        os.symlink("../c/c.txt", os.path.join(d.root, "a/out"))
        for path, status in (("/out", 403), ("/../c/c.txt", 400), ("/%2e%2e/c/c.txt", 400)):
            with conf.Host(d.address, "a.example") as c:
                assert c.get(path).status == status, path


def t_file_of_one_site_changes_alone():
    def test(d):
        hit = "wire" if d.wire else "user"
        for name in ("a", "b"):
            with conf.Host(d.address, f"{name}.example") as c:
                c.hot("/", hit)
        d.write("a/index.html", b"new\n")
        with conf.Host(d.address, "a.example") as c:
            while (r := c.get("/")).body != b"new\n":
                assert r.body == b"site a\n", r
        with conf.Host(d.address, "b.example") as c:
            r = c.get("/")
            assert r.body == b"site b\n" and daemon.is_tier(r.tier, hit), r
    both(TEXT, test)


TALL = b"line after line\n" * 400


def t_index_of_another_root_goes_with_the_file_that_makes_it_one():
    """Nothing would tell of that file, so its answer is not kept."""
    def test(d):
        d.write("a/index.html", b"makes it the index\n")
        with conf.Host(d.address, "m.example") as c:
            for _ in range(3):
                assert c.get("/").body == b"site b\n"
            d.write("b/index.html", TALL)
            client.until(lambda: "Content-Encoding" in c.get("/", "Accept-Encoding: gzip").fields,
                         "compressed it never was")
            os.unlink(os.path.join(d.root, "a/index.html"))
            assert c.get("/").status == 403
            assert c.get("/index.html").body == TALL
    both(TEXT + 'host "m.example" { root = "{root}/a" location "*.html" { root = "{root}/b" } }\n',
         test)


if __name__ == "__main__":
    ktap.run(globals())
