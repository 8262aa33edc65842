"""The hub is killed with -9 at each point on the way of a task, and started again.

Each flow is done then, and each payload has run once in each attempt; no attempt was made twice.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.base import crash
from pilotage.flow.model import Notify
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving
from tests.rigs.project.flow_hub import Flow, Hub, Step, Take, served

pytestmark = pytest.mark.slow

ITEMS = 3
#: Takes a mail, and leaves it in a folder.
_MAIL = """\
import sys, tempfile
with open(tempfile.mkstemp(dir=sys.argv[1])[1], "wb") as out:
    out.write(sys.stdin.buffer.read())
"""
_MAKE = 'echo "made" > made'
#: What a site knows the attempts of a flow by.
_KEYS = """
SELECT there.key FROM flow_attempt JOIN edge_attempt AS there ON there.job = flow_attempt.job
WHERE flow_attempt.flow = ? AND flow_attempt.site = ?
"""
_names = itertools.count(1)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web")) as one:
        yield one


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, web: Web) -> Iterator[Edge]:
    """Have two sites for all; that much has happened there already is no excuse."""

    def equip(edge: Edge) -> None:
        staging = {"protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"]}
        edge.programs.add("make", _MAKE, staging=staging | {"private": ["127.0.0.0/8"]})

    with served(tmp_path_factory.mktemp("killed"), rabbit, equip) as one:
        yield one


@pytest.fixture(scope="module")
def second(first: Edge, tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("killed") / "b"
    with edge_agent.at_local(folder, rabbit, beside=first) as one, one.up():
        yield one


@pytest.fixture(scope="module")
def hub(first: Edge, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    root = tmp_path_factory.mktemp("killed")
    mails = root / "mails"
    mails.mkdir()
    told = {
        "mail": [sys.executable, "-c", _MAIL, str(mails)], "data": f"{web.url}/flows",
        "users": [edge_agent.USER], "ask": "2s",
    }  # fmt: skip
    return Hub(root / "hub", first, settings={"flows": told})


@pytest.fixture(autouse=True)
def over(hub: Hub, first: Edge) -> Iterator[None]:
    """See that what a test has left keeps no other from its work."""
    first.programs.gate.unlink(missing_ok=True)
    yield
    hub.kill()
    first.programs.gate.touch()


def chain(first: Edge, second: Edge) -> dict[str, Any]:
    """Write a flow that passes all points: data, a fan-out, a job of the hub, and a mail."""
    return {
        "name": f"whole-{next(_names)}",
        "notify": {"email": "me@place.example", "reply": "status.told"},
        "step": {
            "make": {"site": first.site, "application": "make", "outputs": ["made"]},
            "many": {
                "site": second.site, "application": "count", "each": list(range(ITEMS)),
                "needs": ["make"],
            },
            "last": {"site": first.site, "application": "count", "needs": ["many"]},
        },
    }  # fmt: skip


def built(first: Edge, second: Edge) -> Flow:
    made = Step(sites=(first.site,), application="make", outputs=("made",))
    return Flow(
        name=f"whole-{next(_names)}",
        notify=Notify(reply="status.told"),
        steps={
            "make": made,
            "many": Step(
                sites=(second.site,), application="count", each=list(range(ITEMS)), needs=("make",)
            ),
            "own": Step(
                recipe={"kind": "command", "argv": ["cat", "made"]}, needs=("many",),
                inputs=(Take(step="make"),),
            ),
            "last": Step(sites=(first.site,), application="count", needs=("own",)),
        },
    )  # fmt: skip


def whole(hub: Hub, number: int, *edges: Edge) -> None:
    """Require that a flow is done, and that all of it ran once."""
    assert hub.flow(number).state == "done", hub.told()
    tries = hub.attempts(number)
    assert [one.number for one in tries] == [1] * len(tries), hub.told()
    assert {one.state for one in tries} == {"done"}
    for edge in edges:
        invariants.i1_started_once(edge)
        known = {row[0] for row in hub.query(_KEYS, number, edge.site)}
        # What the site has of it: each attempt is one job there, which began once.
        jobs = {
            job: key.partition(".")[2]
            for job, key in edge.query("SELECT job, token FROM edge_job")
            if key.partition(".")[2] in known
        }
        assert sorted(jobs.values()) == sorted(known)
        assert {attempt for job, attempt in edge.programs.started() if job in jobs} <= {1}


#: These are passed by a flow that a command has submitted; the others have tests of their own.
ELSEWHERE = (
    "flow.begin", "flow.begun", "flow.posted", "flow.called_off", "flow.told", "flow.adopted",
    "remote.written", "remote.home",
)  # fmt: skip
POINTS = [one for one in (*crash.FLOW, *crash.REMOTE) if one not in ELSEWHERE]


@pytest.mark.crash_points
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point(hub: Hub, first: Edge, second: Edge, point: str):
    killed(hub, first, second, point, times=1)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_killed_twice_at_each_point(hub: Hub, first: Edge, second: Edge, point: str):
    killed(hub, first, second, point, times=2)


def test_killed_where_a_hub_was_killed_before(hub: Hub, first: Edge, second: Edge):
    """The second time it is on the way of what the first has left."""
    killed(hub, first, second, "flow.chosen", times=2)


def killed(hub: Hub, first: Edge, second: Edge, point: str, *, times: int) -> None:
    """Kill a hub at a point of a flow, and see that another brings it to its end."""
    number = hub.submit(built(first, second))
    for _ in range(times):
        hub.dies(point)
    with hub.up():
        hub.wait_over(number)
    whole(hub, number, first, second)


def test_killed_after_a_flow_came_by_the_broker_and_before_somebody_was_told(
    hub: Hub, first: Edge, second: Edge
):
    with hub.up():
        # From now on the broker keeps what is sent while nobody is there.
        hub.wait(lambda: _listens(first, "flow"))
    body = {"v": 1, "kind": "flow", "key": "posted-1", "flow": chain(first, second)}
    first.send(body, topic="flow")
    hub.dies("flow.posted")
    first.send(body, topic="flow")
    mails = hub.root.parent / "mails"
    before = len([*mails.iterdir()])
    hub.dies("flow.told")
    with hub.up():
        hub.wait(lambda: len([*mails.iterdir()]) > before + 1)
    found = hub.query("SELECT id FROM flow WHERE key = ?", f"message:{edge_agent.USER}:posted-1")
    assert len(found) == 1
    whole(hub, found[0][0], first, second)
    mail = max(mails.iterdir(), key=lambda one: one.stat().st_mtime).read_text()
    assert "is done" in mail
    assert "To: me@place.example" in mail
    courses = [one for one in first.heard("course") if one["key"] == "posted-1"]
    assert {one["seq"] for one in courses} == set(range(1, max(one["seq"] for one in courses) + 1))
    assert courses[-1]["state"] == "done"


def _listens(edge: Edge, topic: str) -> bool:
    try:
        return edge.admin.listeners(f"{edge.exchange}:{topic}") > 0
    except Exception:  # noqa: BLE001 - it is not there yet
        return False


def test_killed_after_sites_were_to_be_told_that_a_flow_is_called_off(hub: Hub, first: Edge):
    waits = Step(sites=(first.site,), application="gate")
    number = hub.submit(
        Flow(name="off", steps={"a": waits, "b": Step(sites=(first.site,), application="count",
                                                      needs=("a",))})
    )  # fmt: skip
    with hub.up():
        hub.wait_state(number, "a", "running")
    hub.cancel(number)
    hub.dies("flow.called_off")
    with hub.up():
        assert hub.wait_over(number) == ["cancelled"]
    assert hub.steps(number) == {"a": "cancelled", "b": "cancelled"}
    first.wait(lambda: not first.programs.running())
    assert [one.state for one in hub.attempts(number)] == ["cancelled"]


@pytest.mark.parametrize("times", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_killed_at_any_moment_while_much_is_under_way(
    hub: Hub, first: Edge, second: Edge, times: int
):
    """Whatever comes together is taken in once."""
    numbers = [hub.submit(built(first, second)) for _ in range(4)]
    dice = random.Random(7)
    begun = time.monotonic()
    hub.start()
    takes = time.monotonic() - begun
    hub.kill()
    for _ in range(times):
        hub.start(ready=False)
        # Not to wait for anything: this is the fault.
        time.sleep(dice.uniform(0.6, 1.6) * takes)
        hub.kill()
    with hub.up():
        hub.wait_over(*numbers)
    for number in numbers:
        whole(hub, number, first, second)
