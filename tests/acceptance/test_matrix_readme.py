"""The rules of the README with a pilot that joined: no job fails because of where it ran."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.job.model import State
from pilotage.job.records import Selection
from pilotage.status.explain import JobExplainer
from tests.rigs.node.real_hub import RealHub, blind
from tests.rigs.node.scripted_hub import wait_for

README = Path(__file__).parents[2] / "README.md"
#: As many scans as keep this machine and the pilot busy for a while.
SCANS = 12
LEVELS = (1, 2, 3)
#: What the rules of the README call; neither knows where it runs.
STEPS = """
from pathlib import Path

def clean(path, scan, level):
    text = Path(path).read_text()
    Path(path).parent.parent.joinpath("clean", f"{scan}.{level}.csv").write_text(text * level)
"""
REPORT = """
import sys
from pathlib import Path

Path("report", Path(sys.argv[1]).name).write_text(Path(sys.argv[1]).read_text())
"""


def rules() -> str:
    """Return the rules that the README shows."""
    (found,) = re.findall(r"```toml\n(\[rule\.clean\].*?)```", README.read_text(), re.DOTALL)
    return str(found)


def _places(hub: RealHub, rule: str) -> set[str]:
    """Return where the jobs of a rule ran."""
    project = hub.project
    witness = JobExplainer(project.db, project.settings, now=time.time(), running=True)
    return {witness.facts(one.id).where for one in project.jobs(Selection(name=rule))}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RealHub]:
    """A project with the rules of the README, whose machine has one core."""
    made = RealHub(tmp_path / "lab", pilots='heartbeat = "1s"\n', more="[site]\ncpus = 1\n")
    for folder in ("raw", "clean", "report", "rules"):
        (made.root / folder).mkdir()
    (made.root / "rules" / "steps.py").write_text(STEPS)
    (made.root / "report.py").write_text(REPORT)
    (made.root / "rules" / "lab.toml").write_text(rules())
    made.start(local=True)
    yield made
    made.kill()
    made.project.close()


@pytest.mark.slow
@pytest.mark.needs("bwrap")
def test_no_job_of_the_readmes_rules_fails_because_of_where_it_ran(hub: RealHub, tmp_path: Path):
    cleaned = SCANS * len(LEVELS)
    with blind(hub, tmp_path / "pilot"):
        for number in range(SCANS):
            (hub.root / "raw" / f"s{number}.csv").write_text(f"{number}\n")
        wait_for(lambda: len([*(hub.root / "report").iterdir()]) == cleaned, 240)
        hub.wait(*(one.id for one in hub.project.jobs(Selection())))
        jobs = hub.project.jobs(Selection())
        where = {rule: _places(hub, rule) for rule in ("clean", "report")}
    assert {(one.state, one.attempt) for one in jobs} == {(State.DONE, 1)}
    assert len(jobs) == 2 * cleaned
    # Both took part; what uses the folder without saying so stayed where that is.
    assert len(where["clean"]) == 2
    assert where["report"] == {"local"}
    assert len({one.read_text() for one in (hub.root / "report").iterdir()}) == cleaned
