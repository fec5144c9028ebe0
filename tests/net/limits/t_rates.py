#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Limits of requests by client: one for all tiers, and the same answers by each.

Each test is made with a daemon alone, with wire, and with sock. Rates are so low, but
for one, that nothing fills again while a test runs; each test has clients of its own.
"""
import os
import re
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import talk

TEXT = 'root = "{root}"\naccess-log = "{folder}/access.log"\n' \
       'access-log-format = "$remote $status $tier $reason $request"\n'
BURST = 12
LIMIT = f"limit-requests = 1/h\nlimit-burst = {BURST}\n"
daemons = {}                    # by tier
no_wire = None
clients_nr = 0


def begin():
    global no_wire
    daemons["user"] = conf.Conf(TEXT).start()
    try:
        daemons["wire"] = conf.Conf(TEXT, wire=True).start()
    except ktap.Skip as e:
        no_wire = e
    d = daemons["sock"] = conf.Conf(TEXT, "--tiers", "sock,user", "--sock", "unlisted").start()
    if not talk.ask(d, "status")["tiers"]["sock"]["on"]:
        daemons.pop("sock").stop()
    for tier, x in daemons.items():
        x.write("f.txt", b"text\n")
        client.hot(x, "/f.txt", tier)


def end():
    for d in daemons.values():
        d.stop()


def ways(test, text=TEXT + LIMIT):
    """With each tier that this kernel has: test(daemon, tier, an address, another near it)."""
    global clients_nr
    for tier, d in daemons.items():
        clients_nr += 1
        d.reconfigure(text)
        test(d, tier, f"127.0.{clients_nr}.9", f"127.0.{clients_nr}.10")
    if no_wire:
        raise no_wire


class Asker:
    """Requests of one client, on one connection as long as it lasts; statuses and tiers."""

    def __init__(self, d, source):
        self.d, self.source, self.c, self.tiers = d, source, None, []

    def get(self, path="/f.txt", *fields):
        if not self.c:
            self.c = client.Client(self.d.address, source=self.source)
        try:
            r = self.c.get(path, *fields)
        except (ConnectionError, EOFError):
            assert not self.c.got, self.c.got
            self.close()
            return None
        self.tiers.append(r.tier)
        if r.fields.get("Connection") == "close":
            assert self.c.ended()
            self.close()
        return r

    def statuses(self, nr):
        return [r and r.status for r in (self.get() for _ in range(nr))]

    def close(self):
        if self.c:
            self.c.s.close()
        self.c = None


def limited(d, by="requests"):
    return talk.ask(d, "stats")["tiers"]["user"]["limited"][by]


def logged(d, line):
    with open(os.path.join(d.folder, "access.log"), encoding="ascii") as f:
        return f.readlines().count(line + "\n")


def t_the_burst_passes_and_then_none_whichever_tier_answers():
    def test(d, tier, one, other):
        a, b, before = Asker(d, one), Asker(d, other), limited(d)
        assert a.statuses(BURST) == BURST * [200]
        assert any(daemon.is_tier(x, tier) for x in a.tiers), a.tiers
        r = a.get()
        assert r.status == 429 and 3000 < int(r.fields["Retry-After"]) <= 3600, r
        assert b"text\n" not in r.body and r.tier == "none", r
        assert a.statuses(3) == 3 * [429] and limited(d) - before == 4
        if tier != "user":
            assert talk.counts(d).get("LIMITED"), talk.counts(d)
        # on a connection that has been a hit's, and others' are not
        assert b.statuses(BURST) == BURST * [200] and b.get().status == 429
        a.close()
        b.close()
    ways(test)


def t_tiers_refuse_with_the_same_bytes():
    seen = set()

    def test(d, _tier, one, other):
        a = Asker(d, one)
        a.statuses(BURST)
        head, body = a.get().bare()
        seen.add((re.sub(rb"\r\nRetry-After: \d+", b"", head), body))
    ways(test)
    assert len(seen) == 1, seen


def t_a_client_is_served_again_at_its_rate():
    def test(d, _tier, one, other):
        a = Asker(d, one)
        client.until(lambda: a.get().status == 429, "never refused")
        client.until(lambda: a.get().status == 200, "never served again")
        a.close()
    ways(test, TEXT + "limit-requests = 1/s\nlimit-burst = 2\n")


def t_misses_errors_and_bad_requests_count_too():
    def test(d, _tier, one, other):
        a = Asker(d, one)
        assert [a.get(f"/{i}").status for i in range(BURST - 2)] == (BURST - 2) * [404]
        assert a.get("/f.txt", "Transfer-Encoding: nonsense").status >= 400
        assert a.get("/f.txt", "Range: bytes=0-1").status == 206
        assert a.statuses(2) == [429, 429]
        assert a.get("/f.txt", "Transfer-Encoding: nonsense").status == 429
    ways(test)


def t_pipelined_requests_count_each():
    def test(d, _tier, one, other):
        with client.Client(d.address, source=one) as c:
            c.send((BURST + 5) * talk.request("/f.txt"))
            assert [c.response().status for _ in range(BURST + 1)] == BURST * [200] + [429]
            assert c.ended()
    ways(test)


def t_who_is_dropped_gets_no_byte_and_a_line_in_the_log():
    def test(d, _tier, one, other):
        a, before = Asker(d, one), limited(d)
        assert a.statuses(BURST + 2) == BURST * [200] + [None, None]
        assert limited(d) - before == 2
        line = f"{one} 444 user limit-requests GET /f.txt HTTP/1.1"
        client.until(lambda: logged(d, line) == 2, "not logged")
    ways(test, TEXT + LIMIT + "deny-answer = drop\n")


def t_the_answer_is_what_is_configured():
    def test(d, _tier, one, other):
        a = Asker(d, one)
        a.statuses(BURST)
        r = a.get()
        assert r.status == 403 and "Retry-After" not in r.fields, r
        talk.ask(d, "deny", other)
        assert Asker(d, other).get().status == 403
        d.reconfigure(TEXT + LIMIT + "deny-answer = 429\n")
        assert a.get().status == 429
        r = Asker(d, other).get()
        assert r.status == 429 and "Retry-After" not in r.fields, r
    ways(test, TEXT + LIMIT + "deny-answer = 403\n")


def t_a_reload_sets_changes_and_ends_the_limit():
    def test(d, tier, one, other):
        a = Asker(d, one)
        assert a.statuses(3 * BURST) == 3 * BURST * [200]
        d.reconfigure(TEXT + LIMIT)
        assert a.statuses(BURST + 1) == BURST * [200] + [429]
        d.reconfigure(TEXT + LIMIT + "index = off\n")         # the same limit: nothing is forgiven
        assert a.get().status == 429
        d.reconfigure(TEXT + "limit-requests = 1/h\nlimit-burst = 2\n")
        assert a.statuses(3) == [200, 200, 429]
        d.reconfigure(TEXT)
        assert a.statuses(2 * BURST) == 2 * BURST * [200]
        assert a.c.hot("/f.txt", tier).status == 200
        a.close()
    ways(test, TEXT)


def t_a_prefix_is_one_client():
    def test(d, _tier, one, other):
        a, b, far = Asker(d, one), Asker(d, other), Asker(d, "127.1.0.9")
        assert a.statuses(BURST - 1) + b.statuses(2) == BURST * [200] + [429]
        assert a.get().status == 429 and far.statuses(BURST) == BURST * [200]
        far.close()
    ways(test, TEXT + LIMIT + "client-prefix4 = 24\n")


def t_the_log_and_monitoring_have_who_was_refused():
    def test(d, _tier, one, other):
        a = Asker(d, one)
        a.statuses(BURST + 1)
        line = f"{one} 429 user limit-requests GET /f.txt HTTP/1.1"
        client.until(lambda: logged(d, line) == 1, "not logged")
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(client.WAIT_S)
            s.connect(os.path.join(d.folder, "admin.sock"))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            with s.makefile("rb") as f:
                text = f.read().decode()
        assert f'toboggan_denied_total{{by="requests"}} {limited(d)}\n' in text, text
        assert 'toboggan_denied_total{by="list"} ' in text, text
    ways(test)


def phases(d, source):
    """The states of that client's connections."""
    return [x["state"] for x in talk.ask(d, "connections")["connections"]
            if x["address"].startswith(f"{source}:")]


def unasked(d, source):
    """The answer to a new connection from there before any request; None: a reset."""
    try:
        with client.Client(d.address, source=source) as c:
            r = c.response()
            assert c.ended()
            return r
    except ConnectionError:
        return None


def served(d, source):
    """Whether a new connection from there is answered as usual."""
    try:
        with client.Client(d.address, source=source) as c:
            return c.get("/f.txt").status == 200
    except (ConnectionError, EOFError):
        return False


def t_connections_beyond_the_limit_are_refused_at_once():
    def test(d, _tier, one, other):
        before = limited(d, "connections")
        mine = [client.Client(d.address, source=one) for _ in range(3)]
        assert [c.get("/f.txt").status for c in mine] == [200, 200, 200]
        client.until(lambda: len(phases(d, one)) == 3, "not accepted")
        for _ in range(2):
            r = unasked(d, one)
            assert r.status == 429 and r.fields["Retry-After"] == "1", r
        assert limited(d, "connections") - before == 2
        assert served(d, other)
        # the others are as they were, and with one of them gone there is room
        assert [c.get("/f.txt").status for c in mine] == [200, 200, 200]
        mine.pop().s.close()
        client.until(lambda: served(d, one), "never room again")
        line = f"{one} 429 user limit-connections -"
        client.until(lambda: logged(d, line) >= 2, "not logged")
        d.reconfigure(TEXT + "limit-connections = 2\ndeny-answer = drop\n")
        assert unasked(d, one) is None
        d.reconfigure(TEXT)
        assert served(d, one)
        for c in mine:
            c.s.close()
    ways(test, TEXT + "limit-connections = 3\n")


def t_unfinished_heads_beyond_the_limit_are_refused():
    def test(d, _tier, one, other):
        before = limited(d, "heads")
        halves = [client.Client(d.address, source=one) for _ in range(3)]
        for c in halves[:2]:
            c.send(b"GET /f.txt HTTP/1.1\r\nHost: ")
        client.until(lambda: phases(d, one).count("head") == 2, "never seen")
        halves[2].send(b"GET /f")
        r = halves[2].response()
        assert r.status == 429 and r.fields["Retry-After"] == "1" and halves[2].ended(), r
        assert limited(d, "heads") - before == 1
        # whole ones are answered, other clients have their own, and a place that is free is taken
        with client.Client(d.address, source=one) as c:
            assert c.get("/f.txt").status == 200
        with client.Client(d.address, source=other) as c:
            c.send(b"GET /f.txt HTTP/1.1\r\n")
            c.send(b"Host: x\r\n\r\n")
            assert c.response().status == 200
        halves[0].send(b"x\r\n\r\n")
        assert halves[0].response().status == 200
        halves[0].send(b"GET /f.txt HTTP/1.1\r\nHost: ")
        client.until(lambda: phases(d, one).count("head") == 2, "never seen")
        halves[1].s.close()

        def room():
            with client.Client(d.address, source=one) as c:
                c.send(b"GET /f.txt HTTP/1.1\r\n")
                client.until(lambda: phases(d, one).count("head") == 2 or
                             limited(d, "heads") > refused, "never seen")
                c.send(b"Host: x\r\n\r\n")
                return c.response().status == 200
        refused = limited(d, "heads")
        client.until(room, "never room again")
    ways(test, TEXT + "limit-heads = 2\n")


def t_what_is_no_rate_is_refused():
    d = daemons["user"]
    for bad in ("limit-requests = 1/d", "limit-requests = many", "client-prefix4 = 33",
                "client-prefix6 = 0", "deny-answer = 404"):
        d.save(TEXT + bad + "\n")
        assert "reload failed" in d.hup((": reloaded", "reload failed")), bad


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
