#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Requests of one client, however many and expensive, do not delay other clients."""
import contextlib
import os
import random
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import ktap                         # noqa: E402
from origin import ask              # noqa: E402

TEXT = 'root = "{root}"\nlocation "/list/" { autoindex = "on" }\n'
FILES = 6000
TURNS = 5               # of another client: it has one where it waits for all the others'
d = None


def begin():
    global d
    d = conf.Conf(TEXT, "--tiers", "user", "--workers", "1", "--memory", "64M").start()
    os.mkdir(os.path.join(d.root, "list"))
    os.chmod(os.path.join(d.root, "list"), 0o755)
    for i in range(FILES):
        with open(os.path.join(d.root, "list", f"file-{i:06}-with-a-name"), "w", encoding="ascii"):
            pass
    d.write("a", b"x")


def end():
    d.stop()


def used_s():
    """Seconds of processor time: (of the only worker, of all threads)."""
    worker = total = 0
    for task in os.listdir(f"/proc/{d.pid}/task"):
        with open(f"/proc/{d.pid}/task/{task}/comm", encoding="ascii") as f:
            name = f.read().strip()
        with open(f"/proc/{d.pid}/task/{task}/schedstat", encoding="ascii") as f:
            used = int(f.read().split()[0]) / 1e9
        total += used
        worker += used if name == "tbg/0" else 0
    assert worker, "no worker"
    return worker, total


@contextlib.contextmanager
def worked_aside():
    """What is asked for meanwhile costs the worker the least part of what it costs."""
    before = used_s()
    yield
    worker, total = (now - then for now, then in zip(used_s(), before))
    ktap.note(f"a worker {worker:.3f} s, of {total:.3f} s")
    assert worker < total / 2, (worker, total)


def answers(requests):
    """
    To those requests, which are one write; meanwhile another client has its own: at once, or,
    on a busy machine, some of them before all of these are made.
    """
    with socket.create_connection(d.address) as s, client.Client(d.address) as other:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        other.get("/a")
        worst, turns, done, first = 0, 0, threading.Event(), time.monotonic()
        got = []

        def read():
            while data := s.recv(1 << 20):
                got.append(data)
            done.set()
        threading.Thread(target=read, daemon=True).start()
        s.sendall(requests)
        s.shutdown(socket.SHUT_WR)
        while not done.is_set():
            begun = time.monotonic()
            assert other.get("/a").body == b"x"
            worst, turns = max(worst, time.monotonic() - begun), turns + 1
            done.wait(0.001)            # or what the worker does for it is most of its time
        all_s = time.monotonic() - first
        ktap.note(f"another client waits {worst * 1e3:.1f} ms at most, of {all_s * 1e3:.1f} ms, "
                  f"{turns} times")
        assert worst < 0.5 or turns >= TURNS, (worst, all_s, turns)
        return b"".join(got)


def t_listings_are_made_aside():
    """All of them come, in order, and no worker makes them."""
    nr = 60
    with worked_aside():
        got = answers(b"HEAD /list/ HTTP/1.1\r\nHost: a\r\n\r\n" * nr)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == nr, got.count(b"HTTP/1.1 ")
    page = ask(d.address, "GET", "/list/").body
    assert page.count(b"<a href=") == FILES + 1


def t_texts_are_compressed_aside():
    words = [bytes(random.Random(i).choices(b"abcdefghij ", k=8)) for i in range(500)]
    nr = 30
    for i in range(nr):
        d.write(f"text{i}.txt", b"".join(random.Random(i).choices(words, k=8000))[:63000])
    with worked_aside():
        got = answers(b"".join(f"HEAD /text{i}.txt HTTP/1.1\r\nHost: a\r\n"
                               "Accept-Encoding: br\r\n\r\n".encode() for i in range(nr)))
    assert got.count(b"HTTP/1.1 200 OK\r\n") == nr and \
           got.count(b"Content-Encoding: br\r\n") == nr, got[-2000:]
    with client.Client(d.address) as c:
        assert len(c.get("/text1.txt", "Accept-Encoding: br").body) < 63000


def t_the_same_listing_for_many_is_made_once_for_all():
    """Requests before it begins wait for the same one."""
    with client.Client(d.address) as other:
        many = [client.Client(d.address) for _ in range(30)]
        begun = time.monotonic()
        for c in many:
            c.send(b"GET /list/ HTTP/1.1\r\nHost: a\r\n\r\n")
        other.get("/a")
        bodies = {c.response("GET").body for c in many}
        ktap.note(f"{time.monotonic() - begun:.2f} s for {len(many)}")
        assert len(bodies) == 1
        for c in many:
            c.close()


def t_a_client_that_leaves_takes_its_work_along():
    for _ in range(50):
        with socket.create_connection(d.address) as s:
            s.sendall(b"GET /list/ HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
    assert ask(d.address, "GET", "/a").status == 200
    with client.Client(d.address) as c:
        assert c.get("/list/").body.count(b"<a href=") == FILES + 1


def t_pipelined_hits_take_turns():
    """1 MB of them in one write, from several clients at once: each gets all answers, in order."""
    one = b"".join(f"GET /a?{i} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for i in range(1000))
    got = answers(one * 30)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 30000


def t_a_root_that_a_reload_takes_away_meanwhile():
    """The listed folder is that of the request, to the end."""
    with client.Client(d.address) as c:
        c.send(b"GET /list/ HTTP/1.1\r\nHost: a\r\n\r\n")
        d.reconfigure(TEXT.replace('"on"', '"off"'))
        r = c.response("GET")
        assert r.status == 200 and r.body.count(b"<a href=") == FILES + 1 or r.status == 403, r
        assert c.get("/list/").status == 403
    d.reconfigure(TEXT)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
