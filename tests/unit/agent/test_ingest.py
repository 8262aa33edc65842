"""Messages that nobody foresaw: those beside them become jobs all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.agent import admission, records
from pilotage.agent.admission import Ingest
from pilotage.agent.registry import Registry
from pilotage.store import Db
from pilotage.testing.bus import MemoryBus
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store

SETTINGS = agent_parts.settings()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        yield made


def odd(usual: Any, where: int) -> Any:
    """Return a function that fails of one message."""

    def fails(*given: Any, **named: Any) -> Any:
        if b"poison" in repr(given[where]).encode():
            raise ValueError("nobody foresaw this")
        return usual(*given, **named)

    return fails


@pytest.mark.parametrize("place", ["judged", "written"])
async def test_one_that_nobody_foresaw_keeps_no_other_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: str
):
    monkeypatch.setattr(admission, "_PAUSE_S", 0.01)
    if place == "judged":
        monkeypatch.setattr(admission, "judge", odd(admission.judge, 0))
    else:
        monkeypatch.setattr(records, "accept", odd(records.accept, 2))
    bus = MemoryBus("alice")
    async with bus.subscribe("job.mira"):
        pass
    for at in range(5):
        name = "poison" if at == 2 else "usual"
        await bus.publish("job.mira", agent_parts.body(key=f"k{at}", name=name), heard=True)
    one = Ingest(bus, store.writer, Registry(store.root), lambda: SETTINGS, _now, _nothing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run, "job.mira", "")
        with anyio.fail_after(60):
            while len(store.jobs()) < 4 or not _refused(store.db):  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
            await bus.publish("job.mira", agent_parts.body(key="late"), heard=True)
            while len(store.jobs()) < 5:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    (refused,) = _refused(store.db)
    assert (refused.code, json.loads(refused.body)["key"]) == ("mistake", "k2")


def _refused(db: Db) -> list[Any]:
    return records.refused(db, 10)


def _now() -> float:
    return 1.0


def _nothing() -> None:
    """Nobody runs the jobs."""
