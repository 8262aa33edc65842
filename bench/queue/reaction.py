"""From submission to start, with pilots that wait for work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.swarm.pilot import Node
from bench.swarm.place import Place
from bench.swarm.swarm import Shape, Swarm, run, swarm
from bench.swarm.user import User

_BETWEEN_S = 0.01
_PATIENCE_S = 10.0


def reaction(scratch: Path, *, pilots: int, times: int) -> list[float]:
    """Return the seconds from just before a job is sent until a pilot has it to start."""
    place = Place.make(scratch)
    shape = Shape(port=place.port, node=Node(1, place.enrol))
    with place.hub(), swarm(shape) as one:
        return run(_react(one, place, pilots, times))


async def _react(one: Swarm, place: Place, pilots: int, times: int) -> list[float]:
    began = asyncio.Event()
    one.began = lambda _: began.set()
    await one.join(pilots)
    user = await User.login(place.port, place.user)
    found = []
    for _ in range(times):
        await asyncio.sleep(_BETWEEN_S)
        began.clear()
        begun = time.perf_counter()
        sending = asyncio.ensure_future(user.submit(1))
        await asyncio.wait_for(began.wait(), _PATIENCE_S)
        found.append(time.perf_counter() - begun)
        await sending
    user.close()
    return found
