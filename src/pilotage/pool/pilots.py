"""Pilots of pools: present, expected and ended."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

import msgspec

from pilotage.batch.pilot_request import PilotRequest
from pilotage.match.place import Place
from pilotage.match.turn import TurnRecords
from pilotage.node.policy import StayLimits
from pilotage.pilot.model import PilotState
from pilotage.pilot.table import Pilot
from pilotage.pool.files import Pool
from pilotage.pool.policy import breaker
from pilotage.pool.state import PoolRow
from pilotage.store import Db

#: Where pilots are whose pool is at another site by now; no pool is called so.
STRAY = ""


@functools.lru_cache(maxsize=1024)
def _wish(body: str) -> PilotRequest:
    return msgspec.json.decode(body, type=PilotRequest) if body else PilotRequest()


class PoolPilot(msgspec.Struct):
    """A pilot of a pool that has not ended."""

    number: int
    state: PilotState
    #: Whether it is cancelled.
    off: bool
    cpus: int
    enrolled: float
    wanted: float
    place: Place | None = None
    #: Seconds without a job; None if it has one.
    idle: float | None = None
    #: Seconds for which it still takes jobs.
    lasts: float = math.inf
    #: Whether it drains and can be called back.
    callable: bool = False
    #: Whether it has done a job, or has lived for long.
    proven: bool = False
    #: Core-seconds that its payloads have used and had.
    measured: tuple[float, float] = (0.0, 0.0)
    #: How busy they keep their cores now, and their bytes of memory; None if not measured.
    busy: float | None = None
    resident: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it has not come."""
        return self.state in {PilotState.REQUESTED, PilotState.SUBMITTED}

    @property
    def ready(self) -> bool:
        """Whether it takes jobs."""
        return self.state is PilotState.AVAILABLE and not self.off

    @property
    def free(self) -> int:
        """Cores that no job has; 0 if unknown."""
        return max(0, self.place.free_cpus) if self.place else 0


def to_cancel(pilots: Iterable[PoolPilot]) -> list[PoolPilot]:
    """Return the pilots that wait: those that were not submitted first, then the newest."""
    waiting = [one for one in pilots if one.waits and not one.off]
    return sorted(waiting, key=lambda one: (one.state is PilotState.SUBMITTED, -one.number))


def to_drain(pilots: Iterable[PoolPilot]) -> list[PoolPilot]:
    """Return the pilots that take jobs: the longest idle first, then the emptiest."""
    ready = [one for one in pilots if one.ready]
    ready.sort(key=lambda one: (-1.0 if one.idle is None else one.idle, one.free), reverse=True)
    return ready


def to_recall(pilots: Iterable[PoolPilot]) -> list[PoolPilot]:
    """Return the draining pilots that can be called back, the fullest first."""
    return sorted((one for one in pilots if one.callable), key=lambda one: one.free)


class EndedPilots(msgspec.Struct, frozen=True):
    """What ended of a pool since the last look."""

    #: Seconds that pilots waited which came and went.
    arrived: tuple[float, ...] = ()
    failed: int = 0
    #: When and how the last of these died.
    died: float = 0.0
    words: str = ""


def by_pool(
    ledger: TurnRecords, db: Db, pools: Mapping[str, Pool], pilots: Mapping[int, Pilot],
    idle: dict[int, float], now: float,
) -> dict[str, list[PoolPilot]]:  # fmt: skip
    """Find the pilots of all pools; `idle` keeps since when each has no job.

    Pilots at a site that their pool has left are listed under the empty name.
    """
    found: dict[str, list[PoolPilot]] = {name: [] for name in pools}
    still: dict[int, float] = {}
    for number, pool, site, state, asked, body, drained, enrolled, wanted in db.rows("pool_pilots"):
        stray = pool in pools and site != pools[pool].site
        wish = _wish(body)
        place = ledger.matcher.places.get(number)
        pilot = pilots.get(number)
        one = PoolPilot(
            number, PilotState(state), bool(asked), place.cpus if place else wish.cpus, enrolled,
            wanted, place,
        )  # fmt: skip
        if pilot is not None:
            one.proven = breaker.proven(pilot.done, enrolled, now)
            gauge = pilot.gauge
            one.measured = (gauge.used, gauge.had)
            one.busy, one.resident = gauge.busy, gauge.resident
        if place is not None:
            lifetime = place.until - enrolled if math.isfinite(place.until) else wish.seconds
            one.lasts = last(lifetime, enrolled) - now
            one.callable = bool(drained and place.leases and not asked and pilot and pilot.callable)
        if place is not None and not place.leases and one.state is PilotState.AVAILABLE:
            since = still[number] = min(now, idle.get(number, now))
            one.idle = now - since
        found.setdefault(STRAY if stray else pool, []).append(one)
    idle.clear()
    idle.update(still)
    return found


def last(lifetime: float | None, enrolled: float) -> float:
    """Return until when a pilot with this lifetime takes jobs."""
    until = StayLimits.of(enrolled, lifetime, None).last
    return math.inf if until is None else until


def ended(db: Db, rows: Mapping[str, PoolRow], pools: Mapping[str, Pool]) -> dict[str, EndedPilots]:
    """Find what ended of each pool since it was looked at last."""
    since = {name: rows[name].looked for name in pools if name in rows and rows[name].looked}
    found: dict[str, EndedPilots] = {}
    if not since:
        return found
    for pool, state, reason, came, lifetime, enrolled, wanted, over, *facts in db.rows(
        "pool_ended", since=min(since.values())
    ):
        if over <= since.get(pool, math.inf):
            continue
        one = found.get(pool, EndedPilots())
        if came and wanted and enrolled > since[pool]:
            waited = max(0.0, enrolled - wanted)
            one = msgspec.structs.replace(one, arrived=(*one.arrived, waited))
        soon = breaker.early(over, enrolled, last(lifetime, enrolled))
        if breaker.died(state, reason, *facts, soon=soon):
            one = msgspec.structs.replace(one, failed=one.failed + 1, died=over, words=reason)
        found[pool] = one
    return found
