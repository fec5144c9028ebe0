#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Files, upstreams, modules and POSTs at random on one connection, answered in order.

Every answer says which request it is of, so that one too many, too few, or in
another's place is seen at once. TBG_MIXED requests (20000) with wire, as many with
sock, half with both, a fifth of that without; TBG_SEED repeats a run.
"""
import os
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
import talk                         # noqa: E402

NR = int(os.environ.get("TBG_MIXED", 20000)) // (4 if client.IN_VM else 1)
SEED = int(os.environ.get("TBG_SEED", random.SystemRandom().randrange(1 << 32)))
SIZES = (0, 1, 100, 700, 1024, 1448, 4096, 10000, 14000, 30000, 65536, 100000)
KERNEL = ("toboggan; hit; detail=wire", "toboggan; hit; detail=sock")
TEXT = """
root = "{root}"
location "/hello" { module = {"{folder}/hello.so", "60"} }
location "/echo" { module = "{folder}/echo.so" }
location "/up/" { upstream = "%s" }
"""
o = None


def begin():
    global o
    o = origin.Origin()
    for i in range(8):
        o.on(f"/up/kept-{i}",
             origin.reply(200, talk.content(f"kept-{i}", 300 * i), "Cache-Control: max-age=3600"))
    o.on("/up/echo", lambda c, r: c.send(origin.reply(200, r.body, "Cache-Control: no-store")))
    o.on("/up/none", origin.reply(404, b"not there"))


def end():
    o.close()


class Daemon(conf.Conf):
    def __init__(self, *options, **more):
        super().__init__(TEXT % o.url, "--workers", "1", "--idle-timeout", "600s", *options, **more)
        for name in ("hello", "echo"):
            shutil.copy(os.path.join(ktap.BUILD, f"modules/{name}.so"), self.folder)
        for size in SIZES:
            self.write(f"{size}.txt", talk.content(str(size), size))


class Mix:
    """One request after the other: (bytes, method, status, body)."""

    def __init__(self, name):
        self.random, self.nr = random.Random(f"{name} {SEED}"), 0
        self.kinds = [self.static] * 10 + [self.kept] * 6 + [self.page] * 4 + [self.head] * 2 + \
            [self.echo] * 4 + [self.chunked] * 2 + [self.expecting, self.upstream, self.refused,
                                                    self.missing]

    def next(self):
        self.nr += 1
        return self.random.choice(self.kinds)()

    def body(self):
        size = self.random.choice((0, 1, 10, 100, 1000, 1000, 1460, 5000, 20000, 70000))
        return talk.content(f"r{self.nr}", size)

    @staticmethod
    def get(target, status, body, method="GET"):
        return talk.request(target, method=method), method, status, body

    def static(self):
        size = self.random.choice(SIZES[:9] if self.random.random() < 0.9 else SIZES)
        return self.get(f"/{size}.txt", 200, talk.content(str(size), size))

    def head(self):
        return self.get(f"/{self.random.choice(SIZES)}.txt", 200, b"", "HEAD")

    def kept(self):
        i = self.random.randrange(8)
        return self.get(f"/up/kept-{i}", 200, talk.content(f"kept-{i}", 300 * i))

    def page(self):
        return self.get(f"/hello?name=r{self.nr}", 200, b"hello, r%d\n" % self.nr)

    def missing(self):
        if self.random.random() < 0.5:
            return self.get("/up/none", 404, b"not there")
        return self.get(f"/none-{self.nr}", 404, None)

    def post(self, target, *fields, status=200):
        body = self.body()
        data = talk.request(target, f"Content-Length: {len(body)}", *fields, method="POST",
                            body=body)
        return data, "POST", status, body if status == 200 else None

    def echo(self):
        return self.post("/echo")

    def expecting(self):
        # the upstream says no 100: its request waits 0.3 s for one
        return self.post("/echo" if self.random.random() < 0.98 else "/up/echo",
                         "Expect: 100-continue")

    def upstream(self):
        return self.post("/up/echo")

    def refused(self):
        return self.post("/700.txt", status=405)

    def chunked(self):
        body, parts, at = self.body(), [], 0
        while at < len(body):
            n = self.random.choice((1, 7, 500, 4000, 30000))
            parts.append(b"%x\r\n%s\r\n" % (len(body[at:at + n]), body[at:at + n]))
            at += n
        data = talk.request(self.random.choice(("/echo", "/echo", "/up/echo")),
                            "Transfer-Encoding: chunked",
                            method="POST", body=b"".join(parts) + b"0\r\n\r\n")
        return data, "POST", 200, body


def streams(ask):
    """An answer to it may begin within its body, and then it is the connection's last."""
    return ask[0].startswith(b"POST /echo")


def check(c, ask, at):
    """Its answer."""
    data, method, status, body = ask
    r = c.answer(method)
    while r.status == 100:
        r = c.answer(method)
    if r.status != status or body not in (None, r.body):
        raise AssertionError(
            f"request {at}, TBG_SEED={SEED}: {data[:200]!r}: got {r}, wanted {status} "
                             f"{body and (len(body), body[:60])}")
    assert r.field("Connection") in (None, "close" if streams(ask) else None), (data[:200], r)
    return r


def send(c, data, cuts):
    """At once, or with a cut somewhere."""
    cut = cuts.randrange(len(data)) if cuts.random() < 0.1 else len(data)
    c.send(data[:cut])
    if cut < len(data):
        c.send(data[cut:])


def mixed(d, name, nr, connections, bursts):
    """nr requests; in bursts, the connection is sent several before any is answered.

    How many there were, and how many a tier of the kernel has answered.
    """
    mix = Mix(name)
    cs = [origin.Client(d.address) for _ in range(connections)]
    done = fast = 0
    while done < nr:
        todo = []
        for c in cs:
            some = [mix.next() for _ in range(mix.random.choice(bursts))]
            # what is on its way must fit in buffers: we do not read meanwhile
            while len(some) > 1 and sum(len(x[0]) + len(x[3] or b"") for x in some) > 100000:
                some.pop()
            some = some[:1 + next((i for i, x in enumerate(some) if streams(x)), len(some))]
            send(c, b"".join(x[0] for x in some), mix.random)
            todo.append((c, some))
        for i, (c, some) in enumerate(todo):
            for ask in some:
                r = check(c, ask, done)
                fast += r.field("Cache-Status") in KERNEL
                done += 1
            if r.field("Connection"):
                assert c.ended(), f"TBG_SEED={SEED}: more than the answers: {c.got[:200]!r}"
                cs[i] = origin.Client(d.address)
            elif mix.random.random() < 0.25:    # without a socket until its first miss
                assert not c.got, f"TBG_SEED={SEED}: more than the answers: {c.got[:200]!r}"
                c.close()
                cs[i] = origin.Client(d.address)
            assert not c.got, f"TBG_SEED={SEED}: more than the answers: {c.got[:200]!r}"
    for c in cs:
        c.close()
    ktap.note(f"{done} requests, {fast} by the kernel, TBG_SEED={SEED}")
    return done, fast


def t_one_connection_with_wire():
    with Daemon(wire=True) as d:
        done, wired = mixed(d, "one", NR // 2, 1, (1,))
        assert wired > done // (10 if daemon.LATE else 5), "wire has hardly answered"


def t_pipelined_with_wire():
    with Daemon(wire=True) as d:
        done, wired = mixed(d, "bursts", NR // 2, 3, (1, 1, 1, 2, 3, 5, 8))
        assert wired > done // 50, "wire has hardly answered"


class Sock(Daemon):
    def __init__(self, tiers="sock,user"):
        super().__init__("--tiers", tiers, "--sock", "unlisted", wire="wire" in tiers)

    def start(self):
        super().start()
        tier = talk.ask(self, "status")["tiers"]["sock"]
        if not tier["on"]:
            self.stop()
            raise ktap.Skip(daemon.why_off("sock", tier["why"]))
        return self


def t_one_connection_with_sock():
    with Sock() as d:
        done, fast = mixed(d, "one", NR // 2, 1, (1,))
        assert fast > done // 5, "sock has hardly answered"


def t_pipelined_with_sock():
    with Sock() as d:
        done, fast = mixed(d, "bursts", NR // 2, 3, (1, 1, 1, 2, 3, 5, 8))
        assert fast > done // 50, "sock has hardly answered"


def t_both_tiers():
    """Wire begins on each connection, and sock has those with a socket."""
    with Sock("wire,sock,user") as d:
        for name, connections, bursts in (("one", 1, (1,)), ("bursts", 3, (1, 1, 1, 2, 3, 5, 8))):
            before = talk.counts(d)
            done, _ = mixed(d, f"both {name}", NR // 4, connections, bursts)
            after = talk.counts(d)
            # a translated connection stays wire's, whatever it leaves to others
            for why in ("HIT_WIRE", "HIT_SOCK") if daemon.LATE else ("HIT_WIRE",):
                got = after.get(why, 0) - before.get(why, 0)
                assert got > done // 100, f"{name}: {why} {got} of {done}"


def t_without_the_fast_path():
    with Daemon("--tiers", "user") as d:
        assert not mixed(d, "off", NR // 10, 1, (1,))[1]
        assert not mixed(d, "off bursts", NR // 10, 3, (1, 1, 2, 3, 5, 8))[1]


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
