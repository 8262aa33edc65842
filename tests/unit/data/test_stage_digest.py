"""Sums of files: once for each version, shared by all who ask."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time

import pytest

from pilotage.base import errors
from pilotage.data.stage import digest
from pilotage.data.stage.digest import Changed, Digests


@pytest.fixture
def digests():
    made = Digests(most=3)
    yield made
    made.close()


@pytest.fixture
def counted(monkeypatch):
    real, paths = digest._hash, []

    def count(key):
        paths.append(key.path)
        time.sleep(0.05)
        return real(key)

    monkeypatch.setattr(digest, "_hash", count)
    return paths


def written(path, content: bytes, *, ago: float = 10) -> str:
    path.write_bytes(content)
    os.utime(path, (time.time() - ago,) * 2)
    return str(path)


@pytest.fixture(autouse=True)
def old_enough(monkeypatch):
    # The time of change cannot be set: it is now.
    monkeypatch.setattr(
        digest, "settled", lambda version: version.modified < time.time_ns() - 10**9
    )


async def test_all_who_ask_share_one_reading(tmp_path, digests, counted):
    path = written(tmp_path / "a", b"content")
    found = await asyncio.gather(*(digests.of(path) for _ in range(50)))
    assert {one.sha256 for one in found} == {hashlib.sha256(b"content").hexdigest()}
    assert await digests.of(path) == found[0]
    assert counted == [path]


async def test_who_goes_away_does_not_stop_it_for_others(tmp_path, digests, counted):
    path = written(tmp_path / "a", b"content")
    first = asyncio.create_task(digests.of(path))
    second = asyncio.create_task(digests.of(path))
    await asyncio.sleep(0.02)
    first.cancel()
    assert (await second).size == 7
    assert counted == [path]


async def test_a_new_version_is_read_again(tmp_path, digests, counted):
    path = written(tmp_path / "a", b"content")
    before = await digests.of(path)
    written(tmp_path / "a", b"kontent")
    after = await digests.of(path)
    assert before.sha256 != after.sha256
    assert len(counted) == 2


async def test_a_file_that_was_written_just_now_is_read_again(tmp_path, digests, counted):
    path = written(tmp_path / "a", b"content", ago=0)
    await digests.of(path)
    await digests.of(path)
    assert len(counted) == 2


async def test_few_are_remembered(tmp_path, digests, counted):
    paths = [written(tmp_path / str(n), b"x") for n in range(5)]
    for path in paths:
        await digests.of(path)
    await digests.of(paths[4])
    assert len(counted) == 5
    await digests.of(paths[0])
    assert len(counted) == 6


async def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path, digests, monkeypatch):
    path = tmp_path / "a"
    written(path, b"content")
    real = digest._stretch

    def meddle(*given):
        found = real(*given)
        with path.open("ab") as file:
            file.write(b"more")
        return found

    monkeypatch.setattr(digest, "_stretch", meddle)
    (key,) = await digests.versions([str(path)])
    with pytest.raises(Changed):
        await digests.of_version(key)
    with pytest.raises(errors.Conflict, match="changes while it is read"):
        await digests.of(str(path))


async def test_what_is_no_file_is_said(tmp_path, digests):
    with pytest.raises(errors.NotFound):
        await digests.of(str(tmp_path / "none"))
    with pytest.raises(errors.UsageError):
        await digests.of(str(tmp_path))
