"""An agent that dials its hub, and no broker: both as processes of their own.

with ported.pair(tmp_path) as (hub, site):
    job = site.submit("count")
    site.wait_over(job)
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from pilotage.job import records
from pilotage.job.model import App, Job, JobSpec, NewJob, Recipe, State
from pilotage.project import tokens
from testbed import processes
from testbed.fault_proxy import FaultProxy
from testbed.ports import free_port
from testbed.processes import Process
from tests.rigs.broker import toml
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.project.flow_hub import Hub

OVER = (State.DONE, State.FAILED, State.CANCELLED, State.REJECTED)
LOCAL = {"batch": "local"}


class DialingAgent(Edge):
    """A site whose agent dials a hub; its line is `proxy`."""

    def __init__(
        self, root: Path, hub: Hub, port: int, batch: Mapping[str, Any] = LOCAL, **more: Any
    ) -> None:
        """Take the hub, and the port that it listens on."""
        super().__init__(root, None, batch, **more)  # type: ignore[arg-type]
        self.hub, self.hub_port = hub, port

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.proxy = stack.enter_context(FaultProxy(self.hub_port))
            self._settings = toml.merged(self._own(self.proxy.port), self._given)
            self.change({})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        processes.end(Process.of(pid) for pid in self.programs.running())
        self._stack.close()

    def _own(self, port: int) -> dict[str, Any]:
        return {
            "site": self.site,
            "heartbeat": "1s",
            "limits": {"free": "1M"},
            "hub": {
                "url": f"http://127.0.0.1:{port}", "heartbeat": 1.0, "patience": 10.0, "retry": 0.5,
            },
        }  # fmt: skip

    def enrol(self, site: str = "") -> int:
        """Have the hub make a token for the agent, and give it that; return its number."""
        with self.hub._rig.project() as project, project.db.transaction() as db:
            secret, number = tokens.mint(
                db, tokens.TokenScope.AGENT, "", now=project.clock.now(), lifetime=3600.0,
                site=site or self.site,
            )  # fmt: skip
        self.secrets.append(secret)
        fresh = self.root / "hub-token.new"
        fresh.write_text(secret + "\n")
        fresh.chmod(0o600)
        fresh.replace(self.root / "hub-token")
        return number

    def revoke(self, number: int) -> None:
        """Have the token of the agent count no longer."""
        with self.hub._rig.project() as project, project.db.transaction() as db:
            tokens.revoke(db, number, project.clock.now())

    # -- jobs of the hub -------------------------------------------------------------------------

    def submit(self, application: str | Recipe, **params: Any) -> int:
        """Have the hub run a job at the site."""
        recipe = App(application) if isinstance(application, str) else application
        return self._add(JobSpec(recipe=recipe, name="job", site=self.site, params=params))

    def stage(
        self, application: str, inputs: Sequence[str], outputs: Sequence[str], **params: Any
    ) -> int:
        """Have the hub run a job at the site that reads files of the project, and leaves some."""
        spec = JobSpec(
            recipe=App(application), name="job", site=self.site, params=params,
            inputs=tuple(inputs), outputs={str(at): one for at, one in enumerate(outputs)},
        )  # fmt: skip
        return self._add(spec)

    def _add(self, spec: JobSpec) -> int:
        new = NewJob(spec)
        with self.hub.change() as project, project.db.transaction() as db:
            job = records.add(db, new, project.clock.now())
        assert job is not None
        return job

    def look(self, job: int) -> Job:
        """Read a job of the hub's."""
        with self.hub._rig.project() as project:
            return project.job(job)

    def wait_job(self, job: int, *states: State) -> Job:
        """Wait until a job of the hub's is in one of some states."""
        self.wait(lambda: self.look(job).state in states)
        return self.look(job)

    def wait_over(self, *numbers: int) -> list[State]:
        """Wait until jobs of the hub's are over."""
        return [self.wait_job(job, *OVER).state for job in numbers]

    def command(self, *words: str) -> str:
        """Return what a command of the site's administrator prints."""
        return _command(self.root, *words)

    def state(self) -> str:
        """Return how the hub says that the site is."""
        found = self.hub.query("SELECT state FROM edge_site WHERE name = ?", self.site)
        return str(found[0][0]) if found else ""

    def told(self) -> str:
        """Say how things stand, for messages."""
        jobs = self.hub.query("SELECT id, state, attempt, reason FROM job LIMIT 40")
        sent = self.hub.query("SELECT id, job, topic, tries, after FROM edge_message LIMIT 40")
        rows = [*jobs, *sent, *self.hub.query("SELECT job, state, seq, sent FROM edge_attempt")]
        return "\n".join([*map(str, rows), self.hub.said[-4000:], "--", self.said[-4000:]])


def command(hub: Hub, *words: str) -> str:
    """Return what a command in the hub's project prints."""
    return _command(hub.root, *words)


def _command(folder: Path, *words: str) -> str:
    argv = [sys.executable, "-m", "pilotage", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def serving(root: Path, settings: Mapping[str, Any] = {}, rules: str = "") -> tuple[Hub, int]:
    """Make a hub that has no broker, and listens on a port that stays its own."""
    port = free_port()
    told = toml.merged({"hub": {"host": "127.0.0.1", "port": port}}, settings)
    return Hub(root, settings=told, rules=rules), port


@contextmanager
def pair(
    root: Path, equip: Callable[[DialingAgent], None] = lambda _: None, *,
    settings: Mapping[str, Any] = {}, batch: Mapping[str, Any] = LOCAL,
    rules: Callable[[DialingAgent], str] = lambda _: "", **more: Any,
) -> Iterator[tuple[Hub, DialingAgent]]:  # fmt: skip
    """Have a hub and the agent of one site run while the block does."""
    hub, port = serving(root / "hub", settings)
    with DialingAgent(root / "site", hub, port, batch, **more) as site:
        equip(site)
        hub._rig.rules(rules(site))
        hub.start()
        try:
            site.enrol()
            site.start()
            yield hub, site
            for one in (hub.process, site.process):
                assert one.poll() in (None, -signal.SIGKILL), site.told()
        finally:
            hub.kill()
