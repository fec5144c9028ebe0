#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""SIGHUP: a new configuration for a daemon that continues to serve."""
import fcntl
import json
import os
import select
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import names
import net
import origin
import ptrace
import talk

ONE = 'root = "{root}/one"\nheaders = {"X-Version: one"}\n'
TWO = 'root = "{root}/two"\nheaders = {"X-Version: two"}\n'


def prepare(d):
    for name in ("one", "two"):
        os.makedirs(os.path.join(d.root, name), exist_ok=True)
        d.write(f"{name}/index.html", name.encode())
        d.write(f"{name}/same.txt", b"same")
    return "wire" if d.wire else "user"


class Made(conf.Conf):
    """With its folders there before it starts."""

    def start(self):
        prepare(self)
        return super().start()


def both(text, test):
    with Made(text) as d:
        test(d)
    with Made(text, wire=True) as d:
        test(d)


def t_new_configuration_answers_from_its_line_on():
    def test(d):
        hit = prepare(d)
        kept = client.Client(d.address)
        for turn in range(4):
            for text, name in ((ONE, "one"), (TWO, "two")):
                d.reconfigure(text)
                for c in (kept, client.Client(d.address)):
                    for _ in range(3):
                        r = c.get("/")
                        assert (r.body, r.fields["X-Version"]) == (name.encode(), name), (turn, r)
                assert client.hot(d, "/", hit).fields["X-Version"] == name
        kept.close()
    both(ONE, test)


def t_bad_file_leaves_the_old_configuration():
    def test(d):
        hit = prepare(d)
        client.hot(d, "/", hit)
        for text, says in (('root = "{root}/two"\n\nmemory = lots\n',
                            (":3: ", '"lots"', "a size from 1M")),
                           ('root = "/nonexistent"\n', (":1: ", "/nonexistent", "a folder")),
                           (TWO + "speed = 1\n", (":3: ", "speed", "accepted")),
                           ('host a {\n root = "{root}/two" }\nhost a. { root = "{root}" }\n',
                            (":3: ", '"a."', "once")),
                           (TWO + 'access-log = "/nonexistent/log"\n',
                            (":3: ", "access-log /nonexistent/log: No such file",
                             "a file that can be written"))):
            seen = len(d.lines)
            d.save(text)
            d.hup(["reload failed"])
            said = d.lines[seen:]
            assert len(said) == 2 and all(x in said[0] for x in says), said
            with client.Client(d.address) as c:
                r = c.get("/")
                assert (r.body, r.fields["X-Version"]) == (b"one", "one"), r
                assert daemon.is_tier(r.tier, hit), r
        d.reconfigure(TWO)
        with client.Client(d.address) as c:
            assert c.get("/").body == b"two"
    both(ONE, test)


def t_included_files_are_read_again():
    def test(d):
        prepare(d)
        more = os.path.join(d.root, "more.conf")
        for name in ("one", "two"):
            with open(more, "w", encoding="utf-8") as f:
                f.write(f'root = "{d.root}/{name}"\n')
            d.reconfigure('include("{root}/*.conf")\n')
            with client.Client(d.address) as c:
                assert c.get("/").body == name.encode()
        with open(more, "w", encoding="utf-8") as f:
            f.write(f'root = "{d.root}"\naccess-log = "/nonexistent/log"\n')
        seen = len(d.lines)
        d.hup(["reload failed"])
        assert f"{more}:2: access-log" in d.lines[seen], d.lines[seen:]
    both(ONE, test)


def t_no_request_and_no_connection_is_lost():
    """Clients ask all the time while it is exchanged again and again."""
    def test(d):
        prepare(d)
        stop, faults, count = threading.Event(), [], [0]

        def ask():
            try:
                with client.Client(d.address) as c:
                    while not stop.is_set():
                        r = c.get("/")
                        count[0] += 1
                        # one version or the other, never of each a part
                        if r.body.decode() != r.fields["X-Version"]:
                            faults.append(r)
                with client.Client(d.address) as c:
                    c.get("/")
            except Exception as e:              # told below
                faults.append(e)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        try:
            for _ in range(8):
                d.reconfigure(TWO)
                d.reconfigure(ONE)
        finally:
            stop.set()
            for t in threads:
                t.join()
        assert not faults, faults[:3]
        ktap.note(f"{count[0]} answers")
        assert count[0] > 100
    both(ONE, test)


def t_site_that_stays_the_same_stays_cached():
    text = 'root = "{root}/one"\nhost a { }\nhost b { headers = {"X-V: %s"} }\n'

    def test(d):
        hit = prepare(d)
        for host in ("a", "b"):
            with conf.Host(d.address, host) as c:
                c.hot("/same.txt", hit)
        d.reconfigure(text % "2")
        with conf.Host(d.address, "a") as c:
            assert daemon.is_tier(c.get("/same.txt").tier, hit)
        with conf.Host(d.address, "b") as c:
            r = c.get("/same.txt")
            assert (r.tier, r.fields["X-V"]) == ("stored", "2"), r
    both(text % "1", test)


def t_hosts_come_and_go():
    def test(d):
        hit = prepare(d)
        one, two = 'root = "{root}/one"\n', 'host a { root = "{root}/one" }\n' \
                                            'host b { root = "{root}/two" }\n'
        wild = two + 'host "*.w" { root = "{root}/two" }\n'
        moved = 'host b { root = "{root}/one" }\nhost a { root = "{root}/two" }\n'
        wanted = {one: ("one", "one", "one", "one"), two: ("one", "two", "one", "one"),
                  wild: ("one", "two", "two", "one"), moved: ("two", "one", "one", "one")}
        for text in (one, two, wild, moved, wild, one, moved, two):
            d.reconfigure(text)
            for host, body in zip(("a", "b", "x.w", "other"), wanted[text]):
                with conf.Host(d.address, host) as c:
                    for path in ("/index.html", "/"):
                        assert c.get(path).body == body.encode(), (text, host)
                    unknown = text == wild and host in ("x.w", "other")
                    # what wire keeps of an answer ends with the configuration, too
                    for _ in range(4):
                        r = c.hot("/index.html", "user" if unknown else hit)
                        assert r.body == body.encode()
    both('root = "{root}/one"\n', test)


def t_download_under_way_is_finished_as_it_began():
    with Made(ONE) as d:
        size = 64 << 20
        path = os.path.join(d.root, "one/big.bin")
        with open(path, "wb") as f:
            f.truncate(size)
        with client.Client(d.address, rcvbuf=65536) as c:
            c.send(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            head = c.head()
            assert b"X-Version: one" in head, head
            d.reconfigure(TWO)
            left = size - len(c.got)
            c.got = b""
            while left:
                data = c.s.recv(1 << 20)
                assert data, f"{left} bytes were never sent"
                left -= len(data)
            r = c.get("/")
            assert r.fields["X-Version"] == "two", r


def t_same_path_another_folder():
    """A root that was replaced by another folder of its name is another root."""
    with Made(ONE) as d:
        assert client.hot(d, "/", "user").body == b"one"
        os.rename(os.path.join(d.root, "one"), os.path.join(d.root, "old"))
        os.mkdir(os.path.join(d.root, "one"))
        d.write("one/index.html", b"other")
        d.reconfigure(ONE)
        with client.Client(d.address) as c:
            assert c.get("/").body == b"other"
            d.write("one/index.html", b"newer")
            while (r := c.get("/")).body != b"newer":
                assert r.body == b"other", r


CUR = """
host a { root = "{root}/cur" }
host b { root = "%s" }
"""


def lead(d, to):
    """{root}/cur becomes a link to a folder; when it had."""
    os.symlink(to, os.path.join(d.root, "next"))
    os.rename(os.path.join(d.root, "next"), os.path.join(d.root, "cur"))
    return time.monotonic()


def follows(d, host, old, new, done):
    """old may be answered for a while after done, then new, from every tier; how long."""
    with conf.Host(d.address, host) as c:
        while (r := c.get("/")).body != new:
            assert r.body == old, r
            assert time.monotonic() < done + client.WAIT_S, f"{host}: not followed: {r}"
        took = time.monotonic() - done
        assert c.hot("/", "wire" if d.wire else "user").body == new
    return took


def in_time(took):
    """What changes is told within 100 ms; a busy machine may be late now and then."""
    assert statistics.median(took) < .1, took


class Linked(Made):
    def start(self):
        lead(self, "one")
        return super().start()


def t_each_path_to_one_folder_is_followed():
    """A link beside another path to the same folder, and beside itself with a slash."""
    def test(d):
        took = []
        for _ in range(3):
            for host in "ab":
                follows(d, host, None, b"one", time.monotonic())
            done = lead(d, "two")
            took.append(follows(d, "a", b"one", b"two", done))
            follows(d, "b", None, b"one", done)
            took.append(follows(d, "a", b"two", b"one", lead(d, "one")))
        for again in ("{root}/cur/", "{root}/../root/cur//"):
            d.reconfigure(CUR % again)
            for old, new in (("one", "two"), ("two", "one")):
                for host in "ab":
                    follows(d, host, None, old.encode(), time.monotonic())
                done = lead(d, new)
                took += [follows(d, host, old.encode(), new.encode(), done) for host in "ab"]
        in_time(took)
    for wire in (False, True):
        with Linked(CUR % "{root}/one", wire=wire) as d:
            test(d)


def t_path_that_a_reload_brings_is_followed():
    """From a folder's own path to a link that leads there, and back."""
    def test(d):
        link, took = 'root = "{root}/cur"\n', []
        for _ in range(2):
            d.reconfigure(link)
            follows(d, "a", None, b"one", time.monotonic())
            took.append(follows(d, "a", b"one", b"two", lead(d, "two")))
            took.append(follows(d, "a", b"two", b"one", lead(d, "one")))
            d.reconfigure('root = "{root}/one"\n')
            follows(d, "a", None, b"one", time.monotonic())
        in_time(took)
    for wire in (False, True):
        with Linked('root = "{root}/one"\n', wire=wire) as d:
            test(d)


def t_control_thread_that_is_busy_delays_no_change():
    """As in a long reload: a switched link and a replaced file are told all the same."""
    def test(d):
        for host in "ab":
            follows(d, host, None, b"one", time.monotonic())
        with ptrace.stopped(d.process.pid):
            follows(d, "a", b"one", b"two", lead(d, "two"))
            d.write("one/index.html", b"new")
            follows(d, "b", b"one", b"new", time.monotonic())
    for wire in (False, True):
        with Linked(CUR % "{root}/one", wire=wire) as d:
            test(d)


def t_what_cannot_change_is_named():
    with Made(ONE) as d:
        line = d.reconfigure(ONE + 'memory = 8M\nworkers = 7\nidle-timeout = 5\n')
        assert "memory, workers" in line and "idle" not in line, line
        assert "next start" not in d.reconfigure(ONE)
        with client.Client(d.address) as c:
            assert c.get("/").status == 200


def t_limits_change_at_once():
    with Made(ONE) as d:
        big = "GET / HTTP/1.1\r\nHost: x\r\nX: " + "x" * 3000 + "\r\n\r\n"
        assert client.once(d.address, big.encode())[0].status == 200
        d.reconfigure(ONE + "header-max = 2048\n")
        assert client.once(d.address, big.encode())[0].status == 431
        d.reconfigure(ONE + "idle-timeout = 200ms\n")
        with client.Client(d.address) as c:
            c.get("/")
            assert c.ended()


UP = ONE + 'location "/up/" { upstream = "http://127.0.0.1:9" }\n'


def begun(d, data):
    """A connection whose first bytes the daemon's one worker has looked at."""
    c = client.Client(d.address)
    c.send(data)
    with client.Client(d.address) as later:
        assert later.get("/").status == 200
    return c


def t_half_a_head_when_the_last_upstream_goes():
    """A file answers, however its path is written."""
    with Made(UP, "--workers", "1") as d:
        for target, status in (("/a%2Fb", 404), ("/%2Fsame.txt", 200), ("/same.txt", 200)):
            d.reconfigure(UP)
            with begun(d, f"GET {target} HTTP/1.1\r\nHost: a\r\n".encode()) as c:
                d.reconfigure(ONE)
                c.send(b"\r\n")
                r = c.response()
                assert r.status == status, (target, r)
        with client.Client(d.address) as c:
            assert c.get("/").body == b"one"


def t_limits_are_of_the_head_s_time():
    """A head that was within them stays so, until its body has come."""
    log = 'access-log = "{folder}/log"\n'
    head = b"GET /same.txt HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3000 + \
        b"\r\nContent-Length: 5\r\n\r\n"
    with Made(ONE + log, "--workers", "1") as d:
        for before in (b"", b"\r\n"):
            d.reconfigure(ONE + log)
            with begun(d, before + head + b"ab") as c:
                d.reconfigure(ONE + log + "header-max = 2048\n")
                c.send(b"cde")
                r = c.response()
                assert (r.status, r.body) == (200, b"same"), (before, r)
                assert c.get("/").body == b"one"
        d.reconfigure(ONE)      # what the log has left is written

        def logged():
            with open(os.path.join(d.folder, "log"), encoding="latin-1") as f:
                return f.read().count('"GET /same.txt HTTP/1.1" 200 4 ')
        client.until(lambda: logged() == 2, "not logged")


def t_connections_max_changes_at_once():
    """Who is served stays; beyond the new limit one waits until there is room, or a higher
    limit."""
    with Made(ONE) as d:
        def user():
            out = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", d.control,
                                  "--json", "stats"],
                                 capture_output=True, check=True, timeout=client.WAIT_S).stdout
            return json.loads(out)["tiers"]["user"]

        def waiting(nr):
            c = client.Client(d.address)
            # what the kernel's tiers do not answer
            c.send(b"GET / HTTP/1.1\r\nHost: x\r\nCache-Control: no-cache\r\n\r\n")
            net.until(lambda: user()["refused"] == nr)
            assert not select.select([c.s], [], [], 0)[0]
            return c
        held = [client.Client(d.address) for _ in range(3)]
        for c in held:
            c.get("/")
        d.reconfigure(ONE + "connections-max = 2\n")
        late = waiting(1)
        held.pop().close()
        net.until(lambda: user()["connections"] == 2)
        for c in held:
            assert c.get("/").body == b"one"
        assert not select.select([late.s], [], [], 0)[0]
        held.pop().close()
        assert late.response().body == b"one"
        later = waiting(2)
        d.reconfigure(ONE + "connections-max = 3\n")
        assert later.response().body == b"one"
        for c in held + [late, later]:
            c.close()


def t_log_is_exchanged():
    with Made(ONE) as d:
        os.mkdir(os.path.join(d.folder, "log"))
        os.chmod(os.path.join(d.folder, "log"), 0o777)
        with client.Client(d.address) as c:
            for nr, name in enumerate(("a", "b", None, "c")):
                d.reconfigure(ONE + (f'access-log = "{{folder}}/log/{name}"\n' if name else ""))
                c.get(f"/{nr}")
        d.reconfigure(ONE)      # what the last one had is written

        def lines(name):
            with open(os.path.join(d.folder, "log", name), encoding="latin-1") as f:
                return [x.split('"')[1] for x in f]
        for name, line in (("a", "GET /0 HTTP/1.1"), ("b", "GET /1 HTTP/1.1"),
                           ("c", "GET /3 HTTP/1.1")):
            client.until(lambda: lines(name) == [line], name)


def t_log_whose_reader_has_stopped_holds_nobody_up():
    """It has a second to read what is left; meanwhile commands are answered."""
    with Made(ONE) as d, client.Client(d.address) as c:
        fifo = os.path.join(d.folder, "fifo")
        os.mkfifo(fifo)
        os.chmod(fifo, 0o666)
        reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        os.write(reader, b"x" * 4096)
        folder = f"/proc/{d.process.pid}/fd"

        def held():
            return fifo in [os.path.realpath(os.path.join(folder, x)) for x in os.listdir(folder)]

        def lost():
            return talk.ask(d, "stats")["log"]["lost"]

        def answered_meanwhile():
            d.reconfigure(ONE + 'access-log = "{folder}/fifo"\n')
            before = lost()
            c.get("/")
            client.until(lambda: lost() > before, "no line is lost")
            c.get("/")
            d.reconfigure(ONE)
            assert lost() > before
            ret = held()
            client.until(lambda: not held(), "the log is still open")
            return ret
        assert any(answered_meanwhile() for _ in range(3))
        os.close(reader)


def t_many_signals_at_once():
    with Made(ONE) as d:
        d.save(TWO)
        for _ in range(50):
            d.process.send_signal(1)
        d.hup([": reloaded"])
        with client.Client(d.address) as c:
            assert c.get("/").fields["X-Version"] == "two"
        assert d.stop() == 0


def t_reload_needs_a_configuration():
    import daemon
    with daemon.Daemon("--wire", "off") as d:
        d.write("index.html", b"x")
        d.process.send_signal(1)
        with client.Client(d.address) as c:
            while not any("nothing to read again" in x for x in d.lines):
                assert c.get("/").body == b"x"


def t_names_are_looked_up_beside_everything_else():
    """The control thread continues its work while a name server does not answer."""
    d = Made(ONE)
    names.resolve_by(d, names.SERVED)
    with names.Server() as server, d, origin.Origin() as o, client.Client(d.address) as c:
        o.on("/up/", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup")
        for host, status in (("bad.test", 502), ("good.test", 200)):
            before = c.get("/up/").status
            seen = len(d.lines)
            d.save(ONE + f'location "/up/" {{ upstream = "http://{host}:{o.port}" }}\n')
            d.process.send_signal(1)
            query = server.question()
            for i in range(3):
                d.write("one/index.html", b"%s %d" % (host.encode(), i))
                client.until(lambda i=i: c.get("/").body == b"%s %d" % (host.encode(), i),
                             "no change is seen")
                d.process.send_signal(1)        # the file is read once more anyway
            assert not any("reloaded" in x for x in d.lines[seen:]), d.lines
            assert c.get("/up/").status == before
            server.answers_until(query,
                                 lambda seen=seen: any(": reloaded" in x for x in d.lines[seen:]))
            client.until(lambda status=status: c.get("/up/").status == status, f"not {status}")
        assert c.get("/up/").body == b"up"
        assert any('"bad.test"' in x and "502" in x for x in d.lines), d.lines
        d.save('upstream = "http://last.test"\n')
        d.process.send_signal(1)
        server.question()
        assert d.stop() == 0, "its end waits for no name"


def t_descriptors_and_roots_do_not_pile_up():
    with Made(ONE) as d:
        d.reconfigure(TWO)
        d.reconfigure(ONE)

        def open_files():
            return len(os.listdir(f"/proc/{d.pid}/fd"))
        before = open_files()
        for _ in range(10):
            d.reconfigure(TWO)
            d.reconfigure(ONE)
        # the retired one of the last exchange may be closed a moment later
        assert open_files() <= before + 2, (before, open_files())


def t_all_roots_can_be_exchanged_at_once():
    """The maximum of one configuration, repeatedly; one more is refused."""
    def hosts(release, nr):
        return "".join(f'host "s{i}.x" {{ root = "{{root}}/{release}/s{i}" }}\n' for i in range(nr))
    d = conf.Conf(hosts("one", 256))
    for release in ("one", "two"):
        for i in range(257):
            os.makedirs(os.path.join(d.root, release, f"s{i}"), exist_ok=True)
            d.write(f"{release}/s{i}/a.txt", release.encode())
    with d:
        def body(i):
            with conf.Host(d.address, f"s{i}.x") as c:
                return c.get("/a.txt").body
        for release in ("one", "two", "one", "two"):
            d.reconfigure(hosts(release, 256))
            for i in (0, 255):
                assert body(i) == release.encode()
        seen = len(d.lines)
        d.save(hosts("one", 257))
        d.process.send_signal(1)
        client.until(lambda: any(":257: " in x and "more than 256 different roots" in x
                                 for x in d.lines[seen:]))
        assert body(0) == b"two"


if __name__ == "__main__":
    ktap.run(globals())
