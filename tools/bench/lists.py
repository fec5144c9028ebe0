# SPDX-License-Identifier: GPL-2.0
"""The requests of a user's --list: lines of load.c, or a filelist of WebStone.

A line of WebStone is `PATH WEIGHT [#SIZE]`, one of load.c `WEIGHT PATH SIZE CRC-32`; the
first word distinguishes them. A comment begins with #; a number alone in it is the size of
the file. Without a size, a name such as /file5k.html may give it. If the size is unknown,
only the status is checked.
"""
from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import fileset as files
from messages import Usage

if TYPE_CHECKING:
    from fileset import Files

KIB = 1024
UNITS = {"": 1, "k": KIB, "m": KIB * KIB}
NAME_MAX = 255              # bytes of a file's name
UNKNOWN = -1                # a size, in the format of load.c
# WebStone's own mix, of 1,000 requests, with the sizes of its generator of files.
STANDARD = ((350, "/file500.html", 500), (500, "/file5k.html", 5 * KIB),
            (140, "/file50k.html", 50 * KIB), (9, "/file500k.html", 500 * KIB),
            (1, "/file5m.html", 5 * KIB * KIB))
STANDARD_NAME = "webstone"


def size_of(comment: Any, path: str) -> int:
    """The size in a filelist's comment or in a file's name, UNKNOWN if there is none."""
    m = re.match(r"(\d+)([km]?)\s*$", comment, re.I) or \
        re.search(r"(\d+)([km]?)\.[^./]*$", path, re.I)
    return int(m.group(1)) * UNITS[m.group(2).lower()] if m else UNKNOWN


def webstone_row(line: str, where: str) -> tuple[float, str, int]:
    """(weight, path, size) of a line such as `/file5k.html 500 #5120`."""
    text, _, comment = line.partition("#")
    words = text.split()
    if len(words) == 1:
        words.append("1")       # WebStone 1.x: pages without a weight
    if len(words) != 2 or not re.fullmatch(r"\d+(\.\d+)?", words[1]):
        raise Usage(f"{where}: want `PATH WEIGHT [#SIZE]`")
    return float(words[1]), words[0], size_of(comment.strip(), words[0])


def own_row(line: str, where: str) -> tuple:
    """(weight, path, size, CRC-32, further columns) of a line of load.c."""
    words = line.split(None, 3)
    if len(words) < 3 or not re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", words[0]) or \
            not words[1].startswith("/") or not re.fullmatch(r"-1|\d+", words[2]):
        raise Usage(f"{where}: want `WEIGHT PATH SIZE [CRC-32]`, or `PATH WEIGHT [#SIZE]` "
                    "as in WebStone")
    return (float(words[0]), words[1], int(words[2]), *words[3:])


def parse(text: str, name: str) -> list[tuple]:
    """[(weight, path, size[, CRC-32])] of a list's text, without weights of 0."""
    rows = []
    for nr, line in enumerate(text.splitlines(), 1):
        line, where = line.strip(), f"--list {name}: line {nr}"
        if not line or line.startswith("#"):
            continue
        row = (webstone_row if line.startswith("/") else own_row)(line, where)
        if row[0]:
            rows.append(row)
    if not rows:
        raise Usage(f"--list {name}: no request in it")
    return rows


def read(name: str) -> list:
    """The rows of a file, or of WebStone's standard mix by its name."""
    if name == STANDARD_NAME:
        return list(STANDARD)
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as f:
            return parse(f.read(), name)
    except OSError as e:
        raise Usage(f"--list {name}: {e.strerror}") from e


def is_made(row: Any) -> bool:
    """Whether the lab makes that file: its path and size are known, its bytes follow from them."""
    return len(row) == 3 and row[2] > 0


def made(rows: Any) -> Files:
    """The files that the lab makes for a list."""
    return files.Files([row for row in rows if is_made(row)])


def unmakeable(rows: Any) -> str | None:
    """Why the lab cannot make a file of a list, None if it can make all of them.

    The files are made by root, and never outside their folder.
    """
    sizes: dict[str, int] = {path: size for _, path, size in files.basic().rows}
    own, mine = set(sizes), [row[1:3] for row in rows if is_made(row)]
    for path, size in mine:
        if os.path.normpath(path) != path or path.startswith("//") or re.search("[?%\0]", path) or \
                max(map(len, os.fsencode(path).split(b"/"))) > NAME_MAX:
            return f"{path} is not the plain path of a file"
        if sizes.setdefault(path, size) != size:
            return f"{path} has {sizes[path]} bytes " + \
                ("in every lab" if path in own else "in another line")
    folders = {os.path.dirname(path) for path in sizes}
    for folder in list(folders):
        while (folder := os.path.dirname(folder)) != "/":
            folders.add(folder)
    return next((f"{path} is also the folder of another file" for path, _ in mine
                 if path in folders), None)


def without_size(rows: Any) -> Any:
    """The first path whose size is not known, None if all are."""
    return next((path for _, path, size, *_ in rows if size == UNKNOWN), None)


def write(rows: Any, path: str) -> str:
    """Write the list to that file, in the format of the clients."""
    return files.Files([row if len(row) > 3 or is_made(row) else (*row, "-")
                        for row in rows]).list_for_load(path)


def name_of(path: str) -> str:
    return "WebStone's standard mix" if path == STANDARD_NAME else os.path.basename(path)
