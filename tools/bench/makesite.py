# SPDX-License-Identifier: GPL-2.0
"""`bench site`: makes the files that experiments request, for a server on another machine."""
from __future__ import annotations

import argparse
import os
import sys

import fileset as files
import lists
from messages import Problem


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(
        prog="bench site", description="Make the files that the experiments request in DIR: "
        "for a server on another machine, with DIR as its root.")
    ap.add_argument("dir", metavar="DIR")
    ap.add_argument("--web99", type=int, default=0, metavar="CONNECTIONS",
                    help="also SPECweb99's file set for this number of connections: "
                    "DIR/file_set/dirNNNNN/class0_0 to class3_8, 36 files and 5,119,484 bytes "
                    "a directory")
    ap.add_argument("--folders", type=int, default=0, metavar="N",
                    help="of this number of directories, whatever the connections")
    ap.add_argument("--only", action="store_true", help="only the files of these options")
    ap.add_argument("--list", action="append", default=[], metavar="FILE",
                    help="also the files of a filelist of WebStone, or of its standard mix: "
                    "webstone; can be repeated")
    ap.add_argument("--objects", type=int, action="append", default=[], metavar="N",
                    help="also N objects of 1 KiB; can be repeated")
    args = ap.parse_args(argv)
    if min(args.web99, args.folders) < 0 or any(nr < 1 for nr in args.objects):
        ap.error("--web99, --folders and --objects: want at least 1")
    folders = args.folders or (files.web99_folders(args.web99) if args.web99 else 0)
    try:
        os.makedirs(args.dir, exist_ok=True)
        if not args.only:
            files.basic().make(args.dir)
        if folders:
            files.web99(folders).make(args.dir)
        for name in args.list:
            rows = lists.read(name)
            if path := lists.without_size(rows):
                ap.error(f"--list {name}: {path} has no size")
            if why := lists.unmakeable(rows):
                ap.error(f"--list {name}: {why}")
            lists.made(rows).make(args.dir)
        for nr in args.objects:
            files.objects(nr).make(args.dir)
    except OSError as e:
        raise Problem(f"site: {e}") from e
    print(f"{args.dir}: made", file=sys.stderr)
    return 0
