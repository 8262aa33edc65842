"""How far the workflow has come, read from the store and the verdicts while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from examples import stage
from pilotage.hub.project import Project
from pilotage.job.model import Job

from .science.analyse import from_csv
from .science.report import Verdict

#: The steps that each scan may take.
STEPS = ("judge", "segment", "analyse")


class Scan(NamedTuple):
    """One scan on its way."""

    name: str
    #: Its job at each step, as far as there is one.
    jobs: dict[str, Job]
    #: What the judge wrote.
    verdict: Verdict | None
    #: Bubbles in its table.
    measured: int


class Progress(NamedTuple):
    """All that a board shows."""

    #: Scans that the instrument will draw.
    expected: int
    scans: list[Scan]
    jobs: list[Job]
    #: Seconds since the start.
    elapsed: float
    #: Whether anything is left to do.
    busy: bool

    @property
    def accepted(self) -> int:
        """Scans that the judge let pass."""
        return sum(bool(scan.verdict and scan.verdict.accepted) for scan in self.scans)

    @property
    def rejected(self) -> int:
        """Scans that the judge turned away."""
        return sum(bool(scan.verdict and not scan.verdict.accepted) for scan in self.scans)

    @property
    def measured(self) -> int:
        """Bubbles in all tables."""
        return sum(scan.measured for scan in self.scans)


class Watch:
    """Looks at a project again and again; a file that was read once is not read again."""

    def __init__(self, project: Project, expected: int) -> None:
        """Watch a project that will get so many scans."""
        self._project = project
        self._expected = expected
        self._start = project.clock.now()
        self._verdicts: dict[str, Verdict] = {}
        self._measured: dict[str, int] = {}

    def look(self) -> Progress:
        """Say how far it has come."""
        # Before the jobs are read: what ends in between must not look like the end of all.
        busy = self._project.busy()
        jobs = stage.jobs(self._project)
        names = sorted(path.stem for path in (self._project.root / "scans").glob("[!.]*.png"))
        found: dict[str, dict[str, Job]] = {name: {} for name in names}
        for job in jobs:
            if (name := job.binding.match.get("scan", "")) in found:
                found[name][job.name] = job
        judged = sum("judge" in steps for steps in found.values())
        return Progress(
            expected=self._expected,
            scans=[
                Scan(name, steps, self._verdict(name), self._count(name))
                for name, steps in found.items()
            ],
            jobs=jobs,
            elapsed=self._project.clock.now() - self._start,
            busy=busy or judged < self._expected,
        )

    def _verdict(self, name: str) -> Verdict | None:
        path = self._project.root / "judged" / f"{name}.json"
        if name not in self._verdicts and path.exists():
            self._verdicts[name] = Verdict(**json.loads(path.read_text()))
        return self._verdicts.get(name)

    def _count(self, name: str) -> int:
        path = self._project.root / "analysed" / f"{name}.csv"
        if name not in self._measured and path.exists():
            self._measured[name] = len(from_csv(path.read_text()))
        return self._measured.get(name, 0)


def trigger(job: Job, root: Path) -> str:
    """Name the file or folder that made a job, below the project."""
    return job.binding.path.removeprefix(f"{root}/")
