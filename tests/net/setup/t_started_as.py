#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The daemon's user: its control socket, and the remaining privileges of root."""
import os
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import talk
from limits import running

folder = ""             # of all that the tests make


def begin():
    global folder
    folder = daemon.folder_with_root()


def end():
    subprocess.run(["rm", "-rf", folder], check=True)


def base(**more):
    return daemon.options(folder, **more)


def default_control(**env):
    """The daemon of an ordinary user, without --control: its first line, and the process."""
    words = [f"{k}={v}" for k, v in env.items()]
    d = subprocess.Popen([*([] if os.geteuid() else daemon.AS_NOBODY), "env", "-u",
                          "XDG_RUNTIME_DIR", *words,
                          daemon.BINARY, *base(control=None)], stderr=subprocess.PIPE, text=True)
    return d, next((x for x in d.stderr if x.startswith("ready ") or "--control" in x), "")


def t_default_control_socket_of_an_ordinary_user_is_the_manual_s():
    for name in ("toboggand.8.rst", "toboggan.1.rst"):
        with open(os.path.join(ktap.ROOT, "Documentation", name), encoding="utf-8") as f:
            manual = f.read()
        assert "*$XDG_RUNTIME_DIR/toboggan.sock*" in manual and \
               "*/run/user/UID/toboggan.sock*" in manual, name
    own = os.path.join(folder, "runtime")
    os.mkdir(own)
    os.chown(own, os.geteuid() or daemon.NOBODY, -1)
    d, line = default_control(XDG_RUNTIME_DIR=own)
    try:
        assert line.startswith("ready "), line
        assert stat.S_ISSOCK(os.stat(f"{own}/toboggan.sock").st_mode)
    finally:
        d.terminate()
        assert d.wait(client.WAIT_S) == 0


def t_default_control_socket_is_in_no_folder_of_others():
    """Another user could make the name, or a link, before the daemon."""
    if os.path.isdir(f"/run/user/{os.geteuid() or daemon.NOBODY}"):
        raise ktap.Skip("the user has a folder in /run/user")
    shared = os.path.join(folder, "shared")
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    for env in ({}, {"XDG_RUNTIME_DIR": shared}, {"XDG_RUNTIME_DIR": "/tmp"}):
        d, line = default_control(**env)
        assert "--control: missing" in line, line
        assert d.wait(client.WAIT_S) == 2
    assert not os.listdir(shared)


# NET_ADMIN, BPF: to leave nothing behind; DAC_READ_SEARCH: to reload
KEPT = 1 << 12 | 1 << 39 | 1 << 2


def status_of(task):
    with open(task + "/status", encoding="ascii") as f:
        return dict(x.rstrip("\n").split(":\t", 1) for x in f if ":\t" in x)


def dropped(d, uid=None):
    """As soon as it is ready: every thread, the log's and those of the kernel's pool too."""
    tasks = {t: status_of(f"/proc/{d.pid}/task/{t}") for t in os.listdir(f"/proc/{d.pid}/task")}
    for task, fields in tasks.items():
        ids = fields["Uid"].split() + fields["Gid"].split()
        if uid is None:
            assert "0" not in ids, fields
        else:
            assert set(ids) == {str(uid)}, fields
        assert not fields["Groups"].split(), fields
        assert fields["NoNewPrivs"] == "1", fields
        assert fields["Seccomp"] == "2", fields
        for name in ("CapEff", "CapInh", "CapAmb"):
            assert int(fields[name], 16) == 0, (name, fields)
        # the main thread may take back what it needs to detach; no other can
        assert int(fields["CapPrm"], 16) & ~(KEPT if task == str(d.pid) else 0) == 0, fields
    return [fields["Name"] for fields in tasks.values()]


def t_root_is_dropped_by_every_thread():
    daemon.not_sanitized("rights of a thread that is the sanitizer's", "tsan")
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    log = os.path.join(folder, "access.log")
    for make, uid in ((lambda *x: daemon.Daemon("--wire", "off", *x).start(), None),
                      (client.start_wire, None),
                      (lambda *x: daemon.Daemon("--wire", "off", "--user", "nobody", *x).start(),
                       daemon.NOBODY),
                      (lambda *x: daemon.Daemon("--wire", "off", "--user", "root", *x).start(), 0),
                      (lambda *x: client.start_wire("--user", "root", *x), 0)):
        try:
            d = make("--access-log", log, "--workers", "2")
        except ktap.Skip as why:
            ktap.note(why)
            continue
        try:
            names = dropped(d, uid)
            assert sum(x.startswith("tbg/") for x in names) == 2 and "tbg-log" in names, names
            d.write("a.txt", b"a\n")
            with client.Client(d.address) as c:
                assert c.get("/a.txt").body == b"a\n"
            dropped(d, uid)
            st = os.stat(d.control)
            assert stat.S_ISSOCK(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o600, oct(st.st_mode)
        finally:
            assert d.stop() == 0
            assert not os.path.exists(d.control)
            with open(log, encoding="ascii") as f:
                assert '"GET /a.txt HTTP/1.1" 200 2' in f.read()
            os.unlink(log)


def t_capabilities_of_others_are_dropped_too():
    """Started with capabilities by who is not root."""
    daemon.not_sanitized("rights of a thread that is the sanitizer's", "tsan")
    if os.geteuid():
        raise ktap.Skip("not root: no capabilities to give")
    words = [*daemon.AS_NOBODY,
             "--inh-caps=+net_admin,+bpf,+dac_override,+net_bind_service",
             "--ambient-caps=+net_admin,+bpf,+dac_override,+net_bind_service"]
    d = daemon.Daemon("--wire", "off", prefix=words)
    os.chown(d.folder, daemon.NOBODY, daemon.NOBODY)
    d.options += ["--access-log", os.path.join(d.folder, "log")]
    with d:
        assert "tbg-log" in dropped(d, daemon.NOBODY)


def repairer(d):
    """The process that lets sockets go; None."""
    with open(f"/proc/{d.pid}/task/{d.pid}/children", encoding="ascii") as f:
        children = [f"/proc/{x}" for x in f.read().split()]
    return next((x for x in children if status_of(x)["Name"] == "tbg-repair"), None)


def t_one_process_alone_may_let_sockets_go():
    """
    By TCP_REPAIR, which is the right to administer the network. It resets those of a killed
    daemon, which takes the right to a low port.
    """
    with running(client.start_wire("--late-sockets", "auto", "--give-back", "1")) as d:
        if why := talk.no_late_sockets(d):
            assert not repairer(d), d.lines
            raise ktap.Skip(why)
        at = repairer(d)
        fields = client.until(lambda: (x := status_of(at)) and x["Seccomp"] == "2" and x,
                              "not ready")
        assert "0" not in fields["Uid"].split() + fields["Gid"].split(), fields
        assert fields["NoNewPrivs"] == "1" and not fields["Groups"].split(), fields
        assert int(fields["CapPrm"], 16) == int(fields["CapEff"], 16) == 1 << 12 | 1 << 10
        assert not int(fields["CapInh"], 16) | int(fields["CapAmb"], 16), fields
        assert len(os.listdir(at + "/fd")) == 4, "more than its own socket is open"
    assert not os.path.exists(at)


def t_connections_last_without_the_process_that_lets_sockets_go():
    """Ended or stopped: they keep their sockets, and are answered."""
    for how in (signal.SIGKILL, signal.SIGSTOP):
        with running(client.start_wire("--late-sockets", "auto", "--give-back", "1")) as d:
            if why := talk.no_late_sockets(d):
                raise ktap.Skip(why)
            for name in ("a", "b"):
                d.write(name, name.encode() * 100)
                client.hot(d, "/" + name)
            pid = int(os.path.basename(repairer(d)))
            before = talk.ask(d, "status")["late_sockets"]["given"]
            with client.Client(d.address) as c:
                assert c.get("/none").status == 404
                assert c.get("/a").body == b"a" * 100
                given = talk.ask(d, "status")["late_sockets"]["given"]
                assert given == before + 1, (before, given)
            os.kill(pid, how)
            client.until(lambda pid=pid: status_of(f"/proc/{pid}")["State"][0] in "ZT", "goes on")
            resets = 0
            for _ in range(3):
                with client.Client(d.address) as c:
                    assert c.get("/none").status == 404
                    try:
                        assert [c.get(f"/{x}").body[:1] for x in ("a", "b")] == [b"a", b"b"]
                    except ConnectionResetError:
                        resets += 1
            # that which waited for its answer in vain
            assert resets == (how == signal.SIGSTOP), resets
            assert talk.ask(d, "status")["late_sockets"]["given"] == given
            if how == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
