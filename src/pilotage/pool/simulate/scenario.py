"""Scenarios: six built-in ones, those of a project's pools, and recorded jobs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pilotage.pool.files import Pool
from pilotage.pool.simulate.model import JobKind, Load, Machine, Outage, Provider, Scenario
from pilotage.pool.simulate.trace import Past, Trace, recorded

_KINDS = (
    JobKind("1c/1GB", 1, 1, 0.4, 1.0),
    JobKind("1c/2GB", 1, 2, 0.8, 1.0),
    JobKind("8c/16GB", 8, 16, 1.5, 0.8),
    JobKind("1c/6GB", 1, 6, 1.2, 0.9),
    JobKind("8c/40GB", 8, 40, 3.0, 0.7),
)
_PROVIDERS = (
    Provider("hpc-a", 800, 0.35, 0.75, 0.8),
    Provider("hpc-b", 600, 0.35, 2.0, 0.9),
    Provider("cloud-c", 240, 0.0, 0.1, 0.4),
)
_MACHINES = (
    Machine("a-thin", "hpc-a", 16, 32, 24.0, 5),
    Machine("a-fat", "hpc-a", 16, 96, 24.0, 5),
    Machine("b", "hpc-b", 8, 24, 24.0, 5),
    Machine("c-thin", "cloud-c", 8, 16, 0.0, 4),
    Machine("c-fat", "cloud-c", 8, 56, 0.0, 4),
)
_SHIFTING = Scenario(name="shifting", providers=_PROVIDERS, machines=_MACHINES, kinds=_KINDS)


def _slow(one: Provider) -> Provider:
    return replace(one, delay=3 * one.delay)


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _SHIFTING,
        replace(
            _SHIFTING,
            name="bursty",
            load=Load(phase=6.0, idle=45.0, low=200.0, high=1000.0, batch=36.0),
        ),
        replace(_SHIFTING, name="slowq", providers=tuple(_slow(one) for one in _PROVIDERS)),
        replace(_SHIFTING, name="blackhole", failures=(Outage("hpc-a", 48.0, 72.0),)),
        replace(
            _SHIFTING,
            name="steady",
            load=Load(phase=240.0, idle=0.0, low=820.0, high=821.0, even=40.0),
        ),
        replace(
            _SHIFTING,
            name="overload",
            load=Load(phase=18.0, idle=0.0, low=1200.0, high=2100.0),
        ),
    )
}


_GB = 1e9
_HOUR_S = 3600.0
#: Gigabytes of a pilot for each core, if not configured.
_EACH = 2.0
#: Default queue delay of an order in hours, and the width of its logarithm.
_DELAY, _SIGMA = 0.25, 0.8
#: Hours after the last job came, for it to run and for pools to shrink.
_AFTER = 4
#: Least number of observed delays to estimate from.
_ENOUGH = 3


def of_pools(
    pools: Mapping[str, Pool],
    waits: Mapping[str, Sequence[float]],
    kinds: tuple[JobKind, ...],
    *,
    delay: float | None = None,
    hours: int = 120,
) -> Scenario:
    """Make a world of pools; `waits` are seconds that pilots of each site waited, `delay` is given.

    Each pool is a provider of its own, so that its maximum holds for it alone.
    """
    return Scenario(
        name="own", kinds=kinds, hours=hours, warm=0,
        providers=tuple(
            Provider(name, one.maximum, 0.0, *queue(waits.get(one.site, ()), delay))
            for name, one in pools.items()
        ),
        machines=tuple(_machine(name, one) for name, one in pools.items()),
    )  # fmt: skip


def queue(waits: Sequence[float], delay: float | None = None) -> tuple[float, float]:
    """Return how many hours an order waits in the middle, and the width of their logarithms."""
    if delay is not None:
        return delay / _HOUR_S, 0.0 if not delay else _SIGMA / 2
    logs = [math.log(max(1.0, one) / _HOUR_S) for one in waits]
    if len(logs) < _ENOUGH:
        return _DELAY, _SIGMA
    return math.exp(statistics.median(logs)), min(2.0, statistics.pstdev(logs))


def _machine(name: str, one: Pool) -> Machine:
    asked = one.pilot
    memory = asked.bytes / _GB if asked.bytes else _EACH * asked.cpus
    lifetime = (asked.seconds or 0.0) / _HOUR_S
    # How long pilots waited was measured until they came, so their boot is in it.
    return Machine(name, name, asked.cpus, max(1, math.ceil(memory)), lifetime, boot=1)


def replay(jobs: Sequence[Past], where: Scenario) -> tuple[Scenario, Trace, int]:
    """Put recorded jobs into a world; return it, them, and how many fit no machine of it."""
    fitting = [one for one in jobs if _fits(one, where.machines)]
    trace = recorded(fitting)
    after = ((),) * (_AFTER * 60)
    trace = Trace(trace.kinds, trace.steps + after)
    world = replace(where, kinds=trace.kinds, hours=trace.hours, warm=0)
    return world, trace, len(jobs) - len(fitting)


def _fits(one: Past, machines: Sequence[Machine]) -> bool:
    memory = math.ceil(one.memory)
    return any(one.cores <= each.cores and memory <= each.memory for each in machines)
