"""Decide when to take more work, when to stop and when to leave (pure)."""

from __future__ import annotations

from dataclasses import dataclass

#: Jobs to ask for before there is room for them, at most.
_MOST_AHEAD = 32
#: Seconds of work to request ahead; longer jobs are never requested ahead.
_AHEAD_S = 0.1
#: Weight of the newest job in the mean of how long jobs take.
_NEWEST = 0.2
#: The part of a lease after which payloads are stopped, since the hub may soon give them away.
_FENCE = 0.8
_LONGEST_GRACE_S = 60.0
_SHORTEST_GRACE_S = 10.0
_LONGEST_WAIT_S = 20.0
_IDLE_S = 1200.0
#: How long to go on trying to deliver ends where the lifetime of the node is unknown.
_DELIVERY_S = 86400.0


def ahead(cpus: int, wall: float) -> int:
    """Return how many jobs to request ahead, for jobs of this length."""
    if wall >= _AHEAD_S:
        return 0
    return min(_MOST_AHEAD, int(cpus * _AHEAD_S / max(wall, 0.001)))


def mean(before: float, wall: float) -> float:
    """Add one more job to the mean of how long jobs take."""
    return before + _NEWEST * (wall - before)


def fenced(now: float, answered: float, lease: float) -> bool:
    """Return whether the hub has been silent for so long that payloads must stop."""
    return now - answered > _FENCE * lease


def wait(heartbeat: float) -> float:
    """Return for how long the hub may keep a question that has no answer yet."""
    return min(_LONGEST_WAIT_S, heartbeat)


def patience(heartbeat: float) -> float:
    """Return how long an answer may take beyond that."""
    return min(30.0, max(2.0, heartbeat))


@dataclass(frozen=True)
class StayLimits:
    """Lifetime of the pilot, and how long it stays without work."""

    #: When the node is taken away, on the pilot's clock; nothing if unknown.
    end: float | None
    #: How long payloads have to end by themselves before that.
    grace: float
    #: Seconds without work after which it leaves; nothing means the usual.
    idle: float | None = None

    @classmethod
    def of(cls, now: float, lifetime: float | None, idle: float | None) -> StayLimits:
        """Plan a life that begins now."""
        if lifetime is None:
            return cls(None, _LONGEST_GRACE_S, idle)
        grace = max(lifetime / 10, min(_SHORTEST_GRACE_S, lifetime / 3))
        return cls(now + lifetime, min(_LONGEST_GRACE_S, grace), idle)

    @property
    def last(self) -> float | None:
        """Return until when it takes work, on the pilot's clock; nothing if for ever."""
        return None if self.end is None else self.end - 2 * self.grace

    def drain(self, now: float, since: float, *, busy: bool) -> str:
        """Return why to take no more work; empty if there is no reason."""
        if self.last is not None and now > self.last:
            return "its lifetime ends"
        idle = _IDLE_S if self.idle is None else self.idle
        if not busy and now - since > idle:
            return f"no work for {idle:g} s"
        return ""

    def stop(self, now: float) -> bool:
        """Return whether payloads must end now."""
        return self.end is not None and now > self.end - self.grace

    def last_moment(self) -> float | None:
        """Return when to be gone in any case."""
        return None if self.end is None else self.end - 0.1 * self.grace

    def hopeless(self, now: float, answered: float) -> bool:
        """Return whether it is time to give up on delivering ends."""
        return now - answered > _DELIVERY_S if self.end is None else now > self.end
