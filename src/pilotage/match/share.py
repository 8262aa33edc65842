"""Fair share: who has used how much, who comes first, and who may have more.

Usage is kept as the sum of core-seconds times 2^(t/half-life). As time passes all sums lose alike,
so that nothing changes its place unless it is charged, and nothing has to be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from pilotage.base import errors

#: Sums are rescaled when the weight of a second is this many doublings above that of the epoch.
_DOUBLINGS = 256


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user or a group is entitled to."""

    #: How much, beside the others.
    weight: float = 1.0
    #: Cores at once; None is as many as there are.
    quota: int | None = None


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """The stored usage of an owner."""

    owner: str
    #: Core-seconds, decayed until `time`.
    value: float
    time: float
    #: Core-seconds in all, without decay.
    total: float


_PLAIN = Slice()


def group_of(owner: str) -> str:
    """Return the group of an owner; a user without one is a group."""
    return owner.partition("/")[0]


def cost(cpus: int, seconds: float) -> float:
    """Return what an owner is charged for a job: its cores, for as long as it has them."""
    return cpus * seconds


class OwnerUsage(msgspec.Struct, frozen=True):
    """What one owner has used, and what it is entitled to."""

    owner: str
    #: Core-seconds: decayed until now, and in all.
    usage: float
    total: float
    #: Jobs by state.
    running: int
    queued: int
    weight: float
    #: The part of all places that is due to it, from 0 to 1.
    due: float
    #: Cores at once at most; None means any number.
    quota: int | None


def table(
    rows: Iterable[tuple[str, float, float, float]], counts: Iterable[tuple[str, str, int]],
    slices: Mapping[str, Slice], users: Iterable[str], half_life: float, now: float,
) -> list[OwnerUsage]:  # fmt: skip
    """Return the usage of all owners by name, those of `users` that have used nothing too.

    `rows` are those of the store, as `UsageRow`; `counts` are jobs by owner and state.
    """
    used = {
        owner: (value * 2.0 ** (min(0.0, since - now) / half_life), total)
        for owner, value, since, total in rows
    }
    jobs = {(owner, state): count for owner, state, count in counts}
    owners = sorted({*used, *(owner for owner, _ in jobs), *users})
    parts = parts_of({name: one.weight for name, one in slices.items()}, owners)
    found = []
    for owner in owners:
        mine = slices.get(owner, _PLAIN)
        running, queued = (jobs.get((owner, state), 0) for state in ("running", "queued"))
        usage, total = used.get(owner, (0.0, 0.0))
        found.append(
            OwnerUsage(owner, usage, total, running, queued, mine.weight, parts[owner], mine.quota)
        )
    return found


def parts_of(weights: Mapping[str, float], owners: Iterable[str]) -> dict[str, float]:
    """Return the part of all that is due to each owner: of all groups, then within its group."""
    members: dict[str, dict[str, float]] = {}
    for owner in owners:
        members.setdefault(group_of(owner), {})[owner] = weights.get(owner, 1.0)
    whole = sum(weights.get(group, 1.0) for group in members)
    return {
        owner: weights.get(group, 1.0) / whole * weight / sum(inside.values())
        for group, inside in members.items()
        for owner, weight in inside.items()
    }


class Shares:
    """The usage of every owner, as `user` or `group/user`."""

    def __init__(
        self, half_life: float, slices: Mapping[str, Slice] | None = None, epoch: float = 0.0
    ) -> None:
        """Begin with no usage; slices are by group, `user` or `group/user`."""
        if not 0 < half_life < math.inf:
            raise errors.ConfigError(f"a half-life cannot be {half_life}")
        for owner, one in (slices or {}).items():
            if not 0 < one.weight < math.inf:
                hint = "a weight is above 0; to let nothing run, set a quota of 0"
                raise errors.ConfigError(f"the weight of `{owner}` is {one.weight}", hint=hint)
        self.half_life = half_life
        self._slices = dict(slices or {})
        #: Whether anyone has a quota.
        self.bounded = any(one.quota is not None for one in self._slices.values())
        self._epoch = epoch
        self._sums: dict[str, float] = {}
        self._groups: dict[str, float] = {}
        self._totals: dict[str, float] = {}

    def charge(self, owner: str, core_seconds: float, now: float, span: float = 0.0) -> None:
        """Add usage: at once, or evenly over the last `span` seconds.

        What was charged in advance is given back by a negative charge.
        """
        weighed = core_seconds * self._weight(now, span)
        group = group_of(owner)
        # Giving back later than charging may be more than is left.
        before = self._sums.get(owner, 0.0)
        after = max(0.0, before + weighed)
        self._sums[owner] = after
        self._groups[group] = max(0.0, self._groups.get(group, 0.0) + after - before)
        self._totals[owner] = max(0.0, self._totals.get(owner, 0.0) + core_seconds)

    def key(self, owner: str) -> tuple[float, float]:
        """Return what owners are sorted by: the share of the group, then that in the group."""
        group = group_of(owner)
        used = self._sums.get(owner, 0.0) / self.slice(owner).weight
        return self._groups.get(group, 0.0) / self.slice(group).weight, used

    def order(self, owners: Iterable[str]) -> list[str]:
        """Sort owners: who has had the least of their share comes first."""
        return sorted(owners, key=self.key)

    def slice(self, owner: str) -> Slice:
        """Return what an owner or a group is entitled to."""
        return self._slices.get(owner, _PLAIN)

    def usage(self, owner: str, now: float) -> float:
        """Return the core-seconds of an owner or a group, decayed until now."""
        found = self._sums.get(owner, self._groups.get(owner, 0.0))
        return found * 2.0 ** min(0.0, (self._epoch - now) / self.half_life) if found else 0.0

    def cores(self, owner: str, now: float) -> float:
        """Return the same as cores in steady use: HTCondor's real user priority."""
        return self.usage(owner, now) * math.log(2) / self.half_life

    def total(self, owner: str) -> float:
        """Return the core-seconds of an owner in all."""
        return self._totals.get(owner, 0.0)

    def owners(self) -> list[str]:
        """Return all who ever used anything."""
        return list(self._sums)

    def room(self, owner: str, running: Mapping[str, int]) -> int | None:
        """Return how many more cores quotas allow; None is any number.

        `running` has cores in use by owner; the sum of a group is looked for as `group/`, and made
        if it is not there.
        """
        if not self.bounded:
            return None
        group, slash, _ = owner.partition("/")
        own = self.slice(owner).quota
        left = None if own is None else max(0, own - running.get(owner, 0))
        quota = self.slice(group).quota
        if not slash or quota is None:
            return left
        whole = running.get(f"{group}/")
        if whole is None:
            whole = sum(cores for one, cores in running.items() if group_of(one) == group)
        of_group = max(0, quota - whole)
        return of_group if left is None else min(left, of_group)

    def dump(self, now: float, owners: Iterable[str] | None = None) -> list[UsageRow]:
        """Return rows for the store, of all owners or of some."""
        chosen = self._sums if owners is None else owners
        return [UsageRow(owner, self.usage(owner, now), now, self.total(owner)) for owner in chosen]

    def load(self, rows: Iterable[UsageRow]) -> None:
        """Load rows of the store; they may have been written under another half-life."""
        for row in rows:
            weight = self._weight(row.time, 0.0)
            self._sums[row.owner] = row.value * weight
            self._totals[row.owner] = row.total
        self._sum_up()

    def _weight(self, now: float, span: float) -> float:
        """Return the weight of a second at `now`, or the mean over the time before it."""
        doublings = (now - self._epoch) / self.half_life
        if doublings > _DOUBLINGS:
            self._rescale(math.floor(doublings))
            doublings = (now - self._epoch) / self.half_life
        # What is long past weighs nothing; the bound keeps the power from failing.
        last = 2.0 ** max(doublings, -1000.0)
        if span <= 0:
            return float(last)
        length = span / self.half_life * math.log(2)
        return float(last * -math.expm1(-length) / length)

    def _rescale(self, doublings: int) -> None:
        # By a power of two: no sum loses a digit, so that none changes its place.
        self._epoch += doublings * self.half_life
        for sums in (self._sums, self._groups):
            for owner, found in sums.items():
                sums[owner] = math.ldexp(found, -doublings)

    def _sum_up(self) -> None:
        self._groups.clear()
        for owner, found in self._sums.items():
            group = group_of(owner)
            self._groups[group] = self._groups.get(group, 0.0) + found
