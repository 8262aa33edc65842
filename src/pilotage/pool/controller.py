"""Controllers: each decides from a reading how many cores a pool should have."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.pool.model import ASSUMED, Controller, Decision, Reading
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import share, volume


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the demand of a pool changes."""

    #: Utilisation below which demand falls.
    low_utilisation: float = 0.5
    #: Allocation above which demand rises.
    high_allocation: float = 0.5


class Scales(Thresholds, frozen=True):
    """When and by which factor of the supply the demand of a pool changes."""

    #: Factor of the supply if demand falls.
    low_scale: float = 0.9
    #: Factor of the supply if demand rises.
    high_scale: float = 1.1


class Linear(Thresholds, Stage, frozen=True):
    """Change the demand at a constant rate."""

    #: Change of the demand in a second.
    rate: float = 1.0
    #: Seconds between two decisions.
    interval: float = 1.0

    def __post_init__(self) -> None:
        check_band(self.low_utilisation, self.high_allocation, self.interval)
        if not self.rate > 0:
            raise errors.ConfigError(f"rate is {self.rate:g}; it must be above 0")

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Go down if there is waste, else up if there is no room, else stay."""
        step, now = elapsed * self.rate, reading.demand
        why, way = judge(reading, self.low_utilisation, self.high_allocation)
        if way == 0:
            return Decision(now, f"{why}: stay at {volume(now)}", hold=True)
        # Below nothing there is nothing; going there would delay the way back (COBalD does).
        wanted = max(0.0, now + way * step)
        return Decision(wanted, f"{why}: from {volume(now)} to {volume(wanted)}")


def judge(reading: Reading, low: float, high: float) -> tuple[str, int]:
    """Return how a pool is used, as text, and whether demand falls (-1), stays (0) or rises (1)."""
    used, taken = reading.utilisation, reading.allocation
    if (ASSUMED if used is None else used) < low:
        return f"utilisation {share(used)} is below {share(low)}", -1
    if taken is None and high < ASSUMED:
        return "nothing is known of its use, which is taken as good", 1
    if taken is not None and taken > high:
        return f"allocation {share(taken)} is above {share(high)}", 1
    return f"utilisation {share(used)} and allocation {share(taken)} are as wanted", 0


def check_band(low: float, high: float, interval: float) -> None:
    """Refuse thresholds that contradict each other, and time that stands still."""
    if not low <= high:
        message = f"low_utilisation {low:g} is above high_allocation {high:g}"
        raise errors.ConfigError(message, hint="a pool would shrink and grow at the same time")
    check_interval(interval)


def check_interval(interval: float) -> None:
    """Refuse time that stands still."""
    if not 0 < interval < float("inf"):
        raise errors.ConfigError(f"interval is {interval:g}; it must be above 0")


class RelativeSupply(Scales, Stage, frozen=True):
    """Demand a multiple of the supply."""

    #: Seconds between two decisions.
    interval: float = 1.0
    #: What is asked for where there is nothing yet, since a multiple of nothing is nothing.
    first: float = 0.0

    def __post_init__(self) -> None:
        check_band(self.low_utilisation, self.high_allocation, self.interval)
        if not 0 <= self.low_scale < 1:
            raise errors.ConfigError(f"low_scale is {self.low_scale:g}; it must be below 1")
        if not self.high_scale > 1:
            raise errors.ConfigError(f"high_scale is {self.high_scale:g}; it must be above 1")
        if not self.first >= 0:
            raise errors.ConfigError(f"first is {self.first:g}; it must not be below 0")

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401, ARG002
        """Scale the supply down if there is waste, up if there is no room, else ask for it."""
        why, way = judge(reading, self.low_utilisation, self.high_allocation)
        if way > 0 and not reading.supply > 0:
            return Decision(self.first, f"{why}: {self._first()}")
        scale = {-1: self.low_scale, 0: 1.0, 1: self.high_scale}[way]
        wanted = reading.supply * scale
        words = f"{why}: {scale:g} times the supply of {volume(reading.supply)}"
        return Decision(wanted, f"{words} is {volume(wanted)}")

    def _first(self) -> str:
        if self.first:
            return f"there is no supply, begin with {volume(self.first)}"
        return "there is no supply, and a multiple of nothing is nothing; set a minimum or `first`"


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


@dataclass(eq=False)
class StepRules:
    """Rules that are still being collected; made by `stepwise`."""

    base: Rule
    rules: list[tuple[float, Rule]] = field(default_factory=list, init=False)

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


stepwise = StepRules


class Switch(Stage, frozen=True):
    """Let the controller decide in whose range the demand is."""

    #: The controller below all thresholds.
    default: Any
    #: Demands and the controllers from there on.
    others: tuple[tuple[float, Any], ...] = ()
    #: Seconds between two decisions.
    interval: float = 1.0

    def __post_init__(self) -> None:
        check_interval(self.interval)
        for one in (self.default, *(one for _, one in self.others)):
            if not isinstance(one, Controller):
                raise errors.ConfigError(f"{type(one).__name__} is no controller")
        found = tuple(sorted(self.others, key=lambda pair: pair[0]))
        msgspec.structs.force_setattr(self, "others", found)

    def decide(self, reading: Reading, elapsed: float, state: Any = None) -> Decision:  # noqa: ANN401
        """Ask the controller of the range; each keeps a state of its own."""
        states: tuple[Any, ...] = state or (None,) * (1 + len(self.others))
        place = bisect_right([start for start, _ in self.others], reading.demand)
        start, chosen = (0.0, self.default) if place == 0 else self.others[place - 1]
        made: Decision = chosen.decide(reading, elapsed, states[place])
        kept = (*states[:place], made.state, *states[place + 1 :])
        name = type(chosen).__name__
        why = f"demand {volume(reading.demand)} is in the range from {volume(start)}: {name}"
        return Decision(made.demand, f"{why}: {made.words}", made.hold, kept)
