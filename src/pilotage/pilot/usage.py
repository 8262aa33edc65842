"""What the payloads of a pilot were measured to use, as far as a pilot can be believed."""

from __future__ import annotations

from pilotage.pilot.messages import Used

#: Seconds after which a measurement counts half for how things are now.
_HALF_LIFE_S = 60.0
#: Core-seconds that must have been measured before they say anything.
_LEAST = 2.0
#: Seconds by which news may be late.
_LATE_S = 60.0


class Gauge:
    """Sums that a pilot tells, and how busy its cores are now."""

    __slots__ = ("_recent", "_told", "_when", "had", "resident", "used")

    def __init__(self, now: float) -> None:
        """Begin when the pilot came."""
        #: Core-seconds that payloads have used and had since it came.
        self.used = 0.0
        self.had = 0.0
        #: Bytes of memory of payloads; nothing if nobody measured.
        self.resident: int | None = None
        self._told = (0.0, 0.0)
        self._when = now
        self._recent = (0.0, 0.0)

    @property
    def busy(self) -> float | None:
        """How busy payloads keep the cores that they have, from 0 to 1; nothing if unknown."""
        used, had = self._recent
        return used / had if had >= _LEAST else None

    def hear(self, told: Used, cpus: int, memory: int, now: float) -> None:
        """Take in what a pilot says; no core can be had for longer than there was time."""
        used, had = told[0] - self._told[0], told[1] - self._told[1]
        self._told = (told[0], told[1])
        elapsed = max(0.0, now - self._when)
        self._when = now
        most = cpus * (elapsed + _LATE_S)
        if had > most:
            # As when we were away: how busy they were is right, for how long is not.
            used, had = used * most / had, most
        had = max(0.0, had)
        used = min(max(0.0, used), had)
        kept = 0.5 ** (elapsed / _HALF_LIFE_S)
        self._recent = (self._recent[0] * kept + used, self._recent[1] * kept + had)
        self.used += used
        self.had += had
        self.resident = min(told[2], memory) if memory else told[2]
