"""Newton's method as a rule that wakes itself, from two starting points.

    python -m examples.refine

From −2 it finds the root in a few steps. From 0 it jumps between 0 and 1 for ever, and the loop
guard holds it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from examples import stage
from pilotage.hub.project import Project
from pilotage.job.model import Job, State
from pilotage.result import report

from . import newton

HERE = Path(__file__).parent
STARTS = {"from-minus-2": -2.0, "from-0": 0.0}


def main() -> int:
    """Play the example; return its exit status."""
    parser = argparse.ArgumentParser(prog="examples.refine", description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, default=Path("demo-run-refine"), metavar="DIR")
    options = parser.parse_args()
    folders = ("estimates", "roots", *(f"estimates/{start}" for start in STARTS))
    root = stage.fresh(options.keep, HERE / "rules", HERE / "newton.py", also=folders)
    with Project(root) as project, stage.up(project):
        for start, x in STARTS.items():
            play(project, start, x)
        found = stage.jobs(project)
        page = root / "report.html"
        report.write(project.db, page, title="Two loops: one that ends, one that is ended")
    print(f"report  {page}")
    held = [job for job in found if job.state is State.HELD]
    good = [job for job in found if job.state is not State.HELD]
    return stage.complain(good) or int(len(held) != 1)


def play(project: Project, start: str, x: float) -> None:
    """Write the first estimate and tell what the loop makes of it until it stops."""
    print(f"\nx = {x:g}")
    folder = project.root / "estimates" / start
    newton.write(folder / "estimate-0.json", {"x": x})
    told: set[int] = set()
    rest = stage.Rest()
    while not rest.look(busy=project.busy() or not told):
        stage.check(project)
        for job in stage.jobs(project):
            if job.id in told or job.binding.match["start"] != start:
                continue
            if not job.ended and job.state is not State.HELD:
                break
            told.add(job.id)
            print(line(job, project.root))
        time.sleep(0.05)


def line(job: Job, root: Path) -> str:
    """Say what a job of the loop came to."""
    start = job.binding.match["start"]
    if job.state is not State.DONE:
        return f"  job {job.id:>2}  {job.state}: {job.reason}"
    finer, last = (
        root / f"estimates/{start}/estimate-{job.id}.json",
        root / f"roots/{start}.json",
    )
    said = json.loads((finer if finer.exists() else last).read_text())
    end = "" if finer.exists() else "   good enough: the loop ends here"
    return f"  job {job.id:>2}  depth {job.depth:>2}   x = {said['x']:.12f}{end}"


if __name__ == "__main__":
    stage.play(main)
