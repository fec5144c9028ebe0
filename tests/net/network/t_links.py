#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The links of programs on tcx: other tools that remove them, and pins after the daemon.

Programs that translate stay when the daemon is killed: by pins in bpffs, or attached without
links. All others end with it. An interface that moves to another network namespace keeps none.
"""
import contextlib
import glob
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import talk

PORT = 8080
BODY = b"by a program that is there by a link\n"
# one whose first process has no bpffs, either
NO_BPFFS = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
            "while umount /sys/fs/bpf 2>&-; do :; done; exec \"$0\" \"$@\"")
COVERED = ("unshare", "--mount", "sh", "-c",
           "mount -t tmpfs tmpfs /sys/fs/bpf; exec \"$0\" \"$@\"")
TRANSLATED = "--late-sockets", "off"


def serving(n, *options, wire="tbg0", port=PORT, **more):
    return talk.serving(n.server, wire, *options, listen=f"0.0.0.0:{port}", a=BODY, **more)


def pins(n):
    """The pins of daemons of all users in the server's namespace."""
    return set(glob.glob(f"/sys/fs/bpf/toboggan-*/{os.fstat(n.server.fd).st_ino}-*"))


def needs_tcx(d):
    if {i["how"] for i in talk.ask(d, "status")["interfaces"]} != {"tcx"}:
        raise ktap.Skip("no tcx in this kernel")


def hit(n):
    def by_wire():
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            r = c.get("/a")
        assert r.body == BODY
        return r.tier == "wire"

    net.until(by_wire, "wire does not answer")


def on(namespace, name="tbg0"):
    """The programs on the interface's hooks."""
    return {hook: progs for (where, hook), progs in namespace.programs().items() if where == name}


def moved(n):
    """tbg0 is the other namespace's, as away0."""
    n.server.run("ip", "link", "set", "tbg0", "netns", f"/proc/{os.getpid()}/fd/{n.client.fd}",
                 "name", "away0")


def logged(d, what):
    net.until(lambda: any(what in line for line in d.lines), f"{what} is not logged")


@contextlib.contextmanager
def killed(n, *options, **more):
    """Serves, and ends by SIGKILL."""
    with n.server.inside():
        d = daemon.Daemon("--wire", "tbg0", *options, listen=f"0.0.0.0:{PORT}", **more)
        d.write("a", BODY)
        d.start()
    try:
        yield d
    finally:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError), \
             open(f"/proc/{d.pid}/task/{d.pid}/children", encoding="ascii") as f:
            # the first process of a namespace that the prefix has made
            if d.prefix and "--fork" in d.prefix:
                os.kill(int(f.read().split()[0]), signal.SIGKILL)
                d.process.wait(daemon.STOP_S)
        d.kill()


def t_another_tool_takes_no_program_off():
    with net.Net() as n, serving(n) as d:
        needs_tcx(d)
        hit(n)
        before = on(n.server)
        with talk.Connection(n.client.connect((n.links[0].server4, PORT))) as c:
            for _ in range(3):
                n.server.strip("tbg0", links=False)
                assert on(n.server) == before
                r = c.get("/a")
                assert (r.tier, r.body) == ("wire", BODY), r.head
        talk.ask(d, "status")
        assert not any("removed by another program" in line for line in d.lines), d.lines


def t_link_that_is_detached_is_made_again():
    with net.Net() as n, serving(n) as d:
        needs_tcx(d)
        before, pinned = on(n.server), len(pins(n))
        # nothing looks at what leaves where connections have one owner
        for hooks in (("ingress",), *(() if daemon.LATE else (("egress",), tuple(net.TCX)))):
            nr = len(d.lines)
            n.server.strip("tbg0", hooks)
            # pylint: disable=W0640
            net.until(lambda: any("attached again" in line for line in d.lines[nr:]),
                      f"{hooks} are not attached again: {d.lines}")
            assert on(n.server) == before
            assert len(pins(n)) == pinned
            hit(n)


def t_nothing_stays_of_a_killed_daemon():
    """Where its connections are wire's: they have ended with it."""
    if not daemon.LATE:
        raise ktap.Skip("translated connections: they need their programs")
    with net.Net() as n:
        before = n.server.traces()
        with killed(n):
            hit(n)
            assert on(n.server) and not pins(n)
        net.until(lambda: not on(n.server), "its program is still there")
        assert n.server.traces() == before


def t_interface_that_moves_away_keeps_no_program():
    with net.Net() as n, serving(n) as d:
        hit(n)
        moved(n)
        logged(d, "tbg0 is gone")
        assert not on(n.client, "away0")
        assert not pins(n)
        assert not any("still on it" in line for line in d.lines), d.lines


def t_interface_of_a_killed_daemon_moves_away_and_the_next_cleans_it():
    with net.Net() as n:
        with killed(n):
            hit(n)
        moved(n)
        with serving(n, wire="lo"):
            assert not on(n.client, "away0")
        assert not pins(n)


def t_pins_stay_with_the_killed_and_go_with_the_next():
    with net.Net() as n:
        with killed(n, *TRANSLATED) as d:
            needs_tcx(d)
            hit(n)
            pinned = pins(n)
            assert len(pinned) == len(on(n.server)), pinned
        assert pins(n) == pinned
        assert set(on(n.server)) == {pin.rsplit("-", 2)[1] for pin in pinned}
        with serving(n, wire="lo"):
            assert not on(n.server)
            assert not pinned & pins(n)
        # and of an interface that is no more
        with killed(n, *TRANSLATED):
            pinned = pins(n)
        n.server.run("ip", "link", "del", "tbg0")
        with serving(n, wire="lo"):
            assert pinned and not pinned & pins(n)
        assert not pins(n)


def t_the_folder_of_pins_goes_with_the_last_that_has_it():
    """The folder of a user without a daemon in any other test."""
    user = "54321"
    folder = f"/sys/fs/bpf/toboggan-{user}"
    with net.Net() as n:
        with serving(n, "--user", user, *TRANSLATED) as d:
            needs_tcx(d)
            with serving(n, "--user", user, *TRANSLATED, wire="lo", port=PORT + 1) as e:
                assert pins(n) and os.stat(folder).st_uid == int(user)
                assert e.stop() == 0, e.lines
            assert pins(n) and os.path.exists(folder), "the other one has it"
            assert d.stop() == 0, d.lines
        assert not os.path.exists(folder), os.listdir(folder)


def t_pins_where_only_the_caller_has_bpffs():
    """`ip netns exec` covers /sys."""
    with net.Net() as n, killed(n, *TRANSLATED, prefix=COVERED) as d:
        needs_tcx(d)
        assert len(pins(n)) == len(on(n.server))


def t_without_bpffs_programs_stay_with_the_killed_all_the_same():
    """No link, which would end with the daemon: what it has sent is translated on."""
    with net.Net() as n:
        before = pins(n)
        with killed(n, *TRANSLATED, prefix=NO_BPFFS) as d:
            needs_tcx(d)
            hit(n)
            assert len(on(n.server)) == 2 and pins(n) == before
        assert len(on(n.server)) == 2
        with serving(n, wire="lo"):
            assert not on(n.server)


def t_without_bpffs_an_interface_that_moves_away_is_spoken_of():
    with net.Net() as n, killed(n, *TRANSLATED, prefix=NO_BPFFS) as d:
        needs_tcx(d)
        moved(n)
        logged(d, "wire's programs are still on it")
        assert len(on(n.client, "away0")) == 2


def t_folder_of_another_user_is_not_pinned_in():
    with net.Net() as n:
        with killed(n, *TRANSLATED) as d:
            needs_tcx(d)
            folder = os.path.dirname(pins(n).pop())
            owner = os.stat(folder).st_uid
        if not owner:
            raise ktap.Skip("the daemon runs as root")
        os.chown(folder, owner + 1, -1)
        try:
            with serving(n, *TRANSLATED):
                assert not pins(n)
                hit(n)
        finally:
            os.chown(folder, owner, -1)


if __name__ == "__main__":
    ktap.run(globals())
