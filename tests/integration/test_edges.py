"""A hub that hears of sites by a real broker: what it takes, what it keeps, and who is silent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from pilotage.base.clock import WallClock
from pilotage.bus.model import Scheduler
from pilotage.edge import view
from pilotage.edge.heartbeats import HeartbeatMonitor
from pilotage.edge.port.sites import AgentLines
from pilotage.edge.view import EdgeSite, EdgeSitesView
from pilotage.hub.api import app
from pilotage.hub.api.overview import Overviews
from pilotage.hub.project import Project
from pilotage.store import Writer, connect
from testbed.fault_proxy import FaultProxy
from testbed.rabbit import Rabbit, Rights
from tests.rigs.broker.site_messages import OwnExchange, beat, say

pytestmark = pytest.mark.anyio
PATIENCE = 60.0


class Ahead(WallClock):
    """The time of day, and some more."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Ear:
    """A hub as far as it listens."""

    def __init__(self, root: Path, settings: str) -> None:
        root.mkdir(exist_ok=True)
        (root / "pilotage.toml").write_text(settings)
        self.clock = Ahead()
        self.project = Project(root, self.clock)

    def look(self) -> EdgeSitesView:
        return view.look(self.project.db, self.clock.now())

    def one(self, name: str = "mira") -> EdgeSite | None:
        return next((one for one in self.look().edges if one.name == name), None)

    def state(self, name: str = "mira") -> str:
        found = self.one(name)
        return found.state if found else ""

    def alarms(self) -> dict[str, str]:
        return {name: words for name, _, words in self.project.db.rows("alarm_all")}

    @property
    def listens(self) -> bool:
        return not self.look().broker.trouble

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = anyio.current_time() + PATIENCE
        while not condition():
            assert anyio.current_time() < deadline, (self.look(), self.alarms())
            await anyio.sleep(0.05)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen, until the block is over."""
        writer = Writer(connect(self.project.db.path))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(HeartbeatMonitor(self.project, writer, AgentLines()).run)
                yield
                tasks.cancel_scope.cancel()
        finally:
            writer.close()


@pytest.fixture
def proxy(rabbit: Rabbit) -> Iterator[FaultProxy]:
    with FaultProxy(rabbit.port) as proxy:
        yield proxy


@pytest.fixture
def lane(rabbit: Rabbit, proxy: FaultProxy) -> OwnExchange:
    return OwnExchange(rabbit, proxy.port)


@pytest.fixture
def ear(tmp_path: Path, lane: OwnExchange) -> Iterator[Ear]:
    ear = Ear(tmp_path / "hub", lane.settings())
    yield ear
    ear.project.close()


async def test_a_site_is_heard_becomes_silent_and_comes_back(ear: Ear, lane: OwnExchange):
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.listens)
        # Its clock is wrong by a year, and that does not matter.
        skew = 3.0e7
        counts = {"running": 2, "done": 5}
        await say(bus, beat(time=skew, counts=counts, certificate_days=100.0))
        await ear.until(lambda: ear.state() == "well")
        one = ear.one()
        assert one
        assert (one.speaker, one.version, one.epoch, one.live) == ("site", "1.0", 1, 2)
        assert abs(one.heard - ear.clock.now()) < PATIENCE
        heard = one.heard
        await say(bus, beat(time=skew + 30, draining=True))
        await ear.until(lambda: ear.state() == "draining")
        one = ear.one()
        assert one
        assert one.since >= heard
        last = one.heard
        ear.clock.ahead += 120
        await ear.until(lambda: ear.state() == "silent")
        one = ear.one()
        assert one
        assert one.since == last, "it is silent since it was heard of last"
        assert one.words.startswith("no heartbeat for 2 m")
        await ear.until(ear.alarms)
        assert "site mira is silent" in ear.alarms()["edge site mira"]
        whole = Overviews()
        told = app.measure(ear.project.db, whole, ear.clock.now())
        assert 'pilotage_edge_up{site="mira"} 0' in told
        assert "pilotage_broker_up 1" in told
        await say(bus, beat(time=skew + 180))
        await ear.until(lambda: ear.state() == "well" and not ear.alarms())
        told = app.measure(ear.project.db, whole, ear.clock.now())
        assert 'pilotage_edge_up{site="mira"} 1' in told
        assert 'pilotage_edge_jobs{site="mira"} 0' in told


async def test_what_is_wrong_there_is_said_and_becomes_an_alarm_if_it_lasts(
    ear: Ear, lane: OwnExchange
):
    sick = Scheduler(batch="slurm", well=False, text="slurmctld does not answer")
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.listens)
        await say(bus, beat(scheduler=sick))
        await ear.until(lambda: ear.state() == "trouble")
        one = ear.one()
        assert one
        assert one.words == "slurm: slurmctld does not answer"
        assert ear.alarms() == {}
        ear.clock.ahead += 70
        await ear.until(ear.alarms)
        assert "slurmctld does not answer" in ear.alarms()["edge site mira"]
        await say(bus, beat())
        await ear.until(lambda: ear.state() == "well" and not ear.alarms())


async def test_how_a_site_is_and_since_when_survives_a_restart_of_the_hub(
    ear: Ear, lane: OwnExchange
):
    async with lane.bus() as bus:
        async with ear.open():
            await ear.until(lambda: ear.listens)
            await say(bus, beat("mira"))
            await say(bus, beat("theta"))
            await ear.until(lambda: ear.state("mira") == ear.state("theta") == "well")
            ear.clock.ahead += 100
            await ear.until(lambda: ear.state("mira") == ear.state("theta") == "silent")
            gone = ear.one("theta")
            await say(bus, beat("mira", time=ear.clock.now()))
            await ear.until(lambda: ear.state("mira") == "well")
            before = ear.one("mira")
        # Nobody listens for an hour: nothing can be said of any site, least of all that it is well.
        ear.clock.ahead += 3600
        assert ear.state("mira") == ear.state("theta") == "unknown"
        async with ear.open():
            await ear.until(lambda: ear.listens)
            assert before
            assert gone
            mira, theta = ear.one("mira"), ear.one("theta")
            assert mira
            assert theta
            assert (mira.state, mira.since) == ("well", before.since)
            assert (theta.state, theta.since) == ("silent", gone.since)
            await ear.until(lambda: list(ear.alarms()) == ["edge site theta"])
            ear.clock.ahead += 400
            await ear.until(lambda: ear.state("mira") == "silent")
            mira = ear.one("mira")
            assert mira
            assert mira.since == before.heard


async def test_a_broker_that_is_away_is_told_of_and_no_site_is_called_silent(
    ear: Ear, lane: OwnExchange, proxy: FaultProxy
):
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.listens)
        await say(bus, beat())
        await ear.until(lambda: ear.state() == "well")
        proxy.refuse()
        await ear.until(lambda: not ear.listens)
        away = ear.look().broker
        assert away.since
        assert "pilotage up" not in away.trouble
        ear.clock.ahead += 1000
        await ear.until(ear.alarms)
        assert list(ear.alarms()) == ["edge broker"]
        assert ear.alarms()["edge broker"].startswith("the broker cannot be reached")
        assert ear.state() == "unknown"
        assert ear.look().broker.since == away.since
        proxy.well()
        await ear.until(lambda: ear.listens)
        # There has been no time to hear of it.
        assert ear.state() == "well"
        assert ear.alarms() == {}
        await say(bus, beat(draining=True))
        await ear.until(lambda: ear.state() == "draining")


async def test_a_hub_that_starts_without_a_broker_goes_on_until_there_is_one(
    ear: Ear, lane: OwnExchange, proxy: FaultProxy
):
    proxy.refuse()
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.project.db.row("edges_broker"))
        await ear.until(lambda: "Connect call failed" in ear.look().broker.trouble)
        proxy.well()
        await ear.until(lambda: ear.listens)
        await say(bus, beat())
        await ear.until(lambda: ear.state() == "well")


async def test_what_is_odd_is_left_alone(
    ear: Ear, lane: OwnExchange, caplog: pytest.LogCaptureFixture
):
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.listens)
        await bus.publish("heartbeat.mira", b"{")
        await bus.publish("heartbeat.mira", b'{"v": 1, "kind": "control", "site": "mira"}')
        # Who may speak for one site does not speak for another.
        await say(bus, beat("theta"), "heartbeat.mira")
        await say(bus, beat("mira", epoch=3))
        await say(bus, beat("a.b"))
        await ear.until(lambda: ear.state() == "well" and ear.state("a.b") == "well")
        # An agent that was followed by another one has nothing to say any more.
        await say(bus, beat("mira", epoch=2, draining=True))
        await say(bus, beat("last"))
        await ear.until(lambda: ear.state("last") == "well")
        assert [one.name for one in ear.look().edges] == ["a.b", "last", "mira"]
        assert ear.state() == "well"
    told = [one.message for one in caplog.records if "is ignored" in one.message]
    assert len(told) == 1, "each topic is told of once"


async def test_two_hubs_hear_all_of_it_and_leave_nothing_behind(
    ear: Ear, lane: OwnExchange, rabbit: Rabbit, tmp_path: Path
):
    other = Ear(tmp_path / "other", lane.settings())
    try:
        async with ear.open(), other.open(), lane.bus() as bus:
            await ear.until(lambda: ear.listens)
            await other.until(lambda: other.listens)
            for site in ("a", "b", "c", "d"):
                await say(bus, beat(site))
            await ear.until(lambda: len(ear.look().edges) == 4)
            await other.until(lambda: len(other.look().edges) == 4)
        queues = rabbit.control("list_queues", "name", "arguments").splitlines()
        ours = [one for one in queues if lane.exchange in one]
        assert len(ours) == 2
        assert all("x-expires" in one and "x-dead-letter" not in one for one in ours)
    finally:
        other.project.close()


async def test_the_rights_that_a_hub_needs_are_enough_and_it_says_if_they_are_not_there(
    rabbit: Rabbit, lane: OwnExchange, tmp_path: Path
):
    names = f"^{lane.exchange}"
    ear = Ear(tmp_path / "bob", lane.settings("bob"))
    try:
        # An exchange that is there may be found by who may not make one.
        async with lane.bus() as bus:
            await bus.publish("heartbeat.mira", b"")
        rabbit.permit("bob", Rights(configure=rf"{names}(\.dead)?$"))
        async with ear.open():
            await ear.until(lambda: "ACCESS_REFUSED" in ear.look().broker.trouble)
            rabbit.permit("bob", Rights(names, names, names))
            await ear.until(lambda: ear.listens)
            async with lane.bus() as bus:
                await say(bus, beat())
                await ear.until(lambda: ear.state() == "well")
    finally:
        rabbit.permit("bob", Rights())
        ear.project.close()


async def test_a_site_that_is_forgotten_comes_back_with_its_next_heartbeat(
    ear: Ear, lane: OwnExchange
):
    async with ear.open(), lane.bus() as bus:
        await ear.until(lambda: ear.listens)
        await say(bus, beat())
        await ear.until(lambda: ear.state() == "well")
        ear.clock.ahead += 200
        await ear.until(ear.alarms)
        with ear.project.db.transaction() as db:
            assert db.value("edges_forget", name="mira") == "mira"
        await ear.until(lambda: not ear.alarms())
        assert ear.look().edges == []
        await say(bus, beat())
        await ear.until(lambda: ear.state() == "well")


def test_a_project_without_a_broker_pays_nothing_for_it():
    script = (
        "import sys, pilotage.hub.wiring, pilotage.hub.service, pilotage.hub.api;"
        "import pilotage.cli.site;sys.exit(any(one in sys.modules for one in "
        "('aio_pika', 'aiormq', 'pilotage.edge.heartbeats', 'pilotage.bus.amqp.bus')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
