"""Flows in a store without a hub: the test decides how their steps end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pilotage.edge.handoff import Take
from pilotage.flow import moves, records
from pilotage.flow.model import AttemptEnd, Flow, NewFlow, Step
from pilotage.hub.project import Project

How = Literal["done", "failed", "running"]


def command(*argv: str) -> dict[str, Any]:
    """A recipe of the hub."""
    return {"kind": "command", "argv": list(argv)}


#: A step, a fan-out over what it found, a step of the hub beside them, and what follows on both.
ATLAS = Flow(
    name="atlas",
    description="Generate events, simulate them, merge and plot.",
    params={"events": 1000, "seed": "x"},
    steps={
        "generate": Step(
            sites=("condor",), application="generator", parameters={"events": "{params.events}"},
            outputs=("events.dat", "summary.json"), result="summary.json",
        ),
        "simulate": Step(
            needs=("generate",), sites=("slurm",), application="simulation",
            each="{generate.result.chunks}", inputs=(Take(step="generate", output="events.dat"),),
            outputs=("hits.dat",), on_failure="retry", retries=2, delay=0.0,
        ),
        "check": Step(
            needs=("generate",), recipe=command("check"), inputs=(Take(step="generate"),)
        ),
        "merge": Step(
            needs=("simulate",), sites=("condor",), application="merger",
            inputs=(Take(step="simulate"),), outputs=("all hits.dat",),
        ),
        "plot": Step(
            needs=("merge", "check"), recipe=command("plot"),
            inputs=(Take(step="merge"), Take(url="https://example.org/style.css")),
            outputs=("plot.svg",),
        ),
    },
    outputs={"picture": "plot/plot.svg"},
)  # fmt: skip


class Story:
    """A flow, told step by step; each word takes some seconds of a time of its own."""

    def __init__(self, project: Project, flow: Flow = ATLAS, owner: str = "anna") -> None:
        self.project = project
        self.db = project.db
        self.now = project.clock.now() - 200.0
        new = NewFlow(flow=flow, key=f"test.{self.now}", owner=owner)
        with self.db.transaction():
            self.number = moves.submit(self.db, new, self.now)

    @property
    def data(self) -> Path:
        return self.project.root / "data"

    def run(
        self, step: str, site: str = "", *, how: How = "done", item: int | None = None,
        files: Mapping[str, bytes] = {}, result: object = None, reason: str = "", read: int = 0,
        took: float = 5.0,
    ) -> None:  # fmt: skip
        """Have all queued tasks of a step, or one of them, run at a site or by the hub."""
        kind = "application" if how == "failed" else ""
        with self.db.transaction():
            for task in records.tasks(self.db, self.number, step=step, states=["queued"]):
                if item is not None and task.item != item:
                    continue
                number = task.attempt + 1
                place = f"{self.data}/{self.number}/{step}/{task.item}/{number}/"
                moves.attempt(
                    self.db, task.id, "edge" if site else "here", site, f"file://{place}", self.now
                )
                key = f"flow.{self.number}.{task.id}.{number}"
                self.db._connection.execute(
                    "UPDATE flow_attempt SET read = ? WHERE key = ?", (read, key)
                )
                moves.hear(self.db, key, 1, "running", "", "", "", self.now + 0.5)
                if how == "running":
                    continue
                self._leave(Path(place), task.id, number, key, files)
                moves.hear(self.db, key, 2, how, reason, kind, "", self.now + took)
                end = AttemptEnd(state=how, reason=reason, kind=kind)
                moves.end(self.db, task.id, number, end, self.now + took, result=result)
        if how != "running":
            self.now += took + 1

    def _leave(
        self, place: Path, task: int, number: int, key: str, files: Mapping[str, bytes]
    ) -> None:
        for name, content in files.items():
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
            self.db._connection.execute(
                "INSERT INTO flow_file (task, number, name, size, sha256) VALUES (?, ?, ?, ?, ?)",
                (task, number, name, len(content), hashlib.sha256(content).hexdigest()),
            )
        self.db._connection.execute(
            "UPDATE flow_attempt SET files = ?, bytes = ? WHERE key = ?",
            (len(files), sum(map(len, files.values())), key),
        )

    def generated(self, chunks: int = 4) -> None:
        """Tell that the first step is done."""
        files = {"events.dat": b"e" * 5000, "summary.json": b"{}"}
        self.run("generate", "condor", files=files, result={"chunks": list(range(chunks))})

    def whole(self, chunks: int = 4) -> None:
        """Tell it to its good end; one task needs a second attempt."""
        self.generated(chunks)
        self.run("check", took=1)
        self.run("simulate", "slurm", how="failed", item=1, reason="exit status 139", took=2)
        hits = {"hits.dat": b"h" * 1200}
        self.run("simulate", "slurm", files=hits, read=5000, took=20)
        self.run("merge", "condor", files={"all hits.dat": b"H" * 4800}, read=4800)
        self.run("plot", files={"plot.svg": b"<svg/>"}, read=4800)
