"""A line to the broker that is cut, slow, one-sided or blocked: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import Edge

pytestmark = pytest.mark.slow


@pytest.fixture
def edge(tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "e", rabbit) as one:
        yield one


def goes_on(edge: Edge, harm: Callable[[], None], mend: Callable[[], None]) -> None:
    """Have a job run and end while there is harm, and see that all is said after it."""
    with edge.up():
        held = edge.post("gate")
        edge.wait_state(held, "running")
        before = edge.post_many("count", 3)
        harm()
        try:
            edge.programs.gate.touch()
            edge.wait(lambda: held_ended(edge))
        finally:
            mend()
        after = edge.post_many("count", 2)
        edge.wait_ended(held, *before, *after)
        invariants.holds(edge, [held, *before, *after])


def held_ended(edge: Edge) -> bool:
    """Say whether the agent itself knows that the first job is over."""
    return min(edge.jobs().values(), key=lambda job: job.id).state == "done"


def test_connections_that_are_cut_again_and_again(edge: Edge):
    with edge.up():
        keys: list[str] = []
        for _ in range(5):
            keys += edge.post_many("count", 2)
            edge.proxy.cut()
        edge.wait_ended(*keys)
        invariants.holds(edge, keys)


def test_a_broker_whose_confirmations_are_lost(edge: Edge):
    """What was published and not confirmed is published again, and whoever hears knows it."""
    goes_on(edge, lambda: edge.proxy.blackhole("down"), edge.proxy.well)


def test_a_line_with_a_kilobyte_a_second(edge: Edge):
    with edge.up():
        first = edge.post("count")
        edge.wait_ended(first)
        edge.proxy.slow(1000)
        keys = edge.post_many("count", 2)
        edge.wait_ended(*keys)
        invariants.holds(edge, [first, *keys])


def test_a_broker_that_takes_no_messages(edge: Edge):
    goes_on(edge, edge.rabbit.block, lambda: edge.rabbit.block(blocked=False))
