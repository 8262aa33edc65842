"""A hub whose workflows go to real agents by a real broker, as a process that may be killed."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pilotage.edge.handoff import Artifact, Take
from pilotage.flow import explain, moves, records
from pilotage.flow.model import Flow, IntRange, NewFlow, Step
from pilotage.flow.records import AttemptRow, FlowRow
from pilotage.hub.project import Project
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, toml
from tests.rigs.broker.edge_agent import ADMIN, Edge
from tests.rigs.broker.site_messages import OwnExchange
from tests.rigs.project.project import Rig
from tests.suite import programs

PATIENCE = 90.0
FINAL = ("done", "failed", "cancelled")

__all__ = ["FINAL", "Flow", "Hub", "IntRange", "Step", "Take", "bus_settings", "served"]


def bus_settings(rabbit: Rabbit, exchange: str, port: int = 0) -> dict[str, Any]:
    """Write the table `bus` of a hub."""
    papers = rabbit.papers[ADMIN]
    return {
        "url": f"amqps://{rabbit.address}:{port or rabbit.port}/", "user": ADMIN,
        "ca": str(rabbit.authority.certificate), "certificate": str(papers.certificate),
        "key": str(papers.key), "exchange": exchange, "dead": f"{exchange}.dead", "patience": 10.0,
    }  # fmt: skip


@contextmanager
def served(
    root: Path, rabbit: Rabbit, equip: Callable[[Edge], None], *, beside: Edge | None = None
) -> Iterator[Edge]:
    """Have an agent run while the block does, with what it is equipped with."""
    with edge_agent.at_local(root / "site", rabbit, beside=beside) as one:
        equip(one)
        with one.up():
            yield one


class Hub:
    """A project with workflows, and the process that serves it."""

    def __init__(
        self, root: Path, edge: Edge | OwnExchange | None = None, *, port: int = 0,
        settings: Mapping[str, Any] = {}, rules: str = "",
    ) -> None:  # fmt: skip
        """Take whose exchange it is at, and further settings."""
        self.root = root
        told: dict[str, Any] = {"flows": {"ask": "30s", "users": ["alice"]}}
        if edge is not None:
            told["bus"] = bus_settings(edge.rabbit, edge.exchange, port)
        self._rig = Rig(root, rules, toml.write(toml.merged(told, settings)))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        """What the last process printed."""
        return self._rig.said

    # -- its process -----------------------------------------------------------------------------

    def start(self, crash: str = "", *, ready: bool = True, env: Mapping[str, str] = {}) -> None:
        """Start it; it kills itself at a crash point."""
        told = {"PILOTAGE_CRASH_AT": crash, "PILOTAGE_DEBUG": "1", **env}
        self._process = self._rig.start(env=told)
        if ready:
            with self._rig.project() as project:
                programs.until_ready(self._process, project.ready, lambda: self.said)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs, or ran last."""
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def dies(self, crash: str) -> None:
        """Run until it kills itself at a point."""
        self.start(crash, ready=False)
        try:
            assert self.process.wait(PATIENCE) == -signal.SIGKILL, f"{crash}\n{self.told()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.told()}") from None
        finally:
            self.kill()

    @contextmanager
    def up(self) -> Iterator[None]:
        """Have it run while the block does; it must not end by itself meanwhile."""
        self.start()
        try:
            yield
            assert self.process.poll() is None, self.told()
        finally:
            self.kill()

    def run(self) -> int:
        """Run until nothing is left to do; return the exit status."""
        return self._rig.run()

    # -- flows -----------------------------------------------------------------------------------

    def submit(self, flow: Flow, key: str = "") -> int:
        """Have a workflow run, as the command does it."""
        new = NewFlow(flow=flow, key=key or secrets.token_hex(8), owner="me")
        with self.change() as project, project.db.transaction() as db:
            return moves.submit(db, new, project.clock.now())

    def cancel(self, flow: int, reason: str = "enough") -> None:
        """Call a workflow off, as the command does it."""
        with self.change() as project, project.db.transaction() as db:
            moves.cancel(db, flow, reason, project.clock.now())

    @contextmanager
    def change(self) -> Iterator[Project]:
        with self._rig.project() as project:
            yield project
            project.poke()

    def flow(self, number: int) -> FlowRow:
        """Read a workflow."""
        with self._rig.project() as project:
            return records.flow(project.db, number)

    def steps(self, number: int) -> dict[str, str]:
        """Return the states of the steps of a workflow."""
        with self._rig.project() as project:
            return {one.name: one.state for one in records.steps(project.db, number)}

    def why(self, number: int) -> dict[str, str]:
        """Return why the steps of a workflow do not go on, as `pilotage flow explain` says."""
        with self._rig.project() as project:
            now = project.clock.now()
            found = explain.sheet(project.db, number, now, project.settings, project.root)
            return {one.name: one.why for one in found.steps}

    def reasons(self, number: int) -> dict[str, str]:
        """Return why the steps of a workflow are as they are."""
        with self._rig.project() as project:
            return {one.name: one.reason for one in records.steps(project.db, number)}

    def attempts(self, number: int, step: str = "") -> list[AttemptRow]:
        """Read all attempts of a workflow, or of one step."""
        with self._rig.project() as project:
            return [
                one
                for task in records.tasks(project.db, number, step=step)
                for one in records.attempts(project.db, task.id)
            ]

    def files(self, attempt: AttemptRow) -> list[Artifact]:
        """Read which files an attempt has left."""
        with self._rig.project() as project:
            return records.files(project.db, attempt.task, attempt.number)

    def command(self, *words: str) -> str:
        """Run a command in the project's folder, and return what it prints."""
        argv = [sys.executable, "-m", "pilotage", *words]
        done = subprocess.run(
            argv, cwd=self.root, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read what is in the store."""
        with self._rig.project() as project:
            return [*project.db._connection.execute(query, values)]

    def wait(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)

    def wait_over(self, *numbers: int, patience: float = PATIENCE) -> list[str]:
        """Wait until workflows are over, and return their states."""
        self.wait(lambda: all(self.flow(one).state in FINAL for one in numbers), patience)
        return [self.flow(one).state for one in numbers]

    def wait_state(self, number: int, step: str, *states: str) -> AttemptRow:
        """Wait until the last attempt of a step is in one of some states."""
        found: list[AttemptRow] = []

        def there() -> bool:
            found[:] = self.attempts(number, step)
            return bool(found) and found[-1].state in states

        self.wait(there)
        return found[-1]

    def told(self) -> str:
        """Say how things stand, for messages."""
        with contextlib.suppress(FileNotFoundError):
            rows = self.query("SELECT id, name, state, reason FROM flow")
            steps = self.query("SELECT flow, name, state, reason FROM flow_step LIMIT 40")
            tries = self.query(
                "SELECT key, site, job, state, reason, fenced, cancel, heard FROM flow_attempt "
                "LIMIT 40"
            )
            jobs = self.query("SELECT id, name, state, reason, attempt, asked FROM job LIMIT 40")
            out = self.query("SELECT id, job, kind, topic, tries, after FROM edge_message LIMIT 20")
            return "\n".join(map(str, [*rows, *steps, *tries, *jobs, *out, self.said[-6000:]]))
        return "nothing is there"
