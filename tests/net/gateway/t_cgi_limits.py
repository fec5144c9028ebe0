#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""CGI programs that fail, hang, flood or fork: their limits, and that they leave nothing."""
import itertools
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from client import logs             # noqa: E402
from origin import ask              # noqa: E402
from programs import OK, TEXT, Programs, redirect  # noqa: E402

d = None
_names = itertools.count()


def runs(pid):
    """Not a zombie either."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def dead(*pids):
    for pid in pids:
        client.until(lambda pid=pid: not runs(pid), f"{pid} goes on")


def begin():
    global d
    d = Programs('cgi-time = "20s"').start()


def end():
    d.stop()


def to(path, before=""):
    """A program that has us answer that path."""
    return d.program(redirect(path, before))


def cut(script, of=None):
    """The answer is cut off visibly; what came of its body."""
    of = of or d
    with origin.Client(of.address) as c:
        got = []
        try:
            c.send(f"GET {of.program(script)} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            r = c.answer(body=got.append)
        except (EOFError, ConnectionResetError):
            return
        if r.status == 502:     # in time to say so
            return
        raise AssertionError(f"{script}: taken for whole: {r}")


def t_an_answer_without_a_body_ends_no_program():
    """The client is answered at once, and what the program still does is done."""
    for nr, (method, head) in enumerate((("GET", "Status: 204"), ("GET", "Status: 304"),
                                         ("HEAD", "A: b"),
                                         ("GET", "Content-Length: 0"),
                                         ("HEAD", "Content-Length: 100"))):
        go = os.path.join(d.notes, f"go{nr}")
        p = d.program(f"printf '{head}\\n\\n'; until [ -e {go} ]; do sleep 0.05; done; echo x > "
                      f"NOTES/late{nr}")
        with origin.Client(d.address) as c:
            r = c.request(method, p)
            assert r.status in (200, 204, 304) and not r.body, (head, r)
            time.sleep(0.5)         # a keeper would have killed it by then
            with open(go, "w", encoding="utf-8"):
                pass
            assert d.note(f"late{nr}") == "x\n", head
            assert c.request("GET", d.program(OK + "echo y")).body == b"y\n"


def t_a_body_of_an_answer_without_one_ends_no_program():
    """No client receives it, and it delays none."""
    for method, head in (("HEAD", "A: b"), ("HEAD", "Content-Length: 8"), ("GET", "Status: 204"),
                         ("GET", "Status: 304")):
        name = f"on{next(_names)}"
        body = "echo body; head -c 3000000 /dev/zero"
        for p in (
            d.program(f"printf '{head}\n\n'; {body}; sleep 0.3; {body}; echo x > NOTES/{name}"),
                  d.program(f"printf '{head}\n\n'; sleep 0.3; {body}; sleep 0.3; {body}; echo x > "
                            f"NOTES/{name}")):
            with origin.Client(d.address) as c:
                r = c.request(method, p)
                assert r.status in (200, 204, 304) and not r.body, (head, r)
                assert d.note(name) == "x\n", head
                assert c.request("GET", d.program(OK + "echo y")).body == b"y\n"
            os.unlink(os.path.join(d.notes, name))


def t_a_body_of_an_answer_without_one_has_limits():
    with Programs('cgi-output = "1M" cgi-time = "3s"') as p:
        for nr, what in enumerate(("cat /dev/zero", "while echo body; do sleep 0.1; done")):
            r = ask(p.address, "HEAD", p.program(OK + f"echo $$ > NOTES/n{nr}; {what}"))
            assert r.status == 200, r
            dead(int(p.note(f"n{nr}")))


def t_an_answer_without_a_body_may_close_its_output():
    for method, head in (("GET", "Status: 204"), ("GET", "Content-Length: 0"), ("HEAD", "A: b")):
        name = f"on{next(_names)}"
        p = d.program(f"printf '{head}\\n\\n'; exec >&- 2>&-; sleep 0.6; echo x > NOTES/{name}")
        assert not ask(d.address, method, p).body
        assert d.note(name) == "x\n", head


def t_a_validated_answer_ends_no_program():
    p = d.program("if [ -z \"$HTTP_IF_NONE_MATCH\" ]; then printf 'Cache-Control: no-cache\\nETag: "
                  "\"v\"\\n\\nwhole'; exit; fi\n"
                  "printf 'Status: 304\\n\\n'; until [ -e NOTES/go304 ]; do sleep 0.05; done; echo "
                  "x > NOTES/late304")
    with origin.Client(d.address) as c:
        assert [c.request("GET", p).body for _ in range(2)] == [b"whole"] * 2
        time.sleep(0.5)             # a keeper would have killed it by then
        with open(os.path.join(d.notes, "go304"), "w", encoding="utf-8"):
            pass
        assert d.note("late304") == "x\n"
        assert c.request("GET", p).body == b"whole"


def t_an_answer_without_a_body_before_the_request_s_is_read():
    """Which nobody sends any more: the program would wait for it in vain."""
    with Programs('body-buffer = "off"') as own:
        p = own.program("echo $$ > NOTES/early; printf 'Status: 204\\n\\n'; cat > /dev/null")
        with socket.create_connection(own.address) as s:
            s.settimeout(10)
            s.sendall(f"POST {p} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".encode())
            assert s.recv(4096).startswith(b"HTTP/1.1 204 ")
            dead(int(own.note("early")))


def t_a_crash_in_the_middle_is_no_whole_answer():
    cut(OK + "head -c 100000 /dev/zero; kill -SEGV $$")
    cut("printf 'Content-Type: a/b\\nContent-Length: 10\\n\\nhalf'")


def t_a_program_that_hangs():
    with Programs('cgi-time = "3s"') as p:
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/a; sleep 1000"))
        assert r.status == 504, r
        dead(int(p.note("a")))
        cut(OK + "echo begun; echo $$ > NOTES/b; sleep 1000", p)
        dead(int(p.note("b")))
        # it closes its output and goes on: the answer is complete, the rest is not waited for
        r = ask(p.address, "GET",
                p.program("echo $$ > NOTES/c; " + OK + "echo all; exec >&- 2>&-; sleep 1000"))
        assert r.status == 200 and r.body == b"all\n", r
        dead(int(p.note("c")))


def t_a_program_that_computes():
    with Programs('cgi-cpu = "1s"') as p:
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/a; while :; do :; done"))
        assert r.status == 504, r
        dead(int(p.note("a")))
        r = ask(p.address, "GET", p.program("trap '' XCPU; while :; do :; done"))
        assert r.status == 504, r


def t_a_program_that_floods():
    with Programs('cgi-output = "1M"') as p:
        cut(OK + "echo $$ > NOTES/a; exec cat /dev/zero", p)
        dead(int(p.note("a")))
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/b; exec cat /dev/zero >&2"))
        assert r.status == 502, r
        dead(int(p.note("b")))


def t_a_flood_of_errors_holds_nobody_up():
    with Programs('cgi-output = "0" cgi-cpu = "0" cgi-time = "3s"') as p:
        flood = p.program(
            "echo $$ > NOTES/a; for i in 1 2 3 4 5 6 7 8; do cat /dev/zero >&2 & done; wait")
        with origin.Client(p.address) as c:
            c.send(f"GET {flood} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            pid = int(p.note("a"))
            assert ask(p.address, "GET", p.program(OK + "echo x")).body == b"x\n"
            assert runs(pid), "the other one was answered meanwhile"
            assert c.answer().status == 504
        dead(pid)


def t_memory_is_limited():
    with Programs('cgi-memory = "64M"') as p:
        r = ask(p.address, "GET",
                p.program(OK + "ulimit -v; head -c 200000000 /dev/zero | tail -n 1 | wc -c"))
        assert r.body.split(b"\n")[0] == b"65536", r.body
        assert r.body.split(b"\n")[1] != b"200000000", r.body


def t_what_it_starts_ends_with_it():
    """In sessions of their own, orphaned, deaf to signals."""
    fork = "(trap '' TERM HUP INT; setsid sh -c 'echo $$ > NOTES/%s; exec sleep 1000' >/dev/null " \
           "2>&1 &)\n"
    p = d.program(fork % "left" + "until [ -s NOTES/left ]; do :; done\n" + OK + "echo done")
    assert ask(d.address, "GET", p).body == b"done\n"
    dead(int(d.note("left")))
    p = d.program(fork % "gone" + "echo $$ > NOTES/own\n" + "exec sleep 1000")
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        pids = int(d.note("gone")), int(d.note("own"))
        assert all(runs(x) for x in pids)
    dead(*pids)                 # the client has left


def t_what_ends_its_keeper_ends_too():
    pid = "echo $$ > NOTES/%s; kill -9 $PPID; exec sleep 1000"
    ask(d.address, "GET", d.program(pid % "orphan"))
    dead(int(d.note("orphan")))


def t_what_stops_its_keeper_ends_too():
    with Programs('cgi-at-once = "1" cgi-time = "1s"') as p:
        stops = p.program("echo $$ > NOTES/stops; kill -STOP $PPID; exec sleep 1000")
        assert ask(p.address, "GET", stops).status == 504
        dead(int(p.note("stops")))
        done = p.program(OK + "echo done")
        client.until(lambda: ask(p.address, "GET", done).body == b"done\n", "its place is taken")


def t_what_stops_the_process_that_runs_all_ends_that():
    with Programs() as p:
        ask(p.address, "GET",
            p.program("kill -STOP $(cut -d ' ' -f 4 /proc/$PPID/stat); exec sleep 1000"))
        done = p.program(OK + "echo done")
        client.until(lambda: ask(p.address, "GET", done).body == b"done\n", "it stays stopped")


def t_a_program_that_forks_without_end():
    """It is held by the number of its user's processes, and all of them go with it."""
    if os.geteuid():
        raise ktap.Skip("not root: programs cannot be another user's")
    with Programs('cgi-user = "games" cgi-processes = "40" cgi-time = "2s"') as p:
        # bash tries again where it cannot fork: a shell that gives up may be gone before we look
        bomb = p.program("exec bash -c 'f() { f & f & wait; }; f'")
        uid = pwd.getpwnam("games").pw_uid

        def its():
            return [x for x in os.listdir("/proc") if x.isdigit() and owner(x) == uid and runs(x)]
        with origin.Client(p.address) as c:
            c.send(f"GET {bomb} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            client.until(lambda: len(its()) > 20, "it never forked")
            # who ends and who begins while we look are counted both
            counts = [len(its()) for _ in range(5)]
            assert min(counts) <= 41, counts
            assert c.answer().status in (502, 504)
        # what is left is the process that runs the programs
        client.until(lambda: len(its()) <= 1, "some are left")
        assert ask(p.address, "GET", p.program(OK + "echo fine")).body == b"fine\n"


def owner(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def t_what_a_client_leaves_half_sent_has_no_end():
    """A program never takes a part of a body for the whole: it is killed first."""
    with Programs('body-buffer = "off"') as own:
        p = own.program("echo $$ > NOTES/reads; while read -r line; do :; done; : > NOTES/whole")
        for _ in range(30):
            with socket.create_connection(own.address) as s:
                s.sendall(
                    f"POST {p} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n".encode() +
                    b"x\n" * 100)
                pid = int(own.note("reads"))
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            dead(pid)
            os.unlink(os.path.join(own.notes, "reads"))
        assert not os.path.exists(os.path.join(own.notes, "whole"))


def t_a_program_begins_once_its_body_is_there():
    """Clients that send theirs a byte at a time hold no place of a program."""
    with Programs('cgi-at-once = "2"') as own:
        p = own.program(": > NOTES/begun; cat > /dev/null; " + OK)
        slow = [socket.create_connection(own.address) for _ in range(8)]
        for s in slow:
            s.sendall(f"POST {p} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx".encode())
        q = own.program(OK + "echo served")
        for _ in range(5):
            assert ask(own.address, "GET", q).body == b"served\n"
        assert not os.path.exists(os.path.join(own.notes, "begun"))
        for s in slow:
            s.sendall(b"x" * 99)
            assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
            s.close()


def t_its_time_is_not_what_the_client_takes_to_read():
    with Programs('cgi-time = "3s"') as own:
        p = own.program(OK + "head -c 12000000 /dev/zero")
        with socket.create_connection(own.address) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall(f"GET {p} HTTP/1.0\r\n\r\n".encode())
            got, begun = 0, time.monotonic()
            while data := s.recv(100000):
                got += len(data)
                if time.monotonic() - begun < 8:
                    time.sleep(0.1)
        assert got > 12000000 and time.monotonic() - begun > 4, got


def t_an_answer_that_is_cut_off_is_in_the_log():
    with Programs('cgi-time = "3s"') as own:
        p = own.program(OK + "echo begun; sleep 100")
        with socket.create_connection(own.address) as s:
            s.sendall(f"GET {p} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            got = b""
            while data := s.recv(4096):
                got += data
        assert b"begun" in got and not got.endswith(b"0\r\n\r\n"), got
        client.until(lambda: any("longer than cgi-time" in x and "cut off" in x for x in own.lines),
                     own.lines)


def t_a_client_that_has_ended_its_stream_gets_its_answer():
    p = d.program(OK + "echo still here")
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.s.shutdown(socket.SHUT_WR)
        assert c.answer().body == b"still here\n"


def t_no_more_at_once_than_allowed():
    with Programs('cgi-at-once = "2" cgi-time = "60s"') as p:
        wait = p.program(
            "echo $$ > NOTES/$QUERY_STRING; until [ -e NOTES/go ]; do sleep 0.01; done\n" + OK +
            "echo ok")
        cs = [origin.Client(p.address) for _ in range(6)]
        for i, c in enumerate(cs):
            c.send(f"GET {wait}?n{i} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        client.until(lambda: len(os.listdir(p.notes)) >= 2, "two do not run")
        quick = p.program(OK)
        refused = origin.Client(p.address)      # waits behind the others
        refused.send(f"GET {quick} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        time.sleep(0.2)
        assert len(os.listdir(p.notes)) == 2, os.listdir(p.notes)
        with open(os.path.join(p.notes, "go"), "w", encoding="utf-8"):
            pass
        for c in cs + [refused]:
            assert c.answer().status == 200
            c.close()


def t_another_user_in_another_root():
    if os.geteuid():
        raise ktap.Skip("not root: no chroot, and no other user")
    p = Programs(text=TEXT.replace("%s", 'cgi-user = "nobody" cgi-chroot = "{folder}/jail" %s')
                 .replace("{folder}/programs", "{folder}/jail/programs"))
    jail = os.path.join(p.folder, "jail")
    p.programs = os.path.join(jail, "programs")
    os.makedirs(p.programs)
    libs = subprocess.run(["ldd", "/bin/sh", "/usr/bin/id"], capture_output=True, text=True,
                          check=True).stdout
    files = {w for line in libs.split("\n") for w in line.split() if w.startswith("/") and
             ":" not in w}
    for path in files | {"/bin/sh", "/usr/bin/id"}:
        to = jail + path
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(path, to)
    for folder, _, _ in os.walk(jail):
        os.chmod(folder, 0o755)
    with p:
        name = p.program(
            OK + "id -u; pwd; echo $SCRIPT_FILENAME; echo /*; [ -e /etc/passwd ] || echo jailed")
        lines = ask(p.address, "GET", name).body.decode().split("\n")
        assert lines[0] == "65534" and lines[1] == "/programs", lines
        assert lines[2] == "/programs/" + name.split("/")[-1] and "jailed" in lines, lines
        # a daemon that has dropped root cannot have others become somebody else
        p.reconfigure(TEXT.replace("{folder}/programs",
                                   "{folder}/jail/programs") % 'cgi-user = "daemon"')
        assert ask(p.address, "GET", name).status == 502
        logs(p, "not among those of the start")


def t_an_answer_of_a_program_that_fails_is_not_stored():
    for status in (1, 255):
        for length, said in (("", "$$"), ("Content-Length: 1\\n", "x"), ("Status: 204\\n", "")):
            p = d.program(
                f"printf 'Cache-Control: max-age=60\\n{length}\\n'; "
                f"printf %s {said}; exit {status}")
            for _ in range(2):
                r = ask(d.address, "GET", p)
                assert r.status in (200, 204) and not r.hit, (status, length, r)


def t_many_at_the_same_time():
    p = d.program(OK + "echo $QUERY_STRING; cat")
    wrong = []

    def one(nr):
        with origin.Client(d.address) as c:
            for i in range(10):
                body = f"{nr}.{i}".encode() * 1000
                r = c.request("POST", f"{p}?{nr}.{i}", body=body)
                if r.body != f"{nr}.{i}\n".encode() + body:
                    wrong.append(r)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:2]


def t_reload_keeps_and_changes():
    with Programs() as p:
        name = p.program(OK + "echo ${CGI:-one}")
        slow = p.program("echo $$ > NOTES/slow; until [ -e NOTES/go ]; do sleep 0.01; done\n" + OK +
                         "echo slow")
        with origin.Client(p.address) as c:
            c.send(f"GET {slow} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            p.note("slow")
            other = os.path.join(p.folder, "other")
            shutil.copytree(p.programs, other)
            with open(os.path.join(other, name.split("/")[-1]), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + OK + "echo two")
            p.reconfigure(TEXT.replace("/programs", "/other") % "")
            assert ask(p.address, "GET", name).body == b"two\n"
            with open(os.path.join(p.notes, "go"), "w", encoding="utf-8"):
                pass
            assert c.answer().body == b"slow\n", "what was under way is finished"


def t_a_killed_daemon_leaves_nothing():
    p = Programs().start()
    try:
        name = p.program("echo $$ > NOTES/a; exec sleep 1000")
        with socket.create_connection(p.address) as s:
            s.sendall(f"GET {name} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            pid = int(p.note("a"))
            os.kill(p.pid, signal.SIGKILL)
            dead(pid)
    finally:
        p.kill()


def t_the_gateway_is_started_again():
    with Programs() as p:
        name = p.program(OK + "echo up")
        assert ask(p.address, "GET", name).body == b"up\n"
        with open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="utf-8") as f:
            gateway = int(f.read().split()[0])
        os.kill(gateway, signal.SIGKILL)
        dead(gateway)
        client.until(lambda: ask(p.address, "GET", name).body == b"up\n", "not again")


if __name__ == "__main__":
    ktap.run(globals(), begin, end)
