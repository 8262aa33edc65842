"""Who goes when a person makes a pool smaller."""

from __future__ import annotations

import pytest

from pilotage.pilot.model import NodeFacts
from pilotage.pilot.view import PilotView
from pilotage.pool.view import choose


def pilot(number: int, state: str = "available", running: int = 0, cpus: int = 4) -> PilotView:
    facts = None if state in {"requested", "submitted"} else NodeFacts(
        host="n", work="/w", cpus=cpus, memory=1
    )  # fmt: skip
    return PilotView(
        number, "p", "s", "burst", state, "", 0.0, 0.0, None, running, running, "", facts=facts
    )


FLEET = [
    pilot(1, running=3), pilot(2), pilot(3, running=1), pilot(4, "submitted"),
    pilot(5, "requested"), pilot(6, "draining", running=2), pilot(7, "draining"),
]  # fmt: skip


@pytest.mark.parametrize(
    "cores, drain", [(0, {1, 2, 3, 4, 5}), (4, {2, 3, 4, 5}), (8, {2, 4, 5}), (16, {5})]
)
def test_the_busiest_stay_and_nobody_is_stopped(cores, drain):
    found = choose(FLEET, cores, 4, kill=False)
    assert set(found.drain) == drain
    assert (found.stop, found.jobs) == ((), 0)


def test_what_runs_is_ended_only_if_that_is_said_those_that_drain_too():
    found = choose(FLEET, 4, 4, kill=True)
    assert set(found.drain) == {2, 4, 5}
    assert set(found.stop) == {3, 6}
    assert found.jobs == 3


def test_a_pool_that_is_small_enough_stays():
    assert choose(FLEET[:5], 20, 4, kill=True).drain == ()
