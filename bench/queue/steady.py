"""Job starts in the steady state: every call reports what ended and claims anew, durably."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from bench import machine
from bench.swarm import witness
from bench.swarm.pilot import Node
from bench.swarm.place import Place
from bench.swarm.swarm import Shape, Start, Swarm, run, swarm
from bench.swarm.user import User

_FEED = 500
_GLANCE_S = 0.005


class Flow(msgspec.Struct, frozen=True):
    """How fast jobs began."""

    #: Starts a second.
    rate: float
    #: Processor time of the hub for each, in seconds.
    cpu: float
    #: Starts that pilots saw and that the store did not have after the hub was killed.
    forgotten: int


def flow(
    scratch: Path, *, pilots: int, cores: int, queued: int, seconds: float, fed: bool = False
) -> Flow:
    """Let pilots with so many cores drain a queue; if it is `fed`, it stays as long as it is."""
    place = Place.make(scratch)
    place.fill(queued)
    shape = Shape(port=place.port, node=Node(cores, place.enrol))
    with place.hub() as hub, swarm(shape) as one:
        rate, cpu = run(_watch(one, place, hub.pid, pilots, seconds, fed=fed))
        hub.kill()
    record = witness.read(place.root)
    return Flow(rate, cpu, witness.judge(one.starts, set(), record).unknown)


async def _watch(
    one: Swarm, place: Place, pid: int, pilots: int, seconds: float, *, fed: bool
) -> tuple[float, float]:
    feeder = asyncio.create_task(_feed(one, place)) if fed else None
    await one.join(pilots)
    await asyncio.sleep(seconds / 4)
    begun, used = time.time(), machine.cpu_seconds([pid])
    await asyncio.sleep(seconds)
    used = machine.cpu_seconds([pid]) - used
    if feeder is not None:
        feeder.cancel()
    count, took = window(one.starts, begun, begun + seconds)
    return count / took, used / max(1, count)


def window(starts: list[Start], begin: float, end: float) -> tuple[int, float]:
    """Count starts between two times; an early last one ends the time, as the queue was empty."""
    within = [one.time for one in starts if begin <= one.time <= end]
    last = starts[-1].time if starts else end
    return len(within), max(1e-9, min(end, last) - begin)


async def _feed(one: Swarm, place: Place) -> None:
    """Submit as many jobs as begin."""
    user = await User.login(place.port, place.user)
    fed = 0
    while True:
        if fed < len(one.starts):
            fed += len(await user.submit(_FEED))
        else:
            await asyncio.sleep(_GLANCE_S)
