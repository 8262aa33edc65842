"""Which tests a run has: `quick` for everyone, `rest` for the real engines, `soak` for repetition.

A test is in `soak` if it has that mark. It is in `quick` if it needs none of the systems in
`ENGINES` and does not have the mark `slow`, or if it has the mark `quick`. Of the tests with the
mark `crash_points`, which kill the product at one point each, every family has one in `quick`, a
different one for each seed. `rest` has all that `quick` has not, and the tests of properties again,
with more examples.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest

#: Fixtures that bring up a real system, those that take longest first.
BEDS = (
    "condor", "sites", "rabbit", "slurm_accounting", "gridengine", "slurm", "lanes", "sshd",
    "chromium",
)  # fmt: skip
#: Systems that are too heavy for a run that everyone waits for.
ENGINES = frozenset(BEDS) - {"chromium"}

QUICK, REST, SOAK = "quick", "rest", "soak"
#: What runs a suite.
COMMANDS = {QUICK: "make test", REST: "make test-all", SOAK: "make soak"}

SEED = "PILOTAGE_SEED"


def seed() -> int:
    """Return what chooses among crash points: given, or another one each minute."""
    return int(os.environ.setdefault(SEED, str(int(time.time()) // 60)))


def one_of(points: Sequence[str]) -> str:
    """Choose one crash point; consecutive seeds go round."""
    return points[seed() % len(points)]


def beds(item: pytest.Item) -> list[str]:
    """Return the systems that a test uses, as their fixtures say."""
    return [name for name in getattr(item, "fixturenames", ()) if name in BEDS]


def family(item: pytest.Item) -> str:
    """Return the crash points that a test takes one of: those of one function; or nothing."""
    if item.get_closest_marker("crash_points") is None:
        return ""
    return item.nodeid.partition("[")[0]


def turn(items: Iterable[pytest.Item], number: int) -> set[pytest.Item]:
    """Choose one test of each family; consecutive numbers go round."""
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if name := family(item):
            families[name].append(item)
    return {each[number % len(each)] for each in families.values()}


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis chooses the data of a test."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def suite(item: pytest.Item) -> str:
    """Return the suite of a test, whatever crash point is chosen."""
    if item.get_closest_marker("soak") is not None:
        return SOAK
    if item.get_closest_marker("quick") is not None:
        return QUICK
    slow = item.get_closest_marker("slow") is not None
    heavy = slow or family(item) or not ENGINES.isdisjoint(beds(item))
    return REST if heavy else QUICK


def select(
    items: Sequence[pytest.Item], wanted: str | None, number: int
) -> tuple[list[pytest.Item], Counter[str]]:
    """Return the tests of a suite, and how many of each other suite are left out.

    Where no suite is wanted, all but repetition is.
    """
    chosen = turn(items, number) if wanted == QUICK else set()
    if wanted == REST:
        chosen = {item for item in items if suite(item) == QUICK and is_property(item)}
    kept: list[pytest.Item] = []
    left: Counter[str] = Counter()
    for item in items:
        own = suite(item)
        if own == wanted or item in chosen or (wanted is None and own != SOAK):
            kept.append(item)
        else:
            left[own] += 1
    return kept, left


def farewell(wanted: str, left: Mapping[str, int]) -> str:
    """Say what was left out, and which commands run it."""
    parts = [f"{left[one]} tests ({COMMANDS[one]})" for one in (QUICK, REST, SOAK) if left.get(one)]
    said = f"left out: {', '.join(parts)}" if parts else "nothing was left out"
    if wanted == QUICK:
        said += f"; crash points were chosen by SEED={seed()}"
    return said
