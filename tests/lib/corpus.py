# SPDX-License-Identifier: GPL-2.0
"""The cases of tests/http/corpus (see its README), and how nginx answers them.

    for case in corpus.read():      # case.sent, case.want, case.end, case.nginx, …
    with corpus.Nginx(root) as n:
        n.fate(case)                # "200 open", as in a case's line `n`
"""
from __future__ import annotations

import glob
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

import ktap

FOLDER = os.path.join(ktap.ROOT, "tests/http/corpus")
VERSION = os.path.join(FOLDER, "nginx.version")
PROBE = b"GET /probe.txt HTTP/1.1\r\nHost: probe\r\n\r\n"
PROBE_BODY = b"probe\n"
WAIT_S = 10
MODIFIED = 1700000000               # of every file, the same in all tests


def unescape(text: str) -> bytes:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


class Case:
    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, f"{os.path.basename(path)}: {name}"
        self.sent, self.want, self.end = b"", [], None
        self.nginx, self.why = None, None

    def heads(self) -> list:
        """For each answer, whether it is only a head."""
        return [" head" in x for x in self.want]

    def ours(self) -> str:
        """The answers and the end in the form of `n` lines."""
        return " ".join([x.split(" ", 1)[0] for x in self.want] + [self.end])

    def bytes(self, etag: str) -> bytes:
        """The bytes to send, with this entity tag of index.html."""
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(MODIFIED))
        return self.sent.replace(b"ETAG", etag.encode()).replace(b"MODIFIED", date.encode())

    def __repr__(self) -> str:
        return self.name


def read() -> list[Case]:
    cases = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.case"))):
        with open(path, encoding="ascii") as f:
            for line in f:
                kind, rest = line[:2], line.rstrip("\n")[2:]
                case = cases[-1] if cases else None
                if kind == "==":
                    cases.append(Case(path, rest.strip()))
                elif kind == "> ":
                    case.sent += unescape(rest)
                elif kind == "* ":
                    count, what = rest.split()
                    case.sent += what.encode() * int(count)
                elif kind == "< ":
                    case.want.append(rest)
                elif kind == "= ":
                    case.end = rest.strip()
                elif kind == "n ":
                    case.nginx = rest.strip()
                elif kind == "? ":
                    case.why = rest.strip()
                elif line.strip():
                    raise ValueError(f"{path}: {line!r}")
    assert len({x.name for x in cases}) == len(cases) > 300, f"{len(cases)} cases, or names twice"
    for case in cases:
        assert case.want and case.end in ("open", "close"), case.name
    return cases


def fill(root: str) -> None:
    """Make the files of the cases below an empty root, and a secret beside it."""
    def write(name: str, data: bytes, mode: int = 0o644) -> None:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, mode)
        os.utime(path, (MODIFIED, MODIFIED))
    write("index.html", b"<p>index\n")
    write("a.txt", b"a text\n")
    write("probe.txt", PROBE_BODY)
    write("empty", b"")
    write("two words", b"two\n")
    write("k.bin", bytes(range(256)) * 4)
    write("large.bin", random.Random(1).randbytes(300000))
    write("dir/index.html", b"<p>dir\n")
    write("bare/x", b"x")
    write("d\r\nx/y", b"y")
    write("locked", b"locked", 0o000)
    write("../secret", b"secret")
    os.symlink("../secret", os.path.join(root, "out"))
    os.symlink("..", os.path.join(root, "outdir"))
    os.symlink("/etc/passwd", os.path.join(root, "abs"))
    os.symlink("../a.txt", os.path.join(root, "dir/in"))
    os.mkfifo(os.path.join(root, "pipe"))


def pieces(data: bytes, rng: random.Random, most: int = 6) -> list:
    """data cut at random places."""
    cuts = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.randrange(1, most))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]


def installed_nginx() -> Any:
    """"nginx/1.22.1", or None."""
    if not shutil.which("nginx"):
        return None
    out = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    return re.search(r"nginx/[\d.]+", out)[0]


class Nginx:
    """nginx with the configuration of its package, except the port, and the corpus's files."""
    CONF = """daemon off; user nobody nogroup; pid {folder}/pid; error_log {folder}/error;
events {{ }}
http {{
	access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/p;
	fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
	server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""

    def __init__(self) -> None:
        # the folder of a test is private: nginx could not enter it
        self.folder = tempfile.mkdtemp(prefix="tbg-nginx-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.root = os.path.join(self.folder, "root")
        self.process = self.address = None
        os.mkdir(self.root)
        fill(self.root)

    def __enter__(self) -> Nginx:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = s.getsockname()
        path = os.path.join(self.folder, "conf")
        with open(path, "w", encoding="ascii") as f:
            f.write(self.CONF.format(folder=self.folder, root=self.root, port=self.address[1]))
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(["nginx", "-p", self.folder, "-c", path],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection(self.address, timeout=WAIT_S).close()
                return self
            except ConnectionRefusedError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.01)

    def __exit__(self, *why: object) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)
        shutil.rmtree(self.folder)

    def etag(self) -> str:
        s = os.stat(os.path.join(self.root, "index.html"))
        return f'"{int(s.st_mtime):x}-{s.st_size:x}"'

    def fate(self, case: Case) -> str:
        """Statuses, and whether a request behind the case is answered."""
        for _ in range(20):         # a reset takes answers with it: no observation
            got, whole = self.exchange(case.bytes(self.etag()) + PROBE)
            if whole:
                break
        return _summary(got, case.want)

    def exchange(self, data: bytes) -> tuple[bytes, bool]:
        """All bytes of the answer, and whether the connection ended in an orderly way."""
        got, whole = b"", True
        with socket.create_connection(self.address, timeout=WAIT_S) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                whole = False       # refused early
            try:
                while data := s.recv(1 << 16):
                    got += data
            except ConnectionResetError:
                whole = False
        return got, whole


def _summary(got: Any, want: Any) -> str:
    """Responses of one connection, the last one perhaps the probe's."""
    out, want, body = [], list(want), b""
    while got:
        if not got.startswith(b"HTTP/1."):
            out.append("0.9")       # a body without a head
            break
        head, _, got = got.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1].decode()
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        expected = want.pop(0) if want else ""
        bare = " head" in expected and not expected.startswith("304")
        length = 0 if bare or status in ("100", "204", "304") else int(length[1])
        body, got = got[:length], got[length:]
        out.append(status)
    if body == PROBE_BODY:
        return " ".join([*out[:-1], "open"])
    return " ".join([*out, "close"])
