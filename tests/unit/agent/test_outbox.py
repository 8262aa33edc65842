"""What is said of a job: true reasons, in the words of who asked, in order, and never lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from pilotage.agent import connection, outbox, records
from pilotage.agent.admission import store_messages
from pilotage.agent.connection import Heartbeats
from pilotage.agent.model import JudgedMessage, OutboxEntry, ReplyTo, StatusFacts
from pilotage.agent.outbox import Outbox, StreamEnd
from pilotage.agent.settings import SiteBroker
from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.model import Heartbeat, Job, Status
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.outcome import Cause
from pilotage.testing.bus import MemoryBus
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store
from tests.unit.agent.test_admission import judged

SETTINGS = agent_parts.settings()


def word(
    state: str, step: str = "run", reason: str = "", attempt: int = 1, **more: Any
) -> OutboxEntry:
    made = OutboxEntry(1, 7, 3, attempt, state, step, "", "", reason, 9.0, "", "")
    return msgspec.structs.replace(made, **more)


def tale(attempt: str = "", **more: Any) -> StatusFacts:
    return StatusFacts(ReplyTo(), 1.0, attempt, **more)


@pytest.mark.parametrize(
    "said, known, blame",
    [
        (word("failed", reason="exit code 3"), tale("failed", exit=3, cause=Cause.EXIT),
         ("application", "exit")),
        (word("failed", reason="signal 11"), tale("failed", signal=11, cause=Cause.SIGNAL),
         ("application", "signal")),
        (word("failed", reason="3 s are over"), tale("failed", signal=15, cause=Cause.TIMEOUT),
         ("application", "timeout")),
        (word("failed", reason="2 GiB of 1 GiB"), tale("failed", signal=9, cause=Cause.MEMORY),
         ("application", "memory")),
        (word("failed", reason="exit code 1 of memory-test"),
         tale("failed", exit=1, cause=Cause.EXIT), ("application", "exit")),
        (word("failed", reason="no"), tale("failed", exit=0, cause=Cause.OUTPUT),
         ("application", "output")),
        (word("failed", reason="no"), tale("failed", cause=Cause.NOT_STARTED),
         ("infrastructure", "not_started")),
        (word("queued", "accept", "lost"), tale("lost", cause=Cause.NODE),
         ("infrastructure", "node_lost")),
        (word("queued", "accept", "lost"), tale("lost", cause=Cause.KILLED),
         ("infrastructure", "killed")),
        (word("queued", "accept", "lost"), tale("lost", cause=Cause.LOST),
         ("infrastructure", "lost")),
        # An older store kept no causes.
        (word("failed", reason="exit code 3"), tale("failed", exit=3), ("application", "exit")),
        (word("failed", reason="signal 11"), tale("failed", signal=11), ("application", "signal")),
        (word("queued", "accept", "lost"), tale("lost"), ("infrastructure", "lost")),
        (word("failed", "stage_in", "404"), tale("failed"), ("staging", "stage_in")),
        (word("failed", "preprocess", "exit 1"), tale("failed", exit=1),
         ("application", "preprocess")),
        (word("failed", "submit", "sbatch said no"), tale("failed"), ("infrastructure", "submit")),
        (word("failed", "stage_in", "no", kind="credential", code="expired"), tale("failed"),
         ("credential", "expired")),
        (word("cancelled", reason="cancelled by alice"), tale(), ("person", "cancelled")),
        (word("held", reason="held by alice"), tale(), ("person", "held")),
        (word("waiting", "accept", "waits"), tale(), ("policy", "limit")),
        (word("running"), tale("running"), ("", "")),
        (word("queued", "accept", attempt=0), tale(), ("", "")),
        (word("done"), tale("done", exit=0), ("", "")),
    ],
)  # fmt: skip
def test_the_reason_is_the_real_one(said: OutboxEntry, known: StatusFacts, blame: tuple[str, str]):
    found = outbox.reason(said, known)
    assert (found.kind, found.code) == blame
    assert found.text == said.reason


def test_a_status_is_one_that_others_can_read():
    long = word("failed", reason="x" * 50_000)
    known = StatusFacts(
        ReplyTo(key="k", job_id=3, argo_job_id=4), 1.0, "failed", 3, None, Cause.EXIT, "77_1"
    )
    found = wire.decode(wire.encode(outbox.status_message(long, known, "mira")))
    assert isinstance(found, Status)
    assert (found.key, found.job_id, found.argo_job_id, found.scheduler_id) == ("k", 3, 4, "77_1")
    assert len(found.reason.text) == 10_000


def test_what_a_function_returned_is_told_at_its_end_unless_it_is_too_long():
    short = tale("done", result='{"returns":[]}')
    assert outbox.status_message(word("running"), short, "here").result == ""
    assert outbox.status_message(word("done"), short, "here").result == short.result
    assert outbox.status_message(word("failed"), short, "here").result == short.result
    long = outbox.status_message(word("done"), tale("done", result="é" * 300_000), "here")
    assert long.result == ""
    assert "too long" in long.reason.text


def test_the_first_status_says_what_was_not_taken_as_meant():
    assert outbox.reason(word("queued", seq=1), tale(notes=("so and so",))).text == "so and so"
    assert outbox.reason(word("queued", seq=2), tale(notes=("so and so",))).text == ""


def test_each_hears_in_its_own_words_where_it_listens():
    job = Job(site="mira", application="sim", speech="balsam", job_id=8)
    said = outbox.status_message(word("running"), tale(), "mira")
    assert (
        "RUNNING" in json.loads(outbox.encoded(said, "balsam", lambda: job, 1.0))["serialized_job"]
    )
    assert json.loads(outbox.encoded(said, "argo", lambda: job, 1.0))["state"] == "SUBJOB_RUNNING"
    assert outbox.status_topic(ReplyTo(speech="balsam"), SETTINGS) == "balsam_job_status"
    assert outbox.status_topic(ReplyTo(), SETTINGS) == "status.mira"
    assert outbox.status_topic(ReplyTo(reply="status.x", speech="balsam"), SETTINGS) == "status.x"


# -- the outbox ----------------------------------------------------------------------------------


class Weak(MemoryBus):
    """A bus that fails when told to, and notes what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.took: list[tuple[str, Any]] = []
        self.bad_topics: set[str] = set()
        #: Of each so many messages one is not taken.
        self.every = 0
        self._count = 0

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        mine = self._count = self._count + 1
        # Some take longer than others, so that order is not by luck.
        await anyio.sleep(0.001 * (mine % 3))
        if topic in self.bad_topics or (self.every and mine % self.every == 0):
            raise errors.Unavailable(f"{topic} is full")
        self.took.append((topic, json.loads(body)))

    def of(self, job: int) -> list[tuple[int, str]]:
        return [(one["seq"], one["state"]) for _, one in self.took if one.get("job") == job]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        yield made


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PAUSE_S", 0.01)


def post(store: Store, count: int, **more: Any) -> None:
    bodies = [agent_parts.body(key=f"k{at}", **more) for at in range(count)]
    arrivals = [JudgedMessage("alice", "job.mira", one, judged(one)) for one in bodies]
    store.writer.do(lambda db: store_messages(db, arrivals, SETTINGS, 1.0))


def all_held_and_cancelled(store: Store) -> None:
    for number in [one.id for one in store.jobs()]:
        store.writer.do(partial(moves.hold, job=jobs.get(store.db, number), now=2.0))
        store.writer.do(partial(moves.cancel, job=jobs.get(store.db, number), now=3.0))


def make(store: Store, bus: MemoryBus) -> Outbox:
    return Outbox(bus, store.writer, store.reader, lambda: SETTINGS, lambda: 10.0)


async def until_sent(store: Store, one: Outbox, within: float = 60) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        with anyio.move_on_after(within):
            await empty(store)
            # What was sent is off the disk a moment before it is counted.
            while one.depth:  # noqa: ASYNC110 - nothing tells
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def empty(store: Store) -> None:
    while store.words():  # noqa: ASYNC110 - nobody tells
        await anyio.sleep(0.01)


STORY = [(1, "queued"), (2, "held"), (3, "cancelled")]


@pytest.mark.parametrize("every", [0, 2, 3, 7])
async def test_each_job_is_told_in_order_and_nothing_is_lost(store: Store, every: int):
    post(store, 20)
    all_held_and_cancelled(store)
    bus = Weak()
    bus.every = every
    one = make(store, bus)
    await until_sent(store, one)
    assert [bus.of(job) for job in range(1, 21)] == [STORY] * 20
    assert store.words() == []
    assert one.depth == 0


async def test_one_topic_that_is_full_does_not_keep_the_others(store: Store):
    post(store, 600, reply="status.full")
    bodies = [agent_parts.body(key="other")]
    arrivals = [JudgedMessage("alice", "job.mira", one, judged(one)) for one in bodies]
    store.writer.do(lambda db: store_messages(db, arrivals, SETTINGS, 1.0))
    bus = Weak()
    bus.bad_topics = {"status.full"}
    one = make(store, bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        with anyio.fail_after(60):
            while not bus.of(601):  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        assert len(store.words()) >= 600
        bus.bad_topics = set()
        with anyio.fail_after(60):
            await empty(store)
        tasks.cancel_scope.cancel()
    assert len(bus.took) == 601


async def test_one_that_failed_is_tried_again_however_much_else_there_is_to_say(store: Store):
    class Busy(Weak):
        """Whatever is said, there is something new to say."""

        async def publish(
            self, topic: str, body: bytes, key: str = "", *, heard: bool = False
        ) -> None:
            await super().publish(topic, body, key, heard=heard)
            if topic == "status.mira":
                await store.writer.run(lambda db: records.tell(db, 2, 1.0))

    post(store, 1, reply="status.full")
    other = agent_parts.body(key="other")
    arrivals = [JudgedMessage("alice", "job.mira", other, judged(other))]
    store.writer.do(lambda db: store_messages(db, arrivals, SETTINGS, 1.0))
    bus = Busy()
    bus.bad_topics = {"status.full"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make(store, bus).run)
        with anyio.fail_after(60):
            while len(bus.of(2)) < 5:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
            bus.bad_topics = set()
            while not bus.of(1):  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("followed", [False, True])
def test_where_ends_begin_is_told_only_to_hubs_that_have_asked_for_logs(
    tmp_path: Path,
    followed: bool,  # noqa: FBT001
):
    (tmp_path / "stdout").write_bytes(b"x" * 40_000)
    last, known = word("done"), tale("done", folder=str(tmp_path), followed=followed)
    sent = json.loads(
        wire.encode(outbox.status_message(last, known, "mira", outbox.stream_ends(known)))
    )
    # An older hub refuses fields that it does not know.
    assert {"stdout_at", "stderr_at"}.isdisjoint(sent) or followed
    assert sent.get("stdout_at") == (40_000 - 32_768 if followed else None)


async def test_one_that_cannot_be_said_does_not_silence_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    post(store, 3)
    all_held_and_cancelled(store)
    usual = outbox.status_message

    def status(
        word: OutboxEntry, known: StatusFacts, site: str, streams: tuple[StreamEnd, StreamEnd]
    ) -> Status:
        if word.job == 2:
            raise ValueError("nobody foresaw this")
        return usual(word, known, site, streams)

    monkeypatch.setattr(outbox, "status_message", status)
    bus = Weak()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make(store, bus).run)
        with anyio.fail_after(60):
            while len(store.words()) > 3:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        monkeypatch.setattr(outbox, "status_message", usual)
        with anyio.fail_after(60):
            await empty(store)
        tasks.cancel_scope.cancel()
    assert [bus.of(job) for job in (1, 2, 3)] == [STORY] * 3


async def test_a_topic_that_the_broker_keeps_from_us_costs_one_try(store: Store):
    class Strict(Weak):
        """A broker that lets us send to some topics."""

        tries = 0

        async def publish(
            self, topic: str, body: bytes, key: str = "", *, heard: bool = False
        ) -> None:
            if topic == "status.evil":
                self.tries += 1
                raise errors.Denied("the broker does not let us")
            await super().publish(topic, body, key, heard=heard)

    post(store, 1, reply="status.evil")
    all_held_and_cancelled(store)
    bus = Strict()
    await until_sent(store, make(store, bus))
    assert (bus.tries, bus.of(1), store.words()) == (1, STORY, [])
    assert {topic for topic, _ in bus.took} == {"status.mira"}


async def test_what_was_not_sent_when_it_stopped_is_sent_by_the_next(store: Store):
    post(store, 3)
    bus = Weak()
    bus.bad_topics = {"status.mira"}
    await until_sent(store, make(store, bus), within=0.1)
    assert bus.took == []
    all_held_and_cancelled(store)
    bus.bad_topics = set()
    await until_sent(store, make(store, bus))
    assert [bus.of(job) for job in (1, 2, 3)] == [STORY] * 3


async def test_a_long_backlog_is_thinned_but_ends_stay(store: Store, monkeypatch: Any):
    monkeypatch.setattr(outbox, "_TOO_MANY", 10)
    monkeypatch.setattr(outbox, "_MOST", 5)
    post(store, 20)
    all_held_and_cancelled(store)
    post(store, 20, nodes=2)  # refused, since their keys are used
    bus = Weak()
    bus.bad_topics = {"status.mira", "refused.mira"}
    one = make(store, bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        with anyio.fail_after(60):
            while len(store.words()) > 60:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        bus.bad_topics = set()
        with anyio.fail_after(60):
            await empty(store)
        tasks.cancel_scope.cancel()
    assert [bus.of(job)[-1] for job in range(1, 21)] == [STORY[-1]] * 20
    refused = [one for _, one in bus.took if one.get("state") == "rejected"]
    assert len(refused) == 20


def test_thinning_leaves_the_newest_word_on_each_job(store: Store):
    post(store, 2)
    store.writer.do(lambda db: moves.hold(db, jobs.get(db, 1), now=2.0))
    store.writer.do(records.thin)
    assert [(one.job, one.state) for one in store.words()] == [(2, "queued"), (1, "held")]


# -- heartbeats ----------------------------------------------------------------------------------


async def test_a_heartbeat_that_was_not_delivered_is_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(connection, "_AGAIN_S", 0.01)
    bus = Weak()
    bus.every, bus._count = 2, 1
    rarely = agent_parts.settings(
        heartbeat="1h", bus=SiteBroker(url="amqps://x/", beat="beat.here")
    )

    async def facts() -> Heartbeat:
        return Heartbeat(site="mira", time=1.0, version="1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Heartbeats(bus, lambda: rarely, facts).run)
        with anyio.fail_after(30):
            while not bus.took:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert len(bus.took) == 1


async def test_a_heart_beats_at_once_and_on_though_the_bus_was_away():
    bus, beats = Weak(), []
    often = agent_parts.settings(
        heartbeat="20ms", bus=SiteBroker(url="amqps://x/", beat="beat.here")
    )
    bus.every = 2

    async def facts() -> Heartbeat:
        beats.append(1)
        return Heartbeat(site="mira", time=float(len(beats)), version="1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Heartbeats(bus, lambda: often, facts).run)
        with anyio.fail_after(30):
            while len(bus.took) < 3:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert [(topic, one["time"]) for topic, one in bus.took][:3] == [
        ("beat.here", 1.0), ("beat.here", 3.0), ("beat.here", 5.0),
    ]  # fmt: skip
