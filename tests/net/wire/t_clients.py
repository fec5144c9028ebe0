#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Real clients: none of them reports an error, and wire answered them.

Bounded in requests, not in time, but for wrk, which knows only time. What a
client was not answered by wire must be explained by the daemon's own count.
"""
import contextlib
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import net
import talk

PORT = 8080
NR = 2000 if client.IN_VM else 20000
BODY = talk.content("small", 1000)
LARGE = talk.content("large", 200000)
n = d = None


def begin():
    global n, d
    n = net.Net(links=1)
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0,lo", listen=(f"0.0.0.0:{PORT}", f"[::]:{PORT}"))
        d.write("small.html", BODY)
        d.write("large.html", LARGE)
        for i in range(5):
            d.write(f"cold{i}.html", BODY)
        d.start()
    tier = talk.ask(d, "status")["tiers"][daemon.FAST]
    if not tier["on"]:
        end()
        raise ktap.Skip(daemon.why_off(daemon.FAST, tier["why"]))
    with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
        c.get("/small.html")
        c.get("/large.html")
        assert daemon.is_tier(c.get("/small.html").tier, daemon.FAST)


def end():
    if d:
        assert d.stop() == 0, d.lines
    if n:
        n.close()


def urls(name="small.html"):
    return (f"http://{n.links[0].server4}:{PORT}/{name}",
            f"http://[{n.links[0].server6}]:{PORT}/{name}")


def tool(*words, timeout=client.WAIT_S * 2):
    """Output of a client program in the client's namespace; it must succeed."""
    if not shutil.which(words[0]):
        raise ktap.Skip(f"{words[0]} is not installed")
    with n.client.inside():
        done = subprocess.run(words, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=timeout, check=False)
    if done.returncode:
        raise AssertionError(f"{words}: exit {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


@contextlib.contextmanager
def wired(at_least):
    """Wire answers at least this many requests, and no TCP is unhappy."""
    before = talk.hits(d)
    with n.clean(PORT, "OutRsts", "EstabResets", "TCPAbortOnData"):
        yield
    got = talk.hits(d) - before
    ktap.note(f"{got} by wire")
    assert got >= at_least, f"{got} by wire, wanted {at_least}"


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in {text[-800:]}"
    return int(found[1])


def t_curl():
    for url in urls():
        with wired(12):
            out = os.path.join(d.folder, "out")
            for _ in range(3):
                tool("curl", "-sS", "--fail", "-o", out, url)
                with open(out, "rb") as f:
                    assert f.read() == BODY
            # one connection, one URL after the other
            text = tool("curl", "-sS", "--fail", *[url] * 5)
            assert text.encode() == BODY * 5
            head = tool("curl", "-sS", "--fail", "-I", url)
            assert f"detail={daemon.FAST}" in head and "Content-Length: 1000" in head, head
            etag = re.search(r"(?i)etag: (\S+)", head)[1]
            code = tool("curl", "-sS", "-o", out, "-w", "%{http_code}", "-H",
                        f"If-None-Match: {etag}", url)
            assert code == "304", code
            assert f"detail={daemon.FAST}" in tool("curl", "-sS", "-D", "-", "-o", out, url)
            for _ in range(2):          # the first makes the variant
                assert tool("curl", "-sS", "--fail", "--compressed", url).encode() == BODY


def t_curl_without_wire():
    """Requests that a person would try and wire does not answer."""
    for url, large in zip(urls(), urls("large.html")):
        assert tool("curl", "-sS", "--fail", large).encode() == LARGE
        assert tool("curl", "-sS", "--fail", "--http1.0", url).encode() == BODY
        assert tool("curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "-d", "a=b",
                    url) == "405"
        assert tool("curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", url + "x") == "404"
        assert tool("curl", "-sS", "--fail", "-H", "Connection: close", url).encode() == BODY


def t_curl_in_parallel():
    url = urls()[0]
    with wired(150):
        words = []
        for _ in range(200):
            words += ["-o", os.devnull, url]
        tool("curl", "-sS", "--fail", "--fail-early", "--parallel", "--parallel-max", "10", *words)


def t_wrk():
    for url in urls():
        with wired(NR // 20):
            out = tool("wrk", "-t2", "-c20", "-d2s", url)
            assert "Socket errors" not in out and "Non-2xx" not in out, out
            assert number(r"(\d+) requests in", out) > 0


def t_h2load():
    # IPv4: it sends an IPv6 address as Host without its brackets, which is a 400
    with wired(NR - 100):
        out = tool("h2load", "--h1", "-n", str(NR), "-c", "20", "-t", "1", urls()[0])
        assert number(r"(\d+) succeeded", out) == NR, out
        assert number(r"(\d+) failed", out) == number(r"(\d+) errored", out) == 0, out
        assert number(r"(\d+) 2xx", out) == NR, out


def t_h2load_pipelined():
    with wired(0):
        out = tool("h2load", "--h1", "-n", str(NR), "-c", "8", "-m", "8", "-t", "1", urls()[0])
        assert number(r"(\d+) succeeded", out) == NR, out


def t_h2load_of_several_objects():
    with wired(NR // 4):
        some = [urls(name)[0] for name in ("small.html", "cold0.html", "cold1.html", "large.html")]
        out = tool("h2load", "--h1", "-n", str(NR // 2), "-c", "10", "-t", "1", *some)
        assert number(r"(\d+) succeeded", out) == NR // 2, out
        assert number(r"(\d+) 2xx", out) == NR // 2, out


def t_ab():
    for url in urls():
        # ab speaks HTTP/1.0, which is the daemon's
        out = tool("ab", "-q", "-k", "-n", str(NR // 2), "-c", "20", url)
        assert number(r"Complete requests: +(\d+)", out) == NR // 2, out
        assert number(r"Failed requests: +(\d+)", out) == 0, out
        assert number(r"Keep-Alive requests: +(\d+)", out) == NR // 2, out
        assert "Non-2xx" not in out and number(r"Document Length: +(\d+)", out) == len(BODY), out


def t_ab_a_connection_per_request():
    out = tool("ab", "-q", "-n", str(NR // 10), "-c", "10", urls()[0])
    assert number(r"Complete requests: +(\d+)", out) == NR // 10, out
    assert number(r"Failed requests: +(\d+)", out) == 0, out


def httperf(conns, calls, *more, name="small.html"):
    out = tool("httperf", "--server", n.links[0].server4, "--port", str(PORT), "--uri",
               f"/{name}", "--num-conns", str(conns), "--num-calls", str(calls),
               "--timeout", "60", *more)
    assert number(r"Total: connections (\d+)", out) == conns, out
    assert number(r"replies (\d+)", out) == conns * calls, out
    assert number(r"Errors: total (\d+)", out) == 0, out
    assert number(r"2xx=(\d+)", out) == conns * calls, out


def t_httperf():
    with wired(NR // 2 - 50):
        httperf(50, NR // 100)


def t_httperf_one_request_per_connection():
    with wired(NR // 20 - 20):
        httperf(NR // 20, 1, "--rate", "500")


def t_httperf_pipelined():
    httperf(20, 100, "--burst-length", "10")


def t_nothing_was_lost_on_the_way():
    c = talk.counts(d)
    for name in ("REPEAT", "STALE_REPEAT", "CSUM", "BLOB", "CLOCK", "ROOM"):
        assert c[name] == 0, f"{name} {c[name]}"
    net.until(lambda: talk.ask(d, "stats")["tiers"]["user"]["connections"] == 0,
              "the daemon still has connections")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
