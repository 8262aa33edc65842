"""Rules for ranges of the supply.

@stepwise
def control(pool, interval):
    return 10

@control.add(supply=10)
def linear(pool, interval):
    if pool.utilisation < 0.5:
        return pool.demand - interval
    if pool.allocation > 0.5:
        return pool.demand + interval

control.stage(interval=10) >> pool
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.controller.linear import check_interval
from pilotage.pool.model import Decision, Reading
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import volume

#: A rule is handed a reading, in which all is defined, and the seconds that have passed; it returns
#: a demand, or nothing to leave it.
Rule = Callable[[Any, float], float | None]


class Stepwise(Stage, frozen=True):
    """Let the rule decide in whose range the supply is."""

    #: The rule below all thresholds.
    base: Rule
    #: Supplies and the rules from there on.
    rules: tuple[tuple[float, Rule], ...] = ()
    #: Seconds between two decisions.
    interval: float = 1.0

    def __post_init__(self) -> None:
        """Refuse thresholds that leave a rule without a range."""
        check_interval(self.interval)
        steps = [step for step, _ in self.rules]
        if any(not step > 0 for step in steps):
            raise errors.ConfigError("a threshold must be above 0")
        if len(set(steps)) < len(steps):
            raise errors.ConfigError("two rules have the same threshold")
        msgspec.structs.force_setattr(
            self, "rules", tuple(sorted(self.rules, key=lambda pair: pair[0]))
        )

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Ask the rule of the range."""
        place = bisect_right([step for step, _ in self.rules], reading.supply)
        start, rule = (0.0, self.base) if place == 0 else self.rules[place - 1]
        wanted = rule(reading.assumed(), elapsed)
        name = getattr(rule, "__name__", type(rule).__name__)
        why = f"supply {volume(reading.supply)} is in the range from {volume(start)}: `{name}`"
        if wanted is None:
            return Decision(reading.demand, f"{why} leaves it as it is", hold=True)
        return Decision(max(0.0, float(wanted)), f"{why} asks for {volume(wanted)}")


class Steps:
    """Rules that are still being collected; made by `stepwise`."""

    def __init__(self, base: Rule) -> None:
        """Begin with the rule below all thresholds."""
        self.base = base
        self.rules: list[tuple[float, Rule]] = []

    def add(self, rule: Rule | None = None, *, supply: float) -> Any:  # noqa: ANN401 - a rule, or what takes one
        """Add the rule from a supply on; without a rule, return what adds one."""
        if supply in {step for step, _ in self.rules}:
            raise errors.UsageError(f"there is a rule from {supply:g} on already")
        if rule is None:
            return lambda given: self.add(given, supply=supply)
        self.rules.append((supply, rule))
        return rule

    def stage(self, interval: float = 1.0) -> Stepwise:
        """Return the controller with the rules of now."""
        return Stepwise(self.base, tuple(self.rules), interval)


stepwise = Steps
