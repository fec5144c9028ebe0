#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Warming and purging the cache by hand, and the tool's output about it."""
import json
import os
import pty
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import origin

TOOL = os.path.join(ktap.BUILD, "toboggan")
TEXT = """
host "a.example" { root = "{root}/a" }
host "b.example" {
	root = "{root}/b"
	location "/shared/" { root = "{root}" }
}
host "*.w.example" { root = "{root}/a" }
"""
FILES = ("index.html", "css/one.css", "css/two.css", "css/deep/three.css", "cssx.txt")


class Made(conf.Conf):
    """Two sites of the same files."""

    def __init__(self, text=TEXT, **more):
        super().__init__(text, **more)
        for site in "ab":
            for name in FILES:
                self.write(f"{site}/{name}", f"{site} {name}".encode())
        self.write("shared/s.txt", b"shared")

    def tool(self, *args, code=0):
        r = subprocess.run([TOOL, "--control", self.control, *args], capture_output=True, text=True,
                           timeout=client.WAIT_S, check=False)
        assert r.returncode == code, (args, r)
        return r.stdout if not code else r.stderr

    def ask(self, *args):
        out = self.tool("--json", *args)
        assert out.count("\n") == 1, out
        return json.loads(out)

    def cached(self):
        """{(site, path)} of all that the cache holds."""
        names = {x["vhost"]: x["name"] for x in self.ask("status")["sites"]}
        return {(names[x["vhost"]][0], x["path"]) for x in self.ask("objects")["objects"]}

    def fill(self):
        hit = "wire" if self.wire else "user"
        for site in "ab":
            with conf.Host(self.address, f"{site}.example") as c:
                for name in FILES:
                    c.hot("/" + name, hit)


ALL = {(site, "/" + name) for site in "ab" for name in FILES}


def both(test):
    with Made() as d:
        test(d)
    with Made(wire=True) as d:
        test(d)


def t_purge_by_url_prefix_host_and_everything():
    def test(d):
        for args, nr, gone in (
                (["http://a.example/css/one.css"], 1, {("a", "/css/one.css")}),
                (["http://A.EXAMPLE.:80/css/one.css?x#y"], 1, {("a", "/css/one.css")}),
                (["/css/one.css"], 2, {("a", "/css/one.css"), ("b", "/css/one.css")}),
                (["http://unknown/css/one.css"], 1, {("a", "/css/one.css")}),
                (["/none"], 0, set()),
                (["--prefix", "http://b.example/css/"], 3,
                 {x for x in ALL if x[0] == "b" and "/css/" in x[1]}),
                (["--prefix", "/css"], 8, {x for x in ALL if x[1].startswith("/css")}),
                (["--prefix", "http://a.example/"], 5, {x for x in ALL if x[0] == "a"}),
                (["--host", "b.example"], 5, {x for x in ALL if x[0] == "b"}),
                (["--host", "B.Example."], 5, {x for x in ALL if x[0] == "b"}),
                (["--host", "x.w.example"], 0, set()),
                (["--host", "*.w.example"], 0, set()),
                (["--all"], 10, ALL)):
            d.fill()
            assert d.cached() == ALL
            answer = d.ask("purge", *args)
            assert answer["purged"] == nr, (args, answer)
            assert d.cached() == ALL - gone, (args, d.cached())
            for site, path in gone:
                with conf.Host(d.address, f"{site}.example") as c:
                    assert c.get(path).tier in ("stored", "miss"), (args, path)
    both(test)


def t_every_host_is_the_one_site_s():
    """Where none is configured."""
    def test(d):
        for name in ("a.example", "test", "*.example"):
            with conf.Host(d.address, "a.example") as c:
                c.hot("/a/index.html", "wire" if d.wire else "user")
            answer = d.ask("purge", "--host", name)
            assert (answer["purged"], answer["host"]) == (1, name), answer
            assert not d.ask("objects")["objects"]
    for wire in (False, True):
        with Made('root = "{root}"\n', wire=wire) as d:
            test(d)


def t_any_number_of_arguments():
    nr, hit = 1001, "sock" if "sock" in daemon.TIERS else "user"
    with Made() as d:
        names = [f"b/many/{i}.txt" for i in range(nr)]
        paths = [d.write(x, b"x") for x in names]
        urls = ["http://b.example" + x[1:] for x in names]
        for words, says in ((["warm", *paths], ": 1 file, 1 answers stored"),
                            (["why", *urls], f": {hit}\n"),
                            (["purge", *urls], ": 1 object purged")):
            out = d.tool(*words)
            assert out.count(says) == nr, (words[0], out[:300])


def t_arguments_that_are_not_utf8():
    """Names of files are bytes; what JSON cannot say is said otherwise, or not at all."""
    with Made() as d:
        os.makedirs(os.path.join(os.fsencode(d.root), b"a/caf\xe9 100%25"))
        with open(os.path.join(os.fsencode(d.root), b"a/caf\xe9 100%25/x.txt"), "wb") as f:
            f.write(b"x")
        name = os.path.join(d.root, "a/caf\udce9 100%25")
        answer = d.ask("warm", name)
        assert answer["files"] == 1 and answer["stored"], answer
        assert d.ask("why", "http://a.example/caf\udce9 100%2525/x.txt")["cached"]
        assert d.ask("purge", "--prefix", "/caf\udce9 100%2525/")["purged"] == 2
        assert not d.ask("why", "http://a.example/caf%e9%20100%2525/x.txt")["cached"]
        for args in (["why", "--accept-encoding", "\udce9", "/x"], ["purge", "--tag", "\udce9"],
                     ["purge", "--host", "\udce9"]):
            assert f"{args[1]}: not UTF-8" in d.tool(*args, code=2), args


def t_json_in_any_case():
    """Also of options that are wrong, wherever --json stands."""
    for words in (["--limit", "x", "objects", "--json"], ["--json", "top", "--interval", "0"],
                  ["-j", "--none"],
                  ["--js", "purge"], ["--none\udce9", "--json"], ["--count"],
                  ["--json", "why", "--limit"]):
        r = subprocess.run([TOOL, *words], capture_output=True, check=False)
        assert r.returncode == 2 and r.stderr.startswith(b"toboggan: "), (words, r)
        if len(words) > 1:
            assert r.stdout.count(b"\n") == 1 and json.loads(r.stdout)["ok"] is False, (words, r)
        else:
            assert not r.stdout, r


def t_encoded_slashes_are_slashes():
    """An upstream's paths are found by both; of a file both are one object."""
    with origin.Origin() as o:
        text = 'root = "{root}"\nlocation "/up/" { upstream = "%s" }\n' % o.url
        with Made(text=text) as d:
            for p in ("/up/a%2Fb", "/up/a%2fb?q", "/up/a/b", "/up/a"):
                o.on(p, origin.reply(200, b"x", "Cache-Control: max-age=60"))

            def hits():
                return [p for p in ("/up/a%2Fb", "/up/a%2fb?q", "/up/a/b", "/up/a")
                        if origin.ask(d.address, "GET", p).hit]

            hits()
            assert len(hits()) == 4
            why = d.ask("why", "http://test/up/a%2Fb")
            assert why["cached"] and why["path"] == "/up/a/b", why
            assert not d.ask("why", "http://test/up/a%2Fc")["cached"]
            assert d.ask("purge", "http://test/up/a%2Fb")["purged"] == 3
            assert hits() == ["/up/a"]
            assert d.ask("purge", "--prefix", "/up/a%2F")["purged"] == 3
            assert hits() == ["/up/a"]
            with conf.Host(d.address, "test") as c:
                c.hot("/a/index.html", "user")
            assert d.ask("why", "/a%2Findex.html")["cached"]
            assert d.ask("purge", "/a%2Findex.html")["purged"] == 1


def t_purge_that_cannot_be_meant():
    with Made() as d:
        d.fill()
        for args, code, says in ((["purge"], 2, "--host NAME"),
                                 (["purge", "--all", "/x"], 2, "--all"),
                                 (["purge", "--prefix"], 2, "--prefix"),
                                 (["purge", "--host", "a.example", "/x"], 2, "--host"),
                                 (["purge", "--all", "--host", "a.example"], 2, "--all"),
                                 (["purge", "--host", ""], 2, "--host NAME"),
                                 (["purge", "--tag", ""], 2, "--tag TAG"),
                                 (["purge", "--tag", "a", "--tag", "b"], 2, "--tag a already"),
                                 (["purge", "--host", "a.example", "--host", "b"], 2,
                                  "--host a.example already"),
                                 (["purge", "--host", "c.example"], 1, "no site has that name"),
                                 (["purge", "nonsense"], 1, "neither a URL"),
                                 (["purge", "/..%2Fone.css"], 1, "no path that the daemon"),
                                 (["why", "--host", "a", "/x"], 2, "--host"),
                                 (["warm"], 2, "argument missing"),
                                 (["warm", "--prefix", "/x"], 2, "--prefix"),
                                 (["warm", "/nonexistent"], 1, "No such file"),
                                 (["warm", "/etc"], 1, "not below a root"),
                                 (["warm", d.path], 1, "not below a root")):
            assert says in d.tool(*args, code=code), (args, says)
        assert d.cached() == ALL


def t_warm_publishes_ahead_of_the_first_request():
    def test(d):
        hit = "wire" if d.wire else "user"
        answer = d.ask("warm", os.path.join(d.root, "a"))
        # the site with a star has the same root; the index answers for its folder too
        assert (answer["files"], answer["stored"], answer["cached"],
                answer["left"]) == (5, 12, 0, 0), answer
        # it finds them when it is asked again; no client has
        assert d.ask("warm", os.path.join(d.root, "a"))["cached"] == 12
        assert not [x for x in d.ask("objects")["objects"] if x["hits"]]
        with conf.Host(d.address, "a.example") as c:
            for path in ["/" + x for x in FILES] + ["/"]:
                r = c.get(path)
                # wire meets a connection at its second request
                if not daemon.is_tier(r.tier, hit):
                    r = c.get(path)
                assert daemon.is_tier(r.tier, hit) and \
                       r.body == f"a {path[1:] or 'index.html'}".encode(), (path, r)
        assert d.ask("warm", os.path.join(d.root, "a"))["cached"] == 12
        answer = d.ask("warm", os.path.join(d.root, "b/css/deep/three.css"))
        assert (answer["files"], answer["stored"]) == (1, 1), answer
        assert ("b", "/css/deep/three.css") in d.cached()
        # a location's own root; and links on the way to it
        os.symlink(d.root, os.path.join(d.folder, "link"))
        assert d.ask("warm", os.path.join(d.folder, "link/shared"))["stored"] == 1
        assert ("b", "/shared/s.txt") in d.cached()
        # from above all roots
        assert d.ask("warm", d.folder)["files"] >= 11
    both(test)


def t_objects_of_several_sites_can_be_told_apart():
    def test(d):
        d.fill()
        listed = {(x["site"], x["path"]) for x in d.ask("objects")["objects"]}
        assert listed == {(f"{site}.example", "/" + name) for site in "ab" for name in FILES}, \
               listed
        assert all(f" {site}.example/index.html\n" in d.tool("objects") for site in "ab")
    both(test)
    with Made(text='root = "{root}/a"\n') as d:
        client.hot(d, "/index.html", "user")
        assert [x["site"] for x in d.ask("objects")["objects"]] == [None]
        assert " /index.html\n" in d.tool("objects")


def t_warm_leaves_what_others_than_files_answer():
    """Though it lies below their root: a program, as a folder's index too; an upstream that has a
    root around it."""
    with Made(
        text='root = "{root}/a"\nindex = {"index.php", "index.html"}\n'
             'location "*.php" { upstream = php }\n'
              'location "/css/" { upstream = "http://127.0.0.1:1" }\n'
              'upstream php { server = "unix:/nosuch" protocol = fastcgi }\n') as d:
        d.write("a/index.php", b"<?php")
        answer = d.ask("warm", os.path.join(d.root, "a"))
        assert (answer["files"], answer["stored"], answer["left"]) == (2, 2, 0), answer
        assert {x["path"] for x in d.ask("objects")["objects"]} == {"/index.html", "/cssx.txt"}


def t_warm_of_a_link_is_of_its_own_name():
    """Not of the name of the file that it leads to."""
    d = Made(text='root = "{root}/a"\n')
    # before the start: when the daemon hears of a change, it discards what it has warmed
    d.write("a/index.en.html", b"english")
    index = os.path.join(d.root, "a/index.html")
    os.unlink(index)
    os.symlink("index.en.html", index)
    os.symlink("a", os.path.join(d.root, "link"))
    with d:
        for where, words in ((os.path.join(d.root, "link"), "index.html"),
                             (d.folder, os.path.join(d.root, "a//index.html")),
                             ("/", index)):
            out = subprocess.run([TOOL, "--control", d.control, "warm", words], cwd=where,
                                 capture_output=True,
                                 text=True, timeout=client.WAIT_S, check=True).stdout
            assert out.endswith(": 1 file, 2 answers stored, 0 there before, 0 not kept\n"), out
            with client.Client(d.address) as c:
                for path in ("/", "/index.html"):
                    r = c.get(path)
                    assert daemon.is_tier(r.tier, "user") and r.body == b"english", (words, path, r)
            assert d.ask("purge", "--all")["purged"] == 2


def t_warm_leaves_out_what_a_request_could_not_get():
    with Made() as d:
        d.write("b/.hidden", b"x")
        d.write("b/large.bin", b"x" * 200000)
        os.chmod(d.write("b/secret.txt", b"x"), 0)
        os.mkfifo(os.path.join(d.root, "b/pipe"))
        os.symlink("/etc/passwd", os.path.join(d.root, "b/out"))
        os.symlink("b", os.path.join(d.root, "b/circle"))
        os.symlink(".", os.path.join(d.root, "b/self"))
        answer = d.ask("warm", os.path.join(d.root, "b"))
        assert answer["stored"] == 6, answer
        paths = {p for _, p in d.cached()}
        assert paths == {"/" + x for x in FILES} | {"/"} | ({"/secret.txt"} & paths), paths


def t_warm_shows_a_bar_on_a_terminal_alone():
    with Made() as d:
        for i in range(300):
            d.write(f"b/many/{i}.txt", b"x")
        main, side = pty.openpty()
        r = subprocess.Popen([TOOL, "--control", d.control, "warm", os.path.join(d.root, "b/many")],
                             stdout=subprocess.PIPE, stderr=side, text=True)
        out, _ = r.communicate(timeout=client.WAIT_S)
        os.close(side)
        shown = b""
        try:
            while data := os.read(main, 65536):
                shown += data
        except OSError:
            pass
        os.close(main)
        assert r.returncode == 0 and \
               ": 300 files, 300 answers stored, 0 there before, 0 not kept" in out, out
        assert b"[" in shown and b"of 300 files" in shown, shown
        r = subprocess.run([TOOL, "--control", d.control, "warm", os.path.join(d.root, "b/many")],
                           capture_output=True, text=True, timeout=client.WAIT_S, check=True)
        assert not r.stderr and "300 there before" in r.stdout, r


def t_warm_does_not_hold_up_requests_or_a_reload():
    with Made() as d:
        for i in range(2000):
            d.write(f"b/many/{i}.txt", b"x" * 100)
        p = subprocess.Popen([TOOL, "--control", d.control, "--json", "warm",
                              os.path.join(d.root, "b")],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        d.reconfigure(TEXT.replace('root = "{root}/b"', 'root = "{root}/b" headers = {"X-New: 1"}'))
        with conf.Host(d.address, "b.example") as c:
            assert c.get("/many/7.txt").fields["X-New"] == "1"
        out, err = p.communicate(timeout=client.WAIT_S)
        # it was done before, or says that it must begin again
        assert p.returncode == 0 or "begin again" in err, (out, err)
        with conf.Host(d.address, "b.example") as c:
            for i in range(0, 2000, 100):
                assert c.get(f"/many/{i}.txt").fields["X-New"] == "1"


def t_why_shows_site_location_and_the_stat_interval():
    with Made() as d:
        os.symlink("one.css", os.path.join(d.root, "a/css/link.css"))
        with conf.Host(d.address, "a.example") as c:
            c.hot("/css/link.css", "user")
            c.hot("/css/one.css", "user")
        with conf.Host(d.address, "b.example") as c:
            c.hot("/shared/s.txt", "user")
        a = d.ask("why", "http://a.example/css/link.css")
        assert (a["site"], a["location"], a["stat_ms"]) == ("a.example", "/", 50), a
        assert "stat interval" in a["fresh"] and "symbolic link" in a["fresh"] and a["cached"], a
        a = d.ask("why", "http://b.example/shared/s.txt")
        assert (a["site"], a["location"], a["cached"]) == ("b.example", "/shared/", True), a
        assert a["file"] == os.path.join(d.root, "shared/s.txt") and "stat_ms" not in a, a
        assert not d.ask("why", "http://b.example/css/one.css")["cached"]
        text = d.tool("why", "http://a.example/css/link.css")
        assert "stat interval" in text and "a.example" in text, text


def t_why_of_a_filesystem_that_does_not_notify():
    """An overlay: what changes below it, inotify does not see."""
    if os.geteuid():
        raise ktap.Skip("not root: nothing can be mounted")
    d = Made()
    merged = os.path.join(d.root, "a")
    for name in ("upper", "work", "lower"):
        os.mkdir(os.path.join(d.folder, name))
        os.chmod(os.path.join(d.folder, name), 0o755)
    lower = os.path.join(d.folder, "lower")
    with open(os.path.join(lower, "x.txt"), "w", encoding="ascii") as f:
        f.write("x")
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                           f"lowerdir={lower},upperdir={d.folder}/upper,workdir={d.folder}/work",
                           merged],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        d.clean()
        raise ktap.Skip(f"no overlay: {done.stderr.strip()}")
    try:
        with d:
            with conf.Host(d.address, "a.example") as c:
                c.hot("/x.txt", "user")
            a = d.ask("why", "http://a.example/x.txt")
            assert a["stat_ms"] == 50 and "stat interval" in a["fresh"] and \
                   "file system" in a["fresh"], a
            subprocess.run(["umount", "-l", merged], check=True)
            merged = None
    finally:
        if merged:
            subprocess.run(["umount", "-l", merged], check=False)


if __name__ == "__main__":
    ktap.run(globals())
