"""`local submit`, `local list` and `local cancel`."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from . import submission, supervisor
from .submission import LocalSubmission

Item = dict[str, Any]


def listed(given: LocalSubmission) -> Iterator[Item]:
    """Describe each item of a submission."""
    order = given.order()
    keeper = _keeper(given, order)
    for index in range(order["count"]):
        found: Item = {"id": f"{given.id}.{index}", "key": order["key"], "index": index}
        yield {**found, **_state(given, index, keeper)}


def finished(found: list[Item]) -> float:
    """Return when the last item ended; never if one has not."""
    if any(item["phase"] != "over" for item in found):
        return float("inf")
    return max((item.get("ended") or 0.0 for item in found), default=0.0)


def _keeper(given: LocalSubmission, order: dict[str, Any]) -> str:
    """Return whether the supervisor `lives`, is `gone`, or is on a machine that we do not see."""
    who = given.read("keeper.json")
    if who is None:
        # It is about to begin, unless the submitting command died before.
        if submission.elsewhere(order["by"]) or submission.lives(order["by"]):
            return "lives"
        # From now on none can begin.
        given.claim("keeper.json", {**order["by"], "start": "never"})
        who = given.read("keeper.json") or order["by"]
    if submission.elsewhere(who):
        return "elsewhere"
    return "lives" if submission.lives(who) else "gone"


def _state(given: LocalSubmission, index: int, keeper: str) -> Item:
    begun = given.read(f"{index}.begun")
    runs = given.read(f"{index}.runs")
    over = given.read(f"{index}.over")
    if over is not None:
        return _over(over, runs)
    if begun is not None and begun["cancelled"]:
        return {"phase": "over", "cause": "cancelled", "ended": begun["time"]}
    if keeper == "elsewhere":
        return {"phase": "unknown", "words": "its supervisor is on another machine"}
    if runs is not None and (keeper == "lives" or submission.lives(runs)):
        return {"phase": "running", "node": runs["host"], "started": runs["time"]}
    if keeper == "lives":
        # Its script waits at a gate until the file that says where it runs is on disk.
        return {"phase": "queued"}
    return _lost(given, index, runs)


def _lost(given: LocalSubmission, index: int, runs: Item | None) -> Item:
    """Record an item as lost, or as never begun."""
    end = {"cause": "unknown", "words": "its supervisor is gone", "time": time.time()}
    if runs is None:
        end = {**end, "cause": "node", "words": "its supervisor ended before it began"}
    given.claim(f"{index}.over", end)
    return _over(given.read(f"{index}.over") or end, runs)


def _over(over: Item, runs: Item | None) -> Item:
    found: Item = {
        name: over[name] for name in ("cause", "exit", "signal", "words") if name in over
    }
    found.update(phase="over", ended=over.get("time"))
    if runs is not None:
        found.update(node=runs["host"], started=runs["time"])
    return found


def stop(given: LocalSubmission, index: int) -> None:
    """Call one item off; it is no error if it is over."""
    cancelled = {"cancelled": True, "time": time.time()}
    if given.claim(f"{index}.begun", cancelled) or given.has(f"{index}.over"):
        return
    given.claim(f"{index}.stop", {"time": time.time()})
    keeper, runs = given.read("keeper.json"), given.read(f"{index}.runs")
    if keeper is None or runs is None or submission.elsewhere(keeper) or submission.lives(keeper):
        return
    # Its supervisor is gone, so it is ended from here.
    if submission.lives(runs):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(runs["pid"], signal.SIGKILL)
    given.claim(f"{index}.over", {"cause": "cancelled", "time": time.time()})


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
        "by": submission.me(),
    }
    new = submission.new(root, order, sys.stdin.read())
    supervisor.detach(new, root)
    sys.stdout.write(f"{new.id}\n")
    return 0


def _list(root: str, given: argparse.Namespace) -> int:
    found = []
    for one in submission.every(root):
        try:
            items = list(listed(one))
        except FileNotFoundError:
            # Another listing has just forgotten it.
            continue
        if finished(items) < time.time() - given.keep:
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
        one = submission.LocalSubmission(os.path.join(root, found[1]))
        try:
            count = one.order()["count"]
        except FileNotFoundError:
            # It was over so long ago that it is forgotten.
            continue
        for index in range(count) if found[2] is None else [int(found[2])]:
            if index < count:
                stop(one, index)
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
    cancel = verbs.add_parser("cancel", allow_abbrev=False, help="cancel items")
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
