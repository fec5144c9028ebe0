#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Bodies of requests on their way to an upstream: received whole first, limits, what is left
behind."""
import contextlib
import hashlib
import itertools
import os
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from origin import END, ask, reply  # noqa: E402

HUGE = int(os.environ.get("TBG_HUGE_MB", "256")) << 20
BODY = bytes(range(256)) * 1000
_names = itertools.count()


def path():
    return f"/p-{next(_names)}"


@contextlib.contextmanager
def proxy(*options, up=None):
    with origin.Origin() as o, daemon.Daemon("--upstream", (up or o).url, *daemon.USER, "--workers",
                                             "1",
                                             *options) as d:
        yield d, o


def buffered(*options):
    return proxy("--body-buffer", "16K", *options)


def fds(d):
    """The daemon's open descriptors, by kind."""
    names = {}
    for fd in os.listdir(f"/proc/{d.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            names[fd] = os.readlink(f"/proc/{d.pid}/fd/{fd}")
    return names


def files(d):
    """Its unlinked files."""
    return [x for x in fds(d).values() if x.endswith("(deleted)") and
            "toboggan" not in x.rsplit("/", 1)[0]
            and "io_uring" not in x and not x.startswith("/memfd")]


def until(what, want=True):
    deadline = time.monotonic() + client.WAIT_S
    while (got := what()) != want:
        assert time.monotonic() < deadline, got
        time.sleep(0.005)


def head(target, *fields, method="POST"):
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: t", *fields]).encode() + b"\r\n\r\n"


def chunked(body, step=5000):
    return b"".join(b"%x\r\n" % len(body[i:i + step]) + body[i:i + step] + b"\r\n"
                    for i in range(0, len(body), step)) + b"0\r\nX-T: 1\r\n\r\n"


FRAMINGS = (("Content-Length: %d" % len(BODY), BODY), ("Transfer-Encoding: chunked", chunked(BODY)))


def t_whole_body_before_the_upstream_is_asked():
    with buffered() as (d, o):
        for framing, data in FRAMINGS:
            p = path()
            o.on(p, lambda c, r: c.send(reply(200, hashlib.sha256(r.body).digest())))
            with origin.Client(d.address) as c:
                for _ in range(2):
                    seen = len(o.seen(p))
                    c.send(head(p, framing) + data[:-10])
                    until(lambda: len(files(d)), 1)
                    assert len(o.seen(p)) == seen
                    c.send(data[-10:] + head(p, "Content-Length: 0"))      # the next is behind it
                    assert c.answer().body == hashlib.sha256(BODY).digest()
                    assert c.answer().body == hashlib.sha256(b"").digest()
                    assert not files(d)
            for r in o.seen(p):
                assert r.field("Content-Length") == str(len(r.body)) and \
                       r.field("Transfer-Encoding") is None, r.head
                assert r.body in (BODY, b"")


def t_small_bodies_need_no_file():
    with buffered() as (d, o):
        for size in (1, 4096, 16383, 16384):
            p = path()
            o.on(p, lambda c, r: c.send(reply(200, r.body)))
            with origin.Client(d.address) as c:
                c.send(head(p, f"Content-Length: {size}") + b"x" * (size - 1))
                assert not files(d)
                c.send(b"y")
                assert c.answer().body == b"x" * (size - 1) + b"y"
    with proxy("--body-buffer", "0") as (d, o):
        o.on("/", lambda c, r: c.send(reply(200, r.body)))
        assert ask(d.address, "POST", "/", body=b"in a file").body == b"in a file"


def t_body_split_at_every_byte():
    with buffered() as (d, o):
        p = path()
        o.on(p, lambda c, r: c.send(reply(200, r.body)))
        data = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\n"
        with origin.Client(d.address) as c:
            c.send(head(p, "Transfer-Encoding: chunked"))
            for i in range(len(data)):
                c.send(data[i:i + 1])
            assert c.answer().body == b"hello world"


def t_large_body_in_constant_memory():
    block, want = bytes(range(256)) * 4096, hashlib.sha256()
    with buffered() as (d, o):
        o.on("/", origin.digest, raw=True)
        with origin.Client(d.address) as c:
            c.send(head("/", f"Content-Length: {HUGE}"))
            kb = 0
            for _ in range(HUGE // len(block)):
                c.send(block)
                want.update(block)
                kb = max(kb, daemon.own_kb(d.pid))
            assert c.answer().body == want.hexdigest().encode()
        assert kb < 56 << 10, kb
        until(lambda: files(d), [])


def t_bodies_have_a_limit_unless_one_is_given():
    """1 MiB, as of those for files."""
    with origin.Origin() as o:
        d = daemon.Daemon("--upstream", o.url, *daemon.USER)
        d.body_max = None
        with d, origin.Client(d.address) as c:
            c.send(head("/large", f"Content-Length: {(1 << 20) + 1}"))
            assert c.answer().status == 413


def t_bodies_that_are_held_have_a_total():
    with buffered("--body-total", "1M") as (d, o), contextlib.ExitStack() as stack:
        def begun(size):
            c = stack.enter_context(origin.Client(d.address))
            c.send(head(path(), "Content-Length: 3000000") + bytes(size))
            return c
        held = begun(700000)
        until(lambda: len(files(d)), 1)
        beyond = begun(700000)
        assert beyond.answer().status == 503
        until(lambda: any("--body-total" in x for x in d.lines), True)
        held.close()
        until(lambda: len(files(d)), 0)
        again = begun(700000)
        until(lambda: len(files(d)), 1)
        again.close()


def t_413_before_and_within_a_body():
    with buffered("--body-max", "100K") as (d, o):
        before = None
        for data in (head("/", "Content-Length: 102401"),
                     head("/", "Content-Length: 102401", "Expect: 100-continue"),
                     head("/", "Transfer-Encoding: chunked") + chunked(b"x" * 102401),
                     head("/", "Content-Length: 18446744073709551615")):
            with origin.Client(d.address) as c:
                c.send(data)
                r = c.answer()
                assert r.status == 413 and c.ended(), r
            until(lambda: files(d), [])
            before = before or len(fds(d))
        until(lambda: len(fds(d)) <= before)
        assert not o.seen()
        o.on("/", reply(200, b"ok"))
        assert ask(d.address, "POST", "/", body=b"x" * 102400).body == b"ok"


def t_413_as_soon_as_the_size_of_a_chunk_is_known():
    began = head("/", "Transfer-Encoding: chunked") + b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    for options in ((), ("--body-buffer", "off")):
        with buffered("--body-max", "100K", *options) as (d, _):
            for data in (began + b"18c19\r\nabc", began + b"FFFFFFFFFFFFFFF\r\n"):
                with origin.Client(d.address) as c:
                    c.send(data)
                    r = c.answer()
                    assert r.status == 413 and c.ended(), r
    with daemon.Daemon(*daemon.USER, "--body-max", "100K") as d, origin.Client(d.address) as c:
        c.send(began + b"18c19\r\nabc")
        r = c.answer()
        assert r.status == 413 and c.ended(), r


def t_bad_bodies_are_400_and_never_sent():
    with buffered() as (d, o):
        for body in (b"x\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"0\r\nbad trailer\r\n\r\n", b"-1\r\n"):
            with origin.Client(d.address) as c:
                c.send(head("/", "Transfer-Encoding: chunked") + body)
                assert c.answer().status == 400 and c.ended()
        assert not o.seen()


def t_expectation_is_met_by_us():
    with buffered() as (d, o):
        o.on("/", lambda c, r: c.send(reply(200, r.body)))
        with origin.Client(d.address) as c:
            for _ in range(2):
                c.send(head("/", "Content-Length: 4", "Expect: 100-continue"))
                assert c.answer().status == 100
                c.send(b"body")
                assert c.answer().body == b"body"
        assert o.seen("/")[0].field("Expect") is None


def t_http10_body_without_a_length_is_411():
    for options in ((), ("--body-buffer", "16K")):
        with proxy(*options) as (d, o):
            for method in ("POST", "PUT", "PATCH"):
                with origin.Client(d.address) as c:
                    c.send(f"{method} / HTTP/1.0\r\n\r\nbody of unknown length".encode())
                    assert c.answer().status == 411 and c.ended()
            assert not o.seen()
            o.on("/", reply(200, b"ok"))
            with origin.Client(d.address) as c:
                c.send(b"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
                assert c.answer().status == 200
            assert ask(d.address, "POST", "/").status == 200, "HTTP/1.1 says that there is no body"


def left_behind(d, before):
    until(lambda: [x for x in files(d)], [])
    until(lambda: len(fds(d)) <= before or sorted(fds(d).values()))


def t_clients_that_leave_leave_nothing_behind():
    for options in ((), ("--body-buffer", "16K")):
        with proxy(*options) as (d, o):
            o.on("/", reply(200, b"ok"), raw=True)
            o.on("/warm", reply(200, b"ok"))
            ask(d.address, "GET", "/warm")
            before = len(fds(d)) + 1
            for i in range(60):
                framing, data = FRAMINGS[i % 2]
                with origin.Client(d.address) as c:
                    c.send(head("/", framing) + data[:[0, 1, 70000, len(data) - 5][i // 2 % 4]])
                    if i % 3 == 0:      # with a reset
                        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            left_behind(d, before)
            if options:
                assert not o.seen("/"), "half a body was sent on"
            assert ask(d.address, "GET", "/warm").body == b"ok"


def t_upstreams_that_leave_leave_nothing_behind():
    def leaves(c, r):
        if not c.got:       # or all of it has come with the head
            c.more()
        return END

    for options in ((), ("--body-buffer", "16K")):
        with proxy(*options) as (d, o):
            o.on("/", leaves, raw=True)
            o.on("/warm", reply(200, b"ok"))
            ask(d.address, "GET", "/warm")
            before = len(fds(d)) + 1
            answers = []
            for i in range(40):
                framing, data = FRAMINGS[i % 2]
                # what is still sent then is answered with a reset, which may overtake
                with origin.Client(d.address) as c, contextlib.suppress(OSError, EOFError):
                    c.send(head("/", framing))
                    for at in range(0, len(data), 10000):
                        c.send(data[at:at + 10000])
                    answers.append(c.answer().status)
            assert set(answers) == {502}, answers
            left_behind(d, before)
            assert ask(d.address, "GET", "/warm").body == b"ok"


def t_early_answer_to_a_body_from_the_spool():
    def refuse(c, r):
        c.send(reply(403, b"no", "Connection: close"))
        return END

    with buffered() as (d, o):
        o.on("/", refuse, raw=True)
        o.on("/next", reply(200, b"next"))
        with origin.Client(d.address) as c:
            c.send(head("/", f"Content-Length: {64 << 20}"))
            for _ in range(64):
                c.send(b"x" * (1 << 20))
            r = c.answer()
            assert r.status in (403, 502), r        # a reset may overtake it
            assert c.request("GET", "/next").body == b"next"
        assert not files(d)


def t_body_is_sent_again_to_a_server_that_had_closed():
    """An idempotent request whose pooled connection died under it; a small body is always in
    hand."""
    for options, body, again in (((), BODY, False), (("--body-buffer", "16K"), BODY, True),
                                 ((), b"small", True),
                                 (("--body-buffer", "off"), b"small", False)):
        with proxy(*options) as (d, o):
            half, came = len(body) // 2, threading.Event()

            def dies(c, r, half=half, came=came):
                data = c.take(half)
                first = not came.is_set()
                came.set()
                data += c.take(int(r.field("Content-Length")) - half)
                if first:
                    return END
                c.send(reply(200, data))
                return None

            o.on("/warm", reply(200, b"ok"))
            o.on("/put", dies, raw=True)
            o.on("/post", lambda c, r: END)
            ask(d.address, "GET", "/warm")
            with origin.Client(d.address) as c:
                c.send(head("/put", f"Content-Length: {len(body)}", method="PUT") + body[:half])
                # what is sent on as it comes may be in hand until more comes
                assert again or came.wait(client.WAIT_S)
                c.send(body[half:])
                r = c.answer("PUT")
            assert (r.status, r.body == body) == ((200, True) if again else (502, False)), \
                   (options, r)
            assert len(o.seen("/put")) == 1 + again
            ask(d.address, "GET", "/warm")
            assert ask(d.address, "POST", "/post", body=body).status == 502
            assert len(o.seen("/post")) == 1, "not idempotent: once"


def t_body_that_does_not_come_is_408():
    for options in ((), ("--body-buffer", "16K")):
        with proxy("--send-timeout", "300ms", *options) as (d, o):
            o.on("/", reply(200, b"never"))
            with origin.Client(d.address) as c:
                c.send(head("/", "Content-Length: 10") + b"half")
                assert c.answer().status == 408 and c.ended(), options
            left_behind(d, len(fds(d)) + 1)


def t_folder_that_takes_no_file_is_503():
    if os.geteuid():
        raise ktap.Skip("not root: the daemon could write everywhere we can")
    with buffered("--body-folder", "/proc") as (d, o):
        o.on("/", lambda c, r: c.send(reply(200, r.body)))
        with origin.Client(d.address) as c:
            c.send(head("/", f"Content-Length: {len(BODY)}") + BODY)
            assert c.answer().status == 503 and c.ended()
        assert ask(d.address, "POST", "/", body=b"small").body == b"small"
        until(lambda: any("body-folder /proc: " in x for x in d.lines))


def t_slow_clients_hold_no_connection_to_the_upstream():
    with buffered() as (d, o):
        o.on("/", lambda c, r: c.send(reply(200, r.body)))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(origin.Client(d.address)) for _ in range(30)]
            for c in clients:
                c.send(head("/", "Content-Length: 2") + b"a")
            assert o.connections == 0
            for c in clients:
                c.send(b"b")
            for c in clients:
                assert c.answer().body == b"ab"


if __name__ == "__main__":
    ktap.run(globals())
