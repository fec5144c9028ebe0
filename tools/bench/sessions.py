# SPDX-License-Identifier: GPL-2.0
"""Sessions in httperf's --wsesslog grammar, and their creation from access logs.

    # a comment, in the first column
    /index.html think=2.5              a burst begins; 2.5 s after its replies the next one does
        /style.css                     indented: joins the burst, or begins a session
        /form method=POST contents='a=1&b=2'
                                       an empty line ends the session

read() accepts what httperf accepts, and reports faults with their line. text() writes the
grammar. convert reads Common and Combined logs. Nothing here uses a network.
"""
from __future__ import annotations

import argparse
import calendar
import collections
import contextlib
import gzip
import hashlib
import io
import math
import os
import re
import subprocess
import sys
import time
import zlib
from typing import Any, Iterable, Iterator

from option_types import not_negative, whole
from fileset import IMAGES, PAGE
from lab import places
from messages import Problem

TEMPLATES_MAX = 1000            # httperf's MAX_SESSION_TEMPLATES
LINE_MAX = 9998                 # bytes that httperf reads at a time, less newline and end
METHODS = ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
CONTENTS = re.compile(r"(?<=\S)\s+contents=")

Call = collections.namedtuple("Call", "uri method think_s contents")


def read(path: str) -> list:
    """[session = [burst = [Call, …], …], …] of a file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            ret = parse(f.read(), path)
    except OSError as e:
        raise Problem(f"{path}: {e.strerror}") from e
    if not ret:
        raise Problem(f"{path}: no session in it")
    if len(ret) > TEMPLATES_MAX:
        print(f"bench: {path}: {len(ret)} sessions, httperf uses the first {TEMPLATES_MAX}",
              file=sys.stderr)
    return ret


def parse(text: str, name: str = "sessions") -> list:
    sessions, session = [], []
    for nr, line in joined(text):
        if not line.strip():
            if session:
                sessions.append(session)
                session = []
            continue
        call = parse_call(line.strip(), f"{name}:{nr}")
        joins = bool(session) and line[0].isspace()
        length = len(written(call, joins).encode("utf-8", "surrogateescape"))
        if length > LINE_MAX:
            raise Problem(f"{name}:{nr}: {length} bytes as a line for httperf, which reads "
                          f"at most {LINE_MAX}")
        if joins:
            session[-1].append(call)
        else:
            session.append([call])
    return sessions + [session] * bool(session)


def goes_on(line: str) -> bool:
    """Whether the line ends with a backslash in a string."""
    m = CONTENTS.search(line)
    while m:
        _, length, left_open = scan(line[m.end():])
        if left_open:
            return left_open == "\\"
        m = CONTENTS.search(line, m.end() + length)
    return False


def joined(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments; a backslash at the end of a line continues a string."""
    held, first = "", 0
    for nr, line in enumerate(text.split("\n"), 1):
        if held:
            line = held + line
        elif line.startswith("#"):
            continue
        else:
            first = nr
        held = line + "\n" if goes_on(line) else ""
        if not held:
            yield first, line
    if held:
        yield first, held


def parse_call(line: str, where: str) -> tuple:
    uri, _, rest = line.partition(" ")
    if "\t" in uri:
        uri, _, more = uri.partition("\t")
        rest = f"{more} {rest}"
    method, think, contents = "GET", None, None
    rest = rest.strip()
    while rest:
        key, equals, rest = rest.partition("=")
        key = key.strip()
        if not equals:
            raise Problem(f"{where}: `{key}`: want method=, think= or contents=")
        value, rest = parse_value(rest, where)
        if key == "method":
            method = method_of(value, where)
        elif key == "think":
            think = think_of(value, where)
        elif key == "contents":
            contents = value
        else:
            raise Problem(f"{where}: `{key}`: want method=, think= or contents=")
    return Call(uri, method, think, contents)


def scan(text: str) -> tuple[str, int, str]:
    """(value, its length in the text, what is open), by httperf's rules for a string.

    It ends at a blank outside of quotes, which may be anywhere in it. open: the quote or the
    backslash that is unfinished at the end of the text, or nothing.
    """
    value, quote, escaped = "", "", False
    for nr, ch in enumerate(text):
        if escaped:
            value, escaped = value + ESCAPES.get(ch, ch), False
        elif ch == "\\":
            escaped = True
        elif ch == quote:
            quote = ""
        elif not quote and ch in "'\"":
            quote = ch
        elif not quote and ch in " \t\n":
            return value, nr, ""
        else:
            value += ch
    return value, len(text), "\\" if escaped else quote


def parse_value(text: str, where: str) -> tuple[str, str]:
    """(value, the text after it)"""
    value, length, left_open = scan(text)
    if left_open:
        raise Problem(f"{where}: a string that does not end")
    return value, text[length:].lstrip()


def method_of(value: Any, where: str) -> str:
    """A method by the beginning of its name, completed for httperf."""
    for method in METHODS:
        if value and method.startswith(value):
            return method
    raise Problem(f"{where}: method={value}: there are {' '.join(METHODS)}")


def think_of(value: Any, where: str) -> float:
    try:
        ret = float(value)
        if not math.isfinite(ret):
            raise ValueError(value)
    except ValueError as e:
        raise Problem(f"{where}: think={value}: want seconds") from e
    if ret < 0:
        raise Problem(f"{where}: think={value}: want seconds, not negative")
    return ret


def quoted(text: str) -> str:
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(special.get(c, c) for c in text) + '"'


def written(call: Any, joins: bool) -> Any:
    """The line of a request. joins: it belongs to the burst of the one before."""
    ret = "    " * joins + call.uri
    if call.method != "GET":
        ret += f" method={call.method}"
    if call.think_s is not None:
        ret += f" think={call.think_s:g}"
    if call.contents is not None:
        ret += f" contents={quoted(call.contents)}"
    return ret


def text(sessions: Any) -> str:
    """The text of some sessions."""
    lines = []
    for session in sessions:
        lines += [written(call, i > 0) for burst in session for i, call in enumerate(burst)]
        lines.append("")
    return "\n".join(lines)


def made_up() -> list:
    """A page as in the papers: 5 to 15 requests, a document and its images."""
    ret = []
    for pages in range(1, 5):
        session = []
        for page in range(pages):
            think = 0.2 if page + 1 < pages else None
            session.append([Call(PAGE, "GET", think, None)] +
                           [Call(path, "GET", None, None) for path in IMAGES])
        ret.append(session)
    return ret


def think_s(session: Any, default: Any) -> Any:
    """The think time of a session in total; there is none after its last burst."""
    return sum(next((c.think_s for c in burst[::-1] if c.think_s is not None), default)
               for burst in session[:-1])


# ------------------------------------------------------------------ logs

BESIDE_MAX = 50                 # bytes of a line beside the target, at most: method=, think=
SORT_MEMORY = "64M"             # memory of each of two; the rest is on disk
LOG = re.compile(r'(\S+) \S+ .*?\[([^\[\]]+)\] "(\S+) '
                 r'(\S+(?: (?:[^" \\]|\\.)*)*?)(?: HTTP/[\d.]+)?" (\d{3}) \S+'
                 r'(?: "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)")?')
LOG_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.S)
LOG_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
MONTHS = {name: i for i, name in enumerate(
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}


def log_time(text_: str) -> int | None:
    """'10/Oct/2000:13:55:36 -0700' → seconds since 1970, or None."""
    m = re.fullmatch(r"(\d{1,2})/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)", text_)
    if not m or m.group(2) not in MONTHS:
        return None
    day, month, year, hour, minute, second = (
        int(x) if x.isdigit() else MONTHS[x] for x in m.groups()[:6])
    offset = (int(m.group(8)) * 60 + int(m.group(9))) * 60
    try:
        stamp = calendar.timegm(time.strptime(
            f"{year} {month} {day} {hour} {minute} {min(second, 59)}", "%Y %m %d %H %M %S"))
    except ValueError:
        return None
    return stamp - offset if m.group(7) == "+" else stamp + offset


def plain_target(text_: str) -> str:
    """Without the log's escapes; characters that URIs or sessions forbid are percent-encoded."""
    raw = LOG_ESCAPE.sub(lambda m: bytes([int(m.group(1), 16)]) if m.group(1) else
                         LOG_ESCAPES.get(m.group(2), m.group(2)),
                         text_.encode("utf-8", "surrogateescape"))
    return re.sub(rb'[^!"$-\[\]-~]', lambda m: b"%%%02X" % m.group()[0], raw).decode("ascii")


class Sort:
    """sort(1) for rows of fields without tabs, limited only by the disk."""

    def __init__(self, *keys: Any) -> None:
        argv = ["sort", "-S", SORT_MEMORY, "-T", places()[0], "-t", "\t", *(f"-k{k}" for k in keys)]
        try:
            self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=dict(os.environ, LC_ALL="C"), encoding="ascii")
        except FileNotFoundError as e:
            raise Problem("sort is missing: install coreutils") from e

    def __enter__(self) -> Sort:
        return self

    def __exit__(self, *_: object) -> None:
        self.proc.terminate()       # an unfinished one removes its files
        with contextlib.suppress(BrokenPipeError):
            self.proc.stdin.close()
        self.proc.stdout.close()
        self.proc.wait()

    def put(self, *fields: int | str) -> None:
        try:
            print(*fields, sep="\t", file=self.proc.stdin)
        except BrokenPipeError as e:
            raise Problem("sort ended early") from e    # it has printed the reason

    def rows(self) -> Iterator[list[str]]:
        """All rows in order, as lists of text; no row can be added afterwards."""
        with contextlib.suppress(BrokenPipeError):
            self.proc.stdin.close()
        for line in self.proc.stdout:
            yield line[:-1].split("\t")
        if self.proc.wait():
            raise Problem("sort failed")


class Converter:
    """Converts a log into sessions, and counts what is left out.

    A log may have any length and order; only sort(1) needs memory. The log is sorted by
    client and time, which shows the sessions, and these then by their beginning.
    """

    def __init__(self, idle_s: float = 1800.0, burst_s: float = 1.0, think_max_s: float = 60.0,
                 methods: Iterable[str] = ("GET", "HEAD")) -> None:
        self.idle_s, self.burst_s, self.think_max_s = idle_s, burst_s, think_max_s
        self.methods = methods
        self.nr = 0                     # of sessions
        self.left_out = collections.Counter()

    def lines(self, log: Iterator[Any]) -> Iterator[tuple[bool, Any]]:
        """(whether a session begins, its line), sessions in the order of their first requests."""
        with Sort("1,1", "2,2n", "3,3n") as by_client, Sort("1,1n", "2,2n", "3,3n") as by_begin:
            for nr, line in enumerate(log):
                if line.strip() and (found := self.call(line)):
                    client, when, call = found
                    by_client.put(client, when, nr, call.method, call.uri)
            for row in self.placed(by_client.rows()):
                by_begin.put(*row)
            for _, _, place, line in by_begin.rows():
                yield place == "0", line

    def call(self, line: str) -> tuple[str, int, tuple] | None:
        """(who, seconds since 1970, Call), or None."""
        m = LOG.match(line)
        when = log_time(m.group(2)) if m else None
        if when is None:
            return self.leave_out("malformed")
        uri, method, status = m.group(4), m.group(3), m.group(5)
        # RFC 9112, 3.2.2: whose path may be empty
        absolute = re.match(r"(?i)https?://[^/?]+", uri)
        if absolute:
            uri = re.sub(r"^(?!/)", "/", uri[absolute.end():])
        uri = plain_target(uri)
        if not uri.startswith("/"):
            return self.leave_out("with a target that is not a path")
        if method not in self.methods or method not in METHODS:
            return self.leave_out("of other methods")
        if status[0] == "3" and status != "304":
            return self.leave_out("that were redirected")   # the target has a line of its own
        if status[0] != "2" and status != "304":
            return self.leave_out("that were answered with an error")
        if len(uri) > LINE_MAX - BESIDE_MAX:
            return self.leave_out("too long for httperf")
        client = hashlib.blake2b(repr(m.group(1, 6)).encode(), digest_size=16)
        return client.hexdigest(), when, Call(uri, method, None, None)

    def leave_out(self, why: str) -> None:
        self.left_out[why] += 1

    def placed(self, rows: Any) -> Iterator[Any]:
        """For requests by client and time: (begin and number of the session, place in it, line).

        A log has its lines in the order of the ends of replies; think times follow from their
        times.
        """
        # first: of the burst, whose pause is not known yet
        begin = place = first = last = then = None
        for client, when, nr, method, uri in rows:
            when, call = int(when), Call(uri, method, None, None)
            begins = client != last or when - then > self.idle_s
            joins = not begins and when - then <= self.burst_s
            if first and not joins:
                yield pausing(*first, None if begins else min(when - then, self.think_max_s))
            if begins:
                begin, place, self.nr = (when, nr), 0, self.nr + 1
            if joins:
                yield *begin, place, written(call, True)
            else:
                first = *begin, place, call
            place, last, then = place + 1, client, when
        if first:
            yield pausing(*first, None)


def pausing(when: float, nr: int, place: int, call: Any,
            think: float) -> tuple[float, int, int, Any]:
    """The first request of a burst; the pause after the burst is in its line, as in httperf."""
    return when, nr, place, written(call._replace(think_s=think), False)


def opened(path: str) -> io.TextIOWrapper:
    """A log, - for stdin, as text; one that logrotate has compressed is unpacked."""
    raw = open(0 if path == "-" else path, "rb", closefd=path != "-")
    if raw.peek(2)[:2] == b"\x1f\x8b":
        raw = gzip.open(raw)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def log_lines(path: str) -> Iterator[Any]:
    try:
        with opened(path) as f:
            yield from f
    except (OSError, EOFError, zlib.error) as e:        # the latter for an incomplete .gz
        raise Problem(f"{path}: {getattr(e, 'strerror', None) or e}") from e


def main(argv: list[str]) -> int:
    """bench convert"""
    ap = argparse.ArgumentParser(
        prog="bench convert", description="Make sessions in httperf's wsesslog grammar, on "
        "stdout, from an access log in Common or Combined format: the requests of one "
        "client (and, in Combined, one browser) without a long pause are a session.")
    ap.add_argument("log", metavar="LOG", help="the log, gzipped or not; - for stdin")
    ap.add_argument("--idle", type=not_negative, default=1800, metavar="S",
                    help="a pause that ends a session (1800)")
    ap.add_argument("--burst", type=not_negative, default=1, metavar="S",
                    help="closer requests are one burst (1, the resolution of logs)")
    ap.add_argument("--think-max", type=not_negative, default=60, metavar="S",
                    help="longer pauses are cut to this (60)")
    ap.add_argument("--methods", default="GET,HEAD", metavar="M,…",
                    help="others are left out: a log has no bodies (GET,HEAD)")
    ap.add_argument("--sessions", type=whole(), default=TEMPLATES_MAX, metavar="N",
                    help=f"the first N; httperf uses {TEMPLATES_MAX}")
    args = ap.parse_args(argv)
    methods = args.methods.split(",")
    for name in methods:
        if name not in METHODS:
            ap.error(f"--methods {name}: there are {' '.join(METHODS)}")
    conv = Converter(args.idle, args.burst, args.think_max, methods)
    shown = 0
    with contextlib.closing(conv.lines(log_lines(args.log))) as lines:
        for begins, line in lines:
            if begins and shown == args.sessions:
                break
            print("\n" * (begins and shown > 0) + line)
            shown += begins
    for what, nr in sorted(conv.left_out.items()):
        print(f"convert: left out {nr} lines {what}", file=sys.stderr)
    if not shown:
        raise Problem(f"{args.log}: no request in it that can be replayed")
    if shown < conv.nr:
        print(f"convert: the first {shown} of {conv.nr} sessions", file=sys.stderr)
    print()
    return 0
