#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What refuses clients on this host beside a firewall's input: chains on the way out, BPF
programs of the daemon's cgroup, IPsec policies. Wire passes none of them over."""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
BODY = b"for those who may have it\n"
WAYS = ("auto", "off")          # --late-sockets
NFT = {
    "output": "inet tbg; add chain inet tbg out { type filter hook output priority 0; }",
    "postrouting":
        "inet tbg; add chain inet tbg out { type filter hook postrouting priority 0; }",
    "egress": "netdev tbg; add chain netdev tbg out "
              "{ type filter hook egress device tbg0 priority 0; }",
}


def serving(n, late="auto"):
    return talk.serving(n.server, "tbg0", "--late-sockets", late, listen=f"0.0.0.0:{PORT}", a=BODY)


def late_sockets(d):
    shown = talk.ask(d, "status")["late_sockets"]
    if shown is None:
        raise ktap.Skip("before Linux 6.9: no late sockets")
    return shown


def connect(n, **how):
    return talk.Connection(n.client.connect((n.links[0].server4, PORT), **how))


def answered(n, tier="wire"):
    """A new client is answered, by this tier in the end."""
    def one():
        with connect(n) as c:
            r = c.get("/a")
            assert r.body == BODY, r.head
            return r.tier
    net.until(lambda: one() == tier, f"not by {tier}")


def refused(n):
    for _ in range(4):
        try:
            with connect(n, timeout=0.4) as c:
                c.get("/a")
        except OSError:
            continue
        raise AssertionError("connected and answered")


def t_chains_on_the_way_out():
    with net.Net() as n, serving(n) as d:
        late_sockets(d)
        answered(n)
        for hook, table in NFT.items():
            chain = f"{table.split(';')[0]} out"
            try:
                n.server.run("nft", f"add table {table}; "
                             f"add rule {chain} ip daddr {n.links[0].client4} drop")
            except (RuntimeError, FileNotFoundError) as why:
                raise ktap.Skip(f"no nftables at {hook}: {why}") from why
            net.until(lambda: late_sockets(d)["syns"] == "the kernel", f"{hook} is not seen")
            assert f"a chain at {hook}" in late_sockets(d)["syns_why"], late_sockets(d)
            refused(n)
            n.server.run("nft", f"delete table {table.split(';')[0]}")
            net.until(lambda: late_sockets(d)["syns"] == "wire", f"{hook}: its end is not seen")
            answered(n)


@contextlib.contextmanager
def cgroup():
    """The folder of a cgroup that this process, and so its daemon, is in."""
    try:
        top, was = net.own_cgroup()
        folder = f"{top}/tbg-test-{os.getpid()}"
        os.mkdir(folder)
    except (StopIteration, OSError) as why:
        raise ktap.Skip(f"no cgroup can be made: {why!r}") from why

    def move(to):
        with open(f"{to}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
    try:
        move(folder)
        yield folder
    finally:
        move(was)

        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            return not os.path.exists(folder)
        net.until(gone, "the cgroup still has processes")


def t_programs_of_the_daemon_s_cgroup():
    """As IPAddressDeny= of a systemd unit makes."""
    with cgroup() as folder, net.Net() as n, serving(n) as d:
        late_sockets(d)
        answered(n)
        with net.cgroup_filter(folder, 0):
            net.until(lambda: late_sockets(d)["syns"] == "the kernel", "it is not seen")
            assert "cgroup" in late_sockets(d)["syns_why"], late_sockets(d)
            refused(n)
        net.until(lambda: late_sockets(d)["syns"] == "wire", "its end is not seen")
        answered(n)
        # one that accepts everything: the kernel's handshake, and wire's answers
        with net.cgroup_filter(folder, 1):
            net.until(lambda: late_sockets(d)["syns"] == "the kernel", "it is not seen")
            answered(n)


def wire(d):
    return talk.ask(d, "status")["tiers"]["wire"]


def policy(n, *words):
    try:
        n.server.run("ip", "xfrm", "policy", *words)
    except RuntimeError as why:
        raise ktap.Skip(f"no IPsec in this kernel: {why}") from why


def t_ipsec_policies():
    esp = ("tmpl", "proto", "esp", "mode", "transport")
    for late in WAYS:
        with net.Net() as n, serving(n, late) as d:
            ours, theirs = n.links[0].server4, n.links[0].client4
            answered(n)
            for words in (("src", theirs, "dst", ours, "dir", "in", "action", "block"),
                          ("src", theirs, "dst", ours, "dir", "in", *esp),
                          ("src", ours, "dst", theirs, "dir", "out", *esp)):
                with connect(n, timeout=1) as old:
                    assert old.get("/a").tier == "wire"
                    policy(n, "add", *words)
                    net.until(lambda: not wire(d)["on"], "it is not seen")
                    assert "IPsec policies" in wire(d)["why"], wire(d)
                    refused(n)
                    try:
                        raise AssertionError(f"answered: {old.get('/a').head}")
                    except OSError:
                        pass
                policy(n, "flush")
                net.until(lambda: wire(d)["on"], "its end is not seen")
                answered(n)
            # one that does not concern this client: answered as without wire
            policy(n, "add", "src", "192.0.2.1", "dst", ours, "dir", "in", "action", "block")
            net.until(lambda: not wire(d)["on"], "it is not seen")
            answered(n, "user")
            assert "IPsec policies" in talk.text(d, "why", "/a")


def t_ipsec_policies_that_are_there_at_the_start():
    with net.Net() as n:
        policy(n, "add", "src", "192.0.2.1", "dst", "192.0.2.2", "dir", "out", "action", "block")
        with n.server.inside():
            d = daemon.Daemon("--wire", "tbg0", listen=f"0.0.0.0:{PORT}").start()
        try:
            if wire(d)["on"] or "IPsec policies" not in wire(d)["why"]:
                raise ktap.Skip(daemon.why_off("wire", wire(d)["why"]))
            d.write("a", BODY)
            answered(n, "user")
            policy(n, "flush")
            answered(n)
        finally:
            assert d.stop() == 0, d.lines


if __name__ == "__main__":
    ktap.run(globals())
