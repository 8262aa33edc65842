"""Steers a simulated world by a policy: the same code as in production."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from pilotage.pool.model import Reading
from pilotage.pool.pipeline import Pipeline
from pilotage.pool.policy.model import Act, Hint, Memory, PolicyDecision, PoolOrder, Sight
from pilotage.pool.simulate.pilots import Pool, SimulatedPilot
from pilotage.pool.simulate.run import Steer
from pilotage.pool.simulate.world import World

#: Minutes before their end at which pilots count as ending.
_AHEAD = 480
#: A policy: what is seen of pools, hints and a memory give a verdict.
PoolPolicy = Callable[[float, Sequence[Sight], Sequence[Hint], Memory], PolicyDecision]
#: Receives each decision.
Listener = Callable[[float, PoolOrder], None]


def wheel(
    policy: PoolPolicy, *, hints: str = "none", every: int = 1, listen: Listener | None = None
) -> Callable[[World], Steer]:
    """Let a policy steer, with no, `exact` or `noisy` hints of the queue."""

    def begin(world: World) -> Steer:
        memory = Memory()
        noise = Noise(world) if hints == "noisy" else None
        names = {pool.machine.name: pool for pool in world.pools}

        def tick(world: World) -> None:
            nonlocal memory
            if world.now % every:
                return
            now = world.now * 60.0
            told: Sequence[Hint] = () if hints == "none" else see_queue(world, noise)
            verdict = policy(now, [sight(world, n) for n in range(len(world.pools))], told, memory)
            memory = verdict.memory
            for order in verdict.orders:
                apply(world, names[order.pool], order)
                if listen is not None:
                    listen(now, order)

        return tick

    return begin


def sight(world: World, number: int) -> Sight:
    """See a pool as a policy does."""
    pool = world.pools[number]
    machine, now = pool.machine, world.now
    arrived, failed, joined = tuple(60.0 * one for one in pool.arrived), pool.failed, pool.joined
    pool.arrived, pool.failed, pool.joined = [], 0, 0
    resting = [one for one in pool.ready if not one.jobs] if pool.free[-1] else []
    return Sight(
        name=machine.name,
        provider=machine.provider,
        cores=machine.cores,
        memory=machine.memory,
        queued=len(pool.queued),
        booting=len(pool.booting),
        ready=len(pool.ready),
        draining=len(pool.draining),
        free=tuple(pool.free),
        blocked=pool.blocked,
        idle=_rests(now, (one for one in resting if one.ran)),
        fresh=_rests(now, (one for one in resting if not one.ran)),
        callable=tuple(sorted(one.free for one in pool.draining if not one.expired)),
        arrived=arrived,
        failed=failed,
        joined=joined,
        leaving=tuple(_leaving(pool, now)),
        oldest=60.0 * (now - next(iter(pool.queued)).at) if pool.queued else 0.0,
        quota=world.quota[world.place[number]],
        price=machine.price,
        lasting=not machine.lifetime,
    )


def _rests(now: int, pilots: Iterable[SimulatedPilot]) -> tuple[float, ...]:
    return tuple(sorted((60.0 * (now - one.idle) for one in pilots), reverse=True))


def _leaving(pool: Pool, now: int) -> Iterator[float]:
    """Return when the next ones end; those that are ready are in the order of their age."""
    life = pool.machine.lifetime * 60
    if life:
        for pilot in pool.ready:
            left = life - (now - pilot.at)
            if left > _AHEAD:
                return
            yield 60.0 * left


def see_queue(world: World, noise: Noise | None) -> list[Hint]:
    """Return the waiting jobs, exact or with noise."""
    overlay = world.overlay
    found = []
    for number, kind in enumerate(overlay.kinds):
        waiting = float(len(overlay.queues[number]) * kind.cores)
        if noise is not None:
            waiting = noise.blur(number, waiting, world.now)
        fits = overlay.fits(number)
        found.append(Hint(kind.name, kind.cores, kind.memory, waiting, fits))
    return found


class Noise:
    """Noise of hints: a random factor, and up to 80 phantom cores for each kind."""

    def __init__(self, world: World) -> None:
        """Draw what is wrong in each half hour, and what is phantom in each six hours."""
        dice = random.Random(f"noise {world.seed}")  # noqa: S311 - dice
        kinds, hours = len(world.overlay.kinds), world.scenario.hours
        self._factors = [
            [math.exp(dice.gauss(0, 0.3)) for _ in range(kinds)] for _ in range(2 * hours)
        ]
        self._phantoms = [
            [dice.uniform(0, 80) for _ in range(kinds)] for _ in range(hours // 6 + 1)
        ]

    def blur(self, kind: int, waiting: float, now: int) -> float:
        """Say something that is near what waits."""
        return waiting * self._factors[now // 30][kind] + self._phantoms[now // 360][kind]


def apply(world: World, pool: Pool, order: PoolOrder) -> None:
    """Do to a pool what was decided."""
    if order.act is Act.ORDER:
        number = world.pools.index(pool)
        for _ in range(order.count):
            world.order(number)
        return
    do = {Act.CANCEL: world.cancel, Act.RECALL: world.undrain}.get(order.act, world.drain)
    for pilot in _chosen(pool, order.act)[: order.count]:
        do(pilot)


def _chosen(pool: Pool, act: Act) -> list[SimulatedPilot]:
    """Return the pilots that an order means, in the order in which they are taken."""
    match act:
        case Act.CANCEL:
            return list(pool.queued)[::-1]
        case Act.DRAIN:
            return sorted(pool.ready, key=_fullness)
        case Act.RECALL:
            able = (one for one in pool.draining if not one.expired)
            return sorted(able, key=_fullness, reverse=True)
        case Act.RELEASE:
            idle = (one for one in pool.ready if not one.jobs)
            return sorted(idle, key=lambda one: (not one.ran, one.idle))
        case Act.ORDER:
            return []


def _fullness(pilot: SimulatedPilot) -> tuple[int, int]:
    return pilot.cores - pilot.free, pilot.at


_STEP_S = 60.0


class Lot:
    """The pilots of one machine, as controllers see them."""

    def __init__(self, world: World, number: int, pending: float = math.inf) -> None:
        """Start without demand; at most `pending` orders wait at once."""
        self._world = world
        self._pool = world.pools[number]
        self._pending = pending
        self.name = self._pool.machine.name
        self.demand = 0.0

    @property
    def supply(self) -> float:
        """Cores of pilots that take jobs."""
        return float(len(self._pool.ready) * self._pool.machine.cores)

    @property
    def utilisation(self) -> float | None:
        """The part in use of the least used feature, in the mean."""
        return self.read().utilisation

    @property
    def allocation(self) -> float | None:
        """The part in use of the most used feature, in the mean."""
        return self.read().allocation

    def read(self) -> Reading:
        """See it."""
        pool, cores = self._pool, self._pool.machine.cores
        used = taken = 0.0
        for pilot in pool.ready:
            low, high = sorted(pilot.ratios)
            used += low
            taken += high
        count = len(pool.ready)
        return Reading(
            self.supply, self.demand, used / count if count else None,
            taken / count if count else None, float(len(pool.queued) * cores),
            float(len(pool.booting) * cores), float(len(pool.draining) * cores),
        )  # fmt: skip

    def settle(self) -> None:
        """Order, cancel and drain until the demand is met, as the hub does."""
        pool, cores = self._pool, self._pool.machine.cores
        have = len(pool.queued) + len(pool.booting) + len(pool.ready)
        # What cannot be had is not asked for: the way back would begin up there.
        self.demand = min(self.demand, (have + self._pending) * cores)
        change = math.ceil(self.demand / cores - 1e-9) - have
        if change > 0:
            room = max(0.0, self._pending - len(pool.queued))
            self._do(Act.ORDER, int(min(change, room)))
        elif change < 0:
            off = min(len(pool.queued), -change)
            self._do(Act.CANCEL, off)
            self._do(Act.DRAIN, -change - off)

    def _do(self, act: Act, count: int) -> None:
        if count:
            apply(self._world, self._pool, PoolOrder(self.name, act, count, ""))


def piped(
    build: Callable[[World, Callable[[int], Lot]], Sequence[Pipeline]], pending: float = math.inf
) -> Callable[[World], Steer]:
    """Let pipelines steer; `build` makes them of the pools of a world, by their numbers."""

    def begin(world: World) -> Steer:
        lots = [Lot(world, number, pending) for number in range(len(world.pools))]
        pipelines = build(world, lots.__getitem__)
        last = [-math.inf] * len(pipelines)

        def tick(world: World) -> None:
            now = world.now * _STEP_S
            for number, pipeline in enumerate(pipelines):
                # The world moves by minutes: shorter intervals are one minute.
                gone = now - last[number]
                if gone >= pipeline.interval:
                    pipeline.tick(max(_STEP_S, pipeline.interval) if math.isinf(gone) else gone)
                    last[number] = now
            for lot in lots:
                lot.settle()

        return tick

    return begin
