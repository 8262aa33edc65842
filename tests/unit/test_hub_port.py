"""Files that come to the hub's port: room is kept for those that are on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request

from pilotage import errors
from pilotage.edge import records
from pilotage.hub.api.port import Limits, PortData
from pilotage.payload.transfer import settle
from pilotage.payload.transfer.plan import Room

FOLDER = "jobs/mark/1.1/"


class Port:
    """The port, and a site that may write one folder there."""

    def __init__(self, top: Path) -> None:
        self.top, self.port = top, PortData(top, cast("Any", None), Limits(bytes=10**12))

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
    monkeypatch.setattr(settle, "room", lambda _: Room(5 * 10**9))
    cut: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(port.put("a", 3 * 10**9, cut))
    async with asyncio.timeout(30):
        while not list(port.top.rglob("*.part")):  # noqa: ASYNC110 - a folder does not tell
            await asyncio.sleep(0.01)
    with pytest.raises(errors.Unavailable, match=r"5\.6 GiB are to come"):
        await port.put("b", 3 * 10**9, cut)
    assert await port.arrives("small", b"fits") == 201
    cut.set_result(b"")
    for again in (first, port.put("b", 3 * 10**9, cut)):
        with pytest.raises(errors.Unavailable, match="left before the end"):
            await again
    assert [one.name for one in port.top.rglob("*") if one.is_file()] == ["small"]


async def test_some_of_the_disk_stays_free_for_the_hub(port: Port, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settle, "room", lambda _: Room(10**9))
    with pytest.raises(errors.Unavailable, match="stay free"):
        await port.arrives("a", b"little")
