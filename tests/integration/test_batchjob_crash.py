"""Death of a batch job at every step: its payload runs at most once, and what is left tells."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from pilotage.payload.starter import process
from tests.rigs.node.login_helper import LoginHelper, Place, wait_for

#: Where the job dies, and how often its payload has then run.
_POINTS = {
    "single.begun": 0,
    "single.claimed": 0,
    "single.announced": 0,
    "single.placed": 0,
    "starter.received": 0,
    "starter.claimed": 0,
    "starter.spawned": 1,
    "starter.reaped": 1,
    "starter.reported": 1,
    "single.ran": 1,
    "single.looked": 1,
    "single.evident": 1,
    "single.left": 1,
}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "root")


@pytest.mark.crash_points
@pytest.mark.parametrize("point", _POINTS)
def test_killed_at_any_step_it_runs_at_most_once_and_what_is_left_tells(place, point):
    folder = place.submit("k", place.item("k", *place.noted("k", "exit 4")))
    dead = place.run(folder, env={"PILOTAGE_CRASH_AT": point})
    wait_for(lambda: not _left(place))
    if point.startswith("single."):
        assert dead.returncode == -signal.SIGKILL
    if point == "starter.spawned":
        # It was killed at once; whether it came to its first line is a matter of luck.
        assert place.runs("k") <= 1
    else:
        assert place.runs("k") == _POINTS[point]
    runs = place.runs("k")
    # Whatever the batch system does next: a requeue, or a second submission.
    again = place.run(folder)
    if point == "single.begun":
        assert place.runs("k") == 1
        assert again.returncode == 4
        return
    assert again.stdout.startswith("duplicate")
    assert place.runs("k") == runs
    with LoginHelper.plain(place.root) as hand:
        found = hand("fence", key="k", count=1)
        assert found["free"] == []
        assert found["taken"]["0"]["attempt"] == "k-0.1"
    told = _told(place, folder)
    if _POINTS[point] and point != "starter.spawned":
        # Somebody saw the end, or says that nobody did.
        assert told is not None
        assert (told["exit"], told["reason"]) == (4, "exited") or told["reason"] == "lost"
    if not runs and told is not None:
        assert told["exit"] is None


@pytest.mark.parametrize("whom", ["job", "starter", "both"])
def test_killed_while_the_payload_runs_nothing_stays(place, whom):
    script = "touch begun; sleep 1000 & wait"
    folder = place.submit("k", place.item("k", *place.noted("k", script), launch={"grace": 1}))
    with place.start(folder) as job:
        wait_for(lambda: (folder / "0/data/begun").exists() and _left(place))
        starter = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[0])
        for pid in {"job": [job.pid], "starter": [starter], "both": [starter, job.pid]}[whom]:
            os.kill(pid, signal.SIGKILL)
        job.communicate(timeout=30)
    if whom == "both":
        # Nobody of us is left to end it; the batch system does, or the hub.
        for pid in _left(place):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not _left(place))
    assert place.run(folder).stdout.startswith("duplicate")
    assert place.runs("k") == 1
    told = _told(place, folder)
    if whom == "job":
        assert told is not None
        assert told["reason"] == "stopped"
    if whom == "starter":
        assert told is not None
        assert told["reason"] == "lost"


def _told(place: Place, folder: Path) -> dict[str, object] | None:
    """Read the evidence, or what the starter wrote down."""
    for path in (place.root / "news/k.0.ended", folder / "0/run/exit.json"):
        if path.exists():
            found = json.loads(path.read_text())
            return dict(found.get("end", found))
    return None


def _left(place: Place) -> list[int]:
    """List the processes of the payload; other tests that run meanwhile use the same key."""
    return [
        pid
        for pid, row in process.table().items()
        if row.state not in "ZX"
        and process.key_of(pid) == "k-0.1"
        and _folder(pid).is_relative_to(place.root)
    ]


def _folder(pid: int) -> Path:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path("/")
