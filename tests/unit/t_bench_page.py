#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The benchmark's report as a browser shows it, at two sizes of the window.

The record is made up (tests/lib/bench_records.py); what is looked at is the page: nothing is
loaded from elsewhere, nothing overflows sideways, charts have a size and their
labels lie inside them and not upon each other.
"""
import html
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "../../tools/bench"), HERE]
import ktap                     # noqa: E402
import report                   # noqa: E402
import bench_records            # noqa: E402

SIZES = ((1280, 900), (500, 844))         # the least that headless chromium gives
BROWSER_S = 100

PROBE = """<script>addEventListener("load", () => {
  const box = e => { const r = e.getBoundingClientRect();
    return {x: r.left, y: r.top, w: r.width, h: r.height, text: e.textContent}; };
  const charts = [...document.querySelectorAll("svg.chart")].map(svg => ({...box(svg),
    marks: svg.querySelectorAll("circle, path[fill^='#']").length,
    ys: [...svg.querySelectorAll("circle")].map(c => +c.getAttribute("cy")),
    texts: [...svg.querySelectorAll("text")].map(box)}));
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({width: innerWidth, height: innerHeight,
    scroll: document.documentElement.scrollWidth, charts,
    outside: performance.getEntriesByType("resource").map(e => e.name),
    heading: box(document.querySelector("h1")), rows: document.querySelectorAll("tr").length,
    wide: [...document.querySelectorAll(".wide")].map(box),
    broken: [...document.querySelectorAll("th")].flatMap(th => [
      ...th.firstChild.data.matchAll(/\\S+/g)]
      .filter(m => { const r = document.createRange(); r.setStart(th.firstChild, m.index);
        r.setEnd(th.firstChild, m.index + m[0].length); return r.getClientRects().length > 1; })
      .map(m => m[0])),
    font: parseFloat(getComputedStyle(document.body).fontSize)});
  document.body.append(out);
});</script></body>"""

looks = {}


def browse(folder, page, width, height, *what):
    """Output of one run of the browser on the page."""
    browser = shutil.which("chromium")
    if not browser:
        raise ktap.Skip("no chromium")
    return subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},{height}", *what,
         f"file://{page}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=True, timeout=BROWSER_S, text=True,
        env=dict(os.environ, HOME=folder)).stdout


def look(size):
    """The page's own measurements in a window of that size; taken once."""
    if size not in looks:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            page = os.path.join(folder, "report.html")
            with open(page, "w", encoding="utf-8") as f:
                f.write(report.page(bench_records.record()).replace("</body>", PROBE))
            dom = browse(folder, page, *size, "--dump-dom")
        m = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
        assert m, f"the page did not get as far as its own script: {dom[-500:]}"
        looks[size] = json.loads(html.unescape(m.group(1)))
    return looks[size]


def overlap(a, b):
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and \
        a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def t_nothing_is_loaded_from_elsewhere():
    for size in SIZES:
        assert look(size)["outside"] == [], look(size)["outside"]


def t_nothing_overflows_sideways():
    for size in SIZES:
        got = look(size)
        assert got["scroll"] <= got["width"], f"{size}: {got['scroll']} in {got['width']}"
        for box in got["wide"] + [got["heading"]]:
            assert 0 <= box["x"] and box["x"] + box["w"] <= got["width"] + 1, (size, box)
        assert got["font"] >= 14 and got["rows"] >= 7
        assert got["broken"] == [], f"{size}: words of a heading are broken: {got['broken']}"


def t_charts_have_a_size_and_marks():
    for size in SIZES:
        charts = look(size)["charts"]
        assert len(charts) == 3
        for chart in charts:
            assert chart["w"] >= min(340, 0.8 * size[0]) and chart["h"] >= 150, (size, chart["w"])
            assert chart["marks"] >= 5, chart["marks"]
        assert len(set(charts[0]["ys"])) >= 3, "all marks at one height"


def t_labels_lie_inside_their_chart_and_not_upon_each_other():
    for size in SIZES:
        for chart in look(size)["charts"]:
            texts = chart["texts"]
            assert len(texts) >= 6
            for text in texts:
                assert text["w"] > 0 and chart["x"] - 1 <= text["x"] and \
                    text["x"] + text["w"] <= chart["x"] + chart["w"] + 1 and \
                    chart["y"] - 1 <= text["y"] and \
                    text["y"] + text["h"] <= chart["y"] + chart["h"] + 1, (size, text)
            for i, one in enumerate(texts):
                for other in texts[:i]:
                    assert not overlap(one, other), (size, one, other)


def t_the_page_is_painted():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page, shot = os.path.join(folder, "report.html"), os.path.join(folder, "shot.png")
        with open(page, "w", encoding="utf-8") as f:
            f.write(report.page(bench_records.record()))
        browse(folder, page, *SIZES[0], f"--screenshot={shot}")
        with open(shot, "rb") as f:
            data = f.read()
    assert struct.unpack(">II", data[16:24]) == SIZES[0]
    pixels = zlib.decompress(b"".join(chunks(data, b"IDAT")))
    assert len(set(pixels)) > 50, "a picture of one colour"


def chunks(png, kind):
    at = 8
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at:at + 8])
        if name == kind:
            yield png[at + 8:at + 8 + length]
        at += 12 + length


if __name__ == "__main__":
    ktap.run(globals())
