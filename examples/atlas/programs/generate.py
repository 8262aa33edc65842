#!/usr/bin/env python3
"""Make collisions: a Z boson, or what looks like one, that decays into two muons.

    generate.py --events 20000 --chunks 8 --seed 7 --out events --summary summary.json

The mass of a Z has the shape of a resonance; of others there are fewer the heavier they are. Each
has some momentum across the beam and more along it, and its muons fly apart as those of a particle
with spin do. The same seed makes the same events, however many chunks they are cut into.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: An event: its number, then px, py, pz and E of the negative muon and of the positive, in GeV.
EVENT = struct.Struct("<I8f")
HEAD = b"MUONS 1\n"
#: The Z: mass and width in GeV, and how many of all events are one.
MASS, WIDTH, SHARE = 91.1876, 2.4952, 0.9
#: Masses that are made.
LOW, HIGH = 55.0, 125.0
#: How steeply others get fewer, in GeV.
FALL = 28.0
MUON = 0.1056584


def main(argv: Sequence[str]) -> int:
    """Make events as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", default="events")
    parser.add_argument("--summary", default="summary.json")
    given = parser.parse_args(argv)
    Path(given.out).mkdir(parents=True, exist_ok=True)
    events = collide(random.Random(given.seed), given.events)
    chunks = []
    for number, count in enumerate(shares(given.events, given.chunks)):
        name = f"{given.out}/{number:04d}.muons"
        write(name, (next(events) for _ in range(count)))
        chunks.append({"number": number, "name": name, "events": count})
    summary = {
        "events": given.events, "seed": given.seed, "count": len(chunks), "chunks": chunks,
    }  # fmt: skip
    Path(given.summary).write_text(json.dumps(summary, indent=1), encoding="utf-8")
    print(f"{given.events} events in {len(chunks)} chunks")
    return 0


def shares(events: int, chunks: int) -> list[int]:
    """Share events out as evenly as can be."""
    return [events * (at + 1) // chunks - events * at // chunks for at in range(chunks)]


def write(name: str, events: Iterable[tuple[float, ...]]) -> None:
    """Write events; a file that is there is whole."""
    part = Path(f"{name}.part")
    with part.open("wb") as file:
        file.write(HEAD)
        file.writelines(EVENT.pack(*event) for event in events)
    part.replace(name)


def collide(dice: random.Random, count: int) -> Iterator[tuple[float, ...]]:
    """Make events one after another."""
    for number in range(count):
        mass = resonance(dice) if dice.random() < SHARE else continuum(dice)
        # Across the beam it has little momentum, rarely much; along it whatever the partons had.
        across = (
            6.0 * math.sqrt(-2.0 * math.log(1.0 - dice.random())) * math.exp(dice.gauss(0, 0.5))
        )
        along = dice.gauss(0.0, 1.1)
        yield (number, *decay(dice, mass, across, dice.uniform(-math.pi, math.pi), along))


def resonance(dice: random.Random) -> float:
    """Draw the mass of a Z: a Breit–Wigner distribution between bounds."""
    low, high = (math.atan(2.0 * (edge - MASS) / WIDTH) for edge in (LOW, HIGH))
    return MASS + 0.5 * WIDTH * math.tan(dice.uniform(low, high))


def continuum(dice: random.Random) -> float:
    """Draw the mass of a pair that comes from no Z."""
    left = math.exp(-(HIGH - LOW) / FALL)
    return LOW - FALL * math.log(1.0 - dice.random() * (1.0 - left))


def decay(
    dice: random.Random, mass: float, across: float, angle: float, along: float
) -> tuple[float, ...]:
    """Let a particle decay into two muons; return both as px, py, pz, E in the laboratory."""
    # Most fly along the beam: 1 + cos² is drawn by trying.
    while True:
        cosine = dice.uniform(-1.0, 1.0)
        if dice.random() * 2.0 < 1.0 + cosine * cosine:
            break
    sine, around = math.sqrt(1.0 - cosine * cosine), dice.uniform(-math.pi, math.pi)
    energy = mass / 2.0
    momentum = math.sqrt(energy * energy - MUON * MUON)
    one = (
        momentum * sine * math.cos(around),
        momentum * sine * math.sin(around),
        momentum * cosine,
    )
    heavy = math.hypot(mass, across)
    parent = (
        across * math.cos(angle),
        across * math.sin(angle),
        heavy * math.sinh(along),
        heavy * math.cosh(along),
    )
    other = (-one[0], -one[1], -one[2])
    return (*boost(one, energy, parent, mass), *boost(other, energy, parent, mass))


def boost(
    vector: Sequence[float], energy: float, parent: Sequence[float], mass: float
) -> tuple[float, float, float, float]:
    """See from the laboratory what somebody sees who flies with the parent."""
    dot = sum(a * b for a, b in zip(vector, parent[:3], strict=True))
    seen = (parent[3] * energy + dot) / mass
    push = (energy + seen) / (mass + parent[3])
    x, y, z = (a + push * b for a, b in zip(vector, parent[:3], strict=True))
    return x, y, z, seen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
