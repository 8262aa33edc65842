"""Detect pools whose payloads leave cores idle, and choose pilots to release.

How busy payloads keep the cores that they have says how well they are fed with data. Nothing else
of the network need be known. What is measured is smoothed, must be enough to count, and must last;
what was given back is asked for again only when the rest is busy, or after a long while.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from pilotage.base import errors, toml, units


class Efficiency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When payloads count as starved."""

    #: Cores that are busy for less than this part of the time starve.
    low: float = 0.4
    #: Those that are busy for more than this part starve no longer.
    high: float = 0.6
    #: So much time of cores must be measured before it counts, such as `"10m"`.
    least: str = "10m"
    #: Half-life of measurements.
    smooth: str = "5m"
    #: Time that starvation must last before pilots are released, and between releases.
    lasting: str = "5m"
    #: Time without a measurement after which the pool is tried again.
    again: str = "30m"

    def check(self) -> None:
        """Raise `ConfigError` for what cannot be."""
        if not 0 <= self.low <= self.high <= 1:
            message = f"`low` cannot be {self.low}: 0 ≤ `low` ≤ `high` ≤ 1"
            raise errors.ConfigError(message, keys=("low",))
        for key in ("least", "smooth", "lasting", "again"):
            with toml.at(key):
                if not units.seconds(getattr(self, key)) > 0:
                    raise errors.ConfigError(f"`{key}` cannot be {getattr(self, key)}")


class Meter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of how busy the cores of a pool are."""

    #: Core-seconds that payloads have used and had, those of long ago counted less.
    used: float = 0.0
    had: float = 0.0
    #: Seconds for which too few have been busy, and since anything was measured.
    low: float = 0.0
    quiet: float = 0.0
    #: Whether it counts as starved.
    starved: bool = False

    @property
    def busy(self) -> float | None:
        """How busy cores are, from 0 to 1; None if not measured."""
        return min(1.0, self.used / self.had) if self.had > 0 else None


def meter(before: Meter, used: float, had: float, elapsed: float, rules: Efficiency) -> Meter:
    """Add what was measured in `elapsed` seconds, and say whether the pool starves."""
    kept = 0.5 ** (elapsed / units.seconds(rules.smooth))
    found = replace(
        before, used=before.used * kept + min(used, had), had=before.had * kept + had,
        quiet=0.0 if had > 0 else before.quiet + elapsed,
    )  # fmt: skip
    if found.quiet >= units.seconds(rules.again):
        return Meter()
    busy = found.busy
    if busy is None or found.had < units.seconds(rules.least) or not had > 0:
        # Too little to judge by: as it was.
        return found
    if busy > rules.high:
        return replace(found, low=0.0, starved=False)
    low = found.low + elapsed if busy < rules.low else 0.0
    return replace(found, low=low, starved=found.starved or low >= units.seconds(rules.lasting))


def give_back(
    before: Meter, ready: int, idle: int, rules: Efficiency, *, others: bool
) -> tuple[int, Meter]:
    """Return how many pilots of a starved pool are let go, and what to remember.

    Half of them, so that the rest may get what the network has; then it is measured again. All of
    those without a job, if others can have the work; if none can, one is kept.
    """
    if not before.starved or not ready:
        return 0, before
    count = idle if others else min(idle, ready - 1)
    if before.low >= units.seconds(rules.lasting):
        half = math.ceil(ready / 2) if others else ready // 2
        return max(count, half), replace(before, used=0.0, had=0.0, low=0.0)
    return count, before
