#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""In a container: below Docker's default seccomp profile, and below that of the package.

With TBG_IMAGE, a layout of `make image`, also the image itself: its files as root, what
it says to run, as the user it names. `make check-image` gives it.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
from client import WAIT_S

CONFINE = os.path.join(ktap.BUILD, "tests/net/confine")
DOCKER = os.path.join(ktap.ROOT, "tests/net/docker.json")
OURS = os.path.join(ktap.ROOT, "tools/package/seccomp.json")
BY_EPOLL = "serving by epoll"
SMALL, LARGE = b"small\n", os.urandom(1 << 20)
SITE = "/usr/share/toboggan/example-site/index.html"


def asked(address):
    for _ in range(3):
        with client.Client(address) as c:
            for name, want in (("/a.txt", SMALL), ("/b.bin", LARGE), ("/a.txt", SMALL)):
                r = c.ask("GET", name)
                assert (r.status, r.body == want) == (200, True), (name, r)
            assert c.ask("GET", "/none").status == 404


@contextlib.contextmanager
def contained(profile, *options, words=daemon.AS_NOBODY):
    d = daemon.Daemon(*options, prefix=(CONFINE, profile, *words))
    os.chmod(d.folder, 0o777)       # for the socket of another user
    d.write("a.txt", SMALL)
    d.write("b.bin", LARGE)
    with d:
        yield d
        assert d.stop() == 0, d.lines


def t_serves_below_dockers_default_profile():
    daemon.not_sanitized("system calls of a sanitizer's own")
    with contained(DOCKER, "--tiers", "user") as d:
        assert any(BY_EPOLL in x for x in d.lines), d.lines
        asked(d.address)


def t_what_docker_forbids_leaves_a_tier_out_and_is_named():
    daemon.not_sanitized("system calls of a sanitizer's own")
    with contained(DOCKER, "--wire", "lo", words=()) as d:
        assert any("wire is off: " in x for x in d.lines), d.lines
        asked(d.address)


def t_serves_by_io_uring_below_our_profile():
    daemon.not_sanitized("system calls of a sanitizer's own")
    with contained(OURS, "--tiers", "user") as d:
        assert not any(BY_EPOLL in x for x in d.lines), d.lines
        asked(d.address)


def t_wire_works_below_our_profile():
    daemon.not_sanitized("system calls of a sanitizer's own")
    with contained(OURS, "--wire", "lo", words=()) as d:
        if any("wire is off: " in x for x in d.lines):
            raise ktap.Skip(d.why_no_wire())
        asked(d.address)


# --- the image

def blob(layout, digest):
    with open(os.path.join(layout, "blobs", *digest.split(":")), "rb") as f:
        return json.load(f)


def image_config(layout):
    """Run the command of the image."""
    with open(os.path.join(layout, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    manifest = next(blob(layout, x["digest"]) for x in index["manifests"]
                    if x["annotations"]["org.opencontainers.image.ref.name"] == "toboggan")
    return blob(layout, manifest["config"]["digest"])["config"]


IN_CONTAINER = """set -e
root=$1 profile=$2 user=$3
shift 3
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start   # as Docker has it
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
chroot "$root" /confine "/$profile" \\
	setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs "$@" &
daemon=$!
sleep 1
kill -0 $daemon
ask="chroot $root curl -sS --retry 20 --retry-connrefused --retry-delay 1"
for i in 1 2 3; do $ask http://127.0.0.1/; done
$ask --unix-socket /run/toboggan/admin.sock http://toboggan/ready
kill $daemon
wait $daemon
"""


def from_the_image(profile):
    """The messages of its daemon below a profile, while it serves its site."""
    layout = os.environ.get("TBG_IMAGE")
    if not layout:
        raise ktap.Skip("no image: see make check-image")
    config = image_config(layout)
    with tempfile.TemporaryDirectory(prefix="tbg-") as work:
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:toboggan", f"{work}/bundle"],
                       check=True, capture_output=True)
        root = f"{work}/bundle/rootfs"
        for path in (CONFINE, profile):
            shutil.copy(path, root)
        done = subprocess.run(["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc",
                               "sh", "-c", IN_CONTAINER, "sh", root, os.path.basename(profile),
                               config["User"], *config["Entrypoint"], *config["Cmd"]],
                              capture_output=True, text=True, check=False, timeout=4 * WAIT_S)
        assert done.returncode == 0, done
        with open(root + SITE, encoding="utf-8") as f:
            assert done.stdout.startswith(3 * f.read()), done.stdout
        return done.stderr


def t_image_serves_below_dockers_default_profile():
    assert BY_EPOLL in from_the_image(DOCKER)


def t_image_serves_by_io_uring_below_our_profile():
    said = from_the_image(OURS)
    assert "ready " in said and BY_EPOLL not in said, said


if __name__ == "__main__":
    ktap.run(globals())
