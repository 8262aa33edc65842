"""Files on their way home, from a site that is not trusted."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from pilotage.base import durable, errors
from pilotage.data.stage.model import Digest, WantedFile, WantedFolder
from pilotage.data.stage.pull import Puller
from tests.rigs.cluster.staging_site import StagingSite

MIB = 1 << 20
#: More cuts than anyone waits for.
SOAK = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 50)]


class Rig:
    def __init__(self, folder: Path) -> None:
        self.far = StagingSite(folder / "site")
        self.site = folder / "site" / "s"
        self.home = folder / "home"
        self.home.mkdir()
        self.site.mkdir()
        self.moved = 0
        self.puller = Puller(self.far, self.far.root, report=self._note)

    def _note(self, done: int, total: int) -> None:
        assert done <= total
        self.moved = done

    def made(self, name: str, content: bytes) -> Digest:
        path = self.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Digest(hashlib.sha256(content).hexdigest(), len(content))

    def wanted(self, name: str, content: bytes, local: str = "") -> WantedFile:
        digest = self.made(name, content)
        return WantedFile(
            remote=str(self.site / name),
            local=str(self.home / (local or name)),
            size=digest.size,
            sha256=digest.sha256,
        )

    def folder(self, name: str, files: dict[str, bytes]) -> WantedFolder:
        listed = {one: self.made(f"{name}/{one}", content) for one, content in files.items()}
        return WantedFolder(remote=str(self.site / name), local=str(self.home / name), files=listed)

    def here(self) -> dict[str, bytes]:
        paths = [path for path in self.home.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.home)): path.read_bytes() for path in paths}

    def replace(self, program: str) -> None:
        """Let another program answer in place of ours."""

        async def bulk(words, *, stdin=None, stdout=None):
            ends = {"stdin": PIPE, "stdout": stdout, "stderr": PIPE}
            return await asyncio.create_subprocess_exec(sys.executable, "-c", program, **ends)

        self.far.bulk = bulk  # type: ignore[method-assign]


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    await made.puller.close()


async def test_files_of_all_sizes_come_home(rig):
    sizes = [0, 1, 4095, MIB, 4 * MIB, 9 * MIB + 3]
    contents = {f"d/f{n}": os.urandom(size) for n, size in enumerate(sizes)}
    await rig.puller.fetch([rig.wanted(name, content) for name, content in contents.items()])
    assert rig.here() == contents
    assert rig.far.channels == ["send", "send"]


async def test_many_jobs_that_end_at_once_share_channels(rig):
    wanted = [rig.wanted(f"f{n}", b"%d" % n) for n in range(300)]
    await asyncio.gather(*(rig.puller.fetch([one]) for one in wanted))
    assert len(rig.here()) == 300
    assert len(rig.far.channels) < 10


async def test_what_is_there_is_replaced_and_a_program_can_be_run(rig):
    wanted = rig.wanted("tool", b"#!/bin/sh\n")
    (rig.site / "tool").chmod(0o755)
    (rig.home / "tool").write_bytes(b"old")
    await rig.puller.fetch([wanted])
    assert rig.here() == {"tool": b"#!/bin/sh\n"}
    assert os.access(rig.home / "tool", os.X_OK)


async def test_a_new_folder_appears_whole(rig):
    files = {"a": b"1", "deep/b": os.urandom(5 * MIB), "deep/er/c": b""}
    folder = rig.folder("out", files)
    rig.far.cuts[0] = rig.far.cuts[1] = 300
    with pytest.raises(errors.Unavailable, match="lost"):
        await rig.puller.fetch([folder])
    assert not (rig.home / "out").exists()
    await rig.puller.fetch([folder, rig.folder("empty", {})])
    assert rig.here() == {f"out/{name}": content for name, content in files.items()}
    assert sorted(one.name for one in rig.home.iterdir()) == ["empty", "out"]


async def test_a_folder_that_is_there_is_filled_file_by_file(rig):
    (rig.home / "out" / "deep").mkdir(parents=True)
    (rig.home / "out" / "mine").write_bytes(b"stays")
    await rig.puller.fetch([rig.folder("out", {"deep/b": b"2", "a": b"1"})])
    assert rig.here() == {"out/mine": b"stays", "out/deep/b": b"2", "out/a": b"1"}


@pytest.mark.parametrize("hostile", ["../x", "/etc/x", "a/../../x", "", "a\0b"])
async def test_hostile_names_are_refused_before_anything_moves(rig, hostile):
    folder = WantedFolder(
        remote=str(rig.site), local=str(rig.home / "out"), files={hostile: Digest("0" * 64, 1)}
    )
    with pytest.raises(errors.Denied):
        await rig.puller.fetch([folder])
    assert not rig.far.channels
    assert not any(rig.home.iterdir())


@pytest.mark.parametrize(
    "digest", [Digest("/../../../x", 1), Digest("0" * 63, 1), Digest("0" * 64, -1)]
)
async def test_hostile_digests_are_refused_before_anything_moves(rig, digest):
    folder = WantedFolder(remote=str(rig.site), local=str(rig.home / "out"), files={"a": digest})
    facts = {"size": digest.size, "sha256": digest.sha256}
    wanted = WantedFile(remote=str(rig.site / "a"), local=str(rig.home / "a"), **facts)
    for one in (folder, wanted):
        with pytest.raises(errors.Denied):
            await rig.puller.fetch([one])
    assert not rig.far.channels
    assert not any(rig.home.iterdir())


async def test_a_link_out_of_a_folder_here_is_not_followed(rig, tmp_path):
    (rig.home / "out").mkdir()
    (rig.home / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(errors.Denied):
        await rig.puller.fetch([rig.folder("out", {"link/x": b"evil"})])
    assert not (tmp_path / "x").exists()


async def test_what_lies_outside_of_the_root_is_not_sent(rig, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (rig.site / "link").symlink_to(tmp_path / "secret")
    sha = hashlib.sha256(b"secret").hexdigest()
    outside = (tmp_path / "secret", rig.site / "link", rig.site / ".." / ".." / "secret")
    for path in (*outside, Path("/proc/self/environ")):
        wanted = WantedFile(remote=str(path), local=str(rig.home / "x"), size=6, sha256=sha)
        with pytest.raises(errors.Denied):
            await rig.puller.fetch([wanted])
    os.mkfifo(rig.site / "pipe")
    wanted = WantedFile(
        remote=str(rig.site / "pipe"), local=str(rig.home / "x"), size=6, sha256=sha
    )
    with pytest.raises(errors.Denied):
        await rig.puller.fetch([wanted])
    assert not any(rig.home.iterdir())


async def test_a_file_that_is_gone_is_said_and_the_others_come(rig):
    gone, other = rig.wanted("gone", b"1"), rig.wanted("other", b"2")
    (rig.site / "gone").unlink()
    with pytest.raises(errors.NotFound):
        await rig.puller.fetch([gone, other])
    assert rig.here() == {"other": b"2"}


@pytest.mark.parametrize("content", [b"other", b"shorter or longer"])
async def test_a_file_that_is_not_what_was_announced_is_not_shown(rig, content):
    wanted = rig.wanted("file", b"right")
    (rig.site / "file").write_bytes(content)
    (rig.home / "file").write_bytes(b"before")
    with pytest.raises(errors.Conflict, match="not what the job left"):
        await rig.puller.fetch([wanted])
    assert rig.here() == {"file": b"before"}


@pytest.mark.parametrize("seed", [0, 1, *SOAK])
async def test_a_cut_anywhere_is_gone_on_with(rig, seed):
    chance = random.Random(seed)
    contents = {"big": chance.randbytes(20 * MIB), "small": b"1", "deep/small": b"2"}
    wanted = [rig.wanted(name, content) for name, content in contents.items()]
    rig.far.cuts = {channel: chance.randrange(9 * MIB) for channel in range(6)}
    for _ in range(10):
        try:
            await rig.puller.fetch(wanted)
        except errors.Unavailable:
            here = {name: data for name, data in rig.here().items() if not name.endswith(".part")}
            assert here.items() <= contents.items()
            continue
        break
    assert rig.here() == contents


async def test_after_a_cut_only_the_rest_moves(rig):
    wanted = rig.wanted("big", os.urandom(40 * MIB))
    rig.far.cuts[0] = 33 * MIB
    with pytest.raises(errors.Unavailable):
        await rig.puller.fetch([wanted])
    await rig.puller.fetch([wanted])
    assert 0 < rig.moved < 9 * MIB


async def test_a_part_that_was_spoiled_is_fetched_again(rig):
    content = os.urandom(12 * MIB)
    wanted = rig.wanted("big", content)
    part = Path(durable.aside(wanted.local, wanted.sha256)).name
    (rig.home / part).write_bytes(os.urandom(8 * MIB))
    await rig.puller.fetch([wanted])
    assert rig.here() == {"big": content}


async def test_a_full_disk_here_is_said_and_nothing_half_is_shown(rig):
    content = os.urandom(12 * MIB)
    wanted = rig.wanted("big", content)
    (rig.home / "big").write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 * MIB, limits[1]))
    try:
        with pytest.raises(errors.Unavailable, match="disk here is full"):
            await rig.puller.fetch([wanted])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (rig.home / "big").read_bytes() == b"before"
    await rig.puller.fetch([wanted])
    assert rig.here() == {"big": content}


async def test_a_folder_in_the_way_of_a_file_is_said(rig):
    (rig.home / "file").mkdir()
    with pytest.raises(errors.Conflict, match="is a folder"):
        await rig.puller.fetch([rig.wanted("file", b"1")])
    (rig.home / "out").write_bytes(b"")
    with pytest.raises(errors.Conflict, match="not a folder"):
        await rig.puller.fetch([rig.folder("out", {"a": b"1"})])


@pytest.mark.parametrize(
    "program",
    [
        "print('hello')",
        "print('[1]')",
        "print('{}')",
        'print(\'{"size": 99999999999999, "offset": 0}\')',
        'print(\'{"size": 5, "offset": 3}\')',
        "import sys; sys.stdout.write('x' * 1000000)",
        "import sys; print('Permission denied', file=sys.stderr); sys.exit(255)",
    ],
)
async def test_a_site_that_talks_nonsense_harms_nothing(rig, program):
    wanted = rig.wanted("file", b"12345")
    rig.replace(program)
    with pytest.raises(errors.Unavailable):
        await rig.puller.fetch([wanted])
    assert "file" not in rig.here()


async def test_closing_ends_what_is_on_its_way(rig):
    wanted = rig.wanted("file", b"12345")
    rig.replace("import time; time.sleep(60)")
    waiting = asyncio.create_task(rig.puller.fetch([wanted]))
    await asyncio.sleep(0.2)
    await rig.puller.close()
    with pytest.raises(errors.Unavailable):
        await waiting
