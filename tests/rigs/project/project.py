"""A project in a temporary folder and the process that runs it, for tests that kill and restart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from pilotage.hub import process
from pilotage.hub.project import Project
from pilotage.job import machine
from pilotage.job.model import Job, State
from pilotage.job.records import Selection
from tests.suite import programs
from tests.suite.programs import PATIENCE


class Rig:
    """A project to play with; rules are TOML text."""

    def __init__(self, root: Path, rules: str = "", settings: str = "") -> None:
        self.root = root
        (root / "rules").mkdir(parents=True, exist_ok=True)
        (root / "pilotage.toml").write_text(settings)
        self.rules(rules)

    def rules(self, source: str, name: str = "book.toml") -> None:
        """Put a book in the rules folder, at once and whole."""
        temporary = self.root / "rules" / f".{name}"
        temporary.write_text(source)
        temporary.rename(self.root / "rules" / name)

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start `pilotage up`."""
        command = [sys.executable, "-m", "pilotage", "up", "--project", str(self.root), *args]
        with self._said.open("w") as said:
            return subprocess.Popen(
                command, env={**os.environ, **(env or {})}, stdout=said, stderr=subprocess.STDOUT
            )

    @property
    def _said(self) -> Path:
        return self.root / ".said"

    @property
    def said(self) -> str:
        """What the last process printed."""
        return self._said.read_text()

    def run(self, env: dict[str, str] | None = None) -> int:
        """Run until nothing is left to do; return the exit status."""
        return programs.wait(self.start("--until-idle", env=env))

    @contextmanager
    def up(self, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Have it run while the block does."""
        process = self.start(env=env)
        with self.project() as project:
            programs.until_ready(process, project.ready, lambda: self.said)
        try:
            yield process
        finally:
            alive = process.poll() is None
            programs.end(process)
            assert alive, self.said

    @asynccontextmanager
    async def live(self, serve: Callable[[str], None] | None = None) -> AsyncIterator[Project]:
        """Have it run in this process while the block does; quicker than `up`."""
        ready = anyio.Event()
        with self.project() as project:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: process.up(project, ready=ready.set, serve=serve))
                await ready.wait()
                yield project
                tasks.cancel_scope.cancel()

    async def finish(self) -> None:
        """Run in this process until nothing is left to do; quicker than `run`."""
        with self.project() as project, anyio.fail_after(PATIENCE):
            await process.up(project, until_idle=True)
        assert not self.jobs("*", State.FAILED, State.REJECTED), self.state()

    async def until(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        """Wait for a condition without keeping the loop from running."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.state()
            await anyio.sleep(0.02)

    async def ended(self, count: int, name: str = "*") -> list[Job]:
        """Wait until so many jobs ended, whatever way."""
        await self.until(lambda: len(self.jobs(name, *machine.FINAL)) >= count)
        return self.jobs(name, *machine.FINAL)

    def output(self, job: Job, name: str = "stdout") -> str:
        """Read what the last attempt of a job wrote."""
        with self.project() as project:
            return Path(project.attempts(job.id)[-1].dir, name).read_text()

    def project(self) -> Project:
        """Open the project as a command would."""
        return Project(self.root)

    def jobs(self, name: str = "*", *states: State) -> list[Job]:
        """Read jobs."""
        with self.project() as project:
            return project.jobs(Selection(name=name, states=states))

    def wait(self, condition: Callable[[Project], object], patience: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + patience
        with self.project() as project:
            while not condition(project):
                assert time.monotonic() < deadline, self.state()
                time.sleep(0.02)

    def wait_jobs(self, count: int, name: str = "*", state: State = State.DONE) -> list[Job]:
        """Wait until so many jobs are in a state."""
        selection = Selection(name=name, states=(state,))
        self.wait(lambda project: len(project.jobs(selection)) >= count)
        return self.jobs(name, state)

    def state(self) -> str:
        """Say how things stand, for messages."""
        with self.project() as project:
            return f"{project.db.rows('job_counts')}"
