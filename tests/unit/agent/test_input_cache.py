"""Inputs that are kept by content: shared or copied, limited, and never believed when changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio
import pytest

from pilotage.agent.input_cache import FOLDER, SHARED, InputCache
from pilotage.agent.staging import TransferSlots
from pilotage.data.transfer.model import TransferItem

LARGE, SMALL = b"x" * SHARED, b"small"


class Site:
    """Folders of jobs, and what is kept beside them."""

    def __init__(self, root: Path, most: int = 10 * SHARED) -> None:
        self.root, self.contents = root, InputCache(lambda: most)

    def has(
        self, name: str, body: bytes, *, user: str = "", copy: bool = False,
        executable: bool = False,
    ) -> bool:  # fmt: skip
        """Have a job read some content; say whether it was kept. It is fetched if it was not."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        item = TransferItem(
            name, len(body), hashlib.sha256(body).hexdigest(), executable=executable
        )
        shelf = self.contents.of(str(self.root), user, copy=copy)
        if shelf.take(item, str(path)):
            assert path.read_bytes() == body
            return True
        path.write_bytes(body)
        shelf.keep(item, str(path))
        return False


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_large_content_is_one_file_that_no_job_may_write(site: Site):
    assert [site.has(f"{job}/in", LARGE) for job in "abc"] == [False, True, True]
    assert len({(site.root / job / "in").stat().st_ino for job in "abc"}) == 1
    assert (site.root / "b" / "in").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("copy, body", [(False, SMALL), (True, LARGE)])
def test_small_content_and_what_is_written_over_is_a_copy(site: Site, copy, body):
    assert [site.has(f"{job}/in", body, copy=copy) for job in "ab"] == [False, True]
    (site.root / "b" / "in").write_bytes(b"mine")
    assert site.has("c/in", body, copy=copy)
    assert (site.root / "a" / "in").read_bytes() == body


def test_content_that_was_changed_in_place_is_brought_again(site: Site):
    site.has("a/in", LARGE)
    (site.root / "a" / "in").chmod(0o600)
    (site.root / "a" / "in").write_bytes(b"y" * SHARED)
    os.utime(site.root / "a" / "in", ns=(1, 1))
    assert [site.has(f"{job}/in", LARGE) for job in "bc"] == [False, True]


def test_a_program_stays_one(site: Site):
    assert not site.has("a/in", LARGE)
    assert site.has("b/in", LARGE, executable=True)
    assert os.access(site.root / "b" / "in", os.X_OK)
    assert not (site.root / "a" / "in").stat().st_mode & 0o111


def test_what_was_used_longest_ago_goes_first(tmp_path: Path):
    site = Site(tmp_path, most=2 * SHARED)
    bodies = [bytes([at]) * SHARED for at in range(3)]
    for at, body in enumerate(bodies[:2]):
        site.has(f"{at}/in", body)
    assert site.has("again/in", bodies[0])
    assert not site.has("2/in", bodies[2])
    assert [site.has(f"x{at}/in", bodies[at]) for at in (0, 2)] == [True, True]
    assert not site.has("y/in", bodies[1])
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_nothing_is_kept_where_nothing_may_be(tmp_path: Path):
    site = Site(tmp_path, most=0)
    assert [site.has(f"{job}/in", SMALL) for job in "ab"] == [False, False]


def test_another_process_finds_what_is_kept(site: Site):
    site.has("a/in", LARGE)
    (site.root / FOLDER / "half.part").write_bytes(b"half")
    later = Site(site.root)
    assert later.has("b/in", LARGE)
    assert len(list((site.root / FOLDER).iterdir())) == 1


def test_who_knows_a_digest_does_not_have_the_file_of_another(site: Site):
    kept = [site.has(f"{at}/in", LARGE, user=user) for at, user in enumerate(["ada", "eve", "ada"])]
    assert kept == [False, False, True]
    later = Site(site.root)
    assert [later.has(f"x{user}/in", LARGE, user=user) for user in ("bob", "eve")] == [False, True]


async def test_one_brings_what_others_wait_for(site: Site):
    brought = 0

    async def job(name: str) -> None:
        nonlocal brought
        async with site.contents.turn("same"):
            await anyio.sleep(0.001)
            brought += not site.has(name, LARGE)

    async with anyio.create_task_group() as tasks:
        for at in range(20):
            tasks.start_soon(job, f"{at}/in")
    assert (brought, site.contents._turns) == (1, {})


async def test_who_waits_for_a_server_lets_others_try(site: Site):
    order: list[str] = []

    async def patient() -> None:
        lanes = TransferSlots(lambda: 1)
        async with site.contents.turn("same") as turn, lanes.one(turn) as sleep:
            order.append("first")
            await sleep(0.05)
            order.append("back")

    async def other() -> None:
        await anyio.sleep(0.01)
        async with site.contents.turn("same"):
            order.append("other")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(patient)
        tasks.start_soon(other)
    with anyio.move_on_after(0.02):
        async with site.contents.turn("same") as turn, TransferSlots(lambda: 1).one(turn) as sleep:
            await sleep(60)
    assert (order, site.contents._turns) == (["first", "other", "back"], {})
