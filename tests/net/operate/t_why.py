#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""`toboggan why` is the kernel tiers' own answer: what it says of a request is what they
count for it right afterwards, and asking changes nothing.

Each question is put to wire with translated connections, to wire with connections of
its own, and to sock; the user tier alone says why it was not asked.
"""
import contextlib
import json
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import corpus
import daemon
import ktap
import origin
import talk

# what is counted for a request, and not for the segments around it
REQUEST = {"HIT_WIRE", "HIT_SOCK", "OFF", "SPLIT", "PIPELINED", "GRAMMAR", "METHOD", "VERSION",
           "PATH", "FIELD", "HOST", "CONDITION", "MISS", "EXPIRED", "BLOB", "SIZE", "CLOCK",
           "ROOM", "DENIED", "LIMITED"}
WAYS = {"wire, translated": ("wire", "--wire", "lo", "--late-sockets", "off"),
        "wire, late sockets": ("wire", "--wire", "lo", "--late-sockets", "auto"),
        "sock": ("sock", "--wire", "off", "--tiers", "sock,user", "--sock", "unlisted")}
if client.IN_VM:        # emulated: loading is slow, and t_sock runs beside
    del WAYS["sock"]
EVERY = 10 if client.IN_VM else 1       # of the corpus
TEXT = 'root = "{root}"\n'
OTHER = "127.0.0.9"


def has_late_sockets():
    with open("/proc/kallsyms", encoding="ascii") as f:
        return " bpf_sk_assign_tcp_reqsk\n" in f.read()


class Sites(conf.Conf):
    def __init__(self, *args):
        super().__init__(*args)
        for name in "aw":
            os.makedirs(os.path.join(self.root, name))
            self.write(f"{name}/x.txt", b"x")


@contextlib.contextmanager
def serving(way, text=TEXT, *more):
    """A daemon with that tier, or a Skip."""
    tier, *options = WAYS[way]
    if os.geteuid():
        raise ktap.Skip("not root: no kernel tier can be loaded")
    if "late" in way and not has_late_sockets():
        raise ktap.Skip("no late sockets: before Linux 6.9")
    with Sites(text, *options, *more) as d:
        told = talk.ask(d, "status")["tiers"][tier]
        if not told["on"]:
            raise ktap.Skip(daemon.why_off(tier, told["why"]))
        yield d


shared = {}             # way: its daemon, or the reason why there is none
stack = contextlib.ExitStack()


def begin():
    for way in WAYS:
        try:
            shared[way] = stack.enter_context(serving(way))
        except ktap.Skip as off:
            shared[way] = str(off)


def end():
    stack.close()


@contextlib.contextmanager
def one(way, text, *more):
    """The shared daemon, or one of its own with another text."""
    if text != TEXT or more:
        with serving(way, text, *more) as d:
            yield d
    elif isinstance(shared[way], str):
        raise ktap.Skip(shared[way])
    else:
        yield shared[way]


def ways(test, text=TEXT, *more):
    """test(daemon) with each way that can be, or a Skip if there is none."""
    left = []
    for way in WAYS:
        try:
            with one(way, text, *more) as d:
                test(d)
        except ktap.Skip as off:
            left.append(f"{way}: {off}")
        except AssertionError as fault:
            raise AssertionError(f"{way}: {fault}") from fault
    for line in left:
        ktap.note(line)
    if len(left) == len(WAYS):
        raise ktap.Skip(left[0].split(": ", 1)[1])


def command(d, **line):
    """The daemon's answer to a command."""
    with socket.socket(socket.AF_UNIX) as s, s.makefile("rb") as lines:
        s.settimeout(client.WAIT_S)
        s.connect(d.control)
        s.sendall(json.dumps(line).encode() + b"\n")
        return json.loads(lines.readline())


def why(d, data, **more):
    """The whole answer about a request; what is behind its first 3,000 bytes is left out."""
    ret = command(d, cmd="why", request=data[:3000].hex(), **more)
    assert ret["ok"], ret
    return ret


def counted(d):
    return {name: count for name, count in talk.counts(d).items() if name in REQUEST}


def sent(d, data, source="127.0.0.1"):
    """The one reason that the kernel counts for it, on a connection of its own."""
    before = counted(d)

    def changed():
        now = counted(d)
        return {name: now[name] - before.get(name, 0) for name in now
                if now[name] != before.get(name, 0)}
    with socket.create_connection(d.address, timeout=client.WAIT_S,
                                  source_address=(source, 0)) as s:
        s.sendall(data)
        # there may be no answer to what is not whole
        client.until(changed, f"nothing is counted for {data[:200]}")
        ret = changed()
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass
        assert sum(ret.values()) == 1, (data[:200], ret)
        return next(iter(ret))


def agrees(d, data, source="127.0.0.1"):
    """Ask, send, compare; the reason. What the daemon stores in between is asked again."""
    for _ in range(10):
        told = why(d, data, client=source)
        got = sent(d, data, source)
        if told["why"] == got:
            break
        assert why(d, data, client=source)["why"] != told["why"], (data[:200], got, told)
    assert told["why"] == got, (data[:200], got, told)
    assert told["tier"] == {"HIT_WIRE": "wire", "HIT_SOCK": "sock"}.get(got, "user"), told
    assert told["asked"] in ("wire", "sock"), told
    return got


def get(target, *fields, method="GET", version="HTTP/1.1", host="test"):
    return "\r\n".join([f"{method} {target} {version}", f"Host: {host}", *fields, "", ""]
                       ).encode("latin-1")


def stored(d, target, *fields, **more):
    """Wait until the kernel answers it: the answer's head as a response."""
    with client.Client(d.address) as c:
        def hit():
            c.send(get(target, *fields, **more))
            r = c.response("GET")
            return r if daemon.is_tier(r.tier, "wire") or daemon.is_tier(r.tier, "sock") else None
        return client.until(hit, f"{target} is never the kernel's")


def hit(d):
    return f"HIT_{talk.ask(d, 'why', '/a.txt')['asked'].upper()}"


def t_of_the_corpus_what_why_shows_is_what_is_counted():
    cases = [x for x in corpus.read() if x.sent and len(x.sent) <= 8000][::EVERY]

    def test(d):
        for name in ("a.txt", "index.html", "probe.txt"):
            d.write(name, b"text of " + name.encode())
            tag = stored(d, f"/{name}").fields["ETag"]
        seen = {agrees(d, case.bytes(tag)) for case in cases}
        ktap.note(f"{len(cases)} requests: {' '.join(sorted(seen))}")
        assert len(seen) >= 5 and seen & {"HIT_WIRE", "HIT_SOCK"}, seen
    ways(test)


def t_of_what_requests_differ_in():
    def test(d):
        d.write("b.txt", b"text\n" * 400)
        r = stored(d, "/b.txt")
        tag, at = r.fields["ETag"], r.fields["Last-Modified"]
        seen = {}
        for name, data in {
                "plain": get("/b.txt"), "head": get("/b.txt", method="HEAD"),
                "post": get("/b.txt", "Content-Length: 0", method="POST"),
                "range": get("/b.txt", "Range: bytes=0-9"),
                "cookie": get("/b.txt", "Cookie: a=b"),
                "authorization": get("/b.txt", "Authorization: Basic eA=="),
                "no-cache": get("/b.txt", "Cache-Control: no-cache"),
                "coding": get("/b.txt", "Accept-Encoding: gzip, br"),
                "coding, odd": get("/b.txt", "Accept-Encoding: gzip;q=0.3, *;q=0"),
                "matches": get("/b.txt", f"If-None-Match: {tag}"),
                "differs": get("/b.txt", 'If-None-Match: "other"'),
                "weak": get("/b.txt", f"If-None-Match: W/{tag}, \"b\""),
                "since": get("/b.txt", f"If-Modified-Since: {at}"),
                "if-match": get("/b.txt", f"If-Match: {tag}"),
                "old": get("/b.txt", version="HTTP/1.0"),
                "old, kept": get("/b.txt", "Connection: keep-alive", version="HTTP/1.0"),
                "closed": get("/b.txt", "Connection: close"),
                "upgrade": get("/b.txt", "Connection: Upgrade", "Upgrade: x"),
                "escaped": get("/%62.txt"), "query": get("/b.txt?q=1"),
                "absolute": get("http://test/b.txt"), "dots": get("/x/../b.txt"),
                "none": get("/none.txt"), "long path": get("/" + "a" * 200),
                "long": get("/b.txt", "X: " + "x" * 2100), "no host": b"GET / HTTP/1.1\r\n\r\n",
                "half": get("/b.txt")[:-2], "two": get("/b.txt") * 2,
                "tiny": b"G"}.items():
            seen[name] = agrees(d, data)
        want = hit(d)
        assert seen["plain"] == seen["matches"] == seen["head"] == seen["differs"] == want, seen
        assert seen["range"] == "FIELD" and seen["escaped"] == "PATH" and seen["half"] == "SPLIT" \
               and seen["two"] == "PIPELINED" and seen["post"] == "METHOD" and \
               seen["none"] == "MISS" and seen["long"] == "GRAMMAR", seen
    ways(test)


def t_of_what_has_gone_or_is_stale_or_too_large():
    def test(d):
        d.write("gone.txt", b"text")
        d.write("large.txt", b"x" * 100000)
        os.symlink("gone.txt", os.path.join(d.root, "link.txt"))
        stored(d, "/gone.txt")
        assert agrees(d, get("/large.txt")) == "MISS"
        assert talk.ask(d, "purge", "/gone.txt")["purged"]
        assert agrees(d, get("/gone.txt")) == "MISS"
        # inotify tells nothing of what a link names: good for 50 ms
        with client.Client(d.address) as c:
            c.send(get("/link.txt"))
            assert c.response("GET").status == 200
        client.until(lambda: why(d, get("/link.txt"))["why"] == "EXPIRED", "never stale")
        assert agrees(d, get("/link.txt")) == "EXPIRED"
    ways(test)


def t_of_what_is_longer_than_a_reply():
    """Wire alone has a limit of length here."""
    left = []
    for way in ("wire, translated", "wire, late sockets"):
        try:
            with serving(way, TEXT, "--wire-size", "3000") as d:
                d.write("a.txt", b"a" * 1000)
                d.write("longer.txt", b"b" * 3500)
                stored(d, "/a.txt")
                assert agrees(d, get("/longer.txt")) == "MISS"
                client.until(lambda d=d: why(d, get("/longer.txt"))["why"] == "SIZE", "not stored")
                assert agrees(d, get("/longer.txt")) == "SIZE"
                assert agrees(d, get("/longer.txt", method="HEAD")) == "HIT_WIRE"
                told = talk.ask(d, "why", "/longer.txt")
                assert told["why"] == "SIZE" and "wire-size" in told["detail"], told
                assert {x["why_ipv4"] for x in told["interfaces"]} == {"SIZE"}, told
        except ktap.Skip as off:
            left.append(off)
            ktap.note(f"{way}: {off}")
    if len(left) == 2:
        raise left[0]


def t_of_hosts_and_of_what_upstreams_answer():
    hour = "Cache-Control: max-age=3600"

    def hosts(d):
        stored(d, "/x.txt", host="a.example")
        for host, want in (("b.w.example", "HOST"), ("a b", "FIELD")):
            assert {agrees(d, get("/x.txt", host=host)) for _ in range(4)} == {want}, host
        assert agrees(d, get("/x.txt", host="a.example")).startswith("HIT")

    def upstreams(d):
        for target in ("/plain", "/vary", "/odd", "/private", "/plain?q"):
            for fields in ((), ("Cookie: a=b",), ("Authorization: Basic eA==",),
                           ("Accept-Encoding: gzip",), ("Range: bytes=0-1",)):
                for _ in range(2):
                    agrees(d, get(target, *fields, host="up.example"))
        for target, *fields in (("/plain",), ("/vary", "Accept-Encoding: gzip")):
            stored(d, target, *fields, host="up.example")
            assert agrees(d, get(target, *fields, host="up.example")).startswith("HIT")
        assert agrees(d, get("/odd", host="up.example")) == "MISS"
        told = talk.ask(d, "why", "http://up.example/odd")
        assert "Vary" in told["detail"] and told["cached"], told

    def test(d):
        hosts(d)
        upstreams(d)

    with origin.Origin() as o:
        o.on("/plain", *[origin.reply(200, b"plain", hour)] * 60)
        o.on("/vary", *[origin.reply(200, b"vary", hour, "Vary: Accept-Encoding")] * 60)
        o.on("/odd", *[origin.reply(200, b"odd", hour, "Vary: X")] * 60)
        o.on("/private", *[origin.reply(200, b"p", "Cache-Control: private")] * 60)
        ways(test, TEXT + f"""
host "a.example" {{ root = "{{root}}/a" }}
host "*.w.example" {{ root = "{{root}}/w" }}
host "up.example" {{ upstream = "{o.url}" }}
""")


def t_of_clients_that_a_list_denies():
    def test(d):
        d.write("denied.txt", b"text")
        stored(d, "/denied.txt")
        talk.ask(d, "deny", OTHER)
        assert agrees(d, get("/denied.txt"), OTHER) == "DENIED"
        assert agrees(d, get("/denied.txt")).startswith("HIT")
        assert talk.ask(d, "why", "--client", OTHER, "/denied.txt")["why"] == "DENIED"
        assert talk.ask(d, "why", "/denied.txt")["why"].startswith("HIT")
        talk.ask(d, "deny", "--remove", OTHER)
        assert agrees(d, get("/denied.txt"), OTHER).startswith("HIT")
    ways(test)


def t_of_clients_that_come_by_an_interface_without_wire():
    """Their route says so; without an address, the answer is for those that come by wire's."""
    with serving("wire, late sockets") as d:
        d.write("a.txt", b"text")
        stored(d, "/a.txt")
        for words in ("link add tbg-w0 type veth peer name tbg-w1", "link set tbg-w1 up",
                      "link set tbg-w0 up", "addr add 10.9.0.1/24 dev tbg-w0"):
            subprocess.run(["ip", *words.split()], check=True, timeout=client.WAIT_S)
        try:
            told = client.until(lambda: (x := talk.ask(d, "why", "--client", "10.9.0.2", "/a.txt"))
                                and x["why"] == "IFACE" and x, "it is said to be wire's")
            assert told["tier"] == "user" and "leads out of no interface" in told["detail"], told
            assert agrees(d, get("/a.txt"), OTHER).startswith("HIT")
            assert talk.ask(d, "why", "/a.txt")["tier"] == "wire"
        finally:
            subprocess.run(["ip", "link", "del", "tbg-w0"], check=True, timeout=client.WAIT_S)


def t_of_clients_beyond_their_rate_and_questions_count_for_none():
    def test(d):
        d.write("a.txt", b"text")
        stored(d, "/a.txt")
        for _ in range(50):
            assert why(d, get("/a.txt"), client=OTHER)["why"].startswith("HIT")
        seen = [agrees(d, get("/a.txt"), OTHER) for _ in range(8)]
        assert seen[0].startswith("HIT") and seen[-1] == "LIMITED", seen
        assert why(d, get("/a.txt"), client="127.0.0.8")["why"].startswith("HIT")
        assert talk.ask(d, "why", "/a.txt")["why"].startswith("HIT")
    ways(test, TEXT + "limit-requests = 1/h\nlimit-burst = 6\n")


def t_a_question_changes_nothing():
    def state(d):
        tiers = talk.ask_itself(d, "stats")["tiers"]
        rows = command(d, cmd="objects")["objects"]
        return [counted(d), {name: tier["requests"] for name, tier in tiers.items()},
                [(x["path"], x["hits"]) for x in rows]]

    def test(d):
        d.write("same.txt", b"text")
        stored(d, "/same.txt")
        before = state(d)
        for data in (get("/same.txt"), get("/none.txt"), get("/same.txt", "Cookie: a"), b"G",
                     get("/same.txt") * 2, get("/same.txt", version="HTTP/1.0")):
            for source in ("127.0.0.1", "2001:db8::1"):
                why(d, data, client=source)
        assert state(d) == before, (state(d), before)
    ways(test)


def t_while_wire_is_off_the_daemon_shows_that_and_what_it_knows():
    with conf.Conf(TEXT, "--tiers", "user") as d:
        d.write("a.txt", b"text")
        with client.Client(d.address) as c:
            c.send(get("/a.txt"))
            assert c.response("GET").status == 200
        told = why(d, get("/a.txt"))
        assert (told["tier"], told["why"], told["asked"]) == ("user", "OFF", None), told
        assert told["cached"] and told["detail"] == "--wire off", told
        assert why(d, b"nonsense")["why"] == "OFF"


def t_a_request_is_read_from_a_file():
    def tool(*args, data=b""):
        done = subprocess.run([talk.TOOL, "--control", d.control, *args], input=data,
                              capture_output=True, timeout=client.WAIT_S, check=False)
        return done.returncode, (done.stdout + done.stderr).decode()

    with conf.Conf(TEXT, "--tiers", "user") as d:
        d.write("a.txt", b"text")
        path = os.path.join(d.folder, "request")
        with open(path, "wb") as f:
            f.write(get("/a.txt", "X: \xe9"))
        for args, data in ((("why", "--request", path), b""),
                           (("why", "--request", "-"), get("/a.txt"))):
            code, out = tool(*args, data=data)
            assert code == 0 and out.startswith("/a.txt: user\n") and "OFF" in out, out
        code, out = tool("why", "--request", "-", data=b"\xff\0")
        assert code == 0 and out.startswith("request: user\n"), out
        for args, want in ((("--request", "/nowhere"), 1), (("--request", os.devnull), 1),
                           (("--request", path, "/a.txt"), 2),
                           (("--request", path, "--accept-encoding", "gzip"), 2), ((), 2),
                           (("--client", "nobody", "/a.txt"), 1)):
            code, out = tool("why", *args)
            assert code == want and "toboggan: why: " in out, (args, code, out)


def t_what_no_question_can_be_is_refused():
    with conf.Conf(TEXT, "--tiers", "user") as d:
        for line in ({"request": ""}, {"request": "4"}, {"request": "4x"},
                     {"request": "47", "url": "/"}, {"request": "47", "accept_encoding": "br"},
                     {"url": "/", "client": "1.2.3"}, {"url": "/", "client": ""}, {}):
            told = command(d, cmd="why", **line)
            assert not told["ok"] and ":" in told["error"], (line, told)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
