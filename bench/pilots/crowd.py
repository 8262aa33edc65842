"""As many pilots as can be, all at work: what the hub needs for each, and for each job."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.command import Command
from bench.swarm.pilot import Node
from bench.swarm.place import Place
from bench.swarm.swarm import Shape, Swarm, run, swarm
from bench.swarm.user import User

_SUBMIT = 1000
_PATIENCE_S = 600.0
_SETTLE_S = 3.0


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """What the hub needed, in bytes of memory, and how fast it was."""

    empty: int
    with_pilots: int
    with_jobs: int
    #: Pilots that joined a second, and jobs that began a second, none of which ended.
    joining: float
    starts: float
    running: int


def crowd(scratch: Path, *, pilots: int, cores: int, together: int) -> Crowd:
    """Let pilots join, so many on a connection, and give each as many jobs as it has cores."""
    place = Place.make(scratch)
    shape = Shape(port=place.port, node=Node(cores, place.enrol), payload=None, together=together)
    with place.hub() as hub, swarm(shape) as one:
        return run(_gather(one, place, hub, pilots, pilots * cores))


async def _gather(one: Swarm, place: Place, hub: Command, pilots: int, jobs: int) -> Crowd:
    empty = hub.memory()
    took = await one.join(pilots)
    await asyncio.sleep(_SETTLE_S)
    with_pilots = hub.memory()
    user = await User.login(place.port, place.user)
    full = asyncio.Event()
    one.began = lambda _: full.set() if len(one.starts) >= jobs else None
    begun = time.time()
    for first in range(0, jobs, _SUBMIT):
        await user.submit(min(_SUBMIT, jobs - first))
    with suppress(TimeoutError):
        await asyncio.wait_for(full.wait(), _PATIENCE_S)
    await asyncio.sleep(_SETTLE_S)
    user.close()
    running = sum(len(pilot.held) for line in one.lines for pilot in line.pilots)
    return Crowd(
        empty=empty,
        with_pilots=with_pilots,
        with_jobs=hub.memory(),
        joining=pilots / took,
        starts=len(one.starts) / (one.starts[-1].time - begun) if one.starts else 0.0,
        running=running,
    )
