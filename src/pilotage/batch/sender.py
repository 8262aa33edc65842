"""Has submissions submitted, each by one call of one command under one key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pilotage.base import crash, errors
from pilotage.base.backoff import Backoff, Pauses
from pilotage.batch import records, submission
from pilotage.batch.submission import Submission
from pilotage.batch.system.model import BatchError

if TYPE_CHECKING:
    from pilotage.batch.driver import Driver

_log = logging.getLogger("pilotage.batch")
_T = TypeVar("_T")
#: The pauses between two tries of what could certainly not be done.
_RETRY = Backoff(first=1.0, limit=60.0)


class _Withdrawn(Exception):
    """Nobody wants it any more."""


class Sender:
    """The hand of a driver that gives."""

    def __init__(self, driver: Driver) -> None:
        """Send on behalf of a driver."""
        self._driver = driver
        self._errands = driver.errands

    async def ask(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site and call the submit command, once."""
        try:
            await self._insist(one, lambda: self._errands.prepare(one, items))
            crash.point("site.prepared")
            number = await self._insist(one, lambda: self._submit(one))
            crash.point("site.submitted")
        except _Withdrawn:
            _log.debug("submission %s was called off before it was sent", one.key)
        except BatchError as error:
            await self._refused(one, str(error), final=error.final)
        except errors.Unsure as error:
            await self._refused(one, f"it is not known whether it was submitted: {error}")
        except errors.PilotageError as error:
            await self._refused(one, f"it could not be submitted: {error}")
        else:
            if number:
                await self._driver.know(one, number)
        finally:
            one.asked, one.asking, one.empty = self._driver.steady(), False, 0
            if not one.known:
                self._driver.poke()
        if one.key not in self._driver.out:
            # It was over before it was submitted, and what is put there now nobody else removes.
            await self._errands.drop([one.key])

    async def _insist(self, one: Submission, step: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do a step, again and again while it is certain that it was not done."""
        pauses = Pauses(_RETRY)
        while True:
            await self._driver.remote.ready()
            if not one.live:
                raise _Withdrawn
            try:
                done = await step()
            except errors.Unsure:
                raise
            except errors.Unavailable as error:
                self._driver.note_trouble("submit", str(error))
                self._driver.party(one).said(one, f"it cannot be submitted now: {error}")
                await self._driver.clock.sleep(pauses.next())
            else:
                self._driver.note_trouble("submit", "")
                return done

    async def _submit(self, one: Submission) -> str:
        closed = set[int]()
        while gaps := set(range(one.order.count)) - {work.place for work in one.live} - closed:
            await self._errands.fence(one, sorted(gaps))
            closed |= gaps
        if not one.live:
            raise _Withdrawn
        # From here on a claim must be taken before anything of it counts as called off.
        one.sent = True
        try:
            return await self._errands.submit(one)
        except errors.Unsure:
            raise
        except errors.Unavailable:
            one.sent = False
            raise

    async def _refused(self, one: Submission, words: str, *, final: bool = False) -> None:
        _log.warning("site %s: %s", self._driver.remote.name, words)
        one.words, one.final = words, final
        await self._driver.writer.run(lambda db: records.note(db, one.id, words))
        self._driver.party(one).said(one, words)

    def renew(self, one: Submission) -> None:
        """Submit anew what the batch system does not have, all of which is fenced."""
        submission.forget_listings(one)
        one.asking = True
        self._driver.beside.start(self._renew(one))

    async def _renew(self, one: Submission) -> None:
        key = submission.new_key()
        order = msgspec.structs.replace(
            one.order, key=key, folder=one.order.folder.replace(one.key, key),
            script=one.order.script.replace(one.key, key),
        )  # fmt: skip
        try:
            items = await self._insist(one, lambda: self._driver.party(one).items(one, key))
        except (_Withdrawn, errors.PilotageError) as error:
            _log.warning(
                "site %s: %s is not submitted anew: %s", self._driver.remote.name, one.key, error
            )
            self._driver.party(one).said(one, f"it cannot be submitted anew: {error}")
            one.asked, one.asking = self._driver.steady(), False
            return
        async with self._driver.fencing:
            if not one.live:
                one.asking = False
                return
            now = self._driver.clock.now()
            await self._driver.writer.run(lambda db: records.renew(db, one, order, now))
            crash.point("site.renewed")
            self._driver.strays.add(one.key, one.batch, self._driver.steady())
            if self._driver.out.pop(one.key, None) is None:
                # All of it was let go of while this was being written.
                one.asking = False
                return
            one.former.append(one.key)
            one.key, one.order, one.tries, one.number = key, order, one.tries + 1, ""
            self._driver.out[key] = one
        await self.ask(one, items)
