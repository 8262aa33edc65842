"""The way of jobs to a site: their data goes first, then they are submitted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import anyio.to_thread

from pilotage.base import errors, text
from pilotage.batch import fitting, job, ordering, submission
from pilotage.batch.driver import Driver
from pilotage.batch.held import House
from pilotage.batch.homing import Data
from pilotage.batch.job import Guest, Room
from pilotage.batch.progress import Telling
from pilotage.batch.submission import Submission, Work
from pilotage.job import moves, retry
from pilotage.job.outcome import Cause
from pilotage.run import launch, unchanged
from pilotage.run.local import Listener
from pilotage.store import Writer

_log = logging.getLogger("pilotage.batch")
#: What one job may name or say that cannot be: it must not keep others from being submitted.
ODD = (errors.PilotageError, OSError, LookupError, TypeError, ValueError)
_AGAIN_S = 5.0
#: Jobs whose data comes within this time of another's are submitted together, in seconds.
_BLINK_S = 0.02
#: An item of an order that nobody may run.
_EMPTY: dict[str, Any] = {"launch": None, "inputs": []}


class Outward:
    """Has the jobs of one site submitted."""

    def __init__(
        self, name: str, driver: Driver, house: House, writer: Writer, place: launch.Place,
        data: Data, listener: Listener, telling: Telling,
    ) -> None:  # fmt: skip
        """Take whose jobs they are and who carries their data."""
        self._name = name
        self._driver = driver
        self._remote, self._site = driver.remote, driver.remote.site
        self._house = house
        self._writer = writer
        self._launch = place
        self._data = data
        self._listener = listener
        self._telling = telling
        self._fitting = fitting.Fitting(driver, house)

    async def send(self, guests: list[Guest]) -> None:
        """Bring the data of jobs to the site, and submit them."""
        if not any(self._data.brings(one) for one in guests):
            await self._submit(guests)
            return
        coming = {asyncio.create_task(self._bring(one)): one for one in guests}
        until = asyncio.FIRST_COMPLETED if self._data.apart else asyncio.ALL_COMPLETED
        try:
            while coming:
                await asyncio.wait(coming, return_when=until)
                if self._data.apart and len(coming) > 1:
                    await asyncio.sleep(_BLINK_S)
                done = [task for task in coming if task.done()]
                brought = [(coming.pop(task), task) for task in done]
                await self._submit([one for one, task in brought if self._ready(one, task)])
        finally:
            for task in coming:
                task.cancel()

    def _ready(self, one: Guest, task: asyncio.Task[bool]) -> bool:
        """Say whether the data of a job is there; what nobody foresaw is the end of it alone."""
        error = task.exception()
        if error is None:
            return task.result()
        _log.error("job %s: its data cannot be brought", one.key, exc_info=error)
        self._house.finish(
            one,
            retry.AttemptEnd(ok=False, message=f"cannot start: {error!r}", cause=Cause.NOT_STARTED),
        )
        return False

    async def _submit(self, guests: list[Guest]) -> None:
        """Submit jobs whose data is there; those that have a choice get their shape now."""
        free = [one for one in guests if fitting.malleable(one.spec)]
        if not free:
            await self._ask(guests)
            return
        hello = await self._remote.ready()
        await self._fitting.fit(free, hello)
        unfit = [one.attempt for one in free if not await self._shaped(one)]
        ready = [one for one in guests if one.attempt not in unfit]
        for some in ordering.groups(ready, self._site):
            await self._ask(some)

    async def _shaped(self, one: Guest) -> bool:
        """Have what a job runs written for its shape; say whether it may go on."""
        while not self._house.called_off(one):
            had = await self._try(one, self._data.shaped(one), "it waits")
            if had is not None:
                return had
        return False

    async def _ask(self, guests: list[Guest]) -> None:
        """Submit jobs that ask for the same."""
        hello = await self._remote.ready()
        guests = [one for one in guests if not self._house.called_off(one)]
        key = submission.new_key()
        ready, items = self._orders(guests, hello.root, key)
        if not ready:
            return
        declared = {
            one.claim.job: [text.store_path(path) for path in paths]
            for one in ready
            if (paths := [*one.outputs.values(), *one.optional.values()])
        }
        if declared:
            await self._writer.run(lambda db: moves.declare(db, declared))
        works = [Work(place, *one.attempt) for place, one in enumerate(ready)]
        first = ready[0].spec
        order = ordering.order(first, self._site, hello, key, len(ready), ready[0].fit)
        out = await self._driver.submit(ordering.batch(first, self._site), order, works, items)
        for work in works:
            self._house.out[work.job, work.attempt] = (out, work)
        if late := [(out, work) for work in works if (work.job, work.attempt) in self._house.stops]:
            await self._driver.stop(late)

    def _orders(
        self, guests: list[Guest], root: str, key: str
    ) -> tuple[list[Guest], list[dict[str, Any]]]:
        """Write the orders of jobs; those for which that cannot be done have ended."""
        ready: list[Guest] = []
        items: list[dict[str, Any]] = []
        for one in guests:
            try:
                ordering.check(one.spec, self._name, self._site)
                room = Room(root, key, len(ready))
                items.append(job.order(one, room, self._site, self._launch))
            except ODD as error:
                self._house.finish(
                    one,
                    retry.AttemptEnd(
                        ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                    ),
                )
                continue
            ready.append(one)
            paths = [*one.outputs.values(), *one.optional.values()]
            self._listener.started(one.claim, one.binding, paths)
        return ready, items

    async def _bring(self, one: Guest) -> bool:
        """Have what a job reads at the site; say whether the job may go on."""
        ready = await self._house.while_wanted(one, self._persist(one))
        return not self._house.called_off(one) and bool(ready)

    async def _persist(self, one: Guest) -> bool:
        while not self._house.called_off(one):
            # All of a file may have to be read for it.
            if objection := await anyio.to_thread.run_sync(
                unchanged.objection, one.binding, one.spec.on_change
            ):
                self._house.finish(
                    one,
                    retry.AttemptEnd(
                        ok=False, message=objection, cause=Cause.INPUT, call_off=objection
                    ),
                )
                return False
            had = await self._try(one, self._have(one), "its data waits")
            if had is not None:
                return had
        return False

    async def _have(self, one: Guest) -> None:
        await self._remote.ready()
        await self._data.bring(one)

    async def _try(self, one: Guest, act: Awaitable[None], waits: str) -> bool | None:
        """Say whether what a job needs could be done; nothing if it must be tried again."""
        try:
            await act
        except errors.Unavailable as error:
            await self._telling.say([one.attempt], f"{waits}: {error}")
            await asyncio.sleep(_AGAIN_S)
            return None
        except ODD as error:
            self._house.finish(
                one,
                retry.AttemptEnd(
                    ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                ),
            )
            return False
        return True

    async def items(self, one: Submission, key: str) -> list[dict[str, Any]]:
        """Write the orders of jobs anew, under another key."""
        live = {work.place: self._house.guests.get((work.job, work.attempt)) for work in one.live}
        items = []
        for place in range(one.order.count):
            found = live.get(place)
            if found is None or not await self._bring(found):
                items.append(_EMPTY)
                continue
            try:
                room = Room(one.root, key, place)
                items.append(job.order(found, room, self._site, self._launch))
            except ODD as error:
                self._house.finish(
                    found,
                    retry.AttemptEnd(
                        ok=False, message=f"cannot start: {error}", cause=Cause.NOT_STARTED
                    ),
                )
                items.append(_EMPTY)
        return items
