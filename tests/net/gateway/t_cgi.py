#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""CGI: the environment and rights of a program, its limits, and that it leaves nothing."""
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from client import logs             # noqa: E402
from origin import ask              # noqa: E402
from programs import OK, TEXT, Programs, redirect  # noqa: E402

d = None
_names = itertools.count()


def begin():
    global d
    d = Programs('cgi-time = "20s"').start()


def end():
    d.stop()


def variables(body):
    return dict(x.split("=", 1) for x in body.decode().split("\n") if "=" in x)


def t_the_environment_is_the_meta_variables():
    p = d.program(OK + "env")
    r = ask(d.address, "GET", p + "/extra%20path?a=b&c", "X-One: 1", "X-One: 2", "Proxy: evil",
            "Authorization: Basic c2VjcmV0", "Cookie: c=1", host="Some.Host:81")
    assert r.status == 200 and r.field("Content-Type") == "text/plain", r
    got = variables(r.body)
    want = {
        "GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": "GET", "QUERY_STRING": "a=b&c",
        "SCRIPT_NAME": p, "PATH_INFO": "/extra path", "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1", "REMOTE_HOST": "127.0.0.1", "HTTP_COOKIE": "c=1",
        "HTTP_HOST": "some.host:81",
        "SCRIPT_FILENAME": d.programs + "/" + p.split("/")[-1],
    }
    for name, value in want.items():
        assert got.get(name) == value, (name, got)
    assert got["HTTP_X_ONE"].replace(" ", "") == "1,2", got
    assert got["SERVER_PORT"] == str(d.address[1]), got
    for name in ("HTTP_PROXY", "HTTP_AUTHORIZATION", "CONTENT_LENGTH", "CONTENT_TYPE"):
        assert name not in got, (name, got)
    for name in got:
        assert name.startswith(("HTTP_", "REMOTE_", "REQUEST_", "SERVER_", "SCRIPT_", "PATH")) or \
            name in ("GATEWAY_INTERFACE", "QUERY_STRING", "DOCUMENT_ROOT", "PWD", "OLDPWD", "_"), \
               name


def t_words_of_a_query_are_arguments():
    """RFC 3875 4.4: all of them or none, and never an option."""
    p = d.program(OK + "printf '<%s>' \"$#\" \"$@\"")
    for query, want in (("", "0"), ("?", "0"), ("?a", "1 a"),
                        ("?a+b%20c+%2b%3D%26;d", "3 a|b c|+=&;d"), ("?a=b+c", "0"),
                        ("?a%3db", "1 a=b"), ("?%24(id)+*+;", "3 $(id)|*|;"), ("?-s", "0"),
                        ("?a+-s", "0"),
                        ("?a+%2ds", "0"), ("?a++b", "0"), ("?+", "0"), ("?a+", "0"),
                        ("?a+b%00", "0"), ("?b%zz+a", "0"),
                        ("?b%2", "0"),
                        ("?" + "+".join("x" * 3000), "3000 " + "|".join("x" * 3000))):
        nr, *words = want.split(" ", 1)
        text = "".join(f"<{x}>" for x in [nr, *"".join(words).split("|")] if x)
        for method in ("GET", "POST"):
            r = ask(d.address, method, p + query, body=b"" if method == "POST" else None)
            assert r.body == (text if method == "GET" else "<0>").encode(), (method, query[:50], r)


def t_a_long_path_is_whole():
    p = d.program(OK + "printf %s \"$PATH_INFO\"")
    for n in (4000, 4095, 4096, 4200, 7900):
        info = "/" + "x" * (n - len(p) - 2) + "y"
        r = ask(d.address, "GET", p + info)
        assert r.status == 200 and r.body == info.encode(), (n, r.status, len(r.body))
    assert ask(d.address, "GET", "/cgi-bin/" + "x" * 5000).status == 404
    assert ask(d.address, "GET", "/cgi-bin/" + "x/" * 2500).status == 404


def t_where_it_stands_and_what_it_has_open():
    p = d.program(OK + "exec ls /proc/self/fd")
    assert ask(d.address, "GET", p).body.split() == [b"0", b"1", b"2", b"3"], "the last is its own"
    p = d.program(OK + "pwd; grep -E '^Sig(Ign|Blk)|^NoNewPrivs|^Cap(Prm|Eff)' /proc/self/status",
                  name=f"sub/p{next(_names)}")
    lines = ask(d.address, "GET", p).body.decode().split("\n")
    assert lines[0] == d.programs + "/sub", lines
    for name, value in (("SigBlk", 0), ("SigIgn", 0), ("NoNewPrivs", 1), ("CapPrm", 0),
                        ("CapEff", 0)):
        line = next(x for x in lines if x.startswith(name + ":"))
        assert int(line.split()[1], 16) == value, line


def t_bodies():
    p = d.program(OK + "echo $REQUEST_METHOD $CONTENT_LENGTH $CONTENT_TYPE; cat")
    r = ask(d.address, "POST", p, "Content-Type: a/b", body=b"hello")
    assert r.body == b"POST 5 a/b\nhello", r.body
    r = ask(d.address, "PUT", p, body=b"")
    assert r.body.startswith(b"PUT"), r.body
    body = os.urandom(3 << 20)
    r = ask(d.address, "POST", p, body=body)
    assert r.body.split(b"\n", 1)[1] == body, "a body larger than all buffers on its way"
    p = d.program(OK + "echo unread")
    for _ in range(3):
        assert ask(d.address, "POST", p, body=body).body == b"unread\n"
    assert ask(d.address, "HEAD", d.program(OK + "echo body")).body == b""


def t_statuses_and_fields():
    p = d.program(
        "printf 'Status: 418 Short And Stout\\nX-A: 1\\nX-A: 2\\nContent-Length: 2\\n\\nok'")
    r = ask(d.address, "GET", p)
    assert r.status == 418 and r.field("X-A") == "1, 2" and r.body == b"ok", r
    p = d.program("printf 'Location: http://other.example/\\n\\n'")
    r = ask(d.address, "GET", p)
    assert r.status == 302 and r.field("Location") == "http://other.example/", r


def to(path, before=""):
    """A program that has us answer that path."""
    return d.program(redirect(path, before))


def t_a_path_is_answered_by_us():
    """A local redirect (RFC 3875 6.2.2): the client gets what the path gets."""
    d.write("file.txt", b"a file")
    env = d.program(OK + "env; echo; cat")
    with origin.Client(d.address) as c:
        r = c.request("GET", to("/file.txt"))
        assert (r.status, r.body, r.field("Location")) == (200, b"a file", None), r
        r = c.request("HEAD", to("/file.txt"))
        assert (r.status, r.body, r.field("Content-Length")) == (200, b"", "6"), r
        r = c.request("GET", to("/none"))
        assert r.status == 404, r
        r = c.request("GET", to(env + "/more?a=b"), "Cookie: k=v", "X-A: 1")
        v = variables(r.body)
        assert (v["SCRIPT_NAME"], v["PATH_INFO"], v["QUERY_STRING"]) == (env, "/more", "a=b"), v
        assert (v["HTTP_COOKIE"], v["HTTP_X_A"], v["HTTP_HOST"]) == ("k=v", "1", "test"), v
        # what was sent goes to the first program alone
        r = c.request("POST", to(env, before="cat > NOTES/got\n"), "Content-Type: a/b",
                      body=b"body")
        v = variables(r.body)
        assert v["REQUEST_METHOD"] == "GET" and d.note("got") == "body", (v, r)
        assert "CONTENT_LENGTH" not in v and "CONTENT_TYPE" not in v, v
        assert c.request("GET", "/file.txt").body == b"a file", "the connection goes on"


def t_a_path_that_is_a_long_way():
    d.write("end.txt", b"the end")
    at, paths = "/end.txt", []
    for _ in range(11):
        at = to(at)
        paths.append(at)
    with origin.Client(d.address) as c:
        assert c.request("GET", paths[9]).body == b"the end", "ten are allowed"
        assert c.request("GET", paths[10]).status == 500, "eleven are not"
        name = f"circle{next(_names)}"
        circle = d.program(f"printf 'Location: /cgi-bin/{name}?x\\n\\n'", name=name)
        assert c.request("GET", circle).status == 500
        assert c.request("GET", "/end.txt").body == b"the end"


def t_paths_that_are_the_client_s():
    """With a status, another host or fields that would be lost, it is the client's to go there."""
    for text in ("Status: 302 F\\nLocation: /file.txt", "Location: //other/x",
                 "Location: /file.txt#part",
                 "Set-Cookie: a=b\\nLocation: /file.txt"):
        r = ask(d.address, "GET", d.program(f"printf '{text}\\n\\n'"))
        assert r.status == 302 and r.field("Location").startswith("/"), (text, r)
    for text in ("/a b", "/%%zz", "/\\377"):
        r = ask(d.address, "GET", to(text))
        assert r.status in (502, 404), (text, r)


def t_a_redirect_with_more_behind_it():
    d.write("file.txt", b"a file")
    with origin.Client(d.address) as c:
        r = c.request("GET", d.program("printf 'Location: /file.txt\\n\\n'; echo nobody sees this"))
        assert r.body == b"a file", r
        r = c.request("GET",
                      d.program("printf 'Location: /file.txt\\n\\n'; head -c 1000000 /dev/zero"))
        assert r.status == 502, r
        r = c.request("GET", d.program("printf 'Location: /file.txt\\n\\n'; exit 3"))
        assert r.status in (200, 502), r
    # a body that the program does not read is nobody's request
    with origin.Client(d.address) as c:
        c.send(
            f"POST {to('/file.txt')} HTTP/1.1\r\nHost: t\r\n"
            "Content-Length: 100000\r\n\r\n".encode() +
               b"GET /no HTTP/1.1\r\n\r\n".ljust(100000))
        assert c.answer().body == b"a file"
        assert c.request("GET", "/file.txt").body == b"a file"


def t_redirects_pipelined_with_files():
    d.write("a.txt", b"a")
    d.write("b.txt", b"b" * 100000)
    a, b, p = to("/a.txt"), to("/b.txt"), d.program(OK + "echo p")
    paths = [a, "/a.txt", b, p, "/b.txt", a, b, a] * 10
    want = {a: b"a", "/a.txt": b"a", b: b"b" * 100000, "/b.txt": b"b" * 100000, p: b"p\n"}
    with origin.Client(d.address) as c:
        c.send("".join(f"GET {x} HTTP/1.1\r\nHost: t\r\n\r\n" for x in paths).encode())
        for path in paths:
            assert c.answer().body == want[path], path


def t_the_log_shows_the_requested_target():
    log = os.path.join(tempfile.gettempdir(), f"tbg-cgi-log-{os.getpid()}")
    with Programs("", TEXT, "--access-log", log) as p:
        p.write("file.txt", b"a file")
        p.write("large.txt", b"x" * 500000)
        small = p.program("printf 'Location: /file.txt\\n\\n'")
        large = p.program("printf 'Location: /large.txt\\n\\n'")
        other = p.program("printf 'Location: " + p.program(OK + "echo ok") + "\\n\\n'")
        for path in (small, large, other, "/file.txt"):
            assert ask(p.address, "GET", path).status == 200, path
    with open(log, encoding="utf-8") as f:
        lines = f.read().splitlines()
    os.unlink(log)
    assert [x.split('"')[1].split()[1] for x in lines] == [small, large, other, "/file.txt"], lines
    assert [x.split('"')[2].split()[1] for x in lines] == ["6", "500000", "3", "6"], lines


INDEX = """
root = "{root}"
index = {"index.html", "index.sh"}
location "*.sh" { cgi = "{root}" %s }
location "/docs/" { index = {"index.sh"} autoindex = on }
location "/plain/" { index = {"index.txt", "index.html"} }
location "/first/" { index = {"index.sh", "index.html"} }
location "/first/list/" { index = {"index.sh", "index.html"} autoindex = on }
location "*.txt" { headers = "X-Text: yes" }
"""


def index(p):
    """Programs that are an index are run, whatever asks, and never sent."""
    def source(path, text=OK + 'echo "run $REQUEST_METHOD $REQUEST_URI $SCRIPT_NAME"; cat'):
        p.write(path, ("#!/bin/sh\n" + text).encode())
        os.chmod(os.path.join(p.root, path), 0o755)

    source("index.sh")
    source("docs/index.sh")
    source("both/index.sh")
    p.write("both/index.html", b"a page")
    p.write("plain/index.txt", b"a text")
    # the program's name stands first, but is not there
    p.write("first/index.html", b"a page")
    p.write("first/list/index.html", b"a page")
    os.makedirs(os.path.join(p.root, "first/none"), exist_ok=True)
    os.makedirs(os.path.join(p.root, "docs/none"), exist_ok=True)
    os.makedirs(os.path.join(p.root, "docs/folder/index.sh"), exist_ok=True)
    with origin.Client(p.address) as c:
        for _ in range(3):
            assert c.request("GET", "/?q").body == b"run GET /?q /index.sh\n"
            assert c.request("GET", "/docs/").body == b"run GET /docs/ /docs/index.sh\n"
            assert c.request("HEAD", "/docs/").status == 200
            assert c.request("POST", "/", body=b"sent").body == b"run POST / /index.sh\nsent"
            assert c.request("GET", "/both/").body == b"a page"
            r = c.request("GET", "/plain/")
            assert r.body == b"a text" and r.field("X-Text") == "yes", r
            for path in ("/first/", "/first/list/"):
                assert c.request("GET", path).body == b"a page", path
            assert c.request("GET", "/first/none/").status == 403
            assert c.request("GET", "/docs/none/").status == 200, "a list"
            assert b"index.sh/" in c.request("GET", "/docs/folder/").body, "a folder is no index"
            assert c.request("GET", "/index.sh/").status != 500
    os.chmod(os.path.join(p.root, "docs/index.sh"), 0o600)
    r = ask(p.address, "GET", "/docs/")
    assert b"echo" not in r.body and (r.status == 403 or b"run" in r.body), r
    # the page goes, the program answers at once
    os.unlink(os.path.join(p.root, "both/index.html"))
    client.until(lambda: ask(p.address, "GET", "/both/").body.startswith(b"run"), "still a page")
    source("late/index.sh")
    assert ask(p.address, "GET", "/late/").body == b"run GET /late/ /late/index.sh\n"
    p.write("late/index.html", b"now a page")
    assert ask(p.address, "GET", "/late/").body == b"now a page"
    os.unlink(os.path.join(p.root, "late/index.html"))
    client.until(lambda: ask(p.address, "GET", "/late/").body.startswith(b"run"), "never run again")


def t_an_index_that_is_a_program():
    with Programs("", INDEX) as p:
        index(p)


def t_an_index_that_is_a_program_with_wire():
    with Programs("", INDEX, wire=True) as p:
        index(p)


def t_an_error_page_is_no_source():
    text = 'root = "{root}"\nerror-page = {"404 /e.sh"}\nlocation "*.sh" { cgi = "{root}" %s }'
    with Programs("", text) as p:
        p.write("e.sh", b"#!/bin/sh\n# secret\n")
        r = ask(p.address, "GET", "/none")
        assert r.status == 404 and b"secret" not in r.body, r


def t_errors_in_place_of_an_answer_have_the_location_s_pages():
    """An error response of the program itself is never replaced."""
    text = TEXT.replace("%s", 'cgi-time = "1s" error-page = {"403 404 502 503 504 /e.html"}')
    with Programs("", text + "%s") as p:
        p.write("e.html", b"<p>page")
        p.program(OK, name="data", mode=0o644)
        for path, status in (("/cgi-bin/none", 404), ("/cgi-bin/data", 403),
                             (p.program("exit 0"), 502),
                             (p.program("echo oh no >&2; kill -SEGV $$"), 502),
                             (p.program("echo oh no >&2; sleep 60"), 504)):
            for method in ("GET", "HEAD", "POST"):
                with origin.Client(p.address) as c:
                    r = c.request(method, path, body=b"x" * 10 if method == "POST" else None)
                    assert (r.status, r.field("Content-Type"),
                            r.field("Content-Length")) == (status, "text/html", "7"), r
                    assert r.body == (b"" if method == "HEAD" else b"<p>page"), (method, path, r)
                    assert f"fwd-status={status}" in r.cache and "stored" not in r.cache, r
                    if status == 404:
                        assert c.request(method, path).status == 404, (method, path)
        for status in (403, 404, 502, 503, 504):
            r = ask(p.address, "GET",
                    p.program(f"printf 'Status: {status} Its Own\\n\\nits own'; exit 1"))
            assert (r.status, r.reason, r.body) == (status, "Its Own", b"its own"), r


def t_a_gateway_without_the_daemon():
    """Programs by FastCGI, as of any such server: what it says is its own."""
    path = os.path.join(d.folder, "alone.sock")
    words = [os.path.join(ktap.BUILD, "toboggan-gateway"), "--listen", path, "--cgi", d.programs,
             "--prefix", "/cgi-bin"]
    text = f"""
        upstream programs {{ server = "unix:{path}" protocol = fastcgi
            script-root = "{d.programs}" }}
        location "/cgi-bin/" {{ upstream = programs error-page = {{"404 /e.html"}} }}
        root = "{{root}}"
        """
    user = ("--user", "root") if not os.geteuid() else ()
    with subprocess.Popen(words) as p:
        client.until(lambda: os.path.exists(path), "no socket")
        with conf.Conf(text, *user) as own:
            own.write("e.html", b"<p>page")
            assert ask(own.address, "GET", d.program(OK + "echo fine")).body == b"fine\n"
            assert ask(own.address, "GET", "/cgi-bin/none").body == b"404 Not Found\n"
            assert ask(own.address, "GET", "/none").status == 404
        p.send_signal(signal.SIGTERM)
        assert p.wait(client.WAIT_S) == 0


def t_names_that_are_no_programs():
    d.program(OK, name="data", mode=0o644)
    d.program(OK, name="nph-raw")
    d.program(OK, name="folder/inside")
    os.symlink("/bin/ls", os.path.join(d.programs, "escape"))
    os.symlink("../" * 20 + "bin/ls", os.path.join(d.programs, "climb"))
    os.symlink("folder/inside", os.path.join(d.programs, "within"))
    os.mkfifo(os.path.join(d.programs, "fifo"), 0o755)
    for name, status in (("data", 403), ("nph-raw", 403), ("folder", 403), ("folder/", 403),
                         ("fifo", 403), ("none", 404), ("none/x", 404), ("", 404), ("escape", 404),
                         ("climb", 404), ("%2e%2e/t.conf", 404), ("folder/../data", 403),
                         ("within", 200), ("folder/inside/x", 200), ("data/x", 403)):
        r = ask(d.address, "GET", "/cgi-bin/" + name)
        assert r.status == status, (name, r)


def t_standard_error_is_in_the_log():
    r = ask(d.address, "GET", d.program("echo oh no >&2\n" + OK + "echo fine"))
    assert r.body == b"fine\n"
    logs(d, f"cgi {d.programs}: oh no")


def t_standard_error_cannot_drive_a_terminal():
    """C0 and C1, as bytes and as UTF-8, overlong too; text in UTF-8 stays what it is."""
    p = d.program("printf 'a\\033\\177\\233\\302\\233\\300\\233\\340\\202\\233\\303"
                  "\\303\\244\\342\\202\\254\\360\\237\\233\\267\\342\\233z\\n' >&2\n" + OK +
                  "echo fine")
    assert ask(d.address, "GET", p).body == b"fine\n"
    logs(d, ": a" + "?" * 11 + "\u00e4\u20ac\U0001f6f7??z")


def t_garbage_is_a_502():
    for script in ("echo no head; echo", "exit 0", "exit 3", "printf 'Content-Type: a/b\\n'",
                   "printf '\\n\\nbody'", "printf 'A: \\001\\n\\n'", "head -c 100000 /dev/zero",
                   "yes 'X: y' | head -n 10000; echo", "printf 'Status: 99\\n\\n'",
                   "printf 'Location: /a\\nLocation: /b\\n\\n'",
                   "printf 'Content-Type: a/b\\nContent-Type: text/html\\n\\nx'",
                   "printf 'HTTP/1.1 200 OK\\n\\n'", "kill -SEGV $$"):
        with origin.Client(d.address) as c:
            r = c.request("GET", d.program(script))
            assert r.status == 502, (script, r)
            assert c.request("GET", d.program(OK + "echo x")).body == b"x\n"


def t_what_is_wrong_with_an_answer_is_in_the_log():
    for script, why in (("printf 'Status: 700 x\\nA: b\\n\\nabc'",
                         "its head is malformed, or of too many fields"),
                        ("printf 'Content-Length: 10\\n\\nabc'",
                         "its body does not match its head")):
        before = len(d.lines)
        try:
            assert ask(d.address, "GET", d.program(script)).status == 502, script
        except (EOFError, ConnectionResetError):    # its beginning was sent before its end was seen
            assert "Content-Length" in script
        client.until(lambda before=before,
                     why=why: any(f"cgi {d.programs}: {why}" in x for x in d.lines[before:]),
                     f"never said: {why}")


def t_stale_answers_stand_in_for_programs_that_fail():
    """As for servers that fail: no word of stale-if-error, a day; where it must not be, it is
    not."""
    for more, status in (("", 200), (", must-revalidate", 502)):
        p = d.program(f"if [ -e NOTES/fails{status} ]; then exit 1; fi\n"
                      f"printf 'Cache-Control: max-age=1{more}\\nContent-Type: a/b\\n\\nold'")
        assert ask(d.address, "GET", p).body == b"old"
        open(os.path.join(d.notes, f"fails{status}"), "w", encoding="utf-8").close()
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            r = ask(d.address, "GET", p)
            time.sleep(0.1)
        assert r.status == status and (r.body == b"old") == (status == 200), (more, r)
        assert "fwd-status=502" in r.field("Cache-Status"), r


def t_all_who_wait_for_a_program_that_fails_get_what_is_stale():
    p = d.program("if [ -e NOTES/fails-all ]; then echo >>NOTES/runs; sleep 0.5; exit 1; fi\n"
                  "printf 'Cache-Control: max-age=1\\nContent-Type: a/b\\n\\nold'")
    assert ask(d.address, "GET", p).body == b"old"
    open(os.path.join(d.notes, "fails-all"), "w", encoding="utf-8").close()
    time.sleep(2.1)
    got = []
    threads = [threading.Thread(target=lambda: got.append(ask(d.address, "GET", p)))
               for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r.body for r in got] == [b"old"] * 6, got
    assert len(d.note("runs")) < 6, "it ran for each of them"


def t_a_status_without_a_reason_has_the_usual_one():
    for status, reason in ((201, "Created"), (303, "See Other"), (429, "Too Many Requests"),
                           (599, "Unknown")):
        r = ask(d.address, "GET", d.program(f"printf 'Status: {status}\\n\\n'"))
        assert (r.status, r.reason) == (status, reason), r


def t_answers_are_cached_as_they_say():
    p = d.program("printf 'Cache-Control: max-age=60\\n\\n'; echo $$")
    first, again = ask(d.address, "GET", p), ask(d.address, "GET", p)
    assert first.body == again.body and again.hit, again
    p = d.program(OK + "echo $$")
    assert ask(d.address, "GET", p).body != ask(d.address, "GET", p).body


if __name__ == "__main__":
    ktap.run(globals(), begin, end)
