#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The request corpus (corpus/*.case) against the daemon, whole and in pieces.

The answers to a case must be the same bytes, Date and Cache-Status's value
apart, however its bytes arrive and whichever tier answers: user alone, with each
of the kernel tiers, and all together.
"""
import fcntl
import os
import random
import re
import select
import socket
import struct
import sys
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import client                       # noqa: E402
import corpus                       # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import talk                         # noqa: E402

WAIT_S = 10
SPLIT_MAX = 600         # longer cases are split at a sample of places
SEED = os.environ.get("TBG_SEED") or str(random.randrange(1 << 32))
BEFORE = b"GET /a.txt HTTP/1.1\r\nHost: before\r\n\r\n"

TIERS = {"wire": ("--wire", "lo"),
         "sock": ("--tiers", "sock,user", "--sock", "unlisted", "--wire", "off"),
         "all": ("--tiers", "wire,sock,user", "--sock", "unlisted", "--wire", "lo")}
user = None
others = {}             # daemons with these, as far as they were needed
cases = []
tags = {}               # root: the entity tag of its index.html


class Client:
    def __init__(self, address):
        self.s = socket.create_connection(address, timeout=WAIT_S)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def close(self):
        self.s.close()

    def acked(self):
        """Wait until the server's TCP has received everything."""
        deadline = time.monotonic() + WAIT_S
        while struct.unpack("i", fcntl.ioctl(self.s, termios.TIOCOUTQ, b"\0" * 4))[0]:
            assert time.monotonic() < deadline, "sent bytes are never acknowledged"
            select.select([self.s], [], [], 0)

    def send(self, data):
        try:
            self.s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass            # refused early: the answer is what counts

    def more(self):
        data = self.s.recv(65536)
        self.got += data
        return data

    def response(self, head_only):
        """(bytes of the response, status, fields, body)"""
        while b"\r\n\r\n" not in self.got:
            assert self.more(), f"end within a head: {self.got!r}"
        head, rest = self.got.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        fields = dict(x.split(": ", 1) for x in lines[1:])
        bare = head_only or status < 200 or status in (204, 304)
        length = 0 if bare else int(fields["Content-Length"])
        while len(rest) < length:
            data = self.more()
            assert data, "end within a body"
            rest += data
        self.got = rest[length:]
        return head + b"\r\n\r\n" + rest[:length], status, fields, rest[:length]


def same(response):
    """The answer without the parts that may differ between tiers."""
    response = re.sub(rb"\r\nDate: [^\r]{29}\r\n", b"\r\nDate:\r\n", response, count=1)
    return re.sub(rb"\r\nCache-Status: toboggan[^\r]*\r\n", b"\r\nCache-Status:\r\n",
                  response, count=1)


def check(d, case, want, response):
    _, status, fields, body = response
    words = want.split(" ", 1)
    assert status == int(words[0]), f"{status}, wanted {words[0]}"
    if status < 200:
        return
    rest = words[1] if len(words) > 1 else ""
    head = rest.startswith("head")
    rest = rest[4:].strip() if head else rest
    m = re.match(r"(.*?) ?(?:([A-Z][\w-]+)=(.*))?$", rest)
    name, field, value = m.groups()
    if field:
        assert fields.get(field) == value, f"{field}: {fields.get(field)}, wanted {value}"
    if name == "empty" and status == 204:
        assert body == b"" and "Content-Length" not in fields
    elif name:
        with open(os.path.join(d.root, name), "rb") as f:
            data = f.read()
        if head:
            assert int(fields["Content-Length"]) == len(data), "length differs"
        else:
            assert body == data, "body differs"
    looked = status in (200, 206, 301, 304, 403, 404, 412, 416)    # else nobody was asked
    assert re.fullmatch("toboggan(; .+)" if looked else "toboggan", fields["Cache-Status"]), \
           fields["Cache-Status"]
    assert len(fields["Date"]) == 29 and fields["Server"] == "toboggan"


def sent_bytes(d, case):
    if d.root not in tags:
        with client.Client(d.address) as c:
            tags[d.root] = c.get("/index.html").fields["ETag"]
    return case.bytes(tags[d.root])


def play(d, case, pieces):
    """Send the pieces on a new connection; the normalised responses."""
    client = Client(d.address)
    try:
        for piece in pieces[:-1]:
            client.send(piece)
            client.acked()
        client.send(pieces[-1])
        out = []
        for want, head in zip(case.want, case.heads()):
            response = client.response(head)
            check(d, case, want, response)
            out.append(same(response[0]))
        if case.end == "open":
            client.send(corpus.PROBE)
            _, status, _, body = client.response(False)
            assert (status, body) == (200, corpus.PROBE_BODY), "connection out of step"
        else:
            assert not client.more(), f"more than the answers: {client.got[:80]!r}"
        assert not client.got, f"more than the answers: {client.got[:80]!r}"
        return out
    except Exception as why:
        raise AssertionError(f"{case.name}: {why!r}") from why
    finally:
        client.close()


def all_cases(fn):
    failures = []
    for case in cases:
        try:
            fn(case)
        except AssertionError as why:
            failures.append(str(why))
    for line in failures[:20]:
        ktap.note(line)
    assert not failures, f"{len(failures)} of {len(cases)} cases"


def t_whole():
    for _ in range(2):      # a miss, then a hit
        all_cases(lambda case: play(user, case, [sent_bytes(user, case)]))


def t_byte_by_byte():
    def one(case):
        data = sent_bytes(user, case)
        whole = play(user, case, [data])
        assert play(user, case, [data[i:i + 1] for i in range(len(data))]
                    if len(data) <= SPLIT_MAX else [data]) == whole, f"{case.name}: differs"
    all_cases(one)


def places(data):
    if len(data) <= SPLIT_MAX:
        return range(1, len(data))
    return sorted({*range(1, 100), *range(len(data) - 60, len(data)),
                   *range(1, len(data), 997)})


def t_split_at_every_byte():
    def one(case):
        data = sent_bytes(user, case)
        whole = play(user, case, [data])
        for i in places(data):
            if play(user, case, [data[:i], data[i:]]) != whole:
                raise AssertionError(f"{case.name}: split at {i}: differs")
    all_cases(one)


def random_pieces(d, nr):
    rng = random.Random(SEED)
    ktap.note(f"TBG_SEED={SEED}")

    def one(case):
        data = sent_bytes(d, case)
        whole = play(d, case, [data])
        for _ in range(nr):
            pieces = corpus.pieces(data, rng)
            if play(d, case, pieces) != whole:
                raise AssertionError(
                    f"{case.name}: in pieces of {[len(x) for x in pieces]}: differs")
    all_cases(one)


def t_split_at_random_places():
    random_pieces(user, 3)


def between(d, case):
    """The case between two good requests, in one send."""
    data = sent_bytes(d, case)
    alone = play(d, case, [data])
    client = Client(d.address)
    try:
        client.send(BEFORE + data + corpus.PROBE)
        _, status, _, body = client.response(False)
        assert (status, body) == (200, b"a text\n"), "the one before"
        out = [same(client.response(head)[0]) for head in case.heads()]
        assert out == alone, f"{out}, wanted {alone}"
        if case.end == "open":
            _, status, _, body = client.response(False)
            assert (status, body) == (200, corpus.PROBE_BODY), "the one behind"
        else:
            assert not client.more(), "more than the answers"
        assert not client.got, f"more than the answers: {client.got[:80]!r}"
    except Exception as why:
        raise AssertionError(f"{case.name}: between others: {why!r}") from why
    finally:
        client.close()


def t_pipelined_between_good_requests():
    all_cases(lambda case: between(user, case))


def pipelined_with(tiers):
    d = need(tiers)
    all_cases(lambda case: between(d, case))


def t_pipelined_between_good_requests_with_wire():
    pipelined_with("wire")


def t_pipelined_between_good_requests_with_sock():
    pipelined_with("sock")


def t_pipelined_between_good_requests_with_all_tiers():
    pipelined_with("all")


def t_split_at_random_places_with_wire():
    random_pieces(need("wire"), 2)


def t_split_at_random_places_with_sock():
    random_pieces(need("sock"), 2)


def t_split_at_random_places_with_all_tiers():
    random_pieces(need("all"), 2)


def t_every_difference_from_nginx_is_explained():
    failures = []
    for case in cases:
        if not case.nginx:
            failures.append(f"{case.name}: not recorded: tests/http/record")
        elif (case.nginx != case.ours()) != bool(case.why):
            failures.append(f"{case.name}: nginx {case.nginx}, ours {case.ours()}: {case.why}")
    for line in failures[:20]:
        ktap.note(line)
    assert not failures, f"{len(failures)} of {len(cases)} cases"
    ktap.note(f"{len(cases)} cases, {sum(1 for x in cases if x.why)} of them differ")


def t_nginx_answers_as_recorded():
    with open(corpus.VERSION, encoding="ascii") as f:
        recorded = f.read().strip()
    if corpus.installed_nginx() != recorded:
        raise ktap.Skip(f"{recorded} is not installed")
    with corpus.Nginx() as n:
        failures = [f"{x}: {got}, recorded {x.nginx}" for x in cases
                    if (got := n.fate(x)) != x.nginx]
    for line in failures[:20]:
        ktap.note(line)
    assert not failures, f"{len(failures)} of {len(cases)} cases"


def same_with(tiers):
    d = need(tiers)

    def one(case):
        want = play(user, case, [sent_bytes(user, case)])
        for _ in range(3):
            got = play(d, case, [sent_bytes(d, case)])
            if got != want:
                raise AssertionError(f"{case.name}: differs with {tiers}: {got} {want}")
    all_cases(one)
    counts = talk.counts(d)
    for tier in ("WIRE",) if tiers == "all" else (tiers.upper(),):
        assert counts[f"HIT_{tier}"] > 10, f"{tier} answered nothing: {counts}"


def t_same_bytes_with_wire():
    same_with("wire")


def t_same_bytes_with_sock():
    same_with("sock")


def t_same_bytes_with_all_tiers():
    same_with("all")


def t_split_at_every_byte_with_wire():
    wire = need("wire")

    def one(case):
        data = sent_bytes(wire, case)
        whole = play(wire, case, [data])
        for i in places(data)[::3]:
            if play(wire, case, [data[:i], data[i:]]) != whole:
                raise AssertionError(f"{case.name}: split at {i}: differs")
    all_cases(one)


def start(*options):
    """All daemons serve the same files, since tags are made of inodes and times."""
    d = daemon.Daemon(*options, root=user.root if user else None)
    if not user:
        corpus.fill(d.root)
    return d.start()


def need(tiers):
    """The daemon with these tiers, wire on lo, or a skip: root and BPF are needed."""
    if os.geteuid():
        raise ktap.Skip(f"{tiers} needs root")
    if tiers not in others:
        others[tiers] = start(*TIERS[tiers])
    d = others[tiers]
    for tier in ("wire", "sock") if tiers == "all" else (tiers,):
        state = talk.ask(d, "status")["tiers"][tier]
        if not state["on"]:
            raise ktap.Skip(f"{tier} is off: {state['why']}")
    return d


def setup():
    global user
    cases.extend(corpus.read())
    user = start("--tiers", "user")


def teardown():
    for d in (user, *others.values()):
        if d:
            assert d.stop() == 0, d.lines


if __name__ == "__main__":
    ktap.run(globals(), setup, teardown)
