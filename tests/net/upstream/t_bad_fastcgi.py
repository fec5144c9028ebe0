#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A FastCGI server with all kinds of faults, and with unusual legal answers: padding, pieces."""
import hashlib
import itertools
import os
import re
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                                       # noqa: E402
import conf                                         # noqa: E402
import daemon                                       # noqa: E402
import fastcgi                                      # noqa: E402
import ktap                                         # noqa: E402
import origin                                       # noqa: E402
import talk                                         # noqa: E402
from fastcgi import STDERR, STDOUT, answer, out, record   # noqa: E402
from origin import END, ask, then_closes                         # noqa: E402

HUGE = int(os.environ.get("TBG_HUGE_MB", "256")) << 20      # bytes each way
CONF = """
root = "{root}"
upstream "fake" {
    server = "%s"
    protocol = fastcgi
    script-filename = "/app/run.php"
    first-byte-timeout = 1500ms
    upstream-idle-timeout = 1500ms
}
location "/f/" { upstream = "fake" }
"""

_names = itertools.count()


def begin():
    global d, f
    f = fastcgi.Server(unix=True)
    d = conf.Conf(CONF % f.server, "--workers", "1")
    d.write("file", b"a file")
    d.start()


def end():
    d.stop()
    f.close()


def path():
    return f"/f/{next(_names)}"


def t_request_as_records():
    p = path()
    f.on(p, answer(b"Content-Type: a/b\r\n\r\nhello"))
    r = ask(d.address, "POST", p, "Content-Type: c/d", body=b"body")
    assert r.status == 200 and r.body == b"hello" and r.field("Content-Length") == "5", r
    got = f.wait(p)
    assert got.keep and got.body == b"body" and got.params["CONTENT_TYPE"] == "c/d", got.params
    assert got.params["SCRIPT_FILENAME"] == "/app/run.php" and \
           got.params["SCRIPT_NAME"] == "/run.php"
    assert got.params["PATH_INFO"] == p, got.params


def t_padding_and_pieces():
    whole = out(b"Status: 201 Made\r\nX: y\r\n\r\nhello world", size=3,
                padding=7) + record(STDOUT, padding=9) + fastcgi.end()
    for step in (1, 7, 64):
        p = path()

        def send(c, r, step=step):
            for i in range(0, len(whole), step):
                c.send(whole[i:i + step])
        f.on(p, send)
        r = ask(d.address, "GET", p)
        assert (r.status, r.reason, r.body, r.field("X")) == (201, "Made", b"hello world", "y"), \
               (step, r)


def t_management_records_are_passed_over():
    p = path()
    f.on(p, record(11, b"\x09" + b"\0" * 7, 0) + record(10, b"\x0f\x01FCGI_MPXS_CONNS0", 0, 5) +
         answer(b"A: b\n\nx"))
    assert ask(d.address, "GET", p).body == b"x"


def t_connections_are_used_again():
    paths = [path() for _ in range(20)]
    for p in paths:
        f.on(p, answer(b"A: b\n\nx"))
        assert ask(d.address, "GET", p).body == b"x"
    assert len({f.wait(p).connection for p in paths}) == 1


def good_after(p, body=b"good"):
    f.on(p, answer(b"A: b\r\n\r\n" + body))
    r = ask(d.address, "GET", p)
    assert r.status == 200 and r.body == body and not r.hit, r


HEAD = b"Cache-Control: max-age=60\r\n\r\n"

WRONG = {
    "no record": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "zeros": bytes(64),
    "version": record(STDOUT, HEAD, version=2),
    "another's": out(HEAD, id_=2) + fastcgi.end(),
    "management's": out(HEAD, id_=0) + fastcgi.end(),
    "a request": record(fastcgi.BEGIN, b"\0\1\0\0\0\0\0\0"),
    "input": record(fastcgi.STDIN, b"x"),
    "unknown": record(77, b"x"),
    "short end": record(fastcgi.END, b"\0"),
    "nothing": fastcgi.end(),
    "errors alone": record(STDERR, b"oh") + fastcgi.end(),
    "no head": out(b"garbage\n\n") + fastcgi.end(),
    "half a head": out(b"Cache-Control: max-age=60\r\n") + fastcgi.end(),
    "empty head": out(b"\r\nbody") + fastcgi.end(),
    "status line": out(b"HTTP/1.1 200 OK\r\n" + HEAD) + fastcgi.end(),
    "bad status": out(b"Status: 99\r\n" + HEAD) + fastcgi.end(),
    "interim": out(b"Status: 101 Switching\r\n" + HEAD) + fastcgi.end(),
    "two statuses": out(b"Status: 200\r\nStatus: 404\r\n" + HEAD) + fastcgi.end(),
    "two types": out(b"Content-Type: a/b\r\nContent-Type: text/html\r\n\r\nx") + fastcgi.end(),
    "two lengths": out(b"Content-Length: 1\r\nContent-Length: 2\r\n" + HEAD + b"x") + fastcgi.end(),
    "too short": out(b"Content-Length: 5\r\n" + HEAD + b"abc") + fastcgi.end(),
    "behind its end": out(HEAD + b"abc") + record(STDOUT, b"") + out(b"d") + fastcgi.end(),
    "too long": out(b"Content-Length: 2\r\n" + HEAD + b"abc") + fastcgi.end(),
    "overloaded": fastcgi.end(status=2),
    "multiplexing": fastcgi.end(status=1),
    "role": fastcgi.end(status=3),
    "endless head": out(b"X: " + b"y" * 100000),
    "nul": out(b"X: a\0b\r\n" + HEAD) + fastcgi.end(),
    "closed": b"",
    "closed in a record": record(STDOUT, HEAD)[:12],
}


def t_wrong_answers_are_502_and_never_stored():
    for name, data in WRONG.items():
        p = path()
        f.on(p, then_closes(data))
        r = ask(d.address, "GET", p)
        assert r.status == 502 and "stored" not in r.cache, (name, r)
        f.wait_end(p)
        good_after(p)


def t_what_an_overloaded_server_has_not_begun_another_does():
    """Whatever the method; what has been said by it before is an answer that failed."""
    with fastcgi.Server() as a, fastcgi.Server() as b:
        with conf.Conf(
            'upstream "two" { server = {"%s", "%s"} protocol = fastcgi script-root = "/" }\n'
                       'location "/" { upstream = "two" body-buffer = "1M" }\n' % (a.server,
                                                                                   b.server),
            "--workers", "1") as two:
            for s, said in ((a, fastcgi.end(status=2)), (b, answer(b"A: b\n\nright"))):
                s.on("/x", said)
            a.on("/y", out(b"A: b\n") + fastcgi.end(status=2))
            b.on("/y", out(b"A: b\n") + fastcgi.end(status=2))
            for _ in range(4):
                r = ask(two.address, "POST", "/x", body=b"sent")
                assert r.status == 200 and r.body == b"right", r
            assert all(x.body == b"sent" for x in a.seen("/x") + b.seen("/x"))
            assert ask(two.address, "POST", "/y", body=b"sent").status == 502
            assert len(a.seen("/y") + b.seen("/y")) == 1


def t_truncated_answers_are_cut_off_and_never_stored():
    for length in (b"", b"Content-Length: 9\r\n"):
        for rest in (b"", record(77), record(STDOUT, b"x" * 20)[:15]):
            p, go = path(), threading.Event()

            def send(c, r, length=length, rest=rest, go=go):
                c.send(out(length + HEAD + b"abc"))
                assert go.wait(client.WAIT_S)
                c.send(rest)
                return END
            f.on(p, send)
            with origin.Client(d.address) as c:
                c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
                c.head()
                go.set()
                try:
                    while c._more():
                        pass
                except ConnectionResetError:
                    pass
                assert b"0\r\n\r\n" not in c.got and (not length or len(c.got) < 9), c.got
            good_after(p)


def t_what_follows_an_end_is_nobody_s_answer():
    q = path()
    f.on(q, answer(b"A: b\n\nright"))
    for status, head in ((200, b""), (200, b"Content-Length: 1\n"), (204, b"Status: 204\n")):
        for evil, got in ((answer(HEAD + b"smuggled"), 502), (b"junk", status),
                          (fastcgi.end(), status)):
            p = path()
            f.on(p, answer(head + HEAD + (b"x" if status == 200 else b"")) + evil)
            r = ask(d.address, "GET", p)
            assert r.status == got and (got == 502 or r.body in (b"", b"x")), (head, evil, r)
            assert ask(d.address, "GET", q).body == b"right"
            assert f.seen(p)[0].connection != f.seen(q)[-1].connection
            good_after(p)


def t_a_length_that_is_reached_before_the_end():
    """The client has its answer, and the connection is used again only after the end."""
    p, q, go = path(), path(), threading.Event()

    def send(c, r):
        c.send(out(b"Content-Length: 3\r\n\r\nabc"))
        assert go.wait(client.WAIT_S)
        c.send(fastcgi.end())
    f.on(p, send)
    f.on(q, answer(b"A: b\n\nx"))
    with origin.Client(d.address) as c:
        assert c.request("GET", p).body == b"abc"
        assert c.request("GET", q).body == b"x"
        go.set()
    assert f.wait(p).connection != f.wait(q).connection


def t_answers_without_body():
    for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
        p = path()
        f.on(p, answer(f"Status: {status}\nContent-Length: 5\n\n".encode() +
                       (b"" if status != 200 else b"hello")))
        r = ask(d.address, method, p)
        assert r.status == status and not r.body, r
        good_after(p)


def t_an_answer_without_body_is_there_before_the_end():
    """Its connection is used again once the end has come, but for one with a body after all."""
    for method, head in (("GET", b"Status: 204\n\n"), ("HEAD", b"Content-Length: 5\n\n"),
                         ("GET", b"Content-Length: 0\n\n")):
        for more in (b"", out(b"more")):
            p, q, go = path(), path(), threading.Event()

            def send(c, r, head=head, more=more, go=go):
                c.send(out(head))
                assert go.wait(client.WAIT_S)
                c.send(more + fastcgi.end())
            f.on(p, send)
            f.on(q, answer(b"A: b\n\nx"))
            with origin.Client(d.address) as c:
                r = c.request(method, p)
                assert r.status in (200, 204) and not r.body, (head, r)
                go.set()
                client.until(lambda: not under_way("fake"), "no end")
                assert c.request("GET", q).body == b"x"
            assert (f.wait(p).connection == f.wait(q).connection) == (not more), (head, more)


def under_way(name):
    return sum(x["active"] for x in talk.ask(d, "status")["upstreams"] if x["upstream"] == name)


def t_a_program_that_reports_a_failure_is_not_stored():
    p = path()
    f.on(p, out(HEAD + b"half") + fastcgi.end(app=1), answer(HEAD + b"whole"))
    assert ask(d.address, "GET", p).body == b"half"
    r = ask(d.address, "GET", p)
    assert r.body == b"whole" and not r.hit, r


def t_time_limits():
    p, q, stop = path(), path(), threading.Event()
    f.on(p, lambda c, r: stop.wait(client.WAIT_S) and END)

    def stuck(c, r):
        c.send(out(HEAD + b"a"))
        stop.wait(client.WAIT_S)
        return END
    f.on(q, stuck)
    assert ask(d.address, "GET", p).status == 504
    try:
        ask(d.address, "GET", q)
        raise AssertionError("an answer that stood still was whole")
    except (EOFError, ConnectionResetError):
        pass
    stop.set()
    good_after(q)


def t_a_client_that_leaves_aborts_the_request():
    p, heard = path(), []

    def watch(c, r):
        try:
            heard.append(c.record())
            heard.append(c.record())
        except EOFError:
            heard.append(END)
        return END
    f.on(p, watch)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        f.wait(p)
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    f.wait_end(p)
    assert heard == [(fastcgi.ABORT, b""), END], heard


def t_stale_connections_are_tried_again():
    """A connection that the server has closed meanwhile loses no idempotent request."""
    p, q = path(), path()
    f.on(p, answer(b"A: b\n\nx"))
    f.on(q, END, answer(b"A: b\n\ny"))
    assert ask(d.address, "GET", p).body == b"x"
    assert ask(d.address, "GET", q).body == b"y"


def t_a_post_does_not_meet_the_end_of_a_connection():
    """Which a server may make right behind an answer; later it stays."""
    post_does_not_meet_the_end(f, d)
    with fastcgi.Server() as s, \
        conf.Conf('upstream "s" { server = "%s" protocol = fastcgi script-root = "/" }\n'
                                          'location "/" { upstream = "s" }\n' % s.server,
                  "--workers", "1") as by_tcp:
        post_does_not_meet_the_end(s, by_tcp)
        with open("/proc/net/tcp", encoding="ascii") as lines:
            left = [x for x in lines if f":{s.port:04X} 06 " in x]
        assert len(left) < 20, "TIME_WAIT of each uses up the ports"


def post_does_not_meet_the_end(of, by):
    p, waits = path(), []

    def says(c, r):
        waits.append(time.monotonic() - getattr(c, "said_s", 0))
        c.said_s = time.monotonic()
        c.send(answer(b"A: b\n\nx"))

    of.on(p, says)
    for method, body in (("POST", b"1"), ("PUT", bytes(17000))):    # a PUT in hand may meet it
        with origin.Client(by.address) as c:
            for _ in range(50):
                r = c.request(method, p, body=body)
                assert r.body == b"x", (method, r)
    assert min(waits) > 0.015, f"{min(waits)} s behind an answer on its connection"
    p = path()
    of.on(p, answer(b"A: b\n\nx"))
    with origin.Client(by.address) as c:
        for _ in range(3):
            assert c.request("POST", p, body=b"1").body == b"x"
            time.sleep(0.1)
    of.wait(p, 3)
    assert len({r.connection for r in of.seen(p)}) == 1, "nor is one made for each"


def t_endless_errors_cost_no_memory():
    p = path()
    f.on(p, then_closes(record(STDERR, b"e" * 65535) * 20 + answer(b"A: b\n\nx")))
    assert ask(d.address, "GET", p).body == b"x"


def t_huge_answers_in_constant_memory():
    """Also one that is fresh and too large to be kept."""
    block, nr = out(bytes(range(256)) * 255), HUGE // (256 * 255)
    for head in (b"A: b\r\n\r\n", HEAD):
        def send(c, r, head=head):
            c.send(out(head))
            for _ in range(nr):
                c.send(block)
            c.send(record(STDOUT) + fastcgi.end())
        p, got, most = path(), 0, 0
        f.on(p, send)
        with origin.Client(d.address) as c:
            c.send(f"GET {p} HTTP/1.0\r\nHost: t\r\n\r\n".encode())
            c.head()
            got, c.got = len(c.got), b""
            while data := c.s.recv(1 << 20):
                if got >> 24 != (got + len(data)) >> 24:
                    most = max(most, daemon.own_kb(d.pid))
                got += len(data)
        assert got == nr * 256 * 255 and most < 88 << 10, (got, most)


def t_huge_bodies_in_constant_memory():
    def take(c, r):
        got, n, size = bytearray(c.got), 0, -1
        while size:
            at = 0
            while size and len(got) - at >= 8:
                size = got[at + 4] << 8 | got[at + 5]
                assert got[at + 1] == fastcgi.STDIN and not got[at + 6], got[at:at + 8]
                if len(got) - at < 8 + size:
                    break
                n += size
                at += 8 + size
            del got[:at]
            if size:
                got += c.s.recv(1 << 18)
        c.got = b""
        c.send(answer(b"A: b\r\n\r\n%d" % n))

    p, block, most = path(), bytes(1 << 20), 0
    f.on(p, take, raw=True)
    with origin.Client(d.address) as c:
        c.send(f"PUT {p} HTTP/1.1\r\nHost: test\r\nContent-Length: {HUGE}\r\n\r\n".encode())
        for i in range(HUGE >> 20):
            c.send(block)
            if not i % 16:
                most = max(most, daemon.own_kb(d.pid))
        assert c.answer().body == b"%d" % HUGE
    assert most < 88 << 10, most


def t_what_follows_a_large_body():
    """Requests behind it in the stream are read in order, however it is cut into records."""
    p = path()
    f.on(p, lambda c, r: c.send(answer(b"A: b\n\n" + hashlib.sha1(r.body).hexdigest().encode())))
    with origin.Client(d.address) as c:
        for size in (65535, 65536, 200000, 700000):
            body = os.urandom(size)
            data = f"POST {p} HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n".encode() + \
                body
            data += b"".join(b"GET /file?%d HTTP/1.1\r\nHost: test\r\nX: %s\r\n\r\n" % (
                i, b"x" * 997) for i in range(100))
            sender = threading.Thread(target=c.send, args=(data,))
            sender.start()
            assert c.answer().body == hashlib.sha1(body).hexdigest().encode(), size
            for i in range(100):
                assert c.answer().body == b"a file", (size, i)
            sender.join()
            assert not c.got


def t_an_endless_answer_ends_with_its_client():
    p = path()

    def endless(c, r):
        c.send(out(HEAD))
        while True:
            c.send(out(b"x" * 60000))
    f.on(p, endless)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        got = 0
        while got < 64 << 20:
            got += len(c.s.recv(1 << 20))
    f.wait_end(p)
    assert daemon.own_kb(d.pid) < 88 << 10, daemon.own_kb(d.pid)
    good_after(p)


def t_stale_answers_stand_in_for_errors():
    for wrong in (then_closes(b""), answer(b"Status: 503\r\n\r\nno"), then_closes(bytes(64))):
        p = path()
        f.on(p, answer(b"Cache-Control: max-age=1, stale-if-error=60\r\nETag: \"a\"\r\n\r\nold"),
             wrong)
        assert ask(d.address, "GET", p).body == b"old"
        deadline = time.monotonic() + client.WAIT_S
        while len(f.seen(p)) < 2:
            r = ask(d.address, "GET", p)
            assert time.monotonic() < deadline and (r.status, r.body) == (200, b"old"), r
            time.sleep(0.05)
        assert f.seen(p)[1].params["HTTP_IF_NONE_MATCH"] == '"a"'


def t_one_request_for_many_that_wait():
    p, go = path(), threading.Event()

    def slow(c, r):
        go.wait(client.WAIT_S)
        c.send(answer(HEAD + b"for all"))
    f.on(p, slow)
    cs = [origin.Client(d.address) for _ in range(20)]
    for c in cs:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    f.wait(p)
    # all are with the daemon once it has acknowledged an answer to one that came later
    for c in cs:
        talk.Connection.acked(c)
    ask(d.address, "GET", "/file")
    go.set()
    got = [c.answer() for c in cs]
    assert all(r.body == b"for all" for r in got) and len(f.seen(p)) == 1, (got, len(f.seen(p)))
    for c in cs:
        c.close()


def flood(lines):
    return b"".join(record(STDERR, lines[i:i + 60000]) for i in range(0, len(lines), 60000)) + \
           answer(b"A: b\n\nwhole")


def t_error_output_of_a_request_has_a_limit():
    p, since = path(), len(d.lines)
    f.on(p, flood((b"much " + b"x" * 494 + b"\n") * 2000))
    assert ask(d.address, "GET", p).body == b"whole"
    cut = int(re.search(r"(\d+) bytes more of error output",
                        client.logs(d, "bytes more of error output", since))[1])
    told = [x for x in d.lines[since:] if ": much x" in x]
    assert len(told) == (64 << 10) // 499 and len(told) * 499 + cut == 2000 * 499, (len(told), cut)


def t_error_output_of_all_has_a_rate():
    p, since, left = path(), len(d.lines), 0
    f.on(p, flood(b"m\n" * 30000), flood(b"m\n"))
    while not left:             # it is told with the first line of a later second
        assert ask(d.address, "GET", p).body == b"whole"
        time.sleep(0.05)
        left = sum(int(m[1]) for m in re.finditer(r"(\d+) lines left out",
                                                  "\n".join(d.lines[since:])))
    told = sum(x.endswith(": m") for x in d.lines[since:])
    assert told + left <= 30000 + 1000, (left, told)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
