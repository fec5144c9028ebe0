#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The admin listener: what monitoring reads, and what a page may change."""
import collections
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import conf
import daemon
import ktap
import origin

WAIT_S = 30
CHANGES = "purge", "warm", "deny", "reload"
TOKEN = "a token of more than sixteen bytes"
LINE = re.compile(
    r'\S+ - \S+ \[[^]]*\] "(\S+) [^"]*" (\d+) (\d+) "[^"]*" "[^"]*" (\w+) \S+ [\d.]+$')


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=WAIT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(d, path, method="GET", body=None, **fields):
    """Status, headers and text from the default listener, beside the control socket."""
    with contextlib.closing(Unix(os.path.join(d.folder, "admin.sock"))) as c:
        c.request(method, path, body, {k.replace("_", "-"): v for k, v in fields.items()})
        r = c.getresponse()
        return r.status, r.headers, r.read().decode()


def samples(text):
    """{name: {labels: value}}; each series once."""
    ret = collections.defaultdict(dict)
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
        labels = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
        assert labels not in ret[name], line
        ret[name][labels] = float(value)
    return ret


def metrics(d):
    status, _, text = ask(d, "/metrics")
    assert status == 200, text
    return samples(text)


def until(fn):
    deadline = time.monotonic() + WAIT_S
    while not (ret := fn()):
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)
    return ret


def by(series, *names):
    """Values summed by the labels given."""
    ret = collections.Counter()
    for labels, value in series.items():
        labels = dict(labels)
        ret[tuple(labels[n] for n in names)] += int(value)
    return +ret


def mixed(address, host, nr):
    """Requests of many kinds, one of each on a connection; how many."""
    kinds = (("GET", "/small.txt", {}), ("HEAD", "/small.txt", {}), ("GET", "/none", {}),
             ("GET", "/large.bin", {}), ("POST", "/small.txt", {}),
             ("GET", "/large.bin", {"Range": "bytes=10-19"}), ("GET", "/small.txt?x=1", {}),
             ("OPTIONS", "/", {}))
    c = None
    for i in range(nr):
        method, path, fields = kinds[i % len(kinds)]
        if not i % len(kinds):
            if c:
                c.close()
            c = http.client.HTTPConnection(*address, timeout=WAIT_S)
        c.request(method, path, b"body" if method == "POST" else None, {"Host": host, **fields})
        c.getresponse().read()
    c.close()
    return nr


def sums_equal_log(wire):
    text = (
        'access-log = "{folder}/log"\nhost "one.example" {\n root = "{root}"\n default = true\n}\n'
            'host "two.example" {\n root = "{root}"\n}\n')
    with conf.Conf(text, wire=wire) as d:
        d.write("small.txt", b"small" * 100)
        d.write("large.bin", os.urandom(300000))
        nr = sum(mixed(d.address, host, 400) for host in ("one.example", "two.example",
                                                          "none.example"))
        with socket.create_connection(d.address) as s:      # one that is refused
            s.sendall(b"GET / HTTP/1.1\r\nbad field\r\n\r\n")
            while s.recv(4096):
                pass
        nr += 1
        path = os.path.join(d.folder, "log")
        until(lambda: sum(1 for _ in open(path, encoding="latin-1")) >= nr)
        with open(path, encoding="latin-1") as f:
            lines = [LINE.match(line).groups() for line in f]
        m = metrics(d)
        assert len(lines) == nr, (len(lines), nr)
        log = collections.Counter((tier,) for *_, tier in lines)
        assert by(m["toboggan_requests_total"], "tier") == log, (m["toboggan_requests_total"], log)
        assert not wire or log[("wire",)] > 100, log
        assert by(m["toboggan_responses_total"], "tier", "code") == collections.Counter(
            (tier, status) for _, status, _, tier in lines)
        assert by(m["toboggan_requests_by_method_total"], "tier", "method") == collections.Counter(
            (tier, method) for method, *_, tier in lines)
        bodies = collections.Counter()
        for _, _, body, tier in lines:
            bodies[(tier,)] += int(body)
        assert by(m["toboggan_response_body_bytes_total"], "tier") == +bodies
        hosts = by(m["toboggan_requests_total"], "host")
        assert hosts == {("one.example",): 801, ("two.example",): 400}, hosts
        counts = by(m["toboggan_request_duration_seconds_count"], "tier")
        assert counts == log, counts
        for tier in ("wire", "user"):
            buckets = [v for k, v in m["toboggan_request_duration_seconds_bucket"].items()
                       if dict(k)["tier"] == tier]
            assert buckets == sorted(buckets) and buckets[-1] == log[(tier,)], buckets


def t_sums_equal_the_log():
    sums_equal_log(False)


def t_sums_equal_the_log_with_wire():
    sums_equal_log(True)


def t_both_formats_are_what_they_say():
    with daemon.Daemon(*daemon.USER) as d:
        status, fields, text = ask(d, "/metrics")
        assert status == 200 and fields["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "# TYPE toboggan_requests_total counter" in text and "# EOF" not in text
        assert all(x.startswith(("#", "toboggan_")) for x in text.splitlines()), text
        status, fields, text = ask(d, "/metrics",
                                   Accept="application/openmetrics-text;version=1.0.0,"
                                          "text/plain;q=0.5")
        assert fields["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"), \
               fields
        assert text.endswith("# EOF\n") and "# TYPE toboggan_requests counter" in text


def promtool(*words, text=None):
    """promtool, which has nothing to say."""
    if not shutil.which("promtool"):
        raise ktap.Skip("no promtool")
    return subprocess.run(["promtool", *words], input=text, capture_output=True, text=True,
                          timeout=WAIT_S, check=False)


def t_promtool_has_nothing_to_say_of_metrics():
    """The metrics of a daemon with hosts, upstreams and requests, so that each family exists."""
    with origin.Origin() as o:
        text = (f'upstream "app" {{\n server = "{o.url}"\n}}\n'
                'host "one.example" {\n root = "{root}"\n}\n'
                'host "two.example" {\n upstream = "app"\n}\n')
        with conf.Conf(text) as d:
            d.write("small.txt", b"small")
            mixed(d.address, "one.example", 8)
            mixed(d.address, "two.example", 8)
            text = ask(d, "/metrics")[2]
            assert 'upstream="app"' in text and 'host="two.example"' in text, text
            out = promtool("check", "metrics", text=text)
            assert not out.returncode and not out.stderr + out.stdout, out


def t_promtool_has_nothing_to_say_of_the_rules():
    rules = os.path.join(ktap.ROOT, "tools/package/files/toboggan.rules.yml")
    out = promtool("check", "rules", rules)
    assert not out.returncode and "SUCCESS" in out.stdout and not out.stderr, out


def t_ten_thousand_hosts_are_256_series():
    nr = 1000 if daemon.SANITIZER else 10000            # a start of a minute there
    hosts = "".join(f'host "h{i}.example" {{\n root = "{{root}}"\n}}\n' for i in range(nr))
    with conf.Conf(hosts) as d:
        d.write("a", b"a")
        for i in (0, 254, 255, nr - 1):
            mixed(d.address, f"h{i}.example", 1)
        m = metrics(d)["toboggan_requests_total"]
        names = {dict(k)["host"] for k in m}
        assert len(names) == 256 and "other" in names, len(names)
        seen = by(m, "host")
        assert seen == {("h0.example",): 1, ("h254.example",): 1, ("other",): 2}, seen


def t_counts_outlive_a_reload_that_changes_the_site():
    text = 'host "one.example" {\n root = "{root}"\n headers = {"X-A: %d"}\n}\n'
    with conf.Conf(text % 1) as d:
        d.write("small.txt", b"x")
        mixed(d.address, "one.example", 3)
        d.reconfigure(text % 2)
        mixed(d.address, "one.example", 4)
        assert by(metrics(d)["toboggan_requests_total"], "host") == {("one.example",): 7}


def t_what_clients_send_is_no_label():
    with daemon.Daemon(*daemon.USER) as d:
        d.write("small.txt", b"x")
        with socket.create_connection(d.address) as s:
            s.sendall(b"BREW / HTTP/1.1\r\nHost: evil\"} 9\r\nX-toboggan_fake_total: 1\r\n\r\n")
            s.recv(4096)
        mixed(d.address, 'toboggan_fake_total{a="b"}', 8)
        _, _, text = ask(d, "/metrics")
        assert "fake" not in text and "evil" not in text and "BREW" not in text
        assert by(samples(text)["toboggan_requests_by_method_total"], "method")[("other",)] == 1


def t_not_ready_from_the_first_moment_of_a_drain():
    with daemon.Daemon(*daemon.USER) as d:
        d.write("large.bin", bytes(64 << 20))
        assert ask(d, "/ready")[0] == 200 and ask(d, "/live")[0] == 200
        with socket.create_connection(d.address) as s:      # a client that is slow to read
            s.sendall(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n")
            s.recv(1000)
            d.process.send_signal(signal.SIGTERM)
            until(lambda: ask(d, "/ready")[0] == 503)
            assert d.process.poll() is None
            assert metrics(d)["toboggan_draining"][()] == 1
            assert ask(d, "/live")[0] == 200


def t_changes_need_the_token():
    with daemon.Daemon(*daemon.USER) as d:
        for what in CHANGES:
            assert ask(d, "/api/" + what, "POST", '{"all":true}')[0] == 403, what
    d = daemon.Daemon(*daemon.USER)
    path = os.path.join(d.folder, "token")
    with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(TOKEN + "\n")
    d.options += ["--admin-token", path]
    with d:
        d.write("a.txt", b"x" * 100)
        with contextlib.closing(http.client.HTTPConnection(*d.address)) as c:
            c.request("GET", "/a.txt")
            c.getresponse().read()
        for what in CHANGES:
            assert ask(d, "/api/" + what, "POST", '{"all":true}')[0] == 401, what
        for wrong in ("", "Bearer ", "Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x",
                      "Basic " + TOKEN):
            assert ask(d, "/api/purge", "POST", '{"all":true}', Authorization=wrong)[0] == 401, \
                   wrong
        assert metrics(d)["toboggan_cache_objects"][()] == 1
        right = {"Authorization": "Bearer " + TOKEN}
        status, _, text = ask(d, "/api/purge", "POST", '{"all":true}', **right)
        assert status == 200 and '"purged":1' in text, (status, text)
        assert ask(d, "/api/purge", "GET", **right)[0] == 405
        assert ask(d, "/api/purge", "POST", "[]", **right)[0] == 400
        assert ask(d, "/api/reload", "POST", **right)[0] == 400    # nothing to read again
        # a line of progress every 100 ms is not of the answer
        for i in range(2000):
            d.write(f"many/{i}", b"x")
        status, _, text = ask(d, "/api/warm", "POST", json.dumps({"path": d.root}), **right)
        assert status == 200 and json.loads(text)["files"] == 2001, (status, text)
        # who is denied is answered no more, by whom it was asked
        status, _, text = ask(d, "/api/deny", "POST",
                              '{"addresses":["127.0.0.0/8"],"for":"1h"}', **right)
        assert status == 200 and json.loads(text)["denied"] == 1, (status, text)
        with contextlib.closing(http.client.HTTPConnection(*d.address)) as c:
            c.request("GET", "/a.txt")
            assert c.getresponse().status == 403
        assert ask(d, "/api/deny", "POST", '{"addresses":["127.0.0.0/33"]}', **right)[0] == 400
        text = ask(d, "/api/deny", "POST", **right)[2]
        assert [x["address"] for x in json.loads(text)["clients"]] == ["127.0.0.0/8"], text
    os.makedirs(d.folder, exist_ok=True)
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(TOKEN)
        os.chmod(path, 0o644)
        d = daemon.Daemon(*daemon.USER, "--admin-token", path)
        out = subprocess.run(d.command(), capture_output=True, timeout=WAIT_S, check=False)
        assert out.returncode == 2 and b"others can read it" in out.stderr, out
    finally:
        os.unlink(path)
        d.clean()


def t_readers_that_never_read_hold_up_nobody():
    with daemon.Daemon(*daemon.USER) as d:
        path = os.path.join(d.folder, "admin.sock")
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                s = stack.enter_context(socket.socket(socket.AF_UNIX))
                s.connect(path)
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
            for _ in range(40):
                s = stack.enter_context(socket.socket(socket.AF_UNIX))
                s.settimeout(WAIT_S)
                s.connect(path)
                s.sendall(b"GET /metr")
            begin = time.monotonic()
            assert mixed(d.address, "a", 50) == 50
            assert time.monotonic() - begin < 10
        assert ask(d, "/ready")[0] == 200


def t_a_thousand_scrapers_are_all_answered():
    with daemon.Daemon(*daemon.USER, "--admin", "127.0.0.1:0") as d:
        port = int(re.search(r"admin 127\.0\.0\.1:(\d+)", d.ready).group(1))
        failed, nr = [], 1000

        def scrape(count):
            for _ in range(count):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
                c.request("GET", "/metrics")
                text = c.getresponse().read()
                c.close()
                if b"toboggan_build_info" not in text:
                    failed.append(text)

        threads = [threading.Thread(target=scrape, args=(nr // 100,)) for _ in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failed, failed[:1]


def t_a_client_that_left_is_in_the_log_as_499():
    with origin.Origin() as o:
        d = daemon.Daemon(*daemon.USER, "--upstream", o.url)
        d.options += ["--access-log", os.path.join(d.folder, "log")]
        gone = threading.Event()

        def slow(c, r):
            gone.wait(WAIT_S)
            c.send(origin.reply(200, b"late"))

        o.on("/slow", slow)
        with d:
            with socket.create_connection(d.address) as s:
                s.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
                o.wait("/slow")
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with open(os.path.join(d.folder, "log"), encoding="latin-1") as f:
                line = until(f.read)
            gone.set()
            assert '"GET /slow HTTP/1.1" 499 0 ' in line and " user left " in line, line
            assert by(metrics(d)["toboggan_responses_total"], "code") == {("499",): 1}


def t_the_page_and_what_it_asks():
    with daemon.Daemon(*daemon.USER) as d:
        status, fields, text = ask(d, "/")
        assert status == 200 and text.startswith("<!DOCTYPE html>") and "</html>" in text
        assert "default-src 'none'" in fields["Content-Security-Policy"]
        assert not re.search(r'(src|href)="(?!#)', text), "the page is one file"
        assert '"ok":true' in ask(d, "/api/status")[2] and '"ok":true' in ask(d, "/api/stats")[2]
        assert '"objects":[' in ask(d, "/api/objects?limit=5")[2]
        assert ask(d, "/api/objects?limit=x")[0] == 400 and ask(d, "/api/why")[0] == 400
        assert '"path":"/a b"' in ask(d, "/api/why?url=%2Fa%2520b")[2]
        assert ask(d, "/nothing")[0] == 404 and ask(d, "/metrics", "POST")[0] == 405
        assert ask(d, "/", "HEAD")[2] == ""


if __name__ == "__main__":
    ktap.run(globals())
