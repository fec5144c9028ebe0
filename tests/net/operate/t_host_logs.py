#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Access logs of hosts: each line is in the right file, also at a rotation and a reload."""
import json
import os
import pwd
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
from client import until

HOST = 'host "%s" {\n root = "{root}"\n%s}\n'
TEXT = ('access-log = "{folder}/log/main"\n'
        + HOST % ("plain.example", ' default = true\n')
        + HOST % ("one.example", ' alias = {"*.one.example"}\n access-log = "{folder}/log/one"\n'
                                 ' access-log-format = "$host $target $status $tier"\n')
        + HOST % ("two.example", ' access-log = "{folder}/log/shared"\n')
        + HOST % ("three.example", ' access-log = "{folder}/log/shared"\n')
        + HOST % ("quiet.example", ' access-log = "off"\n'))


class Logged(conf.Conf):
    """In a folder of logs that only root may write to, if that is who starts it."""

    def __init__(self, text, *options, **more):
        super().__init__(text, *options, **more)
        self.logs = os.path.join(self.folder, "log")
        os.mkdir(self.logs, 0o755)

    def log(self, name):
        try:
            with open(os.path.join(self.logs, name), encoding="latin-1") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def logged(self, name, nr):
        until(lambda: self.log(name).count("\n") >= nr)
        return self.log(name).splitlines()


def ask(d, host, path, nr=1):
    """The tiers that answered, of a connection of its own."""
    c = conf.Host(d.address, host)
    ret = [c.ask("GET", path).tier for _ in range(nr)]
    c.s.close()
    return ret


def each_host_has_its_log(wire):
    with Logged(TEXT, wire=wire) as d:
        d.write("a.txt", b"a" * 100)
        hits = ask(d, "one.example", "/a.txt", 30)
        assert not wire or "wire" in hits, hits
        for host in ("two.example", "three.example", "quiet.example", "plain.example",
                     "x.one.example"):
            ask(d, host, "/a.txt?" + host, 2)
        with socket.create_connection(d.address) as s:      # the authority of the target wins
            s.sendall(b"GET http://one.example/absolute HTTP/1.1\r\nHost: two.example\r\n\r\n"
                      b"GET /bad\r\n\r\n")
            while s.recv(4096):
                pass
        one = d.logged("one", 33)
        assert sorted(one[:30]) == \
               sorted(f"one.example /a.txt 200 {'user' if x in ('stored', 'miss') else x}"
                                          for x in hits), one
        assert [x.split()[:3] for x in one[30:]] == \
            [["x.one.example", "/a.txt?x.one.example", "200"]] * 2 + \
               [["two.example", "http://one.example/absolute", "404"]]
        shared = d.logged("shared", 4)
        assert [sum(f"/a.txt?{x}.example" in line for line in shared)
                for x in ("two", "three")] == [2, 2], shared
        main = d.logged("main", 3)
        assert [("plain" in x, " 400 " in x) for x in main] == [(True, False)] * 2 + \
               [(False, True)], main
        for name, nr in (("one", 33), ("shared", 4), ("main", 3)):
            assert d.log(name).count("\n") == nr and "quiet" not in d.log(name), d.log(name)


def t_each_host_has_its_log():
    each_host_has_its_log(False)


def t_each_host_has_its_log_with_wire():
    each_host_has_its_log(True)


def t_all_are_opened_again_by_sigusr1():
    with Logged(TEXT) as d:
        for host in ("one.example", "two.example", "plain.example"):
            ask(d, host, "/before")
        for name in ("one", "shared", "main"):
            d.logged(name, 1)
            os.rename(os.path.join(d.logs, name), os.path.join(d.logs, name + ".1"))
        d.process.send_signal(signal.SIGUSR1)
        for host, name in (("one.example", "one"), ("two.example", "shared"),
                           ("plain.example", "main")):
            until(lambda name=name: os.path.exists(os.path.join(d.logs, name)))

            def arrives(host=host, name=name):
                ask(d, host, "/after")
                return "/after" in d.log(name)
            until(arrives)
            assert d.log(name + ".1").count("/before") == 1 and "/before" not in d.log(name)


def sites(d):
    out = subprocess.run([daemon.TOOL, "--control", d.control, "--json", "status"], check=True,
                         capture_output=True, timeout=client.WAIT_S).stdout
    return json.loads(out)["sites"]


def t_a_reload_moves_a_log_and_no_line_is_lost():
    text = 'access-log = "{folder}/log/main"\n' + HOST % ("plain.example",
                                                          "") + HOST % ("one.example", "%s")
    own = ' access-log = "{folder}/log/%s"\n'
    with Logged(text % own % "first") as d:
        big = 48 << 20
        with open(d.write("big", b""), "r+b") as f:
            f.truncate(big)
        before = sites(d)
        with socket.create_connection(d.address) as s:      # under way over all of it
            s.settimeout(client.WAIT_S)
            s.sendall(b"GET /big HTTP/1.1\r\nHost: one.example\r\n\r\n")
            got = len(s.recv(1000))
            nr = 0
            for name in ("first", "second", "second", None, "first"):
                d.reconfigure(text % (own % name if name else ""))
                for _ in range(5):
                    ask(d, "one.example", f"/n{nr}")
                    nr += 1
            while got < big:
                n = len(s.recv(1 << 20))
                assert n
                got += n
        d.logged("first", 11)
        d.logged("second", 10)
        d.logged("main", 5)
        assert d.log("first").count("GET /big ") == 1, d.log("first")
        seen = [d.log(x).count("GET /n") for x in ("first", "second", "main")]
        assert seen == [10, 10, 5], seen
        # a log is nothing that an answer depends on
        assert sites(d) == before


def toboggand(*words):
    return subprocess.run([daemon.BINARY, *words], capture_output=True, text=True, check=False,
                          timeout=client.WAIT_S)


def t_what_a_start_would_refuse_is_logged_with_its_line():
    """By --check, by the start and by a reload alike."""
    d = Logged(TEXT)
    many = "".join(HOST % (f"h{i}.example", f' access-log = "{{folder}}/log/h{i}"\n')
                   for i in range(257))
    try:
        for own, says in ((' access-log = "/nonexistent/log"\n',
                           ":4: access-log /nonexistent/log: No such file"),
                          (' access-log = "syslog:relative"\n',
                           ":4: access-log \"syslog:relative\""),
                          (' access-log-format = "json"\n',
                           ":4: access-log-format \"json\": expected an access-log"),
                          (' access-log = "{folder}/log/x"\n access-log-format = "$no"\n',
                           ":5: access-log-format"),
                          (' access-log = "{folder}/log/main"\n access-log-format = "json"\n',
                           ":4: access-log {folder}/log/main: json, and elsewhere combined; "
                           "expected one format"),
                          ("}\n" + many + "host \"last.example\" {\n root = \"{root}\"\n",
                           "one more than 256")):
            d.save('access-log = "{folder}/log/main"\n' + HOST % ("a.example", own))
            for words in (["--check", d.path, "--listen", "127.0.0.1:0"], d.command()[1:]):
                out = toboggand(*words)
                says = says.replace("{folder}", d.folder)
                assert out.returncode in (1, 2) and says in out.stderr, (words, says, out)
        d.save(TEXT)
        out = toboggand("--check", d.path, "--listen", "127.0.0.1:0")
        assert not out.returncode, out
        with d:
            seen = len(d.lines)
            d.save(TEXT.replace("{folder}/log/one", "/nonexistent/log"))
            assert "reload failed" in d.hup(("reload failed",))
            assert any(":9: access-log /nonexistent/log" in x for x in d.lines[seen:])
            ask(d, "one.example", "/goes-on")
            d.logged("one", 1)
    finally:
        d.clean()


def t_links_of_others_are_not_opened_as_root():
    """The log of a host is opened as safely as the daemon's own."""
    if os.geteuid():
        raise ktap.Skip("not root: nobody has more rights than the daemon")
    d = Logged(TEXT.replace("{folder}/log/one", "{folder}/theirs/one"))
    theirs, secret = os.path.join(d.folder, "theirs"), os.path.join(d.folder, "secret")
    try:
        with open(secret, "w", encoding="ascii") as f:
            f.write("root's\n")
        os.chmod(secret, 0o600)
        os.mkdir(theirs)
        who = pwd.getpwnam("www-data")
        os.chown(theirs, who.pw_uid, who.pw_gid)
        os.symlink(secret, os.path.join(theirs, "one"))
        out = toboggand(*d.command()[1:])
        assert out.returncode == 1 and "access-log" in out.stderr, out
        with open(secret, encoding="ascii") as f:
            assert f.read() == "root's\n"
    finally:
        d.clean()


if __name__ == "__main__":
    ktap.run(globals())
