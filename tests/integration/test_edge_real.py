"""Real batch systems below an agent that is killed again and again: each job runs once."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.condor import Condor
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import FINAL, Edge
from tests.rigs.broker.whole_jobs import WholeJobs
from tests.suite import system

pytestmark = pytest.mark.slow

#: Much more than a quiet machine needs for all of it.
PATIENCE = 300.0
#: Jobs, and how often the agent is killed meanwhile.
JOBS, KILLS = 32, 7


def killed_again_and_again(edge: Edge, whole: WholeJobs, seed: int, **fields: str) -> None:
    """Send jobs with data, and kill the agent at moments that only the dice know."""
    dice = random.Random(seed)
    keys: list[str] = []
    for left in range(KILLS, 0, -1):
        edge.start()
        keys += whole.post((JOBS - len(keys)) // left, **fields)
        until_said(edge, dice.randint(1, 25), keys)
        edge.kill()
    with edge.up():
        edge.wait_ended(*keys, patience=PATIENCE)
    assert len(keys) == JOBS
    invariants.holds(edge, keys)
    whole.left(keys)


def until_said(edge: Edge, more: int, keys: list[str]) -> None:
    """Wait until so much more has been said, or there is nothing more to say."""
    most = len(edge.heard()) + more

    def there() -> bool:
        said = edge.heard()
        ended = {one["key"] for one in said if one["state"] in FINAL}
        return len(said) >= most or ended.issuperset(keys)

    edge.wait(there)


def test_slurm(tmp_path: Path, rabbit: Rabbit, slurm: Slurm):
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm) as edge:
        killed_again_and_again(edge, WholeJobs(edge, edge.root / "data"), 11, queue="debug")


def test_htcondor(rabbit: Rabbit, condor: Condor):
    with tempfile.TemporaryDirectory(dir=condor.shared) as folder:
        Path(folder).chmod(0o755)
        with edge_agent.at_condor(Path(folder) / "e", rabbit, condor) as edge:
            # Python may be where the user of the pool may not look, and runs what is beside a job.
            whole = WholeJobs(edge, edge.root / "data", beside=False)
            edge.change({})  # what is new is the user's now
            killed_again_and_again(edge, whole, 12)


# -- while the submit command runs -----------------------------------------------------------------

#: Only its first call is held up, either before or after Slurm has the job.
_SBATCH = """\
#!/bin/sh
held() {{ touch '{marks}/held'; while [ ! -e '{marks}/go' ]; do sleep 0.1; done; }}
if mkdir '{marks}/first' 2>/dev/null; then
    [ {when} = after ] || held
    said="$('{real}' "$@")"; status=$?
    [ {when} = before ] || held
    echo "$said"
    touch '{marks}/over'
    exit $status
fi
exec '{real}' "$@"
"""


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "marks"
    folder.mkdir()
    yield folder
    (folder / "go").touch()


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_the_submit_command_runs(
    tmp_path: Path, rabbit: Rabbit, slurm: Slurm, marks: Path, when: str
):
    """The call goes on by itself, and may yet succeed after it was made once more."""
    real = system.find("sbatch")
    script = marks / "sbatch"
    script.write_text(_SBATCH.format(marks=marks, when=when, real=real))
    script.chmod(0o755)
    settings = {"batch": {"path": [str(marks)]}}
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm, settings=settings) as edge:
        edge.start()
        key = edge.post("count", queue="debug")
        edge.wait((marks / "held").exists)
        edge.kill()
        edge.start()
        edge.wait_ended(key)
        (marks / "go").touch()
        more = edge.post_many("count", 2, queue="debug")
        edge.wait_ended(*more)
        invariants.holds(edge, [key, *more])
        edge.wait(lambda: not slurm.run("squeue", "--noheader").strip())
        invariants.holds(edge, [key, *more])
