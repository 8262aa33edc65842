"""A hub and the words and silences of the factory that feeds one of its sites."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotage.base import errors, text
from pilotage.batch import records
from pilotage.batch.wish import Wish
from pilotage.edge.factory import desk
from pilotage.edge.factory.fed import SILENT_S, Fed
from pilotage.edge.factory.wire import FactoryEnrol, FactoryPilot, FactoryReport, FactorySite
from pilotage.job.model import State
from pilotage.project.tokens import Grant, Scope
from tests.links import Backroom, Caller, Node, backroom

SITE = "grid"
GRANT = Grant(1, Scope.FACTORY, "", site=SITE)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Backroom]:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / f"{SITE}.toml").write_text('batch = "factory"\n')
    async with backroom(tmp_path) as found:
        yield found


def want(hub: Backroom) -> int:
    body = text.dump(Wish())
    with hub.db.transaction():
        records.number(hub.db, SITE)
        return int(hub.db.value("pool_want", site=SITE, pool="burst", wish=body, now=1.0))


def sync(hub: Backroom, root: Path, turn: int, *pilots: FactoryPilot) -> None:
    report = FactoryReport("0123456789ab", turn, (FactorySite(SITE, "", pilots),))
    with hub.db.transaction():
        desk.sync(hub.db, root, GRANT, report, hub.roster.now())


def state(hub: Backroom, number: int) -> tuple[str, str]:
    row = hub.db.rows("pilot_get", id=number)[0]
    return row[4], row[5]


async def come(hub: Backroom, root: Path, number: int) -> Node:
    """Have a pilot come by the secret that the hub gave its factory."""
    with hub.db.transaction():
        asked = FactoryEnrol(SITE, (number,))
        (made,) = desk.enrol(hub.db, root, GRANT, asked, hub.roster.now()).secrets
    return await Node(Caller(hub)).join(made.secret)


async def test_a_pilot_whose_batch_job_died_is_lost_and_its_job_runs_again(
    hub: Backroom, tmp_path: Path
):
    fed = Fed(SITE, hub.writer, hub.roster)
    number = want(hub)
    sync(hub, tmp_path, 1, FactoryPilot(number, "submitted"))
    node = await come(hub, tmp_path, number)
    assert node.number == number
    (job,) = hub.submit()
    assert await node.sync() == [f"{job}.1"]
    await fed._part()
    assert state(hub, number)[0] == "available"
    sync(hub, tmp_path, 2, FactoryPilot(number, "ended", "the node failed"))
    await fed._part()
    assert state(hub, number) == ("lost", "the node failed")
    assert hub.job(job).state is State.QUEUED
    assert hub.db.rows("factory_ends", site=SITE) == []


async def test_a_pilot_that_left_by_itself_stays_as_it_is(hub: Backroom, tmp_path: Path):
    fed = Fed(SITE, hub.writer, hub.roster)
    number = want(hub)
    node = await come(hub, tmp_path, number)
    await node.caller.ask("leave", reason="no work")
    sync(hub, tmp_path, 1, FactoryPilot(number, "ended", "its program ended: exit 0"))
    await fed._part()
    assert state(hub, number) == ("down", "no work")


async def test_whoever_comes_when_nobody_wants_it_any_more_finds_its_door_shut(
    hub: Backroom, tmp_path: Path
):
    fed = Fed(SITE, hub.writer, hub.roster)
    number = want(hub)
    with hub.db.transaction():
        asked = FactoryEnrol(SITE, (number,))
        (made,) = desk.enrol(hub.db, tmp_path, GRANT, asked, hub.roster.now()).secrets
        hub.db.run("pool_call_off", ids=text.dump([number]))
    with hub.db.transaction():
        fed._look(hub.db, hub.roster.now())
    assert state(hub, number) == ("down", "called off before it was submitted")
    caller = Caller(hub)
    told = await caller.ask("hello", **Node(caller).hello(made.secret))
    assert told["error"]["code"] == errors.Denied.code


async def test_silence_while_pilots_are_wanted_raises_an_alarm(hub: Backroom, tmp_path: Path):
    fed = Fed(SITE, hub.writer, hub.roster)
    now = hub.roster.now()
    number = want(hub)

    def alarms(after: float) -> list[str]:
        with hub.db.transaction():
            fed._look(hub.db, now + after)
        return [words for name, _, words in hub.db.rows("alarm_all") if name == f"site {SITE}"]

    assert alarms(SILENT_S - 1) == []
    assert "no factory has asked yet" in alarms(SILENT_S + 1)[0]
    assert hub.db.rows("site_all")[0][2].startswith("no factory has asked yet")
    sync(hub, tmp_path, 1, FactoryPilot(number, "waits"))
    assert alarms(2.0) == []
    (words,) = alarms(SILENT_S + 60)
    assert words == "its factory was not heard of for 2 m; pilots that are wanted there: 1"
    sync(hub, tmp_path, 2, FactoryPilot(number, "submitted"))
    # What is submitted may come without any more of the factory's doing.
    assert alarms(SILENT_S + 120) == []
