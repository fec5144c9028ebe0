#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs behind FastCGI: php-fpm itself."""
import itertools
import json
import os
import re
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                                       # noqa: E402
import conf                                         # noqa: E402
import fastcgi                                      # noqa: E402
import fpm                                          # noqa: E402
import ktap                                         # noqa: E402
import origin                                       # noqa: E402
from origin import ask, then_closes                         # noqa: E402

CONF = """
root = "{root}"
upstream "php" {
    server = "%(unix)s"
    protocol = fastcgi
    script-root = "%(root)s/"
    script-index = "index.php"
    script-split = ".php"
    script-params = {"APP_ENV=test x=y", "SERVER_SOFTWARE=other"}
}
upstream "tcp" { server = "%(tcp)s" protocol = "fastcgi" }
upstream "fake" {
    server = "%(fake)s"
    protocol = fastcgi
    script-filename = "/app/run.php"
    first-byte-timeout = 1500ms
    upstream-idle-timeout = 1500ms
}
host "test" {
    default = yes
    location "/p/" { upstream = "php" }
    location "/f/" { upstream = "fake" }
}
upstream "web" { server = "%(web)s" }
host "indexed" {
    root = "%(tcp_root)s"
    index = {"index.php", "index.web"}
    location "*.php" { upstream = "tcp" }
    location "*.web" { upstream = "web" }
}
host "manual" {
    root = "%(tcp_root)s"
    index = {"index.php", "index.html"}
    location "*.php" { upstream = "tcp" }
    location "/list/" { autoindex = on }
}
host "rooted" { root = "%(tcp_root)s" location "*.php" { upstream = "tcp" } }
"""

ECHO = """<?php
header("Content-Type: application/json");
echo json_encode(["server" => $_SERVER, "get" => $_GET, "post" => $_POST,
    "cookie" => $_COOKIE, "sha" => sha1($b = file_get_contents("php://input")),
    "len" => strlen($b), "pid" => getmypid()]);
"""

PAGES = {
    "p/echo.php": ECHO,
    "p/index.php": "<?php echo 'index ', $_SERVER['SCRIPT_NAME'];",
    "p/status.php": "<?php http_response_code((int)$_GET['s']); echo 'status';",
    "p/move.php": "<?php header('Location: /elsewhere?a=b');",
    "p/away.php": "<?php header('Location: http://other.example/', true, 301);",
    "p/fields.php": "<?php header('X-One: 1'); header('X-Two: a', false); header('X-Two: b', "
                    "false);"
                    "setcookie('c', 'd e'); header('Connection: x'); header('Transfer-Encoding: "
                    "gzip'); echo 'fields';",
    "p/error.php": "<?php error_log(\"one line\\nand\\x1b[31m another\"); echo 'still fine';",
    "p/fatal.php": "<?php nosuchfunction();",
    "p/big.php": "<?php for ($i = 0; $i < 640; $i++) echo str_repeat(chr(65 + $i % 26), 16384);",
    "p/slow.php": "<?php echo 'a'; flush(); touch($_GET['f'] . '.on'); while "
                  "(!file_exists($_GET['f'])) usleep(5000); echo 'b';",
    "p/fresh.php": "<?php header('Cache-Control: max-age=60'); header('ETag: \"v\"'); echo 'fresh "
                   "', uniqid('', true);",
    "p/etag.php": "<?php header('Cache-Control: no-cache'); header('ETag: \"v\"');"
                  "if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"v\"') { "
                  "http_response_code(304); exit; }"
                  "echo 'whole ', uniqid('', true);",
    "p/die.php": "<?php file_put_contents($_GET['f'], getmypid() . '.'); "
                 "while (true) usleep(5000);",
}

_names = itertools.count()


def begin():
    global d, php, tcp, f, web
    web = origin.Origin()
    php, tcp, f = fpm.Fpm(children=6), fpm.Fpm(unix=False), fastcgi.Server(unix=True)
    for name, text in PAGES.items():
        php.write(name, text)
    tcp.write("echo.php", ECHO)
    tcp.write("plain.txt", "plain")
    tcp.write("index.php", ECHO)
    tcp.write("web/index.web", "secret")
    tcp.write("pages/index.html", "a page")
    tcp.write("list/index.html", "a page")
    d = conf.Conf(text_of(), "--workers", "1")
    d.write("file", b"a file")
    d.start()


def text_of():
    return CONF % {"unix": php.server, "web": web.url, "tcp": tcp.server, "fake": f.server,
                   "root": php.root,
                   "tcp_root": tcp.root}


def end():
    d.stop()
    for one in (php, tcp):
        one.__exit__()
    f.close()
    web.close()


def path():
    return f"/f/{next(_names)}"


def echo(target, *fields, method="GET", **more):
    r = ask(d.address, method, target, *fields, **more)
    assert r.status == 200 and r.field("Content-Type") == "application/json", r
    return json.loads(r.body)


def t_php_receives_the_request():
    s = echo("/p/echo.php?a=1&b=x%20y", "Cookie: k=v", "Cookie: l=w", "X-Some-Thing: q",
             "Proxy: evil",
             "X_Under: 1", "Accept-Language: de")["server"]
    want = {
        "REQUEST_METHOD": "GET", "QUERY_STRING": "a=1&b=x%20y",
        "REQUEST_URI": "/p/echo.php?a=1&b=x%20y",
        "SCRIPT_NAME": "/p/echo.php", "SCRIPT_FILENAME": php.root + "/p/echo.php",
        "DOCUMENT_ROOT": php.root,
        "PHP_SELF": "/p/echo.php", "SERVER_PROTOCOL": "HTTP/1.1", "GATEWAY_INTERFACE": "CGI/1.1",
        "REMOTE_ADDR": "127.0.0.1", "SERVER_ADDR": "127.0.0.1", "SERVER_PORT": str(d.address[1]),
        "SERVER_NAME": "test", "HTTP_HOST": "test", "HTTP_COOKIE": "k=v; l=w",
        "HTTP_X_SOME_THING": "q",
        "HTTP_ACCEPT_LANGUAGE": "de", "APP_ENV": "test x=y", "SERVER_SOFTWARE": "other",
        "REQUEST_SCHEME": "http",
    }
    wrong = {k: (v, s.get(k)) for k, v in want.items() if s.get(k) != v}
    assert not wrong, wrong
    assert re.fullmatch(r"\d+", s["REMOTE_PORT"]), s
    assert not {"HTTP_PROXY", "HTTP_X_UNDER", "HTTPS", "CONTENT_LENGTH"} & set(s), s


def t_php_over_tcp_below_the_location_s_root():
    s = echo("/echo.php?x", host="rooted")["server"]
    assert s["SCRIPT_FILENAME"] == os.path.realpath(tcp.root) + "/echo.php", s
    assert s["DOCUMENT_ROOT"] == os.path.realpath(tcp.root) and \
           s["SERVER_SOFTWARE"] == "toboggan", s
    assert ask(d.address, "GET", "/plain.txt", host="rooted").body == b"plain"


def t_path_info_and_index():
    s = echo("/p/echo.php/more/of%20it?q")["server"]
    assert s["SCRIPT_NAME"] == "/p/echo.php" and s["PATH_INFO"] == "/more/of it", s
    assert ask(d.address, "GET", "/p/").body == b"index /p/index.php"
    assert echo("/p/x/..//echo.php")["server"]["SCRIPT_FILENAME"] == php.root + "/p/echo.php"
    assert ask(d.address, "GET", "/p/missing.php").status == 404
    assert ask(d.address, "GET", "/p/../../etc/passwd").status == 400


def t_an_index_that_others_answer():
    """The file is there, but its path is another location's: never its source."""
    r = echo("/?a=b", host="indexed")["server"]
    assert (r["REQUEST_URI"], r["SCRIPT_NAME"], r["QUERY_STRING"]) == ("/?a=b", "/index.php",
                                                                       "a=b"), r
    assert r["DOCUMENT_URI"] == "/index.php" and r["SCRIPT_FILENAME"].endswith("/index.php"), r
    r = echo("/", "Content-Type: application/x-www-form-urlencoded", method="POST", body=b"x=y",
             host="indexed")
    assert r["post"] == {"x": "y"}, r
    web.on("/web/index.web?q", origin.reply(200, b"ran", "Cache-Control: max-age=60"))
    r = ask(d.address, "GET", "/web/?q", host="indexed")
    assert r.body == b"ran", r
    r = ask(d.address, "GET", "/web/index.web?q", host="indexed")
    assert r.body == b"ran" and r.hit, "one object"


def t_an_index_that_others_answer_is_withdrawn_by_its_folder():
    fresh = "Cache-Control: max-age=60"
    tcp.write("fresh/index.php", PAGES["p/fresh.php"])
    tcp.write("kept/index.web", "secret")
    for query in ("", "?q"):
        web.on("/kept/index.web" + query, origin.reply(200, b"kept", fresh))
        for p in ("/fresh/" + query, "/kept/" + query):
            web.on("/made.web", origin.reply(201, b"", f"Location: {p}"))
            assert [ask(d.address, "GET", p, host="indexed").hit
                    for _ in range(2)] == [False, True], p
            assert ask(d.address, "POST", "/made.web", body=b"x", host="indexed").status == 201
            assert not ask(d.address, "GET", p, host="indexed").hit, p


def t_an_index_of_a_program_that_is_not_there():
    """The page behind it in the list, as the manual's own example has it."""
    with origin.Client(d.address) as c:
        for _ in range(2):
            assert c.request("GET", "/", host="manual").status == 200, "the program"
            for p in ("/pages/", "/list/"):
                r = c.request("GET", p, host="manual")
                assert (r.status, r.body) == (200, b"a page"), (p, r)


def t_a_path_of_a_program_is_answered_by_us():
    """php-fpm gives such a Location a status; what the protocol allows is answered here."""
    p, target = path(), path()
    f.on(p, fastcgi.answer(b"Location: %s?x\r\n\r\n" % target.encode()))
    f.on(target + "?x",
         fastcgi.answer(b"Cache-Control: max-age=60\r\nContent-Type: a/b\r\n\r\nthere"))
    with origin.Client(d.address) as c:
        r = c.request("POST", p, "Content-Type: c/d", body=b"sent")
        assert (r.status, r.body, r.field("Location")) == (200, b"there", None), r
        r = c.request("GET", p)
        assert r.body == b"there" and r.hit, r
    seen = f.seen(target + "?x")
    assert len(seen) == 1 and seen[0].params["REQUEST_METHOD"] == "GET", seen
    assert "CONTENT_LENGTH" not in seen[0].params and not seen[0].body, seen[0].params
    # cut off: the request never ends, and so it is no redirect
    f.on(p, then_closes(fastcgi.out(b"Location: /p/echo.php\r\n\r\n")))
    assert ask(d.address, "GET", p).status == 502


def t_post_of_every_size():
    for size in (0, 1, 100, 65535, 65536, 65537, 1 << 20, 20 << 20):
        body = os.urandom(1024) * (size // 1024) + b"x" * (size % 1024)
        got = echo("/p/echo.php", "Content-Type: application/octet-stream", method="POST",
                   body=body)
        assert got["len"] == size, (size, got["len"])
        assert got["server"]["CONTENT_LENGTH"] == str(size), got
    got = echo("/p/echo.php", "Content-Type: application/x-www-form-urlencoded", method="POST",
               body=b"a=1&b=%20")
    assert got["post"] == {"a": "1", "b": " "}, got


def t_post_in_pieces_and_expecting():
    import hashlib
    body = os.urandom(100000)
    with origin.Client(d.address) as c:
        c.send(b"POST /p/echo.php HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n"
               b"Content-Type: a/b\r\nContent-Length: 100000\r\n\r\n")
        assert c.answer("POST").status == 100
        for i in range(0, len(body), 9973):
            c.send(body[i:i + 9973])
        r = c.answer("POST")
        assert json.loads(r.body)["sha"] == hashlib.sha1(body).hexdigest(), r
        assert c.request("GET", "/p/").body == b"index /p/index.php"


def t_post_in_chunks():
    for sizes in ((), (1,), (5, 70000, 3), (100000,) * 8):
        with origin.Client(d.address) as c:
            c.send(b"POST /p/echo.php HTTP/1.1\r\nHost: test\r\nContent-Type: a/b\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n")
            for n in sizes:
                c.send(b"%x\r\n" % n + b"x" * n + b"\r\n")
            c.send(b"0\r\n\r\n")
            got = json.loads(c.answer("POST").body)
            assert got["len"] == sum(sizes) and \
                   got["server"]["CONTENT_LENGTH"] == str(sum(sizes)), got
            assert c.request("GET", "/p/").body == b"index /p/index.php"


def t_status_and_fields():
    for status, reason in ((200, "OK"), (201, "Created"), (404, "Not Found"), (410, "Gone"),
                           (500, "Internal Server Error")):
        r = ask(d.address, "GET", f"/p/status.php?s={status}")
        assert r.status == status and r.reason == reason and r.body == b"status", r
    r = ask(d.address, "GET", "/p/fields.php")
    assert r.body == b"fields" and r.field("X-One") == "1" and r.field("X-Two") == "a, b", r
    assert r.field("Set-Cookie") == "c=d%20e" and r.field("Status") is None, r
    assert r.field("Connection") is None and r.field("Transfer-Encoding") is None, r
    assert r.field("Date") and r.field("Content-Length") == "6", r
    r = ask(d.address, "HEAD", "/p/fields.php")
    assert r.status == 200 and r.field("X-One") == "1" and not r.body, r


def t_redirects():
    r = ask(d.address, "GET", "/p/move.php")
    assert (r.status, r.field("Location")) == (302, "/elsewhere?a=b"), r
    r = ask(d.address, "GET", "/p/away.php")
    assert (r.status, r.field("Location")) == (301, "http://other.example/"), r


def t_errors_go_to_the_log():
    seen = len(d.lines)
    r = ask(d.address, "GET", "/p/error.php")
    assert r.status == 200 and r.body == b"still fine", r
    assert "upstream php: " in client.logs(d, "one line", seen)
    assert "\x1b" not in client.logs(d, "another", seen)
    assert ask(d.address, "GET", "/p/fatal.php").status == 500
    client.logs(d, "nosuchfunction", seen)


def t_large_answers_arrive_whole():
    r = ask(d.address, "GET", "/p/big.php")
    assert r.status == 200 and r.field("Transfer-Encoding") == "chunked", r
    assert r.body == b"".join(bytes([65 + i % 26]) * 16384 for i in range(640))


def t_slow_programs_are_heard_as_they_speak():
    at = os.path.join(php.root, "p", "go")
    os.chmod(os.path.join(php.root, "p"), 0o777)
    with origin.Client(d.address) as c:
        c.send(f"GET /p/slow.php?f={at} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        c.head()
        while b"a\r\n" not in c.got:
            assert c._more()
        while not os.path.exists(at + ".on"):
            time.sleep(0.005)
        with open(at, "w", encoding="utf-8"):
            pass
        while b"0\r\n\r\n" not in c.got:
            assert c._more()
        assert c.got == b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", c.got


def t_fresh_answers_are_hits():
    a, b = (ask(d.address, "GET", "/p/fresh.php") for _ in range(2))
    assert not a.hit and b.hit and a.body == b.body and b.field("Age") is not None, (a, b)
    r = ask(d.address, "GET", "/p/fresh.php", "Range: bytes=0-4")
    assert r.status == 206 and r.body == b"fresh", r
    r = ask(d.address, "GET", "/p/fresh.php", 'If-None-Match: "v"')
    assert r.status == 304, r
    assert ask(d.address, "POST", "/p/fresh.php", body=b"x").status == 200
    r = ask(d.address, "GET", "/p/fresh.php")
    assert not r.hit and r.body != a.body, r


def t_stored_answers_are_validated():
    a, b = (ask(d.address, "GET", "/p/etag.php") for _ in range(2))
    assert a.status == b.status == 200 and a.body == b.body, (a, b)
    assert "fwd=stale" in b.cache or "fwd=request" in b.cache, b


def t_connections_are_pooled():
    """1000 requests over few connections: php-fpm says how many it has taken."""
    pids = set()
    with origin.Client(d.address) as c:
        for i in range(1000):
            r = c.request("GET", f"/p/echo.php?{i}")
            assert r.status == 200, r
            pids.add(json.loads(r.body)["pid"])
    assert len(pids) == 1, f"{len(pids)} workers for one request after the other"


def t_concurrent_requests_are_each_answered():
    """More at a time than php-fpm has workers, which idle connections must not keep."""
    wrong, good = [], []

    def many(nr):
        with origin.Client(d.address) as c:
            for i in range(20):
                r = c.request("GET", f"/echo.php?{nr}.{i}", host="rooted")
                right = r.status == 200 and f'"QUERY_STRING":"{nr}.{i}"'.encode() in r.body
                (good if right else wrong).append(r)
    ts = [threading.Thread(target=many, args=(i,)) for i in range(8)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert len(good) == 160 and not wrong, (len(good), wrong[:3])


def written(at):
    """The text that a program has written there, up to its final period."""
    deadline = time.monotonic() + client.WAIT_S
    while True:
        if os.path.exists(at):
            with open(at, encoding="utf-8") as f_:
                text = f_.read()
            if text.endswith("."):
                return text[:-1]
        assert time.monotonic() < deadline, at
        time.sleep(0.005)


def t_programs_that_die():
    at = os.path.join(php.root, "p", "pid")
    os.chmod(os.path.join(php.root, "p"), 0o777)
    with origin.Client(d.address) as c:
        # not a GET: that would be tried again on another connection
        c.send(
            f"POST /p/die.php?f={at} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n".encode())
        os.kill(int(written(at)), signal.SIGKILL)
        assert c.answer().status == 502
    assert ask(d.address, "GET", "/p/").body == b"index /p/index.php"
    php.kill()
    r = ask(d.address, "GET", "/p/")
    assert r.status == 502 and not r.hit, r
    assert ask(d.address, "GET", "/p/fresh.php?other").status == 502
    if os.path.exists(php.address):
        os.unlink(php.address)
    php.start()
    deadline = time.monotonic() + client.WAIT_S     # it may rest meanwhile
    while ask(d.address, "GET", "/p/").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def t_errors_in_the_configuration():
    for more, words in (('upstream a { server = "unix:/x" script-root = "x" }',
                         ("script-root", "absolute")),
                        ('upstream a { server = "unix:/x" script-params = "a=b" }',
                         ("script-params", "NAME=value")),
                        ('upstream a { server = "unix:/x" protocol = fcgi }',
                         ("protocol", "fastcgi")),
                        ('upstream a { server = "127.0.0.1" protocol = fastcgi }',
                         ("127.0.0.1", "server")),
                        ('upstream a { server = "unix:/x" protocol = fastcgi } host n { upstream = '
                         'a }', None)):
        d.save(text_of() + more)
        line = d.hup(("reloaded", "expected"))
        assert all(w in line for w in words) if words else "reloaded" in line, line
    d.save(text_of())
    d.hup(("reloaded",))


def t_on_one_connection_with_files():
    """Hits of the fast path before, between and after: the same bytes either way."""
    def bodies(wire):
        with conf.Conf(text_of(), "--workers", "1", wire=wire) as c:
            c.write("file", b"a file")
            got = []
            with origin.Client(c.address) as one:
                for i in range(50):
                    got.append(one.request("GET", "/file"))
                    got.append(one.request("GET", "/p/"))
                    got.append(one.request("POST", "/p/echo.php", body=b"x" * i))
                    got.append(one.request("GET", "/file"))
            assert all(r.status == 200 for r in got), got
            return [r.body if b"pid" not in r.body else json.loads(r.body)["len"] for r in got]
    off = bodies(False)
    assert off[:4] == [b"a file", b"index /p/index.php", 0, b"a file"], off[:4]
    assert bodies(True) == off


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
