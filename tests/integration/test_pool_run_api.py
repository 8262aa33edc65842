"""Pools that are steered from outside, by the API: who may, what is refused, what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from pilotage.store import Db
from tests.rigs.project.hub_port import Hub, running

DEMAND = "/api/v1/pools/burst/demand"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        folder = found.project.root / "pools"
        folder.mkdir()
        head = 'site = "cluster"\nmaximum = 8\n'
        (folder / "burst.toml").write_text(f'{head}[control]\nkind = "outside"\n')
        (folder / "own.toml").write_text(head)
        yield found


def token(hub: Hub, scope: TokenScope, pool: str) -> str:
    now = hub.project.clock.now()

    def step(db: Db) -> str:
        return tokens.mint(db, scope, "anna", now=now, lifetime=60.0, pool=pool)[0]

    return hub.writer.do(step)


async def test_a_demand_is_stored_and_shown(hub):
    body = {"demand": 5.5, "by": "anna@desk", "words": "it is full"}
    async with hub.client() as admin:
        assert (await admin.put(DEMAND, json=body)).json() == {"demand": 5.5, "words": ""}
        found = (await admin.get("/api/v1/pools/burst")).json()
        assert (found["asked"], found["by"], found["control"]) == (5.5, "anna@desk", "outside")
        assert found["steered"].startswith("anna@desk wants 5.5 cores, last seen ")
        taken = (await admin.put(DEMAND, json=body | {"demand": 99, "by": "bert"})).json()
        assert taken["demand"] == 8
        assert "anna@desk asks too" in taken["words"]


async def test_only_admins_and_tokens_for_the_pool_steer_it(hub):
    body = {"demand": 1, "by": "x"}
    for scope, pool, seen, set_ in (
        (TokenScope.READ, "", 200, 403),
        (TokenScope.USER, "", 200, 403),
        (TokenScope.POOL, "", 200, 200),
        (TokenScope.POOL, "burst", 200, 200),
        (TokenScope.POOL, "own", 200, 403),
        (TokenScope.SITE, "", 403, 403),
        (TokenScope.ENROL, "burst", 403, 403),
    ):
        async with hub.client(token(hub, scope, pool)) as one:
            assert (await one.get("/api/v1/pools/burst")).status_code == seen, scope
            assert (await one.put(DEMAND, json=body)).status_code == set_, scope


async def test_a_token_for_pools_opens_nothing_else(hub):
    async with hub.client(hub.token(TokenScope.POOL)) as one:
        for path in ("jobs", "pilots", "tokens", "sites", "overview"):
            assert (await one.get(f"/api/v1/{path}")).status_code == 403, path
        assert (await one.post("/api/v1/pools/burst/pause")).status_code == 403


async def test_pools_that_steer_themselves_refuse_with_a_hint(hub):
    async with hub.client() as admin:
        answer = await admin.put("/api/v1/pools/own/demand", json={"demand": 1, "by": "x"})
        assert answer.status_code == 409
        assert 'kind = "outside"' in answer.text.replace("\\", "")
        lost = await admin.put("/api/v1/pools/none/demand", json={"demand": 1, "by": "x"})
        assert lost.status_code == 404
        assert (await admin.get("/api/v1/pools/none")).status_code == 404


@pytest.mark.parametrize("name", ["a%00b", "%F0%9F%98%80" * 100, "%0A"])
async def test_no_name_breaks_anything(hub, name):
    async with hub.client() as admin:
        path = f"/api/v1/pools/{name}"
        assert (await admin.get(path)).status_code == 404
        asked = await admin.put(f"{path}/demand", json={"demand": 1, "by": "x"})
        assert asked.status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"demand": -1, "by": "x"},
        {"demand": 1e12, "by": "x"},
        {"demand": 1},
        {"demand": 1, "by": ""},
        {"demand": "1", "by": "x"},
        {"demand": 1, "by": "x", "words": "w" * 2000},
        {"demand": 1, "by": "x", "more": 1},
    ],
)
async def test_what_is_no_demand_is_refused(hub, body):
    async with hub.client() as admin:
        assert (await admin.put(DEMAND, json=body)).status_code == 422
