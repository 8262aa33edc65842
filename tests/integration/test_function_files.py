"""Functions with files and programs, from Python: on this machine and on pilots."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

import pilotage
from pilotage.base import errors
from pilotage.base.owner import me
from pilotage.client import AsyncClient, Client, Executor
from pilotage.project import tokens
from tests.rigs.node.real_hub import RealHub, blind, enrolled, running
from tests.rigs.node.scripted_hub import wait_for
from tests.rigs.project import file_calls
from tests.suite.programs import PATIENCE

_BOXED = 'heartbeat = "1s"\nlease = "20s"\nsandbox = "bubblewrap"\n'


@contextmanager
def connected(hub: RealHub, owner: str = "") -> Iterator[Client]:
    token = hub.token(tokens.TokenScope.USER, owner or me())
    with pilotage.connect(hub.url, token=token, ca=hub.ca or None) as client:
        yield client


def test_calls_with_files_on_this_machine(tmp_path):
    with running(tmp_path / "project", local=True) as hub, connected(hub) as client:
        file_calls.make(hub.root)
        file_calls.works(client, hub.root)
        _left(client)


@pytest.mark.needs("bwrap")
def test_calls_with_files_on_a_pilot_that_does_not_see_the_project(tmp_path):
    with running(tmp_path / "project") as hub, connected(hub) as client:
        file_calls.make(hub.root)
        with blind(hub, tmp_path / "p"):
            file_calls.works(client, hub.root)
            _left(client)


@pytest.mark.needs("bwrap")
def test_calls_with_files_in_a_sandbox_of_such_a_pilot(tmp_path):
    with running(tmp_path / "project", pilots=_BOXED) as hub, connected(hub) as client:
        file_calls.make(hub.root)
        with blind(hub, tmp_path / "p"):
            file_calls.works(client, hub.root)
            _left(client)


def test_calls_with_files_on_a_pilot_that_sees_the_project(tmp_path):
    with running(tmp_path / "project") as hub, connected(hub) as client:
        file_calls.make(hub.root)
        with enrolled(hub, tmp_path / "p"):
            file_calls.works(client, hub.root)

            def where(path):
                import os

                return os.path.realpath(path)

            # Nothing is copied.
            found = client.submit(where, pilotage.File("in/plain.txt")).result(PATIENCE)
            assert found == str(hub.root / "in/plain.txt")


def test_files_of_others_are_refused_wherever_a_job_would_run(tmp_path):
    def read(path):
        return path.read_text()

    with running(tmp_path / "project") as hub, connected(hub, "stranger") as client:
        file_calls.make(hub.root)
        (hub.root / ".secret").write_text("x")
        with blind(hub, tmp_path / "p"):
            future = client.submit(read, pilotage.File("in/plain.txt"))
            assert future.result(PATIENCE) == "in/plain.txt\n"
            with pytest.raises(errors.JobFailed, match="may not name"):
                client.submit(read, pilotage.File(".secret")).result(PATIENCE)


def _left(client: Client) -> None:
    """Require that a call without files is told what it has left."""

    def leave():
        from pathlib import Path

        before = [str(path) for path in Path().iterdir()]
        Path("left.txt").touch()
        return before

    for _ in range(2):
        future = client.submit(leave)
        assert future.result(PATIENCE) == []
        assert future.left == ["left.txt"]


def test_pools_and_event_loops_take_files_too(tmp_path):
    def copy(source, target):
        target.write_text(source.read_text())
        return target.name

    def make(name: str) -> tuple[pilotage.File, pilotage.File]:
        return pilotage.File("in/plain.txt"), pilotage.File(f"out/{name}", output=True)

    async def main(hub: RealHub) -> None:
        token = hub.token(tokens.TokenScope.USER, me())
        async with AsyncClient(hub.url, token, hub.ca or None) as client:
            assert await client.submit(copy, *make("a"), cpus=1) == "a"
            found = [one async for one in client.map(copy, *zip(make("b"), make("c"), strict=True))]
            assert found == ["b", "c"]
            ended = await client.submit(["touch", "out/d"], outputs=["out/d"])
            assert ended.state == "done"

    with running(tmp_path / "project", local=True) as hub, connected(hub) as client:
        file_calls.make(hub.root)
        anyio.run(main, hub)
        with Executor(client, retries=1) as pool:
            assert pool.submit(copy, *make("e")).result(PATIENCE) == "e"
        assert sorted(path.name for path in (hub.root / "out").iterdir()) == list("abcde")


def test_a_call_with_files_outlives_its_hub_and_is_made_once(tmp_path):
    def slow(place, source, target):
        import time
        from pathlib import Path

        with Path(place, "ledger").open("a") as ledger:
            ledger.write("begun\n")
        while not Path(place, "gate").exists():
            time.sleep(0.02)
        target.write_text(source.read_text())
        return 7

    with running(tmp_path / "project", local=True) as hub, connected(hub) as client:
        file_calls.make(hub.root)
        files = pilotage.File("in/plain.txt"), pilotage.File("out/slow", output=True)
        future = client.submit(slow, str(tmp_path), *files)
        wait_for((tmp_path / "ledger").exists)
        hub.kill()
        (tmp_path / "gate").touch()
        # It goes on without a hub, and its output is where it belongs.
        wait_for((hub.root / "out/slow").exists)
        hub.start(local=True)
        assert future.result(PATIENCE) == 7
        assert (tmp_path / "ledger").read_text() == "begun\n"
        assert (hub.root / "out/slow").read_text() == "in/plain.txt\n"


def test_what_calls_leave_is_logged(tmp_path, caplog):
    def leave(number):
        from pathlib import Path

        Path(f"left-{number}.txt").touch()

    with running(tmp_path / "project", local=True) as hub, connected(hub) as client:
        with caplog.at_level(logging.WARNING, logger="pilotage.client"):
            list(client.map(leave, range(3), chunksize=3))
        assert "'left-0.txt', 'left-1.txt', 'left-2.txt'" in caplog.text
        job = client.jobs(name="leave")[0]["id"]
        said = hub.root / ".pilotage/jobs"
        assert job
        assert any("removed 'left-1.txt'" in one.read_text() for one in said.rglob("stderr"))
