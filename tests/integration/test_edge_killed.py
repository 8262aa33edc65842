"""An agent is killed with -9 wherever a message may be, and started again: each job runs once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pilotage.base import crash
from testbed.processes import Process
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import PATIENCE, Edge
from tests.rigs.broker.whole_jobs import WholeJobs
from tests.rigs.cluster.web import Web, serving

pytestmark = pytest.mark.slow

#: Where a message and its job pass, in their order; controls are tried by themselves.
POINTS = [one for one in (*crash.EDGE, *crash.STAGE, *crash.SITE) if one != "edge.obeyed"]
#: Points that are passed only after doubt, and where the doubt comes from.
AFTER = {"site.fenced": "site.intent", "site.renewed": "site.prepared"}
#: Points that each job passes by itself; at the others several may pass together.
BY_JOB = (*crash.STAGE, "site.staging_out", "site.home")
HANDFUL = 4


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    """Have one site for all; that much has happened there already is no excuse."""
    with edge_agent.at_local(tmp_path_factory.mktemp("killed") / "e", rabbit) as one:
        yield one


@pytest.fixture(scope="module")
def whole(edge: Edge) -> WholeJobs:
    made = WholeJobs(edge, edge.root / "data")
    with edge.up():
        # From now on its queues keep what is sent while nobody is there.
        edge.wait_ended(*made.post())
    return made


@pytest.fixture(autouse=True)
def over(edge: Edge) -> Iterator[None]:
    """See that what a test has left keeps no other from its work."""
    edge.programs.gate.unlink(missing_ok=True)
    yield
    edge.kill()
    edge.programs.gate.touch()


def finish(edge: Edge, *keys: str) -> None:
    """Start it again, and see that all is well."""
    with edge.up():
        edge.wait_ended(*keys)
    invariants.holds(edge, keys)


# -- at every point --------------------------------------------------------------------------------


@pytest.mark.crash_points
@pytest.mark.parametrize("point", POINTS)
def test_killed_with_a_handful_of_messages(edge: Edge, whole: WholeJobs, point: str):
    keys = whole.post(HANDFUL)
    if before := AFTER.get(point, ""):
        edge.dies(before)
    edge.dies(f"{point}:{3 if point in BY_JOB else 1}")
    finish(edge, *keys)
    whole.left(keys)


def test_killed_with_one_message(edge: Edge, whole: WholeJobs):
    """At one point before it is safe, and at one after that."""
    keys = whole.post()
    for point in ("edge.judged", "site.submitted"):
        edge.dies(point)
    finish(edge, *keys)
    whole.left(keys)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_killed_with_one_message_and_then_with_a_handful(edge: Edge, whole: WholeJobs, point: str):
    before = AFTER.get(point, "")
    keys = whole.post()
    for count, nth in ((0, 1), (HANDFUL, 3 if point in BY_JOB else 1)):
        keys += whole.post(count) if count else []
        if before:
            edge.dies(before)
        edge.dies(f"{point}:{nth}")
    finish(edge, *keys)
    whole.left(keys)


def test_killed_after_it_obeyed(edge: Edge, whole: WholeJobs):
    """What was done once is not done again, and is answered."""
    del whole
    with edge.up():
        stopped, failed = edge.post("gate"), edge.post("fail", parameters={"status": 3})
        edge.wait_state(stopped, "running")
        edge.wait_ended(failed)
    for verb, key in (("cancel", stopped), ("retry", failed)):
        edge.control(verb, keys=[key], reply=f"status.{verb}")
        edge.dies("edge.obeyed")
    with edge.up():
        edge.wait_ended(stopped)
        edge.wait(lambda: [one["attempt"] for one in ends(edge, failed)] == [1, 2])
        edge.wait(lambda: all(edge.raw(f"status.{verb}") for verb in ("cancel", "retry")))
    invariants.i1_started_once(edge)
    invariants.i2_one_end_each(edge, [stopped])
    assert edge.states([stopped]) == {stopped: "cancelled"}
    assert [one["attempt"] for one in ends(edge, failed)] == [1, 2]
    for verb in ("cancel", "retry"):
        assert {one.said["results"][0]["ok"] for one in edge.raw(f"status.{verb}")} == {True}


def ends(edge: Edge, key: str) -> list[dict[str, object]]:
    return [one for one in edge.statuses(key) if one["state"] in edge_agent.FINAL]


# -- in the midst of what takes long ---------------------------------------------------------------


def test_killed_while_jobs_run_and_they_end_while_nobody_looks(edge: Edge, whole: WholeJobs):
    """Both: those that go on are found again, and the evidence of those that ended is read."""
    with edge.up():
        watched = edge.post("gate")
        edge.wait_state(watched, "running")
    with edge.up():
        other = whole.post()
        edge.wait_ended(*other)
    known = len(edge.programs.ends())
    edge.programs.gate.touch()
    edge.wait(lambda: len(edge.programs.ends()) == known + 1)
    finish(edge, watched, *other)


@pytest.fixture
def web(edge: Edge, tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as one:
        yield one


def of_web(edge: Edge, web: Web, name: str) -> WholeJobs:
    staging = {"protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"]}
    staging["private"] = ["127.0.0.0/8"]
    return WholeJobs(edge, web.root, url=web.url, staging=staging, name=name)


class Stuck:
    """A server that takes one file, and then no more until it is let."""

    def __init__(self) -> None:
        self._taken = 0
        self.asked, self.let = threading.Event(), threading.Event()

    def __call__(self, request: Request) -> Response | None:
        if request.method != "PUT" or self.let.is_set():
            return None
        self._taken += 1
        if self._taken == 1:
            return None
        self.asked.set()
        return Response(status_code=503)


def test_killed_while_inputs_come(edge: Edge, whole: WholeJobs, web: Web):
    """A transfer that was cut off goes on where it was."""
    del whole
    mine = of_web(edge, web, "fetching")
    big = "x" * (1 << 21) + "\n"
    (web.root / "in").write_text(big)
    web.pause = 0.3
    keys = mine.post(2)
    edge.start()
    edge.wait(lambda: web.sent > 0)
    edge.kill()
    assert not any(edge.end(key) for key in keys)
    web.pause = 0.0
    finish(edge, *keys)
    for key in keys:
        assert (web.root / key / "data").read_text() == f"{big}before\n"


def test_killed_while_outputs_go(edge: Edge, whole: WholeJobs, web: Web):
    del whole
    mine, stuck = of_web(edge, web, "sending"), Stuck()
    web.faults.append(stuck)
    keys = mine.post(2)
    edge.start()
    assert stuck.asked.wait(PATIENCE), edge.told()
    edge.kill()
    assert not any(edge.end(key) for key in keys)
    stuck.let.set()
    finish(edge, *keys)
    mine.left(keys)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_a_program_runs_beside_a_job(edge: Edge, whole: WholeJobs, when: str):
    """What was left of it is ended before it runs again, so that no two are there at once."""
    del whole
    marks = edge.root / f"marks-{when}"
    marks.mkdir()
    script = (
        f'echo $$ >> "{marks}/pids"; mkdir "{marks}/lock" 2>/dev/null || touch "{marks}/twice"\n'
        f'while [ ! -e "{marks}/go" ]; do sleep 0.1; done; rmdir "{marks}/lock"'
    )
    does: dict[str, Any] = {when: script}
    mine = WholeJobs(edge, edge.root / "data", name=f"slow-{when}", **does)
    keys = mine.post()
    edge.start()
    edge.wait((marks / "lock").exists)
    edge.kill()
    (marks / "lock").rmdir()
    with edge.up():
        edge.wait(lambda: len((marks / "pids").read_text().split()) == 2)
        first = (marks / "pids").read_text().split()[0]
        assert not Process.of(int(first)).alive
        (marks / "go").touch()
        edge.wait_ended(*keys)
    invariants.holds(edge, keys)
    mine.left(keys)
    assert not (marks / "twice").exists()


# -- again and again -------------------------------------------------------------------------------


PAIRS = (
    ("edge.committed", "site.prepared"), ("stage.fetched", "edge.judged"),
    ("site.submitted", "site.ended"), ("site.home", "edge.published"),
)  # fmt: skip


def test_killed_twice_in_a_row_at_different_points(edge: Edge, whole: WholeJobs):
    killed_twice(edge, whole, *PAIRS[:2])


@pytest.mark.soak
def test_killed_twice_in_a_row_at_many_points(edge: Edge, whole: WholeJobs):
    killed_twice(edge, whole, *PAIRS)


def killed_twice(edge: Edge, whole: WholeJobs, *pairs: tuple[str, str]) -> None:
    """The second time it is on the way of what the first has left."""
    keys: list[str] = []
    for first, second in pairs:
        keys += whole.post(2)
        edge.dies(first)
        keys += whole.post()
        edge.dies(second)
    finish(edge, *keys)
    whole.left(keys)


@pytest.mark.parametrize("times", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_killed_again_and_again_while_it_recovers(edge: Edge, whole: WholeJobs, times: int):
    """At moments from the first import to some work after it was ready, with jobs everywhere."""
    keys = []
    with edge.up():
        running = edge.post("gate")
        edge.wait_state(running, "running")
    # Jobs that come together may be one order, and pass such a point once.
    for point in ("site.prepared", "site.ended", "stage.fetched")[-times:]:
        keys += whole.post(2)
        edge.dies(point)
    edge.programs.gate.touch()
    keys += whole.post(3)
    begun = time.monotonic()
    edge.start()
    takes = time.monotonic() - begun
    edge.kill()
    dice = random.Random(7)
    for _ in range(times):
        edge.start(ready=False)
        # Not to wait for anything: this is the fault.
        time.sleep(dice.uniform(0.3, 1.8) * takes)
        edge.kill()
    finish(edge, running, *keys)
    whole.left(keys)
