#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A daemon that is killed, stopped, drained or joined by another, under load.

What a client has received is at all times the beginning of the right answers;
what is on the interfaces is one set of programs per daemon, and none after it.
"""
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import maps
import net
import talk

PORT, OTHER = 8080, 8081
KILLS = 2 if client.IN_VM else 5
CLIENTS = 16
SIZES = (0, 1, 500, 1100, 3000, 20000, 90000)
INTERFACES = ("lo", "tbg0")
HOOKS = ("ingress",) if daemon.LATE else tuple(net.TCX)
n = site = None
names = {}          # target → body


def begin():
    global n, site
    n = net.Net(links=1)
    site = daemon.Daemon()      # never started: a root for all the others
    for size in SIZES:
        for i in range(3):
            names[f"/{size}-{i}"] = talk.content(f"{size}-{i}", size)
            site.write(f"{size}-{i}", names[f"/{size}-{i}"])
    names["/huge"] = talk.content("huge", 8 << 20)
    site.write("huge", names["/huge"])
    with running():
        pass


def end():
    if site:
        site.clean()
    if n:
        n.close()


def started(port=PORT, interfaces=INTERFACES, options=(), **more):
    with n.server.inside():
        d = daemon.Daemon("--wire", ",".join(interfaces), "--workers", "2", *options,
                          listen=f"0.0.0.0:{port}", root=site.root, **more).start()
    tier = talk.ask(d, "status")["tiers"]["wire"]
    if not tier["on"]:
        d.stop()
        raise ktap.Skip(daemon.why_off("wire", tier["why"]))
    return d


@contextlib.contextmanager
def running(*args, **more):
    d = started(*args, **more)
    try:
        yield d
        assert d.stop() == 0, d.lines
    except BaseException:
        for line in d.lines[-10:]:
            ktap.note(f"toboggand: {line}")
        if d.process.poll() is None:
            d.kill()
        raise


@contextlib.contextmanager
def anyhow(*options):
    """A daemon that may have no wire, or not even start."""
    with n.server.inside():
        d = daemon.Daemon(*options, listen=f"0.0.0.0:{PORT}", root=site.root)
        with contextlib.suppress(RuntimeError):
            d.start()
    try:
        yield d
    finally:
        d.stop()


@contextlib.contextmanager
def doomed(*args, **more):
    """A daemon that ends by SIGKILL."""
    d = started(*args, **more)
    try:
        yield d
    finally:
        d.kill()


def connect(port=PORT, setup=None):
    return talk.Connection(n.client.connect((n.links[0].server4, port), setup=setup))


def warm(port=PORT):
    """Everything but /huge and the last of each size is cached; wire answers."""
    with connect(port) as c:
        for target, body in names.items():
            if target != "/huge" and not target.endswith("-2"):
                assert c.get(target).body == body
        net.until(lambda: c.get("/500-0").tier == "wire", "never published")


def sets(daemons, interfaces=INTERFACES, at=None):
    """The programs of this many daemons, as Namespace.programs() has them."""
    return {(name, hook): [f"tbg_{hook}"] * daemons
            for name in interfaces for hook in at or HOOKS} if daemons else {}


def one_set(daemons=1, interfaces=INTERFACES, at=None):
    """The programs on the interfaces are those of this many daemons."""
    got, want = n.server.programs(), sets(daemons, interfaces, at)
    assert got == want, f"{got}, wanted {want}"


def alone(at=None):
    """Wait until what a killed daemon left beside a running one is gone."""
    net.until(lambda: n.server.programs() == sets(1, at=at), "more than one set of programs")


def is_beginning(got, target):
    """Whether got is how a right answer to GET target begins, Date apart."""
    body = names[target]
    for status in (b"hit; detail=wire", b"hit; detail=user", b"fwd=uri-miss; stored",
                   b"fwd=uri-miss"):
        for closing in (b"", b"Connection: close\r\n"):
            at = 0
            etag = etags[target].encode()
            modified = modifieds[target].encode()
            want = (b"HTTP/1.1 200 OK\r\nServer: toboggan\r\nDate: " + b"?" * 29 +
                    b"\r\nContent-Type: application/octet-stream\r\nContent-Length: %d"
                    b"\r\nAccept-Ranges: bytes\r\nLast-Modified: %s\r\nETag: %s\r\n"
                    b"Cache-Status: toboggan; %s\r\n%s\r\n"
                    % (len(body), modified, etag, status, closing)) + body
            at = want.index(b"?" * 29)
            if got[:at] == want[:min(at, len(got))] and \
               got[at + 29:] == want[at + 29:len(got)] and len(got) <= len(want):
                return True
    return False


etags, modifieds = {}, {}


def learn(port=PORT):
    with connect(port) as c:
        for target in names:
            r = c.ask("HEAD", target)
            etags[target], modifieds[target] = r.fields["ETag"], r.fields["Last-Modified"]


def is_gone(c):
    """
    Whether the server is: by the socket's FIN, or by a reset at the next segment. The kernel
    takes the program that answers away a moment after the daemon's end.
    """
    try:
        for _ in range(1000 if daemon.LATE else 0):
            assert c.get("/500-0").body == names["/500-0"]
        return c.ended()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return True


def read_to_the_end(c, asked, killed=False):
    """All whole answers are right, and so is what there is of the next one; its length."""
    whole = 0
    with c:
        try:
            for target in asked:
                r = c.response()
                assert (r.status, r.body) == (200, names[target]), f"{target}: {r}"
                whole += 1
            assert is_gone(c) if killed else not c.s.recv(1), "more than the answers"
        except (EOFError, ConnectionResetError):
            # a body that stays short is in the exception's way: got has all of it
            pass
        left = c.got
    if left:
        assert whole < len(asked), f"more than the answers: {left[:100]!r}"
        assert is_beginning(left, asked[whole]), f"{asked[whole]}: {left[:300]!r}"
    return whole, len(left)


class Whole(talk.Connection):
    """Keeps what it got of a body that stays short."""

    def response(self, method="GET"):
        head = self.head()
        r = client.Response(head, b"")
        length = int(r.fields["Content-Length"])
        self.got = head + b"\r\n\r\n" + self.got
        total = len(head) + 4 + length
        got = bytearray(self.got)
        try:
            while len(got) < total:
                data = self.s.recv(1 << 18)
                if not data:
                    raise EOFError("end within a body")
                got += data
        finally:
            self.got = bytes(got)
        r.body, self.got = self.got[len(head) + 4:total], self.got[total:]
        return r


def load(port=PORT):
    """Connections with requests on their way: [(connection, targets asked for)]."""
    ret = []
    targets = [t for t in names if t != "/huge"]
    for i in range(CLIENTS):
        c = Whole(n.client.connect((n.links[0].server4, port)))
        for k in range(4):
            target = targets[(i * 5 + k * 3) % len(targets)]
            assert c.get(target).body == names[target]
        ret.append((c, []))
    for i, (c, asked) in enumerate(ret):
        asked += [targets[(i * 7 + k * 11) % len(targets)] for k in range(1 + i % 4)]
        if i % 4 == 3:
            asked.insert(1, "/huge")
        c.send(b"".join(talk.request(target) for target in asked))
    return ret


def unread(s):
    return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]


def under_way(some):
    """The answers for /huge have begun, behind a short one."""
    for c, asked in some:
        if asked[1:2] == ["/huge"] and len(names[asked[0]]) < 10_000:
            net.until(lambda c=c: unread(c.s) > 20_000, "no answer has begun")


def t_killed_under_load():
    cut = whole = 0
    for i in range(KILLS):
        d = started()
        try:
            learn()
            warm()
            idle = connect()
            assert idle.get("/500-0").tier == "wire"
            mixed = connect()
            for target in ("/500-0", "/20000-0", "/500-1", "/90000-2", "/500-0"):
                assert mixed.get(target).body == names[target]
            some = load()
            under_way(some)
            d.process.kill()
            d.process.wait()
            # some of them ask again, of nobody
            for c, asked in some[i % 2::2]:
                with contextlib.suppress(OSError):
                    c.send(talk.request("/500-0"))
                    asked.append("/500-0")
            for c, asked in some:
                w, part = read_to_the_end(c, asked, killed=True)
                whole += w
                cut += part > 0
            for c in (idle, mixed):
                with c:
                    assert is_gone(c), f"bytes from nowhere: {c.got[:100]!r}"
        finally:
            d.kill()
    ktap.note(f"{whole} whole answers, {cut} cut short")
    assert cut, "nothing was on its way when the daemon died"
    with running():
        alone()
        warm()
    one_set(0)


def t_next_start_takes_the_place_of_a_killed_one():
    before = n.server.traces()
    for _ in range(3):
        with doomed():
            one_set()
            warm()
    with running():
        one_set()
        warm()
    assert n.server.traces() == before


def t_next_start_elsewhere_removes_what_a_killed_one_left():
    before = n.server.traces()
    with doomed():
        one_set()
    with running(interfaces=("lo",)):
        one_set(interfaces=("lo",))
    assert n.server.traces() == before


def t_next_start_without_wire_removes_what_a_killed_one_left():
    before = n.server.traces()
    for how in (("--tiers", "user"), ("--wire", "off")):
        with doomed():
            one_set()
        with anyhow(*how):
            one_set(0)
        assert n.server.traces() == before


def t_next_start_has_flows_for_its_own_connections():
    """However few the killed one had."""
    name = maps.TCBS if daemon.LATE else maps.FLOWS
    with doomed(options=("--memory", "1M", "--connections-max", "100")) as d:
        few = maps.info(d.pid, name)["max_entries"]
    with running() as d:
        assert maps.info(d.pid, name)["max_entries"] > few


def t_what_a_killed_daemon_has_sent_is_not_shifted():
    """Whatever the next start does: the kernel sends it on for a while."""
    for how in ((), ("--wire", "tbg0,lo"), ("--wire", "lo"), ("--tiers", "user"),
                ("--wire", "tbg0", "--access-log", "/nonexistent/log")):
        with doomed() as d:
            learn()
            warm()
            c = Whole(n.client.connect((n.links[0].server4, PORT),
                                       setup=lambda s: s.setsockopt(1, 8, 20000)))  # SO_RCVBUF
            for _ in range(4):
                assert c.get("/500-0").tier == "wire"
            c.send(talk.request("/huge"))
            c.got = c.s.recv(1)
            d.kill()
            with anyhow(*how) if how else contextlib.nullcontext():
                _, part = read_to_the_end(c, ["/huge"])
                assert part > 40000, f"{how}: {part} bytes, no more than were on their way"
    with running():
        alone()
    one_set(0)


def t_connections_of_a_killed_daemon_close_by_the_next():
    """Their last segments are translated by programs that stay beside the next one's."""
    translated = ("--late-sockets", "off")
    with doomed(options=translated) as d:
        learn()
        warm()
        cs = [connect() for _ in range(8)]
        for c in cs:
            assert c.get("/500-0").tier == "wire"
            assert c.get("/1100-2").body == names["/1100-2"]
            assert c.get("/500-0").tier == "wire"
        with n.clean(PORT, "OutRsts", "EstabResets", "TCPAbortOnData"):
            d.kill()
            with running(options=translated):
                one_set(2, at=net.TCX)
                for c in cs:
                    with c:
                        assert c.ended(), f"bytes from nowhere: {c.got[:100]!r}"
                alone(at=net.TCX)
                warm()


def t_sigterm_leaves_nothing():
    before = n.server.traces()
    with running():
        one_set()
        assert n.server.traces() != before
        warm()
    assert n.server.traces() == before


def t_sigterm_leaves_what_is_of_others():
    n.server.run("tc", "qdisc", "add", "dev", "tbg0", "clsact")
    try:
        # a filter too, where the kernel has one that this tc knows
        n.server.run("tc", "filter", "add", "dev", "tbg0", "ingress", "pref", "7", "protocol",
                     "all", "matchall", "action", "continue", check=False)
        before = n.server.traces()
        with running():
            warm()
        assert n.server.traces() == before
        started().kill()
        with running():
            warm()
        assert n.server.traces() == before
        assert "clsact" in before
    finally:
        n.server.run("tc", "qdisc", "del", "dev", "tbg0", "clsact")


def attached_again(d):
    """The lines that say so, once there is one."""
    return net.until(lambda: [line for line in d.lines if "attached again" in line], "not said")


def t_programs_that_somebody_removes_are_attached_again():
    before = n.server.traces()
    with running() as d:
        warm()
        with connect() as c:
            assert c.get("/500-0").tier == "wire"
            n.server.strip("tbg0")
            said = attached_again(d)
            one_set()
            assert c.get("/1100-2").body == names["/1100-2"]
            assert c.get("/500-0").tier == "wire"
        warm()
        assert len(said) == 1 and "on tbg0 were removed" in said[0], d.lines
    assert n.server.traces() == before


def t_programs_that_somebody_removes_from_one_hook_are_attached_again():
    before = n.server.traces()
    for hook in HOOKS:
        with running() as d:
            warm()
            with connect() as c:
                assert c.get("/500-0").tier == "wire"
                n.server.strip("tbg0", (hook,))
                attached_again(d)
                one_set()
                assert c.get("/1100-2").body == names["/1100-2"]
                assert c.get("/500-0").tier == "wire"
        assert n.server.traces() == before, hook


def t_ingress_qdisc_is_not_taken_for_clsact():
    """It has no egress: where there is no tcx, wire is off, and says why."""
    n.server.run("tc", "qdisc", "add", "dev", "tbg0", "ingress")
    try:
        before = n.server.traces()
        with n.server.inside():
            d = daemon.Daemon("--wire", "tbg0", listen=f"0.0.0.0:{PORT}", root=site.root).start()
        try:
            wire = talk.ask(d, "status")["tiers"]["wire"]
            assert wire["on"] or "ingress qdisc" in wire["why"], wire
            if wire["on"]:
                one_set(interfaces=("tbg0",))
        finally:
            d.stop()
        assert n.server.traces() == before
    finally:
        n.server.run("tc", "qdisc", "del", "dev", "tbg0", "ingress")


def t_sigterm_under_load_drains():
    """Every answer that has begun is finished; the daemon then ends by itself."""
    for _ in range(KILLS):
        d = started()
        try:
            learn()
            warm()
            some = load()
            slow = connect(setup=lambda s: s.setsockopt(1, 8, 20000))       # SO_RCVBUF
            slow.send(talk.request("/huge"))
            slow.s.recv(1)
            d.process.send_signal(signal.SIGTERM)
            for c, asked in some:
                _, part = read_to_the_end(c, asked)
                assert not part, f"{asked}: {part} bytes of an unfinished answer"
            slow.got = b"H"
            with slow:
                r = slow.response()
                assert r.body == names["/huge"]
                assert slow.ended()
            assert d.process.wait(daemon.STOP_S) == 0, d.lines
        finally:
            d.stop()
    one_set(0)


def t_hits_go_on_while_the_daemon_is_stopped():
    with running() as d:
        warm()
        cs = [connect() for _ in range(4)]
        miss = connect()
        for c in cs:
            assert c.get("/500-0").tier == "wire"
        # news of a fresh file must not be on their way
        before = talk.hits(d)
        with daemon.stopped(d.pid):
            fresh = connect()       # the kernel accepts for a daemon that does not
            miss.send(talk.request("/1100-2"))
            for i in range(200):
                r = cs[i % 4].get(f"/500-{i % 2}")
                assert r.tier == "wire" and r.body == names[f"/500-{i % 2}"], r
            r = fresh.get("/500-0")
            assert r.tier == "wire", r
            fresh.send(talk.request("/huge"))
            # a request behind a miss waits for it: doubt goes up
            cs[3].send(talk.request("/90000-2"))
            cs[3].acked()
            cs[3].send(talk.request("/500-0"))
            cs[3].acked()
            for c in (miss, fresh, cs[3]):
                c.s.setblocking(False)
                try:
                    got = c.s.recv(1)
                    raise AssertionError(f"an answer of a stopped daemon: {got!r}")
                except BlockingIOError:
                    c.s.settimeout(client.WAIT_S)
        assert miss.response().body == names["/1100-2"]
        assert fresh.response().body == names["/huge"]
        assert cs[3].response().body == names["/90000-2"]
        assert cs[3].response().body == names["/500-0"]
        for c in (*cs, miss, fresh):
            with c:
                assert c.get("/500-0").tier == "wire"
        assert talk.hits(d) == before + 201 + 6


def t_two_daemons_on_one_interface():
    before = n.server.traces()
    with running(PORT) as one:
        warm(PORT)
        with running(OTHER) as two:
            one_set(2)
            warm(OTHER)
            with connect(PORT) as a, connect(OTHER) as b:
                for i in range(50):
                    for c in (a, b):
                        assert c.get("/500-0").tier == "wire"
                        target = list(names)[i % (len(names) - 1)]
                        assert c.get(target).body == names[target]
            assert talk.hits(one) and talk.hits(two)
            counts = [talk.counts(d) for d in (one, two)]
            assert not any(c["REPEAT"] or c["STALE_REPEAT"] or c["CSUM"] for c in counts), counts
        one_set(1)
        with connect(PORT) as a:
            assert a.get("/500-0").tier == "wire"
        started(OTHER).kill()       # a dead neighbour takes nothing with it
        if daemon.LATE:
            alone()
        else:
            one_set(2)
        with connect(PORT) as a:
            assert a.get("/500-0").tier == "wire"
            with running(OTHER):
                one_set(2)
                warm(OTHER)
                assert a.get("/500-0").tier == "wire"
        one_set(1)
    assert n.server.traces() == before


def t_two_daemons_with_one_pid():
    """Daemons in containers that share the host's interfaces: each is PID 1 of its namespace."""
    alone = ("unshare", "--pid", "--fork")
    ds = []
    try:
        for port in (PORT, OTHER):
            ds.append(started(port, prefix=alone))
            warm(port)
        one_set(2)
        with connect(PORT) as a, connect(OTHER) as b:
            for _ in range(20):
                assert a.get("/500-0").tier == b.get("/500-0").tier == "wire"
                assert a.get("/1100-2").body == b.get("/1100-2").body == names["/1100-2"]
        counts = [talk.counts(d) for d in ds]
        assert not any(c["REPEAT"] or c["YIELD"] for c in counts), counts
    finally:
        for d in ds:
            n.server.run("pkill", "-TERM", "-P", str(d.pid))
            assert d.process.wait(daemon.STOP_S) == 0, d.lines
            d.stop()


def t_second_daemon_on_a_taken_port_is_refused():
    with running() as d:
        warm()
        try:
            with n.server.inside():
                daemon.Daemon("--wire", "tbg0", listen=f"0.0.0.0:{PORT}", root=site.root).start()
        except RuntimeError as why:
            assert "exit 1" in str(why) and str(PORT) in str(why), why
        else:
            raise AssertionError("two daemons on one port")
        one_set()
        with connect() as c:
            assert c.get("/500-0").tier == "wire"
        assert d.process.poll() is None


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
