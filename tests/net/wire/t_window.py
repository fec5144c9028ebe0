#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A client on this machine, by lo, that reads late: the daemon's socket respects its window.

Hits fill the client's buffer, and its window gets smaller, of which the socket knows
nothing until the next request brings it. What the socket sends then is held against the
window that the client has announced, as packets show it.
"""
import contextlib
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap
import net
import rawtcp
import talk

PORT = 8080
HIT, LARGE = talk.content("hit", 1200), talk.content("large", 40000)
UNREAD = 3          # hits that stay in the client's buffer
ADDRESSES = {4: "127.0.0.1", 6: "::1"}


class Tap:
    """The server's bytes of one connection on lo beyond the client's window."""

    def __init__(self, n):
        with n.server.inside():
            self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(rawtcp.ETH_ALL))
            self.s.bind(("lo", rawtcp.ETH_ALL))
        self.s.setsockopt(rawtcp.SOL_PACKET, rawtcp.PACKET_IGNORE_OUTGOING, 1)
        self.s.setsockopt(socket.SOL_SOCKET, rawtcp.SO_RCVBUFFORCE, 16 << 20)
        self.s.setblocking(False)

    def beyond(self, port):
        """The most of them that any segment had."""
        edge, shift, worst = None, 0, 0
        with contextlib.suppress(BlockingIOError):
            while True:
                head, tcp = self.segment(self.s.recv(1 << 17))
                sport, dport, seq, ack, off, win = struct.unpack_from("!HHIIHH", tcp)
                size, flags = (off >> 12) * 4, off & 0x3f
                if (sport, dport) == (port, PORT):
                    if flags & rawtcp.SYN:
                        shift = rawtcp.parse_options(tcp[20:size]).get("wscale", 0)
                    elif flags & rawtcp.ACK:
                        at = ack + (win << shift)
                        edge = at if edge is None or rawtcp.after(at, edge) else edge
                elif (sport, dport) == (PORT, port) and edge is not None and head - size:
                    end = seq + head - size
                    worst = max(worst, (end - edge) % rawtcp.MOD if rawtcp.after(end, edge) else 0)
        return worst

    @staticmethod
    def segment(frame):
        """(length of the segment, its bytes) of a frame; zeros, if it is none."""
        kind = struct.unpack_from("!H", frame, 12)[0]
        if kind == rawtcp.ETH_IP and frame[23] == 6:
            size = (frame[14] & 15) * 4
            return struct.unpack_from("!H", frame, 16)[0] - size, frame[14 + size:]
        if kind == rawtcp.ETH_IPV6 and frame[20] == 6:
            return struct.unpack_from("!H", frame, 18)[0], frame[54:]
        return 0, bytes(20)

    def close(self):
        self.s.close()


def settled(n):
    """Earlier packets on lo have been processed: one CPU handles all of them in order."""
    with n.server.inside():
        a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    a.settimeout(net.WAIT_S)
    a.bind(("127.0.0.1", 0))
    a.sendto(b"?", a.getsockname())
    a.recv(1)
    a.close()


def keeps_to_the_window(send):
    """send(socket) asks for /large. The daemon rests until its socket has heard all of it."""
    with net.Net(links=1) as n, contextlib.closing(Tap(n)) as tap, \
         talk.serving(n.server, "lo", "--late-sockets", "off", hit=HIT, large=LARGE,
                      listen=(f"127.0.0.1:{PORT}", f"[::1]:{PORT}")) as d:
        for family in ADDRESSES:
            one(n, d, tap, family, send)


def unread(n, port, remote=PORT):
    """Bytes in the buffer of the socket with these ports."""
    return sum(x[3] for x in n.server.sockets(port) if x[1] == remote)


def small(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)


def one(n, d, tap, family, send):
    address = (ADDRESSES[family], PORT)
    with talk.Connection(n.server.connect(address)) as c:
        net.until(lambda: c.get("/hit").tier == "wire", "wire does not answer")
    with talk.Connection(n.server.connect(address, setup=small)) as c:
        port = c.s.getsockname()[1]
        for _ in range(UNREAD):
            was = unread(n, port)
            c.send(talk.request("/hit"))
            net.until(lambda was=was: unread(n, port) > was, "a hit does not come")
            settled(n)
        with daemon.stopped(d.pid):
            send(c.s)
            net.until(lambda: unread(n, PORT, port), "the request does not come")
            settled(n)
        tiers = [c.response().tier for _ in range(UNREAD)]
        assert "wire" in tiers, tiers
        assert c.response().body == LARGE
    over = tap.beyond(port)
    assert not over, f"IPv{family}: {over} bytes beyond the client's window"


def t_a_request():
    keeps_to_the_window(lambda s: s.send(talk.request("/large")))


def t_a_request_with_the_client_s_end():
    def send(s):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        s.send(talk.request("/large"))
        s.shutdown(socket.SHUT_WR)
    keeps_to_the_window(send)


def t_a_request_longer_than_any_of_wire():
    keeps_to_the_window(lambda s: s.send(
        talk.request("/large")[:-2] + b"X-Note: " + b"n" * 3000 + b"\r\n\r\n"))


if __name__ == "__main__":
    ktap.run(globals())
