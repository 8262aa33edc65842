"""A hub that runs no jobs, on a real port, for tests that talk to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from starlette.types import ASGIApp

from pilotage.bus.model import Input, Output
from pilotage.data.transfer.url import PORT
from pilotage.edge import records as edge
from pilotage.edge.message import Handoff
from pilotage.edge.port_data import PortData, PortDataLimits
from pilotage.flow import moves as flows
from pilotage.flow.model import Flow, NewFlow, Step
from pilotage.hub import api, port
from pilotage.hub.project import Project
from pilotage.job import moves, records
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.job.retry import Next
from pilotage.project import settings, tokens
from pilotage.project.tokens import TokenGate, TokenScope
from pilotage.store import Db, Writer, connect

SPEC = {"name": "hi", "recipe": {"kind": "command", "argv": ["echo", "hi"]}}


_LIMITS = PortDataLimits(bytes=1 << 40)


class Hub:
    """A hub that runs nothing, with a client for each scope."""

    def __init__(self, project: Project, writer: Writer) -> None:
        self.project = project
        self.writer = writer
        self.pokes = 0
        self.url = ""
        self.admin = ""
        self.face: api.Api
        self.trouble = ""

    def poke(self) -> None:
        self.pokes += 1

    def token(
        self, scope: TokenScope = TokenScope.USER, owner: str = "anna", lifetime: float = 60.0
    ) -> str:
        now = self.project.clock.now()
        site = "farm" if scope is TokenScope.AGENT else ""

        def step(db: Db) -> str:
            return tokens.mint(db, scope, owner, now=now, lifetime=lifetime, site=site)[0]

        return self.writer.do(step)

    def agent(self, site: str) -> str:
        """Enrol the agent of a site; return its key."""
        now, key = self.project.clock.now(), f"pil_g_{secrets.token_urlsafe(32)}"

        def step(db: Db) -> str:
            made, _ = tokens.mint(db, TokenScope.AGENT, "", now=now, lifetime=60.0, site=site)
            tokens.admit(db, made, key, site, now)
            return key

        return self.writer.do(step)

    def send(self, site: str, job: int, reads: Sequence[str] = (), writes: str = "") -> None:
        """Have an attempt be at a site that reads and writes at the port of this hub."""
        data = Handoff(
            inputs=tuple(Input(url=PORT + one) for one in reads),
            outputs=(Output(url=PORT + writes, path="x"),) if writes else (),
        )
        self.writer.do(lambda db: edge.add(db, (job, 1), site, data, b"{}", 1.0))

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self.admin}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    def submit(self, name: str = "job", owner: str = "anna", **more: Any) -> int:
        new = NewJob(JobSpec(Command(("true",)), name), owner=owner, **more)
        number = self.writer.do(lambda db: records.add(db, new, self.project.clock.now()))
        assert number is not None
        return number

    def flow(self, name: str = "flow", owner: str = "anna") -> int:
        """Start a flow of two steps, of which nobody runs any."""
        recipe = {"kind": "command", "argv": ["true"]}
        steps = {"first": Step(recipe=recipe), "second": Step(recipe=recipe, needs=("first",))}
        new = NewFlow(flow=Flow(name=name, steps=steps), key=f"{owner}.{name}", owner=owner)
        return self.writer.do(lambda db: flows.submit(db, new, self.project.clock.now()))

    def run(self, job: int, holder: str = "pilot:7") -> Path:
        """Let a job run, as far as the store knows."""
        folder = str(self.project.state / "jobs")
        assert self.writer.do(lambda db: moves.claim(db, {job: holder}, folder, 2.0))
        where = Path(moves.attempt_dir(folder, job, 1))
        where.mkdir(parents=True)
        return where

    def end(self, job: int, state: State = State.DONE) -> None:
        def step(db: Db) -> None:
            db.run(
                "attempt_end", job=job, number=1, now=3.0, state=state, exit=0, signal=None,
                reason="", cause="", cpu=None, wall=None, max_rss=None,
                read_bytes=None, written_bytes=None,
            )  # fmt: skip
            assert moves.move(db, job, 1, State.RUNNING, Next(state, ""), now=3.0)

        self.writer.do(step)


def refuse() -> asyncio.Protocol:
    raise AssertionError("nobody speaks frames here")


@asynccontextmanager
async def running(
    root: Path, events: ASGIApp | None = None, limits: PortDataLimits = _LIMITS
) -> AsyncIterator[Hub]:  # fmt: skip
    """Serve a project while the block runs."""
    project = Project(root)
    writer = Writer(connect(project.db.path))
    hub = Hub(project, writer)
    reader = connect(project.db.path, readonly=True)
    gate = TokenGate(reader, project.clock.now)
    hub.face = api.Api(
        api.ApiContext(
            writer, lambda: connect(project.db.path, readonly=True), project.clock, project,
            hub.poke, lambda: hub.trouble,
        ),
        gate,
        events,
        PortData(settings.port_folder(project.state), reader, limits),
    )  # fmt: skip
    hub.admin = writer.do(lambda db: tokens.at_home(db, project.state, project.clock.now()))
    opened = port.listen("127.0.0.1", 0, roam=False)
    hub.url = f"http://127.0.0.1:{opened.getsockname()[1]}"
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.face.live.run)
            tasks.start_soon(
                lambda: port.serve(hub.face.app, refuse, opened, closing=hub.face.live.close)
            )
            yield hub
            tasks.cancel_scope.cancel()
    finally:
        writer.close()
        reader.close()
        project.close()
