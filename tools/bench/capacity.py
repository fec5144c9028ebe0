# SPDX-License-Identifier: GPL-2.0
"""The capacity of a full core: the table of `toboggan bench` without a command.

The load is that of loop.c, which costs the client so little that the server's core is
the limit. If the core is not full, there is no figure. This module also computes the
share of hits from which, and the size up to which, wire pays.
"""
from __future__ import annotations

import argparse
import math
import os
import shlex
from typing import TYPE_CHECKING, Any

import bottleneck
import fileset as files
import lists
from option_types import field_line, not_negative, whole
from engine import Check
from experiment import Experiment, Point, make
from loads import Loop
from messages import Problem, Usage
from meters import first
from units import human
from servers import FLOOR, KINDS, Floor, Origin, Toboggan, fetch
from stats import disturbed
from fileset import SMALL

if TYPE_CHECKING:
    from engine import Run, Sample
    from fileset import Pages
    from loads import Load
    from servers import Server

FULL = 0.95                 # of the server's CPUs, from their idle time
CLIENT_FULL = 0.9           # of the clients' CPUs, while the server's are not full
OTHERS_MAX = 0.03           # of the server's CPUs that other programs may have taken
STOLEN_MAX = 0.03           # by other virtual machines
HELD_MAX_MS = 150           # without a look of the client: at 200 ms kernels repeat segments
LOST_MAX = 0.001            # share of segments, as a gap shows them or their repetition
CONNECTIONS = 256           # with fewer, each side waits for the batches of the other
WAITING = 2                 # packets of a connection that may wait for a core
MISSES = 4096               # files, nearly none of which is cached
MISS_PATH = "/%31k.jpg"     # SMALL, with a path that only the daemon decodes
WIRE, USER = "toboggan", "toboggan-user"
KIB = 1024
BY_WIRE_MOST = 13936        # bytes of the longest body that wire answers, with its head
NO_SIZE = "none of these"   # up to which wire pays
ALL = "all that it answers"
# 14 KiB include the head: wire answers what fits into ten segments.
ROWS = (
    # name, label, path, bytes of the body, requests a connection, more attributes
    ("304", "304", SMALL, 1024, 0, "304"),
    ("1k", "1 KiB", SMALL, 1024, 0, ""),
    ("4k", "4 KiB", files.size_path(4096), 4096, 0, ""),
    ("8k", "8 KiB", files.size_path(8192), 8192, 0, ""),
    ("14k", "14 KiB", files.size_path(BY_WIRE_MOST), BY_WIRE_MOST, 0, ""),
    ("64k", "64 KiB", files.size_path(65536), 65536, 0, ""),
    ("100", "1 KiB, 100 a connection", SMALL, 1024, 100, ""),
    ("10", "1 KiB, 10 a connection", SMALL, 1024, 10, ""),
    ("1", "1 KiB, 1 a connection", SMALL, 1024, 1, ""),
    ("pass", "1 KiB, passed up", MISS_PATH, 1024, 0, "pass"),
    ("miss", "1 KiB, not in the cache", files.object_path(MISSES, 0), 1024, 0, "miss"),
    ("proxy", "1 KiB, proxied", SMALL, 1024, 0, "proxy"),
    ("page", "a module's page", files.web99_path(0, 1, 0), files.web99_size(1, 0), 0, "page"),
)

QUICK = ("304", "1k", "8k", "pass")


class FullCore(Experiment):
    """An experiment with loop.c, which costs the client nearly nothing: figures of a full core."""

    figures = (("throughput", "requests a second", "/s", "high"),
               ("core_ns", "time of the core", "ns a request", "low"))
    withheld = ("core_ns",)
    lab_only = "its client is a program at the other end of a veth pair"
    keep_servers = True
    repeats, sample_s = 3, 0.4  # two minutes in all
    unable = "it cannot answer these requests"
    listed = ()                 # the user's rows instead of those of the points
    others = ()                 # [(name, options)] of further Toboggans
    sent_again = None           # segments that the server's TCP had sent again before a load
    misses, old = 0, False      # per cent of requests that no kernel tier answers; HTTP/1.0

    @staticmethod
    def asking(ap: argparse.ArgumentParser) -> None:
        """Options that change the requests."""
        ap.add_argument("--header", action="append", default=[], metavar="LINE", type=field_line,
                        help="another field of each request, as a browser sends; can be repeated")
        ap.add_argument("--browser", action="store_true",
                        help="send the fields of a browser")
        ap.add_argument("--ipv6", action="store_true", help="instead of IPv4")
        ap.add_argument("--no-timestamps", action="store_true", help="nor SACK")
        ap.add_argument("--busy-machine", action="store_true",
                        help="count in spite of other programs; do not quote such figures")
        ap.add_argument("--also", action="append", default=[], metavar="NAME=OPTIONS",
                        help="a further Toboggan with these options of toboggand, such as "
                        "`translated=--late-sockets off`; can be repeated")

    @staticmethod
    def at_a_time(ap: argparse.ArgumentParser) -> None:
        ap.add_argument("--connections", type=whole(), metavar="N",
                        help=f"at a time ({CONNECTIONS}, or fewer if net.core.netdev_max_backlog "
                        "has no room for them)")

    @staticmethod
    def take_also(words: list[str]) -> list[tuple[str, list[str]]]:
        """[(name of the column, options)] of --also."""
        ret = {}
        for text in words:
            name, _, options = text.partition("=")
            try:
                ret[f"{WIRE} {name}"] = shlex.split(options)
            except ValueError as e:
                raise Usage(f"--also {text}: {e}") from e
            if not name or not options.strip():
                raise Usage(f"--also {text}: want NAME=OPTIONS of toboggand")
        return list(ret.items())

    def take_list(self, name: str, to_be_made: bool = True) -> None:
        """The requests of a user's list; every file of the lab has a size."""
        self.listed = lists.read(name)
        path = to_be_made and lists.without_size(self.listed)
        if path:
            raise Usage(f"--list {name}: {path} has no size; add it after the weight, "
                        "such as #500")
        why = to_be_made and lists.unmakeable(self.listed)
        if why:
            raise Usage(f"--list {name}: {why}")

    def connections(self, _point: Any) -> Any:
        return self.opts.connections

    # --- servers

    def names(self, opts: argparse.Namespace) -> list:
        ret = list(opts.servers)
        if WIRE in ret and USER not in ret and not opts.asked:
            ret.insert(ret.index(WIRE) + 1, USER)
        return ret

    def sides(self, run: Run) -> list:
        run.lab.v6 = self.opts.ipv6
        ret = [(name, lambda name=name, **kw: make(run.lab, name, **kw))
               for name in self.names(run.opts)]
        ret += [(name, lambda name=name, options=options, **kw: Toboggan(
            run.lab, name, options=options, **kw)) for name, options in self.others]
        if not self.opts.ipv6 and any(not self.unfit(p, FLOOR) for p in self.points):
            ret.append((FLOOR, lambda **_: Floor(run.lab, FLOOR)))
        return ret

    def unfit(self, point: Any, name: str) -> Any:
        if name == FLOOR:
            return point.label != "1 KiB" or self.old or point.calls > 0 or self.misses > 0
        kind = Toboggan if name.startswith("toboggan") else KINDS[name]
        if point.kind == "page":
            return not kind.can_compute
        return point.kind == "proxy" and not kind.can_proxy

    def server_key(self, point: Any) -> Any:
        return point.kind if point.kind in ("miss", "proxy", "page") else "site"

    def server_options(self, run: Run, point: Any) -> object:
        return {"miss": {"caches": False}, "proxy": {"origin": self.origin},
                "page": {"computes": True}}.get(point.kind, {})

    def sites(self, run: Run) -> None:
        root = os.path.join(run.lab.dir, "site")
        rows = {(1, p.path, p.size) for p in self.points if p.kind in ("", "304", "page")}
        if any(p.kind == "page" for p in self.points):
            rows |= set(files.web99(1).rows)
        rows.add((1, SMALL, 1024))
        files.Files(sorted(rows)).make(root)
        if any(p.kind == "miss" for p in self.points):
            files.objects(MISSES).make(root)
        if self.listed:
            files.basic().make(root)
            lists.made(self.listed).make(root)
        self.origin = Origin(run.lab, "origin")

    # --- one sample

    def headers(self, server: Any, point: Any) -> list[tuple]:
        ret = list(self.opts.header)
        if self.opts.browser:
            ret += files.BROWSER
        if point.kind == "304":
            if not getattr(server, "etag", None):
                server.etag = fetch(server.lab, server, SMALL)["etag"]
            if not server.etag:
                raise Problem(f"{server.name}: no ETag, so no 304 can be requested")
            ret.append(("If-None-Match", server.etag))
        return ret

    def rows_for(self, point: Any, server: Server, client: str) -> list:
        """[(weight, path, size, CRC-32)] of a point, for a client with that address."""
        if point.kind == "miss":
            return [(1, path, size, files.crc(path, size))
                    for _, path, size in files.objects(MISSES).rows]
        if point.kind == "page":
            weight, path, size, crc = self.pages(server, client).row(1, "get", point.path,
                                                                     point.size)
            return [(weight, path, size, int(crc, 16))]
        crc = files.crc(SMALL if point.kind == "pass" else point.path, point.size)
        ret = [(100 - self.misses, point.path, point.size, crc)]
        if self.misses:
            ret.append((self.misses, MISS_PATH, 1024, files.crc(SMALL, 1024)))
        return [row for row in ret if row[0]]

    @staticmethod
    def pages(server: Any, client: str) -> Pages | None:
        if not getattr(server, "own_pages", None):
            server.own_pages = server.pages()
        return files.Pages(server.own_pages.software, client)

    def load(self, run: Run, point: Any, server: Server) -> Load:
        source = run.lab.nowhere(server.iface)
        path = os.path.join(run.lab.dir, f"{server.iface}-{point.x}.list")
        lists.write(self.listed or [(w, p, s, f"{crc:08x}") for w, p, s, crc in
                                    self.rows_for(point, server, source[:-1] + "1")], path)
        return Loop(self.connections(point), path, source=source,
                    calls=0 if self.old else point.calls,
                    status=304 if point.kind == "304" else 200,
                    header=[f"{n}: {v}" for n, v in self.headers(server, point)],
                    no_timestamps=self.opts.no_timestamps,
                    **{"http-1.0": self.old, "server_closes": self.old})

    def check(self, run: Run, point: Any, server: Server) -> Check | None:
        headers = self.headers(server, point)
        if point.kind == "304":
            return Check(point.path, 304, headers, want=self.want(point, server))
        if point.kind == "page":
            path = self.pages(server, "").row(1, "get", point.path, point.size)[1]
            return Check(path, headers=headers)
        crc = files.crc(SMALL if point.kind == "pass" else point.path, point.size)
        return Check(point.path, headers=headers, crc=crc, want=self.want(point, server))

    def want(self, point: Any, server: Server) -> str:
        """Check by Cache-Status that the tier of the column answers.

        curl has a socket on this machine, so wire's segments to it are as long as the skb of its
        request allows. If that has more fields, ten do not hold 14 KiB; those of loop.c do.
        """
        if not isinstance(server, Toboggan) or point.kind not in ("", "304") or point.size > 16384:
            return ""
        short = (self.opts.header or self.opts.browser) and point.size > 8 * KIB
        return "detail=wire" if by_wire(point, server) and not short else "hit"

    def prepare(self, run: Run, point: Point, server: Server) -> None:
        self.check(run, point, server).settle(run.lab, server)

    def seconds(self, run: Run, point: Point) -> Any:
        return run.opts.seconds

    def before(self, run: Run, point: Point, server: Server) -> None:
        self.sent_again = run.lab.retransmitted(server)

    def after(self, run: Run, point: Any, server: Server, sample: Sample, got: dict) -> None:
        cpus = [str(cpu) for cpu in run.lab.server_cpus]
        sample["server_share"] = 1 - sum(got["idle"][cpu] for cpu in cpus) / len(cpus)
        sample["server_busiest"] = 1 - min(got["idle"][cpu] for cpu in cpus)
        sample["held_ms"] = got["held_ms"]
        sample["stolen"] = sum(got["stolen"][cpu] for cpu in cpus) / len(cpus)
        clients = [str(cpu) for cpu in run.lab.client_cpus]
        sample["client_share"] = 1 - sum(got["idle"][cpu] for cpu in clients) / len(clients)
        sample["core_ns"] = len(cpus) * 1e9 * min(1,
                                                  sample["server_share"]) / max(1, sample["rate"])
        if sample["invalid"]:
            return
        if not got["verified"]:
            raise Problem("not one reply was verified")
        sample["lost"] = got["gaps"] + self.repeated(run, server, sample, got)
        lost = sample["lost"] / max(1, got["segments"])
        if lost > LOST_MAX:
            raise Problem(f"the link lost segments: {lost:.1%} of them were missing or repeated")
        tiers = sample.get("tiers")
        if tiers and by_wire(point, server) and not self.misses and not self.old and \
           tiers.get("wire", 0) < 0.9 * got["requests"]:
            raise Problem(f"wire answered only {tiers.get('wire', 0):,} of {got['requests']:,} "
                          "requests; see toboggan stats")

    def repeated(self, run: Run, server: Server, sample: Sample, got: dict) -> int:
        """Segments that one side sent again, for want of an answer of the other.

        Where other programs hold up a side, that shows no loss; such a sample has its own mark.
        """
        if self.sent_again is None or by_others(sample):
            return 0
        return got["resent"] + run.lab.retransmitted(server) - self.sent_again

    def own_limit(self, sample: Sample) -> tuple[str, str] | None:
        disturbance = by_others(sample)
        sample["disturbed"] = bool(disturbance)
        if disturbance and not self.opts.busy_machine:
            return bottleneck.OTHERS, disturbance
        share = f"the server's core was {sample['server_share']:.0%} busy"
        if sample["server_share"] >= FULL:
            return bottleneck.SERVER, share
        if sample.get("server") == FLOOR and sample["client_share"] >= CLIENT_FULL:
            return bottleneck.AT_LEAST, f"{share}, the client's {sample['client_share']:.0%}"
        if sample["client_share"] >= FULL:
            return bottleneck.CLIENT, f"{share}, the client's {sample['client_share']:.0%}"
        return bottleneck.UNKNOWN, f"{share}, the client's {sample['client_share']:.0%}"

    def rate(self, sample: Sample) -> Any:
        """A floor that the client cannot fill: from the time of the core for a reply."""
        bound = sample["limit"] == bottleneck.AT_LEAST
        return sample["rate"] / (sample["server_share"] if bound else 1)

    def line(self, sample: Sample) -> str:
        return f"{sample['rate']:,.0f}/s, core {sample['server_share']:.0%} full"


def by_wire(point: Any, server: Any) -> bool:
    """Whether a server of ours must answer a point by wire.

    With options of its own (--also) it may send fewer segments, so only one is certain.
    """
    return server.tier == "wire" and point.kind in ("", "304") and \
        point.size <= (KIB if server.options else BY_WIRE_MOST)


def by_others(sample: Sample) -> str:
    """How other programs disturbed a sample; empty: they did not."""
    if sample["others_share"] > OTHERS_MAX:
        # a process that has waited for others has their time at once
        return f"{min(1, sample['others_share']):.0%} of their time"
    if sample["stolen"] > STOLEN_MAX:
        return f"{sample['stolen']:.0%} stolen by the hypervisor"
    return f"the client was held up for {sample['held_ms']} ms" * (sample["held_ms"] > HELD_MAX_MS)


class Capacity(FullCore):
    name, title = "capacity", "requests a second of a full core"
    about = ("The server's core is full, and the client costs nearly nothing (`loop`, a program in "
             "the kernel that turns each reply into the next request). The client is the same for "
             "every server. Status and length of every reply are checked, and every byte of one "
             "reply in a hundred. If the core is not full, or something else uses it, "
             "there is no figure.")
    x_label, x_log, x_named = "request", False, True

    @staticmethod
    def options(ap: Any) -> None:
        ap.add_argument("--rows", metavar="ROW,…",
                        help="only these, of " + ", ".join(row[0] for row in ROWS))
        FullCore.at_a_time(ap)
        ap.add_argument("--requests-per-connection", type=whole(0), metavar="N",
                        help="instead of those of the rows; 0: no limit")
        ap.add_argument("--misses", type=not_negative, default=0, metavar="PERCENT",
                        help="of the requests that no kernel tier can answer (0)")
        ap.add_argument("--list", metavar="FILE",
                        help="instead of the rows: `weight path size CRC-32` of files of "
                        "`bench site`, or a filelist of WebStone, `path weight #size`; "
                        "webstone: its standard mix")
        ap.add_argument("--http-1.0", dest="old", action="store_true",
                        help="HTTP/1.0, a new connection for each request")
        FullCore.asking(ap)

    def make_points(self, opts: argparse.Namespace) -> list:
        self.opts, self.misses, self.old = opts, opts.misses, opts.old
        opts.connections, self.others = fitting(opts.connections), self.take_also(opts.also)
        if opts.misses > 100:
            raise Usage(f"--misses {opts.misses:g}: want at most 100")
        rows = ROWS
        if opts.list:
            self.take_list(opts.list)
            rows = (("list", lists.name_of(opts.list), SMALL, 1024, 0, "list"),)
        elif opts.rows is not None:
            words = opts.rows.split(",")
            unknown = [w for w in words if w not in [row[0] for row in ROWS]]
            if unknown:
                raise Usage(f"--rows {unknown[0] or repr('')}: there are " +
                            " ".join(r[0] for r in ROWS))
            rows = [r for r in ROWS if r[0] in words]
        elif opts.quick:
            rows = [r for r in ROWS if r[0] in QUICK]
        return [Point(i, label, path=path, size=size, kind=kind,
                      calls=calls if opts.requests_per_connection is None
                      else opts.requests_per_connection)
                for i, (_, label, path, size, calls, kind) in enumerate(rows)]

    # --- what follows

    def derive(self, entry: dict) -> dict[str, dict[str, str]]:
        if self.misses:         # then no row shows what a hit costs
            entry["last_lines"] = []
            return {}
        rows = {(row["point"], row["server"]): row for row in entry["summary"]
                if row["figures"]["throughput"]}
        label, used = {p.label: p.x for p in self.points}, []

        def rate(x: Any, server: str) -> Any:
            row = rows.get((x, server))
            return row and row["figures"]["throughput"]["median"]

        ret, lines = {}, []
        wired = next((name for name in (WIRE, f"{WIRE}-wire") if name in entry["servers"]), WIRE)
        hit = label.get("1 KiB")
        three = [(hit, wired), (label.get("1 KiB, passed up"), wired), (hit, USER)]
        share = pays_from(*(rate(*key) for key in three))
        if share:
            ret["wire pays from this share of hits on, 1 KiB"] = {wired: share}
            used += three
        sizes = [(p.size, (p.x, wired), (p.x, USER)) for p in self.points
                 if not p.kind and not p.calls and p.size <= BY_WIRE_MOST]
        up_to = pays_up_to([(size, *(rate(*key) for key in keys)) for size, *keys in sizes])
        if up_to:
            ret["and up to this size"] = {wired: up_to}
            used += [key for _, *keys in sizes if all(key in rows for key in keys) for key in keys]
        if share or up_to:
            lines.append(conclusion(share, up_to))
        floor, wire = rate(hit, FLOOR), rate(hit, wired)
        if floor and wire:
            used += [(hit, FLOOR), (hit, wired)]
            least = "at least " * any(row["server"] == FLOOR and
                                      bottleneck.AT_LEAST in row["limit"]
                                      for row in entry["summary"])
            ret["time of a hit of 1 KiB, in times of a TC program that only answers"] = {
                wired: f"{least}{floor / wire:.2f}"}
            lines.append(f"the floor, a TC program that only answers: {least}"
                         f"{human(floor, '/s')}; a hit of 1 KiB takes {least}"
                         f"{floor / wire:.2f} times as long")
        elif FLOOR in entry["servers"]:
            lines.append("how far a hit is from the floor, a TC program that only answers, is not "
                         "known: " + ("the floor" if wire else "wire") + " has no figure")
        if any(disturbed(rows[key]) for key in used):
            lines.append("other programs took a part of these CPUs: do not quote this")
        entry["last_lines"] = lines
        return ret


def conclusion(share: str | None, up_to: str | None) -> str:
    """Where wire pays, from what pays_from() and pays_up_to() have returned."""
    if share and share.startswith("never"):
        return f"wire {share.replace('never', 'never pays', 1)}, on this machine"
    if up_to == NO_SIZE:
        return "wire pays at none of these sizes, on this machine"
    return "wire pays" + f" from {share} hits on" * bool(share) + \
        ", and" * bool(share and up_to) + f" up to {up_to}" * bool(up_to) + ", on this machine"


def fitting(wanted: int | None) -> int:
    """The number of connections, if the packets that wait for a core have room."""
    room = int(first("/proc/sys/net/core/netdev_max_backlog", r"(\d+)", 1000))
    if wanted is None:
        return max(1, min(CONNECTIONS, room // WAITING))
    if wanted * WAITING > room:
        raise Usage(f"--connections {wanted}: {WAITING} packets of each may wait for a core, whose "
                    f"queue drops more than net.core.netdev_max_backlog = {room}: "
                    f"want at most {room // WAITING}, or raise that sysctl")
    return wanted


def pays_from(hit: float, passed: float, user: float) -> str | None:
    """The share of hits ('N %') from which a core with wire answers more; None: not known."""
    if not (hit and passed and user):
        return None
    t_hit, t_pass, t_user = 1 / hit, 1 / passed, 1 / user
    if t_hit >= t_user:
        return "never: a hit costs as much as an answer of the daemon"
    if t_pass <= t_user:        # a request that it passes up costs nothing, in these figures
        return "0 %"
    return f"{math.ceil(100 * (t_pass - t_user) / (t_pass - t_hit))} %"


def pays_up_to(sizes: Any) -> str | None:
    """The size up to which wire is faster than the user tier; sizes: [(bytes, wire, user)]."""
    known = sorted((size, math.log(wire / user)) for size, wire, user in sizes if wire and user)
    if len(known) < 2:
        return None
    if known[0][1] <= 0:
        return NO_SIZE
    for (a, ya), (b, yb) in zip(known, known[1:]):
        if yb <= 0:
            return f"{(a + (b - a) * ya / (ya - yb)) / KIB:.1f} KiB"
    longest = known[-1][0]
    return ALL if longest >= BY_WIRE_MOST else f"at least {human(longest, 'B')}"
