#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The SPECweb99 application: as a module, and as the program that it is compared with."""
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import client                       # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402
from modules import Modules         # noqa: E402
from origin import ask              # noqa: E402

SPEC = """
root = "{root}"
location "/cgi-bin/" { cgi = "{folder}/cgi-bin" }
location "/spec" {
    module = {"{folder}/specweb99.so", "{root}", "{folder}/tables"}
    module-workers = "4"
}
"""


def spec99(**more):
    """A daemon with all of it, and the folder of its tables."""
    m = Modules(text=SPEC, **more)
    shutil.copy(os.path.join(ktap.BUILD, "modules/specweb99.so"), m.folder)
    shutil.copytree(os.path.join(ktap.BUILD, "modules/cgi-bin"), os.path.join(m.folder, "cgi-bin"))
    tables = os.path.join(m.folder, "tables")
    os.mkdir(tables)
    os.chmod(tables, 0o777)
    return m, tables


def t_specweb99():
    """Pages, advertisements by cookie and table, and a log that nobody overwrites."""
    m, tables = spec99()
    mark = b'<!WEB99CAD><IMG SRC="/file_set/dir00000/class0_0"><!/WEB99CAD>'
    m.write("file_set/dir00000/class1_3", b"x" * 100 + mark + b"y" * 900)
    m.write("file_set/dir00000/class3_8", b"z" * 921600)
    with m:
        r = ask(m.address, "GET", "/spec?/file_set/dir00000/class3_8")
        assert r.body.count(b"z") == 921600 and r.body.endswith(b"\n</pre>\n</body></html>\n"), r
        assert b"<p>QUERY_STRING = /file_set/dir00000/class3_8\n<pre>\nzzz" in r.body
        for name in ("/file_set/none", "/../specweb99.so", "/file_set"):
            assert ask(m.address, "GET", "/spec?" + name).status == 404, name
        assert ask(m.address, "GET",
                   "/spec?command/Reset&maxload=100&pttime=1&exp=1,4000000000").status == 200
        with open(os.path.join(tables, "Custom.Ads"), "rb") as f:
            ads = f.read()
        with open(os.path.join(tables, "User.Personality"), "rb") as f:
            users = f.read()
        assert len(ads) == 360 * 39 and len(users) == 100 * 15
        for user in range(0, 100, 7):
            last = user * 3
            ad, weight, expired = advertisement(users, ads, user, last)
            r = ask(m.address, "GET", "/spec?/file_set/dir00000/class1_3",
                    f"Cookie: my_cookie=user_id={10000 + user}&last_ad={last}")
            assert r.field("Set-Cookie") == \
                   f"found_cookie=Ad_id={ad}&Ad_weight={weight}&Expired={expired}", r
            name = b"dir%05d/class%d_%d" % (ad // 36, ad % 36 // 9, ad % 9)
            assert mark.replace(b"dir00000/class0_0", name) in r.body, (ad, r.body)
        r = ask(m.address, "GET", "/spec?/file_set/dir00000/class1_3",
                "Cookie: my_cookie=user_id=7&last_ad=0")
        assert r.field("Set-Cookie") == "found_cookie=Ad_id=-1&Ad_weight=0&Expired=1" and \
               mark in r.body, r
        post_together(m)
        records = ask(m.address, "GET", "/spec?command/Fetch").body
        assert records[:11] == b"       200\n" and len(records) == 11 + 200 * 139, records[:200]
        lines = [records[i:i + 139] for i in range(11, len(records), 139)]
        assert [int(x[:10]) for x in lines] == list(range(1, 201))
        assert sorted(int(x.split()[6]) for x in lines) == list(range(200)), "each client once"
        assert ask(m.address, "POST", "/spec", body=b"dir=1").status == 400
        assert ask(m.address, "POST", "/spec", body=b"a" * 5000).status == 413


def t_specweb99_files_that_change():
    """They stay open; one that another has replaced, or nobody, is not served any more."""
    m, _ = spec99()
    name = "file_set/dir00000/class1_0"
    path = os.path.join(m.root, name)
    m.write(name, b"one")
    with m, origin.Client(m.address) as c:
        def page():
            r = c.request("GET", f"/spec?/{name}")
            return r.body.split(b"<pre>\n")[1].split(b"\n</pre>")[0] if r.status == 200 \
                   else r.status

        assert page() == b"one"
        m.write("file_set/other", b"second")
        os.rename(os.path.join(m.root, "file_set/other"), path)
        assert page() == b"second", "replaced"
        with open(path, "r+b") as f:
            f.write(b"in place")
        assert page() == b"in place"
        os.remove(path)
        assert page() == 404
        m.write(name, b"back")
        assert page() == b"back"
        os.link(path, os.path.join(m.root, "file_set/kept"))
        m.write("file_set/other", b"third")
        os.rename(os.path.join(m.root, "file_set/other"), path)
        assert page() == b"third", "the one before has another name"
        os.rename(os.path.join(m.root, "file_set/dir00000"), os.path.join(m.root, "file_set/was"))
        assert page() == 404
        m.write(name, b"fourth")
        assert page() == b"fourth"
        for i in range(600):            # more than stay open
            m.write(f"file_set/{i}", b"%d" % i)
        for i in (*range(600), *range(0, 600, 7)):
            r = c.request("GET", f"/spec?/file_set/{i}")
            assert b"<pre>\n%d\n</pre>" % i in r.body, (i, r)


def t_specweb99_refuses_what_its_records_do_not_hold():
    m, tables = spec99()
    m.write("file_set/dir00000/class0_0", b"x")
    fields = "urlroot=/file_set&dir=0&class=0&num=0&client="
    with m, origin.Client(m.address) as c:
        for exp in ("-1,1", "1,-9223372036854775807", "10000000000,1"):
            assert c.request("GET", "/spec?command/Reset&maxload=1&exp=" + exp).status == 400, exp
        assert c.request("GET", "/spec?command/Reset&maxload=1&exp=0,9999999999").status == 200
        assert os.path.getsize(os.path.join(tables, "Custom.Ads")) == 360 * 39
        for number, user in ((-1, 1), (10 ** 10, 1), (1, -2147483648), (1, 10 ** 10)):
            r = c.request("POST", "/spec", f"Cookie: my_cookie=user_id={user}",
                          body=f"{fields}{number}".encode())
            assert r.status == 400, (number, user, r)
        most = 10 ** 10 - 1
        r = c.request("POST", "/spec", f"Cookie: my_cookie=user_id={most}",
                      body=f"{fields}{most}".encode())
        assert r.field("Set-Cookie") == f"my_cookie={most}", r
        records = c.request("GET", "/spec?command/Fetch").body
        assert len(records) == 11 + 139 and records.endswith(b" 9999999999\n"), records


def t_specweb99_fetches_whole_records():
    """The number of records in the log's head, while they are written."""
    m, tables = spec99()
    m.write("file_set/dir00000/class0_0", b"x")
    got = []
    with m, origin.Client(m.address) as c:
        c.request("GET", "/spec?command/Reset&maxload=1")
        for i in range(2):
            c.request("POST", "/spec", body=b"urlroot=/file_set&dir=0&class=0&num=0&client=%d" % i)
        path = os.path.join(tables, "post.log")
        with open(path, "rb") as f:
            whole = f.read()
        with open(path, "r+b", buffering=0) as f:
            fcntl.flock(f, fcntl.LOCK_EX)           # as one of the workers does
            f.truncate(len(whole) - 39)
            t = threading.Thread(target=lambda: got.append(c.request("GET",
                                                                     "/spec?command/Fetch").body))
            t.start()
            client.until(lambda: got or waits_for(f), "nobody waits for the log")
            f.write(whole)
        t.join()
    assert got == [whole], got


def waits_for(f):
    """Whether somebody waits for a lock of that file."""
    inode = f":{os.fstat(f.fileno()).st_ino} "
    with open("/proc/locks", encoding="ascii") as locks:
        return any("-> FLOCK" in x and inode in x for x in locks)


def t_specweb99_by_a_program():
    """Exactly the module's page, for every file of a directory."""
    m, _ = spec99()
    site = subprocess.run([os.path.join(ktap.ROOT, "tools/bench/bench"), "site", "--only",
                           "--folders", "2", m.root], capture_output=True, text=True, check=False)
    assert not site.returncode, site
    with m, origin.Client(m.address) as c:
        for i in range(36):
            path = f"/file_set/dir00001/class{i // 9}_{i % 9}"
            plain = c.request("GET", path)
            assert len(plain.body) == int(102.4 * (i % 9 + 1) * 10 ** (i // 9)), path
            r = c.request("GET", "/cgi-bin/specweb99?" + path)
            assert r.status == 200 and r.field("Content-Type") == "text/html", r
            assert int(r.field("Content-Length")) == len(r.body)
            module = c.request("GET", "/spec?" + path)
            assert r.body == module.body.replace(b"SCRIPT_NAME = /spec\n",
                                                 b"SCRIPT_NAME = /cgi-bin/specweb99\n")
            assert plain.body in r.body, path
        for query in ("/../toboggan.conf", "/file_set", "", "/none"):
            assert c.request("GET", "/cgi-bin/specweb99?" + query).status == 404, query


def t_specweb99_with_the_tiers_around_it():
    """Static files are wire's, in between the rest is not; the marks of the set are filled in."""
    m, _ = spec99(wire=True)
    subprocess.run([os.path.join(ktap.ROOT, "tools/bench/bench"), "site", "--only", "--folders",
                    "1",
                    m.root], capture_output=True, check=True)
    with m, origin.Client(m.address) as c:
        assert c.request("GET",
                         "/spec?command/Reset&maxload=100&pttime=3&exp=1,4000000000").status == 200
        filled = 0
        for i in range(200):
            assert len(c.request("GET", "/file_set/dir00000/class1_1").body) == 2048
            r = c.request("GET", "/spec?/file_set/dir00000/class2_0",
                          f"Cookie: my_cookie=user_id={10000 + i % 100}&last_ad={i}")
            filled += b'SRC="/file_set/dir00000/class0_0"' not in r.body
            assert b"<!WEB99CAD>" in r.body and \
                   r.field("Set-Cookie").startswith("found_cookie=Ad_id="), r
            r = c.request("POST", "/spec", "Cookie: my_cookie=user_id=10001&last_ad=1",
                          body=b"urlroot=/file_set&dir=0&class=1&num=1&client=%d" % i)
            assert r.status == 200, r
        assert filled > 100, filled
        assert c.request("GET", "/spec?command/Fetch").body[:11] == b"       200\n"
        assert c.request("GET", "/spec?command/Reset").status == 200
        assert c.request("GET", "/spec?command/Fetch").body == b"         0\n"


def advertisement(users, ads, user, last):
    """A second implementation of the description: (id, weight, expired)."""
    wishes = int(users[user * 15 + 6:user * 15 + 14], 16)
    masks = (0x30000000, 0x0f000000, 0x00f00000, 0x000ffc00, 0x000003ff)
    for i in range(1, 361):
        nr, demographics, weights, least, expiry = ads[(last + i) % 360 * 39:][:39].split()
        both = wishes & int(demographics, 16)
        weight = sum(int(weights, 16) >> (16 - 4 * k) & 15 for k, m in enumerate(masks) if both & m)
        if weight >= int(least):
            return int(nr), weight, int(time.time() > int(expiry))
    return -1, 0, 1


def post_together(m):
    wrong = []

    def one(first):
        with origin.Client(m.address) as c:
            for i in range(first, first + 50):
                r = c.request("POST", "/spec", f"Cookie: my_cookie=user_id={10000 + i}&last_ad=1",
                              body=b"client=%d&num=3&class=1&dir=0&urlroot=/file_set" % i)
                if r.status != 200 or r.field("Set-Cookie") != f"my_cookie={10000 + i}":
                    wrong.append(r)

    threads = [threading.Thread(target=one, args=(i * 50,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:2]


if __name__ == "__main__":
    ktap.run(globals())
