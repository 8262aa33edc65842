#!/usr/bin/env python3
"""Put what the ranks have measured into one file, and see that nothing is missing or there twice.

    merge.py --summary summary.json --tracks . --out muons.dat --counts merged.json

What ranks have left is looked for in all folders below. The events come in their own order, so
that the file is the same however many ranks there were.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: An event, as the generator and the simulation write it.
EVENT = struct.Struct("<I8f")
HEAD = b"MUONS 1\n"


def main(argv: Sequence[str]) -> int:
    """Merge as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--summary", default="summary.json")
    parser.add_argument("--tracks", default=".")
    parser.add_argument("--out", default="muons.dat")
    parser.add_argument("--counts", default="merged.json")
    given = parser.parse_args(argv)
    made = int(json.loads(Path(given.summary).read_text("utf-8"))["events"])
    ranks = counts(Path(given.tracks))
    seen = sum(one["seen"] for one in ranks)
    if seen != made:
        sys.exit(f"{made} events were made, and {seen} were seen by {len(ranks)} ranks")
    events = [event for one in ranks for event in read(one)]
    events.sort()
    if len({event[0] for event in events}) != len(events):
        sys.exit("an event is there twice")
    part = Path(f"{given.out}.part")
    with part.open("wb") as out:
        out.write(HEAD)
        out.writelines(EVENT.pack(*event) for event in events)
    part.replace(given.out)
    told = {
        "events": made, "kept": len(events), "ranks": len(ranks),
        "seconds": max(one["seconds"] for one in ranks),
    }  # fmt: skip
    Path(given.counts).write_text(json.dumps(told, indent=1), encoding="utf-8")
    print(f"{len(events)} of {made} events from {len(ranks)} ranks")
    return 0


def counts(tracks: Path) -> list[dict[str, Any]]:
    """Read what each rank has counted; all of them must have come to their end."""
    files = tracks.rglob("[0-9][0-9][0-9][0-9].json")
    found = [{"file": one, **json.loads(one.read_text("utf-8"))} for one in files]
    found.sort(key=lambda one: int(one["rank"]))
    if not found or [one["rank"] for one in found] != list(range(found[0]["ranks"])):
        sys.exit(f"of the ranks only {[one['rank'] for one in found]} have come to their end")
    return found


def read(rank: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Read the events of a rank; they must be as many as it has counted."""
    path = rank["file"].with_suffix(".muons")
    data = path.read_bytes()
    if not data.startswith(HEAD) or len(data) - len(HEAD) != rank["kept"] * EVENT.size:
        sys.exit(f"{path} does not hold the {rank['kept']} events that it should")
    return list(EVENT.iter_unpack(data[len(HEAD) :]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
