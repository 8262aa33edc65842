"""Messages of workflows on their way to a broker that does not take all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from pilotage.base import errors
from pilotage.base.wakeup import Wakeup
from pilotage.flow import notify
from pilotage.flow.notify import BrokerSender, Notification
from pilotage.store import Writer, sqlite
from pilotage.store.sqlite import Db
from pilotage.testing.bus import MemoryBus

#: More than are looked at together.
MANY = 2500


class Full(MemoryBus):
    """A bus on which one topic is full until it is told otherwise, and another is too long."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True
        self.took: list[tuple[str, int]] = []

    async def publish(self, topic: str, body: bytes, key: str = "", *, heard: bool = False) -> None:
        await anyio.lowlevel.checkpoint()
        if topic == "full" and self.full:
            raise errors.Unavailable("too many messages wait for the readers of 'full'")
        if topic == "odd":
            raise errors.UsageError("it is longer than a name can be")
        self.took.append((topic, json.loads(body)))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(sqlite.connect(tmp_path / "store.db"))
    yield made
    made.close()


def waiting(reader: Db) -> list[Notification]:
    """Return what is not crossed off yet."""
    return notify.unsent(reader, ("status",), 9.0, after=0, most=9)


async def test_what_the_broker_does_not_take_keeps_nothing_else_from_it(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notify, "_PAUSE_S", 0.2)

    def put(db: Db) -> None:
        notify.put(db, 9, "status", "odd", "0")
        for at in range(MANY):
            # Of many flows, each with two messages.
            notify.put(db, 10 + at // 2, "status", "full", str(at))
        notify.put(db, 0, "status", "status.mira", "1")

    await asyncio.wrap_future(writer.submit(put))
    bus, bell = Full(), Wakeup(asyncio.get_running_loop().call_soon_threadsafe)
    reader = sqlite.connect(tmp_path / "store.db")
    sender = BrokerSender(bus, writer, reader, lambda: 5.0, bell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sender.run)
        with anyio.fail_after(60):
            while not bus.took:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
            assert bus.took == [("status.mira", 1)]
            bus.full = False
            # What the broker took is crossed off a moment later.
            while len(bus.took) < 1 + MANY or waiting(reader):  # noqa: ASYNC110 - nothing tells
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    numbers = [number for topic, number in bus.took if topic == "full"]
    assert sorted(numbers) == list(range(MANY))
    where = {number: at for at, number in enumerate(numbers)}
    assert all(where[at] < where[at + 1] for at in range(0, MANY, 2)), "each line in its order"
    assert not waiting(reader)
    reader.close()
