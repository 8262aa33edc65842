"""Channels that stay open for a while: the next round needs no new one."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.data.stage import requests
from pilotage.data.stage.digest import Digests
from pilotage.data.stage.model import WantedFile
from pilotage.data.stage.pull import Puller
from pilotage.data.stage.push import Pusher
from tests.rigs.cluster.staging_site import StagingSite


@pytest.fixture
def far(tmp_path):
    return StagingSite(tmp_path / "site")


@pytest.fixture
async def pusher(far):
    digests = Digests()
    made = Pusher(far, far.root, digests)
    yield made
    await made.close()


@pytest.fixture
async def puller(far):
    made = Puller(far, far.root)
    yield made
    await made.close()


def written(folder, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def wanted(far: StagingSite, home, name: str, content: bytes) -> WantedFile:
    there = written(Path(far.root), name, content)
    sha256 = hashlib.sha256(content).hexdigest()
    return WantedFile(remote=there, local=str(home / name), size=len(content), sha256=sha256)


async def test_rounds_one_after_another_need_one_channel(far, pusher, puller, tmp_path):
    for number in range(5):
        await pusher.bring([written(tmp_path, f"f{number}", b"%d" % number)])
        await puller.fetch([wanted(far, tmp_path, f"g{number}", b"g%d" % number)])
        assert (tmp_path / f"g{number}").read_bytes() == b"g%d" % number
    assert sorted(far.channels) == ["receive", "send"]


async def test_a_channel_that_nobody_uses_is_closed(far, pusher, puller, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "_STAY_S", 0.01)
    for number in range(2):
        await pusher.bring([written(tmp_path, f"f{number}", b"%d" % number)])
        await puller.fetch([wanted(far, tmp_path, f"g{number}", b"g%d" % number)])
        await asyncio.sleep(0.5)
    assert sorted(far.channels) == ["receive", "receive", "send", "send"]


async def test_what_went_wrong_is_not_used_again(far, puller, tmp_path):
    await puller.fetch([wanted(far, tmp_path, "a", b"1")])
    gone = wanted(far, tmp_path, "gone", b"2")
    (tmp_path / "site" / "gone").unlink()
    with pytest.raises(errors.NotFound):
        await puller.fetch([gone])
    await puller.fetch([wanted(far, tmp_path, "b", b"3")])
    assert far.channels == ["send", "send"]


async def test_a_channel_that_was_cut_while_idle_is_replaced(far, pusher, puller, tmp_path):
    real, started = far.bulk, []

    async def bulk(words, **ends):
        process = await real(words, **ends)
        started.append(process)
        return process

    far.bulk = bulk
    await pusher.bring([written(tmp_path, "a", b"1")])
    await puller.fetch([wanted(far, tmp_path, "b", b"2")])
    for process in started:
        process.kill()
        await process.wait()
    await asyncio.sleep(0.05)
    await pusher.bring([written(tmp_path, "c", b"3")])
    await puller.fetch([wanted(far, tmp_path, "d", b"4")])
    assert (tmp_path / "d").read_bytes() == b"4"
