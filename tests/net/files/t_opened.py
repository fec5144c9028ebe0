#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Files too large for the cache are kept open while they are requested.

What t_fresh.py promises of cached files is promised of these: its changes, with
bodies beyond 64 KiB, each made while the daemon holds the file open. What a
symbolic link leads to is never kept.
"""
import os
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import ktap
import t_fresh
import versions
from versions import at, begin, daemons, end, promised, replace, version

versions.LINES = t_fresh.LINES = 9000   # 81,000 bytes


def held(d, folder=""):
    """The paths of that folder's files that d has open, one for each descriptor."""
    fds, paths = f"/proc/{d.pid}/fd", []
    for fd in os.listdir(fds):
        try:
            paths.append(os.readlink(f"{fds}/{fd}"))
        except FileNotFoundError:
            pass
    return [path for path in paths if path.startswith(os.path.realpath(at(folder)))]


def kept(d, name):
    """Not just for the last answer, whose descriptor is closed behind its last byte."""
    time.sleep(0.005)
    return os.path.realpath(at(name)) in held(d)


class Watcher(versions.Watcher):
    def cached(self, want):
        """Until each daemon keeps the file open, if it is for that."""
        if len(want) <= 64 << 10:
            super().cached(want)
            return
        for c, d in zip(self.clients, daemons()):
            deadline = time.monotonic() + client.WAIT_S
            while (r := c.get(self.path)).body != want or not kept(d, self.path[1:]):
                assert time.monotonic() < deadline, f"{self.path}: not kept: {r!r}"


t_fresh.Watcher = Watcher
t_rewrite_in_place = t_fresh.t_rewrite_in_place
t_replace_by_rename = t_fresh.t_replace_by_rename
t_truncate_and_append = t_fresh.t_truncate_and_append
t_delete_and_create = t_fresh.t_delete_and_create
t_chmod_of_the_file = t_fresh.t_chmod_of_the_file
t_chmod_of_a_folder_above = t_fresh.t_chmod_of_a_folder_above
t_rename_of_a_folder_above = t_fresh.t_rename_of_a_folder_above
t_folder_replaced_by_another = t_fresh.t_folder_replaced_by_another
t_root_replaced_by_another = t_fresh.t_root_replaced_by_another
t_file_and_folder_change_places = t_fresh.t_file_and_folder_change_places
t_exchange_of_two_files = t_fresh.t_exchange_of_two_files


def t_sibling_comes_and_goes():
    body, packed = version(), b"not really gzip" * 6000
    replace("page.bin", body)
    gzip = "Accept-Encoding: gzip"
    with Watcher("/page.bin") as w:
        for _ in range(2):
            w.cached(body)
            replace("page.bin.gz", packed)
            promised()
            for c in w.clients:
                assert (r := c.get("/page.bin")).body == body and r.fields.get("Vary"), r
                assert (r := c.get("/page.bin", gzip)).body == packed, r
            w.cached(body)
            os.unlink(at("page.bin.gz"))
            promised()
            for c in w.clients:
                assert (r := c.get("/page.bin", gzip)).body == body and not r.fields.get("Vary"), r


def t_siblings_that_come_and_go_all_the_time():
    """Each request is answered, with the one or the other."""
    body, packed = version(), b"not really gzip" * 6000
    replace("busy.bin", body)
    deadline, wrong = time.monotonic() + 2, []

    def toggle():
        while time.monotonic() < deadline:
            replace("busy.bin.gz", packed)
            time.sleep(0.01)
            os.unlink(at("busy.bin.gz"))
            time.sleep(0.005)
    t = threading.Thread(target=toggle)
    t.start()
    with client.Client(daemons()[0].address) as c:
        while time.monotonic() < deadline:
            r = c.get("/busy.bin", "Accept-Encoding: gzip")
            if r.status != 200 or r.body not in (body, packed):
                wrong.append(r)
    t.join()
    assert not wrong, (len(wrong), wrong[0])


def t_sibling_elsewhere_that_is_gone():
    """A change that no folder on the way tells of."""
    body, packed = version(), b"not really gzip" * 6000
    replace("far.bin", body)
    replace("elsewhere/far.gz", packed)
    os.symlink("elsewhere/far.gz", at("far.bin.gz"))
    with Watcher("/far.bin") as w:
        w.cached(body)
        os.unlink(at("elsewhere/far.gz"))
        for c in w.clients:
            assert (r := c.get("/far.bin", "Accept-Encoding: gzip")).body == body, r


def t_what_nobody_asks_for_is_closed():
    body = version()
    for i in range(300):
        replace(f"many/{i}", body)
    for d in daemons():
        with client.Client(d.address) as c:
            most = 0
            for _ in range(5):
                for i in range(300):
                    assert c.get(f"/many/{i}").body == body
                    if not i % 8:       # a few are asked for all the time
                        assert c.get("/many/1").body == body
                most = max(most, len(held(d, "many/")))
        assert 0 < most <= 128, most
        client.until(lambda d=d: not held(d, "many/"), "files that nobody asks for stay open")
    shutil.rmtree(at("many"))


def t_deleted_files_give_their_room_back():
    body = version()
    replace("gone", body)
    with Watcher("/gone") as w:
        w.cached(body)
        os.unlink(at("gone"))
        for d in daemons():
            client.until(lambda d=d: not held(d, "gone"), "a deleted file stays open")


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
