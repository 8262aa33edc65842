"""Flows by the API: started, looked at, called off, and by whom."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.project.tokens import TokenScope
from tests.rigs.project.hub_port import Hub, running

FLOW: dict[str, Any] = {
    "name": "small",
    "params": {"count": 3},
    "step": {
        "first": {"run": ["echo", "{count}"]},
        "each": {"needs": ["first"], "each": [1, 2, 3], "run": ["true"]},
        "last": {"needs": ["each"], "run": ["true"]},
    },
}


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        yield found


async def test_a_flow_is_started_listed_shown_and_drawn(hub: Hub):
    async with hub.client(hub.token()) as anna:
        body = {"flow": FLOW, "params": {"count": 7}, "key": "k", "tag": "night"}
        made = await anna.post("/api/v1/flows", json=body)
        assert made.status_code == 201, made.text
        assert made.json() == {"id": 1, "steps": 3}
        assert hub.pokes == 1
        listed = (await anna.get("/api/v1/flows", params={"name": "sm*"})).json()
        assert [(one["owner"], one["steps"]) for one in listed["flows"]] == [
            ("anna", {"running": 1, "waiting": 2})
        ]
        sheet = (await anna.get("/api/v1/flows/1")).json()
        assert sheet["params"] == {"count": 7}
        assert sheet["steer"] is True
        assert [one["why"] for one in sheet["rows"]] == [
            "waits to be sent", "waits for `first`", "waits for `each`",
        ]  # fmt: skip
        drawn = (await anna.get("/api/v1/flows/1/graph")).json()
        assert [one["id"] for one in drawn["nodes"]] == ["first", "each", "last"]
        assert drawn["nodes"][0]["x"] < drawn["nodes"][1]["x"] < drawn["nodes"][2]["x"]
        assert len(drawn["arrows"]) == 2
        step = (await anna.get("/api/v1/flows/1/steps/first")).json()
        assert [one["state"] for one in step["tasks"]] == ["queued"]
        assert (await anna.get("/api/v1/flows/1/steps/none")).status_code == 404
        assert (await anna.get("/api/v1/flows/2")).status_code == 404


async def test_the_same_key_is_one_flow_and_each_owner_has_keys_of_their_own(hub: Hub):
    body = {"flow": FLOW, "key": "k"}
    async with hub.client(hub.token()) as anna, hub.client(hub.token(owner="bert")) as bert:
        for _ in range(2):
            assert (await anna.post("/api/v1/flows", json=body)).json()["id"] == 1
        assert (await bert.post("/api/v1/flows", json=body)).json()["id"] == 2
        other = {**body, "params": {"count": 1}}
        assert (await anna.post("/api/v1/flows", json=other)).status_code == 409


async def test_only_its_owner_and_an_admin_change_its_course(hub: Hub):
    number = hub.flow(owner="anna")
    path = f"/api/v1/flows/{number}"
    async with hub.client(hub.token(owner="bert")) as bert:
        assert (await bert.get(path)).json()["steer"] is False
        assert (await bert.post(f"{path}/cancel")).status_code == 403
        assert (await bert.post(f"{path}/retry", json={})).status_code == 403
    async with hub.client(hub.token(TokenScope.READ)) as reader:
        assert (await reader.get(path)).status_code == 200
        assert (await reader.post("/api/v1/flows", json={"flow": FLOW})).status_code == 403
    async with hub.client() as admin:
        assert (await admin.post(f"{path}/cancel")).json() == {"state": "cancelled"}
        again = await admin.post(f"{path}/retry", json={"steps": ["second"]})
        assert again.json() == {"steps": ["second"]}
        assert (await admin.post(f"{path}/retry", json={"steps": ["x"]})).status_code == 404


@pytest.mark.parametrize(
    "flow, words",
    [
        ({"name": "a"}, "no steps"),
        ({"name": "a", "step": {"b": {"run": ["true"], "more": 1}}}, "more"),
        ({"name": "a", "step": {"b": {"flow": "/etc/passwd"}}}, "flow"),
        ({"name": "a", "step": {"b": {"script": "beside.sh"}}}, "script"),
    ],
)
async def test_a_bad_definition_is_refused_and_no_file_is_read(hub: Hub, flow: Any, words: str):
    async with hub.client(hub.token()) as anna:
        answer = await anna.post("/api/v1/flows", json={"flow": flow})
        assert answer.status_code == 422
        assert words in answer.text
        assert "root:" not in answer.text


async def test_changes_are_told_as_they_come(hub: Hub):
    heard: list[dict[str, Any]] = []
    async with hub.client(hub.token()) as anna, hub.client() as admin:
        with anyio.fail_after(30):
            async with anna.stream("GET", "/api/v1/stream") as stream:
                kind = ""
                async for line in stream.aiter_lines():
                    if line.startswith("event: "):
                        kind = line.removeprefix("event: ")
                    elif line.startswith("data: ") and kind == "flows":
                        heard += json.loads(line.removeprefix("data: "))["flows"]
                        break
                    elif line.startswith("data: ") and kind == "overview":
                        # Who listens hears of what comes after that.
                        await admin.post("/api/v1/flows", json={"flow": FLOW})
    assert heard[0]["name"] == "small"
    assert heard[0]["state"] == "running"
