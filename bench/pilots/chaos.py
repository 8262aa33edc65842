"""Pilots and the hub are killed again and again, and yet each job begins and ends once."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import msgspec

from bench.command import Command
from bench.swarm import witness
from bench.swarm.pilot import Node, Phase
from bench.swarm.place import Place
from bench.swarm.swarm import Line, Shape, Swarm, run, swarm

#: Seconds that payloads take.
_PAYLOAD_S = (0.2, 2.0)
_GLANCE_S = 0.2


class Chaos(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    verdict: witness.Verdict
    seconds: float
    starts: int
    pilots_killed: int
    hubs_killed: int
    #: Pilots that the hub refused although they were alive.
    refused: int


class Kills(msgspec.Struct, frozen=True, kw_only=True):
    """How much is killed, and among how many."""

    pilots: int = 1000
    hubs: int = 20
    #: How many pilots there are at any time, each with so many cores.
    alive: int = 50
    cores: int = 4
    jobs: int = 20_000
    #: Seconds without a word after which the hub gives a pilot up.
    lease: int = 10
    #: Seconds in which all of it happens, and after which we give up.
    within: float = 120.0
    patience: float = 300.0


def chaos(scratch: Path, kills: Kills) -> Chaos:
    """Kill, wait until all jobs have ended, and judge."""
    place = Place.make(scratch, lease=kills.lease)
    place.fill(kills.jobs)
    node = Node(kills.cores, place.enrol, wait=kills.lease / 10)
    shape = Shape(port=place.port, node=node, payload=_PAYLOAD_S)
    begun = time.monotonic()
    with place.hub() as hub, swarm(shape) as one:
        storm = _Storm(one, hub, kills)
        run(storm.blow(place.root))
    return Chaos(
        verdict=witness.judge(one.starts, storm.lost, witness.read(place.root)),
        seconds=time.monotonic() - begun,
        starts=len(one.starts),
        pilots_killed=storm.pilots,
        hubs_killed=storm.hubs,
        refused=storm.refused,
    )


class _Storm:
    """Kills, and has the dead replaced."""

    def __init__(self, one: Swarm, hub: Command, kills: Kills) -> None:
        self.lost: set[int] = set()
        self.pilots = self.hubs = self.refused = 0
        self._swarm, self._hub, self._kills = one, hub, kills
        self._dice = random.Random(1)
        self._gate = asyncio.Semaphore(kills.alive)

    async def blow(self, root: Path) -> None:
        kills = self._kills
        for _ in range(kills.alive):
            self._swarm.add(self._gate)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kill_pilots())
            tasks.create_task(self._kill_hubs())
        until = time.monotonic() + kills.patience
        while time.monotonic() < until and not await asyncio.to_thread(_over, root):
            self._replace()
            await asyncio.sleep(_GLANCE_S)

    async def _kill_pilots(self) -> None:
        pause = self._kills.within / self._kills.pilots
        while self.pilots < self._kills.pilots:
            await asyncio.sleep(pause * self._dice.uniform(0.5, 1.5))
            # Those that have work, so that there is something to lose.
            busy = [line for line in self._swarm.lines if any(one.held for one in line.pilots)]
            self._kill(self._dice.choice(busy or self._swarm.lines))
            self._replace()

    def _kill(self, line: Line) -> None:
        self.lost |= {one.id for one in line.pilots}
        self.pilots += len(line.pilots)
        self._swarm.kill(line)

    def _replace(self) -> None:
        """Have as many pilots as there should be; one that the hub refused is of no use."""
        for line in list(self._swarm.lines):
            if all(one.phase is Phase.GONE for one in line.pilots):
                self.refused += 1
                self._swarm.kill(line)
        for _ in range(self._kills.alive - len(self._swarm.lines)):
            self._swarm.add(self._gate)

    async def _kill_hubs(self) -> None:
        pause = self._kills.within / (self._kills.hubs + 1)
        for _ in range(self._kills.hubs):
            await asyncio.sleep(pause * self._dice.uniform(0.5, 1.5))
            self._hub.kill()
            self.hubs += 1
            # The pilots go on meanwhile.
            await asyncio.to_thread(self._hub.again)


def _over(root: Path) -> bool:
    return all(state == "done" for state in witness.read(root).jobs.values())
