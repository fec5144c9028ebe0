#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A file that changes: no answer is stale, and none mixes two versions.

The promise is 100 ms after the change has completed (tests/lib/versions.py). Both daemons
are asked all the time while the folder changes.
"""
import mmap
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import ktap
import versions
from versions import LINES, PROMISE_S, Watcher, at, put, replace, version


def t_rewrite_in_place():
    old = version()
    replace("a", old)
    with Watcher("/a") as w:
        for lines in (LINES, LINES, 10, LINES * 2, 1, LINES):
            new = version(lines)
            w.change(old, lambda new=new: put("a", new), new)
            old = new


def t_replace_by_rename():
    old = version()
    replace("b", old)
    with Watcher("/b") as w:
        for lines in (LINES, LINES, 10, LINES * 2, 1, LINES):
            new = version(lines)
            w.change(old, lambda new=new: replace("b", new), new)
            old = new


def t_truncate_and_append():
    old = version()
    replace("c", old)
    with Watcher("/c") as w:
        w.change(old, lambda: os.truncate(at("c"), 90), old[:90])
        w.change(old[:90], lambda: os.truncate(at("c"), 0), b"")

        def append():
            with open(at("c"), "ab") as f:
                f.write(old)
        w.change(b"", append, old)


def t_delete_and_create():
    old = version()
    replace("d", old)
    with Watcher("/d") as w:
        for _ in range(3):
            w.change(old, lambda: os.unlink(at("d")), 404)
            new = version()
            w.change(404, lambda new=new: replace("d", new), new)
            old = new


def t_delete_and_create_at_once():
    """The new file often has the inode number of the old one."""
    old = version()
    replace("d2", old)
    with Watcher("/d2") as w:
        for _ in range(3):
            new = version()

            def again(new=new):
                os.unlink(at("d2"))
                with open(at("d2"), "wb") as f:
                    f.write(new)
                os.chmod(at("d2"), 0o644)
            w.change(old, again, new)
            old = new


def t_chmod_of_the_file():
    old = version()
    replace("e", old)
    with Watcher("/e") as w:
        for _ in range(2):
            w.change(old, lambda: os.chmod(at("e"), 0), 403)
            w.change(403, lambda: os.chmod(at("e"), 0o644), old)


def t_chown_of_the_file():
    if os.geteuid():
        raise ktap.Skip("not root: a file cannot be given away")
    old = version()
    replace("e2", old)
    os.chmod(at("e2"), 0o444)
    with Watcher("/e2") as w:
        w.change(old, lambda: os.chmod(at("e2"), 0o440), 403)
        with open(f"/proc/{versions.user.pid}/status", encoding="ascii") as f:
            group = next(int(x.split()[1]) for x in f if x.startswith("Gid:"))
        w.change(403, lambda: os.chown(at("e2"), -1, group), old)
        w.change(old, lambda: os.chown(at("e2"), -1, 0), 403)


def t_chmod_of_a_folder_above():
    old = version()
    replace("f/g/h/x", old)
    with Watcher("/f/g/h/x") as w:
        for name in ("f/g/h", "f/g", "f"):
            w.change(old, lambda name=name: os.chmod(at(name), 0), 403)
            w.change(403, lambda name=name: os.chmod(at(name), 0o755), old)


def t_rename_of_a_folder_above():
    old = version()
    replace("i/j/k/x", old)
    with Watcher("/i/j/k/x") as w, Watcher("/i/j2/k/x") as w2:
        for _ in range(2):
            w.cached(old)
            os.rename(at("i/j"), at("i/j2"))
            done = time.monotonic()
            w.fresh(404, done)
            w2.fresh(old, done)
            w2.change(old, lambda: os.rename(at("i/j2"), at("i/j")), 404)
            w.fresh(old, time.monotonic())
        w.change(old, lambda: os.rename(at("i"), os.path.join(versions.user.folder, "out")), 404)
        w.change(404, lambda: os.rename(os.path.join(versions.user.folder, "out"), at("i")), old)


def t_folder_replaced_by_another():
    old, new = version(), version()
    replace("l/m/x", old)
    replace("l.new/m/x", new)

    def swap():
        os.rename(at("l"), at("l.old"))
        os.rename(at("l.new"), at("l"))
    with Watcher("/l/m/x") as w:
        w.change(old, swap, new)
        newer = version()       # the watches are those of the new folder
        w.change(new, lambda: put("l/m/x", newer), newer)
        w.change(newer, lambda: shutil.rmtree(at("l")), 404)


def t_root_replaced_by_another():
    """Served is what the root's path leads to: another folder, or a link's new target."""
    parts = [versions.user.root + end for end in (".a", ".b")]
    old, new = version(), version()
    replace("r", old)
    os.mkdir(parts[1])
    os.chmod(parts[1], 0o755)
    with open(os.path.join(parts[1], "r"), "wb") as f:
        f.write(new)

    def swap():
        os.rename(versions.user.root, parts[0])
        os.rename(parts[1], versions.user.root)
        parts.reverse()

    def lead_to(part):
        os.symlink(part, versions.user.root + ".link")
        os.rename(versions.user.root + ".link", versions.user.root)

    try:
        with Watcher("/r") as w:
            w.change(old, swap, new)
            w.change(new, swap, old)
            os.rename(versions.user.root, parts[0])
            lead_to(parts[0])
            w.change(old, lambda: lead_to(parts[1]), new)
            newer = version()
            w.change(new, lambda: replace("r", newer), newer)   # changes there are seen too
            w.change(newer, lambda: lead_to(parts[0]), old)
    finally:
        if os.path.islink(versions.user.root):
            os.unlink(versions.user.root)
            os.rename(parts[0], versions.user.root)
        elif os.path.exists(versions.user.root + ".a"):
            swap()
        shutil.rmtree(versions.user.root + ".b", ignore_errors=True)


def t_symbolic_link_swapped():
    def point(name, to):
        os.symlink(to, at(name + "~"))
        os.rename(at(name + "~"), at(name))
    one, two, three = version(), version(), version()
    replace("one", one)
    replace("two", two)
    point("link", "one")
    with Watcher("/link") as w:
        w.change(one, lambda: point("link", "two"), two)
        w.change(two, lambda: point("link", "one"), one)
        w.change(one, lambda: replace("one", three), three)     # its target
        w.change(three, lambda: put("one", one), one)
        w.change(one, lambda: point("link", "../control.sock"), 403)
        w.change(403, lambda: point("link", "two"), two)


def t_folder_link_swapped():
    """How a site is deployed: current -> releases/1 -> releases/2."""
    one, two = version(), version()
    replace("releases/1/x", one)
    replace("releases/2/x", two)
    os.symlink("releases/1", at("current"))
    with Watcher("/current/x") as w:
        old, new = (one, "1"), (two, "2")
        for _ in range(3):
            def swap(new=new):
                os.symlink("releases/" + new[1], at("current~"))
                os.rename(at("current~"), at("current"))
            w.change(old[0], swap, new[0])
            old, new = new, old


def t_hard_link_changed_by_its_other_name():
    old, new = version(), version()
    other = os.path.join(versions.user.folder, "other-name")
    replace("hard", old)
    os.link(at("hard"), other)
    with Watcher("/hard") as w:
        def through_other(data):
            with open(other, "r+b") as f:
                f.write(data)
        w.change(old, lambda: through_other(new), new)
        w.change(new, lambda: os.chmod(other, 0), 403)
        w.change(403, lambda: os.chmod(other, 0o644), new)
    os.unlink(other)
    with Watcher("/hard") as w:     # linked when it is cached already
        w.cached(new)
        os.link(at("hard"), other)
        w.change(new, lambda: through_other(old), old)


def t_index_comes_and_goes():
    old, new = version(), version()
    os.makedirs(at("n"))
    with Watcher("/n/") as w:
        w.change(403, lambda: replace("n/index.html", old), old)
        w.change(old, lambda: replace("n/index.html", new), new)
        w.change(new, lambda: os.unlink(at("n/index.html")), 403)
        w.change(403, lambda: replace("n/index.html", old), old)
        w.change(old, lambda: shutil.rmtree(at("n")), 404)


def t_same_time_and_size():
    old = version()
    replace("o", old)
    os.utime(at("o"), ns=(10**18, 10**18))
    with Watcher("/o") as w:
        for _ in range(3):
            new = version()

            def in_place(new=new):
                with open(at("o"), "r+b") as f:
                    f.write(new)
                os.utime(at("o"), ns=(10**18, 10**18))
            w.change(old, in_place, new)
            old = version()

            def by_rename(old=old):
                with open(at("o~"), "wb") as f:
                    f.write(old)
                os.chmod(at("o~"), 0o644)
                os.utime(at("o~"), ns=(10**18, 10**18))
                os.rename(at("o~"), at("o"))
            w.change(new, by_rename, old)


def t_written_through_a_mapping():
    old, new = version(), version()
    replace("p", old)
    with Watcher("/p") as w:
        def mapped():
            with open(at("p"), "r+b") as f, mmap.mmap(f.fileno(), len(new)) as m:
                m[:] = new
        w.change(old, mapped, new)


def t_written_by_the_kernel():
    """Copies that never pass through the writer's memory."""
    old = version()
    replace("q", old)
    with Watcher("/q") as w:
        for how in ("copy_file_range", "sendfile"):
            new = version()
            replace("q.from", new)

            def copy(new=new, how=how):
                with open(at("q.from"), "rb") as a, open(at("q"), "r+b") as b:
                    if how == "sendfile":
                        n = os.sendfile(b.fileno(), a.fileno(), 0, len(new))
                    else:
                        n = os.copy_file_range(a.fileno(), b.fileno(), len(new))
                    assert n == len(new)
            w.change(old, copy, new)
            old = new


def t_file_and_folder_change_places():
    old = version()
    replace("r", old)
    with Watcher("/r") as w:
        def folder():
            os.unlink(at("r"))
            os.mkdir(at("r"))

        def file():
            os.rmdir(at("r"))
            replace("r", old)
        w.change(old, folder, 301)
        w.change(301, file, old)


def t_exchange_of_two_files():
    """renameat2(RENAME_EXCHANGE): both names in one step."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    a, b = version(), version()
    replace("s1", a)
    replace("s2", b)
    with Watcher("/s1") as w1, Watcher("/s2") as w2:
        for _ in range(2):
            w1.cached(a)
            w2.cached(b)
            r = libc.renameat2(-100, at("s1").encode(), -100, at("s2").encode(), 2)
            done = time.monotonic()
            if r:
                raise ktap.Skip(f"no RENAME_EXCHANGE here: errno {ctypes.get_errno()}")
            w1.fresh(b, done)
            w2.fresh(a, done)
            a, b = b, a


def t_stalest_answer_of_all():
    ktap.note(f"{versions.worst_s * 1000:.1f} ms, {PROMISE_S * 1000:.0f} are promised")
    assert versions.worst_s <= PROMISE_S


if __name__ == "__main__":
    ktap.run(globals(), setup=versions.begin, teardown=versions.end)
