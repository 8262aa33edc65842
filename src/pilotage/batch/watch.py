"""Looks at what batch systems list, and concludes what can be concluded of what is out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotage.base import crash, errors
from pilotage.batch import submission
from pilotage.batch.party import End
from pilotage.batch.submission import Began, Gone, Known, Over, Submission, Unknown, Work
from pilotage.batch.system.model import BatchError, Item, Phase

if TYPE_CHECKING:
    from pilotage.batch.driver import Driver

#: Something that has begun and is not listed counts as lost when it has shown no sign of life for
#: so long, in seconds; it shows one every 20 (node/batchjob/record.py).
_QUIET_S = 90.0


class Watch:
    """The eyes of a driver."""

    def __init__(self, driver: Driver) -> None:
        """Look on behalf of a driver."""
        self._driver = driver
        self._errands = driver.errands
        #: Batch systems whose last answer was none: they are asked again, whatever is out.
        self.failed: set[str] = set()

    async def cycle(self) -> None:
        """Ask each batch system once for all that is out, and conclude what can be."""
        driver = self._driver
        names = {one.batch for one in driver.out.values()} | driver.strays.batches() | self.failed
        for name in sorted(names):
            now = driver.steady()
            self.failed.add(name)
            try:
                await self._look(name, now)
            except (BatchError, errors.PilotageError) as error:
                # Nothing is concluded from what could not be seen.
                driver.note_trouble(name, str(error))
            except (LookupError, TypeError, ValueError) as error:
                driver.note_trouble(name, f"the answer of the site is not understood: {error!r}")
            else:
                self.failed.discard(name)
                driver.note_trouble(name, "")

    async def _look(self, name: str, now: float) -> None:
        driver = self._driver
        found = await self._errands.listing(name)
        mine = [one for one in driver.out.values() if one.batch == name]
        remembered = await self._errands.history(name, mine, found)
        for one in mine:
            try:
                await self._conclude(one, found.get(one.key, []), remembered.get(one.key, []), now)
            except errors.Unavailable:
                raise
            except errors.PilotageError as error:
                # This one cannot be dealt with, which is nothing to the others.
                driver.note_trouble(one.key, str(error))
                driver.party(one).said(one, str(error))
        if unwanted := driver.strays.unwanted(found, driver.out, driver.steady()):
            await self._errands.cancel(name, unwanted)

    async def _conclude(
        self, one: Submission, found: Sequence[Item], remembered: Sequence[Item], now: float
    ) -> None:
        driver = self._driver
        began = []
        for finding in submission.look(one, found, remembered, now, driver.settle):
            match finding:
                case Known(number=number):
                    await driver.know(one, number)
                case Unknown():
                    await self._anew(one)
                case Began(work=work):
                    work.began = True
                    began.append((one, work))
                case Over(work=work, item=item):
                    await self._end(one, work, item, now)
                case Gone(work=work):
                    await self._end(one, work, None, now)
        if began:
            driver.party(one).begun(began, "")
        self._tell(one, found)

    def _tell(self, one: Submission, found: Sequence[Item]) -> None:
        """Pass on what the batch system says of what waits there."""
        changed = ""
        for item in found:
            work = one.works.get(item.index)
            waits = item.phase not in (Phase.RUNNING, Phase.OVER)
            if work is not None and waits and item.words and item.words != work.words:
                work.words = changed = item.words
        if changed:
            self._driver.party(one).said(one, changed)

    async def _anew(self, one: Submission) -> None:
        """Submit anew what the batch system does not have, once no copy of it can begin."""
        driver = self._driver
        async with driver.fencing:
            if one.root != driver.remote.hello.root:
                self._elsewhere(one)
                return
            if one.order.step and not one.words and (told := await self._errands.complaint(one)):
                refusal = self._errands.refusal(one, told)
                one.words, one.final = str(refusal), refusal.final
            free = await self._errands.fence(one, range(one.order.count))
            crash.point("site.fenced")
            live = one.live
            if any(work.place not in free for work in live):
                # A copy that no listing shows has begun: it is looked for by its news.
                await driver.know(one, one.number)
                for work in live:
                    if work.place in free:
                        driver.over(one, work, End(never="the batch system never had it"))
            elif one.final:
                for work in live:
                    driver.over(one, work, End(never=one.words, final=True))
            else:
                driver.sender.renew(one)

    async def _end(self, one: Submission, work: Work, item: Item | None, now: float) -> None:
        """End a work without news of its end; nothing of it can begin any more."""
        driver = self._driver
        async with driver.fencing:
            if one.root != driver.remote.hello.root:
                self._elsewhere(one)
                return
            evidence = work.parting or await self._errands.evidence(one, work)
            never = ""
            if evidence is None:
                if not await self._errands.there(one):
                    self._elsewhere(one)
                    return
                if await self._errands.fence(one, [work.place]):
                    never = "it never began"
                elif item is None and await self._lives(one, work, now):
                    driver.party(one).said(one, "it runs, and the batch system does not list it")
                    return
            driver.over(one, work, End(evidence=evidence, item=item, never=never))

    async def _lives(self, one: Submission, work: Work, now: float) -> bool:
        """Say whether something that is not listed may be alive."""
        pulse = await self._errands.pulse(one, work)
        if pulse != work.pulse:
            work.pulse, work.pulse_since = pulse, now
        return now - work.pulse_since < _QUIET_S

    def _elsewhere(self, one: Submission) -> None:
        """Say that a submission is not at this site: somebody has changed what the site is."""
        words = (
            f"{one.root}/s/{one.key} is not at the site any more: was its file changed while jobs "
            "were there? They go on if it is put back"
        )
        self._driver.note_trouble(one.key, words)
        self._driver.party(one).said(one, words)
