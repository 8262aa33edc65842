"""The job-to-resource way of ROCED: machines for all jobs that wait or run, ten a cycle."""

from __future__ import annotations

import math

from pilotage.pool.simulate.run import Steer
from pilotage.pool.simulate.world import World

_CYCLE = 10


def steer(world: World) -> Steer:
    """Return what orders and shuts down."""
    fits = tuple(_types(world, kind) for kind in range(len(world.overlay.kinds)))
    return lambda world: _tick(world, fits)


def _types(world: World, kind: int) -> tuple[int, ...]:
    """Return the machine types for a kind of jobs, the best fit and the soonest first."""
    what, found = world.overlay.kinds[kind], []
    for number, pool in enumerate(world.pools):
        machine = pool.machine
        slots = min(machine.cores // what.cores, machine.memory // what.memory)
        if slots:
            provider = world.scenario.providers[world.place[number]]
            part = slots * what.cores / machine.cores
            found.append((-part, machine.memory / machine.cores > 4, provider.delay, number))
    return tuple(one[-1] for one in sorted(found))


def _tick(world: World, fits: tuple[tuple[int, ...], ...]) -> None:
    room = list(world.quota)
    wanted = [0.0] * len(world.pools)
    for kind, what in enumerate(world.overlay.kinds):
        need = float(len(world.overlay.queues[kind]) * what.cores + world.overlay.running[kind])
        for number in fits[kind]:
            some = min(need, room[world.place[number]])
            wanted[number] += some
            room[world.place[number]] -= int(some)
            need -= some
    for number, pool in enumerate(world.pools):
        have = len(pool.ready) + len(pool.booting) + len(pool.queued)
        missing = math.ceil(wanted[number] / pool.machine.cores) - have
        for _ in range(min(_CYCLE, missing)):
            world.order(number)
        if missing < 0:
            for drone in list(pool.queued)[missing:]:
                world.cancel(drone)
            idle = [one for one in pool.ready if not one.jobs]
            for drone in idle[: max(0, -missing)]:
                world.drain(drone)
