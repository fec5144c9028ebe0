# SPDX-License-Identifier: GPL-2.0
"""The requested files, and the content of each.

A file's bytes follow from its path alone, so a client knows them without the file:
the site of a remote server is made there with `bench site DIR`, and wrong bytes in an
answer are detected here.
"""
from __future__ import annotations

import functools
import hashlib
import os
import re
import time
import zlib
from typing import Any

from messages import Problem, notify

SIZES = (1, 10, 100, 512, 1024, 4096, 8192, 16384, 65536, 102400, 1 << 20, 10 << 20)
SMALL, LARGE = "/1k.jpg", "/1m.bin"
PAGE_SIZE = 8192
PAGE, IMAGES = "/page.html", tuple(f"/image{i}.png" for i in range(4))     # of made-up sessions
PROGRESS_S = 5
TIME = 1700000000           # of every file: equal Last-Modified on every server

# SPECweb99's file set: share of each class, and of each file within a class.
CLASS_SHARES = (0.35, 0.50, 0.14, 0.01)
# SPECweb99's requests: kinds of dynamic ones, their paths, a user of the tables.
MIX = (("get", .1245), ("ads", .126), ("post", .048), ("cgi", .0015))
DYNAMIC = {"get": "/spec", "ads": "/spec", "post": "/spec", "cgi": "/cgi-bin/specweb99"}
COOKIE, USERS = "my_cookie=user_id=10###&last_ad=1##", 1000
MARK = b'<!WEB99CAD><IMG SRC="/file_set/dir00000/class0_0"><!/WEB99CAD>'
MARK_EVERY = 10240
FILE_SHARES = (.039, .059, .088, .177, .353, .118, .071, .050, .044)

# The fields that a browser sends.
BROWSER = [
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,"
               "image/webp,*/*;q=0.8"),
    ("Accept-Language", "en-US,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Referer", "http://www.example.org/section/page.html"),
    ("DNT", "1"),
    ("Sec-Fetch-Dest", "image"),
    ("Sec-Fetch-Mode", "no-cors"),
    ("Sec-Fetch-Site", "same-origin"),
]


def size_path(size: float) -> str:
    return f"/size/{size}.bin"


def web99_size(klass: int, nr: int) -> int:
    return int(102.4 * (nr + 1) * 10 ** klass)


def web99_path(folder: int, klass: int, nr: int) -> str:
    return f"/file_set/dir{folder:05d}/class{klass}_{nr}"


def web99_folders(connections: int) -> int:
    """The number of SPECweb99's directories for this many simultaneous connections."""
    return int(25 + (400000 / 122000 * connections) / 5)


def object_path(nr: float, i: int) -> str:
    """The path of the i-th of nr files, in folders of 1,000."""
    return f"/o{nr}/{i // 1000}/{i}"


def web99_content(path: str, size: int) -> bytes:
    """Text of lines; in classes 1 and 2 with the mark that ad rotation fills in."""
    text = hashlib.shake_128(path.encode()).digest(size // 2 + 1).hex("\n", 32).encode()
    for at in range(128, size - len(MARK), MARK_EVERY) if re.search("class[12]_", path) else ():
        text = text[:at] + MARK + text[at + len(MARK):]
    return text[:size]


@functools.lru_cache(maxsize=4)
def content(path: str, size: int) -> bytes:
    if path.startswith("/file_set/"):
        return web99_content(path, size)
    return hashlib.shake_128(path.encode("utf-8", "surrogateescape")).digest(size)


@functools.lru_cache(maxsize=100000)
def crc(path: str, size: int) -> int:
    return zlib.crc32(content(path, size))


def has(root: str, path: str, size: int) -> bool:
    name = os.path.join(root, path.lstrip("/"))
    return os.path.exists(name) and os.path.getsize(name) == size


def put(root: str, path: str, size: int) -> None:
    if has(root, path, size):
        return
    name = os.path.join(root, path.lstrip("/"))
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as f:
        f.write(content(path, size))
    os.utime(name, (TIME, TIME))


def existing(path: str) -> str:
    """The folder, or the existing one above it, which is on the same file system."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


class Files:
    """[(weight, path, size)] from which a load draws; more columns are for load.c."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def make(self, root: str) -> None:
        rows = [row for row in self.rows if not has(root, *row[1:3])]
        notify(f"make {len(rows):,} files, {sum(r[2] for r in rows) / 2**20:,.0f} MiB")
        free = os.statvfs(existing(root))
        need = sum(max(r[2], 4096) for r in rows)
        if free.f_bavail * free.f_frsize < 1.1 * need:
            raise Problem(f"{root}: {need / 2**20:,.0f} MiB of files needed, "
                          f"{free.f_bavail * free.f_frsize / 2**20:,.0f} MiB free")
        if free.f_favail and free.f_favail < 1.1 * len(rows):
            raise Problem(f"{root}: {len(rows):,} files needed, {free.f_favail:,} inodes free")
        noted_s = time.monotonic()
        for nr, (_, path, size) in enumerate(rows):
            put(root, path, size)
            if time.monotonic() - noted_s > PROGRESS_S:
                noted_s = time.monotonic()
                notify(f"  {nr:,} of {len(rows):,} files")

    def list_for_load(self, file: str) -> str:
        """Write the list in the format of load.c."""
        with open(file, "w", encoding="utf-8", errors="surrogateescape") as f:
            for weight, path, size, *more in self.rows:
                more = more or [f"{crc(path, size):08x}"]
                f.write(f"{weight:.12g} {path} {size} {' '.join(more)}\n")
        return file


def basic() -> Files:
    rows = [(1, SMALL, 1024), (1, LARGE, 1 << 20)]
    return Files(rows + [(1, path, PAGE_SIZE) for path in (PAGE, *IMAGES)] +
                 [(1, size_path(s), s) for s in SIZES])


def web99(folders: int) -> Files:
    """Directories by Zipf's law, within them SPECweb99's classes and files."""
    rows = []
    for folder in range(folders):
        for klass, share in enumerate(CLASS_SHARES):
            for nr, part in enumerate(FILE_SHARES):
                rows.append((share * part / (folder + 1), web99_path(folder, klass, nr),
                             web99_size(klass, nr)))
    return Files(rows)


def web99_mix(folders: int, pages: Any) -> Files:
    """The same with SPECweb99's dynamic requests, for a server with such pages."""
    rows = []
    for weight, path, size in web99(folders).rows:
        rows += [pages.row(weight * share, kind, path, size) for kind, share in MIX]
        rows.append((weight * (1 - sum(share for _, share in MIX)), path, size))
    return Files(rows)


class Pages:
    """The pages that one server makes around files: specweb99/specweb99.h has them too."""

    def __init__(self, software: bytes, address: str) -> None:
        self.software, self.address = software, address

    @classmethod
    def like(cls, body: Any, address: str) -> Pages:
        """The Pages of the server that sent this one to a client with that address."""
        m = re.search(rb"\n<p>SERVER_SOFTWARE = ([^\n<>]*)\n", body)
        return cls(m.group(1) if m else b"", address)

    def body(self, name: Any, query: Any, path: str, size: float) -> bytes:
        """The answer to `name?query`."""
        return b"<html>\n<head><title>SPECweb99 Dynamic GET & POST Test</title></head>\n<body>\n" \
            b"<p>SERVER_SOFTWARE = %s\n<p>REMOTE_ADDR = %s\n<p>SCRIPT_NAME = %s\n" \
            b"<p>QUERY_STRING = %s\n<pre>\n%s\n</pre>\n</body></html>\n" % \
            (self.software, self.address.encode(), name.encode(), query.encode(),
             content(path, size))

    def row(self, weight: float, kind: str, path: str, size: float) -> tuple[float, str, int, str]:
        """A kind of request for the page of that file, for a list of load.c."""
        name, query = DYNAMIC[kind], "" if kind == "post" else path
        body = self.body(name, query, path, size)
        ret = (weight, f"{name}?{query}" if query else name, len(body),
               f"{zlib.crc32(body):08x}" + (any_ad(body) if kind == "ads" else ""))
        if kind in ("ads", "post"):
            ret += (COOKIE,)
        if kind == "post":
            folder, klass, nr = re.match(r"/file_set/dir(.*)/class(.)_(.)", path).groups()
            ret += (f"urlroot=/file_set&dir={folder}&class={klass}&num={nr}&client=####",)
        return ret


def any_ad(body: bytes) -> str:
    """The places in a body where a mark names a file that depends on the cookie."""
    number = MARK.index(b"00000")
    nr, first = body.count(MARK), body.find(MARK) + number
    return f"@{first}+{MARK.rindex(b'0') + 1 - number}/{MARK_EVERY}*{nr}" if nr else ""


def objects(nr: int) -> Files:
    return Files([(1, object_path(nr, i), 1024) for i in range(nr)])
