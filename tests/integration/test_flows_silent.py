"""A real agent falls silent for longer than a workflow waits, and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.project.flow_hub import Flow, Hub, Step

pytestmark = pytest.mark.slow


@pytest.fixture
def first(tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "a", rabbit) as one, one.up():
        yield one


@pytest.fixture
def second(first: Edge, tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "b", rabbit, beside=first) as one, one.up():
        yield one


@pytest.fixture
def hub(first: Edge, tmp_path: Path) -> Iterator[Hub]:
    told = {"flows": {"ask": "1s", "silence": "5s"}}
    made = Hub(tmp_path / "hub", first, settings=told)
    with made.up():
        yield made


def test_a_site_that_is_silent_is_left_and_what_it_does_when_it_is_back_does_not_count(
    hub: Hub, first: Edge, second: Edge
):
    step = Step(sites=(first.site, second.site), application="gate", on_failure="other_site")
    number = hub.submit(Flow(name="silent", steps={"only": step}))
    started = hub.wait_state(number, "only", "running")
    silent, good = (first, second) if started.site == first.site else (second, first)
    silent.process.send_signal(signal.SIGSTOP)
    try:
        hub.wait(lambda: len(hub.attempts(number)) == 2)
        hub.wait(good.programs.running)
        # What the first one has begun comes to its end while nobody hears of it.
        silent.programs.gate.touch()
        silent.wait(lambda: len(silent.programs.ends()) == 1)
    finally:
        silent.process.send_signal(signal.SIGCONT)
    # Whichever it learns of first: that its job is done, or that it is not wanted any more.
    over = (["done"], ["cancelled"])
    silent.wait(lambda: [str(one.state) for one in silent.jobs().values()] in over)
    assert hub.flow(number).state == "running"
    good.programs.gate.touch()
    assert hub.wait_over(number) == ["done"]
    old, new = hub.attempts(number)
    assert (old.site, old.state, old.fenced) == (silent.site, "lost", 1)
    assert (new.site, new.state, new.fenced) == (good.site, "done", 0)
    for edge in (first, second):
        invariants.i1_started_once(edge)


def test_a_site_that_is_killed_and_started_again_goes_on_where_it_was(hub: Hub, first: Edge):
    number = hub.submit(
        Flow(
            name="killed",
            steps={
                "a": Step(sites=(first.site,), application="gate"),
                "b": Step(sites=(first.site,), application="count", needs=("a",)),
            },
        )
    )
    hub.wait_state(number, "a", "running")
    first.kill()
    hub.wait(lambda: "has been silent" in _reason(hub, number))
    first.programs.gate.touch()
    first.wait(lambda: len(first.programs.ends()) == 1)
    first.start()
    assert hub.wait_over(number) == ["done"]
    assert [one.number for one in hub.attempts(number)] == [1, 1]
    invariants.i1_started_once(first)


def _reason(hub: Hub, number: int) -> str:
    return str(hub.query("SELECT reason FROM flow_task WHERE flow = ?", number)[0][0])


def test_a_hub_that_was_away_asks_for_what_it_has_missed(hub: Hub, first: Edge):
    """Its queue is gone with all that was said meanwhile."""
    number = hub.submit(
        Flow(name="away", steps={"a": Step(sites=(first.site,), application="gate")})
    )
    hub.wait_state(number, "a", "running")
    hub.kill()
    first.programs.gate.touch()
    first.wait(lambda: [one.state for one in first.jobs().values()] == ["done"])
    mine = hub.query("SELECT value FROM cursor WHERE source = 'flows hub'")[0][0]
    queue = f"{first.exchange}:jobs:{mine}"
    first.wait(lambda: first.admin.waiting(queue) > 0)
    first.admin.purge(queue)
    hub.start()
    assert hub.wait_over(number) == ["done"]
    assert hub.query("SELECT 1 FROM edge_attempt WHERE asked IS NOT NULL")
