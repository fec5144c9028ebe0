#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Names of upstreams' servers: what one that leads nowhere stops, and what follows one that
moves."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import names
import origin

os.environ["TOBOGGAND_TEST_TIMERS"] = \
    "addresses-start=1s,addresses-missing=1s,addresses-again=2s"
UP = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=%d\r\nContent-Length: 2\r\n\r\n%s"
TWO = """host "one.test" {{ root = "{{root}}" default = on
location "/up/" {{ upstream = "http://{0}:{1}" }} }}
host "two.test" {{ upstream = "both" }}
upstream "both" {{ server = {{ "127.0.0.1:{1}", "{0}:{1}" }} }}
"""


def config(name, port):
    return TWO.replace("{{", "{").replace("}}", "}").replace("{0}", name).replace("{1}", str(port))


def upstreams(d):
    words = [daemon.TOOL, "--json", "--control", d.control, "status"]
    status = json.loads(subprocess.run(words, capture_output=True, check=True,
                                       timeout=client.WAIT_S).stdout)
    return {x["upstream"]: x for x in status["upstreams"]}


def t_a_missing_name_stops_its_location_alone():
    with origin.Origin() as o:
        o.on("/up/", UP % (0, b"up"))
        o.on("/", UP % (0, b"2."))
        d = conf.Conf(config("missing.test", o.port))
        names.resolve_by(d, "127.0.0.1 other.test\n")
        d.write("index.html", b"page")
        with d, client.Client(d.address) as c, conf.Host(d.address, "two.test") as two:
            assert any('"missing.test"' in x and "502" in x for x in d.lines), d.lines
            assert c.get("/").body == b"page"
            assert c.get("/up/").status == 502
            for _ in range(4):
                assert two.get("/").body == b"2."
            missing = upstreams(d)[f"http://missing.test:{o.port}"]
            assert missing["server"] == "(no address)" and missing["rests"], missing
            d.hosts("127.0.0.1 missing.test\n")
            client.until(lambda: c.get("/up/").status == 200, "the name is not looked up again")
            assert c.get("/up/").body == b"up" and c.get("/").body == b"page"
            client.logs(d, '"missing.test": it has an address now')
            # and so it is at a reload: the rest of a new configuration is taken
            d.write("index.html", b"other")
            d.reconfigure(config("gone.test", o.port))
            assert c.get("/up/").status == 502 and c.get("/").body == b"other"


def t_a_name_that_moves_is_followed_and_what_is_stored_stays():
    with origin.Origin() as o, origin.Origin(at=("127.0.0.2", o.port)) as other:
        for x, text in ((o, b"o1"), (other, b"o2")):
            x.on("/up/", UP % (0, text))
            x.on("/up/kept", UP % (3600, text))
        d = conf.Conf(config("moves.test", o.port))
        names.resolve_by(d, "127.0.0.1 moves.test\n")
        d.write("index.html", b"page")
        with d, client.Client(d.address) as c:
            assert c.get("/up/").body == b"o1" and c.get("/up/kept").body == b"o1"
            d.hosts("127.0.0.2 moves.test\n")
            client.until(lambda: c.get("/up/").body == b"o2", "it is asked where it was")
            r = c.get("/up/kept")
            assert r.body == b"o1" and "hit" in r.fields["Cache-Status"], r
            # a resolver that finds nothing takes nothing away
            d.hosts("127.0.0.1 other.test\n")
            client.logs(d, '"moves.test"')
            assert c.get("/up/").body == b"o2"
            assert not any("reloaded" in x for x in d.lines), d.lines


def t_a_name_server_that_is_silent_holds_no_start_up():
    d = conf.Conf(config("good.test", 1))
    names.resolve_by(d, names.SERVED)
    d.write("index.html", b"page")
    with names.Server() as server, d, client.Client(d.address) as c:
        assert c.get("/").body == b"page"
        assert c.get("/up/").status == 502
        assert any('"good.test"' in x for x in d.lines), d.lines
        # it is asked again, and answers now
        server.answers_until(None, lambda: any("has an address now" in x for x in d.lines))


def t_what_is_no_name_is_refused():
    for name in ("10.0.0.300", "bad_name!", "[fe80::x]"):
        d = conf.Conf(config(name, 80))
        p = subprocess.run([daemon.BINARY, "--check", d.path], capture_output=True, text=True,
                           timeout=daemon.READY_S, check=False)
        assert p.returncode == 2 and "expected" in p.stderr and name in p.stderr, (name, p)


if __name__ == "__main__":
    ktap.run(globals())
