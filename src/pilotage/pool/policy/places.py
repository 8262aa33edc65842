"""Rank pools for the next order: cheap, soon, long-lived and well filled first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pilotage.pool.policy import breaker
from pilotage.pool.policy.model import Care, Hint, Sight

#: Seconds between latencies that are no reason to prefer one to another.
_ALIKE = 600
#: How much one more pilot says about the latency of its pool, and an order that is overdue.
_FRESH = 0.15
_OVERDUE = 0.01
#: How many latencies after which an order is not counted on.
_STUCK = 2.0
#: The same of what orders usually take, after which nothing seems to start there at all.
_STALLED = 4.0


def learn(before: Mapping[str, Care], sights: Sequence[Sight], now: float) -> dict[str, Care]:
    """Remember how long orders take in each pool, and where pilots died."""
    return {one.name: _learn(before.get(one.name, Care()), one, now) for one in sights}


def _learn(care: Care, sight: Sight, now: float) -> Care:
    latency, usual = care.latency, care.usual
    for seconds in sight.arrived:
        latency += _FRESH * (seconds - latency)
        usual += _FRESH * (seconds - usual)
    if sight.oldest > 2 * latency:
        latency += _OVERDUE * (sight.oldest - latency)
    care = breaker.judge(care, sight, now)
    if (latency, usual) == (care.latency, care.usual):
        return care
    return replace(care, latency=latency, usual=usual)


def likely(one: Sight, care: Care) -> bool:
    """Return whether orders can be relied on: pilots do not die there, and it is not full."""
    return breaker.trusted(care) and one.oldest <= _STUCK * care.latency + _ALIKE


def stalled(one: Sight, care: Care) -> bool:
    """Return whether nothing starts there any more, for far longer than it ever took."""
    return one.oldest > _STALLED * care.usual + _ALIKE


def ranked(sights: Sequence[Sight], cares: Mapping[str, Care]) -> list[Sight]:
    """Return pools, the best first; of equals the shape that fits most."""
    return sorted(
        sights,
        key=lambda one: (
            stalled(one, cares[one.name]),
            one.price,
            not one.lasting,
            cares[one.name].latency // _ALIKE,
            -one.memory / one.cores,
        ),
    )


def places(best: Sequence[Sight], hint: Hint, useful: float) -> list[Sight]:
    """Return the best shape of each provider: the cheapest by use, of equals with most memory."""
    # A job that fills no pilot well runs in the one that it fills best.
    enough = min(useful, max((gain(one, hint) for one in best), default=0.0))
    found: dict[str, Sight] = {}
    for one in best:
        part = gain(one, hint)
        if part >= enough > 0:
            other = found.get(one.provider)
            if other is None or _worth(one, part) < _worth(other, gain(other, hint)):
                found[one.provider] = one
    return list(found.values())


def _worth(one: Sight, part: float) -> tuple[float, float]:
    return one.price / part, -one.memory / one.cores


def gain(one: Sight, hint: Hint) -> float:
    """Return the part of a pilot that jobs of one kind could use."""
    slots = one.cores // hint.cores
    if hint.memory:
        slots = min(slots, int(one.memory // hint.memory))
    return slots * hint.cores / one.cores
