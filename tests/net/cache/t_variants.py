#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Variants: the choice by Accept-Encoding in every tier, and its consequences.

Two daemons serve one folder, one of them with wire on lo. Each answer is asked
of both, and of wire until it is a hit there; all must agree but for Date and
Cache-Status.
"""
import ctypes
import os
import random
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import net
import talk

NAMES = {"gzip": "gz", "br": "br", "zstd": "zst"}
TEXT = talk.content("text", 3000)
user = wire = None
wire_off = ""
number = 0


def begin():
    global user, wire, wire_off
    user = daemon.Daemon("--wire", "off")
    user.start()
    wire, wire_off = client.wire_beside(user)


def end():
    for d in (wire, user):
        if d:
            assert d.stop() == 0, d.lines


def fresh(suffix=".css", data=TEXT):
    """The path of a new file."""
    global number
    number += 1
    user.write(f"f{number}{suffix}", data)
    return f"/f{number}{suffix}"


def decoded(r):
    """The body of a response, without its coding."""
    coding, out = r.fields.get("Content-Encoding"), ctypes.create_string_buffer(1 << 20)
    if coding is None:
        return r.body
    if coding == "gzip":
        return zlib.decompress(r.body, 31)
    if coding == "br":
        size = ctypes.c_size_t(len(out))
        assert ctypes.CDLL("libbrotlidec.so.1").BrotliDecoderDecompress(
            ctypes.c_size_t(len(r.body)), r.body, ctypes.byref(size), out) == 1
        return out.raw[:size.value]
    assert coding == "zstd", coding
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    size = lib.ZSTD_decompress(out, ctypes.c_size_t(len(out)), r.body,
                               ctypes.c_size_t(len(r.body)))
    assert size <= len(out)
    return out.raw[:size]


def ask(path, *fields, method="GET", hit=True):
    """The answer of all tiers."""
    with client.Client(user.address) as c:
        want = c.ask(method, path, *fields)
        for _ in range(3):
            r = c.ask(method, path, *fields)
            assert r.bare() == want.bare(), (want, r)
    if not wire:
        return want
    with client.Client(wire.address) as c:
        deadline = time.monotonic() + client.WAIT_S
        while time.monotonic() < deadline:
            r = c.ask(method, path, *fields)
            assert r.bare() == want.bare(), (want, r)
            if r.tier == "wire" or not hit:
                return want
    raise AssertionError(f"{path} {fields}: never a hit of wire: {r!r}")


def take(path, accept, **more):
    return ask(path, f"Accept-Encoding: {accept}", **more)


def t_text_is_compressed():
    path = fresh()
    plain = ask(path)
    assert plain.body == TEXT and "Content-Encoding" not in plain.fields
    answers = [plain] + [take(path, coding) for coding in NAMES]
    for r, coding in zip(answers, [None, *NAMES]):
        assert r.fields.get("Content-Encoding") == coding, r
        assert r.fields["Vary"] == "Accept-Encoding" and r.fields["Content-Type"] == "text/css"
        assert decoded(r) == TEXT and (coding is None or len(r.body) < len(TEXT) / 2), r
    tags = {r.fields["ETag"] for r in answers}
    assert len(tags) == len(answers) and not any(tag.startswith("W/") for tag in tags), tags


def t_head_and_conditions_of_each_variant():
    path = fresh()
    whole = {coding: take(path, coding) for coding in ("identity", *NAMES)}
    for coding, r in whole.items():
        accept = f"Accept-Encoding: {coding}"
        assert ask(path, accept, method="HEAD").head.split(b"Cache-")[0].split(b"Date")[0] == \
            r.head.split(b"Cache-")[0].split(b"Date")[0]
        for field in (f"If-None-Match: {r.fields['ETag']}",
                      f"If-None-Match: \"x\", W/{r.fields['ETag']}",
                      f"If-Modified-Since: {r.fields['Last-Modified']}"):
            same = ask(path, accept, field)
            assert same.status == 304 and same.fields["ETag"] == r.fields["ETag"], (field, same)
            assert same.fields["Vary"] == "Accept-Encoding", same
            assert "Content-Encoding" not in same.fields, same
        for other in whole:
            if other != coding:     # another variant's tag is not this one's
                got = ask(path, accept, f"If-None-Match: {whole[other].fields['ETag']}")
                assert got.bare() == r.bare(), got
        got = ask(path, accept, 'If-Match: "x"', hit=False)
        assert got.status == 412 and got.fields["Vary"] == "Accept-Encoding", got


def t_ranges_are_of_the_chosen_variant():
    path = fresh()
    for coding in ("identity", *NAMES):
        r, accept = take(path, coding), f"Accept-Encoding: {coding}"
        part = ask(path, accept, "Range: bytes=3-10", hit=False)
        assert (part.status, part.body) == (206, r.body[3:11]), part
        assert part.fields["Content-Range"] == f"bytes 3-10/{len(r.body)}", part
        for name in ("ETag", "Content-Encoding", "Vary"):
            assert part.fields.get(name) == r.fields.get(name), (name, part)
        part = ask(path, accept, f"If-Range: {r.fields['ETag']}", "Range: bytes=-5", hit=False)
        assert (part.status, part.body) == (206, r.body[-5:]), part
        other = take(path, "gzip" if coding != "gzip" else "br").fields["ETag"]
        part = ask(path, accept, f"If-Range: {other}", "Range: bytes=-5", hit=False)
        assert (part.status, part.body) == (200, r.body), part
        assert ask(path, accept, "Range: bytes=99999-", hit=False).status == 416


def t_qualities():
    path = fresh()
    for accept, want in (("gzip, deflate, br, zstd", "br"), ("gzip, deflate", "gzip"),
                         ("br;q=0.5, gzip;q=0.8", "gzip"), ("gzip;q=0", None), ("*", "br"),
                         ("*;q=0", None), ("br;q=0, *", "zstd"), ("x-gzip", "gzip"),
                         ("identity;q=0, gzip;q=0.1", "gzip"), ("identity, gzip;q=0.5", None),
                         ("identity;q=0", None), ("deflate", None), ("GZIP", "gzip"),
                         ("gzip;q=2", None), ("gzip ; q=0.3 , br ; q=0.2", "gzip")):
        r = take(path, accept)
        assert r.fields.get("Content-Encoding") == want, (accept, r)
        assert decoded(r) == TEXT, accept
    # on two lines, which is a list all the same; and none at all
    r = ask(path, "Accept-Encoding: br;q=0", "Accept-Encoding: gzip, br", hit=False)
    assert r.fields["Content-Encoding"] == "gzip", r


def t_what_has_no_variants_does_not_vary():
    tiny = fresh(data=b"a few bytes\n")
    image = fresh(".png", TEXT)
    for path in (tiny, image):
        for accept in ("identity", "gzip, br, zstd"):
            r = take(path, accept)
            assert "Vary" not in r.fields and "Content-Encoding" not in r.fields, r
            r = ask(path, f"If-None-Match: {r.fields['ETag']}")
            assert r.status == 304 and "Vary" not in r.fields, r


def t_what_does_not_get_smaller_stays():
    noise = random.Random(1).randbytes(4000)
    path = fresh(".txt", noise)
    for accept in ("gzip", "br", "zstd", "gzip, br, zstd"):
        r = take(path, accept)
        assert r.body == noise and "Content-Encoding" not in r.fields, r


def pressed(d, path, coding, plain):
    """The first answer in that coding; those before it are the file as it is."""
    def one():
        r = c.get(path, f"Accept-Encoding: {coding}")
        assert r.status == 200 and r.fields["Vary"] == "Accept-Encoding", r
        assert decoded(r) == plain, "another content"
        return r.fields.get("Content-Encoding") == coding and r
    with client.Client(d.address) as c:
        # what compresses has the time that nothing else takes
        return net.until(one, f"{path} never became {coding}", wait_s=3 * client.WAIT_S)


def t_large_text_is_compressed_behind_its_first_answer():
    for size in (500000, (64 << 10) + 1):       # the least that is too large to be stored
        large_text(size)


def large_text(size):
    data = talk.content("large", size)
    path = fresh(".js", data)
    with client.Client(user.address) as c:
        r = c.get(path, "Accept-Encoding: gzip")
        assert "Content-Encoding" not in r.fields and r.body == data, r
        plain, tags = r.fields["ETag"], set()
        for coding, suffix in NAMES.items():
            r = pressed(user, path, coding, data)
            tag = r.fields["ETag"]
            assert len(r.body) < len(data) // 2 and tag.endswith(f'-{suffix}"'), r
            tags.add(tag)
            accept = f"Accept-Encoding: {coding}"
            head = c.ask("HEAD", path, accept)
            assert head.bare()[0] == r.bare()[0] and not head.body, (head, r)
            assert c.get(path, accept, f"If-None-Match: {tag}").status == 304
            assert c.get(path, accept, f"If-None-Match: {plain}").status == 200
            part = c.get(path, accept, "Range: bytes=100-999")
            assert part.status == 206 and part.body == r.body[100:1000], part
            assert part.fields["Content-Range"] == f"bytes 100-999/{len(r.body)}", part
        assert len(tags) == 3
        r = c.get(path, "Accept-Encoding: gzip;q=0, identity")
        assert r.body == data and r.fields["ETag"] == plain, r
    if wire:        # what wire cannot answer is the same behind it
        assert pressed(wire, path, "br", data).tier == "miss"
        shown = talk.ask(wire, "why", path)
        assert shown["why"] == "MISS" and "compresses" in shown["detail"], shown


def t_text_that_its_heads_keep_from_being_stored_is_compressed_all_the_same():
    with conf.Conf('root = "{root}"\nheaders = { "X: %s" }\n' % ("x" * 1900)) as d:
        data = talk.content("text", 64 << 10)
        d.write("a.js", data)
        with client.Client(d.address) as c:
            assert {c.get("/a.js").tier for _ in range(2)} == {"miss"}
        assert pressed(d, "/a.js", "br", data).fields["X"] == "x" * 1900


def t_large_text_that_changes_is_compressed_anew():
    path = fresh(".json", TEXT * 100)
    pressed(user, path, "gzip", TEXT * 100)
    for i in range(5):
        data = talk.content(str(i), 200000 + i)
        user.write(path[1:], data)
        with client.Client(user.address) as c:
            assert decoded(c.get(path, "Accept-Encoding: gzip")) == data
        pressed(user, path, "gzip", data)


def t_large_files_that_are_not_compressed():
    """Files of another type, too large to wait for, or random: they are never compressed."""
    noise = random.Random(2).randbytes(100000)
    with client.Client(user.address) as c:
        for path in (fresh(".png", TEXT * 100), fresh(".txt", TEXT * 3000)):
            for _ in range(3):
                r = c.get(path, "Accept-Encoding: gzip")
                assert not {"Content-Encoding", "Vary"} & set(r.fields), (path, r)
        path = fresh(".txt", noise)
        follower = fresh(".txt", TEXT * 100)
        assert c.get(path, "Accept-Encoding: br").body == noise
        pressed(user, follower, "br", TEXT * 100)       # one after the other: path had its turn
        r = c.get(path, "Accept-Encoding: br")
        assert r.body == noise and r.fields["Vary"] == "Accept-Encoding", r


def t_large_texts_within_the_budget():
    """More of them than there is memory: what is asked for is right all the time."""
    with daemon.Daemon("--tiers", "user", "--memory", "8M") as d:
        rng = random.Random(3)
        texts = [rng.randbytes(60000).hex().encode() for _ in range(20)]
        for i, text in enumerate(texts):        # 60 KB each when compressed, in 512 KiB
            d.write(f"{i}.txt", text)
        for i, text in enumerate(texts):
            pressed(d, f"/{i}.txt", "gzip", text)
        with client.Client(d.address) as c:
            seen = []
            for i in reversed(range(20)):
                r = c.get(f"/{i}.txt", "Accept-Encoding: gzip")
                assert decoded(r) == texts[i]
                seen.append("Content-Encoding" in r.fields)
        assert seen[0] and not all(seen), seen


def t_siblings_are_used():
    for suffix, size in ((".js", 3000), (".bin", 2000), (".js", 100), (".js", 200000)):
        body = talk.content("plain", size)
        path = fresh(suffix, body)
        siblings = {}
        for coding, name in NAMES.items():
            siblings[coding] = talk.content(coding, size // 2)
            user.write(path[1:] + "." + name, siblings[coding])
        small = size < 10000
        plain = ask(path, hit=small)
        tags = {plain.fields["ETag"]}
        assert plain.body == body and plain.fields["Vary"] == "Accept-Encoding", plain
        for coding, want in siblings.items():
            r = take(path, coding, hit=small)
            assert r.body == want and r.fields["Content-Encoding"] == coding, r
            assert r.fields["Content-Type"] == plain.fields["Content-Type"]
            assert r.fields["Vary"] == "Accept-Encoding", r
            same = ask(path, f"Accept-Encoding: {coding}", f"If-None-Match: {r.fields['ETag']}",
                       hit=small)
            assert same.status == 304 and same.fields["Vary"] == "Accept-Encoding", same
            part = ask(path, f"Accept-Encoding: {coding}", "Range: bytes=1-4", hit=False)
            assert (part.status, part.body) == (206, want[1:5]), part
            tags.add(r.fields["ETag"])
        assert len(tags) == 4, tags
        # itself, a sibling is a file like any other
        r = ask(path + ".gz", "Accept-Encoding: br", hit=small)
        assert r.body == siblings["gzip"] and "Content-Encoding" not in r.fields, r


def t_with_a_sibling_nothing_is_compressed():
    path = fresh()
    user.write(path[1:] + ".gz", b"\x1f\x8b made by hand")
    assert take(path, "br, gzip").body == b"\x1f\x8b made by hand"
    assert take(path, "br, zstd").body == TEXT


def t_index_files_have_siblings():
    user.write("folder/index.html", TEXT)
    user.write("folder/index.html.br", b"a sibling of the index")
    assert take("/folder/", "br").body == b"a sibling of the index"
    assert ask("/folder/").body == TEXT


def t_no_sibling_but_regular_files_of_ours():
    outside = os.path.join(user.folder, "secret")
    with open(outside, "wb") as f:
        f.write(b"outside of the root")
    path = fresh(".bin")
    at = os.path.join(user.root, path[1:])
    os.mkdir(at + ".gz")
    os.symlink(outside, at + ".br")
    os.mkfifo(at + ".zst")
    r = take(path, "gzip, br, zstd")
    assert r.body == TEXT and "Vary" not in r.fields, r
    # a link that stays inside is a file
    os.unlink(at + ".br")
    os.symlink("target", at + ".br")
    user.write("target", b"inside of the root")
    until(path, "br", b"inside of the root")


def until(path, accept, body):
    """Within the promise both answer so, and then always."""
    for d in [x for x in (user, wire) if x]:
        with client.Client(d.address) as c:
            deadline = time.monotonic() + client.WAIT_S
            while (r := c.get(path, f"Accept-Encoding: {accept}")).body != body:
                assert time.monotonic() < deadline, r
            for _ in range(5):
                r = c.get(path, f"Accept-Encoding: {accept}")
                assert r.body == body, r


def t_siblings_come_and_go():
    path = fresh(".bin")
    at = os.path.join(user.root, path[1:])
    assert take(path, "gzip").body == TEXT
    user.write(path[1:] + ".gz", b"one")
    until(path, "gzip", b"one")
    user.write(path[1:] + ".gz", b"another")
    until(path, "gzip", b"another")
    with open(at + ".gz", "wb") as f:
        f.write(b"in place")
    until(path, "gzip", b"in place")
    os.rename(at + ".gz", at + ".br")
    until(path, "gzip", TEXT)
    until(path, "br", b"in place")
    os.truncate(at + ".br", 0)
    until(path, "br", TEXT)
    os.unlink(at + ".br")
    until(path, "gzip, br, zstd", TEXT)
    assert "Vary" not in take(path, "gzip, br").fields


def t_a_changed_file_changes_all_variants():
    path = fresh()
    for i in range(5):
        body = talk.content(f"version {i}", 2000 + i)
        user.write(path[1:], body)
        for coding, one in ((x, y) for x in ("identity", *NAMES) for y in (user, wire) if y):
            with client.Client(one.address) as c:
                deadline = time.monotonic() + client.WAIT_S
                while decoded(r := c.get(path, f"Accept-Encoding: {coding}")) != body:
                    assert time.monotonic() < deadline, r
        for coding in ("identity", *NAMES):
            assert decoded(take(path, coding)) == body


def t_removed_with_its_variants_left_behind():
    path = fresh()
    user.write(path[1:] + ".gz", b"of what is gone")
    assert take(path, "gzip").body == b"of what is gone"
    os.unlink(os.path.join(user.root, path[1:]))
    for d in [x for x in (user, wire) if x]:
        with client.Client(d.address) as c:
            deadline = time.monotonic() + client.WAIT_S
            while c.get(path, "Accept-Encoding: gzip").status != 404:
                assert time.monotonic() < deadline


def t_as_configured():
    def one(d):
        d.write("a.css", TEXT)
        d.write("off/a.css", TEXT)
        d.write("off/b.css", TEXT)
        d.write("off/b.css.gz", b"a sibling")
        d.write("gz/a.css", TEXT)
        d.write("gz/b.css", TEXT)
        d.write("gz/b.css.br", b"a sibling")
        with conf.Host(d.address, "test") as c:
            for path, accept, want in (("/a.css", "br, gzip", "br"),
                                       ("/off/a.css", "br, gzip", None),
                                       ("/off/b.css", "br, gzip", "gzip"),
                                       ("/gz/a.css", "br, gzip", "gzip"), ("/gz/a.css", "br", None),
                                       ("/gz/b.css", "br", None)):
                for _ in range(3):
                    r = c.get(path, f"Accept-Encoding: {accept}")
                    assert r.fields.get("Content-Encoding") == want, (path, r)
                    assert ("Vary" in r.fields) == (path != "/off/a.css"), r
    conf.both('''root = "{root}"
        compress-min = 1K
        location "/off/" { compress = off }
        location "/gz/" { compress = gzip
            precompressed = off }
        ''', one)
    try:
        with conf.Conf('root = "{root}"\ncompress = deflate\n') as d:
            raise AssertionError(f"taken: {d.lines}")
    except RuntimeError as why:
        assert "expected gzip, br and zstd, or off" in str(why), why


def t_the_tool_shows_variants():
    path = fresh()
    take(path, "br")
    d = wire or user
    shown = talk.ask(d, "why", path)
    assert shown["variants"] == ["gzip", "br", "zstd"] and shown["encoding"] == "identity", shown
    shown = talk.ask(d, "why", "--accept-encoding", "gzip;q=0.5, br", path)
    assert shown["encoding"] == "br" and shown["cached"], shown
    listed = [x["encoding"] for x in talk.ask(d, "objects")["objects"] if x["path"] == path]
    assert "br" in listed and "identity" in listed, listed
    shown = talk.ask(d, "purge", path)
    assert shown["purged"] >= 2, shown
    assert path not in [x["path"] for x in talk.ask(d, "objects")["objects"]]


def t_warm_makes_all_of_them():
    path = fresh()
    for d in [x for x in (user, wire) if x]:
        for _ in range(2):
            talk.ask(d, "warm", os.path.join(d.root, path[1:]))
        made = [x for x in talk.ask(d, "objects", "--limit", "0")["objects"] if x["path"] == path]
        assert len(made) > len(NAMES) and not any(x["hits"] for x in made), made
        with client.Client(d.address) as c:
            for coding in ("identity", *NAMES):
                r = c.get(path, f"Accept-Encoding: {coding}")
                assert daemon.is_tier(r.tier, "wire" if d is wire else "user"), (coding, r)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
