# SPDX-License-Identifier: GPL-2.0
"""Servers under test: each starts on a link of its own, or is running already.

A server has start(), stop(), pids() and last_words(); launch() contains the differences.
settle() waits until a server's answers are stable, and checks their bytes. No server
listens outside the lab.
"""
from __future__ import annotations

import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import zlib
from typing import TYPE_CHECKING, Any, Iterable

import fileset
from lab import HERE, sh
from meters import tasks
from messages import Problem, notify

if TYPE_CHECKING:
    from fileset import Pages
    from lab import Lab

BUILD = os.path.abspath(os.environ.get("O") or os.path.join(HERE, "../../build"))
PORT = 8080
READY_S = 30
FETCH_S = 30
CONNECTIONS = 20000
FLOOR = "floor"             # name of Floor in tables
NEXT_TO_NONE = "1M"         # memory of a Toboggan that caches nearly nothing


def binary(name: str) -> Any:
    """The program of the checkout, or beside the installed tool, or in the PATH."""
    for folder in (BUILD, os.path.join(HERE, "../../../bin"), os.path.join(HERE, "../../../sbin")):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return shutil.which(name) or os.path.join(BUILD, name)


def part(name: str) -> str:
    """A program of the benchmark: from the checkout's build, or beside this file."""
    built = os.path.join(BUILD, "tools/bench", name)
    return built if os.path.exists(built) else os.path.join(HERE, name)


class Server:
    """One server on a link of its own. start() returns once it answers."""

    program = None              # the program that must be installed
    can_proxy = False           # it can be a proxy
    can_compute = False         # it can load modules: SPECweb99's dynamic part, an echo
    tier = None                 # the required Cache-Status of a small object

    def __init__(self, lab: Lab, name: str, site: str = "site", connections: int = CONNECTIONS,
                 sources: int = 1, cgroup: str | None = None, memory: str | int = "256M",
                 origin: Any = None, computes: bool = False, echoes: Iterable[str] = (),
                 caches: bool = True) -> None:
        self.lab, self.name, self.site = lab, name, site
        self.caches = caches            # False: it keeps nearly no file, in memory or open
        self.computes = computes        # it serves /spec and /cgi-bin/
        self.echoes = echoes    # paths that return what they receive
        self.beside = []        # processes that belong to it
        self.origin = origin    # the server behind it; None: it has the files itself
        self.connections, self.sources_nr, self.cgroup = connections, sources, cgroup
        self.memory = memory if caches else NEXT_TO_NONE
        self.proc, self.started = None, False
        self.iface = self.addr = None
        self.sources = []
        self.argvs, self.files = [], {}         # command lines and configurations of its start

    @property
    def workers(self) -> int:
        return max(1, len(self.lab.server_cpus))

    @property
    def root(self) -> Any:
        return os.path.join(self.lab.dir, self.site)

    @property
    def authority(self) -> str:
        return f"[{self.addr}]:{PORT}" if ":" in self.addr else f"{self.addr}:{PORT}"

    @classmethod
    def installed(cls) -> bool:
        return bool(shutil.which(cls.program))

    @classmethod
    def version(cls) -> str:
        return ""

    def start(self) -> None:
        if self.started:
            return
        self.iface, self.addr, self.sources = self.lab.link(self.sources_nr)
        self.log = os.path.join(self.lab.dir, f"{self.iface}-{self.name}.log")
        self.argvs, self.files = [], {}
        notify(f"start {self.name}")
        try:
            if self.origin:
                self.origin.start()
            self.launch()
        except BaseException:
            self.stop()         # the next start() makes another link
            raise
        self.started = True

    def stop(self) -> None:
        """Stop the process and remove its link; a later start() makes new ones."""
        for proc in [self.proc, *self.beside]:
            if proc:
                self.lab.end(proc)
        self.proc, self.beside = None, []
        if self.iface:
            self.lab.unlink(self.iface)
        self.started, self.iface = False, None

    def file(self, name: Any, text: str) -> Any:
        path = os.path.join(self.lab.dir, f"{self.iface}-{name}")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        self.files[path] = text
        return path

    def setup(self) -> dict:
        """Its start: {commands: [argv], files: {path: text}}."""
        return {"commands": self.argvs, "files": self.files}

    def run(self, argv: list[str]) -> None:
        self.argvs.append(argv)
        with open(self.log, "w", encoding="utf-8") as log:
            self.proc = self.lab.spawn_server(argv, self.cgroup, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log)

    def last_words(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as f:
            lines = [line.strip() for line in f if line.strip()]
        code = self.proc and self.proc.poll() or 0
        return (lines[-1] if lines else "no message") + \
            (f" (killed by {signal.Signals(-code).name})" if code < 0 else "")

    def wait(self, ready: Any) -> None:
        deadline = time.monotonic() + READY_S
        while not ready():
            if self.proc.poll() is not None:
                raise Problem(f"{self.name} ended: {self.last_words()}")
            if time.monotonic() > deadline:
                raise Problem(f"{self.name} not ready after {READY_S} s: {self.last_words()}")
            time.sleep(0.05)

    def wait_for_answer(self) -> None:
        self.wait(lambda: fetch(self.lab, self, "/1k.jpg", limit_s=2)["status"] in (200, 404))

    def pids(self) -> Any:
        return sum((tasks(p.pid) for p in [self.proc, *self.beside] if p), [])

    def module(self) -> list:
        """The module and its arguments, in a place that the server's user can reach."""
        tables = os.path.join(self.lab.dir, f"{self.iface}-tables")
        os.makedirs(tables, exist_ok=True)
        os.chmod(tables, 0o777)
        return [self.borrow("modules/specweb99.so", "specweb99.so"), self.root, tables]

    def echo(self) -> Any:
        return self.borrow("modules/echo.so", "echo.so")

    def programs(self) -> Any:
        return os.path.dirname(self.borrow("modules/cgi-bin/specweb99", "cgi-bin/specweb99"))

    def borrow(self, built: str, name: Any) -> Any:
        found = next((p for p in (os.path.join(BUILD, built), os.path.join(HERE, "..", name))
                      if os.path.exists(p)), None)
        if not found:
            raise Problem(f"{name} is missing: run `make`")
        path = os.path.join(self.lab.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path if os.path.exists(path) else shutil.copy(found, path)

    def pages(self) -> Pages | None:
        """The required pages of its dynamic part; a Problem if it answers differently."""
        path, size = fileset.web99_path(0, 0, 0), fileset.web99_size(0, 0)
        ret = None
        for name in dict.fromkeys(fileset.DYNAMIC.values()):
            got = fetch(self.lab, self, f"{name}?{path}")
            if got["status"] != 200:
                raise Problem(f"{self.name} {name}: status {got['status']}")
            ret = ret or fileset.Pages.like(got["body"], self.sources[0])
            if got["body"] != ret.body(name, path, path, size):
                raise Problem(f"{self.name} {name}: wrong bytes: not the page of {path}")
        return ret

    def alive(self) -> bool:
        return not self.proc or self.proc.poll() is None


def descriptors(most: int, connections: int) -> tuple[int, int]:
    """nginx's descriptors for connections, and for the files that it caches.

    A cached file keeps its descriptor, and nginx accepts no connection without a free one.
    """
    files = min(2 * connections + 1000, most // 2)
    return files, min(200000, most - files)


class Nginx(Server):
    program = "nginx"
    can_compute = can_proxy = True

    @classmethod
    def version(cls) -> str:
        return subprocess.run(["nginx", "-v"], stderr=subprocess.PIPE, text=True,
                              check=False).stderr.strip().rpartition("/")[2]

    def launch(self) -> None:
        pools, places = self.computing()
        files, cached = descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1],
                                    self.connections)
        keeps = f"max={cached} inactive=1h; open_file_cache_valid 1h" if self.caches else "off"
        temp = "\n    ".join(f"{kind}_temp_path {self.lab.dir}/{self.iface}-{kind};" for kind in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf = self.file("nginx.conf", f"""daemon off; user root; worker_processes {self.workers};
pid {self.lab.dir}/{self.iface}.pid;
error_log {self.log} warn;
worker_rlimit_nofile {files + cached};
events {{ worker_connections {self.connections * 9 // 8 + 1000}; }}
http {{
    include /etc/nginx/mime.types;
    access_log off; sendfile on; tcp_nopush on; server_tokens off;
    open_file_cache {keeps};
    keepalive_requests 1000000000; keepalive_timeout 1h;
    {temp}
    {self.pool()}{pools}
    server {{ listen {self.authority} backlog=16384{" reuseport" * (self.workers > 1)};
              {places}{self.content()} }}
}}
""")
        self.run(["nginx", "-e", self.log, "-c", conf])
        self.wait_for_answer()

    def gateway(self, *words: str) -> Any:
        """Start our FastCGI server for it, which toboggand uses as well."""
        path = os.path.join(self.lab.dir, f"{self.iface}-{len(self.beside)}.fcgi")
        self.argvs.append([binary("toboggan-gateway"), "--listen", path, *words])
        with open(self.log, "a", encoding="utf-8") as log:
            self.beside.append(self.lab.spawn_server(self.argvs[-1], self.cgroup,
                                                     stdin=subprocess.DEVNULL, stdout=log,
                                                     stderr=log))
        deadline = time.monotonic() + READY_S
        while not os.path.exists(path):
            if self.beside[-1].poll() is not None or time.monotonic() > deadline:
                raise Problem(f"{self.name}: toboggan-gateway ended: {self.last_words()}")
            time.sleep(0.02)
        return path

    def computing(self) -> tuple[str, str]:
        """(blocks for http, blocks for the server) of the dynamic part."""
        workers, rows = ("--workers", str(self.workers)), []
        if self.computes:
            rows += [("module", (*workers, *self.module()), ["= /spec"]),
                     ("programs", ("--cgi", self.programs(), "--prefix", "/cgi-bin/"),
                      ["/cgi-bin/"])]
        if self.echoes:
            rows.append(("echo", (*workers, self.echo()), [f"= {path}" for path in self.echoes]))
        pools, places = "", ""
        for name, words, paths in rows:
            pools += f"upstream {name} {{ server unix:{self.gateway(*words)}; keepalive 64; }}\n" \
                     f"    "
            places += "".join(f"location {place} {{ include /etc/nginx/fastcgi_params; "
                              f"fastcgi_pass {name}; fastcgi_keep_conn on; }}\n              "
                              for place in paths)
        return pools, places

    def pool(self) -> str:
        return f"upstream origin {{ server {self.origin.authority}; keepalive 64; }}" \
            if self.origin else ""

    def content(self) -> str:
        return "location / { proxy_pass http://origin; proxy_http_version 1.1;" \
            ' proxy_set_header Connection ""; }' if self.origin \
               else f"root {self.root}; location ~ [.]html$ {{ gzip_static on; }}"


class Origin(Nginx):
    """The server behind proxies: at the clients' end, and on their CPUs."""

    def run(self, argv: list[str]) -> None:
        with open(self.log, "w", encoding="utf-8") as log:
            self.proc = self.lab.spawn_client(argv, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log)

    def launch(self) -> None:
        self.addr = self.sources[0]
        super().launch()

    def content(self) -> str:
        return f"root {self.root}; add_header Cache-Control no-store;"


class Lighttpd(Server):
    program = "lighttpd"

    @classmethod
    def version(cls) -> Any:
        m = re.search(r"lighttpd/(\S+)", sh("lighttpd", "-v", check=False))
        return m.group(1) if m else ""

    def launch(self) -> None:
        conf = self.file("lighttpd.conf", f"""server.document-root = "{self.root}"
server.bind = "{self.addr}"
{'server.use-ipv6 = "enable"' if ":" in self.addr else ""}
server.port = {PORT}
server.errorlog = "{self.log}"
server.pid-file = "{self.lab.dir}/{self.iface}.pid"
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.max-fds = {2 * self.connections + 1000}
server.max-connections = {self.connections + 500}
server.listen-backlog = 16384
server.event-handler = "linux-sysepoll"
server.network-backend = "sendfile"
server.stat-cache-engine = "{'simple' if self.caches else 'disable'}"
{f"server.max-worker = {self.workers}" if self.workers > 1 else ""}
mimetype.assign = ( ".jpg" => "image/jpeg", ".html" => "text/html",
                    "" => "application/octet-stream" )
""")
        self.run(["lighttpd", "-D", "-f", conf])
        self.wait_for_answer()


class Apache(Server):
    program = "apache2"

    @classmethod
    def version(cls) -> Any:
        m = re.search(r"Apache/(\S+)", sh("apache2", "-v", check=False))
        return m.group(1) if m else ""

    @classmethod
    def modules(cls) -> str:
        return os.path.dirname((glob.glob("/usr/lib/apache2/modules/mod_mpm_event.so") or [""])[0])

    @classmethod
    def installed(cls) -> bool:
        return bool(shutil.which("apache2") and cls.modules())

    def launch(self) -> None:
        threads = 64
        children = max(4 * self.workers, -(-min(self.connections, 4000) // threads) // 8)
        load = "\n".join(f"LoadModule {name}_module {self.modules()}/mod_{name}.so"
                         for name in ("mpm_event", "authz_core", "mime"))
        conf = self.file("apache.conf", f"""ServerRoot "{self.lab.dir}"
ServerName bench
{load}
PidFile {self.lab.dir}/{self.iface}.pid
DefaultRuntimeDir {self.lab.dir}
Mutex pthread
ErrorLog {self.log}
LogLevel warn
User www-data
Group www-data
Listen {self.authority}
ListenBacklog 16384
TypesConfig /etc/mime.types
StartServers {children}
ServerLimit {children}
MinSpareThreads 1
MaxSpareThreads {children * threads}
ThreadLimit {threads}
ThreadsPerChild {threads}
MaxRequestWorkers {children * threads}
AsyncRequestWorkerFactor {max(2, self.connections // threads)}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 3600
EnableSendfile On
DocumentRoot "{self.root}"
<Directory "/">
    AllowOverride None
    Require all granted
</Directory>
""")
        self.run(["apache2", "-DFOREGROUND", "-f", conf])
        self.wait_for_answer()


class Toboggan(Server):
    program = "toboggand"
    can_compute = can_proxy = True
    TIERS = ("wire", "sock", "user")    # fastest first; each except the last needs the last

    def __init__(self, lab: Lab, name: str, tiers: str = "wire,user",
                 options: Iterable[str] = (), **kw: Any) -> None:
        super().__init__(lab, name, **kw)
        self.options = options          # further options of the daemon
        self.tiers = tiers.split(",")
        self.tier = self.tiers[0]

    @classmethod
    def installed(cls) -> bool:
        return os.access(binary("toboggand"), os.X_OK)

    @classmethod
    def version(cls) -> str:
        return sh(binary("toboggand"), "--version", check=False).strip().rpartition(" ")[2]

    def launch(self) -> None:
        self.control = os.path.join(self.lab.dir, f"{self.iface}.sock")
        content = ["--upstream", f"http://{self.origin.authority}"] if self.origin else \
            ["--config", self.computing()] if self.computes or self.echoes else \
            ["--root", self.root]
        self.run([binary("toboggand"), *content, "--listen", self.authority,
                  "--tiers", ",".join(self.tiers),
                  "--wire", self.iface if "wire" in self.tiers else "off",
                  *(["--sock", "unlisted"] if "sock" in self.tiers else []),
                  "--memory", self.memory, "--workers", str(self.workers),
                  "--connections-max", str(self.connections + 500),
                  "--idle-timeout", "3600s", "--control", self.control, *self.options])
        self.wait(self.is_ready)

    def computing(self) -> Any:
        rows = [(path, [self.echo()]) for path in self.echoes]
        if self.computes:
            rows.append(("/spec", self.module()))
        text = f'root = "{self.root}"\n'
        for path, words in rows:
            module = ", ".join(f'"{word}"' for word in words)
            text += f'location "={path}" {{ module = {{{module}}} ' \
                f'module-workers = "{self.workers}" }}\n'
        if self.computes:
            text += f'location "/cgi-bin/" {{ cgi = "{self.programs()}" }}\n'
        return self.file("toboggan.conf", text)

    def is_ready(self) -> Any:
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return re.search(r"^ready\b", f.read(), re.M)

    def ask(self, *words: str) -> Any:
        out = sh(binary("toboggan"), "--control", self.control, "--json", *words)
        return json.loads(out)

    def stored(self) -> Any:
        """Objects that the cache holds."""
        return self.ask("status")["objects"]


class Reflector(Server):
    """A TC program that sends packets back: the least that a packet can cost."""

    def launch(self) -> None:
        sh("tc", "-n", self.lab.server, "qdisc", "add", "dev", self.iface, "clsact")
        sh("tc", "-n", self.lab.server, "filter", "add", "dev", self.iface, "ingress",
           "bpf", "da", "obj", part("reflect.bpf.o"), "sec", "classifier")


class Floor(Server):
    """A TC program that answers every request with the same 1 KiB: the floor under wire."""

    def launch(self) -> None:
        path = os.path.join(self.lab.dir, f"{self.iface}-floor.reply")
        with open(path, "wb") as f:
            f.write(b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: image/jpeg\r\n"
                    b"Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\nETag: \"floor\"\r\n"
                    b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: 1024\r\n"
                    b"Cache-Status: floor; hit; detail=nothing-else\r\n\r\n" +
                    fileset.content(fileset.SMALL, 1024))
        self.run([part("floor"), part("floor.bpf.o"), self.iface, str(PORT), path])
        self.wait(self.is_ready)

    def is_ready(self) -> bool:
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "ready" in f.read()


class Bare(Server):
    """A loop that parses nothing: the least that an answer by TCP can cost. It answers 304, or
    forwards the answer of its origin."""

    # as long as the user tier's
    ANSWER = ("HTTP/1.1 304 Not Modified\r\n"
              "Server: toboggan\r\n"
              "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
              "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
              'ETag: "bare"\r\n'
              "Cache-Status: bare; hit\r\n\r\n")

    def launch(self) -> None:
        if self.origin:
            words, status = self.origin.authority.split(":"), 200
        else:
            words, status = [self.file("bare.reply", self.ANSWER)], 304
        self.run([part("bare"), self.addr, str(PORT), *words])
        self.wait(lambda: fetch(self.lab, self, "/1k.jpg", limit_s=2)["status"] == status)


class Existing(Server):
    """A running server, here or elsewhere; it is never stopped."""

    def __init__(self, lab: Lab, name: str, authority: str) -> None:
        super().__init__(lab, name)
        self.where = authority
        self.addr = authority.rpartition(":")[0].strip("[]")

    @property
    def authority(self) -> str:
        return self.where

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        pass


KINDS = {"toboggan": Toboggan, "nginx": Nginx, "lighttpd": Lighttpd, "apache2": Apache}


# ---------------------------------------------------------------- one request

def fetch(lab: Lab, server: Server | Existing, path: str, headers: Iterable[str] = (),
          limit_s: float = FETCH_S, again: bool = False) -> dict[str, object]:
    """One request by curl: {status, cache, etag, head_len, body_len, crc, body}.

    again: send a second one on the same connection, whose send buffer has grown by then.
    """
    argv = lab.client_argv(["curl", "-qsg", "--noproxy", "*", "-m", str(limit_s), "-i",
                            "--path-as-is", "-w", "%{stderr}%{http_code} %{size_header}\n"])
    for name, value in headers:
        argv += ["-H", f"{name}: {value}"]
    url = f"http://{server.authority}{path}"
    argv += ["-o", os.devnull, url] * again + ["-o", "-", url]
    res = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=False)
    words = res.stderr.decode(errors="replace").split()[-2:]
    ret = {"status": 0, "cache": "", "etag": "", "head_len": 0, "body_len": 0, "crc": 0,
           "body": b""}
    if len(words) != 2 or not words[0].isdigit() or res.returncode:
        return ret
    head = res.stdout[:int(words[1])].decode("latin-1")
    body = res.stdout[int(words[1]):]
    ret.update(status=int(words[0]), head_len=len(head), body_len=len(body),
               crc=zlib.crc32(body), body=body)
    for key, name in (("cache", "cache-status"), ("etag", "etag")):
        m = re.search(rf"^{name}:\s*(.*?)\r?$", head, re.I | re.M)
        ret[key] = m.group(1) if m else ""
    return ret


def explain(server: Server, path: str) -> str:
    """The reason of a Toboggan server why its kernel tiers do not answer."""
    if not isinstance(server, Toboggan):
        return ""
    why = sh(binary("toboggan"), "--control", server.control, "why", path, check=False)
    return "; why: " + "; ".join(re.sub(r"\s+", " ", line).strip() for line in why.splitlines())


def settle(lab: Lab, server: Server, path: str, headers: Iterable[str] = (), status: Any = 200,
           want: Any = "", crc: int | None = None, limit_s: int = 5) -> Any:
    """Send requests until the server's answers are stable; returns the bytes of one reply.

    want: text that Cache-Status must contain. crc: of the body, None if unknown.
    """
    deadline = time.monotonic() + limit_s
    while True:
        got = fetch(lab, server, path, headers, again=True)
        if got["status"] == status and crc is not None and got["crc"] != crc:
            raise Problem(f"{server.name} {path}: wrong bytes: {got['body_len']} with CRC-32 "
                          f"{got['crc']:08x}, not {crc:08x}")
        if got["status"] == status and want in got["cache"]:
            return got["head_len"] + got["body_len"]
        if not got["status"] and not server.alive():
            raise Problem(f"{server.name}: the server has ended: {server.last_words()}")
        if time.monotonic() > deadline:
            if not got["status"]:
                raise Problem(f"{server.name} {path}: no answer from {server.authority}")
            raise Problem(f"{server.name} {path}: status {got['status']} (want {status}), "
                          f"Cache-Status `{got['cache']}`" + f" (want {want})" * bool(want) +
                          explain(server, path) * bool(want))
        time.sleep(0.05)
