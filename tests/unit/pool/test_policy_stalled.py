"""A provider that takes orders and never starts anything: others take over, in time."""

from __future__ import annotations

import pytest

from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.policy.model import Act, Care, Hint, Memory, Sight
from pilotage.pool.policy.places import learn, ranked, stalled

HOUR = 3600.0


class World:
    """Two providers at which nothing starts: at `a` since ever, at `b` since the last order."""

    def __init__(self, policy: Hinted | Windowed, waiting: float) -> None:
        self.policy = policy
        self.hints = (Hint("1 core", 1, 1.0, waiting),) if waiting else ()
        self.orders: dict[str, list[float]] = {"a": [], "b": []}
        self.memory = Memory()
        self.now = 0.0

    def turn(self) -> None:
        """Let half a minute pass."""
        self.now += 30.0
        sights = [
            Sight(name, name, 1, 1e12, queued=len(since), quota=8.0,
                  oldest=max((self.now - one for one in since), default=0.0))
            for name, since in self.orders.items()
        ]  # fmt: skip
        verdict = self.policy(self.now, sights, self.hints, self.memory)
        self.memory = verdict.memory
        for order in verdict.orders:
            mine = self.orders[order.pool]
            if order.act is Act.ORDER:
                mine += [self.now] * order.count
            elif order.act is Act.CANCEL:
                del mine[len(mine) - order.count :]

    def until(self, hours: float) -> None:
        while self.now < hours * HOUR:
            self.turn()


@pytest.mark.parametrize("waiting", [1.0, 3.0])
def test_few_jobs_do_not_wait_for_ever_where_nothing_starts(waiting: float):
    world = World(Hinted(), waiting)
    world.until(0.8)
    before = len(world.orders["a"])
    assert before
    assert not world.orders["b"]
    world.until(1.5)
    assert len(world.orders["b"]) >= waiting
    # What is not needed there any more is taken back, but for some slack, and then all.
    assert len(world.orders["a"]) < before
    world.hints = ()
    world.until(1.6)
    assert world.orders == {"a": [], "b": []}


def test_one_that_is_alone_keeps_what_it_has_on_order():
    world = World(Hinted(), 3.0)
    del world.orders["b"]
    world.until(1.0)
    before = len(world.orders["a"])
    world.until(4.0)
    assert 0 < len(world.orders["a"]) <= before + 1


def test_without_hints_one_is_sent_to_see_elsewhere_and_no_more():
    world = World(Windowed(), 0.0)
    world.until(0.5)
    assert [len(one) for one in world.orders.values()] == [1, 0]
    world.until(6.0)
    assert [len(one) for one in world.orders.values()] == [1, 1]


def test_only_those_that_came_teach_how_long_it_usually_takes():
    waits = Sight("a", "a", 1, 1.0, queued=1, oldest=10 * HOUR)
    (care,) = learn({"a": Care()}, [waits], 0.0).values()
    assert care.latency > Care().latency
    assert care.usual == Care().usual
    assert stalled(waits, care)
    came = Sight("a", "a", 1, 1.0, arrived=(20 * HOUR,) * 30)
    (care,) = learn({"a": care}, [came], 0.0).values()
    assert not stalled(waits, care)


def test_where_nothing_starts_is_the_last_choice():
    sights = [Sight("a", "a", 1, 1.0, queued=1, oldest=10 * HOUR), Sight("b", "b", 1, 1.0, price=9)]
    assert [one.name for one in ranked(sights, {"a": Care(), "b": Care()})] == ["b", "a"]
