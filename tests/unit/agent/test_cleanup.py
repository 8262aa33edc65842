"""What is over is kept for a while: then rows go, and files after them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.agent import cleanup as janitor_
from pilotage.agent import records
from pilotage.agent import settings as settings_
from pilotage.agent.cleanup import Cleanup
from pilotage.agent.model import RefusedMessage
from pilotage.hub.project import Project
from pilotage.job import moves
from pilotage.job.model import State
from pilotage.job.records import Selection
from pilotage.job.retry import Next
from pilotage.store import Writer, connect
from tests.rigs.broker.agent_without_bus import ALICE, Edge

DAY = 86_400.0


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    made = Edge(tmp_path / "agent")
    made.app("plain", "true")
    return made


@pytest.fixture
def writer(edge: Edge) -> Iterator[Writer]:
    with Project(edge.root) as project:
        path = project.db.path
    made = Writer(connect(path))
    yield made
    made.close()


def janitor(edge: Edge, writer: Writer, now: float, root: Path | None) -> Cleanup:
    found = settings_.read(edge.root / "agent.toml")
    place = str(root) if root else None
    return Cleanup(edge.root / ".pilotage", writer, lambda: found, lambda: now, lambda: place)


def end(edge: Edge, job: int, state: State, *, said: bool = True) -> None:
    """Let a job end, and have all told of it, or not."""
    with Project(edge.root) as project, project.change() as db:
        now = project.clock.now()
        if state is not State.QUEUED:
            db.run("job_ask", id=job, asked="")
            old = State.QUEUED
            if state in (State.DONE, State.FAILED):
                moves.move(db, job, 0, old, Next(State.STAGING_IN, ""), now=now)
                old = State.STAGING_IN
                for following in (State.READY, State.SUBMITTED, State.RUNNING):
                    moves.move(db, job, 0, old, Next(following, ""), now=now)
                    old = following
            moves.move(db, job, 0, old, Next(state, ""), now=now)
        if said:
            records.sent(db, [one.id for one in records.unsent(db, 0, 1000) if one.job == job])


def left(edge: Edge) -> list[int]:
    with Project(edge.root) as project:
        return sorted(one.id for one in project.jobs(Selection()))


async def test_each_is_kept_as_long_as_its_end_says(edge, writer, tmp_path):
    root = tmp_path / "root"
    jobs = {state: edge.post("plain") for state in (State.DONE, State.FAILED, State.QUEUED)}
    silent = edge.post("plain")
    for state, job in jobs.items():
        end(edge, job, state)
    end(edge, silent, State.DONE, said=False)
    kept = edge.root / ".pilotage" / "edge"
    for job in (*jobs.values(), silent):
        for name in (f"{job}.1", f"{job}.2", f"{job}.1.in"):
            (root / "edge" / name).mkdir(parents=True)
        kept.mkdir(exist_ok=True)
        (kept / f"{job}.1.json").touch()
    (root / "edge" / "another's").mkdir()
    now = time.time()
    assert await janitor(edge, writer, now + DAY, root).forget() == 0
    week = janitor(edge, writer, now + 8 * DAY, root)
    assert await week.forget() == 1
    assert await week.sweep()
    assert left(edge) == sorted([jobs[State.FAILED], jobs[State.QUEUED], silent])
    names = {one.name for one in (root / "edge").iterdir()}
    assert not any(one.startswith(f"{jobs[State.DONE]}.") for one in names)
    assert {"another's", f"{silent}.1", f"{jobs[State.QUEUED]}.1.in"} <= names
    assert not (kept / f"{jobs[State.DONE]}.1.json").exists()
    assert (kept / f"{silent}.1.json").exists()
    assert list((root / "edge" / ".trash").iterdir()) == []
    year = janitor(edge, writer, now + 365 * DAY, root)
    assert await year.forget() == 1
    # The job that waits lives, and of the other not everything has been said.
    assert left(edge) == sorted([jobs[State.QUEUED], silent])


async def test_folders_that_were_shut_and_links_are_removed(edge, writer, tmp_path):
    root = tmp_path / "root"
    shut = root / "edge" / "99.1" / "a" / "b"
    shut.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (root / "edge" / "99.1" / "link").symlink_to(tmp_path / "outside")
    (root / "edge" / "98.1").symlink_to(tmp_path / "outside")
    shut.parent.chmod(0)
    (root / "edge" / "99.1").chmod(0)
    assert await janitor(edge, writer, 0.0, root).sweep()
    assert [one.name for one in (root / "edge").iterdir()] == [".trash"]
    assert list((root / "edge" / ".trash").iterdir()) == []
    assert (tmp_path / "outside" / "file").exists()


async def test_without_a_connection_it_comes_again(edge, writer):
    assert not await janitor(edge, writer, 0.0, None).sweep()


async def test_refused_messages_are_forgotten_too(edge, writer):
    one = RefusedMessage("d" * 64, 1000.0, ALICE, "job.edge", "denied", "no", 2, b"{}", 1)
    writer.do(lambda db: records.store_refused(db, one))
    await janitor(edge, writer, 1000.0 + 29 * DAY, None).forget()
    assert len(writer.do(lambda db: records.refused(db, 10))) == 1
    await janitor(edge, writer, 1000.0 + 31 * DAY, None).forget()
    assert writer.do(lambda db: records.refused(db, 10)) == []


def test_a_folder_that_its_payload_has_shut_is_removed_by_who_is_not_root(tmp_path: Path):
    """Such a folder cannot be moved; those that come after it are removed all the same."""
    for name in ("7.1", "8.1"):
        (tmp_path / name / "in").mkdir(parents=True)
    nobody = 65534
    for path in (tmp_path, *tmp_path.rglob("*")):
        if os.getuid() == 0:
            os.chown(path, nobody, nobody)
    (tmp_path / "7.1" / "in").chmod(0)
    (tmp_path / "7.1").chmod(0o500)
    child = os.fork()
    if not child:
        try:
            os.chdir(tmp_path)
            if os.getuid() == 0:
                os.setuid(nobody)
            janitor_._discard(Path(), ["7.1", "8.1"])
            janitor_._empty(Path(janitor_._TRASH))
        finally:
            os._exit([*Path().rglob("*")] != [Path(janitor_._TRASH)])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
