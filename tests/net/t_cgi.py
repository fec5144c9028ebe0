#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""CGI: what a program sees and may do, its limits, and that nothing of it stays."""
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import client                       # noqa: E402
import conf                         # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from origin import ask              # noqa: E402

d = None
_names = itertools.count()
OK = "printf 'Content-Type: text/plain\\n\\n'\n"
TEXT = """
root = "{root}"
location "/cgi-bin/" { cgi = "{folder}/programs" %s }
"""


class Programs(conf.Conf):
    """A daemon with a folder of programs, and a folder that they may write to."""

    def __init__(self, settings="", text=TEXT, *options):
        super().__init__(text % settings, "--workers", "1", *options)
        self.programs = os.path.join(self.folder, "programs")
        self.notes = os.path.join(self.folder, "notes")
        os.mkdir(self.programs)
        os.mkdir(self.notes)
        os.chmod(self.programs, 0o755)
        os.chmod(self.notes, 0o777)

    def program(self, script, name=None, mode=0o755):
        """A shell script; its path below the location."""
        name = name or f"p{next(_names)}"
        path = os.path.join(self.programs, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + script.replace("NOTES", self.notes))
        os.chmod(path, mode)
        return "/cgi-bin/" + name

    def note(self, name):
        """What a program has written there, once it has."""
        path = os.path.join(self.notes, name)
        until(lambda: os.path.exists(path) and os.path.getsize(path), f"no {name}")
        with open(path, encoding="utf-8") as f:
            return f.read()


def until(true, why):
    deadline = time.monotonic() + client.WAIT_S
    while not true():
        assert time.monotonic() < deadline, why
        time.sleep(0.005)


def runs(pid):
    """Not a zombie either."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def dead(*pids):
    for pid in pids:
        until(lambda pid=pid: not runs(pid), f"{pid} goes on")


def says(of, text):
    until(lambda: any(text in x for x in of.lines), f"never said {text}: {of.lines[-5:]}")


def begin():
    global d
    client.let_others_in()
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
        "REMOTE_ADDR": "127.0.0.1", "HTTP_COOKIE": "c=1", "HTTP_HOST": "Some.Host:81",
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
            name in ("GATEWAY_INTERFACE", "QUERY_STRING", "DOCUMENT_ROOT", "PWD", "OLDPWD", "_"), name


def t_where_it_stands_and_what_it_has_open():
    p = d.program(OK + "exec ls /proc/self/fd")
    assert ask(d.address, "GET", p).body.split() == [b"0", b"1", b"2", b"3"], "the last is its own"
    p = d.program(OK + "pwd; grep -E '^Sig(Ign|Blk)|^NoNewPrivs|^Cap(Prm|Eff)' /proc/self/status",
                  name=f"sub/p{next(_names)}")
    lines = ask(d.address, "GET", p).body.decode().split("\n")
    assert lines[0] == d.programs + "/sub", lines
    for name, value in (("SigBlk", 0), ("SigIgn", 0), ("NoNewPrivs", 1), ("CapPrm", 0), ("CapEff", 0)):
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
    p = d.program("printf 'Status: 418 Short And Stout\\nX-A: 1\\nX-A: 2\\nContent-Length: 2\\n\\nok'")
    r = ask(d.address, "GET", p)
    assert r.status == 418 and r.field("X-A") == "1, 2" and r.body == b"ok", r
    p = d.program("printf 'Location: http://other.example/\\n\\n'")
    r = ask(d.address, "GET", p)
    assert r.status == 302 and r.field("Location") == "http://other.example/", r


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
    says(d, "oh no")


def t_garbage_is_a_502():
    for script in ("echo no head; echo", "exit 0", "exit 3", "printf 'Content-Type: a/b\\n'",
                   "printf '\\n\\nbody'", "printf 'A: \\001\\n\\n'", "head -c 100000 /dev/zero",
                   "yes 'X: y' | head -n 10000; echo", "printf 'Status: 99\\n\\n'",
                   "printf 'HTTP/1.1 200 OK\\n\\n'", "kill -SEGV $$"):
        with origin.Client(d.address) as c:
            r = c.request("GET", d.program(script))
            assert r.status == 502, (script, r)
            assert c.request("GET", d.program(OK + "echo x")).body == b"x\n"


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
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/c; " + OK + "echo all; exec >&- 2>&-; sleep 1000"))
        assert r.status == 200 and r.body == b"all\n", r
        dead(int(p.note("c")))


def t_a_program_that_computes():
    with Programs('cgi-cpu = "1s"') as p:
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/a; while :; do :; done"))
        assert r.status == 504, r
        dead(int(p.note("a")))


def t_a_program_that_floods():
    with Programs('cgi-output = "1M"') as p:
        cut(OK + "echo $$ > NOTES/a; exec cat /dev/zero", p)
        dead(int(p.note("a")))
        r = ask(p.address, "GET", p.program("echo $$ > NOTES/b; exec cat /dev/zero >&2"))
        assert r.status == 502, r
        dead(int(p.note("b")))


def t_memory_is_limited():
    with Programs('cgi-memory = "64M"') as p:
        r = ask(p.address, "GET", p.program(OK + "ulimit -v; head -c 200000000 /dev/zero | tail -n 1 | wc -c"))
        assert r.body.split(b"\n")[0] == b"65536", r.body
        assert r.body.split(b"\n")[1] != b"200000000", r.body


def t_what_it_starts_ends_with_it():
    """In sessions of their own, orphaned, deaf to signals."""
    fork = "(trap '' TERM HUP INT; setsid sh -c 'echo $$ > NOTES/%s; exec sleep 1000' >/dev/null 2>&1 &)\n"
    p = d.program(fork % "left" + "until [ -s NOTES/left ]; do :; done\n" + OK + "echo done")
    assert ask(d.address, "GET", p).body == b"done\n"
    dead(int(d.note("left")))
    p = d.program(fork % "gone" + "echo $$ > NOTES/own\n" + "exec sleep 1000")
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        pids = int(d.note("gone")), int(d.note("own"))
        assert all(runs(x) for x in pids)
    dead(*pids)                 # the client has left


def t_a_client_that_has_ended_its_stream_gets_its_answer():
    p = d.program(OK + "echo still here")
    with origin.Client(d.address) as c:
        c.send(f"GET {p} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        c.s.shutdown(socket.SHUT_WR)
        assert c.answer().body == b"still here\n"


def t_no_more_at_once_than_allowed():
    with Programs('cgi-at-once = "2" cgi-time = "60s"') as p:
        wait = p.program("echo $$ > NOTES/$QUERY_STRING; until [ -e NOTES/go ]; do sleep 0.01; done\n" + OK + "echo ok")
        cs = [origin.Client(p.address) for _ in range(6)]
        for i, c in enumerate(cs):
            c.send(f"GET {wait}?n{i} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        until(lambda: len(os.listdir(p.notes)) >= 2, "two do not run")
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
    libs = subprocess.run(["ldd", "/bin/sh", "/usr/bin/id"], capture_output=True, text=True, check=True).stdout
    files = {w for line in libs.split("\n") for w in line.split() if w.startswith("/") and ":" not in w}
    for path in files | {"/bin/sh", "/usr/bin/id"}:
        to = jail + path
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(path, to)
    for folder, _, _ in os.walk(jail):
        os.chmod(folder, 0o755)
    with p:
        name = p.program(OK + "id -u; pwd; echo $SCRIPT_FILENAME; echo /*; [ -e /etc/passwd ] || echo jailed")
        lines = ask(p.address, "GET", name).body.decode().split("\n")
        assert lines[0] == "65534" and lines[1] == "/programs", lines
        assert lines[2] == "/programs/" + name.split("/")[-1] and "jailed" in lines, lines
        # a daemon that has dropped root cannot have others become somebody else
        p.reconfigure(TEXT.replace("{folder}/programs", "{folder}/jail/programs") % 'cgi-user = "daemon"')
        assert ask(p.address, "GET", name).status == 502
        says(p, "not among those of the start")


def t_answers_are_cached_as_they_say():
    p = d.program("printf 'Cache-Control: max-age=60\\n\\n'; echo $$")
    first, again = ask(d.address, "GET", p), ask(d.address, "GET", p)
    assert first.body == again.body and again.hit, again
    p = d.program(OK + "echo $$")
    assert ask(d.address, "GET", p).body != ask(d.address, "GET", p).body


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
        slow = p.program("echo $$ > NOTES/slow; until [ -e NOTES/go ]; do sleep 0.01; done\n" + OK + "echo slow")
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
        until(lambda: ask(p.address, "GET", name).body == b"up\n", "not again")


if __name__ == "__main__":
    ktap.run(globals(), begin, end)
