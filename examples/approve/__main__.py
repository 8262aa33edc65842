"""A person in the loop, played: measure three series, preview them, publish what is approved.

python -m examples.approve          # you are the person
python -m examples.approve --auto   # the person is played, too
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from examples import stage
from pilotage.hub.project import Project
from pilotage.job.model import Job, State
from pilotage.result import report

HERE = Path(__file__).parent
FOLDERS = ("measured", "previews", "approved", "published")

#: What is measured, each with its period; and what the played person does not like.
SERIES = {"spring": 0.16, "pendulum": 0.4, "loose-contact": 0.013}
DISLIKED = "loose-contact"
PERSON = "Ada"


def main() -> int:
    """Play the example; return its exit status."""
    parser = argparse.ArgumentParser(prog="examples.approve", description=__doc__.split("\n")[0])
    parser.add_argument("--auto", action="store_true", help="play the person, too")
    parser.add_argument("--keep", type=Path, default=Path("demo-run-approve"), metavar="DIR")
    options = parser.parse_args()
    root = stage.fresh(options.keep, HERE / "rules", HERE / "steps.py", also=FOLDERS)
    with Project(root) as project, stage.up(project):
        measure(root)
        follow(project, {"preview": set(SERIES)})
        wanted = approve(root) if options.auto else ask(root)
        follow(project, {"preview": set(SERIES), "publish": wanted})
        found = stage.jobs(project)
        page = root / "report.html"
        report.write(project.db, page, title="What was previewed, approved and published")
    print(f"report      {page}")
    return stage.complain(found)


def measure(root: Path) -> None:
    """Write the series, each under a hidden name first so that nobody sees half of one."""
    for name, period in SERIES.items():
        rows = [f"{t / 50:.2f},{math.sin(t / 50 / period) * 0.994**t:.4f}" for t in range(400)]
        hidden = root / "measured" / f".{name}"
        hidden.write_text("\n".join(["time,value", *rows]) + "\n")
        hidden.rename(root / "measured" / f"{name}.csv")
        print(f"measured    measured/{name}.csv")


def approve(root: Path) -> set[str]:
    """Play a person who looks, thinks for a moment and approves what is good."""
    time.sleep(1.0)
    good = set(SERIES) - {DISLIKED}
    for name in sorted(good):
        (root / "approved" / f"{name}.ok").write_text(f"{PERSON}\n")
        print(f"approved    approved/{name}.ok by {PERSON}")
    print(f"            {DISLIKED} is not approved, and nothing happens to it")
    return good


def ask(root: Path) -> set[str]:
    """Tell the person at the terminal what to do."""
    print(f"\nLook at the figures in {root / 'previews'} and approve each of them, for example")
    print(f"\n    echo your name > {root}/approved/spring.ok\n")
    print("This ends when all three are published; or leave with Ctrl-C.\n")
    return set(SERIES)


def follow(project: Project, wanted: dict[str, set[str]]) -> None:
    """Tell of each job that ends until all that is wanted has ended."""
    told = {job.id for job in stage.jobs(project) if job.ended}
    while True:
        stage.check(project)
        jobs = stage.jobs(project)
        for job in jobs:
            if job.ended and job.id not in told:
                told.add(job.id)
                tell(job)
        if all(names <= ended(jobs, rule) for rule, names in wanted.items()):
            return
        time.sleep(0.1)


def ended(jobs: list[Job], rule: str) -> set[str]:
    """Name the series for which a job of a rule ended."""
    return {job.binding.match["series"] for job in jobs if job.name == rule and job.ended}


def tell(job: Job) -> None:
    """Write a line about an ended job."""
    series = job.binding.match["series"]
    if job.state is State.DONE:
        folder = {"preview": "previews", "publish": "published"}[job.name]
        print(f"{folder:<11} {folder}/{series}.svg")
    else:
        print(f"{job.state:<11} {job.name} of {series}: {job.reason}")


if __name__ == "__main__":
    stage.play(main)
