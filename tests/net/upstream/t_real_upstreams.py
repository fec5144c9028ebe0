#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The proxy in front of servers of the distribution: nginx, gunicorn and waitress."""
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from origin import ask  # noqa: E402
from proxied import proxy  # noqa: E402

d = o = None


def begin():
    global d, o
    o = origin.Origin()
    d = proxy(o.url).start()


def end():
    d.stop()
    o.close()


class Nginx:
    """Files and a redirect, on a Unix socket and a port."""

    def __enter__(self):
        if not shutil.which("nginx"):
            raise ktap.Skip("no nginx")
        self.folder = tempfile.mkdtemp(prefix="tbg-nginx-")
        os.chmod(self.folder, 0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        os.mkdir(f"{self.folder}/root")
        with open(f"{self.folder}/conf", "w", encoding="ascii") as f:
            f.write(f"""
daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{ access_log off; client_max_body_size 0; types {{ text/plain txt; }}
  client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/p;
  fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u;
  scgi_temp_path {self.folder}/s;
  server {{ listen 127.0.0.1:{self.port}; listen unix:{self.folder}/sock; root {self.folder}/root;
    location / {{ expires 60s; }} location /old {{ return 301 /new; }} }} }}
""")
        self.process = subprocess.Popen(["nginx", "-p", self.folder, "-c", f"{self.folder}/conf"],
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + client.WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, "no nginx"
                time.sleep(0.02)
        return self

    def __exit__(self, *why):
        self.process.terminate()
        self.process.wait(client.WAIT_S)
        shutil.rmtree(self.folder)


def t_nginx_behind():
    with Nginx() as n:
        data = {"small.txt": b"small\n", "mib.txt": os.urandom(1 << 20), "empty.txt": b""}
        for name, body in data.items():
            with open(f"{n.folder}/root/{name}", "wb") as f:
                f.write(body)
        for url in (f"http://127.0.0.1:{n.port}", f"unix:{n.folder}/sock"):
            with proxy(url, workers=2) as p:
                for name, body in data.items():
                    direct = ask(("127.0.0.1", n.port), "GET", "/" + name)
                    for i in range(3):
                        r = ask(p.address, "GET", "/" + name)
                        assert r.body == body and r.hit == (i > 0), (name, i, r)
                        for field in ("ETag", "Last-Modified", "Content-Type", "Server"):
                            assert r.field(field) == direct.field(field), field
                    r = ask(p.address, "GET", "/" + name, f"If-None-Match: {r.field('ETag')}")
                    assert r.status == 304 and r.hit, r
                r = ask(p.address, "GET", "/mib.txt", "Range: bytes=1000-1999")
                assert r.status == 206 and r.body == data["mib.txt"][1000:2000], r
                assert ask(p.address, "GET", "/old").status == 301
                assert ask(p.address, "GET", "/none").status == 404
                assert ask(p.address, "PUT", "/small.txt", body=b"x" * 100000).status == 405


APP = """
import hashlib

def app(env, start):
    path, size = env["PATH_INFO"], int(env.get("CONTENT_LENGTH") or 0)
    if path == "/stream":
        start("200 OK", [("Content-Type", "text/plain"), ("X-Host", env["HTTP_HOST"])])
        return (b"%d," % i for i in range(20000))
    if path == "/fresh":
        start("200 OK", [("Cache-Control", "max-age=60"), ("Content-Length", "5"), ("ETag", '"e"')])
        return [b"fresh"]
    if path == "/upload":
        total, got = hashlib.sha256(), 0
        while got < size:
            piece = env["wsgi.input"].read(min(size - got, 65536))
            if not piece:
                break
            total.update(piece)
            got += len(piece)
        body = ("%s %d %s" % (env["REQUEST_METHOD"], got, total.hexdigest())).encode()
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]
    if path == "/fails":
        raise ValueError("as it should")
    start("404 Not Found", [("Content-Length", "0")])
    return [b""]
"""


class Application:
    """A WSGI server of the distribution with that application, on a Unix or a TCP socket."""

    def __init__(self, name, unix):
        self.folder = tempfile.mkdtemp(prefix="tbg-app-")
        os.chmod(self.folder, 0o755)
        with open(f"{self.folder}/tbgapp.py", "w", encoding="ascii") as f:
            f.write(APP)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.address = f"{self.folder}/sock" if unix else ("127.0.0.1", port)
        self.url = f"unix:{self.folder}/sock" if unix else f"http://127.0.0.1:{port}"
        if name == "gunicorn":
            words = ["gunicorn", "--worker-class", "gthread", "--threads", "4", "--bind",
                     self.url if unix else f"127.0.0.1:{port}"]
        else:
            words = ["waitress-serve", f"--unix-socket={self.folder}/sock",
                     "--unix-socket-perms=666"] if unix else \
                ["waitress-serve", f"--listen=127.0.0.1:{port}"]
        if not shutil.which(words[0], path="/usr/bin"):
            raise ktap.Skip(f"no {name}")
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(["/usr/bin/" + words[0], *words[1:], "tbgapp:app"],
                                            cwd=self.folder,
                                            stdout=log, stderr=log, start_new_session=True,
                                            env={**os.environ, "PYTHONPATH": self.folder})

    def __enter__(self):
        deadline = time.monotonic() + client.WAIT_S
        while True:
            try:
                with socket.socket(socket.AF_UNIX if isinstance(self.address, str)
                                   else socket.AF_INET) as s:
                    s.connect(self.address)
                if isinstance(self.address, str):
                    os.chmod(self.address, 0o777)
                return self
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, self.log()
                time.sleep(0.05)

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def __exit__(self, *why):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(client.WAIT_S)
        shutil.rmtree(self.folder)


def application(name):
    body, stream = os.urandom(3 << 20), b"".join(b"%d," % i for i in range(20000))
    for unix in (False, True):
        with Application(name, unix) as app, proxy(app.url, workers=2) as p:
            for _ in range(3):
                r = ask(p.address, "GET", "/stream", host="some.host")
                assert r.body == stream and r.field("X-Host") == "some.host", (r, app.log())
                r = ask(p.address, "PUT", "/upload", body=body)
                assert r.body.decode() == f"PUT {len(body)} {hashlib.sha256(body).hexdigest()}", \
                       (r, app.log())
                assert ask(p.address, "GET", "/fails").status == 500
                assert ask(p.address, "HEAD", "/none").status == 404
            assert not ask(p.address, "GET", "/fresh").hit
            assert ask(p.address, "GET", "/fresh").hit
            with origin.Client(p.address) as c:
                for _ in range(20):
                    assert c.request("POST", "/upload", body=b"abc").body.startswith(b"POST 3 "), \
                           app.log()
        # chunked with a length by the time it arrives: WSGI knows no other bodies
        with Application(name, unix) as app, \
            proxy(app.url, options=("--body-buffer", "64K")) as p, \
                origin.Client(p.address) as c:
            c.send(b"POST /upload HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(0, len(body), 50000):
                c.send(b"%x\r\n" % len(body[i:i + 50000]) + body[i:i + 50000] + b"\r\n")
            c.send(b"0\r\n\r\n")
            assert c.answer().body.decode() == \
                   f"POST {len(body)} {hashlib.sha256(body).hexdigest()}", app.log()


def t_gunicorn_behind():
    application("gunicorn")


def t_waitress_behind():
    application("waitress")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
