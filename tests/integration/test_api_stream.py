"""Server-sent events: what changes is told as it changes, to all who listen and keep up."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from pilotage.hub.api import live
from pilotage.job.model import State
from tests.rigs.project.hub_port import Hub, running


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        yield found


class Ear:
    """Reads events one after the other."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()
        self.mark = ""

    async def next(self, kind: str = "") -> Any:
        """Return the next event, or the next of a kind."""
        with anyio.fail_after(60):
            while True:
                name, data = await self._event()
                if kind in {"", name}:
                    return data if kind else (name, data)

    async def _event(self) -> tuple[str, Any]:
        name, data = "", None
        async for line in self._lines:
            if not line and data is not None:
                return name, data
            field, _, value = line.partition(": ")
            if field == "id":
                self.mark = value
            elif field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
        raise EOFError

    async def end(self) -> None:
        with anyio.fail_after(60):
            async for _ in self._lines:
                pass


@asynccontextmanager
async def listening(hub: Hub, mark: str = "") -> AsyncIterator[Ear]:
    headers = {"Last-Event-ID": mark} if mark else {}
    async with (
        hub.client() as client,
        client.stream("GET", "/api/v1/stream", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Ear(answer)


async def test_whoever_listens_hears_how_things_stand_and_then_what_changes(hub):
    hub.submit()
    async with listening(hub) as ear:
        name, view = await ear.next()
        assert (name, view["counts"]) == ("overview", {"queued": 1})
        assert await ear.next("alarms") == {"alarms": []}
        # Alarms are looked at with each overview, and told when they are others.
        assert {(await ear.next())[0] for _ in range(2)} == {"overview"}
        job = hub.submit("new")
        hub.face.live.poke()
        (row,) = (await ear.next("jobs"))["jobs"]
        assert (row["id"], row["name"], row["state"]) == (job, "new", "queued")
        hub.writer.do(lambda db: db.run("alarm_put", name="a", now=1.0, words="look"))
        alarms = (await ear.next("alarms"))["alarms"]
        assert alarms == [{"name": "a", "since": 1.0, "words": "look"}]
        assert (await ear.next("overview"))["counts"] == {"queued": 2}


async def test_news_come_soon_after_a_poke_and_also_without_one(hub):
    async with listening(hub) as ear:
        await ear.next("alarms")
        await anyio.sleep(0.6)
        began = time.monotonic()
        hub.submit()
        await ear.next("jobs")
        # Sooner than the line says that it is still there.
        assert time.monotonic() - began < 14.0


async def test_a_reader_that_was_cut_off_goes_on_where_it_was(hub):
    async with listening(hub) as ear:
        await ear.next("alarms")
        hub.submit("first")
        hub.face.live.poke()
        await ear.next("jobs")
        mark = ear.mark
    job = hub.submit("while it was away")
    async with listening(hub, mark) as ear:
        assert [one["id"] for one in (await ear.next("jobs"))["jobs"]] == [job]


async def test_many_changes_are_one_event(hub):
    async with listening(hub) as ear:
        await ear.next("alarms")
        jobs = [hub.submit(f"job{n}") for n in range(50)]
        for job in jobs[:10]:
            hub.run(job)
            hub.end(job, State.DONE)
        heard: dict[int, str] = {}
        events = 0
        while len(heard) < 50 or list(heard.values()).count("done") < 10:
            events += 1
            heard |= {one["id"]: one["state"] for one in (await ear.next("jobs"))["jobs"]}
        assert events < 20


async def test_pilots_are_told_when_they_change(hub):
    facts = '{"host": "n1", "work": "/w", "cpus": 4, "memory": 100}'
    async with listening(hub) as ear:
        await ear.next("alarms")
        hub.writer.do(
            lambda db: db.value(
                "pilot_add", name="n1", site="s", pool="", state="booting", digest="",
                facts=facts, now=1.0,
            )
        )  # fmt: skip
        (pilot,) = (await ear.next("pilots"))["pilots"]
        assert (pilot["name"], pilot["state"], pilot["cpus"]) == ("n1", "booting", 4)
        hub.writer.do(
            lambda db: db.run("pilot_move", id=1, state="available", reason="", now=2.0, ended=None)
        )
        (pilot,) = (await ear.next("pilots"))["pilots"]
        assert pilot["state"] == "available"


async def test_silence_is_broken_by_heartbeats(hub, monkeypatch):
    monkeypatch.setattr(live, "_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(live, "_EVERY_S", dict.fromkeys(live._EVERY_S, 1000.0))
    async with hub.client() as client, client.stream("GET", "/api/v1/stream") as answer:
        with anyio.fail_after(60):
            async for line in answer.aiter_lines():
                if line.startswith(":"):
                    break


async def test_a_reader_that_does_not_keep_up_is_let_go(hub, monkeypatch):
    async with listening(hub) as ear, listening(hub) as other:
        await ear.next("alarms")
        await other.next("alarms")
        assert len(hub.face.live._ears) == 2
        # Nothing waits in the kernel for one whose queue is full.
        for n in range(200):
            hub.face.live._send(live.event("jobs", {"jobs": [], "n": n}))
        assert hub.face.live._ears == set()
        await ear.end()


async def test_listeners_are_let_go_at_once_when_the_hub_stops(tmp_path):
    async with anyio.create_task_group() as tasks:
        over = anyio.Event()

        async def listen(hub: Hub, heard: anyio.Event) -> None:
            async with listening(hub) as ear:
                await ear.next("alarms")
                heard.set()
                await ear.end()
            over.set()

        async def wait(hub: Hub) -> None:
            async with hub.client() as client:
                answer = await client.get("/api/v1/ends?wait=60")
                assert answer.json()["ends"] == []

        async with running(tmp_path) as hub:
            heard = anyio.Event()
            tasks.start_soon(listen, hub, heard)
            tasks.start_soon(wait, hub)
            await heard.wait()
            await anyio.sleep(0.2)
            began = time.monotonic()
        with anyio.fail_after(60):
            await over.wait()
        # They would have waited for a minute.
        assert time.monotonic() - began < 20.0


async def test_nothing_is_read_while_nobody_watches(hub):
    async with listening(hub) as ear:
        await ear.next("alarms")
    await anyio.sleep(0.3)
    assert hub.face.live._watchers == 0
    before = hub.face.live.last
    hub.submit()
    hub.face.live.poke()
    await anyio.sleep(0.3)
    assert hub.face.live.last == before
