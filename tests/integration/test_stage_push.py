"""Files on their way to a site, through the program that runs there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.data.stage.digest import Digests
from pilotage.data.stage.model import Digest
from pilotage.data.stage.push import Pusher
from pilotage.node.login import cache
from tests.rigs.cluster.staging_site import StagingSite

MIB = 1 << 20
#: More cuts than anyone waits for.
SOAK = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60)]


class Rig:
    """A pusher and its site; `restart` makes a new one that remembers nothing."""

    def __init__(self, folder: Path, *prefix: str) -> None:
        self.folder = folder
        self.far = StagingSite(folder / "site", *prefix)
        self.reports: list[tuple[int, int]] = []
        self.digests = Digests()
        self.pusher = self._make()

    def _make(self) -> Pusher:
        return Pusher(
            self.far, self.far.root, self.digests, report=lambda *facts: self.reports.append(facts)
        )

    async def restart(self) -> None:
        await self.close()
        self.digests = Digests()
        self.pusher = self._make()

    async def close(self) -> None:
        await self.pusher.close()
        self.digests.close()

    def write(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def kept(self) -> dict[str, bytes]:
        found = {}
        for path in Path(self.far.root).glob("cache/*/*"):
            if "." not in path.name:
                found[path.name] = path.read_bytes()
                assert hashlib.sha256(found[path.name]).hexdigest() == path.name
        return found

    def place(self, digest: Digest) -> Path:
        return Path(cache.place(self.far.root, digest.sha256))

    def _check(self, path: str, digest: Digest) -> None:
        content = Path(path).read_bytes()
        assert digest.size == len(content)
        assert self.place(digest).read_bytes() == content

    def parts(self) -> list[Path]:
        return list(Path(self.far.root).glob("cache/*/*.part"))

    async def begun(self) -> None:
        while not self.far.channels:  # noqa: ASYNC110 - there is nothing that could tell
            await asyncio.sleep(0.01)

    async def bring(self, *paths: str) -> int:
        """Bring files, check that the site has them, and say how many bytes moved."""
        self.reports.clear()
        found = await self.pusher.bring(paths)
        for path in paths:
            self._check(path, found[path])
        return max((done for done, _ in self.reports), default=0)


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    await made.close()


async def test_files_of_all_sizes_arrive(rig):
    sizes = [0, 1, 4095, MIB, 4 * MIB - 1, 4 * MIB, 9 * MIB + 3]
    paths = [rig.write(f"f{n}", os.urandom(size)) for n, size in enumerate(sizes)]
    assert await rig.bring(*paths) > 0
    assert rig.far.channels == ["receive", "receive"]
    assert await rig.bring(*paths) == 0
    assert len(rig.far.channels) == 2


@pytest.mark.parametrize("size", [1000, 30 * MIB])
async def test_a_hundred_jobs_on_one_file_move_it_once(rig, size):
    path = rig.write("one", os.urandom(size))
    await asyncio.gather(*(rig.pusher.bring([path]) for _ in range(100)))
    assert rig.far.channels == ["receive"]
    assert max(done for done, _ in rig.reports) == size
    assert len(rig.far.calls) < 10


async def test_a_thousand_small_files_need_few_channels(rig):
    paths = [rig.write(f"f{n}", b"%d" % (n % 900)) for n in range(1000)]
    await asyncio.gather(*(rig.pusher.bring([path]) for path in paths))
    assert len(rig.kept()) == 900
    assert len(rig.far.channels) < 20


async def test_the_same_content_by_other_names_moves_once(rig):
    content = os.urandom(6 * MIB)
    paths = [rig.write(f"f{n}", content) for n in range(5)]
    assert await rig.bring(*paths) == len(content)
    assert len(rig.kept()) == 1


async def test_after_a_restart_nothing_moves_or_is_read(rig):
    path = rig.write("one", os.urandom(5 * MIB))
    # A version that is too young is not trusted.
    await asyncio.sleep(0.15)
    await rig.bring(path)
    await rig.restart()
    assert await rig.bring(path) == 0
    assert rig.digests.known((await rig.digests.versions([path]))[0]) is not None
    os.utime(path)
    await rig.restart()
    assert await rig.bring(path) == 0


async def test_a_changed_file_moves_and_one_that_is_as_before_does_not(rig):
    content = os.urandom(8 * MIB)
    path = rig.write("one", content)
    assert await rig.bring(path) == len(content)
    rig.write("one", content[:-1])
    assert await rig.bring(path) == len(content) - 1
    rig.write("one", content)
    assert await rig.bring(path) == 0


@pytest.mark.parametrize("seed", [0, 1, *SOAK])
async def test_a_cut_anywhere_is_gone_on_with(rig, seed):
    chance = random.Random(seed)
    content = chance.randbytes(30 * MIB)
    paths = [rig.write("big", content), *(rig.write(f"s{n}", b"%d" % n) for n in range(20))]
    for channel in range(8):
        rig.far.cuts[channel] = chance.randrange(12 * MIB)
    for _ in range(12):
        rig.reports.clear()
        try:
            await rig.pusher.bring(paths)
        except errors.Unavailable:
            rig.kept()
            if chance.random() < 0.3:
                await rig.restart()
            continue
        break
    assert content in rig.kept().values()
    assert len(rig.kept()) == 21
    assert not rig.parts()


async def test_after_a_cut_only_the_rest_moves(rig):
    path = rig.write("big", os.urandom(40 * MIB))
    rig.far.cuts[0] = 33 * MIB
    with pytest.raises(errors.Unavailable, match="lost"):
        await rig.pusher.bring([path])
    await rig.restart()
    assert await rig.bring(path) <= 12 * MIB


async def test_a_full_disk_at_the_site_is_said(tmp_path):
    rig = Rig(tmp_path, "prlimit", f"--fsize={6 * MIB}")
    path = rig.write("big", os.urandom(12 * MIB))
    try:
        with pytest.raises(errors.Unavailable, match="disk is full"):
            await rig.pusher.bring([path])
        rig.far._prefix = ()
        assert rig.parts()
        # It goes on with the part unless its digest became known meanwhile, and with that a name.
        assert await rig.bring(path) <= 12 * MIB
    finally:
        await rig.close()


async def test_a_file_that_changes_while_it_is_sent_is_sent_as_it_is_then(rig):
    path = rig.write("big", os.urandom(24 * MIB))
    real = rig.far.bulk

    async def bulk(*words, **ends):
        rig.far.bulk = real
        rig.write("big", os.urandom(20 * MIB))
        return await real(*words, **ends)

    rig.far.bulk = bulk
    await rig.bring(path)


async def test_a_file_that_changes_all_the_time_is_given_up(rig):
    path = rig.write("big", os.urandom(5 * MIB))
    real = rig.far.bulk

    async def bulk(*words, **ends):
        rig.write("big", os.urandom(5 * MIB))
        return await real(*words, **ends)

    rig.far.bulk = bulk
    with pytest.raises(errors.Conflict, match="changes while"):
        await rig.pusher.bring([path])


async def test_one_missing_file_does_not_stop_the_others(rig):
    path = rig.write("one", b"content")
    with pytest.raises(errors.NotFound):
        await rig.pusher.bring([path, str(rig.folder / "none")])
    await rig.bring(path)


async def test_who_goes_away_does_not_stop_it_for_others(rig):
    path = rig.write("big", os.urandom(20 * MIB))
    first = asyncio.create_task(rig.pusher.bring([path]))
    second = asyncio.create_task(rig.pusher.bring([path]))
    await rig.begun()
    first.cancel()
    await second
    assert rig.far.channels == ["receive"]


async def test_closing_ends_what_is_on_its_way(rig):
    path = rig.write("big", os.urandom(200 * MIB))
    waiting = asyncio.create_task(rig.pusher.bring([path]))
    await rig.begun()
    await rig.pusher.close()
    with pytest.raises(errors.Unavailable):
        await waiting


async def test_a_site_that_answers_nonsense_is_not_believed(rig):
    async def call(op, **values):
        return {"have": 7}

    rig.far.call = call
    with pytest.raises(errors.Unavailable, match="invalid answer"):
        await rig.pusher.bring([rig.write("one", b"x")])
