"""Circuit breaker: stop ordering while pilots die, then try one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pilotage.node.exits import TOLD
from pilotage.pilot.model import PilotState
from pilotage.pool.policy.model import Act, Care, PoolOrder, Sight

#: Deaths in a row from which nothing is ordered.
_DEATHS = 3
#: Seconds without orders after these, doubled by each further death, and at most.
_PAUSE = 900.0
_LONGEST = 7200.0
#: A pilot that ends sooner than this after it came, and has done nothing, has died, in seconds.
_SOON_S = 300.0


def proven(done: int, enrolled: float, now: float) -> bool:
    """Return whether a pilot that came has done a job, or has lived for long."""
    return done > 0 or now >= enrolled + _SOON_S


def early(over: float, enrolled: float, until: float) -> bool:
    """Return whether a pilot that would take jobs until a time ended soon after it came."""
    # A pilot lost at the end of its lifetime counts as ended.
    return over < min(enrolled + _SOON_S, until)


def died(state: str, reason: str, done: int, unwanted: int, *, soon: bool) -> bool:
    """Return whether the end of a pilot counts as a death."""
    return state == PilotState.FAILED or (soon and _taken(state, reason, done, unwanted))


def _taken(state: str, reason: str, done: int, unwanted: int) -> bool:
    """Return whether a pilot that came was ended from outside before it had done anything."""
    told = state == PilotState.DOWN and reason == TOLD and not unwanted
    return (state == PilotState.LOST or told) and not done


def judge(care: Care, sight: Sight, now: float) -> Care:
    """Remember deaths; a pilot that takes jobs after the pause closes the case."""
    if sight.failed:
        deaths = care.deaths + sight.failed
        if deaths < _DEATHS:
            return replace(care, deaths=deaths)
        doubled = _PAUSE * 2.0 ** min(8, (deaths - _DEATHS) // 2)
        return replace(care, deaths=deaths, until=now + min(_LONGEST, doubled))
    if sight.joined and care.deaths:
        return replace(care, deaths=0, until=0.0)
    if care.until > now + _LONGEST:
        # The clock was set back.
        return replace(care, until=now + _LONGEST)
    return care


def trusted(care: Care) -> bool:
    """Return whether what is on order is likely to come."""
    return care.deaths < _DEATHS


def allowed(care: Care, sight: Sight, now: float) -> int:
    """Return how many pilots may be on order: none in a pause, then one, else any number."""
    if care.deaths < _DEATHS:
        return 1 << 30
    return 0 if now < care.until else max(0, 1 - sight.pending)


def cancel(sights: Sequence[Sight], cares: Mapping[str, Care], now: float) -> list[PoolOrder]:
    """Take back what is on order where pilots die."""
    found = []
    for one in sights:
        care = cares[one.name]
        if care.deaths >= _DEATHS and now < care.until and one.queued:
            words = f"the last {care.deaths} pilots of {one.name} died as they started"
            found.append(PoolOrder(one.name, Act.CANCEL, one.queued, words))
    return found
