"""Killed with -9 at every named point, and started again: nothing lost, nothing twice."""

from __future__ import annotations

import collections
import signal
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from pilotage import Project
from pilotage.base import crash
from pilotage.job.model import State
from pilotage.job.records import Selection
from tests.rigs.project.project import Rig

FILES = 24
#: Files that are written at once; each burst that is seen is something to read and to commit.
AT_ONCE = 6
#: At which passing of a point it dies: late enough that some work is done, early enough that it
#: comes there though a busy machine does much in one go.
NTH = {
    "event.read": 3, "event.matched": 2, "intake.before_commit": 3, "intake.after_commit": 3,
    "jobevent.before_commit": 2,
}  # fmt: skip

RULES = """
[rule.copy]
files = "raw/*.txt"
sweep = { level = [1, 2] }
retry = 3
run = ["cp", "{path}", "{base}/clean/{stem}.{level}"]
outputs = { out = "clean/{stem}.{level}" }

[rule.after]
job = "copy"
retry = 3
run = ["true"]
"""


def write_files(rig: Rig, runner: subprocess.Popen[bytes]) -> None:
    """Write them in bursts, the next one when the last was seen or nobody looks any more."""
    for first in range(0, FILES, AT_ONCE):
        for number in range(first, first + AT_ONCE):
            temporary = rig.root / "raw" / f".{number}"
            temporary.write_text(f"{number}\n" * 20)
            temporary.rename(rig.root / "raw" / f"{number}.txt")
        rig.wait(partial(seen, 2 * (first + AT_ONCE), runner))


def seen(count: int, runner: subprocess.Popen[bytes], project: Project) -> bool:
    made = sum(row[2] for row in project.db.rows("job_counts") if row[0] == "copy")
    return runner.poll() is not None or made >= count


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    for folder in ("raw", "clean"):
        (tmp_path / folder).mkdir()
    return Rig(tmp_path, RULES)


#: Those of sites, agents and workflows have tests of their own.
ELSEWHERE = (
    *crash.SITE, *crash.EDGE, *crash.STAGE, *crash.REMOTE, *crash.LINK, *crash.PORT, *crash.FLOW,
    *crash.ORDER, *crash.PILOT,
)  # fmt: skip


@pytest.mark.crash_points
@pytest.mark.parametrize("point", [one for one in crash.POINTS if one not in ELSEWHERE])
def test_kill_and_restart(rig: Rig, point: str) -> None:
    # Each starter counts for itself, and dies again and again.
    nth = 8 if point.startswith("starter.") else NTH.get(point, 4)
    first = rig.start(env={"PILOTAGE_CRASH_AT": f"{point}:{nth}"})
    writer = threading.Thread(target=write_files, args=(rig, first))
    rig.wait(lambda project: project.ready() or first.poll() is not None)
    writer.start()
    try:
        if point.startswith("starter."):
            rig.wait(lambda project: any(job.attempt > 1 for job in project.jobs(Selection())))
            first.kill()
        assert first.wait(timeout=120) == -signal.SIGKILL
    finally:
        first.kill()
        first.wait()
        writer.join()
    assert rig.run() == 0, rig.said
    check(rig)
    assert rig.run() == 0, rig.said
    check(rig)


def check(rig: Rig) -> None:
    """Every (rule, file, sweep point) has exactly one finished job."""
    done = rig.jobs("copy")
    made = collections.Counter((job.binding.path, job.binding.sweep["level"]) for job in done)
    assert len(made) == 2 * FILES
    assert set(made.values()) == {1}
    assert {job.state for job in done} == {State.DONE}
    for number in range(FILES):
        for level in (1, 2):
            assert (rig.root / "clean" / f"{number}.{level}").read_text() == f"{number}\n" * 20
    followers = rig.jobs("after")
    assert {job.state for job in followers} == {State.DONE}
    assert sorted(job.parent or 0 for job in followers) == sorted(job.id for job in done)
