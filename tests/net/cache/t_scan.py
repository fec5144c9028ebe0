#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The cache under pressure: a scan of many files through a budget of 4 MiB."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap

MEMORY = 4 << 20
HOT, SCAN = 50, 20000
PIPELINE = 50
d = None
hot_bodies, tiers = {}, {}


def begin():
    global d
    if daemon.FAST == "wire":
        d = client.start_wire("--memory", "4M")
    else:
        d = daemon.Daemon("--memory", "4M").start()
    for i in range(HOT):
        hot_bodies[f"/hot/{i}"] = b"hot %d\n" % i * 60
        d.write(f"hot/{i}", hot_bodies[f"/hot/{i}"])
    for i in range(200):
        os.makedirs(os.path.join(d.root, f"scan/{i}"))
    for i in range(SCAN):
        with open(os.path.join(d.root, name(i)[1:]), "wb") as f:
            f.write(body(i))


def end():
    if d:
        d.stop()


def name(i):
    return f"/scan/{i % 200}/{i}"


def body(i):
    return b"%06d\n" % i * (1 + i % 100)


def tool(*args):
    done = subprocess.run([os.path.join(ktap.BUILD, "toboggan"), "--control", d.control, "--json",
                           *args], capture_output=True, text=True, check=True,
                          timeout=client.WAIT_S)
    return json.loads(done.stdout)


def within_budget():
    s = tool("status")
    memory = s["memory"]
    assert memory["budget"] <= MEMORY and memory["used"] <= memory["budget"], s
    return s


def ask_hot(c, count=tiers):
    for path, want in hot_bodies.items():
        r = c.get(path)
        assert r.body == want, path
        count[r.tier] = count.get(r.tier, 0) + 1


def scan(c, numbers):
    """Pipelined; how many were hits."""
    hits = 0
    for at in range(0, len(numbers), PIPELINE):
        some = numbers[at:at + PIPELINE]
        c.send(b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % name(i).encode() for i in some))
        for i in some:
            r = c.response()
            assert r.body == body(i), (i, r)
            hits += r.tier in daemon.HITS
    return hits


def t_hot_set_is_served_by_the_kernel():
    with client.Client(d.address) as c:
        for _ in range(20):
            ask_hot(c)
        tiers.clear()
        ask_hot(c)
    assert tiers == {daemon.FAST: HOT}, tiers


def t_scan_passes_and_the_hot_set_stays():
    """Once each, 20,000 files; the hot ones are asked for once per 500 of them."""
    tiers.clear()
    with client.Client(d.address) as c, client.Client(d.address) as other:
        for at in range(0, SCAN, 500):
            scan(other, range(at, at + 500))
            ask_hot(c)
            within_budget()
    ktap.note(f"hot ones were answered by {tiers}")
    s = within_budget()
    ktap.note(f"{s['objects']} objects, {s['memory']['used']} of {s['memory']['budget']} bytes")
    assert tiers.get(daemon.FAST, 0) >= 0.99 * sum(tiers.values()), tiers
    assert 100 < s["objects"] < SCAN


def t_second_scan_in_another_order():
    numbers = list(range(SCAN))
    random.Random(1).shuffle(numbers)
    tiers.clear()
    with client.Client(d.address) as c, client.Client(d.address) as other:
        for at in range(0, SCAN, 1000):
            scan(other, numbers[at:at + 1000])
            ask_hot(c)
            within_budget()
    ktap.note(f"hot ones were answered by {tiers}")
    assert tiers.get(daemon.FAST, 0) >= 0.99 * sum(tiers.values()), tiers


def t_every_size_fits_or_is_served_all_the_same():
    rng, bodies = random.Random(2), {}
    for i in range(300):
        bodies[f"/size/{i}"] = rng.randbytes(rng.choice((0, 200, 1500, 3000, 7000, 15000, 40000,
                                                         70000)))
        d.write(f"size/{i}", bodies[f"/size/{i}"])
    with client.Client(d.address) as c:
        for _ in range(3):
            for path, want in bodies.items():
                assert c.get(path).body == want, path
            within_budget()


def t_purge_of_a_full_cache():
    """Purged slots rest before they are used again: misses, and no room yet."""
    path = next(iter(hot_bodies))
    assert client.hot(d, path, daemon.FAST).body == hot_bodies[path]
    assert tool("purge", path)["purged"] == 1
    with client.Client(d.address) as c:
        r = c.get(path)
        assert r.tier in ("stored", "miss") and r.body == hot_bodies[path], r
    assert tool("purge", "--all")["purged"] > 100
    s = within_budget()
    assert (s["objects"], s["memory"]["used"]) == (0, 0), s
    with client.Client(d.address) as c:
        for path, want in hot_bodies.items():
            r = c.get(path)
            assert r.body == want and r.tier in ("stored", "miss"), r
        scan(c, range(500))
        ask_hot(c)
    within_budget()


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
