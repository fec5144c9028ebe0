# SPDX-License-Identifier: GPL-2.0
"""Fetch the kernels that vm/kernels names from the machine's own apt mirror.

Called by vm/run. apt itself downloads and checks the signatures, with a
private state under build/vm/apt; the system's sources, lists and installed
packages are never touched, and no host is named here. A kernel is unpacked to
build/vm/<package>_<version>/ as vmlinuz, config, origin and modules/, and
build/vm/named/<name> is a link to it. Any number of builds may share build/vm, since it
contains nothing of a run.
"""
from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, Iterator

import kernel

HERE = os.path.dirname(os.path.abspath(__file__))
INDEX_AGE_MAX_S = 24 * 3600
PROGRESS_S = 5
KEYRINGS = "/usr/share/keyrings/debian-archive-keyring.*"


class FetchError(Exception):
    """A step that failed; the text is for a person."""


class Line:
    """A line of vm/kernels. by_default: boots without being named."""

    def __init__(self, suites: str, package: str, by_default: bool) -> None:
        self.suites, self.pattern = suites.split(","), re.compile(package)
        self.by_default = by_default
        self.arch = "arm64" if package.endswith("-arm64") else "amd64"


def table() -> dict[str, Line]:
    """{name: Line} of vm/kernels, in its order."""
    ret = {}
    with open(os.path.join(HERE, "kernels"), encoding="utf-8") as f:
        for nr, line in enumerate(f, 1):
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if len(words) not in (3, 4) or words[3:] not in ([], ["by-name"]):
                raise FetchError(f"vm/kernels:{nr}: want `name suites package [by-name]`")
            try:
                ret[words[0]] = Line(words[1], words[2], len(words) == 3)
            except re.error as e:
                raise FetchError(f"vm/kernels:{nr}: {words[2]}: no regular expression: {e}") from e
    return ret


def default_names() -> list:
    return [name for name, line in table().items() if line.by_default]


def output(step: str, argv: list[str], **kw: Any) -> Any:
    res = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         check=False, **kw)
    if res.returncode:
        why = (res.stderr.strip() or f"exit {res.returncode}").splitlines()
        raise FetchError(f"{step}: {why[0]}")
    return res.stdout


def mirrors() -> tuple:
    """(main, security) archive addresses, from the apt configuration as it is."""
    main = security = None
    rows = []
    for how in ([], ["--no-release-info"]):     # the second: lists were never downloaded
        text = output("mirror", ["apt-get", "indextargets", *how, "--format",
                                 "$(REPO_URI) $(RELEASE) $(ORIGIN)", "Identifier: Packages"])
        rows += [line.split() for line in text.splitlines()]
    rows.sort(key=lambda row: row[2:] != ["Debian"])
    for uri, release in (row[:2] for row in rows
                         if row[2:] == ["Debian"] or "debian" in row[0]):
        if "security" in release:
            security = security or uri
        else:
            main = main or uri
    if not main:
        raise FetchError("mirror: apt on this machine knows no Debian archive; "
                         "add one to its sources, or put kernels into build/vm by hand")
    return main, security


class Apt:
    """apt with a state of its own; the mirror's names stay in build/."""

    def __init__(self, build: str, arch: str = "amd64",
                 notify: Callable[[str], None] = lambda _: None,
                 purpose: str = "") -> None:
        self.arch, self.notify = arch, notify
        words = ["apt", *([] if arch == "amd64" else [arch]), *([purpose] if purpose else [])]
        # builds that share build/vm use the same name for it in what is kept
        self.dir = os.path.join(os.path.realpath(os.path.join(build, "vm")), "-".join(words))
        self.debs = os.path.join(self.dir, "debs")
        for sub in ("sources", "lists/partial", "cache/archives/partial", "debs"):
            os.makedirs(os.path.join(self.dir, sub), exist_ok=True)
        self.env = dict(os.environ, APT_CONFIG=os.path.join(self.dir, "apt.conf"), LC_ALL="C")

    def configure(self, suites: dict | list) -> None:
        keyring = next(iter(sorted(glob.glob(KEYRINGS))), None)
        if not keyring:
            raise FetchError(f"keyring: no {KEYRINGS}; install debian-archive-keyring")
        main, security = mirrors()
        stanzas = []
        for uri, is_security in ((main, False), (security, True)):
            mine = [s for s in suites if s.endswith("-security") == is_security]
            if uri and mine:
                stanzas.append(f"Types: deb\nURIs: {uri}\nSuites: {' '.join(mine)}\n"
                               f"Components: main\nArchitectures: {self.arch}\n"
                               f"Targets: Packages\nSigned-By: {keyring}\n")
        self.write("sources/kernels.sources", "\n".join(stanzas))

    def write_conf(self) -> None:
        """Write apt's configuration for the current place of this folder."""
        self.write("apt.conf", "".join(f'{key} "{value}";\n' for key, value in (
            ("Dir::Etc::SourceList", "/dev/null"),
            ("Dir::Etc::SourceParts", f"{self.dir}/sources"),
            ("Dir::State", self.dir), ("Dir::State::Lists", f"{self.dir}/lists"),
            ("Dir::State::status", "/dev/null"), ("Dir::Cache", f"{self.dir}/cache"),
            ("Acquire::Languages", "none"), ("Acquire::Retries", "2"),
            ("Dir::Log", self.dir), ("APT::Architecture", self.arch),
            ("APT::Architectures", self.arch), ("APT::Update::Error-Mode", "any"))))

    def write(self, name: str, text: str) -> None:
        """Replace a file that others may be reading, in one step."""
        path = os.path.join(self.dir, name)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as f:
            f.write(text)
        os.rename(f.name, path)

    def update(self, suites: dict | list, force: bool) -> None:
        """Refresh the signed index, at most once a day while the suites are the same."""
        self.write_conf()
        stamp, asked = os.path.join(self.dir, "updated"), " ".join(suites)
        if not force and os.path.exists(stamp) and \
           time.time() - os.path.getmtime(stamp) < INDEX_AGE_MAX_S:
            with open(stamp, encoding="utf-8") as f:
                if f.read() == asked:
                    return
        self.configure(suites)
        self.notify(f"asking the mirror for its index ({', '.join(suites)})")
        with self.shown("the index", os.path.join(self.dir, "lists"), 0):
            output("index", ["apt-get", "-qq", "update"], env=self.env)
        self.write("updated", asked)

    def stanzas(self, suites: list[str]) -> Any:
        """{package: [fields]} of every linux-* package in these suites.

        Reading the whole index takes seconds, so the result is kept until the next refresh.
        """
        kept = os.path.join(self.dir, f"packages-{'+'.join(suites)}.json")
        with contextlib.suppress(OSError, ValueError):
            if os.path.getmtime(kept) > os.path.getmtime(os.path.join(self.dir, "updated")):
                with open(kept, encoding="utf-8") as f:
                    return json.load(f)
        ret = self.read_index(suites)
        self.write(os.path.basename(kept), json.dumps(ret))
        return ret

    def read_index(self, suites: list[str]) -> dict:
        names = output("index", ["apt-get", "indextargets", "--format",
                                 "$(RELEASE) $(FILENAME)", "Identifier: Packages"], env=self.env)
        ret = {}
        for release, path in (line.split(None, 1) for line in names.splitlines()):
            if release not in suites:
                continue
            text = output("index", ["/usr/lib/apt/apt-helper", "cat-file", path], env=self.env)
            for stanza in text.split("\n\n"):
                if stanza.startswith("Package: linux-"):
                    fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", stanza, re.M))
                    ret.setdefault(fields["Package"], []).append(fields)
        return ret

    def download(self, package: str, version: str, size: int = 0) -> str:
        """Path of the complete .deb; apt checks it against the signed index."""
        name = f"{package}_{version.replace(':', '%3a')}_"
        for found in os.listdir(self.debs):
            if found.startswith(name):
                return os.path.join(self.debs, found)
        with tempfile.TemporaryDirectory(dir=self.dir) as tmp:
            argv = ["apt-get", "-qq", "-o", f"Dir::Cache::archives={tmp}/", "download",
                    f"{package}={version}"]
            os.makedirs(os.path.join(tmp, "partial"))
            with self.shown(package, tmp, size):
                output(f"download {package}", argv, cwd=tmp, env=self.env)
            deb = next((found for found in os.listdir(tmp) if found.startswith(name)), None)
            if not deb:
                raise FetchError(f"download {package}: apt left no {name}*.deb")
            os.rename(os.path.join(tmp, deb), os.path.join(self.debs, deb))
        return os.path.join(self.debs, deb)

    @contextlib.contextmanager
    def shown(self, package: str, folder: str, size: int) -> Iterator[None]:
        """Call progress() repeatedly while the body runs."""
        done = threading.Event()
        thread = threading.Thread(target=self.progress, args=(package, folder, size, done))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def progress(self, what: str, folder: str, size: int, done: Any) -> None:
        """Prints a line at the start, and one every five seconds. size: 0 if not known."""
        whole = f"{size / 1e6:.0f} MB" if size >= 5e5 else f"{size / 1e3:.0f} kB"
        if size:
            self.notify(f"downloading {what}, {whole}")
        while not done.wait(PROGRESS_S):
            have = size_in(folder)
            self.notify(f"downloading {what}, {have / 1e6:.0f} " +
                        (f"of {whole} ({have / size:.0%})" if size else "MB so far"))


def size_in(folder: str) -> int:
    """Bytes that a folder has received, in complete and partial files."""
    ret = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):        # renamed meanwhile
                ret += os.path.getsize(os.path.join(where, name))
    return ret


def newer(a: Any, b: Any) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", a, "gt", b], check=False).returncode == 0


def choose(stanzas: Any, pattern: re.Pattern) -> list:
    """The highest version of the image, and the packages it is split into, with their sizes."""
    best = None
    for package, versions in stanzas.items():
        for fields in versions if pattern.fullmatch(package) else []:
            if best is None or newer(fields["Version"], best["Version"]):
                best = fields
    if best is None:
        raise FetchError(f"index: no package matches {pattern.pattern}")
    parts = re.findall(r"(linux-[\w.+-]+) \(= ([^)]+)\)", best.get("Depends", ""))
    return [(package, version, size_of(stanzas, package, version))
            for package, version in [(best["Package"], best["Version"])] + parts]


def size_of(stanzas: Any, package: str, version: str) -> Any:
    return next((int(f.get("Size", 0)) for f in stanzas.get(package, [])
                 if f["Version"] == version), 0)


# Modules that no suite can need; they are three quarters of a package.
NO_MODULES = ("sound", "drivers/gpu", "drivers/media", "drivers/infiniband", "drivers/scsi",
              "drivers/net/ethernet", "drivers/net/wireless", "drivers/staging", "drivers/iio",
              "drivers/usb", "drivers/hwmon", "drivers/input", "drivers/mtd", "drivers/hid")


def extract(deb: str, tree: str) -> None:
    """Unpack one .deb. A broken one is deleted; otherwise every later run would fail on it."""
    skip = [f"--exclude=*/kernel/{sub}" for sub in NO_MODULES]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as source:
        tar = subprocess.run(["tar", "-x", "-f", "-", "-C", tree, *skip], stdin=source.stdout,
                             stderr=subprocess.PIPE, text=True, check=False)
        broken = source.stderr.read().decode(errors="replace").strip()
        source.stdout.close()
    if not (source.returncode or tar.returncode):
        return
    if shutil.disk_usage(tree).free < kernel.ROOM_MIN:
        raise FetchError(f"unpack {os.path.basename(deb)}: the disk of {tree} is full; "
                         "make room there, or give another --build")
    os.unlink(deb)
    why = (broken or tar.stderr.strip() or f"exit {source.returncode}").splitlines()[0]
    raise FetchError(f"unpack {os.path.basename(deb)}: {why}; "
                     f"{deb} is deleted, the next run fetches it again")


def unpack(debs: list[str], package: str, dest: str) -> None:
    """Fill dest from the .debs; it appears complete or not at all."""
    tmp, tree = dest + ".new", dest + ".tree"
    for path in (tmp, tree):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    try:
        for deb in debs:
            extract(deb, tree)
        for name, pattern in (("vmlinuz", "vmlinuz*"), ("config", "config*")):
            found = [p for where in ("boot", "usr/lib/modules/*", "lib/modules/*")
                     for p in glob.glob(f"{tree}/{where}/{pattern}")]
            if len(found) != 1:
                raise FetchError(f"unpack: {len(found)} files called {name} in {package}")
            shutil.move(found[0], os.path.join(tmp, name))
        trees = [p for where in ("usr/lib/modules/*", "lib/modules/*")
                 for p in glob.glob(f"{tree}/{where}")]
        if len(trees) != 1:
            raise FetchError(f"unpack: {len(trees)} folders of modules in {package}")
        shutil.move(trees[0], os.path.join(tmp, "modules"))
        with open(os.path.join(tmp, "origin"), "w", encoding="utf-8") as f:
            f.write(package + "\n")
        shutil.rmtree(dest, ignore_errors=True)
        os.rename(tmp, dest)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.rmtree(tmp, ignore_errors=True)


def folder_of(build: str, package: str, version: str) -> str:
    return os.path.join(build, "vm", f"{package}_{version.replace(':', '%3a')}")


def origin(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, "origin"), encoding="utf-8") as f:
            return f.read().strip()
    except FileNotFoundError:
        return None


def name_link(build: str, name: str) -> str:
    return os.path.join(build, "vm", "named", name)


def call_it(build: str, name: str, folder: str) -> None:
    """Link build/vm/named/<name> to folder; at every moment it leads to the old or the new one."""
    link = name_link(build, name)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    fresh = f"{link}.{os.getpid()}"
    os.symlink(os.path.join(os.pardir, os.path.basename(folder)), fresh)
    os.rename(fresh, link)


def fetch_one(apt: Apt, name: str, build: str) -> str:
    """Folder of the unpacked kernel called name."""
    line = table()[name]
    parts = choose(apt.stanzas(line.suites), line.pattern)
    image, version, _ = parts[0]
    if not image.startswith("linux-image-"):
        dest = folder_of(build, image, version)
        if origin(dest) != f"{image} {version}":
            raise FetchError(f"{image} {version} is a source package and is not built; "
                             "use `make -C vm debug-kernel`, which takes half an hour or more")
    else:
        dest = folder_of(build, image, version)
        if origin(dest) != f"{image} {version}":
            debs = [apt.download(*part) for part in parts]
            apt.notify(f"unpacking {image} {version}")
            unpack(debs, f"{image} {version}", dest)
            for deb in debs:
                os.unlink(deb)
    call_it(build, name, dest)
    return dest


def is_used(folder: str) -> bool:
    """Whether a run boots from it: such a run holds a shared lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def prune(build: str) -> None:
    """Delete kernels that no name leads to and that no run boots."""
    vm = os.path.join(build, "vm")
    named = {os.path.realpath(link) for link in glob.glob(os.path.join(vm, "named", "*"))}
    for path in glob.glob(f"{vm}/*/origin"):
        folder = os.path.dirname(path)
        if os.path.realpath(folder) not in named and not is_used(folder):
            shutil.rmtree(folder)


def fetch(names: list[str], build: str, notify: Callable[[str], None], refresh: bool = False,
          offline: bool = False) -> dict:
    """{name: Kernel}; falls back, with a message, on kernels that an earlier run unpacked.

    One run at a time fetches. Another one waits, and finds what the first has fetched.
    Each kernel's folder stays locked against prune() while this process lives.
    """
    os.makedirs(os.path.join(build, "vm"), exist_ok=True)
    with open(os.path.join(build, "vm", "fetching"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify("another run is fetching: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        folders = fetch_alone(names, build, notify, refresh, offline)
        for folder in folders.values():
            fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    return {name: unpacked(name, folder) for name, folder in folders.items()}


def unpacked(name: str, folder: str) -> kernel.Kernel:
    """The Kernel in a folder that unpack() has filled."""
    with open(os.path.join(folder, "config"), encoding="utf-8") as f:
        return kernel.Kernel(name, os.path.join(folder, "vmlinuz"), f.read(),
                             os.path.join(folder, "modules"), origin(folder))


def fetch_alone(names: list[str], build: str, notify: Callable[[str], None], refresh: bool,
                offline: bool) -> dict[str, str]:
    lines = table()
    ret, apts = {}, {}
    for name in names:
        arch = lines[name].arch
        if arch not in apts:
            apts[arch] = updated(Apt(build, arch, notify), refresh, offline)
        apt, why = apts[arch]
        if not why:
            try:
                ret[name] = fetch_one(apt, name, build)
                continue
            except FetchError as e:
                why = str(e)
        cached = os.path.realpath(name_link(build, name))
        package = origin(cached)
        if not package or not lines[name].pattern.fullmatch(package.split()[0]):
            raise FetchError(f"{name}: {why}, and no earlier run has left such a kernel in "
                             f"{name_link(build, name)}")
        notify(f"{name}: {why}; using the cached {package}")
        ret[name] = cached
    if not any(why for _, why in apts.values()):
        prune(build)
    return ret


def suites_of(arch: str) -> list:
    """The suites of all kernels of arch, which one Apt reads at once."""
    return sorted({s for line in table().values() if line.arch == arch for s in line.suites})


def chosen(name: str, build: str, notify: Callable[[str], None]) -> tuple[Apt, list]:
    """(Apt, [(package, version, size)]) for the line of vm/kernels called name."""
    line = table()[name]
    apt = Apt(build, line.arch, notify)
    apt.update(suites_of(line.arch), False)
    return apt, choose(apt.stanzas(line.suites), line.pattern)


def updated(apt: Apt, refresh: bool, offline: bool) -> tuple[Apt, str | None]:
    """(apt, None or why its index cannot be read)"""
    if offline:
        return apt, "offline as asked"
    try:
        apt.update(suites_of(apt.arch), refresh)
        return apt, None
    except FetchError as e:
        return apt, str(e)
