#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Servers behind the proxy that die, hang or are slow: retries, balancing, health, a reload."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402
from origin import END, ask, reply  # noqa: E402
from proxied import connections, path, proxy  # noqa: E402

d = o = None


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


def t_reused_connection_that_dies_is_tried_again():
    for method, status in (("GET", 200), ("HEAD", 200), ("PUT", 200), ("POST", 502)):
        p, q = path(), path()
        o.on(q, reply(200, b"warm"))
        o.on(p, END, reply(200, b"second"))
        ask(d.address, "GET", q)
        r = ask(d.address, method, p, *(["Content-Length: 0"] if method in ("PUT", "POST") else []))
        assert r.status == status, (method, r)
        assert len(o.seen(p)) == (2 if status == 200 else 1), method


def t_no_second_try_after_a_byte_or_on_a_new_connection():
    def half(c, r):
        c.send(b"HTTP/1.1 2")
        return END

    p, q = path(), path()
    o.on(q, reply(200, b"warm"))
    o.on(p, half)
    ask(d.address, "GET", q)
    assert ask(d.address, "GET", p).status == 502 and len(o.seen(p)) == 1
    o.on(q, reply(200, b"", "Connection: close"))
    for _ in range(3):              # empties the pool
        ask(d.address, "GET", q)
    p = path()
    o.on(p, END)
    assert ask(d.address, "GET", p).status == 502 and len(o.seen(p)) == 1


def t_idempotent_request_goes_to_another_server_when_one_dies():
    """Before a byte of an answer; what is not idempotent is sent once."""
    with origin.Origin() as dies, origin.Origin() as good, proxy(dies.url, good.url) as p:
        good.on("/", lambda c, r: c.send(reply(200, b"good")))
        dies.on("/", lambda c, r: END)
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            for _ in range(4):
                assert ask(p.address, method, "/").status == 200, method
        assert dies.seen(), "it was never its turn"
    with origin.Origin() as dies, origin.Origin() as good, proxy(dies.url, good.url) as p:
        good.on("/", reply(200, b"good"))
        dies.on("/", lambda c, r: END)
        got = [ask(p.address, "POST", "/", body=b"x").status for _ in range(2)]
        assert sorted(got) == [200, 502], got
        assert len(dies.seen()) == len(good.seen()) == 1
    with origin.Origin() as one, origin.Origin() as two, proxy(one.url, two.url) as p:
        for o_ in (one, two):
            o_.on("/", lambda c, r: END)
        assert ask(p.address, "GET", "/").status == 502
        assert len(one.seen()) == len(two.seen()) == 1, "each is asked once"


def t_idempotent_request_goes_to_another_server_when_one_hangs():
    """For each its own first-byte-timeout; where there is no other, the 504 comes after one."""
    def hangs(c, r):
        c.more()

    options = ("--first-byte-timeout", "300ms")
    for method, statuses in (("GET", [200, 200]), ("DELETE", [200, 200]), ("POST", [200, 504])):
        with origin.Origin() as hung, origin.Origin() as good, \
            proxy(hung.url, good.url, options=options) as p:
            good.on("/", reply(200, b"good"))
            hung.on("/", hangs)
            got = [ask(p.address, method, "/", body=b"x" if method == "POST" else None).status
                   for _ in range(2)]
            assert sorted(got) == statuses, (method, got)
            assert len(hung.seen()) == 1 and len(good.seen()) == statuses.count(200), method
            assert [u["failed"] for u in talk.ask(p, "status")["upstreams"]] == [1, 0]
    with origin.Origin() as one, origin.Origin() as two, \
        proxy(one.url, two.url, options=options) as p:
        for o_ in (one, two):
            o_.on("/warm", reply(200))
            o_.on("/", hangs)
        for _ in range(2):
            assert ask(p.address, "GET", "/warm").status == 200
        assert ask(p.address, "GET", "/").status == 504
        assert len(one.seen("/")) == len(two.seen("/")) == 1, "each is asked once"


def t_answer_is_not_late_for_time_that_the_daemon_lost():
    asked, go = threading.Event(), threading.Event()

    def when_told(c, r):
        asked.set()
        assert go.wait(20)
        c.send(reply(200, b"in time"))

    with origin.Origin() as o, proxy(o.url, options=("--first-byte-timeout", "1s")) as p, \
            origin.Client(p.address) as c:
        o.on("/", when_told)
        c.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")
        assert asked.wait(20)
        with daemon.stopped(p.pid):
            time.sleep(0.5)             # its clock ticks before the answer comes
            go.set()
            time.sleep(1)               # the limit, and more
        assert (c.answer().status, len(o.seen("/"))) == (200, 1)


def t_servers_take_turns():
    with origin.Origin() as a, origin.Origin() as b, origin.Origin(unix=True) as c, \
            proxy(a.url, b.url, c.url) as p:
        for up in (a, b, c):
            up.on("/", reply(200, up.url.encode()))
        for _ in range(30):
            assert ask(p.address, "GET", "/").status == 200
        assert [len(up.seen("/")) for up in (a, b, c)] == [10, 10, 10]


def t_server_of_least_requests():
    go = threading.Event()
    with origin.Origin() as a, origin.Origin() as b, \
            proxy(a.url, b.url, options=("--balance", "least")) as p:
        for up in (a, b):
            up.on("/slow", lambda c, r: (go.wait(20), c.send(reply(200, b"x")))[0])
            up.on("/", reply(200, b"x"))
        t = threading.Thread(target=lambda: ask(p.address, "POST", "/slow", body=b""))
        t.start()
        while not a.seen("/slow") and not b.seen("/slow"):
            time.sleep(0.01)
        for _ in range(6):
            ask(p.address, "GET", "/")
        free = b if a.seen("/slow") else a
        go.set()
        t.join()
        assert len(free.seen("/")) == 6


def t_servers_that_are_down_are_passed_over():
    with socket.socket() as dead, origin.Origin() as up:
        dead.bind(("127.0.0.1", 0))     # bound, not listening: refused
        url = f"http://127.0.0.1:{dead.getsockname()[1]}"
        with proxy(url, up.url) as p:
            up.on("/", reply(200, b"x"))
            for method in ("GET", "POST"):
                for _ in range(10):
                    assert ask(p.address, method, "/", body=b"" if method == "POST"
                               else None).status == 200
        with proxy(url) as p:
            for _ in range(5):
                r = ask(p.address, "GET", "/")
                assert r.status == 502 and r.reason == "Bad Gateway", r
            up_late = socket.socket()
        up_late.close()


def t_loop_ends():
    """A proxy that is its own upstream."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    p = proxy(f"http://127.0.0.1:{port}")
    p.listen = [f"127.0.0.1:{port}"]
    with p:
        for method in ("GET", "POST"):
            r = ask(p.address, method, "/", body=b"abc" if method == "POST" else None)
            assert r.status == 508 and r.reason == "Loop Detected", r


def t_max_forwards_counts_hops_of_options():
    p = path()
    o.on(p, reply(200, b"there"))
    for method, value, seen in (("OPTIONS", "7", "6"), ("OPTIONS", "1", "0"), ("OPTIONS", "x", "x"),
                                ("GET", "0", "0"), ("GET", "3", "3")):
        assert ask(d.address, method, p, f"Max-Forwards: {value}").body == b"there"
        assert o.seen(p)[-1].field("Max-Forwards") == seen, (method, value)
    n = len(o.seen(p))
    r = ask(d.address, "OPTIONS", p, "Max-Forwards: 0")
    assert r.status == 204 and not r.field("Allow") and len(o.seen(p)) == n, r


def t_half_closed_client_gets_its_answer():
    go = threading.Event()
    p = path()
    o.on(p, lambda c, r: (go.wait(20), c.send(reply(200, b"late")))[0])
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.s.shutdown(socket.SHUT_WR)
        o.wait(p)
        go.set()
        assert c.answer().body == b"late" and c.ended()


def t_client_that_has_left_ends_its_request():
    p = path()
    o.on(p, lambda c, r: c.more())      # until the proxy ends it
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        o.wait(p)
    o.wait_end(p)


def t_requests_cut_at_every_byte():
    p = path()
    o.on(p, lambda c, r: c.send(reply(200, r.body)))
    data = f"PUT {p} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n" \
           f"1\r\nc\r\n0\r\nX: y\r\n\r\n"
    with origin.Client(d.address) as c:
        for i in range(1, len(data)):
            c.send(data[:i].encode())
            time.sleep(0.001)       # most often two segments; the answer is the same if not
            c.send(data[i:].encode())
            assert c.answer().body == b"abc", i


def t_health_checks_take_servers_out_and_back():
    with origin.Origin() as a, origin.Origin() as b, proxy(
            a.url, b.url, options=("--health-path", "/health?x", "--health-interval",
                                   "200ms")) as p:
        for up in (a, b):
            up.on("/", reply(200, up.url.encode()))
            up.on("/health?x", reply(204, b""))
        assert a.wait("/health?x").field("User-Agent") == "toboggan"

        def answers():
            return {ask(p.address, "GET", "/").body for _ in range(6)}

        assert answers() == {a.url.encode(), b.url.encode()}
        for sick in (reply(503, b""), END, b"garbage\r\n\r\n"):
            a.on("/health?x", sick)
            nr = len(a.seen("/health?x"))
            a.wait("/health?x", nr + 2)     # the first of them has been judged
            assert answers() == {b.url.encode()}, sick
            a.on("/health?x", reply(200, b"well"))
            nr = len(a.seen("/health?x"))
            a.wait("/health?x", nr + 2)
            assert answers() == {a.url.encode(), b.url.encode()}


def t_a_server_that_hangs_is_found_and_rests_until_it_is_well():
    """However long its checks go on, and requests that it is asked when all others fail."""
    go = threading.Event()

    def hang(c, r):
        if not go.is_set():
            c.more()
        c.send(reply(204))

    with origin.Origin() as a, origin.Origin() as b, proxy(
            a.url, b.url, options=("--health-path", "/h", "--health-interval", "200ms")) as p:
        a.on("/h", hang)
        b.on("/h", reply(204))
        for up in (a, b):
            up.on("/", reply(200, up.url.encode()))

        def rests():
            return [u["rests"] for u in talk.ask(p, "status")["upstreams"]]

        client.until(lambda: rests() == [True, False], "never found")
        nr = len(a.seen("/"))
        while len(a.seen("/h")) < 4:
            assert rests() == [True, False]
            assert ask(p.address, "GET", "/").body == b.url.encode()
            time.sleep(0.02)
        assert len(a.seen("/")) == nr
        go.set()
        client.until(lambda: not any(rests()), "never well again")


def files_max(p, nr):
    """Run as the daemon's own user: root may lack the capability."""
    with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    uid, gid = (fields[x].split()[0] for x in ("Uid", "Gid"))
    become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    subprocess.run((become if not os.geteuid() else []) + ["prlimit", "--pid", str(p.pid),
                                                           f"--nofile={nr}:"],
                   check=True)


def t_without_descriptors_no_server_is_taken_out():
    with origin.Origin() as up, \
        proxy(up.url, options=("--health-path", "/h", "--health-interval", "500ms")) as p:
        up.on("/h", reply(204, b""))
        up.wait("/h")
        used = max(int(x) for x in os.listdir(f"/proc/{p.pid}/fd")) + 1
        files_max(p, used)
        held = [client.Client(p.address) for _ in range(50)]

        def stopped():
            nr = len(up.seen("/h"))
            time.sleep(1.2)
            return len(up.seen("/h")) == nr
        client.until(stopped, "checks go on")
        files_max(p, used + 200)
        assert not talk.ask(p, "status")["upstreams"][0]["rests"]
        for c in held:
            c.close()
        nr = len(up.seen("/h"))
        up.wait("/h", nr + 1)


def t_without_descriptors_idle_connections_make_room():
    with origin.Origin() as one, origin.Origin() as two, conf.Conf(
            f'upstream = "{one.url}"\nlocation "/two" {{ upstream = "{two.url}" }}\n', *daemon.USER,
        "--workers", "1",
            # few: each is accepted with the limit of its moment
            "--connections-max", "100") as p:
        one.on("/", reply(200, b"one"))
        two.on("/two", reply(200, b"two"))
        with origin.Client(p.address) as c:
            assert c.request("GET", "/").body == b"one"
            files = f"/proc/{p.pid}/fd"
            nr = max(int(x) for x in os.listdir(files)) + 1
            files_max(p, nr)
            held = [client.Client(p.address) for _ in range(50)]
            client.until(lambda: not {*range(nr)} - {*map(int, os.listdir(files))}, "some are left")
            assert c.request("GET", "/two").body == b"two"
            one.wait_end("/")
            assert c.request("GET", "/").body == b"one"
            for h in held:
                h.close()


def t_client_that_has_what_turns_out_too_long_to_store():
    """As early as in the receive that brings the head: its 304 is on its way all the same."""
    with origin.Origin() as up, conf.Conf('root = "{root}"\n', *daemon.USER, "--memory", "1M") as p:
        p.reconfigure(f'upstream = "{up.url}"\n')      # what is stored has 4 KiB at most
        up.on("/", b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n2000\r\n" + b"x" * 8192 + b"\r\n0\r\n\r\n")
        with origin.Client(p.address) as c:
            assert c.request("GET", "/", "If-None-Match: *").status == 304
            assert c.request("GET", "/").body == b"x" * 8192


def t_connect_timeout_is_504():
    """A listener whose queue is full leaves SYNs unanswered."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        fill = []
        for _ in range(4):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(s.getsockname())
            fill.append(c)
        with proxy(f"http://127.0.0.1:{s.getsockname()[1]}",
                   options=("--connect-timeout", "500ms")) as p:
            start = time.monotonic()
            assert ask(p.address, "GET", "/").status == 504
            assert time.monotonic() - start < 10
        for c in fill:
            c.close()


def t_a_unix_socket_with_a_full_queue_is_waited_for():
    """As long as a connection may take; it is refused at once where that of TCP would wait."""
    with tempfile.TemporaryDirectory(prefix="tbg-") as folder, socket.socket(socket.AF_UNIX) as s:
        os.chmod(folder, 0o755)
        s.bind(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        s.listen(0)
        s.settimeout(client.WAIT_S)
        fill = socket.socket(socket.AF_UNIX)
        fill.connect(f"{folder}/s")
        with proxy(f"unix:{folder}/s", options=("--connect-timeout", "500ms")) as p:
            assert ask(p.address, "GET", "/").status == 504
        with proxy(f"unix:{folder}/s") as p, origin.Client(p.address) as c:
            c.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            client.until(lambda: talk.ask(p, "status")["upstreams"][0]["active"], "never asked")
            time.sleep(0.3)         # it has been tried more than once
            fill.close()
            s.accept()[0].close()
            with s.accept()[0] as up:
                origin.Connection(up, 0).request()
                up.sendall(reply(200, b"waited"))
                assert c.answer().body == b"waited"
            assert talk.ask(p, "status")["upstreams"][0]["failed"] == 0


def t_slow_bodies_say_nothing_about_the_server():
    """It has begun to answer, and waits for what the client does not send."""
    with origin.Origin() as up, proxy(up.url, options=("--upstream-idle-timeout", "200ms")) as p:
        def early(c, r):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            c.more()

        up.on("/", early, raw=True)
        for _ in range(4):          # more than take a server out
            with origin.Client(p.address) as c:
                c.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n")
                c.ended()
                assert c.got.endswith(b"half")
        assert talk.ask(p, "status")["upstreams"][0]["failed"] == 0


def accepts(p):
    try:
        socket.create_connection(p.address).close()
    except ConnectionResetError:        # it was in the queue of a listener that closed
        pass
    except ConnectionRefusedError:
        return False
    return True


def settled(p):
    """Has it read all that it was sent, and do all its threads wait for more?"""
    with open(f"/proc/{p.pid}/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    if any(int(row[1].rpartition(":")[2], 16) == p.address[1] and row[3] == "01" and
           int(row[4].rpartition(":")[2], 16) for row in rows):
        return False
    for tid in os.listdir(f"/proc/{p.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):     # it has just ended
            with open(f"/proc/{p.pid}/task/{tid}/stat", encoding="ascii") as f:
                if f.read().rpartition(")")[2].split()[0] != "S":
                    return False
    return True


def t_draining_lets_the_answer_finish_that_others_wait_for():
    """For a fetch whose client has left, on a worker without other requests."""
    with origin.Origin() as up:
        go = threading.Event()
        up.on("/", lambda c, r: (go.wait(client.WAIT_S),
                                 c.send(reply(200, b"finished", "Cache-Control: max-age=60")))[0])
        with contextlib.ExitStack() as stack:
            p = stack.enter_context(proxy(up.url, workers=8))
            first, *others = [stack.enter_context(talk.Connection(socket.create_connection(
                p.address, timeout=client.WAIT_S))) for _ in range(5)]
            first.send(talk.request("/"))
            up.wait("/")
            for c in others:
                c.send(talk.request("/"))
                c.acked()
            client.until(lambda: settled(p), "never at rest")
            first.reset()
            client.until(lambda: connections(p) == 4, "never ended")
            p.process.send_signal(signal.SIGTERM)
            client.until(lambda: not accepts(p), "still accepts")
            client.until(lambda: settled(p), "never at rest")
            go.set()
            got = []
            for c in others:
                got.append(c.response().body)
                c.close()
            assert (got, len(up.seen("/"))) == ([b"finished"] * 4, 1), (got, up.seen("/"))
            assert p.process.wait(client.WAIT_S) == 0


def t_draining_lets_the_answer_finish():
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        with origin.Origin() as up:
            go = threading.Event()
            up.on("/", lambda c, r,
                  go=go: (go.wait(client.WAIT_S), c.send(reply(200, b"finished")))[0])
            with proxy(up.url) as p:
                got = []
                t = threading.Thread(target=lambda p=p,
                                     got=got: got.append(ask(p.address, "GET", "/")))
                t.start()
                up.wait("/")
                p.process.send_signal(how)
                client.until(lambda p=p: not accepts(p), "still accepts")
                go.set()
                t.join()
                assert got[0].body == b"finished" and got[0].field("Connection") == "close"
                assert p.process.wait(client.WAIT_S) == 0


def t_status_shows_servers_and_kept_connections():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/", reply(200, b"x" * 1000, "Cache-Control: max-age=60"))
        ask(p.address, "GET", "/")
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(p.control)
            s.sendall(b'{"cmd":"status"}\n')
            a = json.loads(s.makefile().readline())
        assert a["upstreams"] == [{"upstream": up.url, "server": up.url, "rests": False,
                                   "active": 0, "requests": 1, "failed": 0}], a
        assert a["stock"]["responses"] == 1 and 1000 < a["stock"]["used"] < a["stock"]["budget"], a


def t_stored_responses_take_the_memory_they_count_for():
    """Small ones of unknown length, which come into more room than they need."""
    with origin.Origin() as up, proxy(up.url, options=("--memory", "64M")) as p, \
        origin.Client(p.address) as c:
        chunked = (
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n")

        def fill(nrs):
            for i in nrs:
                up.on(f"/{i}", chunked)
                assert c.request("GET", f"/{i}").body == b"x" * 100
            return daemon.own_kb(p.pid) << 10, talk.ask(p, "status")["stock"]["used"]

        before = fill(range(500))
        took, counted = (x - y for x, y in zip(fill(range(500, 5000)), before))
        assert took < 2 * counted, (took, counted)


def t_tool_shows_servers_and_kept_connections():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/", reply(200, b"x" * 1000, "Cache-Control: max-age=60"))
        ask(p.address, "GET", "/")
        out = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", p.control,
                              "status"],
                             capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^upstreams +{re.escape(up.url)}, 1 requests, 0 under way, 0 failed$",
                         out, re.M), out
        assert re.search(r"^stored +1 responses, ", out, re.M) and "root" not in out, out


def t_reload_keeps_servers_and_stock():
    """A limit is changed; who answers stays who it is."""
    held = threading.Event()

    def slow(c, _):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        assert held.wait(client.WAIT_S)
        c.send(b"def")

    with origin.Origin() as up:
        text = f'upstream = {{"{up.url}"}}\nbody-max = 10\nhost "any" {{ }}\n' \
               f'host "small" {{ body-max = 1 }}\n'
        longer = text.replace("= 10", "= 20")
        up.on("/kept", reply(200, b"kept", "Cache-Control: max-age=600"))
        up.on("/post", reply(200, b"taken"))
        up.on("/slow", slow)
        with conf.Conf(text, "--tiers", "user") as p:
            def post(size, host="any"):
                return ask(p.address, "POST", "/post", body=b"x" * size, host=host).status

            got = [post(10), post(11), post(1, "small"), post(2, "small")]
            assert got == [200, 413, 200, 413], got
            assert ask(p.address, "GET", "/kept").body == b"kept"
            with origin.Client(p.address) as c:
                c.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
                up.wait("/slow")
                p.reconfigure(longer)
                held.set()
                assert c.answer().body == b"abcdef"
            assert (post(20), post(21)) == (200, 413)
            assert ask(p.address, "GET", "/kept").hit


def t_sighup_without_a_file_changes_nothing():
    with origin.Origin() as up, proxy(up.url) as p:
        up.on("/a", reply(200, b"a"))
        p.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + client.WAIT_S
        while not any("SIGHUP" in x for x in p.lines):
            assert time.monotonic() < deadline, p.lines
            time.sleep(0.005)
        assert ask(p.address, "GET", "/a").body == b"a"


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
