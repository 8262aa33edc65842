"""Ports of a login node that lead here, over connections that come and go."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from pilotage.base import errors
from pilotage.batch import tunnels
from pilotage.batch.login import HelperInfo
from pilotage.batch.model import SiteSettings
from pilotage.batch.tunnels import Tunnels


class Login:
    """A login node that gives the port that is asked for, unless somebody has it."""

    def __init__(self) -> None:
        self.site = SiteSettings(batch="slurm", host="login")
        self.hello = HelperInfo(host="login1")
        self.shell = self
        self.asked: list[tuple[int, int | None]] = []
        self.taken: set[int] = set()
        self.broken = False
        self._next = 5000

    async def ready(self) -> HelperInfo:
        return self.hello

    async def forward(self, port: int) -> int:
        if self.broken:
            raise errors.Unavailable("no way")
        return port + 1

    async def call(self, op: str, *, port: int, host: str, listen: int | None) -> dict[str, Any]:
        assert (op, host) == ("relay", "login1")
        self.asked.append((port, listen))
        self._next += 1
        return {"port": listen if listen and listen not in self.taken else self._next}


@pytest.fixture
def login() -> Login:
    return Login()


def make(login: Login, folder: Any) -> Tunnels:
    return Tunnels(login, folder / "state" / "kit.json")  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path


async def test_a_door_is_opened_once_for_each_connection(login, folder):
    found = make(login, folder)
    number = await found.open("hub", 80)
    assert await found.open("hub", 80) == number
    assert login.asked == [(81, None)]
    login.hello = HelperInfo(host="login1")
    assert await found.open("hub", 80) == number
    assert login.asked == [(81, None), (81, number)]
    assert found.host == "login1"


async def test_a_door_has_its_number_again_after_the_hub_was_gone(login, folder):
    number = await make(login, folder).open("hub", 80)
    other = await make(login, folder).open("data", 70)
    assert other != number
    # What it leads to may have another number here.
    assert await make(login, folder).open("hub", 90) == number
    assert await make(login, folder).open("data", 71) == other


async def test_a_number_that_somebody_took_is_given_up(login, folder):
    number = await make(login, folder).open("hub", 80)
    login.taken.add(number)
    new = await make(login, folder).open("hub", 80)
    assert new != number
    assert await make(login, folder).open("hub", 80) == new


async def test_a_file_that_cannot_be_read_is_as_none(login, folder):
    (folder / "state" / "kit.json").write_text("[1")
    assert await make(login, folder).open("hub", 80)


async def test_all_doors_are_opened_again_by_themselves(login, folder, monkeypatch):
    monkeypatch.setattr(tunnels, "_LOOK_S", 0.01)
    found = make(login, folder)
    numbers = [await found.open("hub", 80), await found.open("data", 70)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.run)
        login.broken, login.hello = True, HelperInfo(host="login1")
        await anyio.sleep(0.05)
        assert len(login.asked) == 2
        login.broken = False
        with anyio.fail_after(30):
            while len(login.asked) < 4:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert [listen for _, listen in login.asked[2:]] == numbers


async def test_a_door_that_is_led_elsewhere_is_not_led_back(login: Login, folder, monkeypatch):
    monkeypatch.setattr(tunnels, "_LOOK_S", 0.01)
    found = make(login, folder)
    await found.open("data", 70)
    looks = 0

    async def slowly(port: int) -> int:
        # Meanwhile the one that opens doors again looks, and waits for its turn.
        seen = looks
        with anyio.fail_after(30):
            while looks == seen:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        return port + 1

    async def ready() -> HelperInfo:
        nonlocal looks
        looks += 1
        return login.hello

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.run)
        monkeypatch.setattr(login, "forward", slowly)
        monkeypatch.setattr(login, "ready", ready)
        await found.open("data", 71)
        seen = looks
        with anyio.fail_after(30):
            while looks < seen + 4:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert [port for port, _ in login.asked] == [71, 72]
