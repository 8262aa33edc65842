"""Keep parts of a process running: one that fails is restarted with back-off, the others go on.

`Background` is for work that is done once, beside the rest.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from pilotage.base import errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.base.clock import Clock, dice

_T = TypeVar("_T")
Part = Callable[[], Awaitable[object]]

#: Seconds that a part must run after a restart before its trouble is over.
_CALM_S = 5.0
#: What can happen to any part without a mistake in it: a full disk, a peer that is away.
_EXPECTED = (errors.PilotageError, OSError)


class Background:
    """Tasks that run beside their owner: kept until they end, and what one raises is logged."""

    def __init__(
        self, log: logging.Logger, name: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        """Begin with none; `ended` is called after each."""
        self._log, self._name, self._ended = log, name, ended
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something beside."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            mistake = None if isinstance(error, _EXPECTED) else error
            self._log.error("%s: %s", self._name, error, exc_info=mistake)
        self._ended()


class TaskFailure(msgspec.Struct, frozen=True):
    """Why a part stopped."""

    #: For people; the same words are logged once in a row.
    message: str
    #: An error that is a mistake in Pilotage, to be logged with its traceback.
    mistake: BaseException | None = None


class Supervisor:
    """The parts of one process, and what is wrong with them."""

    def __init__(
        self, clock: Clock, log: logging.Logger, backoff: Backoff,
        chance: random.Random | None = None,
    ) -> None:  # fmt: skip
        """Begin with none; `backoff` is for parts that name no other."""
        self._clock, self._log, self._backoff = clock, log, backoff
        self._dice = chance or dice()
        #: By part, what was wrong, and until when that counts.
        self._told: dict[str, tuple[str, float]] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """What is wrong, by part; also with one that was restarted a moment ago."""
        now = self._clock.steady()
        return {name: words for name, (words, until) in self._told.items() if now < until}

    async def keep(
        self, name: str, part: Part, *, backoff: Backoff | None = None,
        failed: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Run a part until cancelled; `failed` is called with the reason before each pause."""
        policy = backoff or self._backoff
        pauses, logged = Pauses(policy, self._dice), ""
        while True:
            began = self._clock.steady()
            failure = await _run(part)
            lasted = self._clock.steady() - began
            pause = pauses.next_after(lasted)
            self._report(name, failure, pause, "" if lasted > policy.good else logged)
            logged = failure.message
            failed(failure.message)
            self._told[name] = (failure.message, math.inf)
            await self._clock.sleep(pause)
            self._told[name] = (failure.message, self._clock.steady() + _CALM_S)

    def _report(self, name: str, failure: TaskFailure, pause: float, logged: str) -> None:
        words = (name, failure.message, pause)
        if failure.mistake is not None:
            self._log.error("%s: %s; restarting in %.1f s", *words, exc_info=failure.mistake)
        elif failure.message != logged:
            self._log.error("%s: %s; restarting in %.1f s", *words)


async def _run(part: Part) -> TaskFailure:
    """Run a part; return why it stopped, unless this task is cancelled."""
    try:
        await part()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # To end so would quietly end all parts beside this one.
        return TaskFailure("a mistake in Pilotage: cancelled although no one asked for it", error)
    except Exception as error:  # noqa: BLE001 - the supervisor: whatever it is, the others go on
        return _failure(error)
    return TaskFailure("it ended by itself")


def _failure(error: Exception) -> TaskFailure:
    causes = list(_leaves(error))
    if all(isinstance(one, _EXPECTED) for one in causes):
        return TaskFailure(str(causes[0]) or type(causes[0]).__name__)
    odd = next(one for one in causes if not isinstance(one, _EXPECTED))
    return TaskFailure(f"a mistake in Pilotage: {str(odd) or type(odd).__name__}", error)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors within a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


async def race(*those: Awaitable[object]) -> list[bool]:
    """Wait until one of some things is done, and cancel the others; return which are done."""
    tasks = [asyncio.ensure_future(one) for one in those]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [one.done() for one in tasks]
    finally:
        for one in tasks:
            one.cancel()


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Do all at once; the first that fails ends the others, and is raised when they have ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
