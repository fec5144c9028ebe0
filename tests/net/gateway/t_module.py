#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Modules: the examples, the API, and that a faulty module harms no other request."""
import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import daemon                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from client import logs             # noqa: E402
from modules import TEXT, Modules   # noqa: E402
from origin import ask              # noqa: E402

d = None
OPENS = """
root = "{root}"
module-time = "1s"
location "/loop" { module = {"{folder}/bad.so", "open loop"} }
location "/crash" { module = {"{folder}/bad.so", "open crash"} }
location "/exit" { module = {"{folder}/bad.so", "open exit"} }
location "/constructor" { module = "{folder}/loops.so" }
location "/bad" { module = {"{folder}/bad.so", "close loop"}
                  module-workers = "1" module-requests = "3" }
location "/destructor" { module = "{folder}/lasts.so" module-workers = "1" module-requests = "3" }
"""


def begin():
    global d
    d = Modules().start()


def end():
    d.stop()


def bad(what, of=None, method="GET", body=None):
    return ask((of or d).address, method, "/bad?" + what, body=body)


def ran_s(pid):
    """CPU seconds of it."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def rests(pid):
    """Whether it does not work all the time, for a moment."""
    before = ran_s(pid)
    time.sleep(0.2)
    return ran_s(pid) - before <= 0.05


def well(what, of=None):
    r = bad(what, of)
    assert r.status == 200, (what, r)
    return r.body.decode().strip()


def t_hello():
    assert ask(d.address, "GET", "/hello?name=Ada").body == b"hello, Ada\n"
    r = ask(d.address, "GET", "/hello?x=1&name=%41%64a+")
    assert r.body == b"hello\n", "a blank is no name"
    assert ask(d.address, "GET", "/hello?name=a%00b").body == b"hello, a%00b\n"
    r = ask(d.address, "GET", "/hello?name=Bob")
    assert r.field("Set-Cookie") == "name=Bob" and r.field("Cache-Control") == "private", r
    r = ask(d.address, "GET", "/hello", 'Cookie: a=b; name="Eve"')
    assert r.body == b"hello, Eve\n", r


def t_hello_is_cached_where_it_permits_that():
    ask(d.address, "GET", "/hello?cached")
    r = ask(d.address, "GET", "/hello?cached")
    assert r.hit and r.body == b"hello\n", r
    r = ask(d.address, "GET", "/hello?cached", "Cookie: name=Eve")
    assert not r.hit and r.body == b"hello, Eve\n", "Vary: Cookie"
    a, b = well("fresh=60"), well("fresh=60")
    assert a == b, "declared fresh, and asked twice"
    assert well("fresh=0") != well("fresh=0")


def t_echo_streams_both_ways():
    body = os.urandom(8 << 20)
    r = ask(d.address, "POST", "/echo", "Content-Type: a/b", body=body)
    assert r.body == body and r.field("Content-Type") == "a/b"
    assert ask(d.address, "POST", "/echo", body=b"").body == b""
    with origin.Client(d.address) as c:
        for i in range(50):
            text = b"%d," % i * (i * 100 + 1)
            assert c.request("POST", "/echo", body=text).body == text


def t_echo_answers_what_has_come_so_far():
    with origin.Client(d.address) as c:
        c.send(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 40000\r\n\r\n" + b"a" * 20000)
        c.head()
        got = c.got
        while got.count(b"a") < 20000:
            got += c.s.recv(65536)
        c.send(b"a" * 20000)
        while got.count(b"a") < 40000:
            got += c.s.recv(65536)


ALONE = """
root = "{root}"
upstream "m" { server = "unix:%s" protocol = fastcgi script-root = "/" }
location "/hello" { upstream = "m" }
"""


def t_a_new_file_is_taken_up_by_a_reload():
    """All at once, and its answers are its own; other modules keep their workers."""
    text = TEXT + 'location "/new" { module = {"{folder}/new.so", "60"} }\n'
    m = Modules(text=text)
    new = os.path.join(m.folder, "new.so")
    shutil.copy(os.path.join(ktap.BUILD, "modules/hello.so"), new)
    with m:
        ask(m.address, "GET", "/new?cached")
        assert ask(m.address, "GET", "/new?cached").hit
        pid = well("pid", m)
        m.hup([": reloaded"])
        assert ask(m.address, "GET", "/new?cached").hit, "it has not changed"
        shutil.copy(os.path.join(ktap.BUILD, "modules/echo.so"), new + ".1")
        os.replace(new + ".1", new)
        m.hup([": reloaded"])
        for _ in range(20):
            assert ask(m.address, "POST", "/new", body=b"sent").body == b"sent"
        assert ask(m.address, "GET", "/new?cached").body == b""
        assert well("pid", m) == pid


def blocks_nothing(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return "SigBlk:\t0000000000000000\n" in f.read()


def t_a_reload_waits_for_what_the_old_file_answers():
    """Postponed and half sent: the old worker finishes both, and is closed."""
    with Modules() as m, origin.Client(m.address) as late, origin.Client(m.address) as long:
        pid = well("pid", m)
        child = well("fork", m)
        client.until(lambda: blocks_nothing(child), "a child of its has signals blocked")
        late.send(b"POST /bad?later=1500 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
        long.send(b"GET /bad?endless HTTP/1.1\r\nHost: t\r\n\r\n")
        long.head()
        path = os.path.join(m.folder, "bad.so")
        shutil.copy(path, path + ".1")
        os.replace(path + ".1", path)
        m.hup([": reloaded"])
        assert well("pid", m) != pid
        for _ in range(1000):
            assert long.s.recv(65536), "cut off"
        r = late.answer()
        assert (r.status, r.body) == (200, b"time\n"), r
        long.close()
        logs(m, "closed")


def t_a_module_without_the_daemon():
    """Any web server that speaks FastCGI may use one: here, a daemon that knows it as such."""
    program = os.path.join(ktap.BUILD, "toboggan-gateway")
    path = os.path.join(d.folder, "m.sock")
    words = [program, "--listen", path, "--workers", "1", os.path.join(d.folder, "hello.so"), "60"]
    user = ("--user", "root") if not os.geteuid() else ()
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as p:
        client.until(lambda: os.path.exists(path), "no socket")
        with conf.Conf(ALONE % path, *user) as own, origin.Client(own.address) as c:
            for name in ("Ada", "Eve"):
                assert c.request("GET", "/hello?name=" + name).body == f"hello, {name}\n".encode()
        if not os.geteuid():
            os.chmod(path, 0o666)
            with conf.Conf(ALONE % path, "--user", "daemon") as other:
                assert ask(other.address, "GET", "/hello").status == 502, "it serves its own user"
        again = subprocess.run(words, capture_output=True, text=True, check=False)
        assert again.returncode == 1 and "in use" in again.stderr, again
        p.send_signal(signal.SIGTERM)
        assert p.wait(client.WAIT_S) == 0, p.stderr.read()
        assert not os.path.exists(path)
    for more, code in (["--help"], 0), ([], 2), (["--listen", path],
                                                 2), (["--listen", path, "/none.so"], 2), \
            (["--listen", "/none/sock", words[-2]], 1), \
            *((["--listen", "/none/sock", "--workers", nr, words[-2]], 2)
              for nr in ("0", "2x", "-1", "65")):
        done = subprocess.run([program, *more], stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
        assert done.returncode == code, (more, done)
    done = subprocess.run([program, "--listen", path, words[-2], "x" * 2048], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and "2048 bytes" in done.stderr and done.stderr.count("\n") == 1, \
           done


def t_a_module_without_the_daemon_has_the_default_limits():
    daemon.not_sanitized("a limit of memory")
    path = os.path.join(d.folder, "bad.sock")
    words = [os.path.join(ktap.BUILD, "toboggan-gateway"), "--listen", path,
             os.path.join(d.folder, "bad.so")]
    user = ("--user", "root") if not os.geteuid() else ()
    with subprocess.Popen(words) as p:
        try:
            client.until(lambda: os.path.exists(path), "no socket")
            with conf.Conf(ALONE % path, *user) as own:
                r = ask(own.address, "GET", f"/hello?leak={600 << 20}")
                assert r.status == 500 and r.body == b"no memory\n", r
        finally:
            p.terminate()


def t_a_crash_costs_its_request():
    before = well("pid")
    for how in ("crash", "crash=abort"):
        assert bad(how).status == 502, how
    client.until(lambda: bad("pid").status == 200, "no new worker")
    assert well("pid") != before
    logs(d, "crashed")
    assert ask(d.address, "GET", "/hello?name=Ada").body == b"hello, Ada\n"


def t_those_that_a_crash_ends_too_begin_once_more():
    """Those that are idempotent: nobody can tell them from the one that crashed, but a POST."""
    nr = 8
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(origin.Client(d.address)) for _ in range(nr)]
        for method, c in zip(["GET"] * (nr - 1) + ["POST"], crowd):
            c.send(f"{method} /bad?later=2000 HTTP/1.1\r\nHost: t\r\n"
                   f"{'Content-Length: 0' if method == 'POST' else 'A: b'}\r\n\r\n".encode())
        pid = well("pid")
        time.sleep(0.7)     # all of them wait in the one worker, and its crash ends them
        assert ask(d.address, "POST", "/bad?crash", "Content-Length: 0").status == 502
        assert [c.answer().status for c in crowd] == [200] * (nr - 1) + [502]
    assert well("pid") != pid


def t_a_crash_in_the_middle_cuts_off():
    with origin.Client(d.address) as c:
        c.send(b"GET /bad?crash=late HTTP/1.1\r\nHost: t\r\n\r\n")
        try:
            r = c.answer()
        except (EOFError, ConnectionResetError):
            r = None
    assert r is None, r
    client.until(lambda: bad("pid").status == 200, "no new worker")


def t_a_loop_is_a_504():
    for how in ("loop", "sleep=60000"):
        assert bad(how).status == 504, how
        client.until(lambda: bad("pid").status == 200, "no new worker")
    logs(d, "longer than module-time")
    assert well("sleep=100") == "slept", "within its time"


def t_the_pages_of_what_happens_to_it():
    """A crash and a loop are answered as it ends, in its place; what it answers is its own."""
    with Modules('error-page = {"404 502 504 /e.html"}') as m:
        m.write("e.html", b"<p>page")
        for how, status in (("crash", 502), ("loop", 504), ("exit", 502)):
            r = bad(how, m)
            assert (r.status, r.body, r.field("Content-Type")) == (status, b"<p>page",
                                                                   "text/html"), r
            client.until(lambda: bad("pid", m).status == 200, "no new worker")
        r = bad("unpark", m)
        assert (r.status, r.body) == (404, b"\n"), r
        r = ask(m.address, "GET", "/unfit")
        assert (r.status, r.body) == (502, b"502 Bad Gateway\n"), "another location's"


def t_an_exit_is_a_502():
    assert bad("exit").status == 502
    logs(d, "exit() in a callback")
    client.until(lambda: bad("pid").status == 200, "no new worker")


def t_what_it_wrote_before_is_in_the_log():
    """Once: the request is answered, and not sent to another worker."""
    with origin.Client(d.address) as c:
        for how, status in (("crash", 502), ("exit", 502), ("loop", 504)):
            client.until(lambda: c.request("GET", "/bad?pid").status == 200, "no new worker")
            r = c.request("GET", "/bad?said=" + how)
            assert r.status == status, (how, r)
            client.until(lambda: c.request("GET", "/bad?pid").status == 200, "no new worker")
            line = "said before " + how
            assert len([x for x in d.lines if line in x]) == 1, d.lines


def t_a_post_that_its_worker_vanishes_in_is_not_sent_again():
    """Its effects are unknown: a GET may be sent to another worker (RFC 9110 9.2.2)."""
    with origin.Client(d.address) as c:
        for how in ("kill", "exit"):
            for method, nr in (("POST", 1), ("PATCH", 1), ("GET", 2)):
                for body in (None, b"sent") if method == "POST" else (None,):
                    client.until(lambda: c.request("GET", "/bad?pid").status == 200,
                                 "no new worker")
                    before = len(d.lines)
                    r = c.request(method, f"/bad?vanish={how}", body=body)
                    assert r.status == 502, (method, how, r)
                    client.until(lambda: c.request("GET", "/bad?pid").status == 200,
                                 "no new worker")
                    ask(d.address, "GET", f"/bad?says={method}{before}")
                    logs(d, f"says {method}{before}")       # all before it has been read
                    said = [x for x in d.lines[before:] if "vanishes by " + how in x]
                    assert len(said) == nr, (method, how, body, d.lines[before:])


def t_a_worker_that_stops_is_ended():
    with origin.Client(d.address) as c:
        assert c.request("POST", "/bad?vanish=stop", body=b"sent").status == 502
        client.until(lambda: c.request("GET", "/bad?pid").status == 200, "no new worker")


def t_an_answer_that_is_complete_is_sent():
    """Whatever its end() does."""
    with origin.Client(d.address) as c:
        for how in ("crash", "exit", "loop"):
            client.until(lambda: c.request("GET", "/bad?pid").status == 200, "no new worker")
            r = c.request("GET", "/bad?last=" + how)
            assert (r.status, r.body) == (200, b"complete\n"), (how, r)


def t_a_child_answers_nothing():
    """However it ends: the request is its parent's."""
    daemon.not_sanitized("how long a fork takes", "asan")
    with origin.Client(d.address) as c:
        for how in ("crash", "exit"):
            client.until(lambda: c.request("GET", "/bad?pid").status == 200, "no new worker")
            r = c.request("GET", "/bad?fork=" + how)
            assert r.status == 200 and int(r.body), (how, r)
            assert c.request("GET", "/bad?pid").status == 200


def t_an_exit_is_no_sign_that_it_cannot_serve():
    """Whatever the status: the next worker comes soon."""
    began = time.monotonic()
    assert bad("said=exit").status == 502       # 78, EX_CONFIG
    client.until(lambda: bad("pid").status == 200, "no new worker")
    assert time.monotonic() - began < 3


def t_a_leak_is_bounded():
    daemon.not_sanitized("a limit of memory")
    pids = set()
    for _ in range(150):
        assert well("leak=4000000") == "leaked"     # 600 MB altogether, of 256
        pids.add(well("pid"))
    assert len(pids) > 1, "never another worker"
    for _ in range(40):
        assert well("leak=20000000") == "leaked"    # a quarter of it is three of these
    assert bad("leak=900000000").status == 500, "more than there is at all"


def t_a_leak_of_descriptors_is_bounded():
    pids = set()
    for _ in range(200):
        assert well("files=80") == "leaked"         # at the 80th there would be none
        pids.add(well("pid"))
    assert len(pids) > 2, pids
    for _ in range(3):          # all of them: there is none for another connection
        assert bad("files=1").status == 500
        with concurrent.futures.ThreadPoolExecutor(4) as many:
            assert {r.status for r in many.map(bad, ["sleep=100"] * 4)} == {200}


def t_a_worker_that_retires_loses_nothing():
    with Modules('module-requests = "20"') as m:
        wrong, pids = [], set()

        def one():
            with origin.Client(m.address) as c:
                for _ in range(100):
                    r = c.request("POST", "/bad?pid")      # not idempotent
                    pids.add(r.body)
                    if r.status != 200:
                        wrong.append(r)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        assert len(pids) > 5, pids


def t_postponed_and_continued():
    assert well("later=50") == "time"
    assert well("pipe") == "ready"
    with origin.Client(d.address) as c:
        c.send(b"GET /bad?park HTTP/1.1\r\nHost: t\r\n\r\n")
        client.until(lambda: bad("unpark").status == 200, "not parked")
        assert c.answer().body == b"called\n"


def t_those_that_resume_each_other_without_end_hold_up_nobody():
    pid = well("pid")
    for nr in (1, 2):
        with contextlib.ExitStack() as stack:
            for _ in range(nr):
                c = stack.enter_context(origin.Client(d.address))
                c.send(b"POST /bad?turn HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
            before = ran_s(pid)
            client.until(lambda before=before: ran_s(pid) > before + 0.05, "no turn")
            assert well("later=50") == "time"
        client.until(lambda: rests(pid), "they go on without their clients")
        assert well("pid") == pid


def t_nobody_goes_on_behind_its_answer():
    """Of many that are resumed at once, some have their turn later, when their time is over too."""
    pid, nr = well("pid"), 150
    with contextlib.ExitStack() as stack:
        began, crowd = time.monotonic(), []
        for _ in range(nr):
            crowd.append(stack.enter_context(origin.Client(d.address)))
            crowd[-1].send(
                b"POST /bad?crowded=1000 HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
        time.sleep(max(0, began + 0.9 - time.monotonic()))  # just before their time
        client.until(lambda: bad(f"wake={nr}").status == 200, "some have not come")
        for c in crowd:
            assert c.answer().body == b"woken\n"
    assert well("pid") == pid, "one went on"


def t_a_client_that_leaves_lets_another_go_on():
    """Its end() resumes a request, and nothing else happens in the worker."""
    with origin.Client(d.address) as c:
        with origin.Client(d.address) as holder:
            holder.send(b"POST /bad?lock HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
            client.until(lambda: bad("locked").status == 200, "not locked")
            c.send(b"POST /bad?lock HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
            client.until(lambda: bad("locked=2").status == 200, "not queued")
        assert c.answer().body == b"called\n"


def t_others_are_served_meanwhile():
    parked = [origin.Client(d.address) for _ in range(200)]
    for c in parked:
        c.send(b"GET /bad?later=30000 HTTP/1.1\r\nHost: t\r\n\r\n")
    pid = well("pid")
    for _ in range(20):
        assert well("pid") == pid
    for c in parked:            # clients that leave end what waits for them
        c.close()
    assert well("later=1") == "time"


def t_fetches_from_the_same_server():
    d.write("object.txt", b"an object")
    assert well("fetch=/object.txt") == "an object"
    assert bad("fetch=/none.txt").status == 404
    a = well("fetch=/bad?fresh%3D60%26x")
    assert well("fetch=/bad?fresh%3D60%26x") == a, "from the cache"
    assert bad("cached=/bad?fresh%3D60%26never-asked").status == 504, "only what is cached"
    assert well("cached=/bad?fresh%3D60%26x") == a
    loop = "/bad?fetch="
    target = "pid"
    for _ in range(5):
        target = "fetch=" + \
            ("/bad?" + target).replace("%", "%25").replace("&", "%26").replace("=", "%3D")
    r = bad(target)
    assert b"error -40" in r.body, (loop, r, r.body)


def t_a_fetch_sees_no_interim_responses():
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with origin.Origin() as up, \
        Modules(text=TEXT + 'location "/up" { upstream = {"' + up.url + '"} }\n') as m:
        for nr in (1, 2, 32):
            up.on(f"/up{nr}", early * nr + origin.reply(200, b"there"))
            for _ in range(2):
                assert well(f"fetch=/up{nr}", m) == "there", nr


def t_a_fetch_of_its_own_target_ends():
    """It does not wait for the answer that waits for it."""
    r = bad("again")
    assert b"error -40" in r.body, r
    parked = [origin.Client(d.address) for _ in range(4)]
    for i, c in enumerate(parked):      # two for each
        c.send(b"GET /bad?again&%d HTTP/1.1\r\nHost: t\r\n\r\n" % (i // 2))
    for c in parked:
        r = c.answer()
        assert b"error -40" in r.body, r
        c.close()


def t_a_client_cannot_say_that_it_is_a_fetch():
    d.write("object.txt", b"an object")
    for says in ("9", "-9", "00000000000000000000000000000000-9"):
        r = ask(d.address, "GET", "/bad?fetch=/object.txt", "X-Toboggan-Depth: " + says)
        assert r.status == 200 and r.body == b"an object", (says, r, r.body)


def t_a_path_is_answered_by_the_server():
    d.write("moved.txt", b"moved")
    assert bad("move=/moved.txt").body == b"moved"
    assert bad("move=/hello?name%3DAda", method="POST", body=b"sent").body == b"hello, Ada\n"
    r = bad("move=http://other.example/")
    assert r.status == 302 and r.field("Location") == "http://other.example/", r


def t_the_log():
    assert well("says=hear%20hear") == "said"
    logs(d, "says hear hear")


def t_fields_that_must_not_be_sent():
    r = bad("split")
    assert r.body == b"-22 -22 -22 -22 -22 -22\n", r.body
    assert r.field("X-Evil") is None and r.field("X-A") is None


def t_a_module_that_cannot_serve():
    for path, why in (("/unfit", "does not serve"), ("/future", "ABI"), ("/mute", "no request()")):
        assert ask(d.address, "GET", path).status == 502, path
        logs(d, why)


def t_one_that_does_not_open_is_unfit():
    """Its requests are answered as soon as that is known; and one that does not close ends."""
    with Modules(text=OPENS) as m:
        for how in ("crash", "exit", "loop", "constructor"):
            began = time.monotonic()
            assert ask(m.address, "GET", "/" + how).status == 502, how
            assert time.monotonic() - began < 4, how
        for path in ("/bad?pid", "/destructor?pid"):
            pid, other = (int(ask(m.address, "GET", path).body) for _ in range(2))
            assert pid == other
            client.until(lambda path=path, pid=pid: int(ask(m.address, "GET", path).body) != pid,
                         "never another worker")
            client.until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), "it goes on")
        logs(m, "closed")


def t_an_endless_answer_waits_for_its_client():
    """Memory of the worker stays what it is, and the client that leaves ends it."""
    pid = well("pid")
    with origin.Client(d.address) as c:
        c.send(b"GET /bad?endless HTTP/1.1\r\nHost: t\r\n\r\n")
        c.head()
        for _ in range(20):
            assert well("pid") == pid
        assert daemon.own_kb(pid) < 192 << 10, daemon.own_kb(pid)
    assert well("pid") == pid


def t_a_child_of_a_module_ends_with_the_daemon():
    m = Modules().start()
    child = int(well("fork", m))
    worker = int(well("pid", m))
    os.kill(m.pid, signal.SIGKILL)
    m.kill()
    for pid in (worker, child):
        client.until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), f"{pid} goes on")


def t_with_and_without_the_fast_path():
    """The same bytes, except for Date and Cache-Status."""
    answers = []

    def note(m):
        shutil.copy(os.path.join(ktap.BUILD, "modules/hello.so"), m.folder)
        m.reconfigure(text.replace("# ", ""))
        got = []
        with origin.Client(m.address) as c:
            for target in ("/hello", "/hello", "/hello", "/hello?name=Ada", "/hello", "/"):
                r = c.request("GET", target)
                got.append((r.status, r.body, [x for x in r.fields if x[0] not in
                                               ("Date", "Cache-Status", "Age", "ETag",
                                                "Last-Modified")]))
        answers.append(got)

    text = 'root = "{root}"\n# location "/hello" { module = {"{folder}/hello.so", "60"} }\n'
    conf.both(text, note)
    assert answers[0] == answers[-1], answers


def t_the_header_stands_alone():
    """Compiled as its manual page says, strictly, in both languages."""
    source = '#include "toboggan-module.h"\nconst struct tbg_module tbg_module = { ' \
             'TBG_MODULE_ABI };\n'
    folder = os.path.join(ktap.ROOT, "userd/gateway")
    for words in (["cc", "-x", "c", "-std=c99"], ["c++", "-x", "c++", "-std=c++11"]):
        if not shutil.which(words[0]):
            continue
        got = subprocess.run([*words, "-Wall", "-Werror", "-pedantic", "-fsyntax-only", "-I",
                              folder, "-"],
                             input=source, text=True, capture_output=True, check=False)
        assert not got.returncode, got.stderr


if __name__ == "__main__":
    ktap.run(globals(), begin, end)
