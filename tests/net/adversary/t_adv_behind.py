#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Scripts of a lost reply of wire behind which the client has sent more.

The stack has acknowledged that, and the request with it: there is nothing the
client could send again. The socket must send the reply, before anything of the
next answer, whatever the daemon holds of the next request.
"""
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import adversary
import client
import ktap
import origin
import rawtcp
import talk

BODIES = {"/hit": talk.content("hit", 600), "/other": talk.content("other", 300)}
HIT, OTHER = (talk.request(t) for t in BODIES)
SLOW = talk.content("slow", 3000)
ROUNDS = 10 if client.IN_VM else 40
CONFIG = """
root = "{root}"
location "/slow" {{ upstream = {{"{url}"}} }}
"""
stage = adversary.Stage(BODIES, rto_ms=200)
upstream = folder = None


def begin():
    global upstream, folder
    upstream = origin.Origin(unix=True)
    folder = tempfile.TemporaryDirectory(prefix="tbg-")
    path = os.path.join(folder.name, "toboggan.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG.format(root=folder.name, url=upstream.url))
    stage.options = ("--config", path)
    stage.open()


def end():
    if stage.net:
        stage.close()
    upstream.close()
    folder.cleanup()


def received(c):
    """A response, by a client that says which segments it has."""
    while not c.whole(c.mask, "GET"):
        seg = c.next("rest of a response")
        assert not seg.bits & rawtcp.RST, f"reset: {seg}"
        if seg.data:
            ahead = seg.seq > c.got
            c.send(flags=".", sack=[(seg.seq, seg.seq + len(seg.data))] if ahead else ())
    return c.response()


def lost(s, behind):
    """A connection that has lost a reply and sent more: it, and the reply that was lost."""
    c = s.connect()
    s.hit(c, OTHER)
    read = c.read
    c.send(HIT)
    first = c.response(lose=True)
    c.send(behind, ack=read)
    return c, first


def t_half_a_head():
    def script(s):
        c, first = lost(s, OTHER[:20])
        assert received(c).raw == first.raw
        c.send(OTHER[20:])
        assert received(c).body == BODIES["/other"]
        assert c.get(HIT).body == BODIES["/hit"]
    stage.play(script)


def t_half_a_body():
    post = talk.request("/hit", "Content-Length: 1000", method="POST", body=b"x" * 1000)

    def script(s):
        c, first = lost(s, post[:-990])
        assert received(c).raw == first.raw
        c.send(post[-990:])
        assert received(c).status == 405
        assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script)


def t_request_that_waits_for_its_upstream():
    def script(s):
        go = threading.Event()

        def answer(c, _request):
            assert go.wait(client.WAIT_S)
            c.send(origin.reply(200, SLOW, "Cache-Control: no-store"))
        upstream.on("/slow", answer)
        c, first = lost(s, talk.request("/slow"))
        try:
            assert received(c).raw == first.raw
        finally:
            go.set()
        assert received(c).body == SLOW
        assert c.get(OTHER).body == BODIES["/other"]
    stage.play(script)


def t_answer_that_comes_when_the_reply_is_due():
    """Whichever is first: each byte has its place. The time of the answer is the test's."""
    order = random.Random(rawtcp.SEED)

    def answer(c, _request):
        time.sleep(order.uniform(0.18, 0.35))
        c.send(origin.reply(200, SLOW, "Cache-Control: no-store"))

    def script(s):
        upstream.on("/slow", answer)
        for _ in range(ROUNDS):
            c, first = lost(s, talk.request("/slow"))
            assert received(c).raw == first.raw
            assert received(c).body == SLOW
            c.drop()
    stage.play(script, families=(4,), tiers=("wire",))


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
