# SPDX-License-Identifier: GPL-2.0
"""Sessions in httperf's --wsesslog grammar, and access logs made into them.

    # a comment, in the first column
    /index.html think=2.5              a burst begins; 2.5 s after its replies the next one does
        /style.css                     indented: joins the burst, or begins a session
        /form method=POST contents='a=1&b=2'
                                       an empty line ends the session

read() accepts what httperf accepts and says what is wrong where; text() writes
it. convert reads Common and Combined logs. Nothing here touches a network.
"""
import argparse
import calendar
import collections
import gzip
import io
import math
import re
import sys
import time
import zlib

from amount import not_negative, whole
from fileset import IMAGES, PAGE
from say import Problem

TEMPLATES_MAX = 1000            # httperf's MAX_SESSION_TEMPLATES
LINE_MAX = 9998                 # bytes that httperf reads at a time, less newline and end
METHODS = ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

Call = collections.namedtuple("Call", "uri method think_s contents")


def read(path):
    """[session = [burst = [Call, …], …], …] of a file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            ret = parse(f.read(), path)
    except OSError as e:
        raise Problem(f"{path}: {e.strerror}") from e
    if not ret:
        raise Problem(f"{path}: no session in it")
    if len(ret) > TEMPLATES_MAX:
        print(f"bench: {path}: {len(ret)} sessions, httperf takes the first {TEMPLATES_MAX}",
              file=sys.stderr)
    return ret


def parse(text, name="sessions"):
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


def goes_on(line):
    """Whether it ends with a backslash in a string."""
    m = re.search(r"\S\s+contents=", line)
    return bool(m) and scan(line[m.end():])[2] == "\\"


def joined(text):
    """(number, line) without comments; a string goes on behind a backslash at a line's end."""
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


def parse_call(line, where):
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


def scan(text):
    """(value, its length in the text, what is open), as httperf reads a string.

    It ends at a blank outside of quotes, which may be anywhere in it. open: the
    quote or the backslash at which the text is over, or nothing.
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


def parse_value(text, where):
    """(value, what follows)"""
    value, length, left_open = scan(text)
    if left_open:
        raise Problem(f"{where}: a string that does not end")
    return value, text[length:].lstrip()


def method_of(value, where):
    """By the beginning of its name; httperf, which wants all of it, is given all of it."""
    for method in METHODS:
        if value and method.startswith(value):
            return method
    raise Problem(f"{where}: method={value}: there are {' '.join(METHODS)}")


def think_of(value, where):
    try:
        ret = float(value)
        if not math.isfinite(ret):
            raise ValueError(value)
    except ValueError as e:
        raise Problem(f"{where}: think={value}: want seconds") from e
    if ret < 0:
        raise Problem(f"{where}: think={value}: want seconds, not negative")
    return ret


def quoted(text):
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(special.get(c, c) for c in text) + '"'


def written(call, joins):
    """The line of a request. joins: the burst of the one before."""
    ret = "    " * joins + call.uri
    if call.method != "GET":
        ret += f" method={call.method}"
    if call.think_s is not None:
        ret += f" think={call.think_s:g}"
    if call.contents is not None:
        ret += f" contents={quoted(call.contents)}"
    return ret


def text(sessions):
    """The grammar of some sessions."""
    lines = []
    for session in sessions:
        lines += [written(call, i > 0) for burst in session for i, call in enumerate(burst)]
        lines.append("")
    return "\n".join(lines)


def made_up():
    """What the papers took for a page: 5 to 15 requests, a document and its images."""
    ret = []
    for pages in range(1, 5):
        session = []
        for page in range(pages):
            think = 0.2 if page + 1 < pages else None
            session.append([Call(PAGE, "GET", think, None)] +
                           [Call(path, "GET", None, None) for path in IMAGES])
        ret.append(session)
    return ret


def think_s(session, default):
    """What a session thinks in all; nobody waits behind its last burst."""
    return sum(next((c.think_s for c in burst[::-1] if c.think_s is not None), default)
               for burst in session[:-1])


# ------------------------------------------------------------------ logs

BESIDE_MAX = 50                 # bytes of a line beside the target, at most: method=, think=
LOG = re.compile(r'(\S+) \S+ .*?\[([^\[\]]+)\] "(\S+) '
                 r'(\S+(?: (?:[^" \\]|\\.)*)*?)(?: HTTP/[\d.]+)?" (\d{3}) \S+'
                 r'(?: "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)")?')
LOG_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.S)
LOG_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
MONTHS = {name: i for i, name in enumerate(
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}


def log_time(text_):
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


def plain_target(text_):
    """Without the log's escapes; what neither URIs nor sessions may have is percent-encoded."""
    raw = LOG_ESCAPE.sub(lambda m: bytes([int(m.group(1), 16)]) if m.group(1) else
                         LOG_ESCAPES.get(m.group(2), m.group(2)),
                         text_.encode("utf-8", "surrogateescape"))
    return re.sub(rb'[^!"$-\[\]-~]', lambda m: b"%%%02X" % m.group()[0], raw).decode("ascii")


class Converter:
    """Lines of a log, one by one, into sessions; what was left out is counted."""

    def __init__(self, idle_s=1800.0, burst_s=1.0, think_max_s=60.0, methods=("GET", "HEAD")):
        self.idle_s, self.burst_s, self.think_max_s = idle_s, burst_s, think_max_s
        self.methods = methods
        self.calls, self.nr = {}, 0
        self.left_out = collections.Counter()

    def line(self, line):
        m = LOG.match(line)
        when = log_time(m.group(2)) if m else None
        if when is None:
            self.left_out["malformed"] += 1
            return
        client, uri, method = (m.group(1), m.group(6)), m.group(4), m.group(3)
        absolute = re.match(r"(?i)https?://[^/?]+", uri)    # RFC 9112, 3.2.2: whose path may be empty
        if absolute:
            uri = re.sub(r"^(?!/)", "/", uri[absolute.end():])
        uri = plain_target(uri)
        if not uri.startswith("/"):
            self.left_out["with a target that is no path"] += 1
        elif method not in self.methods or method not in METHODS:
            self.left_out["of other methods"] += 1
        elif m.group(5)[0] == "3" and m.group(5) != "304":
            self.left_out["that were redirected"] += 1      # where to is a line of its own
        elif m.group(5)[0] != "2" and m.group(5) != "304":
            self.left_out["that were answered with an error"] += 1
        elif len(uri) > LINE_MAX - BESIDE_MAX:
            self.left_out["too long for httperf"] += 1
        else:
            self.place(client, when, Call(uri, method, None, None))

    def place(self, client, when, call):
        """A log has the lines as replies ended; what is thought between them goes by their times."""
        self.calls.setdefault(client, []).append((when, self.nr, call))
        self.nr += 1

    def sessions(self):
        """In the order of their first requests."""
        ret = []
        for calls in self.calls.values():
            calls.sort(key=lambda c: c[:2])
            then = None
            for when, nr, call in calls:
                if then is None or when - then > self.idle_s:
                    ret.append((when, nr, [[call]]))
                else:
                    self.join(ret[-1][2], when - then, call)
                then = when
        return [session for _, _, session in sorted(ret, key=lambda s: s[:2])]

    def join(self, session, gap, call):
        """To its last burst, or as a new one; the pause is the last one's, as in httperf."""
        if gap <= self.burst_s:
            session[-1].append(call)
            return
        session[-1][0] = session[-1][0]._replace(think_s=min(gap, self.think_max_s))
        session.append([call])


def opened(path):
    """A log, - for stdin, as text; one that logrotate has compressed is unpacked."""
    raw = open(0 if path == "-" else path, "rb", closefd=path != "-")
    if raw.peek(2)[:2] == b"\x1f\x8b":
        raw = gzip.open(raw)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def main(argv):
    """bench convert"""
    ap = argparse.ArgumentParser(
        prog="bench convert", description="Make sessions in httperf's wsesslog grammar, on "
        "stdout, of an access log in Common or Combined format. A session is what one client "
        "(and, in Combined, one browser) asked for without a long pause.")
    ap.add_argument("log", metavar="LOG", help="the log, gzipped or not; - for stdin")
    ap.add_argument("--idle", type=not_negative, default=1800, metavar="S",
                    help="a pause that ends a session (1800)")
    ap.add_argument("--burst", type=not_negative, default=1, metavar="S",
                    help="requests so close are one burst (1, which is what logs resolve)")
    ap.add_argument("--think-max", type=not_negative, default=60, metavar="S",
                    help="longer pauses are cut to that (60)")
    ap.add_argument("--methods", default="GET,HEAD", metavar="M,…",
                    help="others are left out: a log has no bodies (GET,HEAD)")
    ap.add_argument("--sessions", type=whole(), default=TEMPLATES_MAX, metavar="N",
                    help=f"the first N; httperf takes {TEMPLATES_MAX}")
    args = ap.parse_args(argv)
    methods = args.methods.split(",")
    for name in methods:
        if name not in METHODS:
            ap.error(f"--methods {name}: there are {' '.join(METHODS)}")
    conv = Converter(args.idle, args.burst, args.think_max, methods)
    try:
        with opened(args.log) as f:
            for line in f:
                if line.strip():
                    conv.line(line)
    except (OSError, EOFError, zlib.error) as e:        # the latter of what is no whole .gz
        raise Problem(f"{args.log}: {getattr(e, 'strerror', None) or e}") from e
    for what, nr in sorted(conv.left_out.items()):
        print(f"convert: left out {nr} lines {what}", file=sys.stderr)
    sessions = conv.sessions()
    if not sessions:
        raise Problem(f"{args.log}: no request in it that can be replayed")
    chosen = sessions[:args.sessions]
    if len(chosen) < len(sessions):
        print(f"convert: the first {len(chosen)} of {len(sessions)} sessions",
              file=sys.stderr)
    print(text(chosen))
    return 0
