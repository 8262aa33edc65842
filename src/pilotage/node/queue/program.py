"""`local submit`, `local list` and `local cancel`."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence

from . import alive, keeper, place, show, stop

_USAGE = 2
_FAILED = 1
_ID = re.compile(r"([1-9][0-9]*)(?:\.([0-9]+))?", re.ASCII)
#: What is over is listed for so long, in seconds.
_KEEP_S = 86_400.0


def main(words: Sequence[str]) -> int:
    """Do what the first word says; the exit status is 2 for what can never be done."""
    given = _parser().parse_args(words)
    os.umask(0o077)
    root = os.path.abspath(given.root)
    try:
        code: int = {"submit": _submit, "list": _list, "cancel": _cancel}[given.verb](root, given)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"local {given.verb}: {error}\n")
        return _FAILED
    return code


def _submit(root: str, given: argparse.Namespace) -> int:
    slots = given.slots or len(os.sched_getaffinity(0))
    if given.cpus > slots:
        sys.stderr.write(f"refused: {given.cpus} cores are asked for, there are {slots}\n")
        return _USAGE
    order = {
        "key": given.key,
        "count": given.count,
        "cores": given.cpus,
        "slots": slots,
        "time": given.time,
        "memory": given.memory,
        "grace": given.grace,
        "folder": os.path.abspath(given.folder),
        "by": alive.me(),
    }
    new = place.new(root, order, sys.stdin.read())
    keeper.detach(new, root)
    sys.stdout.write(f"{new.id}\n")
    return 0


def _list(root: str, given: argparse.Namespace) -> int:
    found = []
    for one in place.every(root):
        try:
            items = list(show.items(one))
        except FileNotFoundError:
            # Another listing has just forgotten it.
            continue
        if show.finished(items) < time.time() - given.keep:
            one.remove()
        else:
            found.extend(items)
    json.dump({"items": found}, sys.stdout)
    sys.stdout.write("\n")
    return 0


def _cancel(root: str, given: argparse.Namespace) -> int:
    for name in given.ids:
        found = _ID.fullmatch(name)
        if found is None:
            sys.stderr.write(f"refused: {name!r} is no id\n")
            return _USAGE
        one = place.Place(os.path.join(root, found[1]))
        try:
            count = one.order()["count"]
        except FileNotFoundError:
            # It was over so long ago that it is forgotten.
            continue
        for index in range(count) if found[2] is None else [int(found[2])]:
            if index < count:
                stop.stop(one, index)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="local", allow_abbrev=False)
    parser.add_argument("--root", required=True, help="folder of the queue")
    verbs = parser.add_subparsers(dest="verb", required=True)
    submit = verbs.add_parser("submit", allow_abbrev=False, help="queue the script on stdin")
    submit.add_argument("--key", required=True)
    submit.add_argument("--folder", required=True, help="where it begins and writes")
    submit.add_argument("--count", type=_whole, default=1)
    submit.add_argument("--cpus", type=_whole, default=1)
    submit.add_argument("--slots", type=_whole, default=0)
    submit.add_argument("--memory", type=_whole, default=0, help="bytes")
    submit.add_argument("--time", type=_seconds, default=0.0, help="seconds")
    submit.add_argument("--grace", type=_seconds, default=30.0, help="seconds from TERM to KILL")
    listing = verbs.add_parser("list", allow_abbrev=False, help="list all items as JSON")
    listing.add_argument("--keep", type=_seconds, default=_KEEP_S, help="seconds")
    cancel = verbs.add_parser("cancel", allow_abbrev=False, help="call items off")
    cancel.add_argument("ids", nargs="+")
    return parser


def _whole(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if number < 0 or not math.isfinite(number):
        raise ValueError(text)
    return number
