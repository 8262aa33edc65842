"""Try a law before it runs: what `pilotage pool simulate` does."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pilotage import errors
from pilotage.pool.law.hinted import Hinted
from pilotage.pool.law.windowed import Windowed

from .model import Figures, Scenario
from .run import run
from .scenario import SCENARIOS
from .trace import Trace
from .wheel import HINTS, Law, Listener, wheel

#: Our laws by their names.
LAWS: dict[str, type[Hinted | Windowed]] = {"hinted": Hinted, "windowed": Windowed}


def trial(
    scenario: str,
    law: str,
    *,
    seed: int = 1,
    hints: str = "exact",
    trace: Trace | None = None,
    listen: Listener | None = None,
) -> Figures:
    """Return how a law fares in a scenario, with its jobs or with recorded ones."""
    where, steered = _scenario(scenario), _law(law)
    if hints not in HINTS:
        raise errors.ConfigError(f"hints are {', '.join(HINTS)}, not {hints!r}")
    told = "none" if law == "windowed" else hints
    if trace is not None:
        where = replace(where, kinds=trace.kinds, hours=trace.hours, warm=0)
    jobs = None if trace is None else trace.steps
    return run(where, seed, wheel(steered, hints=told, listen=listen), jobs=jobs)


def _scenario(name: str) -> Scenario:
    if name not in SCENARIOS:
        hint = f"scenarios are {', '.join(SCENARIOS)}"
        raise errors.ConfigError(f"there is no scenario {name!r}", hint=hint)
    return SCENARIOS[name]


def _law(name: str) -> Law:
    if name not in LAWS:
        raise errors.ConfigError(f"there is no law {name!r}", hint=f"laws are {', '.join(LAWS)}")
    return LAWS[name]()


def words(found: Figures) -> Iterator[str]:
    """Say for people how it went."""
    yield f"score {found.score():.3f}: waste and a quarter of the waiting, of what was asked for"
    yield f"{found.utilisation:.0%} of {found.held:.0f} core-hours held were used"
    wait = f"{60 * found.wait:.0f} min in the mean"
    yield f"{found.started} of {found.jobs} jobs started; they waited {wait}"
    yield f"{found.orders} orders, {found.cancelled} of them cancelled; {found.drones} drones"
    yield f"{found.unused} drones never ran a job"
    parts = ", ".join(f"{name} {hours:.0f}" for name, hours in found.reasons.items())
    yield f"wasted core-hours: {parts}"
