#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs behind FastCGI: php-fpm itself, and a server that gets everything wrong."""
import hashlib
import itertools
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import client                                       # noqa: E402
import conf                                         # noqa: E402
import daemon                                       # noqa: E402
import fastcgi                                      # noqa: E402
import fpm                                          # noqa: E402
import ktap                                         # noqa: E402
import origin                                       # noqa: E402
import talk                                         # noqa: E402
from fastcgi import STDERR, STDOUT, answer, out, record   # noqa: E402
from origin import END, ask, then_closes                         # noqa: E402

HUGE = int(os.environ.get("TBG_HUGE_MB", "256")) << 20      # bytes each way
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


def says(word, seen=0):
    """Wait for a line of the daemon's with that in it."""
    deadline = time.monotonic() + client.WAIT_S
    while True:
        found = [x for x in d.lines[seen:] if word in x]
        if found:
            return found[0]
        assert time.monotonic() < deadline, (word, d.lines[seen:])
        time.sleep(0.01)


# php-fpm

def t_php_is_told_of_the_request():
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
    assert "upstream php: " in says("one line", seen)
    assert "\x1b" not in says("another", seen)
    assert ask(d.address, "GET", "/p/fatal.php").status == 500
    says("nosuchfunction", seen)


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
    """What a program has written there, to its full stop."""
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


# a server that a test tells what to do

def t_request_as_records():
    p = path()
    f.on(p, answer(b"Content-Type: a/b\r\n\r\nhello"))
    r = ask(d.address, "POST", p, "Content-Type: c/d", body=b"body")
    assert r.status == 200 and r.body == b"hello" and r.field("Content-Length") == "5", r
    got = f.wait(p)
    assert got.keep and got.body == b"body" and got.params["CONTENT_TYPE"] == "c/d", got.params
    assert got.params["SCRIPT_FILENAME"] == "/app/run.php" and \
           got.params["SCRIPT_NAME"] == "/run.php"
    assert got.params["PATH_INFO"] == p, got.params


def t_padding_and_pieces():
    whole = out(b"Status: 201 Made\r\nX: y\r\n\r\nhello world", size=3,
                padding=7) + record(STDOUT, padding=9) + fastcgi.end()
    for step in (1, 7, 64):
        p = path()

        def send(c, r, step=step):
            for i in range(0, len(whole), step):
                c.send(whole[i:i + step])
        f.on(p, send)
        r = ask(d.address, "GET", p)
        assert (r.status, r.reason, r.body, r.field("X")) == (201, "Made", b"hello world", "y"), \
               (step, r)


def t_management_records_are_passed_over():
    p = path()
    f.on(p, record(11, b"\x09" + b"\0" * 7, 0) + record(10, b"\x0f\x01FCGI_MPXS_CONNS0", 0, 5) +
         answer(b"A: b\n\nx"))
    assert ask(d.address, "GET", p).body == b"x"


def t_connections_are_used_again():
    paths = [path() for _ in range(20)]
    for p in paths:
        f.on(p, answer(b"A: b\n\nx"))
        assert ask(d.address, "GET", p).body == b"x"
    assert len({f.wait(p).connection for p in paths}) == 1


def good_after(p, body=b"good"):
    f.on(p, answer(b"A: b\r\n\r\n" + body))
    r = ask(d.address, "GET", p)
    assert r.status == 200 and r.body == body and not r.hit, r


HEAD = b"Cache-Control: max-age=60\r\n\r\n"

WRONG = {
    "no record": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "zeros": bytes(64),
    "version": record(STDOUT, HEAD, version=2),
    "another's": out(HEAD, id_=2) + fastcgi.end(),
    "management's": out(HEAD, id_=0) + fastcgi.end(),
    "a request": record(fastcgi.BEGIN, b"\0\1\0\0\0\0\0\0"),
    "input": record(fastcgi.STDIN, b"x"),
    "unknown": record(77, b"x"),
    "short end": record(fastcgi.END, b"\0"),
    "nothing": fastcgi.end(),
    "errors alone": record(STDERR, b"oh") + fastcgi.end(),
    "no head": out(b"garbage\n\n") + fastcgi.end(),
    "half a head": out(b"Cache-Control: max-age=60\r\n") + fastcgi.end(),
    "empty head": out(b"\r\nbody") + fastcgi.end(),
    "status line": out(b"HTTP/1.1 200 OK\r\n" + HEAD) + fastcgi.end(),
    "bad status": out(b"Status: 99\r\n" + HEAD) + fastcgi.end(),
    "interim": out(b"Status: 101 Switching\r\n" + HEAD) + fastcgi.end(),
    "two statuses": out(b"Status: 200\r\nStatus: 404\r\n" + HEAD) + fastcgi.end(),
    "two types": out(b"Content-Type: a/b\r\nContent-Type: text/html\r\n\r\nx") + fastcgi.end(),
    "two lengths": out(b"Content-Length: 1\r\nContent-Length: 2\r\n" + HEAD + b"x") + fastcgi.end(),
    "too short": out(b"Content-Length: 5\r\n" + HEAD + b"abc") + fastcgi.end(),
    "behind its end": out(HEAD + b"abc") + record(STDOUT, b"") + out(b"d") + fastcgi.end(),
    "too long": out(b"Content-Length: 2\r\n" + HEAD + b"abc") + fastcgi.end(),
    "overloaded": fastcgi.end(status=2),
    "multiplexing": fastcgi.end(status=1),
    "role": fastcgi.end(status=3),
    "endless head": out(b"X: " + b"y" * 100000),
    "nul": out(b"X: a\0b\r\n" + HEAD) + fastcgi.end(),
    "closed": b"",
    "closed in a record": record(STDOUT, HEAD)[:12],
}


def t_wrong_answers_are_502_and_never_stored():
    for name, data in WRONG.items():
        p = path()
        f.on(p, then_closes(data))
        r = ask(d.address, "GET", p)
        assert r.status == 502 and "stored" not in r.cache, (name, r)
        f.wait_end(p)
        good_after(p)


def t_what_an_overloaded_server_has_not_begun_another_does():
    """Whatever the method; what has been said by it before is an answer that failed."""
    with fastcgi.Server() as a, fastcgi.Server() as b:
        with conf.Conf(
            'upstream "two" { server = {"%s", "%s"} protocol = fastcgi script-root = "/" }\n'
                       'location "/" { upstream = "two" body-buffer = "1M" }\n' % (a.server,
                                                                                   b.server),
            "--workers", "1") as two:
            for s, said in ((a, fastcgi.end(status=2)), (b, answer(b"A: b\n\nright"))):
                s.on("/x", said)
            a.on("/y", out(b"A: b\n") + fastcgi.end(status=2))
            b.on("/y", out(b"A: b\n") + fastcgi.end(status=2))
            for _ in range(4):
                r = ask(two.address, "POST", "/x", body=b"sent")
                assert r.status == 200 and r.body == b"right", r
            assert all(x.body == b"sent" for x in a.seen("/x") + b.seen("/x"))
            assert ask(two.address, "POST", "/y", body=b"sent").status == 502
            assert len(a.seen("/y") + b.seen("/y")) == 1


def t_truncated_answers_are_cut_off_and_never_stored():
    for length in (b"", b"Content-Length: 9\r\n"):
        for rest in (b"", record(77), record(STDOUT, b"x" * 20)[:15]):
            p, go = path(), threading.Event()

            def send(c, r, length=length, rest=rest, go=go):
                c.send(out(length + HEAD + b"abc"))
                assert go.wait(client.WAIT_S)
                c.send(rest)
                return END
            f.on(p, send)
            with origin.Client(d.address) as c:
                c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
                c.head()
                go.set()
                try:
                    while c._more():
                        pass
                except ConnectionResetError:
                    pass
                assert b"0\r\n\r\n" not in c.got and (not length or len(c.got) < 9), c.got
            good_after(p)


def t_what_follows_an_end_is_nobody_s_answer():
    q = path()
    f.on(q, answer(b"A: b\n\nright"))
    for status, head in ((200, b""), (200, b"Content-Length: 1\n"), (204, b"Status: 204\n")):
        for evil, got in ((answer(HEAD + b"smuggled"), 502), (b"junk", status),
                          (fastcgi.end(), status)):
            p = path()
            f.on(p, answer(head + HEAD + (b"x" if status == 200 else b"")) + evil)
            r = ask(d.address, "GET", p)
            assert r.status == got and (got == 502 or r.body in (b"", b"x")), (head, evil, r)
            assert ask(d.address, "GET", q).body == b"right"
            assert f.seen(p)[0].connection != f.seen(q)[-1].connection
            good_after(p)


def t_a_length_that_is_reached_before_the_end():
    """The client has its answer, and the connection is used again only after the end."""
    p, q, go = path(), path(), threading.Event()

    def send(c, r):
        c.send(out(b"Content-Length: 3\r\n\r\nabc"))
        assert go.wait(client.WAIT_S)
        c.send(fastcgi.end())
    f.on(p, send)
    f.on(q, answer(b"A: b\n\nx"))
    with origin.Client(d.address) as c:
        assert c.request("GET", p).body == b"abc"
        assert c.request("GET", q).body == b"x"
        go.set()
    assert f.wait(p).connection != f.wait(q).connection


def t_answers_without_body():
    for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
        p = path()
        f.on(p, answer(f"Status: {status}\nContent-Length: 5\n\n".encode() +
                       (b"" if status != 200 else b"hello")))
        r = ask(d.address, method, p)
        assert r.status == status and not r.body, r
        good_after(p)


def t_an_answer_without_body_is_there_before_the_end():
    """Its connection is used again once the end has come, but for one with a body after all."""
    for method, head in (("GET", b"Status: 204\n\n"), ("HEAD", b"Content-Length: 5\n\n"),
                         ("GET", b"Content-Length: 0\n\n")):
        for more in (b"", out(b"more")):
            p, q, go = path(), path(), threading.Event()

            def send(c, r, head=head, more=more, go=go):
                c.send(out(head))
                assert go.wait(client.WAIT_S)
                c.send(more + fastcgi.end())
            f.on(p, send)
            f.on(q, answer(b"A: b\n\nx"))
            with origin.Client(d.address) as c:
                r = c.request(method, p)
                assert r.status in (200, 204) and not r.body, (head, r)
                go.set()
                client.until(lambda: not under_way("fake"), "no end")
                assert c.request("GET", q).body == b"x"
            assert (f.wait(p).connection == f.wait(q).connection) == (not more), (head, more)


def under_way(name):
    return sum(x["active"] for x in talk.ask(d, "status")["upstreams"] if x["upstream"] == name)


def t_a_program_that_says_it_failed_is_not_stored():
    p = path()
    f.on(p, out(HEAD + b"half") + fastcgi.end(app=1), answer(HEAD + b"whole"))
    assert ask(d.address, "GET", p).body == b"half"
    r = ask(d.address, "GET", p)
    assert r.body == b"whole" and not r.hit, r


def t_time_limits():
    p, q, stop = path(), path(), threading.Event()
    f.on(p, lambda c, r: stop.wait(client.WAIT_S) and END)

    def stuck(c, r):
        c.send(out(HEAD + b"a"))
        stop.wait(client.WAIT_S)
        return END
    f.on(q, stuck)
    assert ask(d.address, "GET", p).status == 504
    try:
        ask(d.address, "GET", q)
        raise AssertionError("an answer that stood still was whole")
    except (EOFError, ConnectionResetError):
        pass
    stop.set()
    good_after(q)


def t_a_client_that_leaves_aborts_the_request():
    p, heard = path(), []

    def watch(c, r):
        try:
            heard.append(c.record())
            heard.append(c.record())
        except EOFError:
            heard.append(END)
        return END
    f.on(p, watch)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        f.wait(p)
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    f.wait_end(p)
    assert heard == [(fastcgi.ABORT, b""), END], heard


def t_stale_connections_are_tried_again():
    """What the server has closed meanwhile costs no idempotent request."""
    p, q = path(), path()
    f.on(p, answer(b"A: b\n\nx"))
    f.on(q, END, answer(b"A: b\n\ny"))
    assert ask(d.address, "GET", p).body == b"x"
    assert ask(d.address, "GET", q).body == b"y"


def t_a_post_does_not_meet_the_end_of_a_connection():
    """Which a server may make right behind an answer; later it stays."""
    post_does_not_meet_the_end(f, d)
    with fastcgi.Server() as s, \
        conf.Conf('upstream "s" { server = "%s" protocol = fastcgi script-root = "/" }\n'
                                          'location "/" { upstream = "s" }\n' % s.server,
                  "--workers", "1") as by_tcp:
        post_does_not_meet_the_end(s, by_tcp)
        with open("/proc/net/tcp", encoding="ascii") as lines:
            left = [x for x in lines if f":{s.port:04X} 06 " in x]
        assert len(left) < 20, "TIME_WAIT of each uses up the ports"


def post_does_not_meet_the_end(of, by):
    p, waits = path(), []

    def says(c, r):
        waits.append(time.monotonic() - getattr(c, "said_s", 0))
        c.said_s = time.monotonic()
        c.send(answer(b"A: b\n\nx"))

    of.on(p, says)
    for method, body in (("POST", b"1"), ("PUT", bytes(17000))):    # a PUT in hand may meet it
        with origin.Client(by.address) as c:
            for _ in range(50):
                r = c.request(method, p, body=body)
                assert r.body == b"x", (method, r)
    assert min(waits) > 0.015, f"{min(waits)} s behind an answer on its connection"
    p = path()
    of.on(p, answer(b"A: b\n\nx"))
    with origin.Client(by.address) as c:
        for _ in range(3):
            assert c.request("POST", p, body=b"1").body == b"x"
            time.sleep(0.1)
    of.wait(p, 3)
    assert len({r.connection for r in of.seen(p)}) == 1, "nor is one made for each"


def t_endless_errors_cost_no_memory():
    p = path()
    f.on(p, then_closes(record(STDERR, b"e" * 65535) * 20 + answer(b"A: b\n\nx")))
    assert ask(d.address, "GET", p).body == b"x"


def t_huge_answers_in_constant_memory():
    """Also one that is fresh and too large to be kept."""
    block, nr = out(bytes(range(256)) * 255), HUGE // (256 * 255)
    for head in (b"A: b\r\n\r\n", HEAD):
        def send(c, r, head=head):
            c.send(out(head))
            for _ in range(nr):
                c.send(block)
            c.send(record(STDOUT) + fastcgi.end())
        p, got, most = path(), 0, 0
        f.on(p, send)
        with origin.Client(d.address) as c:
            c.send(f"GET {p} HTTP/1.0\r\nHost: t\r\n\r\n".encode())
            c.head()
            got, c.got = len(c.got), b""
            while data := c.s.recv(1 << 20):
                if got >> 24 != (got + len(data)) >> 24:
                    most = max(most, daemon.own_kb(d.pid))
                got += len(data)
        assert got == nr * 256 * 255 and most < 88 << 10, (got, most)


def t_huge_bodies_in_constant_memory():
    def take(c, r):
        got, n, size = bytearray(c.got), 0, -1
        while size:
            at = 0
            while size and len(got) - at >= 8:
                size = got[at + 4] << 8 | got[at + 5]
                assert got[at + 1] == fastcgi.STDIN and not got[at + 6], got[at:at + 8]
                if len(got) - at < 8 + size:
                    break
                n += size
                at += 8 + size
            del got[:at]
            if size:
                got += c.s.recv(1 << 18)
        c.got = b""
        c.send(answer(b"A: b\r\n\r\n%d" % n))

    p, block, most = path(), bytes(1 << 20), 0
    f.on(p, take, raw=True)
    with origin.Client(d.address) as c:
        c.send(f"PUT {p} HTTP/1.1\r\nHost: test\r\nContent-Length: {HUGE}\r\n\r\n".encode())
        for i in range(HUGE >> 20):
            c.send(block)
            if not i % 16:
                most = max(most, daemon.own_kb(d.pid))
        assert c.answer().body == b"%d" % HUGE
    assert most < 88 << 10, most


def t_what_follows_a_large_body():
    """Requests behind it in the stream are read in order, however it is cut into records."""
    p = path()
    f.on(p, lambda c, r: c.send(answer(b"A: b\n\n" + hashlib.sha1(r.body).hexdigest().encode())))
    with origin.Client(d.address) as c:
        for size in (65535, 65536, 200000, 700000):
            body = os.urandom(size)
            data = f"POST {p} HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n".encode() + \
                body
            data += b"".join(b"GET /file?%d HTTP/1.1\r\nHost: test\r\nX: %s\r\n\r\n" % (
                i, b"x" * 997) for i in range(100))
            sender = threading.Thread(target=c.send, args=(data,))
            sender.start()
            assert c.answer().body == hashlib.sha1(body).hexdigest().encode(), size
            for i in range(100):
                assert c.answer().body == b"a file", (size, i)
            sender.join()
            assert not c.got


def t_an_endless_answer_ends_with_its_client():
    p = path()

    def endless(c, r):
        c.send(out(HEAD))
        while True:
            c.send(out(b"x" * 60000))
    f.on(p, endless)
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        got = 0
        while got < 64 << 20:
            got += len(c.s.recv(1 << 20))
    f.wait_end(p)
    assert daemon.own_kb(d.pid) < 88 << 10, daemon.own_kb(d.pid)
    good_after(p)


def t_stale_answers_stand_in_for_errors():
    for wrong in (then_closes(b""), answer(b"Status: 503\r\n\r\nno"), then_closes(bytes(64))):
        p = path()
        f.on(p, answer(b"Cache-Control: max-age=1, stale-if-error=60\r\nETag: \"a\"\r\n\r\nold"),
             wrong)
        assert ask(d.address, "GET", p).body == b"old"
        deadline = time.monotonic() + client.WAIT_S
        while len(f.seen(p)) < 2:
            r = ask(d.address, "GET", p)
            assert time.monotonic() < deadline and (r.status, r.body) == (200, b"old"), r
            time.sleep(0.05)
        assert f.seen(p)[1].params["HTTP_IF_NONE_MATCH"] == '"a"'


def t_one_request_for_many_that_wait():
    p, go = path(), threading.Event()

    def slow(c, r):
        go.wait(client.WAIT_S)
        c.send(answer(HEAD + b"for all"))
    f.on(p, slow)
    cs = [origin.Client(d.address) for _ in range(20)]
    for c in cs:
        c.send(f"GET {p} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    f.wait(p)
    # all are with the daemon once it has acknowledged an answer to one that came later
    for c in cs:
        talk.Connection.acked(c)
    ask(d.address, "GET", "/file")
    go.set()
    got = [c.answer() for c in cs]
    assert all(r.body == b"for all" for r in got) and len(f.seen(p)) == 1, (got, len(f.seen(p)))
    for c in cs:
        c.close()


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


def flood(lines):
    return b"".join(record(STDERR, lines[i:i + 60000]) for i in range(0, len(lines), 60000)) + \
           answer(b"A: b\n\nwhole")


def t_error_output_of_a_request_has_a_limit():
    p, since = path(), len(d.lines)
    f.on(p, flood((b"much " + b"x" * 494 + b"\n") * 2000))
    assert ask(d.address, "GET", p).body == b"whole"
    cut = int(re.search(r"(\d+) bytes more of error output",
                        says("bytes more of error output", since))[1])
    told = [x for x in d.lines[since:] if ": much x" in x]
    assert len(told) == (64 << 10) // 499 and len(told) * 499 + cut == 2000 * 499, (len(told), cut)


def t_error_output_of_all_has_a_rate():
    p, since, left = path(), len(d.lines), 0
    f.on(p, flood(b"m\n" * 30000), flood(b"m\n"))
    while not left:             # it is told with the first line of a later second
        assert ask(d.address, "GET", p).body == b"whole"
        time.sleep(0.05)
        left = sum(int(m[1]) for m in re.finditer(r"(\d+) lines left out",
                                                  "\n".join(d.lines[since:])))
    told = sum(x.endswith(": m") for x in d.lines[since:])
    assert told + left <= 30000 + 1000, (left, told)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
