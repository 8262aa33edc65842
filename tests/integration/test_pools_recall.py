"""Pilots that a pool has drain: gone at once if idle, called back if there is work."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pilotage.job.model import Resources
from pilotage.match.turn import TurnRecords
from pilotage.pilot import view
from pilotage.pilot.model import PilotState
from pilotage.pool import files
from pilotage.pool.pilots import PoolPilot, by_pool, ended, last
from pilotage.pool.service import Pools
from pilotage.pool.state import rows
from pilotage.store import Db
from tests.rigs.node.port_links import Caller, HubWithoutPort, Node, backroom, end

POOL = "burst"
#: Drains what is not used at once, and calls back at once.
QUICK = """
site = "cluster"
maximum = 8
interval = "0.02s"

[pilot]
cpus = 4

[control]
patience = "0.01s"
haste = "0.01s"
rest = "10m"
headroom = 0.0
light = 0.7
tolerate = 0.0
"""


class Steered:
    """A hub without its port, and a pool that is steered a turn at a time."""

    def __init__(self, hub: HubWithoutPort, root: Path) -> None:
        self.hub = hub
        self.root = root
        for folder, text in (("sites", 'batch = "local"\n'), ("pools", QUICK)):
            (root / folder).mkdir()
            name = "cluster" if folder == "sites" else POOL
            (root / folder / f"{name}.toml").write_text(text)
        self.pools = Pools(root, hub.queue, hub.roster)

    async def node(self, **facts: object) -> Node:
        token = self.hub.token(pool=POOL, site="cluster")
        return await Node(Caller(self.hub), **facts).join(token)

    def state(self, node: Node) -> str:
        return view.pilot(self.hub.db, node.number).state

    def drained(self, node: Node) -> str:
        return str(self.hub.db.rows("pilot_get", id=node.number)[0][16])

    async def until(self, condition: Callable[[], object]) -> None:
        """Steer until something holds."""
        async with asyncio.timeout(60):
            while not condition():
                await self.pools.tick()
                await asyncio.sleep(0.03)

    async def shed(self, node: Node) -> None:
        """Have the pool drain a pilot."""

        def change(ledger: TurnRecords, db: Db, now: float) -> None:
            pilot = self.hub.roster.pilots[node.number]
            self.hub.roster.shed(ledger, db, pilot, "the pool has too many", now)

        await self.hub.queue.do(change)

    async def recall(self, node: Node) -> bool:
        done: list[bool] = []

        def change(_ledger: TurnRecords, db: Db, _now: float) -> None:
            pilot = self.hub.roster.pilots[node.number]
            done.append(self.hub.roster.recall(db, pilot))

        await self.hub.queue.do(change)
        return done[0]

    async def pilots(self) -> list[PoolPilot]:
        found: list[PoolPilot] = []

        def see(ledger: TurnRecords, db: Db, now: float) -> None:
            pools = {POOL: files.read(self.root, POOL)}
            found[:] = by_pool(ledger, db, pools, self.hub.roster.pilots, {}, now)[POOL]

        await self.hub.queue.do(see)
        return found


@asynccontextmanager
async def steered(folder: Path) -> AsyncIterator[Steered]:
    async with backroom(folder) as hub:
        yield Steered(hub, folder)


@pytest.mark.anyio
async def test_work_that_comes_back_calls_a_drained_pilot_back(tmp_path):
    async with steered(tmp_path) as here:
        one = await here.node(cpus=4)
        here.hub.submit(1)
        (key,) = await one.sync()
        await here.until(lambda: here.state(one) == "draining")
        assert here.drained(one) == "pool"
        (pilot,) = await here.pilots()
        assert pilot.callable
        # It does not know: it goes on with what it has.
        found = await one.caller.ask("sync")
        assert found["drain"] == ""
        assert found["jobs"] == []
        here.hub.submit(3, resources=Resources(cpus=1))
        await here.until(lambda: here.state(one) == "available")
        assert here.drained(one) == ""
        assert len(await one.sync()) == 3
        assert rows(here.hub.db)[POOL].words
        assert key


@pytest.mark.anyio
async def test_a_drained_pilot_leaves_when_its_last_job_is_over(tmp_path):
    async with steered(tmp_path) as here:
        one = await here.node()
        here.hub.submit(1)
        (key,) = await one.sync()
        await here.shed(one)
        found = await one.caller.ask("sync", ended=[end(key)])
        assert found["drain"] == "the pool has too many"
        assert not await here.recall(one), "it knows that it leaves"
        assert here.state(one) == "draining"


@pytest.mark.anyio
async def test_an_idle_pilot_hears_at_once_that_it_is_to_leave(tmp_path):
    async with steered(tmp_path) as here:
        text = QUICK.replace('rest = "10m"', 'rest = "0.1s"\nski = 0.0')
        (here.root / "pools" / f"{POOL}.toml").write_text(text)
        one = await here.node()
        waiting = asyncio.ensure_future(one.caller.ask("sync", wait=30.0))
        begun = asyncio.get_running_loop().time()
        await here.until(waiting.done)
        assert asyncio.get_running_loop().time() - begun < 25
        assert "no job" in (await waiting)["drain"]
        # What it says then is answered at once, too.
        found = await asyncio.wait_for(one.caller.ask("sync", drain=True), 20)
        assert found["drain"]
        await one.caller.ask("leave", reason="done")
        assert here.state(one) == "down"


@pytest.mark.anyio
async def test_a_pilot_that_leaves_by_itself_is_not_called_back(tmp_path):
    async with steered(tmp_path) as here:
        one = await here.node()
        here.hub.submit(1)
        await one.sync()
        await here.shed(one)
        await one.caller.ask("sync", drain=True)
        assert not await here.recall(one)
        assert here.state(one) == "draining"
        assert here.drained(one) == ""


@pytest.mark.anyio
async def test_a_pilot_that_says_it_leaves_while_it_is_called_back_drains_again(tmp_path):
    """Both are under way at once, in either order; it must not end up as one that takes jobs."""
    async with steered(tmp_path) as here:
        for recall_first in (True, False):
            one = await here.node()
            here.hub.submit(1)
            await one.sync()
            await here.shed(one)
            said = one.caller.say("sync", drain=True) if not recall_first else 0
            called = asyncio.ensure_future(here.recall(one))
            if recall_first:
                await asyncio.sleep(0)
                said = one.caller.say("sync", drain=True)
            await called
            await one.caller.hear(said)
            await here.until(lambda: here.state(one) == "draining" and not here.drained(one))  # noqa: B023
            place = here.hub.roster.pilots[one.number].place
            assert place is not None
            assert not place.taking


@pytest.mark.anyio
async def test_who_was_drained_by_a_person_stays_so(tmp_path):
    async with steered(tmp_path) as here:
        one = await here.node()
        here.hub.submit(1)
        await one.sync()
        await here.shed(one)
        with here.hub.db.transaction():
            view.ask(here.hub.db, [one.number], "drain")
        assert not await here.recall(one), "a person wants it gone, though nobody did so yet"
        await here.hub.round()
        assert not await here.recall(one)
        assert "person" in view.pilot(here.hub.db, one.number).reason


@pytest.mark.anyio
async def test_another_hub_knows_who_can_be_called_back(tmp_path):
    async with steered(tmp_path) as here:
        one = await here.node()
        here.hub.submit(1)
        (key,) = await one.sync()
        await here.shed(one)
    for folder in ("sites", "pools"):
        for file in (tmp_path / folder).iterdir():
            file.unlink()
        (tmp_path / folder).rmdir()
    async with steered(tmp_path) as here:
        assert not await here.recall(one), "it is not connected"
        await one.resume(Caller(here.hub), [key])
        assert await here.recall(one)
        assert here.state(one) == "available"


# -- how long they live --------------------------------------------------------------------------


@pytest.mark.anyio
async def test_pools_know_how_long_pilots_take_jobs(tmp_path):
    async with steered(tmp_path) as here:
        await here.node(lifetime=1000.0)
        await here.node()
        short, long = await here.pilots()
        assert 800 < short.lasts < 1000
        assert long.lasts == math.inf


@pytest.mark.anyio
async def test_who_ends_by_its_lifetime_has_not_died(tmp_path):
    async with steered(tmp_path) as here:
        one, two = await here.node(lifetime=0.001), await here.node(lifetime=1000.0)
        await here.pools.tick()
        for node in (one, two):
            pilot = here.hub.roster.pilots[node.number]
            await here.hub.roster.move(pilot, PilotState.LOST, "its batch job is over")
        pools = {POOL: files.read(here.root, POOL)}
        found = ended(here.hub.db, rows(here.hub.db), pools)[POOL]
        assert found.failed == 1


def test_a_long_life_is_left_a_minute_or_two_before_its_end():
    assert last(None, 0.0) == math.inf
    assert last(43_200.0, 100.0) == pytest.approx(43_300.0 - 120.0)
