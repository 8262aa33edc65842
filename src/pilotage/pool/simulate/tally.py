"""What a run is judged by, counted as it goes."""

from __future__ import annotations

from .model import Figures, Scenario

_MINUTES = 60


class Tally:
    """Running counts; core-minutes until they are asked for."""

    def __init__(self, scenario: Scenario) -> None:
        """Begin with nothing."""
        self._from = scenario.warm * _MINUTES
        self._until = scenario.hours * _MINUTES
        #: Cores now: held, used, booting, in drones without a job, draining and used in these.
        self.held = self.used = self.booting = self.idle = self.draining = self.tail = 0
        self.orders = self.cancelled = self.drones = self.unused = 0
        self._held = self._used = self._waited = self._arrived = 0
        self._booting = self._idle = self._drained = 0
        self._jobs = 0
        self._waits: list[int] = []
        self._ran = 0

    def minute(self, now: int, waiting: int) -> None:
        """Add what is held, used and waiting in one minute."""
        if now >= self._from:
            self._held += self.held
            self._used += self.used
            self._waited += waiting
            self._booting += self.booting
            self._idle += self.idle
            self._drained += self.draining - self.tail

    def arrive(self, now: int, cores: int, steps: int) -> None:
        """Count a job that comes."""
        if now >= self._from:
            self._arrived += cores * steps
            self._jobs += 1

    def began(self, came: int, now: int, steps: int) -> None:
        """Count a job that starts."""
        if came >= self._from:
            self._waits.append(now - came)
            self._ran += steps

    def start(self, cores: int) -> None:
        """Count a drone that boots."""
        self.held += cores
        self.booting += cores
        self.drones += 1

    def release(self, cores: int, *, ran: bool) -> None:
        """Count a drone that goes."""
        self.held -= cores
        if not ran:
            self.unused += 1

    def figures(self, left: list[int]) -> Figures:
        """Say how it went; `left` are the steps at which jobs came that wait still."""
        waits = sorted(self._waits + [self._until - came for came in left if came >= self._from])
        started = len(self._waits)
        hours = 1 / _MINUTES
        mean = sum(waits) * hours / len(waits) if waits else 0.0
        begun = sum(self._waits) * hours / started if started else 0.0
        partly = self._held - self._used - self._booting - self._idle - self._drained
        reasons = (self._booting, self._drained, self._idle, partly)
        return Figures(
            utilisation=self._used / self._held if self._held else 0.0,
            held=self._held * hours,
            used=self._used * hours,
            waste=(self._held - self._used) * hours,
            arrived=self._arrived * hours,
            waited=self._waited * hours,
            jobs=self._jobs,
            started=started,
            wait=mean,
            wait_p95=waits[int(0.95 * len(waits))] * hours if waits else 0.0,
            turnaround=begun + self._ran * hours / started if started else 0.0,
            orders=self.orders,
            cancelled=self.cancelled,
            drones=self.drones,
            unused=self.unused,
            reasons={
                name: value * hours
                for name, value in zip(("boot", "drain", "idle", "partly"), reasons, strict=True)
            },
        )
