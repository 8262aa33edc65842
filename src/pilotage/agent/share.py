"""Who gets the next place at a site: pure, and fair between hubs.

Each place goes to the hub that uses the smallest part of its maximum, so that nobody who comes
first takes all. Where a site is full, those that only wait there make room for a hub that has less
of its maximum; what runs is never ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """A pilot that a hub wants, and that was not taken on."""

    hub: str
    number: int
    site: str
    cores: int


class Limit(msgspec.Struct, frozen=True):
    """What a hub may have."""

    #: Cores in all, and pilots that wait.
    cores: int
    pending: int


class Use(msgspec.Struct):
    """What a hub has."""

    cores: int = 0
    #: Pilots that wait in batch queues, and those of them at each site.
    waiting: int = 0
    at: dict[str, int] = {}


class Verdict(msgspec.Struct, frozen=True):
    """What is taken on, and why the rest is not."""

    taken: list[Claim]
    #: By hub, the first reason.
    why: dict[str, str]
    #: Places that hubs are to give back at a site, as (hub, site): how many.
    back: dict[tuple[str, str], int]


def share(
    claims: Mapping[str, Sequence[Claim]], limits: Mapping[str, Limit], uses: Mapping[str, Use],
    room: Mapping[str, int], leaving: Mapping[str, int],
) -> Verdict:  # fmt: skip
    """Say who is taken on; `room` is places free at each site, `leaving` those about to be."""
    left = {hub: list(some) for hub, some in claims.items() if some and hub in limits}
    now = {
        hub: Use(one.cores, one.waiting, dict(one.at)) if (one := uses.get(hub)) else Use()
        for hub in limits
    }
    free = dict(room)
    taken: list[Claim] = []
    why: dict[str, str] = {}
    short: dict[str, list[Claim]] = {}
    while left:
        hub = min(left, key=lambda one: (now[one].cores / limits[one].cores, one))
        claim = left[hub].pop(0)
        if not left[hub]:
            del left[hub]
        if words := _full(limits[hub], now[hub], claim):
            why.setdefault(hub, words)
        elif free.get(claim.site, 0) <= 0:
            why.setdefault(hub, f"{claim.site} has as many pilots as it may")
            short.setdefault(claim.site, []).append(claim)
        else:
            taken.append(claim)
            free[claim.site] -= 1
            _count(now[hub], claim)
    back: dict[tuple[str, str], int] = {}
    for site, some in short.items():
        for hub in _givers(site, some[leaving.get(site, 0) :], limits, now):
            back[hub, site] = back.get((hub, site), 0) + 1
    return Verdict(taken, why, back)


def _full(limit: Limit, use: Use, claim: Claim) -> str:
    if use.cores + claim.cores > limit.cores:
        return f"{use.cores} of {limit.cores} cores for this hub are taken"
    if use.waiting >= limit.pending:
        return f"{use.waiting} of its pilots wait already"
    return ""


def _count(use: Use, claim: Claim) -> None:
    use.cores += claim.cores
    use.waiting += 1
    use.at[claim.site] = use.at.get(claim.site, 0) + 1


def _givers(
    site: str, claims: Sequence[Claim], limits: Mapping[str, Limit], now: Mapping[str, Use]
) -> list[str]:
    """Say who has to give a place back for each claim that deserves one more."""
    found = []
    parts = {hub: use.cores / limits[hub].cores for hub, use in now.items()}
    for claim in claims:
        others = [hub for hub in now if hub != claim.hub and now[hub].at.get(site, 0) > 0]
        if not others:
            break
        most = max(others, key=lambda hub: (parts[hub], hub))
        after = parts[claim.hub] + claim.cores / limits[claim.hub].cores
        if _full(limits[claim.hub], now[claim.hub], claim):
            continue
        # It must still have the greater part afterwards, or the two would take turns for ever.
        if parts[most] - claim.cores / limits[most].cores < after:
            continue
        found.append(most)
        parts[most] -= claim.cores / limits[most].cores
        now[most].at[site] -= 1
        parts[claim.hub] = after
        _count(now[claim.hub], claim)
    return found
