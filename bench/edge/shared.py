"""Many jobs at one site that read the same file: how often it is brought, and how long it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, Goal, figure
from bench.remote.found import Found
from pilotage.hub.project import Project
from pilotage.job import machine, records
from pilotage.job.model import App, JobSpec, NewJob, State
from tests.rigs.broker import dialing_agent
from tests.rigs.broker.dialing_agent import DialingAgent
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import Hub

_MEGA = 10**6
_PATIENCE_S = 600.0
_DOES = 'head -c 1000 "$1" > /dev/null'
_APP = {"argv": ["{source}"], "parameter": {"source": {"kind": "path"}}}
_INPUT = "shared.bin"


def measure(scratch: Path, jobs: int, size: int, found: Found) -> None:
    """Submit all jobs at once, and wait for the last one."""
    (scratch / "web").mkdir(parents=True)
    with serving(scratch / "web") as web:
        host = f"127.0.0.1:{web.port}"
        settings = {"flows": {"data": f"{web.url}/data", "hosts": [host]}}
        staging = {"protocols": ["http"], "hosts": [host], "private": ["127.0.0.0/8"]}

        def equip(site: DialingAgent) -> None:
            site.programs.add("reads", _DOES, staging=staging, **_APP)

        with dialing_agent.pair(scratch, equip, settings=settings) as (hub, site):
            _write(hub.root / _INPUT, size)
            _run(hub, site, web, jobs, size, found)


def _run(hub: Hub, site: DialingAgent, web: Web, jobs: int, size: int, found: Found) -> None:
    spec = JobSpec(
        recipe=App("reads"), name="reads", site=site.site, params={"source": _INPUT},
        inputs=(_INPUT,),
    )  # fmt: skip
    before, began = web.sent, time.monotonic()
    with Project(hub.root) as project:
        with project.db.transaction() as db:
            now = project.clock.now()
            numbers = [records.add(db, NewJob(spec), now) or 0 for _ in range(jobs)]
        project.poke()
        while not all(project.job(one).state in machine.FINAL for one in numbers):
            if time.monotonic() > began + _PATIENCE_S:
                raise TimeoutError(site.told())
            time.sleep(0.1)
        if any(project.job(one).state is not State.DONE for one in numbers):
            raise RuntimeError(site.told())
    found.add("shared", time.monotonic() - began)
    found.add("shared, brought", (web.sent - before) / size)


def _write(file: Path, size: int) -> None:
    with file.open("wb") as made:
        for start in range(0, size, 1 << 24):
            made.write(os.urandom(min(1 << 24, size - start)))


def figures(found: Found, jobs: int, size: int) -> Iterator[Figure]:
    """Say what was found."""
    what = f"{jobs} jobs at a site with an agent that read the same {size / _MEGA:g} MB"
    yield figure(
        f"{what}: brought so often", "times", found["shared, brought"], goal=Goal(1.05),
        note="bytes that the transfer server sent, by the size of the file",
    )  # fmt: skip
    yield figure(f"{what}: all done", "s", found["shared"])
