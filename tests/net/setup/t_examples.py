#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The documentation's examples, the package's files and the daemon agree."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import daemon
import ktap

OPERATING = os.path.join(ktap.ROOT, "Documentation/operating")
FILES = os.path.join(ktap.ROOT, "tools/package/files")
WAIT_S = 60
BUILD_S = 600


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True,
                          timeout=BUILD_S if words[0] == "make" else WAIT_S, check=False,
                          **more)


def check(text):
    """--check of a configuration, with its paths in a scratch folder."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ("/srv/www", "/usr/share/toboggan/example-site", "/run/toboggan",
                     "/var/log/toboggan"):
            os.makedirs(folder + path)
            text = re.sub(rf'"{path}(?=[/"])', f'"{folder}{path}', text)
        name = os.path.join(folder, "toboggan.conf")
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
        return run(daemon.BINARY, "--check", name)


def t_examples_of_the_documentation_are_good():
    found = 0
    for name in glob.glob(OPERATING + "/*.rst"):
        for block in re.findall(r"\.\. code-block:: toboggan\n\n((?:(?: +.*)?\n)+)", read(name)):
            r = check(textwrap.dedent(block))
            assert r.returncode == 0, (name, block, r.stderr)
            found += 1
    assert found >= 2, found


def t_pages_for_operators_can_be_read():
    for name in glob.glob(OPERATING + "/*.rst"):
        r = run("rst2man", "--halt=3", "--report=3", name, "/dev/null")
        assert r.returncode == 0 and not r.stderr, (name, r.stderr)


def t_example_of_the_package_is_good():
    r = check(read(FILES, "toboggan.conf"))
    assert r.returncode == 0, r.stderr


def t_settings_that_are_named_exist():
    known = set(re.findall(r"^  --([a-z-]+)", run(daemon.BINARY, "--help").stdout, re.M))
    known |= set(re.findall(r"^\*?\*?([a-z-]+)\*?\*? = ",
                            read(ktap.ROOT, "Documentation/toboggan.conf.5.rst"), re.M))
    manual = read(ktap.ROOT, "Documentation/toboggan.conf.5.rst") + \
        read(ktap.ROOT, "Documentation/toboggand.8.rst")
    for name in re.findall(r"^``[a-z_ ]+``.*?  ``([a-z-]+)``", read(OPERATING, "migration.rst"),
                           re.M):
        assert name in known or re.search(rf"\b{name}\b", manual), name


def t_fields_of_the_log_that_are_named_exist():
    table = read(OPERATING, "migration.rst")
    names = re.findall(r"``(\$\w+)``", "".join(re.findall(r"^``.{30}(.*)$", table, re.M)))
    assert {"$client", "$request_id"} <= set(names), names
    for name in names + ["$unheard_of"]:
        r = check(f'listen = "127.0.0.1:80"\nroot = "/srv/www"\naccess-log-format = "{name}"\n')
        assert (r.returncode == 0) == (name != "$unheard_of"), (name, r.stderr)


def t_metrics_that_are_named_exist():
    with daemon.Daemon(*daemon.USER, "--upstream", "http://127.0.0.1:1") as d:
        text = run("curl", "-sS", "--unix-socket", os.path.join(d.folder, "admin.sock"),
                   "http://a/metrics").stdout
    names = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    for where in (read(FILES, "toboggan.rules.yml"), read(FILES, "toboggan-dashboard.json"),
                  read(OPERATING, "monitoring.rst"), read(OPERATING, "sizing.rst")):
        for name in re.findall(r"\btoboggan_\w+\w(?![*\w])", where):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in names or base in names, name


def t_the_unit_is_hardened():
    out = run("systemd-analyze", "security", "--offline=true",
              os.path.join(FILES, "toboggan.service"))
    if out.returncode and "command not found" in out.stderr:
        raise ktap.Skip("no systemd-analyze")
    level = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", out.stdout).group(1))
    assert level <= 2.0, level


def t_the_apparmor_profile_is_sound():
    parser = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:" + os.environ.get("PATH", ""))
    if not parser:
        raise ktap.Skip("no apparmor_parser")
    profile = os.path.join(FILES, "toboggan.apparmor")
    good = run(parser, "-Q", "-K", profile)
    assert good.returncode == 0, good.stderr
    # a faulty profile is refused, so the parser does read it
    with tempfile.NamedTemporaryFile("w", suffix=".apparmor") as f:
        f.write(read(profile).replace("capability bpf,", "capability no_such,"))
        f.flush()
        assert run(parser, "-Q", "-K", f.name).returncode != 0


def t_uninstall_removes_what_install_puts():
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, DESTDIR=folder, PREFIX="/usr", O=ktap.BUILD)
        r = run("make", "-s", "install", cwd=ktap.ROOT, env=env)
        assert r.returncode == 0, r.stderr
        assert os.path.exists(folder + "/usr/sbin/toboggand") and \
               os.path.exists(folder + "/usr/lib/systemd/system/toboggan.service")
        other = folder + "/usr/sbin/other"
        open(other, "w", encoding="ascii").close()
        r = run("make", "-s", "uninstall", cwd=ktap.ROOT, env=env)
        assert r.returncode == 0, r.stderr
        left = [os.path.join(at, x) for at, _, files in os.walk(folder) for x in files]
        assert left == [other], left


if __name__ == "__main__":
    ktap.run(globals())
