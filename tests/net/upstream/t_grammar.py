#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One grammar for every handler: a file, an upstream, a FastCGI server, a module, a program."""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lib"))
import conf                         # noqa: E402
import fastcgi                      # noqa: E402
import ktap                         # noqa: E402
import origin                       # noqa: E402

d = o = f = None
TARGETS = ("/file.txt", "/up", "/fcgi", "/echo", "/cgi-bin/p")
TEXT = """
root = "{root}"
upstream "programs" { server = "PROGRAMS" protocol = fastcgi script-filename = "/p" }
location "/up" { upstream = "ORIGIN" }
location "/fcgi" { upstream = "programs" }
location "/echo" { module = "{folder}/echo.so" }
location "/cgi-bin/" { cgi = "{folder}/cgi-bin" }
"""
HEAD = "POST %s HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
GOOD, END = b"hello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n"


def begin():
    global d, o, f
    f = fastcgi.Server(unix=True)
    f.on("/fcgi", fastcgi.answer(b"Content-Type: text/plain\r\n\r\n"))
    o = origin.Origin()
    o.on("/up", lambda c, r: c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
    d = conf.Conf(TEXT.replace("ORIGIN", o.url).replace("PROGRAMS", f.server), "--workers", "1")
    shutil.copy(os.path.join(ktap.BUILD, "modules/echo.so"), d.folder)
    d.write("file.txt", b"file")
    program = os.path.join(d.folder, "cgi-bin/p")
    os.mkdir(os.path.dirname(program))
    os.chmod(os.path.dirname(program), 0o755)
    with open(program, "w", encoding="utf-8") as script:
        script.write("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\ncat\n")
    os.chmod(program, 0o755)
    d.start()


def end():
    d.stop()
    o.close()
    f.close()


def status_of(data):
    with origin.Client(d.address) as c:
        c.send(data)
        return c.answer().status


def t_what_is_no_chunk_is_a_400():
    """RFC 9112 7.1: whoever reads the body, one decoder takes it off its frames."""
    for framed in (b"5 \r\n" + GOOD, b"5;\r\n" + GOOD, b'5;a="x\r\n' + GOOD, b"5;a b\r\n" + GOOD,
                   b"5;a=\r\n" + GOOD, b"5\t;a\rb\r\n" + GOOD, END + b"\n", END + b"X: y\n\r\n"):
        for target in TARGETS:
            assert status_of((HEAD % target).encode() + framed) == 400, (target, framed)


def t_what_is_a_chunk_is_taken():
    """Zeros before a size, and extensions of every form (RFC 9112 7.1.1)."""
    for framed in (b"0000000000000000005\r\n" + GOOD, b'5 ; a = "x;\\"" ;b\r\n' + GOOD,
                   END + b"X: y\r\n\r\n"):
        for target in TARGETS:
            want = 405 if target == "/file.txt" else 200
            assert status_of((HEAD % target).encode() + framed) == want, (target, framed)


def t_what_is_no_address_is_a_400():
    """RFC 3986 3.2.2, in Host and in a target with its authority."""
    for host in ("[4712::abcd::]", "[::zz]", "[1.2.3.4]", "[12345::]", "[::1", "[]", "[::1]x"):
        for target in TARGETS:
            line = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            assert status_of(line.encode()) == 400, line
            line = f"GET http://{host}{target} HTTP/1.1\r\nHost: t\r\n\r\n"
            assert status_of(line.encode()) == 400, line
    for host in ("[::1]", "[2001:db8::1]:80", "[::ffff:192.0.2.1]"):
        for target in TARGETS:
            line = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            assert status_of(line.encode()) == 200, line


if __name__ == "__main__":
    ktap.run(globals(), begin, end)
