"""Supervision: parts that fail are restarted with back-off, and the reason is known."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import backoff, errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.supervise import Background, Supervisor, race, together
from pilotage.testing.clock import ManualClock

LOG = logging.getLogger("pilotage.test")
RESTART = Backoff(first=0.5, limit=60.0)
some = st.floats(0.001, 1e6)


@given(some, some, st.floats(1, 10), st.floats(0, 1), st.integers(1, 2000), st.integers())
def test_pauses_grow_up_to_the_limit(
    first: float, limit: float, factor: float, jitter: float, failures: int, seed: int
):
    policy = Backoff(first, limit, factor, jitter)
    pause = policy.pause(failures, random.Random(seed))
    assert (1 - jitter) * policy.bound(failures) <= pause <= policy.bound(failures)
    assert policy.bound(failures) <= policy.bound(failures + 1) <= limit
    assert policy.bound(1) == min(first, limit)


def test_pauses_of_one_thing():
    pauses = Pauses(Backoff(first=1.0, limit=5.0, good=30.0))
    assert [pauses.next() for _ in range(4)] == [1, 2, 4, 5]
    pauses.reset()
    assert [pauses.next_after(30.0), pauses.next_after(30.1)] == [1, 1]
    assert pauses.next_after(0.0) == 2
    assert [Pauses(backoff.fixed(3.0)).next() for _ in range(2)] == [3, 3]


def test_a_part_that_dies_is_restarted_later_each_time_and_the_others_go_on():
    clock, begun = ManualClock(0.0), list[float]()
    # The last is what a library sets that gives up, although it was not asked to.
    deaths = [
        ValueError("odd"),
        errors.Unavailable("away"),
        KeyError("x"),
        asyncio.CancelledError(),
    ]

    async def dies() -> None:
        begun.append(clock.now())
        if len(begun) <= len(deaths):
            raise deaths[len(begun) - 1]
        await anyio.sleep_forever()

    async def run() -> None:
        parts = Supervisor(clock, LOG, RESTART)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.keep, "dying", dies)
            while len(begun) <= len(deaths):
                await anyio.wait_all_tasks_blocked()
                clock.advance(0.25)
            # It has only just begun, and may be about to die again.
            clock.advance(4.0)
            assert [*parts.troubles] == ["dying"]
            clock.advance(1.0)
            assert parts.troubles == {}
            tasks.cancel_scope.cancel()

    anyio.run(run)
    assert begun == [0.0, 0.5, 1.5, 3.5, 7.5]


def test_a_part_that_lasted_is_restarted_soon():
    clock, begun = ManualClock(0.0), list[float]()

    async def dies() -> None:
        begun.append(clock.now())
        if len(begun) == 3:
            await clock.sleep(61.0)
        raise errors.Unavailable("away")

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Supervisor(clock, LOG, RESTART).keep, "dying", dies)
            while len(begun) < 5:
                await anyio.wait_all_tasks_blocked()
                clock.advance(0.5)
            tasks.cancel_scope.cancel()

    anyio.run(run)
    assert begun == [0.0, 0.5, 1.5, 63.0, 64.0]


def supervise(
    parts: Mapping[str, Callable[[], Awaitable[None]]], seconds: float, **more: Any
) -> dict[str, str]:
    """Run parts until a time; return the troubles that there are then."""

    async def run() -> dict[str, str]:
        clock = ManualClock(0.0)
        supervisor = Supervisor(clock, LOG, RESTART)
        async with anyio.create_task_group() as tasks:
            for name, part in parts.items():
                tasks.start_soon(functools.partial(supervisor.keep, name, part, **more))
            while clock.now() < seconds:
                await anyio.wait_all_tasks_blocked()
                clock.advance(0.5)
            await anyio.wait_all_tasks_blocked()
            found = supervisor.troubles
            tasks.cancel_scope.cancel()
        return found

    return anyio.run(run)


async def away() -> None:
    await anyio.lowlevel.checkpoint()
    raise errors.Unavailable("away")


async def mistaken() -> None:
    await anyio.lowlevel.checkpoint()
    raise KeyError("x")


async def ended() -> None:
    await anyio.lowlevel.checkpoint()


async def both() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(away)
        tasks.start_soon(mistaken)


async def grouped() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(away)


def test_each_part_has_its_own_trouble():
    parts = {
        "away": away, "mistaken": mistaken, "ended": ended, "both": both, "grouped": grouped,
        "well": anyio.sleep_forever,
    }  # fmt: skip
    assert supervise(parts, 1.0) == {
        "away": "away",
        "mistaken": "a mistake in Pilotage: 'x'",
        "ended": "it ended by itself",
        "both": "a mistake in Pilotage: 'x'",
        "grouped": "away",
    }


def test_an_expected_trouble_is_logged_once_and_a_mistake_each_time(
    caplog: pytest.LogCaptureFixture,
):
    supervise({"grouped": grouped, "mistaken": mistaken}, 2.0, backoff=backoff.fixed(0.5))
    logged = [(one.getMessage(), bool(one.exc_info)) for one in caplog.records]
    assert logged.count(("grouped: away; restarting in 0.5 s", False)) == 1
    words = "mistaken: a mistake in Pilotage: 'x'; restarting in 0.5 s"
    assert logged.count((words, True)) == len(logged) - 1 >= 4


def test_the_reason_is_told_before_each_pause():
    told: list[str] = []
    supervise({"away": away}, 3.0, failed=told.append)
    # At 0, 0.5 and 1.5 s; the next is at 3.5 s.
    assert told == ["away"] * 3


def test_a_supervisor_ends_when_it_is_cancelled():
    async def run() -> None:
        supervisor = Supervisor(ManualClock(), LOG, RESTART)
        for part in (anyio.sleep_forever, away):
            task = asyncio.create_task(supervisor.keep("part", part))
            await anyio.wait_all_tasks_blocked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    anyio.run(run)


# -- work that is done once ------------------------------------------------------------------------


def test_work_beside_is_kept_until_it_ends(caplog: pytest.LogCaptureFixture):
    async def run() -> None:
        ended: list[int] = []
        beside = Background(LOG, "beside", lambda: ended.append(len(beside)))
        beside.start(away())
        beside.start(mistaken())
        beside.start(anyio.sleep_forever())
        assert len(beside) == 3
        await anyio.wait_all_tasks_blocked()
        assert ended == [2, 1]
        await beside.end()
        await asyncio.sleep(0)
        assert (len(beside), ended) == (0, [2, 1, 0])

    anyio.run(run)
    logged = [(one.getMessage(), bool(one.exc_info)) for one in caplog.records]
    assert logged == [("beside: away", False), ("beside: 'x'", True)]


def test_the_first_of_a_race_ends_the_others():
    async def run() -> None:
        gone = asyncio.Event()

        async def waits() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                gone.set()

        assert await race(waits(), ended()) == [False, True]
        await gone.wait()

    anyio.run(run)


def test_work_together_ends_with_the_first_failure():
    async def one(value: int) -> int:
        await anyio.lowlevel.checkpoint()
        return value

    async def run() -> None:
        assert await together(one(value) for value in (1, 2)) == [1, 2]
        gone: list[int] = []

        async def waits() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                gone.append(1)

        with pytest.raises(errors.Unavailable):
            await together([waits(), away()])
        assert gone == [1]

    anyio.run(run)
