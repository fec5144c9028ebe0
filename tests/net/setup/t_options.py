#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Options of the daemon: accepted and refused values, and messages about what is missing.

A mistake is one line on stderr that names the option, the value and what is
accepted, and exit 2; something that is missing is named, and exit 1.
"""
import itertools
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import client
import daemon
import ktap
import talk

TOOL = os.path.join(ktap.BUILD, "toboggan")
FORBID = os.path.join(ktap.BUILD, "tests/net/forbid")
folder = ""             # of all that the tests make


def begin():
    global folder
    folder = daemon.folder_with_root()
    with open(os.path.join(folder, "file"), "wb"):
        pass


def end():
    subprocess.run(["rm", "-rf", folder], check=True)


def run(*words, prefix=()):
    # in a folder that can be written: of a test kernel that of the repository cannot
    return subprocess.run([*prefix, daemon.BINARY, *words], capture_output=True, text=True,
                          cwd=folder,
                          stdin=subprocess.DEVNULL, timeout=client.WAIT_S, check=False)


def fails(status, says, *words, prefix=()):
    """One line that has each of says."""
    r = run(*words, prefix=prefix)
    lines = [x for x in r.stderr.splitlines() if "wire is off" not in x]
    assert r.returncode == status, f"{words}: exit {r.returncode}, wanted {status}: {lines}"
    assert len(lines) == 1 and lines[0].startswith("toboggand: ") and not r.stdout, (words, lines)
    for text in says:
        assert text in lines[0], f"{text!r} is not in {lines[0]!r}"


def base(**more):
    return daemon.options(folder, **more)


BAD = {
    "listen": ("ADDR:PORT", ["", "80", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http",
                             "127.0.0.1:-1",
                             "127.0.0.1:65536", "localhost:80", "::1:80", "[::1]", "[::1]:",
                             "[::g]:80", "[]:80",
                             "256.0.0.1:80", "127.0.0.1:80 ", "1.2.3.4:99999999999999999999",
                             "x" * 300]),
    "wire": ("interface", ["", ",", "lo,", ",lo", "lo,,lo", "a b", "x" * 21,
                          ":xdp", "lo:", "lo:tc", "lo:xdpx", "lo:xdp:xdp", "lo:xdp,", "lo: xdp",
                          "auto,lo", "lo,auto", "off,lo", "lo,off", "auto,off", "AUTO", "Off",
                           "auto:xdp", "off:xdp",
                          ",".join(f"d{i}" for i in range(65))]),
    "give-back": ("1000000", ["", "-1", "x", "1.5", "1000001"]),
    "births": ("kernel", ["", "on", "Kernel", "auto,wire"]),
    "late-sockets": ("auto", ["", "on", "Auto", "auto,off", "1"]),
    "tiers": ("wire,user", ["", "user,x", "x", "all", "User", "wire;user", "user," * 100,
                             ",user", "user,", "wire,,user"]),
    "sock": ("unlisted", ["", "on", "Listed", "listed,unlisted"]),
    "memory": ("256M", ["", "0", "1", "1023K", "-1", "lots", "1.5M", "10 M", "10MB", "M",
                        "0x100000", "2000G",
                        "99999999999999999999999", "1T", "1 ", "64M "]),
    "workers": ("256", ["", "0", "257", "-1", "1.5", "two", "1 ", "99999999999999999999"]),
    "control": ("107", ["", "x" * 108]),
    "access-log": ("off", ["", "syslog:relative", "syslog:udp:", "syslog:udp:host:514", "journal:",
                           "http:"]),
    "log-level": ("error, warning, notice or debug", ["", "Notice", "info", "notice,debug", "3"]),
    "access-log-format": ("combined, json",
                          ["", "JSON", "xml", "combined ", "$nothing", "$remote $"]),
    "admin": ("socket's path",
              ["", "x", "localhost:80", "127.0.0.1", "127.0.0.1:x", "/" + "x" * 107]),
    "admin-token": ("16 to 256 bytes", ["", "/nonexistent", "/dev/null"]),
    "deny": ("2001:db8::/32", ["", "nobody", "127.0.0.1/33", "127.0.0.1/8", "::/129", "1.2.3",
                               "ALL", "*"]),
    "allow": ("as for deny", ["", "localhost", "10.0.0.0/-1", "10.0.0.1/8", "::1/64"]),
    "listen-deny": ("a blank", ["", "127.0.0.1:80", "127.0.0.1:80 ", "127.0.0.1 all", "x all",
                                "127.0.0.1:80 nobody", "127.0.0.1:80 10.0.0.1/8",
                                "127.0.0.1:80 all all", "127.0.0.1:80  all"]),
    "listen-allow": ("as for listen-deny", ["", "127.0.0.1:80", "[::1]:80 nobody"]),
    "deny-answer": ("403, 429, drop", ["", "404", "Drop", "403,drop"]),
    "limit-requests": ("20/s", ["", "x", "-1", "1.5", "20/d", "20 /s", "/s", "20s"]),
    "limit-burst": ("as many as in a second", ["", "x", "-1", "1.5"]),
    "limit-connections": ("10000000", ["", "x", "-1", "10000001"]),
    "limit-heads": ("10000000", ["", "x", "-1", "10000001"]),
    "client-prefix4": ("32", ["", "0", "33", "/24", "x"]),
    "client-prefix6": ("128", ["", "0", "129", "/64", "x"]),
    "user": ("a user that there is, by name or number", ["", "no-such-user"]),
    "header-timeout": ("10s", ["", "0", "0s", "-1s", "soon", "1h", "86401", "99999999s", "1.5s",
                               "s", "1 s"]),
    "idle-timeout": ("60s", ["", "0ms", "x", "1d"]),
    "send-timeout": ("60s", ["", "0", "x", "60S"]),
    "connections-max": ("10000000", ["", "0", "-5", "10000001", "many", "1e3"]),
    "header-max": ("65536", ["", "0", "1024", "2047", "65537", "16K", "big"]),
    "root": ("folder", [""]),
    "upstream": ("unix:PATH", ["", "127.0.0.1:80", "https://127.0.0.1", "http://", "http://:80",
                               "unix:relative",
                               "http://127.0.0.1/path", "http://127.0.0.1:port",
                               "http://127.0.0.1:0",
                               "http://127.0.0.1:65536", "http://[::1]:91005",
                               "http://127.0.0.1:18446744073709551617",
                               "unix:/" + "x" * 120]),
    "balance": ("least", ["", "random", "Turn"]),
    "connect-timeout": ("5s", ["", "0", "soon"]),
    "first-byte-timeout": ("60s", ["", "0", "x"]),
    "upstream-idle-timeout": ("60s", ["", "0", "x"]),
    "upstream-keep": ("30s", ["", "0", "x"]),
    "health-path": ("/health", ["", "health", "/a b", "/a#b", "/" + "x" * 512]),
    "health-interval": ("5s", ["", "0", "x"]),
    "body-buffer": ("64K", ["", "x", "-1", "on", "1.5M", "2000M"]),
    "body-folder": ("slash", ["", "tmp"]),
    "body-total": ("512M", ["", "x", "-1", "1.5M"]),
    "drain-timeout": ("90s", ["", "0", "-1s", "x", "2d"]),
    "unattended-timeout": ("64s", ["", "0", "999ms", "65s", "x"]),
    "wire-size": ("64K, or auto", ["", "x", "-1", "65K", "AUTO", "0x10", "1M", "Auto", "many"]),
    "body-max": ("8M", ["", "x", "-1", "1.5M", "00x", "2000G", "0 ", "1 "]),
}


def t_every_bad_value_names_option_value_and_what_is_accepted():
    for name, (accepted, values) in BAD.items():
        for value in values:
            more = {name.replace("-", "_"): value}
            fails(2, ["--" + name, value[:100], accepted], *base(**more))
            good = base(**{name.replace("-", "_"): None})
            fails(2, ["--" + name, value[:100], accepted], *good, f"--{name}={value}")


def t_every_option_of_the_help_has_bad_values_here():
    names = re.findall(r"^  --([a-z0-9-]+)", run("--help").stdout, re.M)
    assert set(names) == set(BAD) | {"config", "check", "help", "version"}, set(names) ^ set(BAD)


def t_every_bad_value_in_a_file_names_file_and_line():
    path = os.path.join(folder, "bad.conf")
    for name, (accepted, values) in BAD.items():
        for value in values:
            text = f'{{"{value}"}}' if name in ("listen", "upstream") else f'"{value}"'
            with open(path, "w", encoding="utf-8") as f:
                first = "workers = 1" if name == "memory" else "memory = 8M"
                f.write(f"# it's \"a\" comment\n{first} # another\n{name} = {text}\n")
            fails(2, [f"{path}:3", name, value[:100], accepted], "--config", path)


def t_timers_can_be_shortened_alone():
    """Those without a setting, by the environment, for tests: none becomes longer."""
    for bad in ("drain=11s", "nothing=1s", "drain", "drain=x", "drain=1s,sweep=3s", ""):
        with daemon.shortened(bad):
            fails(2, [f'TOBOGGAND_TEST_TIMERS: "{bad}"'], *base())
    with daemon.shortened("drain=10s,sweep=1ms"), daemon.Daemon("--tiers", "user") as d:
        assert any("TOBOGGAND_TEST_TIMERS" in x for x in d.lines), d.lines


def t_configurations_that_are_none():
    path = os.path.join(folder, "none.conf")
    for text in ("root", "root = ", "root = {", 'root "x"', "= 1", "}", "\0\1\2", "root = a\0b",
                 'speed = "9"',
                 "root = / b", "[server]\nroot = /tmp\n", "{}", "x" * 100000):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text + "\n")
        fails(2, [path], "--config", path)


def t_configuration_that_cannot_be_read():
    for path in ("", "/nonexistent/x.conf", os.path.join(folder, "root")):
        for option in ("--config", "--check"):
            fails(2, [f'{option} "{path}": ', "expected a file that can be read"], option, path)
    path = os.path.join(folder, "secret.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write('root = "/tmp"\n')
    os.chmod(path, 0)
    if not os.geteuid():
        fails(2, [path, "Permission denied"], "--config", path, prefix=list(daemon.AS_NOBODY))


def t_words_that_are_no_options():
    for words, says in ((["serve"], "serve"), (["-x"], "-x"), (["--"], "--"),
                        (["--speed", "9"], "--speed"),
                        (["--roots", "/"], "--roots"), (["--roo", "/"], "--roo"),
                        (["--root"], "--root"),
                        ([""], '""'), (["--=x"], "--")):
        fails(2, [says], *base(), *words)
    fails(2, ["--speed", "unknown option"], *base(), "--speed")
    for name, (accepted, _) in BAD.items():
        fails(2, ["--" + name, "no value", "expected", accepted], *base(), "--" + name)
    for name in ("config", "check"):
        fails(2, ["--" + name, "no value", "expected a file"], *base(), "--" + name)
    for name in ("help", "version"):
        fails(2, [f'--{name} "1": ', "no value"], *base(), f"--{name}=1")
    fails(2, ["--root", "missing"], "--listen", "127.0.0.1:0")
    fails(2, ["--listen", "missing"], "--root", "/tmp")
    fails(2, ["--listen", "32"], *base(), *["--listen", "127.0.0.1:0"] * 40)
    for where in ("127.0.0.1:8080", "[::1]:8080"):
        fails(2, ["--listen", where, "once"], *base(listen=where), "--listen", where)


def t_help_and_version():
    for words in (["--help"], ["--version"], [*base(), "--help"], [*base(), "--version"]):
        r = run(*words)
        assert r.returncode == 0 and r.stdout and not r.stderr, (words, r)
    assert re.fullmatch(r"toboggand \d\S*\n", run("--version").stdout)


def t_what_is_missing_is_named():
    none = "/nonexistent/x"
    fails(1, [none], *base(root=none))
    fails(1, [os.path.join(folder, "file"), "folder"], *base(root=os.path.join(folder, "file")))
    fails(1, ["--body-folder", none, "No such file"], *base(body_folder=none))
    fails(1, ["--body-folder", "Not a directory"], *base(body_folder=os.path.join(folder, "file")))
    fails(1, ["nosuch0"], *base(wire="nosuch0"))
    fails(1, ["nosuch0"], *base(wire="lo,nosuch0"))
    fails(1, ["nosuch0"], *base(wire="lo,nosuch0:xdp"))
    fails(1, ["--control " + os.path.join(folder, "file/a/c.sock")],
          *base(control=os.path.join(folder, "file/a/c.sock")))
    fails(1, ["--control " + os.path.join(folder, "no/folder/c.sock")],
          *base(control=os.path.join(folder, "no/folder/c.sock")))
    fails(1, ["--access-log " + none], *base(access_log=none))
    fails(1, ["--listen 203.0.113.9:0: Cannot assign"], *base(listen="203.0.113.9:0"))


def t_what_cannot_be_used_is_reported_with_its_line():
    """What --check does not see, or has no need to: the start does, and names the value's line."""
    path, control = os.path.join(folder, "used.conf"), os.path.join(folder, "c.sock")
    for text, says in (('access-log = "/nonexistent/x"\n',
                        ":3: access-log /nonexistent/x: No such file"),
                       (f'access-log = "{folder}"\n', f":3: access-log {folder}: Is a directory"),
                       (f'control = "{folder}/file/c.sock"\n',
                        f":3: control {folder}/file/c.sock: Not a directory"),
                       ('wire = "lo,nosuch0"\n', ":3: wire nosuch0: no such interface"),
                       ('listen = {"127.0.0.1:0",\n"203.0.113.9:0", "127.0.0.2:0"}\n',
                        ":4: listen 203.0.113.9:0: Cannot assign")):
        with open(path, "w", encoding="utf-8") as f:
            f.write('root = "/"\n\n' + text)
        words = [] if "control =" in text else ["--control", control]
        words += [] if "listen =" in text else ["--listen", "127.0.0.1:0"]
        words += [] if "wire =" in text else ["--tiers", "user"]
        fails(1, [path + says], "--config", path, *words)


def t_what_is_missing_in_a_file_is_missing():
    """Like on the command line; --check has one status for every fault."""
    path, none = os.path.join(folder, "missing.conf"), "/nonexistent/x"
    for text in (f'root = "{none}"\n', f'host a {{ root = "{none}" }}\n',
                 f'root = "/"\nbody-folder = "{none}"\n'):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        for status, words in ((1, ["--config", path, "--listen", "127.0.0.1:0"]),
                              (2, ["--check", path])):
            fails(status, [f"{path}:", none, "No such file"], *words)


def t_files_or_upstreams():
    both = base(upstream="http://127.0.0.1:1")
    fails(2, ["upstream", "root"], *both)
    path = os.path.join(folder, "both.conf")
    for text in ('root = "/"\nupstream = {"unix:/x"}\n',
                 'host "a" {\nupstream = {"unix:/x"}\nroot = "/" }\n'):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        fails(2, [f"{path}:2: ", "upstream", "root"], "--check", path)
    for text in ('upstream = {"unix:/x"}\nhost "a" { body-max = 1K }\n',
                 'upstream = {"unix:/x"}\nhost "a" { root = "/" }\n'):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        assert subprocess.run([daemon.BINARY, "--check", path, "--listen", "127.0.0.1:0"],
                          stdout=subprocess.DEVNULL, check=False).returncode == 0


def t_check_is_of_the_options_beside_it():
    path = os.path.join(folder, "rootless.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write('host "a" { }\n')
    fails(2, ["rootless.conf", "root"], "--check", path)
    fails(2, ["--memory", '"5"'], "--check", path, "--root", folder, "--memory", "5")
    fails(2, ["--listen", "missing"], "--check", path, "--root", folder)
    for words in (["--check", path, "--root", folder, "--listen", "127.0.0.1:0"],
                  ["--root", folder, "--check", path, "--memory", "64M", "--listen",
                   "127.0.0.1:0"]):
        r = subprocess.run([daemon.BINARY, *words], capture_output=True, text=True, check=False)
        assert (r.returncode, r.stdout) == (0, f"{path}: good\n"), r


def t_check_looks_at_where_log_and_socket_go():
    conf, sock, gone = (os.path.join(folder, x) for x in ("places.conf", "listens.sock",
                                                          "dead.sock"))
    at = {x: os.path.join(folder, x) for x in ("file", "root", "pipe", "new.log", "new/c.sock",
                                               "new/er/c.sock", "file/x")}
    os.mkfifo(at["pipe"])
    accepts = {
        "access-log": "the path of a file that can be written, syslog:, syslog:udp:ADDR:PORT, "
                      "journald: or off",
               "control": "a socket's path of at most 107 bytes, in a folder that can be written"}
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as dead:
        live.bind(sock)
        live.listen()
        dead.bind(gone)
        dead.close()
        rows = (("access-log", at["new.log"], ""), ("access-log", at["file"], ""),
                ("access-log", at["pipe"], ""),
                ("access-log", "/dev/full", ""), ("access-log", "off", ""),
                ("access-log", at["root"], "Is a directory"),
                ("access-log", sock, "No such device or address"),
                ("access-log", "/nonexistent/x", "No such file"),
                ("access-log", at["file/x"], "Not a directory"),
                ("control", at["new/c.sock"], ""), ("control", sock, ""), ("control", gone, ""),
                ("control", "new.sock", ""),
                ("control", at["new/er/c.sock"], "No such file"),
                ("control", at["file/x"], "Not a directory"),
                ("control", at["file"], "File exists"), ("control", at["root"], "File exists"))
        for name, path, why in rows:
            for where in (f"{conf}:2: {name}", f"--{name}"):
                in_file = where.startswith(conf)
                with open(conf, "w", encoding="utf-8") as f:
                    f.write('root = "/"\n' + (f'{name} = "{path}"\n' if in_file else ""))
                words = ["--check", conf, "--listen",
                         "127.0.0.1:0"] + ([] if in_file else [f"--{name}", path])
                if why:
                    fails(2, [f'{where} "{path}": {why}', f"; expected {accepts[name]}"], *words)
                else:
                    r = run(*words)
                    assert (r.returncode, r.stdout, r.stderr) == (0, f"{conf}: good\n", ""), \
                           (words, r)
    assert not any(os.path.exists(at[x]) for x in ("new.log", "new/c.sock")), os.listdir(folder)
    # it is right: a daemon that is told the same starts, or does not
    fails(1, ["--access-log " + at["root"], "Is a directory"], *base(access_log=at["root"]))
    fails(1, ["--control " + at["file"], "exists and is not a socket"], *base(control=at["file"]))


def t_check_looks_for_interfaces_and_addresses():
    """As a start does, with its words; whether a port is taken is the start's to find out."""
    conf = os.path.join(folder, "machine.conf")
    there = socket.create_server(("127.0.0.1", 0))
    taken = f"127.0.0.1:{there.getsockname()[1]}"
    for text, where, says in ((f'listen = "{taken}"', "", ""),
                              ('listen = "[::]:0"\nwire = "lo"', "", ""),
                              ('listen = "127.0.0.1:0"\nwire = "nowhere0,lo"', ":3: wire",
                               "no such interface"),
                              ('listen = {"127.0.0.1:0", "192.0.2.77:8080"}',
                               ":2: listen 192.0.2.77:8080",
                               "Cannot assign requested address")):
        with open(conf, "w", encoding="utf-8") as f:
            f.write('root = "/"\n' + text + "\n")
        if says:
            fails(2, [conf + where, says], "--check", conf)
            fails(1, [conf + where, says], "--config", conf, "--control",
                  os.path.join(folder, "m.sock"), "--tiers", "user")
        else:
            r = run("--check", conf)
            assert (r.returncode, r.stdout, r.stderr) == (0, f"{conf}: good\n", ""), (text, r)
    there.close()


def t_check_is_for_who_checks():
    if os.geteuid():
        raise ktap.Skip("not root: cannot become another user")
    conf = os.path.join(folder, "whose.conf")
    own = os.path.join(folder, "own")
    os.makedirs(own)
    os.chown(own, daemon.NOBODY, daemon.NOBODY)
    for name, path, good in (("access-log", "file", False), ("access-log", "new.log", False),
                             ("access-log", "own/x", True),
                             ("control", "c.sock", False), ("control", "new/c.sock", False),
                             ("control", "own/x", True),
                             ("control", "own/new/c.sock", True)):
        path = os.path.join(folder, path)
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f'root = "/"\n\n{name} = "{path}"\n')
            if name != "control":       # without one, users have no place for it
                f.write(f'control = "{own}/c.sock"\n')
        assert run("--check", conf, "--listen", "127.0.0.1:0").returncode == 0, path
        if good:
            assert run("--check", conf, "--listen", "127.0.0.1:0",
                       prefix=list(daemon.AS_NOBODY)).returncode == 0, path
        else:
            fails(2, [f'{conf}:3: {name} "{path}": Permission denied; expected '], "--check", conf,
                  prefix=list(daemon.AS_NOBODY))


def t_inotify_that_is_used_up_is_named():
    without = ["unshare", "--user", "--map-root-user", "sh", "-c",
               'echo 0 >/proc/sys/user/max_inotify_instances && exec unshare --user '
               '--map-user=1000 "$0" "$@"']
    if subprocess.run([*without, "true"], capture_output=True, timeout=client.WAIT_S,
                      check=False).returncode:
        raise ktap.Skip("no user namespaces")
    with daemon.Daemon("--tiers", "user", prefix=without) as d:
        assert any(all(x in line for x in ("inotify", "Too many open files", "max_user_instances",
                                           "50 ms"))
                   for line in d.lines), d.lines
        with client.Client(d.address) as c:
            d.write("a", b"one")
            assert c.get("/a").body == b"one" and c.get("/a").body == b"one"
            d.write("a", b"other")
            time.sleep(0.1)
            assert c.get("/a").body == b"other"


def t_root_that_cannot_be_dropped_is_named():
    """uid 0 of a container that may not change it."""
    if os.geteuid():
        raise ktap.Skip("not root: nothing to drop")
    without = ["setpriv", "--bounding-set=-setgid,-setuid", "--inh-caps=-setgid,-setuid"]
    fails(1, ["CAP_SETGID", "Operation not permitted"], *base(), prefix=without)


def t_upstream_that_is_no_name():
    fails(2, ['--upstream "http://10.0.0.300:80": expected'],
          *base(root=None, upstream="http://10.0.0.300:80"))


def t_openat2_that_is_forbidden_is_found_at_the_start():
    fails(1, ["openat2", "Operation not permitted", "seccomp"], *base(), prefix=[FORBID, "openat2"])


def t_a_port_that_needs_a_privilege_names_it():
    if os.geteuid():
        raise ktap.Skip("not root: cannot become another user")
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as f:
        assert int(f.read()) > 80
    own = os.path.join(folder, "port")
    os.makedirs(own)
    os.chown(own, daemon.NOBODY, daemon.NOBODY)
    fails(1, ["127.0.0.1:80", "Permission denied", "CAP_NET_BIND_SERVICE"],
          *base(listen="127.0.0.1:80", control=own + "/c.sock"), prefix=list(daemon.AS_NOBODY))


def t_port_that_is_taken():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        where = f"127.0.0.1:{s.getsockname()[1]}"
        fails(1, [where], *base(listen=where))
    with daemon.Daemon("--wire", "off") as d:
        where = f"127.0.0.1:{d.address[1]}"
        fails(1, [where], *base(listen=where))
        d.write("a.txt", b"a\n")
        with client.Client(d.address) as c:
            assert c.get("/a.txt").body == b"a\n"


def t_nothing_is_left_of_a_start_that_failed():
    before = set(os.listdir(folder))
    fails(1, ["nosuch0"], *base(wire="nosuch0"))
    fails(1, ["/nonexistent"], *base(access_log="/nonexistent/x"))
    assert set(os.listdir(folder)) - before == set(), os.listdir(folder)


def t_without_stdin_stdout_and_stderr():
    """Messages must not go to another descriptor of the daemon."""
    control = os.path.join(folder, "bare.sock")
    d = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', daemon.BINARY,
                          *base(control=control)])
    try:
        until = time.monotonic() + client.WAIT_S
        while subprocess.run([TOOL, "--control", control, "status"], capture_output=True,
                             timeout=client.WAIT_S,
                             check=False).returncode:
            assert time.monotonic() < until and d.poll() is None, "it never answers"
            time.sleep(0.01)
        for fd in range(3):
            assert os.readlink(f"/proc/{d.pid}/fd/{fd}") == "/dev/null", fd
    finally:
        d.terminate()
        assert d.wait(client.WAIT_S) == 0


def t_command_line_wins_over_the_file():
    d = daemon.Daemon("--wire", "off", "--workers", "1")
    path = os.path.join(d.folder, "t.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write('# a file\nworkers = 2\naccess-log = "#odd" # that is a name\n'
                'listen = {"203.0.113.9:80"}\nmemory = "8M"\n')
    d.options = ["--access-log", "off", "--config", path] + d.options
    with d:
        assert "workers 1" in d.ready and "203.0.113.9" not in d.ready, d.ready


def level_taken(d, path, level):
    """It has read its file again, with that level, and logged so."""
    nr = len(d.lines)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'log-level = "{level}"\n')
    os.kill(d.pid, signal.SIGHUP)
    client.until(lambda: any("reloaded" in x for x in d.lines[nr:]), "not reloaded")


def t_log_level_leaves_out_what_is_less_grave():
    with daemon.Daemon("--tiers", "user") as d:
        assert any("wire is off" in x for x in d.lines), d.lines
    for level in ("warning", "error"):
        with daemon.Daemon("--tiers", "user", "--log-level", level) as d:
            assert d.ready and any("wire is off" in x for x in d.lines) == (level == "warning"), \
                   d.lines


def t_log_level_changes_at_a_reload():
    path = os.path.join(folder, "level.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write('log-level = "debug"\n')
    with socket.socket() as s:          # bound, and nobody listens
        s.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{s.getsockname()[1]}"
        with daemon.Daemon("--tiers", "user", "--upstream", server, "--config", path) as d:
            for level, target in (("notice", "/first"), ("debug", "/second"), ("debug", "/third")):
                with client.Client(d.address) as c:
                    assert c.get(target).status == 502
                if target != "/second":
                    client.until(lambda t=target: any(f": GET {t}: 502 after" in x
                                                      for x in d.lines), d.lines)
                level_taken(d, path, level)
            assert not any("/second" in x for x in d.lines), d.lines


def t_a_crash_writes_what_the_workers_did_last():
    daemon.not_sanitized("what a fatal signal writes")
    d = daemon.Daemon("--tiers", "user", "--workers", "2")
    with d:
        with client.Client(d.address) as c:
            assert c.get("/none").status == 404
        os.kill(d.pid, signal.SIGSEGV)
        client.until(lambda: d.process.poll() is not None, "still there")
        assert d.process.returncode == -signal.SIGSEGV, d.process.returncode
        client.until(lambda: any(": connection begins, descriptor " in x for x in d.lines), d.lines)
        assert any("toboggand: signal 11, a fault in the daemon" in x for x in d.lines), d.lines


def daemon_of_nobody(*options):
    if os.geteuid():
        return daemon.Daemon(*options)
    d = daemon.Daemon(*options, prefix=list(daemon.AS_NOBODY))
    os.chown(d.folder, daemon.NOBODY, daemon.NOBODY)
    return d


def serves(d, why=None):
    """The same server; one line gives the reason why wire is off."""
    d.write("index.html", b"front\n")
    lines = [x for x in d.lines if "wire is off" in x]
    assert len(lines) == (why is not None), d.lines
    assert why is None or why in lines[0], lines
    with client.Client(d.address) as c:
        for tier in ("stored", "user", "user"):
            r = c.get("/")
            assert r.body == b"front\n" and daemon.is_tier(r.tier, tier), r
        assert c.get("/none").status == 404


def t_without_bpf_it_is_the_same_server():
    for options, why in ((("--tiers", "user"), "--tiers user"), (("--wire", "off"), "--wire off")):
        with daemon.Daemon(*options) as d:
            assert " wire off" in d.ready, d.ready
            serves(d, why)


def t_any_subset_of_the_tiers():
    """Tiers that are not named are off; user is always on."""
    subsets = [some for nr in (1, 2, 3)
               for some in itertools.combinations(("wire", "sock", "user"), nr)]
    for named in (*subsets, ("user", "sock", "wire")):      # in any order
        with daemon.Daemon("--tiers", ",".join(named)) as d:
            d.write("a.txt", b"a\n")
            tiers = talk.ask(d, "status")["tiers"]
            assert tiers["user"]["on"], tiers
            for tier in "wire", "sock":     # a kernel may lack what one needs
                assert ("--tiers" in tiers[tier].get("why", "")) == (tier not in named), \
                       (named, tiers)
            with client.Client(d.address) as c:
                for _ in range(3):
                    assert c.get("/a.txt").body == b"a\n"


def t_without_privilege_it_is_the_same_server():
    with daemon_of_nobody("--tiers", "wire,user") as d:
        serves(d, "")
        line = next(x for x in d.lines if "wire is off" in x)
        assert re.search("root|CAP_", line), line
        assert stat.S_IMODE(os.stat(d.control).st_mode) == 0o600
    with daemon_of_nobody("--wire", "lo") as d:
        serves(d, "")
    for kernels in "listed", "unlisted":
        with daemon_of_nobody("--tiers", "wire,sock,user", "--sock", kernels) as d:
            serves(d, "")
            for tier in "wire", "sock":
                line = next(x for x in d.lines if f"{tier} is off" in x)
                assert "Operation not permitted" in line and "CAP_PERFMON" in line, line
    with daemon_of_nobody("--tiers", "user") as d:
        serves(d, "--tiers user")
    if not os.geteuid():
        fails(1, ["root", "--user"], *base(user="root", control=f"/tmp/tbg-none-{os.getpid()}"),
              prefix=list(daemon.AS_NOBODY))


def t_root_on_a_way_that_is_closed_to_the_user_is_reported():
    """It was opened before the privileges went, and cannot be followed."""
    if os.geteuid():
        raise ktap.Skip("not root: cannot become nobody")
    for mode, told in ((0o700, 1), (0o755, 0)):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, mode)
            os.mkdir(f"{folder}/site")
            with open(f"{folder}/site/a", "wb") as f:
                f.write(b"a")
            with daemon.Daemon("--wire", "off", "--user", "nobody", root=f"{folder}/site") as d, \
                    client.Client(d.address) as c:
                assert c.get("/a").body == b"a"
                if told:
                    client.until(lambda: any("SIGHUP" in x for x in d.lines), "never said")
                time.sleep(0.2)
                lines = [x for x in d.lines if f'root "{folder}/site"' in x]
                assert len(lines) == told, d.lines


if __name__ == "__main__":
    ktap.run(globals(), setup=begin, teardown=end)
