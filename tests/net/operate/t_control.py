#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The control socket and the command-line tool, against a running daemon."""
import contextlib
import fcntl
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
from client import WAIT_S, until

TOOL = os.path.join(ktap.BUILD, "toboggan")
FORBID = os.path.join(ktap.BUILD, "tests/net/forbid")
d = None            # the daemon, without wire


def begin():
    global d
    d = daemon.Daemon("--tiers", "user")
    d.start()


def end():
    if d:
        d.stop()


def tool(*args, control=None, prefix=()):
    """(exit status, stdout, stderr)"""
    done = subprocess.run([*prefix, TOOL, "--control", control or d.control, *args],
                          capture_output=True, text=True, errors="replace",
                          timeout=WAIT_S)
    return done.returncode, done.stdout, done.stderr


def ask(*args, of=None):
    """The tool's JSON answer, which must be a good one."""
    code, out, err = tool("--json", *args, control=of.control if of else None)
    assert code == 0, (args, code, out, err)
    assert out.count("\n") == 1, out
    answer = json.loads(out)
    assert answer["ok"] is True, answer
    return answer


def get(path, of=None, headers={}):
    """(status, body, Cache-Status)"""
    c = http.client.HTTPConnection(*(of or d).address, timeout=WAIT_S)
    c.request("GET", path, headers=headers)
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, body, r.getheader("Cache-Status", "")


def stored(path, of=None):
    """GET until the cache answers: a first one may find it not admitted."""
    until(lambda: "; hit" in get(path, of)[2])


def connect(of=None):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect((of or d).control)    # without a timeout, or a full queue is an error
    s.settimeout(WAIT_S)
    return s


def answers_to(data, of=None):
    """Lines that the daemon answers to data, until it closes."""
    with connect(of) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return s.makefile("rb").read().split(b"\n")[:-1]


def why_names():
    with open(os.path.join(ktap.ROOT, "bpf/abi/why.h"), encoding="utf-8") as f:
        return re.findall(r"^\tX\((\w+),", f.read(), re.M)


# --- the socket

def t_socket_is_for_its_owner_alone():
    st = os.stat(d.control)
    assert stat.S_ISSOCK(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o600, oct(st.st_mode)


def t_garbage_is_answered_with_errors():
    for data in (b"garbage\n", b"\n", b"[]\n", b"{}\n", b'{"cmd":1}\n', b'"cmd"\n',
                 b'{"cmd":"nonsense"}\n', b"\x00\xff\xfe\n", b"[" * 8000 + b"\n",
                 b'{"cmd":"why"}\n', b'{"cmd":"why","url":3}\n',
                 b'{"cmd":"objects","limit":-1}\n', b'{"cmd":"objects","limit":"a"}\n',
                 b'{"cmd":"objects","limit":1e30}\n', b'{"cmd":"objects","limit":1.5}\n',
                 b'{"cmd":"objects","limit":null}\n', b'{"cmd":"objects","limit":[1]}\n',
                 b'{"cmd":"purge"}\n', b'{"cmd":"purge","all":"yes"}\n',
                 b'{"cmd":"status","cmd":"stats"}\n', b"x" * 100000):
        lines = answers_to(data)
        assert len(lines) == 1, (data[:40], lines)
        answer = json.loads(lines[0])
        assert answer["ok"] is False and answer["error"], (data[:40], answer)
    assert ask("status")


def t_client_that_is_still_sending_gets_the_last_answer():
    with connect() as s:
        s.sendall(b"x" * 10000)
        assert s.recv(1, socket.MSG_PEEK)
        s.sendall(b"x" * 1000000)
        assert b"line longer" in s.recv(65536) and not s.recv(1)


def t_lines_are_answered_in_order():
    lines = answers_to(b'{"cmd":"status"}\n{"cmd":"objects"}\nnonsense\n{"cmd":"stats"}\n' * 20)
    assert len(lines) == 80, len(lines)
    for i, key in enumerate(["pid", "objects", "error", "passes"] * 20):
        assert key in json.loads(lines[i]), (i, lines[i][:80])


def t_split_at_every_byte():
    line = b'{"cmd":"why","url":"/x"}\n'
    for at in range(len(line)):
        with connect() as s:
            s.sendall(line[:at])
            s.sendall(line[at:])
            assert json.loads(s.makefile("rb").readline())["ok"] is True


def t_clients_that_stall_hold_up_nobody():
    idle = [connect() for _ in range(100)]
    for s in idle[:50]:
        with contextlib.suppress(BrokenPipeError):  # it made room for another
            s.sendall(b'{"cmd":"sta')
    greedy = []
    for _ in range(10):     # ask for ever, never read
        s = connect()
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while True:
                s.send(b'{"cmd":"stats"}\n{"cmd":"objects"}\n' * 100)
        greedy.append(s)
    for _ in range(40):     # answered, but never end their side
        greedy.append(connect())
        greedy[-1].sendall(b"x" * 10000)
    assert ask("status")
    assert get("/")[0] in (200, 403, 404)
    for s in idle + greedy:
        s.close()
    assert until(lambda: tool("objects")[0] == 0)


def t_dead_socket_is_replaced():
    other = daemon.Daemon("--tiers", "user")
    s = socket.socket(socket.AF_UNIX)
    s.bind(other.control)
    s.close()
    with other:
        assert ask("status", of=other)["pid"] == other.pid


def t_live_socket_is_not_replaced():
    other = daemon.Daemon("--tiers", "user")
    other.control, own = d.control, other.control
    try:
        other.start()
    except RuntimeError as e:
        assert "exit 1" in str(e) and f"--control {d.control}: " in str(e), e
    else:
        other.stop()
        raise AssertionError("two daemons on one control socket")
    finally:
        other.control = own
    assert ask("status")["pid"] == d.pid


def t_file_that_is_no_socket_stays():
    other = daemon.Daemon("--tiers", "user")
    with open(other.control, "w", encoding="utf-8") as f:
        f.write("precious")
    try:
        other.start()
    except RuntimeError as e:
        assert "exit 1" in str(e) and f"--control {other.control}: " in str(e), e
    else:
        other.stop()
        raise AssertionError("it started")


def t_folder_that_another_user_keeps_locked():
    other = daemon.Daemon("--tiers", "user")
    fd = os.open(other.folder, os.O_RDONLY)     # all that a lock asks for
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with other:
            assert any("locked" in x and other.folder in x for x in other.lines), other.lines
            assert ask("status", of=other)["pid"] == other.pid
    finally:
        os.close(fd)


def t_socket_goes_with_the_daemon():
    other = daemon.Daemon("--tiers", "user")
    folder = os.path.join(other.folder, "made")
    other.control = os.path.join(folder, "sock")
    other.start()
    assert ask("status", of=other)
    clean, other.clean = other.clean, lambda: None
    try:
        assert other.stop() == 0
        assert not os.path.exists(other.control)
    finally:
        clean()


# --- the commands

def t_every_command_speaks_json():
    d.write("json.txt", b"json")
    get("/json.txt")
    for args in (["status"], ["stats"], ["objects"], ["objects", "--limit", "1"],
                 ["why", "/json.txt"], ["why", "http://example.net/none?x#y"],
                 ["purge", "/json.txt"], ["purge", "--all"], ["probe"]):
        ask(*args)
        code, out, _ = tool(*args)
        assert code == 0 and out, args


def t_status_shows_what_runs():
    s = ask("status")
    assert s["pid"] == d.pid and s["version"] and s["uptime_s"] > 0
    assert s["root"] == d.root
    assert len(s["listeners"]) == 1
    assert s["tiers"]["user"]["on"] is True
    assert s["tiers"]["wire"]["on"] is False and s["tiers"]["wire"]["why"]
    assert s["interfaces"] == []
    assert 0 < s["memory"]["budget"] <= 256 << 20
    assert s["memory"]["used"] <= s["memory"]["budget"]


def t_stats_count_requests_and_bytes():
    d.write("count.txt", b"c" * 1000)
    before = ask("stats")["tiers"]["user"]
    for _ in range(5):
        assert get("/count.txt")[0] == 200
    assert get("/none")[0] == 404

    def counted():
        user = ask("stats")["tiers"]["user"]
        return user["requests"] == before["requests"] + 6 and user
    user = until(counted)
    assert user["bytes"] - before["bytes"] > 5000
    assert user["status"]["2xx"] - before["status"]["2xx"] == 5
    assert user["status"]["4xx"] - before["status"]["4xx"] == 1


def t_stats_name_every_reason():
    s = ask("stats")
    names = [w["name"] for w in s["passes"] + s["packets"]]
    assert sorted(names) == sorted(why_names()), names
    assert all(w["text"] and w["count"] >= 0 for w in s["passes"])


def t_objects_are_listed_by_hits():
    ask("purge", "--all")
    for name in ("few", "many"):
        d.write(f"{name}.txt", name.encode())
        stored(f"/{name}.txt")
    for _ in range(20):
        get("/many.txt")
    a = ask("objects")
    assert a["total"] == len(a["objects"]) == 2, a
    first, second = a["objects"]
    assert (first["path"], second["path"]) == ("/many.txt", "/few.txt"), a
    assert first["size"] == 4 and first["tiers"] == ["user"], first
    assert first["hits"] > second["hits"], a
    assert first["etag"].startswith('"') and first["class"] >= 512, first
    a = ask("objects", "--limit", "1")
    assert a["total"] == 2 and [o["path"] for o in a["objects"]] == ["/many.txt"]
    code, out, _ = tool("objects", "--limit", "1")
    assert code == 0 and "/many.txt" in out and "1 more" in out, out


def t_paths_cannot_drive_a_terminal():
    d.write("esc\x1b[2J.txt", b"x")
    get("/esc%1B[2J.txt")
    code, out, _ = tool("objects")
    assert code == 0 and "\x1b" not in out, out
    code, out, _ = tool("why", "/esc%1B[2J.txt")
    assert code == 0 and "\x1b" not in out, out
    for args in (["warm", "/no\x1b[31mX\nsecond line"], ["no\x1bcommand"], ["--no\x1b\n"]):
        code, _, err = tool(*args)
        assert code and "\\x1B" in err and "\x1b" not in err and err.count("\n") == 1, err


def t_purge_really_purges():
    d.write("gone.txt", b"gone")
    stored("/gone.txt")
    assert ask("purge", "/gone.txt")["purged"] == 1
    assert "fwd=uri-miss" in get("/gone.txt")[2]
    stored("/gone.txt")
    assert ask("purge", "http://localhost/./%67one.txt?query")["purged"] == 1
    assert ask("purge", "/gone.txt")["purged"] == 0
    assert "fwd=uri-miss" in get("/gone.txt")[2]


def t_purge_all_empties_the_cache():
    for i in range(20):
        d.write(f"all{i}.txt", b"x")
        stored(f"/all{i}.txt")
    assert ask("purge", "--all")["purged"] >= 20
    assert ask("objects")["total"] == 0
    assert ask("status")["objects"] == 0


def t_why_without_wire_shows_why_it_is_off():
    d.write("why.txt", b"why")
    stored("/why.txt")
    a = ask("why", "/why.txt")
    assert (a["tier"], a["why"], a["cached"]) == ("user", "OFF", True), a
    assert a["detail"] == ask("status")["tiers"]["wire"]["why"], a
    assert ask("why", "/none.txt")["cached"] is False


def t_why_names_each_tier_that_was_asked_for_and_is_off():
    caps = "-bpf,-net_admin,-perfmon,-sys_admin"
    without = [] if os.geteuid() else ["setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}"]
    for tiers in (("sock",), ("wire", "sock")):
        with daemon.Daemon("--tiers", ",".join(tiers), prefix=without) as other:
            other.write("why.txt", b"why")
            stored("/why.txt", other)
            off = ask("status", of=other)["tiers"]
            a = ask("why", "/why.txt", of=other)
            assert a["why"] == "OFF", a
            assert a["detail"] == "; sock is off: ".join(off[tier]["why"] for tier in tiers), a
            assert "wire" not in tool("why", "/why.txt", control=other.control)[1].split("OFF")[0]


def t_why_of_what_is_no_url():
    for url in ("none", "", "ftp://x/", "/../etc/passwd", "/%zz", "/" + "a" * 5000):
        code, out, err = tool("why", url)
        assert code == 1 and not out and err.startswith("toboggan: why: "), (url, out, err)


def wire(*options, **more):
    """A daemon with wire, or a skip."""
    if os.geteuid():
        raise ktap.Skip("not root: wire cannot be loaded")
    w = daemon.Daemon(*options, **more)
    w.start()
    tier = ask("status", of=w)["tiers"]["wire"]
    if not tier["on"]:
        w.stop()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    return w


def t_why_with_wire():
    with_wire = wire("--wire", "lo")
    try:
        w = with_wire
        ifaces = {i["name"]: i["how"] for i in ask("status", of=w)["interfaces"]}
        assert ifaces.get("lo") in ("tcx", "clsact"), ifaces
        w.write("small.txt", b"small")
        assert ask("why", "/small.txt", of=w)["why"] == "MISS"
        stored("/small.txt", w)
        a = ask("why", "/small.txt", of=w)
        assert (a["tier"], a["why"]) == ("wire", "HIT_WIRE"), a
        assert "detail=wire" in get("/small.txt", w)[2]
        assert ask("why", "/%73mall.txt", of=w)["why"] == "PATH"
        assert ask("why", "/" + "a" * 250, of=w)["why"] == "PATH"
        assert ask("why", "/none.txt", of=w)["why"] == "MISS"
        assert ask("objects", of=w)["objects"][0]["tiers"] == ["wire", "user"]
        before = ask("stats", of=w)["tiers"]["wire"]
        for _ in range(10):
            get("/small.txt", w)
        after = ask("stats", of=w)["tiers"]["wire"]
        assert after["requests"] == before["requests"] + 10, (before, after)
        assert after["bytes"] > before["bytes"]
        assert ask("purge", "/small.txt", of=w)["purged"] == 1
        assert "fwd=uri-miss" in get("/small.txt", w)[2]
    finally:
        with_wire.stop()


def t_flows_are_counted_from_their_beginning():
    w = wire("--wire", "lo", "--late-sockets", "off")
    open_ones = []
    try:
        for nr in range(1, 4):
            c = socket.create_connection(w.address, timeout=WAIT_S)
            open_ones.append(c)
            c.sendall(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
            assert c.recv(65536)
            assert ask("status", of=w)["flows"] == nr
    finally:
        for c in open_ones:
            c.close()
        w.stop()


def t_hits_of_wire_count_for_their_object():
    w = wire("--wire", "lo")
    try:
        for name in ("a", "b", "c"):
            w.write(name, name.encode())
            stored(f"/{name}", w)
        before = {o["path"]: o["hits"] for o in ask("objects", of=w)["objects"]}
        for _ in range(10):
            assert "detail=wire" in get("/b", w)[2]
        after = {o["path"]: o["hits"] for o in ask("objects", of=w)["objects"]}
        assert {p: after[p] - before[p] for p in after} == {"/a": 0, "/b": 10, "/c": 0}, after
    finally:
        w.stop()


def t_why_of_what_the_daemon_may_not_read():
    w = wire("--wire", "lo")
    try:
        w.write("secret.txt", b"secret")
        os.chmod(os.path.join(w.root, "secret.txt"), 0)
        assert get("/secret.txt", w)[0] == 403
        a = ask("why", "/secret.txt", of=w)
        assert a["why"] == "MISS" and "403" in json.dumps(a), a
    finally:
        w.stop()


def t_why_of_too_large_for_a_reply():
    if os.geteuid():
        raise ktap.Skip("not root: no interface can be made")
    name, address = "tbgctl0", "192.0.2.77"
    made = subprocess.run(["ip", "link", "add", name, "mtu", "1500", "type", "veth",
                           "peer", "name", "tbgctl1"],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        raise ktap.Skip(f"no veth interface: {made.stderr}")
    try:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        subprocess.run(["ip", "link", "set", "tbgctl1", "up"], check=True)
        w = wire("--wire", name, listen=f"{address}:0")
        try:
            w.write("large.txt", b"l" * 20000)
            w.write("small.txt", b"s" * 500)
            stored("/large.txt", w)
            stored("/small.txt", w)
            a = ask("why", "/large.txt", of=w)
            assert (a["tier"], a["why"]) == ("user", "SIZE"), a
            assert a["interfaces"][0]["fits_ipv4"] is False, a
            a = ask("why", "/small.txt", of=w)
            assert (a["tier"], a["why"]) == ("wire", "HIT_WIRE"), a
            assert a["interfaces"][0]["fits_ipv6"] is True, a
            subprocess.run(["ip", "link", "set", name, "mtu", "1279"], check=True)
            a = ask("why", "/small.txt", of=w)["interfaces"][0]
            assert (a["fits_ipv4"], a["fits_ipv6"]) == (True, False), a
        finally:
            w.stop()
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False)


def t_interface_is_shown_by_its_present_name():
    if os.geteuid():
        raise ktap.Skip("not root: no interface can be made")
    old, new = "tbgctl2", "tbgctl3"
    made = subprocess.run(["ip", "link", "add", old, "type", "veth", "peer", "name", "tbgctl4"],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        raise ktap.Skip(f"no veth interface: {made.stderr}")
    try:
        w = wire("--wire", f"{old},lo")
        try:
            before = ask("status", of=w)["interfaces"]
            assert [i["name"] for i in before] == [old, "lo"], before
            subprocess.run(["ip", "link", "set", old, "name", new], check=True)
            # that the name which was asked for has gone is told as well, once it is noticed
            after = [i for i in ask("status", of=w)["interfaces"] if i["how"] != "off"]
            assert [i["name"] for i in after] == [new, "lo"], after
            assert [i["ifindex"] for i in after] == [i["ifindex"] for i in before], after
        finally:
            w.stop()
    finally:
        for name in (old, new):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


# --- the tool

def t_no_daemon_is_named():
    for args in (["status"], ["why", "/"], ["purge", "--all"]):
        code, out, err = tool(*args, control="/nowhere/sock")
        assert code == 1 and not out and "no daemon at /nowhere/sock" in err, err
        code, out, err = tool("--json", *args, control="/nowhere/sock")
        assert code == 1 and json.loads(out)["ok"] is False, out


def of_another_version(binary, folder):
    """A copy that says, and takes itself for, version 9.9."""
    with open(binary, "rb") as f:
        data = f.read()
    version = subprocess.run([binary, "--version"], capture_output=True, check=True,
                             timeout=WAIT_S).stdout.split()[1]
    assert len(version) == 3, version
    to = os.path.join(folder, os.path.basename(binary))
    with open(to, "wb") as f:
        f.write(re.sub(rb"(?<=[\0 \"])" + re.escape(version) + rb"(?=[\0\"])", b"9.9", data))
    os.chmod(to, 0o755)
    said = subprocess.run([to, "--version"], capture_output=True, text=True, check=True,
                          timeout=WAIT_S).stdout
    assert said.split()[1] == "9.9", said
    return to, version.decode()


def t_a_tool_beside_a_daemon_of_another_version():
    """Whichever is the older: both versions and what to do, never an answer."""
    with daemon.Daemon("--tiers", "user") as e:
        e.write("a.txt", b"a")
        new_tool, ours = of_another_version(TOOL, e.folder)
        new_daemon, _ = of_another_version(daemon.BINARY, e.folder)
        old = [TOOL, "--control"]
        other = daemon.Daemon("--tiers", "user")
        other.command = lambda of=other.command: [new_daemon if x == daemon.BINARY else x
                                                  for x in of()]
        with other:
            for argv, versions in (([new_tool, "--control", e.control], ("9.9", ours)),
                                   ([*old, other.control], (ours, "9.9"))):
                for words in (("status",), ("stats",), ("objects",), ("purge", "--all"),
                              ("why", "/a.txt"), ("deny", "192.0.2.1"), ("connections",),
                              ("top", "--once"), ("log",), ("warm", e.root)):
                    for more in ((), ("--json",)):
                        done = subprocess.run([*argv, *more, *words], capture_output=True,
                                              text=True, check=False, timeout=WAIT_S)
                        said = done.stdout + done.stderr
                        assert done.returncode == 1, (words, more, done)
                        assert f"toboggan is version {versions[0]}" in said and \
                               f"the daemon is version {versions[1]}" in said and \
                               "restart the daemon" in said, (words, more, done)
            # and each of its own: also what names no version, as scripts do
            for argv in ([new_tool, "--control", other.control], [*old, e.control]):
                subprocess.run([*argv, "status"], capture_output=True, check=True,
                               timeout=WAIT_S)
            answers = [json.loads(x) for x in answers_to(
                b'{"cmd":"deny"}\n{"cmd":"deny","version":7}\n', other)]
            assert answers[0]["ok"] and not answers[0].get("denied"), answers
            assert not answers[1]["ok"] and "9.9" in answers[1]["error"], answers


def t_wrong_usage_exits_2():
    for args in ([], ["nonsense"], ["--nonsense"], ["status", "x"], ["why"], ["purge"],
                 ["purge", "--all", "/x"], ["objects", "--limit", "x"],
                 ["objects", "--limit", "-1"], ["status", "--limit", "1"],
                 ["status", "--all"], ["help", "nonsense"]):
        code, out, err = tool(*args)
        assert code == 2 and err, (args, code, out, err)
        code, out, err = tool("--json", *args)
        assert code == 2 and json.loads(out)["ok"] is False, (args, code, out, err)


def t_without_stdin_stdout_and_stderr():
    """Output that cannot be written is an error, and goes to no other descriptor."""
    for closed, want in (("<&-", 0), (">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)):
        for args in (["status"], ["--json", "status"], ["top", "--once", "--interval", "100ms"],
                     ["--json", "top", "--interval", "100ms"]):
            code, _, err = tool(*args, prefix=("sh", "-c", f'exec "$0" "$@" {closed}'))
            assert code == want, (closed, args, code)
            assert ("stdout: " in err) == (closed == ">&-"), (closed, args, err)


def t_help_of_every_command():
    code, out, _ = tool("--help")
    assert code == 0
    for name in ("status", "stats", "objects", "why", "purge", "probe"):
        assert name in out
        assert tool("help", name)[:2] == tool(name, "--help")[:2]
        assert tool("help", name)[0] == 0


def requirements():
    with open(os.path.join(ktap.ROOT, "kernel/requirements"), encoding="utf-8") as f:
        return [line.split("|")[0] for line in f if line.strip() and line[0] != "#"]


def probe(prefix=()):
    code, out, err = tool("--json", "probe", control="/nowhere/sock", prefix=prefix)
    assert code == 0, err
    a = json.loads(out)
    assert [f["name"] for f in a["features"]] == requirements()
    assert {f["state"] for f in a["features"]} <= {"present", "missing", "unknown"}
    return a, {f["name"]: f["state"] for f in a["features"]}


def t_probe_needs_no_daemon():
    a, _ = probe()
    assert set(a["tiers"]) == {"wire", "sock", "user"}
    code, out, _ = tool("probe", control="/nowhere/sock")
    assert code == 0 and all(name in out for name in requirements())


def t_probe_needs_no_privilege():
    prefix = []
    if not os.geteuid():
        prefix = list(daemon.AS_NOBODY)
        if subprocess.run([*prefix, "test", "-x", TOOL], check=False).returncode:
            raise ktap.Skip("the build folder is closed to other users")
    a, states = probe(prefix)
    assert states["cap_bpf"] == "missing" and a["tiers"]["wire"]["state"] == "off", a
    assert states["openat2"] == "present", a


def t_probe_as_root_does_not_say_run_as_root():
    """Also where root has no capability, as in a container."""
    if os.geteuid():
        raise ktap.Skip("not root")
    drop = "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\n" \
           "[libc.prctl(24, n, 0, 0, 0) for n in range(64)]\nos.execv(sys.argv[1], sys.argv[1:])"
    for prefix in ((), (sys.executable, "-c", drop)):
        a, states = probe(prefix)
        assert not any("run as root" in f["detail"] for f in a["features"]), a
    assert states["map_hash"] == "unknown" and states["cap_bpf"] == "missing", states


def t_probe_tells_forbidden_from_missing():
    """Where a seccomp filter forbids io_uring, nobody can say what the kernel has."""
    a, states = probe((FORBID, "io_uring_setup"))
    rings = [f for f in a["features"] if f["name"].startswith("io_uring")]
    assert len(rings) > 3 and all(f["state"] == "unknown" and "seccomp" in f["detail"]
                                  for f in rings), rings
    assert a["tiers"]["user"]["state"] == "ready", a["tiers"]        # by epoll
    _, outside = probe()
    assert states["openat2"] == outside["openat2"] == "present", outside


def t_probe_looks_for_the_compiler_where_its_sysctl_is_hidden():
    """Only the first network namespace shows it."""
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        raise ktap.Skip("no network namespace can be made here")
    a, states = probe(("unshare", "-n"))
    loads = states["prog_sched_cls"] == "present"
    assert states["bpf_jit"] != "missing" or loads, a
    assert states["bpf_jit"] != "unknown" or not loads, a


def t_warm_is_no_hit():
    d = daemon.Daemon(*daemon.USER)
    with d:
        d.write("w/a.txt", b"text" * 300)
        for _ in range(3):
            assert tool("warm", os.path.join(d.root, "w"), control=d.control)[0] == 0
        code, out, err = tool("--json", "stats", control=d.control)
        cache = json.loads(out)["cache"]
        assert code == 0 and (cache["hits"], cache["misses"]) == (0, 0), (cache, err)
        rows = json.loads(tool("--json", "objects", control=d.control)[1])["objects"]
        assert rows and all(r["hits"] == 0 for r in rows), rows


def t_probe_finds_what_the_daemon_uses():
    """Wire runs here if and only if the probe says that it could."""
    w = wire("--wire", "lo")
    w.stop()
    a, _ = probe()
    assert a["tiers"]["wire"]["state"] == "ready", a["tiers"]


def t_probe_and_daemon_agree_on_sock():
    """Off, with the kernel's version as the reason, where the probe misses its fixes."""
    if os.geteuid():
        raise ktap.Skip("not root: sock cannot be loaded")
    w = daemon.Daemon("--tiers", "sock,user").start()
    tier = ask("status", of=w)["tiers"]["sock"]
    w.stop()
    a, states = probe()
    assert tier["on"] == (a["tiers"]["sock"]["state"] == "ready"), (tier, a["tiers"]["sock"])
    if states["sock_fixes"] == "missing":
        assert re.match(r"kernel \d+\.\d+\.\d+: ", tier["why"]), tier
        assert any(f"sock is off: {tier['why']}" in x for x in w.lines), w.lines
        detail = next(f["detail"] for f in a["features"] if f["name"] == "sock_fixes")
        assert ("--sock unlisted" in detail) == ("--sock unlisted" in tier["why"]), (tier, detail)


def t_probe_leaves_nothing():
    def seen():
        qdiscs = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True,
                                check=False).stdout
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True,
                               check=False).stdout
        return qdiscs, len(links.splitlines())
    before = seen()
    probe()
    assert seen() == before


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
