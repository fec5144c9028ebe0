#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The daemon under a service manager, and where io_uring is forbidden."""
import contextlib
import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import conf
import daemon
import ktap
import origin
import talk

WAIT_S = 30
NO_RINGS = os.path.join(ktap.BUILD, "tests/net/forbid"), "io_uring_setup"

DISABLED = "/proc/sys/kernel/io_uring_disabled"


def get(address, path="/a.txt"):
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=WAIT_S)) as c:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read()


@contextlib.contextmanager
def manager():
    """A socket that is notified of the service, and what prefix a daemon of it has."""
    name = f"tbg-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind("\0" + name)
        s.settimeout(WAIT_S)
        yield s, f"@{name}"


def notified(s, what):
    """Waits for a message that begins so; what came before it."""
    before = []
    while not (got := s.recv(4096).decode()).startswith(what):
        before.append(got)
    return before


def t_the_manager_is_notified_of_each_state():
    with manager() as (s, name):
        d = conf.Conf('root = "{root}"\n')
        d.prefix = ["env", f"NOTIFY_SOCKET={name}"]
        with d:
            assert not notified(s, "READY=1")
            d.reconfigure('root = "{root}"\nexpires = "1h"\n')
            assert not notified(s, "RELOADING=1\nMONOTONIC_USEC=") and not notified(s, "READY=1")
            d.save("nonsense")
            d.process.send_signal(signal.SIGHUP)
            assert not notified(s, "RELOADING=1") and not notified(s, "READY=1")
            d.process.send_signal(signal.SIGTERM)
            assert not notified(s, "STOPPING=1\nEXTEND_TIMEOUT_USEC=310000000")


def t_the_watchdog_is_fed():
    with manager() as (s, name):
        d = daemon.Daemon(*daemon.USER,
                          prefix=("env", f"NOTIFY_SOCKET={name}", "WATCHDOG_USEC=1000000"))
        with d:
            notified(s, "READY=1")
            begin = time.monotonic()
            for _ in range(4):
                notified(s, "WATCHDOG=1")
            assert time.monotonic() - begin > 1, "far too often"
        s.settimeout(0.5)
        with contextlib.suppress(TimeoutError):     # meant for another process
            d = daemon.Daemon(*daemon.USER, prefix=("env", f"NOTIFY_SOCKET={name}",
                                                    "WATCHDOG_USEC=100000", "WATCHDOG_PID=1"))
            with d:
                notified(s, "READY=1")
                assert not notified(s, "WATCHDOG=1"), "not ours to feed"
                raise AssertionError("fed a watchdog that is another's")


def begun_with(given, *options, prefix=()):
    """A daemon that begins with sockets of the manager."""
    def give():
        for at, s in enumerate(given, 3):
            os.dup2(s.fileno(), at)
            os.set_inheritable(at, True)

    d = daemon.Daemon(*options, "--workers", "2", listen=(), prefix=prefix)
    d.write("a.txt", b"given")
    words = ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=$0 exec "$@"', str(len(given)), *d.command()]
    d.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True,
                                 stdin=subprocess.DEVNULL,
                                 preexec_fn=give, close_fds=False)
    return d


def started_with(given, *options, more=(), prefix=()):
    """A daemon to which the manager gives a socket, and more."""
    d = begun_with((given, *more), *options, prefix=prefix)
    for line in d.process.stderr:
        ktap.note(line)
        d.lines.append(line)
        if line.startswith("ready "):
            assert f"ready 127.0.0.1:{given.getsockname()[1]} " in line, line
            return d
    raise AssertionError("never ready")


def t_sockets_that_are_given_outlive_the_daemon():
    with socket.create_server(("127.0.0.1", 0)) as given:
        address = given.getsockname()

        def start():
            return started_with(given, *daemon.USER)

        d = start()
        try:
            for _ in range(8):
                assert get(address) == (200, b"given")
            d.process.send_signal(signal.SIGTERM)
            assert d.process.wait(WAIT_S) == 0
            with socket.create_connection(address) as waiting:      # nobody accepts it yet
                waiting.sendall(b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                d.clean()
                d = start()
                waiting.settimeout(WAIT_S)
                assert waiting.recv(4096).startswith(b"HTTP/1.1 200 ")
        finally:
            d.process.stderr.close()
            d.stop()


def late_wire(given, more=()):
    """A daemon with sockets of the manager's, on which wire makes connections; or a Skip."""
    d = started_with(given, "--wire", "lo", "--late-sockets", "auto", more=more)
    try:
        status = talk.ask(d, "status")
        if not status["tiers"]["wire"]["on"]:
            raise ktap.Skip(d.why_no_wire())
        if talk.no_late_sockets(d):
            raise ktap.Skip(talk.no_late_sockets(d))
        client.until(lambda: tier(given.getsockname()) == "wire" and talk.counts(d)["SYN_ACK"],
                     "wire makes no connection")
    except BaseException:
        d.stop()
        raise
    return d


def tier(address):
    """Which tier answers on a new connection."""
    with client.Client(address) as c:
        r = c.get("/a.txt")
        assert (r.status, r.body) == (200, b"given"), r
        return r.tier


def t_clients_wait_for_the_next_daemon_when_one_is_killed():
    """The socket is there all the time, so nobody is refused, nor answered by wire alone."""
    with socket.create_server(("127.0.0.1", 0)) as given:
        address = given.getsockname()
        d = late_wire(given)
        d.kill()
        waiting = [client.Client(address) for _ in range(8)]
        for c in waiting:
            c.send(talk.request("/a.txt"))
        d = late_wire(given)
        try:
            for c in waiting:
                with c:
                    assert c.response().body == b"given"
        finally:
            assert d.stop() == 0, d.lines


def t_of_two_daemons_with_one_socket_the_other_serves_when_one_is_killed():
    with socket.create_server(("127.0.0.1", 0)) as given:
        address = given.getsockname()
        for killed in range(2):
            ds = [late_wire(given) for _ in range(2)]
            try:
                ds.pop(killed).kill()
                for _ in range(20):
                    tier(address)
                client.until(lambda: tier(address) == "wire", "wire does not answer")
            finally:
                codes = [d.stop() for d in ds]
            assert codes == [0], ds


@contextlib.contextmanager
def one_port(nr):
    """Sockets of that many units of the manager, all of one port (ReusePort)."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.1", 0), reuse_port=True))
        yield [first] + [stack.enter_context(socket.create_server(first.getsockname(),
                                                                  reuse_port=True))
                         for _ in range(nr - 1)]


def t_sockets_of_one_port_are_all_served():
    """The kernel gives each a part of the connections."""
    with one_port(3) as given:
        d = started_with(given[0], *daemon.USER, more=given[1:])
        try:
            for _ in range(40):
                assert get(given[0].getsockname()) == (200, b"given")
        finally:
            d.process.stderr.close()
            d.stop()


def t_more_sockets_than_are_served_are_refused():
    """The kernel would give clients to those that nobody accepts from."""
    with one_port(33) as given:
        d = begun_with(given, *daemon.USER)
        said = d.process.communicate(timeout=daemon.READY_S)[1]
        assert d.process.returncode, said
        assert "socket 32 of the service manager: the daemon listens on 32 sockets" in said, said


def t_wire_makes_connections_of_sockets_of_one_port():
    with one_port(3) as given:
        d = late_wire(given[0], given[1:])
        try:
            for _ in range(20):
                tier(given[0].getsockname())
            assert tier(given[0].getsockname()) == "wire"
            assert not talk.ask(d, "status")["tiers"]["wire"].get("note")
        finally:
            d.stop()


def t_port_of_another_process_too_is_the_kernel_s_and_that_is_shown():
    """The kernel may give the other process a miss, although wire of this one answered before."""
    with one_port(1) as (given,), contextlib.ExitStack() as stack:
        d = late_wire(given)
        try:
            stack.enter_context(socket.create_server(given.getsockname(), reuse_port=True))
            before = talk.counts(d)

            def shown():
                """Perhaps not at once: connections were wire's until now."""
                with socket.create_connection(given.getsockname()) as c:
                    c.sendall(talk.request("/a.txt"))
                    select.select([c], [], [], 0.2)     # or it is the other's
                return "another process listens at their port, too" in talk.text(d, "status")
            client.until(shown, "no reason is given")
            assert "another process listens at their port, too" in talk.text(d, "why", "/a.txt")
            after = talk.counts(d)
            assert after["SHARED"] > before["SHARED"], (before, after)
            assert after["SYN_ACK"] == before["SYN_ACK"], (before, after)
            assert after["BORN"] == before["BORN"], (before, after)
        finally:
            d.stop()


def t_sockets_whose_packets_have_options_are_left_to_the_daemon():
    """Wire's would have neither the unit's TTL nor its type of service."""
    for option, value in ((socket.IP_TTL, 33), (socket.IP_TOS, 0x20)):
        with socket.create_server(("127.0.0.1", 0)) as given:
            late_wire(given).stop()
            given.setsockopt(socket.SOL_IP, option, value)
            d = started_with(given, "--wire", "lo", "--late-sockets", "auto")
            try:
                said = "its socket has options"
                assert any(said in x for x in d.lines), d.lines
                where = f"not on 127.0.0.1:{given.getsockname()[1]}: {said}"
                assert where in talk.text(d, "status") and where in talk.text(d, "why", "/a.txt")
                for _ in range(5):
                    with socket.create_connection(given.getsockname(), WAIT_S) as c:
                        c.sendall(talk.request("/a.txt"))
                        assert b"detail=wire" not in c.recv(4096)
                assert not talk.counts(d)["HIT_WIRE"] + talk.counts(d)["SYN_ACK"]
            finally:
                d.stop()


def low_port():
    """A listening socket at a port for which CAP_NET_BIND_SERVICE is needed."""
    for port in range(600, 1024):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise ktap.Skip("no port below 1024 is free")


def t_low_ports_without_the_right_to_bind_them_are_logged():
    """A killed daemon's give-backs there cannot all be reset: that needs the port once more."""
    said = "without CAP_NET_BIND_SERVICE"
    with low_port() as given:
        late_wire(given).stop()
        for bounds, give_back, logged in (("+all", "3", False), ("-net_bind_service", "3", True),
                                          ("-net_bind_service", "0", False)):
            d = started_with(given, "--wire", "lo", "--late-sockets", "auto",
                             "--give-back", give_back,
                             prefix=("setpriv", f"--bounding-set={bounds}"))
            try:
                assert any(said in x for x in d.lines) == logged, (bounds, give_back, d.lines)
            finally:
                d.stop()


def t_sockets_that_are_given_are_not_translated():
    """The guard cannot see their connections: these belong to the manager's cgroup."""
    with socket.create_server(("127.0.0.1", 0)) as given:
        d = started_with(given, "--wire", "lo", "--late-sockets", "off")
        try:
            wire = talk.ask(d, "status")["tiers"]["wire"]
            assert not wire["on"], wire
            if "service manager" not in wire["why"]:
                raise ktap.Skip(d.why_no_wire())
            for _ in range(3):
                assert get(given.getsockname()) == (200, b"given")
        finally:
            d.process.stderr.close()
            d.stop()


def t_serves_where_io_uring_is_forbidden():
    with daemon.Daemon(*daemon.USER, prefix=NO_RINGS) as d:
        line = next(x for x in d.lines if "serving by epoll" in x)
        # the sysctl is to blame only where it is not 0 (kernels before 6.6 have none)
        off = os.path.exists(DISABLED) and int(open(DISABLED, encoding="ascii").read())
        assert ("sysctl" if off else "seccomp") in line and \
               ("seccomp" if off else "sysctl") not in line, line
        large = os.urandom(3 << 20)
        d.write("a.txt", b"small")
        d.write("b.bin", large)
        for _ in range(3):
            assert get(d.address) == (200, b"small")
            assert get(d.address, "/b.bin") == (200, large)
        with socket.create_connection(d.address) as s:      # pipelined, and byte by byte
            s.settimeout(WAIT_S)
            for b in b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 2:
                s.sendall(bytes((b,)))
            got = b""
            while got.count(b"small") < 2:
                got += s.recv(4096)
        assert d.stop() == 0


def t_passes_on_where_io_uring_is_forbidden():
    with origin.Origin() as o, origin.Origin(unix=True) as u:
        body = os.urandom(1 << 20)
        o.on("/a", origin.reply(200, body))
        u.on("/a", origin.reply(200, body))
        for url in (o.url, u.url):
            with daemon.Daemon(*daemon.USER, "--upstream", url, prefix=NO_RINGS) as d:
                for _ in range(3):
                    assert get(d.address, "/a") == (200, body)
        with daemon.Daemon(*daemon.USER, "--upstream", "http://127.0.0.1:1", prefix=NO_RINGS) as d:
            assert get(d.address, "/a")[0] == 502       # refused, at once


if __name__ == "__main__":
    ktap.run(globals())
