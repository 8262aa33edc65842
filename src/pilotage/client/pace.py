"""Batching of calls: how many make one job."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from pilotage.client.model import CallRange

#: Cores of which is spoken when the hub does not say.
SLOTS = 64
#: Longest and shortest duration that a job should have, in seconds.
LONGEST_S = 0.05
SHORTEST_S = 0.001
#: Seconds after which a worker returns calls that it has not started.
WITHIN_S = 0.25
#: Calls that are sent one by one to learn how long they take; twice as many after this time.
PROBES = 8
PROBE_S = 0.05
#: Bytes of calls, and of what they return, in one job.
_BULK = 1 << 20
#: What a call costs on its way, however quick it is.
_WAY_S = 1e-6
_NEWEST = 0.3


@dataclass(eq=False)
class CallQueue:
    """The calls of one function that wait, and what is known of how long they take."""

    spec: bytes
    #: How many calls make a job, if that is not ours to choose.
    fixed: int = 0
    #: Jobs on their way.
    away: int = field(default=0, init=False)
    #: Since when there is something on its way.
    since: float = field(default=0.0, init=False)
    waiting: deque[CallRange] = field(default_factory=deque, init=False)
    #: Calls of jobs whose worker died: each of them goes alone.
    alone: deque[CallRange] = field(default_factory=deque, init=False)
    count: int = field(default=0, init=False)
    _wall: float | None = field(default=None, init=False)
    _bytes: float = field(default=1.0, init=False)

    def add(self, part: CallRange) -> None:
        """Let calls wait."""
        self.waiting.append(part)
        self.count += len(part.calls)

    def put_back(self, parts: list[CallRange], *, alone: bool = False) -> None:
        """Queue calls again, before all others."""
        for part in reversed(parts):
            (self.alone if alone else self.waiting).appendleft(part)
            self.count += len(part.calls)

    def learn(self, wall: float, count: int, size: int) -> None:
        """Take in how long calls took, and how long what they returned is."""
        each, long = wall / count, size / count
        if self._wall is None:
            self._wall, self._bytes = each, long
        self._wall += _NEWEST * (each - self._wall)
        self._bytes = max(self._bytes + _NEWEST * (long - self._bytes), 1.0)

    def size(self, slots: int, now: float) -> int:
        """Return how many calls the next job holds; 0 if it is better to wait."""
        if self.alone or self.fixed:
            return 1 if self.alone else self.fixed
        if self._wall is None:
            return int(self.away < self._probes(now))
        each = self._wall + _WAY_S
        most = min(LONGEST_S / each, _BULK / self._bytes)
        if most >= 2 and self.away >= 4 * slots + 16:
            return 0
        some = max(SHORTEST_S / each, self.count / (4 * slots))
        return max(1, math.ceil(min(most, some)))

    def _probes(self, now: float) -> float:
        """Return how many calls may be away that nothing is known of; the longer, the more."""
        return PROBES * 2 ** min(16, max(0.0, now - self.since) // PROBE_S) if self.away else PROBES

    def due(self, now: float) -> float | None:
        """Return when more calls go although none has returned."""
        if self.count and self._wall is None and not self.fixed and self.away >= PROBES:
            return now + PROBE_S - (now - self.since) % PROBE_S
        return None

    def take(self, most: int) -> list[CallRange]:
        """Take calls out of those that wait, and drop the abandoned ones."""
        return list(self._take(self.alone or self.waiting, most))

    def _take(self, queue: deque[CallRange], most: int) -> Iterator[CallRange]:
        left, room = most, _BULK
        while queue and left > 0 and room > 0:
            part = queue[0]
            if not part.ticket.wanted:
                self.count -= len(part.calls) - part.gone
                queue.popleft()
                continue
            taken = _fit(part.calls[part.gone : part.gone + left], room, most == left)
            if not taken:
                return
            yield CallRange(part.ticket, part.at + part.gone, taken)
            part.gone += len(taken)
            self.count -= len(taken)
            left -= len(taken)
            room -= sum(map(len, taken))
            if part.gone == len(part.calls):
                queue.popleft()


def _fit(calls: list[bytes], room: int, first: bool) -> list[bytes]:  # noqa: FBT001 - private
    """Take as many calls as there is room for; the first of all in any case."""
    if sum(map(len, calls)) <= room:
        return calls
    for at, call in enumerate(calls):
        room -= len(call)
        if room < 0:
            return calls[: max(int(first), at)]
    return calls
