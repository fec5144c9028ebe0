#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The load in the kernel: its requests, its counters, and the faults that it detects.

The server is a small one of Python's that goes wrong on demand; a link that
drops is a queue that netem is on. Never how fast: the machine may be busy.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import benched                  # noqa: E402
import ktap                     # noqa: E402

import lab as laboratory        # noqa: E402
from servers import part        # noqa: E402

PORT = 8080
BODY = bytes(range(256)) * 4
FILES = {"/a": BODY, "/b": b"b" * 3000, "/large": b"l" * 60000, "/empty": b""}

SERVER = r'''
import itertools, re, select, socket, socketserver, sys, threading
FILES = {"/a": bytes(range(256)) * 4, "/b": b"b" * 3000, "/large": b"l" * 60000, "/empty": b""}
fault, family, address, port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
seen, lock, replies, taken = {}, threading.Lock(), itertools.count(1), itertools.count(1)
room = threading.Semaphore(5)

class One(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    def handle(self):
        if fault != "few":
            return self.serve()
        with room:                          # the others wait, as for a descriptor
            self.serve()

    def serve(self):
        nr = 0
        if fault == "deaf" and next(taken) > 5:
            threading.Event().wait()        # its connection is open, and nobody reads
        try:
            while True:
                line = self.rfile.readline().decode()
                if not line:
                    return
                head = {}
                while (field := self.rfile.readline().decode().strip()):
                    name, _, value = field.partition(": ")
                    head[name.lower()] = value
                path, version, nr = line.split()[1], line.split()[2], nr + 1
                with lock:
                    key = f"{path} {version} {head.get('x-mark', '')}"
                    seen[key] = seen.get(key, 0) + 1
                status, body = b"200 OK", FILES[path]
                if head.get("if-none-match") == '"e"':
                    status, body = b"304 Not Modified", b""
                if fault == "body":
                    body = body[:500] + b"?" + body[501:]
                if fault == "status" and nr > 3:
                    status = b"500 No"
                if fault == "reset" and nr > 3:
                    s = socket.socket(family=self.request.family, fileno=self.request.detach())
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    s.close()
                    return
                if fault == "closed" and nr > 3:
                    return
                at = next(replies)
                if fault == "hung" and at == 20:
                    continue
                if fault == "short" and at == 20:
                    body = body[:-10]
                if fault == "tenth" and at % 10 == 0:
                    body = body[:-1] + b"?"
                length = b"" if status[:3] == b"304" else b"Content-Length: %d\r\n" % len(body)
                if fault == "length":
                    length = b"Content-Length: %d\r\n" % (len(body) + 1)
                pad = b"X-Pad: %s\r\n" % (b"p" * (nr % 7)) if fault == "heads" else b""
                self.wfile.write(b"HTTP/1.1 " + status + b"\r\n" + length + pad + b"\r\n" + body)
                if version == "HTTP/1.0":
                    return
        except OSError:
            pass

class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6 if family == 6 else socket.AF_INET
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

server = Server((address, port), One)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
import json
print(json.dumps(seen), flush=True)
'''


def setup():
    if os.geteuid():
        raise ktap.Skip("not root: no network namespace can be made")
    os.close(benched.wait_for_lock())


@contextlib.contextmanager
def server(fault="none", v6=False):
    """(lab, interface, address, its report at the end)"""
    cpus = sorted(os.sched_getaffinity(0))
    with laboratory.Lab({cpus[0]}, {cpus[-1]}) as lab:
        lab.v6 = v6
        iface, address, clients = lab.link()
        seen = {}
        proc = lab.spawn_server([sys.executable, "-c", SERVER, fault, "6" if v6 else "4", address,
                                 str(PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
        assert proc.stdout.readline() == "ready\n"
        yield lab, iface, address, clients[0], seen
        proc.stdin.close()
        seen.update(json.loads(proc.stdout.readline()))


@contextlib.contextmanager
def started(made, *options, rows=((1, "/a"),), **pipes):
    lab, iface, address, client, _ = made
    with tempfile.NamedTemporaryFile("w", suffix=".list") as f:
        for weight, path in rows:
            f.write(f"{weight} {path} {len(FILES[path])} {zlib.crc32(FILES[path]):08x}\n")
        f.flush()
        argv = [part("loop"), "--object", part("loop.bpf.o"), "--list", f.name, "--connections",
                "8",
                "--seconds", "1", "--sample", "10", "--source", lab.nowhere(iface), *options, iface,
                lab.lead_nowhere(iface, client), address, str(PORT)]
        yield lab.spawn_client(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               **{"stdin": subprocess.DEVNULL, **pipes})


def ask(made, *options, rows=((1, "/a"),), code=0):
    with started(made, *options, rows=rows) as proc:
        out, err = proc.communicate(timeout=60)
    assert proc.returncode == code, (proc.returncode, err)
    return json.loads(out) if code == 0 else err


def sound(got, sample=10):
    assert got["requests"] > 20 and not got["errors"] and not got["statuses"], got
    # what had no room, since a busy machine read the samples late, is counted
    assert got["opened"] == 8 and got["verified"] > 0, got
    assert got["verified"] + got["unsampled"] >= got["requests"] / sample / 2, got


def t_replies_are_counted_and_sampled():
    with server() as made:
        got = ask(made)
    sound(got)
    assert made[4] and sum(made[4].values()) >= got["requests"], made[4]
    assert got["connects"] == 0 and got["seconds"] >= 1 and got["windows"], got


def t_ipv6():
    with server(v6=True) as made:
        sound(ask(made))
        sound(ask(made, "--calls", "5", "--no-timestamps"))


def t_requests_on_each_connection_and_the_next_one():
    with server() as made:
        got = ask(made, "--calls", "5")
    sound(got)
    assert abs(got["requests"] / got["connects"] - 5) < 1, got


def t_a_server_of_few_connections_at_a_time_is_seen():
    """Also where each has one request: they are held until every one has had its reply."""
    for calls in ("0", "1"):
        with server("few") as made:
            got = ask(made, "--calls", calls)
        assert got["opened"] == 5, (calls, got)
        with server() as made:
            got = ask(made, "--calls", calls)
        assert got["opened"] == 8 and not got["errors"], (calls, got)


def t_a_server_that_closes_after_each_reply():
    with server() as made:
        got = ask(made, "--http-1.0", "--server-closes")
    sound(got)
    assert abs(got["requests"] / got["connects"] - 1) < 0.3, got
    assert set(made[4]) == {"/a HTTP/1.0 "}, made[4]


def t_replies_of_many_segments_are_acknowledged():
    with server() as made:
        # two gigabytes a second: fewer of them, for who reads the samples beside other work
        got = ask(made, "--sample", "100", rows=((1, "/large"), (1, "/empty")))
    sound(got, 100)
    assert got["bytes"] > 20000 * got["requests"], got


def t_requests_are_drawn_by_weight():
    with server() as made:
        got = ask(made, "--header", "X-Mark: m", rows=((3, "/a"), (1, "/b"), (0, "/large")))
    sound(got)
    seen = made[4]
    assert set(seen) == {"/a HTTP/1.1 m", "/b HTTP/1.1 m"}, seen
    share = seen["/a HTTP/1.1 m"] / sum(seen.values())
    assert 0.65 < share < 0.85, seen


def t_a_304_has_no_body():
    with server() as made:
        sound(ask(made, "--status", "304", "--header", 'If-None-Match: "e"'))


def t_heads_of_other_lengths_are_read():
    with server("heads") as made:
        sound(ask(made))


def t_wrong_bytes_are_seen():
    with server("body") as made:
        got = ask(made)
    assert got["kinds"]["body"] > 0 and got["errors"] >= got["kinds"]["body"], got


def t_a_wrong_status_is_seen():
    with server("status") as made:
        got = ask(made)
    assert got["statuses"] > 0, got


def t_resets_and_early_ends_are_seen():
    for fault in ("reset", "closed"):
        with server(fault) as made:
            got = ask(made)
        assert got["kinds"][fault] > 0 and got["errors"], (fault, got)


def t_a_length_that_is_another_is_seen():
    with server("length") as made:
        got = ask(made)
    assert got["kinds"]["length"] > 0, got


def t_what_is_not_answered_is_seen_after_a_short_load():
    """A reply that is missing, or not whole, once; a server that reads only some connections."""
    for fault in ("hung", "short"):
        with server(fault) as made:
            got = ask(made, "--seconds", "0.2")
        assert got["kinds"]["timeout"] == 1 and got["errors"] == 1 and got["opened"] == 8, got
    with server("deaf") as made:
        got = ask(made, "--seconds", "0.2")
    assert got["opened"] == 5 and got["kinds"]["timeout"] == 3 and got["requests"] > 20, got


def t_what_is_wrong_at_regular_intervals_is_seen():
    """Every tenth reply is, and one of ten is a sample: never the same ones of all."""
    for _ in range(2):
        with server("tenth") as made:
            got = ask(made)
        assert 0 < got["kinds"]["body"] < got["verified"] / 2, got


def t_what_is_lost_is_counted_and_sent_again():
    with server() as made:
        lab, iface = made[0], made[1]
        for ns in (lab.server, lab.client):
            try:
                laboratory.sh("tc", "-n", ns, "qdisc", "add", "dev", iface, "root", "netem", "loss",
                              "5%")
            except laboratory.Problem as e:
                raise ktap.Skip(f"no netem: {e}") from e
        got = ask(made, "--seconds", "4", rows=((1, "/large"),))
    assert got["requests"] > 20 and not got["errors"] and got["opened"] == 8, got
    assert got["resent"] > 0 or got["repeated"] > 0 or got["gaps"] > 0, got


def t_a_server_that_is_not_there_is_no_figure():
    with server() as made:
        lab, iface, _, client, seen = made
        got = ask((lab, iface, made[2].rsplit(".", 1)[0] + ".77", client, seen))
    assert got["opened"] == 0 and got["requests"] == 0 and got["kinds"]["timeout"] == 8, got


def programs(lab, iface):
    return laboratory.sh("tc", "-n", lab.client, "filter", "show", "dev", iface, "ingress",
                         check=False)


def t_what_a_killed_load_has_left_makes_room_for_the_next():
    with server() as made:
        for end, left in (("terminate", False), ("kill", True)):
            with started(made, "--wait", stdin=subprocess.PIPE) as proc:
                assert proc.stdout.readline() == "ready\n"
                assert "tbg_client" in programs(*made[:2])
                getattr(proc, end)()
                assert proc.wait(60) != 0
            assert ("tbg_client" in programs(*made[:2])) == left, end
        sound(ask(made))
        assert "tbg_client" not in programs(*made[:2])


def t_a_client_that_is_held_up_is_seen():
    """What kernels repeat meanwhile was not lost."""
    with server() as made, started(made, "--seconds", "3", "--wait",
                                   stdin=subprocess.PIPE) as proc:
        assert proc.stdout.readline() == "ready\n"
        proc.stdin.close()
        time.sleep(1)
        os.kill(proc.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(proc.pid, signal.SIGCONT)
        got = json.loads(proc.stdout.read())
        assert proc.wait() == 0 and 400 < got["held_ms"] < 3000, got


def t_samples_are_read_a_few_at_a_time():
    """And there is an end to it where more come than are read."""
    with server() as made:
        got = ask(made, "--pieces", "2", "--sample", "1")
    assert got["requests"] > 20 and got["verified"] > 20 and not got["errors"], got


def t_options_that_make_no_sense_are_refused():
    with server() as made:
        assert "--connections" in ask(made, "--connections", "0", code=1)
        assert "more than" in ask(made, "--header", "X: " + "x" * 1390, code=1)


if __name__ == "__main__":
    ktap.run(globals(), setup=setup)
