"""Files that come to the hub's port: room is kept for them, and programs stay programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.requests import Request

from pilotage.base import errors
from pilotage.data.transfer import arrival, tree, url
from pilotage.data.transfer.headers import EXECUTABLE
from pilotage.data.transfer.kind import hub
from pilotage.data.transfer.plan import FreeSpace
from pilotage.data.transfer.url import Url
from pilotage.edge import records
from pilotage.edge.port_data import PortData, PortDataLimits

FOLDER = "jobs/mark/1.1/"


class Port:
    """The port, and a site that may write one folder there."""

    def __init__(self, top: Path) -> None:
        self.top, self.port = top, PortData(top, cast("Any", None), PortDataLimits(bytes=10**12))

    async def put(
        self, name: str, size: int, body: asyncio.Future[bytes], **more: str
    ) -> int:  # fmt: skip
        """Send a file whose bytes come when they are there; none means that it is cut off."""

        async def receive() -> dict[str, object]:
            if data := await body:
                return {"type": "http.request", "body": data, "more_body": False}
            return {"type": "http.disconnect"}

        told = {"content-length": str(size), **more}
        scope = {
            "type": "http", "method": "PUT", "raw_path": f"/data/{FOLDER}{name}".encode(),
            "headers": [(key.encode(), value.encode()) for key, value in told.items()],
        }  # fmt: skip
        return (await self.port.answer(Request(scope, receive), lambda: "mira")).status_code

    async def arrives(self, name: str, body: bytes, **more: str) -> int:
        """Send a file at once."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(body)
        return await self.put(name, len(body), future, **more)


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Port:
    monkeypatch.setattr(records, "may", lambda *_, **__: FOLDER)
    return Port(tmp_path)


async def test_room_is_kept_for_files_that_are_on_their_way(
    port: Port, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(arrival, "room", lambda _: FreeSpace(5 * 10**9))
    cut: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(port.put("a", 3 * 10**9, cut))
    async with asyncio.timeout(30):
        while not list(port.top.rglob("*.part")):  # noqa: ASYNC110 - a folder does not tell
            await asyncio.sleep(0.01)
    with pytest.raises(errors.Unavailable, match=r"5\.6 GiB are needed"):
        await port.put("b", 3 * 10**9, cut)
    assert await port.arrives("small", b"fits") == 201
    cut.set_result(b"")
    for again in (first, port.put("b", 3 * 10**9, cut)):
        with pytest.raises(errors.Unavailable, match="left before the end"):
            await again
    assert [one.name for one in port.top.rglob("*") if one.is_file()] == ["small"]


async def test_some_of_the_disk_stays_free_for_the_hub(port: Port, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrival, "room", lambda _: FreeSpace(10**9))
    with pytest.raises(errors.Unavailable, match="stay free"):
        await port.arrives("a", b"little")


async def test_a_program_that_arrives_may_be_run(port: Port):
    await port.arrives("run", b"#!", **{EXECUTABLE: "1"})
    await port.arrives("text", b"x")
    modes = {one.name: one.stat().st_mode & 0o777 for one in (port.top / FOLDER).iterdir()}
    assert modes == {"run": 0o700, "text": 0o600}


async def test_an_agent_says_which_files_may_be_run(tmp_path: Path):
    told: dict[str, bool] = {}

    class Line:
        @contextlib.asynccontextmanager
        async def ask(
            self, method: str, where: Url, *, headers: dict[str, str], **_: object
        ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
            told[f"{method} {where.path}"] = EXECUTABLE in headers
            yield httpx2.Response(201)

    kind = hub.HubFiles(hub.HubAddress(url="http://127.0.0.1:1", key=lambda: "key"))
    kind._web = cast("Any", Line())
    for name, mode in (("run", 0o755), ("text", 0o644)):
        (tmp_path / name).touch(mode)
    await kind.send(url.parse("hub://port/data/x/"), list(tree.walk(str(tmp_path))), str(tmp_path))
    assert told == {"PUT /data/x/run": True, "PUT /data/x/text": False}
