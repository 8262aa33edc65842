"""An agent without a bus: messages are put into its store, and it does with them what it would.

`python -m tests.rigs.broker.agent_without_bus ROOT` is its process, which may be killed.
Applications are scripts that each append a line to a ledger: it tells what ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from asyncio import run
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from pilotage.agent import admission, records
from pilotage.agent import settings as settings_
from pilotage.agent.app import files
from pilotage.agent.app.model import Application, Staging
from pilotage.agent.cleanup import Cleanup
from pilotage.agent.data import JobData
from pilotage.agent.model import Accepted
from pilotage.agent.registry import Registry
from pilotage.base import clock
from pilotage.batch.connections import SiteConnections
from pilotage.batch.driver import SubmissionDriver
from pilotage.batch.place import BatchPlace
from pilotage.batch.tunnels import Tunnels
from pilotage.hub.project import Project
from pilotage.job import machine
from pilotage.job.model import Job, State
from pilotage.job.records import Selection
from pilotage.match.queue import JobQueue
from pilotage.pilot import pack
from pilotage.project import settings
from pilotage.run.local import JobListener
from pilotage.store import Writer, connect

SITE = "edge"
ALICE = "CN=alice"
#: Generous: the machine may be busy.
PATIENCE = 60.0
HERE = Path(__file__).parents[3]
_SETTINGS = """
site = "{site}"
[bus]
url = "amqp://127.0.0.1/"
[batch]
batch = "local"
folder = "{folder}"
poll = "0.5s"
settle = "0.5s"
{more}
"""


async def serve(root: Path) -> None:
    """Do all that an agent does but for the bus."""
    project = Project(root)
    writer = Writer(connect(project.db.path))
    queue = JobQueue(
        writer, settings.matcher(project.settings), str(project.state / "jobs"), project.clock,
        clock.dice(),
    )  # fmt: skip
    found = settings_.read(root / "agent.toml")
    ways = SiteConnections(project, writer, pack.archive())

    async def work(name: str, driver: SubmissionDriver, _: Tunnels) -> None:
        remote = driver.remote
        data = JobData(
            remote, writer, project.state, Registry(root), lambda: found, project.clock.now
        )
        place = settings.place(project.settings, project.root)
        direct = BatchPlace(name, driver, queue, writer, place, data, JobListener())
        janitor = Cleanup(
            project.state, writer, lambda: found, project.clock.now,
            lambda: remote.hello.root if remote.up else None,
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            for one in (remote.keep, driver.run, direct.run, janitor.run):
                tasks.start_soon(one)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ways.keep, found.site, found.batch, work)
        while True:
            queue.poke()
            await anyio.sleep(0.1)


class Edge:
    """The folder of an agent, its applications, and its process."""

    def __init__(self, root: Path, more: str = '[limits]\nfree = "1M"\n') -> None:
        self.root = root
        self.ledger = root / "ledger"
        self.folder = root / "site"
        self.programs = root / "programs"
        for folder in (root / "apps", self.folder, self.programs):
            folder.mkdir(parents=True)
        self.ledger.touch()
        self.settle(more)
        self._process: subprocess.Popen[bytes] | None = None
        self._posted = 0

    def settle(self, more: str) -> None:
        """Write the settings."""
        file = self.root / "agent.toml"
        file.write_text(_SETTINGS.format(site=SITE, folder=self.folder, more=more))
        file.chmod(0o644)

    # -- applications ----------------------------------------------------------------------------

    def program(self, name: str, script: str) -> tuple[str, str]:
        """Write a program that says in the ledger that it ran; return it and its SHA-256."""
        file = self.programs / name
        line = f'echo "{name} ${{PILOTAGE_JOB:-$(basename "$PWD")}}" >> {self.ledger}'
        file.write_text(f"#!/bin/sh\n{line}\n{script}\n")
        file.chmod(0o755)
        return str(file), files.digest(str(file))

    def app(
        self, name: str, script: str, *, before: str = "", after: str = "", **facts: Any
    ) -> None:
        """Register an application, with what runs before and after it."""
        pins: dict[str, str] = facts.pop("pins", {})
        executable, sha256 = self.program(name, script)
        for key, more in (("preprocess", before), ("postprocess", after)):
            if more:
                path, pins[path] = self.program(f"{name}-{key}", more)
                facts[key] = (path, *facts.pop(f"{key}_args", ()))
        app = Application(executable=executable, sha256=sha256, pins=pins, **facts)
        files.file_of(self.root, name).unlink(missing_ok=True)
        files.write(self.root, name, app)

    def reach(self, *roots: Path, port: int = 0) -> Staging:
        """Let an application use folders here, and a web server here."""
        return Staging(
            protocols=("file", "http") if roots else ("http",),
            hosts=(f"127.0.0.1:{port}",) if port else (),
            private=("127.0.0.0/8",),
            roots=tuple(map(str, roots)),
        )

    # -- jobs ------------------------------------------------------------------------------------

    def post(self, application: str, **facts: Any) -> int:
        """Have a message become a job."""
        self._posted += 1
        head = {"v": 1, "kind": "job", "site": SITE, "application": application}
        body = msgspec.json.encode({**head, "key": f"job-{self._posted}", **facts})
        found = settings_.read(self.root / "agent.toml")
        verdict = admission.judge(body, ALICE, Registry(self.root).find, found)
        assert isinstance(verdict, Accepted), verdict
        with Project(self.root) as project, project.change() as db:
            return records.accept(db, ALICE, verdict, State.QUEUED, "", project.clock.now())

    def job(self, number: int) -> Job:
        with Project(self.root) as project:
            return project.job(number)

    def step(self, number: int) -> str:
        """Say what was done with a job last."""
        with Project(self.root) as project:
            return records.facts(project.db, number).step

    def states(self, number: int) -> list[tuple[str, str]]:
        """Return what is to be said of a job: states and steps, in their order."""
        with Project(self.root) as project:
            words = records.unsent(project.db, 0, 10_000)
        return [(one.state, one.step) for one in words if one.job == number]

    def blamed(self, number: int) -> tuple[str, str]:
        """Say what the last message on a job blames."""
        with Project(self.root) as project:
            words = [one for one in records.unsent(project.db, 0, 10_000) if one.job == number]
        return words[-1].kind, words[-1].code

    def place(self, number: int, attempt: int = 1) -> Path:
        """Return the folder of a job."""
        (found,) = self.folder.glob(f"*/edge/{number}.{attempt}")
        return found

    def ran(self) -> list[str]:
        """List what ran, in its order: `NAME JOB` each."""
        return self.ledger.read_text().splitlines()

    # -- the process -----------------------------------------------------------------------------

    def start(self, crash: str = "") -> subprocess.Popen[bytes]:
        """Start the agent; it kills itself at a crash point."""
        env = {**os.environ, "PYTHONPATH": f"{HERE / 'src'}:{HERE}"}
        if crash:
            env["PILOTAGE_CRASH_AT"] = crash
        with (self.root / ".said").open("a") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.rigs.broker.agent_without_bus", str(self.root)],
                env=env, stdout=said, stderr=subprocess.STDOUT, cwd=HERE,
            )  # fmt: skip
        return self._process

    def dies(self, crash: str) -> None:
        """Run until it kills itself at a point."""
        process = self.start(crash)
        try:
            assert process.wait(timeout=PATIENCE) == -signal.SIGKILL, self.told()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.told()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[bytes]]:
        """Have it run while the block does."""
        process = self.start()
        try:
            yield process
            assert process.poll() is None, self.told()
        finally:
            self.kill()

    def told(self) -> str:
        """Say how things stand, for messages."""
        with Project(self.root) as project:
            jobs = [f"{one.id} {one.state}: {one.reason}" for one in project.jobs(Selection())]
        return "\n".join(["", *jobs, *self.ran(), (self.root / ".said").read_text()[-6000:]])

    def wait(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.told()
            assert self._process is None or self._process.poll() is None, self.told()
            time.sleep(0.05)

    def ended(self, *jobs: int) -> list[Job]:
        """Wait until jobs have ended, and return them."""
        self.wait(lambda: all(self.job(one).state in machine.FINAL for one in jobs))
        return [self.job(one) for one in jobs]

    def done(self, *jobs: int) -> None:
        """Wait until jobs have ended, and require that all went well."""
        assert all(one.state is State.DONE for one in self.ended(*jobs)), self.told()


if __name__ == "__main__":
    run(serve(Path(sys.argv[1])))
