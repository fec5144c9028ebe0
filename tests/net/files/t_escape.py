#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Nothing leaves the root, and nothing but regular files is read below it."""
import fcntl
import itertools
import os
import socket
import stat
import sys
import termios
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap

SECRET = b"SECRET-the-bytes-outside\n"
user = wire = None
wire_off = ""


def begin():
    global user, wire, wire_off
    user = d = daemon.Daemon("--wire", "off")
    for name in ("secret", "root-evil/secret", "folder/secret"):
        path = os.path.join(d.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(SECRET)
    d.write("index.html", b"front\n")
    d.write("a.txt", b"a text\n")
    d.write("dir/index.html", b"dir\n")
    d.write("dir/a.txt", b"text in dir\n")
    d.start()
    wire, wire_off = client.wire_beside(user)


def end():
    for d in (wire, user):
        if d:
            d.stop()


def daemons():
    return [d for d in (user, wire) if d]


def fetch(target, of=None):
    """Twice from each daemon, the second may be a hit; the last response."""
    if isinstance(target, str):
        target = os.fsencode(target)
    for d in [of] if of else daemons():
        for _ in range(2):
            r, _ = client.once(d.address, b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
            assert SECRET not in r.body and b"root:x:" not in r.body, (target, r)
    return r


def refused(target, *status, of=None):
    r = fetch(target, of)
    assert r.status in (status or (400, 403, 404)), (target, r)


def link(to, name):
    path = os.path.join(user.root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(to, path)


def t_dots_in_every_encoding():
    up = (b"..", b"%2e%2e", b".%2E", b"%2e.", b"%252e%252e", b"%25%32%65%25%32%65", b"..;", b"...",
          b"%c0%ae%c0%ae", b"%e0%80%ae%e0%80%ae", b"%u002e%u002e", b"..%00", b"%00..", b"..%20",
          b". .",
          b"..\\", b"..%5c", b"\xef\xbc\x8e\xef\xbc\x8e", b"%ef%bc%8e%ef%bc%8e", b".\t.")
    slash = (b"/", b"%2f", b"%2F", b"%252f", b"\\", b"%5C", b"//", b"/./", b"/%2e/", b"%c0%af",
             b"%00/")
    nr = 0
    for dots, sep in itertools.product(up, slash):
        for before, depth, target in ((b"/", 1, b"secret"), (b"/dir/", 2, b"secret"),
                                      (b"/", 1, b"root-evil/secret"), (b"/", 8, b"etc/passwd")):
            path = before + (dots + sep) * depth + target
            with client.Client(user.address) as c:
                c.send(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                r = c.response()
            assert r.status in (400, 403, 404), (path, r)
            assert SECRET not in r.body and b"root:x:" not in r.body, (path, r)
            nr += 1
    ktap.note(f"{nr} paths")


def t_dots_with_wire_on():
    if not wire:
        raise ktap.Skip(wire_off)
    client.hot(wire, "/a.txt")
    for path in ("/../secret", "/dir/../../secret", "/%2e%2e/secret", "/..%2fsecret",
                 "/dir/..%5c../secret",
                 "/a.txt/../../secret", "/./../secret", "/..", "/../", "/../root/a.txt",
                 "/%2e%2e%2fa.txt",
                 "/../root-evil/secret", "/..//secret", "/.../secret", "/dir/.. /secret"):
        refused(path, of=wire)
        with client.Client(wire.address) as c:      # behind a hit, on its connection
            assert c.get("/a.txt").tier == "wire"
            c.send(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n")
            r = c.response()
            assert r.status in (400, 403, 404) and SECRET not in r.body, (path, r)


def t_other_forms_of_a_target():
    for target in (b"http://a/../secret", b"http://a/%2e%2e/secret", b"http://../secret",
                   b"http://a:80/dir/../../secret", b"file:///etc/passwd", b"//etc/passwd",
                   b"/?/../../secret", b"/#/../secret", b"\\..\\secret", b"C:/secret",
                   b"/etc/passwd", b"/..;/secret", b"../secret", b".", b"..",
                   b"/\xff/../../secret"):
        r = fetch(target)
        assert r.status in (400, 403, 404) or r.body == b"front\n", (target, r)
    for host in (b"..", b"../../secret", b"a/../secret", b"/etc", b".", b"%2e%2e", b"root-evil"):
        for d in daemons():
            r, _ = client.once(d.address, b"GET /secret HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
            assert r.status in (400, 404), (host, r)


def t_dots_that_stay_inside():
    for path, body in (("/dir/../a.txt", b"a text\n"), ("/dir/x/../../a.txt", b"a text\n"),
                       ("/dir/../dir/./a.txt", b"text in dir\n"),
                       ("/dir/%2e%2e/a.txt", b"a text\n"),
                       ("/dir/..", b"front\n"), ("/dir/../", b"front\n"), ("/dir/.", b"dir\n")):
        r = fetch(path)
        assert (r.status, r.body) == (200, body), (path, r)


def t_symbolic_links_out():
    for nr, to in enumerate((
            os.path.join(user.folder, "secret"), "../secret", "dir/../../secret", "/etc/passwd",
            "../../../../../../../etc/passwd", "./.././secret", "../root-evil/secret",
            "../root/../secret")):
        link(to, f"out{nr}")
        refused(f"/out{nr}", 403)
    for nr, to in enumerate((user.folder, "..", "../folder", "/", "/etc", "dir/../..")):
        link(to, f"outdir{nr}")
        for path in ("", "/", "/secret", "/etc/passwd", "/folder/secret", "/passwd"):
            refused(f"/outdir{nr}{path}", 403, 404)
    link("out0", "chain")
    refused("/chain", 403)
    link("outdir1/folder", "chaindir")
    refused("/chaindir/secret", 403)
    link("../../secret", "dir/out")
    refused("/dir/out", 403)
    refused("/dir/../dir/out", 403)
    link(f"../{os.path.basename(user.root)}/a.txt", "out-and-in")   # leaves on its way
    refused("/out-and-in", 403)


def t_symbolic_links_inside():
    link("a.txt", "in")
    link("../a.txt", "dir/in")
    link("dir", "indir")
    link("indir/in", "inchain")
    for path, body in (("/in", b"a text\n"), ("/dir/in", b"a text\n"), ("/indir/", b"dir\n"),
                       ("/indir/a.txt", b"text in dir\n"), ("/inchain", b"a text\n")):
        r = fetch(path)
        assert (r.status, r.body) == (200, body), (path, r)
    assert fetch("/indir").fields["Location"] == "/indir/"
    link(os.path.join(user.root, "a.txt"), "absolute")
    assert fetch("/absolute").body == b"a text\n"
    link(user.root + "/../secret", "absolute-out")
    link(os.path.dirname(user.root), "absolute-up")
    refused("/absolute-out", 403)
    refused("/absolute-up/secret", 403)
    refused("/absolute-up/", 403)


def t_links_in_a_circle_and_to_nothing():
    link("loop", "loop")
    link("loop-b", "loop-a")
    link("loop-a", "loop-b")
    link("nothing", "dangling")
    refused("/loop", 403, 404)
    refused("/loop-a", 403, 404)
    refused("/loop/x", 403, 404)
    refused("/dangling", 404)


def t_index_that_is_a_link_out():
    link("../../secret", "front/index.html")
    refused("/front/", 403)


def t_magic_links():
    for nr, to in enumerate(("/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/exe",
                             "/proc/self/fd/0", "../../../../proc/self/root/etc/passwd")):
        link(to, f"magic{nr}")
        refused(f"/magic{nr}", 403)
        refused(f"/magic{nr}/etc/passwd", 403)
    d = daemon.Daemon("--wire", "off")
    d.root = "/proc"
    with d:
        for who in ("self", "1", str(os.getpid()), str(d.pid), "thread-self"):
            for path in ("root/etc/passwd", "cwd/etc/passwd", "exe", "fd/0", "fd/1", "root", "cwd/",
                         "task/1/root/etc/passwd"):
                refused(f"/{who}/{path}", 403, 404, of=d)


def t_pipe_is_neither_waited_for_nor_read():
    path = os.path.join(user.root, "pipe")
    os.mkfifo(path, 0o666)
    os.chmod(path, 0o666)
    refused("/pipe", 403, 404)              # nobody writes to it
    refused("/pipe/", 403, 404)
    fd = os.open(path, os.O_RDWR)
    os.write(fd, SECRET)
    refused("/pipe", 403, 404)
    left = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    os.close(fd)
    assert int.from_bytes(left, sys.byteorder) == len(SECRET), "it was read"
    link("pipe", "to-pipe")
    refused("/to-pipe", 403, 404)


def t_socket_is_refused():
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.path.join(user.root, "socket"))
        os.chmod(os.path.join(user.root, "socket"), 0o777)
        s.listen()
        refused("/socket", 403, 404)
        s.setblocking(False)
        try:
            s.accept()
            raise AssertionError("it connected")
        except BlockingIOError:
            pass


def t_devices_are_refused():
    for name, kind, device in (("null", stat.S_IFCHR, (1, 3)), ("zero", stat.S_IFCHR, (1, 5)),
                               ("tty", stat.S_IFCHR, (5, 0)), ("console", stat.S_IFCHR, (5, 1)),
                               ("loop0", stat.S_IFBLK, (7, 0)), ("none", stat.S_IFBLK, (240, 9))):
        path = os.path.join(user.root, name)
        try:
            os.mknod(path, kind | 0o666, os.makedev(*device))
        except PermissionError:
            raise ktap.Skip("no privilege to make devices") from None
        os.chmod(path, 0o666)
        refused(f"/{name}", 403, 404)


def t_unreadable_is_403():
    if not os.geteuid():        # files of root, and the daemon is somebody else
        user.write("of-root", SECRET, mode=0o600)
        refused("/of-root", 403)
        os.makedirs(os.path.join(user.root, "closed"), mode=0o700)
        user.write("closed/x", SECRET)
        refused("/closed/x", 403)
        refused("/closed/", 403)
    user.write("locked", SECRET, mode=0)
    refused("/locked", 403)
    user.write("hidden/index.html", b"index\n")
    user.write("hidden/x", SECRET)
    os.chmod(os.path.join(user.root, "hidden"), 0)
    for path in ("/hidden/x", "/hidden/", "/hidden/none", "/hidden/../hidden/x"):
        refused(path, 403)
    os.chmod(os.path.join(user.root, "hidden"), 0o711)      # searched, not listed
    assert fetch("/hidden/").body == b"index\n"
    user.write("searched/x", b"x")      # and without an index
    os.chmod(os.path.join(user.root, "searched"), 0o111)
    assert fetch("/searched/x").body == b"x"
    refused("/searched/", 403)
    refused("/searched/none/", 404)
    os.chmod(os.path.join(user.root, "searched"), 0o755)


def t_dot_files_are_files():
    """As with nginx: who does not want them served keeps them elsewhere."""
    for name in (".hidden", ".well-known/acme-challenge/x", ".dir/.file", "..double", "...",
                 ".a/..b/x"):
        user.write(name, name.encode())
        r = fetch("/" + name)
        assert (r.status, r.body) == (200, name.encode()), (name, r)


def t_folder_is_not_a_file():
    user.write("both/index.html/x", b"x")       # a folder of that name
    for path in ("/both/", "/both/index.html/"):
        refused(path, 403, 404)
    refused("/a.txt/", 404)
    refused("/a.txt/index.html", 404)


def t_race_of_a_link_in_and_out():
    """A link that is replaced all the time: inside or refused, never outside."""
    path, end_ = os.path.join(user.root, "race"), threading.Event()

    def swap():
        while not end_.is_set():
            for to in ("a.txt", "../secret", "dir", ".."):
                os.symlink(to, path + "~")
                os.rename(path + "~", path)
    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for d in daemons():
            with client.Client(d.address) as c:
                for i in range(3000):
                    r = c.get(("/race", "/race/a.txt", "/race/secret")[i % 3])
                    assert SECRET not in r.body, r
                    assert r.status in (200, 301, 403, 404, 503), r
                    seen.add(r.status)
    finally:
        end_.set()
        thread.join()
    ktap.note(f"seen {sorted(seen)}")


def t_all_of_it_left_nothing_open():
    for d in daemons():
        assert fetch("/a.txt", d).body == b"a text\n"
        for fd in os.listdir(f"/proc/{d.pid}/fd"):
            try:
                to = os.readlink(f"/proc/{d.pid}/fd/{fd}")
            except FileNotFoundError:
                continue
            assert not to.startswith((d.root + "/", os.path.join(d.folder, "secret"))), to


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
