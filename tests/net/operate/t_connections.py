#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""`toboggan connections`: the clients, what each waits for, and that the list delays
nobody."""
import contextlib
import json
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import origin
import talk

MANY = 1000


def named(s):
    """The address of a socket as the list has it."""
    host, port = s.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def rows(d, *words):
    return talk.ask(d, "connections", *words)


def row(d, c):
    found = [x for x in rows(d)["connections"] if x["address"] == named(c.s)]
    assert len(found) <= 1, found
    return found[0] if found else {"state": None}


def until(d, c, state):
    """The connection's row, once it has the state."""
    client.until(lambda: row(d, c)["state"] == state, f"never {state}: {rows(d)}")
    return row(d, c)


@contextlib.contextmanager
def served(*options, listen=("127.0.0.1:0",)):
    with daemon.Daemon(*options, *daemon.USER, listen=listen) as d:
        d.write("f.txt", b"text\n")
        yield d


def t_each_is_listed_with_its_ends_age_and_requests():
    with served("--workers", "2", listen=("127.0.0.1:0", "[::1]:0")) as d:
        assert rows(d) == {"ok": True, "connections": [], "total": 0}
        for host, port in d.addresses:
            with client.Client((host, port)) as c:
                for _ in range(3):
                    c.get("/f.txt")
                one = until(d, c, "idle")
                assert one["listener"] == (f"[{host}]:{port}" if ":" in host
                                           else f"{host}:{port}"), one
                assert one["requests"] == 3 and one["socket"] is True, one
                assert one["tier"] == "user" or daemon.TIERS, one
                assert 0 <= one["age_s"] < client.WAIT_S * 10, one
                client.until(lambda c=c, one=one: row(d, c)["age_s"] > one["age_s"],
                             "it grows no older")
                assert named(c.s) in talk.text(d, "connections")
            client.until(lambda: not rows(d)["total"], "one that has ended is listed")


def t_state_is_what_it_waits_for():
    with origin.Origin() as o, daemon.Daemon("--upstream", o.url, *daemon.USER) as d:
        o.on("/slow", origin.drips())
        with client.Client(d.address) as c:
            until(d, c, "idle")
            c.send(b"GET /slow HT")
            until(d, c, "head")
            c.send(b"TP/1.1\r\nHost: test\r\n\r\n")
            until(d, c, "upstream")
            want = {"phase": "receives the response", "upload": "no more of it arrives",
                    "sending": "all of it is sent", "answer": "an answer on its way"}
            client.until(lambda: row(d, c).items() >= want.items(), f"never {want}: {rows(d)}")
            phase, upload, sending, answer = want.values()
            line = f"{phase}; request: {upload}, {sending}; {answer}"
            assert line in talk.text(d, "connections")


def t_phases_are_those_of_a_request_whose_body_still_comes():
    with origin.Origin() as o, daemon.Daemon("--upstream", o.url, *daemon.USER) as d, \
            client.Client(d.address) as c:
        c.send(b"POST /f HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\nfirst")
        want = {"phase": "waits for the head of a response", "upload": "more of its body arrives",
                "sending": "its body is sent as it arrives", "answer": "no answer yet"}
        client.until(lambda: row(d, c).items() >= want.items(), f"never {want}: {rows(d)}")


def t_phases_of_one_that_waits_for_another_name_no_server():
    with origin.Origin() as o, daemon.Daemon("--upstream", o.url, *daemon.USER) as d, \
            client.Client(d.address) as c, client.Client(d.address) as other:
        go = threading.Event()
        o.on("/slow", lambda *_: go.wait(client.WAIT_S) and origin.END)
        c.send(talk.request("/slow"))
        client.until(lambda: row(d, c).get("phase") == "waits for the head of a response",
                     f"never asked: {rows(d)}")
        other.send(talk.request("/slow"))
        client.until(lambda: row(d, other).get("phase") == "waits for another request's fetch",
                     f"never waits: {rows(d)}")
        assert "sending" not in row(d, other), rows(d)
        go.set()


def t_state_is_sending_while_the_client_takes_nothing():
    with served() as d, client.Client(d.address, rcvbuf=4096) as c:
        d.write("large", b"x" * (32 << 20))
        c.send(talk.request("/large"))
        until(d, c, "sending")


def t_limit_shortens_the_list_and_not_the_count():
    with served("--workers", "2") as d, contextlib.ExitStack() as stack:
        all_of = {named(stack.enter_context(client.Client(d.address)).s) for _ in range(300)}
        client.until(lambda: rows(d)["total"] == 300, "not all are listed")
        found = rows(d)
        assert {x["address"] for x in found["connections"]} == all_of
        assert len(found["connections"]) == 300
        for limit in (1, 7, 299):
            some = rows(d, "--limit", str(limit))
            assert some["total"] == 300 and len(some["connections"]) == limit
        text = talk.text(d, "connections", "--limit", "7").splitlines()
        assert len(text) == 9 and text[-1] == "and 293 more", text


def t_reader_that_takes_nothing_holds_up_nobody():
    """Neither other clients, nor another list, nor the end of the daemon."""
    with served() as d, contextlib.ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(client.Client(d.address))
        client.until(lambda: rows(d, "--limit", "1")["total"] == MANY, "not all are listed")
        slow = stack.enter_context(socket.socket(socket.AF_UNIX))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(d.control)
        slow.sendall(json.dumps({"cmd": "connections"}).encode() + b"\n")
        assert slow.recv(1, socket.MSG_PEEK) == b"{"        # it has begun
        with client.Client(d.address) as c:
            for _ in range(10):
                assert c.get("/f.txt").body == b"text\n"
        assert rows(d)["total"] >= MANY
        assert d.stop() == 0, d.lines


if __name__ == "__main__":
    ktap.run(globals())
