# SPDX-License-Identifier: GPL-2.0
"""Fetch the kernels that vm/kernels names from the machine's own apt mirror.

Called by vm/run. apt itself downloads and checks the signatures, with a
private state under build/vm/apt; the system's sources, lists and installed
packages are never touched, and no host is named here. A kernel is unpacked to
build/vm/<version>/ as vmlinuz, config, package and modules/ in load order.
"""
import fcntl
import glob
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
INDEX_AGE_MAX_S = 24 * 3600
KEYRINGS = "/usr/share/keyrings/debian-archive-keyring.*"


class FetchError(Exception):
    """A step that failed, in words."""


def table():
    """{name: (suites, package regexp)} of vm/kernels, in its order."""
    ret = {}
    with open(os.path.join(HERE, "kernels"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, suites, package = line.split()
                ret[name] = (suites.split(","), re.compile(package))
    return ret


def output(step, argv, **kw):
    res = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         check=False, **kw)
    if res.returncode:
        why = (res.stderr.strip() or f"exit {res.returncode}").splitlines()
        raise FetchError(f"{step}: {why[0]}")
    return res.stdout


def mirrors():
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

    def __init__(self, build):
        self.dir = os.path.join(build, "vm", "apt")
        self.debs = os.path.join(self.dir, "debs")
        for sub in ("sources", "lists/partial", "cache/archives/partial", "debs"):
            os.makedirs(os.path.join(self.dir, sub), exist_ok=True)
        self.env = dict(os.environ, APT_CONFIG=os.path.join(self.dir, "apt.conf"), LC_ALL="C")

    def configure(self, suites):
        keyring = next(iter(sorted(glob.glob(KEYRINGS))), None)
        if not keyring:
            raise FetchError(f"keyring: no {KEYRINGS}; install debian-archive-keyring")
        main, security = mirrors()
        stanzas = []
        for uri, is_security in ((main, False), (security, True)):
            mine = [s for s in suites if s.endswith("-security") == is_security]
            if uri and mine:
                stanzas.append(f"Types: deb\nURIs: {uri}\nSuites: {' '.join(mine)}\n"
                               "Components: main\nArchitectures: amd64\n"
                               f"Targets: Packages\nSigned-By: {keyring}\n")
        self.write("sources/kernels.sources", "\n".join(stanzas))
        self.write("apt.conf", "".join(f'{key} "{value}";\n' for key, value in (
            ("Dir::Etc::SourceList", "/dev/null"),
            ("Dir::Etc::SourceParts", f"{self.dir}/sources"),
            ("Dir::State", self.dir), ("Dir::State::Lists", f"{self.dir}/lists"),
            ("Dir::State::status", "/dev/null"), ("Dir::Cache", f"{self.dir}/cache"),
            ("Acquire::Languages", "none"), ("Acquire::Retries", "2"),
            ("APT::Architecture", "amd64"), ("APT::Update::Error-Mode", "any"))))

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="utf-8") as f:
            f.write(text)

    def update(self, suites, force):
        """Refresh the signed index, at most once a day."""
        stamp = os.path.join(self.dir, "updated")
        if not force and os.path.exists(stamp) and \
           time.time() - os.path.getmtime(stamp) < INDEX_AGE_MAX_S:
            return
        self.configure(suites)
        output("index", ["apt-get", "-qq", "update"], env=self.env)
        self.write("updated", "")

    def stanzas(self, suites):
        """{package: [fields]} of every linux-* package in these suites."""
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

    def download(self, package, version):
        """Path of the .deb, whole; apt checks it against the signed index."""
        name = f"{package}_{version.replace(':', '%3a')}_amd64.deb"
        done = os.path.join(self.debs, name)
        if os.path.exists(done):
            return done
        with tempfile.TemporaryDirectory(dir=self.dir) as tmp:
            output(f"download {package}", ["apt-get", "-qq", "download", f"{package}={version}"],
                   cwd=tmp, env=self.env)
            if not os.path.exists(os.path.join(tmp, name)):
                raise FetchError(f"download {package}: apt left no {name}")
            os.rename(os.path.join(tmp, name), done)
        return done


def newer(a, b):
    return subprocess.run(["dpkg", "--compare-versions", a, "gt", b], check=False).returncode == 0


def choose(stanzas, pattern):
    """The highest version of the image, and the packages it is split into."""
    best = None
    for package, versions in stanzas.items():
        for fields in versions if pattern.fullmatch(package) else []:
            if best is None or newer(fields["Version"], best["Version"]):
                best = fields
    if best is None:
        raise FetchError(f"index: no package matches {pattern.pattern}")
    parts = re.findall(r"(linux-[\w.+-]+) \(= ([^)]+)\)", best.get("Depends", ""))
    return [(best["Package"], best["Version"])] + parts


def inflate(path):
    """The bytes of a module, whichever way the package compresses it."""
    if path.endswith(".zst"):
        return subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
    with (lzma.open(path) if path.endswith(".xz") else open(path, "rb")) as f:
        return f.read()


def canonical(name):
    return re.sub(r"\.ko(\.\w+)?$", "", os.path.basename(name)).replace("-", "_")


def wanted_modules():
    with open(os.path.join(HERE, "modules"), encoding="utf-8") as f:
        words = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    return [(canonical(w.rstrip("?")), w.endswith("?")) for w in words]


def modules_in_order(tree):
    """[(name, bytes)]: wanted modules, each after those its modinfo depends on."""
    files = {canonical(p): p for p in glob.glob(f"{tree}/**/*.ko*", recursive=True)}
    builtin = set()
    for path in glob.glob(f"{tree}/**/modules.builtin", recursive=True):
        with open(path, encoding="utf-8") as f:
            builtin |= {canonical(line.strip()) for line in f}
    ret = {}

    def add(name, optional, user):
        if name in ret or name in builtin:
            return
        if name not in files:
            if optional:
                return
            raise FetchError(f"unpack: {user} wants module {name}, this kernel has none")
        data = inflate(files[name])
        m = re.search(rb"\0depends=([^\0]*)\0", data)
        for dep in (m.group(1).decode().split(",") if m else []):
            if dep:
                add(canonical(dep), False, name)
        ret[name] = data

    for name, optional in wanted_modules():
        add(name, optional, "vm/modules")
    return list(ret.items())


def unpack(debs, package, dest):
    """Fill dest (which appears complete or not at all) from the .debs."""
    tmp, tree = dest + ".new", dest + ".tree"
    for path in (tmp, tree):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    try:
        for deb in debs:
            try:
                output(f"unpack {os.path.basename(deb)}", ["dpkg-deb", "-x", deb, tree])
            except FetchError as e:
                os.unlink(deb)      # or it would be refused for ever
                raise FetchError(f"{e}; {deb} is deleted, the next run fetches it again") from e
        for name, pattern in (("vmlinuz", "vmlinuz*"), ("config", "config*")):
            found = [p for where in ("boot", "usr/lib/modules/*", "lib/modules/*")
                     for p in glob.glob(f"{tree}/{where}/{pattern}")]
            if len(found) != 1:
                raise FetchError(f"unpack: {len(found)} files called {name} in {package}")
            shutil.copyfile(found[0], os.path.join(tmp, name))
        os.mkdir(os.path.join(tmp, "modules"))
        for nr, (name, data) in enumerate(modules_in_order(tree)):
            with open(os.path.join(tmp, "modules", f"{nr:03}-{name}.ko"), "wb") as f:
                f.write(data)
        shutil.copyfile(os.path.join(HERE, "modules"), os.path.join(tmp, "modules.wanted"))
        with open(os.path.join(tmp, "package"), "w", encoding="utf-8") as f:
            f.write(package + "\n")
        shutil.rmtree(dest, ignore_errors=True)
        os.rename(tmp, dest)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.rmtree(tmp, ignore_errors=True)


def is_current(path):
    """Whether an unpacked kernel has the modules that vm/modules asks for today."""
    try:
        with open(os.path.join(path, "modules.wanted"), "rb") as a, \
             open(os.path.join(HERE, "modules"), "rb") as b:
            return a.read() == b.read()
    except FileNotFoundError:
        return False


def fetch_one(apt, name, build):
    """Path of the unpacked kernel called name."""
    suites, pattern = table()[name]
    parts = choose(apt.stanzas(suites), pattern)
    image, version = parts[0]
    dest = os.path.join(build, "vm", version)
    if not is_current(dest):
        unpack([apt.download(*part) for part in parts], f"{image} {version}", dest)
    link = os.path.join(build, "vm", name)
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(version, link)
    return dest


def prune(apt, build):
    """Forget versions that no kernel's name points to any more."""
    vm = os.path.join(build, "vm")
    links = [os.path.join(vm, name) for name in table()]
    used = {os.readlink(link) for link in links if os.path.islink(link)}
    for package in glob.glob(f"{vm}/*/package"):
        folder = os.path.dirname(package)
        if not os.path.islink(folder) and os.path.basename(folder) not in used:
            shutil.rmtree(folder)
    for deb in os.listdir(apt.debs):
        if deb.split("_")[1:2] and deb.split("_")[1].replace("%3a", ":") not in used:
            os.unlink(os.path.join(apt.debs, deb))


def fetch(names, build, say, refresh=False, offline=False):
    """{name: path}; falls back, loudly, on what an earlier run has unpacked.

    One run at a time: another waits, and finds what the first has fetched.
    """
    os.makedirs(os.path.join(build, "vm"), exist_ok=True)
    with open(os.path.join(build, "vm", "fetching"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return fetch_alone(names, build, say, refresh, offline)


def fetch_alone(names, build, say, refresh, offline):
    kernels = table()
    suites = sorted({s for want, _ in kernels.values() for s in want})
    ret, broken = {}, "offline as asked" if offline else None
    apt = Apt(build)
    if not offline:
        try:
            apt.update(suites, refresh)
        except FetchError as e:
            broken = str(e)
    for name in names:
        cached = os.path.join(build, "vm", name)
        why = broken
        if not why:
            try:
                ret[name] = fetch_one(apt, name, build)
                continue
            except FetchError as e:
                why = str(e)
        if not os.path.exists(os.path.join(cached, "package")):
            raise FetchError(f"{name}: {why}, and no earlier run has left a kernel in {cached}")
        with open(os.path.join(cached, "package"), encoding="utf-8") as f:
            say(f"{name}: {why}; using the cached {f.read().strip()}" + (
                "" if is_current(cached) else ", which lacks what vm/modules has since"))
        ret[name] = os.path.realpath(cached)
    if not broken:
        prune(apt, build)
    return ret
