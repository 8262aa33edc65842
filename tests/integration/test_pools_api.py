"""Pools by the API and at /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotage.project.tokens import TokenScope
from pilotage.store import Db
from tests.rigs.project.hub_port import Hub, running


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        folder = found.project.root / "pools"
        folder.mkdir()
        (folder / "burst.toml").write_text('site = "cluster"\nmaximum = 8\n')
        (folder / "wrong.toml").write_text('site = "cluster"\nmaximun = 8\n')
        yield found


def sample(hub: Hub, utilisation: float | None) -> None:
    now = hub.project.clock.now()

    def step(db: Db) -> None:
        db.run(
            "pool_sample_put", now=now, pool="burst", supply=4.0, demand=6.0,
            utilisation=utilisation, allocation=0.75, queued=2.0, waiting=9.0,
        )  # fmt: skip

    hub.writer.do(step)


async def test_pools_are_listed_those_with_mistakes_too(hub):
    async with hub.client(hub.token(TokenScope.READ)) as anna:
        burst, wrong = (await anna.get("/api/v1/pools")).json()["pools"]
    assert (burst["state"], burst["maximum"], burst["control"]) == ("not controlled", 8, "aimd")
    assert wrong["state"] == "bad file"
    assert "wrong.toml:2:" in wrong["trouble"]


async def test_samples_are_told_and_measured(hub):
    sample(hub, None)
    async with hub.client() as admin:
        (one,) = (await admin.get("/api/v1/pools/samples")).json()["samples"]
        text = (await admin.get("/metrics")).text
    assert (one["pool"], one["supply"], one["utilisation"]) == ("burst", 4.0, None)
    assert 'pilotage_pool_demand{pool="burst"} 6\n' in text
    assert 'pilotage_pool_waiting{pool="burst"} 9\n' in text
    assert "pilotage_pool_utilisation" not in text


async def test_a_pool_is_paused_and_goes_on(hub):
    async with hub.client(hub.token()) as anna, hub.client() as admin:
        assert (await anna.post("/api/v1/pools/burst/pause")).status_code == 403
        assert (await admin.post("/api/v1/pools/none/pause")).status_code == 404
        assert (await admin.post("/api/v1/pools/burst/pause")).json() == {"state": "paused"}
        found = (await admin.get("/api/v1/pools")).json()["pools"][0]
        assert (found["state"], found["trouble"]) == ("paused", "paused by a person")
        assert (await admin.post("/api/v1/pools/burst/resume")).json() == {"state": "controlled"}


async def test_what_a_pool_asks_for_is_allowed_by_whoever_may_steer_it_and_taken_back(hub):
    file = hub.project.root / "pools/burst.toml"
    file.write_text('site = "cluster"\nmaximum = 8\nask_above = 2\n')
    async with hub.client(hub.token()) as anna, hub.client() as admin:
        assert (await anna.get("/api/v1/pools")).json()["steer"] is False
        assert (await anna.post("/api/v1/pools/burst/allow")).status_code == 403
        assert (await admin.post("/api/v1/pools/none/allow")).status_code == 404
        assert (await admin.post("/api/v1/pools/burst/allow")).json() == {"state": "allowed"}
        found = (await admin.get("/api/v1/pools")).json()
        assert found["steer"] is True
        assert found["pools"][0]["ask_above"] == 0
        assert found["pools"][0]["changed"] == {"ask_above": 0}
        assert (await anna.post("/api/v1/pools/burst/reset")).status_code == 403
        await admin.post("/api/v1/pools/burst/reset")
        found = (await admin.get("/api/v1/pools")).json()["pools"][0]
        assert (found["ask_above"], found["changed"]) == (2, {})


async def test_samples_are_those_of_one_pool_and_as_few_as_asked_for(hub):
    for _ in range(5):
        sample(hub, 0.5)
    async with hub.client() as admin:
        few = (await admin.get("/api/v1/pools/samples", params={"points": 2})).json()["samples"]
        none = (await admin.get("/api/v1/pools/samples", params={"pool": "wrong"})).json()
    assert 1 <= len(few) <= 2
    assert none["samples"] == []
