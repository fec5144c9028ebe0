#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The daemon as a process: options, limits, time limits, privileges, its end."""
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import daemon                       # noqa: E402
import ktap                         # noqa: E402

WAIT_S = 15
SLOW_S = 11             # longer than a connection that stands still may hold up the end
GET = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"
USER = ("--tiers", "user")


def daemon_of(*options, **more):
    d = daemon.Daemon(*USER, *options, **more)
    d.write("a.txt", b"a text\n")
    return d


def connect(d):
    return socket.create_connection(d.address, timeout=WAIT_S)


def until_end(s):
    got = bytearray()
    while data := s.recv(1 << 20):
        got += data
    return bytes(got)


def ask(s, request=GET):
    """One answer with a short body."""
    s.sendall(request)
    got = b""
    while b"\r\n\r\n" not in got or not got.endswith(b"\n"):
        data = s.recv(65536)
        assert data, f"closed after {got!r}"
        got += data
    return got


def fails(*words, status, names):
    """The daemon ends with that status and one line that has those texts."""
    r = subprocess.run([daemon.BINARY, *words], capture_output=True, text=True,
                       timeout=WAIT_S, check=False)
    lines = r.stderr.splitlines()
    assert r.returncode == status, f"exit {r.returncode}, wanted {status}: {lines}"
    assert len(lines) == 1, lines
    for text in names:
        assert text in lines[0], f"{text!r} is not in {lines[0]!r}"


def t_bad_options_are_one_line_and_exit_2():
    root = ("--root", "/tmp", "--listen", "127.0.0.1:0")
    fails("--root", "/tmp", status=2, names=["--listen"])
    fails("--listen", "127.0.0.1:0", status=2, names=["--root"])
    fails(*root, "--memory", "12X", status=2, names=["--memory", "12X", "256M"])
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    more = f"{(there >> 20) + 1}M"
    fails(*root, "--memory", more, status=2, names=["--memory", more, "this machine has"])
    fails(*root, "--memory=-1", status=2, names=["--memory", "-1"])
    fails(*root, "--workers", "0", status=2, names=["--workers", "0", "256"])
    fails(*root, "--tiers", "wire,fast", status=2, names=["--tiers", "wire,fast"])
    fails(*root, "--wire", "lo,,eth0", status=2, names=["--wire", "lo,,eth0"])
    fails(*root, "--listen", "127.0.0.1", status=2, names=["--listen", "ADDR:PORT"])
    fails(*root, "--listen", "[::1:80", status=2, names=["--listen"])
    fails(*root, "--listen", "127.0.0.1:65536", status=2, names=["65536"])
    fails(*root, "--idle-timeout", "soon", status=2, names=["soon", "60s"])
    fails(*root, "--speed", "9", status=2, names=["--speed", "unknown"])
    fails(*root, "--workers", status=2, names=["--workers", "value"])
    fails("serve", status=2, names=["serve"])


def t_bad_configuration_names_file_and_line():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        def write(text):
            f.seek(0)
            f.truncate()
            f.write(text)
            f.flush()
        write('root = "/tmp"\nlisten = {"127.0.0.1:0"}\nmemory = "lots"\n')
        fails("--config", f.name, status=2, names=[f"{f.name}:3", "memory", "lots", "256M"])
        write('root = "/tmp"\nspeed = 9\n')
        fails("--config", f.name, status=2, names=[f"{f.name}:2", "speed", "accepted"])
        write('root = "/tmp"\nlisten = {"here"}\n')
        fails("--config", f.name, status=2, names=[f"{f.name}:2", "here", "ADDR:PORT"])
    fails("--config", "/nonexistent", status=2, names=["/nonexistent"])


def t_what_is_missing_is_named_and_exit_1():
    fails("--root", "/nonexistent", "--listen", "127.0.0.1:0", status=1, names=["/nonexistent"])
    fails("--root", "/tmp", "--listen", "127.0.0.1:0", "--wire", "nope0", status=1, names=["nope0"])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        where = f"127.0.0.1:{s.getsockname()[1]}"
        fails("--root", "/tmp", "--listen", where, status=1, names=[where])


def t_port_of_another_daemon_is_taken():
    with daemon_of() as d:
        where = f"127.0.0.1:{d.address[1]}"
        fails("--root", "/tmp", "--listen", where, *USER, status=1, names=[where])


def t_configuration_file_and_both_families():
    d = daemon_of(listen=())
    path = os.path.join(d.folder, "t.conf")
    with open(path, "w", encoding="ascii") as f:
        f.write('# test\nlisten = {"127.0.0.1:0", "[::1]:0"}\nmemory = 8M\nworkers = 2\n')
    d.options += ["--config", path]
    with d:
        assert "workers 2" in d.ready, d.ready
        for host, port in d.addresses:
            with socket.create_connection((host, port), timeout=WAIT_S) as s:
                assert ask(s).endswith(b"a text\n")


def t_head_that_does_not_come_ends_with_408():
    with daemon_of("--header-timeout", "300ms", "--idle-timeout", "300ms") as d:
        with connect(d) as s:
            s.sendall(GET[:-5])
            assert until_end(s).startswith(b"HTTP/1.1 408 "), "no 408"
        with connect(d) as s:       # nothing at all: no answer either
            assert until_end(s) == b""
        with connect(d) as s:       # idle after an answer
            ask(s)
            assert until_end(s) == b""


def t_empty_line_begins_no_head():
    """Some clients send an empty line after a request (RFC 9112 2.2): the connection is idle."""
    with daemon_of("--header-timeout", "300ms", "--idle-timeout", "300ms") as d:
        for line in (b"\r\n", b"\n", b"\r\n\r"):
            with connect(d) as s:
                ask(s)
                s.sendall(line)
                assert until_end(s) == b"", line
    with daemon_of("--header-timeout", "1s") as d, connect(d) as s:
        ask(s)
        s.sendall(b"\r\n")
        time.sleep(1.5)
        s.sendall(GET[:9])
        time.sleep(0.05)
        assert ask(s, GET[9:]).startswith(b"HTTP/1.1 200 "), "its time counts from its first byte"
        s.sendall(b"\r\n")
        time.sleep(0.05)
        d.process.send_signal(signal.SIGTERM)
        s.settimeout(SLOW_S / 2)
        assert s.recv(1) == b"", "an end that waits for it"


def t_body_that_does_not_come_ends_with_408():
    with daemon_of("--header-timeout", "300ms") as d:
        for framing in (b"Content-Length: 9\r\n\r\nabc",
                        b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc"):
            with connect(d) as s:
                s.sendall(GET[:-2] + framing)
                got = until_end(s)
                assert got.startswith(b"HTTP/1.1 408 ") and got.count(b"HTTP/1.1") == 1, got


def t_body_of_a_mebibyte_is_the_largest():
    whole, more = 1 << 20, (1 << 20) + 1
    with daemon_of() as d:
        for size, status in ((whole, b"200"), (more, b"413")):
            for framing, end in ((b"Content-Length: %d\r\n\r\n" % size, b""),
                                 (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size,
                                  b"\r\n0\r\n\r\n")):
                with connect(d) as s:
                    try:
                        s.sendall(GET[:-2] + framing + b"x" * size + end)
                    except (BrokenPipeError, ConnectionResetError):
                        assert status == b"413", "refused early"
                    got = s.recv(1 << 16)
                    assert got.split()[1] == status, (size, framing, got)
                    if status == b"200":
                        assert ask(s).endswith(b"a text\n")


def t_continue_comes_before_the_body_and_is_not_its_answer():
    with daemon_of() as d, connect(d) as s:
        for _ in range(2):
            s.sendall(GET[:-2] + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
            got = b""
            while not got.endswith(b"\r\n\r\n"):
                got += s.recv(4096)
            assert got == b"HTTP/1.1 100 Continue\r\n\r\n", got
            assert ask(s, b"body").startswith(b"HTTP/1.1 200 OK\r\n")
        assert ask(s).endswith(b"a text\n")


def t_slow_head_is_not_prolonged_by_its_bytes():
    with daemon_of("--header-timeout", "500ms") as d, connect(d) as s:
        start, end = time.monotonic(), threading.Event()

        def drip():
            try:
                s.sendall(b"GET / HTTP/1.1\r\nX: ")
                while not end.wait(0.05):
                    s.sendall(b"x")
            except OSError:
                pass
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert until_end(s).startswith(b"HTTP/1.1 408 ")
        finally:
            end.set()
            thread.join()
        assert time.monotonic() - start < WAIT_S


def t_reader_that_stops_is_given_up():
    with daemon_of("--send-timeout", "500ms") as d:
        d.write("big", b"x" * (32 << 20))
        with connect(d) as s:
            s.sendall(GET.replace(b"a.txt", b"big"))
            deadline = time.monotonic() + WAIT_S
            while d_connections(d):
                assert time.monotonic() < deadline, "still connected"
                time.sleep(0.05)


def d_connections(d):
    """Sockets of the daemon that are connected."""
    port = f":{d.address[1]:04X}"
    with open("/proc/net/tcp", encoding="ascii") as f:
        return sum(1 for x in f.readlines()[1:]
                   if x.split()[1].endswith(port) and x.split()[3] == "01")


def t_slow_reader_gets_every_byte_in_order():
    with daemon_of() as d:
        data = os.urandom(4 << 20)
        d.write("big", data)
        d.write("mid", data[:60000])
        with connect(d) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 300000)
            big, mid = GET.replace(b"a.txt", b"big"), GET.replace(b"a.txt", b"mid")
            s.sendall((mid * 20 + big) * 2 + GET.replace(b"\r\n\r\n",
                                                         b"\r\nConnection: close\r\n\r\n"))
            got = until_end(s)
        want = [data[:60000]] * 20 + [data]
        at = 0
        for body in want * 2 + [b"a text\n"]:
            at = got.index(b"\r\n\r\n", at) + 4
            assert got[at:at + len(body)] == body, f"differs at {at}"
            at += len(body)
        assert at == len(got)


def t_file_over_4_GiB():
    with daemon_of() as d:
        path = os.path.join(d.root, "huge")
        size = (1 << 32) + 12345
        with open(path, "wb") as f:
            f.truncate(size)
            f.seek(size - 6)
            f.write(b"finis\n")
        os.chmod(path, 0o644)
        with connect(d) as s:
            s.sendall(b"GET /huge HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            got, last, buffer = 0, b"", bytearray(1 << 20)
            head = s.recv(100)
            while b"\r\n\r\n" not in head:
                head += s.recv(100)
            got = len(head.split(b"\r\n\r\n", 1)[1])
            assert f"Content-Length: {size}".encode() in head, head
            while True:
                n = s.recv_into(buffer)
                if not n:
                    break
                got += n
                last = (last + bytes(buffer[max(0, n - 6):n]))[-6:]
        assert (got, last) == (size, b"finis\n"), (got, last)


def t_file_that_shrinks_ends_the_connection():
    with daemon_of() as d:
        path = d.write("big", b"x" * (64 << 20))
        with connect(d) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 300000)
            s.sendall(GET.replace(b"a.txt", b"big"))
            s.recv(100)
            os.truncate(path, 1 << 20)
            try:
                assert len(until_end(s)) < 64 << 20, "padded"
            except ConnectionResetError:
                pass


def t_connection_limit_holds_and_recovers():
    with daemon_of("--connections-max", "20", "--workers", "1") as d:
        held = [connect(d) for _ in range(20)]
        for s in held:
            ask(s)
        late = connect(d)           # the kernel's queue takes it, the daemon not
        late.sendall(GET)
        late.settimeout(0.5)
        try:
            late.recv(1)
            raise AssertionError("answered beyond the limit")
        except TimeoutError:
            pass
        late.settimeout(WAIT_S)
        for s in held:
            s.close()
        assert late.recv(15) == b"HTTP/1.1 200 OK"
        late.close()


def t_out_of_descriptors_is_survived():
    d = daemon_of("--workers", "1", prefix=["prlimit", "--nofile=60:60"])
    with d:
        held = [connect(d) for _ in range(80)]
        for s in held:
            s.close()
        with connect(d) as s:
            assert ask(s).endswith(b"a text\n")
        with open(f"/proc/{d.pid}/stat", encoding="ascii") as f:
            ticks = sum(int(x) for x in f.read().split()[13:15])
        assert ticks < 200, f"{ticks} ticks of CPU: it spins"


def rss(pid):
    daemon.not_sanitized("memory of a process")
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        fields = dict(x.split(":", 1) for x in f)
    return int(fields["VmRSS"].split()[0]) * 1024


def t_ten_thousand_idle_connections_cost_little():
    want = 10000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < want * 1.3 + 300 and os.geteuid():
        raise ktap.Skip(f"{hard} descriptors are too few")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, want + 200), hard))
    try:
        with daemon_of("--workers", "1") as d:
            with connect(d) as s:
                ask(s)
            before, held = rss(d.pid), []
            for _ in range(want):
                held.append(connect(d))
                ask(held[-1])
            each = (rss(d.pid) - before) / want
            ktap.note(f"{each:.0f} bytes each, {before} before")
            for s in held:
                s.close()
            assert each < 2048, f"{each:.0f} bytes each"
            assert before < 20 << 20, f"{before} bytes resident"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def t_stop_finishes_what_is_under_way():
    d = daemon_of()
    data = os.urandom(30 << 20)
    d.write("big", data)
    with d:
        idle = connect(d)
        ask(idle)
        with connect(d) as s:
            s.sendall(GET.replace(b"a.txt", b"big"))
            got = s.recv(1000)
            d.process.send_signal(signal.SIGTERM)
            told = time.monotonic()
            assert idle.recv(1) == b"", "an idle connection stays"
            while time.monotonic() < told + SLOW_S:     # a reader that gets on
                got += s.recv(1 << 20, socket.MSG_WAITALL)
                time.sleep(0.5)
            got += until_end(s)
            assert got.split(b"\r\n\r\n", 1)[1] == data
        idle.close()
        assert d.process.wait(WAIT_S) == 0


def t_stop_sends_close_to_busy_clients_first():
    """They lose no request; those that are quiet for 0.3 s are closed without an answer."""
    with daemon_of() as d:
        held, asked = [connect(d) for _ in range(16)], 0
        heard = {s: time.monotonic() for s in held}
        while held:
            for s in list(held):
                quiet = time.monotonic() - heard[s]
                got = b""
                with contextlib.suppress(ConnectionError):
                    s.sendall(GET)
                    while not got.endswith(b"\na text\n") and (data := s.recv(65536)):
                        got += data
                assert got or quiet > 0.2, f"closed, {asked} asked, quiet for {quiet:.3f} s"
                heard[s] = time.monotonic()
                if not got or b"\r\nConnection: close\r\n" in got:
                    s.close()
                    held.remove(s)
                asked += 1
                if asked == 100:
                    d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(WAIT_S) == 0


def t_second_signal_stops_at_once():
    with daemon_of() as d:
        d.write("big", b"x" * (30 << 20))
        with connect(d) as s:
            s.sendall(GET.replace(b"a.txt", b"big"))
            s.recv(1000)
            d.process.send_signal(signal.SIGTERM)
            with connect_fails(d):
                pass
            d.process.send_signal(signal.SIGTERM)
            assert d.process.wait(5) == 0


class connect_fails:
    """Waits until the daemon no longer accepts: it has seen the signal."""
    def __init__(self, d):
        self.d = d

    def __enter__(self):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                connect(self.d).close()
            except OSError:
                return
        raise AssertionError("still accepting")

    def __exit__(self, *why):
        pass


def t_workers_have_no_privileges():
    if os.geteuid():
        raise ktap.Skip("not started by root")
    with daemon_of() as d:
        for task in os.listdir(f"/proc/{d.pid}/task"):
            with open(f"/proc/{d.pid}/task/{task}/status", encoding="ascii") as f:
                fields = dict(x.split(":\t", 1) for x in f.read().splitlines() if ":\t" in x)
            assert "0" not in fields["Uid"].split(), fields["Uid"]
            assert int(fields["CapEff"], 16) == 0 and fields["NoNewPrivs"] == "1"
            if fields["Name"].startswith("tbg/"):
                assert int(fields["CapPrm"], 16) == 0, fields["CapPrm"]


def t_private_root_is_served_as_its_owner():
    if os.geteuid():
        raise ktap.Skip("not started by root")
    d = daemon_of()
    os.chmod(d.root, 0o700)
    try:
        d.start()
        raise AssertionError("started as root, which nobody has asked for")
    except RuntimeError as why:
        assert "exit 1" in str(why) and "--user (root:" in str(why), why
    d = daemon_of()
    os.chmod(d.root, 0o700)
    os.chown(d.root, 12345, 12345)
    os.chown(os.path.join(d.root, "a.txt"), 12345, 12345)
    with d:
        assert any("running as its owner" in x for x in d.lines), d.lines
        with connect(d) as s:
            assert ask(s).endswith(b"a text\n")
        with open(f"/proc/{d.pid}/status", encoding="ascii") as f:
            assert "CapEff:\t0000000000000000" in f.read()
    d = daemon_of("--user", "nobody")
    os.chmod(d.root, 0o700)
    try:
        d.start()
        raise AssertionError("started")
    except RuntimeError as why:
        assert "exit 1" in str(why) and "nobody" in str(why), why


def t_change_of_a_file_is_seen_at_once():
    with daemon_of() as d, connect(d) as s:
        for i in range(200):
            d.write("a.txt", b"%d\n" % i)
            time.sleep(0.1)         # the promise: never older than 100 ms
            body = ask(s).split(b"\r\n\r\n", 1)[1]
            assert body == b"%d\n" % i, (body, i)
            if i > 20:
                break
        os.unlink(os.path.join(d.root, "a.txt"))
        time.sleep(0.1)
        assert ask(s).startswith(b"HTTP/1.1 404 ")


if __name__ == "__main__":
    ktap.run(globals())
