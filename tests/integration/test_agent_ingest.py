"""Jobs through a real broker: each once, whatever dies when, and nothing acknowledged too early."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import TaskStatus

from pilotage.agent import records
from pilotage.agent.admission import Ingest
from pilotage.agent.outbox import Outbox
from pilotage.agent.registry import Registry
from pilotage.base import crash
from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.amqp.model import Broker
from pilotage.store import connect
from testbed.rabbit import Rabbit
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store
from tests.rigs.broker.buses import known_to
from tests.suite import programs

PATIENCE = 60
TOPIC = "job.mira"
SETTINGS = agent_parts.settings()


class Desk:
    """A broker with an exchange of its own, and those who speak by it."""

    def __init__(self, rabbit: Rabbit) -> None:
        self._rabbit = rabbit
        self._exchange = f"agent-{secrets.token_hex(4)}"

    def broker(self, name: str, user: str | None = None) -> Broker:
        found = known_to(self._rabbit, name, self._exchange)
        return found if user is None else msgspec.structs.replace(found, user=user)

    def bus(self, name: str, user: str | None = None) -> AmqpBus:
        return AmqpBus(self.broker(name, user))

    async def post(self, *bodies: bytes, name: str = "alice", user: str | None = None) -> None:
        """Send jobs, and return when the broker keeps them."""
        async with self.bus(name, user) as bus:
            for one in bodies:
                await bus.publish(TOPIC, one, heard=True)


@pytest.fixture
async def desk(rabbit: Rabbit) -> Desk:
    made = Desk(rabbit)
    async with made.bus("site") as bus:
        # From the first subscriber on the broker keeps messages.
        for topic in (TOPIC, "control.mira", "refused.mira"):
            async with bus.subscribe(topic):
                pass
    async with made.bus("hub") as bus, bus.subscribe("status.**"):
        pass
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        yield made


async def until(true: Callable[[], Any]) -> None:
    with anyio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.02)


@asynccontextmanager
async def taking(desk: Desk, store: Store, unnamed: str = "") -> AsyncIterator[Ingest]:
    """Have jobs taken meanwhile."""
    async with desk.bus("site") as bus, anyio.create_task_group() as tasks:
        registry = Registry(store.root)
        one = Ingest(bus, store.writer, registry, lambda: SETTINGS, time.time, lambda: None)
        tasks.start_soon(one.run, TOPIC, unnamed)
        yield one
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def heard(desk: Desk, topic: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Hear what is said by a topic meanwhile, and what waited there."""
    found: list[dict[str, Any]] = []

    async def listen(*, task_status: TaskStatus[None]) -> None:
        async with desk.bus("hub") as bus, bus.subscribe(topic) as incoming:
            task_status.started()
            async for message in incoming:
                found.append(json.loads(message.body))
                await bus.ack(message)

    async with anyio.create_task_group() as tasks:
        await tasks.start(listen)
        yield found
        tasks.cancel_scope.cancel()


async def test_who_sent_it_is_the_brokers_word(desk: Desk, store: Store):
    await desk.post(agent_parts.body(key="k"))
    await desk.post(agent_parts.body(key="k", name="bob's"), name="bob")
    async with taking(desk, store):
        await until(lambda: len(store.jobs()) == 2)
    assert sorted(one.owner for one in store.jobs()) == ["alice", "bob"]


async def test_what_has_no_name_is_of_who_the_site_says_or_refused(desk: Desk, store: Store):
    await desk.post(agent_parts.body(key="a"), user="")
    async with taking(desk, store):
        await until(lambda: records.refused(store.db, 9))
    assert records.refused(store.db, 9)[0].code == "no_user"
    await desk.post(agent_parts.body(key="b"), user="")
    async with taking(desk, store, unnamed="legacy"):
        await until(store.jobs)
    assert [one.owner for one in store.jobs()] == ["legacy"]


async def test_while_it_drains_messages_stay_at_the_broker(desk: Desk, store: Store):
    async with taking(desk, store) as one:
        one.taking = False
        await desk.post(*(agent_parts.body(key=f"k{at}") for at in range(5)))
        await anyio.sleep(0.5)
        assert store.jobs() == []
        one.taking = True
        await until(lambda: len(store.jobs()) == 5)
        one.taking = False
        await desk.post(agent_parts.body(key="late"))
        await anyio.sleep(0.5)
        assert len(store.jobs()) == 5
    async with taking(desk, store):
        await until(lambda: len(store.jobs()) == 6)


async def test_what_the_store_did_not_take_is_not_acknowledged(
    desk: Desk, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pilotage.agent.admission._PAUSE_S", 0.05)
    store.writer.close()
    await desk.post(agent_parts.body(key="k"))
    async with taking(desk, store):
        await anyio.sleep(0.5)
    with agent_parts.store(store.root) as anew:
        async with taking(desk, anew):
            await until(anew.jobs)
        store.writer = anew.writer
    assert len(store.jobs()) == 1


async def test_refusals_reach_who_sent_and_who_watches(desk: Desk, store: Store):
    bad = agent_parts.body(key="bad", reply="status.me", nodes=99)
    await desk.post(bad, bad, agent_parts.body(key="good", reply="status.me"))
    async with (
        heard(desk, "status.**") as told,
        heard(desk, "refused.mira") as dead,
        taking(desk, store),
        desk.bus("site") as bus,
        anyio.create_task_group() as tasks,
    ):
        outbox = Outbox(bus, store.writer, store.reader, lambda: SETTINGS, time.time)
        tasks.start_soon(outbox.run)
        await until(lambda: len(told) >= 3 and dead)
        tasks.cancel_scope.cancel()
    assert sorted((one["key"], one["state"]) for one in told) == [
        ("bad", "rejected"), ("bad", "rejected"), ("good", "queued"),
    ]  # fmt: skip
    assert [(one["user"], one["key"]) for one in dead] == [("alice", "bad")]


# -- killed at every point -----------------------------------------------------------------------


@contextmanager
def agent(root: Path, broker: Broker, point: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the half of an agent that speaks with the broker; it dies at a point."""
    argv = [sys.executable, "-m", "tests.rigs.broker.agent_program", str(root)]
    argv.append(msgspec.json.encode(broker).decode())
    env = {**os.environ, "PILOTAGE_CRASH_AT": point}
    process = subprocess.Popen(argv, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def jobs_of(turn: int) -> list[bytes]:
    """Return jobs, some of them twice, and one that is refused."""
    good = [agent_parts.body(key=f"{turn}-{at}", reply="status.me") for at in range(8)]
    return [*good, *good[:3], agent_parts.body(key=f"{turn}-bad", reply="status.me", nodes=99)]


@pytest.mark.crash_points
@pytest.mark.parametrize("point", crash.EDGE)
async def test_killed_and_started_again_each_job_is_there_once_and_told(
    desk: Desk, tmp_path: Path, point: str
):
    await killed(desk, tmp_path, point, 1)


async def test_killed_where_it_was_killed_before(desk: Desk, tmp_path: Path):
    await killed(desk, tmp_path, "edge.committed", 2)


@pytest.mark.soak
@pytest.mark.parametrize("point", crash.EDGE)
async def test_killed_twice_at_each_point(desk: Desk, tmp_path: Path, point: str):
    await killed(desk, tmp_path, point, 2)


async def killed(desk: Desk, tmp_path: Path, point: str, times: int) -> None:
    """Kill an agent at a point, with more messages each time, and see that another does it all."""
    jobs = 8 * times
    with agent_parts.store(tmp_path, sim=agent_parts.app()):
        pass
    ask = agent_parts.control("query", reply="status.answers")
    for turn in range(times):
        await desk.post(*jobs_of(turn))
        async with desk.bus("alice") as alice:
            await alice.publish("control.mira", ask, heard=True)
        with agent(tmp_path, desk.broker("site"), point) as process:
            status = await anyio.to_thread.run_sync(programs.wait, process)
            assert status == -signal.SIGKILL
    async with heard(desk, "status.**") as told:
        with agent(tmp_path, desk.broker("site")):
            db = connect(tmp_path / "store.db", readonly=True)
            await until(lambda: sum(records.counts(db).values()) == jobs)
            await until(lambda: len({one["key"] for one in told if one.get("key")}) == jobs + times)
            await until(lambda: sum(one["kind"] == "answer" for one in told) >= times)
            await until(lambda: records.waiting(db) == 0)
        assert records.counts(db) == {"queued": jobs}
        assert len(records.refused(db, 99)) == times
        db.close()
    by_job: dict[int, set[int]] = {}
    for one in told:
        if one["kind"] == "status" and one["job"]:
            by_job.setdefault(one["job"], set()).add(one["seq"])
    assert len(by_job) == jobs
    assert all(seqs == set(range(1, len(seqs) + 1)) for seqs in by_job.values())


async def test_a_reply_that_the_broker_refuses_silences_nobody_else(
    desk: Desk, store: Store, rabbit: Rabbit
):
    exchange = desk.broker("site").exchange
    rabbit.permit_topics("site", exchange, write="^(status.mira|job)", read=".*")
    await desk.post(agent_parts.body(key="a", reply="status.eve"), agent_parts.body(key="b"))
    async with taking(desk, store):
        await until(lambda: len(store.jobs()) == 2)
    async with heard(desk, "status.**") as found, desk.bus("site") as bus:
        outbox = Outbox(bus, store.writer, store.reader, lambda: SETTINGS, time.time)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run)
            await until(lambda: not store.words())
            await until(lambda: {one["key"] for one in found} == {"a", "b"})
            tasks.cancel_scope.cancel()
