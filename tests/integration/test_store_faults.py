"""A store that cannot be written: said clearly, nothing lost, and work goes on when it can."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import apsw
import pytest

from pilotage import Project
from pilotage.base import crash, errors
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.store import Db, Writer, connect
from tests.rigs.project.project import Rig
from tests.suite import system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system that is soon full; only root may."""
    folder = tmp_path / "disk"
    folder.mkdir()
    system.needs("root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6M", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def submit_many(project: Project) -> None:
    for _ in range(1000):
        project.submit(NewJob(JobSpec(Command(("true",)), "by hand")))


async def test_a_full_disk_waits_and_goes_on(small_disk: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    rig = Rig(small_disk, f'[rule.r]\nfiles = "{raw}/*"\nrun = ["true"]\n')
    async with rig.live() as project:
        (raw / "first").write_text("x")
        await rig.ended(1)
        fill(small_disk)
        for number in range(300):
            (raw / str(number)).write_text("x")
        with pytest.raises(errors.StoreUnavailable) as caught:
            submit_many(project)
        assert "disk is full" in caught.value.message
        assert caught.value.hint
        (small_disk / "filler").unlink()
        await rig.until(lambda: len(rig.jobs("r", State.DONE)) == 301)
    assert len({job.binding.path for job in rig.jobs("r")}) == 301


def test_a_read_only_store_is_said(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.project().close()
    if os.geteuid() == 0:
        subprocess.run(["mount", "--bind", str(tmp_path), str(tmp_path)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(tmp_path)], check=True)
    else:
        (tmp_path / ".pilotage").chmod(0o500)
    try:
        said = subprocess.run(
            [sys.executable, "-m", "pilotage", "submit", "--project", str(tmp_path), "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert said.returncode == 6
    assert "hint:" in said.stderr


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text(
        "this is not a database, but long enough to be looked at" * 20
    )
    with pytest.raises(errors.ConfigError):
        connect(tmp_path / "store.db")


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    connect(tmp_path / "store.db").close()
    raw = apsw.Connection(str(tmp_path / "store.db"))
    raw.pragma("user_version", 99)
    raw.close()
    with pytest.raises(errors.ConfigError, match="newer"):
        connect(tmp_path / "store.db")


def spoil(db: Db) -> float:
    db.run("cursor_set", source="a", value="2")
    return 1 / 0


def test_one_bad_step_does_not_spoil_the_others(tmp_path: Path) -> None:
    writer = Writer(connect(tmp_path / "store.db"))
    good = writer.submit(lambda db: db.run("cursor_set", source="a", value="1"))
    bad = writer.submit(spoil)
    later = writer.submit(lambda db: db.value("cursor_get", source="a"))
    good.result(60)
    with pytest.raises(ZeroDivisionError):
        bad.result(60)
    assert later.result(60) == "1"
    writer.close()


async def test_two_processes_write_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from pilotage import Project\n"
        "from pilotage.job.model import *\n"
        "with Project(Path(sys.argv[1])) as project:\n"
        "    for _ in range(100): project.submit(NewJob(JobSpec(Command(('true',)), 'x')))\n"
    )
    async with rig.live():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(anyio.run_process, [sys.executable, "-c", code, str(tmp_path)])
        await rig.ended(300)
    assert len(rig.jobs("x", State.DONE)) == 300


@pytest.mark.parametrize("count", [1, 300])
async def test_it_stops_although_the_disk_is_full(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    rig = Rig(small_disk, f'[rule.r]\nfiles = "{raw}/*"\nrun = ["sleep", "60"]\n')
    passed: list[str] = []
    monkeypatch.setattr(crash, "point", passed.append)
    said = []
    try:
        with anyio.fail_after(50):
            async with rig.live():
                (raw / "first").write_text("x")
                await rig.until(lambda: rig.jobs("*", State.RUNNING))
                fill(small_disk)
                passed.clear()
                for number in range(count):
                    (raw / str(number)).write_text("x")
                # Also when there is no more to come, at which it could be said.
                await rig.until(lambda: "event.matched" in passed)
    except* errors.StoreUnavailable as group:
        said.append(group)
    assert said, "it tells what could not be written"
    (small_disk / "filler").unlink()
    (raw / "first").unlink()
    async with rig.live():
        await rig.until(lambda: len(rig.jobs()) >= count)
    assert len({job.binding.path for job in rig.jobs()}) == len(rig.jobs())


async def test_it_stops_although_a_job_has_ended_that_cannot_be_written(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    wait = f"touch {begun}; while [ ! -e {gate} ]; do sleep 0.05; done"
    rig = Rig(small_disk)
    passed: list[str] = []
    monkeypatch.setattr(crash, "point", passed.append)
    try:
        async with rig.live() as project:
            project.submit(NewJob(JobSpec(Command(("sh", "-c", wait)), "by hand")))
            await rig.until(begun.exists)
            fill(small_disk)
            gate.touch()
            await rig.until(lambda: "result.received" in passed)
    except* errors.StoreUnavailable:
        # It may have had more to write, such as the number of the process.
        pass
    (small_disk / "filler").unlink()
    assert [job.state for job in rig.jobs()] == [State.RUNNING]
    async with rig.live():
        await rig.ended(1)
    assert [job.state for job in rig.jobs()] == [State.DONE]
