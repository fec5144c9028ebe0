#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Named upstreams of the configuration: beside files, several of them, over reloads."""
import contextlib
import json
import os
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
import net                          # noqa: E402
import origin                       # noqa: E402
from client import logs             # noqa: E402
from origin import END, ask, reply  # noqa: E402

FRESH = "Cache-Control: max-age=60"


@contextlib.contextmanager
def served(text, *options, wire=False, nr=2, workers=1):
    """A daemon of this configuration, with {0}, {1}... for its origins' URLs."""
    with contextlib.ExitStack() as stack:
        origins = [stack.enter_context(origin.Origin()) for _ in range(nr)]
        c = conf.Conf("", "--workers", str(workers), *options, wire=wire)
        for i, o in enumerate(origins):
            text = text.replace("{%d}" % i, o.url)
        c.save(text)
        c.write("index.html", b"index")
        c.write("file", b"a file")
        c.write("api/file", b"never seen")
        yield stack.enter_context(c), *origins


def status(d):
    words = [os.path.join(ktap.BUILD, "toboggan"), "--control", d.control, "--json", "status"]
    return json.loads(subprocess.run(words, capture_output=True, check=True,
                                     timeout=client.WAIT_S).stdout)


def t_a_trusted_proxy_names_the_scheme_of_the_client():
    """No other client is trusted: neither by the upstream, nor for a Vary."""
    claims = ("X-Forwarded-Proto: https", "X-Forwarded-Host: outer", "X-Forwarded-For: 192.0.2.1",
              "Forwarded: for=192.0.2.1")
    text = 'upstream = {{"{{0}}"}}\ntrusted-proxies = {{{}}}\n'
    with served(text.format('"127.0.0.2", "10.0.0.0/8"'), nr=1) as (d, o):
        def ask_from(source, p, *fields):
            with origin.Client(d.address, source=source) as c:
                return c.request("GET", p, *fields)

        def told(source, p, *fields):
            o.on(p, reply(200, p.encode()))
            assert ask_from(source, p, *fields).body == p.encode()
            r = o.wait(p)
            return [r.field(n) for n in ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-For",
                                         "Forwarded")]

        chain = 'for=192.0.2.1, for={};host="test";proto={}'
        assert told("127.0.0.2", "/t", *claims) == \
            ["https", "outer", "192.0.2.1, 127.0.0.2", chain.format("127.0.0.2", "https")]
        assert told("127.0.0.3", "/u", *claims) == \
            ["http", "test", "192.0.2.1, 127.0.0.3", chain.format("127.0.0.3", "http")]
        assert told("127.0.0.2", "/last", "X-Forwarded-Proto: https, http",
                    "X-Forwarded-Host: a", "X-Forwarded-Host: b")[:2] == ["http", "b"]
        assert told("127.0.0.2", "/odd", "X-Forwarded-Proto: gopher")[:2] == ["http", "test"]
        assert told("127.0.0.2", "/hop", *claims, "Connection: X-Forwarded-Proto, X-Forwarded-Host"
                    )[:2] == ["http", "test"]

        o.on("/vary", lambda c, r: c.send(reply(200, r.field("X-Forwarded-Proto").encode(), FRESH,
                                                "Vary: X-Forwarded-Proto")))
        for _ in range(2):
            assert ask_from("127.0.0.3", "/vary", *claims).body == b"http"
            assert ask_from("127.0.0.2", "/vary", *claims).body == b"https"
        assert len(o.seen("/vary")) == 2

        # with no Vary: scheme and host that a trusted proxy names are part of the URI
        o.on("/both", lambda c, r: c.send(reply(301, b"", FRESH, "Location: {}://{}/".format(
            r.field("X-Forwarded-Proto"), r.field("X-Forwarded-Host")))))
        for _ in range(2):
            for source, fields, want in (("127.0.0.3", claims, "http://test/"),
                                         ("127.0.0.2", claims, "https://outer/"),
                                         ("127.0.0.2", claims[1:], "http://outer/"),
                                         ("127.0.0.2", claims[:1], "https://test/"),
                                         ("127.0.0.2", ("X-Forwarded-Proto: http",
                                                        "X-Forwarded-Host: test"), "http://test/")):
                assert ask_from(source, "/both", *fields).field("Location") == want, \
                       (source, fields)
        assert len(o.seen("/both")) == 4
        o.on("/both", reply(204))
        assert ask_from("127.0.0.2", "/both", *claims).field("Location") == "https://outer/", \
               "stored"
        with origin.Client(d.address) as c:      # what withdraws one withdraws all
            assert c.request("POST", "/both", body=b"x").status == 204
        assert ask_from("127.0.0.2", "/both", *claims).status == 204

        d.reconfigure(text.format("off").replace("{0}", o.url))
        assert told("127.0.0.2", "/off", *claims)[0] == "http"
    for bad in ('"10.0.0.1/8"', '"10.0.0.0/33"', '"2001:db8::/129"', '"proxy"', '"::/"',
                '"off", "::1"'):
        c = conf.Conf(text.format(bad).replace("{0}", "http://127.0.0.1:1"))
        r = subprocess.run([daemon.BINARY, "--check", c.path, "--listen", "127.0.0.1:0"],
                           capture_output=True, text=True,
                           timeout=client.WAIT_S, check=False)
        assert r.returncode == 2 and "trusted-proxies" in r.stderr, (bad, r)


def t_a_name_with_several_addresses():
    """The first of them does not answer. With a hosts file of our own."""
    why = net.own_mounts()
    if why:
        raise ktap.Skip(why)
    with tempfile.NamedTemporaryFile("w") as hosts, origin.Origin() as o:
        hosts.write("::1 several\n127.0.0.1 several localhost\n")
        hosts.flush()
        os.chmod(hosts.name, 0o644)
        o.on("/x", reply(200, b"x"))
        url = f"http://several:{o.port}"
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)
        try:
            with conf.Conf(f'upstream = {{"{url}"}}') as d:
                for _ in range(8):
                    assert ask(d.address, "GET", "/x").status == 200
                assert {x["server"] for x in status(d)["upstreams"]} == {f"{url} (::1)",
                                                                         f"{url} (127.0.0.1)"}
        finally:
            subprocess.run(["umount", "/etc/hosts"], check=True)


BESIDE = """
upstream "app" { server = "{0}" }
host "a" {
    default = yes
    root = "{root}"
    location "/api" { upstream = "app" }
    location "=/api/file/here" { root = "{root}/api" }
    location "*.x" { upstream = {"{1}"} }
}
host "b" { upstream = "app" location "/file" { root = "{root}" } }
"""


def beside_files(wire):
    with served(BESIDE, wire=wire) as (d, app, x):
        for target in ("/api", "/api/x?q=1", "/api%2Fy", "/other"):
            app.on(target, reply(200, b"app " + target.encode(), FRESH))
        x.on("/p.x", reply(200, b"x"))
        for _ in range(4):
            for host, target, body in (("a", "/file", b"a file"), ("a", "/", b"index"),
                                       ("a", "/file?q", b"a file"),
                                       ("a", "/api", b"app /api"),
                                       ("a", "/api/x?q=1", b"app /api/x?q=1"),
                                       ("a", "/api%2Fy", b"app /api%2Fy"), ("a", "/p.x", b"x"),
                                       ("b", "/file", b"a file"),
                                       ("b", "/other", b"app /other"), ("b", "/api", b"app /api")):
                r = ask(d.address, "GET", target, host=host)
                assert r.status == 200 and r.body == body, (host, target, r)
        assert len(app.seen("/api")) == 2, "once for each host"
        # what files refuse is refused for them alone
        assert ask(d.address, "GET", "/api%2F..%2Ffile", host="a").body == b"a file"
        assert ask(d.address, "POST", "/file", body=b"x", host="a").status == 405
        assert ask(d.address, "GET", "/none", host="a").status == 404
        assert not [r for r in app.seen() + x.seen() if "file" in r.target or "none" in r.target]
        for method, target in (("TRACE", "/api"), ("CONNECT", "h:1")):
            assert ask(d.address, method, target, host="a").status == 405
        with origin.Client(d.address) as c:     # all on one connection, pipelined
            wanted = [("/file", b"a file"), ("/api", b"app /api"), ("/p.x", b"x")] * 30
            c.send("".join(f"GET {t} HTTP/1.1\r\nHost: a\r\n\r\n" for t, _ in wanted).encode())
            for t, body in wanted:
                assert c.answer().body == body, t


def t_files_and_upstreams_in_one_site():
    beside_files(False)


def t_files_and_upstreams_in_one_site_with_wire():
    beside_files(True)


def t_expectations_that_nobody_knows_are_417():
    with served(BESIDE) as (d, app, x):
        for target in ("/api", "/file"):
            with origin.Client(d.address) as c:
                c.send(f"GET {target} HTTP/1.1\r\nHost: a\r\nExpect: miracle\r\n\r\n".encode())
                assert c.answer().status == 417, target
        assert not app.seen() and not x.seen()


def t_same_path_of_two_upstreams_is_two_objects():
    text = """
    upstream one { server = "{0}" }
    upstream two { server = "{1}" }
    host a { upstream = one }
    host b { upstream = two }
    """
    with served(text) as (d, one, two):
        for o, body in ((one, b"1"), (two, b"2")):
            o.on("/same", reply(200, body, FRESH))
        for _ in range(3):
            for host, body in (("a", b"1"), ("b", b"2"), ("a:80", b"1"), ("B", b"2")):
                assert ask(d.address, "GET", "/same", host=host).body == body, host
        assert len(one.seen()) == 1 and len(two.seen()) == 1
        # the same Host at another upstream is something else, though the URI is the same
        d.reconfigure(text.replace("{0}", two.url).replace("{1}", one.url))
        assert ask(d.address, "GET", "/same", host="a").body == b"2"
        assert ask(d.address, "GET", "/same", host="b").body == b"1"


def t_upstreams_have_their_own_servers_limits_and_health():
    text = """
    root = "{root}"
    connect-timeout = 3s
    upstream slow { server = "{0}" first-byte-timeout = 300ms }
    upstream sick { server = {"{1}", "{2}"} health-path = "/health"
        health-interval = 50ms balance = least }
    location /slow { upstream = slow }
    location /sick { upstream = sick }
    """
    with served(text, nr=3) as (d, slow, sick, well):
        slow.on("/slow", lambda c, r: time.sleep(3))
        sick.on("/health", reply(500))
        well.on("/health", reply(200))
        for o in (sick, well):
            o.on("/sick", reply(200, b"%d" % o.port))
        assert ask(d.address, "GET", "/slow").status == 504
        sick.wait("/health")
        well.wait("/health")
        deadline = time.monotonic() + client.WAIT_S
        while not any(u["rests"] for u in status(d)["upstreams"]):
            assert time.monotonic() < deadline
        for _ in range(6):
            assert ask(d.address, "GET", "/sick").body == b"%d" % well.port
        assert not sick.seen("/sick")
        assert [u["upstream"] for u in status(d)["upstreams"]] == ["slow", "sick", "sick"]
        logs(d, f"upstream slow: server {slow.url}: no answer in time")
        logs(
            d, f"upstream sick: server {sick.url}: its health check got 500; not used until one "
               f"succeeds")
        sick.on("/health", reply(204))
        logs(d, f"upstream sick: server {sick.url}: its health check succeeds")
        assert not slow.seen("/health")


def t_unsafe_request_withdraws_what_another_upstream_answered():
    text = 'upstream = "{0}"\nlocation "/two" { upstream = "{1}" }'
    with served(text) as (d, one, two):
        two.on("/two", reply(200, b"old", FRESH), reply(200, b"new", FRESH))
        one.on("/post", reply(201, b"", "Location: /two"))
        for want in (b"old", b"old"):
            assert ask(d.address, "GET", "/two").body == want
        assert ask(d.address, "POST", "/post", body=b"").status == 201
        assert ask(d.address, "GET", "/two").body == b"new"


RELOADS = 'root = "{root}"\nupstream "app" { server = "%s" }\n' \
          'location "/api" { upstream = "app" }\n'


def t_reload_leaves_an_upstream_that_stays_as_it_is():
    with served(RELOADS % "{0}") as (d, app, _):
        app.on("/api", reply(200, b"stored", FRESH))
        app.on("/api/2", reply(200, b"x"))
        for _ in range(3):
            assert ask(d.address, "GET", "/api").body == b"stored"
            assert ask(d.address, "GET", "/api/2").body == b"x"
            d.reconfigure(RELOADS % app.url + 'location "/more" { expires = 1h }\n')
        assert len(app.seen("/api")) == 1 and app.connections == 1
        assert status(d)["upstreams"][0]["requests"] == 4


def t_reload_exchanges_upstreams_while_requests_are_under_way():
    with served(RELOADS % "{0}", workers=2) as (d, old, new):
        go = threading.Event()

        def slowly(c, r):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ")
            go.wait(client.WAIT_S)
            c.send(b"whole")

        old.on("/api/slow", slowly)
        old.on("/api/late", lambda c, r: (go.wait(client.WAIT_S), c.send(reply(200, b"old")))[1])
        old.on("/api", reply(200, b"old", FRESH))
        new.on("/api", reply(200, b"new", FRESH))
        with origin.Client(d.address) as c, origin.Client(d.address) as late:
            c.send(b"GET /api/slow HTTP/1.1\r\nHost: a\r\n\r\n")
            late.send(b"GET /api/late HTTP/1.1\r\nHost: a\r\n\r\n")
            old.wait("/api/slow")
            old.wait("/api/late")
            assert ask(d.address, "GET", "/api").body == b"old"
            d.reconfigure(RELOADS % new.url)
            assert ask(d.address, "GET", "/api").body == b"new"
            go.set()
            assert c.answer().body == b"half whole"
            assert late.answer().body == b"old"
            assert c.request("GET", "/api").body == b"new"
        old.wait_end("/api")        # idle connections of what is gone are gone
        old.wait_end("/api/slow")
        assert [u["server"] for u in status(d)["upstreams"]] == [new.url]


def t_reload_between_files_and_upstreams():
    files = 'root = "{root}"\n'
    with served(files) as (d, app, _):
        app.on("/file", reply(200, b"app", FRESH))
        for _ in range(3):
            for _ in range(2):
                assert ask(d.address, "GET", "/file").body == b"a file"
            d.reconfigure(f'upstream = "{app.url}"\n')
            for _ in range(2):
                assert ask(d.address, "GET", "/file").body == b"app"
            d.reconfigure(files)


def t_many_reloads_under_load_lose_nothing():
    with served(RELOADS % "{0}", workers=2) as (d, one, two):
        for o in (one, two):
            o.on("/api", reply(200, b"x" * 3000))
        wrong, stop = [], threading.Event()

        def load():
            try:
                with origin.Client(d.address) as c:
                    while not stop.is_set():
                        r = c.request("GET", "/api")
                        if r.body != b"x" * 3000:
                            wrong.append(r)
            except (OSError, EOFError) as e:
                wrong.append(e)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for t in threads:
            t.start()
        for i in range(20):
            d.reconfigure(RELOADS % (one, two)[i % 2].url)
        stop.set()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        assert len(one.seen()) > 0 and len(two.seen()) > 0


def t_unix_sockets():
    with origin.Origin(unix=True) as up, served('root = "{root}"\n', nr=0) as (d,):
        up.on("/u", reply(200, b"unix"))
        d.reconfigure(f'root = "{{root}}"\nupstream u {{ server = "{up.url}" }}\n'
                      f'location /u {{ upstream = u }}\n')
        assert ask(d.address, "GET", "/u").body == b"unix"
        assert ask(d.address, "GET", "/file").body == b"a file"


def t_server_that_does_not_answer_is_502():
    def ends(_c, _r):
        return END

    with served(
        'root = "{root}"\nupstream a { server = "127.0.0.1:9" }\nlocation /a { upstream = a }\n'
                'location /b { upstream = "{0}" }\n', nr=1) as (d, o):
        o.on("/b", ends)
        o.on("/bad", b"HTTP/1.1 200 OK\r\nContent Length: 1\r\n\r\n")
        for _ in range(4):      # a line in ten seconds
            assert ask(d.address, "GET", "/b").status == 502
        assert ask(d.address, "GET", "/bad").status == 502
        assert ask(d.address, "GET", "/a").status == 502
        logs(d, "upstream a: server 127.0.0.1:9: Connection refused")
        mine = [x for x in d.lines if o.url in x]
        assert len(mine) == 1 and "ended the connection before its answer" in mine[0], mine
        assert ask(d.address, "GET", "/file").body == b"a file"


PAGES = """
root = "{root}"
send-timeout = 300ms
error-page = {"400 /e/400.html", "408 /e/408.html", "411 /e/411.html", "413 /e/413.html",
              "431 /e/431.html",
              "502 /e/502.html", "503 /e/503.html", "504 /e/504.html", "508 /e/none.html",
              "404 /e/404.html"}
upstream up { server = "{0}" first-byte-timeout = 300ms }
upstream down { server = "127.0.0.1:9" }
upstream php { server = "127.0.0.1:9" protocol = fastcgi }
location "/up/" { upstream = up body-max = 1000 }
location "/down/" { upstream = down }
location "/in/" { upstream = down error-page = {"502 /in.html"} }
location "=/in.html" { root = "{folder}" }
location "/large/" { upstream = down error-page = {"502 /large"} }
location "/larger/" { upstream = down error-page = {"502 /larger"} }
location "/sites/" { index = {"i.php", "index.down"} }
location "*.down" { upstream = down error-page = {"502 /e/down.html"} }
location "*.php" { upstream = php error-page = {"502 /e/php.html"} }
"""


def pages(d, *names):
    for name in names:
        d.write(name, f"<p>{name}".encode())


def t_errors_of_the_daemon_have_the_location_s_pages():
    with served(PAGES, nr=1) as (d, o):
        pages(d, *(f"e/{s}.html" for s in (400, 404, 408, 411, 413, 431, 502, 503, 504, "down",
                                           "php")), "../in.html",
              "sites/1/i.php", "sites/2/index.down")
        d.write("large", b"x" * (64 << 10))
        d.write("larger", b"x" * ((64 << 10) + 1))
        o.on("/up/ends", lambda c, r: END)
        o.on("/up/waits", lambda c, r: o.closed.wait(client.WAIT_S))
        o.closed = threading.Event()
        for status_ in (404, 502, 503, 504):
            o.on(f"/up/{status_}", reply(status_, b"its own"))
        for status_, target, fields, body in (
                (502, "/up/ends", (), None), (502, "/down/x", (), None),
            (504, "/up/waits", (), None),
                (413, "/up/x", ("Content-Length: 1001",), None),
                (413, "/up/x", ("Transfer-Encoding: chunked",),
                 b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"),
                (400, "/up/x", ("Transfer-Encoding: chunked",), b"x\r\n"),
            (408, "/up/x", ("Content-Length: 10",), b"x"),
                (431, "/up/x", ["X: y"] * 256, None),
            (504, "/up/x", ("Cache-Control: only-if-cached",), None)):
            for method in ("GET", "HEAD"):
                with origin.Client(d.address) as c:
                    c.send("\r\n".join([f"{method} {target} HTTP/1.1", "Host: x", *fields, "",
                                        ""]).encode() + (body or b""))
                    r = c.answer(method)
                    page = f"<p>e/{status_}.html".encode()
                    assert (r.status, r.field("Content-Type")) == (status_, "text/html"), \
                           (method, target, r)
                    assert r.field("Content-Length") == str(len(page)), (method, target, r)
                    assert r.body == (b"" if method == "HEAD" else page) and \
                           "stored" not in r.cache, (method, target, r)
                    if not body and status_ != 413:
                        assert c.request("GET", "/file").body == b"a file", (method, target)
                    else:
                        assert c.ended(), (method, target)
        with origin.Client(d.address) as c:
            c.send(b"POST /up/x HTTP/1.0\r\nHost: x\r\n\r\n")
            r = c.answer()
            assert (r.status, r.body) == (411, b"<p>e/411.html") and c.ended(), r
        for target, body in (("/in/x", b"<p>../in.html"), ("/large/x", b"x" * (64 << 10)),
                             ("/larger/x", b"502 Bad Gateway\n"),
                             ("/x.down", b"<p>e/down.html"), ("/x.php", b"<p>e/php.html"),
                             ("/down/", b"<p>e/502.html"), ("/a%2Fb.down?q=/x", b"<p>e/down.html"),
                             ("http://y/%78.down", b"<p>e/down.html"),
                             # an index file's location answers for its folder
                             ("/sites/1/", b"<p>e/php.html"), ("/sites/2/.?q", b"<p>e/down.html")):
            r = ask(d.address, "GET", target)
            assert (r.status, r.body) == (502, body), (target, r)
        for status_ in (404, 502, 503, 504):
            r = ask(d.address, "GET", f"/up/{status_}")
            assert (r.status, r.body) == (status_, b"its own"), r
        r = ask(d.address, "GET", "/up/x", "Via: " + o.seen("/up/404")[0].field("Via"))
        assert (r.status, r.body) == (508, b"508 Loop Detected\n"), "a page that is not there"
        o.closed.set()


def t_pages_of_a_site_without_files():
    """The page is a file of its own location, or there is none."""
    text = """
upstream = "127.0.0.1:9"
error-page = {"502 /50x.html"}
host one {
    location "=/50x.html" { root = "{root}" }
}
host two { }
host three {
    root = "{root}"
    location "/" { upstream = "127.0.0.1:9" }
}
host four {
    root = "{folder}"
    location "/" { upstream = "127.0.0.1:9" }
    location "=/50x.html" { root = "{root}" }
}
"""
    with conf.Conf(text.replace("127.0.0.1:9", "http://127.0.0.1:9")) as d:
        pages(d, "50x.html")
        for host, body in (("one", b"<p>50x.html"), ("two", b"502 Bad Gateway\n"),
                           ("three", b"502 Bad Gateway\n"),
                           ("four", b"<p>50x.html")):
            r = ask(d.address, "GET", "/", host=host)
            assert (r.status, r.body) == (502, body), (host, r)
        assert ask(d.address, "GET", "/50x.html", host="one").status == 200


def t_page_of_an_error_after_a_reload():
    """By the configuration at the time of the error."""
    text = 'root = "{root}"\n%s\nlocation "/api" { upstream = "{0}" error-page = {"502 %s"} }\n'
    with served(text % ("", "/one.html"), nr=1) as (d, o):
        go = threading.Event()
        o.on("/api", lambda c, r: (go.wait(client.WAIT_S), END)[1])
        pages(d, "one.html", "two.html", "three.html")
        again = text.replace("{0}", o.url)
        for config, page in ((again % ("", "/two.html"), b"<p>two.html"),
                             ('root = "{root}"\n', b"502 Bad Gateway\n"),
                             ('host x { root = "{root}" error-page = {"502 /three.html"} }\n',
                              b"<p>three.html")):
            d.reconfigure(again % ("", "/one.html"))
            go.clear()
            with origin.Client(d.address) as c, origin.Client(d.address) as waits:
                nr = len(o.seen("/api"))
                for one in (c, waits):
                    one.send(b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n")
                o.wait("/api", nr + 1)
                d.reconfigure(config)
                go.set()
                for one in (c, waits):
                    r = one.answer()
                    assert (r.status, r.body) == (502, page), (config, r)


if __name__ == "__main__":
    ktap.run(globals())
