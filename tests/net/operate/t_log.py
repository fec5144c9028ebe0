#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The access log of a running daemon: one line per request of any tier."""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import origin

TOOL = os.path.join(ktap.BUILD, "toboggan")
WAIT_S = 20
TIME = r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]"


class Logged(daemon.Daemon):
    """A daemon that logs into a folder of root's, if that is who starts it."""

    def __init__(self, *options, log=None, **more):
        super().__init__(*options, **more)
        os.mkdir(os.path.join(self.folder, "log"))
        os.chmod(os.path.join(self.folder, "log"), 0o755)
        self.log = log or os.path.join(self.folder, "log/access")
        self.options += ["--access-log", self.log]

    def logged(self, nr, path=None):
        """The lines of the log, once there are nr of them."""
        def have():
            try:
                with open(path or self.log, encoding="latin-1") as f:
                    text = f.read()
            except FileNotFoundError:
                return None
            got = text.split("\n")
            return got[:-1] if got[-1] == "" and len(got) > nr else None
        got = until(have)
        assert len(got) == nr, got
        return got


def until(fn):
    deadline = time.monotonic() + WAIT_S
    while (ret := fn()) is None:
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.01)
    return ret


def ask(d, *args):
    out = subprocess.run([TOOL, "--control", d.control, "--json", *args],
                         capture_output=True, check=True, timeout=WAIT_S).stdout
    return json.loads(out)


def read_response(f):
    """(status, header text, body) of one response with a length."""
    status = int(f.readline().split()[1])
    head = b""
    while (line := f.readline()) not in (b"\r\n", b""):
        head += line
    m = re.search(rb"(?im)^content-length: *(\d+)", head)
    body = f.read(int(m[1])) if m and status not in (204, 304) else b""
    return status, head.decode("latin-1"), body


def send(d, *requests):
    """Responses to raw requests on one connection, one after the other."""
    with socket.create_connection(d.address, timeout=WAIT_S) as s:
        f = s.makefile("rb")
        ret = []
        for r in requests:
            s.sendall(r)
            ret.append(read_response(f))
        return ret


def request(target, *fields):
    return ("\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *fields]) +
            "\r\n\r\n").encode("latin-1")


TAIL = r" (wire|user) (hit|stored|miss|refused) (\d+\.\d{6})$"


def without_time(line):
    """Without what differs from request to request: when, how long, and by whom."""
    assert re.search(TIME, line) and re.search(TAIL, line), line
    return re.sub(TAIL, "", re.sub(TIME, "[]", line))


def tail(line):
    """(tier, reason, seconds)"""
    m = re.search(TAIL, line)
    return m[1], m[2], float(m[3])


def t_line_of_each_request():
    with Logged("--tiers", "user") as d:
        d.write("a.txt", b"0123456789")
        r = request("/a.txt?q=1", "Referer: http://r/", "User-Agent: agent \"x\" \\")
        send(d, r, r, request("/none"))
        lines = d.logged(3)
        assert [tail(x)[:2] for x in lines] == [("user", "stored"), ("user", "hit"),
                                                ("user", "miss")], lines
        lines = [without_time(x) for x in lines]
        want = '127.0.0.1 - - [] "GET /a.txt?q=1 HTTP/1.1" 200 10 "http://r/" ' \
               '"agent \\x22x\\x22 \\x5C"'
        assert lines[:2] == [want, want], lines
        assert re.match(r'127\.0\.0\.1 - - \[\] "GET /none HTTP/1\.1" 404 \d+ "-" "-"$',
                        lines[2]), lines


def t_json_lines_of_each_tier():
    def test(d):
        d.write("a.txt", b"0123456789")
        r = request("/a.txt?q=1", "Referer: http://r/", "User-Agent: agent \"x\" \\")
        answers = []

        def enough():
            answers.extend(send(d, r, r))
            return True if not d.wire or any("detail=wire" in h for _, h, _ in answers) else None
        until(enough)
        send(d, request("/none", "User-Agent: \u00fc"))
        lines = [json.loads(x) for x in d.logged(len(answers) + 1)]
        for line in lines:
            assert set(line) == {"time", "remote", "user", "request", "status", "body", "referer",
                                 "agent", "tier",
                                 "reason", "seconds"}, line
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]), line
            assert line["remote"] == "127.0.0.1" and 0 <= line["seconds"] < WAIT_S, line
        *good, bad = sorted(lines, key=lambda x: x["status"])
        for line in good:
            assert (line["request"], line["status"], line["body"]) == ("GET /a.txt?q=1 HTTP/1.1",
                                                                       200, 10), line
            assert (line["referer"], line["agent"]) == ("http://r/", "agent \"x\" \\"), line
        said = [(x["tier"], x["reason"]) for x in good]
        assert said.count(("wire", "hit")) == sum("detail=wire" in h for _, h, _ in answers), said
        assert (bad["status"], bad["tier"], bad["reason"],
                bad["agent"]) == (404, "user", "miss", "\u00fc"), bad
    with Logged("--tiers", "user", "--access-log-format", "json") as d:
        d.wire = False
        test(d)
    if os.geteuid():
        raise ktap.Skip("not root: wire cannot be loaded")
    with Logged("--wire", "lo", "--access-log-format", "json") as d:
        tier = ask(d, "status")["tiers"]["wire"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("wire", tier["why"]))
        d.wire = True
        test(d)


def t_time_is_from_the_first_byte_on():
    with Logged("--tiers", "user") as d:
        d.write("a.txt", b"x")
        with socket.create_connection(d.address, timeout=WAIT_S) as s:
            s.sendall(b"GET /a.txt HTTP/1.1\r\n")
            # time itself is what is measured here
            time.sleep(0.6)
            s.sendall(b"Host: x\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            f = s.makefile("rb")
            read_response(f), read_response(f)
        slow, quick = [tail(x)[2] for x in d.logged(2)]
        assert 0.29 < slow < WAIT_S and quick < slow, (slow, quick)


def t_refusal_is_a_line_too():
    with Logged("--tiers", "user") as d:
        with socket.create_connection(d.address, timeout=WAIT_S) as s:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b" 400 " in s.makefile("rb").read()
        line, = d.logged(1)
        assert tail(line)[:2] == ("user", "refused") and '" 400 ' in line, line


def t_slow_reader_loses_lines_and_nothing_else():
    """A pipe that nobody reads: requests go on, what did not fit is counted."""
    d = Logged("--tiers", "user")
    os.mkfifo(d.log)
    os.chmod(d.log, 0o666)
    reader = os.open(d.log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with d:
            d.write("a.txt", b"0123456789")
            nr = 3000
            fields = ["Referer: " + "r" * 1000]
            for status, _, body in send(d, *[request("/a.txt", *fields)] * nr):
                assert status == 200 and body == b"0123456789"

            def counted():
                lost = ask(d, "stats")["log"]["lost"]
                return lost if lost else None
            until(counted)
            # from now on it is read, and lines arrive again
            text = b""

            def arrives():
                nonlocal text
                send(d, request("/last"))
                try:
                    text += os.read(reader, 1 << 20)
                except BlockingIOError:
                    pass
                return True if b"GET /last " in text else None
            until(arrives)
            whole = [x for x in text.split(b"\n")[:-1] if x]
            assert all(re.search(TAIL.encode(), x) for x in whole[-5:]), whole[-5:]
    finally:
        os.close(reader)


def t_304_has_no_body():
    with Logged("--tiers", "user") as d:
        d.write("a.txt", b"0123456789")
        (_, head, _), = send(d, request("/a.txt"))
        etag = re.search(r"(?im)^etag: *(\S+)", head)[1]
        (status, _, _), = send(d, request("/a.txt", f"If-None-Match: {etag}"))
        assert status == 304
        assert " 304 0 " in d.logged(2)[1]


def t_wire_and_user_write_the_same_line():
    if os.geteuid():
        raise ktap.Skip("not root: wire cannot be loaded")
    with Logged("--wire", "lo") as d:
        tier = ask(d, "status")["tiers"]["wire"]
        if not tier["on"]:
            raise ktap.Skip(daemon.why_off("wire", tier["why"]))
        d.write("a.txt", b"0123456789")
        r = request("/a.txt?q=1", "Referer: http://r/", "User-Agent: agent \"x\" \\")
        answers = []

        def both():
            answers.extend(send(d, r, r))
            tiers = [re.search(r"(?im)^cache-status: *(.*?)\r?$", h)[1] for _, h, _ in answers]
            return True if any("detail=wire" in t for t in tiers) and \
                any("detail=wire" not in t for t in tiers) else None
        until(both)
        lines = d.logged(len(answers))
        assert len({without_time(x) for x in lines}) == 1, lines
        # as many lines of each tier as answers: which of them, order tells nothing of
        tiers = [re.search(r"(?im)^cache-status: *(.*?)\r?$", h)[1] for _, h, _ in answers]
        said = [tail(x)[:2] for x in lines]
        assert said.count(("wire", "hit")) == sum("detail=wire" in t for t in tiers), (said, tiers)
        assert said.count(("user", "hit")) == sum("detail=user" in t for t in tiers), (said, tiers)
        assert said.count(("user", "stored")) == sum("stored" in t for t in tiers), (said, tiers)
        assert all(tail(x)[2] < WAIT_S for x in lines), lines
        assert {body for _, _, body in answers} == {b"0123456789"}


def t_file_is_logged_with_what_was_sent():
    """The client leaves in the middle; the line comes then, with what the socket took."""
    with Logged("--wire", "off", "--workers", "1") as d:
        size = 64 << 20
        with open(d.write("big", b""), "r+b") as f:
            f.truncate(size)
        got = 0
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.settimeout(WAIT_S)
            s.connect(d.address)
            s.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\nUser-Agent: left\r\n\r\n")
            got += len(s.recv(65536))
            begun = time.monotonic()
            while got < 1 << 20:
                got += len(s.recv(65536))
            assert not os.path.getsize(d.log), "logged before its end"
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            took = time.monotonic() - begun
        line, = d.logged(1)
        m = re.fullmatch(r'127\.0\.0\.1 - - ' + TIME +
                         r' "GET /big HTTP/1\.1" 200 (\d+) "-" "left"' + TAIL, line)
        assert m and (1 << 20) - 1000 < int(m[1]) < size, line
        assert m.groups()[1:3] == ("user", "miss") and float(m[4]) >= took, (line, took)


def t_answer_of_a_server_that_is_cut_off_is_logged():
    """By its client or by the server, by the time that it may take, from the cache too."""
    body = b"x" * (7 << 20)        # more than a socket holds, at both ends
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n"
    ends, lines = threading.Event(), 0

    def breaks(c, r):
        c.send(head % (len(body), b"") + body[:1 << 20])
        return origin.END

    def stops(c, r):
        c.send(head % (len(body), b"") + body[:1 << 20])
        ends.wait(WAIT_S)

    with origin.Origin() as o, \
            Logged("--tiers", "user", "--upstream", o.url, "--upstream-idle-timeout", "1s") as d:
        o.on("/left", head % (len(body), b"") + body)
        o.on("/hit", head % (len(body), b"Cache-Control: max-age=60\r\n") + body)
        o.on("/ends", breaks)
        o.on("/stops", stops)
        assert len(send(d, request("/hit"))[0][2]) == len(body)
        for path, first in (("/left", True), ("/hit", True), ("/ends", False), ("/stops", False)):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                s.settimeout(WAIT_S)
                s.connect(d.address)
                s.sendall(request(path))
                got = 0
                while got < 1 << 19 or not first:
                    n = len(s.recv(65536))
                    got += n
                    if not n:
                        break
                if first:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            lines += 1
            line = d.logged(lines + 1)[-1]
            m = re.search(rf'"GET {path} HTTP/1\.1" 200 (\d+) ', line)
            assert m and 1 << 18 < int(m[1]) < len(body), (path, line)
            if not first:
                assert int(m[1]) == 1 << 20, line
        ends.set()
        user = ask(d, "stats")["tiers"]["user"]
        assert user["requests"] == lines + 1 and user["hits"] == 1, user


def t_file_that_is_sent_whole_is_logged_at_once():
    """In order, while the connection goes on; as a part of a burst too."""
    with Logged("--wire", "off") as d:
        d.write("big", b"x" * (3 << 20))
        d.write("small", b"small")
        get = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
        with socket.create_connection(d.address, timeout=WAIT_S) as s:
            f = s.makefile("rb")
            s.sendall(get % b"big")
            assert len(read_response(f)[2]) == 3 << 20
            assert '"GET /big HTTP/1.1" 200 3145728' in d.logged(1)[0]
            s.sendall((get % b"big" + get % b"small") * 3 + b"GET /small HTTP/1.0\r\n\r\n")
            for _ in range(7):
                assert read_response(f)[0] == 200
            got = [re.search(r'"GET /(\w+) HTTP/1\.[01]" 200 (\d+)', x).groups()
                   for x in d.logged(8)]
            assert got == [("big", "3145728")] + [("big", "3145728"),
                                                  ("small", "5")] * 3 + [("small", "5")], got


def t_client_that_has_reset_has_a_line():
    """Its socket knows no peer any more; that of one that was accepted before is kept."""
    with Logged("--tiers", "user") as d:
        d.write("a.txt", b"0123456789")
        for accepted in (True, False):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if accepted:
                    s.connect(d.address)
                    until(lambda: ask(d, "status")["connections"] == 1 or None)
                with daemon.stopped(d.pid):
                    if not accepted:
                        s.connect(d.address)
                    s.sendall(request("/a.txt"))
                    s.close()
            until(lambda: ask(d, "stats")["tiers"]["user"]["requests"] == 2 - accepted or None)
        lines = d.logged(2)
        assert [x.split(" - - ")[0] for x in lines] == ["127.0.0.1", "-"], lines


def refused(address):
    with socket.socket() as s:
        return s.connect_ex(address) != 0


def t_file_is_logged_when_the_daemon_ends_first():
    d = Logged("--wire", "off")
    d.start()
    with open(d.write("big", b""), "r+b") as f:
        f.truncate(64 << 20)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        s.connect(d.address)
        s.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        s.recv(1)
        fd = os.open(d.log, os.O_RDONLY)
        d.process.send_signal(signal.SIGTERM)
        until(lambda: refused(d.address) or None)       # it drains
        d.stop()                        # a second one: at once
        line = os.read(fd, 10000).decode()
        os.close(fd)
        m = re.search(r'"GET /big HTTP/1\.1" 200 (\d+) ', line)
        assert m and 0 < int(m[1]) < 64 << 20, line


def t_ipv6_address():
    with Logged("--tiers", "user", listen="[::1]:0") as d:
        send(d, request("/none"))
        assert d.logged(1)[0].startswith("::1 - - [")


def t_line_feed_cannot_forge_a_line():
    with Logged("--tiers", "user") as d:
        for raw in (b"GET /\r HTTP/1.1\r\nHost: x\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nReferer: a\rb\r\n\r\n",
                    b"\x00\x01\n\n"):
            with socket.create_connection(d.address, timeout=WAIT_S) as s:
                s.sendall(raw)
                s.shutdown(socket.SHUT_WR)
                s.makefile("rb").read()
        send(d, request("/last"))

        def last():
            with open(d.log, encoding="latin-1") as f:
                text = f.read()
            return text if "/last" in text else None
        text = until(last)
        for line in text.split("\n")[:-1]:
            assert re.match(rf'127\.0\.0\.1 - - {TIME} "[^"]*" \d{{3}} \d+ "[^"]*" "[^"]*"{TAIL}',
                            line), line
            assert line.isprintable(), line


def t_pipe_may_find_its_reader_later():
    """At the start there is none, then one, which goes, and another one: lines between are
    counted."""
    d = Logged("--tiers", "user")
    os.mkfifo(d.log)
    check = subprocess.run([daemon.BINARY, "--check", "/dev/null", "--listen", "127.0.0.1:0",
                            "--root", d.root, "--access-log", d.log],
                           capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert check.returncode == 0, check
    with d:
        for nr in range(3):
            before = ask(d, "stats")["log"]["lost"]
            send(d, request(f"/alone{nr}"))
            until(lambda before=before: ask(d, "stats")["log"]["lost"] > before or None)
            reader = os.open(d.log, os.O_RDONLY)
            send(d, request(f"/read{nr}"))
            line = os.read(reader, 4096).decode()
            os.close(reader)
            assert f"GET /read{nr} " in line and line.count("\n") == 1, line


def reopened(d, planted=None):
    """Moved away, it is made again; not where planted() has then put something in its place."""
    send(d, request("/one"))
    d.logged(1)
    old = d.log + ".1"
    os.rename(d.log, old)
    if planted:
        planted()
    seen = len(d.lines)
    d.process.send_signal(signal.SIGUSR1)
    if planted:
        line = until(lambda: next((x for x in d.lines[seen:] if "reopen" in x), None))
        assert d.log in line and "still writing to the old file" in line, line
        send(d, request("/two"))
        return d.logged(2, old)
    until(lambda: os.path.exists(d.log) or None)
    # the name is there before the writer has it: the next line may still
    # be one of the old file, later ones never are
    send(d, request("/two"))

    def found():
        with open(d.log, encoding="latin-1") as f:
            return True if "/two" in f.read() else None
    until(found)
    return d.logged(1, old)


def t_reopened_after_sigusr1():
    with Logged("--tiers", "user") as d:
        reopened(d)


def t_reopened_by_its_user_where_that_may():
    """In a folder that everybody may write to, no privilege is used: links are followed, too."""
    with Logged("--tiers", "user") as d:
        os.chmod(os.path.dirname(d.log), 0o777)
        reopened(d)
        os.rename(d.log, d.log + ".2")
        os.symlink("elsewhere", d.log)
        d.process.send_signal(signal.SIGUSR1)
        until(lambda: os.path.exists(d.log) or None)


def renewed(d, folder):
    """SIGUSR1, and a request: the lines of the log in that folder."""
    d.process.send_signal(signal.SIGUSR1)
    path = os.path.join(folder, os.path.basename(d.log))
    until(lambda: os.path.exists(path) or None)
    until(lambda: send(d, request("/new")) and os.path.getsize(path) or None)
    with open(path, encoding="latin-1") as f:
        return f.read()


def t_reopened_in_the_folder_that_its_path_leads_to():
    """A folder that was made anew, by root alone too; a link that was switched."""
    for mode in (0o755, 0o777):
        with Logged("--tiers", "user") as d:
            send(d, request("/old"))
            d.logged(1)
            folder = os.path.dirname(d.log)
            os.rename(folder, folder + ".old")
            os.mkdir(folder)
            os.chmod(folder, mode)
            assert "/old" not in renewed(d, folder)
            os.rename(folder, folder + ".older")
            os.mkdir(folder + ".linked")
            os.chmod(folder + ".linked", 0o777)
            os.symlink(folder + ".linked", folder)
            assert "/new" in renewed(d, folder + ".linked")
            assert not any("reopen" in x for x in d.lines), d.lines


def t_links_to_folders_are_not_followed_as_root():
    if os.geteuid():
        raise ktap.Skip("not root: opened by who runs it, wherever that may")
    with Logged("--tiers", "user") as d:
        folder = os.path.dirname(d.log)
        os.mkdir(folder + ".other")
        os.chmod(folder + ".other", 0o755)
        os.rename(folder, folder + ".old")
        os.symlink(folder + ".other", folder)
        os.unlink(os.path.join(folder + ".old", "access"))
        assert "/new" in renewed(d, folder + ".old")
        assert not os.listdir(folder + ".other")
        assert any("in the folder where it was before" in x for x in d.lines), d.lines


def t_links_that_others_have_made_are_not_opened_as_root():
    if os.geteuid():
        raise ktap.Skip("not root: opened by who runs it, wherever that may")
    for link in (os.symlink, os.link):
        with Logged("--tiers", "user") as d:
            secret = os.path.join(d.folder, "secret")
            with open(secret, "w", encoding="ascii") as f:
                f.write("secret")
            os.chmod(secret, 0o600)
            reopened(d, planted=lambda: link(secret, d.log))
            with open(secret, encoding="ascii") as f:
                assert f.read() == "secret"
            os.unlink(d.log)
            d.process.send_signal(signal.SIGUSR1)
            until(lambda: os.path.exists(d.log) or None)


def t_full_disk_loses_lines_and_nothing_else():
    with Logged("--tiers", "user", log="/dev/full") as d:
        d.write("a.txt", b"0123456789")
        nr = 200
        for status, _, body in send(d, *[request("/a.txt")] * nr):
            assert status == 200 and body == b"0123456789"
        until(lambda: True if ask(d, "stats")["log"]["lost"] == nr else None)
        said = until(lambda: [x for x in d.lines if "/dev/full" in x] or None)
        assert len(said) == 1 and "No space" in said[0], said


def t_limit_of_file_size_loses_lines_and_nothing_else():
    """A log as large as RLIMIT_FSIZE lets it be: SIGXFSZ ends nobody."""
    with Logged("--tiers", "user", prefix=["prlimit", "--fsize=4096:4096"]) as d:
        d.write("a.txt", b"0123456789")
        nr = 200
        for status, _, body in send(d, *[request("/a.txt")] * nr):
            assert status == 200 and body == b"0123456789"

        def written():
            with open(d.log, "rb") as f:
                return f.read().count(b"\n")
        until(lambda: True if ask(d, "stats")["log"]["lost"] + written() >= nr else None)
        assert 0 < written() < nr, written()
        until(lambda: any("File too large" in x for x in d.lines) or None)
        assert send(d, request("/a.txt"))[0][0] == 200


def t_off_writes_nothing():
    with daemon.Daemon("--tiers", "user", "--access-log", "off") as d:
        send(d, request("/none"))
        stats = ask(d, "stats")["log"]
        assert stats["on"] is False and stats["lost"] == 0, stats
        assert ask(d, "status")["access_log"] is None


def t_log_that_cannot_be_opened_is_named():
    d = Logged("--tiers", "user", log="/no/such/folder/log")
    try:
        d.start()
    except RuntimeError as e:
        assert "exit 1" in str(e) and "/no/such/folder/log" in str(e), e
    else:
        d.stop()
        raise AssertionError("it started")


if __name__ == "__main__":
    ktap.run(globals())
