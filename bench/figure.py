"""What a benchmark found: figures with their goals, as people and programs read them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

RESULTS = Path(__file__).parent / "results"

Better = Literal["more", "less"]


class Goal(msgspec.Struct, frozen=True):
    """What a figure should reach."""

    #: How much, in the unit of the figure; or how many times better than `than`.
    bound: float
    #: The peer that it is measured by, or `limit`; empty for the figure itself.
    than: str = ""

    def words(self, unit: str, better: Better) -> str:
        """Say it for people."""
        if self.than:
            return f">= {self.bound:g}x {self.than}"
        sign = ">=" if better == "more" else "<="
        return f"{sign} {self.bound:g} {unit}".rstrip()

    def met(self, ours: float, ratio: Mapping[str, float], better: Better) -> bool:
        """Say whether it is reached."""
        if self.than:
            return ratio.get(self.than, 0.0) >= self.bound
        return ours >= self.bound if better == "more" else ours <= self.bound


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity: ours, the peers' and the machine's limit, all of the same run."""

    name: str
    unit: str
    #: The median of the repeats.
    ours: float
    #: Medians of the peers.
    peer: dict[str, float] = {}
    #: What the machine allows, measured without any of our code.
    limit: float | None = None
    repeats: int
    #: The least and the largest of ours.
    spread: tuple[float, float]
    #: How many times better than each peer, and which part of the limit.
    ratio: dict[str, float] = {}
    goal: str = ""
    #: Nothing where there is no goal.
    met: bool | None = None
    note: str = ""


class Report(msgspec.Struct, frozen=True):
    """All figures of one run of one benchmark."""

    bench: str
    machine: dict[str, Any]
    figures: list[Figure]

    def save(self) -> Path:
        """Keep it as the last run."""
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{self.bench}.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return file


def load(bench: str) -> Report:
    """Read the last run of a benchmark."""
    return msgspec.json.decode((RESULTS / f"{bench}.json").read_bytes(), type=Report)


def figure(
    name: str,
    unit: str,
    ours: Sequence[float],
    *,
    better: Better = "less",
    peers: Mapping[str, Sequence[float]] | None = None,
    limit: Sequence[float] = (),
    goal: Goal | Sequence[Goal] = (),
    note: str = "",
) -> Figure:
    """Make a figure of repeats; the ratio to a limit that was not reached is below 1."""
    middle = statistics.median(ours)
    goals = (goal,) if isinstance(goal, Goal) else tuple(goal)
    peer = {who: statistics.median(found) for who, found in (peers or {}).items() if found}
    bound = statistics.median(limit) if limit else None
    others = {**peer, "limit": bound} if bound is not None else dict(peer)
    ratio = {
        who: _ratio(middle, value, better) for who, value in others.items() if middle and value
    }
    return Figure(
        name=name,
        unit=unit,
        ours=_round(middle),
        peer={who: _round(value) for who, value in peer.items()},
        limit=None if bound is None else _round(bound),
        repeats=len(ours),
        spread=(_round(min(ours)), _round(max(ours))),
        ratio={who: _round(value) for who, value in ratio.items()},
        goal="; ".join(one.words(unit, better) for one in goals),
        met=all(one.met(middle, ratio, better) for one in goals) if goals else None,
        note=note,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that such a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _ratio(ours: float, other: float, better: Better) -> float:
    return ours / other if better == "more" else other / ours


def _round(value: float) -> float:
    return float(f"{value:.4g}")
