# SPDX-License-Identifier: GPL-2.0
"""Debian's php-fpm with a few workers, for a test.

    with fpm.Fpm(unix=True, children=2) as php:
        php.write("a.php", "<?php echo 1;")     # below php.root
        php.server                              # as the configuration has it
        php.kill()                              # -9, workers included
"""
from __future__ import annotations

import atexit
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import client
import ktap

CONF = """
[global]
error_log = {folder}/log
daemonize = no
[t]
{user}
listen = {listen}
listen.mode = 0666
pm = static
pm.max_children = {children}
php_admin_flag[log_errors] = on
php_admin_flag[display_errors] = off
php_admin_value[post_max_size] = 64M
"""


_running = set()


@atexit.register
def _kill_all() -> None:
    """End the server together with a test that dies."""
    for one in list(_running):
        one.kill()


def binary() -> str:
    found = sorted(glob.glob("/usr/sbin/php-fpm[0-9]*") + glob.glob("/usr/sbin/php-fpm"))
    if not found:
        raise ktap.Skip("no php-fpm: apt-get install php-fpm")
    return found[0]


class Fpm:
    def __init__(self, unix: bool = True, children: int = 2) -> None:
        self.binary = binary()
        self.folder = tempfile.mkdtemp(prefix="tbg-fpm-")
        self.root = os.path.join(self.folder, "root")
        os.mkdir(self.root)
        for path in (self.folder, self.root):
            os.chmod(path, 0o755)
        if unix:
            self.address = os.path.join(self.folder, "sock")
            self.server = "unix:" + self.address
        else:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                self.address = s.getsockname()
            self.server = "127.0.0.1:%d" % self.address[1]
        self.conf = os.path.join(self.folder, "conf")
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(CONF.format(folder=self.folder, children=children,
                                listen=self.server.removeprefix("unix:"),
                                user="" if os.geteuid() else "user = www-data\ngroup = www-data"))
        self.process = None
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen([self.binary, "-n", "-F", "-y", self.conf],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        _running.add(self)
        deadline = time.monotonic() + client.WAIT_S
        while not self.listens():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def listens(self) -> bool:
        kind = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        with socket.socket(kind) as s:
            try:
                s.connect(self.address)
            except OSError:
                return False
        return True

    def log(self) -> str:
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as f:
            return f.read()

    def write(self, name: dict | str, text: str) -> None:
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o644)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        _running.discard(self)

    def __enter__(self) -> Fpm:
        return self

    def __exit__(self, *why: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
