"""Growing and shrinking at a constant rate."""

from __future__ import annotations

from typing import Any

from pilotage.base import errors
from pilotage.pool.model import ASSUMED, Decision, Reading
from pilotage.pool.pipeline import Stage
from pilotage.pool.words import share, volume


class Linear(Stage, frozen=True):
    """Change the demand by so much a second."""

    #: Utilisation below which there shall be less.
    low_utilisation: float = 0.5
    #: Allocation above which there shall be more.
    high_allocation: float = 0.5
    #: Change of the demand in a second.
    rate: float = 1.0
    #: Seconds between two decisions.
    interval: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
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
    """Say in words how a pool is used, and whether there shall be less, the same or more."""
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
