"""Who has died: pilots that were ended from outside before they had done anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.node.exits import TOLD
from pilotage.pilot.model import PilotState
from pilotage.pool import files
from pilotage.pool.pilots import EndedPilots, ended
from pilotage.pool.state import rows
from tests.integration.test_pools_recall import POOL, Steered, steered
from tests.rigs.node.port_links import Node, end

pytestmark = pytest.mark.anyio


async def leaves(here: Steered, node: Node, state: PilotState, words: str) -> None:
    await here.hub.roster.move(here.hub.roster.pilots[node.number], state, words)


def died(here: Steered) -> EndedPilots:
    pools = {POOL: files.read(here.root, POOL)}
    return ended(here.hub.db, rows(here.hub.db), pools).get(POOL, EndedPilots())


async def works(here: Steered, node: Node) -> None:
    """Have a pilot do a job."""
    here.hub.submit(1)
    (key,) = await node.sync()
    await node.sync(ended=[end(key)])


@pytest.mark.parametrize("state, words", [(PilotState.LOST, "it is gone"), (PilotState.DOWN, TOLD)])
async def test_one_that_was_ended_from_outside_has_died_if_it_had_done_nothing(
    tmp_path: Path, state: PilotState, words: str
):
    async with steered(tmp_path) as here:
        idle, useful = await here.node(), await here.node()
        await here.pools.tick()
        await works(here, useful)
        for node in (idle, useful):
            await leaves(here, node, state, words)
        assert died(here).failed == 1
        assert died(here).words == words


async def test_one_that_left_by_itself_or_was_called_off_has_not_died(tmp_path: Path):
    async with steered(tmp_path) as here:
        one, two = await here.node(), await here.node()
        await here.pools.tick()
        here.hub.db.run("pilot_ask", id=two.number, asked="drain")
        await leaves(here, one, PilotState.DOWN, "it had nothing to do")
        await leaves(here, two, PilotState.DOWN, TOLD)
        assert died(here).failed == 0


async def test_one_that_came_is_no_proof_before_it_has_done_something(tmp_path: Path):
    async with steered(tmp_path) as here:
        one = await here.node()
        assert [pilot.proven for pilot in await here.pilots()] == [False]
        await works(here, one)
        assert [pilot.proven for pilot in await here.pilots()] == [True]


async def test_one_that_was_to_leave_and_is_gone_has_left(tmp_path: Path):
    async with steered(tmp_path) as here:
        empty, busy = await here.node(), await here.node(cpus=2)
        here.hub.submit(1)
        assert await busy.sync()
        await here.pools.tick()
        for node in (empty, busy):
            await here.shed(node)
            await leaves(here, node, PilotState.LOST, "its program ended: exited with code 0")
        assert (here.state(empty), here.state(busy)) == ("down", "lost")
        assert died(here).failed == 1
