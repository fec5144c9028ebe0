#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Which bytes a file's name stands for: versions that size and mtime do not tell
apart, siblings of another version, links, codings by suffix, and ways to write
a path.
"""
import gzip
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap

EPOCH_NS = 10**18       # as a reproducible build has it
LARGE = 8 << 20
d = None


def begin():
    global d
    d = daemon.Daemon(*daemon.USER).start()


def end():
    assert d.stop() == 0, d.lines


def put(name, data, mtime_ns=EPOCH_NS, into=None):
    """A new file in the place of the old."""
    path = os.path.join((into or d).root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.utime(path + ".new", ns=(mtime_ns, mtime_ns))
    os.rename(path + ".new", path)
    return path


def get(path, *fields, of=None, method="GET"):
    with client.Client((of or d).address) as c:
        return c.ask(method, path, *fields)


def until(path, *fields, want):
    deadline = time.monotonic() + client.WAIT_S
    while (r := get(path, *fields)).body != want:
        assert time.monotonic() < deadline, f"{path} never was {want[:20]!r}: {r!r}"
        time.sleep(0.01)
    return r


def t_releases_of_one_size_and_mtime_have_tags_of_their_own():
    for name, size in (("small.js", 100), ("large.bin", 300000)):
        put(name, b"A" * size)
        old = until("/" + name, want=b"A" * size)
        put(name, b"B" * size)
        new = until("/" + name, want=b"B" * size)
        tag, date = old.fields["ETag"], old.fields["Last-Modified"]
        assert tag != new.fields["ETag"] and not new.fields["ETag"].startswith("W/"), new
        assert get("/" + name, f"If-None-Match: {tag}").status == 200
        assert get("/" + name, f"If-Match: {tag}").status == 412
        for weak in (tag, date):        # to resume the old with the new would join both
            r = get("/" + name, "Range: bytes=50-", f"If-Range: {weak}")
            assert r.status == 200 and r.body == new.body, (weak, r)
        r = get("/" + name, "Range: bytes=50-", f"If-Range: {new.fields['ETag']}")
        assert r.status == 206 and r.body == new.body[50:], r


def t_a_link_that_is_switched_is_another_version():
    put("v1/app.js", b"A" * 100)
    put("v2/app.js", b"B" * 100)
    os.symlink("v1", os.path.join(d.root, "now"))
    old = until("/now/app.js", want=b"A" * 100)
    os.symlink("v2", os.path.join(d.root, "now.new"))
    os.rename(os.path.join(d.root, "now.new"), os.path.join(d.root, "now"))
    until("/now/app.js", want=b"B" * 100)
    assert get("/now/app.js", f"If-None-Match: {old.fields['ETag']}").status == 200


def t_a_date_that_is_the_files_own_may_resume():
    with open(os.path.join(d.root, "own.bin"), "wb") as f:      # and no time is set
        f.write(b"x" * 1000)
    r = until("/own.bin", want=b"x" * 1000)
    part = get("/own.bin", "Range: bytes=9-", f"If-Range: {r.fields['Last-Modified']}")
    assert part.status == 206 and len(part.body) == 991, part


def t_mtimes_that_are_nobodys_make_no_validators():
    for second in (0, 1):
        for name, size in ((f"nobody{second}.txt", 100), (f"nobody{second}.bin", 300000)):
            put(name, b"n" * size, second * 10**9)
            for _ in range(3):
                r = until("/" + name, want=b"n" * size)
                assert "ETag" not in r.fields and "Last-Modified" not in r.fields, r
                for field, status in (("If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT", 200),
                                      ("If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", 200),
                                      ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
                                      ('If-None-Match: ""', 200), ('If-Match: "a"', 412),
                                      ("If-None-Match: *", 304)):
                    assert get("/" + name, field).status == status, (name, field)
                r = get("/" + name, "Range: bytes=0-", "If-Range: Thu, 01 Jan 1970 00:00:01 GMT")
                assert r.status == 200, r
                assert get("/" + name, "Range: bytes=0-0").status == 206
    put("two.txt", b"2", 2 * 10**9)
    assert until("/two.txt", want=b"2").fields["Last-Modified"] == "Thu, 01 Jan 1970 00:00:02 GMT"


def begun(name):
    """A client that has the begin of a large file, and reads no further for now."""
    c = client.Client(d.address, rcvbuf=4096)
    c.send(f"GET /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return c


def rest(c):
    """All that comes, be the connection cut or not."""
    got = bytearray()
    c.s.settimeout(client.WAIT_S)
    try:
        while more := c.s.recv(1 << 20):
            got += more
    except ConnectionResetError:
        pass
    return bytes(got)


def t_a_file_written_in_place_is_no_answer_of_two_versions():
    """Its mtime set back: a cut answer, never a whole one."""
    for back in (True, False):
        name = f"inplace{back}.bin"
        path = put(name, b"A" * LARGE)
        c = begun(name)
        first = c.s.recv(1000)
        assert first.startswith(b"HTTP/1.1 200"), first
        with open(path, "r+b") as f:
            f.write(b"B" * LARGE)
        if back:
            os.utime(path, ns=(EPOCH_NS, EPOCH_NS))
        got = first + rest(c)
        c.close()
        body = got.split(b"\r\n\r\n", 1)[1]
        assert len(body) < LARGE or len(set(body)) == 1, f"{len(body)} bytes of two versions"


def t_what_is_no_change_of_bytes_cuts_nothing_off():
    def replaced(path):
        put(os.path.basename(path), b"B" * LARGE)

    def removed(path):
        os.unlink(path)

    def renamed(path):
        os.rename(path, path + ".old")

    def linked(path):
        os.link(path, path + ".link")

    def mode(path):
        os.chmod(path, 0o640)

    def appended(path):
        with open(path, "ab") as f:
            f.write(b"more")

    for change in (replaced, removed, renamed, linked, mode, appended):
        name = f"{change.__name__}.bin"
        path = put(name, b"A" * LARGE)
        c = begun(name)
        first = c.s.recv(1000)
        change(path)
        got = first + rest(c)
        c.close()
        body = got.split(b"\r\n\r\n", 1)[1]
        assert len(body) == LARGE and set(body) == {65}, (change.__name__, len(body), set(body))


def t_siblings_older_than_their_file_are_not_used():
    text = 'root = "{root}"\ncompress = off\nlocation "/any/" { precompressed = any-age }\n'
    with conf.Conf(text) as e:
        for folder in ("", "any/"):
            for age_ns, used in ((-10**9, False), (-1000, False), (0, True), (10**9, True)):
                name = f"{folder}{age_ns + 10**9}.txt"
                put(name, b"new", EPOCH_NS + 5000, into=e)
                put(name + ".gz", gzip.compress(b"of its age"), EPOCH_NS + 5000 + age_ns, into=e)
                for _ in range(3):
                    r = get("/" + name, "Accept-Encoding: gzip", of=e)
                    assert ("Content-Encoding" in r.fields) == (used or folder != ""), (name, r)
        # some tools keep the seconds alone
        put("second.txt", b"new", EPOCH_NS + 5000, into=e)
        put("second.txt.gz", gzip.compress(b"of its age"), EPOCH_NS, into=e)
        assert "Content-Encoding" in get("/second.txt", "Accept-Encoding: gzip", of=e).fields
        # a file that is replaced outdates what is beside it
        assert "Content-Encoding" in get("/1000000000.txt", "Accept-Encoding: gzip", of=e).fields
        put("1000000000.txt", b"newer", EPOCH_NS + 10**10, into=e)
        deadline = time.monotonic() + client.WAIT_S
        while get("/1000000000.txt", "Accept-Encoding: gzip", of=e).body != b"newer":
            assert time.monotonic() < deadline, "the old sibling is sent on and on"
            time.sleep(0.01)


def t_absolute_links_that_stay_below_the_root_are_served():
    root = d.root
    for folder in ("rel/deep", "data", "out"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    d.write("data/file.txt", b"inside")
    for to, name in ((f"{root}/data/file.txt", "abs.txt"), (f"{root}/data", "absdir"),
                     ("../abs.txt", "rel/chain.txt"),
                     (f"{root}/absdir", "rel/twice"), (f"{root}//data/./file.txt", "odd.txt"),
                     (f"{root}/rel/../data", "dots"),
                     ("../../absdir", "rel/deep/up")):
        os.symlink(to, os.path.join(root, name))
    for path in ("/abs.txt", "/absdir/file.txt", "/rel/chain.txt", "/rel/twice/file.txt",
                 "/odd.txt", "/dots/file.txt",
                 "/rel/deep/up/file.txt"):
        r = get(path)
        assert r.status == 200 and r.body == b"inside", (path, r)
    # and those that do not, are not
    outside = os.path.join(d.folder, "outside")
    os.makedirs(outside, exist_ok=True)
    with open(os.path.join(outside, "file.txt"), "wb") as f:
        f.write(b"outside")
    shutil.copytree(outside, root + "-evil")
    for to, name in ((outside, "out/a"), (f"{root}-evil", "out/b"), (f"{root}/../outside", "out/c"),
                     ("/etc", "out/d"),
                     (f"{root}/out/a", "out/e"), (f"{root}/out/loop", "out/loop"),
                     (f"{root}", "out/whole"), ("/", "out/f")):
        os.symlink(to, os.path.join(root, name))
    for path in ("/out/a/file.txt", "/out/b/file.txt", "/out/c/file.txt", "/out/d/passwd",
                 "/out/e/file.txt",
                 "/out/loop", "/out/f/etc/passwd", "/out/whole/out/a/file.txt"):
        r = get(path)
        assert r.status in (403, 404) and b"outside" not in r.body and b"root:" not in r.body, \
               (path, r)
    assert get("/out/whole/data/file.txt").body == b"inside"
    # what such a link leads to is followed, as relative ones are
    d.write("data/second.txt", b"second")
    os.unlink(os.path.join(root, "abs.txt"))
    os.symlink(f"{root}/data/second.txt", os.path.join(root, "abs.txt"))
    until("/abs.txt", want=b"second")


def t_codings_by_suffix():
    text = ('root = "{root}"\nlocation "/more/" { codings = {"gzip svgz gz", "br br"} }\n'
            'location "/off/" { codings = off }\n')
    svg = gzip.compress(b"<svg/>" * 50)
    with conf.Conf(text) as e:
        for name in ("a.svgz", "more/a.SVGZ", "more/app.js.gz", "more/x.unknown.gz", "off/a.svgz",
                     "big.svgz"):
            put(name, svg + (os.urandom(100000) if name == "big.svgz" else b""), into=e)
        for path, coding, kind in (("/a.svgz", "gzip", "image/svg+xml"),
                                   ("/more/a.SVGZ", "gzip", "image/svg+xml"),
                                   ("/more/app.js.gz", "gzip", "javascript"),
                                   ("/off/a.svgz", None, "image/svg+xml"),
                                   ("/big.svgz", "gzip", "image/svg+xml")):
            for accept in ([], ["Accept-Encoding: br, gzip"], ["Accept-Encoding: identity"]):
                for method in ("GET", "HEAD", "GET"):
                    r = get(path, *accept, of=e, method=method)
                    assert r.status == 200 and r.fields.get("Content-Encoding") == coding, (path, r)
                    assert kind in r.fields["Content-Type"] and "Vary" not in r.fields, (path, r)
            r = get(path, "Range: bytes=0-1", of=e)
            assert r.status == 206 and r.body == svg[:2] and \
                   r.fields.get("Content-Encoding") == coding, r
            assert "Content-Encoding" not in get(path, "If-None-Match: *", of=e).fields
        assert get("/more/x.unknown.gz", of=e).fields["Content-Encoding"] == "gzip"
    for bad in ('"gzip"', '"gzip a.b"', '"off", "gzip svgz"', '"gz/ip a"', '""'):
        c = conf.Conf(f'root = "/tmp"\ncodings = {{{bad}}}\n')
        r = subprocess.run([daemon.BINARY, "--check", c.path], capture_output=True, text=True,
                           check=False,
                           timeout=client.WAIT_S)
        assert r.returncode == 2 and "codings" in r.stderr, (bad, r)


def t_a_segment_of_hls_is_video():
    d.write("live.ts", b"\x47" * 188)
    assert get("/live.ts").fields["Content-Type"] == "video/mp2t"
    with conf.Conf('root = "{root}"\ntypes = "text/vnd.trolltech.linguist ts"\n') as e:
        e.write("a.ts", b"<TS/>")
        assert get("/a.ts", of=e).fields["Content-Type"] == "text/vnd.trolltech.linguist", \
               "what is configured wins"


def t_an_escaped_slash_is_a_slash():
    """In files' paths, and before dot segments are removed and locations are found."""
    text = 'root = "{root}"\nlocation "/closed/" { root = "{folder}" }\n'
    with conf.Conf(text) as e:
        e.write("dir/file.txt", b"file")
        e.write("closed/file.txt", b"never seen")
        for path in ("/dir/file.txt", "/dir%2Ffile.txt", "/dir%2ffile.txt",
                     "/x%2F..%2Fdir/file.txt", "/%2Fdir%2F/file.txt"):
            for _ in range(3):
                r = get(path, of=e)
                assert (r.status, r.body) == (200, b"file"), (path, r)
        for path in ("/closed/file.txt", "/closed%2Ffile.txt", "/dir%2F..%2Fclosed%2Ffile.txt",
                     "/dir%252Ffile.txt"):
            assert get(path, of=e).status == 404, path
        for path in ("/..%2Fsecret", "/dir%2F..%2F..%2Fsecret", "/dir%2", "/dir%2Fa%00"):
            assert get(path, of=e).status == 400, path
        assert get("/dir%2F", of=e).status == 403
        r = get("/dir%2F..%2Fdir", of=e)
        assert (r.status, r.fields["Location"]) == (301, "/dir/"), r


def t_utf8_that_is_not_escaped_names_a_file():
    """Only for files: a target that is sent to a server must be a URI, or the answer is 400."""
    name = "Grüße/straße ☃.txt".replace(" ", "_")
    with conf.Conf('root = "{root}"\nlocation "/up/" { upstream = "http://127.0.0.1:1" }\n') as e:
        e.write(name, b"utf-8")

        def raw(target):
            with client.Client(e.address) as c:
                c.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                return c.response()
        for target in (name.encode(), name.encode() + "?é=☃".encode()):
            for _ in range(3):
                r = raw(b"/" + target)
                assert (r.status, r.body) == (200, b"utf-8"), (target, r)
        assert raw("/Grüße?ä".encode()).fields["Location"] == "/Gr%C3%BC%C3%9Fe/?%C3%A4"
        for target in (b"/Gr\xfc\xdfe", b"/\xc3", b"/..\xc0\xaf", b"/\xc2\x9b", b"/\xed\xa0\x80",
                       "/up/ü".encode()):
            assert raw(target).status == 400, target


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
