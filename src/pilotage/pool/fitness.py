"""Fitness of a pilot: utilisation of its most used and of its least used resource.

Room for more work ends with the first feature that is full, which is the *allocation*. What is
wasted shows in the feature that is used least, which is the *utilisation*.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

CPU = "cpu"


class Basis(StrEnum):
    """What utilisation is taken from."""

    #: What payloads asked for, of every feature.
    CLAIMED = "claimed"
    #: What payloads were measured to use; of features that are not measured, what they asked for.
    MEASURED = "measured"
    #: How busy payloads keep the cores that they asked for. Those that wait for a slow network do
    #: not, so that pools without bandwidth shrink and pools with bandwidth grow.
    EFFICIENCY = "cpu"
    #: The worse of `claimed` and `cpu`.
    BOTH = "both"


class Feature(msgspec.Struct, frozen=True):
    """One thing that a pilot has: cores, bytes of memory, bytes of disk, GPUs."""

    #: How much there is.
    total: float
    #: How much of it payloads have asked for.
    claimed: float = 0.0
    #: How much of it they use; None if not measured.
    used: float | None = None


class Fitness(msgspec.Struct, frozen=True):
    """How much of a pilot is taken, and how well it is used."""

    utilisation: float | None = None
    allocation: float | None = None


def fitness(features: Mapping[str, Feature], basis: Basis = Basis.CLAIMED) -> Fitness:
    """Judge a pilot; a feature that it does not have says nothing about it."""
    claimed: list[float] = []
    measured: list[float] = []
    for one in features.values():
        if one.total > 0:
            ratio = min(1.0, one.claimed / one.total)
            claimed.append(ratio)
            measured.append(ratio if one.used is None else min(1.0, one.used / one.total))
    if not claimed:
        return Fitness()
    match basis:
        case Basis.CLAIMED:
            utilisation: float | None = min(claimed)
        case Basis.MEASURED:
            utilisation = min(measured)
        case Basis.EFFICIENCY:
            utilisation = efficiency(features.get(CPU))
        case Basis.BOTH:
            busy = efficiency(features.get(CPU))
            utilisation = min(claimed) if busy is None else min(busy, *claimed)
    return Fitness(utilisation, max(claimed))


def efficiency(cpu: Feature | None) -> float | None:
    """Return how busy the cores are that payloads asked for; those of an idle pilot are not."""
    if cpu is None or not cpu.total > 0:
        return None
    if not cpu.claimed > 0:
        # An idle pilot is known to be idle; one whose payloads were not measured is unknown.
        return 0.0
    return None if cpu.used is None else min(1.0, cpu.used / cpu.claimed)
