#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The page of the admin listener in a browser: wide, narrow, with 10,000 objects,
with a slow daemon and with none; and used as an operator does.

A server of the test's stands between: it passes requests on to the daemon's
socket, or does what a daemon in trouble does, and holds the browser's load event
back until a script beside the page has seen what it waits for. The script tells what
it found; TBG_PICTURES=DIR keeps the pictures (`make pictures`).
"""
import contextlib
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap

BROWSER_S = 110
OBJECTS = 10000
TOKEN = "a token of more than sixteen bytes"
PICTURES = os.environ.get("TBG_PICTURES")

# As wide as is wanted, which a window cannot be: headless chromium has 500 at least.
# The steps: what is waited for in the page, then what is done in it, and what is told.
FRAME = """<!DOCTYPE html><style>body{margin:0}
iframe{border:0;width:%dpx;height:%dpx;display:block}</style>
<iframe src="/"></iframe><img src="/hold" alt="" hidden>
<script>
const frame = document.querySelector("iframe"), got = {};
const w = () => frame.contentWindow, d = () => frame.contentDocument;
const $ = id => d() && d().getElementById(id), text = id => $(id) ? $(id).textContent : "";
const until = async what => { while (!what()) await new Promise(f => setTimeout(f, 50)); };
const fill = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("input")); };
// The ratio of WCAG 2 between a text and what is behind it.
const parts = c => c.match(/[\d.]+/g).map(Number);
const luminance = c => parts(c).slice(0, 3).map(v => v / 255).map(v =>
  v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((a, v, i) => a + v * [.2126, .7152, .0722][i], 0);
function contrast(e) {
  const ink = luminance(w().getComputedStyle(e).color);
  let at = e, color = () => w().getComputedStyle(at).backgroundColor;
  while (at.parentElement && parts(color())[3] === 0) at = at.parentElement;
  const behind = luminance(color());
  return (Math.max(ink, behind) + .05) / (Math.min(ink, behind) + .05);
}
async function press(value, before) {
  $("done").textContent = "";
  d().querySelector(`button[value=${value}]`).click();
  await until(() => text("done"));
  return text("done");
}
const look = () => Object.assign(got, {
  width: w().innerWidth, scroll: d().documentElement.scrollWidth,
  ...Object.fromEntries(["state", "tiles", "found", "tiers", "hosts", "listeners", "latency"]
    .map(i => [i, text(i)])),
  objects: d().querySelectorAll("#objects tbody tr").length,
  unnamed: [...d().querySelectorAll("button, input, section")].filter(e =>
    !(e.textContent.trim() && e.tagName === "BUTTON") && !(e.labels && e.labels.length) &&
    !$(e.getAttribute("aria-labelledby"))).map(e => e.outerHTML.slice(0, 80)),
  focusable: [...d().querySelectorAll("a[href], button, input, [tabindex='0']")].length,
  small: [...d().querySelectorAll("button")]
    .filter(b => b.getBoundingClientRect().height < 36).length,
  cut: [...d().querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth &&
    e.id !== "objects").map(e => e.id),
  unscrolled: [...d().querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth &&
    e.tabIndex !== 0).map(e => e.id),
  bare: [...d().querySelectorAll("section")].filter(e =>
    e.textContent.trim() === e.querySelector("h2").textContent.trim()).map(e => e.outerHTML),
  dark: w().matchMedia("(prefers-color-scheme: dark)").matches,
  faint: [...d().querySelectorAll("h1, h2, p, dt, dd, th, td, td *, label, button, input, output")]
    .filter(e => e.textContent.trim() && !e.closest(".skip")).map(e => [contrast(e), e.outerHTML])
    .filter(x => x[0] < 4.5),
  outside: w().performance.getEntriesByType("resource").map(e => e.name)
    .filter(n => !n.startsWith(location.origin))});
(async () => {
  try { %s; look(); } catch (e) { got.error = String(e); }
  await fetch("/told", {method: "POST", body: JSON.stringify(got)});
})();
</script>"""

SHOWN = 'await until(() => text("state") === "serving" && text("found"))'
# a line needs two points; in a picture it is longer
TURNS = SHOWN + """; await until(() => d().querySelector("polyline") &&
    d().querySelector("polyline").getAttribute("points").split(" ").length >= %d)
    """ % (20 if PICTURES else 2)
USED = SHOWN + """;
  fill("q", "page-1"); got.searched = text("found");
  got.rows = d().querySelectorAll("#objects tbody tr").length;
  fill("q", "nowhere"); got.nothing = text("objects");
  fill("q", "");
  fill("url", "/page-1.html"); d().querySelector("#why button").click();
  await until(() => text("answer")); got.why = text("answer");
  got.usual = [...d().querySelectorAll("#act, #clients")].map(f => f.querySelector("button").value);
  got.empty = await press("purge"); got.focused = d().activeElement.id;
  fill("target", "/page-1.html");
  got.unasked = await press("purge");
  fill("token", "%s");
  got.purged = await press("purge");
  fill("target", "%s"); got.warmed = await press("warm");
  fill("address", "192.0.2.7"); fill("time", "10m");
  got.denied = await press("deny"); got.list = await press("list");
  got.admitted = await press("admit"); got.after = await press("list");
  fill("address", "x"); got.wrong = await press("deny");
  got.reloaded = await press("reload")"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Between(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path, mode, frame):
        super().__init__(("127.0.0.1", 0), Handler)
        self.path, self.mode, self.frame = path, mode, frame
        self.told, self.got = threading.Event(), None
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

    def pass_on(self, body=None):
        fields = {k: v for k, v in self.headers.items() if k == "Authorization"}
        with contextlib.closing(Unix(self.server.path)) as c:
            c.request(self.command, self.path, body, fields)
            r = c.getresponse()
            self.send(r.status, r.headers["Content-Type"], r.read())

    def do_GET(self):
        s = self.server
        if self.path == "/frame":
            self.send(200, "text/html", s.frame.encode())
        elif self.path == "/hold":
            s.told.wait(BROWSER_S)
            self.send(204, "text/plain", b"")
        elif s.mode != "up" and self.path != "/":
            if s.mode == "slow":
                s.told.wait(BROWSER_S)
            self.connection.close()
        else:
            self.pass_on()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/told":
            self.pass_on(body)
            return
        self.server.got = json.loads(body)
        self.send(204, "text/plain", b"")
        self.server.told.set()


def look(path, width, steps=SHOWN, mode="up", name=None, height=1500, dark=False):
    """The findings of the steps in the page; takes a picture if it has a name."""
    browser = shutil.which("chromium")
    if not browser:
        raise ktap.Skip("no chromium")
    server = Between(path, mode, FRAME % (width, height, steps))
    what = ["--dump-dom"]
    if PICTURES and name:
        os.makedirs(PICTURES, exist_ok=True)
        what = [f"--screenshot={PICTURES}/{name}.png"]
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            subprocess.run(
                [browser, "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--hide-scrollbars",
                 f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                 f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", *what,
                 f"http://127.0.0.1:{server.server_port}/frame"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                check=True, timeout=BROWSER_S, env=dict(os.environ, HOME=folder))
    finally:
        server.told.set()
        server.shutdown()
        server.server_close()
    assert server.got and "error" not in server.got, f"the page did not get as far: {server.got}"
    return server.got


def good(got, width):
    """Properties in every state: the page fits, is usable, and is one file."""
    assert got["width"] == width and got["scroll"] <= width, got
    assert not got["unnamed"] and not got["small"] and got["focusable"] >= 8, got
    assert not got["outside"] and not got["faint"] and not got["bare"], got
    assert not got["cut"] and not got["unscrolled"], got


class Served(daemon.Daemon):
    """With some requests behind it; its admin socket is self.admin."""

    def __init__(self, objects=12):
        super().__init__("--wire", "lo", "--tiers", "wire,user")
        self.admin = os.path.join(self.folder, "admin.sock")
        self.objects = objects
        path = os.path.join(self.folder, "token")
        with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(TOKEN + "\n")
        self.options += ["--admin-token", path]

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


@contextlib.contextmanager
def visited(d):
    """Requests come in meanwhile, in waves."""
    over = threading.Event()

    def ask():
        with contextlib.closing(http.client.HTTPConnection(*d.address)) as c:
            turn = 0
            while not over.wait(.02 + .015 * (turn // 100 % 3)):
                turn += 1
                c.request("GET", f"/page-{turn % 6}.html" if turn % 7 else "/none")
                c.getresponse().read()

    t = threading.Thread(target=ask)
    t.start()
    try:
        yield
    finally:
        over.set()
        t.join()


def t_wide_and_narrow():
    """In colours of the day and of the night."""
    with Served() as d, visited(d):
        for width, height, dark in ((1280, 1980, False), (1280, 1980, True), (400, 2860, False),
                                    (400, 2860, True)):
            name = f"page-{width}{'-dark' if dark else ''}"
            got = look(d.admin, width, TURNS, name=name if not dark or width < 1280 else None,
                       height=height, dark=dark)
            good(got, width)
            assert got["dark"] == dark, got
            assert got["state"] == "serving", got
            assert "Requests a second" in got["tiles"] and "Hit ratio" in got["tiles"], got
            assert "default" in got["hosts"] and "user" in got["latency"], got
            assert got["objects"] == 12 and got["found"].startswith("12 objects"), got
            assert d.ready.split()[1] in got["listeners"], got


def t_an_operator_can_use_it():
    """Searches, asks why, purges, warms, denies: changes with the token alone."""
    with Served() as d:
        for width in (1280, 400):
            got = look(d.admin, width, USED % (TOKEN, d.root))
            good(got, width)
            assert got["searched"] == "3 of 12 objects" and got["rows"] == 3, got
            assert got["nothing"] == "Nothing matches." and "path: /page-1.html" in got["why"], got
            assert got["usual"] == ["warm", "list"], got    # what Enter presses
            assert got["empty"] == "Name a URL or a path." and got["focused"] == "target", got
            assert "expected Authorization: Bearer" in got["unasked"], got
            assert got["purged"] == "1 purged: /page-1.html", got
            assert got["warmed"].startswith("12 files: 1 answers stored, 11 there before"), got
            assert got["denied"] == "192.0.2.7 is denied", got
            assert re.fullmatch(r"192\.0\.2\.7 is denied for \d+ min", got["list"]), got
            assert got["admitted"] == "192.0.2.7 is let in again", got
            assert got["after"] == "Nobody is denied.", got
            assert "x: expected an address" in got["wrong"], got
            assert "reload: nothing to read" in got["reloaded"], got


def t_ten_thousand_objects():
    with Served(OBJECTS) as d:
        for width in (1280, 400):
            got = look(d.admin, width)
            good(got, width)
            assert got["state"] == "serving" and got["objects"] == 100, got
            assert got["found"] == "10000 objects; the first 100 are shown", got["found"]


def t_no_daemon():
    state = "no daemon answers; trying again"
    with Served() as d:
        for width in (1280, 400):
            good(look(d.admin, width, f'await until(() => text("state") === "{state}")', "down",
                      name="page-down-400" if width == 400 else None, height=1880), width)


def t_slow_daemon():
    waits, slow = "waiting for the daemon", "the daemon is slow: no answer in 8 s"
    with Served() as d:
        for width, state in ((1280, waits), (400, waits), (400, slow)):
            steps = f'await until(() => text("state") === "{state}")'
            good(look(d.admin, width, steps, "slow"), width)


def t_pictures_of_the_documentation_are_of_this_test():
    """The pictures have the width of the page; `make pictures` makes them."""
    folder = os.path.join(ktap.ROOT, "Documentation/operating")
    with open(os.path.join(folder, "monitoring.rst"), encoding="utf-8") as f:
        names = re.findall(r"^\.\. image:: (\S+)$", f.read(), re.M)
    assert sorted(names) == [f"pictures/page-{x}.png"
                             for x in ("1280", "400-dark", "400", "down-400")], names
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            head = f.read(24)
        width = int(re.search(r"(\d+)(?:-dark)?\.png", name).group(1))
        assert head[:8] == b"\x89PNG\r\n\x1a\n", (name, head)
        assert int.from_bytes(head[16:20], "big") == width, (name, head)


if __name__ == "__main__":
    ktap.run(globals())
