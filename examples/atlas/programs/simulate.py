#!/usr/bin/env python3
"""Let muons fly through a detector, and say what it would have measured: in parallel.

    srun simulate.py --summary summary.json --out tracks --seed 7

Each muon leaves hits in the layers of a tracker within a magnet, a little beside where it flew;
its momentum is what a fit to these hits says. Muons that fly past the detector, have too little
momentum, or that it misses are lost, and with them their event.

Ranks share the events block by block. They know which one they are from Slurm or MPI; without
either, this program starts as many of its own as it has processors. The dice of a block are its
own, so that the outcome is the same for any number of ranks: that is what makes the job malleable.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: An event, as the generator writes it.
EVENT = struct.Struct("<I8f")
Event = tuple[Any, ...]
HEAD = b"MUONS 1\n"
#: Events that are one rank's work at a time.
BLOCK = 250
#: The detector: a field in tesla, layers in metres, how well a layer measures in metres.
FIELD = 2.0
LAYERS = (0.05, 0.09, 0.13, 0.30, 0.37, 0.44, 0.51, 0.65, 0.80, 0.95, 1.05)
BLUR = 35e-6
#: What it sees: up to this pseudorapidity, from this momentum across the beam on, so often.
REACH, LEAST, SEES = 2.5, 20.0, 0.95
#: How well it measures the direction along the beam.
SLOPE = 0.0008
MUON = 0.1056584
#: Variables that say which rank of how many this is; those of a Slurm step, since a batch script
#: has a rank too and is none.
RANKS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MUON_RANK", "MUON_RANKS"),
)


def main(argv: Sequence[str]) -> int:
    """Simulate the share of this rank, or all ranks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--summary", default="summary.json")
    parser.add_argument("--out", default="tracks")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=0, help="without Slurm or MPI: so many")
    parser.add_argument("--rank", type=int, help="be only this one of them")
    given = parser.parse_args(argv)
    Path(given.out).mkdir(parents=True, exist_ok=True)
    place = rank(os.environ) if given.rank is None else (given.rank, given.ranks)
    if place is None:
        return alone(argv, given.ranks or len(os.sched_getaffinity(0)))
    return share(Path(given.summary), Path(given.out), given.seed, *place)


def rank(env: Mapping[str, str]) -> tuple[int, int] | None:
    """Say which rank of how many this is; nothing if nobody has started ranks."""
    for number, count in RANKS:
        if number in env and count in env:
            return int(env[number]), int(env[count])
    return None


def alone(argv: Sequence[str], ranks: int) -> int:
    """Start ranks, and wait for all of them."""
    program = [sys.executable, str(Path(__file__).resolve()), *argv]
    started = [
        subprocess.Popen(
            program, env={**os.environ, "MUON_RANK": str(one), "MUON_RANKS": str(ranks)}
        )
        for one in range(ranks)
    ]
    return max(one.wait() for one in started)


def share(summary: Path, out: Path, seed: int, place: int, ranks: int) -> int:
    """Simulate what is one rank's; its counts are written last."""
    began, seen, kept = time.perf_counter(), 0, 0
    with (out / f"{place:04d}.muons").open("wb") as file:
        file.write(HEAD)
        for block, some in blocks(summary, place, ranks):
            dice = random.Random(seed * 1_000_003 + block)
            for event in some:
                seen += 1
                measured = detect(dice, event)
                if measured is not None:
                    kept += 1
                    file.write(EVENT.pack(event[0], *measured))
    counts = {
        "rank": place, "ranks": ranks, "seen": seen, "kept": kept, "seed": seed,
        "seconds": round(time.perf_counter() - began, 3),
    }  # fmt: skip
    (out / f"{place:04d}.json").write_text(json.dumps(counts), encoding="utf-8")
    print(f"rank {place} of {ranks}: {kept} of {seen} events in {counts['seconds']} s")
    return 0


def blocks(summary: Path, place: int, ranks: int) -> Iterator[tuple[int, Iterator[Event]]]:
    """Go through the blocks of one rank, each with its number."""
    for block, some in itertools.groupby(events(summary), lambda event: int(event[0]) // BLOCK):
        if block % ranks == place:
            yield block, some


def events(summary: Path) -> Iterator[Event]:
    """Read all events, chunk by chunk."""
    for chunk in json.loads(summary.read_text("utf-8"))["chunks"]:
        path = summary.parent / chunk["name"]
        data = path.read_bytes()
        if not data.startswith(HEAD) or len(data) - len(HEAD) != chunk["events"] * EVENT.size:
            sys.exit(f"{path} does not hold the {chunk['events']} events that it should")
        yield from EVENT.iter_unpack(data[len(HEAD) :])


def detect(dice: random.Random, event: Event) -> tuple[float, ...] | None:
    """Say what is measured of an event; nothing if it is lost."""
    found: list[float] = []
    for charge, (px, py, pz) in ((-1, event[1:4]), (1, event[5:8])):
        across = math.hypot(px, py)
        slope = math.asinh(pz / across)
        if across < LEAST / 2 or abs(slope) > REACH or dice.random() > SEES:
            return None
        measured, angle = track(dice, charge, across, math.atan2(py, px))
        if measured < LEAST:
            return None
        along = measured * math.sinh(dice.gauss(slope, SLOPE))
        x, y = measured * math.cos(angle), measured * math.sin(angle)
        found += (x, y, along, math.sqrt(measured * measured + along * along + MUON * MUON))
    return tuple(found)


def track(dice: random.Random, charge: int, across: float, angle: float) -> tuple[float, float]:
    """Let a muon leave hits, and fit a circle to them; return momentum and direction across."""
    bend = 0.3 * FIELD * charge / across
    weight = sum_r = sum_rr = sum_a = sum_ra = 0.0
    for radius in LAYERS:
        # It comes from the middle; material in its way turns it a little.
        turned = dice.gauss(0.0, 0.0136 / across * 0.15)
        hit = -math.asin(0.5 * bend * radius) + turned + dice.gauss(0.0, BLUR / radius)
        w = (radius / BLUR) ** 2
        weight += w
        sum_r += w * radius
        sum_rr += w * radius * radius
        sum_a += w * hit
        sum_ra += w * radius * hit
    size = weight * sum_rr - sum_r * sum_r
    gradient = (weight * sum_ra - sum_r * sum_a) / size
    offset = (sum_a - gradient * sum_r) / weight
    return 0.3 * FIELD / max(abs(2.0 * gradient), 1e-9), angle + offset


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
