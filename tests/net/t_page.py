#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The page of the admin listener in a browser: wide, narrow, with 10,000 objects,
with a slow daemon and with none.

A server of the test's stands between: it passes requests on to the daemon's
socket, or does what a daemon in trouble does, and holds the browser's load event
back until there is something to look at. TBG_PICTURES=DIR keeps the pictures.
"""
import contextlib
import html
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import daemon
import ktap

BROWSER_S = 110
HOLD_S = 7                      # two rounds of the page, and the list of objects
OBJECTS = 10000
PICTURES = os.environ.get("TBG_PICTURES")

# As wide as is wanted, which a window cannot be: headless chromium has 500 at least.
FRAME = """<!DOCTYPE html><style>body{margin:0}iframe{border:0;width:%dpx;height:%dpx;display:block}</style>
<iframe src="/"></iframe><img src="/hold" alt="" hidden>
<script>addEventListener("load", () => {
  const w = document.querySelector("iframe").contentWindow, d = w.document;
  const text = id => d.getElementById(id).textContent;
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({width: w.innerWidth, scroll: d.documentElement.scrollWidth,
    state: text("state"), tiles: text("tiles"), found: text("found"), tiers: text("tiers"),
    hosts: text("hosts"), listeners: text("listeners"), latency: text("latency"),
    objects: d.querySelectorAll("#objects tbody tr").length,
    unnamed: [...d.querySelectorAll("button, input, section")].filter(e =>
      !(e.textContent.trim() && e.tagName === "BUTTON") && !(e.labels && e.labels.length) &&
      !d.getElementById(e.getAttribute("aria-labelledby"))).map(e => e.outerHTML.slice(0, 80)),
    focusable: [...d.querySelectorAll("a[href], button, input, [tabindex='0']")].length,
    small: [...d.querySelectorAll("button")].filter(b => b.getBoundingClientRect().height < 36).length,
    outside: w.performance.getEntriesByType("resource").map(e => e.name)
      .filter(n => !n.startsWith(location.origin))});
  document.body.append(out);
});</script>"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Between(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path, mode, size):
        super().__init__(("127.0.0.1", 0), Handler)
        self.path, self.mode, self.size = path, mode, size
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        s = self.server
        if self.path == "/frame":
            self.send(200, "text/html", (FRAME % s.size).encode())
        elif self.path == "/hold":
            time.sleep(HOLD_S + (3 if s.mode == "slow" else 0))
            self.send(204, "text/plain", b"")
        elif s.mode != "up" and self.path != "/":
            if s.mode == "slow":
                time.sleep(BROWSER_S)
            self.connection.close()
        else:
            with contextlib.closing(Unix(s.path)) as c:
                c.request("GET", self.path)
                r = c.getresponse()
                self.send(r.status, r.headers["Content-Type"], r.read())


def look(path, width, mode="up", name=None, height=1500):
    """What the page says and measures; a picture of it, if it has a name."""
    browser = shutil.which("chromium")
    if not browser:
        raise ktap.Skip("no chromium")
    server = Between(path, mode, (width, height))
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            def run(*what):
                return subprocess.run(
                    [browser, "--headless", "--no-sandbox", "--disable-gpu",
                     "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", *what,
                     f"http://127.0.0.1:{server.server_port}/frame"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                    check=True, timeout=BROWSER_S, text=True, env=dict(os.environ, HOME=folder)).stdout
            dom = run("--dump-dom")
            if PICTURES and name:
                os.makedirs(PICTURES, exist_ok=True)
                run(f"--screenshot={PICTURES}/{name}.png")
    finally:
        server.shutdown()
        server.server_close()
    m = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
    assert m, f"the page did not get as far as its own script: {dom[-500:]}"
    return json.loads(html.unescape(m.group(1)))


def good(got, width):
    """What holds in whatever state: it fits, it can be used, it is one file."""
    assert got["width"] == width and got["scroll"] <= width, got
    assert not got["unnamed"] and not got["small"] and got["focusable"] >= 8, got
    assert not got["outside"], got


class Served(daemon.Daemon):
    """With some requests behind it; its admin socket is self.admin."""

    def __init__(self, objects=12):
        super().__init__("--wire", "lo", "--tiers", "wire,user")
        self.admin = os.path.join(self.folder, "admin.sock")
        self.objects = objects

    def __enter__(self):
        super().__enter__()
        for i in range(self.objects):
            with open(os.path.join(self.root, f"page-{i}.html"), "wb") as f:
                f.write(b"<p>%d</p>" % i * 20)
        out = subprocess.run([daemon.TOOL, "--control", self.control, "warm", self.root],
                             capture_output=True, timeout=BROWSER_S, check=False)
        assert not out.returncode, out
        with contextlib.closing(http.client.HTTPConnection(*self.address)) as c:
            for i in range(60):
                c.request("GET", f"/page-{i % 6}.html" if i % 10 else "/none")
                c.getresponse().read()
        return self


def t_wide_and_narrow():
    with Served() as d:
        for width, height in ((1280, 1900), (400, 3400)):
            got = look(d.admin, width, name=f"page-{width}", height=height)
            good(got, width)
            assert got["state"] == "serving", got
            assert "Requests a second" in got["tiles"] and "Hit ratio" in got["tiles"], got
            assert "default" in got["hosts"] and "user" in got["latency"], got
            assert got["objects"] == 12 and got["found"].startswith("12 objects"), got
            assert d.ready.split()[1] in got["listeners"], got


def t_ten_thousand_objects():
    with Served(OBJECTS) as d:
        for width in (1280, 400):
            got = look(d.admin, width)
            good(got, width)
            assert got["state"] == "serving" and got["objects"] == 100, got
            assert got["found"] == "10000 objects; the first 100 are shown", got["found"]


def t_no_daemon():
    with Served() as d:
        for width in (1280, 400):
            got = look(d.admin, width, "down", name=f"page-down-{width}")
            good(got, width)
            assert got["state"] == "no daemon answers; trying again", got


def t_slow_daemon():
    with Served() as d:
        got = look(d.admin, 400, "slow")
        good(got, 400)
        assert got["state"] in ("waiting for the daemon",
                                "the daemon is slow: no answer in 8 s"), got


if __name__ == "__main__":
    ktap.run(globals())
